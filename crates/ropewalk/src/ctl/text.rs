//! Answers of run control as text.

use super::Request;
use crate::masks::{self, Names};
use crate::render::{columns, grouped, has_colours, table_of_two_columns, time_of_day};
use crate::runs;
use comfy_table::{Cell, CellAlignment, Color};
use ratatui::crossterm::style::Stylize;
use ropewalk_control::Replied;
use ropewalk_monitor::quality::lasting;
use serde_json::Value;

/// The lines that show an answer. An answer with status 404 has none: it is printed as an error.
pub(super) fn lines(request: &Request, replied: &Replied, names: &Names) -> Vec<String> {
    let body = &replied.body;
    match request {
        _ if replied.status == 404 => Vec::new(),
        Request::Restart { .. } if body["restarted"].is_array() => masks::restarted(body, names),
        _ if !(200..300).contains(&replied.status) => answer(body),
        Request::Quality => quality(body),
        Request::Limit => limit(body),
        Request::Alarms { all } => vec![alarms(list(body), *all)],
        Request::Acknowledge { alarm } | Request::Shelve { alarm, .. } => {
            list(body).iter().filter(|one| one["name"] == *alarm).map(alarm_line).collect()
        }
        Request::TestAlarms => vec!["the test message was sent and accepted".to_owned()],
        Request::Sources => vec![sources(list(body))],
        Request::Ledger => ledger(body),
        Request::Journal => list(body).iter().map(entry).collect(),
        Request::Mask { .. } | Request::Unmask { .. } | Request::Masks => masks::lines(list(body), names),
        Request::Parameters => vec![parameters(list(body))],
        Request::Set { changes } => {
            let is_changed = |one: &&Value| changes.iter().any(|(name, _)| one["name"] == *name);
            list(body).iter().filter(is_changed).map(parameter).collect()
        }
        Request::Addresses => vec![addresses(list(body))],
        Request::Histograms => vec![histograms(list(body), names)],
        Request::Runs => vec![known_runs(list(body))],
        Request::Files { .. } => runs::lines(body),
        Request::Reference { .. } => vec![reference(body)],
        Request::Note { .. } => vec![format!("note added to run {} by {}", body["run"], text(&body["by"]))],
        Request::State => state(body),
        _ => answer(body),
    }
}

fn list(body: &Value) -> &[Value] {
    body.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A count; `-` if it is unknown.
fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), grouped)
}

/// A stable name as words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// The answer to a command: its outcome and the state.
fn answer(body: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(outcome) = body["answer"].as_str() {
        lines.push(format!("{}: {}", text(&body["command"]), words(outcome)));
    }
    lines.extend(["text", "error"].iter().filter_map(|&name| body[name].as_str().map(str::to_owned)));
    if let Some(operator) = body.get("operator") {
        lines.push(control(operator));
    }
    if let Some(state) = body["state"].as_str() {
        lines.push(format!("state {state}, allowed: {}", allowed(body)));
    }
    lines
}

fn allowed(body: &Value) -> String {
    let allowed: Vec<_> = list(&body["allowed"]).iter().map(text).collect();
    if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") }
}

fn control(operator: &Value) -> String {
    match operator["name"].as_str() {
        Some(name) => {
            format!("{name} has control since {} UTC", time_of_day(operator["since_ns"].as_i64().unwrap_or(0)))
        }
        None => "control is free: every operator may send commands".to_owned(),
    }
}

fn state(body: &Value) -> Vec<String> {
    let task = body["task"].as_str().map_or_else(String::new, |task| format!(" ({task})"));
    let since = time_of_day(body["since_ns"].as_i64().unwrap_or(0));
    let mut lines = vec![format!("state      {}{task} since {since} UTC", text(&body["state"]))];
    if let Some(run) = body["run"].as_u64() {
        lines.push(format!("run        {run}, in {}", text(&body["directory"])));
    }
    let fields = body["fields"].as_object().into_iter().flatten();
    let fields: Vec<_> = fields.map(|(name, value)| format!("{name}={}", text(value))).collect();
    if !fields.is_empty() {
        lines.push(format!("fields     {}", fields.join(", ")));
    }
    lines.push(format!("allowed    {}", allowed(body)));
    lines.push(format!("operator   {}", control(&body["operator"])));
    lines.extend(body["trouble"].as_str().map(|trouble| format!("error      {trouble}")));
    lines
}

