//! The drive: connections, the machine, the file of slow readings.

use super::account::FrontEndsAccount;
use super::link::Link;
use crate::drive::Drive;
use crate::drive::event_sink::EventSink;
use crate::drive::link::received;
use crate::drive::storage::Storage;
use crate::drive::table::EndpointTable;
use ropewalk_flow::control::front_ends::{FrontEndAction, FrontEnds, FrontEndsConfig, RunOrder};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_io::disk::Disk;
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, ServicePoint};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{EventKey, Incarnation, Instant, PoolAccount, SourceId};
use ropewalk_wire::front_end::{CONTROL_VERSION, Command, Hello, Reading, RefuseReason, Word};
use ropewalk_wire::run_file::SlowReading;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Where front ends call, and who they are.
#[derive(Clone, Debug)]
pub struct ControlledDriveConfig {
    /// The front ends and how long they are waited for.
    pub front_ends: FrontEndsConfig,
    /// Where they connect to.
    pub listen: String,
    /// Which life of this node: it stands in the file of slow readings.
    pub incarnation: Incarnation,
}

/// How long a connection may take until it has said who it is.
const RECOGNITION: Duration = Duration::from_secs(5);
/// Connections that may stand without having said who they are.
const MOST_STRANGERS: usize = 64;
/// Slow readings that wait for the disk.
const MOST_READINGS: usize = 4096;

/// Run control of front ends over endpoints: see the module's picture.
pub struct ControlledDrive<P: Dispatcher, D: Disk> {
    peers: P,
    service: ServicePoint,
    machine: FrontEnds,
    staging: Staging,
    links: EndpointTable<Link>,
    /// By place in the configuration: its connection.
    connected: Vec<Option<Endpoint>>,
    strangers: usize,
    /// What the run's nodes are to be told.
    for_nodes: VecDeque<RunCommand>,
    events: Vec<Event>,
    refused: u64,
    /// Where slow readings are written; none where nothing is.
    storage: Option<Storage<D>>,
    readings: VecDeque<(SourceId, Reading)>,
    record: Vec<u8>,
    incarnation: Incarnation,
    /// Slow readings are taken, or their file is being closed.
    is_recording: bool,
    /// There is such a file.
    has_recorded: bool,
    is_over: bool,
}

impl<P: Dispatcher, D: Disk> ControlledDrive<P, D> {
    /// Opens the service point.
    ///
    /// # Errors
    /// Where the address cannot be listened on.
    pub fn new(
        config: ControlledDriveConfig,
        mut peers: P,
        staging: Staging,
        storage: Option<Storage<D>>,
    ) -> Result<Self, EndpointError> {
        let service = peers.listen(&config.listen)?;
        Ok(Self {
            connected: vec![None; config.front_ends.front_ends.len()],
            machine: FrontEnds::new(config.front_ends),
            staging,
            links: EndpointTable::default(),
            strangers: 0,
            for_nodes: VecDeque::new(),
            events: Vec::with_capacity(256),
            refused: 0,
            storage,
            readings: VecDeque::new(),
            record: Vec::new(),
            incarnation: config.incarnation,
            is_recording: false,
            has_recorded: false,
            is_over: false,
            peers,
            service,
        })
    }

    /// Where front ends connect to, port filled in.
    pub fn address(&self) -> String {
        self.peers.address_of(self.service).unwrap_or_default()
    }

    /// Begins a run, or with `taken_over` goes on with one whose event manager is no more.
    pub fn start(&mut self, now: Instant, order: RunOrder, taken_over: bool) {
        if self.machine.phase().is_active() {
            return;
        }
        if let Some(storage) = &mut self.storage {
            storage.begin(now, order.run, self.incarnation);
            (self.is_recording, self.has_recorded) = (true, false);
        }
        self.readings.clear();
        if taken_over { self.machine.take_over(now, order) } else { self.machine.start(now, order) }
    }

    /// Ends the run; see [`FrontEnds::stop`].
    pub fn stop(&mut self, now: Instant, last: Option<EventKey>) {
        self.machine.stop(now, last);
    }

    /// A source takes part no longer, and nobody waits for its front end; or again.
    pub fn mask(&mut self, now: Instant, source: SourceId, is_masked: bool) {
        self.machine.mask(now, source, is_masked);
    }

