//! The order of frames by their own numbers: what is missing, what came late or twice, and where the numbering begins anew.
//!
//! A gap counts as missing at once. A frame that comes later and fills it takes its count back. Where the source goes on from before
//! a large gap, the number that showed the gap was wrong, and nothing is missing.

use super::described::FrameCounts;

/// A source that leaves out more numbers than this has lost no frames, but begun anew.
const LONGEST_GAP: i64 = 1 << 20;
/// So many gaps, the last ones, are remembered: a frame that fills one of them is not missing any more.
const GAPS: usize = 16;
/// Frames overtake each other by fewer places than this: a gap that is longer, and into which the source goes back, is none.
const OVERTAKEN: u64 = 16;

/// Numbers that did not come.
#[derive(Copy, Clone, Debug)]
struct Gap {
    first: u64,
    count: u64,
}

impl Gap {
    const fn holds(&self, number: u64, mask: u64) -> bool {
        number.wrapping_sub(self.first) & mask < self.count
    }
}

/// The order of frames by their own numbers.
#[derive(Debug)]
pub(super) struct Order {
    /// Bits that a 64-bit number has beyond the frame's.
    unused: u32,
    last: Option<u64>,
    /// The last frame was out of order and had this number.
    strayed: Option<u64>,
    /// The last frame was the first one of a large gap and had this number.
    resumed: Option<u64>,
    /// At most [`GAPS`].
    gaps: Vec<Gap>,
}

impl Order {
    pub(super) fn new(bits: u8) -> Self {
        let unused = 64 - u32::from(bits.clamp(1, 64));
        Self { unused, last: None, strayed: None, resumed: None, gaps: Vec::with_capacity(GAPS) }
    }

    fn distance(&self, from: u64, to: u64) -> i64 {
        (to.wrapping_sub(from) << self.unused) as i64 >> self.unused
    }

    fn mask(&self) -> u64 {
        u64::MAX >> self.unused
    }

    #[inline]
    pub(super) fn look_at(&mut self, number: u64, counts: &mut FrameCounts) {
        let step = self.last.map_or(1, |last| self.distance(last, number));
        if step == 1 {
            (self.last, self.strayed, self.resumed) = (Some(number), None, None);
        } else {
            self.look_closer(number, step, counts);
        }
    }

    #[cold]
    fn look_closer(&mut self, number: u64, step: i64, counts: &mut FrameCounts) {
        if (2..=LONGEST_GAP).contains(&step) {
            let first = self.last.unwrap_or(number).wrapping_add(1) & self.mask();
            counts.missing += step as u64 - 1;
            self.add_gap(Gap { first, count: step as u64 - 1 });
            (self.last, self.strayed, self.resumed) = (Some(number), None, None);
            return;
        }
        counts.out_of_order += 1;
        let gap = self.gaps.iter().position(|gap| gap.holds(number, self.mask()));
        if let Some(index) = gap {
            counts.found += 1;
            self.fill(index, number, counts);
        } else if self.strayed.is_some_and(|strayed| self.distance(strayed, number) == 1) {
            // Two that go on from each other, and not from what was before: the source counts anew.
            counts.restarts += 1;
            counts.take_back_out_of_order();
            counts.take_back_out_of_order();
            (self.last, self.strayed) = (Some(number), None);
            self.gaps.clear();
        } else {
            self.strayed = Some(number);
        }
    }

    /// A number that was missing came.
    fn fill(&mut self, index: usize, number: u64, counts: &mut FrameCounts) {
        let (gap, mask) = (self.gaps[index], self.mask());
        let before = number.wrapping_sub(gap.first) & mask;
        let behind = Gap { first: number.wrapping_add(1) & mask, count: gap.count - before - 1 };
        self.gaps[index].count = before;
        let is_newest = index + 1 == self.gaps.len();
        self.add_gap(behind);
        self.gaps.retain(|gap| gap.count > 0);
        let is_resumed = self.resumed.is_some_and(|resumed| self.distance(resumed, number) == 1);
        self.resumed = None;
        if before == 0 && is_newest && behind.count > OVERTAKEN {
            if is_resumed {
                // The second one in a row from where the gap began: there is no gap, and one number was wrong instead of these two.
                counts.found += self.gaps.pop().map_or(0, |gap| gap.count);
                counts.take_back_out_of_order();
                self.last = Some(number);
            } else {
                self.resumed = Some(number);
            }
        }
    }

