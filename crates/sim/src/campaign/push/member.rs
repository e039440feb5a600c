//! A member of a push system: its drive, and how that is wired to the simulated network and disk.
//!
//! A gateway is one drive, or two halves that sleep and are woken by each other. What users see of it: a [`Reader`] of decisions
//! connects, leaves, reads slowly, and keeps what it received; a [`Watcher`] takes samples all the time.

use super::address;
use super::farm::Held;
use super::judge::banks;
use super::referee::Shared;
use super::scenario::{Scenario, source_id, source_of};
use super::wires::{Line, PacketReceiver, PacketSender, Tampering};
use super::world::World;
use crate::campaign::cluster::{LeastWait, Process};
use crate::campaign::endpoints::{Endpoints, Surroundings};
use crate::campaign::fault::Place;
use crate::campaign::machines::{pool, turned_by};
use crate::campaign::node::{NodeClock, disk_of, forward};
use crate::campaign::runner::{Broken, Checker, ensure};
use ropewalk_engine::gateway::{
    Callers, Connections, Datagrams, DecisionReaders, EmulatedFilterConfig, FarmNodeDrive, FarmNodeDriveConfig,
    GatewayDrive, GatewayDriveConfig, GatewayReport, Gathering, Link, NodeFilterConfig, Notice, PacketSourceDrive,
    PacketSourceDriveConfig, ReceivingDrive, ReceivingParts, SendingDrive, SendingParts, halves,
};
use ropewalk_engine::tap::{Asked, EventSample, EventSelection, Tap};
use ropewalk_engine::{Drive, EventOutput, Storage, StorageConfig};
use ropewalk_flow::filter::Streams;
use ropewalk_flow::gateway::{FarmNodeConfig, Naming, Output, Receiver, Sender, TriggerConfig};
use ropewalk_flow::source::TriggerRate;
use ropewalk_io::disk::SimulatedDisk;
use ropewalk_io::packet::{Flow, MemoryInUse, ReceiveConfig, SendConfig};
use ropewalk_io::simulated::SimulatedConfig;
use ropewalk_io::{Dispatcher, Endpoint, Event};
use ropewalk_memory::{ByteQueue, Pool, Staging};
use ropewalk_terms::{Incarnation, Instant, NodeId, RunNumber, Utc};
use ropewalk_wire::gateway::{FRAME_BYTES, Frame, Message, Stream, StreamEntry};
use ropewalk_wire::run_file::{EventFlags, SourceEntry, SourceFormat};
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a member waits at least for its next turn.
const LEAST_WAIT: LeastWait = LeastWait { to_come: Duration::ZERO, over: Duration::from_micros(50) };

/// A member that is not there yet.
pub(super) const fn member<D: Drive>(clock: NodeClock) -> Process<D> {
    Process::new(clock, LEAST_WAIT)
}

/// What gateways and nodes reach each other by: datagrams or connections.
type FarmLink = Box<dyn Link>;
/// Both halves in one.
type WholeDrive = GatewayDrive<PacketReceiver, FarmLink, PacketSender>;
/// The half that sends.
pub(super) type SendingMachine = Half<SendingDrive<FarmLink, PacketSender>>;
/// A life of a gateway, and its sending half if that has a separate thread.
type GatewayLife = (GatewayMachine, Option<SendingMachine>);
/// The parts of a gateway.
type GatewayParts =
    (GatewayDriveConfig, ReceivingParts<PacketReceiver, PacketSender>, SendingParts<FarmLink, PacketSender>);
/// Who reads a flow's decisions.
type Readers = Option<Box<dyn DecisionReaders + Send>>;

/// A half of a gateway: once it sleeps only what wakes its thread gives it a turn.
pub(super) struct Half<D> {
    pub(super) drive: D,
    is_asleep: bool,
    /// Whether something would have ended its thread's sleep.
    is_woken: fn(&mut D) -> bool,
}

impl<D: Drive> Half<D> {
    const fn new(drive: D, is_woken: fn(&mut D) -> bool) -> Self {
        Self { drive, is_asleep: false, is_woken }
    }

