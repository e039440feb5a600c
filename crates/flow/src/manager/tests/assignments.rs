//! The path of an event: when its key is settled, which builder unit gets it, when it is released, and the effects of
//! silent or lost nodes.

use super::{DRAIN_TIMEOUT, EVENT_TIMEOUT, Hand, announced, assigned, config, key, released, to};
use crate::manager::{AssignPolicy, ManagerConfig};
use crate::messages::{Message, ReadoutState, Report, Resync, Start};
use core::time::Duration;
use ropewalk_terms::{Cause, EventKey, NodeId, Outcome};

const BUILT_WITHOUT: Outcome = Outcome::Dropped(Cause::BuiltWithout);
const NO_TRIGGER: Outcome = Outcome::Dropped(Cause::NoTrigger);

fn with_trigger(readout: u16) -> ManagerConfig {
    ManagerConfig { trigger_readout: Some(readout), ..config(2, 1) }
}

#[test]
fn a_key_is_assigned_when_all_readout_units_have_settled_it_and_one_announced_it() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 3, [1, 3]);
    assert_eq!(hand.assigned(), []);
    hand.announce(1, 2, [1]);
    assert_eq!(hand.assigned(), [(0, 1, 1)]);
    hand.announce(1, 5, []);
    assert_eq!(hand.assigned(), [(0, 3, 1)]);
    assert_eq!(hand.manager.account().assigned, 2);
}

#[test]
fn the_largest_key_is_no_events_and_is_given_back() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce_entries(0, key(1), &[announced(key(1), true), announced(EventKey::MAX, true)]);
    let sent = hand.sent();
    assert_eq!(released(&sent, 0), [(EventKey::MAX, 1, Outcome::Dropped(Cause::ImplausibleJump))]);
    hand.pass(EVENT_TIMEOUT);
    assert_eq!(hand.assigned(), [(0, 1, 1)], "and the manager comes to rest");
}

#[test]
fn bytes_of_all_readout_units_are_added_up_once() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 1, [1]);
    hand.announce(0, 1, [1]);
    hand.announce(1, 1, [1]);
    let sent = hand.sent();
    let Message::Assign(assign) = &to(&sent, NodeId::builder(0))[0] else { panic!("an assignment") };
    assert_eq!(assign.entries[0].bytes, 200);
}

#[test]
fn without_the_trigger_an_event_is_not_built_but_released() {
    let mut hand = Hand::running(with_trigger(1));
    hand.announce_entries(0, key(3), &[announced(key(1), false), announced(key(2), false), announced(key(3), false)]);
    assert!(hand.sent().is_empty());
    hand.announce_entries(1, key(3), &[announced(key(2), true), announced(key(3), false)]);
    let sent = hand.sent();
    assert_eq!(assigned(&sent), [(0, 2, 1)]);
    assert_eq!(released(&sent, 0), [(key(1), 1, NO_TRIGGER), (key(3), 1, NO_TRIGGER)]);
    assert_eq!(hand.manager.counts().unassigned.get(Cause::NoTrigger), 2);
    assert_eq!(hand.manager.account().assigned, 1);
}

#[test]
fn a_silent_readout_unit_is_left_out_after_the_time_out_and_not_before() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 2, [1, 2]);
    assert!(hand.sent().is_empty());
    let begin = hand.now;
    hand.pass(EVENT_TIMEOUT / 8);
    assert_eq!(to(&hand.sent(), NodeId::readout(1)), [Message::Highest(key(2))]);
    let deadline = hand.manager.next_deadline().expect("a readout unit is waited for");
    assert_eq!(deadline, begin.after(EVENT_TIMEOUT));
    hand.pass(deadline.since(hand.now) - Duration::from_millis(1));
    assert!(hand.sent().is_empty());
    hand.pass(Duration::from_millis(1));
    assert_eq!(hand.assigned(), [(0, 1, 1), (0, 2, 1)]);
    assert_eq!(hand.manager.counts().left_out, 2);
    // Its later announcements are too late only for events that are over.
    hand.lack(0, &[(1, 1, 1)]);
    hand.acknowledge(0, 1, 1, Outcome::IncompleteEmitted);
    hand.sent();
    hand.announce(1, 2, [1, 2]);
    assert_eq!(released(&hand.sent(), 1), [(key(1), 1, BUILT_WITHOUT)]);
}

