//! What stands in a configuration file. `docs/configuration.md` and `ropewalk config schema` describe the same.

use super::alarms::{AlarmSection, AlarmsSection, LogbookSection, MonitorSection};
use super::black_box::BlackBoxSection;
use super::control::ControlSection;
use super::emulate::{Emulate, EmulateChoice};
use super::entrance::{InputChoice, NetworkAddress, PacketsTable};
use super::felix::{ELinkSection, FelixSection};
use super::file_based::FileBasedSection;
use super::filter::{FilterSection, StreamSection};
use super::format::FormatName;
use super::histogram::HistogramSection;
use super::layout::{
    BoardTable, ChecksumTable, DemuxTable, EventTable, FrameChoice, NumberTable, PatternTable, StatusTable, TimeTable,
};
use super::settings::Settings;
use super::splitter::SplitterSection;
use super::storage::StorageSection;
use super::written::Written;
use crate::quantity::{Bytes, Time};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// A whole configuration.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// The version of this form: 1.
    pub version: u32,
    /// The run: when it ends, what is written.
    #[serde(default)]
    pub run: RunSection,
    /// How run files get onto the disk.
    #[serde(default)]
    pub storage: StorageSection,
    /// The readout units.
    pub readout: Vec<ReadoutSection>,
    /// The builder units.
    pub builder: Vec<BuilderSection>,
    /// The event manager.
    #[serde(default)]
    pub manager: ManagerSection,
    /// The front ends.
    pub source: Vec<SourceSection>,
    /// Link cards whose e-links are sources.
    #[serde(default)]
    pub felix: Vec<FelixSection>,
    /// Who decides on built events; without it all are kept.
    pub filter: Option<FilterSection>,
    /// Builder units write files of events for filter units in the place of run files.
    pub file_based: Option<FileBasedSection>,
    /// Where accepted events go; without any all go to the same files.
    #[serde(default)]
    pub stream: Vec<StreamSection>,
    /// How long to wait before something counts as missing.
    #[serde(default)]
    pub timeouts: TimeoutSection,
    /// The watch over sources that slip against each other.
    #[serde(default)]
    pub synchrony: SynchronySection,
    /// Where threads run: ordered rules, the first whose expression matches a thread's name counts.
    #[serde(default)]
    pub thread: Vec<ThreadRule>,
    /// Where memory lies: ordered rules, the first whose expression matches a pool's name counts.
    #[serde(default)]
    pub pool: Vec<PoolRule>,
    /// What is counted of every fragment of some sources.
    #[serde(default)]
    pub histogram: Vec<HistogramSection>,
    /// Alarms of the run's own.
    #[serde(default)]
    pub alarm: Vec<AlarmSection>,
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
pub struct RunSection {
    /// Where run directories are made.
    pub output: PathBuf,
    /// Stop after this time.
    pub duration: Option<Time>,
    /// Stop after exactly this many triggers.
    pub events: Option<u64>,
    /// Stop when so many bytes of fragments have come.
    pub bytes: Option<Bytes>,
    /// What follows a run that ends by itself.
    pub then: Option<ThenChoice>,
    /// Stop when every source has closed its connection.
    pub until_sources_end: bool,
    /// Write run files; false builds and checks only.
    pub write: bool,
    /// Keep only the newest run files up to this size; older ones of the run are deleted, counted and named.
    pub keep: Option<Bytes>,
    /// What an acknowledgement promises: fragments are kept in the readout units until then.
    pub acknowledge: Acknowledge,
    /// When files are synced to the disk.
    pub sync: SyncChoice,
    /// What happens to an event that stays incomplete.
    pub incomplete: IncompleteChoice,
    /// What happens when a source starts its numbering again and nothing tells where it is.
    pub on_restart: RestartChoice,
    /// A run file is closed at this size.
    pub segment_bytes: Bytes,
    /// A run file is closed after this many events.
    pub segment_events: Option<u64>,
    /// A run file is closed after this time.
    pub segment_time: Option<Time>,
    /// What has to be said of a run when it is started, such as `beam`, `target` and `shifter`.
    pub required_fields: Vec<String>,
    /// How long a lumisection is: a stretch of the run that is closed with an account of its own.
    pub lumisection: Option<LumisectionChoice>,
    /// Check the fragments' checksums.
    pub check_crc: bool,
    /// Compare the bunch crossings of an event's fragments.
    pub check_bunch_crossing: bool,
    /// Where front ends under run control connect to.
    pub front_ends: String,
    /// How the kernel is asked to move bytes over TCP.
    pub tcp: TcpChoice,
    /// Where threads and pools go that no rule matches.
    pub placement: PlacementChoice,
}

