//! The rules of filtering, each as a test of the machines alone.

mod farm;

use crate::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource};
use crate::filter::{
    Builtin, BuiltinFilter, Comparison, Counted, ERROR_STREAM, Fill, Fills, FilterConfigError, Histogram,
    HistogramShape, MOST_BINS, MOST_FILLS, MOST_HISTOGRAMS, Monitoring, Ordering, StreamConfig, Streams,
};
use crate::messages::{Assign, AssignEntry, Fragment, FragmentFlags, FragmentMeta, Message, SuperFragmentEntry};
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_memory::{Owner, Payload, Pool, PoolConfig};
use ropewalk_terms::{Attempt, EventKey, Instant, Requirement, SourceId, StreamIndex, StreamSet, TriggerBits, Verdict};
use ropewalk_wire::run_file::StreamName;

fn name(name: &str) -> StreamName {
    name.parse().expect("it is a good name")
}

fn stream(name: &str, triggers: &[u32]) -> StreamConfig {
    let triggers = triggers.iter().fold(TriggerBits::default(), |all, &trigger| all.with(TriggerBits::of(trigger)));
    StreamConfig { name: self::name(name), triggers, ..StreamConfig::everything() }
}

fn set(streams: &[u8]) -> StreamSet {
    streams.iter().map(|&stream| StreamIndex(stream)).collect()
}

#[test]
fn a_stream_takes_what_has_one_of_its_triggers_or_trigger_types() {
    let calibration = StreamConfig { trigger_types: vec![9], ..stream("calibration", &[1, 2]) };
    let mut streams = Streams::new(vec![stream("physics", &[]), calibration], true).expect("they are good");
    assert!(streams.names().eq(["physics", "calibration", ERROR_STREAM].map(name)));
    assert_eq!(streams.select(TriggerBits::of(0), 0), set(&[0]));
    assert_eq!(streams.select(TriggerBits::of(2), 0), set(&[0, 1]));
    assert_eq!(streams.select(TriggerBits::of(0), 9), set(&[0, 1]));
    assert_eq!(streams.set_aside(), set(&[2]));
    let selected: Vec<u64> = streams.accounts().map(|(_, account)| account.selected).collect();
    assert_eq!(selected, [3, 2, 1]);
}

#[test]
fn a_prescale_keeps_one_of_so_many_and_the_account_says_so() {
    let third = StreamConfig { prescale: 3, ..stream("monitoring", &[]) };
    let mut streams = Streams::new(vec![third], false).expect("it is good");
    let kept: Vec<bool> = (0..7).map(|_| !streams.select(TriggerBits::of(0), 0).is_empty()).collect();
    assert_eq!(kept, [true, false, false, true, false, false, true]);
    (0..2).for_each(|_| streams.written(set(&[0])));
    streams.failed(set(&[0]));
    let (_, account) = streams.accounts().next().expect("there is one");
    assert_eq!((account.selected, account.prescaled_away, account.written, account.failed), (7, 4, 2, 1));
    assert_eq!(account.selected, account.accounted());
    streams.restart();
    assert_eq!(streams.accounts().next().map(|(_, account)| account.selected), Some(0));
}

#[test]
fn parts_of_a_run_keep_one_of_so_many_together_however_few_events_each_has() {
    for (prescale, events) in [(10, 3), (100, 3), (7, 1), (1, 4), (1000, 10)] {
        let mut streams = Streams::new(vec![StreamConfig { prescale, ..stream("a", &[]) }], false).expect("right");
        let mut kept = |part| {
            streams.begin_part(part);
            let kept: Vec<bool> = (0..events).map(|_| !streams.select(TriggerBits::of(0), 0).is_empty()).collect();
            let (_, account) = streams.accounts().next().expect("a stream");
            let count = kept.iter().filter(|&&is_kept| is_kept).count() as u64;
            assert_eq!((account.selected, account.prescaled_away), (events, events - count));
            (kept, count)
        };
        let parts = 10_000;
        let total: u64 = (0..parts).map(|part| kept(part).1).sum();
        let expected = u64::from(parts) * events / u64::from(prescale);
        assert!(total.abs_diff(expected) <= 3, "{total} of one in {prescale}, and {expected} are due");
        assert_eq!(kept(77), kept(77), "a repetition of the part keeps the same events");
    }
}

