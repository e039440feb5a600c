//! The terminal output of a run: progress during the run, and its account.

use crate::exit::{self, Failure};
use crate::output;
use comfy_table::presets::{NOTHING, UTF8_FULL_CONDENSED};
use comfy_table::{CellAlignment, ContentArrangement, Table};
use ropewalk_config::quantity::Bytes;
pub(crate) use ropewalk_console::grouped;
use ropewalk_engine::RunSnapshot;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::NumberingKind;
use ropewalk_monitor::Sample;
use ropewalk_monitor::alarms::{Alarm, Alarms, Rule, Severity, State};
use ropewalk_monitor::bottleneck::Finder;
use ropewalk_monitor::quality::{Problem, Quality, QualityMonitor};
use ropewalk_run::session::SessionView;
use ropewalk_run::{DiskSummary, IncidentSummary, NumberingSummary, RunSummary, disk_error};
pub(crate) use ropewalk_terms::counted;
use ropewalk_terms::{ByCause, Cause, Counter, Place, RunNumber, Utc};
use ropewalk_tools::{FaultyEvent, OfflineError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, IsTerminal};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The help of an option, with the value that is used without it.
pub(crate) fn with_default(text: &str, value: impl Display) -> String {
    format!("{text} [default: {value}]")
}

/// Hours, minutes and seconds UTC of a time in nanoseconds since 1970.
pub(crate) fn time_of_day(nanoseconds: i64) -> String {
    Utc(nanoseconds).time_of_day()
}

/// Tells what the run goes without.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        tell!("warning: {warning}");
    }
}

/// A reader such as `head` may close the pipe early; that is no failure.
pub(crate) fn unless_closed(shown: Result<(), OfflineError>) -> Result<u8, Failure> {
    match shown {
        Err(OfflineError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(exit::GOOD),
        shown => shown.map(|()| exit::GOOD).map_err(Failure::from),
    }
}

/// A line for each source with wrong checksums: nothing is lost, but that front end needs attention.
pub(crate) fn checksum_lines(summary: &RunSummary) -> Vec<String> {
    let wrong = summary.by_source.iter().map(|(id, account)| (id, account.counts.get(Counter::CrcErrors)));
    wrong
        .filter(|&(_, count)| count > 0)
        .map(|(id, count)| {
            let fragments = if count == 1 { "fragment" } else { "fragments" };
            let account = &summary.by_source[id];
            let are_in_events = account.in_complete_events + account.in_incomplete_events > 0;
            // The others had numbers that fit no event.
            let kept = if are_in_events { count.saturating_sub(account.corrupt) } else { 0 };
            let kept = match (kept, count - kept) {
                (_, 0) => "kept and flagged".to_owned(),
                (0, _) => "in no event".to_owned(),
                (kept, others) => format!("{} kept and flagged, {} in no event", grouped(kept), grouped(others)),
            };
            format!("{}: {} {fragments} with a wrong checksum, {kept}", summary.name_of(id), grouped(count))
        })
        .collect()
}

/// The counts that are not 0, each with its text.
fn texts<const N: usize>(said: [(u64, &str); N]) -> Vec<String> {
    let some = said.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("{what}: {}", grouped(count))).collect()
}

/// Counts by cause, as `cause 3, other_cause 4`.
fn named<N: Display>(counts: &BTreeMap<N, u64>) -> String {
    counts.iter().map(|(cause, count)| format!("{cause} {count}")).collect::<Vec<_>>().join(", ")
}

/// A line for each source with fragments that are in doubt for another reason than their checksum.
pub(crate) fn flag_lines(summary: &RunSummary) -> Vec<String> {
    let flagged = summary.by_source.iter().map(|(id, account)| (id, &account.flagged));
    let flagged = flagged.filter(|(_, flags)| !flags.is_empty());
    let line = |(id, flags): (&String, &BTreeMap<_, _>)| {
        let reference = summary.reference().filter(|_| flags.contains_key("displaced"));
        let against = reference.map_or_else(String::new, |name| format!(" (against {name})"));
        format!("{}: fragments in doubt, kept and flagged: {}{against}", summary.name_of(id), named(flags))
    };
    flagged.map(line).collect()
}

