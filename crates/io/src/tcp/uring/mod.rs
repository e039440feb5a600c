//! TCP endpoints that hand operations to the kernel and take their completions, over io_uring: the kernel accepts,
//! receives into blocks posted before, and sends gathered slices; one thread, any number of endpoints.
//!
//! ```text
//!  poll: queue operations ─► one system call: the kernel works ─► completions ─► Received, Established, ...
//!          ▲   accept, connect, send, receive                         │
//!          └──── blocks of the endpoint's own quota are posted ◄──────┘ the filled head leaves, the tail is filled on
//! ```
//!
//! Each endpoint has a separate list of blocks ([`Buffers`]), so that a slow endpoint cannot starve others; an endpoint
//! that has nothing to receive holds no block. Only the thread of the first poll may poll ([`ring`] explains why).
#![allow(unsafe_code)]

mod connection;
mod ring;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use ropewalk_memory::{Loan, Owner, Pool, Slice};
use ropewalk_terms::Instant;
use rustix::io::Errno;

use self::connection::{Connection, State, Tools};
use self::ring::{Buffers, Completion, Operation};
use super::socket::Timers;
use super::{TcpConfig, socket};
use crate::endpoint::{
    BrokenCause, ConnectCause, Dispatcher, Endpoint, EndpointError, Event, Peer, SendError, SendLimits, ServicePoint,
};
use crate::endpoint_state::Slots;

pub(super) use self::ring::{Ring, used};

/// Interval at which a sleeping thread checks whether blocks came back to a quota that was used up.
const DRY_RETRY: Duration = Duration::from_micros(500);
/// Initial room for connections, so that a reconnection does not allocate.
const ROOM: usize = 256;
/// Number of lists of blocks made at the start, for the same reason; each has a page.
const LISTS: usize = 64;
/// Time limit for the kernel to return everything at the end of a dispatcher.
const PATIENCE: Duration = Duration::from_secs(2);

/// A dispatcher of TCP endpoints with its receive pool.
pub(super) struct UringTcp {
    config: TcpConfig,
    ring: Ring,
    connections: Slots<Connection>,
    /// Indexed by endpoint; a list stays for the next endpoint with the same index.
    buffers: Vec<Option<Buffers>>,
    /// Lists made at the start, for the first endpoints.
    spare: Vec<Buffers>,
    listeners: Vec<Listener>,
    /// The kernel's last completions; empty between two polls.
    completions: Vec<Completion>,
    /// The connections that may have something to do, each once ([`Connection::listed`]).
    ready: Vec<Endpoint>,
    /// Holds `ready` while its connections are served; kept for its capacity.
    serving: Vec<Endpoint>,
    /// Events caused by calls between two polls.
    pending: Vec<Event>,
    timers: Timers,
    /// The time of the last poll.
    now: Instant,
    // Last field, so that every loan is returned before it is dropped.
    pool: Pool,
}

