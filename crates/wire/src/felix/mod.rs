//! FELIX blocks, which a link card of ATLAS writes into a host's memory (paper 4, section 2.1; later versions as in
//! FORMATS section 1, from the headers of FELIX's `ftools`).
//!
//! ```text
//!          31            16 15      11 10                  0
//! header  | start of block | sequence | e-link              |   4 bytes, little-endian
//! then    | data, padded | trailer | data, padded | trailer | ...  up to the block's last byte
//!
//!          15    13   12      11    10    9                0
//! trailer | type   | trunc | error | CRC | length           |   16 bits: blocks of 0xABCD
//!          31    29   28      27    26    25     15        0
//! trailer | type   | trunc | error | CRC | busy | length    |   32 bits: blocks of 0xABCE and 0xC0CE + size
//! ```
//! A card packs the *chunks* of one *e-link* into blocks of fixed size; the part of a chunk in one block is a
//! *sub-chunk*. Data are padded to a multiple of the trailer's size, and the length does not count the padding. The
//! trailer follows the data, so a block is read from its end:
//!
//! ```text
//!  Encoder: chunks, signals, time-outs --> blocks          one per e-link
//!  Walk: one block, from its end       --> sub-chunks      checked: no step leaves the block
//!  Walker: many blocks at once         --> the same        the fast one, from `kernels`
//!  Assembly: sub-chunks of one e-link  --> begins, continues, ends; or a dropped chunk and the reason
//!  Decoder: blocks of all e-links      --> copied chunks: simple, for tools and as the reference for fast
//!                                          code
//! ```
//! Three questions that the sources leave open are settled here. A null trailer has no data, so the rest of a block is
//! filled with null trailers, which are zeros. The data of a time-out trailer are filler; with the truncation bit they
//! are real: they end the open chunk, or are a whole one. The padding is right if the walk ends at the header's end; it
//! ends inside the header if one piece was padded too far.

mod chunks;
#[cfg(test)]
mod tests;

use ropewalk_kernels::felix::Layout;
use ropewalk_terms::Cause;

pub use chunks::{Accepted, Assembly, Decoded, Decoder, Encoder, Place};
pub use ropewalk_kernels::felix::{BlockWalk, Rest, SubChunk, Walked, Walker};

/// Bytes of a block's header.
pub const HEADER_BYTES: usize = 4;

/// Bytes of the largest block.
pub const LARGEST_BLOCK_BYTES: usize = 64 << 10;

const NARROW: u16 = 0xABCD;
const WIDE: u16 = 0xABCE;
const SIZED: u16 = 0xC0CE;
const SIZE_BITS: u16 = 0x3F00;

/// A block format: the size of blocks, and the size of their trailers.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlockFormat {
    symbol: u16,
}

impl BlockFormat {
    /// 1 KiB with trailers of 16 bits: the blocks of the paper.
    pub const NARROW: Self = Self { symbol: NARROW };
    /// 1 KiB with trailers of 32 bits.
    pub const WIDE: Self = Self { symbol: WIDE };

    /// Trailers of 32 bits and a size of 1 to 64 KiB, stated in the symbol; `None` for another size.
    pub const fn sized(kibibytes: u16) -> Option<Self> {
        if kibibytes == 0 || kibibytes as usize > LARGEST_BLOCK_BYTES >> 10 {
            return None;
        }
        Some(Self { symbol: SIZED | (kibibytes - 1) << 8 })
    }

    /// The format whose blocks begin with this symbol, if there is one.
    pub const fn from_symbol(symbol: u16) -> Option<Self> {
        if symbol == NARROW || symbol == WIDE || symbol & !SIZE_BITS == SIZED { Some(Self { symbol }) } else { None }
    }

