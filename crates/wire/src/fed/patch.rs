//! Giving an encoded fragment another header without computing its CRC anew.

use super::{Header, Trailer, WORD_BYTES};
use ropewalk_kernels::crc16_of_bits;

/// Changes the header of fragments of one length, and their CRC with it, without touching the payload.
///
/// The CRC is linear: each changed bit of the header changes the CRC in a way that only the fragment's length
/// decides. An emulated source so makes a new fragment of an old one in some nanoseconds, whatever its size.
#[derive(Clone, Debug)]
pub struct Patch {
    /// By what each value of each four bits of the header changes the CRC; the lowest four bits come first.
    changes: [[u16; 16]; 16],
}

impl Patch {
    /// For fragments of `length` bytes (a multiple of 8, at least 16).
    pub fn for_length(length: usize) -> Self {
        let bits = crc16_of_bits((length / WORD_BYTES).saturating_sub(1) as u64);
        let mut changes = [[0; 16]; 16];
        for (changes, bits) in changes.iter_mut().zip(bits.as_chunks::<4>().0) {
            for (value, change) in changes.iter_mut().enumerate() {
                *change = (0..4).filter(|bit| value >> bit & 1 == 1).fold(0, |crc, bit| crc ^ bits[bit]);
            }
        }
        Self { changes }
    }

    /// Replaces the first word `header` of a fragment by `new`, and the CRC in its last word `trailer`.
    pub fn apply(&self, header: &mut [u8; 8], trailer: &mut [u8; 8], new: Header) {
        let mut change = u64::from_le_bytes(*header) ^ new.to_word();
        let mut crc = u16::from_le_bytes([trailer[Trailer::CRC_BYTE], trailer[Trailer::CRC_BYTE + 1]]);
        for changes in &self.changes {
            crc ^= changes[(change & 15) as usize];
            change >>= 4;
        }
        *header = new.to_bytes();
        trailer[Trailer::CRC_BYTE..Trailer::CRC_BYTE + 2].copy_from_slice(&crc.to_le_bytes());
    }
}
