//! Units of the simulated system: readout units, builder units with filter units and disk, the event manager, and the computers
//! that they run on. Machines are the real ones, fed with fragments that have lengths and no bytes.
//!
//! A computer works in turns: it looks for work, does what has come since its last turn, and hands on the results when
//! the work is done. Under load turns become longer and batches larger, as in the real drives.

use super::front_end::FrontEndModel;
use super::network::{Load, Pace};
use super::push::PushHostSection;
use super::queue::{Letter, Side, Step};
use super::system::{FilterSection, FormatChoice, HostSection, Placement, System};
use super::world::{PATIENCE, World};
use ropewalk_config::quantity::{Bandwidth, Time};
use ropewalk_flow::builder::{Builder, BuilderAction, BuilderConfig, BuilderSource};
use ropewalk_flow::manager::{Manager, ManagerAction, ManagerConfig};
use ropewalk_flow::messages::{FragmentFlags, FragmentMeta, Message, Received, SuperFragmentEntry};
use ropewalk_flow::readout::{Format, Readout, ReadoutAction, ReadoutConfig, SourceConfig};
use ropewalk_flow::source::Random;
use ropewalk_memory::Payload;
use ropewalk_terms::{AcknowledgementLevel, Instant, NodeId, SourceId};
use ropewalk_wire::message::{FRAGMENT_ENTRY_BYTES, SUPER_FRAGMENT_ENTRY_BYTES};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Fragments of one source that are read in one turn: what the machine takes at once.
const READ_AT_ONCE: usize = 128;

/// A readout unit.
pub(super) struct ReadoutUnit {
    pub(super) machine: Readout,
    pub(super) inbox: Vec<Letter>,
    sources: Range<u32>,
    format: FormatChoice,
    /// Super-fragments of this turn, and for which builder unit.
    answers: Vec<(u16, SuperFragmentEntry)>,
    received: Vec<Received>,
    /// Bytes of each source's stream that are held: headers stay where they were received.
    held: Vec<u64>,
    held_bytes: u64,
    /// Bytes that each source may hold.
    quota: u64,
    /// Whether an event at or behind the floor is released, by the lowest bits of its number.
    gone: Box<[bool]>,
    /// Every event before this one is released.
    pub(super) floor: u64,
    /// The last event of which a fragment was read.
    latest: u64,
    /// The most bytes held, events held, bytes of one source that waited to be read.
    pub(super) most_bytes: u64,
    pub(super) most_events: u64,
    pub(super) most_waiting: u64,
    /// Something waited to be read because the pool was full, or because table or window were.
    pub(super) pool_full: Stopwatch,
    pub(super) table_full: Stopwatch,
}

impl ReadoutUnit {
    pub(super) fn new(system: &System, index: u32, sources: Range<u32>, front_ends: &FrontEndModel) -> Self {
        let configured = sources.clone().map(|source| SourceConfig::new(SourceId(source), Format::Generic)).collect();
        let config = ReadoutConfig {
            builders: system.builders,
            window: system.readout.window,
            capacity: system.readout.capacity,
            source_timeout: PATIENCE,
            resync_timeout: PATIENCE + Duration::from_secs(1),
            ..ReadoutConfig::new(index as u16, configured)
        };
        Self {
            machine: Readout::new(config),
            inbox: Vec::new(),
            answers: Vec::new(),
            received: Vec::with_capacity(READ_AT_ONCE),
            format: system.front_end.format,
            held: vec![0; sources.len()],
            held_bytes: 0,
            quota: system.readout.pool.0 / sources.len().max(1) as u64,
            gone: vec![false; front_ends.ring() as usize].into_boxed_slice(),
            floor: 1,
            latest: 0,
            most_bytes: 0,
            most_events: 0,
            most_waiting: 0,
            pool_full: Stopwatch::default(),
            table_full: Stopwatch::default(),
            sources,
        }
    }

    pub(super) fn connect_sources(&mut self) {
        (0..self.sources.len()).for_each(|source| self.machine.source_connected(Instant::ZERO, source));
    }

    pub(super) fn reset(&mut self, now: u64) {
        (self.most_bytes, self.most_events, self.most_waiting) = (self.held_bytes, 0, 0);
        self.pool_full.reset(now);
        self.table_full.reset(now);
    }