    /// Its thread would sleep.
    pub(super) fn is_asleep(&mut self) -> bool {
        self.is_asleep && !(self.is_woken)(&mut self.drive)
    }

    /// Asleep, though there is something for it to do.
    pub(super) fn sleeps_over_work(&mut self) -> bool {
        self.is_asleep && !self.drive.is_done() && !(self.is_woken)(&mut self.drive) && !self.drive.prepare_wait()
    }
}

impl<D: Drive> Drive for Half<D> {
    fn turn(&mut self, now: Instant) -> usize {
        self.is_asleep = false;
        self.drive.turn(now)
    }

    forward!(drive: next_deadline -> Option<Instant>, is_done -> bool);

    fn prepare_wait(&mut self) -> bool {
        if self.is_asleep {
            return !(self.is_woken)(&mut self.drive);
        }
        self.is_asleep = self.drive.prepare_wait();
        self.is_asleep
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.drive.wait_descriptors(into);
    }
}

/// What takes packets and speaks for the gateway.
pub(super) enum GatewayMachine {
    /// All of it.
    Whole(Box<WholeDrive>),
    /// The half that receives; the other one has its own turns.
    Receiving(Box<Half<ReceivingDrive<PacketReceiver, PacketSender>>>),
}

impl GatewayMachine {
    /// The machine's half that receives.
    pub(super) fn receiver(&self) -> &Receiver {
        match self {
            Self::Whole(drive) => drive.machines().0,
            Self::Receiving(half) => half.drive.machine(),
        }
    }

    /// The machine's half that sends, if it is here.
    pub(super) fn sender(&self) -> Option<&Sender> {
        match self {
            Self::Whole(drive) => Some(drive.machines().1),
            Self::Receiving(_) => None,
        }
    }

    /// What the gateway tells of itself.
    pub(super) fn notice(&self) -> Notice<GatewayReport> {
        match self {
            Self::Whole(drive) => drive.notice(),
            Self::Receiving(half) => half.drive.notice(),
        }
    }

    /// How much of each input's memory is held.
    pub(super) fn memory_in_use(&mut self) -> Vec<MemoryInUse> {
        match self {
            Self::Whole(drive) => drive.memory_in_use().collect(),
            Self::Receiving(half) => half.drive.memory_in_use().collect(),
        }
    }

    /// The half that receives, if the gateway has two threads.
    pub(super) fn half(&mut self) -> Option<&mut Half<ReceivingDrive<PacketReceiver, PacketSender>>> {
        match self {
            Self::Whole(_) => None,
            Self::Receiving(half) => Some(half),
        }
    }

    fn drive(&self) -> &dyn Drive {
        match self {
            Self::Whole(drive) => &**drive,
            Self::Receiving(half) => &**half,
        }
    }

    fn drive_mut(&mut self) -> &mut dyn Drive {
        match self {
            Self::Whole(drive) => &mut **drive,
            Self::Receiving(half) => &mut **half,
        }
    }
}

turned_by!(GatewayMachine, drive, drive_mut);

/// Drives on simulated sockets and disks.
pub(super) type NodeMachine = FarmNodeDrive<FarmLink>;
pub(super) type TriggerMachine = PacketSourceDrive<PacketReceiver, PacketSender>;

/// How long a gateway waits at the end for packets in flight.
const DRAIN: Duration = Duration::from_secs(10);
/// Bytes that the queue of a connection between gateway and node holds.
const SEND_QUEUE: usize = 64 << 10;
/// The longest packet that a member sends.
const LARGEST: usize = 16 << 10;
/// Above this share of held memory, in percent, packets are copied out of it.
const EVACUATE_ABOVE: usize = 75;

impl World {
    fn packet_receiver(&self, place: Place, clock: &NodeClock, at: SocketAddrV4, pool: Pool) -> PacketReceiver {
        let batch = self.scenario.rooms.batch;
        let config = ReceiveConfig { batch, largest: LARGEST, ..ReceiveConfig::new(Flow::Udp, at) };
        let inner = self.network.receiver(config, pool).expect("no other receiver has this address");
        PacketReceiver { inner, place, clock: clock.clone(), referee: self.referee.clone() }
    }

