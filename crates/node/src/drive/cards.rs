//! The link cards of a readout unit: when to look at their rings, and how to sleep until there is something.
//!
//! ```text
//!  RingWriter (another thread or process) --> ring --> flow's CardInput --> fragments -> flow::Readout
//!        |                                                  ^
//!        +--------------- Bell: only if the reader sleeps --+     or the reader looks again and again
//! ```

use ropewalk_flow::readout::Readout;
use ropewalk_flow::readout::felix::{CardConfig, CardInput};
use ropewalk_io::wait::Bell;
use ropewalk_memory::ring::RingReader;
use ropewalk_terms::{Counter, Instant, PoolAccount};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How long a reader that looks again and again may sleep in between.
const POLL: Duration = Duration::from_micros(200);

/// A card as its readout unit reads it.
struct Card {
    input: CardInput,
    /// What its writer rings; none where it is polled.
    bell: Option<Bell>,
    /// The writer was told to ring.
    is_armed: bool,
}

/// All cards of a readout unit.
#[derive(Default)]
pub(super) struct Cards {
    cards: Vec<Card>,
    /// When cards that are polled are looked at again.
    poll_due: Option<Instant>,
}

impl Cards {
    pub(super) fn add(&mut self, config: &CardConfig, ring: RingReader, bell: Option<Bell>, readout: &Readout) {
        self.cards.push(Card { input: CardInput::new(config, ring, readout), bell, is_armed: false });
    }

    /// Takes what has come. Returns how much happened.
    pub(super) fn turn(&mut self, now: Instant, readout: &mut Readout) -> usize {
        let is_polled = self.cards.iter().any(|card| card.bell.is_none() && !card.input.is_ended());
        self.poll_due = is_polled.then(|| now.after(POLL));
        self.cards.iter_mut().map(|card| card.turn(now, readout)).sum()
    }

    /// Whether a card waits for room, and all that is held would fit into half of its ring: one fragment pins its page.
    pub(super) fn want_evacuation(&self, readout: &Readout) -> bool {
        let mut starved = self.cards.iter().filter(|card| card.input.is_starved());
        starved.any(|card| readout.held_bytes() * 2 <= card.input.ring().capacity())
    }

    /// When the next turn is due even if nothing rings.
    pub(super) const fn next_deadline(&self) -> Option<Instant> {
        self.poll_due
    }

    /// Before the thread sleeps: false if there is something to do right now; arms the bells.
    pub(super) fn prepare_wait(&mut self) -> bool {
        // All are asked, so that all are armed.
        let busy = self.cards.iter_mut().map(Card::prepare_wait).filter(|may_sleep| !may_sleep).count();
        busy == 0
    }

    /// What becomes readable when something comes.
    pub(super) fn wait_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cards.iter().filter_map(|card| card.bell.as_ref()).map(Bell::as_fd)
    }

    /// The accounts of the rings' pages.
    pub(super) fn pools(&mut self) -> impl Iterator<Item = PoolAccount> {
        self.cards.iter_mut().map(|card| {
            card.input.ring_mut().collect();
            card.input.ring().account()
        })
    }

    /// What is counted here, cumulative.
    pub(super) fn counters(&self) -> [(Counter, u64); 8] {
        let sum = |of: fn(&CardInput) -> u64| self.cards.iter().map(|card| of(&card.input)).sum();
        [
            (Counter::CardBlocks, sum(|card| card.counts().chunks.blocks)),
            (Counter::CardBlocksDamaged, sum(|card| card.counts().chunks.block_errors.iter().sum())),
            (Counter::CardBlocksMissing, sum(|card| card.counts().chunks.blocks_missing)),
            (Counter::CardChunks, sum(|card| card.counts().chunks.chunks)),
            (Counter::CardChunksGivenUp, sum(|card| card.counts().given_up)),
            (Counter::CardChunksFlagged, sum(|card| card.counts().chunks.flagged.iter().sum())),
            (Counter::CardChunksNobodys, sum(|card| card.counts().nobodys)),
            (Counter::CardSignals, sum(|card| card.counts().chunks.signals)),
        ]
    }

    /// Numbers that stand beside those of connections: bytes that the cards wrote, and their pages.
    pub(super) fn shared_counter(&self, counter: Counter) -> u64 {
        let of = |card: &Card| {
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
        self.cards.iter().map(of).sum()
    }
}

impl Card {
    fn turn(&mut self, now: Instant, readout: &mut Readout) -> usize {
        if std::mem::take(&mut self.is_armed)
            && let Some(bell) = &self.bell
        {
            self.input.ring_mut().wake();
            bell.silence();
        }
        self.input.turn(now, readout)
    }

    fn prepare_wait(&mut self) -> bool {
        if self.bell.is_none() || self.input.is_ended() {
            return true;
        }
        self.is_armed = true;
        self.input.ring_mut().prepare_wait()
    }
}
