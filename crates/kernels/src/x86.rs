//! Vectors of two, four or eight words with carry-less multiplication, for the kernels on x86-64.
//!
//! Modules [`narrow`], [`wide`] and [`widest`] offer the same functions for each size. Addition over GF(2) is exclusive or.

#![allow(unsafe_code)]

use core::arch::x86_64::*;
use std::arch::is_x86_feature_detected;

/// Whether the processor supports [`narrow`].
pub(crate) fn has_narrow() -> bool {
    is_x86_feature_detected!("pclmulqdq")
}

/// Whether the processor supports [`wide`].
pub(crate) fn has_wide() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq") && has_narrow()
}

/// Whether the processor has what [`widest`] uses. Those that have it run it at their full clock rate, unlike the first
/// ones with AVX-512, which lack the multiplication.
pub(crate) fn has_widest() -> bool {
    is_x86_feature_detected!("avx512f") && has_wide()
}

/// The product of two words.
#[target_feature(enable = "pclmulqdq")]
#[inline]
pub(crate) fn product(left: u64, right: u64) -> __m128i {
    _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(left as i64), _mm_cvtsi64_si128(right as i64))
}

/// The lower and the upper word.
#[target_feature(enable = "sse2")]
#[inline]
pub(crate) fn halves(vector: __m128i) -> (u64, u64) {
    (_mm_cvtsi128_si64(vector) as u64, _mm_cvtsi128_si64(_mm_unpackhi_epi64(vector, vector)) as u64)
}

/// The functions for one size, written once.
macro_rules! vectors {
    (
        $module:ident, $features:literal, $vector:ident of $words:literal words, add: $add:ident, zero: $zero:ident,
        load: $load:ident, store: $store:ident, multiply: $multiply:ident, widen: $widen:expr, sum: $sum:expr
    ) => {
        pub(crate) mod $module {
            use super::*;

            /// Words in a vector.
            pub(crate) const WORDS: usize = $words;
            pub(crate) type Vector = $vector;

            #[target_feature(enable = $features)]
            #[inline]
            pub(crate) fn zero() -> Vector {
                $zero()
            }

            #[target_feature(enable = $features)]
            #[inline]
            pub(crate) fn add(left: Vector, right: Vector) -> Vector {
                $add(left, right)
            }

            /// The vector of one word followed by zeros.
            #[target_feature(enable = $features)]
            #[inline]
            pub(crate) fn first_word(word: u64) -> Vector {
                $widen(_mm_cvtsi64_si128(word as i64))
            }

            #[target_feature(enable = $features)]
            #[inline]
            pub(crate) fn load(words: &[[u8; 8]; WORDS]) -> Vector {
                // SAFETY: `words` has exactly the vector's size; the load needs no alignment.
                unsafe { $load(words.as_ptr().cast()) }
            }

            #[target_feature(enable = $features)]
            #[inline]
            pub(crate) fn store(words: &mut [[u8; 8]; WORDS], vector: Vector) {
                // SAFETY: `words` has exactly the vector's size; the store needs no alignment.
                unsafe { $store(words.as_mut_ptr().cast(), vector) };
            }

            /// Two sums of products (or one) of the words with their keys, for [`total`].
            #[target_feature(enable = $features)]
            #[inline]
            pub(crate) fn products(words: &[[u8; 8]; WORDS], keys: &[u64; WORDS]) -> Vector {
                // SAFETY: `keys` has exactly the vector's size; the load needs no alignment.
                let keys = unsafe { $load(keys.as_ptr().cast()) };
                let words = load(words);
                add($multiply::<0x00>(words, keys), $multiply::<0x11>(words, keys))
            }

            /// The sum of all products in four vectors.
            #[target_feature(enable = $features)]
            #[inline]
            pub(crate) fn total(sums: [Vector; 4]) -> __m128i {
                $sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])))
            }

            /// The sum of each word times its key. There are at least as many keys as words.
            #[target_feature(enable = $features)]
            #[inline]
            pub(crate) fn weighted_sum(words: &[[u8; 8]], keys: &[u64]) -> __m128i {
                let (keys, last_keys) = keys[..words.len()].as_chunks::<WORDS>();
                let (vectors, last_words) = words.as_chunks::<WORDS>();
                let (groups, more_vectors) = vectors.as_chunks::<4>();
                let (key_groups, more_keys) = keys.as_chunks::<4>();
                let mut sums = [zero(); 4]; // several, so that no product waits for another
                for (vectors, keys) in groups.iter().zip(key_groups) {
                    for index in 0..4 {
                        sums[index] = add(sums[index], products(&vectors[index], &keys[index]));
                    }
                }
                for (vector, keys) in more_vectors.iter().zip(more_keys) {
                    sums[0] = add(sums[0], products(vector, keys));
                }
                let sum = total(sums);
                last_words
                    .iter()
                    .zip(last_keys)
                    .fold(sum, |sum, (word, &key)| _mm_xor_si128(sum, product(u64::from_le_bytes(*word), key)))
            }
        }
    };
}

vectors! {
    narrow, "pclmulqdq", __m128i of 2 words, add: _mm_xor_si128, zero: _mm_setzero_si128,
    load: _mm_loadu_si128, store: _mm_storeu_si128, multiply: _mm_clmulepi64_si128,
    widen: core::convert::identity, sum: core::convert::identity
}

vectors! {
    wide, "avx2,vpclmulqdq,pclmulqdq", __m256i of 4 words, add: _mm256_xor_si256, zero: _mm256_setzero_si256,
    load: _mm256_loadu_si256, store: _mm256_storeu_si256, multiply: _mm256_clmulepi64_epi128,
    widen: _mm256_zextsi128_si256, sum: add_halves
}

vectors! {
    widest, "avx512f,avx2,vpclmulqdq,pclmulqdq", __m512i of 8 words, add: _mm512_xor_si512, zero: _mm512_setzero_si512,
    load: _mm512_loadu_si512, store: _mm512_storeu_si512, multiply: _mm512_clmulepi64_epi128,
    widen: _mm512_zextsi128_si512, sum: add_quarters
}

#[target_feature(enable = "avx512f,avx2")]
#[inline]
fn add_quarters(vector: __m512i) -> __m128i {
    add_halves(_mm256_xor_si256(_mm512_castsi512_si256(vector), _mm512_extracti64x4_epi64::<1>(vector)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn add_halves(vector: __m256i) -> __m128i {
    _mm_xor_si128(_mm256_castsi256_si128(vector), _mm256_extracti128_si256::<1>(vector))
}
