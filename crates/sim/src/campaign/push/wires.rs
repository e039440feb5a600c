//! The sockets and connections of a member of a push system.
//!
//! They are the simulated ones behind a member's own clock. The referee sees what is taken and what is sent.
//! Connections join gateways and nodes, and readers of decisions. Only a peer that takes too little is cut off: no queue holds
//! more than it may, and no connection is aborted whose queue had room.

use super::fault::Spoiling;
use super::referee::Shared;
use crate::campaign::fault::Place;
use crate::campaign::node::NodeClock;
use crate::campaign::outcome::{Broken, Checker};
use ropewalk_engine::gateway::{Connections, Link};
use ropewalk_io::packet::simulated::{SimulatedReceiver, SimulatedSender};
use ropewalk_io::packet::{
    Fill, MemoryInUse, Packet, QueueInUse, ReceiveCounters, Receiver, Refusal, SendCounters, Sender, over_v4,
};
use ropewalk_io::simulated::{Network, Simulated, SimulatedConfig};
use ropewalk_io::{Dispatcher, Endpoint, Event, Peer, SendError};
use ropewalk_memory::{Pool, Slice};
use ropewalk_terms::Instant;
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// The address of each host on the network of connections, by the host's number. Clones are the same directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddrV4>,
    /// What was wrong with the use of a connection.
    broken: Option<Broken>,
}

impl Directory {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, host: u32, address: SocketAddrV4) {
        let addresses = &mut self.known().addresses;
        let unknown = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let length = addresses.len().max(host as usize + 1);
        addresses.resize(length, unknown);
        addresses[host as usize] = address;
    }

    fn address_of(&self, host: u32) -> Option<SocketAddrV4> {
        self.known().addresses.get(host as usize).copied()
    }

    /// All hosts that have or had this address.
    pub(super) fn hosts_of(&self, ip: Ipv4Addr) -> Vec<u32> {
        let known = self.known();
        (0..).zip(&known.addresses).filter(|(_, address)| *address.ip() == ip).map(|(host, _)| host).collect()
    }

    fn keep(&self, result: Result<(), Broken>) {
        let mut known = self.known();
        known.broken = known.broken.take().or(result.err());
    }

    /// What was found of the use of connections until now.
    pub(super) fn verdict(&self) -> Result<(), Broken> {
        self.known().broken.clone().map_or(Ok(()), Err)
    }
}

/// A member's endpoints on the network of connections.
pub(super) struct Lines {
    inner: Simulated,
    clock: NodeClock,
    directory: Directory,
    at: SocketAddrV4,
    /// Bytes that a send queue holds at most, but for one message that is longer.
    bound: usize,
    /// Who had no room for the last message.
    refused: Option<Endpoint>,
}

impl Lines {
    /// Endpoints of a member at this address, whose send queues hold so many bytes.
    pub(super) fn new(
        network: &Network,
        directory: &Directory,
        clock: &NodeClock,
        at: SocketAddrV4,
        send_queue_bytes: usize,
        pool: Pool,
    ) -> Self {
        let config = SimulatedConfig { send_queue_bytes, ..SimulatedConfig::default() };
        let inner = network.dispatcher(config, pool);
        directory.enter(inner.host(), at);
        let (clock, directory) = (clock.clone(), directory.clone());
        Self { inner, clock, directory, at, bound: send_queue_bytes, refused: None }
    }
}

impl Dispatcher for Lines {
    ropewalk_io::pass_on!(
        inner:
        listen, address_of, connect, accept, reject, set_owner, pool, pool_mut, post_block, set_reading, is_dry, peek, peer_has_ended, has_waiting,
        set_send_limits, send_room, queued, set_half_close, finish, close
    );

    fn send(&mut self, endpoint: Endpoint, message: &mut Vec<Slice>) -> Result<(), SendError> {
        let before = self.inner.queued(endpoint);
        let sent = self.inner.send(endpoint, message);
        self.refused = sent.is_err().then_some(endpoint);
        let queued = self.inner.queued(endpoint);
        let may_be = sent.is_err() || before == 0 || queued <= self.bound;
        self.directory.keep(Broken::unless(may_be, Checker::Bounds, || {
            format!("{}: {queued} bytes wait in a send queue that takes {}", self.at, self.bound)
        }));
        sent
    }

    fn abort(&mut self, endpoint: Endpoint) {
        // Every message here can be understood, so a connection is cut off only if it refused one.
        self.directory.keep(Broken::unless(self.refused == Some(endpoint), Checker::Loss, || {
            format!("{}: a peer was cut off although it had room for its messages", self.at)
        }));
        self.inner.abort(endpoint);
    }

    fn poll(&mut self, _now: Instant, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        // The network lives in the world's time, whatever the member believes.
        let work = self.inner.poll(self.clock.world(), events);
        for event in &mut events[before..] {
            // Peers of gateways are known by their addresses.
            if let Event::ConnectionRequest { peer, .. } = event
                && let Peer::Dispatcher(host) = peer
                && let Some(address) = self.directory.address_of(*host)
            {
                *peer = Peer::Address(SocketAddr::V4(address));
            }
        }
        work
    }

    fn prepare_wait(&mut self) -> bool {
        let is_due = self.inner.next_deadline().is_some_and(|due| due <= self.clock.world());
        !is_due && self.inner.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline().map(|world| self.clock.local_from(world))
    }
}

/// A link over connections.
pub(super) struct Line {
    inner: Connections<Lines>,
    place: Place,
    at: SocketAddrV4,
    clock: NodeClock,
    referee: Shared,
}

impl Line {
    pub(super) const fn new(
        inner: Connections<Lines>,
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
