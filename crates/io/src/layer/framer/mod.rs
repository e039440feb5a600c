//! Where messages end in a stream of bytes, as the user defines it.
//!
//! A framer is told every byte once, in order, where it lies; it copies nothing but headers that were cut.

mod by_header;
mod ready;
#[cfg(test)]
mod tests;

pub use self::by_header::{ByHeader, HeaderRule, Part};
pub use self::ready::{Ferol, FixedSize, Generic, I2o, LengthField, NodeMessages};

/// The bytes are no message. The end point ends, since nobody knows where the next one begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FramingError {
    /// The header makes no sense.
    #[error("no message begins here: {0}")]
    Malformed(&'static str),
    /// The message states more bytes than allowed.
    #[error("a message of {bytes} bytes, where {most} are allowed")]
    TooLong {
        /// What it states.
        bytes: u64,
        /// What is allowed.
        most: u64,
    },
}

/// Finds the ends of messages.
pub trait Framer: Send {
    /// Looks at bytes that follow those of the last call. `Some(n)`: the message ends with the `n`-th of them (1 or
    /// more), and the next call begins with the next message. `None`: all of them belong to a message that goes on.
    ///
    /// # Errors
    /// There is no message here.
    fn boundary(&mut self, bytes: &[u8]) -> Result<Option<usize>, FramingError>;
}
