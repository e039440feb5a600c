//! The memory that a filter's process shares with the builder unit: its layout, the writer of the events, and the
//! addresses at which the process sees it.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::super::interface::{DOUBTFUL, INCOMPLETE, RawBytes, RawEvent, RawFill, RawFragment};
use super::super::{FilterEvent, MOST_RESULT};
use crate::confinement::WORDS_BYTES;
use crate::process::region::{HUGE_PAGE, Plain, Region, Writable};
use ropewalk_flow::filter::MOST_FILLS;
use ropewalk_flow::messages::{Fragment, FragmentMeta};
use ropewalk_memory::{SharedMemory, shared_memories};
use ropewalk_terms::RunNumber;

// The layout of the shared memory.
//
// ```text
//  addresses: 0                               first pool              next pool ...        each begins at a multiple of 2 MiB
//             | events                        | of the builder        |
//               |
//               0          64               4096              4096 + RING             + COPIES
//  events:      | WRITTEN  | TAKEN   ...    | records, a ring | copies of what lies in no pool, a ring |
//
//               0                            4072         4096                   + 64 * MOST_EVENTS     + RESULTS
//  decisions:   | SLEEPS ...                 | last words | entries, one an event | results and fills, a ring |
// ```
// Positions in rings count bytes from 0 and never wrap; the offset is the remainder. Numbers are little-endian.
//
// A record begins with its length (u32, bytes, a multiple of 8) and its [`Kind`] (u32). No record crosses the end of
// the ring. An event's record continues with its sequence number and the structs of `bindings/c/ropewalk_event.h`: the
// event, its fragments, and all pieces. Their pointers are addresses in the process, which passes them to the filter
// unchanged.
//
// The entry of the event with the sequence number n (from 1 on) is entry (n - 1) modulo [`MOST_EVENTS`]. Its sequence
// number is written last.

/// The version of this layout and of the messages; the first size of the greeting.
pub const VERSION: u64 = 2;

/// Events: position after the last record.
pub(super) const WRITTEN: usize = 0;
/// Events: number of decisions that were taken.
pub(super) const TAKEN: usize = 64;
/// Events: offset of the records.
pub(super) const RECORDS: usize = 4096;
/// Size of the ring of records in bytes; it fits into a cache.
pub(super) const RING: usize = 1 << 20;
/// Events: offset of the copies.
pub(super) const COPIES: usize = RECORDS + RING;

/// Decisions: not 0 while the process sleeps until a message comes.
pub(super) const SLEEPS: usize = 0;
/// Decisions: offset of the report on why the process ended.
pub(super) const LAST_WORDS: usize = 4096 - WORDS_BYTES;
/// Decisions: offset of the entries.
pub(super) const ENTRIES: usize = 4096;
/// Size of an entry in bytes: a cache line.
pub(super) const ENTRY: usize = 64;
/// Maximum number of events that a process holds, including decided ones that were not taken.
pub const MOST_EVENTS: usize = 1024;
/// Decisions: offset of the results.
pub(super) const RESULTS: usize = ENTRIES + MOST_EVENTS * ENTRY;
/// Size of the ring of results in bytes.
pub(super) const RESULTS_RING: usize = 1 << 20;

/// Size of the decisions in bytes.
pub(super) const DECISIONS_BYTES: usize = RESULTS + RESULTS_RING;

/// Number of sizes in the greeting: the version, the sizes of the rings of records, copies and results, the maximum
/// number of events, the size of all addresses, and the number of memories that follow, at most [`MEMORIES`] in a
/// message.
pub(super) const SIZES: usize = 7;
/// Number of memories whose descriptors fit into one message.
pub(super) const MEMORIES: usize = crate::process::worker::MOST_DESCRIPTORS;
/// Bytes that a message has for each memory: address u64, size u64. 8 bytes precede them, of which the first is `M`.
pub(super) const MEMORY: usize = 16;

/// Kind of a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum Kind {
    /// The next record is at the beginning of the ring.
    Wrap = 0,
    /// An event.
    Event = 1,
    /// Start of the run whose number (u32) follows.
    BeginRun = 2,
    /// End of the run.
    EndRun = 3,
}

