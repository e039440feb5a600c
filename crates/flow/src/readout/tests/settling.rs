//! Settling and announcement of events, answers to builder units, and messages to the event manager and its successor.

use super::*;
use crate::histogram::{FieldOrder, HistogramConfig, Histogrammed, IntegerField};
use core::time::Duration;
use ropewalk_memory::{Owner, Pool, PoolConfig};
use ropewalk_terms::{Binning, Counter};
use std::collections::BTreeMap;

#[test]
fn an_event_is_announced_at_once_when_every_source_has_delivered() {
    let mut rig = Rig::started(config(3));
    rig.feed(0, [1, 2]);
    rig.feed(1, [1]);
    assert_eq!(rig.numbers(), [0; 0]);
    rig.feed(2, [1, 2]);
    assert_eq!(rig.held, [AnnounceEntry { key: key(1), bytes: 3 * LENGTH, fragments: 3, triggered: false }]);
    assert_eq!(rig.settled, key(1));
    rig.feed(1, [2]);
    assert_eq!(rig.numbers(), [1, 2]);
    assert_eq!(rig.missing(key(1)), []);
}

#[test]
fn one_announcement_carries_at_most_a_batch_and_none_waits_to_be_filled() {
    let mut rig = Rig::started(ReadoutConfig { window: 200, capacity: 256, ..config(1) });
    let mut fragments = (1..=100).map(|raw| fragment(0, raw)).collect();
    rig.readout.receive(rig.now, 0, &mut fragments);
    let announces: Vec<_> = core::iter::from_fn(|| rig.readout.poll(rig.now)).collect();
    let [ReadoutAction::ToManager(Message::Announce(one)), ReadoutAction::ToManager(Message::Announce(two))] =
        &announces[..]
    else {
        panic!("two announcements, not {announces:?}")
    };
    assert_eq!((one.settled, one.entries.len()), (key(64), 64));
    assert_eq!((two.settled, two.entries.len()), (key(100), 36));
}

#[test]
fn a_later_number_proves_absence_at_once() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=5);
    rig.feed(1, [1, 4]);
    assert_eq!(rig.numbers(), [1, 2, 3, 4]);
    assert_eq!(rig.missing(key(1)), []);
    assert_eq!(rig.missing(key(2)), [(1, Cause::Skipped)]);
    assert_eq!(rig.missing(key(3)), [(1, Cause::Skipped)]);
    assert_eq!(rig.missing(key(4)), []);
}

#[test]
fn from_which_event_to_which_a_source_is_missing_is_known() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=20);
    rig.feed(1, [1, 4, 5, 7]);
    assert_eq!((rig.gaps(0), rig.gaps(1)), (vec![], vec![(2, 3, 2), (6, 6, 1)]));
    // The fragments of a masked source are not missing.
    rig.mask(1, true);
    assert_eq!((rig.settled, rig.gaps(1)), (key(20), vec![(2, 3, 2), (6, 6, 1)]));
    let reported: Vec<_> = rig.readout.report(rig.now).filter(|entry| entry.as_gap().is_some()).collect();
    let [one, other] = rig.gaps(1).try_into().expect("two");
    let values: Vec<_> = reported.iter().map(|entry| entry.value).collect();
    assert_eq!(
        values,
        [one, other].map(|(first, last, missing)| [key(first).to_bits(), key(last).to_bits(), missing]).concat()
    );
}

#[test]
fn numbers_that_no_source_has_are_settled_without_an_entry() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 5]);
    rig.feed(1, [1, 5]);
    assert_eq!(rig.numbers(), [1, 5]);
    assert_eq!(rig.settled, key(5));
}

#[test]
fn a_common_gap_larger_than_the_table_is_passed_at_once() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 900]);
    assert_eq!(rig.readout.room(0), 0, "the fragment waits beyond the window");
    rig.feed(1, [1, 900]);
    assert_eq!(rig.numbers(), [1], "event 1 is held, and the table does not reach to 900");
    assert_eq!(rig.settled, key(899));
    rig.release(key(1), 1, Outcome::Complete);
    assert_eq!(rig.numbers(), [1, 900]);
    assert!(rig.readout.room(0) > 0);
}

