//! FELIX blocks: there and back, arbitrary bytes, and every way in which blocks can fail to make chunks.

mod faults;
mod properties;

use super::*;

/// The largest block here, in KiB: under Miri, which is a thousand times slower, a small one.
const LARGEST_KIB: u16 = if cfg!(miri) { 2 } else { 64 };

/// Every kind of block that matters: both trailers, the smallest, a middle and the largest size.
fn formats() -> [BlockFormat; 5] {
    let sized = |kibibytes: u16| BlockFormat::sized(kibibytes.min(LARGEST_KIB)).expect("1 to 64 KiB");
    [BlockFormat::NARROW, BlockFormat::WIDE, sized(1), sized(4), sized(64)]
}

const ELINK: ELink = ELink::of(3, 5, 7);

/// Everything that blocks decode to.
fn decode(format: BlockFormat, bytes: &[u8]) -> Vec<Decoded> {
    let (mut decoder, mut decoded) = (Decoder::new(format, 1 << 20), Vec::new());
    decoder.blocks(bytes, &mut |one| decoded.push(one));
    decoded
}

fn chunk(bytes: &[u8], status: Status) -> Decoded {
    Decoded::Chunk { elink: ELINK, bytes: bytes.to_vec(), status }
}

fn chunk_error(error: ChunkError) -> Decoded {
    Decoded::ChunkError { elink: ELINK, error }
}

/// Bytes that tell where they belong; under Miri, which would make them for minutes, of which chunk they are.
fn payload(length: usize) -> Vec<u8> {
    if cfg!(miri) {
        return vec![length as u8; length];
    }
    (0..length).map(|index| (index * 7 + length) as u8).collect()
}

#[test]
fn the_fields_are_where_the_format_puts_them() {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(BlockFormat::NARROW, ELink::new(0x5A3));
    encoder.set_sequence(0x15);
    encoder.chunk(&[1, 2, 3], Status::ERROR, &mut out);
    encoder.out_of_band(0x1234, &mut out);
    encoder.time_out(&mut out);
    assert_eq!(out.len(), 1024);
    // Header 0xABCD_ADA3; both = 3 << 13, error = 1 << 11; out of band = 7 << 13.
    assert_eq!(out[..12], [0xA3, 0xAD, 0xCD, 0xAB, 1, 2, 3, 0, 0x03, 0x68, 0x34, 0xF2]);
    // A time-out after 1010 bytes of filler.
    assert_eq!(out[1022..], (5_u16 << 13 | 1010).to_le_bytes());

    out.clear();
    let format = BlockFormat::sized(4).expect("a size");
    let mut encoder = Encoder::new(format, ELink::new(0x5A3));
    encoder.chunk(&[1, 2, 3, 4, 5], Status::BUSY.and(Status::CRC).and(Status::TRUNCATED), &mut out);
    encoder.flush(&mut out);
    assert_eq!(out.len(), 4096);
    assert_eq!(out[..16], [0xA3, 0x05, 0xCE, 0xC3, 1, 2, 3, 4, 5, 0, 0, 0, 5, 0, 0, 0x76]);
    assert!(out[16..].iter().all(|&byte| byte == 0));
}

#[test]
fn each_symbol_is_one_kind_of_block_or_none() {
    for symbol in (0..=u16::MAX).step_by(if cfg!(miri) { 61 } else { 1 }) {
        let format = BlockFormat::from_symbol(symbol);
        let is_sized = symbol & 0xC0FF == 0xC0CE;
        assert_eq!(format.is_some(), is_sized || symbol == 0xABCD || symbol == 0xABCE, "{symbol:#x}");
        if let Some(format) = format {
            assert_eq!(format.symbol(), symbol);
            let kibibytes = if is_sized { usize::from(symbol >> 8 & 0x3F) + 1 } else { 1 };
            assert_eq!(format.block_bytes(), kibibytes * 1024);
            assert_eq!(format.trailer_bytes(), if symbol == 0xABCD { 2 } else { 4 });
        }
    }
    assert_eq!(BlockFormat::sized(4).map(BlockFormat::symbol), Some(0xC3CE));
    assert_eq!(BlockFormat::sized(0), None);
    assert_eq!(BlockFormat::sized(65), None);
}

#[test]
fn an_elink_has_three_parts() {
    assert_eq!((ELINK.number(), ELINK.link(), ELINK.group(), ELINK.path()), (0xEF, 3, 5, 7));
    assert_eq!(ELink::new(0xFFFF).index(), ELINKS - 1);
}

