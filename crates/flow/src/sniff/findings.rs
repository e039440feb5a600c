//! The findings as text, the layout drafted from them, and its doubts.

use super::PeerAccount;
use super::clocks::{FINEST, round_tick};
use super::fields::{byte_order, is_slice, orders, slow, taken};
use super::frames::{Row, Table, ahead, bits, extent, overlap, read};
use core::fmt;
use core::ops::Range;
use ropewalk_wire::layout::{
    Checksum, Clock, Counts, Frame, Layout, Length, MOST_FRAME_BYTES, Number, Pattern, Plan, Size,
};

/// All findings.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The groups, by destination.
    pub groups: Vec<Group>,
    /// Packets of peers beyond the limit, which were not analysed.
    pub unheard: u64,
}

/// Peers with the same destination.
#[derive(Clone, Debug)]
pub struct Group {
    /// The peers of the group.
    pub peers: Vec<PeerAccount>,
    /// Number of frames analysed.
    pub frames: u64,
    /// Bytes of the shortest of these frames.
    pub least_frame: usize,
    /// Bytes of the longest of these frames.
    pub most_frame: usize,
    /// How the frames of a stream are found; `None` for datagrams, and if no framing was found.
    pub framing: Option<Frame>,
    /// The meanings of their bytes.
    pub guesses: Vec<Guess>,
    /// Reasons why the draft may be wrong. Without any it is right for all frames that were analysed.
    pub doubts: Vec<Doubt>,
    /// Properties that were searched for and not found.
    pub notes: Vec<Note>,
    /// Bytes of streams that belong to no frame; for a file, those after the last frame.
    pub unframed_bytes: u64,
}

/// The meaning of some bytes, and the evidence for it.
#[derive(Clone, PartialEq, Debug)]
pub struct Guess {
    /// The meaning.
    pub meaning: Meaning,
    /// The number of frames, or of pairs of consecutive frames, in which it holds,
    pub holds: u64,
    /// out of this number.
    pub of: u64,
}

/// A meaning that bytes may have.
#[derive(Clone, PartialEq, Debug)]
pub enum Meaning {
    /// The length of the frame.
    Length(Length),
    /// A counter that increases by one in each frame of a peer.
    FrameCounter {
        /// The field.
        number: Number,
        /// Whether several peers have the same values, so that it may be the event number.
        is_shared: bool,
    },
    /// A number that increases by the same step, which is not one, in each frame of a peer.
    Steps {
        /// The field.
        number: Number,
        /// The step.
        by: u64,
    },
    /// A counter that increases by one now and then, and otherwise stays the same.
    SlowCounter {
        /// The field.
        number: Number,
        /// Whether several peers have the same values.
        is_shared: bool,
        /// Average number of frames with the same value.
        frames_each: f64,
    },
    /// A number that advances with time.
    Clock {
        /// The field.
        number: Number,
        /// The length of a tick, in nanoseconds.
        tick: f64,
        /// The standard deviation of the tick, in nanoseconds.
        error: f64,
        /// The field that increases by one whenever the clock restarts: its wraps, or whole seconds.
        wraps: Option<Wraps>,
        /// Whether several peers have the same values, as frames of one event do.
        is_shared: bool,
    },
    /// The value that another number had in the previous frame.
    Before {
        /// The field.
        number: Number,
        /// The other number.
        of: Number,
    },
    /// A checksum; its offset is counted from the frame's end.
    Checksum(Checksum),
    /// Constant bytes.
    Constant {
        /// The offset.
        at: usize,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A number that is constant in the frames of a peer, and different for each peer.
    Peer {
        /// The field.
        number: Number,
        /// Its values, in the order of the peers.
        values: Vec<u64>,
    },
}

/// A field that increases by one whenever a clock restarts.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Wraps {
    /// The field.
    pub number: Number,
    /// The period, in nanoseconds.
    pub period: f64,
}

impl Wraps {
    /// Whether the field counts seconds.
    pub fn are_seconds(&self) -> bool {
        (self.period / 1e9 - 1.0).abs() < 0.02
    }
}

