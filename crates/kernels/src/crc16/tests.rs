//! Every kernel against a bitwise calculation, for any length and any cut into pieces.

use super::{Crc16, arithmetic, crc16_kernels, crc16_of_bits, crc16_of_change};
use proptest::prelude::*;

/// Bit by bit, as the format defines it.
fn bitwise(remainder: u16, words: &[[u8; 8]]) -> u16 {
    words.iter().flat_map(|word| word.iter().rev()).fold(remainder, |remainder, &byte| {
        (0..8).fold(remainder ^ u16::from(byte) << 8, |remainder, _| arithmetic::times_x(remainder))
    })
}

/// The bytes as words; an unfinished one is filled with zeros.
fn words_of(bytes: &[u8]) -> Vec<[u8; 8]> {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().copied().chain((!rest.is_empty()).then_some(last)).collect()
}

/// Bytes that look random, the same every time.
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
    let after_1 = (0..8).fold(0xFFFF ^ u16::from(b'1') << 8, |remainder, _| arithmetic::times_x(remainder));
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
        assert_eq!(arithmetic::power_of_x(exponent), power);
        power = arithmetic::times_x(power);
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
