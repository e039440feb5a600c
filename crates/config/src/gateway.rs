//! Sections of a system whose sources push: flows of multi-event packets, the gateways that build events of them, and
//! the farm.

#[cfg(test)]
mod tests;

use crate::quantity::{
    Bandwidth, Bytes, ChunkBytes, Form, Rate, SizeDistribution, Time, TimeDistribution, Times, UNIT_NAME,
    read_from_text,
};
use ropewalk_engine::gateway::Gathering;
use ropewalk_flow::builder::IncompletePolicy;
use ropewalk_flow::gateway::{Address, Output, ThrottleConfig};
use ropewalk_io::packet::XdpMode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::str::FromStr;
use std::time::Duration;

/// The protocol number between gateways and nodes straight over IP: RFC 3692's second one for experiments.
pub const FARM_PROTOCOL: u8 = 254;

/// A flow: events whose fragments come from the same sources, several events in a packet.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowSection {
    /// Name of the flow: 1 to 32 letters, digits, `-` or `_`. No other flow or gateway may have it.
    #[schemars(regex(pattern = UNIT_NAME))]
    pub name: String,
    /// The sources, in the order in which their banks stand in an event.
    pub sources: SourcesSection,
    /// Number of events in a packet.
    pub packing: u16,
    /// Partition that its packets belong to.
    #[serde(default)]
    pub partition: u32,
    /// Number of the first event of the run.
    #[serde(default)]
    pub first_event: u64,
    /// How long a set of events waits for its packets, at least 1 ms.
    #[serde(default = "timeout")]
    pub timeout: Time,
    /// Protocol number of packets that are sent directly over IP, 147 to 253. As in paper 1 they have no ports, so each
    /// source needs an address of its own. It needs the right to open raw sockets. Without it: UDP.
    pub protocol: Option<u8>,
    /// What happens to an event that stays incomplete. `"stop"` is not allowed here.
    #[serde(default)]
    pub incomplete: IncompletePolicy,
    /// Where the decisions on its events lead.
    #[serde(default)]
    pub output: Output,
    /// How long a set waits for the decisions on its events; longer than `timeout`.
    #[serde(default = "decision_timeout")]
    pub decision_timeout: Time,
    /// Decision on an event after `decision_timeout`.
    #[serde(default)]
    pub default_decision: DefaultChoice,
    /// Time from the first packet of an event to its decision. The number of events that kept it is counted.
    #[serde(default = "budget")]
    pub budget: Time,
    /// Number of sets that a gateway holds at once, at most 16384: in assembly, waiting for nodes, or waiting for
    /// decisions.
    #[serde(default = "sets")]
    pub sets: u16,
    /// Number of these sets that are in assembly at once. One more closes the oldest.
    #[serde(default = "assembling")]
    pub assembling: u16,
    /// Longest packet, in bytes of the payload of UDP or IP, 64 to 65507. This much memory is reserved for each packet.
    #[serde(default = "largest_packet")]
    pub largest_packet: Bytes,
    /// An emulated trigger and emulated sources replace the sources.
    pub emulate: Option<EmulateFlow>,
}

/// The sources of a flow.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourcesSection {
    /// Number of sources, 1 to 4096.
    pub count: u16,
    /// Id of the first source; the others have the following ids.
    #[serde(default)]
    pub first: u32,
    /// Address from which they send. `"10.0.0.1"`: the first source has this address, the others the following ones.
    /// `"10.0.0.1:20000"`: the first source has this port, the others the following ones.
    pub address: Addresses,
    /// Ids of sources that no run waits for. What they send is counted as `masked` and dropped. Other sources can be
    /// masked [during a run](gateway-control.md#sources-that-take-no-part). At least one source is not masked.
    #[serde(default)]
    pub masked: Vec<u32>,
}

impl SourcesSection {
    /// Id and address of each source that is wanted, or of each that is masked.
    pub fn entries(&self, masked: bool) -> impl Iterator<Item = (u32, Address)> + '_ {
        let all = (0..u32::from(self.count)).filter_map(|number| Some((self.first + number, self.address.of(number)?)));
        all.filter(move |(id, _)| self.masked.contains(id) == masked)
    }
}

/// Decision on an event that no node decided.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DefaultChoice {
    /// The event is accepted.
    Accept,
    /// The event is rejected.
    #[default]
    Reject,
}