    fn add_gap(&mut self, gap: Gap) {
        if self.gaps.len() == GAPS {
            self.gaps.remove(0);
        }
        self.gaps.push(gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(bits: u8, numbers: &[u64]) -> FrameCounts {
        let (mut order, mut counts) = (Order::new(bits), FrameCounts::default());
        numbers.iter().for_each(|&number| order.look_at(number, &mut counts));
        counts
    }

    /// How many frames are missing in the end, and how many were out of order.
    fn in_the_end(bits: u8, numbers: &[u64]) -> (u64, u64) {
        let counts = order(bits, numbers);
        (counts.missing - counts.found, counts.out_of_order)
    }

    #[test]
    fn gaps_repetitions_and_restarts_of_the_numbering_are_told_apart() {
        let none = FrameCounts::default();
        assert_eq!(order(32, &[943_997, 943_998, 943_999]), none, "the first one may be any");
        assert_eq!(order(8, &[254, 255, 0, 1]), none, "it wraps");
        assert_eq!(order(32, &[5, 6, 10, 11]), FrameCounts { missing: 3, ..none });
        assert_eq!(order(8, &[250, 2]), FrameCounts { missing: 7, ..none });
        assert_eq!(order(32, &[5, 6, 6, 7]), FrameCounts { out_of_order: 1, ..none }, "it came twice");
        assert_eq!(order(32, &[5000, 5001, 0, 1, 2]), FrameCounts { restarts: 1, ..none }, "the board was restarted");
        assert_eq!(order(32, &[5, 1 << 30, (1 << 30) + 1]), FrameCounts { restarts: 1, ..none });
    }

    #[test]
    fn a_frame_that_comes_late_is_not_missing() {
        assert_eq!(in_the_end(32, &[5, 7, 8, 6, 9]), (0, 1));
        assert_eq!(in_the_end(32, &[5, 9, 10, 8, 6, 7, 11]), (0, 3));
        assert_eq!(in_the_end(8, &[254, 2, 3, 0, 4]), (2, 1), "255 and 1 are missing");
        assert_eq!(in_the_end(32, &[5, 8, 9, 7, 7, 10]), (1, 2), "the second time it is a repetition");
    }

    #[test]
    fn a_wrong_number_claims_no_loss() {
        assert_eq!(in_the_end(32, &[5, 6, 70_000, 7, 8, 9]), (0, 1));
        assert_eq!(in_the_end(32, &[5, 6, 2, 7, 8, 9]), (0, 1));
        assert_eq!(in_the_end(16, &[5, 6, 9, 7, 8, 9]), (0, 3), "near by it may have overtaken the others");
    }

    #[test]
    fn a_frame_that_was_told_as_out_of_order_and_began_the_numbering_anew_is_forgiven() {
        let (mut order, mut counts) = (Order::new(8), FrameCounts::default());
        [7, 200].iter().for_each(|&number| order.look_at(number, &mut counts));
        let told = std::mem::take(&mut counts);
        order.look_at(201, &mut counts);
        assert_eq!(
            (told.out_of_order, counts),
            (1, FrameCounts { restarts: 1, forgiven: 1, ..FrameCounts::default() })
        );
    }

    proptest! {
        #[test]
        fn whatever_is_missing_is_counted(bits in 8u8..=64, first: u64, gaps in proptest::collection::vec(1u64..20, 1..50)) {
            let mask = u64::MAX >> (64 - bits);
            let mut number = first & mask;
            let mut numbers = vec![number];
            for gap in &gaps {
                number = number.wrapping_add(*gap) & mask;
                numbers.push(number);
            }
            let counts = order(bits, &numbers);
            prop_assert_eq!(counts, FrameCounts { missing: gaps.iter().sum::<u64>() - gaps.len() as u64, ..FrameCounts::default() });
        }

        /// Frames that overtake each other by a few places, and lose some: only these are missing.
        #[test]
        fn what_overtakes_is_not_taken_for_lost(
            bits in 12u8..=64, first: u64, lost in proptest::collection::btree_set(1u64..98, 0..10),
            swaps in proptest::collection::vec((1usize..80, 1usize..4), 0..6),
        ) {
            let mask = u64::MAX >> (64 - bits);
            let mut sent: Vec<u64> = (0..100).filter(|index| !lost.contains(index)).collect();
            for (from, places) in swaps {
                let one = sent.remove(from);
                sent.insert(from + places, one);
            }
            let numbers: Vec<u64> = sent.iter().map(|index| first.wrapping_add(*index) & mask).collect();
            let (missing, _) = in_the_end(bits, &numbers);
            prop_assert_eq!(missing, lost.len() as u64, "{:?}", sent);
        }
    }
}
