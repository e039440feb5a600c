//! The records of a segment other than events: its header, begin and end of the run, slow readings and the footer; and
//! the scan that finds records in damaged bytes.
//!
//! The header names the node that wrote the segment and lists the sources:
//!
//! ```text
//! 16 "ROPEWALK"      24 u16 major      26 u16 minor      28 u32 run      32 u32 segment, counted from 1
//! 36 u8 role   37 u8 acknowledgement level   38 u16 index of the node    40 u64 incarnation    48 i64 start, UTC ns
//! 56 u32 sources     60 u16 bytes of the stream's name     62 u16 flags
//! 64 for each source: u32 id, u16 format, u16 bytes of the name, the name in UTF-8, zeros to a multiple of 8
//!    the stream's name, zeros to a multiple of 8
//! ```
//! In version 1.0 there were no streams, and the last four bytes of the head were 0.

use super::event::EventView;
use super::{
    Fill, MAJOR_VERSION, MINOR_VERSION, RECORD_HEADER_BYTES, RECORD_MAGIC, Record, RecordError, RecordHeader,
    RecordKind, StreamName, append_record, array_at, i64_at, u16_at, u32_at, u64_at,
};
use ropewalk_terms::{AcknowledgementLevel, Attempt, EventKey, Incarnation, NodeId, Role, RunNumber, SourceId, Utc};

const SIGNATURE: [u8; 8] = *b"ROPEWALK";
/// Bytes up to the source table.
const SEGMENT_HEAD_BYTES: usize = 64;
/// Bytes of a source's entry in front of its name.
const SOURCE_BYTES: usize = 8;
/// The flag of [`SegmentHeader::selected`].
const SELECTED: u16 = 1 << 0;

/// The format of a source's fragments.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct SourceFormat(pub u16);

impl SourceFormat {
    /// Bytes of unknown format.
    pub const OPAQUE: Self = Self(0);
    /// The payload of a generic fragment.
    pub const GENERIC: Self = Self(1);
    /// A CMS FED fragment (S-LINK64), header and trailer included; FORMATS section 2.
    pub const FED: Self = Self(2);
    /// A chunk of a FELIX e-link, as the card delivered it.
    pub const CHUNK: Self = Self(3);
    /// Raw banks of LHCb, back to back; FORMATS section 3.
    pub const BANKS: Self = Self(4);
    /// The parts of a foreign event around its fragments: header, padding; `docs/formats.md`.
    pub const ENVELOPE: Self = Self(5);
    /// The filter's result for the event ([`filter_result`](crate::filter_result)).
    pub const FILTER_RESULT: Self = Self(6);

    /// Whether it is data of a source; otherwise it was made from the event, or surrounded it.
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
    /// The format of its fragments.
    pub format: SourceFormat,
    /// Its name in the configuration; at most 65,535 bytes are kept.
    pub name: String,
}

/// The header of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The run.
    pub run: RunNumber,
    /// Number of the segment among its writer's segments, from 1.
    pub segment: u32,
    /// The node that wrote it.
    pub writer: NodeId,
    /// The incarnation of that node.
    pub incarnation: Incarnation,
    /// Time when the segment was opened.
    pub start: Utc,
    /// The level at which its events were acknowledged.
    pub acknowledgement: AcknowledgementLevel,
    /// Minor version of the file, as read; always written as [`MINOR_VERSION`].
    pub minor: u16,
    /// The writer's stream.
    pub stream: StreamName,
    /// Whether only selected events were written, so that missing keys between others are no loss.
    pub selected: bool,
    /// The run's sources, in the order of the configuration.
    pub sources: Vec<SourceEntry>,
}

impl SegmentHeader {
    /// Appends the record.
    ///
    /// # Errors
    /// [`RecordError::Room`] if the record would be too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut head = [0; SEGMENT_HEAD_BYTES - 16];
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
        let content = record.content_of(RecordKind::SEGMENT, SEGMENT_HEAD_BYTES)?;
        if array_at(content, 16) != SIGNATURE {
            return Err(RecordError::Content);
        }
        let (major, minor) = (u16_at(content, 24), u16_at(content, 26));
        if major != MAJOR_VERSION {
            return Err(RecordError::Version { major, minor });
        }
        let mut table = &content[SEGMENT_HEAD_BYTES..];
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

/// Takes a name of `length` bytes and its padding off the front of `table`.
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
    // Reserves nothing for a count that the table cannot hold.
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

// The records of the begin and the end of the run.
//
// ```text
// begin of run:  16 u32 run    20 u32 bytes of the text    24 i64 start, UTC ns    32 text in UTF-8
// end of run:    16 u32 run    20 u32 bytes of the text    24 i64 end, UTC ns      32 u64 last event key, all ones: none
//                40 u64 event records that this node wrote    48 text in UTF-8
// ```

const BEGIN_BYTES: usize = 32;
const END_BYTES: usize = 48;

/// The begin of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeginOfRun {
    /// The run.
    pub run: RunNumber,
    /// Time of the begin.
    pub start: Utc,
    /// The configuration as text; may be empty.
    pub text: String,
}

