//! Delivers chunks to the subscribers of their e-links.
//!
//! ```text
//!  ring of a card --> StreamInput: ChunkDecoder --> Router --> a queue per subscriber --> messages for the drive to send
//!                                                     ^
//!               subscriptions: e-links, policy, group, sample      DownLink: bytes for an e-link --> blocks for the card
//! ```
//! A chunk goes to every subscriber of its e-link, and to one member of each group. If a queue is full, its policy
//! decides: the chunk is dropped there and counted, or the input waits, and with it the card. A slow monitor must not
//! affect other subscribers. A subscriber that may lose chunks therefore must not hold the card's memory for long: it
//! is sent copies, and its waiting chunks are copied or dropped when the card has no room.
//!
//! The account of every subscriber balances at any time, with queued chunks counted from the queue: `offered = sent +
//! dropped[cause] + moved + queued`. *Moved* are the chunks that a member of a group left to the others when it left.

mod queue;
mod router;
mod subscriber;
#[cfg(test)]
mod tests;

pub use queue::{Amount, QueuedChunk, StreamChunk};
pub use router::{BatchCursor, MOST_SUBSCRIBERS, Router, SubscribeError, SubscriberId};

use crate::readout::felix::{ChunkConfig, ChunkDecoder, ChunkReport, EventRules};
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::{ByCause, Instant};
use ropewalk_wire::felix::{BlockFormat, ELink, Encoder, Status};
use std::collections::BTreeMap;
use std::time::Duration;

/// Configuration of a [`Router`]. A subscriber's queue is allocated when it joins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RouterConfig {
    /// The most subscribers at once, at most [`MOST_SUBSCRIBERS`].
    pub subscribers: usize,
    /// The most bytes that wait for one subscriber; a single larger chunk is accepted if nothing waits.
    pub queue_bytes: u64,
    /// The most chunks that wait for one subscriber.
    pub queue_chunks: usize,
    /// Number of bytes that are sent without waiting for more.
    pub coalesce_bytes: u64,
    /// The longest time that chunks wait to be sent, however few they are.
    pub coalesce_time: Duration,
}

impl RouterConfig {
    /// Whether a chunk of `bytes` bytes may wait in addition to `queued`.
    const fn has_room(&self, queued: Amount, bytes: u64) -> bool {
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

/// Configuration of a [`StreamInput`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputConfig {
    /// Its blocks and chunks.
    pub chunks: ChunkConfig,
    /// The place of the event number in a chunk; chunks that are too short belong to event 0. Used only while a group
    /// shares by event.
    pub rules: EventRules,
}

/// Counts of one subscriber since it joined, or of many.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SubscriberAccount {
    /// Chunks of its e-links that its sample left out. They are in no other count.
    pub passed_over: u64,
    /// Chunks that were intended for it.
    pub offered: u64,
    /// Chunks that were sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Chunks that were dropped, by cause.
    pub dropped: ByCause,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Chunks that others of its group took over when it left.
    pub moved: u64,
    /// Chunks that wait, counted from the queue.
    pub queued: u64,
}

impl SubscriberAccount {
    /// Whether the account balances.
    pub fn is_balanced(&self) -> bool {
        self.offered == self.sent + self.dropped.total() + self.moved + self.queued
    }

    /// Adds the counts of another account.
    pub fn merge(&mut self, other: &Self) {
        self.passed_over += other.passed_over;
        self.offered += other.offered;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.dropped.merge(&other.dropped);
        self.dropped_bytes += other.dropped_bytes;
        self.moved += other.moved;
        self.queued += other.queued;
    }
}

/// Number of batches decoded in one turn, so that other tasks get their turn: about a megabyte.
const BATCHES_A_TURN: usize = 16;

/// Counts of a card.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts {
    /// The counts of its decoder.
    pub chunks: ChunkReport,
    /// Bytes that were decoded.
    pub bytes: u64,
    /// How often the input waited for a subscriber that must not lose chunks.
    pub waits: u64,
}

/// Reads the output of a card, block by block, and passes its chunks to a router without a copy.
#[derive(Debug)]
pub struct StreamInput {
    ring: RingReader,
    decoder: ChunkDecoder,
    format: BlockFormat,
    rules: EventRules,
    /// The position up to which blocks were decoded.
    position: u64,
    /// The progress in the last batch; `None` when all of it was passed on.
    cursor: Option<BatchCursor>,
    waits: u64,
    is_broken: bool,
}

impl StreamInput {
    /// Creates the input of a ring whose pages contain whole blocks.
    pub fn new(config: InputConfig, ring: RingReader) -> Self {
        Self {
            position: ring.released(),
            decoder: ChunkDecoder::new(config.chunks),
            format: config.chunks.format,
            rules: config.rules,
            ring,
            cursor: None,
            waits: 0,
            is_broken: false,
        }
    }