#[test]
fn without_a_filter_there_is_one_nameless_stream_and_none_for_errors() {
    let mut streams = Streams::new(vec![StreamConfig::everything()], false).expect("it is good");
    assert!(streams.names().eq([StreamName::UNNAMED]));
    assert_eq!((streams.set_aside(), streams.select(TriggerBits::default(), 7)), (StreamSet::EMPTY, set(&[0])));
    assert!(streams.takes_all(StreamIndex(0)));
    let streams = Streams::new(vec![StreamConfig::everything()], true).expect("it gets a name");
    assert!(streams.names().eq(["physics", ERROR_STREAM].map(name)));
    assert!(!streams.takes_all(StreamIndex(0)), "the filter may reject");
}

#[test]
fn streams_that_make_no_sense_are_refused() {
    let refused = |streams: Vec<StreamConfig>| Streams::new(streams, true).err();
    let two = |one: &str, other: &str| vec![stream(one, &[]), stream(other, &[])];
    assert_eq!(refused(two("a", "a")), Some(FilterConfigError::StreamTwice(name("a"))));
    assert_eq!(refused(two("a", ERROR_STREAM)), Some(FilterConfigError::StreamTwice(name(ERROR_STREAM))));
    let nameless = vec![stream("a", &[]), StreamConfig::everything()];
    assert_eq!(refused(nameless), Some(FilterConfigError::NoName));
    let none = StreamConfig { prescale: 0, ..stream("a", &[]) };
    assert_eq!(refused(vec![none]), Some(FilterConfigError::NoPrescale(name("a"))));
    let many = (0..32).map(|number| stream(&format!("s{number}"), &[])).collect();
    assert_eq!(refused(many), Some(FilterConfigError::TooManyStreams(33)));
}

#[test]
fn order_is_asked_for_by_the_stream() {
    let ordered = StreamConfig { ordered: true, ..stream("b", &[1]) };
    let streams = Streams::new(vec![stream("a", &[]), ordered], false).expect("they are good");
    assert!(streams.any_ordered() && streams.is_ordered(set(&[0, 1])) && !streams.is_ordered(set(&[0])));
}

#[test]
fn a_prescale_can_be_changed_but_not_that_of_a_stream_that_has_every_event() {
    let some = StreamConfig { prescale: 3, ..stream("some", &[]) };
    let mut streams = Streams::new(vec![stream("all", &[]), some], false).expect("right");
    let kept = |streams: &mut Streams, events: u64| {
        let sets = (0..events).map(|_| streams.select(TriggerBits::default(), 0)).collect::<Vec<_>>();
        [0, 1].map(|index| sets.iter().filter(|set| set.iter().any(|one| one == StreamIndex(index))).count())
    };
    assert_eq!(kept(&mut streams, 6), [6, 2]);
    for (stream, prescale) in [(1, 1), (0, 5), (2, 5), (1, 0), (1, 1 << 32)] {
        streams.set_prescale(stream, prescale);
    }
    assert_eq!(kept(&mut streams, 6), [6, 6], "what makes no sense changes nothing");
    streams.set_prescale(1, 6);
    assert_eq!(kept(&mut streams, 12), [12, 2]);
    let accounts: Vec<_> = streams.accounts().map(|(_, account)| (account.selected, account.prescaled_away)).collect();
    assert_eq!(accounts, [(24, 0), (24, 14)]);
}

const fn key(number: u64) -> EventKey {
    EventKey::new(0, number)
}

#[test]
fn an_event_waits_for_earlier_ones() {
    let mut ordering = Ordering::new(4);
    ordering.hold(key(7), 0);
    assert_eq!(ordering.release(Some(key(5))), None, "5 is not decided");
    ordering.hold(key(5), 1);
    assert_eq!(ordering.release(Some(key(6))), Some(1));
    assert_eq!(ordering.release(Some(key(6))), None);
    assert_eq!(ordering.release(Some(key(8))), Some(0));
    assert!(ordering.is_empty() && ordering.late() == 0);
    ordering.hold(key(2), 2);
    assert_eq!((ordering.release(None), ordering.late()), (Some(2), 1), "another unit had it and died");
}

