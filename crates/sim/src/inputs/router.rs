//! A router of chunks, told anything by anybody.

use super::MOST_ACTIONS;
use super::card::Card;
use super::choices::Choices;
use ropewalk_flow::stream::{Router, RouterConfig, StreamChunk, SubscriberId};
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::felix::{ELink, Status};
use ropewalk_wire::stream::{Balance, ChunkHead, Policy, Range, Share, Subscribe, heads_bytes};
use std::ops::ControlFlow;
use std::time::Duration;

const ELINKS: u64 = 6;
const QUEUE_BYTES: u64 = 1000;
/// Cards, and one more way by which chunks come: one by one.
const CARDS: usize = 2;

/// What the referee knows about a subscriber.
struct Known {
    id: SubscriberId,
    /// What it asked for, the last of which holds.
    wanted: Vec<Subscribe>,
    /// The number of the chunk that it got last, by way and e-link: each comes once, and in order.
    last: [[u64; ELINKS as usize]; CARDS + 1],
    heir: bool,
}

impl Known {
    fn new(id: SubscriberId) -> Self {
        Self { id, wanted: Vec::new(), last: Default::default(), heir: false }
    }

    /// Whether it keeps a card waiting where it has no room.
    fn must_miss_nothing(&self) -> bool {
        self.wanted.last().is_some_and(|wanted| wanted.policy == Policy::BackPressure)
    }

    /// Whether it takes what another member of its group leaves, whatever that is.
    fn is_heir_of(&self, gone: &Self) -> bool {
        let share = |known: &Self| known.wanted.last().map(|wanted| wanted.share);
        let all = |wanted: &Subscribe| {
            let is_wanted =
                |elink| wanted.ranges.iter().any(|range| range.first.index() <= elink && elink <= range.last.index());
            (0..ELINKS as usize).all(is_wanted)
        };
        share(self) == share(gone)
            && matches!(share(self), Some(Share::Group(..)))
            && self.wanted.last().is_some_and(all)
    }
}

/// A router, its cards, and who is there.
struct Table<'a> {
    choices: Choices<'a>,
    router: Router,
    cards: [Card; CARDS],
    all: Vec<Known>,
    copies: Staging,
    number: u32,
}

/// Feeds a router: chunks one by one, and batches of two cards of which blocks are lost; subscribers that come, change
/// their minds, read or do not, are relieved, and go.
///
/// # Panics
/// Where the machine does; where an account does not balance, a queue grows beyond its bound, a chunk goes to somebody who
/// never asked for it, comes twice, out of order or with other bytes, what a member leaves is lost although another one
/// could have it, a card waits for nobody, or the machine keeps asking for messages that it does not have; and where at
/// the end, when nobody is left, a page of a card has not come home.
pub fn router(bytes: &[u8]) {
    let config = RouterConfig {
        subscribers: 4,
        queue_bytes: QUEUE_BYTES,
        queue_chunks: 16,
        coalesce_bytes: 300,
        coalesce_time: Duration::from_millis(2),
    };
    let pool = Pool::new(PoolConfig::heap("copies", 4 << 10, 4)).expect("memory for a few copies");
    let mut table = Table {
        choices: Choices::new(bytes),
        router: Router::new(config),
        cards: [0, 1].map(|name| Card::new(name, ELINKS as u16)),
        all: Vec::new(),
        copies: Staging::new(pool),
        number: 0,
    };
    while !table.choices.is_over() {
        table.step();
        table.check();
    }
    table.end();
}