/// Emulated sources of a flow.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmulateFlow {
    /// Size of all banks of a fragment, the bank headers of 8 bytes included.
    pub fragment_size: ChunkBytes,
    /// Rate of events. Without it: as fast as the gateway takes them.
    pub rate: Option<Rate>,
    /// Share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// Share of packets that are sent twice, 0 to 1.
    pub duplicates: f64,
    /// Share of packets that are sent behind later ones, 0 to 1.
    pub reordered: f64,
    /// Longest delay of a packet after the trigger.
    pub jitter: Time,
    /// Seed of the random numbers. With the same seed the same packets are lost.
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
    /// Name of the gateway and of its thread, with the same rules as for flows.
    #[schemars(regex(pattern = UNIT_NAME))]
    pub name: String,
    /// Addresses for the packets of each flow, by the name of the flow. The port is ignored if the flow has a
    /// `protocol`.
    pub listen: BTreeMap<String, ListenAddress>,
    /// Address to which nodes and the trigger send.
    #[serde(default = "any_port")]
    pub control: ListenAddress,
    /// Number of input queues, 1 to 64 ([input queues](gateway.md#input-queues)). Each has threads, sockets or rings,
    /// memory, `sets` and files of its own.
    #[serde(default = "one")]
    pub queues: u16,
    /// How the work of an input queue is divided among threads ([architectures](gateway.md#architectures)).
    #[serde(default)]
    pub architecture: Architecture,
    /// Network card, such as `"eth0"`; needed for rings. `listen` and `control` are then its own addresses, and
    /// `largest_push` fits its frames: 4,054 bytes of UDP with `af_xdp`, the MTU less 28 with `tx_ring`.
    pub interface: Option<String>,
    /// Where the program runs that selects packets for `af_xdp`.
    #[serde(default)]
    pub xdp: XdpMode,
    /// How packets are received ([packets.md](packets.md)).
    #[serde(default)]
    pub receive: ReceiveChoice,
    /// How events are sent ([packets.md](packets.md)).
    #[serde(default)]
    pub send: SendChoice,
    /// How an event is assembled for sending.
    #[serde(default)]
    pub gather: Gathering,
    /// Memory into which packets are received, at least 1 MiB.
    #[serde(default = "memory")]
    pub memory: Bytes,
    /// How much may wait in the kernel for each socket, as the kernel counts it, 64 KiB to 2 GiB. A packet of 1 KiB
    /// counts 2.3 KiB. More than twice `net.core.rmem_max` is available only to the administrator. See [the
    /// throttle](gateway.md#the-throttle).
    #[serde(default = "receive_buffer")]
    pub receive_buffer: Bytes,
    /// When the gateway asks for fewer triggers ([the throttle](gateway.md#the-throttle)).
    #[serde(default)]
    pub throttle: ThrottleSection,
    /// Addresses to which readers of decisions connect over TCP, by the name of the flow. The flow must have `output =
    /// "stream"`. `ropewalk decisions ADDRESS` prints the decisions. A reader gets every decision from its connection
    /// on, in the order of events. A reader that is too slow is disconnected (`readers_cut_off`). The readers of the
    /// second queue connect to the next port, and so on.
    #[serde(default)]
    pub decisions: BTreeMap<String, ListenAddress>,
}

/// How the work of an input queue is divided among threads (paper 1, Table I).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// One thread receives, builds, sends and reads decisions.
    #[default]
    RunToCompletion,
    /// One thread receives and builds, another sends and reads decisions.
    Threads,
}

/// How packets are received, by the mechanisms of `ropewalk_io::packet`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveChoice {
    /// A socket, one packet per call.
    Recvfrom,
    /// A socket, many packets per call.
    #[default]
    Recvmmsg,
    /// A socket; the kernel joins UDP packets of one source if possible.
    Gro,
    /// A mapped ring that the kernel fills (TPACKET_V3).
    Tpacket,
    /// The queues of the card, with mapped rings and frames (AF_XDP).
    AfXdp,
}

/// How events are sent, by the mechanisms of `ropewalk_io::packet`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SendChoice {
    /// A socket, one packet per call.
    Sendto,
    /// A socket, many packets per call.
    #[default]
    Sendmmsg,
    /// A socket; the kernel divides UDP packets.
    Gso,
    /// A mapped ring from which the kernel sends (PACKET_TX_RING).
    TxRing,
    /// Frames from which the queue of the card sends (AF_XDP). It needs `receive = "af_xdp"`.
    AfXdp,
}

