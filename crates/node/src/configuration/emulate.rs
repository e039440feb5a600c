//! The key `emulate` of a source.

use super::parse::Faults;
use super::source::SourceSection;
use crate::quantity::{Rate, Size, SizeDistribution};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;

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
pub(super) fn check(source: &SourceSection, key: impl Fn(&str) -> String, faults: &mut Faults) {
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
    /// Reads it; none where nothing is emulated.
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
