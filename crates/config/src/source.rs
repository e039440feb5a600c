//! `[[source]]`: a front end, how its data arrive, and what its frames say.
//!
//! Beside the section itself: its keys `format`, `emulate`, `splitter`, `gather` and `gather_timeout`, and the number
//! of each source's first event. `entrance` has its input, `layout` the layout of its frames.

mod entrance;
mod layout;

pub use self::entrance::{NetworkAddress, PacketsTable, Settings, SourceInput};
pub(super) use self::entrance::{check_controlled, check_entrance, check_shared};
pub(super) use self::layout::check as check_layout;
pub use self::layout::{
    BoardChoice, BoardTable, BoardsChoice, BytesChoice, ChecksumName, ChecksumTable, CountsChoice, DemuxTable,
    EventTable, FrameChoice, FrameTable, LengthTable, NumberTable, NumberType, NumbersChoice, PatternTable,
    PeerOrPlace, PiecesTable, StatusTable, Tick, TimeTable, TrailerTable,
};

use super::error::{Faults, no_such};
use super::felix::ELinkSection;
use crate::quantity::{ByteOrigin, Bytes, Form, Rate, Size, SizeDistribution, Time, read_from_text};
use ropewalk_flow::readout::{GATHER_TIMEOUT, OnClose};
use ropewalk_plugin::Keys;
use ropewalk_terms::Requirement;
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::framing::Framing;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A front end.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
pub struct SourceSection {
    /// Name for people; the run files contain it. Without it: `source-ID`.
    pub name: Option<String>,
    /// Source id in the fragments; 0 to 4095 for `ferol`. A fragment with another id counts as `wrong_source`. Ids are
    /// unique in a run. The three highest 32-bit numbers are reserved for what is stored beside fragments.
    pub id: u32,
    /// Name of the readout unit that the source belongs to.
    pub readout: String,
    /// Data format. `"ferol"`: CMS FED fragments in FEROL blocks. `"generic"`: [generic
    /// fragments](generic-fragment.md), for front ends of your own. Or another [format by its name](formats.md), such
    /// as `"midas"`, `"fed"` or `"dune"`; the source then needs an input of its own (`listen`, `connect`, `input` or
    /// `program`).
    #[serde(default)]
    pub format: FormatName,
    /// Whether an event needs the source.
    #[serde(default)]
    pub requirement: Requirement,
    /// The source is the trigger source: only it opens events and declares resynchronisations. A run has at most one.
    #[serde(default)]
    pub trigger: bool,
    /// Value of the source's counter in the first event of the run, which becomes event 1. Without it: 1; for `eudaq`
    /// 0; for `srs`, whose counter runs free, the number of the first frame. Counting also begins at another number if
    /// it is not given and the sources agree on one. `config check` prints the number and the reason. With a wrong
    /// number the fragments belong to other events than you think.
    pub first: Option<u64>,
    /// Width of the source's counter, 8 to 64 bits; it wraps after that. Without it: 24 for `ferol`, 64 for `generic`
    /// and with a `splitter`, otherwise as the format says.
    pub counter_bits: Option<u8>,
    /// Longest accepted fragment, or chunk of an e-link, 16 B to 1 GiB. If a fragment is longer, the connection is
    /// closed (`oversize`). A larger value needs more room in `pool`. A whole event is written up to 1 GiB; a larger
    /// one is dropped (`too_large`), and `config check` warns if the sources together allow one.
    #[serde(default = "max_fragment")]
    pub max_fragment: Bytes,
    /// What the end of the source's connection means. A source with `input` or `program` always acts as with `"end"`.
    #[serde(default)]
    pub on_close: OnClose,
    /// How the source's bunch crossing is compared with those of other sources.
    #[serde(default)]
    pub bunch_crossing: BunchCrossing,
    /// The source has an address of its own: a connection to it, or datagrams that arrive there, are the source. TCP:
    /// `"tcp://127.0.0.1:5000"`; with port 0 the system chooses a free port, and the program prints it. UDP:
    /// `"udp://0.0.0.0:9000"`; `"udp://239.1.2.3:9000@10.0.0.7"` joins a multicast group on the interface with the
    /// second address. A host may be a name; it is resolved at the start, to IPv4 if it has both. It may be an IPv6
    /// address: `"udp://[::1]:9000"`, `"udp://[::]:9000"` for both versions of IP, `"udp://[ff12::9%eth0]:9000"`,
    /// `"udp://[ff15::9]:9000@2001:db8::7"`. `"ip://10.0.0.5/253"` receives datagrams directly over IP. Datagrams
    /// cannot be held back: those that find no room are lost and counted (`datagrams.lost` in the account of the run),
    /// and those that arrive before the run are stale. Without any input of its own the source connects to `listen` of
    /// its readout unit and identifies itself.
    listen: Option<NetworkAddress>,
    /// The board listens: Ropewalk connects to this TCP address, such as `"tcp://daqpc2:5000"`. It tries until the
    /// board answers. After a disconnect it connects again, or the source ends (`on_close = "end"`).
    connect: Option<NetworkAddress>,
    /// The source is read from a file, from standard input (`"-"`), or from a FIFO (`"fifo:/run/board"`). The FIFO is
    /// created if it does not exist. The source ends with its input. Compressed files (gzip, bzip2, xz, zstd, lz4) are
    /// decompressed. From a capture (pcap, pcapng) the datagrams or one connection are read, as the frames of the
    /// source arrive: the first that carries anything, among those that `packets` selects. Several sources with the
    /// same `input` and `packets` get one connection each, in the order in which the connections begin. A connection
    /// that ends and begins again between the same machines continues. If a file does not exist or is not readable, the
    /// program ends with status 2 before the run begins. A file that breaks off is read up to there; the status is 3,
    /// and `inputs` in [run.json](run-json.md) says where.
    #[serde(rename = "input")]
    file: Option<ByteOrigin>,
    /// Selects packets of a capture that is the `input`. Without it: all packets. For example `{ port = 9000, from =
    /// "192.168.10.1" }`. The end of the run names what else the capture contains: ICMP errors (`icmp`), fragments of
    /// datagrams (`ip_fragment`; the whole datagram arrives with the last one), `other_port`, `other_address`,
    /// `other_protocol`, and `other_connection` with the addresses of connections that no source reads. Boards that
    /// `demux` tells apart share one reading of the file if they have the same `input` and `packets`.
    packets: Option<PacketsTable>,
    /// A program is started with these arguments, such as `["ssh", "board7", "read-out"]`, and its standard output is
    /// the source. The source ends when the program ends. When the run stops, the program gets SIGTERM.
    program: Option<Vec<String>>,
    /// How frames are found, for a board whose format a [layout](layouts.md) describes instead of `format`.
    pub frame: Option<FrameChoice>,
    /// Bytes that every frame contains, at most 8. In a stream Ropewalk searches for them after a loss. Where the frame
    /// is known in another way, a frame without them counts as `not_matched`.
    #[serde(rename = "match")]
    pub matches: Option<PatternTable>,
    /// How to distinguish boards that send to the same port, or whose frames are in the same file. Write one
    /// `[[source]]` for each board, with the same `listen` (or `input`) and the same `demux`. Without `is`, the sources
    /// are the boards in the order in which these appear. Frames of a board that no source names belong to no source.
    /// Datagrams of such boards are counted (`datagrams.nobodys` in the account of the run); frames of a file are
    /// counted by board in a warning at the end of the run. Bytes of a file that belong to no frame count for the first
    /// of its sources. For a named format (`format = "srs"`), use `"ip.source"` or `"frame.source"` to distinguish
    /// boards. Events of one MIDAS id have consecutive serial numbers, which are then the numbers of the events.
    pub demux: Option<DemuxTable>,
    /// The event number: one field, or several in `fields`, 8 to 64 bits together. Without it the frame's own
    /// `sequence` is the event number; without both, frames are numbered as they arrive, from 1.
    pub event: Option<EventTable>,
    /// The clock: one field, or several in `fields`. The time of a fragment is in nanoseconds, and does not wrap where
    /// the field does: a source that was silent for longer than one wrap is placed by its arrival time.
    pub time: Option<TimeTable>,
    /// The number of the board. If it differs from `is`, the fragment is flagged (*wrong source*).
    pub board: Option<BoardTable>,
    /// The trigger type, up to 16 bits.
    pub trigger_type: Option<NumberTable>,
    /// The number of the frame itself; a gap means lost frames. The first number may be any. Gaps count as
    /// `frames_missing` until the frame arrives after all; a run that has any ends with status 3. Repeated and
    /// overtaken frames count as `frames_out_of_order`. If a board restarts its counter, this counts as a restart, not
    /// as a loss. A single wrong number is not a gap. A counter of n bits does not show a gap of 2^n. Datagrams that
    /// overtake each other are put in order (`reorder`).
    pub sequence: Option<NumberTable>,
    /// What the board says about its state.
    pub status: Option<StatusTable>,
    /// The checksum of the frame. If it is wrong, the fragment is flagged. Within its own range the checksum counts as
    /// zero.
    pub checksum: Option<ChecksumTable>,
    /// A library in C divides each frame into several events or hits ([splitters.md](splitters.md)). It needs `frame`,
    /// or a `format` other than `ferol` and `generic`. `counter_bits` is 64 then unless it is given. An emulator in
    /// place of the source sends frames of one event each.
    pub splitter: Option<SplitterSection>,
    /// Consecutive frames with the same event number form one fragment, one behind the other as they arrived. Examples
    /// are pages of one orbit and packets of one pulse. Without it: `true` for `alice` and `dune`, otherwise `false`.
    /// It needs `frame` and `event`, or a `format` other than `ferol` and `generic` ([several
    /// frames](layout-fields.md#an-event-in-several-frames)).
    pub gather: Option<bool>,
    /// How long to wait for the next frame of an event, at least 1 ms. It applies where the last frame has no mark and
    /// no other event begins; events are delayed by it. A frame that arrives later counts as `late`.
    #[serde(default = "gather_timeout")]
    pub gather_timeout: Time,
    /// How many datagrams wait for others that they overtook, 0 to 32; 0 switches it off. It applies to datagrams whose
    /// frames have a `sequence`, or whose event numbers are consecutive; they continue in order. For a source with
    /// [growing numbers](layout-fields.md#growing-numbers), over any transport: by how many others a frame may be
    /// overtaken.
    #[serde(default = "layout::reorder")]
    pub reorder: u8,
    /// How long each of them waits. A datagram that arrives later counts as `late` if its event has left.
    #[serde(default = "layout::reorder_timeout")]
    pub reorder_timeout: Time,
    /// Keeps the latest bytes of the source, and saves them when something goes wrong, such as `{ last = "2s", max =
    /// "16MiB" }`. What goes wrong is a lost frame, a wrong checksum, bytes that are no frame, or a gap in the source's
    /// own numbers. The files are in `black-box/` of the run directory; those of a readout unit that is a separate
    /// process are in `run.output`. Datagrams are saved as pcapng, a stream as bytes from the beginning of a frame.
    /// `ropewalk source test` and `replay --by` read both. It saves at most every 10 s and 16 times in a run; the end
    /// of the run names the files. It copies every byte and takes twice `max` of memory ([black
    /// box](front-ends.md#record-rare-faults-the-black-box)).
    pub black_box: Option<BlackBoxSection>,
    /// An emulator replaces the source, whatever its input and frames: `true`, or a table. The address, file or program
    /// of the source is then not needed and not used. Events are numbered from `first`, and the trigger times are the
    /// same in every source. All emulators of a run should have the same rate. Beside real sources choose the rate of
    /// their trigger: events wait for a late source no longer than `timeouts.readout`.
    #[serde(default, deserialize_with = "EmulateChoice::deserialize")]
    #[schemars(with = "Option<EmulateChoice>")]
    pub emulate: Option<Emulate>,
    /// A file of bare S-LINK64 fragments replaces the source; it is played over TCP as fast as possible.
    play: Option<PathBuf>,
    /// The source is an e-link of a link card, such as `{ card = "flx0", elink = 8 }`; it has no connection. `format`,
    /// `counter_bits`, `emulate` and `play` are not allowed then, and `max_fragment` is the longest chunk.
    felix: Option<ELinkSection>,
    /// The source is a program of yours that run control configures, starts and stops
    /// ([own-programs.md](own-programs.md)). It connects to `run.front_ends` and sends `generic` fragments; its first
    /// event is 1. A start waits until it is connected and ready, unless its `requirement` is not `"required"`. With
    /// `emulate` the emulator replaces it.
    #[serde(default)]
    controlled: bool,
    /// Settings for a `controlled` source: a table `[source.settings]`, passed on as TOML, or a text of any form. At
    /// most 60 KiB.
    settings: Option<Settings>,
    /// Its one input, which takes the place of the keys `listen`, `connect`, `input`, `packets`, `program`, `play`,
    /// `felix`, `controlled` and `settings`.
    #[serde(skip)]
    pub input: SourceInput,
}