#[test]
fn a_fast_source_leads_by_no_more_than_the_window() {
    let mut rig = Rig::started(config(2));
    assert_eq!(rig.readout.room(0), 16);
    rig.feed(0, 1..=16);
    assert_eq!(rig.readout.room(0), 0);
    assert_eq!(rig.readout.room(1), 16);
    rig.feed(1, [1, 2]);
    assert_eq!(rig.readout.room(0), 2);
}

#[test]
fn what_is_not_released_fills_the_table_and_stops_all_sources() {
    let mut rig = Rig::started(config(2));
    for number in 1..=32 {
        rig.feed(0, [number]);
        rig.feed(1, [number]);
    }
    assert_eq!((rig.readout.room(0), rig.readout.room(1)), (0, 0));
    assert_eq!(rig.readout.held(), 32);
    rig.release(key(2), 5, Outcome::Complete);
    assert_eq!(rig.readout.room(0), 0, "the oldest is still held");
    rig.release(key(1), 1, Outcome::IncompleteEmitted);
    assert_eq!(rig.readout.room(0), 6);
    let account = rig.account(0);
    assert_eq!((account.in_complete_events, account.in_incomplete_events, account.in_flight), (5, 1, 26));
}

#[test]
fn a_fragment_beyond_the_window_waits_and_is_placed_later() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, (1..=20).collect::<Vec<_>>());
    assert_eq!(rig.account(0).in_flight, 20);
    for number in 1..=20 {
        rig.feed(1, [number]);
    }
    assert_eq!(rig.numbers(), (1..=20).collect::<Vec<_>>());
}

#[test]
fn an_optional_source_is_waited_for_and_the_event_is_complete_without_it() {
    let mut settings = config(2);
    settings.sources[1].requirement = Requirement::Optional;
    let mut rig = Rig::started(settings);
    rig.feed(0, 1..=4);
    assert_eq!(rig.numbers(), [0; 0], "event 1 waits for source 1");
    rig.feed(1, [1, 3]);
    assert_eq!(rig.held.iter().map(|entry| entry.fragments).collect::<Vec<_>>(), [2, 1, 2]);
    assert_eq!(rig.missing(key(2)), [], "the event is complete without it");
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.numbers(), [1, 2, 3, 4], "it is waited for until the time-out");
    rig.feed(0, [5]);
    assert_eq!(rig.settled, key(5), "and not again until it delivers");
    rig.feed(1, [4, 6]);
    assert_eq!(rig.account(1).late, 1);
    rig.feed(0, [6, 7]);
    assert_eq!(rig.settled, key(6));
}

#[test]
fn an_optional_source_that_never_comes_does_not_keep_the_run_from_ending() {
    let mut settings = config(2);
    settings.sources.iter_mut().for_each(|source| source.on_close = OnClose::End);
    settings.sources[1].requirement = Requirement::Optional;
    let mut rig = Rig::new(settings);
    rig.tell(Message::Start(Start::of_run(key(1))));
    rig.connect(0);
    rig.feed(0, 1..=3);
    rig.disconnect(0);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!((rig.numbers(), rig.settled), (vec![1, 2, 3], EventKey::MAX));
}

#[test]
fn optional_sources_wait_for_each_other_where_none_is_required() {
    let mut settings = config(2);
    settings.sources.iter_mut().for_each(|source| source.requirement = Requirement::Optional);
    let mut rig = Rig::started(settings);
    rig.feed(0, [1]);
    rig.feed(1, [1]);
    assert_eq!(rig.held[0].fragments, 2);
    rig.feed(0, [2, 3]);
    rig.feed(1, [3]);
    assert_eq!(rig.missing(key(2)), [], "its absence does not make the event incomplete");
}