impl UringTcp {
    /// A dispatcher that receives into `pool`.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn new(config: TcpConfig, ring: Ring, pool: Pool) -> io::Result<Self> {
        Ok(Self {
            config,
            ring,
            connections: Slots::with_capacity(ROOM),
            buffers: Vec::with_capacity(ROOM),
            spare: (0..LISTS).map(|_| Buffers::new()).collect::<io::Result<_>>()?,
            listeners: Vec::new(),
            completions: Vec::with_capacity(4 * ROOM),
            ready: Vec::with_capacity(ROOM),
            serving: Vec::with_capacity(ROOM),
            pending: Vec::with_capacity(ROOM),
            timers: Timers::with_capacity(ROOM),
            now: Instant::ZERO,
            pool,
        })
    }

    /// Returns the connection, unless it has ended for the user.
    fn live(&self, endpoint: Endpoint) -> Option<&Connection> {
        self.connections.get(endpoint).filter(|connection| connection.state != State::Ended)
    }

    /// Returns the connection for changes, with its buffers, unless it has ended for the user.
    fn live_mut(&mut self, endpoint: Endpoint) -> Option<(&mut Connection, Option<&mut Buffers>)> {
        let connection = self.connections.get_mut(endpoint).filter(|connection| connection.state != State::Ended)?;
        Some((connection, buffers_of(&mut self.buffers, endpoint.0)))
    }

    /// Adds the connection to the list of those to serve if it has something to do.
    fn list(&mut self, endpoint: Endpoint) {
        let Self { connections, buffers, ready, .. } = self;
        if let Some(connection) = connections.get_mut(endpoint)
            && !connection.listed
            && (connection.has_work(buffers_of(buffers, endpoint.0).as_deref()) || connection.wants_block())
        {
            connection.listed = true;
            ready.push(endpoint);
        }
    }

    /// Ends the connection for the user, by a reset unless `in_order`. It is removed as soon as the kernel has no
    /// operation of it.
    fn end(&mut self, endpoint: Endpoint, in_order: bool) {
        let Some((connection, buffers)) = self.live_mut(endpoint) else { return };
        connection.end(buffers);
        if !in_order {
            socket::reset(&connection.socket);
        }
        if connection.is_idle() {
            self.connections.remove(endpoint);
        } else {
            self.list(endpoint);
        }
    }

    fn fail_later(&mut self, endpoint: Endpoint, event: Event) {
        self.end(endpoint, false);
        self.pending.push(event);
    }

    /// Lets every listed connection and every listener queue operations.
    fn prepare(&mut self) {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            listener.prepare(index as u32, self.now, &mut self.ring);
        }
        for place in 0..self.ready.len() {
            let endpoint = self.ready[place];
            self.give_buffers(endpoint);
            let Self { connections, buffers, config, ring, pool, .. } = self;
            let Some(connection) = connections.get_mut(endpoint) else { continue };
            let mut tools = Tools { config, ring, pool };
            connection.prepare(endpoint.0, buffers_of(buffers, endpoint.0), &mut tools);
            if connection.wants_block() && connection.takes_from_pool() && self.collect_surplus(endpoint) > 0 {
                self.prepare_again(endpoint);
            }
        }
    }

    fn prepare_again(&mut self, endpoint: Endpoint) {
        let Self { connections, buffers, config, ring, pool, .. } = self;
        if let Some(connection) = connections.get_mut(endpoint) {
            connection.prepare(endpoint.0, buffers_of(buffers, endpoint.0), &mut Tools { config, ring, pool });
        }
    }

    /// Makes the list of blocks of an endpoint that never had one.
    fn give_buffers(&mut self, endpoint: Endpoint) {
        let index = endpoint.index();
        let wanted = self.live(endpoint).is_some_and(|connection| connection.state == State::Open);
        if !wanted || self.buffers.get(index).is_some_and(Option::is_some) {
            return;
        }
        if self.buffers.len() <= index {
            self.buffers.resize_with(index + 1, || None);
        }
        let made = u16::try_from(index).map_err(|_| Errno::MFILE.into()).and_then(|group| {
            let buffers = self.spare.pop().map_or_else(Buffers::new, Ok)?;
            self.ring.register(buffers.ring(), group)?;
            Ok(buffers)
        });
        match made {
            Ok(buffers) => self.buffers[index] = Some(buffers),
            Err(error) => {
                let cause = match Errno::from_io_error(&error) {
                    Some(Errno::NOMEM) => BrokenCause::LockedMemory,
                    _ => broken(&error),
                };
                self.fail_later(endpoint, Event::Broken { endpoint, cause });
            }
        }
    }

    /// Takes the reserve blocks of the other endpoints of the same owner; returns their number.
    fn collect_surplus(&mut self, dry: Endpoint) -> usize {
        let Self { connections, buffers, .. } = self;
        let Some(owner) = connections.get(dry).map(|connection| connection.owner) else { return 0 };
        let others = connections.iter();
        let others = others.filter(|(_, connection)| connection.owner == owner && connection.takes_from_pool());
        others.filter_map(|(other, _)| Some(buffers_of(buffers, other.0)?.give_back_surplus())).sum()
    }

    /// Processes the kernel's completions.
    fn complete(&mut self, events: &mut Vec<Event>) -> usize {
        let mut completions = core::mem::take(&mut self.completions);
        let work = completions.len();
        for completion in completions.drain(..) {
            match completion.token.operation {
                Operation::Accept => self.accepted(&completion, events),
                Operation::Cancel => {}
                _ => {
                    let Some(endpoint) = self.connections.at(completion.token.index as usize) else { continue };
                    let Self { connections, buffers, .. } = self;
                    let Some(connection) = connections.get_mut(endpoint) else { continue };
                    connection.complete(endpoint, &completion, buffers_of(buffers, endpoint.0), events);
                    if !connection.listed {
                        connection.listed = true;
                        self.ready.push(endpoint);
                    }
                }
            }
        }
        self.completions = completions;
        work
    }

    fn accepted(&mut self, completion: &Completion, events: &mut Vec<Event>) {
        let listener = &mut self.listeners[completion.token.index as usize];
        if !completion.more {
            listener.stopped(completion.result.err(), self.now);
        }
        let Ok(descriptor) = completion.result else { return };
        // SAFETY: the kernel made this descriptor for us just now, and no other code knows it.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
        // A connection that has already ended has no peer.
        let Some(peer) = socket::peer(&socket) else { return };
        let connection = Connection::new(socket, State::Requested, self.config.send_queue_bytes);
        let endpoint = self.connections.insert(connection);
        let service_point = ServicePoint(completion.token.index);
        events.push(Event::ConnectionRequest { service_point, endpoint, peer: Peer::Address(peer) });
    }

    /// Delivers the received bytes of every listed connection once.
    fn deliver(&mut self, events: &mut Vec<Event>) -> usize {
        let mut work = 0;
        core::mem::swap(&mut self.ready, &mut self.serving);
        let mut serving = core::mem::take(&mut self.serving);
        for endpoint in serving.drain(..) {
            let Self { connections, buffers, config, .. } = self;
            let Some(connection) = connections.get_mut(endpoint) else { continue };
            connection.listed = false;
            if connection.state == State::Ended && connection.is_idle() {
                connections.remove(endpoint);
                continue;
            }
            let (done, last) = connection.deliver(endpoint, config, buffers_of(buffers, endpoint.0), events);
            work += done;
            match last {
                None => self.list(endpoint),
                Some(last) => {
                    self.end(endpoint, matches!(last, Event::Disconnected { .. }));
                    events.push(last);
                    work += 1;
                }
            }
        }
        self.serving = serving;
        work
    }

    /// Ends endpoints whose time limit for connecting or closing has passed.
    fn expire(&mut self, events: &mut Vec<Event>) {
        let Self { timers, connections, now, .. } = self;
        timers.begin(*now, |endpoint| connections.get(endpoint).is_some_and(Connection::is_awaited));
        while let Some(endpoint) = self.timers.next_expired(self.now) {
            let is_connecting = |connection: &Connection| connection.state == State::Connecting;
            events.push(match self.connections.get(endpoint).is_some_and(is_connecting) {
                true => Event::ConnectFailed { endpoint, cause: ConnectCause::TimedOut },
                false => Event::Broken { endpoint, cause: BrokenCause::TimedOut },
            });
            self.end(endpoint, false);
        }
    }

    /// Reports the end of every connection: the kernel no longer works for this thread.
    fn break_all(&mut self, cause: BrokenCause, events: &mut Vec<Event>) {
        for index in 0..self.connections.bound() {
            let Some(endpoint) = self.connections.at(index) else { continue };
            if self.live(endpoint).is_some() {
                events.push(Event::Broken { endpoint, cause });
                self.end(endpoint, false);
            }
        }
    }
}

