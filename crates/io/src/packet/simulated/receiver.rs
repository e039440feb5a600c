//! Receiving from a simulated network, into memory of one's own as from a real one.
#![allow(unsafe_code)]

use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;

use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant};

use super::{PacketNetwork, Place};
use crate::packet::{MemoryInUse, Packet, PacketMemory, QueueInUse, ReceiveConfig, ReceiveCounters, Receiver};

/// Receives a flow of a [`PacketNetwork`].
pub struct SimulatedReceiver {
    network: PacketNetwork,
    config: ReceiveConfig,
    place: Place,
    memory: PacketMemory,
    counters: ReceiveCounters,
}

impl SimulatedReceiver {
    pub(super) fn new(
        network: PacketNetwork,
        config: ReceiveConfig,
        address: SocketAddrV4,
        memory: PacketMemory,
    ) -> Self {
        let place = (config.flow, address);
        Self { network, config, place, memory, counters: ReceiveCounters::default() }
    }
}

/// Copies a packet into memory; none where there is no room.
fn store(memory: &mut PacketMemory, bytes: &[u8]) -> Option<Payload> {
    if bytes.is_empty() {
        return Some(Payload::default());
    }
    let (start, _) = memory.room(bytes.len())?;
    // SAFETY: the room has at least so many bytes, and nobody else refers to them; then they are written.
    let slice = unsafe {
        start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        memory.take(bytes.len(), 0)
    };
    slice.map(Payload::from)
}

impl Receiver for SimulatedReceiver {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        let before = packets.len();
        let mut network = self.network.lock();
        let Some(inbox) = network.inbox(self.place, Some(now)) else { return 0 };
        while packets.len() - before < self.config.batch
            && let Some(first) = inbox.first()
        {
            if first.payload.len() > self.config.largest {
                self.counters.lost.add(Cause::Truncated, 1);
                inbox.pop();
                continue;
            }
            let Some(payload) = store(&mut self.memory, &first.payload) else {
                self.counters.dry += 1;
                break;
            };
            self.counters.packets += 1;
            self.counters.bytes += payload.len() as u64;
            packets.push(Packet { from: first.from.into(), to: 0, payload, came: None });
            inbox.pop();
        }
        self.counters.calls += 1;
        packets.len() - before
    }

    fn address(&self) -> SocketAddr {
        self.place.1.into()
    }

    fn prepare_wait(&mut self) -> bool {
        self.next_deadline() != Some(Instant::ZERO)
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.network.lock().inbox(self.place, None)?.next()
    }

    fn counters(&mut self) -> ReceiveCounters {
        if let Some(inbox) = self.network.lock().inbox(self.place, None) {
            self.counters.lost.set(Cause::SocketQueueFull, inbox.overflown);
        }
        self.counters
    }

    fn memory_in_use(&mut self) -> MemoryInUse {
        self.memory.in_use()
    }

    /// A packet counts as 1, however long it is.
    fn queue_in_use(&mut self) -> QueueInUse {
        let mut network = self.network.lock();
        let room = network.queue() as u64;
        let used = network.inbox(self.place, None).map_or(0, |inbox| inbox.waiting() as u64);
        QueueInUse { used, room, packet: 1 }
    }
}

impl Drop for SimulatedReceiver {
    fn drop(&mut self) {
        self.network.lock().leave(self.place);
    }
}