/// When a gateway asks for fewer triggers.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ThrottleSection {
    /// Time until the trigger acts.
    pub latency: Time,
    /// Bandwidth at which packets arrive meanwhile. Without it: an eighth of the memory is kept free.
    pub rate: Option<Bandwidth>,
    /// Hardware that also gets the state.
    pub tell: Option<TellSection>,
}

impl Default for ThrottleSection {
    fn default() -> Self {
        Self { latency: Time(ThrottleConfig::default().latency), rate: None, tell: None }
    }
}

/// How hardware gets the state of the throttle.
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TellSection {
    /// Address of a datagram with the line `NAME STATE CHANGES`, such as `gw0 busy 17`. It is sent at each change, and
    /// repeated. Either `udp` or `command` is needed.
    pub udp: Option<ListenAddress>,
    /// Interval of the repetition.
    pub repeat: Time,
    /// Command with its arguments that is called at each change. `{gateway}` and `{state}` in the arguments are
    /// replaced. Only one call runs at a time. If the state changes several times during a call, the next call gets the
    /// last state only.
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
    /// Number of nodes, at most 4096. A node identifies itself in its first message, so nodes need no addresses here.
    /// With 0 gateways [decide themselves](gateway-local.md#without-a-farm).
    pub nodes: u16,
    /// Longest packet to a node, in bytes of the payload of UDP, 256 to 65000. Shorter events share a packet; longer
    /// ones are divided.
    pub largest_push: Bytes,
    /// Highest number of events that a node has without a decision, 1 to 256.
    pub outstanding: u16,
    /// A node that sends nothing for this time has no credit, at least 100 ms. Its events go to other nodes.
    pub silence: Time,
    /// Transport between gateways and nodes. With every transport, what a slow node does not take is dropped and sent
    /// again.
    pub transport: TransportChoice,
    /// Address of emulated nodes. `"10.0.0.1"`: the first node has this address, the others the following ones.
    /// `"10.0.0.1:20000"`: the first node has this port, the others the following ones. Gateways do not need it: they
    /// answer to the address from which a node sends. Without it: any port of loopback.
    pub address: Option<Addresses>,
    /// Emulators replace the nodes.
    pub emulate: Option<EmulateFarm>,
}

/// Transport between gateways and nodes. Events and decisions are the same messages with each.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TransportChoice {
    /// UDP, sent as `send` of the gateway says.
    #[default]
    Udp,
    /// IP with protocol number 254, without ports. Each node and each `control` needs an address of its own. It needs
    /// the right to open raw sockets.
    RawIp,
    /// TCP; nodes connect to `control` of the gateway.
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
    /// Time that a decision takes; fixed or a distribution.
    pub decision_time: Times,
    /// Number of events on which a node decides at once, 1 to 256.
    pub at_once: u16,
    /// Share of events that are accepted, 0 to 1.
    pub accept: f64,
    /// Nodes that die without a message and come back without any knowledge, such as `[{ node = 1, from = "20s", lasts
    /// = "10s" }]`.
    pub outages: Vec<NodeOutage>,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// A node that dies and comes back.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeOutage {
    /// Number of the node.
    pub node: u16,
    /// When it dies, after the start.
    pub from: Time,
    /// How long it is gone.
    pub lasts: Time,
}

impl Default for EmulateFarm {
    fn default() -> Self {
        Self {
            decision_time: Times(TimeDistribution::Fixed(Duration::from_millis(1))),
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
    /// Addresses at which the trigger of each flow listens to gateways, by the name of the flow. They are needed only
    /// if the trigger is a separate process. Without an address: a free port.
    pub listen: BTreeMap<String, ListenAddress>,
    /// How the trigger chooses the gateway for the next packets.
    pub naming: TriggerNaming,
    /// A gateway that has not sent its state for this time counts as busy.
    pub silence: Time,
}

impl Default for TriggerSection {
    fn default() -> Self {
        Self { listen: BTreeMap::new(), naming: TriggerNaming::default(), silence: Time(Duration::from_millis(500)) }
    }
}

/// How the trigger chooses a gateway.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerNaming {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Gateways request packets (MEP requests) and get as many.
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

/// The source addresses of a flow: `10.0.0.1` and the following addresses, or `10.0.0.1:20000` and the following
/// ports.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Addresses {
    first: Address,
}

const ADDRESSES: &str = "the first source's IPv4 address, such as 10.0.0.1, the next ones having the addresses behind it; \
                         or an address with a port, such as 10.0.0.1:20000, the next ones having the ports behind that";

impl Addresses {
    /// The address of the source with this number, counted from 0; `None` beyond the last address or port.
    pub fn of(self, number: u32) -> Option<Address> {
        if self.first.port == 0 {
            let ip = self.first.ip.to_bits().checked_add(number)?;
            return Some(Address::of(Ipv4Addr::from_bits(ip)));
        }
        let port = u32::from(self.first.port).checked_add(number)?;
        Some(Address { port: u16::try_from(port).ok()?, ..self.first })
    }

