//! How much room a router has.

use super::queue::Amount;
use crate::readout::felix::{ChunkConfig, EventRules};
use std::time::Duration;

/// What a [`Router`](super::Router) is to be. A subscriber's queue is made when it joins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RouterConfig {
    /// The most subscribers at once, at most [`MOST_SUBSCRIBERS`](super::MOST_SUBSCRIBERS).
    pub subscribers: usize,
    /// The most bytes that wait for one subscriber; a single larger chunk is taken when nothing waits.
    pub queue_bytes: u64,
    /// The most chunks that wait for one subscriber.
    pub queue_chunks: usize,
    /// So many bytes are sent without waiting for more.
    pub coalesce_bytes: u64,
    /// What waits for so long is sent, however little it is.
    pub coalesce_time: Duration,
}

impl RouterConfig {
    /// Whether a chunk of these many bytes may wait where so much waits.
    pub(super) const fn has_room(&self, queued: Amount, bytes: u64) -> bool {
        queued.chunks == 0 || (queued.chunks < self.queue_chunks as u64 && queued.bytes + bytes <= self.queue_bytes)
    }
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self {
            subscribers: 16,
            queue_bytes: 4 << 20,
            queue_chunks: 16 << 10,
            coalesce_bytes: 64 << 10,
            coalesce_time: Duration::from_millis(1),
        }
    }
}

/// What a [`StreamInput`](super::StreamInput) is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputConfig {
    /// Its blocks and chunks.
    pub chunks: ChunkConfig,
    /// Where a chunk says of which event it is; chunks that are too short are of event 0. Looked at only while a group
    /// shares by event.
    pub rules: EventRules,
}
