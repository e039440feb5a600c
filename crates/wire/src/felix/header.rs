//! The four bytes at a block's beginning.

use super::{BlockError, BlockFormat, HEADER_BYTES};

/// How many e-links a card can have.
pub const ELINKS: usize = 1 << 11;

/// Sequence numbers are counted modulo this.
pub const SEQUENCES: u8 = 1 << 5;

/// A stream of chunks: one electrical link of a front end, or one path of an optical link (11 bits).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ELink(u16);

impl ELink {
    /// The e-link with this number, below [`ELINKS`]; what does not fit is cut off.
    #[inline]
    pub const fn new(number: u16) -> Self {
        Self(number & (ELINKS as u16 - 1))
    }

    /// The e-link of an optical link (5 bits), a group (3 bits) and a path (3 bits); what does not fit is cut off.
    pub const fn of(link: u16, group: u16, path: u16) -> Self {
        Self((link & 0x1F) << 6 | (group & 7) << 3 | path & 7)
    }

    /// Its number, below [`ELINKS`].
    #[inline]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The same, to find something in a table.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The optical link.
    pub const fn link(self) -> u16 {
        self.0 >> 6
    }

    /// The group on that link.
    pub const fn group(self) -> u16 {
        self.0 >> 3 & 7
    }

    /// The path in that group.
    pub const fn path(self) -> u16 {
        self.0 & 7
    }
}

impl core::fmt::Display for ELink {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{}", self.0)
    }
}

/// The header of a block.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BlockHeader {
    /// Whose chunks the block carries.
    pub elink: ELink,
    /// Counts the blocks of this e-link from 0, modulo [`SEQUENCES`].
    pub sequence: u8,
}

impl BlockHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// Where it does not have the symbol of this kind of block.
    pub const fn parse(bytes: &[u8; HEADER_BYTES], format: BlockFormat) -> Result<Self, BlockError> {
        let word = u32::from_le_bytes(*bytes);
        if (word >> 16) as u16 != format.symbol() {
            return Err(BlockError::StartOfBlock);
        }
        Ok(Self::of_word(word))
    }

    /// The fields of a header that was checked before.
    #[inline]
    pub const fn of_word(word: u32) -> Self {
        Self { elink: ELink::new(word as u16), sequence: (word >> 11) as u8 & (SEQUENCES - 1) }
    }

    /// Encodes the header.
    pub const fn to_bytes(self, format: BlockFormat) -> [u8; HEADER_BYTES] {
        let fields = self.elink.0 | (self.sequence as u16 & (SEQUENCES as u16 - 1)) << 11;
        ((format.symbol() as u32) << 16 | fields as u32).to_le_bytes()
    }
}