/// It was stopped while a builder unit asked it: its fragments arrived, but no record has them.
#[test]
fn a_readout_unit_that_did_not_answer_learns_that_its_fragments_are_in_no_record() {
    let mut hand = Hand::running(config(3, 2));
    (0..3).for_each(|readout| hand.announce(readout, 6, 1..=6));
    let all: Vec<_> = hand.assigned();
    assert_eq!(all.len(), 6);
    // Reports of another builder unit, or about another attempt, do not count.
    hand.lack(0, &[(1, 1, 1), (1, 1, 2), (2, 7, 0), (3, 1, 1)]);
    hand.lack(1, &[(3, 1, 0)]);
    for (builder, number, attempt) in all {
        let outcome = if number == 1 || number == 3 { Outcome::IncompleteEmitted } else { Outcome::Complete };
        hand.acknowledge(builder, number, attempt, outcome);
    }
    let sent = hand.sent();
    let (whole, part) = (Outcome::Complete, Outcome::IncompleteEmitted);
    assert_eq!(released(&sent, 0), [(key(1), 1, part), (key(2), 1, whole), (key(3), 1, part), (key(4), 3, whole)]);
    assert_eq!(
        released(&sent, 1),
        [(key(1), 1, BUILT_WITHOUT), (key(2), 1, whole), (key(3), 1, BUILT_WITHOUT), (key(4), 3, whole)]
    );
    assert_eq!(released(&sent, 2)[0], (key(1), 1, BUILT_WITHOUT));
    // The release was lost with the connection, and repeated announcements get the same outcome.
    hand.say(NodeId::readout(1), &Message::Highest(key(6)));
    hand.announce(1, 6, [1, 2, 3]);
    let again = [(key(1), 1, BUILT_WITHOUT), (key(2), 1, whole), (key(3), 1, BUILT_WITHOUT)];
    assert_eq!(released(&hand.sent(), 1), again);
}

/// A builder unit got its fragments before the event manager received its announcement.
#[test]
fn a_readout_unit_whose_answer_was_built_in_learns_it_even_if_its_announcement_comes_late() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 1, [1]);
    hand.pass(EVENT_TIMEOUT);
    assert_eq!(hand.assigned(), [(0, 1, 1)]);
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    hand.sent();
    hand.announce(1, 1, [1]);
    assert_eq!(released(&hand.sent(), 1), [(key(1), 1, Outcome::Complete)]);
}

#[test]
fn an_unreachable_readout_unit_gets_the_longer_time_out_and_a_fresh_one_when_it_is_back() {
    let unreachable_timeout = 20 * EVENT_TIMEOUT;
    let mut hand = Hand::running(ManagerConfig { unreachable_timeout, ..config(2, 1) });
    let report = Message::Report(Report::default());
    hand.announce(0, 2, [1, 2]);
    let begin = hand.now;
    for _ in 0..4 {
        hand.pass(EVENT_TIMEOUT);
        hand.say(NodeId::readout(0), &report);
        assert_eq!(hand.assigned(), []);
    }
    assert_eq!(hand.manager.unreachable().collect::<Vec<_>>(), [NodeId::readout(1)]);
    assert_eq!(hand.manager.next_deadline(), Some(begin.after(unreachable_timeout)));
    hand.say(NodeId::readout(1), &report);
    assert_eq!(hand.assigned(), [], "what it has to say is on its way");
    assert_eq!(hand.manager.unreachable().count(), 0);
    for _ in 0..3 {
        hand.pass(EVENT_TIMEOUT / 4);
        assert_eq!(hand.assigned(), []);
        hand.say(NodeId::readout(1), &report);
    }
    hand.pass(EVENT_TIMEOUT / 4);
    assert_eq!(hand.assigned(), [(0, 1, 1), (0, 2, 1)], "it is there, and says nothing about them");
    hand.announce(0, 3, [3]);
    hand.pass(unreachable_timeout - Duration::from_millis(1));
    assert_eq!(hand.assigned(), []);
    hand.pass(Duration::from_millis(1));
    assert_eq!(hand.assigned(), [(0, 3, 1)], "in the end it is given up");
}

