//! Numbers that increase by more than one per frame, such as that of the first of several events in each frame.

use super::fields::{Growth, field, is_slice, taken};
use super::findings::{Guess, Meaning};
use super::frames::{Row, Table, ahead, extent, overlap, read};
use ropewalk_wire::layout::Number;

/// Number of pairs of frames that are required for any result.
const LEAST_PAIRS: usize = 16;
/// The most events that are expected in a frame; larger steps are ticks of a clock.
const MOST_STEP: u64 = 64;
/// Number of values of the lowest byte that must be seen.
const LEAST_VALUES: usize = 4;

/// Finds the numbers that increase by the same step, which is not one, in nine of ten frames, and by a multiple of it
/// in the rest; `known` are fields with another meaning. At most one is returned: further ones are its copies.
pub(super) fn find_steps(table: &Table<'_>, known: &[Guess]) -> Vec<Guess> {
    let pairs: Vec<(&Row<'_>, &Row<'_>)> = table.pairs().collect();
    let is_counted = known.iter().any(|guess| matches!(guess.meaning, Meaning::FrameCounter { .. }));
    if pairs.len() < LEAST_PAIRS || is_counted {
        return Vec::new();
    }
    let is_free = |number: &Number| known.iter().flat_map(taken).all(|other| !overlap(other, number));
    let found = |bytes: u8| {
        let places = table.places(bytes).filter(&is_free);
        let whole = places.filter(|number| begins_and_ends(table, number));
        let steps = whole.filter_map(|number| step(&pairs, &number).map(|(by, holds)| (number, by, holds)));
        let own = steps.filter(|(number, ..)| !is_slice(&pairs, number, table.reach));
        // Zeros above the number are part of it: the number at the most usual place is taken.
        own.min_by_key(|(number, ..)| number.at % i32::from(bytes))
    };
    let first = [4, 2, 8, 3, 6].into_iter().find_map(found);
    let of = pairs.len() as u64;
    first.map(|(number, by, holds)| Guess { meaning: Meaning::Steps { number, by }, holds, of }).into_iter().collect()
}

/// Whether the lowest byte changes the most, and the upper bytes change or have zeros in front.
fn begins_and_ends(table: &Table<'_>, number: &Number) -> bool {
    let extent = extent(number);
    let (lowest, highest) =
        if number.is_big_endian { (extent.end - 1, extent.start) } else { (extent.start, extent.end - 1) };
    let lowest_values = table.liveliness(lowest);
    let is_zero = table.rows().all(|row| row.head[highest] == 0);
    lowest_values >= LEAST_VALUES
        && extent.clone().all(|at| table.liveliness(at) <= lowest_values)
        && (is_zero || table.liveliness(highest) > 1)
}

/// Returns the step of a number, and how often it occurs.
fn step(pairs: &[(&Row<'_>, &Row<'_>)], number: &Number) -> Option<(u64, u64)> {
    let usual = {
        let mut steps: Vec<u64> = pairs.iter().take(64).map(|(from, to)| ahead(number, from, to)).collect();
        steps.sort_unstable();
        steps[steps.len() / 2]
    };
    if !(2..=MOST_STEP).contains(&usual) {
        return None;
    }
    let steps = || pairs.iter().map(|(from, to)| ahead(number, from, to));
    let holds = steps().filter(|step| *step == usual).count();
    let multiples = steps().filter(|step| step.is_multiple_of(usual) && *step <= usual * MOST_STEP).count();
    (holds * 10 >= pairs.len() * 9 && multiples * 50 >= pairs.len() * 49).then_some((usual, holds as u64))
}

/// Adds the lowest bits to a counter in which they never change: it increases by more than one per frame.
pub(super) fn unmask(table: &Table<'_>, guesses: &mut [Guess]) {
    for guess in guesses {
        let Meaning::FrameCounter { number, .. } = &guess.meaning else { continue };
        let Some(mask) = number.mask.filter(|mask| mask & 1 == 0) else { continue };
        let below = (1_u64 << mask.trailing_zeros()) - 1;
        let (low, by) = (number.masked(below), below + 1);
        let mut values = table.rows().map(|row| read(row, &low));
        let first = values.next();
        if by > MOST_STEP || values.any(|value| Some(value) != first) {
            continue;
        }
        // As wide as a counter of frames would be.
        let window = Number { mask: None, ..*number };
        let first = table.rows().next().map_or(0, |row| read(row, &window));
        let changed = table.rows().fold(0, |changed, row| changed | (read(row, &window) ^ first)) & (mask | below);
        let growth = Growth { bits: (mask | below).count_ones(), moved: 64 - changed.leading_zeros() };
        let number = field(&window, 0, &growth, first);
        guess.meaning = Meaning::Steps { number, by };
    }
}
