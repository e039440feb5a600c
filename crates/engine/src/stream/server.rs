//! The router on endpoints: it handles subscribers and sends chunks. The reader of the card gives the chunks to the
//! router; [`CardServer`] reads one card itself.

use super::message::{Gathered, Gatherer};
use super::{StreamIncoming, StreamReader};
use crate::Drive;
use ropewalk_flow::stream::{
    DownLink, Router, RouterConfig, StreamChunk, StreamCounts, StreamInput, SubscribeError, SubscriberAccount,
    SubscriberId,
};
use ropewalk_io::{Dispatcher, Endpoint, Event, SendLimits};
use ropewalk_memory::{Payload, Pool, PoolConfig, Slice, Staging, prepare_chains};
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::felix::{BlockFormat, Decoded, Decoder};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::stream::{
    ChunkHead, Down, DownRefusal, DownRefused, End, LARGEST_CONTROL_BYTES, Loss, Message, RefuseReason, STREAM_VERSION,
    Subscribed,
};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Maximum number of messages sent in one turn.
const MESSAGES_A_TURN: usize = 64;
/// Maximum number of connections beside those of subscribers: not yet subscribed, or refused.
const STRANGERS: usize = 16;
/// Time-out for a connection's hello.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// Size of a block in which heads and copies are staged, in bytes.
const STAGING_BLOCK: usize = 128 << 10;
/// Number of blocks beyond the capacity of the transport: no block is ever completely full.
const STAGING_SPARE: usize = 8;
/// Number of chunks of several pieces that wait with references of their own, for groups and while the card has no
/// room.
const CHAINS: usize = 4 << 10;
/// Maximum number of bytes for e-links that wait for the card.
const DOWN_BYTES: usize = 1 << 20;

/// Configuration of a [`StreamServer`].
#[derive(Copy, Clone, Debug)]
pub struct ServerConfig {
    /// Configuration of its queues.
    pub router: RouterConfig,
    /// Number of subscribers that must have subscribed before the card is read.
    pub wait_for: u32,
    /// Whether messages to e-links are returned as if front ends had sent them. Otherwise there is no down-link: such
    /// messages are refused.
    pub loop_back: bool,
    /// Maximum number of bytes in the transport of one subscriber.
    pub transport_bytes: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { router: RouterConfig::default(), wait_for: 0, loop_back: false, transport_bytes: 1 << 20 }
    }
}

/// Account of a server.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ServerReport {
    /// Received chunks.
    pub received: u64,
    /// Received chunks that no subscriber wanted.
    pub unwanted: u64,
    /// Sum over all present and past subscribers.
    pub subscribers: SubscriberAccount,
    /// Subscribers that joined.
    pub joined: u64,
    /// Bytes copied: of small chunks, and for subscribers that may lose chunks.
    pub copied_bytes: u64,
    /// Connections that were refused, or sent invalid messages.
    pub refused: u64,
    /// Messages to e-links: accepted and refused.
    pub down: (u64, u64),
}

/// Serves the chunks that its router gets. A turn has two halves, between which the card is read.
pub struct StreamServer<D> {
    endpoints: D,
    events: Vec<Event>,
    router: Router,
    /// The down-link: messages to e-links go into the blocks of an emulated card, which returns them. `None` without a
    /// down-link.
    loop_back: Option<(DownLink, Decoder)>,
    /// Messages to e-links: accepted and refused.
    down: (u64, u64),
    staging: Staging,
    /// By the endpoint's index.
    connections: Vec<Option<Connection>>,
    most_connections: usize,
    wait_for: u32,
    has_begun: bool,
    is_ending: bool,
    transport_bytes: usize,
    joined: u64,
    refused: u64,
    /// Bytes copied for queues when the card needed its memory.
    evacuated_bytes: u64,
    gatherer: Gatherer,
}

