//! One subscriber: its subscription and its queue.

use super::queue::{Amount, MessageLimits, Origin, Pages, Queue, QueuedChunk};
use super::router::chunk;
use super::{RouterConfig, StreamChunk, SubscriberAccount};
use crate::readout::felix::Scattered;
use ropewalk_memory::Payload;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::felix::{SubChunk, SubChunkType, Trailer};
use ropewalk_wire::stream::{MOST_CHUNKS, Policy, Share, Subscribe};
use std::ops::{ControlFlow, Range};

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) policy: Policy,
    pub(super) share: Share,
    /// A range that contains all its e-links.
    pub(super) elinks: Range<usize>,
    pub(super) one_in: u32,
    /// Number of chunks of its e-links since the last one that it got.
    pub(super) passed: u32,
    pub(super) queue: Queue,
    /// Whether the transport has no room. Nothing is due until it reports room.
    pub(super) is_blocked: bool,
    pub(super) account: SubscriberAccount,
}

impl Subscriber {
    pub(super) fn new(config: &RouterConfig) -> Self {
        Self {
            policy: Policy::Drop,
            share: Share::Alone,
            elinks: 0..0,
            one_in: 1,
            passed: 0,
            queue: Queue::new(config),
            is_blocked: false,
            account: SubscriberAccount::default(),
        }
    }

    /// Replaces its subscription. Waiting chunks stay.
    pub(super) fn ask(&mut self, wanted: &Subscribe) {
        (self.policy, self.share, self.one_in, self.passed) = (wanted.policy, wanted.share, wanted.one_in.max(1), 0);
        let first = wanted.ranges.iter().map(|range| range.first.index()).min();
        let last = wanted.ranges.iter().map(|range| range.last.index()).max();
        self.elinks = first.unwrap_or(0)..last.map_or(0, |last| last + 1);
    }

    /// Whether there is room for a chunk of `bytes` bytes.
    pub(super) fn has_room(&self, bytes: u64, config: &RouterConfig) -> bool {
        config.has_room(self.queue.amount(), bytes)
    }

    /// Whether there is room for all of these chunks, in any order.
    #[inline]
    const fn has_room_for(&self, more: Amount, config: &RouterConfig) -> bool {
        let queued = self.queue.amount();
        queued.chunks + more.chunks <= config.queue_chunks as u64 && queued.bytes + more.bytes <= config.queue_bytes
    }

    /// Whether its sample takes the next chunk.
    pub(super) const fn takes_next(&self) -> bool {
        self.passed + 1 >= self.one_in
    }

    /// Whether the next chunk of `bytes` bytes makes the input wait.
    pub(super) fn must_wait(&self, bytes: u64, config: &RouterConfig) -> bool {
        self.policy == Policy::BackPressure && self.takes_next() && !self.has_room(bytes, config)
    }

    /// Notes that the sample leaves out a chunk.
    pub(super) const fn pass_over(&mut self) {
        self.passed += 1;
        self.account.passed_over += 1;
    }

    /// Queues a chunk for the subscriber, or drops it if there is no room.
    pub(super) fn offer(&mut self, chunk: StreamChunk, now: Instant, config: &RouterConfig) {
        self.passed = 0;
        self.account.offered += 1;
        if self.has_room(u64::from(chunk.head.length), config) {
            self.queue.push(chunk, now);
        } else {
            self.drop_chunk(&chunk, Cause::QueueFull);
        }
    }

    /// Takes over a chunk of a member that left, even without room.
    pub(super) fn take_over(&mut self, chunk: StreamChunk, now: Instant, config: &RouterConfig) {
        self.account.offered += 1;
        if self.policy == Policy::BackPressure || self.has_room(u64::from(chunk.head.length), config) {
            self.queue.push(chunk, now);
        } else {
            self.drop_chunk(&chunk, Cause::QueueFull);
        }
    }

    fn drop_chunk(&mut self, chunk: &StreamChunk, cause: Cause) {
        self.drop_bytes(u64::from(chunk.head.length), cause);
    }

    /// Drops a chunk of `bytes` bytes.
    fn drop_bytes(&mut self, bytes: u64, cause: Cause) {
        self.account.dropped.add(cause, 1);
        self.account.dropped_bytes += bytes;
    }