#[test]
fn the_announcement_says_which_events_are_triggered() {
    let mut rig = Rig::started(ReadoutConfig { trigger: Some(SourceId(1)), ..config(2) });
    rig.feed(0, 1..=3);
    rig.feed(1, [1, 3]);
    assert_eq!(rig.held.iter().map(|entry| entry.triggered).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn narrow_counters_are_unwrapped_past_their_end() {
    let mut settings = config(2);
    settings.sources[0].first = 0xff_fffe;
    settings.sources[1].first = 0xff_fffe;
    settings.sources[1].counter_bits = 32;
    let mut rig = Rig::started(settings);
    rig.feed(0, [0xff_fffe, 0xff_ffff, 0, 1]);
    rig.feed(1, [0xff_fffe, 0xff_ffff, 0x100_0000, 0x100_0001]);
    assert_eq!(rig.numbers(), [1, 2, 3, 4]);
    assert_eq!(rig.held[3].fragments, 2);
}

#[test]
fn held_payloads_can_be_replaced_oldest_first_and_each_once() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=3);
    rig.feed(1, 1..=2);
    let mut seen = Vec::new();
    rig.readout.oldest_payloads(|source, _| {
        seen.push(source);
        if seen.len() == 2 { core::ops::ControlFlow::Break(()) } else { core::ops::ControlFlow::Continue(()) }
    });
    assert_eq!(seen, [0, 1]);
    let mut rest = 0;
    rig.readout.oldest_payloads(|_, _| {
        rest += 1;
        core::ops::ControlFlow::Continue(())
    });
    assert_eq!(rest, 5, "the event where it broke off is shown again");
    rig.readout.oldest_payloads(|_, _| panic!("all were shown"));
}

#[test]
fn a_source_tells_its_latest_event_since_when_it_is_silent_and_that_it_has_ended() {
    let mut config = config(2);
    config.sources[1].on_close = OnClose::End;
    let mut rig = Rig::started(config);
    let told = |rig: &Rig, id: u32| {
        let of = |counter: Counter| {
            let is_it = |entry: &ReportEntry| entry.source == Some(SourceId(id)) && entry.as_counter() == Some(counter);
            rig.readout.report(rig.now).find(is_it).expect("every source reports it").value
        };
        (of(Counter::LastEventNumber), of(Counter::SilentTime), of(Counter::SourcesEnded))
    };
    assert_eq!((told(&rig, 0), told(&rig, 1)), ((0, 0, 0), (0, 0, 0)));
    rig.feed(0, 1..=9);
    rig.feed(1, 1..=7);
    rig.wait(Duration::from_micros(3));
    rig.feed(1, [8]);
    rig.wait(Duration::from_micros(2));
    assert_eq!((told(&rig, 0), told(&rig, 1)), ((9, 5_000, 0), (8, 2_000, 0)));
    rig.disconnect(0);
    rig.disconnect(1);
    assert_eq!((told(&rig, 0).2, told(&rig, 1).2), (0, 1));
}

#[test]
fn an_optional_source_that_never_came_has_not_ended_whatever_is_masked() {
    let mut config = config(2);
    config.sources[1].requirement = Requirement::Optional;
    let mut rig = Rig::started(config);
    let has_ended = |rig: &Rig| {
        let of = |entry: &ReportEntry| {
            entry.source == Some(SourceId(1)) && entry.as_counter() == Some(Counter::SourcesEnded)
        };
        rig.readout.report(rig.now).find(of).expect("every source reports it").value
    };
    assert_eq!(has_ended(&rig), 0);
    rig.feed(0, 1..=9);
    assert_eq!(has_ended(&rig), 0);
}

#[test]
fn settled_events_without_a_request_are_seen() {
    let mut rig = Rig::started(config(1));
    assert!(!rig.readout.awaits_requests(), "nothing is held");
    rig.feed(0, [1]);
    assert!(rig.readout.awaits_requests());
    rig.request(0, &[key(2)]);
    assert!(!rig.readout.awaits_requests(), "a builder unit waits for the next one");
    rig.feed(0, [2]);
    assert!(rig.readout.awaits_requests());
}

#[test]
fn back_pressure_is_reported_while_it_goes_on() {
    let mut rig = Rig::started(config(1));
    let told = |rig: &Rig| {
        let is_it = |entry: &ReportEntry| entry.as_counter() == Some(Counter::BackPressureTime);
        rig.readout.report(rig.now).find(is_it).expect("every source reports it").value
    };
    rig.readout.set_being_read(rig.now, 0, false);
    rig.wait(Duration::from_micros(3));
    assert_eq!(told(&rig), 3_000);
    rig.wait(Duration::from_micros(4));
    rig.readout.set_being_read(rig.now, 0, true);
    rig.wait(Duration::from_micros(9));
    assert_eq!(told(&rig), 7_000);
}

