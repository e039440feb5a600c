//! The trigger of a flow and its sources: which gateway gets which set, and when each source's packet is in the switch.
//!
//! Packets have the right lengths; those of all sources of a set share their bytes. They wait in the buffer of a port before each
//! link, first come, first served.

use super::system::{FlowSection, PushSystem};
use crate::sizing::network::{Load, Pace};
use ropewalk_flow::gateway::{Naming, Trigger, TriggerConfig};
use ropewalk_flow::source::{Random, SizeDistribution, TriggerSequence};
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_terms::Instant;
use ropewalk_wire::gateway::Throttle;
use ropewalk_wire::mep::{BANK_HEADER_BYTES, MepEncoder};
use std::collections::VecDeque;
use std::time::Duration;

/// A gateway that says nothing for so long is taken for busy.
const SILENCE: Duration = Duration::from_millis(500);
/// Sets whose time of trigger is known, a power of two.
const REMEMBERED: usize = 1 << 16;

/// A set whose packets are on their way.
struct Flight {
    queue: u16,
    packets: Vec<Payload>,
    left: u16,
}

/// Trigger and sources of one flow.
pub(super) struct FlowSources {
    trigger: Trigger,
    sequence: TriggerSequence,
    packing: u16,
    sources: u16,
    maker: PacketMaker,
    pace: Pace,
    /// When each source's link is free.
    free_at: Vec<u64>,
    /// The flights of sets, in the order of their numbers.
    flights: VecDeque<Flight>,
    first_flight: u64,
    times: Box<[u64]>,
    /// Sets that were triggered.
    pub(super) sets: u64,
    /// Events that found no gateway.
    pub(super) vetoed: u64,
    pub(super) load: Load,
}

impl FlowSources {
    pub(super) fn new(system: &PushSystem, section: &FlowSection, seed: u64) -> Self {
        let config = TriggerConfig { gateways: system.queues(), naming: Naming::RoundRobin, silence: SILENCE };
        Self {
            trigger: Trigger::new(config),
            sequence: TriggerSequence::new(seed, section.rate.0),
            packing: section.packing,
            sources: section.sources,
            maker: PacketMaker::new(section, seed),
            pace: Pace::new(section.link.bytes_per_second),
            free_at: vec![0; usize::from(section.sources)],
            flights: VecDeque::new(),
            first_flight: 0,
            times: vec![0; REMEMBERED].into_boxed_slice(),
            sets: 0,
            vetoed: 0,
            load: Load::default(),
        }
    }

    /// When the next set is due, in nanoseconds: with its last event.
    pub(super) fn next_due(&mut self) -> u64 {
        let last = (0..self.packing).map(|_| self.sequence.next_trigger().at).last();
        last.unwrap_or_default().as_nanos() as u64
    }

    /// A gateway says how it is.
    pub(super) fn on_throttle(&mut self, throttle: &Throttle, now: u64) {
        self.trigger.on_throttle(throttle, Instant::from_nanoseconds(now));
    }

    /// A set is due: its number, if some gateway wants it.
    pub(super) fn trigger(&mut self, now: u64, memory: &mut Memory) -> Option<u64> {
        let Some(queue) = self.trigger.name(Instant::from_nanoseconds(now)) else {
            self.vetoed += u64::from(self.packing);
            return None;
        };
        let set = self.sets;
        self.sets += 1;
        self.times[set as usize % REMEMBERED] = now;
        let packets = self.maker.make(set * u64::from(self.packing), memory);
        self.flights.push_back(Flight { queue, packets, left: self.sources });
        Some(set)
    }

    /// When the last bit of a source's packet of a set is in the switch; `on_the_wire` tells how long the packet is there.
    pub(super) fn send(&mut self, now: u64, set: u64, source: u16, on_the_wire: impl Fn(u64) -> u64) -> u64 {
        let bytes = on_the_wire(self.packet(set, source).len() as u64);
        let time = self.pace.take(bytes);
        self.load.busy += time;
        self.load.bytes += bytes;
        let free_at = &mut self.free_at[usize::from(source)];
        *free_at = now.max(*free_at) + time;
        *free_at
    }

    fn flight(&self, set: u64) -> &Flight {
        &self.flights[(set - self.first_flight) as usize]
    }

    /// A packet that is on its way.
    pub(super) fn packet(&self, set: u64, source: u16) -> &Payload {
        let packets = &self.flight(set).packets;
        &packets[usize::from(source) % packets.len()]
    }

    /// The input queue that a set goes to.
    pub(super) fn queue_of(&self, set: u64) -> u16 {
        self.flight(set).queue
    }

    /// A packet is where it should be, or lost.
    pub(super) fn landed(&mut self, set: u64) {
        let place = (set - self.first_flight) as usize;
        self.flights[place].left -= 1;
        while self.flights.pop_front_if(|flight| flight.left == 0).is_some() {
            self.first_flight += 1;
        }
    }

    /// Whether no packet is on its way.
    pub(super) fn have_landed(&self) -> bool {
        self.flights.is_empty()
    }

    /// When an event was triggered.
    pub(super) fn triggered_at(&self, event: u64) -> u64 {
        self.times[(event / u64::from(self.packing)) as usize % REMEMBERED]
    }
}

