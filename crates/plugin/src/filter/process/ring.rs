//! The writing side of the events' memory: records one behind the other, and the bytes of what lies in no shared memory.

use super::layout::{COPIES, FRAGMENT_HEAD, HEAD, Kind, PIECE, RECORD_HEAD, RECORDS, RING, TAKEN, WRITTEN};
use super::space::Space;
use crate::filter::FilterEvent;
use crate::filter::interface::{DOUBTFUL, INCOMPLETE};
use crate::process::region::{Region, Writable};
use ropewalk_flow::messages::{Fragment, FragmentMeta};
use ropewalk_terms::RunNumber;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

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
    /// New memory, and its descriptor.
    pub(super) fn new(copies_bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let (region, file) = Region::new("events", COPIES + copies_bytes, Writable::ByMakerAlone)?;
        let (written, free) = (Marks::default(), Marks::default());
        Ok((Self { region, copies_bytes, written, free, copied: 0 }, file))
    }

    /// Describes an event; returns up to where the rings are its. None, and nothing is written, where there is no room now.
    pub(super) fn event(
        &mut self,
        space: &mut Space,
        sequence: u64,
        run: RunNumber,
        event: &impl FilterEvent,
    ) -> Option<Marks> {
        self.record(|room, copies| describe(room, copies, space, sequence, run, event))?;
        Some(self.written)
    }

    /// A run begins or ends. False where there is no room now.
    pub(super) fn control(&mut self, kind: Kind, run: RunNumber) -> bool {
        let written = self.record(|room, _| {
            let room = room.get_mut(..HEAD + 8)?;
            head(room, HEAD + 8, kind);
            room[HEAD..HEAD + 4].copy_from_slice(&run.0.to_le_bytes());
            room[HEAD + 4..].fill(0);
            Some(HEAD + 8)
        });
        written.is_some()
    }

    /// Lets `write` write a record where there is room, and say how long it is; where there was not enough, it is asked once more
    /// at the beginning of the ring. What it wrote in vain is written over.
    fn record(&mut self, mut write: impl FnMut(&mut [u8], &mut Copies<'_>) -> Option<usize>) -> Option<()> {
        let (records, copies) = self.region.values::<u8>(RECORDS, RING + self.copies_bytes).split_at_mut(RING);
        let copies_free = copies.len() - (self.written.copies - self.free.copies) as usize;
        let begin = self.written.copies;
        let mut copies = Copies { ring: copies, at: begin, end: begin + copies_free as u64, copied: 0 };
        let free = RING - (self.written.records - self.free.records) as usize;
        let at = (self.written.records % RING as u64) as usize;
        let to_end = RING - at;
        let mut length = write(&mut records[at..at + to_end.min(free)], &mut copies);
        if length.is_none() && free > to_end {
            (copies.at, copies.copied) = (begin, 0);
            length = write(&mut records[..free - to_end], &mut copies).map(|length| to_end + length);
            if length.is_some() {
                head(&mut records[at..], to_end, Kind::Wrap);
            }
        }
        self.written = Marks { records: self.written.records + length? as u64, copies: copies.at };
        self.copied += copies.copied;
        Some(())
    }

    /// What lies before these positions was read.
    pub(super) const fn release(&mut self, marks: Marks) {
        self.free = marks;
    }

    /// Nobody has anything to read: then a record for which there is no room will never find any.
    pub(super) fn is_empty(&self) -> bool {
        self.written == self.free
    }

    /// Everything that was written may be read, and so many decisions were taken.
    pub(super) fn publish(&self, taken: u64) {
        self.region.number(TAKEN).store(taken, Ordering::Release);
        self.region.number(WRITTEN).store(self.written.records, Ordering::Release);
    }

    /// Bytes that were copied.
    pub(super) const fn copied(&self) -> u64 {
        self.copied
    }
}

/// Room for the bytes of what lies in no shared memory.
struct Copies<'a> {
    ring: &'a mut [u8],
    at: u64,
    end: u64,
    copied: u64,
}

impl Copies<'_> {
    /// Copies bytes to where they lie side by side; returns their address. None where there is no room.
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

/// Writes the record of an event; returns its length. None where there is no room.
fn describe(
    room: &mut [u8],
    copies: &mut Copies<'_>,
    space: &mut Space,
    sequence: u64,
    run: RunNumber,
    event: &impl FilterEvent,
) -> Option<usize> {
    let (mut at, mut fragments, mut flags) = (RECORD_HEAD, 0_u32, if event.is_complete() { 0 } else { INCOMPLETE });
    for fragment in event.fragments() {
        at += describe_fragment(room.get_mut(at..)?, copies, space, fragment)?;
        fragments += 1;
        flags |= if fragment.meta.flags.has_error() { DOUBTFUL } else { 0 };
    }
    let record = room.get_mut(..RECORD_HEAD)?;
    head(record, at, Kind::Event);
    record[8..16].copy_from_slice(&sequence.to_le_bytes());
    record[16..24].copy_from_slice(&event.key().to_bits().to_le_bytes());
    record[24..28].copy_from_slice(&run.0.to_le_bytes());
    record[28..32].copy_from_slice(&fragments.to_le_bytes());
    record[32..36].copy_from_slice(&flags.to_le_bytes());
    record[36..38].copy_from_slice(&event.attempt().0.to_le_bytes());
    record[38..40].copy_from_slice(&event.trigger_type().to_le_bytes());
    Some(at)
}

fn describe_fragment(
    room: &mut [u8],
    copies: &mut Copies<'_>,
    space: &mut Space,
    fragment: &Fragment,
) -> Option<usize> {
    let (mut at, mut pieces) = (FRAGMENT_HEAD, 0_u32);
    for piece in fragment.payload.pieces() {
        let place = match space.find(piece) {
            Some(place) => place,
            None => copies.add(piece)?,
        };
        let described = room.get_mut(at..at + PIECE)?;
        described[..8].copy_from_slice(&place.to_le_bytes());
        described[8..].copy_from_slice(&(piece.len() as u64).to_le_bytes());
        at += PIECE;
        pieces += 1;
    }
    let FragmentMeta { source, length, flags, bunch_crossing, trigger_type, raw_id, time } = fragment.meta;
    let described = room.get_mut(..FRAGMENT_HEAD)?;
    described[..4].copy_from_slice(&source.0.to_le_bytes());
    described[4..8].copy_from_slice(&length.to_le_bytes());
    described[8..12].copy_from_slice(&flags.0.to_le_bytes());
    described[12..16].copy_from_slice(&pieces.to_le_bytes());
    described[16..24].copy_from_slice(&raw_id.to_le_bytes());
    described[24..32].copy_from_slice(&time.to_le_bytes());
    described[32..34].copy_from_slice(&bunch_crossing.to_le_bytes());
    described[34..36].copy_from_slice(&trigger_type.to_le_bytes());
    described[36..].fill(0);
    Some(at)
}

/// The begin of a record.
fn head(record: &mut [u8], length: usize, kind: Kind) {
    record[..4].copy_from_slice(&(length as u32).to_le_bytes());
    record[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
}
