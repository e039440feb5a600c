//! The results of a trial: the overall account, and for each board its account, its numbers and the times between its
//! frames.

use core::fmt;
use core::net::IpAddr;
use core::ops::Range;
use ropewalk_terms::Utc;
use ropewalk_wire::framing::Tick;
use std::collections::BTreeMap;

/// Number of boards with individual accounts; further boards are counted with the last of them.
const MOST_BOARDS: usize = 4096;

/// The result of a trial.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TrialAccount {
    /// Number of datagrams.
    pub datagrams: u64,
    /// Bytes that belong to no frame.
    pub skipped_bytes: u64,
    /// Bytes that the format defines as filler between frames.
    pub filler_bytes: u64,
    /// Bytes at the end that are not a whole frame.
    pub left_over_bytes: u64,
    /// Frames of which only some datagrams arrived.
    pub unfinished_frames: u64,
    /// Losses, by the name of their cause.
    pub faults: BTreeMap<&'static str, u64>,
    /// The account of each board.
    pub boards: Vec<(Board, BoardAccount)>,
    /// Frames of boards that do not belong to the source.
    pub other_frames: u64,
    /// Number of places that contradict the description.
    pub bad_places: u64,
    /// The first bad place.
    pub first_bad: Option<BadPlace>,
}

/// A place that contradicts the description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadPlace {
    /// The key of the rule that failed, such as `frame.length`; `format` for a named format.
    pub key: &'static str,
    /// The error.
    pub what: String,
    /// Position in the input where the frame, or the expected frame, begins.
    pub offset: u64,
    /// The bytes around it.
    pub bytes: Vec<u8>,
    /// Number of these bytes before it.
    pub before: usize,
    /// The range that the rule reads, counted from the beginning of the frame; `None` for the whole frame.
    pub marked: Option<Range<usize>>,
}

impl TrialAccount {
    /// Returns the number of whole frames.
    pub fn frames(&self) -> u64 {
        self.boards.iter().map(|(_, account)| account.frames).sum()
    }

    /// Whether no frame is missing, repeated or out of order.
    pub fn is_complete(&self) -> bool {
        self.unfinished_frames == 0
            && self.boards.iter().all(|(_, account)| account.counted().is_none_or(|numbers| numbers.is_gapless()))
    }

    pub(super) fn board(&mut self, board: Board) -> &mut BoardAccount {
        let index = match self.boards.iter().position(|(known, _)| *known == board) {
            Some(index) => index,
            None if self.boards.len() == MOST_BOARDS => MOST_BOARDS - 1,
            None => {
                self.boards.push((board, BoardAccount::default()));
                self.boards.len() - 1
            }
        };
        &mut self.boards[index].1
    }
}

/// Identifies a board: by its address, and by the number that distinguishes boards.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Board {
    /// The address; `None` for a file.
    pub from: Option<IpAddr>,
    /// The number in its frames; `None` if they have none.
    pub number: Option<u64>,
}

/// The board of a source, if several boards send to one place or into one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnBoard {
    /// The board with one of these numbers.
    Numbers(Vec<u64>),
    /// The board with one of these addresses.
    Addresses(Vec<IpAddr>),
    /// The board that appears after this many others.
    InOrder(usize),
}

impl OwnBoard {
    /// Whether `board` is this board, where `others` others appeared before it.
    pub fn is(&self, board: &Board, others: usize) -> bool {
        match self {
            Self::Numbers(numbers) => board.number.is_some_and(|number| numbers.contains(&number)),
            Self::Addresses(addresses) => board.from.is_some_and(|from| addresses.contains(&from)),
            Self::InOrder(order) => *order == others,
        }
    }
}

impl fmt::Display for Board {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from, self.number) {
            (None, None) => out.write_str("all"),
            (Some(from), None) => from.fmt(out),
            (None, Some(number)) => write!(out, "board {number}"),
            (Some(from), Some(number)) => write!(out, "{from}, board {number}"),
        }
    }
}

