//! Endpoints inside one process: slices and parcels are passed unchanged, through bounded rings, between dispatchers of
//! one thread or of several.
//!
//! ```text
//!  send ─► send queue (bounded in bytes) ─poll─► ring (bounded in items) ─poll─► Received, HandedOver
//! ```
//!
//! Bytes count as queued until the peer took them, so that back-pressure reaches the sender in bytes. Every poll checks
//! the rings of all endpoints (a load of a cached line each): meant for up to a few hundred endpoints. The names of one
//! process, [`InProcessNetwork`], are locked only to listen, to connect and to take requests.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropewalk_memory::{Loan, Owner, Pool, Slice};
use ropewalk_terms::Instant;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::doorbell::{Doorbell, Sleeper};
use crate::endpoint::{
    BrokenCause, ConnectCause, Dispatcher, Endpoint, EndpointError, Event, Parcel, Peer, SendError, SendLimits,
    ServicePoint,
};
use crate::endpoint_state::{Ends, SendQueue, Slots};

/// Sizes of an in-process dispatcher.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct InProcessConfig {
    /// Bytes in flight from one endpoint.
    pub send_queue_bytes: usize,
    /// Slices in flight in one direction; the send queue holds back the rest.
    pub ring_slices: usize,
    /// Slices taken from one endpoint in one poll.
    pub receive_batch_slices: usize,
}

impl Default for InProcessConfig {
    fn default() -> Self {
        Self { send_queue_bytes: 16 << 20, ring_slices: 1024, receive_batch_slices: 512 }
    }
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum State {
    Connecting,
    Requested,
    Open,
    /// Flushing and waiting for the peer's end.
    Closing,
}

struct Connection {
    half: Half,
    state: State,
    reading: bool,
    ends: Ends,
    queue: SendQueue<Item>,
    /// Number of bytes that the peer took, as far as the queue knows.
    settled: u64,
}

/// A dispatcher of an [`InProcessNetwork`].
pub struct InProcess {
    network: InProcessNetwork,
    config: InProcessConfig,
    inbox: Arc<Inbox>,
    names: Vec<String>,
    connections: Slots<Connection>,
    /// Events caused by calls between two polls.
    pending: Vec<Event>,
    armed: bool,
}

impl Connection {
    /// Settles the bytes that the peer consumed; returns whether anything changed.
    fn settle(&mut self) -> bool {
        let consumed = self.half.consumed_by_peer();
        let fresh = consumed - self.settled;
        self.settled = consumed;
        self.queue.settle(fresh as usize);
        fresh > 0
    }

    /// Moves as much as fits from the send queue to the ring, and ends the direction when it is time.
    fn flush(&mut self) -> usize {
        let count = self.half.room().min(self.queue.len());
        if count > 0 {
            let queue = &mut self.queue;
            self.half.push(count, core::iter::from_fn(|| queue.pop()));
            self.half.notify_peer();
        }
        if self.must_end() {
            self.half.end();
            return count + 1;
        }
        if self.ends.must_shut(self.queue.is_empty()) {
            self.ends.shut();
            self.half.finish();
            return count + 1;
        }
        count
    }

    fn must_end(&self) -> bool {
        self.state == State::Closing && self.queue.is_empty() && !self.half.is_closed()
    }

    fn may_send(&self) -> bool {
        self.state == State::Open && self.ends.may_send()
    }

    fn is_stuck(&self) -> bool {
        !self.queue.is_empty() || self.queue.is_awaited()
    }

