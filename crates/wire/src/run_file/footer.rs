//! The footer: where each event of the segment lies. It can be made again by scanning.
//!
//! ```text
//! 16 u32 events     20 u32 bytes of an entry, 40     24 i64 closed, UTC ns, 0: unknown     32 u32 flags
//! 36 u32 0          40 u64 offset of this record
//! 48 for each event record, in the order of the file:
//!     0 u64 event key    8 u64 offset    16 u64 incarnation    24 u32 length    28 u32 fragments
//!    32 u32 missing sources    36 u16 attempt    38 u16 flags
//!    u32 length of this record    "RWKF"    u32 0    u32 CRC-32C: the last 16 bytes of the file lead to the footer
//! ```

use super::event::{EventFlags, EventView};
use super::fields::{Fill, array_at, i64_at, u16_at, u32_at, u64_at};
use super::record::{Record, RecordError, RecordKind, append_record};
use ropewalk_terms::{Attempt, EventKey, Incarnation, Utc};

/// Bytes of an event's entry.
pub const INDEX_ENTRY_BYTES: usize = 40;
/// Bytes at the end of a closed segment that lead to its footer.
pub const END_MARK_BYTES: usize = 16;

const HEAD_BYTES: usize = 48;
const END_MARK: [u8; 4] = *b"RWKF";
const REBUILT: u32 = 1 << 0;

/// Where an event record lies, and what must be known to choose among copies.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// The event.
    pub key: EventKey,
    /// Where its record begins, in bytes from the segment's begin.
    pub offset: u64,
    /// Which life of the builder unit wrote it.
    pub incarnation: Incarnation,
    /// Bytes of the record.
    pub length: u32,
    /// Fragments in it.
    pub fragments: u32,
    /// Sources missing in it.
    pub missing: u32,
    /// How often the event had been assigned.
    pub attempt: Attempt,
    /// The lower half of [`EventFlags`].
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

    /// What is known about the event.
    pub const fn event_flags(&self) -> EventFlags {
        EventFlags(self.flags as u32)
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

    /// The entry at the front of `entry`, which has [`INDEX_ENTRY_BYTES`] at least.
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

/// Bytes of the footer of a segment with so many events.
pub const fn footer_bytes(events: usize) -> usize {
    HEAD_BYTES + events * INDEX_ENTRY_BYTES + END_MARK_BYTES
}

/// The index of a segment as it grows.
///
/// Its room is fixed when it is made, so that a writer allocates nothing later: a segment whose index
/// is full is closed.
#[derive(Clone, Debug)]
pub struct SegmentIndex {
    entries: Vec<IndexEntry>,
}

impl SegmentIndex {
    /// An empty index with room for so many events.
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

    /// What was added, in that order.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Forgets what was added, and keeps the room.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// Appends the footer, which will begin `offset` bytes behind the segment's begin. It needs
    /// [`footer_bytes`] in `out`. `rebuilt` says that it was made by scanning.
    ///
    /// # Errors
    /// [`RecordError::Room`] where the footer would be too long.
    pub fn encode(&self, out: &mut Vec<u8>, offset: u64, closed: Utc, rebuilt: bool) -> Result<(), RecordError> {
        let mut head = [0; HEAD_BYTES - 16];
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
    /// How long the footer is that the last bytes of a file lead to, if they lead to one.
    pub fn length_from_end(end: &[u8; END_MARK_BYTES]) -> Option<u32> {
        (array_at(end, 4) == END_MARK).then(|| u32_at(end, 0))
    }

    /// The footer in a record.
    ///
    /// # Errors
    /// [`RecordError::Kind`], or [`RecordError::Content`] where the entries do not fit into the record.
    pub fn parse(record: &Record<'a>) -> Result<Self, RecordError> {
        let content = record.content_of(RecordKind::FOOTER, HEAD_BYTES)?;
        let (count, stride) = (u32_at(content, 16) as usize, u32_at(content, 20) as usize);
        let length = count.checked_mul(stride).ok_or(RecordError::Content)?;
        match content[HEAD_BYTES..].get(..length) {
            Some(entries) if stride >= INDEX_ENTRY_BYTES => Ok(Self { content, entries, stride }),
            _ => Err(RecordError::Content),
        }
    }

    /// When the segment was closed; 0 where it is unknown.
    pub fn closed(&self) -> Utc {
        Utc(i64_at(self.content, 24))
    }

    /// Whether it was made by scanning.
    pub fn is_rebuilt(&self) -> bool {
        u32_at(self.content, 32) & REBUILT != 0
    }

    /// Where it says that it begins itself, in bytes from the segment's begin.
    pub fn offset(&self) -> u64 {
        u64_at(self.content, 40)
    }

    /// The event records, in the order of the file.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = IndexEntry> + Clone + use<'a> {
        self.entries.chunks_exact(self.stride).map(IndexEntry::decode)
    }
}
