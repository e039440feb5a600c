//! A successor takes over: what it asks, and how it uses the answers.

use super::{DRAIN_TIMEOUT, EVENT_TIMEOUT, Hand, assigned, config, key, released, to};
use crate::manager::recovery::RETURN;
use crate::manager::{ManagerConfig, ManagerState};
use crate::messages::{Batch, Ended, Message, Unreleased, UnreleasedEntry};
use ropewalk_terms::{Attempt, Cause, Ending, Epoch, EventKey, NodeId, Outcome};

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

/// A readout unit has repeated all of its announcements.
fn repeated(hand: &mut Hand, readout: u16, highest: u64) {
    hand.say(NodeId::readout(readout), &Message::Highest(key(highest)));
}

fn tell(hand: &mut Hand, builder: u16, entries: &[(u64, u16, Option<Outcome>)], more: bool) {
    let entry = |&(number, attempt, outcome): &(u64, u16, Option<Outcome>)| UnreleasedEntry {
        key: key(number),
        attempt: Attempt(attempt),
        ending: outcome.map(Ending::from),
    };
    let entries: Batch<_> = entries.iter().map(entry).collect();
    hand.say(NodeId::builder(builder), &Message::Unreleased(Unreleased { entries, more }));
}

#[test]
fn nothing_is_assigned_before_every_node_has_reported_what_it_has() {
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
    // 10 is in work, 11 is done; 12 was assigned to a dead builder unit, or not at all: it gets its own attempt.
    assert_eq!(released(&sent, 0), [(key(11), 1, Outcome::Complete)]);
    assert_eq!(assigned(&sent), [(0, 12, 513)]);
    assert_eq!(hand.manager.state(), ManagerState::Running);
    hand.acknowledge(0, 10, 1, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 1), [(key(10), 1, Outcome::Complete)]);
    let account = hand.manager.account();
    assert_eq!((account.assigned, account.built, account.in_flight), (3, 2, 1));
}

/// The counts of the earlier life were reported to the event manager that died as well.
#[test]
fn a_successor_notices_a_restarted_readout_unit_whose_earlier_life_it_does_not_know() {
    let mut hand = successor();
    hand.announce(0, 12, 10..=12);
    repeated(&mut hand, 0, 12);
    hand.say(NodeId::readout(1), &Message::Highest(EventKey::MIN));
    tell(&mut hand, 0, &[(9, 1, Some(Outcome::Complete))], false);
    tell(&mut hand, 1, &[], false);
    hand.sent();
    assert_eq!(hand.manager.untold().map(|(node, _)| node).collect::<Vec<_>>(), [NodeId::readout(1)]);
}

#[test]
fn a_successor_hears_what_events_were_built_without() {
    let mut hand = successor();
    hand.announce(0, 12, 10..=12);
    hand.announce(1, 12, 10..=12);
    repeated(&mut hand, 0, 12);
    repeated(&mut hand, 1, 12);
    hand.lack(1, &[(10, 1, 0), (12, 1, 1)]);
    tell(&mut hand, 0, &[], false);
    let part = Outcome::IncompleteEmitted;
    tell(&mut hand, 1, &[(10, 1, Some(part)), (11, 1, Some(Outcome::Complete)), (12, 1, Some(part))], false);
    let (sent, without) = (hand.sent(), Outcome::Dropped(Cause::BuiltWithout));
    assert_eq!(released(&sent, 0), [(key(10), 1, without), (key(11), 1, Outcome::Complete), (key(12), 1, part)]);
    assert_eq!(released(&sent, 1), [(key(10), 1, part), (key(11), 1, Outcome::Complete), (key(12), 1, without)]);
}

