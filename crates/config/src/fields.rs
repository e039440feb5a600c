//! The fields that describe a run (the beam, the target, the shift crew), given at its start, and the fields that a
//! configuration requires.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Fields of a run, at most.
const MOST: usize = 64;
/// Bytes of a name, at most: lower-case letters, digits and `_`, a letter first.
const LONGEST_NAME: usize = 32;
/// Bytes of a value, at most, none of which is a control character.
const LONGEST_VALUE: usize = 1024;

/// Names and values, in the order of the names.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Fields(BTreeMap<String, String>);

/// One of them, as `beam=120 GeV` says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    name: String,
    value: String,
}

/// Why it is no field, or why there are too many.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FieldError(String);

/// Whether a field may have this name.
pub fn is_field_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(is_good)
}

impl FromStr for Field {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let error = |what: &str| {
            let shown: String = text.chars().take(LONGEST_NAME).flat_map(char::escape_default).collect();
            FieldError(format!("`{shown}` is not {what}"))
        };
        let (name, value) = text.split_once('=').ok_or_else(|| error("NAME=VALUE, such as beam=120GeV"))?;
        let (name, value) = (name.trim(), value.trim());
        if !is_field_name(name) {
            return Err(error(
                "a field: its name has 1 to 32 lower-case letters, digits and `_`, and begins with a letter",
            ));
        }
        if value.is_empty() || value.len() > LONGEST_VALUE || value.chars().any(char::is_control) {
            return Err(FieldError(format!("the value of `{name}` is one line of 1 to 1024 bytes")));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

impl Fields {
    /// Creates the fields; the later value of a repeated field is valid.
    ///
    /// # Errors
    /// More than 64 fields.
    pub fn new(fields: impl IntoIterator<Item = Field>) -> Result<Self, FieldError> {
        let fields: BTreeMap<_, _> = fields.into_iter().map(|Field { name, value }| (name, value)).collect();
        if fields.len() > MOST {
            return Err(FieldError(format!("a run has {MOST} fields at most")));
        }
        Ok(Self(fields))
    }

    /// These, and those of `others` that are not among them.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        for (name, value) in &others.0 {
            self.0.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self
    }

    /// Which of the required ones are not said.
    pub fn missing<'a>(&self, required: &'a [String]) -> Vec<&'a str> {
        required.iter().map(String::as_str).filter(|name| !self.0.contains_key(*name)).collect()
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The error text for missing fields, with the way to give them.
    pub fn refusal(missing: &[&str]) -> String {
        let example = missing.first().unwrap_or(&"beam");
        format!("a run's start needs {}: say it with the start (--field {example}=VALUE)", missing.join(", "))
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (name, value)) in self.0.iter().enumerate() {
            write!(out, "{}{name}={value}", if number == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(texts: &[&str]) -> Fields {
        Fields::new(texts.iter().map(|text| text.parse().expect("a field"))).expect("few fields")
    }

    #[test]
    fn a_field_is_a_name_and_a_line_of_text() {
        let said = fields(&["beam = 120 GeV e+", "target=a=b", "beam=60 GeV"]);
        assert_eq!(said.to_string(), "beam=60 GeV, target=a=b");
        for (wrong, error) in [
            ("beam", "`beam` is not NAME=VALUE, such as beam=120GeV"),
            ("Beam=1", "`Beam=1` is not a field: its name"),
            ("=1", "`=1` is not a field: its name"),
            ("1st=1", "`1st=1` is not a field: its name"),
            ("beam= ", "the value of `beam`"),
            ("beam=a\nb", "the value of `beam`"),
        ] {
            let said = wrong.parse::<Field>().expect_err("not a field").to_string();
            assert!(said.starts_with(error), "{wrong:?}: {said}");
        }
        assert!(format!("beam={}", "x".repeat(1025)).parse::<Field>().is_err());
        let many = (0..65).map(|number| format!("a{number}=1").parse().expect("a field"));
        assert!(Fields::new(many).is_err());
    }

    #[test]
    fn what_is_said_now_goes_before_what_was_said_once() {
        let said = fields(&["beam=60 GeV"]).or(&fields(&["beam=120 GeV", "shifter=ada"]));
        assert_eq!(said.to_string(), "beam=60 GeV, shifter=ada");
        let required = ["target", "beam", "magnet"].map(str::to_owned);
        assert_eq!(said.missing(&required), ["target", "magnet"]);
        assert!(Fields::refusal(&["target", "magnet"]).contains("target, magnet"));
    }
}
