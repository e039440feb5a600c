//! Finds the meaning of the fields of frames: counters, clocks, lengths and constants.

use super::findings::{Guess, Meaning};
use super::frames::{Row, Table, ahead, bits, extent, overlap, read};
use ropewalk_wire::layout::{Counts, Length, MOST_PATTERN_BYTES, Number};
use std::collections::BTreeSet;

/// Number of pairs of frames that are required for any result.
const LEAST_PAIRS: usize = 4;
/// The fewest bits of a plausible counter.
const LEAST_BITS: u32 = 4;
/// The most slow counters in a report: further ones are parts of clocks, after the frame's header.
const MOST_SLOW: usize = 2;
/// Least evidence against chance: number of bits that were as expected, in all pairs together.
const LEAST_EVIDENCE: u64 = 24;

/// The extent of a counter from its lowest bit: as far as each higher bit changes exactly when the counter carries into
/// it.
pub(super) struct Growth {
    /// Number of bits that behave like a counter.
    pub(super) bits: u32,
    /// Number of bits that were seen to change.
    pub(super) moved: u32,
}

/// Finds the numbers that increase by one in each frame of a peer; `known` are fields with another meaning.
pub(super) fn find_counters(table: &Table<'_>, known: &[Guess]) -> Vec<Guess> {
    let pairs: Vec<(&Row<'_>, &Row<'_>)> = table.pairs().collect();
    if pairs.len() < LEAST_PAIRS {
        return Vec::new();
    }
    let order = byte_order(table, known).map(|(is_big_endian, _)| is_big_endian);
    let is_free =
        |at: usize| at < table.reach && known.iter().flat_map(taken).all(|other| !extent(other).contains(&at));
    let mut found: Vec<(Number, Growth)> = Vec::new();
    for lowest in (0..table.reach).filter(|at| is_free(*at)) {
        for (bit, is_big_endian) in (0..8).flat_map(|bit| [(bit, false), (bit, true)]) {
            let window = window(lowest, is_big_endian, &is_free);
            let Some(growth) = grow(&pairs, &window, bit) else { continue };
            let value = pairs.first().map_or(0, |(from, _)| read(from, &window) >> bit);
            let number = field(&window, bit, &growth, value);
            if !is_slice(&pairs, &number, table.reach) {
                found.push((number, growth));
            }
        }
    }
    // Of overlapping fields the one with the most evidence wins.
    found.sort_by_cached_key(|(number, growth)| core::cmp::Reverse(likelihood(&pairs, number, growth, order)));
    let mut guesses: Vec<Guess> = Vec::new();
    for (number, _) in found {
        if guesses.iter().filter_map(Guess::number).all(|other| !overlap(other, &number)) {
            let meaning = Meaning::FrameCounter { number, is_shared: is_shared(table, &number) };
            guesses.push(Guess { meaning, holds: counted(&pairs, &number) as u64, of: pairs.len() as u64 });
        }
    }
    guesses.sort_by_key(|guess| guess.number().map(|number| number.at));
    guesses
}

/// Returns whether the fields of these frames have their most significant byte first, and whether that is certain
/// because two bytes of each changed.
pub(super) fn byte_order(table: &Table<'_>, guesses: &[Guess]) -> Option<(bool, bool)> {
    let is_seen = |number: &Number| extent(number).filter(|at| table.liveliness(*at) > 1).count() > 1;
    let fields = guesses.iter().flat_map(taken).map(|number| (number, is_seen(number)));
    let checksums = guesses.iter().filter_map(|guess| match &guess.meaning {
        Meaning::Checksum(checksum) => Some((&checksum.number, true)),
        _ => None,
    });
    let all: Vec<_> = fields.chain(checksums).filter(|(number, _)| number.bytes > 1).collect();
    let agreed = |is_certain: bool| {
        let mut orders =
            all.iter().filter(|(_, is_seen)| *is_seen || !is_certain).map(|(number, _)| number.is_big_endian);
        let first = orders.next()?;
        orders.all(|other| other == first).then_some((first, is_certain))
    };
    agreed(true).or_else(|| agreed(false))
}

