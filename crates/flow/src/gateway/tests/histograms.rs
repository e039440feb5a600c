//! What users have counted of every fragment that a gateway takes.

use super::by_hand::{offer, pass};
use super::*;
use crate::histogram::{FieldOrder, HistogramConfig, Histogrammed, IntegerField};
use proptest::prelude::*;
use ropewalk_terms::Binning;
use ropewalk_wire::mep::MepView;
use std::collections::BTreeMap;

const FIELD: IntegerField = IntegerField { offset: 3, bytes: 2, order: FieldOrder::Big, lowest_bit: 0, bits: 16 };

/// Three sources with four events in a packet; the second one has a histogram of each kind.
fn with_histograms() -> FlowConfig {
    let ten = |from, to| Binning::linear(from, to, 10).expect("ten bins");
    let of = |(index, (of, binning))| HistogramConfig { index, sources: vec![SourceId(1), SourceId(77)], of, binning };
    let all = [
        (Histogrammed::Size, ten(0, 100)),
        (Histogrammed::Interval, ten(0, 10_000_000)),
        (Histogrammed::Field(FIELD), ten(0, 1000)),
    ];
    FlowConfig { histograms: (3..).zip(all).map(of).collect(), ..flow(3, 4) }
}

/// The cells in which there is something, by histogram and cell; all of the source that has any.
fn told(assembly: &Assembly) -> BTreeMap<(u8, usize), u64> {
    let cells = assembly.histograms().flat_map(|(source, index, counts)| {
        assert_eq!(source, 1);
        (0..).zip(counts).filter(|(_, count)| **count > 0).map(move |(cell, &count)| ((index, cell), count))
    });
    cells.collect()
}

/// A packet of fragments of these, in one piece.
fn packet(bench: &mut Bench, first: u32, fragments: &[&[u8]]) -> Payload {
    let mut bytes = Vec::new();
    encode_mep(first, 0, fragments.iter().copied(), &mut bytes).expect("it is short");
    bench.payload(&bytes)
}

#[test]
fn each_fragment_is_counted_and_each_packet_once_in_the_times_between_them() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &with_histograms());
    assert_eq!(assembly.histograms().count(), 3);
    let fragments: [&[u8]; 4] = [&[9, 9, 9, 1, 0x2c], &[], &[9; 100], &[1, 2, 3, 0, 99, 8, 8, 8, 8, 8]];
    let first = packet(&mut bench, 0, &fragments);
    offer(&mut assembly, address(1), first, at(5));
    // 5, 100 and 10 bytes; a fragment without any is none. 300, 0x0909 and 99.
    let sizes = [((3, 1), 1), ((3, 2), 1), ((3, 11), 1)];
    let fields = [((5, 4), 1), ((5, 11), 1), ((5, 1), 1)];
    assert_eq!(told(&assembly), sizes.into_iter().chain(fields).collect(), "there was no packet before");
    let second = packet(&mut bench, 4, &[&[1, 2, 3, 4][..]; 4]);
    offer(&mut assembly, address(1), second, at(8));
    let told = told(&assembly);
    assert_eq!(
        (told[&(4, 4)], told[&(3, 1)], told[&(5, 12)]),
        (1, 5, 4),
        "the last ones end before the field: {told:?}"
    );
}

#[test]
fn what_is_refused_is_in_no_histogram() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &with_histograms());
    let mut send = |assembly: &mut Assembly, source, first, now| {
        let packet = packet(&mut bench, first, &[&[7; 30][..]; 4]);
        offer(assembly, address(source), packet, at(now));
    };
    send(&mut assembly, 1, 0, 0);
    let known = told(&assembly);
    send(&mut assembly, 1, 0, 1);
    assert_eq!(told(&assembly), known, "it comes twice");
    pass(&mut assembly, at(100));
    assembly.mask(1, true);
    send(&mut assembly, 1, 4, 101);
    send(&mut assembly, 1, 2, 101);
    send(&mut assembly, 0, 4, 101);
    assert_eq!(
        told(&assembly),
        known,
        "its source is masked, or it belongs nowhere; and another source has no histogram"
    );
}

proptest! {
    /// However the packet lies.
    #[test]
    fn they_hold_what_a_walk_through_the_packet_finds(
        fragments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 4), cuts in prop::collection::vec(0_usize..200, 0..4)
    ) {
        let config = with_histograms();
        let (mut bench, mut assembly) = (Bench::new(), Assembly::new(0, &config));
        let mut bytes = Vec::new();
        encode_mep(0, 0, fragments.iter().map(Vec::as_slice), &mut bytes).expect("it is short");
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        let mut payload = Payload::default();
        for pair in cuts.windows(2) {
            bench.payload(&bytes[pair[0]..pair[1]]).into_slices().for_each(|slice| payload.push(slice));
        }
        offer(&mut assembly, address(1), payload, at(0));
        let mut expected: BTreeMap<(u8, usize), u64> = BTreeMap::new();
        for (_, fragment) in MepView::parse(&bytes).expect("it is right").fragments().filter(|(_, banks)| !banks.is_empty()) {
            let [size, _, field] = &config.histograms[..] else { unreachable!() };
            *expected.entry((3, size.binning.cell_of(fragment.len() as u64).into())).or_default() += 1;
            let value = fragment.get(3..5).map(|bytes| u64::from(bytes[0]) << 8 | u64::from(bytes[1]));
            let cell = value.map_or(field.binning.short(), |value| field.binning.cell_of(value));
            *expected.entry((5, cell.into())).or_default() += 1;
        }
        prop_assert_eq!(told(&assembly), expected);
    }
}
