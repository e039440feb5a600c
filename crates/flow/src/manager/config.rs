//! What an event manager is told before it begins.

use super::{AssignPolicy, LumisectionLength, ManagerConfigError};
use core::time::Duration;
use ropewalk_terms::Epoch;
use ropewalk_wire::message::BATCH;

/// The settings of an event manager. They do not change while it lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagerConfig {
    /// How many readout units are configured.
    pub readouts: u16,
    /// How many builder units are configured.
    pub builders: u16,
    /// Width of the table in keys, a power of two: no key is opened further than this behind the oldest
    /// unreleased one. At least what the readout units can hold, or they wait for the manager.
    pub capacity: u32,
    /// Which builder unit gets the next events.
    pub policy: AssignPolicy,
    /// The most consecutive keys that one builder unit is given at once, 1 to [`BATCH`].
    pub batch: usize,
    /// A connected readout unit that holds nothing and says nothing for this long about an event that others
    /// hold is left out of it. Also how long answers to a question (highest key, recovery) are waited for.
    pub event_timeout: Duration,
    /// A readout unit that says nothing at all any more, so that it or the network hangs, is waited for this long, or as long as
    /// `event_timeout` where that is longer: it still holds what it had.
    pub unreachable_timeout: Duration,
    /// How long draining may take, and then again how long nodes may take to finish.
    pub drain_timeout: Duration,
    /// The readout unit that has the trigger source: only events that it announces as triggered are built.
    /// None: whatever any unit announces is an event.
    pub trigger_readout: Option<u16>,
    /// How long a lumisection is.
    pub lumisection: LumisectionLength,
    /// Which event manager this is. A successor has a higher one.
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
    /// The first setting that is outside its limits. [`Manager::new`](super::Manager::new) would move it to the
    /// nearest one inside.
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