#[test]
fn the_clock_is_that_of_the_oldest_event_even_if_it_was_announced_later() {
    let mut hand = Hand::running(config(3, 1));
    hand.announce(0, 5, [5]);
    hand.pass(EVENT_TIMEOUT / 2);
    hand.announce(1, 5, [3]);
    hand.pass(EVENT_TIMEOUT / 2);
    assert_eq!(hand.assigned(), []);
    hand.pass(EVENT_TIMEOUT / 2);
    assert_eq!(hand.assigned(), [(0, 3, 1), (0, 5, 1)]);
}

#[test]
fn a_readout_unit_that_holds_something_may_be_silent_because_it_is_full() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(1, 1, [1]);
    hand.announce(0, 2, [1, 2]);
    assert_eq!(hand.assigned(), [(0, 1, 1)]);
    // Key 1 is not released: ru1 may wait for that, for any delay of the disk.
    hand.pass(10 * EVENT_TIMEOUT);
    assert_eq!(hand.assigned(), []);
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    assert_eq!(assigned(&hand.sent()), []);
    hand.pass(EVENT_TIMEOUT);
    assert_eq!(hand.assigned(), [(0, 2, 1)]);
}

#[test]
fn a_slow_readout_unit_is_not_silent() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 9, 1..=9);
    for number in 1..=9 {
        hand.pass(EVENT_TIMEOUT - Duration::from_millis(1));
        assert_eq!(hand.assigned(), []);
        hand.announce(1, number, [number]);
        assert_eq!(hand.assigned(), [(0, number, 1)]);
        hand.acknowledge(0, number, 1, Outcome::Complete);
        hand.sent();
    }
    assert_eq!(hand.manager.counts().left_out, 0);
}

#[test]
fn a_lost_readout_unit_is_not_waited_for_and_builders_know_before_they_get_more() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 2, [1, 2]);
    assert!(hand.sent().is_empty());
    hand.lose(NodeId::readout(1));
    let sent = to(&hand.sent(), NodeId::builder(0));
    assert_eq!(sent[0], Message::ReadoutState(ReadoutState { readout: 1, present: false }));
    assert!(matches!(&sent[1], Message::Assign(assign) if assign.entries.len() == 2));
}

#[test]
fn a_readout_unit_that_starts_again_begins_where_the_run_is() {
    let mut hand = Hand::running(config(2, 1));
    for readout in [0, 1] {
        hand.announce(readout, 2, [1, 2]);
    }
    hand.lose(NodeId::readout(1));
    hand.announce(0, 3, [3]);
    hand.sent();
    hand.connect(NodeId::readout(1), 2);
    let sent = hand.sent();
    assert_eq!(to(&sent, NodeId::readout(1)), [Message::Start(Start { first: key(4), origin: key(1) })]);
    assert_eq!(to(&sent, NodeId::builder(0)), [Message::ReadoutState(ReadoutState { readout: 1, present: true })]);
    hand.announce(0, 4, [4]);
    assert_eq!(hand.assigned(), []);
    hand.announce(1, 4, [4]);
    assert_eq!(hand.assigned(), [(0, 4, 1)]);
}

#[test]
fn a_readout_unit_whose_connection_broke_is_asked_and_gets_lost_releases_again() {
    let mut hand = Hand::running(config(2, 1));
    for readout in [0, 1] {
        hand.announce(readout, 2, [1, 2]);
    }
    hand.sent();
    hand.lose(NodeId::readout(1));
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 1), []);
    hand.connect(NodeId::readout(1), 1);
    assert_eq!(to(&hand.sent(), NodeId::readout(1)), [Message::Recover, Message::QueryHighest]);
    hand.announce(1, 2, [1, 2]);
    let sent = hand.sent();
    assert_eq!(released(&sent, 1), [(key(1), 1, Outcome::Complete)]);
    assert_eq!(assigned(&sent), []);
    hand.acknowledge(0, 2, 1, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 1), [(key(2), 1, Outcome::Complete)]);
}

