//! The layout of a front end's frames, described and not programmed (`docs/layouts.md`).
//!
//! ```text
//! Layout (plain values) --> Plan::compile --> LayoutError: the key, and what would be right
//!                                       \--> Plan: Framing::front    where a frame ends
//!                                                  Framing::fields   what it says of itself
//!                                                  Plan::compose     a frame that says this, for emulators and tests
//! ```
//! Everything is looked up once, when the plan is made: a field is then one load, a shift and a mask. Frames are looked at
//! where they lie, in one piece or in several. Nothing here allocates after that, and no bytes make it panic.

mod fields;
mod front;
mod plan;
#[cfg(test)]
mod tests;

use core::fmt;

use fields::Field;
use plan::Extents;

pub use fields::{CHECKSUM_KINDS, ChecksumKind};
pub use plan::{Contents, Plan};

/// The longest frame that can be allowed, in bytes.
pub const MOST_FRAME_BYTES: u32 = 1 << 30;
/// The most bytes of a sync word, a delimiter or a pattern.
pub const MOST_PATTERN_BYTES: usize = 8;
/// The most fields that are put together to one number.
pub const MOST_PARTS: usize = 4;

/// How the frames of a front end look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// How a frame is found.
    pub frame: Frame,
    /// The longest frame that is believed, in bytes.
    pub max: u32,
    /// Bytes that every frame has.
    pub matches: Option<Pattern>,
    /// The event's number: one field, or several, the first of them the most significant.
    pub event: Vec<Number>,
    /// The front end's clock.
    pub time: Option<Clock>,
    /// Which board it is.
    pub source: Option<Source>,
    /// Which of several boards it is that send to the same place: a source each.
    pub demux: Option<Number>,
    /// Trigger type.
    pub trigger_type: Option<Number>,
    /// The frame's own number: a gap is a lost frame.
    pub sequence: Option<Number>,
    /// What the board says of its health.
    pub status: Option<Status>,
    /// A checksum.
    pub checksum: Option<Checksum>,
}

impl Layout {
    /// Frames that are found so, at most `max` bytes long, of which nothing else is known.
    pub const fn new(frame: Frame, max: u32) -> Self {
        Self {
            frame,
            max,
            matches: None,
            event: Vec::new(),
            time: None,
            source: None,
            demux: None,
            trigger_type: None,
            sequence: None,
            status: None,
            checksum: None,
        }
    }
}

/// How a frame is found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A field says how long it is.
    Length(Length),
    /// It is always as long.
    Fixed {
        /// So many bytes.
        bytes: u32,
    },
    /// It begins with a word that is looked for.
    Sync {
        /// The word.
        word: Vec<u8>,
        /// Where it ends.
        size: Size,
    },
    /// Its last bytes say how long it is.
    Trailer {
        /// The length; its place is counted from the frame's end.
        length: Length,
        /// What else its last bytes are known by.
        mark: Option<Pattern>,
        /// Frames are whole multiples of so many bytes.
        step: u32,
    },
    /// It ends behind these bytes.
    Delimiter {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// It is a datagram.
    Datagram,
    /// A datagram holds one or several, back to back.
    Several(Size),
    /// It is sent in the bodies of several datagrams.
    Pieces(Pieces),
}

impl Frame {
    /// Whether it comes in datagrams, and not in a stream.
    pub const fn is_of_datagrams(&self) -> bool {
        matches!(self, Self::Datagram | Self::Several(_) | Self::Pieces(_))
    }
}

/// How long a frame is whose beginning is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Size {
    /// A field says it.
    Length(Length),
    /// Always so many bytes.
    Fixed {
        /// So many.
        bytes: u32,
    },
}

/// A number in a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Number {
    /// Bytes before it; where negative, counted from the frame's end.
    pub at: i32,
    /// Its bytes, 1 to 8.
    pub bytes: u8,
    /// Whether its first byte is the most significant one.
    pub is_big_endian: bool,
    /// Which of their bits it is, neighbours; all where none are given.
    pub mask: Option<u64>,
    /// By how much the masked bits are moved down; so that the lowest one counts one, where nothing is given.
    pub shift: Option<u8>,
}

impl Number {
    /// All bits of `bytes` bytes, least significant byte first.
    pub const fn little_endian(at: i32, bytes: u8) -> Self {
        Self { at, bytes, is_big_endian: false, mask: None, shift: None }
    }

    /// All bits of `bytes` bytes, most significant byte first.
    pub const fn big_endian(at: i32, bytes: u8) -> Self {
        Self { is_big_endian: true, ..Self::little_endian(at, bytes) }
    }

    /// Only these bits of it.
    #[must_use]
    pub const fn masked(self, mask: u64) -> Self {
        Self { mask: Some(mask), ..self }
    }
}

/// A field that holds a length.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Length {
    /// The field.
    pub number: Number,
    /// Bytes in one of what it counts.
    pub unit: u32,
    /// What it counts.
    pub counts: Counts,
    /// Bytes that belong to the frame besides.
    pub add: i32,
}

