//! What an emulated card writes is what its decoder finds: every chunk, and every fault under its name.

use super::*;
use crate::source::Random;
use ropewalk_wire::felix::{BlockError, BlockFormat, ChunkError, Decoded, Decoder, ELink, Status};
use std::collections::BTreeMap;

fn formats() -> [BlockFormat; 4] {
    let sized = |kibibytes| BlockFormat::sized(kibibytes).expect("a size");
    [BlockFormat::NARROW, BlockFormat::WIDE, sized(4), sized(64)]
}

fn config(format: BlockFormat) -> BlockSourceConfig {
    let elinks = [3, 64, 2047].map(ELink::new).to_vec();
    let size = ChunkSize::Uniform { least: 10, most: 3000 };
    BlockSourceConfig { format, elinks, size, seed: 7, faults: CardFaults::default() }
}

/// The blocks of so many turns, and the card that wrote them.
fn written(config: BlockSourceConfig, turns: usize) -> (Vec<u8>, BlockSource) {
    let (mut source, mut out) = (BlockSource::new(config), Vec::new());
    (0..turns).for_each(|_| source.turn(&mut out));
    source.flush(&mut out);
    (out, source)
}

fn decoded(format: BlockFormat, blocks: &[u8]) -> Vec<Decoded> {
    let mut found = Vec::new();
    Decoder::new(format, 1 << 20).blocks(blocks, &mut |what| found.push(what));
    found
}

#[test]
fn every_chunk_comes_back_whole_and_in_order() {
    for format in formats() {
        let (blocks, source) = written(config(format), 200);
        let mut next: BTreeMap<ELink, u64> = BTreeMap::new();
        let (mut total, mut expected) = (0, Vec::new());
        for what in decoded(format, &blocks) {
            let Decoded::Chunk { elink, bytes, status } = what else { panic!("{what:?}") };
            let number = next.entry(elink).or_insert(1);
            chunk_bytes(elink, *number, bytes.len(), &mut expected);
            assert_eq!((bytes == expected, status), (true, Status::GOOD), "{elink} {number}");
            assert_eq!(read_chunk_head(&bytes), Some((*number, elink)));
            *number += 1;
            total += bytes.len() as u64;
        }
        assert!(next.len() == 3 && next.values().all(|&number| number == 201), "{next:?}");
        assert_eq!((total, source.turns()), (source.payload_bytes(), 200));
    }
}

#[test]
fn every_fault_is_found_under_its_name_as_often_as_it_struck() {
    for format in formats() {
        for &fault in CARD_FAULTS {
            let mut config = config(format);
            // As often in few large blocks as in many small ones.
            let of_block = (0.01 * (format.block_bytes() >> 10) as f64).min(0.3);
            config.faults.set(fault, if fault.strikes_blocks() { of_block } else { 0.05 });
            let (blocks, source) = written(config, 400);
            let found = decoded(format, &blocks);
            let chunks = |flag| {
                found.iter().filter(|what| matches!(what, Decoded::Chunk { status, .. } if status.has(flag))).count()
            };
            let lost = |error| {
                found.iter().filter(|what| matches!(what, Decoded::ChunkError { error: e, .. } if *e == error)).count()
            };
            let damaged = |error| found.iter().filter(|what| **what == Decoded::BlockError(error)).count();
            let seen = match fault {
                CardFault::Busy if format.trailer_bytes() == 2 => continue,
                CardFault::Busy => chunks(Status::BUSY),
                CardFault::Crc => chunks(Status::CRC),
                CardFault::Error => chunks(Status::ERROR),
                CardFault::Truncated => chunks(Status::TRUNCATED),
                CardFault::TimedOut => chunks(Status::TIMED_OUT),
                CardFault::NoFirst => lost(ChunkError::NoFirst),
                CardFault::NoLast => lost(ChunkError::NoLast),
                CardFault::LostBlock => lost(ChunkError::SequenceGap),
                CardFault::StartOfBlock => damaged(BlockError::StartOfBlock),
                CardFault::Padding => damaged(BlockError::Padding),
                CardFault::PastHeader => damaged(BlockError::PastHeader),
                CardFault::UndefinedType => damaged(BlockError::Undefined),
                // Nothing is lost by a time-out; behind lost bytes no block is where it should be.
                CardFault::Silence => source.struck(fault) as usize,
                CardFault::LostBytes => damaged(BlockError::StartOfBlock).min(source.struck(fault) as usize),
            };
            let struck = source.struck(fault) as usize;
            // A fault in the last piece or block of an e-link has nothing behind it that shows it, and several lost
            // blocks in a row are one gap.
            let ends = if fault == CardFault::LostBlock { 3 + struck / 3 } else { 3 };
            assert!(seen <= struck && seen + ends >= struck && struck > 0, "{fault:?}: {seen} of {struck} in {format}");
        }
    }
}

#[test]
fn sizes_keep_their_mean() {
    let mut random = Random::new(9, 1);
    for (size, mean) in [
        (ChunkSize::Fixed(64), 64.0),
        (ChunkSize::Uniform { least: 0, most: 1000 }, 500.0),
        (ChunkSize::Exponential { mean: 640 }, 639.5),
        (ChunkSize::Lognormal { mean: 2048, sigma: 0.5 }, 2047.5),
    ] {
        let total: f64 = (0..20_000).map(|_| f64::from(size.next(&mut random))).sum();
        assert!((total / 20_000.0 / mean - 1.0).abs() < 0.03, "{size:?}: {total}");
    }
}

#[test]
fn one_seed_writes_the_same_blocks_again() {
    let mut config = config(BlockFormat::NARROW);
    config.faults.set(CardFault::LostBlock, 0.1);
    let (one, other) = (written(config.clone(), 50).0, written(config.clone(), 50).0);
    assert_eq!(one, other);
    config.seed += 1;
    assert_ne!(one, written(config, 50).0);
}
