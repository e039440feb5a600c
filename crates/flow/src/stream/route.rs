//! A decoded batch to the queues of its subscribers.

use super::{Router, StreamChunk};
use crate::readout::felix::{Chunk, ChunkBatch, EventRule, Piece, Run};
use ropewalk_memory::Payload;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::Instant;
use ropewalk_wire::felix::Status;
use ropewalk_wire::stream::ChunkHead;

/// How far somebody came with a batch: the next item that it has not seen. Everybody who consumes a batch has its own.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct BatchCursor {
    /// Its run.
    pub run: usize,
    /// Its place in the run.
    pub item: usize,
}

impl BatchCursor {
    /// Whether nothing of the batch is left.
    pub fn is_at_end(self, batch: &ChunkBatch) -> bool {
        self.run >= batch.runs().len()
    }
}

impl Router {
    /// Hands a batch on from where `cursor` stands, in the order of its runs, until all of it is with its subscribers or
    /// somebody must be waited for: the cursor says which. Returns how many chunks and signals were passed. Subscribers
    /// get slices of `ring`, in which the batch lies; the event's number is looked for by `rule` where a group needs it.
    ///
    /// The batch is only read, and the router keeps what it needs of it: so the same batch can be consumed by others as
    /// well, each with a cursor of its own and in any order (a readout unit takes its fragments by
    /// [`CardInput`](crate::readout::felix::CardInput)). Who owns decoder and ring does, for each batch:
    ///
    /// ```text
    ///  decode                   a new batch; every consumer's cursor is BatchCursor::default()
    ///  consumer, router.route   each as far as it has room, in this turn or in later ones
    ///  all cursors at the end:  ring.done_to(end of the batch, or the oldest open chunk), and the next batch
    /// ```
    /// `done_to` and the next `decode` must wait for the slowest consumer, for the ring lends slices only of what it is not
    /// done with. A subscriber without back-pressure is never waited for; [`Self::relieve`] is called when the card has
    /// no room left, so that what waits for such a subscriber holds none of the ring.
    pub fn route(
        &mut self,
        batch: &ChunkBatch,
        ring: &mut RingReader,
        rule: EventRule,
        cursor: &mut BatchCursor,
        now: Instant,
    ) -> usize {
        let mut passed = 0;
        while let Some(run) = batch.runs().get(cursor.run) {
            let is_wanted = self.is_wanted(run.elink);
            let rule = self.shares_by_event().then_some(rule);
            for &item in &batch.items(run)[cursor.item..] {
                if let Some(chunk) = chunk(batch.chunk(item), run, ring, rule, is_wanted)
                    && self.offer(chunk, now).is_err()
                {
                    return passed;
                }
                cursor.item += 1;
                passed += 1;
            }
            *cursor = BatchCursor { run: cursor.run + 1, item: 0 };
        }
        passed
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
