//! The JSON documents beside files of events, and the documents of filter units and of the merger.
//!
//! Those of numbers are in [`ropewalk_engine::documents`]. A document is whole under its name: it is written as `.tmp`
//! and renamed.

use super::place::FilesError;
use ropewalk_engine::documents::{Numbers, parse_numbers, render_legend, render_numbers};
use ropewalk_flow::files::{Decided, StreamCounts};
use ropewalk_wire::run_file::NotAStreamName;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Writes a document of numbers; `source` is who does.
///
/// # Errors
/// If the file cannot be written.
pub fn write_numbers<N: Numbers>(path: &Path, document: &N, source: &str) -> Result<(), FilesError> {
    let mut text = String::new();
    render_numbers(document, source, &mut text);
    write_text(path, &text)
}

/// Reads a document of numbers.
///
/// # Errors
/// If the file cannot be read, or contains other numbers.
pub fn read_numbers<N: Numbers>(path: &Path) -> Result<N, FilesError> {
    let text = std::fs::read(path).map_err(FilesError::system("read", path))?;
    parse_numbers(&text).ok_or_else(|| FilesError::Document {
        path: path.to_owned(),
        why: format!("its data should be {} numbers: {}", N::NAMES.len(), N::NAMES.join(", ")),
    })
}

/// Writes the legend of a kind of documents into a directory.
///
/// # Errors
/// If the file cannot be written.
pub fn write_legend<N: Numbers>(directory: &Path) -> Result<(), FilesError> {
    write_text(&directory.join(N::LEGEND), &render_legend::<N>())
}

/// What a filter unit made of a file of events.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FilteredFile {
    /// The number of the try.
    pub attempt: u16,
    /// Who did it.
    pub source: String,
    /// Events that were looked at: all of the file.
    pub processed: u64,
    /// The accepted events.
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
    /// Events that its prescale left out.
    pub prescaled_away: u64,
    /// Events in its file.
    pub written: u64,
    /// Bytes of its file; 0 without one, which would have no event.
    pub bytes: u64,
}

impl FilteredFile {
    /// What is added up of it.
    ///
    /// # Errors
    /// If the name of a stream is not valid.
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
/// If the file cannot be written.
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
/// If the file cannot be read, or is something else.
pub fn read_whole<D: for<'a> Deserialize<'a>>(path: &Path) -> Result<D, FilesError> {
    let text = std::fs::read_to_string(path).map_err(FilesError::system("read", path))?;
    let failed = |error: serde_json::Error| FilesError::Document { path: path.to_owned(), why: error.to_string() };
    serde_json::from_str(&text).map_err(failed)
}
