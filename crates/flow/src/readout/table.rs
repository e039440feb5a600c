//! The events that a readout unit holds: a ring of slots over consecutive positions, with one place per source in each
//! slot. All memory is allocated at the start. After that nothing is allocated, hashed or searched for.
//!
//! The ring uses only the first slots of its memory, as many as the events in flight need, so that they stay in the
//! cache. It doubles when an event has no slot, up to the capacity, and halves when a quarter of it was sufficient for
//! a long time.
//!
//! ```text
//!            slot  0     1     2     3    ...            what is known of the event
//!   source 0     [   ] [ x ] [ x ] [   ]                 one lane per source: a source's fragments lie side by
//!   source 1     [ x ] [ x ] [ - ] [   ]                 side, as they come
//!                  ^base                ^end             x held, - will not come
//! ```

use crate::messages::{Fragment, FragmentMeta, Received, overwrite};
use core::ops::{ControlFlow, Range};
use ropewalk_memory::{Payload, Returns};
use ropewalk_terms::{Cause, EventKey};

/// The progress of an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Fragments may still come.
    Open,
    /// No more fragments will come.
    Settled,
    /// Settled without any fragment, for this cause.
    Empty(Cause),
    /// No longer needed.
    Released,
}

/// The state of an event.
#[derive(Copy, Clone, Debug)]
pub(super) struct Slot {
    /// The position of the slot's event. If it differs from the requested one, nothing is known of that one.
    position: Position,
    /// Bytes of the held fragments.
    pub(super) bytes: u32,
    /// Number of held fragments.
    pub(super) fragments: u16,
    /// Number of required sources that will not deliver.
    pub(super) missing: u16,
    /// Whether the trigger source is among the fragments.
    pub(super) triggered: bool,
    /// Whether a builder unit was sent the fragments.
    pub(super) answered: bool,
    pub(super) state: State,
}

impl Slot {
    const fn new(position: Position, state: State) -> Self {
        Self { position, bytes: 0, fragments: 0, missing: 0, triggered: false, answered: false, state }
    }
}

/// The place of one source in one event.
#[derive(Debug, Default)]
pub(super) enum Place {
    /// Nothing.
    #[default]
    Vacant,
    /// The source is required and will not deliver.
    Missing(Cause),
    /// A fragment.
    Held(Fragment),
}

/// The places of one source, while its fragments are filled in.
pub(super) struct Lane<'a> {
    slots: &'a mut [Slot],
    places: &'a mut [Place],
    mask: Position,
    /// The end of the table.
    end: &'a mut Position,
    triggers: bool,
}

impl Lane<'_> {
    /// Moves a fragment into its place, which must lie before [`Table::slots_end`] and be vacant. Returns false, and
    /// leaves the fragment where it is, if the event was released.
    #[inline]
    pub(super) fn place(&mut self, position: Position, fragment: &mut Received) -> bool {
        let index = (position & self.mask) as usize;
        let slot = &mut self.slots[index];
        if slot.position != position {
            *slot = Slot::new(position, State::Open);
        } else if slot.state == State::Released {
            return false;
        }
        slot.fragments += 1;
        slot.bytes = slot.bytes.saturating_add(fragment.meta.length);
        slot.triggered |= self.triggers;
        *self.end = (*self.end).max(position + 1);
        let held = Place::Held(Fragment { meta: fragment.meta, payload: core::mem::take(&mut fragment.payload) });
        overwrite(&mut self.places[index], held);
        true
    }
}

/// Number of slots in use at first.
const FIRST_SLOTS: usize = 1024;
/// Number of rounds in which a quarter of the ring must suffice before it halves.
const ROUNDS: usize = 16;

/// Every event that is held.
#[derive(Debug)]
pub(super) struct Table {
    /// All slots; those up to `mask` are in use.
    slots: Box<[Slot]>,
    /// Lanes of `stride` places, one lane per source.
    places: Box<[Place]>,
    sources: usize,
    mask: Position,
    stride: usize,
    base: Position,
    end: Position,
    /// One past the latest event that was settled or released.
    marked: Position,
    /// The base when more than a quarter of the ring was last needed.
    needed_at: Position,
    /// Events before this one were offered for evacuation.
    visited: Position,
}