/// Otherwise it would end the run at once, with an empty account, and no node would get its messages.
#[test]
fn a_successor_that_gets_a_stop_first_hears_what_there_is_to_be_drained() {
    for last in [None, Some(key(10))] {
        let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(1, 1) });
        hand.manager.recover(hand.now, key(1), None);
        match last {
            None => hand.manager.stop(hand.now),
            Some(last) => hand.manager.stop_at(hand.now, last),
        }
        assert_eq!(hand.sent(), []);
        assert_eq!(hand.manager.state(), ManagerState::Recovering);
        hand.connect(NodeId::readout(0), 1);
        hand.connect(NodeId::builder(0), 1);
        hand.credit(0, 100, 1 << 20);
        hand.announce(0, 10, 10..=10);
        repeated(&mut hand, 0, 10);
        tell(&mut hand, 0, &[], false);
        assert_eq!(hand.assigned(), [(0, 10, 513)]);
        if last.is_none() {
            assert_eq!(hand.manager.state(), ManagerState::Stopping);
            repeated(&mut hand, 0, 10);
        }
        let stop_at = hand.sent().into_iter().filter(|(_, message)| *message == Message::StopAt(key(10))).count();
        assert!(stop_at > 0 || last.is_some());
        assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Draining, Some(key(10))));
    }
}

/// The nodes keep connections that they do not know to be dead.
#[test]
fn a_successor_without_a_connected_node_does_not_end_the_run_with_nothing() {
    let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(1, 1) });
    hand.manager.recover(hand.now, key(1), None);
    hand.pass(EVENT_TIMEOUT);
    hand.manager.stop(hand.now);
    hand.pass(2 * EVENT_TIMEOUT);
    assert_eq!((hand.sent(), hand.manager.state()), (vec![], ManagerState::Stopping));
    hand.connect(NodeId::readout(0), 1);
    hand.announce(0, 7, 5..=7);
    repeated(&mut hand, 0, 7);
    hand.sent();
    assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Draining, Some(key(7))));
}

/// Only a readout unit that died as well has connected. The others still keep dead connections.
#[test]
fn a_successor_to_which_only_the_newborn_have_come_does_not_end_the_run_with_nothing() {
    for highest in [EventKey::MIN, key(0)] {
        let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(2, 1) });
        hand.manager.recover(hand.now, key(1), None);
        hand.manager.stop(hand.now);
        hand.connect(NodeId::readout(0), 2);
        hand.say(NodeId::readout(0), &Message::Highest(highest));
        hand.pass(EVENT_TIMEOUT);
        hand.sent();
        hand.say(NodeId::readout(0), &Message::Highest(highest));
        hand.pass(2 * EVENT_TIMEOUT);
        assert_eq!((hand.sent(), hand.manager.state()), (vec![], ManagerState::Stopping));
        hand.connect(NodeId::readout(1), 1);
        hand.announce(1, 7, 5..=7);
        repeated(&mut hand, 1, 7);
        hand.sent();
        // The builder unit may have later events, which only the dead readout unit held.
        assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Stopping, None));
        hand.connect(NodeId::builder(0), 1);
        tell(&mut hand, 0, &[(8, 1, Some(Outcome::IncompleteEmitted))], false);
        hand.sent();
        assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Draining, Some(key(8))));
    }
}

/// Its data died with it, and the builder unit, which has written the event, still keeps a dead connection.
#[test]
fn a_newborn_readout_unit_that_announces_nothing_does_not_show_how_far_the_run_came() {
    let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(1, 1) });
    hand.manager.recover(hand.now, key(1), None);
    hand.pass(EVENT_TIMEOUT);
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Running);
    hand.connect(NodeId::readout(0), 2);
    hand.announce(0, 0, []);
    repeated(&mut hand, 0, 0);
    hand.manager.stop(hand.now);
    hand.say(NodeId::readout(0), &Message::Highest(key(0)));
    hand.sent();
    assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Stopping, None));
    hand.connect(NodeId::builder(0), 1);
    tell(&mut hand, 0, &[(1, 1, Some(Outcome::Complete))], false);
    hand.sent();
    assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Draining, Some(key(1))));
}

/// It reports its own events. Others may have written more, and a readout unit that knows of these keeps a dead
/// connection.
#[test]
fn a_successor_that_knows_of_events_from_a_builder_unit_alone_does_not_end_the_run_behind_these() {
    let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(1, 2) });
    hand.manager.recover(hand.now, key(1), None);
    hand.manager.stop(hand.now);
    hand.connect(NodeId::builder(0), 1);
    tell(&mut hand, 0, &[(5, 1, Some(Outcome::Complete))], false);
    hand.pass(EVENT_TIMEOUT);
    hand.sent();
    hand.pass(2 * EVENT_TIMEOUT);
    assert_eq!((hand.sent(), hand.manager.state()), (vec![], ManagerState::Stopping));
    // The other builder unit need not be awaited: it has only events that a readout unit has seen.
    hand.connect(NodeId::readout(0), 1);
    repeated(&mut hand, 0, 6);
    hand.sent();
    assert_eq!(hand.manager.last(), Some(key(6)));
}

