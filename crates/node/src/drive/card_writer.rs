//! An emulated card's own drive: it writes blocks into its ring as the card's DMA engine would.

use super::{Drive, Sent};
use ropewalk_flow::source::TriggerGate;
use ropewalk_flow::source::felix::{EmulatedCard, EmulatedCardConfig};
use ropewalk_io::wait::Bell;
use ropewalk_memory::ring::RingWriter;
use ropewalk_terms::{Instant, SourceId};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes written before they are handed over.
const TURN_BYTES: usize = 256 << 10;
/// How long the card waits before it looks for room again, or for the end.
const PAUSE: Duration = Duration::from_micros(200);

/// A card on one thread.
pub struct EmulatedCardDrive {
    card: EmulatedCard,
    ring: RingWriter,
    bell: Option<Bell>,
    gate: Arc<TriggerGate>,
    started: Option<Instant>,
    deadline: Option<Instant>,
    sent: Vec<(SourceId, Arc<Sent>)>,
    is_done: bool,
}

impl EmulatedCardDrive {
    /// A card that writes what `gate` lets through; `bell` is rung when its reader sleeps.
    pub fn new(config: EmulatedCardConfig, ring: RingWriter, bell: Option<Bell>, gate: Arc<TriggerGate>) -> Self {
        let sent = config.links.iter().map(|link| (link.source, Arc::default())).collect();
        let card = EmulatedCard::new(config);
        Self { card, ring, bell, gate, started: None, deadline: None, sent, is_done: false }
    }

    /// What each e-link says that it sent.
    pub fn sent(&self) -> Vec<(SourceId, Arc<Sent>)> {
        self.sent.clone()
    }

    fn end(&mut self) {
        let must_ring = self.ring.close();
        self.ring_if(must_ring);
        self.is_done = true;
    }

    fn ring_if(&self, must_ring: bool) {
        if must_ring && let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    fn publish(&self) {
        for ((_, sent), (_, injected)) in self.sent.iter().zip(self.card.injected()) {
            sent.fragments.store(injected.chunks, Ordering::Relaxed);
            sent.bytes.store(injected.bytes, Ordering::Relaxed);
        }
    }
}

impl Drive for EmulatedCardDrive {
    fn turn(&mut self, now: Instant) -> usize {
        let elapsed = now.since(*self.started.get_or_insert(now));
        let space = self.ring.space();
        let most = space.len().min(TURN_BYTES);
        let filled = self.card.fill(elapsed, &self.gate, &mut space[..most]);
        if filled > 0 {
            let must_ring = self.ring.commit(filled);
            self.ring_if(must_ring);
            self.publish();
        }
        if self.card.is_exhausted() || self.ring.is_abandoned() {
            self.publish();
            self.end();
        }
        let due = self.card.next_due(elapsed).map(|due| now.after(due - elapsed));
        self.deadline = due.into_iter().chain([now.after(PAUSE)]).min();
        filled
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn prepare_wait(&mut self) -> bool {
        true
    }

    fn wait_descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}

    fn is_done(&self) -> bool {
        self.is_done
    }
}
