//! A builder unit: asks every readout unit for its super-fragments, builds, checks, and hands events to storage.

use super::Drive;
use super::delivery::Delivery;
use super::link::{Identity, Outbox, Unsent, received};
use super::reader::{Incoming, MessageReader};
use super::refusal::Refusal;
use super::storage::{Progress, Storage};
use super::table::EndpointTable;
use ropewalk_flow::builder::{Builder, BuilderAction, BuilderConfig};
use ropewalk_flow::messages::{Batch, Message, Report, ReportEntry};
use ropewalk_io::disk::{Disk, DiskCause};
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, Parcel};
use ropewalk_memory::Staging;
use ropewalk_terms::{AcknowledgementLevel, Counter, Epoch, Instant, NodeId, PoolAccount, RunNumber};
use ropewalk_wire::message::{Header, Hello, SuperFragmentEntry};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a builder unit's drive is made from.
#[derive(Debug)]
pub struct BuilderDriveConfig {
    /// The machine's configuration.
    pub builder: BuilderConfig,
    /// Who it is.
    pub identity: Identity,
    /// Its name, for the hello.
    pub name: String,
    /// Fingerprint of the configuration.
    pub fingerprint: u64,
    /// Where the event manager listens.
    pub manager: String,
    /// Where each readout unit listens for builder units.
    pub readouts: Vec<String>,
    /// How often counters are reported.
    pub report_interval: Duration,
}

/// A connection that this node opens, and opens again after it was lost.
struct Line {
    address: String,
    node: NodeId,
    endpoint: Option<Endpoint>,
    welcome: bool,
    retry: Instant,
    unsent: VecDeque<Message>,
}

/// A builder unit: see the module's text.
pub struct BuilderDrive<P: Dispatcher, D: Disk> {
    peers: P,
    config: BuilderDriveConfig,
    builder: Builder,
    storage: Option<Storage<D>>,
    outbox: Outbox,
    /// The event manager first, then the readout units in the order of their indices.
    lines: Vec<Line>,
    readers: EndpointTable<(usize, MessageReader)>,
    events: Vec<Event>,
    progress: Vec<(u32, Progress)>,
    /// Events built and waiting for room in storage.
    emitted: VecDeque<u32>,
    report_due: Instant,
    finishing: bool,
    reported_end: bool,
    done: bool,
    refusal: Option<Refusal>,
    old_messages: u64,
    run: RunNumber,
}

/// Pause before a lost connection is opened again.
const RETRY: Duration = Duration::from_millis(200);
/// Messages that may wait for one connection before the machine is not asked for more.
const UNSENT: usize = 256;

impl<P: Dispatcher, D: Disk> BuilderDrive<P, D> {
    /// A builder unit that writes to `storage`, or builds and checks only where there is none.
    ///
    /// # Errors
    /// Where an address cannot be understood.
    pub fn new(
        config: BuilderDriveConfig,
        peers: P,
        storage: Option<Storage<D>>,
        staging: Staging,
    ) -> Result<Self, EndpointError> {
        let line = |address: &str, node| Line {
            address: address.to_owned(),
            node,
            endpoint: None,
            welcome: false,
            retry: Instant::ZERO,
            unsent: VecDeque::with_capacity(UNSENT),
        };
        let readouts =
            config.readouts.iter().enumerate().map(|(index, address)| line(address, NodeId::readout(index as u16)));
        let lines = std::iter::once(line(&config.manager, NodeId::MANAGER)).chain(readouts).collect();
        Ok(Self {
            builder: Builder::new(config.builder.clone()),
            outbox: Outbox::new(config.identity, staging),
            lines,
            readers: EndpointTable::default(),
            events: Vec::with_capacity(1024),
            progress: Vec::with_capacity(1024),
            emitted: VecDeque::with_capacity(config.builder.slots as usize),
            report_due: Instant::ZERO,
            finishing: false,
            reported_end: false,
            done: false,
            refusal: None,
            old_messages: 0,
            run: RunNumber(0),
            peers,
            storage,
            config,
        })
    }

    /// The machine, for tests and checkers.
    pub const fn machine(&self) -> &Builder {
        &self.builder
    }

