//! One readout unit: boards connect to it over a simulated network, and an [`Overseer`] replaces event manager and
//! builder units.
//!
//! ```text
//!   a board's Connection --frames--> ReadoutDrive --settled events--> Overseer: starts, checks, releases, stops
//! ```

use super::unless;
use ropewalk_engine::{Entrance, Identity, Incoming, MessageReader, Outbox, ReadoutDrive, ReadoutDriveConfig};
use ropewalk_flow::messages::{Announce, Batch, Fragment, Message, Release, ReleaseEntry, Start};
use ropewalk_flow::readout::{Format, Readout, ReadoutConfig, SourceConfig};
use ropewalk_io::simulated::{Faults, Network, Simulated, SimulatedConfig};
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{Pool, PoolConfig, Slice, Staging};
use ropewalk_terms::{Epoch, EventKey, FragmentAccount, Incarnation, Instant, NodeId, Outcome, RunNumber, SourceId};
use ropewalk_wire::description::Description;
use std::time::Duration;

/// The readout unit of such a campaign.
pub(crate) type Machine = ReadoutDrive<Simulated, Simulated>;

pub(crate) fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new_untouched(PoolConfig::heap(name, block, blocks)).expect("there is memory for a small pool")
}

fn identity(node: NodeId) -> Identity {
    Identity { node, incarnation: Incarnation(1), run: RunNumber(1), epoch: Epoch(1) }
}

pub(crate) fn source_of(board: usize) -> SourceId {
    SourceId(board as u32 + 1)
}

fn dispatcher(network: &Network, name: &str, block: usize, blocks: usize) -> Simulated {
    let config = SimulatedConfig { send_queue_bytes: 64 << 10, ..SimulatedConfig::default() };
    network.dispatcher(config, pool(name, block, blocks))
}

/// A readout unit with `boards` boards whose frames are described; `source` changes the defaults of each source.
pub(crate) fn readout_config(
    boards: usize,
    window: u32,
    source_timeout: Duration,
    source: impl Fn(SourceConfig) -> SourceConfig,
) -> ReadoutConfig {
    let source = |board| source(SourceConfig::new(source_of(board), Format::Described));
    ReadoutConfig {
        window,
        capacity: 2 * window,
        is_alone: true,
        source_timeout,
        resync_timeout: 2 * source_timeout,
        ..ReadoutConfig::new(0, (0..boards).map(source).collect())
    }
}

/// The network, the readout unit with a port for each board, its overseer, and each board's connection.
pub(crate) struct Stand {
    pub(crate) readout: Machine,
    pub(crate) overseer: Overseer,
    pub(crate) connections: Vec<Connection>,
}

impl Stand {
    /// Creates one board per source of the readout unit, all with this description; `last` is the run's last event, if
    /// it is known from the start.
    pub(crate) fn new(seed: u64, readout: ReadoutConfig, description: &Description, last: Option<u64>) -> Self {
        let network = Network::new(seed, Faults::bumpy());
        let boards = readout.sources.len();
        let outbox = Outbox::new(identity(NodeId::MANAGER), Staging::new(pool("words", 64 << 10, 16)));
        let overseer = Overseer::new(dispatcher(&network, "overseer", 64 << 10, 64), outbox, "manager", last);
        let config = ReadoutDriveConfig {
            descriptions: readout.sources.iter().map(|source| (source.id, description.clone())).collect(),
            readout,
            identity: identity(NodeId::readout(0)),
            name: "ru0".to_owned(),
            fingerprint: 7,
            listen: "front ends".to_owned(),
            address: "ru0".to_owned(),
            managers: vec!["manager".to_owned()],
            builders: 1,
            report_interval: Duration::from_millis(50),
        };
        let own = dispatcher(&network, "boards", 4 << 10, 24 * boards);
        let peers = dispatcher(&network, "peers", 64 << 10, 16);
        let [staging, evacuation] = ["staging", "evacuation"].map(|name| Staging::new(pool(name, 64 << 10, 16)));
        let mut readout = ReadoutDrive::new(config, own, peers, staging, evacuation).expect("the addresses are free");
        let mut connections = Vec::new();
        for board in 0..boards {
            let address = format!("board {board}");
            let opened = readout.add_entrance(source_of(board), Entrance::Listen(address.clone()));
            opened.expect("the address is free");
            let staging = Staging::new(pool("frames", 16 << 10, 32));
            connections.push(Connection::new(dispatcher(&network, "board", 256, 2), staging, address));
        }
        Self { readout, overseer, connections }
    }
}

