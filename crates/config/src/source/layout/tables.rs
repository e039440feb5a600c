//! The tables of a layout in a configuration.

use super::{BytesChoice, ChecksumName, NumberType, PeerOrPlace, Tick};
use crate::quantity::{Bytes, Time};
use ropewalk_flow::readout::DatagramLimits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// How frames are found: `"datagram"`, or a table.
#[derive(Clone, Debug, Default)]
pub struct FrameChoice(pub FrameTable);

/// How frames are found.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FrameTable {
    /// A field contains the length of the frame.
    pub length: Option<LengthTable>,
    /// All frames have this length.
    pub fixed: Option<Bytes>,
    /// Frames begin with these bytes, for which Ropewalk searches. It also needs `length` or `fixed`.
    pub sync: Option<BytesChoice>,
    /// The last bytes of a frame contain its length. It also needs `match`.
    pub trailer: Option<TrailerTable>,
    /// Frames end with these bytes.
    pub delimiter: Option<BytesChoice>,
    /// Each datagram is a frame; the same as `frame = "datagram"`.
    pub datagram: bool,
    /// A datagram contains one or several frames, one after the other. It also needs `length` or `fixed`.
    pub several: bool,
    /// Each frame is sent in several datagrams.
    pub pieces: Option<PiecesTable>,
    /// Longest accepted frame. Without it: `max_fragment` of the source.
    pub max: Option<Bytes>,
}

/// A number in a frame.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NumberTable {
    /// Bytes before the number; below 0, counted from the end of the frame.
    pub at: i32,
    /// Width, 8 to 64 bits, and byte order: `"u8"`, `"u16le"`, `"u24be"` and so on; `le` has the least significant byte
    /// first.
    #[serde(rename = "type")]
    pub kind: NumberType,
    /// Bits that count; they are contiguous. Without it: all bits.
    pub mask: Option<u64>,
    /// Number of bits by which the masked number is shifted down. Without it: the lowest bit of `mask` becomes bit 0.
    pub shift: Option<u8>,
}

/// A field that contains a length.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LengthTable {
    /// Bytes before the number; below 0, counted from the end of the frame.
    pub at: i32,
    /// Width, 8 to 64 bits, and byte order: `"u8"`, `"u16le"`, `"u24be"` and so on; `le` has the least significant byte
    /// first.
    #[serde(rename = "type")]
    pub kind: NumberType,
    /// Bits that count; they are contiguous. Without it: all bits.
    pub mask: Option<u64>,
    /// Number of bits by which the masked number is shifted down. Without it: the lowest bit of `mask` becomes bit 0.
    pub shift: Option<u8>,
    /// Bytes in one unit of the length.
    #[serde(default = "one")]
    pub unit: u32,
    /// What the length counts.
    #[serde(default)]
    pub counts: CountsChoice,
    /// Length of the header; needed with `counts = "payload"` only.
    pub header: Option<u32>,
    /// Bytes of the frame that the length does not count; may be below 0.
    #[serde(default)]
    pub add: i32,
}

/// What a length counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CountsChoice {
    /// The whole frame.
    #[default]
    Frame,
    /// What follows the field.
    AfterField,
    /// What follows `header` bytes.
    Payload,
}

/// The end of frames that contain their length there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrailerTable {
    /// The length; its `at` is below 0.
    pub length: LengthTable,
    /// Other bytes that mark the end.
    pub mark: Option<PatternTable>,
    /// The length of a frame is a multiple of this many bytes.
    #[serde(default = "one")]
    pub step: u32,
}

/// Bytes at a place in a frame.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PatternTable {
    /// Bytes before them; below 0, counted from the end of the frame.
    pub at: i32,
    /// The bytes, as text (`"ESS"`) or as numbers (`[0xca, 0xfe]`).
    pub bytes: BytesChoice,
    /// Bits that count. Without it: all bits.
    pub mask: Option<BytesChoice>,
}