/// Lines that name the first events with faults.
pub(crate) fn faulty_lines(first: &[FaultyEvent], further: Option<u64>) -> Vec<String> {
    if first.is_empty() {
        return Vec::new();
    }
    let more = match further {
        Some(0) => None,
        Some(further) => Some(format!("  and {} more", grouped(further))),
        None => Some("  and perhaps more: `ropewalk verify` counts them".to_owned()),
    };
    let events = first.iter().map(|event| format!("  {event}"));
    ["events with faults:".to_owned()].into_iter().chain(events).chain(more).collect()
}

/// A line for each source whose numbers began elsewhere than at `first`.
pub(crate) fn begin_lines(summary: &RunSummary) -> Vec<String> {
    let begin = |(id, anomalies): (&String, &Vec<NumberingSummary>)| {
        let number = anomalies.iter().find(|one| one.is(NumberingKind::Begin))?.to;
        let name = summary.name_of(id);
        Some(format!("{name}: its first event is number {number}, as its numbers show (`first` is not given)"))
    };
    summary.numbering.iter().filter_map(begin).collect()
}

fn is_in_summary(counter: Counter) -> bool {
    counter.places().contains(&Place::Summary)
}

/// A line for each source with counts that a summary shows, and for datagrams that belong to no source.
pub(crate) fn frame_lines(summary: &RunSummary) -> Vec<String> {
    let sources = summary.by_source.iter().map(|(id, account)| {
        let shown = account.counts.iter().filter(|(counter, count)| *count > 0 && is_in_summary(*counter));
        let said = shown.map(|(counter, count)| format!("{}: {}", counter.name().replace('_', " "), grouped(count)));
        let said: Vec<_> = said.collect();
        (id, said)
    });
    let sources = sources.filter(|(_, said)| !said.is_empty());
    let sources = sources.map(|(id, said)| format!("{}: {}", summary.name_of(id), said.join(", ")));
    let lost = summary.datagrams.lost_by_source.iter();
    let lost = lost.map(|(id, causes)| {
        format!("{}: datagrams lost: {}", summary.name_of(&id.to_string()), named(&causes.names()))
    });
    let datagrams = texts([
        (summary.datagrams.lost, "datagrams lost before they could be taken, since their senders cannot be held back"),
        (summary.datagrams.nobodys, "datagrams of boards that are no source (compare `demux` with the senders)"),
    ]);
    sources.chain(lost).chain(datagrams).collect()
}

/// A line for each thing that went wrong with a front end under run control.
pub(crate) fn incident_lines(summary: &RunSummary) -> Vec<String> {
    let Some(front_ends) = &summary.front_ends else { return Vec::new() };
    let name = |source: u32| front_ends.by_source.get(&source.to_string()).map_or("", |front_end| &front_end.name);
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
        .map(|one| format!("the account is partial: {}: unknown: {}", one.node, one.unknown))
        .collect()
}

/// A line for each disk that failed to the end.
pub(crate) fn disk_lines(disk: &DiskSummary) -> Vec<String> {
    let failing = disk.failing.iter().map(|disk| format!("{}: its disk failed: {}", disk.node, disk.error));
    let said = texts([
        (disk.files_restored, "run files deleted or moved while they were written, and written once more"),
        (disk.events_gone, "events lost with deleted run files"),
    ]);
    failing.chain(said).collect()
}

/// Whether standard output shows colours: it is a terminal, and NO_COLOR is not set.
pub(crate) fn has_colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Columns of the ledger if the output is not a terminal: one long value must not make all lines long.
const WIDEST_LEDGER: u16 = 100;

