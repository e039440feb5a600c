//! Framers for what is around: lengths in front, fixed sizes, and the formats of this field.

use ropewalk_wire::{ferol, generic, message};

use super::{ByHeader, Framer, FramingError, HeaderRule, Part};

/// Every message has the same size.
#[derive(Debug)]
pub struct FixedSize {
    bytes: usize,
    left: usize,
}

impl FixedSize {
    /// Messages of so many bytes; at least 1.
    pub const fn new(bytes: usize) -> Self {
        let bytes = if bytes == 0 { 1 } else { bytes };
        Self { bytes, left: bytes }
    }
}

impl Framer for FixedSize {
    fn boundary(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        if bytes.len() < self.left {
            self.left -= bytes.len();
            return Ok(None);
        }
        Ok(Some(core::mem::replace(&mut self.left, self.bytes)))
    }
}

/// The length stands in the header, as a number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LengthField {
    /// Bytes of the header, 1 to 64.
    pub header: usize,
    /// Where in it the length begins.
    pub at: usize,
    /// Bytes of the length: 1 to 8.
    pub width: usize,
    /// The most significant byte comes first.
    pub is_big_endian: bool,
    /// Bytes that a length of 1 stands for.
    pub unit: u64,
    /// The length counts the header too.
    pub counts_header: bool,
}

impl LengthField {
    /// A length of 32 bits, the least significant byte first, and then so many bytes.
    pub const U32: Self = Self { header: 4, at: 0, width: 4, is_big_endian: false, unit: 1, counts_header: false };

    /// A framer for messages of at most so many bytes.
    pub const fn framer(self, most: u64) -> ByHeader<Self> {
        ByHeader::new(self, most)
    }
}

impl HeaderRule for LengthField {
    fn header_bytes(&self) -> usize {
        self.header
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        let end = self.at.saturating_add(self.width);
        let field = header.get(self.at..end).filter(|field| (1..=8).contains(&field.len()));
        let field = field.ok_or(FramingError::Malformed("the length does not lie in the header"))?;
        let digit = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let number = if self.is_big_endian { field.iter().fold(0, digit) } else { field.iter().rev().fold(0, digit) };
        let beside = if self.counts_header { 0 } else { self.header as u64 };
        Ok(Part { bytes: number.saturating_mul(self.unit).saturating_add(beside), is_last: true })
    }
}

/// I2O private frames (FORMATS section 2): the size in 32-bit words stands in the first one's upper half.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct I2o;

impl I2o {
    /// A framer for frames of any size that can be stated: up to 65,535 words.
    pub const fn framer() -> ByHeader<Self> {
        ByHeader::new(Self, 4 * 65_535)
    }
}

impl HeaderRule for I2o {
    fn header_bytes(&self) -> usize {
        4
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        let words = header.get(2..4).and_then(|size| size.try_into().ok()).map_or(0, u16::from_le_bytes);
        Ok(Part { bytes: 4 * u64::from(words), is_last: true })
    }
}

/// FED fragments in FEROL blocks: a message is all blocks of a fragment, headers included.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Ferol;

impl Ferol {
    /// A framer for fragments of at most so many bytes, headers of blocks included.
    pub const fn framer(most: u64) -> ByHeader<Self> {
        ByHeader::new(Self, most)
    }
}

impl HeaderRule for Ferol {
    fn header_bytes(&self) -> usize {
        ferol::HEADER_BYTES
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        let header = header.first_chunk().ok_or(FramingError::Malformed("a FEROL header that was cut"))?;
        let block = ferol::BlockHeader::parse(header);
        let block = block.map_err(|_| FramingError::Malformed("not the header of a FEROL block"))?;
        Ok(Part { bytes: block.block_bytes() as u64, is_last: block.last })
    }
}

/// Generic fragments (`docs/generic-fragment.md`): the hello, and then each fragment, is a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Generic {
    has_greeted: bool,
}

impl Generic {
    /// A framer for fragments of at most so many bytes, headers included.
    pub const fn framer(most: u64) -> ByHeader<Self> {
        ByHeader::new(Self { has_greeted: false }, most)
    }
}

impl HeaderRule for Generic {
    fn header_bytes(&self) -> usize {
        if self.has_greeted { generic::HEADER_BYTES } else { generic::HELLO_BYTES }
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        if let (false, Some(hello)) = (self.has_greeted, header.first_chunk()) {
            generic::Hello::parse(hello).map_err(|_| FramingError::Malformed("no hello of generic fragments"))?;
            self.has_greeted = true;
            return Ok(Part { bytes: generic::HELLO_BYTES as u64, is_last: true });
        }
        let header = header.first_chunk().ok_or(FramingError::Malformed("a header that was cut"))?;
        let header = generic::Header::parse(header);
        let header = header.map_err(|_| FramingError::Malformed("not the header of a generic fragment"))?;
        Ok(Part { bytes: header.fragment_bytes() as u64, is_last: true })
    }
}

/// Messages between nodes (`wire::message`).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeMessages;

impl NodeMessages {
    /// A framer for messages of at most so many bytes, headers included.
    pub const fn framer(most: u64) -> ByHeader<Self> {
        ByHeader::new(Self, most)
    }
}

impl HeaderRule for NodeMessages {
    fn header_bytes(&self) -> usize {
        message::HEADER_BYTES
    }

    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError> {
        let header = header.first_chunk().ok_or(FramingError::Malformed("a header that was cut"))?;
        let header = message::Header::decode(header);
        let header = header.map_err(|_| FramingError::Malformed("not the header of a node message"))?;
        Ok(Part { bytes: message::HEADER_BYTES as u64 + u64::from(header.body), is_last: true })
    }
}
