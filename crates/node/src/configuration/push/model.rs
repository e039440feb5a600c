//! What stands in the configuration of a push system. `docs/gateway.md` describes the same.

use super::address::{Addresses, ListenAddress};
use crate::configuration::{
    AlarmSection, AlarmsSection, ControlSection, HistogramSection, IncompleteChoice, LogbookSection, MonitorSection,
    RestartChoice, SyncChoice, ThenChoice, ThreadRule, Written,
};
use crate::quantity::{Bandwidth, Bytes, ChunkBytes, Rate, SizeDistribution, Time, Times};
use ropewalk_flow::gateway::Address;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// A whole push system: flows of multi-event packets, the gateways that build them, the farm behind those.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PushConfiguration {
    /// The version of this form: 1.
    pub version: u32,
    /// The run: when it ends, what is written.
    #[serde(default)]
    pub run: PushRunSection,
    /// The flows; gateways serve the first one first.
    pub flow: Vec<FlowSection>,
    /// The gateways.
    pub gateway: Vec<GatewaySection>,
    /// The nodes behind the gateways.
    #[serde(default)]
    pub farm: FarmSection,
    /// Where threads run: the first rule that a thread's name matches.
    #[serde(default)]
    pub thread: Vec<ThreadRule>,
    /// The emulated trigger, which says which gateway the next packets go to.
    #[serde(default)]
    pub trigger: TriggerSection,
    /// Alarms of the run's own.
    #[serde(default)]
    pub alarm: Vec<AlarmSection>,
    /// What is counted of every fragment of some sources.
    #[serde(default)]
    pub histogram: Vec<HistogramSection>,
    /// Who hears of alarms.
    #[serde(default)]
    pub alarms: AlarmsSection,
    /// Who has what is written into the logbook.
    #[serde(default)]
    pub logbook: LogbookSection,
    /// What runs are compared with.
    #[serde(default)]
    pub monitor: MonitorSection,
    /// How run control is served.
    #[serde(default)]
    pub control: ControlSection,
    /// What it says, in one form.
    #[serde(skip)]
    pub written: Written,
    /// The file that it was read from, if it was.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// The run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PushRunSection {
    /// Where run directories are made.
    pub output: PathBuf,
    /// Stop after this time.
    pub duration: Option<Time>,
    /// Stop after exactly this many events of the first flow.
    pub events: Option<u64>,
    /// Stop when so many bytes of packets have come.
    pub bytes: Option<Bytes>,
    /// What follows a run that ends by itself.
    pub then: Option<ThenChoice>,
    /// What has to be said of a run when it is started.
    pub required_fields: Vec<String>,
    /// Write accepted events of flows whose output is storage to run files.
    pub write: bool,
    /// Keep only the newest run files up to this size; older ones of the run are deleted, counted and named.
    pub keep: Option<Bytes>,
    /// When files are synced to the disk.
    pub sync: SyncChoice,
    /// A run file is closed at this size.
    pub segment_bytes: Bytes,
    /// How long the run waits at its end for packets, decisions and files that are still on their way.
    pub drain: Time,
    /// What happens when a source starts its numbering again in mid-run.
    pub on_restart: RestartChoice,
}

impl Default for PushRunSection {
    fn default() -> Self {
        Self {
            output: PathBuf::from("."),
            duration: None,
            events: None,
            bytes: None,
            then: None,
            required_fields: Vec::new(),
            write: true,
            keep: None,
            sync: SyncChoice::default(),
            segment_bytes: Bytes(512 << 20),
            drain: Time(Duration::from_secs(5)),
            on_restart: RestartChoice::default(),
        }
    }
}