    fn packet_sender(&self, place: Place, clock: &NodeClock, from: SocketAddrV4) -> PacketSender {
        let staging = Staging::new(pool("sends", LARGEST, 8));
        let inner = self.network.sender(SendConfig::new(Flow::Udp, from), staging);
        PacketSender {
            inner,
            place,
            clock: clock.clone(),
            referee: self.referee.clone(),
            tampering: Tampering::default(),
        }
    }

    fn control(&self, place: Place, clock: &NodeClock, at: SocketAddrV4) -> PacketReceiver {
        self.packet_receiver(place, clock, at, pool("hears", LARGEST, 16))
    }

    /// Endpoints on the network of connections.
    fn endpoints(&self, place: Place, clock: &NodeClock, at: SocketAddrV4, send_queue_bytes: usize) -> Endpoints {
        let (clock, recorder) = (clock.clone(), self.core.recorder.clone());
        let around = Surroundings { place, clock, recorder, dry: Arc::default() };
        let config = SimulatedConfig { send_queue_bytes, ..SimulatedConfig::default() };
        let endpoints = Endpoints::new(&self.lines, config, pool("lines", LARGEST, 64), &around).lenient();
        self.core.recorder.borrow_mut().addresses.insert(endpoints.host(), at);
        endpoints
    }

    /// What gateways and nodes reach each other by: `at` is where they are heard, `from` where datagrams leave.
    fn link(&self, place: Place, clock: &NodeClock, at: SocketAddrV4, from: SocketAddrV4) -> FarmLink {
        if !self.scenario.connections {
            let receiver = self.control(place, clock, at);
            return Box::new(Datagrams { receiver, sender: self.packet_sender(place, clock, from) });
        }
        let (endpoints, staging) =
            (self.endpoints(place, clock, at, SEND_QUEUE), Staging::new(pool("sends", LARGEST, 64)));
        let connections = match place {
            Place::Node(_) => Connections::connect(endpoints, staging),
            _ => {
                Connections::listen(endpoints, &at.to_string(), staging, Callers::Speaking)
                    .expect("no other listener has this address")
                    .0
            }
        };
        Box::new(Line { inner: connections, place, at, clock: clock.clone(), referee: self.referee.clone() })
    }

    /// Readers of each flow's decisions.
    fn readers(&self, gateway: u16, clock: &NodeClock) -> Vec<Readers> {
        let mut readers: Vec<Readers> = self.scenario.flows.iter().map(|_| None).collect();
        let room = self.scenario.readers.unwrap_or_default();
        for (_, flow) in self.scenario.reader_places().into_iter().filter(|(of, _)| *of == gateway) {
            let at = self.scenario.address(gateway, address::decisions(flow));
            let (endpoints, staging) =
                (self.endpoints(Place::Gateway(gateway), clock, at, room), Staging::new(pool("told", LARGEST, 64)));
            let listening = Connections::listen(endpoints, &at.to_string(), staging, Callers::Listening);
            let listening = listening.expect("no other listener has this address").0;
            readers[usize::from(flow)] = Some(Box::new(listening));
        }
        readers
    }

    /// A life of a gateway; of two threads, the half that sends comes second.
    pub(super) fn gateway(&self, gateway: u16, life: u64, clock: &NodeClock) -> GatewayLife {
        let (config, receiving, sending) = self.gateway_parts(gateway, life, clock);
        let now = clock.now();
        if self.scenario.threads {
            let (receiving, mut sending) =
                halves(config, receiving, sending).expect("scenarios are drawn so that they can be");
            sending.begin(now);
            let receiving = Half::new(receiving, ReceivingDrive::is_woken);
            return (GatewayMachine::Receiving(Box::new(receiving)), Some(Half::new(sending, SendingDrive::is_woken)));
        }
        let mut drive = GatewayDrive::new(config, receiving, sending).expect("scenarios are drawn so that they can be");
        drive.begin(now);
        (GatewayMachine::Whole(Box::new(drive)), None)
    }

