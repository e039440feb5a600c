//! The masks of sources: in which sets each takes part, and how its fragments are counted.

use super::assembly::{dropped, finished, offer, pass};
use super::*;
use crate::histogram::{FieldOrder, HistogramConfig, Histogrammed, IntegerField};
use proptest::prelude::*;
use ropewalk_terms::{Binning, Cause};
use ropewalk_wire::mep::MepView;
use std::collections::{BTreeMap, BTreeSet};

/// The events at which each source was masked and unmasked.
fn turns(assembly: &Assembly) -> BTreeMap<u16, Vec<u64>> {
    let of = |turns: &mut dyn Iterator<Item = ropewalk_terms::EventKey>| turns.map(|key| key.number()).collect();
    assembly.masking().turns().map(|(source, mut turns)| (source, of(&mut turns))).collect()
}

fn complete(first: u64) -> (u64, Ending, Vec<(u16, Cause)>) {
    (first, Ending::Complete, vec![])
}

#[test]
fn a_source_is_out_from_the_next_set_on_and_the_set_in_assembly_waits_for_it() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &FlowConfig { first_event: 100, ..flow(3, 4) });
    offer(&mut assembly, address(0), bench.packet(100, 4, 1, 8), at(0));
    assembly.mask(1, true);
    assert_eq!(turns(&assembly), [(1, vec![104])].into(), "it is known at once, whether anything comes or not");
    // Before the set is begun, during assembly, and when it is complete.
    for source in [1, 0, 1, 2, 1] {
        offer(&mut assembly, address(source), bench.packet(104, 4, 1, 8), at(0));
    }
    assert_eq!(finished(&mut assembly), [complete(104)]);
    assert_eq!((dropped(&assembly, Cause::Masked), assembly.account().opened), (3, 2));
    for source in [1, 1, 2, 0] {
        offer(&mut assembly, address(source), bench.packet(100, 4, 1, 8), at(0));
    }
    assert_eq!(finished(&mut assembly), [complete(100)]);
    assert_eq!((dropped(&assembly, Cause::Masked), assembly.account().packets.duplicate), (3, 2));
    let known = assembly.by_source()[1];
    assert_eq!((known.packets, known.masked, known.left_out_of_complete, known.missing), (1, 3, 1, 0));
}

#[test]
fn a_source_that_is_taken_in_again_is_waited_for_from_the_next_set_on() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    assembly.mask(1, true);
    offer(&mut assembly, address(0), bench.packet(0, 4, 1, 8), at(0));
    assembly.mask(1, false);
    assert_eq!(turns(&assembly), [(1, vec![0, 4])].into());
    for (source, first) in [(1, 0), (1, 4), (0, 4), (0, 8)] {
        offer(&mut assembly, address(source), bench.packet(first, 4, 1, 8), at(0));
    }
    pass(&mut assembly, at(100));
    let late = (8, Ending::Incomplete, vec![(1, Cause::TimedOut)]);
    assert_eq!(finished(&mut assembly), [complete(0), complete(4), late]);
    assert_eq!(dropped(&assembly, Cause::Masked), 1, "of the set in which it took no part");
}

#[test]
fn an_incomplete_set_does_not_name_a_source_that_takes_no_part() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(3, 4));
    assembly.mask(1, true);
    offer(&mut assembly, address(0), bench.packet(0, 4, 1, 8), at(0));
    // Its packets are also invalid.
    offer(&mut assembly, address(1), bench.packet(0, 5, 1, 8), at(0));
    offer(&mut assembly, address(1), bench.packet(2, 4, 1, 8), at(0));
    pass(&mut assembly, at(100));
    assert_eq!(finished(&mut assembly), [(0, Ending::Incomplete, vec![(2, Cause::TimedOut)])]);
    for source in [1, 2] {
        offer(&mut assembly, address(source), bench.packet(0, 4, 1, 8), at(100));
    }
    assert_eq!((dropped(&assembly, Cause::Masked), assembly.account().packets.late), (1, 1));
    assert_eq!((dropped(&assembly, Cause::WrongPacking), dropped(&assembly, Cause::Misaligned)), (1, 1));
    let missing = [0, 1, 2].map(|source: usize| assembly.by_source()[source]);
    assert_eq!(missing.map(|one| (one.missing, one.left_out_of_incomplete)), [(0, 0), (0, 1), (1, 0)]);
    // The set is reused, without traces of its earlier use.
    assembly.mask(1, false);
    for source in 0..3 {
        offer(&mut assembly, address(source), bench.packet(4, 4, 1, 8), at(100));
    }
    assert_eq!(finished(&mut assembly), [complete(4)]);
}

