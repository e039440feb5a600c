//! What a decoder has seen.

use ropewalk_wire::felix::{BlockError, ChunkError, ELink, Status};

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
    /// Whether a chunk was lost of which something had come. Of a sequence gap where none was open nobody knows what it
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
    /// Damaged blocks of one kind.
    pub const fn of_block_error(&self, error: BlockError) -> u64 {
        self.block_errors[error as usize - 1]
    }

    /// Chunks that were given up for one reason.
    pub const fn of_chunk_error(&self, error: ChunkError) -> u64 {
        self.chunk_errors[error as usize]
    }

    /// Chunks that came out with this flag.
    pub const fn of_status(&self, flag: Status) -> u64 {
        self.flagged[flag.0.trailing_zeros() as usize]
    }

    #[cold]
    pub(super) fn count_status(&mut self, status: Status) {
        for (bit, count) in self.flagged.iter_mut().enumerate() {
            *count += u64::from(status.0 >> bit & 1);
        }
    }

    #[inline]
    pub(super) fn count_error(&mut self, error: ChunkError) {
        self.chunk_errors[error as usize] += 1;
    }
}
