//! The sections of a sizing file of a push system, and what they must fulfil beyond their syntax. `docs/sizing.md` describes
//! them.

use crate::sizing::system::{check_head, milliseconds, needs, one_u64, sections};
use ropewalk_config::quantity::{Bandwidth, Bytes, ChunkBytes, Rate, SizeDistribution, Time, Times};
use ropewalk_config::{ConfigurationError, Fault, parse_as};
use ropewalk_flow::gateway::Output;
use ropewalk_wire::gateway::{FRAME_BYTES, LARGEST_BODY_BYTES, MOST_OUTSTANDING, PIECE_HEAD_BYTES, PUSH_HEAD_BYTES};
use ropewalk_wire::mep::{BANK_HEADER_BYTES, FRAGMENT_HEADER_BYTES, LARGEST_MEP_BYTES, MEP_HEADER_BYTES};
use serde::Deserialize;
use std::time::Duration;

/// A push system to be simulated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PushSystem {
    /// The version of this form: 1.
    pub version: u32,
    /// What it is called in tables.
    #[serde(default)]
    pub name: String,
    /// Everything that is random follows from this.
    #[serde(default = "one_u64")]
    pub seed: u64,
    /// How long triggers come, in simulated time.
    #[serde(default = "milliseconds::<1000>")]
    pub duration: Time,
    /// The first part of it is not counted.
    #[serde(default = "milliseconds::<100>")]
    pub warm_up: Time,
    /// How long events may take to be decided after the last trigger.
    #[serde(default = "milliseconds::<2000>")]
    pub drain: Time,
    /// Gateway hosts.
    pub gateways: u16,
    /// The flows; the first one is served first.
    pub flow: Vec<FlowSection>,
    /// From the sources to the gateways.
    #[serde(default)]
    pub network: NetworkSection,
    /// What each gateway is.
    #[serde(default)]
    pub gateway: GatewaySection,
    /// The nodes behind each gateway.
    #[serde(default)]
    pub farm: FarmSection,
}

/// A flow: its trigger, its sources, what becomes of its events.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowSection {
    /// What it is called.
    pub name: String,
    /// Its sources, each on a link of its own.
    pub sources: u16,
    /// Events in a packet.
    pub packing: u16,
    /// How often events are triggered.
    pub rate: Rate,
    /// All banks of a fragment, their heads included.
    #[serde(default = "fragment_size")]
    pub fragment_size: ChunkBytes,
    /// How fast a source's link is.
    #[serde(default = "gigabit")]
    pub link: Bandwidth,
    /// Sets of events that an input queue holds at once.
    #[serde(default = "sets")]
    pub sets: u16,
    /// How long a set waits for its packets.
    #[serde(default = "milliseconds::<100>")]
    pub timeout: Time,
    /// Where decisions lead.
    #[serde(default)]
    pub output: Output,
    /// How long a decision takes a core of a node.
    pub decision_time: Times,
    /// How long a set waits for decisions.
    #[serde(default = "milliseconds::<1000>")]
    pub decision_timeout: Time,
    /// Within this time of an event's first packet its decision should be there.
    #[serde(default = "milliseconds::<50>")]
    pub budget: Time,
    /// Which part of all events is accepted, 0 to 1.
    #[serde(default = "accept")]
    pub accept: f64,
}

impl FlowSection {
    /// The most bytes of a fragment's banks: no packet can be longer than its length can say.
    pub(super) const fn most_banks(&self) -> usize {
        let share = (LARGEST_MEP_BYTES - MEP_HEADER_BYTES) / self.packing as usize;
        share.saturating_sub(FRAGMENT_HEADER_BYTES) / 4 * 4
    }

    /// The longest packet: header, and for each event that of its fragment.
    pub const fn largest_packet(&self) -> usize {
        let (bytes, most) = ((self.fragment_size.0.largest() as usize).next_multiple_of(4), self.most_banks());
        let bytes = if bytes < most { bytes } else { most };
        let banks = if bytes < BANK_HEADER_BYTES { BANK_HEADER_BYTES } else { bytes };
        MEP_HEADER_BYTES + self.packing as usize * (FRAGMENT_HEADER_BYTES + banks)
    }
}

