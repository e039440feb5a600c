//! Which subscribers get a chunk, which wait, what is dropped, and that every chunk is in an account.

use super::*;
use crate::readout::felix::{Chunk, ChunkBatch, ChunkConfig, ChunkDecoder, EventRule, EventRules};
use crate::source::SizeDistribution;
use crate::source::felix::{ChunkOrigin, EmulatedCard, EmulatedCardConfig};
use proptest::prelude::*;
use ropewalk_memory::ring::{RingReader, RingWriter, ring};
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::felix::{BlockFormat, Decoded, Decoder, ELink, Encoder, Status};
use ropewalk_wire::stream::{Balance, ChunkHead, Policy, Range, Share, Subscribe};
use std::ops::ControlFlow;
use std::time::Duration;

fn range(first: u16, last: u16) -> Range {
    Range { first: ELink::new(first), last: ELink::new(last) }
}

fn wants(first: u16, last: u16) -> Subscribe {
    Subscribe { ranges: vec![range(first, last)], policy: Policy::Drop, share: Share::Alone, one_in: 1 }
}

fn in_group(balance: Balance) -> Subscribe {
    Subscribe { share: Share::Group(7, balance), ..wants(0, 2047) }
}

const SMALL: RouterConfig = RouterConfig {
    subscribers: 4,
    queue_bytes: 100,
    queue_chunks: 8,
    coalesce_bytes: 50,
    coalesce_time: Duration::from_millis(1),
};

/// A router with these subscribers.
fn router<const N: usize>(wanted: [Subscribe; N]) -> (Router, [SubscriberId; N]) {
    let mut router = Router::new(SMALL);
    let ids = wanted.map(|wanted| {
        let id = router.join().expect("there is a place");
        router.subscribe(id, &wanted).expect("it may");
        id
    });
    (router, ids)
}

/// A chunk of `length` bytes that do not exist: the router never reads them.
fn chunk(elink: u16, event: u64, length: u32) -> StreamChunk {
    let head = ChunkHead { elink: ELink::new(elink), status: Status::GOOD, sequence: 0, length };
    StreamChunk { head, event, payload: Payload::default(), is_copy: false }
}

fn events(router: &mut Router, id: SubscriberId) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let mut out = Vec::new();
        router.take(id, usize::MAX, &mut out);
        if out.is_empty() {
            return all;
        }
        all.extend(out.iter().map(|chunk| chunk.event));
    }
}

const NOW: Instant = Instant::ZERO;

#[test]
fn a_chunk_goes_to_every_subscriber_of_its_e_link_and_to_no_other() {
    let (mut router, [one, two, _]) = router([wants(1, 5), wants(5, 9), wants(20, 30)]);
    for elink in [1, 5, 9, 10] {
        router.offer(chunk(elink, u64::from(elink), 1), NOW).expect("there is room");
    }
    assert_eq!((events(&mut router, one), events(&mut router, two)), (vec![1, 5], vec![5, 9]));
    assert_eq!(router.received(), (4, 1), "10 is unwanted");
    assert!(router.is_empty());
}

#[test]
fn what_is_asked_for_can_be_changed_at_any_time() {
    let (mut router, [one]) = router([wants(1, 5)]);
    assert_eq!(router.subscribe(one, &wants(8, 15)), Ok(8));
    let two_ranges = Subscribe { ranges: vec![range(0, 3), range(2, 9)], ..wants(0, 0) };
    assert_eq!(router.subscribe(one, &two_ranges), Ok(10));
    assert!(router.is_wanted(ELink::new(9)) && !router.is_wanted(ELink::new(10)));
}

#[test]
fn a_subscriber_is_a_listener_until_it_asks_for_no_e_link_or_leaves() {
    let (mut router, [one, two]) = router([wants(1, 5), wants(3, 3)]);
    router.join().expect("there is a place");
    assert_eq!(router.listeners(), 2, "the third one has asked for nothing");
    assert_eq!(router.subscribe(one, &Subscribe { ranges: Vec::new(), ..wants(0, 0) }), Ok(0));
    assert_eq!(router.listeners(), 1);
    router.subscribe(one, &wants(7, 7)).expect("it may");
    router.leave(two, NOW);
    assert_eq!(router.listeners(), 1);
}

