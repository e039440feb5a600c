//! The front-end connections of a readout unit: how they are opened, which source each belongs to, their data, and
//! their back-pressure.
//!
//! ```text
//!  connection -> unknown: its first bytes are looked at -> a source's: bytes -> Framer -> fragments -> flow::Readout
//!                   |                                         |
//!                   +-> turned away: bytes of no source, or   +-> not read while the machine has no room for it, or
//!                       too few of them for too long              its blocks are out: then the sender waits
//! ```
//! No data is read, and no block taken, before the source is known. A source that connects while every block is in use
//! is therefore known to be connected, and does not count as absent.
//!
//! With an [`Entrance`], a front end need not connect to the service point and identify itself. The entrance determines
//! the source:
//! ```text
//!  listen: a service point of its own ---- each connection to it is the source's
//!  call:   the board listens ------------- called, and called again when the connection has ended
//!  adopt:  one end of a local pair ------- a program, or a thread that reads a file, writes into the other end
//! ```
//! The source's own framing, if it has one, defines the meaning of the bytes.

mod recognition;

use super::black_box::BlackBox;
use super::link::{EndpointTable, received};
use super::splitter::SourceSplitter;
pub use recognition::MOST_UNKNOWN;
use recognition::{Parked, Unknown, described, own_framer, own_framers, spare_framers};
use ropewalk_flow::messages::Received;
use ropewalk_flow::readout::{Format, FrameCounts, Framer, FramerLimits, OnClose, Opening, Readout, SourceConfig};
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, ServicePoint};
use ropewalk_memory::{Owner, Pool, Staging};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Counter, Instant, PoolAccount, SourceId};
use ropewalk_wire::description::Description;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// One connection of a front end.
struct Connection {
    framer: Framer,
    /// The source to which it must belong, if its entrance determines that.
    place: Option<usize>,
    /// The result of inspecting its first waiting bytes, which are not read yet.
    opening: Opening,
    /// Number of these bytes.
    waiting: usize,
    /// Bytes of its hello that were inspected and are still to be received.
    hello_left: usize,
    source: Option<usize>,
    /// Whether it is not read because the machine has no room.
    blocked: bool,
    /// Whether the peer has closed it. Earlier data is still being framed.
    ended: bool,
    since: Instant,
    /// Number of connections accepted before it. Several may arrive at the same time.
    number: u64,
    /// Number of turns in which no bytes had arrived.
    turns: u8,
    /// Whether the wait for its first bytes was long enough without recognising it.
    is_quiet: bool,
    /// Times of its first and latest bytes.
    heard: Option<(Instant, Instant)>,
    /// Bytes received.
    received: u64,
    /// Set for the second connection of a source. It is not read before the first one has ended: a source that
    /// reconnects at once may have left unread bytes there.
    parked: Option<Parked>,
}

impl Connection {
    /// Returns the source that it claims, and its framing. For transports that hand over bytes without a read, the
    /// bytes are in the framer.
    fn identity(&self) -> Option<(SourceId, Format)> {
        self.framer.identity().or_else(|| self.opening.identity())
    }

    /// Returns the number of arrived bytes that belong to no fragment, as far as they were inspected.
    fn left_over(&self) -> u64 {
        (self.waiting + self.framer.buffered()) as u64
    }
}

/// Counts of data that belongs to no source.
#[derive(Default)]
struct Counts {
    wire_bytes: u64,
    refused: u64,
    garbage: u64,
}

