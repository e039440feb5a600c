//! Every kernel against a bitwise calculation, for any length and any cut into pieces.

use super::{arithmetic, crc32c, crc32c_kernels};
use proptest::prelude::*;

/// Bit by bit, as the catalogue of CRCs defines it, without the final exclusive or.
fn bitwise(remainder: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(remainder, |remainder, &byte| {
        (0..8).fold(remainder ^ u32::from(byte), |remainder, _| arithmetic::times_x(remainder))
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
