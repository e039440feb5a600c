//! What holds for any chunks and any bytes.

use super::*;
use proptest::prelude::*;

/// The longest chunk, and how many things are said: under Miri little.
const LONGEST: usize = if cfg!(miri) { 1500 } else { 5000 };
const SAID: usize = if cfg!(miri) { 6 } else { 60 };

/// What an e-link says.
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

/// What must come out of what was said, in this kind of block.
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

/// Holds a fast walk against the checked one, block by block.
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
        // Which blocks each chunk lies in.
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
