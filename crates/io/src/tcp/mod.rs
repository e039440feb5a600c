//! TCP endpoints over epoll: received in place, sent gathered, one thread, any number of endpoints.
//!
//! ```text
//!  epoll ─edges─► connections with something to do ─serve─► sendmsg (all that is queued, up to 1,024 slices)
//!                                                      └──► recv into the endpoint's block ─► Received
//! ```
//!
//! Readiness comes in edges and is remembered per connection: no system call changes the interest while data
//! flows, switching reading on and off costs none, and a connection that is not read closes its window.

mod config;
mod connection;
mod listener;
mod socket;

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ropewalk_memory::{Owner, Pool, Slice};
use ropewalk_terms::Instant;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

pub use self::config::TcpConfig;

use self::connection::{Connection, State};
use self::listener::Listener;
use crate::endpoint::{
    BrokenCause, ConnectCause, Dispatcher, Endpoint, EndpointError, Event, Peer, SendError, ServicePoint,
};
use crate::slots::Slots;

/// Edges taken from the kernel in one poll.
const EDGES: usize = 256;
/// How often a sleeping thread looks whether blocks came back to a quota that was used up.
const DRY_RETRY: Duration = Duration::from_micros(500);
/// Stands in the place of the generation in the descriptor data of listeners; no endpoint has it.
const LISTENER: u32 = crate::slots::NO_GENERATION;

/// A dispatcher of TCP endpoints with its receive pool.
pub struct Tcp {
    config: TcpConfig,
    connections: Slots<Connection>,
    listeners: Vec<Listener>,
    /// The connections that may have something to do, each once ([`Connection::listed`]).
    ready: Vec<Endpoint>,
    /// Where `ready` goes while its connections are served; kept for its capacity.
    serving: Vec<Endpoint>,
    /// Events that calls between two polls brought about.
    pending: Vec<Event>,
    /// Connections whose time begins with the next poll: only there it is known what time it is.
    untimed: Vec<(Endpoint, Duration)>,
    /// The time of the last poll.
    now: Instant,
    /// The earliest deadline of a connection, or earlier.
    next_timer: Instant,
    epoll: OwnedFd,
    // Last, so that every loan is back when it goes.
    pool: Pool,
}

/// Connections for which there is room from the start, so that one that comes back allocates nothing.
const ROOM: usize = 256;

