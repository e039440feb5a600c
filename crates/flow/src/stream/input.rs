//! One card's ring up to the router.

use super::{InputConfig, Router, StreamChunk};
use crate::readout::felix::{Chunk, ChunkDecoder, ChunkReport, EventRule, Piece, Run};
use ropewalk_memory::Payload;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::Instant;
use ropewalk_wire::felix::{BlockFormat, Status};
use ropewalk_wire::stream::ChunkHead;

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

/// Where in a batch the next item stands.
#[derive(Copy, Clone, Default, Debug)]
struct Cursor {
    run: usize,
    item: usize,
}

/// Takes what a card wrote, block by block, and hands its chunks to a router as they lie in the ring.
#[derive(Debug)]
pub struct StreamInput {
    ring: RingReader,
    decoder: ChunkDecoder,
    format: BlockFormat,
    rule: EventRule,
    /// Up to where blocks were decoded.
    position: u64,
    /// How far the last batch was handed on; none when all of it was.
    cursor: Option<Cursor>,
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
            rule: config.rule,
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
        self.cursor = (taken > 0).then(Cursor::default);
        taken > 0
    }

    /// Hands the chunks of the batch on, until one must wait.
    fn hand_on(&mut self, now: Instant, router: &mut Router) -> usize {
        let Self { decoder, ring, rule, cursor: place, .. } = self;
        let Some(mut cursor) = *place else { return 0 };
        let batch = decoder.batch();
        let mut work = 0;
        while let Some(run) = batch.runs().get(cursor.run) {
            let is_wanted = router.is_wanted(run.elink);
            let rule = router.shares_by_event().then_some(*rule);
            for &item in &batch.items(run)[cursor.item..] {
                if let Some(chunk) = chunk(batch.chunk(item), run, ring, rule, is_wanted)
                    && router.offer(chunk, now).is_err()
                {
                    *place = Some(cursor);
                    return work;
                }
                cursor.item += 1;
                work += 1;
            }
            cursor = Cursor { run: cursor.run + 1, item: 0 };
        }
        *place = None;
        self.done();
        work + 1
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

/// A chunk for the router; none for a signal. What nobody wants is only counted there and needs no bytes.
#[inline]
fn chunk(
    chunk: Chunk<'_>,
    run: &Run,
    ring: &mut RingReader,
    rule: Option<EventRule>,
    is_wanted: bool,
) -> Option<StreamChunk> {
    let mut payload = Payload::default();
    let mut append = |piece: &Piece| {
        if is_wanted && piece.length > 0 {
            ring.append(piece.position, piece.length, &mut payload);
        }
    };
    let (length, status): (u64, Status) = match chunk {
        Chunk::Short { piece, status } => {
            append(&piece);
            (u64::from(piece.length), status)
        }
        Chunk::Scattered { pieces, bytes, status } => {
            pieces.iter().for_each(append);
            (bytes, status)
        }
        Chunk::Signal(_) => return None,
    };
    let event = rule.and_then(|rule| rule.number(&payload)).unwrap_or(0);
    let head = ChunkHead { elink: run.elink, status, sequence: run.sequence, length: length as u32 };
    Some(StreamChunk { head, event, payload, is_copy: false })
}
