//! A link over connections: messages one behind the other, each as long as its head says.
//!
//! What cannot be sent now, because nobody is connected or a peer takes too little, is dropped and counted: the machines at
//! both ends know that messages get lost, and one slow node must not hold up the others.

use super::link::Link;
use ropewalk_io::endpoint::Peer;
use ropewalk_io::packet::{Fill, Packet, Refusal, SendCounters};
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, SendLimits};
use ropewalk_memory::{ByteQueue, Slice, Staging};
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::gateway::{FRAME_BYTES, Frame};
use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How long after a connection failed the next one is tried.
const RETRY: Duration = Duration::from_millis(100);

/// One connection.
struct Connection {
    endpoint: Endpoint,
    peer: SocketAddrV4,
    is_established: bool,
    bytes: ByteQueue,
}

/// Connections of a gateway, to which nodes connect, or of a node, which connects to gateways as soon as it has something to
/// say to them.
pub struct Connections<D: Dispatcher> {
    endpoints: D,
    /// Whether it connects where it is not connected.
    connects: bool,
    /// By the endpoints' indices.
    table: Vec<Option<Connection>>,
    peers: BTreeMap<SocketAddrV4, Endpoint>,
    /// When a peer may be tried again.
    retries: BTreeMap<SocketAddrV4, Instant>,
    staging: Staging,
    slices: Vec<Slice>,
    events: Vec<Event>,
    /// Something was queued since the endpoints were served.
    has_new: bool,
    cut_off: u64,
    now: Instant,
    sent: SendCounters,
}

impl<D: Dispatcher> Connections<D> {
    /// Takes connections at this address; the address as bound. Messages are written to `staging`.
    ///
    /// # Errors
    /// Where nobody can listen there.
    pub fn listen(mut endpoints: D, address: &str, staging: Staging) -> Result<(Self, String), EndpointError> {
        let service_point = endpoints.listen(address)?;
        let bound = endpoints.address_of(service_point).unwrap_or_else(|| address.to_owned());
        Ok((Self::new(endpoints, staging, false), bound))
    }

    /// Connects to whom something is sent.
    pub fn connect(endpoints: D, staging: Staging) -> Self {
        Self::new(endpoints, staging, true)
    }

    fn new(endpoints: D, staging: Staging, connects: bool) -> Self {
        Self {
            endpoints,
            connects,
            table: Vec::new(),
            peers: BTreeMap::new(),
            retries: BTreeMap::new(),
            staging,
            slices: Vec::with_capacity(8),
            events: Vec::with_capacity(256),
            has_new: false,
            cut_off: 0,
            now: Instant::ZERO,
            sent: SendCounters::default(),
        }
    }

    fn enter(&mut self, endpoint: Endpoint, peer: SocketAddrV4) {
        let index = endpoint.index();
        if index >= self.table.len() {
            self.table.resize_with(index + 1, || None);
        }
        self.table[index] = Some(Connection { endpoint, peer, is_established: false, bytes: ByteQueue::new() });
        // A node that connects anew is no longer heard over its old connection.
        self.peers.insert(peer, endpoint);
    }

    fn connection(&mut self, endpoint: Endpoint) -> Option<&mut Connection> {
        self.table.get_mut(endpoint.index())?.as_mut().filter(|connection| connection.endpoint == endpoint)
    }

    fn forget(&mut self, endpoint: Endpoint) {
        let Some(place) = self.table.get_mut(endpoint.index()) else { return };
        let Some(connection) = place.take_if(|connection| connection.endpoint == endpoint) else { return };
        if self.peers.get(&connection.peer) == Some(&endpoint) {
            self.peers.remove(&connection.peer);
        }
        if self.connects {
            self.retries.insert(connection.peer, self.now.after(RETRY));
        }
    }

    fn on_event(&mut self, event: Event, packets: &mut Vec<Packet>) {
        match event {
            Event::ConnectionRequest { endpoint, peer, .. } => match peer {
                Peer::Address(SocketAddr::V4(peer)) => {
                    self.endpoints.accept(endpoint);
                    self.enter(endpoint, peer);
                }
                _ => self.endpoints.reject(endpoint),
            },
            Event::Established { endpoint } => {
                if let Some(connection) = self.connection(endpoint) {
                    connection.is_established = true;
                }
            }
            Event::Received { endpoint, slice } => {
                let Some(connection) = self.connection(endpoint) else { return };
                connection.bytes.push(slice);
                if !cut(connection, packets) {
                    // What comes behind bytes that are no message cannot be understood either.
                    self.endpoints.abort(endpoint);
                    self.forget(endpoint);
                }
            }
            Event::Disconnected { endpoint }
            | Event::Broken { endpoint, .. }
            | Event::ConnectFailed { endpoint, .. } => {
                self.forget(endpoint);
            }
            Event::Finished { .. }
            | Event::HandedOver { .. }
            | Event::SendQueueHigh { .. }
            | Event::SendQueueLow { .. } => {}
        }
    }

