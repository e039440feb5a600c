//! Chunks for the subscribers of their e-links.
//!
//! ```text
//!  ring of a card --> StreamInput: ChunkDecoder --> Router --> a queue per subscriber --> messages for the drive to send
//!                                                     ^
//!               subscriptions: e-links, policy, group, sample      DownLink: bytes for an e-link --> blocks for the card
//! ```
//! A chunk goes to every subscriber that asked for its e-link, and to one member of each group. Where a queue is full
//! its own policy decides: the chunk is dropped there and counted, or the input waits, and with it the card. So that a
//! slow monitor costs other subscribers nothing, a subscriber that may lose chunks must not hold the card's memory for
//! long either: it is sent copies, and what waits for it when the card has no room is copied or dropped.
//!
//! The account of every subscriber balances at any time, with what is queued counted from the queue:
//! `offered = sent + dropped[cause] + moved + queued`. *Moved* is what a member of a group left to the others when it went.

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

/// What a [`Router`] is to be. A subscriber's queue is made when it joins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RouterConfig {
    /// The most subscribers at once, at most [`MOST_SUBSCRIBERS`].
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

/// What a [`StreamInput`] is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputConfig {
    /// Its blocks and chunks.
    pub chunks: ChunkConfig,
    /// Where a chunk says of which event it is; chunks that are too short are of event 0. Looked at only while a group
    /// shares by event.
    pub rules: EventRules,
}

/// Counts of one subscriber since it joined, or of many.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SubscriberAccount {
    /// Chunks of its e-links that its sample left out. They are in no other count.
    pub passed_over: u64,
    /// Chunks that were meant for it.
    pub offered: u64,
    /// Chunks that were sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Chunks that were dropped, by cause.
    pub dropped: ByCause,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Chunks that others of its group took over when it went.
    pub moved: u64,
    /// Chunks that wait: counted from the queue.
    pub queued: u64,
}

impl SubscriberAccount {
    /// Whether every chunk is where it should be.
    pub fn is_balanced(&self) -> bool {
        self.offered == self.sent + self.dropped.total() + self.moved + self.queued
    }

    /// Adds the counts of another one.
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

/// Batches decoded in one turn, so that others have theirs: about a megabyte.
const BATCHES_A_TURN: usize = 16;

/// What was counted of a card.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts {
    /// What its decoder has seen.
    pub chunks: ChunkReport,
    /// Bytes that were decoded.
    pub bytes: u64,
    /// How often a subscriber that must not lose chunks was waited for.
    pub waits: u64,
}

/// Takes what a card wrote, block by block, and hands its chunks to a router as they lie in the ring.
#[derive(Debug)]
pub struct StreamInput {
    ring: RingReader,
    decoder: ChunkDecoder,
    format: BlockFormat,
    rules: EventRules,
    /// Up to where blocks were decoded.
    position: u64,
    /// How far the last batch was handed on; `None` when all of it was.
    cursor: Option<BatchCursor>,
    waits: u64,
    is_broken: bool,
}

impl StreamInput {
    /// What comes in the ring, whose pages hold whole blocks.
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

    /// The kind of its blocks.
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// The ring, to arm its bell before a sleep.
    pub const fn ring_mut(&mut self) -> &mut RingReader {
        &mut self.ring
    }

    /// What was counted.
    pub const fn counts(&self) -> StreamCounts {
        StreamCounts { chunks: *self.decoder.report(), bytes: self.position, waits: self.waits }
    }

    /// Whether the card will say nothing more, and everything that it said was handed on.
    pub fn is_ended(&self) -> bool {
        let is_closed = self.ring.is_closed() && self.undecoded() < self.format.block_bytes();
        self.cursor.is_none() && (self.is_broken || is_closed)
    }

    /// Whether it stands still until a subscriber has room.
    pub const fn is_waiting(&self) -> bool {
        self.cursor.is_some()
    }

    /// Whether the card waits for room although everything that it wrote was handed on: references to its memory are
    /// still held.
    pub fn is_starved(&self) -> bool {
        self.cursor.is_none() && self.ring.is_full() && self.undecoded() < self.format.block_bytes()
    }

    /// Takes what the card has written, as far as the router has room for it. Returns how much was done.
    pub fn turn(&mut self, now: Instant, router: &mut Router) -> usize {
        // A writer that says what cannot be is believed no more.
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

    /// Hands the chunks of the batch on, until one must wait.
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

    /// Memory before the oldest open chunk may be written again, as soon as no reference to it is left.
    fn done(&mut self) {
        let open = self.decoder.oldest_open().unwrap_or(u64::MAX);
        self.ring.done_to(self.position.min(open));
    }

    /// An e-link that began a chunk a whole ring ago and did not go on must not keep what lies behind it.
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

/// Packs what is sent to e-links into blocks. An e-link's encoder is made when something is sent to it for the first time.
#[derive(Debug)]
pub struct DownLink {
    format: BlockFormat,
    encoders: BTreeMap<ELink, Encoder>,
    blocks: Vec<u8>,
    most_bytes: usize,
}

impl DownLink {
    /// Blocks of this kind, of which at most about so many bytes wait for the card.
    pub const fn new(format: BlockFormat, most_bytes: usize) -> Self {
        Self { format, encoders: BTreeMap::new(), blocks: Vec::new(), most_bytes }
    }

    /// Bytes for an e-link, as one chunk. False where there is no room.
    pub fn push(&mut self, elink: ELink, bytes: &[u8]) -> bool {
        if self.blocks.len() + bytes.len() > self.most_bytes {
            return false;
        }
        let encoder = self.encoders.entry(elink).or_insert_with(|| Encoder::new(self.format, elink));
        encoder.chunk(bytes, Status::GOOD, &mut self.blocks);
        true
    }

    /// The blocks so far; partly filled ones are padded, for a command must not wait for the next one.
    pub fn blocks(&mut self) -> &[u8] {
        for encoder in self.encoders.values_mut() {
            encoder.flush(&mut self.blocks);
        }
        &self.blocks
    }

    /// The card has taken the first so many bytes.
    pub fn taken(&mut self, bytes: usize) {
        self.blocks.drain(..bytes.min(self.blocks.len()));
    }
}
