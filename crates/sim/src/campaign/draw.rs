//! Drawing a scenario and its faults from one seed.

use ropewalk_flow::source::Random;
use std::time::Duration;

/// Choices from a seed.
#[derive(Clone, Debug)]
pub(super) struct Draw(Random);

impl Draw {
    /// The choices of this seed; `stream` makes independent ones.
    pub(super) const fn new(seed: u64, stream: u64) -> Self {
        Self(Random::new(seed, stream))
    }

    /// A number below `bound`, which is at least 1.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// A number from `least` to `most`.
    pub(super) const fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True in one of `times` cases.
    pub(super) const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub(super) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    /// A time between two, each order of magnitude as likely as any other.
    pub(super) fn time(&mut self, least: Duration, most: Duration) -> Duration {
        let ratio = (most.as_nanos() as f64 / least.as_nanos().max(1) as f64).max(1.0);
        least.mul_f64(ratio.powf(self.0.unit())).min(most)
    }
}
