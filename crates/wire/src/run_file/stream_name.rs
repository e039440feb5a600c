//! The names of streams: short, so that a name of a file can be `Copy`, and of letters that no file system and no
//! shell takes amiss.

use core::fmt;
use core::str::FromStr;

/// The name of a stream: small letters, digits and `_`, at most [`StreamName::MOST_BYTES`]; empty where the writer has
/// one stream that needs no name.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamName([u8; Self::MOST_BYTES]);

/// The text is not the name of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a stream's name has 1 to {} bytes of a-z, 0-9 and _", StreamName::MOST_BYTES)]
pub struct NotAStreamName;

impl StreamName {
    /// The longest name, in bytes.
    pub const MOST_BYTES: usize = 32;
    /// Of the only stream of a writer that divides nothing.
    pub const UNNAMED: Self = Self([0; Self::MOST_BYTES]);

    /// The name as text; empty for [`StreamName::UNNAMED`].
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(Self::MOST_BYTES);
        // Only ASCII gets in.
        str::from_utf8(&self.0[..end]).unwrap_or_default()
    }

    /// Whether it is [`StreamName::UNNAMED`].
    pub const fn is_unnamed(&self) -> bool {
        self.0[0] == 0
    }
}

impl FromStr for StreamName {
    type Err = NotAStreamName;

    fn from_str(text: &str) -> Result<Self, NotAStreamName> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if text.is_empty() || text.len() > Self::MOST_BYTES || !text.bytes().all(is_allowed) {
            return Err(NotAStreamName);
        }
        let mut name = [0; Self::MOST_BYTES];
        name[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self(name))
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for StreamName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.as_str())
    }
}
