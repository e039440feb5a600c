//! What users' histograms of an input queue hold, for whoever reads them.

use super::report::Notice;
use ropewalk_flow::gateway::{GatewayConfig, Receiver};
use ropewalk_terms::SourceId;
use std::collections::BTreeMap;

/// Of each source its histograms, by their place in the configuration: the cells in which there is something, with how much.
pub type CellsBySource = BTreeMap<SourceId, BTreeMap<u8, BTreeMap<u16, u64>>>;

/// The histogram of one source.
#[derive(Clone, Debug)]
struct ToldHistogram {
    source: SourceId,
    index: u8,
    counts: Box<[u64]>,
}

/// All of an input queue, as they were told last: apart from the report, which is read more often and has much less in it.
#[derive(Clone, Debug, Default)]
pub struct GatewayHistograms(Vec<ToldHistogram>);

impl GatewayHistograms {
    /// Those of a machine, with room for all that they will ever hold.
    pub(super) fn of(config: &GatewayConfig, machine: &Receiver) -> Self {
        let told = (0..).zip(&config.flows).flat_map(|(flow, known)| {
            machine.histograms(flow).map(move |(source, index, counts)| ToldHistogram {
                source: known.sources[usize::from(source)].id,
                index,
                counts: counts.into(),
            })
        });
        Self(told.collect())
    }

    /// Tells them anew, if there are any.
    pub(super) fn renew(told: &Notice<Self>, flows: u8, machine: &Receiver) {
        let now = || (0..flows).flat_map(|flow| machine.histograms(flow));
        if now().next().is_some() {
            told.renew(|told| {
                told.0.iter_mut().zip(now()).for_each(|(told, (.., now))| told.counts.copy_from_slice(now))
            });
        }
    }

    /// Adds them to those of other queues.
    pub fn add_to(&self, all: &mut CellsBySource) {
        for told in &self.0 {
            let cells = all.entry(told.source).or_default().entry(told.index).or_default();
            for (cell, &count) in (0..).zip(&told.counts).filter(|(_, count)| **count > 0) {
                *cells.entry(cell).or_default() += count;
            }
        }
    }
}
