//! Finds clocks: numbers that grow linearly with the time of arrival.

use super::fields::{is_shared, taken};
use super::findings::{Doubt, Guess, Meaning, Wraps};
use super::frames::{Row, Table, ahead, bits, extent, overlap, read};
use ropewalk_wire::layout::Number;

/// Number of pairs of frames that are required for any result.
const LEAST_CLOCK_PAIRS: usize = 8;
/// The most that a clock may deviate from a straight line, as a share of its advance. It is much less if the deviation
/// accumulates, as it does for sums of random values.
const MOST_DEVIATION: f64 = 0.03;
const MOST_DRIFT: f64 = 0.002;
/// The same for a number that may be a clock.
const MOST_DEVIATION_PERHAPS: f64 = 0.1;
/// The least share of the deviation that differs between neighbours in time, if nothing accumulates (white noise: 2).
const LEAST_WHITENESS: f64 = 0.5;
/// The same for many points, some of which wait for each other: this value divided by the number of points. For a sum
/// it is 15.
const LEAST_WHITENESS_OF_MANY: f64 = 240.0;
/// Points that are further from the line than this many times the usual distance were late. They are left out, up to
/// this share of all points.
const LATE: f64 = 4.0;
const MOST_LATE: f64 = 0.25;
/// Number of passes that search for late points.
const ROUNDS: usize = 3;

/// The most clocks in a report: further ones are times of single hits, after the frame's header.
const MOST_CLOCKS: usize = 4;
/// Ticks per nanosecond of the fastest expected clock; finer digits are something else.
pub(super) const FINEST: f64 = 1.1;

impl Line {
    /// Returns the length of a tick, in nanoseconds.
    fn tick(&self) -> f64 {
        1.0 / self.slope
    }

    /// Returns the standard deviation of the tick.
    fn tick_error(&self) -> f64 {
        self.tick() * self.error / self.slope
    }
}

/// The most digits of a round number.
const MOST_DIGITS: i32 = 6;
/// A tick with at most this many digits is no accident.
const ROUND: i32 = 2;
/// The largest relative difference between the clock of a board and that of this machine.
const CLOCKS_DIFFER: f64 = 1e-4;

/// Returns the likely tick of a board for a measured one in nanoseconds, and the number of its digits: the period, or
/// the frequency, that is the roundest number within the error of the tick.
pub(super) fn round_tick(tick: f64, error: f64) -> (f64, i32) {
    let tolerance = (3.0 * error).max(CLOCKS_DIFFER * tick);
    let rounded = |value: f64, digits: i32| {
        let unit = 10_f64.powi(value.log10().floor() as i32 + 1 - digits);
        (value / unit).round() * unit
    };
    let near = |digits: i32| {
        let choices = [rounded(tick, digits), 1.0 / rounded(1.0 / tick, digits)];
        choices.into_iter().min_by(|one, other| (one - tick).abs().total_cmp(&(other - tick).abs()))
    };
    (1..=MOST_DIGITS)
        .filter_map(|digits| near(digits).map(|round| (round, digits)))
        .find(|(round, _)| (round - tick).abs() <= tolerance)
        .unwrap_or((tick, MOST_DIGITS + 1))
}

/// A straight line through a field's values, in ticks per nanosecond of arrival.
#[derive(Copy, Clone, Debug)]
struct Line {
    slope: f64,
    /// Standard deviation of the slope.
    error: f64,
    /// Deviation from the line, as a share of the clock's advance.
    deviation: f64,
    /// Deviation from the line, in nanoseconds.
    scatter: f64,
    /// Whether it is a clock and not a sum of random values.
    is_certain: bool,
    /// Number of pairs of frames between which it advanced,
    holds: u64,
    /// and number of those between which it restarted.
    resets: u64,
}

/// The clocks and their repetitions; if there are none, what may be a clock.
pub(super) struct Clocks {
    pub(super) guesses: Vec<Guess>,
    pub(super) perhaps: Option<Doubt>,
}

