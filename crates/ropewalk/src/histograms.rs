//! What the filters of a run counted, added up over its builder units.

use crate::arguments::HistogramsOptions;
use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use crate::render::grouped;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ropewalk_run::monitoring::{Histograms, MergeError, merge};

pub(crate) fn histograms(options: &HistogramsOptions) -> Result<u8, Failure> {
    let sum = match merge(&options.directories) {
        Ok(sum) => sum,
        Err(error @ MergeError::Unfit { .. }) => {
            tell!("error: {error}");
            return Ok(exit::UNBALANCED);
        }
        Err(MergeError::System { error, path, action }) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::Environment(MergeError::System { error, path, action }.to_string()));
        }
        Err(error) => return Err(Failure::Usage(error.to_string())),
    };
    if options.json {
        print_json(&sum)?;
    } else {
        write_results(text(&sum).as_bytes());
    }
    Ok(exit::GOOD)
}

fn text(sum: &Histograms) -> String {
    let (total, builders) = (&sum.total, sum.builders.iter().cloned().collect::<Vec<_>>().join(", "));
    let mut text = format!("run           {}\nbuilder units {builders}\n", sum.run);
    for (name, count) in [
        ("lumisections", sum.lumisections.len() as u64),
        ("events", total.events()),
        ("accepted", total.accepted),
        ("rejected", total.rejected),
        ("set aside", total.quarantined),
        ("fills dropped", total.dropped_fills),
    ] {
        text.push_str(&format!("{name:<13} {}\n", grouped(count)));
    }
    for (trigger, count) in &total.triggers {
        text.push_str(&format!("trigger {trigger:<5} {}\n", grouped(*count)));
    }
    for (stream, count) in &total.streams {
        text.push_str(&format!("stream {stream}: {}\n", grouped(*count)));
    }
    if total.histograms.is_empty() { text } else { format!("{text}{}\n", table(sum)) }
}

fn table(sum: &Histograms) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["histogram", "bins", "from", "to", "entries", "below", "above", "not a number", "mean of bins"]);
    for (name, one) in &sum.total.histograms {
        let mean = one.mean().map_or("-".to_owned(), |mean| format!("{mean:.4}"));
        let counts = [one.entries, one.underflow, one.overflow, one.not_a_number].map(grouped);
        let [entries, below, behind, none] = counts;
        let (bins, low, high) = (one.bins.len().to_string(), one.low.to_string(), one.high.to_string());
        table.add_row([name.clone(), bins, low, high, entries, below, behind, none, mean]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
