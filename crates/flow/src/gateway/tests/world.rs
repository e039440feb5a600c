//! A world of sources, a gateway and nodes, in virtual time: packets are lost, duplicated and late; pushes and
//! decisions are lost; nodes die, return, are slow. Results are checked against the sources alone: they know what they
//! sent.

use super::*;
use crate::source::mep::{MepSourceConfig, MepSources};
use crate::source::{Random, SizeDistribution};
use proptest::prelude::*;
use ropewalk_terms::{Cause, EventKey, Incarnation};
use ropewalk_wire::gateway::{Copying, EventFlags, Frame, Kind, Message, PieceHead, PushView, Stream, ThrottleState};
use std::collections::{BTreeMap, BTreeSet};

/// The faults of a run.
#[derive(Clone, Debug)]
struct Script {
    seed: u64,
    /// Sets of each flow.
    sets: u64,
    /// Lost pushes and decisions, per thousand.
    lost_pushes: u64,
    lost_messages: u64,
    /// Node 0 is dead in this time, in milliseconds.
    dead: core::ops::Range<u64>,
    /// Node 1 decides this many milliseconds after the others.
    slow: u64,
    /// Whether the trigger obeys the throttle.
    is_throttled: bool,
    largest_push: usize,
    incomplete: Incomplete,
}

impl Script {
    const fn quiet(seed: u64) -> Self {
        Self {
            seed,
            sets: 60,
            lost_pushes: 0,
            lost_messages: 0,
            dead: 0..0,
            slow: 0,
            is_throttled: true,
            largest_push: 1472,
            incomplete: Incomplete::Emit,
        }
    }
}

struct Node {
    machine: FarmNode,
    /// The pending decisions of nodes: the time, and the event.
    deciding: Vec<(u64, u64, EventKey)>,
}

const NODES: u16 = 4;
const L1: u8 = 0;
const HLT: u8 = 1;

struct World {
    script: Script,
    bench: Bench,
    sources: [MepSources; 2],
    gateway: Gateway,
    nodes: Vec<Option<Node>>,
    random: Random,
    now: u64,
    /// Packets that the sources lost: flow, set, source.
    lost: BTreeSet<(u8, u64, u16)>,
    /// Packets missing in finished sets.
    missing: BTreeSet<(u8, u64, u16)>,
    dropped: BTreeSet<(u8, u64)>,
    streamed: Vec<(EventKey, bool, bool)>,
    stored: BTreeMap<EventKey, (PieceHead, Vec<u8>)>,
    /// How often a complete event reached a node.
    seen: BTreeMap<(u8, EventKey), u32>,
    throttled: u64,
}

/// A node's decision on an event.
fn is_wanted(key: EventKey) -> bool {
    key.number().is_multiple_of(5)
}

impl World {
    fn new(script: Script) -> Self {
        let mep = |sources, packing, size| MepSourceConfig {
            seed: script.seed.wrapping_add(u64::from(packing)),
            size,
            loss: 0.01,
            duplicates: 0.02,
            reordered: 0.05,
            shuffled: true,
            first_event: 1000,
            ..MepSourceConfig::new(sources, packing, 0)
        };
        let l1 = mep(30, 25, SizeDistribution::Fixed(32));
        let hlt = mep(50, 10, SizeDistribution::Uniform { least: 8, most: 120 });
        let flow = |config: MepSourceConfig, output| FlowConfig {
            output,
            first_event: config.first_event,
            timeout: Duration::from_millis(20),
            decision_timeout: Duration::from_millis(200),
            sets: 24,
            assembling: 12,
            incomplete: script.incomplete,
            ..flow(config.sources, config.packing)
        };
        let flows = vec![flow(l1, Output::Stream), flow(hlt, Output::Storage)];
        let (silence, heartbeat) = (Duration::from_millis(30), Duration::from_millis(4));
        let farm = FarmConfig { silence, heartbeat, largest_push: script.largest_push, ..FarmConfig::new(NODES) };
        let gateway = Gateway::new(&GatewayConfig::new(3, flows, farm)).expect("it can be");
        let mut world = Self {
            bench: Bench::new(),
            sources: [MepSources::new(l1), MepSources::new(hlt)],
            gateway,
            nodes: Vec::new(),
            random: Random::new(script.seed, 9),
            now: 0,
            lost: BTreeSet::new(),
            missing: BTreeSet::new(),
            dropped: BTreeSet::new(),
            streamed: Vec::new(),
            stored: BTreeMap::new(),
            seen: BTreeMap::new(),
            throttled: 0,
            script,
        };
        world.nodes = (0..NODES).map(|node| Some(world.node(node))).collect();
        world
    }

