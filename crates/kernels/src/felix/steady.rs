//! One block after the other, for blocks with chunks of equal length: the next trailers are guessed, and four guesses
//! are checked at once.
//!
//! ```text
//!  read      |header| ... t |....... t |....... t |....... t |....... T |... t |     T says 64 bytes: so will the four
//!                           ^ guess 4  ^ guess 3  ^ guess 2  ^ guess 1             before it, and where they stand is
//!                                                                                  known without reading them
//! ```
//! A right guess costs no wait; after a wrong one the walk continues trailer by trailer. Trailers that cannot be
//! guessed (no data, faults) are left to the scalar walk.
#![allow(unsafe_code)]

use super::{BlockWalk, HEADER_BYTES, LINE_BYTES, Layout, Room, SubChunk, prefetch, walk_block_of};

/// Trailers guessed at once.
const GUESSED: usize = 4;
/// Prefetch distance: no block takes long, so a few blocks suffice.
const AHEAD_BYTES: usize = 4 << 10;
/// Maximum sub-chunks of a block that this walk handles.
const MOST_SUB_CHUNKS: usize = 64;

/// State kept from one walk to the next.
#[derive(Copy, Clone, Debug)]
pub(super) struct Steady {
    /// Room for a block's sub-chunks: the need of the last blocks, and a reserve.
    slot: usize,
}

/// The result for a block.
struct Found {
    count: usize,
    odd: u32,
    guessed: usize,
}

impl Steady {
    pub(super) const fn new() -> Self {
        Self { slot: MOST_SUB_CHUNKS }
    }

    /// Walks until all blocks are done or no room is left, and prefetches `lines` lines of each of the later blocks.
    /// Returns whether most trailers were guessed: if not, another walk is faster.
    pub(super) fn walk(&mut self, layout: Layout, lines: usize, bytes: &[u8], room: &mut Room<'_>) -> bool {
        if layout.is_wide {
            self.blocks::<true>(layout, lines, bytes, room)
        } else {
            self.blocks::<false>(layout, lines, bytes, room)
        }
    }

    /// [`Self::walk`] for trailers of 32 bits, or of 16.
    fn blocks<const WIDE: bool>(&mut self, layout: Layout, lines: usize, bytes: &[u8], room: &mut Room<'_>) -> bool {
        let size = layout.block_bytes;
        let (mut guessed, mut trailers, mut most) = (0, 0, 0);
        for block in bytes[..room.blocks * size].chunks_exact(size).skip(room.done) {
            if room.walked.sub_chunks.len() - room.cursor < layout.most_sub_chunks().max(self.slot) {
                break;
            }
            let mut line = block.as_ptr().wrapping_add(AHEAD_BYTES.max(size));
            for _ in 0..lines {
                prefetch(line);
                line = line.wrapping_add(LINE_BYTES);
            }
            let base = (room.done * size) as u32;
            let into = &mut room.walked.sub_chunks[room.cursor..];
            // SAFETY: no block is shorter than its header.
            let header = unsafe { before(block, HEADER_BYTES) };
            let is_block = (header >> 16) as u16 == layout.symbol;
            let found = match walk_block::<WIDE>(block, base, &mut into[..self.slot]).filter(|_| is_block) {
                Some(found) => {
                    // A slot is filled from its end, because a block is read from there.
                    let first = (room.cursor + self.slot - found.count) as u32;
                    room.cursor += self.slot;
                    guessed += found.guessed;
                    most = most.max(found.count);
                    BlockWalk { header, first, count: found.count as u32, fault: 0, odd: found.odd as u16 }
                }
                None => {
                    let found = walk_block_of(layout, block, base, into);
                    let first = room.cursor as u32;
                    room.cursor += found.count as usize;
                    BlockWalk { first, ..found }
                }
            };
            trailers += found.count as usize;
            room.walked.blocks[room.done] = found;
            room.done += 1;
        }
        self.slot = (most + 2 * GUESSED).min(MOST_SUB_CHUNKS);
        2 * guessed > trailers
    }
}

/// Progress of the walk in a block.
struct Step<'a> {
    block: &'a [u8],
    /// Everything after this offset is done.
    end: usize,
    /// The trailer there, as read, and the bytes from its end to the beginning of its data.
    word: u32,
    bytes: usize,
    /// The sub-chunk found last.
    item: u64,
    /// Free sub-chunks of the slot.
    free: usize,
}

