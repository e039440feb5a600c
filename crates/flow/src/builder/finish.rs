//! All readout units have answered: is the event complete, and what becomes of it?

use super::bunch_crossing::flag_mismatches;
use super::slots::Stage;
use super::synchrony::Action;
use super::{Builder, IncompletePolicy};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, Outcome, Requirement};

impl Builder {
    /// Judges the event in a slot: it is emitted, or ends here.
    pub(super) fn collected(&mut self, number: u32) {
        let outcome = self.judge(number);
        let slot = self.slots.at_mut(number);
        slot.outcome = outcome;
        if matches!(outcome, Outcome::Dropped(_)) {
            self.acknowledge(number);
            self.drop_payloads(&[number]);
            self.give_back(number);
            return;
        }
        slot.stage = Stage::Ready;
        let key = slot.key;
        if self.config.check_bunch_crossing {
            let fragments = self.slots.fragments_mut(number);
            flag_mismatches(&self.config.sources, fragments, self.config.orbit, &mut self.mismatches);
        }
        if let Some(observer) = &mut self.observer {
            let fragments = self.slots.fragments_mut(number);
            match observer.observe(key, &self.config.sources, fragments, &mut self.displaced) {
                Some((Action::Stop, cause)) => self.ask_to_stop(cause),
                Some((Action::Pause, cause)) => self.paused = Some(cause),
                Some((Action::Flag, _)) | None => {}
            }
        }
        self.ready.push_back(number);
    }

    /// How the event ends, by what is there and by policy.
    fn judge(&mut self, number: u32) -> Outcome {
        if self.slots.at(number).filled == self.unmasked {
            return Outcome::Complete;
        }
        let missing = self.first_missing(number);
        if self.slots.at(number).filled == 0 {
            return Outcome::Dropped(missing.unwrap_or(Cause::NotHeld));
        }
        let missing = missing.filter(|_| !is_planted(Flaw::IncompleteCalledComplete));
        let Some(cause) = missing else { return Outcome::Complete };
        match self.config.incomplete {
            IncompletePolicy::Emit => Outcome::IncompleteEmitted,
            IncompletePolicy::Drop => Outcome::Dropped(Cause::IncompletePolicy),
            IncompletePolicy::Stop => {
                self.ask_to_stop(cause);
                Outcome::IncompleteEmitted
            }
        }
    }

    /// Leaves a cause at the places of missing sources that are required, and nowhere else; returns the first. A source that its
    /// readout unit says is masked is not missing.
    fn first_missing(&mut self, number: u32) -> Option<Cause> {
        let mut first = None;
        let (_, fragments, causes) = self.slots.row_mut(number);
        let is_masked = |cause: &Option<Cause>| *cause == Some(Cause::Masked);
        for (place, (fragment, cause)) in fragments.iter().zip(causes).enumerate() {
            let required = self.config.sources[place].requirement == Requirement::Required;
            if fragment.is_none() && required && !is_masked(cause) {
                let cause = *cause.get_or_insert(Cause::NotHeld);
                self.counts.missing.add(cause, 1);
                first.get_or_insert(cause);
            } else {
                *cause = None;
            }
        }
        first
    }

    fn ask_to_stop(&mut self, cause: Cause) {
        if !self.stop_said {
            (self.stop_run, self.stop_said) = (Some(cause), true);
        }
    }
}