/// A measured value, without digits that mean nothing.
fn measured(value: f64) -> String {
    match value {
        _ if value.abs() < 100.0 && value.fract() != 0.0 => format!("{value:.3}"),
        _ if value < 0.0 => format!("-{}", grouped(-value as u64)),
        _ => grouped(value as u64),
    }
}

/// What limits the run, in a sentence, with the measured values.
fn limit(body: &Value) -> Vec<String> {
    let Some(sentence) = body["sentence"].as_str() else {
        return vec!["the limit is not known yet: a run must be under way for two seconds".to_owned()];
    };
    let value = |(what, value): (&String, &Value)| {
        let value = value.as_f64().unwrap_or(f64::NAN);
        let value = if what.contains("share") { format!("{:.0} %", 100.0 * value) } else { measured(value) };
        format!("  {}: {value}", words(what))
    };
    let values = body["evidence"].as_object().into_iter().flatten().map(value);
    [sentence.to_owned()].into_iter().chain(values).collect()
}

/// The worst problem, the events of each quality, and every problem of the run.
fn quality(body: &Value) -> Vec<String> {
    let events = ["complete", "incomplete", "doubtful"].map(|name| {
        let of = |member: &str| body[name][member].as_f64().unwrap_or(0.0) as u64;
        format!("  {name:<11} {} events, {} per second", grouped(of("total")), grouped(of("per_second")))
    });
    let problems = body["problems"].as_array().into_iter().flatten().map(|problem| {
        let last = problem["last_ns"].as_i64().unwrap_or(0);
        let (earlier, until) = match problem["is_current"].as_bool() {
            Some(true) => ("", String::new()),
            _ => ("earlier: ", format!(", until {} UTC", time_of_day(last))),
        };
        format!("  {earlier}{} (alarm {}{until})", text(&problem["sentence"]), text(&problem["kind"]))
    });
    [format!("{}: {}", words(text(&body["state"])), text(&body["sentence"]))]
        .into_iter()
        .chain(events)
        .chain(problems)
        .collect()
}

/// Alarms that are not normal, the active ones first; with `shows_normal` followed by the others.
fn alarms(all: &[Value], shows_normal: bool) -> String {
    if all.is_empty() {
        return "no alarm is configured".to_owned();
    }
    let rank = |alarm: &Value| {
        ["active", "latched", "acknowledged", "normal"].iter().position(|state| alarm["state"] == *state)
    };
    let mut shown: Vec<_> = all.iter().filter(|alarm| shows_normal || alarm["state"] != "normal").collect();
    shown.sort_by_key(|alarm| rank(alarm).unwrap_or(0));
    let normal = all.len() - shown.len();
    if shown.is_empty() {
        return format!("all {normal} alarms are normal (--all shows them)");
    }
    let mut table = columns(&["severity", "alarm", "state", "run", "value", "remarks"], &[3, 4]);
    for alarm in shown {
        let sentence = alarm["sentence"].as_str().filter(|sentence| !sentence.is_empty() && alarm["state"] != "normal");
        let remarks: Vec<_> = sentence.map(str::to_owned).into_iter().chain(handled(alarm)).collect();
        let state = Cell::new(text(&alarm["state"]));
        let colour = if alarm["severity"] == "critical" { Color::Red } else { Color::Yellow };
        let state = if alarm["state"] == "normal" { state } else { state.fg(colour) };
        let value = alarm["value"].as_f64().map_or_else(String::new, measured);
        let run = if alarm["state"] == "normal" { String::new() } else { number(&alarm["run"]) };
        let [severity, name] = ["severity", "name"].map(|key| Cell::new(text(&alarm[key])));
        table.add_row([severity, name, state, Cell::new(run), Cell::new(value), Cell::new(remarks.join(", "))]);
    }
    let rest = if normal > 0 { format!("\n{normal} more are normal (--all shows them)") } else { String::new() };
    table.trim_fmt() + &rest
}

/// What operators have done with an alarm.
fn handled(alarm: &Value) -> impl Iterator<Item = String> {
    let acknowledged = alarm["known_by"].as_str().map(|by| format!("acknowledged by {by}"));
    let shelved = alarm["shelved_by"].as_str().zip(alarm["shelved_seconds"].as_u64());
    let shelved = shelved.map(|(by, seconds)| format!("shelved by {by} for {}", lasting(seconds)));
    acknowledged.into_iter().chain(shelved)
}

