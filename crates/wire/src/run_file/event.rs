//! The event record: read in place, written without a copy of its payload, and packed together with others.
//!
//! ```text
//! 16 u64 event key     24 u64 incarnation     32 u32 flags     36 u16 attempt     38 u16 trigger type
//! 40 u32 missing sources     44 u32 fragments     48 u32 payload offset     52 u32 payload bytes
//! 56 u16 bytes of a missing source's entry, 8     58 u16 bytes of a fragment's entry, 48     60 u32 0
//! 64 missing sources:  u32 source, u8 cause, 3 B 0
//!    fragments:  0 u32 source    4 u32 flags    8 u64 raw id    16 u64 raw time    24 i64 time, ns
//!               32 u16 clock domain    34 u16 bunch crossing    36 u16 trigger type    38 u16 0
//!               40 u32 offset    44 u32 length
//!    payloads, back to back
//! ```
//! Offsets count from the record's beginning.

use core::fmt;
use core::str::FromStr;
use std::io::Cursor;

use zstd::bulk::Compressor;

use super::segment::IndexEntry;
use super::{
    Checksum, Fill, FragmentFlags, MAX_RECORD_BYTES, RECORD_HEADER_BYTES, Record, RecordError, RecordHeader,
    RecordKind, RecordTail, append_record, i64_at, record_bytes, u16_at, u32_at, u64_at,
};
use ropewalk_terms::{Attempt, Cause, EventKey, Incarnation, SourceId};

/// Bytes of an event record up to its tables.
pub const EVENT_HEAD_BYTES: usize = 64;
/// Bytes of a missing source's entry.
pub const MISSING_ENTRY_BYTES: usize = 8;
/// Bytes of a fragment's entry.
pub const FRAGMENT_ENTRY_BYTES: usize = 48;

/// Properties of an event, as bits. The lower 16 are also in the footer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct EventFlags(pub u32);

impl EventFlags {
    /// A required source is missing.
    pub const INCOMPLETE: Self = Self(1 << 0);
    /// The content of a fragment is in doubt: its flags state the reason.
    pub const DOUBTFUL: Self = Self(1 << 1);
    /// No decision was possible, and the event was set aside.
    pub const QUARANTINED: Self = Self(1 << 2);

    /// Both sets of bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The zero point of a fragment's time. Domains from 16 on belong to the run's configuration.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClockDomain(pub u16);

impl ClockDomain {
    /// The fragment has no time.
    pub const NONE: Self = Self(0);
    /// 1970-01-01T00:00:00Z.
    pub const UTC: Self = Self(1);
    /// An arbitrary zero point of the source's own clock.
    pub const SOURCE: Self = Self(2);
}

/// The description of an event in its record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EventHead {
    /// The event.
    pub key: EventKey,
    /// The incarnation of the builder unit that wrote it.
    pub incarnation: Incarnation,
    /// Number of assignments of the event when it was written.
    pub attempt: Attempt,
    /// The trigger type from the trigger source; 0 if there is none.
    pub trigger_type: u16,
    /// Its properties.
    pub flags: EventFlags,
}

/// A source without a fragment in the event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MissingSource {
    /// The source.
    pub source: SourceId,
    /// The number of the cause; a later version may know causes that this one does not.
    pub cause: u8,
}

impl MissingSource {
    /// The entry of `source`, which is missing because of `cause`.
    pub const fn new(source: SourceId, cause: Cause) -> Self {
        Self { source, cause: cause as u8 }
    }

    /// The cause, if this version knows it.
    pub const fn cause(self) -> Option<Cause> {
        Cause::from_u8(self.cause)
    }

    pub(super) fn encode(self, to: &mut Fill<'_>) {
        to.u32(self.source.0).u8(self.cause).bytes(&[0; 3]);
    }
}

