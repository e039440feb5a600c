//! A builder unit among strangers.

use super::MOST_ACTIONS;
use super::choices::Choices;
use ropewalk_flow::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource, IncompletePolicy, synchrony};
use ropewalk_flow::messages::{Fragment, Message, RequestEntry, SuperFragmentEntry};
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant, Requirement, SourceId};
use std::time::Duration;

const SOURCES: u32 = 4;
const READOUTS: u16 = 2;
const SLOTS: u32 = 8;

fn config(choices: &mut Choices<'_>) -> BuilderConfig {
    let source = |id: u32| BuilderSource {
        requirement: if id == SOURCES { Requirement::Optional } else { Requirement::Required },
        ..BuilderSource::new(SourceId(id), id as u16 % READOUTS)
    };
    let watched = (1..=SOURCES).map(|id| synchrony::SourceConfig::new(SourceId(id)));
    BuilderConfig {
        slots: SLOTS,
        table: 16,
        credit_bytes: 64 << 10,
        event_timeout: Duration::from_millis(30),
        incomplete: [IncompletePolicy::Emit, IncompletePolicy::Drop, IncompletePolicy::Stop][choices.below(3) as usize],
        level: choices.level(),
        synchrony: choices.chance().then(|| synchrony::Config::new(watched)),
        ..BuilderConfig::new(0, READOUTS, (1..=SOURCES).map(source).collect())
    }
}

/// A builder unit, what it asked for, and what it gave away to be written.
struct Fed {
    builder: Builder,
    asked: Vec<(u16, RequestEntry)>,
    emitted: Vec<u32>,
}

/// Feeds a builder unit.
///
/// # Panics
/// Where the machine does, or where its account does not balance.
pub fn builder(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let config = config(&mut choices);
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
            _ => self.builder.message(now, &choices.message(SOURCES)),
        }
    }

    /// An answer to what was asked.
    fn answer(&mut self, choices: &mut Choices<'_>, now: Instant) {
        let place = choices.below(self.asked.len().max(1) as u64) as usize;
        if place >= self.asked.len() {
            return;
        }
        let (readout, RequestEntry { key, slot, attempt }) = self.asked.swap_remove(place);
        let own = (1..=SOURCES).filter(|id| *id as u16 % READOUTS == readout);
        let mut fragments: Vec<Fragment> = own
            .filter_map(|id| {
                let meta = choices.meta(SOURCES);
                let meta = if choices.below(8) == 0 { meta } else { with_source(meta, id) };
                (choices.below(8) > 0).then_some(Fragment { meta, payload: Payload::default() })
            })
            .collect();
        let not_held = (choices.below(16) == 0).then(|| choices.cause());
        let entry = SuperFragmentEntry { key, slot, attempt, fragments: fragments.len() as u16, bytes: 0, not_held };
        self.builder.super_fragment(now, readout, &entry, &mut fragments);
    }

    /// An answer that nobody asked for, perhaps.
    fn answer_anything(&mut self, choices: &mut Choices<'_>, now: Instant, readout: u16) {
        let request = choices.request();
        for RequestEntry { key, slot, attempt } in request.entries {
            let fragment = Fragment { meta: choices.meta(SOURCES), payload: Payload::default() };
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
                None => return,
                Some(BuilderAction::ToReadout { readout, message: Message::Request(request) }) => {
                    assert!(readout < READOUTS);
                    self.asked.extend(request.entries.iter().map(|entry| (readout, *entry)));
                }
                Some(BuilderAction::Emit { slot }) => {
                    assert!(slot < SLOTS);
                    let event = self.builder.event(slot);
                    let (there, missing) = (event.fragments().count(), event.missing().count());
                    assert!(there + missing <= SOURCES as usize, "a source twice in one event");
                    assert!(!event.complete || event.missing().all(|(id, _)| id == SourceId(SOURCES)));
                    self.emitted.push(slot);
                }
                Some(_) => {}
            }
            // What was asked long ago is answered by nobody.
            let surplus = self.asked.len().saturating_sub(64);
            self.asked.drain(..surplus);
        }
        panic!("the builder unit does not come to rest");
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
