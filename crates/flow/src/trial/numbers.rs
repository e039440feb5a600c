//! Numbers that should be one more each time, as far as they have bits.

/// A number that lies further back than this has begun anew; so has any that lies back when none is missing.
const MOST_LATE: u64 = 64;

/// What was seen of such numbers.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// The first one.
    pub first: Option<u64>,
    /// The furthest one.
    pub last: Option<u64>,
    /// How often numbers were passed over.
    pub gaps: u64,
    /// How many were, and did not come later.
    pub missing: u64,
    /// How often the counter went over its end.
    pub wraps: u64,
    /// Numbers that were the same as the one before.
    pub duplicates: u64,
    /// Numbers that came later than they should.
    pub out_of_order: u64,
    /// How often the counter began anew.
    pub restarts: u64,
    /// How much more the one behind `last` should be.
    step: u64,
}

impl Numbers {
    /// Whether each was one more than the one before.
    pub const fn is_gapless(&self) -> bool {
        self.missing + self.gaps + self.duplicates + self.out_of_order + self.restarts == 0
    }

    /// Takes a number that need not be one more than the one before; nothing is wrong with it.
    pub const fn see(&mut self, number: u64) -> Option<String> {
        if self.first.is_none() {
            self.first = Some(number);
        }
        self.last = Some(number);
        None
    }

    /// Takes the next number, of so many bits; says what is wrong with it. The one behind it should be `step` more.
    pub fn add(&mut self, number: u64, bits: u8, step: u64) -> Option<String> {
        let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
        self.first.get_or_insert(number);
        let Some(last) = self.last else {
            (self.last, self.step) = (Some(number), step);
            return None;
        };
        let (ahead, behind) = (number.wrapping_sub(last) & mask, last.wrapping_sub(number) & mask);
        let wrong = if ahead == 0 {
            self.duplicates += 1;
            return Some(format!("{number} comes again"));
        } else if behind <= MOST_LATE.min(mask / 4) && self.missing > 0 {
            self.out_of_order += 1;
            self.missing = self.missing.saturating_sub(1);
            return Some(format!("{number} comes after {last}"));
        } else if ahead >= self.step && ahead <= mask / 2 {
            let missing = ahead - self.step;
            self.wraps += u64::from(number < last);
            self.missing += missing;
            self.gaps += u64::from(missing > 0);
            (missing > 0).then(|| format!("{number} comes after {last}: {missing} missing"))
        } else {
            self.restarts += 1;
            Some(format!("{number} comes after {last}: the counter began anew"))
        };
        (self.last, self.step) = (Some(number), step);
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(numbers: impl IntoIterator<Item = u64>, bits: u8, step: u64) -> [u64; 4] {
        let mut counter = Numbers::default();
        for number in numbers {
            counter.add(number, bits, step);
        }
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
