//! The layout of a front end's frames, described rather than programmed (`docs/layouts.md`).
//!
//! ```text
//! Layout (plain values) --> Plan::compile --> LayoutError: the key, and the valid values
//!                                       \--> Plan: Framing::front    the end of a frame
//!                                                  Framing::fields   the fields of a frame
//!                                                  Plan::compose     a frame with given fields, for emulators and tests
//! ```
//! All places are computed once, when the plan is made: reading a field is then one load, a shift and a mask. Frames
//! are read in place, in one piece or in several. Nothing here allocates after that, and no bytes cause a panic.

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
/// Maximum bytes of a sync word, a delimiter or a pattern.
pub const MOST_PATTERN_BYTES: usize = 8;
/// Maximum number of fields that are combined to one number.
pub const MOST_PARTS: usize = 4;

/// The layout of a front end's frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The framing.
    pub frame: Frame,
    /// Maximum length of a frame, in bytes.
    pub max: u32,
    /// Fixed bytes of every frame.
    pub matches: Option<Pattern>,
    /// The event number: one field, or several, the first of them the most significant.
    pub event: Vec<Number>,
    /// The front end's clock.
    pub time: Option<Clock>,
    /// The board's number.
    pub source: Option<Source>,
    /// The number that distinguishes several boards that send to the same place; each is a source.
    pub demux: Option<Number>,
    /// Trigger type.
    pub trigger_type: Option<Number>,
    /// The frame's own number: a gap is a lost frame.
    pub sequence: Option<Number>,
    /// The board's status.
    pub status: Option<Status>,
    /// A checksum.
    pub checksum: Option<Checksum>,
}

impl Layout {
    /// A layout with this framing, frames of at most `max` bytes, and no other fields.
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

/// The framing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A field contains the length.
    Length(Length),
    /// The length is fixed.
    Fixed {
        /// The length in bytes.
        bytes: u32,
    },
    /// A frame begins with a sync word.
    Sync {
        /// The word.
        word: Vec<u8>,
        /// The size.
        size: Size,
    },
    /// The last bytes of a frame contain its length.
    Trailer {
        /// The length; its place is counted from the frame's end.
        length: Length,
        /// Fixed bytes at its end.
        mark: Option<Pattern>,
        /// Frames are multiples of this number of bytes.
        step: u32,
    },
    /// A frame ends with a delimiter.
    Delimiter {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A frame is a datagram.
    Datagram,
    /// A datagram contains one or several frames, back to back.
    Several(Size),
    /// A frame is sent in the bodies of several datagrams.
    Pieces(Pieces),
}

impl Frame {
    /// Whether frames arrive in datagrams, and not in a stream.
    pub const fn is_of_datagrams(&self) -> bool {
        matches!(self, Self::Datagram | Self::Several(_) | Self::Pieces(_))
    }
}

/// The length of a frame whose beginning is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Size {
    /// In a field.
    Length(Length),
    /// Fixed.
    Fixed {
        /// The length in bytes.
        bytes: u32,
    },
}

/// A number in a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Number {
    /// Offset in bytes; if negative, counted from the frame's end.
    pub at: i32,
    /// Number of bytes, 1 to 8.
    pub bytes: u8,
    /// Whether its first byte is the most significant one.
    pub is_big_endian: bool,
    /// The bits of the number, which must be adjacent; `None` for all.
    pub mask: Option<u64>,
    /// Right shift of the masked bits; `None` shifts the lowest bit of the mask to bit 0.
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

    /// Only the bits of this mask.
    #[must_use]
    pub const fn masked(self, mask: u64) -> Self {
        Self { mask: Some(mask), ..self }
    }
}

/// A length field.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Length {
    /// The field.
    pub number: Number,
    /// Number of bytes per unit of the field.
    pub unit: u32,
    /// The part of the frame that it counts.
    pub counts: Counts,
    /// Additional bytes that belong to the frame.
    pub add: i32,
}

/// The part of a frame that a length counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Counts {
    /// The whole frame.
    #[default]
    Frame,
    /// The bytes behind the field.
    AfterField,
    /// The bytes behind a header.
    Payload {
        /// Bytes of the header.
        header: u32,
    },
}

/// Fixed bytes at a place of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Offset in bytes; if negative, counted from the frame's end.
    pub at: i32,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The bits that count, as a mask of the same length; `None` for all.
    pub mask: Option<Vec<u8>>,
}

/// A clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clock {
    /// The ticks: one field, or several, the first of them the most significant.
    pub ticks: Vec<Number>,
    /// Length of a tick, in attoseconds (10^-18 s).
    pub tick_attoseconds: u64,
    /// Number of whole seconds. The ticks then restart at 0 every second.
    pub seconds: Option<Number>,
}

/// The number of a board.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Its place.
    pub number: Number,
    /// Its value, if not the id of the source.
    pub is: Option<u32>,
}

/// A board's status.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Its place.
    pub number: Number,
    /// Bits, after the shift of the number, any of which means that the data are in doubt.
    pub error: u64,
    /// Bits any of which means that the board was busy.
    pub busy: u64,
}

/// A checksum.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Checksum {
    /// Its algorithm.
    pub kind: ChecksumKind,
    /// Its place. Within its own range it counts as zero.
    pub number: Number,
    /// Beginning of its range; if negative, counted from the frame's end.
    pub from: i32,
    /// End of its range, exclusive; if 0 or negative, counted from the frame's end.
    pub to: i32,
}

