//! JSON documents that accompany event files: numbers as text, in the order given by a legend (`.jsd`), as CMS's
//! builder units write them.

use serde::Deserialize;
use std::fmt::Write;

/// A document of numbers.
pub trait Numbers: Sized {
    /// Name of the legend file.
    const LEGEND: &'static str;
    /// Names of the numbers, in order.
    const NAMES: &'static [&'static str];

    /// Returns the numbers, as many as there are names.
    fn numbers(&self) -> impl Iterator<Item = u64>;

    /// Creates the document from its numbers, as many as there are names.
    fn of(numbers: &[u64]) -> Self;
}

macro_rules! documents {
    ($($(#[doc = $what:literal])* $name:ident = $legend:literal { $($(#[doc = $help:literal])* $field:ident = $title:literal,)* })*) => {$(
        $(#[doc = $what])*
        #[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
        pub struct $name { $($(#[doc = $help])* pub $field: u64),* }

        impl Numbers for $name {
            const LEGEND: &'static str = $legend;
            const NAMES: &'static [&'static str] = &[$($title),*];

            fn numbers(&self) -> impl Iterator<Item = u64> {
                [$(self.$field),*].into_iter()
            }

            fn of(numbers: &[u64]) -> Self {
                let mut numbers = numbers.iter().copied();
                Self { $($field: numbers.next().unwrap_or_default()),* }
            }
        }
    )*};
}

documents! {
    /// Content of an event file.
    RawFile = "rawData.jsd" {
        /// Number of events in it.
        events = "NEvents",
        /// Its size, in bytes.
        bytes = "NBytes",
    }
    /// Output of a lumisection.
    EndOfLumisection = "EoLS.jsd" {
        /// Events written by this builder unit.
        events = "NEvents",
        /// Files that contain them.
        files = "NFiles",
        /// Events written by all builder units.
        total_events = "TotalEvents",
        /// Lost events.
        lost_events = "NLostEvents",
        /// Total size of the files, in bytes.
        bytes = "NBytes",
    }
    /// Output of the run.
    EndOfRun = "EoR.jsd" {
        /// Events.
        events = "NEvents",
        /// Files.
        files = "NFiles",
        /// Lumisections with files.
        lumisections = "NLumis",
        /// The last one.
        last_lumisection = "LastLumi",
    }
}

/// The JSON form of a document of numbers.
#[derive(Deserialize)]
struct Written {
    data: Vec<String>,
}

/// Appends a document of numbers to a text, which is asked for memory where it has too little. `source` is the name of
/// the writer. It must need no escaping.
pub fn render_numbers<N: Numbers>(document: &N, source: &str, text: &mut String) {
    text.push_str("{\"data\":[");
    for (place, number) in document.numbers().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // Writing into text cannot fail.
        let _ = write!(text, "{comma}\"{number}\"");
    }
    let _ = writeln!(text, "],\"definition\":\"{}\",\"source\":\"{source}\"}}", N::LEGEND);
}

/// Parses a document of numbers; `None` if the text is not a document of this kind.
pub fn parse_numbers<N: Numbers>(text: &[u8]) -> Option<N> {
    let written: Written = serde_json::from_slice(text).ok()?;
    let numbers: Option<Vec<u64>> = written.data.iter().map(|number| number.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() == N::NAMES.len()).map(|numbers| N::of(&numbers))
}

/// Returns the legend of a kind of document.
pub fn render_legend<N: Numbers>() -> String {
    let entry = |name: &&str| format!("{{\"name\":\"{name}\",\"operation\":\"sum\",\"type\":\"integer\"}}");
    format!("{{\"data\":[{}]}}\n", N::NAMES.iter().map(entry).collect::<Vec<_>>().join(","))
}
