//! Figure `latency`: the time from a block written to the ring until its chunks arrive over TCP; and the maximum rate.
//!
//! ```text
//!  one thread:  hands over blocks that are due; ring --> decoder --> router --> TCP ==loopback==> other: subscriber
//! ```
//! The card is an open loop: blocks are due at times drawn beforehand, and do not wait. A block has arrived when the
//! last chunk that ends in it has; all chunks go to one subscriber, in order, so counting them suffices. The ring's
//! bytes are present from the start, as if a card had written them: handing them over costs no time.

use super::blocks::{self, BLOCK, FORMAT, Sizes};
use crate::BenchError;
use crate::pairs::{Series, alternate};
use crate::session::{Row, Session, case};
use crate::tcpla::latency::{QUANTILES, quantiles, schedule};
use ropewalk_engine::Drive;
use ropewalk_engine::stream::{CardServer, ClientConfig, ServerConfig, StreamClient};
use ropewalk_flow::readout::felix::{ChunkConfig, ChunkDecoder, EventRule};
use ropewalk_flow::stream::{InputConfig, StreamInput};
use ropewalk_io::Dispatcher;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::tcp::{Tcp, TcpConfig};
use ropewalk_limits::{
    BareMechanism, MID_PAGE, Paced, PairConfig, PairSockets, bare_pair, paced_pair, process_cpu_seconds,
};
use ropewalk_memory::ring::{RingWriter, ring};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_wire::felix::{ELINKS, ELink};
use ropewalk_wire::stream::{Policy, Range, Share, Subscribe};
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const NOTE: &str = "from when a block was due to when its last chunk had come, at this part of the most blocks a second; \
                    less is better; both sides look again and again. Limit: a bare epoll pair, 1 KiB at the same times";
const RATE_NOTE: &str = "GB/s of blocks, from the ring to a subscriber over loopback. Limit: a bare epoll pair, 64 KiB a \
                         send; the paper's 24 links need 6.5, over a network of their own";
const PAGE: usize = 64 << 10;
/// Bytes that a bare pair sends with one call.
const SEND: usize = 64 << 10;
const SOCKETS: PairSockets = PairSockets { cubic: false, buffer_bytes: 0 };
/// No measurement takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn bench(session: &mut Session<'_>) -> Result<(), BenchError> {
    let scale = session.options.scale;
    let sizes: &[usize] = scale.choose(&[64], &[64, 1024], &[64, 256, 1024]);
    for &size in sizes {
        let loads: &[u64] = scale.choose(&[50], &[10, 50, 90], &[10, 50, 90]);
        let rate = case([("figure", json!("subscriber")), ("chunk_bytes", json!(size))]);
        let wants = |&load: &u64| QUANTILES.iter().any(|(name, _)| session.wants(&case_of(size, load, name)));
        let loads: Vec<u64> = loads.iter().copied().filter(wants).collect();
        if loads.is_empty() && !session.wants(&rate) {
            continue;
        }
        session.attempt(&rate, |session| {
            let card = Card::new(Sizes::Equal(size))?;
            let most = saturation(session, &card, &rate)?;
            loads.iter().try_for_each(|&load| {
                let due = schedule(most * load as f64 / 100.0, scale, load);
                session.attempt(&case_of(size, load, "any"), |session| measure(session, &card, (size, load), &due))
            })
        })?;
    }
    Ok(())
}

fn case_of(size: usize, load: u64, quantile: &str) -> Map<String, Value> {
    case([
        ("figure", json!("latency")),
        ("chunk_bytes", json!(size)),
        ("load_percent", json!(load)),
        ("quantile", json!(quantile)),
    ])
}

