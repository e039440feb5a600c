//! One seed: a run and its verdict.

use super::broken::{Broken, Checker};
use super::coverage::Coverage;
use super::scenario::Scenario;
use super::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What a checker said; nothing where everything holds.
    pub broken: Option<Broken>,
    /// Which faults struck when.
    pub coverage: Coverage,
    /// Mixed from everything that happened: equal for equal histories.
    pub digest: u64,
    /// How long the run took, in nanoseconds of virtual time.
    pub nanoseconds: u64,
}

/// Runs a scenario to its end and judges it.
pub fn run(scenario: Scenario) -> Outcome {
    let mut world = World::new(scenario);
    let broken = judged(&mut world);
    Outcome {
        broken,
        coverage: world.coverage.clone(),
        digest: world.digest(),
        nanoseconds: world.now().as_nanoseconds(),
    }
}

/// Runs a world to its end; what a checker said, or how somebody panicked.
pub(super) fn judged(world: &mut World) -> Option<Broken> {
    // A world that panicked is looked at for its record alone.
    let result = catch_unwind(AssertUnwindSafe(|| world.run().and_then(|()| world.judge())));
    match result {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(Broken::new(Checker::Panic, words.unwrap_or_default()))
        }
    }
}
