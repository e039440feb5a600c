//! The table of keys: a ring over consecutive positions, one row for each key in the window.
//!
//! ```text
//!  positions  tail .................. cursor ............ head ............ tail + capacity
//!             oldest unreleased       next to assign      after the newest  further keys must wait
//! ```
//! Within a resync count, positions are consecutive like the keys; a resynchronisation begins a new segment directly
//! after the newest key of the old one.

use ropewalk_terms::{Attempt, Ending, EventKey, Instant, Outcome, Verdict};

/// State of an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// No readout unit announced it.
    Empty,
    /// Announced, not assigned.
    Open,
    /// Assigned to a builder unit.
    Assigned,
    /// To be assigned again: its builder unit was lost.
    Again,
    /// Dropped, but a lost builder unit may have kept it in an earlier attempt and is waited for.
    Undecided,
    /// Ended; the readout units have not been told.
    Done,
    /// Released to the readout units.
    Released,
}

/// State of one key.
#[derive(Copy, Clone, Debug)]
pub(super) struct Row {
    /// The key; it identifies rows of an earlier lap of the ring.
    pub(super) key: EventKey,
    /// Time of its first announcement.
    pub(super) since: Instant,
    /// Announced bytes of all readout units.
    pub(super) bytes: u32,
    /// Its last attempt; 0 if it was never assigned.
    pub(super) attempt: Attempt,
    /// The builder unit of its last attempt.
    pub(super) builder: u16,
    /// Whether other builder units had it in earlier attempts.
    pub(super) is_repeated: bool,
    /// Its state.
    pub(super) stage: Stage,
    /// Whether the trigger source is among its fragments.
    pub(super) triggered: bool,
    /// How it ended, if it has.
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

/// Place of a key.
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
    /// Before a resync count's first key or after its last one.
    Nowhere,
}

/// The keys of one resync count that have positions.
#[derive(Copy, Clone, Debug)]
struct Segment {
    first: EventKey,
    base: u64,
}

/// The rows of all keys in the window, and its bounds.
#[derive(Debug)]
pub(super) struct Table {
    rows: Box<[Row]>,
    segments: Vec<Segment>,
    tail: u64,
    head: u64,
}

impl Table {
    /// Initial capacity for resynchronisations of a run.
    const SEGMENTS: usize = 64;

    /// Creates a table of `capacity` keys, rounded up to a power of two.
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = (capacity as usize).next_power_of_two();
        let rows = vec![Row::empty(EventKey::MAX); capacity].into_boxed_slice();
        Self { rows, segments: Vec::with_capacity(Self::SEGMENTS), tail: 0, head: 0 }
    }

    /// Clears the table; the next key will be `first`.
    pub(super) fn reset(&mut self, first: EventKey) {
        self.rows.fill(Row::empty(EventKey::MAX));
        self.segments.clear();
        self.segments.push(Segment { first, base: 0 });
        (self.tail, self.head) = (0, 0);
    }

    /// Returns the number of keys in the window.
    pub(super) const fn capacity(&self) -> usize {
        self.rows.len()
    }

    /// Returns the position of the oldest unreleased key.
    pub(super) const fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the position after the newest key.
    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// Whether the window is empty.
    pub(super) const fn is_empty(&self) -> bool {
        self.tail == self.head
    }

    /// Returns the row at a position between tail and head.
    pub(super) fn row(&self, position: u64) -> &Row {
        &self.rows[position as usize & (self.rows.len() - 1)]
    }

    /// Returns the row at a position between tail and head.
    pub(super) fn row_mut(&mut self, position: u64) -> &mut Row {
        let mask = self.rows.len() - 1;
        &mut self.rows[position as usize & mask]
    }

    /// Returns the row of `key` at `position` before the window, if no newer key has overwritten it.
    pub(super) fn remembered(&self, position: u64, key: EventKey) -> Option<&Row> {
        Some(self.row(position)).filter(|row| row.key == key)
    }

    /// Returns the place of `key`.
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

    /// Returns the key at a position.
    pub(super) fn key_at(&self, position: u64) -> EventKey {
        let segment = self.segments.iter().rev().find(|segment| segment.base <= position);
        segment.map_or(EventKey::MIN, |segment| segment.first.plus(position - segment.base))
    }

    /// Returns the position after the last key below `bound`; at most the head if `bound` is of another resync count.
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

    /// Begins a resync count at `first`, after the newest key.
    pub(super) fn begin_segment(&mut self, first: EventKey) {
        self.segments.push(Segment { first, base: self.head });
    }

    /// Returns the first keys of the resync counts that were declared after this one.
    pub(super) fn resyncs_after(&self, count: u16) -> impl Iterator<Item = EventKey> {
        self.segments.iter().map(|segment| segment.first).filter(move |first| first.resync() > count)
    }

    /// Creates rows for all keys up to and including the one at `position`, which must be inside the window.
    pub(super) fn extend_to(&mut self, position: u64) {
        while self.head <= position {
            let key = self.key_at(self.head);
            *self.row_mut(self.head) = Row::empty(key);
            self.head += 1;
        }
    }

    /// Moves an empty window to `position`: no earlier key will be announced.
    pub(super) fn skip_to(&mut self, position: u64) {
        if self.is_empty() && position > self.head {
            (self.tail, self.head) = (position, position);
        }
    }

    /// Moves the tail over released rows, and over empty ones before `cursor`; `passed` gets the released rows.
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

    /// Returns the number of rows in any of these stages, counted one by one.
    pub(super) fn count(&self, stages: &[Stage]) -> u64 {
        (self.tail..self.head).filter(|&position| stages.contains(&self.row(position).stage)).count() as u64
    }
}
