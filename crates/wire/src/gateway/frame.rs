//! The eight bytes in front of every message.

use crate::frame::{FrameError, frame, kinds};

/// The version of these messages. One of another version is refused.
pub const GATEWAY_VERSION: u8 = 1;
/// The longest body, in bytes: as much as a datagram carries.
pub const LARGEST_BODY_BYTES: usize = 0xFFFF;

const MAGIC: [u8; 3] = [b'R', b'G', GATEWAY_VERSION];

kinds! {
    /// Node to gateway: which life, and room for so many events.
    Credit = 1,
    /// Gateway to node: events.
    Push = 2,
    /// Gateway to node: which sequence numbers there are.
    Progress = 3,
    /// Node to gateway: what was decided.
    Decisions = 4,
    /// Gateway to whoever wants them: decisions in the order of events.
    Stream = 5,
    /// Gateway to trigger: may triggers come?
    Throttle = 6,
}

/// The longest body of a message, in bytes.
const fn longest(_: Kind) -> usize {
    LARGEST_BODY_BYTES
}

// Messages of another version have another magic number.
frame!(MAGIC, longest);

impl Frame {
    /// Splits a message off the front of a datagram, or of what has come of a stream so far: its kind, its body, the rest.
    ///
    /// # Errors
    /// As [`Frame::parse`], and [`FrameError::Short`] where the message is not whole.
    pub fn split(bytes: &[u8]) -> Result<(Kind, &[u8], &[u8]), FrameError> {
        let (head, rest) = bytes.split_first_chunk().ok_or(FrameError::Short)?;
        let frame = Self::parse(head)?;
        let (body, rest) = rest.split_at_checked(frame.body as usize).ok_or(FrameError::Short)?;
        Ok((frame.kind, body, rest))
    }
}
