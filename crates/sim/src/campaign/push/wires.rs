//! The sockets and connections of a member of a push system.
//!
//! They are the simulated ones behind a member's own clock. The referee sees what is taken and what is sent.
//! Connections join gateways and nodes, and readers of decisions.

use super::fault::Spoiling;
use super::referee::Shared;
use crate::campaign::endpoints::Endpoints;
use crate::campaign::fault::Place;
use crate::campaign::node::NodeClock;
use ropewalk_engine::gateway::{Connections, Link};
use ropewalk_io::packet::simulated::{SimulatedReceiver, SimulatedSender};
use ropewalk_io::packet::{
    Fill, MemoryInUse, Packet, QueueInUse, ReceiveCounters, Receiver, Refusal, SendCounters, Sender, over_v4,
};
use ropewalk_memory::Slice;
use ropewalk_terms::Instant;
use std::cell::Cell;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// A receiver with a member's clock.
pub(super) struct Inlet {
    inner: SimulatedReceiver,
    place: Place,
    clock: NodeClock,
    referee: Shared,
}

impl Inlet {
    pub(super) const fn new(inner: SimulatedReceiver, place: Place, clock: NodeClock, referee: Shared) -> Self {
        Self { inner, place, clock, referee }
    }
}

impl Receiver for Inlet {
    fn receive(&mut self, _now: Instant, packets: &mut Vec<Packet>) -> usize {
        let before = packets.len();
        let count = self.inner.receive(self.clock.world(), packets);
        let (mut referee, at) = (self.referee.borrow_mut(), self.inner.address_v4());
        for Packet { from, payload, .. } in &packets[before..] {
            referee.taken(self.place, at, over_v4(*from), payload.to_vec(), self.clock.now());
        }
        referee.looked(self.place, at, count);
        count
    }

    fn address(&self) -> SocketAddr {
        self.inner.address()
    }

    fn prepare_wait(&mut self) -> bool {
        // What is due by the world's clock can be taken.
        self.inner.next_deadline().is_none_or(|due| due > self.clock.world())
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline().map(|world| self.clock.local_from(world))
    }

    fn counters(&mut self) -> ReceiveCounters {
        self.inner.counters()
    }

    fn memory_in_use(&mut self) -> MemoryInUse {
        self.inner.memory_in_use()
    }

    fn queue_in_use(&mut self) -> QueueInUse {
        self.inner.queue_in_use()
    }
}

/// What a source does to its next packets: so many of them are spoilt.
pub(super) type Tampering = Rc<Cell<Option<Spoiling>>>;

/// A sender with a member's clock.
pub(super) struct Outlet {
    inner: SimulatedSender,
    place: Place,
    clock: NodeClock,
    referee: Shared,
    tampering: Tampering,
}

impl Outlet {
    pub(super) fn new(inner: SimulatedSender, place: Place, clock: NodeClock, referee: Shared) -> Self {
        Self { inner, place, clock, referee, tampering: Rc::default() }
    }

    /// What is done to its packets.
    pub(super) fn tampering(&self) -> Tampering {
        Rc::clone(&self.tampering)
    }

    fn note(&self, to: SocketAddrV4, bytes: &[u8]) {
        let mut referee = self.referee.borrow_mut();
        referee.sent(self.place, self.inner.address(), to, bytes, self.clock.now());
    }
}

impl Sender for Outlet {
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

    fn queued(&self) -> usize {
        self.inner.queued()
    }

    fn largest(&self) -> usize {
        self.inner.largest()
    }

    fn address(&self) -> SocketAddrV4 {
        self.inner.address()
    }

    fn counters(&self) -> SendCounters {
        self.inner.counters()
    }
}

/// A link over connections.
pub(super) struct Line {
    inner: Connections<Endpoints>,
    place: Place,
    at: SocketAddrV4,
    clock: NodeClock,
    referee: Shared,
}

impl Line {
    pub(super) const fn new(
        inner: Connections<Endpoints>,
        place: Place,
        at: SocketAddrV4,
        clock: NodeClock,
        referee: Shared,
    ) -> Self {
        Self { inner, place, at, clock, referee }
    }

    fn note(&self, to: SocketAddrV4, bytes: &[u8]) {
        self.referee.borrow_mut().sent(self.place, self.at, to, bytes, self.clock.now());
    }
}

impl Link for Line {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        let before = packets.len();
        let count = self.inner.receive(now, packets);
        let mut referee = self.referee.borrow_mut();
        for Packet { from, payload, .. } in &packets[before..] {
            referee.taken(self.place, self.at, over_v4(*from), payload.to_vec(), self.clock.now());
        }
        referee.looked(self.place, self.at, count);
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

    fn is_queued(&self) -> bool {
        self.inner.is_queued()
    }

    fn prepare_wait(&mut self) -> bool {
        self.inner.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }

    fn sent(&self) -> SendCounters {
        self.inner.sent()
    }
}
