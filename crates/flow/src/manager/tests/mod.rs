//! Each rule of the protocol: on the machine alone, and in a world of builders and model readout units in which
//! messages are lost with their connections, repeated, and nodes die at random.

mod assignments;
mod recovery;
mod runs;
mod standby;
mod world;

use crate::manager::{
    AssignPolicy, BuilderLoad, Manager, ManagerAction, ManagerConfig, ManagerConfigError, ManagerState,
};
use crate::messages::{
    Acknowledge, AcknowledgeEntry, Announce, AnnounceEntry, AssignEntry, BATCH, Batch, Credit, Finished, Lacking,
    LackingEntry, LumisectionEnd, Message, ReleaseEntry, Unreleased, UnreleasedEntry,
};
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_terms::{AcknowledgementLevel, Attempt, Cause, Epoch, EventKey, Incarnation, Instant, NodeId, Outcome};

const EVENT_TIMEOUT: Duration = Duration::from_secs(3);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

fn key(number: u64) -> EventKey {
    EventKey::new(0, number)
}

fn config(readouts: u16, builders: u16) -> ManagerConfig {
    ManagerConfig {
        capacity: 64,
        policy: AssignPolicy::RoundRobin,
        batch: 4,
        event_timeout: EVENT_TIMEOUT,
        drain_timeout: DRAIN_TIMEOUT,
        ..ManagerConfig::new(readouts, builders)
    }
}

struct Hand {
    manager: Manager,
    now: Instant,
    ended: u32,
    lumisections: Vec<LumisectionEnd>,
}

impl Hand {
    /// No node is connected.
    fn new(config: ManagerConfig) -> Self {
        assert_eq!(config.check(), Ok(()));
        Self {
            manager: Manager::new(config),
            now: Instant::from_nanoseconds(1_000_000_000),
            ended: 0,
            lumisections: Vec::new(),
        }
    }

    /// All nodes are connected in life 1, builders have credit for 1,000 events, and the run has started at key 1.
    fn running(config: ManagerConfig) -> Self {
        let (readouts, builders) = (config.readouts, config.builders);
        let mut hand = Self::new(config);
        for index in 0..readouts {
            hand.connect(NodeId::readout(index), 1);
        }
        for index in 0..builders {
            hand.connect(NodeId::builder(index), 1);
            hand.credit(index, 1000, 1 << 30);
        }
        hand.manager.start(hand.now, key(1), None);
        hand.sent();
        hand
    }

    fn connect(&mut self, node: NodeId, life: u64) {
        self.manager.node_connected(self.now, node, Incarnation(life));
    }

