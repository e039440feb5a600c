//! What one seed means for a system in which sources push: its members, their settings, and what goes wrong.

use super::fault::on_way;
use super::{address, fault};
use crate::campaign::fault::{Fault, FaultKind, Place, Scheduled};
use ropewalk_engine::gateway::Order;
use ropewalk_flow::gateway::{
    Address, DefaultDecision, FarmConfig, FlowConfig, GatewayConfig, Incomplete, Naming, Output, PacketSource,
    ThrottleConfig, headroom,
};
use ropewalk_flow::source::Random;
use ropewalk_flow::source::SizeDistribution;
use ropewalk_flow::source::TimeDistribution;
use ropewalk_flow::source::mep::MepSourceConfig;
use ropewalk_io::packet::simulated::PacketFaults;
use ropewalk_io::simulated::Faults;
use ropewalk_terms::{EventKey, Incarnation, SourceId};
use std::fmt;
use std::time::Duration;

/// Ids of a flow's sources begin at multiples of this.
const IDS: u32 = 1000;
/// Which stream of the seed decides on the system, and which one on its faults.
const SYSTEM_STREAM: u64 = 501;
pub(super) const FAULTS_STREAM: u64 = 502;
const ARCHITECTURE_STREAM: u64 = 503;
pub(super) const MORE_FAULTS_STREAM: u64 = 504;
const LOAD_STREAM: u64 = 505;
const PLACES_STREAM: u64 = 506;
pub(super) const SLOW_READERS_STREAM: u64 = 507;
pub(super) const MASKS_STREAM: u64 = 508;
pub(super) const TIMEOUTS_STREAM: u64 = 509;
/// How long it takes until a trigger acts, where gateways know how often events come.
const LATENCY: Duration = Duration::from_millis(2);

/// One flow: its trigger, its sources, and what gateways do with its events.
#[derive(Clone, PartialEq, Debug)]
pub struct FlowSetting {
    /// The sources. Nothing is lost at them: that is the network's.
    pub sources: MepSourceConfig,
    /// Sets of events that are triggered, unless the run is stopped before.
    pub sets: u64,
    /// Time between two sets.
    pub pace: Duration,
    /// Triggers come at random times.
    pub is_random: bool,
    /// What gateways do with its events; its sources are not listed here.
    pub gateway: FlowConfig,
    /// The number of masked sources, counted from the last: they send, and no set waits for them.
    pub masked: u16,
}

/// One node of the farm.
#[derive(Clone, PartialEq, Debug)]
pub struct NodeSetting {
    /// How long a decision takes.
    pub times: TimeDistribution,
    /// Decisions that are worked on at once.
    pub at_once: usize,
    /// Events that it takes without a decision.
    pub window: u16,
}

/// Room of everybody.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rooms {
    /// Blocks of each flow's packets in a gateway.
    pub blocks: usize,
    /// Bytes of each.
    pub block_bytes: usize,
    /// Packets that are received at once.
    pub batch: usize,
    /// Packets that wait at a receiver.
    pub queue: usize,
}

/// One run: everything follows from this.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Where it was drawn from, and what decides everything that happens by chance.
    pub seed: u64,
    /// Gateways.
    pub gateways: u16,
    /// The nodes of the farm.
    pub nodes: Vec<NodeSetting>,
    /// The share of events that nodes accept.
    pub accept: f64,
    /// The flows; the first one is served first.
    pub flows: Vec<FlowSetting>,
    /// How triggers name gateways.
    pub naming: Naming,
    /// A gateway that is not heard for so long is taken for busy.
    pub trigger_silence: Duration,
    /// The run is stopped then; otherwise it ends when everything was triggered.
    pub stop: Option<Duration>,
    /// How gateways deal with nodes.
    pub farm: FarmConfig,
    /// How often a node says that it is there, and how long it waits for the rest of an event.
    pub node_heartbeat: Duration,
    /// See above.
    pub patience: Duration,
    /// Events are gathered from where they lie, and not copied.
    pub by_reference: bool,
    /// Room of everybody.
    pub rooms: Rooms,
    /// Gateways know how often events come, and leave as much room as comes within this time; otherwise an eighth.
    pub throttle: Option<Duration>,
    /// The network, as far as nothing goes wrong beside it.
    pub network: PacketFaults,
    /// Gateways are told of each flow's last event; otherwise of the end alone.
    pub knows_last: bool,
    /// Nodes come then.
    pub nodes_come: Duration,
    /// How far the clocks of gateways and then of nodes are wrong, in millionths.
    pub drifts: Vec<i32>,
    /// Gateways are input queues of one: they have one address, and ports of their own.
    pub are_queues: bool,
    /// Gateways have a thread for receiving and another one for sending.
    pub threads: bool,
    /// Gateways and nodes reach each other over connections.
    pub connections: bool,
    /// Bytes that the queue of each reader of decisions holds; none without readers.
    pub readers: Option<usize>,
    /// The network of connections, as far as nothing goes wrong beside it.
    pub lines: Faults,
    /// Sources that are masked and unmasked and time-outs that change in mid-run, in the order of time.
    pub orders: Vec<(Duration, Order)>,
    /// What goes wrong.
    pub faults: Vec<Scheduled>,
}

