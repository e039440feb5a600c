//! The event manager: all other nodes connect to it. It starts and stops the run, and keeps its account.

use super::Drive;
use super::account::Standing;
use super::admission::{Rivals, Strangers, Verdict};
use super::link::{EndpointTable, Identity, Incoming, MessageReader, Outbox, Refusal, Unsent, received};
use crate::pages::NodePage;
use ropewalk_flow::control::{ControlAction, RunCommand, RunControl, RunPhase};
use ropewalk_flow::manager::{Manager, ManagerAction, ManagerConfig, ManagerState};
use ropewalk_flow::messages::{Finished, LumisectionEnd, Message, ReportEntry};
use ropewalk_io::{BrokenCause, Dispatcher, Endpoint, EndpointError, Event, ServicePoint};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{
    AcknowledgementLevel, Counter, Epoch, Incarnation, Instant, NodeId, Parameter, PoolAccount, Role, RunNumber,
};
use ropewalk_wire::message::{Header, Hello, PROTOCOL_VERSION, RefuseReason};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Configuration of an event manager's drive.
#[derive(Debug)]
pub struct ManagerDriveConfig {
    /// Configuration of the state machine.
    pub manager: ManagerConfig,
    /// The manager's identity.
    pub identity: Identity,
    /// Fingerprint of the configuration.
    pub fingerprint: u64,
    /// Address that the other nodes connect to.
    pub address: String,
    /// The guarantee given by an acknowledgement.
    pub level: AcknowledgementLevel,
}

/// Earlier runs that are over and accounted for.
#[derive(Copy, Clone, Debug, Default)]
pub struct ClosedRuns {
    /// All runs before this one; `None` for no runs.
    pub before: Option<RunNumber>,
    /// Exception: the run that lost its event manager. Its nodes wait for a successor.
    pub but: Option<RunNumber>,
}

impl ClosedRuns {
    /// Returns the reason to refuse a node that is in this run. Run 0 means no run.
    fn refusal(self, run: RunNumber) -> Option<RefuseReason> {
        if self.but == Some(run) {
            return Some(RefuseReason::StandBy);
        }
        let is_over = run != RunNumber(0) && self.before.is_some_and(|before| run < before);
        is_over.then_some(RefuseReason::RunOver)
    }
}

struct Peer {
    reader: MessageReader,
    node: Option<(NodeId, Incarnation)>,
    /// When it was last heard.
    heard: Instant,
    /// Whether it has sent its last message.
    finished: bool,
}

impl Peer {
    /// Returns since when it has been unidentified; `None` once it is identified.
    fn unknown_since(&self) -> Option<Instant> {
        self.node.is_none().then_some(self.heard)
    }
}

/// The event manager; see the module documentation.
pub struct ManagerDrive<P: Dispatcher> {
    peers: P,
    service: ServicePoint,
    config: ManagerDriveConfig,
    manager: Manager,
    control: RunControl,
    outbox: Outbox,
    links: EndpointTable<Peer>,
    nodes: BTreeMap<NodeId, Endpoint>,
    strangers: Strangers,
    rivals: Rivals,
    /// Number of hellos in the name of each node that was already connected.
    outdone: BTreeMap<NodeId, u64>,
    standing: Standing,
    unsent: VecDeque<(NodeId, Message)>,
    /// Finished lumisections that were not yet taken.
    lumisections: VecDeque<LumisectionEnd>,
    events: Vec<Event>,
    refused: u64,
    run: RunNumber,
    /// Time of the last turn.
    turned: Instant,
    /// Nodes that left before they were finished, each with the time limit for its return.
    missed: BTreeMap<NodeId, (Instant, Loss)>,
    /// The node that obeys a newer event manager, and its epoch. Once set, this event manager is superseded.
    superseded: Option<(Refusal, Epoch)>,
    /// Whether it is active. Otherwise it stands by.
    active: bool,
    /// Runs that have ended. A node that is still in one of them has nothing left to deliver.
    closed: ClosedRuns,
    /// Nodes that were dismissed. If they reconnect, it is for the next run.
    dismissed: BTreeSet<NodeId>,
}

