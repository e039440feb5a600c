//! Writing an event record without copying its payload.
//!
//! ```text
//! begin(buffer, head, missing, fragments) -> the record's head lies in the buffer
//! payload(piece) for each piece in order  -> only looked at, for the checksum
//! finish() -> tail                        -> the caller writes head, pieces, tail, gathered
//! ```

use super::checksum::Checksum;
use super::event::{
    EVENT_HEAD_BYTES, EventHead, FRAGMENT_ENTRY_BYTES, FragmentEntry, MISSING_ENTRY_BYTES, MissingSource,
};
use super::fields::Fill;
use super::footer::IndexEntry;
use super::record::{
    MAX_RECORD_BYTES, RECORD_HEADER_BYTES, RecordError, RecordHeader, RecordKind, RecordTail, record_bytes,
};

/// An event record on its way to the disk.
#[derive(Debug)]
pub struct EventRecordEncoder {
    checksum: Checksum,
    head_bytes: usize,
    payload_bytes: usize,
    fed: usize,
    index: IndexEntry,
}

impl EventRecordEncoder {
    /// Bytes that the head of a record with so many missing sources and fragments takes.
    pub const fn head_bytes(missing: usize, fragments: usize) -> usize {
        EVENT_HEAD_BYTES + missing * MISSING_ENTRY_BYTES + fragments * FRAGMENT_ENTRY_BYTES
    }

    /// Writes header and tables to the front of `buffer`. The payloads must follow in the order of `fragments`.
    ///
    /// # Errors
    /// [`RecordError::Room`] where `buffer` is shorter than [`EventRecordEncoder::head_bytes`] or the record would
    /// be longer than [`MAX_RECORD_BYTES`].
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
        Ok(Self { checksum, head_bytes, payload_bytes, fed: 0, index })
    }

    /// Bytes of the head, to be written first.
    pub const fn head_length(&self) -> usize {
        self.head_bytes
    }

    /// Bytes of the whole record.
    pub const fn record_length(&self) -> usize {
        self.index.length as usize
    }

    /// Looks at the next piece of payload.
    pub fn payload(&mut self, piece: &[u8]) {
        self.checksum.update(piece);
        self.fed += piece.len();
    }

    /// What follows the last piece.
    ///
    /// # Errors
    /// [`RecordError::Payload`] where the pieces were not as long as the fragment table says.
    pub fn finish(self) -> Result<RecordTail, RecordError> {
        if self.fed != self.payload_bytes {
            return Err(RecordError::Payload);
        }
        Ok(RecordTail::new(self.head_bytes + self.payload_bytes, self.checksum))
    }

    /// What the footer will say about the record when it begins `offset` bytes behind the segment's begin.
    pub const fn index_entry(&self, offset: u64) -> IndexEntry {
        IndexEntry { offset, ..self.index }
    }
}

/// Writes both tables and returns the bytes of all payloads; these begin `payload_offset` behind the record's begin.
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

/// Appends a whole event record with its payloads and returns its place in the index: for tools and tests.
///
/// The entries' lengths are taken from the payloads, and `offset` is where the record begins in the segment.
///
/// # Errors
/// [`RecordError::Room`] where the record would be too long; `out` is then as it was.
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
