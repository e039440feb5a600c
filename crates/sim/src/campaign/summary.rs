//! The JSON report of a campaign.

use super::broken::Checker;
use super::runner::{Campaign, Failure, SystemKind};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The report of a campaign.
// Members stand in the order in which they are printed: that of their names.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "What a fault campaign found: the last line of `ropewalk simulate --campaign N --json`")]
pub struct Summary<'a> {
    /// How often each fault struck in each situation: fault, then situation.
    coverage: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Digest of all events of the campaign, 16 hexadecimal digits; the same for the same seeds and program.
    #[schemars(extend("pattern" = "^[0-9a-f]{16}$"))]
    digest: String,
    /// Seeds that failed. The campaign ends after ten.
    failures: Vec<FailedSeed<'a>>,
    /// The first seed.
    first_seed: u64,
    /// Faults that never struck in a situation in which they could.
    missed: Vec<Missed>,
    /// The form's name and version.
    #[schemars(extend("const" = Campaign::SCHEMA))]
    schema: &'static str,
    /// How many seeds were run.
    seeds: u64,
    /// Virtual time of all runs together, in seconds.
    #[schemars(range(min = 0))]
    virtual_seconds: f64,
}

/// A seed for which something did not hold.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailedSeed<'a> {
    /// The checker that found it.
    checker: Checker,
    /// The faults of the run, as few as the same checker fires with.
    faults: Vec<String>,
    /// The command that replays it.
    replay: String,
    /// The seed.
    seed: u64,
    /// The system of the seed that failed: each seed is one of either kind.
    system: SystemKind,
    /// What does not hold.
    words: &'a str,
}

/// A fault that did not strike in a situation in which it could.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Missed {
    /// The name of the fault.
    fault: &'static str,
    /// The name of the situation.
    situation: &'static str,
}

impl Campaign {
    /// The name and version of the form of a [`Summary`].
    pub const SCHEMA: &'static str = "ropewalk-simulate-1";

    /// The summary for programs.
    pub fn summary(&self) -> Summary<'_> {
        let missed = self.coverage.missed().into_iter();
        let missed = missed.map(|(fault, situation)| Missed { fault: fault.name(), situation: situation.name() });
        Summary {
            coverage: self.coverage.by_name(),
            digest: format!("{:016x}", self.digest),
            failures: self.failures.iter().map(FailedSeed::new).collect(),
            first_seed: self.first,
            missed: missed.collect(),
            schema: Self::SCHEMA,
            seeds: self.seeds,
            virtual_seconds: self.nanoseconds as f64 / 1e9,
        }
    }
}

impl<'a> FailedSeed<'a> {
    fn new(failure: &'a Failure) -> Self {
        Self {
            checker: failure.broken.checker,
            faults: failure.small.faults(),
            replay: failure.replay(),
            seed: failure.seed,
            system: failure.small.kind(),
            words: &failure.broken.words,
        }
    }
}