/// All front-end connections; see the picture above.
pub(super) struct FrontEndConnections<S: Dispatcher> {
    endpoints: S,
    service: ServicePoint,
    entrances: Entrances,
    sources: Vec<SourceConfig>,
    connections: EndpointTable<Connection>,
    /// By source: the owner of the blocks it fills.
    owners: Vec<Owner>,
    /// Owner without blocks: unknown connections are inspected but not read.
    no_owner: Owner,
    /// By source: its connection.
    connected: Vec<Option<Endpoint>>,
    /// By source: the splitter of its frames, if they hold several events. It is empty unless the source's connection
    /// is blocked.
    splitters: Vec<Option<Box<SourceSplitter>>>,
    /// By source: its black box, if configured.
    black_boxes: Vec<Option<Box<BlackBox>>>,
    events: Vec<Event>,
    received: Vec<Received>,
    counts: Counts,
    /// Framers of ended connections, to be reused; for sources with a frame description, a list by source.
    spare_framers: Vec<Framer>,
    own_framers: Vec<Vec<Framer>>,
    /// By source: its frame description, if it has one.
    descriptions: Vec<Option<Description>>,
    evacuation: Staging,
    evacuation_due: Instant,
    /// Unknown connections, the oldest first: scratch memory for inspecting them.
    unknown: Vec<(u64, Unknown)>,
    /// Number of connections accepted so far.
    accepted: u64,
    /// When the next unidentified connection is closed, or a waiting one is checked.
    recognition_due: Option<Instant>,
    /// When the next event of gathered frames is complete if its source stays silent.
    gathered_due: Option<Instant>,
    is_closed: bool,
}

/// Peer address for recordings: the peer of a connection does not matter there.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
/// Maximum number of fragments framed from one connection before the next has its turn.
const FRAME_BATCH: usize = 256;
/// Pause between two checks whether fragments should be moved.
const EVACUATION_PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of fragments moved in one turn.
const EVACUATED_AT_ONCE: usize = 256;

impl<S: Dispatcher> FrontEndConnections<S> {
    /// Opens the service point at `address` and reserves each source's quota of the receive pool. `evacuation` takes
    /// fragments that must leave that pool.
    ///
    /// # Errors
    /// If it cannot listen on the address.
    pub(super) fn new(
        mut endpoints: S,
        address: &str,
        sources: Vec<SourceConfig>,
        descriptions: &[(SourceId, Description)],
        evacuation: Staging,
    ) -> Result<Self, EndpointError> {
        let service = endpoints.listen(address)?;
        let no_owner = endpoints.pool_mut().and_then(|pool| pool.reserve(0).ok()).unwrap_or(Owner::SHARED);
        let owners = quotas(&mut endpoints, &sources);
        Ok(Self {
            endpoints,
            service,
            entrances: Entrances::default(),
            connections: EndpointTable::default(),
            owners,
            no_owner,
            connected: vec![None; sources.len()],
            splitters: sources.iter().map(|source| splitter(source.id, described(source, descriptions))).collect(),
            black_boxes: sources.iter().map(|_| None).collect(),
            events: Vec::with_capacity(1024),
            received: Vec::with_capacity(FRAME_BATCH),
            counts: Counts::default(),
            spare_framers: spare_framers(sources.len()),
            own_framers: sources.iter().map(|source| own_framers(source, described(source, descriptions))).collect(),
            descriptions: sources.iter().map(|source| described(source, descriptions).cloned()).collect(),
            evacuation,
            evacuation_due: Instant::ZERO,
            unknown: Vec::with_capacity(sources.len() + MOST_UNKNOWN + 1),
            accepted: 0,
            recognition_due: None,
            gathered_due: None,
            is_closed: false,
            sources,
        })
    }

    /// Returns the address that front ends connect to, including the port.
    pub(super) fn address(&self) -> String {
        self.endpoints.address_of(self.service).unwrap_or_default()
    }

    /// Adds an entrance for a source. Returns the address on which it listens, including the port.
    ///
    /// # Errors
    /// If it cannot listen on the address, or the socket cannot be adopted.
    pub(super) fn add_entrance(
        &mut self,
        source: SourceId,
        entrance: Entrance,
    ) -> Result<Option<String>, EndpointError> {
        match self.sources.iter().position(|known| known.id == source) {
            Some(source) => self.entrances.add(&mut self.endpoints, source, entrance, self.no_owner),
            None => Ok(None),
        }
    }

    /// Sets the splitter of a source, by its index.
    pub(super) fn set_splitter(&mut self, source: usize, splitter: Box<SourceSplitter>) {
        self.splitters[source] = Some(splitter);
    }

    /// Adds a black box to a source.
    pub(super) fn add_black_box(&mut self, source: SourceId, black_box: BlackBox) {
        if let Some(source) = self.sources.iter().position(|known| known.id == source) {
            self.black_boxes[source] = Some(Box::new(black_box));
        }
    }

