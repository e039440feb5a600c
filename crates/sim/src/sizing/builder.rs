//! A builder unit in the simulated system: the real machine, the filter units behind it, and its disk.

use super::host::{Stopwatch, Work};
use super::network::Pace;
use super::queue::Step;
use super::system::{FilterSection, Placement, System};
use super::world::{PATIENCE, World};
use ropewalk_flow::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource};
use ropewalk_flow::messages::SuperFragmentEntry;
use ropewalk_flow::source::Random;
use ropewalk_terms::{AcknowledgementLevel, Instant, NodeId, SourceId};
use std::collections::VecDeque;
use std::ops::Range;

/// A builder unit.
#[derive(Debug)]
pub(super) struct BuilderUnit {
    pub(super) machine: Builder,
    pub(super) inbox: Vec<u32>,
    /// Super-fragments that came, and from which readout unit.
    pub(super) arrived: Vec<(u16, SuperFragmentEntry)>,
    /// Events that have come so far since the last turn.
    reached: Vec<(u32, AcknowledgementLevel)>,
    /// Slots and numbers of the events that this turn built.
    built: Vec<(u32, u64)>,
    /// Bytes of the event in each slot.
    bytes: Box<[u64]>,
    in_work_bytes: u64,
    credit_bytes: u64,
    random: Random,
    filter: Filter,
    disk: Disk,
    /// Bytes of fragments that were built.
    pub(super) built_bytes: u64,
    /// The most events and bytes in work.
    pub(super) most_events: u64,
    pub(super) most_bytes: u64,
    /// All of its room for events is taken.
    pub(super) full: Stopwatch,
}

/// Filter units: so many events at a time.
#[derive(Debug)]
pub(super) struct Filter {
    free: u32,
    waiting: VecDeque<u32>,
    pub(super) busy: u64,
    /// The most events that waited.
    pub(super) most_waiting: u64,
}

/// A disk: one event after the other.
#[derive(Debug)]
pub(super) struct Disk {
    pace: Option<Pace>,
    queue: VecDeque<u32>,
    pub(super) busy: u64,
    pub(super) bytes: u64,
    /// The most events that waited, the one that is written included.
    pub(super) most_waiting: u64,
}

impl BuilderUnit {
    pub(super) fn new(system: &System, index: u32, sources_of: impl Fn(u32) -> Range<u32>) -> Self {
        let of_readout = |readout: u16| {
            sources_of(u32::from(readout)).map(move |source| BuilderSource {
                bunch_crossing_mask: 0,
                ..BuilderSource::new(SourceId(source), readout)
            })
        };
        let config = BuilderConfig {
            slots: system.builder.events,
            table: system.manager.capacity,
            credit_bytes: system.builder.bytes.0,
            event_timeout: PATIENCE,
            level: match system.builder.acknowledge {
                AcknowledgementLevel::Built => AcknowledgementLevel::Built,
                AcknowledgementLevel::Handed => AcknowledgementLevel::Handed,
                AcknowledgementLevel::Written | AcknowledgementLevel::Synced => AcknowledgementLevel::Written,
            },
            check_bunch_crossing: false,
            ..BuilderConfig::new(index as u16, system.readouts, (0..system.readouts).flat_map(of_readout).collect())
        };
        Self {
            machine: Builder::new(config),
            inbox: Vec::new(),
            arrived: Vec::new(),
            reached: Vec::new(),
            built: Vec::new(),
            bytes: vec![0; system.builder.events as usize].into_boxed_slice(),
            in_work_bytes: 0,
            credit_bytes: system.builder.bytes.0,
            random: Random::new(system.seed, (1 << 40) + u64::from(index)),
            filter: Filter {
                free: system.filter.as_ref().map_or(0, |filter| filter.workers),
                waiting: VecDeque::new(),
                busy: 0,
                most_waiting: 0,
            },
            disk: Disk {
                pace: system.disk.as_ref().map(|disk| Pace::new(disk.speed.bytes_per_second)),
                queue: VecDeque::new(),
                busy: 0,
                bytes: 0,
                most_waiting: 0,
            },
            built_bytes: 0,
            most_events: 0,
            most_bytes: 0,
            full: Stopwatch::default(),
        }
    }

