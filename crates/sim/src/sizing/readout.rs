//! A readout unit in the simulated system: the real machine, fed with fragments that have lengths and no bytes.

use super::front_end::FrontEnds;
use super::host::{Stopwatch, Work};
use super::system::{FormatChoice, Placement, System};
use super::world::{PATIENCE, World};
use ropewalk_flow::messages::{FragmentFlags, FragmentMeta, Message, Received, SuperFragmentEntry};
use ropewalk_flow::readout::{Format, Readout, ReadoutAction, ReadoutConfig, SourceConfig};
use ropewalk_memory::Payload;
use ropewalk_terms::{Instant, NodeId, SourceId};
use ropewalk_wire::message::{FRAGMENT_ENTRY_BYTES, SUPER_FRAGMENT_ENTRY_BYTES};
use std::ops::Range;
use std::time::Duration;

/// Fragments of one source that are read in one turn: what the machine takes at once.
const READ_AT_ONCE: usize = 128;

/// A readout unit.
#[derive(Debug)]
pub(super) struct ReadoutUnit {
    pub(super) machine: Readout,
    pub(super) inbox: Vec<u32>,
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
    pub(super) fn new(system: &System, index: u32, sources: Range<u32>, front_ends: &FrontEnds) -> Self {
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
    fn read(&mut self, place: usize, readable: u64, front_ends: &mut FrontEnds, full: &mut [bool; 2]) -> u64 {
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
        let mut inbox = std::mem::take(&mut self.readouts[index as usize].inbox);
        for place in inbox.drain(..) {
            let (from, message) = self.mail.read(place);
            self.readouts[index as usize].machine.message(now, from, message);
            work.messages += 1;
            if let Message::Release(release) = message {
                let ranges = release.entries.iter().map(|entry| (entry.first.number(), u64::from(entry.count)));
                let unit = &mut self.readouts[index as usize];
                ranges.for_each(|(first, count)| let_go(unit, &self.front_ends, first, count));
            }
            self.mail.discard(place);
        }
        self.readouts[index as usize].inbox = inbox;
        self.read_sources(index, now, work);
        self.raise_floor(index);
        let unit = &mut self.readouts[index as usize];
        while let Some(action) = unit.machine.poll(now) {
            work.messages += 1;
            match action {
                ReadoutAction::ToManager(message) => {
                    let place = self.mail.keep(NodeId::readout(index as u16), message);
                    self.outbox.push((0, place));
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
            let count = unit.read(place, self.front.received(source), &mut self.front_ends, &mut full);
            if count == 0 {
                continue;
            }
            more |= count == READ_AT_ONCE as u64;
            work.fragments += count;
            work.received += unit.held_bytes - before;
            unit.machine.receive(now, place, &mut unit.received);
            let consumed = self.front.consumed(source) + (unit.held_bytes - before);
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
                self.feed_again(source);
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
fn let_go(unit: &mut ReadoutUnit, front_ends: &FrontEnds, first: u64, count: u64) {
    for (held, source) in unit.held.iter_mut().zip(unit.sources.clone()) {
        let bytes = front_ends.bytes(source, first, count);
        *held -= bytes;
        unit.held_bytes -= bytes;
    }
    let mask = unit.gone.len() as u64 - 1;
    (first..first + count).for_each(|event| unit.gone[(event & mask) as usize] = true);
}