impl BeginOfRun {
    /// Appends the record.
    ///
    /// # Errors
    /// [`RecordError::Room`] if the record would be too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut head = [0; BEGIN_BYTES - 16];
        Fill::new(&mut head).u32(self.run.0).u32(self.text.len() as u32).i64(self.start.0);
        append_record(out, RecordKind::BEGIN_OF_RUN, |out| {
            out.extend_from_slice(&head);
            out.extend_from_slice(self.text.as_bytes());
        })
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// [`RecordError::Kind`], or [`RecordError::Content`] if the text extends beyond the record.
    pub fn decode(record: &Record<'_>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::BEGIN_OF_RUN, BEGIN_BYTES)?;
        Ok(Self {
            run: RunNumber(u32_at(content, 16)),
            start: Utc(i64_at(content, 24)),
            text: text_at(content, BEGIN_BYTES, u32_at(content, 20))?,
        })
    }
}

/// The end of the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndOfRun {
    /// The run.
    pub run: RunNumber,
    /// Time of the end.
    pub end: Utc,
    /// The run's last event, if there was one.
    pub last: Option<EventKey>,
    /// Event records that the writing node wrote in all its segments.
    pub events: u64,
    /// A summary as text; may be empty.
    pub text: String,
}

impl EndOfRun {
    /// Appends the record.
    ///
    /// # Errors
    /// [`RecordError::Room`] if the record would be too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let mut head = [0; END_BYTES - 16];
        Fill::new(&mut head)
            .u32(self.run.0)
            .u32(self.text.len() as u32)
            .i64(self.end.0)
            .u64(self.last.unwrap_or(EventKey::MAX).to_bits())
            .u64(self.events);
        append_record(out, RecordKind::END_OF_RUN, |out| {
            out.extend_from_slice(&head);
            out.extend_from_slice(self.text.as_bytes());
        })
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// [`RecordError::Kind`], or [`RecordError::Content`] if the text extends beyond the record.
    pub fn decode(record: &Record<'_>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::END_OF_RUN, END_BYTES)?;
        Ok(Self {
            run: RunNumber(u32_at(content, 16)),
            end: Utc(i64_at(content, 24)),
            last: Some(EventKey::from_bits(u64_at(content, 32))).filter(|&key| key != EventKey::MAX),
            events: u64_at(content, 40),
            text: text_at(content, END_BYTES, u32_at(content, 20))?,
        })
    }
}

/// The text of `length` bytes at a place; bytes that are no UTF-8 are replaced.
fn text_at(content: &[u8], at: usize, length: u32) -> Result<String, RecordError> {
    let text = content[at..].get(..length as usize).ok_or(RecordError::Content)?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

// A slow reading: a value such as a voltage or a temperature that a front end reports in addition to its data.
//
// ```text
// 16 u32 source    20 u16 bytes of the name    22 u16 bytes of the unit    24 i64 time, UTC ns    32 f64 value
// 40 name in UTF-8, then the unit in UTF-8
// ```

const READING_HEAD_BYTES: usize = 40;

/// A slow reading.
#[derive(Clone, PartialEq, Debug)]
pub struct SlowReading {
    /// The reporting source.
    pub source: SourceId,
    /// Time of the reading.
    pub time: Utc,
    /// The value.
    pub value: f64,
    /// Name of the quantity, such as `hv/ch3`; at most 65,535 bytes are kept.
    pub name: String,
    /// Its unit; may be empty.
    pub unit: String,
}

impl SlowReading {
    /// Appends the record.
    ///
    /// # Errors
    /// [`RecordError::Room`] if the record would be too long.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        let kept = |text: &'_ str| text.floor_char_boundary(usize::from(u16::MAX));
        let (name, unit) = (&self.name[..kept(&self.name)], &self.unit[..kept(&self.unit)]);
        let mut head = [0; READING_HEAD_BYTES - 16];
        Fill::new(&mut head)
            .u32(self.source.0)
            .u16(name.len() as u16)
            .u16(unit.len() as u16)
            .i64(self.time.0)
            .u64(self.value.to_bits());
        append_record(out, RecordKind::SLOW_CONTROL, |out| {
            out.extend_from_slice(&head);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(unit.as_bytes());
        })
    }

    /// Decodes a record; bytes that are no UTF-8 are replaced.
    ///
    /// # Errors
    /// [`RecordError::Kind`], or [`RecordError::Content`] if a text extends beyond the record.
    pub fn decode(record: &Record<'_>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::SLOW_CONTROL, READING_HEAD_BYTES)?;
        let (name, unit) = (usize::from(u16_at(content, 20)), usize::from(u16_at(content, 22)));
        let texts = content[READING_HEAD_BYTES..].get(..name + unit).ok_or(RecordError::Content)?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok(Self {
            source: SourceId(u32_at(content, 16)),
            time: Utc(i64_at(content, 24)),
            value: f64::from_le_bytes(array_at(content, 32)),
            name: text(&texts[..name]),
            unit: text(&texts[name..]),
        })
    }
}

