//! The run file `.rwk`: the output of a builder unit on disk.
//!
//! ```text
//! segment   = segment header, begin of run, event, event, ..., end of run, footer      (each one record)
//! record    = header 16 B | content | zeros to the alignment | CRC-32C of everything before it, 4 B
//! event     = key, attempt, ... | missing sources | fragment table | payloads back to back
//! ```
//! A run consists of many segments; each begins with its own header and ends with a footer, the index of its events.
//! All numbers are little-endian, every record's length is a multiple of 8 B, and the header of a record has a separate
//! checksum, so that a reader can skip a record whose content is damaged.
//!
//! - A segment is written as `run000001-bu0-000001.rwk.open` and renamed without `.open` after its footer is written.
//!   If a writer has several streams, the name includes the stream's: `run000001-bu0-physics-000001.rwk`.
//! - A segment without a footer (the writer was killed) is read by scanning: [`scan`] examines a window of bytes and
//!   reports a record, the number of missing bytes, or the number of unreadable bytes.
//! - Compatible additions (new kinds, longer contents and table entries) raise the minor version: readers skip unknown
//!   kinds and ignore bytes behind the known fields. Other changes raise the major version.
//!
//! `docs/run-file.md` shows one segment byte by byte. Nothing here reads or writes files.

mod event;
mod segment;
#[cfg(test)]
mod tests;

use core::fmt;
use core::str::FromStr;

use ropewalk_terms::{NodeId, Role, RunNumber};

pub use crate::message::FragmentFlags;
pub use event::{
    ClockDomain, Compression, EVENT_HEAD_BYTES, EventFlags, EventHead, EventRecordEncoder, EventView,
    FRAGMENT_ENTRY_BYTES, FragmentEntry, FragmentView, MAX_STRETCH_BYTES, MISSING_ENTRY_BYTES, MissingSource,
    NoCompression, PACKED_HEAD_BYTES, PackedStretch, Packer, STRETCH_BYTES, encode_event,
};
pub(super) use ropewalk_kernels::crc32c;
pub use segment::{
    BeginOfRun, Damage, END_MARK_BYTES, EndOfRun, FooterView, INDEX_ENTRY_BYTES, IndexEntry, Item, Items,
    SegmentHeader, SegmentIndex, SlowReading, SourceEntry, SourceFormat, Step, footer_bytes, scan,
};

/// The major version. Readers refuse other major versions.
pub const MAJOR_VERSION: u16 = 1;
/// The minor version. Grows with compatible additions.
pub const MINOR_VERSION: u16 = 1;

/// CRC-32C of all added bytes, as in iSCSI, SCTP and ext4.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Checksum(u32);

impl Checksum {
    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = crc32c(self.0, bytes);
    }

    /// The checksum of all bytes so far.
    pub const fn value(self) -> u32 {
        self.0
    }
}

// Little-endian fields at fixed places.
//
// The readers panic on a field outside the bytes. Every caller compares the length with the size of the layout first;
// the property tests of this module check that.

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(array_at(bytes, at))
}

/// Fills a prepared range of bytes field by field; the range has the size of the layout.
struct Fill<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Fill<'a> {
    fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn bytes(&mut self, field: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
}

// The common parts of all records: header, alignment, checksum.
//
// ```text
//  0 "RWKR"            4 u16 kind    6 u16 flags, 0    8 u32 length of the record, a multiple of 8
// 12 u32 CRC-32C of the 12 bytes before    16 content ...    length - 4: u32 CRC-32C of everything before
// ```

/// The beginning of every record.
pub const RECORD_MAGIC: [u8; 4] = *b"RWKR";
/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 16;
/// Maximum length of a record, in bytes.
pub const MAX_RECORD_BYTES: usize = 1 << 30;

/// Bytes of the checksum at a record's end.
const CHECKSUM_BYTES: usize = 4;
/// Every record's length is a multiple of this, in bytes.
const ALIGNMENT: usize = 8;
/// Bytes of the header that its own checksum covers.
const CHECKED_HEADER_BYTES: usize = 12;

