//! The kinds of blocks, told apart by their start-of-block symbol.

use ropewalk_kernels::felix::Layout;

/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 4;

/// The largest block there can be.
pub const LARGEST_BLOCK_BYTES: usize = 64 << 10;

const NARROW: u16 = 0xABCD;
const WIDE: u16 = 0xABCE;
const SIZED: u16 = 0xC0CE;
const SIZE_BITS: u16 = 0x3F00;

/// Which blocks a card writes: their size, and the size of their trailers.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlockFormat {
    symbol: u16,
}

impl BlockFormat {
    /// 1 KiB with trailers of 16 bits: the blocks of the paper.
    pub const NARROW: Self = Self { symbol: NARROW };
    /// 1 KiB with trailers of 32 bits.
    pub const WIDE: Self = Self { symbol: WIDE };

    /// Trailers of 32 bits and a size of 1 to 64 KiB that the symbol tells; nothing for another size.
    pub const fn sized(kibibytes: u16) -> Option<Self> {
        if kibibytes == 0 || kibibytes as usize > LARGEST_BLOCK_BYTES >> 10 {
            return None;
        }
        Some(Self { symbol: SIZED | (kibibytes - 1) << 8 })
    }

    /// The kind whose blocks begin with this symbol, if there is one.
    pub const fn from_symbol(symbol: u16) -> Option<Self> {
        if symbol == NARROW || symbol == WIDE || symbol & !SIZE_BITS == SIZED { Some(Self { symbol }) } else { None }
    }

    /// The kind of the block that these bytes begin with, if one begins here.
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        let (_, symbol) = bytes.first_chunk::<HEADER_BYTES>()?.split_at(2);
        Self::from_symbol(u16::from_le_bytes([symbol[0], symbol[1]]))
    }

    /// Where in these bytes the first block of this kind begins: a place behind which, as far as the bytes reach,
    /// block follows upon block. For streams that are joined in the middle.
    pub fn find(self, bytes: &[u8]) -> Option<usize> {
        let begins = |&start: &usize| {
            let mut starts = bytes[start..].chunks(self.block_bytes()).filter(|block| block.len() >= HEADER_BYTES);
            starts.all(|block| Self::detect(block) == Some(self))
        };
        (0..self.block_bytes().min(bytes.len().saturating_sub(HEADER_BYTES - 1))).find(begins)
    }

    /// The start-of-block symbol.
    pub const fn symbol(self) -> u16 {
        self.symbol
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        if self.symbol & !SIZE_BITS == SIZED { (((self.symbol & SIZE_BITS) >> 8) as usize + 1) << 10 } else { 1 << 10 }
    }

    /// Bytes of a trailer, 2 or 4. Data are padded to a multiple of it.
    pub const fn trailer_bytes(self) -> usize {
        if self.symbol == NARROW { 2 } else { 4 }
    }

    /// What a [`Walker`](super::Walker) must know.
    pub const fn layout(self) -> Layout {
        Layout { symbol: self.symbol, block_bytes: self.block_bytes(), is_wide: self.trailer_bytes() == 4 }
    }

    /// The most sub-chunks of a block.
    pub const fn most_sub_chunks(self) -> usize {
        (self.block_bytes() - HEADER_BYTES) / self.trailer_bytes()
    }

    /// The most bytes of a chunk in one block.
    pub const fn most_data_bytes(self) -> usize {
        self.block_bytes() - HEADER_BYTES - self.trailer_bytes()
    }
}

impl core::fmt::Display for BlockFormat {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (kibibytes, bits) = (self.block_bytes() >> 10, 8 * self.trailer_bytes());
        write!(out, "{:#06X}: {kibibytes} KiB, trailers of {bits} bits", self.symbol)
    }
}
