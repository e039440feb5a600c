//! A readout unit, a builder unit and an event manager with random input from other nodes, and the check of synchrony
//! in a builder unit.

use super::Choices;
use super::MOST_ACTIONS;
use ropewalk_flow::builder::synchrony::{self, Config, Observation, Synchrony};
use ropewalk_flow::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource, IncompletePolicy};
use ropewalk_flow::manager::{AssignPolicy, Manager, ManagerAction, ManagerConfig};
use ropewalk_flow::messages::{Fragment, Mask, Message, Received, RequestEntry, SuperFragmentEntry};
use ropewalk_flow::readout::{Format, FramingError, OnClose, Readout, ReadoutAction, ReadoutConfig, SourceConfig};
use ropewalk_memory::Payload;
use ropewalk_terms::{Attempt, Cause, Epoch, EventKey, Incarnation, Instant, NodeId, Requirement, Role, SourceId};
use std::collections::BTreeMap;
use std::time::Duration;

const READOUT_SOURCES: u32 = 3;

fn readout_config(choices: &mut Choices<'_>) -> ReadoutConfig {
    let sources = (1..=READOUT_SOURCES).map(|id| SourceConfig {
        counter_bits: if choices.chance() { 8 } else { 24 },
        on_close: if choices.chance() { OnClose::End } else { OnClose::Wait },
        ..SourceConfig::new(SourceId(id), Format::Ferol)
    });
    let mut config = ReadoutConfig::new(0, sources.collect());
    config.builders = 2;
    (config.window, config.capacity) = (16, 32);
    config.plausibility = 64;
    (config.source_timeout, config.resync_timeout) = (Duration::from_millis(20), Duration::from_millis(50));
    match choices.below(3) {
        0 => config.trigger = Some(SourceId(1)),
        1 => config.trigger_elsewhere = true,
        _ => {}
    }
    config
}

/// Feeds a readout unit.
///
/// # Panics
/// If the machine panics, or its account does not balance.
pub fn readout(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let config = readout_config(&mut choices);
    config.check().expect("made to be right");
    let mut readout = Readout::new(config);
    let mut fragments = Vec::new();
    while !choices.is_over() {
        let now = choices.now();
        step_readout(&mut readout, &mut choices, now, &mut fragments);
        settle_readout(&mut readout, now);
        check_readout(&readout, now);
    }
}

fn step_readout(readout: &mut Readout, choices: &mut Choices<'_>, now: Instant, fragments: &mut Vec<Received>) {
    let source = choices.below(u64::from(READOUT_SOURCES)) as usize;
    match choices.below(12) {
        0..=4 => {
            let count = readout.room(source).min(choices.below(6) as usize);
            fragments.extend((0..count).map(|_| Received {
                meta: choices.meta(READOUT_SOURCES),
                restarts: choices.below(32) == 0,
                payload: Payload::default(),
            }));
            readout.receive(now, source, fragments);
            fragments.clear();
        }
        5 => readout.source_connected(now, source),
        6 => readout.source_disconnected(now, source, choices.chance()),
        7 => readout.set_being_read(now, source, choices.chance()),
        8 => match choices.below(3) {
            0 => {
                let mask = Mask { source: choices.source(READOUT_SOURCES), is_masked: choices.chance() };
                readout.message(now, NodeId::MANAGER, &Message::Mask(mask));
            }
            1 => readout.framing_lost(source, FramingError { cause: Cause::FramingLost, bytes_discarded: 1 }),
            _ => readout.peer_lost(now, choices.node()),
        },
        9 => readout.message(now, NodeId::builder(choices.below(3) as u16), &Message::Request(choices.request())),
        10 => readout.message(now, NodeId::MANAGER, &Message::Release(choices.release())),
        _ => {
            let from = choices.node();
            readout.message(now, from, &choices.message(READOUT_SOURCES));
        }
    }
}