/// Reason why bytes are not the expected record.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The bytes end before the record does.
    #[error("the bytes end before the record does")]
    Short,
    /// No record begins here.
    #[error("no record begins here")]
    Magic,
    /// The header's own checksum is wrong.
    #[error("the record header's checksum is wrong")]
    HeaderChecksum,
    /// The length is no multiple of 8, or outside the limits of a record's length.
    #[error("no record has this length")]
    Length,
    /// The record's checksum is wrong.
    #[error("the record's checksum is wrong")]
    Checksum,
    /// The record is whole, but of another kind than requested.
    #[error("the record here is of another kind")]
    Kind,
    /// The file was written in a major version that this reader does not know.
    #[error("run file version {major}.{minor}, this program reads version {known}.x", known = MAJOR_VERSION)]
    Version {
        /// Major version of the file.
        major: u16,
        /// Minor version of the file.
        minor: u16,
    },
    /// The content contradicts itself: a table or a payload extends beyond the record.
    #[error("the record's content contradicts itself")]
    Content,
    /// The data to write do not fit: the buffer is too short or the record would be too long.
    #[error("the record does not fit")]
    Room,
    /// The payload that followed the head has another length than stated.
    #[error("the payload is not as long as the record's head says")]
    Payload,
}

/// The kind of a record. Kinds without a name here are skipped.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct RecordKind(pub u16);

impl RecordKind {
    /// The first record of a segment.
    pub const SEGMENT: Self = Self(1);
    /// The run began.
    pub const BEGIN_OF_RUN: Self = Self(2);
    /// One event.
    pub const EVENT: Self = Self(3);
    /// The run ended.
    pub const END_OF_RUN: Self = Self(4);
    /// The last record of a segment: the index of its events.
    pub const FOOTER: Self = Self(5);
    /// A stretch of a packed segment.
    pub const PACKED: Self = Self(6);
    /// A slow reading.
    pub const SLOW_CONTROL: Self = Self(16);
    /// Reserved: scalers.
    pub const SCALER: Self = Self(17);
    /// Reserved: a change of the run's state.
    pub const STATE: Self = Self(18);
    /// Reserved: the beginning or end of a spill.
    pub const SPILL: Self = Self(19);
    /// Reserved: data that arrived after their event was finished.
    pub const LATE_DATA: Self = Self(20);

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SEGMENT => "segment header",
            Self::BEGIN_OF_RUN => "begin of run",
            Self::EVENT => "event",
            Self::END_OF_RUN => "end of run",
            Self::FOOTER => "footer",
            Self::PACKED => "packed stretch",
            Self::SLOW_CONTROL => "slow control",
            Self::SCALER => "scaler",
            Self::STATE => "state",
            Self::SPILL => "spill",
            Self::LATE_DATA => "late data",
            _ => "unknown",
        }
    }
}

/// The header of a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// The kind of the record.
    pub kind: RecordKind,
    /// Always 0 in version 1.0; readers ignore unknown flags.
    pub flags: u16,
    /// Bytes of the whole record: header, content, padding, checksum.
    pub length: u32,
}

impl RecordHeader {
    /// The header at the front of `bytes`.
    ///
    /// # Errors
    /// [`RecordError::Magic`], [`RecordError::HeaderChecksum`], [`RecordError::Length`], or [`RecordError::Short`] if
    /// the bytes may become a header when more of them arrive.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let seen = bytes.len().min(RECORD_MAGIC.len());
        if bytes[..seen] != RECORD_MAGIC[..seen] {
            return Err(RecordError::Magic);
        }
        let header = bytes.first_chunk::<RECORD_HEADER_BYTES>().ok_or(RecordError::Short)?;
        if u32_at(header, CHECKED_HEADER_BYTES) != crc32c(0, &header[..CHECKED_HEADER_BYTES]) {
            return Err(RecordError::HeaderChecksum);
        }
        let length = u32_at(header, 8);
        if !(record_bytes(RECORD_HEADER_BYTES)..=MAX_RECORD_BYTES).contains(&(length as usize))
            || !length.is_multiple_of(ALIGNMENT as u32)
        {
            return Err(RecordError::Length);
        }
        Ok(Self { kind: RecordKind(u16_at(header, 4)), flags: u16_at(header, 6), length })
    }

    /// The header's bytes.
    pub fn encode(self) -> [u8; RECORD_HEADER_BYTES] {
        let mut header = [0; RECORD_HEADER_BYTES];
        Fill::new(&mut header).bytes(&RECORD_MAGIC).u16(self.kind.0).u16(self.flags).u32(self.length);
        let checksum = crc32c(0, &header[..CHECKED_HEADER_BYTES]);
        Fill::new(&mut header[CHECKED_HEADER_BYTES..]).u32(checksum);
        header
    }
}