/// Size of a record's length and kind, in bytes.
pub(super) const HEAD: usize = 8;
/// Offset of an event's sequence number (u64) in its record.
pub(super) const SEQUENCE: usize = HEAD;
/// Offset of the event in its record; its fragments follow, then their pieces.
pub(super) const EVENT: usize = SEQUENCE + size_of::<u64>();
const FRAGMENTS: usize = EVENT + size_of::<RawEvent>();

// The sizes that `describe` and `describe_fragment` write.
const _: () = assert!(size_of::<RawEvent>() == 56 && size_of::<RawFragment>() == 48 && size_of::<RawBytes>() == 16);

/// Message of a process before it is ready, followed by 7 zero bytes: the address (u64) at which it sees the events.
/// Without this message, pointers are relative to the events.
pub(super) const ADDRESS: u8 = b'A';

/// Flag of an entry: the event is accepted.
pub(super) const ACCEPT: u32 = 1 << 0;
/// Flag of an entry: the filter cannot decide.
pub(super) const UNDECIDED: u32 = 1 << 1;

/// An entry of the decisions, after its sequence number (u64).
#[repr(C)]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Entry {
    /// Key of the event.
    pub(super) key: u64,
    /// The triggers that it passed.
    pub(super) bits: [u64; 2],
    /// Attempt of the event.
    pub(super) attempt: u32,
    /// [`ACCEPT`], [`UNDECIDED`].
    pub(super) flags: u32,
    /// Offset of the result, a multiple of 8.
    pub(super) result_at: u64,
    /// Size of the result in bytes.
    pub(super) result_length: u32,
    /// Number of values for histograms. They follow the result at the next multiple of 8, [`FILL`] bytes each.
    pub(super) fills: u16,
    /// Number of fills for which there was no room.
    pub(super) dropped_fills: u16,
}

// SAFETY: a struct of integers, without gaps.
unsafe impl Plain for Entry {}

/// Size of a fill: histogram u32, 4 bytes of padding, value f64.
pub(super) const FILL: usize = size_of::<RawFill>();
/// Maximum size of the answer for one event, in bytes.
pub(super) const MOST_SAID: usize = MOST_RESULT + MOST_FILLS * FILL;

/// Decisions: offset of the sequence number of an event's entry; the [`Entry`] follows it.
pub(super) const fn sequence_of(sequence: u64) -> usize {
    ENTRIES + (sequence.wrapping_sub(1) % MOST_EVENTS as u64) as usize * ENTRY
}

const _: () = assert!(size_of::<Entry>() + size_of::<u64>() <= ENTRY && size_of::<Entry>() == 48);
const _: () = assert!(RESULTS_RING >= 4 * MOST_SAID && FILL == 16, "one result never waits for the one before it");

/// Positions up to which the rings are written, or free again.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Marks {
    pub(super) records: u64,
    pub(super) copies: u64,
}

/// The rings of a process.
#[derive(Debug)]
pub(super) struct Ring {
    region: Region,
    copies_bytes: usize,
    written: Marks,
    free: Marks,
    copied: u64,
}

impl Ring {
    /// Creates the memory; returns its descriptor too.
    pub(super) fn new(copies_bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let (region, file) = Region::new("events", COPIES + copies_bytes, Writable::ByMakerAlone)?;
        let (written, free) = (Marks::default(), Marks::default());
        Ok((Self { region, copies_bytes, written, free, copied: 0 }, file))
    }

    /// Describes an event for a process that sees the events at address `base`; returns the new write positions of the
    /// rings. `None`, without any write, if there is no room now.
    pub(super) fn event(
        &mut self,
        (space, base): (&mut Space, u64),
        sequence: u64,
        run: RunNumber,
        event: &impl FilterEvent,
    ) -> Option<Marks> {
        self.record(|room, copies| describe(room, copies, (&mut *space, base), sequence, run, event))?;
        Some(self.written)
    }

    /// Announces the start or the end of a run. False if there is no room now.
    pub(super) fn control(&mut self, kind: Kind, run: RunNumber) -> bool {
        let written = self.record(|(room, _), _| {
            let room = room.get_mut(..HEAD + 8)?;
            head(room, HEAD + 8, kind);
            room[HEAD..HEAD + 4].copy_from_slice(&run.0.to_le_bytes());
            room[HEAD + 4..].fill(0);
            Some(HEAD + 8)
        });
        written.is_some()
    }

