//! Every message of a gateway: its direction, its fields, its bytes. The push protocol in one place.
//!
//! ```text
//!   node -> gateway     Credit      which life, room for so many events; repeated, so it is a heartbeat as well
//!                       Decisions   what was decided: a count, a bitmap, and the decisions themselves, some of them again
//!   gateway -> node     Push        events, or parts of them, each with its sequence number
//!                       Progress    which sequence numbers there are, when nothing is pushed
//!   gateway -> trigger  Throttle    may triggers come? absolute, repeated
//!   gateway -> whoever  Stream      decisions in the order of events
//!
//!   frame    "RG" | version (u8) | kind (u8) | body length (u32)        8 bytes, little-endian
//!   Push     frame | gateway (u16) | pieces (u16) | 0 (u32) | incarnation (u64) | floor (u64) | pieces
//!   piece    sequence (u64) | key (u64) | flow (u8) | flags (u8) | attempt (u16) | total (u32) | offset (u32) | length (u32)
//!            | that many bytes of the event
//!   event    raw banks, in the order of the configured sources
//! ```
//! A message is the same in a datagram and in a stream (TCP): its frame says where it ends. Datagrams may be lost, come
//! twice and in any order:
//! - A gateway gives each event that it pushes to a node a *sequence number*, from 0, one more for each. Parts of one event
//!   have the same one, and each says where it lies: they need no order.
//! - What a node decided is told in three ways: every sequence number below `cumulative`; those behind it in a bitmap; and
//!   the decisions themselves, of which each message repeats the latest ones of those before. So a lost message loses no
//!   credit, and seldom a decision.
//! - A node sees by the numbers that a push was lost, and says so as a decision ([`Verdict::NotReceived`]).
//! - *Floor*: no decision is awaited any more for sequence numbers below it. The node forgets them, and says so: it answers
//!   progress by decisions, with entries or without, since what it may still have counts against its credit.
//! - Whoever starts again has a larger incarnation; what comes from or is meant for an earlier one is ignored.
//! - An event may go to another node when the first one is silent, with the next *attempt*.

mod decisions;
mod event;
mod frame;
mod state;
#[cfg(test)]
mod tests;

pub use decisions::{
    BITMAP_WORDS, Credit, Decision, Decisions, MOST_DECISIONS, MOST_OUTSTANDING, Stream, StreamEntry, Verdict,
};
pub use event::{
    Copying, EventFlags, PIECE_HEAD_BYTES, PUSH_HEAD_BYTES, PieceHead, Pieces, PushHead, PushView, copy_piece,
};
pub use frame::{FRAME_BYTES, Frame, GATEWAY_VERSION, Kind, LARGEST_BODY_BYTES};
pub use state::{Message, Progress, Throttle, ThrottleState};
