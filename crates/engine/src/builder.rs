//! A builder unit: it requests super-fragments from every readout unit, builds and checks events, has them decided, and
//! hands them to storage.

use super::delivery::Delivery;
use super::event_output::EventOutput;
use super::filter::FilterStage;
use super::link::{EndpointTable, Identity, Incoming, MessageReader, Outbox, Refusal, push_report, received};
use super::managers::{Managers, Shutdown, Welcomed};
use super::sink::EventSink;
use super::storage::OutputRoom;
use super::{BusyTimer, Drive};
use crate::pages::NodePage;
use crate::tap::Tap;
use ropewalk_flow::builder::{Builder, BuilderAction, BuilderConfig};
use ropewalk_flow::messages::{Message, ReportEntry};
use ropewalk_io::{Dispatcher, Endpoint, EndpointError, Event, Parcel};
use ropewalk_memory::Staging;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Counter, Epoch, Incarnation, Instant, NodeId, Parameter, PoolAccount, RunNumber};
use ropewalk_wire::message::{Header, Hello, SuperFragmentEntry};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Configuration of a builder unit's drive.
#[derive(Debug)]
pub struct BuilderDriveConfig {
    /// Configuration of the state machine.
    pub builder: BuilderConfig,
    /// The unit's identity.
    pub identity: Identity,
    /// The unit's name, for the hello.
    pub name: String,
    /// Fingerprint of the configuration.
    pub fingerprint: u64,
    /// Addresses of the event managers. The unit obeys the one with the highest epoch that welcomes it.
    pub managers: Vec<String>,
    /// Address of each readout unit for builder units.
    pub readouts: Vec<String>,
    /// Interval between reports of counters.
    pub report_interval: Duration,
}

/// The connection to a readout unit, opened again after it was lost.
struct Line {
    address: String,
    endpoint: Option<Endpoint>,
    welcome: bool,
    retry: Instant,
    unsent: VecDeque<Message>,
}

/// A builder unit; see the module documentation.
pub struct BuilderDrive<P: Dispatcher> {
    peers: P,
    config: BuilderDriveConfig,
    builder: Builder,
    output: EventOutput,
    outbox: Outbox,
    managers: Managers,
    /// Messages for the event manager.
    unsent: VecDeque<Message>,
    /// Connections to the readout units, by index.
    lines: Vec<Line>,
    /// The readout unit at the other end; `None` for an event manager.
    readers: EndpointTable<(Option<usize>, MessageReader)>,
    events: Vec<Event>,
    report_due: Instant,
    shutdown: Shutdown,
    refusal: Option<Refusal>,
    old_messages: u64,
    /// Time in which it had work, and time in which it had no room for further events.
    busy: BusyTimer,
    full: BusyTimer,
    run: RunNumber,
}

/// Pause before a lost connection is opened again.
const RETRY: Duration = Duration::from_millis(200);
/// Messages that may wait for one connection before the machine is not asked for more.
const UNSENT: usize = 256;

impl<P: Dispatcher> BuilderDrive<P> {
    /// Creates a builder unit that writes to `sink`. Without a sink it only builds and checks events.
    ///
    /// # Errors
    /// If an address is invalid.
    pub fn new(
        config: BuilderDriveConfig,
        peers: P,
        sink: Option<Box<dyn EventSink>>,
        staging: Staging,
    ) -> Result<Self, EndpointError> {
        let line = |address: &String| Line {
            address: address.clone(),
            endpoint: None,
            welcome: false,
            retry: Instant::ZERO,
            unsent: VecDeque::with_capacity(UNSENT),
        };
        Ok(Self {
            builder: Builder::new(config.builder.clone()),
            outbox: Outbox::new(config.identity, staging),
            managers: Managers::new(&config.managers),
            unsent: VecDeque::with_capacity(UNSENT),
            lines: config.readouts.iter().map(line).collect(),
            readers: EndpointTable::default(),
            events: Vec::with_capacity(1024),
            output: EventOutput::new(sink, config.builder.slots.max(1)),
            report_due: Instant::ZERO,
            shutdown: Shutdown::default(),
            refusal: None,
            old_messages: 0,
            busy: BusyTimer::default(),
            full: BusyTimer::default(),
            run: RunNumber(0),
            peers,
            config,
        })
    }