sections! {
    /// The network from the sources to the gateways: raw IP over Ethernet, without acknowledgements.
    NetworkSection {
        /// The longest IP packet; longer ones are cut.
        mtu: Bytes = Bytes(1500),
        /// Memory of the switch for each input queue; packets without room are lost.
        buffer: Bytes = Bytes(1 << 20),
        /// From the switch to the receiver's memory, and from anybody to anybody else.
        latency: Time = Time(Duration::from_micros(5)),
    }

    /// A gateway host: one or several input queues, each with a core, a link in and a link out, that run to completion.
    GatewaySection {
        /// Input queues.
        queues: u16 = 1,
        /// A queue's link from the sources.
        input: Bandwidth = gigabit(),
        /// A queue's link to the nodes.
        output: Bandwidth = gigabit(),
        /// Bytes that a queue's socket holds; packets without room are lost.
        socket: Bytes = Bytes(4 << 20),
        /// Packets taken at once.
        batch: u32 = 64,
        /// The longest packet to a node, in bytes of IP's payload.
        largest_push: Bytes = Bytes(1480),
        /// The longest IP packet to a node that is one frame.
        mtu: Bytes = Bytes(1500),
        /// Until the trigger acts on the throttle.
        throttle: Time = Time(Duration::from_millis(1)),
        /// What work costs.
        host: PushHostSection = PushHostSection::default(),
    }

    /// What work costs one core, the kernel's part included.
    PushHostSection {
        /// What looking for work costs, each time, beside the work.
        turn: Time = Time(Duration::from_micros(5)),
        /// Each packet received.
        per_packet: Time = Time(Duration::from_micros(1)),
        /// How fast bytes are received.
        receive: Bandwidth = Bandwidth { bytes_per_second: 5e9 },
        /// Each packet sent.
        per_push: Time = Time(Duration::from_micros(1)),
        /// How fast events are put together and sent.
        send: Bandwidth = Bandwidth { bytes_per_second: 5e9 },
        /// Each message of a node, or to one.
        per_message: Time = Time(Duration::from_micros(1)),
    }

    /// The nodes behind each gateway.
    FarmSection {
        /// Nodes of each gateway.
        nodes: u16 = 16,
        /// Events that a node decides on at the same time.
        cores: u32 = 2,
        /// The most events that a node has of each queue without a decision.
        outstanding: u16 = 64,
    }
}

/// Header of IP.
const IP_BYTES: u64 = 20;
/// What a frame adds to the bytes in IP: the header of IP, preamble 8, header 14, checksum 4 and gap 12 of Ethernet.
const FRAME_OVERHEAD: u64 = IP_BYTES + 38;

/// Frames of an IP packet with so many bytes in it.
pub(super) const fn frames(mtu: u64, bytes: u64) -> u64 {
    bytes.div_ceil(mtu - IP_BYTES)
}

/// How many bytes go over the wire for an IP packet with these bytes in it, cut into as many frames as it needs.
pub(super) const fn on_the_wire(mtu: u64, bytes: u64) -> u64 {
    bytes + frames(mtu, bytes) * FRAME_OVERHEAD
}

const fn fragment_size() -> ChunkBytes {
    ChunkBytes(SizeDistribution::Fixed(32))
}

const fn gigabit() -> Bandwidth {
    Bandwidth { bytes_per_second: 125e6 }
}

const fn sets() -> u16 {
    64
}

const fn accept() -> f64 {
    0.1
}

impl PushSystem {
    /// Reads and checks a text; errors give `file` as its name. The values in `instead` (a key such as `gateway.queues` or
    /// `flow[0].packing`, and a value as in the file) override those of the file.
    ///
    /// # Errors
    /// If the text with the values of `instead` is no valid system.
    pub fn parse(file: &str, text: &str, instead: &[(String, String)]) -> Result<Self, ConfigurationError> {
        parse_as(file, text, &|name| std::env::var(name).ok(), instead, |system, faults| {
            faults.keep(check(system));
        })
    }

    /// Input queues of all gateways.
    pub const fn queues(&self) -> u16 {
        self.gateways * self.gateway.queues
    }
}

/// The most input queues: each is a machine with tables of its own.
const MOST_QUEUES: u32 = 1024;
/// The most nodes of all gateways.
const MOST_NODES: u32 = 1 << 14;
/// Sources of all flows, as many as one gateway can tell apart.
const MOST_SOURCES: u32 = 1 << 14;

