//! Kernels for x86-64 with carry-less multiplication.
//!
//! Two ideas, both of which keep bytes in memory order:
//!
//! 1. **Folding by exclusive or.** The polynomial has four terms, and squaring a polynomial over GF(2) only doubles
//!    its exponents, so that x^(16 u) = x^(15 u) + x^(2 u) + 1 for every power of two u. Take u as the bits of
//!    a vector: the first vector of a message may be dropped after adding it to the 1st, the 14th and the 16th
//!    vector after it. Three exclusive ors for each vector, no multiplication, until 16 vectors are left.
//! 2. **A sum with weights.** Each word that is left adds itself times a known power of x (its key): products that
//!    do not depend on each other. Their sum has 80 bits; Barrett's method divides it at the end.

#![allow(unsafe_code)]

use super::{Crc16Kernel, KEYS, POLYNOMIAL, keys, quotient_of_x80, update_by_table};
use crate::x86::{halves, has_narrow, has_wide, has_widest, product};
use core::arch::x86_64::{__m128i, _mm_xor_si128};

static KEY_TABLE: [u64; KEYS] = keys();

/// The kernels of this file that the processor can run, the fastest first.
pub(super) fn kernels() -> [Option<Crc16Kernel>; 3] {
    [
        // SAFETY: handed out only where its features were detected.
        has_widest().then_some(Crc16Kernel { name: "avx512 vpclmulqdq", run: |r, w| unsafe { widest::update(r, w) } }),
        // SAFETY: as above.
        has_wide().then_some(Crc16Kernel { name: "avx2 vpclmulqdq", run: |r, w| unsafe { wide::update(r, w) } }),
        // SAFETY: as above.
        has_narrow().then_some(Crc16Kernel { name: "pclmulqdq", run: |r, w| unsafe { narrow::update(r, w) } }),
    ]
}

/// The remainder after `words`, by the fastest kernel.
pub(super) fn update(remainder: u16, words: &[[u8; 8]]) -> u16 {
    if has_widest() {
        // SAFETY: its features were detected in the line above.
        unsafe { widest::update(remainder, words) }
    } else if has_wide() {
        // SAFETY: its features were detected in the line above.
        unsafe { wide::update(remainder, words) }
    } else if has_narrow() {
        // SAFETY: its feature was detected in the line above.
        unsafe { narrow::update(remainder, words) }
    } else {
        update_by_table(remainder, words)
    }
}

/// The remainder of a sum of products with keys, which has at most 80 bits (Barrett).
#[target_feature(enable = "pclmulqdq")]
#[inline]
fn reduce(sum: __m128i) -> u16 {
    const QUOTIENT_OF_X80: u64 = quotient_of_x80();
    let (low, high) = halves(sum);
    let top = high << 48 | low >> 16;
    let (_, quotient) = halves(product(top, QUOTIENT_OF_X80));
    let (multiple, _) = halves(product(top ^ quotient, POLYNOMIAL as u64));
    (low ^ multiple) as u16
}

/// Calls a step with the constants 0 to 15: unrolled by hand, so that the window stays in 16 registers.
macro_rules! sixteen_times {
    ($step:ident ($($argument:expr),*)) => {
        sixteen_times!($step ($($argument),*) 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    ($step:ident $arguments:tt $($index:literal)+) => { $( $step::<$index> $arguments; )+ };
}

/// One kernel, written once for all sizes of vectors.
macro_rules! kernel {
    ($size:ident, $features:literal) => {
        mod $size {
            use super::*;
            use crate::x86::$size::{Vector, WORDS, add, first_word, load, store, weighted_sum, zero};

            /// The remaining words after folding: 16 vectors.
            const WINDOW: usize = 16 * WORDS;
            type Block = [[u8; 8]; WINDOW];

            #[target_feature(enable = $features)]
            pub(super) fn update(remainder: u16, words: &[[u8; 8]]) -> u16 {
                // The remainder so far belongs to the first 16 coefficients of what follows.
                let start = u64::from(remainder) << 48;
                let (blocks, rest) = words.as_chunks::<WINDOW>();
                if let [first, more @ ..] = blocks
                    && !more.is_empty()
                {
                    let window = fold(start, first, more);
                    let keys = &KEY_TABLE[KEYS - WINDOW - rest.len()..];
                    reduce(_mm_xor_si128(weighted_sum(&window, keys), weighted_sum(rest, &keys[WINDOW..])))
                } else if let Some(keys @ [first_key, ..]) = KEY_TABLE.get(KEYS - words.len()..) {
                    reduce(_mm_xor_si128(product(start, *first_key), weighted_sum(words, keys)))
                } else {
                    remainder
                }
            }

            /// Folds all later blocks into the first one.
            #[target_feature(enable = $features)]
            #[inline]
            fn fold(start: u64, first: &Block, more: &[Block]) -> Block {
                let mut window = [zero(); 16];
                for (vector, words) in window.iter_mut().zip(first.as_chunks::<WORDS>().0) {
                    *vector = load(words);
                }
                window[0] = add(window[0], first_word(start));
                for block in more {
                    fold_block(&mut window, block);
                }
                let mut folded = [[0; 8]; WINDOW];
                for (words, vector) in folded.as_chunks_mut::<WORDS>().0.iter_mut().zip(window) {
                    store(words, vector);
                }
                folded
            }

            /// Moves the window by its own length.
            #[target_feature(enable = $features)]
            #[inline]
            fn fold_block(window: &mut [Vector; 16], block: &Block) {
                sixteen_times!(fold_step(window, block));
            }

            /// Replaces the window's oldest vector by the block's next.
            #[target_feature(enable = $features)]
            #[inline]
            fn fold_step<const INDEX: usize>(window: &mut [Vector; 16], block: &Block) {
                let oldest = window[INDEX];
                window[(INDEX + 1) % 16] = add(window[(INDEX + 1) % 16], oldest);
                window[(INDEX + 14) % 16] = add(window[(INDEX + 14) % 16], oldest);
                window[INDEX] = add(oldest, load(&block.as_chunks::<WORDS>().0[INDEX]));
            }
        }
    };
}

kernel!(narrow, "pclmulqdq");
kernel!(wide, "avx2,vpclmulqdq,pclmulqdq");
kernel!(widest, "avx512f,avx2,vpclmulqdq,pclmulqdq");
