//! What can go wrong on a card.

use ropewalk_wire::felix::{BlockFormat, HEADER_BYTES, Status, SubChunkType, Trailer};

macro_rules! faults {
    ($($(#[doc = $help:literal])* $name:ident = $text:literal,)*) => {
        /// A fault of an emulated card.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum CardFault { $($(#[doc = $help])* $name),* }

        /// Every fault: first those that strike a chunk, then those that strike a block.
        pub const CARD_FAULTS: &[CardFault] = &[$(CardFault::$name),*];

        impl CardFault {
            /// Its name, which is promised to users.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

faults! {
    /// The chunk is marked: the front end is busy (blocks with 32-bit trailers alone).
    Busy = "busy",
    /// The chunk is marked: the link's checksum is wrong.
    Crc = "crc",
    /// The chunk is marked: the link had an error.
    Error = "error",
    /// The chunk is marked: it was cut off.
    Truncated = "truncated",
    /// The chunk ends with a time-out.
    TimedOut = "timed_out",
    /// The e-link falls silent: the rest of its block is filler behind which a time-out stands.
    Silence = "silence",
    /// The chunk's first piece is missing.
    NoFirst = "no_first",
    /// The chunk's last piece is missing.
    NoLast = "no_last",
    /// The block is not written.
    LostBlock = "lost_block",
    /// The block does not begin with its symbol.
    StartOfBlock = "start_of_block",
    /// A length in the block has the wrong padding.
    Padding = "padding",
    /// A length in the block reaches before its header.
    PastHeader = "past_header",
    /// A trailer in the block has the type that no card writes.
    UndefinedType = "undefined_type",
    /// The block's end is not written: what follows stands elsewhere than it should.
    LostBytes = "lost_bytes",
}

impl CardFault {
    /// Whether it strikes blocks rather than chunks.
    pub const fn strikes_blocks(self) -> bool {
        self as usize >= Self::LostBlock as usize
    }

    /// The flags of a chunk that it strikes.
    pub(super) const fn status(self) -> Status {
        match self {
            Self::Busy => Status::BUSY,
            Self::Crc => Status::CRC,
            Self::Error => Status::ERROR,
            Self::Truncated => Status::TRUNCATED,
            Self::TimedOut => Status::TIMED_OUT.and(Status::TRUNCATED),
            _ => Status::GOOD,
        }
    }

    /// Strikes the whole block that `out` has from `start` on.
    pub(super) fn strike(self, out: &mut Vec<u8>, start: usize, format: BlockFormat) {
        let length = |bytes: usize| Trailer::new(SubChunkType::Both, bytes.min(0xFFFF) as u16, Status::GOOD);
        let trailer = match self {
            Self::StartOfBlock => return out[start + 2..start + HEADER_BYTES].fill(0),
            Self::LostBytes => return out.truncate(start + format.block_bytes() / 2),
            // So long that its data would begin in the header.
            Self::Padding => length(format.block_bytes() - HEADER_BYTES),
            Self::PastHeader => length(if format.trailer_bytes() == 2 { 0x3FF } else { 0xFFFF }),
            Self::UndefinedType => Trailer::new(SubChunkType::Undefined, 0, Status::GOOD),
            _ => return out.truncate(start),
        };
        let word = trailer.to_word(format).to_le_bytes();
        let bytes = &word[word.len() - format.trailer_bytes()..];
        let end = out.len();
        out[end - bytes.len()..].copy_from_slice(bytes);
    }
}

/// How likely each fault is, of each chunk or of each block: 0 at first.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub struct CardFaults([f64; CARD_FAULTS.len()]);

impl CardFaults {
    /// Sets the likelihood of a fault, 0 to 1.
    pub fn set(&mut self, fault: CardFault, likelihood: f64) {
        self.0[fault as usize] = likelihood.clamp(0.0, 1.0);
    }

    /// The likelihood of a fault.
    pub const fn of(&self, fault: CardFault) -> f64 {
        self.0[fault as usize]
    }
}
