//! A successor takes over: what it asks, and what it makes of the answers.

use super::hand::{EVENT_TIMEOUT, Hand, assigned, config, key, released, to};
use crate::manager::{ManagerConfig, ManagerState};
use crate::messages::{Batch, Message, Unreleased, UnreleasedEntry};
use ropewalk_terms::{Attempt, Epoch, EventKey, NodeId, Outcome};

/// A successor to which two readout and two builder units have connected.
fn successor() -> Hand {
    let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(2, 2) });
    hand.manager.recover(hand.now, key(1), None);
    for index in 0..2 {
        hand.connect(NodeId::readout(index), 1);
        hand.connect(NodeId::builder(index), 1);
        hand.credit(index, 100, 1 << 20);
    }
    let sent = hand.sent();
    for index in 0..2 {
        assert_eq!(to(&sent, NodeId::readout(index)), [Message::Recover, Message::QueryHighest]);
        assert_eq!(to(&sent, NodeId::builder(index)), [Message::Recover]);
    }
    hand
}

/// A readout unit has announced everything again.
fn repeated(hand: &mut Hand, readout: u16, highest: u64) {
    hand.say(NodeId::readout(readout), &Message::Highest(key(highest)));
}

fn tell(hand: &mut Hand, builder: u16, entries: &[(u64, u16, Option<Outcome>)], more: bool) {
    let entry = |&(number, attempt, outcome): &(u64, u16, _)| UnreleasedEntry {
        key: key(number),
        attempt: Attempt(attempt),
        outcome,
    };
    let entries: Batch<_> = entries.iter().map(entry).collect();
    hand.say(NodeId::builder(builder), &Message::Unreleased(Unreleased { entries, more }));
}

#[test]
fn nothing_is_assigned_before_everybody_has_told_what_it_has() {
    let mut hand = successor();
    hand.announce(0, 12, 10..=12);
    hand.announce(1, 12, 10..=12);
    repeated(&mut hand, 0, 12);
    tell(&mut hand, 0, &[(10, 1, None)], true);
    tell(&mut hand, 1, &[], false);
    assert_eq!(hand.sent(), []);
    tell(&mut hand, 0, &[(11, 1, Some(Outcome::Complete))], false);
    assert_eq!(hand.sent(), []);
    assert_eq!(hand.manager.state(), ManagerState::Recovering);
    repeated(&mut hand, 1, 12);
    let sent = hand.sent();
    // 10 is in work, 11 is done, 12 was assigned to somebody who died, or to nobody: an attempt of its own.
    assert_eq!(released(&sent, 0), [(key(11), 1, Outcome::Complete)]);
    assert_eq!(assigned(&sent), [(0, 12, 513)]);
    assert_eq!(hand.manager.state(), ManagerState::Running);
    hand.acknowledge(0, 10, 1, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 1), [(key(10), 1, Outcome::Complete)]);
    let account = hand.manager.account();
    assert_eq!((account.assigned, account.built, account.in_flight), (3, 2, 1));
}

#[test]
fn what_is_announced_again_later_is_not_assigned_again_either() {
    let mut hand = successor();
    hand.announce(0, 10, [10]);
    hand.announce(1, 10, [10]);
    repeated(&mut hand, 0, 10);
    repeated(&mut hand, 1, 10);
    tell(&mut hand, 0, &[(11, 3, None), (12, 1, Some(Outcome::IncompleteEmitted))], false);
    tell(&mut hand, 1, &[(11, 2, Some(Outcome::Complete))], false);
    assert_eq!(hand.assigned(), [(0, 10, 513)]);
    hand.announce(0, 13, 11..=13);
    hand.announce(1, 13, 11..=13);
    let sent = hand.sent();
    assert_eq!(released(&sent, 0), [(key(12), 1, Outcome::IncompleteEmitted)]);
    assert_eq!(assigned(&sent), [(1, 13, 513)]);
    // The highest attempt is the one that counts.
    hand.acknowledge(1, 11, 2, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), []);
    hand.acknowledge(0, 11, 3, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), [(key(11), 1, Outcome::Complete)]);
}

#[test]
fn whoever_does_not_answer_in_time_is_not_waited_for() {
    let mut hand = successor();
    hand.announce(0, 5001, 5000..=5001);
    tell(&mut hand, 0, &[], false);
    assert_eq!(hand.sent(), []);
    assert_eq!(hand.manager.next_deadline(), Some(hand.now.after(EVENT_TIMEOUT)));
    hand.pass(EVENT_TIMEOUT);
    let first = hand.assigned();
    assert_eq!(hand.manager.state(), ManagerState::Running);
    hand.pass(EVENT_TIMEOUT);
    let numbers = [first, hand.assigned()].concat().into_iter().map(|(_, number, _)| number);
    assert_eq!(numbers.collect::<Vec<_>>(), [5000, 5001]);
}

