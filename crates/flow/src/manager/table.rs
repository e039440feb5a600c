//! The table of keys: a ring over consecutive positions, one row for each key in the window.
//!
//! ```text
//!  positions  tail .................. cursor ............ head ............ tail + capacity
//!             oldest unreleased       next to assign      after the newest  further keys must wait
//! ```
//! Within a resync count positions are consecutive as the keys are; a resynchronisation begins a new segment
//! right behind the newest key of the old one.

use ropewalk_terms::{Attempt, Ending, EventKey, Instant, Outcome, Verdict};

/// How far an event has come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// No readout unit announced it.
    Empty,
    /// Announced, not assigned.
    Open,
    /// A builder unit has it.
    Assigned,
    /// The builder unit that had it is lost: to be assigned again.
    Again,
    /// It was dropped, but a lost builder unit may have kept it in an earlier attempt, and is waited for.
    Undecided,
    /// It ended; the readout units do not know yet.
    Done,
    /// It was released to the readout units.
    Released,
}

/// What is known about one key.
#[derive(Copy, Clone, Debug)]
pub(super) struct Row {
    /// The key; rows of an earlier lap of the ring are recognised by it.
    pub(super) key: EventKey,
    /// When it was announced first.
    pub(super) since: Instant,
    /// Bytes that the readout units announced.
    pub(super) bytes: u32,
    /// The attempt in which it was assigned last; 0 for never.
    pub(super) attempt: Attempt,
    /// The builder unit that it was assigned to last.
    pub(super) builder: u16,
    /// Other builder units had it in earlier attempts.
    pub(super) is_repeated: bool,
    /// How far it has come.
    pub(super) stage: Stage,
    /// The trigger source is among its fragments.
    pub(super) triggered: bool,
    /// How it ended, where it did.
    pub(super) ending: Ending,
}

impl Row {
    const fn empty(key: EventKey) -> Self {
        Self {
            key,
            since: Instant::ZERO,
            bytes: 0,
            attempt: Attempt(0),
            builder: 0,
            is_repeated: false,
            stage: Stage::Empty,
            triggered: false,
            ending: Ending { outcome: Outcome::Complete, verdict: Verdict::Accepted },
        }
    }
}

/// Where a key belongs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the window, at this position.
    Inside(u64),
    /// Older than the window; it had this position.
    Behind(u64),
    /// Newer than the window: it must wait.
    Ahead,
    /// In a resync count that has not begun.
    NewResync,
    /// Before a resync count's first key or behind its last one.
    Nowhere,
}

/// The keys of one resync count that have positions.
#[derive(Copy, Clone, Debug)]
struct Segment {
    first: EventKey,
    base: u64,
}

/// The rows of all keys in the window, and the marks that move over them.
#[derive(Debug)]
pub(super) struct Table {
    rows: Box<[Row]>,
    segments: Vec<Segment>,
    tail: u64,
    head: u64,
}

impl Table {
    /// Resynchronisations of a run for which no memory is needed later.
    const SEGMENTS: usize = 64;

