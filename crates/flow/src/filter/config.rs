//! What filters and streams are told before the run.

use crate::supervision::SupervisorConfig;
use ropewalk_terms::{StreamIndex, TriggerBits};
use ropewalk_wire::run_file::StreamName;

/// The filter units of a builder unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FarmConfig {
    /// How many filter units there are, at least 1.
    pub units: u16,
    /// How many events can be in work, as the builder unit numbers them: 0 to one less.
    pub slots: u32,
    /// How patient it is with each of them.
    pub supervision: SupervisorConfig,
}

/// Which events a stream takes, of those that are accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// Its name, which stands in the names of its files; [`StreamName::UNNAMED`] where a run has one stream alone.
    pub name: StreamName,
    /// Any of these triggers; with neither triggers nor trigger types it takes every accepted event.
    pub triggers: TriggerBits,
    /// Or one of these trigger types, as the trigger source gave it.
    pub trigger_types: Vec<u16>,
    /// One of so many that it takes is kept; the first one is. At least 1.
    pub prescale: u32,
    /// Its events are written in the order of their keys.
    pub ordered: bool,
}

impl StreamConfig {
    /// The stream of a run that has no other one: it takes everything.
    pub const fn everything() -> Self {
        let name = StreamName::UNNAMED;
        Self { name, triggers: TriggerBits(0), trigger_types: Vec::new(), prescale: 1, ordered: false }
    }

    /// Whether it takes every accepted event, before its prescale.
    pub(super) fn takes_all(&self) -> bool {
        self.triggers == TriggerBits::default() && self.trigger_types.is_empty()
    }
}

/// Settings of streams that make no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FilterConfigError {
    /// There is no place for more.
    #[error("there are {0} streams, with that of errors; a run has at most {most}", most = StreamIndex::MOST)]
    TooManyStreams(usize),
    /// Nothing would be kept.
    #[error("stream `{0}`: a prescale of 0 keeps nothing; 1 keeps everything")]
    NoPrescale(StreamName),
    /// Their files could not be told apart.
    #[error("two streams are called `{0}`; give each a name of its own")]
    StreamTwice(StreamName),
    /// Its files could not be told from those of others.
    #[error("a stream has no name; only one that is alone needs none")]
    NoName,
}

/// Checks that streams make sense together. One alone may have no name.
///
/// # Errors
/// The first thing that does not.
pub(super) fn check(streams: &[StreamConfig]) -> Result<(), FilterConfigError> {
    if streams.len() > StreamIndex::MOST {
        return Err(FilterConfigError::TooManyStreams(streams.len()));
    }
    for (index, stream) in streams.iter().enumerate() {
        if stream.name.is_unnamed() && streams.len() > 1 {
            return Err(FilterConfigError::NoName);
        }
        if stream.prescale == 0 {
            return Err(FilterConfigError::NoPrescale(stream.name));
        }
        if streams[..index].iter().any(|other| other.name == stream.name) {
            return Err(FilterConfigError::StreamTwice(stream.name));
        }
    }
    Ok(())
}
