//! The sockets and connections of a member of a push system.
//!
//! They are the simulated ones behind a member's own clock. The referee sees what is taken and what is sent.
//! Connections join gateways and nodes, and readers of decisions.

use super::fault::Spoiling;
use super::referee::Shared;
use crate::campaign::endpoints::Endpoints;
use crate::campaign::fault::Place;
use crate::campaign::node::{NodeClock, forward};
use ropewalk_engine::gateway::{Connections, Link};
use ropewalk_io::packet::simulated::{SimulatedReceiver, SimulatedSender};
use ropewalk_io::packet::{
    Fill, MemoryInUse, Packet, QueueInUse, ReceiveCounters, Receiver, Refusal, SendCounters, Sender,
};
use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use std::cell::Cell;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// A receiver with a member's clock.
pub(super) struct PacketReceiver {
    pub(super) inner: SimulatedReceiver,
    pub(super) place: Place,
    pub(super) clock: NodeClock,
    pub(super) referee: Shared,
}

impl Receiver for PacketReceiver {
    fn receive(&mut self, _now: Instant, packets: &mut Vec<Packet>) -> usize {
        let before = packets.len();
        let count = self.inner.receive(self.clock.world(), packets);
        let mut referee = self.referee.borrow_mut();
        referee.looked(self.place, self.inner.address_v4(), &packets[before..], self.clock.now());
        count
    }

    forward!(inner: address -> SocketAddr, wait_descriptor -> Option<BorrowedFd<'_>>);

    fn prepare_wait(&mut self) -> bool {
        // What is due by the world's clock can be taken.
        self.inner.next_deadline().is_none_or(|due| due > self.clock.world())
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline().map(|world| self.clock.local_from(world))
    }

    forward!(mut inner: counters -> ReceiveCounters, memory_in_use -> MemoryInUse, queue_in_use -> QueueInUse);
}

/// What a source does to its next packets: so many of them are spoilt.
pub(super) type Tampering = Rc<Cell<Option<Spoiling>>>;

/// A sender with a member's clock.
pub(super) struct PacketSender {
    pub(super) inner: SimulatedSender,
    pub(super) place: Place,
    pub(super) clock: NodeClock,
    pub(super) referee: Shared,
    /// What is done to its packets.
    pub(super) tampering: Tampering,
}

impl PacketSender {
    fn note(&self, to: SocketAddrV4, bytes: &[u8]) {
        let mut referee = self.referee.borrow_mut();
        referee.sent(self.place, self.inner.address(), to, bytes, self.clock.now());
    }
}

impl Sender for PacketSender {
    fn send(&mut self, to: SocketAddrV4, payload: &mut Vec<Slice>) -> Result<(), Refusal> {
        let bytes: Vec<u8> = payload.iter().flat_map(|slice| slice.to_vec()).collect();
        self.inner.send(to, payload)?;
        self.note(to, &bytes);
        Ok(())
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        let (mut bytes, mut tampering) = (Vec::new(), self.tampering.get());
        let mut tee = |room: &mut [u8]| {
            let mut length = fill(room);
            if let Some(spoiling) = tampering {
                length = spoiling.spoil(room, length);
            }
            bytes.extend_from_slice(&room[..length]);
            length
        };
        self.inner.send_with(to, most, &mut tee)?;
        tampering = tampering.filter(|one| one.count > 1).map(|one| Spoiling { count: one.count - 1, ..one });
        self.tampering.set(tampering);
        self.note(to, &bytes);
        Ok(())
    }

    fn flush(&mut self, _now: Instant) -> usize {
        self.inner.flush(self.clock.world())
    }

    forward!(inner: queued -> usize, largest -> usize, address -> SocketAddrV4, counters -> SendCounters);
}

/// A link over connections.
pub(super) struct Line {
    pub(super) inner: Connections<Endpoints>,
    pub(super) place: Place,
    pub(super) at: SocketAddrV4,
    pub(super) clock: NodeClock,
    pub(super) referee: Shared,
}

impl Line {
    fn note(&self, to: SocketAddrV4, bytes: &[u8]) {
        self.referee.borrow_mut().sent(self.place, self.at, to, bytes, self.clock.now());
    }
}

impl Link for Line {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        let before = packets.len();
        let count = self.inner.receive(now, packets);
        self.referee.borrow_mut().looked(self.place, self.at, &packets[before..], self.clock.now());
        count
    }

    fn send(&mut self, to: SocketAddrV4, message: &mut Vec<Slice>) -> Result<(), Refusal> {
        let bytes: Vec<u8> = message.iter().flat_map(|slice| slice.to_vec()).collect();
        self.inner.send(to, message)?;
        self.note(to, &bytes);
        Ok(())
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        let mut bytes = Vec::new();
        let mut tee = |room: &mut [u8]| {
            let length = fill(room);
            bytes.extend_from_slice(&room[..length]);
            length
        };
        self.inner.send_with(to, most, &mut tee)?;
        self.note(to, &bytes);
        Ok(())
    }

    fn flush(&mut self, now: Instant) -> usize {
        self.inner.flush(now)
    }

    forward!(inner: is_queued -> bool, next_deadline -> Option<Instant>, sent -> SendCounters);
    forward!(inner: wait_descriptor -> Option<BorrowedFd<'_>>);
    forward!(mut inner: prepare_wait -> bool);
}