    /// Reads what a source has sent, as far as there is room; returns how many fragments. Says in `full` what had
    /// none: the pool, or table and window.
    fn read(&mut self, place: usize, readable: u64, front_ends: &mut FrontEndModel, full: &mut [bool; 2]) -> u64 {
        let source = self.sources.start + place as u32;
        let room = self.machine.room(place);
        while let Some((event, length)) = front_ends.next_fragment(source, readable) {
            if self.received.len() >= room {
                full[1] |= room < READ_AT_ONCE;
                break;
            }
            if self.held[place] + length > self.quota {
                full[0] = true;
                break;
            }
            front_ends.note_read(source);
            self.held[place] += length;
            self.held_bytes += length;
            self.latest = self.latest.max(event);
            self.received.push(hollow(SourceId(source), event, self.format.fragment(length)));
        }
        self.received.len() as u64
    }
}

/// A fragment without bytes.
fn hollow(source: SourceId, event: u64, length: u64) -> Received {
    let meta = FragmentMeta {
        source,
        length: length as u32,
        flags: FragmentFlags::default(),
        bunch_crossing: 0,
        trigger_type: 0,
        raw_id: event,
        time: 0,
    };
    Received { meta, restarts: false, payload: Payload::default() }
}

impl World<'_> {
    /// Reads messages and fragments, then asks the machine what to do.
    pub(super) fn turn_readout(&mut self, index: u32, work: &mut Work) {
        let now = Instant::from_nanoseconds(self.now);
        let unit = &mut self.readouts[index as usize];
        for letter in std::mem::take(&mut unit.inbox) {
            let (from, message) = &*letter;
            unit.machine.message(now, *from, message);
            work.messages += 1;
            if let Message::Release(release) = message {
                let ranges = release.entries.iter().map(|entry| (entry.first.number(), u64::from(entry.count)));
                ranges.for_each(|(first, count)| let_go(unit, &self.front_ends, first, count));
            }
        }
        self.read_sources(index, now, work);
        self.raise_floor(index);
        let unit = &mut self.readouts[index as usize];
        while let Some(action) = unit.machine.poll(now) {
            work.messages += 1;
            match action {
                ReadoutAction::ToManager(message) => {
                    self.outbox.push((0, Box::new((NodeId::readout(index as u16), message))));
                }
                ReadoutAction::Answer { builder, entry } => {
                    work.sent += if self.system.placement == Placement::Own { u64::from(entry.bytes) } else { 0 };
                    unit.answers.push((builder, entry));
                }
            }
        }
    }

    fn read_sources(&mut self, index: u32, now: Instant, work: &mut Work) {
        let unit = &mut self.readouts[index as usize];
        let mut full = [false; 2];
        let mut more = false;
        for place in 0..unit.held.len() {
            let source = unit.sources.start + place as u32;
            let before = unit.held_bytes;
            let count = unit.read(place, self.front.flow(source).received, &mut self.front_ends, &mut full);
            if count == 0 {
                continue;
            }
            more |= count == READ_AT_ONCE as u64;
            work.fragments += count;
            work.received += unit.held_bytes - before;
            unit.machine.receive(now, place, &mut unit.received);
            let consumed = self.front.flow(source).consumed + (unit.held_bytes - before);
            self.front.consume(&mut self.queue, self.now, source, consumed);
        }
        unit.most_bytes = unit.most_bytes.max(unit.held_bytes);
        unit.most_events = unit.most_events.max((unit.latest + 1).saturating_sub(unit.floor));
        unit.pool_full.set(self.now, full[0]);
        unit.table_full.set(self.now, full[1]);
        if more {
            self.come_again(1 + index);
        }
    }

    /// Moves the floor over what is released, and lets sources that waited for that go on.
    fn raise_floor(&mut self, index: u32) {
        let unit = &mut self.readouts[index as usize];
        let mask = unit.gone.len() as u64 - 1;
        let before = unit.floor;
        while std::mem::take(&mut unit.gone[(unit.floor & mask) as usize]) {
            unit.floor += 1;
        }
        if unit.floor == before {
            return;
        }
        let floor = unit.floor;
        for source in unit.sources.clone() {
            if self.front_ends.set_floor(source, floor) {
                self.serve(Side::Front, source);
            }
        }
    }

    /// The turn is over: super-fragments leave.
    pub(super) fn readout_has_sent(&mut self, index: u32) {
        let mut answers = std::mem::take(&mut self.readouts[index as usize].answers);
        for (builder, entry) in answers.drain(..) {
            let heads = SUPER_FRAGMENT_ENTRY_BYTES + usize::from(entry.fragments) * FRAGMENT_ENTRY_BYTES;
            self.fly(index, u32::from(builder), entry, u64::from(entry.bytes) + heads as u64);
        }
        self.readouts[index as usize].answers = answers;
        self.event.serve(&mut self.queue, self.now, index);
    }
}

