//! The run file `.rwk`: what a builder unit leaves on disk.
//!
//! ```text
//! segment   = segment header, begin of run, event, event, ..., end of run, footer      (each one record)
//! record    = header 16 B | content | zeros to the alignment | CRC-32C of everything before it, 4 B
//! event     = key, attempt, ... | missing sources | fragment table | payloads back to back
//! ```
//! A run is many segments; each begins with its own header and ends with a footer, the index of its events.
//! All numbers are little-endian, every record's length is a multiple of 8 B, and the header of a record has a
//! checksum of its own, so that a reader can step over a record whose content is damaged.
//!
//! - A segment is written as `run000001-bu0-000001.rwk.open` and renamed without `.open` when its footer is there.
//!   Where a writer has several streams, the stream's name stands in it too: `run000001-bu0-physics-000001.rwk`.
//! - What has no footer (the writer was killed) is read by scanning: [`scan`] looks at a window of bytes and says
//!   whether a record stands there, how many bytes it lacks, or how many bytes cannot be read.
//! - Compatible additions (new kinds, longer contents and table entries) raise the minor version: readers step over
//!   kinds that they do not know and ignore bytes behind the fields that they know. The rest raises the major one.
//!
//! `docs/run-file.md` shows one segment byte by byte. Nothing here reads or writes files.

mod begin_end;
mod checksum;
mod encode;
mod event;
mod fields;
mod footer;
mod name;
mod packed;
mod record;
mod scan;
mod segment;
mod slow_control;
mod stream_name;
#[cfg(test)]
mod tests;

pub use begin_end::{BeginOfRun, EndOfRun};
pub use checksum::Checksum;
pub use encode::{EventRecordEncoder, encode_event};
pub use event::{
    ClockDomain, EVENT_HEAD_BYTES, EventFlags, EventHead, EventView, FRAGMENT_ENTRY_BYTES, FragmentEntry, FragmentView,
    MISSING_ENTRY_BYTES, MissingSource,
};
pub use footer::{END_MARK_BYTES, FooterView, INDEX_ENTRY_BYTES, IndexEntry, SegmentIndex, footer_bytes};
pub use name::{CHECKSUM_EXTENSION, OPEN_EXTENSION, SegmentName, run_directory_name};
pub use packed::{
    Compression, MAX_STRETCH_BYTES, NoCompression, PACKED_HEAD_BYTES, PackedStretch, Packer, STRETCH_BYTES,
};
pub use record::{
    MAX_RECORD_BYTES, RECORD_HEADER_BYTES, RECORD_MAGIC, Record, RecordError, RecordHeader, RecordKind, RecordTail,
};
pub use scan::{Damage, Item, Items, Step, scan};
pub use segment::{SegmentHeader, SourceEntry, SourceFormat};
pub use slow_control::SlowReading;
pub use stream_name::{NotAStreamName, StreamName};

/// Readers refuse another major version.
pub const MAJOR_VERSION: u16 = 1;
/// Grows with compatible additions.
pub const MINOR_VERSION: u16 = 1;

pub use crate::message::FragmentFlags;
