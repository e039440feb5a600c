//! Each fault has its name, costs what it must, and the stream goes on behind it.

use super::*;

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

/// The last trailer of a block, changed.
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
fn a_length_that_goes_past_the_header_is_told() {
    for format in formats().into_iter().filter(|format| format.block_bytes() < LARGEST_BLOCK_BYTES) {
        let by = if format.trailer_bytes() == 2 { 5 } else { 8 };
        let mut blocks = blocks(format);
        change_trailer(&mut blocks[2], format, |trailer| lengthened(trailer, by));
        let expected = [good(format, 0), Decoded::BlockError(BlockError::PastHeader), good(format, 2)];
        assert_eq!(decode(format, &blocks.concat()), expected);
    }
}

#[test]
fn an_undefined_type_is_told() {
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