// The footer: the place of each event in the segment. A scan can rebuild it.
//
// ```text
// 16 u32 events     20 u32 bytes of an entry, 40     24 i64 closed, UTC ns, 0: unknown     32 u32 flags
// 36 u32 0          40 u64 offset of this record
// 48 for each event record, in the order of the file:
//     0 u64 event key    8 u64 offset    16 u64 incarnation    24 u32 length    28 u32 fragments
//    32 u32 missing sources    36 u16 attempt    38 u16 flags
//    u32 length of this record    "RWKF"    u32 0    u32 CRC-32C: the last 16 bytes of the file lead to the footer
// ```

/// Bytes of an event's entry.
pub const INDEX_ENTRY_BYTES: usize = 40;
/// Bytes at the end of a closed segment that lead to its footer.
pub const END_MARK_BYTES: usize = 16;

const FOOTER_HEAD_BYTES: usize = 48;
const END_MARK: [u8; 4] = *b"RWKF";
const REBUILT: u32 = 1 << 0;

/// The place of an event record, and the fields needed to choose among copies.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// The event.
    pub key: EventKey,
    /// Offset of its record, in bytes from the segment's beginning.
    pub offset: u64,
    /// The incarnation of the builder unit that wrote it.
    pub incarnation: Incarnation,
    /// Bytes of the record.
    pub length: u32,
    /// Number of its fragments.
    pub fragments: u32,
    /// Number of its missing sources.
    pub missing: u32,
    /// Number of assignments of the event.
    pub attempt: Attempt,
    /// The lower half of [`EventFlags`](super::EventFlags).
    pub flags: u16,
}

impl IndexEntry {
    /// The entry of an event whose record of `length` bytes begins at `offset`.
    pub fn of(event: &EventView<'_>, offset: u64, length: usize) -> Self {
        let head = event.head();
        Self {
            key: head.key,
            offset,
            incarnation: head.incarnation,
            length: length as u32,
            fragments: event.fragments().len() as u32,
            missing: event.missing().len() as u32,
            attempt: head.attempt,
            flags: head.flags.0 as u16,
        }
    }

    fn encode(&self) -> [u8; INDEX_ENTRY_BYTES] {
        let mut entry = [0; INDEX_ENTRY_BYTES];
        Fill::new(&mut entry)
            .u64(self.key.to_bits())
            .u64(self.offset)
            .u64(self.incarnation.0)
            .u32(self.length)
            .u32(self.fragments)
            .u32(self.missing)
            .u16(self.attempt.0)
            .u16(self.flags);
        entry
    }

    /// Decodes the entry at the front of `entry`, which has at least [`INDEX_ENTRY_BYTES`].
    fn decode(entry: &[u8]) -> Self {
        Self {
            key: EventKey::from_bits(u64_at(entry, 0)),
            offset: u64_at(entry, 8),
            incarnation: Incarnation(u64_at(entry, 16)),
            length: u32_at(entry, 24),
            fragments: u32_at(entry, 28),
            missing: u32_at(entry, 32),
            attempt: Attempt(u16_at(entry, 36)),
            flags: u16_at(entry, 38),
        }
    }
}

/// Bytes of the footer of a segment with `events` events.
pub const fn footer_bytes(events: usize) -> usize {
    FOOTER_HEAD_BYTES + events * INDEX_ENTRY_BYTES + END_MARK_BYTES
}

/// The index of a segment as it grows.
///
/// Its capacity is fixed when it is made, so that a writer allocates nothing later: a segment whose index is full is
/// closed.
#[derive(Clone, Debug)]
pub struct SegmentIndex {
    entries: Vec<IndexEntry>,
}

