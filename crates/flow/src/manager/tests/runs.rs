//! Start, stop, drain, finish; by force, by time-out, and once more.

use super::hand::{DRAIN_TIMEOUT, EVENT_TIMEOUT, Hand, assigned, config, key, released, to};
use crate::manager::ManagerState;
use crate::messages::{Finished, Message, Start};
use ropewalk_terms::{Cause, EventKey, NodeId, Outcome};

fn finish_all(hand: &mut Hand, readouts: u16, builders: u16) {
    for index in 0..readouts {
        hand.say(NodeId::readout(index), &Message::Finished(Finished { in_flight: 0 }));
    }
    for index in 0..builders {
        assert_eq!(hand.ended, 0);
        hand.say(NodeId::builder(index), &Message::Finished(Finished { in_flight: 0 }));
        hand.sent();
    }
}

#[test]
fn a_stop_asks_for_the_highest_key_and_drains_to_it() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 2, 1..=2);
    hand.announce(1, 1, [1]);
    hand.sent();
    hand.manager.stop(hand.now);
    assert_eq!(hand.manager.state(), ManagerState::Stopping);
    let sent = hand.sent();
    assert_eq!(to(&sent, NodeId::readout(0)), [Message::QueryHighest]);
    hand.say(NodeId::readout(0), &Message::Highest(key(3)));
    assert_eq!(hand.sent(), []);
    hand.say(NodeId::readout(1), &Message::Highest(key(2)));
    let sent = hand.sent();
    assert_eq!(to(&sent, NodeId::readout(0)), [Message::StopAt(key(3))]);
    assert_eq!(to(&sent, NodeId::readout(1)), [Message::StopAt(key(3))]);
    assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Draining, Some(key(3))));
    hand.announce(0, 3, [3]);
    hand.announce(1, 3, [2]);
    hand.sent();
    for number in 1..=2 {
        hand.acknowledge(0, number, 1, Outcome::Complete);
    }
    assert!(to(&hand.sent(), NodeId::builder(0)).is_empty());
    hand.acknowledge(0, 3, 1, Outcome::IncompleteEmitted);
    let sent = to(&hand.sent(), NodeId::readout(0));
    assert!(matches!(sent[..], [Message::Release(_), Message::Ended(_), Message::Finish]), "{sent:?}");
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
    finish_all(&mut hand, 2, 1);
    assert_eq!((hand.ended, hand.manager.state()), (1, ManagerState::Idle));
    assert_eq!(hand.manager.account().in_flight, 0);
}

/// How long a builder unit waits for a disk that refuses everything depends on it.
#[test]
fn builder_units_are_told_when_the_run_drains_and_not_before() {
    let mut hand = Hand::new(config(1, 2));
    for node in [NodeId::readout(0), NodeId::builder(0)] {
        hand.connect(node, 1);
    }
    hand.manager.start(hand.now, key(1), Some(key(9)));
    let is_told = |sent: &[(NodeId, Message)], builder| {
        to(sent, NodeId::builder(builder)).iter().any(|message| matches!(message, Message::StopAt(_)))
    };
    assert!(!is_told(&hand.sent(), 0), "a last key that is given beforehand stops nothing yet");
    hand.manager.stop_at(hand.now, key(5));
    assert!(is_told(&hand.sent(), 0));
    hand.connect(NodeId::builder(1), 1);
    assert!(is_told(&hand.sent(), 1), "also who comes later");
}

#[test]
fn with_a_last_key_exactly_those_keys_are_built_and_the_run_ends_by_itself() {
    let mut hand = Hand::new(config(1, 1));
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.credit(0, 1000, 1 << 30);
    hand.manager.start(hand.now, key(1), Some(key(100)));
    let mut built = Vec::new();
    for first in (1..=128).step_by(32) {
        hand.announce(0, first + 31, first..first + 32);
        for (builder, number, attempt) in hand.assigned() {
            built.push(number);
            hand.acknowledge(builder, number, attempt, Outcome::Complete);
        }
        hand.sent();
    }
    assert_eq!(built, (1..=100).collect::<Vec<_>>());
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
    finish_all(&mut hand, 1, 1);
    assert_eq!(hand.ended, 1);
}

