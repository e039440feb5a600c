//! The CRC-16 of CMS S-LINK64: polynomial x^16 + x^15 + x^2 + 1, initial value 0xFFFF, not reflected, no final
//! exclusive or, over little-endian 64-bit words whose most significant byte comes first (FORMATS section 2).
//!
//! In mathematical terms a message is one long polynomial over GF(2); each word holds 64 of its coefficients and
//! the CRC is the remainder of its division by the polynomial above. That a word's most significant byte comes
//! first is a gift: a word, loaded as a little-endian number, already has its coefficients in order.

mod arithmetic;
mod table;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use arithmetic::{power_of_x, times_x};

/// A way to compute the CRC, for tests and measurements: [`Crc16`] chooses by itself.
#[derive(Copy, Clone)]
pub struct Crc16Kernel {
    /// The processor features that it uses, or `table`.
    pub name: &'static str,
    /// The remainder after more words (each 8 bytes, as they lie in memory).
    pub run: fn(remainder: u16, words: &[[u8; 8]]) -> u16,
}

impl core::fmt::Debug for Crc16Kernel {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(self.name)
    }
}

/// The kernels that this processor can run, the fastest first; the last one is the scalar twin.
pub fn crc16_kernels() -> Vec<Crc16Kernel> {
    let table = Crc16Kernel { name: "table", run: table::update };
    #[cfg(target_arch = "x86_64")]
    return x86::kernels().into_iter().flatten().chain([table]).collect();
    #[cfg(not(target_arch = "x86_64"))]
    vec![table]
}

/// Below this many words a table is as fast as vectors, and nothing has to be chosen.
const FEW_WORDS: usize = 4;

/// The remainder after `words`, by the fastest kernel.
fn update(remainder: u16, words: &[[u8; 8]]) -> u16 {
    if words.len() < FEW_WORDS {
        return table::update(remainder, words);
    }
    #[cfg(target_arch = "x86_64")]
    return x86::update(remainder, words);
    #[cfg(not(target_arch = "x86_64"))]
    table::update(remainder, words)
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
    /// The bytes of an unfinished word in front, zeros behind.
    word: [u8; 8],
    /// How many bytes of `word` are there: 0..8.
    filled: u8,
}

impl Default for Crc16 {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc16 {
    /// The CRC of nothing yet.
    pub const fn new() -> Self {
        Self { remainder: 0xFFFF, word: [0; 8], filled: 0 }
    }

    /// The CRC of `bytes`, as [`Crc16::value`] gives it.
    pub fn of(bytes: &[u8]) -> u16 {
        let mut crc = Self::new();
        crc.update(bytes);
        crc.value()
    }

    /// Goes on with more bytes.
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

    /// Finishes the unfinished word, if `bytes` reach so far, and returns what is left of them.
    fn fill_word<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let filled = usize::from(self.filled);
        let (head, rest) = bytes.split_at(bytes.len().min(8 - filled));
        self.word[filled..filled + head.len()].copy_from_slice(head);
        self.filled += head.len() as u8;
        if self.filled == 8 {
            self.remainder = table::update(self.remainder, &[self.word]);
            (self.word, self.filled) = ([0; 8], 0);
        }
        rest
    }

    /// The CRC of the bytes so far; the missing bytes of an unfinished word count as zeros.
    pub fn value(&self) -> u16 {
        if self.filled == 0 { self.remainder } else { table::update(self.remainder, &[self.word]) }
    }
}

/// By what the CRC of a message changes (exclusive or) when one bit of a word changes that has `words_after` words
/// behind it; entry `n` belongs to bit `n`. The CRC is linear: nothing else of the message matters.
pub fn crc16_of_bits(words_after: u64) -> [u16; 64] {
    let mut bits = [power_of_x(64 * words_after + 16); 64];
    for bit in 1..64 {
        bits[bit] = times_x(bits[bit - 1]);
    }
    bits
}

/// By what the CRC of a message changes (exclusive or) when its last word changes by `change` (exclusive or).
pub fn crc16_of_change(change: u64) -> u16 {
    table::update(0, &[change.to_le_bytes()])
}