/// Tells a node that the account is complete.
const DISMISSAL: Message = Message::Finished(Finished { in_flight: 0 });

/// How a connection was lost.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Loss {
    /// The peer closed it, or its process died.
    Ended,
    /// Nothing is known about the peer: a readout unit may be alive and still hold all its data.
    Unreachable,
}

/// Time limit for the return of a node whose connection broke. A readout unit that returns in time still holds all its
/// data, so that nothing is lost. The end of the run waits as well, so that the node is informed of it.
const RETURN: Duration = Duration::from_secs(1);

impl<P: Dispatcher> ManagerDrive<P> {
    /// Opens the service point.
    ///
    /// # Errors
    /// If it cannot listen on the address.
    pub fn new(config: ManagerDriveConfig, mut peers: P, staging: Staging) -> Result<Self, EndpointError> {
        let service = peers.listen(&config.address)?;
        let nodes =
            (0..config.manager.readouts).map(NodeId::readout).chain((0..config.manager.builders).map(NodeId::builder));
        Ok(Self {
            manager: Manager::new(config.manager.clone()),
            control: RunControl::new(nodes.collect()),
            outbox: Outbox::new(config.identity, staging),
            links: EndpointTable::default(),
            nodes: BTreeMap::new(),
            strangers: Strangers::default(),
            rivals: Rivals::default(),
            outdone: BTreeMap::new(),
            standing: Standing::default(),
            unsent: VecDeque::with_capacity(256),
            lumisections: VecDeque::new(),
            events: Vec::with_capacity(256),
            refused: 0,
            run: RunNumber(0),
            turned: Instant::ZERO,
            missed: BTreeMap::new(),
            superseded: None,
            active: true,
            closed: ClosedRuns::default(),
            dismissed: BTreeSet::new(),
            peers,
            service,
            config,
        })
    }

    /// Returns the address that the other nodes connect to, including the port.
    pub fn address(&self) -> String {
        self.peers.address_of(self.service).unwrap_or_default()
    }

    /// Sets the finished runs. The manager refuses a node of such a run when it connects, and gives the reason.
    pub const fn closed(&mut self, runs: ClosedRuns) {
        self.closed = runs;
    }

    /// Stands by: drops the run and all its nodes, and refuses all callers.
    pub(super) fn stand_by(&mut self) {
        for index in 0..self.links.places() {
            if let Some((endpoint, _)) = self.links.at(index) {
                self.peers.abort(endpoint);
            }
        }
        (self.links, self.standing, self.run) = (EndpointTable::default(), Standing::default(), RunNumber(0));
        (self.nodes, self.missed) = (BTreeMap::new(), BTreeMap::new());
        self.rivals.clear();
        self.outdone.clear();
        self.dismissed.clear();
        self.unsent.clear();
        (self.active, self.superseded) = (false, None);
        self.manager = Manager::new(self.config.manager.clone());
        self.control = self.control.anew();
    }

    /// Starts again as the active manager of this epoch.
    pub(super) fn become_active(&mut self, epoch: Epoch) {
        self.config.manager.epoch = epoch;
        (self.outbox.identity.epoch, self.outbox.identity.run) = (epoch, RunNumber(0));
        self.manager = Manager::new(self.config.manager.clone());
        self.active = true;
    }

    /// Returns the epoch in which it is active. `None` if it stands by or knows of a newer epoch.
    pub fn speaks(&self) -> Option<Epoch> {
        (self.active && self.superseded.is_none()).then_some(self.outbox.identity.epoch)
    }

    /// Returns the newer epoch that a node obeys, if any.
    pub(super) fn superseded_by(&self) -> Option<Epoch> {
        self.superseded.as_ref().map(|&(_, epoch)| epoch)
    }