/// So many different packets a set has where sizes are random: sources have them in turn.
const KINDS: usize = 8;
/// Bytes of a block; no packet is longer.
const BLOCK: usize = 128 << 10;
/// Blocks of a pool.
const BLOCKS: usize = 64;

/// Memory for packets: another pool where all others are in use.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pools: Vec<Staging>,
}

impl Memory {
    fn keep(&mut self, bytes: &[u8]) -> Payload {
        for staging in &mut self.pools {
            staging.pool_mut().collect();
            if let Some(slice) = staging.write(bytes) {
                return slice.into();
            }
        }
        let pool =
            Pool::new_untouched(PoolConfig::heap("packets", BLOCK, BLOCKS)).expect("memory for a few more packets");
        let mut staging = Staging::new(pool);
        let slice = staging.write(bytes).expect("a new pool has room for a packet");
        self.pools.push(staging);
        slice.into()
    }
}

/// Makes a flow's packets.
struct PacketMaker {
    size: SizeDistribution,
    most_banks: u32,
    packing: u16,
    random: Random,
    bytes: Vec<u8>,
}

impl PacketMaker {
    pub(super) fn new(section: &FlowSection, seed: u64) -> Self {
        Self {
            size: section.fragment_size.0,
            most_banks: section.most_banks() as u32,
            packing: section.packing,
            random: Random::new(seed, 0x9ac),
            bytes: Vec::new(),
        }
    }

    /// The packets of the set that begins with this event: source `n` has number `n`, modulo how many there are.
    pub(super) fn make(&mut self, first_event: u64, memory: &mut Memory) -> Vec<Payload> {
        let kinds = if matches!(self.size, SizeDistribution::Fixed(_)) { 1 } else { KINDS };
        (0..kinds).map(|_| self.packet(first_event, memory)).collect()
    }

    fn packet(&mut self, first_event: u64, memory: &mut Memory) -> Payload {
        let Self { size, most_banks, packing, random, bytes } = self;
        bytes.clear();
        let mut encoder = MepEncoder::new(first_event as u32, 0, bytes);
        for _ in 0..*packing {
            let banks = size.next(random).next_multiple_of(4).clamp(BANK_HEADER_BYTES as u32, *most_banks);
            // Nothing reads the content of a bank.
            let fits = encoder.fragment(|out| out.resize(out.len() + banks as usize, 0));
            fits.expect("banks are as long as their share of a packet at most");
        }
        encoder.finish();
        memory.keep(&self.bytes)
    }
}

/// A link and its buffer.
#[derive(Default, Debug)]
pub(super) struct Port {
    pace: Pace,
    buffer: u64,
    /// When the last bit of each packet leaves, and the packet's bytes.
    queue: VecDeque<(u64, u64)>,
    held: u64,
    free_at: u64,
    pub(super) most_held: u64,
    pub(super) load: Load,
    pub(super) packets: u64,
    pub(super) lost: u64,
}

impl Port {
    /// A link of so many bytes a second behind a buffer of so many bytes.
    pub(super) fn new(bytes_per_second: f64, buffer: u64) -> Self {
        Self { pace: Pace::new(bytes_per_second), buffer, ..Self::default() }
    }

    fn forget_until(&mut self, now: u64) {
        while let Some((_, bytes)) = self.queue.pop_front_if(|(leaves, _)| *leaves <= now) {
            self.held -= bytes;
        }
    }

    /// A packet of so many bytes on the wire comes. When its last bit has left; none where it is lost.
    pub(super) fn take(&mut self, now: u64, bytes: u64) -> Option<u64> {
        self.forget_until(now);
        self.packets += 1;
        if self.held + bytes > self.buffer {
            self.lost += 1;
            return None;
        }
        let time = self.pace.take(bytes);
        self.free_at = self.free_at.max(now) + time;
        self.held += bytes;
        self.most_held = self.most_held.max(self.held);
        self.queue.push_back((self.free_at, bytes));
        self.load.busy += time;
        self.load.bytes += bytes;
        Some(self.free_at)
    }

    /// Whether a packet of so many bytes finds room; when it will, otherwise.
    pub(super) fn room_for(&mut self, now: u64, bytes: u64) -> Result<(), u64> {
        self.forget_until(now);
        if self.held + bytes <= self.buffer {
            return Ok(());
        }
        let mut held = self.held;
        let room = self.queue.iter().find(|(_, one)| {
            held -= one;
            held + bytes <= self.buffer
        });
        Err(room.map_or(now, |(leaves, _)| *leaves))
    }

    /// Counts anew from here.
    pub(super) fn reset(&mut self) {
        (self.load, self.packets, self.lost, self.most_held) = (Load::default(), 0, 0, self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_one_behind_the_other_and_what_finds_no_room_is_lost() {
        // A byte a nanosecond.
        let mut port = Port::new(1e9, 250);
        assert_eq!((port.take(0, 100), port.take(0, 100), port.take(10, 100)), (Some(100), Some(200), None));
        assert_eq!(port.room_for(10, 100), Err(100));
        assert_eq!((port.room_for(100, 100), port.take(100, 100)), (Ok(()), Some(300)));
        assert_eq!(port.take(1000, 100), Some(1100), "no packet is before it");
        assert_eq!((port.packets, port.lost, port.most_held, port.load.busy), (5, 1, 200, 400));
    }
}
