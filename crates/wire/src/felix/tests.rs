//! FELIX blocks: round trips, arbitrary bytes, and every way in which blocks can fail to make chunks.

use proptest::prelude::*;

use super::*;

/// The largest block here, in KiB: under Miri, which is a thousand times slower, a small one.
const LARGEST_KIB: u16 = if cfg!(miri) { 2 } else { 64 };

/// Every relevant block format: both trailers, the smallest, a middle and the largest size.
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

/// Bytes that identify their place; under Miri, which would take minutes to make them, only their chunk.
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
    // Data that look like headers, but never one block behind another.
    let tempting = [BlockHeader::default().to_bytes(BlockFormat::WIDE).as_slice(), &[0; 36]].concat().repeat(30);
    (0..4).for_each(|_| encoder.chunk(&tempting, Status::GOOD, &mut out));
    encoder.flush(&mut out);
    assert_eq!(BlockFormat::detect(&out), Some(BlockFormat::WIDE));
    for cut in [0, 1, 500, 1023, 1024] {
        assert_eq!(BlockFormat::WIDE.find(&out[cut..]), Some((1024 - cut) % 1024), "{cut}");
    }
    assert_eq!(BlockFormat::NARROW.find(&out), None);
    assert_eq!(BlockFormat::NARROW.find(&[]), None);
    // Bytes that are lost further on change nothing.
    let (here, behind) = (&out[500..3 * 1024], &out[3 * 1024 + 7..]);
    assert_eq!(BlockFormat::WIDE.find(&[here, behind].concat()), Some(524));
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

/// Six blocks of one e-link with one chunk in each two blocks, larger than a block: `first`, `last` and filler.
fn blocks(format: BlockFormat) -> Vec<Vec<u8>> {
    let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
    for index in 0..3 {
        encoder.chunk(&large(format, index), Status::GOOD, &mut out);
        encoder.flush(&mut out);
    }
    out.chunks(format.block_bytes()).map(<[u8]>::to_vec).collect()
}

fn large(format: BlockFormat, index: usize) -> Vec<u8> {
    payload(format.block_bytes() + 100 + index)
}

fn good(format: BlockFormat, index: usize) -> Decoded {
    chunk(&large(format, index), Status::GOOD)
}

/// Changes the last trailer of a block.
fn change_trailer(block: &mut [u8], format: BlockFormat, change: impl Fn(Trailer) -> Trailer) {
    let word = block.last_chunk_mut().expect("four bytes");
    let before = u32::from_le_bytes(*word);
    let kept = if format.trailer_bytes() == 2 { before & 0xFFFF } else { 0 };
    *word = (change(Trailer::of_word(before, format)).to_word(format) | kept).to_le_bytes();
}

fn with_kind(trailer: Trailer, kind: SubChunkType) -> Trailer {
    Trailer::new(kind, trailer.data_bytes() as u16, trailer.status())
}

fn lengthened(trailer: Trailer, by: u32) -> Trailer {
    Trailer::new(trailer.kind(), (trailer.data_bytes() + by) as u16, trailer.status())
}

#[test]
fn a_block_of_the_wrong_size_is_not_walked() {
    for format in formats() {
        let mut blocks = blocks(format);
        assert_eq!(walk(&[], format, &mut Vec::new()), Err(BlockError::Size));
        blocks[4].pop();
        assert_eq!(walk(&blocks[4], format, &mut Vec::new()), Err(BlockError::Size));
        let decoded = decode(format, &blocks[..5].concat());
        assert_eq!(decoded, [good(format, 0), good(format, 1), Decoded::BlockError(BlockError::Size)]);
    }
}

#[test]
fn a_bad_start_of_block_costs_the_block_and_its_chunk() {
    for format in formats() {
        let mut blocks = blocks(format);
        blocks[2][3] ^= 0x20;
        let expected = [
            good(format, 0),
            Decoded::BlockError(BlockError::StartOfBlock),
            chunk_error(ChunkError::SequenceGap),
            good(format, 2),
        ];
        assert_eq!(decode(format, &blocks.concat()), expected);
    }
}

