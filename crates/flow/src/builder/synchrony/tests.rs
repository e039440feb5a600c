//! Sources that slip, and sources that do not: simulated triggers, and a real detector's.

mod clocks;
mod regular;
mod slips;
mod words;

use super::{Change, Config, Observation, SourceConfig, Synchrony, Verdict};
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use ropewalk_terms::{EventKey, SourceId};

/// A small generator of random numbers (SplitMix64): tests must give the same on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// From 0 up to 1.
    pub(super) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }
}

/// The same cases on every machine, every time; `PROPTEST_RNG_SEED` asks for others.
pub(super) fn cases(count: u32) -> ProptestConfig {
    let default = ProptestConfig::with_cases(count);
    let rng_seed = if default.rng_seed == RngSeed::Random { RngSeed::Fixed(843) } else { default.rng_seed };
    ProptestConfig { rng_seed, failure_persistence: None, ..default }
}

/// A trigger as it happened.
#[derive(Copy, Clone, Debug)]
pub(super) struct Trigger {
    pub(super) tag: u32,
    pub(super) bunch_crossing: u16,
    /// In ns.
    pub(super) time: f64,
}

/// Triggers at random times, 10 us apart on average, in an orbit of 3564 crossings of 25 ns.
pub(super) fn random_triggers(seed: u64, count: usize) -> Vec<Trigger> {
    let mut random = Random(seed);
    let mut time = 1e6;
    (0..count as u32)
        .map(|tag| {
            time += 75.0 - 10_000.0 * (1.0 - random.fraction()).ln();
            Trigger { tag, bunch_crossing: ((time / 25.0) as u64 % 3564) as u16, time }
        })
        .collect()
}

/// Which trigger a source's n-th event carries.
pub(super) fn in_step(count: usize) -> Vec<usize> {
    (0..count).collect()
}

/// The source loses `lost` triggers from its event `at` on, and numbers the rest without a gap.
pub(super) fn losing(mut carried: Vec<usize>, at: usize, lost: usize) -> Vec<usize> {
    carried.drain(at..at + lost);
    carried
}

/// The source counts the trigger of its event `at` `more` times too often.
pub(super) fn doubling(mut carried: Vec<usize>, at: usize, more: usize) -> Vec<usize> {
    let trigger = carried[at];
    carried.splice(at..at, core::iter::repeat_n(trigger, more));
    carried
}

/// Sources 0, 1, 2 ... with default keys.
pub(super) fn config(sources: u32) -> Config {
    Config::new((0..sources).map(|source| SourceConfig::new(SourceId(source))))
}

/// Feeds events 0, 1, 2 ... as `row` gives them; the changes that were told.
pub(super) fn feed(
    machine: &mut Synchrony,
    events: usize,
    mut row: impl FnMut(usize) -> Vec<Observation>,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for event in 0..events {
        machine.observe(EventKey::new(0, event as u64), &row(event));
        changes.extend(core::iter::from_fn(|| machine.poll()));
    }
    changes
}

/// The verdicts about a source, with since and at, in the order in which they were told.
pub(super) fn verdicts(changes: &[Change], source: u32) -> Vec<(Verdict, u64, u64)> {
    changes
        .iter()
        .filter(|change| change.source == SourceId(source))
        .map(|change| (change.verdict, change.since.number(), change.at.number()))
        .collect()
}

pub(super) fn machine(config: Config) -> Synchrony {
    Synchrony::new(config).expect("the test's configuration is right")
}
