//! The CRC-16 of CMS S-LINK64: polynomial x^16 + x^15 + x^2 + 1, initial value 0xFFFF, not reflected, no final
//! exclusive or, over little-endian 64-bit words whose most significant byte comes first (FORMATS section 2).
//!
//! In mathematical terms a message is one long polynomial over GF(2); each word holds 64 of its coefficients, and the
//! CRC is the remainder of its division by the polynomial above. Since a word's most significant byte comes first, a
//! word loaded as a little-endian number already has its coefficients in order.

#[cfg(target_arch = "x86_64")]
mod x86;

/// A way to compute the CRC, for tests and measurements: [`Crc16`] chooses by itself.
#[derive(Copy, Clone)]
pub struct Crc16Kernel {
    /// The processor features that it uses, or `table`.
    pub name: &'static str,
    /// The remainder after more words (each 8 bytes, as in memory).
    pub run: fn(remainder: u16, words: &[[u8; 8]]) -> u16,
}

impl core::fmt::Debug for Crc16Kernel {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(self.name)
    }
}

/// The kernels that this processor can run, the fastest first; the last one is the scalar twin.
pub fn crc16_kernels() -> Vec<Crc16Kernel> {
    let table = Crc16Kernel { name: "table", run: update_by_table };
    #[cfg(target_arch = "x86_64")]
    return x86::kernels().into_iter().flatten().chain([table]).collect();
    #[cfg(not(target_arch = "x86_64"))]
    vec![table]
}

/// Below this many words a table is as fast as vectors, and the kernel need not be chosen.
const FEW_WORDS: usize = 4;

/// The remainder after `words`, by the fastest kernel.
fn update(remainder: u16, words: &[[u8; 8]]) -> u16 {
    if words.len() < FEW_WORDS {
        return update_by_table(remainder, words);
    }
    #[cfg(target_arch = "x86_64")]
    return x86::update(remainder, words);
    #[cfg(not(target_arch = "x86_64"))]
    update_by_table(remainder, words)
}

/// The CRC-16 of a fragment that arrives in pieces. Pieces may end within a word.
///
/// ```
/// use ropewalk_kernels::Crc16;
/// let fragment = [7; 24];
/// let mut crc = Crc16::new();
/// crc.update(&fragment[..11]);
/// crc.update(&fragment[11..]);
/// assert_eq!(crc.value(), Crc16::of(&fragment));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Crc16 {
    remainder: u16,
    /// The bytes of an unfinished word, followed by zeros.
    word: [u8; 8],
    /// The number of bytes in `word`: 0..8.
    filled: u8,
}

impl Default for Crc16 {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc16 {
    /// The CRC of no bytes.
    pub const fn new() -> Self {
        Self { remainder: 0xFFFF, word: [0; 8], filled: 0 }
    }

    /// The CRC of `bytes`, as [`Crc16::value`] gives it.
    pub fn of(bytes: &[u8]) -> u16 {
        let mut crc = Self::new();
        crc.update(bytes);
        crc.value()
    }

    /// Continues with more bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        if self.filled > 0 {
            bytes = self.fill_word(bytes);
        }
        let (words, rest) = bytes.as_chunks::<8>();
        self.remainder = update(self.remainder, words);
        if !rest.is_empty() {
            self.word[..rest.len()].copy_from_slice(rest);
            self.filled = rest.len() as u8;
        }
    }

    /// Completes the unfinished word, if `bytes` suffices, and returns the rest of `bytes`.
    fn fill_word<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let filled = usize::from(self.filled);
        let (head, rest) = bytes.split_at(bytes.len().min(8 - filled));
        self.word[filled..filled + head.len()].copy_from_slice(head);
        self.filled += head.len() as u8;
        if self.filled == 8 {
            self.remainder = update_by_table(self.remainder, &[self.word]);
            (self.word, self.filled) = ([0; 8], 0);
        }
        rest
    }

    /// The CRC of the bytes so far; the missing bytes of an unfinished word count as zeros.
    pub fn value(&self) -> u16 {
        if self.filled == 0 { self.remainder } else { update_by_table(self.remainder, &[self.word]) }
    }
}

/// The change of a message's CRC (exclusive or) for a flip of each bit of the word that is followed by `words_after`
/// words; entry `n` belongs to bit `n`. The CRC is linear: nothing else in the message matters.
pub fn crc16_of_bits(words_after: u64) -> [u16; 64] {
    let mut bits = [power_of_x(64 * words_after + 16); 64];
    for bit in 1..64 {
        bits[bit] = times_x(bits[bit - 1]);
    }
    bits
}

/// The change of a message's CRC (exclusive or) when its last word changes by `change` (exclusive or).
pub fn crc16_of_change(change: u64) -> u16 {
    update_by_table(0, &[change.to_le_bytes()])
}

// Arithmetic of remainders modulo the CRC's polynomial, at compile time where possible. Bit n of a number is the
// coefficient of x^n.

/// The polynomial x^16 + x^15 + x^2 + 1, without its highest term.
const POLYNOMIAL: u16 = 0x8005;

/// How many words the key table covers.
const KEYS: usize = 256;

/// The remainder times x.
const fn times_x(remainder: u16) -> u16 {
    (remainder << 1) ^ if remainder >> 15 == 1 { POLYNOMIAL } else { 0 }
}

/// The product of two remainders.
const fn multiply(left: u16, right: u16) -> u16 {
    let mut product = 0;
    let mut bit = 16;
    while bit > 0 {
        bit -= 1;
        product = times_x(product) ^ if left >> bit & 1 == 1 { right } else { 0 };
    }
    product
}