/// A table without borders that is at most as wide as the terminal, with these columns aligned to the right.
pub(crate) fn columns(header: &[&str], right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    for &column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table that breaks long values, also without a terminal of known width.
pub(crate) fn table_of_two_columns() -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    // Some terminals report a width of 0: it is not known.
    if table.width().is_none_or(|width| width == 0) {
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
        row("filtered as files", counted(files.files, "file"));
        row("  accepted", grouped(files.accepted));
        row("  rejected", grouped(files.rejected));
        if files.set_aside > 0 {
            row("  set aside", grouped(files.set_aside));
        }
    }
    row("events per second", grouped(summary.rate.events_per_s as u64));
    row("bandwidth", format!("{}/s", Bytes(summary.rate.bytes_per_s as u64)));
    row("written", Bytes(summary.bytes.written).to_string());
    if summary.deleted.segments > 0 {
        let deleted = &summary.deleted;
        row("deleted to keep the newest", format!("{} in {}", Bytes(deleted.bytes), counted(deleted.segments, "file")));
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
            let unbalanced: Vec<_> = summary.ledger.unbalanced.iter().map(ToString::to_string).collect();
            format!("NOT BALANCED: [{}]", unbalanced.join(","))
        },
    );
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A sum, and its parts by cause: `12: late 3, oversize 9`.
fn sum_of(counts: &BTreeMap<&'static str, u64>) -> String {
    let all = grouped(counts.values().sum());
    let one = counts.iter().next().filter(|_| counts.len() == 1).map(|(cause, _)| format!("{all}: {cause}"));
    one.unwrap_or_else(|| format!("{all}: {}", named(counts)))
}

/// How the fragments ended up.
fn fragment_rows(summary: &RunSummary, mut row: impl FnMut(&str, String)) {
    let fragments = &summary.fragments;
    let before_start = fragments.counts.get(Counter::FragmentsBeforeStart);
    row("fragments received", grouped(fragments.received));
    row("  in complete events", grouped(fragments.in_complete_events));
    for (name, count) in [
        ("  in incomplete events", fragments.in_incomplete_events),
        ("  before the start", before_start),
        ("  after the stop", fragments.after_stop),
        ("  in flight", fragments.in_flight),
        ("  masked", fragments.dropped.get(Cause::Masked)),
        ("  with a wrong checksum", fragments.counts.get(Counter::CrcErrors)),
    ] {
        if count > 0 {
            row(name, grouped(count));
        }
    }
    if !fragments.flagged.is_empty() {
        row("  in doubt", named(&fragments.flagged));
    }
    let but_masked = |counts: &ByCause| {
        let mut names = counts.names();
        names.remove(Cause::Masked.name());
        names
    };
    let mut lost = but_masked(&fragments.dropped);
    let counts = [
        ("duplicate", fragments.duplicate),
        ("late", fragments.late),
        ("corrupt", fragments.corrupt),
        ("stale", fragments.stale.saturating_sub(before_start)),
    ];
    lost.extend(counts.into_iter().filter(|(_, count)| *count > 0));
    for (name, counts) in [
        ("  lost", lost),
        ("fragments missing", but_masked(&fragments.missing)),
        // A datagram that was lost at its socket is missing by its number, too.
        ("datagrams lost", summary.datagrams.lost_by_cause.names()),
    ] {
        if !counts.is_empty() {
            row(name, sum_of(&counts));
        }
    }
    let frames = fragments.counts.get(Counter::FramesMissing);
    if frames > 0 {
        row("frames missing by number", grouped(frames));
    }
}

