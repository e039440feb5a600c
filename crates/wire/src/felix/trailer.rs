//! The trailer of a sub-chunk: what it is, how long, and what the card says about it.

use super::BlockFormat;

/// What a sub-chunk is (3 bits).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum SubChunkType {
    /// Nothing: fills a block up.
    Null = 0,
    /// The beginning of a chunk.
    First = 1,
    /// The end of a chunk.
    Last = 2,
    /// A whole chunk.
    Both = 3,
    /// Neither its beginning nor its end.
    Middle = 4,
    /// Filler: the e-link said nothing for some time. With [`Status::TRUNCATED`]: data that the time-out cut off.
    Timeout = 5,
    /// No card writes that.
    Undefined = 6,
    /// A signal beside the data, in the other bits of the trailer.
    OutOfBand = 7,
}

/// What the card says about a chunk: any of several flags.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u8);

impl Status {
    /// Nothing was amiss.
    pub const GOOD: Self = Self(0);
    /// The front end is busy (only in trailers of 32 bits).
    pub const BUSY: Self = Self(1);
    /// The link's checksum is wrong.
    pub const CRC: Self = Self(2);
    /// The link had an error.
    pub const ERROR: Self = Self(4);
    /// The chunk was cut off.
    pub const TRUNCATED: Self = Self(8);
    /// It was cut off because its end did not come in time. No flag of a trailer: the trailer's type says so.
    pub const TIMED_OUT: Self = Self(16);

    const NAMES: [(Self, &str); 5] = [
        (Self::BUSY, "busy"),
        (Self::CRC, "crc"),
        (Self::ERROR, "error"),
        (Self::TRUNCATED, "truncated"),
        (Self::TIMED_OUT, "timed_out"),
    ];

    /// All flags of both.
    #[inline]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether it has all of these flags.
    #[inline]
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether no flag is set.
    #[inline]
    pub const fn is_good(self) -> bool {
        self.0 == 0
    }

    /// The flags that are set, with their names, which are promised to users.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |&(flag, _)| self.has(flag)).map(|(_, name)| name)
    }
}

impl core::fmt::Debug for Status {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str("Status(")?;
        for (index, name) in self.names().enumerate() {
            write!(out, "{}{name}", if index > 0 { " " } else { "" })?;
        }
        out.write_str(")")
    }
}

const LENGTH: u32 = 0xFFFF;
const NARROW_LENGTH: u32 = 0x3FF;
const NARROW_FLAGS: u32 = 0xFC00_0000;
const STATUS_SHIFT: u32 = 25;
const TYPE_SHIFT: u32 = 29;

/// A trailer with the fields where 32 bits have them. Trailers of 16 bits have the same ones at the same distance
/// from the top, a shorter length, and no place for [`Status::BUSY`].
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Trailer(pub u32);

impl Trailer {
    /// A trailer of `length` bytes of data; [`Status::TIMED_OUT`] has no place in it.
    #[inline]
    pub const fn new(kind: SubChunkType, length: u16, status: Status) -> Self {
        Self((kind as u32) << TYPE_SHIFT | (status.0 as u32 & 0xF) << STATUS_SHIFT | length as u32)
    }

    /// A signal of 13 bits, or of 29 bits in trailers of 32; what does not fit is cut off.
    pub const fn out_of_band(signal: u32, format: BlockFormat) -> Self {
        let raw = if format.trailer_bytes() == 2 { (signal & 0x1FFF) << 16 } else { signal & 0x1FFF_FFFF };
        Self::of_word((SubChunkType::OutOfBand as u32) << TYPE_SHIFT | raw, format)
    }

    /// The trailer in the last bytes of `word`, a little-endian number: 32 bits, or 16 in its upper half.
    #[inline]
    pub const fn of_word(word: u32, format: BlockFormat) -> Self {
        if format.trailer_bytes() == 2 { Self(word & NARROW_FLAGS | word >> 16 & NARROW_LENGTH) } else { Self(word) }
    }

    /// The opposite of [`Self::of_word`]; a 16-bit trailer's lower half is 0. What does not fit is cut off.
    pub const fn to_word(self, format: BlockFormat) -> u32 {
        if format.trailer_bytes() == 2 { self.0 & NARROW_FLAGS | (self.0 & NARROW_LENGTH) << 16 } else { self.0 }
    }

    /// What the sub-chunk is.
    #[inline]
    pub const fn kind(self) -> SubChunkType {
        match self.0 >> TYPE_SHIFT {
            0 => SubChunkType::Null,
            1 => SubChunkType::First,
            2 => SubChunkType::Last,
            3 => SubChunkType::Both,
            4 => SubChunkType::Middle,
            5 => SubChunkType::Timeout,
            6 => SubChunkType::Undefined,
            _ => SubChunkType::OutOfBand,
        }
    }

    /// Bytes of data before the trailer, without padding: 0 for what has none whatever its length says.
    #[inline]
    pub const fn data_bytes(self) -> u32 {
        match self.kind() {
            SubChunkType::Null | SubChunkType::OutOfBand => 0,
            _ => self.0 & LENGTH,
        }
    }

    /// The field for the length: the bytes of data, where it is known that there are any.
    #[inline]
    pub const fn length(self) -> u32 {
        self.0 & LENGTH
    }

    /// The card's flags, and [`Status::TIMED_OUT`] where the type says that.
    #[inline]
    pub const fn status(self) -> Status {
        let flags = Status((self.0 >> STATUS_SHIFT) as u8 & 0xF);
        if matches!(self.kind(), SubChunkType::Timeout) { flags.and(Status::TIMED_OUT) } else { flags }
    }

    /// The signal of an out-of-band trailer.
    pub const fn signal(self, format: BlockFormat) -> u32 {
        let word = self.to_word(format) & ((1 << TYPE_SHIFT) - 1);
        if format.trailer_bytes() == 2 { word >> 16 } else { word }
    }

    /// Whether these are data that belong to a chunk.
    #[inline]
    pub const fn has_data(self) -> bool {
        match self.kind() {
            SubChunkType::First | SubChunkType::Last | SubChunkType::Both | SubChunkType::Middle => true,
            SubChunkType::Timeout => self.status().has(Status::TRUNCATED),
            _ => false,
        }
    }
}

impl core::fmt::Debug for Trailer {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Trailer({:?}, {} bytes, {:?})", self.kind(), self.0 & LENGTH, self.status())
    }
}