    fn node(&self, node: u16) -> Node {
        let config = FarmNodeConfig {
            node,
            incarnation: Incarnation(1 + self.now),
            gateway: 3,
            window: 40,
            heartbeat: Duration::from_millis(4),
            patience: Duration::from_millis(3),
            largest_event: 1 << 20,
        };
        Node { machine: FarmNode::new(config), deciding: Vec::new() }
    }

    fn is_lost(&mut self, of_a_thousand: u64) -> bool {
        self.random.below(1000) < of_a_thousand
    }

    /// Advances by a millisecond.
    fn step(&mut self) {
        self.now += 1;
        let now = at(self.now);
        if self.script.dead.contains(&self.now) {
            self.nodes[0] = None;
        } else if self.nodes[0].is_none() {
            self.nodes[0] = Some(self.node(0));
        }
        for flow in [L1, HLT] {
            let is_open = !self.script.is_throttled || self.gateway.throttle().state().is_open();
            let is_left = self.sources[usize::from(flow)].sets() < self.script.sets;
            if is_open && is_left {
                self.trigger(flow);
            } else {
                self.send_late(flow);
            }
            self.throttled += u64::from(!is_open && is_left);
        }
        self.turn();
        for node in 0..NODES {
            self.serve(node, now);
        }
        self.turn();
    }

    fn trigger(&mut self, flow: u8) {
        self.sources[usize::from(flow)].trigger(3);
        while let Some(packet) = self.sources[usize::from(flow)].next_packet() {
            if packet.is_lost {
                self.lost.insert((flow, packet.set, packet.source));
            } else {
                self.send(flow, &packet);
            }
        }
    }

    /// Reordered packets are late by a millisecond or two, whether triggers come or not.
    fn send_late(&mut self, flow: u8) {
        while let Some(packet) = self.sources[usize::from(flow)].next_late_packet() {
            self.send(flow, &packet);
        }
    }

    fn send(&mut self, flow: u8, packet: &crate::source::mep::EmulatedPacket) {
        let mut bytes = Vec::new();
        self.sources[usize::from(flow)].encode(packet, &mut bytes);
        let payload = self.bench.payload(&bytes);
        assert_eq!(self.gateway.on_packet(flow, address(packet.source), payload, at(self.now)), None);
    }

    /// A turn of the gateway.
    fn turn(&mut self) {
        let now = at(self.now);
        let Self { gateway, missing, dropped, sources, .. } = self;
        [L1, HLT].into_iter().for_each(|flow| gateway.receiver().on_drained(flow, now));
        gateway.turn(now, |set| {
            let config = sources[usize::from(set.flow())].config();
            let number = (set.first().number() - config.first_event) / u64::from(config.packing);
            missing.extend(set.missing().map(|(source, _)| (set.flow(), number, source)));
            if set.ending() == Ending::Dropped(Cause::IncompletePolicy) {
                dropped.insert((set.flow(), number));
            }
            assert_eq!(set.keys().len(), usize::from(config.packing));
        });
        self.push();
        while let Some(message) = self.gateway.next_message(now) {
            self.on_outgoing(message);
        }
        while let Some(key) = self.gateway.next_stored() {
            let view = self.gateway.stored_view().expect("it was just shown");
            assert_eq!(view.word(), key.number() as u32);
            let bytes: Vec<u8> = view.pieces().flatten().copied().collect();
            assert_eq!((view.head().key, view.head().length as usize), (key, bytes.len()));
            assert!(self.stored.insert(key, (view.head(), bytes)).is_none(), "{key} is stored twice");
            self.gateway.stored();
        }
        for flow in [L1, HLT] {
            let (packets, events) = self.gateway.account(flow);
            assert!(packets.is_balanced() && events.is_balanced(), "{packets:?} {events:?}");
        }
        assert!(self.gateway.ledger().is_balanced(), "{:?}", self.gateway.ledger().imbalances());
    }

