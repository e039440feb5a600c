//! The filter: each built event goes to a filter unit, a decision comes back, and streams select accepted events.
//!
//! ```text
//!  builder --add--> FilterFarm --Offer--> filter units (FU): processes, nodes --decided--> Streams --> storage
//!                      |   ^                  |                                     |
//!                      |   +---- ended -------+ crashed, hung, or not to be         +-> Ordering: as the keys are,
//!                      |                        believed: tried once more               where a stream wants that
//!                      +-- next_failed: no decision can be had --> the error stream
//! ```
//! Events are given out by absolute credit: a filter unit reports how many it takes in the lifetime of its process.
//! Events of a process that ended go to others. The event that it was working on is tried once more; if that ends a
//! filter unit again, the whole event is quarantined, and no other event waits for it. Histogram fills come with the
//! decisions, and [`Monitoring`] adds up those of valid decisions. Filters that are functions of this process
//! ([`Builtin`]) answer at once and need no farm.

mod farm;
mod monitoring;
mod streams;
#[cfg(test)]
mod tests;

pub use farm::{FarmAction, FarmCounts, FilterFarm};
pub use monitoring::{
    Counted, Fill, Fills, Histogram, HistogramError, HistogramShape, LumisectionRecord, MOST_BINS, MOST_FILLS,
    MOST_HISTOGRAMS, MOST_NAME_BYTES, Monitoring,
};
pub use streams::{ERROR_STREAM, Ordering, Streams};

use crate::builder::EventView;
use crate::supervision::SupervisorConfig;
use ropewalk_terms::{EventKey, SourceId, StreamIndex, TriggerBits};
use ropewalk_wire::run_file::StreamName;

/// A filter's decision on an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Whether it is kept.
    pub accept: bool,
    /// The triggers that it passed.
    pub triggers: TriggerBits,
}

/// The filter units of a builder unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FarmConfig {
    /// Number of filter units, at least 1.
    pub units: u16,
    /// Maximum number of events in work; slots are numbered from 0.
    pub slots: u32,
    /// Time-outs and restarts of each filter unit.
    pub supervision: SupervisorConfig,
}

/// Selection of accepted events by a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// Its name, used in the names of its files; [`StreamName::UNNAMED`] if a run has only one stream.
    pub name: StreamName,
    /// Selects events with any of these triggers; without triggers and trigger types it selects every accepted event.
    pub triggers: TriggerBits,
    /// Also selects events with one of these trigger types, as given by the trigger source.
    pub trigger_types: Vec<u16>,
    /// One of this many selected events is kept, beginning with the first. At least 1.
    pub prescale: u32,
    /// Whether its events are written in the order of their keys.
    pub ordered: bool,
}

impl StreamConfig {
    /// Returns the stream of a run without further streams: it selects everything.
    pub const fn everything() -> Self {
        let name = StreamName::UNNAMED;
        Self { name, triggers: TriggerBits(0), trigger_types: Vec::new(), prescale: 1, ordered: false }
    }

    /// Whether it selects every accepted event, before its prescale.
    fn takes_all(&self) -> bool {
        self.triggers == TriggerBits::default() && self.trigger_types.is_empty()
    }
}

/// Inconsistent settings of streams.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FilterConfigError {
    /// There are too many streams.
    #[error("there are {0} streams, with that of errors; a run has at most {most}", most = StreamIndex::MOST)]
    TooManyStreams(usize),
    /// A prescale of 0 keeps nothing.
    #[error("stream `{0}`: a prescale of 0 keeps nothing; 1 keeps everything")]
    NoPrescale(StreamName),
    /// Two streams have the same name.
    #[error("two streams are called `{0}`; give each a name of its own")]
    StreamTwice(StreamName),
    /// A stream among several has no name.
    #[error("a stream has no name; only one that is alone needs none")]
    NoName,
}

