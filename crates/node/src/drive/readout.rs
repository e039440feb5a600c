//! A readout unit: front ends on one side, builder units and the event manager on the other.
//!
//! ```text
//!  sources (TCP) -> Framer per connection -> flow::Readout -> answers per builder -> peers
//!                        back-pressure: no room -> not read -> the sender waits
//! ```

use super::Drive;
use super::delivery::Answers;
use super::farewell::Farewell;
use super::link::{Identity, Outbox, Unsent, received};
use super::managers::{Managers, Welcomed};
use super::reader::{Incoming, MessageReader};
use super::refusal::Refusal;
use super::table::EndpointTable;
use ropewalk_flow::messages::{Batch, Finished, Message, Received, Report, ReportEntry};
use ropewalk_flow::readout::{Framer, FramerLimits, Readout, ReadoutAction, ReadoutConfig};
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, Parcel, ServicePoint};
use ropewalk_memory::{Owner, Staging};
use ropewalk_terms::{Counter, Epoch, Instant, NodeId, PoolAccount, Role};
use ropewalk_wire::message::{Header, Hello, RefuseReason};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a readout unit's drive is made from.
#[derive(Debug)]
pub struct ReadoutDriveConfig {
    /// The machine's configuration.
    pub readout: ReadoutConfig,
    /// Who it is.
    pub identity: Identity,
    /// Its name, for the hello.
    pub name: String,
    /// Fingerprint of the configuration.
    pub fingerprint: u64,
    /// Where front ends connect to.
    pub listen: String,
    /// Where builder units connect to.
    pub address: String,
    /// Where the event manager listens, or several may: the one with the highest epoch that welcomes is obeyed.
    pub managers: Vec<String>,
    /// Builder units of the run.
    pub builders: u16,
    /// How often counters are reported.
    pub report_interval: Duration,
}

/// One connection of a front end.
struct SourceConnection {
    framer: Framer,
    source: Option<usize>,
    /// Not read, because the machine has no room.
    blocked: bool,
    /// The peer has closed; what it sent before is still being framed.
    ended: bool,
    since: Instant,
    /// When its first bytes came.
    heard: Option<Instant>,
    /// It is a connected source's second connection: not read until the first has ended, as it does when a source
    /// comes back at once while what it sent before still waits; turned away where it does not.
    parked_until: Option<Instant>,
}

/// What is at the other end of an endpoint between nodes.
struct Peer {
    endpoint: Endpoint,
    reader: MessageReader,
    node: Option<NodeId>,
}

/// Counters of the drive itself: what belongs to no source.
#[derive(Default)]
struct Counts {
    wire_bytes: u64,
    refused: u64,
    garbage: u64,
    old_messages: u64,
}

/// A readout unit: see the module's picture.
pub struct ReadoutDrive<S: Dispatcher, P: Dispatcher> {
    sources: S,
    peers: P,
    service: ServicePoint,
    builder_service: ServicePoint,
    config: ReadoutDriveConfig,
    readout: Readout,
    outbox: Outbox,
    connections: EndpointTable<SourceConnection>,
    owners: Vec<Owner>,
    connected: Vec<Option<Endpoint>>,
    links: EndpointTable<Peer>,
    managers: Managers,
    builders: Vec<Option<Endpoint>>,
    answers: Vec<Answers>,
    unsent: VecDeque<Message>,
    events: Vec<Event>,
    received: Vec<Received>,
    report_due: Instant,
    counts: Counts,
    /// Framers of connections that have ended, for the next ones.
    spare_framers: Vec<Framer>,
    evacuation: Staging,
    evacuation_due: Instant,
    /// When the next connection that has said too little to be known is turned away.
    recognition_due: Option<Instant>,
    farewell: Farewell,
    refusal: Option<Refusal>,
}

/// Fragments framed from one connection before the next has its turn.
const FRAME_BATCH: usize = 256;
/// Blocks for connections that never become known.
const STRANGERS_BLOCKS: usize = 8;
/// Blocks that a connection of a source fills before it is known: what lies in them stays until its events are done,
/// and meanwhile every other source must be able to say who it is.
const UNKNOWN_BLOCKS: usize = 2;
/// How long a connection that has said something may take until it is known whose it is. One that has said nothing yet
/// may be a front end that waits for its first trigger.
const RECOGNITION: Duration = Duration::from_secs(5);
/// How long a source's second connection waits for the end of its first.
const PARKING: Duration = Duration::from_secs(2);
/// Pause between two looks at whether fragments should move.
const EVACUATION_PAUSE: Duration = Duration::from_millis(5);
/// Fragments that move in one turn.
const EVACUATED_AT_ONCE: usize = 256;

