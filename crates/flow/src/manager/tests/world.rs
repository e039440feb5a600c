//! A small world: consecutive event managers, real builder units with a disk each, model readout units, and wires that
//! lose everything in flight when they break.
//!
//! Random worlds: with any deaths and breaks, nothing is lost, nothing is built twice in one attempt, every account
//! balances at every step, and no credit leaks.

use super::{DRAIN_TIMEOUT, EVENT_TIMEOUT, key};
use crate::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource};
use crate::manager::{AssignPolicy, LumisectionLength, Manager, ManagerAction, ManagerConfig, ManagerState};
use crate::messages::{
    Announce, AnnounceEntry, Batch, Ended, Finished, Fragment, FragmentFlags, FragmentMeta, LumisectionEnd, Message,
    SuperFragmentEntry,
};
use crate::run_state::KnownLumisections;
use core::time::Duration;
use proptest::prelude::*;
use ropewalk_memory::Payload;
use ropewalk_terms::{
    AcknowledgementLevel, Attempt, Cause, Epoch, EventKey, Incarnation, Instant, NodeId, Outcome, Role, SourceId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const BUILDER_TIMEOUT: Duration = Duration::from_secs(1);
const SLOTS: u32 = 12;
const FRAGMENT: u32 = 50;
/// Fragments that a readout unit holds before it stops reading.
const HELD: usize = 40;

/// Xorshift: the world only needs reproducible randomness.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// Both directions of a control connection. Empty while it is down.
#[derive(Default)]
struct Wire {
    up: bool,
    up_at: u64,
    to_manager: VecDeque<Message>,
    to_node: VecDeque<Message>,
}

/// A readout unit as the protocol sees it, with one source.
struct ModelReadout {
    life: u64,
    started: bool,
    may_speak: bool,
    held: BTreeSet<u64>,
    next: u64,
    announced: u64,
    must_announce: bool,
    highest_asked: bool,
    stop_at: u64,
    finished: bool,
    /// The report that its event manager left for a successor, and whether it is still to be sent.
    ended: Option<Ended>,
    must_tell_ended: bool,
    lumisections: KnownLumisections,
    must_tell: VecDeque<Message>,
}

/// A builder unit, and the data between it and its disk.
struct LiveBuilder {
    life: u64,
    builder: Builder,
    emitted: VecDeque<u32>,
    finishing: bool,
}

/// A record on a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) attempt: Attempt,
    pub(super) builder: u16,
    pub(super) life: u64,
    complete: bool,
}

#[derive(Default)]
struct DataWire {
    requests: VecDeque<Message>,
    answers: VecDeque<SuperFragmentEntry>,
}

pub(super) struct World {
    pub(super) chance: Chance,
    pub(super) now: Instant,
    step: u64,
    /// The number of triggers so far: every source has fragments up to here.
    triggers: u64,
    max_triggers: u64,
    pub(super) manager: Option<Manager>,
    epoch: u32,
    config: ManagerConfig,
    readouts: Vec<Option<ModelReadout>>,
    builders: Vec<Option<LiveBuilder>>,
    wires: BTreeMap<(u8, u16), Wire>,
    data: BTreeMap<(u16, u16), DataWire>,
    disk: BTreeMap<u64, Vec<Record>>,
    pub(super) ended: bool,
    /// Lumisections that an event manager closed, in its order.
    pub(super) closed: Vec<LumisectionEnd>,
    /// By life of a builder unit: the lumisections reported to it as over.
    heard: BTreeMap<u64, Vec<u32>>,
    /// Each written key with its lumisection.
    pub(super) wrote: Vec<(u64, u32)>,
    lives: u64,
    forgotten: BTreeMap<u64, Outcome>,
}

