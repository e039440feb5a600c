//! What a run looks like at its end: its account as a table, and lines for what somebody should know.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use ropewalk_node::quantity::Bytes;
use ropewalk_node::run::{IncidentSummary, RunSummary};

/// A line for each source with wrong checksums: nothing is lost, but somebody should look at that front end.
pub(crate) fn checksum_lines(summary: &RunSummary) -> Vec<String> {
    let wrong = summary.by_source.iter().filter_map(|(id, account)| Some((id, account["crc_errors"].as_u64()?)));
    wrong
        .filter(|&(_, count)| count > 0)
        .map(|(id, count)| {
            let fragments = if count == 1 { "fragment" } else { "fragments" };
            format!("source {id}: {} {fragments} with a wrong checksum, kept and flagged", grouped(count))
        })
        .collect()
}

/// Those of an account's counts that are not 0, each with what is said of it.
fn counted(account: &serde_json::Value, said: &[(&str, &str)]) -> Vec<String> {
    let count = |key: &str| account[key].as_u64().filter(|&count| count > 0);
    said.iter().filter_map(|(key, what)| count(key).map(|count| format!("{what}: {}", grouped(count)))).collect()
}

/// Counts by cause, as `cause 3, other_cause 4`.
fn named(map: &serde_json::Map<String, serde_json::Value>) -> String {
    map.iter().map(|(cause, count)| format!("{cause} {count}")).collect::<Vec<_>>().join(", ")
}

/// What never came here, by name. A datagram that was lost at its socket is missing by its number, too.
fn lost_on_the_way(summary: &RunSummary) -> Option<String> {
    let mut by_name = summary.datagrams["lost_by_cause"].as_object().cloned().unwrap_or_default();
    if summary.fragments.seen.frames_missing > 0 {
        by_name.insert("frames_missing".to_owned(), summary.fragments.seen.frames_missing.into());
    }
    (!by_name.is_empty()).then(|| named(&by_name))
}

/// A line for each source with fragments that are in doubt for another reason than their checksum.
pub(crate) fn flag_lines(summary: &RunSummary) -> Vec<String> {
    let flagged = summary.by_source.iter().filter_map(|(id, account)| Some((id, account["flagged"].as_object()?)));
    let flagged = flagged.filter(|(_, flags)| !flags.is_empty());
    flagged.map(|(id, flags)| format!("source {id}: fragments in doubt, kept and flagged: {}", named(flags))).collect()
}

/// A line for each source whose numbers began elsewhere than at `first`.
pub(crate) fn begin_lines(summary: &RunSummary) -> Vec<String> {
    let begin = |(id, anomalies): (&String, &serde_json::Value)| {
        let begin = anomalies.as_array()?.iter().find(|one| one["kind"] == "begin")?;
        let number = begin["to"].as_u64()?;
        Some(format!("source {id}: its first event is number {number}, as its numbers show (`first` is not given)"))
    };
    summary.numbering.iter().filter_map(begin).collect()
}

/// A line for each source that started its numbering again, so that nothing tells where its fragments belong.
pub(crate) fn restart_lines(summary: &RunSummary) -> Vec<String> {
    let is_lost = |one: &&serde_json::Value| one["kind"] == "out_of_sync";
    let line = |id: &String, one: &serde_json::Value| {
        let event = one["event"].as_str().unwrap_or_default();
        format!(
            "source {id} restarted counting: {} -> {} (event {event}); what followed is out of sync",
            one["from"], one["to"]
        )
    };
    let of = |(id, all): (&String, &serde_json::Value)| -> Vec<String> {
        all.as_array().into_iter().flatten().filter(is_lost).map(|one| line(id, one)).collect()
    };
    summary.numbering.iter().flat_map(of).collect()
}