impl<S: Dispatcher, P: Dispatcher> ReadoutDrive<S, P> {
    /// Opens both service points and reserves each source's quota of the receive pool. Messages are encoded in
    /// `staging`; `evacuation` takes fragments that must leave the receive pool.
    ///
    /// # Errors
    /// Where an address cannot be listened on.
    pub fn new(
        mut config: ReadoutDriveConfig,
        mut sources: S,
        mut peers: P,
        staging: Staging,
        evacuation: Staging,
    ) -> Result<Self, EndpointError> {
        let service = sources.listen(&config.listen)?;
        let builder_service = peers.listen(&config.address)?;
        config.listen = sources.address_of(service).unwrap_or_default();
        config.address = peers.address_of(builder_service).unwrap_or_default();
        let count = config.readout.sources.len();
        let owners = quotas(&mut sources, count);
        let builders = usize::from(config.builders);
        Ok(Self {
            readout: Readout::new(config.readout.clone()),
            outbox: Outbox::new(config.identity, staging),
            connections: EndpointTable::default(),
            owners,
            connected: vec![None; count],
            links: EndpointTable::default(),
            managers: Managers::new(&config.managers),
            builders: vec![None; builders],
            answers: (0..builders).map(|_| Answers::default()).collect(),
            unsent: VecDeque::with_capacity(64),
            events: Vec::with_capacity(1024),
            received: Vec::with_capacity(FRAME_BATCH),
            report_due: Instant::ZERO,
            counts: Counts::default(),
            spare_framers: spare_framers(count),
            evacuation,
            evacuation_due: Instant::ZERO,
            recognition_due: None,
            farewell: Farewell::default(),
            refusal: None,
            sources,
            peers,
            service,
            builder_service,
            config,
        })
    }

    /// Where front ends connect to, port filled in.
    pub fn source_address(&self) -> String {
        self.sources.address_of(self.service).unwrap_or_default()
    }

    /// Where builder units connect to, port filled in.
    pub fn builder_address(&self) -> String {
        self.peers.address_of(self.builder_service).unwrap_or_default()
    }

    /// The machine, for tests and checkers.
    pub const fn machine(&self) -> &Readout {
        &self.readout
    }

    /// It was told that the run is over.
    pub const fn is_finishing(&self) -> bool {
        self.farewell.is_told()
    }

    /// The accounts of its pools, for tests and checkers. After a run blocks are out only while they are filled: one
    /// for what is staged, one for each connection.
    pub fn pools(&mut self) -> Vec<PoolAccount> {
        let staged = self.evacuation.pool_mut();
        staged.collect();
        let own = [self.outbox.pool(), staged.account()];
        own.into_iter().chain(received(&mut self.sources)).chain(received(&mut self.peers)).collect()
    }

