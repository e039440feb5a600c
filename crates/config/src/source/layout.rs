//! The layout of a board's frames: the keys `frame`, `match`, `demux`, `event`, `time`, `board`, `trigger_type`,
//! `sequence`, `status` and `checksum` of a source (`docs/layouts.md`).
//!
//! Every table is read unchanged and converted to a [`Layout`] of plain values; [`Plan::compile`] checks it, by the
//! same keys. Text in the tables is parsed here: widths of numbers, bytes, ticks, names of checksums.

mod tables;
#[cfg(test)]
mod tests;

use super::entrance::{NetworkAddress, SourceInput};
use super::{FormatName, SourceSection};
use crate::error::{Fault, Faults, first_fault};
use crate::quantity::{Form, Time, read_from_text, with_unit};
use ropewalk_flow::choosing::Chosen;
use ropewalk_flow::readout::DatagramLimits;
use ropewalk_flow::trial::OwnBoard;
use ropewalk_plugin::Keys;
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::{Counting, ForeignFormat};
use ropewalk_wire::layout::{
    CHECKSUM_KINDS, Checksum, ChecksumKind, Clock, Counts, End, Frame, Layout, Length, Number, Pattern, Pieces, Place,
    Plan, Size, Source, Status,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
pub use tables::{
    BoardChoice, BoardTable, BoardsChoice, ChecksumTable, CountsChoice, DemuxTable, EventTable, FrameChoice,
    FrameTable, LengthTable, NumberTable, NumbersChoice, PatternTable, PiecesTable, StatusTable, TimeTable,
    TrailerTable,
};
use tables::{open_frames, pieces_timeout};

impl SourceSection {
    /// Whether a layout describes what it sends.
    pub const fn has_layout(&self) -> bool {
        self.frame.is_some()
    }

    /// The layout of its frames, ready to be used; `None` without a layout. A fault's key is one of the source's.
    ///
    /// # Errors
    /// What is wrong with the layout.
    pub fn plan(&self) -> Result<Option<Plan>, Fault> {
        first_fault(|faults| self.checked_plan(faults))
    }

    /// The same, or everything that is wrong.
    fn checked_plan(&self, faults: &mut Faults) -> Option<Option<Plan>> {
        let Some(FrameChoice(frame)) = &self.frame else {
            if let Some(demux) = self.demux.as_ref().filter(|_| matches!(self.format, FormatName::Foreign(_))) {
                faults.keep(demux.number())?;
            }
            let mut orphans = self.layout_keys().into_iter().filter(|(_, is_given)| *is_given).peekable();
            let has_none = orphans.peek().is_none();
            let message = "it belongs to a layout, which begins with `frame`: how frames are found";
            orphans.for_each(|(key, _)| faults.add(key, message));
            return has_none.then_some(None);
        };
        let layout = self.layout(frame, faults)?;
        let wrong = |error: ropewalk_wire::layout::LayoutError| Fault::new(error.key, error.fault.to_string());
        faults.keep(Plan::compile(&layout).map(Some).map_err(wrong))
    }

    /// What describes its frames: its layout, or the format that it names. None for formats that say themselves whose
    /// they are.
    pub fn description(&self) -> Option<Description> {
        if let Ok(Some(plan)) = self.plan() {
            return Some(Arc::new(plan).into());
        }
        match (self.format, self.own_board()) {
            (FormatName::Ferol | FormatName::Generic, _) => None,
            (FormatName::Foreign(format), Some(OwnBoard::Numbers(boards)))
                if boards.len() == 1 && self.emulate.is_none() =>
            {
                Some(Description::Board(format, u32::try_from(boards[0]).unwrap_or(u32::MAX)))
            }
            (FormatName::Foreign(format), _) => Some(format.into()),
        }
    }

    /// Which frames of a stream of several boards are its own; `None` if it takes all of them.
    pub fn chosen(&self) -> Option<Chosen> {
        let board = self.own_board()?;
        let description = match (self.plan(), self.format) {
            (Ok(Some(plan)), _) => Arc::new(plan).into(),
            (_, FormatName::Foreign(format)) => format.into(),
            _ => return None,
        };
        let max_frame = usize::try_from(self.max_fragment.0).unwrap_or(usize::MAX);
        Some(Chosen { description, board, others: Vec::new(), is_first: true, max_frame })
    }

    /// Its board, if the configuration names it.
    pub fn named_board(&self) -> Option<OwnBoard> {
        let demux = self.demux.as_ref()?;
        let names = demux.is.as_ref()?.all().iter();
        Some(match demux.at {
            PeerOrPlace::Peer => OwnBoard::Addresses(names.filter_map(|name| name.address()).collect()),
            PeerOrPlace::Place(_) | PeerOrPlace::Frame => {
                OwnBoard::Numbers(names.filter_map(|name| name.number()).collect())
            }
        })
    }

    /// Its board in a stream of several, if a number in the frame distinguishes them. Without a name it is the first
    /// one that appears.
    fn own_board(&self) -> Option<OwnBoard> {
        let is_numbered = match self.demux.as_ref()?.at {
            PeerOrPlace::Peer => false,
            PeerOrPlace::Place(_) => self.has_layout() && !self.has_datagrams(),
            PeerOrPlace::Frame => !self.has_layout() && self.named_board().is_some(),
        };
        is_numbered.then(|| self.named_board().unwrap_or(OwnBoard::InOrder(0)))
    }

    /// The description of its frames for a recording of only the frames; also of FEROL blocks. None for generic
    /// fragments, which name their source once per connection.
    pub fn framing(&self) -> Option<Description> {
        let blocks = (self.format == FormatName::Ferol).then(|| ForeignFormat::Ferol.into());
        self.description().or(blocks)
    }

    /// The time-outs of its datagrams: for the other datagrams of a frame, and for overtaken datagrams.
    pub fn datagram_limits(&self) -> DatagramLimits {
        let pieces = self.frame.as_ref().and_then(|frame| frame.0.pieces.as_ref());
        // Numbers that only grow, or that several frames have, tell no order.
        let is_counted = !self.numbers_grow() && self.gathering().is_none();
        let counting = match self.description().map_or(Counting::Nothing, |description| description.counting()) {
            Counting::Events if !is_counted => Counting::Nothing,
            counting => counting,
        };
        DatagramLimits {
            pieces_timeout: pieces.map_or(pieces_timeout(), |pieces| pieces.timeout).0,
            open_frames: pieces.map_or(open_frames(), |pieces| pieces.open).into(),
            reorder: self.reorder.into(),
            reorder_timeout: self.reorder_timeout.0,
            counting,
        }
    }

    /// Whether its event numbers grow, but not one by one.
    pub fn numbers_grow(&self) -> bool {
        if let Some(splitter) = self.own_splitter() {
            return splitter.keys == Keys::Times;
        }
        match (&self.event, self.format) {
            (Some(event), _) if self.has_layout() => event.grows(),
            (_, FormatName::Foreign(format)) => format.numbers_grow() && !self.has_layout(),
            _ => false,
        }
    }

    /// The keys that have no effect without `frame`, and whether they are given. Boards of a named format may be
    /// distinguished by their addresses.
    fn layout_keys(&self) -> [(&'static str, bool); 9] {
        let is_named = matches!(self.format, FormatName::Foreign(_));
        [
            ("match", self.matches.is_some()),
            ("demux", self.demux.as_ref().is_some_and(|demux| !is_named || matches!(demux.at, PeerOrPlace::Place(_)))),
            ("event", self.event.is_some()),
            ("time", self.time.is_some()),
            ("board", self.board.is_some()),
            ("trigger_type", self.trigger_type.is_some()),
            ("sequence", self.sequence.is_some()),
            ("status", self.status.is_some()),
            ("checksum", self.checksum.is_some()),
        ]
    }

    fn layout(&self, frame: &FrameTable, faults: &mut Faults) -> Option<Layout> {
        let max = frame.max.unwrap_or(self.max_fragment).0;
        let event = self
            .event
            .as_ref()
            .map(|event| joined("event", (event.at, event.kind, event.mask, event.shift), event.fields.as_deref()));
        let (max, found) = (u32::try_from(max).unwrap_or(u32::MAX), faults.keep(frame.frame()));
        let (event, time) =
            (faults.keep(event.transpose()), faults.keep(self.time.as_ref().map(TimeTable::clock).transpose()));
        let demux = faults.keep(self.demux.as_ref().map(DemuxTable::of_layout).transpose());
        Some(Layout {
            frame: found?,
            max,
            matches: self.matches.as_ref().map(PatternTable::pattern),
            event: event?.unwrap_or_default(),
            time: time?,
            source: self
                .board
                .map(|board| Source { number: number(board.at, board.kind, board.mask, board.shift), is: board.is }),
            demux: demux?.flatten(),
            trigger_type: self.trigger_type.map(NumberTable::number),
            sequence: self.sequence.map(NumberTable::number),
            status: self.status.map(|status| Status {
                number: number(status.at, status.kind, status.mask, status.shift),
                error: status.error,
                busy: status.busy,
            }),
            checksum: self.checksum.map(|checksum| Checksum {
                kind: checksum.kind.0,
                number: number(checksum.at, checksum.number, None, None),
                from: checksum.from,
                to: checksum.to.unwrap_or(checksum.at),
            }),
        })
    }
}

/// Datagrams that may wait at a time for overtaken ones.
const MOST_REORDERED: u8 = 32;

/// What is wrong with the layout of a source, or with the way in which it comes.
pub(crate) fn check(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
    if source.reorder > MOST_REORDERED {
        let message = format!("at most {MOST_REORDERED} datagrams wait for overtaken ones; 0 turns that off");
        faults.add(key("reorder"), message);
    }
    let mut own = Faults::default();
    let plan = source.checked_plan(&mut own);
    faults.take(own, &key);
    let Some(plan) = plan.flatten() else { return };
    let message = match &source.input {
        SourceInput::Card(_) | SourceInput::Played(_) => {
            "an e-link and a file that is played have formats of their own, and no layout"
        }
        SourceInput::Listen(NetworkAddress::Udp(..) | NetworkAddress::Ip(..)) if !plan.is_of_datagrams() => {
            "these frames are found in a stream, and the source sends datagrams: frame = \"datagram\", or a table with \
             `several` or `pieces`"
        }
        SourceInput::Listen(NetworkAddress::Tcp(_)) | SourceInput::Connect(_) | SourceInput::Program(_)
            if plan.is_of_datagrams() =>
        {
            "this describes frames in datagrams, but the source sends a stream: add `length`, `fixed`, `sync` or `delimiter`"
        }
        // A file may be a capture of datagrams.
        _ => return,
    };
    faults.add(key("frame"), message);
}

impl FrameTable {
    /// The one way in which frames are found.
    fn frame(&self) -> Result<Frame, Fault> {
        let ways = [
            ("trailer", self.trailer.is_some()),
            ("delimiter", self.delimiter.is_some()),
            ("datagram", self.datagram),
            ("pieces", self.pieces.is_some()),
            ("sync", self.sync.is_some()),
            ("several", self.several),
        ];
        let sizes = [("length", self.length.is_some()), ("fixed", self.fixed.is_some())];
        let mut given = ways.iter().filter(|(_, is_given)| *is_given).map(|(key, _)| *key);
        let way = given.next();
        let (first, second) = (way, given.next());
        let takes_size = matches!(way, None | Some("sync" | "several"));
        let size = sizes.iter().filter(|(_, is_given)| *is_given).map(|(key, _)| *key);
        let contradiction = if takes_size { size.clone().nth(1) } else { size.clone().next() };
        if let (Some(one), Some(other)) = (first.or(Some("length")), second.or(contradiction)) {
            let message = format!("frames are found by `{one}` already: one of the two is too much");
            return Err(Fault::new(format!("frame.{other}"), message));
        }
        match (way, self.size()?) {
            (None, Some(Size::Length(length))) => Ok(Frame::Length(length)),
            (None, Some(Size::Fixed { bytes })) => Ok(Frame::Fixed { bytes }),
            (Some("sync"), Some(size)) => Ok(Frame::Sync { word: self.sync.clone().unwrap_or_default().0, size }),
            (Some("several"), Some(size)) => Ok(Frame::Several(size)),
            (Some("datagram"), None) => Ok(Frame::Datagram),
            (Some("delimiter"), None) => Ok(Frame::Delimiter { bytes: self.delimiter.clone().unwrap_or_default().0 }),
            _ => self.frame_of_table(way),
        }
    }

    /// The kinds that have tables of their own.
    fn frame_of_table(&self, way: Option<&str>) -> Result<Frame, Fault> {
        if let Some(trailer) = &self.trailer {
            let mark = trailer.mark.as_ref().map(PatternTable::pattern);
            let length = trailer.length.length("frame.trailer.length")?;
            return Ok(Frame::Trailer { length, mark, step: trailer.step });
        }
        if let Some(pieces) = &self.pieces {
            return pieces.pieces().map(Frame::Pieces);
        }
        let message = match way {
            Some(way) => format!("with `{way}`, `length` or `fixed` says where a frame ends"),
            None => {
                "how are frames found? `length`, `fixed`, `sync`, `trailer`, `delimiter`, `datagram`, `several` or \
                     `pieces`"
                    .to_owned()
            }
        };
        Err(Fault::new("frame", message))
    }

    fn size(&self) -> Result<Option<Size>, Fault> {
        if let Some(length) = &self.length {
            return length.length("frame.length").map(|length| Some(Size::Length(length)));
        }
        let bytes = self.fixed.map(|fixed| u32::try_from(fixed.0).unwrap_or(u32::MAX));
        Ok(bytes.map(|bytes| Size::Fixed { bytes }))
    }
}

impl LengthTable {
    fn length(&self, key: &str) -> Result<Length, Fault> {
        let counts = match (self.counts, self.header) {
            (CountsChoice::Frame, None) => Counts::Frame,
            (CountsChoice::AfterField, None) => Counts::AfterField,
            (CountsChoice::Payload, Some(header)) => Counts::Payload { header },
            (CountsChoice::Payload, None) => {
                return Err(Fault::new(
                    format!("{key}.counts"),
                    "with counts = \"payload\", `header` must give the bytes before the payload, such as `header = 16`",
                ));
            }
            (_, Some(_)) => {
                return Err(Fault::new(
                    format!("{key}.header"),
                    "only a length with counts = \"payload\" has a header",
                ));
            }
        };
        let number = number(self.at, self.kind, self.mask, self.shift);
        Ok(Length { number, unit: self.unit, counts, add: self.add })
    }
}

impl PatternTable {
    fn pattern(&self) -> Pattern {
        Pattern { at: self.at, bytes: self.bytes.0.clone(), mask: self.mask.clone().map(|mask| mask.0) }
    }
}

impl NumberTable {
    const fn number(self) -> Number {
        number(self.at, self.kind, self.mask, self.shift)
    }
}

impl PiecesTable {
    fn pieces(&self) -> Result<Pieces, Fault> {
        let place = match (self.offset, self.index) {
            (Some(offset), None) => Place::Offset(offset.number()),
            (None, Some(index)) => Place::Index(index.number()),
            _ => return Err(Fault::new("frame.pieces", "where does a body belong? `offset` or `index`, one of them")),
        };
        let end = match (self.length, self.count, self.last) {
            (Some(length), None, None) => End::Length(length.number()),
            (None, Some(count), None) => End::Count(count.number()),
            (None, None, Some(last)) => End::Last(last.number()),
            _ => {
                let message = "when is a frame whole? `length`, `count` or `last`, one of them";
                return Err(Fault::new("frame.pieces", message));
            }
        };
        if self.open == 0 {
            return Err(Fault::new("frame.pieces.open", "how many frames are put together at a time: 1 or more"));
        }
        Ok(Pieces { header: self.header, frame: self.frame.number(), place, end })
    }
}

impl TimeTable {
    fn clock(&self) -> Result<Clock, Fault> {
        Ok(Clock {
            ticks: joined("time", (self.at, self.kind, self.mask, self.shift), self.fields.as_deref())?,
            tick_attoseconds: self.tick.0,
            seconds: self.seconds.map(NumberTable::number),
        })
    }
}

impl DemuxTable {
    /// The same for a layout, which must define the place of the number.
    fn of_layout(&self) -> Result<Option<Number>, Fault> {
        if self.at == PeerOrPlace::Frame {
            let message = "only a `format` with a name knows whose a frame is; here it is the place of a number: `at = 4, type = \"u16le\"`";
            return Err(Fault::new("demux", message));
        }
        self.number()
    }

    /// The number that distinguishes boards; `None` if their addresses do.
    fn number(&self) -> Result<Option<Number>, Fault> {
        let names = self.is.as_ref().map(BoardsChoice::all);
        if names.is_some_and(<[_]>::is_empty) {
            return Err(Fault::new("demux", "which board is it? `is` has an address or a number, or several"));
        }
        for name in names.into_iter().flatten() {
            match (self.at, name) {
                (PeerOrPlace::Peer, BoardChoice::Number(_)) => {
                    return Err(Fault::new("demux", "the address of the board: `is = \"192.168.10.1\"`"));
                }
                (PeerOrPlace::Place(_) | PeerOrPlace::Frame, BoardChoice::Address(_)) => {
                    return Err(Fault::new("demux", "the number of the board: `is = 3`"));
                }
                _ => {}
            }
        }
        match (self.at, self.kind) {
            (PeerOrPlace::Peer | PeerOrPlace::Frame, None) if self.mask.is_none() && self.shift.is_none() => Ok(None),
            (PeerOrPlace::Place(at), Some(kind)) => Ok(Some(number(at, kind, self.mask, self.shift))),
            (PeerOrPlace::Peer, _) => Err(Fault::new("demux", "an address is taken whole: `at` alone")),
            (PeerOrPlace::Frame, _) => Err(Fault::new("demux", "the format knows where its number stands: `at` alone")),
            (PeerOrPlace::Place(_), None) => Err(Fault::new("demux", "which width has the number? `type = \"u8\"`")),
        }
    }
}

const fn number(at: i32, kind: NumberType, mask: Option<u64>, shift: Option<u8>) -> Number {
    Number { at, bytes: kind.bytes, is_big_endian: kind.is_big_endian, mask, shift }
}

type OneField = (Option<i32>, Option<NumberType>, Option<u64>, Option<u8>);

/// One field, or several that are put together.
fn joined(key: &str, one: OneField, several: Option<&[NumberTable]>) -> Result<Vec<Number>, Fault> {
    match (one, several) {
        ((None, None, None, None), Some(fields)) if !fields.is_empty() => {
            Ok(fields.iter().map(|field| field.number()).collect())
        }
        ((Some(at), Some(kind), mask, shift), None) => Ok(vec![number(at, kind, mask, shift)]),
        _ => Err(Fault::new(
            key,
            "it has either `at` and `type` (and `mask`, `shift`), or `fields`, a list of such tables",
        )),
    }
}

pub(super) const fn reorder() -> u8 {
    DatagramLimits::USUAL.reorder as u8
}

pub(super) const fn reorder_timeout() -> Time {
    Time(DatagramLimits::USUAL.reorder_timeout)
}

/// The width of a number and the order of its bytes: `u8`, `u24be`, `u32le`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NumberType {
    /// How many bytes it has, 1 to 8.
    pub bytes: u8,
    /// Whether the first is the most significant one.
    pub is_big_endian: bool,
}

const NUMBER_TYPE: &str = "the type of a number: u8, u16le, u16be, u24le and so on up to u64be (le: the least significant \
                           byte first)";

impl FromStr for NumberType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {NUMBER_TYPE}");
        if text == "u8" {
            return Ok(Self { bytes: 1, is_big_endian: false });
        }
        let rest = text.strip_prefix('u').ok_or_else(wrong)?;
        let (bits, is_big_endian) = match (rest.strip_suffix("le"), rest.strip_suffix("be")) {
            (Some(bits), _) => (bits, false),
            (_, Some(bits)) => (bits, true),
            _ => return Err(wrong()),
        };
        let bytes = (1..=8).find(|bytes| (8 * bytes).to_string() == bits).ok_or_else(wrong)?;
        Ok(Self { bytes, is_big_endian })
    }
}

