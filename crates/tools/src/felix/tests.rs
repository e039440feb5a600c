//! Blocks in, what is in them out; and what was damaged is named and costs no more than it must.

use super::*;
use crate::OfflineError;
use proptest::collection::vec;
use proptest::prelude::*;
use ropewalk_flow::source::SizeDistribution;
use ropewalk_flow::source::felix::{EmulatedCardConfig, Fault as CardFault, FaultShare, Faults};
use ropewalk_wire::felix::{BlockFormat, ELink, Encoder, Status};
use std::io::{Cursor, Read};
use std::path::Path;

fn card(format: BlockFormat) -> EmulatedCardConfig {
    let size = SizeDistribution::Uniform { least: 0, most: 2000 };
    EmulatedCardConfig::new(format, [1, 9, 83].map(ELink::new), size, 5)
}

fn made(card: EmulatedCardConfig, chunks: u64) -> (Vec<u8>, Generated) {
    let mut out = Vec::new();
    let options = GenerateOptions { card, chunks: Some(chunks), bytes: None };
    let generated = generate(&options, &mut out).expect("a vector takes everything");
    (out, generated)
}

/// A stream that comes in pieces, as a pipe's does.
struct Pipe(Cursor<Vec<u8>>);

impl Read for Pipe {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(777);
        self.0.read(&mut into[..most])
    }
}

fn input(bytes: &[u8]) -> BlockInput {
    BlockInput::new(Path::new("-"), Box::new(Pipe(Cursor::new(bytes.to_vec())))).expect("there are blocks")
}

fn report(bytes: &[u8]) -> DecodeReport {
    decode(&mut input(bytes), 64 << 20).expect("a vector can be read")
}

fn formats() -> [BlockFormat; 4] {
    let sized = |kibibytes| BlockFormat::sized(kibibytes).expect("a size");
    [BlockFormat::NARROW, BlockFormat::WIDE, sized(4), sized(64)]
}

#[test]
fn what_was_generated_is_what_is_decoded_in_every_kind_of_block() {
    for format in formats() {
        let (blocks, generated) = made(card(format), 300);
        let found = report(&blocks);
        assert_eq!(found.symbol, format!("{:#06X}", format.symbol()));
        assert_eq!((found.chunks, found.payload_bytes), (900, generated.payload_bytes), "{format}");
        assert_eq!(found.blocks * format.block_bytes() as u64, generated.bytes);
        assert!(!found.is_damaged() && found.first_faults.is_empty(), "{found:#?}");
        assert_eq!(
            found.elinks.iter().map(|link| (link.elink, link.chunks)).collect::<Vec<_>>(),
            [(1, 300), (9, 300), (83, 300)]
        );
    }
}

#[test]
fn a_stream_that_is_joined_in_the_middle_of_a_block_is_read_from_the_next_one() {
    for format in formats() {
        let (blocks, _) = made(card(format), 600);
        let found = report(&blocks[100..]);
        assert_eq!(found.skipped_bytes, format.block_bytes() as u64 - 100, "{format}");
        assert_eq!(found.blocks, (blocks.len() / format.block_bytes()) as u64 - 1);
        assert!(found.block_errors.is_empty(), "{found:#?}");
    }
}

#[test]
fn behind_lost_bytes_the_next_block_is_found() {
    for format in formats() {
        let (mut blocks, _) = made(card(format), 600);
        let size = format.block_bytes();
        blocks.drain(5 * size + 100..5 * size + 300);
        let found = report(&blocks);
        let all = (blocks.len() / size) as u64;
        assert!(found.blocks >= all - 1 && found.chunks > 1600, "{format}: {} of {all}, {found:#?}", found.blocks);
        assert!(found.is_damaged(), "{format}");
    }
}

