//! The order of frames by their own numbers: missing, late and repeated frames, and restarts of the numbering.
//!
//! A gap counts as missing at once. A frame that comes later and fills it is subtracted again. If the source continues
//! from before a large gap, the number that showed the gap was wrong, and nothing is missing.

use super::described::FrameCounts;
use core::time::Duration;
use ropewalk_terms::Instant;

/// The longest gap that counts as lost frames, in numbers. A source with a longer one has restarted its numbering.
const LONGEST_GAP: i64 = 1 << 20;
/// Number of recent gaps that are remembered: a frame that fills one of them is no longer missing.
const GAPS: usize = 16;
/// Frames overtake each other by fewer places than this. If the source goes back into a longer gap, the gap came from a
/// wrong number.
const OVERTAKEN: u64 = 16;

/// A range of numbers that did not come.
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
    /// Number of bits that a 64-bit number has beyond the frame's.
    unused: u32,
    last: Option<u64>,
    /// The number of the last frame, if that was out of order.
    strayed: Option<u64>,
    /// The number of the last frame, if that was the first one after a large gap.
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
            // Two frames that continue each other, and not the earlier ones: the numbering restarted.
            counts.restarts += 1;
            counts.take_back_out_of_order();
            counts.take_back_out_of_order();
            (self.last, self.strayed) = (Some(number), None);
            self.gaps.clear();
        } else {
            self.strayed = Some(number);
        }
    }

    /// Handles a number that was missing.
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
                // The second frame in a row from the start of the gap: there is no gap, and one earlier number was
                // wrong.
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

/// An entry that waits for the entries that it overtook.
#[derive(Debug)]
struct Ahead<T> {
    number: u64,
    came: Instant,
    /// The expected number when it came.
    next: Option<u64>,
    /// Number of entries that it overtook.
    overtook: u64,
    what: T,
}

/// Puts datagrams that overtook each other back in the order of their numbers.
///
/// ```text
///   put(number) --> the next one: continues, and then the ones that waited for it
///               \-> ahead: waits until those between have come, until too many wait, or until its time is over
///               \-> behind: continues as it is, late or a repetition
/// ```
#[derive(Debug)]
pub(super) struct Reorder<T> {
    /// Number of bits that a 64-bit number has beyond these.
    unused: u32,
    most: usize,
    timeout: Duration,
    /// The expected number; `None` before the first one, which may be any.
    next: Option<u64>,
    /// The number that would continue the last one, if that was behind.
    after_stray: Option<u64>,
    /// Waiting entries, in the order of their numbers.
    ahead: Vec<Ahead<T>>,
    /// Whether all waiting entries are released: the numbering restarted, or the input has ended.
    is_flushing: bool,
    overtaken: u64,
}

impl<T> Reorder<T> {
    /// Creates the order for numbers of `bits` bits: at most `most` entries wait at a time, each for at most `timeout`.
    pub(super) fn new(bits: u8, most: usize, timeout: Duration) -> Self {
        Self {
            unused: 64 - u32::from(bits.clamp(1, 64)),
            most,
            timeout,
            next: None,
            after_stray: None,
            ahead: Vec::with_capacity(most + 1),
            is_flushing: false,
            overtaken: 0,
        }
    }

    fn distance(&self, from: u64, to: u64) -> i64 {
        (to.wrapping_sub(from) << self.unused) as i64 >> self.unused
    }

    /// Whether this is the expected number and nothing waits, so that its entry need not be put in.
    #[inline]
    pub(super) fn is_next(&self, number: u64) -> bool {
        self.ahead.is_empty() && self.next.is_some_and(|next| self.distance(next, number) == 0)
    }

    /// Notes that numbers up to this one were released.
    #[inline]
    pub(super) const fn pass(&mut self, last: u64) {
        self.next = Some(last.wrapping_add(1));
        self.after_stray = None;
    }

    /// Puts an entry with this number in. An entry that is behind is returned and continues at once. [`Reorder::pop`]
    /// returns the others in order.
    pub(super) fn put(&mut self, now: Instant, number: u64, what: T) -> Option<T> {
        if let Some(next) = self.next
            && self.distance(next, number) < 0
        {
            // Two numbers that continue each other: the numbering restarted, or one number ahead was wrong.
            if self.after_stray.is_some_and(|after| self.distance(after, number) == 0) {
                self.pass(number);
                self.flush();
            } else {
                self.after_stray = Some(number.wrapping_add(1));
            }
            return Some(what);
        }
        let base = self.next.or_else(|| self.ahead.first().map(|first| first.number)).unwrap_or(number);
        let at = self.ahead.partition_point(|one| self.distance(base, one.number) <= self.distance(base, number));
        if let Some(behind) = self.ahead.get_mut(at) {
            behind.overtook += 1;
        }
        self.ahead.insert(at, Ahead { number, came: now, next: self.next, overtook: 0, what });
        None
    }

