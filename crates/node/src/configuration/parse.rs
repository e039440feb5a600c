//! From text to a checked configuration, keeping the places of everything for errors.

use super::check::check;
use super::{Configuration, ConfigurationError};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

/// A key such as `source[3].readout`, and what is wrong with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The key; empty for the whole.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Fault {
    /// A fault of this key.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: message.into() }
    }
}

/// Reads and checks a configuration file.
///
/// # Errors
/// Where the file cannot be read or does not hold a usable configuration.
pub fn read(path: &Path) -> Result<Configuration, ConfigurationError> {
    let (file, text) = read_text(path)?;
    parse(&file, &text, &|name| std::env::var(name).ok())
}

/// The name of a file as errors give it, and its text.
///
/// # Errors
/// Where the file cannot be read.
pub fn read_text(path: &Path) -> Result<(String, String), ConfigurationError> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((file, text)),
        Err(error) => Err(ConfigurationError::at(&file, "", None, "", format!("cannot be read: {error}"))),
    }
}

/// Reads and checks a configuration; `variable` looks up what `${NAME}` in a value stands for.
///
/// # Errors
/// Where the text does not hold a usable configuration.
pub fn parse(
    file: &str,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Configuration, ConfigurationError> {
    parse_as(file, text, variable, &[], check)
}

/// Reads any TOML document in the way of a configuration: `${NAME}` is looked up by `variable`, the values in
/// `instead` (a key such as `readout.pool` and a value as it would stand in the file) take the place of the file's, and
/// `check` judges the whole.
///
/// # Errors
/// Where the text is no TOML, holds an unknown key or a value of the wrong form, or does not please `check`.
pub fn parse_as<T: DeserializeOwned>(
    file: &str,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    instead: &[(String, String)],
    check: impl FnOnce(&T) -> Result<(), Fault>,
) -> Result<T, ConfigurationError> {
    let read = |as_texts: bool| {
        let syntax = |error: toml::de::Error| {
            // What was put in the place of the file's own has no place there.
            let place = error.span().filter(|place| instead.is_empty() || !place.is_empty());
            ConfigurationError::at(file, text, place, "", error.message())
        };
        let mut table = DeTable::parse(text).map_err(syntax)?;
        let mut unknown = None;
        expand_table(table.get_mut(), variable, &mut unknown);
        if let Some((place, name)) = unknown {
            let message =
                format!("the environment variable {name} is not set; set it, or write the value in its place");
            return Err(ConfigurationError::at(file, text, Some(place), "", message));
        }
        for (key, value) in instead {
            let value = value_of(value).filter(|_| !as_texts).unwrap_or(DeValue::String(Cow::Borrowed(value)));
            replace(table.get_mut(), key, value)
                .map_err(|message| ConfigurationError::at(file, text, None, key, message))?;
        }
        let places = table.clone();
        T::deserialize(Deserializer::from(table)).map_err(syntax).map(|document| (document, places))
    };
    // Whether `512` is a count or a size of 512 bytes, only the key knows.
    let (document, places) = match read(false) {
        Err(error) if !instead.is_empty() => read(true).map_err(|_| error)?,
        read => read?,
    };
    match check(&document) {
        Ok(()) => Ok(document),
        Err(fault) => {
            let place = place_of(places.get_ref(), &fault.key).filter(|place| !place.is_empty());
            Err(ConfigurationError::at(file, text, place, &fault.key, fault.message))
        }
    }
}

type Unknown = Option<(Range<usize>, String)>;

fn expand_table(table: &mut DeTable<'_>, variable: &dyn Fn(&str) -> Option<String>, unknown: &mut Unknown) {
    for (_, value) in table.iter_mut() {
        expand(value, variable, unknown);
    }
}

/// Replaces every `${NAME}` in the texts below `value`; remembers the first name without meaning.
fn expand(value: &mut Spanned<DeValue<'_>>, variable: &dyn Fn(&str) -> Option<String>, unknown: &mut Unknown) {
    let place = value.span();
    match value.get_mut() {
        DeValue::String(text) if text.contains("${") => match substitute(text, variable) {
            Ok(expanded) => *text = Cow::Owned(expanded),
            Err(name) => {
                unknown.get_or_insert((place, name));
            }
        },
        DeValue::Array(array) => {
            for element in array.iter_mut() {
                expand(element, variable, unknown);
            }
        }
        DeValue::Table(table) => expand_table(table, variable, unknown),
        _ => {}
    }
}

fn substitute(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, tail) = after.split_once('}').ok_or_else(|| after.to_owned())?;
        result.push_str(before);
        result.push_str(&variable(name).ok_or_else(|| name.to_owned())?);
        rest = tail;
    }
    result.push_str(rest);
    Ok(result)
}

/// Puts another value in the place of a key's; tables on the way that are not there are made.
fn replace<'a>(table: &mut DeTable<'a>, key: &'a str, value: DeValue<'a>) -> Result<(), String> {
    let (name, rest) = key.split_once('.').map_or((key, None), |(name, rest)| (name, Some(rest)));
    let key = || Spanned::new(0..0, Cow::Borrowed(name));
    let Some(rest) = rest else {
        table.insert(key(), Spanned::new(0..0, value));
        return Ok(());
    };
    if table.get(name).is_none() {
        table.insert(key(), Spanned::new(0..0, DeValue::Table(DeTable::new())));
    }
    match table.get_mut(name).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => replace(inner, rest, value),
        _ => Err(format!("`{name}` is no table, so that it has no `{rest}`")),
    }
}

/// A value as it would stand in a file; none where it would be a text there, had it quotes.
fn value_of(text: &str) -> Option<DeValue<'_>> {
    DeValue::parse(text).ok().map(Spanned::into_inner)
}

/// Where the value of a key such as `source[3].readout` stands; of its nearest parent where it is not written.
fn place_of(root: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let mut place = None;
    let mut table = Some(root);
    for part in key.split('.') {
        let (name, index) = match part.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (part, None),
        };
        let mut value = table?.get(name)?;
        if let (Some(index), DeValue::Array(array)) = (index, value.get_ref()) {
            value = array.get(index)?;
        }
        place = Some(value.span());
        table = match value.get_ref() {
            DeValue::Table(inner) => Some(inner),
            _ => None,
        };
        if table.is_none() {
            break;
        }
    }
    place
}
