//! A router of chunks with random input from its subscribers, and a small card in front of it. The card's chunks
//! contain their number. They are in blocks, some of which are lost.

use super::Choices;
use super::MOST_ACTIONS;
use ropewalk_flow::readout::felix::{ChunkConfig, ChunkDecoder, EventRule};
use ropewalk_flow::stream::{BatchCursor, Router, RouterConfig, StreamChunk, SubscriberId};
use ropewalk_memory::ring::{RingReader, RingWriter, ring};
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::felix::{BlockFormat, ELink, Encoder, SEQUENCES, Status};
use ropewalk_wire::stream::{Balance, ChunkHead, Policy, Range, Share, Subscribe, heads_bytes};
use std::ops::ControlFlow;
use std::time::Duration;

const ELINKS: u64 = 6;
const QUEUE_BYTES: u64 = 1000;
/// The number of cards; chunks also arrive in one more way: one by one.
const CARDS: usize = 2;

/// The referee's knowledge of a subscriber.
struct Known {
    id: SubscriberId,
    /// Its subscriptions; the last one is in effect.
    wanted: Vec<Subscribe>,
    /// The number of the last chunk that it got, by way and e-link: each arrives once, and in order.
    last: [[u64; ELINKS as usize]; CARDS + 1],
    heir: bool,
}

impl Known {
    fn new(id: SubscriberId) -> Self {
        Self { id, wanted: Vec::new(), last: Default::default(), heir: false }
    }

    /// Whether it makes a card wait when it has no room.
    fn must_miss_nothing(&self) -> bool {
        self.wanted.last().is_some_and(|wanted| wanted.policy == Policy::BackPressure)
    }

    /// Whether it inherits the chunks of another member of its group, for all e-links.
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

/// A router, its cards, and its subscribers.
struct Table<'a> {
    choices: Choices<'a>,
    router: Router,
    cards: [Card; CARDS],
    all: Vec<Known>,
    copies: Staging,
    number: u32,
}

/// Feeds a router: chunks one by one, and batches of two cards that lose blocks; subscribers that come, change
/// subscriptions, read or do not, are relieved, and leave.
///
/// # Panics
/// If the machine panics; if an account does not balance, a queue exceeds its bound, a chunk goes to a subscriber that
/// never asked for it, arrives twice, out of order or with other bytes, a member's remaining chunks are lost although
/// another one could get them, a card waits without a subscriber, or the machine keeps asking for messages that it does
/// not have; and if at the end, when all subscribers have left, a page of a card is not returned.
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
                assert!(
                    is_done || self.all.iter().any(Known::must_miss_nothing),
                    "it waits, although every subscriber may lose chunks"
                );
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
        // Others may have inherited its chunks, queued after their own: these are late, and more.
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
        // The event is the chunk's number, which identifies it.
        let number = u64::from(self.number);
        let chunk = StreamChunk { head, event: number, payload: Payload::default(), is_copy: false };
        let before = self.router.total();
        match self.router.offer(chunk, now) {
            Err(refused) => {
                assert_eq!(refused.event, number, "the same chunk comes back");
                assert_eq!(self.router.total(), before, "it is in no account");
            }
            Ok(()) => {
                let after = self.router.total();
                let taken = after.offered + after.passed_over - before.offered - before.passed_over;
                assert_eq!(taken > 0, self.router.is_wanted(elink), "a chunk is taken exactly if its e-link is wanted");
            }
        }
    }

    /// Sends what is due, into transports with or without room.
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

    /// A subscriber gets a chunk.
    fn sent(&mut self, id: SubscriberId, chunk: &StreamChunk) {
        let known = self.all.iter_mut().find(|known| known.id == id).expect("a subscriber that is due is present");
        let elink = chunk.head.elink;
        let is_in = |range: &Range| range.first <= elink && elink <= range.last;
        let mut asked = known.wanted.iter().flat_map(|wanted| &wanted.ranges);
        assert!(asked.any(is_in), "{elink} was never asked for");
        let bytes = chunk.payload.to_vec();
        // Chunks that arrived one by one have no bytes.
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
        assert_eq!(total.queued, queued, "nothing waits for a subscriber that has gone");
        for account in all.iter().filter_map(|known| router.account(known.id)) {
            assert!(account.is_balanced(), "{account:?}");
            // A member may have inherited four queues.
            assert!(account.queued <= 4 * 16 + 4, "{account:?}");
        }
        let (received, unwanted) = router.received();
        let listens = |known: &&Known| known.wanted.last().is_some_and(|wanted| !wanted.ranges.is_empty());
        let listeners = all.iter().filter(listens).count();
        assert!(unwanted <= received && router.listeners() as usize == listeners);
        let _ = router.next_deadline();
    }

    /// All subscribers leave: then nothing of the cards is in use.
    fn end(mut self) {
        let now = self.choices.now();
        while !self.all.is_empty() {
            self.leave(now);
        }
        for card in &mut self.cards {
            assert!(card.route(&mut self.router, now), "it waits without a subscriber");
            card.check_home();
        }
    }
}

/// Bytes of a chunk's header: its number, its e-link, its card.
const HEAD: usize = 6;
const PAGE: usize = 2 << 10;
const PAGES: usize = 6;

