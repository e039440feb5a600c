//! What run control and front ends say to each other: every message, its direction and its bytes.
//!
//! ```text
//!   front end -> run control   Hello (first), Ready or Failed, Started, Enabled, Held, Released, Vetoed, Stopped, Status, Report
//!   run control -> front end   Welcome or Refuse (first), Configure, Start, Enable, Hold, Release, Veto, Stop, Ping
//!
//!   frame   "RWC" | kind | body length (u32)                                      8 bytes, little-endian
//!   text    length in bytes (u16) | UTF-8              list   entries (u16) | entry, entry, ...
//! ```
//! One connection lives over several runs. Each command names its run and is answered by one word, the same one however
//! often it comes: Configure by Ready or Failed, Start by Started, Enable by Enabled, Hold by Held, Release by Released, Veto by
//! Vetoed, Stop by Stopped, Ping by Status. Hold and Release are of version 2: who speaks version 1 is never told them. Data travel over a connection of their own, as generic fragments ([`generic`](crate::generic)).
//! `docs/front-end-control.md` shows the bytes.

mod command;
mod fields;
mod frame;
#[cfg(test)]
mod tests;
mod word;

pub use command::{Command, Configure, RefuseReason, Start, Stop};
pub use fields::{LARGEST_NAME_BYTES, LARGEST_SETTINGS_BYTES, LARGEST_TEXT_BYTES, MOST_NUMBERS, Named};
pub use frame::{FRAME_BYTES, Frame, Kind, LARGEST_BODY_BYTES};
pub use word::{ClockKind, Failed, Held, Hello, Reading, Stage, Status, Stopped, Vetoed, Word};

/// The version of these messages.
pub const CONTROL_VERSION: u16 = 2;
/// The oldest one that is still spoken: without [`Command::Hold`] and [`Command::Release`]. A hello with an older one, or with one
/// beyond [`CONTROL_VERSION`], is refused.
pub const OLDEST_CONTROL_VERSION: u16 = 1;

/// Whether messages of this version are understood.
const fn is_spoken(version: u16) -> bool {
    matches!(version, OLDEST_CONTROL_VERSION..=CONTROL_VERSION)
}

/// An event number that stands for "unknown": no event has it.
const UNKNOWN: u64 = u64::MAX;
