//! What a batch of blocks decodes to: flat arrays that point into the card's buffer.

use ropewalk_wire::felix::{BlockFormat, BlockWalk, ELink, Status, SubChunk, SubChunkType, Trailer, Walked};

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
    pub(super) format: BlockFormat,
    pub(super) position: u64,
    pub(super) walked: Walked,
    pub(super) runs: Filled<Run>,
    pub(super) scattered: Filled<Scattered>,
    pub(super) pieces: Filled<Piece>,
    /// The least position of any piece.
    pub(super) needs_from: u64,
}

/// An array that is filled from its beginning, again and again, and never grows.
#[derive(Clone, Debug)]
pub(super) struct Filled<T> {
    items: Box<[T]>,
    count: usize,
}

impl<T: Copy + Default> Filled<T> {
    pub(super) fn with_room_for(most: usize) -> Self {
        Self { items: vec![T::default(); most].into(), count: 0 }
    }

    pub(super) const fn clear(&mut self) {
        self.count = 0;
    }

    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// # Panics
    /// If it is full: whoever makes it knows the most that can come.
    #[inline]
    pub(super) fn push(&mut self, item: T) {
        self.items[self.count] = item;
        self.count += 1;
    }
}

impl<T> Filled<T> {
    /// The part that is not filled.
    pub(super) fn spare(&mut self) -> &mut [T] {
        &mut self.items[self.count..]
    }

    /// So many of the spare ones were filled.
    pub(super) const fn fill(&mut self, count: usize) {
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