/// The remainder of x^exponent.
const fn power_of_x(exponent: u64) -> u16 {
    let mut power = 1;
    let mut bit = 64 - exponent.leading_zeros();
    while bit > 0 {
        bit -= 1;
        power = multiply(power, power);
        if exponent >> bit & 1 == 1 {
            power = times_x(power);
        }
    }
    power
}

/// The weights of the words before the end of a message: the word followed by `n` words adds itself times x^(64 n + 16)
/// to the remainder. The last entry belongs to the last word.
const fn keys() -> [u64; KEYS] {
    let mut keys = [0; KEYS];
    let mut after = 0;
    while after < KEYS {
        keys[KEYS - 1 - after] = power_of_x(64 * after as u64 + 16) as u64;
        after += 1;
    }
    keys
}

/// The quotient of x^80 by the polynomial, without its highest term x^64 (Barrett's constant).
const fn quotient_of_x80() -> u64 {
    let mut quotient: u64 = 0;
    let mut remainder = 1; // long division: x^80's leading 1 is taken in, its 80 zeros follow
    let mut zeros = 80;
    while zeros > 0 {
        zeros -= 1;
        quotient = quotient << 1 | (remainder >> 15) as u64; // the term x^64 falls out at the top
        remainder = times_x(remainder);
    }
    quotient
}

/// `TABLES[n][byte]`: the remainder of a byte followed by `n` bytes in its word, times x^16.
static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = (byte as u16) << 8;
        let mut after = 0;
        while after < 8 {
            let mut bit = 0;
            while bit < 8 {
                remainder = times_x(remainder);
                bit += 1;
            }
            tables[after][byte] = remainder;
            after += 1;
        }
        byte += 1;
    }
    tables
}

/// The remainder after `words`.
fn update_by_table(remainder: u16, words: &[[u8; 8]]) -> u16 {
    words.iter().fold(remainder, |remainder, word| {
        // The remainder belongs to the first 16 coefficients: the word's two most significant bytes.
        let word = (u64::from_le_bytes(*word) ^ u64::from(remainder) << 48).to_le_bytes();
        TABLES.iter().zip(word).fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)])
    })
}

#[cfg(test)]
mod tests {
    //! Every kernel against a bitwise calculation, for any length and any cut into pieces.

    use proptest::prelude::*;

    use super::{Crc16, crc16_kernels, crc16_of_bits, crc16_of_change};

    /// Bit by bit, as the format defines it.
    fn bitwise(remainder: u16, words: &[[u8; 8]]) -> u16 {
        words.iter().flat_map(|word| word.iter().rev()).fold(remainder, |remainder, &byte| {
            (0..8).fold(remainder ^ u16::from(byte) << 8, |remainder, _| super::times_x(remainder))
        })
    }

    /// The bytes as words; an unfinished one is padded with zeros.
    fn words_of(bytes: &[u8]) -> Vec<[u8; 8]> {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words.iter().copied().chain((!rest.is_empty()).then_some(last)).collect()
    }

    /// Reproducible pseudo-random bytes.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 1_u64;
        (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect()
    }

    #[test]
    fn the_catalogued_check_value_of_crc_16_cms() {
        // "123456789" is a byte and a word; the word's most significant byte comes first.
        let after_1 = (0..8).fold(0xFFFF ^ u16::from(b'1') << 8, |remainder, _| super::times_x(remainder));
        for kernel in crc16_kernels() {
            assert_eq!((kernel.run)(after_1, &[*b"98765432"]), 0xAEE7, "{kernel:?}");
        }
    }

    #[test]
    fn every_kernel_agrees_with_the_bitwise_one_for_every_length() {
        let words = words_of(&noise(8 * 450));
        assert!(crc16_kernels().iter().any(|kernel| kernel.name == "table"));
        for length in 0..words.len() {
            let expected = bitwise(0x1234, &words[..length]);
            for kernel in crc16_kernels() {
                assert_eq!((kernel.run)(0x1234, &words[..length]), expected, "{kernel:?}, {length} words");
            }
        }
    }

    #[test]
    fn powers_of_x_agree_with_single_steps() {
        let mut power = 1;
        for exponent in 0..40_000 {
            assert_eq!(super::power_of_x(exponent), power);
            power = super::times_x(power);
        }
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(
            bytes in prop::collection::vec(any::<u8>(), 0..6000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut crc = Crc16::new();
            for cut in cuts.windows(2) {
                crc.update(&bytes[cut[0]..cut[1]]);
            }
            prop_assert_eq!(crc.value(), bitwise(0xFFFF, &words_of(&bytes)));
        }

        #[test]
        fn kernels_agree_on_any_words(words in prop::collection::vec(any::<[u8; 8]>(), 0..1200), remainder: u16) {
            let expected = bitwise(remainder, &words);
            for kernel in crc16_kernels() {
                prop_assert_eq!((kernel.run)(remainder, &words), expected, "{:?}", kernel);
            }
        }

        #[test]
        fn changed_bits_change_the_crc_as_predicted(
            mut words in prop::collection::vec(any::<[u8; 8]>(), 1..600),
            position: prop::sample::Index,
            change: u64,
        ) {
            let before = bitwise(0xFFFF, &words);
            let position = position.index(words.len());
            words[position] = (u64::from_le_bytes(words[position]) ^ change).to_le_bytes();
            let bits = crc16_of_bits((words.len() - 1 - position) as u64);
            let predicted = (0..64).filter(|bit| change >> bit & 1 == 1).fold(before, |crc, bit| crc ^ bits[bit]);
            prop_assert_eq!(predicted, bitwise(0xFFFF, &words));
            if position + 1 == words.len() {
                prop_assert_eq!(before ^ crc16_of_change(change), predicted);
            }
        }
    }
}
