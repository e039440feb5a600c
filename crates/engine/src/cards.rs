//! The link cards of a readout unit: when to poll their rings, how to sleep until data arrive, the subscribers of their
//! e-links, and emulated cards.
//!
//! ```text
//!  EmulatedCardDrive, or a card --> ring --> flow's CardInput --> fragments -> flow::Readout
//!        |                                        ^
//!        +----- Bell: only if the reader sleeps --+--> CardSubscribers: the subscribers of its e-links
//! ```
//! Without a bell the reader polls the ring. Each batch is decoded once, for the events and for the subscribers.

use super::stream::{ServerReport, StreamServer};
use super::{Drive, Sent};
use ropewalk_flow::readout::Readout;
use ropewalk_flow::readout::felix::{CardConfig, CardInput, ChunkBatch, EventRules, Listener};
use ropewalk_flow::source::TriggerGate;
use ropewalk_flow::source::felix::{EmulatedCard, EmulatedCardConfig};
use ropewalk_flow::stream::BatchCursor;
use ropewalk_io::Dispatcher;
use ropewalk_io::wait::Bell;
use ropewalk_memory::ring::{RingReader, RingWriter};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Counter, Instant, PoolAccount, SourceId};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum sleep of a reader that polls.
const POLL: Duration = Duration::from_micros(200);

/// A card as seen by its readout unit.
struct Card<D> {
    input: CardInput,
    /// Subscribers of its chunks.
    subscribers: Option<CardSubscribers<D>>,
    /// The bell that its writer rings; `None` if the ring is polled.
    bell: Option<Bell>,
    /// Whether the writer was asked to ring.
    is_armed: bool,
}

/// All cards of a readout unit.
pub(super) struct Cards<D> {
    cards: Vec<Card<D>>,
    /// When to poll again.
    poll_due: Option<Instant>,
}

impl<D> Default for Cards<D> {
    fn default() -> Self {
        Self { cards: Vec::new(), poll_due: None }
    }
}

impl<D: Dispatcher> Cards<D> {
    pub(super) fn add(
        &mut self,
        config: &CardConfig,
        ring: RingReader,
        bell: Option<Bell>,
        server: Option<StreamServer<D>>,
        readout: &Readout,
    ) {
        let input = CardInput::new(config, ring, readout);
        let subscribers = server.map(|server| CardSubscribers::new(server, config.rules.clone()));
        self.cards.push(Card { input, subscribers, bell, is_armed: false });
    }