#[test]
fn a_stop_before_any_event_ends() {
    let mut hand = Hand::running(config(1, 1));
    hand.manager.stop(hand.now);
    hand.sent();
    hand.say(NodeId::readout(0), &Message::Highest(key(0)));
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
}

#[test]
fn nobody_waits_for_the_answer_of_a_lost_or_silent_readout_unit() {
    let mut hand = Hand::running(config(3, 1));
    hand.manager.stop(hand.now);
    hand.sent();
    hand.say(NodeId::readout(0), &Message::Highest(key(7)));
    hand.lose(NodeId::readout(1));
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Stopping);
    assert_eq!(hand.manager.next_deadline(), Some(hand.now.after(EVENT_TIMEOUT)));
    hand.pass(EVENT_TIMEOUT);
    hand.sent();
    assert_eq!(hand.manager.last(), Some(key(7)));
}

#[test]
fn a_known_last_key_is_not_asked_for() {
    let mut hand = Hand::running(config(1, 1));
    hand.manager.stop_at(hand.now, key(5));
    assert_eq!(to(&hand.sent(), NodeId::readout(0)), [Message::StopAt(key(5))]);
    hand.announce(0, 4, 1..=4);
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Draining);
    hand.announce(0, 5, [5]);
    for (builder, number, attempt) in hand.assigned() {
        hand.acknowledge(builder, number, attempt, Outcome::Complete);
    }
    for number in 1..=4 {
        hand.acknowledge(0, number, 1, Outcome::Complete);
    }
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
}

#[test]
fn what_cannot_be_drained_in_time_is_dropped_by_name() {
    let mut hand = Hand::running(config(2, 1));
    for readout in [0, 1] {
        hand.announce(readout, 2, 1..=2);
    }
    hand.sent();
    hand.lose(NodeId::builder(0));
    hand.announce(0, 3, [3]);
    hand.manager.stop_at(hand.now, key(3));
    hand.sent();
    hand.pass(DRAIN_TIMEOUT);
    let sent = hand.sent();
    let dropped = Outcome::Dropped(Cause::DrainTimedOut);
    assert_eq!(released(&sent, 0), [(key(1), 3, dropped)]);
    let account = hand.manager.account();
    assert_eq!(account.incomplete_dropped.get(Cause::DrainTimedOut), 2);
    assert_eq!(hand.manager.counts().unassigned.get(Cause::DrainTimedOut), 1);
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
    // What is announced now ends the same way.
    hand.announce(1, 3, [3]);
    assert_eq!(released(&hand.sent(), 1), [(key(3), 1, dropped)]);
}

#[test]
fn a_forced_stop_names_what_it_drops_even_what_waits_outside_the_table() {
    let mut hand = Hand::running(config(2, 1));
    for readout in [0, 1] {
        hand.announce(readout, 1, [1]);
    }
    hand.announce(0, 200, [2, 100, 200]);
    hand.sent();
    hand.manager.force_stop(hand.now);
    let sent = hand.sent();
    let forced = Outcome::Dropped(Cause::ForcedStop);
    let mut all = released(&sent, 0);
    all.sort_by_key(|(key, ..)| *key);
    assert_eq!(all, [(key(1), 2, forced), (key(100), 1, forced), (key(200), 1, forced)]);
    assert_eq!(hand.manager.account().incomplete_dropped.get(Cause::ForcedStop), 1);
    assert_eq!(hand.manager.counts().unassigned.get(Cause::ForcedStop), 3);
    assert_eq!(*to(&sent, NodeId::builder(0)).last().expect("a word"), Message::Finish);
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    hand.sent();
    // A second one does not wait for the nodes.
    hand.manager.force_stop(hand.now);
    hand.sent();
    assert_eq!(hand.ended, 1);
}

