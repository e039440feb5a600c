//! Files of other formats, and captures of network traffic: counting, checking, showing.
//!
//! ```text
//! frames     a file, unpacked where it is packed, and its frames: of a stream, or of a capture's datagrams and connections
//! account    what each source sent, and every fault by its name
//! convert    run files made of them
//! replay     what is in it on the line again
//! sniff      frames of an unknown format: what they say (flow::sniff), as JSON, and a [[source]] for them
//! trial      a source's layout or format tried on what its board sent
//! recording  a capture or another file instead of the sources of a run; received data as a capture
//! ```
//! There is no case per format: `ropewalk_wire::foreign` describes the formats. Memory holds a window per file, and a
//! few numbers per source.

mod account;
mod convert;
mod frames;
mod recording;
mod replay;
mod sniff;
#[cfg(test)]
mod tests;
mod trial;

use super::inspect::utc_text;
use super::{OfflineError, Packing};
use account::Account;
pub use account::{
    CaptureReport, Checksums, CountingReport, FOREIGN_SCHEMA, Fault, FileReport, ForeignReport, HoleReport, PeerHole,
    SourceReport,
};
pub use convert::{Converted, convert};
pub use frames::CutOff;
use frames::{Frame, Input};
pub use recording::{
    Passed, Recorded, SavedAs, capture_has_datagrams, encode_capture, feed_datagrams, feed_stream, is_capture_file,
    of_recordings,
};
pub use replay::{ForeignReplayOptions, ForeignReplayed, NoTarget, Pace, Target, replay_foreign};
use ropewalk_wire::capture::CaptureReader;
use ropewalk_wire::foreign::{Describe, ForeignFormat, Inspector, Value};
use ropewalk_wire::run_file::RECORD_MAGIC;
use schemars::JsonSchema;
use serde::Serialize;
pub use sniff::{
    GroupReport, GuessReport, MeaningReport, Naming, PeerReport, SNIFF_SCHEMA, SniffReport, Sniffed, TransportReport,
    drafts, sniff_connections, sniff_datagrams, sniff_file,
};
use std::fmt::Arguments;
use std::io::Write;
use std::path::Path;
pub use trial::{
    BadReport, BoardReport, ChecksumsReport, IntervalReport, NumbersReport, TRIAL_SCHEMA, TrialOptions, TrialReport,
    rule_of, try_layout,
};

/// What of the frames is kept, beside the account.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ForeignOptions {
    /// The files' format; detected if not given.
    pub format: Option<ForeignFormat>,
    /// This many frames from this one on (counted from 0) with all their fields.
    pub first_record: u64,
    /// How many.
    pub records: u64,
    /// At most this many bytes of each of them.
    pub payload_bytes: usize,
}

/// Whether a file is for [`inspect_foreign`] and no run file: a capture, a file whose format is known by its first
/// bytes, or what cannot be looked into without taking its bytes (a FIFO, or `-` for standard input).
///
/// # Errors
/// If it cannot be read. A directory is not one, and neither is a missing file.
pub fn is_foreign(path: &Path) -> Result<bool, OfflineError> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => return Ok(!metadata.is_dir()),
        Err(_) => return Ok(path == Path::new("-")),
        Ok(_) => {}
    }
    let mut input = Input::open(path)?;
    let is_packed = input.packing() != Packing::None;
    let first = input.begin();
    let is_known = CaptureReader::recognises(first) || ForeignFormat::recognise(first).is_some();
    // Run files are never packed as a whole.
    Ok(is_packed || is_known && !first.starts_with(&RECORD_MAGIC))
}

/// Counts and checks files of one format, and keeps some of their frames with all their fields.
///
/// # Errors
/// If a file cannot be read, or its format is unknown or another one than that of the files before it. Damage is no
/// error.
pub fn inspect_foreign<P: AsRef<Path>>(
    paths: &[P],
    options: &ForeignOptions,
) -> Result<(ForeignReport, Vec<RecordReport>), OfflineError> {
    inspect_inputs(paths.iter().map(|path| Input::open(path.as_ref())), options)
}

fn inspect_inputs(
    inputs: impl Iterator<Item = Result<Input, OfflineError>>,
    options: &ForeignOptions,
) -> Result<(ForeignReport, Vec<RecordReport>), OfflineError> {
    let (mut account, mut records) = (Account::default(), Records::new(options));
    let mut format = options.format;
    for input in inputs {
        let mut input = input?;
        account.begin_file(input.path(), input.packing());
        let found = frames::read(&mut input, format, &mut |found| {
            if let frames::Found::Frame(frame) = &found {
                records.take(frame, account.frames());
            }
            account.add(&found);
        })?;
        account.end_file(input.bytes_read());
        format = format.or(Some(found));
    }
    Ok((account.into_report(format), records.taken))
}

/// The most fields and parts of a frame that are listed.
const MOST_FIELDS: usize = 10_000;