    pub(super) const fn filter(&self) -> &Filter {
        &self.filter
    }

    pub(super) const fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(super) fn reset(&mut self, now: u64) {
        (self.built_bytes, self.most_events, self.most_bytes) = (0, 0, 0);
        (self.filter.busy, self.filter.most_waiting) = (0, 0);
        (self.disk.busy, self.disk.bytes, self.disk.most_waiting) = (0, 0, 0);
        self.full.reset(now);
    }

    /// An event has come so far; the machine hears it in the next turn.
    fn note(&mut self, slot: u32, level: AcknowledgementLevel) {
        self.reached.push((slot, level));
    }

    /// Tells the machine that an event is done with.
    fn finish(&mut self, now: Instant, slot: u32) {
        self.machine.reached(now, slot, AcknowledgementLevel::Written);
        self.in_work_bytes -= std::mem::take(&mut self.bytes[slot as usize]);
    }
}

impl World<'_> {
    /// Reads messages and super-fragments, then asks the machine what to do.
    pub(super) fn turn_builder(&mut self, index: u32, work: &mut Work) {
        let now = Instant::from_nanoseconds(self.now);
        let unit = &mut self.builders[index as usize];
        for place in unit.inbox.drain(..) {
            let (_, message) = self.mail.read(place);
            unit.machine.message(now, message);
            self.mail.discard(place);
            work.messages += 1;
        }
        let mut reached = std::mem::take(&mut unit.reached);
        for (slot, level) in reached.drain(..) {
            match level {
                AcknowledgementLevel::Written => unit.finish(now, slot),
                level => unit.machine.reached(now, slot, level),
            }
        }
        unit.reached = reached;
        self.take_super_fragments(index, now, work);
        self.poll_builder(index, now, work);
        let unit = &mut self.builders[index as usize];
        let events = unit.machine.in_work() as u64;
        unit.most_events = unit.most_events.max(events);
        // What another event needs is not known; the mean of those in work is a fair guess.
        let another = unit.in_work_bytes.checked_div(events).unwrap_or(0);
        let full = events == unit.bytes.len() as u64 || unit.in_work_bytes + another > unit.credit_bytes;
        unit.full.set(self.now, full);
    }

    /// The fragments of a super-fragment stay in the readout unit until the event is released: they are looked up
    /// there when the last byte has come, and need not travel.
    fn take_super_fragments(&mut self, index: u32, now: Instant, work: &mut Work) {
        let unit = &mut self.builders[index as usize];
        for (readout, entry) in unit.arrived.drain(..) {
            work.messages += 1;
            // Inside one process they are handed over where they lie.
            work.received += if self.system.placement == Placement::Own { u64::from(entry.bytes) } else { 0 };
            unit.bytes[entry.slot as usize] += u64::from(entry.bytes);
            unit.in_work_bytes += u64::from(entry.bytes);
            let held = self.readouts[usize::from(readout)].machine.super_fragment(entry.key);
            held.inspect(|held| held.append_to(&mut self.answer));
            unit.machine.super_fragment(now, readout, &entry, &mut self.answer);
            self.answer.clear();
        }
        unit.most_bytes = unit.most_bytes.max(unit.in_work_bytes);
    }

    fn poll_builder(&mut self, index: u32, now: Instant, work: &mut Work) {
        let from = NodeId::builder(index as u16);
        let ends_here = self.system.filter.is_none() && self.system.disk.is_none();
        let unit = &mut self.builders[index as usize];
        while let Some(action) = unit.machine.poll(now) {
            match action {
                BuilderAction::ToManager(message) => self.outbox.push((0, self.mail.keep(from, message))),
                BuilderAction::ToReadout { readout, message } => {
                    self.outbox.push((1 + u32::from(readout), self.mail.keep(from, message)));
                }
                BuilderAction::Emit { slot } => {
                    let number = unit.machine.event(slot).key.number();
                    unit.built.push((slot, number));
                    unit.built_bytes += unit.bytes[slot as usize];
                    if ends_here {
                        unit.finish(now, slot);
                    } else {
                        unit.machine.reached(now, slot, AcknowledgementLevel::Built);
                    }
                    continue;
                }
                BuilderAction::StopRun { .. } | BuilderAction::EndLumisection(_) => continue,
            }
            work.messages += 1;
        }
    }

    /// The turn is over: events are built, and go to filter and disk.
    pub(super) fn builder_has_built(&mut self, index: u32) {
        let mut built = std::mem::take(&mut self.builders[index as usize].built);
        for (slot, number) in built.drain(..) {
            self.built.add(self.now - self.front_ends.triggered_at(number));
            let unit = &mut self.builders[index as usize];
            if self.system.filter.is_some() {
                unit.filter.waiting.push_back(slot);
            } else if self.system.disk.is_some() {
                self.write(index, slot);
            }
        }
        self.builders[index as usize].built = built;
        self.hand_out(index);
    }

    /// Gives waiting events to filter units that are free.
    fn hand_out(&mut self, index: u32) {
        let Some(FilterSection { time, .. }) = self.system.filter else { return };
        let unit = &mut self.builders[index as usize];
        while unit.filter.free > 0
            && let Some(slot) = unit.filter.waiting.pop_front()
        {
            unit.filter.free -= 1;
            let takes = time.next(&mut unit.random).as_nanos() as u64;
            unit.filter.busy += takes;
            self.queue.push(self.now + takes, Step::Filtered { builder: index, slot });
            if self.system.builder.acknowledge == AcknowledgementLevel::Handed {
                unit.note(slot, AcknowledgementLevel::Handed);
            }
        }
        unit.filter.most_waiting = unit.filter.most_waiting.max(unit.filter.waiting.len() as u64);
        if !self.builders[index as usize].reached.is_empty() {
            self.wake(self.builder_unit(index));
        }
    }

    /// A filter unit has decided.
    pub(super) fn filtered(&mut self, index: u32, slot: u32) {
        let accept = self.system.filter.as_ref().map_or(1.0, |filter| filter.accept);
        let unit = &mut self.builders[index as usize];
        unit.filter.free += 1;
        if self.system.disk.is_some() && unit.random.unit() <= accept {
            self.write(index, slot);
        } else {
            unit.note(slot, AcknowledgementLevel::Written);
            self.wake(self.builder_unit(index));
        }
        self.hand_out(index);
    }

    fn write(&mut self, index: u32, slot: u32) {
        let disk = &mut self.builders[index as usize].disk;
        disk.queue.push_back(slot);
        disk.most_waiting = disk.most_waiting.max(disk.queue.len() as u64);
        if disk.queue.len() == 1 {
            self.write_next(index);
        }
    }

    fn write_next(&mut self, index: u32) {
        let unit = &mut self.builders[index as usize];
        let (Some(&slot), Some(pace)) = (unit.disk.queue.front(), &mut unit.disk.pace) else { return };
        let bytes = unit.bytes[slot as usize];
        let per_event = self.system.disk.as_ref().and_then(|disk| disk.per_event);
        let takes = pace.take(bytes) + per_event.map_or(0, |time| time.0.as_nanos() as u64);
        unit.disk.busy += takes;
        unit.disk.bytes += bytes;
        self.queue.push(self.now + takes, Step::Written { builder: index, slot });
    }

    /// An event is on the disk.
    pub(super) fn written(&mut self, index: u32, slot: u32) {
        let unit = &mut self.builders[index as usize];
        unit.disk.queue.pop_front();
        unit.note(slot, AcknowledgementLevel::Written);
        self.write_next(index);
        self.wake(self.builder_unit(index));
    }
}