impl Guess {
    /// Returns the share of frames in which it holds, 0 to 1.
    pub fn score(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.holds as f64 / self.of as f64 }
    }

    /// Returns the number that it describes; `None` for constant bytes and checksums.
    pub const fn number(&self) -> Option<&Number> {
        match &self.meaning {
            Meaning::Length(length) => Some(&length.number),
            Meaning::FrameCounter { number, .. }
            | Meaning::Steps { number, .. }
            | Meaning::SlowCounter { number, .. }
            | Meaning::Clock { number, .. }
            | Meaning::Before { number, .. }
            | Meaning::Peer { number, .. } => Some(number),
            Meaning::Constant { .. } | Meaning::Checksum(_) => None,
        }
    }
}

/// Returns the type of a number in a configuration, such as `u8` or `u32be`.
fn type_of(number: &Number) -> String {
    let order = match (number.bytes, number.is_big_endian) {
        (1, _) => "",
        (_, true) => "be",
        (_, false) => "le",
    };
    format!("u{}{order}", 8 * u32::from(number.bytes))
}

/// A number in the notation of a configuration, such as `u32be at 26`, with its mask.
struct Named<'a>(pub(super) &'a Number);

impl fmt::Display for Named<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Number { at, mask, .. } = *self.0;
        write!(out, "{} at {at}", type_of(self.0))?;
        mask.map_or(Ok(()), |mask| write!(out, " (mask {mask:#x})"))
    }
}

impl fmt::Display for Guess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (holds, of) = (self.holds, self.of);
        let shared = |is_shared: bool| if is_shared { ", and peers have the same numbers" } else { "" };
        match &self.meaning {
            Meaning::Length(length) => {
                write!(out, "{} is the length of {}", Named(&length.number), counted(length))?;
                write!(out, ": {holds} of {of} frames")
            }
            Meaning::Checksum(Checksum { kind, number, from, .. }) => {
                let (name, number) = (kind.name(), Named(number));
                write!(out, "{number} is the {name} of what is before it, from byte {from} on: {holds} of {of} frames")
            }
            Meaning::FrameCounter { number, is_shared } => {
                let shared = shared(*is_shared);
                write!(out, "{} counts up by one per frame: {holds} of {of} times{shared}", Named(number))
            }
            Meaning::Steps { number, by } => {
                write!(out, "{} counts up by {by} per frame: {holds} of {of} times", Named(number))
            }
            Meaning::SlowCounter { number, is_shared, frames_each } => {
                write!(out, "{} counts up by one after {frames_each:.1} frames on average", Named(number))?;
                write!(out, ": {holds} of {of} times{}", shared(*is_shared))
            }
            Meaning::Clock { number, tick, error, wraps, is_shared } => {
                write!(out, "{} is a clock with a tick of {} ns", Named(number), Figure(*tick, *error))?;
                write!(out, ": {holds} of {of} times{}", shared(*is_shared))?;
                let Some(wraps) = wraps else { return Ok(()) };
                let what = if wraps.are_seconds() { "whole seconds" } else { "how often it began anew" };
                write!(out, "; {} counts {what} beside it", Named(&wraps.number))
            }
            Meaning::Before { number, of: other } => {
                write!(out, "{} is what {} was in the frame before: {holds} of {of} times", Named(number), Named(other))
            }
            Meaning::Constant { at, bytes } => {
                let text: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
                match bytes.len() {
                    1 => write!(out, "byte {at} is always{text}")?,
                    count => write!(out, "bytes {at} to {} are always{text}", at + count - 1)?,
                }
                if bytes.len() > 2 && bytes.iter().all(u8::is_ascii_graphic) {
                    write!(out, " (\"{}\")", String::from_utf8_lossy(bytes))?;
                }
                write!(out, ": {of} frames")
            }
            Meaning::Peer { number, values } => {
                let values: Vec<String> = values.iter().map(|value| format!("{value:#x}")).collect();
                write!(out, "{} tells peers apart: {}", Named(number), values.join(", "))
            }
        }
    }
}

/// Describes the unit of a length.
fn counted(length: &Length) -> String {
    let unit = match length.unit {
        1 => String::new(),
        unit => format!(" in units of {unit} bytes"),
    };
    let what = match length.counts {
        Counts::Frame => "the frame".to_owned(),
        Counts::AfterField => "what follows it".to_owned(),
        Counts::Payload { header } => format!("what follows the first {header} bytes"),
    };
    let add = match length.add {
        0 => String::new(),
        add => format!(", {add:+} bytes"),
    };
    format!("{what}{unit}{add}")
}

/// A value with as many digits as its error allows: `11.3569 +- 0.0003`.
struct Figure(f64, f64);

