//! Link cards (FELIX) whose e-links are sources: where their chunks say to which event they belong, and who may
//! subscribe.

use crate::quantity::{
    Bandwidth, ByteOrigin, Bytes, ChunkBytes, HOST_AND_PORT, Rate, SizeDistribution, Time, UNIT_NAME,
};
use ropewalk_engine::stream::ServerConfig;
use ropewalk_flow::readout::felix::{EventRule, NumberField};
use ropewalk_flow::source::felix::{FAULTS, FaultShare, Faults as CardFaults};
use ropewalk_flow::stream::{MOST_SUBSCRIBERS, RouterConfig};
use ropewalk_wire::felix::BlockFormat;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
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
    #[schemars(regex(pattern = UNIT_NAME))]
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
    pub input: Option<ByteOrigin>,
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

/// How a readout unit is notified of new blocks.
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
#[derive(Clone, PartialEq, Debug, Deserialize, JsonSchema)]
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
    /// Those of chunks are at most 1 together, and those of blocks too. `lost_bytes` is only for streams, and
    /// `busy` needs trailers of 32 bits.
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

/// The faults of an emulated card: a table of their names and shares.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct FaultShares(pub CardFaults);

impl<'de> Deserialize<'de> for FaultShares {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wrong = serde::de::Error::custom;
        let shares = BTreeMap::<Cow<'_, str>, f64>::deserialize(from)?;
        let shares = shares.into_iter().map(|(name, share)| FaultShare::new(name.parse()?, share));
        let shares = shares.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        CardFaults::new(shares).map(Self).map_err(wrong)
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

/// The head of a chunk: a field in it, or a kind of heads that is known by its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EventChoice {
    /// A field.
    Field(EventField),
    /// `"rod"`: the header of an ATLAS ROD fragment.
    Rod,
}

impl EventChoice {
    /// The rule as configuration of the machines.
    pub fn rule(self) -> EventRule {
        match self {
            Self::Field(field) => EventRule::Field(field.field()),
            Self::Rod => EventRule::Rod,
        }
    }
}

impl Default for EventChoice {
    fn default() -> Self {
        Self::Field(EventField::default())
    }
}

const CHOICE: &str = "a table of `offset`, `bytes`, `endian` and `mask`, or \"rod\", the header of a ROD fragment";

impl<'de> Deserialize<'de> for EventChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Choice;
        impl<'de> Visitor<'de> for Choice {
            type Value = EventChoice;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(CHOICE)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<EventChoice, E> {
                if text == "rod" {
                    Ok(EventChoice::Rod)
                } else {
                    Err(E::custom(format!("`{text}` is no kind of heads: {CHOICE}")))
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EventChoice, A::Error> {
                EventField::deserialize(MapAccessDeserializer::new(map)).map(EventChoice::Field)
            }
        }
        from.deserialize_any(Choice)
    }
}

const ROD: &str = "Chunks begin with the header of an ATLAS ROD fragment, as those of FULL-mode links do. The level-1 \
                   id (24 bits) is the event number ([felix.md](felix.md#the-card-and-the-builder)).";

impl JsonSchema for EventChoice {
    fn schema_name() -> Cow<'static, str> {
        "EventChoice".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let field = generator.subschema_for::<EventField>();
        json_schema!({ "description": CHOICE, "anyOf": [field, { "const": "rod", "description": ROD }] })
    }
}

/// The event number in a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EventField {
    /// Bytes before the number.
    pub offset: u16,
    /// Width of the number, 1 to 8 bytes.
    pub bytes: u8,
    /// Byte order.
    pub endian: Endian,
    /// Bits of the number that count; they are contiguous, at least 8. Without it: all bits.
    pub mask: Option<u64>,
}

impl Default for EventField {
    fn default() -> Self {
        Self { offset: 0, bytes: 4, endian: Endian::Little, mask: None }
    }
}

impl EventField {
    fn field(self) -> NumberField {
        let all = u64::MAX.checked_shr(64 - 8 * u32::from(self.bytes.clamp(1, 8))).unwrap_or(0);
        NumberField {
            offset: self.offset,
            bytes: self.bytes,
            is_big_endian: self.endian == Endian::Big,
            mask: self.mask.unwrap_or(all),
        }
    }
}

/// Byte order of a number.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Endian {
    /// The least significant byte first.
    #[default]
    Little,
    /// The most significant byte first.
    Big,
}

/// A server of a card's chunks.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServeSection {
    /// Address to which subscribers connect. `0.0.0.0:9570` admits other machines. If the address is taken, the program
    /// ends with status 4.
    #[schemars(regex(pattern = HOST_AND_PORT))]
    pub listen: String,
    /// Highest number of subscribers at once, 1 to 64. Further ones are refused.
    pub subscribers: u8,
    /// The card is not read before this many subscribers are connected.
    pub wait: u32,
    /// Bytes that may wait for one subscriber. With a small queue chunks are dropped, or the card is held up, sooner.
    pub queue: Bytes,
    /// This many bytes are sent without waiting for more.
    pub coalesce: Bytes,
    /// Data that has waited for this time is sent.
    pub coalesce_time: Time,
    /// Return messages that subscribers send to e-links, as if front ends had sent them. They are in no event, and
    /// reach no front end. Without `loop_back` the server refuses such messages: it answers with an error and counts
    /// them in `down_link_refused`. Down-links to cards are not implemented yet.
    pub loop_back: bool,
}

impl Default for ServeSection {
    fn default() -> Self {
        let usual = RouterConfig::default();
        Self {
            listen: "127.0.0.1:0".to_owned(),
            subscribers: usual.subscribers as u8,
            wait: 0,
            queue: Bytes(usual.queue_bytes),
            coalesce: Bytes(usual.coalesce_bytes),
            coalesce_time: Time(usual.coalesce_time),
            loop_back: false,
        }
    }
}

impl ServeSection {
    /// What is wrong with it: the key, and what would be right.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        let subscribers = usize::from(self.subscribers);
        if !(1..=MOST_SUBSCRIBERS).contains(&subscribers) {
            return Some(("subscribers", format!("1 to {MOST_SUBSCRIBERS} subscribers at once")));
        }
        if self.wait > u32::from(self.subscribers) {
            let message = format!("no more than {subscribers} can be there: lower it, or enlarge `subscribers`");
            return Some(("wait", message));
        }
        None
    }

    /// The same as configuration of the server.
    pub fn server(&self) -> ServerConfig {
        let router = RouterConfig {
            subscribers: usize::from(self.subscribers),
            queue_bytes: self.queue.0,
            coalesce_bytes: self.coalesce.0,
            coalesce_time: self.coalesce_time.0,
            ..RouterConfig::default()
        };
        ServerConfig { router, wait_for: self.wait, loop_back: self.loop_back, ..ServerConfig::default() }
    }
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

    #[test]
    fn a_field_of_any_width_has_all_its_bits_unless_some_are_named() {
        let bits = |bytes, mask| EventChoice::Field(EventField { bytes, mask, ..EventField::default() }).rule().bits();
        assert_eq!(EventChoice::default().rule(), EventRule::USUAL);
        assert_eq!(
            (bits(1, None), bits(3, None), bits(8, None), bits(4, Some(0xff_ff00))),
            (Some(8), Some(24), Some(64), Some(16))
        );
        assert_eq!((bits(0, None), bits(9, None)), (None, None));
    }
}