fn buffers_of(buffers: &mut [Option<Buffers>], index: u32) -> Option<&mut Buffers> {
    buffers.get_mut(index as usize)?.as_mut()
}

/// Errors that originate in this program have no number; they mean too many descriptors.
fn broken(error: &io::Error) -> BrokenCause {
    socket::broken_cause(Errno::from_io_error(error).unwrap_or(Errno::MFILE))
}

impl Dispatcher for UringTcp {
    fn listen(&mut self, address: &str) -> Result<ServicePoint, EndpointError> {
        let (socket, bound) = socket::listen(address, &self.config)?;
        self.listeners.push(Listener::new(socket, bound));
        Ok(ServicePoint(self.listeners.len() as u32 - 1))
    }

    fn address_of(&self, service_point: ServicePoint) -> Option<String> {
        self.listeners.get(service_point.0 as usize).map(|listener| listener.address.to_string())
    }

    fn connect(&mut self, address: &str) -> Result<Endpoint, EndpointError> {
        // Begun at once, as with the other mechanisms: the first poll may be much later.
        let (socket, failure) = socket::connect(address, &self.config)?;
        let connection = Connection::new(socket, State::Connecting, self.config.send_queue_bytes);
        let endpoint = self.connections.insert(connection);
        if let Some(cause) = failure {
            self.fail_later(endpoint, Event::ConnectFailed { endpoint, cause });
            return Ok(endpoint);
        }
        self.timers.start(endpoint, self.config.connect_timeout);
        self.list(endpoint);
        Ok(endpoint)
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Endpoint> {
        socket::ready_to_adopt(&socket)?;
        let connection = Connection::new(socket, State::Requested, self.config.send_queue_bytes);
        let endpoint = self.connections.insert(connection);
        self.accept(endpoint);
        Ok(endpoint)
    }

    fn accept(&mut self, endpoint: Endpoint) {
        match self.connections.get_mut(endpoint) {
            Some(connection) if connection.state == State::Requested => connection.state = State::Open,
            _ => return,
        }
        self.pending.push(Event::Established { endpoint });
        self.list(endpoint);
    }

    fn reject(&mut self, endpoint: Endpoint) {
        if self.live(endpoint).is_some_and(|connection| connection.state == State::Requested) {
            self.end(endpoint, false);
        }
    }

    fn set_owner(&mut self, endpoint: Endpoint, owner: Owner) {
        if let Some((connection, buffers)) = self.live_mut(endpoint) {
            connection.set_owner(owner);
            if connection.takes_from_pool()
                && let Some(buffers) = buffers
            {
                buffers.give_back_surplus();
            }
        }
        self.list(endpoint);
    }

    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }

