//! A message of what waits for a subscriber: its heads, and its bytes by reference or copied.

use ropewalk_flow::stream::{Router, SubscriberId};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::stream::{ChunkHead, MOST_CHUNKS, encode_heads, heads_bytes};
use std::ops::ControlFlow;

/// Chunks that are smaller on average are copied: each piece of a list of pieces costs the system more than that. Over
/// loopback copies were 1.25 times as fast as pieces at 512 B, 1.08 times at 768 B and 1 KB, 1.04 at 2 KB and 0.97 at 4 KB
/// (`bench felix --case figure=subscriber` with other sizes, six pairs): beyond a block of 1 KiB they gain next to nothing.
const COPIED_BELOW: u64 = 1024;
/// A block with less room is not begun to fill with copies.
const LEAST_COPY: usize = 16 << 10;
/// For so many pieces there is room from the start.
const USUAL_PIECES: usize = 4 * MOST_CHUNKS;

/// What came of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Gathered {
    /// It is there.
    Message,
    /// Not now: there is no room in the transport, or nowhere to write the heads.
    NoRoom,
    /// The oldest chunk must be copied, and there is nowhere to copy it to.
    Uncopied,
}

/// Makes messages; the memory for it is used again.
pub(super) struct Gatherer {
    heads: Vec<ChunkHead>,
    encoded: Vec<u8>,
    /// The message.
    pub(super) slices: Vec<Slice>,
    /// Bytes of chunks that were copied.
    pub(super) copied_bytes: u64,
}

impl Gatherer {
    pub(super) fn new() -> Self {
        Self {
            heads: Vec::with_capacity(MOST_CHUNKS),
            encoded: Vec::with_capacity(heads_bytes(MOST_CHUNKS)),
            slices: Vec::with_capacity(USUAL_PIECES),
            copied_bytes: 0,
        }
    }

    /// Takes a message of at most `room` bytes for a subscriber. If it may lose chunks it must not hold the card's memory:
    /// all that it is sent lies in `staging`.
    pub(super) fn gather(
        &mut self,
        router: &mut Router,
        id: SubscriberId,
        room: usize,
        staging: &mut Staging,
    ) -> Gathered {
        self.heads.clear();
        self.slices.clear();
        let must_copy = router.may_lose(id) && !is_planted(Flaw::MonitorHoldsCard);
        let queued = router.queued(id);
        let heads_bytes = heads_bytes((queued.chunks as usize).min(MOST_CHUNKS));
        if must_copy || queued.bytes < COPIED_BELOW * queued.chunks {
            let least = heads_bytes + LEAST_COPY.min(queued.bytes as usize);
            self.copy(router, id, room, staging, [heads_bytes, least]);
        }
        if self.heads.is_empty() {
            self.refer(router, id, if staging.room(heads_bytes).is_some() { room } else { 0 }, must_copy);
        }
        if !self.heads.is_empty() {
            self.encoded.clear();
            encode_heads(self.heads.iter().copied(), &mut self.encoded);
            let heads = staging.write(&self.encoded).expect("room for the heads was made sure of");
            self.slices.insert(0, heads);
            return Gathered::Message;
        }
        if must_copy { self.copy_large(router, id, room, staging) } else { Gathered::NoRoom }
    }

    /// Copies chunks into one block, and leaves room for their heads there.
    fn copy(
        &mut self,
        router: &mut Router,
        id: SubscriberId,
        room: usize,
        staging: &mut Staging,
        [heads_bytes, least]: [usize; 2],
    ) {
        let heads = &mut self.heads;
        let copied = staging.write_with(least, |space| {
            let most = space.len() - heads_bytes;
            let mut filled = 0;
            router.take_each(id, room, |chunk| {
                if chunk.is_copy() || filled + chunk.head().length as usize > most {
                    return ControlFlow::Break(());
                }
                heads.push(chunk.head());
                chunk.for_each_piece(|piece| {
                    space[filled..][..piece.len()].copy_from_slice(piece);
                    filled += piece.len();
                });
                ControlFlow::Continue(())
            });
            filled
        });
        self.copied_bytes += copied.as_ref().map_or(0, |copied| copied.len() as u64);
        self.slices.extend(copied);
    }

    /// Takes chunks where they lie; where all must be copied, those that were.
    fn refer(&mut self, router: &mut Router, id: SubscriberId, room: usize, must_copy: bool) {
        router.take_each(id, room, |chunk| {
            if must_copy && !chunk.is_copy() {
                return ControlFlow::Break(());
            }
            self.heads.push(chunk.head());
            chunk.append_slices(&mut self.slices);
            ControlFlow::Continue(())
        });
    }

    /// Copies a chunk that is larger than the room in a block, as a message of its own.
    fn copy_large(&mut self, router: &mut Router, id: SubscriberId, room: usize, staging: &mut Staging) -> Gathered {
        let mut gathered = Gathered::NoRoom;
        router.take_each(id, room, |chunk| {
            if gathered == Gathered::Message {
                return ControlFlow::Break(());
            }
            self.encoded.clear();
            encode_heads(std::iter::once(chunk.head()), &mut self.encoded);
            let copied = staging.write(&self.encoded).zip(chunk.to_stream_chunk().payload.evacuate(staging));
            let Some((heads, payload)) = copied else {
                gathered = Gathered::Uncopied;
                return ControlFlow::Break(());
            };
            self.copied_bytes += payload.len() as u64;
            self.slices.push(heads);
            self.slices.extend(payload.into_slices());
            gathered = Gathered::Message;
            ControlFlow::Continue(())
        });
        gathered
    }
}