#[test]
fn a_successor_that_is_to_stop_does_not_wait_for_ever() {
    let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(1, 2) });
    hand.manager.recover(hand.now, key(1), None);
    hand.manager.stop(hand.now);
    hand.connect(NodeId::builder(0), 1);
    tell(&mut hand, 0, &[(5, 1, Some(Outcome::Complete))], false);
    hand.pass(EVENT_TIMEOUT);
    hand.sent();
    assert_eq!(hand.manager.next_deadline(), Some(hand.now.after(DRAIN_TIMEOUT)));
    hand.pass(DRAIN_TIMEOUT);
    hand.sent();
    assert_eq!(hand.manager.last(), Some(key(5)));
}

/// No event existed.
#[test]
fn a_run_of_which_no_node_knows_an_event_ends_at_once() {
    let mut hand = successor();
    hand.manager.stop(hand.now);
    for index in [0, 1] {
        repeated(&mut hand, index, 0);
        tell(&mut hand, index, &[], false);
    }
    hand.sent();
    assert_eq!(hand.manager.state(), ManagerState::Stopping);
    for index in [0, 1] {
        repeated(&mut hand, index, 0);
    }
    hand.sent();
    assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Finishing, Some(key(0))));
}

/// The only readout unit died together with the event manager; builder units may notice the manager's end late.
#[test]
fn a_run_ends_behind_what_builder_units_tell_of() {
    for is_late in [false, true] {
        let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(1, 1) });
        hand.manager.recover(hand.now, key(1), None);
        hand.connect(NodeId::readout(0), 2);
        repeated(&mut hand, 0, 0);
        if is_late {
            hand.pass(EVENT_TIMEOUT);
            hand.sent();
            assert_eq!(hand.manager.state(), ManagerState::Running);
        }
        hand.connect(NodeId::builder(0), 1);
        tell(&mut hand, 0, &[(8, 1, Some(Outcome::Complete)), (9, 1, None)], false);
        hand.sent();
        hand.manager.stop(hand.now);
        hand.sent();
        repeated(&mut hand, 0, 0);
        hand.sent();
        assert_eq!(hand.manager.last(), Some(key(9)), "late: {is_late}");
    }
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
    // The highest attempt counts.
    hand.acknowledge(1, 11, 2, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), []);
    hand.acknowledge(0, 11, 3, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), [(key(11), 1, Outcome::Complete)]);
}

#[test]
fn a_node_that_does_not_answer_in_time_is_not_waited_for() {
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
    // It had not yet been told to begin anew: 5000 is far beyond the table.
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
        hand.announce_entries(readout, restarted, &[super::announced(restarted, true)]);
        hand.say(NodeId::readout(readout), &Message::Highest(restarted));
    }
    tell(&mut hand, 0, &[], false);
    tell(&mut hand, 1, &[], false);
    assert_eq!(hand.assigned(), [(0, 1, 513)]);
}

/// The report of an earlier event manager on how events ended, as kept by a readout unit.
fn ended(below: u64, built: u64, incomplete_emitted: u64) -> Message {
    Message::Ended(Ended { below: key(below), built, incomplete_emitted, ..Ended::default() })
}

#[test]
fn a_successor_s_account_begins_with_what_its_predecessor_left() {
    let mut hand = successor();
    hand.say(NodeId::readout(0), &ended(10, 7, 2));
    // The release of 9 never reached the other one.
    hand.say(NodeId::readout(1), &ended(6, 5, 0));
    for readout in [0, 1] {
        hand.announce(readout, 11, if readout == 0 { 10..=11 } else { 9..=11 });
        repeated(&mut hand, readout, 11);
    }
    tell(&mut hand, 0, &[(9, 1, Some(Outcome::IncompleteEmitted)), (10, 1, Some(Outcome::Complete))], false);
    tell(&mut hand, 1, &[], false);
    let sent = hand.sent();
    // A readout unit that still holds 9 may forget it, and it is neither built nor counted again.
    let expected = [(key(9), 1, Outcome::IncompleteEmitted), (key(10), 1, Outcome::Complete)];
    assert_eq!((released(&sent, 1), assigned(&sent)), (expected.to_vec(), vec![(0, 11, 513)]));
    let account = hand.manager.account();
    assert_eq!((account.assigned, account.built, account.incomplete_emitted, account.in_flight), (11, 8, 2, 1));
    hand.say(NodeId::readout(0), &ended(12, 100, 0));
    assert_eq!(hand.manager.account(), account, "what is said later is its own word");
}