impl Table<'_> {
    fn step(&mut self) {
        let now = self.choices.now();
        match self.choices.below(16) {
            0 => self.join(),
            1 | 2 => self.subscribe(),
            3 if !self.all.is_empty() && self.choices.chance() => self.leave(now),
            4 | 5 => self.send(now),
            6 if !self.all.is_empty() => self.relieve(),
            7 if self.choices.below(16) == 0 => self.router.finish(),
            8..=10 => {
                self.number += 1;
                let card = self.choices.below(CARDS as u64) as usize;
                self.cards[card].say(&mut self.choices, self.number);
            }
            11..=13 => {
                let card = self.choices.below(CARDS as u64) as usize;
                let is_done = self.cards[card].route(&mut self.router, now);
                assert!(is_done || self.all.iter().any(Known::must_miss_nothing), "nobody is waited for");
            }
            _ => self.offer(now),
        }
    }

    fn join(&mut self) {
        let joined = self.router.join();
        assert_eq!(joined.is_err(), self.all.len() == 4, "there are four places");
        self.all.extend(joined.map(Known::new));
    }

    fn subscribe(&mut self) {
        let choices = &mut self.choices;
        if self.all.is_empty() {
            return;
        }
        let who = choices.below(self.all.len() as u64) as usize;
        let elink = |choices: &mut Choices<'_>| ELink::new(choices.below(ELINKS) as u16);
        let everything = Range { first: ELink::new(0), last: ELink::new(ELINKS as u16 - 1) };
        let some = |choices: &mut Choices<'_>| {
            let (one, other) = (elink(choices), elink(choices));
            Range { first: one.min(other), last: one.max(other) }
        };
        let ranges = match choices.below(4) {
            0 => vec![everything],
            count => (1..count).map(|_| some(choices)).collect(),
        };
        let policy = if choices.chance() { Policy::BackPressure } else { Policy::Drop };
        let share = match choices.below(4) {
            0 | 1 => Share::Alone,
            2 => Share::Group(choices.below(2) as u16, Balance::RoundRobin),
            _ => Share::Group(choices.below(2) as u16, Balance::ByEvent),
        };
        let wanted = Subscribe { ranges, policy, share, one_in: choices.below(3) as u32 };
        if self.router.subscribe(self.all[who].id, &wanted).is_ok() {
            self.all[who].wanted.push(wanted);
        }
    }

    fn leave(&mut self, now: Instant) {
        let gone = self.all.remove(self.choices.below(self.all.len() as u64) as usize);
        let before = self.router.account(gone.id).expect("it is there");
        let account = self.router.leave(gone.id, now);
        assert!(account.is_balanced() && account.queued == 0, "{account:?}");
        assert_eq!(self.router.account(gone.id), None, "it has left");
        let lost = account.dropped.get(Cause::Disconnected) - before.dropped.get(Cause::Disconnected);
        assert_eq!(account.moved - before.moved + lost, before.queued, "what waited went on or was lost");
        let has_heir = self.all.iter().any(|known| known.is_heir_of(&gone));
        assert!(lost == 0 || !has_heir, "{lost} chunks had an heir");
        // Others may have taken over what it left, behind what they have: later than they should, and more.
        let is_shared = account.moved > 0;
        self.all.iter_mut().for_each(|known| known.heir |= is_shared);
    }

    fn relieve(&mut self) {
        let id = self.all[self.choices.below(self.all.len() as u64) as usize].id;
        if self.choices.below(4) == 0 {
            return self.router.drop_oldest(id);
        }
        self.copies.pool_mut().collect();
        self.router.relieve(id, |payload| payload.evacuate(&mut self.copies));
    }

    fn offer(&mut self, now: Instant) {
        self.number += 1;
        let elink = ELink::new(self.choices.below(ELINKS) as u16);
        let head = ChunkHead { elink, status: Status::GOOD, sequence: 0, length: self.choices.below(400) as u32 };
        // The event is the chunk's number: that is how it is known again.
        let number = u64::from(self.number);
        let chunk = StreamChunk { head, event: number, payload: Payload::default(), is_copy: false };
        let before = self.router.total();
        match self.router.offer(chunk, now) {
            Err(refused) => {
                assert_eq!(refused.event, number, "the same chunk comes back");
                assert_eq!(self.router.total(), before, "nobody has it");
            }
            Ok(()) => {
                let after = self.router.total();
                let taken = after.offered + after.passed_over - before.offered - before.passed_over;
                assert_eq!(taken > 0, self.router.is_wanted(elink), "somebody has what somebody wants");
            }
        }
    }

    /// Sends what is due, into transports that have room or not.
    fn send(&mut self, now: Instant) {
        for turn in 0.. {
            assert!(turn < MOST_ACTIONS, "the router does not come to rest");
            let Some(id) = self.router.poll(now) else { break };
            let room = self.choices.below(600) as usize;
            let accepted = if self.choices.below(4) == 0 { self.choices.below(9) } else { u64::MAX };
            let mut chunks = Vec::new();
            self.router.take_each(id, room, |chunk| {
                if chunks.len() as u64 == accepted {
                    return ControlFlow::Break(());
                }
                chunks.push(chunk.to_stream_chunk());
                ControlFlow::Continue(())
            });
            let bytes: usize = chunks.iter().map(|chunk| chunk.head.length as usize).sum();
            assert!(chunks.is_empty() || heads_bytes(chunks.len()) + bytes <= room, "it does not fit");
            chunks.iter().for_each(|chunk| self.sent(id, chunk));
            if self.choices.chance() {
                self.router.unblock(id);
            }
        }
    }

    /// A chunk that a subscriber gets.
    fn sent(&mut self, id: SubscriberId, chunk: &StreamChunk) {
        let known = self.all.iter_mut().find(|known| known.id == id).expect("who is due is there");
        let elink = chunk.head.elink;
        let is_in = |range: &Range| range.first <= elink && elink <= range.last;
        let mut asked = known.wanted.iter().flat_map(|wanted| &wanted.ranges);
        assert!(asked.any(is_in), "{elink} was never asked for");
        let bytes = chunk.payload.to_vec();
        // Those that came one by one have no bytes.
        let (way, number) = match bytes.get(5) {
            Some(&card) => {
                assert_eq!(bytes.len(), chunk.head.length as usize, "as long as its head says");
                let number = self.cards[usize::from(card)].number_of(&bytes, elink, chunk.head.status);
                (usize::from(card), number.into())
            }
            None => (CARDS, chunk.event),
        };
        let last = std::mem::replace(&mut known.last[way][elink.index()], number);
        assert!(last < number || known.heir, "chunk {number} comes after {last}");
    }

    fn check(&self) {
        let (router, all) = (&self.router, &self.all);
        let total = router.total();
        assert!(total.is_balanced(), "{total:?}");
        let queued: u64 = all.iter().filter_map(|known| router.account(known.id)).map(|account| account.queued).sum();
        assert_eq!(total.queued, queued, "nothing waits for somebody who is not there");
        for account in all.iter().filter_map(|known| router.account(known.id)) {
            assert!(account.is_balanced(), "{account:?}");
            // A member may have taken over what four queues held.
            assert!(account.queued <= 4 * 16 + 4, "{account:?}");
        }
        let (received, unwanted) = router.received();
        let listens = |known: &&Known| known.wanted.last().is_some_and(|wanted| !wanted.ranges.is_empty());
        let listeners = all.iter().filter(listens).count();
        assert!(unwanted <= received && router.listeners() as usize == listeners);
        let _ = router.next_deadline();
    }

    /// Everybody goes: then nobody has anything of the cards.
    fn end(mut self) {
        let now = self.choices.now();
        while !self.all.is_empty() {
            self.leave(now);
        }
        for card in &mut self.cards {
            assert!(card.route(&mut self.router, now), "nobody is there to be waited for");
            card.check_home();
        }
    }
}