    /// Whether a poll would find something to do.
    fn has_work(&self) -> bool {
        match self.state {
            State::Requested => false,
            State::Connecting => self.half.answer() != Answer::None || self.half.peer_end() != End::Open,
            State::Open | State::Closing => {
                let ended = match self.half.peer_end() {
                    End::Open => false,
                    End::Closed | End::Finished => self.half.is_drained() && self.ends.may_receive(),
                    End::Gone => true,
                };
                let readable = (self.reading || self.state == State::Closing) && !self.half.is_drained();
                let sendable = !self.queue.is_empty() && self.half.room() > 0;
                let consumed = self.half.consumed_by_peer() != self.settled;
                let relieved = (self.queue.is_awaited() && consumed) || self.queue.has_news();
                let shuts = self.must_end() || self.ends.must_shut(self.queue.is_empty());
                ended || readable || sendable || relieved || shuts
            }
        }
    }
}

impl InProcess {
    fn new(network: InProcessNetwork, config: InProcessConfig, inbox: Arc<Inbox>) -> Self {
        Self { network, config, inbox, names: Vec::new(), connections: Slots::new(), pending: Vec::new(), armed: false }
    }

    fn add(&mut self, half: Half, state: State) -> Endpoint {
        let queue = SendQueue::with_room(self.config.send_queue_bytes, 8 * self.config.ring_slices);
        self.connections.insert(Connection { half, state, reading: true, ends: Ends::new(), queue, settled: 0 })
    }

    fn take_requests(&mut self, events: &mut Vec<Event>) {
        let inbox = Arc::clone(&self.inbox);
        inbox.take(|Request { service_point, half }| {
            let peer = Peer::Dispatcher(half.peer());
            let endpoint = self.add(half, State::Requested);
            events.push(Event::ConnectionRequest { service_point, endpoint, peer });
        });
    }

    fn serve(&mut self, endpoint: Endpoint, events: &mut Vec<Event>) -> usize {
        let batch = self.config.receive_batch_slices;
        let Some(connection) = self.connections.get_mut(endpoint) else { return 0 };
        match connection.state {
            State::Requested => 0,
            State::Connecting => self.serve_connecting(endpoint, events),
            State::Open | State::Closing => {
                let (work, last) = connection.serve_open(endpoint, batch, events);
                let Some(last) = last else { return work };
                self.connections.remove(endpoint);
                events.push(last);
                work + 1
            }
        }
    }

    fn serve_connecting(&mut self, endpoint: Endpoint, events: &mut Vec<Event>) -> usize {
        let Some(connection) = self.connections.get_mut(endpoint) else { return 0 };
        // The end first: an earlier answer is then certainly visible.
        let end = connection.half.peer_end();
        let cause = match (connection.half.answer(), end) {
            (Answer::Accepted, _) => {
                connection.state = State::Open;
                events.push(Event::Established { endpoint });
                return 1;
            }
            (Answer::None, End::Open) => return 0,
            (Answer::Rejected, _) => ConnectCause::Rejected,
            (Answer::None, _) => ConnectCause::Refused,
        };
        self.connections.remove(endpoint);
        events.push(Event::ConnectFailed { endpoint, cause });
        1
    }
}

impl Connection {
    /// Receives, sends and detects the end; returns the work done and the last event, if this was the end.
    fn serve_open(&mut self, endpoint: Endpoint, batch: usize, events: &mut Vec<Event>) -> (usize, Option<Event>) {
        let end = self.half.peer_end();
        if end == End::Gone {
            return (0, Some(Event::Broken { endpoint, cause: BrokenCause::Reset }));
        }
        let mut work = 0;
        if self.state == State::Closing {
            work += self.half.take(batch, drop);
        } else if self.reading {
            work += self.half.take(batch, |item| {
                events.push(match item {
                    Item::Slice(slice) => Event::Received { endpoint, slice },
                    Item::Parcel(parcel) => Event::HandedOver { endpoint, parcel },
                });
            });
        }
        work += usize::from(self.settle());
        if end != End::Open && self.half.is_drained() && self.ends.may_receive() {
            self.ends.peer_ended(endpoint, events);
            work += 1;
        }
        if !self.ends.are_over() {
            work += self.flush();
        }
        if self.is_over() {
            // The peer waits for our end before it reports its own.
            self.half.end();
            return (work, Some(Event::Disconnected { endpoint }));
        }
        self.queue.tell(endpoint, events);
        (work, None)
    }

