use super::*;
use proptest::prelude::*;

#[test]
fn every_field_stands_in_its_word() {
    let mut bytes = Header::new(0x0076_0001, 0x00ab_cdef, 0x123, 0x84).to_bytes();
    assert_eq!(bytes[..8], [0xee, 0x34, 0x12, 0xee, 9, 0, 0, 0]);
    assert_eq!((&bytes[12..16], &bytes[20..24]), (&[1, 0, 0x76, 0][..], &[0xef, 0xcd, 0xab, 0][..]));
    assert_eq!((&bytes[24..28], &bytes[28..32]), (&[0x23, 1, 0, 0][..], &[0x84, 0, 0, 0][..]));
    bytes[23] = 7;
    let header = Header::parse(&bytes).expect("a header");
    assert_eq!((header.level1_id(), header.resets()), (0x00ab_cdef, 7));
    assert_eq!((header.bunch_crossing(), header.trigger_type()), (0x123, 0x84));
}

#[test]
fn another_marker_or_length_is_no_header() {
    let good = Header::new(1, 2, 3, 4).to_bytes();
    let with = |place: usize, byte: u8| {
        let mut bytes = good;
        bytes[place] = byte;
        Header::parse(&bytes)
    };
    assert_eq!(with(3, 0xdd), Err(RodError::Marker));
    assert_eq!(with(4, 8), Err(RodError::HeaderSize(8)), "of version 2");
    assert!(with(8, 0xff).is_ok());
}

proptest! {
    #[test]
    fn a_header_comes_back_bit_by_bit(words: [u32; WORDS]) {
        let mut bytes = [0; HEADER_BYTES];
        let words = [&[MARKER, 9], &words[2..]].concat();
        bytes.chunks_mut(4).zip(words).for_each(|(place, word)| place.copy_from_slice(&word.to_le_bytes()));
        let header = Header::parse(&bytes).expect("marker and length are right");
        prop_assert_eq!(header.to_bytes(), bytes);
    }
}
