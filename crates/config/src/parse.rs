//! From text to a checked configuration, keeping the places of everything for errors.

use super::check::check;
use super::error::{Fault, Faults, meant_key, missing_key, plain, unknown_key};
use super::written::Written;
use super::{Configuration, ConfigurationError};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

/// How many forms of a value are shown as examples at most.
const MOST_FORMS: usize = 6;

/// Reads and checks a configuration file.
///
/// # Errors
/// If the file cannot be read or does not hold a usable configuration.
pub fn read(path: &Path) -> Result<Configuration, ConfigurationError> {
    let (file, text) = read_text(path)?;
    let configuration = parse(&file, &text, &|name| std::env::var(name).ok())?;
    Ok(Configuration { file: Some(path.to_owned()), ..configuration })
}

/// As [`read`], of a system whose builder units pull from readout units.
///
/// # Errors
/// As [`read`], and if the system has gateways.
pub fn read_pull(path: &Path) -> Result<Configuration, ConfigurationError> {
    let configuration = read(path)?;
    let message = "this command is for readout and builder units, and the file describes gateways";
    if configuration.has_gateways() { Err(point_at(path, &Fault::new("gateway", message))) } else { Ok(configuration) }
}

/// As [`read`], of a system whose sources push to gateways.
///
/// # Errors
/// As [`read`], and if the system has readout and builder units.
pub fn read_push(path: &Path) -> Result<Configuration, ConfigurationError> {
    let configuration = read(path)?;
    let message = "this command is for gateways, and the file describes readout and builder units";
    if configuration.has_gateways() { Ok(configuration) } else { Err(point_at(path, &Fault::new("readout", message))) }
}

/// The name of a file as errors give it, and its text.
///
/// # Errors
/// If the file cannot be read.
pub fn read_text(path: &Path) -> Result<(String, String), ConfigurationError> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((file, text)),
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            let message = "is no text, and therefore no configuration; `ropewalk sniff` and `ropewalk inspect` look at recorded data";
            Err(ConfigurationError::at(&file, "", None, "", message.to_owned()))
        }
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

/// Reads and checks a configuration; `variable` looks up the value of `${NAME}`.
///
/// # Errors
/// If the text does not hold a usable configuration. The error contains everything that is wrong.
pub fn parse(
    file: &str,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Configuration, ConfigurationError> {
    let document = Document { file, text, variable, schema: Some(|| schemars::schema_for!(Configuration)) };
    let written = document.written();
    let said = written.as_ref().cloned().unwrap_or_default();
    let mut configuration: Configuration =
        document.checked(&[], |configuration, faults| check(configuration, &said, faults))?;
    configuration.adopt_renamed();
    Ok(Configuration { written: written?, ..configuration })
}

/// Parses any TOML document like a configuration: `variable` looks up `${NAME}`, the values in `instead` (a key such as
/// `readout.pool` and a value as in a file) replace those of the file, and `check` checks the result.
///
/// # Errors
/// If the text is not TOML, contains an unknown key or a value of the wrong form, or fails `check`. The error contains
/// all of them.
pub fn parse_as<T: DeserializeOwned>(
    file: &str,
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    instead: &[(String, String)],
    check: impl Fn(&T, &mut Faults),
) -> Result<T, ConfigurationError> {
    Document { file, text, variable, schema: None }.checked(instead, check)
}

/// A text to be read, perhaps more than once.
struct Document<'a> {
    file: &'a str,
    text: &'a str,
    variable: &'a dyn Fn(&str) -> Option<String>,
    /// The schema of what is read, for examples of right values.
    schema: Option<fn() -> schemars::Schema>,
}

/// Keys whose values refer to the names or ids of a list's sections.
fn references(list: &str) -> &'static [&'static str] {
    match list {
        "readout" => &["readout"],
        "felix" => &["card"],
        "flow" => &["listen", "decisions"],
        "source" => &["id", "source", "reference", "triggers"],
        _ => &[],
    }
}

/// A key, and the value that replaces the one in the file.
type Instead<'a> = (&'a str, DeValue<'a>);

/// The error for a key in the wrong section names the right sections, if there are at most this many.
const MOST_SECTIONS: usize = 3;

/// How many errors are collected at most.
const MOST_ERRORS: usize = 50;

