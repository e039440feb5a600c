//! In which events a source that is required, and takes part, is missing: stretches of them, in the order of events.

use super::timeline::Position;
use crate::messages::{Gap, ReportEntry};
use arrayvec::ArrayVec;
use ropewalk_terms::EventKey;

#[derive(Copy, Clone, Debug)]
struct Stretch {
    first: Position,
    last: Position,
    gap: Gap,
}

impl Stretch {
    /// It reaches to this event, in which the source is missing.
    fn take(&mut self, position: Position, key: EventKey) {
        if position < self.first {
            (self.first, self.gap.first) = (position, key);
        }
        if position > self.last {
            (self.last, self.gap.last) = (position, key);
        }
        self.gap.missing += 1;
    }
}

/// The stretches of a source. Outside of them it has a fragment in the record of every settled event in which it takes part.
#[derive(Debug, Default)]
pub(super) struct Gaps(ArrayVec<Stretch, { ReportEntry::MOST_GAPS }>);

impl Gaps {
    /// It is missing in this event, of which that was not said before: because it did not come, or because the event was
    /// recorded without it, which is known later. Where there is no room for one more stretch the nearest one before it reaches
    /// further, over events in which the source is not missing as well. Stretches that touch stay two, so that
    /// each keeps its number in reports.
    pub(super) fn note(&mut self, position: Position, key: EventKey) {
        let behind = self.0.partition_point(|stretch| stretch.first <= position);
        let before = behind.checked_sub(1);
        let touches_before = before.is_some_and(|index| position <= self.0[index].last + 1);
        let touches_behind = self.0.get(behind).is_some_and(|stretch| stretch.first == position + 1);
        let grows = match before {
            Some(index) if touches_before || self.0.is_full() && !touches_behind => Some(index),
            _ if touches_behind || self.0.is_full() => Some(behind),
            _ => None,
        };
        match grows {
            Some(index) => self.0[index].take(position, key),
            None => {
                let gap = Gap { first: key, last: key, missing: 1 };
                self.0.insert(behind, Stretch { first: position, last: position, gap });
            }
        }
    }

    /// Whether the source is missing in this event, as far as it was said.
    pub(super) fn has(&self, position: Position) -> bool {
        self.0.iter().any(|stretch| (stretch.first..=stretch.last).contains(&position))
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Gap> + '_ {
        self.0.iter().map(|stretch| stretch.gap)
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
    fn what_is_known_later_finds_its_place_and_no_stretch_vanishes() {
        assert_eq!(of([20, 21, 3, 5, 4, 22, 19, 6]), [(3, 4, 2), (5, 6, 2), (19, 22, 4)]);
        assert_eq!(of([9, 8, 7]), [(7, 9, 3)]);
    }

    #[test]
    fn what_finds_no_room_makes_the_stretch_before_it_longer_so_that_outside_nothing_is_missing() {
        let most = ReportEntry::MOST_GAPS as u64;
        let gaps = of((0..most + 5).map(|index| 2 * index));
        assert_eq!(gaps.len() as u64, most);
        assert_eq!(gaps.last(), Some(&(2 * (most - 1), 2 * (most + 4), 6)));
        assert_eq!(gaps.iter().map(|gap| gap.2).sum::<u64>(), most + 5);
        let gaps = of((1..=most).map(|index| 10 * index).chain([15, 3]));
        assert_eq!((gaps[0], gaps[1], gaps.len() as u64), ((3, 15, 3), (20, 20, 1), most));
    }
}
