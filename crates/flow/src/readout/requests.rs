//! Requests of builder units and their answers. Each builder unit has its own queue. The queues are served in turn, so
//! that no builder unit waits behind the backlog of another.

use super::machine::{Readout, ReadoutAction};
use super::source::Source;
use super::table::{ORIGIN, Place, Position, State, Table};
use crate::messages::{Fragment, FragmentMeta, Release, RequestEntry, SuperFragmentEntry, append};
use core::ops::Range;
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, EventKey, Instant, Outcome, Requirement};
use std::collections::VecDeque;

/// The most unanswered requests of one builder unit; its credit keeps it far below.
const MOST: usize = 1 << 16;

/// Number of requests for which room is allocated per builder unit before the run.
const USUAL: usize = 1024;

/// Whether a request can be answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Ready<T> {
    /// It can be answered, with this value.
    Now(T),
    /// Its event is not settled.
    Later,
}

#[derive(Debug)]
struct Queue {
    ready: VecDeque<RequestEntry>,
    /// Requests whose events were not settled when their turn came.
    unsettled: VecDeque<RequestEntry>,
}

impl Queue {
    fn new() -> Self {
        Self { ready: VecDeque::with_capacity(USUAL), unsettled: VecDeque::with_capacity(USUAL) }
    }

    fn len(&self) -> usize {
        self.ready.len() + self.unsettled.len()
    }
}

/// Requests of all builder units.
#[derive(Debug)]
pub(super) struct Requests {
    queues: Vec<Queue>,
    /// Index of the builder unit whose turn it is.
    turn: usize,
    /// Number of requests in all `ready` queues.
    ready: usize,
    /// Number of requests that wait for their event.
    unsettled: usize,
}

impl Requests {
    /// Creates empty queues with room for the requests of `builders` builder units.
    pub(super) fn new(builders: u16) -> Self {
        let queues = (0..builders).map(|_| Queue::new()).collect();
        Self { queues, turn: 0, ready: 0, unsettled: 0 }
    }

    /// Adds a request of a builder unit. Refuses it if the builder unit is not configured, or has far too many
    /// requests.
    pub(super) fn add(&mut self, builder: u16, entry: RequestEntry) {
        let queue = self.queues.get_mut(usize::from(builder)).filter(|queue| queue.len() < MOST);
        let Some(queue) = queue else { return };
        queue.ready.push_back(entry);
        self.ready += 1;
    }

    /// Whether no requests wait.
    pub(super) const fn is_empty(&self) -> bool {
        self.ready + self.unsettled == 0
    }

    /// Drops the requests of a lost builder unit.
    pub(super) fn forget(&mut self, builder: u16) {
        if let Some(queue) = self.queues.get_mut(usize::from(builder)) {
            self.ready -= queue.ready.len();
            self.unsettled -= queue.unsettled.len();
            queue.ready.clear();
            queue.unsettled.clear();
        }
    }

    /// Makes waiting requests ready to be checked again after more events were settled.
    pub(super) fn look_again(&mut self) {
        if self.unsettled == 0 {
            return;
        }
        for queue in &mut self.queues {
            self.ready += queue.unsettled.len();
            self.unsettled -= queue.unsettled.len();
            // The waiting requests are older than the ready ones.
            while let Some(entry) = queue.unsettled.pop_back() {
                queue.ready.push_front(entry);
            }
        }
    }

    /// Returns the next request that `judge` finds ready. The builder units take turns.
    pub(super) fn next<T>(&mut self, judge: impl Fn(&RequestEntry) -> Ready<T>) -> Option<(u16, RequestEntry, T)> {
        while self.ready > 0 {
            let turn = self.turn;
            self.turn = (turn + 1) % self.queues.len();
            let queue = &mut self.queues[turn];
            let Some(entry) = queue.ready.pop_front() else { continue };
            self.ready -= 1;
            match judge(&entry) {
                Ready::Now(answer) => return Some((turn as u16, entry, answer)),
                Ready::Later => {
                    queue.unsettled.push_back(entry);
                    self.unsettled += 1;
                }
            }
        }
        None
    }
}

