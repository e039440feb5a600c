//! Absence and restarts: sources that are awaited, and counters that restart.

use super::doubts::{started, wide};
use super::*;

/// For example, the process was stopped: data that its sources sent meanwhile is read afterwards.
#[test]
fn a_readout_unit_that_stood_still_waits_for_its_sources_again() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=3);
    rig.feed(1, [1]);
    rig.now = rig.now.after(20 * SOURCE_TIMEOUT);
    rig.poll();
    assert_eq!(rig.settled, key(1));
    rig.feed(0, [4]);
    rig.feed(1, [2, 3]);
    assert_eq!((rig.settled, rig.missing(key(3))), (key(3), vec![]));
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.missing(key(4)), [(1, Cause::TimedOut)]);
}

/// The same for growing numbers, for doubted numbers, and for an awaited declaration.
#[test]
fn all_time_outs_start_again_when_a_readout_unit_stood_still() {
    for polls in [false, true] {
        let stands_still = |rig: &mut Rig| {
            rig.now = rig.now.after(20 * SOURCE_TIMEOUT);
            if polls {
                rig.poll();
            }
        };
        let mut growing = config(2);
        growing.sources.iter_mut().for_each(|source| source.numbers_grow = true);
        let mut rig = Rig::started(growing);
        rig.feed(0, [100, 110, 120, 130, 140, 150]);
        rig.feed(1, [100, 110, 120]);
        stands_still(&mut rig);
        rig.feed(0, [160]);
        rig.feed(1, [130, 140, 150, 160]);
        assert_eq!((rig.settled, rig.account(1).late), (key(7), 0), "{polls}");
        assert!((1..=7).all(|number| rig.missing(key(number)).is_empty()), "{polls}");

        let mut rig = started(wide(2));
        (0..2).for_each(|source| rig.feed(source, 1..=3));
        rig.feed(1, [900]);
        stands_still(&mut rig);
        rig.feed(0, 4..=6);
        rig.feed(1, [5, 6]);
        assert_eq!((rig.settled, rig.missing(key(5))), (key(6), vec![]), "{polls} {:?}", rig.account(1));

        let mut rig = Rig::started(ReadoutConfig { trigger: Some(SourceId(0)), window: 32, capacity: 64, ..config(2) });
        (0..2).for_each(|source| rig.feed(source, 1..=20));
        rig.release(key(1), 20, Outcome::Complete);
        rig.feed_restart(1, 1);
        rig.feed(1, 2..=3);
        stands_still(&mut rig);
        rig.feed(0, 1..=3);
        assert_eq!((rig.settled, rig.account(1).dropped.total()), (EventKey::new(1, 3), 0), "{polls}");
    }
}

const NEARLY: Duration = Duration::from_millis(99);
const REST: Duration = Duration::from_millis(1);

#[test]
fn a_silent_source_is_given_up_after_the_time_out_and_only_once() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=10);
    assert_eq!(rig.readout.next_deadline(), Some(rig.now.after(SOURCE_TIMEOUT)));
    rig.wait(NEARLY);
    assert_eq!(rig.numbers(), [0; 0]);
    rig.wait(REST);
    assert_eq!(rig.numbers(), (1..=10).collect::<Vec<_>>(), "one time-out, not one per event");
    assert_eq!(rig.missing(key(7)), [(1, Cause::TimedOut)]);
    rig.feed(0, [11]);
    assert_eq!(rig.settled, key(11));
    assert_eq!(rig.readout.next_deadline(), None);
}

#[test]
fn a_source_that_delivers_again_is_waited_for_again() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=3);
    rig.wait(SOURCE_TIMEOUT);
    rig.feed(1, [1, 2]);
    assert_eq!(rig.account(1).late, 2);
    rig.feed(0, [4]);
    assert_eq!(rig.settled, key(3), "event 4 waits for source 1 again");
    rig.feed(1, [3, 4]);
    assert_eq!((rig.account(1).late, rig.settled), (3, key(4)));
}

