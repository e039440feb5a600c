//! The first record of a segment: whose it is, and what its sources are.
//!
//! ```text
//! 16 "ROPEWALK"      24 u16 major      26 u16 minor      28 u32 run      32 u32 segment, counted from 1
//! 36 u8 role   37 u8 acknowledgement level   38 u16 index of the node    40 u64 incarnation    48 i64 start, UTC ns
//! 56 u32 sources     60 u16 bytes of the stream's name     62 u16 flags
//! 64 for each source: u32 id, u16 format, u16 bytes of the name, the name in UTF-8, zeros to a multiple of 8
//!    the stream's name, zeros to a multiple of 8
//! ```
//! In version 1.0 there were no streams, and the last four bytes of the head were 0.

use super::fields::{Fill, array_at, i64_at, u16_at, u32_at, u64_at};
use super::record::{Record, RecordError, RecordKind, append_record};
use super::stream_name::StreamName;
use super::{MAJOR_VERSION, MINOR_VERSION};
use ropewalk_terms::{AcknowledgementLevel, Incarnation, NodeId, Role, RunNumber, SourceId, Utc};

const SIGNATURE: [u8; 8] = *b"ROPEWALK";
/// Bytes up to the source table.
const HEAD_BYTES: usize = 64;
/// Bytes of a source's entry in front of its name.
const SOURCE_BYTES: usize = 8;
/// The flag of [`SegmentHeader::selected`].
const SELECTED: u16 = 1 << 0;

/// What the bytes of a source's fragments are.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SourceFormat(pub u16);

impl SourceFormat {
    /// Bytes without a meaning here.
    pub const OPAQUE: Self = Self(0);
    /// The payload of a generic fragment.
    pub const GENERIC: Self = Self(1);
    /// A CMS FED fragment (S-LINK64), header and trailer included; FORMATS section 2.
    pub const FED: Self = Self(2);
    /// A chunk of a FELIX e-link, as the card delivered it.
    pub const CHUNK: Self = Self(3);
    /// Raw banks of LHCb, one behind the other; FORMATS section 3.
    pub const BANKS: Self = Self(4);
    /// What an event of another format has around its fragments: header, padding; `docs/formats.md`.
    pub const ENVELOPE: Self = Self(5);
    /// What the filter said of the event ([`filter_result`](crate::filter_result)).
    pub const FILTER_RESULT: Self = Self(6);

    /// Whether it is what a source sent; otherwise it was made of the event, or stood around it.
    pub const fn is_of_a_source(self) -> bool {
        !matches!(self, Self::ENVELOPE | Self::FILTER_RESULT)
    }

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OPAQUE => "opaque",
            Self::GENERIC => "generic",
            Self::FED => "fed",
            Self::CHUNK => "chunk",
            Self::BANKS => "banks",
            Self::ENVELOPE => "envelope",
            Self::FILTER_RESULT => "filter_result",
            _ => "unknown",
        }
    }
}

/// A source of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceEntry {
    /// Its id, as in fragment tables.
    pub id: SourceId,
    /// What its fragments are.
    pub format: SourceFormat,
    /// Its name in the configuration; at most 65,535 bytes are kept.
    pub name: String,
}

/// The header of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The run.
    pub run: RunNumber,
    /// Which of its writer's segments this is, counted from 1.
    pub segment: u32,
    /// The node that wrote it.
    pub writer: NodeId,
    /// Which life of that node.
    pub incarnation: Incarnation,
    /// When the segment was opened.
    pub start: Utc,
    /// What an acknowledgement of its events promised.
    pub acknowledgement: AcknowledgementLevel,
    /// Minor version of the file; written as [`MINOR_VERSION`] whatever stands here.
    pub minor: u16,
    /// Which of the writer's streams it belongs to.
    pub stream: StreamName,
    /// Not every event was meant to be written: keys that are missing between others are no loss.
    pub selected: bool,
    /// The run's sources, in the order of the configuration.
    pub sources: Vec<SourceEntry>,
}