/// A flow: events whose fragments come from the same sources, so many in a packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowSection {
    /// Its name.
    pub name: String,
    /// Its sources, in the order in which their banks stand in an event.
    pub sources: SourcesSection,
    /// Events in a packet.
    pub packing: u16,
    /// The partition that its packets belong to.
    #[serde(default)]
    pub partition: u32,
    /// The number of the run's first event.
    #[serde(default)]
    pub first_event: u64,
    /// How long a set of events waits for its packets.
    #[serde(default = "timeout")]
    pub timeout: Time,
    /// The protocol number of its packets, which then lie straight in IP's, without ports; UDP where it is not given.
    pub protocol: Option<u8>,
    /// What becomes of events of which something is missing.
    #[serde(default)]
    pub incomplete: IncompleteChoice,
    /// Where the decisions on its events lead.
    #[serde(default)]
    pub output: OutputChoice,
    /// How long a set waits for the decisions on its events.
    #[serde(default = "decision_timeout")]
    pub decision_timeout: Time,
    /// And what is decided then.
    #[serde(default)]
    pub default_decision: DefaultChoice,
    /// Within this time from an event's first packet its decision should be there; how many were is counted.
    #[serde(default = "budget")]
    pub budget: Time,
    /// Sets of events that a gateway holds at once: in assembly, waiting for nodes, waiting for decisions.
    #[serde(default = "sets")]
    pub sets: u16,
    /// Sets that it has in assembly at once; one more closes the oldest.
    #[serde(default = "assembling")]
    pub assembling: u16,
    /// The longest packet, in bytes of UDP's or IP's payload: so much room is set aside for each.
    #[serde(default = "largest_packet")]
    pub largest_packet: Bytes,
    /// An emulator takes the place of its sources.
    pub emulate: Option<EmulateFlow>,
}

/// The sources of a flow.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourcesSection {
    /// How many there are.
    pub count: u16,
    /// The id of the first one; the next ones have the ids behind it.
    #[serde(default)]
    pub first: u32,
    /// Where they send from.
    pub address: Addresses,
    /// The ids of those that are not wanted: no event waits for them, and what they send is counted and let go.
    #[serde(default)]
    pub masked: Vec<u32>,
}

impl SourcesSection {
    /// Id and address of each source that is wanted, or of each that is masked.
    pub(crate) fn entries(&self, masked: bool) -> impl Iterator<Item = (u32, Address)> + '_ {
        let all = (0..u32::from(self.count)).filter_map(|number| Some((self.first + number, self.address.of(number)?)));
        all.filter(move |(id, _)| self.masked.contains(id) == masked)
    }
}

/// Where decisions lead.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputChoice {
    /// They leave in the order of events, to whoever listens for them (LHCb's first level).
    Stream,
    /// Accepted events are written to run files (LHCb's high-level trigger).
    #[default]
    Storage,
}

/// A decision that nobody made.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DefaultChoice {
    /// The event is wanted.
    Accept,
    /// It is not.
    #[default]
    Reject,
}

/// Emulated sources of a flow.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmulateFlow {
    /// How large the banks of a fragment are, their headers left out.
    pub fragment_size: ChunkBytes,
    /// How often events come; as fast as it goes where it is not given.
    pub rate: Option<Rate>,
    /// The share of packets that are lost on purpose.
    pub loss: f64,
    /// The share of packets that are sent twice.
    pub duplicates: f64,
    /// The share of packets that are sent behind later ones.
    pub reordered: f64,
    /// A packet is sent up to so much later than the trigger.
    pub jitter: Time,
    /// Where chance begins.
    pub seed: u64,
}

impl Default for EmulateFlow {
    fn default() -> Self {
        Self {
            fragment_size: ChunkBytes(SizeDistribution::Fixed(32)),
            rate: None,
            loss: 0.0,
            duplicates: 0.0,
            reordered: 0.0,
            jitter: Time(Duration::ZERO),
            seed: 1,
        }
    }
}

