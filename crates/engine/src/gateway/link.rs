//! Transport between gateways, nodes and readers of decisions: datagrams or connections.
//!
//! On a connection messages follow each other; each gives its length in its head. A message that cannot be sent now is
//! dropped and counted, because no peer is connected or the peer reads too slowly: the machines at both ends expect
//! lost messages, and one slow node must not hold up the others.

use crate::admission::Strangers;
use crate::link::EndpointTable;
use ropewalk_io::endpoint::Peer;
use ropewalk_io::packet::{Fill, Packet, Receiver, Refusal, SendCounters, Sender};
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, SendLimits};
use ropewalk_memory::{ByteQueue, Payload, Slice, Staging};
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::gateway::{FRAME_BYTES, Frame};
use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Carries messages in both directions. As with datagrams, a message arrives whole, but may be late, duplicated or
/// lost. Calls never block.
pub trait Link {
    /// Appends the received messages. Returns their number.
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize;

    /// Queues a message gathered from slices, which are taken out of the vector.
    ///
    /// # Errors
    /// [`Refusal`]; the slices stay where they are.
    fn send(&mut self, to: SocketAddrV4, message: &mut Vec<Slice>) -> Result<(), Refusal>;

    /// Queues a message of at most `most` bytes, which `fill` writes directly into the send buffer.
    ///
    /// # Errors
    /// [`Refusal`].
    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal>;

    /// Sends queued messages, as far as there is room now. Returns the amount of work done.
    fn flush(&mut self, now: Instant) -> usize;

    /// Returns whether a queued message has not been sent yet.
    fn is_queued(&self) -> bool;

    /// Prepares the thread's sleep. Returns false if there is work to do immediately.
    fn prepare_wait(&mut self) -> bool;

    /// Returns a descriptor that becomes readable when there is work to do. `None` for simulated links.
    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Returns when there is work to do even if the descriptor stays silent.
    fn next_deadline(&self) -> Option<Instant>;

    /// Returns the counters of sent messages.
    fn sent(&self) -> SendCounters;
}

/// Datagrams: a receiver and a sender, which may have different addresses.
#[derive(Debug)]
pub struct Datagrams<R, S> {
    /// Receiver of messages.
    pub receiver: R,
    /// Sender of messages.
    pub sender: S,
}

impl<R: Receiver, S: Sender> Link for Datagrams<R, S> {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        self.receiver.receive(now, packets)
    }

    fn send(&mut self, to: SocketAddrV4, message: &mut Vec<Slice>) -> Result<(), Refusal> {
        self.sender.send(to, message)
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        self.sender.send_with(to, most, fill)
    }

    fn flush(&mut self, now: Instant) -> usize {
        self.sender.flush(now)
    }

    fn is_queued(&self) -> bool {
        self.sender.queued() > 0
    }

    fn prepare_wait(&mut self) -> bool {
        self.sender.queued() == 0 && self.receiver.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.receiver.wait_descriptor()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.receiver.next_deadline()
    }

    fn sent(&self) -> SendCounters {
        self.sender.counters()
    }
}

impl<L: Link + ?Sized> Link for Box<L> {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        (**self).receive(now, packets)
    }

    fn send(&mut self, to: SocketAddrV4, message: &mut Vec<Slice>) -> Result<(), Refusal> {
        (**self).send(to, message)
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        (**self).send_with(to, most, fill)
    }

    fn flush(&mut self, now: Instant) -> usize {
        (**self).flush(now)
    }

    fn is_queued(&self) -> bool {
        (**self).is_queued()
    }

    fn prepare_wait(&mut self) -> bool {
        (**self).prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).wait_descriptor()
    }

    fn next_deadline(&self) -> Option<Instant> {
        (**self).next_deadline()
    }

    fn sent(&self) -> SendCounters {
        (**self).sent()
    }
}

