//! What stands in a sizing file: a whole system as numbers. `docs/sizing.md` describes the same.

use ropewalk_flow::manager::AssignPolicy;
use ropewalk_node::quantity::{Bandwidth, Bytes, Rate, Size, SizeDistribution, Time, Times};
use ropewalk_terms::AcknowledgementLevel;
use ropewalk_wire::felix::BlockFormat;
use ropewalk_wire::{ferol, generic};
use serde::Deserialize;
use std::time::Duration;

/// A system to be simulated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The version of this form: 1.
    pub version: u32,
    /// What it is called in tables and plots.
    #[serde(default)]
    pub name: String,
    /// Everything that is random follows from this.
    #[serde(default = "one_u64")]
    pub seed: u64,
    /// How long triggers come, in simulated time.
    #[serde(default = "duration")]
    pub duration: Time,
    /// The first part of it is not counted.
    #[serde(default = "warm_up")]
    pub warm_up: Time,
    /// How long events may take to be built and released after the last trigger.
    #[serde(default = "drain")]
    pub drain: Time,
    /// Front-end links.
    pub front_ends: u32,
    /// Readout units.
    pub readouts: u16,
    /// Builder units.
    pub builders: u16,
    /// On which computers the units are.
    #[serde(default)]
    pub placement: Placement,
    /// The trigger.
    #[serde(default)]
    pub trigger: TriggerSection,
    /// What each front-end link is.
    #[serde(default)]
    pub front_end: FrontEndSection,
    /// From the front ends to the readout units.
    #[serde(default)]
    pub front_network: NetworkSection,
    /// What each readout unit is.
    #[serde(default)]
    pub readout: ReadoutSection,
    /// From the readout units to the builder units.
    #[serde(default)]
    pub event_network: NetworkSection,
    /// What each builder unit is.
    #[serde(default)]
    pub builder: BuilderSection,
    /// The event manager.
    #[serde(default)]
    pub manager: ManagerSection,
    /// The filter units of each builder unit; none: events are not filtered.
    pub filter: Option<FilterSection>,
    /// The disk of each builder unit; none: events are not written.
    pub disk: Option<DiskSection>,
}

/// On which computers the units are.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Each on its own.
    #[default]
    Own,
    /// All on one thread of one computer, as `ropewalk run` places them where there are few cores: super-fragments
    /// are handed over by reference, and the event network is not used. The costs are those of `readout.host`.
    Shared,
}

/// The trigger.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TriggerSection {
    /// How often; as fast as the front ends can where it is not given.
    pub rate: Option<Rate>,
    /// A front end sends what it has gathered this often.
    pub gather: Time,
}

impl Default for TriggerSection {
    fn default() -> Self {
        Self { rate: None, gather: Time(Duration::from_micros(20)) }
    }
}

/// A front-end link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FrontEndSection {
    /// Sources on it, each a stream of its own.
    pub streams: u32,
    /// The whole fragment of a source.
    pub fragment_size: Size,
    /// Links whose fragments have another size, spread evenly over all links.
    pub group: Vec<GroupSection>,
    /// What travels with each fragment in its stream.
    pub format: FormatChoice,
    /// How fast the link is.
    pub link: Bandwidth,
    /// What each fragment costs beside its bytes, in time of the link.
    pub per_fragment: Time,
    /// Memory of each source for what is not sent. Above three quarters it asks the trigger to pause.
    pub buffer: Bytes,
}

impl Default for FrontEndSection {
    fn default() -> Self {
        Self {
            streams: 1,
            fragment_size: Size(SizeDistribution::Fixed(2048)),
            group: Vec::new(),
            format: FormatChoice::default(),
            link: Bandwidth { bytes_per_second: 1.25e9 },
            per_fragment: Time(Duration::ZERO),
            buffer: Bytes(1 << 20),
        }
    }
}

/// Front-end links that differ from the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSection {
    /// How many.
    pub links: u32,
    /// The whole fragment of a source on one of them.
    pub fragment_size: Size,
}