    /// Returns the next released entry with its number. `now` says that everything that arrived until then was put in;
    /// with `None` more entries may still follow.
    pub(super) fn pop(&mut self, now: Option<Instant>) -> Option<(u64, T)> {
        let first = self.ahead.first()?.number;
        let is_in_order = self.next.is_some_and(|next| self.distance(next, first) <= 0);
        let is_full = self.ahead.len() > self.most;
        let is_over = |one: &Ahead<T>| is_full || now.is_some_and(|now| now >= one.came.after(self.timeout));
        let (at, is_right) = if is_in_order || self.is_flushing {
            (0, true)
        } else if let Some(wrong) = self.ahead.iter().position(|one| is_over(one) && self.is_wrong(one)) {
            (wrong, false)
        } else {
            (self.ahead.iter().any(is_over).then_some(0)?, true)
        };
        let one = self.ahead.remove(at);
        if is_right {
            self.overtaken += one.overtook;
            if !self.is_flushing && self.next.is_none_or(|next| self.distance(next, first) >= 0) {
                self.pass(first);
            }
        }
        self.is_flushing &= !self.ahead.is_empty();
        Some((one.number, one.what))
    }

    /// Whether a number is far ahead although others have continued since it came. It is then no evidence of the
    /// expected number, and overtook nothing.
    fn is_wrong(&self, one: &Ahead<T>) -> bool {
        one.next != self.next && self.next.is_some_and(|next| self.distance(next, one.number) > self.most as i64)
    }

    /// Releases all entries at the end of the input.
    pub(super) const fn flush(&mut self) {
        self.is_flushing = !self.ahead.is_empty();
    }

