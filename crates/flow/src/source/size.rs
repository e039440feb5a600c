//! How large the fragments and chunks of an emulated source are.

use super::Random;

/// The distribution of sizes in bytes.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum SizeDistribution {
    /// Always the same.
    Fixed(u32),
    /// Every size between the two is equally likely.
    Uniform {
        /// The smallest.
        least: u32,
        /// The largest.
        most: u32,
    },
    /// Small ones are the most frequent.
    Exponential {
        /// The mean.
        mean: u32,
    },
    /// The logarithm is normally distributed, as sizes of real detectors roughly are.
    Lognormal {
        /// The mean of the sizes (not of their logarithms).
        mean: u32,
        /// The deviation of the natural logarithm.
        sigma: f64,
    },
}

impl SizeDistribution {
    /// The largest size that comes out, in bytes.
    pub const LARGEST: u32 = 1 << 20;
    /// The smallest whole FED fragment, in bytes: header and trailer.
    pub const SMALLEST_FRAGMENT: u32 = 16;

    /// The next size: any number of bytes.
    pub fn next(self, random: &mut Random) -> u32 {
        self.in_steps(1, random)
    }

    /// The next size of a whole FED fragment: a multiple of 8, at least [`Self::SMALLEST_FRAGMENT`]. So are the sizes
    /// that the distribution names.
    pub fn next_fragment(self, random: &mut Random) -> u32 {
        self.in_steps(8, random).max(Self::SMALLEST_FRAGMENT)
    }

    fn in_steps(self, step: u32, random: &mut Random) -> u32 {
        let bytes = match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { least, most } => {
                let steps = most.saturating_sub(least) / step + 1;
                least + random.below(u64::from(steps)) as u32 * step
            }
            Self::Exponential { mean } => random.exponential(f64::from(mean)) as u32 / step * step,
            Self::Lognormal { mean, sigma } => {
                let location = f64::from(mean).ln() - sigma * sigma / 2.0;
                (location + sigma * random.normal()).exp() as u32 / step * step
            }
        };
        bytes.min(Self::LARGEST)
    }

    /// The largest size that can come out.
    pub const fn largest(self) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { most, .. } => most,
            Self::Exponential { .. } | Self::Lognormal { .. } => Self::LARGEST,
        }
    }

    /// The mean.
    pub fn mean(self) -> f64 {
        match self {
            Self::Fixed(bytes) | Self::Exponential { mean: bytes } | Self::Lognormal { mean: bytes, .. } => {
                f64::from(bytes)
            }
            Self::Uniform { least, most } => (f64::from(least) + f64::from(most)) / 2.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [SizeDistribution; 4] = [
        SizeDistribution::Fixed(2048),
        SizeDistribution::Uniform { least: 1024, most: 4096 },
        SizeDistribution::Exponential { mean: 2048 },
        SizeDistribution::Lognormal { mean: 2048, sigma: 0.5 },
    ];

    fn has_mean(sizes: &[u32], wanted: f64) -> bool {
        let found = sizes.iter().map(|&bytes| f64::from(bytes)).sum::<f64>() / sizes.len() as f64;
        (found / wanted - 1.0).abs() < 0.03
    }

    #[test]
    fn sizes_keep_their_mean() {
        let mut random = Random::new(9, 1);
        for size in SIZES {
            let sizes: Vec<u32> = (0..20_000).map(|_| size.next(&mut random)).collect();
            assert!(has_mean(&sizes, size.mean()) && sizes.iter().all(|&bytes| bytes <= size.largest()), "{size:?}");
            let is_fixed = matches!(size, SizeDistribution::Fixed(_));
            assert_eq!(sizes.iter().any(|bytes| bytes % 8 != 0), !is_fixed, "{size:?}: any number of bytes");
        }
    }

    #[test]
    fn fragments_keep_their_mean_and_their_step() {
        let mut random = Random::new(9, 1);
        for size in SIZES {
            let sizes: Vec<u32> = (0..20_000).map(|_| size.next_fragment(&mut random)).collect();
            assert!(has_mean(&sizes, size.mean()), "{size:?}");
            assert!(sizes.iter().all(|bytes| bytes % 8 == 0 && (16..=size.largest()).contains(bytes)), "{size:?}");
        }
    }
}
