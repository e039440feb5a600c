//! Limits at which a run ends by itself, and the interval of its samples.

use crate::RunHandle;
use ropewalk_config::{Configuration, TimeoutSection};
use ropewalk_engine::RunSnapshot;
use ropewalk_flow::control::operation::TaskLimits;
use ropewalk_terms::{Counter, Instant, Role};
use std::time::Duration;

/// Returns the time limits of each step. Nodes within the configured time-outs are always fast enough, so that only
/// slower nodes are left behind.
pub(super) fn task_limits(times: &TimeoutSection) -> TaskLimits {
    let nodes = times.manager.0 + 2 * times.drain.0;
    TaskLimits {
        prepare: times.prepare.0,
        begin: times.begin.0,
        // Front ends under run control are awaited before the event manager is.
        pause: times.manager.0 + times.front_end.0,
        // The event manager asks for the last event, drains, and waits for nodes to finish; front ends get the stop
        // before and after.
        drain: nodes + 3 * times.front_end.0,
        force: nodes,
        close: times.close.0,
    }
}

/// Limits at which a run ends by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RunLimits {
    /// Maximum duration.
    pub duration: Option<Duration>,
    /// Exact number of triggers.
    pub events: Option<u64>,
    /// Number of bytes of received fragments.
    pub bytes: Option<u64>,
    /// Whether it ends when every source has connected and all connections have ended.
    pub until_sources_end: bool,
}

impl RunLimits {
    /// Returns the limits of a configuration.
    pub fn of(configuration: &Configuration) -> Self {
        let run = &configuration.run;
        Self {
            duration: run.duration.map(|time| time.0),
            events: run.events,
            bytes: run.bytes.map(|bytes| bytes.0),
            until_sources_end: run.until_sources_end,
        }
    }
}

/// Watches one run.
#[derive(Debug, Default)]
pub(super) struct RunWatch {
    /// When event building began.
    began: Option<std::time::Instant>,
    /// Age of the run at its takeover from another event manager.
    before: Duration,
    deserted: Deserted,
}

/// Sources whose connections ended when their readout unit restarted, and that have not reconnected.
#[derive(Debug, Default)]
struct Deserted {
    /// Since when their readout unit has been back.
    since: Option<std::time::Instant>,
}

impl Deserted {
    /// Time-out for such sources to reconnect.
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Returns the number of connections that are given up.
    fn given_up(&mut self, now: std::time::Instant, snapshot: &RunSnapshot) -> u64 {
        let missing = snapshot.orphans.values().sum();
        let are_back = snapshot.nodes.iter().all(|(node, is_there)| *is_there || node.role != Role::Readout);
        if missing == 0 || !are_back {
            self.since = None;
            return 0;
        }
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) < Self::PATIENCE { 0 } else { missing }
    }
}

impl RunWatch {
    /// Continues a run of this age.
    pub(super) const fn of_age(before: Duration) -> Self {
        Self { began: None, before, deserted: Deserted { since: None } }
    }

    /// Returns whether the run is to end now.
    pub(super) fn is_over(&mut self, limits: &RunLimits, run: &RunHandle, snapshot: &RunSnapshot) -> bool {
        if snapshot.phase.is_running() {
            self.began.get_or_insert_with(std::time::Instant::now);
        }
        let age = self.began.map(|began| self.before + began.elapsed());
        let is_old = age.zip(limits.duration).is_some_and(|(age, duration)| age >= duration);
        let is_large = limits.bytes.is_some_and(|most| snapshot.counter(Counter::PayloadBytesReceived) >= most);
        let given_up = self.deserted.given_up(std::time::Instant::now(), snapshot);
        is_old
            || is_large
            || run.are_sources_over(limits.until_sources_end, limits.events.is_some(), snapshot, given_up)
    }
}

/// Pause after a reading, as a multiple of its duration. A reading of 700 sources takes a millisecond.
const PAUSE: u32 = 500;
/// Maximum age of the numbers, however long a reading takes.
const LONGEST: Duration = Duration::from_secs(1);

/// The interval of readings.
#[derive(Clone, Debug)]
pub struct SamplingInterval {
    usual: Duration,
    due: Instant,
}

impl SamplingInterval {
    /// Interval of the readings of a run's state, if a reading takes next to no time.
    pub const NUMBERS: Duration = Duration::from_millis(100);
    /// Interval of the readings of all numbers of every source.
    pub const SAMPLES: Duration = Duration::from_millis(500);

    /// Creates an interval of this time, at most a second, if a reading takes next to no time. The first reading is due
    /// immediately.
    pub fn new(usual: Duration) -> Self {
        Self { usual, due: Instant::ZERO }
    }

    /// Returns whether a reading is due.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Makes the next reading due immediately.
    pub fn hurry(&mut self) {
        self.due = Instant::ZERO;
    }

    /// Records the duration of the last reading.
    pub fn was_read(&mut self, begun: Instant, ended: Instant) {
        let pause = ended.since(begun).saturating_mul(PAUSE);
        self.due = begun.after(pause.clamp(self.usual, self.usual.max(LONGEST)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::{NodeId, SourceId};

    #[test]
    fn sources_that_lost_their_readout_unit_are_waited_for_a_while_after_it_is_back() {
        let (mut deserted, begin) = (Deserted::default(), std::time::Instant::now());
        let mut snapshot = RunSnapshot { nodes: vec![(NodeId::readout(0), false)], ..RunSnapshot::default() };
        let mut after =
            |seconds, snapshot: &RunSnapshot| deserted.given_up(begin + Duration::from_secs(seconds), snapshot);
        assert_eq!(after(0, &snapshot), 0, "there are none");
        snapshot.orphans.insert(SourceId(1), 1);
        assert_eq!(after(1000, &snapshot), 0, "an operator is to start it again");
        snapshot.nodes[0].1 = true;
        assert_eq!([1001, 1010, 1011].map(|at| after(at, &snapshot)), [0, 0, 1]);
        // One of two has reconnected.
        snapshot.orphans.clear();
        assert_eq!(after(1012, &snapshot), 0);
    }

    #[test]
    fn what_takes_long_is_read_less_often_and_never_less_than_once_a_second() {
        let at = |microseconds: u64| Instant::from_nanoseconds(microseconds * 1000);
        let mut interval = SamplingInterval::new(SamplingInterval::NUMBERS);
        assert!(interval.is_due(at(0)));
        for (took, next) in [(10, 100_000), (600, 300_000), (50_000, 1_000_000)] {
            interval.was_read(at(1_000_000), at(1_000_000 + took));
            assert!(!interval.is_due(at(1_000_000 + next - 1)) && interval.is_due(at(1_000_000 + next)), "{took} us");
        }
        interval.hurry();
        assert!(interval.is_due(at(1_000_001)));
    }
}
