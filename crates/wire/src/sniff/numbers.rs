//! Which numbers of some datagrams mean what.

use super::{Guess, Head, Meaning, NumberPlace};

/// Steps from datagram to datagram that it takes to believe anything.
const LEAST_STEPS: usize = 8;
/// How many of ten steps of a counter must be steps by one: some datagrams are lost.
const COUNTED_OF_TEN: usize = 9;
/// How far a clock may be from a straight line, as a share of all that it went.
const CROOKED: f64 = 0.02;
/// Distances to a clock's straight line, in ticks, that are nothing: slow clocks have just ticked, or are just going to.
const TICKS: f64 = 1.5;
/// A clock that would begin anew after fewer steps than this is none: of numbers that are read the wrong way round some are as
/// straight as clocks, when datagrams come evenly.
const LEAST_STEPS_OF_A_CYCLE: u64 = 16;
/// How many bytes more than there are a length may count: a frame's checksum, or headers that are gone.
const MOST_LESS: i64 = 64;
/// Different lengths that it takes to believe in a length.
const LEAST_LENGTHS: usize = 3;

/// Guesses about what these senders' datagrams begin with, in the order of their places.
pub(super) fn guesses(senders: &[&[Head]]) -> Vec<Guess> {
    let bytes = senders.iter().copied().flatten().map(|head| head.bytes.len()).min().unwrap_or(0);
    let steps: usize = senders.iter().map(|heads| heads.len().saturating_sub(1)).sum();
    if steps < LEAST_STEPS {
        return Vec::new();
    }
    let mut found = counters(senders, bytes);
    found.extend(length(senders, bytes));
    // Who writes one number with its highest byte first writes all of them so.
    let is_big_endian = found.iter().find(|guess| guess.place.bytes > 1).map(|guess| guess.place.is_big_endian);
    for guess in clocks(senders, bytes, is_big_endian) {
        if !found.iter().any(|other| other.place.overlaps(&guess.place)) {
            found.push(guess);
        }
    }
    let is_free =
        |at: usize| !found.iter().any(|guess| (guess.place.at..guess.place.at + guess.place.bytes).contains(&at));
    let rest = same(senders, (0..bytes).filter(|&at| is_free(at)));
    found.extend(rest);
    found.sort_by_key(|guess| guess.place);
    found
}

/// Every number that there can be in the first `bytes`.
fn places(bytes: usize, widths: &'static [usize]) -> impl Iterator<Item = NumberPlace> {
    let numbers = move |at: usize| {
        let fitting = widths.iter().copied().filter(move |width| at + width <= bytes);
        fitting.flat_map(move |bytes| [false, true].map(|is_big_endian| NumberPlace { at, bytes, is_big_endian }))
    };
    (0..bytes).flat_map(numbers)
}

/// Whether it is one more from datagram to datagram, mostly.
fn is_counter(place: NumberPlace, senders: &[&[Head]]) -> bool {
    senders.iter().filter(|heads| heads.len() > 1).all(|heads| {
        let steps = heads.windows(2).map(|pair| place.read(&pair[1]).wrapping_sub(place.read(&pair[0])) & place.mask());
        10 * steps.filter(|&step| step == 1).count() >= COUNTED_OF_TEN * (heads.len() - 1)
    })
}

/// Counters: of all numbers with the same lowest byte the one that looks most like a counter.
fn counters(senders: &[&[Head]], bytes: usize) -> Vec<Guess> {
    let lowest = |place: &NumberPlace| if place.is_big_endian { place.at + place.bytes - 1 } else { place.at };
    let mut best: Vec<(usize, u32, NumberPlace)> = Vec::new();
    for place in places(bytes, &[1, 2, 4, 8]).filter(|place| is_counter(*place, senders)) {
        let (low, score) = (lowest(&place), counter_score(place, senders));
        match best.iter_mut().find(|(other, ..)| *other == low) {
            Some(other) if other.1 < score => (other.1, other.2) = (score, place),
            Some(_) => {}
            None => best.push((low, score, place)),
        }
    }
    best.into_iter().map(|(_, _, place)| Guess { place, meaning: Meaning::Counter }).collect()
}

/// How much a number looks like a counter: its upper bytes carry, or begin with zeros; and numbers mostly lie at multiples of their
/// size, and have 4 bytes.
fn counter_score(place: NumberPlace, senders: &[&[Head]]) -> u32 {
    let carries =
        senders.iter().any(|heads| heads.windows(2).any(|pair| place.read(&pair[0]) >> 8 != place.read(&pair[1]) >> 8));
    let top = 8 * (place.bytes - 1);
    let has_zeros = place.bytes > 1 && senders.iter().copied().flatten().all(|head| place.read(head) >> top == 0);
    let usual = match place.bytes {
        4 => 3,
        2 => 2,
        8 => 1,
        _ => 0,
    };
    // A carry shows the bytes that it reaches: those beyond are shown by zeros alone.
    let reached = if carries && place.bytes > 1 { 100 } else { 0 };
    reached + 10 * u32::from(has_zeros) + 5 * u32::from(place.at.is_multiple_of(place.bytes)) + usual
}

