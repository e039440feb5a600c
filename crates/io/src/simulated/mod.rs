//! Endpoints on a simulated network: virtual time, one seed, and the fault model of the project.
//!
//! [`poll`](crate::Dispatcher::poll) gets the time as an argument. A driver polls all dispatchers at one instant until
//! none has work, then moves to the earliest [`next_deadline`](crate::Dispatcher::next_deadline). As over a
//! real network, received bytes are copied into the receiver's own pool.

mod connection;
mod network;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ropewalk_memory::{Loan, Owner, Pool, Slice};
use ropewalk_terms::Instant;

use self::connection::{Connection, Context, End, State};
use self::network::Request;
use crate::endpoint::{
    ConnectCause, Dispatcher, Endpoint, EndpointError, Event, Peer, SendError, SendLimits, ServicePoint,
};
use crate::endpoint_state::Slots;

pub use self::network::Network;

/// How soon an endpoint whose quota is used up looks again whether blocks came back.
const DRY_RETRY: Duration = Duration::from_micros(500);

/// Sizes of a simulated dispatcher.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SimulatedConfig {
    /// Bytes that the send queue of one endpoint holds (a single larger message is taken when it is empty).
    pub send_queue_bytes: usize,
    /// Bytes read from one endpoint in one poll.
    pub receive_batch_bytes: usize,
    /// The tail of a block that is still read into, in bytes.
    pub smallest_receive: usize,
}

impl Default for SimulatedConfig {
    fn default() -> Self {
        Self { send_queue_bytes: 4 << 20, receive_batch_bytes: 1 << 20, smallest_receive: 1 }
    }
}

/// A dispatcher of a simulated [`Network`], with its receive pool.
pub struct Simulated {
    network: Network,
    host: u32,
    config: SimulatedConfig,
    names: Vec<String>,
    connections: Slots<Connection>,
    /// Events that calls between two polls brought about.
    pending: Vec<Event>,
    pool: Pool,
}

impl Simulated {
    fn new(network: Network, host: u32, config: SimulatedConfig, pool: Pool) -> Self {
        let (names, connections, pending) = (Vec::new(), Slots::new(), Vec::new());
        Self { network, host, config, names, connections, pending, pool }
    }

    /// The number of the host, for [`Network::partition`] and the like.
    pub const fn host(&self) -> u32 {
        self.host
    }

    /// The number of the connection that an endpoint is one end of, the same at both; never used twice.
    pub fn connection(&self, endpoint: Endpoint) -> Option<u64> {
        self.connections.get(endpoint).map(|connection| connection.wire)
    }

    fn add(&mut self, wire: u64, side: usize, state: State) -> Endpoint {
        let endpoint = self.connections.insert(Connection::new(wire, side, state, self.config.send_queue_bytes));
        if let Some(wire) = self.network.lock().wires.get_mut(&wire) {
            wire.names[side] = Some(endpoint);
        }
        endpoint
    }

    /// Forgets the endpoint; its direction ends with `end` unless it ended before.
    fn remove(&mut self, endpoint: Endpoint, end: End) {
        if let Some(Connection { wire, side, .. }) = self.connections.remove(endpoint) {
            let mut network = self.network.lock();
            network.end(wire, side, end);
            network.forget(wire, side);
        }
    }

    fn take_requests(&mut self, events: &mut Vec<Event>) {
        loop {
            let next = self.network.lock().next_request(self.host);
            let Some((Request { service_point, wire, .. }, peer)) = next else { return };
            let endpoint = self.add(wire, 1, State::Requested);
            events.push(Event::ConnectionRequest { service_point, endpoint, peer: Peer::Dispatcher(peer) });
        }
    }

    fn serve(&mut self, endpoint: Endpoint, events: &mut Vec<Event>) -> usize {
        let Some(connection) = self.connections.get_mut(endpoint) else { return 0 };
        let mut context = Context { config: &self.config, pool: &mut self.pool, events };
        let (work, last) = connection.serve(endpoint, &mut self.network.lock(), &mut context);
        let Some(last) = last else { return work };
        self.remove(endpoint, if matches!(last, Event::Disconnected { .. }) { End::Closed } else { End::Reset });
        events.push(last);
        work + 1
    }
}

impl Dispatcher for Simulated {
    fn listen(&mut self, address: &str) -> Result<ServicePoint, EndpointError> {
        let service_point = ServicePoint(self.names.len() as u32);
        let name = self.network.lock().listen(address, self.host, service_point)?;
        self.names.push(name);
        Ok(service_point)
    }

