//! A node's endpoints: the simulated ones behind the node's own clock. Everything that passes is recorded.
//!
//! The order of announcements is checked here: a readout unit announces what it holds in the order of keys, each event once,
//! and nothing at or below what it called settled. It begins again only when an event manager asks for that.

use super::fault::Place;
use super::node::NodeClock;
use super::recorder::{Line, Refused, Shared};
use super::runner::{Broken, Checker, ensure};
use ropewalk_io::simulated::{Network, Simulated, SimulatedConfig};
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, Peer, SendError};
use ropewalk_memory::{Loan, Owner, Pool, Slice};
use ropewalk_terms::{EventKey, Instant};
use ropewalk_wire::message::{Announce, AnnounceEntry, HEADER_BYTES, Header, Kind, Message};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a node's endpoints have in common with the rest of the node.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// Whose they are.
    pub(super) place: Place,
    /// The node's clock.
    pub(super) clock: NodeClock,
    /// Who takes notes.
    pub(super) recorder: Shared,
    /// While it is set, no block of a receive pool is free.
    pub(super) dry: Arc<AtomicBool>,
}

/// What is known of one connection.
#[derive(Copy, Clone, Debug)]
struct Known {
    endpoint: Endpoint,
    connection: u64,
    side: usize,
    peer: Option<u32>,
    reading: bool,
}

/// A simulated dispatcher with the node's clock.
pub(super) struct Endpoints {
    inner: Simulated,
    /// Bytes that a send queue holds at most, but for one message that is longer.
    bound: usize,
    around: Surroundings,
    known: Vec<Option<Known>>,
    /// Front ends connect here.
    is_for_front_ends: bool,
    /// A peer is cut off only for having no room: every message that comes can be understood.
    is_lenient: bool,
    /// The peer that had no room for the last message.
    refused: Option<Endpoint>,
    /// Whom each endpoint that is not established calls.
    calls: BTreeMap<Endpoint, String>,
    /// For front ends: which front end's connection each endpoint is or was. What came over one that has ended may still be
    /// looked at when its place belongs to another.
    met: BTreeMap<Endpoint, (u32, u64)>,
    owners: Vec<Owner>,
    withheld: Vec<Loan>,
}

impl Endpoints {
    /// Endpoints on a host of their own that receive into `pool`.
    pub(super) fn new(network: &Network, config: SimulatedConfig, pool: Pool, around: &Surroundings) -> Self {
        Self {
            bound: config.send_queue_bytes,
            calls: BTreeMap::new(),
            met: BTreeMap::new(),
            inner: network.dispatcher(config, pool),
            around: around.clone(),
            known: Vec::new(),
            is_for_front_ends: false,
            is_lenient: false,
            refused: None,
            owners: vec![Owner::SHARED],
            withheld: Vec::new(),
        }
    }

    /// The same, for front ends: what arrives from each is recorded.
    pub(super) fn for_front_ends(mut self) -> Self {
        self.is_for_front_ends = true;
        self
    }

    /// The same, for peers that are cut off only for having no room.
    pub(super) fn lenient(mut self) -> Self {
        self.is_lenient = true;
        self
    }

    /// Its place on the network.
    pub(super) const fn host(&self) -> u32 {
        self.inner.host()
    }

    /// The number of an endpoint's connection, the same at both ends.
    pub(super) fn connection(&self, endpoint: Endpoint) -> Option<u64> {
        self.inner.connection(endpoint)
    }

    fn learn(&mut self, endpoint: Endpoint, side: usize, peer: Option<u32>) {
        let Some(connection) = self.inner.connection(endpoint) else { return };
        if self.known.len() <= endpoint.index() {
            self.known.resize(endpoint.index() + 1, None);
        }
        if let (true, Some(peer)) = (self.is_for_front_ends, peer) {
            self.met.insert(endpoint, (peer, connection));
        }
        self.known[endpoint.index()] = Some(Known { endpoint, connection, side, peer, reading: true });
    }

    fn known(&self, endpoint: Endpoint) -> Option<&Known> {
        self.known.get(endpoint.index())?.as_ref().filter(|known| known.endpoint == endpoint)
    }