#[test]
fn an_earlier_set_that_begins_behind_the_mask_is_as_the_turn_says() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    offer(&mut assembly, address(0), bench.packet(8, 4, 1, 8), at(0));
    assembly.mask(0, true);
    offer(&mut assembly, address(1), bench.packet(4, 4, 1, 8), at(0));
    assert_eq!(finished(&mut assembly), [], "event 4 lies before event 12, from which on it is out");
    for first in [4, 12] {
        offer(&mut assembly, address(0), bench.packet(first, 4, 1, 8), at(0));
    }
    offer(&mut assembly, address(1), bench.packet(12, 4, 1, 8), at(0));
    assert_eq!(finished(&mut assembly), [complete(4), complete(12)]);
}

/// Its packets of sets that were not begun were refused: these sets do not wait for it.
#[test]
fn a_source_that_was_ahead_takes_part_behind_what_was_refused() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    assembly.mask(1, true);
    // The last one is too far ahead to be plausible.
    for first in [0, 4, 40_000_000] {
        offer(&mut assembly, address(1), bench.packet(first, 4, 1, 8), at(0));
    }
    assembly.mask(1, false);
    // Source 0 is masked only from where source 1 takes part again; otherwise no source would be left in between.
    assembly.mask(0, true);
    assert_eq!(turns(&assembly), [(0, vec![8]), (1, vec![0, 8])].into());
    for (source, first) in [(0, 0), (0, 4), (1, 8)] {
        offer(&mut assembly, address(source), bench.packet(first, 4, 1, 8), at(0));
    }
    assert_eq!(finished(&mut assembly), [complete(0), complete(4), complete(8)]);
}

#[test]
fn the_last_source_stays_and_so_does_one_whose_turns_are_used_up() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    for (source, is_masked) in [(1, false), (1, true), (1, true), (0, true), (7, true)] {
        assembly.mask(source, is_masked);
    }
    assert_eq!(turns(&assembly), [(1, vec![0])].into());
    offer(&mut assembly, address(0), bench.packet(0, 4, 1, 8), at(0));
    assert_eq!(finished(&mut assembly), [complete(0)]);
    for turn in 0..200 {
        assembly.mask(1, turn % 2 == 1);
    }
    assert_eq!((turns(&assembly)[&1].len(), assembly.masking().said()), (64, 64));
    offer(&mut assembly, address(0), bench.packet(4, 4, 1, 8), at(0));
    offer(&mut assembly, address(1), bench.packet(4, 4, 1, 8), at(0));
    assert_eq!(finished(&mut assembly), [complete(4)], "it takes part when nothing more is recorded");
}

/// A masked source cannot confirm a distant number, and the only remaining source is believed when it continues.
#[test]
fn a_masked_source_does_not_move_the_window() {
    let mut bench = Bench::new();
    let mut assembly = Assembly::new(0, &flow(2, 4));
    assembly.mask(1, true);
    for (source, first) in [(1, 40_000), (0, 40_000), (1, 40_004), (0, 40_004), (0, 40_008)] {
        offer(&mut assembly, address(source), bench.packet(first, 4, 1, 8), at(0));
    }
    assert_eq!((dropped(&assembly, Cause::Masked), dropped(&assembly, Cause::ImplausibleJump)), (2, 0));
    assert_eq!(finished(&mut assembly), [complete(40_000), complete(40_004), complete(40_008)]);
}

#[test]
fn a_gateway_masks_the_source_that_has_the_name() {
    let mut config = GatewayConfig::new(0, vec![flow(2, 4), flow(2, 4)], FarmConfig::new(1));
    config.flows[1].sources.iter_mut().for_each(|source| source.id.0 += 10);
    let (mut receiver, _) = Gateway::new(&config).expect("it can be").split();
    receiver.mask(SourceId(11), true);
    receiver.mask(SourceId(77), true);
    let said = |flow| receiver.masking(flow).expect("it has the flow").turns().map(|(source, _)| source).collect();
    let said: [Vec<u16>; 2] = [said(0), said(1)];
    assert_eq!(said, [vec![], vec![1]]);
}

/// A step of the test, with five sources.
#[derive(Clone, Debug)]
enum Step {
    Mask(u16, bool),
    Packet(u16, u64),
    Pass,
}

const SOURCES: u16 = 5;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..SOURCES, any::<bool>()).prop_map(|(source, is_masked)| Step::Mask(source, is_masked)),
        12 => (0..SOURCES, 0_u64..12).prop_map(|(source, set)| Step::Packet(source, set)),
        1 => Just(Step::Pass),
    ]
}

/// The expected state, derived from masks and offered packets alone.
#[derive(Default)]
struct Model {
    /// By source: the sets at which it was masked and unmasked.
    said: BTreeMap<u16, Vec<u64>>,
    /// By source: one past the newest set of which a packet was refused.
    ahead: [u64; SOURCES as usize],
    /// One past the newest set, and the last turn.
    next: u64,
    latest: u64,
    refused: u64,
    came: BTreeMap<u64, BTreeSet<u16>>,
    ended: BTreeSet<u64>,
}

impl Model {
    fn is_out(&self, source: u16, set: u64) -> bool {
        self.said.get(&source).is_some_and(|turns| turns.iter().filter(|&&turn| turn <= set).count() % 2 == 1)
    }

