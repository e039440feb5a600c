//! Front ends under run control: their connections, messages and reports.
//!
//! ```text
//!  front end <--commands, words--> Link <--> flow::control::front_ends --commands--> the run's nodes
//!                    slow readings -> rate -> run_file::SlowReading -> Storage, a segment of its own
//! ```
//! The connection of a front end outlives a run, and so does this drive. The front end sends its data to a readout
//! unit; the drive passes it that unit's address.

use super::Drive;
use super::link::{EndpointTable, received};
use super::sink::EventSink;
use super::storage::Storage;
use ropewalk_flow::control::front_ends::{
    FrontEndAction, FrontEndPhase, FrontEnds, FrontEndsConfig, Incident, Member, RunOrder,
};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_io::disk::Disk;
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, ServicePoint};
use ropewalk_memory::{ByteQueue, Slice, Staging};
use ropewalk_terms::{EventKey, Incarnation, Instant, PoolAccount, RunNumber, SourceId};
use ropewalk_wire::frame::FrameError;
use ropewalk_wire::front_end::{
    CONTROL_VERSION, Command, FRAME_BYTES, Frame, Hello, LARGEST_BODY_BYTES, Reading, RefuseReason, Stage, Status,
    Stopped, Vetoed, Word,
};
use ropewalk_wire::run_file::SlowReading;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Configuration of the run control of front ends.
#[derive(Clone, Debug)]
pub struct ControlledDriveConfig {
    /// The front ends and their time-outs.
    pub front_ends: FrontEndsConfig,
    /// Address to listen on.
    pub listen: String,
    /// Incarnation of this node, recorded in the file of slow readings.
    pub incarnation: Incarnation,
}

/// Time in which a connection must identify itself.
const RECOGNITION: Duration = Duration::from_secs(5);
/// Maximum number of unidentified connections.
const MOST_STRANGERS: usize = 64;
/// Maximum number of slow readings that wait for the disk.
const MOST_READINGS: usize = 4096;

/// Run control of front ends over endpoints; see the picture above.
pub struct ControlledDrive<P: Dispatcher, D: Disk> {
    peers: P,
    service: ServicePoint,
    machine: FrontEnds,
    staging: Staging,
    links: EndpointTable<Link>,
    /// The connection of each front end, by its place in the configuration.
    connected: Vec<Option<Endpoint>>,
    strangers: usize,
    /// Commands for the run's nodes.
    for_nodes: VecDeque<RunCommand>,
    events: Vec<Event>,
    refused: u64,
    /// Where slow readings are written; `None` if they are not.
    storage: Option<Storage<D>>,
    readings: VecDeque<(SourceId, Reading)>,
    record: Vec<u8>,
    incarnation: Incarnation,
    /// Whether slow readings are accepted, or their file is being closed.
    is_recording: bool,
    /// Whether there is a file of slow readings.
    has_recorded: bool,
    is_over: bool,
}

impl<P: Dispatcher, D: Disk> ControlledDrive<P, D> {
    /// Opens the service point.
    ///
    /// # Errors
    /// If it cannot listen on the address.
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

    /// Returns the address that front ends connect to, including the port.
    pub fn address(&self) -> String {
        self.peers.address_of(self.service).unwrap_or_default()
    }

    /// Begins a run. With `taken_over`, continues a run whose event manager has ended.
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

    /// Masks or unmasks a source. The front end of a masked source is not awaited.
    pub fn mask(&mut self, now: Instant, source: SourceId, is_masked: bool) {
        self.machine.mask(now, source, is_masked);
    }

    /// Pauses or resumes the run; see [`FrontEnds::pause`].
    pub fn pause(&mut self, now: Instant, is_paused: bool) {
        self.machine.pause(now, is_paused);
    }

    /// Ends the run immediately.
    pub fn force_stop(&mut self, now: Instant) {
        self.machine.force_stop(now);
    }

