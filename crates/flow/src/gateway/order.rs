//! Decisions leave in the order of events.
//!
//! A set's turn has come when no earlier one is held or in assembly. A set that comes when a later one has begun to leave
//! is too late.

use super::config::Output;
use super::farm::Farm;
use super::set::Stage;
use ropewalk_terms::EventKey;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::gateway::{Stream, StreamEntry};
use std::collections::VecDeque;

/// The sets of a flow in the order of their events.
#[derive(Debug)]
pub(super) struct Order {
    /// First event and slot.
    sets: VecDeque<(EventKey, u16)>,
    /// No earlier set than this one's first event is in assembly.
    open_from: EventKey,
    /// The next event that may leave.
    next: EventKey,
    /// How many events of the first set have left.
    left: u16,
    /// How many have left in all.
    total: u64,
}

impl Order {
    pub(super) fn new(sets: usize) -> Self {
        let (open_from, next) = (EventKey::MIN, EventKey::MIN);
        Self { sets: VecDeque::with_capacity(sets), open_from, next, left: 0, total: 0 }
    }

    /// Assembly's earliest set.
    pub(super) const fn open_from(&mut self, first: EventKey) {
        self.open_from = first;
    }

    /// Whether a later event has left.
    pub(super) fn has_passed(&self, first: EventKey) -> bool {
        first < self.next
    }

    pub(super) fn insert(&mut self, first: EventKey, slot: u16) {
        let is_before = |other: EventKey| other < first || is_planted(Flaw::StreamUnordered);
        let place = self.sets.partition_point(|(other, _)| is_before(*other));
        self.sets.insert(place, (first, slot));
    }

    /// The slot of the set whose turn it is.
    fn first(&self) -> Option<u16> {
        self.sets.front().filter(|(first, _)| *first < self.open_from).map(|(_, slot)| *slot)
    }
}

impl Farm {
    /// The next decisions that leave in the order of events, of one flow.
    pub fn next_stream(&mut self) -> Option<Stream> {
        (0..self.flows.len()).find_map(|flow| self.stream_of(flow))
    }

    fn stream_of(&mut self, flow: usize) -> Option<Stream> {
        if self.flows[flow].config.output != Output::Stream {
            return None;
        }
        let (gateway, incarnation) = (self.gateway, self.incarnation);
        let before = self.flows[flow].order.total;
        let mut stream = Stream { gateway, flow: flow as u8, incarnation, before, ..Stream::default() };
        while !stream.entries.is_full()
            && let Some(entry) = self.next_entry(flow)
        {
            stream.entries.push(entry);
        }
        (!stream.entries.is_empty()).then_some(stream)
    }

    fn next_entry(&mut self, flow: usize) -> Option<StreamEntry> {
        let flow = &mut self.flows[flow];
        let (order, account) = (&mut flow.order, &mut flow.account);
        let slot = order.first()?;
        let held = self.slots[usize::from(slot)].as_mut()?;
        let event = held.set.events.get(usize::from(order.left)).filter(|event| event.stage == Stage::Decided)?;
        let key = held.set.first.plus(u64::from(order.left));
        let entry = StreamEntry { key, accept: event.accept, word: event.word, by_default: event.by_default };
        (order.left, order.total, order.next) = (order.left + 1, order.total + 1, key.next());
        account.streamed += 1;
        held.leaving -= 1;
        if usize::from(order.left) == held.set.events.len() {
            order.left = 0;
            order.sets.pop_front();
            self.release(slot);
        }
        Some(entry)
    }
}