    fn mask(&mut self, source: u16, is_masked: bool) {
        let masked = |one: u16| self.said.get(&one).is_some_and(|turns| turns.len() % 2 == 1);
        let others = (0..SOURCES).filter(|&one| one != source && !masked(one)).count();
        if masked(source) != is_masked && (others > 0 || !is_masked) {
            self.latest = self.next.max(self.latest).max(self.ahead[usize::from(source)]);
            self.said.entry(source).or_default().push(self.latest);
        }
    }

    /// A packet was offered; these are the accounts before and after.
    fn offered(&mut self, source: u16, set: u64, before: &FlowAccount, after: &FlowAccount) {
        let others = |account: &FlowAccount| {
            let packets = &account.packets;
            packets.late + packets.duplicate + packets.dropped.get(Cause::OutOfSync)
        };
        if self.is_out(source, set) {
            let ahead = &mut self.ahead[usize::from(source)];
            *ahead = (set + 1).max(*ahead);
            self.refused += 1;
            assert_eq!((before.opened, before.open), (after.opened, after.open), "a refused packet begins no set");
        } else if others(before) == others(after) {
            self.came.entry(set).or_default().insert(source);
            self.next = self.next.max(set + 1);
        }
        assert_eq!(after.packets.dropped.get(Cause::Masked), self.refused);
    }

    /// Checks that ended sets have packets of participating sources only, and name the missing ones among these.
    fn check(&mut self, assembly: &mut Assembly) {
        for (first, ending, missing) in finished(assembly) {
            let set = first / 4;
            assert!(self.ended.insert(set), "set {set} ends twice");
            let there = &self.came[&set];
            let due: BTreeSet<u16> = (0..SOURCES).filter(|&source| !self.is_out(source, set)).collect();
            assert!(!due.is_empty() && there.is_subset(&due), "{there:?} are in set {set} of {due:?}");
            let lacks: Vec<u16> = due.difference(there).copied().collect();
            assert_eq!(ending == Ending::Complete, lacks.is_empty());
            assert_eq!(missing.into_iter().map(|(source, _)| source).collect::<Vec<_>>(), lacks);
        }
    }

    /// Checks the turns and the accounts of sources after everything has ended.
    fn check_end(&self, assembly: &Assembly) {
        let events = |turns: &Vec<u64>| turns.iter().map(|set| set * 4).collect();
        assert_eq!(turns(assembly), self.said.iter().map(|(&source, turns)| (source, events(turns))).collect());
        let account = assembly.account();
        for one in assembly.by_source() {
            let sets = one.packets + one.missing + one.left_out_of_complete + one.left_out_of_incomplete;
            assert_eq!(sets, account.complete + account.incomplete + account.dropped.total());
        }
        assert_eq!(assembly.by_source().iter().map(|one| one.masked).sum::<u64>(), self.refused);
    }
}

proptest! {
    #[test]
    fn each_set_has_the_sources_that_take_part_and_lacks_no_other(
        steps in prop::collection::vec(step(), 1..200),
        incomplete in prop_oneof![Just(Incomplete::Emit), Just(Incomplete::Drop)],
    ) {
        let mut bench = Bench::new();
        let mut assembly = Assembly::new(0, &FlowConfig { assembling: 4, sets: 16, incomplete, ..flow(SOURCES, 4) });
        let (mut model, mut now) = (Model::default(), 0);
        for step in steps {
            match step {
                Step::Mask(source, is_masked) => {
                    model.mask(source, is_masked);
                    assembly.mask(source, is_masked);
                }
                Step::Packet(source, set) => {
                    let before = assembly.account();
                    offer(&mut assembly, address(source), bench.packet(set * 4, 4, 1, 8), at(now));
                    model.offered(source, set, &before, &assembly.account());
                }
                Step::Pass => {
                    now += 100;
                    pass(&mut assembly, at(now));
                }
            }
            model.check(&mut assembly);
        }
        assembly.close_all(Cause::DrainTimedOut);
        model.check(&mut assembly);
        model.check_end(&assembly);
    }
}

const FIELD: IntegerField = IntegerField { offset: 3, bytes: 2, order: FieldOrder::Big, lowest_bit: 0, bits: 16 };

/// Three sources with four events in a packet; the second one has one histogram of each kind.
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

/// The nonempty cells, by histogram and cell; all belong to the source with histograms.
fn told(assembly: &Assembly) -> BTreeMap<(u8, usize), u64> {
    let cells = assembly.histograms().flat_map(|(source, index, counts)| {
        assert_eq!(source, 1);
        (0..).zip(counts).filter(|(_, count)| **count > 0).map(move |(cell, &count)| ((index, cell), count))
    });
    cells.collect()
}

/// A packet of these fragments, in one piece.
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
    // 5, 100 and 10 bytes; an empty fragment does not count. 300, 0x0909 and 99.
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
    /// For any division of the packet into pieces.
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
