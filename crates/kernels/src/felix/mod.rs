//! The walk through FELIX blocks, trailer by trailer from each block's end, with many blocks at once.
//!
//! ```text
//!  bytes --> Walker::walk --> Walked: blocks      one record each: header, which sub-chunks, is it plain, is it good
//!                                     sub-chunks  offset and trailer, in the order in which the card wrote them
//! ```
//! A trailer determines where the next one is, so a single walk waits for memory at every step. The walk with AVX2
//! takes a step in eight blocks with each gather, and has several such groups in flight; at each step it prefetches a
//! few lines of later blocks, so that memory is never idle and never overloaded. If chunks are short and of equal
//! length, it leaves the walk to `steady`, which guesses trailers. Their scalar twin takes one block after the other.
//! `wire::felix` explains the formats; this module knows only what a walk needs.

mod steady;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Bytes of a block's header.
const HEADER_BYTES: usize = 4;
const LINE_BYTES: usize = 64;

/// A sub-chunk of a block.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct SubChunk {
    /// The offset of its data from the beginning of the walked bytes.
    pub offset: u32,
    /// Its trailer, with the fields where trailers of 32 bits have them: 0-15 length, 25-28 flags, 29-31 type.
    pub trailer: u32,
}

/// What a walk must know of a kind of block.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// The upper half of a block's header.
    pub symbol: u16,
    /// Bytes of a block: a multiple of 64, at most 64 KiB.
    pub block_bytes: usize,
    /// Whether trailers have 32 bits and not 16.
    pub is_wide: bool,
}

impl Layout {
    /// Maximum sub-chunks of a block.
    const fn most_sub_chunks(self) -> usize {
        (self.block_bytes - HEADER_BYTES) / if self.is_wide { 4 } else { 2 }
    }
}

/// The fault of a block: the numbers of `wire::felix::BlockError`.
mod fault {
    pub(super) const START_OF_BLOCK: u32 = 2;
    pub(super) const PADDING: u32 = 3;
    pub(super) const PAST_HEADER: u32 = 4;
    pub(super) const UNDEFINED: u32 = 5;
}

/// What a walk found in one block.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[repr(C)]
pub struct BlockWalk {
    /// The header as it is in the block.
    pub header: u32,
    /// Its first sub-chunk.
    pub first: u32,
    /// The number of its sub-chunks; 0 if it is damaged.
    pub count: u32,
    /// Its fault (the number of a `wire::felix::BlockError`), or 0.
    pub fault: u16,
    /// The number of sub-chunks between its first and its last one that are not whole chunks without flags;
    /// [`u16::MAX`] if it is damaged.
    pub odd: u16,
}

impl BlockWalk {
    /// Whether it is good, and everything between its first and its last sub-chunk is a whole chunk without flags.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        self.odd == 0
    }
}

/// The results of a walk, in arrays that are reused.
#[derive(Clone, Debug)]
pub struct Walked {
    blocks: Vec<BlockWalk>,
    sub_chunks: Vec<SubChunk>,
    /// The number of blocks filled.
    filled: usize,
}

impl Walked {
    /// Room for `blocks` of this kind, with the expected number of sub-chunks each. If there are more, fewer blocks are
    /// walked at once.
    pub fn new(layout: Layout, blocks: usize, sub_chunks_each: usize) -> Self {
        let sub_chunks = vec![SubChunk::default(); room_for(layout, MOST_GROUPS) + blocks * sub_chunks_each];
        Self { blocks: vec![BlockWalk::default(); blocks.max(1)], sub_chunks, filled: 0 }
    }

    /// The blocks of the last walk, in order.
    pub fn blocks(&self) -> &[BlockWalk] {
        &self.blocks[..self.filled]
    }

    /// The array of the blocks' sub-chunks, with gaps between blocks.
    pub fn sub_chunks(&self) -> &[SubChunk] {
        &self.sub_chunks
    }

    /// Blocks and sub-chunks, for a caller that takes them apart in place.
    pub fn parts(&mut self) -> (&[BlockWalk], &mut [SubChunk]) {
        (&self.blocks[..self.filled], &mut self.sub_chunks)
    }
}

/// Blocks per gather.
const LANES: usize = 8;
/// Maximum gathers in flight.
const MOST_GROUPS: usize = 4;
/// Steps are turned into sub-chunks four at a time.
const ROUNDED: usize = 4;

/// Room for the sub-chunks of this many groups of blocks: the maximum of each block, and per group once more that of
/// one block, for superfluous writes.
const fn room_for(layout: Layout, groups: usize) -> usize {
    (LANES + 1) * groups * (layout.most_sub_chunks() + ROUNDED)
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kernel {
    Scalar,
    Steady,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Kernel {
    const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Steady => "steady",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
        }
    }
}

/// Walks blocks of one kind.
#[derive(Clone, Debug)]
pub struct Walker {
    layout: Layout,
    kernel: Kernel,
    /// Whether the caller prefetches [`Self::rest`].
    leaves_rest: bool,
    steady: steady::Steady,
    #[cfg(target_arch = "x86_64")]
    lanes: x86::Lanes,
}

impl Walker {
    /// A walker with the fastest kernel that this processor supports.
    ///
    /// # Panics
    /// If such blocks cannot exist.
    pub fn new(layout: Layout) -> Self {
        Self::all(layout).swap_remove(0)
    }