/// A card, its ring, and its decoder.
pub(super) struct Card {
    name: u8,
    writer: RingWriter,
    ring: RingReader,
    decoder: ChunkDecoder,
    encoders: Vec<Encoder>,
    /// By e-link: blocks lost since the last written one.
    lost: Vec<u32>,
    /// The position up to which blocks were decoded.
    position: u64,
    /// The progress of routing the last batch; `None` when all of it was routed.
    cursor: Option<BatchCursor>,
}

impl Card {
    /// A card with this many e-links. Even names have blocks with narrow trailers.
    pub(super) fn new(name: u8, elinks: u16) -> Self {
        let format = if name.is_multiple_of(2) { BlockFormat::NARROW } else { BlockFormat::WIDE };
        let (writer, ring) = ring(PoolConfig::heap("card", PAGE, PAGES)).expect("memory for a small ring");
        let chunks = ChunkConfig { blocks_per_batch: 4, open_pieces: 16, ..ChunkConfig::new(format) };
        Self {
            name,
            writer,
            ring,
            decoder: ChunkDecoder::new(chunks),
            encoders: (0..elinks).map(|elink| Encoder::new(format, ELink::new(elink))).collect(),
            lost: vec![0; elinks.into()],
            position: 0,
            cursor: None,
        }
    }

    /// An e-link sends a chunk with this number, a signal, or a time-out.
    pub(super) fn say(&mut self, choices: &mut Choices<'_>, number: u32) {
        let (elink, mut blocks) = (choices.below(self.encoders.len() as u64) as u16, Vec::new());
        let length = if choices.below(4) == 0 { choices.below(3000) } else { choices.below(60) };
        let chunk = self.chunk(number, elink, HEAD + length as usize);
        let encoder = &mut self.encoders[usize::from(elink)];
        match choices.below(8) {
            0 => encoder.out_of_band(number, &mut blocks),
            1 => encoder.time_out(&mut blocks),
            2 | 3 => encoder.flush(&mut blocks),
            _ => encoder.chunk(&chunk, status_of(number), &mut blocks),
        }
        for block in blocks.chunks(self.decoder.block_bytes()) {
            // A gap whose length is a multiple of the sequence numbers is invisible in this format.
            let lost = &mut self.lost[usize::from(elink)];
            let comes_round = *lost > 0 && lost.is_multiple_of(SEQUENCES.into());
            let space = self.writer.space();
            if comes_round || choices.below(16) == 0 || space.len() < block.len() {
                *lost += 1;
                continue;
            }
            *lost = 0;
            space[..block.len()].copy_from_slice(block);
            let _ = self.writer.commit(block.len());
        }
    }

    fn chunk(&self, number: u32, elink: u16, length: usize) -> Vec<u8> {
        let mut chunk = number.to_le_bytes().to_vec();
        chunk.extend([elink as u8, self.name]);
        chunk.extend((HEAD..length).map(|place| (number as usize + place) as u8));
        chunk
    }

    /// The number of a chunk that this card may have sent, compared byte by byte.
    ///
    /// # Panics
    /// If it never sent that.
    pub(super) fn number_of(&self, chunk: &[u8], elink: ELink, status: Status) -> u32 {
        let number = chunk.first_chunk().map(|word| u32::from_le_bytes(*word)).expect("a chunk has a head");
        assert_eq!(chunk, self.chunk(number, elink.number(), chunk.len()), "the card never sent that");
        assert_eq!(status, status_of(number), "its flags differ");
        number
    }

    /// Routes the available blocks, at most a batch. Returns false if it must wait for a subscriber.
    fn route(&mut self, router: &mut Router, now: Instant) -> bool {
        self.ring.poll().expect("our own writer");
        if self.cursor.is_none() {
            let taken = self.decoder.decode(self.ring.bytes(self.position), self.position);
            self.position += taken as u64;
            self.cursor = (taken > 0).then(BatchCursor::default);
        }
        let Some(cursor) = &mut self.cursor else {
            self.free_what_stalls();
            return true;
        };
        let (batch, before) = (self.decoder.batch(), router.received().0);
        let passed = router.route(batch, &mut self.ring, &EventRule::USUAL.into(), cursor, now);
        assert!(router.received().0 - before <= passed as u64, "more was received than was passed");
        if cursor.is_at_end(batch) {
            self.cursor = None;
            self.done();
        }
        self.cursor.is_none()
    }

    fn done(&mut self) {
        self.ring.done_to(self.decoder.oldest_open().unwrap_or(u64::MAX).min(self.position));
    }

    /// A chunk that is open for a whole ring is given up.
    fn free_what_stalls(&mut self) {
        if self.ring.is_full() && self.decoder.give_up_before(self.ring.released() + self.ring.page_bytes()) > 0 {
            self.done();
        }
    }

    /// Checks that every finished page was returned.
    ///
    /// # Panics
    /// If one is missing.
    fn check_home(&mut self) {
        self.ring.poll().expect("our own writer");
        let pages = self.ring.written().div_ceil(PAGE as u64) - self.ring.done() / PAGE as u64;
        assert_eq!(self.ring.account().held, pages, "a page did not come home");
    }
}

/// The flags of the chunk with a number.
const fn status_of(number: u32) -> Status {
    if number.is_multiple_of(5) { Status::ERROR } else { Status::GOOD }
}