#[test]
fn a_length_that_ends_inside_the_header_has_the_wrong_padding() {
    for format in formats() {
        let mut blocks = blocks(format);
        // The beginning of the second chunk fills its block; four bytes more end at the block's first byte.
        change_trailer(&mut blocks[2], format, |trailer| lengthened(trailer, 4));
        let expected = [good(format, 0), Decoded::BlockError(BlockError::Padding), good(format, 2)];
        assert_eq!(decode(format, &blocks.concat()), expected);
    }
    let mut blocks = blocks(BlockFormat::NARROW);
    // An odd number of bytes too many.
    change_trailer(&mut blocks[2], BlockFormat::NARROW, |trailer| lengthened(trailer, 1));
    assert_eq!(walk(&blocks[2], BlockFormat::NARROW, &mut Vec::new()), Err(BlockError::Padding));
}

#[test]
fn a_length_that_goes_past_the_header_is_reported() {
    for format in formats().into_iter().filter(|format| format.block_bytes() < LARGEST_BLOCK_BYTES) {
        let by = if format.trailer_bytes() == 2 { 5 } else { 8 };
        let mut blocks = blocks(format);
        change_trailer(&mut blocks[2], format, |trailer| lengthened(trailer, by));
        let expected = [good(format, 0), Decoded::BlockError(BlockError::PastHeader), good(format, 2)];
        assert_eq!(decode(format, &blocks.concat()), expected);
    }
}

#[test]
fn an_undefined_type_is_reported() {
    for format in formats() {
        let mut blocks = blocks(format);
        change_trailer(&mut blocks[2], format, |trailer| with_kind(trailer, SubChunkType::Undefined));
        let expected = [good(format, 0), Decoded::BlockError(BlockError::Undefined), good(format, 2)];
        assert_eq!(decode(format, &blocks.concat()), expected);
    }
}

#[test]
fn a_damaged_block_gives_up_the_chunk_that_was_open() {
    for format in formats() {
        let mut blocks = blocks(format);
        change_trailer(&mut blocks[3], format, |_| Trailer::new(SubChunkType::Undefined, 0, Status::GOOD));
        let expected = [
            good(format, 0),
            Decoded::BlockError(BlockError::Undefined),
            chunk_error(ChunkError::Damaged),
            good(format, 2),
        ];
        assert_eq!(decode(format, &blocks.concat()), expected);
    }
}

#[test]
fn a_damaged_block_with_another_number_is_not_believed_to_be_of_the_elink() {
    let format = BlockFormat::NARROW;
    let mut blocks = blocks(format);
    let mut foreign = blocks[5].clone();
    change_trailer(&mut foreign, format, |_| Trailer::new(SubChunkType::Undefined, 0, Status::GOOD));
    blocks.insert(3, foreign);
    let expected = [good(format, 0), Decoded::BlockError(BlockError::Undefined), good(format, 1), good(format, 2)];
    assert_eq!(decode(format, &blocks.concat()), expected);
}

#[test]
fn a_missing_block_is_a_gap_and_costs_its_chunk() {
    for format in formats() {
        for missing in [2, 3] {
            let mut blocks = blocks(format);
            blocks.remove(missing);
            let expected = [good(format, 0), chunk_error(ChunkError::SequenceGap), good(format, 2)];
            assert_eq!(decode(format, &blocks.concat()), expected);
        }
    }
}

#[test]
fn sequence_numbers_go_round() {
    let format = BlockFormat::NARROW;
    let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
    for _ in 0..100 {
        encoder.chunk(&payload(1018), Status::GOOD, &mut out);
    }
    assert_eq!(decode(format, &out), vec![chunk(&payload(1018), Status::GOOD); 100]);
    encoder.set_sequence(encoder.header().sequence + 5);
    encoder.chunk(&payload(1018), Status::GOOD, &mut out);
    let decoded = decode(format, &out);
    assert_eq!(decoded[100..], [chunk_error(ChunkError::SequenceGap), chunk(&payload(1018), Status::GOOD)]);
}

#[test]
fn an_elink_that_is_joined_in_the_middle_waits_for_a_beginning_without_complaint() {
    for format in formats() {
        let decoded = decode(format, &blocks(format)[1..].concat());
        assert_eq!(decoded, [good(format, 1), good(format, 2)]);
    }
}

