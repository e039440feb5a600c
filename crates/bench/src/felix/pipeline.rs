//! Figure `pipeline`: a card's ring to a subscriber in the same process, against decoding alone.

use super::blocks::{self, BLOCK, FORMAT, Sizes};
use super::{cost_of, figure_6, nanoseconds_each};
use crate::BenchError;
use crate::pairs::alternate;
use crate::session::{Row, Session, case};
use ropewalk_flow::readout::felix::{ChunkConfig, ChunkDecoder, EventRule};
use ropewalk_flow::stream::{InputConfig, QueuedChunk, Router, RouterConfig, StreamInput, SubscriberId};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_memory::PoolConfig;
use ropewalk_memory::ring::{RingWriter, ring};
use ropewalk_wire::felix::{ELINKS, ELink};
use ropewalk_wire::stream::{Policy, Range, Share, Subscribe};
use serde_json::{Map, Value, json};
use std::ops::ControlFlow;

const NOTE: &str = "GB/s of blocks: ring, decoder, router, queue, and a subscriber that reads every head, or adds up \
                    lengths alone. Limit: the decoder alone over the same bytes, whose output is not read. Target 0.7; \
                    the paper's 24 links need 6.5";
/// Bytes of a page of the ring.
const PAGE: usize = 64 << 10;

/// What the subscriber does with a chunk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Consumer {
    Heads,
    /// Adds its length.
    Lengths,
}

impl Consumer {
    const ALL: [Self; 2] = [Self::Heads, Self::Lengths];

    const fn name(self) -> &'static str {
        match self {
            Self::Heads => "heads",
            Self::Lengths => "lengths",
        }
    }

    #[inline]
    fn value(self, chunk: &QueuedChunk<'_>) -> u64 {
        let head = chunk.head();
        match self {
            Self::Heads => u64::from_le_bytes(head.to_bytes()),
            Self::Lengths => u64::from(head.length),
        }
    }
}

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let sizes: &[usize] = session.options.scale.choose(&[64, 1024], &[64, 256, 1024], &[64, 256, 1024]);
    for &size in sizes {
        for sizes in [Sizes::Equal(size), Sizes::Random(size)] {
            let wanted = Consumer::ALL.map(|consumer| (consumer, case_of(sizes, consumer)));
            let Some((_, first)) = wanted.iter().find(|(_, case)| session.wants(case)) else { continue };
            session.attempt(first, |session| {
                let mut pipeline = Pipeline::new(figure_6::bytes(session).next_multiple_of(PAGE), sizes)?;
                wanted.iter().try_for_each(|(consumer, case)| {
                    session.measure(case, |session| session.row(pipeline.row(*consumer, case, session)?))
                })
            })?;
        }
    }
    Ok(())
}

fn case_of(sizes: Sizes, consumer: Consumer) -> Map<String, Value> {
    case([
        ("figure", json!("pipeline")),
        ("chunk_bytes", json!(sizes.mean())),
        ("sizes", json!(sizes.name())),
        ("consumer", json!(consumer.name())),
    ])
}

/// A card that has written its ring once and repeatedly reports it as written, and the consumer of its chunks.
struct Pipeline {
    writer: RingWriter,
    input: StreamInput,
    router: Router,
    subscriber: SubscriberId,
    /// The decoder that is measured alone.
    decoder: ChunkDecoder,
    /// The number of chunks consumed, at most those of a whole ring.
    consumed: u64,
    chunks: u64,
}

impl Pipeline {
    fn new(bytes: usize, sizes: Sizes) -> Result<Self, BenchError> {
        let (mut writer, reader) =
            ring(PoolConfig::anonymous("bench card", PAGE, bytes / PAGE)).map_err(BenchError::wrong)?;
        blocks::fill(sizes, writer.space());
        let chunks = ChunkConfig::new(FORMAT);
        let input = StreamInput::new(InputConfig { chunks, rules: EventRule::USUAL.into() }, reader);
        let mut router = Router::new(RouterConfig::default());
        let subscriber = router.join().map_err(BenchError::wrong)?;
        let all = Range { first: ELink::new(0), last: ELink::new(ELINKS as u16 - 1) };
        let (policy, share) = (Policy::BackPressure, Share::Alone);
        router
            .subscribe(subscriber, &Subscribe { ranges: vec![all], policy, share, one_in: 1 })
            .map_err(BenchError::wrong)?;
        Ok(Self { writer, input, router, subscriber, decoder: ChunkDecoder::new(chunks), consumed: 0, chunks: 0 })
    }

    fn row(&mut self, consumer: Consumer, case: &Map<String, Value>, session: &Session<'_>) -> Result<Row, BenchError> {
        let scale = session.options.scale;
        let blocks = self.writer.capacity() as usize / BLOCK;
        let at_least = scale.choose(0.0, 0.1, 0.2);
        let this = std::cell::RefCell::new(&mut *self);
        let rate = |nanoseconds: f64| BLOCK as f64 / nanoseconds;
        let ours = || Ok([rate(nanoseconds_each(blocks, at_least, || this.borrow_mut().consume(consumer)))]);
        let limit = || Ok([rate(nanoseconds_each(blocks, at_least, || this.borrow_mut().decode()))]);
        let [series] = alternate(scale.pairs(), ours, limit)?;
        self.check()?;
        Ok(Row::of(case, "GB/s", &series, NOTE).with_process_cpu(&cost_of(&series, 1)))
    }

    /// Reports that the card has written its whole ring again.
    fn write(&mut self) {
        let space = self.writer.space().len();
        let _is_asleep = self.writer.commit(space);
    }

    /// Consumes everything through the whole pipeline.
    fn consume(&mut self, consumer: Consumer) -> u64 {
        self.write();
        let (mut sum, mut chunks) = (0_u64, 0);
        let end = self.writer.written();
        while self.input.counts().bytes < end {
            let now = MonotonicClock.now();
            self.input.turn(now, &mut self.router);
            while self.router.poll(now).is_some() {
                self.router.take_each(self.subscriber, usize::MAX, |chunk| {
                    sum = sum.wrapping_add(consumer.value(&chunk));
                    chunks += 1;
                    ControlFlow::Continue(())
                });
            }
        }
        self.chunks += chunks;
        self.consumed = end;
        sum
    }

    /// Decodes everything with the decoder alone.
    fn decode(&mut self) -> u64 {
        self.write();
        let ring = self.input.ring_mut();
        if ring.poll().is_err() {
            return 0;
        }
        let (mut position, mut runs) = (self.consumed, 0);
        while position < self.writer.written() {
            position += self.decoder.decode(ring.bytes(position), position) as u64;
            runs += self.decoder.batch().runs().len();
        }
        runs as u64
    }

    /// Checks that every chunk arrived.
    fn check(&self) -> Result<(), BenchError> {
        let account = self.router.total();
        let decoded = self.input.counts().chunks.chunks;
        if account.sent != self.chunks || account.offered != decoded || decoded == 0 {
            return Err(BenchError::wrong(format!("{} of {decoded} chunks came through: {account:?}", self.chunks)));
        }
        Ok(())
    }
}