impl<D: Dispatcher> StreamServer<D> {
    /// Serves a card with blocks of this format on `endpoints`, which listen already. Looped-back data is staged in
    /// `staging`, whose blocks have at least 64 KiB.
    pub fn new(config: ServerConfig, format: BlockFormat, endpoints: D, staging: Staging) -> Self {
        prepare_chains(CHAINS);
        Self {
            endpoints,
            events: Vec::with_capacity(256),
            router: Router::new(config.router),
            loop_back: config
                .loop_back
                .then(|| (DownLink::new(format, DOWN_BYTES), Decoder::new(format, DOWN_BYTES as u64))),
            down: (0, 0),
            staging,
            connections: Vec::new(),
            most_connections: config.router.subscribers + STRANGERS,
            wait_for: config.wait_for,
            has_begun: false,
            is_ending: false,
            transport_bytes: config.transport_bytes,
            joined: 0,
            refused: 0,
            evacuated_bytes: 0,
            gatherer: Gatherer::new(),
        }
    }

    /// Returns the router, which takes the card's chunks.
    pub const fn router_mut(&mut self) -> &mut Router {
        &mut self.router
    }

    /// The first half of a turn: handles new and lost connections, and messages.
    pub fn hear_all(&mut self, now: Instant) -> usize {
        self.staging.pool_mut().collect();
        let work = self.take_events(now);
        self.loop_back(now);
        self.has_begun |= self.router.listeners() >= self.wait_for;
        work
    }

    /// Returns whether all awaited subscribers have subscribed. Do not read the card before that.
    pub const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// The second half of a turn: sends due data.
    pub fn send_all(&mut self, now: Instant) -> usize {
        let work = self.send(now);
        self.tend(now);
        work
    }

    /// Returns whether a subscriber that must not lose chunks has not taken all of its chunks.
    pub fn holds_card(&self) -> bool {
        self.connections.iter().flatten().any(|one| {
            let waits = |id| self.router.account(id).is_some_and(|account| account.queued > 0);
            one.id.is_some_and(|id| !self.router.may_lose(id) && (waits(id) || self.endpoints.queued(one.endpoint) > 0))
        })
    }

    /// Returns whether no chunk waits for a subscriber.
    pub fn is_settled(&self) -> bool {
        self.router.is_empty()
    }

    /// Closes the connections with queued chunks. Chunks that no other subscriber takes are dropped. Returns the number
    /// of connections.
    pub fn cut_off_holders(&mut self, now: Instant) -> usize {
        let holds =
            |one: &Connection| one.id.is_some_and(|id| self.router.queued(id).chunks > 0).then_some(one.endpoint);
        let holders: Vec<Endpoint> = self.connections.iter().flatten().filter_map(holds).collect();
        for &endpoint in &holders {
            self.endpoints.abort(endpoint);
            self.ended(endpoint, now);
        }
        holders.len()
    }

    /// Returns the number of subscribers in the router without a connection, for checkers. It must be 0.
    pub fn absent(&self) -> usize {
        let connected = self.connections.iter().flatten().filter(|one| one.id.is_some()).count();
        self.router.subscriber_count().abs_diff(connected)
    }

    /// Ends the input: sends queued chunks, then reports the end to all subscribers.
    pub const fn end(&mut self) {
        self.is_ending = true;
        self.router.finish();
    }

    /// Returns whether all subscribers have received the end and disconnected.
    pub fn is_done(&self) -> bool {
        self.is_over() && self.connections.iter().all(Option::is_none)
    }