impl fmt::Display for Figure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(value, error) = *self;
        let digits = if error > 0.0 { (1.0 - error.log10()).ceil().clamp(0.0, 9.0) as usize } else { 9 };
        write!(out, "{value:.digits$} +- {error:.digits$}")
    }
}

/// The longest datagram that UDP can carry, in bytes.
const MOST_DATAGRAM: u32 = 65_507;
/// How many times longer than the longest frame seen a frame may be.
const MARGIN: usize = 8;
/// The size in bytes up to which a stream's frames are expected to grow; at least `LEAST_MARGIN` times the longest one.
const MOST_STREAM_FRAME: usize = 1 << 20;
const LEAST_MARGIN: usize = 2;

/// Drafts a layout from the findings for this group. Uncertain findings are left out, and the rest compiles to a plan.
/// Returns `None` if no frames were found.
pub fn draft(group: &Group) -> Option<Layout> {
    let is_stream = group.peers.iter().any(|account| account.peer.transport.is_stream());
    let frame = if is_stream { group.framing.clone()? } else { Frame::Datagram };
    let max = if is_stream {
        let most = MOST_STREAM_FRAME.max(LEAST_MARGIN * group.most_frame);
        u32::try_from((MARGIN * group.most_frame).next_power_of_two().min(most)).unwrap_or(MOST_FRAME_BYTES)
    } else {
        MOST_DATAGRAM
    };
    let mut layout = Layout::new(frame, max.max(group.most_frame as u32));
    Plan::compile(&layout).ok()?;
    add(&mut layout, |layout| layout.matches = pattern(group));
    add(&mut layout, |layout| layout.time = clock(group));
    let counter = frame_counter(&group.guesses);
    add(&mut layout, |layout| layout.sequence = counter.map(|(number, _)| number));
    // A frame counter is also the event number if there is no other.
    add(&mut layout, |layout| layout.event = event_number(&group.guesses).into_iter().collect());
    let checksum = group.guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::Checksum(checksum) => Some(checksum),
        _ => None,
    });
    add(&mut layout, |layout| layout.checksum = checksum);
    exclude_checksum(&mut layout);
    Some(layout)
}

/// Counts a checksum at the frame's end as added bytes and not as a part of the header, if the length excludes it.
fn exclude_checksum(layout: &mut Layout) {
    let Some(bytes) = layout.checksum.and_then(|checksum| u32::try_from(-checksum.number.at).ok()) else { return };
    let fields = layout.event.iter().chain(&layout.sequence);
    let fields = fields.chain(layout.time.iter().flat_map(|clock| clock.ticks.iter().chain(&clock.seconds)));
    let behind = |number: &Number| u32::try_from(number.at).map_or(0, |at| at + u32::from(number.bytes));
    let end = fields.map(behind).max().unwrap_or(0);
    if let Frame::Length(length) = &mut layout.frame
        && let Counts::Payload { header } = &mut length.counts
        && header.checked_sub(bytes).is_some_and(|header| header >= end.max(behind(&length.number)))
    {
        *header -= bytes;
        length.add += bytes as i32;
    }
}

/// Changes a layout if it still compiles afterwards.
fn add(layout: &mut Layout, change: impl FnOnce(&mut Layout)) {
    let mut changed = layout.clone();
    change(&mut changed);
    if Plan::compile(&changed).is_ok() {
        *layout = changed;
    }
}

/// Returns the first constant bytes that are too long to be an accident and that no other field overlaps.
fn pattern(group: &Group) -> Option<Pattern> {
    let starts = match &group.framing {
        Some(Frame::Sync { word, .. }) => word.len(),
        _ => 0,
    };
    group.guesses.iter().find_map(|guess| match &guess.meaning {
        Meaning::Constant { at, bytes } if *at >= starts => {
            let kept = steady(*at..*at + bytes.len(), &group.guesses);
            let bytes = bytes.get(kept.start - at..kept.end - at).filter(|bytes| bytes.len() > 1)?;
            Some(Pattern { at: kept.start as i32, bytes: bytes.to_vec(), mask: None })
        }
        _ => None,
    })
}

/// The widest expected counter and the widest expected clock, in bytes.
const WIDEST_COUNTER: u8 = 4;
const WIDEST_CLOCK: u8 = 8;