/// Bytes of a record whose header and content have `content` bytes.
const fn record_bytes(content: usize) -> usize {
    (content + CHECKSUM_BYTES).next_multiple_of(ALIGNMENT)
}

/// The end of a record: zeros to the alignment, then the checksum.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecordTail {
    bytes: [u8; ALIGNMENT + CHECKSUM_BYTES],
    length: usize,
}

impl RecordTail {
    /// The longest tail is shorter than this, in bytes.
    pub const LONGEST: usize = ALIGNMENT + CHECKSUM_BYTES;

    /// The tail behind `content` bytes (header included), whose checksum is `checksum`.
    fn new(content: usize, checksum: Checksum) -> Self {
        Self::open(content).sealed(checksum)
    }

    /// The tail behind `content` bytes (header included) with 0 instead of the checksum.
    const fn open(content: usize) -> Self {
        Self { bytes: [0; Self::LONGEST], length: record_bytes(content) - content }
    }

    fn sealed(mut self, mut checksum: Checksum) -> Self {
        let padding = self.length - CHECKSUM_BYTES;
        checksum.update(&self.bytes[..padding]);
        Fill::new(&mut self.bytes[padding..]).u32(checksum.value());
        self
    }

    /// The tail that replaces these bytes, if they are an open one ([`EventRecordEncoder::begin_open`]); `before` is
    /// the checksum of the record's bytes before them.
    pub fn seal(bytes: &[u8], before: Checksum) -> Option<Self> {
        let length = bytes.len();
        let is_open = (CHECKSUM_BYTES..Self::LONGEST).contains(&length) && bytes.iter().all(|&byte| byte == 0);
        is_open.then(|| Self { bytes: [0; Self::LONGEST], length }.sealed(before))
    }

    /// The bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A record in memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    header: RecordHeader,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses the record at the front of `bytes`; ignores the bytes behind it.
    ///
    /// # Errors
    /// As [`RecordHeader::decode`], and [`RecordError::Short`] or [`RecordError::Checksum`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let record = Self::parse_unchecked(bytes)?;
        let content = &record.bytes[..record.bytes.len() - CHECKSUM_BYTES];
        if u32_at(record.bytes, content.len()) != crc32c(0, content) {
            return Err(RecordError::Checksum);
        }
        Ok(record)
    }

    /// As [`Record::parse`], but without checking the record's checksum: for bytes that were checked before.
    ///
    /// # Errors
    /// As [`RecordHeader::decode`], and [`RecordError::Short`].
    pub fn parse_unchecked(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let header = RecordHeader::decode(bytes)?;
        let bytes = bytes.get(..header.length as usize).ok_or(RecordError::Short)?;
        Ok(Self { header, bytes })
    }

    /// The kind of the record.
    pub const fn kind(&self) -> RecordKind {
        self.header.kind
    }

    /// Bytes of the whole record.
    pub const fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The whole record.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Header, content and padding: everything except the checksum, so that offsets count from the record's start.
    fn content(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - CHECKSUM_BYTES]
    }

    /// The content of a record of this kind with at least `least` bytes, its header included.
    fn content_of(&self, kind: RecordKind, least: usize) -> Result<&'a [u8], RecordError> {
        if self.kind() != kind {
            return Err(RecordError::Kind);
        }
        let content = self.content();
        if content.len() < least { Err(RecordError::Content) } else { Ok(content) }
    }
}

/// Appends a record: reserves the header, lets `fill` append the content, then seals it.
///
/// # Errors
/// [`RecordError::Room`] if the record would be longer than [`MAX_RECORD_BYTES`]; `out` is then unchanged.
fn append_record(out: &mut Vec<u8>, kind: RecordKind, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), RecordError> {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    fill(out);
    let content = out.len() - start;
    let length = record_bytes(content);
    if length > MAX_RECORD_BYTES {
        out.truncate(start);
        return Err(RecordError::Room);
    }
    let header = RecordHeader { kind, flags: 0, length: length as u32 };
    out[start..start + RECORD_HEADER_BYTES].copy_from_slice(&header.encode());
    let mut checksum = Checksum::default();
    checksum.update(&out[start..]);
    out.extend_from_slice(RecordTail::new(content, checksum).as_bytes());
    Ok(())
}

// The names of segments: `run000001-bu0-000001.rwk`, in a named stream `run000001-bu0-physics-000001.rwk`, and with
// `.open` appended while they are written.