/// The account of files together with the frames that were asked for.
#[derive(Copy, Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[schemars(
    title = "What files of other people's formats and captures hold: the output of `ropewalk inspect FILE --json` and `ropewalk verify FILE... --json`"
)]
pub struct InspectReport<'a> {
    /// The account.
    #[serde(flatten)]
    pub account: &'a ForeignReport,
    /// The frames that were asked for (`inspect`).
    pub records: &'a [RecordReport],
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct RecordReport {
    /// Which of the frames, from 0.
    pub number: u64,
    /// Offset in its file, in bytes; in a capture, that of the packet that completed the frame.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Address of the sender, in a capture; null otherwise.
    pub peer: Option<String>,
    /// Time of the packet, in a capture, in UTC; null otherwise.
    pub time: Option<String>,
    /// The kind.
    pub kind: String,
    /// Its fields.
    pub fields: Vec<FieldReport>,
    /// Its parts.
    pub parts: Vec<PartReport>,
    /// Inconsistencies: the offset in the frame, in bytes, and the reason.
    pub faults: Vec<(u64, String)>,
    /// Its first bytes in hexadecimal.
    pub hex: String,
}

/// A field.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct FieldReport {
    /// Its name.
    pub name: String,
    /// Offset in the frame, in bytes.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// What it holds.
    pub value: String,
}

/// A part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct PartReport {
    /// The name.
    pub name: String,
    /// Offset in the frame, in bytes.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Inspector for RecordReport {
    fn kind(&mut self, name: &str) {
        self.kind = name.to_owned();
    }

    fn field(&mut self, name: &str, at: usize, bytes: usize, value: Value<'_>) {
        if self.fields.len() < MOST_FIELDS {
            let (name, at, bytes) = (name.to_owned(), at as u64, bytes as u64);
            self.fields.push(FieldReport { name, at, bytes, value: value.to_string() });
        }
    }

    fn part(&mut self, name: Arguments<'_>, at: usize, bytes: usize) {
        if self.parts.len() < MOST_FIELDS {
            self.parts.push(PartReport { name: name.to_string(), at: at as u64, bytes: bytes as u64 });
        }
    }

    fn wants_details(&self) -> bool {
        true
    }

    fn fault(&mut self, at: usize, what: &'static str) {
        self.faults.push((at as u64, what.to_owned()));
    }
}

/// The frames that are wanted, taken as they pass.
struct Records {
    first: u64,
    end: u64,
    payload_bytes: usize,
    taken: Vec<RecordReport>,
}

impl Records {
    fn new(options: &ForeignOptions) -> Self {
        let end = options.first_record.saturating_add(options.records);
        Self { first: options.first_record, end, payload_bytes: options.payload_bytes, taken: Vec::new() }
    }

    fn take(&mut self, frame: &Frame<'_>, number: u64) {
        if !(self.first..self.end).contains(&number) {
            return;
        }
        let shown = &frame.bytes[..frame.bytes.len().min(self.payload_bytes)];
        let mut record = RecordReport {
            number,
            offset: frame.offset,
            bytes: frame.bytes.len() as u64,
            peer: frame.peer.map(|peer| peer.to_string()),
            time: frame.time.map(utc_text),
            hex: shown.iter().map(|byte| format!("{byte:02x}")).collect(),
            ..RecordReport::default()
        };
        frame.format.describe(frame.bytes, &mut record);
        self.taken.push(record);
    }
}

/// Shows a frame: every field with its bytes, then its parts, then its first bytes.
///
/// # Errors
/// If `out` takes nothing more.
pub fn show_record(record: &RecordReport, out: &mut dyn Write) -> Result<(), OfflineError> {
    let RecordReport { number, offset, bytes, kind, .. } = record;
    let peer = record.peer.as_ref().map_or_else(String::new, |peer| format!(", from {peer}"));
    let time = record.time.as_ref().map_or_else(String::new, |time| format!(", {time}"));
    writeln!(out, "frame {number} at {offset}: {kind}, {bytes} B{peer}{time}")?;
    for field in &record.fields {
        let digits = record.hex.get(2 * field.at as usize..2 * (field.at + field.bytes.min(8)) as usize);
        let (at, name, value) = (field.at, &field.name, &field.value);
        writeln!(out, "  {at:>6x}  {:<24}  {name} = {value}", spaced(digits.unwrap_or_default()))?;
    }
    for part in &record.parts {
        writeln!(out, "  {:>6x}  {}, {} B", part.at, part.name, part.bytes)?;
    }
    for (at, fault) in &record.faults {
        writeln!(out, "  {at:>6x}  WRONG: {fault}")?;
    }
    for (line, digits) in record.hex.as_bytes().chunks(32).enumerate() {
        writeln!(out, "  {:>6x}  {}", 16 * line, spaced(&String::from_utf8_lossy(digits)))?;
    }
    let shown = record.hex.len() as u64 / 2;
    if shown < *bytes {
        writeln!(out, "          ... {} more bytes", bytes - shown)?;
    }
    Ok(writeln!(out)?)
}

/// Bytes apart from each other.
fn spaced(digits: &str) -> String {
    digits.as_bytes().chunks(2).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
}
