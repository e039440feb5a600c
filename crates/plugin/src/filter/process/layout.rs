//! Where everything lies that a filter's process and the one who has the events share.
//!
//! ```text
//!  addresses: 0                               first pool              next pool ...        each begins at a multiple of 2 MiB
//!             | events                        | of the builder        |
//!               |
//!               0          64               4096              4096 + RING             + COPIES
//!  events:      | WRITTEN  | TAKEN   ...    | records, a ring | copies of what lies in no pool, a ring |
//!
//!               0                            4072         4096                   + 64 * MOST_EVENTS     + RESULTS
//!  decisions:   | SLEEPS ...                 | last words | entries, one an event | results and fills, a ring |
//! ```
//! Positions in rings are counted from 0 on for ever; where one lies is its remainder. Numbers are little-endian.
//!
//! A record begins with its length (u32, bytes, a multiple of 8) and its [`Kind`] (u32); none crosses the end of the ring. An
//! event's goes on with [`RECORD_HEAD`], then each fragment with [`FRAGMENT_HEAD`] and its pieces ([`PIECE`]).
//!
//! The entry of the event with the sequence n (from 1 on) is entry (n - 1) modulo [`MOST_EVENTS`]. Its sequence is written last.

#![allow(unsafe_code)]

use crate::confinement::WORDS_BYTES;
use crate::filter::MOST_RESULT;
use crate::filter::interface::RawFill;
use crate::process::region::Plain;
use ropewalk_flow::filter::MOST_FILLS;

/// The version of this layout and of the messages; the first size of the greeting.
pub const VERSION: u64 = 1;

/// In the events: the position behind the last record.
pub(super) const WRITTEN: usize = 0;
/// In the events: how many decisions were taken.
pub(super) const TAKEN: usize = 64;
/// In the events: where the records begin.
pub(super) const RECORDS: usize = 4096;
/// Bytes of the ring of records: enough for what a cache keeps.
pub(super) const RING: usize = 1 << 20;
/// In the events: where the copies begin.
pub(super) const COPIES: usize = RECORDS + RING;

/// In the decisions: not 0 while the process sleeps until it hears something.
pub(super) const SLEEPS: usize = 0;
/// In the decisions: why the process ended.
pub(super) const LAST_WORDS: usize = 4096 - WORDS_BYTES;
/// In the decisions: where the entries begin.
pub(super) const ENTRIES: usize = 4096;
/// Bytes of an entry: a line of the cache.
pub(super) const ENTRY: usize = 64;
/// Events that a process has at most: those that are offered and whose decisions were not taken.
pub const MOST_EVENTS: usize = 1024;
/// In the decisions: where the results begin.
pub(super) const RESULTS: usize = ENTRIES + MOST_EVENTS * ENTRY;
/// Bytes of the ring of results.
pub(super) const RESULTS_RING: usize = 1 << 20;

/// Bytes of the decisions.
pub(super) const DECISIONS_BYTES: usize = RESULTS + RESULTS_RING;

/// What the greeting says of all this, in its order: the version, bytes of the rings of records, copies and results, the most
/// events, bytes of all addresses, and how many memories follow, [`MEMORIES`] in a message at most.
pub(super) const SIZES: usize = 7;
/// Memories whose descriptors one message carries.
pub(super) const MEMORIES: usize = crate::process::worker::MOST_DESCRIPTORS;
/// Bytes that a message says of each memory: its address u64, and its bytes u64. Before them stand 8 bytes, the first an `M`.
pub(super) const MEMORY: usize = 16;

/// What a record is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Kind {
    /// Nothing: the next record is at the beginning of the ring.
    Wrap = 0,
    /// An event.
    Event = 1,
    /// The events of the run whose number follows (u32) come.
    BeginRun = 2,
    /// No more events of it come.
    EndRun = 3,
}

/// Bytes of a record's length and kind.
pub(super) const HEAD: usize = 8;
/// Bytes of an event's record before its fragments: length and kind, sequence u64, key u64, run u32, number of fragments
/// u32, flags u32, attempt u16, trigger type u16.
pub(super) const RECORD_HEAD: usize = 40;
/// Bytes of a fragment before its pieces: source u32, length u32, flags u32, number of pieces u32, raw id u64, time u64, bunch
/// crossing u16, trigger type u16, 4 bytes of nothing.
pub(super) const FRAGMENT_HEAD: usize = 40;
/// Bytes of a piece: its address u64, from the beginning of the events on, and its length u64.
pub(super) const PIECE: usize = 16;

/// Set in an entry's flags where the event is accepted.
pub(super) const ACCEPT: u32 = 1 << 0;
/// Set in an entry's flags where the filter cannot decide.
pub(super) const UNDECIDED: u32 = 1 << 1;

/// An entry of the decisions, behind its sequence (u64).
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Entry {
    /// The event's key.
    pub(super) key: u64,
    /// The triggers that it passed.
    pub(super) bits: [u64; 2],
    /// The event's attempt.
    pub(super) attempt: u32,
    /// [`ACCEPT`], [`UNDECIDED`].
    pub(super) flags: u32,
    /// Where in the results its own begins, a multiple of 8.
    pub(super) result_at: u64,
    /// Bytes of it.
    pub(super) result_length: u32,
    /// Values that it filled into histograms: they are behind its own, from a multiple of 8 on, [`FILL`] bytes each.
    pub(super) fills: u16,
    /// Those for which there was no room.
    pub(super) dropped_fills: u16,
}

// SAFETY: a struct of integers, without gaps.
unsafe impl Plain for Entry {}

/// Bytes of a fill: histogram u32, 4 bytes of nothing, value f64.
pub(super) const FILL: usize = size_of::<RawFill>();
/// Bytes that all that is said of one event has at most.
pub(super) const MOST_SAID: usize = MOST_RESULT + MOST_FILLS * FILL;

/// In the decisions: where the sequence of an event's entry stands; the [`Entry`] is behind it.
pub(super) const fn sequence_of(sequence: u64) -> usize {
    ENTRIES + (sequence.wrapping_sub(1) % MOST_EVENTS as u64) as usize * ENTRY
}

const _: () = assert!(size_of::<Entry>() + size_of::<u64>() <= ENTRY && size_of::<Entry>() == 48);
const _: () = assert!(RESULTS_RING >= 4 * MOST_SAID && FILL == 16, "one result never waits for the one before it");
