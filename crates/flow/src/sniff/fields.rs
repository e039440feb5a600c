//! What the fields of frames hold: counters, clocks, lengths, and bytes that are always the same.

use super::findings::{Guess, Meaning, Wraps};
use super::frames::{Row, Table, ahead, bits, extent, overlap, read};
use ropewalk_wire::layout::{Counts, Length, MOST_PATTERN_BYTES, Number};
use std::collections::BTreeSet;

/// Pairs of frames that must be there before anything is said.
const LEAST_PAIRS: usize = 4;
/// Bits of a counter that is believed.
const LEAST_BITS: u32 = 4;
/// The maximum number of slow counters in a report: further ones are parts of clocks, after the frame's header.
const MOST_SLOW: usize = 2;
/// Zeros between a counter and the field above it.
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
pub(super) fn find_counters(table: &Table<'_>) -> Vec<Guess> {
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
    // Of overlapping fields the one with the most evidence counts.
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

/// How far a counter reaches whose lowest bit is bit `bit` of a window's lowest byte; `None` if there is no counter.
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

/// Pairs of frames that must be there before anything is said.
const LEAST_CLOCK_PAIRS: usize = 8;
/// By how much a clock may be off a straight line, in parts of what it went on: much less where what it is off by
/// accumulates, as it does for sums of anything that comes at random.
const MOST_DEVIATION: f64 = 0.03;
const MOST_DRIFT: f64 = 0.002;
/// Two neighbours in time: how much of the deviation differs between them, where nothing accumulates (white noise: 2).
const LEAST_WHITENESS: f64 = 0.5;

/// The maximum number of clocks in a report: further ones are times of single hits, after the frame's header.
const MOST_CLOCKS: usize = 4;
/// Ticks per nanosecond of the fastest clock that is expected: more are digits of something else.
const FINEST: f64 = 1.1;

/// A straight line through a field's values, in ticks per nanosecond of arrival.
#[derive(Copy, Clone, Debug)]
struct Line {
    slope: f64,
    /// Standard deviation of the slope.
    error: f64,
    /// Deviation from the line, in parts of what the clock went on.
    deviation: f64,
    /// Pairs of frames between which it went on,
    holds: u64,
    /// and began anew.
    resets: u64,
}

/// The clocks, and what repeats them; `known` are fields of another meaning.
pub(super) fn find_clocks(table: &Table<'_>, known: &[Guess]) -> Vec<Guess> {
    let is_free = |number: &Number| known.iter().flat_map(taken).all(|other| !overlap(other, number));
    let mut lines: Vec<(Number, Line)> = [4, 8, 2, 6, 5, 3]
        .into_iter()
        .flat_map(|bytes| table.places(bytes))
        .filter(is_free)
        .filter_map(|number| Some((number, line(table, &number)?)))
        .collect();
    lines.retain(|(number, _)| begins_with_a_lively_byte(table, number));
    let (mut guesses, mut clocks) = (Vec::new(), 0);
    while let Some((number, line)) = best(&lines).filter(|_| clocks < MOST_CLOCKS) {
        clocks += 1;
        lines.retain(|(other, _)| !overlap(other, &number));
        let wraps = if line.resets > 0 { wraps(table, &number, &line) } else { None };
        let wraps_number = wraps.map(|wraps| wraps.number);
        lines.retain(|(other, _)| wraps_number.is_none_or(|wraps| !overlap(other, &wraps)));
        for of in core::iter::once(number).chain(wraps_number) {
            let repeats = before(table, &of);
            lines.retain(|(other, _)| repeats.iter().filter_map(Guess::number).all(|known| !overlap(known, other)));
            guesses.extend(repeats);
        }
        let (tick, is_shared) = (1.0 / line.slope, is_shared(table, &number));
        let meaning = Meaning::Clock { number, tick, error: tick * line.error / line.slope, wraps, is_shared };
        guesses.push(Guess { meaning, holds: line.holds, of: line.holds + line.resets });
    }
    guesses.sort_by_key(|guess| guess.number().map(|number| number.at));
    guesses
}

/// The lowest byte of a clock is never the quietest one; otherwise a neighbour was taken for its lower digits.
fn begins_with_a_lively_byte(table: &Table<'_>, number: &Number) -> bool {
    let extent = extent(number);
    let lowest = if number.is_big_endian { extent.end - 1 } else { extent.start };
    let most = extent.map(|at| table.liveliness(at)).max().unwrap_or(0);
    table.liveliness(lowest) * 2 >= most
}

/// The straightest line; among lines about as straight, the field with the most usual position and width, and of these
/// the one that includes the lower digits.
fn best(lines: &[(Number, Line)]) -> Option<(Number, Line)> {
    let straightest = lines.iter().min_by(|one, other| one.1.deviation.total_cmp(&other.1.deviation))?;
    let close = |(number, line): &&(Number, Line)| {
        overlap(number, &straightest.0) && line.deviation <= 4.0 * straightest.1.deviation + 1e-9
    };
    let rank = |(number, line): &&(Number, Line)| {
        let width = [4, 8, 2, 6, 5, 3].iter().position(|bytes| *bytes == number.bytes);
        // A byte of digits that are left out weighs as much as a place that is a little unusual.
        let coarseness = (-line.slope.log2() / 8.0).round() as i32;
        let oddity = [0, 3, 1, 3][(number.at % 4) as usize];
        (line.slope > FINEST, width, coarseness + oddity)
    };
    lines.iter().filter(close).min_by_key(rank).copied()
}

/// Sums of a straight line through points that are added one by one; each segment has an offset of its own.
#[derive(Default)]
struct Fit {
    points: Vec<(f64, f64)>,
    time_time: f64,
    time_value: f64,
    value_value: f64,
    segments: Vec<Vec<(f64, f64)>>,
}

impl Fit {
    fn end_segment(&mut self) {
        let points = core::mem::take(&mut self.points);
        let count = points.len() as f64;
        if points.len() < 2 {
            return;
        }
        let mean = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
        let centred: Vec<(f64, f64)> = points.iter().map(|point| (point.0 - mean.0, point.1 - mean.1)).collect();
        for (time, value) in &centred {
            self.time_time += time * time;
            self.time_value += time * value;
            self.value_value += value * value;
        }
        self.segments.push(centred);
    }

    fn line(&self, holds: u64, resets: u64) -> Option<Line> {
        if self.time_time <= 0.0 || self.value_value <= 0.0 || self.time_value <= 0.0 {
            return None;
        }
        let slope = self.time_value / self.time_time;
        let residual = |(time, value): &(f64, f64)| value - slope * time;
        let (mut squares, mut steps, mut count) = (0.0, 0.0, 0.0);
        for segment in &self.segments {
            squares += segment.iter().map(|point| residual(point).powi(2)).sum::<f64>();
            let pairs = segment.iter().zip(&segment[1..]);
            steps += pairs.map(|(one, other)| (residual(other) - residual(one)).powi(2)).sum::<f64>();
            count += segment.len() as f64 - 1.0;
        }
        let deviation = (squares / self.value_value).sqrt();
        let is_white = squares == 0.0 || steps >= LEAST_WHITENESS * squares;
        let is_straight = deviation < MOST_DRIFT || deviation < MOST_DEVIATION && is_white;
        let error = (squares / count.max(1.0) / self.time_time).sqrt();
        is_straight.then_some(Line { slope, error, deviation, holds, resets })
    }
}

/// The line through a field's values, if it is a clock.
fn line(table: &Table<'_>, number: &Number) -> Option<Line> {
    let mut fit = Fit::default();
    let (mut holds, mut stays, mut resets, mut pairs) = (0_u64, 0_u64, 0_u64, 0_usize);
    for rows in &table.peers {
        let mut value = 0.0;
        let start = rows.first()?.at;
        fit.points.push((0.0, 0.0));
        for (from, to) in rows.iter().zip(&rows[1..]) {
            pairs += 1;
            let step = ahead(number, from, to);
            // What goes on by more than a quarter of its range began anew, or is no clock.
            if step >> (bits(number) - 2) == 0 {
                holds += 1;
                stays += u64::from(step == 0);
                value += step as f64;
            } else {
                resets += 1;
                fit.end_segment();
            }
            if pairs >= LEAST_CLOCK_PAIRS && (resets * 5) as usize > pairs + LEAST_CLOCK_PAIRS {
                return None;
            }
            fit.points.push((to.at.saturating_sub(start) as f64, value));
        }
        fit.end_segment();
    }
    let is_enough = pairs >= LEAST_CLOCK_PAIRS && resets as usize * 5 <= pairs && stays * 2 < holds;
    if is_enough { fit.line(holds, resets) } else { None }
}

/// The field that is one more whenever the clock begins anew.
fn wraps(table: &Table<'_>, clock: &Number, line: &Line) -> Option<Wraps> {
    let is_reset = |from: &Row<'_>, to: &Row<'_>| ahead(clock, from, to) >> (bits(clock) - 2) != 0;
    let fits = |number: &Number| {
        let as_it_should = |(from, to): &(&Row<'_>, &Row<'_>)| ahead(number, from, to) == u64::from(is_reset(from, to));
        let (mut right, mut all) = (0, 0);
        for pair in table.pairs() {
            all += 1;
            right += usize::from(as_it_should(&pair));
            if (all - right) * 20 > all + 20 {
                return false;
            }
        }
        (all - right) * 50 <= all
    };
    let distance = |number: &Number| number.at.abs_diff(clock.at);
    let mut places: Vec<Number> = [4, 2, 1].into_iter().flat_map(|bytes| table.places(bytes)).collect();
    places.sort_by_key(|number| (number.bytes != 4, distance(number), number.is_big_endian != clock.is_big_endian));
    let number = places.into_iter().find(|number| !overlap(number, clock) && fits(number))?;
    // How far it goes until it begins anew: as far as it went, and what its last step was short of.
    let period = table.pairs().filter(|(from, to)| is_reset(from, to)).map(|(from, to)| {
        let passed = to.at.saturating_sub(from.at) as f64;
        read(from, clock) as f64 / line.slope + passed - read(to, clock) as f64 / line.slope
    });
    let (sum, count) = period.fold((0.0, 0.0), |(sum, count), period| (sum + period, count + 1.0));
    Some(Wraps { number, period: sum / count })
}

/// The first field that repeats what another one was in the frame before.
fn before(table: &Table<'_>, of: &Number) -> Option<Guess> {
    let all = table.pairs().count() as u64;
    let places = table.places(of.bytes).filter(|number| number.is_big_endian == of.is_big_endian);
    places.filter(|number| !overlap(number, of)).find_map(|number| {
        let mut wrong = 0;
        let holds = table.pairs().take_while(|(from, to)| {
            wrong += u64::from(read(to, &number) != read(from, of));
            wrong * 20 <= all
        });
        let meaning = Meaning::Before { number, of: *of };
        (holds.count() as u64 == all).then_some(Guess { meaning, holds: all - wrong, of: all })
    })
}

/// What a length counts in.
const UNITS: [u32; 4] = [1, 2, 4, 8];
/// Bytes that a length may leave out.
const MOST_UNCOUNTED: i64 = 256;
/// Different lengths of frames, without which a field that never changes would be one.
const LEAST_LENGTHS: usize = 2;

/// The best guess at each place where a frame's length stands.
pub(super) fn find_lengths(table: &Table<'_>) -> Vec<Guess> {
    let mut lengths: Vec<usize> = table.rows().map(|row| row.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    if lengths.len() < LEAST_LENGTHS {
        return Vec::new();
    }
    let places = [4, 2, 1, 3].into_iter().flat_map(|bytes| table.places(bytes));
    let mut found: Vec<Guess> = places.filter_map(|number| guess(table, &number)).collect();
    found.sort_by_key(rank);
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

/// Lower where it is more like what boards do.
fn rank(guess: &Guess) -> (u64, bool, bool, u32, usize) {
    let Meaning::Length(length) = &guess.meaning else { return (u64::MAX, true, true, 0, 0) };
    let number = &length.number;
    // Boards that write 3 bytes are rare: they are more often two with a byte behind them that is still 0.
    let is_odd = number.bytes == 3 || number.at % i32::from(number.bytes.min(4)) != 0;
    let uncounted = match length.counts {
        Counts::Frame => length.add.unsigned_abs(),
        Counts::AfterField => 1,
        Counts::Payload { header } => header,
    };
    // As wide as its place allows.
    let oddity = usize::from(is_odd) * 8 + usize::from(8 - number.bytes);
    (guess.of - guess.holds, number.mask.is_some(), uncounted != 0, uncounted, oddity)
}

/// A length at this place, whole or in its lower bits.
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

/// What a field leaves out of the frames' lengths, if it is the same for nearly all; and for how many.
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

/// A length that leaves out so many bytes.
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

/// Frames that must be there before anything is said.
const LEAST_FRAMES: usize = 4;

/// Runs of constant bytes that are not all zero, and what tells peers apart; `known` are fields of another meaning.
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

/// A run of constant bytes that ends before `end`, without the zeros around it.
fn constant(table: &Table<'_>, end: usize, run: &[u8]) -> Option<Guess> {
    let first = run.iter().position(|byte| *byte != 0)?;
    let last = run.iter().rposition(|byte| *byte != 0)?;
    let (at, bytes) = (end - run.len() + first, run[first..=last].to_vec());
    let of = table.len() as u64;
    Some(Guess { meaning: Meaning::Constant { at, bytes }, holds: of, of })
}

/// Whether there are several values, each once.
fn are_different(values: &[u64]) -> bool {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    values.len() > 1 && sorted.len() == values.len()
}