/// Takes every action and every answer.
fn settle_readout(readout: &mut Readout, now: Instant) {
    for _ in 0..MOST_ACTIONS {
        match readout.poll(now) {
            None => return,
            Some(ReadoutAction::Answer { builder, entry }) => {
                assert!(builder < 2, "an answer for builder unit {builder}, which is not configured");
                let held = readout.super_fragment(entry.key).filter(|_| entry.not_held.is_none());
                let mut fragments = Vec::new();
                held.inspect(|held| held.append_to(&mut fragments));
                let sums = fragments
                    .iter()
                    .fold((0, 0_u32), |(count, bytes), one| (count + 1, bytes.wrapping_add(one.meta.length)));
                if entry.not_held.is_none() {
                    assert_eq!(sums, (entry.fragments, entry.bytes), "what is promised is there: {entry:?}");
                }
            }
            Some(ReadoutAction::ToManager(_)) => {}
        }
    }
    panic!("the readout unit does not come to rest");
}

fn check_readout(readout: &Readout, now: Instant) {
    for source in 0..READOUT_SOURCES as usize {
        let account = readout.account(source);
        assert_eq!(account.received, account.accounted(), "source {source}: {account:?}");
    }
    assert!(readout.held() <= 32, "{} events are held", readout.held());
    let _ = (readout.next_deadline(), readout.held_bytes(), readout.report(now).count());
}

const BUILDER_SOURCES: u32 = 4;
const READOUTS: u16 = 2;
const SLOTS: u32 = 8;

fn builder_config(choices: &mut Choices<'_>) -> BuilderConfig {
    let source = |id: u32| BuilderSource {
        requirement: if id == BUILDER_SOURCES { Requirement::Optional } else { Requirement::Required },
        ..BuilderSource::new(SourceId(id), id as u16 % READOUTS)
    };
    let watched = (1..=BUILDER_SOURCES).map(|id| synchrony::SourceConfig::new(SourceId(id)));
    BuilderConfig {
        slots: SLOTS,
        table: 16,
        credit_bytes: 64 << 10,
        event_timeout: Duration::from_millis(30),
        incomplete: [IncompletePolicy::Emit, IncompletePolicy::Drop, IncompletePolicy::Stop][choices.below(3) as usize],
        level: choices.level(),
        synchrony: choices.chance().then(|| synchrony::Config::new(watched)),
        ..BuilderConfig::new(0, READOUTS, (1..=BUILDER_SOURCES).map(source).collect())
    }
}

/// A builder unit, its requests, and the events that it handed over to be written.
struct Fed {
    builder: Builder,
    asked: Vec<(u16, RequestEntry)>,
    emitted: Vec<u32>,
}

/// Feeds a builder unit.
///
/// # Panics
/// If the machine panics, or its account does not balance.
pub fn builder(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let config = builder_config(&mut choices);
    config.check().expect("made to be right");
    let mut fed = Fed { builder: Builder::new(config), asked: Vec::new(), emitted: Vec::new() };
    while !choices.is_over() {
        let now = choices.now();
        fed.step(&mut choices, now);
        fed.settle(now);
        fed.check();
    }
}

impl Fed {
    fn step(&mut self, choices: &mut Choices<'_>, now: Instant) {
        let readout = choices.below(u64::from(READOUTS) + 1) as u16;
        match choices.below(12) {
            0 => self.builder.manager_connected(now),
            1 | 2 => self.builder.readout_connected(now, readout),
            3 => self.builder.readout_lost(now, readout),
            4..=6 => self.answer(choices, now),
            7 => self.answer_anything(choices, now, readout),
            8 => self.written(choices, now),
            9 => self.builder.resume(),
            _ => self.builder.message(now, &choices.message(BUILDER_SOURCES)),
        }
    }

    /// Answers a request.
    fn answer(&mut self, choices: &mut Choices<'_>, now: Instant) {
        let place = choices.below(self.asked.len().max(1) as u64) as usize;
        if place >= self.asked.len() {
            return;
        }
        let (readout, RequestEntry { key, slot, attempt }) = self.asked.swap_remove(place);
        let own = (1..=BUILDER_SOURCES).filter(|id| *id as u16 % READOUTS == readout);
        let mut fragments: Vec<Fragment> = own
            .filter_map(|id| {
                let meta = choices.meta(BUILDER_SOURCES);
                let meta = if choices.below(8) == 0 { meta } else { with_source(meta, id) };
                (choices.below(8) > 0).then_some(Fragment { meta, payload: Payload::default() })
            })
            .collect();
        let not_held = (choices.below(16) == 0).then(|| choices.cause());
        let entry = SuperFragmentEntry { key, slot, attempt, fragments: fragments.len() as u16, bytes: 0, not_held };
        self.builder.super_fragment(now, readout, &entry, &mut fragments);
    }

