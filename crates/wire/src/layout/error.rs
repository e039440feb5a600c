//! Why a layout is none.

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
    #[error("a number stands in 1 to 8 bytes, not in {0}")]
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
    #[error("it ends {end} bytes from where its place is counted, outside of a frame of {frame} bytes")]
    Outside {
        /// The distance from the frame's begin (or end) to what lies farther away of it.
        end: u64,
        /// The most that a frame can have.
        frame: u64,
    },
    /// Two of them share bits.
    #[error("it has bits in common with `{0}`: two fields are apart, or the same")]
    Overlap(String),
    /// No frame can have that length.
    #[error("no frame is so short: its fields alone need {needed} bytes, and at most {possible} can be stated")]
    TooShort {
        /// What is needed.
        needed: u64,
        /// What the longest frame has.
        possible: u64,
    },
    /// Frames are limited to nothing, or to more than there is memory.
    #[error("the longest frame has 1 to {most} bytes, not {0}", most = super::MOST_FRAME_BYTES)]
    Max(u32),
    /// A size, a unit or a step of nothing.
    #[error("it must be 1 at least")]
    Zero,
    /// There are no bytes, or too many.
    #[error("there must be 1 to {most} bytes, not {0}", most = super::MOST_PATTERN_BYTES)]
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
    /// A range that is none.
    #[error("the range ends before it begins")]
    Range,
    /// The checksum's field is not as wide as the checksum.
    #[error("this checksum has {0} bits")]
    ChecksumWidth(u32),
    /// A tick of no time.
    #[error("a tick of the clock must last longer than nothing, and at most 10 s")]
    Tick,
    /// Too many fields are put together.
    #[error("at most {most} fields are put together to one number, not {0}", most = super::MOST_PARTS)]
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
    pub(super) fn new(key: impl Into<String>, fault: LayoutFault) -> Self {
        Self { key: key.into(), fault }
    }
}
