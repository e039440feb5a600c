//! Which readout units' fragments are not in the records of events. Builder units tell it before they say how these ended, and
//! readout units that hold such fragments all the same learn that they are in no record.

use crate::messages::{Lacking, LackingEntry};
use ropewalk_terms::{Attempt, Cause, EventKey, Outcome};
use std::collections::BTreeSet;

/// The most entries that are kept; a working builder unit never reports so many.
const MOST: usize = 1 << 20;

/// See the module's text. Empty as long as every readout unit answers.
#[derive(Debug, Default)]
pub(super) struct LackingLog {
    /// Entries of events whose outcome is not known yet, each with the builder unit that reported it.
    told: BTreeSet<(u16, LackingEntry)>,
    /// Entries of events that have ended: position and readout unit.
    known: BTreeSet<(u64, u16)>,
}

impl LackingLog {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.told.clear();
        self.known.clear();
    }

    /// A builder unit tells of events.
    pub(super) fn tell(&mut self, builder: u16, lacking: &Lacking) {
        let room = MOST.saturating_sub(self.told.len());
        self.told.extend(lacking.entries.iter().take(room).map(|&entry| (builder, entry)));
    }

    /// The event at a position has ended as this builder unit said of this attempt.
    pub(super) fn settle(&mut self, position: u64, builder: u16, key: EventKey, attempt: Attempt) {
        if self.told.is_empty() {
            return;
        }
        let of = |readout| (builder, LackingEntry { key, attempt, readout });
        while let Some(&entry) = self.told.range(of(0)..=of(u16::MAX)).next() {
            self.told.remove(&entry);
            self.known.insert((position, entry.1.readout));
        }
    }

    /// Whether a readout unit is lacking in the event at a position.
    pub(super) fn is_any_lacking(&self, position: u64) -> bool {
        !self.known.is_empty() && self.known.range((position, 0)..=(position, u16::MAX)).next().is_some()
    }

    /// How the event at a position ended for what this readout unit has of it.
    pub(super) fn outcome_for(&self, readout: u16, position: u64, outcome: Outcome) -> Outcome {
        let is_lacking = || self.known.contains(&(position, readout));
        if !matches!(outcome, Outcome::Dropped(_)) && is_lacking() {
            Outcome::Dropped(Cause::BuiltWithout)
        } else {
            outcome
        }
    }

    /// Events before these are not asked for any more.
    pub(super) fn forget(&mut self, key: EventKey, position: u64) {
        if !self.told.is_empty() {
            self.told.retain(|(_, entry)| entry.key >= key);
        }
        while self.known.first().is_some_and(|&(first, _)| first < position) {
            self.known.pop_first();
        }
    }
}