fn check(system: &PushSystem) -> Result<(), Fault> {
    check_head(system.version, system.duration, system.warm_up, system.drain)?;
    let queues = u32::from(system.gateways) * u32::from(system.gateway.queues);
    let key = if system.gateway.queues == 0 { "gateway.queues" } else { "gateways" };
    let message = format!("between 1 and {MOST_QUEUES} input queues in all, not {queues}");
    needs((1..=MOST_QUEUES).contains(&queues), key, message)?;
    needs((1..=8).contains(&system.flow.len()), "flow", "between 1 and 8 flows")?;
    let sources: u32 = system.flow.iter().map(|flow| u32::from(flow.sources)).sum();
    needs(sources <= MOST_SOURCES, "flow", format!("at most {MOST_SOURCES} sources of all flows"))?;
    system.flow.iter().enumerate().try_for_each(|(index, section)| flow(index, section))?;
    network(system)?;
    gateway(&system.gateway)?;
    farm(system)
}

fn flow(index: usize, flow: &FlowSection) -> Result<(), Fault> {
    let key = |name: &str| format!("flow[{index}].{name}");
    needs(flow.sources > 0, &key("sources"), "at least 1")?;
    needs(flow.packing > 0, &key("packing"), "at least 1")?;
    let fits = flow.most_banks() >= BANK_HEADER_BYTES && flow.fragment_size.0.mean() <= flow.most_banks() as f64;
    let message = format!("this number of fragments does not fit into a packet of {LARGEST_MEP_BYTES} bytes");
    needs(fits, &key("packing"), message)?;
    let is_rate = flow.rate.0.hertz().is_some_and(|hertz| hertz > 0.0 && hertz <= 1e9);
    let message = "events come at a rate of up to 1GHz: sources that push have no other measure";
    needs(is_rate, &key("rate"), message)?;
    needs((4..=4096).contains(&flow.sets), &key("sets"), "between 4 and 4096 sets of events")?;
    needs((0.0..=1.0).contains(&flow.accept), &key("accept"), "a part between 0 and 1")
}

fn network(system: &PushSystem) -> Result<(), Fault> {
    for (key, mtu) in [("network.mtu", system.network.mtu.0), ("gateway.mtu", system.gateway.mtu.0)] {
        needs((68..=65_535).contains(&mtu), key, "between 68 and 65535 bytes")?;
    }
    let largest = system.flow.iter().map(FlowSection::largest_packet).max().unwrap_or_default() as u64;
    let message = format!("room for the longest packet ({largest} bytes)");
    let on_the_wire = on_the_wire(system.network.mtu.0, largest);
    needs(system.network.buffer.0 >= on_the_wire, "network.buffer", message.clone())?;
    needs(system.gateway.socket.0 >= largest, "gateway.socket", message)
}

fn gateway(gateway: &GatewaySection) -> Result<(), Fault> {
    let least = (PUSH_HEAD_BYTES + PIECE_HEAD_BYTES + 1) as u64;
    let most = (FRAME_BYTES + LARGEST_BODY_BYTES) as u64;
    let message = format!("between {least} and {most} bytes");
    needs((least..=most).contains(&gateway.largest_push.0), "gateway.largest_push", message)?;
    needs((1..=4096).contains(&gateway.batch), "gateway.batch", "between 1 and 4096 packets")?;
    let is_possible = gateway.host.turn.0 >= Duration::from_nanos(100);
    needs(is_possible, "gateway.host.turn", "at least 100ns: time must go on")
}

fn farm(system: &PushSystem) -> Result<(), Fault> {
    let nodes = u32::from(system.farm.nodes) * u32::from(system.gateways);
    let message = format!("between 1 and {MOST_NODES} nodes in all, not {nodes}");
    needs((1..=MOST_NODES).contains(&nodes), "farm.nodes", message)?;
    needs((1..=1 << 16).contains(&system.farm.cores), "farm.cores", "between 1 and 65536")?;
    let is_possible = (1..=MOST_OUTSTANDING).contains(&u64::from(system.farm.outstanding));
    needs(is_possible, "farm.outstanding", format!("between 1 and {MOST_OUTSTANDING} events"))
}
