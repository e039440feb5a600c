//! How each member's drive is wired to the simulated network and disk.

use super::super::clock::NodeClock;
use super::super::disk::NodeDisk;
use super::address;
use super::member::Place;
use super::referee::Shared;
use super::scenario::{Scenario, source_id};
use super::wires::{Inlet, Outlet, Tampering};
use ropewalk_flow::gateway::{FarmNodeConfig, Naming, Output, TriggerConfig};
use ropewalk_flow::source::{TriggerGate, TriggerRate};
use ropewalk_io::disk::SimulatedStorage;
use ropewalk_io::packet::simulated::PacketNetwork;
use ropewalk_io::packet::{Flow, ReceiveConfig, SendConfig};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_node::drive::gateway::{
    Datagrams, FarmNodeDrive, FarmNodeDriveConfig, FilterConfig, GatewayDrive, GatewayDriveConfig, Gathering,
    PacketSourceDrive, PacketSourceDriveConfig, ReceivingParts, SendingParts,
};
use ropewalk_node::drive::{Storage, StorageConfig};
use ropewalk_terms::{AcknowledgementLevel, Incarnation, NodeId, RunNumber, Utc};
use ropewalk_wire::gateway::Copying;
use ropewalk_wire::run_file::{SourceEntry, SourceFormat};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Drives on simulated sockets and disks.
pub(super) type GatewayMachine = GatewayDrive<Inlet, Datagrams<Inlet, Outlet>, Outlet, NodeDisk>;
pub(super) type NodeMachine = FarmNodeDrive<Datagrams<Inlet, Outlet>>;
pub(super) type TriggerMachine = PacketSourceDrive<Inlet, Outlet>;

/// How long a gateway waits at the end for what is on its way.
const DRAIN: Duration = Duration::from_secs(10);
/// The longest packet of anybody.
const LARGEST: usize = 16 << 10;
/// Above this share of held memory, in percent, packets are copied out of it.
const EVACUATE_ABOVE: usize = 75;

/// What drives are wired to.
pub(super) struct Site<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) network: &'a PacketNetwork,
    /// By gateway.
    pub(super) storages: &'a [SimulatedStorage],
    /// By flow.
    pub(super) gates: &'a [Arc<TriggerGate>],
    pub(super) is_over: &'a Arc<AtomicBool>,
    pub(super) referee: &'a Shared,
}

fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new_untouched(PoolConfig::heap(name, block, blocks)).expect("there is memory for a small pool")
}

