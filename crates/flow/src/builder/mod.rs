//! The builder unit (BU): builds complete events from super-fragments, and detects sources that slip against each
//! other.
//!
//! ```text
//!  EVM --Assign--> [ slots: collecting > ready > emitted > acknowledged ] --Credit, Acknowledge--> EVM
//!                     |  Request, each BU starting at another RU            ^ reached(written, synced ...)
//!                     v                                                     |
//!  RU --SuperFragments--> fragments by place --complete? policy, BX--> next_event --> storage
//! ```
//! A state machine: messages, super-fragments and `now` go in, [`BuilderAction`]s come out of `poll`. An answer names
//! its slot, so that no search is needed; slots and their fragment tables are allocated once and reused.

mod collect;
mod machine;
mod message;
mod slots;
pub mod synchrony;
#[cfg(test)]
mod tests;

pub use machine::{Builder, BuilderAction, BuilderCounts};

use crate::messages::Fragment;
use crate::source::ORBIT;
use core::time::Duration;
use machine::Observer;
use ropewalk_terms::{AcknowledgementLevel, Attempt, Cause, EventKey, Requirement, SourceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A source in the configuration of a builder unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BuilderSource {
    /// Its id.
    pub id: SourceId,
    /// The readout unit that receives it.
    pub readout: u16,
    /// Whether every event needs it.
    pub requirement: Requirement,
    /// Added to its bunch crossing, modulo the orbit, before it is compared.
    pub bunch_crossing_offset: i16,
    /// Bits of its bunch crossing that are compared; 0 compares none.
    pub bunch_crossing_mask: u16,
}

impl BuilderSource {
    /// Creates a required source whose bunch crossings are compared without an offset.
    pub const fn new(id: SourceId, readout: u16) -> Self {
        let requirement = Requirement::Required;
        Self { id, readout, requirement, bunch_crossing_offset: 0, bunch_crossing_mask: 0xfff }
    }
}

/// Policy for events that stay incomplete.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncompletePolicy {
    /// Keeps the event with a flag and the missing sources.
    #[default]
    Emit,
    /// Drops and counts the event.
    Drop,
    /// Keeps the event, and stops the run.
    Stop,
}

/// Configuration of a builder unit.
#[derive(Clone, PartialEq, Debug)]
pub struct BuilderConfig {
    /// Its index among the builder units: it begins its requests at the readout unit of that number.
    pub index: u16,
    /// Number of configured readout units.
    pub readouts: u16,
    /// All sources, in the order of the fragments in an event.
    pub sources: Vec<BuilderSource>,
    /// Maximum number of events in work.
    pub slots: u32,
    /// Number of keys in the event manager's table, which is the number of events that may end before an older one
    /// does. Only builder units can report these outcomes to a successor, so the builder unit remembers as many.
    pub table: u32,
    /// Maximum bytes of events in work, as announced by the readout units.
    pub credit_bytes: u64,
    /// Time-out for an event if a readout unit does not answer for it but answers for later ones. It must be longer
    /// than the time that readout units allow their sources, and shorter than the event manager's.
    pub event_timeout: Duration,
    /// Time-out for a readout unit that answers nothing at all; `event_timeout` if that is longer. The event manager
    /// reports a lost unit earlier.
    pub unreachable_timeout: Duration,
    /// Policy for incomplete events. An event without fragments is always dropped.
    pub incomplete: IncompletePolicy,
    /// The level that an event must reach before readout units may release it.
    pub level: AcknowledgementLevel,
    /// The synchrony check; `None` for no check. Its sources must be the same in the same order.
    pub synchrony: Option<synchrony::Config>,
    /// Whether the bunch crossings of an event's fragments are compared.
    pub check_bunch_crossing: bool,
    /// Number of bunch crossings per orbit, the modulus of the sources' offsets; 0 if they wrap by their masks alone.
    pub orbit: u16,
}

