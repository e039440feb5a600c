//! Common interface of the machines that emit events, for the filter stage and the output: a builder unit, or a gateway
//! that decides itself.

use ropewalk_flow::builder::{Builder, EventView};
use ropewalk_flow::gateway::Farm;
use ropewalk_terms::{AcknowledgementLevel, Cause, EventKey, Instant, Verdict};
use std::time::Duration;

/// A machine that emits events: a builder unit, or a gateway that decides itself.
pub trait EventMachine {
    /// Emits the next event and returns its slot. Events that are not taken wait in the machine.
    fn next_event(&mut self) -> Option<u32>;

    /// Returns the size of an emitted event in bytes, and its time in the machine. `None` if that is not measured.
    fn size_and_age(&self, now: Instant, slot: u32) -> Option<(u64, Duration)>;

    /// Returns the event in a slot. It must have been emitted and not yet ended.
    fn event(&self, slot: u32) -> EventView<'_>;

    /// Returns the oldest event that has not been emitted, as far as it is known.
    fn oldest_unemitted(&self) -> Option<EventKey>;

    /// Ends events that will not be written, each with its verdict.
    fn discard(&mut self, now: Instant, decided: impl IntoIterator<Item = (u32, Verdict)>);

    /// Marks the event in a slot as to be written.
    fn decided(&mut self, now: Instant, slot: u32, verdict: Verdict);

    /// Marks emitted events as having reached `level`. From `Written` on they are ended.
    fn all_reached(&mut self, now: Instant, slots: impl IntoIterator<Item = u32>, level: AcknowledgementLevel);

    /// Ends an emitted event that could not be written.
    fn failed(&mut self, now: Instant, slot: u32, cause: Cause);
}

impl EventMachine for Builder {
    fn next_event(&mut self) -> Option<u32> {
        Self::next_event(self)
    }

    fn size_and_age(&self, now: Instant, slot: u32) -> Option<(u64, Duration)> {
        Some(Self::size_and_age(self, now, slot))
    }

    fn event(&self, slot: u32) -> EventView<'_> {
        Self::event(self, slot)
    }

    fn oldest_unemitted(&self) -> Option<EventKey> {
        Self::oldest_unemitted(self)
    }

    fn discard(&mut self, now: Instant, decided: impl IntoIterator<Item = (u32, Verdict)>) {
        Self::discard(self, now, decided);
    }

    fn decided(&mut self, _: Instant, slot: u32, verdict: Verdict) {
        Self::decided(self, slot, verdict);
    }

    fn all_reached(&mut self, now: Instant, slots: impl IntoIterator<Item = u32>, level: AcknowledgementLevel) {
        Self::all_reached(self, now, slots, level);
    }

    fn failed(&mut self, now: Instant, slot: u32, cause: Cause) {
        Self::failed(self, now, slot, cause);
    }
}

impl EventMachine for Farm {
    fn next_event(&mut self) -> Option<u32> {
        self.next_local()
    }

    fn size_and_age(&self, _: Instant, _: u32) -> Option<(u64, Duration)> {
        None
    }

    fn event(&self, slot: u32) -> EventView<'_> {
        Self::event(self, slot)
    }

    /// A gateway has no ordered streams.
    fn oldest_unemitted(&self) -> Option<EventKey> {
        None
    }

    fn discard(&mut self, now: Instant, decided: impl IntoIterator<Item = (u32, Verdict)>) {
        for (slot, verdict) in decided {
            Self::decided(self, slot, verdict, now);
            Self::finished(self, slot, false);
        }
    }

    fn decided(&mut self, now: Instant, slot: u32, verdict: Verdict) {
        Self::decided(self, slot, verdict, now);
    }

    fn all_reached(&mut self, _: Instant, slots: impl IntoIterator<Item = u32>, level: AcknowledgementLevel) {
        if level >= AcknowledgementLevel::Written {
            slots.into_iter().for_each(|slot| Self::finished(self, slot, true));
        }
    }

    fn failed(&mut self, now: Instant, slot: u32, _: Cause) {
        Self::decided(self, slot, Verdict::Accepted, now);
        Self::finished(self, slot, false);
    }
}