/// Returns the constant bytes without possible upper bytes of a counter or clock. Those change when it carries, after
/// minutes or hours.
fn steady(mut constant: Range<usize>, guesses: &[Guess]) -> Range<usize> {
    let numbers = guesses.iter().filter_map(|guess| match &guess.meaning {
        Meaning::FrameCounter { number, .. } | Meaning::Steps { number, .. } | Meaning::SlowCounter { number, .. } => {
            Some((number, WIDEST_COUNTER))
        }
        Meaning::Clock { number, .. } => Some((number, WIDEST_CLOCK)),
        _ => None,
    });
    for (number, widest) in numbers {
        let upper = usize::from(widest.saturating_sub(number.bytes));
        if number.is_big_endian && extent(number).start == constant.end {
            constant.end = constant.end.saturating_sub(upper).max(constant.start);
        } else if !number.is_big_endian && extent(number).end == constant.start {
            constant.start = (constant.start + upper).min(constant.end);
        }
    }
    constant
}

fn clock(group: &Group) -> Option<Clock> {
    let best = group.guesses.iter().find_map(|guess| match &guess.meaning {
        Meaning::Clock { number, tick, error, wraps, .. } => Some((*number, round_tick(*tick, *error).0, *wraps)),
        _ => None,
    });
    let (number, tick, wraps) = best?;
    let seconds = wraps.filter(Wraps::are_seconds).map(|wraps| wraps.number);
    let tick_attoseconds = (tick * 1e9).round() as u64;
    Some(Clock { ticks: vec![number], tick_attoseconds, seconds })
}

/// Returns the frame counter, by preference one shared by all peers, and whether it is shared.
fn frame_counter(guesses: &[Guess]) -> Option<(Number, bool)> {
    let counters = guesses.iter().filter_map(|guess| match &guess.meaning {
        Meaning::FrameCounter { number, is_shared } => Some((*number, *is_shared, guess.holds)),
        _ => None,
    });
    // Whole bytes rank before bits, evidence in more frames before evidence in fewer, wide counters before narrow ones.
    let rank = |&(number, is_shared, holds): &(Number, bool, u64)| {
        (is_shared, number.mask.is_none(), holds, number.bytes, -number.at)
    };
    counters.max_by_key(rank).map(|(number, is_shared, _)| (number, is_shared))
}

/// Returns the event number: the frame counter, by preference one shared by all peers, or else a number that stays the
/// same in several frames.
fn event_number(guesses: &[Guess]) -> Option<Number> {
    let counter = frame_counter(guesses);
    let whole = counter.filter(|(number, is_shared)| *is_shared || number.mask.is_none());
    let slow = guesses.iter().find_map(|guess| match &guess.meaning {
        Meaning::SlowCounter { number, .. } => Some((*number, false)),
        _ => None,
    });
    whole.or(slow).or(counter).map(|(number, _)| number)
}

/// Number of frames, and of pairs, that are required for certainty.
const LEAST_FRAMES: usize = 16;
/// A counter that restarted and has no more bits than this may count parts of an event.
const NARROW: u32 = 8;

