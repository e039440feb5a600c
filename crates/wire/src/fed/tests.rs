//! FED fragments: round trips, arbitrary bytes, every fault, and the fragments of a real detector.

use super::*;
use core::iter::once;
use proptest::prelude::*;
use ropewalk_terms::{Cause, SourceId};

fn any_header() -> impl Strategy<Value = Header> {
    (0..1_u32 << 12, 0..1_u32 << 24, 0..1_u16 << 12, 0..16_u8, 0..16_u8, any::<bool>()).prop_map(
        |(source, level1_id, bunch_crossing, event_type, version, more)| {
            let Header(word) = Header::new(SourceId(source), level1_id, bunch_crossing);
            let word = with_field(with_field(word, 56, 4, event_type.into()), 4, 4, version.into());
            Header(with_field(word, 3, 1, more.into()))
        },
    )
}

/// Whole words, most of which look like headers and trailers.
fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    let word = (any::<u64>(), prop::sample::select(vec![None, Some(5_u64), Some(0xA)]), 0..40_u64);
    prop::collection::vec(word, 0..300).prop_map(|words| {
        let words = words.into_iter().map(|(word, nibble, length)| match nibble {
            None => word,
            Some(nibble) => nibble << 60 | length << 32 | word & 0xFFFF_FFFF,
        });
        words.flat_map(u64::to_le_bytes).collect()
    })
}

fn example() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(Header::new(SourceId(841), 4685, 1234), &[0x3C; 24], Trailer::new(), &mut bytes).expect("whole words");
    bytes
}

/// The combined result of [`Fragment::parse`], the source check and the CRC check.
fn check(bytes: &[u8], source: u32) -> Result<(), FedError> {
    let fragment = Fragment::parse(bytes)?;
    fragment.check_source(SourceId(source))?;
    fragment.check_crc()
}

#[test]
fn the_fields_are_where_the_format_puts_them() {
    let header = Header::parse(0x5789_ABCD_1233_4568_u64.to_le_bytes()).expect("a header");
    assert_eq!(header.event_type(), 7);
    assert_eq!(header.level1_id(), 0x89_ABCD);
    assert_eq!(header.bunch_crossing(), 0x123);
    assert_eq!(header.source(), SourceId(0x345));
    assert_eq!(header.version(), 6);
    let trailer = Trailer::parse(0xA012_3456_789A_0BC8_u64.to_le_bytes()).expect("a trailer");
    assert_eq!(trailer.length_in_words(), 0x12_3456);
    assert_eq!(trailer.crc(), 0x789A);
    assert_eq!(trailer.status(), 0xB);
    assert_eq!(trailer.tts(), 0xC);
    assert!(trailer.more_trailers());
}

#[test]
fn each_fault_has_its_name() {
    let good = example();
    assert_eq!(check(&good, 841), Ok(()));
    assert_eq!(check(&good, 842), Err(FedError::Source));
    assert_eq!(check(&good[..8], 841), Err(FedError::Size));
    assert_eq!(check(&good[1..], 841), Err(FedError::Size));
    assert_eq!(check(&good[8..], 841), Err(FedError::Header));
    assert_eq!(check(&good[..good.len() - 8], 841), Err(FedError::Trailer));
    let longer = [&good[..8], &[0; 8], &good[8..]].concat();
    assert_eq!(check(&longer, 841), Err(FedError::Length));
    let last = good.len() - 8;
    let mut announces_more = good.clone();
    announces_more[last] |= 1 << 3;
    assert_eq!(check(&announces_more, 841), Err(FedError::Trailer));
    for bit in 0..8 * good.len() {
        let mut damaged = good.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let outside_crc = [8 * last + 2, 8 * last + 14, 8 * last + 15].contains(&bit);
        assert_eq!(check(&damaged, 841).is_ok(), outside_crc, "bit {bit}");
    }
}

#[test]
fn each_fault_has_a_cause() {
    assert_eq!(FedError::Header.cause(), Cause::Malformed);
    assert_eq!(FedError::Trailer.cause(), Cause::Malformed);
    assert_eq!(FedError::Size.cause(), Cause::Malformed);
    assert_eq!(FedError::Length.cause(), Cause::LengthMismatch);
    assert_eq!(FedError::Source.cause(), Cause::WrongSource);
    assert_eq!(FedError::Crc.cause(), Cause::CrcError);
}

#[test]
fn payloads_that_do_not_fit_are_refused_and_append_nothing() {
    let mut out = Vec::new();
    let header = Header::new(SourceId(1), 1, 1);
    assert_eq!(encode(header, &[0; 7], Trailer::new(), &mut out), Err(FedError::Size));
    assert_eq!(encode(header, &vec![0; MAX_BYTES], Trailer::new(), &mut out), Err(FedError::Size));
    assert!(out.is_empty());
}

#[test]
fn pieces_of_another_length_are_refused() {
    let bytes = example();
    let ends = Fragment::parse(&bytes).expect("well formed").ends();
    assert_eq!(ends.check_crc([&bytes[..8], &bytes[8..]]), Ok(()));
    assert_eq!(ends.check_crc([&bytes[..8]]), Err(FedError::Length));
    assert_eq!(ends.check_crc([&bytes[..], &bytes[..1]]), Err(FedError::Length));
}