    /// The format of the block that these bytes begin with, if one begins here.
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        let (_, symbol) = bytes.first_chunk::<HEADER_BYTES>()?.split_at(2);
        Self::from_symbol(u16::from_le_bytes([symbol[0], symbol[1]]))
    }

    /// Offset of a block of this format that is followed by at least one other, if possible two. For streams that are
    /// joined in the middle, or lost bytes. Only a few blocks are examined: bytes lost further on have no effect.
    pub fn find(self, bytes: &[u8]) -> Option<usize> {
        let is_begin = |at| bytes.get(at..).and_then(Self::detect) == Some(self);
        let begins = |start, blocks| (0..blocks).all(|block| is_begin(start + block * self.block_bytes()));
        // One symbol in the middle of data proves nothing.
        [3, 2].into_iter().find_map(|blocks| (0..self.block_bytes()).find(|&start| begins(start, blocks)))
    }

    /// The start-of-block symbol.
    pub const fn symbol(self) -> u16 {
        self.symbol
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        if self.symbol & !SIZE_BITS == SIZED { (((self.symbol & SIZE_BITS) >> 8) as usize + 1) << 10 } else { 1 << 10 }
    }

    /// Bytes of a trailer, 2 or 4. Data are padded to a multiple of it.
    pub const fn trailer_bytes(self) -> usize {
        if self.symbol == NARROW { 2 } else { 4 }
    }

    /// The parameters of a [`Walker`].
    pub const fn layout(self) -> Layout {
        Layout { symbol: self.symbol, block_bytes: self.block_bytes(), is_wide: self.trailer_bytes() == 4 }
    }

    /// Maximum number of sub-chunks of a block.
    pub const fn most_sub_chunks(self) -> usize {
        (self.block_bytes() - HEADER_BYTES) / self.trailer_bytes()
    }

    /// Maximum bytes of a chunk in one block.
    pub const fn most_data_bytes(self) -> usize {
        self.block_bytes() - HEADER_BYTES - self.trailer_bytes()
    }
}

impl core::fmt::Display for BlockFormat {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (kibibytes, bits) = (self.block_bytes() >> 10, 8 * self.trailer_bytes());
        write!(out, "{:#06X}: {kibibytes} KiB, trailers of {bits} bits", self.symbol)
    }
}

/// Reason for rejecting a block. It loses its own chunks and the one that it interrupts; the next block of the e-link
/// continues.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[repr(u8)]
pub enum BlockError {
    /// There are fewer or more bytes than a block has.
    #[error("the block does not have the size of its kind")]
    Size = 1,
    /// The block does not begin with the symbol of its kind.
    #[error("the block does not begin with its start-of-block symbol")]
    StartOfBlock = 2,
    /// The first sub-chunk begins inside the header: a length was padded too far, or not in whole trailers.
    #[error("the walk ends inside the header: a length has the wrong padding")]
    Padding = 3,
    /// The first sub-chunk begins before the header.
    #[error("the trailer walk goes past the header")]
    PastHeader = 4,
    /// A trailer has the type that no card writes.
    #[error("a trailer has the undefined type")]
    Undefined = 5,
}

impl BlockError {
    /// All errors.
    pub const ALL: [Self; 5] = [Self::Size, Self::StartOfBlock, Self::Padding, Self::PastHeader, Self::Undefined];

    /// The error with this number, if there is one.
    pub const fn from_u8(number: u8) -> Option<Self> {
        if number > 0 && (number as usize) <= Self::ALL.len() { Some(Self::ALL[number as usize - 1]) } else { None }
    }

    /// Its stable name, used by users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "block_size",
            Self::StartOfBlock => "start_of_block",
            Self::Padding => "padding",
            Self::PastHeader => "past_header",
            Self::Undefined => "undefined_type",
        }
    }

    /// Its name in the ledger.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Padding | Self::PastHeader => Cause::LengthMismatch,
            Self::Size | Self::StartOfBlock | Self::Undefined => Cause::Malformed,
        }
    }
}

/// Reason for dropping a chunk.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[repr(u8)]
pub enum ChunkError {
    /// Blocks of the e-link are missing.
    #[error("the e-link's sequence has a gap")]
    SequenceGap = 0,
    /// The block that carried its continuation was damaged.
    #[error("the block that continued the chunk was damaged")]
    Damaged = 1,
    /// A middle or last piece arrives without a first one.
    #[error("the chunk never began")]
    NoFirst = 2,
    /// The next chunk begins before this one ended.
    #[error("the next chunk begins before this one ended")]
    NoLast = 3,
    /// The chunk is larger than allowed, or lies in more pieces.
    #[error("the chunk is larger than allowed")]
    Oversize = 4,
    /// Its blocks were needed before it ended.
    #[error("the chunk's blocks were needed before it ended")]
    Stalled = 5,
}

impl ChunkError {
    /// All errors, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::SequenceGap, Self::Damaged, Self::NoFirst, Self::NoLast, Self::Oversize, Self::Stalled];

    /// Its stable name, used by users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SequenceGap => "sequence_gap",
            Self::Damaged => "damaged",
            Self::NoFirst => "no_first",
            Self::NoLast => "no_last",
            Self::Oversize => "oversize",
            Self::Stalled => "stalled",
        }
    }

    /// Its name in the ledger.
    pub const fn cause(self) -> Cause {
        match self {
            Self::SequenceGap | Self::Damaged | Self::NoLast => Cause::CutShort,
            Self::NoFirst => Cause::Malformed,
            Self::Oversize => Cause::Oversize,
            Self::Stalled => Cause::TimedOut,
        }
    }
}