impl World {
    pub(super) fn new(seed: u64, readouts: u16, builders: u16, max_triggers: u64) -> Self {
        let mut chance = Chance::new(seed);
        let policies = [AssignPolicy::RoundRobin, AssignPolicy::LeastLoaded, AssignPolicy::FreeBytes];
        let config = ManagerConfig {
            capacity: 64,
            policy: policies[chance.below(3) as usize],
            batch: 1 + chance.below(8) as usize,
            event_timeout: EVENT_TIMEOUT,
            drain_timeout: DRAIN_TIMEOUT,
            lumisection: match chance.below(3) {
                0 => LumisectionLength::Run,
                1 => LumisectionLength::Events(1 + chance.below(40)),
                _ => LumisectionLength::Time(Duration::from_millis(50 + chance.below(1000))),
            },
            ..ManagerConfig::new(readouts, builders)
        };
        let mut world = Self {
            chance,
            now: Instant::from_nanoseconds(1),
            step: 0,
            triggers: 0,
            max_triggers,
            manager: Some(Manager::new(config.clone())),
            epoch: 1,
            config,
            readouts: (0..readouts).map(|_| None).collect(),
            builders: (0..builders).map(|_| None).collect(),
            wires: BTreeMap::new(),
            data: BTreeMap::new(),
            disk: BTreeMap::new(),
            ended: false,
            closed: Vec::new(),
            heard: BTreeMap::new(),
            wrote: Vec::new(),
            lives: 0,
            forgotten: BTreeMap::new(),
        };
        for node in world.nodes() {
            world.wires.insert((node.role as u8, node.index), Wire::default());
            world.connect(node);
        }
        let now = world.now;
        world.manager.as_mut().expect("a first manager").start(now, key(1), None);
        world
    }

    fn nodes(&self) -> Vec<NodeId> {
        let readouts = (0..self.readouts.len() as u16).map(NodeId::readout);
        readouts.chain((0..self.builders.len() as u16).map(NodeId::builder)).collect()
    }

    fn wire(&mut self, node: NodeId) -> &mut Wire {
        self.wires.get_mut(&(node.role as u8, node.index)).expect("every node has a wire")
    }

    /// The node lives (again), and its connection is up.
    fn connect(&mut self, node: NodeId) {
        let index = usize::from(node.index);
        let rash = self.chance.below(2) == 0;
        let life = match node.role {
            Role::Readout => {
                if self.readouts[index].is_none() {
                    self.lives += 1;
                    self.readouts[index] = Some(ModelReadout::new(self.lives));
                    self.reconnect_data(node);
                }
                let readout = self.readouts[index].as_mut().expect("it was made alive");
                // It may continue to send before it is told to begin anew.
                readout.may_speak = readout.started && rash;
                readout.highest_asked = false;
                readout.life
            }
            _ => {
                if self.builders[index].is_none() {
                    self.lives += 1;
                    self.builders[index] = Some(self.new_builder(node.index));
                    self.reconnect_data(node);
                }
                let now = self.now;
                let builder = self.builders[index].as_mut().expect("it was made alive");
                builder.builder.manager_connected(now);
                builder.life
            }
        };
        let now = self.now;
        if let Some(manager) = &mut self.manager {
            manager.node_connected(now, node, Incarnation(life));
            self.wire(node).up = true;
        }
    }

    fn new_builder(&self, index: u16) -> LiveBuilder {
        let readouts = self.readouts.len() as u16;
        let source = |readout| BuilderSource::new(SourceId(u32::from(readout)), readout);
        let config = BuilderConfig {
            slots: SLOTS,
            table: 64,
            credit_bytes: u64::from(SLOTS * FRAGMENT),
            event_timeout: BUILDER_TIMEOUT,
            ..BuilderConfig::new(index, readouts, (0..readouts).map(source).collect())
        };
        assert_eq!(config.check(), Ok(()));
        LiveBuilder { life: self.lives, builder: Builder::new(config), emitted: VecDeque::new(), finishing: false }
    }

    /// Connects a node that lives again with all others for data.
    fn reconnect_data(&mut self, node: NodeId) {
        let now = self.now;
        for builder in 0..self.builders.len() as u16 {
            for readout in 0..self.readouts.len() as u16 {
                if node != NodeId::builder(builder) && node != NodeId::readout(readout) {
                    continue;
                }
                self.data.insert((builder, readout), DataWire::default());
                let both = self.readouts[usize::from(readout)].is_some();
                if let Some(live) = self.builders[usize::from(builder)].as_mut().filter(|_| both) {
                    live.builder.readout_connected(now, readout);
                }
            }
        }
    }

    /// Breaks the control connection for some steps.
    pub(super) fn cut(&mut self, node: NodeId) {
        let back = self.step + 5 + self.chance.below(30);
        let wire = self.wire(node);
        if !wire.up {
            return;
        }
        *wire = Wire { up: false, up_at: back, ..Wire::default() };
        let now = self.now;
        if let Some(manager) = &mut self.manager {
            manager.node_lost(now, node);
        }
    }

