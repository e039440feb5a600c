//! What a source says next: made up, or recorded.

use super::SourceFeed;
use ropewalk_flow::source::{Frames, Random, Trigger, TriggerGate, TriggerRate, TriggerSequence};
use ropewalk_terms::SourceId;
use std::time::Duration;

/// Triggers for which a source asks at once; more would let the run end later than it was told to.
const ADVANCE: u64 = 32;

/// The frames of one trigger after the other.
pub(super) struct Content {
    feed: SourceFeed,
    triggers: TriggerSequence,
    next: Option<Trigger>,
    random: Random,
    /// Those of the last trigger.
    pub(super) frames: Frames,
    /// Its number as FED headers have it.
    pub(super) event: u32,
}

impl Content {
    pub(super) fn new(id: SourceId, feed: SourceFeed) -> Self {
        let (rate, seed) = match feed {
            SourceFeed::Emulated { rate, seed, .. } => (rate, seed),
            SourceFeed::Recorded { .. } => (TriggerRate::Unlimited, 0),
        };
        Self {
            feed,
            triggers: TriggerSequence::new(seed, rate),
            next: None,
            random: Random::new(seed, u64::from(id.0) + 1),
            frames: Frames::default(),
            event: 0,
        }
    }

    /// Puts the next frames together; false where none are due.
    pub(super) fn advance(&mut self, gate: &TriggerGate, elapsed: Duration) -> bool {
        while let Some(trigger) = self.due(gate, elapsed) {
            self.next = None;
            match &mut self.feed {
                SourceFeed::Emulated { frames, size, .. } => {
                    let bytes = size.next_fragment(&mut self.random) as usize;
                    self.event = frames.number(&trigger) as u32 & 0xff_ffff;
                    if frames.add(&trigger, bytes, &mut self.frames) {
                        return true;
                    }
                }
                SourceFeed::Recorded { bytes, fragments } => {
                    self.frames.put(&bytes[fragments[trigger.number as usize - 1].clone()]);
                    self.event = trigger.number as u32 & 0xff_ffff;
                    return true;
                }
            }
        }
        let is_over = self.has_no_more_triggers(gate);
        match &mut self.feed {
            SourceFeed::Emulated { frames, .. } if is_over => frames.send_rest(&mut self.frames),
            _ => false,
        }
    }

    /// The next trigger, where it is due.
    fn due(&mut self, gate: &TriggerGate, elapsed: Duration) -> Option<Trigger> {
        let trigger = *self.next.get_or_insert_with(|| self.triggers.next_trigger());
        let recorded = match &self.feed {
            SourceFeed::Recorded { fragments, .. } => fragments.len() as u64,
            SourceFeed::Emulated { .. } => u64::MAX,
        };
        if trigger.at > elapsed || trigger.number > recorded {
            return None;
        }
        // With a rate the gate is asked trigger by trigger, or the end would lie in the future.
        let ahead = if trigger.at == Duration::ZERO { ADVANCE } else { 0 };
        if gate.advance_to(trigger.number) < trigger.number {
            return None;
        }
        if trigger.number.is_multiple_of(ADVANCE) {
            gate.advance_to(trigger.number + ahead);
        }
        Some(trigger)
    }

    /// Nothing more comes: the gate is closed behind the last trigger, or the recording is at its end.
    pub(super) fn is_exhausted(&self, gate: &TriggerGate) -> bool {
        let holds_back = match &self.feed {
            SourceFeed::Emulated { frames, .. } => frames.holds_back(),
            SourceFeed::Recorded { .. } => false,
        };
        !holds_back && self.has_no_more_triggers(gate)
    }

    fn has_no_more_triggers(&self, gate: &TriggerGate) -> bool {
        let next = self.next.map_or(1, |trigger| trigger.number);
        let recorded = match &self.feed {
            SourceFeed::Recorded { fragments, .. } => next > fragments.len() as u64,
            SourceFeed::Emulated { .. } => false,
        };
        recorded || gate.last().is_some_and(|last| next > last)
    }

    /// When the next trigger comes, after the start.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.next.map(|trigger| trigger.at)
    }
}
