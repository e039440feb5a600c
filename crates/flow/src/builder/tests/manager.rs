//! Between builder and event manager: credit, repeated assignments, recovery, the end.

use super::hand::{BYTES, Done, Hand, acknowledged, config, fragment};
use crate::builder::{BuilderAction, BuilderConfig};
use crate::messages::{Message, Start};
use ropewalk_terms::{Attempt, Cause, EventKey, Outcome};

fn credit(done: &Done) -> Option<(u64, u64)> {
    done.credits.last().map(|credit| (credit.events, credit.bytes))
}

/// What the builder tells a new manager: event, attempt, outcome; and how many messages it took.
fn told(done: &Done) -> (Vec<(u64, u16, Option<Outcome>)>, usize) {
    let messages: Vec<_> = done
        .other
        .iter()
        .map(|message| match message {
            Message::Unreleased(unreleased) => unreleased,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(messages.iter().rev().skip(1).all(|message| message.more));
    assert!(messages.last().is_some_and(|message| !message.more));
    let entries = messages.iter().flat_map(|message| &message.entries);
    (
        entries.map(|entry| (entry.key.number(), entry.attempt.0, entry.ending.map(|ending| ending.outcome))).collect(),
        messages.len(),
    )
}

#[test]
fn credit_is_absolute_and_grows_by_what_is_freed() {
    let mut hand = Hand::new(config(1));
    assert_eq!(credit(&hand.done()), Some((4, 1000)));
    let emitted = hand.build(1..=3);
    assert_eq!(credit(&hand.done()), None);
    hand.written(emitted[0]);
    hand.written(emitted[2]);
    assert_eq!(credit(&hand.done()), Some((6, 1000 + 2 * u64::from(BYTES))));
}

#[test]
fn a_new_connection_counts_anew_without_what_is_in_work() {
    let mut hand = Hand::new(config(1));
    let emitted = hand.build(1..=3);
    hand.written(emitted[0]);
    hand.done();
    // The manager may have assigned a fourth that was lost on the way: nobody has to know.
    hand.builder.manager_connected(hand.now);
    assert_eq!(credit(&hand.done()), Some((2, 1000 - 2 * u64::from(BYTES))));
    hand.written(emitted[1]);
    hand.written(emitted[2]);
    assert_eq!(credit(&hand.done()), Some((4, 1000)));
}

/// Pairs of an event and a readout unit whose fragments the event does not have, to be sent to the manager.
fn lacking(done: &Done) -> Vec<(u64, u16, u16)> {
    let of = |message: &Message| match message {
        Message::Lacking(lacking) => lacking.entries.to_vec(),
        _ => Vec::new(),
    };
    done.other.iter().flat_map(of).map(|entry| (entry.key.number(), entry.attempt.0, entry.readout)).collect()
}

/// A readout unit that was away may hold fragments that no record has.
#[test]
fn what_an_event_was_built_without_is_told_ahead_of_its_acknowledgement_and_whenever_that_is_repeated() {
    let mut hand = Hand::new(config(70));
    hand.assign([1, 2], 1);
    let requests = hand.done().requests;
    for (readout, entries) in &requests {
        let first = u32::from(10 * readout);
        let mut fragments = vec![fragment(1, first), fragment(1, first + 1)];
        match readout {
            3 => hand.answer_with(*readout, entries[0], &mut Vec::new(), Some(Cause::Late)),
            69 => {}
            _ => hand.answer_with(*readout, entries[0], &mut fragments, None),
        }
        hand.answer(*readout, entries[1], &[first, first + 1]);
    }
    hand.readout_state(69, false);
    let emitted = hand.done().emitted;
    assert_eq!(emitted.len(), 2);
    emitted.iter().for_each(|&slot| hand.written(slot));
    assert!(matches!(hand.builder.poll(hand.now), Some(BuilderAction::ToManager(Message::Lacking(_)))), "first");
    hand.done();
    hand.assign([1], 2);
    assert_eq!(lacking(&hand.done()), [(1, 2, 3), (1, 2, 69)]);
    hand.say(&Message::Recover);
    assert_eq!(lacking(&hand.done()), [(1, 2, 3), (1, 2, 69)]);
    hand.readout_state(69, true);
    let slots = hand.build([3]);
    slots.iter().for_each(|&slot| hand.written(slot));
    assert_eq!(lacking(&hand.done()), []);
}

#[test]
fn assignments_beyond_the_slots_are_refused() {
    let mut hand = Hand::new(config(1));
    hand.assign(1..=9, 1);
    assert_eq!(hand.builder.counts().refused_assignments, 5);
    assert_eq!(hand.builder.account().assigned, 4);
    hand.done();
}

#[test]
fn an_event_in_work_that_is_assigned_again_is_built_once_and_acknowledged_as_the_newer_attempt() {
    let mut hand = Hand::new(config(1));
    hand.done();
    hand.assign([1], 1);
    let requests = hand.done().requests;
    hand.assign([1], 2);
    hand.assign([1], 1);
    let done = hand.done();
    assert!(done.requests.is_empty());
    assert_eq!(credit(&done), Some((5, 1100)));
    assert_eq!(hand.builder.counts().repeated_assignments, 2);
    hand.answer(0, requests[0].1[0], &[0, 1]);
    let emitted = hand.done().emitted;
    assert_eq!(hand.builder.event(emitted[0]).attempt, Attempt(2));
    hand.written(emitted[0]);
    assert_eq!(acknowledged(&hand.done()), [(1, 2, Outcome::Complete)]);
    assert_eq!(hand.builder.account().assigned, 1);
}

#[test]
fn an_event_that_is_done_and_assigned_again_is_acknowledged_again() {
    let mut hand = Hand::new(config(1));
    let emitted = hand.build([1]);
    hand.written(emitted[0]);
    assert_eq!(credit(&hand.done()), Some((5, 1100)));
    hand.assign([1], 2);
    let done = hand.done();
    assert_eq!(acknowledged(&done), [(1, 2, Outcome::Complete)]);
    assert_eq!(credit(&done), Some((6, 1200)));
    assert!(done.requests.is_empty());
    // The same message once more says nothing new.
    hand.assign([1], 2);
    let done = hand.done();
    assert!(done.acknowledged.is_empty() && done.credits.is_empty());
    assert_eq!(hand.builder.account().built, 1);
}

#[test]
fn a_new_manager_is_told_what_is_in_work_and_what_was_done_lately() {
    let mut hand = Hand::new(config(1));
    for number in 1..=10 {
        let emitted = hand.build([number]);
        hand.written(emitted[0]);
    }
    hand.assign(11..=12, 3);
    hand.done();
    hand.say(&Message::Recover);
    let (entries, _) = told(&hand.done());
    let done: Vec<_> = entries.iter().filter(|entry| entry.2.is_some()).collect();
    let in_work: Vec<_> = entries.iter().filter(|entry| entry.2.is_none()).copied().collect();
    assert_eq!(in_work, [(12, 3, None), (11, 3, None)].iter().rev().copied().collect::<Vec<_>>());
    // Twice as many as there are slots.
    assert_eq!(done.len(), 8);
    assert!(done.iter().all(|entry| (3..=10).contains(&entry.0) && entry.2 == Some(Outcome::Complete)));
}

/// The oldest event of all is somebody else's and does not end, so that no readout unit is told how later ones ended.
#[test]
fn a_whole_table_of_ended_events_is_remembered_for_a_successor() {
    let mut hand = Hand::new(BuilderConfig { table: 64, ..config(1) });
    for number in 2..=65 {
        let emitted = hand.build([number]);
        hand.written(emitted[0]);
    }
    hand.done();
    hand.say(&Message::Recover);
    let (mut entries, _) = told(&hand.done());
    entries.sort_unstable_by_key(|entry| entry.0);
    assert_eq!(entries, (2..=65).map(|number| (number, 1, Some(Outcome::Complete))).collect::<Vec<_>>());
}

#[test]
fn a_long_list_takes_several_messages_and_an_empty_one_takes_one() {
    let mut hand = Hand::new(BuilderConfig { slots: 150, credit_bytes: 1 << 20, ..config(1) });
    hand.done();
    hand.say(&Message::Recover);
    assert_eq!(told(&hand.done()), (vec![], 1));
    for first in [1, 51, 101] {
        hand.assign(first..first + 50, 1);
        hand.done();
    }
    hand.say(&Message::Recover);
    let (mut entries, messages) = told(&hand.done());
    entries.sort_unstable_by_key(|entry| entry.0);
    assert_eq!(entries, (1..=150).map(|number| (number, 1, None)).collect::<Vec<_>>());
    assert_eq!(messages, 3);
}

#[test]
fn at_the_end_what_is_not_emitted_is_dropped_and_what_is_may_still_be_written() {
    let mut hand = Hand::new(config(1));
    let emitted = hand.build([1]);
    hand.assign([2], 1);
    hand.done();
    hand.say(&Message::Finish);
    assert_eq!(hand.builder.account().incomplete_dropped.get(Cause::ForcedStop), 1);
    assert_eq!(hand.builder.in_work(), 1);
    hand.written(emitted[0]);
    assert_eq!(acknowledged(&hand.done()), [(1, 1, Outcome::Complete)]);
    assert_eq!(hand.builder.in_work(), 0);
    assert_eq!(hand.builder.next_deadline(), None);
}

#[test]
fn a_run_starts_with_a_clean_account_and_the_credit_of_its_connection() {
    let mut hand = Hand::new(config(1));
    hand.readout_state(0, false);
    hand.assign([1], 1);
    hand.readout_state(0, true);
    hand.assign([2], 1);
    hand.say(&Message::Start(Start::of_run(EventKey::new(0, 1))));
    assert_eq!(hand.builder.account(), Default::default());
    assert_eq!(hand.builder.in_work(), 0);
    assert_eq!(credit(&hand.done()), Some((6, 1200)));
    assert_eq!(hand.build([1]).len(), 1);
}

#[test]
fn what_is_still_being_written_does_not_count_in_the_next_run() {
    let mut hand = Hand::new(config(1));
    let old = hand.build([1, 2]);
    hand.say(&Message::Start(Start::of_run(EventKey::new(0, 1))));
    let new = hand.build([1]);
    hand.written(old[0]);
    hand.builder.failed(hand.now, old[1], Cause::WriteFailed);
    assert_eq!(acknowledged(&hand.done()), []);
    assert_eq!((hand.builder.in_work(), hand.builder.account().written), (1, 0));
    hand.written(new[0]);
    assert_eq!(acknowledged(&hand.done()), [(1, 1, Outcome::Complete)]);
    assert_eq!(hand.builder.account().built, 1);
}

#[test]
fn words_for_others_are_refused_and_counted() {
    let mut hand = Hand::new(config(1));
    hand.say(&Message::QueryHighest);
    hand.say(&Message::Highest(EventKey::MIN));
    assert_eq!(hand.builder.counts().refused_messages, 2);
    hand.builder.readout_connected(hand.now, 9);
    hand.builder.readout_lost(hand.now, 9);
    hand.readout_state(9, false);
    hand.done();
}
