//! One block: its header, the view over its bytes, and how a fragment is cut into blocks.

use super::{HEADER_BYTES, MAX_PAYLOAD_BYTES};
use core::ops::Range;
use ropewalk_terms::{Cause, SourceId};

const SIGNATURE: u64 = 0x475A;
const WORD_BYTES: usize = 8;

/// Packet numbers are counted modulo this.
pub(super) const PACKET_NUMBERS: u16 = 1 << 11;

/// Why no block begins here. The boundary of the next block cannot be known then.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BlockError {
    /// The bytes do not begin with a block's signature.
    #[error("no FEROL block begins here (wrong signature)")]
    Signature,
    /// The block is empty or longer than blocks may be.
    #[error("the FEROL block states an impossible length")]
    Length,
}

impl BlockError {
    /// The name under which the ledger counts it.
    pub const fn cause(self) -> Cause {
        Cause::FramingLost
    }
}

/// The header of a block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// The bytes of the fragment in this block: a multiple of 8, from 8 to [`MAX_PAYLOAD_BYTES`].
    pub payload_bytes: u16,
    /// Whether the fragment begins in this block.
    pub first: bool,
    /// Whether the fragment ends in this block.
    pub last: bool,
    /// The block's number within its fragment, from 0, modulo 2^11.
    pub packet: u16,
    /// The FED id (12 bits).
    pub source: SourceId,
    /// The event number (24 bits), the same as the L1 id in the fragment.
    pub event_number: u32,
}

impl BlockHeader {
    /// Decodes a header. Bits without a name are ignored.
    ///
    /// # Errors
    /// Where no block begins, or its length is impossible: the stream's framing is lost.
    pub const fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BlockError> {
        let both = u128::from_be_bytes(*bytes);
        let (word0, word1) = ((both >> 64) as u64, both as u64);
        if word0 >> 48 != SIGNATURE {
            return Err(BlockError::Signature);
        }
        let payload_bytes = (word0 & 0x3FF) as usize * WORD_BYTES;
        if payload_bytes == 0 || payload_bytes > MAX_PAYLOAD_BYTES {
            return Err(BlockError::Length);
        }
        Ok(Self {
            payload_bytes: payload_bytes as u16,
            first: word0 >> 31 & 1 == 1,
            last: word0 >> 30 & 1 == 1,
            packet: (word0 >> 32) as u16 & (PACKET_NUMBERS - 1),
            source: SourceId((word1 >> 48 & 0xFFF) as u32),
            event_number: (word1 & 0xFF_FFFF) as u32,
        })
    }

    /// Whether a header can begin with these bytes: what a stream is not shows sooner than what it is.
    pub fn may_begin_with(bytes: &[u8]) -> bool {
        let signature = (SIGNATURE as u16).to_be_bytes();
        bytes.iter().zip(signature).all(|(&byte, expected)| byte == expected)
    }

    /// Encodes the header. What does not fit into a field is cut off.
    pub const fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let word0 = SIGNATURE << 48
            | ((self.packet & (PACKET_NUMBERS - 1)) as u64) << 32
            | (self.first as u64) << 31
            | (self.last as u64) << 30
            | (self.payload_bytes as usize / WORD_BYTES) as u64 & 0x3FF;
        let word1 = (self.source.0 as u64 & 0xFFF) << 48 | self.event_number as u64 & 0xFF_FFFF;
        ((word0 as u128) << 64 | word1 as u128).to_be_bytes()
    }

    /// Bytes of the whole block, header included.
    pub const fn block_bytes(&self) -> usize {
        HEADER_BYTES + self.payload_bytes as usize
    }
}

/// A view over the first block of some bytes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Block<'a> {
    /// The block's header.
    pub header: BlockHeader,
    /// The piece of the fragment.
    pub payload: &'a [u8],
}

impl<'a> Block<'a> {
    /// The block that `bytes` begin with, and the bytes behind it; nothing while some of the block is missing.
    ///
    /// # Errors
    /// As [`BlockHeader::parse`].
    pub fn split_first(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, BlockError> {
        let Some((header, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let header = BlockHeader::parse(header)?;
        Ok(rest
            .split_at_checked(usize::from(header.payload_bytes))
            .map(|(payload, rest)| (Self { header, payload }, rest)))
    }
}

/// The blocks of a fragment of `length` bytes: each with its header and the part of the fragment that it carries.
///
/// A length that is no multiple of 8 is taken as the next lower one: FED fragments are whole words.
pub fn blocks_of(
    length: usize,
    source: SourceId,
    event_number: u32,
) -> impl ExactSizeIterator<Item = (BlockHeader, Range<usize>)> {
    let length = length / WORD_BYTES * WORD_BYTES;
    let blocks = length.div_ceil(MAX_PAYLOAD_BYTES);
    (0..blocks).map(move |index| {
        let start = index * MAX_PAYLOAD_BYTES;
        let end = length.min(start + MAX_PAYLOAD_BYTES);
        let header = BlockHeader {
            payload_bytes: (end - start) as u16,
            first: index == 0,
            last: index + 1 == blocks,
            packet: (index % usize::from(PACKET_NUMBERS)) as u16,
            source,
            event_number,
        };
        (header, start..end)
    })
}

/// Appends a whole FED fragment to `out` as blocks.
pub fn encode_fragment(fragment: &[u8], source: SourceId, event_number: u32, out: &mut Vec<u8>) {
    for (header, range) in blocks_of(fragment.len(), source, event_number) {
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(&fragment[range]);
    }
}
