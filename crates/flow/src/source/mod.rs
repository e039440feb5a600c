//! Emulated front ends: which data a source sends, and when.
//!
//! ```text
//! TriggerSequence (seed) -> trigger n: bunch crossing, time ------+
//! SizeDistribution (seed, source) -> length of fragment n --------+-> FrameMaker: the front end's own frames
//! TriggerGate: all sources of a run stop after the same trigger   |
//!                                                                 +-> felix::EmulatedCard: blocks of many e-links
//! ```
//! Every source runs the same sequence from the same seed, so that all agree on each trigger without communication. A
//! front end with its own connection needs only these types. A link card, which writes blocks of many e-links, has its
//! own module: [`felix`]. So have the sources of packets that carry several events: [`mep`].

pub mod felix;
mod frames;
pub mod mep;

pub use frames::{FrameKind, FrameMaker, Frames, PATTERN, PATTERN_BYTES, Piece};

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

/// Counts the triggers issued to all sources. Once it is closed, no further trigger is issued.
///
/// Sources ask before they advance to a trigger that no source has reached yet. After the veto every source still sends
/// all issued triggers, so that every event can be complete.
#[derive(Debug)]
pub struct TriggerGate {
    issued: AtomicU64,
    limit: u64,
}

const CLOSED: u64 = 1 << 63;

impl TriggerGate {
    /// Creates a gate that closes by itself after `limit` triggers.
    pub const fn new(limit: u64) -> Self {
        Self { issued: AtomicU64::new(0), limit: if limit < CLOSED { limit } else { CLOSED - 1 } }
    }

    /// Requests all triggers up to `number`. Returns the number up to which they are issued.
    pub fn advance_to(&self, number: u64) -> u64 {
        let wanted = number.min(self.limit);
        // Relaxed is sufficient: only the number is exchanged, and no other memory depends on it.
        let mut current = self.issued.load(Ordering::Relaxed);
        while current & CLOSED == 0 && current < wanted {
            match self.issued.compare_exchange_weak(current, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return wanted,
                Err(found) => current = found,
            }
        }
        current & !CLOSED
    }

    /// Applies the veto: issues no more triggers, and returns the last trigger's number.
    pub fn close(&self) -> u64 {
        self.issued.fetch_or(CLOSED, Ordering::Relaxed) & !CLOSED
    }

    /// Returns the number of the last trigger once there will be no further one.
    pub fn last(&self) -> Option<u64> {
        let issued = self.issued.load(Ordering::Relaxed);
        (issued & CLOSED != 0 || issued == self.limit).then_some(issued & !CLOSED)
    }
}

/// Bunch crossings in an LHC orbit: 0..3563.
pub const ORBIT: u64 = 3564;

/// The rate of triggers.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum TriggerRate {
    /// As fast as all sources can.
    Unlimited,
    /// At equal intervals.
    Periodic {
        /// Triggers per second.
        hertz: f64,
    },
    /// At random, like collisions: with exponentially distributed intervals.
    Poisson {
        /// Triggers per second on average.
        hertz: f64,
    },
}

impl TriggerRate {
    /// Returns the triggers per second on average; `None` without a limit.
    pub const fn hertz(self) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            Self::Periodic { hertz } | Self::Poisson { hertz } => Some(hertz),
        }
    }
}

/// One trigger.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trigger {
    /// The number, from 1.
    pub number: u64,
    /// The bunch crossing.
    pub bunch_crossing: u16,
    /// The time after the start of the run; zero if the rate is unlimited.
    pub at: Duration,
}

/// The triggers of a run, in order. Equal seeds give equal triggers.
#[derive(Clone, Debug)]
pub struct TriggerSequence {
    random: Random,
    rate: TriggerRate,
    issued: u64,
    seconds: f64,
}

impl TriggerSequence {
    /// Creates the sequence of this seed.
    pub const fn new(seed: u64, rate: TriggerRate) -> Self {
        Self { random: Random::new(seed, 0x7219_93e7), rate, issued: 0, seconds: 0.0 }
    }

    /// Returns the next trigger.
    pub fn next_trigger(&mut self) -> Trigger {
        self.issued += 1;
        let bunch_crossing = self.random.below(ORBIT) as u16;
        self.seconds += match self.rate {
            TriggerRate::Unlimited => 0.0,
            TriggerRate::Periodic { hertz } => 1.0 / hertz,
            TriggerRate::Poisson { hertz } => self.random.exponential(1.0 / hertz),
        };
        Trigger { number: self.issued, bunch_crossing, at: Duration::from_secs_f64(self.seconds) }
    }
}

/// A distribution of sizes in bytes.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum SizeDistribution {
    /// A constant size.
    Fixed(u32),
    /// Every size between the two is equally likely.
    Uniform {
        /// The smallest size.
        least: u32,
        /// The largest size.
        most: u32,
    },
    /// Small ones are the most frequent.
    Exponential {
        /// The mean.
        mean: u32,
    },
    /// The logarithm is normally distributed, roughly like the sizes of real detectors.
    Lognormal {
        /// The mean of the sizes (not of their logarithms).
        mean: u32,
        /// The deviation of the natural logarithm.
        sigma: f64,
    },
}

