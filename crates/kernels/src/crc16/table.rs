//! The scalar twin: one table lookup for each byte of a word, all eight independent of each other.

use super::arithmetic::times_x;

/// `TABLES[n][byte]`: the remainder of a byte with `n` bytes behind it in its word, times x^16.
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
pub(super) fn update(remainder: u16, words: &[[u8; 8]]) -> u16 {
    words.iter().fold(remainder, |remainder, word| {
        // The remainder belongs to the 16 coefficients that come first: the word's two most significant bytes.
        let word = (u64::from_le_bytes(*word) ^ u64::from(remainder) << 48).to_le_bytes();
        TABLES.iter().zip(word).fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)])
    })
}
