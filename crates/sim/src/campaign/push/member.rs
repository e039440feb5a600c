//! A member of a push system: its drive, and how that is wired to the simulated network and disk.
//!
//! A gateway is one drive, or two halves that sleep and are woken by each other.

use super::address;
use super::readers::Reader;
use super::scenario::source_id;
use super::wires::{Inlet, Line, Outlet, Tampering};
use super::world::World;
use crate::campaign::cluster::{LeastWait, Process};
use crate::campaign::endpoints::{Endpoints, Surroundings};
use crate::campaign::fault::Place;
use crate::campaign::machines::pool;
use crate::campaign::node::{NodeClock, disk_of};
use ropewalk_engine::gateway::{
    Callers, Connections, Datagrams, DecisionReaders, EmulatedFilterConfig, FarmNodeDrive, FarmNodeDriveConfig,
    GatewayDrive, GatewayDriveConfig, GatewayReport, Gathering, Link, NodeFilterConfig, Notice, PacketSourceDrive,
    PacketSourceDriveConfig, ReceivingDrive, ReceivingParts, SendingDrive, SendingParts, halves,
};
use ropewalk_engine::{Drive, Storage, StorageConfig};
use ropewalk_flow::filter::Streams;
use ropewalk_flow::gateway::{FarmNodeConfig, Naming, Output, Receiver, Sender, TriggerConfig};
use ropewalk_flow::source::TriggerRate;
use ropewalk_io::disk::SimulatedDisk;
use ropewalk_io::packet::{Flow, MemoryInUse, ReceiveConfig, SendConfig};
use ropewalk_io::simulated::SimulatedConfig;
use ropewalk_memory::{Pool, Staging};
use ropewalk_terms::{Incarnation, Instant, NodeId, RunNumber, Utc};
use ropewalk_wire::gateway::Copying;
use ropewalk_wire::run_file::{SourceEntry, SourceFormat};
use std::net::SocketAddrV4;
use std::os::fd::BorrowedFd;
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
type WholeDrive = GatewayDrive<Inlet, FarmLink, Outlet>;
/// The half that sends.
pub(super) type SendingMachine = Half<SendingDrive<FarmLink, Outlet>>;
/// Who reads a flow's decisions.
type Readers = Option<Box<dyn DecisionReaders + Send>>;

/// A half that says whether something has woken it.
pub(super) trait Woken: Drive {
    /// Whether something would have ended its thread's sleep.
    fn is_woken(&mut self) -> bool;
}

impl Woken for ReceivingDrive<Inlet, Outlet> {
    fn is_woken(&mut self) -> bool {
        Self::is_woken(self)
    }
}

impl Woken for SendingDrive<FarmLink, Outlet> {
    fn is_woken(&mut self) -> bool {
        Self::is_woken(self)
    }
}

/// A half of a gateway: once it sleeps only what wakes its thread gives it a turn.
pub(super) struct Half<D> {
    pub(super) drive: D,
    is_asleep: bool,
}

impl<D: Woken> Half<D> {
    pub(super) const fn new(drive: D) -> Self {
        Self { drive, is_asleep: false }
    }

    /// Its thread would sleep.
    pub(super) fn is_asleep(&mut self) -> bool {
        self.is_asleep && !self.drive.is_woken()
    }

    /// Asleep, though there is something for it to do.
    pub(super) fn sleeps_over_work(&mut self) -> bool {
        self.is_asleep && !self.drive.is_done() && !self.drive.is_woken() && !self.drive.prepare_wait()
    }
}