    fn address_of(&self, service_point: ServicePoint) -> Option<String> {
        self.names.get(service_point.0 as usize).cloned()
    }

    fn connect(&mut self, address: &str) -> Result<Endpoint, EndpointError> {
        let wire = self.network.lock().connect(self.host, address);
        Ok(self.add(wire, 0, State::Connecting))
    }

    fn accept(&mut self, endpoint: Endpoint) {
        if let Some(connection) = self.connections.get_mut(endpoint)
            && connection.state == State::Requested
        {
            connection.state = State::Open;
            self.network.lock().answer(connection.wire, Ok(()));
            self.pending.push(Event::Established { endpoint });
        }
    }

    fn reject(&mut self, endpoint: Endpoint) {
        let Some(connection) = self.connections.get(endpoint) else { return };
        if connection.state == State::Requested {
            self.network.lock().answer(connection.wire, Err(ConnectCause::Rejected));
            self.remove(endpoint, End::Closed);
        }
    }

    fn set_owner(&mut self, endpoint: Endpoint, owner: Owner) {
        if let Some(connection) = self.connections.get_mut(endpoint) {
            connection.block.set_owner(owner);
        }
    }

    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }

    fn pool_mut(&mut self) -> Option<&mut Pool> {
        Some(&mut self.pool)
    }

    fn post_block(&mut self, endpoint: Endpoint, block: Loan) -> Result<(), Loan> {
        match self.connections.get_mut(endpoint) {
            Some(connection) if connection.state != State::Closing => connection.block.post(block),
            _ => return Err(block),
        }
        Ok(())
    }

    fn set_reading(&mut self, endpoint: Endpoint, reading: bool) {
        if let Some(connection) = self.connections.get_mut(endpoint) {
            connection.reading = reading;
        }
    }

    fn is_dry(&self, endpoint: Endpoint) -> bool {
        let network = self.network.lock();
        self.connections.get(endpoint).is_some_and(|connection| connection.waits_for_block(&network))
    }

    fn peer_has_ended(&self, endpoint: Endpoint) -> bool {
        self.connections.get(endpoint).is_some_and(|connection| connection.peer_has_ended(&self.network.lock()))
    }

    fn has_waiting(&self, endpoint: Endpoint) -> bool {
        self.connections.get(endpoint).is_some_and(|connection| connection.has_waiting(&self.network.lock()))
    }

    fn peek(&mut self, endpoint: Endpoint, head: &mut [u8]) -> Option<usize> {
        self.connections.get(endpoint)?.peek(&self.network.lock(), head)
    }

    fn send(&mut self, endpoint: Endpoint, message: &mut Vec<Slice>) -> Result<(), SendError> {
        match self.connections.get_mut(endpoint) {
            Some(connection) if connection.may_send() => connection.queue.push(message),
            _ => Err(SendError::Closed),
        }
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
            State::Open => {
                connection.state = State::Closing;
                connection.block.give_back();
            }
            State::Closing => {}
            State::Connecting | State::Requested => {
                self.remove(endpoint, End::Reset);
                self.pending.push(Event::Disconnected { endpoint });
            }
        }
    }

    fn abort(&mut self, endpoint: Endpoint) {
        self.remove(endpoint, End::Reset);
        self.pending.retain(|event| event.endpoint() != endpoint);
    }

    fn poll(&mut self, now: Instant, events: &mut Vec<Event>) -> usize {
        let before = events.len();
        {
            let mut network = self.network.lock();
            network.now = network.now.max(now);
        }
        events.append(&mut self.pending);
        self.take_requests(events);
        let mut work = events.len() - before;
        for index in 0..self.connections.bound() {
            if let Some(endpoint) = self.connections.at(index) {
                work += self.serve(endpoint, events);
            }
        }
        work.max(events.len() - before)
    }

    fn prepare_wait(&mut self) -> bool {
        let now = self.network.lock().now;
        self.pending.is_empty() && self.next_deadline().is_none_or(|deadline| deadline > now)
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        let network = self.network.lock();
        let requests = network.requests_of(self.host).map(|request| request.arrival);
        let connections = self.connections.values().filter_map(|connection| connection.next_time(&network));
        let dry = self.connections.values().any(|connection| connection.waits_for_block(&network));
        requests.chain(connections).chain(dry.then(|| network.now.after(DRY_RETRY))).min()
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        for index in 0..self.connections.bound() {
            if let Some(endpoint) = self.connections.at(index) {
                // What was closed and is on its way still arrives; everything else breaks.
                let flushed = self.connections.get(endpoint).is_some_and(Connection::is_flushed);
                self.remove(endpoint, if flushed { End::Closed } else { End::Reset });
            }
        }
        self.network.lock().leave(self.host);
    }
}

