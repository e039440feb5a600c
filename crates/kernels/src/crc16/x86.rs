//! Kernels for x86-64 with carry-less multiplication.
//!
//! Two ideas, both of which leave bytes in the order in which they lie in memory:
//!
//! 1. **Folding by exclusive or.** The polynomial has four terms, and squaring a polynomial over GF(2) only doubles
//!    its exponents, so that x^(16 u) = x^(15 u) + x^(2 u) + 1 for every power of two u. Take u as the bits of
//!    a vector: the first vector of a message may be dropped after adding it to the 1st, the 14th and the 16th
//!    vector behind it. Three exclusive ors for each vector, no multiplication, until 16 vectors are left.
//! 2. **A sum with weights.** Each word that is left adds itself times a known power of x (its key): products that
//!    do not depend on each other. Their sum has 80 bits; Barrett's method divides it at the end.

#![allow(unsafe_code)]

use super::{
    Crc16Kernel,
    arithmetic::{KEYS, POLYNOMIAL, keys, quotient_of_x80},
    table,
};
use core::arch::x86_64::*;
use std::arch::is_x86_feature_detected;

static KEY_TABLE: [u64; KEYS] = keys();

/// The kernels of this file that the processor can run, the fastest first.
pub(super) fn kernels() -> [Option<Crc16Kernel>; 2] {
    [
        // SAFETY: (both) the functions are handed out only where their features were detected.
        has_wide().then_some(Crc16Kernel { name: "avx2 vpclmulqdq", run: |r, w| unsafe { wide::update(r, w) } }),
        // SAFETY: as above.
        has_narrow().then_some(Crc16Kernel { name: "pclmulqdq", run: |r, w| unsafe { narrow::update(r, w) } }),
    ]
}

/// The remainder after `words`, by the fastest kernel.
pub(super) fn update(remainder: u16, words: &[[u8; 8]]) -> u16 {
    if has_wide() {
        // SAFETY: its features were detected in the line above.
        unsafe { wide::update(remainder, words) }
    } else if has_narrow() {
        // SAFETY: its feature was detected in the line above.
        unsafe { narrow::update(remainder, words) }
    } else {
        table::update(remainder, words)
    }
}

fn has_wide() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq") && has_narrow()
}

fn has_narrow() -> bool {
    is_x86_feature_detected!("pclmulqdq")
}

/// The carry-less product of two words.
#[target_feature(enable = "pclmulqdq")]
#[inline]
fn product(left: u64, right: u64) -> __m128i {
    _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(left as i64), _mm_cvtsi64_si128(right as i64))
}