#[test]
fn the_end_waits_for_the_nodes_but_not_for_ever() {
    let mut hand = Hand::running(config(1, 2));
    hand.manager.stop_at(hand.now, EventKey::MIN);
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
    hand.say(NodeId::readout(0), &Message::Finished(Finished { in_flight: 0 }));
    hand.lose(NodeId::builder(0));
    hand.sent();
    assert_eq!(hand.ended, 0);
    hand.connect(NodeId::builder(0), 1);
    assert_eq!(to(&hand.sent(), NodeId::builder(0)), [Message::Finish]);
    hand.pass(DRAIN_TIMEOUT);
    hand.sent();
    assert_eq!(hand.ended, 1);
}

/// Three events of two readout units, drained but for the last one's acknowledgement.
fn about_to_end() -> Hand {
    let mut hand = Hand::running(config(2, 1));
    hand.manager.stop_at(hand.now, key(3));
    for readout in 0..2 {
        hand.announce(readout, 3, 1..=3);
    }
    hand.sent();
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    hand.acknowledge(0, 2, 1, Outcome::Dropped(Cause::IncompletePolicy));
    hand.sent();
    hand
}

/// It was given up before it could announce anything: its fragments are in no record, and not of after the stop.
#[test]
fn what_is_announced_first_when_the_run_is_over_is_in_no_record() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 3, 1..=3);
    hand.announce(1, 1, [1]);
    hand.manager.stop_at(hand.now, key(3));
    hand.lose(NodeId::readout(1));
    hand.sent();
    hand.lack(0, &[(2, 1, 1), (3, 1, 1)]);
    for number in 1..=3 {
        hand.acknowledge(0, number, 1, Outcome::IncompleteEmitted);
    }
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
    hand.connect(NodeId::readout(1), 1);
    hand.sent();
    hand.announce(1, 4, [1, 2, 4]);
    let dropped = [Cause::BuiltWithout, Cause::AfterStop].map(Outcome::Dropped);
    let outcomes = [(1, Outcome::IncompleteEmitted), (2, dropped[0]), (4, dropped[1])];
    assert_eq!(released(&hand.sent(), 1), outcomes.map(|(number, outcome)| (key(number), 1, outcome)));
}

/// It announces again what it holds, is told how that ended, and only then lets go of everything.
fn expect_told(hand: &mut Hand, readout: u16) {
    hand.announce(readout, 3, 1..=3);
    let sent = hand.sent();
    let outcomes = [Outcome::Complete, Outcome::Dropped(Cause::IncompletePolicy), Outcome::IncompleteEmitted];
    let expected: Vec<_> = (1..).zip(outcomes).map(|(number, outcome)| (key(number), 1, outcome)).collect();
    assert_eq!(released(&sent, readout), expected);
    assert!(!to(&sent, NodeId::readout(readout)).contains(&Message::Finish));
    hand.say(NodeId::readout(readout), &Message::Highest(key(3)));
    assert_eq!(to(&hand.sent(), NodeId::readout(readout)), [Message::Finish]);
}

#[test]
fn a_readout_unit_that_was_away_at_the_end_is_told_how_its_events_ended() {
    let mut hand = about_to_end();
    hand.acknowledge(0, 3, 1, Outcome::IncompleteEmitted);
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
    hand.connect(NodeId::readout(1), 1);
    assert_eq!(to(&hand.sent(), NodeId::readout(1)), [Message::Recover, Message::QueryHighest]);
    expect_told(&mut hand, 1);
    finish_all(&mut hand, 2, 1);
    assert_eq!(hand.ended, 1);
}