impl Table {
    /// Creates an empty table whose first event is `start`.
    pub(super) fn new(capacity: usize, sources: usize, start: Position) -> Self {
        // One place more than the ring needs: lanes a power of two apart would compete for the same cache lines.
        let stride = capacity + 1;
        Self {
            slots: vec![Slot::new(Position::MAX, State::Released); capacity].into_boxed_slice(),
            places: core::iter::repeat_with(Place::default).take(stride * sources).collect(),
            sources,
            mask: capacity.min(FIRST_SLOTS) as Position - 1,
            stride,
            base: start,
            end: start,
            marked: start,
            needed_at: start,
            visited: start,
        }
    }

    /// Returns the oldest event that is not released.
    pub(super) const fn base(&self) -> Position {
        self.base
    }

    /// Returns one past the latest event that a fragment was placed in.
    pub(super) const fn end(&self) -> Position {
        self.end
    }

    /// Returns one past the last event that there is room for.
    pub(super) const fn limit(&self) -> Position {
        self.base + self.slots.len() as Position
    }

    /// Returns one past the last event that has a slot now; [`Table::reach`] gives slots to later ones.
    #[inline]
    pub(super) const fn slots_end(&self) -> Position {
        self.base + self.mask + 1
    }

    /// Gives slots to all events before `end`, which is at most [`Table::limit`].
    #[inline]
    pub(super) fn reach(&mut self, end: Position) {
        while end > self.slots_end() {
            self.double();
        }
    }

    #[cold]
    fn double(&mut self) {
        let size = self.mask as usize + 1;
        for index in 0..size {
            let position = self.slots[index].position;
            if position != Position::MAX && position & size as Position != 0 {
                self.move_slot(index, index + size);
            }
        }
        self.mask = 2 * size as Position - 1;
        self.needed_at = self.base;
    }

    /// Returns the number of positions in use, from the base on.
    fn used(&self) -> Position {
        self.end.max(self.marked).saturating_sub(self.base)
    }

    fn note_need(&mut self) {
        if self.used() > (self.mask + 1) / 4 {
            self.needed_at = self.base;
        }
    }

    /// Halves the ring if a quarter of it was sufficient for many rounds. Bursts must not move events each time.
    fn shrink(&mut self) {
        let size = self.mask as usize + 1;
        self.note_need();
        if size <= FIRST_SLOTS || self.base - self.needed_at < (ROUNDS * size) as Position {
            return;
        }
        self.needed_at = self.base;
        let half = size / 2;
        for index in half..size {
            if (self.base..self.base + self.used()).contains(&self.slots[index].position) {
                self.move_slot(index, index - half);
            }
        }
        self.mask = half as Position - 1;
    }

    /// Moves the state of an event to a slot that holds none.
    fn move_slot(&mut self, from: usize, to: usize) {
        self.slots[to] = core::mem::replace(&mut self.slots[from], Slot::new(Position::MAX, State::Released));
        for lane in self.places.chunks_exact_mut(self.stride) {
            lane[to] = core::mem::take(&mut lane[from]);
        }
    }

    #[inline]
    const fn index(&self, position: Position) -> usize {
        (position & self.mask) as usize
    }

    /// Returns the state of an event.
    pub(super) fn slot(&self, position: Position) -> Option<&Slot> {
        let slot = &self.slots[self.index(position)];
        (slot.position == position).then_some(slot)
    }

    /// Returns the place of a source in an event that has a slot.
    pub(super) fn at(&self, source: usize, position: Position) -> &Place {
        &self.places[source * self.stride + self.index(position)]
    }