/// Finds clocks; `known` are fields with another meaning.
pub(super) fn find_clocks(table: &Table<'_>, known: &[Guess]) -> Clocks {
    let is_free = |number: &Number| known.iter().flat_map(taken).all(|other| !overlap(other, number));
    let mut lines: Vec<(Number, Line)> = [4, 8, 2, 6, 5, 3]
        .into_iter()
        .flat_map(|bytes| table.places(bytes))
        .filter(is_free)
        .filter_map(|number| Some((number, line(table, &number)?)))
        .collect();
    lines.retain(|(number, _)| begins_with_a_lively_byte(table, number));
    let (mut lines, unsure): (Vec<_>, Vec<_>) = lines.into_iter().partition(|(_, line)| line.is_certain);
    let (mut guesses, mut clocks) = (Vec::new(), 0);
    while let Some((number, line)) = best(&lines).filter(|_| clocks < MOST_CLOCKS) {
        clocks += 1;
        let (number, line) = widened(table, &lines, number, line);
        lines.retain(|(other, _)| !overlap(other, &number));
        let wraps = if line.resets > 0 { wraps(table, &number, &line) } else { None };
        let wraps_number = wraps.map(|wraps| wraps.number);
        lines.retain(|(other, _)| wraps_number.is_none_or(|wraps| !overlap(other, &wraps)));
        for of in core::iter::once(number).chain(wraps_number) {
            let repeats = before(table, &of);
            lines.retain(|(other, _)| repeats.iter().filter_map(Guess::number).all(|known| !overlap(known, other)));
            guesses.extend(repeats);
        }
        let (tick, error, is_shared) = (line.tick(), line.tick_error(), is_shared(table, &number));
        let meaning = Meaning::Clock { number, tick, error, wraps, is_shared };
        guesses.push(Guess { meaning, holds: line.holds, of: line.holds + line.resets });
    }
    guesses.sort_by_key(|guess| guess.number().map(|number| number.at));
    let perhaps = best(&unsure).filter(|_| guesses.is_empty()).map(|(number, line)| {
        let (number, line) = widened(table, &unsure, number, line);
        Doubt::PerhapsClock { number, tick: line.tick(), scatter: line.scatter }
    });
    Clocks { guesses, perhaps }
}

/// Whether the lowest byte is not the quietest one, as for any clock. Otherwise a neighbouring field was taken for the
/// lower digits.
fn begins_with_a_lively_byte(table: &Table<'_>, number: &Number) -> bool {
    let extent = extent(number);
    let lowest = if number.is_big_endian { extent.end - 1 } else { extent.start };
    let most = extent.map(|at| table.liveliness(at)).max().unwrap_or(0);
    table.liveliness(lowest) * 2 >= most
}

/// Returns the straightest line. Among about equally straight lines it takes the field with the most usual width, a
/// round tick and the most usual position, and of these the one that includes the lower digits.
fn best(lines: &[(Number, Line)]) -> Option<(Number, Line)> {
    let straightest = lines.iter().min_by(|one, other| one.1.deviation.total_cmp(&other.1.deviation))?;
    let close = |(number, line): &&(Number, Line)| {
        overlap(number, &straightest.0) && line.deviation <= 4.0 * straightest.1.deviation + 1e-9
    };
    // The same uncertainty for all lines: a less certain line would otherwise appear rounder.
    let uncertainty = lines.iter().filter(close).map(|(_, line)| line.error / line.slope).fold(0.0, f64::max);
    let rank = |(number, line): &&(Number, Line)| {
        let width = [4, 8, 2, 6, 5, 3].iter().position(|bytes| *bytes == number.bytes);
        // A missing byte of digits weighs as much as a slightly unusual place.
        let coarseness = (-line.slope.log2() / 8.0).round() as i32;
        let oddity = [0, 3, 1, 3][(number.at % 4) as usize];
        let is_odd_tick = round_tick(line.tick(), uncertainty * line.tick()).1 > ROUND;
        (line.slope > FINEST, width, is_odd_tick, coarseness + oddity)
    };
    lines.iter().filter(close).min_by_key(rank).copied()
}

/// Returns the clock with the bytes above it that it carries into, or that are zero, if it is a straight line with
/// them, too.
fn widened(table: &Table<'_>, lines: &[(Number, Line)], number: Number, line: Line) -> (Number, Line) {
    let lowest = |number: &Number| if number.is_big_endian { extent(number).end } else { extent(number).start };
    let is_same = |other: &Number| other.is_big_endian == number.is_big_endian && lowest(other) == lowest(&number);
    let above = |other: &Number| extent(other).filter(|at| !extent(&number).contains(at)).collect::<Vec<usize>>();
    // Within a peer: what tells peers apart is no part of a clock.
    let is_lively = |at: &usize| table.pairs().any(|(from, to)| from.head[*at] != to.head[*at]);
    let is_zero = |at: &usize| table.rows().all(|row| row.head[*at] == 0);
    let is_wider = |(other, _): &&(Number, Line)| {
        let (above, is_usual) = (above(other), [4, 8].contains(&other.bytes));
        is_same(other)
            && above.iter().all(|at| is_lively(at) || is_zero(at))
            && (is_usual || above.iter().any(is_lively))
    };
    let wider = lines.iter().filter(|(other, _)| other.bytes > number.bytes).filter(is_wider);
    let rank = |(other, _): &&(Number, Line)| {
        (above(other).into_iter().filter(is_lively).count(), other.bytes % 2 == 0, other.bytes)
    };
    wider.max_by_key(rank).copied().unwrap_or((number, line))
}