#[test]
fn the_clock_stands_still_while_the_source_is_not_read() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1]);
    rig.wait(NEARLY);
    rig.readout.set_being_read(rig.now, 1, false);
    rig.wait(10 * SOURCE_TIMEOUT);
    assert_eq!(rig.numbers(), [0; 0]);
    rig.readout.set_being_read(rig.now, 1, true);
    rig.poll();
    assert_eq!(rig.numbers(), [0; 0]);
    assert_eq!(rig.readout.next_deadline(), Some(rig.now.after(REST)));
    rig.wait(REST);
    assert_eq!(rig.missing(key(1)), [(1, Cause::TimedOut)]);
}

#[test]
fn nothing_times_out_while_no_source_has_anything() {
    let mut rig = Rig::started(config(2));
    rig.wait(10 * SOURCE_TIMEOUT);
    rig.feed(0, [1]);
    assert_eq!(rig.numbers(), [0; 0], "the clock starts when the event does");
    rig.wait(NEARLY);
    rig.feed(1, [1]);
    assert_eq!(rig.missing(key(1)), []);
}

#[test]
fn nothing_times_out_while_the_table_is_full() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=16);
    rig.feed(1, 1..=16);
    rig.feed(0, 17..=32);
    rig.feed(1, 17..=32);
    rig.feed(0, [33]);
    rig.wait(100 * SOURCE_TIMEOUT);
    assert_eq!(rig.settled, key(32));
    rig.release(key(1), 8, Outcome::Complete);
    assert_eq!(rig.readout.next_deadline(), Some(rig.now.after(SOURCE_TIMEOUT)), "now there is room");
    rig.wait(NEARLY);
    rig.feed(1, [33]);
    assert_eq!(rig.missing(key(33)), []);
}

#[test]
fn each_event_has_its_own_clock() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=10);
    for number in 1..=10 {
        rig.wait(NEARLY);
        rig.feed(1, [number]);
    }
    assert_eq!(rig.numbers().len(), 10);
    assert!((1..=10).all(|number| rig.missing(key(number)).is_empty()), "slow, but never absent");
}

#[test]
fn a_source_a_thousand_times_slower_holds_the_fast_ones_back_and_loses_nothing() {
    let mut rig = Rig::started(config(3));
    let (mut sent, mut lead) = ([0_u64; 2], 0);
    for slow in 1..=40 {
        for _ in 0..1000 {
            for (source, sent) in sent.iter_mut().enumerate() {
                let room = rig.readout.room(source).min(1) as u64;
                rig.readout.set_being_read(rig.now, source, room > 0);
                rig.feed(source, *sent + 1..=*sent + room);
                *sent += room;
            }
            rig.wait(SOURCE_TIMEOUT / 2000);
        }
        lead = lead.max(sent[0] - (slow - 1));
        rig.feed(2, [slow]);
        rig.release(key(slow), 1, Outcome::Complete);
    }
    assert_eq!(lead, 16, "exactly the window");
    let total = rig.readout.total();
    assert_eq!((total.in_complete_events, total.lost()), (120, 0));
}

#[test]
fn a_source_that_never_connected_is_missing_as_timed_out_and_one_that_left_as_disconnected() {
    let mut rig = Rig::new(config(2));
    rig.tell(Message::Start(Start::of_run(key(1))));
    rig.connect(0);
    rig.feed(0, [1]);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.missing(key(1)), [(1, Cause::TimedOut)], "no connection of it has ended");
    rig.connect(1);
    rig.feed(0, [2]);
    rig.feed(1, [2]);
    rig.disconnect(1);
    rig.feed(0, [3]);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.missing(key(3)), [(1, Cause::Disconnected)]);
}

