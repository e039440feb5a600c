//! The simulated network: its listeners, what is under way, what is cut.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropewalk_memory::Pool;
use ropewalk_terms::Instant;

use super::connection::{Direction, End, Wire, latency};
use super::{Faults, Random, Simulated, SimulatedConfig};
use crate::endpoint::{ConnectCause, Endpoint, EndpointError, ServicePoint};

/// A network in virtual time. Everything that happens follows from its seed and from the order of calls;
/// nothing depends on the machine. Clones are the same network.
#[derive(Clone)]
pub struct Network {
    state: Arc<Mutex<State>>,
}

/// A connection request under way.
pub(super) struct Request {
    pub(super) arrival: Instant,
    pub(super) service_point: ServicePoint,
    pub(super) wire: u64,
}

pub(super) struct State {
    /// The latest time that any dispatcher was polled at.
    pub(super) now: Instant,
    pub(super) faults: Faults,
    /// Faults between two hosts, the lower number first, if they differ from the rest.
    pub(super) links: BTreeMap<(u32, u32), Faults>,
    random: Random,
    listeners: BTreeMap<String, (u32, ServicePoint)>,
    /// By listening host.
    requests: Vec<Vec<Request>>,
    pub(super) wires: BTreeMap<u64, Wire>,
    /// From, to: since when nothing arrives.
    partitions: BTreeMap<(u32, u32), Instant>,
    next_port: u32,
    next_wire: u64,
}