impl Default for RunSection {
    fn default() -> Self {
        Self {
            output: PathBuf::from("."),
            duration: None,
            events: None,
            bytes: None,
            then: None,
            until_sources_end: false,
            write: true,
            keep: None,
            acknowledge: Acknowledge::default(),
            sync: SyncChoice::default(),
            incomplete: IncompleteChoice::default(),
            on_restart: RestartChoice::default(),
            segment_bytes: Bytes(512 << 20),
            segment_events: None,
            segment_time: None,
            required_fields: Vec::new(),
            lumisection: None,
            check_crc: true,
            check_bunch_crossing: true,
            front_ends: any_port(),
            tcp: TcpChoice::default(),
            placement: PlacementChoice::default(),
        }
    }
}

/// How the kernel is asked to move bytes over TCP: the words of `ropewalk_io::tcp::Mechanism`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TcpChoice {
    /// The fastest one that the kernel has.
    #[default]
    Auto,
    /// Told of changes, however many connections there are.
    Epoll,
    /// Told of what is done; Linux 6.12 or newer.
    IoUring,
    /// Told of every connection each time.
    Poll,
    /// As `poll`, for descriptors below 1,024.
    Select,
}

/// Where threads and pools go that no rule matches.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlacementChoice {
    /// Where the kernel puts them.
    #[default]
    Rules,
    /// Readout units beside the core that takes their network card's interrupts, their memory on the card's NUMA node,
    /// everything else away from there.
    Auto,
}

/// How long a lumisection is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LumisectionChoice {
    /// So many events.
    Events(u64),
    /// So long, whatever comes.
    Time(Time),
}

/// How far an event must have come before its fragments are released.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledge {
    /// Built in memory.
    Built,
    /// Handed to a filter unit.
    Handed,
    /// Written to a file: survives the death of the process.
    #[default]
    Written,
    /// Synced to the disk: survives a power cut.
    Synced,
}

/// When run files are synced.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncChoice {
    /// Never: the system decides.
    Never,
    /// When a file is closed.
    #[default]
    Segment,
    /// After every batch of records.
    Batch,
}

/// What happens to an event that stays incomplete.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IncompleteChoice {
    /// It is kept and flagged, with the missing sources and why.
    #[default]
    Emit,
    /// It is dropped and counted.
    Drop,
    /// The run stops.
    Stop,
}

/// What happens when a source starts its numbering again and nothing tells where it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RestartChoice {
    /// It is named, and events are built without the source.
    #[default]
    Flag,
    /// The run is paused as well: somebody has to look at the source.
    Pause,
    /// The run stops: what was triggered is still built.
    Stop,
}

/// A readout unit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadoutSection {
    /// Its name.
    pub name: String,
    /// Where its front ends connect to.
    #[serde(default = "any_port")]
    pub listen: String,
    /// Where builder units connect to, when it is a process of its own.
    #[serde(default = "any_port")]
    pub address: String,
    /// Memory for fragments.
    #[serde(default = "readout_pool")]
    pub pool: Bytes,
    /// Size of the blocks in it.
    #[serde(default = "readout_block")]
    pub block: Bytes,
    /// No source is read further than this many event numbers past the oldest incomplete event.
    #[serde(default = "window")]
    pub window: u32,
    /// Events held at once, a power of two.
    #[serde(default = "capacity")]
    pub capacity: u32,
    /// The network card through which its front ends come; that with the address of `listen` otherwise.
    pub card: Option<String>,
}