#[test]
fn a_disconnected_source_may_come_back_in_time() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=4);
    rig.feed(1, [1]);
    rig.disconnect(1);
    rig.wait(NEARLY);
    rig.connect(1);
    rig.feed(1, [2, 3]);
    rig.disconnect(1);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.settled, key(4));
    assert_eq!(rig.missing(key(3)), []);
    assert_eq!(rig.missing(key(4)), [(1, Cause::Disconnected)]);
    rig.connect(1);
    rig.feed(1, [5]);
    rig.feed(0, [5]);
    assert_eq!(rig.missing(key(5)), []);
    let report: Vec<_> = rig.readout.report(rig.now).filter(|entry| entry.source == Some(SourceId(1))).collect();
    let reported = |counter| report.iter().find(|entry| entry.as_counter() == Some(counter)).map(|entry| entry.value);
    assert_eq!(reported(ropewalk_terms::Counter::SourceConnections), Some(3));
    assert_eq!(reported(ropewalk_terms::Counter::SourceDisconnections), Some(2));
}

#[test]
fn a_source_whose_close_is_its_end_is_waited_for_no_longer() {
    let mut settings = config(2);
    settings.sources[1].on_close = OnClose::End;
    let mut rig = Rig::started(settings);
    rig.feed(1, [1]);
    rig.feed(0, 1..=3);
    assert_eq!(rig.settled, key(1));
    rig.disconnect(1);
    assert_eq!(rig.settled, key(3));
    assert_eq!(rig.missing(key(2)), [(1, Cause::Disconnected)]);
}

#[test]
fn what_a_source_left_waiting_when_it_ended_is_still_taken() {
    let mut settings = config(2);
    settings.sources[1].on_close = OnClose::End;
    let mut rig = Rig::started(settings);
    rig.feed(1, 1..=20);
    rig.disconnect(1);
    rig.feed(0, 1..=16);
    rig.feed(0, 17..=21);
    assert_eq!(rig.numbers(), (1..=21).collect::<Vec<_>>());
    assert_eq!(rig.missing(key(20)), []);
    assert_eq!(rig.missing(key(21)), [(1, Cause::Disconnected)]);
}

#[test]
fn what_two_sources_left_waiting_is_taken_in_the_order_of_events() {
    let mut settings = config(3);
    settings.sources.iter_mut().for_each(|source| source.on_close = OnClose::End);
    let mut rig = Rig::started(settings);
    rig.feed(0, [30]);
    rig.feed(1, [20]);
    rig.disconnect(0);
    rig.disconnect(1);
    rig.feed(2, [40]);
    assert_eq!((rig.numbers(), rig.settled), (vec![20, 30, 40], key(40)));
    assert_eq!(rig.readout.total().lost(), 0);
    rig.disconnect(2);
    assert_eq!(rig.settled, EventKey::MAX);
}

#[test]
fn nothing_is_said_to_be_all_while_something_waits() {
    let mut settings = config(1);
    settings.sources[0].on_close = OnClose::End;
    let mut rig = Rig::started(settings);
    rig.feed(0, [1, 300]);
    rig.disconnect(0);
    assert_eq!(rig.settled, key(299));
    rig.release(key(1), 1, Outcome::Complete);
    assert_eq!((rig.numbers(), rig.settled), (vec![1, 300], EventKey::MAX));
    (rig.held, rig.settled) = (Vec::new(), EventKey::MIN);
    rig.tell(Message::Recover);
    assert_eq!((rig.numbers(), rig.settled), (vec![300], EventKey::MAX), "a new event manager gets it again");
}

#[test]
fn a_source_that_was_given_up_and_jumped_ahead_is_waited_for_again() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=3);
    rig.wait(SOURCE_TIMEOUT);
    rig.feed(1, [40]);
    rig.release(key(1), 3, Outcome::IncompleteEmitted);
    rig.feed(0, [40, 41]);
    assert_eq!(rig.settled, key(40), "event 41 waits for source 1");
}

#[test]
fn a_jump_ahead_is_taken_from_the_only_source() {
    let mut settings = config(2);
    settings.sources[1].requirement = Requirement::Optional;
    let mut rig = Rig::started(settings);
    rig.feed(1, [1]);
    rig.wait(SOURCE_TIMEOUT);
    rig.release(key(1), 1, Outcome::IncompleteEmitted);
    rig.feed(1, [200]);
    assert_eq!(rig.numbers(), [1, 200]);
}