    fn gateway_parts(&self, gateway: u16, life: u64, clock: &NodeClock) -> GatewayParts {
        let (scenario, place) = (&self.scenario, Place::Gateway(gateway));
        let rooms = scenario.rooms;
        let flows = 0..scenario.flows.len() as u8;
        let input = |flow| {
            let memory = pool("packets", rooms.block_bytes, rooms.blocks);
            self.packet_receiver(place, clock, self.scenario.address(gateway, address::input(flow)), memory)
        };
        let gates = self.gates.iter().map(|gate| scenario.knows_last.then(|| Arc::clone(gate))).collect();
        let by_copy = if scenario.seed.is_multiple_of(2) { Gathering::ShortCopy } else { Gathering::Memcpy };
        let config = GatewayDriveConfig {
            machine: scenario.gateway_config(gateway, life),
            gathering: if scenario.by_reference { Gathering::Iovec } else { by_copy },
            triggers: flows.clone().map(|flow| Some(address::trigger(flow))).collect(),
            requests: scenario.naming == Naming::Request,
            run: RunNumber(1),
            epoch: clock.utc(),
            gates,
            is_held: Arc::default(),
            orders: Arc::clone(&self.orders),
            histograms: Notice::default(),
            is_over: Arc::clone(&self.is_over),
            drain: DRAIN,
            batch: rooms.batch,
            memory: (rooms.blocks * rooms.block_bytes) as u64,
            evacuate_above: EVACUATE_ABOVE,
        };
        let storage = self.storage(gateway, clock);
        let [control, voice] = [address::CONTROL, address::VOICE].map(|first| scenario.address(gateway, first));
        let farm = self.link(place, clock, control, voice);
        let triggers = self.packet_sender(place, clock, voice);
        let receiving = ReceivingParts {
            inputs: flows.map(input).collect(),
            triggers: self.packet_sender(place, clock, voice),
            board: None,
            evacuated: Staging::new(pool("moved", LARGEST, 64)),
        };
        let heads = Staging::new(pool("heads", LARGEST, 64));
        let readers = self.readers(gateway, clock);
        let tap = Some((NodeId::builder(gateway), self.watchers[usize::from(gateway)].tap.clone()));
        let sending = SendingParts {
            farm,
            triggers,
            readers,
            heads,
            tap,
            lumisections: None,
            output: EventOutput::of_farm(Some(Box::new(storage)), Streams::everything()),
        };
        (config, receiving, sending)
    }

    /// A reader of a flow's decisions in a gateway.
    pub(super) fn reader(&self, reader: u16, clock: &NodeClock) -> Reader {
        let (gateway, flow) = self.scenario.reader_places()[usize::from(reader)];
        let lines = self.endpoints(Place::Reader(reader), clock, address::reader(reader), SEND_QUEUE);
        let at = self.scenario.address(gateway, address::decisions(flow));
        Reader::new(lines, at, (gateway, flow), self.referee.clone())
    }

    fn storage(&self, gateway: u16, clock: &NodeClock) -> Storage<SimulatedDisk> {
        let stored = (0..).zip(&self.scenario.flows).filter(|(_, flow)| flow.gateway.output == Output::Storage);
        let entry = |(flow, source)| {
            let id = source_id(flow, source);
            SourceEntry { id, format: SourceFormat::BANKS, name: format!("source-{id}") }
        };
        let sources = stored.flat_map(|(flow, setting)| (0..setting.sources.sources).map(move |source| (flow, source)));
        let config = StorageConfig {
            epoch: Utc(clock.utc().0),
            sources: sources.map(entry).collect(),
            segment_bytes: 64 << 10,
            batch_bytes: 16 << 10,
            segment_events: 50,
            give_up_after: DRAIN / 2,
            ..StorageConfig::new(NodeId::builder(gateway), "/data")
        };
        let disk = disk_of(&self.storages[usize::from(gateway)], clock);
        Storage::new(disk, config, Staging::new(pool("records", 64 << 10, 16)))
    }