impl FlowSetting {
    /// Ten events of three sources in a set; 24 sets.
    fn quiet(seed: u64, flow: u8) -> Self {
        let size = SizeDistribution::Uniform { least: 8, most: 60 };
        let sources = MepSourceConfig { seed, size, first_event: 1000, ..MepSourceConfig::new(3, 10, 0) };
        Self {
            sources,
            sets: 24,
            pace: Duration::from_millis(1),
            is_random: false,
            gateway: FlowConfig {
                sets: 32,
                assembling: 16,
                timeout: Duration::from_millis(20),
                output: if flow == 0 { Output::Stream } else { Output::Storage },
                decision_timeout: Duration::from_millis(200),
                default_decision: by_default(flow == 0),
                budget: Duration::from_millis(10),
                ..FlowConfig::new(Vec::new(), 10)
            },
            masked: 0,
        }
    }

    fn draw(draw: &mut Random, seed: u64, flow: u8) -> Self {
        let milliseconds = Duration::from_millis;
        let packing = draw.of(&[1, 2, 5, 8]);
        let size = draw.of(&[
            SizeDistribution::Fixed(32),
            SizeDistribution::Uniform { least: 0, most: 100 },
            SizeDistribution::Uniform { least: 8, most: 900 },
        ]);
        let sources = MepSourceConfig {
            seed: seed ^ u64::from(flow) << 40,
            size,
            partition: draw.of(&[0, 7]),
            first_event: draw.of(&[0, 1000, 0xFFFF_FFE0, 0x1_0000_0000]),
            duplicates: draw.of(&[0.0, 0.0, 0.1]),
            reordered: draw.of(&[0.0, 0.0, 0.1]),
            shuffled: draw.one_in(2),
            jitter: draw.of(&[Duration::ZERO, Duration::ZERO, milliseconds(1)]),
            ..MepSourceConfig::new(draw.between(2, 7) as u16, packing, 0)
        };
        let capacity = draw.of(&[4, 8, 16, 64]);
        let timeout = draw.of(&[milliseconds(5), milliseconds(20), milliseconds(60)]);
        let random_output = if draw.one_in(2) { Output::Stream } else { Output::Storage };
        Self {
            sources,
            sets: draw.between(8, 40),
            pace: draw.time(Duration::from_micros(50), milliseconds(6)),
            is_random: draw.one_in(2),
            gateway: FlowConfig {
                sets: capacity,
                assembling: (capacity / draw.of(&[1, 2, 4])).max(1),
                timeout,
                incomplete: draw.of(&[Incomplete::Emit, Incomplete::Emit, Incomplete::Drop]),
                output: if flow == 0 && draw.one_in(2) { Output::Stream } else { random_output },
                decision_timeout: draw.of(&[milliseconds(15), milliseconds(80), milliseconds(400)]),
                default_decision: by_default(draw.one_in(2)),
                budget: draw.of(&[milliseconds(2), milliseconds(50)]),
                ..FlowConfig::new(Vec::new(), packing)
            },
            masked: 0,
        }
    }

    /// The key of a set's first event.
    pub(super) const fn key_of(&self, set: u64) -> EventKey {
        EventKey::new(0, self.sources.first_event + set * self.sources.packing as u64)
    }

    /// The set of an event and its place there; none for an event that is not of the run.
    pub(super) fn place_of(&self, key: EventKey) -> Option<(u64, u16)> {
        let since = key.number().checked_sub(self.sources.first_event).filter(|_| key.resync() == 0)?;
        let packing = u64::from(self.sources.packing);
        let (set, event) = (since / packing, (since % packing) as u16);
        (set < self.sets).then_some((set, event))
    }