/// The account of a board.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BoardAccount {
    /// Whole frames.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Bytes of the shortest frame.
    pub least_bytes: usize,
    /// Bytes of the longest frame.
    pub most_bytes: usize,
    /// The frame numbers.
    pub sequence: Numbers,
    /// The event numbers.
    pub event: Numbers,
    /// The intervals between frames, by the board's clock.
    pub intervals: Intervals,
    /// The same with the bytes of each time in reverse order, if a layout specifies its place.
    pub reversed: Intervals,
    /// Number of events into which a splitter divided the frames.
    pub pieces: u64,
    /// The times of arrival of the first and the last frame.
    pub arrivals: Option<(Utc, Utc)>,
    /// Number of frames with a right checksum.
    pub right_checksums: u64,
    /// Number of frames with a wrong checksum.
    pub wrong_checksums: u64,
}

impl BoardAccount {
    pub(super) fn add(&mut self, length: usize, time: Option<Utc>) {
        self.least_bytes = if self.frames == 0 { length } else { self.least_bytes.min(length) };
        self.most_bytes = self.most_bytes.max(length);
        self.frames += 1;
        self.bytes += length as u64;
        if let Some(time) = time {
            let (first, _) = self.arrivals.unwrap_or((time, time));
            self.arrivals = Some((first, time));
        }
    }

    /// Returns why the times may be those of something else, if they look like it.
    pub fn doubt_of_time(&self) -> Option<String> {
        let Intervals { backward, taken, upside_down, .. } = self.intervals;
        let fits = self.reversed.taken == taken && !self.reversed.is_doubtful();
        let why = if fits { "the other byte order fits" } else { "wrong byte order, width or place?" };
        if self.intervals.goes_backward() {
            Some(format!("time goes backward in {backward} of {taken} frames: {why}"))
        } else {
            let what = "the highest byte of the time changes and the lowest does not";
            self.intervals.is_upside_down().then(|| format!("{what} in {upside_down} of {taken} frames: {why}"))
        }
    }

    /// Returns the numbers that should increase by one each time: those of frames before those of events.
    pub fn counted(&self) -> Option<&Numbers> {
        [&self.sequence, &self.event].into_iter().find(|numbers| numbers.first.is_some())
    }
}

/// How often frames had an interval in this range.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    /// At least this many nanoseconds,
    pub from: u64,
    /// and less than this many.
    pub to: u64,
    /// The number of intervals.
    pub count: u64,
}

/// Least number of bits of a time: in shorter times the highest byte changes often.
const LEAST_BITS_OF_TIME: u8 = 24;
/// Least number of steps backward that contradict a clock: a clock that restarts now and then has fewer.
const LEAST_BACKWARD: u64 = 4;

/// Differences of time between consecutive frames, in steps of 1, 2, 5, 10.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intervals {
    last: Option<u64>,
    /// Counts, by the beginning of the step.
    counts: BTreeMap<u64, (u64, u64)>,
    /// How often the clock went backward.
    pub backward: u64,
    /// Number of times.
    pub taken: u64,
    /// How often the highest byte changed and the lowest one did not.
    upside_down: u64,
}

impl Intervals {
    /// Whether the times are not those of a clock.
    pub const fn is_doubtful(&self) -> bool {
        self.goes_backward() || self.is_upside_down()
    }

    /// Whether the clock repeatedly goes backward.
    const fn goes_backward(&self) -> bool {
        self.backward >= LEAST_BACKWARD && self.backward * 20 >= self.taken
    }

    /// Whether the highest byte changes from frame to frame, as the lowest one of a clock does.
    const fn is_upside_down(&self) -> bool {
        self.taken >= LEAST_DOUBTED && self.upside_down * 2 >= self.taken
    }

    /// Returns the number of steps that are rare for a clock.
    pub(super) const fn odd(&self) -> u64 {
        self.backward + self.upside_down
    }

    /// Returns how many times contradict a clock; 0 if it is one.
    pub const fn doubtful_times(&self) -> u64 {
        match (self.goes_backward(), self.is_upside_down()) {
            (true, _) => self.backward,
            (false, true) => self.upside_down,
            (false, false) => 0,
        }
    }