    fn push(&mut self) {
        while let Some(node) = self.gateway.next_push() {
            let view = self.gateway.push_view();
            let mut bytes = vec![0; self.script.largest_push];
            let length = view.copy_to(&mut bytes, Copying::Short).expect("it is not too long");
            bytes.truncate(length);
            assert!(view.pieces().flatten().eq(&bytes), "gathered or copied, it is the same");
            self.gateway.sent(at(self.now));
            let (kind, body, rest) = Frame::split(&bytes).expect("a message");
            assert_eq!((kind, rest.len()), (Kind::Push, 0));
            if self.is_lost(self.script.lost_pushes) {
                continue;
            }
            if let Some(node) = &mut self.nodes[usize::from(node)] {
                node.machine.on_push(&PushView::parse(body).expect("a push"), at(self.now));
            }
        }
    }

    fn on_outgoing(&mut self, message: Outgoing) {
        match message {
            Outgoing::Progress(node, progress) => {
                let is_lost = self.is_lost(self.script.lost_messages);
                if let Some(node) = self.nodes[usize::from(node)].as_mut().filter(|_| !is_lost) {
                    node.machine.on_progress(&progress, at(self.now));
                }
            }
            Outgoing::Stream(Stream { before, entries, flow, .. }) => {
                assert_eq!((before, flow), (self.streamed.len() as u64, L1));
                for entry in entries {
                    assert!(entry.by_default || entry.accept == is_wanted(entry.key));
                    assert!(entry.by_default || entry.word == entry.key.number() as u32);
                    self.streamed.push((entry.key, entry.accept, entry.by_default));
                }
            }
            Outgoing::Throttle(throttle) => assert_eq!(throttle.gateway, 3),
        }
    }

    /// A turn of a node.
    fn serve(&mut self, number: u16, now: Instant) {
        let Some(mut node) = self.nodes[usize::from(number)].take() else { return };
        let takes = if number == 1 { 1 + self.script.slow } else { 1 };
        while let Some(event) = node.machine.next_event() {
            let ReceivedEvent { head, bytes } = event;
            self.check_event(&head, bytes);
            *self.seen.entry((head.flow, head.key)).or_default() += 1;
            node.deciding.push((self.now + takes, head.sequence, head.key));
        }
        for (_, sequence, key) in node.deciding.extract_if(.., |(due, ..)| *due <= self.now) {
            node.machine.decide(sequence, is_wanted(key), key.number() as u32);
        }
        node.machine.on_time(now);
        while let Some(message) = node.machine.next_message(now) {
            if self.is_lost(self.script.lost_messages) {
                continue;
            }
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let (kind, body, _) = Frame::split(&bytes).expect("a message");
            self.gateway.on_message(&Message::decode(kind, body).expect("a message"), now);
        }
        self.nodes[usize::from(number)] = Some(node);
    }

    /// Checks that an event equals what its sources sent, without the missing packets.
    fn check_event(&self, head: &PieceHead, bytes: &[u8]) {
        let config = self.sources[usize::from(head.flow)].config();
        let set = (head.key.number() - config.first_event) / u64::from(config.packing);
        let mut wanted = Vec::new();
        let present = |source: &u16| !self.missing.contains(&(head.flow, set, *source));
        let sources = (0..config.sources).filter(present);
        let count = sources.clone().count();
        sources.for_each(|source| config.append_banks(source, head.key.number(), &mut wanted));
        assert_eq!(bytes, wanted, "{head:?}");
        assert_eq!(head.flags.has(EventFlags::INCOMPLETE), count < usize::from(config.sources));
        assert_eq!(head.flags.has(EventFlags::SENT_AGAIN), head.attempt.0 > 1);
    }

