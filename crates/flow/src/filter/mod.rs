//! The filter: what becomes of built events. Each goes to a filter unit, a decision comes back, and streams take what is
//! accepted.
//!
//! ```text
//!  builder --add--> FilterFarm --Offer--> filter units (FU): processes, nodes --decided--> Streams --> storage
//!                      |   ^                  |                                     |
//!                      |   +---- ended -------+ crashed, hung, or not to be         +-> Ordering: as the keys are,
//!                      |                        believed: tried once more               where a stream wants that
//!                      +-- next_failed: no decision can be had --> the error stream
//! ```
//! Events go out by absolute credit: a filter unit says how many it takes in this life of it. What it had when it ended goes to
//! others; the one that it was working on is tried once more, and if that ends a filter unit as well it is set aside, whole.
//! Nothing else waits for it. What filters fill into histograms comes with their decisions, and [`Monitoring`] adds up that of those
//! that count. Filters that are functions of this process ([`Builtin`]) answer at once and need no farm.

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

/// What a filter says of an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// It is kept.
    pub accept: bool,
    /// The triggers that it passed.
    pub triggers: TriggerBits,
}

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

/// Which of the accepted events a stream takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// Its name, used in the names of its files; [`StreamName::UNNAMED`] if a run has only one stream.
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
    fn takes_all(&self) -> bool {
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
    /// Their files would have the same names.
    #[error("two streams are called `{0}`; give each a name of its own")]
    StreamTwice(StreamName),
    /// Its files could not be distinguished from those of others.
    #[error("a stream has no name; only one that is alone needs none")]
    NoName,
}

/// Checks that streams make sense together. One alone may have no name.
///
/// # Errors
/// The first thing that does not.
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

/// What triggers look at in an event, wherever it lies.
pub trait TriggerView {
    /// What it is known by.
    fn key(&self) -> EventKey;

    /// Bytes of all payloads.
    fn payload_bytes(&self) -> u64;

    /// The payload of a source's fragment, from its first byte on; `None` if the event has no fragment of that source.
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

/// How a number found in a fragment is compared.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// It is this one.
    Is,
    /// It is not this one.
    IsNot,
    /// It is at least as large.
    AtLeast,
    /// It is at most as large.
    AtMost,
}

/// What an event has to be, or to have.
#[derive(Clone, PartialEq, Debug)]
pub enum Builtin {
    /// Anything.
    All,
    /// Every Nth event by event number, N at least 1: all deciders keep the same events.
    Every(u64),
    /// Events with a payload in a range of bytes.
    Size {
        /// At least.
        least: u64,
        /// At most.
        most: u64,
    },
    /// A fragment of this source.
    Present(SourceId),
    /// Bytes of a source's fragment, in the order of the mask, taken as one number with the first byte foremost.
    Bytes {
        /// Whose fragment.
        source: SourceId,
        /// Where in it they begin.
        offset: u32,
        /// Which bits count; as many bytes as are looked at, 1 to 8.
        mask: Vec<u8>,
        /// How what is found is compared with `value`.
        comparison: Comparison,
        /// What it is compared with.
        value: u64,
    },
    /// A random share of the events, from 0 to 1: with the same seed, every decider keeps the same ones. For tests.
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

/// The bytes at a place of a source's fragment, masked; `None` if the fragment does not reach that far.
fn found(event: &impl TriggerView, source: SourceId, offset: u32, mask: &[u8]) -> Option<u64> {
    let bytes = event.payload_of(source)?.skip(offset as usize).take(mask.len());
    let mut count = 0;
    let number = bytes.zip(mask).fold(0, |number: u64, (byte, mask)| {
        count += 1;
        number << 8 | u64::from(byte & mask)
    });
    (count == mask.len()).then_some(number)
}

/// A number from 0 to 1 that belongs to a key.
fn chance(seed: u64, key: EventKey) -> f64 {
    // Multiplications and shifts that spread each bit over all others (SplitMix64).
    let mut mixed = seed ^ key.to_bits().wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31) as f64 / u64::MAX as f64
}

/// Triggers in a list: the first is trigger 0. An event is accepted where it passes any.
#[derive(Clone, PartialEq, Debug)]
pub struct BuiltinFilter(Vec<Builtin>);

impl BuiltinFilter {
    /// A filter with these triggers, of which there can be [`TriggerBits::COUNT`]; those behind are left out.
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
