//! What stands in an emulated chunk, so that a mix-up shows in its bytes.
//!
//! ```text
//!  0 u32 number of the event    4 u32 source    8 u64 words: source, event and place    (little-endian)
//! ```

use ropewalk_terms::SourceId;

/// Bytes of a chunk's head: its number and its source. A shorter chunk has as much of it as fits.
pub const CHUNK_HEAD_BYTES: usize = 8;

/// Whose chunk it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ChunkOrigin {
    /// The source.
    pub source: SourceId,
    /// The event's number, modulo 2^32.
    pub number: u32,
}

impl ChunkOrigin {
    /// The bytes of the chunk from `8 * index` on.
    const fn word(self, index: usize) -> [u8; 8] {
        let word = match index {
            0 => (self.source.0 as u64) << 32 | self.number as u64,
            _ => ((self.source.0 as u64) << 48) ^ ((self.number as u64) << 16) ^ (index as u64 - 1),
        };
        word.to_le_bytes()
    }

    /// Fills a chunk of any length.
    pub fn fill(self, chunk: &mut [u8]) {
        for (index, place) in chunk.chunks_mut(8).enumerate() {
            place.copy_from_slice(&self.word(index)[..place.len()]);
        }
    }

    /// Whether every byte of a chunk is as it was filled, however much was cut off behind.
    pub fn fills(self, chunk: &[u8]) -> bool {
        chunk.chunks(8).enumerate().all(|(index, place)| *place == self.word(index)[..place.len()])
    }

    /// Whose chunk it is, if it has its head and every byte of it is as it was filled.
    pub fn of(chunk: &[u8]) -> Option<Self> {
        let word = u64::from_le_bytes(*chunk.first_chunk::<CHUNK_HEAD_BYTES>()?);
        let origin = Self { source: SourceId((word >> 32) as u32), number: word as u32 };
        origin.fills(chunk).then_some(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_tells_whose_it_is_unless_a_byte_is_wrong() {
        let origin = ChunkOrigin { source: SourceId(77), number: 0x1234_5678 };
        for length in [8, 9, 16, 61, 1000] {
            let mut chunk = vec![0xaa; length];
            origin.fill(&mut chunk);
            assert_eq!(ChunkOrigin::of(&chunk), Some(origin));
            assert_eq!(ChunkOrigin::of(&chunk[..length / 2 + 4]), Some(origin), "cut");
            chunk[length - 1] ^= 1;
            assert_ne!(ChunkOrigin::of(&chunk), Some(origin));
            assert!(!origin.fills(&chunk));
        }
    }

    #[test]
    fn a_chunk_shorter_than_its_head_has_as_much_as_fits() {
        let origin = ChunkOrigin { source: SourceId(0), number: 0x1234_5678 };
        let mut chunk = [0xaa; 3];
        origin.fill(&mut chunk);
        assert_eq!((chunk, origin.fills(&chunk)), ([0x78, 0x56, 0x34], true));
        assert_eq!(ChunkOrigin::of(&[0; 7]), None);
    }
}