    /// Applies a run-control command.
    pub fn command(&mut self, now: Instant, command: RunCommand) {
        let was_over = self.control.phase().is_final();
        self.control.command(now, command);
        if !was_over && self.control.phase().is_final() {
            // No run began. Tell connected nodes immediately that no run follows.
            self.unsent.extend(self.nodes.keys().map(|&node| (node, Message::Finish)));
        }
    }

    /// Returns the phase of the run.
    pub fn phase(&self) -> RunPhase {
        self.control.phase()
    }

    /// Returns the state machine, for tests and checkers.
    pub const fn machine(&self) -> &Manager {
        &self.manager
    }

    /// Returns the accounts of the pools, for tests and checkers. After a run the only blocks in use are those being
    /// filled: one for staging, and one for each connection.
    pub fn pools(&mut self) -> Vec<PoolAccount> {
        [self.outbox.pool()].into_iter().chain(received(&mut self.peers)).collect()
    }

    fn poll_peers(&mut self, now: Instant) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let work = self.peers.poll(now, &mut events);
        for event in events.drain(..) {
            let endpoint = event.endpoint();
            match event {
                Event::ConnectionRequest { .. } => {
                    let in_the_way = self.strangers.in_the_way(now, &self.links, Peer::unknown_since);
                    in_the_way.into_iter().for_each(|stranger| self.turn_out(now, stranger));
                    self.peers.accept(endpoint);
                    let reader = MessageReader::default();
                    self.links.insert(endpoint, Peer { reader, node: None, heard: now, finished: false });
                }
                Event::Received { slice, .. } => self.read(now, endpoint, slice),
                Event::Broken { cause: BrokenCause::TimedOut | BrokenCause::Unreachable, .. } => {
                    self.lose(now, endpoint, Loss::Unreachable);
                }
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    self.lose(now, endpoint, Loss::Ended);
                }
                Event::Established { .. }
                | Event::HandedOver { .. }
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
        self.refused += 1;
        self.peers.abort(stranger);
        self.lose(now, stranger, Loss::Ended);
    }

    /// Admits or rejects the callers that wait for the place of a node.
    fn settle_rivals(&mut self, now: Instant) {
        loop {
            let Self { rivals, nodes, links, .. } = self;
            let heard = |node| links.get(*nodes.get(&node)?).map(|peer| peer.heard);
            let Some((endpoint, header, verdict)) = rivals.next(now, heard) else { return };
            let Some(mut peer) = self.links.remove(endpoint) else { continue };
            if verdict == Verdict::Takes {
                self.take_in(now, endpoint, &mut peer, &header);
            } else {
                self.send_away(endpoint, header.sender);
                self.peers.close(endpoint);
            }
            self.links.insert(endpoint, peer);
        }
    }

    /// Refuses a connection that claims the name of a connected node, and counts the refusal for that node.
    fn send_away(&mut self, endpoint: Endpoint, node: NodeId) {
        let _ = self.outbox.send(&mut self.peers, endpoint, &Message::Refuse(RefuseReason::Taken));
        let times = self.outdone.entry(node).or_default();
        *times += 1;
        let entry = ReportEntry { source: None, what: Counter::RivalHellos as u16, value: *times };
        let life = self.nodes.get(&node).and_then(|&there| self.links.get(there)?.node);
        if let Some((node, incarnation)) = life {
            self.standing.noted(node, incarnation, &entry);
        }
    }

    fn read(&mut self, now: Instant, endpoint: Endpoint, slice: Slice) {
        let Some(mut peer) = self.links.remove(endpoint) else { return };
        peer.heard = now;
        peer.reader.push(slice);
        let keep = loop {
            match peer.reader.next_incoming() {
                Ok(None) => break true,
                Ok(Some(Incoming::Control(header, message))) => {
                    if !self.hear(now, endpoint, &mut peer, &header, &message) {
                        break false;
                    }
                }
                // Super-fragments are not sent to an event manager.
                Ok(Some(Incoming::SuperFragment(..))) | Err(_) => {
                    self.refused += 1;
                    break false;
                }
            }
        };
        let node = peer.node;
        self.links.insert(endpoint, peer);
        if !keep {
            self.rivals.lost(endpoint);
            self.peers.close(endpoint);
            if node.is_some() {
                self.lose(now, endpoint, Loss::Ended);
            }
        }
    }