/// Returns the eight bytes, or as many as are free, that a counter with this lowest byte can occupy.
fn window(lowest: usize, is_big_endian: bool, is_free: &impl Fn(usize) -> bool) -> Number {
    let number = |at: usize, bytes: usize| Number { is_big_endian, ..Number::little_endian(at as i32, bytes as u8) };
    if is_big_endian {
        let bytes = (0..8).take_while(|by| lowest.checked_sub(*by).is_some_and(is_free)).count();
        number(lowest + 1 - bytes, bytes)
    } else {
        number(lowest, (0..8).take_while(|by| is_free(lowest + by)).count())
    }
}

/// Returns the extent of a counter whose lowest bit is bit `bit` of a window's lowest byte; `None` if there is no
/// counter.
fn grow(pairs: &[(&Row<'_>, &Row<'_>)], window: &Number, bit: u32) -> Option<Growth> {
    let value = |row: &Row<'_>| read(row, window) >> bit;
    // Most places are not counters, which a few pairs show.
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
        // A tenth of all frames may have been lost on the way. Bits that change without a carry belong to another
        // field.
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
    (moved >= LEAST_BITS.min(3) && grown >= LEAST_BITS && evidence >= LEAST_EVIDENCE)
        .then_some(Growth { bits: grown, moved })
}

/// Returns the number of pairs of frames that the counter counted.
fn counted(pairs: &[(&Row<'_>, &Row<'_>)], number: &Number) -> usize {
    pairs.iter().filter(|(from, to)| ahead(number, from, to) == 1).count()
}

/// Ranks a counter by several criteria: it never went back, it counted frames, more of it was seen to change, it has
/// whole bytes and the byte order of other fields, zeros above the changing part, more than one byte, and an even
/// place.
fn likelihood(
    pairs: &[(&Row<'_>, &Row<'_>)],
    number: &Number,
    growth: &Growth,
    order: Option<bool>,
) -> impl Ord + use<> {
    let half = u64::MAX >> (65 - bits(number));
    let holds = counted(pairs, number);
    let back = pairs.iter().filter(|(from, to)| ahead(number, from, to) > half).count();
    let upper = |index: u32| pairs.iter().all(|(row, _)| read(row, number) >> (8 * index) & 0xFF == 0);
    let moved = growth.moved.div_ceil(8);
    let zeros = (moved..u32::from(number.bytes)).take_while(|index| upper(*index)).count();
    let is_even = (number.at + if number.is_big_endian { i32::from(number.bytes) } else { 0 }) % 2 == 0;
    let is_ordered = order == Some(number.is_big_endian) && number.bytes > 1;
    (
        core::cmp::Reverse(back),
        holds,
        growth.moved.max(8),
        number.mask.is_none(),
        is_ordered,
        zeros,
        number.bytes > 1,
        is_even,
    )
}

/// Returns the field of a counter with this value: as many bytes as a number usually has, as far as its bits allow.
pub(super) fn field(window: &Number, bit: u32, growth: &Growth, value: u64) -> Number {
    let lowest = if window.is_big_endian { window.at + i32::from(window.bytes) - 1 } else { window.at };
    let number = |bytes: i32| {
        let at = if window.is_big_endian { lowest + 1 - bytes } else { lowest };
        Number { at, bytes: bytes as u8, ..*window }
    };
    let available = i32::from(window.bytes);
    let whole = (growth.bits / 8) as i32;
    if bit == 0 && whole > 0 {
        // Zeros above a number are part of it, and the bytes above them are not.
        let byte = |index: &i32| value >> (8 * index) & 0xFF;
        let moved = growth.moved.div_ceil(8) as i32;
        let zeros = (moved..whole).find(|index| byte(index) == 0).filter(|zeros| *zeros <= 4.max(moved));
        let end = (zeros.unwrap_or(whole)..whole).find(|index| byte(index) != 0).unwrap_or(whole);
        // Constant bytes directly above may be something else, so as few of them as possible are included.
        let least = zeros.unwrap_or(moved);
        let widths: &[i32] = if zeros.is_some() { &[4, 2, 8, 6, 3, 1] } else { &[2, 4, 8, 3, 6, 1] };
        if let Some(&bytes) = widths.iter().find(|&&bytes| least <= bytes && bytes <= end) {
            return number(bytes);
        }
    }
    // Bits of a larger number.
    let bits = growth.bits.min(32);
    let bytes = [1, 2, 4, 8].into_iter().find(|&bytes| 8 * bytes as u32 >= bits + bit && bytes <= available);
    let bytes = bytes.unwrap_or(((bits + bit).div_ceil(8)) as i32);
    let mask = (u64::MAX >> (64 - bits)) << bit;
    if mask == u64::MAX >> (64 - 8 * bytes as u32) { number(bytes) } else { number(bytes).masked(mask) }
}