    /// Returns the input of each card, for checkers.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &CardInput> {
        self.cards.iter().map(|card| &card.input)
    }

    /// Returns the report of each card's subscribers, and the number of expected subscribers without a connection. For
    /// checkers.
    pub(super) fn served(&self) -> impl Iterator<Item = (ServerReport, usize)> {
        self.cards.iter().filter_map(|card| card.subscribers.as_ref().map(CardSubscribers::served))
    }

    /// Processes the available data. Returns the amount of work done.
    pub(super) fn turn(&mut self, now: Instant, readout: &mut Readout) -> usize {
        let is_polled = self.cards.iter().any(|card| card.bell.is_none() && !card.input.is_ended());
        self.poll_due = is_polled.then(|| now.after(POLL));
        self.cards.iter_mut().map(|card| card.turn(now, readout)).sum()
    }

    /// Returns whether all decoded data is at least in the transport to every subscriber, so that their account is
    /// final.
    pub(super) fn are_settled(&self) -> bool {
        let is_settled =
            |card: &Card<D>| card.subscribers.as_ref().is_none_or(|subscribers| subscribers.is_settled(&card.input));
        self.cards.iter().all(is_settled)
    }

    /// Disconnects subscribers that do not read, so that the account can be made. Returns their number.
    pub(super) fn cut_off(&mut self, now: Instant) -> usize {
        let cut_off = |card: &mut Card<D>| Some(card.subscribers.as_mut()?.cut_off(now, &mut card.input));
        self.cards.iter_mut().filter_map(cut_off).sum()
    }

    /// Sends the rest and the end to subscribers after the readout unit has ended. Returns the amount of work done.
    pub(super) fn leave(&mut self, now: Instant) -> usize {
        self.poll_due = None;
        let leave = |card: &mut Card<D>| Some(card.subscribers.as_mut()?.leave(now, &mut card.input));
        self.cards.iter_mut().filter_map(leave).sum()
    }

    /// Returns whether all subscribers have received the end.
    pub(super) fn have_left(&self) -> bool {
        self.cards.iter().filter_map(|card| card.subscribers.as_ref()).all(CardSubscribers::has_left)
    }

    /// Returns whether a card lacks room although all held data would fit into half of its ring: each fragment pins its
    /// whole page.
    pub(super) fn want_evacuation(&self, readout: &Readout) -> bool {
        let mut starved = self.cards.iter().filter(|card| card.input.is_starved());
        starved.any(|card| readout.held_bytes() * 2 <= card.input.ring().capacity())
    }

    /// Returns when the next turn is due even if no bell rings.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let audiences = self.cards.iter().filter_map(|card| card.subscribers.as_ref()?.next_deadline());
        audiences.chain(self.poll_due).min()
    }

    /// Prepares the thread's sleep and arms the bells. Returns false if there is work to do immediately.
    pub(super) fn prepare_wait(&mut self) -> bool {
        // Every card is asked, so that every bell is armed.
        let busy = self.cards.iter_mut().map(Card::prepare_wait).filter(|may_sleep| !may_sleep).count();
        busy == 0
    }

    /// Returns the descriptors that become readable when data arrive.
    pub(super) fn wait_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let bells = self.cards.iter().filter_map(|card| card.bell.as_ref()).map(Bell::as_fd);
        bells.chain(self.cards.iter().filter_map(|card| card.subscribers.as_ref()?.wait_descriptor()))
    }

    /// Returns the accounts of the rings' pages.
    pub(super) fn pools(&mut self) -> impl Iterator<Item = PoolAccount> {
        self.cards.iter_mut().map(|card| {
            card.input.ring_mut().collect();
            card.input.ring().account()
        })
    }

    /// Returns the cumulative counters of the cards.
    pub(super) fn counters(&self) -> impl Iterator<Item = (Counter, u64)> {
        let sum = |of: fn(&CardInput) -> u64| self.cards.iter().map(|card| of(&card.input)).sum();
        let of_cards = [
            (Counter::CardBlocks, sum(|card| card.counts().chunks.blocks)),
            (Counter::CardBlocksDamaged, sum(|card| card.counts().chunks.block_errors.iter().sum())),
            (Counter::CardBlocksMissing, sum(|card| card.counts().chunks.blocks_missing)),
            (Counter::CardChunks, sum(|card| card.counts().chunks.chunks)),
            (Counter::CardChunksGivenUp, sum(|card| card.counts().given_up)),
            (Counter::CardChunksFlagged, sum(|card| card.counts().chunks.flagged.iter().sum())),
            (Counter::CardChunksNobodys, sum(|card| card.counts().nobodys)),
            (Counter::CardSignals, sum(|card| card.counts().chunks.signals)),
            (Counter::CardStalls, sum(|card| card.counts().stalls)),
            (Counter::CardBytesLeftOver, sum(|card| card.counts().left_over_bytes)),
        ];
        let of_subscribers = [
            Counter::SubscribersJoined,
            Counter::ChunksOffered,
            Counter::ChunksSent,
            Counter::ChunksDropped,
            Counter::ChunksMoved,
            Counter::ChunksQueued,
            Counter::ChunkBytesCopied,
            Counter::DownLinkRefused,
        ];
        of_cards.into_iter().chain(of_subscribers.map(|counter| (counter, self.of_subscribers(counter))))
    }

    fn of_subscribers(&self, counter: Counter) -> u64 {
        self.cards
            .iter()
            .filter_map(|card| card.subscribers.as_ref())
            .map(|subscribers| subscribers.counted(counter))
            .sum()
    }

    /// Returns the card part of a counter that connections share: bytes written by the cards, their pages, and copies
    /// for subscribers.
    pub(super) fn shared_counter(&self, counter: Counter) -> u64 {
        let of = |card: &Card<D>| {
            let (ring, account) = (card.input.ring(), card.input.ring().account());
            match counter {
                Counter::WireBytesReceived => ring.written(),
                Counter::PoolLoans => account.loans,
                Counter::PoolReturns => account.returned,
                Counter::PoolHeld => account.held,
                Counter::PoolBlocks => ring.pages() as u64,
                _ => 0,
            }
        };
        self.cards.iter().map(of).sum::<u64>() + self.of_subscribers(counter)
    }
}