    /// Returns when the next turn is due even if nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        let strangers = self.connections.iter().flatten().filter(|one| one.id.is_none() && !one.is_ending);
        let hello = strangers.map(|one| one.since.after(HELLO_TIME)).min();
        [self.endpoints.next_deadline(), self.router.next_deadline(), hello].into_iter().flatten().min()
    }

    /// Prepares the thread's sleep. Returns false if there is work to do immediately.
    pub fn prepare_wait(&mut self) -> bool {
        self.endpoints.prepare_wait()
    }

    /// Returns a descriptor that becomes readable when a peer connects, sends something, or has room again.
    pub fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.endpoints.wait_descriptor()
    }

    /// Returns the account so far.
    pub fn report(&self) -> ServerReport {
        let (received, unwanted) = self.router.received();
        ServerReport {
            received,
            unwanted,
            subscribers: self.router.total(),
            joined: self.joined,
            copied_bytes: self.evacuated_bytes + self.gatherer.copied_bytes,
            refused: self.refused,
            down: self.down,
        }
    }

    fn connection(&mut self, endpoint: Endpoint) -> Option<&mut Connection> {
        let connection = self.connections.get_mut(endpoint.index())?.as_mut()?;
        (connection.endpoint == endpoint).then_some(connection)
    }

    fn take_events(&mut self, now: Instant) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let work = self.endpoints.poll(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::ConnectionRequest { endpoint, .. } => self.requested(endpoint, now),
                Event::Established { endpoint } => self.established(endpoint, now),
                Event::Received { endpoint, slice } => self.came(endpoint, slice, now),
                Event::Disconnected { endpoint } | Event::Broken { endpoint, .. } => self.ended(endpoint, now),
                Event::ConnectFailed { .. }
                | Event::HandedOver { .. }
                | Event::SendQueueHigh { .. }
                | Event::SendQueueLow { .. }
                | Event::Finished { .. } => {}
            }
        }
        self.events = events;
        work
    }

    /// Accepts a connection. If there is no room, closes the one that has been silent for longest.
    fn requested(&mut self, endpoint: Endpoint, now: Instant) {
        if self.connections.iter().flatten().count() >= self.most_connections {
            let strangers = self.connections.iter().flatten().filter(|one| one.id.is_none());
            match strangers.min_by_key(|one| one.since).map(|one| one.endpoint) {
                Some(stranger) => self.abort(stranger, now),
                None => {
                    self.refused += 1;
                    return self.endpoints.reject(endpoint);
                }
            }
        }
        self.endpoints.accept(endpoint);
    }

    fn established(&mut self, endpoint: Endpoint, now: Instant) {
        let index = endpoint.index();
        // Each subscriber has its own staging pool: one that does not read must not keep the blocks of others.
        let blocks = self.transport_bytes.div_ceil(STAGING_BLOCK) + STAGING_SPARE;
        let Ok(pool) = Pool::new_untouched(PoolConfig::anonymous("subscriber", STAGING_BLOCK, blocks)) else {
            self.refused += 1;
            return self.endpoints.abort(endpoint);
        };
        self.endpoints.set_send_limits(endpoint, SendLimits::up_to(self.transport_bytes));
        if index >= self.connections.len() {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(Connection::new(endpoint, now, Staging::new(pool)));
    }

    fn ended(&mut self, endpoint: Endpoint, now: Instant) {
        let gone = self.connection(endpoint).and_then(|connection| connection.id);
        if let Some(id) = gone.filter(|_| !is_planted(Flaw::QueueKeptForTheDead)) {
            self.router.leave(id, now);
        }
        if self.connection(endpoint).is_some() {
            self.connections[endpoint.index()] = None;
        }
    }

    /// Aborts an unusable connection without a further message.
    fn abort(&mut self, endpoint: Endpoint, now: Instant) {
        self.refused += 1;
        self.endpoints.abort(endpoint);
        self.ended(endpoint, now);
    }

    fn came(&mut self, endpoint: Endpoint, slice: Slice, now: Instant) {
        if let Some(connection) = self.connection(endpoint) {
            connection.reader.push(slice);
        }
        loop {
            let Some(connection) = self.connection(endpoint).filter(|connection| !connection.is_ending) else { return };
            let heard = match connection.reader.next_incoming() {
                Ok(None) => return,
                Ok(Some(StreamIncoming::Control(message))) => self.hear(endpoint, message, now),
                Ok(Some(StreamIncoming::Chunk(..))) => Err(FrameError::Meaning),
                Err(error) => Err(error),
            };
            if heard.is_err() {
                return self.abort(endpoint, now);
            }
        }
    }

    /// Handles a message of a subscriber. An error means that it is invalid in the present state.
    fn hear(&mut self, endpoint: Endpoint, message: Message, now: Instant) -> Result<(), FrameError> {
        let connection = self.connection(endpoint).ok_or(FrameError::Meaning)?;
        let answer = match message {
            Message::Hello(hello) if !connection.is_welcome => {
                if hello.version == STREAM_VERSION {
                    connection.is_welcome = true;
                    Message::Welcome
                } else {
                    Message::Refuse(RefuseReason::Version(STREAM_VERSION))
                }
            }
            Message::Subscribe(wanted) if connection.is_welcome => {
                let known = connection.id;
                let joined = known.map_or_else(|| self.router.join(), Ok);
                let done = joined.and_then(|id| Ok((id, self.router.subscribe(id, &wanted)?)));
                self.joined += u64::from(known.is_none() && done.is_ok());
                match (done, joined) {
                    (Ok((id, elinks)), _) => {
                        self.connection(endpoint).ok_or(FrameError::Meaning)?.id = Some(id);
                        Message::Subscribed(Subscribed { elinks })
                    }
                    (Err(error), joined) => {
                        if let (Ok(id), None) = (joined, known) {
                            self.router.leave(id, now);
                        }
                        let is_full = error == SubscribeError::Full;
                        Message::Refuse(if is_full { RefuseReason::Full } else { RefuseReason::Share })
                    }
                }
            }
            Message::Down(down) if connection.is_welcome => match self.send_down(&down) {
                Ok(()) => return Ok(()),
                Err(why) => Message::DownRefused(DownRefused { elink: down.elink, why }),
            },
            _ => return Err(FrameError::Meaning),
        };
        let is_refusal = matches!(answer, Message::Refuse(_));
        self.refused += u64::from(is_refusal);
        let connection = self.connection(endpoint).ok_or(FrameError::Meaning)?;
        connection.is_ending = is_refusal;
        if connection.say(&answer) { Ok(()) } else { Err(FrameError::Long) }
    }

    /// Takes bytes for an e-link, or returns the reason of the refusal.
    fn send_down(&mut self, down: &Down) -> Result<(), DownRefusal> {
        let taken = match &mut self.loop_back {
            None => Err(DownRefusal::NoDownLink),
            Some((link, _)) => link.push(down.elink, &down.bytes).then_some(()).ok_or(DownRefusal::NoRoom),
        };
        let (sent, refused) = &mut self.down;
        *if taken.is_ok() { sent } else { refused } += 1;
        taken
    }

    /// Returns messages to e-links as data of the emulated card.
    fn loop_back(&mut self, now: Instant) {
        let Some((down, decoder)) = &mut self.loop_back else { return };
        let (router, staging) = (&mut self.router, &mut self.staging);
        let blocks = down.blocks();
        let bytes = blocks.len();
        decoder.blocks(blocks, &mut |what| {
            let Decoded::Chunk { elink, bytes, status } = what else { return };
            let length = bytes.len() as u32;
            let payload =
                if bytes.is_empty() { Some(Payload::default()) } else { staging.write(&bytes).map(Payload::from) };
            if let Some(payload) = payload {
                let head = ChunkHead { elink, status, sequence: 0, length };
                // If a subscriber has no room, the emulated front end's answer is lost.
                let _ = router.offer(StreamChunk { head, event: 0, payload, is_copy: true }, now);
            }
        });
        down.taken(bytes);
    }

    /// Sends messages of chunks to the connections that are due.
    fn send(&mut self, now: Instant) -> usize {
        let mut sent = 0;
        while sent < MESSAGES_A_TURN
            && let Some(id) = self.router.poll(now)
        {
            let Some(index) = self.index_of(id) else { break };
            sent += usize::from(self.send_to(index, id));
        }
        sent
    }

    fn index_of(&self, id: SubscriberId) -> Option<usize> {
        self.connections.iter().position(|connection| connection.as_ref().is_some_and(|one| one.id == Some(id)))
    }

    fn send_to(&mut self, index: usize, id: SubscriberId) -> bool {
        let Some(connection) = &mut self.connections[index] else { return false };
        let account = self.router.account(id).unwrap_or_default();
        if account.dropped.total() > connection.told {
            connection.told = account.dropped.total();
            connection.say(&Message::Loss(Loss { chunks: connection.told, bytes: account.dropped_bytes }));
        }
        let endpoint = connection.endpoint;
        let is_free = connection.flush(&mut self.endpoints);
        // An empty queue takes any size.
        let is_empty = self.endpoints.queued(endpoint) == 0;
        let has_room = self.endpoints.send_room(endpoint);
        let room = if is_empty { usize::MAX } else { has_room };
        let room = if is_free { room } else { 0 };
        let gathered = self.gatherer.gather(&mut self.router, id, room, &mut connection.staging);
        connection.blocked_with = (gathered != Gathered::Message).then_some(has_room);
        match gathered {
            // There is room, as checked. If it has ended meanwhile that is the next event, and the message is lost with
            // it.
            Gathered::Message => self.endpoints.send(endpoint, &mut self.gatherer.slices).is_ok(),
            Gathered::NoRoom => false,
            Gathered::Uncopied => {
                if is_empty {
                    // All blocks are free, and still not enough.
                    self.router.drop_oldest(id);
                }
                false
            }
        }
    }

    /// Frees the card's memory when it has no room: copies the queued chunks of subscribers that may lose chunks.
    pub fn relieve(&mut self) {
        if is_planted(Flaw::MonitorHoldsCard) {
            return;
        }
        for connection in self.connections.iter_mut().flatten() {
            let (Some(id), staging) = (connection.id, &mut connection.staging) else { continue };
            let mut copied = 0;
            self.router.relieve(id, |payload| {
                let copy = payload.evacuate(staging)?;
                copied += payload.len() as u64;
                Some(copy)
            });
            self.evacuated_bytes += copied;
        }
    }

    /// Maintains the connections: unblocks, closes silent ones, and announces the end.
    fn tend(&mut self, now: Instant) {
        let is_over = self.is_over();
        for index in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[index] else { continue };
            let (endpoint, id) = (connection.endpoint, connection.id);
            if id.is_none() && !connection.is_ending && now >= connection.since.after(HELLO_TIME) {
                self.abort(endpoint, now);
                continue;
            }
            if is_over && !connection.is_ending {
                let account = id.and_then(|id| self.router.account(id)).unwrap_or_default();
                let (offered, sent, dropped) = (account.offered, account.sent, account.dropped.total());
                connection.say(&Message::End(End { offered, sent, dropped }));
                connection.is_ending = true;
            }
            connection.staging.pool_mut().collect();
            let is_flushed = connection.flush(&mut self.endpoints);
            if connection.is_ending && is_flushed {
                if let Some(id) = id {
                    self.router.leave(id, now);
                    connection.id = None;
                }
                self.endpoints.close(endpoint);
            } else if let (Some(blocked_with), Some(id)) = (connection.blocked_with, id) {
                // Half of the queue is free again, with more room than was insufficient before; or all of it is free.
                let (queued, room) = (self.endpoints.queued(endpoint), self.endpoints.send_room(endpoint));
                if queued == 0 || queued <= room && room > blocked_with {
                    connection.blocked_with = None;
                    self.router.unblock(id);
                }
            }
        }
    }

    /// Returns whether no further chunk will come and none waits.
    fn is_over(&self) -> bool {
        self.is_ending && self.router.is_empty()
    }
}