    fn pool_mut(&mut self) -> Option<&mut Pool> {
        Some(&mut self.pool)
    }

    fn post_block(&mut self, endpoint: Endpoint, block: Loan) -> Result<(), Loan> {
        match self.live_mut(endpoint) {
            Some((connection, buffers)) if connection.may_post() => connection.post(block, buffers),
            _ => return Err(block),
        }
        self.list(endpoint);
        Ok(())
    }

    fn set_reading(&mut self, endpoint: Endpoint, reading: bool) {
        // While it is not read, the kernel gets no further blocks: when its blocks are full, the window closes.
        if let Some((connection, _)) = self.live_mut(endpoint) {
            connection.reading = reading;
        }
        self.list(endpoint);
    }

    fn is_dry(&self, endpoint: Endpoint) -> bool {
        self.connections.get(endpoint).is_some_and(Connection::wants_block)
    }

    fn peer_has_ended(&self, endpoint: Endpoint) -> bool {
        self.connections.get(endpoint).is_some_and(|connection| socket::peer_has_ended(&connection.socket))
    }

    fn has_waiting(&self, endpoint: Endpoint) -> bool {
        self.connections.get(endpoint).is_some_and(|connection| socket::has_waiting(&connection.socket))
    }

    fn peek(&mut self, endpoint: Endpoint, head: &mut [u8]) -> Option<usize> {
        // Bytes that the kernel has received for it already precede the bytes in the socket.
        match self.live(endpoint)? {
            connection if connection.wants_block() => socket::peek(&connection.socket, head),
            _ => Some(0),
        }
    }

    fn send(&mut self, endpoint: Endpoint, message: &mut Vec<Slice>) -> Result<(), SendError> {
        match self.connections.get_mut(endpoint) {
            Some(connection) if connection.may_send() => connection.queue.push(message)?,
            _ => return Err(SendError::Closed),
        }
        self.list(endpoint);
        Ok(())
    }

    fn set_send_limits(&mut self, endpoint: Endpoint, limits: SendLimits) {
        if let Some((connection, _)) = self.live_mut(endpoint) {
            connection.queue.set_limits(limits);
        }
        self.list(endpoint);
    }

    fn send_room(&self, endpoint: Endpoint) -> usize {
        match self.connections.get(endpoint) {
            Some(connection) if connection.may_send() => connection.queue.room(),
            _ => 0,
        }
    }

    fn queued(&self, endpoint: Endpoint) -> usize {
        self.live(endpoint).map_or(0, |connection| connection.queue.unsettled())
    }

    fn set_half_close(&mut self, endpoint: Endpoint, half_close: bool) {
        if let Some((connection, _)) = self.live_mut(endpoint) {
            connection.ends.set_half_close(half_close);
        }
        self.list(endpoint);
    }

    fn finish(&mut self, endpoint: Endpoint) {
        if let Some((connection, _)) = self.live_mut(endpoint).filter(|(connection, _)| connection.state == State::Open)
        {
            connection.ends.finish();
        }
        self.list(endpoint);
    }

