//! From text to a checked configuration, keeping the places of everything for errors.

use super::check::check;
use super::written::Written;
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
    let configuration = parse(&file, &text, &|name| std::env::var(name).ok())?;
    Ok(Configuration { file: Some(path.to_owned()), ..configuration })
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

/// The error of a fault that showed only after the file was read, at its place there.
pub fn point_at(path: &Path, fault: &Fault) -> ConfigurationError {
    let (file, text) = match read_text(path) {
        Ok(read) => read,
        Err(error) => return error,
    };
    let table = DeTable::parse(&text).ok();
    let place = table.and_then(|table| place_of(table.get_ref(), &fault.key)).filter(|place| !place.is_empty());
    ConfigurationError::at(&file, &text, place, &fault.key, fault.message.clone())
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
    let configuration: Configuration = parse_as(file, text, variable, &[], check)?;
    Ok(Configuration { written: written(file, text, variable)?, ..configuration })
}

/// What a text that is a configuration says, in one form.
pub(super) fn written(
    file: &str,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Written, ConfigurationError> {
    let (document, _) = Document { file, text, variable }.read(&[])?;
    Ok(Written::new(document))
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
    let document = Document { file, text, variable };
    let (mut values, mut doubtful) = (Vec::with_capacity(instead.len()), None);
    if !instead.is_empty() {
        document.read::<T>(&[])?;
    }
    for (key, value) in instead {
        let form = document.form_of::<T>(key, value);
        if form.is_none() {
            doubtful.get_or_insert(key);
        }
        values.push((key.as_str(), form.or_else(|| value_of(value)).unwrap_or_else(|| text_of(value))));
    }
    let (read, places) = document.read(&values).map_err(|mut error| {
        // An error without a place is one of a value that was given here.
        if error.line == 0 && error.key.is_empty() {
            error.key = doubtful.cloned().unwrap_or_default();
        }
        error
    })?;
    match check(&read) {
        Ok(()) => Ok(read),
        Err(fault) => {
            let place = place_of(places.get_ref(), &fault.key).filter(|place| !place.is_empty());
            Err(ConfigurationError::at(file, text, place, &fault.key, fault.message))
        }
    }
}

/// A text to be read, perhaps more than once.
struct Document<'a> {
    file: &'a str,
    text: &'a str,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Document<'a> {
    /// The text as a `T`, with the places of everything; these values take the place of its own.
    fn read<T: DeserializeOwned>(
        &self,
        instead: &[(&'a str, DeValue<'a>)],
    ) -> Result<(T, Spanned<DeTable<'a>>), ConfigurationError> {
        let at = |place, key: &str, message: String| ConfigurationError::at(self.file, self.text, place, key, message);
        let syntax = |error: toml::de::Error| {
            // What was put in the place of the file's own has no place there.
            let place = error.span().filter(|place| instead.is_empty() || !place.is_empty());
            at(place, "", error.message().to_owned())
        };
        let mut table = DeTable::parse(self.text).map_err(syntax)?;
        let mut unknown = None;
        expand_table(table.get_mut(), self.variable, &mut unknown);
        if let Some((place, name)) = unknown {
            let message =
                format!("the environment variable {name} is not set; set it, or write the value in its place");
            return Err(at(Some(place), "", message));
        }
        for (key, value) in instead {
            replace(table.get_mut(), key, value.clone()).map_err(|message| at(None, key, message))?;
        }
        let places = table.clone();
        let read = T::deserialize(Deserializer::from(table)).map_err(syntax)?;
        Ok((read, places))
    }

    /// A value in the form that its key wants: only that knows whether `512` is a count, or a size that would stand
    /// in quotes. None where the document can be read with neither; perhaps other values are needed as well.
    fn form_of<T: DeserializeOwned>(&self, key: &'a str, value: &'a str) -> Option<DeValue<'a>> {
        let mut forms = value_of(value).into_iter().chain([text_of(value)]);
        forms.find(|form| self.read::<T>(&[(key, form.clone())]).is_ok())
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

/// Puts another value in the place of a key's, such as `front_end.link` or `flow[0].packing`; tables on the way that are not
/// there are made.
fn replace<'a>(table: &mut DeTable<'a>, key: &'a str, value: DeValue<'a>) -> Result<(), String> {
    let (part, rest) = key.split_once('.').map_or((key, None), |(part, rest)| (part, Some(rest)));
    let (name, index) = named(part);
    let key = || Spanned::new(0..0, Cow::Borrowed(name));
    if rest.is_none() && index.is_none() {
        table.insert(key(), Spanned::new(0..0, value));
        return Ok(());
    }
    if table.get(name).is_none() && index.is_none() {
        table.insert(key(), Spanned::new(0..0, DeValue::Table(DeTable::new())));
    }
    let mut found = table.get_mut(name).map(Spanned::get_mut);
    if let Some(index) = index {
        let DeValue::Array(all) = found.ok_or_else(|| format!("there is no `{name}`"))? else {
            return Err(format!("`{name}` is no list, so that it has no `{part}`"));
        };
        let count = all.len();
        let element = all.get_mut(index).ok_or_else(|| format!("`{name}` has {count} elements, from `{name}[0]` on"));
        found = Some(element?.get_mut());
    }
    match (found, rest) {
        (Some(DeValue::Table(inner)), Some(rest)) => replace(inner, rest, value),
        (Some(place), None) => {
            *place = value;
            Ok(())
        }
        (_, rest) => Err(format!("`{part}` is no table, so that it has no `{}`", rest.unwrap_or_default())),
    }
}

/// The name and the index of a part of a key such as `source[3]`.
fn named(part: &str) -> (&str, Option<usize>) {
    match part.split_once('[') {
        Some((name, index)) => (name, index.strip_suffix(']').and_then(|index| index.parse().ok())),
        None => (part, None),
    }
}

/// A value as it would stand in a file; none where it would be a text there, had it quotes.
fn value_of(text: &str) -> Option<DeValue<'_>> {
    DeValue::parse(text).ok().map(Spanned::into_inner)
}

/// A value as a text without quotes.
const fn text_of(text: &str) -> DeValue<'_> {
    DeValue::String(Cow::Borrowed(text))
}

/// Where the value of a key such as `source[3].readout` stands; of its nearest parent where it is not written.
fn place_of(root: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let mut place = None;
    let mut table = Some(root);
    for part in key.split('.') {
        let (name, index) = named(part);
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
