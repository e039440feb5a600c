//! Records: there and back, every fault, and whatever comes.

use super::*;
use crate::mep::{Bank, encode_bank};
use proptest::prelude::*;

const ABOUT: AboutEvent = AboutEvent { trigger_mask: [1, 2, 3, 4], run: 42, orbit: 5, bunch: 6 };

fn banks(data: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (data, source) in data.iter().zip(0..) {
        encode_bank(&Bank { kind: 12, version: 3, source, data }, &mut out).expect("it is short");
    }
    out
}

fn record(banks: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_record(&ABOUT, &[banks], &mut out).expect("it is short");
    out
}

#[test]
fn the_fields_are_where_the_format_puts_them() {
    let record = record(&banks(&[b"abcde".to_vec()]));
    assert_eq!(record.len(), 48 + 8 + 8);
    let words: Vec<u32> = record.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
    assert_eq!(words[..3], [64, 64, 64]);
    assert_eq!(record[16..20], [0, 3 << 4 | 7, 1, 0]);
    assert_eq!(words[5..12], [1, 2, 3, 4, 42, 5, 6]);
    assert_eq!(&record[48..], b"\xCB\xCB\x0D\x00\x0C\x03\x00\x00abcde\x00\x00\x00");
    assert_eq!(words[3], hash32([&record[16..]]));
}

#[test]
fn the_hash_is_jenkins_one_at_a_time_over_signed_bytes() {
    // The first two are the algorithm's published check values.
    assert_eq!(hash32([&b"a"[..]]), 0xCA2E_9442);
    assert_eq!(hash32([&b"The quick brown fox jumps over "[..], b"the lazy dog"]), 0x519E_91F5);
    // 0xFF counts as -1.
    assert_eq!(hash32([&[0xFF][..]]), 0xAE65_A494);
}

#[test]
fn a_record_without_a_checksum_has_none() {
    let mut record = record(&banks(&[b"abc".to_vec()]));
    assert_eq!(Record::parse(&record).expect("a record").is_right(), Some(true));
    record[50] ^= 1;
    assert_eq!(Record::parse(&record).expect("a record").is_right(), Some(false));
    record[12..16].fill(0);
    assert_eq!(Record::parse(&record).expect("a record").is_right(), None);
}

#[test]
fn lengths_that_disagree_are_none() {
    let good = record(&[]);
    for at in [0, 4, 8] {
        let mut wrong = good.clone();
        wrong[at] += 1;
        assert_eq!(Record::parse(&wrong), Err(MdfError::Lengths));
    }
    let mut short = good.clone();
    [0, 4, 8].iter().for_each(|&at| short[at] = 47);
    assert_eq!(Record::parse(&short), Err(MdfError::Header));
    assert_eq!(Record::parse(&good[..19]), Err(MdfError::Short { needed: FRONT_BYTES }));
    assert_eq!(Record::parse(&good[..47]), Err(MdfError::Short { needed: HEADER_BYTES }));
}

#[test]
fn what_an_unknown_version_says_of_the_event_is_left_alone() {
    let mut record = record(&banks(&[b"abc".to_vec()]));
    record[17] = 1 << 4 | 7;
    assert_eq!(Record::parse(&record).expect("a record").header().about, Some(ABOUT));
    record[17] = 2 << 4 | 7;
    let found = Record::parse(&record).expect("a record");
    assert_eq!((found.header().about, found.header().data()), (None, 48..60));
    record[16] = 4;
    assert!(!Record::parse(&record).expect("a record").header().has_plain_banks());
}

proptest! {
    #[test]
    fn a_record_comes_back_as_it_was_written(
        data in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut record = record(&banks(&data));
        let found = Record::parse(&record).expect("a record");
        prop_assert_eq!(found.header().about, Some(ABOUT));
        let found_data: Vec<Vec<u8>> = found.banks().map(|bank| bank.expect("a bank").data.to_vec()).collect();
        prop_assert_eq!(found_data, data);
        prop_assert_eq!(found.is_right(), Some(true));
        for length in 0..record.len() {
            let needs_more = matches!(Record::parse(&record[..length]), Err(MdfError::Short { needed }) if needed > length);
            prop_assert!(needs_more, "of {} bytes {length}", record.len());
        }
        // A flipped bit is a wrong checksum, another layout, or no record.
        let bit = bit.index(8 * record.len());
        record[bit / 8] ^= 1 << (bit % 8);
        if let Ok(found) = Record::parse(&record) {
            prop_assert!(found.is_right() != Some(true));
            let _ = found.banks().count();
        }
    }

    #[test]
    fn any_bytes_may_be_asked(mut bytes in prop::collection::vec(any::<u8>(), 0..120), length in 20..120_u32) {
        for at in [0, 4, 8] {
            if let Some(word) = bytes.get_mut(at..at + 4) {
                word.copy_from_slice(&length.to_le_bytes());
            }
        }
        if let Ok(record) = Record::parse(&bytes) {
            let _ = (record.is_right(), record.banks().count());
        }
    }
}
