//! One subscriber: what it asked for, and what waits for it.

use super::chunk::QueuedChunk;
use super::pages::Pages;
use super::queue::{Amount, MessageLimits, Queue};
use super::{RouterConfig, StreamChunk, SubscriberAccount};
use ropewalk_memory::Payload;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::stream::{MOST_CHUNKS, Policy, Share, Subscribe};
use std::ops::{ControlFlow, Range};

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) policy: Policy,
    pub(super) share: Share,
    /// All e-links that it asked for lie among these.
    pub(super) elinks: Range<usize>,
    pub(super) one_in: u32,
    /// How many chunks of its e-links came since the last one that it got.
    pub(super) passed: u32,
    pub(super) queue: Queue,
    /// The transport has no room: nothing is due before it says that it has.
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

    /// Takes over what it asks for now; what waits stays.
    pub(super) fn ask(&mut self, wanted: &Subscribe) {
        (self.policy, self.share, self.one_in, self.passed) = (wanted.policy, wanted.share, wanted.one_in.max(1), 0);
        let first = wanted.ranges.iter().map(|range| range.first.index()).min();
        let last = wanted.ranges.iter().map(|range| range.last.index()).max();
        self.elinks = first.unwrap_or(0)..last.map_or(0, |last| last + 1);
    }

    /// Whether there is room for a chunk of these many bytes.
    pub(super) fn has_room(&self, bytes: u64, config: &RouterConfig) -> bool {
        config.has_room(self.queue.amount(), bytes)
    }

    /// Whether there is room for all of these chunks, in whatever order they come.
    #[inline]
    pub(super) const fn has_room_for(&self, more: Amount, config: &RouterConfig) -> bool {
        let queued = self.queue.amount();
        queued.chunks + more.chunks <= config.queue_chunks as u64 && queued.bytes + more.bytes <= config.queue_bytes
    }

    /// Whether its sample takes the next chunk.
    pub(super) const fn takes_next(&self) -> bool {
        self.passed + 1 >= self.one_in
    }

    /// Whether the next chunk of these many bytes makes the input wait.
    pub(super) fn must_wait(&self, bytes: u64, config: &RouterConfig) -> bool {
        self.policy == Policy::BackPressure && self.takes_next() && !self.has_room(bytes, config)
    }

    /// The sample passes a chunk over.
    pub(super) const fn pass_over(&mut self) {
        self.passed += 1;
        self.account.passed_over += 1;
    }

    /// A chunk is meant for it: it waits, or is dropped where there is no room.
    pub(super) fn offer(&mut self, chunk: StreamChunk, now: Instant, config: &RouterConfig) {
        self.passed = 0;
        self.account.offered += 1;
        if self.has_room(u64::from(chunk.head.length), config) {
            self.queue.push(chunk, now);
        } else {
            self.drop_chunk(&chunk, Cause::QueueFull);
        }
    }

    /// Takes over a chunk of a member that went, whether there is room or not: the room was its own.
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

    /// A chunk of these many bytes is dropped.
    pub(super) fn drop_bytes(&mut self, bytes: u64, cause: Cause) {
        self.account.dropped.add(cause, u64::from(!is_planted(Flaw::QueueDropUncounted)));
        self.account.dropped_bytes += bytes;
    }

    /// Whether something should be sent now.
    pub(super) fn is_due(&self, now: Instant, config: &RouterConfig, at_once: bool) -> bool {
        let Some(since) = self.queue.since() else { return false };
        let queued = self.queue.amount();
        let is_much = queued.bytes >= config.coalesce_bytes || queued.chunks >= MOST_CHUNKS as u64;
        !self.is_blocked && (at_once || is_much || now >= since.after(config.coalesce_time))
    }

    /// When what waits must be sent although it is little.
    pub(super) fn deadline(&self, config: &RouterConfig) -> Option<Instant> {
        let since = self.queue.since().filter(|_| !self.is_blocked)?;
        Some(since.after(config.coalesce_time))
    }

    /// From where on it needs the ring; `u64::MAX` if not at all.
    pub(super) fn needs_from(&self) -> u64 {
        self.queue.needs_from()
    }

    /// Shows the oldest chunks for a message, and counts those as sent that are accepted. Returns how many.
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

    /// Copies what waits, so that it holds no memory of the card; what cannot be copied is dropped.
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

    /// It goes: takes the next chunk that waits, which somebody else may have.
    pub(super) fn pop(&mut self, pages: &Pages) -> Option<StreamChunk> {
        self.queue.pop(pages)
    }

    /// A chunk that it left is somebody else's now.
    pub(super) const fn count_moved(&mut self) {
        self.account.moved += 1;
    }

    /// Nobody takes a chunk that it left.
    pub(super) fn count_lost(&mut self, chunk: &StreamChunk) {
        self.drop_chunk(chunk, Cause::Disconnected);
    }

    pub(super) fn account(&self) -> SubscriberAccount {
        SubscriberAccount { queued: self.queue.amount().chunks, ..self.account }
    }
}
