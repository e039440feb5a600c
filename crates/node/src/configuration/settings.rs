//! Settings of a front end under run control: text that Ropewalk hands on and does not read.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use std::borrow::Cow;

/// A table, handed on as TOML, or a text of any form.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings(pub String);

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(from)? {
            toml::Value::String(text) => Ok(Self(text)),
            toml::Value::Table(table) => toml::to_string(&table).map(Self).map_err(de::Error::custom),
            other => Err(de::Error::custom(format!("a table [source.settings] or a text, not {}", other.type_str()))),
        }
    }
}

impl JsonSchema for Settings {
    fn schema_name() -> Cow<'static, str> {
        "Settings".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["object", "string"], "description": "a table, or a text of any form" })
    }
}