/// Events were released here: their bytes are free.
fn let_go(unit: &mut ReadoutUnit, front_ends: &FrontEndModel, first: u64, count: u64) {
    for (held, source) in unit.held.iter_mut().zip(unit.sources.clone()) {
        let bytes = front_ends.bytes(source, first, count);
        *held -= bytes;
        unit.held_bytes -= bytes;
    }
    let mask = unit.gone.len() as u64 - 1;
    (first..first + count).for_each(|event| unit.gone[(event & mask) as usize] = true);
}

/// A builder unit.
pub(super) struct BuilderUnit {
    pub(super) machine: Builder,
    pub(super) inbox: Vec<Letter>,
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
    pub(super) filter: Filter,
    pub(super) disk: Disk,
    /// Bytes of fragments that were built.
    pub(super) built_bytes: u64,
    /// The most events and bytes in work.
    pub(super) most_events: u64,
    pub(super) most_bytes: u64,
    /// All of its room for events is taken.
    pub(super) full: Stopwatch,
}

/// Filter units: so many events at a time.
#[derive(Default, Debug)]
pub(super) struct Filter {
    free: u32,
    waiting: VecDeque<u32>,
    pub(super) busy: u64,
    /// The most events that waited.
    pub(super) most_waiting: u64,
}

/// A disk: one event after the other.
#[derive(Default, Debug)]
pub(super) struct Disk {
    pace: Option<Pace>,
    queue: VecDeque<u32>,
    pub(super) load: Load,
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
            filter: Filter { free: system.filter.as_ref().map_or(0, |filter| filter.workers), ..Filter::default() },
            disk: Disk {
                pace: system.disk.as_ref().map(|disk| Pace::new(disk.speed.bytes_per_second)),
                ..Disk::default()
            },
            built_bytes: 0,
            most_events: 0,
            most_bytes: 0,
            full: Stopwatch::default(),
        }
    }

    pub(super) fn reset(&mut self, now: u64) {
        (self.built_bytes, self.most_events, self.most_bytes) = (0, 0, 0);
        (self.filter.busy, self.filter.most_waiting) = (0, 0);
        (self.disk.load, self.disk.most_waiting) = (Load::default(), 0);
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
        for letter in unit.inbox.drain(..) {
            unit.machine.message(now, &letter.1);
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
        loop {
            while let Some(action) = unit.machine.poll(now) {
                match action {
                    BuilderAction::ToManager(message) => self.outbox.push((0, Box::new((from, message)))),
                    BuilderAction::ToReadout { readout, message } => {
                        self.outbox.push((1 + u32::from(readout), Box::new((from, message))));
                    }
                    BuilderAction::StopRun { .. } | BuilderAction::EndLumisection(_) => continue,
                }
                work.messages += 1;
            }
            let Some(slot) = unit.machine.next_event() else { return };
            let number = unit.machine.event(slot).key.number();
            unit.built.push((slot, number));
            unit.built_bytes += unit.bytes[slot as usize];
            if ends_here {
                unit.finish(now, slot);
            } else {
                unit.machine.reached(now, slot, AcknowledgementLevel::Built);
            }
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
            let takes = time.0.next(&mut unit.random).as_nanos() as u64;
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
        unit.disk.load.busy += takes;
        unit.disk.load.bytes += bytes;
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

/// The event manager.
pub(super) struct ManagerUnit {
    pub(super) machine: Manager,
    pub(super) inbox: Vec<Letter>,
    /// Events that this turn releases: the first number and how many.
    released: Vec<(u64, u64)>,
    readouts: u16,
    /// Events that were assigned or released in this life.
    assigned: u64,
    ended: u64,
    /// The most events that were assigned and not released.
    pub(super) most_assigned: u64,
}

impl ManagerUnit {
    pub(super) fn new(system: &System) -> Self {
        let config = ManagerConfig {
            capacity: system.manager.capacity,
            policy: system.manager.policy,
            batch: system.manager.batch as usize,
            event_timeout: PATIENCE,
            drain_timeout: PATIENCE,
            ..ManagerConfig::new(system.readouts, system.builders)
        };
        Self {
            machine: Manager::new(config),
            inbox: Vec::new(),
            released: Vec::new(),
            readouts: system.readouts,
            assigned: 0,
            ended: 0,
            most_assigned: 0,
        }
    }
}

impl World<'_> {
    /// Reads messages, then asks the machine what to do.
    pub(super) fn turn_manager(&mut self, work: &mut Work) {
        let now = Instant::from_nanoseconds(self.now);
        for letter in self.manager.inbox.drain(..) {
            let (from, message) = &*letter;
            self.manager.machine.message(now, *from, message);
            work.messages += 1;
        }
        while let Some(action) = self.manager.machine.poll(now) {
            let ManagerAction::Send { to, message } = action else { continue };
            work.messages += 1;
            let unit = self.unit_of(to);
            match &message {
                Message::Assign(assign) => {
                    self.manager.assigned += assign.entries.len() as u64;
                    let in_work = self.manager.assigned - self.manager.ended;
                    self.manager.most_assigned = self.manager.most_assigned.max(in_work);
                }
                // An event is released when the last readout unit gets its release.
                Message::Release(release) if unit == u32::from(self.manager.readouts) => {
                    let ranges = release.entries.iter().map(|entry| (entry.first.number(), u64::from(entry.count)));
                    self.manager.released.extend(ranges);
                }
                _ => {}
            }
            self.outbox.push((unit, Box::new((NodeId::MANAGER, message))));
        }
    }

    /// The turn is over: the releases have left.
    pub(super) fn manager_has_sent(&mut self) {
        for (first, count) in self.manager.released.drain(..) {
            self.manager.ended += count;
            for event in first..first + count {
                self.released.add(self.now - self.front_ends.triggered_at(event));
            }
        }
    }
}

/// What one turn had to do.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Work {
    /// Messages and super-fragments, received or sent.
    pub(super) messages: u64,
    /// Fragments or packets received.
    pub(super) fragments: u64,
    /// Frames sent, where they are counted.
    pub(super) frames: u64,
    /// Bytes received.
    pub(super) received: u64,
    /// Bytes sent.
    pub(super) sent: u64,
}

/// What work costs, in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(super) struct Costs {
    turn: u64,
    message: f64,
    fragment: f64,
    frame: f64,
    byte_received: f64,
    byte_sent: f64,
}