impl SegmentHeader {
    /// Appends the record.
    ///
    /// # Errors
    /// [`RecordError::Room`] where the record would be too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut head = [0; HEAD_BYTES - 16];
        Fill::new(&mut head)
            .bytes(&SIGNATURE)
            .u16(MAJOR_VERSION)
            .u16(MINOR_VERSION)
            .u32(self.run.0)
            .u32(self.segment)
            .u8(self.writer.role as u8)
            .u8(self.acknowledgement as u8)
            .u16(self.writer.index)
            .u64(self.incarnation.0)
            .i64(self.start.0)
            .u32(self.sources.len() as u32)
            .u16(self.stream.as_str().len() as u16)
            .u16(if self.selected { SELECTED } else { 0 });
        append_record(out, RecordKind::SEGMENT, |out| {
            out.extend_from_slice(&head);
            for source in &self.sources {
                encode_source(source, out);
            }
            append_name(self.stream.as_str().as_bytes(), out);
        })
    }

    /// The header in a record.
    ///
    /// # Errors
    /// [`RecordError::Kind`], [`RecordError::Version`] for another major version, [`RecordError::Content`].
    pub fn decode(record: &Record<'_>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::SEGMENT, HEAD_BYTES)?;
        if array_at(content, 16) != SIGNATURE {
            return Err(RecordError::Content);
        }
        let (major, minor) = (u16_at(content, 24), u16_at(content, 26));
        if major != MAJOR_VERSION {
            return Err(RecordError::Version { major, minor });
        }
        let mut table = &content[HEAD_BYTES..];
        let sources = decode_sources(&mut table, u32_at(content, 56))?;
        let stream = take_name(&mut table, u16_at(content, 60).into())?;
        let role = Role::from_u8(content[36]).ok_or(RecordError::Content)?;
        Ok(Self {
            run: RunNumber(u32_at(content, 28)),
            segment: u32_at(content, 32),
            writer: NodeId { role, index: u16_at(content, 38) },
            incarnation: Incarnation(u64_at(content, 40)),
            start: Utc(i64_at(content, 48)),
            acknowledgement: AcknowledgementLevel::from_u8(content[37]).ok_or(RecordError::Content)?,
            minor,
            stream: decode_stream(stream)?,
            selected: u16_at(content, 62) & SELECTED != 0,
            sources,
        })
    }
}

fn encode_source(source: &SourceEntry, out: &mut Vec<u8>) {
    let end = source.name.floor_char_boundary(usize::from(u16::MAX));
    let name = &source.name.as_bytes()[..end];
    out.extend_from_slice(&source.id.0.to_le_bytes());
    out.extend_from_slice(&source.format.0.to_le_bytes());
    out.extend_from_slice(&(name.len() as u16).to_le_bytes());
    append_name(name, out);
}

/// Appends a name and zeros to a multiple of 8 bytes.
fn append_name(name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.resize(out.len() + name.len().next_multiple_of(8) - name.len(), 0);
}

/// The name of so many bytes at the front of `table`, which goes on behind it and its zeros.
fn take_name<'a>(table: &mut &'a [u8], length: usize) -> Result<&'a [u8], RecordError> {
    let (name, rest) = table.split_at_checked(length.next_multiple_of(8)).ok_or(RecordError::Content)?;
    *table = rest;
    Ok(&name[..length])
}

fn decode_stream(name: &[u8]) -> Result<StreamName, RecordError> {
    let text = str::from_utf8(name).map_err(|_| RecordError::Content)?;
    if text.is_empty() { Ok(StreamName::UNNAMED) } else { text.parse().map_err(|_| RecordError::Content) }
}

fn decode_sources(table: &mut &[u8], count: u32) -> Result<Vec<SourceEntry>, RecordError> {
    // Nothing is reserved for a count that the table cannot hold.
    let mut sources = Vec::with_capacity((count as usize).min(table.len() / SOURCE_BYTES));
    for _ in 0..count {
        let (entry, rest) = table.split_at_checked(SOURCE_BYTES).ok_or(RecordError::Content)?;
        *table = rest;
        let name = take_name(table, u16_at(entry, 6).into())?;
        sources.push(SourceEntry {
            id: SourceId(u32_at(entry, 0)),
            format: SourceFormat(u16_at(entry, 4)),
            name: String::from_utf8_lossy(name).into_owned(),
        });
    }
    Ok(sources)
}