/// A builder unit.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BuilderSection {
    /// Its name.
    pub name: String,
    /// Where it makes its run directory; otherwise in `run.output`.
    pub output: Option<PathBuf>,
    /// Memory for received super-fragments, when it is a process of its own.
    #[serde(default = "readout_pool")]
    pub pool: Bytes,
    /// Events in work at once.
    #[serde(default = "slots")]
    pub events: u32,
    /// Bytes in work at once.
    #[serde(default = "credit_bytes")]
    pub bytes: Bytes,
}

/// The event manager.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ManagerSection {
    /// Where the other nodes connect to, when they are processes of their own.
    pub address: String,
    /// Where further event managers may listen, `manager2`, `manager3` and so on: nodes call them too.
    pub standby: Vec<String>,
    /// Which builder unit gets the next events.
    pub policy: PolicyChoice,
    /// Consecutive events given to one builder unit at once, 1..64.
    pub batch: u32,
    /// Which event manager this is; a successor takes a higher one.
    pub epoch: u32,
}

impl Default for ManagerSection {
    fn default() -> Self {
        Self { address: any_port(), standby: Vec::new(), policy: PolicyChoice::default(), batch: 32, epoch: 1 }
    }
}

/// Which builder unit gets the next events.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PolicyChoice {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest events in work.
    #[default]
    LeastLoaded,
    /// The one with the most free bytes.
    FreeBytes,
}

/// A front end.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceSection {
    /// Its name; `source-ID` where there is none.
    pub name: Option<String>,
    /// Its id in its fragments: 0..4095 for FED ids.
    pub id: u32,
    /// The readout unit that it sends to.
    pub readout: String,
    /// What it sends.
    #[serde(default)]
    pub format: FormatName,
    /// Whether an event needs it.
    #[serde(default)]
    pub requirement: RequirementChoice,
    /// It is the trigger source: it alone opens events and declares resynchronisations.
    #[serde(default)]
    pub trigger: bool,
    /// Its counter at the run's first event. Without it counting begins where the sources agree, or at 1 where they cannot
    /// be compared.
    pub first: Option<u64>,
    /// How wide its counter is.
    pub counter_bits: Option<u8>,
    /// The longest fragment that is believed.
    #[serde(default = "max_fragment")]
    pub max_fragment: Bytes,
    /// What a closed connection means.
    #[serde(default)]
    pub on_close: OnCloseChoice,
    /// How its bunch crossing compares with the others'.
    #[serde(default)]
    pub bunch_crossing: BunchCrossing,
    /// It has an entrance of its own: whoever connects to this TCP address is the source, or its datagrams come there.
    pub listen: Option<NetworkAddress>,
    /// It listens at this TCP address, and is called until it answers.
    pub connect: Option<NetworkAddress>,
    /// It is read from a file or a capture, from standard input (`-`), or from a FIFO that is made where there is none (`fifo:PATH`).
    pub input: Option<InputChoice>,
    /// Of a capture that is its input: which packets are its own.
    pub packets: Option<PacketsTable>,
    /// A program is started with these arguments, and what it writes to its standard output is the source's.
    pub program: Option<Vec<String>>,
    /// How its frames are found, where a layout describes them; the keys up to `checksum` belong to it.
    pub frame: Option<FrameChoice>,
    /// Bytes that all its frames have.
    #[serde(rename = "match")]
    pub matches: Option<PatternTable>,
    /// What tells the boards apart, where several send to the same place.
    pub demux: Option<DemuxTable>,
    /// The number of the event in a frame.
    pub event: Option<EventTable>,
    /// The clock in a frame.
    pub time: Option<TimeTable>,
    /// The number of the board in a frame.
    pub board: Option<BoardTable>,
    /// The trigger type in a frame.
    pub trigger_type: Option<NumberTable>,
    /// The frame's own number: a gap is a lost frame.
    pub sequence: Option<NumberTable>,
    /// What the board says of its health.
    pub status: Option<StatusTable>,
    /// The checksum of a frame.
    pub checksum: Option<ChecksumTable>,
    /// A library of one's own says into which events or hits its frames fall apart.
    pub splitter: Option<SplitterSection>,
    /// Frames of one event that follow each other are one fragment; as its format has it where nothing is given.
    pub gather: Option<bool>,
    /// How long the next one of them is waited for.
    #[serde(default = "super::gathering::timeout")]
    pub gather_timeout: Time,
    /// How many of its datagrams wait at a time for others that they overtook; 0 where none does.
    #[serde(default = "super::layout::reorder")]
    pub reorder: u8,
    /// How long each of them waits.
    #[serde(default = "super::layout::reorder_timeout")]
    pub reorder_timeout: Time,
    /// What came last is kept, and saved when something is wrong with it.
    pub black_box: Option<BlackBoxSection>,
    /// An emulator takes its place, whichever way it comes.
    #[serde(default, deserialize_with = "EmulateChoice::deserialize")]
    #[schemars(with = "Option<EmulateChoice>")]
    pub emulate: Option<Emulate>,
    /// This file takes its place: bare S-LINK64 fragments, played over TCP.
    pub play: Option<PathBuf>,
    /// It has no connection, but is an e-link of a card.
    pub felix: Option<ELinkSection>,
    /// It is a program of one's own that run control configures, starts and stops.
    #[serde(default)]
    pub controlled: bool,
    /// What it is configured with: a table, or a text of any form.
    pub settings: Option<Settings>,
}