    /// Whether sources differ by port.
    pub const fn are_ports(self) -> bool {
        self.first.port != 0
    }
}

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {ADDRESSES}");
        let first = if let Ok(ip) = text.parse() {
            Address::of(ip)
        } else {
            let address: SocketAddrV4 = text.parse().map_err(|_| wrong())?;
            Address { ip: *address.ip(), port: address.port() }
        };
        if text.ends_with(":0") { Err(wrong()) } else { Ok(Self { first }) }
    }
}

/// Where packets or messages come in: an IPv4 address with a port.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenAddress(pub SocketAddrV4);

impl ListenAddress {
    /// The address of an input queue: the ports of a gateway's queues follow the first one's, or its addresses if
    /// packets have no ports. A free port stays free. None beyond the last port or address.
    pub fn of_queue(self, queue: u16, has_ports: bool) -> Option<SocketAddrV4> {
        let (ip, port) = (*self.0.ip(), self.0.port());
        if !has_ports {
            return Some(SocketAddrV4::new(Ipv4Addr::from_bits(ip.to_bits().checked_add(queue.into())?), 0));
        }
        let port = if port == 0 { 0 } else { port.checked_add(queue)? };
        Some(SocketAddrV4::new(ip, port))
    }
}

const LISTEN: &str = "an IPv4 address with a port, such as 127.0.0.1:9700";

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("`{text}` is not {LISTEN}"))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// An IPv4 address; the numbers' range is left to the reader.
const IPV4_PATTERN: &str = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}";

read_from_text!(
    Addresses: ADDRESSES => Form::Pattern(format!("{IPV4_PATTERN}(?::[1-9][0-9]*)?")),
    ListenAddress: LISTEN => Form::Pattern(format!("{IPV4_PATTERN}:[0-9]+"))
);

impl Serialize for ListenAddress {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// An input queue of a gateway.
#[derive(Copy, Clone, Debug)]
pub struct InputQueue<'a> {
    /// The gateway.
    pub gateway: &'a GatewaySection,
    /// Its number among all queues of all gateways.
    pub number: u16,
    /// Its number in its gateway.
    pub index: u16,
}

impl InputQueue<'_> {
    /// Its name: the gateway's, with its number if there are several queues.
    pub fn name(&self) -> String {
        let name = &self.gateway.name;
        if self.gateway.queues == 1 { name.clone() } else { format!("{name}-{}", self.index) }
    }

    /// The address at which the packets of a flow arrive.
    ///
    /// # Panics
    /// If the configuration was not checked.
    pub fn listen(&self, flow: &FlowSection) -> SocketAddrV4 {
        let first = self.gateway.listen[&flow.name];
        first.of_queue(self.index, flow.protocol.is_none()).expect("the configuration was checked")
    }

    /// Where messages of nodes come in.
    ///
    /// # Panics
    /// If the configuration was not checked.
    pub fn control(&self, transport: TransportChoice) -> SocketAddrV4 {
        let has_ports = transport != TransportChoice::RawIp;
        self.gateway.control.of_queue(self.index, has_ports).expect("the configuration was checked")
    }

    /// Where readers of a flow's decisions connect, if they may.
    ///
    /// # Panics
    /// If the configuration was not checked.
    pub fn decisions(&self, flow: &FlowSection) -> Option<SocketAddrV4> {
        let first = self.gateway.decisions.get(&flow.name)?;
        Some(first.of_queue(self.index, true).expect("the configuration was checked"))
    }

    /// Its part of the gateway's memory for packets, in bytes.
    pub fn memory(&self) -> usize {
        self.gateway.memory.0 as usize / usize::from(self.gateway.queues)
    }
}
