//! What all records have in common: header, alignment, checksum.
//!
//! ```text
//!  0 "RWKR"            4 u16 kind    6 u16 flags, 0    8 u32 length of the record, a multiple of 8
//! 12 u32 CRC-32C of the 12 bytes before    16 content ...    length - 4: u32 CRC-32C of everything before
//! ```

use super::checksum::{Checksum, crc32c};
use super::fields::{Fill, u16_at, u32_at};

/// The bytes that every record begins with.
pub const RECORD_MAGIC: [u8; 4] = *b"RWKR";
/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 16;
/// The longest record that is written or believed, in bytes.
pub const MAX_RECORD_BYTES: usize = 1 << 30;

/// Bytes of the checksum at a record's end.
const CHECKSUM_BYTES: usize = 4;
/// Every record's length is a multiple of this, in bytes.
const ALIGNMENT: usize = 8;
/// Bytes of the header that its own checksum covers.
const CHECKED_HEADER_BYTES: usize = 12;

/// Why bytes are not the record that was expected.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The bytes end before the record does.
    #[error("the bytes end before the record does")]
    Short,
    /// No record begins here.
    #[error("no record begins here")]
    Magic,
    /// The header's own checksum is wrong.
    #[error("the record header's checksum is wrong")]
    HeaderChecksum,
    /// The length is no multiple of 8, or below the least or above the greatest length of a record.
    #[error("no record has this length")]
    Length,
    /// The record's checksum is wrong.
    #[error("the record's checksum is wrong")]
    Checksum,
    /// The record is whole, but of another kind than the one that was asked for.
    #[error("a record of another kind stands here")]
    Kind,
    /// The file was written in a major version that this reader does not know.
    #[error("run file version {major}.{minor}, this program reads version {known}.x", known = super::MAJOR_VERSION)]
    Version {
        /// Major version of the file.
        major: u16,
        /// Minor version of the file.
        minor: u16,
    },
    /// The content contradicts itself: a table or a payload reaches beyond the record.
    #[error("the record's content contradicts itself")]
    Content,
    /// What is to be written does not fit: the buffer is too short or the record would be too long.
    #[error("the record does not fit")]
    Room,
    /// The payload that followed the head is not as long as the head says.
    #[error("the payload is not as long as the record's head says")]
    Payload,
}

/// What a record holds. Kinds without a name here are stepped over.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct RecordKind(pub u16);

impl RecordKind {
    /// The first record of a segment.
    pub const SEGMENT: Self = Self(1);
    /// The run began.
    pub const BEGIN_OF_RUN: Self = Self(2);
    /// One event.
    pub const EVENT: Self = Self(3);
    /// The run ended.
    pub const END_OF_RUN: Self = Self(4);
    /// The last record of a segment: the index of its events.
    pub const FOOTER: Self = Self(5);
    /// A stretch of a packed segment.
    pub const PACKED: Self = Self(6);
    /// A slow reading.
    pub const SLOW_CONTROL: Self = Self(16);
    /// Reserved: scalers.
    pub const SCALER: Self = Self(17);
    /// Reserved: a change of the run's state.
    pub const STATE: Self = Self(18);
    /// Reserved: the begin or end of a spill.
    pub const SPILL: Self = Self(19);
    /// Reserved: data that came after its event was finished.
    pub const LATE_DATA: Self = Self(20);

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SEGMENT => "segment header",
            Self::BEGIN_OF_RUN => "begin of run",
            Self::EVENT => "event",
            Self::END_OF_RUN => "end of run",
            Self::FOOTER => "footer",
            Self::PACKED => "packed stretch",
            Self::SLOW_CONTROL => "slow control",
            Self::SCALER => "scaler",
            Self::STATE => "state",
            Self::SPILL => "spill",
            Self::LATE_DATA => "late data",
            _ => "unknown",
        }
    }
}

/// The header of a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// What the record holds.
    pub kind: RecordKind,
    /// Always 0 in version 1.0; readers ignore what they do not know.
    pub flags: u16,
    /// Bytes of the whole record: header, content, padding, checksum.
    pub length: u32,
}

