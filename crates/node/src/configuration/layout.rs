//! The layout of a board's frames: the keys `frame`, `match`, `demux`, `event`, `time`, `board`, `trigger_type`, `sequence`,
//! `status` and `checksum` of a source (`docs/layouts.md`).
//!
//! Every table is read as it stands, and made a [`Layout`] of plain values; whether that makes sense is for
//! [`Plan::compile`] to say, by the same keys.

use super::check::fault;
use super::entrance::NetworkAddress;
use super::format::FormatName;
use super::layout_text::{BytesChoice, ChecksumName, NumberType, PeerOrPlace, Tick};
use super::model::SourceSection;
use super::parse::Fault;
use super::splitter::KeysChoice;
use crate::offline::foreign::Chosen;
use crate::quantity::{Bytes, Time};
use ropewalk_flow::readout::DatagramLimits;
use ropewalk_flow::trial::OwnBoard;
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::{Counting, ForeignFormat};
use ropewalk_wire::layout::{
    Checksum, Clock, Counts, End, Frame, Layout, Length, Number, Pattern, Pieces, Place, Plan, Size, Source, Status,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// How frames are found: `"datagram"`, or a table.
#[derive(Clone, Debug, Default)]
pub struct FrameChoice(pub FrameTable);

/// How frames are found.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FrameTable {
    /// A field says how long they are.
    pub length: Option<LengthTable>,
    /// They are always as long.
    pub fixed: Option<Bytes>,
    /// They begin with these bytes, which are looked for; besides, `length` or `fixed`.
    pub sync: Option<BytesChoice>,
    /// Their last bytes say how long they are.
    pub trailer: Option<TrailerTable>,
    /// They end behind these bytes.
    pub delimiter: Option<BytesChoice>,
    /// Each is a datagram.
    pub datagram: bool,
    /// A datagram holds one or several, back to back; besides, `length` or `fixed`.
    pub several: bool,
    /// Each is sent in the bodies of several datagrams.
    pub pieces: Option<PiecesTable>,
    /// The longest that is believed; `max_fragment` of the source where nothing is given.
    pub max: Option<Bytes>,
}

/// A number in a frame.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NumberTable {
    /// Bytes before it; below 0, counted from the frame's end.
    pub at: i32,
    /// Its width and the order of its bytes.
    #[serde(rename = "type")]
    pub kind: NumberType,
    /// Which of its bits count, neighbours; all where none are given.
    pub mask: Option<u64>,
    /// By how much the masked bits are moved down; so that the lowest counts one, where nothing is given.
    pub shift: Option<u8>,
}

/// A field that holds a length.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthTable {
    /// Bytes before it; below 0, counted from the frame's end.
    pub at: i32,
    /// Its width and the order of its bytes.
    #[serde(rename = "type")]
    pub kind: NumberType,
    /// Which of its bits count.
    pub mask: Option<u64>,
    /// By how much they are moved down.
    pub shift: Option<u8>,
    /// Bytes in one of what it counts.
    #[serde(default = "one")]
    pub unit: u32,
    /// What it counts.
    #[serde(default)]
    pub counts: CountsChoice,
    /// With `counts = "payload"`: bytes of the header before that.
    pub header: Option<u32>,
    /// Bytes that belong to the frame besides.
    #[serde(default)]
    pub add: i32,
}

/// What a length counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CountsChoice {
    /// The whole frame.
    #[default]
    Frame,
    /// What follows the field.
    AfterField,
    /// What follows the header.
    Payload,
}

/// The end of frames that say there how long they are.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrailerTable {
    /// The length; its place is below 0.
    pub length: LengthTable,
    /// What else the end is known by.
    pub mark: Option<PatternTable>,
    /// Frames are multiples of so many bytes.
    #[serde(default = "one")]
    pub step: u32,
}

/// Bytes at a place of a frame.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatternTable {
    /// Bytes before them; below 0, counted from the frame's end.
    pub at: i32,
    /// What they are.
    pub bytes: BytesChoice,
    /// Which of their bits count.
    pub mask: Option<BytesChoice>,
}