/// Returns the number extended by the byte above it, or by the one below it with all bits down to its lowest one;
/// `None` at an end.
fn stretched(number: &Number, is_upward: bool, reach: usize) -> Option<Number> {
    let is_behind = is_upward != number.is_big_endian;
    let (at, bytes) = (if is_behind { number.at } else { number.at - 1 }, number.bytes + 1);
    if at < 0 || at as usize + usize::from(bytes) > reach || bytes > 8 {
        return None;
    }
    let all = u64::MAX >> (64 - 8 * u32::from(bytes));
    let own = number.mask.unwrap_or(all >> 8);
    let mask = if is_upward { all << own.trailing_zeros() & all } else { u64::MAX >> (56 - own.ilog2()) };
    Some(Number { at, bytes, ..*number }.masked(mask))
}

/// Whether a counter is a slice of a number that advances more smoothly with the bits above or below it, as clocks do.
pub(super) fn is_slice(pairs: &[(&Row<'_>, &Row<'_>)], number: &Number, reach: usize) -> bool {
    // The mean deviation of the steps from the usual one, and the usual step.
    let roughness = |number: &Number| {
        let mut steps: Vec<u64> = pairs.iter().map(|(from, to)| ahead(number, from, to)).collect();
        steps.sort_unstable();
        let usual = steps[steps.len() / 2];
        (steps.iter().map(|step| step.abs_diff(usual) as f64).sum::<f64>() / pairs.len() as f64, usual)
    };
    // The bits above advance by the same amount when the number wraps and carries into them.
    let is_carried = |wide: &Number| {
        let (_, usual) = roughness(wide);
        let mut wraps = pairs.iter().filter(|(from, to)| read(to, number) < read(from, number)).peekable();
        let is_usual = |(from, to): &(&Row<'_>, &Row<'_>)| ahead(wide, from, to) == usual;
        usual != 1 && wraps.peek().is_some() && wraps.all(is_usual)
    };
    let (own, _) = roughness(number);
    let is_smoother = |wide: &Number| roughness(wide).0 / 2_f64.powi((bits(wide) - bits(number)) as i32) < own / 2.0;
    stretched(number, true, reach).is_some_and(|wide| is_carried(&wide))
        || own > 0.0 && stretched(number, false, reach).is_some_and(|wide| is_smoother(&wide))
}