/// Answers to builder units: each request gets the held fragments, or the cause why there are none.
impl Readout {
    /// Returns the answer to the next request that can be answered. The builder units take turns.
    pub(super) fn next_answer(&mut self) -> Option<ReadoutAction> {
        let Self { requests, table, timeline, sources, .. } = self;
        let (head, stop_end) = (self.head, self.stop.as_ref().map_or(Position::MAX, |stop| stop.end));
        let judge = |entry: &RequestEntry| {
            // Masks are known even for events of which nothing else is known.
            let of_nothing = || {
                let is_masked = sources.iter().any(|source| source.masking.has_covered(entry.key));
                Ready::Now(if is_masked {
                    Ok((SuperFragment::count_required(sources) as u16, 0))
                } else {
                    Err(Cause::NotHeld)
                })
            };
            let Some(position) = timeline.position(entry.key) else {
                let is_ahead = entry.key.resync() > timeline.resync();
                return if is_ahead { Ready::Later } else { of_nothing() };
            };
            match table.slot(position) {
                Some(slot) => match slot.state {
                    State::Settled | State::Empty(_) => Ready::Now(Ok((slot.fragments + slot.missing, slot.bytes))),
                    State::Released => Ready::Now(Err(Cause::Late)),
                    State::Open => Ready::Later,
                },
                // All sources skipped so many events at once that there was no room to note this.
                None if position < head => of_nothing(),
                None if position >= stop_end => Ready::Now(Err(Cause::NotHeld)),
                None => Ready::Later,
            }
        };
        let (builder, RequestEntry { key, slot, attempt }, answer) = requests.next(judge)?;
        let (fragments, bytes) = answer.unwrap_or_default();
        if let Some(position) = timeline.position(key) {
            table.note_answered(position);
        }
        let entry = SuperFragmentEntry { key, slot, attempt, fragments, bytes, not_held: answer.err() };
        Some(ReadoutAction::Answer { builder, entry })
    }

    /// Returns the held fragments of a settled event; `None` if it is not settled, not held or released.
    pub fn super_fragment(&self, key: EventKey) -> Option<SuperFragment<'_>> {
        // A count may have ended here before others showed all of its events. These events have no position.
        let is_over = key.resync() < self.timeline.resync();
        let position = self.timeline.position(key).or(is_over.then_some(ORIGIN - 1))?;
        let of_nothing = || SuperFragment::of_nothing(&self.table, &self.sources, key, position);
        SuperFragment::new(&self.table, &self.sources, key, position)
            .or_else(|| (position < self.head).then(of_nothing).flatten())
    }

    /// Releases events for the event manager. Their fragments are counted by the outcomes of the events.
    pub(super) fn release(&mut self, now: Instant, release: &Release) {
        let before = self.table.base();
        for entry in &release.entries {
            let positions = self.timeline.range(entry.first, entry.count);
            // Fragments that were sent to no builder unit are in no record.
            let is_answered = |position| self.table.slot(position).is_some_and(|slot| slot.answered);
            let outcome = match entry.outcome {
                Outcome::Dropped(Cause::OutcomeUnknown) if !positions.clone().any(is_answered) => {
                    Outcome::Dropped(Cause::Late)
                }
                outcome => outcome,
            };
            if let Outcome::Dropped(Cause::TooLarge | Cause::BuiltWithout | Cause::Late) = outcome {
                self.note_unrecorded(positions.clone());
            }
            let sources = &mut self.sources;
            self.table.release(positions, |source, count| {
                let account = &mut sources[source].account;
                match outcome {
                    Outcome::Complete => account.in_complete_events += count,
                    Outcome::IncompleteEmitted => account.in_incomplete_events += count,
                    Outcome::Dropped(cause) => {
                        account.dropped.add(cause, count);
                        account.in_dropped_events += count;
                    }
                }
            });
        }
        let was_full = self.head >= self.table.limit();
        self.skip_released(now);
        self.table.close_gap(self.head);
        self.count_restarts_from_here(now, before);
        if was_full || !self.declared.is_empty() {
            self.advance(now);
        }
    }

    /// Notes gaps for fragments of these events that no record contains: held fragments, and fragments of unsettled
    /// events that are still to come.
    fn note_unrecorded(&mut self, positions: Range<Position>) {
        let Self { sources, table, timeline, head, .. } = self;
        for position in positions.start.max(table.base())..positions.end.min(table.limit()) {
            let is_settled = position < *head || table.is_released(position);
            for (index, source) in sources.iter_mut().enumerate() {
                let is_awaited = !is_settled && source.requirement == Requirement::Required;
                if is_awaited || table.has_fragment(index, position) {
                    source.gaps.note(position, timeline.key(position));
                }
            }
        }
    }
}

/// The fragments of one settled event that a readout unit holds, and placeholders for missing ones.
#[derive(Copy, Clone, Debug)]
pub struct SuperFragment<'a> {
    table: &'a Table,
    sources: &'a [Source],
    position: Position,
    key: EventKey,
    /// Number of entries: fragments and placeholders for missing ones.
    count: usize,
    bytes: u32,
}

impl<'a> SuperFragment<'a> {
    pub(super) fn new(table: &'a Table, sources: &'a [Source], key: EventKey, position: Position) -> Option<Self> {
        let slot = table.slot(position)?;
        let is_settled = matches!(slot.state, State::Settled | State::Empty(_));
        let count = usize::from(slot.fragments) + usize::from(slot.missing);
        is_settled.then_some(Self { table, sources, position, key, count, bytes: slot.bytes })
    }