impl<D: Dispatcher> Card<D> {
    fn turn(&mut self, now: Instant, readout: &mut Readout) -> usize {
        if std::mem::take(&mut self.is_armed)
            && let Some(bell) = &self.bell
        {
            self.input.ring_mut().wake();
            bell.silence();
        }
        let Some(subscribers) = &mut self.subscribers else { return self.input.turn(now, readout, &mut ()) };
        let mut work = subscribers.hear(now);
        if subscribers.has_begun() {
            work += self.input.turn(now, readout, subscribers);
        }
        if self.input.is_ended() {
            subscribers.end();
        }
        work + subscribers.send(self.input.is_tight())
    }

    fn prepare_wait(&mut self) -> bool {
        let may_sleep = self.subscribers.as_mut().is_none_or(CardSubscribers::prepare_wait);
        if self.bell.is_none() || self.input.is_ended() {
            return may_sleep;
        }
        let is_read = self.subscribers.as_ref().is_none_or(CardSubscribers::has_begun);
        self.is_armed = is_read;
        (!is_read || self.input.ring_mut().prepare_wait()) && may_sleep
    }
}

/// Interval of the check for data queued for subscribers when the card has little room.
const RELIEF: Duration = Duration::from_millis(1);
/// Maximum time for subscribers to receive the end.
const LEAVING: Duration = Duration::from_secs(1);

/// The server of one card. It is the listener of the card's input.
pub(super) struct CardSubscribers<D> {
    server: StreamServer<D>,
    rules: EventRules,
    /// Position up to which the current batch was routed.
    cursor: BatchCursor,
    /// Time of this turn.
    now: Instant,
    relief_due: Instant,
    /// Time limit for announcing the end of the stream to subscribers.
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

    /// Accepts and drops connections before the card is read. Returns the amount of work done.
    pub(super) fn hear(&mut self, now: Instant) -> usize {
        self.now = now;
        self.server.hear_all(now)
    }

    /// Returns whether the card may be read: all awaited subscribers have connected.
    pub(super) const fn has_begun(&self) -> bool {
        self.server.has_begun()
    }

    /// Sends due data after the card was read. If the card's memory is tight, copies the queued data out of it.
    pub(super) fn send(&mut self, is_tight: bool) -> usize {
        if is_tight && self.now >= self.relief_due {
            self.relief_due = self.now.after(RELIEF);
            self.server.relieve();
        }
        self.server.send_all(self.now)
    }

    /// Returns whether all data that `input` has decoded is at least in the transport to every subscriber.
    pub(super) fn is_settled(&self, input: &CardInput) -> bool {
        input.is_heard() && self.server.is_settled() || is_planted(Flaw::RestUnheard)
    }

    /// Disconnects the subscribers that do not read their queued data. The others then get the data that waited behind
    /// it. Returns the number of disconnected subscribers.
    pub(super) fn cut_off(&mut self, now: Instant, input: &mut CardInput) -> usize {
        self.now = now;
        let gone = self.server.cut_off_holders(now);
        input.hand_rest_to(self);
        gone
    }

    /// Returns the server's report and the number of missing expected subscribers, for checkers.
    pub(super) fn served(&self) -> (ServerReport, usize) {
        (self.server.report(), self.server.absent())
    }

    /// Ends the stream: no data will follow.
    pub(super) const fn end(&mut self) {
        self.server.end();
    }

    /// Sends the rest, including what `input` has decoded already, and announces the end to all subscribers. Gives up
    /// after `LEAVING`, so that a subscriber that does not read cannot keep the process alive.
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

    /// Returns this server's part of a counter of the readout unit.
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

/// Bytes written before the card hands them over.
const TURN_BYTES: usize = 256 << 10;
/// Time until the card checks again for room, or for the end.
const PAUSE: Duration = Duration::from_micros(200);

/// An emulated card, on one thread.
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
    /// Creates a card that writes the events that `gate` admits. It rings `bell` when its reader sleeps.
    pub fn new(config: EmulatedCardConfig, ring: RingWriter, bell: Option<Bell>, gate: Arc<TriggerGate>) -> Self {
        let sent = config.links.iter().map(|link| (link.source, Arc::default())).collect();
        let card = EmulatedCard::new(config);
        Self { card, ring, bell, gate, started: None, deadline: None, sent, is_done: false }
    }

    /// Returns the record of sent data of each e-link.
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