    /// Continues until nothing is left to be done.
    fn run(mut self) -> Self {
        while self.sources.iter().any(|sources| sources.sets() < self.script.sets) {
            self.step();
            assert!(self.now < 20_000, "it comes to no end");
        }
        // Reordered packets first, then until nothing is in flight.
        (0..3).for_each(|_| self.step());
        let end = self.now + 1000;
        while self.is_under_way() {
            self.step();
            assert!(self.now < end, "{:?}", self.gateway.ledger());
        }
        // Sent events are released in the next turn.
        self.step();
        self.check_end();
        self
    }

    fn is_under_way(&self) -> bool {
        let ledger = self.gateway.ledger();
        ledger.fragments.in_flight + ledger.events.in_flight > 0
    }

    fn check_end(&mut self) {
        assert_eq!(self.missing, self.lost, "what is missing is what was lost, and nothing else");
        assert_eq!(self.bench.held(), 0, "every packet has gone");
        let ledger = self.gateway.ledger();
        assert_eq!((ledger.fragments.in_flight, ledger.events.in_flight), (0, 0));
        let lost_sets = |flow: u8| self.lost.iter().filter(move |(of, ..)| *of == flow).map(|(_, set, _)| *set);
        let incomplete: BTreeSet<(u8, u64)> =
            [L1, HLT].into_iter().flat_map(|flow| lost_sets(flow).map(move |set| (flow, set))).collect();
        let is_gone = |flow, set| self.script.incomplete == Incomplete::Drop && incomplete.contains(&(flow, set));
        let kept = |flow: u8| {
            let config = *self.sources[usize::from(flow)].config();
            let sets = (0..self.script.sets).filter(move |set| !is_gone(flow, *set));
            sets.flat_map(move |set| {
                let first = config.first_event + set * u64::from(config.packing);
                (first..first + u64::from(config.packing)).map(|event| EventKey::new(0, event))
            })
        };
        let streamed = self.streamed.iter().map(|(key, ..)| *key);
        assert!(streamed.eq(kept(L1)), "each event of L1 has one decision, in their order");
        let (_, hlt) = self.gateway.account(HLT);
        let wanted = kept(HLT).filter(|key| is_wanted(*key)).count() as u64;
        assert!(
            self.stored.len() as u64 + hlt.by_default >= wanted,
            "what is wanted is stored, or was decided by default"
        );
        assert!(self.stored.keys().all(|key| is_wanted(*key)));
        for (head, bytes) in self.stored.values() {
            self.check_event(head, bytes);
        }
        if self.script.incomplete == Incomplete::Drop {
            assert_eq!(self.dropped, incomplete);
        }
    }
}

#[test]
fn where_nothing_else_goes_wrong_every_event_is_pushed_once_and_decided_by_its_node() {
    let world = World::new(Script::quiet(1)).run();
    for flow in [L1, HLT] {
        let (_, farm) = world.gateway.account(flow);
        let events = world.script.sets * u64::from(world.sources[usize::from(flow)].config().packing);
        assert_eq!((farm.pushed, farm.decided, farm.events.assigned), (events, events, events));
        assert_eq!((farm.pushed_again, farm.by_default, farm.late, farm.lost), (0, 0, 0, 0));
        assert_eq!(farm.in_budget, events, "everything was quick");
    }
    assert!(world.seen.values().all(|count| *count == 1));
    assert!(world.lost.len() > 20 && world.stored.len() == 120, "{} {}", world.lost.len(), world.stored.len());
}

