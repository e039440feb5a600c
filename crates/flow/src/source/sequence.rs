//! The triggers of an emulated run: when each comes and in which bunch crossing.

use super::Random;
use core::time::Duration;

/// Bunch crossings in an LHC orbit: 0..3563.
pub const ORBIT: u64 = 3564;

/// How often triggers come.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum TriggerRate {
    /// As fast as everybody can.
    Unlimited,
    /// At equal distances.
    Periodic {
        /// Triggers a second.
        hertz: f64,
    },
    /// At random, as collisions come: exponentially distributed distances.
    Poisson {
        /// Triggers a second on average.
        hertz: f64,
    },
}

impl TriggerRate {
    /// Triggers a second on average; none where there is no limit.
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
    /// Its number, from 1.
    pub number: u64,
    /// Its bunch crossing.
    pub bunch_crossing: u16,
    /// When it comes, after the start of the run; zero where the rate is unlimited.
    pub at: Duration,
}

/// The triggers of a run, one after the other. Equal seeds give equal triggers.
#[derive(Clone, Debug)]
pub struct TriggerSequence {
    random: Random,
    rate: TriggerRate,
    issued: u64,
    seconds: f64,
}

impl TriggerSequence {
    /// The sequence of this seed.
    pub const fn new(seed: u64, rate: TriggerRate) -> Self {
        Self { random: Random::new(seed, 0x7219_93e7), rate, issued: 0, seconds: 0.0 }
    }

    /// The next trigger.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