    /// Answers requests that the builder unit may never have sent.
    fn answer_anything(&mut self, choices: &mut Choices<'_>, now: Instant, readout: u16) {
        let request = choices.request();
        for RequestEntry { key, slot, attempt } in request.entries {
            let fragment = Fragment { meta: choices.meta(BUILDER_SOURCES), payload: Payload::default() };
            let entry = SuperFragmentEntry { key, slot, attempt, fragments: 1, bytes: 0, not_held: None };
            self.builder.super_fragment(now, readout, &entry, &mut [fragment]);
        }
    }

    fn written(&mut self, choices: &mut Choices<'_>, now: Instant) {
        let slot = match self.emitted.len() {
            0 => choices.below(u64::from(SLOTS) + 2) as u32,
            some => self.emitted[choices.below(some as u64) as usize],
        };
        if choices.below(8) == 0 {
            self.builder.failed(now, slot, Cause::WriteFailed);
            self.emitted.retain(|one| *one != slot);
        } else {
            self.builder.reached(now, slot, choices.level());
        }
    }

    fn settle(&mut self, now: Instant) {
        for _ in 0..MOST_ACTIONS {
            match self.builder.poll(now) {
                None => return self.take_events(),
                Some(BuilderAction::ToReadout { readout, message: Message::Request(request) }) => {
                    assert!(readout < READOUTS);
                    self.asked.extend(request.entries.iter().map(|entry| (readout, *entry)));
                }
                Some(_) => {}
            }
            // The oldest requests get no answer.
            let surplus = self.asked.len().saturating_sub(64);
            self.asked.drain(..surplus);
        }
        panic!("the builder unit does not come to rest");
    }

    fn take_events(&mut self) {
        while let Some(slot) = self.builder.next_event() {
            assert!(slot < SLOTS);
            let event = self.builder.event(slot);
            let (there, missing) = (event.fragments().count(), event.missing().count());
            assert!(there + missing <= BUILDER_SOURCES as usize, "a source twice in one event");
            assert!(!event.complete || event.missing().all(|(id, _)| id == SourceId(BUILDER_SOURCES)));
            self.emitted.push(slot);
        }
    }

    fn check(&mut self) {
        let account = self.builder.account();
        assert_eq!(account.assigned, account.accounted(), "{account:?}");
        assert!(self.builder.in_work() <= SLOTS as usize);
        let _ = (self.builder.next_deadline(), self.builder.report().count());
    }
}

const fn with_source(
    mut meta: ropewalk_flow::messages::FragmentMeta,
    id: u32,
) -> ropewalk_flow::messages::FragmentMeta {
    meta.source = SourceId(id);
    meta
}

const WATCHED_SOURCES: u32 = 3;

/// Feeds the check of synchrony with observations: usually consecutive events, with or without matching keys.
///
/// # Panics
/// If the machine panics, or reports changes forever.
pub fn synchrony(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let mut config = Config::new((1..=WATCHED_SOURCES).map(|id| synchrony::SourceConfig {
        time_bits: 1 + choices.below(64) as u8,
        time_tolerance: choices.below(16) as u32,
        ..synchrony::SourceConfig::new(SourceId(id))
    }));
    config.window = 64;
    config.reference = choices.chance().then_some(SourceId(1));
    let mut synchrony = Synchrony::new(config).expect("made to be right");
    let mut number = 0;
    while !choices.is_over() {
        number += choices.below(2) + 1;
        let key = if choices.below(32) == 0 { choices.key() } else { EventKey::new(0, number) };
        // One choice for the event and one for each source keep inputs short.
        let event = choices.wide();
        let row: [Observation; WATCHED_SOURCES as usize] = std::array::from_fn(|_| observation(&mut choices, event));
        synchrony.observe(key, &row);
        if choices.below(64) == 0 {
            synchrony.conclude();
        }
        let changes = (0..MOST_ACTIONS).map_while(|_| synchrony.poll()).count();
        assert!(changes < MOST_ACTIONS, "the watch does not come to rest");
        assert_eq!(synchrony.statuses().count(), WATCHED_SOURCES as usize);
        let _ = (synchrony.reference(), synchrony.cause(0));
    }
}