    /// Whether both directions have ended, or the peer can no longer receive.
    fn is_over(&self) -> bool {
        let is_closed = self.state == State::Closing && self.queue.is_empty();
        self.ends.are_over() || (!self.ends.may_receive() && (is_closed || self.half.is_abandoned()))
    }
}

impl Dispatcher for InProcess {
    fn listen(&mut self, address: &str) -> Result<ServicePoint, EndpointError> {
        let service_point = ServicePoint(self.names.len() as u32);
        self.names.push(self.network.listen(address, service_point, &self.inbox)?);
        Ok(service_point)
    }

    fn address_of(&self, service_point: ServicePoint) -> Option<String> {
        self.names.get(service_point.0 as usize).cloned()
    }

    fn connect(&mut self, address: &str) -> Result<Endpoint, EndpointError> {
        let listener = self.network.find(address);
        let acceptor = listener.as_ref().map_or(&self.inbox, |(_, inbox)| inbox);
        let end = |inbox: &Inbox| (inbox.number, Arc::clone(&inbox.doorbell));
        let (here, there) = pair(end(&self.inbox), end(acceptor), self.config.ring_slices);
        let endpoint = self.add(here, State::Connecting);
        // Without a listener, the other half is dropped unanswered, and the next poll reports a refusal.
        if let Some((service_point, inbox)) = listener {
            inbox.leave(Request { service_point, half: there });
        }
        Ok(endpoint)
    }

    fn accept(&mut self, endpoint: Endpoint) {
        if let Some(connection) = self.connections.get_mut(endpoint)
            && connection.state == State::Requested
        {
            connection.state = State::Open;
            connection.half.set_answer(Answer::Accepted);
            self.pending.push(Event::Established { endpoint });
        }
    }

    fn reject(&mut self, endpoint: Endpoint) {
        let requested = |connection: &&Connection| connection.state == State::Requested;
        if let Some(connection) = self.connections.get(endpoint).filter(requested) {
            connection.half.set_answer(Answer::Rejected);
            self.connections.remove(endpoint);
        }
    }

    fn set_owner(&mut self, _endpoint: Endpoint, _owner: Owner) {}

    fn pool(&self) -> Option<&Pool> {
        None
    }

    fn pool_mut(&mut self) -> Option<&mut Pool> {
        None
    }

    fn post_block(&mut self, _endpoint: Endpoint, block: Loan) -> Result<(), Loan> {
        Err(block)
    }

    fn set_reading(&mut self, endpoint: Endpoint, reading: bool) {
        if let Some(connection) = self.connections.get_mut(endpoint) {
            connection.reading = reading;
        }
    }

    fn is_dry(&self, _endpoint: Endpoint) -> bool {
        false
    }

    fn peer_has_ended(&self, _endpoint: Endpoint) -> bool {
        false
    }

    fn has_waiting(&self, _endpoint: Endpoint) -> bool {
        false
    }

    fn peek(&mut self, _endpoint: Endpoint, _head: &mut [u8]) -> Option<usize> {
        // Nothing waits for a block here.
        Some(0)
    }

    fn send(&mut self, endpoint: Endpoint, message: &mut Vec<Slice>) -> Result<(), SendError> {
        match self.connections.get_mut(endpoint) {
            Some(connection) if connection.may_send() => {
                connection.settle();
                connection.queue.push(message)
            }
            _ => Err(SendError::Closed),
        }
    }

    fn hands_over(&self) -> bool {
        true
    }

    fn hand_over(&mut self, endpoint: Endpoint, parcel: Parcel) -> Result<(), (SendError, Parcel)> {
        let open = self.connections.get_mut(endpoint).filter(|connection| connection.may_send());
        let Some(connection) = open else { return Err((SendError::Closed, parcel)) };
        connection.settle();
        if let Err(error) = connection.queue.admit(parcel.bytes()) {
            return Err((error, parcel));
        }
        connection.queue.put(Item::Parcel(parcel));
        Ok(())
    }

    fn set_send_limits(&mut self, endpoint: Endpoint, limits: SendLimits) {
        if let Some(connection) = self.connections.get_mut(endpoint) {
            connection.queue.set_limits(limits);
        }
    }