    /// Drops, at the end of the run, frames that wait to be gathered or divided.
    pub(super) fn abandon_waiting(&mut self, readout: &mut Readout) {
        for (source, splitter) in self.splitters.iter_mut().enumerate() {
            let Some(splitter) = splitter else { continue };
            readout.abandon(source, splitter.abandon());
        }
        for index in 0..self.connections.places() {
            if let Some((_, connection)) = self.connections.at(index)
                && let Some(source) = connection.source
            {
                readout.abandon(source, connection.framer.abandon());
            }
        }
    }

    /// Refuses further connections.
    pub(super) const fn close(&mut self) {
        self.is_closed = true;
    }

    /// Returns the accounts of the pools for moved and for received data, after collecting the blocks that have been
    /// returned.
    pub(super) fn pools(&mut self) -> impl Iterator<Item = PoolAccount> {
        let moved = self.evacuation.pool_mut();
        moved.collect();
        [moved.account()].into_iter().chain(received(&mut self.endpoints))
    }

    /// Returns the cumulative counters; `refused` is added to the connections refused here.
    pub(super) fn counters(&self, refused: u64) -> [(Counter, u64); 9] {
        let idle = self.connections.iter();
        let idle = idle.filter(|(_, one)| one.source.is_none() && one.heard.is_none() && !one.ended).count() as u64;
        let pool = self.endpoints.pool().map(Pool::account).unwrap_or_default();
        let blocks = self.endpoints.pool().map_or(0, Pool::blocks) as u64;
        [
            (Counter::WireBytesReceived, self.counts.wire_bytes),
            (Counter::ConnectionsRefused, self.counts.refused + refused),
            (Counter::ConnectionsIdle, idle),
            (Counter::GarbageBytes, self.counts.garbage),
            (Counter::BytesCopied, self.evacuation.copied()),
            (Counter::PoolLoans, pool.loans),
            (Counter::PoolReturns, pool.returned),
            (Counter::PoolHeld, pool.held),
            (Counter::PoolBlocks, blocks),
        ]
    }

