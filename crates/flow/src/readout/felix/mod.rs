//! Decodes FELIX blocks to chunks, without a copy, between a link card's buffer and the consumers of its chunks.
//!
//! ```text
//!  blocks of the card's buffer --> ChunkDecoder --> ChunkBatch: runs       e-link and items of each block
//!       |    (a walk by wire, then one Assembly per e-link)     items      short chunks; indices of scattered ones
//!       |                                                       scattered  a range of pieces
//!       |                                                       pieces     position and length in the card's stream
//! ```
//! `CardInput` combines all of this over one ring of memory, up to the fragments that a readout unit takes. An
//! `EventRule` finds the event number in a chunk, whose bytes stay where the card wrote them. A `Listener` gets the
//! same batches.
//!
//! As in paper 4 (section 2.4), a *short* chunk is one piece, described by 8 bytes that stay where the walk put them; a
//! *scattered* one is a range in a flat array of pieces. All arrays are allocated at the start and reused.
//!
//! Places are *positions*: the number of bytes that the card wrote before. The owner of the buffer converts them to
//! addresses (position modulo its size); the machine never does.

mod card;
mod decoder;
mod event_rule;
#[cfg(test)]
mod tests;

pub use card::{CardConfig, CardCounts, CardInput, Listener};
pub use decoder::ChunkDecoder;
pub use event_rule::{EventHead, EventRule, EventRules, NumberField};

use ropewalk_wire::felix::{
    BlockError, BlockFormat, BlockWalk, ChunkError, ELink, Status, SubChunk, SubChunkType, Trailer, Walked,
};

/// Configuration of a [`ChunkDecoder`]. All memory is allocated at the start.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ChunkConfig {
    /// The format of its blocks.
    pub format: BlockFormat,
    /// The most blocks of a batch, at least 1. The input and output of a batch of 32 blocks of 1 KiB stay in the
    /// first-level cache.
    pub blocks_per_batch: usize,
    /// The most bytes of a chunk. Larger ones are given up.
    pub most_chunk_bytes: u64,
    /// The most pieces, besides the first and the last one, of all open chunks together; at least 1, with 24 bytes
    /// each. Chunks beyond this are given up.
    pub open_pieces: usize,
}

impl ChunkConfig {
    /// The longest chunk by default, in bytes.
    pub const USUAL_MOST_BYTES: u64 = 1 << 20;

    /// Returns a configuration with batches of 32 blocks, or of 64 KiB if that is less, chunks of up to
    /// [`Self::USUAL_MOST_BYTES`], and room for 64 open chunks of that size.
    pub const fn new(format: BlockFormat) -> Self {
        Self::with_most(format, Self::USUAL_MOST_BYTES)
    }

    /// Returns the same for chunks of up to `most_chunk_bytes`.
    pub const fn with_most(format: BlockFormat, most_chunk_bytes: u64) -> Self {
        let in_64_kib = (64 << 10) / format.block_bytes();
        let blocks_per_batch = if in_64_kib < 32 { in_64_kib } else { 32 };
        let open_pieces = 64 * (most_chunk_bytes as usize / format.most_data_bytes() + 2);
        Self { format, blocks_per_batch, most_chunk_bytes, open_pieces }
    }
}

/// A piece of a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Piece {
    /// Its position in the card's stream.
    pub position: u64,
    /// Its length in bytes, without padding.
    pub length: u32,
}

/// A chunk of several pieces.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Scattered {
    /// Bytes of all pieces.
    pub bytes: u64,
    /// Index of its first piece in the batch's array.
    pub first: u32,
    /// Number of its pieces; at least one.
    pub pieces: u32,
    /// The combined flags of its pieces.
    pub status: Status,
}

/// The output of one block: adjacent items, all of one e-link.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Index of the first item.
    pub first: u32,
    /// Number of items.
    pub count: u16,
    /// From this item on all are whole chunks of one piece without flags; the items before it may be of any kind.
    pub whole_from: u16,
    /// The e-link.
    pub elink: ELink,
    /// Index of the block that ended them, counted from the batch's beginning.
    pub block: u32,
    /// That block's sequence number.
    pub sequence: u8,
}

/// One item of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Chunk<'a> {
    /// A chunk of one piece.
    Short {
        /// The piece.
        piece: Piece,
        /// Its flags.
        status: Status,
    },
    /// A chunk of several pieces.
    Scattered {
        /// The pieces, in order.
        pieces: &'a [Piece],
        /// Bytes of all pieces.
        bytes: u64,
        /// Their combined flags.
        status: Status,
    },
    /// An out-of-band signal.
    Signal(u32),
}

impl Chunk<'_> {
    /// Returns the bytes of the chunk; a signal has none.
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Short { piece, .. } => piece.length as u64,
            Self::Scattered { bytes, .. } => *bytes,
            Self::Signal(_) => 0,
        }
    }
}

/// The chunks of a batch of blocks.
///
/// An item is a [`SubChunk`]. For a short chunk (type `Both`, or `Timeout` with data) it contains the offset from the
/// batch's beginning and the trailer. For a scattered one (type `Last`) the offset is an index in [`Self::scattered`].
/// For a signal (type `OutOfBand`) only the trailer matters. [`Self::chunks`] converts items to [`Chunk`]s.
#[derive(Clone, Debug)]
pub struct ChunkBatch {
    format: BlockFormat,
    position: u64,
    walked: Walked,
    runs: Filled<Run>,
    scattered: Filled<Scattered>,
    pieces: Filled<Piece>,
    /// The lowest position of any piece.
    needs_from: u64,
}

