//! The eight bytes in front of every message.

use crate::frame::{FrameError, kinds};

/// Bytes of a frame's head.
pub const FRAME_BYTES: usize = 8;

/// The longest body of a message other than chunks, in bytes.
pub const LARGEST_CONTROL_BYTES: usize = 64 * 1024 + 64;

const MAGIC: [u8; 3] = *b"RWF";

kinds! {
    /// Who subscribes, and in which version.
    Hello = 1,
    /// The hello is accepted.
    Welcome = 2,
    /// The hello or the subscription is refused; the connection closes.
    Refuse = 3,
    /// Which e-links, and how.
    Subscribe = 4,
    /// The subscription is in force: chunks from here on.
    Subscribed = 5,
    /// Chunks.
    Chunks = 6,
    /// Chunks were dropped because the subscriber was too slow.
    Loss = 7,
    /// Nothing more will come.
    End = 8,
    /// Bytes for an e-link.
    Down = 9,
}

/// The head of a frame.
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
        [MAGIC[0], MAGIC[1], MAGIC[2], self.kind as u8, a, b, c, d]
    }

    /// Reads a head.
    ///
    /// # Errors
    /// [`FrameError::Magic`] where the bytes are something else, [`FrameError::Meaning`] for an unknown kind,
    /// [`FrameError::Long`] where a message that is not chunks is too long.
    pub fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<Self, FrameError> {
        let [m0, m1, m2, kind, a, b, c, d] = *bytes;
        if [m0, m1, m2] != MAGIC {
            return Err(FrameError::Magic);
        }
        let kind = Kind::from_u8(kind).ok_or(FrameError::Meaning)?;
        let body = u32::from_le_bytes([a, b, c, d]);
        if kind != Kind::Chunks && body as usize > LARGEST_CONTROL_BYTES {
            return Err(FrameError::Long);
        }
        Ok(Self { kind, body })
    }
}
