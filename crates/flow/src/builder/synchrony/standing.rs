//! What is known about a source, apart from what every event touches.

use super::comparer::Witness;
use super::{Doubt, Verdict};
use ropewalk_terms::EventKey;

/// Check-ups that a fruitless search rests, at most: it doubles each time.
const LONGEST_REST: u16 = 32;
/// Check-ups between two certifications of a source that gives no reason for doubt.
const CERTIFY_EVERY: u16 = 32;

/// What is known about a source.
#[derive(Copy, Clone, Debug)]
pub(super) struct Standing {
    pub(super) verdict: Verdict,
    pub(super) since: EventKey,
    pub(super) at: EventKey,
    /// Whether it ever had a relation to this reference: only then can it be lost.
    pub(super) was_related: bool,
    /// Kinds of key that are not asked any more, since a weaker kind proved them wrong. By number of the witness.
    pub(super) distrusted: [bool; 3],
    /// Comparisons made since agreement fell.
    pub(super) doubtful: u32,
    /// Searches in a row that found nothing.
    pub(super) fruitless: u16,
    /// Check-ups to wait before the next job.
    pub(super) rest: u16,
    /// Check-ups in a row without enough comparisons.
    pub(super) silent: u16,
    /// Whether a job is waiting or running.
    pub(super) busy: bool,
    /// Whether the change of verdict still has to be told.
    pub(super) untold: bool,
    pub(super) stuck_bits: u32,
    pub(super) displaced_events: u64,
    pub(super) disagreements: u64,
    pub(super) displacements: u32,
    pub(super) first_displaced: Option<(Verdict, EventKey)>,
}

impl Standing {
    pub(super) const fn new() -> Self {
        Self {
            verdict: Verdict::CannotTell(Doubt::TooFew),
            since: EventKey::MIN,
            at: EventKey::MIN,
            was_related: false,
            distrusted: [false; 3],
            doubtful: 0,
            fruitless: 0,
            rest: 0,
            silent: 0,
            busy: false,
            untold: false,
            stuck_bits: 0,
            displaced_events: 0,
            disagreements: 0,
            displacements: 0,
            first_displaced: None,
        }
    }

    /// Forgets what was known against the old reference; what happened stays counted.
    pub(super) const fn start_again(&mut self) {
        *self = Self {
            displaced_events: self.displaced_events,
            disagreements: self.disagreements,
            displacements: self.displacements,
            first_displaced: self.first_displaced,
            busy: self.busy,
            untold: self.untold,
            ..Self::new()
        };
    }

    /// Whether this kind of key is asked.
    pub(super) const fn trusts(&self, witness: Witness) -> bool {
        !self.distrusted[witness as usize]
    }

    /// Whether the verdict says already that the source stands at this offset.
    pub(super) fn is_at(&self, offset: i16) -> bool {
        match self.verdict {
            Verdict::InSync => offset == 0,
            Verdict::Offset(stands_at) => offset == stands_at,
            Verdict::Lost | Verdict::CannotTell(_) => false,
        }
    }

    /// Takes on a verdict; true where it is a new one.
    pub(super) fn decide(&mut self, verdict: Verdict, since: EventKey, at: EventKey) -> bool {
        if self.verdict == verdict {
            return false;
        }
        (self.verdict, self.since, self.at) = (verdict, since, at);
        if verdict.is_displaced() {
            self.displacements += 1;
            self.first_displaced.get_or_insert((verdict, since));
        }
        true
    }

    /// The source stands where it is watched: nothing to do for a while.
    pub(super) const fn reassure(&mut self) {
        (self.doubtful, self.fruitless, self.rest) = (0, 0, CERTIFY_EVERY);
    }

    /// Whether a source that gives no reason for doubt is due to be certified again; counts the rest down.
    pub(super) const fn has_rested(&mut self) -> bool {
        let rested = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        rested
    }

    /// A job led to nothing: the next one comes later.
    pub(super) fn tire(&mut self) {
        self.fruitless = self.fruitless.saturating_add(1);
        self.rest = match self.fruitless {
            // Offsets far ahead need that many events until they can be seen, so the first searches come quickly.
            0..=4 => 0,
            more => (1 << (more - 4).min(6)).min(LONGEST_REST),
        };
    }
}
