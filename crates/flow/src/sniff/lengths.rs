//! Fields that hold the frame's length.

use super::findings::{Guess, Meaning};
use super::frames::{Row, Table, extent, overlap, read};
use ropewalk_wire::layout::{Counts, Length, Number};

/// What a length counts in.
const UNITS: [u32; 4] = [1, 2, 4, 8];
/// Bytes that a length may leave out.
const MOST_UNCOUNTED: i64 = 256;
/// Different lengths of frames, without which a field that never changes would be one.
const LEAST_LENGTHS: usize = 2;

/// The best guess at each place where a frame's length stands.
pub(super) fn find(table: &Table<'_>) -> Vec<Guess> {
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
