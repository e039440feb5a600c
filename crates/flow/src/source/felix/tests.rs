//! The output of an emulated card, read by the plain decoder: every chunk, and every fault under its name.

use super::*;
use crate::source::{SizeDistribution, TriggerGate, TriggerRate};
use core::time::Duration;
use ropewalk_terms::SourceId;
use ropewalk_wire::felix::{BlockError, BlockFormat, ChunkError, Decoded, Decoder, ELink, Status};
use std::collections::BTreeMap;

const LINKS: u32 = 3;
/// The longest chunk that these decoders accept, in bytes.
const MOST: u32 = 80_000;

fn formats() -> [BlockFormat; 4] {
    let sized = |kibibytes| BlockFormat::sized(kibibytes).expect("a size");
    [BlockFormat::NARROW, BlockFormat::WIDE, sized(4), sized(64)]
}

fn config(format: BlockFormat) -> EmulatedCardConfig {
    let size = SizeDistribution::Uniform { least: 16, most: 3000 };
    let elinks = (0..LINKS).map(|link| ELink::new(link as u16 * 7));
    let mut config = EmulatedCardConfig::new(format, elinks, size, 5);
    config.links.iter_mut().zip(100..).for_each(|(link, source)| link.source = SourceId(source));
    EmulatedCardConfig { most_chunk_bytes: MOST, ring_bytes: 256 << 10, ..config }
}

fn faults<const N: usize>(shares: [(Fault, f64); N]) -> Faults {
    let shares = shares.map(|(fault, share)| FaultShare::new(fault, share).expect("a share"));
    Faults::new(shares).expect("no more than everything")
}

/// Returns the blocks of `turns` triggers, written turn by turn, and the card that wrote them.
fn turned(config: EmulatedCardConfig, turns: usize) -> (Vec<u8>, EmulatedCard) {
    let (mut card, mut out) = (EmulatedCard::new(config), Vec::new());
    (0..turns).for_each(|_| card.turn(&mut out));
    card.finish(&mut out);
    (out, card)
}

/// Returns the output of the card up to the last trigger, as far as it is due.
fn write(card: &mut EmulatedCard, last: u64, elapsed: Duration, space: usize) -> Vec<u8> {
    let (gate, mut space, mut stream) = (TriggerGate::new(last), vec![0; space], Vec::new());
    loop {
        let filled = card.fill(elapsed, &gate, &mut space);
        if filled == 0 {
            return stream;
        }
        stream.extend_from_slice(&space[..filled]);
    }
}

/// The numbers of the chunks of each e-link, with their flags, and all faults.
#[derive(Default, Debug)]
struct Seen {
    chunks: BTreeMap<ELink, Vec<(u32, Status)>>,
    errors: Vec<ChunkError>,
    damaged: Vec<BlockError>,
    signals: u64,
}

fn read(format: BlockFormat, stream: &[u8]) -> Seen {
    let mut seen = Seen::default();
    Decoder::new(format, MOST.into()).blocks(stream, &mut |one| match one {
        Decoded::Chunk { elink, bytes, status } => {
            let origin = ChunkOrigin::of(&bytes).expect("every byte is as it was filled");
            assert_eq!(origin.source.0, 100 + u32::from(elink.number()) / 7);
            seen.chunks.entry(elink).or_default().push((origin.number, status));
        }
        Decoded::Signal { .. } => seen.signals += 1,
        Decoded::ChunkError { error, .. } => seen.errors.push(error),
        Decoded::BlockError(error) => seen.damaged.push(error),
    });
    seen
}

#[test]
fn every_link_brings_every_trigger_in_order_into_any_room() {
    for format in formats() {
        for space in [format.block_bytes(), 3 * format.block_bytes() + 7, 1 << 20] {
            let mut card = EmulatedCard::new(config(format));
            let stream = write(&mut card, 200, Duration::ZERO, space);
            assert!(card.is_exhausted() && stream.len().is_multiple_of(format.block_bytes()));
            let seen = read(format, &stream);
            assert_eq!((seen.chunks.len(), seen.errors.len(), seen.damaged.len()), (LINKS as usize, 0, 0));
            for chunks in seen.chunks.values() {
                assert!(chunks.iter().copied().eq((1..=200).map(|number| (number, Status::GOOD))));
            }
            assert!(card.injected().all(|(_, injected)| injected.chunks == 200 && injected.lost == 0));
        }
    }
}

#[test]
fn room_for_less_than_a_block_is_no_room() {
    let mut card = EmulatedCard::new(config(BlockFormat::WIDE));
    assert!(write(&mut card, 100, Duration::ZERO, 1023).is_empty() && !card.is_exhausted());
}

