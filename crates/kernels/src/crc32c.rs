//! CRC-32C (Castagnoli): polynomial 0x1EDC6F41, reflected, initial value and final exclusive or 0xFFFFFFFF.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of `bytes` appended to what gave `crc`; start with 0.
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::crc32c;
    use proptest::prelude::*;

    fn bitwise(crc: u32, bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!crc, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 })
        })
    }

    #[test]
    fn the_catalogued_check_value() {
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(0, b""), 0);
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(
            bytes in prop::collection::vec(any::<u8>(), 0..4096),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let crc = cuts.windows(2).fold(0, |crc, cut| crc32c(crc, &bytes[cut[0]..cut[1]]));
            prop_assert_eq!(crc, bitwise(0, &bytes));
        }
    }
}