/// An alarm after an operator's action.
fn alarm_line(alarm: &Value) -> String {
    let state = alarm["state"].as_str().filter(|state| *state != "acknowledged").map(str::to_owned);
    let parts: Vec<_> = state.into_iter().chain(handled(alarm)).collect();
    format!("{}: {}", text(&alarm["name"]), parts.join(", "))
}

fn sources(all: &[Value]) -> String {
    if all.is_empty() {
        return "no source is known yet".to_owned();
    }
    let header = ["source", "unit", "state", "received", "last event", "missing", "lost", "errors", "silent"];
    let mut table = columns(&header, &[3, 4, 5, 6, 7, 8]);
    for source in all {
        let sum = |names: &[&str]| names.iter().filter_map(|&name| source[name].as_u64()).sum::<u64>();
        let missing = source["missing"].as_object().into_iter().flatten();
        let missing = missing.filter(|(cause, _)| *cause != "masked").filter_map(|(_, count)| count.as_u64()).sum();
        let faults = [missing, sum(&["lost"]), sum(&["crc_errors", "frames_missing", "corrupt"])];
        let state = match source["taking"].as_str() {
            Some("masked") => "masked",
            Some("asked_back") => "unmasked, not in events",
            _ if source["has_ended"] == true => "ended",
            _ if source["is_connected"] == true => "connected",
            _ if source["received"] == 0 && source["is_optional"] == true => "never sent",
            _ if source["received"] == 0 => "no data yet",
            _ if source["sends_datagrams"] == true => "datagrams",
            _ => "not connected",
        };
        let silent = source["silent_s"].as_f64().map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"));
        let counts = ["received", "last_event"].map(|name| Cell::new(number(&source[name])));
        let faults = faults.map(|count| {
            let cell = Cell::new(grouped(count));
            if count > 0 { cell.fg(Color::Yellow) } else { cell }
        });
        let id = &source["id"];
        let name = source["name"].as_str().map_or_else(|| id.to_string(), |name| format!("{name} ({id})"));
        let head = [name, text(&source["unit"]).to_owned(), state.to_owned()];
        table.add_row(head.map(Cell::new).into_iter().chain(counts).chain(faults).chain([Cell::new(silent)]));
    }
    table.trim_fmt()
}

/// The counts of each account, in the order in which they are shown. The first two are shown even if they are 0.
const ACCOUNTS: [(&str, &[&str]); 3] = [
    (
        "fragments",
        &[
            "received",
            "in_complete_events",
            "in_incomplete_events",
            "in_dropped_events",
            "in_flight",
            "lost",
            "duplicate",
            "late",
            "corrupt",
            "stale",
            "after_stop",
        ],
    ),
    (
        "events",
        &["assigned", "built", "incomplete_emitted", "in_flight", "accepted", "rejected", "quarantined", "written"],
    ),
    ("pools", &["loans", "returned", "held", "blocks"]),
];

