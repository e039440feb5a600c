//! Link cards (FELIX) whose e-links are sources.

use super::entrance::InputChoice;
use super::felix_event::EventChoice;
use super::felix_serve::ServeSection;
use super::model::SourceSection;
use crate::quantity::{Bandwidth, Bytes, ChunkBytes, Rate, SizeDistribution, Time};
use ropewalk_flow::readout::felix::EventRule;
use ropewalk_flow::source::felix::{FAULTS, FaultShare, Faults};
use ropewalk_wire::felix::BlockFormat;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A link card.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FelixSection {
    /// Its name.
    pub name: String,
    /// The blocks that it writes.
    #[serde(default)]
    pub blocks: Blocks,
    /// The ring of memory that it writes them to.
    #[serde(default = "memory")]
    pub memory: Bytes,
    /// How its readout unit learns of them.
    #[serde(default)]
    pub wake: WakeChoice,
    /// Where its chunks say to which event they belong.
    #[serde(default)]
    pub event: EventChoice,
    /// Subscribers may ask for its chunks as well.
    pub serve: Option<ServeSection>,
    /// An emulator takes its place.
    pub emulate: Option<EmulateCard>,
    /// Its blocks are read from a file, from standard input (`-`), or from a FIFO that is made where there is none
    /// (`fifo:PATH`).
    pub input: Option<InputChoice>,
    /// How fast they are read at most.
    pub input_speed: Option<Bandwidth>,
    /// Who writes the blocks of an emulated card.
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

/// Who writes the blocks of an emulated card.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriterChoice {
    /// A thread of the process that reads them.
    #[default]
    Thread,
    /// A process of its own, which is given the ring as a file.
    Process,
}

/// How a card's readout unit learns of what was written.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WakeChoice {
    /// The card wakes it when it sleeps.
    #[default]
    Interrupt,
    /// It looks again and again.
    Poll,
}

/// Which e-link of which card a source is.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ELinkSection {
    /// The card's name.
    pub card: String,
    /// The e-link, 0 to 2047.
    pub elink: u16,
    /// Where its chunks say to which event they belong, if not as the card's others do.
    pub event: Option<EventChoice>,
}

/// An emulated card.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EmulateCard {
    /// The chunks of every e-link but the trigger source's.
    pub chunk_size: ChunkBytes,
    /// The chunks of the trigger source.
    pub trigger_chunk_size: ChunkBytes,
    /// How often triggers come; as fast as it goes where it is not given.
    pub rate: Option<Rate>,
    /// How fast each e-link is; as fast as it goes where it is not given.
    pub link_speed: Option<Bandwidth>,
    /// How often what goes wrong.
    pub faults: FaultShares,
    /// Links that fail and come back.
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
        let share = |help| json!({ "type": "number", "minimum": 0, "maximum": 1, "description": help });
        let shares = FAULTS.iter().map(|fault| (fault.name().to_owned(), share(fault.help())));
        json_schema!({
            "type": "object",
            "description": "Shares of all chunks, or of all blocks, that are struck; 1 at most together.",
            "properties": shares.collect::<Map<String, Value>>(),
            "additionalProperties": false,
        })
    }
}

/// An e-link that fails and comes back.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutageSection {
    /// Which one.
    pub elink: u16,
    /// When, after the start.
    pub from: Time,
    /// For how long.
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