fn observation(choices: &mut Choices<'_>, event: u64) -> Observation {
    let kind = choices.below(256);
    let own = if kind >= 240 { choices.wide() } else { event };
    let mut observation = Observation::MISSING;
    if kind & 1 == 1 {
        observation = observation.with_bunch_crossing(own as u16);
    }
    if kind & 2 == 2 {
        observation = observation.with_time(own);
    }
    observation
}

const MANAGED_READOUTS: u16 = 3;
const BUILDERS: u16 = 3;

/// Feeds an event manager.
///
/// # Panics
/// If the machine panics, its account does not balance, or an attempt is used twice in a run.
pub fn manager(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let config = ManagerConfig {
        capacity: 32,
        policy: [AssignPolicy::RoundRobin, AssignPolicy::LeastLoaded, AssignPolicy::FreeBytes]
            [choices.below(3) as usize],
        batch: 1 + choices.below(8) as usize,
        event_timeout: Duration::from_millis(50),
        drain_timeout: Duration::from_millis(500),
        trigger_readout: choices.chance().then_some(0),
        epoch: Epoch(1 + choices.below(3) as u32),
        ..ManagerConfig::new(MANAGED_READOUTS, BUILDERS)
    };
    config.check().expect("made to be right");
    let mut manager = Manager::new(config);
    let mut attempts = BTreeMap::new();
    while !choices.is_over() {
        let now = choices.now();
        if step_manager(&mut manager, &mut choices, now) {
            attempts.clear();
        }
        settle_manager(&mut manager, now, &mut attempts);
        check_manager(&manager);
    }
}

/// Executes one random step; returns true if a run may have begun.
fn step_manager(manager: &mut Manager, choices: &mut Choices<'_>, now: Instant) -> bool {
    let node = choices.node();
    match choices.below(16) {
        0 | 1 => manager.node_connected(now, node, Incarnation(choices.below(3))),
        2 => manager.node_lost(now, node),
        3 => {
            let last = choices.chance().then(|| choices.key());
            manager.start(now, choices.key(), last);
            return true;
        }
        4 if choices.below(4) == 0 => {
            manager.recover(now, choices.key(), None);
            return true;
        }
        5 => match choices.below(4) {
            0 => manager.stop(now),
            1 => manager.stop_at(now, choices.key()),
            2 => manager.force_stop(now),
            _ => manager.mask(choices.source(4), choices.chance()),
        },
        _ => manager.message(now, node, &choices.message(4)),
    }
    false
}

fn settle_manager(manager: &mut Manager, now: Instant, attempts: &mut BTreeMap<EventKey, Attempt>) {
    for _ in 0..MOST_ACTIONS {
        match manager.poll(now) {
            None => return,
            Some(ManagerAction::Send { to, message }) => {
                let configured = if to.role == Role::Readout { MANAGED_READOUTS } else { BUILDERS };
                assert!(to.role != Role::Manager && to.index < configured, "a message for {to}");
                if let Message::Assign(assign) = message {
                    for entry in assign.entries {
                        let before = attempts.insert(entry.key, entry.attempt);
                        assert!(before < Some(entry.attempt), "{:?} again in attempt {:?}", entry.key, entry.attempt);
                    }
                }
            }
            Some(ManagerAction::LumisectionEnded(_) | ManagerAction::RunEnded) => {}
        }
    }
    panic!("the event manager does not come to rest");
}

fn check_manager(manager: &Manager) {
    let account = manager.account();
    assert_eq!(account.assigned, account.accounted(), "{account:?}");
    assert!(account.in_flight <= 32, "{account:?}");
    let _ = (manager.next_deadline(), manager.state(), manager.highest());
}
