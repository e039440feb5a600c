//! Link cards (FELIX) whose e-links are sources.

use super::entrance::InputChoice;
use super::felix_event::EventChoice;
use super::felix_serve::ServeSection;
use super::source::SourceSection;
use crate::quantity::{Bandwidth, Bytes, ChunkBytes, Rate, SizeDistribution, Time};
use ropewalk_flow::readout::felix::EventRule;
use ropewalk_flow::source::felix::{FAULTS, FaultShare, Faults};
use ropewalk_wire::felix::BlockFormat;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A link card.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FelixSection {
    /// Name of the card, with the same rules as for readout units. It is also the name of the thread of an emulated
    /// card; the memory is named `NAME-ring`.
    pub name: String,
    /// Kind of blocks that the card writes. `"0xABCD"` or `"narrow"` (1 KiB, trailers of 16 bits), `"0xABCE"` or
    /// `"wide"` (1 KiB, 32 bits), or a size of 1 KiB to 64 KiB (32 bits). With the wrong kind every block counts as
    /// damaged.
    #[serde(default)]
    pub blocks: Blocks,
    /// Size of the ring, at least four of the largest chunks and 1 MiB. It should hold all that arrives while the disk
    /// pauses. While it is full, the card waits.
    #[serde(default = "memory")]
    pub memory: Bytes,
    /// How the readout unit learns of new blocks.
    #[serde(default)]
    pub wake: WakeChoice,
    /// Where a chunk contains its event number. The counter of the card's sources is as wide as this number. A chunk
    /// that is too short counts as `malformed`.
    #[serde(default)]
    pub event: EventChoice,
    /// The chunks of the card also go to subscribers (`ropewalk felix subscribe`).
    pub serve: Option<ServeSection>,
    /// An emulator replaces the card.
    pub emulate: Option<EmulateCard>,
    /// The blocks are read from a file (`"blocks.dat"`), from a FIFO (`"fifo:PATH"`), or from standard input (`"-"`).
    /// The FIFO is created if it does not exist. At the end of the input the card's sources end, and with the last of
    /// them the run. If a file contains other blocks than `blocks` says, the program ends with status 2. Bytes between
    /// blocks and an incomplete last block are named at the end; the latter gives status 3.
    pub input: Option<InputChoice>,
    /// Highest speed at which blocks are read, such as `"800MB/s"`. Without it: as fast as possible.
    pub input_speed: Option<Bandwidth>,
    /// What writes the blocks of an emulated card.
    #[serde(default)]
    pub writer: WriterChoice,
}

impl FelixSection {
    /// Whether its blocks come from outside of the process that reads its ring.
    pub fn is_foreign(&self) -> bool {
        self.input.is_some() || self.writer == WriterChoice::Process
    }

    /// Where the chunks of one of its e-links say to which event they belong.
    pub fn rule_of(&self, source: &SourceSection) -> EventRule {
        let own = source.felix.as_ref().and_then(|link| link.event);
        own.unwrap_or(self.event).rule()
    }
}

/// What writes the blocks of an emulated card.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriterChoice {
    /// A thread of the readout unit's process.
    #[default]
    Thread,
    /// A separate process that gets the ring as a file; the run starts it. If it is killed, what it had handed over is
    /// built, and the end of the run names it.
    Process,
}

/// How a readout unit learns of new blocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WakeChoice {
    /// The card wakes the readout unit when that sleeps.
    #[default]
    Interrupt,
    /// The readout unit looks every 200 us.
    Poll,
}

/// An e-link of a card.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ELinkSection {
    /// Name of the card.
    pub card: String,
    /// Number of the e-link, 0 to 2047.
    pub elink: u16,
    /// Where its chunks contain the event number, if not as in other chunks of the card.
    pub event: Option<EventChoice>,
}

/// An emulated link card. Every e-link sends one chunk per trigger, as fast as `rate` and `link_speed` allow.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmulateCard {
    /// Size of the chunks of every e-link except that of the trigger source; fixed or a distribution. A chunk has at
    /// least 8 bytes, or as many as the header that `event` names.
    pub chunk_size: ChunkBytes,
    /// Size of the chunks of the trigger source, like those of a TTC link.
    pub trigger_chunk_size: ChunkBytes,
    /// Trigger rate. Without it: as fast as possible.
    pub rate: Option<Rate>,
    /// Highest bandwidth of one e-link, such as `"3.2Gb/s"`. Without it: as fast as possible.
    pub link_speed: Option<Bandwidth>,
    /// Faults by [name](felix.md#faults-on-demand), and the share of all chunks or blocks that each affects, 0 to 1.
    /// Those of chunks are at most 1 together, and those of blocks too. `lost_bytes` is only for streams.
    pub faults: FaultShares,
    /// E-links that fail and come back, such as `[{ elink = 31, from = "20s", lasts = "10s" }]`.
    pub outages: Vec<OutageSection>,
}