/// How the events ended up.
fn event_rows(summary: &RunSummary, mut row: impl FnMut(&str, String)) {
    let events = &summary.events;
    row("events assigned", grouped(events.assigned));
    row("  built", grouped(events.built));
    if events.incomplete_emitted > 0 {
        row("  incomplete, kept", grouped(events.incomplete_emitted));
    }
    if events.incomplete_dropped > 0 {
        row("  dropped", named(&events.incomplete_dropped_by_cause.names()));
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

const REFRESH: Duration = Duration::from_millis(250);
const PIPE_REFRESH: Duration = Duration::from_secs(5);
/// Between two samples for limits and alarms, whose rates need some time.
const LOOK: Duration = Duration::from_secs(1);
/// Says on a terminal that the program is alive.
const SPINNER: [char; 8] = ['⠋', '⠙', '⠹', '⠸', '⠴', '⠦', '⠧', '⠇'];

/// Shows the progress of a run.
pub(crate) struct Progress {
    terminal: bool,
    begin: Instant,
    /// The number of times that it was drawn.
    drawn: usize,
    shown: Instant,
    before: (Instant, Totals),
    /// Per second, between the last two totals.
    rates: Totals,
    /// Full or failed disks, as last shown.
    disks: String,
    quality: QualityMonitor,
    finder: Finder,
    alarms: Alarms,
    /// Names of alarms that an operator acknowledged or shelved.
    quiet: BTreeSet<String>,
    looked: Instant,
    /// The problem of the data, and the alarms, that were shown last.
    problem: String,
}

/// What is counted from the start on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
struct Totals {
    events: u64,
    bytes_in: u64,
    bytes_to_disk: u64,
}

impl Totals {
    fn of(snapshot: &RunSnapshot) -> Self {
        let events = &snapshot.ledger.events;
        Self {
            events: events.built + events.incomplete_emitted,
            bytes_in: snapshot.counter(Counter::PayloadBytesReceived),
            bytes_to_disk: snapshot.counter(Counter::BytesWritten),
        }
    }

    /// The increase since `before`, per second.
    fn per_second(&self, before: &Self, time: Duration) -> Self {
        let seconds = time.as_secs_f64().max(1e-3);
        let rate = |now: u64, before: u64| (now.saturating_sub(before) as f64 / seconds) as u64;
        Self {
            events: rate(self.events, before.events),
            bytes_in: rate(self.bytes_in, before.bytes_in),
            bytes_to_disk: rate(self.bytes_to_disk, before.bytes_to_disk),
        }
    }
}

impl Progress {
    /// With alarms by these rules.
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Self {
            terminal,
            begin: now,
            drawn: 0,
            shown: now,
            before: (now, Totals::default()),
            rates: Totals::default(),
            disks: String::new(),
            quality: QualityMonitor::default(),
            finder: Finder::default(),
            alarms: Alarms::new(rules.to_vec()).expect("the configuration was checked"),
            quiet: BTreeSet::new(),
            looked: now,
            problem: String::new(),
        }
    }

    /// Shows the progress of the run if it is due. Alarms that an operator acknowledged or shelved are `quiet`.
    pub(crate) fn show(&mut self, view: &SessionView, quiet: BTreeSet<String>) {
        self.quiet = quiet;
        let (snapshot, left) = (&view.snapshot, view.disk_left);
        let refresh = if self.terminal { REFRESH } else { PIPE_REFRESH };
        self.quality.observe(Arc::clone(&view.sample));
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            self.finder.observe(Arc::clone(&view.sample));
            self.alarms.observe(Arc::clone(&view.sample), self.finder.finding(), self.quality.quality());
        }
        // A new problem of the data, an alarm, and a disk that is full or fails, need the operator: show them at once.
        let (disks, problem) = (waiting_disks(snapshot, &view.sample), self.worst_problem());
        let is_new_problem = disks != self.disks || problem != self.problem;
        if self.shown.elapsed() < refresh && !is_new_problem {
            return;
        }
        (self.disks, self.problem) = (disks, problem);
        self.shown = Instant::now();
        let totals = Totals::of(snapshot);
        let (then, before) = self.before;
        let time = self.shown.duration_since(then);
        // A line that a problem brought forward has no time for a rate.
        if time >= refresh.min(LOOK) {
            self.rates = totals.per_second(&before, time);
            self.before = (self.shown, totals);
        }
        let rates = self.rates;
        let left = left
            .filter(|left| left.time.is_some() && self.disks.is_empty())
            .map_or_else(String::new, |left| format!("  disk {left}"));
        let is_drawn = self.terminal && output::owns_terminal();
        if self.terminal && !is_drawn && !is_new_problem {
            return;
        }
        if is_drawn {
            let spinner = SPINNER[self.drawn % SPINNER.len()];
            self.drawn += 1;
            let names = &view.sample;
            let table = table((snapshot, names), totals, rates, &left, &self.disks) + &self.data(&view.sample);
            let text = format!("{spinner} {}s {table}", self.begin.elapsed().as_secs());
            output::live(Some(wrapped(&text, Table::new().width().map_or(usize::MAX, usize::from))));
        } else {
            tell!("{}{left}{}", line((snapshot, &view.sample), totals, rates, &self.disks), self.data(&view.sample));
        }
    }

    /// Kind and source of the worst current problem, and the names of alarms; empty if there are none.
    fn worst_problem(&self) -> String {
        let worst = self.quality.quality().problems.first().filter(|problem| problem.is_current);
        let worst = worst.map(|problem| format!("{:?} {:?}", problem.kind, problem.source));
        let alarms = self.other_alarms().map(|alarm| alarm.rule.name.clone());
        worst.into_iter().chain(alarms).collect::<Vec<_>>().join(" ")
    }

    /// Warnings that concern neither the data nor a disk that the run waits for.
    fn other_alarms(&self) -> impl Iterator<Item = &Alarm> {
        let is_other = move |rule: &Rule| {
            rule.severity >= Severity::Warning && !rule.quantity.is_said_elsewhere() && !self.quiet.contains(&rule.name)
        };
        self.alarms.shown().into_iter().filter(move |alarm| is_other(&alarm.rule))
    }

    /// The quality of the data unless it is good, masked sources, and alarms.
    fn data(&self, sample: &Sample) -> String {
        let quality = self.quality.quality();
        let quality = if self.quality.is_between_runs() { &Quality::default() } else { quality };
        let word = |worst: &Problem| if worst.is_current { "DATA" } else { "data" };
        let data = quality.problems.first().map(|worst| format!("{}: {}", word(worst), quality.sentence));
        let data = data.or_else(|| sample.masked_sources());
        let text = |alarm: &Alarm| {
            let word = if alarm.state == State::Active { "ALARM" } else { "alarm" };
            format!("{word} {}: {}", alarm.rule.name, alarm.sentence)
        };
        let between = if self.terminal { "\n  " } else { "  " };
        data.into_iter().chain(self.other_alarms().map(text)).map(|text| format!("{between}{text}")).collect()
    }

    /// Removes the live table.
    pub(crate) fn end(&self) {
        if self.drawn > 0 {
            output::live(None);
        }
    }
}