#[test]
fn a_full_queue_drops_and_counts_or_makes_the_input_wait_as_its_subscriber_chose() {
    let patient = Subscribe { policy: Policy::BackPressure, ..wants(2, 2) };
    let (mut router, [monitor, recorder]) = router([wants(0, 9), patient]);
    for event in 0..20 {
        router.offer(chunk(1, event, 30), NOW).expect("a monitor does not hold up the card");
    }
    let account = router.account(monitor).expect("it is there");
    assert_eq!((account.queued, account.dropped.get(Cause::QueueFull), account.dropped_bytes), (3, 17, 510));
    for event in 0..3 {
        router.offer(chunk(2, event, 30), NOW).expect("there is room for three");
    }
    let refused = router.offer(chunk(2, 3, 30), NOW).expect_err("there is no room for the fourth");
    let before = router.account(monitor);
    assert_eq!(before.expect("it is there").offered, 23, "the refused one is in no account");
    events(&mut router, recorder);
    router.offer(refused, NOW).expect("there is room again");
    let account = router.account(recorder).expect("it is there");
    assert_eq!((account.offered, account.sent, account.queued, account.dropped.total()), (4, 3, 1, 0));
}

#[test]
fn a_chunk_larger_than_the_queue_is_taken_when_nothing_waits() {
    let (mut router, [one]) = router([wants(0, 9)]);
    router.offer(chunk(1, 1, 5000), NOW).expect("nothing waits");
    router.offer(chunk(1, 2, 1), NOW).expect("dropped");
    assert_eq!(events(&mut router, one), [1]);
}

#[test]
fn little_waits_for_more_or_for_its_time_and_much_leaves_at_once() {
    let (mut router, [one]) = router([wants(0, 9)]);
    let later = NOW.after(SMALL.coalesce_time);
    router.offer(chunk(1, 1, 49), NOW).expect("there is room");
    assert_eq!((router.poll(NOW), router.next_deadline()), (None, Some(later)));
    assert_eq!(router.poll(later), Some(one));
    router.offer(chunk(1, 2, 1), NOW).expect("there is room");
    assert_eq!(router.poll(NOW), Some(one), "50 bytes are enough");
    // The transport has room for one chunk, then for none.
    let mut out = Vec::new();
    router.take(one, ropewalk_wire::stream::heads_bytes(1) + 49, &mut out);
    assert_eq!(out.len(), 1);
    out.clear();
    router.take(one, 10, &mut out);
    assert_eq!((out.len(), router.poll(later), router.next_deadline()), (0, None, None));
    router.unblock(one);
    assert_eq!(router.poll(later), Some(one));
    // Chunks that cannot be sent stay in the queue, at their place.
    router.offer(chunk(1, 3, 1), NOW).expect("there is room");
    assert_eq!(router.take_each(one, usize::MAX, |_| ControlFlow::Break(())), 0);
    assert_eq!((router.account(one).expect("it is there").sent, router.poll(later)), (1, None));
    assert_eq!(events(&mut router, one), [2, 3]);
    router.offer(chunk(1, 4, 1), later).expect("there is room");
    router.unblock(one);
    router.finish();
    assert_eq!(router.poll(later), Some(one), "nothing more comes");
}

#[test]
fn what_waits_for_a_monitor_is_copied_or_dropped_when_the_card_needs_its_memory_and_what_must_not_be_lost_stays() {
    let patient = Subscribe { policy: Policy::BackPressure, ..wants(0, 9) };
    let (mut router, [monitor, recorder]) = router([wants(0, 9), patient]);
    for event in 0..3 {
        router.offer(chunk(1, event, 30), NOW).expect("there is room");
    }
    let mut copies = 0;
    let mut copy = |_: &Payload| {
        copies += 1;
        (copies <= 2).then(Payload::default)
    };
    router.relieve(monitor, &mut copy);
    router.relieve(recorder, &mut copy);
    router.relieve(monitor, &mut copy);
    assert_eq!(copies, 3, "the recorder keeps the card's memory, and nothing is copied twice");
    let account = router.account(monitor).expect("it is there");
    assert_eq!((account.queued, account.dropped.get(Cause::QueueFull), account.dropped_bytes), (2, 1, 30));
    router.drop_oldest(monitor);
    let mut out = Vec::new();
    router.take(monitor, usize::MAX, &mut out);
    assert_eq!(out.iter().map(|chunk| (chunk.event, chunk.is_copy)).collect::<Vec<_>>(), [(1, true)]);
    assert_eq!(events(&mut router, recorder), [0, 1, 2]);
    assert!(router.total().is_balanced());
}