#[test]
fn a_link_is_as_fast_as_it_is_said() {
    let mut config = config(BlockFormat::WIDE);
    config.link_bytes_per_second = Some(1e6);
    let mut card = EmulatedCard::new(config);
    write(&mut card, u64::MAX, Duration::from_secs(1), 1 << 20);
    for (_, injected) in card.injected() {
        assert!((950_000..=1_003_000).contains(&injected.bytes), "{injected:?}");
    }
    let due = card.next_due(Duration::from_secs(1)).expect("each link speaks again");
    assert!(due > Duration::from_secs(1) && due < Duration::from_millis(1004));
}

#[test]
fn what_is_in_a_block_that_is_not_full_goes_after_a_while() {
    let mut config = config(BlockFormat::WIDE);
    config.rate = TriggerRate::Periodic { hertz: 100.0 };
    config.links.truncate(1);
    config.links[0].size = SizeDistribution::Fixed(16);
    let mut card = EmulatedCard::new(config);
    let at = |card: &mut EmulatedCard, micros| write(card, u64::MAX, Duration::from_micros(micros), 1 << 20).len();
    assert_eq!((at(&mut card, 9_999), at(&mut card, 10_100)), (0, 0));
    assert_eq!(card.next_due(Duration::from_micros(10_100)), Some(Duration::from_millis(11)));
    assert_eq!((at(&mut card, 11_000), at(&mut card, 19_000)), (1024, 0));
}

#[test]
fn a_link_that_fails_and_comes_back_goes_on_where_the_others_are() {
    let mut config = config(BlockFormat::WIDE);
    config.rate = TriggerRate::Periodic { hertz: 1000.0 };
    config.links[1].outages = vec![Outage { from: Duration::from_millis(50), lasts: Duration::from_millis(100) }];
    let mut card = EmulatedCard::new(config);
    let seen = read(BlockFormat::WIDE, &write(&mut card, 200, Duration::from_secs(1), 1 << 20));
    let numbers = |link: u16| seen.chunks[&ELink::new(link)].iter().map(|&(number, _)| number).collect::<Vec<_>>();
    assert_eq!(numbers(0), (1..=200).collect::<Vec<_>>());
    assert_eq!(numbers(7), (1..50).chain(150..=200).collect::<Vec<_>>());
    assert!(seen.errors.is_empty(), "nothing of a chunk is seen");
}

/// Events would wait for the e-link, and fill the ring meanwhile.
#[test]
fn a_link_that_brings_little_does_not_fall_behind() {
    for rate in [TriggerRate::Unlimited, TriggerRate::Periodic { hertz: 1e5 }] {
        let mut config = config(BlockFormat::sized(4).expect("a size"));
        config.links[0].size = SizeDistribution::Fixed(16);
        config.rate = rate;
        let mut card = EmulatedCard::new(config);
        // As if the host had been busy for a while.
        let stream = write(&mut card, 2000, Duration::from_secs(1), 1 << 20);
        let (mut last, mut behind) = ([0; LINKS as usize], 0);
        Decoder::new(BlockFormat::sized(4).expect("a size"), 1 << 20).blocks(&stream, &mut |one| {
            let Decoded::Chunk { elink, bytes, .. } = one else { return };
            last[usize::from(elink.number() / 7)] = ChunkOrigin::of(&bytes).expect("as it was filled").number;
            behind = behind.max(last[1].saturating_sub(last[0]));
        });
        assert!(behind <= 110, "{rate:?}: {behind} events, of 204 in a block");
    }
}

#[test]
fn turn_by_turn_the_same_chunks_come_as_in_time() {
    for format in formats() {
        let (stream, card) = turned(config(format), 200);
        let seen = read(format, &stream);
        let in_time = read(format, &write(&mut EmulatedCard::new(config(format)), 200, Duration::ZERO, 1 << 20));
        assert_eq!((&seen.chunks, seen.chunks.len()), (&in_time.chunks, LINKS as usize), "{format}");
        assert_eq!(card.injected_by_all().chunks, 200 * u64::from(LINKS));
    }
}

#[test]
fn one_seed_writes_the_same_blocks_again() {
    let mut config = config(BlockFormat::NARROW);
    config.faults = faults([(Fault::LostBlock, 0.1), (Fault::Missing, 0.1)]);
    let (one, other) = (turned(config.clone(), 50).0, turned(config.clone(), 50).0);
    assert_eq!(one, other);
    config.seed += 1;
    assert_ne!(one, turned(config, 50).0);
}