/// The readable part of a document.
struct Mended<'a, T> {
    /// The document without its wrong keys; `None` if even that cannot be read.
    read: Option<T>,
    /// The places of all keys in the text.
    places: Spanned<DeTable<'a>>,
    /// The table from which `read` was read.
    table: Spanned<DeTable<'a>>,
    errors: Vec<ConfigurationError>,
    /// Keys that were left out, or filled in because they are missing.
    mended: Vec<String>,
    /// The text is valid TOML, and all variables are set.
    is_whole: bool,
}

impl<T> Mended<'_, T> {
    /// Whether a fault may be a consequence of a mended key: it is in the same section, or it refers to a name, an id
    /// or a list that was replaced.
    fn may_have_caused(&self, fault: &Fault) -> bool {
        fn section(key: &str) -> &str {
            key.split_once('.').map_or(key, |(section, _)| section)
        }
        let last = fault.key.rsplit_once('.').map_or(fault.key.as_str(), |(_, last)| last);
        self.mended.iter().any(|key| {
            let list = named(section(key)).0;
            let is_name = !key.contains('.') || key.ends_with(".name") || key.ends_with(".id");
            let refers = last == "name" || references(list).iter().any(|name| last.starts_with(name));
            section(key) == section(&fault.key) || (is_name && refers)
        })
    }
}

impl<'a> Document<'a> {
    /// Reads and checks the text; see [`parse_as`].
    fn checked<T: DeserializeOwned>(
        &self,
        instead: &'a [(String, String)],
        check: impl Fn(&T, &mut Faults),
    ) -> Result<T, ConfigurationError> {
        let (values, doubtful) = self.values_of::<T>(instead)?;
        let mut mended = self.mend::<T>(&values);
        if let Some(error) = mended.errors.first_mut()
            && error.line == 0
            && error.key.is_empty()
        {
            // An error without a place concerns a value of `instead`.
            error.key = doubtful.cloned().unwrap_or_default();
        }
        if let Some(read) = mended.read.as_ref().filter(|_| mended.is_whole) {
            let mut faults = Faults::default();
            check(read, &mut faults);
            let own = faults.0.into_iter().filter(|fault| !mended.may_have_caused(fault));
            let errors: Vec<_> = own.map(|fault| self.error_of(&mended, &fault, &check)).collect();
            mended.errors.extend(errors);
        }
        self.outcome(mended.read, mended.errors)
    }

    /// The configuration in canonical form.
    fn written(&self) -> Result<Written, ConfigurationError> {
        self.read(&[]).map(Written::new)
    }

    /// The values of `instead`, each in the form that its key needs, and the first key for which no form fits.
    fn values_of<T: DeserializeOwned>(
        &self,
        instead: &'a [(String, String)],
    ) -> Result<(Vec<Instead<'a>>, Option<&'a String>), ConfigurationError> {
        let (mut values, mut doubtful) = (Vec::with_capacity(instead.len()), None);
        if !instead.is_empty() {
            self.read::<T>(&[])?;
        }
        for (key, value) in instead {
            let form = self.form_of::<T>(key, value);
            if form.is_none() {
                doubtful.get_or_insert(key);
            }
            values.push((key.as_str(), form.or_else(|| value_of(value)).unwrap_or_else(|| text_of(value))));
        }
        Ok((values, doubtful))
    }

    /// The error of a fault, at its place.
    fn error_of<T: DeserializeOwned>(
        &self,
        mended: &Mended<'a, T>,
        fault: &Fault,
        check: &impl Fn(&T, &mut Faults),
    ) -> ConfigurationError {
        let places = mended.places.get_ref();
        let place = place_of(places, &fault.key).filter(|place| !place.is_empty());
        let error = ConfigurationError::at(self.file, self.text, place, &fault.key, fault.message.clone());
        let example = value_at(places, &fault.key).and_then(|_| self.example(&fault.key));
        // Show the default only if it is valid together with the other values.
        let is_right = |example: &String| {
            let mut table = mended.table.clone();
            let mut faults = Faults::default();
            value_of(example).is_some_and(|value| replace(table.get_mut(), &fault.key, value).is_ok())
                && T::deserialize(Deserializer::from(table)).is_ok_and(|read| {
                    check(&read, &mut faults);
                    faults.0.iter().all(|other| other.key != fault.key)
                })
        };
        error.with_example(example.filter(is_right).map(|default| format!("{default} (the default)")))
    }

    /// The default of a key in TOML syntax, if it has one.
    fn example(&self, key: &str) -> Option<String> {
        let schema = serde_json::to_value(self.schema?()).ok()?;
        let default = node_of(&schema, key)?.get("default").filter(|default| !default.is_null())?;
        toml::Value::try_from(default).ok().map(|value| value.to_string())
    }