/// What a length counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Counts {
    /// The whole frame.
    #[default]
    Frame,
    /// What follows the field.
    AfterField,
    /// What follows a header.
    Payload {
        /// Bytes of the header.
        header: u32,
    },
}

/// Bytes at a place of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Bytes before them; where negative, counted from the frame's end.
    pub at: i32,
    /// What they are.
    pub bytes: Vec<u8>,
    /// Which of their bits count: as many bytes; all where none are given.
    pub mask: Option<Vec<u8>>,
}

/// A clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clock {
    /// The ticks: one field, or several, the first of them the most significant.
    pub ticks: Vec<Number>,
    /// How long a tick is, in attoseconds (10^-18 s).
    pub tick_attoseconds: u64,
    /// Number of whole seconds. The ticks then restart at 0 every second.
    pub seconds: Option<Number>,
}

/// The number of a board.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Where it stands.
    pub number: Number,
    /// What it is, if not the id of the source.
    pub is: Option<u32>,
}

/// A board's word about its health.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Where it stands.
    pub number: Number,
    /// Bits, as the number has them when it was moved down, any of which means that the data are in doubt.
    pub error: u64,
    /// Bits any of which means that the board was busy.
    pub busy: u64,
}

/// A checksum.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Checksum {
    /// What it is.
    pub kind: ChecksumKind,
    /// Where it stands. Within its own range it counts as zero.
    pub number: Number,
    /// Where its range begins; where negative, counted from the frame's end.
    pub from: i32,
    /// Where its range ends, this byte not included: where 0 or negative, counted from the frame's end.
    pub to: i32,
}

/// A frame that comes in the bodies of several datagrams.
///
/// Its first datagram is kept whole, header included, and of the others what is behind their headers: so the places of
/// its fields are places in a datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// Bytes of the header of each datagram.
    pub header: u32,
    /// Which frame a datagram belongs to.
    pub frame: Number,
    /// Where in the frame it belongs.
    pub place: Place,
    /// When the frame is whole.
    pub end: End,
}

/// Where in its frame the body of a datagram belongs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// So many bytes of other bodies are before it.
    Offset(Number),
    /// So many other bodies are before it.
    Index(Number),
}

impl Place {
    /// Where it stands.
    pub const fn number(&self) -> &Number {
        match self {
            Self::Offset(number) | Self::Index(number) => number,
        }
    }
}

/// How the last body of a frame is known.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Each header has the sum of the bodies' bytes.
    Length(Number),
    /// Each header has the number of bodies.
    Count(Number),
    /// The header of the last one has this number other than 0.
    Last(Number),
}

impl End {
    /// Where it stands.
    pub const fn number(&self) -> &Number {
        match self {
            Self::Length(number) | Self::Count(number) | Self::Last(number) => number,
        }
    }
}

/// What is wrong with a layout, and under which key of it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {fault}")]
pub struct LayoutError {
    /// The key, as a configuration has it: `frame.length`, `event`, `checksum.from`.
    pub key: String,
    /// What is wrong with it.
    pub fault: LayoutFault,
}