    fn poll_sources(&mut self, now: Instant) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let work = self.sources.poll(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::ConnectionRequest { endpoint, .. } => self.accept_source(now, endpoint),
                Event::Received { endpoint, slice } => {
                    self.counts.wire_bytes += slice.len() as u64;
                    if let Some(connection) = self.connections.get_mut(endpoint) {
                        connection.framer.push(slice);
                        connection.heard.get_or_insert(now);
                        self.frame(now, endpoint);
                    }
                }
                Event::Disconnected { endpoint } | Event::Broken { endpoint, .. } => {
                    if let Some(connection) = self.connections.get_mut(endpoint) {
                        connection.ended = true;
                        self.frame(now, endpoint);
                    }
                }
                Event::Established { .. }
                | Event::HandedOver { .. }
                | Event::SendQueueLow { .. }
                | Event::ConnectFailed { .. } => {}
            }
        }
        self.events = events;
        work
    }

    fn accept_source(&mut self, now: Instant, endpoint: Endpoint) {
        if self.farewell.is_told() {
            self.sources.reject(endpoint);
            return;
        }
        self.sources.accept(endpoint);
        let largest = self.config.readout.sources.iter().map(|source| source.max_fragment).max().unwrap_or(0);
        let limits = FramerLimits { max_fragment: largest, check_crc: false };
        let framer = match self.spare_framers.pop() {
            Some(mut framer) => {
                framer.set_limits(limits);
                framer
            }
            None => Framer::new(limits),
        };
        let connection = SourceConnection {
            framer,
            source: None,
            blocked: false,
            ended: false,
            since: now,
            heard: None,
            parked_until: None,
        };
        self.connections.insert(endpoint, connection);
    }

    /// Finds fragments in what a connection has received, as many as the machine has room for.
    fn frame(&mut self, now: Instant, endpoint: Endpoint) {
        loop {
            let Some(connection) = self.connections.get_mut(endpoint) else { return };
            let Some(source) = connection.source else {
                if !self.identify(now, endpoint) {
                    return;
                }
                continue;
            };
            let room = self.readout.room(source);
            let framed = connection.framer.next_batch(&mut self.received, room.min(FRAME_BATCH));
            let count = self.received.len();
            if count > 0 {
                self.readout.receive(now, source, &mut self.received);
                self.received.clear();
            }
            if let Err(error) = framed {
                self.readout.framing_lost(source, error);
                self.sources.abort(endpoint);
                // The fragment that it cost is counted with the error.
                self.end_source(now, endpoint, false);
                return;
            }
            if count < room.min(FRAME_BATCH) {
                break;
            }
            if self.readout.room(source) == 0 {
                self.block(now, endpoint, true);
                return;
            }
        }
        let Some(connection) = self.connections.get_mut(endpoint) else { return };
        if connection.ended {
            let mid_fragment = connection.framer.is_mid_fragment();
            self.end_source(now, endpoint, mid_fragment);
        }
    }

    /// Finds out whose connection it is from its first bytes; false where more bytes are needed or it was refused.
    fn identify(&mut self, now: Instant, endpoint: Endpoint) -> bool {
        let Some(connection) = self.connections.get_mut(endpoint) else { return false };
        // Bytes that are no front end's show here, before any fragment is asked for.
        let lost = connection.framer.next_batch(&mut self.received, 0).map_err(|error| error.bytes_discarded).err();
        let source = match (connection.framer.source(), connection.framer.format()) {
            (Some(id), Some(format)) if lost.is_none() => {
                let source = self.readout.source_index(id);
                source.filter(|&source| self.config.readout.sources[source].format == format)
            }
            _ if lost.is_some() || connection.ended => None,
            _ => return false,
        };
        match source {
            Some(source) if self.connected.get(source).is_some_and(Option::is_none) => {
                let config = &self.config.readout.sources[source];
                connection
                    .framer
                    .set_limits(FramerLimits { max_fragment: config.max_fragment, check_crc: config.check_crc });
                connection.source = Some(source);
                self.connected[source] = Some(endpoint);
                if let Some(&owner) = self.owners.get(source) {
                    self.sources.set_owner(endpoint, owner);
                }
                self.readout.source_connected(now, source);
                true
            }
            Some(_) if !connection.ended && connection.parked_until.is_none_or(|until| now < until) => {
                connection.parked_until.get_or_insert(now.after(PARKING));
                self.sources.set_reading(endpoint, false);
                false
            }
            // Nobody's bytes, a source of another readout unit, or a second connection where the first goes on.
            _ => {
                self.counts.garbage += lost.unwrap_or(0);
                self.turn_away(endpoint);
                false
            }
        }
    }

    /// Looks again at a source's second connection.
    fn unpark(&mut self, now: Instant, endpoint: Endpoint) {
        if self.identify(now, endpoint) {
            self.sources.set_reading(endpoint, true);
            self.frame(now, endpoint);
        }
    }

    /// Ends a connection that is no source's.
    fn turn_away(&mut self, endpoint: Endpoint) {
        if let Some(stranger) = self.connections.remove(endpoint) {
            self.counts.garbage += stranger.framer.buffered() as u64;
            self.counts.refused += 1;
            self.sources.abort(endpoint);
            self.keep(stranger.framer);
        }
    }

    /// Connections that are not known yet cannot be read, because others have the blocks that all of them share. Of
    /// those that said something, and too little to be known, the oldest goes; where there is none, what sources sent
    /// before they were known moves.
    fn make_room_for_unknown(&mut self) {
        let mut oldest: Option<(Instant, Endpoint)> = None;
        for index in 0..self.connections.places() {
            let Some((endpoint, connection)) = self.connections.at(index) else { continue };
            let is_older = oldest.is_none_or(|(since, _)| connection.since < since);
            let is_known = connection.source.is_some() || connection.parked_until.is_some();
            if !is_known && connection.framer.buffered() > 0 && is_older {
                oldest = Some((connection.since, endpoint));
            }
        }
        match oldest {
            Some((_, endpoint)) => self.turn_away(endpoint),
            None => self.evacuate(),
        }
    }

    fn end_source(&mut self, now: Instant, endpoint: Endpoint, mid_fragment: bool) {
        let Some(connection) = self.connections.remove(endpoint) else { return };
        if let Some(source) = connection.source {
            self.connected[source] = None;
            self.readout.source_disconnected(now, source, mid_fragment);
        }
        self.keep(connection.framer);
    }

    /// A framer whose connection has ended waits for the next one.
    fn keep(&mut self, mut framer: Framer) {
        if self.spare_framers.len() < self.spare_framers.capacity() {
            framer.clear();
            self.spare_framers.push(framer);
        }
    }

    /// Back-pressure: a source without room is not read, so that TCP's window closes and the source waits.
    fn block(&mut self, now: Instant, endpoint: Endpoint, blocked: bool) {
        let Some(connection) = self.connections.get_mut(endpoint) else { return };
        if connection.blocked == blocked {
            return;
        }
        connection.blocked = blocked;
        self.sources.set_reading(endpoint, !blocked);
        if let Some(source) = connection.source {
            self.readout.set_being_read(now, source, !blocked);
        }
    }

    /// Goes on with sources that have room again.
    fn unblock(&mut self, now: Instant) {
        let (mut any_dry, mut unknown_dry) = (false, false);
        self.recognition_due = None;
        for index in 0..self.connections.places() {
            let Some((endpoint, connection)) = self.connections.at(index) else { continue };
            let Some(source) = connection.source else {
                // What it says waits for blocks, and is not to blame for that.
                let is_dry = self.sources.is_dry(endpoint);
                let known_by = connection.heard.map(|heard| heard.after(RECOGNITION)).filter(|_| !is_dry);
                if connection.parked_until.is_some() {
                    self.unpark(now, endpoint);
                } else if known_by.is_some_and(|known_by| now >= known_by) {
                    self.turn_away(endpoint);
                } else {
                    unknown_dry |= is_dry;
                    self.recognition_due = self.recognition_due.into_iter().chain(known_by).min();
                }
                continue;
            };
            if connection.blocked && self.readout.room(source) > 0 {
                self.block(now, endpoint, false);
                self.frame(now, endpoint);
            } else if !connection.blocked {
                // A source whose quota is used up is not read either: that is back-pressure, not absence.
                let dry = self.sources.is_dry(endpoint);
                self.readout.set_being_read(now, source, !dry);
                any_dry |= dry;
            }
        }
        if now < self.evacuation_due {
            return;
        }
        if any_dry || unknown_dry {
            self.evacuation_due = now.after(EVACUATION_PAUSE);
        }
        // One held fragment pins its whole block: where what is held would fit into half of the pool, it moves.
        let pinned = self.sources.pool().map_or(0, |pool| (pool.held() * pool.block_size()) as u64);
        if any_dry && self.readout.held_bytes() * 2 <= pinned {
            self.evacuate();
        }
        if unknown_dry {
            self.make_room_for_unknown();
        }
    }

    /// The oldest fragments move to blocks of their own, so that those of the receive pool come back: a copy, and
    /// counted.
    fn evacuate(&mut self) {
        let (evacuation, mut left) = (&mut self.evacuation, EVACUATED_AT_ONCE);
        self.readout.oldest_payloads(|_, payload| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            let Some(copy) = payload.evacuate(evacuation) else { return ControlFlow::Break(()) };
            *payload = copy;
            left -= 1;
            ControlFlow::Continue(())
        });
    }

    fn poll_peers(&mut self, now: Instant) -> usize {
        self.call_managers(now);
        let mut events = std::mem::take(&mut self.events);
        let work = self.peers.poll(now, &mut events);
        for event in events.drain(..) {
            let endpoint = event.endpoint();
            match event {
                Event::ConnectionRequest { .. } => {
                    self.peers.accept(endpoint);
                    self.links.insert(endpoint, Peer { endpoint, reader: MessageReader::default(), node: None });
                }
                Event::Established { .. } if self.managers.has(endpoint) => {
                    let hello = Message::Hello(Hello::new(&self.config.name, self.config.fingerprint));
                    let _ = self.outbox.send(&mut self.peers, endpoint, &hello);
                }
                Event::Received { slice, .. } => self.read_peer(now, endpoint, slice),
                Event::HandedOver { parcel, .. } => self.take_back(endpoint, parcel),
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    self.lose_peer(now, endpoint);
                }
                Event::Established { .. } | Event::SendQueueLow { .. } => {}
            }
        }
        self.events = events;
        work
    }

    fn call_managers(&mut self, now: Instant) {
        if self.farewell.is_done() {
            return;
        }
        let Self { managers, peers, links, .. } = self;
        managers.call(now, peers, |endpoint| {
            let reader = MessageReader::default();
            links.insert(endpoint, Peer { endpoint, reader, node: Some(NodeId::MANAGER) });
        });
    }

    fn read_peer(&mut self, now: Instant, endpoint: Endpoint, slice: ropewalk_memory::Slice) {
        let Some(mut peer) = self.links.remove(endpoint) else { return };
        peer.reader.push(slice);
        let mut keep = true;
        while keep {
            match peer.reader.next_incoming() {
                Ok(None) => break,
                Ok(Some(Incoming::Control(header, message))) => keep = self.hear(now, &mut peer, &header, &message),
                // Nobody sends super-fragments to a readout unit.
                Ok(Some(Incoming::SuperFragment(..))) | Err(_) => {
                    self.counts.refused += 1;
                    keep = false;
                }
            }
        }
        if keep {
            self.links.insert(endpoint, peer);
        } else {
            self.peers.close(endpoint);
            self.forget(now, endpoint, peer.node);
        }
    }

    /// Takes one message; false where the connection is to be closed.
    fn hear(&mut self, now: Instant, peer: &mut Peer, header: &Header, message: &Message) -> bool {
        match message {
            Message::Hello(hello) => return self.greet(now, peer, header, hello),
            Message::Welcome if peer.node == Some(NodeId::MANAGER) => {
                return self.welcomed(peer.endpoint, header.epoch);
            }
            Message::Refuse(reason) => {
                if peer.node == Some(NodeId::MANAGER) {
                    self.refusal = Refusal::lasting(NodeId::MANAGER, self.managers.address_of(peer.endpoint), *reason);
                    if self.refusal.is_some() {
                        self.farewell.end();
                    }
                }
                return false;
            }
            _ if peer.node == Some(NodeId::MANAGER) => self.order(now, peer.endpoint, header, message),
            // A builder unit may be of an earlier epoch still: what it asks for is wanted all the same.
            _ => {
                let Some(node) = peer.node else { return false };
                self.readout.message(now, node, message);
            }
        }
        true
    }

    /// Carries out what the event manager that is obeyed wants; what another one wants is counted.
    fn order(&mut self, now: Instant, endpoint: Endpoint, header: &Header, message: &Message) {
        if !self.managers.is_obeyed(endpoint, header.epoch) {
            self.counts.old_messages += 1;
            return;
        }
        self.outbox.identity.epoch = header.epoch;
        self.outbox.identity.run = header.run;
        match message {
            Message::Finished(_) => return self.farewell.dismiss(),
            Message::Finish => self.farewell.finish(),
            _ => {}
        }
        self.readout.message(now, NodeId::MANAGER, message);
    }

    /// An event manager takes this node in; false where a younger one is obeyed, as it is told.
    fn welcomed(&mut self, endpoint: Endpoint, epoch: Epoch) -> bool {
        match self.managers.welcome(endpoint, epoch) {
            Welcomed::TooOld => {
                let _ = self.outbox.send(&mut self.peers, endpoint, &Message::Refuse(RefuseReason::OldEpoch));
                false
            }
            Welcomed::Obeyed { left } => {
                self.outbox.identity.epoch = epoch;
                if let Some(left) = left {
                    // It may be alive and not know it.
                    let _ = self.outbox.send(&mut self.peers, left, &Message::Refuse(RefuseReason::OldEpoch));
                    self.peers.close(left);
                    let _ = self.links.remove(left);
                }
                self.farewell.manager_came();
                true
            }
        }
    }

    fn greet(&mut self, now: Instant, peer: &mut Peer, header: &Header, hello: &Hello) -> bool {
        let builder = usize::from(header.sender.index);
        let refused = if hello.version != ropewalk_wire::message::PROTOCOL_VERSION {
            Some(RefuseReason::Version)
        } else if hello.configuration != self.config.fingerprint {
            Some(RefuseReason::Configuration)
        } else if header.sender.role != Role::Builder || builder >= self.builders.len() {
            Some(RefuseReason::UnknownNode)
        } else {
            None
        };
        if let Some(reason) = refused {
            let _ = self.outbox.send(&mut self.peers, peer.endpoint, &Message::Refuse(reason));
            return false;
        }
        if let Some(old) = self.builders[builder].replace(peer.endpoint) {
            // The same builder again: its earlier connection is a leftover.
            self.peers.abort(old);
            let _ = self.links.remove(old);
            self.readout.peer_lost(now, header.sender);
        }
        self.answers[builder].begin(&self.peers);
        peer.node = Some(header.sender);
        let _ = self.outbox.send(&mut self.peers, peer.endpoint, &Message::Welcome);
        true
    }

    fn lose_peer(&mut self, now: Instant, endpoint: Endpoint) {
        if let Some(peer) = self.links.remove(endpoint) {
            self.forget(now, endpoint, peer.node);
        }
    }

    fn forget(&mut self, now: Instant, endpoint: Endpoint, node: Option<NodeId>) {
        if self.managers.lost(now, endpoint) {
            self.farewell.manager_lost(now);
        }
        let Some(node) = node else { return };
        if node.role == Role::Builder {
            let index = usize::from(node.index);
            if self.builders[index] != Some(endpoint) {
                return;
            }
            self.builders[index] = None;
            self.answers[index].clear();
        }
        self.readout.peer_lost(now, node);
    }

    /// Carries out what the machine wants, as far as there is room for it.
    fn act(&mut self, now: Instant) -> usize {
        let mut work = 0;
        if !self.flush_unsent() {
            return work;
        }
        while let Some(action) = self.readout.poll(now) {
            work += 1;
            match action {
                ReadoutAction::ToManager(Message::Finished(finished)) => {
                    self.report();
                    self.unsent.push_back(Message::Finished(Finished { in_flight: finished.in_flight }));
                    self.farewell.say();
                }
                ReadoutAction::ToManager(message) => self.unsent.push_back(message),
                ReadoutAction::Answer { builder, entry } => {
                    let index = usize::from(builder);
                    if self.builders.get(index).is_none_or(Option::is_none) {
                        continue;
                    }
                    let held = self.readout.super_fragment(entry.key).filter(|_| entry.not_held.is_none());
                    self.answers[index].add(entry, held);
                    if self.answers[index].is_full() && !self.flush_answers(index) {
                        break;
                    }
                }
            }
            if !self.flush_unsent() {
                break;
            }
        }
        for index in 0..self.answers.len() {
            self.flush_answers(index);
        }
        self.leave();
        work
    }

    /// Everything is said: closes the connection to the manager, which ends when all have done so.
    fn leave(&mut self) {
        if self.unsent.is_empty()
            && let Some(manager) = self.managers.obeyed()
            && self.farewell.leaves()
        {
            self.peers.close(manager);
        }
    }

    /// Sends what the event manager must hear; false where something has to wait.
    fn flush_unsent(&mut self) -> bool {
        let blocked = self.answers.iter().any(|answers| answers.is_full());
        if blocked && !(0..self.answers.len()).all(|index| self.flush_answers(index)) {
            return false;
        }
        let Some(manager) = self.managers.obeyed() else {
            // What nobody listens to is not kept: whoever comes asks for it again, and builder units go on being answered.
            self.unsent.clear();
            return true;
        };
        while let Some(message) = self.unsent.front() {
            match self.outbox.send(&mut self.peers, manager, message) {
                Ok(()) | Err(Unsent::Closed) => {
                    self.unsent.pop_front();
                }
                Err(Unsent::NoRoom) => return false,
            }
        }
        true
    }

    fn flush_answers(&mut self, index: usize) -> bool {
        let answers = &mut self.answers[index];
        if answers.is_empty() {
            return true;
        }
        let Some(endpoint) = self.builders[index] else {
            answers.clear();
            return true;
        };
        match answers.send(&mut self.outbox, &mut self.peers, endpoint) {
            Ok(()) => true,
            Err(Unsent::Closed) => {
                answers.clear();
                true
            }
            Err(Unsent::NoRoom) => false,
        }
    }

    /// A builder unit of this process gives back what it has emptied.
    fn take_back(&mut self, endpoint: Endpoint, parcel: Parcel) {
        if let Some(index) = self.builders.iter().position(|builder| *builder == Some(endpoint)) {
            self.answers[index].take_back(parcel);
        }
    }

    /// Sends all counters: those of the machine and those of the drive.
    fn report(&mut self) {
        let pool = self.sources.pool().map(ropewalk_memory::Pool::account).unwrap_or_default();
        let blocks = self.sources.pool().map_or(0, ropewalk_memory::Pool::blocks) as u64;
        let own = [
            (Counter::WireBytesReceived, self.counts.wire_bytes),
            (Counter::ConnectionsRefused, self.counts.refused),
            (Counter::GarbageBytes, self.counts.garbage),
            (Counter::MessagesRefused, self.counts.old_messages),
            (Counter::BytesCopied, self.evacuation.copied()),
            (Counter::PoolLoans, pool.loans),
            (Counter::PoolReturns, pool.returned),
            (Counter::PoolHeld, pool.held),
            (Counter::PoolBlocks, blocks),
        ];
        let own = own.into_iter().map(|(counter, value)| ReportEntry { source: None, what: counter as u16, value });
        let mut batch = Batch::new();
        for entry in self.readout.report().chain(own) {
            if batch.is_full() {
                let full = std::mem::take(&mut batch);
                self.unsent.push_back(Message::Report(Report { entries: full, last: false }));
            }
            batch.push(entry);
        }
        self.unsent.push_back(Message::Report(Report { entries: batch, last: true }));
    }
}

