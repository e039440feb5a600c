//! When an event is settled and announced, and how far sources are read.

use super::*;
use ropewalk_terms::Counter;

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
    // Nobody misses one that is masked.
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
fn numbers_that_nobody_has_are_settled_without_an_entry() {
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
fn the_trigger_source_is_told_in_the_announcement() {
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
            rig.readout.report(rig.now).find(is_it).expect("it is told of every source").value
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
fn settled_events_for_which_nobody_asks_are_seen() {
    let mut rig = Rig::started(config(1));
    assert!(!rig.readout.awaits_requests(), "nothing is held");
    rig.feed(0, [1]);
    assert!(rig.readout.awaits_requests());
    rig.request(0, &[key(2)]);
    assert!(!rig.readout.awaits_requests(), "somebody waits for the next one");
    rig.feed(0, [2]);
    assert!(rig.readout.awaits_requests());
}

#[test]
fn back_pressure_is_told_while_it_goes_on() {
    let mut rig = Rig::started(config(1));
    let told = |rig: &Rig| {
        let is_it = |entry: &ReportEntry| entry.as_counter() == Some(Counter::BackPressureTime);
        rig.readout.report(rig.now).find(is_it).expect("it is told of every source").value
    };
    rig.readout.set_being_read(rig.now, 0, false);
    rig.wait(Duration::from_micros(3));
    assert_eq!(told(&rig), 3_000);
    rig.wait(Duration::from_micros(4));
    rig.readout.set_being_read(rig.now, 0, true);
    rig.wait(Duration::from_micros(9));
    assert_eq!(told(&rig), 7_000);
}