#[test]
fn lost_pushes_and_decisions_cost_an_event_nothing_but_another_attempt() {
    let script = Script { lost_pushes: 50, lost_messages: 100, sets: 100, ..Script::quiet(2) };
    let world = World::new(script).run();
    let accounts = [L1, HLT].map(|flow| world.gateway.account(flow).1);
    let sum = |count: fn(&FarmAccount) -> u64| accounts.iter().map(count).sum::<u64>();
    assert!(sum(|farm| farm.not_received) > 20, "{accounts:?}");
    assert_eq!(sum(|farm| farm.by_default), 0, "{accounts:?}");
    assert_eq!(world.stored.len(), 200);
}

#[test]
fn the_events_of_a_dead_node_go_to_others_and_it_gets_new_ones_when_it_is_back() {
    let script = Script { dead: 15..90, sets: 150, ..Script::quiet(3) };
    let mut world = World::new(script);
    let mut after = 0;
    while world.sources[0].sets() < 150 {
        world.step();
        let back = world.nodes[0].as_ref().is_some_and(|node| !node.deciding.is_empty());
        after += u64::from(world.now > 100 && back);
    }
    let world = world.run();
    let accounts = [L1, HLT].map(|flow| world.gateway.account(flow).1);
    let again: u64 = accounts.iter().map(|farm| farm.taken_back).sum();
    assert!(again > 0 && again == accounts.iter().map(|farm| farm.pushed_again).sum::<u64>(), "{accounts:?}");
    assert_eq!(accounts.iter().map(|farm| farm.by_default).sum::<u64>(), 0, "{accounts:?}");
    assert!(after > 5, "it works again");
}

#[test]
fn a_node_that_is_too_slow_holds_nothing_up() {
    let world = World::new(Script { slow: 300, sets: 200, ..Script::quiet(4) }).run();
    let accounts = [L1, HLT].map(|flow| world.gateway.account(flow).1);
    let by_default: u64 = accounts.iter().map(|farm| farm.by_default).sum();
    assert!(by_default > 20, "{accounts:?}");
    assert!(accounts[0].in_budget < accounts[0].events.assigned);
}

#[test]
fn a_farm_that_is_too_small_makes_the_trigger_wait_and_nothing_is_dropped() {
    let mut world = World::new(Script { sets: 120, ..Script::quiet(5) });
    // All nodes are dead for a while.
    world.nodes.iter_mut().for_each(|node| *node = None);
    world.script.dead = 0..100;
    (0..60).for_each(|_| world.step());
    assert_eq!(world.gateway.throttle().state(), ThrottleState::Error, "there is no node");
    for node in 1..NODES {
        world.nodes[usize::from(node)] = Some(world.node(node));
    }
    let world = world.run();
    assert!(world.throttled > 50);
    let (live, dead) = world.gateway.throttle().live_and_dead();
    assert!(dead >= Duration::from_millis(50) && live > dead, "{live:?} {dead:?}");
    let dropped = |flow| world.gateway.account(flow).0.packets.dropped.total();
    assert_eq!(dropped(L1) + dropped(HLT), 0);
}

#[test]
fn incomplete_sets_leave_no_decision_where_they_are_dropped() {
    World::new(Script { incomplete: Incomplete::Drop, ..Script::quiet(6) }).run();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn in_any_world_every_event_is_decided_once(
        seed in any::<u64>(),
        (lost_pushes, lost_messages) in (0_u64..200, 0_u64..300),
        (from, long) in (5_u64..60, 0_u64..120),
        slow in prop::sample::select(vec![0, 3, 150, 500]),
        largest_push in prop::sample::select(vec![100, 700, 1472, 9000, 65_543]),
        drops in any::<bool>(),
    ) {
        let incomplete = if drops { Incomplete::Drop } else { Incomplete::Emit };
        let dead = from..from + long;
        let script = Script { lost_pushes, lost_messages, dead, slow, largest_push, incomplete, ..Script::quiet(seed) };
        World::new(script).run();
    }
}