#[test]
fn pieces_without_a_beginning_are_one_fault() {
    for format in formats() {
        let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
        for kind in [SubChunkType::Middle, SubChunkType::Middle, SubChunkType::Last, SubChunkType::Last] {
            encoder.sub_chunk(Trailer::new(kind, 2, Status::GOOD), &[1, 2], &mut out);
        }
        encoder.chunk(&[3], Status::GOOD, &mut out);
        encoder.flush(&mut out);
        let no_first = chunk_error(ChunkError::NoFirst);
        assert_eq!(decode(format, &out), [no_first.clone(), no_first, chunk(&[3], Status::GOOD)]);
    }
}

#[test]
fn a_beginning_before_the_end_gives_the_open_chunk_up() {
    for format in formats() {
        let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
        for (byte, kind) in
            [SubChunkType::First, SubChunkType::First, SubChunkType::Last, SubChunkType::First].into_iter().enumerate()
        {
            encoder.sub_chunk(Trailer::new(kind, 1, Status::GOOD), &[byte as u8], &mut out);
        }
        encoder.chunk(&[9], Status::GOOD, &mut out);
        encoder.flush(&mut out);
        let no_last = chunk_error(ChunkError::NoLast);
        let expected = [no_last.clone(), chunk(&[1, 2], Status::GOOD), no_last, chunk(&[9], Status::GOOD)];
        assert_eq!(decode(format, &out), expected);
    }
}

#[test]
fn a_chunk_that_is_too_large_is_given_up_once() {
    let format = BlockFormat::NARROW;
    let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
    for length in [70_000, 65_536, 10] {
        encoder.chunk(&payload(length), Status::GOOD, &mut out);
    }
    encoder.flush(&mut out);
    let (mut decoder, mut decoded) = (Decoder::new(format, 0), Vec::new());
    decoder.blocks(&out, &mut |one| decoded.push(one));
    let expected =
        [chunk_error(ChunkError::Oversize), chunk(&payload(65_536), Status::GOOD), chunk(&payload(10), Status::GOOD)];
    assert_eq!(decoded, expected);
    assert_eq!(decoder.open_chunks(), 0);
}

#[test]
fn every_flag_of_every_piece_stands_in_the_status() {
    let flags = [Status::TRUNCATED, Status::ERROR, Status::CRC, Status::BUSY];
    for format in formats() {
        for flag in flags {
            for whose in 0..2 {
                let mut blocks = blocks(format);
                if whose == 0 {
                    change_trailer(&mut blocks[2], format, |trailer| {
                        Trailer::new(trailer.kind(), trailer.data_bytes() as u16, flag)
                    });
                } else {
                    // The end of a chunk whose flags the encoder writes.
                    let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
                    encoder.set_sequence(2);
                    encoder.chunk(&large(format, 1), flag, &mut out);
                    encoder.flush(&mut out);
                    let size = format.block_bytes();
                    (blocks[2], blocks[3]) = (out[..size].to_vec(), out[size..].to_vec());
                }
                let seen = if format.trailer_bytes() == 2 && flag == Status::BUSY { Status::GOOD } else { flag };
                let expected = [good(format, 0), chunk(&large(format, 1), seen), good(format, 2)];
                assert_eq!(decode(format, &blocks.concat()), expected);
            }
        }
    }
}

#[test]
fn a_chunk_that_has_not_ended_is_counted_as_open() {
    let format = BlockFormat::NARROW;
    let mut decoder = Decoder::new(format, 1 << 20);
    let blocks = blocks(format);
    decoder.block(&blocks[0], &mut |_| {});
    assert_eq!(decoder.open_chunks(), 1);
    decoder.block(&blocks[1], &mut |_| {});
    assert_eq!(decoder.open_chunks(), 0);
}

/// The longest chunk, and the number of steps: small under Miri.
const LONGEST: usize = if cfg!(miri) { 1500 } else { 5000 };
const SAID: usize = if cfg!(miri) { 6 } else { 60 };

/// An output of an e-link.
#[derive(Clone, Debug)]
enum Said {
    Chunk(usize, u8),
    Signal(u32),
    Null,
    Flush,
    TimeOut,
}