    /// Returns when the next turn is due even if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let own = [self.recognition_due, self.gathered_due, self.endpoints.next_deadline()];
        let calls = self.entrances.next_deadline().filter(|_| !self.is_closed);
        let splitters = self.splitters.iter().flatten().filter_map(|splitter| splitter.next_deadline());
        own.into_iter().flatten().chain(calls).chain(splitters).min()
    }

    /// Prepares the thread's sleep and arms the wake-up. Returns false if there is work to do immediately.
    pub(super) fn prepare_wait(&mut self) -> bool {
        self.endpoints.prepare_wait()
    }

    /// Appends the descriptors that become readable when data arrive.
    pub(super) fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.endpoints.wait_descriptor());
        self.splitters.iter().flatten().for_each(|splitter| splitter.descriptors(into));
    }

    /// Returns the cumulative counters of sources whose frames are divided.
    pub(super) fn divided(&self) -> impl Iterator<Item = (SourceId, Counter, u64)> {
        self.splitters.iter().flatten().flat_map(|splitter| splitter.counters())
    }

    /// Processes the available data. Returns the amount of work done.
    pub(super) fn poll(&mut self, now: Instant, readout: &mut Readout) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let mut work = self.endpoints.poll(now, &mut events);
        if !self.is_closed {
            work += self.entrances.call_due(now, &mut self.endpoints, self.no_owner);
        }
        work += self.splitters.iter_mut().flatten().map(|splitter| splitter.turn(now)).sum::<usize>();
        for event in events.drain(..) {
            match event {
                Event::ConnectionRequest { service_point, endpoint, .. } => self.accept(now, service_point, endpoint),
                Event::Established { endpoint } => {
                    if let Some(source) = self.entrances.established(endpoint) {
                        self.enter(now, endpoint, Some(source));
                    }
                }
                Event::ConnectFailed { endpoint, .. } => self.entrances.ended(now, endpoint, true),
                Event::Received { endpoint, slice } => {
                    self.counts.wire_bytes += slice.len() as u64;
                    if let Some(connection) = self.connections.get_mut(endpoint) {
                        let whose = connection.source.or(connection.place);
                        let of_hello = connection.hello_left.min(slice.len());
                        if let Some(black_box) = whose.and_then(|source| self.black_boxes[source].as_mut()) {
                            let is_framed = connection.hello_left == 0;
                            black_box.mark_frame(if is_framed { connection.framer.buffered() } else { 0 });
                            black_box.record(now, NOWHERE, &slice[of_hello..]);
                        }
                        connection.hello_left -= of_hello;
                        connection.received += slice.len() as u64;
                        connection.framer.set_now(now);
                        connection.framer.push(slice);
                        connection.heard = Some((connection.heard.map_or(now, |(first, _)| first), now));
                        self.frame(now, endpoint, readout);
                    }
                }
                Event::Disconnected { endpoint } | Event::Broken { endpoint, .. } => {
                    if let Some(connection) = self.connections.get_mut(endpoint) {
                        connection.ended = true;
                        connection.framer.finish();
                        if is_planted(Flaw::ClosedBeforeReadOut) {
                            connection.framer.clear();
                        }
                        self.frame(now, endpoint, readout);
                    }
                }
                Event::HandedOver { .. }
                | Event::SendQueueLow { .. }
                | Event::SendQueueHigh { .. }
                | Event::Finished { .. } => {}
            }
        }
        self.events = events;
        self.black_boxes.iter_mut().flatten().for_each(|black_box| black_box.hand_over(now));
        work
    }

    fn accept(&mut self, now: Instant, service: ServicePoint, endpoint: Endpoint) {
        if self.is_closed {
            self.endpoints.reject(endpoint);
            return;
        }
        self.make_room(now);
        self.endpoints.set_owner(endpoint, self.no_owner);
        self.endpoints.accept(endpoint);
        self.enter(now, endpoint, self.entrances.source_at(service));
    }

    /// Enters an established connection; `place` is the source to which it must belong, if that is known.
    fn enter(&mut self, now: Instant, endpoint: Endpoint, place: Option<usize>) {
        let largest = self.sources.iter().map(|source| source.max_fragment).max().unwrap_or(0);
        let limits = FramerLimits { max_fragment: largest, check_crc: false, gather: None };
        let mut framer = self.framer_at(place).unwrap_or_else(|| Framer::new(limits));
        framer.set_limits(limits);
        let connection = Connection {
            framer,
            place,
            opening: Opening::Unfinished,
            waiting: 0,
            hello_left: 0,
            source: None,
            blocked: false,
            ended: false,
            since: now,
            number: self.accepted,
            turns: 0,
            is_quiet: false,
            heard: None,
            received: 0,
            parked: None,
        };
        self.accepted += 1;
        self.connections.insert(endpoint, connection);
    }

    /// Returns a framer for a connection with this place, if any is left.
    fn framer_at(&mut self, place: Option<usize>) -> Option<Framer> {
        match place {
            // This source has its own frame description. More framers than the stored ones are needed if it reconnects
            // repeatedly without being read.
            Some(place) if self.descriptions[place].is_some() => {
                let more = || own_framer(&self.sources[place], self.descriptions[place].as_ref());
                self.own_framers[place].pop().or_else(more)
            }
            _ => self.spare_framers.pop(),
        }
    }

    /// Frames the received bytes of a connection, as many fragments as the machine has room for.
    fn frame(&mut self, now: Instant, endpoint: Endpoint, readout: &mut Readout) {
        loop {
            let Some(connection) = self.connections.get_mut(endpoint) else { return };
            let Some(source) = connection.source else {
                if !self.identify(now, endpoint, readout) {
                    return;
                }
                continue;
            };
            let room = readout.room(source);
            let framed = match &mut self.splitters[source] {
                None => connection.framer.next_batch(&mut self.received, room.min(FRAME_BATCH)),
                Some(splitter) => {
                    let came = connection.heard.map_or(now, |(_, last)| last);
                    splitter.next_batch(now, came, &mut connection.framer, &mut self.received, room.min(FRAME_BATCH))
                }
            };
            let count = self.received.len();
            if is_planted(Flaw::FragmentTakenTwice) {
                self.received.extend(self.received.first().cloned());
            }
            self.deliver(now, endpoint, source, readout);
            if let Err(error) = framed {
                if let Some(black_box) = &mut self.black_boxes[source] {
                    black_box.note(now, error.cause.name());
                }
                readout.framing_lost(source, error);
                self.endpoints.abort(endpoint);
                // The lost fragment is counted with the error.
                self.end(now, endpoint, false, readout);
                return;
            }
            if is_pending(&self.splitters, source) {
                self.block(now, endpoint, true, readout);
                return;
            }
            if count < room.min(FRAME_BATCH) {
                break;
            }
            if readout.room(source) == 0 {
                self.block(now, endpoint, true, readout);
                return;
            }
        }
        let Some(connection) = self.connections.get_mut(endpoint) else { return };
        if connection.ended {
            let mid_fragment = connection.framer.is_mid_fragment();
            self.end(now, endpoint, mid_fragment, readout);
        }
    }

    /// Gives the framed data of a source's connection to the machine.
    fn deliver(&mut self, now: Instant, endpoint: Endpoint, source: usize, readout: &mut Readout) {
        let Some(connection) = self.connections.get_mut(endpoint) else { return };
        let counts = counts(connection, self.splitters[source].as_deref_mut());
        if self.received.is_empty() {
            // A source without a recognised frame is sending all the same.
            if counts != FrameCounts::NONE {
                readout.note_frames(now, source, counts);
            }
            return;
        }
        if let Some(black_box) = &mut self.black_boxes[source] {
            black_box.look(now, &self.received, &counts);
        }
        // A gap must be known before the fragments that show its end.
        readout.note_frames(now, source, counts);
        readout.receive(now, source, &mut self.received);
        self.received.clear();
    }

    fn end(&mut self, now: Instant, endpoint: Endpoint, mid_fragment: bool, readout: &mut Readout) {
        if let Some(connection) = self.connections.get_mut(endpoint)
            && let Some(source) = connection.source
        {
            connection.framer.end(&mut self.received);
            self.deliver(now, endpoint, source, readout);
        }
        let Some(mut connection) = self.connections.remove(endpoint) else { return };
        if let Some(source) = connection.source {
            self.connected[source] = None;
            readout.note_frames(now, source, counts(&mut connection, self.splitters[source].as_deref_mut()));
            readout.source_disconnected(now, source, mid_fragment);
        }
        let ends = connection.source.is_some_and(|source| self.sources[source].on_close == OnClose::End);
        self.entrances.ended(now, endpoint, !ends);
        self.keep(connection.framer);
    }

    /// Keeps the framer of an ended connection for the next one.
    fn keep(&mut self, mut framer: Framer) {
        let source = framer.source().filter(|_| framer.is_described());
        let own = source.and_then(|id| self.sources.iter().position(|source| source.id == id));
        let spare = match own {
            Some(source) => &mut self.own_framers[source],
            None => &mut self.spare_framers,
        };
        if spare.len() < spare.capacity() {
            framer.clear();
            spare.push(framer);
        }
    }

    /// Applies back-pressure: a source without room is not read, so that TCP's window closes and the source waits.
    fn block(&mut self, now: Instant, endpoint: Endpoint, blocked: bool, readout: &mut Readout) {
        let Some(connection) = self.connections.get_mut(endpoint) else { return };
        if connection.blocked == blocked {
            return;
        }
        connection.blocked = blocked;
        self.endpoints.set_reading(endpoint, !blocked);
        if let Some(source) = connection.source {
            readout.set_being_read(now, source, !blocked);
        }
    }

    /// Resumes sources that have room again. Fragments are moved for their sake, or because a card needs room.
    pub(super) fn go_on(&mut self, now: Instant, readout: &mut Readout, for_cards: bool) {
        let (mut any_dry, mut any_new, mut any_unknown) = (false, false, false);
        (self.recognition_due, self.gathered_due) = (None, None);
        for index in 0..self.connections.places() {
            let Some((endpoint, connection)) = self.connections.at(index) else { continue };
            let Some(source) = connection.source else {
                any_unknown = true;
                any_new |= self.go_on_with_unknown(now, endpoint, readout);
                continue;
            };
            let may_go_on = connection.blocked && readout.room(source) > 0 && !is_pending(&self.splitters, source);
            if may_go_on && !is_planted(Flaw::BlockedForEver) {
                self.block(now, endpoint, false, readout);
                self.frame(now, endpoint, readout);
            } else if !connection.blocked {
                // A source whose quota is used up is not read either. That is back-pressure, not absence.
                let dry = self.endpoints.is_dry(endpoint);
                readout.set_being_read(now, source, !dry);
                any_dry |= dry;
            }
            self.settle(now, endpoint, readout);
        }
        if any_unknown {
            self.end_silent(now);
        }
        if any_new {
            // Waiting data counts as received now: later in this turn the source may be given up.
            self.poll(now, readout);
        }
        if now < self.evacuation_due {
            return;
        }
        if any_dry || for_cards {
            self.evacuation_due = now.after(EVACUATION_PAUSE);
        }
        // One held fragment pins its whole block. If the held data would fit into half of the pool, it is moved.
        let pinned = self.endpoints.pool().map_or(0, |pool| (pool.held() * pool.block_size()) as u64);
        if for_cards || any_dry && readout.held_bytes() * 2 <= pinned {
            self.evacuate(readout);
        }
    }

    /// Completes an event of gathered frames if its source has sent data and has been silent for long enough.
    fn settle(&mut self, now: Instant, endpoint: Endpoint, readout: &mut Readout) {
        let gathers = |connection: &&mut Connection| connection.framer.gathers();
        let Some(connection) = self.connections.get_mut(endpoint).filter(gathers) else { return };
        let was_heard = !connection.blocked && !self.endpoints.is_dry(endpoint);
        if connection.framer.settle(now, was_heard) && !connection.blocked {
            self.frame(now, endpoint, readout);
        }
        let due = self.connections.get_mut(endpoint).and_then(|connection| connection.framer.next_deadline());
        self.gathered_due = self.gathered_due.into_iter().chain(due).min();
    }

    /// Returns whether no source could get a block.
    fn is_pool_empty(&self) -> bool {
        self.endpoints.pool().is_some_and(|pool| self.owners.iter().all(|&owner| pool.available(owner) == 0))
    }

    /// Moves the oldest fragments to blocks of their own, so that blocks of the receive pool are freed. The copies are
    /// counted.
    fn evacuate(&mut self, readout: &mut Readout) {
        let (evacuation, mut left) = (&mut self.evacuation, EVACUATED_AT_ONCE);
        readout.oldest_payloads(|_, payload| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            let Some(copy) = payload.evacuate(evacuation) else { return ControlFlow::Break(()) };
            *payload = copy;
            left -= 1;
            ControlFlow::Continue(())
        });
    }
}