impl<'de> Deserialize<'de> for SourceSection {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // With `remote`, serde derives a method of this name, which reads the keys.
        let mut source = Self::deserialize(from)?;
        source.input = source.take_input().unwrap_or_default();
        Ok(source)
    }
}

impl SourceSection {
    /// Moves the keys of one input out of the section; [`check_input`] refuses the keys that remain.
    fn take_input(&mut self) -> Option<SourceInput> {
        let link = self.felix.take().map(SourceInput::Card);
        link.or_else(|| std::mem::take(&mut self.controlled).then(|| SourceInput::Controlled(self.settings.take())))
            .or_else(|| self.listen.take().map(SourceInput::Listen))
            .or_else(|| self.connect.take().map(SourceInput::Connect))
            .or_else(|| Some(SourceInput::File(self.file.take()?, self.packets.take().unwrap_or_default())))
            .or_else(|| self.program.take().map(SourceInput::Program))
            .or_else(|| self.play.take().map(SourceInput::Played))
    }

    /// Its name; without one, a name made of its id.
    pub fn name_or_id(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("source-{}", self.id))
    }

    /// Whether run control configures the source. An emulator in its place is not configured.
    pub const fn is_under_run_control(&self) -> bool {
        matches!(self.input, SourceInput::Controlled(_)) && self.emulate.is_none()
    }

    /// Whether it sends datagrams.
    pub const fn comes_in_datagrams(&self) -> bool {
        matches!(self.input, SourceInput::Listen(NetworkAddress::Udp(..) | NetworkAddress::Ip(..)))
    }

    /// Whether it reads a file or the output of a program, and ends with it.
    pub const fn is_read(&self) -> bool {
        matches!(self.input, SourceInput::File(..) | SourceInput::Program(_))
    }

    /// Whether the run itself sends its data: emulated, or played from a file.
    pub const fn is_made_here(&self) -> bool {
        self.emulate.is_some() || matches!(self.input, SourceInput::Played(_))
    }
}