/// How long a tick of a clock is, in attoseconds: `8ns`, `11.356860964ns`, `40.0789MHz`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Tick(pub u64);

const TICK: &str = "a tick of a clock, as a time such as 8ns, 6.25ns or 1us, or as a frequency such as 125MHz";

impl FromStr for Tick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {TICK}");
        let split = text.find(|letter: char| letter.is_ascii_alphabetic()).ok_or_else(wrong)?;
        let (number, unit) = text.split_at(split);
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let attoseconds = match unit {
            "ps" => number * 1e6,
            "ns" => number * 1e9,
            "us" => number * 1e12,
            "ms" => number * 1e15,
            "s" => number * 1e18,
            "Hz" => 1e18 / number,
            "kHz" => 1e15 / number,
            "MHz" => 1e12 / number,
            "GHz" => 1e9 / number,
            _ => return Err(wrong()),
        };
        // A longer one is refused with the layout, by its key.
        if attoseconds >= 1.0 && attoseconds.is_finite() { Ok(Self(attoseconds.round() as u64)) } else { Err(wrong()) }
    }
}

/// A kind of checksums by its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ChecksumName(pub ChecksumKind);

impl FromStr for ChecksumName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || CHECKSUM_KINDS.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
        let kind = ChecksumKind::from_name(text);
        kind.map(Self).ok_or_else(|| format!("`{text}` is no checksum; there are: {}", names()))
    }
}