impl Default for EmulateCard {
    fn default() -> Self {
        Self {
            chunk_size: ChunkBytes(SizeDistribution::Fixed(1024)),
            trigger_chunk_size: ChunkBytes(SizeDistribution::Fixed(24)),
            rate: None,
            link_speed: None,
            faults: FaultShares::default(),
            outages: Vec::new(),
        }
    }
}

/// How often an emulated card's faults strike: a table of their names and shares.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct FaultShares(pub Faults);

impl<'de> Deserialize<'de> for FaultShares {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wrong = serde::de::Error::custom;
        let shares = BTreeMap::<Cow<'_, str>, f64>::deserialize(from)?;
        let shares = shares.into_iter().map(|(name, share)| FaultShare::new(name.parse()?, share));
        let shares = shares.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        Faults::new(shares).map(Self).map_err(wrong)
    }
}

impl JsonSchema for FaultShares {
    fn schema_name() -> Cow<'static, str> {
        "FaultShares".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let share = |help| json!({ "type": "number", "minimum": 0, "maximum": 1, "default": 0, "description": help });
        let shares = FAULTS.iter().map(|fault| (fault.name().to_owned(), share(fault.help())));
        json_schema!({
            "type": "object",
            "description": "Shares of all chunks, or of all blocks, that are affected; at most 1 together.",
            "properties": shares.collect::<Map<String, Value>>(),
            "additionalProperties": false,
        })
    }
}

/// An e-link that fails and comes back.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutageSection {
    /// Number of the e-link.
    pub elink: u16,
    /// When it fails, after the start.
    pub from: Time,
    /// How long it is gone.
    pub lasts: Time,
}

/// The kind of a card's blocks: `narrow` or `0xABCD`, `wide` or `0xABCE`, or a size of 1KiB to 64KiB.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Blocks(pub BlockFormat);

const BLOCKS: &str = "a kind of FELIX blocks: narrow or 0xABCD (1 KiB, trailers of 16 bits), wide or 0xABCE (1 KiB, 32 \
                      bits), or a size of 1KiB to 64KiB such as 4KiB (32 bits)";

impl Default for Blocks {
    fn default() -> Self {
        Self(BlockFormat::sized(4).expect("4 KiB is a size of blocks"))
    }
}

impl FromStr for Blocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sized = |text: &str| {
            let bytes = text.parse::<Bytes>().ok()?.0;
            BlockFormat::sized(u16::try_from(bytes >> 10).ok()?).filter(|_| bytes.is_multiple_of(1024))
        };
        let format = match text.to_ascii_lowercase().as_str() {
            "narrow" | "0xabcd" => Some(BlockFormat::NARROW),
            "wide" | "0xabce" => Some(BlockFormat::WIDE),
            _ => sized(text),
        };
        format.map(Self).ok_or_else(|| format!("`{text}` is not {BLOCKS}"))
    }
}

/// As a configuration has it.
impl fmt::Display for Blocks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            BlockFormat::NARROW => out.write_str("0xABCD"),
            BlockFormat::WIDE => out.write_str("0xABCE"),
            sized => write!(out, "{}KiB", sized.block_bytes() >> 10),
        }
    }
}

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<'_, str>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Blocks {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl JsonSchema for Blocks {
    fn schema_name() -> Cow<'static, str> {
        "Blocks".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": BLOCKS })
    }
}

const fn memory() -> Bytes {
    Bytes(64 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_blocks_are_read() {
        for (text, symbol) in
            [("0xABCD", 0xabcd), ("0xabce", 0xabce), ("1KiB", 0xc0ce), ("4KiB", 0xc3ce), ("64KiB", 0xffce)]
                .into_iter()
                .chain([("narrow", 0xabcd), ("wide", 0xabce)])
        {
            let blocks: Blocks = text.parse().expect("a kind of blocks");
            assert_eq!((blocks.0.symbol(), blocks.to_string().parse()), (symbol, Ok(blocks)));
        }
        for text in ["", "0xABCF", "512", "65KiB", "1500", "4"] {
            assert!(text.parse::<Blocks>().is_err_and(|error| error.contains("such as 4KiB")), "{text}");
        }
    }
}