/// What travels with each fragment in the stream of its source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatChoice {
    /// The headers of FEROL blocks: 16 bytes for each 4,080.
    #[default]
    Ferol,
    /// The header of the generic fragment: 32 bytes.
    Generic,
    /// The blocks of a FELIX card, of 1 KiB with 32-bit trailers, as if each chunk began a block: header and trailer, 8 bytes
    /// for each 1,016.
    Felix,
    /// Nothing.
    Bare,
}

/// What a block of a FELIX card adds to the piece in it, and how much that has at most.
const FELIX_BYTES: u64 = 8;
const FELIX_PIECE: u64 = BlockFormat::WIDE.most_data_bytes() as u64;

impl FormatChoice {
    /// How many bytes of the stream a fragment of these takes.
    pub const fn in_stream(self, fragment: u64) -> u64 {
        match self {
            Self::Ferol => fragment + fragment.div_ceil(ferol::MAX_PAYLOAD_BYTES as u64) * ferol::HEADER_BYTES as u64,
            Self::Generic => fragment + generic::HEADER_BYTES as u64,
            Self::Felix => fragment + fragment.div_ceil(FELIX_PIECE) * FELIX_BYTES,
            Self::Bare => fragment,
        }
    }

    /// How long the fragment is that takes these bytes of the stream.
    pub const fn fragment(self, in_stream: u64) -> u64 {
        match self {
            Self::Ferol => in_stream - in_stream.div_ceil(ferol::MAX_BLOCK_BYTES as u64) * ferol::HEADER_BYTES as u64,
            Self::Generic => in_stream - generic::HEADER_BYTES as u64,
            Self::Felix => in_stream - in_stream.div_ceil(FELIX_PIECE + FELIX_BYTES) * FELIX_BYTES,
            Self::Bare => in_stream,
        }
    }
}

/// What a network adds to what it carries.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FramingChoice {
    /// Ethernet with frames of 1,500 bytes, and TCP/IP in it: 90 bytes for each 1,448. They are preamble 8, header 14,
    /// checksum 4 and gap 12 of Ethernet, 20 of IP, 32 of TCP with time stamps.
    #[default]
    Ethernet,
    /// The same with frames of 9,000 bytes: 90 bytes for each 8,948.
    Jumbo,
    /// InfiniBand's reliable connection: 26 bytes for each 4,096 (routing 8, transport 12, checksums 6).
    Infiniband,
    /// Nothing: bandwidths are net.
    None,
}

impl FramingChoice {
    /// Bytes in a frame, and bytes that it takes beside them.
    pub const fn frame(self) -> (u64, u64) {
        match self {
            Self::Ethernet => (1448, 90),
            Self::Jumbo => (8948, 90),
            Self::Infiniband => (4096, 26),
            Self::None => (u64::MAX, 0),
        }
    }
}

/// A network around a switch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSection {
    /// The most bytes that travel as one, in one frame or several.
    pub packet: Bytes,
    /// What each frame adds.
    pub framing: FramingChoice,
    /// Memory of each output port of the switch.
    pub buffer: Bytes,
    /// From the switch to the receiver's memory.
    pub latency: Time,
    /// What happens where a port's memory is full.
    pub full: FullChoice,
    /// A sender that nothing tells of the loss of its packet waits this long.
    pub retransmit_after: Time,
    /// The most bytes of one stream that were sent and not taken.
    pub window: Bytes,
}

impl Default for NetworkSection {
    fn default() -> Self {
        Self {
            packet: Bytes(8 << 10),
            framing: FramingChoice::default(),
            buffer: Bytes(1 << 20),
            latency: Time(Duration::from_micros(5)),
            full: FullChoice::default(),
            retransmit_after: Time(Duration::from_millis(200)),
            window: Bytes(2 << 20),
        }
    }
}

