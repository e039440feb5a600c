//! What packets of a source fill into the histograms that a user has asked for.
//!
//! They are filled when a packet has found its place: what is refused, or let go since its source is masked, is in none. The walk through a
//! packet's fragments is the price, once for each packet of a source that has one.

use super::gather::Range;
use crate::histogram::{Histogram, HistogramConfig, Histogrammed};
use ropewalk_memory::Payload;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Instant, SourceId};
use ropewalk_wire::mep::{FRAGMENT_HEADER_BYTES, FragmentHeader, MEP_HEADER_BYTES};

/// The histograms of one source.
#[derive(Debug)]
pub(super) struct SourceHistograms {
    histograms: Box<[Histogram]>,
    /// When the packet before came.
    came: Option<Instant>,
}

impl SourceHistograms {
    /// Those of these sources, in their order; nothing where none has any.
    pub(super) fn of(configs: &[HistogramConfig], sources: impl Iterator<Item = SourceId>) -> Box<[Self]> {
        let new = |source| Self { histograms: Histogram::all_of(configs, source), came: None };
        let all: Vec<Self> = sources.map(new).collect();
        if all.iter().all(|source| source.histograms.is_empty()) { Box::default() } else { all.into_boxed_slice() }
    }

    /// Those that it has.
    pub(super) const fn all(&self) -> &[Histogram] {
        &self.histograms
    }

    /// Counts a packet that was checked. A fragment without bytes is none: nobody finds it in its event either.
    pub(super) fn fill(&mut self, packet: &Payload, now: Instant) {
        let before = self.came.replace(now);
        for histogram in &mut self.histograms {
            match histogram.of() {
                Histogrammed::Interval => {
                    before.into_iter().for_each(|before| histogram.count_interval(now.since(before)));
                }
                Histogrammed::Size => fragments(packet).for_each(|(_, length)| histogram.count(length as u64)),
                Histogrammed::Field(field) => fragments(packet).for_each(|(start, length)| {
                    let mut fragment = Range::new(packet, start, length);
                    histogram.count_field(field.read(core::iter::from_fn(|| fragment.take_piece())));
                }),
            }
        }
    }
}

/// Where the fragments of a packet begin and how many bytes they have; those without any are left out.
fn fragments(packet: &Payload) -> impl Iterator<Item = (usize, usize)> {
    let mut at = MEP_HEADER_BYTES;
    let all = core::iter::from_fn(move || {
        let FragmentHeader { length, .. } = FragmentHeader::from_bytes(packet.read_array(at)?);
        let start = at + FRAGMENT_HEADER_BYTES;
        at = start + usize::from(length);
        Some((start, usize::from(length)))
    });
    all.skip(is_planted(Flaw::HistogramsLackFirst).into()).filter(|&(_, length)| length > 0)
}