impl SourceSection {
    /// Its name, or one that is made of its id.
    pub fn name_or_id(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("source-{}", self.id))
    }

    /// Whether run control speaks with it. Where an emulator takes its place there is nobody to speak with.
    pub const fn is_under_run_control(&self) -> bool {
        self.controlled && self.emulate.is_none()
    }

    /// Whether it sends datagrams.
    pub const fn comes_in_datagrams(&self) -> bool {
        matches!(self.listen, Some(NetworkAddress::Udp(..) | NetworkAddress::Ip(..)))
    }

    /// Whether it is read from a file or from a program: it ends with that.
    pub const fn is_read(&self) -> bool {
        self.input.is_some() || self.program.is_some()
    }
}

/// Whether an event needs the source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequirementChoice {
    /// An event without it is incomplete.
    #[default]
    Required,
    /// It is taken where it is there.
    Optional,
    /// It is read and thrown away.
    Masked,
}

/// What follows a run that ends by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ThenChoice {
    /// The next one begins.
    Next,
    /// The next one is set up, and begins when somebody starts it; under run control alone.
    Wait,
    /// Nothing: the program ends.
    Over,
}

/// What a closed connection means.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnCloseChoice {
    /// The source is done.
    End,
    /// It may come back: its fragments are waited for until the time-out.
    #[default]
    Wait,
}

/// How a source's bunch crossing compares with the others'.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BunchCrossing {
    /// Added before the comparison.
    pub offset: i16,
    /// Bits that are compared; 0 compares none.
    pub mask: u16,
}

impl Default for BunchCrossing {
    fn default() -> Self {
        Self { offset: 0, mask: 0xfff }
    }
}

