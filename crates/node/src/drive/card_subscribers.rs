//! The subscribers of a card that a readout unit reads. Each batch is decoded once, for the events and for the subscribers.

use super::stream::{ServerReport, StreamServer};
use ropewalk_flow::readout::felix::{CardInput, ChunkBatch, EventRules, Listener};
use ropewalk_flow::stream::BatchCursor;
use ropewalk_io::Dispatcher;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Counter, Instant};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How often what waits for subscribers is looked at where the card has little room.
const RELIEF: Duration = Duration::from_millis(1);
/// How long subscribers may take to hear the end.
const LEAVING: Duration = Duration::from_secs(1);

/// The server of one card, as the listener that its input knows.
pub(super) struct CardSubscribers<D> {
    server: StreamServer<D>,
    rules: EventRules,
    /// How far the present batch was routed.
    cursor: BatchCursor,
    /// The time of this turn.
    now: Instant,
    relief_due: Instant,
    /// Until when the end is told.
    leaves_by: Option<Instant>,
    has_left: bool,
}

impl<D: Dispatcher> CardSubscribers<D> {
    pub(super) const fn new(server: StreamServer<D>, rules: EventRules) -> Self {
        Self {
            server,
            rules,
            cursor: BatchCursor { run: 0, item: 0 },
            now: Instant::ZERO,
            relief_due: Instant::ZERO,
            leaves_by: None,
            has_left: false,
        }
    }

    /// Before the card is read: hears who comes and goes. Returns how much happened.
    pub(super) fn hear(&mut self, now: Instant) -> usize {
        self.now = now;
        self.server.hear_all(now)
    }

    /// Whether the card is to be read: as many subscribers came as are waited for.
    pub(super) const fn has_begun(&self) -> bool {
        self.server.has_begun()
    }

    /// After the card was read: sends what is due. What waits leaves the card's memory where that is tight.
    pub(super) fn send(&mut self, is_tight: bool) -> usize {
        if is_tight && self.now >= self.relief_due {
            self.relief_due = self.now.after(RELIEF);
            self.server.relieve();
        }
        self.server.send_all(self.now)
    }

    /// Whether everybody has, in the transport at least, what `input` has decoded.
    pub(super) fn is_settled(&self, input: &CardInput) -> bool {
        input.is_heard() && self.server.is_settled() || is_planted(Flaw::RestUnheard)
    }

    /// Cuts off whoever has not read what waits for it; then others have what that kept from them. Returns how many go.
    pub(super) fn cut_off(&mut self, now: Instant, input: &mut CardInput) -> usize {
        self.now = now;
        let gone = self.server.cut_off_holders(now);
        input.hand_rest_to(self);
        gone
    }

    /// What the server did, and who is missing there, for checkers.
    pub(super) fn served(&self) -> (ServerReport, usize) {
        (self.server.report(), self.server.absent())
    }

    /// Nothing more comes.
    pub(super) const fn end(&mut self) {
        self.server.end();
    }

    /// Sends the rest, with what `input` has decoded already, and tells everybody the end, for a while: whoever does not
    /// read does not keep the process.
    pub(super) fn leave(&mut self, now: Instant, input: &mut CardInput) -> usize {
        let by = *self.leaves_by.get_or_insert(now.after(LEAVING));
        let heard = self.hear(now);
        if is_planted(Flaw::RestUnheard) || input.hand_rest_to(self) {
            self.server.end();
        }
        let work = heard + self.send(false);
        self.has_left = self.server.is_done() || now >= by;
        work
    }

    pub(super) const fn has_left(&self) -> bool {
        self.has_left
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let leaves_by = self.leaves_by.filter(|_| !self.has_left);
        self.server.next_deadline().into_iter().chain(leaves_by).min()
    }

    pub(super) fn prepare_wait(&mut self) -> bool {
        self.server.prepare_wait()
    }

    pub(super) fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.server.wait_descriptor()
    }

    /// What this server adds to a counter of the readout unit.
    pub(super) fn counted(&self, counter: Counter) -> u64 {
        let report = self.server.report();
        let all = &report.subscribers;
        match counter {
            Counter::SubscribersJoined => report.joined,
            Counter::ChunksOffered => all.offered,
            Counter::ChunksSent => all.sent,
            Counter::ChunksDropped => all.dropped.total(),
            Counter::ChunksMoved => all.moved,
            Counter::ChunksQueued => all.queued,
            Counter::DownLinkRefused => report.down.1,
            Counter::ChunkBytesCopied | Counter::BytesCopied => report.copied_bytes,
            _ => 0,
        }
    }
}

impl<D: Dispatcher> Listener for CardSubscribers<D> {
    fn take(&mut self, batch: &ChunkBatch, ring: &mut RingReader) -> bool {
        self.server.router_mut().route(batch, ring, &self.rules, &mut self.cursor, self.now);
        let is_done = self.cursor.is_at_end(batch);
        if is_done {
            self.cursor = BatchCursor::default();
        }
        is_done
    }

    fn holds(&self) -> bool {
        self.server.holds_card()
    }
}
