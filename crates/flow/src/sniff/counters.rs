//! Fields that count up by one.

use super::findings::{Guess, Meaning};
use super::frames::{Row, Table, ahead, bits, extent, overlap, read};
use ropewalk_wire::layout::Number;
use std::collections::BTreeSet;

/// Pairs of frames that must be there before anything is said.
const LEAST_PAIRS: usize = 4;
/// Bits of a counter that is believed.
const LEAST_BITS: u32 = 4;
/// So many slow counters are told: of more they are parts of clocks, behind the frame's header.
const MOST_SLOW: usize = 2;
/// Zeros between a counter and what stands above it.
const LEAST_ZEROS: u32 = 6;
/// What chance must not have done: bits that were as they should be, in all pairs together.
const LEAST_EVIDENCE: u64 = 24;

/// A counter grows from its lowest bit: as long as what is above it changes when it is carried into, and only then.
struct Growth {
    /// Bits that behave as a counter does.
    bits: u32,
    /// Bits that were seen to change.
    moved: u32,
    /// How many pairs of frames counted up.
    holds: usize,
}

/// The numbers that are one more in each frame of a peer.
pub(super) fn find(table: &Table<'_>) -> Vec<Guess> {
    let pairs: Vec<(&Row<'_>, &Row<'_>)> = table.pairs().collect();
    if pairs.len() < LEAST_PAIRS {
        return Vec::new();
    }
    let mut found: Vec<(Number, Growth)> = Vec::new();
    for lowest in 0..table.reach {
        for bit in 0..8 {
            let orders = [false, true].map(|is_big_endian| {
                let window = window(lowest, is_big_endian, table.reach);
                grow(&pairs, &window, bit).map(|growth| (window, growth))
            });
            // The other order, too: the better one may overlap something else.
            let readings = match orders {
                [Some(little), Some(big)] if is_little(lowest, &little.1, &big.1) => [Some(little), Some(big)],
                [little, big] => [big, little],
            };
            for (window, growth) in readings.into_iter().flatten() {
                let value = pairs.first().map_or(0, |(from, _)| read(from, &window) >> bit);
                found.push((field(&window, bit, &growth, value), growth));
            }
        }
    }
    // Of fields that overlap the one counts for which more speaks.
    found.sort_by_key(|(_, growth)| core::cmp::Reverse((growth.holds, growth.moved)));
    let mut guesses: Vec<Guess> = Vec::new();
    for (number, growth) in found {
        if guesses.iter().filter_map(Guess::number).all(|other| !overlap(other, &number)) {
            let meaning = Meaning::FrameCounter { number, is_shared: is_shared(table, &number) };
            guesses.push(Guess { meaning, holds: growth.holds as u64, of: pairs.len() as u64 });
        }
    }
    guesses.sort_by_key(|guess| guess.number().map(|number| number.at));
    guesses
}

/// The eight bytes, or as many as there are, in which a counter can stand whose lowest byte is this one.
fn window(lowest: usize, is_big_endian: bool, reach: usize) -> Number {
    let number = |at: usize, bytes: usize| Number { is_big_endian, ..Number::little_endian(at as i32, bytes as u8) };
    if is_big_endian {
        let at = (lowest + 1).saturating_sub(8);
        number(at, lowest + 1 - at)
    } else {
        number(lowest, (reach - lowest).min(8))
    }
}

/// How far a counter reaches whose lowest bit is bit `bit` of a window's lowest byte; none where there is none.
fn grow(pairs: &[(&Row<'_>, &Row<'_>)], window: &Number, bit: u32) -> Option<Growth> {
    let value = |row: &Row<'_>| read(row, window) >> bit;
    // Most places are none: a few pairs show that.
    let toggles = |pair: &&(&Row<'_>, &Row<'_>)| (value(pair.0) ^ value(pair.1)) & 1 == 1;
    if pairs.iter().take(32).filter(toggles).count() * 10 < pairs.len().min(32) * 9 - 10 {
        return None;
    }
    let mut left: Vec<(u64, u64)> = pairs.iter().map(|(from, to)| (value(from), value(to))).collect();
    let (all, width) = (left.len(), 8 * u32::from(window.bytes) - bit);
    let (mut grown, mut moved) = (0, 0);
    while grown < width {
        let below = (1_u64 << grown) - 1;
        let (mut carries, mut carried, mut wrong) = (0_usize, 0_usize, 0_usize);
        for (from, to) in &left {
            let is_carry = from & below == below;
            let changes = (from ^ to) >> grown & 1 == 1;
            carries += usize::from(is_carry);
            carried += usize::from(is_carry && changes);
            wrong += usize::from(!is_carry && changes);
        }
        // A tenth of all frames may have been lost on the way; what changes without a carry is another field.
        if grown >= LEAST_BITS && (carried * 2 < carries || wrong * 50 > all) {
            break;
        }
        left.retain(|(from, to)| ((from ^ to) >> grown & 1 == 1) == (from & below == below));
        if left.len() * 10 < all * 9 {
            break;
        }
        grown += 1;
        if carried > 0 {
            moved = grown;
        }
    }
    let evidence = left.len() as u64 * u64::from(moved.min(8));
    (moved >= LEAST_BITS.min(3) && grown >= LEAST_BITS && evidence >= LEAST_EVIDENCE).then_some(Growth {
        bits: grown,
        moved,
        holds: left.len(),
    })
}