/// The header of each of the datagrams in which a frame is sent.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PiecesTable {
    /// Bytes of the header.
    pub header: u32,
    /// Which frame a datagram belongs to.
    pub frame: NumberTable,
    /// Where its body belongs: so many bytes of others are before it.
    pub offset: Option<NumberTable>,
    /// Where its body belongs: so many others are before it.
    pub index: Option<NumberTable>,
    /// Bytes of all bodies; goes with `offset`.
    pub length: Option<NumberTable>,
    /// How many bodies there are; goes with `index`.
    pub count: Option<NumberTable>,
    /// Other than 0 in the last one.
    pub last: Option<NumberTable>,
    /// How long the others of a frame are waited for.
    #[serde(default = "pieces_timeout")]
    pub timeout: Time,
    /// How many frames are put together at a time; when another one begins, the oldest is given up.
    #[serde(default = "open_frames")]
    pub open: u16,
}

/// The number of the event: one field, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTable {
    /// Bytes before it; below 0, counted from the frame's end.
    pub at: Option<i32>,
    /// Its width and the order of its bytes.
    #[serde(rename = "type")]
    pub kind: Option<NumberType>,
    /// Which of its bits count.
    pub mask: Option<u64>,
    /// By how much they are moved down.
    pub shift: Option<u8>,
    /// Fields that are put together, the first the most significant.
    pub fields: Option<Vec<NumberTable>>,
    /// What it is in the run's first event; `first` of the source where nothing is given.
    pub first: Option<u64>,
    /// How it goes on from event to event: one by one, or, where several fields are put together, growing.
    pub numbers: Option<NumbersChoice>,
}

impl EventTable {
    /// Whether it grows, but not one by one. Several fields are a time, as seconds and a part of one, unless it is said that they
    /// are parts of a counter: no board's clock would ever count one by one.
    pub fn grows(&self) -> bool {
        let is_of_several = self.fields.as_ref().is_some_and(|fields| fields.len() > 1);
        self.numbers.map_or(is_of_several, |numbers| numbers == NumbersChoice::Growing)
    }
}

/// How event numbers go on.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NumbersChoice {
    /// One by one.
    Consecutive,
    /// They grow: the times of pulses, say. What is built is numbered from 1 on.
    Growing,
}

/// A clock: one field, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeTable {
    /// Bytes before it; below 0, counted from the frame's end.
    pub at: Option<i32>,
    /// Its width and the order of its bytes.
    #[serde(rename = "type")]
    pub kind: Option<NumberType>,
    /// Which of its bits count.
    pub mask: Option<u64>,
    /// By how much they are moved down.
    pub shift: Option<u8>,
    /// Fields that are put together, the first the most significant.
    pub fields: Option<Vec<NumberTable>>,
    /// How long a tick is.
    pub tick: Tick,
    /// The name of the clock: sources with the same name count on the same one.
    pub clock: Option<String>,
    /// Whole seconds beside the ticks, which then begin anew every second.
    pub seconds: Option<NumberTable>,
}

/// The number of the board.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoardTable {
    /// Bytes before it; below 0, counted from the frame's end.
    pub at: i32,
    /// Its width and the order of its bytes.
    #[serde(rename = "type")]
    pub kind: NumberType,
    /// Which of its bits count.
    pub mask: Option<u64>,
    /// By how much they are moved down.
    pub shift: Option<u8>,
    /// What it must be; the source's id where nothing is given.
    pub is: Option<u32>,
}

/// Several boards that send to the same place: a source each.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DemuxTable {
    /// What tells them apart: `"ip.source"`, or the place of a number.
    pub at: PeerOrPlace,
    /// The number's width and the order of its bytes.
    #[serde(rename = "type")]
    pub kind: Option<NumberType>,
    /// Which of its bits count.
    pub mask: Option<u64>,
    /// By how much they are moved down.
    pub shift: Option<u8>,
    /// Which board the source is: its address, or its number, or several under which it comes. Where sources that listen at one
    /// address do not say it, they are the boards in the order in which these show themselves.
    pub is: Option<BoardsChoice>,
}

