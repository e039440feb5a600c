//! The stages of the paper (section 2.4, figure 6), as a programmer would write them, and ours.
//!
//! All decode the same blocks to the same chunks. Each reads its whole output, and returns the number of chunks and the
//! sum of the offsets and lengths of their pieces.

use super::blocks::{BLOCK, FORMAT};
use ropewalk_flow::readout::felix::{ChunkConfig, ChunkDecoder, Piece};
use ropewalk_wire::felix::{BlockHeader, ELINKS, ELink, HEADER_BYTES, SubChunkType, Trailer};

/// The way to decode blocks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// A stack of sub-chunks, and vectors that grow.
    Baseline,
    /// No allocation, and no stack for whole chunks.
    Optimized,
    /// A separate data type for chunks of one piece.
    NewDataType,
    /// Ours: the machine of `flow::readout::felix`.
    Ours,
    /// Ours with the scalar walk.
    OursScalar,
}

/// The result: the number of chunks, and the sum over their pieces.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Sum {
    pub(super) chunks: u64,
    pub(super) pieces: u64,
}

impl Sum {
    #[inline]
    fn add(&mut self, piece: Piece) {
        self.pieces = self.pieces.wrapping_add(piece.position ^ u64::from(piece.length) << 40);
    }
}

/// Bytes of blocks between two reads of the output.
const BATCH: usize = 64 << 10;

impl Stage {
    pub(super) const ALL: [Self; 5] =
        [Self::Baseline, Self::Optimized, Self::NewDataType, Self::Ours, Self::OursScalar];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Optimized => "optimized",
            Self::NewDataType => "optimized, new data type",
            Self::Ours => "ours",
            Self::OursScalar => "ours, scalar",
        }
    }

    /// Decodes all blocks.
    pub(super) fn decode(self, bytes: &[u8]) -> Sum {
        match self {
            Self::Baseline => baseline(bytes),
            Self::Optimized => Plain::<false>::new().decode(bytes),
            Self::NewDataType => Plain::<true>::new().decode(bytes),
            Self::Ours => ours(ChunkDecoder::new(ChunkConfig::new(FORMAT)), bytes),
            Self::OursScalar => {
                let scalar = ropewalk_wire::felix::Walker::all(FORMAT.layout()).pop().expect("there is a scalar walk");
                ours(ChunkDecoder::with_walker(ChunkConfig::new(FORMAT), scalar), bytes)
            }
        }
    }
}

fn ours(mut decoder: ChunkDecoder, bytes: &[u8]) -> Sum {
    let (mut sum, mut position) = (Sum::default(), 0);
    while position < bytes.len() {
        let taken = decoder.decode(&bytes[position..], position as u64);
        if taken == 0 {
            break;
        }
        let batch = decoder.batch();
        let base = position as u64;
        for run in batch.runs() {
            let (any, whole) = batch.parts(run);
            sum.chunks += u64::from(run.count);
            for item in any {
                let trailer = Trailer(item.trailer);
                if trailer.kind() == SubChunkType::Last {
                    let scattered = batch.scattered()[item.offset as usize];
                    batch.pieces(&scattered).iter().for_each(|&piece| sum.add(piece));
                } else {
                    sum.add(Piece { position: base + u64::from(item.offset), length: trailer.data_bytes() });
                }
            }
            for item in whole {
                sum.add(Piece { position: base + u64::from(item.offset), length: Trailer(item.trailer).length() });
            }
        }
        position += taken;
    }
    sum
}

/// A trailer and its data; `end` is the offset after the trailer.
#[inline]
fn trailer_before(block: &[u8], end: usize) -> (SubChunkType, Piece) {
    let trailer = Trailer::of_word(u32::from(u16::from_le_bytes([block[end - 2], block[end - 1]])) << 16, FORMAT);
    let length = trailer.data_bytes();
    let start = end.saturating_sub(2 + (length as usize).next_multiple_of(2));
    (trailer.kind(), Piece { position: start as u64, length })
}

/// The obvious way to write it: per block a stack of its sub-chunks, per chunk a vector of its pieces.
fn baseline(bytes: &[u8]) -> Sum {
    let mut open: Vec<Vec<Piece>> = vec![Vec::new(); ELINKS];
    let mut sum = Sum::default();
    for (index, batch) in bytes.chunks(BATCH).enumerate() {
        let mut chunks: Vec<Vec<Piece>> = Vec::new();
        for (number, block) in batch.chunks_exact(BLOCK).enumerate() {
            let base = (index * BATCH + number * BLOCK) as u64;
            let header = BlockHeader::parse(&[block[0], block[1], block[2], block[3]], FORMAT);
            let Ok(header) = header else { continue };
            let mut stack = Vec::new();
            let mut end = BLOCK;
            while end > HEADER_BYTES {
                let (kind, piece) = trailer_before(block, end);
                end = piece.position as usize;
                stack.push((kind, Piece { position: base + piece.position, length: piece.length }));
            }
            let open = &mut open[header.elink.index()];
            while let Some((kind, piece)) = stack.pop() {
                match kind {
                    SubChunkType::Both => chunks.push(vec![piece]),
                    SubChunkType::First => *open = vec![piece],
                    SubChunkType::Middle => open.push(piece),
                    SubChunkType::Last => {
                        open.push(piece);
                        chunks.push(std::mem::take(open));
                    }
                    _ => {}
                }
            }
        }
        sum.chunks += chunks.len() as u64;
        chunks.iter().flatten().for_each(|&piece| sum.add(piece));
    }
    sum
}

