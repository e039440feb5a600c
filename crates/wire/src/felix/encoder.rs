//! Chunks, signals and time-outs of one e-link into blocks.

use super::{BlockFormat, BlockHeader, ELink, HEADER_BYTES, SEQUENCES, Status, SubChunkType, Trailer};

/// Packs what one e-link says into blocks, as a link card does. Blocks that are full are appended to the `out` of each
/// call; the one that is being filled stays here. Allocates only where `out` grows.
#[derive(Clone, Debug)]
pub struct Encoder {
    format: BlockFormat,
    header: BlockHeader,
    /// The block that is being filled. It has its header from the beginning, and room for a trailer at least.
    block: Vec<u8>,
}

impl Encoder {
    /// An e-link whose first block is number 0.
    pub fn new(format: BlockFormat, elink: ELink) -> Self {
        let mut block = Vec::with_capacity(format.block_bytes());
        let header = BlockHeader { elink, sequence: 0 };
        block.extend_from_slice(&header.to_bytes(format));
        Self { format, header, block }
    }

    /// The kind of its blocks.
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// The header of the block that is being filled.
    pub const fn header(&self) -> BlockHeader {
        self.header
    }

    /// Bytes that are left in the block that is being filled, trailers included.
    pub fn room(&self) -> usize {
        self.format.block_bytes() - self.block.len()
    }

    /// Whether nothing is in the block that is being filled.
    pub fn is_empty(&self) -> bool {
        self.block.len() == HEADER_BYTES
    }

    /// Gives the block that is being filled another number: blocks before it will seem to be missing.
    pub fn set_sequence(&mut self, sequence: u8) {
        self.header.sequence = sequence % SEQUENCES;
        self.block[..HEADER_BYTES].copy_from_slice(&self.header.to_bytes(self.format));
    }

    /// A chunk, in as many blocks as it takes. Its flags stand in its last trailer; with [`Status::TIMED_OUT`] that is
    /// a time-out trailer, and [`Status::TRUNCATED`] is set as well.
    pub fn chunk(&mut self, mut chunk: &[u8], status: Status, out: &mut Vec<u8>) {
        let (mut whole, mut next) = (SubChunkType::Both, SubChunkType::First);
        while self.room() < self.padded(chunk.len()) + self.format.trailer_bytes() {
            let bytes = self.room() - self.format.trailer_bytes();
            if bytes == 0 {
                self.null(out);
                continue;
            }
            let (piece, rest) = chunk.split_at(bytes);
            self.sub_chunk(Trailer::new(next, bytes as u16, Status::GOOD), piece, out);
            (chunk, whole, next) = (rest, SubChunkType::Last, SubChunkType::Middle);
        }
        let length = chunk.len() as u16;
        let trailer = if status.has(Status::TIMED_OUT) {
            Trailer::new(SubChunkType::Timeout, length, status.and(Status::TRUNCATED))
        } else {
            Trailer::new(whole, length, status)
        };
        self.sub_chunk(trailer, chunk, out);
    }

    /// A signal of 13 bits, or of 29 where trailers have 32.
    pub fn out_of_band(&mut self, signal: u32, out: &mut Vec<u8>) {
        self.sub_chunk(Trailer::out_of_band(signal, self.format), &[], out);
    }

    /// A null trailer.
    pub fn null(&mut self, out: &mut Vec<u8>) {
        self.sub_chunk(Trailer::new(SubChunkType::Null, 0, Status::GOOD), &[], out);
    }

    /// Fills the block up with null trailers; no block of nulls alone is written.
    pub fn flush(&mut self, out: &mut Vec<u8>) {
        if !self.is_empty() {
            self.block.resize(self.format.block_bytes(), 0);
            self.finish(out);
        }
    }

    /// Nothing came for a while: the rest of the block is filler behind which a time-out trailer stands. No block of
    /// filler alone is written.
    pub fn time_out(&mut self, out: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        let filler = self.room() - self.format.trailer_bytes();
        self.block.resize(self.block.len() + filler, 0);
        self.trailer(Trailer::new(SubChunkType::Timeout, filler as u16, Status::GOOD));
        self.finish(out);
    }

    /// Any sub-chunk, whether it makes sense or not: faults are made with it. Does not fit: the block before it is
    /// filled up with null trailers.
    ///
    /// # Panics
    /// If no block has room for the data.
    pub fn sub_chunk(&mut self, trailer: Trailer, data: &[u8], out: &mut Vec<u8>) {
        let bytes = self.padded(data.len()) + self.format.trailer_bytes();
        assert!(bytes <= self.format.block_bytes() - HEADER_BYTES, "a sub-chunk is smaller than a block");
        if bytes > self.room() {
            self.flush(out);
        }
        self.block.extend_from_slice(data);
        self.block.resize(self.block.len() + self.padded(data.len()) - data.len(), 0);
        self.trailer(trailer);
        if self.room() == 0 {
            self.finish(out);
        }
    }

    fn padded(&self, bytes: usize) -> usize {
        bytes.next_multiple_of(self.format.trailer_bytes())
    }

    fn trailer(&mut self, trailer: Trailer) {
        let word = trailer.to_word(self.format).to_le_bytes();
        self.block.extend_from_slice(&word[word.len() - self.format.trailer_bytes()..]);
    }

    /// The block is full: out with it, and the next one begins.
    fn finish(&mut self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.block.len(), self.format.block_bytes());
        out.extend_from_slice(&self.block);
        self.block.truncate(HEADER_BYTES);
        self.set_sequence(self.header.sequence + 1);
    }
}