/// Returns the number in its possible byte orders; for one byte in both.
pub(super) fn orders(number: &Number) -> impl Iterator<Item = Number> + use<> {
    let number = *number;
    let other = Number { is_big_endian: !number.is_big_endian, ..number };
    core::iter::once(number).chain((number.bytes == 1).then_some(other))
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

/// Finds numbers that increase by one now and then and otherwise stay the same: event numbers, if a peer sends several
/// frames of an event.
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

/// Returns the numbers that a guess describes.
pub(super) fn taken(guess: &Guess) -> impl Iterator<Item = &Number> {
    let wraps = match &guess.meaning {
        Meaning::Clock { wraps, .. } => wraps.as_ref().map(|wraps| &wraps.number),
        _ => None,
    };
    guess.number().into_iter().chain(wraps)
}

/// Number of values from which on a byte is more than the number of a part.
const LEAST_LIVELY: usize = 24;

/// Returns the offset of the byte below a number, if there is one.
const fn below_of(number: &Number) -> usize {
    if number.is_big_endian { number.at as usize + number.bytes as usize } else { (number.at - 1) as usize }
}

/// Returns the guess that this number increases by one now and then.
pub(super) fn slow(table: &Table<'_>, number: Number) -> Option<Guess> {
    // The lowest byte must be the one that changes.
    let extent = extent(&number);
    let lowest = if number.is_big_endian { extent.end - 1 } else { extent.start };
    if bits(&number) > 8 && table.liveliness(lowest) < LEAST_PAIRS {
        return None;
    }
    let (mut steps, mut stays, mut wrong, mut pairs) = (0_u64, 0_u64, 0_u64, 0_u64);
    // In a clock the byte below never goes back while the number stays the same.
    let is_lively = |number: &Number| table.liveliness(below_of(number)) >= LEAST_LIVELY;
    let below = |number: Number| stretched(&number, false, table.reach).filter(|_| is_lively(&number));
    let mut wider: Vec<Number> = orders(&number).filter_map(below).collect();
    for (from, to) in table.pairs() {
        pairs += 1;
        let step = ahead(&number, from, to);
        wider.retain(|wide| step != 0 || read(to, wide) >= read(from, wide));
        match step {
            0 => stays += 1,
            1 => steps += 1,
            _ => wrong += 1,
        }
        if wrong * 20 > pairs + 40 {
            return None;
        }
    }
    let few = LEAST_PAIRS as u64;
    // A number that changes otherwise nearly as often as it increases is not a counter.
    let is_seen = steps > few && stays > few && wrong * 20 <= pairs && wrong * 2 <= steps;
    (is_seen && wider.is_empty()).then(|| {
        let is_shared = is_shared(table, &number);
        let frames_each = (steps + stays) as f64 / steps as f64;
        Guess { meaning: Meaning::SlowCounter { number, is_shared, frames_each }, holds: steps + stays, of: pairs }
    })
}

/// Units of a length, in bytes.
const UNITS: [u32; 4] = [1, 2, 4, 8];
/// The most bytes that a length may exclude.
const MOST_UNCOUNTED: i64 = 256;
/// Number of different frame lengths that are required, since otherwise any constant field could be a length.
const LEAST_LENGTHS: usize = 2;

/// Returns the best guess for each place of a length; `known` are fields with another meaning.
pub(super) fn find_lengths(table: &Table<'_>, known: &[Guess]) -> Vec<Guess> {
    let mut lengths: Vec<usize> = table.rows().map(|row| row.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    if lengths.len() < LEAST_LENGTHS {
        return Vec::new();
    }
    let places = [4, 2, 1, 3].into_iter().flat_map(|bytes| table.places(bytes));
    let mut found: Vec<Guess> = places.filter_map(|number| guess(table, &number)).collect();
    let order = byte_order(table, known).map(|(is_big_endian, _)| is_big_endian);
    found.sort_by_key(|guess| rank(guess, order));
    let mut best: Vec<Guess> = Vec::new();
    for guess in found {
        let number = guess.number().copied();
        let is_taken = |other: &Guess| other.number().zip(number).is_some_and(|(one, other)| overlap(one, &other));
        if !best.iter().any(is_taken) {
            best.push(guess);
        }
    }
    best
}

/// Returns the rank of a guess: lower if it is more like the usual format of boards, and has the byte order of other
/// fields.
fn rank(guess: &Guess, order: Option<bool>) -> (u64, bool, bool, bool, u32, usize) {
    let Meaning::Length(length) = &guess.meaning else { return (u64::MAX, true, true, true, 0, 0) };
    let number = &length.number;
    // Boards that write 3 bytes are rare: more often these are two bytes with one behind them that is still 0.
    let is_odd = number.bytes == 3 || number.bytes > 2 && number.at % i32::from(number.bytes.min(4)) != 0;
    let uncounted = match length.counts {
        Counts::Frame => length.add.unsigned_abs(),
        Counts::AfterField => 1,
        Counts::Payload { header } => header,
    };
    // As wide as the place allows.
    let is_unaligned = number.bytes == 2 && number.at % 2 != 0;
    let oddity = usize::from(is_odd) * 16 + 2 * usize::from(8 - number.bytes) + usize::from(is_unaligned);
    let is_reversed = number.bytes > 1 && order.is_some_and(|order| order != number.is_big_endian);
    (guess.of - guess.holds, number.mask.is_some(), is_reversed, uncounted != 0, uncounted, oddity)
}

/// Returns the guess of a length at this place, in all of its bits or in its lower ones.
fn guess(table: &Table<'_>, number: &Number) -> Option<Guess> {
    let masks = [28, 24, 20, 16, 12].into_iter().filter(|bits| *bits < 8 * u32::from(number.bytes));
    let masked = masks.map(|bits| number.masked((1 << bits) - 1));
    core::iter::once(*number).chain(masked).find_map(|number| {
        UNITS.into_iter().find_map(|unit| {
            let (uncounted, holds) = uncounted(table.rows(), &number, unit)?;
            let meaning = Meaning::Length(length(number, unit, uncounted));
            Some(Guess { meaning, holds, of: table.len() as u64 })
        })
    })
}

/// Returns the number of bytes that a field excludes from the frames' lengths, if it is the same for nearly all, and
/// for how many it holds.
fn uncounted<'a>(rows: impl Iterator<Item = &'a Row<'a>>, number: &Number, unit: u32) -> Option<(i64, u64)> {
    let rest = |row: &Row<'_>| row.length as i64 - (read(row, number) as i64).saturating_mul(unit.into());
    let (mut candidate, mut holds, mut all, mut wrong) = (None, 0, 0_u64, 0_u64);
    for row in rows {
        all += 1;
        let rest = rest(row);
        if rest == *candidate.get_or_insert(rest) {
            holds += 1;
        } else {
            wrong += 1;
        }
        if wrong * 20 > all {
            return None;
        }
    }
    candidate.filter(|rest| rest.abs() <= MOST_UNCOUNTED).map(|rest| (rest, holds))
}

/// Returns a length that excludes this many bytes.
pub(super) fn length(number: Number, unit: u32, uncounted: i64) -> Length {
    let (counts, add) = if uncounted == extent(&number).end as i64 {
        (Counts::AfterField, 0)
    } else if uncounted > 0 {
        (Counts::Payload { header: uncounted as u32 }, 0)
    } else {
        (Counts::Frame, uncounted as i32)
    };
    Length { number, unit, counts, add }
}

/// Number of frames that are required for any result.
const LEAST_FRAMES: usize = 4;

/// Finds runs of constant bytes that are not all zero, and fields that distinguish peers; `known` are fields with
/// another meaning.
pub(super) fn find_constants(table: &Table<'_>, known: &[Guess]) -> Vec<Guess> {
    if table.len() < LEAST_FRAMES {
        return Vec::new();
    }
    let taken: Vec<_> = known.iter().flat_map(taken).map(extent).collect();
    let is_free = |at: usize| at < table.reach && taken.iter().all(|taken| !taken.contains(&at));
    let byte = |at: usize| Number::little_endian(at as i32, 1);
    let of_peers = |at: usize| table.peers.iter().map(|rows| read(&rows[0], &byte(at))).collect::<Vec<u64>>();
    let is_steady = |at: usize| table.peers.iter().all(|rows| rows.iter().all(|row| row.head[at] == rows[0].head[at]));
    let mut guesses = Vec::new();
    let mut run: Vec<u8> = Vec::new();
    for at in 0..=table.reach {
        let values = if is_free(at) && is_steady(at) { of_peers(at) } else { Vec::new() };
        let is_constant = values.first().is_some_and(|first| values.iter().all(|value| value == first));
        if is_constant && run.len() < MOST_PATTERN_BYTES {
            run.push(values[0] as u8);
            continue;
        }
        guesses.extend(constant(table, at, &run));
        run.clear();
        if is_constant {
            run.push(values[0] as u8);
        } else if are_different(&values) {
            let holds = table.len() as u64;
            guesses.push(Guess { meaning: Meaning::Peer { number: byte(at), values }, holds, of: holds });
        }
    }
    guesses
}

/// Returns a run of constant bytes that ends before `end`, without the zeros around it.
fn constant(table: &Table<'_>, end: usize, run: &[u8]) -> Option<Guess> {
    let first = run.iter().position(|byte| *byte != 0)?;
    let last = run.iter().rposition(|byte| *byte != 0)?;
    let (at, bytes) = (end - run.len() + first, run[first..=last].to_vec());
    let of = table.len() as u64;
    Some(Guess { meaning: Meaning::Constant { at, bytes }, holds: of, of })
}

/// Whether there are several values, each occurring once.
fn are_different(values: &[u64]) -> bool {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    values.len() > 1 && sorted.len() == values.len()
}