#[test]
fn when_all_sources_have_ended_everything_is_settled() {
    let mut settings = config(2);
    settings.sources.iter_mut().for_each(|source| source.on_close = OnClose::End);
    let mut rig = Rig::started(settings);
    rig.feed(0, 1..=3);
    rig.feed(1, 1..=2);
    rig.disconnect(1);
    assert_eq!(rig.settled, key(3));
    rig.disconnect(0);
    assert_eq!((rig.settled, rig.numbers()), (EventKey::MAX, vec![1, 2, 3]));
    rig.connect(0);
    rig.feed(0, [4]);
    assert_eq!(rig.account(0).late, 1, "it was said that nothing more comes");
    rig.disconnect(0);
    rig.release(key(1), 3, Outcome::Complete);
    (rig.held, rig.settled) = (Vec::new(), EventKey::MIN);
    rig.tell(Message::Recover);
    assert_eq!((rig.settled, rig.numbers()), (EventKey::MAX, vec![]));
}

#[test]
fn a_source_that_ended_and_is_back_may_still_bring_something() {
    let mut settings = config(2);
    settings.sources.iter_mut().for_each(|source| source.on_close = OnClose::End);
    let mut rig = Rig::started(settings);
    rig.feed(0, [1]);
    rig.feed(1, [1]);
    rig.disconnect(0);
    rig.connect(0);
    rig.disconnect(1);
    assert_eq!(rig.settled, key(1));
    rig.feed(0, [2]);
    assert_eq!(rig.missing(key(2)), [(1, Cause::Disconnected)]);
}

/// None of its sources has shown the event, and they are silent: the event manager knows of it from other readout
/// units.
#[test]
fn an_event_that_exists_elsewhere_is_waited_for_with_the_usual_patience() {
    let mut rig = Rig::started(config(2));
    rig.tell(Message::Highest(key(3)));
    rig.wait(NEARLY);
    assert_eq!(rig.settled, EventKey::MIN);
    rig.feed(0, [1]);
    rig.feed(1, [1]);
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!((rig.settled, rig.numbers()), (key(3), vec![1]));
}

#[test]
fn each_event_had_a_fragment_of_each_source_or_none_for_a_cause() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=10);
    rig.feed(1, [1, 2, 5]);
    rig.wait(SOURCE_TIMEOUT);
    rig.release(key(1), 2, Outcome::Complete);
    rig.release(key(3), 4, Outcome::IncompleteEmitted);
    rig.release(key(7), 4, Outcome::Dropped(Cause::IncompletePolicy));
    let (whole, broken) = (rig.account(0), rig.account(1));
    assert_eq!(broken.missing.iter().collect::<Vec<_>>(), [(Cause::Skipped, 2), (Cause::TimedOut, 5)]);
    assert_eq!((whole.missing.total(), whole.in_dropped_events), (0, 4));
    assert_eq!((whole.expected(), broken.expected()), (10, 10));
}

#[test]
fn what_is_in_no_record_is_a_gap_of_each_source_that_had_it() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=10);
    rig.feed(1, [1, 2, 5, 6, 7, 8, 9, 10]);
    rig.release(key(8), 1, Outcome::Complete);
    rig.release(key(5), 2, Outcome::Dropped(Cause::TooLarge));
    rig.release(key(2), 2, Outcome::Dropped(Cause::TooLarge));
    assert_eq!((rig.gaps(0), rig.gaps(1)), (vec![(2, 3, 2), (5, 6, 2)], vec![(2, 6, 5)]));
    assert_eq!(rig.account(1).dropped.get(Cause::TooLarge), 3);
    rig.check_ledger();
}

#[test]
fn a_time_out_that_is_changed_holds_for_what_waits_already() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, [1, 2]);
    rig.wait(SOURCE_TIMEOUT / 2);
    let set = |time: Duration| {
        let value = time.as_nanos() as u64;
        Message::Set(Setting { parameter: Parameter::SourceTimeout, of: 0, value })
    };
    rig.tell(set(SOURCE_TIMEOUT * 3));
    rig.wait(SOURCE_TIMEOUT);
    assert_eq!(rig.settled, EventKey::MIN);
    rig.tell(set(SOURCE_TIMEOUT));
    assert_eq!(rig.settled, key(2), "it has waited for longer than that already");
    rig.others.clear();
    (rig.held, rig.settled) = (Vec::new(), EventKey::MIN);
    rig.tell(Message::Recover);
    assert_eq!(rig.others, [set(SOURCE_TIMEOUT)], "a new event manager hears of it");
}

