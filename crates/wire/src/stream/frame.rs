//! The eight bytes in front of every message.

use crate::frame::{FrameError, frame, kinds};

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
    /// Bytes for an e-link were refused; the connection goes on.
    DownRefused = 10,
}

/// The longest body of a message, in bytes: of chunks there may be any number.
const fn longest(kind: Kind) -> usize {
    if matches!(kind, Kind::Chunks) { usize::MAX } else { LARGEST_CONTROL_BYTES }
}

frame!(MAGIC, longest);
