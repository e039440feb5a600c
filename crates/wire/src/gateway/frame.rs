//! The eight bytes in front of every message.

use crate::frame::{FrameError, kinds};

/// Bytes of a frame's head.
pub const FRAME_BYTES: usize = 8;
/// The version of these messages. One of another version is refused.
pub const GATEWAY_VERSION: u8 = 1;
/// The longest body, in bytes: as much as a datagram carries.
pub const LARGEST_BODY_BYTES: usize = 0xFFFF;

const MAGIC: [u8; 2] = *b"RG";

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

/// The head of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What follows.
    pub kind: Kind,
    /// Its length in bytes.
    pub body: u32,
}

impl Frame {
    /// The head's bytes.
    pub const fn to_bytes(self) -> [u8; FRAME_BYTES] {
        let [a, b, c, d] = self.body.to_le_bytes();
        [MAGIC[0], MAGIC[1], GATEWAY_VERSION, self.kind as u8, a, b, c, d]
    }

    /// Reads a head.
    ///
    /// # Errors
    /// [`FrameError::Magic`] where the bytes are something else or of another version, [`FrameError::Meaning`] for an
    /// unknown kind, [`FrameError::Long`] for a body that is too long.
    pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Self, FrameError> {
        let [m0, m1, version, kind, a, b, c, d] = *bytes;
        if [m0, m1] != MAGIC || version != GATEWAY_VERSION {
            return Err(FrameError::Magic);
        }
        let kind = Kind::from_u8(kind).ok_or(FrameError::Meaning)?;
        let body = u32::from_le_bytes([a, b, c, d]);
        if body as usize > LARGEST_BODY_BYTES { Err(FrameError::Long) } else { Ok(Self { kind, body }) }
    }

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
