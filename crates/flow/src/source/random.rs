//! A small generator of pseudo-random numbers (SplitMix64, Steele, Lea and Flood 2014): one seed, the same numbers.

/// Pseudo-random numbers from a seed. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of this seed; `stream` makes independent ones of the same seed.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in 0..`bound`; `bound` is at least 1.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// A number in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// An exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// A normally distributed number with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (core::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_what_they_say() {
        let mut random = Random::new(1, 2);
        let count = 20_000;
        let mean = |total: f64| total / f64::from(count);
        assert!((mean((0..count).map(|_| random.unit()).sum()) - 0.5).abs() < 0.02);
        assert!((mean((0..count).map(|_| random.exponential(3.0)).sum()) - 3.0).abs() < 0.15);
        assert!(mean((0..count).map(|_| random.normal()).sum()).abs() < 0.05);
        assert!((0..count).all(|_| random.below(7) < 7));
    }
}