/// Under which address or number a board comes, or under which ones.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BoardsChoice {
    /// Under this.
    One(BoardChoice),
    /// Under any of these.
    Several(Vec<BoardChoice>),
}

impl BoardsChoice {
    /// All of them.
    pub fn all(&self) -> &[BoardChoice] {
        match self {
            Self::One(board) => std::slice::from_ref(board),
            Self::Several(boards) => boards,
        }
    }
}

/// Which of several boards.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BoardChoice {
    /// The one with this number.
    Number(u64),
    /// The one with this address.
    Address(IpAddr),
}

impl BoardChoice {
    const fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    const fn address(self) -> Option<IpAddr> {
        if let Self::Address(address) = self { Some(address) } else { None }
    }
}

/// What the board says of its health.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusTable {
    /// Bytes before it; below 0, counted from the frame's end.
    pub at: i32,
    /// Its width and the order of its bytes.
    #[serde(rename = "type")]
    pub kind: NumberType,
    /// Which of its bits count.
    pub mask: Option<u64>,
    /// By how much they are moved down.
    pub shift: Option<u8>,
    /// Bits any of which means that the data are in doubt: the fragment is flagged.
    #[serde(default)]
    pub error: u64,
    /// Bits any of which means that the board was busy.
    #[serde(default)]
    pub busy: u64,
}

/// A checksum over a part of the frame.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChecksumTable {
    /// Which one.
    pub kind: ChecksumName,
    /// Bytes before it; below 0, counted from the frame's end.
    pub at: i32,
    /// Its width and the order of its bytes.
    #[serde(rename = "type")]
    pub number: NumberType,
    /// Where its range begins; below 0, counted from the frame's end.
    #[serde(default)]
    pub from: i32,
    /// Where its range ends, this byte not included; 0 and below, counted from the frame's end. At the checksum itself where
    /// nothing is given.
    pub to: Option<i32>,
}

impl SourceSection {
    /// Whether a layout describes what it sends.
    pub const fn has_layout(&self) -> bool {
        self.frame.is_some()
    }

    /// The layout of its frames, ready to be used; none where it has none. A fault's key is one of the source's.
    ///
    /// # Errors
    /// What is wrong with the layout.
    pub fn plan(&self) -> Result<Option<Plan>, Fault> {
        let Some(FrameChoice(frame)) = &self.frame else {
            if let Some(demux) = self.demux.as_ref().filter(|_| matches!(self.format, FormatName::Foreign(_))) {
                demux.number()?;
            }
            let orphan = self.layout_keys().into_iter().find(|(_, is_given)| *is_given);
            return orphan.map_or(Ok(None), |(key, _)| {
                Err(fault(key, "it belongs to a layout, which begins with `frame`: how frames are found"))
            });
        };
        let layout = self.layout(frame)?;
        let wrong = |error: ropewalk_wire::layout::LayoutError| fault(error.key, error.fault.to_string());
        Plan::compile(&layout).map(Some).map_err(wrong)
    }

    /// What describes its frames: its layout, or the format that it names. None for formats that say themselves whose they are.
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

    /// Which frames of a stream of several boards are its own; none where it takes all of them.
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

    /// Its board, where it says which one it is.
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

    /// Its board in a stream of several, where a number in the frame tells them apart. Without a name it is the first one that
    /// appears.
    fn own_board(&self) -> Option<OwnBoard> {
        let is_numbered = match self.demux.as_ref()?.at {
            PeerOrPlace::Peer => false,
            PeerOrPlace::Place(_) => self.has_layout() && !self.has_datagrams(),
            PeerOrPlace::Frame => !self.has_layout() && self.named_board().is_some(),
        };
        is_numbered.then(|| self.named_board().unwrap_or(OwnBoard::InOrder(0)))
    }

