//! Packets on a simulated network: virtual time, one seed, and what networks do to packets.
//!
//! The caller passes the time to each call. A driver serves all users at one instant until none has work, then moves to
//! the earliest [`next_deadline`](crate::packet::Receiver::next_deadline).
#![allow(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropewalk_memory::{Payload, Slice, Staging};
use ropewalk_terms::{Cause, Instant};

use super::{
    Fill, Flow, MemoryInUse, Packet, PacketError, PacketMemory, QueueInUse, ReceiveConfig, ReceiveCounters, Receiver,
    Refusal, SendConfig, SendCounters, Sender,
};
use crate::simulated::Random;

/// What goes wrong with packets, and how often. Rates are probabilities from 0 to 1.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct PacketFaults {
    /// How often a packet is lost on its way.
    pub loss: f64,
    /// How often it arrives a second time.
    pub duplication: f64,
    /// How often it is held up, so that later ones overtake it.
    pub disorder: f64,
    /// How long it is held up at most.
    pub held_up: Duration,
    /// How long a packet is under way.
    pub latency: Duration,
    /// Packets that wait at a receiver; further ones are lost there, and counted by it.
    pub queue: usize,
}

impl Default for PacketFaults {
    /// None.
    fn default() -> Self {
        let (latency, held_up) = (Duration::from_micros(20), Duration::from_millis(1));
        Self { loss: 0.0, duplication: 0.0, disorder: 0.0, held_up, latency, queue: 4096 }
    }
}

impl PacketFaults {
    /// Some of everything.
    pub fn nasty() -> Self {
        Self { loss: 0.01, duplication: 0.01, disorder: 0.05, queue: 256, ..Self::default() }
    }
}

/// A network in virtual time. Everything that happens follows from its seed and from the order of calls; nothing depends
/// on the machine. Clones are the same network.
#[derive(Clone)]
pub struct PacketNetwork {
    state: Arc<Mutex<State>>,
}

/// What happened to the packets of a network. Cumulative.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct NetworkCounters {
    /// Packets sent.
    pub sent: u64,
    /// Lost on their way, by chance.
    pub lost: u64,
    /// Sent to an address without a receiver.
    pub unreachable: u64,
    /// Arrived a second time.
    pub doubled: u64,
}

/// A packet under way, or waiting.
struct Flying {
    from: SocketAddrV4,
    payload: Vec<u8>,
}

/// What is on its way to one receiver.
#[derive(Default)]
struct Inbox {
    /// By time of arrival, then in the order of sending.
    under_way: BTreeMap<(Instant, u64), Flying>,
    waiting: VecDeque<Flying>,
    /// Lost since there were too many.
    overflown: u64,
}

impl Inbox {
    /// Lets arrive what is due; `lost` sees what there is no room for.
    fn arrive(&mut self, now: Instant, room: usize, mut lost: impl FnMut(Flying)) {
        while let Some(first) = self.under_way.first_entry().filter(|first| first.key().0 <= now) {
            let packet = first.remove();
            if self.waiting.len() < room {
                self.waiting.push_back(packet);
            } else {
                self.overflown += 1;
                lost(packet);
            }
        }
    }

    /// When there is something to take.
    fn next(&self) -> Option<Instant> {
        if self.waiting.is_empty() { self.under_way.keys().next().map(|key| key.0) } else { Some(Instant::ZERO) }
    }
}

/// Where packets of one flow go.
type Place = (Flow, SocketAddrV4);

struct State {
    faults: PacketFaults,
    /// Paths with faults of their own; the first that a packet belongs to counts.
    paths: Vec<PacketPath>,
    /// What happened since the last request; `None` if nothing is recorded.
    passages: Option<Vec<Passage>>,
    random: Random,
    inboxes: BTreeMap<Place, Inbox>,
    counters: NetworkCounters,
    next_port: u16,
}

