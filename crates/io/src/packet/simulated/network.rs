//! The simulated network: who receives where, and what is under way.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ropewalk_memory::Staging;
use ropewalk_terms::Instant;

use super::path::Rules;
use super::{PacketFaults, PacketPath, Passage, SimulatedReceiver, SimulatedSender};
use crate::packet::{Flow, PacketError, PacketMemory, ReceiveConfig, SendConfig};
use crate::simulated::Random;

/// A network in virtual time. Everything that happens follows from its seed and from the order of calls; nothing depends
/// on the machine. Clones are the same network.
#[derive(Clone)]
pub struct PacketNetwork {
    state: Arc<Mutex<State>>,
}

/// What became of the packets of a network. Cumulative.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct NetworkCounters {
    /// Packets sent.
    pub sent: u64,
    /// Lost on their way, by chance.
    pub lost: u64,
    /// Sent to where nobody receives.
    pub unreachable: u64,
    /// Arrived a second time.
    pub doubled: u64,
}

/// A packet under way, or waiting.
pub(super) struct Flying {
    pub(super) from: SocketAddrV4,
    pub(super) payload: Vec<u8>,
}

/// What is on its way to one receiver.
#[derive(Default)]
pub(super) struct Inbox {
    /// By time of arrival, then in the order of sending.
    under_way: BTreeMap<(Instant, u64), Flying>,
    waiting: VecDeque<Flying>,
    /// Lost since there were too many.
    pub(super) overflown: u64,
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

    /// The packet that has waited longest.
    pub(super) fn first(&self) -> Option<&Flying> {
        self.waiting.front()
    }

    /// Takes it out.
    pub(super) fn pop(&mut self) {
        self.waiting.pop_front();
    }

    /// How many packets wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When there is something to take.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.waiting.is_empty() { self.under_way.keys().next().map(|key| key.0) } else { Some(Instant::ZERO) }
    }
}

/// Where packets of one flow go.
pub(super) type Place = (Flow, SocketAddrV4);

pub(super) struct State {
    faults: PacketFaults,
    rules: Rules,
    /// What happened since it was asked for; nothing is kept where nobody watches.
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
        let (rules, passages) = (Rules::default(), None);
        let state = State { faults, rules, passages, random, inboxes, counters, next_port: 40_000 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
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
        self.lock().rules = Rules(paths);
    }

    /// From now on it is remembered what becomes of each packet, until [`take_passages`](Self::take_passages).
    pub fn watch(&self) {
        self.lock().passages.get_or_insert_default();
    }

    /// What became of packets since this was asked last; nothing where nobody [watches](Self::watch).
    pub fn take_passages(&self) -> Vec<Passage> {
        self.lock().passages.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What became of the packets.
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

    fn note(&mut self, passage: impl FnOnce() -> Passage) {
        if let Some(passages) = &mut self.passages {
            passages.push(passage());
        }
    }

    /// Sends a packet on its way.
    pub(super) fn send(&mut self, now: Instant, flow: Flow, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
        let faults = self.rules.of(*from.ip(), *to.ip()).unwrap_or(self.faults);
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
        self.note(|| Passage::Sent { at: now, from, to, payload: payload.to_vec(), arrivals });
    }

    /// How many packets may wait at a receiver.
    pub(super) const fn queue(&self) -> usize {
        self.faults.queue
    }

    /// What has come to a receiver by now.
    pub(super) fn inbox(&mut self, place: Place, now: Option<Instant>) -> Option<&mut Inbox> {
        let room = self.faults.queue;
        let inbox = self.inboxes.get_mut(&place)?;
        if let Some(now) = now {
            let passages = &mut self.passages;
            inbox.arrive(now, room, |Flying { from, payload }| {
                let passage = Passage::Overflown { from, to: place.1, payload };
                passages.iter_mut().for_each(|passages| passages.push(passage.clone()));
            });
        }
        Some(inbox)
    }

    /// Nobody receives there any more.
    pub(super) fn leave(&mut self, place: Place) {
        self.inboxes.remove(&place);
    }
}