/// Returns how often a fault is visible.
fn seen_of(fault: Fault, seen: &Seen) -> Option<usize> {
    let flagged = |flags| Some(seen.chunks.values().flatten().filter(|(_, status)| *status == flags).count());
    let given_up = |error| Some(seen.errors.iter().filter(|&&found| found == error).count());
    let damaged = |error| Some(seen.damaged.iter().filter(|&&found| found == error).count());
    match fault {
        Fault::Busy => flagged(Status::BUSY),
        Fault::Crc => flagged(Status::CRC),
        Fault::Error => flagged(Status::ERROR),
        Fault::Truncated => flagged(Status::TRUNCATED),
        Fault::TimedOut => flagged(Status::TRUNCATED.and(Status::TIMED_OUT)),
        Fault::NoFirst => given_up(ChunkError::NoFirst),
        // Since the memory is not needed again here, the next chunk ends the one that stalled.
        Fault::NoLast | Fault::Stalled => given_up(ChunkError::NoLast),
        Fault::Oversize => given_up(ChunkError::Oversize),
        Fault::LostBlock | Fault::SequenceGap => given_up(ChunkError::SequenceGap),
        Fault::StartOfBlock => damaged(BlockError::StartOfBlock),
        Fault::Padding => damaged(BlockError::Padding),
        Fault::PastHeader => damaged(BlockError::PastHeader),
        Fault::UndefinedType => damaged(BlockError::Undefined),
        Fault::OutOfBand => Some(seen.signals as usize),
        Fault::Missing | Fault::Silence | Fault::LostBytes => None,
    }
}

#[test]
fn every_fault_is_seen_under_its_name_as_often_as_it_struck() {
    for format in formats() {
        for &fault in FAULTS.iter().filter(|fault| !fault.is_of_streams()) {
            let is_rare = matches!(fault, Fault::Oversize | Fault::Stalled);
            let of_block = (0.01 * (format.block_bytes() >> 10) as f64).min(0.3);
            // Few large blocks get as many faults as many small ones.
            let share = if fault.strikes_blocks() {
                of_block
            } else if is_rare {
                0.01
            } else {
                0.05
            };
            let config = EmulatedCardConfig { faults: faults([(fault, share)]), ..config(format) };
            let (stream, card) = turned(config, 400);
            let (seen, injected) = (read(format, &stream), card.injected_by_all());
            let struck = injected.struck(fault) as usize;
            assert!(struck > 0, "{fault:?} in {format}");
            let others: u64 = FAULTS.iter().filter(|&&other| other != fault).map(|&other| injected.struck(other)).sum();
            assert_eq!(others, 0, "{fault:?}");
            let chunks = seen.chunks.values().map(|chunks| chunks.len() as u64).sum::<u64>();
            assert!(chunks <= injected.chunks && chunks + injected.lost <= 400 * u64::from(LINKS), "{fault:?}");
            let Some(found) = seen_of(fault, &seen) else { continue };
            if fault == Fault::Busy && format.trailer_bytes() == 2 {
                assert_eq!(found, 0, "there is no place for it");
                continue;
            }
            // A fault in the last piece or block of an e-link is followed by nothing that reveals it, and several
            // consecutive lost blocks are one gap.
            let ends = if fault == Fault::LostBlock { 3 + struck / 3 } else { 3 };
            assert!(found <= struck && found + ends >= struck, "{fault:?}: {found} of {struck} in {format}");
        }
    }
}

#[test]
fn what_no_decoder_names_is_seen_in_what_comes() {
    for format in formats() {
        let with = |fault| EmulatedCardConfig { faults: faults([(fault, 0.1)]), ..config(format) };
        let (stream, card) = turned(with(Fault::Missing), 400);
        let (seen, injected) = (read(format, &stream), card.injected_by_all());
        let chunks: usize = seen.chunks.values().map(Vec::len).sum();
        assert!(injected.lost > 80 && injected.lost == injected.struck(Fault::Missing), "{injected:?}");
        assert_eq!((chunks as u64, seen.errors.len()), (injected.chunks, 0));
        let (stream, card) = turned(with(Fault::Silence), 400);
        let whole = turned(config(format), 400).0;
        let chunks: usize = read(format, &stream).chunks.values().map(Vec::len).sum();
        assert!(stream.len() > whole.len() && card.injected_by_all().struck(Fault::Silence) > 80);
        assert_eq!(chunks, 400 * LINKS as usize, "nothing is lost by a time-out");
    }
}

/// A block that is composed of two halves can look good: for this reason a card's memory has a fixed place for each
/// block.
#[test]
fn behind_lost_bytes_no_block_is_where_it_should_be() {
    for format in formats() {
        let faults = faults([(Fault::LostBytes, 0.1)]);
        let (stream, card) = turned(EmulatedCardConfig { faults, ..config(format) }, 400);
        let struck = card.injected_by_all().struck(Fault::LostBytes) as usize;
        assert!(struck > 0 && stream.len() % format.block_bytes() == struck % 2 * format.block_bytes() / 2);
        let mut damaged = 0;
        Decoder::new(format, MOST.into()).blocks(&stream, &mut |one| {
            damaged += u64::from(one == Decoded::BlockError(BlockError::StartOfBlock));
        });
        assert!(damaged > 0, "{format}");
    }
}

