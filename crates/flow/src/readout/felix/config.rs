//! How much room a decoder has.

use ropewalk_wire::felix::BlockFormat;

/// What a [`ChunkDecoder`](super::ChunkDecoder) is to be. All room is got at the start.
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
    /// The longest chunk where nobody says anything else, in bytes.
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