/// Checks that the streams are consistent. A single stream may have no name.
///
/// # Errors
/// The first inconsistency.
fn check(streams: &[StreamConfig]) -> Result<(), FilterConfigError> {
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

/// The properties of an event that triggers use, independent of its memory layout.
pub trait TriggerView {
    /// Returns its key.
    fn key(&self) -> EventKey;

    /// Returns the size of all payloads in bytes.
    fn payload_bytes(&self) -> u64;

    /// Returns the payload of a source's fragment from its first byte on; `None` if the event has no fragment of that
    /// source.
    fn payload_of(&self, source: SourceId) -> Option<impl Iterator<Item = u8>>;
}

impl TriggerView for EventView<'_> {
    fn key(&self) -> EventKey {
        self.key
    }

    fn payload_bytes(&self) -> u64 {
        EventView::payload_bytes(self)
    }

    fn payload_of(&self, source: SourceId) -> Option<impl Iterator<Item = u8>> {
        let fragment = self.fragments().find(|fragment| fragment.meta.source == source)?;
        Some(fragment.payload.pieces().flatten().copied())
    }
}

/// A comparison with a number in a fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// Equal.
    Is,
    /// Not equal.
    IsNot,
    /// Greater or equal.
    AtLeast,
    /// Less or equal.
    AtMost,
}

/// A built-in trigger condition.
#[derive(Clone, PartialEq, Debug)]
pub enum Builtin {
    /// Anything.
    All,
    /// Every Nth event by event number, N at least 1: all deciders keep the same events.
    Every(u64),
    /// Events with a payload in this range of bytes.
    Size {
        /// Minimum.
        least: u64,
        /// Maximum.
        most: u64,
    },
    /// Events with a fragment of this source.
    Present(SourceId),
    /// Events with matching bytes in a source's fragment, taken as one big-endian number.
    Bytes {
        /// The source.
        source: SourceId,
        /// Offset of the bytes in its fragment.
        offset: u32,
        /// Mask with one byte for each compared byte, 1 to 8.
        mask: Vec<u8>,
        /// The comparison with `value`.
        comparison: Comparison,
        /// The value.
        value: u64,
    },
    /// A random share of the events, from 0 to 1: with the same seed, every decider keeps the same events. For tests.
    Random {
        /// The share.
        share: f64,
        /// The seed.
        seed: u64,
    },
}

impl Builtin {
    /// Whether an event passes.
    pub fn passes(&self, event: &impl TriggerView) -> bool {
        match self {
            Self::All => true,
            Self::Every(every) => event.key().number().is_multiple_of((*every).max(1)),
            Self::Size { least, most } => (*least..=*most).contains(&event.payload_bytes()),
            Self::Present(source) => event.payload_of(*source).is_some(),
            Self::Bytes { source, offset, mask, comparison, value } => {
                let found = found(event, *source, *offset, mask);
                found.is_some_and(|found| match comparison {
                    Comparison::Is => found == *value,
                    Comparison::IsNot => found != *value,
                    Comparison::AtLeast => found >= *value,
                    Comparison::AtMost => found <= *value,
                })
            }
            Self::Random { share, seed } => chance(*seed, event.key()) < *share,
        }
    }
}

/// Returns the masked bytes at an offset of a source's fragment; `None` if the fragment is too short.
fn found(event: &impl TriggerView, source: SourceId, offset: u32, mask: &[u8]) -> Option<u64> {
    let bytes = event.payload_of(source)?.skip(offset as usize).take(mask.len());
    let mut count = 0;
    let number = bytes.zip(mask).fold(0, |number: u64, (byte, mask)| {
        count += 1;
        number << 8 | u64::from(byte & mask)
    });
    (count == mask.len()).then_some(number)
}

/// Returns a number from 0 to 1 that depends on the key only.
fn chance(seed: u64, key: EventKey) -> f64 {
    // SplitMix64: multiplications and shifts that spread each bit over all others.
    let mut mixed = seed ^ key.to_bits().wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) as f64 / u64::MAX as f64
}

/// A list of triggers: the first is trigger 0. An event is accepted if it passes any of them.
#[derive(Clone, PartialEq, Debug)]
pub struct BuiltinFilter(Vec<Builtin>);

impl BuiltinFilter {
    /// Creates a filter with these triggers, at most [`TriggerBits::COUNT`]; further ones are left out.
    pub fn new(mut triggers: Vec<Builtin>) -> Self {
        triggers.truncate(TriggerBits::COUNT as usize);
        Self(triggers)
    }

    /// Decides on an event.
    pub fn decide(&self, event: &impl TriggerView) -> Decision {
        let passed = (0..).zip(&self.0).filter(|(_, trigger)| trigger.passes(event));
        let triggers = passed.fold(TriggerBits::default(), |all, (number, _)| all.with(TriggerBits::of(number)));
        Decision { accept: triggers != TriggerBits::default(), triggers }
    }
}