/// Pieces that a chunk can hold without another allocation.
const FEW: usize = 6;

/// A list of pieces that is reused.
#[derive(Clone, Debug, Default)]
struct Pieces {
    few: [Piece; FEW],
    count: usize,
    more: Vec<Piece>,
}

impl Pieces {
    #[inline]
    fn clear(&mut self) {
        self.count = 0;
        self.more.clear();
    }

    #[inline]
    fn push(&mut self, piece: Piece) {
        if self.count < FEW {
            self.few[self.count] = piece;
            self.count += 1;
        } else {
            self.more.push(piece);
        }
    }

    #[inline]
    fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.few[..self.count].iter().chain(&self.more)
    }
}

/// The paper's optimisations: all memory reserved beforehand, whole chunks without the stack. With `SHORT`, whole
/// chunks have their own data type; without it, they are lists of one piece.
pub(super) struct Plain<const SHORT: bool> {
    open: Vec<Pieces>,
    stack: Vec<(SubChunkType, Piece)>,
    short: Vec<Piece>,
    chunks: Vec<Pieces>,
    /// The number of chunks in use.
    filled: usize,
}

impl<const SHORT: bool> Plain<SHORT> {
    pub(super) fn new() -> Self {
        let most = BATCH / 2;
        Self {
            open: vec![Pieces::default(); ELINKS],
            stack: Vec::with_capacity(BLOCK),
            short: Vec::with_capacity(most),
            chunks: vec![Pieces::default(); most],
            filled: 0,
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> Sum {
        let mut sum = Sum::default();
        for (index, batch) in bytes.chunks(BATCH).enumerate() {
            for (number, block) in batch.chunks_exact(BLOCK).enumerate() {
                self.block(block, (index * BATCH + number * BLOCK) as u64);
            }
            self.sum(&mut sum);
        }
        sum
    }

    /// Reads the output and clears it.
    pub(super) fn sum(&mut self, sum: &mut Sum) {
        sum.chunks += (self.short.len() + self.filled) as u64;
        self.short.iter().for_each(|&piece| sum.add(piece));
        self.chunks[..self.filled].iter().flat_map(Pieces::iter).for_each(|&piece| sum.add(piece));
        self.short.clear();
        self.filled = 0;
    }

    fn block(&mut self, block: &[u8], base: u64) {
        let header = BlockHeader::parse(&[block[0], block[1], block[2], block[3]], FORMAT);
        let Ok(header) = header else { return };
        let mut end = BLOCK;
        while end > HEADER_BYTES {
            let (kind, piece) = trailer_before(block, end);
            end = piece.position as usize;
            let piece = Piece { position: base + piece.position, length: piece.length };
            match kind {
                SubChunkType::Both if SHORT => self.short.push(piece),
                SubChunkType::Both => {
                    let chunk = &mut self.chunks[self.filled];
                    chunk.clear();
                    chunk.push(piece);
                    self.filled += 1;
                }
                _ => self.stack.push((kind, piece)),
            }
        }
        while let Some((kind, piece)) = self.stack.pop() {
            self.split(header.elink, kind, piece);
        }
    }

    /// Decodes a block whose trailers are in a table, in order.
    pub(super) fn record(&mut self, elink: ELink, trailers: &[[u8; 2]], base: u64) {
        let mut at = HEADER_BYTES as u64;
        for trailer in trailers {
            let trailer = Trailer::of_word(u32::from(u16::from_le_bytes(*trailer)) << 16, FORMAT);
            let (kind, length) = (trailer.kind(), trailer.data_bytes());
            let piece = Piece { position: base + at, length };
            at += u64::from(length).next_multiple_of(2) + 2;
            if kind == SubChunkType::Both {
                self.short.push(piece);
            } else {
                self.split(elink, kind, piece);
            }
        }
    }

    /// Adds a piece of a chunk with several pieces.
    fn split(&mut self, elink: ELink, kind: SubChunkType, piece: Piece) {
        let open = &mut self.open[elink.index()];
        match kind {
            SubChunkType::First => {
                open.clear();
                open.push(piece);
            }
            SubChunkType::Middle => open.push(piece),
            SubChunkType::Last => {
                open.push(piece);
                std::mem::swap(&mut self.chunks[self.filled], open);
                self.filled += 1;
            }
            _ => {}
        }
    }
}