/// The description of a fragment in an event record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FragmentEntry {
    /// Its source.
    pub source: SourceId,
    /// Its properties.
    pub flags: FragmentFlags,
    /// The source's own event counter, before unwrapping.
    pub raw_id: u64,
    /// The source's own time stamp in its own ticks, if the flags say so.
    pub raw_time: u64,
    /// The time in nanoseconds, if there is a clock domain.
    pub time: i64,
    /// The zero point of `time`.
    pub clock: ClockDomain,
    /// Bunch crossing, if the flags say so.
    pub bunch_crossing: u16,
    /// Trigger or event type from the source; 0 if there is none.
    pub trigger_type: u16,
    /// Length of its payload in bytes.
    pub length: u32,
}

impl FragmentEntry {
    /// A fragment with only its source, its number and its length: no time, no bunch crossing, no flags.
    pub const fn bare(source: SourceId, raw_id: u64, length: u32) -> Self {
        Self {
            source,
            flags: FragmentFlags(0),
            raw_id,
            raw_time: 0,
            time: 0,
            clock: ClockDomain::NONE,
            bunch_crossing: 0,
            trigger_type: 0,
            length,
        }
    }

    pub(super) fn encode(&self, offset: u32, to: &mut Fill<'_>) {
        to.u32(self.source.0).u32(self.flags.0).u64(self.raw_id).u64(self.raw_time).i64(self.time);
        to.u16(self.clock.0).u16(self.bunch_crossing).u16(self.trigger_type).u16(0).u32(offset).u32(self.length);
    }

    /// Decodes the entry at the front of `entry`, which has at least [`FRAGMENT_ENTRY_BYTES`].
    fn decode(entry: &[u8]) -> Self {
        Self {
            source: SourceId(u32_at(entry, 0)),
            flags: FragmentFlags(u32_at(entry, 4)),
            raw_id: u64_at(entry, 8),
            raw_time: u64_at(entry, 16),
            time: i64_at(entry, 24),
            clock: ClockDomain(u16_at(entry, 32)),
            bunch_crossing: u16_at(entry, 34),
            trigger_type: u16_at(entry, 36),
            length: u32_at(entry, 44),
        }
    }
}

/// A fragment in an event record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FragmentView<'a> {
    /// Its table entry.
    pub entry: FragmentEntry,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// An event record whose tables and payloads were checked to lie inside it.
#[derive(Copy, Clone, Debug)]
pub struct EventView<'a> {
    head: EventHead,
    payload_bytes: u32,
    bytes: &'a [u8],
    missing: &'a [u8],
    missing_stride: usize,
    fragments: &'a [u8],
    fragment_stride: usize,
}

impl<'a> EventView<'a> {
    /// The event in a record.
    ///
    /// # Errors
    /// [`RecordError::Kind`], or [`RecordError::Content`] if a table or a payload extends beyond its place.
    pub fn parse(record: &Record<'a>) -> Result<Self, RecordError> {
        let bytes = record.content_of(RecordKind::EVENT, EVENT_HEAD_BYTES)?;
        let head = EventHead {
            key: EventKey::from_bits(u64_at(bytes, 16)),
            incarnation: Incarnation(u64_at(bytes, 24)),
            flags: EventFlags(u32_at(bytes, 32)),
            attempt: Attempt(u16_at(bytes, 36)),
            trigger_type: u16_at(bytes, 38),
        };
        let (offset, payload_bytes) = (u32_at(bytes, 48) as usize, u32_at(bytes, 52));
        let payload_end = offset.checked_add(payload_bytes as usize).ok_or(RecordError::Content)?;
        let tables = bytes.get(EVENT_HEAD_BYTES..offset).ok_or(RecordError::Content)?;
        let (missing_stride, fragment_stride) = (usize::from(u16_at(bytes, 56)), usize::from(u16_at(bytes, 58)));
        let strides_hold = missing_stride >= MISSING_ENTRY_BYTES && fragment_stride >= FRAGMENT_ENTRY_BYTES;
        if payload_end > bytes.len() || !strides_hold {
            return Err(RecordError::Content);
        }
        let (missing, tables) = split_table(tables, u32_at(bytes, 40), missing_stride)?;
        let (fragments, _) = split_table(tables, u32_at(bytes, 44), fragment_stride)?;
        let view = Self { head, payload_bytes, bytes, missing, missing_stride, fragments, fragment_stride };
        for entry in fragments.chunks_exact(fragment_stride) {
            let (start, length) = (u32_at(entry, 40) as usize, u32_at(entry, 44) as usize);
            if start < offset || start.checked_add(length).is_none_or(|end| end > payload_end) {
                return Err(RecordError::Content);
            }
        }
        Ok(view)
    }

