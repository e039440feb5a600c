//! Choices from a seed, and checks that say what does not hold.

use ropewalk_flow::source::Random;
use std::time::Duration;

/// Choices from a seed.
pub(crate) struct Draw(Random);

impl Draw {
    /// The choices of this seed; `stream` makes independent ones.
    pub(crate) const fn new(seed: u64, stream: u64) -> Self {
        Self(Random::new(seed, stream))
    }

    /// A number below `bound`, which is at least 1.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number from `least` to `most`.
    pub(crate) const fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in one of `times` cases.
    pub(crate) const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub(crate) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    /// A time between two, each order of magnitude as likely as any other.
    pub(crate) fn time(&mut self, least: Duration, most: Duration) -> Duration {
        let ratio = (most.as_nanos() as f64 / least.as_nanos().max(1) as f64).max(1.0);
        least.mul_f64(ratio.powf(self.0.unit())).min(most)
    }
}

/// As many seeds as every test run looks through. `ROPEWALK_INPUTS` sets another number, for a longer look by hand.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("ROPEWALK_INPUTS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// An error with these words unless something holds.
pub(crate) fn unless(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}