    /// Calls `write` with the free room, whose offset in the events is passed too; it returns the length of the record.
    /// Without enough room, `write` is called again for the beginning of the ring. A failed attempt is overwritten
    /// later.
    fn record(&mut self, mut write: impl FnMut((&mut [u8], usize), &mut Copies<'_>) -> Option<usize>) -> Option<()> {
        let (records, copies) = self.region.values::<u8>(RECORDS, RING + self.copies_bytes).split_at_mut(RING);
        let copies_free = copies.len() - (self.written.copies - self.free.copies) as usize;
        let begin = self.written.copies;
        let mut copies = Copies { ring: copies, at: begin, end: begin + copies_free as u64, copied: 0 };
        let free = RING - (self.written.records - self.free.records) as usize;
        let at = (self.written.records % RING as u64) as usize;
        let to_end = RING - at;
        let mut length = write((&mut records[at..at + to_end.min(free)], RECORDS + at), &mut copies);
        if length.is_none() && free > to_end {
            (copies.at, copies.copied) = (begin, 0);
            length = write((&mut records[..free - to_end], RECORDS), &mut copies).map(|length| to_end + length);
            if length.is_some() {
                head(&mut records[at..], to_end, Kind::Wrap);
            }
        }
        self.written = Marks { records: self.written.records + length? as u64, copies: copies.at };
        self.copied += copies.copied;
        Some(())
    }

    /// The memory before these positions was read.
    pub(super) const fn release(&mut self, marks: Marks) {
        self.free = marks;
    }

    /// Whether the process has nothing to read: a record without room will then never find any.
    pub(super) fn is_empty(&self) -> bool {
        self.written == self.free
    }

    /// Publishes everything that was written, and the number of decisions that were taken.
    pub(super) fn publish(&self, taken: u64) {
        self.region.number(TAKEN).store(taken, Ordering::Release);
        self.region.number(WRITTEN).store(self.written.records, Ordering::Release);
    }

    /// Number of copied bytes.
    pub(super) const fn copied(&self) -> u64 {
        self.copied
    }
}

/// Room for bytes outside shared memory.
struct Copies<'a> {
    ring: &'a mut [u8],
    at: u64,
    end: u64,
    copied: u64,
}

impl Copies<'_> {
    /// Copies bytes to one contiguous place; returns their address. `None` if there is no room.
    fn add(&mut self, bytes: &[u8]) -> Option<u64> {
        let size = self.ring.len() as u64;
        let mut place = self.at % size;
        if size - place < bytes.len() as u64 {
            self.at += size - place;
            place = 0;
        }
        let end = self.at + bytes.len() as u64;
        if end > self.end {
            return None;
        }
        self.ring.get_mut(place as usize..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.copied += bytes.len() as u64;
        self.at = end;
        Some(COPIES as u64 + place)
    }
}

/// Writes the record of an event at offset `place` of the events; returns its length. `None` if there is no room.
fn describe(
    (room, place): (&mut [u8], usize),
    copies: &mut Copies<'_>,
    (space, base): (&mut Space, u64),
    sequence: u64,
    run: RunNumber,
    event: &impl FilterEvent,
) -> Option<usize> {
    let (count, mut flags) = (event.fragments().count(), if event.is_complete() { 0 } else { INCOMPLETE });
    let whole = room.len();
    let (begin, rest) = room.split_first_chunk_mut::<FRAGMENTS>()?;
    let (fragments, rest) = rest.split_at_mut_checked(count * size_of::<RawFragment>())?;
    let address = base + (place + FRAGMENTS) as u64;
    let mut pieces = Pieces { room: rest, base, address: address + fragments.len() as u64 };
    for (fragment, described) in event.fragments().zip(fragments.as_chunks_mut().0) {
        describe_fragment(described, &mut pieces, copies, space, fragment)?;
        flags |= if fragment.meta.flags.has_error() { DOUBTFUL } else { 0 };
    }
    let (length, key) = (whole - pieces.room.len(), event.key());
    head(begin, length, Kind::Event);
    begin[SEQUENCE..SEQUENCE + 8].copy_from_slice(&sequence.to_le_bytes());
    let described = &mut begin[EVENT..];
    described[..4].copy_from_slice(&(size_of::<RawEvent>() as u32).to_le_bytes());
    described[4..8].copy_from_slice(&run.0.to_le_bytes());
    described[8..16].copy_from_slice(&key.to_bits().to_le_bytes());
    described[16..24].copy_from_slice(&key.number().to_le_bytes());
    described[24..28].copy_from_slice(&u32::from(key.resync()).to_le_bytes());
    described[28..32].copy_from_slice(&u32::from(event.attempt().0).to_le_bytes());
    described[32..36].copy_from_slice(&flags.to_le_bytes());
    described[36..40].copy_from_slice(&u32::from(event.trigger_type()).to_le_bytes());
    described[40..48].copy_from_slice(&address.to_le_bytes());
    described[48..].copy_from_slice(&(count as u64).to_le_bytes());
    Some(length)
}

