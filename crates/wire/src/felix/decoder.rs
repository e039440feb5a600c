//! Blocks of many e-links into chunks with bytes of their own: as plain as it can be.

use super::{
    Assembly, BlockError, BlockFormat, BlockHeader, ChunkError, ELink, Place, Status, SubChunk, Trailer, walk,
};
use std::collections::BTreeMap;

/// What comes out of blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decoded {
    /// A whole chunk.
    Chunk {
        /// Who sent it.
        elink: ELink,
        /// Its bytes.
        bytes: Vec<u8>,
        /// All flags of its pieces.
        status: Status,
    },
    /// A signal beside the data.
    Signal {
        /// Who sent it.
        elink: ELink,
        /// Its 13 or 29 bits.
        signal: u32,
    },
    /// A chunk was given up, or pieces of it were missed.
    ChunkError {
        /// Whose chunk it was.
        elink: ELink,
        /// Why.
        error: ChunkError,
    },
    /// A block was given up, and the chunk that it interrupts with it.
    BlockError(BlockError),
}

/// Decodes blocks one by one and copies the chunks. For tools and tests: what is fast is held against it.
#[derive(Clone, Debug)]
pub struct Decoder {
    format: BlockFormat,
    most_bytes: u64,
    links: BTreeMap<ELink, Link>,
    sub_chunks: Vec<SubChunk>,
}

#[derive(Clone, Debug)]
struct Link {
    assembly: Assembly,
    /// The chunk that is open.
    bytes: Vec<u8>,
}

impl Decoder {
    /// No block was seen yet. Chunks may have `most_bytes` bytes (see [`Assembly::new`]).
    pub fn new(format: BlockFormat, most_bytes: u64) -> Self {
        Self { format, most_bytes, links: BTreeMap::new(), sub_chunks: Vec::new() }
    }

    /// Takes the next block and tells `out` what it brings, in order.
    pub fn block(&mut self, block: &[u8], out: &mut impl FnMut(Decoded)) {
        let mut sub_chunks = core::mem::take(&mut self.sub_chunks);
        sub_chunks.clear();
        match walk(block, self.format, &mut sub_chunks) {
            Ok(header) => self.good_block(header, block, &sub_chunks, out),
            Err(error) => self.damaged_block(block, error, out),
        }
        self.sub_chunks = sub_chunks;
    }

    /// Takes blocks that lie one behind the other; bytes at the end that are no whole block are a damaged one.
    pub fn blocks(&mut self, bytes: &[u8], out: &mut impl FnMut(Decoded)) {
        bytes.chunks(self.format.block_bytes()).for_each(|block| self.block(block, out));
    }

    /// How many e-links are within a chunk: at the end of a stream those chunks are cut short.
    pub fn open_chunks(&self) -> usize {
        self.links.values().filter(|link| link.assembly.is_within()).count()
    }

    fn link(&mut self, elink: ELink) -> &mut Link {
        let assembly = Assembly::new(self.most_bytes);
        self.links.entry(elink).or_insert(Link { assembly, bytes: Vec::new() })
    }

    fn good_block(
        &mut self,
        header: BlockHeader,
        block: &[u8],
        sub_chunks: &[SubChunk],
        out: &mut impl FnMut(Decoded),
    ) {
        let (elink, format) = (header.elink, self.format);
        let link = self.link(elink);
        if link.assembly.begin_block(header) > 0 {
            out(Decoded::ChunkError { elink, error: ChunkError::SequenceGap });
        }
        for sub_chunk in sub_chunks {
            let trailer = Trailer(sub_chunk.trailer);
            let accepted = link.assembly.accept(trailer);
            if let Some(error) = accepted.gives_up {
                out(Decoded::ChunkError { elink, error });
            }
            let start = sub_chunk.offset as usize;
            let data = &block[start..start + trailer.data_bytes() as usize];
            match accepted.place {
                Place::Whole | Place::Begins => link.bytes = data.to_vec(),
                Place::Continues | Place::Ends => link.bytes.extend_from_slice(data),
                Place::Signal => out(Decoded::Signal { elink, signal: trailer.signal(format) }),
                Place::Skipped => {}
            }
            if matches!(accepted.place, Place::Whole | Place::Ends) {
                let bytes = core::mem::take(&mut link.bytes);
                out(Decoded::Chunk { elink, bytes, status: accepted.status });
            }
        }
    }

    fn damaged_block(&mut self, block: &[u8], error: BlockError, out: &mut impl FnMut(Decoded)) {
        out(Decoded::BlockError(error));
        let header = block.first_chunk().filter(|_| error != BlockError::Size);
        if let Some(Ok(header)) = header.map(|header| BlockHeader::parse(header, self.format))
            && let Some(link) = self.links.get_mut(&header.elink)
        {
            let was_within = link.assembly.is_within();
            if link.assembly.damaged_block(header) && was_within {
                out(Decoded::ChunkError { elink: header.elink, error: ChunkError::Damaged });
            }
        }
    }
}