/// The settings of a simulated [`Network`]. Rates are probabilities from 0 to 1.
///
/// [`Faults::default`] is a fast network without faults; [`Faults::nasty`] has some of everything.
#[derive(Clone, PartialEq, Debug)]
pub struct Faults {
    /// The shortest time that bytes are under way.
    pub least_latency: Duration,
    /// The longest time that bytes are under way, except for outliers.
    pub most_latency: Duration,
    /// How often a segment takes [`Faults::outlier_latency`] instead.
    pub outlier: f64,
    /// How long an outlier takes.
    pub outlier_latency: Duration,
    /// Bytes a second in each direction of a connection; `None` for no limit.
    pub bandwidth: Option<u64>,
    /// Bytes that may be sent and not yet read: TCP's window and both socket buffers.
    pub window: usize,
    /// The most that travels as one segment, in bytes.
    pub segment: usize,
    /// How often a connection is refused although there is a listener.
    pub refuse: f64,
    /// How often a segment is answered by a reset of its connection, which breaks at both ends.
    pub reset: f64,
    /// How often a segment is the last that its connection carries: the peer is gone without notice.
    pub half_open: f64,
    /// How often a read gives less than there is, in half of the cases one byte.
    pub short_read: f64,
    /// How often a write takes less than there is room for, in half of the cases one byte.
    pub short_write: f64,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long an established connection lasts that carries nothing (partition, half-open).
    pub give_up: Duration,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            least_latency: Duration::from_micros(20),
            most_latency: Duration::from_micros(20),
            outlier: 0.0,
            outlier_latency: Duration::from_millis(5),
            bandwidth: None,
            window: 1 << 20,
            segment: 64 << 10,
            refuse: 0.0,
            reset: 0.0,
            half_open: 0.0,
            short_read: 0.0,
            short_write: 0.0,
            connect_timeout: Duration::from_secs(10),
            give_up: Duration::from_secs(30),
        }
    }
}

impl Faults {
    /// Some of everything that breaks no connection: spread latency with outliers, a small window, short
    /// reads and writes.
    pub fn bumpy() -> Self {
        Self {
            most_latency: Duration::from_micros(500),
            outlier: 0.01,
            bandwidth: Some(1 << 30),
            window: 50_000,
            segment: 9_000,
            short_read: 0.3,
            short_write: 0.3,
            ..Self::default()
        }
    }

    /// Some of everything.
    pub fn nasty() -> Self {
        Self { refuse: 0.1, reset: 0.001, half_open: 0.000_5, give_up: Duration::from_secs(2), ..Self::bumpy() }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator of its own for part `number` of what this one's seed decides.
    pub(crate) fn part(&self, number: u64) -> Self {
        let mut part = Self { state: self.state ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93) };
        Self { state: part.next() }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with this probability, from 0 to 1. Draws only if it matters, so that a fault that is switched
    /// off does not shift the others.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// A duration from `least` to `most`.
    pub(crate) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let spread = most.saturating_sub(least).as_nanos().min(u128::from(u64::MAX - 1)) as u64;
        if spread == 0 { least } else { least + Duration::from_nanos(self.below(spread + 1)) }
    }

    /// A length from 1 to `length`, one in half of the cases (the hardest cut there is).
    pub(crate) fn cut(&mut self, length: usize) -> usize {
        if self.chance(0.5) { 1.min(length) } else { 1 + self.below(length as u64) as usize }.min(length)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_parts_differ() {
        let numbers = |mut random: Random| -> Vec<u64> { (0..4).map(|_| random.next()).collect() };
        assert_eq!(numbers(Random::new(7)), numbers(Random::new(7)));
        assert_ne!(numbers(Random::new(7)), numbers(Random::new(8)));
        assert_ne!(numbers(Random::new(7).part(1)), numbers(Random::new(7).part(2)));
    }

    #[test]
    fn chances_and_ranges_hold() {
        let mut random = Random::new(1);
        let hits = (0..10_000).filter(|_| random.chance(0.25)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!random.chance(0.0) && random.chance(1.0));
        for _ in 0..1_000 {
            assert!(random.below(3) < 3);
            assert!((1..=5).contains(&random.cut(5)));
            let (least, most) = (Duration::from_nanos(10), Duration::from_nanos(12));
            assert!((least..=most).contains(&random.between(least, most)));
        }
        assert_eq!(random.below(0), 0);
    }
}