/// Consecutive connections to the same address.
pub(crate) struct Connection {
    network: Simulated,
    staging: Staging,
    address: String,
    endpoint: Option<Endpoint>,
    is_up: bool,
    message: Vec<Slice>,
}

impl Connection {
    const fn new(network: Simulated, staging: Staging, address: String) -> Self {
        Self { network, staging, address, endpoint: None, is_up: false, message: Vec::new() }
    }

    /// Whether something can be sent.
    pub(crate) const fn is_up(&self) -> bool {
        self.is_up
    }

    /// Handles the events of the connection. Connects if `wanted` and not connected.
    pub(crate) fn turn(&mut self, now: Instant, wanted: bool) {
        if self.endpoint.is_none() && wanted {
            self.endpoint = self.network.connect(&self.address).ok();
        }
        let mut events = Vec::new();
        self.network.poll(now, &mut events);
        for event in events {
            if self.endpoint != Some(event.endpoint()) {
                continue;
            }
            match event {
                Event::Established { .. } => self.is_up = true,
                Event::Disconnected { .. } | Event::Broken { .. } | Event::ConnectFailed { .. } => {
                    (self.endpoint, self.is_up) = (None, false);
                }
                _ => {}
            }
        }
    }

    /// Sends all of these bytes; returns false, and sends none, if there is no room.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        let Some(endpoint) = self.endpoint.filter(|_| self.is_up) else { return false };
        for part in bytes.chunks(self.staging.largest()) {
            let Some(slice) = self.staging.write(part) else {
                self.message.clear();
                return false;
            };
            self.message.push(slice);
        }
        let is_sent = self.network.send(endpoint, &mut self.message).is_ok();
        self.message.clear();
        is_sent
    }

    /// Closes the connection after everything was sent. Returns whether it is closed.
    pub(crate) fn hang_up(&mut self) -> bool {
        if let Some(endpoint) = self.endpoint.filter(|&endpoint| self.is_up && self.network.queued(endpoint) == 0) {
            self.network.close(endpoint);
            (self.endpoint, self.is_up) = (None, false);
        }
        !self.is_up
    }
}

/// Replaces event manager and builder units: starts the readout unit, checks and releases each settled event, ends the
/// run.
pub(crate) struct Overseer {
    network: Simulated,
    outbox: Outbox,
    endpoint: Option<Endpoint>,
    reader: MessageReader,
    unsent: Vec<Message>,
    /// All events up to this one are settled.
    pub(crate) settled: u64,
    last: Option<u64>,
}

impl Overseer {
    /// An overseer that listens at this address, for a run up to event `last`, if that is known.
    fn new(mut network: Simulated, outbox: Outbox, address: &str, last: Option<u64>) -> Self {
        network.listen(address).expect("the address is free");
        let (reader, unsent) = (MessageReader::default(), Vec::new());
        Self { network, outbox, endpoint: None, reader, unsent, settled: 0, last }
    }

