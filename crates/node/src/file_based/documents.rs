//! The JSON documents beside files of events, and those that filter units and the merger write.
//!
//! Builder units write what CMS's do: numbers as text, in the order that a legend (`.jsd`) gives. A document is whole under its name:
//! it is written as `.tmp` and renamed.

use super::place::FilesError;
use ropewalk_flow::files::{Decided, StreamCounts};
use ropewalk_wire::run_file::NotAStreamName;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::Path;

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

/// How a document of numbers stands in its file.
#[derive(Deserialize)]
struct Written {
    data: Vec<String>,
}

/// Appends a document of numbers to a text, which is asked for memory where it has too little; `source` is who writes it: a name,
/// in which nothing has to be escaped.
pub fn render_numbers<N: Numbers>(document: &N, source: &str, text: &mut String) {
    text.push_str("{\"data\":[");
    for (place, number) in document.numbers().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // Writing into text cannot fail.
        let _ = write!(text, "{comma}\"{number}\"");
    }
    let _ = writeln!(text, "],\"definition\":\"{}\",\"source\":\"{source}\"}}", N::LEGEND);
}

/// Writes a document of numbers; `source` is who does.
///
/// # Errors
/// Where the file cannot be written.
pub fn write_numbers<N: Numbers>(path: &Path, document: &N, source: &str) -> Result<(), FilesError> {
    let mut text = String::new();
    render_numbers(document, source, &mut text);
    write_text(path, &text)
}

/// Reads a document of numbers.
///
/// # Errors
/// Where the file cannot be read, or other numbers stand in it.
pub fn read_numbers<N: Numbers>(path: &Path) -> Result<N, FilesError> {
    let text = std::fs::read(path).map_err(FilesError::system("read", path))?;
    parse_numbers(&text).ok_or_else(|| FilesError::Document {
        path: path.to_owned(),
        why: format!("its data should be {} numbers: {}", N::NAMES.len(), N::NAMES.join(", ")),
    })
}

/// The document of numbers that stands in these bytes, where it is one of this kind.
pub fn parse_numbers<N: Numbers>(text: &[u8]) -> Option<N> {
    let written: Written = serde_json::from_slice(text).ok()?;
    let numbers: Option<Vec<u64>> = written.data.iter().map(|number| number.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() == N::NAMES.len()).map(|numbers| N::of(&numbers))
}

/// Writes the legend of a kind of documents into a directory.
///
/// # Errors
/// Where the file cannot be written.
pub fn write_legend<N: Numbers>(directory: &Path) -> Result<(), FilesError> {
    write_text(&directory.join(N::LEGEND), &render_legend::<N>())
}

/// The legend of a kind of documents.
pub fn render_legend<N: Numbers>() -> String {
    let entry = |name: &&str| format!("{{\"name\":\"{name}\",\"operation\":\"sum\",\"type\":\"integer\"}}");
    format!("{{\"data\":[{}]}}\n", N::NAMES.iter().map(entry).collect::<Vec<_>>().join(","))
}

/// What a filter unit made of a file of events.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FilteredFile {
    /// The how manieth try it was.
    pub attempt: u16,
    /// Who did it.
    pub source: String,
    /// Events that were looked at: all of the file.
    pub processed: u64,
    /// Those that were accepted.
    pub accepted: u64,
    /// Events whose checksum is wrong; they were looked at all the same.
    pub wrong_checksums: u64,
    /// What went where.
    pub streams: Vec<StreamFile>,
}

/// What of a file went to a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StreamFile {
    /// The stream.
    pub stream: String,
    /// Accepted events that it was to have, by their triggers or trigger type.
    pub selected: u64,
    /// Those that its prescale left out.
    pub prescaled_away: u64,
    /// Those in its file.
    pub written: u64,
    /// Bytes of that; 0 where there is none, for it would have no event.
    pub bytes: u64,
}

impl FilteredFile {
    /// What is added up of it.
    ///
    /// # Errors
    /// Where the name of a stream is none.
    pub fn decided(&self) -> Result<Decided, NotAStreamName> {
        let mut decided = Decided { processed: self.processed, accepted: self.accepted, ..Decided::default() };
        for StreamFile { stream, selected, prescaled_away, written, bytes } in &self.streams {
            let counts =
                StreamCounts { selected: *selected, prescaled_away: *prescaled_away, written: *written, bytes: *bytes };
            decided.streams.entry(stream.parse()?).or_default().add(&counts);
        }
        Ok(decided)
    }
}

/// Writes a document as a whole.
///
/// # Errors
/// Where the file cannot be written.
pub fn write_whole(path: &Path, document: &impl Serialize) -> Result<(), FilesError> {
    let text = serde_json::to_string(document).map_err(|error| FilesError::System {
        action: "write",
        path: path.to_owned(),
        error: error.into(),
    })?;
    write_text(path, &(text + "\n"))
}

fn write_text(path: &Path, text: &str) -> Result<(), FilesError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let part = Path::new(&name);
    std::fs::write(part, text).map_err(FilesError::system("write", part))?;
    std::fs::rename(part, path).map_err(FilesError::system("rename", part))
}

/// Reads a document.
///
/// # Errors
/// Where the file cannot be read, or is something else.
pub fn read_whole<D: for<'a> Deserialize<'a>>(path: &Path) -> Result<D, FilesError> {
    let text = std::fs::read_to_string(path).map_err(FilesError::system("read", path))?;
    let failed = |error: serde_json::Error| FilesError::Document { path: path.to_owned(), why: error.to_string() };
    serde_json::from_str(&text).map_err(failed)
}