    /// Returns the places of all sources in an event that has a slot, in the order of the sources.
    #[inline]
    pub(super) fn row(&self, position: Position) -> impl Iterator<Item = &Place> {
        self.places[self.index(position)..].iter().step_by(self.stride)
    }

    /// Whether an event was released.
    pub(super) fn is_released(&self, position: Position) -> bool {
        self.slot(position).is_some_and(|slot| slot.state == State::Released)
    }

    /// Notes that a builder unit is sent the fragments of an event.
    pub(super) fn note_answered(&mut self, position: Position) {
        let slot = &mut self.slots[(position & self.mask) as usize];
        slot.answered |= slot.position == position;
    }

    /// Whether a source's fragment of this event is held.
    pub(super) fn has_fragment(&self, source: usize, position: Position) -> bool {
        self.slot(position).is_some() && matches!(self.at(source, position), Place::Held(_))
    }

    /// Returns a source's lane, to be filled up to [`Table::slots_end`]. `triggers` says whether it is the trigger
    /// source.
    #[inline]
    pub(super) fn lane(&mut self, source: usize, triggers: bool) -> Lane<'_> {
        let places = &mut self.places[source * self.stride..][..self.stride];
        Lane { slots: &mut self.slots, places, mask: self.mask, end: &mut self.end, triggers }
    }

    /// Settles these events. `cause` returns for a source and an event why the source is missing; `None` if it is not
    /// required.
    pub(super) fn settle(
        &mut self,
        positions: Range<Position>,
        mut cause: impl FnMut(usize, Position) -> Option<Cause>,
    ) {
        let end = positions.end.min(self.limit());
        self.mark(end);
        for position in positions.start..end {
            let index = self.index(position);
            let slot = &mut self.slots[index];
            if slot.position != position {
                // Of several causes the first one is kept. Masks are known per source.
                let missing = (0..self.sources).filter_map(|source| cause(source, position));
                let first = |(count, first): (u16, Option<Cause>), cause| {
                    (count + 1, first.or(Some(cause).filter(|&cause| cause != Cause::Masked)))
                };
                let (count, first) = missing.fold((0, None), first);
                *slot = Slot::new(position, State::Empty(first.unwrap_or(Cause::Skipped)));
                slot.missing = count;
            } else if slot.state == State::Open {
                slot.state = State::Settled;
                if usize::from(slot.fragments) < self.sources {
                    self.note_missing(position, &mut cause);
                }
            }
        }
    }

    /// Prepares the slots of events before `end` to be settled or released.
    fn mark(&mut self, end: Position) {
        self.marked = self.marked.max(end);
        self.reach(end);
        self.note_need();
    }

    fn note_missing(&mut self, position: Position, cause: &mut impl FnMut(usize, Position) -> Option<Cause>) {
        let index = self.index(position);
        for source in 0..self.sources {
            let place = &mut self.places[source * self.stride + index];
            if matches!(place, Place::Vacant)
                && let Some(cause) = cause(source, position)
            {
                *place = Place::Missing(cause);
                self.slots[index].missing += 1;
            }
        }
    }

    /// Releases these events, as far as they lie in the table. `released` is called with each source and the number of
    /// its fragments.
    pub(super) fn release(&mut self, positions: Range<Position>, mut released: impl FnMut(usize, u64)) {
        let positions = positions.start.max(self.base)..positions.end.min(self.limit());
        if positions.is_empty() {
            return;
        }
        self.mark(positions.end);
        for source in 0..self.sources {
            let lane = &mut self.places[source * self.stride..][..self.stride];
            let mut count = 0;
            let mut returns = Returns::default();
            for position in positions.clone() {
                let place = &mut lane[(position & self.mask) as usize];
                if let Place::Held(fragment) = place {
                    count += 1;
                    returns.take(&mut fragment.payload);
                }
                // This drops the payload, if there is one.
                overwrite(place, Place::Vacant);
            }
            released(source, count);
        }
        for position in positions {
            let index = self.index(position);
            self.slots[index] = Slot::new(position, State::Released);
        }
    }

    /// Moves the base past all events before `settled` that hold nothing.
    pub(super) fn close_gap(&mut self, settled: Position) {
        while self.base < settled {
            if self.base >= self.end {
                self.base = settled;
                self.end = settled;
                break;
            }
            if self.slot(self.base).is_some_and(|slot| slot.fragments > 0) {
                break;
            }
            self.base += 1;
        }
        self.shrink();
    }

    /// Returns the metadata of a source's fragment of an event, if it is held.
    pub(super) fn meta(&self, source: usize, position: Position) -> Option<&FragmentMeta> {
        self.slot(position)?;
        match &self.places[source * self.stride + self.index(position)] {
            Place::Held(fragment) => Some(&fragment.meta),
            Place::Vacant | Place::Missing(_) => None,
        }
    }

    /// Removes a source's fragments from these events, which the run does not want. Returns how many there were. An
    /// event that has nothing left is forgotten.
    pub(super) fn withdraw(&mut self, source: usize, positions: Range<Position>) -> u64 {
        let mut count = 0;
        for position in positions.start.max(self.base)..positions.end.min(self.end) {
            let index = self.index(position);
            let slot = &mut self.slots[index];
            let place = &mut self.places[source * self.stride + index];
            if slot.position == position
                && let Place::Held(fragment) = place
            {
                slot.fragments -= 1;
                slot.bytes = slot.bytes.saturating_sub(fragment.meta.length);
                *place = Place::Vacant;
                count += 1;
                if slot.fragments == 0 {
                    slot.position = Position::MAX;
                }
            }
        }
        count
    }

    /// Returns the number of a source's held fragments, by counting them one by one.
    pub(super) fn held_of(&self, source: usize) -> u64 {
        (self.base..self.end).filter(|&position| self.has_fragment(source, position)).count() as u64
    }

    /// Returns the number of a source's held fragments that were sent to a builder unit.
    pub(super) fn answered_of(&self, source: usize) -> u64 {
        let is_answered = |position: &Position| self.slot(*position).is_some_and(|slot| slot.answered);
        (self.base..self.end).filter(is_answered).filter(|&position| self.has_fragment(source, position)).count() as u64
    }

    /// Returns the number of events that hold a fragment, by counting them one by one.
    pub(super) fn held(&self) -> usize {
        let holds = |position: &Position| self.slot(*position).is_some_and(|slot| slot.fragments > 0);
        (self.base..self.end).filter(holds).count()
    }

    /// Returns the bytes of the held payloads, summed event by event.
    pub(super) fn held_bytes(&self) -> u64 {
        let held = (self.base..self.end).filter_map(|position| self.slot(position)).filter(|slot| slot.fragments > 0);
        held.map(|slot| u64::from(slot.bytes)).sum()
    }

    /// Passes the held payloads to `visit`, oldest event first, until `visit` breaks. Each is passed only once.
    pub(super) fn visit_oldest(&mut self, mut visit: impl FnMut(usize, &mut Payload) -> ControlFlow<()>) {
        for position in self.visited.max(self.base)..self.end {
            let index = self.index(position);
            if self.slots[index].position != position {
                continue;
            }
            for source in 0..self.sources {
                if let Place::Held(fragment) = &mut self.places[source * self.stride + index]
                    && visit(source, &mut fragment.payload).is_break()
                {
                    self.visited = position;
                    return;
                }
            }
        }
        self.visited = self.end;
    }
}