    /// Kills the process; its disk remains.
    pub(super) fn kill(&mut self, node: NodeId) {
        self.cut(node);
        let (index, now) = (usize::from(node.index), self.now);
        match node.role {
            Role::Readout => {
                self.readouts[index] = None;
                for builder in self.builders.iter_mut().flatten() {
                    builder.builder.readout_lost(now, node.index);
                }
            }
            _ => self.builders[index] = None,
        }
        for ((builder, readout), wire) in &mut self.data {
            if node == NodeId::builder(*builder) || node == NodeId::readout(*readout) {
                *wire = DataWire::default();
            }
        }
    }

    /// Kills the event manager; a successor with a higher epoch takes over.
    pub(super) fn replace_manager(&mut self) {
        for node in self.nodes() {
            self.cut(node);
        }
        self.epoch += 1;
        self.config.epoch = Epoch(self.epoch);
        let mut manager = Manager::new(self.config.clone());
        manager.recover(self.now, key(1), None);
        self.manager = Some(manager);
    }

    /// Lets some time pass: something is delivered, read or written.
    pub(super) fn step(&mut self) {
        self.step += 1;
        self.now = self.now.after(Duration::from_micros(200 + self.chance.below(800)));
        if self.triggers < self.max_triggers {
            self.triggers += self.chance.below(3);
        }
        for node in self.nodes() {
            if !self.wire(node).up && self.wire(node).up_at <= self.step {
                self.connect(node);
            }
            self.deliver(node);
        }
        for index in 0..self.readouts.len() as u16 {
            self.run_readout(index);
        }
        for index in 0..self.builders.len() as u16 {
            self.run_builder(index);
        }
        self.run_manager();
        self.check();
    }

    fn deliver(&mut self, node: NodeId) {
        let now = self.now;
        for _ in 0..self.chance.below(4) {
            let Some(message) = self.wire(node).to_manager.pop_front() else { break };
            let repeat = matches!(message, Message::Credit(_) | Message::Acknowledge(_)) && self.chance.below(8) == 0;
            if let Some(manager) = &mut self.manager {
                manager.message(now, node, &message);
                if repeat {
                    manager.message(now, node, &message);
                }
            }
        }
        for _ in 0..self.chance.below(4) {
            let Some(message) = self.wire(node).to_node.pop_front() else { break };
            let index = usize::from(node.index);
            match node.role {
                Role::Readout => self.tell_readout(index, &message),
                _ => {
                    let builder = self.builders[index].as_mut().expect("a wire that is up has a live end");
                    builder.builder.message(now, &message);
                    builder.finishing |= matches!(message, Message::Finish);
                }
            }
        }
    }

    fn tell_readout(&mut self, index: usize, message: &Message) {
        let triggers = self.triggers;
        let readout = self.readouts[index].as_mut().expect("a wire that is up has a live end");
        match message {
            Message::Start(start) if !readout.started => {
                readout.started = true;
                readout.may_speak = true;
                // A readout unit that starts in mid-run has lost the contents of the sockets.
                readout.next = start.first.number().max(if readout.life > 8 { triggers } else { 0 });
                readout.announced = start.first.number() - 1;
            }
            Message::Start(_) => readout.may_speak = true,
            Message::Recover => {
                readout.may_speak = true;
                readout.announced = readout.held.first().map_or(readout.announced, |&first| first - 1);
                readout.must_announce = true;
                readout.must_tell_ended = true;
                readout.must_tell = readout.lumisections.told().collect();
            }
            Message::Ended(ended) => readout.ended = Some(*ended),
            Message::Lumisection(begun) => readout.lumisections.begin(*begun),
            Message::LumisectionEnd(end) => _ = readout.lumisections.end(end),
            Message::StopAt(last) => readout.stop_at = last.number(),
            Message::QueryHighest => readout.highest_asked = true,
            Message::Release(release) => {
                for entry in &release.entries {
                    for number in entry.first.number()..entry.first.number() + u64::from(entry.count) {
                        if !readout.held.remove(&number) {
                            continue;
                        }
                        self.forgotten.entry(number).or_insert(entry.outcome);
                        let kept = matches!(entry.outcome, Outcome::Complete | Outcome::IncompleteEmitted);
                        assert!(!kept || self.disk.contains_key(&number), "{number} released, but on no disk");
                    }
                }
            }
            Message::Finish => {
                assert!(readout.held.is_empty(), "held at the end: {:?}", readout.held);
                readout.finished = true;
                let finished = Message::Finished(Finished { in_flight: 0 });
                self.wire(NodeId::readout(index as u16)).to_manager.push_back(finished);
            }
            other => panic!("unexpected message to a readout unit: {other:?}"),
        }
    }

