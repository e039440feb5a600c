//! How large the fragments of an emulated source are.

use super::Random;

/// The distribution of whole FED fragments (header and trailer included), in bytes; always a multiple of 8.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum FragmentSize {
    /// Always the same.
    Fixed(u32),
    /// Every multiple of 8 between the two is equally likely.
    Uniform {
        /// The smallest, at least 16.
        least: u32,
        /// The largest.
        most: u32,
    },
    /// The logarithm is normally distributed, as sizes of real detectors roughly are.
    Lognormal {
        /// The mean of the sizes (not of their logarithms).
        mean: u32,
        /// The deviation of the natural logarithm.
        sigma: f64,
    },
}

impl FragmentSize {
    /// The smallest fragment: header and trailer.
    pub const SMALLEST: u32 = 16;
    /// The largest that an emulated source makes.
    pub const LARGEST: u32 = 1 << 20;

    /// The next size.
    pub fn next(self, random: &mut Random) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { least, most } => least + random.below(u64::from((most - least) / 8 + 1)) as u32 * 8,
            Self::Lognormal { mean, sigma } => {
                let location = f64::from(mean).ln() - sigma * sigma / 2.0;
                let bytes = (location + sigma * random.normal()).exp();
                (bytes.clamp(f64::from(Self::SMALLEST), f64::from(Self::LARGEST)) as u32) & !7
            }
        }
    }

    /// The largest that comes out.
    pub const fn largest(self) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { most, .. } => most,
            Self::Lognormal { .. } => Self::LARGEST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_their_mean_and_their_step() {
        let mut random = Random::new(9, 1);
        for (size, mean) in [
            (FragmentSize::Fixed(2048), 2048.0),
            (FragmentSize::Uniform { least: 1024, most: 4096 }, 2560.0),
            (FragmentSize::Lognormal { mean: 2048, sigma: 0.5 }, 2048.0),
        ] {
            let sizes: Vec<u32> = (0..20_000).map(|_| size.next(&mut random)).collect();
            assert!(sizes.iter().all(|bytes| bytes % 8 == 0 && (16..=size.largest()).contains(bytes)));
            let found = sizes.iter().map(|&bytes| f64::from(bytes)).sum::<f64>() / 20_000.0;
            assert!((found / mean - 1.0).abs() < 0.03, "{size:?}: {found}");
        }
    }
}
