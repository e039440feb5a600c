//! Where the chunks of an e-link say to which event they belong.

use ropewalk_flow::readout::felix::{EventRule, NumberField};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::fmt;

/// The head of a chunk: a field in it, or a kind of heads that is known by its name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EventChoice {
    /// A field.
    Field(EventField),
    /// `"rod"`: the header of an ATLAS ROD fragment.
    Rod,
}

impl EventChoice {
    /// The rule in the words of the machines.
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

#[cfg(test)]
mod tests {
    use super::*;

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