    /// Events a second.
    pub(super) fn rate_hz(&self) -> f64 {
        f64::from(self.sources.packing) / self.pace.as_secs_f64()
    }

    /// Sets that must be left when the trigger is asked to stop.
    pub(super) fn headroom(&self, throttle: Option<Duration>) -> u64 {
        let known =
            throttle.map(|latency| headroom(latency, self.rate_hz(), 1.0 / f64::from(self.sources.packing)) + 1);
        known.unwrap_or_else(|| u64::from(self.gateway.sets).div_ceil(8))
    }

    /// Sources that belong to an event, unless they are masked in mid-run.
    pub(super) const fn wanted(&self) -> u16 {
        self.sources.sources - self.masked
    }

    fn config(&self, flow: u8) -> FlowConfig {
        let address = |index: u16| Address::of(*address::source(flow, index).ip());
        let source = |index: u16| PacketSource { id: source_id(flow, index), address: address(index) };
        FlowConfig {
            sources: (0..self.wanted()).map(source).collect(),
            masked: (self.wanted()..self.sources.sources).map(address).collect(),
            partition: self.sources.partition,
            first_event: self.sources.first_event,
            ..self.gateway.clone()
        }
    }
}

/// What is decided where no node decides in time.
fn by_default(accept: bool) -> DefaultDecision {
    DefaultDecision { accept, word: 0x40 + u32::from(accept) }
}

/// The id of a source.
pub(super) fn source_id(flow: u8, source: u16) -> SourceId {
    SourceId(IDS * u32::from(flow) + u32::from(source))
}

/// The flow and the place of a source in it.
pub(super) const fn source_of(id: SourceId) -> (u8, u16) {
    ((id.0 / IDS) as u8, (id.0 % IDS) as u16)
}

/// How long triggers of these flows come.
fn triggering(flows: &[FlowSetting]) -> Duration {
    flows.iter().map(|flow| flow.pace * flow.sets as u32).max().unwrap_or_default()
}