    /// Adds the next time, of a clock of `bits` bits.
    pub(super) fn add(&mut self, ticks: u64, bits: u8, tick: Tick) {
        let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
        self.taken += 1;
        let Some(last) = self.last.replace(ticks) else { return };
        let changed = (ticks ^ last) & mask;
        let has_highest = changed >> bits.clamp(8, 64).saturating_sub(8) != 0;
        self.upside_down += u64::from(bits >= LEAST_BITS_OF_TIME && has_highest && changed & 0xFF == 0);
        let ahead = ticks.wrapping_sub(last) & mask;
        if ahead > mask / 2 {
            self.backward += 1;
            return;
        }
        let nanoseconds = tick.nanoseconds_of(ahead);
        let (from, to) = step(nanoseconds);
        self.counts.entry(from).or_insert((to, 0)).1 += 1;
    }

    /// Returns the steps with at least one interval, in order.
    pub fn counts(&self) -> impl Iterator<Item = Interval> {
        self.counts.iter().map(|(&from, &(to, count))| Interval { from, to, count })
    }
}

/// Returns the step that contains a time.
fn step(nanoseconds: u64) -> (u64, u64) {
    if nanoseconds == 0 {
        return (0, 1);
    }
    let decade = 10_u64.pow(nanoseconds.ilog10());
    let ends = [1, 2, 5, 10].map(|factor| decade.saturating_mul(factor));
    let place = ends.iter().rposition(|end| *end <= nanoseconds).unwrap_or(0).min(2);
    (ends[place], ends[place + 1])
}

/// The most events that are expected in a frame.
const MOST_EVENTS: u64 = 64;

/// Number of numbers that are required before they are doubted.
const LEAST_DOUBTED: u64 = 8;

/// A number that lies further back than this has restarted. Any number that goes back when none is missing has
/// restarted, too.
const MOST_LATE: u64 = 64;

/// Statistics of numbers that should be consecutive.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// The first number.
    pub first: Option<u64>,
    /// The furthest number.
    pub last: Option<u64>,
    /// How often numbers were skipped.
    pub gaps: u64,
    /// Numbers that were skipped and did not come later.
    pub missing: u64,
    /// How often the counter wrapped.
    pub wraps: u64,
    /// Numbers that were the same as the previous one.
    pub duplicates: u64,
    /// Numbers that came late.
    pub out_of_order: u64,
    /// How often the counter restarted.
    pub restarts: u64,
    /// All numbers,
    pub taken: u64,
    /// and those that were the same as the previous one, even if that is allowed.
    pub repeats: u64,
    /// The expected step from `last` to the next number.
    step: u64,
    /// The step from the first number to the second, and how often it was repeated.
    usual: u64,
    usual_times: u64,
}

impl Numbers {
    /// Whether each number was one more than the previous one.
    pub const fn is_gapless(&self) -> bool {
        self.missing + self.gaps + self.duplicates + self.out_of_order + self.restarts == 0
    }

    /// Adds a number that need not be consecutive; nothing is wrong with it.
    pub fn see(&mut self, number: u64) -> Option<String> {
        self.count(number);
        self.first.get_or_insert(number);
        self.last = Some(number);
        None
    }

    fn count(&mut self, number: u64) {
        self.taken += 1;
        self.repeats += u64::from(self.last == Some(number));
    }

    /// Returns why these may be the numbers of something else, if they look like it.
    pub fn doubt(&self) -> Option<String> {
        let Self { taken, repeats, gaps, usual, .. } = *self;
        let is_steady = (2..=MOST_EVENTS).contains(&usual) && self.usual_times * 10 + 10 >= taken * 9;
        // One frame in ten: repeated or lost frames are rarer.
        let is_often = |count: u64| taken >= LEAST_DOUBTED && count * 10 >= taken;
        if is_often(repeats) && repeats + 1 == taken {
            Some(format!("it is {} in all frames: it does not count events", self.first.unwrap_or(0)))
        } else if is_often(repeats) {
            let what = "it may count seconds, or an event has several frames (`gather`)";
            Some(format!("{repeats} of {taken} frames repeat the number before: {what}"))
        } else if taken >= LEAST_DOUBTED && gaps * 2 >= taken && is_steady {
            let what = format!("perhaps {usual} events in each frame, see docs/splitters.md");
            Some(format!("the number goes up by {usual} per frame: {what}"))
        } else if taken >= LEAST_DOUBTED && gaps * 2 >= taken {
            Some(format!("{gaps} of {taken} frames skip numbers: it may be a time, or bits above the number"))
        } else {
            None
        }
    }