/// A gateway.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatewaySection {
    /// Its name.
    pub name: String,
    /// Where the packets of each flow come in, by the flow's name.
    pub listen: BTreeMap<String, ListenAddress>,
    /// Where nodes and the trigger reach it.
    #[serde(default = "any_port")]
    pub control: ListenAddress,
    /// Its input queues, each with threads of its own: addressees of their own for trigger and nodes, with the ports behind
    /// the given ones (or the addresses, where packets have no ports).
    #[serde(default = "one")]
    pub queues: u16,
    /// How the work of an input queue is divided among threads.
    #[serde(default)]
    pub architecture: Architecture,
    /// The network card whose rings are used, where any are.
    pub interface: Option<String>,
    /// Where the program runs that picks packets for `af_xdp`.
    #[serde(default)]
    pub xdp: XdpChoice,
    /// How packets are received.
    #[serde(default)]
    pub receive: ReceiveChoice,
    /// How events are sent.
    #[serde(default)]
    pub send: SendChoice,
    /// How an event is put together for sending.
    #[serde(default)]
    pub gather: Gathering,
    /// Memory that packets are received into.
    #[serde(default = "memory")]
    pub memory: Bytes,
    /// How much may wait in the kernel for each socket, as the kernel counts it.
    #[serde(default = "receive_buffer")]
    pub receive_buffer: Bytes,
    /// When it asks for fewer triggers.
    #[serde(default)]
    pub throttle: ThrottleSection,
    /// Where readers of a flow's decisions connect, by the flow's name; its output must be the stream.
    #[serde(default)]
    pub decisions: BTreeMap<String, ListenAddress>,
}

/// How the work of an input queue is divided among threads (paper 1, Table I).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// One thread receives, builds, sends and hears decisions.
    #[default]
    RunToCompletion,
    /// One thread receives and builds, another one sends and hears decisions; sets of events go over in between.
    Threads,
}

/// How packets are received: the words of `ropewalk_io::packet`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveChoice {
    /// A socket, one packet a call.
    Recvfrom,
    /// A socket, many packets a call.
    #[default]
    Recvmmsg,
    /// A socket, UDP packets of one source joined by the kernel where they can be.
    Gro,
    /// A ring that the kernel fills and that is mapped (TPACKET_V3).
    Tpacket,
    /// The card's own queues, with rings and frames that are mapped (AF_XDP).
    AfXdp,
}

/// Where the program runs that picks packets at the card.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum XdpChoice {
    /// In the card's driver.
    #[default]
    Driver,
    /// In the driver, and the card itself writes into the frames.
    ZeroCopy,
    /// Behind the driver, for cards that can do nothing else.
    Generic,
}

/// How events are sent: the words of `ropewalk_io::packet`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SendChoice {
    /// A socket, one packet a call.
    Sendto,
    /// A socket, many packets a call.
    #[default]
    Sendmmsg,
    /// A socket, UDP packets cut apart by the kernel.
    Gso,
    /// Written into a ring that the kernel sends from (PACKET_TX_RING).
    TxRing,
    /// Written into frames that the card's queue sends from (AF_XDP).
    AfXdp,
}

/// How an event is put together (paper 1, Table III).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gathering {
    /// The kernel gathers it from a list of places.
    Iovec,
    /// Copied by the library's copy.
    Memcpy,
    /// Copied by a routine made for fragments of some 32 to 100 bytes.
    #[default]
    ShortCopy,
}

/// When a gateway asks for fewer triggers.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ThrottleSection {
    /// How long the trigger takes to hear of it and to act.
    pub latency: Option<Time>,
    /// What may come meanwhile, in each second.
    pub rate: Option<Bandwidth>,
    /// Hardware that is told the state, too.
    pub tell: Option<TellSection>,
}

/// How hardware is told the throttle's state.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TellSection {
    /// Where a datagram goes at each change and again and again: the line `NAME STATE CHANGES`, such as `gw0 busy 17`.
    pub udp: Option<ListenAddress>,
    /// How often it is repeated.
    pub repeat: Time,
    /// A command that is called at each change; `{gateway}` and `{state}` in its words are filled in. One call after the
    /// other: of states that came and went during a call only the last one is told.
    pub command: Vec<String>,
}