    /// Pauses the run, or lets it go on; see [`FrontEnds::pause`].
    pub fn pause(&mut self, now: Instant, is_paused: bool) {
        self.machine.pause(now, is_paused);
    }

    /// Ends the run at once.
    pub fn force_stop(&mut self, now: Instant) {
        self.machine.force_stop(now);
    }

    /// The run's nodes are so far.
    pub fn nodes_are(&mut self, now: Instant, nodes: RunPhase) {
        self.machine.nodes_are(now, nodes);
    }

    /// The next command for the run's nodes.
    pub fn next_for_nodes(&mut self) -> Option<RunCommand> {
        self.for_nodes.pop_front()
    }

    /// What is known now.
    pub fn account(&self) -> FrontEndsAccount {
        FrontEndsAccount::of(&self.machine)
    }

    /// The machine, for tests and checkers.
    pub const fn machine(&self) -> &FrontEnds {
        &self.machine
    }

    /// No run goes on, and the file of the last one's slow readings is closed.
    pub fn is_at_rest(&self) -> bool {
        !self.machine.phase().is_active() && !self.is_recording
    }

    /// Nobody is served any more.
    pub const fn end(&mut self) {
        self.is_over = true;
    }

    /// The accounts of its pools, for tests and checkers.
    pub fn pools(&mut self) -> Vec<PoolAccount> {
        self.staging.pool_mut().collect();
        [self.staging.pool().account()].into_iter().chain(received(&mut self.peers)).collect()
    }

