//! Pseudo-random numbers: small, seeded, the same on every machine (SplitMix64 by Steele, Lea and Flood).

use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator of its own for part `number` of what this one's seed decides.
    pub(crate) fn part(&self, number: u64) -> Self {
        let mut part = Self { state: self.state ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93) };
        Self { state: part.next() }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability, from 0 to 1. Draws only if it matters, so that a fault that is switched
    /// off does not shift the others.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A duration from `least` to `most`.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let spread = most.saturating_sub(least).as_nanos().min(u128::from(u64::MAX - 1)) as u64;
        if spread == 0 { least } else { least + Duration::from_nanos(self.below(spread + 1)) }
    }

    /// A length from 1 to `length`, one in half of the cases (the hardest cut there is).
    pub(crate) fn cut(&mut self, length: usize) -> usize {
        if self.chance(0.5) { 1.min(length) } else { 1 + self.below(length as u64) as usize }.min(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_parts_differ() {
        let numbers = |mut random: Random| -> Vec<u64> { (0..4).map(|_| random.next()).collect() };
        assert_eq!(numbers(Random::new(7)), numbers(Random::new(7)));
        assert_ne!(numbers(Random::new(7)), numbers(Random::new(8)));
        assert_ne!(numbers(Random::new(7).part(1)), numbers(Random::new(7).part(2)));
    }

    #[test]
    fn chances_and_ranges_hold() {
        let mut random = Random::new(1);
        let hits = (0..10_000).filter(|_| random.chance(0.25)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!random.chance(0.0) && random.chance(1.0));
        for _ in 0..1_000 {
            assert!(random.below(3) < 3);
            assert!((1..=5).contains(&random.cut(5)));
            let (least, most) = (Duration::from_nanos(10), Duration::from_nanos(12));
            assert!((least..=most).contains(&random.between(least, most)));
        }
        assert_eq!(random.below(0), 0);
    }
}