    fn send_room(&self, endpoint: Endpoint) -> usize {
        match self.connections.get(endpoint) {
            Some(connection) if connection.may_send() => connection.queue.room(),
            _ => 0,
        }
    }

    fn queued(&self, endpoint: Endpoint) -> usize {
        self.connections.get(endpoint).map_or(0, |connection| connection.queue.unsettled())
    }

    fn set_half_close(&mut self, endpoint: Endpoint, half_close: bool) {
        if let Some(connection) = self.connections.get_mut(endpoint) {
            connection.ends.set_half_close(half_close);
        }
    }

    fn finish(&mut self, endpoint: Endpoint) {
        if let Some(connection) =
            self.connections.get_mut(endpoint).filter(|connection| connection.state == State::Open)
        {
            connection.ends.finish();
        }
    }

    fn close(&mut self, endpoint: Endpoint) {
        let Some(connection) = self.connections.get_mut(endpoint) else { return };
        match connection.state {
            State::Open => connection.state = State::Closing,
            State::Closing => {}
            State::Connecting | State::Requested => {
                self.connections.remove(endpoint);
                self.pending.push(Event::Disconnected { endpoint });
            }
        }
    }

    fn abort(&mut self, endpoint: Endpoint) {
        // The peer detects the drop of this half.
        self.connections.remove(endpoint);
        self.pending.retain(|event| event.endpoint() != endpoint);
    }

    fn poll(&mut self, _now: Instant, events: &mut Vec<Event>) -> usize {
        if core::mem::take(&mut self.armed) {
            self.inbox.doorbell.disarm();
            self.inbox.doorbell.silence();
        }
        let before = events.len();
        self.take_requests(events);
        events.append(&mut self.pending);
        let mut work = events.len() - before;
        for index in 0..self.connections.bound() {
            if let Some(endpoint) = self.connections.at(index) {
                work += self.serve(endpoint, events);
            }
        }
        work.max(events.len() - before)
    }

    fn prepare_wait(&mut self) -> bool {
        self.inbox.doorbell.arm();
        self.armed = true;
        for connection in self.connections.values().filter(|connection| connection.is_stuck()) {
            connection.half.want_room();
        }
        let idle =
            self.pending.is_empty() && self.inbox.is_empty() && !self.connections.values().any(Connection::has_work);
        if !idle {
            self.inbox.doorbell.disarm();
            self.armed = false;
        }
        idle
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inbox.doorbell.descriptor())
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.names.iter().for_each(|name| self.network.forget(name));
        self.inbox.shut();
    }
}

/// The answer to a connection request.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(u8)]
enum Answer {
    None = 0,
    Accepted = 1,
    Rejected = 2,
}

/// Whether and how one side has ended its direction.
#[derive(Copy, Clone, PartialEq, Eq)]
#[repr(u8)]
enum End {
    Open = 0,
    /// Everything was sent and no bytes follow.
    Closed = 1,
    /// The side is gone; its bytes are lost.
    Gone = 2,
    /// Everything was sent, and the side is still there to receive.
    Finished = 3,
}

/// An element of a ring.
enum Item {
    Slice(Slice),
    Parcel(Parcel),
}

impl From<Slice> for Item {
    fn from(slice: Slice) -> Self {
        Self::Slice(slice)
    }
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Slice(slice) => slice.len(),
            Self::Parcel(parcel) => parcel.bytes(),
        }
    }
}

/// The state of one direction, on separate cache lines (pairs of them, since they are fetched in pairs).
#[repr(align(128))]
struct Direction {
    /// Number of bytes that the receiver took; written only by the receiver.
    consumed: AtomicU64,
    /// Set while the sender sleeps until the receiver takes something.
    wants_room: Sleeper,
    end: AtomicU8,
}

impl Direction {
    fn new() -> Self {
        Self { consumed: AtomicU64::new(0), wants_room: Sleeper::new(), end: AtomicU8::new(End::Open as u8) }
    }
}

struct Link {
    answer: AtomicU8,
    /// Indexed by sending side.
    directions: [Direction; 2],
    /// The numbers of the dispatchers and their bells.
    ends: [(u32, Arc<Doorbell>); 2],
}