    /// Takes whatever block is free while the pool is to be dry, and gives all back afterwards.
    fn withhold(&mut self) {
        if !self.around.dry.load(Ordering::Relaxed) {
            self.withheld.clear();
            return;
        }
        let Some(pool) = self.inner.pool_mut() else { return };
        for &owner in &self.owners {
            while let Some(loan) = pool.loan(owner) {
                self.withheld.push(loan);
            }
        }
    }

    fn note(&mut self, event: &Event) {
        let now = self.around.clock.world();
        match *event {
            Event::ConnectionRequest { endpoint, peer: Peer::Dispatcher(peer), .. } => {
                self.learn(endpoint, 1, Some(peer));
            }
            Event::Received { endpoint, ref slice } => {
                let Some(&Known { connection, side, peer, .. }) = self.known(endpoint) else { return };
                let bytes = slice.len() as u64;
                let mut recorder = self.around.recorder.borrow_mut();
                recorder.note(now, (4 + connection * 4 + (1 - side) as u64, bytes), || {
                    format!("{} receives {bytes} bytes over {connection}.{}", self.around.place, 1 - side)
                });
                if let (true, Some(peer)) = (self.is_for_front_ends, peer) {
                    recorder.inlets.entry(peer).or_default().deliver(now, connection, bytes);
                }
            }
            Event::Disconnected { endpoint } | Event::Broken { endpoint, .. } => self.note_end(endpoint),
            Event::Established { endpoint } => drop(self.calls.remove(&endpoint)),
            Event::ConnectFailed { endpoint, .. } => {
                let refused = |address| Refused { at: now, caller: self.around.place, address };
                let refused = self.calls.remove(&endpoint).map(refused);
                self.around.recorder.borrow_mut().refusals.extend(refused);
            }
            _ => {}
        }
    }

    /// Whether a front end's bytes are taken from it.
    fn note_reading(&self, endpoint: Endpoint, read: bool) {
        if let (true, Some(&Known { peer: Some(peer), connection, .. })) =
            (self.is_for_front_ends, self.known(endpoint))
        {
            let now = self.around.clock.world();
            self.around.recorder.borrow_mut().inlets.entry(peer).or_default().set_read(now, connection, read);
        }
    }

    /// A front end's connection is over.
    fn note_end(&self, endpoint: Endpoint) {
        self.note_reading(endpoint, true);
        if let (true, Some(&Known { peer: Some(peer), connection, .. })) =
            (self.is_for_front_ends, self.known(endpoint))
        {
            let now = self.around.clock.world();
            let mut recorder = self.around.recorder.borrow_mut();
            recorder.inlets.entry(peer).or_default().ends.entry(connection).or_insert(now);
        }
    }

    /// What a front end has sent over a connection, as the referee keeps it.
    pub(super) fn with_line(&self, connection: u64, note: impl FnOnce(&mut Line)) {
        let mut recorder = self.around.recorder.borrow_mut();
        note(recorder.inlets.entry(self.host()).or_default().lines.entry(connection).or_default());
    }

    fn note_order(&self, endpoint: Endpoint, message: &Message) {
        let Some(&Known { connection, .. }) = self.known(endpoint) else { return };
        let mut recorder = self.around.recorder.borrow_mut();
        if let Some(words) = recorder.order.sent(self.host(), connection, message) {
            let words = format!("{}: {words}", self.around.place);
            recorder.keep(Err(Broken::new(Checker::Order, words)));
        }
    }

    fn note_sent(&self, endpoint: Endpoint, bytes: u64, what: &str) {
        if let Some(&Known { connection, side, .. }) = self.known(endpoint) {
            let (now, from) = (self.around.clock.world(), self.around.place);
            self.around.recorder.borrow_mut().note(now, (2 + connection * 4 + side as u64, bytes), || {
                format!("{from} sends {what}, {bytes} bytes, over {connection}.{side}")
            });
        }
    }
}

