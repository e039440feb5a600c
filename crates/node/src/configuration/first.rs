//! The number of each source's first event, and where it comes from.

use super::{Configuration, FormatName, SourceSection};
use ropewalk_wire::framing::Framing;
use std::collections::BTreeMap;

impl SourceSection {
    /// Its counter in the run's first event.
    pub fn first_event(&self) -> u64 {
        self.given_first_event().or(self.format_first()).unwrap_or(1)
    }

    /// The same where the configuration says it.
    pub fn given_first_event(&self) -> Option<u64> {
        self.event.as_ref().and_then(|event| event.first).or(self.first)
    }

    /// The first number of formats that do not count from 1.
    fn format_first(&self) -> Option<u64> {
        match self.format {
            FormatName::Foreign(format) if !self.has_layout() => Some(format.first()).filter(|&first| first != 1),
            _ => None,
        }
    }

    /// Whether its counter runs on from run to run, for itself, and nothing says where it begins.
    pub fn runs_free(&self) -> bool {
        let is_open = self.given_first_event().is_none() && self.emulate.is_none() && !self.controlled;
        is_open && !self.numbers_grow() && self.description().is_some_and(|description| description.runs_free())
    }

    /// The number of its first event, and why it is that, for people.
    fn first_text(&self) -> String {
        let description = self.description();
        if let Some(first) = self.given_first_event() {
            return format!("{first}, as `first` says");
        }
        if self.numbers_grow() {
            return "any: its numbers grow, and events are numbered in their order".to_owned();
        }
        if self.runs_free() {
            return "that of the first frame: its counter runs free".to_owned();
        }
        if description.as_ref().is_some_and(|description| !description.has_event() && !self.has_layout()) {
            return "1: its frames are counted as they come".to_owned();
        }
        match (self.format_first(), self.format) {
            (Some(first), FormatName::Foreign(format)) => {
                format!("{first}, as {} counts; `first` says otherwise", format.name())
            }
            _ => "1; `first` says otherwise".to_owned(),
        }
    }
}

impl Configuration {
    /// A line for each way in which sources' numbers begin: which number, why, and whose.
    pub fn first_lines(&self) -> Vec<String> {
        const MOST_NAMES: usize = 4;
        let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for source in &self.source {
            by_text.entry(source.first_text()).or_default().push(source.name_or_id());
        }
        let line = |(text, names): (String, Vec<String>)| {
            let more = names.len().saturating_sub(MOST_NAMES);
            let named = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("first event number {text}: {named}{more}")
        };
        by_text.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::configuration::parse;

    fn lines(sources: &str) -> Vec<String> {
        let text = format!("version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n{sources}");
        parse("test.toml", &text, &|_: &str| None).expect("a good configuration").first_lines()
    }

    fn source(id: u32, keys: &str) -> String {
        format!("[[source]]\nid = {id}\nreadout = \"ru0\"\ninput = \"some.raw\"\n{keys}\n")
    }

    #[test]
    fn each_source_says_where_its_numbers_begin_and_why() {
        let eudaq = source(1, "format = \"eudaq\"");
        let given = source(2, "format = \"eudaq\"\nfirst = 7");
        let fed = source(3, "format = \"fed\"") + &source(4, "format = \"fed\"");
        let midas = source(5, "format = \"midas\"");
        assert_eq!(
            lines(&[eudaq, given, fed, midas].concat()),
            [
                "first event number 0, as eudaq counts; `first` says otherwise: source-1",
                "first event number 1: its frames are counted as they come: source-5",
                "first event number 1; `first` says otherwise: source-3, source-4",
                "first event number 7, as `first` says: source-2",
            ]
        );
    }
}