#[test]
fn what_was_announced_into_a_broken_connection_is_not_taken_for_a_gap() {
    let mut hand = Hand::running(config(1, 1));
    hand.lose(NodeId::readout(0));
    hand.connect(NodeId::readout(0), 1);
    hand.sent();
    // 1 and 2 were announced on the old connection. It continues with 3 before it is told to repeat.
    hand.announce(0, 3, [3]);
    assert_eq!(hand.assigned(), []);
    hand.announce(0, 3, 1..=3);
    hand.say(NodeId::readout(0), &Message::Highest(key(3)));
    assert_eq!(hand.assigned(), [(0, 1, 1), (0, 2, 1), (0, 3, 1)]);
}

#[test]
fn keys_outside_the_run_are_refused_by_name() {
    let mut hand = Hand::new(config(1, 1));
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.credit(0, 10, 1 << 20);
    hand.manager.start(hand.now, key(5), Some(key(6)));
    let sent = to(&hand.sent(), NodeId::readout(0));
    assert_eq!(sent, [Message::Start(Start::of_run(key(5))), Message::StopAt(key(6))]);
    hand.announce(0, 8, [4, 5, 6, 7]);
    let sent = hand.sent();
    assert_eq!(assigned(&sent), [(0, 5, 1), (0, 6, 1)]);
    let refused = [(key(4), 1, Outcome::Dropped(Cause::Stale)), (key(7), 1, Outcome::Dropped(Cause::AfterStop))];
    assert_eq!(released(&sent, 0), refused);
}

#[test]
fn announcements_beyond_the_table_wait_and_none_is_lost() {
    let mut hand = Hand::running(config(2, 1));
    // 64 keys wide: ru0 is far ahead, ru1 follows slowly.
    for first in (1..=512).step_by(64) {
        hand.announce(0, first + 63, first..first + 64);
    }
    let mut seen = Vec::new();
    for number in 1..=512 {
        hand.announce(1, number, [number]);
        for (builder, number, attempt) in hand.assigned() {
            seen.push(number);
            hand.acknowledge(builder, number, attempt, Outcome::Complete);
        }
    }
    assert_eq!(seen, (1..=512).collect::<Vec<_>>());
    hand.sent();
    assert_eq!(hand.manager.account().built, 512);
}

#[test]
fn a_gap_wider_than_the_table_is_jumped_over() {
    let mut hand = Hand::running(config(2, 1));
    for readout in [0, 1] {
        hand.announce(readout, 1_000_000, [1, 2, 1_000_000]);
    }
    for (builder, number, attempt) in hand.assigned() {
        hand.acknowledge(builder, number, attempt, Outcome::Complete);
    }
    assert_eq!(hand.assigned(), [(0, 1_000_000, 1)]);
    assert_eq!(hand.manager.account().built, 2);
}

#[test]
fn a_silent_readout_unit_does_not_hold_a_jump_for_ever() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 500, [500]);
    assert!(hand.sent().is_empty());
    hand.pass(EVENT_TIMEOUT);
    assert_eq!(hand.assigned(), [(0, 500, 1)]);
}

#[test]
fn the_trigger_source_declares_a_resynchronisation_and_the_others_learn_of_it() {
    let mut hand = Hand::running(with_trigger(0));
    let restarted = EventKey::new(1, 1);
    hand.announce_entries(0, restarted, &[announced(key(1), true), announced(restarted, true)]);
    let sent = hand.sent();
    assert_eq!(to(&sent, NodeId::readout(1)), [Message::Resync(Resync { first: restarted })]);
    assert_eq!(to(&sent, NodeId::readout(0)), []);
    // ru1 has two keys of the old count: the first was triggered, the second was not.
    let old = [announced(key(1), false), announced(key(2), false), announced(restarted, false)];
    hand.announce_entries(1, restarted, &old);
    let sent = hand.sent();
    assert_eq!(assigned(&sent), [(0, 1, 1), (0, 1, 1)]);
    assert_eq!(released(&sent, 1), [(key(2), 1, NO_TRIGGER)]);
}

/// Its sources have restarted as well, and wait.
#[test]
fn a_readout_unit_that_was_away_learns_of_a_resynchronisation() {
    for life in [1, 2] {
        let mut hand = Hand::running(with_trigger(0));
        let restarted = EventKey::new(1, 1);
        hand.announce(1, 0, []);
        hand.lose(NodeId::readout(1));
        hand.announce_entries(0, restarted, &[announced(restarted, true)]);
        hand.sent();
        hand.connect(NodeId::readout(1), life);
        let sent = to(&hand.sent(), NodeId::readout(1));
        let is_told = sent.contains(&Message::Resync(Resync { first: restarted }));
        // A restarted readout unit begins in the current count.
        let begins = Message::Start(Start { first: restarted.next(), origin: key(1) });
        assert_eq!((is_told, sent.contains(&begins)), (life == 1, life == 2), "{sent:?}");
    }
}