#[test]
fn a_monitor_gets_one_in_so_many_and_its_sample_never_holds_up_the_card() {
    let sample = Subscribe { one_in: 10, policy: Policy::BackPressure, ..wants(0, 9) };
    let (mut router, [monitor]) = router([sample]);
    for event in 1..=35 {
        router.offer(chunk(1, event, 30), NOW).expect("the sample is small");
        if event == 30 {
            assert_eq!(events(&mut router, monitor), [10, 20, 30]);
        }
    }
    let account = router.account(monitor).expect("it is there");
    assert_eq!((account.passed_over, account.offered), (32, 3));
}

#[test]
fn a_group_shares_by_turns_and_passes_over_who_has_no_room() {
    let (mut router, [one, two, three]) = router([const { Balance::RoundRobin }; 3].map(in_group));
    for event in 0..6 {
        router.offer(chunk(1, event, 40), NOW).expect("there is room");
    }
    assert_eq!((events(&mut router, one), events(&mut router, two)), (vec![2, 5], vec![0, 3]));
    for event in 6..10 {
        router.offer(chunk(1, event, 40), NOW).expect("there is room at the others");
    }
    assert_eq!(events(&mut router, three), [1, 4]);
    assert_eq!((events(&mut router, one), events(&mut router, two)), (vec![7, 9], vec![6, 8]));
}

#[test]
fn a_group_that_shares_by_event_keeps_events_together_and_moves_only_those_of_a_member_that_left() {
    let (mut router, ids) = router([const { Balance::ByEvent }; 3].map(in_group));
    let homes = |router: &mut Router| -> Vec<usize> {
        (0..60)
            .map(|event| {
                (0..3).for_each(|elink| router.offer(chunk(elink, event, 1), NOW).expect("there is room"));
                let got = ids.map(|id| events(router, id));
                assert_eq!(got.concat(), [event; 3], "one has all three");
                got.iter().position(|got| !got.is_empty()).expect("one of them has it")
            })
            .collect()
    };
    let before = homes(&mut router);
    assert!((0..3).all(|home| before.iter().filter(|&&one| one == home).count() > 8), "{before:?}");
    router.leave(ids[1], NOW);
    let after = homes(&mut router);
    assert!(before.iter().zip(&after).all(|(before, after)| *before == 1 && *after != 1 || before == after));
}

#[test]
fn what_waits_for_a_member_that_goes_is_taken_over_by_the_others() {
    let patient = Subscribe { policy: Policy::BackPressure, ..in_group(Balance::RoundRobin) };
    let (mut router, [one, two]) = router([patient.clone(), patient]);
    for event in 0..4 {
        router.offer(chunk(1, event, 40), NOW).expect("there is room");
    }
    let gone = router.leave(one, NOW);
    assert_eq!((gone.offered, gone.moved, gone.dropped.total(), gone.is_balanced()), (2, 2, 0, true));
    assert!(router.offer(chunk(1, 4, 1), NOW).is_err(), "the other one has more than its own now");
    assert_eq!(events(&mut router, two), [0, 2, 1, 3]);
    router.offer(chunk(1, 4, 40), NOW).expect("there is room");
    let last = router.leave(two, NOW);
    assert_eq!((last.dropped.get(Cause::Disconnected), last.is_balanced()), (1, true));
    assert!(router.total().is_balanced() && router.total().queued == 0);
    assert_eq!(router.leave(two, NOW), SubscriberAccount::default(), "it has left");
}

#[test]
fn too_many_subscribers_and_two_ways_of_sharing_are_refused() {
    let (mut router, _) = router([in_group(Balance::RoundRobin), wants(0, 1), wants(0, 1)]);
    let other = router.join().expect("the fourth place");
    assert_eq!(router.subscribe(other, &in_group(Balance::ByEvent)), Err(SubscribeError::Share));
    assert_eq!(router.join(), Err(SubscribeError::Full));
    router.leave(other, NOW);
    let next = router.join().expect("a place is free again");
    assert_ne!(next, other);
    assert_eq!(router.subscribe(other, &wants(0, 1)), Err(SubscribeError::Left));
    assert_eq!(router.account(other), None);
}

