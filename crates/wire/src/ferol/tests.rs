//! FEROL blocks: there and back, arbitrary bytes, and every way in which blocks can fail to make a fragment.

use super::*;
use proptest::prelude::*;
use ropewalk_terms::{Cause, SourceId};

fn any_block_header() -> impl Strategy<Value = BlockHeader> {
    let words = 1..=(MAX_PAYLOAD_BYTES / 8) as u16;
    (words, any::<bool>(), any::<bool>(), 0..1_u16 << 11, 0..1_u32 << 12, 0..1_u32 << 24).prop_map(
        |(words, first, last, packet, source, event_number)| BlockHeader {
            payload_bytes: 8 * words,
            first,
            last,
            packet,
            source: SourceId(source),
            event_number,
        },
    )
}

/// The headers of a fragment's blocks.
fn headers(length: usize) -> Vec<BlockHeader> {
    blocks_of(length, SourceId(843), 17).map(|(header, _)| header).collect()
}

/// What a fresh assembly makes of these blocks: what it gave up, and the lengths of what it completed.
fn assemble(blocks: &[BlockHeader]) -> (Vec<FragmentError>, Vec<usize>) {
    let mut assembly = Assembly::new(1 << 20);
    let accepted: Vec<Accepted> = blocks.iter().map(|block| assembly.accept(block)).collect();
    (
        accepted.iter().filter_map(|accepted| accepted.gives_up).collect(),
        accepted.iter().filter_map(|accepted| accepted.completes).collect(),
    )
}

#[test]
fn the_fields_are_where_the_format_puts_them() {
    let header = BlockHeader {
        payload_bytes: 4080,
        first: true,
        last: false,
        packet: 0x123,
        source: SourceId(0x34B),
        event_number: 0xAB_CDEF,
    };
    let bytes = [0x47, 0x5A, 0x01, 0x23, 0x80, 0, 0x01, 0xFE, 0x03, 0x4B, 0, 0, 0, 0xAB, 0xCD, 0xEF];
    assert_eq!(header.to_bytes(), bytes);
    let last = BlockHeader { first: false, last: true, ..header };
    assert_eq!(last.to_bytes()[4], 0x40);
}

#[test]
fn lost_framing_has_its_names() {
    let good = headers(8)[0].to_bytes();
    let mut bad = good;
    bad[0] ^= 1;
    assert_eq!(BlockHeader::parse(&bad), Err(BlockError::Signature));
    for words in [0_u16, 511, 1023] {
        let mut bad = good;
        bad[6..8].copy_from_slice(&words.to_be_bytes());
        assert_eq!(BlockHeader::parse(&bad), Err(BlockError::Length));
    }
    assert_eq!(BlockError::Signature.cause(), Cause::FramingLost);
    assert_eq!(BlockError::Length.cause(), Cause::FramingLost);
}

#[test]
fn fragments_are_cut_at_4080_bytes() {
    let blocks: Vec<_> = blocks_of(23_104, SourceId(843), 17).collect();
    assert_eq!(blocks.len(), 6);
    assert_eq!(blocks[5].1, 20_400..23_104);
    assert!(blocks[0].0.first && !blocks[0].0.last && !blocks[5].0.first && blocks[5].0.last);
    assert_eq!(headers(4080).len(), 1);
    assert_eq!(headers(4088).len(), 2);
    assert_eq!(headers(0).len(), 0);
    assert_eq!(headers(16 + 7), headers(16));
}

#[test]
fn each_fault_gives_up_one_fragment_and_the_next_is_whole() {
    let long = headers(3 * MAX_PAYLOAD_BYTES);
    let (first, middle, last) = (long[0], long[1], long[2]);
    let single = headers(48)[0];
    let of_source = |source| BlockHeader { source: SourceId(source), ..middle };
    let of_event = |event_number| BlockHeader { event_number, ..middle };
    let cases: [(&[BlockHeader], FragmentError, Cause); 8] = [
        (&[first, middle], FragmentError::CutShort, Cause::CutShort),
        (&[first], FragmentError::CutShort, Cause::CutShort),
        (&[middle, last], FragmentError::NoBeginning, Cause::Malformed),
        (&[last], FragmentError::NoBeginning, Cause::Malformed),
        (&[first, last], FragmentError::Packet, Cause::Malformed),
        (&[first, middle, middle, last], FragmentError::Packet, Cause::Malformed),
        (&[first, of_source(1), last], FragmentError::Source, Cause::WrongSource),
        (&[first, of_event(18), last], FragmentError::EventNumber, Cause::Malformed),
    ];
    for (blocks, error, cause) in cases {
        assert_eq!(assemble(&[blocks, &[single], &long].concat()), (vec![error], vec![48, 12_240]), "{error}");
        assert_eq!(error.cause(), cause);
    }
}