/// Returns the splitter of a source's frames, if they hold several events.
fn splitter(source: SourceId, description: Option<&Description>) -> Option<Box<SourceSplitter>> {
    SourceSplitter::of(source, description?)
}

/// Returns whether another process must first divide the source's frames.
fn is_pending(splitters: &[Option<Box<SourceSplitter>>], source: usize) -> bool {
    splitters[source].as_ref().is_some_and(|splitter| splitter.is_pending())
}

/// Returns the counts beside the frames of a connection since the last call.
fn counts(connection: &mut Connection, splitter: Option<&mut SourceSplitter>) -> FrameCounts {
    let divided = splitter.map_or(0, SourceSplitter::take_divided);
    FrameCounts { divided, ..connection.framer.take_counts() }
}

/// Divides the receive pool equally among the sources that have a connection.
fn quotas(endpoints: &mut impl Dispatcher, sources: &[SourceConfig]) -> Vec<Owner> {
    let Some(pool) = endpoints.pool_mut() else { return Vec::new() };
    let count = sources.iter().filter(|source| source.format.is_some()).count();
    let each = pool.blocks() / count.max(1);
    let mut quota =
        |source: &SourceConfig| source.format.and_then(|_| pool.reserve(each).ok()).unwrap_or(Owner::SHARED);
    sources.iter().map(&mut quota).collect()
}