    /// Whether a message should be sent now.
    pub(super) fn is_due(&self, now: Instant, config: &RouterConfig, at_once: bool) -> bool {
        let Some(since) = self.queue.since() else { return false };
        let queued = self.queue.amount();
        let is_much = queued.bytes >= config.coalesce_bytes || queued.chunks >= MOST_CHUNKS as u64;
        !self.is_blocked && (at_once || is_much || now >= since.after(config.coalesce_time))
    }

    /// Returns when the waiting chunks must be sent even if they are few.
    pub(super) fn deadline(&self, config: &RouterConfig) -> Option<Instant> {
        let since = self.queue.since().filter(|_| !self.is_blocked)?;
        Some(since.after(config.coalesce_time))
    }

    /// Returns the lowest position of the ring that it needs; `u64::MAX` if none.
    pub(super) fn needs_from(&self) -> u64 {
        self.queue.needs_from()
    }

    /// Passes the oldest chunks of a message to a callback, and counts the accepted ones as sent. Returns their number.
    #[inline]
    pub(super) fn take(
        &mut self,
        limits: MessageLimits,
        pages: &Pages,
        visit: impl FnMut(QueuedChunk<'_>) -> ControlFlow<()>,
    ) -> u64 {
        let taken = self.queue.take(limits, pages, visit);
        self.account.sent += taken.chunks;
        self.account.sent_bytes += taken.bytes;
        taken.chunks
    }

    /// Copies the waiting chunks, so that they hold no memory of the card. Chunks that cannot be copied are dropped.
    pub(super) fn relieve(&mut self, pages: &Pages, copy: impl FnMut(&Payload) -> Option<Payload>) {
        let account = &mut self.account;
        self.queue.relieve(pages, copy, |chunk| {
            account.dropped.add(Cause::QueueFull, 1);
            account.dropped_bytes += u64::from(chunk.head.length);
        });
    }

    pub(super) fn drop_oldest(&mut self, pages: &Pages) {
        if let Some(chunk) = self.pop(pages) {
            self.drop_chunk(&chunk, Cause::QueueFull);
        }
    }

    /// Takes the next waiting chunk of a leaving subscriber, which another member may get.
    pub(super) fn pop(&mut self, pages: &Pages) -> Option<StreamChunk> {
        self.queue.pop(pages)
    }

    /// Notes that another member has taken over one of its chunks.
    pub(super) const fn count_moved(&mut self) {
        self.account.moved += 1;
    }

    /// Notes that no member takes over this chunk.
    pub(super) fn count_lost(&mut self, chunk: &StreamChunk) {
        self.drop_chunk(chunk, Cause::Disconnected);
    }

    pub(super) fn account(&self) -> SubscriberAccount {
        SubscriberAccount { queued: self.queue.amount().chunks, ..self.account }
    }
}

/// Some items of a run, and their sum.
#[derive(Copy, Clone, Debug)]
pub(super) struct Lot<'a> {
    pub(super) origin: Origin<'a>,
    pub(super) items: &'a [SubChunk],
    /// The amount of the chunks among them.
    pub(super) amount: Amount,
    /// Whether they can wait as they are: all are short chunks, except that the first one may be scattered.
    is_plain: bool,
    /// Number of pieces of the first one.
    pieces: u32,
}

impl<'a> Lot<'a> {
    /// Creates a lot of these items of a run, with their scattered chunks as far as they are held.
    #[inline]
    pub(super) fn new(origin: Origin<'a>, items: &'a [SubChunk]) -> Self {
        let mut lot = Self { origin, items, amount: Amount::default(), is_plain: true, pieces: 0 };
        let mut short = items;
        if let Some((&first, rest)) = items.split_first()
            && let Some(scattered) = lot.scattered(first)
        {
            short = rest;
            lot.amount.bytes = scattered.bytes;
            lot.pieces = scattered.pieces;
            lot.is_plain = lot.is_held(scattered);
        }
        const BOTH: u32 = (SubChunkType::Both as u32) << 29;
        let (mut others, mut bytes) = (0, 0);
        for item in short {
            others |= item.trailer ^ BOTH;
            bytes += item.trailer & 0xFFFF;
        }
        if others >> 29 != 0 {
            return lot.counted();
        }
        lot.amount.chunks = items.len() as u64;
        lot.amount.bytes += u64::from(bytes);
        lot
    }

