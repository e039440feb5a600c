//! One subscriber: what it asked for, and what waits for it.

use super::{RouterConfig, StreamChunk, SubscriberAccount};
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::stream::{MOST_CHUNKS, Policy, Share, Subscribe};
use std::collections::VecDeque;

/// A chunk that waits, and since when.
#[derive(Debug)]
struct Waiting {
    chunk: StreamChunk,
    since: Instant,
}

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) policy: Policy,
    pub(super) share: Share,
    one_in: u32,
    /// How many chunks of its e-links came since the last one that it got.
    passed: u32,
    queue: VecDeque<Waiting>,
    queued_bytes: u64,
    /// The transport has no room: nothing is due before it says that it has.
    pub(super) is_blocked: bool,
    account: SubscriberAccount,
}

impl Subscriber {
    pub(super) fn new(config: &RouterConfig) -> Self {
        Self {
            policy: Policy::Drop,
            share: Share::Alone,
            one_in: 1,
            passed: 0,
            queue: VecDeque::with_capacity(config.queue_chunks),
            queued_bytes: 0,
            is_blocked: false,
            account: SubscriberAccount::default(),
        }
    }

    /// Takes over what it asks for now; what waits stays.
    pub(super) fn ask(&mut self, wanted: &Subscribe) {
        (self.policy, self.share, self.one_in, self.passed) = (wanted.policy, wanted.share, wanted.one_in.max(1), 0);
    }

    pub(super) fn has_room(&self, bytes: u64, config: &RouterConfig) -> bool {
        self.queue.is_empty()
            || (self.queue.len() < config.queue_chunks && self.queued_bytes + bytes <= config.queue_bytes)
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
            self.push(chunk, now);
        } else {
            self.drop_chunk(&chunk, Cause::QueueFull);
        }
    }

    /// Takes over a chunk of a member that went, whether there is room or not: the room was its own.
    pub(super) fn take_over(&mut self, chunk: StreamChunk, now: Instant, config: &RouterConfig) {
        self.account.offered += 1;
        if self.policy == Policy::BackPressure || self.has_room(u64::from(chunk.head.length), config) {
            self.push(chunk, now);
        } else {
            self.drop_chunk(&chunk, Cause::QueueFull);
        }
    }

    fn push(&mut self, chunk: StreamChunk, since: Instant) {
        self.queued_bytes += u64::from(chunk.head.length);
        self.queue.push_back(Waiting { chunk, since });
    }

    fn drop_chunk(&mut self, chunk: &StreamChunk, cause: Cause) {
        self.account.dropped.add(cause, 1);
        self.account.dropped_bytes += u64::from(chunk.head.length);
    }

    /// Whether something should be sent now.
    pub(super) fn is_due(&self, now: Instant, config: &RouterConfig, at_once: bool) -> bool {
        let Some(oldest) = self.queue.front() else { return false };
        let is_much = self.queued_bytes >= config.coalesce_bytes || self.queue.len() >= MOST_CHUNKS;
        !self.is_blocked && (at_once || is_much || now >= oldest.since.after(config.coalesce_time))
    }

    /// When what waits must be sent although it is little.
    pub(super) fn deadline(&self, config: &RouterConfig) -> Option<Instant> {
        let oldest = self.queue.front().filter(|_| !self.is_blocked)?;
        Some(oldest.since.after(config.coalesce_time))
    }

    /// Takes the oldest chunks for a message of at most so many bytes, its heads included, and counts them as sent.
    pub(super) fn take(&mut self, most_bytes: usize, most_payload: u64, out: &mut Vec<StreamChunk>) {
        let (mut message, mut payload) = (ropewalk_wire::stream::heads_bytes(0), 0);
        while let Some(waiting) = self.queue.front() {
            let length = waiting.chunk.head.length;
            message += ropewalk_wire::stream::CHUNK_HEAD_BYTES + length as usize;
            let is_enough = out.len() == MOST_CHUNKS || (!out.is_empty() && payload + u64::from(length) > most_payload);
            if is_enough || message > most_bytes {
                break;
            }
            payload += u64::from(length);
            out.extend(self.queue.pop_front().map(|waiting| waiting.chunk));
        }
        self.queued_bytes -= payload;
        self.account.sent += out.len() as u64;
        self.account.sent_bytes += payload;
    }

    /// What was taken was not sent after all.
    pub(super) fn give_back(&mut self, chunks: &mut Vec<StreamChunk>, now: Instant) {
        for chunk in chunks.drain(..).rev() {
            let length = u64::from(chunk.head.length);
            self.account.sent -= 1;
            self.account.sent_bytes -= length;
            self.queued_bytes += length;
            self.queue.push_front(Waiting { chunk, since: now });
        }
    }

    /// Copies what waits, so that it holds no memory of the card; what cannot be copied is dropped.
    pub(super) fn relieve(&mut self, mut copy: impl FnMut(&Payload) -> Option<Payload>) {
        let Self { queue, account, queued_bytes, .. } = self;
        queue.retain_mut(|waiting| {
            let chunk = &mut waiting.chunk;
            if chunk.is_copy {
                return true;
            }
            let copied = copy(&chunk.payload);
            chunk.is_copy = copied.is_some();
            match copied {
                Some(copied) => chunk.payload = copied,
                None => {
                    account.dropped.add(Cause::QueueFull, 1);
                    account.dropped_bytes += u64::from(chunk.head.length);
                    *queued_bytes -= u64::from(chunk.head.length);
                }
            }
            chunk.is_copy
        });
    }

    pub(super) fn drop_oldest(&mut self) {
        if let Some(chunk) = self.pop() {
            self.drop_chunk(&chunk, Cause::QueueFull);
        }
    }

    /// It goes: takes the next chunk that waits, which somebody else may have.
    pub(super) fn pop(&mut self) -> Option<StreamChunk> {
        let chunk = self.queue.pop_front()?.chunk;
        self.queued_bytes -= u64::from(chunk.head.length);
        Some(chunk)
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
        SubscriberAccount { queued: self.queue.len() as u64, ..self.account }
    }
}