impl Costs {
    /// Those of a host.
    pub(super) fn new(section: &HostSection) -> Self {
        let HostSection { cores, turn, per_message, per_fragment, receive, send } = *section;
        Self::shared(cores, turn, [per_message, per_fragment, Time(Duration::ZERO)], [receive, send])
    }

    /// Those of the core of an input queue in a system in which sources push.
    pub(super) fn of_queue(section: &PushHostSection) -> Self {
        let PushHostSection { turn, per_packet, receive, per_push, send, per_message } = *section;
        Self::shared(1, turn, [per_message, per_packet, per_push], [receive, send])
    }

    /// Looking for work is not made faster by more cores.
    fn shared(cores: u32, turn: Time, works: [Time; 3], speeds: [Bandwidth; 2]) -> Self {
        let [message, fragment, frame] = works.map(|work| work.0.as_nanos() as f64 / f64::from(cores));
        let [byte_received, byte_sent] = speeds.map(|speed| 1e9 / speed.bytes_per_second / f64::from(cores));
        Self { turn: turn.0.as_nanos() as u64, message, fragment, frame, byte_received, byte_sent }
    }

    /// How long looking for work and the work itself take. Only the work keeps a computer busy: the more it has to do,
    /// the fewer turns it takes.
    pub(super) fn of(&self, work: Work) -> (u64, u64) {
        let time = self.message * work.messages as f64
            + self.fragment * work.fragments as f64
            + self.frame * work.frames as f64
            + self.byte_received * work.received as f64
            + self.byte_sent * work.sent as f64;
        (self.turn, time.round() as u64)
    }
}

/// A computer.
pub(super) struct Host {
    pub(super) costs: Costs,
    /// The units on it.
    pub(super) units: Range<u32>,
    pub(super) working: bool,
    pub(super) busy: u64,
}

/// Measures how long something lasts.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Stopwatch {
    since: Option<u64>,
    total: u64,
}

impl Stopwatch {
    /// It lasts, or not, from `now` on.
    pub(super) fn set(&mut self, now: u64, lasts: bool) {
        match (self.since, lasts) {
            (None, true) => self.since = Some(now),
            (Some(since), false) => {
                self.total += now - since;
                self.since = None;
            }
            _ => {}
        }
    }

    /// Nanoseconds so far.
    pub(super) fn total(&self, now: u64) -> u64 {
        self.total + self.since.map_or(0, |since| now.saturating_sub(since))
    }

    /// Measures anew from here.
    pub(super) fn reset(&mut self, now: u64) {
        *self = Self { since: self.since.map(|_| now), total: 0 };
    }
}