/// How long to wait before something counts as missing: readout < builder < manager < drain.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutSection {
    /// A source that is read says nothing for the oldest incomplete event.
    pub readout: Time,
    /// A readout unit does not answer a request, though it answers later ones.
    pub builder: Time,
    /// A readout unit says nothing about an event that others hold, though it can be reached.
    pub manager: Time,
    /// A readout unit cannot be reached, and is not known to be dead.
    pub unreachable: Time,
    /// After the stop, for everything that is left.
    pub drain: Time,
    /// A source that starts its numbering again waits so long for the trigger source to declare it.
    pub resync: Time,
    /// A front end under run control does not answer a command.
    pub front_end: Time,
    /// Everything that a run needs is not set up.
    pub prepare: Time,
    /// A run that was started does not begin.
    pub begin: Time,
    /// A run that is over is not closed.
    pub close: Time,
    /// An operator who holds the controls gives no sign.
    pub operator: Time,
}

impl Default for TimeoutSection {
    fn default() -> Self {
        Self {
            readout: Time(Duration::from_secs(2)),
            builder: Time(Duration::from_secs(5)),
            manager: Time(Duration::from_secs(10)),
            unreachable: Time(Duration::from_secs(600)),
            drain: Time(Duration::from_secs(20)),
            resync: Time(Duration::from_secs(1)),
            front_end: Time(Duration::from_secs(10)),
            prepare: Time(Duration::from_secs(600)),
            begin: Time(Duration::from_secs(120)),
            close: Time(Duration::from_secs(600)),
            operator: Time(Duration::from_secs(1800)),
        }
    }
}

/// The watch over sources that slip against each other.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SynchronySection {
    /// What a displaced source leads to.
    pub action: SynchronyAction,
    /// The source that the others are compared with; otherwise the first with a usable key.
    pub reference: Option<u32>,
    /// Events over which a relation is judged.
    pub window: u32,
}

impl Default for SynchronySection {
    fn default() -> Self {
        Self { action: SynchronyAction::default(), reference: None, window: 128 }
    }
}

/// What a displaced source leads to.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SynchronyAction {
    /// Nobody looks.
    Off,
    /// Its fragments are flagged, the verdict is reported.
    #[default]
    Flag,
    /// The run pauses as well.
    Pause,
    /// The run stops as well.
    Stop,
}

/// Where threads run.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThreadRule {
    /// A regular expression over the thread's name.
    #[serde(rename = "match")]
    pub pattern: String,
    /// The CPUs that it may run on, such as `0` or `2-5,8`.
    pub cpus: Option<String>,
    /// The NUMA node that its own memory comes from, and on whose CPUs it runs where none are given.
    pub node: Option<u32>,
    /// Each thread that matches takes one of the CPUs, in turn.
    #[serde(default)]
    pub in_turn: bool,
    /// How it takes its turn among the threads of the machine.
    pub scheduling: Option<SchedulingChoice>,
    /// The priority of `fifo` and `rr`, 1 (lowest) to 99.
    pub priority: Option<u8>,
}

/// How a thread takes its turn among the threads of the machine.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchedulingChoice {
    /// As all others.
    Other,
    /// As all others, but never ahead of one that just woke up.
    Batch,
    /// When nobody else wants the CPU.
    Idle,
    /// Real-time: before all others, until it sleeps.
    Fifo,
    /// Real-time, taking turns with others of its priority.
    Rr,
}

/// Where memory lies.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolRule {
    /// A regular expression over the pool's name.
    #[serde(rename = "match")]
    pub pattern: String,
    /// The NUMA node that it lies on.
    pub node: Option<u32>,
    /// Its pages stay in memory.
    #[serde(default)]
    pub lock: bool,
}

fn any_port() -> String {
    "127.0.0.1:0".to_owned()
}

const fn readout_pool() -> Bytes {
    Bytes(128 << 20)
}

const fn readout_block() -> Bytes {
    Bytes(256 << 10)
}

const fn window() -> u32 {
    4096
}

const fn capacity() -> u32 {
    1 << 15
}

const fn slots() -> u32 {
    2048
}

const fn credit_bytes() -> Bytes {
    Bytes(64 << 20)
}

const fn max_fragment() -> Bytes {
    Bytes(4 << 20)
}