impl Site<'_> {
    fn inlet(&self, place: Place, clock: &NodeClock, at: SocketAddrV4, pool: Pool) -> Inlet {
        let batch = self.scenario.rooms.batch;
        let config = ReceiveConfig { batch, largest: LARGEST, ..ReceiveConfig::new(Flow::Udp, at) };
        let inner = self.network.receiver(config, pool).expect("nobody else receives there");
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

    /// A gateway.
    pub(super) fn gateway(&self, gateway: u16, clock: &NodeClock) -> GatewayMachine {
        let (scenario, place) = (self.scenario, Place::Gateway(gateway));
        let rooms = scenario.rooms;
        let flows = 0..scenario.flows.len() as u8;
        let input = |flow| {
            let memory = pool("packets", rooms.block_bytes, rooms.blocks);
            self.inlet(place, clock, address::input(gateway, flow), memory)
        };
        let gates = self.gates.iter().map(|gate| scenario.knows_last.then(|| Arc::clone(gate))).collect();
        let by_copy = Gathering::Copy(if scenario.seed.is_multiple_of(2) { Copying::Short } else { Copying::Library });
        let config = GatewayDriveConfig {
            machine: scenario.gateway_config(gateway),
            gathering: if scenario.farm.by_reference { Gathering::Iovec } else { by_copy },
            triggers: flows.clone().map(|flow| Some(address::trigger(flow))).collect(),
            requests: scenario.naming == Naming::Request,
            run: RunNumber(1),
            epoch: clock.utc(),
            gates,
            is_over: Arc::clone(self.is_over),
            drain: DRAIN,
            batch: rooms.batch,
            memory: (rooms.blocks * rooms.block_bytes) as u64,
            evacuate_above: EVACUATE_ABOVE,
        };
        let storage = self.storage(gateway, clock);
        let receiver = self.control(place, clock, address::control(gateway));
        let farm = Datagrams { receiver, sender: self.outlet(place, clock, address::voice(gateway)) };
        let triggers = self.outlet(place, clock, address::voice(gateway));
        let receiving = ReceivingParts {
            inputs: flows.map(input).collect(),
            triggers: self.outlet(place, clock, address::voice(gateway)),
            board: None,
            evacuated: Staging::new(pool("moved", LARGEST, 64)),
        };
        let heads = Staging::new(pool("heads", LARGEST, 64));
        let sending = SendingParts { farm, triggers, readers: Vec::new(), storage: Some(storage), heads };
        let drive = GatewayDrive::new(config, receiving, sending);
        let mut drive = drive.expect("scenarios are drawn so that they can be");
        drive.begin(clock.now());
        drive
    }

    fn storage(&self, gateway: u16, clock: &NodeClock) -> Storage<NodeDisk> {
        let stored = (0..).zip(&self.scenario.flows).filter(|(_, flow)| flow.output == Output::Storage);
        let entry = |(flow, source)| {
            let id = source_id(flow, source);
            SourceEntry { id, format: SourceFormat::BANKS, name: format!("source-{id}") }
        };
        let sources = stored.flat_map(|(flow, setting)| (0..setting.sources.sources).map(move |source| (flow, source)));
        let config = StorageConfig {
            writer: NodeId::builder(gateway),
            epoch: Utc(clock.utc().0),
            output: "/data".into(),
            sources: sources.map(entry).collect(),
            level: AcknowledgementLevel::Written,
            sync_batches: false,
            segment_bytes: 64 << 10,
            segment_events: 50,
            segment_time: None,
            keep: None,
            give_up_after: DRAIN / 2,
        };
        let disk = NodeDisk::new(&self.storages[usize::from(gateway)], clock);
        Storage::new(disk, config, Staging::new(pool("records", 64 << 10, 16)))
    }

    /// A life of a node.
    pub(super) fn node(&self, node: u16, life: u64, clock: &NodeClock) -> NodeMachine {
        let (scenario, place) = (self.scenario, Place::Node(node));
        let setting = &scenario.nodes[usize::from(node)];
        let machine = FarmNodeConfig {
            node,
            incarnation: Incarnation(life),
            gateway: 0,
            window: setting.window,
            heartbeat: scenario.farm.node_heartbeat,
            patience: scenario.farm.patience,
            largest_event: 1 << 20,
        };
        let config = FarmNodeDriveConfig {
            machine,
            gateways: (0..scenario.gateways).map(address::control).collect(),
            filter: FilterConfig { times: setting.times, at_once: setting.at_once, accept: scenario.accept },
            seed: scenario.seed ^ u64::from(node) << 32 ^ life << 48,
            outages: Vec::new(),
            is_over: Arc::default(),
        };
        let at = address::node(node);
        let link = Datagrams { receiver: self.control(place, clock, at), sender: self.outlet(place, clock, at) };
        FarmNodeDrive::new(config, link)
    }

    /// The trigger of a flow and its sources, and what may be done to the packets of each.
    pub(super) fn trigger(&self, flow: u8, clock: &NodeClock) -> (TriggerMachine, Vec<Tampering>) {
        let (scenario, place) = (self.scenario, Place::Trigger(flow));
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
            gateways: (0..scenario.gateways).map(|gateway| address::input(gateway, flow)).collect(),
            gate: Arc::clone(&self.gates[usize::from(flow)]),
        };
        let sources = 0..setting.sources.sources;
        let senders: Vec<Outlet> =
            sources.map(|source| self.outlet(place, clock, address::source(flow, source))).collect();
        let tampering = senders.iter().map(Outlet::tampering).collect();
        (PacketSourceDrive::new(config, self.control(place, clock, address::trigger(flow)), senders), tampering)
    }
}