fn ledger(body: &Value) -> Vec<String> {
    let mut table = table_of_two_columns();
    for (account, names) in ACCOUNTS {
        table.add_row([if account == "pools" { "buffers" } else { account }, ""]);
        for (at, name) in names.iter().enumerate() {
            let count = body[account][name].as_u64().unwrap_or(0);
            if at < 2 || count > 0 {
                table.add_row([format!("  {}", words(name)), grouped(count)]);
            }
        }
        for what in ["dropped", "missing"] {
            for (cause, count) in body[account][what].as_object().into_iter().flatten() {
                table.add_row([format!("  {what}: {}", words(cause)), number(count)]);
            }
        }
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let unknown = list(&body["partial"]).iter().map(|node| format!("unknown: {}", text(node)));
    let equation = |one: &Value| {
        let (left, right) = (number(&one["left"]), number(&one["right"]));
        format!("not balanced: {} ({left}, {right}); normal while a run is under way", text(&one["equation"]))
    };
    let unbalanced: Vec<_> = list(&body["unbalanced"]).iter().map(equation).collect();
    let balance = if unbalanced.is_empty() { vec!["balanced".to_owned()] } else { unbalanced };
    [table.trim_fmt()].into_iter().chain(unknown).chain(balance).collect()
}

fn entry(entry: &Value) -> String {
    let time = time_of_day(entry["at_ns"].as_i64().unwrap_or(0));
    let run = entry["run"].as_u64().map_or_else(String::new, |run| format!("run {run}: "));
    let line = format!("{time} {:8} {run}{}", text(&entry["kind"]), text(&entry["text"]));
    let is_bad = matches!(entry["kind"].as_str(), Some("fault" | "incident"));
    if is_bad && has_colours() { line.red().to_string() } else { line }
}

fn parameters(all: &[Value]) -> String {
    let mut table = columns(&["parameter", "value", "configured", "meaning"], &[]);
    for one in all {
        let is_changed = one["value"] != one["configured"];
        let value = Cell::new(text(&one["value"]));
        let value = if is_changed { value.fg(Color::Yellow) } else { value };
        let [name, configured, help] = ["name", "configured", "help"].map(|key| Cell::new(text(&one[key])));
        table.add_row([name, value, configured, help]);
    }
    table.trim_fmt()
}

/// A parameter that was changed.
fn parameter(one: &Value) -> String {
    let [name, value, configured] = ["name", "value", "configured"].map(|key| text(&one[key]));
    format!("{name} = {value} (configured: {configured})")
}

fn addresses(all: &[Value]) -> String {
    let mut table = columns(&["name", "address"], &[]);
    for one in all {
        table.add_row([text(&one["name"]), text(&one["address"])]);
    }
    table.trim_fmt()
}

fn histograms(all: &[Value], names: &Names) -> String {
    if all.is_empty() {
        return "no histogram is configured ([[histogram]])".to_owned();
    }
    let mut table =
        columns(&["histogram", "source", "entries", "below", "above", "too short", "range", "shape"], &[2, 3, 4, 5]);
    for histogram in all {
        let edges = list(&histogram["edges"]);
        let edge = |edge: Option<&Value>| edge.map_or_else(String::new, number);
        let range = format!("{} to {} {}", edge(edges.first()), edge(edges.last()), text(&histogram["unit"]));
        for (source, counted) in histogram["sources"].as_object().into_iter().flatten() {
            let counts: Vec<u64> = list(&counted["counts"]).iter().filter_map(Value::as_u64).collect();
            let [below, above, short] = ["underflow", "overflow", "short"].map(|name| number(&counted[name]));
            let (name, source) = (text(&histogram["name"]).to_owned(), names.label(&id_of(source)));
            let entries = grouped(counts.iter().sum());
            table.add_row([name, source, entries, below, above, short, range.clone(), shape(&counts)]);
        }
    }
    table.trim_fmt()
}

/// The id of a source that is the key of an object.
fn id_of(key: &str) -> Value {
    key.parse::<u32>().map_or(Value::Null, Value::from)
}

/// The widest shape of a histogram, in characters.
const SHAPE: usize = 32;

/// The shape of a histogram as a line of bars.
fn shape(counts: &[u64]) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let sums: Vec<u64> = counts.chunks(counts.len().div_ceil(SHAPE).max(1)).map(|bins| bins.iter().sum()).collect();
    let most = sums.iter().copied().max().unwrap_or(0).max(1);
    sums.iter().map(|&sum| BARS[(sum as f64 / most as f64 * 8.0).ceil() as usize]).collect()
}

fn known_runs(all: &[Value]) -> String {
    if all.is_empty() {
        return "the output directory has no runs yet".to_owned();
    }
    let mut table = columns(&["run", "state", "directory", "last note"], &[0]);
    for run in all {
        let state = if run["has_account"] == true { "closed" } else { "open or killed" };
        let note = list(&run["notes"]).last().map_or("", |note| text(&note["text"]));
        table.add_row([&run["run"].to_string(), state, text(&run["directory"]), note]);
    }
    table.trim_fmt()
}

