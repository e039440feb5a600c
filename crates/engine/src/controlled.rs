//! Front ends under run control: their connections, the messages on them, and their reports.
//!
//! ```text
//!  front end <--commands, words--> Link <--> flow::control::front_ends --commands--> the run's nodes
//!                    slow readings -> rate -> run_file::SlowReading -> Storage, a segment of its own
//! ```
//! A connection of a front end outlives a run; so does this drive. The front end sends its data elsewhere: to a readout unit,
//! whose address the drive passes to it.

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

/// Where front ends call, and who they are.
#[derive(Clone, Debug)]
pub struct ControlledDriveConfig {
    /// The front ends and how long they are waited for.
    pub front_ends: FrontEndsConfig,
    /// Where they connect to.
    pub listen: String,
    /// Which life of this node; the file of slow readings has it.
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
    /// Orders to the run's nodes.
    for_nodes: VecDeque<RunCommand>,
    events: Vec<Event>,
    refused: u64,
    /// Where slow readings are written; `None` if nothing is.
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
    /// If the address cannot be listened on.
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

    /// Masks or unmasks a source. The front end of a masked source is not waited for.
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

    /// Ends the drive: front ends are not served any more.
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

    /// Takes one word; false if nothing more is wanted over this connection.
    fn hear(&mut self, now: Instant, endpoint: Endpoint, link: &mut Link, word: Word) -> bool {
        match (word, link.place) {
            (Word::Hello(hello), None) => self.greet(now, endpoint, link, hello),
            // A peer that begins without a hello, or repeats it, does not speak this protocol.
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

/// Commands that may wait for a front end that does not read, in bytes: settings, and what follows them.
const MOST_OUTGOING: usize = 4 * LARGEST_BODY_BYTES;

/// What is known of a connection.
struct Link {
    /// Whose it is; `None` before its hello.
    place: Option<usize>,
    /// When it came to stand.
    since: Instant,
    /// Closed as soon as all queued messages are sent.
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

    /// The next word that came whole.
    ///
    /// # Errors
    /// If the bytes are not messages: the connection is of no more use.
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

    /// Queues a command, to be sent as soon as there is room. Returns false if too much is queued already: the front
    /// end does not read.
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

/// One front end.
#[derive(Clone, Debug)]
pub struct FrontEndState {
    /// Which source it is.
    pub source: SourceId,
    /// It is the trigger source.
    pub is_trigger: bool,
    /// Events need it.
    pub is_required: bool,
    /// It is connected.
    pub is_connected: bool,
    /// It is not waited for in this run any more.
    pub is_left_behind: bool,
    /// How it calls itself, and the versions of its firmware and library; empty before it was connected.
    pub name: String,
    /// See `name`.
    pub versions: String,
    /// It said that it was ready for this run: it has its settings.
    pub was_ready: bool,
    /// How far it came in this run.
    pub stage: Stage,
    /// What it said of itself last.
    pub status: Status,
    /// The trigger source's account.
    pub vetoed: Option<Vetoed>,
    /// The number of the last event so far, while the trigger source is held by a pause.
    pub held: Option<u64>,
    /// What it sent.
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

/// All of them, in one run.
#[derive(Clone, Debug, Default)]
pub struct FrontEndsAccount {
    /// The present run, or the last one; 0 before the first.
    pub run: RunNumber,
    /// How far they are.
    pub phase: FrontEndPhase,
    /// The number of its first event.
    pub first: u64,
    /// That of its last one, once it is known.
    pub last: Option<u64>,
    /// The front ends, in the order of the configuration.
    pub front_ends: Vec<FrontEndState>,
    /// What went wrong in the run.
    pub incidents: Vec<Incident>,
    /// Incidents for which there was no room.
    pub incidents_beyond: u64,
}

impl FrontEndsAccount {
    /// What the machine knows now.
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