    /// Handles one message. Returns false if the caller must close the connection.
    fn hear(&mut self, now: Instant, endpoint: Endpoint, peer: &mut Peer, header: &Header, message: &Message) -> bool {
        if let Message::Hello(hello) = message {
            return self.greet(now, endpoint, peer, header, hello);
        }
        let Some((node, incarnation)) = peer.node else { return false };
        if header.run == self.run && self.run != RunNumber(0) {
            self.control.node_begun(now, node);
        }
        match message {
            Message::Refuse(RefuseReason::OldEpoch) => {
                self.give_way(node, header.epoch);
                return false;
            }
            Message::Report(report) => self.standing.reported(node, incarnation, report),
            Message::Synchrony(state) => self.standing.judged(node, *state),
            Message::StopRequest(cause) => self.control.stop_requested(now, *cause),
            _ if header.run != self.run && header.run != RunNumber(0) => self.refused += 1,
            _ => {
                let finished = matches!(message, Message::Finished(_));
                peer.finished |= finished;
                if finished {
                    self.standing.node_finished(node, incarnation);
                }
                if finished && self.control.phase() == RunPhase::Ended {
                    self.dismissed.insert(node);
                    self.unsent.push_back((node, DISMISSAL));
                }
                self.manager.message(now, node, message);
            }
        }
        true
    }

    fn greet(&mut self, now: Instant, endpoint: Endpoint, peer: &mut Peer, header: &Header, hello: &Hello) -> bool {
        let NodeId { role, index } = header.sender;
        if !self.active {
            let _ = self.outbox.send(&mut self.peers, endpoint, &Message::Refuse(RefuseReason::StandBy));
            return false;
        }
        if self.give_way(header.sender, header.epoch) {
            return false;
        }
        let count = match role {
            Role::Readout => self.config.manager.readouts,
            Role::Builder => self.config.manager.builders,
            Role::Manager | Role::Source => 0,
        };
        let refused = if hello.version != PROTOCOL_VERSION {
            Some(RefuseReason::Version)
        } else if index >= count {
            Some(RefuseReason::UnknownNode)
        } else if hello.configuration != self.config.fingerprint {
            Some(RefuseReason::Configuration)
        } else if let Some(reason) = self.closed.refusal(header.run) {
            Some(reason)
        } else if header.run == RunNumber(0) && self.dismissed.contains(&header.sender) {
            // The node calls for the next run, whose event manager will be active in a moment.
            Some(RefuseReason::StandBy)
        } else {
            self.older_than(header.sender, header.incarnation)
        };
        if let Some(reason) = refused {
            let _ = self.outbox.send(&mut self.peers, endpoint, &Message::Refuse(reason));
            return false;
        }
        // The same process has left its earlier connection. Another process may be a stranger.
        let there = self.nodes.get(&header.sender).and_then(|&there| self.links.get(there)?.node);
        if there.is_some_and(|(_, incarnation)| incarnation != header.incarnation) {
            let waits = self.rivals.add(now, endpoint, header);
            if !waits {
                self.send_away(endpoint, header.sender);
            }
            return waits;
        }
        self.take_in(now, endpoint, peer, header);
        true
    }

