//! Sources that are masked and unmasked in mid-run, and connections whose framing was lost.
//!
//! ```text
//!             mask                 unmask        first fragment that continues the run's numbers
//!  takes part ----> masked from K ---------> asked back ----> takes part from L on
//!                        ^                       |
//!                        +---------mask----------+
//! ```
//! This module chooses K and L, since the source's fragments are here: no fragment that came before a mask is dropped,
//! and no event waits for a source that was asked back and sends nothing. A source that is slightly behind the others
//! is awaited from the oldest unsettled event on. Both keys are reported, and every event from K up to L carries the
//! source as masked, so that builder units need not know of masks.

use super::FramingError;
use super::machine::Readout;
use super::sequence::Step;
use super::source::Standing;
use super::table::{NEVER, ORIGIN, Position};
use crate::messages::{Mask, Message, Received, ReportEntry};
use arrayvec::ArrayVec;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant, Requirement};

/// The keys at which a source was masked and took part again, alternating.
type Turns = ArrayVec<EventKey, { ReportEntry::MOST_TURNS }>;

/// The events in which a source does not take part.
#[derive(Debug)]
pub(super) struct Masking {
    /// The first masked event; [`NEVER`] if the source was never masked.
    from: Position,
    /// One past the last masked event; [`NEVER`] while the source is masked.
    to: Position,
    /// Whether the source is to take part again.
    is_asked_back: bool,
    /// The key at which this readout unit began, if the source took part; [`EventKey::MIN`] if that is the run's first
    /// one.
    begun: Option<EventKey>,
    turns: Turns,
}

impl Masking {
    /// Creates the state of a source that takes part, or that never does because of the configuration.
    pub(super) fn new(never_takes_part: bool) -> Self {
        let from = if never_takes_part { 0 } else { NEVER };
        Self { from, to: NEVER, is_asked_back: false, begun: None, turns: Turns::new() }
    }

    /// Whether the source does not take part in this event.
    #[inline]
    pub(super) const fn covers(&self, position: Position) -> bool {
        self.from <= position && position < self.to
    }

    /// Whether the source was masked in this event, by the record of the whole run.
    pub(super) fn has_covered(&self, key: EventKey) -> bool {
        let turns = self.turns.iter().take_while(|&&turn| turn <= key);
        turns.count() % 2 == 1
    }

    /// Whether the source is masked from some event on.
    pub(super) const fn is_open(&self) -> bool {
        self.from < NEVER && self.to == NEVER
    }

    /// Returns one past the last consecutive event, from `next` on, in which the source takes part; at most `next` if
    /// it does not take part in that one.
    #[inline]
    pub(super) const fn wanted_end(&self, next: Position) -> Position {
        if next < self.from || self.to == NEVER { self.from } else { NEVER }
    }

    /// Returns `next`, or the first later event in which the source takes part; [`NEVER`] while it is masked.
    pub(super) const fn first_wanted(&self, next: Position) -> Position {
        if self.covers(next) { self.to } else { next }
    }

    /// Returns the state for reports: 0 takes part, 1 masked, 2 asked back.
    pub(super) const fn state(&self) -> u64 {
        if self.is_open() { 1 + self.is_asked_back as u64 } else { 0 }
    }

    /// Returns the key at which this readout unit began, if the source took part; [`EventKey::MIN`] if that is the
    /// run's first one.
    pub(super) const fn begun(&self) -> Option<EventKey> {
        self.begun
    }

    /// Returns the keys at which the source was masked and took part again, alternating.
    pub(super) fn turns(&self) -> impl Iterator<Item = EventKey> + '_ {
        self.turns.iter().copied()
    }

    /// Masks the source from here on. An earlier mask whose events are not all settled is extended, since only one mask
    /// can be recorded at a time.
    fn begin(&mut self, from: Position, key: EventKey, head: Position) -> Position {
        let ended = self.turns.last().copied().filter(|_| self.to != NEVER && self.to > head);
        if ended.is_none() {
            self.from = from;
        }
        // The mask may have been reported to begin where the earlier one ends.
        self.turns.push(ended.unwrap_or(key));
        self.to = NEVER;
        self.is_asked_back = false;
        self.from
    }

    fn end(&mut self, to: Position, key: EventKey) {
        self.to = to;
        self.is_asked_back = false;
        if !is_planted(Flaw::UnmaskUnrecorded) {
            self.turns.push(key);
        }
    }
}

