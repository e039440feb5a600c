//! A frame with all its fields, for people.

use super::frames::Frame;
use super::{ForeignOptions, ForeignReport};
use crate::offline::OfflineError;
use crate::offline::utc::utc_text;
use ropewalk_wire::foreign::{Describe, Inspector, Value};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Arguments;
use std::io::Write;

/// So many fields and parts of a frame are told.
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
    /// What it is.
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
    /// What it is.
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
pub(super) struct Records {
    first: u64,
    end: u64,
    payload_bytes: usize,
    pub(super) taken: Vec<RecordReport>,
}

impl Records {
    pub(super) fn new(options: &ForeignOptions) -> Self {
        let end = options.first_record.saturating_add(options.records);
        Self { first: options.first_record, end, payload_bytes: options.payload_bytes, taken: Vec::new() }
    }

    pub(super) fn take(&mut self, frame: &Frame<'_>, number: u64) {
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
/// Where `out` takes nothing more.
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