/// One side of a connection. Dropping it ends the connection out of order unless it was ended before.
struct Half {
    link: Arc<Link>,
    side: usize,
    outgoing: Producer<Item>,
    incoming: Consumer<Item>,
}

/// Makes a connection between two dispatchers, each a number and a bell: first the connecting side, then the accepting
/// one.
fn pair(connector: (u32, Arc<Doorbell>), acceptor: (u32, Arc<Doorbell>), ring_items: usize) -> (Half, Half) {
    let (there, at_acceptor) = RingBuffer::new(ring_items);
    let (back, at_connector) = RingBuffer::new(ring_items);
    let link = Arc::new(Link {
        answer: AtomicU8::new(Answer::None as u8),
        directions: [Direction::new(), Direction::new()],
        ends: [connector, acceptor],
    });
    let first = Half { link: Arc::clone(&link), side: 0, outgoing: there, incoming: at_connector };
    (first, Half { link, side: 1, outgoing: back, incoming: at_acceptor })
}

impl Half {
    /// The number of the other side's dispatcher.
    fn peer(&self) -> u32 {
        self.link.ends[1 - self.side].0
    }

    /// Wakes the other side if it sleeps.
    fn notify_peer(&self) {
        self.link.ends[1 - self.side].1.notify();
    }

    fn answer(&self) -> Answer {
        match self.link.answer.load(Ordering::Acquire) {
            1 => Answer::Accepted,
            2 => Answer::Rejected,
            _ => Answer::None,
        }
    }

    fn set_answer(&self, answer: Answer) {
        self.link.answer.store(answer as u8, Ordering::Release);
        self.notify_peer();
    }

    /// The way in which the other side ended. Read this first and the ring second, so that all bytes sent before are
    /// seen.
    fn peer_end(&self) -> End {
        match self.link.directions[1 - self.side].end.load(Ordering::Acquire) {
            0 => End::Open,
            1 => End::Closed,
            3 => End::Finished,
            _ => End::Gone,
        }
    }

    /// Ends the own direction in order, after everything else was sent.
    fn end(&self) {
        self.link.directions[self.side].end.store(End::Closed as u8, Ordering::Release);
        self.notify_peer();
    }

    /// Ends the own direction like [`Half::end`], and continues to receive.
    fn finish(&self) {
        self.link.directions[self.side].end.store(End::Finished as u8, Ordering::Release);
        self.notify_peer();
    }

    fn is_closed(&self) -> bool {
        self.link.directions[self.side].end.load(Ordering::Relaxed) == End::Closed as u8
    }

    /// Whether the other side is gone, so that nothing is taken any more.
    fn is_abandoned(&self) -> bool {
        self.outgoing.is_abandoned()
    }

    /// Number of items that can be pushed now.
    fn room(&self) -> usize {
        self.outgoing.slots()
    }

    /// Publishes `count` items of the iterator at once; `count` must not exceed [`Half::room`].
    fn push(&mut self, count: usize, items: impl Iterator<Item = Item>) {
        if let Ok(chunk) = self.outgoing.write_chunk_uninit(count) {
            chunk.fill_from_iter(items.take(count));
        }
    }

    /// Whether nothing waits to be taken.
    fn is_drained(&self) -> bool {
        self.incoming.is_empty()
    }

    /// Takes up to `most` items; returns their number. Wakes the sender if it waits for room.
    fn take(&mut self, most: usize, mut each: impl FnMut(Item)) -> usize {
        let count = self.incoming.slots().min(most);
        if count == 0 {
            return 0;
        }
        let mut bytes = 0;
        if let Ok(chunk) = self.incoming.read_chunk(count) {
            for item in chunk {
                bytes += item.bytes() as u64;
                each(item);
            }
        }
        let direction = &self.link.directions[1 - self.side];
        direction.consumed.store(direction.consumed.load(Ordering::Relaxed) + bytes, Ordering::Release);
        if direction.wants_room.must_be_woken() {
            self.notify_peer();
        }
        count
    }