    fn close(&mut self, endpoint: Endpoint) {
        let Some((connection, buffers)) = self.live_mut(endpoint) else { return };
        match connection.state {
            State::Open => connection.begin_close(buffers),
            State::Flushing | State::Shut | State::Ended => return,
            State::Connecting | State::Requested => {
                self.fail_later(endpoint, Event::Disconnected { endpoint });
                return;
            }
        }
        self.timers.start(endpoint, self.config.close_timeout);
        self.list(endpoint);
    }

    fn abort(&mut self, endpoint: Endpoint) {
        self.end(endpoint, false);
        self.pending.retain(|event| event.endpoint() != endpoint);
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        self.now = now;
        let before = events.len();
        events.append(&mut self.pending);
        if let Err(error) = self.ring.adopt() {
            self.break_all(broken(&error), events);
            return events.len() - before;
        }
        self.ring.stop_listening();
        self.prepare();
        self.ring.turn(&mut self.completions);
        let work = self.complete(events) + self.deliver(events);
        self.expire(events);
        work.max(events.len() - before)
    }

    fn prepare_wait(&mut self) -> bool {
        if !self.pending.is_empty() || self.timers.has_untimed() || self.listeners.iter().any(Listener::has_work) {
            return false;
        }
        // Every listed connection has work, or waits for a block that may have come back meanwhile.
        self.pool.collect();
        let Self { ready, connections, buffers, pool, .. } = self;
        let can_go_on = |&endpoint: &Endpoint| {
            connections.get(endpoint).is_some_and(|connection| {
                let dry = connection.wants_block() && connection.takes_from_pool();
                connection.has_work(buffers_of(buffers, endpoint.0).as_deref())
                    || (dry && pool.available(connection.owner) > 0)
            })
        };
        !ready.iter().any(can_go_on) && self.ring.listen()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.bell())
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waits = |connection: &Connection| connection.wants_block() && connection.takes_from_pool();
        let dry = self.connections.values().any(waits).then(|| self.now.after(DRY_RETRY));
        let paused = self.listeners.iter().filter_map(|listener| listener.paused_until).min();
        [dry, self.timers.next_deadline(), paused].into_iter().flatten().min()
    }
}

/// The kernel returns everything before anything is freed. Memory that it does not return in time is leaked.
impl Drop for UringTcp {
    fn drop(&mut self) {
        self.ring.cancel_everything(&mut self.completions, PATIENCE);
        let mut unwanted = Vec::new();
        self.complete(&mut unwanted);
        let idle = self.ring.in_flight() == 0;
        for buffers in self.buffers.drain(..).flatten() {
            buffers.end(idle);
        }
        if !idle {
            for index in 0..self.connections.bound() {
                let Some(endpoint) = self.connections.at(index) else { continue };
                if let Some(connection) = self.connections.remove(endpoint) {
                    connection.abandon();
                }
            }
        }
    }
}

/// Delay before another attempt after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) address: SocketAddr,
    /// Whether the kernel accepts.
    accepting: bool,
    /// Not asked before this time, because there were no descriptors left.
    pub(super) paused_until: Option<Instant>,
}

impl Listener {
    pub(super) const fn new(socket: OwnedFd, address: SocketAddr) -> Self {
        Self { socket, address, accepting: false, paused_until: None }
    }

    /// Whether [`Listener::prepare`] has something to do, apart from a pause.
    pub(super) const fn has_work(&self) -> bool {
        !self.accepting && self.paused_until.is_none()
    }

    /// Lets the kernel accept.
    pub(super) fn prepare(&mut self, index: u32, now: Instant, ring: &mut Ring) {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
        }
        if self.has_work() {
            self.accepting = ring.accept(&self.socket, index);
        }
    }

    /// Notes that the kernel has stopped accepting, with the reason if there is one.
    fn stopped(&mut self, why: Option<Errno>, now: Instant) {
        self.accepting = false;
        match why {
            // The peer gave up while it waited, or a signal arrived: continue with the next one.
            None | Some(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::AGAIN | Errno::CANCELED) => {}
            // No descriptors or no memory: the connections wait in the kernel until they are available.
            Some(_) => self.paused_until = Some(now.after(PAUSE)),
        }
    }
}