impl Default for TellSection {
    fn default() -> Self {
        Self { udp: None, repeat: Time(Duration::from_millis(100)), command: Vec::new() }
    }
}

/// The nodes behind the gateways.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FarmSection {
    /// How many there are.
    pub nodes: u16,
    /// The longest packet to a node, in bytes of UDP's payload.
    pub largest_push: Bytes,
    /// The most events that one node may have without a decision.
    pub outstanding: u16,
    /// A node that says nothing for so long has no credit, and its events go to others.
    pub silence: Time,
    /// What gateways and nodes reach each other by.
    pub transport: TransportChoice,
    /// Where emulated nodes are: `10.0.0.1` and those behind it, or `10.0.0.1:20000` and the ports behind that; anywhere on
    /// loopback where it is not given. A gateway answers where it hears a node from, so that it need not know.
    pub address: Option<Addresses>,
    /// Emulators take their place.
    pub emulate: Option<EmulateFarm>,
}

/// What gateways and nodes reach each other by. Events and decisions are the same messages everywhere.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransportChoice {
    /// UDP, sent as the gateway's `send` says.
    #[default]
    Udp,
    /// IP of a protocol number for experiments; each node and each gateway's `control` needs an address of its own.
    RawIp,
    /// TCP; nodes connect to the gateway's `control`.
    Tcp,
}

impl Default for FarmSection {
    fn default() -> Self {
        Self {
            nodes: 2,
            largest_push: Bytes(1472),
            outstanding: 64,
            silence: Time(Duration::from_secs(1)),
            transport: TransportChoice::default(),
            address: None,
            emulate: None,
        }
    }
}

/// Emulated nodes.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmulateFarm {
    /// How long a node takes for a decision.
    pub decision_time: Times,
    /// Events that a node decides on at once.
    pub at_once: u16,
    /// The share of events that are accepted.
    pub accept: f64,
    /// Nodes that die without a word, and come back knowing nothing.
    pub outages: Vec<NodeOutage>,
    /// Where chance begins.
    pub seed: u64,
}

/// A node that dies and comes back.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeOutage {
    /// Which one.
    pub node: u16,
    /// When, after the start.
    pub from: Time,
    /// For how long.
    pub lasts: Time,
}

impl Default for EmulateFarm {
    fn default() -> Self {
        Self {
            decision_time: Times::Fixed(Duration::from_millis(1)),
            at_once: 64,
            accept: 0.1,
            outages: Vec::new(),
            seed: 1,
        }
    }
}

/// The emulated trigger.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TriggerSection {
    /// Where the trigger of each flow hears gateways, by the flow's name: needed where it is not in the same process.
    pub listen: BTreeMap<String, ListenAddress>,
    /// How it chooses the gateway of the next packets.
    pub naming: TriggerNaming,
    /// A gateway that says nothing of its state for so long is taken for busy.
    pub silence: Time,
}

impl Default for TriggerSection {
    fn default() -> Self {
        Self { listen: BTreeMap::new(), naming: TriggerNaming::default(), silence: Time(Duration::from_millis(500)) }
    }
}

/// How the trigger chooses.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerNaming {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Who asked for packets.
    Request,
}

const fn timeout() -> Time {
    Time(Duration::from_millis(100))
}

const fn decision_timeout() -> Time {
    Time(Duration::from_secs(1))
}

const fn budget() -> Time {
    Time(Duration::from_millis(50))
}

const fn sets() -> u16 {
    256
}

const fn assembling() -> u16 {
    64
}

const fn largest_packet() -> Bytes {
    Bytes(1472)
}

const fn one() -> u16 {
    1
}

const fn memory() -> Bytes {
    Bytes(64 << 20)
}

const fn receive_buffer() -> Bytes {
    Bytes(256 << 20)
}

const fn any_port() -> ListenAddress {
    ListenAddress(std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0))
}
