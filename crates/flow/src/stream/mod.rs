//! Chunks to whoever subscribed to their e-links.
//!
//! ```text
//!  ring of a card --> StreamInput: ChunkDecoder --> Router --> a queue per subscriber --> messages for the drive to send
//!                                                     ^
//!               subscriptions: e-links, policy, group, sample      DownLink: bytes for an e-link --> blocks for the card
//! ```
//! A chunk goes to every subscriber that asked for its e-link, and to one member of each group. Where a queue is full its
//! own policy decides: the chunk is dropped there and counted, or the input waits, and with it the card. So that a slow
//! monitor costs nobody else anything, who may lose chunks must not hold the card's memory for long either: it is sent
//! copies, and what waits for it when the card has no room is copied or dropped.
//!
//! The account of every subscriber balances at any time, with what is queued counted from the queue:
//! `offered = sent + dropped[cause] + moved + queued`. *Moved* is what a member of a group left to the others when it went.

mod account;
mod chunk;
mod config;
mod down_link;
mod input;
mod lot;
mod pages;
mod queue;
mod route;
mod router;
mod subscriber;
#[cfg(test)]
mod tests;

pub use account::SubscriberAccount;
pub use chunk::{QueuedChunk, StreamChunk};
pub use config::{InputConfig, RouterConfig};
pub use down_link::DownLink;
pub use input::{StreamCounts, StreamInput};
pub use queue::Amount;
pub use route::BatchCursor;
pub use router::{MOST_SUBSCRIBERS, Router, SubscribeError, SubscriberId};