proptest! {
    #[test]
    fn they_leave_in_order_of_their_numbers_not_of_decisions(decided in Just((0..40_u64).collect::<Vec<_>>()).prop_shuffle()) {
        let mut ordering = Ordering::new(40);
        let mut left = Vec::new();
        for (count, &number) in decided.iter().enumerate() {
            ordering.hold(key(number), number as u32);
            let oldest = decided[count + 1..].iter().min().map(|&number| key(number));
            left.extend(std::iter::from_fn(|| ordering.release(oldest)));
            prop_assert!(left.len() as u64 >= oldest.map_or(40, |oldest| oldest.number()), "nothing waits in vain");
        }
        prop_assert!(left.iter().copied().eq(0..40));
    }
}

fn shape(name: &str) -> HistogramShape {
    HistogramShape::new(name, 10, 0.0, 5.0).expect("there can be one")
}

fn fills(values: &[(u16, f64)]) -> Fills {
    let mut fills = Fills::default();
    values.iter().for_each(|&(histogram, value)| fills.push(Fill { histogram, value }));
    fills
}

fn accepted(lumisection: u32) -> Counted {
    let streams = StreamSet::of(StreamIndex(1));
    let triggers = TriggerBits::of(3).with(TriggerBits::of(127));
    Counted { lumisection, verdict: Verdict::Accepted, triggers, streams }
}