    /// The description of the event in the record.
    pub const fn head(&self) -> EventHead {
        self.head
    }

    /// The event.
    pub const fn key(&self) -> EventKey {
        self.head.key
    }

    /// Bytes of all payloads.
    pub const fn payload_bytes(&self) -> u32 {
        self.payload_bytes
    }

    /// The sources without a fragment.
    pub fn missing(&self) -> impl ExactSizeIterator<Item = MissingSource> + Clone + use<'a> {
        self.missing
            .chunks_exact(self.missing_stride)
            .map(|entry| MissingSource { source: SourceId(u32_at(entry, 0)), cause: entry[4] })
    }

    /// The fragments, in the order of the record.
    pub fn fragments(&self) -> impl ExactSizeIterator<Item = FragmentView<'a>> + Clone + use<'a> {
        let bytes = self.bytes;
        self.fragments.chunks_exact(self.fragment_stride).map(move |entry| {
            let start = u32_at(entry, 40) as usize;
            let entry = FragmentEntry::decode(entry);
            FragmentView { entry, payload: &bytes[start..start + entry.length as usize] }
        })
    }
}

/// Cuts a table of `count` entries from the front.
fn split_table(tables: &[u8], count: u32, stride: usize) -> Result<(&[u8], &[u8]), RecordError> {
    let length = (count as usize).checked_mul(stride).ok_or(RecordError::Content)?;
    tables.split_at_checked(length).ok_or(RecordError::Content)
}

// Writing an event record without copying its payload.
//
// ```text
// begin(buffer, head, missing, fragments) -> the record's head lies in the buffer
// payload(piece) for each piece in order  -> only read, for the checksum (not read at all with begin_open)
// finish() -> tail                        -> the caller writes head, pieces, tail, gathered
// ```

/// An event record while it is written.
#[derive(Debug)]
pub struct EventRecordEncoder {
    /// `None` if another part of the program computes it.
    checksum: Option<Checksum>,
    head_bytes: usize,
    payload_bytes: usize,
    fed: usize,
    index: IndexEntry,
}

impl EventRecordEncoder {
    /// Bytes of the head of a record with these numbers of missing sources and fragments.
    pub const fn head_bytes(missing: usize, fragments: usize) -> usize {
        EVENT_HEAD_BYTES + missing * MISSING_ENTRY_BYTES + fragments * FRAGMENT_ENTRY_BYTES
    }

    /// Writes header and tables to the front of `buffer`. The payloads must follow in the order of `fragments`.
    ///
    /// # Errors
    /// [`RecordError::Room`] if `buffer` is shorter than [`EventRecordEncoder::head_bytes`] or the record would be
    /// longer than [`MAX_RECORD_BYTES`].
    pub fn begin(
        buffer: &mut [u8],
        head: &EventHead,
        missing: impl ExactSizeIterator<Item = MissingSource>,
        fragments: impl ExactSizeIterator<Item = FragmentEntry>,
    ) -> Result<Self, RecordError> {
        let (missing_count, fragment_count) = (missing.len(), fragments.len());
        let head_bytes = Self::head_bytes(missing_count, fragment_count);
        let buffer = buffer.get_mut(..head_bytes).ok_or(RecordError::Room)?;
        let (front, tables) = buffer.split_at_mut(EVENT_HEAD_BYTES);
        let payload_bytes = fill_tables(tables, head_bytes, missing, fragments)?;
        let record_header =
            RecordHeader { kind: RecordKind::EVENT, flags: 0, length: record_bytes(head_bytes + payload_bytes) as u32 };
        let index = IndexEntry {
            key: head.key,
            offset: 0,
            incarnation: head.incarnation,
            length: record_header.length,
            fragments: fragment_count as u32,
            missing: missing_count as u32,
            attempt: head.attempt,
            flags: head.flags.0 as u16,
        };
        Fill::new(front)
            .bytes(&record_header.encode())
            .u64(head.key.to_bits())
            .u64(head.incarnation.0)
            .u32(head.flags.0)
            .u16(head.attempt.0)
            .u16(head.trigger_type)
            .u32(index.missing)
            .u32(index.fragments)
            .u32(head_bytes as u32)
            .u32(payload_bytes as u32)
            .u16(MISSING_ENTRY_BYTES as u16)
            .u16(FRAGMENT_ENTRY_BYTES as u16)
            .u32(0);
        let mut checksum = Checksum::default();
        checksum.update(buffer);
        Ok(Self { checksum: Some(checksum), head_bytes, payload_bytes, fed: 0, index })
    }