    /// Returns when an entry has waited long enough.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.ahead.iter().map(|one| one.came.after(self.timeout)).min()
    }

    /// Drops the waiting entries. Returns how many there were.
    pub(super) fn clear(&mut self) -> usize {
        let waiting = self.ahead.len();
        self.ahead.clear();
        waiting
    }

    /// Returns how many entries were overtaken and put in order since the last call.
    pub(super) const fn take_overtaken(&mut self) -> u64 {
        core::mem::replace(&mut self.overtaken, 0)
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
    fn gaps_repetitions_and_restarts_of_the_numbering_are_distinguished() {
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
    fn a_frame_that_was_reported_out_of_order_and_began_the_numbering_anew_is_forgiven() {
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
        fn all_missing_numbers_are_counted(bits in 8u8..=64, first: u64, gaps in proptest::collection::vec(1u64..20, 1..50)) {
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

    const TIMEOUT: Duration = Duration::from_millis(5);

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(milliseconds))
    }

    /// Puts a number in, and appends the released ones.
    fn step(reorder: &mut Reorder<u64>, now: Instant, number: u64, out: &mut Vec<u64>) {
        if reorder.is_next(number) {
            reorder.pass(number);
            out.push(number);
        } else {
            out.extend(reorder.put(now, number, number));
            out.extend(core::iter::from_fn(|| reorder.pop(Some(now))).map(|(_, what)| what));
        }
    }

    /// Returns the released numbers of a sequence at intervals of a millisecond, up to the time-out and the end.
    fn reordered(bits: u8, numbers: &[u64]) -> (Vec<u64>, u64) {
        let (mut reorder, mut out) = (Reorder::new(bits, 4, TIMEOUT), Vec::new());
        for (&number, time) in numbers.iter().zip(0..) {
            step(&mut reorder, at(time), number, &mut out);
        }
        reorder.flush();
        out.extend(core::iter::from_fn(|| reorder.pop(None)).map(|(_, what)| what));
        assert_eq!(reorder.ahead.len(), 0);
        (out, reorder.take_overtaken())
    }

    #[test]
    fn what_was_overtaken_by_a_few_is_put_in_its_place() {
        assert_eq!(reordered(32, &[9, 10, 13, 11, 12, 14]), ((9..=14).collect(), 2));
        assert_eq!(reordered(8, &[254, 0, 255, 1]), (vec![254, 255, 0, 1], 1), "where they wrap");
        assert_eq!(reordered(32, &[3, 1, 2, 4, 5, 6, 7]), ((1..=7).collect(), 2), "at the start");
    }

    #[test]
    fn what_is_lost_is_waited_for_so_long_and_for_so_many() {
        assert_eq!(reordered(32, &[1, 2, 4, 5, 6, 7, 8, 9]).0, [1, 2, 4, 5, 6, 7, 8, 9]);
        let (mut reorder, mut out) = (Reorder::new(32, 4, TIMEOUT), Vec::new());
        for (time, number) in [(0, 1), (5, 2), (6, 4)] {
            step(&mut reorder, at(time), number, &mut out);
        }
        assert_eq!((reorder.next_deadline(), reorder.pop(Some(at(10)))), (Some(at(11)), None));
        assert_eq!(reorder.pop(Some(at(11))), Some((4, 4)));
        assert!(reorder.is_next(5));
        assert_eq!(reorder.put(at(12), 3, 3), Some(3), "too late, it goes on as it is");
    }

    #[test]
    fn repetitions_restarts_and_wrong_numbers_hold_nothing_up() {
        assert_eq!(reordered(32, &[1, 2, 3, 4, 5, 6, 6, 7, 3, 8]).0, [1, 2, 3, 4, 5, 6, 6, 7, 3, 8]);
        assert_eq!(reordered(32, &[91, 92, 93, 94, 95, 96, 1, 2, 3, 5, 4]).0, [91, 92, 93, 94, 95, 96, 1, 2, 3, 4, 5]);
        let wrong: Vec<u64> = [1, 2, 3, 4, 5, 6, 1 << 20].into_iter().chain(7..40).collect();
        let (out, overtaken) = reordered(32, &wrong);
        assert!(out.iter().filter(|&&number| number < 40).is_sorted(), "{out:?}");
        assert_eq!((out.len(), overtaken), (40, 0));
    }

    #[test]
    fn a_wrong_number_ahead_does_not_disturb_the_order_of_others() {
        for wrong in [30, 1 << 20, 1 << 30] {
            let numbers = [1, 2, wrong, 3, 4, 5, 8, 7, 6, 9, 12, 10, 11, 13];
            let (out, overtaken) = reordered(32, &numbers);
            let others: Vec<u64> = out.iter().copied().filter(|&number| number != wrong).collect();
            assert_eq!((others, out.len(), overtaken), ((1..=13).collect(), 14, 4), "{wrong}: {out:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_waits_for_longer(numbers in proptest::collection::vec((0u64..60, 0u64..4), 1..200), bits in 5u8..12) {
            let (mut reorder, mut out, mut now) = (Reorder::new(bits, 4, TIMEOUT), Vec::new(), at(0));
            for &(number, wait) in &numbers {
                now = now.after(Duration::from_millis(wait));
                step(&mut reorder, now, number, &mut out);
                prop_assert!(reorder.ahead.len() <= 4);
                prop_assert!(reorder.next_deadline().is_none_or(|due| due > now));
            }
            reorder.flush();
            out.extend(core::iter::from_fn(|| reorder.pop(Some(now))).map(|(_, what)| what));
            let mut sent: Vec<u64> = numbers.iter().map(|(number, _)| *number).collect();
            sent.sort_unstable();
            out.sort_unstable();
            prop_assert_eq!(sent, out);
        }

        /// Datagrams that overtake each other by no more places than may wait come out in order.
        #[test]
        fn a_shuffle_within_the_window_is_undone(first in 0u64..1 << 20, places in proptest::collection::vec(0usize..4, 100), bits in 8u8..=64) {
            let mut order_of: Vec<usize> = (0..places.len()).collect();
            order_of.sort_by_key(|&index| index + places[index]);
            let mask = u64::MAX >> (64 - bits);
            let (mut reorder, mut out) = (Reorder::new(bits, 8, TIMEOUT), Vec::new());
            for index in order_of {
                step(&mut reorder, at(0), (first + index as u64) & mask, &mut out);
            }
            reorder.flush();
            out.extend(core::iter::from_fn(|| reorder.pop(None)).map(|(_, what)| what));
            prop_assert_eq!(out, (0..places.len() as u64).map(|index| (first + index) & mask).collect::<Vec<_>>());
        }
    }
}