/// Skipped numbers cost the open chunk, and lost blocks also their contents.
#[test]
fn a_fault_of_a_block_costs_what_is_in_it_or_open_and_nothing_else() {
    let format = BlockFormat::WIDE;
    for (fault, errors) in [
        (Fault::SequenceGap, &[ChunkError::SequenceGap][..]),
        (Fault::LostBlock, &[ChunkError::SequenceGap]),
        (Fault::StartOfBlock, &[ChunkError::SequenceGap]),
        (Fault::Padding, &[ChunkError::Damaged]),
        (Fault::PastHeader, &[ChunkError::Damaged]),
        (Fault::UndefinedType, &[ChunkError::Damaged]),
    ] {
        let (stream, card) = turned(EmulatedCardConfig { faults: faults([(fault, 0.05)]), ..config(format) }, 300);
        let (seen, struck) = (read(format, &stream), card.injected_by_all().struck(fault));
        assert!(struck > 20 && seen.errors.iter().all(|error| errors.contains(error)), "{fault:?}: {:?}", seen.errors);
        let chunks: u64 = seen.chunks.values().map(|chunks| chunks.len() as u64).sum();
        // A block contains parts of two or three chunks, and a missing or damaged block can cost the next one.
        assert!(900 - chunks <= 3 * struck, "{fault:?}: {chunks} chunks, {struck} times");
        assert!(seen.chunks.values().all(|chunks| chunks.is_sorted_by_key(|&(number, _)| number)));
    }
}

#[test]
fn a_link_that_stalls_is_silent_until_the_others_have_filled_the_memory_and_no_two_do_at_once() {
    let format = BlockFormat::WIDE;
    let (stream, card) = turned(EmulatedCardConfig { faults: faults([(Fault::Stalled, 0.1)]), ..config(format) }, 2000);
    let injected = card.injected_by_all();
    let mut silent_for: BTreeMap<ELink, usize> = BTreeMap::new();
    let (mut most, mut at_once) = (0, 0);
    for block in stream.chunks(format.block_bytes()) {
        let header = block.first_chunk().expect("a block");
        let elink = ropewalk_wire::felix::BlockHeader::parse(header, format).expect("a header").elink;
        silent_for.values_mut().for_each(|silent| *silent += block.len());
        silent_for.insert(elink, 0);
        most = most.max(silent_for.values().copied().max().unwrap_or(0));
        at_once = at_once.max(silent_for.values().filter(|&&silent| silent > 64 << 10).count());
    }
    assert!((256 << 10..300 << 10).contains(&most) && at_once == 1, "{most} bytes, {at_once} at once");
    assert!(injected.struck(Fault::Stalled) > 8 && injected.lost > 500, "{injected:?}");
}

#[test]
fn with_any_faults_together_no_chunk_has_bytes_of_another() {
    let all = FAULTS.iter().filter(|fault| !fault.is_of_streams()).map(|&fault| {
        let share = if matches!(fault, Fault::Oversize | Fault::Stalled) { 0.002 } else { 0.03 };
        FaultShare::new(fault, share).expect("a share")
    });
    let all = Faults::new(all).expect("no more than everything");
    for seed in 0..20 {
        for format in formats() {
            let (stream, card) = turned(EmulatedCardConfig { faults: all, seed, ..config(format) }, 300);
            // Reads every byte.
            let seen = read(format, &stream);
            let chunks: usize = seen.chunks.values().map(Vec::len).sum();
            assert!(chunks as u64 <= card.injected_by_all().chunks, "seed {seed}");
        }
    }
}

#[test]
fn a_chunk_tells_whose_it_is_unless_a_byte_is_wrong() {
    let origin = ChunkOrigin { source: SourceId(77), number: 0x1234_5678 };
    for length in [8, 9, 16, 61, 1000] {
        let mut chunk = vec![0xaa; length];
        origin.fill(&mut chunk);
        assert_eq!(ChunkOrigin::of(&chunk), Some(origin));
        assert_eq!(ChunkOrigin::of(&chunk[..length / 2 + 4]), Some(origin), "cut");
        chunk[length - 1] ^= 1;
        assert_ne!(ChunkOrigin::of(&chunk), Some(origin));
        assert!(!origin.fills(&chunk));
    }
}

#[test]
fn a_chunk_shorter_than_its_head_has_as_much_as_fits() {
    let origin = ChunkOrigin { source: SourceId(0), number: 0x1234_5678 };
    let mut chunk = [0xaa; 3];
    origin.fill(&mut chunk);
    assert_eq!((chunk, origin.fills(&chunk)), ([0x78, 0x56, 0x34], true));
    assert_eq!(ChunkOrigin::of(&[0; 7]), None);
}