/// The lines of a text, continued in the next line of a terminal that is narrower.
fn wrapped(text: &str, width: usize) -> String {
    let (mut wrapped, mut column) = (String::new(), 0);
    for character in text.chars() {
        column = if character == '\n' { 0 } else { column + 1 };
        if column > width {
            wrapped.push('\n');
            column = 1;
        }
        wrapped.push(character);
    }
    wrapped
}

/// Part of the readout units' buffers that is held, in percent.
fn held(snapshot: &RunSnapshot) -> u64 {
    snapshot.counter(Counter::PoolHeld) * 100 / snapshot.counter(Counter::PoolBlocks).max(1)
}

/// Names the nodes that are not connected.
fn away(snapshot: &RunSnapshot, names: &Sample) -> String {
    let missing = snapshot.nodes.iter().filter(|(_, there)| !there).map(|(node, _)| names.name_of_node(*node));
    let missing: Vec<String> = missing.collect();
    // Nodes leave after the end of the run, and nothing waits for them.
    let is_over = snapshot.phase == RunPhase::Ended;
    if missing.is_empty() || is_over { String::new() } else { format!("  waiting for {}", missing.join(", ")) }
}

/// Fragments that were lost, never came or are masked, and incomplete events; what is 0 is left out but for `lost`.
fn not_taken(snapshot: &RunSnapshot) -> String {
    let (fragments, events) = (&snapshot.ledger.fragments, &snapshot.ledger.events);
    let lost = fragments.lost().saturating_sub(snapshot.counter(Counter::FragmentsBeforeStart));
    let mut text = format!("lost {}", counted(lost, "fragment"));
    for (what, count, unit) in [
        ("missing", fragments.never_came(), "fragment"),
        ("masked", fragments.dropped.get(Cause::Masked), "fragment"),
        ("incomplete", events.incomplete_emitted + events.incomplete_dropped.total(), "event"),
    ] {
        if count > 0 {
            let _ = write!(text, "  {what} {}", counted(count, unit));
        }
    }
    text
}

/// `run 7 running`; between runs only the phase.
fn head(snapshot: &RunSnapshot) -> String {
    let phase = snapshot.phase.name();
    if snapshot.run == RunNumber::default() { phase.to_owned() } else { format!("run {} {phase}", snapshot.run) }
}