/// Refuses the keys of further inputs, and keys that belong to another input.
pub(super) fn check_input(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    let mut rest = source.clone();
    while let Some(input) = rest.take_input() {
        let message = format!("it has `{}` already; a source has one input", source.input.key());
        faults.add(key(input.key()), message);
    }
    if rest.packets.is_some() {
        faults.add(key("packets"), "it says which packets of a capture are meant: `input = \"run7.pcapng\"`");
    }
    if rest.settings.is_some() {
        faults.add(key("settings"), "only a source with `controlled = true` is sent settings");
    }
}

/// How a source's bunch crossing is compared with those of other sources.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BunchCrossing {
    /// Number that is added before the comparison.
    pub offset: i16,
    /// Bits that are compared; 0 compares none.
    pub mask: u16,
}

impl Default for BunchCrossing {
    fn default() -> Self {
        Self { offset: 0, mask: 0xfff }
    }
}

const fn max_fragment() -> Bytes {
    Bytes(4 << 20)
}

/// The data format of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum FormatName {
    /// CMS FED fragments in FEROL blocks.
    #[default]
    Ferol,
    /// Generic fragments (`docs/generic-fragment.md`).
    Generic,
    /// Another format by its name (`docs/formats.md`).
    Foreign(ForeignFormat),
}