#[test]
fn what_ended_before_is_not_built_again_even_if_no_builder_remembers_it() {
    let mut hand = successor();
    hand.say(NodeId::readout(0), &ended(10, 9, 0));
    hand.announce(0, 10, []);
    hand.announce(1, 10, [8, 9]);
    for index in [0, 1] {
        repeated(&mut hand, index, 10);
        // A late copy of it has no effect.
        tell(&mut hand, index, if index == 0 { &[(8, 2, None)] } else { &[] }, false);
    }
    let sent = hand.sent();
    assert_eq!((released(&sent, 1), assigned(&sent)), (vec![(key(8), 2, Outcome::Complete)], vec![]));
    hand.acknowledge(0, 8, 2, Outcome::Complete);
    assert_eq!((hand.manager.account().assigned, hand.manager.account().built), (9, 9));
}

#[test]
fn events_that_builders_finished_and_no_unit_holds_are_counted_once() {
    let mut hand = successor();
    hand.say(NodeId::readout(0), &ended(5, 4, 0));
    for readout in [0, 1] {
        hand.announce(readout, 8, [8]);
        repeated(&mut hand, readout, 8);
    }
    let done = Some(Outcome::Complete);
    // 4 is below the reported range; of 6 there are two copies.
    tell(&mut hand, 0, &[(4, 1, done), (5, 1, done), (6, 1, done)], false);
    tell(&mut hand, 1, &[(6, 2, done), (7, 1, Some(Outcome::IncompleteEmitted))], false);
    let sent = hand.sent();
    assert_eq!((assigned(&sent), released(&sent, 0)), (vec![(0, 8, 513)], vec![]));
    hand.acknowledge(0, 8, 513, Outcome::Complete);
    hand.sent();
    let account = hand.manager.account();
    assert_eq!((account.assigned, account.built, account.incomplete_emitted), (8, 7, 1));
    // Its connection broke, and it repeats its report.
    hand.connect(NodeId::builder(0), 1);
    tell(&mut hand, 0, &[(5, 1, done), (6, 1, done)], false);
    hand.sent();
    assert_eq!(hand.manager.account(), account);
}

#[test]
fn a_builder_that_comes_late_reports_finished_events_that_no_unit_holds() {
    let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(1, 2) });
    hand.manager.recover(hand.now, key(1), None);
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.announce(0, 3, [1, 3]);
    hand.pass(EVENT_TIMEOUT);
    hand.sent();
    // 1 waits for credit, so that the table still reaches back.
    hand.connect(NodeId::builder(1), 1);
    hand.credit(1, 100, 1 << 20);
    assert_eq!(hand.assigned(), [(1, 1, 513), (1, 3, 513)]);
    tell(&mut hand, 1, &[(2, 1, Some(Outcome::Complete))], false);
    assert_eq!((hand.manager.account().assigned, hand.manager.account().built), (3, 1));
}

/// A builder remembers as many events as the table holds, and twice as many as it can have in work.
#[test]
fn readout_units_learn_how_events_ended_before_builders_forget_it() {
    let mut hand = Hand::new(config(2, 1));
    for index in [0, 1] {
        hand.connect(NodeId::readout(index), 1);
    }
    hand.connect(NodeId::builder(0), 1);
    hand.manager.start(hand.now, key(1), None);
    hand.credit(0, 8, 1 << 20);
    let told = |sent: &[(NodeId, Message)], readout| {
        let messages = to(sent, NodeId::readout(readout)).into_iter();
        messages.filter(|message| matches!(message, Message::Ended(_))).collect::<Vec<_>>()
    };
    for readout in [0, 1] {
        hand.announce(readout, 8, 1..=8);
    }
    hand.sent();
    hand.acknowledge(0, 1, 1, Outcome::Complete);
    assert_eq!(told(&hand.sent(), 0), []);
    hand.acknowledge(0, 3, 1, Outcome::Complete);
    // 3 is released, but 2 is not: the report ends before 2.
    assert_eq!(told(&hand.sent(), 0), []);
    hand.acknowledge(0, 2, 1, Outcome::IncompleteEmitted);
    let sent = hand.sent();
    assert_eq!((told(&sent, 0), told(&sent, 1)), (vec![ended(4, 2, 1)], vec![ended(4, 2, 1)]));
    let mine = to(&sent, NodeId::readout(1));
    assert!(matches!(mine[..], [Message::Release(_), Message::Ended(_)]), "the release comes first: {mine:?}");
}

