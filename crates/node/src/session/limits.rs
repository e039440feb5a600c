//! When a run ends without being told.

use crate::configuration::{Configuration, TimeoutSection};
use crate::drive::RunSnapshot;
use crate::run::ConductedRun;
use ropewalk_flow::control::operation::TaskLimits;
use ropewalk_terms::Counter;
use std::time::{Duration, Instant};

/// How long each step may take for nodes that keep the configured times, so that only who does not is left behind.
pub(super) fn task_limits(times: &TimeoutSection) -> TaskLimits {
    let nodes = times.manager.0 + 2 * times.drain.0;
    TaskLimits {
        prepare: times.prepare.0,
        begin: times.begin.0,
        // Front ends under run control are waited for before the event manager is.
        pause: times.manager.0 + times.front_end.0,
        // The event manager asks for the last event, drains, and waits for nodes to finish; front ends are told of the stop before and after.
        drain: nodes + 3 * times.front_end.0,
        force: nodes,
        close: times.close.0,
    }
}

/// When a run ends by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RunLimits {
    /// After this time.
    pub duration: Option<Duration>,
    /// After exactly this many triggers.
    pub events: Option<u64>,
    /// When so many bytes of fragments have come.
    pub bytes: Option<u64>,
    /// When every source has connected and all connections have ended.
    pub until_sources_end: bool,
}

impl RunLimits {
    /// As a configuration says.
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

/// Looks at one run.
#[derive(Debug, Default)]
pub(super) struct RunWatch {
    /// Since when events are built.
    began: Option<Instant>,
    /// How long the run had gone on under another event manager.
    before: Duration,
}

impl RunWatch {
    /// Goes on with a run that is so old.
    pub(super) const fn of_age(before: Duration) -> Self {
        Self { began: None, before }
    }

    /// Whether the run is to end now.
    pub(super) fn is_over(&mut self, limits: &RunLimits, run: &dyn ConductedRun, snapshot: &RunSnapshot) -> bool {
        if snapshot.phase.is_running() {
            self.began.get_or_insert_with(Instant::now);
        }
        let age = self.began.map(|began| self.before + began.elapsed());
        let is_old = age.zip(limits.duration).is_some_and(|(age, duration)| age >= duration);
        let is_large = limits.bytes.is_some_and(|most| snapshot.counter(Counter::PayloadBytesReceived) >= most);
        is_old || is_large || run.are_sources_over(limits.until_sources_end, limits.events.is_some(), snapshot)
    }
}
