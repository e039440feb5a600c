//! The run's first and last event, and its end by force.

use super::*;

#[test]
fn the_highest_key_is_told() {
    let mut rig = Rig::started(config(2));
    rig.tell(Message::QueryHighest);
    assert_eq!(rig.others, [Message::Highest(key(0))], "before the first event");
    rig.feed(0, 1..=7);
    rig.tell(Message::QueryHighest);
    assert_eq!(rig.others[1], Message::Highest(key(7)));
    rig.feed(1, [300]);
    rig.tell(Message::QueryHighest);
    assert_eq!(rig.others[2], Message::Highest(key(300)), "though it waits beyond the window");
}

#[test]
fn what_comes_after_the_last_event_is_not_wanted() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=7);
    rig.feed(1, 1..=2);
    rig.tell(Message::StopAt(key(4)));
    assert_eq!(rig.account(0).after_stop, 3, "what is held of later events goes at once");
    rig.feed(1, 3..=8);
    assert_eq!(rig.account(1).after_stop, 4);
    assert_eq!((rig.numbers(), rig.settled), (vec![1, 2, 3, 4], key(4)));
    assert!(!rig.readout.is_drained());
    rig.release(key(1), 4, Outcome::Complete);
    assert!(rig.readout.is_drained());
    assert!(rig.readout.room(0) > 0, "sources are still read");
}

#[test]
fn sources_that_lag_behind_the_last_event_are_waited_for() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=2);
    rig.feed(1, 1..=2);
    rig.tell(Message::StopAt(key(5)));
    assert_eq!(rig.settled, key(2));
    rig.feed(0, 3..=4);
    rig.feed(1, 3..=5);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.settled, key(5));
    assert_eq!(rig.missing(key(5)), [(0, Cause::TimedOut)]);
}

/// The run is to have three events, and triggers are rare: not even the sources are known before the first.
#[test]
fn what_no_source_has_shown_is_not_missing_although_the_run_s_end_is_known() {
    let mut rig = Rig::started(config(2));
    rig.disconnect(0);
    rig.tell(Message::StopAt(key(3)));
    for number in 1..=3 {
        rig.wait(5 * SOURCE_TIMEOUT);
        assert_eq!(rig.settled, key(number - 1));
        if number == 1 {
            rig.connect(0);
        }
        rig.feed(0, [number]);
        rig.feed(1, [number]);
    }
    assert_eq!((rig.settled, rig.numbers()), (key(3), vec![1, 2, 3]));
}

/// A source that is away for a while costs what the others showed meanwhile, not the rest of the run.
#[test]
fn a_known_end_settles_nothing_that_nobody_has_shown() {
    let mut rig = Rig::started(config(2));
    rig.tell(Message::StopAt(key(6)));
    rig.feed(0, 1..=2);
    rig.feed(1, [1]);
    rig.disconnect(0);
    rig.wait(2 * SOURCE_TIMEOUT);
    assert_eq!(rig.missing(key(2)), [(1, Cause::TimedOut)]);
    assert_eq!(rig.settled, key(2));
    rig.connect(0);
    rig.feed(0, 3..=6);
    rig.feed(1, 3..=6);
    assert_eq!((rig.settled, rig.numbers()), (key(6), vec![1, 2, 3, 4, 5, 6]));
}

/// Whoever takes the run over asks for its last event, and must not hear of the one that was planned.
#[test]
fn a_run_that_is_stopped_before_its_known_end_ends_there() {
    let mut rig = Rig::started(config(2));
    rig.tell(Message::StopAt(key(39)));
    rig.feed(0, 1..=6);
    rig.feed(1, 1..=4);
    rig.tell(Message::StopAt(key(4)));
    assert_eq!((rig.account(0).after_stop, rig.settled), (2, key(4)));
    rig.tell(Message::StopAt(key(39)));
    rig.feed(1, 5..=6);
    assert_eq!(rig.account(1).after_stop, 2, "nothing makes it end later");
    rig.release(key(1), 4, Outcome::Complete);
    assert!(rig.readout.is_drained());
    rig.others.clear();
    rig.tell(Message::Recover);
    assert!(rig.others.contains(&Message::StopAt(key(4))), "{:?}", rig.others);
}

#[test]
fn an_end_before_the_first_event_drains_at_once() {
    let mut rig = Rig::started(config(2));
    rig.tell(Message::StopAt(key(0)));
    assert!(rig.readout.is_drained());
    rig.feed(0, [1]);
    assert_eq!(rig.account(0).after_stop, 1);
}

#[test]
fn the_end_is_announced_even_if_all_sources_have_ended() {
    let mut settings = config(1);
    settings.sources[0].on_close = OnClose::End;
    let mut rig = Rig::started(settings);
    rig.feed(0, 1..=3);
    rig.disconnect(0);
    assert_eq!(rig.settled, EventKey::MAX);
    rig.settled = EventKey::MIN;
    rig.tell(Message::StopAt(key(3)));
    assert_eq!(rig.settled, key(3));
}

#[test]
fn fragments_that_waited_beyond_the_end_are_after_it() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=20);
    rig.tell(Message::StopAt(key(10)));
    assert_eq!((rig.account(0).after_stop, rig.account(0).in_flight), (10, 10));
}

#[test]
fn a_restart_after_the_last_event_is_after_the_end() {
    let mut rig = Rig::started(ReadoutConfig { trigger: Some(SourceId(0)), ..config(2) });
    rig.feed(0, 1..=3);
    rig.feed(1, [1, 2, 3, 1]);
    rig.tell(Message::StopAt(key(3)));
    rig.feed(0, [1, 2]);
    rig.feed(1, [2]);
    assert_eq!((rig.account(0).after_stop, rig.account(1).after_stop), (2, 2));
    rig.release(key(1), 3, Outcome::Complete);
    assert!(rig.readout.is_drained());
}

