//! Counters that start again, with and without a declaration.

use super::*;

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
fn who_restarts_first_waits_for_the_declaration_unread() {
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
fn a_restart_that_nobody_declares_is_out_of_sync() {
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

/// Whoever reads the source asks for room, and nothing is to be done that would make him ask.
#[test]
fn who_waited_too_long_for_a_declaration_has_room_by_the_clock_alone() {
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

/// Its sources say everything from the run's beginning on, as where they were not read before.
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

/// The trigger source may be unread elsewhere: there the same events are held.
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

/// Each lone number could be one that came twice.
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
