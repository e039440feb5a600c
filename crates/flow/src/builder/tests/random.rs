//! Whatever comes in whatever order: no panic, the account balances at every step, and all credit comes back.

use super::hand::{Hand, TIMEOUT, config, key};
use crate::builder::{BuilderConfig, IncompletePolicy};
use crate::messages::{Message, RequestEntry, Start};
use proptest::prelude::*;
use ropewalk_terms::{AcknowledgementLevel, Attempt, Cause};

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "inputs of a test, made and used one by one")]
enum Input {
    Assign { number: u64, attempt: u16 },
    Answer { readout: u16, number: u64, slot: u32, attempt: u16, sources: Vec<u32> },
    AnswerAll,
    Reached { slot: u32, level: AcknowledgementLevel },
    Failed { slot: u32 },
    State { readout: u16, present: bool },
    Connected { readout: u16 },
    Lost { readout: u16 },
    Say(Message),
    Pass { percent: u32 },
    Manager,
}

fn level() -> impl Strategy<Value = AcknowledgementLevel> {
    (1..=4_u8).prop_filter_map("a level", AcknowledgementLevel::from_u8)
}

fn input() -> impl Strategy<Value = Input> {
    let (readout, slot, number, attempt) = (0..3_u16, 0..5_u32, 0..12_u64, 1..4_u16);
    let sources = proptest::collection::vec(prop_oneof![0..2_u32, 10..12_u32, Just(99)], 0..4);
    prop_oneof![
        6 => (number.clone(), attempt.clone()).prop_map(|(number, attempt)| Input::Assign { number, attempt }),
        3 => (readout.clone(), number, slot.clone(), attempt, sources).prop_map(
            |(readout, number, slot, attempt, sources)| Input::Answer { readout, number, slot, attempt, sources }
        ),
        4 => Just(Input::AnswerAll),
        5 => (slot.clone(), level()).prop_map(|(slot, level)| Input::Reached { slot, level }),
        1 => slot.prop_map(|slot| Input::Failed { slot }),
        1 => (readout.clone(), any::<bool>()).prop_map(|(readout, present)| Input::State { readout, present }),
        1 => readout.clone().prop_map(|readout| Input::Connected { readout }),
        1 => readout.prop_map(|readout| Input::Lost { readout }),
        1 => prop_oneof![Just(Message::Recover), Just(Message::Finish), Just(Message::Start(Start::of_run(key(1))))]
            .prop_map(Input::Say),
        2 => (0..150_u32).prop_map(|percent| Input::Pass { percent }),
        1 => Just(Input::Manager),
    ]
}

fn enter(hand: &mut Hand, input: Input, asked: &mut Vec<(u16, Vec<RequestEntry>)>) {
    match input {
        Input::Assign { number, attempt } => hand.assign([number], attempt),
        Input::Answer { readout, number, slot, attempt, sources } => {
            hand.answer(readout, RequestEntry { key: key(number), slot, attempt: Attempt(attempt) }, &sources);
        }
        Input::AnswerAll => {
            for (readout, entries) in asked.drain(..) {
                entries.into_iter().for_each(|entry| hand.answer(readout, entry, &[u32::from(10 * readout)]));
            }
        }
        Input::Reached { slot, level } => hand.builder.reached(hand.now, slot, level),
        Input::Failed { slot } => hand.builder.failed(hand.now, slot, Cause::WriteFailed),
        Input::State { readout, present } => hand.readout_state(readout, present),
        Input::Connected { readout } => hand.builder.readout_connected(hand.now, readout),
        Input::Lost { readout } => hand.builder.readout_lost(hand.now, readout),
        Input::Say(message) => hand.say(&message),
        Input::Pass { percent } => hand.pass(TIMEOUT * percent / 100),
        Input::Manager => hand.builder.manager_connected(hand.now),
    }
    // The hand checks the balance.
    asked.extend(hand.done().requests);
}

proptest! {
    #[test]
    fn the_account_balances_and_credit_comes_back(
        inputs in proptest::collection::vec(input(), 0..120), level in level(), drop: bool
    ) {
        let incomplete = if drop { IncompletePolicy::Drop } else { IncompletePolicy::Emit };
        let mut hand = Hand::new(BuilderConfig { level, incomplete, ..config(2) });
        let mut asked = Vec::new();
        for input in inputs {
            enter(&mut hand, input, &mut asked);
        }
        // Everything is given up, written and acknowledged.
        hand.pass(2 * TIMEOUT);
        hand.done();
        hand.pass(2 * TIMEOUT);
        hand.done();
        for slot in 0..4 {
            hand.builder.reached(hand.now, slot, AcknowledgementLevel::Synced);
        }
        prop_assert_eq!(hand.builder.in_work(), 0);
        prop_assert_eq!(hand.builder.account().incomplete_dropped.get(Cause::CrcError), 0);
        prop_assert_eq!(hand.builder.next_deadline(), None);
        hand.builder.manager_connected(hand.now);
        let credits = hand.done().credits;
        let credit = credits.last().expect("a connection begins with credit");
        prop_assert_eq!((credit.events, credit.bytes), (4, 1000));
    }
}