    /// The established connection to a peer; where it can be made and is not, that is begun.
    fn to(&mut self, peer: SocketAddrV4) -> Option<Endpoint> {
        if let Some(&endpoint) = self.peers.get(&peer) {
            return self.connection(endpoint).is_some_and(|connection| connection.is_established).then_some(endpoint);
        }
        let may_try = self.connects && self.retries.get(&peer).is_none_or(|at| *at <= self.now);
        if may_try {
            match self.endpoints.connect(&peer.to_string()) {
                Ok(endpoint) => self.enter(endpoint, peer),
                Err(_) => drop(self.retries.insert(peer, self.now.after(RETRY))),
            }
            self.has_new = true;
        }
        None
    }

    /// Sends a message to everybody who is connected, and ends the connection of whoever takes too little.
    pub(super) fn send_to_all(&mut self, message: &[u8]) {
        for place in 0..self.table.len() {
            let established = self.table[place].as_ref().filter(|connection| connection.is_established);
            let Some(endpoint) = established.map(|connection| connection.endpoint) else { continue };
            self.slices.extend(self.staging.write(message));
            if is_planted(Flaw::ReaderQueueUnbounded) {
                self.endpoints.set_send_limits(endpoint, SendLimits::up_to(usize::MAX));
            }
            let is_queued = !self.slices.is_empty() && self.endpoints.send(endpoint, &mut self.slices).is_ok();
            self.slices.clear();
            if !is_queued && !is_planted(Flaw::ReaderGap) {
                self.endpoints.abort(endpoint);
                self.forget(endpoint);
                self.cut_off += 1;
            }
            self.has_new = true;
        }
    }

    /// Connections that were ended because their peers took too little.
    pub(super) const fn cut_off(&self) -> u64 {
        self.cut_off
    }

    fn send_slices(&mut self, to: SocketAddrV4) {
        let bytes: usize = self.slices.iter().map(|slice| slice.len()).sum();
        let endpoint = self.to(to);
        let is_queued = endpoint.is_some_and(|endpoint| self.endpoints.send(endpoint, &mut self.slices).is_ok());
        self.slices.clear();
        if is_queued {
            self.has_new = true;
            self.sent.packets += 1;
            self.sent.bytes += bytes as u64;
        } else {
            self.sent.failed += 1;
        }
    }
}

/// Cuts whole messages from what has come; false where that is something else.
fn cut(connection: &mut Connection, packets: &mut Vec<Packet>) -> bool {
    while let Some(head) = connection.bytes.peek_array::<FRAME_BYTES>(0) {
        let Ok(frame) = Frame::parse(&head) else { return false };
        let length = FRAME_BYTES + frame.body as usize;
        if connection.bytes.len() < length {
            break;
        }
        packets.push(Packet {
            from: connection.peer.into(),
            to: 0,
            payload: connection.bytes.take(length),
            came: None,
        });
    }
    true
}

impl<D: Dispatcher> Link for Connections<D> {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        self.now = now;
        let before = packets.len();
        self.endpoints.poll(now, &mut self.events);
        self.has_new = false;
        let mut events = std::mem::take(&mut self.events);
        events.drain(..).for_each(|event| self.on_event(event, packets));
        self.events = events;
        packets.len() - before
    }

    fn send(&mut self, to: SocketAddrV4, message: &mut Vec<Slice>) -> Result<(), Refusal> {
        self.slices.append(message);
        self.send_slices(to);
        Ok(())
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        if most > self.staging.largest() {
            return Err(Refusal::TooLarge);
        }
        let slice = self.staging.write_with(most, fill).ok_or(Refusal::Full)?;
        self.sent.bytes_copied += slice.len() as u64;
        self.slices.push(slice);
        self.send_slices(to);
        Ok(())
    }

    fn flush(&mut self, now: Instant) -> usize {
        self.now = now;
        let has_new = std::mem::take(&mut self.has_new);
        if has_new { self.endpoints.poll(now, &mut self.events) } else { 0 }
    }

    fn is_queued(&self) -> bool {
        self.peers.values().any(|&endpoint| self.endpoints.queued(endpoint) > 0)
    }

    fn prepare_wait(&mut self) -> bool {
        self.events.is_empty() && self.endpoints.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoints.wait_descriptor()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.endpoints.next_deadline()
    }

    fn sent(&self) -> SendCounters {
        self.sent
    }
}