/// Points of time and value, in the order of time. Each segment has its own offset.
type Segments = Vec<Vec<(f64, f64)>>;

/// A straight line through segments.
struct Fit {
    slope: f64,
    /// Standard deviation of the slope.
    error: f64,
    /// Deviation from the line, as a share of the clock's advance and in ticks.
    deviation: f64,
    ticks: f64,
    /// The share of the deviation that differs between neighbours.
    whiteness: f64,
    points: usize,
}

impl Fit {
    fn of(segments: &Segments) -> Option<Self> {
        let (mut time_time, mut time_value, mut value_value) = (0.0, 0.0, 0.0);
        let mut centred: Segments = Vec::new();
        for points in segments.iter().filter(|points| points.len() > 1) {
            let count = points.len() as f64;
            let mean = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / count, sum.1 + point.1 / count));
            centred.push(points.iter().map(|point| (point.0 - mean.0, point.1 - mean.1)).collect());
        }
        for (time, value) in centred.iter().flatten() {
            time_time += time * time;
            time_value += time * value;
            value_value += value * value;
        }
        if time_time <= 0.0 || value_value <= 0.0 || time_value <= 0.0 {
            return None;
        }
        let slope = time_value / time_time;
        let residual = |(time, value): &(f64, f64)| value - slope * time;
        let (mut squares, mut steps, mut points) = (0.0, 0.0, 0);
        for segment in &centred {
            squares += segment.iter().map(|point| residual(point).powi(2)).sum::<f64>();
            let pairs = segment.iter().zip(&segment[1..]);
            steps += pairs.map(|(one, other)| (residual(other) - residual(one)).powi(2)).sum::<f64>();
            points += segment.len();
        }
        let free = (points - centred.len()).max(1) as f64;
        Some(Self {
            slope,
            error: (squares / free / time_time).sqrt(),
            deviation: (squares / value_value).sqrt(),
            ticks: (squares / free).sqrt(),
            whiteness: if squares > 0.0 { steps / squares } else { f64::INFINITY },
            points,
        })
    }

    /// Fits a line through the points that were not late.
    fn robust(segments: &Segments) -> Option<Self> {
        let all: usize = segments.iter().map(Vec::len).sum();
        let mut fit = Self::of(segments)?;
        for _ in 0..ROUNDS {
            let kept = in_time(segments, fit.slope);
            if (kept.iter().map(Vec::len).sum::<usize>() as f64) < all as f64 * (1.0 - MOST_LATE) {
                break;
            }
            fit = Self::of(&kept)?;
        }
        Some(fit)
    }

    /// Whether it is the line of a clock, whose deviations do not accumulate.
    fn is_straight(&self) -> bool {
        self.deviation < MOST_DRIFT || self.deviation < MOST_DEVIATION && self.whiteness >= LEAST_WHITENESS
    }

    /// Does the same for points of which some waited for each other, and which may be far apart.
    fn is_straight_for_many(&self) -> bool {
        let least = (LEAST_WHITENESS_OF_MANY / self.points.max(1) as f64).min(LEAST_WHITENESS);
        self.deviation < MOST_DEVIATION && self.whiteness >= least
    }
}

/// Returns the points whose distance from a line of this slope is normal.
fn in_time(segments: &Segments, slope: f64) -> Segments {
    let median = |values: &mut Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let off = |points: &Vec<(f64, f64)>| {
        let all: Vec<f64> = points.iter().map(|(time, value)| value - slope * time).collect();
        let middle = median(&mut all.clone());
        all.into_iter().map(|off| (off - middle).abs()).collect::<Vec<f64>>()
    };
    let offs: Vec<Vec<f64>> = segments.iter().map(off).collect();
    let most = LATE * median(&mut offs.concat());
    let kept = |(points, offs): (&Vec<(f64, f64)>, &Vec<f64>)| {
        points.iter().zip(offs).filter(|(_, off)| **off <= most).map(|(point, _)| *point).collect()
    };
    segments.iter().zip(&offs).map(kept).collect()
}

/// A field's values over time: those of the first frames of each peer and, after a gap, of its last ones.
#[derive(Default)]
struct Course {
    first: Segments,
    all: Segments,
    holds: u64,
    stays: u64,
    resets: u64,
    pairs: usize,
}