/// Maximum number of e-links of a card.
pub const ELINKS: usize = 1 << 11;

/// Modulus of sequence numbers.
pub const SEQUENCES: u8 = 1 << 5;

/// A stream of chunks: one electrical link of a front end, or one path of an optical link (11 bits).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ELink(u16);

impl ELink {
    /// The e-link with this number, below [`ELINKS`]; excess bits are cut off.
    #[inline]
    pub const fn new(number: u16) -> Self {
        Self(number & (ELINKS as u16 - 1))
    }

    /// The e-link of an optical link (5 bits), a group (3 bits) and a path (3 bits); excess bits are cut off.
    pub const fn of(link: u16, group: u16, path: u16) -> Self {
        Self((link & 0x1F) << 6 | (group & 7) << 3 | path & 7)
    }

    /// Its number, below [`ELINKS`].
    #[inline]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Its number as a table index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The optical link.
    pub const fn link(self) -> u16 {
        self.0 >> 6
    }

    /// The group on that link.
    pub const fn group(self) -> u16 {
        self.0 >> 3 & 7
    }

    /// The path in that group.
    pub const fn path(self) -> u16 {
        self.0 & 7
    }
}

impl core::fmt::Display for ELink {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "{}", self.0)
    }
}

/// The header of a block.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct BlockHeader {
    /// The e-link of the chunks.
    pub elink: ELink,
    /// Counts the blocks of this e-link from 0, modulo [`SEQUENCES`].
    pub sequence: u8,
}

impl BlockHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// If it does not have the symbol of this format.
    pub const fn parse(bytes: &[u8; HEADER_BYTES], format: BlockFormat) -> Result<Self, BlockError> {
        let word = u32::from_le_bytes(*bytes);
        if (word >> 16) as u16 != format.symbol() {
            return Err(BlockError::StartOfBlock);
        }
        Ok(Self::of_word(word))
    }

    /// The fields of a header that was checked before.
    #[inline]
    pub const fn of_word(word: u32) -> Self {
        Self { elink: ELink::new(word as u16), sequence: (word >> 11) as u8 & (SEQUENCES - 1) }
    }

    /// Encodes the header.
    pub const fn to_bytes(self, format: BlockFormat) -> [u8; HEADER_BYTES] {
        let fields = self.elink.0 | (self.sequence as u16 & (SEQUENCES as u16 - 1)) << 11;
        ((format.symbol() as u32) << 16 | fields as u32).to_le_bytes()
    }
}

/// Kind of a sub-chunk (3 bits).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum SubChunkType {
    /// No data: fills up a block.
    Null = 0,
    /// The beginning of a chunk.
    First = 1,
    /// The end of a chunk.
    Last = 2,
    /// A whole chunk.
    Both = 3,
    /// Neither the beginning nor the end of a chunk.
    Middle = 4,
    /// Filler: the e-link was silent for some time. With [`Status::TRUNCATED`]: data that the time-out cut off.
    Timeout = 5,
    /// Not written by any card.
    Undefined = 6,
    /// A signal outside the data, in the other bits of the trailer.
    OutOfBand = 7,
}

/// The card's flags of a chunk; several may be set.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u8);

impl Status {
    /// No flag.
    pub const GOOD: Self = Self(0);
    /// The front end is busy (only in trailers of 32 bits).
    pub const BUSY: Self = Self(1);
    /// The link's checksum is wrong.
    pub const CRC: Self = Self(2);
    /// The link had an error.
    pub const ERROR: Self = Self(4);
    /// The chunk was cut off.
    pub const TRUNCATED: Self = Self(8);
    /// It was cut off because its end did not arrive in time. Not a flag of the trailer, but derived from its type.
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

    /// The set flags, with their names, which are stable.
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

/// A trailer with the fields as in trailers of 32 bits. Trailers of 16 bits have the same fields at the same distance
/// from the top, a shorter length, and no place for [`Status::BUSY`].
#[derive(Copy, Clone, PartialEq, Eq, Hash)]
pub struct Trailer(pub u32);

impl Trailer {
    /// A trailer of `length` bytes of data; [`Status::TIMED_OUT`] has no place in it.
    #[inline]
    pub const fn new(kind: SubChunkType, length: u16, status: Status) -> Self {
        Self((kind as u32) << TYPE_SHIFT | (status.0 as u32 & 0xF) << STATUS_SHIFT | length as u32)
    }