fn reference(body: &Value) -> String {
    match body["run"].as_u64() {
        Some(run) => format!("the current run is compared with run {run}, in steps of {} s", body["step_seconds"]),
        None => "no reference run is selected".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn alarms_are_shown_with_who_acknowledged_and_shelved_them() {
        let all = [
            json!({ "name": "disk_full", "severity": "critical", "state": "normal", "known_by": null, "shelved_seconds": null }),
            json!({ "name": "slow", "severity": "notice", "state": "acknowledged", "value": 2.5, "known_by": "ada",
                    "shelved_seconds": 60, "shelved_by": "bob" }),
        ];
        let short = alarms(&all, false);
        assert!(!short.contains("disk_full") && short.ends_with("1 more are normal (--all shows them)"), "{short}");
        assert_eq!(alarms(&all[..1], false), "all 1 alarms are normal (--all shows them)");
        let shown = alarms(&all, true);
        assert!(shown.find("slow") < shown.find("disk_full"), "active alarms come first: {shown}");
        let row = |name: &str| shown.lines().find(|line| line.contains(name)).map(str::to_owned).unwrap_or_default();
        assert!(row("disk_full").contains("critical") && row("disk_full").contains("normal"), "{shown}");
        assert!(
            row("slow").contains("2.5") && row("slow").contains("acknowledged by ada, shelved by bob for 60 s"),
            "{shown}"
        );
        let lines = all.each_ref().map(alarm_line);
        assert_eq!(lines, ["disk_full: normal", "slow: acknowledged by ada, shelved by bob for 60 s"]);
    }

    #[test]
    fn the_quality_has_events_and_problems() {
        let problem = json!({ "kind": "source_silent", "is_current": false, "last_ns": 4_000_000_000_i64, "sentence": "source 3: no data for 4.0 s" });
        let body = json!({ "state": "incomplete", "sentence": "earlier (00:00:01 to 00:00:04 UTC): source 3: no data for 4.0 s",
            "complete": { "total": 12345, "per_second": 99.5 }, "problems": [problem] });
        let shown = quality(&body);
        assert_eq!(shown[0], "incomplete: earlier (00:00:01 to 00:00:04 UTC): source 3: no data for 4.0 s");
        assert_eq!(shown[1], "  complete    12,345 events, 99 per second");
        assert_eq!(shown[4], "  earlier: source 3: no data for 4.0 s (alarm source_silent, until 00:00:04 UTC)");
    }

    #[test]
    fn the_limit_is_a_sentence_with_its_values() {
        let body = json!({ "kind": "disk", "subject": "bu0", "sentence": "rate limited by the disk of bu0",
            "evidence": { "disk_busy_share of bu0": 0.987, "events_hz": 12345.0 } });
        let expected = ["rate limited by the disk of bu0", "  disk busy share of bu0: 99 %", "  events hz: 12,345"];
        assert_eq!(limit(&body), expected);
        assert_eq!(limit(&Value::Null).len(), 1);
    }

    #[test]
    fn the_ledger_shows_counts_causes_and_the_balance() {
        let mut body = json!({
            "fragments": { "received": 1000, "in_complete_events": 990, "late": 10, "dropped": {}, "missing": { "timed_out": 7 } },
            "events": { "assigned": 500, "built": 495 },
            "pools": { "loans": 20, "returned": 20, "held": 0, "blocks": 64 },
            "unbalanced": [], "partial": ["ru1: fragments"],
        });
        let shown = ledger(&body);
        for row in ["received", "990", "missing: timed out", "blocks"] {
            assert!(shown[0].contains(row), "{row}: {shown:?}");
        }
        assert!(!shown[0].contains("duplicate"), "{shown:?}");
        assert_eq!(shown[1..], ["unknown: ru1: fragments", "balanced"]);
        body["unbalanced"] = json!([{ "equation": "loans = returned + held", "left": 20, "right": 19 }]);
        assert!(ledger(&body)[2].starts_with("not balanced: loans = returned + held (20, 19)"), "{:?}", ledger(&body));
    }

    #[test]
    fn a_source_is_shown_with_its_state_and_its_faults() {
        let all = [
            json!({ "id": 7, "name": "veto", "received": 0, "silent_s": null, "taking": "takes_part" }),
            json!({ "id": 843, "unit": "ru0", "is_connected": true, "has_ended": false, "taking": "takes_part",
            "last_event": 4321, "silent_s": 0.25, "received": 4000, "lost": 2, "corrupt": 1, "crc_errors": 3,
            "frames_missing": 0, "missing": { "timed_out": 5, "silent": 6 } }),
        ];
        let shown = sources(&all);
        let row = shown.lines().find(|line| line.contains("843")).unwrap_or_default();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert!(shown.lines().any(|line| line.starts_with("veto (7)") && line.trim_end().ends_with(" -")), "{shown}");
        assert_eq!(cells, ["843", "ru0", "connected", "4,000", "4,321", "11", "2", "4", "0.2", "s"], "{shown}");
    }

    #[test]
    fn a_shape_has_a_bar_for_each_bin_or_group_of_bins() {
        assert_eq!(shape(&[0, 1, 8, 4]), " ▁█▄");
        assert_eq!(shape(&[1; 100]).chars().count(), 25);
        assert_eq!(shape(&[]), "");
    }
}