/// An input of a router.
#[derive(Clone, Debug)]
enum Step {
    Offer { elink: u16, event: u64, length: u32 },
    Ask { who: usize, wanted: Subscribe },
    Take { who: usize, room: usize, accepted: usize },
    Leave { who: usize },
    Join,
}

fn step() -> impl Strategy<Value = Step> {
    let share = prop_oneof![
        Just(Share::Alone),
        Just(Share::Group(1, Balance::RoundRobin)),
        Just(Share::Group(2, Balance::ByEvent))
    ];
    let policy = prop_oneof![Just(Policy::Drop), Just(Policy::BackPressure)];
    let asked = (0_u16..4, 0_u16..4, policy, share, 1_u32..4).prop_map(|(a, b, policy, share, one_in)| Subscribe {
        ranges: vec![range(a.min(b), a.max(b))],
        policy,
        share,
        one_in,
    });
    prop_oneof![
        8 => (0_u16..4, 0_u64..9, 0_u32..120).prop_map(|(elink, event, length)| Step::Offer { elink, event, length }),
        2 => (0_usize..4, asked).prop_map(|(who, wanted)| Step::Ask { who, wanted }),
        3 => (0_usize..4, 0_usize..300, 0_usize..9).prop_map(|(who, room, accepted)| Step::Take { who, room, accepted }),
        1 => (0_usize..4).prop_map(|who| Step::Leave { who }),
        1 => Just(Step::Join),
    ]
}

proptest! {
    #[test]
    fn every_account_balances_in_any_order_of_steps(steps in prop::collection::vec(step(), 0..200)) {
        let mut router = Router::new(SMALL);
        let mut ids: Vec<SubscriberId> = Vec::new();
        for step in steps {
            match step {
                Step::Offer { elink, event, length } => _ = router.offer(chunk(elink, event, length), NOW),
                Step::Join => ids.extend(router.join()),
                Step::Ask { who, wanted } => {
                    if let Some(&id) = ids.get(who) {
                        let _ = router.subscribe(id, &wanted);
                    }
                }
                Step::Take { who, room, accepted } => {
                    if let Some(&id) = ids.get(who) {
                        let mut heads = Vec::new();
                        router.take_each(id, room, |chunk| {
                            heads.push(chunk.head());
                            if heads.len() > accepted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                        });
                        let bytes: usize = heads.iter().map(|head| 8 + head.length as usize).sum();
                        prop_assert!(heads.is_empty() || 12 + bytes <= room);
                        router.unblock(id);
                    }
                }
                Step::Leave { who } => {
                    if who < ids.len() {
                        let account = router.leave(ids.remove(who), NOW);
                        prop_assert!(account.is_balanced() && account.queued == 0, "{:?}", account);
                    }
                }
            }
            let total = router.total();
            prop_assert!(total.is_balanced(), "{:?}", total);
            for &id in &ids {
                prop_assert!(router.account(id).is_some_and(|account| account.is_balanced()));
            }
            // Every wanted chunk was offered to at least one subscriber, or left out by a sample.
            let (received, unwanted) = router.received();
            prop_assert!(total.offered - total.moved + total.passed_over >= received - unwanted);
        }
    }
}

/// Returns a card's ring, its reader, and the blocks of `turns` turns of three e-links.
fn card(turns: usize) -> (RingWriter, RingReader, Vec<u8>) {
    let (writer, reader) = ring(PoolConfig::heap("card", 4096, 8)).expect("memory");
    let size = SizeDistribution::Uniform { least: 10, most: 1500 };
    let mut card = EmulatedCard::new(EmulatedCardConfig::new(BlockFormat::NARROW, [1, 2, 3].map(ELink::new), size, 3));
    let mut blocks = Vec::new();
    (0..turns).for_each(|_| card.turn(&mut blocks));
    card.finish(&mut blocks);
    (writer, reader, blocks)
}

