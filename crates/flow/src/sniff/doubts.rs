//! What cannot be known of the frames that were seen: where another reading fits as well, or too little was seen.

use super::draft::event_number;
use super::findings::{Guess, Meaning, Named};
use super::frames::{Row, Table, ahead, bits, extent, overlap, read};
use core::fmt;
use ropewalk_wire::layout::{Frame, Number, Size};

/// Frames, and pairs of them, that must be there for certainty.
const LEAST_FRAMES: usize = 16;
/// A counter that began anew and has no more bits may count parts of an event.
const NARROW: u32 = 8;

/// Why a draft may be wrong.
#[derive(Clone, PartialEq, Debug)]
pub enum Doubt {
    /// So few frames were seen.
    Few(usize),
    /// This way of finding frames fits almost as well, and finds others.
    Frames(Frame),
    /// All frames are of one size: what is taken for their length may be something else.
    OneSize,
    /// Frames begin with nothing that could be looked for.
    NoMark,
    /// The stream does not begin with the word that comes again and again.
    Within,
    /// These two may be the event's number.
    Several(Number, Number),
    /// It is the same in several frames: it may count seconds or spills.
    Slow(Number),
    /// This one grows, too, but not by one.
    Grows(Number, Number),
    /// Only its lowest byte was seen to change: the order of its bytes may be the other one.
    ByteOrder(Number),
    /// Its upper bits always were this: they may be something else.
    UpperBits(Number, u64),
    /// Its lower bits never changed: they may be a part of it.
    LowerBits(Number),
    /// It begins anew after so few: it may count parts of an event.
    Narrow(Number, u64),
    /// It went back.
    WentBack(Number),
}

impl fmt::Display for Doubt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Few(frames) => write!(out, "{frames} frames are too few to tell"),
            Self::Frames(other) => {
                let way = match other {
                    Frame::Length(length) => format!("{} as the length", Named(&length.number)),
                    _ => "another way".to_owned(),
                };
                write!(out, "{way} finds other frames, and fits almost as well")
            }
            Self::OneSize => write!(out, "all frames are of one size: the length may stand elsewhere, or nowhere"),
            Self::NoMark => write!(out, "nothing marks where a frame begins"),
            Self::Within => write!(out, "the first bytes are not the word: frames may begin before it or behind it"),
            Self::Several(one, other) => write!(out, "{} and {} both count events", Named(one), Named(other)),
            Self::Slow(number) => {
                write!(out, "{} is the same in several frames: it may count seconds or spills", Named(number))
            }
            Self::Grows(number, other) => {
                write!(out, "{} grows, too: it may be the event's number, and {} not", Named(other), Named(number))
            }
            Self::ByteOrder(number) => {
                write!(out, "only the lowest byte of {} changed: its bytes may be in the other order", Named(number))
            }
            Self::UpperBits(number, value) => {
                write!(out, "the upper bits of {} always were {value:#x}: they may be something else", Named(number))
            }
            Self::LowerBits(number) => write!(out, "bits below {} never changed: it may reach there", Named(number)),
            Self::Narrow(number, count) => {
                write!(out, "{} begins anew after {count}: it may count parts of an event", Named(number))
            }
            Self::WentBack(number) => write!(out, "{} went back", Named(number)),
        }
    }
}

/// What is doubtful in the draft of these frames.
pub(super) fn find(
    table: &Table<'_>,
    guesses: &[Guess],
    framing: Option<&Frame>,
    rival: Option<&Frame>,
    begins_within: bool,
) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    if (1..LEAST_FRAMES).contains(&table.len()) {
        doubts.push(Doubt::Few(table.len()));
    }
    doubts.extend(rival.cloned().map(Doubt::Frames));
    let is_one_size = || table.rows().zip(table.rows().skip(1)).all(|(one, other)| one.length == other.length);
    match framing {
        Some(Frame::Length(_) | Frame::Sync { size: Size::Length(_), .. }) if is_one_size() => {
            doubts.push(Doubt::OneSize);
        }
        Some(Frame::Fixed { .. }) => doubts.push(Doubt::NoMark),
        Some(Frame::Sync { .. }) if begins_within => doubts.push(Doubt::Within),
        _ => {}
    }
    if let Some(number) = event_number(guesses) {
        doubts.extend(of_others(table, guesses, &number));
        doubts.extend(of_number(table, &number));
    }
    doubts
}