    /// Gives the node its place.
    fn take_in(&mut self, now: Instant, endpoint: Endpoint, peer: &mut Peer, header: &Header) {
        let role = header.sender.role;
        if let Some(old) = self.nodes.insert(header.sender, endpoint) {
            // The same node again: its earlier connection is stale, perhaps from an earlier incarnation.
            self.peers.abort(old);
            if let Some((node, incarnation)) = self.links.remove(old).and_then(|peer| peer.node) {
                self.standing.node_lost(node, incarnation);
            }
            if role != Role::Readout {
                self.manager.node_lost(now, header.sender);
            }
        }
        peer.node = Some((header.sender, header.incarnation));
        self.standing.node_connected(header.sender, header.incarnation);
        // Queued in front: a node ignores all messages before the welcome.
        self.unsent.push_front((header.sender, Message::Welcome));
        self.manager.node_connected(now, header.sender, header.incarnation);
        self.control.node_connected(now, header.sender);
        self.missed.remove(&header.sender);
        if self.control.phase() == RunPhase::Ended {
            // It was absent when the others received this message.
            self.unsent.push_back((header.sender, Message::Finish));
        }
    }

    /// Returns the reason to refuse an incarnation older than one already seen. While the newer one is connected, or
    /// may return, the older one is stale. Otherwise the older one may be the successor, with a different clock.
    fn older_than(&self, node: NodeId, incarnation: Incarnation) -> Option<RefuseReason> {
        let youngest = self.standing.youngest(node).filter(|&youngest| youngest > incarnation)?;
        let is_here = self.nodes.contains_key(&node) || self.missed.contains_key(&node);
        Some(if is_here { RefuseReason::OldIncarnation } else { RefuseReason::LateIncarnation(youngest) })
    }

    fn lose(&mut self, now: Instant, endpoint: Endpoint, loss: Loss) {
        self.rivals.lost(endpoint);
        let Some(peer) = self.links.remove(endpoint) else { return };
        let Some((node, incarnation)) = peer.node else { return };
        self.standing.node_lost(node, incarnation);
        if self.nodes.get(&node) == Some(&endpoint) {
            self.nodes.remove(&node);
            self.control.node_lost(now, node);
            if !peer.finished {
                self.missed.insert(node, (now.after(RETURN), loss));
            }
            // The events of a builder unit are better built by another one immediately.
            if peer.finished || node.role != Role::Readout {
                self.manager.node_lost(now, node);
            }
        }
    }

    /// Handles the news that a node obeys an event manager of this epoch. If the epoch is newer, no node obeys this
    /// event manager any more: it leaves the run and its account to the newer one, unless both are complete already.
    /// Returns whether the epoch is newer.
    fn give_way(&mut self, node: NodeId, epoch: Epoch) -> bool {
        let is_younger = epoch > self.outbox.identity.epoch && !is_planted(Flaw::StaleEpochAccepted);
        if is_younger && self.control.phase() != RunPhase::Ended {
            let (address, reason) = (String::new(), RefuseReason::OldEpoch);
            self.superseded.get_or_insert((Refusal { by: node, address, reason }, epoch));
        }
        is_younger
    }

    /// Gives up nodes that did not return in time.
    fn give_up_the_missed(&mut self, now: Instant) {
        while let Some((&node, _)) = self.missed.iter().find(|(_, missed)| now >= self.missed_until(missed)) {
            self.missed.remove(&node);
            self.manager.node_lost(now, node);
        }
    }

    /// Returns until when a node with a broken connection is awaited. The end of the run ignores unreachable nodes.
    fn missed_until(&self, &(until, loss): &(Instant, Loss)) -> Instant {
        let waits = loss == Loss::Unreachable && self.control.phase() != RunPhase::Ended;
        if waits { until.after(self.manager.unreachable_timeout()) } else { until }
    }

