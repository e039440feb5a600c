//! How large chunks are, and what is in them.

use crate::source::Random;
use ropewalk_wire::felix::ELink;

/// The distribution of the bytes of a chunk.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum ChunkSize {
    /// Always the same.
    Fixed(u32),
    /// Every length between the two is equally likely.
    Uniform {
        /// The shortest.
        least: u32,
        /// The longest.
        most: u32,
    },
    /// Short ones are the most frequent.
    Exponential {
        /// The mean.
        mean: u32,
    },
    /// The logarithm is normally distributed.
    Lognormal {
        /// The mean of the lengths (not of their logarithms).
        mean: u32,
        /// The deviation of the natural logarithm.
        sigma: f64,
    },
}

impl ChunkSize {
    /// The longest chunk of an emulated card, in bytes.
    pub const LARGEST: u32 = 1 << 20;

    /// The next length, at most [`Self::LARGEST`].
    pub fn next(self, random: &mut Random) -> u32 {
        let bytes = match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { least, most } => least + random.below(u64::from(most.saturating_sub(least)) + 1) as u32,
            Self::Exponential { mean } => random.exponential(f64::from(mean)) as u32,
            Self::Lognormal { mean, sigma } => {
                let location = f64::from(mean).ln() - sigma * sigma / 2.0;
                (location + sigma * random.normal()).exp() as u32
            }
        };
        bytes.min(Self::LARGEST)
    }
}

/// Bytes of a chunk's head: its number (8 bytes) and its e-link (2 bytes), both little-endian.
pub const CHUNK_HEAD_BYTES: usize = 10;

/// Makes the bytes of a chunk: its head, then bytes that follow from it. A short chunk has as much as fits.
pub fn chunk_bytes(elink: ELink, number: u64, length: usize, chunk: &mut Vec<u8>) {
    chunk.clear();
    chunk.extend_from_slice(&number.to_le_bytes());
    chunk.extend_from_slice(&elink.number().to_le_bytes());
    let mut filler = Random::new(number, u64::from(elink.number()));
    while chunk.len() < length {
        chunk.extend_from_slice(&filler.next_u64().to_le_bytes());
    }
    chunk.truncate(length);
}

/// The number and the e-link that a chunk tells; nothing where it is shorter than its head.
pub fn read_chunk_head(chunk: &[u8]) -> Option<(u64, ELink)> {
    let (number, rest) = chunk.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), ELink::new(u16::from_le_bytes(*rest.first_chunk()?))))
}