impl<D: Woken> Drive for Half<D> {
    fn turn(&mut self, now: Instant) -> usize {
        self.is_asleep = false;
        self.drive.turn(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.drive.next_deadline()
    }

    fn prepare_wait(&mut self) -> bool {
        if self.is_asleep {
            return !self.drive.is_woken();
        }
        self.is_asleep = self.drive.prepare_wait();
        self.is_asleep
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.drive.wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.drive.is_done()
    }
}

/// What takes packets and speaks for the gateway.
pub(super) enum GatewayMachine {
    /// All of it.
    Whole(Box<WholeDrive>),
    /// The half that receives; the other one has its own turns.
    Receiving(Box<Half<ReceivingDrive<Inlet, Outlet>>>),
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
    pub(super) fn half(&mut self) -> Option<&mut Half<ReceivingDrive<Inlet, Outlet>>> {
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

impl Drive for GatewayMachine {
    fn turn(&mut self, now: Instant) -> usize {
        self.drive_mut().turn(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.drive().next_deadline()
    }

    fn prepare_wait(&mut self) -> bool {
        self.drive_mut().prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.drive().wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.drive().is_done()
    }
}

/// Drives on simulated sockets and disks.
pub(super) type NodeMachine = FarmNodeDrive<FarmLink>;
pub(super) type TriggerMachine = PacketSourceDrive<Inlet, Outlet>;

/// How long a gateway waits at the end for packets in flight.
const DRAIN: Duration = Duration::from_secs(10);
/// Bytes that the queue of a connection between gateway and node holds.
const SEND_QUEUE: usize = 64 << 10;
/// The longest packet that a member sends.
const LARGEST: usize = 16 << 10;
/// Above this share of held memory, in percent, packets are copied out of it.
const EVACUATE_ABOVE: usize = 75;

impl World {
    fn inlet(&self, place: Place, clock: &NodeClock, at: SocketAddrV4, pool: Pool) -> Inlet {
        let batch = self.scenario.rooms.batch;
        let config = ReceiveConfig { batch, largest: LARGEST, ..ReceiveConfig::new(Flow::Udp, at) };
        let inner = self.network.receiver(config, pool).expect("no other receiver has this address");
        Inlet::new(inner, place, clock.clone(), self.referee.clone())
    }

    fn outlet(&self, place: Place, clock: &NodeClock, from: SocketAddrV4) -> Outlet {
        let staging = Staging::new(pool("sends", LARGEST, 8));
        let inner = self.network.sender(SendConfig::new(Flow::Udp, from), staging);
        Outlet::new(inner, place, clock.clone(), self.referee.clone())
    }

    fn control(&self, place: Place, clock: &NodeClock, at: SocketAddrV4) -> Inlet {
        self.inlet(place, clock, at, pool("hears", LARGEST, 16))
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
            return Box::new(Datagrams { receiver, sender: self.outlet(place, clock, from) });
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
        Box::new(Line::new(connections, place, at, clock.clone(), self.referee.clone()))
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
    pub(super) fn gateway(
        &self,
        gateway: u16,
        life: u64,
        clock: &NodeClock,
    ) -> (GatewayMachine, Option<SendingMachine>) {
        let (config, receiving, sending) = self.gateway_parts(gateway, life, clock);
        let now = clock.now();
        if self.scenario.threads {
            let (receiving, mut sending) =
                halves(config, receiving, sending).expect("scenarios are drawn so that they can be");
            sending.begin(now);
            return (GatewayMachine::Receiving(Box::new(Half::new(receiving))), Some(Half::new(sending)));
        }
        let mut drive = GatewayDrive::new(config, receiving, sending).expect("scenarios are drawn so that they can be");
        drive.begin(now);
        (GatewayMachine::Whole(Box::new(drive)), None)
    }

    fn gateway_parts(
        &self,
        gateway: u16,
        life: u64,
        clock: &NodeClock,
    ) -> (GatewayDriveConfig, ReceivingParts<Inlet, Outlet>, SendingParts<FarmLink, Outlet>) {
        let (scenario, place) = (&self.scenario, Place::Gateway(gateway));
        let rooms = scenario.rooms;
        let flows = 0..scenario.flows.len() as u8;
        let input = |flow| {
            let memory = pool("packets", rooms.block_bytes, rooms.blocks);
            self.inlet(place, clock, self.scenario.address(gateway, address::input(flow)), memory)
        };
        let gates = self.gates.iter().map(|gate| scenario.knows_last.then(|| Arc::clone(gate))).collect();
        let by_copy = Gathering::Copy(if scenario.seed.is_multiple_of(2) { Copying::Short } else { Copying::Library });
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
        let farm = self.link(
            place,
            clock,
            self.scenario.address(gateway, address::CONTROL),
            self.scenario.address(gateway, address::VOICE),
        );
        let triggers = self.outlet(place, clock, self.scenario.address(gateway, address::VOICE));
        let receiving = ReceivingParts {
            inputs: flows.map(input).collect(),
            triggers: self.outlet(place, clock, self.scenario.address(gateway, address::VOICE)),
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
            sink: Some(Box::new(storage)),
            streams: Streams::everything(),
            heads,
            tap,
            lumisections: None,
            output: None,
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
        let senders: Vec<Outlet> =
            sources.map(|source| self.outlet(place, clock, address::source(flow, source))).collect();
        let tampering = senders.iter().map(Outlet::tampering).collect();
        (PacketSourceDrive::new(config, self.control(place, clock, address::trigger(flow)), senders), tampering)
    }
}