/// The index of an event in the sequence of all events of the run.
pub(super) type Position = u64;

/// Greater than every position: waits for nothing.
pub(super) const NEVER: Position = Position::MAX;

/// The position of the run's first event; 0 is the position before it.
pub(super) const ORIGIN: Position = 1;

/// The most resync counts that are held at once; a further one waits until the oldest is released.
const SEGMENTS: usize = 8;

/// Positions of one resync count.
#[derive(Copy, Clone, Debug)]
struct Segment {
    start: Position,
    first: EventKey,
}

impl Segment {
    const fn key(&self, position: Position) -> EventKey {
        self.first.plus(position - self.start)
    }
}

/// Maps event keys to positions, which continue without a gap when the resync count grows. Holds the segments of the
/// run, oldest first, and is never empty.
///
/// ```text
///   keys       0:1  0:2  0:3 | 1:1  1:2  1:3 ...
///   positions   1    2    3  |  4    5    6       a segment begins at each resynchronisation
/// ```
/// All tables of the readout unit use positions, so that nothing else needs to know of resynchronisations.
#[derive(Debug)]
pub(super) struct Timeline {
    segments: arrayvec::ArrayVec<Segment, SEGMENTS>,
}

impl Timeline {
    /// Creates a timeline for a run that begins with this key.
    pub(super) fn new(first: EventKey) -> Self {
        Self { segments: [Segment { start: ORIGIN, first }].into_iter().collect() }
    }