#[test]
fn a_chunk_of_the_largest_size_that_fits_is_not_split() {
    for format in formats() {
        let (whole, more) = (payload(format.most_data_bytes()), payload(format.most_data_bytes() + 1));
        let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
        encoder.chunk(&whole, Status::GOOD, &mut out);
        assert_eq!(out.len(), format.block_bytes());
        encoder.chunk(&more, Status::GOOD, &mut out);
        encoder.flush(&mut out);
        assert_eq!(out.len(), 3 * format.block_bytes());
        assert_eq!(decode(format, &out), [chunk(&whole, Status::GOOD), chunk(&more, Status::GOOD)]);
    }
}

#[test]
fn the_paper_counts_fifteen_chunks_of_64_bytes_in_a_block() {
    let (mut out, mut encoder) = (Vec::new(), Encoder::new(BlockFormat::NARROW, ELINK));
    for _ in 0..16 {
        encoder.chunk(&payload(64), Status::GOOD, &mut out);
    }
    let mut sub_chunks = Vec::new();
    walk(&out, BlockFormat::NARROW, &mut sub_chunks).expect("one good block");
    let kinds: Vec<_> = sub_chunks.iter().map(|sub_chunk| Trailer(sub_chunk.trailer).kind()).collect();
    assert_eq!(kinds[..15], [SubChunkType::Both; 15]);
    assert_eq!(kinds[15..], [SubChunkType::First]);
}

#[test]
fn a_time_out_in_the_middle_of_a_chunk_lets_it_go_on_unless_it_is_truncated() {
    for format in formats() {
        let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
        encoder.sub_chunk(Trailer::new(SubChunkType::First, 3, Status::GOOD), &[1, 2, 3], &mut out);
        encoder.time_out(&mut out);
        encoder.sub_chunk(Trailer::new(SubChunkType::Last, 2, Status::CRC), &[4, 5], &mut out);
        encoder.sub_chunk(Trailer::new(SubChunkType::First, 1, Status::ERROR), &[6], &mut out);
        encoder.sub_chunk(Trailer::new(SubChunkType::Timeout, 1, Status::TRUNCATED), &[7], &mut out);
        encoder.sub_chunk(Trailer::new(SubChunkType::Timeout, 1, Status::TRUNCATED), &[8], &mut out);
        encoder.flush(&mut out);
        let cut_off = Status::TRUNCATED.and(Status::TIMED_OUT);
        let expected =
            [chunk(&[1, 2, 3, 4, 5], Status::CRC), chunk(&[6, 7], Status::ERROR.and(cut_off)), chunk(&[8], cut_off)];
        assert_eq!(decode(format, &out), expected);
    }
}

#[test]
fn a_stream_that_is_joined_anywhere_finds_its_blocks() {
    let (mut out, mut encoder) = (Vec::new(), Encoder::new(BlockFormat::WIDE, ELINK));
    // Data that look like headers, though never one block behind the other.
    let tempting = [BlockHeader::default().to_bytes(BlockFormat::WIDE).as_slice(), &[0; 36]].concat().repeat(30);
    (0..4).for_each(|_| encoder.chunk(&tempting, Status::GOOD, &mut out));
    encoder.flush(&mut out);
    assert_eq!(BlockFormat::detect(&out), Some(BlockFormat::WIDE));
    for cut in [0, 1, 500, 1023, 1024] {
        assert_eq!(BlockFormat::WIDE.find(&out[cut..]), Some((1024 - cut) % 1024), "{cut}");
    }
    assert_eq!(BlockFormat::NARROW.find(&out), None);
    assert_eq!(BlockFormat::NARROW.find(&[]), None);
}

#[test]
fn names_are_unique_and_numbers_go_there_and_back() {
    let names: std::collections::BTreeSet<_> = BlockError::ALL
        .iter()
        .map(|error| error.name())
        .chain(ChunkError::ALL.iter().map(|error| error.name()))
        .collect();
    assert_eq!(names.len(), BlockError::ALL.len() + ChunkError::ALL.len());
    for error in BlockError::ALL {
        assert_eq!(BlockError::from_u8(error as u8), Some(error));
        assert!(!error.to_string().is_empty() && !error.cause().help().is_empty());
    }
    assert_eq!((BlockError::from_u8(0), BlockError::from_u8(6)), (None, None));
    for (index, error) in ChunkError::ALL.into_iter().enumerate() {
        assert_eq!(error as usize, index);
        assert!(!error.to_string().is_empty() && !error.cause().help().is_empty());
    }
    assert_eq!(format!("{:?}", Status::BUSY.and(Status::TIMED_OUT)), "Status(busy timed_out)");
}
