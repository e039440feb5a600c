//! What the memory can do: reading and copying, far beyond the caches.

use std::hint::black_box;
use std::time::Instant;

/// How much is read or copied in one pass if nothing else is wanted.
pub const FAR_BEYOND_CACHES: usize = 256 << 20;

/// 10^9 bytes a second that `memcpy` copies (counted once), best of `passes` over `bytes`.
///
/// Ordinary pages: with huge ones it is up to 1.6 times that.
pub fn copy_gigabytes_per_second(bytes: usize, passes: u32) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![2u8; bytes]);
    best_of(bytes, passes, || {
        to.copy_from_slice(black_box(&from));
        black_box(&to);
    })
}

/// 10^9 bytes a second that are scanned when every word is read, best of `passes` over `bytes`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_copied() {
        assert!(copy_gigabytes_per_second(1 << 20, 2) > 0.01);
        assert!(scan_gigabytes_per_second(1 << 20, 2) > 0.01);
    }
}
