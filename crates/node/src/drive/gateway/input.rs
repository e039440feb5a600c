//! Packets on their way from a receiver into the machine.

use ropewalk_flow::gateway::{self, Address};
use ropewalk_io::packet::{Packet, Receiver, over_v4};
use ropewalk_memory::Staging;
use ropewalk_terms::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// The packets of one receiver, mostly those of one flow. Those for which there is no set yet wait here, and all behind them
/// where they are: in the kernel, whose buffer is larger than a gateway's table needs to be.
pub(super) struct Input<R> {
    pub(super) receiver: R,
    /// The flow of each of the receiver's addresses.
    pub(super) flows: Vec<u8>,
    /// Packets that the receiver hands on at most.
    batch: usize,
    packets: Vec<Packet>,
    waiting: VecDeque<Packet>,
    /// Packets that were copied because too much of their memory was held.
    pub(super) evacuated: u64,
}

impl<R: Receiver> Input<R> {
    pub(super) fn new(receiver: R, flows: Vec<u8>, batch: usize) -> Self {
        let (packets, waiting) = (Vec::with_capacity(2 * batch), VecDeque::with_capacity(2 * batch));
        Self { receiver, flows, batch, packets, waiting, evacuated: 0 }
    }

    /// Whether packets wait for a set.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Offers packets to the machine, a batch at most. Where there is an `evacuation` too much is held of where they come in:
    /// packets of the set that has waited longest are copied to it, and where no set waits those that come now, as long as it
    /// has room. Returns how many were taken from the receiver.
    pub(super) fn receive(
        &mut self,
        machine: &mut gateway::Receiver,
        evacuation: Option<&mut Staging>,
        now: Instant,
    ) -> usize {
        // What waits longest goes first: a ring stops in front of it.
        let left = evacuation.and_then(|room| {
            let moved: u64 = self.flows.iter().map(|&flow| machine.evacuate(flow, room)).sum();
            self.evacuated += moved;
            (moved == 0).then_some(room)
        });
        if !self.offer_waiting(machine, now) {
            return 0;
        }
        let received = self.receiver.receive(now, &mut self.packets);
        if let Some(evacuation) = left {
            self.evacuate(evacuation);
        }
        let mut packets = self.packets.drain(..);
        while let Some(Packet { from, to, payload, came }) = packets.next() {
            let flow = self.flows.get(usize::from(to)).copied().unwrap_or(u8::MAX);
            if let Some(payload) = machine.on_packet(flow, address(from), payload, now) {
                self.waiting.push_back(Packet { from, to, payload, came });
                self.waiting.extend(packets);
                // Packets of the other flows that share the input wait behind it.
                self.flows.iter().for_each(|&flow| machine.on_blocked(flow));
                return received;
            }
        }
        if received < self.batch {
            self.flows.iter().for_each(|&flow| machine.on_drained(flow, now));
        }
        received
    }

    /// Offers what waits; false where there is still no set for it.
    pub(super) fn offer_waiting(&mut self, machine: &mut gateway::Receiver, now: Instant) -> bool {
        while let Some(Packet { from, to, payload, came }) = self.waiting.pop_front() {
            let flow = self.flows.get(usize::from(to)).copied().unwrap_or(u8::MAX);
            if let Some(payload) = machine.on_packet(flow, address(from), payload, now) {
                self.waiting.push_front(Packet { from, to, payload, came });
                return false;
            }
        }
        true
    }

    /// Copies packets, so that where they came in is free again.
    fn evacuate(&mut self, staging: &mut Staging) {
        for packet in &mut self.packets {
            let Some(copy) = packet.payload.evacuate(staging) else { return };
            packet.payload = copy;
            self.evacuated += 1;
        }
    }
}

/// Sources have IPv4 addresses; another one is of no source.
fn address(from: SocketAddr) -> Address {
    let from = over_v4(from);
    Address { ip: *from.ip(), port: from.port() }
}