impl SegmentIndex {
    /// An empty index with room for `events` events.
    pub fn with_capacity(events: usize) -> Self {
        Self { entries: Vec::with_capacity(events) }
    }

    /// Whether another event would need an allocation.
    pub const fn is_full(&self) -> bool {
        self.entries.len() == self.entries.capacity()
    }

    /// Adds an event record.
    pub fn push(&mut self, entry: IndexEntry) {
        self.entries.push(entry);
    }

    /// The entries, in the order in which they were added.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Removes all entries, and keeps the capacity.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Appends the footer, which will begin `offset` bytes behind the segment's beginning. It needs [`footer_bytes`] in
    /// `out`. `rebuilt` states that it was made by scanning.
    ///
    /// # Errors
    /// [`RecordError::Room`] if the footer would be too long.
    pub fn encode(&self, out: &mut Vec<u8>, offset: u64, closed: Utc, rebuilt: bool) -> Result<(), RecordError> {
        let mut head = [0; FOOTER_HEAD_BYTES - 16];
        Fill::new(&mut head)
            .u32(self.entries.len() as u32)
            .u32(INDEX_ENTRY_BYTES as u32)
            .i64(closed.0)
            .u32(if rebuilt { REBUILT } else { 0 })
            .u32(0)
            .u64(offset);
        append_record(out, RecordKind::FOOTER, |out| {
            out.extend_from_slice(&head);
            for entry in &self.entries {
                out.extend_from_slice(&entry.encode());
            }
            out.extend_from_slice(&(footer_bytes(self.entries.len()) as u32).to_le_bytes());
            out.extend_from_slice(&END_MARK);
        })
    }
}

/// A footer, read in place.
#[derive(Copy, Clone, Debug)]
pub struct FooterView<'a> {
    content: &'a [u8],
    entries: &'a [u8],
    stride: usize,
}

impl<'a> FooterView<'a> {
    /// The length of the footer to which the last bytes of a file lead, if they lead to one.
    pub fn length_from_end(end: &[u8; END_MARK_BYTES]) -> Option<u32> {
        (array_at(end, 4) == END_MARK).then(|| u32_at(end, 0))
    }

    /// The footer in a record.
    ///
    /// # Errors
    /// [`RecordError::Kind`], or [`RecordError::Content`] if the entries do not fit into the record.
    pub fn parse(record: &Record<'a>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::FOOTER, FOOTER_HEAD_BYTES)?;
        let (count, stride) = (u32_at(content, 16) as usize, u32_at(content, 20) as usize);
        let length = count.checked_mul(stride).ok_or(RecordError::Content)?;
        match content[FOOTER_HEAD_BYTES..].get(..length) {
            Some(entries) if stride >= INDEX_ENTRY_BYTES => Ok(Self { content, entries, stride }),
            _ => Err(RecordError::Content),
        }
    }

    /// Time when the segment was closed; 0 if it is unknown.
    pub fn closed(&self) -> Utc {
        Utc(i64_at(self.content, 24))
    }

    /// Whether it was made by scanning.
    pub fn is_rebuilt(&self) -> bool {
        u32_at(self.content, 32) & REBUILT != 0
    }

    /// Its own offset as stated in it, in bytes from the segment's beginning.
    pub fn offset(&self) -> u64 {
        u64_at(self.content, 40)
    }

    /// The event records, in the order of the file.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = IndexEntry> + Clone + use<'a> {
        self.entries.chunks_exact(self.stride).map(IndexEntry::decode)
    }
}

// Finding records in bytes that may be cut or damaged.
//
// A header whose own checksum is right is trusted: its length leads to the next record even if the content is damaged.
// The scan never looks for records inside a record, because payloads may contain anything, including run files. It
// searches the bytes for the next record only if there is no such header.

/// Reason why bytes belong to no readable record.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Damage {
    /// The record's checksum is wrong.
    Checksum,
    /// The file ends before the record does: the writer was stopped in the middle. Or zeros fill the last piece of a
    /// file that was written past the page cache, and not closed.
    Cut,
    /// No record header can be read here.
    NoHeader,
}

/// The element at the front of a window.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A whole record of `length` bytes with the right checksum: take it with [`Record::parse_unchecked`].
    Record {
        /// Bytes of the record.
        length: usize,
    },
    /// Call again with a window that begins at the same place and has at least `bytes` bytes, or all remaining ones and
    /// `at_end`.
    NeedMore {
        /// Bytes from the window's beginning.
        bytes: usize,
    },
    /// `skip` bytes belong to no readable record; continue behind them.
    Damaged {
        /// Number of bytes to skip, at least 1.
        skip: usize,
        /// The reason.
        damage: Damage,
    },
    /// The window is empty and nothing follows.
    End,
}

