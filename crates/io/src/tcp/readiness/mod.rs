//! TCP endpoints that ask the kernel which sockets are ready, and then read and write: received in place, sent
//! gathered, one thread, any number of endpoints.
//!
//! ```text
//!  epoll, poll or select ─► connections with something to do ─serve─► sendmsg (all that is queued, up to 1,024 slices)
//!                                                                └──► recv into the endpoint's block ─► Received
//! ```
//!
//! The readiness of each connection is remembered until the kernel reports otherwise. With epoll no system call changes
//! the interest while data flow, switching reading on and off costs none, and a connection that is not read closes its
//! window. `poll` and `select`, the two mechanisms of paper 3 (III-A), get the list of all sockets each time.

mod connection;
mod mechanisms;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ropewalk_memory::{Loan, Owner, Pool, Slice};
use ropewalk_terms::Instant;
use rustix::io::Errno;

use self::connection::{Connection, State, Tools};
use super::gather::Gathered;
use super::socket::Timers;
use super::{TcpConfig, socket};
use crate::endpoint::{
    BrokenCause, ConnectCause, Dispatcher, Endpoint, EndpointError, Event, NO_GENERATION, OwnWait, Peer, SendError,
    SendLimits, ServicePoint,
};
use crate::endpoint_state::Slots;

pub(super) use self::mechanisms::{Epoll, Poll, Select};

/// Interval at which a sleeping thread checks whether blocks came back to a quota that was used up.
const DRY_RETRY: Duration = Duration::from_micros(500);
/// Replaces the generation in the token of listeners; no endpoint has it.
const LISTENER: u32 = NO_GENERATION;
/// The token of bells, different from that of any listener.
const BELL: u64 = token(u32::MAX, LISTENER);

/// The kernel's report on a socket.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Ready {
    readable: bool,
    writable: bool,
    /// Whether the peer has ended its direction or the connection has broken: the next call tells which.
    hung_up: bool,
}

/// A socket to ask about.
pub(super) struct Asked<'a> {
    socket: BorrowedFd<'a>,
    token: u64,
    /// Whether to ask if it is readable (otherwise that is known, or not of interest).
    read: bool,
    /// Whether to ask if it is writable.
    write: bool,
}

/// A way to ask the kernel which sockets are ready.
pub(super) trait Readiness: Sized {
    /// Whether it reports the present state at each call (levels), instead of each change once (edges).
    const LEVELS: bool;

    fn new() -> io::Result<Self>;

    /// Watches a socket until it is closed.
    fn add(&mut self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()>;

    /// Appends the sockets that are ready now. `asked` is for mechanisms with `LEVELS`.
    fn take<'a>(&mut self, asked: impl Iterator<Item = Asked<'a>>, ready: &mut Vec<(u64, Ready)>);

    /// Becomes readable when a watched socket becomes ready.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Makes the descriptor silent until something changes. Call it only for mechanisms with `LEVELS`, before the last
    /// check of the sockets.
    fn silence(&mut self) {}

    /// The dispatcher's own way to sleep, for mechanisms that can ask and sleep in one call.
    fn own_wait(_tcp: &mut ReadyTcp<Self>) -> Option<&mut dyn OwnWait> {
        None
    }
}

/// Number of polls without asking the kernel, while sockets known to be ready have enough to do.
const UNASKED: u32 = 3;

/// Number of ready sockets taken from the kernel in one poll by mechanisms without `LEVELS`.
const BATCH: usize = 256;

/// A dispatcher of TCP endpoints with its receive pool.
pub(super) struct ReadyTcp<R> {
    config: TcpConfig,
    readiness: R,
    connections: Slots<Connection>,
    listeners: Vec<Listener>,
    /// Number of polls since the kernel was asked.
    unasked: u32,
    /// Whether a sleep has asked the kernel since the last poll.
    has_slept: bool,
    /// Whether a bell was rung since the last sleep.
    is_rung: bool,
    /// The kernel's last reports; empty between two polls.
    answers: Vec<(u64, Ready)>,
    /// The connections that may have something to do, each once ([`Connection::listed`]).
    ready: Vec<Endpoint>,
    /// Holds `ready` while its connections are served; kept for its capacity.
    serving: Vec<Endpoint>,
    /// The slices of one send.
    gathered: Gathered,
    /// Events caused by calls between two polls.
    pending: Vec<Event>,
    timers: Timers,
    /// The time of the last poll.
    now: Instant,
    // Last field, so that every loan is returned before it is dropped.
    pool: Pool,
}