/// Other numbers that may be the event's.
fn of_others(table: &Table<'_>, guesses: &[Guess], number: &Number) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let is_same = |other: &Number| table.rows().all(|row| read(row, other) == read(row, number));
    let shared = |guess: &Guess| match &guess.meaning {
        Meaning::FrameCounter { is_shared, .. } | Meaning::SlowCounter { is_shared, .. } => Some(*is_shared),
        _ => None,
    };
    let is_chosen_shared = guesses.iter().any(|guess| guess.number() == Some(number) && shared(guess) == Some(true));
    for guess in guesses {
        // What all boards count together is the event's number before what each counts by itself.
        let Some(other) = guess.number().filter(|_| shared(guess).is_some_and(|is| is || !is_chosen_shared)) else {
            continue;
        };
        if other != number && !is_same(other) {
            doubts.push(Doubt::Several(*number, *other));
        } else if other == number && matches!(guess.meaning, Meaning::SlowCounter { .. }) {
            doubts.push(Doubt::Slow(*number));
        }
    }
    let is_free = |other: &Number| guesses.iter().filter_map(Guess::number).all(|known| !overlap(known, other));
    let few_bits = |number: Number| {
        (0..8)
            .flat_map(move |shift| [0xFF, 0xF].map(|mask| masked(number, mask << shift)))
            .filter(|number| bits(number) > 3)
    };
    let mut windows = table.places(1).chain(table.places(2)).filter(is_free).flat_map(few_bits);
    let growing = windows.find(|other| grows(table, other));
    doubts.extend(growing.map(|other| Doubt::Grows(*number, other)));
    doubts
}

/// These bits of a number, as far as it has them.
fn masked(number: Number, mask: u64) -> Number {
    number.masked(mask & (u64::MAX >> (64 - 8 * u32::from(number.bytes))))
}

/// Whether the number of few bits goes up in every frame, by less than three eighths of its range, and not always by as much.
fn grows(table: &Table<'_>, number: &Number) -> bool {
    let (mut pairs, mut first, mut is_uneven) = (0, None, false);
    for (from, to) in table.pairs() {
        let step = ahead(number, from, to);
        if step == 0 || step > 3 << (bits(number) - 3) {
            return false;
        }
        is_uneven |= step != *first.get_or_insert(step);
        pairs += 1;
    }
    pairs >= 2 * LEAST_FRAMES && is_uneven
}

/// What is doubtful in the number itself.
fn of_number(table: &Table<'_>, number: &Number) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let first = table.peers.iter().map(|rows| &rows[0]);
    let value = |row: &Row<'_>| read(row, number);
    // Bits that changed within a peer's frames.
    let of_peers = first.zip(&table.peers).map(|(first, rows)| (value(first), rows));
    let changed = of_peers
        .flat_map(|(first, rows)| rows.iter().map(move |row| value(row) ^ first))
        .fold(0, |all, bits| all | bits);
    let (moved, width) = (64 - changed.leading_zeros(), bits(number));
    let wide = widened(table, number);
    let above = table.rows().next().map_or(0, |row| read(row, &wide).checked_shr(moved).unwrap_or(0));
    if above != 0 && (moved < width || wide != *number) {
        doubts.push(Doubt::UpperBits(*number, above));
    }
    if moved <= 8 && width > 8 && may_be_reversed(table, number) {
        doubts.push(Doubt::ByteOrder(*number));
    }
    if number.mask.is_some_and(|mask| mask & 1 == 0 && !is_lively_below(table, number, mask.trailing_zeros())) {
        doubts.push(Doubt::LowerBits(*number));
    }
    let back = |(from, to): &(&Row<'_>, &Row<'_>)| ahead(number, from, to) > u64::MAX >> (65 - width);
    let began_anew = table.pairs().any(|(from, to)| value(to) == 0 && value(from) == u64::MAX >> (64 - width));
    if width <= NARROW && began_anew {
        doubts.push(Doubt::Narrow(*number, 1 << width));
    } else if table.pairs().any(|pair| back(&pair)) {
        doubts.push(Doubt::WentBack(*number));
    }
    doubts
}

/// The number with the bytes above it that never change, up to four in all; the same where it does not end with a byte.
fn widened(table: &Table<'_>, number: &Number) -> Number {
    let mut wide = *number;
    while wide.bytes < 4 && wide.mask.is_none() {
        let next = if wide.is_big_endian { wide.at - 1 } else { wide.at + i32::from(wide.bytes) };
        let is_steady = usize::try_from(next).is_ok_and(|next| next < table.reach && table.liveliness(next) == 1);
        if !is_steady {
            return if wide.bytes == 3 { *number } else { wide };
        }
        wide = Number { at: wide.at.min(next), bytes: wide.bytes + 1, ..wide };
    }
    wide
}

/// Whether the bytes on the other side of a number's lowest one could be its upper ones.
fn may_be_reversed(table: &Table<'_>, number: &Number) -> bool {
    let extent = extent(number);
    let next = if number.is_big_endian { Some(extent.end) } else { extent.start.checked_sub(1) };
    let Some(next) = next.filter(|next| *next < table.reach) else { return false };
    let byte = Number::little_endian(next as i32, 1);
    let first = table.rows().next().map_or(0, |row| read(row, &byte));
    // Its lowest bits would move first; a byte that never changes and is not 0 is something else.
    table.rows().all(|row| (read(row, &byte) ^ first) & 3 == 0) && (first == 0 || table.liveliness(next) > 1)
}

/// Whether the bits of a number's bytes below its lowest `count` ones change.
fn is_lively_below(table: &Table<'_>, number: &Number, count: u32) -> bool {
    let below = number.masked((1 << count) - 1);
    let mut values = table.rows().map(|row| read(row, &below));
    let first = values.next();
    values.any(|value| Some(value) != first)
}