fn any_said() -> impl Strategy<Value = Said> {
    prop_oneof![
        8 => (0..200_usize, 0..32_u8).prop_map(|(length, status)| Said::Chunk(length, status)),
        2 => (0..LONGEST, 0..32_u8).prop_map(|(length, status)| Said::Chunk(length, status)),
        1 => any::<u32>().prop_map(Said::Signal),
        1 => Just(Said::Null),
        1 => Just(Said::Flush),
        1 => Just(Said::TimeOut),
    ]
}

fn any_format() -> impl Strategy<Value = BlockFormat> {
    prop_oneof![
        Just(BlockFormat::NARROW),
        Just(BlockFormat::WIDE),
        (1..=LARGEST_KIB).prop_map(|kibibytes| BlockFormat::sized(kibibytes).expect("1 to 64 KiB")),
    ]
}

/// The decoder's expected result for an e-link's outputs, in this format.
fn expected(said: &[Said], format: BlockFormat, elink: ELink) -> Vec<Decoded> {
    let is_narrow = format.trailer_bytes() == 2;
    let one = |said: &Said| match said {
        Said::Chunk(length, status) => {
            let mut status = Status(*status);
            if status.has(Status::TIMED_OUT) {
                status = status.and(Status::TRUNCATED);
            }
            if is_narrow {
                status.0 &= !Status::BUSY.0;
            }
            Some(Decoded::Chunk { elink, bytes: payload(*length), status })
        }
        Said::Signal(signal) => {
            Some(Decoded::Signal { elink, signal: signal & if is_narrow { 0x1FFF } else { 0x1FFF_FFFF } })
        }
        Said::Null | Said::Flush | Said::TimeOut => None,
    };
    said.iter().filter_map(one).collect()
}

fn encode(said: &[Said], encoder: &mut Encoder, out: &mut Vec<u8>) {
    for said in said {
        match said {
            Said::Chunk(length, status) => encoder.chunk(&payload(*length), Status(*status), out),
            Said::Signal(signal) => encoder.out_of_band(*signal, out),
            Said::Null => encoder.null(out),
            Said::Flush => encoder.flush(out),
            Said::TimeOut => encoder.time_out(out),
        }
    }
    encoder.flush(out);
}

