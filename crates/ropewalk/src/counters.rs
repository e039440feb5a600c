//! What the nodes of this machine write into their pages, which are read without asking the nodes.

use crate::exit::{self, Failure};
use crate::render::{counted, grouped, with_default};
use crate::runs::civil;
use clap::Args;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use ropewalk_config::quantity::Time;
use ropewalk_engine::pages::{Findings, OwnerKind, PageError, PageReading, PageState, PagesReport, Shown, find};
use ropewalk_terms::Instant;
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

/// The default interval of reading the pages.
const EVERY: &str = "1s";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk counters
  ropewalk counters --watch
  ropewalk counters /dev/shm/ropewalk-1000 --sources --json
  ropewalk counters --remove --output /data")]
pub(crate) struct CountersOptions {
    /// Directories of counter pages, or pages; by default those of all nodes on this machine.
    #[arg(value_name = "DIR|FILE")]
    pub(crate) places: Vec<PathBuf>,
    /// Only nodes whose output directory is DIR.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = EVERY)]
    #[arg(help = with_default("Repeat with rates, every TIME", EVERY))]
    pub(crate) watch: Option<Time>,
    /// Show each source and stream, too.
    #[arg(long)]
    pub(crate) sources: bool,
    /// Print one JSON object; with --watch, one in each line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show the pages of ended processes, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// Remove the pages of processes that have ended, of all runs or of those with --output, and print their number.
    #[arg(long, conflicts_with = "watch")]
    pub(crate) remove: bool,
}

pub(crate) fn counters(options: &CountersOptions) -> Result<u8, Failure> {
    let mut earlier = Vec::new();
    loop {
        let mut found = find(&options.places);
        if let Some(output) = &options.output {
            let output = std::path::absolute(output).unwrap_or_else(|_| output.clone()).display().to_string();
            found.pages.retain(|page| page.label().output == output);
        }
        if options.watch.is_none() {
            report(&found)?;
        }
        let is_read = show(&found, &earlier, options)?;
        let Some(Time(pause)) = options.watch.filter(|_| is_read) else {
            if options.remove {
                remove(&found.pages)?;
            }
            return Ok(if found.errors.is_empty() { exit::GOOD } else { exit::UNBALANCED });
        };
        earlier = found.pages;
        std::thread::sleep(pause);
    }
}

/// Reports what cannot be read. A place that does not exist is the caller's mistake.
fn report(found: &Findings) -> Result<(), Failure> {
    match found.errors.iter().find(|error| error.is_not_found()) {
        Some(missing) => return Err(Failure::Usage(missing.to_string())),
        None => found.errors.iter().for_each(|error| tell!("error: {error}")),
    }
    Ok(())
}

/// Prints the pages. Returns whether standard output still has a reader.
fn show(found: &Findings, earlier: &[PageReading], options: &CountersOptions) -> Result<bool, Failure> {
    let text = if options.json {
        let report = serde_json::to_string(&PagesReport::new(&found.pages, earlier, found.at));
        report.map_err(|error| Failure::Environment(error.to_string()))? + "\n"
    } else if options.remove {
        String::new()
    } else {
        text(found, earlier, options)
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Environment(format!("standard output: {error}"))),
    }
}

fn remove(pages: &[PageReading]) -> Result<(), Failure> {
    let mut count = 0;
    for page in pages {
        let removed = page.remove_if_left().map_err(|error: PageError| Failure::Environment(error.to_string()))?;
        count += usize::from(removed);
    }
    tell!("{} of ended processes removed", counted(count, "page"));
    Ok(())
}

/// The pages as text, one below the other. With `--watch` on a terminal the last ones are cleared.
fn text(found: &Findings, earlier: &[PageReading], options: &CountersOptions) -> String {
    let wipes = options.watch.is_some() && std::io::stdout().is_terminal();
    let mut text = if wipes { "\x1b[H\x1b[2J".to_owned() } else { String::new() };
    if found.pages.is_empty() {
        text.push_str("no node has a page here\n");
    }
    let is_over = |page: &&PageReading| matches!(page.state(found.at), PageState::Ended | PageState::Gone);
    let hides = !options.all && options.places.is_empty();
    for page in found.pages.iter().filter(|page| !hides || !is_over(page)) {
        let before = earlier.iter().find(|earlier| earlier.file() == page.file());
        text.push_str(&head(page, found.at));
        let mut table = Table::new();
        table.load_style(NOTHING);
        add_rows(&mut table, "  ", page.numbers(before));
        let rows = [(OwnerKind::Source, "source"), (OwnerKind::Stream, "stream")];
        for (kind, what) in rows.into_iter().filter(|_| options.sources) {
            for (row, shown) in page.rows(kind, before) {
                table.add_row([format!("  {what} {} {}", row.id, printable(&row.name)).trim_end()]);
                add_rows(&mut table, "    ", shown);
            }
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let _ = writeln!(text, "{table}\n");
    }
    let hidden = found.pages.iter().filter(is_over).count();
    if hides && hidden > 0 {
        let pages = counted(hidden, "page");
        let _ = writeln!(text, "{pages} of ended processes: --all shows them, --remove removes them");
    }
    text
}

/// On a busy machine a thread may get no processor for seconds; a node stands still only after this time.
const STANDS: Duration = Duration::from_secs(10);

/// The node, the phase of its run, and the activity of its thread.
fn head(page: &PageReading, now: Instant) -> String {
    let label = page.label();
    let last = page.turned_utc().map_or_else(|| "never".to_owned(), |time| format!("at {} UTC", civil(time.0)));
    let state = match page.state(now) {
        PageState::Turns => "turns".to_owned(),
        PageState::Hangs(still) => format!("HANGS: in one turn for {:.1} s", still.as_secs_f64()),
        PageState::Stands(still) if still < STANDS => format!("turned {:.1} s ago", still.as_secs_f64()),
        PageState::Stands(still) => format!("STANDS STILL: no turn for {:.1} s", still.as_secs_f64()),
        PageState::Ended => "has ended".to_owned(),
        PageState::Gone => format!("GONE: its process ended before the run, and turned last {last}"),
    };
    let (node, role, output) = (printable(&label.node), printable(&label.role), printable(&label.output));
    let (run, phase, pid) = (page.run(), page.phase(), label.pid);
    format!("{node}  {role}  run {run} {phase}  process {pid}  {output}\n  {state}\n", phase = printable(phase))
}

/// A row for each number: name, value, and rate if known.
fn add_rows(table: &mut Table, indent: &str, shown: Vec<Shown<'_>>) {
    for Shown { number, value, rate } in shown {
        let (name, is_time) = (printable(&number.name), number.unit == "nanoseconds");
        let amount = match number.unit.as_str() {
            "nanoseconds" => format!("{:.3} s", value as f64 / 1e9),
            "bytes" => format!("{} B", grouped(value)),
            _ => grouped(value),
        };
        let rate = rate.map_or_else(String::new, |rate| match number.unit.as_str() {
            // Seconds in a second.
            _ if is_time => format!("{:.1} %", rate / 1e7),
            "bytes" => format!("{} B/s", grouped(rate as u64)),
            _ => format!("{}/s", grouped(rate as u64)),
        });
        table.add_row([format!("{indent}{name}"), amount, rate]);
    }
}

/// Text of another program, without control characters for the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}
