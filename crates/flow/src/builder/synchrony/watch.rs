//! What runs for every source in every event: one comparison and two counters.

use super::Observation;
use super::comparer::{Comparer, Witness};

/// What a source is compared by, event for event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Nothing: it is the reference, or no common key was found yet.
    Idle,
    /// By this key, at offset 0.
    InStep(Witness),
    /// By this key, at another offset: partners are looked up in the history.
    Displaced(Witness),
}

/// The part of a source's state that every event touches.
#[derive(Copy, Clone, Debug)]
pub(super) struct Watch {
    pub(super) mode: Mode,
    /// The offset that it is watched at.
    pub(super) offset: i16,
    /// Comparisons since the last check-up.
    pub(super) compared: u32,
    /// Of these, how many failed.
    pub(super) disagreed: u32,
    pub(super) comparer: Comparer,
}

impl Watch {
    pub(super) const fn new(comparer: Comparer) -> Self {
        Self { mode: Mode::Idle, offset: 0, compared: 0, disagreed: 0, comparer }
    }

    /// Compares by `witness` at `offset` from now on.
    pub(super) const fn follow(&mut self, witness: Witness, offset: i16) {
        self.mode = if offset == 0 { Mode::InStep(witness) } else { Mode::Displaced(witness) };
        self.offset = offset;
        (self.compared, self.disagreed) = (0, 0);
    }

    /// The key that it is compared by.
    pub(super) const fn witness(&self) -> Option<Witness> {
        match self.mode {
            Mode::Idle => None,
            Mode::InStep(witness) | Mode::Displaced(witness) => Some(witness),
        }
    }

    #[inline]
    pub(super) fn count(&mut self, agreed: bool) {
        self.compared += 1;
        self.disagreed += u32::from(!agreed);
    }
}

/// Compares each source in step with the reference in this event. `before` is the row of the event seen before, for
/// intervals; it may be empty.
pub(super) fn compare_row(watches: &mut [Watch], row: &mut [Observation], before: &[Observation], reference: usize) {
    let Some(&seen) = row.get(reference) else { return };
    for (index, (watch, own)) in watches.iter_mut().zip(row).enumerate() {
        let agreed = match watch.mode {
            Mode::InStep(Witness::BunchCrossing) => watch.comparer.crossings(own, &seen).map(|(own, seen)| own == seen),
            Mode::InStep(Witness::TriggerTag) => watch.comparer.tags(own, &seen).map(|(own, seen)| own == seen),
            Mode::InStep(Witness::Time) => interval_agrees(&watch.comparer, (own, &seen), before, (index, reference)),
            Mode::Idle | Mode::Displaced(_) => None,
        };
        if let Some(agreed) = agreed {
            own.note(agreed);
            watch.count(agreed);
        }
    }
}

#[inline]
fn interval_agrees(
    comparer: &Comparer,
    (own, seen): (&Observation, &Observation),
    before: &[Observation],
    (source, reference): (usize, usize),
) -> Option<bool> {
    let source = comparer.interval(before.get(source)?, own)?;
    let reference = comparer.reference_interval(before.get(reference)?, seen)?;
    Some(comparer.clock.fits(source, reference))
}