    /// Returns the super-fragment of an event of which only its end is known, if a source was masked in it.
    fn of_nothing(table: &'a Table, sources: &'a [Source], key: EventKey, position: Position) -> Option<Self> {
        let is_known = table.slot(position).is_some();
        let is_masked = sources.iter().any(|source| source.masking.has_covered(key));
        let count = Self::count_required(sources);
        (!is_known && is_masked).then_some(Self { table, sources, position, key, count, bytes: 0 })
    }

    /// Returns the number of sources that have an entry in an event without fragments.
    fn count_required(sources: &[Source]) -> usize {
        sources.iter().filter(|source| source.requirement == Requirement::Required).count()
    }

    /// Returns the event's key.
    pub const fn key(&self) -> EventKey {
        self.key
    }

    /// Returns the bytes of all payloads.
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns the number of entries that [`SuperFragment::append_to`] appends.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Appends the fragments in the order of the sources. Required sources without a fragment get an entry without a
    /// payload, described by [`FragmentMeta::missing`]. Payloads are not copied: each costs a reference.
    pub fn append_to(&self, out: &mut Vec<Fragment>) {
        let Self { table, sources, position, key, count, .. } = *self;
        let missing = |id, cause| Fragment { meta: FragmentMeta::missing(id, cause), payload: Payload::default() };
        let empty = match table.slot(position).map(|slot| slot.state) {
            Some(State::Empty(cause)) => Some(cause),
            None => Some(Cause::NotHeld),
            Some(_) => None,
        };
        if let Some(cause) = empty {
            let required = sources.iter().filter(|source| source.requirement == Requirement::Required);
            let cause_of = |source: &Source| if source.masking.has_covered(key) { Cause::Masked } else { cause };
            return out.extend(required.map(|source| missing(source.id, cause_of(source))));
        }
        let end = out.len() + count;
        out.reserve(count);
        for (source, place) in sources.iter().zip(table.row(position)) {
            // Sources after the last one with an entry are not visited.
            if out.len() == end {
                return;
            }
            match place {
                Place::Held(Fragment { meta, payload }) => match payload.clone_one() {
                    Some(payload) => append(out, Fragment { meta: *meta, payload }),
                    None => append(out, Fragment { meta: *meta, payload: payload.clone() }),
                },
                Place::Missing(cause) => out.push(missing(source.id, *cause)),
                Place::Vacant => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::{Attempt, EventKey};

    fn entry(number: u64) -> RequestEntry {
        RequestEntry { key: EventKey::new(0, number), slot: number as u32, attempt: Attempt(1) }
    }

    fn drain(requests: &mut Requests, settled: u64) -> Vec<(u16, u64)> {
        let judge = |entry: &RequestEntry| if entry.key.number() <= settled { Ready::Now(()) } else { Ready::Later };
        core::iter::from_fn(|| requests.next(judge)).map(|(builder, entry, ())| (builder, entry.key.number())).collect()
    }

    #[test]
    fn builders_take_turns() {
        let mut requests = Requests::new(3);
        for number in 1..=3 {
            requests.add(0, entry(number));
        }
        requests.add(2, entry(10));
        requests.add(2, entry(11));
        assert_eq!(drain(&mut requests, 100), [(0, 1), (2, 10), (0, 2), (2, 11), (0, 3)]);
    }

    #[test]
    fn what_is_not_settled_waits_and_keeps_its_place() {
        let mut requests = Requests::new(2);
        for number in [7, 1, 6, 2] {
            requests.add(1, entry(number));
        }
        assert_eq!(drain(&mut requests, 5), [(1, 1), (1, 2)]);
        requests.add(1, entry(3));
        requests.look_again();
        assert_eq!(drain(&mut requests, 7), [(1, 7), (1, 6), (1, 3)]);
    }

    #[test]
    fn a_builder_that_is_gone_is_forgotten() {
        let mut requests = Requests::new(2);
        requests.add(0, entry(1));
        requests.add(1, entry(9));
        requests.add(1, entry(2));
        assert_eq!(drain(&mut requests, 1), [(0, 1)]);
        requests.add(0, entry(1));
        requests.forget(1);
        requests.forget(7);
        requests.look_again();
        assert_eq!(drain(&mut requests, 100), [(0, 1)]);
    }

    #[test]
    fn requests_are_bounded() {
        let mut requests = Requests::new(1);
        for number in 0..MOST as u64 + 5 {
            requests.add(0, entry(number));
        }
        assert_eq!(drain(&mut requests, u64::MAX).len(), MOST);
    }
}