/// Room for the pieces of an event, and its address in the process, which sees the events at `base`.
struct Pieces<'a> {
    room: &'a mut [u8],
    base: u64,
    address: u64,
}

impl Pieces<'_> {
    /// `None` if there is no room.
    fn add(&mut self, place: u64, length: usize) -> Option<()> {
        let (described, rest) = std::mem::take(&mut self.room).split_first_chunk_mut::<{ size_of::<RawBytes>() }>()?;
        described[..8].copy_from_slice(&(self.base + place).to_le_bytes());
        described[8..].copy_from_slice(&(length as u64).to_le_bytes());
        self.room = rest;
        self.address += described.len() as u64;
        Some(())
    }
}

fn describe_fragment(
    described: &mut [u8; size_of::<RawFragment>()],
    pieces: &mut Pieces<'_>,
    copies: &mut Copies<'_>,
    space: &mut Space,
    fragment: &Fragment,
) -> Option<()> {
    let (first, mut count) = (pieces.address, 0_u64);
    for piece in fragment.payload.pieces() {
        let place = match space.find(piece) {
            Some(place) => place,
            None => copies.add(piece)?,
        };
        pieces.add(place, piece.len())?;
        count += 1;
    }
    let FragmentMeta { source, length, flags, bunch_crossing, trigger_type, raw_id, time } = fragment.meta;
    described[..4].copy_from_slice(&source.0.to_le_bytes());
    described[4..8].copy_from_slice(&length.to_le_bytes());
    described[8..12].copy_from_slice(&flags.0.to_le_bytes());
    described[12..14].copy_from_slice(&bunch_crossing.to_le_bytes());
    described[14..16].copy_from_slice(&trigger_type.to_le_bytes());
    described[16..24].copy_from_slice(&raw_id.to_le_bytes());
    described[24..32].copy_from_slice(&time.to_le_bytes());
    described[32..40].copy_from_slice(&first.to_le_bytes());
    described[40..].copy_from_slice(&count.to_le_bytes());
    Some(())
}

/// Writes the begin of a record.
fn head(record: &mut [u8], length: usize, kind: Kind) {
    record[..4].copy_from_slice(&(length as u32).to_le_bytes());
    record[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
}

/// A memory that both processes map.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) memory: SharedMemory,
    /// Its offset in the process, from the beginning of the events.
    pub(super) at: u64,
}

/// All memories, sorted by their addresses in this process.
#[derive(Debug, Default)]
pub(super) struct Space {
    shared: Vec<Shared>,
    /// Index of the last hit: neighbours lie in one memory.
    last: usize,
    bytes: u64,
}

impl Space {
    /// All memory of this process that can be shared for reading, after the events with this many bytes of copies.
    pub(super) fn new(copies: usize) -> Self {
        let mut at = (COPIES + copies).next_multiple_of(HUGE_PAGE) as u64;
        let mut shared: Vec<_> = shared_memories().into_iter().map(|memory| Shared { memory, at: 0 }).collect();
        shared.sort_by_key(|shared| shared.memory.addresses().start);
        for one in &mut shared {
            one.at = at;
            at += one.memory.addresses().len().next_multiple_of(HUGE_PAGE) as u64;
        }
        Self { shared, last: 0, bytes: at }
    }

    /// All shared memories.
    pub(super) fn shared(&self) -> &[Shared] {
        &self.shared
    }