    fn newest(&self) -> &Segment {
        self.segments.last().expect("a timeline is made with one segment and never loses its last")
    }

    /// Returns the resync count of the newest segment.
    pub(super) fn resync(&self) -> u16 {
        self.newest().first.resync()
    }

    /// Returns the first position of the newest segment.
    pub(super) fn start(&self) -> Position {
        self.newest().start
    }

    /// Returns one past the last position that the newest segment can number.
    pub(super) fn limit(&self) -> Position {
        let newest = self.newest();
        newest.start + (EventKey::MAX_NUMBER - newest.first.number())
    }

    /// Whether another segment may begin where everything before `base` is released.
    pub(super) fn has_room(&mut self, base: Position) -> bool {
        while self.segments.is_full() && self.segments[1].start <= base {
            self.segments.remove(0);
        }
        !self.segments.is_full()
    }

    /// Begins a segment: from `start` on, events have keys from `first` on. There must be room.
    pub(super) fn begin_segment(&mut self, start: Position, first: EventKey) {
        self.segments.push(Segment { start, first });
    }

    /// Returns the key at a position; the oldest known key if the position is older.
    pub(super) fn key(&self, position: Position) -> EventKey {
        let segment = self.segments.iter().rev().find(|segment| segment.start <= position);
        segment.map_or(self.segments[0].first, |segment| segment.key(position))
    }

    /// Returns the largest key before a position, up to which everything is settled if everything before the position
    /// is.
    pub(super) fn key_before(&self, position: Position) -> EventKey {
        self.key(position).previous()
    }

    /// Returns the position of a key; `None` if it lies before the run, past its segment's end, or in a resync count
    /// that has not begun.
    pub(super) fn position(&self, key: EventKey) -> Option<Position> {
        let (segment, end) = self.segment_of(key)?;
        let position = segment.start.saturating_add(key.since(segment.first)?);
        (position < end).then_some(position)
    }

    /// Returns one past the last position whose key is not larger; `None` if the key's resync count has not begun.
    pub(super) fn end_of(&self, key: EventKey) -> Option<Position> {
        match self.segment_of(key) {
            Some((segment, end)) => Some(match key.since(segment.first) {
                Some(distance) => segment.start.saturating_add(distance).saturating_add(1).min(end),
                None => segment.start,
            }),
            None if key.resync() > self.resync() => None,
            None => Some(self.segments.iter().find(|later| later.first > key).map_or(ORIGIN, |later| later.start)),
        }
    }

    /// Returns the positions of `count` consecutive keys, as far as they exist.
    pub(super) fn range(&self, first: EventKey, count: u32) -> Range<Position> {
        let Some((segment, end)) = self.segment_of(first) else { return 0..0 };
        let (start, before) = match first.since(segment.first) {
            Some(distance) => (segment.start.saturating_add(distance), 0),
            None => (segment.start, segment.first.number() - first.number()),
        };
        let count = u64::from(count).saturating_sub(before);
        start.min(end)..start.saturating_add(count).min(end)
    }