    /// A signal of 13 bits, or of 29 bits in trailers of 32; excess bits are cut off.
    pub const fn out_of_band(signal: u32, format: BlockFormat) -> Self {
        let raw = if format.trailer_bytes() == 2 { (signal & 0x1FFF) << 16 } else { signal & 0x1FFF_FFFF };
        Self::of_word((SubChunkType::OutOfBand as u32) << TYPE_SHIFT | raw, format)
    }

    /// The trailer in the last bytes of `word`, a little-endian number: 32 bits, or 16 in its upper half.
    #[inline]
    pub const fn of_word(word: u32, format: BlockFormat) -> Self {
        if format.trailer_bytes() == 2 { Self(word & NARROW_FLAGS | word >> 16 & NARROW_LENGTH) } else { Self(word) }
    }

    /// The inverse of [`Self::of_word`]; a 16-bit trailer's lower half is 0. Excess bits are cut off.
    pub const fn to_word(self, format: BlockFormat) -> u32 {
        if format.trailer_bytes() == 2 { self.0 & NARROW_FLAGS | (self.0 & NARROW_LENGTH) << 16 } else { self.0 }
    }

    /// The kind of the sub-chunk.
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

    /// Bytes of data before the trailer, without padding: 0 for types without data, whatever the length field.
    #[inline]
    pub const fn data_bytes(self) -> u32 {
        match self.kind() {
            SubChunkType::Null | SubChunkType::OutOfBand => 0,
            _ => self.0 & LENGTH,
        }
    }

    /// The length field: the bytes of data, for a type known to have data.
    #[inline]
    pub const fn length(self) -> u32 {
        self.0 & LENGTH
    }

    /// The card's flags, and [`Status::TIMED_OUT`] according to the type.
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

    /// Whether the sub-chunk has data of a chunk.
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

/// The sub-chunks of a block, the last one first. Ends with the first sub-chunk, or with an error.
#[derive(Clone, Debug)]
pub struct Walk<'a> {
    block: &'a [u8],
    format: BlockFormat,
    header: BlockHeader,
    /// Beginning of the last sub-chunk read; the bytes before it are still to be read.
    end: usize,
}

impl<'a> Walk<'a> {
    /// Begins at the end of a block.
    ///
    /// # Errors
    /// If the bytes are not one block of this kind.
    pub fn new(block: &'a [u8], format: BlockFormat) -> Result<Self, BlockError> {
        let header = block.first_chunk().filter(|_| block.len() == format.block_bytes()).ok_or(BlockError::Size)?;
        Ok(Self { block, format, header: BlockHeader::parse(header, format)?, end: block.len() })
    }

    /// The block's header.
    pub const fn header(&self) -> BlockHeader {
        self.header
    }

    /// The sub-chunk that ends at `end`, which is behind the header.
    fn step(&self, end: usize) -> Result<SubChunk, BlockError> {
        let trailer_bytes = self.format.trailer_bytes();
        // Four bytes in any case: the header precedes even the shortest trailer.
        let word = self.block[..end].last_chunk().expect("no block is shorter than its header");
        let trailer = Trailer::of_word(u32::from_le_bytes(*word), self.format);
        if trailer.kind() == SubChunkType::Undefined {
            return Err(BlockError::Undefined);
        }
        let bytes = (trailer.data_bytes() as usize).next_multiple_of(trailer_bytes) + trailer_bytes;
        match end.checked_sub(bytes) {
            None => Err(BlockError::PastHeader),
            Some(start) if start < HEADER_BYTES => Err(BlockError::Padding),
            Some(start) => Ok(SubChunk { offset: start as u32, trailer: trailer.0 }),
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<SubChunk, BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.end <= HEADER_BYTES {
            return None;
        }
        let step = self.step(self.end);
        self.end = step.map_or(0, |sub_chunk| sub_chunk.offset as usize);
        Some(step)
    }
}

/// Appends the sub-chunks of one block in the order in which the card wrote them; their offsets count from the block's
/// beginning.
///
/// # Errors
/// If the bytes are not one good block of this kind; then nothing is appended.
pub fn walk(block: &[u8], format: BlockFormat, sub_chunks: &mut Vec<SubChunk>) -> Result<BlockHeader, BlockError> {
    let before = sub_chunks.len();
    let walk = Walk::new(block, format)?;
    let header = walk.header();
    for step in walk {
        match step {
            Ok(sub_chunk) => sub_chunks.push(sub_chunk),
            Err(error) => {
                sub_chunks.truncate(before);
                return Err(error);
            }
        }
    }
    sub_chunks[before..].reverse();
    Ok(header)
}