    /// Returns the first of them.
    #[cold]
    pub(super) fn first(&self, count: usize) -> Self {
        Self { items: &self.items[..count], ..*self }.counted()
    }

    /// Sums them item by item.
    #[cold]
    fn counted(mut self) -> Self {
        let mut amount = Amount::default();
        for bytes in self.items.iter().filter_map(|&item| self.bytes(item)) {
            amount.add(bytes);
        }
        (self.amount, self.is_plain) = (amount, false);
        self
    }

    /// Returns the bytes of a chunk; `None` for a signal.
    fn bytes(&self, item: SubChunk) -> Option<u64> {
        match Trailer(item.trailer).kind() {
            SubChunkType::OutOfBand => None,
            SubChunkType::Last => Some(self.origin.batch.scattered()[item.offset as usize].bytes),
            _ => Some(u64::from(Trailer(item.trailer).data_bytes())),
        }
    }

    #[inline]
    fn scattered(&self, item: SubChunk) -> Option<&'a Scattered> {
        let is_scattered = Trailer(item.trailer).kind() == SubChunkType::Last;
        is_scattered.then(|| &self.origin.batch.scattered()[item.offset as usize])
    }

    /// Whether all pieces lie in held pages.
    #[inline]
    fn is_held(&self, scattered: &Scattered) -> bool {
        let first = self.origin.batch.pieces(scattered).first();
        first.is_none_or(|piece| piece.position >= self.origin.needs_from)
    }
}

impl Subscriber {
    /// Returns the number of items before the first one that it must not miss and has no room for.
    pub(super) fn takes_without_waiting(&self, lot: &Lot<'_>, config: &RouterConfig) -> usize {
        if self.has_room_for(lot.amount, config) {
            return lot.items.len();
        }
        let (mut queued, mut passed) = (self.queue.amount(), self.passed);
        let mut waits = |&item: &SubChunk| {
            let Some(bytes) = lot.bytes(item) else { return false };
            passed += 1;
            if passed < self.one_in {
                return false;
            }
            if !config.has_room(queued, bytes) {
                return true;
            }
            passed = 0;
            queued.add(bytes);
            false
        };
        lot.items.iter().position(&mut waits).unwrap_or(lot.items.len())
    }

    /// Offers all items of the lot to the subscriber.
    #[inline]
    pub(super) fn offer_lot(&mut self, lot: &Lot<'_>, ring: &mut RingReader, config: &RouterConfig) {
        let is_whole = lot.is_plain && self.one_in == 1 && self.has_room_for(lot.amount, config);
        if is_whole && (lot.pieces == 0 || self.queue.has_room_for_pieces(lot.pieces)) {
            self.account.offered += lot.amount.chunks;
            self.queue.push_items(lot.origin, lot.items, lot.amount.bytes);
        } else {
            self.offer_parts(lot, ring, config);
        }
    }

    /// Offers the items one by one: some are left out, dropped, or queued as separate chunks.
    fn offer_parts(&mut self, lot: &Lot<'_>, ring: &mut RingReader, config: &RouterConfig) {
        let is_full = self.queue.amount().chunks >= config.queue_chunks.max(1) as u64;
        if self.one_in == 1 && self.policy == Policy::Drop && is_full {
            self.account.offered += lot.amount.chunks;
            self.account.dropped.add(Cause::QueueFull, lot.amount.chunks);
            self.account.dropped_bytes += lot.amount.bytes;
            return;
        }
        let mut is_neighbour = false;
        for &item in lot.items {
            let Some(bytes) = lot.bytes(item) else { continue };
            if !self.takes_next() {
                self.pass_over();
                continue;
            }
            (self.passed, self.account.offered) = (0, self.account.offered + 1);
            if !self.has_room(bytes, config) {
                self.drop_bytes(bytes, Cause::QueueFull);
                continue;
            }
            let Origin { batch, run, now, .. } = lot.origin;
            let can_wait =
                |scattered: &Scattered| lot.is_held(scattered) && self.queue.has_room_for_pieces(scattered.pieces);
            if lot.scattered(item).is_none_or(can_wait) {
                self.queue.push_item(lot.origin, item, bytes, is_neighbour);
                is_neighbour = true;
            } else if let Some(chunk) = chunk(batch.chunk(item), run, ring, None, true) {
                self.queue.push(chunk, now);
                is_neighbour = false;
            }
        }
    }
}