/// A line for each source of whose frames some are amiss, and for datagrams that became nobody's fragment.
pub(crate) fn frame_lines(summary: &RunSummary) -> Vec<String> {
    const FRAMES: [(&str, &str); 5] = [
        ("frames_missing", "frames missing by their own numbers"),
        ("frames_out_of_order", "twice or late"),
        ("garbage_bytes", "bytes that were no frame"),
        ("filler_bytes", "bytes of the format between frames"),
        ("splitter_restarts", "times its splitter had to be started again"),
    ];
    const DATAGRAMS: [(&str, &str); 2] = [
        ("lost", "datagrams lost before they could be taken, since nobody can hold their senders back"),
        ("nobodys", "datagrams of boards that are no source (compare `demux` with who sends)"),
    ];
    let sources = summary.by_source.iter().map(|(id, account)| (id, counted(account, &FRAMES)));
    let sources = sources.filter(|(_, said)| !said.is_empty());
    let sources = sources.map(|(id, said)| format!("source {id}: {}", said.join(", ")));
    let lost = summary.datagrams["lost_by_source"].as_object().into_iter().flatten();
    let lost =
        lost.filter_map(|(id, causes)| Some(format!("source {id}: datagrams lost: {}", named(causes.as_object()?))));
    sources.chain(lost).chain(counted(&summary.datagrams, &DATAGRAMS)).collect()
}

/// A line for each thing that went wrong with a front end under run control.
pub(crate) fn incident_lines(summary: &RunSummary) -> Vec<String> {
    let Some(front_ends) = &summary.front_ends else { return Vec::new() };
    let name = |source: u32| front_ends.by_source[&source.to_string()]["name"].as_str().unwrap_or_default().to_owned();
    let line =
        |one: &IncidentSummary| format!("source {} {}: {:.1} s: {}", one.source, name(one.source), one.at_s, one.what);
    let more = (front_ends.incidents_beyond > 0).then(|| format!("and {} more", grouped(front_ends.incidents_beyond)));
    front_ends.incidents.iter().map(line).chain(more).collect()
}

/// One line per node with unknown numbers.
pub(crate) fn partial_lines(summary: &RunSummary) -> Vec<String> {
    summary
        .partial
        .iter()
        .map(|one| format!("the account is partial: {}: not known is {}", one.node, one.unknown))
        .collect()
}

/// A line for each disk that failed to the end.
pub(crate) fn disk_lines(summary: &RunSummary) -> Vec<String> {
    let failing = summary.disk["failing"].as_array().into_iter().flatten();
    let text = |disk: &serde_json::Value, key: &str| disk[key].as_str().unwrap_or_default().to_owned();
    let failing = failing.map(|disk| format!("{}: its disk failed: {}", text(disk, "node"), text(disk, "error")));
    let said = [
        ("files_restored", "run files deleted or moved by somebody while they were written, and written once more"),
        ("events_gone", "events lost with deleted run files"),
    ];
    failing.chain(counted(&summary.disk, &said)).collect()
}

/// 1234567 as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns of the ledger where it goes to no terminal: one long value must not make all lines long.
const WIDEST_LEDGER: u16 = 100;

/// A table with long values broken, where no terminal says how wide it is, too.
pub(crate) fn table_of_two_columns() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDEST_LEDGER);
    }
    table
}