    fn run_readout(&mut self, index: u16) {
        let (triggers, reads) = (self.triggers, self.chance.below(4));
        let Some(readout) = &mut self.readouts[usize::from(index)] else { return };
        for _ in 0..reads {
            if readout.started && readout.next <= triggers.min(readout.stop_at) && readout.held.len() < HELD {
                readout.held.insert(readout.next);
                readout.next += 1;
            }
        }
        let settled = readout.next.saturating_sub(1);
        let ended = readout.ended.filter(|_| core::mem::take(&mut readout.must_tell_ended));
        if let Some(ended) = ended {
            self.send(NodeId::readout(index), Message::Ended(ended));
        } else if let Some(message) = readout.must_tell.pop_front() {
            self.send(NodeId::readout(index), message);
        } else if readout.may_speak && (readout.must_announce || readout.announced < settled) {
            readout.must_announce = false;
            let entries: Batch<AnnounceEntry> = readout
                .held
                .range(readout.announced + 1..)
                .take(10)
                .map(|&number| AnnounceEntry { key: key(number), bytes: FRAGMENT, fragments: 1, triggered: true })
                .collect();
            readout.announced = if entries.len() < 10 { settled } else { entries[9].key.number() };
            let announce = Announce { settled: key(readout.announced), entries };
            self.send(NodeId::readout(index), Message::Announce(announce));
        } else if readout.may_speak && core::mem::take(&mut readout.highest_asked) {
            self.send(NodeId::readout(index), Message::Highest(key(settled)));
        }
        self.answer_requests(index);
    }

    fn answer_requests(&mut self, index: u16) {
        for builder in 0..self.builders.len() as u16 {
            let wire = self.data.get_mut(&(builder, index)).expect("data wires are made with the nodes");
            let Some(readout) = &self.readouts[usize::from(index)] else { return };
            if self.chance.below(3) == 0 {
                continue;
            }
            while let Some(message) = wire.requests.pop_front() {
                let Message::Request(request) = message else { panic!("a request") };
                for entry in &request.entries {
                    let held = readout.held.contains(&entry.key.number());
                    wire.answers.push_back(SuperFragmentEntry {
                        key: entry.key,
                        slot: entry.slot,
                        attempt: entry.attempt,
                        fragments: held.into(),
                        bytes: if held { FRAGMENT } else { 0 },
                        not_held: (!held).then_some(Cause::NotHeld),
                    });
                }
            }
        }
    }

    fn run_builder(&mut self, index: u16) {
        let now = self.now;
        for readout in 0..self.readouts.len() as u16 {
            for _ in 0..self.chance.below(5) {
                let wire = self.data.get_mut(&(index, readout)).expect("data wires are made with the nodes");
                let Some(answer) = wire.answers.pop_front() else { break };
                let Some(live) = &mut self.builders[usize::from(index)] else { break };
                let mut fragments: Vec<_> = (0..answer.fragments).map(|_| fragment(answer.key, readout)).collect();
                live.builder.super_fragment(now, readout, &answer, &mut fragments);
            }
        }
        while let Some(action) = self.builders[usize::from(index)].as_mut().and_then(|live| live.builder.poll(now)) {
            match action {
                BuilderAction::ToManager(message) => self.send(NodeId::builder(index), message),
                BuilderAction::ToReadout { readout, message } => {
                    if self.readouts[usize::from(readout)].is_some() {
                        self.data.get_mut(&(index, readout)).expect("a data wire").requests.push_back(message);
                    }
                }
                BuilderAction::EndLumisection(end) => self.lumisection_ended(index, &end),
                BuilderAction::StopRun { cause } => panic!("unexpected stop for {cause}"),
            }
        }
        if let Some(live) = &mut self.builders[usize::from(index)] {
            live.emitted.extend(std::iter::from_fn(|| live.builder.next_event()));
        }
        self.write(index);
    }