    /// A table over `capacity` keys, rounded up to a power of two.
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = (capacity as usize).next_power_of_two();
        let rows = vec![Row::empty(EventKey::MAX); capacity].into_boxed_slice();
        Self { rows, segments: Vec::with_capacity(Self::SEGMENTS), tail: 0, head: 0 }
    }

    /// Forgets everything; the next key to come is `first`.
    pub(super) fn reset(&mut self, first: EventKey) {
        self.rows.fill(Row::empty(EventKey::MAX));
        self.segments.clear();
        self.segments.push(Segment { first, base: 0 });
        (self.tail, self.head) = (0, 0);
    }

    /// How many keys the window spans.
    pub(super) const fn capacity(&self) -> usize {
        self.rows.len()
    }

    /// The position of the oldest unreleased key.
    pub(super) const fn tail(&self) -> u64 {
        self.tail
    }

    /// The position behind the newest key.
    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// Whether no key has a row.
    pub(super) const fn is_empty(&self) -> bool {
        self.tail == self.head
    }

    /// The row at a position between tail and head.
    pub(super) fn row(&self, position: u64) -> &Row {
        &self.rows[position as usize & (self.rows.len() - 1)]
    }

    /// The row at a position between tail and head.
    pub(super) fn row_mut(&mut self, position: u64) -> &mut Row {
        let mask = self.rows.len() - 1;
        &mut self.rows[position as usize & mask]
    }

    /// The row that `key` had at `position` behind the window, where no newer key has overwritten it.
    pub(super) fn remembered(&self, position: u64, key: EventKey) -> Option<&Row> {
        Some(self.row(position)).filter(|row| row.key == key)
    }

    /// Where `key` belongs.
    pub(super) fn find(&self, key: EventKey) -> Place {
        let mut end = u64::MAX;
        for segment in self.segments.iter().rev() {
            if segment.first.resync() == key.resync() {
                return match key.since(segment.first).map(|offset| segment.base + offset) {
                    Some(position) if position >= end => Place::Nowhere,
                    Some(position) if position < self.tail => Place::Behind(position),
                    Some(position) if position - self.tail >= self.rows.len() as u64 => Place::Ahead,
                    Some(position) => Place::Inside(position),
                    None => Place::Nowhere,
                };
            }
            if segment.first.resync() < key.resync() {
                return if end == u64::MAX { Place::NewResync } else { Place::Nowhere };
            }
            end = segment.base;
        }
        Place::Nowhere
    }

    /// The key at a position.
    pub(super) fn key_at(&self, position: u64) -> EventKey {
        let segment = self.segments.iter().rev().find(|segment| segment.base <= position);
        segment.map_or(EventKey::MIN, |segment| segment.first.plus(position - segment.base))
    }

    /// The position behind the last key below `bound`, at most the head where `bound` is of another resync count.
    pub(super) fn position_before(&self, bound: EventKey) -> u64 {
        let mut end = None;
        for segment in self.segments.iter().rev() {
            if segment.first.resync() == bound.resync() {
                let position = segment.base.saturating_add(bound.since(segment.first).unwrap_or(0));
                return end.map_or(position, |end| position.min(end));
            }
            if segment.first.resync() < bound.resync() {
                return end.unwrap_or(self.head);
            }
            end = Some(segment.base);
        }
        0
    }

    /// Begins a resync count at `first`, behind the newest key.
    pub(super) fn begin_segment(&mut self, first: EventKey) {
        self.segments.push(Segment { first, base: self.head });
    }

    /// Where the resync counts begin that were declared after this one.
    pub(super) fn resyncs_after(&self, count: u16) -> impl Iterator<Item = EventKey> {
        self.segments.iter().map(|segment| segment.first).filter(move |first| first.resync() > count)
    }

    /// Gives rows to all keys up to and including the one at `position`, which must be inside the window.
    pub(super) fn extend_to(&mut self, position: u64) {
        while self.head <= position {
            let key = self.key_at(self.head);
            *self.row_mut(self.head) = Row::empty(key);
            self.head += 1;
        }
    }

    /// Moves an empty window to `position`: nothing before it will be announced.
    pub(super) fn skip_to(&mut self, position: u64) {
        if self.is_empty() && position > self.head {
            (self.tail, self.head) = (position, position);
        }
    }

    /// Lets the window's end pass what is released, and what is empty before `cursor`; `passed` sees what was released.
    pub(super) fn advance_tail(&mut self, cursor: u64, mut passed: impl FnMut(&Row)) {
        while self.tail < self.head {
            let row = self.row(self.tail);
            match row.stage {
                Stage::Released => passed(row),
                Stage::Empty if self.tail < cursor => {}
                _ => break,
            }
            self.tail += 1;
        }
    }

    /// How many rows are at one of the stages, counted.
    pub(super) fn count(&self, stages: &[Stage]) -> u64 {
        (self.tail..self.head).filter(|&position| stages.contains(&self.row(position).stage)).count() as u64
    }
}