    /// Adds a filter stage that decides on and selects events. To be called before anything is built. While the run
    /// drains, decisions are awaited for up to `patience`; events without a decision are then set aside.
    #[must_use]
    pub fn with_filter(mut self, filter: FilterStage, patience: Duration) -> Self {
        self.output = self.output.with_filter(filter, patience);
        self
    }

    /// Adds a tap that passes some events to monitoring.
    #[must_use]
    pub fn with_tap(mut self, tap: Tap) -> Self {
        self.output = self.output.with_tap(self.config.identity.node, tap);
        self
    }

    /// Adds the free space of the output to the reports.
    #[must_use]
    pub fn with_room(mut self, room: OutputRoom) -> Self {
        self.output = self.output.with_room(room);
        self
    }

    /// Returns the state machine, for tests and checkers.
    pub const fn machine(&self) -> &Builder {
        &self.builder
    }

    /// Returns the epoch and the incarnation of the event manager whose order was carried out last. For checkers.
    pub const fn obeyed(&self) -> Option<(Epoch, Incarnation)> {
        self.managers.last_order()
    }

    /// Returns the accounts of the pools, for tests and checkers. After a run the only blocks in use are those being
    /// filled: one for staging, and one for each connection.
    pub fn pools(&mut self) -> Vec<PoolAccount> {
        self.output.pools().chain([self.outbox.pool()]).chain(received(&mut self.peers)).collect()
    }