/// Removes these bytes, which lie in order; those that overlap are shortened.
fn without(blocks: &[u8], mut cuts: Vec<(usize, usize)>) -> Vec<u8> {
    cuts.sort_unstable();
    let (mut left, mut at) = (Vec::new(), 0);
    for (from, bytes) in cuts {
        let from = from.clamp(at, blocks.len());
        left.extend_from_slice(&blocks[at..from]);
        at = (from + bytes).min(blocks.len());
    }
    left.extend_from_slice(&blocks[at..]);
    left
}

#[test]
fn behind_each_of_several_losses_the_next_block_is_found() {
    let (blocks, _) = made(card(BlockFormat::NARROW), 600);
    let cut = without(&blocks, vec![(100 * 1024 + 512, 512), (500 * 1024 + 512, 512), (510 * 1024, 7)]);
    let file = BlockInput::new(Path::new("-"), Box::new(Cursor::new(cut.clone()))).expect("there are blocks");
    let found = decode(&mut { file }, 64 << 20).expect("a vector can be read");
    assert!(found.skipped_bytes < 3 * 1024, "{found:#?}");
    assert_eq!(found, report(&cut));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_file_is_read_as_a_pipe_is_whatever_was_cut_out(
        kibibytes in prop_oneof![Just(0), Just(1), Just(2), Just(4), Just(7), Just(64)],
        is_narrow in any::<bool>(),
        cuts in vec((0.0..1.0, 1..3000_usize), 0..8),
    ) {
        let format = match BlockFormat::sized(kibibytes) {
            Some(sized) => sized,
            None if is_narrow => BlockFormat::NARROW,
            None => BlockFormat::WIDE,
        };
        let block = format.block_bytes();
        let card = EmulatedCardConfig::new(format, [1, 9].map(ELink::new), SizeDistribution::Fixed(block as u32 / 3), 5);
        let (blocks, _) = made(card, 60);
        let cuts: Vec<_> = cuts.into_iter().map(|(at, bytes)| ((at * blocks.len() as f64) as usize, bytes)).collect();
        let count = cuts.len();
        let cut = without(&blocks, cuts);
        prop_assume!(super::detect(&cut[..cut.len().min(LOOK_BYTES)]).is_some());
        let mut file = BlockInput::new(Path::new("-"), Box::new(Cursor::new(cut.clone()))).expect("there are blocks");
        let found = decode(&mut file, 64 << 20).expect("a vector can be read");
        prop_assert_eq!(&found, &report(&cut));
        prop_assert_eq!(found.blocks * block as u64 + found.skipped_bytes + found.left_over_bytes, cut.len() as u64);
        // Behind a loss less than a block is in no block; one more may hide another loss.
        prop_assert!(found.skipped_bytes <= (2 * count * block) as u64, "{} of {count} losses", found.skipped_bytes);
        if count == 0 {
            prop_assert!(!found.is_damaged());
        }
    }
}

#[test]
fn a_damaged_block_is_named_with_its_place_and_its_e_link() {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(BlockFormat::NARROW, ELink::new(83));
    (0..5).for_each(|_| encoder.chunk(&[7; 1018], Status::GOOD, &mut out));
    // The length of the third block's only trailer reaches before its header.
    out[3 * 1024 - 2] = 0xFF;
    let found = report(&out);
    let fault = Fault { offset: 2048, block: 2, elink: Some(83), error: "past_header" };
    assert_eq!((found.first_faults.as_slice(), found.chunks), (&[fault][..], 4));
    assert_eq!(found.block_errors.get("past_header"), Some(&1));
    let mut symbol = out.clone();
    symbol[1024 + 2] = 0;
    let found = report(&symbol);
    assert_eq!((found.block_errors.get("start_of_block"), found.skipped_bytes), (Some(&1), 0), "{found:#?}");
}

#[test]
fn flags_of_the_card_are_counted_and_are_no_damage() {
    let mut card = card(BlockFormat::WIDE);
    let tenths = [CardFault::Crc, CardFault::Busy, CardFault::TimedOut].map(|fault| FaultShare::new(fault, 0.1));
    card.faults = Faults::new(tenths.into_iter().flatten()).expect("three tenths");
    let (blocks, generated) = made(card, 300);
    let found = report(&blocks);
    assert!(!found.is_damaged(), "{found:#?}");
    for name in ["crc", "busy", "timed_out"] {
        assert_eq!(found.flagged.get(name), generated.faults.get(name), "{name}");
    }
}

