//! A decoded batch to the queues of its subscribers.

use super::lot::Lot;
use super::queue::Origin;
use super::{Router, StreamChunk};
use crate::readout::felix::{Chunk, ChunkBatch, EventRule, EventRules, Piece, Run};
use ropewalk_memory::Payload;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::Instant;
use ropewalk_wire::felix::{Status, SubChunk};
use ropewalk_wire::stream::{ChunkHead, Policy};

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
    /// get slices of `ring`, in which the batch lies; the event's number is looked for by `rules` where a group needs it.
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
        rules: &EventRules,
        cursor: &mut BatchCursor,
        now: Instant,
    ) -> usize {
        let is_own = self.pages.are_of(ring);
        let (mut passed, mut held_from) = (0, None);
        while let Some(run) = batch.runs().get(cursor.run) {
            let items = &batch.items(run)[cursor.item..];
            let set = self.wanted[run.elink.index()];
            let taken = if set & self.sharing == 0 && is_own {
                let held_from = if set == 0 { 0 } else { *held_from.get_or_insert_with(|| self.hold(batch, ring)) };
                let origin = Origin { batch, run, needs_from: held_from, now };
                self.route_run(set, Lot::new(origin, items), ring)
            } else {
                self.route_chunks(batch, run, items, ring, rules, now)
            };
            passed += taken;
            if taken < items.len() {
                cursor.item += taken;
                break;
            }
            *cursor = BatchCursor { run: cursor.run + 1, item: 0 };
        }
        // What was held and is in no queue, for it was dropped, or passed over.
        self.release_pages();
        passed
    }

    /// Holds what the batch needs of the ring. Returns from where on nothing is missing.
    fn hold(&mut self, batch: &ChunkBatch, ring: &mut RingReader) -> u64 {
        self.pages.hold(ring, batch.needs_from(), batch.position(), batch.end())
    }

    /// Items of a run for subscribers none of whom shares with others: what one of them does is nothing to another, but
    /// that all wait for who must miss nothing. Returns how many items were taken.
    fn route_run(&mut self, set: u64, lot: Lot<'_>, ring: &mut RingReader) -> usize {
        let (config, mut taken, mut left) = (self.config, lot.items.len(), set);
        while left != 0 {
            let subscriber = self.at(left.trailing_zeros() as usize);
            left &= left - 1;
            if subscriber.policy == Policy::BackPressure {
                taken = taken.min(subscriber.takes_without_waiting(&lot, &config));
            }
        }
        let lot = if taken == lot.items.len() { lot } else { lot.first(taken) };
        left = set;
        while left != 0 {
            let subscriber = self.at(left.trailing_zeros() as usize);
            left &= left - 1;
            subscriber.offer_lot(&lot, ring, &config);
        }
        self.received += lot.amount.chunks;
        self.unwanted += if set == 0 { lot.amount.chunks } else { 0 };
        taken
    }

    /// The same, chunk by chunk, each where the rules of those who share want it.
    fn route_chunks(
        &mut self,
        batch: &ChunkBatch,
        run: &Run,
        items: &[SubChunk],
        ring: &mut RingReader,
        rules: &EventRules,
        now: Instant,
    ) -> usize {
        let is_wanted = self.is_wanted(run.elink);
        let rule = self.shares_by_event().then(|| rules.of(run.elink));
        let is_taken = |&&item: &&SubChunk| {
            let chunk = chunk(batch.chunk(item), run, ring, rule, is_wanted);
            chunk.is_none_or(|chunk| self.offer(chunk, now).is_ok())
        };
        items.iter().take_while(is_taken).count()
    }
}

/// A chunk for the router; none for a signal. What nobody wants is only counted there and needs no bytes.
#[inline]
pub(super) fn chunk(
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