/// If an event manager dies while nodes finish, it gets a successor, and builder units may have left by then.
#[test]
fn readout_units_learn_how_all_events_ended_before_the_run_finishes() {
    let mut hand = Hand::running(config(1, 1));
    hand.announce(0, 3, 1..=3);
    hand.sent();
    (1..=3).for_each(|number| hand.acknowledge(0, number, 1, Outcome::Complete));
    hand.sent();
    hand.manager.stop(hand.now);
    hand.sent();
    repeated(&mut hand, 0, 3);
    hand.announce(0, 3, []);
    let mine = to(&hand.sent(), NodeId::readout(0));
    let finish = mine.iter().position(|message| *message == Message::Finish).expect("the run finishes");
    let word = mine.iter().position(|message| *message == ended(4, 3, 0)).expect("the account for a successor is sent");
    assert!(word < finish, "{mine:?}");
}

#[test]
fn a_run_that_was_stopped_before_it_was_taken_over_drains() {
    let mut hand = successor();
    for index in [0, 1] {
        if index == 0 {
            hand.say(NodeId::readout(0), &Message::StopAt(key(11)));
        }
        hand.announce(index, 12, [11, 12]);
        repeated(&mut hand, index, 12);
        tell(&mut hand, index, &[], false);
    }
    let sent = hand.sent();
    assert!(to(&sent, NodeId::readout(1)).contains(&Message::StopAt(key(11))), "{sent:?}");
    assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Draining, Some(key(11))));
}

#[test]
fn a_run_whose_end_was_known_from_the_start_is_not_drained_because_of_that() {
    let mut hand = Hand::new(ManagerConfig { epoch: Epoch(2), ..config(1, 1) });
    hand.manager.recover(hand.now, key(1), Some(key(100)));
    hand.connect(NodeId::readout(0), 1);
    hand.connect(NodeId::builder(0), 1);
    hand.say(NodeId::readout(0), &Message::StopAt(key(100)));
    repeated(&mut hand, 0, 5);
    tell(&mut hand, 0, &[], false);
    hand.sent();
    assert_eq!((hand.manager.state(), hand.manager.last()), (ManagerState::Running, Some(key(100))));
}

#[test]
fn a_readout_unit_in_which_the_run_has_not_begun_is_started_without_a_wait() {
    let mut hand = successor();
    hand.announce(0, 12, 10..=12);
    repeated(&mut hand, 0, 12);
    hand.say(NodeId::readout(1), &Message::Highest(EventKey::MIN));
    tell(&mut hand, 0, &[], false);
    tell(&mut hand, 1, &[], false);
    let sent = hand.sent();
    assert!(matches!(to(&sent, NodeId::readout(1))[..], [Message::Start(_)]), "{sent:?}");
    assert_eq!((to(&sent, NodeId::readout(0)), hand.manager.state()), (vec![], ManagerState::Running));
    hand.announce(1, 12, 10..=12);
    assert_eq!(hand.assigned().len(), 3);
}

const DROPPED: Outcome = Outcome::Dropped(Cause::ReadoutLost);

/// Builder unit 0 has lost its connection with event 1, which builder unit 1 has got in attempt 2.
fn given_again() -> Hand {
    let mut hand = Hand::running(config(1, 2));
    hand.announce(0, 1, [1]);
    assert_eq!(hand.assigned(), [(0, 1, 1)]);
    hand.lose(NodeId::builder(0));
    assert_eq!(hand.assigned(), [(1, 1, 2)]);
    hand
}

/// The numbers of built, dropped and in-flight events in the account.
fn ends(hand: &Hand) -> (u64, u64, u64) {
    let account = hand.manager.account();
    (account.built, account.incomplete_dropped.total(), account.in_flight)
}