/// The ledger as a table.
pub(crate) fn ledger_table(summary: &RunSummary) -> Table {
    let mut table = table_of_two_columns();
    table.set_header(["run", &format!("{:06}  {}", summary.run, summary.state)]);
    let mut row = |name: &str, value: String| {
        table.add_row([name, &value]);
    };
    fragment_rows(summary, &mut row);
    if let Some(trigger) = summary.front_ends.as_ref().and_then(|front_ends| front_ends.trigger.as_ref()) {
        row("triggers issued", grouped(trigger.issued));
        row("  accepted", grouped(trigger.accepted));
        if !trigger.vetoed.is_empty() {
            row("  vetoed", named(&trigger.vetoed));
        }
        if trigger.without_event > 0 {
            row("  became no event", grouped(trigger.without_event));
        }
    }
    event_rows(summary, &mut row);
    if let Some(files) = &summary.file_based {
        row("filtered as files", format!("{} files", grouped(files.files)));
        row("  accepted", grouped(files.accepted));
        row("  rejected", grouped(files.rejected));
        if files.set_aside > 0 {
            row("  set aside", grouped(files.set_aside));
        }
    }
    let number = |value: &serde_json::Value, key: &str| value[key].as_f64().unwrap_or(0.0);
    row("events per second", grouped(number(&summary.rate, "events_per_s") as u64));
    row("bandwidth", format!("{}/s", Bytes(number(&summary.rate, "bytes_per_s") as u64)));
    row("written", Bytes(number(&summary.bytes, "written") as u64).to_string());
    if number(&summary.deleted, "segments") > 0.0 {
        let bytes = Bytes(number(&summary.deleted, "bytes") as u64);
        row("deleted to keep the newest", format!("{bytes} in {} files", number(&summary.deleted, "segments")));
    }
    row("duration", format!("{:.2} s", summary.duration_s));
    if !summary.status.is_good() {
        row("exit status", summary.status.code.to_string());
    }
    row(
        "ledger",
        if summary.is_balanced() {
            let partial = if summary.partial.is_empty() { "" } else { ", partial" };
            format!("balanced{partial}")
        } else {
            format!("NOT BALANCED: {}", summary.ledger["unbalanced"])
        },
    );
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What became of fragments.
fn fragment_rows(summary: &RunSummary, mut row: impl FnMut(&str, String)) {
    let fragments = &summary.fragments;
    row("fragments received", grouped(fragments.received));
    row("  in complete events", grouped(fragments.in_complete_events));
    for (name, count) in [
        ("  in incomplete events", fragments.in_incomplete_events),
        ("  duplicate", fragments.duplicate),
        ("  late", fragments.late),
        ("  corrupt", fragments.corrupt),
        ("  before the start", fragments.stale),
        ("  after the stop", fragments.after_stop),
        ("  in flight", fragments.in_flight),
        ("  with a wrong checksum", fragments.seen.crc_errors),
    ] {
        if count > 0 {
            row(name, grouped(count));
        }
    }
    if !fragments.flagged.is_empty() {
        row("  in doubt", named(&fragments.flagged));
    }
    if !fragments.dropped.is_empty() {
        row("  dropped", named(&fragments.dropped));
    }
    if let Some(lost) = lost_on_the_way(summary) {
        row("lost on the way here", lost);
    }
}

/// What became of events.
fn event_rows(summary: &RunSummary, mut row: impl FnMut(&str, String)) {
    let events = &summary.events;
    row("events assigned", grouped(events.assigned));
    row("  built", grouped(events.built));
    if events.incomplete_emitted > 0 {
        row("  incomplete, kept", grouped(events.incomplete_emitted));
    }
    if events.incomplete_dropped > 0 {
        row("  dropped", named(&events.incomplete_dropped_by_cause));
    }
    for (name, count) in [
        ("  rejected", events.rejected),
        ("  accepted, taken by no stream", events.unselected),
        ("  set aside, without a decision", events.quarantined),
    ] {
        if count > 0 {
            row(name, grouped(count));
        }
    }
    row("  written", grouped(events.written));
    for (name, stream) in &summary.streams {
        row(&format!("    to {name}"), grouped(stream.written));
    }
    if summary.filter.restarts > 0 {
        row("filter units started again", grouped(summary.filter.restarts));
    }
}

/// A line for each source that slipped.
pub(crate) fn synchrony_lines(summary: &RunSummary) -> Vec<String> {
    summary
        .synchrony
        .iter()
        .filter_map(|state| match state.verdict {
            "offset" => {
                let count = state.offset.unsigned_abs();
                let events = if count == 1 { "one event".to_owned() } else { format!("{count} events") };
                let direction = if state.offset > 0 { "early" } else { "late" };
                Some(format!("source {}: {events} {direction} since event {}", state.source, state.since))
            }
            "lost" => {
                Some(format!("source {}: no fixed relation to the reference since event {}", state.source, state.since))
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_value_makes_no_line_of_the_ledger_long() {
        let mut table = table_of_two_columns();
        table.add_row(["ledger", &"something is not balanced; ".repeat(30)]);
        // A terminal may be wider or narrower; tests have none.
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest <= table.width().map(usize::from), "{widest:?} columns");
    }
}
