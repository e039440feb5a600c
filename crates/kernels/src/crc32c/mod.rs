//! CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected, initial value and final exclusive or 0xFFFFFFFF.
//!
//! Reflected means that a byte's least significant bit comes first; so does, read as a little-endian number, the
//! least significant bit of a word.

#[cfg(target_arch = "x86_64")]
mod x86;

/// A way to compute the CRC, for tests and measurements: [`crc32c`] chooses by itself.
#[derive(Copy, Clone)]
pub struct Crc32cKernel {
    /// The processor features that it uses, or `table`.
    pub name: &'static str,
    /// The remainder (without the final exclusive or) after more bytes.
    pub run: fn(remainder: u32, bytes: &[u8]) -> u32,
}

impl core::fmt::Debug for Crc32cKernel {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(self.name)
    }
}

/// The kernels that this processor can run, the fastest first; the last one is the scalar twin.
pub fn crc32c_kernels() -> Vec<Crc32cKernel> {
    let table = Crc32cKernel { name: "table", run: update_by_table };
    #[cfg(target_arch = "x86_64")]
    return x86::kernels().into_iter().flatten().chain([table]).collect();
    #[cfg(not(target_arch = "x86_64"))]
    vec![table]
}

/// The CRC-32C of the bytes with CRC `crc`, followed by `bytes`; start with 0.
///
/// ```
/// use ropewalk_kernels::crc32c;
/// assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
/// assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xE306_9283);
/// ```
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    return !x86::update(!crc, bytes);
    #[cfg(not(target_arch = "x86_64"))]
    !update_by_table(!crc, bytes)
}

// Arithmetic of reflected remainders modulo the polynomial, at compile time. The highest bit of a number is the
// coefficient of x^0, the lowest that of x^31.

/// The polynomial without its highest term.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// How many words the key table covers.
const KEYS: usize = 176;

/// The remainder times x.
const fn times_x(remainder: u32) -> u32 {
    remainder >> 1 ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 }
}

/// The remainder divided by x, which exists because the polynomial's last term is 1.
const fn divided_by_x(remainder: u32) -> u32 {
    if remainder >> 31 == 1 { (remainder ^ POLYNOMIAL) << 1 | 1 } else { remainder << 1 }
}

/// The weights of the words before the end of a message: the word followed by `n` words adds itself times x^(64 n) to
/// the message. The last entry belongs to the last word.
///
/// A carry-less product of reflected numbers has an extra factor x; so the keys are divided by x.
const fn keys() -> [u64; KEYS] {
    let mut keys = [0; KEYS];
    let mut power = divided_by_x(1 << 31);
    let mut index = KEYS;
    while index > 0 {
        index -= 1;
        keys[index] = (power as u64) << 32;
        let mut step = 0;
        while step < 64 {
            power = times_x(power);
            step += 1;
        }
    }
    keys
}

/// `TABLES[n][byte]`: the remainder of a byte followed by `n` bytes in its word, times x^32.
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
fn update_by_table(remainder: u32, bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let remainder = words.iter().fold(remainder, |remainder, word| {
        // The remainder belongs to the first 32 coefficients: the word's first four bytes.
        let word = (u64::from_le_bytes(*word) ^ u64::from(remainder)).to_le_bytes();
        TABLES.iter().zip(word.iter().rev()).fold(0, |sum, (table, &byte)| sum ^ table[usize::from(byte)])
    });
    rest.iter().fold(remainder, |remainder, byte| remainder >> 8 ^ TABLES[0][usize::from(remainder as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    //! Every kernel against a bitwise calculation, for any length and any cut into pieces.

    use proptest::prelude::*;

    use super::{crc32c, crc32c_kernels};

    /// Bit by bit, as the catalogue of CRCs defines it, without the final exclusive or.
    fn bitwise(remainder: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(remainder, |remainder, &byte| {
            (0..8).fold(remainder ^ u32::from(byte), |remainder, _| super::times_x(remainder))
        })
    }

    #[test]
    fn the_catalogued_check_value() {
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(0, b""), 0);
        for kernel in crc32c_kernels() {
            assert_eq!(!(kernel.run)(!0, b"123456789"), 0xE306_9283, "{kernel:?}");
        }
    }

    #[test]
    fn every_kernel_agrees_with_the_bitwise_one_for_every_length() {
        let bytes: Vec<u8> = (0..4000_u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        assert!(crc32c_kernels().iter().any(|kernel| kernel.name == "table"));
        let mut expected = 0x1234_5678;
        for (length, byte) in bytes.iter().enumerate() {
            for kernel in crc32c_kernels() {
                assert_eq!((kernel.run)(0x1234_5678, &bytes[..length]), expected, "{kernel:?}, {length} bytes");
            }
            expected = bitwise(expected, &[*byte]);
        }
    }

    proptest! {
        #[test]
        fn kernels_agree_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..9000), remainder: u32) {
            let expected = bitwise(remainder, &bytes);
            for kernel in crc32c_kernels() {
                prop_assert_eq!((kernel.run)(remainder, &bytes), expected, "{:?}", kernel);
            }
        }

        #[test]
        fn pieces_give_what_the_whole_gives(
            bytes in prop::collection::vec(any::<u8>(), 0..4096),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let crc = cuts.windows(2).fold(0, |crc, cut| crc32c(crc, &bytes[cut[0]..cut[1]]));
            prop_assert_eq!(crc, !bitwise(!0, &bytes));
        }
    }
}