#[test]
fn chunks_leave_the_ring_as_they_lie_and_a_subscriber_that_waits_holds_the_card_up() {
    let (mut writer, reader, blocks) = card(200);
    let chunks = ChunkConfig { blocks_per_batch: 4, ..ChunkConfig::new(BlockFormat::NARROW) };
    let mut input = StreamInput::new(InputConfig { chunks, rules: EventRule::USUAL.into() }, reader);
    let share = Share::Group(1, Balance::ByEvent);
    let patient = Subscribe { policy: Policy::BackPressure, share, ..wants(1, 3) };
    let config = RouterConfig { queue_bytes: 4000, queue_chunks: 100, ..SMALL };
    let mut router = Router::new(config);
    let id = router.join().expect("there is a place");
    router.subscribe(id, &patient).expect("it may");
    let (mut rest, mut next) = (&blocks[..], [1; 4]);
    while !input.is_ended() {
        let space = writer.space();
        let bytes = space.len().min(rest.len()) / 1024 * 1024;
        space[..bytes].copy_from_slice(&rest[..bytes]);
        let _ = writer.commit(bytes);
        rest = &rest[bytes..];
        if rest.is_empty() {
            let _ = writer.close();
        }
        let work = input.turn(NOW, &mut router);
        let mut out = Vec::new();
        router.take(id, usize::MAX, &mut out);
        assert!(work > 0 || !out.is_empty() || bytes > 0, "the card, the input or the subscriber goes on");
        for chunk in out {
            let (origin, elink) = (ChunkOrigin::of(&chunk.payload.to_vec()), chunk.head.elink);
            let expected = ChunkOrigin { source: SourceId(elink.number().into()), number: next[elink.index()] };
            assert_eq!((origin, chunk.event), (Some(expected), u64::from(expected.number)));
            next[elink.index()] += 1;
        }
    }
    assert!(input.counts().waits > 3, "{:?}", input.counts());
    let mut out = Vec::new();
    while !router.is_empty() {
        router.take(id, usize::MAX, &mut out);
        out.drain(..).for_each(|chunk| next[chunk.head.elink.index()] += 1);
    }
    assert_eq!(next, [1, 201, 201, 201]);
    assert_eq!(input.counts().bytes, blocks.len() as u64);
}

#[test]
fn bytes_for_an_e_link_become_blocks_at_once() {
    let mut down = DownLink::new(BlockFormat::WIDE, 5000);
    assert!(down.push(ELink::new(5), b"reset") && down.push(ELink::new(9), &[1; 2000]));
    assert!(!down.push(ELink::new(5), &[0; 4000]), "there is no room for so much");
    let blocks = down.blocks().to_vec();
    let mut found = Vec::new();
    Decoder::new(BlockFormat::WIDE, 1 << 20).blocks(&blocks, &mut |what| found.push(what));
    let chunk =
        |elink, bytes: &[u8]| Decoded::Chunk { elink: ELink::new(elink), bytes: bytes.to_vec(), status: Status::GOOD };
    assert!(found.len() == 2 && found.contains(&chunk(5, b"reset")) && found.contains(&chunk(9, &[1; 2000])));
    down.taken(blocks.len());
    assert!(down.blocks().is_empty());
}

const ELINKS: u16 = 4;

/// Passes on a batch chunk by chunk, each with its own references.
fn chunk_by_chunk(
    router: &mut Router,
    batch: &ChunkBatch,
    ring: &mut RingReader,
    rules: &EventRules,
    cursor: &mut BatchCursor,
    now: Instant,
) -> usize {
    let mut passed = 0;
    while let Some(run) = batch.runs().get(cursor.run) {
        for &item in &batch.items(run)[cursor.item..] {
            let mut payload = Payload::default();
            let status = match batch.chunk(item) {
                Chunk::Short { piece, status } => {
                    ring.append(piece.position, piece.length, &mut payload);
                    Some(status)
                }
                Chunk::Scattered { pieces, status, .. } => {
                    pieces.iter().for_each(|piece| ring.append(piece.position, piece.length, &mut payload));
                    Some(status)
                }
                Chunk::Signal(_) => None,
            };
            let event = rules.of(run.elink).number(&payload).unwrap_or(0);
            let (elink, sequence, length) = (run.elink, run.sequence, payload.len() as u32);
            if let Some(status) = status {
                let head = ChunkHead { elink, status, sequence, length };
                if router.offer(StreamChunk { head, event, payload, is_copy: false }, now).is_err() {
                    return passed;
                }
            }
            cursor.item += 1;
            passed += 1;
        }
        *cursor = BatchCursor { run: cursor.run + 1, item: 0 };
    }
    passed
}

