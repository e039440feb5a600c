//! Items of a run on their way to subscribers, and what a subscriber does with them.

use super::RouterConfig;
use super::queue::{Amount, Origin};
use super::route::chunk;
use super::subscriber::Subscriber;
use crate::readout::felix::Scattered;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::Cause;
use ropewalk_wire::felix::{SubChunk, SubChunkType, Trailer};
use ropewalk_wire::stream::Policy;

/// Some items of a run, and what they are together.
#[derive(Copy, Clone, Debug)]
pub(super) struct Lot<'a> {
    pub(super) origin: Origin<'a>,
    pub(super) items: &'a [SubChunk],
    /// The chunks among them.
    pub(super) amount: Amount,
    /// Whether they can wait as they are: nothing but short chunks, the first of which may be scattered.
    is_plain: bool,
    /// Pieces of the first one.
    pieces: u32,
}

impl<'a> Lot<'a> {
    /// These items of a run, what of them is scattered as far as it is held.
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

    /// The first of them.
    #[cold]
    pub(super) fn first(&self, count: usize) -> Self {
        Self { items: &self.items[..count], ..*self }.counted()
    }

    /// What they are, item by item.
    #[cold]
    fn counted(mut self) -> Self {
        let mut amount = Amount::default();
        for bytes in self.items.iter().filter_map(|&item| self.bytes(item)) {
            amount.add(bytes);
        }
        (self.amount, self.is_plain) = (amount, false);
        self
    }

    /// Bytes of a chunk; none of a signal.
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

    /// Whether all pieces lie in pages that are held.
    #[inline]
    fn is_held(&self, scattered: &Scattered) -> bool {
        let first = self.origin.batch.pieces(scattered).first();
        first.is_none_or(|piece| piece.position >= self.origin.needs_from)
    }
}

impl Subscriber {
    /// How many of the items come before the one that it must not miss and has no room for.
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

    /// All items of the lot are meant for it.
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

    /// Some are passed over, dropped, or stand apart in its queue.
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
