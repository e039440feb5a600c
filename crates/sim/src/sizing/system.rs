//! A sizing file: a system that pulls, or one in which sources push; the sections of a system that pulls, and what they must
//! fulfil beyond their syntax. `docs/sizing.md` describes them.

use super::push::{self, PushSystem};
use super::{Outcome, simulate};
use ropewalk_config::quantity::{Bandwidth, Bytes, Rate, Size, SizeDistribution, Time, Times, TriggerRate};
use ropewalk_config::{ConfigurationError, Fault, parse_as, read_text};
use ropewalk_flow::manager::AssignPolicy;
use ropewalk_terms::AcknowledgementLevel;
use ropewalk_wire::felix::BlockFormat;
use ropewalk_wire::{ferol, generic};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;
use toml::de::DeTable;

/// The content of a sizing file: one with a `[[flow]]` describes a system in which sources push.
#[derive(Clone, Debug)]
pub enum SizingFile {
    /// Builder units pull.
    Pull(Box<System>),
    /// Sources push.
    Push(Box<PushSystem>),
}

impl SizingFile {
    /// Reads and checks a sizing file. The values in `instead` (a key such as `builder.events`, and a value as in the
    /// file) override those of the file.
    ///
    /// # Errors
    /// If the file cannot be read, or if it is no valid system with the values of `instead`.
    pub fn read(path: &Path, instead: &[(String, String)]) -> Result<Self, ConfigurationError> {
        let (file, text) = read_text(path)?;
        Self::parse(&file, &text, instead)
    }

    /// As [`SizingFile::read`], from a text; errors give `file` as its name.
    ///
    /// # Errors
    /// As [`SizingFile::read`].
    pub fn parse(file: &str, text: &str, instead: &[(String, String)]) -> Result<Self, ConfigurationError> {
        // Either reader can report what cannot be read.
        let pushes = DeTable::parse(text).is_ok_and(|table| table.get_ref().get("flow").is_some());
        if pushes {
            PushSystem::parse(file, text, instead).map(|system| Self::Push(Box::new(system)))
        } else {
            System::parse(file, text, instead).map(|system| Self::Pull(Box::new(system)))
        }
    }

    /// How long triggers come, and which first part of that is not counted.
    pub fn times(&self) -> (Time, Time) {
        match self {
            Self::Pull(system) => (system.duration, system.warm_up),
            Self::Push(system) => (system.duration, system.warm_up),
        }
    }

    /// Simulates it. Equal systems give equal outcomes.
    pub fn simulate(&self) -> Outcome {
        match self {
            Self::Pull(system) => simulate(system),
            Self::Push(system) => push::simulate(system),
        }
    }
}

/// A system to be simulated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
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
    /// How long events may take to be built and released after the last trigger.
    #[serde(default = "milliseconds::<2000>")]
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

