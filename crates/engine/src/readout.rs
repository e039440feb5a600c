//! A readout unit: front ends on one side, builder units and the event manager on the other.
//!
//! ```text
//!  front_ends -> flow::Readout -> answers per builder -> peers: builder units
//!                  ^  announce, release <-----------------------> event manager
//! ```

use super::admission::{Rivals, Strangers, Verdict};
use super::black_box::BlackBox;
use super::cards::Cards;
use super::connections::{Entrance, FrontEndConnections};
use super::datagrams::{DatagramInputConfig, Datagrams};
use super::delivery::Answers;
use super::link::{EndpointTable, Identity, Incoming, Outbox, Peer, Refusal, Unsent, push_report, received};
use super::managers::{Managers, Shutdown, Welcomed};
use super::splitter::{SourceSplitter, SplitterLink};
use super::stream::{ServerReport, StreamServer};
use super::{BusyTimer, Drive};
use crate::pages::NodePage;
use ropewalk_flow::histogram::HistogramConfig;
use ropewalk_flow::messages::{BATCH, Batch, Finished, Message, Report, ReportEntry};
use ropewalk_flow::readout::felix::{CardConfig, CardInput};
use ropewalk_flow::readout::{Divides, Readout, ReadoutAction, ReadoutConfig};
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_io::wait::Bell;
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, Parcel, ServicePoint};
use ropewalk_memory::Staging;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Counter, Epoch, Incarnation, Instant, NodeId, Parameter, PoolAccount, Role, SourceId};
use ropewalk_wire::description::Description;
use ropewalk_wire::message::{Header, Hello, RefuseReason};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Configuration of a readout unit's drive.
#[derive(Debug)]
pub struct ReadoutDriveConfig {
    /// Configuration of the state machine.
    pub readout: ReadoutConfig,
    /// The unit's identity.
    pub identity: Identity,
    /// The unit's name, for the hello.
    pub name: String,
    /// Fingerprint of the configuration.
    pub fingerprint: u64,
    /// Frame descriptions of the sources whose format is [`ropewalk_flow::readout::Format::Described`].
    pub descriptions: Vec<(SourceId, Description)>,
    /// Address that front ends connect to.
    pub listen: String,
    /// Address that builder units connect to.
    pub address: String,
    /// Addresses of the event managers. The unit obeys the one with the highest epoch that welcomes it.
    pub managers: Vec<String>,
    /// Builder units of the run.
    pub builders: u16,
    /// Interval between reports of counters.
    pub report_interval: Duration,
}

/// Maximum number of turns in which settled events are delivered before more data is received. Their blocks are then
/// filled again while they are in the cache, into which the kernel copies a quarter faster than into memory. By then a
/// builder in the same thread is done.
const MOST_HELD_BACK: u32 = 8;

/// Time for which the account of subscribers waits for slow readers.
const SETTLING: Duration = Duration::from_secs(1);
/// Interval between reports of users' histograms.
const HISTOGRAM_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the maximum total number of histogram cells of its sources.
fn histogram_cells(config: &ReadoutConfig) -> usize {
    let is_here = |id: &SourceId| config.sources.iter().any(|source| source.id == *id);
    let of = |one: &HistogramConfig| one.binning.cells() * one.sources.iter().filter(|id| is_here(id)).count();
    config.histograms.iter().map(of).sum()
}

/// Messages that were not accepted.
#[derive(Default)]
struct Counts {
    refused: u64,
    old_messages: u64,
}

/// Waiting times of the unit and of its events.
#[derive(Default)]
struct Times {
    busy: BusyTimer,
    /// Super-fragments waited for connections.
    link: BusyTimer,
    /// Settled events waited for requests of builder units.
    requests: BusyTimer,
}