    /// Adds the next number, of `bits` bits. Returns its error. The number after it should be `step` more.
    pub fn add(&mut self, number: u64, bits: u8, step: u64) -> Option<String> {
        let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
        self.count(number);
        self.first.get_or_insert(number);
        let Some(last) = self.last else {
            (self.last, self.step) = (Some(number), step);
            return None;
        };
        let (ahead, behind) = (number.wrapping_sub(last) & mask, last.wrapping_sub(number) & mask);
        let wrong = if ahead == 0 {
            self.duplicates += 1;
            return Some(format!("{number} comes again"));
        } else if behind <= MOST_LATE.min(mask / 4) && self.missing > 0 {
            self.out_of_order += 1;
            self.missing = self.missing.saturating_sub(1);
            return Some(format!("{number} comes after {last}"));
        } else if ahead >= self.step && ahead <= mask / 2 {
            self.usual = if self.usual == 0 { ahead } else { self.usual };
            self.usual_times += u64::from(ahead == self.usual);
            let missing = ahead - self.step;
            self.wraps += u64::from(number < last);
            self.missing += missing;
            self.gaps += u64::from(missing > 0);
            (missing > 0).then(|| format!("{number} comes after {last}: {missing} missing"))
        } else {
            self.restarts += 1;
            Some(format!("{number} comes after {last}: the counter began anew"))
        };
        (self.last, self.step) = (Some(number), step);
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(numbers: impl IntoIterator<Item = u64>, bits: u8, step: u64) -> [u64; 4] {
        let mut counter = Numbers::default();
        for number in numbers {
            counter.add(number, bits, step);
        }
        [counter.missing, counter.duplicates, counter.out_of_order, counter.restarts]
    }

    #[test]
    fn a_number_that_goes_on_over_its_end_misses_nothing() {
        assert_eq!(counted((250..520).map(|number| number % 256), 8, 1), [0; 4]);
        assert_eq!(counted([u64::MAX - 1, u64::MAX, 0, 1], 64, 1), [0; 4]);
        assert_eq!(counted((0..40).map(|number| 4 * number % 64), 6, 4), [0; 4]);
    }

    #[test]
    fn missing_repeated_late_and_restarted_numbers_are_distinguished() {
        assert_eq!(counted([1, 2, 6, 7], 32, 1), [3, 0, 0, 0]);
        assert_eq!(counted([1, 2, 2, 3], 32, 1), [0, 1, 0, 0]);
        assert_eq!(counted([1, 3, 2, 4], 32, 1), [0, 0, 1, 0]);
        assert_eq!(counted([1000, 1001, 0, 1, 2], 32, 1), [0, 0, 0, 1]);
        assert_eq!(counted([39, 0, 1, 2], 32, 1), [0, 0, 0, 1]);
        assert_eq!(counted([0, 4, 12], 32, 4), [4, 0, 0, 0]);
    }

    #[test]
    fn numbers_that_are_doubled_or_rarely_change_are_doubted() {
        let doubt = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut counter = Numbers::default();
            numbers.for_each(|number| _ = counter.add(number, 32, 1));
            counter.doubt().unwrap_or_default()
        };
        assert_eq!(doubt(&mut (0..100)), "");
        assert_eq!(doubt(&mut (0..100).filter(|number| number % 20 != 7)), "", "some were lost");
        assert!(doubt(&mut (0..100).map(|number| number / 2)).contains("50 of 100 frames repeat"));
        assert!(doubt(&mut (0..100).map(|number| number / 40)).contains("97 of 100 frames repeat"));
        assert!(doubt(&mut (0..100).map(|_| 7)).contains("it is 7 in all frames"));
        let steady = doubt(&mut (0..100).map(|number| 2 * number));
        assert!(steady.contains("goes up by 2 per frame: perhaps 2 events in each frame"), "{steady}");
        let steady = doubt(&mut (0..100).filter(|number| number % 20 != 7).map(|number| 10 * number));
        assert!(steady.contains("goes up by 10 per frame"), "{steady}");
        let uneven = doubt(&mut (0..100).map(|number| number * number));
        assert!(uneven.contains("98 of 100 frames skip numbers"), "{uneven}");
    }
}
