//! What an emulated card writes, as the plain decoder reads it.

use super::*;
use crate::source::{FragmentSize, TriggerGate, TriggerRate};
use core::time::Duration;
use ropewalk_terms::SourceId;
use ropewalk_wire::felix::{BlockError, BlockFormat, ChunkError, Decoded, Decoder, ELink, Status};
use std::collections::BTreeMap;

const LINKS: u32 = 3;

fn config(format: BlockFormat) -> EmulatedCardConfig {
    let link = |index: u32| EmulatedLinkConfig {
        elink: ELink::new(index as u16 * 7),
        source: SourceId(100 + index),
        size: FragmentSize::Uniform { least: 16, most: 3000 },
        outages: Vec::new(),
    };
    EmulatedCardConfig {
        format,
        links: (0..LINKS).map(link).collect(),
        rate: TriggerRate::Unlimited,
        seed: 5,
        link_bytes_per_second: None,
        faults: Faults::default(),
    }
}

/// Everything that the card writes up to the last trigger, as far as it is due.
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

/// The numbers of the chunks of each e-link, with their flags, and everything that was given up.
#[derive(Default, Debug)]
struct Seen {
    chunks: BTreeMap<ELink, Vec<(u32, Status)>>,
    errors: Vec<ChunkError>,
    damaged: Vec<BlockError>,
    signals: u64,
}

fn read(format: BlockFormat, stream: &[u8]) -> Seen {
    let mut seen = Seen::default();
    Decoder::new(format, 1 << 20).blocks(stream, &mut |one| match one {
        Decoded::Chunk { elink, bytes, status } => {
            let origin = origin_of_chunk(&bytes).expect("every byte is as it was filled");
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
fn every_link_brings_every_trigger_in_order_into_whatever_room_there_is() {
    for format in [BlockFormat::NARROW, BlockFormat::WIDE, BlockFormat::sized(4).expect("a size")] {
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
    config.links[0].size = FragmentSize::Fixed(16);
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

/// What a card with these faults writes.
fn with(faults: Faults) -> (Seen, Injected) {
    let mut config = config(BlockFormat::WIDE);
    config.faults = faults;
    let mut card = EmulatedCard::new(config);
    let seen = read(BlockFormat::WIDE, &write(&mut card, 300, Duration::ZERO, 1 << 20));
    let mut all = Injected::default();
    for (_, one) in card.injected() {
        all.chunks += one.chunks;
        all.lost += one.lost;
        all.flagged += one.flagged;
        all.damaged_blocks += one.damaged_blocks;
        all.gaps += one.gaps;
        all.signals += one.signals;
    }
    (seen, all)
}

#[test]
fn every_fault_is_reported_as_a_card_reports_it() {
    let none = Faults::default();
    for (faults, flags) in [
        (Faults { error: 0.2, ..none }, Status::ERROR),
        (Faults { crc: 0.2, ..none }, Status::CRC),
        (Faults { truncated: 0.2, ..none }, Status::TRUNCATED),
        (Faults { busy: 0.2, ..none }, Status::BUSY),
        (Faults { timed_out: 0.2, ..none }, Status::TRUNCATED.and(Status::TIMED_OUT)),
    ] {
        let (seen, injected) = with(faults);
        let marked = seen.chunks.values().flatten().filter(|&&(_, status)| status == flags).count() as u64;
        assert!(injected.flagged > 100 && marked == injected.flagged, "{faults:?}: {marked}, {injected:?}");
        assert_eq!((injected.chunks, seen.errors.len()), (900, 0));
    }
    let (seen, injected) = with(Faults { missing: 0.2, out_of_band: 0.1, ..none });
    let chunks: usize = seen.chunks.values().map(Vec::len).sum();
    assert!(injected.lost > 100 && chunks as u64 == injected.chunks && chunks as u64 + injected.lost == 900);
    assert!(injected.signals > 40 && seen.signals == injected.signals);
}

#[test]
fn a_damaged_block_and_a_missing_number_cost_what_is_open_and_nothing_else() {
    let none = Faults::default();
    let (seen, injected) = with(Faults { damaged_block: 0.05, ..none });
    assert!(injected.damaged_blocks > 20 && seen.damaged.len() as u64 == injected.damaged_blocks, "{injected:?}");
    for error in [BlockError::StartOfBlock, BlockError::Undefined] {
        assert!(seen.damaged.contains(&error), "{error}");
    }
    assert!(seen.errors.iter().all(|error| matches!(error, ChunkError::Damaged | ChunkError::SequenceGap)));
    let (seen, injected) = with(Faults { sequence_gap: 0.05, ..none });
    assert!(injected.gaps > 20 && !seen.errors.is_empty());
    assert!(seen.errors.iter().all(|&error| error == ChunkError::SequenceGap));
    for chunks in seen.chunks.values() {
        assert!(chunks.is_sorted_by_key(|&(number, _)| number) && chunks.len() > 200);
    }
}

/// Events would wait for it, and fill the ring meanwhile.
#[test]
fn a_link_that_brings_little_does_not_fall_behind() {
    for rate in [TriggerRate::Unlimited, TriggerRate::Periodic { hertz: 1e5 }] {
        let mut config = config(BlockFormat::sized(4).expect("a size"));
        config.links[0].size = FragmentSize::Fixed(16);
        config.rate = rate;
        let mut card = EmulatedCard::new(config);
        // As if the host had been busy for a while.
        let stream = write(&mut card, 2000, Duration::from_secs(1), 1 << 20);
        let (mut last, mut behind) = ([0; LINKS as usize], 0);
        Decoder::new(BlockFormat::sized(4).expect("a size"), 1 << 20).blocks(&stream, &mut |one| {
            let Decoded::Chunk { elink, bytes, .. } = one else { return };
            last[usize::from(elink.number() / 7)] = origin_of_chunk(&bytes).expect("as it was filled").number;
            behind = behind.max(last[1].saturating_sub(last[0]));
        });
        assert!(behind <= 110, "{rate:?}: {behind} events, of 204 in a block");
    }
}