    /// The default of a key, or values of all forms that it accepts.
    fn examples(&self, key: &str) -> Option<String> {
        // An empty default shows nothing of the form.
        if let Some(default) = self.example(key).filter(|default| !["[]", "{}", "\"\""].contains(&&**default)) {
            return Some(format!("{default} (the default)"));
        }
        let schema = serde_json::to_value(self.schema?()).ok()?;
        let forms = forms(&schema, node_of(&schema, key)?);
        (1..=MOST_FORMS).contains(&forms.len()).then(|| forms.join(" or "))
    }

    /// The sections that have a key of this name, in TOML syntax.
    fn sections_with(&self, name: &str) -> Vec<String> {
        let Some(schema) = self.schema.and_then(|schema| serde_json::to_value(schema()).ok()) else {
            return Vec::new();
        };
        let sections = schema["properties"].as_object().into_iter().flatten();
        let with = sections.filter_map(|(section, node)| {
            let (one, form) = match node.get("items") {
                Some(items) => (items, format!("[[{section}]]")),
                None => (node, format!("[{section}]")),
            };
            resolved(&schema, one)["properties"].get(name).map(|_| form)
        });
        with.collect()
    }

    /// Reads the text as a `T`; `instead` replaces values.
    fn read<T: DeserializeOwned>(&self, instead: &[Instead<'a>]) -> Result<T, ConfigurationError> {
        let Mended { read, errors, .. } = self.mend(instead);
        self.outcome(read, errors)
    }

    /// What was read, or all errors.
    fn outcome<T>(&self, read: Option<T>, errors: Vec<ConfigurationError>) -> Result<T, ConfigurationError> {
        match (ConfigurationError::all(errors), read) {
            (None, Some(read)) => Ok(read),
            (Some(error), _) => Err(error),
            (None, None) => Err(ConfigurationError::at(self.file, "", None, "", "it cannot be read")),
        }
    }

    /// What is wrong with the syntax.
    fn syntax_text(&self, error: &toml::de::Error) -> String {
        let value = error.span().and_then(|place| self.text.get(place)).unwrap_or_default();
        if value.starts_with(['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}']) {
            let inner = value.trim_matches(['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}']);
            return format!("use straight quotes: \"{inner}\"");
        }
        error.message().to_owned()
    }

    /// Reads the text as a table with the values of `instead`, and collects the errors.
    fn table(&self, instead: &[Instead<'a>]) -> (Spanned<DeTable<'a>>, Vec<ConfigurationError>) {
        let at = |place, key: &str, message: String| ConfigurationError::at(self.file, self.text, place, key, message);
        let (mut table, wrong) = DeTable::parse_recoverable(self.text);
        let mut errors: Vec<_> = wrong.iter().map(|error| at(error.span(), "", self.syntax_text(error))).collect();
        let mut unset = Vec::new();
        expand_table(table.get_mut(), self.variable, &mut unset);
        errors.extend(unset.into_iter().map(|(place, name)| {
            let message =
                format!("the environment variable {name} is not set; set it, or write the value in its place");
            at(Some(place), "", message)
        }));
        for (key, value) in instead {
            errors.extend(replace(table.get_mut(), key, value.clone()).err().map(|message| at(None, key, message)));
        }
        (table, errors)
    }

    /// Reads the text as a `T`. After each error it removes the wrong key and reads again, to find all errors.
    fn mend<T: DeserializeOwned>(&self, instead: &[Instead<'a>]) -> Mended<'a, T> {
        let (mut table, errors) = self.table(instead);
        let (places, is_whole) = (table.clone(), errors.is_empty());
        let mut mended = Mended { read: None, places, table: table.clone(), errors, mended: Vec::new(), is_whole };
        let mut fillers = Fillers { behind: self.text.len() + 1, filled: Vec::new() };
        let mut meant: Vec<String> = Vec::new();
        while mended.errors.len() < MOST_ERRORS {
            let error = match T::deserialize(Deserializer::from(table.clone())) {
                Ok(read) => {
                    (mended.read, mended.table) = (Some(read), table);
                    break;
                }
                Err(error) => error,
            };
            if let Some(filler) = fillers.of(error.span()) {
                if !fillers.try_next(filler, table.get_mut()) {
                    break;
                }
                continue;
            }
            let key = error.span().and_then(|place| key_at(table.get_ref(), &place));
            let missing = missing_key(error.message());
            let parent = key.as_deref().and_then(|key| key.rsplit_once('.')).map_or("", |(parent, _)| parent);
            meant.extend(meant_key(error.message()).map(|name| joined(parent, name)));
            // Serde reports missing keys last. A key that is present, but misspelt or wrong, is not reported as missing
            // too.
            let is_meant = missing.is_some_and(|name| meant.contains(&joined(key.as_deref().unwrap_or(""), name)));
            if missing.is_none() || (is_whole && !is_meant) {
                // A value of `instead` has no place in the file.
                let is_whole_file = missing.is_some() && key.is_none();
                let place = error.span().filter(|place| !is_whole_file && (instead.is_empty() || !place.is_empty()));
                let written = key.as_deref().filter(|key| value_at(table.get_ref(), key) == place);
                let bracket = bracket(self.text, place.as_ref(), key.as_deref(), error.message());
                mended.errors.push(match bracket {
                    Some(message) => ConfigurationError::at(self.file, self.text, place, "", message),
                    None => self.misread(&error, place, written),
                });
            }
            let is_mended = match missing {
                _ if !instead.is_empty() => false,
                Some(name) => {
                    let key = joined(key.as_deref().unwrap_or(""), name);
                    mended.mended.push(key.clone());
                    fillers.fill(key, table.get_mut())
                }
                None => key.is_some_and(|key| {
                    // For an element of a list, the whole list is removed.
                    meant.push(
                        key.strip_suffix(']').and_then(|key| key.rsplit_once('[')).map_or(&*key, |it| it.0).to_owned(),
                    );
                    let is_out = take_out(table.get_mut(), &key);
                    mended.mended.push(key);
                    is_out
                }),
            };
            if !is_mended {
                break;
            }
        }
        mended
    }

    /// The error for an unreadable value; `key` is the key whose value is at this place.
    fn misread(&self, error: &toml::de::Error, place: Option<Range<usize>>, key: Option<&str>) -> ConfigurationError {
        let unknown = unknown_key(error.message()).filter(|_| meant_key(error.message()).is_none());
        let elsewhere = unknown.map(|name| (name, self.sections_with(name)));
        let message = match elsewhere {
            Some((name, sections)) if (1..=MOST_SECTIONS).contains(&sections.len()) => {
                format!("no key is named `{name}` here; it is a key of {}", sections.join(" and "))
            }
            _ => plain(error.message()),
        };
        ConfigurationError::at(self.file, self.text, place, key.unwrap_or_default(), message)
            .with_example(key.and_then(|key| self.examples(key)))
    }

    /// A value in the form that its key expects: only the key determines whether `512` is a count, or a size in quotes.
    /// `None` if neither can be read; other values may be missing as well.
    fn form_of<T: DeserializeOwned>(&self, key: &'a str, value: &'a str) -> Option<DeValue<'a>> {
        let mut forms = value_of(value).into_iter().chain([text_of(value)]);
        forms.find(|form| self.read::<T>(&[(key, form.clone())]).is_ok())
    }
}

/// The correction of too few or too many brackets: `[source]` instead of `[[source]]`, or the other way round.
fn bracket(text: &str, place: Option<&Range<usize>>, key: Option<&str>, message: &str) -> Option<String> {
    let is_map = message.starts_with("invalid type: map, expected ");
    let list = key.and_then(|key| key.strip_suffix("[0]")).filter(|name| text.contains(&format!("[[{name}]]")));
    if let Some(name) = list.filter(|_| is_map) {
        return Some(format!("there is only one `{name}`: write `[{name}]`"));
    }
    let rest = text.get(place?.start..)?.strip_prefix('[')?;
    let name = rest.split_once(']').map(|(name, _)| name).filter(|name| !name.starts_with('['))?;
    (is_map && message.ends_with("a sequence")).then(|| format!("there can be several: write `[[{name}]]`"))
}

/// The full key of a name in a table.
fn joined(table: &str, name: &str) -> String {
    if table.is_empty() { name.to_owned() } else { format!("{table}.{name}") }
}

/// Placeholders for missing keys, so that reading can continue.
struct Fillers {
    /// The places of fillers begin here, after the end of the text.
    behind: usize,
    /// Each filler's key, and how many forms were tried.
    filled: Vec<(String, usize)>,
}

impl Fillers {
    /// The filler at a place, if it is one's.
    fn of(&self, place: Option<Range<usize>>) -> Option<usize> {
        place?.start.checked_sub(self.behind).filter(|&filler| filler < self.filled.len())
    }

    /// Inserts a placeholder for a missing key.
    fn fill<'a>(&mut self, key: String, table: &mut DeTable<'a>) -> bool {
        self.filled.push((key, 0));
        self.try_next(self.filled.len() - 1, table)
    }

    /// Tries the next form of a filler; false if there is none.
    fn try_next<'a>(&mut self, filler: usize, table: &mut DeTable<'a>) -> bool {
        let forms: [fn() -> DeValue<'a>; 5] = [
            || DeValue::Array(Default::default()),
            || DeValue::Table(DeTable::new()),
            || value_of("1").unwrap_or_else(|| text_of("1")),
            || text_of("1s"),
            || text_of("127.0.0.1:1"),
        ];
        let place = self.behind + filler;
        let (key, tried) = &mut self.filled[filler];
        let Some(form) = forms.get(*tried) else { return false };
        *tried += 1;
        let Some((parent, name)) = parent_of(table, key) else { return false };
        parent.remove(name);
        parent.insert(Spanned::new(place..place, Cow::Owned(name.to_owned())), Spanned::new(place..place, form()));
        true
    }
}

/// The table that a key is in, and its name there.
fn parent_of<'t, 'a, 'k>(table: &'t mut DeTable<'a>, key: &'k str) -> Option<(&'t mut DeTable<'a>, &'k str)> {
    let Some((part, rest)) = key.split_once('.') else { return Some((table, key)) };
    let (name, index) = named(part);
    let value = match (table.get_mut(name)?.get_mut(), index) {
        (DeValue::Array(all), Some(index)) => all.get_mut(index)?.get_mut(),
        (value, _) => value,
    };
    match value {
        DeValue::Table(inner) => parent_of(inner, rest),
        _ => None,
    }
}

