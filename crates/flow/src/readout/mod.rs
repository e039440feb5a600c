//! Fragments in, super-fragments out: the readout unit (RU) of the pull protocol, as a machine.
//!
//! ```text
//!  bytes --> Framer --> Received --> [Sequence: raw id -> event] --> Table: source x event --> announce --> EVM
//!            (one per connection)     stale, duplicate, corrupt,       |    settled up to `head`
//!                                     late, out of sync: counted       +--> answer <-- request -- BU
//!                                                                      +--> freed  <-- release -- EVM
//! ```
//! An event is *settled* when every required source has delivered its fragment or is known not to: the source continued
//! with a later event, it was silent for longer than its time-out while it was read, or its connection ended. Events
//! stay in the table until they are released. A full table or window takes no more fragments from the sources
//! ([`Readout::room`]), and TCP applies back-pressure to them.

mod announcing;
mod beginning;
mod collating;
mod collator;
mod doubt;
pub mod felix;
mod framer;
mod lane;
mod machine;
mod masking;
mod reading;
mod receiving;
mod requests;
mod sequence;
mod source;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use framer::{Assembly, Placed};
pub use framer::{
    Boards, DatagramFramer, DatagramLimits, Divider, Divides, FrameCounts, Framer, FramerLimits, GATHER_TIMEOUT,
    MOST_FRAMES, Opening,
};
pub use machine::{Readout, ReadoutAction};
pub use requests::SuperFragment;

use crate::histogram::HistogramConfig;
use core::time::Duration;
use ropewalk_terms::{Cause, Requirement, SourceId};
use ropewalk_wire::framing::Framing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a source's bytes are framed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Format {
    /// S-LINK64 (FED) fragments in FEROL blocks.
    Ferol,
    /// Generic fragments: a hello, then a header of 32 bytes in front of each payload.
    Generic,
    /// Frames that a layout or a named format describes, in a stream or in datagrams.
    Described,
}

/// What the end of a source's connection means.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnClose {
    /// The source is done; it sends nothing more.
    End,
    /// The source may connect again. Events wait for it until `timeouts.readout`.
    #[default]
    Wait,
}

/// One source of a readout unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SourceConfig {
    /// The source id that the fragments carry.
    pub id: SourceId,
    /// Framing of the connection's bytes; `None` for an e-link of a card, which has no connection.
    pub format: Option<Format>,
    /// Whether events wait for the source, and what its absence means.
    pub requirement: Requirement,
    /// Width of its event counter in bits, 8 to 64: 24 for a FED.
    pub counter_bits: u8,
    /// The counter's value in the run's first event.
    pub first: u64,
    /// Whether `first` is a guess, so that counting may begin with another number.
    pub begins_anywhere: bool,
    /// Whether the counter runs on from run to run: the first number received is that of the run's first event.
    pub runs_free: bool,
    /// The longest accepted fragment, in bytes.
    pub max_fragment: u32,
    /// The meaning of the end of its connection.
    pub on_close: OnClose,
    /// Whether the bytes are a recording, which waits for other sources however far it is ahead of them.
    pub is_recorded: bool,
    /// Whether the checksums of its fragments are computed.
    pub check_crc: bool,
    /// Whether the event numbers are trusted: any plausible step ahead is accepted at once, and later fragments do not
    /// correct it.
    pub trusts_numbers: bool,
    /// Whether the event numbers grow, but not by one (for example pulse times). Such events are numbered from 1 by
    /// what the sources of this readout unit show, each as soon as no source can show a lower number.
    pub numbers_grow: bool,
    /// With `numbers_grow`: the number of later fragments that may overtake a fragment. They are put in order behind
    /// it.
    pub reorder: u8,
    /// With `numbers_grow`: how long each fragment waits for fragments that it may have overtaken.
    pub reorder_timeout: Duration,
    /// How long to wait for the next frame when consecutive frames of one event form one fragment; `None` makes each
    /// frame a fragment. For described frames only.
    pub gather: Option<Duration>,
}

impl SourceConfig {
    /// Returns a required source with the default settings of its format: a counter of 24 (FED) or 64 bits that begins
    /// at 1, fragments up to 16 MiB, checksums checked, waited for after a disconnection.
    pub const fn new(id: SourceId, format: Format) -> Self {
        let counter_bits = match format {
            Format::Ferol => 24,
            Format::Generic | Format::Described => 64,
        };
        Self {
            id,
            format: Some(format),
            requirement: Requirement::Required,
            counter_bits,
            first: 1,
            begins_anywhere: false,
            runs_free: false,
            trusts_numbers: false,
            max_fragment: 16 << 20,
            on_close: OnClose::Wait,
            is_recorded: false,
            check_crc: true,
            numbers_grow: false,
            reorder: 0,
            reorder_timeout: Duration::ZERO,
            gather: None,
        }
    }

    /// Returns the same for a source with described frames and their counter: the event counter, else the frame
    /// counter, else the number of frames received.
    pub fn of_frames(id: SourceId, framing: &impl Framing, has_event: bool) -> Self {
        let widths = framing.widths();
        let counter_bits = if has_event { widths.event } else { widths.sequence };
        let max_fragment = u32::try_from(framing.most()).unwrap_or(u32::MAX);
        Self { counter_bits, max_fragment, ..Self::new(id, Format::Described) }
    }

    /// Returns the same for an e-link of a card, whose event numbers have `counter_bits` bits.
    pub const fn of_card(id: SourceId, counter_bits: u8) -> Self {
        Self { format: None, counter_bits, ..Self::new(id, Format::Generic) }
    }
}