    /// Opens the missing connections.
    fn call(&mut self, now: Instant) {
        if self.shutdown.is_done() {
            return;
        }
        let Self { managers, peers, readers, lines, .. } = self;
        managers.call(now, peers, |endpoint| readers.insert(endpoint, (None, MessageReader::default())));
        for (index, line) in lines.iter_mut().enumerate() {
            if line.endpoint.is_some() || now < line.retry {
                continue;
            }
            line.retry = now.after(RETRY);
            if let Ok(endpoint) = peers.connect(&line.address) {
                line.endpoint = Some(endpoint);
                line.welcome = false;
                readers.insert(endpoint, (Some(index), MessageReader::default()));
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
                    // All slices that one poll returned are processed together: within one process each fragment is a
                    // slice.
                    if !matches!(came.as_slice(), [Event::Received { endpoint: next, .. }, ..] if *next == endpoint) {
                        self.read(now, endpoint);
                    }
                }
                Event::HandedOver { parcel, .. } => self.unpack(now, endpoint, parcel),
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    self.lose(now, endpoint);
                }
                Event::ConnectionRequest { .. } => self.peers.reject(endpoint),
                Event::SendQueueLow { .. } | Event::SendQueueHigh { .. } | Event::Finished { .. } => {}
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
                    if !self.hear(now, endpoint, line, &header, &message) {
                        break false;
                    }
                }
                Ok(Some(Incoming::SuperFragment(header, entry))) => self.take(now, line, &header, &entry, &mut reader),
                Err(_) => break false,
            }
        };
        self.readers.insert(endpoint, (line, reader));
        if !keep {
            self.peers.close(endpoint);
            self.lose(now, endpoint);
        }
    }

    /// Processes one message. Returns false if the connection is no longer usable.
    fn hear(
        &mut self,
        now: Instant,
        endpoint: Endpoint,
        line: Option<usize>,
        header: &Header,
        message: &Message,
    ) -> bool {
        match (message, line) {
            (Message::Welcome, None) => return self.welcomed(now, endpoint, header.epoch),
            (Message::Welcome, Some(line)) => {
                self.lines[line].welcome = true;
                self.managers.hear_of(header.epoch);
                self.builder.readout_connected(now, line as u16);
            }
            (Message::Refuse(reason), _) => {
                self.refusal = match line {
                    Some(line) => Refusal::timer(NodeId::readout(line as u16), &self.lines[line].address, *reason),
                    None => self.managers.refused(now, endpoint, *reason, &mut self.outbox.identity),
                };
                if self.refusal.is_some() {
                    self.shutdown.end();
                }
                return false;
            }
            (_, Some(_)) => return false,
            (_, None) => self.order(now, endpoint, header, message),
        }
        true
    }

    /// Carries out an order of the obeyed event manager. Orders of other managers are only counted.
    fn order(&mut self, now: Instant, endpoint: Endpoint, header: &Header, message: &Message) {
        if !self.managers.is_obeyed(endpoint, header.epoch) {
            self.old_messages += 1;
            return;
        }
        self.managers.note_order(header);
        self.outbox.identity.epoch = header.epoch;
        self.enter(now, header.run);
        match message {
            Message::Finished(_) => return self.shutdown.dismiss(),
            // The machine handles the events up to that key; storage handles the time-out of the disk.
            Message::StopAt(_) => return self.output.drain(now),
            Message::Finish => self.shutdown.finish(),
            Message::Set(setting) => match setting.parameter {
                Parameter::ReportInterval => self.config.report_interval = setting.time(),
                Parameter::Prescale => self.output.set_prescale(setting.of, setting.value),
                _ => {}
            },
            _ => {}
        }
        self.builder.message(now, message);
    }

    /// Handles the welcome of an event manager. Returns false if a manager with a higher epoch is obeyed.
    fn welcomed(&mut self, now: Instant, endpoint: Endpoint, epoch: Epoch) -> bool {
        let welcomed = self.managers.welcomed(endpoint, epoch, &mut self.outbox, &mut self.peers);
        let Welcomed::Obeyed { left } = welcomed else { return false };
        if let Some(left) = left {
            let _ = self.readers.remove(left);
            self.unsent.clear();
        }
        self.shutdown.manager_came();
        self.builder.manager_connected(now);
        true
    }

    /// Enters the run. The first message of a run opens its directory.
    fn enter(&mut self, now: Instant, run: RunNumber) {
        if run == self.run || run == RunNumber(0) {
            return;
        }
        self.run = run;
        self.outbox.identity.run = run;
        self.output.begin(now, run, self.outbox.identity.incarnation);
    }

    fn take(
        &mut self,
        now: Instant,
        line: Option<usize>,
        header: &Header,
        entry: &SuperFragmentEntry,
        reader: &mut MessageReader,
    ) {
        match line.filter(|_| header.run == self.run) {
            Some(line) => self.builder.super_fragment(now, line as u16, entry, reader.fragments()),
            None => self.old_messages += 1,
        }
        reader.drop_fragments();
    }

    /// Takes the content of a delivery that a readout unit of this process hands over, and returns it empty.
    fn unpack(&mut self, now: Instant, endpoint: Endpoint, parcel: Parcel) {
        let Some(&mut (Some(line), _)) = self.readers.get_mut(endpoint) else { return };
        let Ok(mut delivery) = parcel.open::<Delivery>() else { return };
        let readout = line as u16;
        if delivery.header.is_some_and(|header| header.run == self.run) {
            delivery.unpack(|entry, fragments| self.builder.super_fragment(now, readout, entry, fragments));
        } else {
            self.old_messages += delivery.len() as u64;
            delivery.unpack(|_, _| {});
        }
        // If it cannot be returned, the connection has ended. The next connection has deliveries of its own.
        let _ = self.peers.hand_over(endpoint, Parcel::new(delivery, 0));
    }

    fn lose(&mut self, now: Instant, endpoint: Endpoint) {
        let Some((line, _)) = self.readers.remove(endpoint) else { return };
        let Some(index) = line else {
            if self.managers.lost(now, endpoint) {
                self.shutdown.manager_lost(now);
            }
            return;
        };
        let line = &mut self.lines[index];
        line.endpoint = None;
        line.retry = if is_planted(Flaw::ReconnectionForgotten) { Instant::FAR_FUTURE } else { now.after(RETRY) };
        line.unsent.clear();
        if std::mem::take(&mut line.welcome) {
            self.builder.readout_lost(now, index as u16);
        }
    }

    /// Carries out the machine's actions, as far as there is room for them.
    fn act(&mut self, now: Instant) -> usize {
        let mut work = 0;
        while self.flush() {
            let Some(action) = self.builder.poll(now) else { break };
            work += 1;
            match action {
                // The end is reported when the files are closed: see `end`.
                BuilderAction::ToManager(Message::Finished(_)) => {}
                BuilderAction::ToManager(message) => self.unsent.push_back(message),
                BuilderAction::ToReadout { readout, message } => {
                    self.lines[usize::from(readout)].unsent.push_back(message);
                }
                BuilderAction::EndLumisection(end) => self.output.end_lumisection(&end),
                BuilderAction::StopRun { cause } => self.unsent.push_back(Message::StopRequest(cause)),
            }
        }
        work + self.output.turn(now, &mut self.builder, usize::MAX)
    }

    /// Sends queued messages over the open connections. Returns false if the machine should not be asked for more.
    fn flush(&mut self) -> bool {
        let Self { outbox, peers, managers, unsent, lines, .. } = self;
        outbox.flush(peers, managers.obeyed(), unsent);
        let mut room = unsent.len() < UNSENT;
        for line in lines {
            outbox.flush(peers, line.endpoint.filter(|_| line.welcome), &mut line.unsent);
            room &= line.unsent.len() < UNSENT;
        }
        room
    }

    /// Ends the run after the manager's `Finish`: closes the files, sends the last report, then sends `Finished`.
    fn end(&mut self, now: Instant) {
        if !self.shutdown.is_told() || !self.output.is_idle() || self.builder.awaits_lumisection() {
            return;
        }
        if self.shutdown.is_said() {
            // The manager ends once all other nodes have closed their connections to it.
            if self.unsent.is_empty()
                && let Some(manager) = self.managers.obeyed()
                && self.shutdown.leaves()
            {
                self.peers.close(manager);
            }
            return;
        }
        if !self.output.close(now) {
            return;
        }
        if self.managers.obeyed().is_none() {
            return;
        }
        self.shutdown.say();
        self.output.end();
        self.report();
        let in_flight = self.builder.in_work() as u64;
        self.unsent.push_back(Message::Finished(ropewalk_flow::messages::Finished { in_flight }));
        self.flush();
    }

    /// Returns all counters: of the machine, the event output and the drive.
    fn numbers(&self) -> impl Iterator<Item = ReportEntry> {
        let own = [(Counter::ThreadBusyTime, self.busy), (Counter::BuilderFullTime, self.full)]
            .map(|(counter, timer)| ReportEntry { source: None, what: counter as u16, value: timer.nanoseconds() });
        self.builder.report().chain(self.output.report()).chain(own).map(|mut entry| {
            if entry.what == Counter::MessagesRefused as u16 {
                entry.value += self.old_messages;
            }
            entry
        })
    }

    fn report(&mut self) {
        let mut unsent = std::mem::take(&mut self.unsent);
        push_report(&mut unsent, self.numbers().chain(self.output.measured().flat_map(ReportEntry::measured)));
        self.unsent = unsent;
    }
}

