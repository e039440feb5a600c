//! How a run goes, on stderr while it goes on: a small live table in a terminal, a line every few seconds in a pipe.

use crate::output;
use crate::render::grouped;
use ropewalk_flow::control::RunPhase;
use ropewalk_node::drive::RunSnapshot;
use ropewalk_node::quantity::Bytes;
use ropewalk_node::run::{DiskLeft, disk_error};
use ropewalk_terms::Counter;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

const REFRESH: Duration = Duration::from_millis(250);
const PIPE_REFRESH: Duration = Duration::from_secs(5);
/// Says on a terminal that the program is alive.
const SPINNER: [char; 8] = ['⠋', '⠙', '⠹', '⠸', '⠴', '⠦', '⠧', '⠇'];

/// Shows a run while it goes on.
pub(crate) struct Progress {
    terminal: bool,
    begin: Instant,
    /// How often it was drawn.
    drawn: usize,
    shown: Instant,
    before: (Instant, Totals),
    /// Disks that wait for somebody, as they were shown last.
    disks: String,
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

    /// What came since, per second.
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
    pub(crate) fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        Self { terminal, begin: now, drawn: 0, shown: now, before: (now, Totals::default()), disks: String::new() }
    }

    /// Shows where the run is, if it is time to.
    pub(crate) fn show(&mut self, snapshot: &RunSnapshot, left: Option<DiskLeft>) {
        let refresh = if self.terminal { REFRESH } else { PIPE_REFRESH };
        // A disk that is full or fails waits for somebody to help: it is told at once.
        let disks = waiting_disks(snapshot);
        if self.shown.elapsed() < refresh && disks == self.disks {
            return;
        }
        self.disks = disks;
        self.shown = Instant::now();
        let totals = Totals::of(snapshot);
        let (then, before) = std::mem::replace(&mut self.before, (self.shown, totals));
        let rates = totals.per_second(&before, self.shown.duration_since(then));
        let left = left.filter(|left| left.time.is_some()).map_or_else(String::new, |left| format!("  disk {left}"));
        if self.terminal {
            let spinner = SPINNER[self.drawn % SPINNER.len()];
            self.drawn += 1;
            let table = table(snapshot, totals, rates, &left, &self.disks);
            output::live(Some(format!("{spinner} {}s {table}", self.begin.elapsed().as_secs())));
        } else {
            tell!("{}{left}", line(snapshot, totals, rates, &self.disks));
        }
    }

    /// Removes the live table.
    pub(crate) fn end(&self) {
        if self.drawn > 0 {
            output::live(None);
        }
    }
}

/// Part of the readout units' buffers that is held, in percent.
fn held(snapshot: &RunSnapshot) -> u64 {
    snapshot.counter(Counter::PoolHeld) * 100 / snapshot.counter(Counter::PoolBlocks).max(1)
}

/// Nodes that are not there.
fn away(snapshot: &RunSnapshot) -> String {
    let missing: Vec<String> =
        snapshot.nodes.iter().filter(|(_, there)| !there).map(|(node, _)| node.to_string()).collect();
    // When the run has ended they leave, and nobody waits.
    let is_over = snapshot.phase == RunPhase::Ended;
    if missing.is_empty() || is_over { String::new() } else { format!("  waiting for {}", missing.join(" ")) }
}

fn line(snapshot: &RunSnapshot, totals: Totals, rates: Totals, disks: &str) -> String {
    format!(
        "run {} {}  {} events  {} events/s  {}/s  pool {} %  lost {}{}{disks}",
        snapshot.run,
        snapshot.phase.name(),
        grouped(totals.events),
        grouped(rates.events),
        Bytes(rates.bytes_in),
        held(snapshot),
        grouped(snapshot.ledger.fragments.lost()),
        away(snapshot),
    )
}

/// The same in a few lines: what happens each second beside what has come of it.
fn table(snapshot: &RunSnapshot, totals: Totals, rates: Totals, left: &str, disks: &str) -> String {
    let mut text = format!("run {} {}{}{disks}\n", snapshot.run, snapshot.phase.name(), away(snapshot));
    let mut row = |name: &str, now: String, all: String| {
        let _ = writeln!(text, "  {name:<10}{now:>16}{all:>20}");
    };
    row("events", format!("{} /s", grouped(rates.events)), grouped(totals.events));
    row("in", format!("{}/s", Bytes(rates.bytes_in)), Bytes(totals.bytes_in).to_string());
    row("to disk", format!("{}/s", Bytes(rates.bytes_to_disk)), Bytes(totals.bytes_to_disk).to_string());
    let fragments = &snapshot.ledger.fragments;
    let _ = write!(
        text,
        "  buffers {} %   in flight {} fragments   lost {}{left}",
        held(snapshot),
        grouped(fragments.in_flight),
        grouped(fragments.lost()),
    );
    text
}

/// Which disks the run waits for, and why.
fn waiting_disks(snapshot: &RunSnapshot) -> String {
    let mut text = String::new();
    if snapshot.counter(Counter::DiskFull) > 0 {
        text.push_str("  DISK FULL: paused until there is room");
    }
    for (node, error) in &snapshot.failing_disks {
        let _ = write!(text, "  DISK FAILS at {node}: {}; tried again and again", disk_error(*error));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::NodeId;

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
    fn what_came_since_is_told_per_second() {
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
        let table = table(&snapshot, totals, rates, "  disk 9 GiB", "  DISK FULL");
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 5, "{table}");
        assert!(lines[0].contains("initial  waiting for bu1  DISK FULL"), "{table}");
        assert!(lines[1].ends_with("5,000 /s              12,000"), "{table}");
        assert!(
            lines[3].contains("to disk") && lines[3].contains("2.0 MiB/s") && lines[3].ends_with("4.0 MiB"),
            "{table}"
        );
        assert_eq!(lines[4], "  buffers 25 %   in flight 1,234 fragments   lost 0  disk 9 GiB");
        let line = line(&snapshot, totals, rates, "");
        assert_eq!(line, "run 0 initial  12,000 events  5,000 events/s  1.0 MiB/s  pool 25 %  lost 0  waiting for bu1");
    }
}
