//! The trigger of a flow and its sources: which gateway gets which set, and when each source's packet is in the switch.

use super::super::network::{Load, Pace};
use super::packets::{Memory, PacketMaker};
use super::system::{FlowSection, PushSystem};
use ropewalk_flow::gateway::{Naming, Trigger, TriggerConfig};
use ropewalk_flow::source::TriggerSequence;
use ropewalk_memory::Payload;
use ropewalk_terms::Instant;
use ropewalk_wire::gateway::Throttle;
use std::collections::VecDeque;
use std::time::Duration;

/// A gateway that says nothing for so long is taken for busy.
const SILENCE: Duration = Duration::from_millis(500);
/// Sets whose time of trigger is known, a power of two.
const REMEMBERED: usize = 1 << 16;

/// A set whose packets are on their way.
#[derive(Debug)]
struct Flight {
    queue: u16,
    packets: Vec<Payload>,
    left: u16,
}

/// Trigger and sources of one flow.
#[derive(Debug)]
pub(super) struct FlowSources {
    trigger: Trigger,
    sequence: TriggerSequence,
    packing: u16,
    sources: u16,
    maker: PacketMaker,
    pace: Pace,
    /// When each source's link is free.
    free_at: Vec<u64>,
    /// Those of sets that are on their way, in the order of their numbers.
    flights: VecDeque<Flight>,
    first_flight: u64,
    times: Box<[u64]>,
    /// Sets that were triggered; events that were, and those that found no gateway.
    pub(super) sets: u64,
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
