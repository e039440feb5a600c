//! What an emulated card is to be.

use super::Faults;
use crate::readout::felix::EventRule;
use crate::source::{SizeDistribution, TriggerRate};
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
    /// Everything random follows from it; equal for all sources of a run.
    pub seed: u64,
    /// How many bytes of chunks an e-link brings in a second at most; none for as many as the host can take.
    pub link_bytes_per_second: Option<f64>,
    /// Chunks that would be shorter have so many bytes.
    pub least_chunk_bytes: u32,
    /// The longest chunk that the reader takes: one that is [`Fault::Oversize`](super::Fault::Oversize) is longer.
    pub most_chunk_bytes: u32,
    /// The memory that blocks are written to again and again: an e-link that is stalled
    /// ([`Fault::Stalled`](super::Fault::Stalled)) is silent while others fill it once.
    pub ring_bytes: u64,
    /// How often what goes wrong.
    pub faults: Faults,
}

impl EmulatedCardConfig {
    /// A card of these e-links, without faults and without times. The chunks of e-link n say that they are source n's.
    pub fn new(
        format: BlockFormat,
        elinks: impl IntoIterator<Item = ELink>,
        size: SizeDistribution,
        seed: u64,
    ) -> Self {
        let link = |elink: ELink| {
            let source = SourceId(elink.number().into());
            EmulatedLinkConfig { elink, source, size, rule: EventRule::USUAL, outages: Vec::new() }
        };
        Self {
            format,
            links: elinks.into_iter().map(link).collect(),
            rate: TriggerRate::Unlimited,
            seed,
            link_bytes_per_second: None,
            least_chunk_bytes: 0,
            most_chunk_bytes: SizeDistribution::LARGEST,
            ring_bytes: 64 << 20,
            faults: Faults::default(),
        }
    }
}

/// One e-link.
#[derive(Clone, PartialEq, Debug)]
pub struct EmulatedLinkConfig {
    /// Which one.
    pub elink: ELink,
    /// What its chunks say that they are.
    pub source: SourceId,
    /// How large its chunks are.
    pub size: SizeDistribution,
    /// Where its chunks say to which event they belong.
    pub rule: EventRule,
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
    /// Whether it has begun and is not over.
    pub fn is_at(self, time: Duration) -> bool {
        time >= self.from && time - self.from < self.lasts
    }
}
