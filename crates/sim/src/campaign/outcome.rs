//! One seed: a run and its verdict, and what a checker says when something does not hold.

use super::cluster::Cluster;
use super::push;
use super::runner::Coverage;
use super::scenario::Scenario;
use super::world::World;
use ropewalk_io::clock::Clock;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;
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
    outcome_of(&mut World::new(scenario))
}

/// The same for a system in which sources push.
pub fn run_push(scenario: push::Scenario) -> Outcome {
    outcome_of(&mut push::World::new(scenario))
}

fn outcome_of(cluster: &mut impl Cluster) -> Outcome {
    let broken = caught(|| cluster.go_on().and_then(|()| cluster.judge()));
    Outcome {
        broken,
        coverage: cluster.coverage().clone(),
        digest: cluster.digest(),
        nanoseconds: cluster.clock().now().as_nanoseconds(),
    }
}

/// What a checker found, or the panic. After a panic only the world's record may be looked at.
fn caught(run: impl FnOnce() -> Result<(), Broken>) -> Option<Broken> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(Broken::new(Checker::Panic, words.unwrap_or_default()))
        }
    }
}

/// Who found it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Checker {
    /// The equations of the ledger, in each machine at every step and for the whole run at its end.
    Ledger,
    /// Every block of every pool comes back.
    Pools,
    /// Credit is neither lost nor made.
    Credits,
    /// No table and no queue grows over its bound.
    Bounds,
    /// Files hold what the sources made, word by word.
    Content,
    /// No key twice after `verify`'s rule, and no key that never was.
    Keys,
    /// Nothing is lost without a cause.
    Loss,
    /// No source is given up that was not silent.
    TimeOut,
    /// Everything comes to its end, within a bound after the last fault.
    Liveness,
    /// No event manager speaks without the lease; an epoch is one event manager's; no node goes back to a lower one.
    Epochs,
    /// A readout unit announces in the order of keys, and begins again only when it is asked to.
    Order,
    /// Sources are masked in the events in which the account says so, and in no others.
    Masks,
    /// Nothing panics.
    Panic,
}

impl Checker {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::Pools => "pools",
            Self::Credits => "credits",
            Self::Bounds => "bounds",
            Self::Content => "content",
            Self::Keys => "keys",
            Self::Loss => "loss",
            Self::TimeOut => "time_out",
            Self::Liveness => "liveness",
            Self::Epochs => "epochs",
            Self::Order => "order",
            Self::Masks => "masks",
            Self::Panic => "panic",
        }
    }
}

impl fmt::Display for Checker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Something that does not hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{checker}: {words}")]
pub struct Broken {
    /// Who found it.
    pub checker: Checker,
    /// What does not hold.
    pub words: String,
}

impl Broken {
    /// Something that does not hold.
    pub fn new(checker: Checker, words: impl Into<String>) -> Self {
        Self { checker, words: words.into() }
    }

    /// An error with these words unless something holds.
    ///
    /// # Errors
    /// The words, where it does not.
    pub fn unless(holds: bool, checker: Checker, words: impl FnOnce() -> String) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self::new(checker, words())) }
    }
}
