//! The content of a configuration in a canonical form, for the account of a run and for comparisons: variables have
//! their values, keys are in order, comments are gone.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use toml::{Table, Value};

/// What a configuration says.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Written(Table);

/// The differing values of two configurations by key; `None` for a missing key.
pub type Differences = BTreeMap<String, (Option<String>, Option<String>)>;

/// The SHA-256 of a text, in hexadecimal digits.
pub fn digest(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Written {
    /// The content of this document. Addresses of webhooks are left out, because they grant access.
    pub(super) fn new(mut document: Table) -> Self {
        for section in ["alarms", "logbook"] {
            if let Some(Value::Table(section)) = document.get_mut(section) {
                section.remove("webhook");
            }
        }
        Self(document)
    }

    /// The content of a file that has [`Written::text`].
    ///
    /// # Errors
    /// If it cannot be read, or is something else.
    pub fn read(file: &Path) -> io::Result<Self> {
        let text = std::fs::read_to_string(file)?;
        text.parse().map(Self).map_err(|error: toml::de::Error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Whether there is such a section, or a list of such sections.
    pub(super) fn has_section(&self, section: &str) -> bool {
        self.0.contains_key(section)
    }

    /// Whether a section says something under a key.
    pub(super) fn has(&self, section: &str, key: &str) -> bool {
        self.0.get(section).is_some_and(|section| section.get(key).is_some())
    }

    /// Overrides a key, as the start of a run may do.
    pub fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        let section = self.0.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(section) = section {
            section.insert(key.to_owned(), value.into());
        }
    }

    /// All of it, as TOML.
    pub fn text(&self) -> String {
        toml::to_string(&self.0).expect("what was read as TOML can be written as TOML")
    }

    /// The SHA-256 of the text, in hexadecimal digits.
    pub fn digest(&self) -> String {
        digest(&self.text())
    }

    /// The differences of another configuration. Sections in a list are identified by `id` or `name`: `source[7].rate`.
    pub fn differences(&self, there: &Self) -> Differences {
        let mut keys = Differences::new();
        for (key, value) in self.values() {
            keys.entry(key).or_default().0 = Some(value);
        }
        for (key, value) in there.values() {
            keys.entry(key).or_default().1 = Some(value);
        }
        keys.retain(|_, (here, there)| here != there);
        keys
    }

    /// What it says under a key, of one section or of all sections of a list: texts, and those in lists.
    pub fn texts(&self, section: &str, key: &str) -> Vec<&str> {
        let sections = match self.0.get(section) {
            Some(Value::Array(sections)) => sections.as_slice(),
            Some(section) => std::slice::from_ref(section),
            None => &[],
        };
        let values = sections.iter().filter_map(|section| section.get(key));
        let texts = values.flat_map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
        texts.filter_map(Value::as_str).collect()
    }

    /// Every value by the way to it.
    fn values(&self) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        collect("", &Value::Table(self.0.clone()), &mut values);
        values
    }
}

fn collect(place: &str, value: &Value, values: &mut BTreeMap<String, String>) {
    match value {
        Value::Table(table) => {
            let separator = if place.is_empty() { "" } else { "." };
            table.iter().for_each(|(key, value)| collect(&format!("{place}{separator}{key}"), value, values));
        }
        Value::Array(sections) if sections.iter().all(Value::is_table) && !sections.is_empty() => {
            let names: Vec<_> = sections.iter().map(name_of).collect();
            for (index, section) in sections.iter().enumerate() {
                let is_alone = names.iter().filter(|name| **name == names[index]).count() == 1;
                let name = names[index].as_ref().filter(|_| is_alone);
                // Rules without a name are identified by their order, which counts.
                let name = name.map_or_else(|| format!("#{index}"), String::clone);
                collect(&format!("{place}[{name}]"), section, values);
            }
        }
        other => _ = values.insert(place.to_owned(), other.to_string()),
    }
}

fn name_of(section: &Value) -> Option<String> {
    match section.get("id").or_else(|| section.get("name"))? {
        Value::String(name) => Some(name.clone()),
        other => Some(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const TEXT: &str = "version = 1\n[run]\noutput = \"${PLACE}\" # a comment\n[[readout]]\nname = \"ru0\"\n\
                        [[builder]]\nname = \"bu0\"\n[[source]]\nid = 3\nreadout = \"ru0\"\n\
                        [[source]]\nid = 7\nreadout = \"ru0\"\nmax_fragment = \"4KiB\"\n[alarms]\nwebhook = \"http://secret/\"\n";

    fn written(text: &str) -> Written {
        let place = |name: &str| (name == "PLACE").then(|| "/data0".to_owned());
        parse("test.toml", text, &place).unwrap_or_else(|error| panic!("{error}")).written
    }

    #[test]
    fn comments_order_and_variables_make_no_difference() {
        let one = written(TEXT);
        assert!(one.text().contains("output = \"/data0\"") && !one.text().contains("secret"), "{}", one.text());
        let (head, rest) = TEXT.split_once("[[source]]").expect("it has two");
        let other = format!("# another\n{}\n[[source]]{rest}", head.replace("\"${PLACE}\" # a comment", "'/data0'"));
        assert_eq!(one.digest(), written(&other).digest());
        assert!(one.differences(&written(&other)).is_empty());
        assert_ne!(one.digest(), written(&TEXT.replace("4KiB", "5KiB")).digest());
    }

    #[test]
    fn what_is_kept_is_a_configuration_that_says_the_same() {
        let one = written(TEXT);
        assert_eq!(written(&one.text()), one);
        let file = std::env::temp_dir().join(format!("ropewalk-written-{}.toml", std::process::id()));
        std::fs::write(&file, one.text()).expect("it can be written");
        let read = Written::read(&file).expect("it can be read");
        std::fs::write(&file, "no = toml = at all").expect("it can be written");
        let refused = Written::read(&file).expect_err("it is no TOML");
        std::fs::remove_file(&file).expect("the test's own");
        assert_eq!((read, refused.kind()), (one, io::ErrorKind::InvalidData));
    }

    #[test]
    fn texts_are_found_in_sections_and_lists_of_them() {
        let written = written(TEXT);
        assert_eq!(written.texts("run", "output"), ["/data0"]);
        assert_eq!(written.texts("source", "readout"), ["ru0", "ru0"]);
        let nothing: [&str; 0] = [];
        assert_eq!([written.texts("source", "id"), written.texts("storage", "hand_over")], [nothing, nothing]);
        let more = self::written(&format!("{TEXT}[storage]\nmore_outputs = [\"/a\", \"/b\"]\n"));
        assert_eq!(more.texts("storage", "more_outputs"), ["/a", "/b"]);
    }

    #[test]
    fn differences_are_reported_by_key_and_by_the_name_of_a_section() {
        let one = written(TEXT);
        // A source in front of the others does not make them different ones.
        let other = TEXT.replace("[[source]]\nid = 3", "[[source]]\nid = 2\nreadout = \"ru0\"\n[[source]]\nid = 3");
        let mut other = written(&other.replace("4KiB", "5KiB"));
        other.set("run", "events", 9);
        let differences = one.differences(&other);
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(
            differences.into_iter().collect::<Vec<_>>(),
            [
                ("run.events".to_owned(), (None, said("9"))),
                ("source[2].id".to_owned(), (None, said("2"))),
                ("source[2].readout".to_owned(), (None, said("\"ru0\""))),
                ("source[7].max_fragment".to_owned(), (said("\"4KiB\""), said("\"5KiB\""))),
            ]
        );
        let rules = |text: &str| Written(text.parse().expect("TOML"));
        let one = rules("[[thread]]\nname = \"a\"\ncpu = 1\n[[thread]]\nname = \"a\"\ncpu = 2");
        let other = rules("[[thread]]\nname = \"a\"\ncpu = 3\n[[thread]]\nname = \"a\"\ncpu = 2");
        assert_eq!(one.differences(&other).keys().collect::<Vec<_>>(), ["thread[#0].cpu"]);
    }
}