impl Readout {
    /// Masks or unmasks a source as the event manager requests. Ignores requests for sources of other readout units,
    /// for trigger sources, and for sources that the configuration masks.
    pub(super) fn mask_or_unmask(&mut self, now: Instant, mask: Mask) {
        let Some(source) = self.source_index(mask.source) else { return };
        let input = &mut self.sources[source];
        if input.requirement == Requirement::Masked || input.triggers || self.finished {
            return;
        }
        match (mask.is_masked, input.masking.is_open()) {
            (false, true) => input.masking.is_asked_back = true,
            (true, true) => input.masking.is_asked_back = false,
            (true, false) if input.masking.turns.remaining_capacity() >= 2 => self.mask(now, source),
            (true | false, false) => {}
        }
    }

    /// Masks a source: events neither wait for it nor hold it, and its further fragments are dropped and counted.
    /// Fragments that have arrived stay.
    fn mask(&mut self, now: Instant, source: usize) {
        let (head, started) = (self.head, self.started);
        let last = self.sources[source].sequence.last();
        let from = if started { head.max(last + 1) } else { ORIGIN };
        let key = self.timeline.key(from);
        let input = &mut self.sources[source];
        let from = input.masking.begin(from, key, head);
        // Fragments beyond the window have been placed in no event.
        self.drop_waiting(source, Cause::Masked);
        let withdrawn = self.table.withdraw(source, from..NEVER);
        let input = &mut self.sources[source];
        input.account.dropped.add(Cause::Masked, withdrawn);
        if input.is_restarted() {
            // Its numbers are compared again when it takes part again.
            input.standing = Standing::Following;
        }
        self.stop_collating(now, source);
        self.moved(now, source);
    }

    /// Applies masks when the run begins, or this readout unit begins in mid-run: a source that is masked by then does
    /// not take part from the first event on.
    pub(super) fn begin_masked(&mut self, origin: EventKey) {
        let first = self.timeline.key(ORIGIN);
        for Masking { turns, begun, .. } in self.sources.iter_mut().map(|source| &mut source.masking) {
            turns.iter_mut().for_each(|turn| *turn = first);
            *begun = turns.is_empty().then_some(if first == origin { EventKey::MIN } else { first });
        }
    }

    /// Whether this fragment of a masked source is the first one with which the source takes part again. It may also
    /// show that a later one will be; events wait for that one from now on.
    pub(super) fn comes_back(&mut self, source: usize, fragment: &Received) -> bool {
        let newest = self.timeline.resync();
        let input = &mut self.sources[source];
        if !input.masking.is_asked_back {
            return false;
        }
        if input.resync != newest {
            // Its numbers were compared with those of a count that is over. All sources have restarted since, and so
            // has this one.
            self.join(source);
        }
        // Its numbers were not checked while it was masked.
        let doubtful = self.sources[source].doubt.clear();
        self.sources[source].account.dropped.add(Cause::Masked, doubtful);
        let (head, end, window) = (self.head, self.stop_end().min(self.timeline.limit()), self.window);
        let input = &mut self.sources[source];
        input.sequence.keep_up(head);
        let raw = fragment.meta.raw_id;
        let Step::Forward(position) = input.sequence.step(raw, fragment.restarts, head) else { return false };
        // A source that is slightly behind the others would stay behind forever if events did not wait for it, so they
        // do from the oldest unsettled event on. A source that is far behind catches up first, which is faster while
        // its data is dropped.
        let to = position.max(head);
        if to >= end || to - position > window {
            return false;
        }
        if position < to {
            input.sequence.advance(position, raw);
        }
        let key = self.timeline.key(to);
        input.standing = Standing::Following;
        input.masking.end(to, key);
        position == to
    }

    /// Returns the masks of sources for a new event manager.
    pub(super) fn masks(&self) -> impl Iterator<Item = Message> + '_ {
        let commanded = |source: &&super::source::Source| source.requirement != Requirement::Masked;
        let masked = self.sources.iter().filter(commanded).filter(|source| source.masking.state() == 1);
        masked.map(|source| Message::Mask(Mask { source: source.id, is_masked: true }))
    }

    /// Handles lost framing of a source: all lost bytes count as one dropped fragment. The connection is closed and
    /// [`Readout::source_disconnected`] follows.
    pub fn framing_lost(&mut self, source: usize, error: FramingError) {
        let input = &mut self.sources[source];
        input.account.received += 1;
        input.account.dropped.add(error.cause, 1);
        input.statistics.framing_errors += 1;
        input.statistics.garbage_bytes += error.bytes_discarded;
    }
}