impl Course {
    /// Returns the values of this number; `None` if they cannot be those of a clock.
    fn of(table: &Table<'_>, number: &Number) -> Option<Self> {
        let mut course = Self::default();
        let mut of_peers: Vec<Segments> = Vec::new();
        for rows in &table.peers {
            let mut segments = vec![vec![(0.0, 0.0)]];
            course.follow(number, rows, rows.first()?.at, &mut segments)?;
            of_peers.push(segments);
        }
        let is_enough = course.pairs >= LEAST_CLOCK_PAIRS
            && course.resets as usize * 5 <= course.pairs
            && course.stays * 2 < course.holds;
        if !is_enough {
            return None;
        }
        course.first = of_peers.concat();
        for ((rows, late), segments) in table.peers.iter().zip(&table.late).zip(&mut of_peers) {
            let (Some(start), Some(last), Some(next)) = (rows.first(), rows.last(), late.first()) else { continue };
            let time = next.at.saturating_sub(start.at) as f64;
            let value = segments.last().and_then(|points| across(number, points, last, next));
            match (value, segments.last_mut()) {
                (Some(value), Some(points)) => points.push((time, value)),
                _ => segments.push(vec![(time, 0.0)]),
            }
            course.follow(number, late, start.at, segments)?;
        }
        course.all = of_peers.concat();
        Some(course)
    }

    /// Appends the values of the frames after the first one to the last segment; a reset begins a new segment.
    fn follow(&mut self, number: &Number, rows: &[Row<'_>], start: u64, segments: &mut Segments) -> Option<()> {
        let mut value = segments.last().and_then(|points| points.last()).map_or(0.0, |point| point.1);
        for (from, to) in rows.iter().zip(rows.get(1..)?) {
            self.pairs += 1;
            let step = ahead(number, from, to);
            // An advance of more than a quarter of the range is a restart, or the number is not a clock.
            if step >> (bits(number) - 2) == 0 {
                self.holds += 1;
                self.stays += u64::from(step == 0);
                value += step as f64;
            } else {
                self.resets += 1;
                segments.push(Vec::new());
            }
            if self.pairs >= LEAST_CLOCK_PAIRS && (self.resets * 5) as usize > self.pairs + LEAST_CLOCK_PAIRS {
                return None;
            }
            segments.last_mut()?.push((to.at.saturating_sub(start) as f64, value));
        }
        Some(())
    }
}

/// Returns the value after a gap, if the number of wraps in the gap is certain.
fn across(number: &Number, points: &[(f64, f64)], last: &Row<'_>, next: &Row<'_>) -> Option<f64> {
    let (from, to) = (points.first()?, points.last()?);
    if points.len() < LEAST_CLOCK_PAIRS || to.0 <= from.0 {
        return None;
    }
    let expected = (to.1 - from.1) / (to.0 - from.0) * next.at.saturating_sub(last.at) as f64;
    let (range, step) = (2_f64.powi(bits(number) as i32), ahead(number, last, next) as f64);
    let step = step + ((expected - step) / range).round().max(0.0) * range;
    let is_certain = expected * MOST_DEVIATION < range / 8.0 && (step - expected).abs() < range / 4.0;
    is_certain.then_some(to.1 + step)
}

/// Returns the line through a field's values, if it is or may be a clock.
fn line(table: &Table<'_>, number: &Number) -> Option<Line> {
    let course = Course::of(table, number)?;
    let all = Fit::robust(&course.all).filter(|fit| fit.deviation < MOST_DEVIATION_PERHAPS);
    let first = || Fit::of(&course.first).filter(Fit::is_straight);
    let (fit, is_certain) = match all {
        Some(fit) if fit.is_straight_for_many() => (fit, true),
        all => first().map(|fit| (fit, true)).or(all.map(|fit| (fit, false)))?,
    };
    let Fit { slope, error, deviation, ticks, .. } = fit;
    let (holds, resets) = (course.holds, course.resets);
    Some(Line { slope, error, deviation, scatter: ticks / slope, is_certain, holds, resets })
}

/// Returns the field that increases by one whenever the clock restarts.
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
    // The period up to a restart: the advance so far, and the shortfall of the last step.
    let period = table.pairs().filter(|(from, to)| is_reset(from, to)).map(|(from, to)| {
        let passed = to.at.saturating_sub(from.at) as f64;
        read(from, clock) as f64 / line.slope + passed - read(to, clock) as f64 / line.slope
    });
    let (sum, count) = period.fold((0.0, 0.0), |(sum, count), period| (sum + period, count + 1.0));
    Some(Wraps { number, period: sum / count })
}

/// Returns the first field that repeats the value of another one in the previous frame.
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