/// Sections of a sizing file that need not be there: each key with its default.
macro_rules! sections {
    ($($(#[$what:meta])* $name:ident { $($(#[$meaning:meta])* $key:ident: $type:ty = $default:expr,)* })*) => {$(
        $(#[$what])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name { $($(#[$meaning])* pub $key: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    )*};
}
pub(super) use sections;

sections! {
    /// The trigger.
    TriggerSection {
        /// How often; as fast as the front ends can where it is not given.
        rate: Option<Rate> = None,
        /// A front end sends what it has gathered this often.
        gather: Time = Time(Duration::from_micros(20)),
    }

    /// A front-end link.
    FrontEndSection {
        /// Sources on it, each with its own stream.
        streams: u32 = 1,
        /// The whole fragment of a source.
        fragment_size: Size = Size(SizeDistribution::Fixed(2048)),
        /// Links whose fragments have another size, spread evenly over all links.
        group: Vec<GroupSection> = Vec::new(),
        /// What travels with each fragment in its stream.
        format: FormatChoice = FormatChoice::default(),
        /// How fast the link is.
        link: Bandwidth = Bandwidth { bytes_per_second: 1.25e9 },
        /// What each fragment costs beside its bytes, in time of the link.
        per_fragment: Time = Time(Duration::ZERO),
        /// Memory of each source for what is not sent. Above three quarters it asks the trigger to pause.
        buffer: Bytes = Bytes(1 << 20),
    }

    /// A network around a switch.
    NetworkSection {
        /// The most bytes that travel as one, in one frame or several.
        packet: Bytes = Bytes(8 << 10),
        /// What each frame adds.
        framing: FramingChoice = FramingChoice::default(),
        /// Memory of each output port of the switch.
        buffer: Bytes = Bytes(1 << 20),
        /// From the switch to the receiver's memory.
        latency: Time = Time(Duration::from_micros(5)),
        /// The behaviour of a port whose memory is full.
        full: FullChoice = FullChoice::default(),
        /// A sender that nothing tells of the loss of its packet waits this long.
        retransmit_after: Time = Time(Duration::from_millis(200)),
        /// The most bytes of one stream that were sent and not taken.
        window: Bytes = Bytes(2 << 20),
    }

    /// What work costs on a computer.
    HostSection {
        /// Cores that share the work evenly.
        cores: u32 = 4,
        /// What looking for work costs, each time, beside the work.
        turn: Time = Time(Duration::from_micros(5)),
        /// Each message or super-fragment received or sent.
        per_message: Time = Time(Duration::from_nanos(500)),
        /// Each fragment received.
        per_fragment: Time = Time(Duration::from_nanos(200)),
        /// How fast one core receives bytes.
        receive: Bandwidth = Bandwidth { bytes_per_second: 5e9 },
        /// How fast one core sends bytes.
        send: Bandwidth = Bandwidth { bytes_per_second: 1e10 },
    }

    /// A readout unit.
    ReadoutSection {
        /// Its interface to the front ends.
        input: Bandwidth = Bandwidth { bytes_per_second: 5e9 },
        /// Its interface to the builder units.
        output: Bandwidth = Bandwidth { bytes_per_second: 7e9 },
        /// Memory for fragments, the same share for each source.
        pool: Bytes = Bytes(1 << 30),
        /// No source is read further than this many event numbers past the oldest incomplete event.
        window: u32 = 1024,
        /// Events held at once, a power of two.
        capacity: u32 = 4096,
        /// What work costs.
        host: HostSection = HostSection::default(),
    }

    /// A builder unit.
    BuilderSection {
        /// Its interface to the readout units.
        input: Bandwidth = Bandwidth { bytes_per_second: 7e9 },
        /// Events in work at once, filtering and writing included.
        events: u32 = 256,
        /// Bytes in work at once.
        bytes: Bytes = Bytes(1 << 30),
        /// How far an event must have come before readout units forget it: `built`, `handed` to a filter, `written`.
        acknowledge: AcknowledgementLevel = AcknowledgementLevel::Built,
        /// What work costs.
        host: HostSection = HostSection::default(),
    }

    /// The event manager.
    ManagerSection {
        /// Which builder unit gets the next events.
        policy: AssignPolicy = AssignPolicy::default(),
        /// Consecutive events given to one builder unit at once, 1..64.
        batch: u32 = 8,
        /// Events that it knows at once, a power of two.
        capacity: u32 = 1 << 14,
        /// What work costs.
        host: HostSection = HostSection::default(),
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

/// The behaviour of a port whose memory is full.
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

/// One: the default of a key.
pub(super) const fn one_u64() -> u64 {
    1
}

const fn one_f64() -> f64 {
    1.0
}

/// A time in milliseconds: the default of a key.
pub(super) const fn milliseconds<const COUNT: u64>() -> Time {
    Time(Duration::from_millis(COUNT))
}

impl System {
    /// Reads and checks a text; errors give `file` as its name. The values in `instead` override those of the file.
    ///
    /// # Errors
    /// If the text with the values of `instead` is no valid system.
    pub fn parse(file: &str, text: &str, instead: &[(String, String)]) -> Result<Self, ConfigurationError> {
        parse_as(file, text, &|name| std::env::var(name).ok(), instead, |system, faults| {
            faults.keep(check(system));
        })
    }

    /// Sources in all.
    pub fn sources(&self) -> u32 {
        self.front_ends * self.front_end.streams
    }

    /// The mean size of a fragment in bytes.
    pub fn mean_fragment(&self) -> f64 {
        let all = self.fragment_sizes();
        all.iter().map(|size| size.mean()).sum::<f64>() / all.len().max(1) as f64
    }

    /// The sizes of fragments on each link: groups are spread so that every stretch of links has its share of each.
    pub fn fragment_sizes(&self) -> Vec<SizeDistribution> {
        let others = GroupSection {
            links: self.front_ends.saturating_sub(self.front_end.group.iter().map(|group| group.links).sum()),
            fragment_size: self.front_end.fragment_size,
        };
        let groups: Vec<&GroupSection> = self.front_end.group.iter().chain([&others]).collect();
        let mut given = vec![0_u64; groups.len()];
        let links = u64::from(self.front_ends);
        let next = |link: u64| {
            // The group that is furthest behind its share, in links times links.
            let behind = |at: &usize| {
                (u64::from(groups[*at].links) * (link + 1)).cast_signed() - (given[*at] * links).cast_signed()
            };
            let at = (0..groups.len()).max_by_key(behind).unwrap_or(0);
            given[at] += 1;
            groups[at].fragment_size.0
        };
        (0..links).map(next).collect()
    }

    /// The largest fragment, in bytes of its stream.
    fn largest_in_stream(&self) -> u64 {
        let sizes = self.front_end.group.iter().map(|group| group.fragment_size).chain([self.front_end.fragment_size]);
        let largest = sizes.map(|size| size.0.largest()).max().unwrap_or(0);
        self.front_end.format.in_stream(u64::from(largest))
    }

    /// Triggers a second, where a rate is given.
    pub fn trigger_hertz(&self) -> Option<f64> {
        match self.trigger.rate.as_ref()?.0 {
            TriggerRate::Periodic { hertz } | TriggerRate::Poisson { hertz } => Some(hertz),
            TriggerRate::Unlimited => None,
        }
    }
}

/// The most of anything that is counted in a file: beyond, memory and patience end.
const MOST_SOURCES: u32 = 1 << 16;

/// An error at this key with this message unless something holds.
pub(super) fn needs(holds: bool, key: &str, message: impl Into<String>) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::new(key, message)) }
}

fn check(system: &System) -> Result<(), Fault> {
    check_head(system.version, system.duration, system.warm_up, system.drain)?;
    counts(system)?;
    memory(system)?;
    network("front_network", &system.front_network)?;
    network("event_network", &system.event_network)?;
    host("readout.host", &system.readout.host)?;
    host("builder.host", &system.builder.host)?;
    host("manager.host", &system.manager.host)?;
    behind_builders(system)
}

/// Checks what all sizing files begin with.
pub(super) fn check_head(version: u32, duration: Time, warm_up: Time, drain: Time) -> Result<(), Fault> {
    needs(version == 1, "version", format!("this program reads version 1, not {version}"))?;
    let message = format!("longer than warm_up ({warm_up}), which is not counted");
    needs(duration.0 > warm_up.0, "duration", message)?;
    needs(duration.0 + drain.0 <= Duration::from_secs(3600), "duration", "at most an hour, drain included")
}

fn counts(system: &System) -> Result<(), Fault> {
    let System { front_ends, front_end, readouts, builders, manager, builder, trigger, .. } = system;
    needs((1..=1000).contains(&front_end.streams), "front_end.streams", "between 1 and 1000 sources share a link")?;
    let message = format!("at least one link, and at most {MOST_SOURCES} sources on all of them");
    needs((1..=MOST_SOURCES / front_end.streams).contains(front_ends), "front_ends", message)?;
    let in_groups = front_end.group.iter().map(|group| u64::from(group.links)).sum::<u64>();
    let message = format!("the groups have {in_groups} links, of {front_ends} in all (front_ends)");
    needs(in_groups <= u64::from(*front_ends), "front_end.group", message)?;
    let message = format!("between 1 and {front_ends} readout units: each reads at least one link");
    needs((1..=*front_ends).contains(&u32::from(*readouts)), "readouts", message)?;
    needs((1..=4096).contains(builders), "builders", "between 1 and 4096 builder units")?;
    needs((1..=64).contains(&manager.batch), "manager.batch", "between 1 and 64 events are assigned at once")?;
    needs((1..=1 << 20).contains(&builder.events), "builder.events", "between 1 and 1048576 events in work")?;
    let gather = trigger.gather.0;
    let is_possible = (Duration::from_micros(1)..=Duration::from_millis(10)).contains(&gather);
    needs(is_possible, "trigger.gather", "between 1us and 10ms")?;
    let gathered = system.trigger_hertz().unwrap_or_default() * gather.as_secs_f64();
    let message = "at most 64 triggers are gathered: a shorter time, or a lower trigger.rate";
    needs(gathered <= 64.0, "trigger.gather", message)
}

fn memory(system: &System) -> Result<(), Fault> {
    let System { readout, front_end, front_network, manager, .. } = system;
    for (key, capacity) in [("readout.capacity", readout.capacity), ("manager.capacity", manager.capacity)] {
        let is_possible = capacity.is_power_of_two() && (64..=1 << 20).contains(&capacity);
        needs(is_possible, key, "the number of events is a power of two between 64 and 1048576")?;
    }
    let most = readout.capacity / 2;
    let message = format!("the window lies between 1 and half the capacity ({most})");
    needs((1..=most).contains(&readout.window), "readout.window", message)?;
    let largest = system.largest_in_stream();
    let sources = u64::from(system.sources().div_ceil(u32::from(system.readouts)) + front_end.streams);
    let message =
        format!("each of up to {sources} sources needs room for two of its largest fragments ({largest} bytes)");
    needs(readout.pool.0 >= 2 * largest * sources, "readout.pool", message)?;
    let message = format!("room for two of the largest fragments ({largest} bytes each)");
    needs(front_end.buffer.0 >= 2 * largest, "front_end.buffer", message)?;
    let message = format!("at least the largest fragment ({largest} bytes): it is read as a whole");
    needs(front_network.window.0 >= largest, "front_network.window", message)
}

fn network(name: &str, network: &NetworkSection) -> Result<(), Fault> {
    let key = |field: &str| format!("{name}.{field}");
    needs((64..=1 << 20).contains(&network.packet.0), &key("packet"), "between 64 bytes and 1MiB")?;
    let message = format!("at least two packets ({} bytes each)", network.packet.0);
    needs(network.window.0 >= 2 * network.packet.0, &key("window"), message)?;
    let message = "at least 100us: TCP's least is 200ms unless told otherwise";
    needs(network.retransmit_after.0 >= Duration::from_micros(100), &key("retransmit_after"), message)
}

fn host(name: &str, host: &HostSection) -> Result<(), Fault> {
    needs(host.cores > 0, &format!("{name}.cores"), "at least one core")?;
    let is_possible = host.turn.0 >= Duration::from_nanos(100);
    needs(is_possible, &format!("{name}.turn"), "at least 100ns: time must go on")
}

fn behind_builders(system: &System) -> Result<(), Fault> {
    if let Some(filter) = &system.filter {
        needs((1..=1 << 16).contains(&filter.workers), "filter.workers", "between 1 and 65536")?;
        needs((0.0..=1.0).contains(&filter.accept), "filter.accept", "a part between 0 and 1")?;
    }
    let message = "there is no [filter] that an event could be handed to: say \"built\"";
    let is_handed = system.builder.acknowledge == AcknowledgementLevel::Handed;
    needs(!is_handed || system.filter.is_some(), "builder.acknowledge", message)?;
    let message = "there is no [disk] that an event could be written to: say \"built\"";
    let is_written = system.builder.acknowledge >= AcknowledgementLevel::Written;
    needs(!is_written || system.disk.is_some(), "builder.acknowledge", message)
}