#[test]
fn what_a_readout_unit_says_before_it_repeats_is_no_proof_that_nothing_lies_below() {
    let mut hand = successor();
    for builder in [0, 1] {
        tell(&mut hand, builder, &[], false);
    }
    // It had not heard yet that it should begin anew: 5000 is far beyond the table.
    for readout in [0, 1] {
        hand.announce(readout, 5000, [5000]);
    }
    assert_eq!(hand.sent(), []);
    for readout in [0, 1] {
        hand.announce(readout, 4991, 4990..=4991);
        hand.announce(readout, 5000, [5000]);
        repeated(&mut hand, readout, 5000);
    }
    assert_eq!(hand.assigned(), [(0, 4990, 513), (0, 4991, 513), (0, 5000, 513)]);
}

#[test]
fn a_node_that_comes_late_to_a_successor_is_asked_not_started() {
    let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(1, 2) });
    hand.manager.recover(hand.now, key(1), None);
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.pass(EVENT_TIMEOUT);
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Running);
    hand.connect(NodeId::builder(1), 1);
    assert_eq!(to(&hand.sent(), NodeId::builder(1))[0], Message::Recover);
    tell(&mut hand, 1, &[(3, 1, None)], false);
    hand.connect(NodeId::readout(0), 2);
    let sent = to(&hand.sent(), NodeId::readout(0));
    assert!(matches!(sent[..], [Message::Start(_), Message::Recover, Message::QueryHighest]), "{sent:?}");
}

#[test]
fn an_acknowledgement_that_comes_before_its_event_was_met_counts() {
    let mut hand = successor();
    hand.announce(0, 10, [10]);
    hand.announce(1, 10, [10]);
    repeated(&mut hand, 0, 10);
    repeated(&mut hand, 1, 10);
    tell(&mut hand, 0, &[(10, 1, None), (11, 1, None)], false);
    hand.acknowledge(0, 10, 1, Outcome::Complete);
    tell(&mut hand, 1, &[], false);
    assert_eq!(released(&hand.sent(), 0), [(key(10), 1, Outcome::Complete)]);
    hand.acknowledge(0, 11, 1, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), []);
    hand.announce(0, 11, [11]);
    hand.announce(1, 11, [11]);
    assert_eq!(released(&hand.sent(), 0), [(key(11), 1, Outcome::Complete)]);
    assert_eq!(hand.manager.counts().stale_acknowledgements, 0);
}

#[test]
fn what_a_builder_had_in_work_is_lost_with_it_even_before_it_was_met() {
    let mut hand = successor();
    hand.announce(0, 10, [10]);
    tell(&mut hand, 0, &[(10, 1, None), (11, 1, Some(Outcome::Complete))], false);
    tell(&mut hand, 1, &[], false);
    hand.connect(NodeId::builder(0), 2);
    tell(&mut hand, 0, &[], false);
    hand.announce(0, 11, [11]);
    hand.announce(1, 11, [10, 11]);
    repeated(&mut hand, 0, 11);
    repeated(&mut hand, 1, 11);
    let sent = hand.sent();
    assert_eq!(assigned(&sent), [(1, 10, 513)]);
    assert_eq!(released(&sent, 0), [(key(11), 1, Outcome::Complete)]);
}

#[test]
fn an_event_in_work_whose_readout_units_are_gone_is_waited_for() {
    let mut hand = successor();
    hand.announce(0, 20, [20]);
    hand.announce(1, 20, [20]);
    repeated(&mut hand, 0, 20);
    repeated(&mut hand, 1, 20);
    tell(&mut hand, 0, &[(15, 1, None)], false);
    tell(&mut hand, 1, &[(25, 1, None)], false);
    hand.sent();
    hand.announce(0, 30, []);
    hand.announce(1, 30, []);
    hand.sent();
    assert_eq!(hand.manager.account().in_flight, 3);
    hand.manager.stop_at(hand.now, key(30));
    hand.acknowledge(0, 20, 513, Outcome::Complete);
    hand.acknowledge(0, 15, 1, Outcome::IncompleteEmitted);
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Draining);
    hand.acknowledge(1, 25, 1, Outcome::IncompleteEmitted);
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
}

#[test]
fn a_resynchronised_run_is_taken_over_too() {
    let mut hand = successor();
    let restarted = EventKey::new(3, 1);
    for readout in [0, 1] {
        hand.announce_entries(readout, restarted, &[super::hand::announced(restarted, true)]);
        hand.say(NodeId::readout(readout), &Message::Highest(restarted));
    }
    tell(&mut hand, 0, &[], false);
    tell(&mut hand, 1, &[], false);
    assert_eq!(hand.assigned(), [(0, 1, 513)]);
}