const FORMAT: &str = "\"ferol\", \"generic\", or the name of another experiment's format, such as \"midas\" or \"fed\"";

impl FormatName {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ferol => "ferol",
            Self::Generic => "generic",
            Self::Foreign(format) => format.name(),
        }
    }

    /// Whether a frame of it holds several events, into which it is divided without a splitter.
    pub const fn has_several_events(self) -> bool {
        matches!(self, Self::Foreign(format) if format.has_several_events())
    }
}

impl FromStr for FormatName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "ferol" => Ok(Self::Ferol),
            "generic" => Ok(Self::Generic),
            _ => ForeignFormat::by_name(name).map(Self::Foreign).ok_or_else(|| {
                let names = ForeignFormat::ALL.iter().map(|format| format.name());
                no_such("format is named", name, ["ferol", "generic"].into_iter().chain(names))
            }),
        }
    }
}

read_from_text!(
    FormatName: FORMAT => Form::names(
        ["generic"].into_iter().chain(ForeignFormat::ALL.iter().map(|format| format.name()))
    )
);

impl Serialize for FormatName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// An emulated front end.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Emulate {
    /// Size of the whole fragment, header and trailer included; fixed or a distribution. At least 16 bytes and a
    /// multiple of 8. Described frames are as near to it as their description allows.
    pub fragment_size: Size,
    /// Trigger rate. Without it: as fast as possible.
    pub rate: Option<Rate>,
    /// Events in a packet, only for `lhcb-mep`. Without it: 10, or fewer if the packet would be too long. Events wait
    /// until their packet is full.
    pub packing: Option<u16>,
}