fn second(number: u64) -> EventKey {
    EventKey::new(1, number)
}

fn declare(rig: &mut Rig, count: u16) {
    rig.tell(Message::Resync(Resync { first: EventKey::new(count, 1) }));
}

fn with_trigger_elsewhere() -> Rig {
    Rig::started(ReadoutConfig { trigger_elsewhere: true, ..config(2) })
}

#[test]
fn the_trigger_source_declares_and_the_others_follow() {
    let mut rig = Rig::started(ReadoutConfig { trigger: Some(SourceId(0)), ..config(2) });
    rig.feed(0, [1, 2, 1, 2]);
    assert_eq!(rig.settled, EventKey::MIN, "source 1 is still in the old count, and waited for");
    rig.feed(1, [1, 2]);
    assert_eq!(rig.settled, key(2));
    rig.feed(1, [1, 2]);
    let keys: Vec<_> = rig.held.iter().map(|entry| entry.key).collect();
    assert_eq!(keys, [key(1), key(2), second(1), second(2)]);
    assert!(rig.held.iter().all(|entry| entry.fragments == 2));
    declare(&mut rig, 1);
    rig.feed(0, [3]);
    rig.feed(1, [3]);
    assert_eq!(rig.settled, second(3));
    rig.wait(RESYNC_TIMEOUT);
    rig.feed(0, [4]);
    rig.feed(1, [4]);
    assert_eq!(rig.settled, second(4), "the event manager's echo declared nothing new");
}

#[test]
fn a_restart_can_be_said_with_any_number() {
    let mut rig = Rig::started(ReadoutConfig { trigger: Some(SourceId(0)), ..config(2) });
    rig.feed(0, [1, 2]);
    rig.feed_restart(0, 3);
    rig.feed(1, [1, 2]);
    rig.feed_restart(1, 3);
    assert_eq!(rig.held.last().map(|entry| (entry.key, entry.fragments)), Some((second(3), 2)));
}

#[test]
fn a_source_that_restarts_first_waits_for_the_declaration_unread() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, 1..=3);
    rig.feed(1, 1..=3);
    rig.feed(0, [1, 2]);
    assert_eq!((rig.readout.room(0), rig.account(0).in_flight), (0, 5));
    rig.feed(1, [1, 2]);
    rig.wait(RESYNC_TIMEOUT / 2);
    assert_eq!(rig.settled, key(3));
    declare(&mut rig, 1);
    assert_eq!(rig.settled, second(2));
    assert_eq!(rig.held.len(), 5);
    assert!(rig.readout.room(0) > 0);
}

#[test]
fn the_old_count_is_finished_before_the_new_one_begins() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, 1..=3);
    rig.feed(0, [1]);
    declare(&mut rig, 1);
    rig.feed(1, 1..=2);
    assert_eq!(rig.settled, key(2));
    rig.feed(1, [1]);
    assert_eq!(rig.missing(key(3)), [(1, Cause::Skipped)]);
    assert_eq!(rig.missing(second(1)), []);
    assert_eq!(rig.settled, second(1));
}

#[test]
fn an_undeclared_restart_is_out_of_sync() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, 1..=3);
    rig.feed(1, 1..=5);
    rig.feed(0, [1, 2]);
    assert_eq!(rig.settled, key(5), "nothing more comes in the old count");
    assert_eq!(rig.readout.next_deadline(), Some(rig.now.after(RESYNC_TIMEOUT)));
    rig.release(key(1), 5, Outcome::Complete);
    rig.wait(RESYNC_TIMEOUT);
    assert_eq!(rig.account(0).dropped.get(Cause::OutOfSync), 2);
    assert!(rig.readout.room(0) > 0, "it is read again, and what it sends is dropped");
    rig.feed(0, 3..=6);
    assert_eq!(rig.account(0).dropped.get(Cause::OutOfSync), 6);
    rig.feed(1, [6]);
    assert_eq!(rig.missing(key(6)), [(0, Cause::OutOfSync)]);
}