/// Configuration of a readout unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadoutConfig {
    /// Index among the readout units.
    pub index: u16,
    /// Whether this is the only readout unit.
    pub is_alone: bool,
    /// Whether the sources together show the number at which counting begins. All of them are in this unit, and may
    /// begin anywhere.
    pub first_is_open: bool,
    /// Sources; at most 65,535.
    pub sources: Vec<SourceConfig>,
    /// Number of builder units that may send requests; room for their requests is allocated before the run.
    pub builders: u16,
    /// No source is read more than this many event numbers past the oldest incomplete event. At most `capacity`.
    pub window: u32,
    /// Number of events held, including complete ones that are not released. Rounded up to a power of two.
    pub capacity: u32,
    /// The largest plausible jump of a source's counter, in events; at most a quarter of the counter's range.
    pub plausibility: u64,
    /// How long the oldest incomplete event waits for a source that is being read.
    pub source_timeout: Duration,
    /// How long a source that restarted its numbering waits for the trigger source's declaration, and how long after
    /// that declaration the other sources may take to follow, while they are read. Longer than `source_timeout`.
    pub resync_timeout: Duration,
    /// The trigger source, if it belongs to this readout unit.
    pub trigger: Option<SourceId>,
    /// Whether another readout unit has the trigger source and declares resynchronisations.
    pub trigger_elsewhere: bool,
    /// Histograms of the sources' fragments, in addition to their accounts.
    pub histograms: Vec<HistogramConfig>,
}

impl ReadoutConfig {
    /// Returns a readout unit with these sources and settings for a small run: one builder, a window of 1,024 events,
    /// 4,096 events held, jumps up to 100,000, time-outs of 1 s and 5 s, no trigger source.
    pub const fn new(index: u16, sources: Vec<SourceConfig>) -> Self {
        Self {
            index,
            is_alone: false,
            first_is_open: false,
            sources,
            builders: 1,
            window: 1024,
            capacity: 4096,
            plausibility: 100_000,
            source_timeout: Duration::from_secs(1),
            resync_timeout: Duration::from_secs(5),
            trigger: None,
            trigger_elsewhere: false,
            histograms: Vec::new(),
        }
    }

    /// Checks what [`Readout::new`] relies on. `Readout::new` itself tolerates wrong values.
    ///
    /// # Errors
    /// The first error found.
    pub fn check(&self) -> Result<(), ReadoutConfigError> {
        if self.sources.len() > usize::from(u16::MAX) {
            return Err(ReadoutConfigError::Sources(self.sources.len()));
        }
        for (index, source) in self.sources.iter().enumerate() {
            self.check_source(source, &self.sources[..index])?;
        }
        if let Some(trigger) = self.trigger
            && self.sources.iter().all(|source| source.id != trigger)
        {
            return Err(ReadoutConfigError::Trigger(trigger));
        }
        if self.window == 0 || self.window > self.capacity {
            return Err(ReadoutConfigError::Window { window: self.window, capacity: self.capacity });
        }
        if self.resync_timeout <= self.source_timeout {
            return Err(ReadoutConfigError::ResyncTimeout);
        }
        Ok(())
    }

    fn check_source(&self, source: &SourceConfig, before: &[SourceConfig]) -> Result<(), ReadoutConfigError> {
        let (source_id, bits, plausibility) = (source.id, source.counter_bits, self.plausibility);
        if before.iter().any(|other| other.id == source_id) {
            return Err(ReadoutConfigError::Twice(source_id));
        }
        if !(8..=64).contains(&bits) {
            return Err(ReadoutConfigError::CounterBits { source_id, bits });
        }
        if plausibility > 1 << (bits - 2) {
            return Err(ReadoutConfigError::Plausibility { source_id, plausibility });
        }
        Ok(())
    }
}

/// An error in a readout unit's configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadoutConfigError {
    /// More sources than an announcement can count.
    #[error("a readout unit has at most 65,535 sources, not {0}")]
    Sources(usize),
    /// Two sources have the same id.
    #[error("source {0} is configured twice: each source of a readout unit has an id of its own")]
    Twice(SourceId),
    /// The trigger source does not belong to this readout unit.
    #[error("the trigger source {0} is not a source of this readout unit")]
    Trigger(SourceId),
    /// The counter is too narrow or too wide.
    #[error("the event counter of source {source_id} has {bits} bits: it must have 8 to 64")]
    CounterBits {
        /// The source.
        source_id: SourceId,
        /// The configured width.
        bits: u8,
    },
    /// The plausible jump is too long for a counter.
    #[error("the plausibility of {plausibility} events is more than a quarter of the counter of source {source_id}")]
    Plausibility {
        /// The source.
        source_id: SourceId,
        /// The configured jump, in events.
        plausibility: u64,
    },
    /// The window is empty or larger than the table.
    #[error("the window of {window} events must be at least 1 and at most the capacity of {capacity}")]
    Window {
        /// The configured window, in events.
        window: u32,
        /// The configured capacity, in events.
        capacity: u32,
    },
    /// The resynchronisation time-out would leave sources behind before the slowest can time out.
    #[error("the resynchronisation time-out must be longer than the source time-out")]
    ResyncTimeout,
}

/// The boundary of the next fragment cannot be found; the connection must be closed.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{cause} in a source's stream, {bytes_discarded} B discarded: the connection is closed")]
pub struct FramingError {
    /// The cause: `framing_lost` or `oversize`.
    pub cause: Cause,
    /// Number of bytes that were received and could not be used.
    pub bytes_discarded: u64,
}
