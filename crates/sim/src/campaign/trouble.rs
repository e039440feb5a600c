//! What can be wrong with what an e-link brings.

use super::fault_kind::FaultKind;
use ropewalk_wire::felix::{BlockFormat, HEADER_BYTES, Status, SubChunkType, Trailer};
use std::fmt;

/// Something that is wrong with what an e-link brings.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// It is dead until the fault is over: what is triggered meanwhile never comes, and the numbers go on.
    Dies,
    /// It stops within a chunk, of which a piece is in a block that has left, and goes on when the fault is over.
    Stalls,
    /// Its next blocks, so many, do not reach the ring.
    LosesBlocks(u64),
    /// Its next block is damaged.
    DamagesBlock(Damage),
    /// Its next chunk has this flag; one that was truncated or timed out is cut to half of its length.
    Flags(Status),
    /// Its next chunk begins and never ends.
    NeverEnds,
    /// Its next chunk ends without having begun.
    NeverBegins,
    /// Its next chunk is larger than any may be.
    Oversize,
}

/// What is wrong with a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Damage {
    /// It does not begin with its symbol.
    StartOfBlock,
    /// Its last trailer has the type that no card writes.
    Undefined,
    /// Its last trailer's length ends inside the header.
    Padding,
    /// Its last trailer's length ends before the header.
    PastHeader,
}

impl Damage {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::StartOfBlock, Self::Undefined, Self::Padding, Self::PastHeader];

    /// Damages a whole block.
    pub(super) fn strike(self, block: &mut [u8], format: BlockFormat) {
        let length = |bytes: usize| Trailer::new(SubChunkType::Both, bytes.min(0xffff) as u16, Status::GOOD);
        let trailer = match self {
            Self::StartOfBlock => return block[..HEADER_BYTES].iter_mut().for_each(|byte| *byte ^= 0xff),
            Self::Undefined => Trailer::new(SubChunkType::Undefined, 0, Status::GOOD),
            Self::Padding => length(format.block_bytes() - HEADER_BYTES),
            Self::PastHeader => length(if format.trailer_bytes() == 2 { 0x3ff } else { 0xffff }),
        };
        let word = trailer.to_word(format).to_le_bytes();
        let bytes = &word[word.len() - format.trailer_bytes()..];
        let end = block.len();
        block[end - bytes.len()..].copy_from_slice(bytes);
    }
}

impl Trouble {
    /// Its row in the table of faults.
    pub const fn kind(self) -> FaultKind {
        match self {
            Self::Dies => FaultKind::LinkDies,
            Self::Stalls => FaultKind::LinkStalls,
            Self::LosesBlocks(_) => FaultKind::BlockLost,
            Self::DamagesBlock(_) => FaultKind::BlockDamaged,
            Self::Flags(Status::BUSY) => FaultKind::ChunkBusy,
            Self::Flags(Status::CRC) => FaultKind::ChunkCrc,
            Self::Flags(Status::ERROR) => FaultKind::ChunkError,
            Self::Flags(Status::TRUNCATED) => FaultKind::ChunkTruncated,
            Self::Flags(_) => FaultKind::ChunkTimedOut,
            Self::NeverEnds => FaultKind::ChunkNeverEnds,
            Self::NeverBegins => FaultKind::ChunkNeverBegins,
            Self::Oversize => FaultKind::ChunkOversize,
        }
    }

    /// Whether it lasts.
    pub const fn is_lasting(self) -> bool {
        matches!(self, Self::Dies | Self::Stalls)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LosesBlocks(count) => write!(out, "{count} blocks"),
            Self::DamagesBlock(damage) => write!(out, "{damage:?}"),
            _ => Ok(()),
        }
    }
}