    /// As [`EventRecordEncoder::begin`], but the checksum stays open, and no payload is read. A disk that copies the
    /// record's bytes anyway seals the tail ([`RecordTail::seal`]).
    ///
    /// # Errors
    /// As of [`EventRecordEncoder::begin`].
    pub fn begin_open(
        buffer: &mut [u8],
        head: &EventHead,
        missing: impl ExactSizeIterator<Item = MissingSource>,
        fragments: impl ExactSizeIterator<Item = FragmentEntry>,
    ) -> Result<Self, RecordError> {
        Ok(Self { checksum: None, ..Self::begin(buffer, head, missing, fragments)? })
    }

    /// Bytes of the head, to be written first.
    pub const fn head_length(&self) -> usize {
        self.head_bytes
    }

    /// Bytes of the whole record.
    pub const fn record_length(&self) -> usize {
        self.index.length as usize
    }

    /// Adds the next piece of payload to the checksum.
    pub fn payload(&mut self, piece: &[u8]) {
        if let Some(checksum) = &mut self.checksum {
            checksum.update(piece);
        }
        self.fed += piece.len();
    }

    /// Returns the bytes that follow the last piece.
    ///
    /// # Errors
    /// [`RecordError::Payload`] if the pieces are not as long as the fragment table states.
    pub fn finish(self) -> Result<RecordTail, RecordError> {
        if self.fed != self.payload_bytes {
            return Err(RecordError::Payload);
        }
        let content = self.head_bytes + self.payload_bytes;
        Ok(self.checksum.map_or(RecordTail::open(content), |checksum| RecordTail::new(content, checksum)))
    }

    /// The footer's entry of the record when it begins `offset` bytes behind the segment's beginning.
    pub const fn index_entry(&self, offset: u64) -> IndexEntry {
        IndexEntry { offset, ..self.index }
    }
}

/// Writes both tables and returns the bytes of all payloads, which begin `payload_offset` behind the record's
/// beginning.
fn fill_tables(
    tables: &mut [u8],
    payload_offset: usize,
    missing: impl ExactSizeIterator<Item = MissingSource>,
    fragments: impl ExactSizeIterator<Item = FragmentEntry>,
) -> Result<usize, RecordError> {
    let most = MAX_RECORD_BYTES - RECORD_HEADER_BYTES;
    let (missing_count, fragment_count) = (missing.len(), fragments.len());
    let mut to = Fill::new(tables);
    for source in missing.take(missing_count) {
        source.encode(&mut to);
    }
    let mut end = payload_offset;
    for fragment in fragments.take(fragment_count) {
        if end > most || fragment.length as usize > most - end {
            return Err(RecordError::Room);
        }
        fragment.encode(end as u32, &mut to);
        end += fragment.length as usize;
    }
    if end > most { Err(RecordError::Room) } else { Ok(end - payload_offset) }
}

