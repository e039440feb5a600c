//! The first bytes of frames, and numbers read from them.

use ropewalk_wire::layout::Number;

/// The first frames of a peer: when each came, how long it was, and its first bytes.
#[derive(Debug)]
pub(super) struct Frames {
    /// Bytes that are kept of a frame.
    head: usize,
    notes: Vec<Note>,
    heads: Vec<u8>,
}

#[derive(Copy, Clone, Debug)]
struct Note {
    at: u64,
    length: usize,
    start: usize,
}

/// A frame: when it came in nanoseconds, how long it was, and its first bytes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Row<'a> {
    pub(super) at: u64,
    pub(super) length: usize,
    pub(super) head: &'a [u8],
}

impl Frames {
    pub(super) const fn new(head: usize) -> Self {
        Self { head, notes: Vec::new(), heads: Vec::new() }
    }

    pub(super) const fn len(&self) -> usize {
        self.notes.len()
    }

    pub(super) fn push(&mut self, at: u64, bytes: &[u8]) {
        self.notes.push(Note { at, length: bytes.len(), start: self.heads.len() });
        self.heads.extend_from_slice(&bytes[..bytes.len().min(self.head)]);
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.notes.iter().map(|note| {
            let kept = note.length.min(self.head);
            Row { at: note.at, length: note.length, head: &self.heads[note.start..note.start + kept] }
        })
    }
}

/// Frames of several peers, side by side. All of them have the bytes before `reach`.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) peers: Vec<Vec<Row<'a>>>,
    pub(super) reach: usize,
}

/// One frame in ten may be much shorter than the rest, such as a board's sign of life: it is left out.
const SHORT_SHARE: usize = 10;

impl<'a> Table<'a> {
    pub(super) fn new(peers: impl Iterator<Item = &'a Frames>) -> Self {
        let mut peers: Vec<Vec<Row<'a>>> = peers.map(|frames| frames.rows().collect()).collect();
        let mut kept: Vec<usize> = peers.iter().flatten().map(|row| row.head.len()).collect();
        kept.sort_unstable();
        let usual = kept.get(kept.len() / SHORT_SHARE).copied().unwrap_or(0);
        let reach = kept.into_iter().find(|length| length * 2 >= usual).unwrap_or(0);
        peers.iter_mut().for_each(|rows| rows.retain(|row| row.head.len() >= reach));
        peers.retain(|rows| !rows.is_empty());
        Self { peers, reach }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &Row<'a>> {
        self.peers.iter().flatten()
    }

    /// How many frames there are.
    pub(super) fn len(&self) -> usize {
        self.peers.iter().map(Vec::len).sum()
    }

    /// Each frame with the next one of its peer.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Row<'a>, &Row<'a>)> {
        self.peers.iter().flat_map(|rows| rows.iter().zip(rows.iter().skip(1)))
    }

    /// Every place of a number of `bytes` bytes, in both byte orders; of one byte in one.
    pub(super) fn places(&self, bytes: u8) -> impl Iterator<Item = Number> {
        let end = (self.reach + 1).saturating_sub(bytes.into()) as i32;
        let orders: &[bool] = if bytes == 1 { &[false] } else { &[false, true] };
        (0..end).flat_map(move |at| {
            orders.iter().map(move |&is_big_endian| Number { is_big_endian, ..Number::little_endian(at, bytes) })
        })
    }

    /// How many different values a byte has, at most 256.
    pub(super) fn liveliness(&self, at: usize) -> usize {
        let mut seen = [false; 256];
        self.rows().for_each(|row| seen[usize::from(row.head[at])] = true);
        seen.iter().filter(|seen| **seen).count()
    }
}

/// The bytes of a number, from the first to behind the last.
pub(super) const fn extent(number: &Number) -> core::ops::Range<usize> {
    let at = number.at as usize;
    at..at + number.bytes as usize
}

/// Whether two numbers share a byte.
pub(super) fn overlap(one: &Number, other: &Number) -> bool {
    let (one, other) = (extent(one), extent(other));
    one.start < other.end && other.start < one.end
}

/// A number of a frame that has it; without its mask it would be all its bits.
pub(super) fn read(row: &Row<'_>, number: &Number) -> u64 {
    let bytes = &row.head[extent(number)];
    let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = if number.is_big_endian { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) };
    number.mask.map_or(value, |mask| (value & mask) >> mask.trailing_zeros())
}

/// How many bits a number has.
pub(super) fn bits(number: &Number) -> u32 {
    number.mask.map_or(8 * u32::from(number.bytes), u64::count_ones)
}

/// What two values of a number differ by, forward.
pub(super) fn ahead(number: &Number, from: &Row<'_>, to: &Row<'_>) -> u64 {
    read(to, number).wrapping_sub(read(from, number)) & (u64::MAX >> (64 - bits(number)))
}
