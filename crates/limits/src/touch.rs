//! The rate of sparse reads: the limit of everything that follows trailers.

use std::hint::black_box;

const LINE: usize = 64;

/// Adds up two bytes of each cache line.
pub fn touch_every_line(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 8];
    for lines in bytes.as_chunks::<{ 8 * LINE }>().0 {
        for (sum, line) in sums.iter_mut().zip(lines.as_chunks::<LINE>().0) {
            *sum += u64::from(u16::from_le_bytes([line[0], line[1]]));
        }
    }
    sums.iter().sum()
}

/// Adds up two bytes of some cache lines: each of `steps` is the distance in lines to the next one.
///
/// # Panics
/// If they lead beyond the bytes.
pub fn touch_lines(bytes: &[u8], steps: &[u8]) -> u64 {
    let lines = bytes.as_chunks::<LINE>().0;
    let mut at = 0;
    let mut sum = 0;
    for &step in steps {
        at += usize::from(step);
        sum += u64::from(u16::from_le_bytes([lines[at][0], lines[at][1]]));
    }
    sum
}

/// The width of sequential reads, as in the PMBW benchmarks of paper 4.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Width {
    /// 16 bits at a time.
    Bits16,
    /// 32 bits at a time.
    Bits32,
    /// 64 bits at a time.
    Bits64,
    /// As wide as the vectors of the build's target, several at a time.
    Vectors,
}

impl Width {
    /// Every width.
    pub const ALL: [Self; 4] = [Self::Bits16, Self::Bits32, Self::Bits64, Self::Vectors];

    /// A name for tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bits16 => "16 bits",
            Self::Bits32 => "32 bits",
            Self::Bits64 => "64 bits",
            Self::Vectors => "vectors",
        }
    }

    /// Reads every word once.
    pub fn scan(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Bits16 => words(bytes, |word: [u8; 2]| u16::from_le_bytes(word).into()),
            Self::Bits32 => words(bytes, |word: [u8; 4]| u32::from_le_bytes(word).into()),
            Self::Bits64 => words(bytes, u64::from_le_bytes),
            Self::Vectors => vectors(bytes),
        }
    }
}

/// A simple loop with one load per word.
fn words<const BYTES: usize>(bytes: &[u8], value: impl Fn([u8; BYTES]) -> u64) -> u64 {
    let mut sum = 0_u64;
    for word in bytes.as_chunks::<BYTES>().0 {
        // The compiler cannot vectorise a sum through an opaque register.
        sum = opaque(sum.wrapping_add(value(*word)));
    }
    sum
}

/// The same number, opaque to the compiler.
#[inline]
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn opaque(mut number: u64) -> u64 {
    // SAFETY: no instruction at all, and the one register that is named keeps its value.
    unsafe { core::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags)) };
    number
}

#[inline]
#[cfg(not(target_arch = "x86_64"))]
fn opaque(number: u64) -> u64 {
    black_box(number)
}

fn vectors(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        #[allow(unsafe_code)]
        // SAFETY: the processor has AVX2.
        return unsafe { wide_vectors(bytes) };
    }
    add_vectors(bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn wide_vectors(bytes: &[u8]) -> u64 {
    add_vectors(bytes)
}

#[inline(always)]
fn add_vectors(bytes: &[u8]) -> u64 {
    let mut sums = [0_u64; 32];
    for words in bytes.as_chunks::<256>().0 {
        for (sum, word) in sums.iter_mut().zip(words.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    black_box(sums).iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_touched_is_added_up() {
        let bytes: Vec<u8> = (0..1 << 12).map(|index| u8::from(index % 64 == 0) * (index >> 6) as u8).collect();
        assert_eq!(touch_every_line(&bytes), 63 * 32);
        assert_eq!(touch_lines(&bytes, &[1, 2, 60]), 1 + 3 + 63);
        assert_eq!(touch_lines(&bytes, &[]), 0);
    }

    #[test]
    fn every_width_reads_every_word() {
        let bytes = [1_u8; 1 << 12];
        assert_eq!(Width::Bits16.scan(&bytes), 0x0101 << 11);
        assert_eq!(Width::Bits32.scan(&bytes), 0x0101_0101 << 10);
        for width in [Width::Bits64, Width::Vectors] {
            assert_eq!(width.scan(&bytes), 0x0101_0101_0101_0101_u64.wrapping_mul(512), "{}", width.name());
        }
    }
}
