//! Whatever anybody says in whatever order: no panic, and the account balances at every step.

use super::hand::{EVENT_TIMEOUT, Hand, announced, config, key};
use crate::manager::{ManagerConfig, ManagerState};
use crate::messages::{Announce, Credit, Finished, Message, Unreleased, UnreleasedEntry};
use proptest::prelude::*;
use ropewalk_terms::{Attempt, Cause, Epoch, EventKey, NodeId, Outcome};

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "inputs of a test, made and used one by one")]
enum Input {
    Connect(NodeId, u64),
    Lose(NodeId),
    Say(NodeId, Message),
    Acknowledge { builder: u16, number: u64, attempt: u16, outcome: Outcome },
    Pass(u32),
    Start(Option<u64>),
    Recover,
    Stop,
    StopAt(u64),
    ForceStop,
}

fn node() -> impl Strategy<Value = NodeId> {
    (any::<bool>(), 0..3_u16)
        .prop_map(|(reads, index)| if reads { NodeId::readout(index) } else { NodeId::builder(index) })
}

fn any_key() -> impl Strategy<Value = EventKey> {
    prop_oneof![8 => (0..40_u64).prop_map(key), 2 => (1..3_u16, 0..40_u64).prop_map(|(resync, number)| EventKey::new(resync, number)),
        1 => any::<u64>().prop_map(EventKey::from_bits)]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![Just(Outcome::Complete), Just(Outcome::IncompleteEmitted), Just(Outcome::Dropped(Cause::WriteFailed))]
}

fn said() -> impl Strategy<Value = Message> {
    let entry = (any_key(), any::<bool>()).prop_map(|(key, triggered)| announced(key, triggered));
    let announce = (any_key(), proptest::collection::vec(entry, 0..8))
        .prop_map(|(settled, entries)| Message::Announce(Announce { settled, entries: entries.into_iter().collect() }));
    let told = (any_key(), 0..3_u16, proptest::option::of(outcome())).prop_map(|(key, attempt, outcome)| {
        UnreleasedEntry { key, attempt: Attempt(attempt), ending: outcome.map(Into::into) }
    });
    let unreleased = (proptest::collection::vec(told, 0..5), any::<bool>())
        .prop_map(|(entries, more)| Message::Unreleased(Unreleased { entries: entries.into_iter().collect(), more }));
    prop_oneof![
        6 => announce,
        2 => (0..60_u64, 0..6000_u64).prop_map(|(events, bytes)| Message::Credit(Credit { events, bytes })),
        2 => unreleased,
        1 => any_key().prop_map(Message::Highest),
        1 => Just(Message::Finished(Finished { in_flight: 0 })),
        1 => Just(Message::Recover),
    ]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        3 => (node(), 1..3_u64).prop_map(|(node, life)| Input::Connect(node, life)),
        1 => node().prop_map(Input::Lose),
        20 => (node(), said()).prop_map(|(node, message)| Input::Say(node, message)),
        8 => (0..2_u16, 0..40_u64, 1..3_u16, outcome()).prop_map(
            |(builder, number, attempt, outcome)| Input::Acknowledge { builder, number, attempt, outcome }
        ),
        3 => (0..150_u32).prop_map(Input::Pass),
        1 => proptest::option::of(0..60_u64).prop_map(Input::Start),
        1 => Just(Input::Recover),
        1 => Just(Input::Stop),
        1 => (0..60_u64).prop_map(Input::StopAt),
        1 => Just(Input::ForceStop),
    ]
}

fn enter(hand: &mut Hand, input: Input) {
    let now = hand.now;
    match input {
        Input::Connect(node, life) => hand.connect(node, life),
        Input::Lose(node) => hand.lose(node),
        Input::Say(node, message) => hand.say(node, &message),
        Input::Acknowledge { builder, number, attempt, outcome } => hand.acknowledge(builder, number, attempt, outcome),
        Input::Pass(percent) => hand.pass(EVENT_TIMEOUT * percent / 100),
        Input::Start(last) => hand.manager.start(now, key(1), last.map(key)),
        Input::Recover => hand.manager.recover(now, key(1), None),
        Input::Stop => hand.manager.stop(now),
        Input::StopAt(last) => hand.manager.stop_at(now, key(last)),
        Input::ForceStop => hand.manager.force_stop(now),
    }
}

proptest! {
    #[test]
    fn the_account_balances_and_a_run_can_be_ended(
        inputs in proptest::collection::vec(input(), 0..150), trigger in proptest::option::of(0..2_u16), running: bool
    ) {
        let settings = ManagerConfig { capacity: 16, trigger_readout: trigger, epoch: Epoch(3), ..config(2, 2) };
        let mut hand = if running { Hand::running(settings) } else { Hand::new(settings) };
        for input in inputs {
            enter(&mut hand, input);
            // The hand checks the balance, and that the machine comes to rest.
            hand.sent();
        }
        hand.manager.force_stop(hand.now);
        hand.sent();
        hand.manager.force_stop(hand.now);
        hand.sent();
        prop_assert_eq!(hand.manager.state(), ManagerState::Idle);
        prop_assert_eq!(hand.manager.account().in_flight, 0);
    }
}
