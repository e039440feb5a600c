//! Runs: start, stop, drain, finish, their lumisections, and sources that are masked meanwhile.

use super::world::World;
use super::{DRAIN_TIMEOUT, EVENT_TIMEOUT, Hand, assigned, config, key, released, to};
use crate::manager::{LumisectionLength, ManagerConfig, ManagerState};
use crate::messages::{Finished, LumisectionEnd, Mask, Message, Setting, Start};
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_terms::{Attempt, Cause, EventAccount, EventKey, NodeId, Outcome, Parameter, SourceId};

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

/// This decides how long a builder unit waits for a disk that refuses everything.
#[test]
fn builder_units_learn_that_the_run_drains_and_not_before() {
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
    assert!(is_told(&hand.sent(), 1), "also a unit that comes later");
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
fn the_answer_of_a_lost_or_silent_readout_unit_is_not_waited_for() {
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
    // Later announcements end the same way.
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

/// Three events of two readout units, drained except for the last one's acknowledgement.
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

/// It was given up before it could announce anything: its fragments are in no record, and do not count as after the
/// stop.
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

/// It repeats its announcements, learns how they ended, and only then discards everything.
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
fn a_readout_unit_that_was_away_at_the_end_learns_how_its_events_ended() {
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
fn a_readout_unit_that_comes_back_just_before_the_end_learns_how_its_events_ended_too() {
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
        // Absolute since the connection began, not since the run began.
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
    // The events of a builder unit are still built when it dies.
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

fn by(lumisection: LumisectionLength) -> ManagerConfig {
    ManagerConfig { lumisection, ..config(1, 2) }
}

/// The lumisection messages to a node, in order: `begin 2 at 4`, `assign 4`, `end 1`.
fn lumisections_told(sent: &[(NodeId, Message)], node: NodeId) -> Vec<String> {
    let mut words = Vec::new();
    for (_, message) in sent.iter().filter(|(to, _)| *to == node) {
        match message {
            Message::Lumisection(begun) => words.push(format!("begin {} at {}", begun.number, begun.first.number())),
            Message::LumisectionEnd(end) => words.push(format!("end {}", end.number)),
            Message::Assign(assign) => {
                words.extend(assign.entries.iter().map(|entry| format!("assign {}", entry.key.number())));
            }
            _ => {}
        }
    }
    words
}

/// A builder unit acknowledges these events, each with its attempt.
fn acknowledge(hand: &mut Hand, builder: u16, events: &[(u64, u16)]) {
    for &(number, attempt) in events {
        hand.acknowledge(builder, number, attempt, Outcome::Complete);
    }
}

fn built(end: &LumisectionEnd) -> (u32, u64, u64) {
    (end.number, end.before.below.number(), end.account().built)
}

#[test]
fn a_builder_hears_of_a_lumisection_before_it_gets_an_event_of_it() {
    let mut hand = Hand::running(ManagerConfig { batch: 8, ..by(LumisectionLength::Events(3)) });
    hand.announce(0, 7, 1..=7);
    let sent = hand.all_sent();
    let (first, second) = (lumisections_told(&sent, NodeId::builder(0)), lumisections_told(&sent, NodeId::builder(1)));
    assert_eq!(
        first,
        ["assign 1", "assign 2", "assign 3", "begin 2 at 4", "begin 3 at 7", "assign 7"],
        "no batch reaches over the end of one"
    );
    assert_eq!(second, ["begin 2 at 4", "assign 4", "assign 5", "assign 6", "begin 3 at 7"]);
}

#[test]
fn one_is_over_when_its_last_event_has_ended_and_was_released() {
    let mut hand = Hand::running(by(LumisectionLength::Events(2)));
    hand.announce(0, 4, 1..=4);
    hand.all_sent();
    acknowledge(&mut hand, 1, &[(3, 1), (4, 1)]);
    assert_eq!(lumisections_told(&hand.all_sent(), NodeId::builder(0)), [""; 0], "those before are in work");
    acknowledge(&mut hand, 0, &[(1, 1)]);
    assert_eq!(lumisections_told(&hand.all_sent(), NodeId::builder(0)), [""; 0]);
    acknowledge(&mut hand, 0, &[(2, 1)]);
    assert_eq!(lumisections_told(&hand.all_sent(), NodeId::builder(1)), ["end 1"], "the second may have more");
    assert_eq!(hand.lumisections.iter().map(built).collect::<Vec<_>>(), [(1, 1, 2)]);
    hand.announce(0, 5, 5..=5);
    let sent = hand.all_sent();
    assert_eq!(lumisections_told(&sent, NodeId::readout(0)), ["begin 3 at 5", "end 2"]);
    assert_eq!(built(&hand.lumisections[1]), (2, 3, 2));
}

#[test]
fn an_event_that_is_assigned_again_stays_in_its_lumisection() {
    let mut hand = Hand::running(by(LumisectionLength::Events(2)));
    hand.announce(0, 4, 1..=4);
    hand.all_sent();
    hand.lose(NodeId::builder(0));
    let sent = hand.all_sent();
    assert_eq!(lumisections_told(&sent, NodeId::builder(1)), ["assign 1", "assign 2"], "none begins for them");
    acknowledge(&mut hand, 1, &[(1, 2), (2, 2), (3, 1)]);
    hand.all_sent();
    assert_eq!(hand.lumisections.iter().map(built).collect::<Vec<_>>(), [(1, 1, 2)]);
    // A unit that reconnects learns what it missed.
    hand.connect(NodeId::builder(0), 2);
    assert_eq!(lumisections_told(&hand.all_sent(), NodeId::builder(0)), ["end 1", "begin 2 at 3"]);
}

#[test]
fn time_ends_one_without_events_too() {
    let mut hand = Hand::running(by(LumisectionLength::Time(Duration::from_secs(23))));
    hand.announce(0, 3, 1..=3);
    hand.all_sent();
    hand.pass(Duration::from_secs(22));
    assert_eq!(lumisections_told(&hand.all_sent(), NodeId::builder(0)), [""; 0]);
    hand.pass(Duration::from_secs(1));
    assert_eq!(lumisections_told(&hand.all_sent(), NodeId::builder(0)), ["begin 2 at 4"]);
    acknowledge(&mut hand, 0, &[(1, 1), (2, 1), (3, 1)]);
    hand.pass(Duration::from_secs(23));
    assert_eq!(
        lumisections_told(&hand.all_sent(), NodeId::builder(0)),
        ["begin 3 at 4", "end 1", "end 2"],
        "the second is empty"
    );
    assert_eq!(hand.lumisections.iter().map(built).collect::<Vec<_>>(), [(1, 1, 3), (2, 4, 0)]);
    assert!(hand.manager.next_deadline().is_some_and(|deadline| deadline == hand.now.after(Duration::from_secs(23))));
}

#[test]
fn no_more_than_eight_are_open_while_the_oldest_does_not_end() {
    let mut hand = Hand::running(by(LumisectionLength::Time(Duration::from_secs(1))));
    hand.announce(0, 1, 1..=1);
    for _ in 0..20 {
        hand.pass(Duration::from_secs(1));
        hand.all_sent();
    }
    acknowledge(&mut hand, 0, &[(1, 1)]);
    let words = lumisections_told(&hand.all_sent(), NodeId::builder(0));
    let ended = ["end 1", "end 2", "end 3", "end 4", "end 5", "end 6", "end 7"];
    assert_eq!(words.iter().filter(|word| word.starts_with("end")).collect::<Vec<_>>()[..7], ended);
    assert!(words.contains(&"begin 9 at 2".to_owned()), "{words:?}");
}

#[test]
fn the_end_of_the_run_ends_the_last_one_with_what_was_dropped() {
    let mut hand = Hand::running(by(LumisectionLength::Events(2)));
    hand.announce(0, 4, 1..=4);
    hand.all_sent();
    acknowledge(&mut hand, 0, &[(1, 1)]);
    hand.manager.force_stop(hand.now);
    let sent = hand.all_sent();
    assert_eq!(lumisections_told(&sent, NodeId::builder(0)), ["end 1", "end 2"]);
    let place =
        |wanted: fn(&Message) -> bool| sent.iter().position(|(_, message)| wanted(message)).expect("it was sent");
    let finish = place(|message| matches!(message, Message::Finish));
    assert!(place(|message| matches!(message, Message::LumisectionEnd(end) if end.number == 2)) < finish);
    let accounts: Vec<EventAccount> = hand.lumisections.iter().map(LumisectionEnd::account).collect();
    assert_eq!((accounts[0].built, accounts[0].incomplete_dropped.get(Cause::ForcedStop)), (1, 1));
    assert_eq!((accounts[1].built, accounts[1].incomplete_dropped.get(Cause::ForcedStop)), (0, 2));
}

#[test]
fn a_successor_goes_on_with_the_lumisections_that_nodes_report() {
    let mut hand = Hand::running(by(LumisectionLength::Events(2)));
    hand.announce(0, 5, 1..=5);
    hand.all_sent();
    acknowledge(&mut hand, 0, &[(1, 1), (2, 1)]);
    let sent = hand.all_sent();
    let of_readout = sent.iter().filter(|(to, _)| *to == NodeId::readout(0)).map(|(_, message)| message.clone());
    let left: Vec<Message> = of_readout.filter(|message| matches!(message, Message::LumisectionEnd(_))).collect();
    let mut next = Hand::new(ManagerConfig { epoch: ropewalk_terms::Epoch(2), ..by(LumisectionLength::Events(2)) });
    next.manager.recover(next.now, key(1), None);
    next.connect(NodeId::readout(0), 1);
    next.connect(NodeId::builder(1), 1);
    next.all_sent();
    for message in &left {
        next.say(NodeId::readout(0), message);
    }
    for (number, first) in [(2, 3), (3, 5)] {
        let begun = crate::messages::Lumisection { number, first: key(first) };
        next.say(NodeId::builder(1), &Message::Lumisection(begun));
    }
    next.pass(super::EVENT_TIMEOUT);
    next.credit(1, 100, 1 << 20);
    let words = lumisections_told(&next.all_sent(), NodeId::builder(1));
    assert_eq!(words, ["end 1", "begin 2 at 3", "begin 3 at 5"]);
    next.announce(0, 5, 3..=5);
    let words = lumisections_told(&next.all_sent(), NodeId::builder(1));
    assert_eq!(words, ["assign 3", "assign 4", "assign 5"]);
    let attempt = Attempt(0x201);
    acknowledge(&mut next, 1, &[(3, attempt.0), (4, attempt.0), (5, attempt.0)]);
    next.all_sent();
    assert_eq!(next.lumisections.iter().map(built).collect::<Vec<_>>(), [(2, 3, 2)]);
}

/// The invariants of lumisections in a world whose run has ended.
fn check(world: &World, has_successors: bool) -> Result<(), TestCaseError> {
    let mut last: Option<&LumisectionEnd> = None;
    for end in &world.closed {
        let before = last.map_or(0, |last| last.number);
        // A successor repeats the end of a lumisection if no remaining node has heard of it.
        prop_assert!(
            end.number == before + 1 || has_successors && end.number <= before,
            "{} behind {before}",
            end.number
        );
        if !has_successors {
            prop_assert_eq!(last.map_or(end.before, |last| last.ended), end.before);
            let range = end.before.below.number()..end.ended.below.number();
            let own = world.wrote.iter().filter(|(key, _)| range.contains(key));
            for &(key, lumisection) in own {
                prop_assert_eq!(lumisection, end.number, "event {}", key);
            }
        }
        last = Some(end);
    }
    let last = last.expect("the run had one");
    let account = world.manager.as_ref().expect("a manager").account();
    prop_assert_eq!((last.ended.account().assigned, last.ended.built), (account.assigned, account.built));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn with_any_deaths_every_event_is_in_one_lumisection_and_in_its_account(
        seed: u64, readouts in 1..4_u16, builders in 2..4_u16, deaths in 0..8_u64, successors in 0..3_u64
    ) {
        const STEPS: u64 = 900;
        let mut world = World::new(seed, readouts, builders, 400);
        for step in 0..STEPS {
            world.step();
            if successors > 0 && step % (STEPS / (successors + 1)) == STEPS / (successors + 2) {
                world.replace_manager();
            }
            if world.chance.below(STEPS) < deaths && world.builders_alive() > 1 {
                let victim = NodeId::builder(world.chance.below(u64::from(builders)) as u16);
                if world.chance.below(2) == 0 { world.kill(victim) } else { world.cut(victim) }
            }
        }
        world.finish();
        check(&world, successors > 0)?;
    }
}

/// The messages about masks, and the position of the run's start among them.
fn masks_told(sent: &[(NodeId, Message)]) -> Vec<(u16, String)> {
    let word = |(to, message): &(NodeId, Message)| match message {
        Message::Mask(Mask { source, is_masked: true }) => Some((to.index, format!("mask {}", source.0))),
        Message::Mask(Mask { source, is_masked: false }) => Some((to.index, format!("unmask {}", source.0))),
        Message::Start(_) if to.role == ropewalk_terms::Role::Readout => Some((to.index, "start".to_owned())),
        _ => None,
    };
    sent.iter().filter_map(word).collect()
}

fn words(words: &[(u16, &str)]) -> Vec<(u16, String)> {
    words.iter().map(|&(node, word)| (node, word.to_owned())).collect()
}

#[test]
fn a_mask_from_before_the_run_is_sent_before_its_start() {
    let mut hand = Hand::new(config(2, 1));
    hand.connect(NodeId::readout(0), 1);
    hand.manager.mask(SourceId(5), true);
    hand.manager.mask(SourceId(6), true);
    hand.manager.mask(SourceId(6), false);
    assert_eq!(masks_told(&hand.sent()), []);
    hand.manager.start(hand.now, key(1), None);
    let expected = words(&[(0, "mask 5"), (0, "unmask 6"), (0, "start")]);
    assert_eq!(masks_told(&hand.sent()), expected);
    assert_eq!(hand.manager.masked().collect::<Vec<_>>(), [SourceId(5)]);
}

#[test]
fn every_readout_unit_hears_of_it_in_mid_run() {
    let mut hand = Hand::running(config(2, 1));
    hand.manager.mask(SourceId(5), true);
    assert_eq!(masks_told(&hand.sent()), words(&[(0, "mask 5"), (1, "mask 5")]));
    hand.manager.mask(SourceId(5), false);
    assert_eq!(masks_told(&hand.sent()), words(&[(0, "unmask 5"), (1, "unmask 5")]));
}

#[test]
fn a_readout_unit_that_was_away_hears_what_was_said_meanwhile() {
    let mut hand = Hand::running(config(2, 1));
    hand.announce(0, 2, 1..=2);
    hand.manager.mask(SourceId(5), true);
    hand.lose(NodeId::readout(0));
    hand.sent();
    hand.manager.mask(SourceId(5), false);
    hand.manager.mask(SourceId(6), true);
    hand.sent();
    hand.connect(NodeId::readout(0), 1);
    assert_eq!(masks_told(&hand.sent()), words(&[(0, "unmask 5"), (0, "mask 6")]), "in the same life");
    hand.lose(NodeId::readout(0));
    hand.connect(NodeId::readout(0), 2);
    assert_eq!(masks_told(&hand.sent()), words(&[(0, "unmask 5"), (0, "mask 6"), (0, "start")]), "begun anew");
}

#[test]
fn a_successor_learns_of_masks_from_readout_units_and_believes_its_operator_first() {
    let mut hand = Hand::new(config(2, 1));
    for index in 0..2 {
        hand.connect(NodeId::readout(index), 1);
    }
    hand.manager.recover(hand.now, key(1), None);
    hand.manager.mask(SourceId(7), false);
    for source in [5, 7] {
        hand.say(NodeId::readout(0), &Message::Mask(Mask { source: SourceId(source), is_masked: true }));
    }
    hand.sent();
    assert_eq!(hand.manager.masked().collect::<Vec<_>>(), [SourceId(5)]);
}

#[test]
fn a_readout_unit_that_waits_for_none_of_its_sources_learns_of_events_at_once() {
    let mut hand = Hand::running(config(2, 1));
    let masks_told = |hand: &mut Hand| {
        let sent = hand.sent();
        let masks_told = sent.iter().filter(|(_, message)| matches!(message, Message::Highest(_)));
        masks_told.map(|(to, message)| (*to, message.clone())).collect::<Vec<_>>()
    };
    hand.announce(0, 2, 1..=2);
    assert_eq!(masks_told(&mut hand), [], "who waits for sources of its own has its own patience");
    hand.say(NodeId::readout(1), &Message::Follows(true));
    assert_eq!(masks_told(&mut hand), [(NodeId::readout(1), Message::Highest(key(2)))]);
    hand.announce(1, 2, []);
    hand.announce(0, 3, [3]);
    assert_eq!(masks_told(&mut hand), [], "not for each event");
    let due = hand.manager.next_deadline().expect("it is masks_told soon");
    assert!(due.since(hand.now) <= core::time::Duration::from_millis(1));
    hand.now = due;
    assert_eq!(masks_told(&mut hand), [(NodeId::readout(1), Message::Highest(key(3)))]);
}

#[test]
fn parameters_are_sent_to_every_node_and_to_later_ones() {
    let mut hand = Hand::new(config(1, 1));
    let setting = |parameter, value| Setting { parameter, of: 0, value };
    let masks_told = |hand: &mut Hand| {
        let sent = hand.sent();
        let set = |(to, message): &(NodeId, Message)| match message {
            Message::Set(setting) => Some((*to, setting.parameter, setting.value)),
            _ => None,
        };
        sent.iter().filter_map(set).collect::<Vec<_>>()
    };
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.manager.set(setting(Parameter::SourceTimeout, 5));
    assert_eq!(masks_told(&mut hand), [], "there is no run");
    hand.manager.start(hand.now, key(1), None);
    let both = [NodeId::readout(0), NodeId::builder(0)];
    assert_eq!(masks_told(&mut hand), both.map(|node| (node, Parameter::SourceTimeout, 5)));
    hand.manager.set(setting(Parameter::SourceTimeout, 7));
    assert_eq!(masks_told(&mut hand), both.map(|node| (node, Parameter::SourceTimeout, 7)));
    for node in both {
        hand.lose(node);
        hand.connect(node, 2);
        assert_eq!(masks_told(&mut hand), [(node, Parameter::SourceTimeout, 7)], "the last value alone");
    }
    // Readout units repeat a predecessor's settings, which do not override those of this manager.
    for value in [9, 11] {
        hand.say(NodeId::readout(0), &Message::Set(setting(Parameter::SourceTimeout, value)));
        hand.say(NodeId::readout(0), &Message::Set(setting(Parameter::Prescale, value)));
    }
    hand.lose(NodeId::builder(0));
    hand.connect(NodeId::builder(0), 3);
    let all = [(Parameter::SourceTimeout, 7), (Parameter::Prescale, 9)];
    assert_eq!(masks_told(&mut hand), all.map(|(parameter, value)| (NodeId::builder(0), parameter, value)));
}