/// Extension of the name of a segment while it is written.
pub const OPEN_EXTENSION: &str = ".open";

/// Extension of the name of a segment for the file with its checksum.
pub const CHECKSUM_EXTENSION: &str = ".crc32c";

/// Extension of the name of a segment while it is deleted: readers ignore it, and its content is no longer complete.
pub const DELETED_EXTENSION: &str = ".deleted";

const EXTENSION: &str = ".rwk";
const ROLES: [Role; 4] = [Role::Readout, Role::Builder, Role::Manager, Role::Source];

/// The name of a run's directory: `run000042`.
pub fn run_directory_name(run: RunNumber) -> String {
    format!("run{:06}", run.0)
}

/// Whether a directory of this name is that of a run.
pub fn is_run_directory(name: &str) -> bool {
    name.strip_prefix("run").is_some_and(|digits| digits.len() >= 6 && number(digits).is_some())
}

/// The name of a segment. Ordered by run, then by writer, then by stream, then by segment.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentName {
    /// The run.
    pub run: RunNumber,
    /// The node that wrote it.
    pub writer: NodeId,
    /// The writer's stream.
    pub stream: StreamName,
    /// Number of the segment among the stream's segments by this writer, from 1.
    pub segment: u32,
}

impl fmt::Display for SegmentName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "run{:06}-{}-", self.run, self.writer)?;
        if !self.stream.is_unnamed() {
            write!(out, "{}-", self.stream)?;
        }
        write!(out, "{:06}{EXTENSION}", self.segment)
    }
}

/// The text is not the name of a segment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not the name of a segment, such as run000001-bu0-000001.rwk")]
pub struct NotASegment;

impl FromStr for SegmentName {
    type Err = NotASegment;

    /// Parses the output of [`Display`](fmt::Display); any number of leading zeros is accepted.
    fn from_str(text: &str) -> Result<Self, NotASegment> {
        Self::read(text).ok_or(NotASegment)
    }
}

impl SegmentName {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(EXTENSION)?.strip_prefix("run")?.split('-');
        let (run, writer) = (parts.next()?, parts.next()?);
        let (stream, segment) = match (parts.next()?, parts.next()) {
            (segment, None) => (StreamName::UNNAMED, segment),
            (stream, Some(segment)) => (stream.parse().ok()?, segment),
        };
        if parts.next().is_some() {
            return None;
        }
        let role = ROLES.into_iter().find(|role| writer.starts_with(role.prefix()))?;
        let index = number(&writer[role.prefix().len()..])?;
        Some(Self {
            run: RunNumber(number(run)?),
            writer: NodeId { role, index: u16::try_from(index).ok()? },
            stream,
            segment: number(segment)?,
        })
    }
}

/// Only digits: `parse` would accept a sign too.
fn number(digits: &str) -> Option<u32> {
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

// The names of streams: short, so that a file name can be `Copy`, and made of characters that are safe in every file
// system and shell.

/// The name of a stream: small letters, digits and `_`, at most [`StreamName::MOST_BYTES`]; empty if the writer has
/// only one stream without a name.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamName([u8; Self::MOST_BYTES]);

/// The text is not the name of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a stream's name has 1 to {} bytes of a-z, 0-9 and _", StreamName::MOST_BYTES)]
pub struct NotAStreamName;

impl StreamName {
    /// The longest name, in bytes.
    pub const MOST_BYTES: usize = 32;
    /// The name of the only stream of a writer without streams.
    pub const UNNAMED: Self = Self([0; Self::MOST_BYTES]);

    /// The name as text; empty for [`StreamName::UNNAMED`].
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(Self::MOST_BYTES);
        // It contains only ASCII.
        str::from_utf8(&self.0[..end]).unwrap_or_default()
    }

    /// Whether it is [`StreamName::UNNAMED`].
    pub const fn is_unnamed(&self) -> bool {
        self.0[0] == 0
    }
}

impl FromStr for StreamName {
    type Err = NotAStreamName;

    fn from_str(text: &str) -> Result<Self, NotAStreamName> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if text.is_empty() || text.len() > Self::MOST_BYTES || !text.bytes().all(is_allowed) {
            return Err(NotAStreamName);
        }
        let mut name = [0; Self::MOST_BYTES];
        name[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self(name))
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for StreamName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.as_str())
    }
}
