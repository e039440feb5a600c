//! What the terminal shows of an account with flows.

use crate::render::{disk_lines, grouped};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ropewalk_run::RunSummary;
use ropewalk_run::gateway::{FlowSummary, RestartSummary};
use ropewalk_terms::ByCause;

/// Sentences on sources that are printed of an account: a flow may have hundreds of sources.
const MOST_REMARKS: usize = 10;

/// The lines of an account with flows.
pub(crate) fn lines(summary: &RunSummary) -> Vec<String> {
    let mut lines = Vec::new();
    // Sources and nodes in separate processes know only what they did themselves.
    let is_node = summary.gateways.is_empty() && summary.farm.is_some();
    match summary.farm.filter(|_| is_node) {
        Some(farm) => lines.push(format!(
            "received {} events, {} of them incomplete; accepted {}",
            grouped(farm.events + farm.incomplete),
            grouped(farm.incomplete),
            grouped(farm.accepted)
        )),
        None => lines.push(table(summary).to_string()),
    }
    lines.extend(summary.remarks.iter().take(MOST_REMARKS).cloned());
    let more = summary.remarks.len().saturating_sub(MOST_REMARKS);
    lines.extend((more > 0).then(|| format!("and {} more `remarks` in the account", grouped(more as u64))));
    lines.extend(restart_lines(summary));
    lines.extend(disk_lines(&summary.disk));
    lines.extend(summary.ledger.unbalanced.iter().map(|broken| format!("UNBALANCED: {broken}")));
    if !summary.directory.as_os_str().is_empty() {
        let written = grouped(summary.events.written);
        lines.push(format!("written {written} events; the account is in {}", summary.directory.display()));
    }
    lines
}

/// A line for each source that started its numbering again.
fn restart_lines(summary: &RunSummary) -> Vec<String> {
    let sources = summary.flows.values().flat_map(|flow| &flow.sources);
    let restarted = sources.filter_map(|(id, source)| Some((id, source.last_restart?, source.out_of_sync)));
    let line = |(id, RestartSummary { from, to }, dropped): (&String, RestartSummary, u64)| {
        format!("source {id} restarted counting: {from} -> {to}; {dropped} packets behind that were out of sync")
    };
    restarted.map(line).collect()
}

/// A number of a flow's account; `None` if it is unknown here.
type Number = fn(&FlowSummary) -> Option<u64>;

/// The number of rows of `PACKETS` that sources know.
const SENT_ROWS: usize = 2;

/// Rows of the account, above the packets that were lost without a cause.
const PACKETS: &[(&str, Number)] = &[
    ("packets sent", |flow| Some(flow.sent?.packets)),
    ("lost on purpose", |flow| Some(flow.sent?.lost_on_purpose)),
    ("received", |flow| Some(flow.packets.received)),
    ("  in complete sets", |flow| Some(flow.packets.in_complete_events)),
    ("  in incomplete sets", |flow| Some(flow.packets.in_incomplete_events)),
    ("  received twice", |flow| Some(flow.packets.duplicate)),
    ("  too late", |flow| Some(flow.packets.late)),
];

/// Rows below.
const EVENTS: &[(&str, Number)] = &[
    ("sets complete", |flow| Some(flow.sets.complete)),
    ("sets incomplete", |flow| Some(flow.sets.incomplete)),
    ("events decided", |flow| Some(flow.farm.decided)),
    ("  by default (time-out)", |flow| Some(flow.farm.by_default)),
    ("  within the latency budget", |flow| Some(flow.farm.in_budget)),
    ("accepted", |flow| Some(flow.events.accepted)),
    ("events sent to a node again", |flow| Some(flow.farm.pushed_again)),
    ("decisions sent in event order", |flow| Some(flow.farm.streamed)),
    ("events sent to storage", |flow| Some(flow.farm.stored)),
    ("events in flight", |flow| Some(flow.events.in_flight)),
];

fn table(summary: &RunSummary) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header([String::new()].into_iter().chain(summary.flows.keys().cloned()));
    let mut row = |name: &str, text: &dyn Fn(&FlowSummary) -> String| {
        table.add_row([name.to_owned()].into_iter().chain(summary.flows.values().map(text)));
    };
    let is_known = |of: &Number| summary.flows.values().any(|flow| of(flow).is_some());
    let number = |number: Number| move |flow: &FlowSummary| number(flow).map_or_else(|| "-".to_owned(), grouped);
    if summary.gateways.is_empty() {
        PACKETS.iter().take(SENT_ROWS).for_each(|(name, of)| row(name, &number(*of)));
        return aligned(table);
    }
    PACKETS.iter().filter(|(_, of)| is_known(of)).for_each(|(name, of)| row(name, &number(*of)));
    row("sent, and lost without a cause", &|flow| {
        u64::try_from(flow.unexplained).map_or_else(|_| flow.unexplained.to_string(), grouped)
    });
    EVENTS.iter().for_each(|(name, of)| row(name, &number(*of)));
    row("packets lost", &|flow| by_cause(&flow.lost_by_cause));
    row("packets refused", &|flow| by_cause(&flow.packets.dropped));
    row("packets missing", &|flow| by_cause(&flow.sets.missing_packets));
    aligned(table)
}

fn aligned(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Counts by cause, a line each.
fn by_cause(causes: &ByCause) -> String {
    causes.names().iter().map(|(cause, count)| format!("{cause} {count}")).collect::<Vec<_>>().join("\n")
}
