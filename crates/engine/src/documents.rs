//! The JSON documents beside files of events: numbers as text, in the order that a legend (`.jsd`) gives, as CMS's builder units
//! write them.

use serde::Deserialize;
use std::fmt::Write;

/// A document of numbers.
pub trait Numbers: Sized {
    /// The file with the legend.
    const LEGEND: &'static str;
    /// What the numbers are, in their order.
    const NAMES: &'static [&'static str];

    /// Its numbers, as many as there are names.
    fn numbers(&self) -> impl Iterator<Item = u64>;

    /// The document of these numbers, of which there are as many as names.
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
    /// What is in a file of events.
    RawFile = "rawData.jsd" {
        /// Events in it.
        events = "NEvents",
        /// Its bytes.
        bytes = "NBytes",
    }
    /// What was written in a lumisection.
    EndOfLumisection = "EoLS.jsd" {
        /// Events that this builder unit wrote.
        events = "NEvents",
        /// Files that they are in.
        files = "NFiles",
        /// Events that all builder units wrote.
        total_events = "TotalEvents",
        /// Events that were lost.
        lost_events = "NLostEvents",
        /// Bytes of the files.
        bytes = "NBytes",
    }
    /// What was written in the run.
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

/// Appends a document of numbers to a text, which is asked for memory where it has too little; `source` is its writer:
/// a name, in which nothing has to be escaped.
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

/// The legend of a kind of documents.
pub fn render_legend<N: Numbers>() -> String {
    let entry = |name: &&str| format!("{{\"name\":\"{name}\",\"operation\":\"sum\",\"type\":\"integer\"}}");
    format!("{{\"data\":[{}]}}\n", N::NAMES.iter().map(entry).collect::<Vec<_>>().join(","))
}