#[test]
fn a_fragment_that_grows_too_large_is_given_up_once() {
    let mut assembly = Assembly::new(10_000);
    let blocks = headers(5 * MAX_PAYLOAD_BYTES);
    let accepted: Vec<Accepted> = blocks.iter().map(|block| assembly.accept(block)).collect();
    assert_eq!(accepted[1].place, Place::Continues);
    assert_eq!(accepted[2].gives_up, Some(FragmentError::Oversize));
    assert_eq!(FragmentError::Oversize.cause(), Cause::Oversize);
    for later in &accepted[3..] {
        assert_eq!(*later, Accepted { gives_up: None, place: Place::Skipped, completes: None });
    }
    assert_eq!(assembly.accept(&headers(48)[0]).completes, Some(48));
}

#[test]
fn packet_numbers_wrap() {
    let length = 2050 * MAX_PAYLOAD_BYTES;
    let mut assembly = Assembly::new(length);
    let completes: Vec<usize> = headers(length).iter().filter_map(|block| assembly.accept(block).completes).collect();
    assert_eq!(completes, [length]);
}

#[test]
fn the_end_of_a_stream_shows_what_is_unfinished() {
    let mut assembly = Assembly::new(1 << 20);
    assert_eq!(assembly.unfinished_bytes(), None);
    assembly.accept(&headers(8000)[0]);
    assert_eq!(assembly.unfinished_bytes(), Some(4080));
    assembly.accept(&headers(8000)[1]);
    assert_eq!(assembly.unfinished_bytes(), None);
}

proptest! {
    #[test]
    fn headers_come_back(header in any_block_header()) {
        prop_assert_eq!(BlockHeader::parse(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn fragments_come_back(words in 1..3000_usize, source in 0..1_u32 << 12, event_number in 0..1_u32 << 24) {
        let fragment: Vec<u8> = (0..8 * words).map(|index| (index * 7 / 8) as u8).collect();
        let mut stream = Vec::new();
        encode_fragment(&fragment, SourceId(source), event_number, &mut stream);
        let (mut assembly, mut rest, mut again) = (Assembly::new(1 << 20), &stream[..], Vec::new());
        while let Some((block, behind)) = Block::split_first(rest).expect("blocks") {
            let accepted = assembly.accept(&block.header);
            prop_assert_eq!(accepted.gives_up, None);
            prop_assert_eq!(accepted.completes.is_some(), behind.is_empty());
            prop_assert_eq!(block.header.block_bytes(), rest.len() - behind.len());
            again.extend_from_slice(block.payload);
            rest = behind;
        }
        prop_assert!(rest.is_empty());
        prop_assert_eq!(again, fragment);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), signed: bool) {
        let mut bytes = bytes;
        if signed && bytes.len() >= 2 {
            bytes[..2].copy_from_slice(&[0x47, 0x5A]);
        }
        let _ = Block::split_first(&bytes);
    }

    #[test]
    fn any_order_of_blocks_gives_up_or_completes_what_began(blocks in prop::collection::vec(any_block_header(), 0..200)) {
        let mut assembly = Assembly::new(20_000);
        let (mut begun, mut ended) = (0, 0);
        for block in &blocks {
            let accepted = assembly.accept(block);
            ended += u32::from(accepted.completes.is_some());
            ended += u32::from(accepted.gives_up.is_some_and(|error| error != FragmentError::NoBeginning));
            begun += u32::from(accepted.place == Place::Begins);
        }
        prop_assert_eq!(begun, ended + u32::from(assembly.unfinished_bytes().is_some()));
    }
}
