//! Messages whose header says how long they are; nearly all do.

use super::{Framer, FramingError};

/// A piece of a message that a header describes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its bytes, the header included.
    pub bytes: u64,
    /// The message ends with it; otherwise another header follows.
    pub is_last: bool,
}

/// What a header says.
pub trait HeaderRule: Send {
    /// Bytes of the next header, 1 to [`ByHeader::MOST_HEADER_BYTES`].
    fn header_bytes(&self) -> usize;

    /// What follows, by a header of that many bytes.
    ///
    /// # Errors
    /// It is none.
    fn part(&mut self, header: &[u8]) -> Result<Part, FramingError>;
}

/// A framer that goes by headers.
#[derive(Debug)]
pub struct ByHeader<R> {
    rule: R,
    most: u64,
    /// The header, as far as it has come.
    header: [u8; 64],
    have: usize,
    /// Bytes that are left of the present part, behind its header.
    left: u64,
    is_last: bool,
    /// Bytes of the present message, by the headers so far.
    message: u64,
}

impl<R: HeaderRule> ByHeader<R> {
    /// Longer headers are not supported.
    pub const MOST_HEADER_BYTES: usize = 64;

    /// Goes by this rule, and believes in no message of more than `most` bytes, headers included.
    pub const fn new(rule: R, most: u64) -> Self {
        Self { rule, most, header: [0; 64], have: 0, left: 0, is_last: false, message: 0 }
    }

    /// Takes bytes of the header; returns how many.
    fn read_header(&mut self, bytes: &[u8]) -> Result<usize, FramingError> {
        let length = self.rule.header_bytes().clamp(1, Self::MOST_HEADER_BYTES);
        let taken = (length - self.have).min(bytes.len());
        self.header[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
        self.have += taken;
        if self.have == length {
            let Part { bytes, is_last } = self.rule.part(&self.header[..length])?;
            let behind = bytes.checked_sub(length as u64);
            let behind = behind.ok_or(FramingError::Malformed("it states fewer bytes than its header has"))?;
            self.message = self.message.saturating_add(bytes);
            if self.message > self.most {
                return Err(FramingError::TooLong { bytes: self.message, most: self.most });
            }
            (self.have, self.left, self.is_last) = (0, behind, is_last);
        }
        Ok(taken)
    }

    const fn is_between(&self) -> bool {
        self.left == 0 && self.have == 0
    }
}

impl<R: HeaderRule> Framer for ByHeader<R> {
    fn boundary(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError> {
        let mut at = 0;
        while at < bytes.len() {
            if self.left == 0 {
                at += self.read_header(&bytes[at..])?;
            } else {
                let taken = self.left.min((bytes.len() - at) as u64);
                self.left -= taken;
                at += taken as usize;
            }
            if self.is_between() && self.is_last {
                (self.is_last, self.message) = (false, 0);
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}