/// Whether the first byte is the lowest one: that order in which more was seen to change, or which suits the place better.
fn is_little(lowest: usize, little: &Growth, big: &Growth) -> bool {
    match little.moved.max(8).cmp(&big.moved.max(8)) {
        core::cmp::Ordering::Equal if little.bits.min(16) != big.bits.min(16) => little.bits > big.bits,
        core::cmp::Ordering::Equal => lowest.is_multiple_of(2),
        order => order.is_gt(),
    }
}

/// The field of a counter that has this value: as many bytes as a number usually has, as far as its bits allow it.
fn field(window: &Number, bit: u32, growth: &Growth, value: u64) -> Number {
    // Where zeros lie between what moves and what else is there, they end the number.
    let above = value.checked_shr(growth.moved).unwrap_or(0);
    let zeros = above.trailing_zeros();
    let ends = growth.moved + zeros;
    let bits = if zeros >= LEAST_ZEROS && ends < growth.bits && ends >= 16 { ends / 16 * 16 } else { growth.bits };
    let lowest = if window.is_big_endian { window.at + i32::from(window.bytes) - 1 } else { window.at };
    let number = |bytes: i32| {
        let at = if window.is_big_endian { lowest + 1 - bytes } else { lowest };
        Number { at, bytes: bytes as u8, ..*window }
    };
    let available = i32::from(window.bytes);
    let whole = |bytes: i32| bytes <= available && bit == 0 && bits >= 8 * bytes as u32;
    if growth.moved > 32 && whole(8) {
        return number(8);
    }
    // At even places first: only where none is possible a number stands at an odd one.
    let even = [4, 2].into_iter().filter(|&bytes| number(bytes).at % 2 == 0);
    let fits = |&bytes: &i32| whole(bytes) && growth.moved <= 8 * bytes as u32;
    if let Some(bytes) = even.chain([4, 2, 1]).find(fits) {
        return number(bytes);
    }
    // Bits of something larger.
    let bits = bits.min(32);
    let bytes = [1, 2, 4, 8].into_iter().find(|&bytes| 8 * bytes as u32 >= bits + bit && bytes <= available);
    let bytes = bytes.unwrap_or(((bits + bit).div_ceil(8)) as i32);
    let mask = (u64::MAX >> (64 - bits)) << bit;
    if mask == u64::MAX >> (64 - 8 * bytes as u32) { number(bytes) } else { number(bytes).masked(mask) }
}

/// Whether several peers have the same values of a number.
pub(super) fn is_shared(table: &Table<'_>, number: &Number) -> bool {
    let mut peers = table.peers.iter().filter(|rows| rows.len() > LEAST_PAIRS);
    let values = |rows: &Vec<Row<'_>>| rows.iter().map(|row| read(row, number)).collect::<BTreeSet<u64>>();
    let Some(first) = peers.next().map(values) else { return false };
    let mut others = peers.map(values).peekable();
    first.len() > LEAST_PAIRS
        && others.peek().is_some()
        && others.all(|other| {
            let common = first.intersection(&other).count();
            common * 4 >= first.len().min(other.len()) * 3
        })
}

/// Numbers that are one more now and then and otherwise the same: an event's, of which a peer sends several frames.
pub(super) fn find_slow(table: &Table<'_>, known: &[Guess]) -> Vec<Guess> {
    let mut found: Vec<Guess> = Vec::new();
    for number in [4, 2].into_iter().flat_map(|bytes| table.places(bytes)) {
        let taken = known.iter().chain(&found).flat_map(taken).any(|other| overlap(other, &number));
        if let Some(guess) = (!taken && found.len() < MOST_SLOW).then(|| slow(table, number)).flatten() {
            found.push(guess);
        }
    }
    found
}

/// The numbers that a guess is about.
pub(super) fn taken(guess: &Guess) -> impl Iterator<Item = &Number> {
    let wraps = match &guess.meaning {
        Meaning::Clock { wraps, .. } => wraps.as_ref().map(|wraps| &wraps.number),
        _ => None,
    };
    guess.number().into_iter().chain(wraps)
}

fn slow(table: &Table<'_>, number: Number) -> Option<Guess> {
    // Its lowest byte must be the one that moves.
    let extent = extent(&number);
    let lowest = if number.is_big_endian { extent.end - 1 } else { extent.start };
    if bits(&number) > 8 && table.liveliness(lowest) < LEAST_PAIRS {
        return None;
    }
    let (mut steps, mut stays, mut wrong, mut pairs) = (0_u64, 0_u64, 0_u64, 0_u64);
    for (from, to) in table.pairs() {
        pairs += 1;
        match ahead(&number, from, to) {
            0 => stays += 1,
            1 => steps += 1,
            _ => wrong += 1,
        }
        if wrong * 20 > pairs + 40 {
            return None;
        }
    }
    let few = LEAST_PAIRS as u64;
    (steps > few && stays > few && wrong * 20 <= pairs).then(|| {
        let is_shared = is_shared(table, &number);
        let frames_each = (steps + stays) as f64 / steps as f64;
        Guess { meaning: Meaning::SlowCounter { number, is_shared, frames_each }, holds: steps + stays, of: pairs }
    })
}