/// A reason why a draft may be wrong.
#[derive(Clone, PartialEq, Debug)]
pub enum Doubt {
    /// Only this many frames were seen.
    Few(usize),
    /// This framing fits almost as well, and finds other frames.
    Frames(Frame),
    /// All frames have one size: the number taken for their length may be something else.
    OneSize,
    /// Frames begin with no pattern that could be searched for.
    NoMark,
    /// The stream does not begin with the recurring word.
    Within,
    /// No number counts events.
    NoEvent,
    /// Either of these two may be the event number.
    Several(Number, Number),
    /// The number is the same in several frames: it may count seconds or spills.
    Slow(Number),
    /// The second number grows, too, but not by one.
    Grows(Number, Number),
    /// Only the lowest byte changed: the byte order may be the other one.
    ByteOrder(Number),
    /// The upper bits always had this value: they may be something else.
    UpperBits(Number, u64),
    /// The bytes above the number always had this value: they may be part of it.
    BytesAbove(Number, u64),
    /// The number increases by this step per frame.
    Steps(Number, u64),
    /// The number increases in every frame by small, varying steps.
    Uneven(Number),
    /// The lower bits, with which the steps would be very long, never changed: they may be part of the number.
    LowerBits(Number),
    /// The number may be a clock with about this tick. Arrivals scatter around it by `scatter`.
    PerhapsClock {
        /// The field.
        number: Number,
        /// The tick, in nanoseconds.
        tick: f64,
        /// The scatter, in nanoseconds.
        scatter: f64,
    },
    /// The number restarts after this few values: it may count parts of an event.
    Narrow(Number, u64),
    /// The number went back.
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
            Self::NoEvent => write!(out, "no number counts events: the board's manual may name one"),
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
            Self::BytesAbove(number, value) => {
                write!(out, "the bytes above {} always were {value:#x}: they may be a part of it", Named(number))
            }
            Self::Steps(number, by) => {
                let named = Named(number);
                write!(out, "the number {named} goes up by {by} per frame: perhaps {by} events in each frame, see ")?;
                write!(out, "docs/splitters.md; or the board sends every {}", Ordinal(*by))?;
                write!(out, " trigger, and `event = {{ {} }}` is right", Key(number))
            }
            Self::Uneven(number) => {
                write!(
                    out,
                    "the number {} goes up by a few per frame: perhaps the board misses triggers",
                    Named(number)
                )?;
                write!(out, ", or there are several events in each frame, see docs/splitters.md")
            }
            Self::LowerBits(number) => {
                write!(out, "the bits below {} never changed: they may be the lowest bits of the number", Named(number))
            }
            Self::PerhapsClock { number, tick, scatter } => {
                write!(out, "{} may be a clock with a tick of about {} ns: ", Named(number), Short(*tick))?;
                write!(out, "it grows with time, but frames arrive {} ms early or late", Short(scatter / 1e6))
            }
            Self::Narrow(number, count) => {
                write!(out, "{} begins anew after {count}: it may count parts of an event", Named(number))
            }
            Self::WentBack(number) => write!(out, "{} went back", Named(number)),
        }
    }
}

/// An ordinal, such as `3rd`.
struct Ordinal(u64);

impl fmt::Display for Ordinal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ending = match (self.0 % 10, self.0 % 100) {
            (_, 11..=13) => "th",
            (1, _) => "st",
            (2, _) => "nd",
            (3, _) => "rd",
            _ => "th",
        };
        write!(out, "{}{ending}", self.0)
    }
}

/// A number with three digits.
struct Short(f64);

impl fmt::Display for Short {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = if self.0 > 0.0 { (2.0 - self.0.log10().floor()).clamp(0.0, 9.0) as usize } else { 0 };
        write!(out, "{:.digits$}", self.0)
    }
}

/// A number as a key of a configuration: `at = 4, type = "u32be"`.
pub(super) struct Key<'a>(pub(super) &'a Number);

impl fmt::Display for Key<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Number { at, mask, .. } = *self.0;
        write!(out, "at = {at}, type = \"{}\"", type_of(self.0))?;
        mask.map_or(Ok(()), |mask| write!(out, ", mask = {mask:#x}"))
    }
}

/// A property that was searched for and not found.
#[derive(Clone, PartialEq, Debug)]
pub enum Note {
    /// No clock, in frames that arrived within this many seconds.
    NoClock(f64),
    /// The frames have no times of arrival, without which no clock is found.
    NoTimes,
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClock(seconds) => {
                write!(out, "no clock found: in {} s, no bytes grow linearly with the time of arrival", Short(*seconds))
            }
            Self::NoTimes => write!(
                out,
                "no clock was looked for: a file does not say when its frames came; listen to the board, or use a capture"
            ),
        }
    }
}

/// Returns the notes on properties that were not found.
pub(super) fn find_notes(table: &Table<'_>, guesses: &[Guess], doubts: &[Doubt]) -> Vec<Note> {
    let is_clock = |guess: &Guess| matches!(guess.meaning, Meaning::Clock { .. });
    let is_perhaps = |doubt: &Doubt| matches!(doubt, Doubt::PerhapsClock { .. });
    if table.len() < LEAST_FRAMES || guesses.iter().any(is_clock) || doubts.iter().any(is_perhaps) {
        return Vec::new();
    }
    let times = || table.peers.iter().chain(&table.late).flatten().map(|row| row.at);
    let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    vec![if first == last { Note::NoTimes } else { Note::NoClock((last - first) as f64 / 1e9) }]
}

/// Returns the doubts about the draft of these frames.
pub(super) fn find_doubts(
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
    let steps = guesses.iter().find_map(|guess| match guess.meaning {
        Meaning::Steps { number, by } => Some(Doubt::Steps(number, by)),
        _ => None,
    });
    doubts.extend(steps);
    let has_steps = doubts.iter().any(|doubt| matches!(doubt, Doubt::Steps(..)));
    if let Some(number) = event_number(guesses) {
        doubts.extend(of_others(table, guesses, &number));
        doubts.extend(of_number(table, guesses, &number));
    } else if !has_steps {
        doubts.extend(growing(table, guesses).map(Doubt::Uneven));
    }
    doubts
}