/// What is wrong with a part of a layout, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutFault {
    /// A number has no such width.
    #[error("a number has 1 to 8 bytes, not {0}")]
    Width(u8),
    /// A mask has no bits, gaps, or bits that are not there.
    #[error("the mask {mask:#x} must have neighbouring bits of the {bits} that are there, one at least")]
    Mask {
        /// The mask.
        mask: u64,
        /// Bits that there are.
        bits: u32,
    },
    /// Nothing is left of the number.
    #[error("nothing is left of the number when it is moved down by {0} bits")]
    Shift(u8),
    /// It has too many bits.
    #[error("it has {bits} bits, and can have {least} to {most}")]
    Bits {
        /// What it has.
        bits: u32,
        /// What it must have.
        least: u32,
        /// What it can have.
        most: u32,
    },
    /// It is not in the frame.
    #[error("it ends at byte {end}, outside of a frame of {frame} bytes")]
    Outside {
        /// The distance from the frame's begin (or end) to what lies farther away of it.
        end: u64,
        /// The most that a frame can have.
        frame: u64,
    },
    /// The longest frame is shorter than the fields of one without a payload.
    #[error(
        "frames have at least {needed} bytes ({front} at the beginning, {back} at the end), and `max` allows {max}"
    )]
    MaxTooSmall {
        /// What is needed.
        needed: u64,
        /// Bytes from the frame's begin.
        front: u64,
        /// Bytes before its end.
        back: u64,
        /// The most that a frame may have.
        max: u64,
    },
    /// Two of them share bits.
    #[error("it shares bits with `{0}`: two fields must not overlap, unless they are the same number")]
    Overlap(String),
    /// No frame can have that length.
    #[error("no frame can be that short: its fields alone need {needed} bytes, and at most {possible} can be stated")]
    TooShort {
        /// What is needed.
        needed: u64,
        /// What the longest frame has.
        possible: u64,
    },
    /// Frames are limited to nothing, or to more than there is memory.
    #[error("the longest frame has 1 to {most} bytes, not {0}", most = MOST_FRAME_BYTES)]
    Max(u32),
    /// A size, a unit or a step of nothing.
    #[error("it must be at least 1")]
    Zero,
    /// There are no bytes, or too many.
    #[error("there must be 1 to {most} bytes, not {0}", most = MOST_PATTERN_BYTES)]
    Pattern(usize),
    /// A mask of bytes that is not as long as what it masks, or masks all of it.
    #[error("the mask must have as many bytes as there are bytes, and leave some of their bits")]
    PatternMask,
    /// The length is not where this kind of frames has it.
    #[error("its place must be counted from the frame's {0}")]
    WrongEnd(&'static str),
    /// Frames with a trailer cannot be found without something at their begin.
    #[error("a frame that says its length at its end needs a `match` at its begin, or it cannot be found again")]
    TrailerWithoutMatch,
    /// A range whose end is before its begin.
    #[error("the range ends before it begins")]
    Range,
    /// The checksum's field is not as wide as the checksum.
    #[error("this checksum has {0} bits")]
    ChecksumWidth(u32),
    /// A tick of no time.
    #[error("a tick of the clock must last longer than nothing, and at most 10 s")]
    Tick,
    /// Too many fields are put together.
    #[error("at most {most} fields are put together to one number, not {0}", most = MOST_PARTS)]
    Parts(usize),
    /// A number of bodies says nothing where bodies have offsets, and the other way round.
    #[error("the sum of bytes goes with offsets, a count of bodies with their indices")]
    PlaceAndEnd,
    /// A field that is neither in the header of each datagram nor in the frame.
    #[error("it must lie within the {header} bytes of each datagram's header")]
    OutsideHeader {
        /// Bytes of the header.
        header: u32,
    },
    /// Something is known by its place in a frame, which is not there for this kind of frames.
    #[error("{0}")]
    Contradiction(&'static str),
}

impl LayoutError {
    fn new(key: impl Into<String>, fault: LayoutFault) -> Self {
        Self { key: key.into(), fault }
    }
}

/// Bytes of a line.
const LINE: usize = 8;
/// Letters that a byte takes.
const CELL: usize = 10;

impl fmt::Display for Plan {
    /// The bytes from a frame's begin, and those before its end, eight to a line, with the fields in each.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:>6} ", "")?;
        (0..LINE).try_for_each(|byte| write!(out, "{byte:^width$}", width = CELL + 1))?;
        writeln!(out)?;
        let cells = Cells(&self.extents);
        let front = cells.end(false);
        for line in 0..front.div_ceil(LINE) {
            let first = (line * LINE) as i64;
            write!(out, "{first:>6} ")?;
            cells.line(out, first, front as i64)?;
        }
        let back = cells.end(true);
        if self.least < self.most {
            writeln!(out, "{:>6} |  ... {} to {} bytes in all", "", self.least, self.most)?;
        }
        for line in (0..back.div_ceil(LINE)).rev() {
            let first = -((line as i64 + 1) * LINE as i64);
            write!(out, "{first:>6} ")?;
            cells.line(out, first, 0)?;
        }
        self.extents.masked().try_for_each(|text| writeln!(out, "       {text}"))
    }
}

/// The fields in each byte.
struct Cells<'a>(&'a Extents);

impl Cells<'_> {
    /// Bytes from the begin, or before the end, up to the last one that has a field.
    fn end(&self, from_end: bool) -> usize {
        let distances = self.0.taken().iter().filter(|(_, field)| (field.number().at < 0) == from_end);
        let reach = distances.map(|(_, field)| {
            let number = field.number();
            if from_end { number.at.unsigned_abs() as usize } else { number.at as usize + usize::from(number.bytes) }
        });
        reach.max().unwrap_or(0)
    }

    fn line(&self, out: &mut fmt::Formatter<'_>, first: i64, end: i64) -> fmt::Result {
        let mut at = first;
        out.write_str("|")?;
        while at < first + LINE as i64 && at < end {
            let (text, here) = self.at(at);
            // As far as the same field goes on in this line.
            let mut count = 1;
            while count < LINE as i64 - (at - first) && at + count < end && here && self.at(at + count).0 == text {
                count += 1;
            }
            let width = count as usize * (CELL + 1) - 1;
            let text = if here { text } else { String::new() };
            write!(out, "{:^width$}|", text.chars().take(width).collect::<String>())?;
            at += count;
        }
        writeln!(out)
    }

    /// The names of the fields in a byte, and whether there are any.
    fn at(&self, at: i64) -> (String, bool) {
        let stands = |field: &Field| {
            let number = field.number();
            let byte = at - i64::from(number.at);
            (number.at < 0) == (at < 0) && byte >= 0 && field.bits_of_byte(byte as usize) != 0
        };
        let mut names: Vec<&str> = Vec::new();
        for (key, field) in self.0.taken() {
            let name = key.rsplit('.').next().unwrap_or(key);
            if stands(field) && !names.contains(&name) {
                names.push(name);
            }
        }
        (names.join("+"), !names.is_empty())
    }
}
