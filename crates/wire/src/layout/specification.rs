//! A layout as plain values: what a configuration says, or a program that makes one.

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
    /// Bytes that it stands in, 1 to 8.
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
    pub kind: super::ChecksumKind,
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
