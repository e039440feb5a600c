//! Why a block or a chunk is given up.

use ropewalk_terms::Cause;

/// Why nothing of a block is believed. It costs its own chunks and the one that it interrupts; the next block of the
/// e-link goes on.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[repr(u8)]
pub enum BlockError {
    /// There are fewer or more bytes than a block has.
    #[error("the block does not have the size of its kind")]
    Size = 1,
    /// The block does not begin with the symbol of its kind.
    #[error("the block does not begin with its start-of-block symbol")]
    StartOfBlock = 2,
    /// The first sub-chunk begins inside the header: a length was padded too far, or not in whole trailers.
    #[error("the walk ends inside the header: a length has the wrong padding")]
    Padding = 3,
    /// The first sub-chunk begins before the header.
    #[error("the trailer walk goes past the header")]
    PastHeader = 4,
    /// A trailer has the type that no card writes.
    #[error("a trailer has the undefined type")]
    Undefined = 5,
}

impl BlockError {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Size, Self::StartOfBlock, Self::Padding, Self::PastHeader, Self::Undefined];

    /// The error with this number, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        if number > 0 && (number as usize) <= Self::ALL.len() { Some(Self::ALL[number as usize - 1]) } else { None }
    }

    /// The name that is promised to users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "block_size",
            Self::StartOfBlock => "start_of_block",
            Self::Padding => "padding",
            Self::PastHeader => "past_header",
            Self::Undefined => "undefined_type",
        }
    }

    /// The name under which the ledger counts it.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Padding | Self::PastHeader => Cause::LengthMismatch,
            Self::Size | Self::StartOfBlock | Self::Undefined => Cause::Malformed,
        }
    }
}

/// Why a chunk is given up.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[repr(u8)]
pub enum ChunkError {
    /// Blocks of the e-link are missing.
    #[error("the e-link's sequence has a gap")]
    SequenceGap = 0,
    /// The block that carried its continuation was damaged.
    #[error("the block that continued the chunk was damaged")]
    Damaged = 1,
    /// A middle or last piece comes without a first one.
    #[error("the chunk never began")]
    NoFirst = 2,
    /// The next chunk begins before this one ended.
    #[error("the next chunk begins before this one ended")]
    NoLast = 3,
    /// The chunk is larger than allowed, or lies in more pieces.
    #[error("the chunk is larger than allowed")]
    Oversize = 4,
    /// Its blocks were wanted back before it ended.
    #[error("the chunk's blocks were needed before it ended")]
    Stalled = 5,
}

impl ChunkError {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::SequenceGap, Self::Damaged, Self::NoFirst, Self::NoLast, Self::Oversize, Self::Stalled];

    /// The name that is promised to users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SequenceGap => "sequence_gap",
            Self::Damaged => "damaged",
            Self::NoFirst => "no_first",
            Self::NoLast => "no_last",
            Self::Oversize => "oversize",
            Self::Stalled => "stalled",
        }
    }

    /// The name under which the ledger counts it.
    pub const fn cause(self) -> Cause {
        match self {
            Self::SequenceGap | Self::Damaged | Self::NoLast => Cause::CutShort,
            Self::NoFirst => Cause::Malformed,
            Self::Oversize => Cause::Oversize,
            Self::Stalled => Cause::TimedOut,
        }
    }
}
