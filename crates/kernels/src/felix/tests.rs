//! Every kernel finds the same as its scalar twin, for any bytes. (Tests in `wire` compare the twin with the checked
//! decoder.)

use super::*;
use proptest::prelude::*;

const NARROW: Layout = Layout { symbol: 0xABCD, block_bytes: 1 << 10, is_wide: false };
const WIDE: Layout = Layout { symbol: 0xABCE, block_bytes: 1 << 10, is_wide: true };

/// A small generator: proptest's values set the parameters, this sets the contents.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Blocks filled from the end with mostly valid trailers, and a fault in one of 2^`rare` trailers.
fn blocks(layout: Layout, count: usize, seed: u64, mean: u64, rare: u32) -> Vec<u8> {
    filled(layout, count, &mut Dice(seed), rare, |dice| Said {
        length: dice.below(2 * mean + 1),
        kind: match dice.below(20) {
            0..12 => 3,
            kind => [1, 2, 3, 4, 5, 0, 7, 3][kind as usize % 8],
        },
        flags: if dice.below(16) == 0 { dice.below(16) } else { 0 },
    })
}

/// The same, but apart from the faults only whole chunks of one length.
fn alike(layout: Layout, count: usize, dice: &mut Dice, length: u64, rare: u32) -> Vec<u8> {
    filled(layout, count, dice, rare, |_| Said { length, kind: 3, flags: 0 })
}

/// The contents of a trailer.
struct Said {
    length: u64,
    kind: u64,
    flags: u64,
}

/// Blocks of these trailers, shortened to fit.
fn filled(layout: Layout, count: usize, dice: &mut Dice, rare: u32, mut say: impl FnMut(&mut Dice) -> Said) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..count * layout.block_bytes).map(|_| dice.below(256) as u8).collect();
    let trailer_bytes = if layout.is_wide { 4 } else { 2 };
    for block in bytes.chunks_mut(layout.block_bytes) {
        let mut header = u32::from(layout.symbol) << 16 | dice.below(1 << 16) as u32;
        header ^= u32::from(dice.below(1 << rare) == 0) << (16 + dice.below(16));
        block[..4].copy_from_slice(&header.to_le_bytes());
        let mut end = layout.block_bytes;
        while end > HEADER_BYTES {
            let room = (end - HEADER_BYTES - trailer_bytes) as u64;
            let faulty = dice.below(1 << rare) == 0;
            let Said { length, mut kind, flags } = say(dice);
            let length = length.min(if faulty { 1023 } else { room });
            if faulty && dice.below(2) == 0 {
                kind = dice.below(8);
            }
            let word = (kind << 29 | flags << 25 | if layout.is_wide { length } else { 0 }) as u32;
            let narrow = word >> 16 & 0xFC00 | length as u32;
            let place = &mut block[end - trailer_bytes..end];
            place.copy_from_slice(&if layout.is_wide { word } else { narrow }.to_le_bytes()[..trailer_bytes]);
            let data = if kind == 0 || kind == 7 { 0 } else { length as usize };
            end = end.saturating_sub(data.next_multiple_of(trailer_bytes) + trailer_bytes);
        }
    }
    bytes
}

/// A block's record, without its position, and its sub-chunks.
type Found = (BlockWalk, Vec<SubChunk>);

/// The results of a walk, a few blocks at a time.
fn found(walker: &mut Walker, bytes: &[u8], at_once: usize, each: usize) -> Vec<Found> {
    let mut walked = Walked::new(walker.layout, at_once, each);
    let mut found = Vec::new();
    let mut rest = bytes;
    while rest.len() >= walker.layout.block_bytes {
        let blocks = walker.walk(rest, &mut walked);
        assert!(blocks > 0 && blocks == walked.blocks().len());
        for block in walked.blocks() {
            let mut sub_chunks = walked.sub_chunks()[block.first as usize..][..block.count as usize].to_vec();
            sub_chunks.iter_mut().for_each(|sub_chunk| sub_chunk.offset += (bytes.len() - rest.len()) as u32);
            found.push((BlockWalk { first: 0, ..*block }, sub_chunks));
        }
        rest = &rest[blocks * walker.layout.block_bytes..];
    }
    found
}

/// The first block in which two kernels differ, and the first differing sub-chunk: a whole difference fills pages.
fn difference(left: &[Found], right: &[Found]) -> Option<String> {
    if left.len() != right.len() {
        return Some(format!("{} and {} blocks", left.len(), right.len()));
    }
    let block = left.iter().zip(right).position(|(left, right)| left != right)?;
    let (left, right) = (&left[block], &right[block]);
    let place = left.1.iter().zip(&right.1).position(|(left, right)| left != right);
    let sub_chunk = place.map(|place| (place, left.1[place], right.1[place]));
    Some(format!("block {block}: {:?} and {:?}, {sub_chunk:?}", left.0, right.0))
}

