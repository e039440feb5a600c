//! FELIX blocks in, chunks out, without a copy: the machine between a link card's buffer and the consumers of its
//! chunks.
//!
//! ```text
//!  blocks of the card's buffer --> ChunkDecoder --> ChunkBatch: runs       whose chunks, and which
//!       |    (a walk by wire, then one Assembly per e-link)     items      short chunks; where scattered ones stand
//!       |                                                       scattered  a range of pieces
//!       |                                                       pieces     position and length in the card's stream
//! ```
//! `CardInput` is all of that over one ring of memory, up to the fragments that a readout unit takes: an `EventRule`
//! finds the event's number in a chunk, whose bytes stay where the card wrote them. A `Listener` gets the same batches.
//!
//! As in paper 4 (section 2.4) a *short* chunk is one piece, described by 8 bytes where the walk put them; a
//! *scattered* one is a range in a flat array of pieces. All arrays are made at the start and used again.
//!
//! Places are *positions*: bytes that the card wrote before, since it began. The owner of the buffer turns them into
//! addresses (position modulo its size), the machine never does.

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

/// What a [`ChunkDecoder`] is to be. All room is got at the start.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ChunkConfig {
    /// The kind of its blocks.
    pub format: BlockFormat,
    /// The most blocks of a batch, at least 1. What a batch of 32 blocks of 1 KiB needs and gives stays in
    /// the first cache, while its lines go by.
    pub blocks_per_batch: usize,
    /// The most bytes of a chunk. Larger ones are given up.
    pub most_chunk_bytes: u64,
    /// The most pieces, between the first and the last one, of all chunks that are open at once; at least 1, and 24
    /// bytes each. Chunks beyond are given up.
    pub open_pieces: usize,
}

impl ChunkConfig {
    /// The longest chunk by default, in bytes.
    pub const USUAL_MOST_BYTES: u64 = 1 << 20;

    /// Batches of 32 blocks, or of 64 KiB if that is less, chunks of up to [`Self::USUAL_MOST_BYTES`], and room for 64 open
    /// chunks of that size.
    pub const fn new(format: BlockFormat) -> Self {
        Self::with_most(format, Self::USUAL_MOST_BYTES)
    }

    /// The same for chunks of up to `most_chunk_bytes`.
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
    /// Where it begins, in the card's stream.
    pub position: u64,
    /// Its bytes, without padding.
    pub length: u32,
}

/// A chunk of several pieces.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Scattered {
    /// Bytes of all pieces.
    pub bytes: u64,
    /// Its first piece in the batch's array, and how many there are.
    pub first: u32,
    /// How many pieces it has: one at least.
    pub pieces: u32,
    /// All flags of its pieces.
    pub status: Status,
}

/// What one block brought: neighbours in the array of items, all of one e-link.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// The first item.
    pub first: u32,
    /// How many items.
    pub count: u16,
    /// From this one on they are whole chunks of one piece and without flags; before it there is anything.
    pub whole_from: u16,
    /// Whose they are.
    pub elink: ELink,
    /// The block that ended them, counted from the batch's beginning.
    pub block: u32,
    /// That block's sequence number.
    pub sequence: u8,
}

/// One item of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Chunk<'a> {
    /// A chunk of one piece.
    Short {
        /// Where it lies.
        piece: Piece,
        /// Its flags.
        status: Status,
    },
    /// A chunk of several pieces.
    Scattered {
        /// Where they lie, in order.
        pieces: &'a [Piece],
        /// Bytes of all of them.
        bytes: u64,
        /// All their flags.
        status: Status,
    },
    /// A signal beside the data.
    Signal(u32),
}