/// An array that is filled from its beginning, again and again, and never grows.
#[derive(Clone, Debug)]
struct Filled<T> {
    items: Box<[T]>,
    count: usize,
}

impl<T: Copy + Default> Filled<T> {
    fn with_room_for(most: usize) -> Self {
        Self { items: vec![T::default(); most].into(), count: 0 }
    }

    const fn clear(&mut self) {
        self.count = 0;
    }

    const fn len(&self) -> usize {
        self.count
    }

    /// # Panics
    /// If it is full: the caller must know the most items that can come.
    #[inline]
    fn push(&mut self, item: T) {
        self.items[self.count] = item;
        self.count += 1;
    }
}

impl<T> Filled<T> {
    /// Returns the part that is not filled.
    fn spare(&mut self) -> &mut [T] {
        &mut self.items[self.count..]
    }

    /// Notes that `count` of the spare items were filled.
    const fn fill(&mut self, count: usize) {
        self.count += count;
    }
}

impl<T> core::ops::Deref for Filled<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.items[..self.count]
    }
}

impl ChunkBatch {
    /// Returns the position of the batch's first block in the card's stream.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the position of the end of its last block.
    pub fn end(&self) -> u64 {
        self.position + (self.walked.blocks().len() * self.format.block_bytes()) as u64
    }

    /// Returns the lowest position that anything in the batch refers to. The blocks from there on are needed until the
    /// batch is no longer used.
    pub const fn needs_from(&self) -> u64 {
        self.needs_from
    }

    /// Returns all blocks, good and damaged, in order.
    pub fn blocks(&self) -> &[BlockWalk] {
        self.walked.blocks()
    }

    /// Returns the blocks that have items, in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the items of a run, in order.
    #[inline]
    pub fn items(&self, run: &Run) -> &[SubChunk] {
        &self.walked.sub_chunks()[run.first as usize..][..usize::from(run.count)]
    }

    /// Returns the items of a run in two parts: items of any kind, and behind them only whole chunks of one piece
    /// without flags, which need no checks.
    #[inline]
    pub fn parts(&self, run: &Run) -> (&[SubChunk], &[SubChunk]) {
        self.items(run).split_at(usize::from(run.whole_from))
    }

    /// Returns the scattered chunks of all runs, in order.
    pub fn scattered(&self) -> &[Scattered] {
        &self.scattered
    }

    /// Returns the pieces of a scattered chunk, in order.
    pub fn pieces(&self, scattered: &Scattered) -> &[Piece] {
        &self.pieces[scattered.first as usize..][..scattered.pieces as usize]
    }

    /// Returns the chunk of an item of a run.
    pub fn chunk(&self, item: SubChunk) -> Chunk<'_> {
        let trailer = Trailer(item.trailer);
        match trailer.kind() {
            SubChunkType::Last => {
                let scattered = &self.scattered[item.offset as usize];
                let pieces = self.pieces(scattered);
                Chunk::Scattered { pieces, bytes: scattered.bytes, status: scattered.status }
            }
            SubChunkType::OutOfBand => Chunk::Signal(trailer.signal(self.format)),
            _ => {
                let position = self.position + u64::from(item.offset);
                let piece = Piece { position, length: trailer.data_bytes() };
                Chunk::Short { piece, status: trailer.status() }
            }
        }
    }

    /// Returns all chunks with their e-links, in the order of the blocks.
    pub fn chunks(&self) -> impl Iterator<Item = (ELink, Chunk<'_>)> {
        self.runs.iter().flat_map(|run| self.items(run).iter().map(|&item| (run.elink, self.chunk(item))))
    }
}

/// A chunk that was given up, or missing pieces of a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ChunkFault {
    /// The e-link.
    pub elink: ELink,
    /// The cause.
    pub error: ChunkError,
    /// Index of the block that showed the fault, counted from its batch's beginning, or [`Self::NO_BLOCK`].
    pub block: u32,
    /// Number of items of that block's run in front of the fault.
    pub items: u16,
    /// Whether a chunk was lost of which something had arrived. A sequence gap without an open chunk does not show what
    /// was lost.
    pub was_open: bool,
}

impl ChunkFault {
    /// Instead of a block: the chunk did not continue.
    pub const NO_BLOCK: u32 = u32::MAX;
}

/// Counts since the start. They include the chunks of every good block, and every fault under its name.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct ChunkReport {
    /// Blocks, good and damaged.
    pub blocks: u64,
    /// Complete chunks.
    pub chunks: u64,
    /// Complete chunks that consist of several pieces.
    pub scattered: u64,
    /// Out-of-band signals.
    pub signals: u64,
    /// Blocks that are missing by the sequence numbers, for all e-links: modulo 32 for each gap.
    pub blocks_missing: u64,
    /// Damaged blocks, in the order of [`BlockError::ALL`].
    pub block_errors: [u64; BlockError::ALL.len()],
    /// Chunks that were given up, in the order of [`ChunkError::ALL`]. Every sequence gap counts, whether a chunk was
    /// open or not.
    pub chunk_errors: [u64; ChunkError::ALL.len()],
    /// Complete chunks with a flag, in the order of the flag bits.
    pub flagged: [u64; 5],
}

impl ChunkReport {
    #[cold]
    fn count_status(&mut self, status: Status) {
        for (bit, count) in self.flagged.iter_mut().enumerate() {
            *count += u64::from(status.0 >> bit & 1);
        }
    }

    #[inline]
    fn count_error(&mut self, error: ChunkError) {
        self.chunk_errors[error as usize] += 1;
    }
}