    fn poll_peers(&mut self, now: Instant) -> usize {
        let mut events = std::mem::take(&mut self.events);
        let work = self.peers.poll(now, &mut events);
        for event in events.drain(..) {
            let endpoint = event.endpoint();
            match event {
                Event::ConnectionRequest { .. } if self.strangers >= MOST_STRANGERS => self.peers.reject(endpoint),
                Event::ConnectionRequest { .. } => {
                    self.peers.accept(endpoint);
                    self.strangers += 1;
                    self.links.insert(endpoint, Link::new(now));
                }
                Event::Received { slice, .. } => self.read(now, endpoint, slice),
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    self.lose(now, endpoint);
                }
                Event::Established { .. }
                | Event::HandedOver { .. }
                | Event::SendQueueLow { .. }
                | Event::SendQueueHigh { .. }
                | Event::Finished { .. } => {}
            }
        }
        self.events = events;
        work
    }

    fn read(&mut self, now: Instant, endpoint: Endpoint, slice: Slice) {
        // What is on its way out says nothing any more.
        if self.links.get_mut(endpoint).is_none_or(|link| link.is_ending) {
            return;
        }
        let Some(mut link) = self.links.remove(endpoint) else { return };
        link.push(slice);
        let keep = loop {
            match link.next_word() {
                Ok(None) => break true,
                Ok(Some(word)) => {
                    if !self.hear(now, endpoint, &mut link, word) {
                        break link.is_ending;
                    }
                }
                Err(_) => {
                    self.refused += 1;
                    break false;
                }
            }
        };
        self.links.insert(endpoint, link);
        if !keep {
            self.peers.close(endpoint);
            self.lose(now, endpoint);
        }
    }

    /// Takes one word; false where nothing more is wanted over this connection.
    fn hear(&mut self, now: Instant, endpoint: Endpoint, link: &mut Link, word: Word) -> bool {
        match (word, link.place) {
            (Word::Hello(hello), None) => self.greet(now, endpoint, link, hello),
            // Somebody who begins without a hello, or says it twice, speaks something else.
            (Word::Hello(_), Some(_)) | (_, None) => false,
            (Word::Report(reading), Some(place)) => {
                // When the run is over its file is being closed.
                let has_file = self.is_recording && self.machine.phase().is_active();
                let has_room = has_file && self.readings.len() < MOST_READINGS;
                if self.machine.reported(now, place, has_room) {
                    self.readings.push_back((self.machine.members()[place].config().source, reading));
                }
                true
            }
            (word, Some(place)) => {
                self.machine.heard(now, place, &word);
                true
            }
        }
    }

    fn greet(&mut self, now: Instant, endpoint: Endpoint, link: &mut Link, hello: Hello) -> bool {
        let place = self.machine.members().iter().position(|member| member.config().source == hello.source);
        let answer = match place {
            _ if !hello.is_spoken() => Err(RefuseReason::Version(CONTROL_VERSION)),
            None => Err(RefuseReason::UnknownSource),
            Some(place) if !self.machine.may_connect(now, place) => Err(RefuseReason::Taken),
            Some(place) => Ok(place),
        };
        match answer {
            Err(reason) => {
                self.refused += 1;
                link.say(&Command::Refuse(reason));
                link.is_ending = true;
                false
            }
            Ok(place) => {
                if let Some(before) = self.connected[place].replace(endpoint) {
                    // A leftover: it has been silent for long.
                    self.links.remove(before);
                    self.peers.abort(before);
                    self.machine.lost(now, place);
                }
                self.strangers = self.strangers.saturating_sub(1);
                link.place = Some(place);
                link.say(&Command::Welcome(hello.version));
                self.machine.connected(now, place, hello);
                true
            }
        }
    }

    fn lose(&mut self, now: Instant, endpoint: Endpoint) {
        match self.links.remove(endpoint).map(|link| link.place) {
            Some(None) => self.strangers = self.strangers.saturating_sub(1),
            Some(Some(place)) if self.connected[place] == Some(endpoint) => {
                self.connected[place] = None;
                self.machine.lost(now, place);
            }
            // It was a leftover, or is known no more.
            _ => {}
        }
    }

    /// Does what the machine says, and sends what was said.
    fn act(&mut self, now: Instant) -> usize {
        let mut work = 0;
        while let Some(action) = self.machine.poll(now) {
            work += 1;
            match action {
                FrontEndAction::Nodes(command) => self.for_nodes.push_back(command),
                FrontEndAction::Tell(place, command) => self.tell(now, place, &command),
            }
        }
        for index in 0..self.links.places() {
            let Some((endpoint, link)) = self.links.at(index) else { continue };
            let has_left = link.flush(endpoint, &mut self.peers, &mut self.staging);
            let is_late = link.place.is_none() && now.since(link.since) >= RECOGNITION;
            if has_left && link.is_ending || is_late {
                self.peers.close(endpoint);
                self.lose(now, endpoint);
                work += 1;
            }
        }
        work
    }

    fn tell(&mut self, now: Instant, place: usize, command: &Command) {
        let Some(endpoint) = self.connected[place] else { return };
        let Some(link) = self.links.get_mut(endpoint) else { return };
        if !link.say(command) {
            self.peers.abort(endpoint);
            self.lose(now, endpoint);
        }
    }

    /// Writes slow readings; closes their file at the run's end.
    fn record(&mut self, now: Instant) -> usize {
        let Some(storage) = &mut self.storage else { return 0 };
        let mut work = storage.poll(now, &mut Vec::new());
        while let Some((source, reading)) = self.readings.front() {
            self.record.clear();
            let Reading { time, value, name, unit } = reading.clone();
            let encoded = SlowReading { source: *source, time, value, name, unit }.encode(&mut self.record);
            // Its texts are bounded, so that no record is too long.
            if encoded.is_ok() && !storage.add_record(now, &self.record) {
                break;
            }
            self.readings.pop_front();
            self.has_recorded = true;
            work += 1;
        }
        storage.flush(now);
        if self.is_recording && !self.machine.phase().is_active() && self.readings.is_empty() {
            if self.has_recorded {
                storage.finish(now);
            }
            self.is_recording = self.has_recorded && !storage.is_closed();
        }
        work
    }

    /// When the next connection that has not said who it is is closed.
    fn recognition_due(&self) -> Option<Instant> {
        (self.strangers > 0).then(|| self.links.entries().map(|link| link.since.after(RECOGNITION)).min()).flatten()
    }
}

impl<P: Dispatcher, D: Disk> Drive for ControlledDrive<P, D> {
    fn turn(&mut self, now: Instant) -> usize {
        self.poll_peers(now) + self.act(now) + self.record(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let storage = self.storage.as_ref().and_then(Storage::next_deadline);
        [self.machine.next_deadline(), self.peers.next_deadline(), storage, self.recognition_due()]
            .into_iter()
            .flatten()
            .min()
    }

    fn prepare_wait(&mut self) -> bool {
        let peers = self.peers.prepare_wait();
        self.storage.as_mut().is_none_or(Storage::prepare_wait) && peers
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.peers.wait_descriptor());
        into.extend(self.storage.as_ref().and_then(Storage::wait_descriptor));
    }

    fn is_done(&self) -> bool {
        self.is_over
    }
}
