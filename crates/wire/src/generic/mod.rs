//! The generic fragment: Ropewalk's own format over TCP, for front ends that speak no other
//! (`docs/generic-fragment.md`; senders in `examples/senders/`).
//!
//! A connection begins with one [`Hello`] of 64 bytes. Then each fragment is a [`Header`] of 32 bytes and its
//! payload, back to back. All numbers are little-endian.

mod fragment;
mod hello;
#[cfg(test)]
mod tests;

pub use fragment::{Flags, Fragment, Header, OwnedFragment, encode};
pub use hello::{Hello, HelloFlags, Name, NameError};

use crate::framing::Front;
use ropewalk_terms::Cause;

/// The version of the format. Another one is refused.
pub const VERSION: u8 = 1;

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 64;

/// Bytes of a fragment's header.
pub const HEADER_BYTES: usize = 32;

/// The longest name of a front end, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 32;

/// What is wrong with a hello or a fragment's header.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GenericError {
    /// The bytes do not begin with the magic number.
    #[error("no generic hello or fragment begins here (wrong magic number)")]
    Magic,
    /// The sender speaks another version of the format.
    #[error("the sender speaks another version of the generic format")]
    Version,
    /// The hello's name is no UTF-8, or has bytes behind its end.
    #[error("the name in the hello is not UTF-8 filled up with zeros")]
    Name,
    /// The header names another source than the hello or the configuration.
    #[error("the header names another source")]
    Source,
    /// The header states a longer payload than allowed.
    #[error("the payload is longer than allowed")]
    Oversize,
}

impl GenericError {
    /// The name under which the ledger counts it.
    pub const fn cause(self) -> Cause {
        match self {
            Self::Magic | Self::Version => Cause::FramingLost,
            Self::Name => Cause::Malformed,
            Self::Source => Cause::WrongSource,
            Self::Oversize => Cause::Oversize,
        }
    }

    /// Whether the boundary of the next fragment is unknown, so that the connection must be closed.
    pub const fn loses_framing(self) -> bool {
        !matches!(self, Self::Source)
    }
}

/// What stands at the front of a stream: a hello, or a fragment.
pub fn front(bytes: &[u8]) -> Front {
    if bytes.len() >= 4 && Hello::may_begin_with(bytes) {
        return if bytes.len() < HELLO_BYTES {
            Front::Needs { bytes: HELLO_BYTES }
        } else {
            Front::Frame { bytes: HELLO_BYTES }
        };
    }
    let Some(header) = bytes.first_chunk() else { return Front::Needs { bytes: HEADER_BYTES } };
    match Header::parse(header) {
        Ok(header) if bytes.len() < header.fragment_bytes() => Front::Needs { bytes: header.fragment_bytes() },
        Ok(header) => Front::Frame { bytes: header.fragment_bytes() },
        Err(error) => Front::Lost { cause: error.cause() },
    }
}

/// The bytes `at .. at + N`.
const fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    let mut index = 0;
    while index < N {
        array[index] = bytes[at + index];
        index += 1;
    }
    array
}
