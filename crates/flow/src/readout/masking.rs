//! Sources taken out in mid-run and taken in again, and connections whose bytes made no sense.
//!
//! ```text
//!             mask                 unmask        first fragment that goes on with the run's numbers
//!  takes part ----> masked from K ---------> asked back ----> takes part from L on
//!                        ^                       |
//!                        +---------mask----------+
//! ```
//! K and L are chosen here, where the source's fragments are: nothing that came before a mask is thrown away, and no event waits for
//! a source that was asked back and says nothing. One that is a little behind the others is waited for from the oldest event on that is
//! not settled. Both are reported, and every event from K up to L says of the source that it was
//! masked, so that builder units need not know of masks.

use super::FramingError;
use super::machine::Readout;
use super::sequence::Step;
use super::source::Standing;
use super::table::{NEVER, ORIGIN, Position};
use crate::messages::{Mask, Message, Received, ReportEntry};
use arrayvec::ArrayVec;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant, Requirement};

/// The keys at which a source was masked and took part again, in turns.
type Turns = ArrayVec<EventKey, { ReportEntry::MOST_TURNS }>;

/// In which events a source does not take part.
#[derive(Debug)]
pub(super) struct Masking {
    /// The first one; [`NEVER`] where it was never masked.
    from: Position,
    /// One past the last one; [`NEVER`] while it is masked.
    to: Position,
    /// It is to take part again.
    is_asked_back: bool,
    /// The key at which this readout unit began, where the source took part; [`EventKey::MIN`] where that is the run's first one.
    begun: Option<EventKey>,
    turns: Turns,
}

impl Masking {
    /// A source that takes part, or one that does not in the whole run, by configuration.
    pub(super) fn new(never_takes_part: bool) -> Self {
        let from = if never_takes_part { 0 } else { NEVER };
        Self { from, to: NEVER, is_asked_back: false, begun: None, turns: Turns::new() }
    }

    /// Whether the source does not take part in this event.
    #[inline]
    pub(super) const fn covers(&self, position: Position) -> bool {
        self.from <= position && position < self.to
    }

    /// Whether the source took no part in this event, of which that was said at any time of the run.
    pub(super) fn has_covered(&self, key: EventKey) -> bool {
        let turns = self.turns.iter().take_while(|&&turn| turn <= key);
        turns.count() % 2 == 1
    }

    /// Whether the source is masked from some event on.
    pub(super) const fn is_open(&self) -> bool {
        self.from < NEVER && self.to == NEVER
    }

    /// One past the last event in a row, from `next` on, in which the source takes part; at most `next` where it does not in that one.
    #[inline]
    pub(super) const fn wanted_end(&self, next: Position) -> Position {
        if next < self.from || self.to == NEVER { self.from } else { NEVER }
    }

    /// The event at `next`, or the first one behind it in which the source takes part; [`NEVER`] while it is masked.
    pub(super) const fn first_wanted(&self, next: Position) -> Position {
        if self.covers(next) { self.to } else { next }
    }

    /// For reports: 0 takes part, 1 masked, 2 asked back.
    pub(super) const fn state(&self) -> u64 {
        if self.is_open() { 1 + self.is_asked_back as u64 } else { 0 }
    }

    /// The key at which this readout unit began, where the source took part; [`EventKey::MIN`] where that is the run's first one.
    pub(super) const fn begun(&self) -> Option<EventKey> {
        self.begun
    }

    /// The keys at which the source was masked and took part again, in turns.
    pub(super) fn turns(&self) -> impl Iterator<Item = EventKey> + '_ {
        self.turns.iter().copied()
    }

    /// Masked from here on. An earlier mask whose events are not all settled goes on, since of two at once nothing is known.
    fn begin(&mut self, from: Position, key: EventKey, head: Position) -> Position {
        let ended = self.turns.last().copied().filter(|_| self.to != NEVER && self.to > head);
        if ended.is_none() {
            self.from = from;
        }
        // It may have been reported where the earlier one ends.
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
    /// The event manager says whether a source takes part. Of a source that is not one of these, that triggers, or that the
    /// configuration masks, it says nothing.
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

    /// From now on a source does not take part: events neither wait for it nor hold it, and what it sends is dropped and counted. What
    /// has come of it stays.
    fn mask(&mut self, now: Instant, source: usize) {
        let (head, started) = (self.head, self.started);
        let last = self.sources[source].sequence.last();
        let from = if started { head.max(last + 1) } else { ORIGIN };
        let key = self.timeline.key(from);
        let input = &mut self.sources[source];
        let from = input.masking.begin(from, key, head);
        // What lies beyond the window has been placed in no event.
        self.drop_waiting(source, Cause::Masked);
        let withdrawn = self.table.withdraw(source, from..NEVER);
        let input = &mut self.sources[source];
        input.account.dropped.add(Cause::Masked, withdrawn);
        if input.is_restarted() {
            // What becomes of its numbers is looked at when it takes part again.
            input.standing = Standing::Following;
        }
        self.stop_collating(now, source);
        self.moved(now, source);
    }

    /// The run begins, or this readout unit in mid-run: a source that is masked already takes no part from the first
    /// event on.
    pub(super) fn begin_masked(&mut self, origin: EventKey) {
        let first = self.timeline.key(ORIGIN);
        for Masking { turns, begun, .. } in self.sources.iter_mut().map(|source| &mut source.masking) {
            turns.iter_mut().for_each(|turn| *turn = first);
            *begun = turns.is_empty().then_some(if first == origin { EventKey::MIN } else { first });
        }
    }

    /// A fragment of a source that is masked: whether it is the first one with which the source takes part again. It may also show that
    /// a later one will be, for which events wait from now on.
    pub(super) fn comes_back(&mut self, source: usize, fragment: &Received) -> bool {
        let newest = self.timeline.resync();
        let input = &mut self.sources[source];
        if !input.masking.is_asked_back {
            return false;
        }
        if input.resync != newest {
            // Its numbers were compared with those of a count that is over: all began again since, and so did it.
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
        // A source that is a little behind the others would stay so for ever if events did not wait for it: from the
        // oldest unsettled event on they do. One that is far behind catches up first, which is quicker while its data
        // is thrown away.
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

    /// Which sources do not take part, for a new event manager.
    pub(super) fn masks(&self) -> impl Iterator<Item = Message> + '_ {
        let commanded = |source: &&super::source::Source| source.requirement != Requirement::Masked;
        let masked = self.sources.iter().filter(commanded).filter(|source| source.masking.state() == 1);
        masked.map(|source| Message::Mask(Mask { source: source.id, is_masked: true }))
    }

    /// A source's bytes made no sense: all of the lost bytes count as one dropped fragment. The
    /// connection is closed and [`Readout::source_disconnected`] follows.
    pub fn framing_lost(&mut self, source: usize, error: FramingError) {
        let input = &mut self.sources[source];
        input.account.received += 1;
        input.account.dropped.add(error.cause, 1);
        input.statistics.framing_errors += 1;
        input.statistics.garbage_bytes += error.bytes_discarded;
    }
}