    /// What describes its frames where nothing but these was kept: FEROL blocks, too. None of generic fragments, which say
    /// once in a connection whose they are.
    pub fn framing(&self) -> Option<Description> {
        let blocks = (self.format == FormatName::Ferol).then(|| ForeignFormat::Ferol.into());
        self.description().or(blocks)
    }

    /// What its datagrams are waited for: the others of a frame that is sent in several, and those that they overtook.
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
            return splitter.keys == KeysChoice::Times;
        }
        match (&self.event, self.format) {
            (Some(event), _) if self.has_layout() => event.grows(),
            (_, FormatName::Foreign(format)) => format.numbers_grow() && !self.has_layout(),
            _ => false,
        }
    }

    /// The keys that mean nothing without `frame`, and whether they are given. Boards of a format with a name may be told apart
    /// by their addresses.
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

    fn layout(&self, frame: &FrameTable) -> Result<Layout, Fault> {
        let max = frame.max.unwrap_or(self.max_fragment).0;
        let event = self
            .event
            .as_ref()
            .map(|event| joined("event", (event.at, event.kind, event.mask, event.shift), event.fields.as_deref()));
        Ok(Layout {
            frame: frame.frame()?,
            max: u32::try_from(max).unwrap_or(u32::MAX),
            matches: self.matches.as_ref().map(PatternTable::pattern),
            event: event.transpose()?.unwrap_or_default(),
            time: self.time.as_ref().map(TimeTable::clock).transpose()?,
            source: self
                .board
                .map(|board| Source { number: number(board.at, board.kind, board.mask, board.shift), is: board.is }),
            demux: self.demux.as_ref().map(DemuxTable::of_layout).transpose()?.flatten(),
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

/// Datagrams that may wait at a time for those that they overtook.
const MOST_REORDERED: u8 = 32;

/// The first thing that is wrong with the layout of a source, or with the way in which it comes.
pub(super) fn check(source: &SourceSection, key: impl Fn(&str) -> String) -> Result<(), Fault> {
    if source.reorder > MOST_REORDERED {
        let message = format!("at most {MOST_REORDERED} datagrams wait for those that they overtook; 0 turns that off");
        return Err(fault(key("reorder"), message));
    }
    let Some(plan) = source.plan().map_err(|wrong| Fault { key: key(&wrong.key), ..wrong })? else { return Ok(()) };
    let comes_in_datagrams = match (&source.listen, &source.connect) {
        (Some(NetworkAddress::Udp(..) | NetworkAddress::Ip(..)), _) => Some(true),
        (Some(NetworkAddress::Tcp(_)), _) | (_, Some(_)) => Some(false),
        _ if source.program.is_some() => Some(false),
        // A file may be a capture of datagrams.
        _ => None,
    };
    match comes_in_datagrams {
        Some(true) if !plan.is_of_datagrams() => {
            let message = "these frames are found in a stream, and the source sends datagrams: frame = \"datagram\", or a \
                           table with `several` or `pieces`";
            Err(fault(key("frame"), message))
        }
        Some(false) if plan.is_of_datagrams() => {
            let message =
                "these frames come in datagrams, and the source sends a stream: where does a frame end in it?";
            Err(fault(key("frame"), message))
        }
        _ if source.felix.is_some() || source.play.is_some() => {
            Err(fault(key("frame"), "an e-link and a file that is played have formats of their own, and no layout"))
        }
        _ => Ok(()),
    }
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
            return Err(fault(format!("frame.{other}"), message));
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
        Err(fault("frame", message))
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
                return Err(fault(
                    format!("{key}.counts"),
                    "behind how many bytes does the payload begin? `header = 16`",
                ));
            }
            (_, Some(_)) => {
                return Err(fault(format!("{key}.header"), "only a length with counts = \"payload\" has a header"));
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
            _ => return Err(fault("frame.pieces", "where does a body belong? `offset` or `index`, one of them")),
        };
        let end = match (self.length, self.count, self.last) {
            (Some(length), None, None) => End::Length(length.number()),
            (None, Some(count), None) => End::Count(count.number()),
            (None, None, Some(last)) => End::Last(last.number()),
            _ => {
                let message = "when is a frame whole? `length`, `count` or `last`, one of them";
                return Err(fault("frame.pieces", message));
            }
        };
        if self.open == 0 {
            return Err(fault("frame.pieces.open", "how many frames are put together at a time: 1 or more"));
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
    /// The same of a layout, which has to say where the number stands.
    fn of_layout(&self) -> Result<Option<Number>, Fault> {
        if self.at == PeerOrPlace::Frame {
            let message = "only a `format` with a name knows whose a frame is; here it is the place of a number: `at = 4, type = \"u16le\"`";
            return Err(fault("demux", message));
        }
        self.number()
    }

    /// The number that tells boards apart; none where their addresses do.
    fn number(&self) -> Result<Option<Number>, Fault> {
        let names = self.is.as_ref().map(BoardsChoice::all);
        if names.is_some_and(<[_]>::is_empty) {
            return Err(fault("demux", "which board is it? `is` has an address or a number, or several"));
        }
        for name in names.into_iter().flatten() {
            match (self.at, name) {
                (PeerOrPlace::Peer, BoardChoice::Number(_)) => {
                    return Err(fault("demux", "the address of the board: `is = \"192.168.10.1\"`"));
                }
                (PeerOrPlace::Place(_) | PeerOrPlace::Frame, BoardChoice::Address(_)) => {
                    return Err(fault("demux", "the number of the board: `is = 3`"));
                }
                _ => {}
            }
        }
        match (self.at, self.kind) {
            (PeerOrPlace::Peer | PeerOrPlace::Frame, None) if self.mask.is_none() && self.shift.is_none() => Ok(None),
            (PeerOrPlace::Place(at), Some(kind)) => Ok(Some(number(at, kind, self.mask, self.shift))),
            (PeerOrPlace::Peer, _) => Err(fault("demux", "an address is taken whole: `at` alone")),
            (PeerOrPlace::Frame, _) => Err(fault("demux", "the format knows where its number stands: `at` alone")),
            (PeerOrPlace::Place(_), None) => Err(fault("demux", "which width has the number? `type = \"u8\"`")),
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
        _ => Err(fault(key, "it has either `at` and `type` (and `mask`, `shift`), or `fields`, a list of such tables")),
    }
}

const FRAME: &str =
    "\"datagram\", or a table that says how frames are found, such as { length = { at = 0, type = \"u32le\" } }";

impl<'de> Deserialize<'de> for FrameChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> Visitor<'de> for Choice {
            type Value = FrameChoice;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(FRAME)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<FrameChoice, E> {
                let datagram = FrameTable { datagram: true, ..FrameTable::default() };
                let is_datagram = text == "datagram";
                is_datagram
                    .then_some(FrameChoice(datagram))
                    .ok_or_else(|| E::custom(format!("`{text}` is not {FRAME}")))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FrameChoice, A::Error> {
                FrameTable::deserialize(MapAccessDeserializer::new(map)).map(FrameChoice)
            }
        }
        from.deserialize_any(Choice)
    }
}

impl JsonSchema for FrameChoice {
    fn schema_name() -> Cow<'static, str> {
        "FrameChoice".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<FrameTable>();
        json_schema!({ "description": FRAME, "anyOf": [table, { "const": "datagram" }] })
    }
}

const fn one() -> u32 {
    1
}

const fn pieces_timeout() -> Time {
    Time(DatagramLimits::USUAL.pieces_timeout)
}

pub(super) const fn reorder() -> u8 {
    DatagramLimits::USUAL.reorder as u8
}

pub(super) const fn reorder_timeout() -> Time {
    Time(DatagramLimits::USUAL.reorder_timeout)
}

const fn open_frames() -> u16 {
    DatagramLimits::USUAL.open_frames as u16
}

#[cfg(test)]
mod tests;