/// Appends a whole event record with its payloads and returns its index entry: for tools and tests.
///
/// The entries' lengths are taken from the payloads, and `offset` is the record's offset in the segment.
///
/// # Errors
/// [`RecordError::Room`] if the record would be too long; `out` is then unchanged.
pub fn encode_event(
    out: &mut Vec<u8>,
    offset: u64,
    head: &EventHead,
    missing: &[MissingSource],
    fragments: &[(FragmentEntry, &[u8])],
) -> Result<IndexEntry, RecordError> {
    if fragments.iter().any(|(_, payload)| payload.len() > MAX_RECORD_BYTES) {
        return Err(RecordError::Room);
    }
    let entries = fragments.iter().map(|&(entry, payload)| FragmentEntry { length: payload.len() as u32, ..entry });
    let start = out.len();
    out.resize(start + EventRecordEncoder::head_bytes(missing.len(), fragments.len()), 0);
    let begun = EventRecordEncoder::begin(&mut out[start..], head, missing.iter().copied(), entries);
    let mut encoder = begun.inspect_err(|_| out.truncate(start))?;
    for (_, payload) in fragments {
        encoder.payload(payload);
        out.extend_from_slice(payload);
    }
    let index = encoder.index_entry(offset);
    out.extend_from_slice(encoder.finish()?.as_bytes());
    Ok(index)
}

// Packed segments: stretches of a segment, compressed, each in a separate record.
//
// ```text
// 16 u64 offset of the stretch's first byte in the segment     24 u32 bytes of the stretch     28 u32 packed bytes
// 32 u16 codec: 1 zstd, a frame    2 LZ4, a block               34 u16 0, u32 0                 40 packed bytes
// ```
// A packed segment consists of such records only. Unpacked in order, they form an ordinary segment; the offsets in its
// footer refer to the unpacked bytes. After a crash of the writer, the file can be unpacked up to the last whole
// stretch.

/// Bytes in front of the packed bytes in their record.
pub const PACKED_HEAD_BYTES: usize = 40;
/// Maximum bytes of a stretch: a reader needs this much memory to unpack one.
pub const MAX_STRETCH_BYTES: usize = 16 << 20;
/// Minimum bytes of a written stretch, if as many are appended at once; a stretch has fewer than twice as many. Shorter
/// ones stay closer to the core, but zstd packs them more slowly, because it uses other tables for 256 KiB (measured:
/// 0.36 and 0.40 GB/s).
pub const STRETCH_BYTES: usize = 1 << 20;

const ZSTD: u16 = 1;
const LZ4: u16 = 2;

/// How segments are packed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// By zstd at this level, 1 (fast) to 19 (small).
    Zstd(u8),
    /// By LZ4.
    Lz4,
}

/// The text is no name of a compression.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there are `none`, `lz4`, and `zstd:1` to `zstd:19`")]
pub struct NoCompression;

impl FromStr for Compression {
    type Err = NoCompression;

    fn from_str(text: &str) -> Result<Self, NoCompression> {
        match text {
            "none" => Ok(Self::None),
            "lz4" => Ok(Self::Lz4),
            _ => {
                let level = text.strip_prefix("zstd:").and_then(|level| level.parse().ok());
                level.filter(|level| (1..=19).contains(level)).map(Self::Zstd).ok_or(NoCompression)
            }
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("none"),
            Self::Zstd(level) => write!(out, "zstd:{level}"),
            Self::Lz4 => out.write_str("lz4"),
        }
    }
}

/// Packs the stretches of one segment, or of several with the same compression.
pub struct Packer {
    /// `None` for LZ4.
    zstd: Option<Compressor<'static>>,
}

impl Packer {
    /// Creates a packer; `None` without compression, or if the library has no memory for it.
    pub fn new(compression: Compression) -> Option<Self> {
        let zstd = match compression {
            Compression::None => return None,
            Compression::Lz4 => None,
            Compression::Zstd(level) => Some(Compressor::new(level.into()).ok()?),
        };
        Some(Self { zstd })
    }

    /// Packs these bytes, which begin at `offset` in the segment, and appends the records. All stretches have the same
    /// length, so that no short one is left over.
    ///
    /// # Errors
    /// [`RecordError::Room`] if the library lacks room, although it is given enough.
    pub fn pack(&mut self, mut offset: u64, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        let stretches = (bytes.len() / STRETCH_BYTES).max(1);
        for stretch in bytes.chunks(bytes.len().div_ceil(stretches).max(1)) {
            self.pack_stretch(offset, stretch, out)?;
            offset += stretch.len() as u64;
        }
        Ok(())
    }