/// Returns doubts about other numbers that may be the event number.
fn of_others(table: &Table<'_>, guesses: &[Guess], number: &Number) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let is_same = |other: &Number| table.rows().all(|row| read(row, other) == read(row, number));
    let shared = |guess: &Guess| match &guess.meaning {
        Meaning::FrameCounter { is_shared, .. } | Meaning::SlowCounter { is_shared, .. } => Some(*is_shared),
        _ => None,
    };
    let chosen = guesses.iter().find(|guess| guess.number() == Some(number));
    let is_chosen_shared = chosen.is_some_and(|guess| shared(guess) == Some(true));
    for guess in guesses {
        // A number that all boards share ranks before one that each board counts by itself, and bytes rank before bits.
        let Some(other) = guess.number().filter(|_| shared(guess).is_some_and(|is| is || !is_chosen_shared)) else {
            continue;
        };
        let is_less =
            number.mask.is_none() && other.mask.is_some() && chosen.is_some_and(|one| guess.holds < one.holds);
        if other != number && !is_less && !is_same(other) {
            doubts.push(Doubt::Several(*number, *other));
        } else if other == number && matches!(guess.meaning, Meaning::SlowCounter { .. }) {
            doubts.push(Doubt::Slow(*number));
        }
    }
    let slow = windows(table, guesses).into_iter().find(|window| slow(table, *window).is_some());
    doubts.extend(slow.map(|other| Doubt::Several(*number, other)));
    doubts.extend(growing(table, guesses).map(|other| Doubt::Grows(*number, other)));
    doubts
}

/// Returns a few bits at each free place. In four or eight bits the lowest ones visibly count, whatever the upper ones
/// are.
fn windows(table: &Table<'_>, guesses: &[Guess]) -> Vec<Number> {
    let is_free = |other: &Number| guesses.iter().flat_map(taken).all(|known| !overlap(known, other));
    let few_bits = |number: Number| {
        // Numbers begin at a byte or in its middle; slices of slowly growing clocks begin at any bit.
        let masks: &[u64] = if number.bytes == 1 { &[0xFF, 0xF, 0xF0] } else { &[0xFF0] };
        masks.iter().map(move |&mask| number.masked(mask))
    };
    table.places(1).chain(table.places(2)).filter(is_free).flat_map(few_bits).collect()
}

/// Returns a number that increases in every frame by small, varying steps.
fn growing(table: &Table<'_>, guesses: &[Guess]) -> Option<Number> {
    let pairs: Vec<(&Row<'_>, &Row<'_>)> = table.pairs().collect();
    // A count of regular triggers is as straight as a clock, even with a clock beside it.
    let numbers = guesses.iter().filter_map(|guess| match guess.meaning {
        Meaning::Clock { number, tick, .. } => Some(if tick * FINEST < 1.0 { halves(&number) } else { [number; 2] }),
        _ => None,
    });
    let mut others = numbers.flatten().chain(windows(table, guesses));
    let is_whole = |other: &Number| orders(other).all(|other| !is_slice(&pairs, &other, table.reach));
    others.find(|other| grows(&pairs, other) && is_whole(other))
}

/// Returns the first half and the last half of its bytes.
fn halves(number: &Number) -> [Number; 2] {
    let bytes = number.bytes / 2;
    [number.at, number.at + i32::from(number.bytes - bytes)].map(|at| Number { at, bytes, ..*number })
}

/// The longest step of a trigger number, of which a board may not see every trigger.
const MOST_TRIGGERS: u64 = 16;

/// Whether the number increases in every frame by small, varying steps, except where frames were lost.
fn grows(pairs: &[(&Row<'_>, &Row<'_>)], number: &Number) -> bool {
    let (mut first, mut is_uneven, mut wrong) = (None, false, 0);
    for (from, to) in pairs {
        let step = ahead(number, from, to);
        if step == 0 || step > MOST_TRIGGERS.min(3 << (bits(number) - 3)) {
            wrong += 1;
            if wrong * 50 > pairs.len() {
                return false;
            }
        }
        is_uneven |= step != *first.get_or_insert(step);
    }
    pairs.len() >= 2 * LEAST_FRAMES && is_uneven
}

