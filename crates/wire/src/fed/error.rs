//! What can be wrong with a FED fragment.

use ropewalk_terms::Cause;

/// What is wrong with a FED fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FedError {
    /// Shorter than a header and a trailer, longer than the length field can say, or no whole number of words.
    #[error("the fragment's size is not that of a FED fragment")]
    Size,
    /// The first word is no header.
    #[error("the first word is no FED header")]
    Header,
    /// The last word is no trailer, or it announces another one behind it.
    #[error("the last word is no FED trailer")]
    Trailer,
    /// The trailer's length is not the fragment's.
    #[error("the trailer states another length")]
    Length,
    /// The header's source is not the expected one.
    #[error("the header names another source")]
    Source,
    /// The trailer's CRC does not match the bytes.
    #[error("the CRC does not match the bytes")]
    Crc,
}

impl FedError {
    /// The name under which the ledger counts it.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Size | Self::Header | Self::Trailer => Cause::Malformed,
            Self::Length => Cause::LengthMismatch,
            Self::Source => Cause::WrongSource,
            Self::Crc => Cause::CrcError,
        }
    }
}