    /// Size of all addresses in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Address of bytes in the process; `None` if they lie in no shared memory.
    #[inline]
    pub(super) fn find(&mut self, piece: &[u8]) -> Option<u64> {
        let begin = piece.as_ptr().addr();
        let known = self.shared.get(self.last)?;
        if let Some(at) = within(known, begin, piece.len()) {
            return Some(at);
        }
        let behind = self.shared.partition_point(|shared| shared.memory.addresses().start <= begin);
        self.last = behind.saturating_sub(1);
        within(&self.shared[self.last], begin, piece.len())
    }
}

#[inline]
fn within(shared: &Shared, begin: usize, length: usize) -> Option<u64> {
    let addresses = shared.memory.addresses();
    let is_within = addresses.contains(&begin) && length <= addresses.end - begin;
    is_within.then(|| shared.at + (begin - addresses.start) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_memory::{HugePages, MemoryKind, Owner, Pool, PoolConfig};
    use ropewalk_terms::{Attempt, Cause, EventKey, SourceId};

    struct OneFragment(Fragment);

    impl FilterEvent for OneFragment {
        fn key(&self) -> EventKey {
            EventKey::new(3, 7)
        }

        fn attempt(&self) -> Attempt {
            Attempt(2)
        }

        fn is_complete(&self) -> bool {
            false
        }

        fn trigger_type(&self) -> u16 {
            9
        }

        fn fragments(&self) -> impl Iterator<Item = &Fragment> {
            std::iter::once(&self.0)
        }
    }

    /// Also for a process that does not report the address of the events: pointers are relative then.
    #[test]
    fn pointers_of_a_record_are_addresses_in_the_process() {
        let mut pool = Pool::new(PoolConfig::heap("pointers", 4096, 3)).expect("memory");
        let slice = pool.loan(Owner::SHARED).and_then(|mut loan| loan.append(b"payload")).expect("room");
        let meta = FragmentMeta { source: SourceId(5), length: 7, ..FragmentMeta::missing(SourceId(5), Cause::Masked) };
        let event = OneFragment(Fragment { meta, payload: slice.into() });
        for base in [0, 0x7000_0000_0000] {
            let mut ring = Ring::new(1 << 16).expect("memory").0;
            for (sequence, place) in [(1, RECORDS), (2, RECORDS + FRAGMENTS + 48 + 16)] {
                ring.event((&mut Space::default(), base), sequence, RunNumber(4), &event).expect("room");
                let word = |at: usize| ring.region.look::<u64>(place + at);
                assert_eq!(word(SEQUENCE), sequence);
                let described = [8, 16, 40, 48].map(|at| word(EVENT + at));
                let fragments = base + (place + FRAGMENTS) as u64;
                assert_eq!(described, [event.key().to_bits(), 7, fragments, 1], "key, number, fragments");
                assert_eq!([32, 40].map(|at| word(FRAGMENTS + at)), [fragments + 48, 1], "pieces");
                // The fragment lies in no shared memory and was copied.
                let copy = COPIES as u64 + 7 * (sequence - 1);
                assert_eq!([0, 8].map(|at| word(FRAGMENTS + 48 + at)), [base + copy, 7]);
            }
        }
    }

    #[test]
    fn bytes_are_found_where_they_lie_in_shared_memory_alone() {
        let kind = |memory| PoolConfig { memory, huge_pages: HugePages::Never, ..PoolConfig::heap("space", 4096, 3) };
        let [mut one, mut other, mut own] = [MemoryKind::Memfd, MemoryKind::Memfd, MemoryKind::Anonymous]
            .map(|memory| Pool::new(kind(memory)).expect("memory"));
        let write = |pool: &mut Pool| pool.loan(Owner::SHARED).and_then(|mut loan| loan.append(b"bytes"));
        let [first, second, alone] = [&mut one, &mut other, &mut own].map(|pool| write(pool).expect("room"));
        let mut space = Space::new(5000);
        for _ in 0..2 {
            let places = [&first, &second].map(|bytes| space.find(bytes).expect("it is shared"));
            assert!(places.iter().all(|&at| at >= HUGE_PAGE as u64 && at + 5 <= space.bytes()));
            assert_ne!(places[0], places[1]);
            assert_eq!(space.find(&first[2..]), Some(places[0] + 2));
            assert_eq!(space.find(&alone), None);
        }
        drop((one, other, first, second));
        assert_eq!(Space::default().find(&alone), None);
    }
}