    /// Where the events go, if anywhere.
    pub const fn storage(&self) -> Option<&Storage<D>> {
        self.storage.as_ref()
    }

    /// It was told that the run is over.
    pub const fn is_finishing(&self) -> bool {
        self.finishing
    }

    /// The accounts of its pools, for tests and checkers. After a run blocks are out only while they are filled: one
    /// for what is staged, one for each connection.
    pub fn pools(&mut self) -> Vec<PoolAccount> {
        let records = self.storage.as_mut().map(Storage::pool);
        records.into_iter().chain([self.outbox.pool()]).chain(received(&mut self.peers)).collect()
    }

    /// Opens what is not open.
    fn call(&mut self, now: Instant) {
        for index in 0..self.lines.len() {
            let line = &mut self.lines[index];
            if line.endpoint.is_some() || now < line.retry || self.done {
                continue;
            }
            line.retry = now.after(RETRY);
            if let Ok(endpoint) = self.peers.connect(&line.address) {
                line.endpoint = Some(endpoint);
                line.welcome = false;
                self.readers.insert(endpoint, (index, MessageReader::default()));
            }
        }
    }

    fn poll_peers(&mut self, now: Instant) -> usize {
        self.call(now);
        let mut events = std::mem::take(&mut self.events);
        let work = self.peers.poll(now, &mut events);
        let mut came = events.drain(..);
        while let Some(event) = came.next() {
            let endpoint = event.endpoint();
            match event {
                Event::Established { .. } => {
                    let hello = Message::Hello(Hello::new(&self.config.name, self.config.fingerprint));
                    let _ = self.outbox.send(&mut self.peers, endpoint, &hello);
                }
                Event::Received { slice, .. } => {
                    if let Some((_, reader)) = self.readers.get_mut(endpoint) {
                        reader.push(slice);
                    }
                    // What one poll brought is looked at as a whole: in one process each fragment is a slice.
                    if !matches!(came.as_slice(), [Event::Received { endpoint: next, .. }, ..] if *next == endpoint) {
                        self.read(now, endpoint);
                    }
                }
                Event::HandedOver { parcel, .. } => self.unpack(now, endpoint, parcel),
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    self.lose(now, endpoint);
                }
                Event::ConnectionRequest { .. } => self.peers.reject(endpoint),
                Event::SendQueueLow { .. } => {}
            }
        }
        drop(came);
        self.events = events;
        work
    }

    fn read(&mut self, now: Instant, endpoint: Endpoint) {
        let Some((line, mut reader)) = self.readers.remove(endpoint) else { return };
        let keep = loop {
            match reader.next_incoming() {
                Ok(None) => break true,
                Ok(Some(Incoming::Control(header, message))) => {
                    if !self.hear(now, line, &header, &message) {
                        break false;
                    }
                }
                Ok(Some(Incoming::SuperFragment(header, entry))) => self.take(now, line, &header, &entry, &mut reader),
                Err(_) => break false,
            }
        };
        self.readers.insert(endpoint, (line, reader));
        if !keep {
            self.peers.abort(endpoint);
            self.lose(now, endpoint);
        }
    }

    /// Takes one message; false where the connection is of no more use.
    fn hear(&mut self, now: Instant, line: usize, header: &Header, message: &Message) -> bool {
        let node = self.lines[line].node;
        match message {
            Message::Welcome => {
                self.lines[line].welcome = true;
                if node == NodeId::MANAGER {
                    self.outbox.identity.epoch = self.outbox.identity.epoch.max(header.epoch);
                    self.builder.manager_connected(now);
                } else {
                    self.builder.readout_connected(now, node.index);
                }
            }
            Message::Refuse(reason) => {
                self.refusal = Refusal::lasting(node, &self.lines[line].address, *reason);
                self.done |= self.refusal.is_some();
                return false;
            }
            _ if node != NodeId::MANAGER => return false,
            _ if header.epoch < self.outbox.identity.epoch && header.epoch != Epoch(0) => self.old_messages += 1,
            _ => {
                self.outbox.identity.epoch = header.epoch;
                self.enter(now, header.run);
                match message {
                    // What comes up to that key is the machine's; how long the disk is waited for is storage's.
                    Message::StopAt(_) => self.storage.iter_mut().for_each(|storage| storage.drain(now)),
                    _ => {
                        self.finishing |= matches!(message, Message::Finish);
                        self.builder.message(now, message);
                    }
                }
            }
        }
        true
    }

    /// The first message of a run opens its directory.
    fn enter(&mut self, now: Instant, run: RunNumber) {
        if run == self.run || run == RunNumber(0) {
            return;
        }
        self.run = run;
        self.outbox.identity.run = run;
        if let Some(storage) = &mut self.storage {
            storage.begin(now, run);
        }
    }

    fn take(
        &mut self,
        now: Instant,
        line: usize,
        header: &Header,
        entry: &SuperFragmentEntry,
        reader: &mut MessageReader,
    ) {
        if header.run == self.run {
            self.builder.super_fragment(now, self.lines[line].node.index, entry, reader.fragments.drain(..));
        } else {
            self.old_messages += 1;
        }
        reader.fragments.clear();
    }

    /// Takes what a readout unit of this process hands over, and gives it back empty.
    fn unpack(&mut self, now: Instant, endpoint: Endpoint, parcel: Parcel) {
        let Some(&mut (line, _)) = self.readers.get_mut(endpoint) else { return };
        let Ok(mut delivery) = parcel.open::<Delivery>() else { return };
        let readout = self.lines[line].node.index;
        if delivery.header.is_some_and(|header| header.run == self.run) {
            delivery.unpack(|entry, fragments| self.builder.super_fragment(now, readout, entry, fragments));
        } else {
            self.old_messages += delivery.len() as u64;
            delivery.unpack(|_, _| {});
        }
        // Where it cannot go back the connection has ended, and the next one begins with deliveries of its own.
        let _ = self.peers.hand_over(endpoint, Parcel::new(delivery, 0));
    }

    fn lose(&mut self, now: Instant, endpoint: Endpoint) {
        let Some((index, _)) = self.readers.remove(endpoint) else { return };
        let line = &mut self.lines[index];
        line.endpoint = None;
        line.retry = now.after(RETRY);
        line.unsent.clear();
        let stood = std::mem::take(&mut line.welcome);
        if line.node == NodeId::MANAGER {
            self.done |= self.finishing;
        } else if stood {
            self.builder.readout_lost(now, line.node.index);
        }
    }

    /// Carries out what the machine wants, as far as there is room for it.
    fn act(&mut self, now: Instant) -> usize {
        let mut work = 0;
        while self.flush() {
            let Some(action) = self.builder.poll(now) else { break };
            work += 1;
            match action {
                // The end is told when the files are closed: see `end`.
                BuilderAction::ToManager(Message::Finished(_)) => {}
                BuilderAction::ToManager(message) => self.lines[0].unsent.push_back(message),
                BuilderAction::ToReadout { readout, message } => {
                    self.lines[1 + usize::from(readout)].unsent.push_back(message);
                }
                BuilderAction::Emit { slot } => self.emitted.push_back(slot),
                BuilderAction::StopRun { cause } => self.lines[0].unsent.push_back(Message::StopRequest(cause)),
            }
        }
        work + self.store(now)
    }

    /// Moves built events to storage and tells the machine how far earlier ones have come.
    fn store(&mut self, now: Instant) -> usize {
        let Some(storage) = &mut self.storage else {
            let work = self.emitted.len();
            while let Some(slot) = self.emitted.pop_front() {
                self.builder.reached(now, slot, AcknowledgementLevel::Written);
            }
            return work;
        };
        while let Some(&slot) = self.emitted.front() {
            if storage.has_given_up() {
                self.builder.failed(now, slot);
            } else if storage.add(now, slot, &self.builder.event(slot)) {
                self.builder.reached(now, slot, AcknowledgementLevel::Built);
            } else {
                break;
            }
            self.emitted.pop_front();
        }
        storage.flush(now);
        let work = storage.poll(now, &mut self.progress);
        for (slot, progress) in self.progress.drain(..) {
            match progress {
                Progress::Reached(level) => self.builder.reached(now, slot, level),
                Progress::Failed => self.builder.failed(now, slot),
            }
        }
        work
    }

    /// Sends what waits for connections that stand; false where the machine should not be asked for more.
    fn flush(&mut self) -> bool {
        let mut room = true;
        for line in &mut self.lines {
            let (Some(endpoint), true) = (line.endpoint, line.welcome) else {
                // What nobody listens to is not kept: after the reconnection the machine says it again.
                line.unsent.clear();
                continue;
            };
            while let Some(message) = line.unsent.front() {
                match self.outbox.send(&mut self.peers, endpoint, message) {
                    Ok(()) | Err(Unsent::Closed) => {
                        line.unsent.pop_front();
                    }
                    Err(Unsent::NoRoom) => break,
                }
            }
            room &= line.unsent.len() < UNSENT;
        }
        room
    }

    /// After the manager's `Finish`: closes the files, then reports, then says so.
    fn end(&mut self, now: Instant) {
        if !self.finishing || !self.emitted.is_empty() {
            return;
        }
        if self.reported_end {
            // The manager ends when all others have closed their connections to it.
            let line = &mut self.lines[0];
            if line.unsent.is_empty()
                && std::mem::take(&mut line.welcome)
                && let Some(manager) = line.endpoint
            {
                self.peers.close(manager);
            }
            return;
        }
        if let Some(storage) = &mut self.storage {
            storage.finish(now);
            if !storage.is_closed() {
                return;
            }
        }
        self.reported_end = true;
        self.report();
        let in_flight = self.builder.in_work() as u64;
        self.lines[0].unsent.push_back(Message::Finished(ropewalk_flow::messages::Finished { in_flight }));
        self.flush();
    }

    fn report(&mut self) {
        let counts = self.storage.as_ref().map(Storage::counts).unwrap_or_default();
        let own = [
            (Counter::BytesWritten, counts.bytes),
            (Counter::SegmentsClosed, counts.segments),
            (Counter::SegmentsDeleted, counts.deleted_segments),
            (Counter::EventsDeleted, counts.deleted_events),
            (Counter::BytesDeleted, counts.deleted_bytes),
            (Counter::DiskRefusals, counts.refusals),
            (Counter::DiskFull, u64::from(counts.refused == Some(DiskCause::Full))),
            (Counter::DiskFailing, counts.refused.map_or(0, failing)),
        ];
        let own = own.into_iter().map(|(counter, value)| ReportEntry { source: None, what: counter as u16, value });
        let mut batch = Batch::new();
        let unsent = &mut self.lines[0].unsent;
        for mut entry in self.builder.report().chain(own) {
            if entry.what == Counter::MessagesRefused as u16 {
                entry.value += self.old_messages;
            }
            if batch.is_full() {
                unsent.push_back(Message::Report(Report { entries: std::mem::take(&mut batch), last: false }));
            }
            batch.push(entry);
        }
        unsent.push_back(Message::Report(Report { entries: batch, last: true }));
    }
}