    /// Returns the format of its blocks.
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// Returns the ring, to arm its bell before a sleep.
    pub const fn ring_mut(&mut self) -> &mut RingReader {
        &mut self.ring
    }

    /// Returns the counts.
    pub const fn counts(&self) -> StreamCounts {
        StreamCounts { chunks: *self.decoder.report(), bytes: self.position, waits: self.waits }
    }

    /// Whether the card has ended and all of its output was passed on.
    pub fn is_ended(&self) -> bool {
        let is_closed = self.ring.is_closed() && self.undecoded() < self.format.block_bytes();
        self.cursor.is_none() && (self.is_broken || is_closed)
    }

    /// Whether it waits until a subscriber has room.
    pub const fn is_waiting(&self) -> bool {
        self.cursor.is_some()
    }

    /// Whether the card waits for room although all of its output was passed on: references to its memory are still
    /// held.
    pub fn is_starved(&self) -> bool {
        self.cursor.is_none() && self.ring.is_full() && self.undecoded() < self.format.block_bytes()
    }

    /// Passes on the output of the card, as far as the router has room for it. Returns the amount of work done.
    pub fn turn(&mut self, now: Instant, router: &mut Router) -> usize {
        // A writer with an impossible state is no longer trusted.
        if self.is_broken || self.ring.poll().is_err() {
            self.is_broken = true;
            self.cursor = None;
            return 0;
        }
        let mut work = 0;
        for _ in 0..BATCHES_A_TURN {
            if self.cursor.is_none() && !self.decode() {
                break;
            }
            work += self.hand_on(now, router);
            if self.cursor.is_some() {
                self.waits += 1;
                break;
            }
        }
        self.free_what_stalls();
        work
    }

    fn undecoded(&self) -> usize {
        self.ring.bytes(self.position).len()
    }

    fn decode(&mut self) -> bool {
        let taken = self.decoder.decode(self.ring.bytes(self.position), self.position);
        self.position += taken as u64;
        self.cursor = (taken > 0).then(BatchCursor::default);
        taken > 0
    }

    /// Passes on the chunks of the batch until one must wait.
    fn hand_on(&mut self, now: Instant, router: &mut Router) -> usize {
        let Some(mut cursor) = self.cursor else { return 0 };
        let batch = self.decoder.batch();
        let passed = router.route(batch, &mut self.ring, &self.rules, &mut cursor, now);
        if !cursor.is_at_end(batch) {
            self.cursor = Some(cursor);
            return passed;
        }
        self.cursor = None;
        self.done();
        passed + 1
    }

    /// Lets the memory before the oldest open chunk be overwritten as soon as no reference to it is left.
    fn done(&mut self) {
        let open = self.decoder.oldest_open().unwrap_or(u64::MAX);
        self.ring.done_to(self.position.min(open));
    }

    /// Gives up the chunk of an e-link that began it a whole ring ago, so that it does not hold the memory behind it.
    fn free_what_stalls(&mut self) {
        if !self.is_starved() {
            return;
        }
        let oldest = self.ring.released() + self.ring.page_bytes();
        if self.decoder.give_up_before(oldest) > 0 {
            self.done();
        }
    }
}

/// Packs data for e-links into blocks. An e-link's encoder is created at its first use.
#[derive(Debug)]
pub struct DownLink {
    format: BlockFormat,
    encoders: BTreeMap<ELink, Encoder>,
    blocks: Vec<u8>,
    most_bytes: usize,
}

impl DownLink {
    /// Creates a packer for blocks of this format, of which at most about `most_bytes` bytes wait for the card.
    pub const fn new(format: BlockFormat, most_bytes: usize) -> Self {
        Self { format, encoders: BTreeMap::new(), blocks: Vec::new(), most_bytes }
    }

    /// Adds bytes for an e-link, as one chunk. Returns false if there is no room.
    pub fn push(&mut self, elink: ELink, bytes: &[u8]) -> bool {
        if self.blocks.len() + bytes.len() > self.most_bytes {
            return false;
        }
        let encoder = self.encoders.entry(elink).or_insert_with(|| Encoder::new(self.format, elink));
        encoder.chunk(bytes, Status::GOOD, &mut self.blocks);
        true
    }

    /// Returns the blocks so far. Partly filled ones are padded, since a command must not wait for the next one.
    pub fn blocks(&mut self) -> &[u8] {
        for encoder in self.encoders.values_mut() {
            encoder.flush(&mut self.blocks);
        }
        &self.blocks
    }

    /// Removes the first `bytes` bytes, which the card has taken.
    pub fn taken(&mut self, bytes: usize) {
        self.blocks.drain(..bytes.min(self.blocks.len()));
    }
}