impl Step<'_> {
    /// Advances by one trailer, which exists: `end` is after the header. Returns false if the scalar walk is needed.
    #[inline(always)]
    fn one<const WIDE: bool>(&mut self, base: u32, slot: &mut [SubChunk]) -> bool {
        assert!(self.end > HEADER_BYTES && self.end <= self.block.len());
        // SAFETY: checked by the assertion above.
        let word = unsafe { before(self.block, self.end) };
        let (trailer, bytes) = if WIDE {
            (word, ((word & 0xFFFF) as usize + 7) & !3)
        } else {
            let length = word >> 16 & 0x3FF;
            (word & 0xFC00_0000 | length, (length as usize + 3) & !1)
        };
        let has_data = 0b0011_1110_u32 >> (word >> 29) & 1 == 1;
        if !has_data || bytes > self.end - HEADER_BYTES || self.free == 0 {
            return false;
        }
        (self.word, self.bytes) = (word, bytes);
        (self.end, self.free) = (self.end - bytes, self.free - 1);
        let offset = base + self.end as u32;
        self.item = u64::from(trailer) << 32 | u64::from(offset);
        slot[self.free] = SubChunk { offset, trailer };
        true
    }

    /// Advances by four trailers, if they equal the last one.
    #[inline(always)]
    fn guess<const WIDE: bool>(&mut self, slot: &mut [SubChunk]) -> bool {
        let (end, bytes) = (self.end, self.bytes);
        assert!(end >= HEADER_BYTES && end <= self.block.len());
        if self.free < GUESSED || end - HEADER_BYTES < GUESSED * bytes {
            return false;
        }
        let mut difference = 0;
        for guess in 0..GUESSED {
            // SAFETY: that place is not after `end`, and after the header, because that of one guess more is too.
            difference |= unsafe { before(self.block, end - guess * bytes) } ^ self.word;
        }
        if difference & (if WIDE { !0 } else { !0xFFFF }) != 0 {
            return false;
        }
        self.free -= GUESSED;
        self.end -= GUESSED * bytes;
        for place in slot[self.free..self.free + GUESSED].iter_mut().rev() {
            self.item -= bytes as u64;
            *place = SubChunk { offset: self.item as u32, trailer: (self.item >> 32) as u32 };
        }
        true
    }

    /// Whether it is not a whole chunk, or has flags.
    #[inline(always)]
    const fn is_odd<const WIDE: bool>(&self) -> u32 {
        (self.word & (if WIDE { 0xFE00_0000 } else { 0xFC00_0000 }) != 3 << 29) as u32
    }
}

/// The four bytes before `end`.
///
/// # Safety
/// `end` is at least 4 and not beyond the block's end.
#[inline(always)]
unsafe fn before(block: &[u8], end: usize) -> u32 {
    debug_assert!(end >= HEADER_BYTES && end <= block.len());
    // SAFETY: guaranteed by the caller; the read needs no alignment.
    u32::from_le(unsafe { block.as_ptr().add(end - HEADER_BYTES).cast::<u32>().read_unaligned() })
}

/// Fills a slot with a block's sub-chunks, from its end; `None` if there are too many, or if one needs the scalar walk.
/// Not inlined: it uses all registers.
#[inline(never)]
fn walk_block<const WIDE: bool>(block: &[u8], base: u32, slot: &mut [SubChunk]) -> Option<Found> {
    let mut step = Step { block, end: block.len(), word: 0, bytes: 0, item: 0, free: slot.len() };
    let (mut odd, mut guessed) = (0, 0);
    // The last one, mostly the first piece of a chunk that ends elsewhere, does not count as odd.
    if !step.one::<WIDE>(base, slot) {
        return None;
    }
    if step.end > HEADER_BYTES {
        if !step.one::<WIDE>(base, slot) {
            return None;
        }
        odd += step.is_odd::<WIDE>();
        while step.guess::<WIDE>(slot) {
            guessed += GUESSED;
        }
        odd += guessed as u32 * step.is_odd::<WIDE>();
        while step.end > HEADER_BYTES {
            if !step.one::<WIDE>(base, slot) {
                return None;
            }
            odd += step.is_odd::<WIDE>();
        }
        // Neither does the first one.
        odd -= step.is_odd::<WIDE>();
    }
    Some(Found { count: slot.len() - step.free, odd, guessed })
}