#[test]
fn every_value_has_its_place_and_is_counted_once() {
    let mut histogram = Histogram::new(shape("energy"));
    let values = [-0.1, 0.0, 0.49, 0.5, 4.999_999_999_999_999, 5.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0];
    values.iter().for_each(|&value| histogram.fill(value));
    assert_eq!(histogram.counts.to_vec(), [3, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!((histogram.underflow, histogram.overflow, histogram.not_a_number), (2, 2, 1));
    assert_eq!(histogram.entries(), values.len() as u64);
    let mut both = histogram.clone();
    assert!(both.add(&histogram) && both.entries() == 2 * histogram.entries() && both.counts[0] == 6);
    assert!(!both.add(&Histogram::new(shape("time"))), "another one");
    both.clear();
    assert_eq!(both, Histogram::new(shape("energy")));
}

#[test]
fn whole_numbers_have_bins_of_their_own() {
    for bins in 1..=MOST_BINS {
        let shape = HistogramShape::new("number", bins, 0.0, f64::from(bins)).expect("there can be one");
        let mut histogram = Histogram::new(shape);
        (0..bins).for_each(|number| histogram.fill(f64::from(number)));
        assert!(histogram.counts.iter().all(|&count| count == 1), "{bins}");
    }
}

#[test]
fn a_histogram_that_cannot_be_is_refused_with_what_can() {
    let long = "a".repeat(65);
    for (name, bins, low, high, words) in [
        ("", 1, 0.0, 1.0, "1 to 64 bytes"),
        (long.as_str(), 1, 0.0, 1.0, "1 to 64 bytes"),
        ("a\nb", 1, 0.0, 1.0, "control characters"),
        ("none", 0, 0.0, 1.0, "1 to 4096"),
        ("many", MOST_BINS + 1, 0.0, 1.0, "1 to 4096"),
        ("backwards", 1, 1.0, 0.0, "the second one is larger"),
        ("empty", 1, 1.0, 1.0, "the second one is larger"),
        ("far", 1, f64::MIN, f64::MAX, "both are finite"),
        ("no number", 1, f64::NAN, 1.0, "both are finite"),
    ] {
        let error = HistogramShape::new(name, bins, low, high).expect_err("there can be none").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_is_filled_in_goes_to_the_lumisection_of_its_event() {
    let mut monitoring = Monitoring::new(2);
    let places = monitoring.declare(&[shape("energy"), shape("time")]);
    monitoring.decided(&accepted(2));
    monitoring.fill(2, &places, &fills(&[(0, 1.0), (1, 2.0)]));
    monitoring.decided(&accepted(1));
    monitoring.fill(1, &places, &fills(&[(0, 3.0)]));
    let (verdict, streams, triggers) = (Verdict::Rejected, StreamSet::EMPTY, TriggerBits::default());
    let rejected = Counted { verdict, streams, triggers, ..accepted(1) };
    monitoring.decided(&rejected);
    monitoring.decided(&Counted { verdict: Verdict::Quarantined, ..rejected });
    monitoring.close(1);
    let first = monitoring.next_closed().expect("it is closed");
    assert_eq!(monitoring.next_closed(), None, "the second one is open");
    assert_eq!((first.number, first.accepted, first.rejected, first.quarantined), (1, 1, 1, 1));
    assert_eq!((first.triggers[3], first.triggers[127], first.triggers[4]), (1, 1, 0));
    assert_eq!(first.streams.to_vec(), [0, 1]);
    assert_eq!((first.histograms[0].entries(), first.histograms[1].entries()), (1, 0));
    monitoring.give_back(first);
    monitoring.close(3);
    let third = monitoring.next_closed().expect("one without events is closed too");
    assert_eq!((third.number, third.events(), third.histograms[0].entries()), (3, 0, 0), "nothing is left in it");
    monitoring.close_all();
    let second = monitoring.next_closed().expect("the run has ended");
    assert_eq!((second.number, second.histograms[0].entries(), second.histograms[1].entries()), (2, 1, 1));
    monitoring.decided(&rejected);
    monitoring.restart();
    monitoring.close_all();
    assert_eq!(monitoring.next_closed(), None, "another run has nothing of it");
}

#[test]
fn filters_that_declare_in_another_order_fill_the_same_histograms() {
    let mut monitoring = Monitoring::new(1);
    let one = monitoring.declare(&[shape("energy"), shape("time")]);
    monitoring.fill(1, &one, &fills(&[(1, 2.0)]));
    let other_shape = HistogramShape::new("energy", 11, 0.0, 5.0).expect("there can be one");
    let other = monitoring.declare(&[shape("late"), shape("time"), other_shape]);
    assert_eq!((one, other.clone()), (vec![Some(0), Some(1)], vec![Some(2), Some(1), None]));
    let said = fills(&[(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0)]);
    monitoring.fill(1, &other, &said);
    monitoring.close_all();
    let record = monitoring.next_closed().expect("it is closed");
    let entries: Vec<_> = record.histograms.iter().map(|one| (one.shape().name(), one.entries())).collect();
    assert_eq!(entries, [("energy", 0), ("time", 2), ("late", 1)]);
    assert_eq!(record.dropped_fills, 2, "of another shape, and of none that was declared");
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let mut said = Fills::default();
    (0..MOST_FILLS + 3).for_each(|_| said.push(Fill { histogram: 0, value: 1.0 }));
    said.drop_more(2);
    assert_eq!((said.values().len(), said.dropped()), (MOST_FILLS, 5));
    let mut monitoring = Monitoring::new(2);
    let names: Vec<_> = (0..=MOST_HISTOGRAMS).map(|number| shape(&format!("h{number}"))).collect();
    let places = monitoring.declare(&names);
    assert_eq!((places[MOST_HISTOGRAMS - 1], places[MOST_HISTOGRAMS]), (Some(63), None));
    monitoring.fill(1, &places, &said);
    monitoring.close_all();
    let record = monitoring.next_closed().expect("it is closed");
    assert_eq!((record.dropped_fills, record.histograms[0].entries()), (5, MOST_FILLS as u64));
}

/// An event in a builder: sources 1 and 2, of which the second has bytes 0, 1, 2 ... in two pieces.
struct Bench {
    builder: Builder,
    slot: u32,
    _pool: Pool,
}

impl Bench {
    fn new(number: u64) -> Self {
        let source = |id| BuilderSource {
            requirement: Requirement::Optional,
            bunch_crossing_mask: 0,
            ..BuilderSource::new(SourceId(id), 0)
        };
        let config = BuilderConfig {
            slots: 1,
            table: 0,
            credit_bytes: 1000,
            event_timeout: Duration::from_secs(1),
            check_bunch_crossing: false,
            orbit: 0,
            ..BuilderConfig::new(0, 1, [1, 2, 3].map(source).to_vec())
        };
        let mut pool = Pool::new(PoolConfig::heap("fragments", 64, 4)).expect("there is memory");
        let (now, key, attempt) = (Instant::ZERO, EventKey::new(0, number), Attempt(1));
        let mut builder = Builder::new(config);
        builder.manager_connected(now);
        builder.readout_connected(now, 0);
        let entries = [AssignEntry { key, bytes: 30, attempt }].into_iter().collect();
        builder.message(now, &Message::Assign(Assign { entries }));
        let mut fragments =
            vec![fragment(&mut pool, 1, &[&[7; 10]]), fragment(&mut pool, 2, &[&[0, 1, 2], &[3, 4, 5]])];
        while let Some(action) = builder.poll(now) {
            let BuilderAction::ToReadout { message: Message::Request(request), .. } = action else { continue };
            let slot = request.entries[0].slot;
            let entry = SuperFragmentEntry { key, slot, attempt, fragments: 2, bytes: 16, not_held: None };
            builder.super_fragment(now, 0, &entry, &mut fragments);
        }
        Self { builder, slot: 0, _pool: pool }
    }

    fn passes(&self, trigger: &Builtin) -> bool {
        trigger.passes(&self.builder.event(self.slot))
    }
}

fn fragment(pool: &mut Pool, source: u32, pieces: &[&[u8]]) -> Fragment {
    let mut payload = Payload::default();
    for piece in pieces {
        let mut loan = pool.loan(Owner::SHARED).expect("there is a block");
        loan.spare()[..piece.len()].copy_from_slice(piece);
        loan.commit(piece.len());
        payload.push(loan.split_committed().expect("it was filled"));
    }
    let meta = FragmentMeta {
        source: SourceId(source),
        length: payload.len() as u32,
        flags: FragmentFlags::default(),
        bunch_crossing: 0,
        trigger_type: 0,
        raw_id: 0,
        time: 0,
    };
    Fragment { meta, payload }
}

fn bytes(offset: u32, mask: &[u8], comparison: Comparison, value: u64) -> Builtin {
    Builtin::Bytes { source: SourceId(2), offset, mask: mask.to_vec(), comparison, value }
}

#[test]
fn sizes_and_sources_are_looked_at() {
    let bench = Bench::new(10);
    assert!(bench.passes(&Builtin::All));
    for (least, most, passes) in [(16, 16, true), (0, 15, false), (17, 99, false)] {
        assert_eq!(bench.passes(&Builtin::Size { least, most }), passes, "{least} to {most}");
    }
    assert!(bench.passes(&Builtin::Present(SourceId(2))) && !bench.passes(&Builtin::Present(SourceId(3))));
    assert!(bench.passes(&Builtin::Every(5)) && !bench.passes(&Builtin::Every(4)));
}

#[test]
fn bytes_are_compared_where_they_lie_also_across_pieces() {
    let bench = Bench::new(10);
    for (trigger, passes) in [
        (bytes(2, &[0xff, 0xff], Comparison::Is, 0x0203), true),
        (bytes(2, &[0xff, 0x02], Comparison::Is, 0x0202), true),
        (bytes(2, &[0xff], Comparison::IsNot, 2), false),
        (bytes(5, &[0xff], Comparison::AtLeast, 5), true),
        (bytes(5, &[0xff], Comparison::AtMost, 4), false),
        (bytes(5, &[0xff, 0xff], Comparison::AtLeast, 0), false),
    ] {
        assert_eq!(bench.passes(&trigger), passes, "{trigger:?}");
    }
    let elsewhere =
        Builtin::Bytes { source: SourceId(3), offset: 0, mask: vec![0xff], comparison: Comparison::AtLeast, value: 0 };
    assert!(!bench.passes(&elsewhere), "a source that is not there has no bytes");
}

#[test]
fn chance_is_the_same_for_every_decider_and_has_the_share() {
    let half = Builtin::Random { share: 0.5, seed: 3 };
    let passed: Vec<bool> = (0..400).map(|number| Bench::new(number).passes(&half)).collect();
    let again: Vec<bool> = (0..400).map(|number| Bench::new(number).passes(&half)).collect();
    let count = passed.iter().filter(|&&passes| passes).count();
    assert!(passed == again && (150..250).contains(&count), "{count} of 400");
}

#[test]
fn every_trigger_that_is_passed_is_set_and_one_is_enough() {
    let bench = Bench::new(10);
    let event = bench.builder.event(bench.slot);
    let filter = BuiltinFilter::new(vec![Builtin::Every(2), Builtin::Every(3), Builtin::Every(5)]);
    let decision = filter.decide(&event);
    assert!(decision.accept);
    assert_eq!(decision.triggers, TriggerBits::of(0).with(TriggerBits::of(2)));
    assert!(!BuiltinFilter::new(vec![Builtin::Every(3)]).decide(&event).accept);
}