/// A frame that is sent in the bodies of several datagrams.
///
/// Its first datagram is kept whole, header included, and the others without their headers: offsets of its fields are
/// thus offsets in a datagram.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// Bytes of the header of each datagram.
    pub header: u32,
    /// The number of the datagram's frame.
    pub frame: Number,
    /// The place of its body in the frame.
    pub place: Place,
    /// The condition for a whole frame.
    pub end: End,
}

/// The place of a datagram's body in its frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Number of body bytes before it.
    Offset(Number),
    /// Number of bodies before it.
    Index(Number),
}

impl Place {
    /// The field.
    pub const fn number(&self) -> &Number {
        match self {
            Self::Offset(number) | Self::Index(number) => number,
        }
    }
}

/// The way in which the last body of a frame is detected.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Each header has the sum of the bodies' bytes.
    Length(Number),
    /// Each header has the number of bodies.
    Count(Number),
    /// The header of the last one has a value other than 0 here.
    Last(Number),
}

impl End {
    /// The field.
    pub const fn number(&self) -> &Number {
        match self {
            Self::Length(number) | Self::Count(number) | Self::Last(number) => number,
        }
    }
}

/// An error in a layout, with the key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {fault}")]
pub struct LayoutError {
    /// The key, as a configuration has it: `frame.length`, `event`, `checksum.from`.
    pub key: String,
    /// The error.
    pub fault: LayoutFault,
}

/// An error in a part of a layout, with the valid values.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutFault {
    /// A number has no such width.
    #[error("a number has 1 to 8 bytes, not {0}")]
    Width(u8),
    /// A mask has no bits, gaps, or bits outside the number.
    #[error("the mask {mask:#x} must have neighbouring bits of the {bits} that are there, one at least")]
    Mask {
        /// The mask.
        mask: u64,
        /// Number of existing bits.
        bits: u32,
    },
    /// The shift leaves no bits of the number.
    #[error("nothing is left of the number when it is moved down by {0} bits")]
    Shift(u8),
    /// The number has too many or too few bits.
    #[error("it has {bits} bits, and can have {least} to {most}")]
    Bits {
        /// Its number of bits.
        bits: u32,
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
    },
    /// It lies outside the frame.
    #[error("it ends at byte {end}, outside of a frame of {frame} bytes")]
    Outside {
        /// Distance from the frame's beginning (or end) to its farther end.
        end: u64,
        /// Maximum length of a frame.
        frame: u64,
    },
    /// The longest frame is shorter than the fields of one without a payload.
    #[error(
        "frames have at least {needed} bytes ({front} at the beginning, {back} at the end), and `max` allows {max}"
    )]
    MaxTooSmall {
        /// Required bytes.
        needed: u64,
        /// Required bytes from the frame's beginning.
        front: u64,
        /// Required bytes before its end.
        back: u64,
        /// Maximum length of a frame.
        max: u64,
    },
    /// Two fields share bits.
    #[error("it shares bits with `{0}`: two fields must not overlap, unless they are the same number")]
    Overlap(String),
    /// No frame can have that length.
    #[error("no frame can be that short: its fields alone need {needed} bytes, and at most {possible} can be stated")]
    TooShort {
        /// Required bytes.
        needed: u64,
        /// Bytes of the longest frame.
        possible: u64,
    },
    /// The maximum length is zero, or larger than the limit.
    #[error("the longest frame has 1 to {most} bytes, not {0}", most = MOST_FRAME_BYTES)]
    Max(u32),
    /// A size, a unit or a step is zero.
    #[error("it must be at least 1")]
    Zero,
    /// There are no bytes, or too many.
    #[error("there must be 1 to {most} bytes, not {0}", most = MOST_PATTERN_BYTES)]
    Pattern(usize),
    /// A mask differs in length from the bytes that it masks, or masks all of them.
    #[error("the mask must have as many bytes as there are bytes, and leave some of their bits")]
    PatternMask,
    /// The length is at the wrong end for this framing.
    #[error("its place must be counted from the frame's {0}")]
    WrongEnd(&'static str),
    /// Frames with a trailer cannot be found without fixed bytes at their beginning.
    #[error("a frame that says its length at its end needs a `match` at its begin, or it cannot be found again")]
    TrailerWithoutMatch,
    /// A range ends before it begins.
    #[error("the range ends before it begins")]
    Range,
    /// The checksum's field differs in width from the checksum.
    #[error("this checksum has {0} bits")]
    ChecksumWidth(u32),
    /// A tick of zero length.
    #[error("a tick of the clock must last longer than nothing, and at most 10 s")]
    Tick,
    /// Too many fields are combined.
    #[error("at most {most} fields are put together to one number, not {0}", most = MOST_PARTS)]
    Parts(usize),
    /// A number of bodies has no meaning if bodies have offsets, and the other way round.
    #[error("the sum of bytes goes with offsets, a count of bodies with their indices")]
    PlaceAndEnd,
    /// A field lies neither in the header of each datagram nor in the frame.
    #[error("it must lie within the {header} bytes of each datagram's header")]
    OutsideHeader {
        /// Bytes of the header.
        header: u32,
    },
    /// A setting refers to a place that this framing does not have.
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
/// Width of a byte in characters.
const CELL: usize = 10;

impl fmt::Display for Plan {
    /// Writes the bytes from a frame's beginning, and those before its end, eight to a line, with the fields in each.
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
    /// Number of bytes from the beginning, or before the end, up to the last one with a field.
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
            // As far as the same field continues in this line.
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