impl BuilderConfig {
    /// Creates the configuration of a builder unit that keeps incomplete events and acknowledges written ones.
    pub const fn new(index: u16, readouts: u16, sources: Vec<BuilderSource>) -> Self {
        Self {
            index,
            readouts,
            sources,
            slots: 256,
            table: 1 << 16,
            credit_bytes: 128 << 20,
            event_timeout: Duration::from_secs(3),
            unreachable_timeout: Duration::ZERO,
            incomplete: IncompletePolicy::Emit,
            level: AcknowledgementLevel::Written,
            synchrony: None,
            check_bunch_crossing: true,
            orbit: ORBIT as u16,
        }
    }

    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// The first inconsistency.
    pub fn check(&self) -> Result<(), BuilderConfigError> {
        if self.slots == 0 {
            return Err(BuilderConfigError::NoSlots);
        }
        if self.sources.iter().all(|source| source.requirement == Requirement::Masked) {
            return Err(BuilderConfigError::NoSources);
        }
        let mut ids: Vec<SourceId> = self.sources.iter().map(|source| source.id).collect();
        ids.sort_unstable();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(BuilderConfigError::SourceTwice(twice[0]));
        }
        if let Some(source) = self.sources.iter().find(|source| source.readout >= self.readouts) {
            return Err(BuilderConfigError::UnknownReadout { id: source.id, readout: source.readout });
        }
        let watched = self.synchrony.iter().flat_map(|synchrony| &synchrony.sources).map(|source| source.source);
        if self.synchrony.is_some() && !watched.eq(self.sources.iter().map(|source| source.id)) {
            return Err(BuilderConfigError::SynchronySources);
        }
        if let Some(synchrony) = &self.synchrony {
            Observer::new(synchrony.clone())?;
        }
        Ok(())
    }
}

/// Inconsistent settings of a builder unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuilderConfigError {
    /// There are no slots.
    #[error("no event may be in work; set slots to at least 1")]
    NoSlots,
    /// There are no sources.
    #[error("there is no source that is not masked")]
    NoSources,
    /// A source is configured twice.
    #[error("source {0} is configured twice")]
    SourceTwice(SourceId),
    /// The source belongs to a readout unit that is not configured.
    #[error("source {id} belongs to ru{readout}, which is not configured")]
    UnknownReadout {
        /// The source.
        id: SourceId,
        /// The readout unit that it names.
        readout: u16,
    },
    /// The sources of the synchrony check differ from those of the builder unit.
    #[error("the sources that are watched for synchrony are not the builder unit's, in the same order")]
    SynchronySources,
    /// The synchrony machine refuses its settings.
    #[error("synchrony: {0}")]
    Synchrony(#[from] synchrony::ConfigError),
}

/// An emitted event. Valid until its slot has reached `Written`, or has failed.
#[derive(Copy, Clone, Debug)]
pub struct EventView<'a> {
    /// Its key.
    pub key: EventKey,
    /// Its attempt.
    pub attempt: Attempt,
    /// Its lumisection, from 1.
    pub lumisection: u32,
    /// Whether every required source is present.
    pub complete: bool,
    pub(crate) sources: &'a [BuilderSource],
    pub(crate) fragments: &'a [Option<Fragment>],
    pub(crate) causes: &'a [Option<Cause>],
}

impl<'a> EventView<'a> {
    /// Returns the fragments in the order of the configured sources.
    pub fn fragments(&self) -> impl Iterator<Item = &'a Fragment> + Clone + use<'a> {
        self.fragments.iter().flatten()
    }

    /// Returns the missing required sources with causes, in the configured order.
    pub fn missing(&self) -> impl Iterator<Item = (SourceId, Cause)> + Clone + use<'a> {
        let places = self.sources.iter().zip(self.causes);
        places.filter_map(|(source, cause)| cause.map(|cause| (source.id, cause)))
    }

    /// Returns the trigger type of the first fragment that has one; otherwise 0.
    pub fn trigger_type(&self) -> u16 {
        self.fragments().map(|fragment| fragment.meta.trigger_type).find(|&kind| kind != 0).unwrap_or(0)
    }

    /// Returns the size of all payloads in bytes.
    pub fn payload_bytes(&self) -> u64 {
        self.fragments().map(|fragment| u64::from(fragment.meta.length)).sum()
    }
}
