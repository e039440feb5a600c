//! Routing by runs does what routing chunk by chunk does, whatever comes and whoever asks for it: the plain twin is here.

use super::*;
use crate::readout::felix::{Chunk, ChunkBatch, ChunkDecoder};
use ropewalk_memory::{Pool, Staging};
use ropewalk_wire::felix::Encoder;
use std::ops::ControlFlow;

const ELINKS: u16 = 4;

/// Hands a batch on chunk by chunk, each with references of its own.
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

/// A card, its decoder, and a router that is given the batches in one way or the other.
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

    /// Decodes and hands on what is there; how far it came.
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

    /// Takes a message of which only so many chunks are accepted; the others stay.
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

    /// Nothing waits, so nothing but what the reader is not done with is kept from the card.
    fn holds_nothing(&mut self) -> bool {
        self.ring.poll().expect("our own writer");
        !self.router.is_empty() || self.ring.released() == self.ring.done()
    }
}

/// A chunk as it came.
type Seen = (ChunkHead, Vec<u8>, bool);

/// What a front end says, or what happens to its block.
#[derive(Clone, Debug)]
enum Said {
    Chunk(usize, Status),
    Signal,
    Flush,
    TimeOut,
    /// A byte of the last block is another one.
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

/// What happens meanwhile.
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

/// The same on both sides, and that it came out the same.
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
            // By which event a chunk went that waits is known of those alone that came while it was asked for.
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
    fn by_runs_everybody_gets_what_he_gets_chunk_by_chunk(
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