    /// A walker for each kernel that this processor supports, the fastest first; the last one is the scalar twin. For
    /// tests and measurements.
    ///
    /// # Panics
    /// If such blocks cannot exist.
    pub fn all(layout: Layout) -> Vec<Self> {
        let bytes = layout.block_bytes;
        assert!(bytes.is_multiple_of(64) && (64..=64 << 10).contains(&bytes), "no block has {bytes} bytes");
        let with = |kernel| Self {
            layout,
            kernel,
            leaves_rest: false,
            steady: steady::Steady::new(),
            #[cfg(target_arch = "x86_64")]
            lanes: x86::Lanes::new(layout),
        };
        #[cfg(target_arch = "x86_64")]
        if x86::is_there() {
            return vec![with(Kernel::Avx2), with(Kernel::Steady), with(Kernel::Scalar)];
        }
        vec![with(Kernel::Steady), with(Kernel::Scalar)]
    }

    /// The processor features that it uses; `steady` or `scalar` if it uses none.
    pub const fn name(&self) -> &'static str {
        self.kernel.name()
    }

    /// From now on, a part of each block's lines is left to [`Self::rest`], which must be called once for each block
    /// before it is walked, by a caller that still processes the previous walk. Then memory is busy meanwhile.
    pub fn leave_rest(&mut self) {
        self.leaves_rest = true;
    }

    /// The lines that a walk leaves, from block `block` of `bytes` on. They may be beyond the end of `bytes`; nothing
    /// is read.
    #[inline]
    pub fn rest(&self, bytes: &[u8], block: usize) -> Rest {
        #[cfg(target_arch = "x86_64")]
        if self.leaves_rest && self.kernel == Kernel::Avx2 {
            return self.lanes.rest(self.layout, bytes, block);
        }
        Rest::none(bytes)
    }

    /// Walks consecutive blocks in `bytes`, as many as `out` has room for (at least one), and returns their number.
    /// Bytes after the last whole block are ignored. Bytes after `bytes` are prefetched but not read.
    pub fn walk(&mut self, bytes: &[u8], out: &mut Walked) -> usize {
        let most = bytes.len().min(u32::MAX as usize) / self.layout.block_bytes;
        let mut room = Room { walked: out, done: 0, blocks: 0, cursor: 0 };
        room.blocks = most.min(room.walked.blocks.len());
        match self.kernel {
            Kernel::Scalar => walk_scalar(self.layout, bytes, &mut room),
            Kernel::Steady => {
                let lines = self.layout.block_bytes / LINE_BYTES;
                self.steady.walk(self.layout, lines, bytes, &mut room);
            }
            #[cfg(target_arch = "x86_64")]
            Kernel::Avx2 => {
                x86::walk(self.layout, &mut self.lanes, &mut self.steady, self.leaves_rest, bytes, &mut room)
            }
        }
        room.walked.filled = room.done;
        room.done
    }
}

/// Prefetches the line of this address, if the processor has an instruction for it. Nothing is read.
#[inline]
#[allow(unsafe_code)]
fn prefetch(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction, which reads nothing, wherever it points.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T1 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Two lines of each block that the caller prefetches instead of the walk, block by block.
#[derive(Clone, Debug)]
pub struct Rest {
    /// The first line of the next block, and the distance to that of the block after it.
    next: *const u8,
    block_bytes: usize,
    /// The distance to the other line.
    other: usize,
}

impl Rest {
    /// Always the same line: no walk leaves any.
    const fn none(bytes: &[u8]) -> Self {
        Self { next: bytes.as_ptr(), block_bytes: 0, other: 0 }
    }

    /// Prefetches the lines of one block and advances to the next.
    #[inline]
    pub fn prefetch_block(&mut self) {
        prefetch(self.next);
        prefetch(self.next.wrapping_add(self.other));
        self.next = self.next.wrapping_add(self.block_bytes);
    }
}

/// Where a walk writes its results, and its progress.
struct Room<'a> {
    walked: &'a mut Walked,
    /// Blocks to be walked, and blocks done.
    blocks: usize,
    done: usize,
    /// Sub-chunks before this index are in use.
    cursor: usize,
}

/// The bits of types and flags in a trailer, and their value in whole chunks without flags.
const WIDE_FLAGS: u32 = 0xFE00_0000;
const NARROW_FLAGS: u32 = 0xFC00_0000;
const PLAIN: u32 = 3 << 29;

/// Walks until all blocks are done or no room is left.
fn walk_scalar(layout: Layout, bytes: &[u8], room: &mut Room<'_>) {
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

/// [`walk_block`] for either kind of trailer.
fn walk_block_of(layout: Layout, block: &[u8], base: u32, out: &mut [SubChunk]) -> BlockWalk {
    if layout.is_wide {
        walk_block::<true>(layout, block, base, out)
    } else {
        walk_block::<false>(layout, block, base, out)
    }
}

/// Fills `out` with sub-chunks from its beginning; it has room for the maximum of a block.
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
    // The first and the last one do not count; they may be the same.
    found.odd = if count < 2 { 0 } else { odd - u16::from(is_first_odd) - u16::from(is_last_odd) };
    found
}

const fn damaged(found: BlockWalk, fault: u32) -> BlockWalk {
    BlockWalk { fault: fault as u16, odd: u16::MAX, ..found }
}

/// A trailer of 16 bits in the upper half of a word, with its fields moved to those of 32 bits.
const fn narrow(word: u32) -> u32 {
    word & NARROW_FLAGS | word >> 16 & 0x3FF
}

fn word_before(block: &[u8], end: usize) -> u32 {
    let word = block[..end].last_chunk().expect("every place behind the header has four bytes before it");
    u32::from_le_bytes(*word)
}