impl<S: Dispatcher, P: Dispatcher> Drive for ReadoutDrive<S, P> {
    fn turn(&mut self, now: Instant) -> usize {
        if self.farewell.is_done() {
            return 0;
        }
        let mut work = self.poll_sources(now) + self.poll_peers(now);
        self.unblock(now);
        if now >= self.report_due && self.managers.obeyed().is_some() && self.unsent.is_empty() {
            self.report_due = now.after(self.config.report_interval);
            self.report();
        }
        work += self.act(now);
        self.farewell.look(now);
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let report = self.managers.obeyed().map(|_| self.report_due);
        let managers = [self.managers.next_deadline(), self.farewell.next_deadline()];
        let endpoints = [self.recognition_due, self.sources.next_deadline(), self.peers.next_deadline()];
        [report, self.readout.next_deadline()].into_iter().chain(managers).chain(endpoints).flatten().min()
    }

    fn prepare_wait(&mut self) -> bool {
        // Both are asked, so that both are armed.
        let (sources, peers) = (self.sources.prepare_wait(), self.peers.prepare_wait());
        sources && peers
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.sources.wait_descriptor());
        into.extend(self.peers.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        self.farewell.is_done()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }
}

/// Framers for two connections of each source, as there are for a moment when one comes back.
fn spare_framers(sources: usize) -> Vec<Framer> {
    (0..2 * sources).map(|_| Framer::new(FramerLimits { max_fragment: 0, check_crc: false })).collect()
}

/// Divides the receive pool: some blocks for connections that are not known yet, the rest equally to the sources.
fn quotas(sources: &mut impl Dispatcher, count: usize) -> Vec<Owner> {
    let Some(pool) = sources.pool_mut() else { return Vec::new() };
    let each = pool.blocks().saturating_sub(STRANGERS_BLOCKS + UNKNOWN_BLOCKS * count) / count.max(1);
    (0..count).map(|_| pool.reserve(each).unwrap_or(Owner::SHARED)).collect()
}