/// Initial room for connections, so that a reconnection does not allocate.
const ROOM: usize = 256;

impl<R: Readiness> ReadyTcp<R> {
    /// A dispatcher that receives into `pool`.
    pub(super) fn new(config: TcpConfig, pool: Pool) -> io::Result<Self> {
        Ok(Self {
            config,
            readiness: R::new()?,
            connections: Slots::with_capacity(ROOM),
            listeners: Vec::new(),
            unasked: 0,
            has_slept: false,
            is_rung: false,
            answers: Vec::with_capacity(ROOM),
            ready: Vec::with_capacity(ROOM),
            serving: Vec::with_capacity(ROOM),
            gathered: Gathered::new(),
            pending: Vec::with_capacity(ROOM),
            timers: Timers::with_capacity(ROOM),
            now: Instant::ZERO,
            pool,
        })
    }

    fn add(&mut self, socket: OwnedFd, state: State) -> Endpoint {
        self.connections.insert(Connection::new(socket, state, self.config.send_queue_bytes))
    }

    /// Registers the connection with the kernel.
    fn register(&mut self, endpoint: Endpoint) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(endpoint) else { return Ok(()) };
        // A level-triggered mechanism is asked only when the first attempt to write has failed.
        connection.writable |= R::LEVELS && connection.state == State::Open;
        self.readiness.add(connection.socket.as_fd(), token(endpoint.0, endpoint.generation()))
    }

    /// Adds the connection to the list of those to serve if it has something to do.
    fn list(&mut self, endpoint: Endpoint) {
        if let Some(connection) = self.connections.get_mut(endpoint)
            && !connection.listed
            && (connection.has_work() || connection.wants_block())
        {
            connection.listed = true;
            self.ready.push(endpoint);
        }
    }

    /// Ends the connection by a reset.
    fn drop_with_reset(&mut self, endpoint: Endpoint) {
        if let Some(connection) = self.connections.remove(endpoint) {
            socket::reset_on_close(&connection.socket);
        }
    }

    /// Asks the kernel, and lists the connections that can make progress.
    fn take_ready(&mut self) {
        let Self { connections, listeners, readiness, answers, .. } = self;
        let listening = listeners.iter().enumerate().filter(|(_, listener)| !listener.ready);
        let listening = listening.map(|(index, listener)| Asked {
            socket: listener.socket.as_fd(),
            token: token(index as u32, LISTENER),
            read: true,
            write: false,
        });
        let connected = connections.iter().map(|(endpoint, connection)| {
            let token = token(endpoint.0, endpoint.generation());
            let (read, write) = connection.asks();
            Asked { socket: connection.socket.as_fd(), token, read, write }
        });
        readiness.take(listening.chain(connected).filter(|asked| asked.read || asked.write), answers);
        self.take_answers();
    }

    /// Processes the kernel's reports.
    fn take_answers(&mut self) {
        let mut answers = core::mem::take(&mut self.answers);
        for (token, ready) in answers.drain(..) {
            let (low, high) = (token as u32, (token >> 32) as u32);
            if token == BELL {
                self.is_rung = true;
                continue;
            }
            if high == LISTENER {
                self.listeners[low as usize].ready = true;
                continue;
            }
            let endpoint = Endpoint::new(low, high);
            if let Some(connection) = self.connections.get_mut(endpoint) {
                connection.hung_up |= ready.hung_up;
                connection.readable |= ready.readable || connection.hung_up;
                connection.writable |= ready.writable;
            }
            self.list(endpoint);
        }
        self.answers = answers;
    }

    fn take_connections(&mut self, events: &mut Vec<Event>) -> usize {
        let (connections, queue) = (&mut self.connections, self.config.send_queue_bytes);
        let mut work = 0;
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let service_point = ServicePoint(index as u32);
            work += listener.accept(self.now, |socket, address| {
                let endpoint = connections.insert(Connection::new(socket, State::Requested, queue));
                events.push(Event::ConnectionRequest { service_point, endpoint, peer: Peer::Address(address) });
            });
        }
        work
    }

    /// Serves every listed connection once.
    fn serve_ready(&mut self, events: &mut Vec<Event>) -> usize {
        let mut work = 0;
        core::mem::swap(&mut self.ready, &mut self.serving);
        let mut serving = core::mem::take(&mut self.serving);
        for endpoint in serving.drain(..) {
            let Self { connections, config, pool, gathered, .. } = self;
            let Some(connection) = connections.get_mut(endpoint) else { continue };
            connection.listed = false;
            let (done, last) = connection.serve(endpoint, &mut Tools { config, pool, gathered }, events);
            work += done;
            match last {
                None => self.list(endpoint),
                Some(last) => {
                    self.end(endpoint, &last);
                    events.push(last);
                    work += 1;
                }
            }
        }
        self.serving = serving;
        work
    }

    fn end(&mut self, endpoint: Endpoint, last: &Event) {
        match last {
            Event::Disconnected { .. } => drop(self.connections.remove(endpoint)),
            _ => self.drop_with_reset(endpoint),
        }
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
            self.drop_with_reset(endpoint);
        }
    }

    fn fail_later(&mut self, endpoint: Endpoint, event: Event) {
        self.drop_with_reset(endpoint);
        self.pending.push(event);
    }
}

