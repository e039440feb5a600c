//! Events: their headers of every version, and what lies behind them.

use super::FrdError;
use crate::fed;
use crate::framing::{Part, Window};
use crate::layout::ChecksumKind;
use core::ops::Range;

/// Bytes of the longest header.
pub const MOST_HEADER_BYTES: usize = 32;
/// Bytes of a word.
const WORD: usize = 4;

/// Which layout an event's header has.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// 28 bytes, with padding and Adler-32.
    V3 = 3,
    /// 32 bytes: as version 3, with event numbers of 64 bits.
    V4 = 4,
    /// 24 bytes, without padding, with CRC-32C.
    V5 = 5,
    /// As version 5, with flags beside the version.
    V6 = 6,
}

impl Version {
    /// Bytes of its header.
    pub const fn header_bytes(self) -> usize {
        WORD * match self {
            Self::V3 => 7,
            Self::V4 => 8,
            Self::V5 | Self::V6 => 6,
        }
    }

    /// Whether padding may follow the data.
    pub const fn has_padding(self) -> bool {
        matches!(self, Self::V3 | Self::V4)
    }

    /// How the data's checksum is computed.
    pub const fn checksum(self) -> ChecksumKind {
        if self.has_padding() { ChecksumKind::Adler32 } else { ChecksumKind::Crc32c }
    }
}

/// The header of an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EventHeader {
    /// Its layout.
    pub version: Version,
    /// Flags, of version 6 alone.
    pub flags: u16,
    /// The run.
    pub run: u32,
    /// The lumisection, counted from 1.
    pub lumisection: u32,
    /// The event's number: of 32 bits, but in version 4.
    pub event: u64,
    /// Bytes of the data.
    pub data_bytes: u32,
    /// Bytes of padding behind them; 0 in versions without.
    pub padding_bytes: u32,
    /// The checksum of the data.
    pub checksum: u32,
}

impl EventHeader {
    /// The header at the front of `window`.
    ///
    /// # Errors
    /// [`FrdError::Short`] with how many bytes a header needs, [`FrdError::Version`].
    pub fn read(window: &(impl Window + ?Sized)) -> Result<Self, FrdError> {
        let first = u32::from_le_bytes(window.array(0).ok_or(FrdError::Short { needed: WORD })?);
        let (version, flags) = match (first & 0xFFFF, (first >> 16) as u16) {
            (3, 0) => (Version::V3, 0),
            (4, 0) => (Version::V4, 0),
            (5, 0) => (Version::V5, 0),
            (6, flags) => (Version::V6, flags),
            _ => return Err(FrdError::Version { version: first }),
        };
        let mut bytes = [0; MOST_HEADER_BYTES];
        let needed = version.header_bytes();
        if !window.read(0, &mut bytes[..needed]) {
            return Err(FrdError::Short { needed });
        }
        let mut words = bytes.as_chunks().0.iter().skip(1).map(|&word| u32::from_le_bytes(word));
        let mut next = || words.next().unwrap_or_default();
        let (run, lumisection, low) = (next(), next(), next());
        let high = if version == Version::V4 { next() } else { 0 };
        let data_bytes = next();
        let padding_bytes = if version.has_padding() { next() } else { 0 };
        let event = u64::from(high) << 32 | u64::from(low);
        Ok(Self { version, flags, run, lumisection, event, data_bytes, padding_bytes, checksum: next() })
    }

    /// Appends the header.
    ///
    /// # Errors
    /// [`FrdError::EventNumber`] where the number does not fit; nothing is appended then.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), FrdError> {
        let high = (self.event >> 32) as u32;
        if high != 0 && self.version != Version::V4 {
            return Err(FrdError::EventNumber { event: self.event });
        }
        let first = self.version as u32 | u32::from(self.flags) << 16;
        let mut word = |word: u32| out.extend_from_slice(&word.to_le_bytes());
        [first, self.run, self.lumisection, self.event as u32].into_iter().for_each(&mut word);
        if self.version == Version::V4 {
            word(high);
        }
        word(self.data_bytes);
        if self.version.has_padding() {
            word(self.padding_bytes);
        }
        word(self.checksum);
        Ok(())
    }

    /// Where the data lie, in bytes from the header's begin.
    pub const fn data(&self) -> Range<usize> {
        let begin = self.version.header_bytes();
        begin..begin + self.data_bytes as usize
    }

    /// Bytes of the event: header, data and padding.
    pub const fn event_bytes(&self) -> u64 {
        self.version.header_bytes() as u64 + self.data_bytes as u64 + self.padding_bytes as u64
    }

    /// Whether the checksum is that of the data in the event at the front of `window`.
    pub fn is_right(&self, window: &(impl Window + ?Sized)) -> bool {
        let data = Part::new(window, self.data().start, self.data_bytes as usize);
        data.len() == self.data_bytes as usize && self.checksum == checksum_of(self.version, data.pieces(0))
    }
}

/// The checksum that an event's header has of these pieces of data.
pub fn checksum_of<'a>(version: Version, data: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    version.checksum().of(data) as u32
}

/// A view over the bytes of a whole event, whose checksum is not checked yet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    header: EventHeader,
    bytes: &'a [u8],
}

impl<'a> Event<'a> {
    /// The event at the front of `bytes`; what is behind it is left alone.
    ///
    /// # Errors
    /// As [`EventHeader::read`]; [`FrdError::Short`] where the event goes on behind the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FrdError> {
        let header = EventHeader::read(bytes)?;
        let length = usize::try_from(header.event_bytes()).unwrap_or(usize::MAX);
        let bytes = bytes.get(..length).ok_or(FrdError::Short { needed: length })?;
        Ok(Self { header, bytes })
    }

    /// Its header.
    pub const fn header(&self) -> EventHeader {
        self.header
    }

    /// The whole event.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// FED fragments, back to back.
    pub fn data(&self) -> &'a [u8] {
        &self.bytes[self.header.data()]
    }

    /// What stands behind the data.
    pub fn padding(&self) -> &'a [u8] {
        &self.bytes[self.header.data().end..]
    }

    /// Whether the checksum is right.
    pub fn is_right(&self) -> bool {
        self.header.is_right(self.bytes)
    }

    /// The fragments, each as a range of [`Event::data`]; none where the data do not fall apart into fragments.
    pub fn fragments(&self) -> Option<Vec<Range<usize>>> {
        fed::split_event(self.data())
    }
}

/// Appends an event of these pieces of data, without padding; lengths and checksum in `header` are set to theirs.
///
/// # Errors
/// [`FrdError::EventNumber`] or [`FrdError::Long`]; nothing is appended then.
pub fn encode_event(header: EventHeader, data: &[&[u8]], out: &mut Vec<u8>) -> Result<(), FrdError> {
    let bytes = data.iter().map(|piece| piece.len()).sum();
    let data_bytes = u32::try_from(bytes).map_err(|_| FrdError::Long { bytes })?;
    let checksum = checksum_of(header.version, data.iter().copied());
    EventHeader { data_bytes, padding_bytes: 0, checksum, ..header }.encode(out)?;
    data.iter().for_each(|piece| out.extend_from_slice(piece));
    Ok(())
}
