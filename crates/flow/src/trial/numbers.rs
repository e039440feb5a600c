//! Numbers that should be one more each time, as far as they have bits.

/// A number that lies further back than this has begun anew.
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
}

impl Numbers {
    /// Whether each was one more than the one before.
    pub const fn is_gapless(&self) -> bool {
        self.missing + self.gaps + self.duplicates + self.out_of_order + self.restarts == 0
    }

    /// Takes the next number, of so many bits; says what is wrong with it.
    pub(super) fn add(&mut self, number: u64, bits: u8) -> Option<String> {
        let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
        self.first.get_or_insert(number);
        let Some(last) = self.last else {
            self.last = Some(number);
            return None;
        };
        let (ahead, behind) = (number.wrapping_sub(last) & mask, last.wrapping_sub(number) & mask);
        let wrong = if ahead == 0 {
            self.duplicates += 1;
            return Some(format!("{number} comes again"));
        } else if behind <= MOST_LATE.min(mask / 4) {
            self.out_of_order += 1;
            self.missing = self.missing.saturating_sub(1);
            return Some(format!("{number} comes after {last}"));
        } else if ahead <= mask / 2 {
            self.wraps += u64::from(number < last);
            self.missing += ahead - 1;
            self.gaps += u64::from(ahead > 1);
            (ahead > 1).then(|| format!("{number} comes after {last}: {} missing", ahead - 1))
        } else {
            self.restarts += 1;
            Some(format!("{number} comes after {last}: the counter began anew"))
        };
        self.last = Some(number);
        wrong
    }
}