#[test]
fn only_the_trigger_source_declares_a_resynchronisation() {
    let mut hand = Hand::running(with_trigger(0));
    let restarted = EventKey::new(1, 1);
    hand.announce_entries(1, restarted, &[announced(restarted, false)]);
    assert!(hand.sent().is_empty());
    hand.announce_entries(0, restarted, &[announced(restarted, true)]);
    assert_eq!(hand.assigned(), [(0, 1, 1)]);
}

#[test]
fn when_the_trigger_source_is_lost_nothing_waits_for_its_word() {
    let mut hand = Hand::running(with_trigger(0));
    let restarted = EventKey::new(1, 1);
    hand.announce_entries(1, restarted, &[announced(restarted, false)]);
    hand.lose(NodeId::readout(0));
    let sent = hand.sent();
    assert_eq!(assigned(&sent), []);
    assert_eq!(released(&sent, 1), [(restarted, 1, NO_TRIGGER)]);
}

/// Its sources may be silent because they have no trigger, or because they are gone: only others can show which.
#[test]
fn a_readout_unit_that_is_waited_for_learns_which_events_exist() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 7, [5, 6, 7]);
    assert_eq!(to(&hand.sent(), NodeId::readout(1)), []);
    hand.now = hand.now.after(EVENT_TIMEOUT / 8);
    assert_eq!(to(&hand.sent(), NodeId::readout(1)), [Message::Highest(key(7))]);
    hand.now = hand.now.after(EVENT_TIMEOUT / 2);
    assert_eq!(to(&hand.sent(), NodeId::readout(1)), [], "once is enough");
}

/// One readout unit, two builder units.
fn running(batch: usize) -> Hand {
    Hand::running(ManagerConfig { batch, ..config(1, 2) })
}

#[test]
fn consecutive_keys_go_to_one_builder_in_batches() {
    let mut hand = running(3);
    hand.announce(0, 7, 1..=7);
    let expected = [(0, 1, 1), (0, 2, 1), (0, 3, 1), (1, 4, 1), (1, 5, 1), (1, 6, 1), (0, 7, 1)];
    assert_eq!(hand.assigned(), expected);
}

#[test]
fn without_credit_nothing_is_assigned_and_nothing_is_dropped() {
    let mut hand = Hand::new(config(1, 1));
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.manager.start(hand.now, key(1), None);
    hand.announce(0, 3, 1..=3);
    assert_eq!(assigned(&hand.sent()), []);
    hand.credit(0, 2, 1000);
    assert_eq!(hand.assigned(), [(0, 1, 1), (0, 2, 1)]);
    // Repeated, and an older one that was overtaken: nothing changes.
    hand.credit(0, 2, 1000);
    hand.credit(0, 1, 500);
    assert_eq!(hand.assigned(), []);
    hand.credit(0, 3, 1000);
    assert_eq!(hand.assigned(), [(0, 3, 1)]);
}

#[test]
fn bytes_are_a_credit_too_and_an_event_above_all_credit_goes_to_an_idle_builder() {
    let mut hand = Hand::new(config(1, 1));
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.credit(0, 10, 150);
    hand.manager.start(hand.now, key(1), None);
    hand.announce(0, 2, 1..=2);
    assert_eq!(hand.assigned(), [(0, 1, 1)]);
    hand.credit(0, 10, 250);
    assert_eq!(hand.assigned(), [(0, 2, 1)]);
    let huge = crate::messages::AnnounceEntry { key: key(3), bytes: 1_000_000, fragments: 1, triggered: true };
    hand.announce_entries(0, key(3), &[huge]);
    assert_eq!(hand.assigned(), []);
    hand.credit(0, 12, 350);
    assert_eq!(hand.assigned(), [(0, 3, 1)]);
}