/// Removes a key from its table; for an element of a list, removes the list.
fn take_out(table: &mut DeTable<'_>, key: &str) -> bool {
    parent_of(table, key).is_some_and(|(parent, part)| parent.remove(named(part).0).is_some())
}

/// A key, the place of its name, and the place of its value. Elements of lists have no name.
type Place = (String, Option<Range<usize>>, Range<usize>);

/// The key whose name or value is at a place; otherwise the innermost key whose value contains the place.
fn key_at(table: &DeTable<'_>, place: &Range<usize>) -> Option<String> {
    let mut all = Vec::new();
    add_places(table, "", &mut all);
    let is_around = |value: &Range<usize>| value.start <= place.start && place.end <= value.end;
    // Inner keys follow outer ones.
    let exact = all.iter().rev().find(|(_, name, value)| name.as_ref() == Some(place) || value == place);
    let around = all.iter().rev().filter(|(.., value)| is_around(value)).min_by_key(|(.., value)| value.len());
    exact.or(around).map(|(key, ..)| key.clone())
}

/// Adds the places of all keys below a table.
fn add_places(table: &DeTable<'_>, above: &str, places: &mut Vec<Place>) {
    for (name, value) in table.iter() {
        let key = joined(above, name.get_ref());
        places.push((key.clone(), Some(name.span()), value.span()));
        match value.get_ref() {
            DeValue::Table(inner) => add_places(inner, &key, places),
            DeValue::Array(all) => {
                for (index, element) in all.iter().enumerate() {
                    let key = format!("{key}[{index}]");
                    places.push((key.clone(), None, element.span()));
                    element.get_ref().as_table().into_iter().for_each(|inner| add_places(inner, &key, places));
                }
            }
            _ => {}
        }
    }
}

