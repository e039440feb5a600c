//! What users' histograms of a gateway must hold: counted once more, by a walk through every packet that was taken.

use super::scenario::{FlowSetting, source_id};
use crate::campaign::outcome::{Broken, Checker};
use ropewalk_flow::gateway::Receiver;
use ropewalk_flow::histogram::{FieldOrder, HistogramConfig, Histogrammed, IntegerField};
use ropewalk_terms::Binning;
use ropewalk_wire::mep::MepView;

/// The integer that is counted of each fragment: there are shorter ones.
const FIELD: IntegerField = IntegerField { offset: 2, bytes: 2, order: FieldOrder::Little, lowest_bit: 4, bits: 8 };

/// The size of every fragment of a flow, and an integer in it.
pub(super) fn configs(flow: u8, setting: &FlowSetting) -> Vec<HistogramConfig> {
    let binning = Binning::linear(0, 256, 64).expect("there are fewer bins than numbers");
    let of = |(index, of)| HistogramConfig {
        index,
        sources: (0..setting.wanted()).map(|source| source_id(flow, source)).collect(),
        of,
        binning: binning.clone(),
    };
    (0..).zip([Histogrammed::Size, Histogrammed::Field(FIELD)]).map(of).collect()
}

/// What those of a flow's sources must hold.
#[derive(Debug)]
pub(super) struct Due {
    binning: Binning,
    /// By source: the cells of sizes, and those of integers.
    counts: Vec<[Vec<u64>; 2]>,
    /// Whose turn it is to be compared.
    next: usize,
}

impl Due {
    pub(super) fn new(setting: &FlowSetting) -> Self {
        let binning = configs(0, setting).swap_remove(0).binning;
        let none = || vec![0; binning.cells()];
        Self { counts: (0..setting.wanted()).map(|_| [none(), none()]).collect(), binning, next: 0 }
    }

    /// A packet of a source was taken.
    pub(super) fn take(&mut self, source: u16, packet: &MepView<'_>) {
        let Self { binning, counts, .. } = self;
        let [sizes, integers] = &mut counts[usize::from(source)];
        for (_, banks) in packet.fragments().filter(|(_, banks)| !banks.is_empty()) {
            sizes[usize::from(binning.cell_of(banks.len() as u64))] += 1;
            let integer = banks.get(2..4).map(|bytes| u64::from(u16::from_le_bytes([bytes[0], bytes[1]])) >> 4 & 0xFF);
            let cell = integer.map_or(binning.short(), |integer| binning.cell_of(integer));
            integers[usize::from(cell)] += 1;
        }
    }

    /// Compares one source each time: all of them would take longer than the turn behind which it is done.
    pub(super) fn check(&mut self, flow: u8, receiver: &Receiver) -> Result<(), Broken> {
        self.next = (self.next + 1) % self.counts.len();
        let known = receiver.histograms(flow).filter(|(source, ..)| usize::from(*source) == self.next);
        let known: Vec<&[u64]> = known.map(|(.., counts)| counts).collect();
        let due = &self.counts[self.next];
        Broken::unless(known == due.each_ref().map(Vec::as_slice), Checker::Ledger, || {
            format!("flow {flow}: the histograms of source {} are {known:?}, and must be {due:?}", self.next)
        })
    }
}