fn not_held(rig: &Rig) -> Vec<(u64, Option<Cause>)> {
    rig.answers.iter().map(|(_, entry)| (entry.key.number(), entry.not_held)).collect()
}

#[test]
fn requests_are_answered_in_order_with_what_is_held() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 2, 4]);
    rig.feed(1, [1, 4]);
    rig.request(3, &[key(2), key(1), key(3)]);
    let [(builder, second), (_, first), (_, third)] = rig.answers[..] else { panic!("three answers") };
    assert_eq!((builder, second.slot, second.attempt), (3, 2, Attempt(1)));
    assert_eq!((second.fragments, second.bytes, second.not_held), (2, LENGTH, None), "one of them missing");
    assert_eq!((first.fragments, first.bytes), (2, 2 * LENGTH));
    assert_eq!((third.fragments, third.bytes), (2, 0));
    assert_eq!(rig.missing(key(3)), [(0, Cause::Skipped), (1, Cause::Skipped)]);
    let bytes = rig.readout.super_fragment(key(2)).map(|held| held.bytes());
    let there = rig.fragments(key(2)).iter().filter(|one| one.meta.length > 0).count();
    assert_eq!((there, bytes), (1, Some(LENGTH)));
}

#[test]
fn a_request_for_an_event_that_is_not_settled_is_answered_when_it_is() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 2]);
    rig.request(0, &[key(1), key(2)]);
    assert_eq!(not_held(&rig), []);
    rig.feed(1, [1]);
    assert_eq!(not_held(&rig), [(1, None)]);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(not_held(&rig), [(1, None), (2, None)]);
}

#[test]
fn an_answer_says_what_is_not_held() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=3);
    rig.release(key(1), 1, Outcome::Complete);
    rig.tell(Message::StopAt(key(3)));
    rig.request(0, &[key(0), key(1), key(9)]);
    assert_eq!(not_held(&rig), [(0, Some(Cause::NotHeld)), (1, Some(Cause::Late)), (9, Some(Cause::NotHeld))]);
    assert!(rig.readout.super_fragment(key(1)).is_none());
}

#[test]
fn an_event_in_a_gap_is_said_not_to_be_held() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [900]);
    rig.request(0, &[key(500)]);
    assert_eq!(not_held(&rig), [(500, Some(Cause::NotHeld))]);
}

#[test]
fn builders_are_answered_in_turn() {
    let mut rig = Rig::started(config(1));
    let all: Vec<_> = (1..=6).map(key).collect();
    rig.request(0, &all[..4]);
    rig.request(1, &all[4..]);
    rig.feed(0, 1..=6);
    let order: Vec<_> = rig.answers.iter().map(|&(builder, entry)| (builder, entry.key.number())).collect();
    assert_eq!(order, [(0, 1), (1, 5), (0, 2), (1, 6), (0, 3), (0, 4)]);
}

#[test]
fn a_builder_unit_that_is_not_configured_gets_no_answer_and_no_room() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1]);
    rig.request(4, &[key(1)]);
    rig.request(u16::MAX, &[key(1)]);
    assert!(rig.answers.is_empty());
}

#[test]
fn requests_of_a_lost_builder_are_forgotten_and_its_events_kept() {
    let mut rig = Rig::started(config(1));
    rig.request(0, &[key(1)]);
    rig.readout.peer_lost(rig.now, NodeId::builder(0));
    rig.feed(0, [1]);
    assert_eq!(rig.answers, []);
    rig.request(1, &[key(1)]);
    assert_eq!(not_held(&rig), [(1, None)]);
}

#[test]
fn a_new_event_manager_gets_everything_that_is_held() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1, 2, 3, 5]);
    rig.release(key(2), 1, Outcome::Complete);
    rig.readout.peer_lost(rig.now, NodeId::MANAGER);
    rig.held.clear();
    rig.settled = EventKey::MIN;
    rig.tell(Message::Recover);
    assert_eq!((rig.numbers(), rig.settled), (vec![1, 3, 5], key(5)));
    rig.release(key(1), 5, Outcome::Complete);
    (rig.held, rig.settled) = (Vec::new(), EventKey::MIN);
    rig.tell(Message::Recover);
    assert_eq!((rig.numbers(), rig.settled), (vec![], key(5)), "even that nothing is held");
}