/// Variables without a value, and their places.
type Unset = Vec<(Range<usize>, String)>;

fn expand_table(table: &mut DeTable<'_>, variable: &dyn Fn(&str) -> Option<String>, unset: &mut Unset) {
    for (_, value) in table.iter_mut() {
        expand(value, variable, unset);
    }
}

/// Replaces every `${NAME}` in the texts below `value`; remembers names without a value.
fn expand(value: &mut Spanned<DeValue<'_>>, variable: &dyn Fn(&str) -> Option<String>, unset: &mut Unset) {
    let place = value.span();
    match value.get_mut() {
        DeValue::String(text) if text.contains("${") => match substitute(text, variable) {
            Ok(expanded) => *text = Cow::Owned(expanded),
            Err(name) => unset.push((place, name)),
        },
        DeValue::Array(array) => {
            for element in array.iter_mut() {
                expand(element, variable, unset);
            }
        }
        DeValue::Table(table) => expand_table(table, variable, unset),
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

/// Replaces the value of a key such as `front_end.link` or `flow[0].packing`; creates missing tables on the way.
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

/// A value as it would be in a file; `None` if it would be a text there, had it quotes.
fn value_of(text: &str) -> Option<DeValue<'_>> {
    DeValue::parse(text).ok().map(Spanned::into_inner)
}

/// A value as a text without quotes.
const fn text_of(text: &str) -> DeValue<'_> {
    DeValue::String(Cow::Borrowed(text))
}