/// Pause before a board that does not answer is called again.
const RETRY: Duration = Duration::from_millis(200);

/// A way in for one source.
#[derive(Debug)]
pub enum Entrance {
    /// Listens at this address. Any client that connects is the source.
    Listen(String),
    /// The source listens at this address. It is called, and called again when the connection has ended, unless that is
    /// the end of the source.
    Call(String),
    /// All bytes from this socket are the source's.
    Adopt {
        /// One end of a connected pair.
        socket: OwnedFd,
        /// Name of the other end, for messages.
        name: String,
    },
}

/// A board that listens.
#[derive(Debug)]
struct Call {
    source: usize,
    address: String,
    endpoint: Option<Endpoint>,
    retry: Instant,
    /// Whether it has sent everything.
    is_over: bool,
}

/// Every entrance that belongs to one source.
#[derive(Debug, Default)]
pub(super) struct Entrances {
    listening: Vec<(ServicePoint, usize)>,
    calls: Vec<Call>,
    adopted: Vec<(Endpoint, usize)>,
}

impl Entrances {
    /// Adds an entrance for a source. Returns the address on which it listens, including the port. Endpoints that are
    /// made here use `owner`'s quota at first.
    ///
    /// # Errors
    /// If it cannot listen on the address, or the transport has no sockets to adopt.
    pub(super) fn add(
        &mut self,
        endpoints: &mut impl Dispatcher,
        source: usize,
        entrance: Entrance,
        owner: Owner,
    ) -> Result<Option<String>, EndpointError> {
        match entrance {
            Entrance::Listen(address) => {
                let service = endpoints.listen(&address)?;
                self.listening.push((service, source));
                return Ok(endpoints.address_of(service));
            }
            Entrance::Call(address) => {
                self.calls.push(Call { source, address, endpoint: None, retry: Instant::ZERO, is_over: false });
            }
            Entrance::Adopt { socket, name } => {
                let adopted = endpoints.adopt(socket);
                let wrong = |source| EndpointError::System { what: "cannot read from", address: name, source };
                let endpoint = adopted.map_err(wrong)?;
                endpoints.set_owner(endpoint, owner);
                self.adopted.push((endpoint, source));
            }
        }
        Ok(None)
    }

