//! The key `format` of a source.

use super::error::no_such;
use crate::quantity::read_from_text;
use ropewalk_wire::foreign::ForeignFormat;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::str::FromStr;

/// The data format of a source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum FormatName {
    /// CMS FED fragments in FEROL blocks.
    #[default]
    Ferol,
    /// Generic fragments (`docs/generic-fragment.md`).
    Generic,
    /// Another format by its name (`docs/formats.md`).
    Foreign(ForeignFormat),
}

const FORMAT: &str = "\"ferol\", \"generic\", or the name of somebody else's format, such as \"midas\" or \"fed\"";

impl FormatName {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ferol => "ferol",
            Self::Generic => "generic",
            Self::Foreign(format) => format.name(),
        }
    }

    /// Whether a frame of it holds several events, into which it is divided without a splitter.
    pub const fn has_several_events(self) -> bool {
        matches!(self, Self::Foreign(format) if format.has_several_events())
    }
}

impl FromStr for FormatName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "ferol" => Ok(Self::Ferol),
            "generic" => Ok(Self::Generic),
            _ => ForeignFormat::by_name(name).map(Self::Foreign).ok_or_else(|| {
                let names = ForeignFormat::ALL.iter().map(|format| format.name());
                no_such("format is named", name, ["ferol", "generic"].into_iter().chain(names))
            }),
        }
    }
}

read_from_text!(FormatName: FORMAT);

impl Serialize for FormatName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}
