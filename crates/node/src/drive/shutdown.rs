//! How a readout or builder unit leaves a run: the event manager asks it to finish, it sends its last report, the event
//! manager dismisses it, and it exits.
//!
//! An event manager may die before it has all reports. A unit that was not dismissed therefore waits for a successor, which may have
//! events built again that its predecessor knew as done.

use ropewalk_flow::control::RunPhase;
use ropewalk_terms::{Instant, RunNumber};
use std::time::Duration;

/// How long a unit that was told to finish waits for another event manager.
const PATIENCE: Duration = Duration::from_secs(60);

/// How far the end has come.
#[derive(Debug, Default)]
pub(super) struct Shutdown {
    /// By the event manager that is obeyed now.
    told: bool,
    /// By any.
    was_told: bool,
    said: bool,
    dismissed: bool,
    leaving: bool,
    patient_until: Option<Instant>,
    done: bool,
}

impl Shutdown {
    /// The event manager says that no event will come any more.
    pub(super) const fn finish(&mut self) {
        (self.told, self.was_told) = (true, true);
    }

    /// Whether the one that is obeyed now did.
    pub(super) const fn is_told(&self) -> bool {
        self.told
    }

    /// The last word to this event manager was said.
    pub(super) const fn say(&mut self) {
        self.said = true;
    }

    /// Whether it was.
    pub(super) const fn is_said(&self) -> bool {
        self.said
    }

    /// The event manager knows all.
    pub(super) const fn dismiss(&mut self) {
        self.dismissed = true;
    }

    /// Another event manager is obeyed: it has heard nothing yet, and has said nothing.
    pub(super) fn manager_came(&mut self) {
        *self = Self { was_told: self.was_told, done: self.done, ..Self::default() };
    }

    /// The one that was obeyed is gone.
    pub(super) fn manager_lost(&mut self, now: Instant) {
        if self.was_told {
            self.done |= self.dismissed;
            self.patient_until = Some(now.after(PATIENCE));
        }
    }

    /// Whether the connection to the event manager is to be closed now; true once.
    pub(super) const fn leaves(&mut self) -> bool {
        self.said && self.dismissed && !core::mem::replace(&mut self.leaving, true)
    }

    /// The unit ends here, in whatever state it is.
    pub(super) const fn end(&mut self) {
        self.done = true;
    }

    /// Time has passed.
    pub(super) fn look(&mut self, now: Instant) {
        self.done |= self.patient_until.is_some_and(|until| now >= until);
    }

    /// When to look at the clock.
    pub(super) const fn next_deadline(&self) -> Option<Instant> {
        self.patient_until
    }

    /// It needs no further turn.
    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    /// How far the run is, as the unit has it. It hears of what it is to do, and not of the run's phases.
    pub(super) fn phase(&self, run: RunNumber, has_manager: bool) -> RunPhase {
        match (self.done, self.was_told) {
            (true, _) => RunPhase::Ended,
            (_, true) => RunPhase::Draining,
            _ if run != RunNumber(0) => RunPhase::Running,
            _ if has_manager => RunPhase::Configured,
            _ => RunPhase::Initial,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanoseconds(1);

    #[test]
    fn whoever_has_said_all_and_is_dismissed_leaves_once() {
        let mut shutdown = Shutdown::default();
        shutdown.finish();
        shutdown.dismiss();
        assert!(!shutdown.leaves(), "its last word is not said");
        shutdown.say();
        assert!(shutdown.leaves() && !shutdown.leaves() && !shutdown.is_done());
        shutdown.manager_lost(NOW);
        assert!(shutdown.is_done());
    }

    #[test]
    fn whoever_is_not_dismissed_tells_the_next_event_manager() {
        let mut shutdown = Shutdown::default();
        shutdown.finish();
        shutdown.say();
        shutdown.manager_lost(NOW);
        shutdown.look(NOW.after(PATIENCE / 2));
        assert!(!shutdown.is_done());
        shutdown.manager_came();
        assert!(!shutdown.is_said() && !shutdown.is_told(), "the next one may go on with the run");
        shutdown.look(NOW.after(PATIENCE));
        assert!(!shutdown.is_done(), "an event manager is connected");
        shutdown.manager_lost(NOW);
        assert_eq!(shutdown.next_deadline(), Some(NOW.after(PATIENCE)), "nor is that one waited for without an end");
        shutdown.manager_came();
        shutdown.finish();
        shutdown.say();
        shutdown.dismiss();
        assert!(shutdown.leaves());
    }

    #[test]
    fn patience_ends() {
        let mut shutdown = Shutdown::default();
        shutdown.manager_lost(NOW);
        assert_eq!(shutdown.next_deadline(), None, "in mid-run it waits for ever");
        shutdown.finish();
        shutdown.manager_lost(NOW);
        assert_eq!(shutdown.next_deadline(), Some(NOW.after(PATIENCE)));
        shutdown.look(NOW.after(PATIENCE));
        assert!(shutdown.is_done());
    }
}