/// The header of each of the datagrams in which a frame is sent.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PiecesTable {
    /// Length of the header in bytes.
    pub header: u32,
    /// Which frame a datagram belongs to.
    pub frame: NumberTable,
    /// Where the body belongs: bytes of other bodies before it. Either `offset` or `index` is needed.
    pub offset: Option<NumberTable>,
    /// Where the body belongs: number of other bodies before it.
    pub index: Option<NumberTable>,
    /// Bytes of all bodies together. One of `length`, `count` and `last` says when a frame is whole.
    pub length: Option<NumberTable>,
    /// Number of bodies.
    pub count: Option<NumberTable>,
    /// Other than 0 in the last body.
    pub last: Option<NumberTable>,
    /// How long to wait for the others of a frame. A frame that is not whole by then counts as `pieces_missing`.
    #[serde(default = "pieces_timeout")]
    pub timeout: Time,
    /// Number of frames that are put together at a time. When another one begins, the oldest counts as
    /// `pieces_missing`.
    #[serde(default = "open_frames")]
    pub open: u16,
}

/// The event number: one field, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTable {
    /// Bytes before the number; below 0, counted from the end of the frame.
    pub at: Option<i32>,
    /// Width, 8 to 64 bits, and byte order: `"u8"`, `"u16le"`, `"u24be"` and so on; `le` has the least significant byte
    /// first.
    #[serde(rename = "type")]
    pub kind: Option<NumberType>,
    /// Bits that count; they are contiguous. Without it: all bits.
    pub mask: Option<u64>,
    /// Number of bits by which the masked number is shifted down. Without it: the lowest bit of `mask` becomes bit 0.
    pub shift: Option<u8>,
    /// Several numbers instead of one, joined; the first is the most significant.
    pub fields: Option<Vec<NumberTable>>,
    /// The number in the first event of the run. Without it: `first` of the source.
    pub first: Option<u64>,
    /// How the number changes from event to event. Without it: `"consecutive"` for one field, `"growing"` for several
    /// `fields`.
    pub numbers: Option<NumbersChoice>,
}

impl EventTable {
    /// Whether it grows by any step. Several fields are a time, such as seconds and a fraction, unless `numbers` says
    /// that they are parts of a counter.
    pub fn grows(&self) -> bool {
        let is_of_several = self.fields.as_ref().is_some_and(|fields| fields.len() > 1);
        self.numbers.map_or(is_of_several, |numbers| numbers == NumbersChoice::Growing)
    }
}

/// How event numbers change from event to event.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NumbersChoice {
    /// By one; several `fields` are the parts of one counter.
    Consecutive,
    /// By any step: they are the times of pulses, for instance. Events are numbered from 1 in the order of these
    /// numbers, as soon as every source has sent a higher number or has been silent for `timeouts.readout`. All sources
    /// of the run must be of this kind, and in one readout unit. A [board that
    /// restarts](front-ends.md#a-board-that-restarts) is out of sync. See [growing
    /// numbers](layout-fields.md#growing-numbers).
    Growing,
}

/// A clock: one field, or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeTable {
    /// Bytes before the number; below 0, counted from the end of the frame.
    pub at: Option<i32>,
    /// Width, 8 to 64 bits, and byte order: `"u8"`, `"u16le"`, `"u24be"` and so on; `le` has the least significant byte
    /// first.
    #[serde(rename = "type")]
    pub kind: Option<NumberType>,
    /// Bits that count; they are contiguous. Without it: all bits.
    pub mask: Option<u64>,
    /// Number of bits by which the masked number is shifted down. Without it: the lowest bit of `mask` becomes bit 0.
    pub shift: Option<u8>,
    /// Several numbers instead of one, joined; the first is the most significant.
    pub fields: Option<Vec<NumberTable>>,
    /// Length of a tick, such as `"8ns"` or `"40.0789MHz"`.
    pub tick: Tick,
    /// Name of the clock. Sources with the same name use the same clock.
    pub clock: Option<String>,
    /// Number of whole seconds. The ticks then restart at 0 every second.
    pub seconds: Option<NumberTable>,
}