fn number_types() -> impl Iterator<Item = String> {
    let types = (1..=8).flat_map(|bytes| ["le", "be"].map(|order| format!("u{}{order}", 8 * bytes)));
    std::iter::once("u8".to_owned()).chain(types)
}

read_from_text!(
    NumberType: NUMBER_TYPE => Form::names(number_types()),
    Tick: TICK => Form::Pattern(with_unit("ps|ns|us|ms|s|Hz|kHz|MHz|GHz")),
    ChecksumName: "the name of a checksum, such as crc32, crc16-ccitt or sum16le"
        => Form::names(CHECKSUM_KINDS.iter().map(|kind| kind.name()))
);

/// Bytes: a text, or a list of numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BytesChoice(pub Vec<u8>);

const BYTES: &str = "bytes: a text such as \"ESS\", or a list of numbers such as [0xca, 0xfe]";

impl<'de> Deserialize<'de> for BytesChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> Visitor<'de> for Choice {
            type Value = BytesChoice;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(BYTES)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<BytesChoice, E> {
                if let Some(numbers) = meant_numbers(text) {
                    return Err(E::custom(format!("\"{text}\" is a text; for these bytes write [{numbers}]")));
                }
                Ok(BytesChoice(text.as_bytes().to_vec()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BytesChoice, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = list.next_element()? {
                    bytes.push(byte);
                }
                Ok(BytesChoice(bytes))
            }
        }
        from.deserialize_any(Choice)
    }
}