/// The reader of the source polls its room; no other action tells it that there is room.
#[test]
fn a_source_that_waited_too_long_for_a_declaration_has_room_by_the_clock_alone() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, [1, 2, 1]);
    rig.feed(1, [1, 2]);
    rig.release(key(1), 2, Outcome::Complete);
    assert_eq!(rig.readout.room(0), 0);
    rig.now = rig.now.after(RESYNC_TIMEOUT);
    rig.readout.pass_time(rig.now);
    assert!(rig.readout.room(0) > 0);
    assert_eq!(rig.readout.poll(rig.now), None);
}

#[test]
fn out_of_sync_ends_with_the_next_declared_resynchronisation() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, [1, 2, 1]);
    rig.feed(1, [1, 2, 3]);
    rig.release(key(1), 3, Outcome::Complete);
    rig.wait(RESYNC_TIMEOUT);
    rig.feed(0, [1]);
    rig.feed(1, [1]);
    declare(&mut rig, 1);
    assert_eq!(rig.held.last().map(|entry| (entry.key, entry.fragments)), Some((second(1), 2)));
}

#[test]
fn without_a_trigger_source_any_restart_is_out_of_sync() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=3);
    rig.feed(0, 1..=3);
    rig.feed(1, 1..=4);
    assert_eq!((rig.account(0).dropped.get(Cause::OutOfSync), rig.settled), (3, key(4)));
    assert_eq!(rig.missing(key(4)), [(0, Cause::OutOfSync)]);
}

#[test]
fn a_source_that_comes_back_must_go_on_where_it_was() {
    let mut rig = Rig::started(config(2));
    rig.feed(0, 1..=3);
    rig.disconnect(0);
    rig.connect(0);
    rig.feed(0, 1..=3);
    assert_eq!(rig.account(0).dropped.get(Cause::OutOfSync), 3);
    rig.feed(1, 1..=5);
    assert_eq!(rig.settled, key(5));
    rig.disconnect(0);
    rig.connect(0);
    rig.feed(0, [6]);
    rig.feed(1, [6]);
    assert_eq!(rig.missing(key(6)), [], "with an id that goes on it takes part again");
}

#[test]
fn a_source_that_does_not_follow_is_left_behind() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, [1, 2, 1]);
    rig.feed(1, [1, 2]);
    declare(&mut rig, 1);
    rig.feed(1, [3, 4]);
    assert_eq!(rig.settled, key(4), "it may be about to follow");
    rig.wait(RESYNC_TIMEOUT);
    assert_eq!(rig.settled, second(1));
    assert_eq!(rig.missing(second(1)), [(1, Cause::OutOfSync)]);
    rig.feed(1, [5, 6]);
    assert_eq!(rig.account(1).dropped.get(Cause::OutOfSync), 2);
}

/// Its sources send everything from the run's beginning on, as if they had not been read before.
#[test]
fn the_run_s_first_number_is_no_restart_in_a_readout_unit_that_begins_later_than_the_run() {
    let mut rig = Rig::new(ReadoutConfig { trigger: Some(SourceId(0)), ..config(2) });
    rig.connect(0);
    rig.connect(1);
    rig.tell(Message::Start(Start { first: key(4), origin: key(1) }));
    for source in [0, 1] {
        rig.feed(source, [1, 2, 3, 4, 1]);
    }
    let keys: Vec<_> = rig.held.iter().map(|entry| (entry.key, entry.fragments)).collect();
    assert_eq!(keys, [(key(4), 2), (second(1), 2)]);
    assert_eq!((rig.account(0).stale, rig.account(1).stale), (3, 3));
}