#[target_feature(enable = "pclmulqdq")]
#[inline]
fn halves(vector: __m128i) -> (u64, u64) {
    (_mm_cvtsi128_si64(vector) as u64, _mm_cvtsi128_si64(_mm_unpackhi_epi64(vector, vector)) as u64)
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
    ($step:ident ($($argument:expr),*)) => { sixteen_times!($step ($($argument),*) 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    ($step:ident $arguments:tt $($index:literal)+) => { $( $step::<$index> $arguments; )+ };
}

/// One kernel, written once for both sizes of vectors.
macro_rules! kernel {
    (
        $module:ident, $features:literal, $vector:ident of $words:literal words, xor: $xor:ident, zero: $zero:ident,
        load: $load:ident, store: $store:ident, widen: $widen:expr, narrow: $narrow:expr, products: $products:ident
    ) => {
        mod $module {
            use super::*;

            /// What folding leaves, in words: 16 vectors.
            const WINDOW: usize = 16 * $words;
            type Vector = [[u8; 8]; $words];
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

            /// The first block after all later ones were folded into it.
            #[target_feature(enable = $features)]
            #[inline]
            fn fold(start: u64, first: &Block, more: &[Block]) -> Block {
                let mut window = [$zero(); 16];
                for (vector, words) in window.iter_mut().zip(first.as_chunks::<$words>().0) {
                    *vector = load(words);
                }
                window[0] = $xor(window[0], $widen(_mm_cvtsi64_si128(start as i64)));
                for block in more {
                    fold_block(&mut window, block);
                }
                let mut folded = [[0; 8]; WINDOW];
                for (words, vector) in folded.as_chunks_mut::<$words>().0.iter_mut().zip(window) {
                    // SAFETY: `words` has exactly the vector's size; the store needs no alignment.
                    unsafe { $store(words.as_mut_ptr().cast(), vector) };
                }
                folded
            }

            /// Moves the window by its own length.
            #[target_feature(enable = $features)]
            #[inline]
            fn fold_block(window: &mut [$vector; 16], block: &Block) {
                sixteen_times!(fold_step(window, block));
            }

            /// Replaces the window's oldest vector by the block's next.
            #[target_feature(enable = $features)]
            #[inline]
            fn fold_step<const INDEX: usize>(window: &mut [$vector; 16], block: &Block) {
                let oldest = window[INDEX];
                window[(INDEX + 1) % 16] = $xor(window[(INDEX + 1) % 16], oldest);
                window[(INDEX + 14) % 16] = $xor(window[(INDEX + 14) % 16], oldest);
                window[INDEX] = $xor(oldest, load(&block.as_chunks::<$words>().0[INDEX]));
            }

            /// The sum of each word times its key. There are at least as many keys as words.
            #[target_feature(enable = $features)]
            #[inline]
            fn weighted_sum(words: &[[u8; 8]], keys: &[u64]) -> __m128i {
                const UNROLLED: usize = 4;
                let (keys, last_keys) = keys[..words.len()].as_chunks::<$words>();
                let (vectors, last_words) = words.as_chunks::<$words>();
                let mut sums = [$zero(); UNROLLED]; // several, so that no product waits for another
                let mut groups = vectors.chunks_exact(UNROLLED).zip(keys.chunks_exact(UNROLLED));
                for (vectors, keys) in &mut groups {
                    for index in 0..UNROLLED {
                        sums[index] = $xor(sums[index], $products(load(&vectors[index]), load_keys(&keys[index])));
                    }
                }
                let done = vectors.len() / UNROLLED * UNROLLED;
                for (vector, keys) in vectors[done..].iter().zip(&keys[done..]) {
                    sums[0] = $xor(sums[0], $products(load(vector), load_keys(keys)));
                }
                let sum = $narrow($xor($xor(sums[0], sums[1]), $xor(sums[2], sums[3])));
                last_words
                    .iter()
                    .zip(last_keys)
                    .fold(sum, |sum, (word, &key)| _mm_xor_si128(sum, product(u64::from_le_bytes(*word), key)))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn load(words: &Vector) -> $vector {
                // SAFETY: `words` has exactly the vector's size; the load needs no alignment.
                unsafe { $load(words.as_ptr().cast()) }
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn load_keys(keys: &[u64; $words]) -> $vector {
                // SAFETY: `keys` has exactly the vector's size; the load needs no alignment.
                unsafe { $load(keys.as_ptr().cast()) }
            }
        }
    };
}

kernel! {
    narrow, "pclmulqdq", __m128i of 2 words, xor: _mm_xor_si128, zero: _mm_setzero_si128,
    load: _mm_loadu_si128, store: _mm_storeu_si128, widen: core::convert::identity, narrow: core::convert::identity,
    products: products_of_2
}

kernel! {
    wide, "avx2,vpclmulqdq,pclmulqdq", __m256i of 4 words, xor: _mm256_xor_si256, zero: _mm256_setzero_si256,
    load: _mm256_loadu_si256, store: _mm256_storeu_si256, widen: _mm256_zextsi128_si256, narrow: add_halves,
    products: products_of_4
}

/// The sum of the products of both words with both keys.
#[target_feature(enable = "pclmulqdq")]
#[inline]
fn products_of_2(words: __m128i, keys: __m128i) -> __m128i {
    _mm_xor_si128(_mm_clmulepi64_si128::<0x00>(words, keys), _mm_clmulepi64_si128::<0x11>(words, keys))
}

/// The sums of the products of words with keys, in two halves.
#[target_feature(enable = "avx2,vpclmulqdq")]
#[inline]
fn products_of_4(words: __m256i, keys: __m256i) -> __m256i {
    _mm256_xor_si256(_mm256_clmulepi64_epi128::<0x00>(words, keys), _mm256_clmulepi64_epi128::<0x11>(words, keys))
}

#[target_feature(enable = "avx2")]
#[inline]
fn add_halves(vector: __m256i) -> __m128i {
    _mm_xor_si128(_mm256_castsi256_si128(vector), _mm256_extracti128_si256::<1>(vector))
}