/// What happens where a port's memory is full.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FullChoice {
    /// The sender is paused: nothing is lost, and everything behind it waits too.
    #[default]
    Pause,
    /// The packet is lost and sent again as TCP does: at once where packets behind it tell of the loss, with half of
    /// what was on its way as the window; otherwise after a time-out, with a window of one packet at first.
    Drop,
}

/// What work costs on a computer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSection {
    /// Cores that share the work evenly.
    pub cores: u32,
    /// What looking for work costs, each time, beside the work.
    pub turn: Time,
    /// Each message or super-fragment received or sent.
    pub per_message: Time,
    /// Each fragment received.
    pub per_fragment: Time,
    /// How fast one core receives bytes.
    pub receive: Bandwidth,
    /// How fast one core sends bytes.
    pub send: Bandwidth,
}

impl Default for HostSection {
    fn default() -> Self {
        Self {
            cores: 4,
            turn: Time(Duration::from_micros(5)),
            per_message: Time(Duration::from_nanos(500)),
            per_fragment: Time(Duration::from_nanos(200)),
            receive: Bandwidth { bytes_per_second: 5e9 },
            send: Bandwidth { bytes_per_second: 1e10 },
        }
    }
}

/// A readout unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReadoutSection {
    /// Its interface to the front ends.
    pub input: Bandwidth,
    /// Its interface to the builder units.
    pub output: Bandwidth,
    /// Memory for fragments, the same share for each source.
    pub pool: Bytes,
    /// No source is read further than this many event numbers past the oldest incomplete event.
    pub window: u32,
    /// Events held at once, a power of two.
    pub capacity: u32,
    /// What work costs.
    pub host: HostSection,
}

impl Default for ReadoutSection {
    fn default() -> Self {
        Self {
            input: Bandwidth { bytes_per_second: 5e9 },
            output: Bandwidth { bytes_per_second: 7e9 },
            pool: Bytes(1 << 30),
            window: 1024,
            capacity: 4096,
            host: HostSection::default(),
        }
    }
}

/// A builder unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BuilderSection {
    /// Its interface to the readout units.
    pub input: Bandwidth,
    /// Events in work at once, filtering and writing included.
    pub events: u32,
    /// Bytes in work at once.
    pub bytes: Bytes,
    /// How far an event must have come before readout units forget it: `built`, `handed` to a filter, `written`.
    pub acknowledge: AcknowledgementLevel,
    /// What work costs.
    pub host: HostSection,
}

impl Default for BuilderSection {
    fn default() -> Self {
        Self {
            input: Bandwidth { bytes_per_second: 7e9 },
            events: 256,
            bytes: Bytes(1 << 30),
            acknowledge: AcknowledgementLevel::Built,
            host: HostSection::default(),
        }
    }
}

/// The event manager.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ManagerSection {
    /// Which builder unit gets the next events.
    pub policy: AssignPolicy,
    /// Consecutive events given to one builder unit at once, 1..64.
    pub batch: u32,
    /// Events that it knows at once, a power of two.
    pub capacity: u32,
    /// What work costs.
    pub host: HostSection,
}

impl Default for ManagerSection {
    fn default() -> Self {
        Self { policy: AssignPolicy::default(), batch: 8, capacity: 1 << 14, host: HostSection::default() }
    }
}

/// The filter units behind each builder unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterSection {
    /// Events that are looked at at the same time.
    pub workers: u32,
    /// How long an event takes.
    pub time: Times,
    /// Which part of all events is kept, 0 to 1.
    #[serde(default = "one_f64")]
    pub accept: f64,
}

/// The disk behind each builder unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSection {
    /// How fast it writes.
    pub speed: Bandwidth,
    /// What each event costs beside its bytes.
    #[serde(default)]
    pub per_event: Option<Time>,
}

const fn one_u64() -> u64 {
    1
}

const fn one_f64() -> f64 {
    1.0
}

const fn duration() -> Time {
    Time(Duration::from_secs(1))
}

const fn warm_up() -> Time {
    Time(Duration::from_millis(100))
}

const fn drain() -> Time {
    Time(Duration::from_secs(2))
}