impl Emulate {
    /// Events in a frame that holds several.
    pub fn packing(&self) -> u16 {
        self.packing.unwrap_or(10)
    }
}

/// The first thing that is wrong with the emulator of a source.
pub(super) fn check_emulated(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    match source.emulate.as_ref().and_then(|emulate| emulate.packing) {
        None => {}
        Some(_) if source.has_layout() || !source.format.has_several_events() => {
            let message =
                "frames of this source hold one event each: leave it out, or give a format such as `lhcb-mep`";
            faults.add(key("emulate.packing"), message)
        }
        Some(0) => faults.add(key("emulate.packing"), "how many events a frame holds, 1 or more"),
        Some(_) => {}
    }
}

impl Default for Emulate {
    fn default() -> Self {
        Self { fragment_size: Size(SizeDistribution::Fixed(2048)), rate: None, packing: None }
    }
}

/// In a file: `true`, `false`, or a table.
pub(super) struct EmulateChoice;

const EMULATE: &str = "true, false, or a table such as { fragment_size = \"1KiB\", rate = \"1kHz\" }";

impl EmulateChoice {
    /// Reads it; `None` if nothing is emulated.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Emulate>, D::Error> {
        from.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for EmulateChoice {
    type Value = Option<Emulate>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(EMULATE)
    }