/// Compares a fast walk with the checked one, block by block.
fn check_walker(walker: &mut Walker, format: BlockFormat, bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut walked = Walked::new(format.layout(), 64, 20);
    let (mut done, mut expected) = (0, Vec::new());
    while done < bytes.len() {
        let blocks = walker.walk(&bytes[done..], &mut walked);
        prop_assert!(blocks > 0);
        for (index, found) in walked.blocks().iter().enumerate() {
            let offset = index * format.block_bytes();
            expected.clear();
            let result = walk(&bytes[done + offset..][..format.block_bytes()], format, &mut expected);
            let fault = result.map_or_else(|error| error as u16, |_| 0);
            prop_assert_eq!((found.fault, found.count as usize), (fault, expected.len()), "{}", walker.name());
            if let Ok(header) = result {
                prop_assert_eq!(BlockHeader::of_word(found.header), header);
            }
            expected.iter_mut().for_each(|sub_chunk| sub_chunk.offset += offset as u32);
            let sub_chunks = &walked.sub_chunks()[found.first as usize..][..expected.len()];
            prop_assert!(sub_chunks == &expected[..], "{}: block {index}", walker.name());
            let is_odd = |sub_chunk: &&SubChunk| {
                let trailer = Trailer(sub_chunk.trailer);
                trailer.kind() != SubChunkType::Both || !trailer.status().is_good()
            };
            let inner = expected.get(1..expected.len().max(2) - 1).unwrap_or_default();
            let odd = if fault > 0 { usize::from(u16::MAX) } else { inner.iter().filter(is_odd).count() };
            prop_assert_eq!((usize::from(found.odd), found.is_plain()), (odd, odd == 0));
        }
        done += blocks * format.block_bytes();
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_was_said_comes_out_of_the_blocks(format in any_format(), said in prop::collection::vec(any_said(), 0..SAID)) {
        let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
        encode(&said, &mut encoder, &mut out);
        prop_assert_eq!(out.len() % format.block_bytes(), 0);
        prop_assert!(encoder.is_empty());
        prop_assert_eq!(decode(format, &out), expected(&said, format, ELINK));
    }

    #[test]
    fn elinks_do_not_disturb_each_other(
        format in any_format(),
        said in prop::collection::vec((0..4_u16, any_said()), 0..2 * SAID),
    ) {
        let mut encoders: Vec<_> = (0..4).map(|elink| Encoder::new(format, ELink::new(elink))).collect();
        let mut out = Vec::new();
        for (elink, said) in &said {
            let encoder = &mut encoders[usize::from(*elink)];
            match said {
                Said::Chunk(length, status) => encoder.chunk(&payload(*length), Status(*status), &mut out),
                Said::Signal(signal) => encoder.out_of_band(*signal, &mut out),
                Said::Null => encoder.null(&mut out),
                Said::Flush => encoder.flush(&mut out),
                Said::TimeOut => encoder.time_out(&mut out),
            }
        }
        encoders.iter_mut().for_each(|encoder| encoder.flush(&mut out));
        let decoded = decode(format, &out);
        for elink in (0..4).map(ELink::new) {
            let of_elink = |decoded: &&Decoded| {
                matches!(decoded, Decoded::Chunk { elink: of, .. } | Decoded::Signal { elink: of, .. } if *of == elink)
            };
            let said: Vec<Said> =
                said.iter().filter(|(of, _)| *of == elink.number()).map(|(_, said)| said.clone()).collect();
            let mine: Vec<Decoded> = decoded.iter().filter(of_elink).cloned().collect();
            prop_assert_eq!(mine, expected(&said, format, elink));
        }
        let is_error = |decoded: &Decoded| matches!(decoded, Decoded::ChunkError { .. } | Decoded::BlockError(_));
        prop_assert!(!decoded.iter().any(is_error));
    }

    #[test]
    fn arbitrary_bytes_are_sub_chunks_that_fill_the_block_or_an_error(
        format in prop::sample::select(&[BlockFormat::NARROW, BlockFormat::WIDE][..]),
        mut bytes in prop::collection::vec(any::<u8>(), 1020..1028),
        right_size: bool,
        right_symbol: bool,
        zeros in 0..1024_usize,
    ) {
        if right_size {
            bytes.resize(1024, 0);
        }
        if right_symbol {
            bytes[2..4].copy_from_slice(&format.symbol().to_le_bytes());
        }
        // Random trailers soon go past the header: zeros before the end are null trailers.
        let end = bytes.len();
        bytes[zeros.clamp(4, end)..].fill(0);
        let mut sub_chunks = vec![SubChunk::default()];
        match walk(&bytes, format, &mut sub_chunks) {
            Err(_) => prop_assert_eq!(sub_chunks.len(), 1),
            Ok(_) => {
                let mut at = HEADER_BYTES;
                for sub_chunk in &sub_chunks[1..] {
                    prop_assert_eq!(sub_chunk.offset as usize, at);
                    let data = Trailer(sub_chunk.trailer).data_bytes() as usize;
                    at += data.next_multiple_of(format.trailer_bytes()) + format.trailer_bytes();
                }
                prop_assert_eq!(at, bytes.len());
            }
        }
        decode(format, &bytes);
    }

    #[test]
    fn every_fast_walk_finds_what_the_checked_one_finds(
        format in any_format(),
        said in prop::collection::vec(any_said(), 1..2 * SAID),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 0..20),
    ) {
        let (mut bytes, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
        (0..3).for_each(|_| encode(&said, &mut encoder, &mut bytes));
        let length = bytes.len();
        for (place, bit) in flips.iter().filter(|_| length > 0) {
            let place = place.index(bytes.len());
            // Trailers and headers are hit more often than data.
            let end = (place / format.block_bytes() + 1) * format.block_bytes();
            let place = [place, end - 1, end - 2, end - format.block_bytes() + place % 4][place % 4];
            bytes[place] ^= 1_u8 << bit;
        }
        for mut walker in Walker::all(format.layout()) {
            check_walker(&mut walker, format, &bytes)?;
        }
    }

    #[test]
    fn a_block_that_ends_and_begins_a_chunk_or_goes_on_with_it_is_taken_at_once_or_not_at_all(
        before in prop::collection::vec((0..8_u32, 0..0x1_0000_u32, 0..16_u32), 0..4),
        ends in (0..8_u32, 0..1000_u32, 0..16_u32),
        begins in (0..8_u32, 0..1000_u32, 0..16_u32),
        whole in 0..3,
        sequence in 0..3_u8,
    ) {
        let trailer = |(kind, length, flags): (u32, u32, u32)| Trailer(kind << 29 | flags << 25 | length);
        let mut assembly = Assembly::new(1 << 17);
        assembly.begin_block(BlockHeader { elink: ELINK, sequence: 0 });
        for fields in before {
            assembly.accept(trailer(fields));
        }
        let header = BlockHeader { elink: ELINK, sequence };
        let (ends, begins) = (trailer(ends), trailer(begins));
        let mut one_by_one = assembly.clone();
        let was_within = assembly.is_within();
        let untouched = format!("{assembly:?}");
        let mut middle = (assembly.clone(), assembly.clone());
        if middle.0.accept_middle(header, ends) {
            prop_assert!(was_within && middle.1.begin_block(header) == 0);
            prop_assert_eq!(middle.1.accept(ends).place, Place::Continues);
        }
        prop_assert_eq!(format!("{:?}", middle.0), format!("{:?}", middle.1));
        let Some((status, bytes)) = assembly.accept_ends(header, ends, begins) else {
            prop_assert_eq!(format!("{assembly:?}"), untouched);
            return Ok(());
        };
        prop_assert!(was_within && one_by_one.begin_block(header) == 0);
        let ended = Accepted { gives_up: None, place: Place::Ends, status };
        prop_assert_eq!((one_by_one.accept(ends), one_by_one.bytes()), (ended, bytes));
        for _ in 0..whole {
            prop_assert_eq!(one_by_one.accept(Trailer::new(SubChunkType::Both, 1, Status::GOOD)).gives_up, None);
        }
        prop_assert_eq!(one_by_one.accept(begins).place, Place::Begins);
        prop_assert_eq!(format!("{assembly:?}"), format!("{one_by_one:?}"));
    }

    #[test]
    fn a_flipped_bit_costs_its_block_and_the_chunks_that_it_interrupts(
        format in prop::sample::select(&[BlockFormat::NARROW, BlockFormat::WIDE][..]),
        lengths in prop::collection::vec(0..2500_usize, 20..40),
        place: prop::sample::Index,
        bit in 0..8_u8,
    ) {
        let (mut out, mut encoder) = (Vec::new(), Encoder::new(format, ELINK));
        // The blocks of each chunk.
        let mut blocks = Vec::new();
        for &length in &lengths {
            let first = out.len() / 1024;
            encoder.chunk(&payload(length), Status::GOOD, &mut out);
            blocks.push(first..=(out.len() / 1024));
        }
        encoder.flush(&mut out);
        let place = place.index(out.len());
        out[place] ^= 1_u8 << bit;
        let damaged = place / 1024;
        let decoded = decode(format, &out);
        // A chunk that ends with the block before has its last trailer there.
        let far = |range: &std::ops::RangeInclusive<usize>| *range.end() < damaged || *range.start() > damaged + 1;
        for (length, range) in lengths.iter().zip(&blocks).filter(|(_, range)| far(range)) {
            prop_assert!(decoded.contains(&chunk(&payload(*length), Status::GOOD)), "{length} bytes in {range:?}");
        }
    }

    #[test]
    fn headers_and_trailers_go_there_and_back(format in any_format(), word: u32, fields: u16) {
        let header = BlockHeader::of_word(u32::from(fields));
        prop_assert_eq!(BlockHeader::parse(&header.to_bytes(format), format), Ok(header));
        let word = if format.trailer_bytes() == 2 { word & 0xFFFF_0000 } else { word };
        prop_assert_eq!(Trailer::of_word(word, format).to_word(format), word);
        let signal = word >> if format.trailer_bytes() == 2 { 19 } else { 3 };
        prop_assert_eq!(Trailer::out_of_band(signal, format).signal(format), signal);
    }
}