type Route = fn(&mut Router, &ChunkBatch, &mut RingReader, &EventRules, &mut BatchCursor, Instant) -> usize;

/// A card, its decoder, and a router that gets the batches in one of the two ways.
struct Side {
    writer: RingWriter,
    ring: RingReader,
    decoder: ChunkDecoder,
    position: u64,
    cursor: Option<BatchCursor>,
    router: Router,
    route: Route,
    staging: Staging,
}

impl Side {
    fn new(format: BlockFormat, blocks_per_batch: usize, route: Route) -> Self {
        let (writer, ring) = ring(PoolConfig::heap("card", 4096, 8)).expect("memory");
        let decoder = ChunkDecoder::new(ChunkConfig { blocks_per_batch, ..ChunkConfig::new(format) });
        let config = RouterConfig { queue_bytes: 3000, queue_chunks: 20, coalesce_bytes: 1000, ..SMALL };
        let staging = Staging::new(Pool::new(PoolConfig::heap("copies", 4096, 64)).expect("memory"));
        let router = Router::new(config);
        Self { writer, ring, decoder, position: 0, cursor: None, router, route, staging }
    }

    /// Decodes and passes on all available data. Returns the progress.
    fn turn(&mut self, now: Instant) -> (u64, Option<BatchCursor>, usize) {
        self.ring.poll().expect("our own writer");
        let mut passed = 0;
        loop {
            if self.cursor.is_none() {
                let taken = self.decoder.decode(self.ring.bytes(self.position), self.position);
                if taken == 0 {
                    break;
                }
                self.position += taken as u64;
                self.cursor = Some(BatchCursor::default());
            }
            let Some(cursor) = &mut self.cursor else { break };
            let batch = self.decoder.batch();
            passed += (self.route)(&mut self.router, batch, &mut self.ring, &EventRule::USUAL.into(), cursor, now);
            if !cursor.is_at_end(batch) {
                break;
            }
            self.cursor = None;
            self.done();
        }
        if self.cursor.is_none() && self.ring.is_full() {
            // A chunk that is open for a whole ring is given up.
            self.decoder.give_up_before(self.ring.released() + self.ring.page_bytes());
            self.done();
        }
        (self.position, self.cursor, passed)
    }

    fn done(&mut self) {
        self.ring.done_to(self.decoder.oldest_open().unwrap_or(u64::MAX).min(self.position));
    }

    /// Takes a message of which only `accepted` chunks are accepted; the others stay.
    fn take(&mut self, id: SubscriberId, room: usize, accepted: usize) -> Vec<Seen> {
        let mut chunks = Vec::new();
        self.router.take_each(id, room, |chunk| {
            if chunks.len() == accepted {
                return ControlFlow::Break(());
            }
            let mut bytes = Vec::new();
            chunk.for_each_piece(|piece| bytes.extend_from_slice(piece));
            let own = chunk.to_stream_chunk();
            assert_eq!((own.payload.to_vec(), own.head), (bytes, chunk.head()));
            chunks.push(own);
            ControlFlow::Continue(())
        });
        self.router.unblock(id);
        chunks.iter().map(|chunk| (chunk.head, chunk.payload.to_vec(), chunk.is_copy)).collect()
    }

    fn relieve(&mut self, id: SubscriberId, mut copies: usize) {
        let staging = &mut self.staging;
        self.router.relieve(id, |payload| {
            copies = copies.checked_sub(1)?;
            payload.evacuate(staging)
        });
        staging.pool_mut().collect();
    }

    /// Checks that nothing waits, so that only data that the reader is not done with is kept from the card.
    fn holds_nothing(&mut self) -> bool {
        self.ring.poll().expect("our own writer");
        !self.router.is_empty() || self.ring.released() == self.ring.done()
    }
}

/// A received chunk.
type Seen = (ChunkHead, Vec<u8>, bool);