    fn act(&mut self, now: Instant) -> usize {
        let mut work = 0;
        if self.superseded.is_some() || !self.active {
            return work;
        }
        while let Some(action) = self.control.poll(now) {
            match action {
                ControlAction::Start { run, first, last } => {
                    self.run = run;
                    self.outbox.identity.run = run;
                    self.manager.start(now, first, last);
                }
                ControlAction::TakeOver { run, first, last } => {
                    self.run = run;
                    self.outbox.identity.run = run;
                    self.manager.recover(now, first, last);
                }
                ControlAction::Stop { last: None } => self.manager.stop(now),
                ControlAction::Stop { last: Some(last) } => self.manager.stop_at(now, last),
                ControlAction::ForceStop => self.manager.force_stop(now),
                ControlAction::Pause(is_paused) => self.manager.pause(is_paused),
                ControlAction::Set(setting) => {
                    if setting.parameter == Parameter::ReportInterval {
                        self.standing.hearing.interval = setting.time();
                        self.rivals.reports_come(setting.time());
                    }
                    self.manager.set(setting);
                }
                ControlAction::Mask { source, is_masked } => self.manager.mask(source, is_masked),
            }
        }
        while self.flush() {
            let Some(action) = self.manager.poll(now) else { break };
            work += 1;
            match action {
                ManagerAction::Send { to, message } => self.unsent.push_back((to, message)),
                ManagerAction::LumisectionEnded(end) => self.lumisections.push_back(end),
                ManagerAction::RunEnded => {
                    self.control.run_ended(now);
                    self.unsent.extend(self.nodes.keys().map(|&node| (node, DISMISSAL)));
                    self.dismissed.extend(
                        self.links.entries().filter(|peer| peer.finished).filter_map(|peer| Some(peer.node?.0)),
                    );
                }
            }
        }
        if matches!(self.manager.state(), ManagerState::Draining) {
            self.control.drains(now);
        }
        work
    }

    /// Sends queued messages. Returns false if some must wait.
    fn flush(&mut self) -> bool {
        while let Some((node, message)) = self.unsent.front() {
            let sent = match self.nodes.get(node) {
                None => Ok(()),
                Some(&endpoint) => self.outbox.send(&mut self.peers, endpoint, message),
            };
            match sent {
                Ok(()) | Err(Unsent::Closed) => {
                    self.unsent.pop_front();
                }
                Err(Unsent::NoRoom) => return false,
            }
        }
        true
    }

    /// Returns the next lumisection that is over, in order, each once.
    pub fn next_ended_lumisection(&mut self) -> Option<LumisectionEnd> {
        self.lumisections.pop_front()
    }

    /// Returns the manager's own account of events. The counters of other nodes are in their pages.
    fn numbers(&self) -> impl Iterator<Item = ReportEntry> {
        let account = self.manager.account();
        let counters = [
            (Counter::EventsAssigned, account.assigned),
            (Counter::EventsReassigned, self.manager.counts().reassigned),
            (Counter::EventsBuilt, account.built),
            (Counter::EventsIncompleteEmitted, account.incomplete_emitted),
            (Counter::EventsAccepted, account.accepted),
            (Counter::EventsUnselected, account.unselected),
            (Counter::EventsRejected, account.rejected),
            (Counter::EventsQuarantined, account.quarantined),
            (Counter::EventsInFlight, account.in_flight),
            (Counter::MessagesRefused, self.refused + self.manager.counts().refused_messages),
        ];
        let counted = counters.into_iter().map(|(counter, value)| (counter as u16, value));
        let dropped = account.incomplete_dropped;
        let causes = ropewalk_terms::CAUSES.iter().map(move |&cause| (ReportEntry::cause(cause), dropped.get(cause)));
        counted.chain(causes).map(|(what, value)| ReportEntry { source: None, what, value })
    }

    /// Returns the current state of the run as known here.
    pub fn standing(&mut self) -> &Standing {
        let standing = &mut self.standing;
        standing.phase = self.control.phase();
        standing.is_paused = self.control.is_paused();
        standing.run = self.run;
        standing.stopped_by = self.control.stopped_by();
        standing.events = self.manager.account();
        standing.is_written_when_acknowledged = self.config.level >= AcknowledgementLevel::Written;
        standing.untold.clear();
        standing.untold.extend(self.manager.untold());
        standing.nodes.clear();
        let is_here = |node| self.nodes.contains_key(&node);
        standing.nodes.extend(self.control.nodes().map(|node| (node, is_here(node))));
        standing.hearing.turned = Some(self.turned);
        standing.hearing.heard.clear();
        let heard = |(&node, &there): (&NodeId, &Endpoint)| Some((node, self.links.get(there)?.heard));
        standing.hearing.heard.extend(self.nodes.iter().filter_map(heard));
        standing
    }
}