impl<P: Dispatcher> Drive for BuilderDrive<P> {
    fn turn(&mut self, now: Instant) -> usize {
        if self.shutdown.is_done() {
            return 0;
        }
        let mut work = self.poll_peers(now);
        work += self.act(now);
        self.busy.look(now, work > 0);
        self.full.look(now, self.builder.is_full());
        if now >= self.report_due && self.managers.obeyed().is_some() {
            self.report_due = now.after(self.config.report_interval);
            self.report();
        }
        self.end(now);
        self.shutdown.look(now);
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retries = self.lines.iter().filter(|line| line.endpoint.is_none()).map(|line| line.retry);
        let report = self.managers.obeyed().map(|_| self.report_due);
        [
            self.builder.next_deadline(),
            self.peers.next_deadline(),
            self.managers.next_deadline(),
            self.shutdown.next_deadline(),
            self.output.next_deadline(),
            report,
        ]
        .into_iter()
        .flatten()
        .chain(retries)
        .min()
    }

    fn prepare_wait(&mut self) -> bool {
        let output = self.output.prepare_wait();
        self.peers.prepare_wait() && output
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        into.extend(self.peers.wait_descriptor());
        self.output.descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.shutdown.is_done()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    fn tell(&self, _now: Instant, page: &mut NodePage) {
        page.stands(self.run, self.shutdown.phase(self.run, self.managers.obeyed().is_some()));
        self.numbers().for_each(|entry| page.count(&entry));
    }
}