#[test]
fn only_the_event_manager_gives_orders() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, [1]);
    let entries = [ReleaseEntry { first: key(1), count: 1, outcome: Outcome::Complete }].into_iter().collect();
    rig.readout.message(rig.now, NodeId::builder(0), &Message::Release(Release { entries }));
    rig.readout.message(rig.now, NodeId::readout(1), &Message::Finish);
    rig.poll();
    assert_eq!((rig.readout.held(), rig.others.len()), (1, 0));
}

fn ended(below: u64) -> Ended {
    Ended { below: key(below), built: below - 1, ..Ended::default() }
}

#[test]
fn what_the_event_manager_left_is_sent_to_its_successor_once() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=9);
    rig.tell(Message::Ended(ended(4)));
    // An older message that comes late says less.
    rig.tell(Message::Ended(ended(3)));
    assert_eq!(rig.others, []);
    // The events that are announced again were settled before.
    (rig.settled, rig.held) = (EventKey::MIN, Vec::new());
    rig.tell(Message::Recover);
    assert_eq!((rig.others.as_slice(), rig.numbers().len()), (&[Message::Ended(ended(4))][..], 9));
    rig.feed(0, [10]);
    assert_eq!(rig.others.len(), 1);
}

#[test]
fn without_an_account_a_successor_gets_none() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=9);
    (rig.settled, rig.held) = (EventKey::MIN, Vec::new());
    rig.tell(Message::Recover);
    assert_eq!(rig.others, []);
}

#[test]
fn a_unit_in_which_the_run_has_not_begun_says_so() {
    let mut rig = Rig::new(config(1));
    rig.tell(Message::Recover);
    rig.tell(Message::QueryHighest);
    assert_eq!(rig.others, [Message::Highest(EventKey::MIN)]);
    rig.tell(Message::Start(Start::of_run(key(1))));
    rig.connect(0);
    rig.feed(0, 1..=3);
    assert_eq!((rig.numbers(), rig.others.len()), (vec![1, 2, 3], 1));
}

#[test]
fn a_successor_learns_the_end_of_the_run() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=9);
    rig.tell(Message::StopAt(key(7)));
    (rig.settled, rig.held) = (EventKey::MIN, Vec::new());
    rig.tell(Message::Recover);
    assert_eq!(rig.others, [Message::StopAt(key(7))]);
}

const FIELD: IntegerField = IntegerField { offset: 3, bytes: 4, order: FieldOrder::Little, lowest_bit: 0, bits: 32 };

fn with(of: Histogrammed, binning: Binning) -> ReadoutConfig {
    let histogram = HistogramConfig { index: 5, sources: vec![SourceId(1)], of, binning };
    ReadoutConfig { histograms: vec![histogram], ..config(2) }
}

fn ten(from: u64, to: u64) -> Binning {
    Binning::linear(from, to, 10).expect("ten bins")
}

/// Returns the reported histograms, by source and cell.
fn told(rig: &Rig) -> BTreeMap<(u32, u16), u64> {
    let told = rig.readout.histograms().map(|entry| {
        let (index, cell) = entry.as_histogram().expect("of a histogram");
        assert_eq!(index, 5);
        ((entry.source.expect("of a source").0, cell), entry.value)
    });
    told.collect()
}

/// Returns a payload of these pieces, each in its own block.
fn payload(pool: &mut Pool, pieces: &[&[u8]]) -> Payload {
    let mut payload = Payload::default();
    for piece in pieces {
        let mut loan = pool.loan(Owner::SHARED).expect("blocks enough");
        payload.push(loan.append(piece).expect("room enough"));
    }
    payload
}

#[test]
fn sizes_are_counted_in_their_bins_and_outside_sizes_beside_them() {
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
fn an_interval_is_the_time_since_the_previous_fragments_and_fragments_that_come_at_once_have_none() {
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
