//! A set of events: the packets of all sources for N consecutive events. Made before the run and used again and again.

use super::config::FlowConfig;
use super::gather::FragmentPlace;
use crate::moves::{append, overwrite};
use core::time::Duration;
use ropewalk_memory::{Payload, Returns, Staging};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Attempt, Cause, EventKey, Instant};
use ropewalk_wire::mep::{FragmentHeader, MEP_HEADER_BYTES};

/// How a set ended.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// Every source is there that takes part.
    Complete,
    /// Something is missing; its events go to nodes nevertheless.
    Incomplete,
    /// Its events do not exist for anybody, for this cause. It has no packets any more.
    Dropped(Cause),
}

/// How far an event is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It waits for a node.
    Waiting,
    /// A node has it, under this sequence number.
    Sent { node: u16, sequence: u64 },
    /// It is decided.
    Decided,
}

/// What is known of an event.
#[derive(Copy, Clone, Debug)]
pub(super) struct EventState {
    pub(super) stage: Stage,
    pub(super) attempt: Attempt,
    pub(super) accept: bool,
    pub(super) by_default: bool,
    pub(super) word: u32,
}

impl EventState {
    pub(super) const NEW: Self =
        Self { stage: Stage::Waiting, attempt: Attempt(0), accept: false, by_default: false, word: 0 };
}

/// The packets of all sources for N consecutive events.
///
/// Goes from assembly to the farm and comes back empty. Some 130 bytes move; the tables behind them stay where they are.
#[derive(Debug)]
pub struct EventSet {
    pub(super) flow: u8,
    pub(super) first: EventKey,
    pub(super) opened: Instant,
    /// Until then it waits for its packets.
    pub(super) waits_until: Instant,
    pub(super) ending: Ending,
    /// No set before this event is in assembly any more.
    pub(super) open_from: EventKey,
    /// By source; empty where there is none.
    pub(super) packets: Box<[Payload]>,
    /// Why there is none, as far as something was seen.
    pub(super) absent: Box<[Option<Cause>]>,
    pub(super) received: u16,
    /// Sources that take part in it.
    pub(super) wanted: u16,
    /// So many of them lay where they had been moved to when it was looked last.
    moved: u16,
    /// By event: for the farm.
    pub(super) events: Box<[EventState]>,
    /// The event that `places` points to, by source.
    cursor: u16,
    places: Box<[u16]>,
}

impl EventSet {
    /// An empty set of this flow.
    pub(super) fn new(flow: u8, config: &FlowConfig) -> Self {
        let sources = config.sources.len();
        Self {
            flow,
            first: EventKey::MIN,
            opened: Instant::ZERO,
            waits_until: Instant::ZERO,
            ending: Ending::Complete,
            open_from: EventKey::MIN,
            packets: core::iter::repeat_with(Payload::default).take(sources).collect(),
            absent: vec![None; sources].into_boxed_slice(),
            received: 0,
            wanted: sources as u16,
            moved: 0,
            events: vec![EventState::NEW; usize::from(config.packing)].into_boxed_slice(),
            cursor: 0,
            places: vec![MEP_HEADER_BYTES as u16; sources].into_boxed_slice(),
        }
    }

    /// Which flow, by its place in the configuration.
    pub const fn flow(&self) -> u8 {
        self.flow
    }

    /// Its first event.
    pub const fn first(&self) -> EventKey {
        self.first
    }