/// A readout unit; see the picture above.
pub struct ReadoutDrive<S: Dispatcher, P: Dispatcher> {
    front_ends: FrontEndConnections<S>,
    cards: Cards<S>,
    datagrams: Datagrams,
    peers: P,
    service: ServicePoint,
    config: ReadoutDriveConfig,
    readout: Readout,
    outbox: Outbox,
    links: EndpointTable<Peer>,
    managers: Managers,
    builders: Vec<Option<Endpoint>>,
    strangers: Strangers,
    rivals: Rivals,
    answers: Vec<Answers>,
    unsent: VecDeque<Message>,
    events: Vec<Event>,
    report_due: Instant,
    /// When users' histograms, which have many more numbers, are reported again.
    histograms_due: Instant,
    /// Whether messages wait for room. Meanwhile the machine is not asked for more.
    stuck: bool,
    /// Number of further turns in which nothing is received while settled events are held.
    patience: u32,
    counts: Counts,
    times: Times,
    /// The last message, and the time limit for its wait for the account of subscribers.
    last_word: Option<(Finished, Instant)>,
    shutdown: Shutdown,
    refusal: Option<Refusal>,
}

impl<S: Dispatcher, P: Dispatcher> ReadoutDrive<S, P> {
    /// Opens both service points and reserves each source's quota of the receive pool. Messages are encoded in
    /// `staging`; `evacuation` takes fragments that must leave the receive pool.
    ///
    /// # Errors
    /// If it cannot listen on an address.
    pub fn new(
        config: ReadoutDriveConfig,
        sources: S,
        mut peers: P,
        staging: Staging,
        evacuation: Staging,
    ) -> Result<Self, EndpointError> {
        let front_ends = FrontEndConnections::new(
            sources,
            &config.listen,
            config.readout.sources.clone(),
            &config.descriptions,
            evacuation,
        )?;
        let service = peers.listen(&config.address)?;
        let builders = usize::from(config.builders);
        Ok(Self {
            readout: Readout::new(config.readout.clone()),
            outbox: Outbox::new(config.identity, staging),
            links: EndpointTable::default(),
            managers: Managers::new(&config.managers),
            builders: vec![None; builders],
            strangers: Strangers::default(),
            rivals: Rivals::default(),
            answers: (0..builders).map(|_| Answers::default()).collect(),
            unsent: VecDeque::with_capacity(64 + histogram_cells(&config.readout).div_ceil(BATCH)),
            events: Vec::with_capacity(1024),
            report_due: Instant::ZERO,
            histograms_due: Instant::ZERO,
            stuck: false,
            patience: 0,
            counts: Counts::default(),
            times: Times::default(),
            last_word: None,
            shutdown: Shutdown::default(),
            refusal: None,
            front_ends,
            cards: Cards::default(),
            datagrams: Datagrams::default(),
            peers,
            service,
            config,
        })
    }

    /// Adds a card whose e-links are some of the unit's sources. The card writes into this ring and rings `bell` if the
    /// ring is not being polled. Without a bell the ring is polled all the time.
    pub fn add_card(&mut self, config: &CardConfig, ring: RingReader, bell: Option<Bell>) {
        self.cards.add(config, ring, bell, None, &self.readout);
    }

    /// Adds a card in the same way, whose chunks also go to the subscribers of `server`.
    pub fn add_served_card(
        &mut self,
        config: &CardConfig,
        ring: RingReader,
        bell: Option<Bell>,
        server: StreamServer<S>,
    ) {
        self.cards.add(config, ring, bell, Some(server), &self.readout);
    }

    /// Adds a receiver of datagrams for some of the sources.
    pub fn add_datagrams(&mut self, config: DatagramInputConfig) {
        self.datagrams.add(config, &self.config.readout.sources);
    }

    /// Adds a black box to a source. Returns whether the source sends datagrams. To be called after all receivers were
    /// added.
    pub fn add_black_box(&mut self, source: SourceId, black_box: BlackBox) -> bool {
        let index = self.config.readout.sources.iter().position(|known| known.id == source);
        let Some(index) = index else { return false };
        let of_stream = self.datagrams.add_black_box(index, black_box);
        let in_datagrams = of_stream.is_none();
        if let Some(black_box) = of_stream {
            self.front_ends.add_black_box(source, black_box);
        }
        in_datagrams
    }