    /// Appends the record of a stretch that begins at `offset`.
    fn pack_stretch(&mut self, offset: u64, stretch: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        let (start, mut compressed) = (out.len(), Ok(()));
        append_record(out, RecordKind::PACKED, |out| {
            let head = out.len();
            out.extend_from_slice(&[0; PACKED_HEAD_BYTES - RECORD_HEADER_BYTES]);
            let packed = out.len();
            compressed = self.compress(stretch, out);
            let codec = if self.zstd.is_some() { ZSTD } else { LZ4 };
            let packed_length = (out.len() - packed) as u32;
            Fill::new(&mut out[head..packed]).u64(offset).u32(stretch.len() as u32).u32(packed_length).u16(codec);
        })?;
        compressed.inspect_err(|_| out.truncate(start))
    }

    /// Appends a stretch, compressed directly into its final place to save a copy.
    fn compress(&mut self, stretch: &[u8], out: &mut Vec<u8>) -> Result<(), RecordError> {
        let begin = out.len();
        match &mut self.zstd {
            Some(zstd) => {
                out.reserve(zstd::zstd_safe::compress_bound(stretch.len()));
                let mut end = Cursor::new(out);
                end.set_position(begin as u64);
                zstd.compress_to_buffer(stretch, &mut end).map_err(|_| RecordError::Room)?;
            }
            None => {
                out.resize(begin + lz4_flex::block::get_maximum_output_size(stretch.len()), 0);
                let length = lz4_flex::block::compress_into(stretch, &mut out[begin..]);
                out.truncate(begin + length.map_err(|_| RecordError::Room)?);
            }
        }
        Ok(())
    }
}

/// A packed stretch.
#[derive(Copy, Clone, Debug)]
pub struct PackedStretch<'a> {
    /// Offset of its first byte in the segment.
    pub offset: u64,
    /// Number of its unpacked bytes, at most [`MAX_STRETCH_BYTES`].
    pub length: usize,
    codec: u16,
    packed: &'a [u8],
}

impl<'a> PackedStretch<'a> {
    /// The offset of a packed stretch in the segment and its number of bytes, from the front of its record. Only the
    /// checksum of the record's header was checked.
    pub fn place(front: &[u8; PACKED_HEAD_BYTES]) -> (u64, u64) {
        (u64_at(front, 16), u32_at(front, 24).into())
    }

    /// The stretch in a record.
    ///
    /// # Errors
    /// [`RecordError::Kind`], [`RecordError::Content`].
    pub fn parse(record: &Record<'a>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::PACKED, PACKED_HEAD_BYTES)?;
        let (offset, length, packed) =
            (u64_at(content, 16), u32_at(content, 24) as usize, u32_at(content, 28) as usize);
        let packed = content[PACKED_HEAD_BYTES..].get(..packed).ok_or(RecordError::Content)?;
        if length > MAX_STRETCH_BYTES {
            return Err(RecordError::Content);
        }
        Ok(Self { offset, length, codec: u16_at(content, 32), packed })
    }

    /// Replaces the contents of `out` by the unpacked bytes.
    ///
    /// # Errors
    /// [`RecordError::Content`] if they cannot be unpacked, or their number is wrong.
    pub fn unpack(&self, out: &mut Vec<u8>) -> Result<(), RecordError> {
        out.resize(self.length, 0);
        let length = match self.codec {
            ZSTD => {
                let unpacked = zstd::bulk::Decompressor::new()
                    .and_then(|mut zstd| zstd.decompress_to_buffer(self.packed, &mut out[..]));
                unpacked.map_err(|_| RecordError::Content)?
            }
            LZ4 => lz4_flex::block::decompress_into(self.packed, out).map_err(|_| RecordError::Content)?,
            _ => return Err(RecordError::Content),
        };
        if length == self.length { Ok(()) } else { Err(RecordError::Content) }
    }
}