/// The output of a front end, or a fault of its block.
#[derive(Clone, Debug)]
enum Said {
    Chunk(usize, Status),
    Signal,
    Flush,
    TimeOut,
    /// Changes a byte of the last block.
    Damage(usize),
}

fn said() -> impl Strategy<Value = (u16, Said)> {
    let status = prop_oneof![4 => Just(Status::GOOD), 1 => Just(Status::CRC), 1 => Just(Status::TIMED_OUT.and(Status::TRUNCATED))];
    let length = prop_oneof![6 => 0_usize..90, 2 => 300_usize..2500, 1 => 4000_usize..9000];
    let what = prop_oneof![
        20 => (length, status).prop_map(|(length, status)| Said::Chunk(length, status)),
        1 => Just(Said::Signal),
        1 => Just(Said::Flush),
        1 => Just(Said::TimeOut),
        1 => (0_usize..1024).prop_map(Said::Damage),
    ];
    (0..ELINKS, what)
}

fn blocks(format: BlockFormat, all: &[(u16, Said)]) -> Vec<u8> {
    let mut encoders: Vec<_> = (0..ELINKS).map(|elink| Encoder::new(format, ELink::new(elink))).collect();
    let mut blocks = Vec::new();
    for (number, (elink, said)) in all.iter().enumerate() {
        let encoder = &mut encoders[usize::from(*elink)];
        match *said {
            Said::Chunk(length, status) => {
                let bytes: Vec<u8> = (number as u32).to_le_bytes().into_iter().cycle().take(length).collect();
                encoder.chunk(&bytes, status, &mut blocks);
            }
            Said::Signal => encoder.out_of_band(5, &mut blocks),
            Said::Flush => encoder.flush(&mut blocks),
            Said::TimeOut => encoder.time_out(&mut blocks),
            Said::Damage(place) => {
                blocks.iter_mut().rev().take(place).last().into_iter().for_each(|byte| *byte ^= 0x41)
            }
        }
    }
    encoders.iter_mut().for_each(|encoder| encoder.flush(&mut blocks));
    blocks
}

/// An event of the test.
#[derive(Clone, Debug)]
enum Meanwhile {
    Write(usize),
    Take { who: usize, room: usize, accepted: usize },
    Ask { who: usize, wanted: Subscribe },
    Leave(usize),
    Relieve { who: usize, copies: usize },
    DropOldest(usize),
}

fn asked() -> impl Strategy<Value = Subscribe> {
    let share = prop_oneof![
        5 => Just(Share::Alone),
        1 => Just(Share::Group(1, Balance::RoundRobin)),
        1 => Just(Share::Group(2, Balance::ByEvent))
    ];
    let policy = prop_oneof![Just(Policy::Drop), Just(Policy::BackPressure)];
    let one_in = prop_oneof![3 => Just(1_u32), 1 => 2_u32..5];
    (0..ELINKS, 0..ELINKS, policy, share, one_in).prop_map(|(a, b, policy, share, one_in)| Subscribe {
        ranges: vec![range(a.min(b), a.max(b))],
        policy,
        share,
        one_in,
    })
}

fn meanwhile() -> impl Strategy<Value = Meanwhile> {
    let who = 0_usize..4;
    let room = prop_oneof![2 => Just(usize::MAX), 1 => 0_usize..3000];
    let accepted = prop_oneof![2 => Just(usize::MAX), 1 => 0_usize..10];
    prop_oneof![
        10 => (1_usize..12).prop_map(Meanwhile::Write),
        8 => (who.clone(), room, accepted).prop_map(|(who, room, accepted)| Meanwhile::Take { who, room, accepted }),
        2 => (who.clone(), asked()).prop_map(|(who, wanted)| Meanwhile::Ask { who, wanted }),
        1 => who.clone().prop_map(Meanwhile::Leave),
        2 => (who.clone(), 0_usize..30).prop_map(|(who, copies)| Meanwhile::Relieve { who, copies }),
        1 => who.prop_map(Meanwhile::DropOldest),
    ]
}

/// Both sides, which get the same input, and must give the same output.
struct Twins {
    sides: [Side; 2],
    ids: Vec<SubscriberId>,
    rest: Vec<u8>,
}