/// The number that goes with the length of the datagrams.
fn length(senders: &[&[Head]], bytes: usize) -> Option<Guess> {
    let heads = || senders.iter().copied().flatten();
    let mut lengths: Vec<usize> = heads().map(|head| head.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    if lengths.len() < LEAST_LENGTHS {
        return None;
    }
    let fits = |place: NumberPlace| {
        [1, 2, 4, 8].into_iter().find_map(|unit| {
            let more =
                |head: &Head| place.read(head).checked_mul(unit).map(|counted| head.length as i64 - counted as i64);
            let mut all = heads().map(more);
            let first = all.next()??;
            (first >= -MOST_LESS && all.all(|more| more == Some(first)))
                .then_some(Meaning::Length { unit, more: first })
        })
    };
    // The widest, where several fit: its upper bytes are zeros.
    let found = places(bytes, &[1, 2, 4]).filter_map(|place| Some(Guess { place, meaning: fits(place)? }));
    found.max_by_key(|guess| (guess.place.at.is_multiple_of(guess.place.bytes), guess.place.bytes))
}

/// Numbers that go on with the time.
fn clocks(senders: &[&[Head]], bytes: usize, is_big_endian: Option<bool>) -> Vec<Guess> {
    let mut found: Vec<(f64, Guess)> = Vec::new();
    for place in places(bytes, &[4, 8]) {
        let fits: Option<Vec<(f64, f64)>> = senders.iter().map(|heads| clock(place, heads)).collect();
        let Some(fits) = fits.filter(|fits| !fits.is_empty()) else { continue };
        let tick = fits[0].0;
        if fits.iter().all(|(other, _)| (other / tick - 1.0).abs() < 0.05) {
            let worst = fits.iter().map(|(_, crooked)| *crooked).fold(0.0, f64::max);
            found.push((worst, Guess { place, meaning: Meaning::Clock { tick_nanoseconds: tick } }));
        }
    }
    // The straightest of those that share bytes; of equally straight ones, since bytes beside a clock's change little of it,
    // what is read as other numbers are and lies as numbers mostly do.
    found.sort_by_key(|(crooked, Guess { place, .. })| {
        let thousandths = (crooked * 1000.0).round() as u64;
        let is_other = is_big_endian.is_some_and(|usual| usual != place.is_big_endian);
        (thousandths, is_other, !place.at.is_multiple_of(place.bytes), place.bytes, place.at)
    });
    let mut kept: Vec<Guess> = Vec::new();
    for (_, guess) in found {
        if !kept.iter().any(|other| other.place.overlaps(&guess.place)) {
            kept.push(guess);
        }
    }
    kept
}

/// The length of a tick in nanoseconds, and how far the number is from a straight line; none where it is no clock.
fn clock(place: NumberPlace, heads: &[Head]) -> Option<(f64, f64)> {
    let points: Vec<(f64, u64)> = heads
        .iter()
        .filter_map(|head| Some((head.time?.0.wrapping_sub(heads[0].time?.0) as f64, place.read(head))))
        .collect();
    if points.len() <= LEAST_STEPS {
        return None;
    }
    let (mut gone, mut line) = (0_u64, Vec::with_capacity(points.len()));
    for pair in points.windows(2) {
        let step = pair[1].1.wrapping_sub(pair[0].1) & place.mask();
        if step > place.mask() / LEAST_STEPS_OF_A_CYCLE || pair[1].0 < pair[0].0 {
            return None;
        }
        gone = gone.checked_add(step)?;
        line.push((pair[1].0, gone as f64));
    }
    let &(span, all) = line.last()?;
    if gone < 4 || span <= 0.0 {
        return None;
    }
    let furthest = line.iter().map(|(time, ticks)| (ticks - all * time / span).abs()).fold(0.0, f64::max);
    (furthest <= (CROOKED * all).max(TICKS)).then_some((span / all, furthest / all))
}

/// Runs of bytes that never change, or only from sender to sender.
fn same(senders: &[&[Head]], places: impl Iterator<Item = usize>) -> Vec<Guess> {
    #[derive(PartialEq, Clone, Copy)]
    enum Kind {
        Constant,
        Sender,
    }
    let kind = |at: usize| {
        let own = |heads: &[Head]| heads.iter().all(|head| head.bytes[at] == heads[0].bytes[at]);
        if !senders.iter().filter(|heads| !heads.is_empty()).all(|heads| own(heads)) {
            return None;
        }
        let mut firsts = senders.iter().filter_map(|heads| heads.first()).map(|head| head.bytes[at]);
        let first = firsts.next()?;
        Some(if firsts.all(|other| other == first) { Kind::Constant } else { Kind::Sender })
    };
    let mut runs: Vec<(usize, usize, Kind)> = Vec::new();
    for (at, kind) in places.filter_map(|at| Some((at, kind(at)?))) {
        match runs.last_mut() {
            Some(run) if run.0 + run.1 == at && run.2 == kind => run.1 += 1,
            _ => runs.push((at, 1, kind)),
        }
    }
    let first = senders.iter().copied().flatten().next();
    let guess = |(at, bytes, kind): (usize, usize, Kind)| Guess {
        place: NumberPlace { at, bytes, is_big_endian: true },
        meaning: match kind {
            Kind::Constant => {
                Meaning::Constant(first.map_or_else(Vec::new, |head| head.bytes[at..at + bytes].to_vec()))
            }
            Kind::Sender => Meaning::Sender,
        },
    };
    runs.into_iter().map(guess).collect()
}
