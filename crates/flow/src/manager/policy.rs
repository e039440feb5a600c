//! Which builder unit gets the next events: pure functions of the builders' loads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which builder unit gets the next events, among those that have credit.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AssignPolicy {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest events in work.
    #[default]
    LeastLoaded,
    /// The one with the most free memory.
    FreeBytes,
}

/// What a policy knows about a builder unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BuilderLoad {
    /// Its index.
    pub builder: u16,
    /// Events assigned to it and not acknowledged.
    pub in_work: u32,
    /// Bytes that it can still be assigned.
    pub free_bytes: u64,
}

impl AssignPolicy {
    /// The builder to be given the next events, or none where `candidates` is empty. Among equals it is the
    /// turn of the first after `last`, who was chosen before.
    pub fn choose(self, last: Option<u16>, candidates: impl Iterator<Item = BuilderLoad>) -> Option<u16> {
        let weight = |load: &BuilderLoad| match self {
            Self::RoundRobin => 0,
            Self::LeastLoaded => u64::from(load.in_work),
            Self::FreeBytes => u64::MAX - load.free_bytes,
        };
        let had_its_turn = |load: &BuilderLoad| last.is_some_and(|last| load.builder <= last);
        candidates.min_by_key(|load| (weight(load), had_its_turn(load), load.builder)).map(|load| load.builder)
    }
}