impl Chunk<'_> {
    /// Bytes of the chunk; a signal has none.
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
/// An item is a [`SubChunk`]. Of a short chunk (type `Both`, or `Timeout` with data) it has the offset from the
/// batch's beginning and the trailer; of a scattered one (type `Last`) the offset is a place in [`Self::scattered`];
/// of a signal (type `OutOfBand`) the trailer says all. [`Self::chunks`] says so in words.
#[derive(Clone, Debug)]
pub struct ChunkBatch {
    format: BlockFormat,
    position: u64,
    walked: Walked,
    runs: Filled<Run>,
    scattered: Filled<Scattered>,
    pieces: Filled<Piece>,
    /// The least position of any piece.
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
    /// If it is full: the caller must know the most that can come.
    #[inline]
    fn push(&mut self, item: T) {
        self.items[self.count] = item;
        self.count += 1;
    }
}

impl<T> Filled<T> {
    /// The part that is not filled.
    fn spare(&mut self) -> &mut [T] {
        &mut self.items[self.count..]
    }

    /// So many of the spare ones were filled.
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
    /// Where the batch's first block lies in the card's stream.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Where its last block ends.
    pub fn end(&self) -> u64 {
        self.position + (self.walked.blocks().len() * self.format.block_bytes()) as u64
    }

    /// The least position that anything in the batch refers to: the blocks from there on are needed until the batch
    /// is done with.
    pub const fn needs_from(&self) -> u64 {
        self.needs_from
    }

    /// All blocks, good and damaged, in order.
    pub fn blocks(&self) -> &[BlockWalk] {
        self.walked.blocks()
    }

    /// Blocks that brought something, in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The items of a run, in order.
    #[inline]
    pub fn items(&self, run: &Run) -> &[SubChunk] {
        &self.walked.sub_chunks()[run.first as usize..][..usize::from(run.count)]
    }

    /// The items of a run in two parts: any ones, and behind them only whole chunks of one piece and without flags, for
    /// which nothing needs to be asked.
    #[inline]
    pub fn parts(&self, run: &Run) -> (&[SubChunk], &[SubChunk]) {
        self.items(run).split_at(usize::from(run.whole_from))
    }

    /// The scattered chunks of all runs, in order.
    pub fn scattered(&self) -> &[Scattered] {
        &self.scattered
    }

    /// The pieces of a scattered chunk, in order.
    pub fn pieces(&self, scattered: &Scattered) -> &[Piece] {
        &self.pieces[scattered.first as usize..][..scattered.pieces as usize]
    }

    /// What an item of a run is.
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

    /// Everything, in the order of the blocks, with whose it is.
    pub fn chunks(&self) -> impl Iterator<Item = (ELink, Chunk<'_>)> {
        self.runs.iter().flat_map(|run| self.items(run).iter().map(|&item| (run.elink, self.chunk(item))))
    }
}

/// A chunk that was given up, or pieces of one that were missed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ChunkFault {
    /// Whose chunk it was.
    pub elink: ELink,
    /// Why.
    pub error: ChunkError,
    /// The block in which that showed, counted from its batch's beginning, or [`Self::NO_BLOCK`].
    pub block: u32,
    /// How many items of that block's run are in front of it.
    pub items: u16,
    /// Whether a chunk was lost of which something had come. A sequence gap without an open chunk does not show what it
    /// cost.
    pub was_open: bool,
}

impl ChunkFault {
    /// In place of a block: the chunk did not go on.
    pub const NO_BLOCK: u32 = u32::MAX;
}

/// Counts since the start. Every good block's chunks are in here, and every fault under its name.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct ChunkReport {
    /// Blocks, good and bad.
    pub blocks: u64,
    /// Chunks that came out.
    pub chunks: u64,
    /// Those of them that lie in several pieces.
    pub scattered: u64,
    /// Signals beside the data.
    pub signals: u64,
    /// Blocks that the sequence numbers show to be missing, of all e-links: modulo 32 for each gap.
    pub blocks_missing: u64,
    /// Damaged blocks, in the order of [`BlockError::ALL`].
    pub block_errors: [u64; BlockError::ALL.len()],
    /// Chunks that were given up, in the order of [`ChunkError::ALL`]; of sequence gaps each one counts, whether a
    /// chunk was open or not.
    pub chunk_errors: [u64; ChunkError::ALL.len()],
    /// Chunks that came out with a flag, in the order of their bits.
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