fn line((snapshot, names): (&RunSnapshot, &Sample), totals: Totals, rates: Totals, disks: &str) -> String {
    format!(
        "{}  {} events  {} events/s  {}/s  buffers {} %  {}{}{disks}",
        head(snapshot),
        grouped(totals.events),
        grouped(rates.events),
        Bytes(rates.bytes_in),
        held(snapshot),
        not_taken(snapshot),
        away(snapshot, names),
    )
}

/// The same in a few lines: rates beside totals.
fn table((snapshot, names): (&RunSnapshot, &Sample), totals: Totals, rates: Totals, left: &str, disks: &str) -> String {
    let mut text = format!("{}{}{disks}\n", head(snapshot), away(snapshot, names));
    let mut row = |name: &str, now: String, all: String| {
        let _ = writeln!(text, "  {name:<10}{now:>16}{all:>20}");
    };
    row("events", format!("{} /s", grouped(rates.events)), grouped(totals.events));
    row("in", format!("{}/s", Bytes(rates.bytes_in)), Bytes(totals.bytes_in).to_string());
    row("to disk", format!("{}/s", Bytes(rates.bytes_to_disk)), Bytes(totals.bytes_to_disk).to_string());
    let fragments = &snapshot.ledger.fragments;
    let _ = write!(
        text,
        "  buffers {} %   in flight {} fragments   {}{left}",
        held(snapshot),
        grouped(fragments.in_flight),
        not_taken(snapshot),
    );
    text
}

