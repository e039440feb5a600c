//! Event keys in a row: positions, which go on without a gap where the resync count grows.
//!
//! ```text
//!   keys       0:1  0:2  0:3 | 1:1  1:2  1:3 ...
//!   positions   1    2    3  |  4    5    6       a segment begins at each resynchronisation
//! ```
//! Every table of the readout unit counts in positions, so that nothing else needs to know of resynchronisations.

use core::ops::Range;
use ropewalk_terms::EventKey;

/// An event's place in the row of all events of the run.
pub(super) type Position = u64;

/// Behind every position: waits for nothing.
pub(super) const NEVER: Position = Position::MAX;

/// The position of the run's first event; 0 stands before it.
pub(super) const ORIGIN: Position = 1;

/// How many resync counts may be held at once; a further one waits until the oldest is released.
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

/// The run's segments, oldest first; never empty.
#[derive(Debug)]
pub(super) struct Timeline {
    segments: arrayvec::ArrayVec<Segment, SEGMENTS>,
}

impl Timeline {
    /// A run that begins with this key.
    pub(super) fn new(first: EventKey) -> Self {
        Self { segments: [Segment { start: ORIGIN, first }].into_iter().collect() }
    }

    fn newest(&self) -> &Segment {
        self.segments.last().expect("a timeline is made with one segment and never loses its last")
    }

    /// The resync count of the newest segment.
    pub(super) fn resync(&self) -> u16 {
        self.newest().first.resync()
    }

    /// The first position of the newest segment.
    pub(super) fn start(&self) -> Position {
        self.newest().start
    }

    /// One past the last position that the newest segment can number.
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

    /// From `start` on, events carry keys from `first` on. There must be room.
    pub(super) fn begin_segment(&mut self, start: Position, first: EventKey) {
        self.segments.push(Segment { start, first });
    }

    /// The key at a position; the oldest known key where the position is older.
    pub(super) fn key(&self, position: Position) -> EventKey {
        let segment = self.segments.iter().rev().find(|segment| segment.start <= position);
        segment.map_or(self.segments[0].first, |segment| segment.key(position))
    }

    /// The largest key before a position: what is settled when everything before the position is.
    pub(super) fn key_before(&self, position: Position) -> EventKey {
        self.key(position).previous()
    }

    /// The position of a key; none where it lies before the run, behind its segment's end, or in a resync count
    /// that has not begun.
    pub(super) fn position(&self, key: EventKey) -> Option<Position> {
        let (segment, end) = self.segment_of(key)?;
        let position = segment.start.saturating_add(key.since(segment.first)?);
        (position < end).then_some(position)
    }

    /// One past the last position whose key is not larger; none where the key's resync count has not begun.
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

    /// The positions of `count` consecutive keys, as far as they exist.
    pub(super) fn range(&self, first: EventKey, count: u32) -> Range<Position> {
        let Some((segment, end)) = self.segment_of(first) else { return 0..0 };
        let (start, before) = match first.since(segment.first) {
            Some(distance) => (segment.start.saturating_add(distance), 0),
            None => (segment.start, segment.first.number() - first.number()),
        };
        let count = u64::from(count).saturating_sub(before);
        start.min(end)..start.saturating_add(count).min(end)
    }

    /// The segment with the key's resync count, and where it ends.
    fn segment_of(&self, key: EventKey) -> Option<(&Segment, Position)> {
        let index = self.segments.iter().rposition(|segment| segment.first.resync() == key.resync())?;
        Some((&self.segments[index], self.segments.get(index + 1).map_or(NEVER, |next| next.start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_segments() -> Timeline {
        let mut timeline = Timeline::new(EventKey::new(0, 5));
        timeline.begin_segment(ORIGIN + 10, EventKey::new(1, 1));
        timeline
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