/// The place of a key's value; `None` if the file does not contain the key.
fn value_at(root: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let (part, rest) = key.split_once('.').map_or((key, None), |(part, rest)| (part, Some(rest)));
    let (name, index) = named(part);
    let mut value = root.get(name)?;
    if let Some(index) = index {
        value = value.get_ref().as_array()?.get(index)?;
    }
    match rest {
        Some(rest) => value_at(value.get_ref().as_table()?, rest),
        None => Some(value.span()),
    }
}

/// The place of the value of a key such as `source[3].readout`, or of its nearest parent in the file.
fn place_of(root: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let mut place = None;
    let mut table = Some(root);
    for part in key.split('.') {
        let (name, index) = named(part);
        let Some(mut value) = table.and_then(|table| table.get(name)) else { break };
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

/// The schema of a key.
fn node_of<'a>(root: &'a serde_json::Value, key: &str) -> Option<&'a serde_json::Value> {
    let mut node = root;
    for part in key.split('.') {
        let (name, index) = named(part);
        node = resolved(root, node).get("properties")?.get(name)?;
        if index.is_some() {
            node = resolved(root, node).get("items")?;
        }
    }
    Some(node)
}

/// A value in TOML syntax for each form that a schema accepts; nothing for a form without an example.
fn forms(root: &serde_json::Value, node: &serde_json::Value) -> Vec<String> {
    let list = |key: &str| node.get(key).and_then(serde_json::Value::as_array).into_iter().flatten();
    if let Some(target) = node["$ref"].as_str().and_then(|pointer| root.pointer(pointer.strip_prefix('#')?)) {
        return forms(root, target);
    }
    if node.get("oneOf").is_some() || node.get("anyOf").is_some() {
        return list("oneOf").chain(list("anyOf")).flat_map(|one| forms(root, one)).collect();
    }
    let quoted = |text: &str| format!("\"{text}\"");
    if let Some(text) = node["const"].as_str() {
        return vec![quoted(text)];
    }
    match node["type"].as_str() {
        Some("integer") => vec![node["minimum"].as_u64().unwrap_or(0).max(1).to_string()],
        Some("number") => vec!["0.5".to_owned()],
        Some("boolean") => vec!["true".to_owned()],
        Some("string") if node.get("enum").is_some() => {
            list("enum").filter_map(serde_json::Value::as_str).map(quoted).collect()
        }
        // "a size, such as 2GiB, 64MiB": the type's own words.
        Some("string") => {
            let words = node["description"].as_str().and_then(|text| text.split_once("such as ")).map(|(_, rest)| rest);
            words.and_then(|rest| rest.split(',').next()).map(quoted).into_iter().collect()
        }
        Some("object") => form_of_table(root, node).into_iter().collect(),
        Some("array") => forms(root, &node["items"]).into_iter().take(1).map(|one| format!("[{one}]")).collect(),
        _ => Vec::new(),
    }
}

/// A table with the keys that it must have, or with its first one.
fn form_of_table(root: &serde_json::Value, node: &serde_json::Value) -> Option<String> {
    let properties = node["properties"].as_object()?;
    let required = node["required"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
    let mut keys: Vec<&str> = required.collect();
    if keys.is_empty() {
        keys.extend(properties.keys().next().map(String::as_str));
    }
    let pair = |key: &str| Some(format!("{key} = {}", forms(root, properties.get(key)?).first()?));
    let pairs: Vec<String> = keys.into_iter().map(pair).collect::<Option<_>>()?;
    Some(format!("{{ {} }}", pairs.join(", ")))
}

/// Follows references of a schema; of alternatives it takes the first one with keys.
fn resolved<'a>(root: &'a serde_json::Value, node: &'a serde_json::Value) -> &'a serde_json::Value {
    if let Some(reference) = node.get("$ref").and_then(serde_json::Value::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return target.map_or(node, |target| resolved(root, target));
    }
    let several = node.get("anyOf").and_then(serde_json::Value::as_array);
    let inner = several.into_iter().flatten().map(|one| resolved(root, one));
    inner.into_iter().find(|one| one.get("properties").is_some()).unwrap_or(node)
}