/// The name of the message that begins with these bytes.
fn name_of(first: Option<&Slice>) -> String {
    let header = first.and_then(|slice| slice.first_chunk::<HEADER_BYTES>()).map(Header::decode);
    match header {
        Some(Ok(header)) => format!("{:?}", header.kind),
        _ => "data".to_owned(),
    }
}

impl Dispatcher for Endpoints {
    ropewalk_io::pass_on!(
        inner:
        listen, address_of, accept, reject, pool, post_block, peek, peer_has_ended, has_waiting, set_send_limits, send_room, queued,
        set_half_close, finish, prepare_wait, wait_descriptor
    );

    fn connect(&mut self, address: &str) -> Result<Endpoint, EndpointError> {
        let endpoint = self.inner.connect(address)?;
        self.learn(endpoint, 0, None);
        self.calls.insert(endpoint, address.to_owned());
        Ok(endpoint)
    }

    fn set_owner(&mut self, endpoint: Endpoint, owner: Owner) {
        if !self.owners.contains(&owner) {
            self.owners.push(owner);
        }
        // Before that it has the quota of connections that are not known yet, which is empty.
        let is_known = self.inner.pool().is_some_and(|pool| pool.available(owner) + pool.held_by(owner) > 0);
        if let Some(&(peer, connection)) = self.met.get(&endpoint).filter(|_| is_known) {
            let mut recorder = self.around.recorder.borrow_mut();
            recorder.inlets.entry(peer).or_default().lines.entry(connection).or_default().host = Some(self.host());
        }
        self.inner.set_owner(endpoint, owner);
    }

    fn pool_mut(&mut self) -> Option<&mut Pool> {
        self.withhold();
        self.inner.pool_mut()
    }

    fn set_reading(&mut self, endpoint: Endpoint, reading: bool) {
        if let Some(Some(known)) = self.known.get_mut(endpoint.index()).filter(|_| self.is_for_front_ends)
            && known.endpoint == endpoint
        {
            known.reading = reading;
        }
        self.note_reading(endpoint, reading);
        self.inner.set_reading(endpoint, reading);
    }

    fn is_dry(&self, endpoint: Endpoint) -> bool {
        let dry = self.inner.is_dry(endpoint);
        if self.known(endpoint).is_some_and(|known| known.reading) {
            self.note_reading(endpoint, !dry);
        }
        dry
    }

    fn send(&mut self, endpoint: Endpoint, message: &mut Vec<Slice>) -> Result<(), SendError> {
        let bytes = message.iter().map(|slice| slice.len() as u64).sum();
        let what = name_of(message.first());
        let announced = message.first().and_then(|slice| decoded(slice));
        let before = self.inner.queued(endpoint);
        let sent = self.inner.send(endpoint, message);
        self.refused = sent.is_err().then_some(endpoint);
        sent?;
        let (queued, bound, place) = (self.inner.queued(endpoint), self.bound, self.around.place);
        self.around.recorder.borrow_mut().keep(ensure!(Bounds, before == 0 || queued <= bound;
            "{place}: {queued} bytes wait in a send queue that takes {bound}"));
        self.note_sent(endpoint, bytes, &what);
        announced.into_iter().for_each(|message| self.note_order(endpoint, &message));
        Ok(())
    }

    fn close(&mut self, endpoint: Endpoint) {
        self.note_end(endpoint);
        self.inner.close(endpoint);
    }

    fn abort(&mut self, endpoint: Endpoint) {
        self.around.recorder.borrow_mut().keep(ensure!(Loss, !self.is_lenient || self.refused == Some(endpoint);
            "{}: a peer was cut off although it had room for its messages", self.around.place));
        self.note_end(endpoint);
        self.inner.abort(endpoint);
    }

