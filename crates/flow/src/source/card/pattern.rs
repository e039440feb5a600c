//! What stands in an emulated chunk, so that a mix-up shows in its bytes.
//!
//! ```text
//!  0 u32 number of the event    4 u32 source    8 u64 words: source, event and place    (little-endian)
//! ```

use ropewalk_terms::SourceId;

/// The shortest chunk: its head.
pub const LEAST_CHUNK: usize = 8;

/// Whose chunk it is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ChunkOrigin {
    /// The source.
    pub source: SourceId,
    /// The event's number, modulo 2^32.
    pub number: u32,
}

impl ChunkOrigin {
    const fn word(self, index: usize) -> [u8; 8] {
        (((self.source.0 as u64) << 48) ^ ((self.number as u64) << 16) ^ index as u64).to_le_bytes()
    }
}

/// Fills a chunk of at least [`LEAST_CHUNK`] bytes.
pub fn fill_chunk(origin: ChunkOrigin, chunk: &mut [u8]) {
    let Some((head, words)) = chunk.split_at_mut_checked(LEAST_CHUNK) else { return };
    head[..4].copy_from_slice(&origin.number.to_le_bytes());
    head[4..].copy_from_slice(&origin.source.0.to_le_bytes());
    for (index, place) in words.chunks_mut(8).enumerate() {
        place.copy_from_slice(&origin.word(index)[..place.len()]);
    }
}

/// Whose chunk it is, if every byte of it is as it was filled, however much was cut off behind.
pub fn origin_of_chunk(chunk: &[u8]) -> Option<ChunkOrigin> {
    let (head, words) = chunk.split_first_chunk::<LEAST_CHUNK>()?;
    let word = u64::from_le_bytes(*head);
    let origin = ChunkOrigin { source: SourceId((word >> 32) as u32), number: word as u32 };
    let is_right = |(index, place): (usize, &[u8])| *place == origin.word(index)[..place.len()];
    words.chunks(8).enumerate().all(is_right).then_some(origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_tells_whose_it_is_unless_a_byte_is_wrong() {
        let origin = ChunkOrigin { source: SourceId(77), number: 0x1234_5678 };
        for length in [8, 9, 16, 61, 1000] {
            let mut chunk = vec![0xaa; length];
            fill_chunk(origin, &mut chunk);
            assert_eq!(origin_of_chunk(&chunk), Some(origin));
            assert_eq!(origin_of_chunk(&chunk[..length / 2 + 4]), Some(origin), "cut");
            chunk[length - 1] ^= 1;
            assert_ne!(origin_of_chunk(&chunk), Some(origin));
        }
        assert_eq!(origin_of_chunk(&[0; 7]), None);
    }
}