/// Back-pressure is not absence.
#[test]
fn a_source_that_is_not_read_is_not_left_behind() {
    for follows in [true, false] {
        let mut rig = with_trigger_elsewhere();
        rig.feed(0, [1, 2, 1]);
        rig.feed(1, [1]);
        rig.readout.set_being_read(rig.now, 1, false);
        declare(&mut rig, 1);
        rig.wait(2 * RESYNC_TIMEOUT);
        assert_eq!(rig.settled, key(1));
        rig.readout.set_being_read(rig.now, 1, true);
        rig.feed(1, [2]);
        if follows {
            rig.feed(1, [1]);
            assert_eq!(rig.missing(second(1)), []);
        } else {
            rig.wait(RESYNC_TIMEOUT);
            assert_eq!(rig.missing(second(1)), [(1, Cause::OutOfSync)]);
        }
    }
}

/// The trigger source may be unread in another readout unit, which holds the same events.
#[test]
fn the_wait_for_a_declaration_counts_from_when_everything_is_released() {
    for is_declared in [true, false] {
        let mut rig = with_trigger_elsewhere();
        rig.feed(0, [1, 2, 3, 1]);
        rig.feed(1, [1, 2, 3, 1]);
        rig.release(key(1), 2, Outcome::Complete);
        rig.wait(RESYNC_TIMEOUT);
        rig.wait(RESYNC_TIMEOUT / 2);
        rig.release(key(3), 1, Outcome::Complete);
        rig.wait(RESYNC_TIMEOUT / 4);
        if is_declared {
            declare(&mut rig, 1);
            assert_eq!(rig.missing(second(1)), []);
        } else {
            rig.wait(RESYNC_TIMEOUT);
            assert_eq!(rig.account(0).dropped.get(Cause::OutOfSync), 1);
        }
    }
}

#[test]
fn a_source_that_was_given_up_may_follow_later() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, [1, 2]);
    rig.wait(SOURCE_TIMEOUT);
    rig.feed(0, [1]);
    declare(&mut rig, 1);
    assert_eq!(rig.settled, second(1));
    rig.feed(1, [1, 2]);
    assert_eq!(rig.account(1).late, 1, "id 1 is the first of both counts: event 1 of the new one is settled");
    rig.feed(0, [2]);
    assert_eq!(rig.missing(second(2)), []);
}

#[test]
fn a_source_that_was_given_up_and_restarted_is_waited_for_in_the_new_count() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, 1..=3);
    rig.feed(1, 1..=2);
    rig.wait(SOURCE_TIMEOUT);
    rig.feed(1, [1]);
    rig.feed(0, [1]);
    declare(&mut rig, 1);
    rig.feed(0, [2]);
    assert_eq!(rig.settled, second(1));
    rig.feed(1, [2]);
    assert_eq!(rig.missing(second(2)), []);
}

#[test]
fn what_comes_late_of_the_old_count_does_not_join_the_new_one() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, 1..=9);
    rig.feed(1, 1..=5);
    rig.wait(SOURCE_TIMEOUT);
    rig.feed(0, [1]);
    declare(&mut rig, 1);
    rig.feed(1, [3]);
    assert_eq!(rig.account(1).late, 1);
    rig.feed(1, [1, 2]);
    rig.feed(0, [2]);
    assert_eq!(rig.missing(second(2)), []);
}

#[test]
fn out_of_sync_in_the_new_count_ends_with_a_new_connection_as_well() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, [1, 2, 1]);
    rig.feed(1, [1, 2, 1]);
    declare(&mut rig, 1);
    rig.feed(0, [2, 1]);
    rig.feed(1, [2]);
    rig.release(key(1), 2, Outcome::Complete);
    rig.release(second(1), 2, Outcome::Complete);
    rig.wait(RESYNC_TIMEOUT);
    rig.disconnect(0);
    rig.connect(0);
    rig.feed(0, [3]);
    rig.feed(1, [3]);
    assert_eq!(rig.missing(second(3)), []);
}

#[test]
fn a_source_that_comes_back_in_the_new_count_joins_it() {
    let mut rig = with_trigger_elsewhere();
    rig.feed(0, 1..=9);
    rig.feed(1, 1..=9);
    rig.disconnect(1);
    rig.feed(0, [1]);
    declare(&mut rig, 1);
    rig.wait(RESYNC_TIMEOUT);
    rig.connect(1);
    rig.feed(1, [3]);
    rig.feed(0, [2, 3]);
    assert_eq!(rig.missing(second(3)), []);
    assert_eq!(rig.missing(second(2)), [(1, Cause::Skipped)]);
}

