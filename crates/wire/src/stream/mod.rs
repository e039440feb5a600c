//! How chunks travel to whoever subscribed to them: every message, its direction and its bytes.
//!
//! ```text
//!   subscriber -> server   Hello, Subscribe (replaces what was asked for before), Down
//!   server -> subscriber   Welcome or Refuse (first), Subscribed, Chunks, Loss, DownRefused, End
//!
//!   frame    "RWF" | kind | body length (u32)                                  8 bytes, little-endian
//!   Chunks   count (u32) | count x head | the chunks' bytes, one after the other
//!   head     e-link (u16) | status (u8) | block sequence (u8) | length (u32)   8 bytes
//! ```
//! All heads of a message stand before all bytes, so that a server writes them in one piece and gathers the bytes from
//! where the card left them. Hello comes first and carries the version; another one is refused.

mod chunks;
mod control;
mod frame;
#[cfg(test)]
mod tests;

pub use chunks::{CHUNK_HEAD_BYTES, ChunkHead, ChunksView, MOST_CHUNKS, PREFIX_BYTES, encode_heads, heads_bytes};
pub use control::{
    Balance, Down, DownRefusal, DownRefused, End, Hello, LARGEST_DOWN_BYTES, Loss, MOST_RANGES, Message, Policy, Range,
    RefuseReason, Share, Subscribe, Subscribed,
};
pub use frame::{FRAME_BYTES, Frame, Kind, LARGEST_CONTROL_BYTES};

/// The version of these messages. A hello with another one is refused.
pub const STREAM_VERSION: u16 = 1;
