//! From text to a checked configuration, keeping the places of everything for errors.

use super::check::check;
use super::{Configuration, ConfigurationError};
use serde::Deserialize;
use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

/// Reads and checks a configuration file.
///
/// # Errors
/// Where the file cannot be read or does not hold a usable configuration.
pub fn read(path: &Path) -> Result<Configuration, ConfigurationError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigurationError::at(&file, "", None, "", format!("cannot be read: {error}")))?;
    parse(&file, &text, &|name| std::env::var(name).ok())
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
    let syntax = |error: toml::de::Error| ConfigurationError::at(file, text, error.span(), "", error.message());
    let mut table = DeTable::parse(text).map_err(syntax)?;
    let mut unknown = None;
    expand_table(table.get_mut(), variable, &mut unknown);
    if let Some((place, name)) = unknown {
        let message = format!("the environment variable {name} is not set; set it, or write the value in its place");
        return Err(ConfigurationError::at(file, text, Some(place), "", message));
    }
    let places = table.clone();
    let configuration = Configuration::deserialize(Deserializer::from(table)).map_err(syntax)?;
    match check(&configuration) {
        Ok(()) => Ok(configuration),
        Err(fault) => {
            let place = place_of(places.get_ref(), &fault.key);
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
