//! What users have counted of every fragment.

use super::*;
use crate::histogram::{FieldOrder, HistogramConfig, Histogrammed, IntegerField};
use core::time::Duration;
use ropewalk_memory::{Owner, Pool, PoolConfig};
use ropewalk_terms::Binning;
use std::collections::BTreeMap;

const FIELD: IntegerField = IntegerField { offset: 3, bytes: 4, order: FieldOrder::Little, lowest_bit: 0, bits: 32 };

fn with(of: Histogrammed, binning: Binning) -> ReadoutConfig {
    let histogram = HistogramConfig { index: 5, sources: vec![SourceId(1)], of, binning };
    ReadoutConfig { histograms: vec![histogram], ..config(2) }
}

fn ten(from: u64, to: u64) -> Binning {
    Binning::linear(from, to, 10).expect("ten bins")
}

/// What the readout unit tells of its histograms, by source and cell.
fn told(rig: &Rig) -> BTreeMap<(u32, u16), u64> {
    let told = rig.readout.histograms().map(|entry| {
        let (index, cell) = entry.as_histogram().expect("of a histogram");
        assert_eq!(index, 5);
        ((entry.source.expect("of a source").0, cell), entry.value)
    });
    told.collect()
}

/// A payload of these pieces, each in a block of its own.
fn payload(pool: &mut Pool, pieces: &[&[u8]]) -> Payload {
    let mut payload = Payload::default();
    for piece in pieces {
        let mut loan = pool.loan(Owner::SHARED).expect("blocks enough");
        payload.push(loan.append(piece).expect("room enough"));
    }
    payload
}

#[test]
fn sizes_are_counted_in_their_bins_and_those_outside_beside_them() {
    let mut rig = Rig::started(with(Histogrammed::Size, ten(100, 200)));
    let sizes = [99, 100, 109, 110, 199, 200, 70_000];
    let sized = |(raw, size)| {
        let mut fragment = fragment(1, raw);
        fragment.meta.length = size;
        fragment
    };
    rig.feed_fragments(1, (1..).zip(sizes).map(sized).collect());
    rig.feed(0, 1..=7);
    let expected = [((1, 0), 1), ((1, 1), 2), ((1, 2), 1), ((1, 10), 1), ((1, 11), 2)];
    assert_eq!(told(&rig), expected.into(), "and nothing of a source that has none");
}

#[test]
fn an_interval_is_the_time_since_the_fragments_before_and_those_that_come_at_once_have_none() {
    let mut rig = Rig::started(with(Histogrammed::Interval, ten(0, 10_000)));
    rig.feed(1, [1]);
    assert_eq!(told(&rig), BTreeMap::new(), "there was none before");
    rig.wait(Duration::from_nanos(2_500));
    rig.feed(1, [2, 3]);
    rig.wait(Duration::from_nanos(10_000));
    rig.feed(1, [4]);
    assert_eq!(told(&rig), [((1, 1), 1), ((1, 3), 1), ((1, 11), 1)].into());
}

#[test]
fn a_field_is_read_where_it_lies_and_what_is_too_short_is_counted_as_that() {
    let mut pool = Pool::new(PoolConfig::heap("test", 1024, 4096)).expect("a pool");
    let mut rig = Rig::started(with(Histogrammed::Field(FIELD), ten(0, 1_000)));
    let whole = payload(&mut pool, &[&[9, 9, 9, 0x2c, 1, 0, 0, 9]]);
    let divided = payload(&mut pool, &[&[9, 9], &[9, 0x2c], &[1], &[0, 0]]);
    let short = payload(&mut pool, &[&[9, 9, 9, 0x2c, 1, 0]]);
    let missing = Received { payload: Payload::default(), ..fragment(1, 5) };
    let given_up = Received { meta: FragmentMeta::missing(SourceId(1), Cause::Late), ..fragment(1, 5) };
    let fragments = (1..).zip([whole, divided, short]);
    let mut fragments: Vec<_> = fragments.map(|(raw, payload)| Received { payload, ..fragment(1, raw) }).collect();
    fragments.extend([missing, given_up]);
    rig.feed_fragments(1, fragments);
    assert_eq!(told(&rig), [((1, 4), 2), ((1, 12), 2)].into(), "what never came has no bytes that could be short");
}

#[test]
fn orders_widths_and_bits_of_a_field_are_obeyed() {
    let mut pool = Pool::new(PoolConfig::heap("test", 1024, 4096)).expect("a pool");
    let payload = payload(&mut pool, &[&[0x12, 0x34, 0x56], &[0x78, 0x9a, 0xbc, 0xde, 0xf0]]);
    let read = |offset, bytes, order, lowest_bit, bits| {
        IntegerField { offset, bytes, order, lowest_bit, bits }.read(payload.pieces())
    };
    assert_eq!(read(0, 8, FieldOrder::Big, 0, 64), Some(0x1234_5678_9abc_def0));
    assert_eq!(read(0, 8, FieldOrder::Little, 0, 64), Some(0xf0de_bc9a_7856_3412));
    assert_eq!(read(2, 2, FieldOrder::Big, 0, 16), Some(0x5678));
    assert_eq!(read(1, 3, FieldOrder::Little, 4, 8), Some(0x63));
    assert_eq!(read(7, 1, FieldOrder::Big, 7, 1), Some(1));
    assert_eq!((read(7, 2, FieldOrder::Big, 0, 16), read(800, 1, FieldOrder::Big, 0, 8)), (None, None));
}

#[test]
fn the_last_report_of_a_run_has_the_histograms_and_what_comes_afterwards_is_not_in_them() {
    let mut rig = Rig::started(with(Histogrammed::Size, ten(0, 1_000)));
    rig.feed(0, 1..=3);
    rig.feed(1, 1..=3);
    rig.tell(Message::StopAt(key(3)));
    rig.release(key(1), 3, Outcome::Complete);
    rig.tell(Message::Finish);
    let reports = rig.others.iter().filter_map(|message| match message {
        Message::Report(report) => Some(report),
        _ => None,
    });
    let entries = reports.flat_map(|report| report.entries.iter());
    let told_last: Vec<_> = entries.filter_map(|entry| Some((entry.as_histogram()?, entry.value))).collect();
    assert_eq!(told_last, [((5, 2), 3)]);
    rig.feed(1, [4]);
    assert_eq!(told(&rig), [((1, 2), 3)].into());
}