    /// Its events, in their order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = EventKey> + use<> {
        let first = self.first;
        (0..self.events.len() as u32).map(move |index| first.plus(u64::from(index)))
    }

    /// When its first packet came.
    pub const fn opened(&self) -> Instant {
        self.opened
    }

    /// How it ended.
    pub const fn ending(&self) -> Ending {
        self.ending
    }

    /// The sources that are missing, by their place in the configuration, and why. One that takes no part is not.
    pub fn missing(&self) -> impl Iterator<Item = (u16, Cause)> + Clone + '_ {
        let first = u16::from(is_planted(Flaw::MissingNeighbour));
        (first..).zip(&self.absent).filter_map(|(source, cause)| Some((source, (*cause)?)))
    }

    /// Whether every source is there that takes part.
    pub(super) const fn is_whole(&self) -> bool {
        self.received == self.wanted
    }

    /// Begins with a first event, of so many sources, for which it waits so long; the set is empty.
    pub(super) fn begin(&mut self, first: EventKey, wanted: u16, now: Instant, timeout: Duration) {
        (self.first, self.wanted) = (first, wanted);
        (self.opened, self.waits_until) = (now, now.after(timeout));
    }

    /// Whether a source takes no part in it.
    #[inline]
    pub(super) const fn is_partial(&self) -> bool {
        (self.wanted as usize) < self.packets.len()
    }

    /// Puts a packet in its place, which must be vacant.
    #[inline]
    pub(super) fn place(&mut self, source: u16, packet: Payload) {
        overwrite(&mut self.packets[usize::from(source)], packet);
        self.absent[usize::from(source)] = None;
        self.received += 1;
    }

    /// Nothing more comes; who is missing without a known cause is so for this one, unless he takes no part.
    pub(super) fn end(&mut self, cause: Cause, takes_part: impl Fn(u16) -> bool) {
        self.ending = if self.is_whole() { Ending::Complete } else { Ending::Incomplete };
        for ((source, packet), absent) in (0..).zip(&self.packets).zip(&mut self.absent) {
            if packet.is_empty() && takes_part(source) {
                *absent = absent.or(Some(cause));
            }
        }
    }

    /// Copies packets that lie elsewhere to `room`, as far as there is any, and lets go of where they lay. How many that were.
    pub(super) fn evacuate(&mut self, room: &mut Staging) -> u64 {
        let mut count = 0;
        for source in (0..self.packets.len()).take_while(|_| self.moved < self.received) {
            if self.packets[source].is_empty() || self.packets[source].lies_in(room.pool()) {
                continue;
            }
            let Some(copy) = self.packets[source].evacuate(room) else { return count };
            self.packets[source] = copy;
            self.packets.swap(source, source.saturating_sub(is_planted(Flaw::MovedToNeighbour).into()));
            count += 1;
        }
        self.moved = self.received;
        count
    }

    /// Lets the packets go.
    pub(super) fn let_go(&mut self) {
        let mut returns = Returns::default();
        self.packets.iter_mut().for_each(|packet| returns.take(packet));
    }

    /// Empty again.
    pub(super) fn clear(&mut self) {
        self.let_go();
        if self.ending != Ending::Complete {
            self.absent.fill(None);
        }
        self.ending = Ending::Complete;
        (self.received, self.moved) = (0, 0);
        self.events.fill(EventState::NEW);
        self.rewind();
    }

    fn rewind(&mut self) {
        self.cursor = 0;
        self.places.fill(MEP_HEADER_BYTES as u16);
    }

    /// Finds the fragments of an event, in the order of sources; those without bytes are left out. Returns their bytes.
    ///
    /// Events are mostly asked for one after the other: then each packet is walked through once.
    pub(super) fn gather(&mut self, event: u16, fragments: &mut Vec<FragmentPlace>) -> u32 {
        if event < self.cursor {
            self.rewind();
        }
        while self.cursor < event {
            self.step(|_, _, _| {});
        }
        fragments.clear();
        fragments.reserve(self.packets.len());
        let mut total = 0;
        self.step(|source, start, length| {
            if length > 0 {
                append(fragments, FragmentPlace { source, start, length });
                total += u32::from(length);
            }
        });
        total
    }

    /// Goes to the next event; `visit` sees the bytes that each packet has for this one.
    #[inline]
    fn step(&mut self, mut visit: impl FnMut(u16, u16, u16)) {
        for ((source, packet), place) in (0..).zip(&self.packets).zip(&mut self.places) {
            let Some(bytes) = packet.read_array(usize::from(*place)) else { continue };
            let FragmentHeader { length, .. } = FragmentHeader::from_bytes(bytes);
            let start = *place + size_of_val(&bytes) as u16;
            visit(source, start, length);
            // Never beyond the packet's end: that was checked when it was placed.
            *place = start + length;
        }
        self.cursor += 1;
    }
}