#[test]
fn a_restart_that_nobody_declared_yet_is_after_the_end_too() {
    let mut rig = Rig::started(ReadoutConfig { trigger_elsewhere: true, ..config(1) });
    rig.feed(0, 1..=3);
    rig.tell(Message::StopAt(key(3)));
    rig.feed(0, [1, 2]);
    assert_eq!(rig.account(0).after_stop, 2);
}

#[test]
fn exactly_the_last_event_is_announced_as_settled() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=8);
    rig.feed(1, 1..=4);
    rig.tell(Message::StopAt(key(6)));
    rig.feed(1, 5..=8);
    assert_eq!(rig.settled, key(6));
}

#[test]
fn the_end_is_not_reached_before_it_was_announced() {
    let mut rig = Rig::started(config(1));
    rig.readout.message(rig.now, NodeId::MANAGER, &Message::StopAt(key(0)));
    assert!(!rig.readout.is_drained());
    rig.poll();
    assert!(rig.readout.is_drained());
}

#[test]
fn a_second_start_changes_nothing_and_a_second_stop_is_answered_again() {
    let mut rig = Rig::started(config(1));
    rig.feed(0, 1..=3);
    rig.tell(Message::Start(Start::of_run(key(100))));
    rig.tell(Message::StopAt(key(3)));
    assert_eq!((rig.numbers(), rig.settled), (vec![1, 2, 3], key(3)));
    rig.settled = EventKey::MIN;
    rig.tell(Message::StopAt(key(3)));
    assert_eq!(rig.settled, key(3));
}

#[test]
fn the_end_may_lie_in_a_count_that_has_not_begun() {
    let mut rig = Rig::started(ReadoutConfig { trigger_elsewhere: true, ..config(1) });
    rig.feed(0, [1, 2, 1, 2, 3]);
    rig.tell(Message::StopAt(EventKey::new(1, 2)));
    assert!(!rig.readout.is_drained());
    rig.tell(Message::Resync(Resync { first: EventKey::new(1, 1) }));
    assert_eq!((rig.settled, rig.account(0).after_stop), (EventKey::new(1, 2), 1));
    rig.release(key(1), 2, Outcome::Complete);
    rig.release(EventKey::new(1, 1), 2, Outcome::Complete);
    assert!(rig.readout.is_drained());
}

#[test]
fn the_farewell_is_a_report_and_then_nothing_in_flight() {
    let mut rig = Rig::started(config(5));
    (0..5).for_each(|source| rig.feed(source, [1]));
    rig.tell(Message::StopAt(key(1)));
    rig.release(key(1), 1, Outcome::Complete);
    rig.tell(Message::Finish);
    let Some((Message::Finished(finished), reports)) = rig.others.split_last() else { panic!("finished comes last") };
    assert_eq!(finished.in_flight, 0);
    let lasts: Vec<_> =
        reports.iter().map(|message| matches!(message, Message::Report(Report { last: true, .. }))).collect();
    assert_eq!(lasts, [false, false, true], "five sources do not fit into one message");
}

#[test]
fn what_is_held_when_the_run_ends_by_force_is_dropped_by_name() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=20);
    rig.feed(1, [1]);
    rig.tell(Message::Finish);
    assert_eq!(rig.others.last(), Some(&Message::Finished(Finished { in_flight: 21 })));
    let total = rig.readout.total();
    assert_eq!((total.dropped.get(Cause::ForcedStop), total.in_flight), (21, 0));
    rig.feed(1, [2]);
    assert_eq!(rig.account(1).dropped.get(Cause::ForcedStop), 2);
}

/// It was started again in mid-run, and its sources go on counting.
#[test]
fn a_readout_unit_that_begins_later_than_the_run_numbers_events_as_the_others() {
    let mut rig = Rig::new(config(2));
    rig.connect(0);
    rig.connect(1);
    rig.tell(Message::Start(Start { first: key(40), origin: key(1) }));
    rig.feed(0, 38..=42);
    rig.feed(1, 41..=42);
    assert_eq!((rig.numbers(), rig.settled), (vec![40, 41, 42], key(42)));
    assert_eq!((rig.account(0).stale, rig.missing(key(40))), (2, vec![(1, Cause::Skipped)]));
}

/// Its sources lost what they sent while it was away, each as much as it happened to.
#[test]
fn sources_join_a_readout_unit_that_begins_later_than_the_run_wherever_they_are() {
    for begins in [[40, 40, 40], [40, 57, 140], [57, 40, 40], [300, 60, 61], [3000, 2990, 2800], [200, 5000, 201]] {
        let mut rig = Rig::doubting(ReadoutConfig { window: 64, capacity: 4096, plausibility: 100_000, ..config(3) });
        (0..3).for_each(|source| rig.connect(source));
        rig.tell(Message::Start(Start { first: key(40), origin: key(1) }));
        let mut next = begins;
        let end = begins[0].max(begins[1]).max(begins[2]) + 1000;
        for turn in 0..20_000 {
            for (source, next) in next.iter_mut().enumerate() {
                let room = rig.readout.room(source).min(3 + turn % 5).min((end - *next) as usize);
                rig.feed(source, *next..*next + room as u64);
                *next += room as u64;
            }
            rig.wait(Duration::from_micros(200));
            rig.release(key(40), (rig.settled.number().max(39) - 39) as u32, Outcome::Complete);
        }
        assert_eq!(next, [end; 3], "{begins:?}");
        for account in (0..3).map(|source| rig.account(source)) {
            assert_eq!(account.stale + account.late + account.dropped.total(), 0, "{begins:?}: {account:?}");
        }
    }
}