    fn lose(&mut self, node: NodeId) {
        self.manager.node_lost(self.now, node);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    fn say(&mut self, from: NodeId, message: &Message) {
        self.manager.message(self.now, from, message);
    }

    fn announce_entries(&mut self, readout: u16, settled: EventKey, entries: &[AnnounceEntry]) {
        let entries = entries.iter().copied().collect();
        self.say(NodeId::readout(readout), &Message::Announce(Announce { settled, entries }));
    }

    /// Announces these numbers of resync count 0 with 100 bytes each, triggered.
    fn announce(&mut self, readout: u16, settled: u64, numbers: impl IntoIterator<Item = u64>) {
        let entries: Vec<_> = numbers.into_iter().map(|number| announced(key(number), true)).collect();
        self.announce_entries(readout, key(settled), &entries);
    }

    fn credit(&mut self, builder: u16, events: u64, bytes: u64) {
        self.say(NodeId::builder(builder), &Message::Credit(Credit { events, bytes }));
    }

    fn acknowledge(&mut self, builder: u16, number: u64, attempt: u16, outcome: Outcome) {
        let entry = AcknowledgeEntry { key: key(number), attempt: Attempt(attempt), ending: outcome.into() };
        let entries = [entry].into_iter().collect();
        let level = AcknowledgementLevel::Written;
        self.say(NodeId::builder(builder), &Message::Acknowledge(Acknowledge { level, entries }));
    }

    /// Reports events that a builder unit built without these readout units.
    fn lack(&mut self, builder: u16, lacking: &[(u64, u16, u16)]) {
        let entry = |&(number, attempt, readout)| LackingEntry { key: key(number), attempt: Attempt(attempt), readout };
        let entries = lacking.iter().map(entry).collect();
        self.say(NodeId::builder(builder), &Message::Lacking(Lacking { entries }));
    }

    /// The sent messages, without those about lumisections.
    fn sent(&mut self) -> Vec<(NodeId, Message)> {
        let mut sent = self.all_sent();
        sent.retain(|(_, message)| !matches!(message, Message::Lumisection(_) | Message::LumisectionEnd(_)));
        sent
    }

    fn all_sent(&mut self) -> Vec<(NodeId, Message)> {
        let mut sent = Vec::new();
        while let Some(action) = self.manager.poll(self.now) {
            match action {
                ManagerAction::Send { to, message } => sent.push((to, message)),
                ManagerAction::LumisectionEnded(end) => self.lumisections.push(end),
                ManagerAction::RunEnded => self.ended += 1,
            }
            assert!(sent.len() < 10_000, "the manager does not come to rest");
        }
        self.assert_balanced();
        sent
    }

    fn assert_balanced(&self) {
        let account = self.manager.account();
        assert_eq!(account.assigned, account.accounted(), "{account:?}");
        assert_eq!(account.accepted, account.built + account.incomplete_emitted);
    }

    /// The assignments: builder, event number, attempt.
    fn assigned(&mut self) -> Vec<(u16, u64, u16)> {
        assigned(&self.sent())
    }
}

fn announced(key: EventKey, triggered: bool) -> AnnounceEntry {
    AnnounceEntry { key, bytes: 100, fragments: 1, triggered }
}

fn assigned(sent: &[(NodeId, Message)]) -> Vec<(u16, u64, u16)> {
    let assigns = sent.iter().filter_map(|(to, message)| match message {
        Message::Assign(assign) => Some((to.index, assign.entries.clone())),
        _ => None,
    });
    let flat = assigns.flat_map(|(builder, entries): (u16, Batch<AssignEntry>)| {
        entries.into_iter().map(move |entry| (builder, entry.key.number(), entry.attempt.0))
    });
    flat.collect()
}

/// The releases sent to a readout unit.
fn released(sent: &[(NodeId, Message)], readout: u16) -> Vec<(EventKey, u32, Outcome)> {
    let releases = sent.iter().filter_map(|(to, message)| match message {
        Message::Release(release) if *to == NodeId::readout(readout) => Some(release.entries.clone()),
        _ => None,
    });
    releases.flatten().map(|ReleaseEntry { first, count, outcome }| (first, count, outcome)).collect()
}

/// The messages to one node.
fn to(sent: &[(NodeId, Message)], node: NodeId) -> Vec<Message> {
    sent.iter().filter(|(to, _)| *to == node).map(|(_, message)| message.clone()).collect()
}

/// Passes events through everything: announced by `readouts`, assigned, acknowledged, released.
fn drive(readouts: u16, builders: u16, events: u64) -> u64 {
    let mut hand = Hand::running(ManagerConfig { capacity: 1 << 14, batch: BATCH, ..config(readouts, builders) });
    let mut next = EventKey::new(0, 1);
    let mut released = 0;
    for index in 0..builders {
        hand.credit(index, u64::MAX, u64::MAX);
    }
    while next.number() <= events {
        let entries: Batch<AnnounceEntry> = (0..BATCH as u64)
            .map(|offset| AnnounceEntry { key: next.plus(offset), bytes: 2048, fragments: 4, triggered: true })
            .collect();
        let settled = next.plus(BATCH as u64 - 1);
        next = settled.next();
        let announce = Message::Announce(Announce { settled, entries });
        for readout in 0..readouts {
            hand.say(NodeId::readout(readout), &announce);
        }
        while let Some(action) = hand.manager.poll(hand.now) {
            match action {
                ManagerAction::Send { to, message: Message::Assign(assign) } => {
                    let done = assign.entries.iter().map(|entry| AcknowledgeEntry {
                        key: entry.key,
                        attempt: entry.attempt,
                        ending: Outcome::Complete.into(),
                    });
                    let level = AcknowledgementLevel::Written;
                    hand.say(to, &Message::Acknowledge(Acknowledge { level, entries: done.collect() }));
                    hand.say(to, &Message::Credit(Credit { events: u64::MAX, bytes: u64::MAX }));
                }
                ManagerAction::Send { message: Message::Release(release), .. } => {
                    released += release.entries.iter().map(|entry| u64::from(entry.count)).sum::<u64>();
                }
                other => panic!("{other:?}"),
            }
        }
    }
    released
}

#[test]
fn every_event_comes_out_at_every_readout_unit() {
    assert_eq!(drive(4, 2, 64 * 300), 4 * 64 * 300);
}

fn load(builder: u16, in_work: u32, free_bytes: u64) -> BuilderLoad {
    BuilderLoad { builder, in_work, free_bytes }
}

#[test]
fn round_robin_goes_on_behind_the_last_one() {
    let all = [load(0, 9, 1), load(1, 0, 9), load(3, 5, 5)];
    let choose = |last| AssignPolicy::RoundRobin.choose(last, all.into_iter());
    assert_eq!(choose(None), Some(0));
    assert_eq!(choose(Some(0)), Some(1));
    assert_eq!(choose(Some(1)), Some(3));
    assert_eq!(choose(Some(2)), Some(3));
    assert_eq!(choose(Some(3)), Some(0));
}

#[test]
fn least_loaded_counts_events_and_takes_turns_among_equals() {
    let all = [load(0, 2, 1), load(1, 2, 9), load(2, 7, 99)];
    let choose = |last| AssignPolicy::LeastLoaded.choose(last, all.into_iter());
    assert_eq!(choose(None), Some(0));
    assert_eq!(choose(Some(0)), Some(1));
    assert_eq!(choose(Some(1)), Some(0));
}

#[test]
fn free_bytes_looks_at_bytes_alone() {
    let all = [load(0, 0, 10), load(1, 50, 11), load(2, 9, 11)];
    let choose = |last| AssignPolicy::FreeBytes.choose(last, all.into_iter());
    assert_eq!(choose(None), Some(1));
    assert_eq!(choose(Some(1)), Some(2));
}

#[test]
fn no_builder_is_chosen_without_candidates() {
    for policy in [AssignPolicy::RoundRobin, AssignPolicy::LeastLoaded, AssignPolicy::FreeBytes] {
        assert_eq!(policy.choose(Some(1), [].into_iter()), None);
    }
}

#[test]
fn settings_outside_their_limits_are_named() {
    let good = config(2, 2);
    assert_eq!(good.check(), Ok(()));
    let check = |change: fn(&mut crate::manager::ManagerConfig)| {
        let mut bad = config(2, 2);
        change(&mut bad);
        bad.check()
    };
    assert_eq!(check(|bad| bad.readouts = 0), Err(ManagerConfigError::NoReadouts));
    assert_eq!(check(|bad| bad.builders = 0), Err(ManagerConfigError::NoBuilders));
    assert_eq!(check(|bad| bad.capacity = 100), Err(ManagerConfigError::Capacity(100)));
    assert_eq!(check(|bad| bad.batch = 65), Err(ManagerConfigError::Batch(65)));
    assert_eq!(check(|bad| bad.trigger_readout = Some(2)), Err(ManagerConfigError::TriggerReadout(2)));
}

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
            // `sent` checks the balance, and that the machine comes to rest.
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