impl SizeDistribution {
    /// The largest possible size, in bytes.
    pub const LARGEST: u32 = 1 << 20;
    /// The smallest whole FED fragment, in bytes: header and trailer.
    pub const SMALLEST_FRAGMENT: u32 = 16;

    /// Returns the next size: any number of bytes.
    pub fn next(self, random: &mut Random) -> u32 {
        self.in_steps(1, random)
    }

    /// Returns the next size of a whole FED fragment: a multiple of 8, at least [`Self::SMALLEST_FRAGMENT`]. The
    /// distribution's parameters refer to whole fragments, too.
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

    /// Returns the largest possible size.
    pub const fn largest(self) -> u32 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { most, .. } => most,
            Self::Exponential { .. } | Self::Lognormal { .. } => Self::LARGEST,
        }
    }

    /// Returns the mean size.
    pub fn mean(self) -> f64 {
        match self {
            Self::Fixed(bytes) | Self::Exponential { mean: bytes } | Self::Lognormal { mean: bytes, .. } => {
                f64::from(bytes)
            }
            Self::Uniform { least, most } => (f64::from(least) + f64::from(most)) / 2.0,
        }
    }
}

/// A distribution of durations.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum TimeDistribution {
    /// A constant duration.
    Fixed(Duration),
    /// Every time between the two is equally likely.
    Uniform {
        /// The shortest duration.
        least: Duration,
        /// The longest duration.
        most: Duration,
    },
    /// Short ones are the most frequent, as for work that may end at any moment.
    Exponential {
        /// The mean.
        mean: Duration,
    },
    /// The logarithm is normally distributed: a few durations are very long, as for filters.
    Lognormal {
        /// The mean of the times (not of their logarithms).
        mean: Duration,
        /// The deviation of the natural logarithm.
        sigma: f64,
    },
}

impl TimeDistribution {
    /// A century: 64 bits of nanoseconds hold a few times that, so that sums cannot overflow.
    pub const MOST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

    /// Returns the next duration, at most [`Self::MOST`].
    pub fn next(self, random: &mut Random) -> Duration {
        match self {
            Self::Fixed(time) => time,
            Self::Uniform { least, most } => least + (most - least).mul_f64(random.unit()),
            Self::Exponential { mean } => bounded(random.exponential(mean.as_secs_f64())),
            Self::Lognormal { mean, sigma } => {
                bounded(mean.as_secs_f64() * (sigma * random.normal() - sigma * sigma / 2.0).exp())
            }
        }
    }

    /// Returns the mean duration.
    pub fn mean(self) -> Duration {
        match self {
            Self::Fixed(time) => time,
            Self::Uniform { least, most } => (least + most) / 2,
            Self::Exponential { mean } | Self::Lognormal { mean, .. } => mean,
        }
    }
}

/// Limits a duration to [`TimeDistribution::MOST`].
fn bounded(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.min(TimeDistribution::MOST.as_secs_f64()))
}

/// Pseudo-random numbers from a seed. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the generator of this seed; `stream` selects independent generators of the same seed.
    pub const fn new(seed: u64, stream: u64) -> Self {
        Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Returns the next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in 0..`bound`; `bound` is at least 1.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns a number in `least..=most`.
    pub const fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns true in one of `times` cases.
    pub const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the choices; there must be at least one.
    pub fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    /// Returns a duration between two, with each order of magnitude equally likely.
    pub fn time(&mut self, least: Duration, most: Duration) -> Duration {
        let ratio = (most.as_nanos() as f64 / least.as_nanos().max(1) as f64).max(1.0);
        least.mul_f64(ratio.powf(self.unit())).min(most)
    }

    /// Returns a number in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an exponentially distributed number with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// Returns a normally distributed number with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (core::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issues_up_to_its_limit() {
        let gate = TriggerGate::new(10);
        assert_eq!(gate.advance_to(4), 4);
        assert_eq!(gate.advance_to(2), 4);
        assert_eq!(gate.last(), None);
        assert_eq!(gate.advance_to(64), 10);
        assert_eq!(gate.last(), Some(10));
    }

    #[test]
    fn issues_nothing_after_the_veto() {
        let gate = TriggerGate::new(u64::MAX);
        gate.advance_to(7);
        assert_eq!(gate.close(), 7);
        assert_eq!(gate.advance_to(8), 7);
        assert_eq!(gate.last(), Some(7));
    }

    #[test]
    fn equal_seeds_give_equal_triggers_at_the_rate() {
        let rate = TriggerRate::Poisson { hertz: 1000.0 };
        let (mut one, mut two) = (TriggerSequence::new(5, rate), TriggerSequence::new(5, rate));
        let mut last = Duration::ZERO;
        for number in 1..=10_000 {
            let trigger = one.next_trigger();
            assert_eq!(trigger, two.next_trigger());
            assert_eq!(trigger.number, number);
            assert!(u64::from(trigger.bunch_crossing) < ORBIT && trigger.at >= last);
            last = trigger.at;
        }
        assert!((9.0..11.0).contains(&last.as_secs_f64()), "{last:?}");
    }

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