/// Usual size of the messages to a subscriber while chunks flow.
const USUAL_BYTES: usize = 256;

/// State of a connection.
pub(super) struct Connection {
    pub(super) endpoint: Endpoint,
    /// Memory for its heads, messages and copies.
    pub(super) staging: Staging,
    pub(super) reader: StreamReader,
    /// When it was opened.
    pub(super) since: Instant,
    pub(super) is_welcome: bool,
    /// Set from its first subscription on.
    pub(super) id: Option<SubscriberId>,
    /// Number of dropped chunks that were reported to the subscriber.
    pub(super) told: u64,
    /// Bytes in the transport's queue when it had no room for the next message.
    blocked_with: Option<usize>,
    /// The end of the stream or a refusal was queued: the connection is closed as soon as that is sent.
    pub(super) is_ending: bool,
    /// Encoded messages that wait for room.
    outgoing: Vec<u8>,
    /// Scratch list for their slice; empty, and allocated once.
    slices: Vec<Slice>,
}

impl Connection {
    pub(super) fn new(endpoint: Endpoint, since: Instant, staging: Staging) -> Self {
        Self {
            endpoint,
            staging,
            reader: StreamReader::new(0),
            since,
            is_welcome: false,
            id: None,
            told: 0,
            blocked_with: None,
            is_ending: false,
            outgoing: Vec::with_capacity(USUAL_BYTES),
            slices: Vec::with_capacity(1),
        }
    }