impl Network {
    /// A network whose chances all come from `seed`.
    pub fn new(seed: u64, faults: Faults) -> Self {
        let state = State {
            now: Instant::ZERO,
            faults,
            links: BTreeMap::new(),
            random: Random::new(seed),
            listeners: BTreeMap::new(),
            requests: Vec::new(),
            wires: BTreeMap::new(),
            partitions: BTreeMap::new(),
            next_port: 0,
            next_wire: 0,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned network belongs to a test that has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A dispatcher, on a host of its own, that receives into `pool`.
    pub fn dispatcher(&self, config: SimulatedConfig, pool: Pool) -> Simulated {
        let mut state = self.lock();
        state.requests.push(Vec::new());
        let host = state.requests.len() as u32 - 1;
        drop(state);
        Simulated::new(self.clone(), host, config, pool)
    }

    /// The present faults.
    pub fn faults(&self) -> Faults {
        self.lock().faults.clone()
    }

    /// Changes the faults; what is under way already is not changed.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Gives what travels between two hosts faults of its own; what is under way already is not changed. With `None` it
    /// is the network's again, and what waited on a slow link arrives now.
    pub fn set_link(&self, a: u32, b: u32, faults: Option<Faults>) {
        let (link, mut state) = ((a.min(b), a.max(b)), self.lock());
        match faults {
            Some(faults) => drop(state.links.insert(link, faults)),
            None => state.mend_link(link),
        }
    }

    /// The connections that a host knows of, oldest first: the host at the other end and what this one calls it.
    pub fn connections_of(&self, host: u32) -> Vec<(u32, Endpoint)> {
        let state = self.lock();
        let sides = state.wires.values().flat_map(|wire| (0..2).map(move |side| (wire, side)));
        let own = sides.filter(|(wire, side)| wire.hosts[*side] == host);
        own.filter_map(|(wire, side)| Some((wire.hosts[1 - side], wire.names[side]?))).collect()
    }

    /// Lets nothing pass between two hosts (numbers of [`Simulated::host`]), in both ways, until they are
    /// [healed](Self::heal). Connections that carry nothing for [`Faults::give_up`] break.
    pub fn partition(&self, a: u32, b: u32) {
        self.partition_one_way(a, b);
        self.partition_one_way(b, a);
    }

    /// Lets nothing pass from one host to another; the other way stays open.
    pub fn partition_one_way(&self, from: u32, to: u32) {
        let mut state = self.lock();
        let now = state.now;
        state.partitions.entry((from, to)).or_insert(now);
    }

    /// Ends a partition, both ways. What was held back arrives now.
    pub fn heal(&self, a: u32, b: u32) {
        let mut state = self.lock();
        state.heal(a, b);
        state.heal(b, a);
    }

    /// Breaks a connection at both ends, given one of them.
    pub fn reset(&self, host: u32, endpoint: Endpoint) {
        let mut state = self.lock();
        let (now, all, links) = (state.now, state.faults.clone(), state.links.clone());
        if let Some(wire) = state.find(host, endpoint) {
            wire.reset(now, between(&all, &links, wire.hosts));
        }
    }

    /// Lets a connection carry nothing more, without a word to either end, given one of them.
    pub fn half_open(&self, host: u32, endpoint: Endpoint) {
        let mut state = self.lock();
        let now = state.now;
        if let Some(wire) = state.find(host, endpoint) {
            wire.silent_since.get_or_insert(now);
        }
    }

    /// Takes a host off the network without a word: its connections carry nothing more, its names are gone.
    /// (A process that dies alone is a dropped [`Simulated`]: its connections are reset.)
    pub fn power_off(&self, host: u32) {
        let mut state = self.lock();
        let now = state.now;
        state.listeners.retain(|_, (listener, _)| *listener != host);
        for wire in state.wires.values_mut().filter(|wire| wire.hosts.contains(&host)) {
            wire.silent_since.get_or_insert(now);
        }
    }
}

/// The faults of what travels between two hosts.
pub(super) fn between<'a>(all: &'a Faults, links: &'a BTreeMap<(u32, u32), Faults>, [a, b]: [u32; 2]) -> &'a Faults {
    links.get(&(a.min(b), a.max(b))).unwrap_or(all)
}

impl State {
    /// The faults of a connection.
    pub(super) fn faults_of(&self, wire: &Wire) -> &Faults {
        between(&self.faults, &self.links, wire.hosts)
    }

    fn find(&mut self, host: u32, endpoint: Endpoint) -> Option<&mut Wire> {
        self.wires
            .values_mut()
            .find(|wire| (0..2).any(|side| wire.hosts[side] == host && wire.names[side] == Some(endpoint)))
    }

    /// A link is as good as all others again.
    fn mend_link(&mut self, link: (u32, u32)) {
        if self.links.remove(&link).is_none() {
            return;
        }
        let (now, faults) = (self.now, &self.faults);
        for wire in self.wires.values_mut() {
            if (wire.hosts[0].min(wire.hosts[1]), wire.hosts[0].max(wire.hosts[1])) == link {
                for direction in &mut wire.directions {
                    let soon = now.after(latency(faults, &mut direction.random));
                    direction.hurry_to(soon);
                }
            }
        }
    }

    fn heal(&mut self, from: u32, to: u32) {
        if self.partitions.remove(&(from, to)).is_none() {
            return;
        }
        let now = self.now;
        for wire in self.wires.values_mut() {
            let faults = between(&self.faults, &self.links, wire.hosts);
            for side in 0..2 {
                if (wire.hosts[side], wire.hosts[1 - side]) == (from, to) {
                    let direction = &mut wire.directions[side];
                    let late = now.after(latency(faults, &mut direction.random));
                    direction.delay_to(late);
                }
            }
        }
    }

    /// Since when the connection carries nothing in at least one way.
    pub(super) fn unreachable_since(&self, wire: &Wire) -> Option<Instant> {
        let [a, b] = wire.hosts;
        let cut = |from, to| self.partitions.get(&(from, to)).copied();
        [wire.silent_since, cut(a, b), cut(b, a)].into_iter().flatten().min()
    }

    /// Whether what this side sends arrives.
    pub(super) fn passes(&self, wire: &Wire, side: usize) -> bool {
        wire.silent_since.is_none() && !self.partitions.contains_key(&(wire.hosts[side], wire.hosts[1 - side]))
    }

    pub(super) fn listen(
        &mut self,
        address: &str,
        host: u32,
        service_point: ServicePoint,
    ) -> Result<String, EndpointError> {
        let mut name = address.to_owned();
        if name.is_empty() {
            return Err(EndpointError::BadAddress { address: name, expected: "a name that is not empty" });
        }
        if let Some(prefix) = address.strip_suffix(":0") {
            while name == address || self.listeners.contains_key(&name) {
                self.next_port += 1;
                name = format!("{prefix}:{}", self.next_port);
            }
        }
        if self.listeners.contains_key(&name) {
            return Err(EndpointError::AddressInUse { address: name });
        }
        self.listeners.insert(name.clone(), (host, service_point));
        Ok(name)
    }

    /// Begins a connection; returns its wire.
    pub(super) fn connect(&mut self, host: u32, address: &str) -> u64 {
        let (now, number) = (self.now, self.next_wire);
        self.next_wire += 1;
        let random = self.random.part(number);
        let mut there = Direction::new(random.part(1));
        let listening = self.listeners.get(address).copied();
        let hosts = [host, listening.map_or(host, |(host, _)| host)];
        let faults = between(&self.faults, &self.links, hosts);
        let arrival = now.after(latency(faults, &mut there.random));
        let refused = self.random.chance(faults.refuse);
        let listener = listening.filter(|_| !refused);
        let back = latency(faults, &mut there.random);
        let answer = listener.is_none().then_some((Err(ConnectCause::Refused), arrival.after(back)));
        let wire = Wire {
            hosts: [host, listener.map_or(host, |(host, _)| host)],
            names: [None; 2],
            directions: [there, Direction::new(random.part(2))],
            answer,
            connect_deadline: now.after(faults.connect_timeout),
            silent_since: None,
        };
        if let Some((listening, service_point)) = listener {
            self.requests[listening as usize].push(Request { arrival, service_point, wire: number });
        }
        self.wires.insert(number, wire);
        number
    }

    /// The requests that can reach a host, arrived or not.
    pub(super) fn requests_of(&self, host: u32) -> impl Iterator<Item = &Request> {
        let passes = |request: &&Request| self.wires.get(&request.wire).is_none_or(|wire| self.passes(wire, 0));
        self.requests[host as usize].iter().filter(passes)
    }

    /// Takes the next request that has arrived at a host; also says from which host it is.
    pub(super) fn next_request(&mut self, host: u32) -> Option<(Request, u32)> {
        let arrived = |request: &&Request| request.arrival <= self.now;
        let wire = self.requests_of(host).find(arrived)?.wire;
        let requests = &mut self.requests[host as usize];
        let request = requests.remove(requests.iter().position(|request| request.wire == wire)?);
        let from = self.wires.get(&wire)?.hosts[0];
        Some((request, from))
    }

    /// Answers a connection request.
    pub(super) fn answer(&mut self, number: u64, answer: Result<(), ConnectCause>) {
        let now = self.now;
        if let Some(wire) = self.wires.get_mut(&number) {
            let faults = between(&self.faults, &self.links, wire.hosts);
            let arrival = now.after(latency(faults, &mut wire.directions[1].random));
            wire.answer = Some((answer, arrival));
            // What is sent at once must not overtake the answer.
            wire.directions[1].delay_to(arrival);
        }
    }

    /// Ends a side's direction.
    pub(super) fn end(&mut self, number: u64, side: usize, end: End) {
        let now = self.now;
        if let Some(wire) = self.wires.get_mut(&number) {
            let faults = between(&self.faults, &self.links, wire.hosts);
            wire.directions[side].end(now, faults, end);
        }
    }

    /// A side forgets the connection; when both have, it is gone.
    pub(super) fn forget(&mut self, number: u64, side: usize) {
        let Some(wire) = self.wires.get_mut(&number) else { return };
        wire.names[side] = None;
        // An acceptor that never learned of it does not keep it.
        if wire.names[1 - side].is_none() && !self.requests.iter().flatten().any(|request| request.wire == number) {
            self.wires.remove(&number);
        }
    }

    /// A host's process has ended: its names are gone, what waits there is refused.
    pub(super) fn leave(&mut self, host: u32) {
        self.listeners.retain(|_, (listener, _)| *listener != host);
        for request in core::mem::take(&mut self.requests[host as usize]) {
            self.answer(request.wire, Err(ConnectCause::Refused));
            self.forget(request.wire, 1);
        }
    }
}