    fn visit_bool<E: Error>(self, is_emulated: bool) -> Result<Option<Emulate>, E> {
        Ok(is_emulated.then(Emulate::default))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Option<Emulate>, A::Error> {
        Emulate::deserialize(MapAccessDeserializer::new(map)).map(Some)
    }
}

impl JsonSchema for EmulateChoice {
    fn schema_name() -> Cow<'static, str> {
        "EmulateChoice".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<Emulate>();
        json_schema!({ "description": EMULATE, "anyOf": [table, { "type": "boolean" }] })
    }
}

/// What is kept of the data of a source, to be saved when something is wrong with it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BlackBoxSection {
    /// Nothing older than this is kept.
    pub last: Time,
    /// At most this much is kept, 4 KiB to 1 GiB.
    pub max: Bytes,
}

impl Default for BlackBoxSection {
    fn default() -> Self {
        Self { last: Time(Duration::from_secs(2)), max: Bytes(16 << 20) }
    }
}

/// The first thing that is wrong with the black box of a source.
pub(super) fn check_black_box(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    let Some(black_box) = &source.black_box else { return };
    if source.link().is_some() {
        let message =
            "what an e-link sends lies in the ring of its card; only a source with a way in of its own has a black box";
        faults.add(key("black_box"), message);
    }
    if !(4096..=1 << 30).contains(&black_box.max.0) {
        faults.add(key("black_box.max"), "between 4KiB and 1GiB are kept, and twice as much memory is taken");
    }
    if black_box.last.0.is_zero() {
        faults.add(key("black_box.last"), "how much time is kept at most, such as \"2s\"");
    }
}

/// A library that divides the frames of a source into events or hits (`docs/splitters.md`).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SplitterSection {
    /// The shared library.
    pub library: PathBuf,
    /// Text that is passed to the library when it begins.
    #[serde(default)]
    pub configuration: String,
    /// What identifies the pieces of a frame.
    #[serde(default)]
    pub keys: Keys,
    /// The library runs in the thread that reads the source; it can then do any harm.
    #[serde(default)]
    pub trusted: bool,
    /// How long its process may take for a frame, at least 1 ms.
    #[serde(default = "timeout")]
    pub timeout: Time,
    /// Memory that its process may take besides what it shares, at least 1 MiB.
    #[serde(default = "memory")]
    pub memory: Bytes,
    /// Pause before another process is started.
    #[serde(default = "restart_delay")]
    pub restart_delay: Time,
    /// Number of processes that are started again within a minute, 1 to 1000.
    #[serde(default = "restarts")]
    pub restarts: u32,
}

const fn timeout() -> Time {
    Time(Duration::from_secs(1))
}

const fn memory() -> Bytes {
    Bytes(256 << 20)
}

const fn restart_delay() -> Time {
    Time(Duration::from_millis(100))
}

const fn restarts() -> u32 {
    10
}

impl SourceSection {
    /// The splitter that its frames go through. An emulator in its place sends frames of one event each.
    pub const fn own_splitter(&self) -> Option<&SplitterSection> {
        match &self.emulate {
            None => self.splitter.as_ref(),
            Some(_) => None,
        }
    }
}

/// The first thing that is wrong with the splitter of a source.
pub(super) fn check_splitter(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    let Some(splitter) = &source.splitter else { return };
    match source.format {
        _ if source.has_layout() => {}
        FormatName::Foreign(format) if source.format.has_several_events() => {
            let message = format!("frames of `{}` are divided without one: leave it out", format.name());
            faults.add(key("splitter"), message);
        }
        FormatName::Foreign(_) => {}
        FormatName::Ferol | FormatName::Generic => {
            let message =
                "it divides frames that a layout describes, or a format by its name: give `frame` or `format`";
            faults.add(key("splitter"), message);
        }
    }
    let is_growing = source.event.as_ref().is_some_and(EventTable::grows);
    if is_growing && splitter.keys == Keys::Events {
        let message = "numbers that grow are times here: `keys = \"times\"`";
        faults.add(key("splitter.keys"), message);
    } else if source.event.is_some() && source.own_splitter().is_some_and(|splitter| splitter.keys == Keys::Events) {
        let message = "the splitter gives the numbers of events: leave `event` out, and give `counter_bits` and `first` if needed";
        faults.add(key("event"), message);
    }
    if splitter.timeout.0 < Duration::from_millis(1) {
        faults.add(key("splitter.timeout"), "how long it may take over a frame, 1ms or more");
    }
    if splitter.memory.0 < 1 << 20 {
        faults.add(key("splitter.memory"), "at least 1MiB, of which it has to live");
    }
    if !(1..=1000).contains(&splitter.restarts) {
        faults.add(key("splitter.restarts"), "1 to 1000 within a minute");
    }
}