    /// A life of a node.
    pub(super) fn node(&self, node: u16, life: u64, clock: &NodeClock) -> NodeMachine {
        let (scenario, place) = (&self.scenario, Place::Node(node));
        let setting = &scenario.nodes[usize::from(node)];
        let machine = FarmNodeConfig {
            node,
            incarnation: Incarnation(life),
            gateway: 0,
            window: setting.window,
            heartbeat: scenario.node_heartbeat,
            patience: scenario.patience,
            largest_event: 1 << 20,
        };
        let config = FarmNodeDriveConfig {
            machine,
            gateways: (0..scenario.gateways).map(|gateway| scenario.address(gateway, address::CONTROL)).collect(),
            filter: NodeFilterConfig::Emulated(EmulatedFilterConfig {
                times: setting.times,
                at_once: setting.at_once,
                accept: scenario.accept,
            }),
            seed: scenario.seed ^ u64::from(node) << 32 ^ life << 48,
            outages: Vec::new(),
            is_over: Arc::default(),
        };
        let at = address::node(node);
        FarmNodeDrive::new(config, self.link(place, clock, at, at))
    }

    /// The trigger of a flow and its sources, and what may be done to the packets of each.
    pub(super) fn trigger(&self, flow: u8, clock: &NodeClock) -> (TriggerMachine, Vec<Tampering>) {
        let (scenario, place) = (&self.scenario, Place::Trigger(flow));
        let setting = &scenario.flows[usize::from(flow)];
        let hertz = setting.rate_hz();
        let config = PacketSourceDriveConfig {
            sources: setting.sources,
            trigger: TriggerConfig {
                gateways: scenario.gateways,
                naming: scenario.naming,
                silence: scenario.trigger_silence,
            },
            rate: if setting.is_random { TriggerRate::Poisson { hertz } } else { TriggerRate::Periodic { hertz } },
            gateways: (0..scenario.gateways)
                .map(|gateway| self.scenario.address(gateway, address::input(flow)))
                .collect(),
            gate: Arc::clone(&self.gates[usize::from(flow)]),
        };
        let sources = 0..setting.sources.sources;
        let senders: Vec<PacketSender> =
            sources.map(|source| self.packet_sender(place, clock, address::source(flow, source))).collect();
        let tampering = senders.iter().map(|sender| Rc::clone(&sender.tampering)).collect();
        (PacketSourceDrive::new(config, self.control(place, clock, address::trigger(flow)), senders), tampering)
    }

    /// Checks that watchers were shown events as they were.
    pub(super) fn judge_samples(&self) -> Result<(), Broken> {
        let referee = self.referee.borrow();
        for (gateway, watcher) in (0u16..).zip(&self.watchers) {
            let sets = || referee.lives_of(gateway).flat_map(|life| &life.farm.sets);
            for (kind, sample) in
                watcher.kinds.iter().flat_map(|kind| kind.samples.iter().map(move |sample| (kind, sample)))
            {
                let broken = |words: &str| Broken::new(Checker::Content, format!("gw{gateway}: {words}: {sample:?}"));
                let place = self.place_of_sample(sample).ok_or_else(|| broken("there is no such event"))?;
                let mut lives = sets().filter(|(known, _)| **known == place).peekable();
                lives.peek().ok_or_else(|| broken("a sample of a set that no node was to get"))?;
                let is_right = lives.any(|(_, held)| is_as_held(sample, place.0, held)) && self.is_as_sent(sample);
                let is_wanted = !kind.selection.is_incomplete || !sample.is_complete();
                let is_named = sample.builder == NodeId::builder(gateway);
                ensure!(Content, is_right && is_wanted && is_named; "gw{gateway}: a watcher was shown {sample:?}")?;
            }
            let was_something = sets().next().is_some();
            ensure!(Loss, !was_something || !watcher.kinds[0].samples.is_empty();
                "gw{gateway}: a watcher saw no event in the whole run")?;
        }
        Ok(())
    }