/// The maximum rate in blocks a second, when all are due at once.
fn saturation(session: &mut Session<'_>, card: &Card, case: &Map<String, Value>) -> Result<f64, BenchError> {
    let scale = session.options.scale;
    let due = vec![Duration::ZERO; scale.choose(2_000, 200_000, 1_000_000)];
    let bytes = (due.len() * BLOCK) as f64;
    let ours = || {
        let (late, process_seconds) = card.run(&due)?;
        Ok([bytes / late.last().copied().unwrap_or(1) as f64, process_seconds / bytes * 1e9])
    };
    let duration = Duration::from_millis(scale.choose(10, 100, 400));
    let probe = PairConfig {
        mechanism: BareMechanism::Epoll,
        send_bytes: SEND,
        place: MID_PAGE,
        sockets: SOCKETS,
        no_delay: true,
        warm_up: duration / 4,
        duration,
        cpus: None,
    };
    let limit = || {
        let figures = bare_pair(probe).map_err(BenchError::system("bare pair"))?;
        Ok([figures.gigabytes_per_second(), figures.process_seconds_per_gigabyte()])
    };
    let [series, all]: [Series; 2] = alternate(scale.choose(1, 3, 5), ours, limit)?;
    let row = Row::of(case, "GB/s", &series, RATE_NOTE).with_process_cpu(&all);
    let most = row.median * 1e9 / BLOCK as f64;
    if session.wants(case) {
        session.row(row)?;
    }
    Ok(most)
}

fn measure(
    session: &mut Session<'_>,
    card: &Card,
    (size, load): (usize, u64),
    due: &[Duration],
) -> Result<(), BenchError> {
    let ours = || quantiles(card.run(due)?.0, due);
    let paced = Paced { message_bytes: BLOCK, due, most_bytes: SEND, sockets: SOCKETS, cpus: None };
    let limit = || quantiles(paced_pair(paced).map_err(BenchError::system("bare pair"))?, due);
    let series: [Series; QUANTILES.len()] = alternate(session.options.scale.choose(1, 3, 5), ours, limit)?;
    for ((name, _), series) in QUANTILES.iter().zip(&series) {
        let case = case_of(size, load, name);
        if session.wants(&case) {
            session.row(Row::of(&case, "us", series, NOTE))?;
        }
    }
    Ok(())
}

/// The blocks that a card writes repeatedly; every chunk ends in them.
struct Card {
    blocks: Vec<u8>,
    /// For each block, the number of chunks that have ended up to it.
    ended: Vec<u64>,
}

impl Card {
    fn new(sizes: Sizes) -> Result<Self, BenchError> {
        let blocks = blocks::whole(sizes, PAGE);
        let mut decoder = ChunkDecoder::new(ChunkConfig { blocks_per_batch: 1, ..ChunkConfig::new(FORMAT) });
        let mut ended = Vec::with_capacity(blocks.len() / BLOCK);
        for (number, block) in blocks.chunks_exact(BLOCK).enumerate() {
            decoder.decode(block, (number * BLOCK) as u64);
            ended.push(decoder.report().chunks);
        }
        let report = decoder.report();
        if report.block_errors.iter().chain(&report.chunk_errors).any(|&errors| errors > 0) {
            return Err(BenchError::wrong("blocks that we encoded are damaged"));
        }
        Ok(Self { blocks, ended })
    }

    /// The number of chunks that have arrived with a block; block numbers continue from round to round.
    fn chunks_with(&self, block: usize) -> u64 {
        let [in_a_round, of_a_round] = [self.ended.len(), self.ended.last().copied().unwrap_or(0) as usize];
        (block / in_a_round * of_a_round) as u64 + self.ended[block % in_a_round]
    }