    /// Receives and answers messages of `readout`; `look` returns whether a settled event is complete.
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        readout: &Readout,
        mut look: impl FnMut(EventKey, &Readout) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut events = Vec::new();
        self.network.poll(now, &mut events);
        for event in events {
            match event {
                Event::ConnectionRequest { endpoint, .. } => {
                    self.network.accept(endpoint);
                    self.endpoint = Some(endpoint);
                }
                Event::Received { slice, .. } => self.reader.push(slice),
                _ => {}
            }
        }
        while let Ok(Some(Incoming::Control(_, message))) = self.reader.next_incoming() {
            match message {
                Message::Hello(_) => {
                    let start = Message::Start(Start::of_run(EventKey::new(0, 1)));
                    self.unsent.extend([Message::Welcome, start]);
                    self.unsent.extend(self.last.map(|last| Message::StopAt(EventKey::new(0, last))));
                }
                Message::Announce(announce) => self.take(&announce, readout, &mut look)?,
                Message::Highest(last) => {
                    self.last = Some(last.number());
                    self.unsent.push(Message::StopAt(last));
                }
                _ => {}
            }
        }
        let Some(endpoint) = self.endpoint else { return Ok(()) };
        while let Some(message) = self.unsent.first() {
            if self.outbox.send(&mut self.network, endpoint, message).is_err() {
                break;
            }
            self.unsent.remove(0);
        }
        Ok(())
    }

    fn take(
        &mut self,
        announce: &Announce,
        readout: &Readout,
        look: &mut impl FnMut(EventKey, &Readout) -> Result<bool, String>,
    ) -> Result<(), String> {
        let mut entries = Batch::new();
        // Events after the end, announced before the readout unit knew the end, no longer exist.
        let is_wanted = |key: EventKey| self.last.is_none_or(|last| key.number() <= last);
        for entry in announce.entries.iter().filter(|entry| is_wanted(entry.key)) {
            let outcome = if look(entry.key, readout)? { Outcome::Complete } else { Outcome::IncompleteEmitted };
            entries.push(ReleaseEntry { first: entry.key, count: 1, outcome });
        }
        unless(announce.settled.number() >= self.settled, || {
            format!("settled up to {} after {}", announce.settled.number(), self.settled)
        })?;
        self.settled = announce.settled.number();
        self.unsent.push(Message::Release(Release { entries }));
        Ok(())
    }
}

/// Time between turns.
pub(crate) const STEP: Duration = Duration::from_micros(500);
/// A run is over when all boards have left and nothing has happened for this time, which exceeds every time-out. Events
/// that no board shows at the end are not settled, because no event manager reports them.
const QUIET: Duration = Duration::from_secs(4);
/// Maximum time of a run, with a wide margin.
const LONGEST: Duration = Duration::from_secs(120);

/// The time of a run, and of its last progress.
#[derive(Debug, Default)]
pub(crate) struct Course {
    pub(crate) now: Instant,
    since: Instant,
    /// Events settled, and fragments received.
    reached: (u64, u64),
}

impl Course {
    /// Whether the run is over, given whether all boards have left.
    pub(crate) fn is_over(&self, have_left: bool) -> bool {
        have_left && self.now >= self.since.after(QUIET)
    }

    /// Ends a turn.
    pub(crate) fn go_on(&mut self, overseer: &Overseer, readout: &Machine) -> Result<(), String> {
        let reached = (overseer.settled, readout.machine().total().received);
        if std::mem::replace(&mut self.reached, reached) != reached {
            self.since = self.now;
        }
        self.now = self.now.after(STEP);
        let is_late = self.now > Instant::ZERO.after(LONGEST);
        unless(!is_late, || format!("{reached:?} are settled and received"))
    }
}

/// The fragments of a settled event, which must be held because it is announced.
pub(crate) fn held(key: EventKey, readout: &Readout) -> Result<Vec<Fragment>, String> {
    let (mut fragments, held) = (Vec::new(), readout.super_fragment(key));
    unless(held.is_some(), || format!("event {} is announced and not held", key.number()))?;
    held.iter().for_each(|held| held.append_to(&mut fragments));
    Ok(fragments)
}

/// Checks that no board is read further than the window.
pub(crate) fn reads_within(window: u32, readout: &Readout) -> Result<(), String> {
    let lead = readout.lead();
    unless(lead <= u64::from(window), || {
        format!("a source was read {lead} events past the oldest one, {window} are allowed")
    })
}

/// Checks that at the end every received fragment of a board is accounted for.
pub(crate) fn is_accounted_for(board: usize, account: &FragmentAccount) -> Result<(), String> {
    let is_settled = account.received == account.accounted() && account.in_flight == 0;
    unless(is_settled, || format!("board {board}: fragments received are not accounted for: {account:?}"))
}