    /// Returns the source of a service point; `None` for the shared one.
    fn source_at(&self, service: ServicePoint) -> Option<usize> {
        self.listening.iter().find(|(known, _)| *known == service).map(|(_, source)| *source)
    }

    /// Returns the source of a called or adopted connection that is now established.
    pub(super) fn established(&mut self, endpoint: Endpoint) -> Option<usize> {
        let called = self.calls.iter().find(|call| call.endpoint == Some(endpoint)).map(|call| call.source);
        called.or_else(|| {
            let place = self.adopted.iter().position(|(known, _)| *known == endpoint)?;
            Some(self.adopted.swap_remove(place).1)
        })
    }

    /// Connects to the sources that are not connected and whose retry is due. Their first data is stored in `owner`'s
    /// blocks. Returns the number of connection attempts.
    fn call_due(&mut self, now: Instant, endpoints: &mut impl Dispatcher, owner: Owner) -> usize {
        let is_due = |call: &&mut Call| call.endpoint.is_none() && !call.is_over && now >= call.retry;
        let mut called = 0;
        for call in self.calls.iter_mut().filter(is_due) {
            call.retry = now.after(RETRY);
            call.endpoint = endpoints.connect(&call.address).ok();
            call.endpoint.into_iter().for_each(|endpoint| endpoints.set_owner(endpoint, owner));
            called += 1;
        }
        called
    }

    /// Handles the end of a connection, or a failed attempt. A source that `may_return` is called again after a while.
    pub(super) fn ended(&mut self, now: Instant, endpoint: Endpoint, may_return: bool) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.endpoint == Some(endpoint)) {
            call.endpoint = None;
            call.retry = now.after(RETRY);
            call.is_over = !may_return;
        }
    }

    /// Returns when the next connection attempt is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let waiting = self.calls.iter().filter(|call| call.endpoint.is_none() && !call.is_over);
        waiting.map(|call| call.retry).min()
    }
}
