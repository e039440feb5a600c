//! How a readout or builder unit ends: told to finish, it says its last word, is dismissed, and leaves.
//!
//! An event manager may die before it knows all. Whoever is not dismissed stays for a while, and tells the next one,
//! who may have events built that this one knew as done: the end is not the end before that one says so too.

use ropewalk_flow::control::RunPhase;
use ropewalk_terms::{Instant, RunNumber};
use std::time::Duration;

/// How long a unit that was told to finish waits for another event manager.
const PATIENCE: Duration = Duration::from_secs(60);

/// How far the end has come.
#[derive(Debug, Default)]
pub(super) struct Farewell {
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

impl Farewell {
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
        let mut farewell = Farewell::default();
        farewell.finish();
        farewell.dismiss();
        assert!(!farewell.leaves(), "its last word is not said");
        farewell.say();
        assert!(farewell.leaves() && !farewell.leaves() && !farewell.is_done());
        farewell.manager_lost(NOW);
        assert!(farewell.is_done());
    }

    #[test]
    fn whoever_is_not_dismissed_tells_the_next_event_manager() {
        let mut farewell = Farewell::default();
        farewell.finish();
        farewell.say();
        farewell.manager_lost(NOW);
        farewell.look(NOW.after(PATIENCE / 2));
        assert!(!farewell.is_done());
        farewell.manager_came();
        assert!(!farewell.is_said() && !farewell.is_told(), "the next one may go on with the run");
        farewell.look(NOW.after(PATIENCE));
        assert!(!farewell.is_done(), "somebody is there");
        farewell.manager_lost(NOW);
        assert_eq!(farewell.next_deadline(), Some(NOW.after(PATIENCE)), "nor is that one waited for without an end");
        farewell.manager_came();
        farewell.finish();
        farewell.say();
        farewell.dismiss();
        assert!(farewell.leaves());
    }

    #[test]
    fn patience_ends() {
        let mut farewell = Farewell::default();
        farewell.manager_lost(NOW);
        assert_eq!(farewell.next_deadline(), None, "in mid-run it waits for ever");
        farewell.finish();
        farewell.manager_lost(NOW);
        assert_eq!(farewell.next_deadline(), Some(NOW.after(PATIENCE)));
        farewell.look(NOW.after(PATIENCE));
        assert!(farewell.is_done());
    }
}