/// Queues a packet of these bytes. If there is no room, the queued packets are first passed to the system.
///
/// # Errors
/// [`Refusal`]: the packet was not taken.
pub(super) fn send_bytes<S: Sender>(
    sender: &mut S,
    to: SocketAddrV4,
    bytes: &[u8],
    now: Instant,
) -> Result<(), Refusal> {
    match sender.send_with(to, bytes.len(), &mut copy_of(bytes)) {
        Err(Refusal::Full) if sender.flush(now) > 0 => sender.send_with(to, bytes.len(), &mut copy_of(bytes)),
        queued => queued,
    }
}

/// Sends these bytes over a link.
///
/// # Errors
/// [`Refusal`]: the message was not taken.
pub(super) fn send_over<L: Link>(link: &mut L, to: SocketAddrV4, bytes: &[u8], now: Instant) -> Result<(), Refusal> {
    match link.send_with(to, bytes.len(), &mut copy_of(bytes)) {
        Err(Refusal::Full) if link.flush(now) > 0 => link.send_with(to, bytes.len(), &mut copy_of(bytes)),
        queued => queued,
    }
}

/// Returns a function that writes these bytes into a buffer.
fn copy_of(bytes: &[u8]) -> impl FnMut(&mut [u8]) -> usize {
    |room| {
        room[..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    }
}

/// Returns the bytes of a payload in one piece: in place, or copied to `scratch`.
pub(super) fn contiguous<'a>(payload: &'a Payload, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    if let Some(bytes) = payload.contiguous() {
        return bytes;
    }
    scratch.clear();
    payload.pieces().for_each(|piece| scratch.extend_from_slice(piece));
    scratch
}

/// Pause before a new attempt after a connection failed.
const RETRY: Duration = Duration::from_millis(100);

/// Maximum number of subscriber connections; further ones are refused.
const MOST_LISTENERS: usize = 64;

/// The side that makes connections.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Callers {
    /// This side connects.
    Nobody,
    /// Peers connect and send something at once. Silent connections are few and short-lived.
    Speaking,
    /// Peers connect and only receive.
    Listening,
}

/// One connection.
struct Connection {
    peer: SocketAddrV4,
    is_established: bool,
    bytes: ByteQueue,
    /// When it was opened, until it sends something.
    silent_since: Option<Instant>,
}

/// Connections of a gateway, to which nodes connect, or of a node, which connects to a gateway as soon as it has a
/// message for it.
pub struct Connections<D: Dispatcher> {
    endpoints: D,
    callers: Callers,
    table: EndpointTable<Connection>,
    strangers: Strangers,
    peers: BTreeMap<SocketAddrV4, Endpoint>,
    /// When each peer may be retried.
    retries: BTreeMap<SocketAddrV4, Instant>,
    staging: Staging,
    slices: Vec<Slice>,
    events: Vec<Event>,
    /// Whether something was queued since the endpoints were served.
    has_new: bool,
    cut_off: u64,
    now: Instant,
    sent: SendCounters,
}

impl<D: Dispatcher> Connections<D> {
    /// Accepts connections at this address. Returns the bound address as well. Messages are written to `staging`.
    ///
    /// # Errors
    /// If it cannot listen on the address.
    pub fn listen(
        mut endpoints: D,
        address: &str,
        staging: Staging,
        callers: Callers,
    ) -> Result<(Self, String), EndpointError> {
        let service_point = endpoints.listen(address)?;
        let bound = endpoints.address_of(service_point).unwrap_or_else(|| address.to_owned());
        Ok((Self::new(endpoints, staging, callers), bound))
    }

    /// Creates connections that are opened when something is sent to a peer.
    pub fn connect(endpoints: D, staging: Staging) -> Self {
        Self::new(endpoints, staging, Callers::Nobody)
    }