    /// The delay of each block after it was due, in nanoseconds; and the processor seconds of all threads meanwhile.
    fn run(&self, due: &[Duration]) -> Result<(Vec<u64>, f64), BenchError> {
        let (mut writer, reader) =
            ring(PoolConfig::anonymous("bench card", PAGE, self.blocks.len() / PAGE)).map_err(BenchError::wrong)?;
        writer.space().copy_from_slice(&self.blocks);
        let chunks = ChunkConfig::new(FORMAT);
        let input = StreamInput::new(InputConfig { chunks, rules: EventRule::USUAL.into() }, reader);
        let mut endpoints = tcp((16 << 10, 64))?;
        let point = endpoints.listen("127.0.0.1:0").map_err(BenchError::wrong)?;
        let address = endpoints.address_of(point).ok_or_else(|| BenchError::wrong("no address"))?;
        let config = ServerConfig { wait_for: 1, ..ServerConfig::default() };
        let server = CardServer::new(config, input, endpoints, Staging::new(pool((128 << 10, 16))?));
        let begin = OnceLock::new();
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve(server, writer, due, &begin));
            let late = self.subscribe(address, due, &begin);
            let process_seconds = serving.join().map_err(|_| BenchError::wrong("a panic"))??;
            Ok((late?, process_seconds))
        })
    }

    fn subscribe(&self, address: String, due: &[Duration], begin: &OnceLock<Instant>) -> Result<Vec<u64>, BenchError> {
        let ranges = vec![Range { first: ELink::new(0), last: ELink::new(ELINKS as u16 - 1) }];
        let config = ClientConfig {
            address,
            name: "bench".to_owned(),
            wanted: Subscribe { ranges, policy: Policy::BackPressure, share: Share::Alone, one_in: 1 },
            down: Vec::new(),
            reconnect: None,
            chunks: None,
            most_chunk_bytes: 1 << 20,
        };
        let count = Rc::new(Cell::new(0));
        let counted = Rc::clone(&count);
        let staging = Staging::new(pool((64 << 10, 4))?);
        let take = move |_, _| counted.set(counted.get() + 1);
        let mut client = StreamClient::new(config, tcp((256 << 10, 64))?, staging, take);
        let (mut late, patience) = (Vec::with_capacity(due.len()), Instant::now());
        while !client.is_done() && patience.elapsed() < PATIENCE {
            client.turn(MonotonicClock.now());
            // Set before anything is sent.
            let Some(begin) = begin.get() else { continue };
            let now = begin.elapsed();
            while late.len() < due.len() && count.get() >= self.chunks_with(late.len()) {
                late.push(now.saturating_sub(due[late.len()]).as_nanos() as u64);
            }
        }
        Ok(late)
    }
}

/// Hands over blocks that are due and fit, and serves them. Returns the processor seconds of all threads.
fn serve(
    mut server: CardServer<Tcp>,
    mut writer: RingWriter,
    due: &[Duration],
    begin: &OnceLock<Instant>,
) -> Result<f64, BenchError> {
    let patience = Instant::now();
    let is_late = || if patience.elapsed() < PATIENCE { Ok(()) } else { Err(BenchError::wrong("nothing moves")) };
    while server.report().1.joined == 0 {
        server.turn(MonotonicClock.now());
        is_late()?;
    }
    let process = process_cpu_seconds();
    let begin = *begin.get_or_init(Instant::now);
    let mut written = 0;
    while written < due.len() {
        let now = begin.elapsed();
        let room = writer.space().len() / BLOCK;
        let blocks = due[written..].iter().take(room).take_while(|due| **due <= now).count();
        let _is_asleep = writer.commit(blocks * BLOCK);
        written += blocks;
        server.turn(MonotonicClock.now());
        is_late()?;
    }
    let _is_asleep = writer.close();
    while !server.is_done() {
        server.turn(MonotonicClock.now());
        is_late()?;
    }
    Ok(process_cpu_seconds() - process)
}

fn pool((block_size, blocks): (usize, usize)) -> Result<Pool, BenchError> {
    Pool::new(PoolConfig::anonymous("bench", block_size, blocks)).map_err(BenchError::wrong)
}

fn tcp(blocks: (usize, usize)) -> Result<Tcp, BenchError> {
    Tcp::new(TcpConfig::default(), pool(blocks)?).map_err(BenchError::wrong)
}