impl PacketNetwork {
    /// A network whose chances all come from `seed`.
    pub fn new(seed: u64, faults: PacketFaults) -> Self {
        let (random, inboxes, counters) = (Random::new(seed), BTreeMap::new(), NetworkCounters::default());
        let (paths, passages) = (Vec::new(), None);
        let state = State { faults, paths, passages, random, inboxes, counters, next_port: 40_000 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned network belongs to a test that has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A receiver of a flow at an address; the mechanism is of no account. Without an address it gets 127.0.0.1.
    ///
    /// # Errors
    /// [`PacketError::AddressInUse`].
    pub fn receiver(
        &self,
        config: ReceiveConfig,
        memory: impl Into<PacketMemory>,
    ) -> Result<SimulatedReceiver, PacketError> {
        let mut state = self.lock();
        let SocketAddr::V4(wanted) = config.address else {
            return Err(PacketError::Config { what: "the simulated network has IPv4 alone" });
        };
        let address = state.own_address(config.flow, wanted);
        if state.inboxes.contains_key(&(config.flow, address)) {
            return Err(PacketError::AddressInUse { address: address.into() });
        }
        state.inboxes.insert((config.flow, address), Inbox::default());
        drop(state);
        Ok(SimulatedReceiver::new(self.clone(), config, address, memory.into()))
    }

    /// A sender of a flow from an address; the mechanism is of no account.
    pub fn sender(&self, config: SendConfig, staging: Staging) -> SimulatedSender {
        let address = self.lock().own_address(config.flow, config.address);
        SimulatedSender::new(self.clone(), SendConfig { address, ..config }, staging)
    }

    /// The present faults.
    pub fn faults(&self) -> PacketFaults {
        self.lock().faults
    }

    /// Changes the faults; what is under way already is not changed.
    pub fn set_faults(&self, faults: PacketFaults) {
        self.lock().faults = faults;
    }

    /// On these paths other faults than elsewhere are to be met: a packet meets those of the first path that it belongs to. What
    /// is under way already is not changed, and how many packets wait at a receiver is everywhere the same.
    pub fn set_paths(&self, paths: Vec<PacketPath>) {
        self.lock().paths = paths;
    }

    /// Records what happens to each packet from now on, for [`take_passages`](Self::take_passages).
    pub fn watch(&self) {
        self.lock().passages.get_or_insert_default();
    }

    /// What happened to packets since the last call; empty without [`watch`](Self::watch).
    pub fn take_passages(&self) -> Vec<Passage> {
        self.lock().passages.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Counts what happened to the packets.
    pub fn counters(&self) -> NetworkCounters {
        self.lock().counters
    }
}

impl State {
    fn own_address(&mut self, flow: Flow, wanted: SocketAddrV4) -> SocketAddrV4 {
        let ip = if wanted.ip().is_unspecified() { Ipv4Addr::LOCALHOST } else { *wanted.ip() };
        let port = match (flow, wanted.port()) {
            (Flow::Ip(_), _) => 0,
            (Flow::Udp, 0) => {
                self.next_port += 1;
                self.next_port
            }
            (Flow::Udp, port) => port,
        };
        SocketAddrV4::new(ip, port)
    }

    /// Sends a packet on its way.
    fn send(&mut self, now: Instant, flow: Flow, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
        let mut paths = self.paths.iter();
        let path = paths.find(|path| path.from.contains(from.ip()) && path.to.contains(to.ip()));
        let faults = path.map_or(self.faults, |path| path.faults);
        self.counters.sent += 1;
        let number = self.counters.sent;
        let is_lost = self.random.chance(faults.loss);
        let is_there = self.inboxes.contains_key(&(flow, to));
        let copies = if is_lost || !is_there { 0 } else { 1 + u64::from(self.random.chance(faults.duplication)) };
        self.counters.lost += u64::from(is_lost);
        self.counters.unreachable += u64::from(!is_lost && !is_there);
        self.counters.doubled += copies.saturating_sub(1);
        let mut arrivals = [None; 2];
        for copy in 0..copies {
            let held_up = self.random.chance(faults.disorder);
            let late = if held_up { self.random.between(Duration::ZERO, faults.held_up) } else { Duration::ZERO };
            let arrival = now.after(faults.latency).after(late);
            arrivals[copy as usize] = Some(arrival);
            if let Some(inbox) = self.inboxes.get_mut(&(flow, to)) {
                inbox.under_way.insert((arrival, number << 1 | copy), Flying { from, payload: payload.to_vec() });
            }
        }
        let passage = || Passage::Sent { at: now, from, to, payload: payload.to_vec(), arrivals };
        self.passages.iter_mut().for_each(|passages| passages.push(passage()));
    }

    /// A receiver's inbox, with all packets that have arrived by now.
    fn inbox(&mut self, place: Place, now: Instant) -> Option<&mut Inbox> {
        let inbox = self.inboxes.get_mut(&place)?;
        inbox.arrive(now, self.faults.queue, |Flying { from, payload }| {
            self.passages.iter_mut().for_each(|passages| {
                passages.push(Passage::Overflown { from, to: place.1, payload: payload.clone() });
            });
        });
        Some(inbox)
    }
}

/// The way from some hosts to others.
#[derive(Clone, PartialEq, Debug)]
pub struct PacketPath {
    /// The senders' addresses.
    pub from: RangeInclusive<Ipv4Addr>,
    /// The receivers' addresses.
    pub to: RangeInclusive<Ipv4Addr>,
    /// What goes wrong between them; the room at receivers is ignored here.
    pub faults: PacketFaults,
}

/// What happened to a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Passage {
    /// It was sent.
    Sent {
        /// When.
        at: Instant,
        /// The sender.
        from: SocketAddrV4,
        /// The destination.
        to: SocketAddrV4,
        /// What was in it.
        payload: Vec<u8>,
        /// When it arrives, and when a second time: never if it is lost, or there is no receiver.
        arrivals: [Option<Instant>; 2],
    },
    /// It arrived where too many waited already, and was lost.
    Overflown {
        /// The sender.
        from: SocketAddrV4,
        /// Where there was no room.
        to: SocketAddrV4,
        /// What was in it.
        payload: Vec<u8>,
    },
}

/// The most that UDP carries.
const LARGEST: usize = 65_507;

/// Sends a flow on a [`PacketNetwork`].
pub struct SimulatedSender {
    network: PacketNetwork,
    config: SendConfig,
    queue: Vec<(SocketAddrV4, Vec<u8>)>,
    /// A real sender runs dry too.
    staging: Staging,
    counters: SendCounters,
}

impl SimulatedSender {
    fn new(network: PacketNetwork, config: SendConfig, staging: Staging) -> Self {
        Self { network, config, queue: Vec::new(), staging, counters: SendCounters::default() }
    }

    fn check(&self, bytes: usize) -> Result<(), Refusal> {
        if bytes > LARGEST {
            Err(Refusal::TooLarge)
        } else if self.queue.len() >= self.config.batch {
            Err(Refusal::Full)
        } else {
            Ok(())
        }
    }
}

impl Sender for SimulatedSender {
    fn send(&mut self, to: SocketAddrV4, payload: &mut Vec<Slice>) -> Result<(), Refusal> {
        self.check(payload.iter().map(|slice| slice.len()).sum())?;
        self.queue.push((to, payload.drain(..).flat_map(|slice| slice.to_vec()).collect()));
        Ok(())
    }

    fn send_with(&mut self, to: SocketAddrV4, most: usize, fill: Fill<'_>) -> Result<(), Refusal> {
        self.check(most)?;
        if most > self.staging.largest() {
            return Err(Refusal::TooLarge);
        }
        self.staging.room(most.max(1)).ok_or(Refusal::Full)?;
        let piece = self.staging.write_with(most, fill);
        self.queue.push((to, piece.map_or_else(Vec::new, |piece| piece.to_vec())));
        Ok(())
    }

    fn flush(&mut self, now: Instant) -> usize {
        let mut network = self.network.lock();
        let sent = self.queue.len();
        for (to, payload) in self.queue.drain(..) {
            let port = if self.config.flow == Flow::Udp { to.port() } else { 0 };
            let to = SocketAddrV4::new(*to.ip(), port);
            network.send(now, self.config.flow, self.config.address, to, &payload);
            self.counters.packets += 1;
            self.counters.bytes += payload.len() as u64;
        }
        self.counters.calls += u64::from(sent > 0);
        sent
    }

    fn queued(&self) -> usize {
        self.queue.len()
    }

    fn largest(&self) -> usize {
        LARGEST
    }

    fn address(&self) -> SocketAddrV4 {
        self.config.address
    }

    fn counters(&self) -> SendCounters {
        SendCounters { bytes_copied: self.staging.copied(), ..self.counters }
    }
}

/// Receives a flow of a [`PacketNetwork`].
pub struct SimulatedReceiver {
    network: PacketNetwork,
    config: ReceiveConfig,
    place: Place,
    memory: PacketMemory,
    counters: ReceiveCounters,
}

impl SimulatedReceiver {
    fn new(network: PacketNetwork, config: ReceiveConfig, address: SocketAddrV4, memory: PacketMemory) -> Self {
        let place = (config.flow, address);
        Self { network, config, place, memory, counters: ReceiveCounters::default() }
    }
}

/// Copies a packet into memory; `None` without room.
fn store(memory: &mut PacketMemory, bytes: &[u8]) -> Option<Payload> {
    if bytes.is_empty() {
        return Some(Payload::default());
    }
    let (start, _) = memory.room(bytes.len())?;
    // SAFETY: the room has at least so many bytes, and nothing else refers to them; then they are written.
    let slice = unsafe {
        start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        memory.take(bytes.len(), 0)
    };
    slice.map(Payload::from)
}

impl Receiver for SimulatedReceiver {
    fn receive(&mut self, now: Instant, packets: &mut Vec<Packet>) -> usize {
        let before = packets.len();
        let mut network = self.network.lock();
        let Some(inbox) = network.inbox(self.place, now) else { return 0 };
        while packets.len() - before < self.config.batch
            && let Some(first) = inbox.waiting.front()
        {
            if first.payload.len() > self.config.largest {
                self.counters.lost.add(Cause::Truncated, 1);
                inbox.waiting.pop_front();
                continue;
            }
            let Some(payload) = store(&mut self.memory, &first.payload) else {
                self.counters.dry += 1;
                break;
            };
            self.counters.packets += 1;
            self.counters.bytes += payload.len() as u64;
            packets.push(Packet { from: first.from.into(), to: 0, payload, came: None });
            inbox.waiting.pop_front();
        }
        self.counters.calls += 1;
        packets.len() - before
    }

    fn address(&self) -> SocketAddr {
        self.place.1.into()
    }

    fn prepare_wait(&mut self) -> bool {
        self.next_deadline() != Some(Instant::ZERO)
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.network.lock().inboxes.get(&self.place)?.next()
    }

    fn counters(&mut self) -> ReceiveCounters {
        if let Some(inbox) = self.network.lock().inboxes.get(&self.place) {
            self.counters.lost.set(Cause::SocketQueueFull, inbox.overflown);
        }
        self.counters
    }

    fn memory_in_use(&mut self) -> MemoryInUse {
        self.memory.in_use()
    }

    /// A packet counts as 1, however long it is.
    fn queue_in_use(&mut self) -> QueueInUse {
        let network = self.network.lock();
        let used = network.inboxes.get(&self.place).map_or(0, |inbox| inbox.waiting.len() as u64);
        QueueInUse { used, room: network.faults.queue as u64, packet: 1 }
    }
}

impl Drop for SimulatedReceiver {
    fn drop(&mut self) {
        self.network.lock().inboxes.remove(&self.place);
    }
}

#[cfg(test)]
mod tests {

    //! What the network does to packets, and that a seed decides it.

    use std::net::Ipv4Addr;
    use std::time::Duration;

    use ropewalk_memory::{Pool, PoolConfig, Staging};
    use ropewalk_terms::{Cause, Instant};

    use super::*;
    use crate::packet::{ANY, Flow, Packet, ReceiveConfig, Receiver, SendConfig, Sender};

    fn pool() -> Pool {
        Pool::new(PoolConfig::heap("packets", 4096, 64)).expect("memory")
    }

    fn pair(network: &PacketNetwork) -> (SimulatedSender, SimulatedReceiver) {
        let sender = network.sender(SendConfig::new(Flow::Udp, ANY), Staging::new(pool()));
        (sender, network.receiver(ReceiveConfig::new(Flow::Udp, ANY), pool()).expect("a free port"))
    }

    /// Sends packets with these numbers, one each millisecond; what comes, in its order.
    fn transmit(network: &PacketNetwork, numbers: core::ops::Range<u64>) -> (Vec<u64>, u64) {
        let (mut sender, mut receiver) = pair(network);
        let (mut came, mut packets) = (Vec::new(), Vec::new());
        for number in numbers.clone().chain([u64::MAX; 5]) {
            let now = Instant::ZERO.after(Duration::from_micros(100 * number.min(numbers.end + 100)));
            if number < u64::MAX {
                let fill = &mut |room: &mut [u8]| {
                    room[..8].copy_from_slice(&number.to_le_bytes());
                    8
                };
                sender.send_with(receiver.address_v4(), 8, fill).expect("room");
                sender.flush(now);
            }
            receiver.receive(now, &mut packets);
            came.extend(
                packets.drain(..).filter_map(|Packet { payload, .. }| payload.read_array(0).map(u64::from_le_bytes)),
            );
        }
        (came, receiver.counters().packets)
    }

    #[test]
    fn without_faults_all_packets_come_in_order() {
        let network = PacketNetwork::new(1, PacketFaults::default());
        assert_eq!(transmit(&network, 0..1000), ((0..1000).collect(), 1000));
        assert_eq!(network.counters(), NetworkCounters { sent: 1000, ..NetworkCounters::default() });
    }

    #[test]
    fn what_is_lost_doubled_and_overtaken_follows_from_the_seed_and_is_counted() {
        let of = |seed| {
            let network = PacketNetwork::new(seed, PacketFaults::nasty());
            let (came, _) = transmit(&network, 0..10_000);
            (came, network.counters())
        };
        let (came, counters) = of(7);
        assert_eq!((&came, counters), (&of(7).0, of(7).1));
        assert_ne!(came, of(8).0);
        assert_eq!(came.len() as u64, counters.sent - counters.lost + counters.doubled);
        assert!((50..200).contains(&counters.lost) && (50..200).contains(&counters.doubled), "{counters:?}");
        let overtaken = came.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!(overtaken > 100, "{overtaken}");
    }

    #[test]
    fn a_receiver_that_is_too_slow_counts_what_it_lost() {
        let network = PacketNetwork::new(1, PacketFaults { queue: 10, ..PacketFaults::default() });
        let (mut sender, mut receiver) = pair(&network);
        for _ in 0..30 {
            sender.send_with(receiver.address_v4(), 1, &mut |_| 1).expect("room");
        }
        assert_eq!(sender.flush(Instant::ZERO), 30);
        let now = receiver.next_deadline().expect("packets are under way");
        assert_eq!(now, Instant::ZERO.after(Duration::from_micros(20)));
        let mut packets = Vec::new();
        assert_eq!(receiver.receive(now, &mut packets), 10);
        assert_eq!(receiver.counters().lost.get(Cause::SocketQueueFull), 20);
    }

    #[test]
    fn flows_and_addresses_are_apart_and_one_receives_at_each() {
        let network = PacketNetwork::new(1, PacketFaults::default());
        let address = "10.0.0.1:0".parse().expect("an address");
        let raw = |number| network.receiver(ReceiveConfig::new(Flow::Ip(number), address), pool());
        let (mut first, mut second) = (raw(253).expect("a free address"), raw(254).expect("another protocol"));
        assert!(raw(253).is_err());
        let mut sender = network.sender(SendConfig::new(Flow::Ip(254), ANY), Staging::new(pool()));
        sender.send_with("10.0.0.1:99".parse().expect("an address"), 1, &mut |_| 1).expect("room");
        sender.flush(Instant::ZERO);
        let (now, mut packets) = (Instant::from_nanoseconds(1_000_000), Vec::new());
        assert_eq!((first.receive(now, &mut packets), second.receive(now, &mut packets)), (0, 1));
        drop(second);
        sender.send_with(address, 1, &mut |_| 1).expect("room");
        sender.flush(now);
        assert_eq!(network.counters().unreachable, 1);
        assert!(raw(254).is_ok());
    }

    #[test]
    fn a_path_has_faults_of_its_own_and_a_watcher_sees_what_becomes_of_each_packet() {
        let network = PacketNetwork::new(1, PacketFaults { queue: 1, ..PacketFaults::default() });
        let (mut sender, mut receiver) = pair(&network);
        let home = Ipv4Addr::LOCALHOST;
        network.watch();
        let send = |sender: &mut SimulatedSender, receiver: &SimulatedReceiver, number: u8| {
            let mut fill = |room: &mut [u8]| {
                room[0] = number;
                1
            };
            sender.send_with(receiver.address_v4(), 1, &mut fill).expect("room");
            sender.flush(Instant::ZERO);
        };
        let path = |faults| PacketPath { from: home..=home, to: home..=home, faults };
        let lossy = PacketFaults { loss: 1.0, ..PacketFaults::default() };
        let slow = PacketFaults { latency: Duration::from_millis(7), ..PacketFaults::default() };
        network.set_paths(vec![path(lossy), path(slow)]);
        send(&mut sender, &receiver, 1);
        network.set_paths(vec![path(slow)]);
        send(&mut sender, &receiver, 2);
        send(&mut sender, &receiver, 3);
        let (later, mut packets) = (Instant::ZERO.after(Duration::from_millis(7)), Vec::new());
        assert_eq!((receiver.receive(later, &mut packets), receiver.next_deadline()), (1, None));
        let seen = network.take_passages().into_iter().map(|passage| match passage {
            Passage::Sent { payload, arrivals, .. } => (payload[0], arrivals[0]),
            Passage::Overflown { payload, .. } => (10 * payload[0], None),
        });
        assert_eq!(seen.collect::<Vec<_>>(), [(1, None), (2, Some(later)), (3, Some(later)), (30, None)]);
        assert_eq!(network.take_passages(), []);
    }
}