impl Tcp {
    /// A dispatcher that receives into `pool`.
    pub fn new(mut config: TcpConfig, pool: Pool) -> Result<Self, EndpointError> {
        config.congestion_control = config.congestion_control.filter(|name| socket::has_congestion_control(name));
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| EndpointError::System {
            what: "cannot make",
            address: "an epoll descriptor".to_owned(),
            source: error.into(),
        })?;
        Ok(Self {
            config,
            connections: Slots::with_capacity(ROOM),
            listeners: Vec::new(),
            ready: Vec::with_capacity(ROOM),
            serving: Vec::with_capacity(ROOM),
            pending: Vec::with_capacity(ROOM),
            untimed: Vec::with_capacity(ROOM),
            now: Instant::ZERO,
            next_timer: Instant::FAR_FUTURE,
            epoll,
            pool,
        })
    }

    /// The congestion control that the sockets get; `None` if they keep the system's.
    pub fn congestion_control(&self) -> Option<&str> {
        self.config.congestion_control.as_deref()
    }

    fn add(&mut self, socket: OwnedFd, state: State) -> Endpoint {
        self.connections.insert(Connection::new(socket, state, self.config.send_queue_bytes))
    }

    /// Lets the kernel report what happens at the connection.
    fn register(&self, endpoint: Endpoint) -> Result<(), rustix::io::Errno> {
        let Some(connection) = self.connections.get(endpoint) else { return Ok(()) };
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &connection.socket, data(endpoint.0, endpoint.generation()), interest)
    }

    /// Puts the connection into the list of those to serve if it has something to do.
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

    /// Takes the edges that the kernel has collected.
    fn take_edges(&mut self) {
        let mut buffer = [MaybeUninit::<epoll::Event>::uninit(); EDGES];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An interrupted call finds its edges at the next poll.
        let Ok((edges, _)) = epoll::wait(&self.epoll, &mut buffer, Some(&at_once)) else { return };
        for edge in edges.iter() {
            let (low, high) = (edge.data.u64() as u32, (edge.data.u64() >> 32) as u32);
            if high == LISTENER {
                self.listeners[low as usize].ready = true;
                continue;
            }
            let endpoint = Endpoint::new(low, high);
            let flags = edge.flags;
            if let Some(connection) = self.connections.get_mut(endpoint) {
                // An error is readable and writable: the next call tells what it is.
                let error = flags.intersects(EventFlags::ERR | EventFlags::HUP);
                connection.hung_up |= error || flags.contains(EventFlags::RDHUP);
                connection.readable |= connection.hung_up || flags.contains(EventFlags::IN);
                connection.writable |= error || flags.contains(EventFlags::OUT);
            }
            self.list(endpoint);
        }
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

    /// Serves every connection that is listed, each once.
    fn serve_ready(&mut self, events: &mut Vec<Event>) -> usize {
        let mut work = 0;
        core::mem::swap(&mut self.ready, &mut self.serving);
        let mut serving = core::mem::take(&mut self.serving);
        for endpoint in serving.drain(..) {
            let Some(connection) = self.connections.get_mut(endpoint) else { continue };
            connection.listed = false;
            let (done, last) = connection.serve(endpoint, &self.config, &mut self.pool, events);
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

    /// Starts the time of those that began to connect or to close, and ends those whose time is over.
    fn expire(&mut self, events: &mut Vec<Event>) {
        for (endpoint, limit) in self.untimed.drain(..) {
            // A connection can be there as soon as it was asked for: then its time is over already, and not running.
            if let Some(connection) = self.connections.get_mut(endpoint)
                && connection.state != State::Open
            {
                connection.deadline = self.now.after(limit);
                self.next_timer = self.next_timer.min(connection.deadline);
            }
        }
        if self.now < self.next_timer {
            return;
        }
        self.next_timer = Instant::FAR_FUTURE;
        for index in 0..self.connections.bound() {
            let Some(endpoint) = self.connections.at(index) else { continue };
            let Some(connection) = self.connections.get(endpoint) else { continue };
            if connection.deadline > self.now {
                self.next_timer = self.next_timer.min(connection.deadline);
                continue;
            }
            events.push(match connection.state {
                State::Connecting => Event::ConnectFailed { endpoint, cause: ConnectCause::TimedOut },
                _ => Event::Broken { endpoint, cause: BrokenCause::TimedOut },
            });
            self.drop_with_reset(endpoint);
        }
    }

    fn fail_later(&mut self, endpoint: Endpoint, event: Event) {
        self.drop_with_reset(endpoint);
        self.pending.push(event);
    }
}

fn data(low: u32, high: u32) -> EventData {
    EventData::new_u64(u64::from(low) | u64::from(high) << 32)
}

impl Dispatcher for Tcp {
    fn listen(&mut self, address: &str) -> Result<ServicePoint, EndpointError> {
        let resolved: SocketAddr = socket::resolve(address)?;
        let (socket, bound) =
            socket::listen(resolved, &self.config).map_err(|error| socket::listen_error(address, error))?;
        let index = self.listeners.len() as u32;
        epoll::add(&self.epoll, &socket, data(index, LISTENER), EventFlags::IN | EventFlags::ET)
            .map_err(|error| socket::listen_error(address, error.into()))?;
        self.listeners.push(Listener::new(socket, bound));
        Ok(ServicePoint(index))
    }

    fn address_of(&self, service_point: ServicePoint) -> Option<String> {
        self.listeners.get(service_point.0 as usize).map(|listener| listener.address.to_string())
    }

    fn connect(&mut self, address: &str) -> Result<Endpoint, EndpointError> {
        let system = |source| EndpointError::System { what: "cannot connect to", address: address.to_owned(), source };
        let resolved = socket::resolve(address)?;
        let (socket, failure) = socket::connect(resolved, &self.config).map_err(system)?;
        let endpoint = self.add(socket, State::Connecting);
        if let Some(cause) = failure {
            self.fail_later(endpoint, Event::ConnectFailed { endpoint, cause });
            return Ok(endpoint);
        }
        self.untimed.push((endpoint, self.config.connect_timeout));
        if let Err(error) = self.register(endpoint) {
            self.drop_with_reset(endpoint);
            return Err(system(error.into()));
        }
        Ok(endpoint)
    }

    fn accept(&mut self, endpoint: Endpoint) {
        match self.connections.get_mut(endpoint) {
            Some(connection) if connection.state == State::Requested => connection.state = State::Open,
            _ => return,
        }
        self.pending.push(Event::Established { endpoint });
        if let Err(error) = self.register(endpoint) {
            self.fail_later(endpoint, Event::Broken { endpoint, cause: socket::broken_cause(error) });
        }
    }

    fn reject(&mut self, endpoint: Endpoint) {
        if self.connections.get(endpoint).is_some_and(|connection| connection.state == State::Requested) {
            self.drop_with_reset(endpoint);
        }
    }

    fn set_owner(&mut self, endpoint: Endpoint, owner: Owner) {
        if let Some(connection) = self.connections.get_mut(endpoint) {
            connection.block.owner = owner;
        }
    }

    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }

    fn pool_mut(&mut self) -> Option<&mut Pool> {
        Some(&mut self.pool)
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

    fn send(&mut self, endpoint: Endpoint, message: &mut Vec<Slice>) -> Result<(), SendError> {
        match self.connections.get_mut(endpoint) {
            Some(connection) if connection.state == State::Open => connection.queue.push(message)?,
            _ => return Err(SendError::Closed),
        }
        self.list(endpoint);
        Ok(())
    }

    fn send_room(&self, endpoint: Endpoint) -> usize {
        match self.connections.get(endpoint) {
            Some(connection) if connection.state == State::Open => connection.queue.room(),
            _ => 0,
        }
    }

    fn queued(&self, endpoint: Endpoint) -> usize {
        self.connections.get(endpoint).map_or(0, |connection| connection.queue.unsettled())
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
        self.untimed.push((endpoint, self.config.close_timeout));
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
        self.take_edges();
        let work = self.take_connections(events) + self.serve_ready(events);
        self.expire(events);
        work.max(events.len() - before)
    }

    fn prepare_wait(&mut self) -> bool {
        if !self.pending.is_empty() || !self.untimed.is_empty() || self.listeners.iter().any(Listener::has_work) {
            return false;
        }
        // Everything that is listed has work, or waits for a block that may have come back meanwhile.
        for &endpoint in &self.ready {
            let Some(connection) = self.connections.get_mut(endpoint) else { continue };
            if connection.has_work() || (connection.wants_block() && connection.refill(&mut self.pool, &self.config)) {
                return false;
            }
        }
        true
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn next_deadline(&self) -> Option<Instant> {
        let dry = self.connections.values().any(Connection::wants_block).then(|| self.now.after(DRY_RETRY));
        let timer = (self.next_timer < Instant::FAR_FUTURE).then_some(self.next_timer);
        let paused = self.listeners.iter().filter_map(|listener| listener.paused_until).min();
        [dry, timer, paused].into_iter().flatten().min()
    }
}
