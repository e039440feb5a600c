//! Lumisections: where they begin, when they are over, and what their accounts say.

use super::hand::{Hand, config, key};
use super::world::World;
use crate::manager::{LumisectionLength, ManagerConfig};
use crate::messages::{LumisectionEnd, Message};
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_terms::{Attempt, Cause, EventAccount, NodeId, Outcome};

fn by(lumisection: LumisectionLength) -> ManagerConfig {
    ManagerConfig { lumisection, ..config(1, 2) }
}

/// What a node was told, in order: `begin 2 at 4`, `assign 4`, `end 1`.
fn told(sent: &[(NodeId, Message)], node: NodeId) -> Vec<String> {
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
    let (first, second) = (told(&sent, NodeId::builder(0)), told(&sent, NodeId::builder(1)));
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
    assert_eq!(told(&hand.all_sent(), NodeId::builder(0)), [""; 0], "those before are in work");
    acknowledge(&mut hand, 0, &[(1, 1)]);
    assert_eq!(told(&hand.all_sent(), NodeId::builder(0)), [""; 0]);
    acknowledge(&mut hand, 0, &[(2, 1)]);
    assert_eq!(told(&hand.all_sent(), NodeId::builder(1)), ["end 1"], "the second may have more");
    assert_eq!(hand.lumisections.iter().map(built).collect::<Vec<_>>(), [(1, 1, 2)]);
    hand.announce(0, 5, 5..=5);
    let sent = hand.all_sent();
    assert_eq!(told(&sent, NodeId::readout(0)), ["begin 3 at 5", "end 2"]);
    assert_eq!(built(&hand.lumisections[1]), (2, 3, 2));
}

#[test]
fn an_event_that_is_assigned_again_stays_in_its_lumisection() {
    let mut hand = Hand::running(by(LumisectionLength::Events(2)));
    hand.announce(0, 4, 1..=4);
    hand.all_sent();
    hand.lose(NodeId::builder(0));
    let sent = hand.all_sent();
    assert_eq!(told(&sent, NodeId::builder(1)), ["assign 1", "assign 2"], "none begins for them");
    acknowledge(&mut hand, 1, &[(1, 2), (2, 2), (3, 1)]);
    hand.all_sent();
    assert_eq!(hand.lumisections.iter().map(built).collect::<Vec<_>>(), [(1, 1, 2)]);
    // Who comes back is told what it missed.
    hand.connect(NodeId::builder(0), 2);
    assert_eq!(told(&hand.all_sent(), NodeId::builder(0)), ["end 1", "begin 2 at 3"]);
}

#[test]
fn time_ends_one_whatever_comes() {
    let mut hand = Hand::running(by(LumisectionLength::Time(Duration::from_secs(23))));
    hand.announce(0, 3, 1..=3);
    hand.all_sent();
    hand.pass(Duration::from_secs(22));
    assert_eq!(told(&hand.all_sent(), NodeId::builder(0)), [""; 0]);
    hand.pass(Duration::from_secs(1));
    assert_eq!(told(&hand.all_sent(), NodeId::builder(0)), ["begin 2 at 4"]);
    acknowledge(&mut hand, 0, &[(1, 1), (2, 1), (3, 1)]);
    hand.pass(Duration::from_secs(23));
    assert_eq!(told(&hand.all_sent(), NodeId::builder(0)), ["begin 3 at 4", "end 1", "end 2"], "the second is empty");
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
    let words = told(&hand.all_sent(), NodeId::builder(0));
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
    assert_eq!(told(&sent, NodeId::builder(0)), ["end 1", "end 2"]);
    let place =
        |wanted: fn(&Message) -> bool| sent.iter().position(|(_, message)| wanted(message)).expect("it was sent");
    let finish = place(|message| matches!(message, Message::Finish));
    assert!(place(|message| matches!(message, Message::LumisectionEnd(end) if end.number == 2)) < finish);
    let accounts: Vec<EventAccount> = hand.lumisections.iter().map(LumisectionEnd::account).collect();
    assert_eq!((accounts[0].built, accounts[0].incomplete_dropped.get(Cause::ForcedStop)), (1, 1));
    assert_eq!((accounts[1].built, accounts[1].incomplete_dropped.get(Cause::ForcedStop)), (0, 2));
}

#[test]
fn a_successor_goes_on_with_what_it_is_told() {
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
    next.pass(super::hand::EVENT_TIMEOUT);
    next.credit(1, 100, 1 << 20);
    let words = told(&next.all_sent(), NodeId::builder(1));
    assert_eq!(words, ["end 1", "begin 2 at 3", "begin 3 at 5"]);
    next.announce(0, 5, 3..=5);
    let words = told(&next.all_sent(), NodeId::builder(1));
    assert_eq!(words, ["assign 3", "assign 4", "assign 5"]);
    let attempt = Attempt(0x201);
    acknowledge(&mut next, 1, &[(3, attempt.0), (4, attempt.0), (5, attempt.0)]);
    next.all_sent();
    assert_eq!(next.lumisections.iter().map(built).collect::<Vec<_>>(), [(2, 3, 2)]);
}

/// What must hold of the lumisections of a world whose run has ended.
fn check(world: &World, has_successors: bool) -> Result<(), TestCaseError> {
    let mut last: Option<&LumisectionEnd> = None;
    for end in &world.closed {
        let before = last.map_or(0, |last| last.number);
        // A successor says once more what nobody heard who is left.
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
    fn whatever_dies_every_event_is_in_one_lumisection_and_in_its_account(
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