impl RecordHeader {
    /// The header at the front of `bytes`.
    ///
    /// # Errors
    /// [`RecordError::Magic`], [`RecordError::HeaderChecksum`], [`RecordError::Length`], or [`RecordError::Short`]
    /// where the bytes may become a header when more of them come.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let seen = bytes.len().min(RECORD_MAGIC.len());
        if bytes[..seen] != RECORD_MAGIC[..seen] {
            return Err(RecordError::Magic);
        }
        let header = bytes.first_chunk::<RECORD_HEADER_BYTES>().ok_or(RecordError::Short)?;
        if u32_at(header, CHECKED_HEADER_BYTES) != crc32c(0, &header[..CHECKED_HEADER_BYTES]) {
            return Err(RecordError::HeaderChecksum);
        }
        let length = u32_at(header, 8);
        if !(record_bytes(RECORD_HEADER_BYTES)..=MAX_RECORD_BYTES).contains(&(length as usize))
            || !length.is_multiple_of(ALIGNMENT as u32)
        {
            return Err(RecordError::Length);
        }
        Ok(Self { kind: RecordKind(u16_at(header, 4)), flags: u16_at(header, 6), length })
    }

    /// The header's bytes.
    pub fn encode(self) -> [u8; RECORD_HEADER_BYTES] {
        let mut header = [0; RECORD_HEADER_BYTES];
        Fill::new(&mut header).bytes(&RECORD_MAGIC).u16(self.kind.0).u16(self.flags).u32(self.length);
        let checksum = crc32c(0, &header[..CHECKED_HEADER_BYTES]);
        Fill::new(&mut header[CHECKED_HEADER_BYTES..]).u32(checksum);
        header
    }
}

/// Bytes of the record whose header and content take `content` bytes.
pub(super) const fn record_bytes(content: usize) -> usize {
    (content + CHECKSUM_BYTES).next_multiple_of(ALIGNMENT)
}

/// The end of a record: zeros to the alignment, then the checksum.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecordTail {
    bytes: [u8; ALIGNMENT + CHECKSUM_BYTES],
    length: usize,
}

impl RecordTail {
    /// The tail behind `content` bytes (header included) that `checksum` was fed with.
    pub(super) fn new(content: usize, mut checksum: Checksum) -> Self {
        let length = record_bytes(content) - content;
        let mut bytes = [0; ALIGNMENT + CHECKSUM_BYTES];
        let padding = length - CHECKSUM_BYTES;
        checksum.update(&bytes[..padding]);
        Fill::new(&mut bytes[padding..]).u32(checksum.value());
        Self { bytes, length }
    }

    /// The bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A record in memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    header: RecordHeader,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the front of `bytes`; what follows it is ignored.
    ///
    /// # Errors
    /// As [`RecordHeader::decode`], and [`RecordError::Short`] or [`RecordError::Checksum`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let record = Self::parse_unchecked(bytes)?;
        let content = &record.bytes[..record.bytes.len() - CHECKSUM_BYTES];
        if u32_at(record.bytes, content.len()) != crc32c(0, content) {
            return Err(RecordError::Checksum);
        }
        Ok(record)
    }

    /// As [`Record::parse`], but without the record's checksum: for bytes that were checked before.
    ///
    /// # Errors
    /// As [`RecordHeader::decode`], and [`RecordError::Short`].
    pub fn parse_unchecked(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let header = RecordHeader::decode(bytes)?;
        let bytes = bytes.get(..header.length as usize).ok_or(RecordError::Short)?;
        Ok(Self { header, bytes })
    }

    /// What the record holds.
    pub const fn kind(&self) -> RecordKind {
        self.header.kind
    }

    /// Bytes of the whole record.
    pub const fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The whole record.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Header, content and padding: everything but the checksum, so that places count from the record's start.
    pub(super) fn content(&self) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - CHECKSUM_BYTES]
    }

    /// The content of a record of this kind that has at least `least` bytes, its header included.
    pub(super) fn content_of(&self, kind: RecordKind, least: usize) -> Result<&'a [u8], RecordError> {
        if self.kind() != kind {
            return Err(RecordError::Kind);
        }
        let content = self.content();
        if content.len() < least { Err(RecordError::Content) } else { Ok(content) }
    }
}

/// Appends a record: reserves the header, lets `fill` append the content, then seals it.
///
/// # Errors
/// [`RecordError::Room`] where the record would be longer than [`MAX_RECORD_BYTES`]; `out` is then as it was.
pub(super) fn append_record(
    out: &mut Vec<u8>,
    kind: RecordKind,
    fill: impl FnOnce(&mut Vec<u8>),
) -> Result<(), RecordError> {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    fill(out);
    let content = out.len() - start;
    let length = record_bytes(content);
    if length > MAX_RECORD_BYTES {
        out.truncate(start);
        return Err(RecordError::Room);
    }
    let header = RecordHeader { kind, flags: 0, length: length as u32 };
    out[start..start + RECORD_HEADER_BYTES].copy_from_slice(&header.encode());
    let mut checksum = Checksum::default();
    checksum.update(&out[start..]);
    out.extend_from_slice(RecordTail::new(content, checksum).as_bytes());
    Ok(())
}