/// Returns doubts about the number itself.
fn of_number(table: &Table<'_>, guesses: &[Guess], number: &Number) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let first = table.peers.iter().map(|rows| &rows[0]);
    let value = |row: &Row<'_>| read(row, number);
    // Bits that changed within the frames of one peer.
    let of_peers = first.zip(&table.peers).map(|(first, rows)| (value(first), rows));
    let changed = of_peers
        .flat_map(|(first, rows)| rows.iter().map(move |row| value(row) ^ first))
        .fold(0, |all, bits| all | bits);
    let (moved, width) = (64 - changed.leading_zeros(), bits(number));
    let wide = widened(table, number);
    let above = |number: &Number, bits: u32| {
        table.rows().next().map_or(0, |row| read(row, number).checked_shr(bits).unwrap_or(0))
    };
    let (upper, bytes) = (above(number, moved), above(&wide, width));
    if moved < width && upper != 0 {
        doubts.push(Doubt::UpperBits(*number, upper));
    } else if wide != *number && bytes != 0 {
        doubts.push(Doubt::BytesAbove(*number, bytes));
    } else if wide == *number && has_odd_zero_above(table, number) {
        doubts.push(Doubt::BytesAbove(*number, 0));
    }
    let is_known = byte_order(table, guesses) == Some((number.is_big_endian, true));
    if moved <= 8 && width > 8 && !is_known && may_be_reversed(table, number) {
        doubts.push(Doubt::ByteOrder(*number));
    }
    if number.mask.is_some_and(|mask| mask & 1 == 0 && !is_lively_below(table, number, mask.trailing_zeros())) {
        doubts.push(Doubt::LowerBits(*number));
    }
    let back = |(from, to): &(&Row<'_>, &Row<'_>)| ahead(number, from, to) > u64::MAX >> (65 - width);
    let began_anew = table.pairs().any(|(from, to)| value(to) == 0 && value(from) == u64::MAX >> (64 - width));
    // Or an adjacent byte is zero, and may be its upper one.
    let beside = [extent(number).end, extent(number).start.wrapping_sub(1)];
    let is_cut_off = beside.iter().any(|at| table.rows().all(|row| row.head.get(*at) == Some(&0)));
    if width <= NARROW && (began_anew || is_cut_off) {
        doubts.push(Doubt::Narrow(*number, 1 << width));
    } else if table.pairs().any(|pair| back(&pair)) {
        doubts.push(Doubt::WentBack(*number));
    }
    doubts
}

/// Returns the number with the bytes above it that never change, up to four in all; the number itself if it does not
/// end with a byte.
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

/// Whether there is a single zero byte above a number of two bytes, which may then have three, and it never overflowed.
fn has_odd_zero_above(table: &Table<'_>, number: &Number) -> bool {
    let beside = |by: i32| usize::try_from(if number.is_big_endian { number.at - by } else { number.at + 1 + by }).ok();
    let (Some(next), behind) = (beside(1).filter(|at| *at < table.reach), beside(2).filter(|at| *at < table.reach))
    else {
        return false;
    };
    let is_zero = table.rows().all(|row| row.head[next] == 0);
    let is_end = behind.is_none_or(|at| table.rows().any(|row| row.head[at] != 0));
    let has_wrapped = table.pairs().any(|(from, to)| read(to, number) < read(from, number));
    number.bytes == 2 && number.mask.is_none() && is_zero && is_end && !has_wrapped
}

/// Whether the bytes on the other side of a number's lowest byte could be its upper ones.
fn may_be_reversed(table: &Table<'_>, number: &Number) -> bool {
    let extent = extent(number);
    let next = if number.is_big_endian { Some(extent.end) } else { extent.start.checked_sub(1) };
    let Some(next) = next.filter(|next| *next < table.reach) else { return false };
    let byte = Number::little_endian(next as i32, 1);
    let first = table.rows().next().map_or(0, |row| read(row, &byte));
    // The lowest bits would change first.
    table.rows().all(|row| (read(row, &byte) ^ first) & 3 == 0)
}

/// Whether the bits of a number's bytes below its lowest `count` ones change.
fn is_lively_below(table: &Table<'_>, number: &Number, count: u32) -> bool {
    let below = number.masked((1 << count) - 1);
    let mut values = table.rows().map(|row| read(row, &below));
    let first = values.next();
    values.any(|value| Some(value) != first)
}
