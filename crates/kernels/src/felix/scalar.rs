//! One block after the other.

use super::{BlockWalk, HEADER_BYTES, Layout, Room, SubChunk, fault};

/// Types and flags of a trailer, and what whole chunks without flags have there.
const WIDE_FLAGS: u32 = 0xFE00_0000;
const NARROW_FLAGS: u32 = 0xFC00_0000;
const PLAIN: u32 = 3 << 29;

/// Walks until all blocks are done or there is no room.
pub(super) fn walk(layout: Layout, bytes: &[u8], room: &mut Room<'_>) {
    let blocks = bytes.chunks_exact(layout.block_bytes).take(room.blocks).enumerate().skip(room.done);
    for (index, block) in blocks {
        if room.walked.sub_chunks.len() - room.cursor < layout.most_sub_chunks() {
            break;
        }
        let sub_chunks = &mut room.walked.sub_chunks[room.cursor..];
        let base = (index * layout.block_bytes) as u32;
        let mut found = walk_block_of(layout, block, base, sub_chunks);
        found.first = room.cursor as u32;
        room.cursor += found.count as usize;
        room.walked.blocks[index] = found;
        room.done = index + 1;
    }
}

/// [`walk_block`] for either kind of trailers.
pub(super) fn walk_block_of(layout: Layout, block: &[u8], base: u32, out: &mut [SubChunk]) -> BlockWalk {
    if layout.is_wide {
        walk_block::<true>(layout, block, base, out)
    } else {
        walk_block::<false>(layout, block, base, out)
    }
}

/// Fills `out` with the sub-chunks from its beginning; there is room for as many as a block can have.
fn walk_block<const WIDE: bool>(layout: Layout, block: &[u8], base: u32, out: &mut [SubChunk]) -> BlockWalk {
    let header = word_before(block, HEADER_BYTES);
    let mut found = BlockWalk { header, ..BlockWalk::default() };
    if (header >> 16) as u16 != layout.symbol {
        return damaged(found, fault::START_OF_BLOCK);
    }
    let (mut end, mut count) = (block.len(), 0);
    let (mut odd, mut is_last_odd, mut is_first_odd) = (0, false, false);
    while end > HEADER_BYTES {
        let word = word_before(block, end);
        let (trailer, flags) = if WIDE { (word, WIDE_FLAGS) } else { (narrow(word), NARROW_FLAGS) };
        let kind = word >> 29;
        let length = if kind == 0 || kind == 7 { 0 } else { (trailer & 0xFFFF) as usize };
        let bytes = if WIDE { (length + 7) & !3 } else { (length + 3) & !1 };
        if kind == 6 {
            return damaged(found, fault::UNDEFINED);
        }
        if bytes > end - HEADER_BYTES {
            return damaged(found, if bytes > end { fault::PAST_HEADER } else { fault::PADDING });
        }
        end -= bytes;
        is_first_odd = word & flags != PLAIN;
        if count == 0 {
            is_last_odd = is_first_odd;
        }
        odd += u16::from(is_first_odd);
        out[count] = SubChunk { offset: base + end as u32, trailer };
        count += 1;
    }
    out[..count].reverse();
    found.count = count as u32;
    // The first and the last one do not count; they may be one and the same.
    found.odd = if count < 2 { 0 } else { odd - u16::from(is_first_odd) - u16::from(is_last_odd) };
    found
}

const fn damaged(found: BlockWalk, fault: u32) -> BlockWalk {
    BlockWalk { fault: fault as u16, odd: u16::MAX, ..found }
}

/// A trailer of 16 bits in the upper half of a word, with its fields where 32 bits have them.
const fn narrow(word: u32) -> u32 {
    word & NARROW_FLAGS | word >> 16 & 0x3FF
}

fn word_before(block: &[u8], end: usize) -> u32 {
    let word = block[..end].last_chunk().expect("every place behind the header has four bytes before it");
    u32::from_le_bytes(*word)
}