/// The number of the board.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BoardTable {
    /// Bytes before the number; below 0, counted from the end of the frame.
    pub at: i32,
    /// Width, 8 to 64 bits, and byte order: `"u8"`, `"u16le"`, `"u24be"` and so on; `le` has the least significant byte
    /// first.
    #[serde(rename = "type")]
    pub kind: NumberType,
    /// Bits that count; they are contiguous. Without it: all bits.
    pub mask: Option<u64>,
    /// Number of bits by which the masked number is shifted down. Without it: the lowest bit of `mask` becomes bit 0.
    pub shift: Option<u8>,
    /// Expected number. Without it: the id of the source.
    pub is: Option<u32>,
}

/// Several boards that send to the same place, a source each.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DemuxTable {
    /// The field that identifies the board. A number: bytes before a number in the frame; below 0, counted from the
    /// end.
    pub at: PeerOrPlace,
    /// Width, 8 to 64 bits, and byte order: `"u8"`, `"u16le"`, `"u24be"` and so on; `le` has the least significant byte
    /// first.
    #[serde(rename = "type")]
    pub kind: Option<NumberType>,
    /// Bits that count; they are contiguous. Without it: all bits.
    pub mask: Option<u64>,
    /// Number of bits by which the masked number is shifted down. Without it: the lowest bit of `mask` becomes bit 0.
    pub shift: Option<u8>,
    /// Which board the source is: an address, a number, or a list. For example `"192.168.10.1"`, `3`, or, for a board
    /// with several addresses, `["192.168.10.1", "127.0.0.1"]`. It is needed in a file with `"frame.source"`.
    pub is: Option<BoardsChoice>,
}

/// One board, or several addresses or numbers of it.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BoardsChoice {
    /// One address or number.
    One(BoardChoice),
    /// Any of these.
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

/// A board.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BoardChoice {
    /// The one with this number.
    Number(u64),
    /// The one with this address.
    Address(IpAddr),
}

impl BoardChoice {
    pub(super) const fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    pub(super) const fn address(self) -> Option<IpAddr> {
        if let Self::Address(address) = self { Some(address) } else { None }
    }
}

/// What the board says about its state.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusTable {
    /// Bytes before the number; below 0, counted from the end of the frame.
    pub at: i32,
    /// Width, 8 to 64 bits, and byte order: `"u8"`, `"u16le"`, `"u24be"` and so on; `le` has the least significant byte
    /// first.
    #[serde(rename = "type")]
    pub kind: NumberType,
    /// Bits that count; they are contiguous. Without it: all bits.
    pub mask: Option<u64>,
    /// Number of bits by which the masked number is shifted down. Without it: the lowest bit of `mask` becomes bit 0.
    pub shift: Option<u8>,
    /// If any of these bits is set, the fragment is flagged (*the front end says that something is wrong*).
    #[serde(default)]
    pub error: u64,
    /// If any of these bits is set, the board was busy.
    #[serde(default)]
    pub busy: u64,
}

/// A checksum over a part of the frame.
#[derive(Copy, Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChecksumTable {
    /// Name of the checksum, such as `"crc32"`; [all names](layout-fields.md#checksums).
    pub kind: ChecksumName,
    /// Bytes before the number; below 0, counted from the end of the frame.
    pub at: i32,
    /// Width, 8 to 64 bits, and byte order: `"u8"`, `"u16le"`, `"u24be"` and so on; `le` has the least significant byte
    /// first.
    #[serde(rename = "type")]
    pub number: NumberType,
    /// First byte of its range; below 0, counted from the end of the frame.
    #[serde(default)]
    pub from: i32,
    /// End of its range, not included; 0 and below, counted from the end of the frame. Without it: the checksum itself.
    pub to: Option<i32>,
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
        json_schema!({ "description": FRAME, "anyOf": [table, { "const": "datagram", "description": "Each datagram is a frame." }] })
    }
}

const fn one() -> u32 {
    1
}

pub(super) const fn pieces_timeout() -> Time {
    Time(DatagramLimits::USUAL.pieces_timeout)
}

pub(super) const fn open_frames() -> u16 {
    DatagramLimits::USUAL.open_frames as u16
}