impl<P: Dispatcher, D: Disk> Drive for BuilderDrive<P, D> {
    fn turn(&mut self, now: Instant) -> usize {
        if self.done {
            return 0;
        }
        let mut work = self.poll_peers(now);
        work += self.act(now);
        if now >= self.report_due && self.lines[0].welcome {
            self.report_due = now.after(self.config.report_interval);
            self.report();
        }
        self.end(now);
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retries = self.lines.iter().filter(|line| line.endpoint.is_none()).map(|line| line.retry);
        let storage = self.storage.as_ref().and_then(Storage::next_deadline);
        let report = self.lines[0].welcome.then_some(self.report_due);
        [self.builder.next_deadline(), self.peers.next_deadline(), storage, report]
            .into_iter()
            .flatten()
            .chain(retries)
            .min()
    }

    fn prepare_wait(&mut self) -> bool {
        let storage = self.storage.as_mut().is_none_or(Storage::prepare_wait);
        self.peers.prepare_wait() && storage
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.peers.wait_descriptor());
        into.extend(self.storage.as_ref().and_then(Storage::wait_descriptor));
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }
}

/// The number of the error of a disk that fails; a full one does not.
fn failing(cause: DiskCause) -> u64 {
    if cause == DiskCause::Full { 0 } else { cause.number().unsigned_abs().into() }
}