impl Twins {
    fn same<T: PartialEq + core::fmt::Debug>(&mut self, mut act: impl FnMut(&mut Side) -> T) -> T {
        let [runs, chunks] = self.sides.each_mut().map(&mut act);
        assert_eq!(runs, chunks);
        runs
    }

    fn ask(&mut self, who: usize, wanted: &Subscribe) {
        if who >= self.ids.len() {
            let id = self.same(|side| side.router.join());
            self.ids.extend(id);
        }
        if let Some(&id) = self.ids.get(who) {
            // The event of a waiting chunk is known only for chunks that arrived while it was requested.
            while !self.same(|side| side.take(id, usize::MAX, usize::MAX)).is_empty() {}
            let _ = self.same(|side| side.router.subscribe(id, wanted));
        }
    }

    fn write(&mut self, blocks: usize, block_bytes: usize) {
        let space = self.sides.iter_mut().map(|side| side.writer.space().len()).min().unwrap_or(0);
        let bytes = (blocks * block_bytes).min(space / block_bytes * block_bytes).min(self.rest.len());
        for side in &mut self.sides {
            side.writer.space()[..bytes].copy_from_slice(&self.rest[..bytes]);
            let _ = side.writer.commit(bytes);
        }
        self.rest.drain(..bytes);
    }

    fn happen(&mut self, what: &Meanwhile, block_bytes: usize, now: Instant) {
        let id = |ids: &[SubscriberId], who: usize| ids.get(who).copied();
        match what {
            Meanwhile::Write(blocks) => self.write(*blocks, block_bytes),
            Meanwhile::Ask { who, wanted } => self.ask(*who, wanted),
            &Meanwhile::Take { who, room, accepted } => {
                if let Some(id) = id(&self.ids, who) {
                    self.same(|side| side.take(id, room, accepted));
                }
            }
            &Meanwhile::Leave(who) => {
                if who < self.ids.len() {
                    let id = self.ids.remove(who);
                    self.same(|side| side.router.leave(id, now));
                }
            }
            &Meanwhile::Relieve { who, copies } => {
                id(&self.ids, who).into_iter().for_each(|id| self.same(|side| side.relieve(id, copies)));
            }
            &Meanwhile::DropOldest(who) => {
                id(&self.ids, who).into_iter().for_each(|id| self.same(|side| side.router.drop_oldest(id)));
            }
        }
        self.same(|side| side.turn(now));
        self.check(now);
    }

    fn check(&mut self, now: Instant) {
        self.same(|side| (side.router.received(), side.router.next_deadline()));
        assert!(self.same(|side| side.router.total()).is_balanced());
        for id in self.ids.clone() {
            self.same(|side| side.router.account(id));
        }
        if self.same(|side| side.router.poll(now)).is_none() {
            assert!(self.same(Side::holds_nothing));
        }
    }
}

proptest! {
    #[test]
    fn by_runs_every_subscriber_gets_the_same_as_chunk_by_chunk(
        is_wide: bool, per_batch in 1_usize..9, all in prop::collection::vec(said(), 1..250),
        first in prop::collection::vec(asked(), 1..4), steps in prop::collection::vec(meanwhile(), 1..60),
    ) {
        let format = if is_wide { BlockFormat::WIDE } else { BlockFormat::NARROW };
        let sides = [Router::route as Route, chunk_by_chunk].map(|route| Side::new(format, per_batch, route));
        let mut twins = Twins { sides, ids: Vec::new(), rest: blocks(format, &all) };
        first.iter().enumerate().for_each(|(who, wanted)| twins.ask(who, wanted));
        let mut now = NOW;
        for what in &steps {
            now = now.after(Duration::from_micros(300));
            twins.happen(what, format.block_bytes(), now);
        }
        // Then everything is taken.
        while !twins.rest.is_empty() || !twins.same(|side| side.router.is_empty()) {
            twins.happen(&Meanwhile::Write(usize::MAX / 4096), format.block_bytes(), now);
            for who in 0..twins.ids.len() {
                twins.happen(&Meanwhile::Take { who, room: usize::MAX, accepted: usize::MAX }, 1024, now);
            }
        }
        prop_assert!(twins.same(Side::holds_nothing));
    }
}
