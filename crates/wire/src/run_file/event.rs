//! The event record, read in place.
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
//! Offsets count from the record's begin.

use super::FragmentFlags;
use super::fields::{Fill, i64_at, u16_at, u32_at, u64_at};
use super::record::{Record, RecordError, RecordKind};
use ropewalk_terms::{Attempt, Cause, EventKey, Incarnation, SourceId};

/// Bytes of an event record up to its tables.
pub const EVENT_HEAD_BYTES: usize = 64;
/// Bytes of a missing source's entry.
pub const MISSING_ENTRY_BYTES: usize = 8;
/// Bytes of a fragment's entry.
pub const FRAGMENT_ENTRY_BYTES: usize = 48;

/// What is known about an event beside its bytes, as bits. The lower 16 stand in the footer too.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct EventFlags(pub u32);

impl EventFlags {
    /// A required source is missing.
    pub const INCOMPLETE: Self = Self(1 << 0);
    /// The content of a fragment is in doubt: its flags say why.
    pub const DOUBTFUL: Self = Self(1 << 1);
    /// No decision could be had, and the event was set aside.
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

/// What a fragment's time counts from. Domains from 16 on belong to the run's configuration.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ClockDomain(pub u16);

impl ClockDomain {
    /// The fragment has no time.
    pub const NONE: Self = Self(0);
    /// 1970-01-01T00:00:00Z.
    pub const UTC: Self = Self(1);
    /// An arbitrary start of the source's own clock.
    pub const SOURCE: Self = Self(2);
}

/// What an event record says about the event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EventHead {
    /// The event.
    pub key: EventKey,
    /// Which life of the builder unit wrote it.
    pub incarnation: Incarnation,
    /// How often the event had been assigned when it was written.
    pub attempt: Attempt,
    /// The trigger type as the trigger source gave it; 0 where it gives none.
    pub trigger_type: u16,
    /// What is known about it.
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
    /// The place of `source`, which is missing because of `cause`.
    pub const fn new(source: SourceId, cause: Cause) -> Self {
        Self { source, cause: cause as u8 }
    }

    /// Why it is missing, where this version knows the cause.
    pub const fn cause(self) -> Option<Cause> {
        Cause::from_u8(self.cause)
    }

    pub(super) fn encode(self, to: &mut Fill<'_>) {
        to.u32(self.source.0).u8(self.cause).bytes(&[0; 3]);
    }
}

/// What an event record says about a fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FragmentEntry {
    /// Whose it is.
    pub source: SourceId,
    /// What is known about it.
    pub flags: FragmentFlags,
    /// The source's own event counter, before unwrapping.
    pub raw_id: u64,
    /// The source's own time stamp in its own ticks, where the flags say that there is one.
    pub raw_time: u64,
    /// The time in nanoseconds, where there is a clock domain.
    pub time: i64,
    /// What `time` counts from.
    pub clock: ClockDomain,
    /// Bunch crossing, where the flags say that there is one.
    pub bunch_crossing: u16,
    /// Trigger or event type as the source gave it; 0 where it gives none.
    pub trigger_type: u16,
    /// Bytes of its payload.
    pub length: u32,
}

impl FragmentEntry {
    /// A fragment of which nothing is known but whose it is, its number and its length: no time, no bunch crossing, no flags.
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

    /// The entry at the front of `entry`, which has [`FRAGMENT_ENTRY_BYTES`] at least.
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
    /// What the table says.
    pub entry: FragmentEntry,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// An event record whose tables and payloads were found to lie inside it.
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
    /// [`RecordError::Kind`], or [`RecordError::Content`] where a table or a payload reaches beyond its place.
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

    /// What the record says about the event.
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
