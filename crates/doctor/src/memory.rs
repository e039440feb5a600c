//! Memory rates: reading and copying, far beyond the caches.

use std::hint::black_box;
use std::time::Instant;

/// Default size of one pass of reading or copying, in bytes.
pub const FAR_BEYOND_CACHES: usize = 256 << 20;

/// 10^9 bytes a second that `memcpy` copies (counted once): the best of `passes` over `bytes`.
///
/// Ordinary pages: huge ones give up to 1.6 times that.
pub fn copy_gigabytes_per_second(bytes: usize, passes: u32) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![2u8; bytes]);
    best_of(bytes, passes, || {
        to.copy_from_slice(black_box(&from));
        black_box(&to);
    })
}

/// 10^9 bytes a second when every word is read: the best of `passes` over `bytes`.
pub fn scan_gigabytes_per_second(bytes: usize, passes: u32) -> f64 {
    let words = vec![1u64; bytes / 8];
    best_of(words.len() * 8, passes, || {
        let mut sums = [0u64; 32];
        for chunk in black_box(&words).chunks_exact(32) {
            for (sum, word) in sums.iter_mut().zip(chunk) {
                *sum = sum.wrapping_add(*word);
            }
        }
        black_box(sums);
    })
}

fn best_of(bytes: usize, passes: u32, mut pass: impl FnMut()) -> f64 {
    let timed = (0..passes.max(1)).map(|_| {
        let begin = Instant::now();
        pass();
        bytes as f64 / begin.elapsed().as_nanos().max(1) as f64
    });
    timed.fold(0.0, f64::max)
}

/// The offset of a message in its page: the middle, so that the place of a buffer does not decide a comparison.
///
/// Many processors copy strings of bytes (`rep movsb`, which the kernel uses for sockets) some twenty times more slowly
/// if the destination is 1 to 31 bytes after the source, modulo 4 KiB: 3 instead of 60 GB/s on an AMD EPYC, family 25.
/// The kernel puts the data of a connection into consecutive pages, begins with a whole page, and now and then skips up
/// to 31 bytes. So a message that begins at a page boundary is sent at full speed, then at a fraction of it for some
/// 100 MB, and then at full speed again. Half a page away, a run is over before the two offsets meet.
pub const MID_PAGE: usize = PAGE / 2;
/// Processors compare addresses modulo this: their smallest page.
const PAGE: usize = 4096;

/// Bytes that begin at a chosen offset in a page.
#[derive(Clone, Debug)]
pub struct PlacedBytes {
    buffer: Vec<u8>,
    begin: usize,
    bytes: usize,
}

impl PlacedBytes {
    /// `bytes` times 0x5a, the first of them at offset `place` of a page.
    pub fn new(bytes: usize, place: usize) -> Self {
        let buffer = vec![0x5a; bytes + PAGE];
        let begin = place.wrapping_sub(buffer.as_ptr().addr()) % PAGE;
        Self { buffer, begin, bytes }
    }
}

impl core::ops::Deref for PlacedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.begin..self.begin + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_copied() {
        assert!(copy_gigabytes_per_second(1 << 20, 2) > 0.01);
        assert!(scan_gigabytes_per_second(1 << 20, 2) > 0.01);
    }

    #[test]
    fn bytes_begin_where_they_should() {
        for (bytes, place) in [(1, 0), (64, MID_PAGE), (100_000, 4080), (0, 17)] {
            let placed = PlacedBytes::new(bytes, place);
            assert_eq!((placed.len(), placed.as_ptr().addr() % PAGE), (bytes, place));
            assert!(placed.iter().all(|byte| *byte == 0x5a));
        }
    }
}