    /// Writes some events, and reports them at another time: a builder may die between the two.
    fn write(&mut self, index: u16) {
        let (now, count) = (self.now, self.chance.below(4));
        let Some(live) = &mut self.builders[usize::from(index)] else { return };
        for _ in 0..count {
            let Some(slot) = live.emitted.pop_front() else { break };
            let event = live.builder.event(slot);
            let record = Record { attempt: event.attempt, builder: index, life: live.life, complete: event.complete };
            let copies = self.disk.entry(event.key.number()).or_default();
            assert!(
                copies.iter().all(|copy| copy.attempt != record.attempt),
                "event {} is built twice as {:?}: {copies:?}",
                event.key,
                record
            );
            copies.push(record);
            let heard = self.heard.get(&live.life).and_then(|heard| heard.last());
            assert!(heard.is_none_or(|&over| over < event.lumisection), "{} of one that is over", event.key);
            self.wrote.push((event.key.number(), event.lumisection));
            live.builder.reached(now, slot, AcknowledgementLevel::Written);
        }
        if live.finishing && live.emitted.is_empty() {
            live.finishing = false;
            let in_flight = live.builder.in_work() as u64;
            assert_eq!(in_flight, 0);
            self.send(NodeId::builder(index), Message::Finished(Finished { in_flight }));
        }
    }

    fn lumisection_ended(&mut self, builder: u16, end: &LumisectionEnd) {
        let life = self.builders[usize::from(builder)].as_ref().expect("it said so").life;
        let heard = self.heard.entry(life).or_default();
        assert!(heard.last().is_none_or(|&last| last < end.number), "{} behind {heard:?}", end.number);
        heard.push(end.number);
    }

    fn send(&mut self, from: NodeId, message: Message) {
        let wire = self.wire(from);
        if wire.up {
            wire.to_manager.push_back(message);
        }
    }

    fn run_manager(&mut self) {
        let now = self.now;
        while let Some(action) = self.manager.as_mut().and_then(|manager| manager.poll(now)) {
            match action {
                ManagerAction::Send { to, message } => {
                    let wire = self.wire(to);
                    if wire.up {
                        wire.to_node.push_back(message);
                    }
                }
                ManagerAction::LumisectionEnded(end) => self.closed.push(end),
                ManagerAction::RunEnded => self.ended = true,
            }
        }
    }

    /// The invariants of every step.
    fn check(&self) {
        if let Some(manager) = &self.manager {
            let account = manager.account();
            assert_eq!(account.assigned, account.accounted(), "{account:?}");
        }
        for live in self.builders.iter().flatten() {
            let account = live.builder.account();
            assert_eq!(account.assigned, account.accounted(), "{account:?}");
            assert!(live.builder.in_work() <= SLOTS as usize);
            assert_eq!(live.builder.counts().refused_assignments, 0, "more was assigned than was granted");
        }
    }

    /// Lets everything settle, stops the run, and returns its last key.
    pub(super) fn finish(&mut self) -> u64 {
        for _ in 0..400 {
            self.step();
        }
        self.max_triggers = 0;
        let now = self.now;
        self.manager.as_mut().expect("a manager").stop(now);
        for _ in 0..20_000 {
            if self.ended {
                break;
            }
            self.step();
        }
        let manager = self.manager.as_ref().expect("a manager");
        assert!(self.ended, "the run does not end: {:?} {:?}", manager.state(), manager.account());
        assert_eq!(manager.state(), ManagerState::Idle);
        manager.last().map_or(0, EventKey::number)
    }

    /// Checks that all credit is free again: each builder's slots can be filled by the next run.
    fn assert_no_credit_leaked(&mut self) {
        for _ in 0..50 {
            self.step();
        }
        let manager = self.manager.as_ref().expect("a manager");
        for index in 0..self.builders.len() as u16 {
            assert_eq!(manager.free_credit(index), (u64::from(SLOTS), u64::from(SLOTS * FRAGMENT)), "bu{index}");
        }
    }

    pub(super) fn builders_alive(&self) -> usize {
        self.builders.iter().flatten().count()
    }
}

impl ModelReadout {
    fn new(life: u64) -> Self {
        Self {
            life,
            started: false,
            may_speak: false,
            held: BTreeSet::new(),
            next: 1,
            announced: 0,
            must_announce: false,
            highest_asked: false,
            stop_at: u64::MAX,
            finished: false,
            ended: None,
            must_tell_ended: false,
            lumisections: KnownLumisections::default(),
            must_tell: VecDeque::new(),
        }
    }
}

