//! One card's ring up to the router.

use super::{BatchCursor, InputConfig, Router};
use crate::readout::felix::{ChunkDecoder, ChunkReport, EventRules};
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::Instant;
use ropewalk_wire::felix::BlockFormat;

/// Batches decoded in one turn, so that others have theirs: about a megabyte.
const BATCHES_A_TURN: usize = 16;

/// What was counted of a card.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts {
    /// What its decoder has seen.
    pub chunks: ChunkReport,
    /// Bytes that were decoded.
    pub bytes: u64,
    /// How often somebody who must miss nothing was waited for.
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
    /// How far the last batch was handed on; none when all of it was.
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

    /// Whether the card waits for room although everything that it wrote was handed on: whoever holds it keeps it.
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

    /// What is behind the oldest open chunk may be written again, as soon as nobody refers to it.
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