/// Makes the kernel's token of an endpoint or a listener.
const fn token(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl<R: Readiness> Dispatcher for ReadyTcp<R> {
    fn listen(&mut self, address: &str) -> Result<ServicePoint, EndpointError> {
        let (socket, bound) = socket::listen(address, &self.config)?;
        let index = self.listeners.len() as u32;
        self.readiness
            .add(socket.as_fd(), token(index, LISTENER))
            .map_err(|error| socket::listen_error(address, error))?;
        self.listeners.push(Listener::new(socket, bound));
        Ok(ServicePoint(index))
    }

    fn address_of(&self, service_point: ServicePoint) -> Option<String> {
        self.listeners.get(service_point.0 as usize).map(|listener| listener.address.to_string())
    }

    fn connect(&mut self, address: &str) -> Result<Endpoint, EndpointError> {
        let (socket, failure) = socket::connect(address, &self.config)?;
        let endpoint = self.add(socket, State::Connecting);
        if let Some(cause) = failure {
            self.fail_later(endpoint, Event::ConnectFailed { endpoint, cause });
            return Ok(endpoint);
        }
        self.timers.start(endpoint, self.config.connect_timeout);
        if let Err(error) = self.register(endpoint) {
            self.drop_with_reset(endpoint);
            return Err(socket::connect_error(address, error));
        }
        Ok(endpoint)
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Endpoint> {
        socket::ready_to_adopt(&socket)?;
        let endpoint = self.add(socket, State::Requested);
        self.accept(endpoint);
        Ok(endpoint)
    }

    fn accept(&mut self, endpoint: Endpoint) {
        match self.connections.get_mut(endpoint) {
            Some(connection) if connection.state == State::Requested => connection.state = State::Open,
            _ => return,
        }
        self.pending.push(Event::Established { endpoint });
        if let Err(error) = self.register(endpoint) {
            // Errors that originate in this program have no number; they mean too many descriptors.
            let cause = Errno::from_io_error(&error).unwrap_or(Errno::MFILE);
            self.fail_later(endpoint, Event::Broken { endpoint, cause: socket::broken_cause(cause) });
        }
    }

    fn reject(&mut self, endpoint: Endpoint) {
        if self.connections.get(endpoint).is_some_and(|connection| connection.state == State::Requested) {
            self.drop_with_reset(endpoint);
        }
    }

    fn set_owner(&mut self, endpoint: Endpoint, owner: Owner) {
        if let Some(connection) = self.connections.get_mut(endpoint) {
            connection.block.set_owner(owner);
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
        match self.connections.get_mut(endpoint) {
            Some(connection) if !matches!(connection.state, State::Flushing | State::Shut) => {
                connection.block.post(block);
            }
            _ => return Err(block),
        }
        self.list(endpoint);
        Ok(())
    }

    fn set_reading(&mut self, endpoint: Endpoint, reading: bool) {
        if let Some(connection) = self.connections.get_mut(endpoint) {
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
        socket::peek(&self.connections.get(endpoint)?.socket, head)
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
        if let Some(connection) = self.connections.get_mut(endpoint) {
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
        self.list(endpoint);
    }

    fn close(&mut self, endpoint: Endpoint) {
        let Some(connection) = self.connections.get_mut(endpoint) else { return };
        match connection.state {
            State::Open => connection.begin_close(),
            State::Flushing | State::Shut => return,
            State::Connecting | State::Requested => {
                self.fail_later(endpoint, Event::Disconnected { endpoint });
                return;
            }
        }
        self.timers.start(endpoint, self.config.close_timeout);
        self.list(endpoint);
    }

    fn abort(&mut self, endpoint: Endpoint) {
        self.drop_with_reset(endpoint);
        self.pending.retain(|event| event.endpoint() != endpoint);
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        self.now = now;
        let before = events.len();
        events.append(&mut self.pending);
        // Asking costs as much as a small message: while connections have more to do, it is put off for a few polls.
        let has_more =
            self.ready.iter().any(|&endpoint| self.connections.get(endpoint).is_some_and(Connection::has_work));
        if core::mem::take(&mut self.has_slept) {
            self.unasked = 0;
        } else if has_more && self.unasked < UNASKED {
            self.unasked += 1;
        } else {
            self.unasked = 0;
            self.take_ready();
        }
        let work = self.take_connections(events) + self.serve_ready(events);
        self.expire(events);
        work.max(events.len() - before)
    }

    fn prepare_wait(&mut self) -> bool {
        if !self.pending.is_empty() || self.timers.has_untimed() || self.listeners.iter().any(Listener::has_work) {
            return false;
        }
        if R::LEVELS {
            self.readiness.silence();
            self.take_ready();
        }
        // Every listed connection has work, or waits for a block that may have come back meanwhile.
        for &endpoint in &self.ready {
            let Some(connection) = self.connections.get_mut(endpoint) else { continue };
            if connection.has_work() || (connection.wants_block() && connection.refill(&mut self.pool, &self.config)) {
                return false;
            }
        }
        true
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.readiness.descriptor())
    }

    fn own_wait(&mut self) -> Option<&mut dyn OwnWait> {
        R::own_wait(self)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let waits = |connection: &Connection| connection.wants_block() && !connection.block.is_posted();
        let dry = self.connections.values().any(waits).then(|| self.now.after(DRY_RETRY));
        let paused = self.listeners.iter().filter_map(|listener| listener.paused_until).min();
        [dry, self.timers.next_deadline(), paused].into_iter().flatten().min()
    }
}

/// Number of connections accepted from one listener in one poll.
const ACCEPTED_AT_ONCE: usize = 64;
/// Delay before another attempt after the process ran out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    pub(super) address: SocketAddr,
    /// Whether connections may be waiting (edges, as with connections).
    pub(super) ready: bool,
    /// Not asked before this time, because there were no descriptors left.
    pub(super) paused_until: Option<Instant>,
}

impl Listener {
    pub(super) const fn new(socket: OwnedFd, address: SocketAddr) -> Self {
        Self { socket, address, ready: true, paused_until: None }
    }

    /// Whether [`Listener::accept`] has something to do.
    pub(super) const fn has_work(&self) -> bool {
        self.ready && self.paused_until.is_none()
    }

    /// Accepts the waiting connections.
    pub(super) fn accept(&mut self, now: Instant, mut each: impl FnMut(OwnedFd, SocketAddr)) -> usize {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
        }
        let mut taken = 0;
        while self.has_work() && taken < ACCEPTED_AT_ONCE {
            match socket::accept(&self.socket) {
                Ok((connection, peer)) => {
                    taken += 1;
                    each(connection, peer);
                }
                Err(Errno::AGAIN) => self.ready = false,
                // The peer gave up while it waited, or a signal arrived: continue with the next one.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => {}
                // No descriptors or no memory: the connections wait in the kernel until they are available.
                Err(_) => self.paused_until = Some(now.after(PAUSE)),
            }
        }
        taken
    }
}