    /// Flow and set of a sample: its sources tell the flow.
    fn place_of_sample(&self, sample: &EventSample) -> Option<(u8, u64)> {
        let there = sample.fragments.iter().map(|fragment| fragment.entry.source);
        let (flow, _) = source_of(there.chain(sample.missing.iter().map(|missing| missing.source)).next()?);
        let (set, _) = self.scenario.flows.get(usize::from(flow))?.place_of(sample.key)?;
        Some((flow, set))
    }

    /// Whether its fragments are what sources sent.
    fn is_as_sent(&self, sample: &EventSample) -> bool {
        sample.fragments.iter().all(|fragment| {
            let (flow, source) = source_of(fragment.entry.source);
            let sent = banks(&self.scenario.flows[usize::from(flow)], source, sample.key.number());
            fragment.entry.length as usize == sent.len() && sample.front_of(fragment) == &sent[..sent.len().min(FRONT)]
        })
    }
}

/// How soon a reader who is not connected tries again.
const RETRY: Duration = Duration::from_millis(5);

/// A reader of a flow's decisions in one gateway.
pub(super) struct Reader {
    lines: Endpoints,
    at: SocketAddrV4,
    pub(super) gateway: u16,
    pub(super) flow: u8,
    referee: Shared,
    endpoint: Option<Endpoint>,
    is_away: bool,
    retry_at: Instant,
    bytes: ByteQueue,
    events: Vec<Event>,
    /// Which life of the gateway speaks over this connection, and how many decisions it has told up to now.
    pub(super) told: Option<(Incarnation, u64)>,
    /// Everything it was ever told: which life's decision, which one of them.
    pub(super) journal: Vec<(Incarnation, u64, StreamEntry)>,
}

impl Reader {
    /// A reader of the decisions that a gateway tells at an address.
    pub(super) fn new(lines: Endpoints, at: SocketAddrV4, (gateway, flow): (u16, u8), referee: Shared) -> Self {
        Self {
            lines,
            at,
            gateway,
            flow,
            referee,
            endpoint: None,
            is_away: false,
            retry_at: Instant::ZERO,
            bytes: ByteQueue::new(),
            events: Vec::new(),
            told: None,
            journal: Vec::new(),
        }
    }

    /// It goes, or comes back.
    pub(super) fn set_away(&mut self, is_away: bool) {
        self.is_away = is_away;
        if let Some(endpoint) = self.endpoint.filter(|_| is_away) {
            self.lines.close(endpoint);
            self.forget(Instant::ZERO);
        }
    }

    fn forget(&mut self, now: Instant) {
        (self.endpoint, self.told, self.bytes) = (None, None, ByteQueue::new());
        self.retry_at = now.after(RETRY);
    }

    fn connect(&mut self) {
        self.endpoint = self.lines.connect(&self.at.to_string()).ok();
    }

    fn read(&mut self) {
        while let Some(message) = self.next_message() {
            let told = message.and_then(|stream| self.note(&stream));
            self.referee.borrow_mut().keep(told);
        }
    }

    /// The next message that is here whole, if it is what it should be.
    fn next_message(&mut self) -> Option<Result<Stream, Broken>> {
        let broken = |words: String| Some(Err(Broken::new(Checker::Content, words)));
        let head = self.bytes.peek_array::<FRAME_BYTES>(0)?;
        let Ok(frame) = Frame::parse(&head) else { return broken(format!("a reader receives {head:?}")) };
        let length = FRAME_BYTES + frame.body as usize;
        if self.bytes.len() < length {
            return None;
        }
        let bytes = self.bytes.take(length).to_vec();
        match Message::decode(frame.kind, &bytes[FRAME_BYTES..]) {
            Ok(Message::Stream(stream)) => Some(Ok(stream)),
            other => broken(format!("a reader receives {other:?}")),
        }
    }

