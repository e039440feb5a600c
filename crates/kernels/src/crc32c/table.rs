//! The scalar twin: one table lookup for each byte of a word, all eight independent of each other.

use super::arithmetic::times_x;

/// `TABLES[n][byte]`: the remainder of a byte with `n` bytes behind it in its word, times x^32.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u32;
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

/// The remainder after `bytes`.
pub(super) fn update(remainder: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let remainder = words.iter().fold(remainder, |remainder, word| {
        // The remainder belongs to the 32 coefficients that come first: the word's first four bytes.
        let word = (u64::from_le_bytes(*word) ^ u64::from(remainder)).to_le_bytes();
        TABLES.iter().zip(word.iter().rev()).fold(0, |sum, (table, &byte)| sum ^ table[usize::from(byte)])
    });
    rest.iter().fold(remainder, |remainder, byte| remainder >> 8 ^ TABLES[0][usize::from(remainder as u8 ^ byte)])
}