    /// Sets a splitter of a source's frames, called in this thread. To be called after all receivers were added.
    pub fn add_splitter(&mut self, source: SourceId, by: Box<dyn Divides + Send>) {
        if let Some(description) = self.description(source) {
            self.set_splitter(source, SourceSplitter::here(source, &description, by));
        }
    }

    /// Sets a splitter process of a source's frames. To be called after all receivers were added.
    pub fn add_splitter_process(&mut self, source: SourceId, link: Box<dyn SplitterLink>, config: SupervisorConfig) {
        if let Some(description) = self.description(source) {
            self.set_splitter(source, SourceSplitter::elsewhere(source, &description, link, config));
        }
    }

    fn description(&self, source: SourceId) -> Option<Description> {
        self.config.descriptions.iter().find(|(id, _)| *id == source).map(|(_, description)| description.clone())
    }

    fn set_splitter(&mut self, source: SourceId, splitter: Box<SourceSplitter>) {
        let Some(index) = self.config.readout.sources.iter().position(|known| known.id == source) else { return };
        if let Some(of_stream) = self.datagrams.set_splitter(index, splitter) {
            self.front_ends.set_splitter(index, of_stream);
        }
    }

    /// Adds an entrance for a source. Returns the address on which it listens, including the port.
    ///
    /// # Errors
    /// If it cannot listen on the address, or the socket cannot be adopted.
    pub fn add_entrance(&mut self, source: SourceId, entrance: Entrance) -> Result<Option<String>, EndpointError> {
        self.front_ends.add_entrance(source, entrance)
    }

    /// Returns the address that front ends connect to, including the port.
    pub fn source_address(&self) -> String {
        self.front_ends.address()
    }

    /// Returns the address that builder units connect to, including the port.
    pub fn builder_address(&self) -> String {
        self.peers.address_of(self.service).unwrap_or_default()
    }

    /// Returns the state machine, for tests and checkers.
    pub const fn machine(&self) -> &Readout {
        &self.readout
    }

    /// Returns the inputs of its cards, for checkers.
    pub fn cards(&self) -> impl Iterator<Item = &CardInput> {
        self.cards.inputs()
    }

    /// Returns the report of each card's subscribers, and the number of expected subscribers without a connection. For
    /// checkers.
    pub fn served(&self) -> impl Iterator<Item = (ServerReport, usize)> {
        self.cards.served()
    }

    /// Returns the epoch and the incarnation of the event manager whose order was carried out last. For checkers.
    pub const fn obeyed(&self) -> Option<(Epoch, Incarnation)> {
        self.managers.last_order()
    }

    /// Returns whether super-fragments wait for builder units that have not taken them, for tests and checkers.
    pub fn has_unsent(&self) -> bool {
        self.builders.iter().flatten().any(|&builder| self.peers.queued(builder) > 0)
    }

    /// Returns the accounts of the pools, for tests and checkers. After a run the only blocks in use are those being
    /// filled: one for staging, and one for each connection.
    pub fn pools(&mut self) -> Vec<PoolAccount> {
        let own = [self.outbox.pool()].into_iter().chain(self.front_ends.pools());
        own.chain(self.cards.pools()).chain(received(&mut self.peers)).collect()
    }

    /// Receives data, unless the data of the last turns is not built yet. If a source is about to time out, its data is
    /// received first. Holding back counts as work, so that the thread does not sleep.
    fn receive(&mut self, now: Instant) -> usize {
        let is_due = self.readout.next_deadline().is_some_and(|due| now >= due);
        if self.patience > 0 && self.readout.holds_settled() && !is_due {
            self.patience -= 1;
            return 1;
        }
        let work = self.front_ends.poll(now, &mut self.readout) + self.datagrams.turn(now, &mut self.readout);
        self.patience = if work > 0 { MOST_HELD_BACK } else { 0 };
        work
    }

