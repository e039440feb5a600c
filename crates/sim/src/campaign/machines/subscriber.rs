//! A subscriber of a card's chunks: the real client, which comes back when its connection breaks, and a journal of what it
//! got, visit by visit.

use super::super::cards::{CardSetting, SubscriberSetting};
use super::super::endpoints::{Endpoints, Surroundings};
use super::super::node::{Machine, forward};
use super::{Site, pool};
use ropewalk_engine::Drive;
use ropewalk_engine::stream::{ClientConfig, ClientState, ServerConfig, StreamClient, StreamServer};
use ropewalk_flow::stream::RouterConfig;
use ropewalk_io::Dispatcher;
use ropewalk_io::simulated::SimulatedConfig;
use ropewalk_memory::{Payload, Staging};
use ropewalk_terms::{Instant, NodeId};
use ropewalk_wire::felix::ELink;
use ropewalk_wire::stream::{ChunkHead, End, Range, Subscribe};
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

/// Pause before a lost connection is opened again.
const RETRY: Duration = Duration::from_millis(20);
/// The most bytes of a chunk.
const MOST_CHUNK_BYTES: u32 = 1 << 20;

/// A chunk that came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Got {
    pub(in super::super) head: ChunkHead,
    pub(in super::super) bytes: Vec<u8>,
}

/// What came over one connection. It begins when it is asked for: the server may have heard that, and count on a member that
/// dies before it has the answer.
#[derive(Clone, Debug)]
pub(in super::super) struct Visit {
    /// Which ring of the card that was.
    pub(in super::super) ring: u64,
    /// When it began.
    pub(in super::super) begun: Instant,
    /// In the order in which they came.
    pub(in super::super) chunks: Vec<Got>,
    /// What the server said at the end, where it did.
    pub(in super::super) end: Option<End>,
}

/// Everything that a subscriber got, in all its lives.
pub(in super::super) type Journal = Rc<RefCell<Vec<Visit>>>;

type Take = Box<dyn FnMut(ChunkHead, Payload)>;

/// A life of a subscriber.
pub(in super::super) struct Subscriber {
    client: StreamClient<Endpoints, Take>,
    arrivals: Rc<RefCell<Vec<Got>>>,
    journal: Journal,
    /// It connects from then on.
    comes: Instant,
    /// Connections that the client told before.
    connections: u64,
    /// The last visit of the journal goes on.
    is_visiting: bool,
    /// The card's present ring, as the world tells it.
    pub(in super::super) ring: u64,
}

impl Subscriber {
    /// A life of the subscriber of a card, which writes into `journal`.
    pub(in super::super) fn new(
        site: &Site<'_>,
        around: &Surroundings,
        card: &CardSetting,
        setting: &SubscriberSetting,
        journal: &Journal,
        ring: u64,
    ) -> (Self, Vec<u32>) {
        let endpoints = site.endpoints("subscriber receives", 16 << 10, 64, around);
        let hosts = vec![endpoints.host()];
        let arrivals = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&arrivals);
        let take: Take = Box::new(move |head, payload: Payload| {
            into.borrow_mut().push(Got { head, bytes: payload.to_vec() });
        });
        let config = ClientConfig {
            address: server_of(card.readout),
            name: around.place.to_string(),
            wanted: wanted(setting),
            down: Vec::new(),
            reconnect: Some(RETRY),
            chunks: None,
            most_chunk_bytes: MOST_CHUNK_BYTES,
        };
        let staging = Staging::new(pool("subscriber says", 4 << 10, 4));
        let subscriber = Self {
            client: StreamClient::new(config, endpoints, staging, take),
            arrivals,
            journal: Rc::clone(journal),
            comes: Instant::ZERO.after(setting.comes),
            connections: 0,
            is_visiting: false,
            ring,
        };
        (subscriber, hosts)
    }

    /// Writes down what this turn brought.
    fn note(&mut self, now: Instant) {
        let mut journal = self.journal.borrow_mut();
        let (report, state) = (self.client.report(), self.client.state());
        let is_new = report.connections > self.connections;
        self.connections = report.connections;
        if (is_new || *state == ClientState::Asking) && !self.is_visiting {
            self.is_visiting = true;
            let (ring, begun) = (self.ring, now);
            journal.push(Visit { ring, begun, chunks: Vec::new(), end: None });
        }
        let Some(visit) = journal.last_mut().filter(|_| self.is_visiting) else { return };
        visit.chunks.append(&mut self.arrivals.borrow_mut());
        if !matches!(state, ClientState::Asking | ClientState::Subscribed) {
            visit.end = report.end;
            self.is_visiting = false;
        }
    }
}

/// What a subscriber asks for.
pub(in super::super) fn wanted(setting: &SubscriberSetting) -> Subscribe {
    let SubscriberSetting { first, last, policy, share, one_in, .. } = *setting;
    Subscribe { ranges: vec![Range { first: elink(first), last: elink(last) }], policy, share, one_in }
}

/// The e-link of a card's source number `link`: neighbours differ in more than one bit.
pub(in super::super) fn elink(link: u16) -> ELink {
    ELink::new(link * 37 + 5)
}

/// Where subscribers connect to.
fn server_of(readout: u16) -> String {
    format!("{} chunks", NodeId::readout(readout))
}

/// The server of a readout unit's card, and its place on the network.
pub(super) fn server(site: &Site<'_>, around: &Surroundings, card: &CardSetting) -> (StreamServer<Endpoints>, u32) {
    let transport_bytes = card.transport_bytes;
    let limits = SimulatedConfig { send_queue_bytes: transport_bytes, ..SimulatedConfig::default() };
    let mut endpoints = Endpoints::new(site.network, limits, pool("subscribers say", 4 << 10, 64), around);
    let host = endpoints.host();
    endpoints.listen(&server_of(card.readout)).expect("the address is free");
    let router = RouterConfig {
        subscribers: 8,
        queue_bytes: card.queue_bytes,
        queue_chunks: card.queue_chunks,
        coalesce_bytes: 4 << 10,
        coalesce_time: Duration::from_micros(300),
    };
    let config = ServerConfig { router, wait_for: 0, loop_back: false, transport_bytes };
    let staging = Staging::new(pool("loop-back", 64 << 10, 1));
    (StreamServer::new(config, card.format, endpoints, staging), host)
}

impl Drive for Subscriber {
    fn turn(&mut self, now: Instant) -> usize {
        if now < self.comes {
            return 0;
        }
        let work = self.client.turn(now);
        self.note(now);
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.client.next_deadline().map(|deadline| deadline.max(self.comes))
    }

    forward!(mut client: prepare_wait -> bool);

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

    forward!(client: is_done -> bool);
}

impl Machine for Subscriber {}