#[test]
fn resynchronisations_may_follow_each_other_quickly() {
    let mut rig = Rig::started(ReadoutConfig { trigger: Some(SourceId(0)), ..config(2) });
    rig.feed(0, [1, 2, 1, 2, 1]);
    rig.feed(1, [1, 2, 1, 2, 1]);
    let counts: Vec<_> =
        rig.held.iter().map(|entry| (entry.key.resync(), entry.key.number(), entry.fragments)).collect();
    assert_eq!(counts, [(0, 1, 2), (0, 2, 2), (1, 1, 2), (1, 2, 2), (2, 1, 2)]);
}

#[test]
fn releases_and_requests_reach_both_counts() {
    let mut rig = Rig::started(ReadoutConfig { trigger: Some(SourceId(0)), ..config(1) });
    rig.feed(0, [1, 2, 1, 2]);
    rig.request(0, &[key(2), second(1), key(3)]);
    let not_held: Vec<_> = rig.answers.iter().map(|(_, entry)| entry.not_held).collect();
    assert_eq!(not_held, [None, None, Some(Cause::NotHeld)]);
    rig.release(key(1), 9, Outcome::Complete);
    assert_eq!(rig.account(0).in_complete_events, 2);
    rig.release(second(1), 9, Outcome::Complete);
    assert_eq!(rig.account(0).in_complete_events, 4);
}

#[test]
fn counts_that_are_all_still_held_make_the_next_one_wait() {
    let mut rig = Rig::started(ReadoutConfig { trigger: Some(SourceId(0)), ..config(1) });
    for _ in 0..10 {
        rig.feed(0, [1, 2]);
    }
    assert_eq!((rig.held.len(), rig.settled), (16, EventKey::new(7, 2)));
    assert_eq!(rig.readout.room(0), 0);
    rig.release(key(1), 2, Outcome::Complete);
    assert_eq!(rig.settled, EventKey::new(8, 2));
    rig.release(second(1), 2, Outcome::Complete);
    assert_eq!(rig.held.last().map(|entry| entry.key), Some(EventKey::new(9, 2)));
}

/// Each single number could be a repetition.
#[test]
fn a_count_that_begins_with_fewer_fragments_than_a_doubt_awaits_begins_with_the_first() {
    for starts in 3..=5 {
        let mut rig = Rig::doubting(ReadoutConfig { trigger: Some(SourceId(0)), ..config(2) }).start();
        let feed = |rig: &mut Rig, number| (0..2).for_each(|source| rig.feed(source, [number]));
        (1..=starts).for_each(|number| feed(&mut rig, number));
        for number in 1..=starts + 2 {
            feed(&mut rig, number);
            // A doubt lasts for half the source time-out.
            for _ in 0..6 {
                rig.wait(SOURCE_TIMEOUT / 10);
            }
        }
        let keys: Vec<_> = rig.held.iter().map(|entry| entry.key).collect();
        let expected: Vec<_> = (1..=starts).map(key).chain((1..=starts + 2).map(second)).collect();
        assert_eq!(keys, expected, "{:?}", rig.account(0));
        assert!(rig.held.iter().all(|entry| entry.fragments == 2));
    }
}

#[test]
fn a_first_number_that_came_twice_begins_no_count() {
    let mut rig = Rig::doubting(ReadoutConfig { trigger: Some(SourceId(0)), ..config(2) }).start();
    for source in 0..2 {
        rig.feed(source, [1, 2, 3]);
    }
    rig.feed(1, [1]);
    rig.wait(SOURCE_TIMEOUT / 2);
    rig.wait(SOURCE_TIMEOUT / 2);
    for source in 0..2 {
        rig.feed(source, [4, 5]);
    }
    assert_eq!((rig.numbers(), rig.account(1).duplicate), (vec![1, 2, 3, 4, 5], 1));
}
