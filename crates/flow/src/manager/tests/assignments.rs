//! Credit, batches, acknowledgements, releases, and builder units that die.

use super::hand::{DRAIN_TIMEOUT, Hand, assigned, config, key, released, to};
use crate::manager::{AssignPolicy, ManagerConfig};
use crate::messages::{Message, ReadoutState, Start};
use ropewalk_terms::{Cause, NodeId, Outcome};

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
fn acknowledged_events_are_released_out_of_order_as_ranges_to_everybody() {
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

/// The first builder unit may have written it whole before it was given up, and nobody heard of that: the account says
/// what is known, so that files hold as much as it says or more, and never less.
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
    // The first one comes back and tells of its own copy: too late to change what was released.
    hand.connect(NodeId::builder(0), 1);
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    hand.sent();
    let account = hand.manager.account();
    assert_eq!((account.assigned, account.built, account.incomplete_emitted), (1, 0, 1));
    assert_eq!(hand.manager.counts().stale_acknowledgements, 1);
}

/// All nodes are lost at once where nobody can hear the event manager. The first to come back could only drop what others
/// have written, and what a readout unit still holds.
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
