//! In which events a source that is required, and takes part, is missing: stretches of them, in the order in which they are settled.

use super::timeline::Position;
use crate::messages::{Gap, ReportEntry};
use arrayvec::ArrayVec;
use ropewalk_terms::EventKey;

/// The stretches of a source. Outside of them it has a fragment in every settled event in which it takes part.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    list: ArrayVec<Gap, { ReportEntry::MOST_GAPS }>,
    /// One past the last event in which it is missing.
    end: Position,
}

impl Gaps {
    /// It is missing in this event, which comes after all others of which that was said. Where there is no room for one more stretch the last
    /// one reaches further, over events in which the source is not missing as well.
    pub(super) fn note(&mut self, position: Position, key: EventKey) {
        let goes_on = position == self.end || self.list.is_full();
        self.end = position + 1;
        match self.list.last_mut().filter(|_| goes_on) {
            Some(last) => (last.last, last.missing) = (key, last.missing + 1),
            None => self.list.push(Gap { first: key, last: key, missing: 1 }),
        }
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Gap> + '_ {
        self.list.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(positions: impl IntoIterator<Item = Position>) -> Vec<(u64, u64, u64)> {
        let mut gaps = Gaps::default();
        positions.into_iter().for_each(|position| gaps.note(position, EventKey::new(0, position)));
        gaps.iter().map(|gap| (gap.first.number(), gap.last.number(), gap.missing)).collect()
    }

    #[test]
    fn events_in_a_row_are_one_stretch() {
        assert_eq!(of([]), []);
        assert_eq!(of([7]), [(7, 7, 1)]);
        assert_eq!(of([7, 8, 9, 11, 13, 14]), [(7, 9, 3), (11, 11, 1), (13, 14, 2)]);
    }

    #[test]
    fn what_finds_no_room_makes_the_last_stretch_longer_so_that_outside_nothing_is_missing() {
        let most = ReportEntry::MOST_GAPS as u64;
        let gaps = of((0..most + 5).map(|index| 2 * index));
        assert_eq!(gaps.len() as u64, most);
        assert_eq!(gaps.last(), Some(&(2 * (most - 1), 2 * (most + 4), 6)));
        assert_eq!(gaps.iter().map(|gap| gap.2).sum::<u64>(), most + 5);
    }
}