    fn poll_peers(&mut self, now: Instant) -> usize {
        self.call_managers(now);
        let mut events = std::mem::take(&mut self.events);
        let work = self.peers.poll(now, &mut events);
        for event in events.drain(..) {
            let endpoint = event.endpoint();
            match event {
                Event::ConnectionRequest { .. } => {
                    let in_the_way = self.strangers.in_the_way(now, &self.links, Peer::unknown_since);
                    in_the_way.into_iter().for_each(|stranger| self.turn_out(now, stranger));
                    self.peers.accept(endpoint);
                    self.links.insert(endpoint, Peer::new(now, endpoint, None));
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
                Event::Established { .. }
                | Event::SendQueueLow { .. }
                | Event::SendQueueHigh { .. }
                | Event::Finished { .. } => {}
            }
        }
        self.events = events;
        self.settle_rivals(now);
        while let Some(stranger) = self.strangers.overdue(now, &self.links, Peer::unknown_since) {
            self.turn_out(now, stranger);
        }
        work
    }

    /// Closes a connection that has not identified itself.
    fn turn_out(&mut self, now: Instant, stranger: Endpoint) {
        self.counts.refused += 1;
        self.peers.abort(stranger);
        self.lose_peer(now, stranger);
    }

    /// Admits or rejects the callers that wait for the place of a builder unit.
    fn settle_rivals(&mut self, now: Instant) {
        loop {
            let Self { rivals, builders, links, .. } = self;
            let heard = |node: NodeId| links.get(builders[usize::from(node.index)]?).map(|peer| peer.heard);
            let Some((endpoint, header, verdict)) = rivals.next(now, heard) else { return };
            let Some(mut peer) = self.links.remove(endpoint) else { continue };
            if verdict == Verdict::Takes {
                if self.take_in(now, &mut peer, &header) {
                    self.links.insert(endpoint, peer);
                } else {
                    self.peers.close(endpoint);
                    self.forget(now, endpoint, peer.node);
                }
            } else {
                self.send_away(endpoint);
                self.peers.close(endpoint);
            }
        }
    }

    /// Refuses a connection that claims to be a connected builder unit. It may try again, since it may be a restart of
    /// that unit.
    fn send_away(&mut self, endpoint: Endpoint) {
        self.counts.refused += 1;
        let _ = self.outbox.send(&mut self.peers, endpoint, &Message::Refuse(RefuseReason::StandBy));
    }

    fn call_managers(&mut self, now: Instant) {
        if self.shutdown.is_done() {
            return;
        }
        let Self { managers, peers, links, .. } = self;
        managers.call(now, peers, |endpoint| {
            links.insert(endpoint, Peer::new(now, endpoint, Some(NodeId::MANAGER)));
        });
    }

    fn read_peer(&mut self, now: Instant, endpoint: Endpoint, slice: ropewalk_memory::Slice) {
        let Some(mut peer) = self.links.remove(endpoint) else { return };
        peer.heard = now;
        peer.reader.push(slice);
        let mut keep = true;
        while keep {
            match peer.reader.next_incoming() {
                Ok(None) => break,
                Ok(Some(Incoming::Control(header, message))) => keep = self.hear(now, &mut peer, &header, &message),
                // Super-fragments are not sent to a readout unit.
                Ok(Some(Incoming::SuperFragment(..))) | Err(_) => {
                    self.counts.refused += 1;
                    keep = false;
                }
            }
        }
        if keep {
            self.links.insert(endpoint, peer);
        } else {
            self.rivals.lost(endpoint);
            self.peers.close(endpoint);
            self.forget(now, endpoint, peer.node);
        }
    }

    /// Handles one message. Returns false if the caller must close the connection.
    fn hear(&mut self, now: Instant, peer: &mut Peer, header: &Header, message: &Message) -> bool {
        match message {
            Message::Hello(hello) => return self.greet(now, peer, header, hello),
            Message::Welcome if peer.node == Some(NodeId::MANAGER) => {
                return self.welcomed(peer.endpoint, header.epoch);
            }
            Message::Refuse(reason) => {
                if peer.node == Some(NodeId::MANAGER) {
                    let identity = &mut self.outbox.identity;
                    self.refusal = self.managers.refused(now, peer.endpoint, *reason, identity);
                    if self.refusal.is_some() {
                        self.shutdown.end();
                    }
                }
                return false;
            }
            _ if peer.node == Some(NodeId::MANAGER) => self.order(now, peer.endpoint, header, message),
            // A builder unit may still be in an earlier epoch. Its requests are valid all the same.
            _ => {
                let Some(node) = peer.node else { return false };
                self.readout.message(now, node, message);
            }
        }
        true
    }

    /// Carries out an order of the obeyed event manager. Orders of other managers are only counted.
    fn order(&mut self, now: Instant, endpoint: Endpoint, header: &Header, message: &Message) {
        if !self.managers.is_obeyed(endpoint, header.epoch) {
            self.counts.old_messages += 1;
            return;
        }
        self.managers.note_order(header);
        self.outbox.identity.epoch = header.epoch;
        // An event manager that names the run has begun it. Masks, parameters and a successor's questions arrive before
        // the start.
        if self.readout.has_started() || matches!(message, Message::Start(_)) {
            self.outbox.identity.run = header.run;
        }
        match message {
            // Immediately: the run counts as running once the event manager has received the report.
            Message::Start(_) => self.report_due = now,
            Message::Finished(_) => return self.shutdown.dismiss(),
            Message::Finish => self.shutdown.finish(),
            Message::Set(setting) if setting.parameter == Parameter::ReportInterval => {
                self.config.report_interval = setting.time();
            }
            _ => {}
        }
        self.readout.message(now, NodeId::MANAGER, message);
    }

    /// Handles the welcome of an event manager. Returns false if a manager with a higher epoch is obeyed.
    fn welcomed(&mut self, endpoint: Endpoint, epoch: Epoch) -> bool {
        let welcomed = self.managers.welcomed(endpoint, epoch, &mut self.outbox, &mut self.peers);
        let Welcomed::Obeyed { left } = welcomed else { return false };
        if let Some(left) = left {
            let _ = self.links.remove(left);
        }
        self.last_word = None;
        self.shutdown.manager_came();
        true
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
        let there = self.builders[builder].and_then(|there| self.links.get(there));
        if there.is_some_and(|there| there.life != Some(header.incarnation)) {
            let waits = self.rivals.add(now, peer.endpoint, header);
            if !waits {
                self.send_away(peer.endpoint);
            }
            return waits;
        }
        self.take_in(now, peer, header)
    }

    /// Gives the builder unit its place. Returns false if the answer cannot be sent: the unit has to call again.
    fn take_in(&mut self, now: Instant, peer: &mut Peer, header: &Header) -> bool {
        let builder = usize::from(header.sender.index);
        if let Some(old) = self.builders[builder].replace(peer.endpoint) {
            // The same builder unit again: its earlier connection is stale.
            self.peers.abort(old);
            let _ = self.links.remove(old);
            self.readout.peer_lost(now, header.sender);
        }
        self.answers[builder].begin(&self.peers);
        (peer.node, peer.life) = (Some(header.sender), Some(header.incarnation));
        self.outbox.send(&mut self.peers, peer.endpoint, &Message::Welcome).is_ok()
    }

    fn lose_peer(&mut self, now: Instant, endpoint: Endpoint) {
        self.rivals.lost(endpoint);
        if let Some(peer) = self.links.remove(endpoint) {
            self.forget(now, endpoint, peer.node);
        }
    }

    fn forget(&mut self, now: Instant, endpoint: Endpoint, node: Option<NodeId>) {
        if self.managers.lost(now, endpoint) {
            self.shutdown.manager_lost(now);
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

    /// Carries out the machine's actions, as far as there is room for them.
    fn act(&mut self, now: Instant) -> usize {
        let mut work = 0;
        self.stuck = !self.flush_unsent();
        if self.stuck {
            return work;
        }
        while let Some(action) = self.readout.poll(now) {
            work += 1;
            match action {
                ReadoutAction::ToManager(Message::Finished(finished)) => {
                    self.last_word = Some((finished, now.after(SETTLING)));
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
        self.say_last_word(now);
        for index in 0..self.answers.len() {
            self.flush_answers(index);
        }
        self.leave();
        work
    }

    /// Reports the end with a final account, once no data waits for subscribers.
    fn say_last_word(&mut self, now: Instant) {
        let Some((finished, until)) = self.last_word else { return };
        if !self.cards.are_settled() {
            if now < until {
                return;
            }
            // The chunks queued for disconnected subscribers pass to others, which get time for them.
            if self.cards.cut_off(now) > 0 && !self.cards.are_settled() {
                self.last_word = Some((finished, now.after(SETTLING)));
                return;
            }
        }
        self.last_word = None;
        self.front_ends.abandon_waiting(&mut self.readout);
        self.datagrams.abandon_waiting(now, &mut self.readout);
        self.histograms_due = now;
        self.report(now);
        self.unsent.push_back(Message::Finished(finished));
        self.shutdown.say();
        self.flush_unsent();
    }

    /// Closes the connection to the manager after the last message. The manager ends when all nodes have done so.
    fn leave(&mut self) {
        if self.unsent.is_empty()
            && let Some(manager) = self.managers.obeyed()
            && self.shutdown.leaves()
        {
            self.peers.close(manager);
        }
    }

    /// Sends the queued messages for the event manager. Returns false if something has to wait.
    fn flush_unsent(&mut self) -> bool {
        let blocked = self.answers.iter().any(|answers| answers.is_full());
        if blocked && !(0..self.answers.len()).all(|index| self.flush_answers(index)) {
            return false;
        }
        // Without an event manager the messages are dropped: a new event manager asks again.
        self.outbox.flush(&mut self.peers, self.managers.obeyed(), &mut self.unsent)
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
            Err(Unsent::NoRoom) if is_planted(Flaw::RefusedAnswerDropped) => {
                answers.clear();
                true
            }
            Err(Unsent::NoRoom) => false,
        }
    }

    /// Takes back an emptied delivery from a builder unit of this process.
    fn take_back(&mut self, endpoint: Endpoint, parcel: Parcel) {
        if let Some(index) = self.builders.iter().position(|builder| *builder == Some(endpoint)) {
            self.answers[index].take_back(parcel);
        }
    }

    /// Reports all counters: those of the machine and those of the drive. After the last message the report is empty:
    /// the account of the run is complete, and data that a card still delivers to subscribers is not part of it. The
    /// empty report is still sent, because it detects whether the event manager is still connected.
    fn report(&mut self, now: Instant) {
        if self.shutdown.is_said() {
            return self.unsent.push_back(Message::Report(Report { entries: Batch::new(), last: true }));
        }
        self.datagrams.ask_what_was_lost();
        let are_due = now >= self.histograms_due;
        if are_due {
            self.histograms_due = now.after(HISTOGRAM_INTERVAL);
        }
        let mut unsent = std::mem::take(&mut self.unsent);
        let histograms = are_due.then(|| self.readout.histograms()).into_iter().flatten();
        push_report(&mut unsent, self.numbers(now).chain(histograms));
        self.unsent = unsent;
    }

    /// Returns all counters: those of the machine, source by source, and those of the drive.
    fn numbers(&self, now: Instant) -> impl Iterator<Item = ReportEntry> {
        let cards = &self.cards;
        let own = self.front_ends.counters(self.counts.refused).into_iter();
        let own = own.map(|(counter, value)| (counter, value + cards.shared_counter(counter))).chain(cards.counters());
        let own = own.chain([
            (Counter::MessagesRefused, self.counts.old_messages),
            (Counter::ThreadBusyTime, self.times.busy.nanoseconds()),
            (Counter::LinkWaitTime, self.times.link.nanoseconds()),
            (Counter::RequestWaitTime, self.times.requests.nanoseconds()),
        ]);
        let own = own.map(|(counter, value)| ReportEntry { source: None, what: counter as u16, value });
        // For their sources: each number is reported once, and the sum is over all inputs.
        let divided = self.front_ends.divided().chain(self.datagrams.divided());
        let divided =
            divided.map(|(source, what, value)| ReportEntry { source: Some(source), what: what as u16, value });
        self.readout.report(now).chain(own).chain(divided).chain(self.datagrams.report())
    }
}

impl<S: Dispatcher, P: Dispatcher> Drive for ReadoutDrive<S, P> {
    fn turn(&mut self, now: Instant) -> usize {
        if self.shutdown.is_done() {
            return self.cards.leave(now);
        }
        if self.shutdown.is_told() {
            self.front_ends.close();
        }
        let mut work = self.poll_peers(now);
        work += self.receive(now);
        work += self.cards.turn(now, &mut self.readout);
        let for_cards = self.cards.want_evacuation(&self.readout) || self.datagrams.want_evacuation();
        self.front_ends.go_on(now, &mut self.readout, for_cards);
        // A time-out alone may give room to a source that waits for it, without any other work that would cause another
        // turn. A source that came back over another connection is heard first: it is not absent.
        if self.readout.next_deadline().is_some_and(|due| now >= due) {
            self.readout.pass_time(now);
            self.front_ends.go_on(now, &mut self.readout, for_cards);
        }
        if now >= self.report_due && self.managers.obeyed().is_some() && self.unsent.is_empty() {
            self.report_due = now.after(self.config.report_interval);
            self.report(now);
        }
        work += self.act(now);
        self.times.busy.look(now, work > 0);
        // Everything that could be sent is sent by now.
        let waits_for_link = !self.answers.iter().all(Answers::is_empty) || self.has_unsent();
        self.times.link.look(now, waits_for_link);
        self.times.requests.look(now, self.readout.awaits_requests());
        self.shutdown.look(now);
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        if self.shutdown.is_done() {
            return self.cards.next_deadline();
        }
        let report = self.managers.obeyed().filter(|_| self.unsent.is_empty()).map(|_| self.report_due);
        let managers = [self.managers.next_deadline(), self.shutdown.next_deadline()];
        let inputs = [self.front_ends.next_deadline(), self.cards.next_deadline(), self.datagrams.next_deadline()];
        // Timed actions of the machine are not carried out before there is room.
        let machine = self.readout.next_deadline().filter(|_| !self.stuck);
        let last_word = self.last_word.map(|(_, until)| until).filter(|_| !self.stuck);
        let hellos = [self.rivals.next_deadline(), self.strangers.next_deadline()];
        let own = [report, machine, last_word, self.peers.next_deadline()];
        own.into_iter().chain(hellos).chain(managers).chain(inputs).flatten().min()
    }

    fn prepare_wait(&mut self) -> bool {
        // Every one is asked, so that every one is armed.
        let (front_ends, peers) = (self.front_ends.prepare_wait(), self.peers.prepare_wait());
        let (cards, datagrams) = (self.cards.prepare_wait(), self.datagrams.prepare_wait());
        cards && datagrams && front_ends && peers
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.front_ends.wait_descriptors(into);
        into.extend(self.cards.wait_descriptors());
        self.datagrams.wait_descriptors(into);
        into.extend(self.peers.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        self.shutdown.is_done() && self.cards.have_left()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    fn tell(&self, now: Instant, page: &mut NodePage) {
        let run = self.outbox.identity.run;
        page.stands(run, self.shutdown.phase(run, self.managers.obeyed().is_some()));
        self.numbers(now).for_each(|entry| page.count(&entry));
    }
}