/// Which disks the run waits for, and why.
fn waiting_disks(snapshot: &RunSnapshot, sample: &Sample) -> String {
    let mut text = String::new();
    for node in sample.nodes.iter().filter(|node| node.numbers.get(Counter::DiskFull) > 0).map(|node| node.node) {
        let (node, place) = (sample.name_of_node(node), sample.place_of(node));
        let then = match snapshot.phase {
            RunPhase::Draining => "free some space now, or the data that wait for it are dropped",
            RunPhase::Ended => "the data that waited for it were dropped",
            _ => "the run goes on by itself when there is room",
        };
        let _ = write!(text, "  DISK FULL at {node}{place}: {then}");
    }
    for (node, error) in &snapshot.failing_disks {
        // A pipe is not connected while no program reads it.
        let is_pipe = std::io::Error::from_raw_os_error(*error).kind() == std::io::ErrorKind::NotConnected;
        let what = if is_pipe { "PIPE WAITS" } else { "DISK FAILS" };
        let (node, place) = (sample.name_of_node(*node), sample.place_of(*node));
        let _ = write!(text, "  {what} at {node}{place}: {}; tried again and again", disk_error(*error));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_monitor::NodeSample;
    use ropewalk_monitor::alarms::{Condition, Quantity};
    use ropewalk_terms::NodeId;

    #[test]
    fn lines_that_are_longer_than_the_terminal_go_on_below() {
        assert_eq!(wrapped("run 1\n  DATA: lost\nend", 8), "run 1\n  DATA: \nlost\nend");
        assert_eq!(wrapped("12345678", 8), "12345678");
    }

    #[test]
    fn one_long_value_makes_no_line_of_the_ledger_long() {
        let mut table = table_of_two_columns();
        table.add_row(["ledger", &"something is not balanced; ".repeat(30)]);
        // A terminal may be wider or narrower; tests have none.
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest <= table.width().map(usize::from), "{widest:?} columns");
    }

    #[test]
    fn a_full_disk_is_no_reason_to_wait_while_the_run_stops() {
        let node = NodeSample {
            node: NodeId::builder(1),
            is_connected: true,
            reported: None,
            incarnation: None,
            numbers: [(Counter::DiskFull, 1)].into_iter().collect(),
            distributions: Default::default(),
        };
        let sample = Sample { nodes: vec![node], ..Sample::default() };
        let words = |phase| waiting_disks(&RunSnapshot { phase, ..snapshot() }, &sample);
        assert!(words(RunPhase::Running).ends_with("DISK FULL at bu1: the run goes on by itself when there is room"));
        assert!(
            words(RunPhase::Draining)
                .ends_with("DISK FULL at bu1: free some space now, or the data that wait for it are dropped")
        );
    }

    #[test]
    fn the_status_line_leaves_out_alarms_that_an_operator_acknowledged_or_shelved() {
        let rule = |name: &str| Rule {
            name: name.to_owned(),
            severity: Severity::Warning,
            quantity: Quantity::Value(Counter::PoolHeld),
            condition: Condition::Above(10.0),
            hold: Duration::ZERO,
            is_latched: false,
        };
        let mut progress = Progress::new(&[rule("pool_high"), rule("pool_low")]);
        let numbers = [(Counter::PoolHeld, 11)].into_iter().collect();
        let (node, is_connected) = (NodeId::readout(0), true);
        let distributions = Default::default();
        let node = NodeSample { node, is_connected, reported: None, incarnation: None, numbers, distributions };
        let sample = Sample { phase: "running", nodes: vec![node], ..Sample::default() };
        progress.alarms.observe(sample, None, progress.quality.quality());
        progress.quiet.insert("pool_low".to_owned());
        assert_eq!(progress.data(&Sample::default()).trim(), "ALARM pool_high: total:pool_held is 11, above 10");
    }

    fn snapshot() -> RunSnapshot {
        let mut snapshot = RunSnapshot::default();
        snapshot.ledger.events.built = 12_000;
        snapshot.ledger.fragments.in_flight = 1_234;
        snapshot.counters.extend([
            (Counter::PayloadBytesReceived, 3 << 20),
            (Counter::BytesWritten, 4 << 20),
            (Counter::PoolHeld, 1),
            (Counter::PoolBlocks, 4),
        ]);
        snapshot.nodes = vec![(NodeId::readout(0), true), (NodeId::builder(1), false)];
        snapshot
    }

    #[test]
    fn lost_missing_and_masked_fragments_and_incomplete_events_are_told_apart() {
        let mut snapshot = snapshot();
        let fragments = &mut snapshot.ledger.fragments;
        (fragments.late, fragments.stale, fragments.after_stop, fragments.in_incomplete_events) = (2, 5, 9, 4_198);
        fragments.dropped.add(Cause::Masked, 1_014);
        fragments.missing.add(Cause::TimedOut, 4_198);
        snapshot.ledger.events.incomplete_emitted = 4_198;
        snapshot.counters.insert(Counter::FragmentsBeforeStart, 4);
        assert_eq!(
            not_taken(&snapshot),
            "lost 3 fragments  missing 4,198 fragments  masked 1,014 fragments  incomplete 4,198 events"
        );
    }

    #[test]
    fn what_came_since_is_printed_per_second() {
        let now = Totals::of(&snapshot());
        let before = Totals { events: 2_000, bytes_in: 1 << 20, bytes_to_disk: 5 << 20 };
        let rates = now.per_second(&before, Duration::from_secs(2));
        // What was counted anew gives no negative rate.
        assert_eq!(rates, Totals { events: 5_000, bytes_in: 1 << 20, bytes_to_disk: 0 });
    }

    #[test]
    fn a_terminal_has_a_table_and_a_pipe_one_line_with_the_same_numbers() {
        let snapshot = snapshot();
        let (totals, rates) =
            (Totals::of(&snapshot), Totals { events: 5_000, bytes_in: 1 << 20, bytes_to_disk: 2 << 20 });
        let names = Sample::default();
        let table = table((&snapshot, &names), totals, rates, "  disk 9 GiB", "  DISK FULL");
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 5, "{table}");
        assert!(lines[0].contains("initial  waiting for bu1  DISK FULL"), "{table}");
        assert!(lines[1].ends_with("5,000 /s              12,000"), "{table}");
        assert!(
            lines[3].contains("to disk") && lines[3].contains("2.0 MiB/s") && lines[3].ends_with("4.0 MiB"),
            "{table}"
        );
        assert_eq!(lines[4], "  buffers 25 %   in flight 1,234 fragments   lost 0 fragments  disk 9 GiB");
        let line = line((&snapshot, &names), totals, rates, "");
        assert_eq!(
            line,
            "initial  12,000 events  5,000 events/s  1.0 MiB/s  buffers 25 %  lost 0 fragments  waiting for bu1"
        );
    }
}