#[test]
fn an_event_that_was_kept_before_it_is_dropped_in_another_attempt_is_kept() {
    let mut hand = given_again();
    hand.connect(NodeId::builder(0), 1);
    tell(&mut hand, 0, &[(1, 1, Some(Outcome::Complete))], false);
    assert_eq!((released(&hand.sent(), 0), ends(&hand)), (vec![], (0, 0, 1)));
    hand.acknowledge(1, 1, 2, DROPPED);
    assert_eq!(released(&hand.sent(), 0), [(key(1), 1, Outcome::Complete)]);
    assert_eq!(ends(&hand), (1, 0, 0));
}

#[test]
fn an_event_is_not_dropped_before_the_lost_builder_has_reported_whether_it_kept_it() {
    for (told, expected) in [(Some(Outcome::Complete), (1, 0, 0)), (Some(DROPPED), (0, 1, 0)), (None, (0, 1, 0))] {
        let mut hand = given_again();
        hand.acknowledge(1, 1, 2, DROPPED);
        assert_eq!((released(&hand.sent(), 0), ends(&hand)), (vec![], (0, 0, 1)));
        hand.connect(NodeId::builder(0), 1);
        assert_eq!(released(&hand.sent(), 0), []);
        tell(&mut hand, 0, &[(1, 1, told)], false);
        assert_eq!(released(&hand.sent(), 0).len(), 1);
        assert_eq!(ends(&hand), expected, "{told:?}");
    }
}

#[test]
fn a_lost_builder_that_does_not_come_back_is_not_waited_for() {
    for is_new in [false, true] {
        let mut hand = given_again();
        hand.acknowledge(1, 1, 2, DROPPED);
        assert!(released(&hand.sent(), 0).is_empty());
        if is_new {
            // Another process knows nothing of it.
            hand.connect(NodeId::builder(0), 2);
        } else {
            let until = hand.now.after(RETURN);
            assert!(hand.manager.next_deadline().is_some_and(|deadline| deadline <= until));
            hand.pass(RETURN);
        }
        assert_eq!(released(&hand.sent(), 0), [(key(1), 1, DROPPED)]);
        assert_eq!(ends(&hand), (0, 1, 0));
    }
}

#[test]
fn what_is_built_in_another_attempt_waits_for_no_lost_builder() {
    let mut hand = given_again();
    hand.acknowledge(1, 1, 2, Outcome::Complete);
    assert_eq!(released(&hand.sent(), 0), [(key(1), 1, Outcome::Complete)]);
    hand.connect(NodeId::builder(0), 1);
    tell(&mut hand, 0, &[(1, 1, Some(Outcome::Complete))], false);
    assert_eq!((released(&hand.sent(), 0), ends(&hand)), (vec![], (1, 0, 0)));
}

#[test]
fn a_stop_by_force_waits_for_no_lost_builder() {
    let mut hand = given_again();
    hand.acknowledge(1, 1, 2, DROPPED);
    hand.sent();
    hand.manager.force_stop(hand.now);
    assert_eq!(released(&hand.sent(), 0).len(), 1);
    assert_eq!(ends(&hand), (0, 1, 0));
}

#[test]
fn an_event_is_not_dropped_before_each_lost_builder_that_had_it_has_reported() {
    let mut hand = Hand::running(config(1, 3));
    hand.announce(0, 1, [1]);
    assert_eq!(hand.assigned(), [(0, 1, 1)]);
    hand.lose(NodeId::builder(0));
    assert_eq!(hand.assigned(), [(1, 1, 2)]);
    hand.lose(NodeId::builder(1));
    assert_eq!(hand.assigned(), [(2, 1, 3)]);
    hand.connect(NodeId::builder(1), 1);
    tell(&mut hand, 1, &[(1, 2, None)], false);
    hand.acknowledge(2, 1, 3, DROPPED);
    assert_eq!((released(&hand.sent(), 0), ends(&hand)), (vec![], (0, 0, 1)));
    hand.connect(NodeId::builder(0), 1);
    tell(&mut hand, 0, &[(1, 1, Some(Outcome::Complete))], false);
    assert_eq!(released(&hand.sent(), 0), [(key(1), 1, Outcome::Complete)]);
    assert_eq!(ends(&hand), (1, 0, 0));
}
