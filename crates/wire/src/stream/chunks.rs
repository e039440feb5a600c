//! Chunks in a message: all heads, then all bytes.

use super::{FRAME_BYTES, Frame, Kind};
use crate::felix::{ELink, SEQUENCES, Status};
use crate::frame::FrameError;

/// Bytes of a chunk's head.
pub const CHUNK_HEAD_BYTES: usize = 8;
/// Bytes before the heads: how many there are.
pub const PREFIX_BYTES: usize = 4;
/// The most chunks of a message.
pub const MOST_CHUNKS: usize = 1024;

/// What stands before a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ChunkHead {
    /// Whose chunk it is.
    pub elink: ELink,
    /// The card's flags.
    pub status: Status,
    /// The sequence number of the block in which it ended, modulo [`SEQUENCES`].
    pub sequence: u8,
    /// Its bytes.
    pub length: u32,
}

impl ChunkHead {
    /// Encodes the head.
    pub const fn to_bytes(self) -> [u8; CHUNK_HEAD_BYTES] {
        let ([a, b], [c, d, e, f]) = (self.elink.number().to_le_bytes(), self.length.to_le_bytes());
        [a, b, self.status.0, self.sequence, c, d, e, f]
    }

    /// Reads a head.
    ///
    /// # Errors
    /// [`FrameError::Meaning`] for an e-link, a flag or a sequence number that there cannot be.
    pub fn parse(bytes: &[u8; CHUNK_HEAD_BYTES]) -> Result<Self, FrameError> {
        let [a, b, status, sequence, c, d, e, f] = *bytes;
        let number = u16::from_le_bytes([a, b]);
        let elink = ELink::new(number);
        if elink.number() != number || status >= 2 * Status::TIMED_OUT.0 || sequence >= SEQUENCES {
            return Err(FrameError::Meaning);
        }
        Ok(Self { elink, status: Status(status), sequence, length: u32::from_le_bytes([c, d, e, f]) })
    }
}

/// Bytes that [`encode_heads`] writes for so many chunks.
pub const fn heads_bytes(chunks: usize) -> usize {
    FRAME_BYTES + PREFIX_BYTES + chunks * CHUNK_HEAD_BYTES
}

/// Appends a message of chunks up to where their bytes begin; these follow in the order of the heads.
///
/// # Panics
/// If there are more than [`MOST_CHUNKS`], or more than 4 GiB.
pub fn encode_heads(heads: impl ExactSizeIterator<Item = ChunkHead> + Clone, out: &mut Vec<u8>) {
    let count = heads.len();
    assert!(count <= MOST_CHUNKS, "a message has at most {MOST_CHUNKS} chunks");
    let data: u64 = heads.clone().map(|head| u64::from(head.length)).sum();
    let body = (PREFIX_BYTES + count * CHUNK_HEAD_BYTES) as u64 + data;
    let body = u32::try_from(body).expect("messages are cut long before 4 GiB");
    out.extend_from_slice(&Frame { kind: Kind::Chunks, body }.to_bytes());
    out.extend_from_slice(&(count as u32).to_le_bytes());
    heads.for_each(|head| out.extend_from_slice(&head.to_bytes()));
}

/// A checked view of the heads in the body of a message of chunks; their bytes may come later.
#[derive(Copy, Clone, Debug)]
pub struct ChunksView<'a> {
    heads: &'a [u8],
}

impl<'a> ChunksView<'a> {
    /// How many bytes the prefix and the heads have, from the prefix.
    ///
    /// # Errors
    /// [`FrameError::Long`] where there are more chunks than allowed, or than the body has room for.
    pub fn table_bytes(prefix: [u8; PREFIX_BYTES], body: u32) -> Result<usize, FrameError> {
        let count = u32::from_le_bytes(prefix) as usize;
        let bytes = PREFIX_BYTES + count.min(MOST_CHUNKS) * CHUNK_HEAD_BYTES;
        if count > MOST_CHUNKS || bytes > body as usize { Err(FrameError::Long) } else { Ok(bytes) }
    }

    /// Checks prefix and heads, which `table` must have whole; the body has `body` bytes.
    ///
    /// # Errors
    /// Where a head has no meaning, or the chunks are not as long as the body says.
    pub fn parse(table: &'a [u8], body: u32) -> Result<Self, FrameError> {
        let prefix = table.first_chunk().ok_or(FrameError::Short)?;
        let bytes = Self::table_bytes(*prefix, body)?;
        let heads = table.get(PREFIX_BYTES..bytes).ok_or(FrameError::Short)?;
        let mut total = bytes as u64;
        for head in heads.as_chunks().0 {
            total += u64::from(ChunkHead::parse(head)?.length);
        }
        match total.cmp(&u64::from(body)) {
            core::cmp::Ordering::Less => Err(FrameError::Long),
            core::cmp::Ordering::Greater => Err(FrameError::Short),
            core::cmp::Ordering::Equal => Ok(Self { heads }),
        }
    }

    /// The heads, in the order of the chunks' bytes.
    pub fn heads(&self) -> impl ExactSizeIterator<Item = ChunkHead> + use<'a> {
        let heads = self.heads.as_chunks().0.iter();
        heads.map(|head| ChunkHead::parse(head).expect("every head was checked when the view was made"))
    }
}