    fn poll(&mut self, _now: Instant, events: &mut Vec<Event>) -> usize {
        self.withhold();
        let before = events.len();
        // The network uses the world's time, not the node's clock.
        let work = self.inner.poll(self.around.clock.world(), events);
        for event in &mut events[before..] {
            self.note(event);
            // Peers that have addresses are known by them.
            if let Event::ConnectionRequest { peer, .. } = event
                && let Peer::Dispatcher(host) = peer
                && let Some(&address) = self.around.recorder.borrow().addresses.get(host)
            {
                *peer = Peer::Address(address.into());
            }
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline().map(|world| self.around.clock.local_from(world))
    }
}

/// What was seen of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// By connection: how often the readout unit was asked to begin again, and has not yet.
    asked: BTreeMap<u64, u32>,
    /// By a readout unit's place on the network, which each of its lives has for itself: what it called settled last.
    settled: BTreeMap<u32, EventKey>,
}

/// A message that matters here, from its bytes.
fn decoded(bytes: &[u8]) -> Option<Message> {
    let header = Header::decode(bytes.first_chunk::<HEADER_BYTES>()?).ok()?;
    let matters = matches!(header.kind, Kind::Announce | Kind::Recover);
    Message::decode(header.kind, &bytes[HEADER_BYTES..]).ok().filter(|_| matters)
}

impl Order {
    /// A message was sent from a place on the network; what is wrong with it, if anything is.
    pub(super) fn sent(&mut self, host: u32, connection: u64, message: &Message) -> Option<String> {
        match message {
            Message::Recover => *self.asked.entry(connection).or_default() += 1,
            Message::Announce(announce) => return self.announced(host, connection, announce),
            _ => {}
        }
        None
    }

    fn announced(&mut self, host: u32, connection: u64, announce: &Announce) -> Option<String> {
        let Announce { settled, entries } = announce;
        let keys = || entries.iter().map(|entry: &AnnounceEntry| entry.key);
        if !keys().is_sorted_by(|one, other| one < other) {
            return Some(format!("it announces {:?}", keys().collect::<Vec<_>>()));
        }
        if let Some(last) = keys().next_back().filter(|last| last > settled) {
            return Some(format!("it announces {last}, and calls {settled} settled"));
        }
        let before = self.settled.insert(host, *settled)?;
        let goes_on = *settled >= before && keys().next().is_none_or(|first| first > before);
        let mut was_asked = || {
            let asked = self.asked.get_mut(&connection).filter(|asked| **asked > 0);
            asked.map(|asked| *asked -= 1).is_some()
        };
        (!goes_on && !was_asked())
            .then(|| format!("it announces {:?} and {settled} as settled after {before}", keys().collect::<Vec<_>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announce(settled: u64, numbers: &[u64]) -> Message {
        let key = |number| EventKey::new(0, number);
        let entry = |&number: &u64| AnnounceEntry { key: key(number), bytes: 1, fragments: 1, triggered: false };
        Message::Announce(Announce { settled: key(settled), entries: numbers.iter().map(entry).collect() })
    }

    #[test]
    fn announcements_go_on_and_begin_again_when_that_is_asked_for() {
        let mut order = Order::default();
        for message in [announce(3, &[1, 3]), announce(5, &[]), announce(7, &[6, 7]), Message::Recover] {
            assert_eq!(order.sent(1, 10, &message), None, "{message:?}");
        }
        assert_eq!(order.sent(1, 10, &announce(8, &[8])), None, "it was said before the question came");
        assert_eq!(order.sent(1, 10, &announce(4, &[3, 4])), None);
        assert_eq!(order.sent(1, 10, &announce(7, &[6, 7])), None);
        assert_eq!(order.sent(2, 11, &announce(1, &[1])), None, "another readout unit, or another life");
    }

    #[test]
    fn what_goes_back_without_a_question_or_comes_in_disorder_is_seen() {
        for wrong in
            [announce(7, &[7, 6]), announce(7, &[6, 6]), announce(6, &[6, 7]), announce(7, &[5]), announce(4, &[])]
        {
            let mut order = Order::default();
            assert_eq!(order.sent(1, 10, &announce(5, &[4, 5])), None);
            assert!(order.sent(1, 10, &wrong).is_some(), "{wrong:?}");
        }
        let mut order = Order::default();
        order.sent(1, 10, &announce(5, &[4, 5]));
        order.sent(9, 12, &Message::Recover);
        assert!(order.sent(1, 10, &announce(5, &[4, 5])).is_some(), "a different peer was asked");
    }
}