/// The default wait for the next frame of an event.
const fn gather_timeout() -> Time {
    Time(GATHER_TIMEOUT)
}

impl SourceSection {
    /// How long a fragment waits for more frames of its event; `None` if each frame is a fragment.
    pub fn gathering(&self) -> Option<Duration> {
        let usual = match self.format {
            FormatName::Foreign(format) => format.comes_in_several_frames() && !self.has_layout(),
            FormatName::Ferol | FormatName::Generic => false,
        };
        self.gather.unwrap_or(usual && self.own_splitter().is_none()).then_some(self.gather_timeout.0)
    }
}

/// The first thing that is wrong with how the frames of a source are gathered.
pub(super) fn check_gathering(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    if source.gather == Some(true) {
        let what = match source.description() {
            None => "the frames of a layout or of a format with a name are gathered: give `frame` or another `format`",
            Some(_) if source.splitter.is_some() => "frames that are divided are not gathered: leave one of both out",
            Some(description) if description.splitter().is_some() => "frames of several events each are not gathered",
            Some(description) if !description.has_event() => {
                "frames are gathered by the numbers of their events, and these have none: give `event`"
            }
            Some(_) => "",
        };
        if !what.is_empty() {
            faults.add(key("gather"), what);
        }
    }
    if source.gather_timeout.0 < Duration::from_millis(1) {
        faults.add(key("gather_timeout"), "how long the next frame of an event is waited for, 1ms or more");
    }
}

impl SourceSection {
    /// Its counter in the run's first event.
    pub fn first_event(&self) -> u64 {
        self.given_first_event().or(self.format_first()).unwrap_or(1)
    }

    /// The same if the configuration gives it.
    pub fn given_first_event(&self) -> Option<u64> {
        self.event.as_ref().and_then(|event| event.first).or(self.first)
    }

    /// The first number of formats that do not count from 1.
    fn format_first(&self) -> Option<u64> {
        match self.format {
            FormatName::Foreign(format) if !self.has_layout() => Some(format.first()).filter(|&first| first != 1),
            _ => None,
        }
    }

    /// Whether its own counter continues from run to run, and the configuration gives no first number.
    pub fn runs_free(&self) -> bool {
        let is_open = self.given_first_event().is_none() && self.emulate.is_none() && !self.is_under_run_control();
        is_open && !self.numbers_grow() && self.description().is_some_and(|description| description.runs_free())
    }

    /// Whether its fragments may have a time, and a bunch crossing: they show a slip against other sources. Emulated
    /// sources never slip, and numbers that grow are times themselves.
    pub(super) fn step_keys(&self) -> [bool; 2] {
        let has_crossing = self.bunch_crossing.mask != 0;
        let may_have_both = self.emulate.is_some() || self.splitter.is_some() || self.link().is_some();
        match self.format {
            _ if may_have_both || self.numbers_grow() => [true; 2],
            _ if self.has_layout() => [self.time.is_some(), false],
            FormatName::Ferol | FormatName::Foreign(ForeignFormat::Fed | ForeignFormat::Ferol) => [false, has_crossing],
            FormatName::Generic | FormatName::Foreign(_) => [true, has_crossing],
        }
    }