/// A file that was not closed may have fewer zeros than this behind its last record.
const FILLED: usize = 4096;

/// Examines the front of `window`; `at_end` states that no bytes follow it.
pub fn scan(window: &[u8], at_end: bool) -> Step {
    if window.is_empty() && at_end {
        return Step::End;
    }
    match Record::parse(window) {
        Ok(record) => Step::Record { length: record.length() },
        Err(RecordError::Short) if at_end => Step::Damaged { skip: window.len(), damage: Damage::Cut },
        Err(RecordError::Short) => {
            let length = RecordHeader::decode(window).map_or(RECORD_HEADER_BYTES, |header| header.length as usize);
            Step::NeedMore { bytes: length }
        }
        Err(RecordError::Checksum) => {
            let length = RecordHeader::decode(window).map_or(RECORD_HEADER_BYTES, |header| header.length as usize);
            Step::Damaged { skip: length, damage: Damage::Checksum }
        }
        Err(_) if window.len() < FILLED && window.iter().all(|&byte| byte == 0) => {
            if at_end {
                Step::Damaged { skip: window.len(), damage: Damage::Cut }
            } else {
                Step::NeedMore { bytes: FILLED }
            }
        }
        Err(_) => Step::Damaged { skip: bytes_to_next_header(window, at_end), damage: Damage::NoHeader },
    }
}

/// Distance from the front to the next header whose checksum is right; if there is none, the number of bytes in which
/// none can begin.
fn bytes_to_next_header(window: &[u8], at_end: bool) -> usize {
    let mut from = 1;
    while let Some(found) = window[from..].windows(RECORD_MAGIC.len()).position(|bytes| bytes == RECORD_MAGIC) {
        let at = from + found;
        match RecordHeader::decode(&window[at..]) {
            Ok(_) => return at,
            // Cut by the window's end: wait for the rest of it.
            Err(RecordError::Short) if !at_end => return at,
            Err(_) => from = at + 1,
        }
    }
    if at_end { window.len() } else { from.max((window.len() + 1).saturating_sub(RECORD_MAGIC.len())) }
}

/// A record or a damaged stretch, with its place.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// A whole record with the right checksum.
    Record {
        /// Its offset in the file.
        offset: u64,
        /// The record.
        record: Record<'a>,
    },
    /// Bytes that belong to no readable record.
    Damaged {
        /// Their offset in the file.
        offset: u64,
        /// Their number.
        bytes: u64,
        /// The reason.
        damage: Damage,
    },
}

/// Iterator over all items of a segment that is completely in memory.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Items<'a> {
    /// Items of the whole file `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let window = &self.bytes[self.at..];
        let offset = self.at as u64;
        match scan(window, true) {
            Step::Record { length } => {
                self.at += length;
                Record::parse_unchecked(window).ok().map(|record| Item::Record { offset, record })
            }
            Step::Damaged { skip, damage } => {
                self.at += skip;
                Some(Item::Damaged { offset, bytes: skip as u64, damage })
            }
            Step::End | Step::NeedMore { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_reading_comes_back(
            source in any::<u32>(), time in any::<i64>(), value in any::<f64>(), name in ".{0,80}", unit in ".{0,10}"
        ) {
            let (source, time) = (SourceId(source), Utc(time));
            let reading = SlowReading { source, time, value, name, unit };
            let mut bytes = Vec::new();
            reading.encode(&mut bytes).expect("a short record");
            let record = Record::parse(&bytes).expect("a record");
            let back = SlowReading::decode(&record).expect("a reading");
            prop_assert_eq!(back.value.to_bits(), value.to_bits());
            prop_assert_eq!(SlowReading { value: 0.0, ..back }, SlowReading { value: 0.0, ..reading });
        }
    }

    #[test]
    fn texts_that_reach_beyond_the_record_are_refused() {
        let head = [&7_u32.to_le_bytes()[..], &90_u16.to_le_bytes(), &[0; 18], b"short"].concat();
        let mut bytes = Vec::new();
        append_record(&mut bytes, RecordKind::SLOW_CONTROL, |out| out.extend_from_slice(&head)).expect("a record");
        let record = Record::parse(&bytes).expect("a record");
        assert_eq!(SlowReading::decode(&record), Err(RecordError::Content));
    }
}