#[test]
fn policies_see_credit_and_load() {
    let mut hand = Hand::running(ManagerConfig { policy: AssignPolicy::LeastLoaded, batch: 2, ..config(1, 2) });
    hand.announce(0, 2, 1..=2);
    assert_eq!(hand.assigned(), [(0, 1, 1), (0, 2, 1)]);
    hand.announce(0, 3, [3]);
    assert_eq!(hand.assigned(), [(1, 3, 1)]);
    hand.announce(0, 4, [4]);
    assert_eq!(hand.assigned(), [(1, 4, 1)]);
}

#[test]
fn acknowledged_events_are_released_out_of_order_as_ranges_to_every_readout_unit() {
    let mut hand = Hand::running(config(2, 1));
    for readout in [0, 1] {
        hand.announce(readout, 6, 1..=6);
    }
    hand.sent();
    hand.acknowledge(0, 4, 1, Outcome::Complete);
    hand.acknowledge(0, 5, 1, Outcome::Complete);
    hand.acknowledge(0, 3, 1, Outcome::Complete);
    hand.acknowledge(0, 6, 1, Outcome::IncompleteEmitted);
    hand.acknowledge(0, 2, 1, Outcome::Dropped(Cause::IncompletePolicy));
    let sent = hand.sent();
    let expected = [
        (key(2), 1, Outcome::Dropped(Cause::IncompletePolicy)),
        (key(3), 3, Outcome::Complete),
        (key(6), 1, Outcome::IncompleteEmitted),
    ];
    assert_eq!(released(&sent, 0), expected);
    assert_eq!(released(&sent, 1), expected);
    let account = hand.manager.account();
    assert_eq!((account.built, account.incomplete_emitted, account.in_flight), (3, 1, 1));
    assert_eq!(account.incomplete_dropped.get(Cause::IncompletePolicy), 1);
}

#[test]
fn an_event_is_released_once() {
    let mut hand = running(4);
    hand.announce(0, 1, [1]);
    hand.sent();
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), [(key(1), 1, Outcome::Complete)]);
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    hand.acknowledge(0, 99, 1, Outcome::Complete);
    assert_eq!(hand.sent(), []);
    assert_eq!(hand.manager.counts().stale_acknowledgements, 2);
    assert_eq!(hand.manager.account().built, 1);
}

#[test]
fn what_a_dead_builder_had_is_assigned_again_in_key_order_before_new_events() {
    let mut hand = running(2);
    hand.announce(0, 6, 1..=6);
    hand.sent();
    hand.acknowledge(0, 2, 1, Outcome::Complete);
    hand.lose(NodeId::builder(0));
    hand.announce(0, 8, 7..=8);
    assert_eq!(hand.assigned(), [(1, 1, 2), (1, 5, 2), (1, 6, 2), (1, 7, 1), (1, 8, 1)]);
    assert_eq!(hand.manager.counts().reassigned, 3);
    assert_eq!(hand.manager.account().assigned, 8);
}

#[test]
fn acknowledgements_of_an_older_attempt_are_ignored() {
    let mut hand = running(2);
    hand.announce(0, 1, [1]);
    assert_eq!(hand.assigned(), [(0, 1, 1)]);
    hand.lose(NodeId::builder(0));
    assert_eq!(hand.assigned(), [(1, 1, 2)]);
    hand.connect(NodeId::builder(0), 1);
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), []);
    assert_eq!(hand.manager.counts().stale_acknowledgements, 1);
    hand.acknowledge(1, 1, 2, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), [(key(1), 1, Outcome::Complete)]);
}

#[test]
fn an_older_attempt_of_the_same_builder_is_ignored_too() {
    let mut hand = Hand::running(config(1, 1));
    hand.announce(0, 1, [1]);
    hand.sent();
    hand.connect(NodeId::builder(0), 1);
    hand.credit(0, 1, 1 << 20);
    assert_eq!(hand.assigned(), [(0, 1, 2)]);
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), []);
    hand.acknowledge(0, 1, 2, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), [(key(1), 1, Outcome::Complete)]);
}

