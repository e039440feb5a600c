//! What an emulated card is to be.

use crate::source::{FragmentSize, TriggerRate};
use core::time::Duration;
use ropewalk_terms::SourceId;
use ropewalk_wire::felix::{BlockFormat, ELink};

/// An emulated card.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulatedCardConfig {
    /// The kind of its blocks.
    pub format: BlockFormat,
    /// Its e-links.
    pub links: Vec<EmulatedLinkConfig>,
    /// How often triggers come; equal for all sources of a run.
    pub rate: TriggerRate,
    /// Equal for all sources of a run.
    pub seed: u64,
    /// How many bytes of chunks an e-link brings in a second at most; none for as many as the host can take.
    pub link_bytes_per_second: Option<f64>,
    /// How often what goes wrong.
    pub faults: Faults,
}

/// One e-link.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulatedLinkConfig {
    /// Which one.
    pub elink: ELink,
    /// What its chunks say that they are.
    pub source: SourceId,
    /// How large its chunks are.
    pub size: FragmentSize,
    /// When it is silent.
    pub outages: Vec<Outage>,
}

/// A time in which a link brings nothing: what is triggered in it is lost, and the numbers go on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it begins, after the start.
    pub from: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

impl Outage {
    /// Whether it is over or has not begun.
    pub fn is_other_than(self, time: Duration) -> bool {
        time < self.from || time - self.from >= self.lasts
    }
}

/// How often something goes wrong: shares of all chunks, 0 to 1.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct Faults {
    /// The chunk has the error flag.
    pub error: f64,
    /// The chunk has the flag of a wrong checksum.
    pub crc: f64,
    /// The chunk is cut to half of its length and has the flag for that.
    pub truncated: f64,
    /// The chunk has the busy flag, where trailers have one.
    pub busy: f64,
    /// The chunk's end does not come in time: cut to half of its length by a time-out.
    pub timed_out: f64,
    /// The chunk never comes.
    pub missing: f64,
    /// The block that the chunk ends in is missing: its number is left out.
    pub sequence_gap: f64,
    /// The block that the chunk ends in is damaged.
    pub damaged_block: f64,
    /// A signal stands behind the chunk.
    pub out_of_band: f64,
}