    /// Number of bytes of the own direction that the other side took.
    fn consumed_by_peer(&self) -> u64 {
        self.link.directions[self.side].consumed.load(Ordering::Acquire)
    }

    /// Requests a wake-up when the other side takes something. Call it after [`Doorbell::arm`] and before the last
    /// check of [`Half::room`].
    fn want_room(&self) {
        self.link.directions[self.side].wants_room.fall_asleep();
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        if !self.is_closed() {
            self.link.directions[self.side].end.store(End::Gone as u8, Ordering::Release);
            self.notify_peer();
        }
    }
}

/// The network of one process: its dispatchers find each other by name. Clones refer to the same network.
#[derive(Clone, Default)]
pub struct InProcessNetwork {
    names: Arc<Mutex<Names>>,
}

#[derive(Default)]
struct Names {
    listeners: BTreeMap<String, (ServicePoint, Arc<Inbox>)>,
    next_port: u32,
    next_dispatcher: u32,
}

/// Pending connection requests to one dispatcher.
struct Inbox {
    /// The dispatcher's number.
    number: u32,
    doorbell: Arc<Doorbell>,
    waiting: AtomicUsize,
    /// `None` after the dispatcher is dropped.
    requests: Mutex<Option<Vec<Request>>>,
}

/// A peer's request to connect.
struct Request {
    service_point: ServicePoint,
    half: Half,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds such a lock, and each change is a single step anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InProcessNetwork {
    /// Makes a network without names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a dispatcher of this network. It may move to another thread.
    pub fn dispatcher(&self, config: InProcessConfig) -> io::Result<InProcess> {
        let number = {
            let mut names = lock(&self.names);
            names.next_dispatcher += 1;
            names.next_dispatcher - 1
        };
        let doorbell = Arc::new(Doorbell::new()?);
        let inbox = Inbox { number, doorbell, waiting: AtomicUsize::new(0), requests: Mutex::new(Some(Vec::new())) };
        Ok(InProcess::new(self.clone(), config, Arc::new(inbox)))
    }

    /// Registers a name; returns it with its `:0` replaced.
    fn listen(&self, address: &str, service_point: ServicePoint, inbox: &Arc<Inbox>) -> Result<String, EndpointError> {
        let mut names = lock(&self.names);
        let mut name = address.to_owned();
        if let Some(host) = address.strip_suffix(":0") {
            while name == address || names.listeners.contains_key(&name) {
                names.next_port += 1;
                name = format!("{host}:{}", names.next_port);
            }
        }
        if name.is_empty() {
            return Err(EndpointError::BadAddress { address: name, expected: "a name that is not empty" });
        }
        if names.listeners.contains_key(&name) {
            return Err(EndpointError::AddressInUse { address: name });
        }
        names.listeners.insert(name.clone(), (service_point, Arc::clone(inbox)));
        Ok(name)
    }

    fn forget(&self, name: &str) {
        lock(&self.names).listeners.remove(name);
    }

    /// Finds the listener with this name.
    fn find(&self, name: &str) -> Option<(ServicePoint, Arc<Inbox>)> {
        lock(&self.names).listeners.get(name).map(|(service_point, inbox)| (*service_point, Arc::clone(inbox)))
    }
}

impl Inbox {
    /// Adds a request. If the dispatcher is gone, the request is dropped, which its other side detects.
    fn leave(&self, request: Request) {
        if let Some(requests) = lock(&self.requests).as_mut() {
            requests.push(request);
            self.waiting.store(requests.len(), Ordering::Relaxed);
        }
        self.doorbell.notify();
    }

    fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Takes all requests.
    fn take(&self, mut each: impl FnMut(Request)) {
        if self.is_empty() {
            return;
        }
        let mut requests = lock(&self.requests);
        self.waiting.store(0, Ordering::Relaxed);
        requests.iter_mut().flat_map(|requests| requests.drain(..)).for_each(&mut each);
    }

    /// Refuses all further requests, and drops waiting ones.
    fn shut(&self) {
        let requests = lock(&self.requests).take();
        drop(requests);
    }
}