    fn new(endpoints: D, staging: Staging, callers: Callers) -> Self {
        Self {
            endpoints,
            callers,
            table: EndpointTable::default(),
            strangers: Strangers::default(),
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
        let silent_since = (self.callers == Callers::Speaking).then_some(self.now);
        let connection = Connection { peer, is_established: false, bytes: ByteQueue::new(), silent_since };
        self.table.insert(endpoint, connection);
        // A node that reconnects is no longer heard over its old connection.
        self.peers.insert(peer, endpoint);
    }

    /// Returns whether a new connection is accepted. If necessary, the connection that has been silent for longest is
    /// closed.
    fn may_enter(&mut self) -> bool {
        match self.callers {
            Callers::Nobody => false,
            Callers::Listening => self.table.iter().count() < MOST_LISTENERS,
            Callers::Speaking => {
                let in_the_way = self.strangers.in_the_way(self.now, &self.table, |one| one.silent_since);
                in_the_way.into_iter().for_each(|stranger| self.turn_out(stranger));
                true
            }
        }
    }

    fn turn_out(&mut self, endpoint: Endpoint) {
        self.endpoints.abort(endpoint);
        self.forget(endpoint);
    }

    fn forget(&mut self, endpoint: Endpoint) {
        let Some(connection) = self.table.remove(endpoint) else { return };
        if self.peers.get(&connection.peer) == Some(&endpoint) {
            self.peers.remove(&connection.peer);
        }
        if self.callers == Callers::Nobody {
            self.retries.insert(connection.peer, self.now.after(RETRY));
        }
    }

    fn on_event(&mut self, event: Event, packets: &mut Vec<Packet>) {
        match event {
            Event::ConnectionRequest { endpoint, peer, .. } => match peer {
                Peer::Address(SocketAddr::V4(peer)) if self.may_enter() => {
                    self.endpoints.accept(endpoint);
                    self.enter(endpoint, peer);
                }
                _ => self.endpoints.reject(endpoint),
            },
            Event::Established { endpoint } => {
                if let Some(connection) = self.table.get_mut(endpoint) {
                    connection.is_established = true;
                }
            }
            Event::Received { endpoint, slice } => {
                let Some(connection) = self.table.get_mut(endpoint) else { return };
                connection.bytes.push(slice);
                let before = packets.len();
                let is_good = cut(connection, packets);
                if packets.len() > before {
                    connection.silent_since = None;
                }
                if !is_good {
                    // Bytes after an invalid message cannot be interpreted either.
                    self.turn_out(endpoint);
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

    /// Returns the established connection to a peer. Without one, starts to connect if this is the connecting side.
    fn to(&mut self, peer: SocketAddrV4) -> Option<Endpoint> {
        if let Some(&endpoint) = self.peers.get(&peer) {
            return self.table.get(endpoint).is_some_and(|connection| connection.is_established).then_some(endpoint);
        }
        let may_try = self.callers == Callers::Nobody && self.retries.get(&peer).is_none_or(|at| *at <= self.now);
        if may_try {
            match self.endpoints.connect(&peer.to_string()) {
                Ok(endpoint) => self.enter(endpoint, peer),
                Err(_) => drop(self.retries.insert(peer, self.now.after(RETRY))),
            }
            self.has_new = true;
        }
        None
    }

    /// Sends a message to every connected peer, and closes the connections of peers that read too slowly.
    fn send_to_all(&mut self, message: &[u8]) {
        for place in 0..self.table.places() {
            let established = self.table.at(place).filter(|(_, connection)| connection.is_established);
            let Some((endpoint, _)) = established else { continue };
            self.slices.extend(self.staging.write(message));
            if is_planted(Flaw::ReaderQueueUnbounded) {
                self.endpoints.set_send_limits(endpoint, SendLimits::up_to(usize::MAX));
            }
            let is_queued = !self.slices.is_empty() && self.endpoints.send(endpoint, &mut self.slices).is_ok();
            self.slices.clear();
            if !is_queued && !is_planted(Flaw::ReaderGap) {
                self.turn_out(endpoint);
                self.cut_off += 1;
            }
            self.has_new = true;
        }
    }

    /// Returns the number of connections that were closed because their peers read too slowly.
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

/// Cuts whole messages out of the received bytes. Returns false if the bytes are not a message.
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
        while let Some(stranger) = self.strangers.overdue(now, &self.table, |one| one.silent_since) {
            self.turn_out(stranger);
        }
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
        [self.endpoints.next_deadline(), self.strangers.next_deadline()].into_iter().flatten().min()
    }

    fn sent(&self) -> SendCounters {
        self.sent
    }
}

/// A link to the readers of a flow's decisions, which connect at any time and send nothing.
pub trait DecisionReaders: Link {
    /// Sends the message to every connected reader. A reader whose queue has no room for the message is disconnected: a
    /// stream with a gap would be worse than its end.
    fn tell(&mut self, message: &[u8]);

    /// Returns the number of disconnected readers.
    fn cut_off(&self) -> u64;
}

impl<D: Dispatcher> DecisionReaders for Connections<D> {
    fn tell(&mut self, message: &[u8]) {
        self.send_to_all(message);
    }

    fn cut_off(&self) -> u64 {
        self.cut_off()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MOST_STRANGERS;
    use ropewalk_io::tcp::{Tcp, TcpConfig};
    use ropewalk_memory::{Pool, PoolConfig};
    use ropewalk_wire::gateway::{Credit, Message};
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn listening(callers: Callers) -> (Connections<Tcp>, String) {
        let pool = |blocks| Pool::new(PoolConfig::heap("connections", 16 << 10, blocks)).expect("a small pool");
        let endpoints = Tcp::new(TcpConfig::default(), pool(64)).expect("a poller");
        Connections::listen(endpoints, "127.0.0.1:0", Staging::new(pool(4)), callers).expect("a free port")
    }

    fn known(connections: &Connections<Tcp>) -> usize {
        connections.table.iter().count()
    }

    /// Serves until `is_so` holds.
    fn until(connections: &mut Connections<Tcp>, now: Instant, is_so: impl Fn(&mut Connections<Tcp>, usize) -> bool) {
        let mut packets = Vec::new();
        let begin = std::time::Instant::now();
        loop {
            connections.receive(now, &mut packets);
            if is_so(connections, packets.len()) {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{} connections", known(connections));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_closed(stream: &mut TcpStream) -> bool {
        stream.set_nonblocking(true).expect("a socket");
        let read = stream.read(&mut [0; 1]);
        read.is_ok_and(|bytes| bytes == 0) || stream.write(&[0]).is_err()
    }

    #[test]
    fn silent_connections_take_no_room_from_nodes() {
        let (mut connections, address) = listening(Callers::Speaking);
        let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
        let mut node = TcpStream::connect(&address).expect("it listens");
        let mut message = Vec::new();
        Message::Credit(Credit::default()).encode(&mut message);
        node.write_all(&message).expect("it is read");
        until(&mut connections, at(1), |_, messages| messages == 1);
        let mut strangers: Vec<TcpStream> =
            (0..3 * MOST_STRANGERS).map(|_| TcpStream::connect(&address).expect("it listens")).collect();
        until(&mut connections, at(2), |connections, _| {
            let is_last = |(_, one): (Endpoint, &Connection)| one.silent_since == Some(at(2));
            connections.table.iter().filter(|one| is_last(*one)).count() == MOST_STRANGERS
                && strangers.last().is_some_and(|last| {
                    let own = last.local_addr().expect("it is connected");
                    connections.peers.keys().any(|peer| SocketAddr::V4(*peer) == own)
                })
        });
        assert_eq!(known(&connections), MOST_STRANGERS + 1);
        assert!(is_closed(&mut strangers[0]), "it made room");
        assert!(connections.next_deadline().is_some_and(|due| due <= at(7)));
        until(&mut connections, at(8), |connections, _| known(connections) == 1);
        node.write_all(&message).expect("it is still read");
        until(&mut connections, at(9), |_, messages| messages == 1);
    }

    #[test]
    fn a_listener_may_be_silent_and_is_not_displaced() {
        let (mut connections, address) = listening(Callers::Listening);
        let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
        let mut readers: Vec<TcpStream> =
            (0..MOST_LISTENERS).map(|_| TcpStream::connect(&address).expect("it listens")).collect();
        until(&mut connections, at(1), |connections, _| known(connections) == MOST_LISTENERS);
        let late = TcpStream::connect(&address).expect("it listens");
        late.set_read_timeout(Some(Duration::from_millis(1))).expect("a socket");
        until(&mut connections, at(60), |_, _| is_closed(&mut late.try_clone().expect("a descriptor")));
        assert_eq!(known(&connections), MOST_LISTENERS);
        assert!(!is_closed(&mut readers[0]));
    }
}
