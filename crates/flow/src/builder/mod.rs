//! The builder unit (BU): whole events out of super-fragments, and the watch over sources that slip against each
//! other.
//!
//! ```text
//!  EVM --Assign--> [ slots: collecting > ready > emitted > acknowledged ] --Credit, Acknowledge--> EVM
//!                     |  Request, each BU starting at another RU            ^ reached(written, synced ...)
//!                     v                                                     |
//!  RU --SuperFragments--> fragments by place --complete? policy, BX--> next_event --> storage
//! ```
//! A machine: messages, super-fragments and `now` go in, [`BuilderAction`]s are polled out. An answer names its
//! slot, so that nothing is searched; slots and their fragment tables are made once and used again.

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

/// A source as the builder unit knows it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BuilderSource {
    /// Its id.
    pub id: SourceId,
    /// The readout unit that receives it.
    pub readout: u16,
    /// Whether an event needs it.
    pub requirement: Requirement,
    /// Added to its bunch crossing, modulo the orbit, before it is compared.
    pub bunch_crossing_offset: i16,
    /// Bits of its bunch crossing that are compared; 0 compares none.
    pub bunch_crossing_mask: u16,
}

impl BuilderSource {
    /// A required source whose bunch crossings are compared as they are.
    pub const fn new(id: SourceId, readout: u16) -> Self {
        let requirement = Requirement::Required;
        Self { id, readout, requirement, bunch_crossing_offset: 0, bunch_crossing_mask: 0xfff }
    }
}

/// What happens to an event that stays incomplete.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncompletePolicy {
    /// The event is kept, flagged, and names what is missing.
    #[default]
    Emit,
    /// The event is dropped and counted.
    Drop,
    /// The event is kept, and the run stops.
    Stop,
}

/// The settings of a builder unit.
#[derive(Clone, PartialEq, Debug)]
pub struct BuilderConfig {
    /// Its index among the builder units: it begins its requests at the readout unit of that number.
    pub index: u16,
    /// How many readout units are configured.
    pub readouts: u16,
    /// All sources, in the order in which an event lists its fragments.
    pub sources: Vec<BuilderSource>,
    /// Events in work at once.
    pub slots: u32,
    /// Keys in the event manager's table: the number of events that may end before an older one does. Only builder units
    /// can report their outcomes to a successor, so the builder unit keeps them.
    pub table: u32,
    /// Bytes of events in work at once, as announced by the readout units.
    pub credit_bytes: u64,
    /// An event for which a readout unit does not answer, though it answers for later ones, is not waited for longer than this. It
    /// must be longer than what readout units allow their sources, and shorter than the event manager's.
    pub event_timeout: Duration,
    /// A readout unit that answers nothing at all is waited for this long, or as long as `event_timeout` where that is longer. The
    /// event manager says earlier that it is dead.
    pub unreachable_timeout: Duration,
    /// What happens to incomplete events. One without a single fragment is always dropped.
    pub incomplete: IncompletePolicy,
    /// How far an event must have come before readout units may forget it.
    pub level: AcknowledgementLevel,
    /// The watch over sources that slip against each other; none: not watched. Its sources must be the same in
    /// the same order.
    pub synchrony: Option<synchrony::Config>,
    /// Compare the bunch crossings of each event's fragments.
    pub check_bunch_crossing: bool,
    /// Bunch crossings in an orbit, the modulus of the sources' offsets; 0 where they wrap by their masks alone.
    pub orbit: u16,
}

impl BuilderConfig {
    /// A builder unit that keeps incomplete events and acknowledges written ones.
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

    /// Checks that the settings make sense together.
    ///
    /// # Errors
    /// The first that does not.
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

/// Settings of a builder unit that make no sense.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BuilderConfigError {
    /// Nothing could be in work.
    #[error("no event may be in work; set slots to at least 1")]
    NoSlots,
    /// Nothing could be built.
    #[error("there is no source that is not masked")]
    NoSources,
    /// Its fragments would be ambiguous.
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
    /// The synchrony machine is fed by place.
    #[error("the sources that are watched for synchrony are not the builder unit's, in the same order")]
    SynchronySources,
    /// The synchrony machine refuses its settings.
    #[error("synchrony: {0}")]
    Synchrony(#[from] synchrony::ConfigError),
}

/// An emitted event. It is there until its slot has reached `Written`, or has failed.
#[derive(Copy, Clone, Debug)]
pub struct EventView<'a> {
    /// The event.
    pub key: EventKey,
    /// The attempt that this is.
    pub attempt: Attempt,
    /// The lumisection to which it belongs, from 1.
    pub lumisection: u32,
    /// Every required source is there.
    pub complete: bool,
    pub(crate) sources: &'a [BuilderSource],
    pub(crate) fragments: &'a [Option<Fragment>],
    pub(crate) causes: &'a [Option<Cause>],
}

impl<'a> EventView<'a> {
    /// The fragments, in the order of the configured sources.
    pub fn fragments(&self) -> impl Iterator<Item = &'a Fragment> + Clone + use<'a> {
        self.fragments.iter().flatten()
    }

    /// The required sources that are missing, and why, in the configured order.
    pub fn missing(&self) -> impl Iterator<Item = (SourceId, Cause)> + Clone + use<'a> {
        let places = self.sources.iter().zip(self.causes);
        places.filter_map(|(source, cause)| cause.map(|cause| (source.id, cause)))
    }

    /// The trigger type of the first fragment that has one; 0 where none has.
    pub fn trigger_type(&self) -> u16 {
        self.fragments().map(|fragment| fragment.meta.trigger_type).find(|&kind| kind != 0).unwrap_or(0)
    }

    /// Bytes of all payloads.
    pub fn payload_bytes(&self) -> u64 {
        self.fragments().map(|fragment| u64::from(fragment.meta.length)).sum()
    }
}
