//! Fields that go on with time.

use super::counters::{is_shared, taken};
use super::findings::{Guess, Meaning, Wraps};
use super::frames::{Row, Table, ahead, bits, extent, overlap, read};
use ropewalk_wire::layout::Number;

/// Pairs of frames that must be there before anything is said.
const LEAST_PAIRS: usize = 8;
/// By how much a clock may be off a straight line, in parts of what it went on: much less where what it is off by
/// accumulates, as it does for sums of anything that comes at random.
const MOST_DEVIATION: f64 = 0.03;
const MOST_DRIFT: f64 = 0.002;
/// Two neighbours in time: how much of the deviation differs between them, where nothing accumulates (white noise: 2).
const LEAST_WHITENESS: f64 = 0.5;

/// So many clocks are told: of more they are those of single hits, behind the frame's header.
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
pub(super) fn find(table: &Table<'_>, known: &[Guess]) -> Vec<Guess> {
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

/// The straightest line; of those that are as straight the field that is as numbers usually are, and of these the one that
/// has the digits below another one's.
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

/// Sums of a straight line through points that are told one by one; each segment has an offset of its own.
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
            if pairs >= LEAST_PAIRS && (resets * 5) as usize > pairs + LEAST_PAIRS {
                return None;
            }
            fit.points.push((to.at.saturating_sub(start) as f64, value));
        }
        fit.end_segment();
    }
    let is_enough = pairs >= LEAST_PAIRS && resets as usize * 5 <= pairs && stays * 2 < holds;
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