#[test]
fn what_is_no_block_is_refused_with_its_first_bytes() {
    for bytes in [&b"#!/bin/sh and so on, no block far and wide"[..], b"", &[0; 3000]] {
        let error = BlockInput::new(Path::new("text"), Box::new(Cursor::new(bytes.to_vec()))).expect_err("no block");
        let text = error.to_string();
        assert!(matches!(error, OfflineError::NoBlocks { .. }) && text.contains("cd ab"), "{text}");
    }
}

#[test]
fn a_cut_end_is_reported_and_is_no_damage() {
    let (blocks, _) = made(card(BlockFormat::NARROW), 100);
    let found = report(&blocks[..blocks.len() - 24]);
    assert_eq!((found.left_over_bytes, found.is_damaged()), (1000, false));
}

#[test]
fn a_dump_tells_pieces_chunks_filler_and_faults() {
    let mut out = Vec::new();
    let mut encoder = Encoder::new(BlockFormat::NARROW, ELink::of(1, 2, 3));
    encoder.chunk(&[0xAB; 6], Status::GOOD, &mut out);
    encoder.chunk(&[0xCD; 1500], Status::CRC, &mut out);
    encoder.out_of_band(0x12, &mut out);
    encoder.flush(&mut out);
    encoder.set_sequence(5);
    encoder.chunk(&[1, 2], Status::GOOD, &mut out);
    encoder.flush(&mut out);
    let show = |first, end, colours| {
        let mut text = Vec::new();
        dump(&mut input(&out), &DumpOptions { first, end, colours }, &mut text).expect("blocks");
        String::from_utf8(text).expect("text")
    };
    let expected = "\
block 0 at 0x0, e-link 83 (link 1, group 2, path 3), sequence 0
├─     4  both          6 B  ab ab ab ab ..        chunk 83#0
└─    12  first      1010 B  cd cd cd cd ..        chunk 83#1 begins
block 1 at 0x400, e-link 83 (link 1, group 2, path 3), sequence 1
├─     4  last        490 B  cd cd cd cd ..        chunk 83#1 ends: 1500 bytes in 2 pieces, blocks 0 1, crc
├─   496  signal        0 B                        signal 0x12
└─   498  null      263 trailers: filler
block 2 at 0x800, e-link 83 (link 1, group 2, path 3), sequence 5
│ sequence_gap: 3 blocks of this e-link are missing before it, modulo 32
├─     4  both          2 B  01 02                 chunk 83#2
└─     8  null      508 trailers: filler
";
    assert_eq!(show(0, 9, false), expected);
    assert!(expected.ends_with(&show(2, 3, false)), "what is before the first one is known");
    assert!(show(0, 1, true).contains("\x1b[32mchunk 83#0\x1b[0m"));
    let options = DumpOptions { first: 3, end: 4, colours: false };
    let error = dump(&mut input(&out), &options, &mut Vec::new()).expect_err("there are three");
    assert_eq!(error.to_string(), "there is no block 3; there are 3, counted from 0");
}

#[test]
fn lists_of_e_links_are_read_and_written() {
    for (text, same) in [("5", "5"), ("8-15,1", "1,8-15"), ("all", "all"), ("0-2047", "all"), ("1,2,3,9", "1-3,9")] {
        let list: ELinks = text.parse().expect(text);
        assert_eq!(list.to_string(), same);
    }
    let list: ELinks = "1,8-10".parse().expect("a list");
    assert_eq!(list.iter().map(ELink::number).collect::<Vec<_>>(), [1, 8, 9, 10]);
    for text in ["", "2048", "5-1", "1,,2", "one"] {
        assert!(text.parse::<ELinks>().is_err(), "{text}");
    }
}
