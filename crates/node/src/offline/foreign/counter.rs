//! Numbers that should be one more each time, as far as they have bits.

/// What was seen of such a number.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Counter {
    last: Option<(u64, u64)>,
    /// Numbers that were passed over and did not come later.
    pub(super) missing: u64,
    /// Numbers that were the same as the one before.
    pub(super) duplicates: u64,
    /// Numbers that came later than they should, a few at most.
    pub(super) out_of_order: u64,
    /// How often it began anew.
    pub(super) restarts: u64,
}

/// A number that lies further back than this has begun anew; so has any that lies back when none is missing.
const MOST_LATE: u64 = 64;

impl Counter {
    /// Takes the next number, of so many bits. The one behind it should be `step` more.
    pub(super) fn add(&mut self, number: u64, bits: u8, step: u64) {
        let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
        if let Some((last, step)) = self.last {
            let ahead = number.wrapping_sub(last) & mask;
            let behind = last.wrapping_sub(number) & mask;
            if ahead == 0 {
                self.duplicates += 1;
            } else if ahead >= step && ahead <= mask / 2 {
                self.missing += ahead - step;
            } else if behind <= MOST_LATE.min(mask / 4) && self.missing > 0 {
                self.out_of_order += 1;
                self.missing = self.missing.saturating_sub(1);
                return;
            } else {
                self.restarts += 1;
            }
        }
        self.last = Some((number, step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(numbers: impl IntoIterator<Item = u64>, bits: u8, step: u64) -> [u64; 4] {
        let mut counter = Counter::default();
        numbers.into_iter().for_each(|number| counter.add(number, bits, step));
        [counter.missing, counter.duplicates, counter.out_of_order, counter.restarts]
    }

    #[test]
    fn a_number_that_goes_on_over_its_end_misses_nothing() {
        assert_eq!(counted((250..520).map(|number| number % 256), 8, 1), [0; 4]);
        assert_eq!(counted([u64::MAX - 1, u64::MAX, 0, 1], 64, 1), [0; 4]);
        assert_eq!(counted((0..40).map(|number| 4 * number % 64), 6, 4), [0; 4]);
    }

    #[test]
    fn what_is_missing_twice_late_or_anew_is_told_apart() {
        assert_eq!(counted([1, 2, 6, 7], 32, 1), [3, 0, 0, 0]);
        assert_eq!(counted([1, 2, 2, 3], 32, 1), [0, 1, 0, 0]);
        assert_eq!(counted([1, 3, 2, 4], 32, 1), [0, 0, 1, 0]);
        assert_eq!(counted([1000, 1001, 0, 1, 2], 32, 1), [0, 0, 0, 1]);
        assert_eq!(counted([39, 0, 1, 2], 32, 1), [0, 0, 0, 1]);
        assert_eq!(counted([0, 4, 12], 32, 4), [4, 0, 0, 0]);
    }
}