#[test]
fn a_readout_unit_that_comes_back_just_before_the_end_is_told_too() {
    let mut hand = about_to_end();
    hand.connect(NodeId::readout(1), 1);
    hand.sent();
    hand.acknowledge(0, 3, 1, Outcome::IncompleteEmitted);
    let sent = hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Finishing);
    assert!(to(&sent, NodeId::readout(0)).contains(&Message::Finish));
    assert!(!to(&sent, NodeId::readout(1)).contains(&Message::Finish));
    expect_told(&mut hand, 1);
    finish_all(&mut hand, 2, 1);
    assert_eq!(hand.ended, 1);
}

#[test]
fn a_readout_unit_that_comes_back_and_says_nothing_is_dismissed() {
    let mut hand = about_to_end();
    hand.acknowledge(0, 3, 1, Outcome::IncompleteEmitted);
    hand.sent();
    hand.connect(NodeId::readout(1), 1);
    hand.sent();
    hand.pass(DRAIN_TIMEOUT);
    assert_eq!(to(&hand.sent(), NodeId::readout(1)), [Message::Finish]);
    assert_eq!(hand.ended, 1);
    // A new life holds nothing of this run.
    let mut hand = about_to_end();
    hand.acknowledge(0, 3, 1, Outcome::IncompleteEmitted);
    hand.sent();
    hand.connect(NodeId::readout(1), 2);
    assert_eq!(to(&hand.sent(), NodeId::readout(1)), [Message::Finish]);
}

#[test]
fn a_run_with_a_last_key_outlives_its_only_readout_unit() {
    let mut hand = Hand::new(config(1, 1));
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.manager.start(hand.now, key(1), Some(key(9)));
    hand.lose(NodeId::readout(0));
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Running);
    hand.connect(NodeId::readout(0), 2);
    let sent = to(&hand.sent(), NodeId::readout(0));
    assert_eq!(sent, [Message::Start(Start::of_run(key(1))), Message::StopAt(key(9))]);
}

#[test]
fn one_run_follows_the_other_with_the_same_credit() {
    let mut hand = Hand::new(config(1, 1));
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    for run in 0..3 {
        hand.manager.start(hand.now, key(1), Some(key(10)));
        hand.announce(0, 10, 1..=10);
        // Absolute since the connection began, not since the run did.
        hand.credit(0, 10 * (run + 1), 1000 * (run + 1));
        let sent = hand.sent();
        let given = assigned(&sent);
        assert_eq!(given.len(), 10);
        for (builder, number, attempt) in given {
            hand.acknowledge(builder, number, attempt, Outcome::Complete);
        }
        hand.sent();
        hand.ended = 0;
        finish_all(&mut hand, 1, 1);
        assert_eq!((hand.ended, hand.manager.account().built), (1, 10));
    }
}

#[test]
fn a_pause_holds_new_events_back_and_nothing_else() {
    let mut hand = Hand::running(config(1, 2));
    hand.announce(0, 2, 1..=2);
    let given = assigned(&hand.sent());
    assert_eq!(given.len(), 2);
    hand.manager.pause(true);
    hand.announce(0, 4, 3..=4);
    assert_eq!(assigned(&hand.sent()), []);
    // What a builder unit had is still built when it dies.
    let (builder, ..) = given[0];
    hand.manager.node_lost(hand.now, NodeId::builder(builder));
    assert!(!assigned(&hand.sent()).is_empty());
    hand.manager.pause(false);
    assert_eq!(assigned(&hand.sent()).len(), 2);
}

#[test]
fn a_stop_ends_a_pause() {
    for by_key in [false, true] {
        let mut hand = Hand::running(config(1, 1));
        hand.manager.pause(true);
        hand.announce(0, 2, 1..=2);
        hand.sent();
        if by_key {
            hand.manager.stop_at(hand.now, key(2));
        } else {
            hand.manager.stop(hand.now);
            hand.say(NodeId::readout(0), &Message::Highest(key(2)));
        }
        assert_eq!(assigned(&hand.sent()).len(), 2);
        assert!(!hand.manager.is_paused());
        hand.manager.pause(true);
        assert!(!hand.manager.is_paused(), "a run that drains is not paused");
    }
}
