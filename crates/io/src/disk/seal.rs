//! Checksums of records that their author leaves to the disk, computed in the pass that copies the bytes, or right
//! before the system call that does.
//!
//! ```text
//!   head | payload | payload | .. | zeros, 0 0 0 0     as appended: the checksum is left open
//!   head | payload | payload | .. | zeros, CRC-32C     as written: computed over everything before
//! ```
//! The tail is a separate slice. Slices may be shared and are never changed, so the sealed tail is stored here. A
//! record that already has a checksum is written unchanged.

use arrayvec::ArrayVec;
use ropewalk_memory::Slice;
use ropewalk_wire::run_file::{Checksum, RECORD_HEADER_BYTES, RecordHeader, RecordTail};

/// Number of bytes that are copied, and then read once more for the checksum while they are in the first cache.
const PIECE: usize = 16 << 10;

/// The sealed tails of the records of one append.
#[derive(Debug, Default)]
pub(super) struct Seals(Vec<(u32, RecordTail)>);

impl Seals {
    /// Makes room for the tails of `records` records.
    pub(super) fn with_capacity(records: usize) -> Self {
        Self(Vec::with_capacity(records))
    }

    /// The bytes written for the slice with this index.
    pub(super) fn written<'a>(&'a self, index: usize, slice: &'a Slice) -> &'a [u8] {
        // Few slices are that short.
        if slice.len() >= RecordTail::LONGEST {
            return slice;
        }
        match self.0.binary_search_by_key(&(index as u32), |&(slice, _)| slice) {
            Ok(place) => self.0[place].1.as_bytes(),
            Err(_) => slice,
        }
    }

    /// Seals the records of these slices, which are whole. `each` gets the bytes to be written, piece by piece.
    pub(super) fn seal(&mut self, data: &[Slice], mut each: impl FnMut(&[u8])) {
        self.0.clear();
        let mut record = Record::default();
        for (index, slice) in data.iter().enumerate() {
            if let Some(tail) = record.open_tail(slice) {
                each(tail.as_bytes());
                self.0.push((index as u32, tail));
                continue;
            }
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(record.wanted().min(rest.len()));
                each(piece);
                record.pass(piece);
                rest = later;
            }
        }
    }
}

/// The state of the current record.
#[derive(Default)]
struct Record {
    header: ArrayVec<u8, RECORD_HEADER_BYTES>,
    /// Number of bytes up to its end, if the header is known.
    left: usize,
    checksum: Checksum,
}

impl Record {
    /// Maximum length of the next piece.
    fn wanted(&self) -> usize {
        if self.header.is_full() { self.left.min(PIECE) } else { RECORD_HEADER_BYTES - self.header.len() }
    }

    /// Processes the next piece.
    fn pass(&mut self, piece: &[u8]) {
        self.checksum.update(piece);
        if self.header.is_full() {
            self.left -= piece.len();
        } else {
            self.header.extend(piece.iter().copied());
            if self.header.is_full() {
                // Bytes that are no record are written unchanged.
                let length = RecordHeader::decode(&self.header).map_or(usize::MAX, |header| header.length as usize);
                self.left = length - RECORD_HEADER_BYTES;
            }
        }
        if self.header.is_full() && self.left == 0 {
            *self = Self::default();
        }
    }

    /// The sealed tail, if this slice is the tail of the record and its checksum is open. The next record follows.
    fn open_tail(&mut self, slice: &Slice) -> Option<RecordTail> {
        if slice.len() != self.left || !self.header.is_full() {
            return None;
        }
        let tail = RecordTail::seal(slice, self.checksum)?;
        *self = Self::default();
        Some(tail)
    }
}