    /// Returns the segment with the key's resync count, and where it ends.
    fn segment_of(&self, key: EventKey) -> Option<(&Segment, Position)> {
        let index = self.segments.iter().rposition(|segment| segment.first.resync() == key.resync())?;
        Some((&self.segments[index], self.segments.get(index + 1).map_or(NEVER, |next| next.start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ropewalk_terms::SourceId;
    use std::collections::{BTreeMap, BTreeSet};

    fn two_segments() -> Timeline {
        let mut timeline = Timeline::new(EventKey::new(0, 5));
        timeline.begin_segment(ORIGIN + 10, EventKey::new(1, 1));
        timeline
    }

    fn place(table: &mut Table, source: usize, position: Position) -> bool {
        table.reach(position + 1);
        let id = SourceId(source as u32);
        let meta = FragmentMeta { length: position as u32, ..FragmentMeta::missing(id, Cause::NotHeld) };
        let mut fragment = Received { meta, restarts: false, payload: Payload::default() };
        table.lane(source, false).place(position, &mut fragment)
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// The source's next fragment, this number of events after the last one.
        Place(usize, u64),
        Settle(u64),
        Release(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..3_usize, prop_oneof![9 => 1..300_u64, 1 => 1..5000_u64]).prop_map(|(source, by)| Step::Place(source, by)),
            2 => (1..3000_u64).prop_map(Step::Settle),
            2 => (1..3000_u64).prop_map(Step::Release),
        ]
    }

    proptest! {
        #[test]
        fn a_ring_that_grows_and_shrinks_holds_what_a_map_holds(steps in prop::collection::vec(step(), 1..200)) {
            let mut table = Table::new(1 << 14, 3, ORIGIN);
            let (mut held, mut next, mut head, mut oldest) = (BTreeMap::new(), [ORIGIN; 3], ORIGIN, ORIGIN);
            for step in steps {
                match step {
                    Step::Place(source, by) if next[source] + by <= table.limit() => {
                        let position = (next[source] + by - 1).max(head);
                        if position < table.limit() {
                            next[source] = position + 1;
                            prop_assert!(place(&mut table, source, position));
                            held.insert((position, source), position as u32);
                        }
                    }
                    Step::Place(..) => {}
                    Step::Settle(count) => {
                        let end = (head + count).min(table.limit());
                        table.settle(head..end, |_, _| Some(Cause::Skipped));
                        head = end;
                        table.close_gap(head);
                    }
                    Step::Release(count) => {
                        let end = (oldest + count).min(head);
                        table.release(oldest..end, |_, _| {});
                        held.retain(|&(position, _), _| position >= end);
                        oldest = end;
                        table.close_gap(head);
                    }
                }
                let found = (oldest..table.limit()).flat_map(|position| {
                    let table = &table;
                    (0..3).filter_map(move |source| Some(((position, source), table.meta(source, position)?.length)))
                });
                prop_assert_eq!(found.collect::<BTreeMap<_, _>>(), held.clone());
                for position in oldest..head {
                    let state = table.slot(position).map(|slot| slot.state);
                    let is_held = (0..3).any(|source| held.contains_key(&(position, source)));
                    let expected = if is_held { State::Settled } else { State::Empty(Cause::Skipped) };
                    prop_assert!(state.is_none_or(|state| state == expected), "{position}: {state:?}");
                    prop_assert!(!is_held || state.is_some());
                }
                prop_assert_eq!(table.held(), held.keys().map(|&(position, _)| position).collect::<BTreeSet<_>>().len());
            }
        }
    }

    #[test]
    fn a_ring_returns_to_its_first_slots_when_few_events_have_been_held_for_long() {
        let mut table = Table::new(1 << 14, 1, ORIGIN);
        let mut head = ORIGIN;
        let mut pass = |table: &mut Table, count: u64| {
            (head..head + count).for_each(|position| assert!(place(table, 0, position)));
            table.settle(head..head + count, |_, _| None);
            table.release(head..head + count, |_, released| assert_eq!(released, count));
            head += count;
            table.close_gap(head);
            table.slots_end() - table.base()
        };
        assert_eq!(pass(&mut table, 5000), 8192);
        // Bursts do not change its size.
        assert!((0..200).all(|burst| pass(&mut table, if burst % 5 == 0 { 5000 } else { 200 }) == 8192));
        let sizes: BTreeSet<u64> = (0..1500).map(|_| pass(&mut table, 200)).collect();
        assert_eq!(sizes, BTreeSet::from([1024, 2048, 4096, 8192]));
        assert_eq!(table.slots_end() - table.base(), FIRST_SLOTS as Position);
    }

    #[test]
    fn keys_and_positions_go_there_and_back_over_a_resynchronisation() {
        let timeline = two_segments();
        for position in ORIGIN..ORIGIN + 100 {
            assert_eq!(timeline.position(timeline.key(position)), Some(position));
        }
        assert_eq!(timeline.key(ORIGIN + 9), EventKey::new(0, 14));
        assert_eq!(timeline.key(ORIGIN + 10), EventKey::new(1, 1));
    }

    #[test]
    fn keys_that_are_no_events_have_no_position() {
        let timeline = two_segments();
        for key in [EventKey::new(0, 4), EventKey::new(0, 15), EventKey::new(1, 0), EventKey::new(2, 1)] {
            assert_eq!(timeline.position(key), None, "{key}");
        }
    }

    #[test]
    fn the_key_before_a_segment_covers_everything_older() {
        let timeline = two_segments();
        assert_eq!(timeline.key_before(ORIGIN + 10), EventKey::new(1, 0));
        assert!(timeline.key_before(ORIGIN + 10) > EventKey::new(0, EventKey::MAX_NUMBER));
        assert_eq!(timeline.key_before(ORIGIN + 3), EventKey::new(0, 7));
    }

    #[test]
    fn the_end_of_a_key_is_cut_at_its_segment() {
        let timeline = two_segments();
        assert_eq!(timeline.end_of(EventKey::new(0, 4)), Some(ORIGIN));
        assert_eq!(timeline.end_of(EventKey::new(0, 6)), Some(ORIGIN + 2));
        assert_eq!(timeline.end_of(EventKey::new(0, 99)), Some(ORIGIN + 10));
        assert_eq!(timeline.end_of(EventKey::new(1, 3)), Some(ORIGIN + 13));
        assert_eq!(timeline.end_of(EventKey::new(2, 1)), None);
    }

    #[test]
    fn ranges_are_cut_to_what_exists() {
        let timeline = two_segments();
        assert_eq!(timeline.range(EventKey::new(0, 3), 4), ORIGIN..ORIGIN + 2);
        assert_eq!(timeline.range(EventKey::new(0, 14), u32::MAX), ORIGIN + 9..ORIGIN + 10);
        assert_eq!(timeline.range(EventKey::new(1, 2), 2), ORIGIN + 11..ORIGIN + 13);
        assert!(timeline.range(EventKey::new(2, 1), 9).is_empty());
        assert!(timeline.range(EventKey::new(0, 1), 2).is_empty());
    }

    #[test]
    fn the_oldest_segments_are_forgotten_when_they_are_released() {
        let mut timeline = Timeline::new(EventKey::new(0, 1));
        for count in 1..SEGMENTS as u16 {
            assert!(timeline.has_room(ORIGIN));
            timeline.begin_segment(ORIGIN + u64::from(count), EventKey::new(count, 1));
        }
        assert!(!timeline.has_room(ORIGIN));
        assert!(timeline.has_room(ORIGIN + 1));
        timeline.begin_segment(ORIGIN + SEGMENTS as u64, EventKey::new(SEGMENTS as u16, 1));
        assert_eq!(timeline.position(EventKey::new(0, 1)), None);
        assert_eq!(timeline.end_of(EventKey::new(0, 1)), Some(ORIGIN + 1));
        assert_eq!(timeline.resync(), SEGMENTS as u16);
    }
}
