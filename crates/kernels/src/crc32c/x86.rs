//! Kernels for x86-64, which has an instruction for the CRC of a word.
//!
//! The instruction takes three cycles but can begin one each cycle, so three streams run side by side. It leaves the
//! vector units idle: they sum the words before the streams with weights, as for the CRC-16. A stream's remainder
//! belongs to the word after the stream, whose key carries it to the block's end:
//!
//! ```text
//! block | words summed with their keys | stream 0 | stream 1 | stream 2 |
//!                                                 ^ its remainder joins here, with the key of stream 1's first word
//! ```

#![allow(unsafe_code)]

use super::{Crc32cKernel, KEYS, keys, update_by_table};
use crate::x86::{halves, has_narrow, has_wide, has_widest, product};
use core::arch::x86_64::{__m128i, _mm_crc32_u64, _mm_xor_si128};
use std::arch::is_x86_feature_detected;

static KEY_TABLE: [u64; KEYS] = keys();

/// The kernels of this file that the processor can run, the fastest first.
pub(super) fn kernels() -> [Option<Crc32cKernel>; 3] {
    fn kernel(is_there: bool, name: &'static str, run: fn(u32, &[u8]) -> u32) -> Option<Crc32cKernel> {
        is_there.then_some(Crc32cKernel { name, run })
    }
    let has_crc = is_x86_feature_detected!("sse4.2");
    [
        // SAFETY: handed out only where its features were detected.
        kernel(has_widest() && has_crc, "avx512 vpclmulqdq sse4.2", |r, b| unsafe { widest::update(r, b) }),
        // SAFETY: as above.
        kernel(has_wide() && has_crc, "avx2 vpclmulqdq sse4.2", |r, b| unsafe { wide::update(r, b) }),
        // SAFETY: as above.
        kernel(has_narrow() && has_crc, "pclmulqdq sse4.2", |r, b| unsafe { narrow::update(r, b) }),
    ]
}

/// The remainder after `bytes`, by the fastest kernel.
pub(super) fn update(remainder: u32, bytes: &[u8]) -> u32 {
    if !is_x86_feature_detected!("sse4.2") {
        update_by_table(remainder, bytes)
    } else if has_widest() {
        // SAFETY: its features were detected in the lines above.
        unsafe { widest::update(remainder, bytes) }
    } else if has_wide() {
        // SAFETY: its features were detected in the lines above.
        unsafe { wide::update(remainder, bytes) }
    } else if has_narrow() {
        // SAFETY: its features were detected in the lines above.
        unsafe { narrow::update(remainder, bytes) }
    } else {
        update_by_table(remainder, bytes)
    }
}

/// The remainder after one more word.
#[target_feature(enable = "sse4.2")]
#[inline]
fn next(remainder: u32, word: [u8; 8]) -> u32 {
    _mm_crc32_u64(u64::from(remainder), u64::from_le_bytes(word)) as u32
}

/// The remainder of a sum of products with keys.
#[target_feature(enable = "sse4.2,pclmulqdq")]
#[inline]
fn reduce(sum: __m128i) -> u32 {
    let (first, second) = halves(sum);
    _mm_crc32_u64(_mm_crc32_u64(0, first), second) as u32
}

/// One kernel, written once for all sizes of vectors.
macro_rules! kernel {
    ($size:ident, $features:literal, steps: $steps:literal of $vectors:literal vectors and $words:literal words) => {
        mod $size {
            use super::*;
            use crate::x86::$size::{WORDS, add, products, total, weighted_sum, zero};

            const STEPS: usize = $steps;
            const SUMMED: usize = STEPS * $vectors * WORDS;
            const STREAM: usize = STEPS * $words;
            const BLOCK: usize = SUMMED + 3 * STREAM;
            /// Where a block's keys begin; a block has at most as many words as there are keys.
            const BLOCK_KEYS: usize = KEYS - BLOCK;
            /// Below this many words the instruction alone is faster.
            const FEW_WORDS: usize = 12;

            #[target_feature(enable = $features)]
            pub(super) fn update(mut remainder: u32, bytes: &[u8]) -> u32 {
                let (words, last_bytes) = bytes.as_chunks::<8>();
                let (blocks, rest) = words.as_chunks::<BLOCK>();
                for block in blocks {
                    remainder = update_block(remainder, block);
                }
                if rest.len() < FEW_WORDS {
                    remainder = rest.iter().fold(remainder, |remainder, &word| next(remainder, word));
                } else {
                    let keys = &KEY_TABLE[KEYS - rest.len()..];
                    let start = product(u64::from(remainder), keys[0]);
                    remainder = reduce(_mm_xor_si128(start, weighted_sum(rest, keys)));
                }
                update_by_table(remainder, last_bytes)
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn update_block(remainder: u32, block: &[[u8; 8]; BLOCK]) -> u32 {
                let keys = &KEY_TABLE[BLOCK_KEYS..];
                let vectors = block.as_chunks::<WORDS>().0;
                let vector_keys = keys.as_chunks::<WORDS>().0;
                let streamed = &block[SUMMED..];
                let mut sums = [zero(); 4];
                let (mut first, mut second, mut third) = (0, 0, 0);
                // Both in one loop: the processor does not look far enough ahead to overlap two loops.
                for step in 0..STEPS {
                    for index in 0..$vectors {
                        let vector = $vectors * step + index;
                        sums[vector % 4] = add(sums[vector % 4], products(&vectors[vector], &vector_keys[vector]));
                    }
                    for word in $words * step..$words * (step + 1) {
                        first = next(first, streamed[word]);
                        second = next(second, streamed[STREAM + word]);
                        third = next(third, streamed[2 * STREAM + word]);
                    }
                }
                let start = product(u64::from(remainder), keys[0]);
                let first = product(u64::from(first), keys[SUMMED + STREAM]);
                let second = product(u64::from(second), keys[SUMMED + 2 * STREAM]);
                reduce(_mm_xor_si128(_mm_xor_si128(total(sums), start), _mm_xor_si128(first, second))) ^ third
            }
        }
    };
}

kernel!(narrow, "pclmulqdq,sse4.2", steps: 8 of 2 vectors and 2 words);
kernel!(wide, "avx2,vpclmulqdq,pclmulqdq,sse4.2", steps: 8 of 1 vectors and 2 words);
kernel!(widest, "avx512f,avx2,vpclmulqdq,pclmulqdq,sse4.2", steps: 8 of 2 vectors and 2 words);