    /// The number of its first event, and why it is that, for people.
    pub(super) fn first_text(&self) -> String {
        let description = self.description();
        if let Some(first) = self.given_first_event() {
            return format!("{first}, as `first` says");
        }
        if self.numbers_grow() {
            return "any: its numbers grow, and events are numbered in their order".to_owned();
        }
        if self.runs_free() {
            return "that of the first frame: its counter runs free".to_owned();
        }
        if description.as_ref().is_some_and(|description| !description.has_event() && !self.has_layout()) {
            return "1: its frames are counted as they come".to_owned();
        }
        match (self.format_first(), self.format) {
            (Some(first), FormatName::Foreign(format)) => {
                format!("{first}, as {} counts; `first` changes it", format.name())
            }
            _ => "1, or the number that all sources begin with; `first` changes it".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;

    fn lines(sources: &str) -> Vec<String> {
        let text = format!("version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n{sources}");
        parse("test.toml", &text, &|_: &str| None).expect("a good configuration").first_lines()
    }

    fn source(id: u32, keys: &str) -> String {
        format!("[[source]]\nid = {id}\nreadout = \"ru0\"\ninput = \"some.raw\"\n{keys}\n")
    }

    #[test]
    fn sources_in_which_a_slip_stays_unseen_are_named_with_what_they_lack() {
        let board = |id, keys: &str| {
            let layout = "frame = { length = { at = 0, type = \"u16le\" } }\nevent = { at = 4, type = \"u32le\" }";
            source(id, &format!("{layout}\n{keys}"))
        };
        let time = "time = { at = 8, type = \"u32le\", tick = \"10ns\" }";
        let step = |sources: &[String], more: &str| {
            let text = format!(
                "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n{}{more}",
                sources.concat()
            );
            parse("test.toml", &text, &|_: &str| None).expect("a good configuration").unchecked_step()
        };
        let two = |one: &str, two: &str| step(&[board(1, one), board(2, two)], "");
        let lacks = "neither `time` nor a bunch crossing";
        assert_eq!(two(time, time), None);
        assert_eq!(two(time, "emulate = true"), None);
        assert_eq!(two("emulate = true", "emulate = true"), None);
        assert_eq!(two(time, ""), Some(format!("step not checked: source-2 has {lacks}")));
        assert_eq!(two("", ""), Some(format!("step not checked: source-1, source-2 have {lacks}")));
        assert_eq!(step(&[board(1, "")], ""), None, "there is nothing to compare it with");
        assert_eq!(step(&[board(1, ""), board(2, "")], "[synchrony]\naction = \"off\"\n"), None);
        let fed = |id| source(id, "format = \"fed\"");
        assert_eq!(step(&[fed(1), fed(2)], ""), None);
        let apart = "step not checked: source-3 has no `time` or bunch crossing in common with source-1";
        assert_eq!(step(&[fed(1), fed(2), board(3, time)], ""), Some(apart.to_owned()));
        let reference = "[synchrony]\nreference = 3\n";
        let others = "step not checked: source-1, source-2 have no `time` or bunch crossing in common with source-3";
        assert_eq!(step(&[fed(1), fed(2), board(3, time)], reference), Some(others.to_owned()));
    }

    #[test]
    fn each_source_says_where_its_numbers_begin_and_why() {
        let eudaq = source(1, "format = \"eudaq\"");
        let given = source(2, "format = \"eudaq\"\nfirst = 7");
        let fed = source(3, "format = \"fed\"") + &source(4, "format = \"fed\"");
        let midas = source(5, "format = \"midas\"");
        assert_eq!(
            lines(&[eudaq, given, fed, midas].concat()),
            [
                "first event number 0, as eudaq counts; `first` changes it: source-1",
                "first event number 1, or the number that all sources begin with; `first` changes it: source-3, source-4",
                "first event number 1: its frames are counted as they come: source-5",
                "first event number 7, as `first` says: source-2",
            ]
        );
    }
}