#[test]
fn a_builder_that_comes_back_before_its_events_went_elsewhere_may_still_acknowledge_them() {
    let mut hand = Hand::running(config(1, 1));
    hand.announce(0, 2, 1..=2);
    hand.sent();
    hand.lose(NodeId::builder(0));
    assert_eq!(hand.sent(), []);
    hand.connect(NodeId::builder(0), 1);
    let sent = to(&hand.sent(), NodeId::builder(0));
    assert_eq!(sent, [Message::Recover, Message::ReadoutState(ReadoutState { readout: 0, present: true })]);
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    hand.credit(0, 9, 1 << 20);
    let sent = hand.sent();
    assert_eq!(released(&sent, 0), [(key(1), 1, Outcome::Complete)]);
    assert_eq!(assigned(&sent), [(0, 2, 2)]);
}

#[test]
fn a_new_life_of_a_builder_starts_with_no_credit_and_a_start() {
    let mut hand = Hand::running(config(1, 1));
    hand.announce(0, 2, 1..=2);
    hand.sent();
    hand.connect(NodeId::builder(0), 2);
    let sent = hand.sent();
    let expected =
        [Message::Start(Start::of_run(key(1))), Message::ReadoutState(ReadoutState { readout: 0, present: true })];
    assert_eq!(to(&sent, NodeId::builder(0)), expected);
    assert_eq!(assigned(&sent), []);
    hand.credit(0, 1, 1 << 20);
    assert_eq!(hand.assigned(), [(0, 1, 2)]);
}

#[test]
fn strangers_and_wrong_directions_are_refused_and_counted() {
    let mut hand = running(1);
    hand.say(NodeId::builder(7), &Message::Credit(crate::messages::Credit { events: 5, bytes: 5 }));
    hand.say(NodeId::MANAGER, &Message::Recover);
    hand.say(NodeId::readout(0), &Message::Finish);
    hand.connect(NodeId::readout(9), 1);
    hand.lose(NodeId::builder(9));
    assert_eq!(hand.sent(), []);
    assert_eq!(hand.manager.counts().refused_messages, 4);
}

/// The first builder unit may have written it whole before it was given up, unknown to the event manager: the account
/// contains only what is known, so that files hold at least as much.
#[test]
fn an_event_whose_builder_and_readout_unit_are_both_given_up_ends_as_its_next_builder_unit_says() {
    let mut hand = Hand::running(config(2, 2));
    hand.announce(0, 1, [1]);
    hand.announce(1, 1, [1]);
    assert_eq!(hand.assigned(), [(0, 1, 1)]);
    hand.lose(NodeId::readout(1));
    hand.lose(NodeId::builder(0));
    assert_eq!(hand.assigned(), [(1, 1, 2)]);
    hand.acknowledge(1, 1, 2, Outcome::IncompleteEmitted);
    hand.sent();
    // The first one returns and reports its own copy: too late to change the release.
    hand.connect(NodeId::builder(0), 1);
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    hand.sent();
    let account = hand.manager.account();
    assert_eq!((account.assigned, account.built, account.incomplete_emitted), (1, 0, 1));
    assert_eq!(hand.manager.counts().stale_acknowledgements, 1);
}

/// All nodes are lost at once, for example when the network fails. The first to return could only drop events that
/// others have written, or that a readout unit still holds.
#[test]
fn without_a_readout_unit_nothing_is_assigned_until_one_is_back_or_the_run_has_drained_long_enough() {
    let lost = || {
        let mut hand = Hand::running(config(1, 2));
        hand.announce(0, 5, 1..=5);
        assert_eq!(hand.assigned(), [(0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1), (1, 5, 1)]);
        for node in [NodeId::readout(0), NodeId::builder(0), NodeId::builder(1)] {
            hand.lose(node);
        }
        hand.connect(NodeId::builder(1), 1);
        hand.credit(1, 1000, 1 << 30);
        hand
    };
    let mut hand = lost();
    assert_eq!(hand.assigned(), []);
    hand.connect(NodeId::readout(0), 1);
    assert_eq!(hand.assigned(), [(1, 1, 2), (1, 2, 2), (1, 3, 2), (1, 4, 2), (1, 5, 2)]);

    let mut hand = lost();
    hand.manager.stop_at(hand.now, key(5));
    assert_eq!(hand.assigned(), []);
    hand.pass(DRAIN_TIMEOUT);
    assert_eq!(hand.assigned(), []);
    assert_eq!(hand.manager.account().incomplete_dropped.get(Cause::DrainTimedOut), 5);
}