    /// Queues a message, to be sent as soon as there is room. Returns false if too much is queued already, because the
    /// subscriber does not read.
    pub(super) fn say(&mut self, message: &Message) -> bool {
        message.encode(&mut self.outgoing);
        self.outgoing.len() <= LARGEST_CONTROL_BYTES
    }

    /// Sends queued messages. Returns true when none is left.
    pub(super) fn flush(&mut self, to: &mut impl Dispatcher) -> bool {
        if self.outgoing.is_empty() {
            return true;
        }
        let Some(slice) = self.staging.write(&self.outgoing) else { return false };
        self.slices.push(slice);
        let is_sent = to.send(self.endpoint, &mut self.slices).is_ok();
        self.slices.clear();
        if is_sent {
            self.outgoing.clear();
        }
        is_sent
    }
}

/// Serves the chunks of one card.
pub struct CardServer<D> {
    input: StreamInput,
    server: StreamServer<D>,
    is_stopped: bool,
}

impl<D: Dispatcher> CardServer<D> {
    /// Serves the chunks of `input`. For the other arguments see [`StreamServer::new`].
    pub fn new(config: ServerConfig, input: StreamInput, endpoints: D, staging: Staging) -> Self {
        let server = StreamServer::new(config, input.format(), endpoints, staging);
        Self { input, server, is_stopped: false }
    }

    /// Stops reading from the card. Sends queued data, then reports the end to all subscribers.
    pub const fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Returns the counts of the chunks read from the card, and of their delivery to subscribers.
    pub fn report(&self) -> (StreamCounts, ServerReport) {
        (self.input.counts(), self.server.report())
    }
}

impl<D: Dispatcher> Drive for CardServer<D> {
    fn turn(&mut self, now: Instant) -> usize {
        let mut work = self.server.hear_all(now);
        if self.server.has_begun() && !self.is_stopped {
            work += self.input.turn(now, self.server.router_mut());
            if self.input.is_starved() {
                self.server.relieve();
            }
        }
        if self.is_stopped || self.input.is_ended() {
            self.server.end();
        }
        work + self.server.send_all(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.server.next_deadline()
    }

    fn prepare_wait(&mut self) -> bool {
        let is_reading = self.server.has_begun() && !self.is_stopped && !self.input.is_waiting();
        (!is_reading || self.input.ring_mut().prepare_wait()) && self.server.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.server.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        self.server.is_done()
    }
}