    /// Reports the phase of the run's nodes.
    pub fn nodes_are(&mut self, now: Instant, nodes: RunPhase) {
        self.machine.nodes_are(now, nodes);
    }

    /// Returns the next command for the run's nodes.
    pub fn next_for_nodes(&mut self) -> Option<RunCommand> {
        self.for_nodes.pop_front()
    }

    /// Returns the current account.
    pub fn account(&self) -> FrontEndsAccount {
        FrontEndsAccount::of(&self.machine)
    }

    /// Returns the state machine, for tests and checkers.
    pub const fn machine(&self) -> &FrontEnds {
        &self.machine
    }

    /// Returns whether no run is active and the file of the last run's slow readings is closed.
    pub fn is_at_rest(&self) -> bool {
        !self.machine.phase().is_active() && !self.is_recording
    }

    /// Ends the drive: front ends are no longer served.
    pub const fn end(&mut self) {
        self.is_over = true;
    }

    /// Returns the accounts of its pools, for tests and checkers.
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
        // Input of a connection that is being closed is ignored.
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

    /// Handles one message. Returns false if the connection is no longer needed.
    fn hear(&mut self, now: Instant, endpoint: Endpoint, link: &mut Link, word: Word) -> bool {
        match (word, link.place) {
            (Word::Hello(hello), None) => self.greet(now, endpoint, link, hello),
            // A peer that does not begin with a hello, or repeats it, does not follow this protocol.
            (Word::Hello(_), Some(_)) | (_, None) => false,
            (Word::Report(reading), Some(place)) => {
                // After the end of the run its file is being closed.
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
                    // A stale connection: it has been silent for long.
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
            // It was a stale connection, or is no longer known.
            _ => {}
        }
    }

    /// Carries out the machine's actions, and sends its messages.
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

    /// Writes slow readings. Closes their file at the end of the run.
    fn record(&mut self, now: Instant) -> usize {
        let Some(storage) = &mut self.storage else { return 0 };
        let mut work = storage.poll(now, &mut Vec::new());
        while let Some((source, reading)) = self.readings.front() {
            self.record.clear();
            let Reading { time, value, name, unit } = reading.clone();
            let encoded = SlowReading { source: *source, time, value, name, unit }.encode(&mut self.record);
            // The texts are bounded, so that no record is too long.
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

    /// Returns the time to close the next unidentified connection.
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

/// Maximum size of the commands queued for a front end that does not read, in bytes: settings and the commands after
/// them.
const MOST_OUTGOING: usize = 4 * LARGEST_BODY_BYTES;

/// State of a connection.
struct Link {
    /// The front end, by its place; `None` before its hello.
    place: Option<usize>,
    /// When it was opened.
    since: Instant,
    /// Whether to close it as soon as all queued messages are sent.
    is_ending: bool,
    bytes: ByteQueue,
    scratch: Vec<u8>,
    outgoing: Vec<u8>,
    slices: Vec<Slice>,
}

impl Link {
    fn new(since: Instant) -> Self {
        Self {
            place: None,
            since,
            is_ending: false,
            bytes: ByteQueue::new(),
            scratch: Vec::new(),
            outgoing: Vec::new(),
            slices: Vec::with_capacity(1),
        }
    }

    fn push(&mut self, slice: Slice) {
        self.bytes.push(slice);
    }

    /// Returns the next complete message.
    ///
    /// # Errors
    /// If the bytes are not messages. The connection is then unusable.
    fn next_word(&mut self) -> Result<Option<Word>, FrameError> {
        let Some(head) = self.bytes.peek_array::<FRAME_BYTES>(0) else { return Ok(None) };
        let frame = Frame::parse(&head)?;
        let length = frame.body as usize;
        self.scratch.resize(length, 0);
        if self.bytes.len() < FRAME_BYTES + length || !self.bytes.copy_to(FRAME_BYTES, &mut self.scratch) {
            return Ok(None);
        }
        self.bytes.skip(FRAME_BYTES + length);
        Word::decode(frame.kind, &self.scratch).map(Some)
    }

    /// Queues a command, to be sent as soon as there is room. Returns false if too much is queued already, because the
    /// front end does not read.
    fn say(&mut self, command: &Command) -> bool {
        command.encode(&mut self.outgoing);
        self.outgoing.len() <= MOST_OUTGOING
    }

    /// Sends queued messages as far as there is room. Returns true when none is left.
    fn flush(&mut self, endpoint: Endpoint, to: &mut impl Dispatcher, staging: &mut Staging) -> bool {
        while !self.outgoing.is_empty() {
            let length = self.outgoing.len().min(staging.largest());
            let Some(slice) = staging.write(&self.outgoing[..length]) else { return false };
            self.slices.push(slice);
            let is_sent = to.send(endpoint, &mut self.slices).is_ok();
            self.slices.clear();
            if !is_sent {
                return false;
            }
            self.outgoing.drain(..length);
        }
        true
    }
}

/// The state of one front end.
#[derive(Clone, Debug)]
pub struct FrontEndState {
    /// Its source.
    pub source: SourceId,
    /// Whether it is the trigger source.
    pub is_trigger: bool,
    /// Whether events require it.
    pub is_required: bool,
    /// Whether it is connected.
    pub is_connected: bool,
    /// Whether it is no longer awaited in this run.
    pub is_left_behind: bool,
    /// Its own name, and the versions of its firmware and library; empty before it first connected.
    pub name: String,
    /// See `name`.
    pub versions: String,
    /// Whether it reported that it was ready for this run: it has its settings.
    pub was_ready: bool,
    /// Its stage in this run.
    pub stage: Stage,
    /// The status that it last reported.
    pub status: Status,
    /// The trigger source's account of vetoed triggers.
    pub vetoed: Option<Vetoed>,
    /// The number of the latest event, while a pause holds the trigger source.
    pub held: Option<u64>,
    /// The account of the data it sent.
    pub stopped: Option<Stopped>,
    /// Slow readings taken in this run.
    pub readings: u64,
    /// Slow readings dropped in this run because they came too fast or found no room.
    pub readings_refused: u64,
}

impl FrontEndState {
    fn of(member: &Member) -> Self {
        Self {
            source: member.config().source,
            is_trigger: member.config().is_trigger,
            is_required: member.config().is_required,
            is_connected: member.hello().is_some(),
            is_left_behind: member.is_left_behind(),
            name: member.name().to_owned(),
            versions: member.versions().to_owned(),
            was_ready: member.was_ready(),
            stage: member.stage(),
            status: member.status().clone(),
            vetoed: member.vetoed().cloned(),
            held: member.held(),
            stopped: member.stopped().copied(),
            readings: member.readings().taken,
            readings_refused: member.readings().refused,
        }
    }
}

/// The state of all front ends in one run.
#[derive(Clone, Debug, Default)]
pub struct FrontEndsAccount {
    /// The current or latest run; 0 before the first.
    pub run: RunNumber,
    /// Phase of the front ends.
    pub phase: FrontEndPhase,
    /// Number of the run's first event.
    pub first: u64,
    /// Number of its last event, once known.
    pub last: Option<u64>,
    /// The front ends, in the order of the configuration.
    pub front_ends: Vec<FrontEndState>,
    /// Incidents of the run.
    pub incidents: Vec<Incident>,
    /// Number of incidents beyond those recorded.
    pub incidents_beyond: u64,
}

impl FrontEndsAccount {
    /// Derives the account from the machine.
    fn of(machine: &FrontEnds) -> Self {
        let (incidents, incidents_beyond) = machine.incidents();
        Self {
            run: machine.run(),
            phase: machine.phase(),
            first: machine.first(),
            last: machine.last(),
            front_ends: machine.members().iter().map(FrontEndState::of).collect(),
            incidents: incidents.to_vec(),
            incidents_beyond,
        }
    }
}