impl Scenario {
    /// Two flows, two gateways and two nodes, and nothing goes wrong.
    pub fn quiet(seed: u64) -> Self {
        let milliseconds = Duration::from_millis;
        let times = TimeDistribution::Uniform { least: Duration::from_micros(100), most: milliseconds(1) };
        Self {
            seed,
            gateways: 2,
            nodes: vec![NodeSetting { times, at_once: 16, window: 64 }; 2],
            accept: 0.5,
            flows: vec![FlowSetting::quiet(seed, 0), FlowSetting::quiet(seed, 1)],
            naming: Naming::RoundRobin,
            trigger_silence: milliseconds(100),
            stop: None,
            farm: FarmConfig { silence: milliseconds(100), heartbeat: milliseconds(10), ..FarmConfig::new(2) },
            node_heartbeat: milliseconds(10),
            patience: milliseconds(10),
            by_reference: false,
            rooms: Rooms { blocks: 32, block_bytes: 64 << 10, batch: 64, queue: 1024 },
            throttle: None,
            network: PacketFaults::default(),
            knows_last: true,
            nodes_come: Duration::ZERO,
            drifts: Vec::new(),
            are_queues: false,
            threads: false,
            connections: false,
            readers: None,
            lines: Faults::default(),
            orders: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// The run of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut scenario = Self::draw_plain(seed);
        scenario.draw_architecture();
        let more = fault::draw_more(&scenario, scenario.nodes_come, scenario.triggering());
        let slow = fault::draw_slow_readers(&scenario, scenario.nodes_come, scenario.triggering());
        scenario.faults.extend(more.into_iter().chain(slow));
        scenario.draw_load();
        scenario.faults.sort_by_key(|scheduled| scheduled.at);
        scenario.orders = fault::draw_masks(&scenario, scenario.nodes_come, scenario.triggering());
        let timeouts = fault::draw_timeouts(&scenario, scenario.nodes_come, scenario.triggering());
        scenario.orders.extend(timeouts);
        scenario.orders.sort_by_key(|(at, _)| *at);
        scenario
    }

    /// The same with one thread in each gateway that lives for ever, datagrams alone, no readers, and no masks.
    pub fn draw_plain(seed: u64) -> Self {
        let mut draw = Random::new(seed, SYSTEM_STREAM);
        let milliseconds = Duration::from_millis;
        let flows = 1 + u8::from(draw.one_in(2));
        let flows: Vec<_> = (0..flows).map(|flow| FlowSetting::draw(&mut draw, seed, flow)).collect();
        let (gateways, nodes) = (draw.between(1, 3) as u16, draw.between(1, 4));
        let span = triggering(&flows);
        let mut scenario = Self {
            gateways,
            nodes: (0..nodes).map(|_| Self::draw_node(&mut draw)).collect(),
            accept: draw.of(&[0.05, 0.5, 0.9]),
            naming: draw.of(&[Naming::RoundRobin, Naming::Request]),
            trigger_silence: draw.of(&[milliseconds(30), milliseconds(100), milliseconds(500)]),
            stop: draw.one_in(6).then(|| span.mul_f64(draw.between(0, 12) as f64 / 10.0)),
            farm: FarmConfig {
                largest_push: draw.of(&[100, 300, 1472, 9000]),
                most_outstanding: draw.of(&[2, 16, 64, 256]),
                silence: draw.of(&[milliseconds(30), milliseconds(120)]),
                heartbeat: draw.of(&[milliseconds(3), milliseconds(12)]),
                ..FarmConfig::new(nodes as u16)
            },
            node_heartbeat: draw.of(&[milliseconds(4), milliseconds(10)]),
            patience: draw.of(&[milliseconds(2), milliseconds(15)]),
            by_reference: draw.one_in(2),
            rooms: Self::draw_rooms(&mut draw),
            throttle: draw.one_in(2).then_some(LATENCY),
            network: Self::draw_network(&mut draw),
            knows_last: !draw.one_in(4),
            nodes_come: draw.of(&[Duration::ZERO, milliseconds(3), milliseconds(25)]),
            drifts: (0..u64::from(gateways) + nodes).map(|_| draw.of(&[0, 0, 50, -50, 20_000, -20_000])).collect(),
            flows,
            ..Self::quiet(seed)
        };
        scenario.make_room();
        scenario.faults = fault::draw(&scenario, scenario.nodes_come, span);
        scenario
    }

    /// Halves on threads of their own, connections, readers, masked sources: from a stream of its own.
    fn draw_architecture(&mut self) {
        let mut draw = Random::new(self.seed, ARCHITECTURE_STREAM);
        (self.threads, self.connections) = (draw.one_in(2), draw.one_in(2));
        self.readers = draw.of(&[None, Some(400), Some(64 << 10)]);
        let usual = draw.of(&[Faults::default(), Faults::bumpy()]);
        let window = draw.of(&[1 << 10, 64 << 10]);
        self.lines = Faults { window, connect_timeout: Duration::from_millis(50), ..usual };
        for flow in &mut self.flows {
            flow.masked = u16::from(flow.sources.sources > 2 && draw.one_in(6));
        }
        self.are_queues = Random::new(self.seed, PLACES_STREAM).one_in(3);
    }

    /// In some runs in which triggers hear gateways and nothing is lost on its way, gateways cannot keep up, and what waits in front
    /// of them has little room: from a stream of its own.
    fn draw_load(&mut self) {
        let mut draw = Random::new(self.seed, LOAD_STREAM);
        if !draw.one_in(2) || !self.is_heard() {
            return;
        }
        self.rooms = Rooms { queue: draw.of(&[64, 128]), batch: draw.of(&[1, 2]), ..self.rooms };
        self.throttle = Some(LATENCY);
        for flow in &mut self.flows {
            (flow.sets, flow.is_random) = (draw.between(100, 200), draw.one_in(4));
        }
        self.make_room();
        self.faults.extend(fault::draw_load(&mut draw, self, self.nodes_come, self.triggering()));
    }

    /// Whether what gateways say comes to triggers in time, and packets come to gateways, with any other process away.
    pub(super) fn is_heard(&self) -> bool {
        let is_harmless = |fault: &Fault| {
            let is_on_way = matches!(on_way(fault.kind), Some((0 | 3, _)));
            let kinds = [FaultKind::TriggerSleeps, FaultKind::QueueShort, FaultKind::ClockDrift];
            !is_on_way && !kinds.contains(&fault.kind)
        };
        self.network.loss == 0.0 && self.faults.iter().all(|scheduled| is_harmless(&scheduled.fault))
    }

    /// A gateway that must leave more room than it has would never take anything.
    fn make_room(&mut self) {
        for flow in &mut self.flows {
            flow.gateway.sets = flow.gateway.sets.max(flow.headroom(self.throttle) as u16 + 2);
        }
    }

    /// Readers of decisions: one of each gateway and each flow whose decisions leave in order.
    pub(super) fn reader_places(&self) -> Vec<(u16, u8)> {
        let streams = (0..).zip(&self.flows).filter(|(_, flow)| flow.gateway.output == Output::Stream);
        let flows: Vec<u8> = streams.filter(|_| self.readers.is_some()).map(|(flow, _)| flow).collect();
        (0..self.gateways).flat_map(|gateway| flows.iter().map(move |&flow| (gateway, flow))).collect()
    }

    fn draw_node(draw: &mut Random) -> NodeSetting {
        let microseconds = Duration::from_micros;
        let times = draw.of(&[
            TimeDistribution::Uniform { least: microseconds(50), most: microseconds(500) },
            TimeDistribution::Exponential { mean: microseconds(1000) },
            TimeDistribution::Uniform { least: microseconds(100), most: microseconds(40_000) },
        ]);
        NodeSetting { times, at_once: draw.of(&[1, 4, 64]), window: draw.of(&[1, 8, 64, 256]) }
    }

    fn draw_rooms(draw: &mut Random) -> Rooms {
        let is_tiny = draw.one_in(6);
        Rooms {
            blocks: if is_tiny { draw.between(2, 4) as usize } else { 64 },
            block_bytes: if is_tiny { 16 << 10 } else { 32 << 10 },
            batch: draw.of(&[4, 16, 64]),
            queue: if draw.one_in(6) { 24 } else { 2048 },
        }
    }

    fn draw_network(draw: &mut Random) -> PacketFaults {
        let (latency, held_up) = (Duration::from_micros(draw.between(5, 300)), Duration::from_millis(2));
        let steady = PacketFaults { latency, held_up, ..PacketFaults::default() };
        let (loss, duplication, disorder) = (0.02, 0.02, 0.1);
        draw.of(&[steady, steady, PacketFaults { loss, duplication, disorder, ..steady }])
    }

    /// How long triggers come once there are nodes, unless they are stopped.
    fn triggering(&self) -> Duration {
        triggering(&self.flows)
    }

    /// How long triggers come.
    pub(super) fn span(&self) -> Duration {
        self.triggering().max(self.stop.unwrap_or_default()) + self.nodes_come
    }

    /// What a gateway's machine is told.
    pub(super) fn gateway_config(&self, gateway: u16, life: u64) -> GatewayConfig {
        let flows: Vec<FlowConfig> = (0..).zip(&self.flows).map(|(index, flow)| flow.config(index)).collect();
        let throttle = match self.throttle {
            None => ThrottleConfig::default(),
            Some(latency) => {
                let event_rates_hz = self.flows.iter().map(FlowSetting::rate_hz).collect();
                ThrottleConfig { latency, silence: self.trigger_silence, event_rates_hz, ..ThrottleConfig::default() }
            }
        };
        GatewayConfig { throttle, incarnation: Incarnation(life), ..GatewayConfig::new(gateway, flows, self.farm) }
    }

    /// The drift of a member's clock.
    pub(super) fn drift(&self, place: Place) -> i32 {
        let index = match place {
            Place::Gateway(gateway) | Place::Sending(gateway) => usize::from(gateway),
            Place::Node(node) => usize::from(self.gateways + node),
            _ => return 0,
        };
        self.drifts.get(index).copied().unwrap_or(0)
    }
}

impl fmt::Display for Scenario {
    /// What is needed to understand a schedule of faults, which follows line by line.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, gateways, naming, stop, farm, rooms, throttle, readers, .. } = self;
        let at = if self.are_queues { " at one address" } else { "" };
        let of = if self.threads { " of two threads" } else { "" };
        let over = if self.connections { " over connections" } else { "" };
        writeln!(
            out,
            "seed {seed}: {gateways} gateways{at}{of}, {} nodes{over}, named by {naming:?}, stopped {stop:?}, {farm:?}, \
             {rooms:?}, throttle {throttle:?}, readers {readers:?}",
            self.nodes.len(),
        )?;
        for FlowSetting { sources: MepSourceConfig { sources, packing, .. }, masked, sets, pace, gateway, .. } in
            &self.flows
        {
            writeln!(
                out,
                "  flow: {sources} sources ({masked} masked), {sets} sets of {packing} events every {pace:?}, {gateway:?}"
            )?;
        }
        self.orders.iter().try_for_each(|(at, order)| writeln!(out, "  at {at:?}: {order:?}"))?;
        self.faults.iter().try_for_each(|fault| writeln!(out, "  {fault}"))
    }
}