/// The list of bytes that was meant by a text such as `0xa5c3`.
fn meant_numbers(text: &str) -> Option<String> {
    let digits = text.strip_prefix("0x")?.as_bytes();
    let is_hex = !digits.is_empty() && digits.len().is_multiple_of(2) && digits.iter().all(u8::is_ascii_hexdigit);
    let bytes = digits.chunks(2).map(|two| format!("0x{}", String::from_utf8_lossy(two)));
    is_hex.then(|| bytes.collect::<Vec<String>>().join(", "))
}

impl JsonSchema for BytesChoice {
    fn schema_name() -> Cow<'static, str> {
        "BytesChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let number = json_schema!({ "type": "integer", "minimum": 0, "maximum": 255 });
        json_schema!({ "description": BYTES, "anyOf": [{ "type": "string" }, { "type": "array", "items": number }] })
    }
}

/// What tells boards apart: the sender's address, or a number in the frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PeerOrPlace {
    /// The sender's IP address.
    Peer,
    /// The source id that a frame of a named format carries.
    Frame,
    /// Bytes before the number; below 0, counted from the frame's end.
    Place(i32),
}

const PEER_OR_PLACE: &str =
    "\"ip.source\", \"frame.source\" (of a format with a name), or the place of a number in the frame";

impl<'de> Deserialize<'de> for PeerOrPlace {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Choice;
        impl Visitor<'_> for Choice {
            type Value = PeerOrPlace;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(PEER_OR_PLACE)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PeerOrPlace, E> {
                match text {
                    "ip.source" => Ok(PeerOrPlace::Peer),
                    "frame.source" => Ok(PeerOrPlace::Frame),
                    _ => Err(E::custom(format!("`{text}` is not {PEER_OR_PLACE}"))),
                }
            }

            fn visit_i64<E: Error>(self, place: i64) -> Result<PeerOrPlace, E> {
                i32::try_from(place).map(PeerOrPlace::Place).map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, place: u64) -> Result<PeerOrPlace, E> {
                i32::try_from(place).map(PeerOrPlace::Place).map_err(E::custom)
            }
        }
        from.deserialize_any(Choice)
    }
}

impl JsonSchema for PeerOrPlace {
    fn schema_name() -> Cow<'static, str> {
        "PeerOrPlace".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": PEER_OR_PLACE, "anyOf": [
            { "type": "integer", "description": "Bytes before a number in the frame; below 0, counted from the end." },
            { "const": "ip.source", "description": "The address of the sender." },
            { "const": "frame.source", "description": "The number by which a frame of a format with a name says whose it \
                is (source id, FED id, FEC, queue, id of MIDAS events)." },
        ] })
    }
}