#[test]
fn a_damaged_file_is_cut_from_both_sides() {
    let one = example();
    let length = one.len();
    let mut file = one.repeat(5);
    assert_eq!(split_file(&file).fragments.len(), 5);
    file[2 * length + 12] ^= 1; // a wrong CRC only flags: the next header stands where it must
    assert_eq!(split_file(&file).fragments.len(), 5);
    file[3 * length - 4] ^= 1; // the third fragment's length
    let split = split_file(&file);
    assert_eq!(split.gap, 2 * length..3 * length);
    let expected: Vec<_> = [0, 1, 3, 4].map(|index| index * length..(index + 1) * length).into();
    assert_eq!(split.fragments, expected);
}

#[test]
fn a_word_that_states_the_right_length_is_not_enough() {
    let mut payload = [0x3C; 40];
    payload[16..24].copy_from_slice(&Trailer::new().with_length_in_words(4).to_bytes());
    let mut file = Vec::new();
    encode(Header::new(SourceId(1), 2, 3), &payload, Trailer::new(), &mut file).expect("whole words");
    assert_eq!(split_file(&file), Split { fragments: once(0..56).collect(), gap: 56..56 });
}

#[test]
fn a_wrong_length_does_not_tear_a_fragment_apart() {
    let mut file = Vec::new();
    encode(Header::new(SourceId(1), 2, 3), &[0x5A; 24], Trailer::new(), &mut file).expect("whole words");
    let trailer = Trailer::new().with_length_in_words(4); // points at payload that looks like a header
    file[32..].copy_from_slice(&trailer.to_bytes());
    assert_eq!(split_file(&file), Split { fragments: vec![], gap: 0..40 });
}

#[test]
fn a_file_whose_end_is_missing_is_cut_up_to_there() {
    let file = example().repeat(3);
    let split = split_file(&file[..file.len() - 3]);
    assert_eq!(split.fragments.len(), 2);
    assert_eq!(split.gap, 2 * file.len() / 3..file.len() - 3);
    assert_eq!(split_file(&[]), Split::default());
}

proptest! {
    #[test]
    fn encoded_fragments_come_back(header in any_header(), payload in any_payload(), status in 0..16_u8, tts in 0..16_u8) {
        let mut bytes = Vec::new();
        encode(header, &payload, Trailer(with_field(with_field(Trailer::new().0, 8, 4, status.into()), 4, 4, tts.into())), &mut bytes).expect("whole words");
        let fragment = Fragment::parse(&bytes).expect("well formed");
        prop_assert_eq!(fragment.check_crc(), Ok(()));
        prop_assert_eq!(fragment.header(), header);
        prop_assert_eq!(fragment.payload(), &payload[..]);
        prop_assert_eq!((fragment.trailer().status(), fragment.trailer().tts()), (status, tts));
        let mut again = Vec::new();
        fragment.to_value().encode(&mut again).expect("whole words");
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = check(&bytes, 1);
        let split = split_file(&bytes);
        let covered: usize = split.fragments.iter().chain([&split.gap]).map(ExactSizeIterator::len).sum();
        prop_assert_eq!(covered, bytes.len());
    }

    #[test]
    fn the_crc_of_pieces_is_that_of_the_whole(
        payload in any_payload(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let mut bytes = Vec::new();
        encode(Header::new(SourceId(1), 2, 3), &payload, Trailer::new(), &mut bytes).expect("whole words");
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let ends = Fragment::parse(&bytes).expect("well formed").ends();
        prop_assert_eq!(ends.check_crc(cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]])), Ok(()));
    }

    #[test]
    fn a_patched_fragment_is_the_one_encoded_anew(old in any_header(), new in any_header(), payload in any_payload()) {
        let (mut bytes, mut anew) = (Vec::new(), Vec::new());
        encode(old, &payload, Trailer::new(), &mut bytes).expect("whole words");
        encode(new, &payload, Trailer::new(), &mut anew).expect("whole words");
        let patch = Patch::for_length(bytes.len());
        let (header, rest) = bytes.split_first_chunk_mut().expect("it has a header");
        patch.apply(header, rest.last_chunk_mut().expect("it has a trailer"), new);
        prop_assert_eq!(bytes, anew);
    }

    #[test]
    fn files_are_cut_where_they_were_joined(mut payloads in prop::collection::vec(any_payload(), 0..6)) {
        for word in payloads.iter_mut().flat_map(|payload| payload.as_chunks_mut::<8>().0) {
            word[6] = 1; // words that look like trailers state too great a length
        }
        let (mut file, mut ends) = (Vec::new(), vec![0]);
        for payload in &payloads {
            encode(Header::new(SourceId(1), 2, 3), payload, Trailer::new(), &mut file).expect("whole words");
            ends.push(file.len());
        }
        let expected: Vec<_> = ends.windows(2).map(|ends| ends[0]..ends[1]).collect();
        prop_assert_eq!(split_file(&file), Split { fragments: expected, gap: file.len()..file.len() });
    }
}