fn fragment(key: EventKey, readout: u16) -> Fragment {
    let meta = FragmentMeta {
        source: SourceId(u32::from(readout)),
        length: FRAGMENT,
        flags: FragmentFlags::HAS_BUNCH_CROSSING,
        bunch_crossing: (key.number() % 3564) as u16,
        trigger_type: 1,
        raw_id: key.number(),
        time: 0,
    };
    Fragment { meta, payload: Payload::default() }
}

const TRIGGERS: u64 = 400;
const STEPS: u64 = 900;

/// Checks that every key of the run is complete on a disk. The copy with the highest attempt is, unless an event
/// manager died with its builder in the middle of a release: then a successor rebuilds it from the rest.
fn assert_all_written(world: &World, last: u64, successors: bool) {
    for number in 1..=last {
        let copies = world.disk.get(&number).unwrap_or_else(|| panic!("{number} of 1..={last} is on no disk"));
        let best = copies.iter().max_by_key(|copy| (copy.complete && successors, copy.attempt));
        assert!(best.is_some_and(|copy| copy.complete), "{number}: {copies:?}");
    }
    assert!(world.disk.keys().all(|&number| (1..=last).contains(&number)), "something beyond the last key");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_quiet_world_builds_everything_once(seed: u64, readouts in 1..4_u16, builders in 1..4_u16) {
        let mut world = World::new(seed, readouts, builders, TRIGGERS);
        for _ in 0..STEPS {
            world.step();
        }
        let last = world.finish();
        prop_assert!(last > 0);
        assert_all_written(&world, last, false);
        prop_assert!(world.disk.values().all(|copies| copies.len() == 1));
        prop_assert_eq!(world.manager.as_ref().expect("a manager").account().built, last);
        world.assert_no_credit_leaked();
    }

    #[test]
    fn builders_die_and_connections_break_and_nothing_is_lost(
        seed: u64, readouts in 1..4_u16, builders in 2..4_u16, deaths in 1..12_u64
    ) {
        let mut world = World::new(seed, readouts, builders, TRIGGERS);
        for _ in 0..STEPS {
            world.step();
            if world.chance.below(STEPS) < deaths {
                let victim = NodeId::builder(world.chance.below(u64::from(builders)) as u16);
                if world.chance.below(2) == 0 {
                    world.kill(victim);
                } else {
                    world.cut(victim);
                }
            }
        }
        let last = world.finish();
        assert_all_written(&world, last, false);
        prop_assert_eq!(world.manager.as_ref().expect("a manager").account().built, last);
        world.assert_no_credit_leaked();
    }

    #[test]
    fn readout_units_die_and_the_run_goes_on(seed: u64, readouts in 2..4_u16, deaths in 1..6_u64) {
        let mut world = World::new(seed, readouts, 2, TRIGGERS);
        for _ in 0..STEPS {
            world.step();
            if world.chance.below(STEPS) < deaths {
                let victim = NodeId::readout(world.chance.below(u64::from(readouts)) as u16);
                if world.chance.below(2) == 0 {
                    world.kill(victim);
                } else {
                    world.cut(victim);
                }
            }
        }
        let last = world.finish();
        prop_assert!(last > 0);
        // Everything that readout units held of an event may be lost with them; the rest is on disk, flagged.
        let (newest, _) = world.disk.last_key_value().expect("something was built");
        prop_assert!(*newest <= last);
        prop_assert!(world.disk.len() as u64 > last / 2);
        world.assert_no_credit_leaked();
    }

    #[test]
    fn a_successor_goes_on_and_nothing_is_built_twice_in_one_attempt(
        seed: u64, readouts in 1..4_u16, builders in 1..4_u16, successors in 1..4_u64, deaths in 0..4_u64
    ) {
        let mut world = World::new(seed, readouts, builders, TRIGGERS);
        for step in 0..STEPS {
            world.step();
            if step % (STEPS / (successors + 1)) == STEPS / (successors + 2) {
                world.replace_manager();
            }
            if world.chance.below(STEPS) < deaths && world.builders_alive() > 1 {
                let victim = world.chance.below(u64::from(builders)) as u16;
                world.kill(NodeId::builder(victim));
            }
        }
        let last = world.finish();
        assert_all_written(&world, last, true);
        let account = world.manager.as_ref().expect("a manager").account();
        if deaths == 0 {
            // No dead node had done something known only to the old event manager.
            prop_assert_eq!((account.assigned, account.built), (last, last));
        }
        world.assert_no_credit_leaked();
    }
}
