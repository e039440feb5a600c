//! What stands in the tables of a layout as text: widths of numbers, bytes, ticks, names of checksums.

use crate::quantity::read_from_text;
use ropewalk_wire::layout::{CHECKSUM_KINDS, ChecksumKind};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

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

read_from_text!(NumberType: NUMBER_TYPE, Tick: TICK, ChecksumName: "the name of a checksum, such as crc32, crc16-ccitt or sum16le");

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

impl JsonSchema for BytesChoice {
    fn schema_name() -> Cow<'static, str> {
        "BytesChoice".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let number = json_schema!({ "type": "integer", "minimum": 0, "maximum": 255 });
        json_schema!({ "description": BYTES, "anyOf": [{ "type": "string" }, { "type": "array", "items": number }] })
    }
}

/// What tells boards apart: who sends, or a number at a place of the frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PeerOrPlace {
    /// The address of whoever sends.
    Peer,
    /// What the frame of a format with a name says whose it is.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_numbers_are_read() {
        let read = |text: &str| text.parse::<NumberType>().map(|kind| (kind.bytes, kind.is_big_endian)).ok();
        assert_eq!([read("u8"), read("u24be"), read("u64le")], [Some((1, false)), Some((3, true)), Some((8, false))]);
        assert_eq!(["u7", "u32", "i32le", "u08le", "u72be", "ule", ""].map(read), [None; 7]);
    }

    #[test]
    fn ticks_are_times_or_frequencies() {
        let read = |text: &str| text.parse::<Tick>().map(|tick| tick.0).ok();
        assert_eq!(read("8ns"), Some(8_000_000_000));
        assert_eq!(read("125MHz"), Some(8_000_000_000));
        assert_eq!(read("88.0525MHz"), Some(11_356_860_964));
        assert_eq!(read("1s"), Some(1_000_000_000_000_000_000));
        assert_eq!(["", "8", "0ns", "-1ns", "0Hz", "8 furlongs"].map(read), [None; 6]);
    }

    #[test]
    fn checksums_that_there_are_not_are_told_those_that_there_are() {
        assert!("crc7".parse::<ChecksumName>().is_err_and(|error| error.contains("crc16-ccitt")));
    }
}