fn any_layout() -> impl Strategy<Value = Layout> {
    let sized = |kibibytes: usize| Layout {
        symbol: 0xC0CE + ((kibibytes as u16 - 1) << 8),
        block_bytes: kibibytes << 10,
        is_wide: true,
    };
    prop_oneof![4 => Just(NARROW), 4 => Just(WIDE), 1 => (1..=16_usize).prop_map(sized), 1 => Just(sized(64))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_kernel_finds_what_the_scalar_one_finds(
        layout in any_layout(),
        count in 1..100_usize,
        at_once in 1..70_usize,
        seed: u64,
        mean in prop_oneof![Just(0_u64), Just(8), Just(60), Just(300), Just(1000)],
        rare in 2..14_u32,
    ) {
        let count = if layout.block_bytes > 4 << 10 { count.min(40) } else { count };
        let bytes = blocks(layout, count, seed, mean, rare);
        let mut walkers = Walker::all(layout);
        let mut scalar = walkers.pop().expect("there is always the scalar one");
        prop_assert_eq!(scalar.name(), "scalar");
        let expected = found(&mut scalar, &bytes, at_once, 1);
        for mut walker in walkers {
            let found = found(&mut walker, &bytes, at_once, 20);
            prop_assert_eq!(difference(&found, &expected), None, "{}", walker.name());
        }
    }

    #[test]
    fn every_kernel_takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..20_000), right_symbol: bool) {
        for layout in [NARROW, WIDE] {
            let mut bytes = bytes.clone();
            if right_symbol {
                for block in bytes.chunks_exact_mut(1024) {
                    block[2..4].copy_from_slice(&layout.symbol.to_le_bytes());
                }
            }
            let all: Vec<_> = Walker::all(layout).iter_mut().map(|walker| found(walker, &bytes, 64, 20)).collect();
            for pair in all.windows(2) {
                prop_assert_eq!(difference(&pair[0], &pair[1]), None);
            }
            prop_assert_eq!(all[0].len(), bytes.len() / 1024);
        }
    }
}

proptest! {
    #[test]
    fn chunks_of_equal_length_are_guessed_right_and_what_is_no_such_chunk_too(
        layout in any_layout(),
        lengths in prop::collection::vec(0..100_u64, 1..5),
        seed: u64,
        rare in 4..16_u32,
    ) {
        let mut dice = Dice(seed);
        let count = if layout.block_bytes > 4 << 10 { 9 } else { 50 };
        // Long enough for guessing to begin, then other lengths, then random ones, then the first ones again.
        let mut bytes = Vec::new();
        for &length in &lengths {
            bytes.extend(alike(layout, count, &mut dice, length, rare));
        }
        bytes.extend(blocks(layout, count, seed, 60, rare));
        bytes.extend(alike(layout, count, &mut dice, lengths[0], rare));
        let mut walkers = Walker::all(layout);
        let mut scalar = walkers.pop().expect("there is always the scalar one");
        let expected = found(&mut scalar, &bytes, 32, 1);
        for mut walker in walkers {
            let found = found(&mut walker, &bytes, 32, 24);
            prop_assert_eq!(difference(&found, &expected), None, "{}", walker.name());
        }
    }
}

#[test]
fn most_of_what_is_equally_long_is_guessed_and_hardly_anything_else() {
    let mut dice = Dice(3);
    for layout in [NARROW, WIDE] {
        let walk = |bytes: &[u8]| {
            let mut walked = Walked::new(layout, 32, 24);
            let mut room = Room { walked: &mut walked, done: 0, blocks: 32, cursor: 0 };
            let is_worth_it = steady::Steady::new().walk(layout, 0, bytes, &mut room);
            assert_eq!(room.done, 32);
            is_worth_it
        };
        assert!(walk(&alike(layout, 32, &mut dice, 64, 60)));
        assert!(!walk(&blocks(layout, 32, 9, 64, 60)));
    }
}

#[test]
fn blocks_of_nulls_between_others_have_all_their_sub_chunks() {
    for layout in [NARROW, WIDE] {
        let mut bytes = blocks(layout, 64, 7, 1000, 20);
        for block in bytes.chunks_exact_mut(1024).step_by(5) {
            block[4..].fill(0);
        }
        let [mut fast, mut scalar] = [0, 1].map(|which| {
            let mut all = Walker::all(layout);
            all.swap_remove(which.min(all.len() - 1))
        });
        let expected = found(&mut scalar, &bytes, 64, 1);
        assert_eq!(expected[5].1.len(), layout.most_sub_chunks());
        assert_eq!(difference(&found(&mut fast, &bytes, 64, 1), &expected), None);
    }
}

#[test]
fn a_layout_that_cannot_be_is_refused() {
    for block_bytes in [0, 32, 1000, 65 << 10] {
        let layout = Layout { block_bytes, ..NARROW };
        assert!(std::panic::catch_unwind(|| Walker::new(layout)).is_err(), "{block_bytes}");
    }
}
