//! One block, read from its end: trailer by trailer, each step checked.

use super::{BlockError, BlockFormat, BlockHeader, HEADER_BYTES, SubChunk, SubChunkType, Trailer};

/// The sub-chunks of a block, the last one first. Ends with the first sub-chunk, or with an error.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    block: &'a [u8],
    format: BlockFormat,
    header: BlockHeader,
    /// Where the sub-chunk that was read last begins; what is before it is still to be read.
    end: usize,
}

impl<'a> Walk<'a> {
    /// Begins at the end of a block.
    ///
    /// # Errors
    /// If the bytes are not one block of this kind.
    pub fn new(block: &'a [u8], format: BlockFormat) -> Result<Self, BlockError> {
        let header = block.first_chunk().filter(|_| block.len() == format.block_bytes()).ok_or(BlockError::Size)?;
        Ok(Self { block, format, header: BlockHeader::parse(header, format)?, end: block.len() })
    }

    /// The block's header.
    pub const fn header(&self) -> BlockHeader {
        self.header
    }

    /// The sub-chunk that ends at `end`, which is behind the header.
    fn step(&self, end: usize) -> Result<SubChunk, BlockError> {
        let trailer_bytes = self.format.trailer_bytes();
        // Four bytes in any case: before the shortest trailer that can be there lies the header.
        let word = self.block[..end].last_chunk().expect("no block is shorter than its header");
        let trailer = Trailer::of_word(u32::from_le_bytes(*word), self.format);
        if trailer.kind() == SubChunkType::Undefined {
            return Err(BlockError::Undefined);
        }
        let bytes = (trailer.data_bytes() as usize).next_multiple_of(trailer_bytes) + trailer_bytes;
        match end.checked_sub(bytes) {
            None => Err(BlockError::PastHeader),
            Some(start) if start < HEADER_BYTES => Err(BlockError::Padding),
            Some(start) => Ok(SubChunk { offset: start as u32, trailer: trailer.0 }),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<SubChunk, BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.end <= HEADER_BYTES {
            return None;
        }
        let step = self.step(self.end);
        self.end = step.map_or(0, |sub_chunk| sub_chunk.offset as usize);
        Some(step)
    }
}

/// Appends the sub-chunks of one block in the order in which the card wrote them; their offsets count from the
/// block's beginning.
///
/// # Errors
/// If the bytes are not one good block of this kind; then nothing is appended.
pub fn walk(block: &[u8], format: BlockFormat, sub_chunks: &mut Vec<SubChunk>) -> Result<BlockHeader, BlockError> {
    let before = sub_chunks.len();
    let walk = Walk::new(block, format)?;
    let header = walk.header();
    for step in walk {
        match step {
            Ok(sub_chunk) => sub_chunks.push(sub_chunk),
            Err(error) => {
                sub_chunks.truncate(before);
                return Err(error);
            }
        }
    }
    sub_chunks[before..].reverse();
    Ok(header)
}