    /// Decisions come without a gap.
    fn note(&mut self, stream: &Stream) -> Result<(), Broken> {
        let (life, due) = self.told.unwrap_or((stream.incarnation, stream.before));
        let is_next = (stream.gateway, stream.flow) == (self.gateway, self.flow)
            && (stream.incarnation, stream.before) == (life, due);
        ensure!(Order, is_next;
            "gw{}: a reader of flow {} has {due} decisions of {life:?}, and the next ones begin behind {} of {:?}",
            self.gateway, self.flow, stream.before, stream.incarnation)?;
        self.journal.extend((due..).zip(&stream.entries).map(|(number, entry)| (life, number, *entry)));
        self.told = Some((life, due + stream.entries.len() as u64));
        Ok(())
    }
}

impl Drive for Reader {
    fn turn(&mut self, now: Instant) -> usize {
        if self.endpoint.is_none() && !self.is_away && now >= self.retry_at {
            self.connect();
        }
        let mut events = std::mem::take(&mut self.events);
        let work = self.lines.poll(now, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Received { endpoint, slice } if self.endpoint == Some(endpoint) => self.bytes.push(slice),
                Event::Disconnected { endpoint }
                | Event::Broken { endpoint, .. }
                | Event::ConnectFailed { endpoint, .. }
                    if self.endpoint == Some(endpoint) =>
                {
                    self.read();
                    self.forget(now);
                }
                _ => {}
            }
        }
        self.events = events;
        self.read();
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retry = (self.endpoint.is_none() && !self.is_away).then_some(self.retry_at);
        retry.into_iter().chain(self.lines.next_deadline()).min()
    }

    forward!(mut lines: prepare_wait -> bool);

    fn wait_descriptors<'a>(&'a self, _into: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        false
    }
}

/// Samples of each kind that are kept of a gateway.
const MOST: usize = 32;
/// Bytes of each fragment.
const FRONT: usize = 256;

/// One kind of events that are asked for, one after the other.
struct Kind {
    selection: EventSelection,
    asked: Option<Asked>,
    /// Turns until the next one is asked for: more from one to the next, so that samples are of the whole run.
    rests: usize,
    samples: Vec<EventSample>,
}

/// A client that watches a gateway through all of its lives.
pub(super) struct Watcher {
    pub(super) tap: Tap,
    kinds: [Kind; 2],
}

impl Watcher {
    /// A watcher that asks for any event, and for an incomplete one.
    pub(super) fn new(scenario: &Scenario) -> Self {
        let sources = scenario.flows.iter().map(|flow| usize::from(flow.sources.sources)).max();
        let kinds = [false, true].map(|is_incomplete| Kind {
            selection: EventSelection { is_incomplete, ..EventSelection::default() },
            asked: None,
            rests: 0,
            samples: Vec::new(),
        });
        let mut watcher = Self { tap: Tap::new(sources.unwrap_or_default()), kinds };
        watcher.look();
        watcher
    }

    /// Takes the samples that have come, and asks for more.
    pub(super) fn look(&mut self) {
        for kind in self.kinds.iter_mut().filter(|kind| kind.samples.len() < MOST) {
            if let Some(sample) = kind.asked.as_mut().and_then(Asked::take) {
                kind.samples.push(sample);
                (kind.asked, kind.rests) = (None, kind.samples.len());
            }
            kind.rests = kind.rests.saturating_sub(1);
            if kind.asked.is_none() && kind.rests == 0 {
                kind.asked = self.tap.ask(kind.selection, FRONT);
            }
        }
    }
}

/// Whether a sample of a flow has the sources that had come, and says why which are missing.
fn is_as_held(sample: &EventSample, flow: u8, held: &Held) -> bool {
    let there = sample.fragments.iter().map(|fragment| (fragment.entry.source, None));
    let said = there.chain(sample.missing.iter().map(|missing| (missing.source, missing.cause())));
    said.collect::<BTreeMap<_, _>>() == held.found(flow)
        && sample.flags.contains(EventFlags::INCOMPLETE) != held.absent.is_empty()
}