impl<P: Dispatcher> Drive for ManagerDrive<P> {
    fn turn(&mut self, now: Instant) -> usize {
        if self.superseded.is_some() {
            return 0;
        }
        self.turned = now;
        self.give_up_the_missed(now);
        self.poll_peers(now) + self.act(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let missed = self.missed.values().map(|missed| self.missed_until(missed));
        // While a message cannot be sent, the machine is not asked for more.
        let machine = self.manager.next_deadline().filter(|_| self.unsent.is_empty());
        let hellos = [self.rivals.next_deadline(), self.strangers.next_deadline()];
        let own = [machine, self.peers.next_deadline(), self.control.next_deadline()];
        own.into_iter().chain(hellos).flatten().chain(missed).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.peers.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.peers.wait_descriptor());
    }

    fn is_done(&self) -> bool {
        // The other nodes send their last report and close first.
        let has_ended = self.control.phase() == RunPhase::Ended && self.nodes.is_empty() && self.missed.is_empty();
        has_ended && self.active || self.superseded.is_some()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.superseded.as_ref().map(|(refusal, _)| refusal)
    }

    fn tell(&self, _now: Instant, page: &mut NodePage) {
        page.stands(self.run, self.control.phase());
        self.numbers().for_each(|entry| page.count(&entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::messages::{Batch, Report};
    use ropewalk_io::simulated::{Faults, Network, Simulated, SimulatedConfig};
    use ropewalk_memory::{Pool, PoolConfig};

    fn pool() -> Pool {
        Pool::new(PoolConfig::heap("messages", 64 << 10, 8)).expect("memory for a small pool")
    }

    fn outbox(node: NodeId, incarnation: u64) -> Outbox {
        let (run, epoch) = (RunNumber(0), Epoch(u32::from(node == NodeId::MANAGER)));
        let identity = Identity { node, incarnation: Incarnation(incarnation), run, epoch };
        Outbox::new(identity, Staging::new(pool()))
    }

    /// An incarnation of a builder unit, as seen by an event manager.
    struct Life {
        peers: Simulated,
        endpoint: Endpoint,
        outbox: Outbox,
        reader: MessageReader,
        /// The last message sent to it.
        told: Option<Message>,
    }

    impl Life {
        /// Reports continuously.
        fn turn(&mut self, now: Instant) {
            let mut events = Vec::new();
            self.peers.poll(now, &mut events);
            for event in events {
                let said = match event {
                    Event::Established { .. } => Message::Hello(Hello::new("bu0", 7)),
                    Event::Received { slice, .. } => {
                        self.reader.push(slice);
                        continue;
                    }
                    _ => continue,
                };
                self.outbox.send(&mut self.peers, self.endpoint, &said).expect("the queue has room");
            }
            while let Ok(Some(Incoming::Control(_, message))) = self.reader.next_incoming() {
                self.told = Some(message);
            }
            if self.told == Some(Message::Welcome) {
                let report = Message::Report(Report { entries: Batch::new(), last: true });
                // The message is lost if the connection has ended.
                let _ = self.outbox.send(&mut self.peers, self.endpoint, &report);
            }
        }
    }

    /// An event manager whose only builder unit is started several times.
    struct Scene {
        network: Network,
        manager: ManagerDrive<Simulated>,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            let network = Network::new(1, Faults::default());
            let peers = network.dispatcher(SimulatedConfig::default(), pool());
            let Outbox { identity, .. } = outbox(NodeId::MANAGER, 1);
            let (address, level) = ("manager".to_owned(), AcknowledgementLevel::Written);
            let config =
                ManagerDriveConfig { manager: ManagerConfig::new(1, 1), identity, fingerprint: 7, address, level };
            let manager = ManagerDrive::new(config, peers, Staging::new(pool())).expect("the address is free");
            Self { network, manager, now: Instant::ZERO }
        }

        /// Passes two seconds, in which the `awake` incarnations have their turns.
        fn pass(&mut self, awake: &mut [&mut Life]) {
            for _ in 0..200 {
                self.now = self.now.after(Duration::from_millis(10));
                self.manager.turn(self.now);
                awake.iter_mut().for_each(|life| life.turn(self.now));
            }
        }

        /// Connects an incarnation with this number, while the `awake` ones have their turns.
        fn call(&mut self, incarnation: u64, awake: &mut [&mut Life]) -> Life {
            let mut peers = self.network.dispatcher(SimulatedConfig::default(), pool());
            let endpoint = peers.connect("manager").expect("a name is an address");
            let (outbox, reader) = (outbox(NodeId::builder(0), incarnation), MessageReader::default());
            let mut life = Life { peers, endpoint, outbox, reader, told: None };
            let mut all: Vec<&mut Life> = awake.iter_mut().map(|life| &mut **life).collect();
            all.push(&mut life);
            self.pass(&mut all);
            life
        }
    }

    #[test]
    fn a_later_life_takes_the_place_of_a_silent_one_and_an_earlier_one_that_wakes_up_is_refused() {
        let mut scene = Scene::new();
        let _asleep = scene.call(1, &mut []);
        let mut later = scene.call(2, &mut []);
        assert_eq!(later.told, Some(Message::Welcome));
        let refused = |reason| Some(Message::Refuse(reason));
        assert_eq!(scene.call(1, &mut [&mut later]).told, refused(RefuseReason::OldIncarnation));
        drop(later);
        scene.pass(&mut []);
        assert_eq!(scene.call(1, &mut []).told, refused(RefuseReason::LateIncarnation(Incarnation(2))));
        assert_eq!(scene.call(3, &mut []).told, Some(Message::Welcome));
    }

    #[test]
    fn a_node_is_heard_as_long_as_it_reports() {
        let mut scene = Scene::new();
        let mut life = scene.call(1, &mut []);
        let heard = |scene: &mut Scene| {
            let hearing = &scene.manager.standing().hearing;
            let (node, at) = hearing.heard[0];
            (node, hearing.turned.expect("it turns").since(at))
        };
        scene.pass(&mut [&mut life]);
        assert!(heard(&mut scene).1 < Duration::from_millis(100));
        scene.pass(&mut []);
        let (node, silent) = heard(&mut scene);
        assert!(node == NodeId::builder(0) && silent >= Duration::from_millis(1900), "{node}: {silent:?}");
        assert_eq!(
            scene.manager.standing().nodes,
            [(NodeId::readout(0), false), (node, true)],
            "its connection is open"
        );
    }

    #[test]
    fn a_later_life_does_not_displace_one_that_works() {
        let mut scene = Scene::new();
        let mut first = scene.call(1, &mut []);
        assert_eq!(scene.call(9, &mut [&mut first]).told, Some(Message::Refuse(RefuseReason::Taken)));
        drop(first);
        assert_eq!(scene.call(9, &mut []).told, Some(Message::Welcome));
    }

    #[test]
    fn earlier_runs_are_over_but_for_the_one_that_lost_its_event_manager() {
        let told = |closed: ClosedRuns| [0, 1, 2, 3, 4].map(|run| closed.refusal(RunNumber(run)));
        let (over, waits) = (Some(RefuseReason::RunOver), Some(RefuseReason::StandBy));
        assert_eq!(told(ClosedRuns::default()), [None; 5]);
        assert_eq!(told(ClosedRuns { before: Some(RunNumber(4)), but: None }), [None, over, over, over, None]);
        assert_eq!(
            told(ClosedRuns { before: Some(RunNumber(4)), but: Some(RunNumber(2)) }),
            [None, over, waits, over, None]
        );
    }
}
