//! The event manager (EVM): opens events, assigns them to builder units by credit, and alone releases them.
//!
//! ```text
//!  RU --Announce--> [ table of keys: empty > open > assigned > done > released ] --Release--> every RU
//!                          ^ floor: every present RU has settled below it
//!                          | cursor: everything before it was assigned, dropped or is a gap
//!  BU --Credit, Acknowledge-->  account of each BU  --Assign (policy, batches of consecutive keys)--> BU
//! ```
//! A run is divided into lumisections, ranges of keys that are closed one by one, each with its account.
//! A state machine: messages, connections and `now` are inputs, [`ManagerAction`]s are polled. The phases of a run are
//! [`start`](Manager::start), [`stop`](Manager::stop) (request the highest key, fix the last key, drain), finish.
//! The events of a lost BU are assigned again with the next attempt; the manager does not wait for a lost RU. A
//! successor with a higher epoch rebuilds the table from the reports of RUs and BUs ([`recover`](Manager::recover)).
//! [`Standby`] decides which of several event managers is active.

mod announce;
mod assign;
mod links;
mod machine;
mod recovery;
mod run;
mod standby;
mod table;
#[cfg(test)]
mod tests;

pub use machine::{Manager, ManagerAction, ManagerCounts};
pub use run::{LumisectionLength, ManagerState};
pub use standby::{LeaseAnswer, LeaseConfig, LeaseConfigError, Standby, StandbyAction};

use core::time::Duration;
use ropewalk_terms::Epoch;
use ropewalk_wire::message::BATCH;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings of an event manager, constant for its lifetime.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagerConfig {
    /// The number of configured readout units.
    pub readouts: u16,
    /// The number of configured builder units.
    pub builders: u16,
    /// Width of the table in keys, a power of two: no key further than this from the oldest unreleased one is opened.
    /// At least what the readout units can hold; otherwise they wait for the manager.
    pub capacity: u32,
    /// Which builder unit gets the next events.
    pub policy: AssignPolicy,
    /// The most consecutive keys in one assignment to a builder unit, 1 to [`BATCH`].
    pub batch: usize,
    /// If a connected readout unit holds nothing of an event that others hold, and reports nothing about it for this
    /// long, the event is built without it. Also the time-out for answers (highest key, recovery).
    pub event_timeout: Duration,
    /// How long the manager waits for a readout unit that sends nothing at all, because it or the network hangs; at
    /// least `event_timeout`. The unit still holds its data.
    pub unreachable_timeout: Duration,
    /// The time-out of draining, and after it of the finish of the nodes.
    pub drain_timeout: Duration,
    /// The readout unit with the trigger source: only events that it announces as triggered are built. `None`: any unit
    /// may announce events.
    pub trigger_readout: Option<u16>,
    /// The length of a lumisection.
    pub lumisection: LumisectionLength,
    /// The epoch of this event manager. A successor has a higher one.
    pub epoch: Epoch,
}

impl ManagerConfig {
    /// The first event manager of a run without a trigger source, in one lumisection.
    pub fn new(readouts: u16, builders: u16) -> Self {
        Self {
            readouts,
            builders,
            capacity: 1 << 16,
            policy: AssignPolicy::default(),
            batch: 32,
            event_timeout: Duration::from_secs(5),
            unreachable_timeout: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            trigger_readout: None,
            lumisection: LumisectionLength::Run,
            epoch: Epoch(1),
        }
    }

    /// Checks every limit.
    ///
    /// # Errors
    /// The first setting outside its limits. [`Manager::new`] uses the nearest permitted value instead.
    pub const fn check(&self) -> Result<(), ManagerConfigError> {
        if self.readouts == 0 {
            return Err(ManagerConfigError::NoReadouts);
        }
        if self.builders == 0 {
            return Err(ManagerConfigError::NoBuilders);
        }
        if !self.capacity.is_power_of_two() {
            return Err(ManagerConfigError::Capacity(self.capacity));
        }
        if self.batch == 0 || self.batch > BATCH {
            return Err(ManagerConfigError::Batch(self.batch));
        }
        match self.trigger_readout {
            Some(readout) if readout >= self.readouts => Err(ManagerConfigError::TriggerReadout(readout)),
            _ => Ok(()),
        }
    }
}

/// A setting of an event manager is outside its limits.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ManagerConfigError {
    /// There must be a readout unit.
    #[error("there is no readout unit; configure at least one")]
    NoReadouts,
    /// There must be a builder unit.
    #[error("there is no builder unit; configure at least one")]
    NoBuilders,
    /// The table's width must be a power of two.
    #[error("the table's capacity is {0} keys; it must be a power of two")]
    Capacity(u32),
    /// A batch of assigned events must fit into one message.
    #[error("{0} events at once for a builder unit; it must be 1 to {BATCH}")]
    Batch(usize),
    /// The trigger source must belong to a configured readout unit.
    #[error("the trigger source belongs to ru{0}, which is not configured")]
    TriggerReadout(u16),
}

/// Which builder unit with credit gets the next events.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AssignPolicy {
    /// Each in turn.
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
    /// The index of the unit.
    pub builder: u16,
    /// Events assigned to it and not acknowledged.
    pub in_work: u32,
    /// Bytes that it can still be assigned.
    pub free_bytes: u64,
}

impl AssignPolicy {
    /// Chooses the builder unit for the next events; `None` if `candidates` is empty. Among equals, the first after
    /// `last`, the previous choice, is next.
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
