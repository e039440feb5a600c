//! A server of chunks allocates nothing between a subscription and its end, with any behaviour of its subscribers.
//!
//! A separate binary, because it replaces the allocator by a counting one.

#[path = "support/counting.rs"]
mod counting;

use counting::{ALLOCATIONS, COUNTING, FIRST_SIZES, OUTSIDE};
use ropewalk_engine::Drive;
use ropewalk_engine::stream::{CardServer, ClientConfig, ClientState, ServerConfig, StreamClient};
use ropewalk_flow::readout::felix::{ChunkConfig, EventRule};
use ropewalk_flow::stream::{InputConfig, RouterConfig, StreamInput};
use ropewalk_io::Dispatcher;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::tcp::{Tcp, TcpConfig};
use ropewalk_memory::ring::{RingWriter, ring};
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_wire::felix::{BlockFormat, ELink, Encoder, Status};
use ropewalk_wire::stream::{Balance, ChunkHead, Policy, Range, Share, Subscribe};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const FORMAT: BlockFormat = BlockFormat::NARROW;
const ELINKS: u16 = 8;
const TURNS: usize = 800;
const CHUNKS: u64 = TURNS as u64 * ELINKS as u64;
const PATIENCE: Duration = Duration::from_secs(20);

fn pool(blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap("test", 64 << 10, blocks)).expect("memory")
}

fn tcp() -> Tcp {
    let config = TcpConfig { socket_send_buffer: 16 << 10, socket_receive_buffer: 16 << 10, ..TcpConfig::default() };
    Tcp::new(config, pool(16)).expect("sockets")
}

/// Blocks of all e-links in turn: small chunks, large ones, and some that span many blocks.
fn blocks(turns: usize) -> Vec<u8> {
    let mut encoders: Vec<_> = (0..ELINKS).map(|elink| Encoder::new(FORMAT, ELink::new(elink))).collect();
    let mut blocks = Vec::new();
    for turn in 0..turns {
        for (index, encoder) in encoders.iter_mut().enumerate() {
            let length = [20, 64, 700, 90, 3000, 12, 200, 9000][(turn + index) % 8];
            let chunk: Vec<u8> = (turn as u32).to_le_bytes().into_iter().cycle().take(length).collect();
            encoder.chunk(&chunk, Status::GOOD, &mut blocks);
        }
    }
    encoders.iter_mut().for_each(|encoder| encoder.flush(&mut blocks));
    blocks
}

struct Host {
    server: CardServer<Tcp>,
    writer: RingWriter,
    blocks: Vec<u8>,
    /// Bytes of the blocks written.
    written: usize,
}

impl Host {
    /// A turn of the server, in place of a data thread: its allocations are counted.
    fn turn(&mut self) {
        let rest = &self.blocks[self.written..];
        let space = self.writer.space();
        let bytes = space.len().min(rest.len()) / FORMAT.block_bytes() * FORMAT.block_bytes();
        space[..bytes].copy_from_slice(&rest[..bytes]);
        let _nobody_sleeps = self.writer.commit(bytes);
        self.written += bytes;
        OUTSIDE.set(false);
        self.server.turn(MonotonicClock.now());
        OUTSIDE.set(true);
    }
}

type Client = StreamClient<Tcp, fn(ChunkHead, Payload)>;

fn client(address: &str, policy: Policy, share: Share, one_in: u32) -> Client {
    let ranges = vec![Range { first: ELink::new(0), last: ELink::new(ELINKS - 1) }];
    let config = ClientConfig {
        address: address.to_owned(),
        name: "test".to_owned(),
        wanted: Subscribe { ranges, policy, share, one_in },
        down: Vec::new(),
        reconnect: None,
        chunks: None,
        most_chunk_bytes: 1 << 20,
    };
    StreamClient::new(config, tcp(), Staging::new(pool(2)), |_, _| {})
}

/// Gives turns to the host and to the clients that are not lazy, until `is_so`.
fn until(host: &mut Host, clients: &mut [Client], what: &str, mut is_so: impl FnMut(&Host, &[Client]) -> bool) {
    let begin = Instant::now();
    while !is_so(host, clients) {
        host.turn();
        clients.iter_mut().for_each(|client| _ = client.turn(MonotonicClock.now()));
        assert!(begin.elapsed() < PATIENCE, "{what} does not come: {:?}", host.server.report());
    }
}

#[test]
fn who_serves_chunks_allocates_nothing_between_a_subscription_and_its_end() {
    OUTSIDE.set(true);
    let (writer, reader) = ring(PoolConfig::heap("card", 16 << 10, 16)).expect("memory");
    let input =
        StreamInput::new(InputConfig { chunks: ChunkConfig::new(FORMAT), rules: EventRule::USUAL.into() }, reader);
    let mut endpoints = tcp();
    let point = endpoints.listen("127.0.0.1:0").expect("a free port");
    let address = endpoints.address_of(point).expect("it listens");
    let router = RouterConfig { queue_bytes: 64 << 10, queue_chunks: 512, ..RouterConfig::default() };
    let config = ServerConfig { router, wait_for: 6, loop_back: false, transport_bytes: 128 << 10 };
    let server = CardServer::new(config, input, endpoints, Staging::new(pool(8)));
    let mut host = Host { server, writer, blocks: blocks(TURNS), written: 0 };
    let mut clients = [
        client(&address, Policy::BackPressure, Share::Alone, 1),
        client(&address, Policy::BackPressure, Share::Alone, 7),
        client(&address, Policy::Drop, Share::Alone, 1),
        client(&address, Policy::BackPressure, Share::Group(1, Balance::RoundRobin), 1),
        client(&address, Policy::Drop, Share::Group(2, Balance::ByEvent), 1),
        // The last one does not read: its queue is full, waiting chunks are copied, and it is told what it lost.
        client(&address, Policy::Drop, Share::Alone, 1),
    ];
    let is_there = |client: &Client| *client.state() == ClientState::Subscribed;
    until(&mut host, &mut clients, "the subscription", |_, clients| clients.iter().all(is_there));
    let (lazy, others) = clients.split_last_mut().expect("six");
    COUNTING.store(true, Ordering::Relaxed);
    until(&mut host, others, "the end of the blocks", |host, _| host.written == host.blocks.len());
    let mut all = [others, std::slice::from_mut(lazy)];
    let sent = |host: &Host| {
        let report = host.server.report().1;
        report.received == CHUNKS && report.subscribers.queued == 0
    };
    let begin = Instant::now();
    while !sent(&host) {
        host.turn();
        all.iter_mut().flat_map(|some| some.iter_mut()).for_each(|client| _ = client.turn(MonotonicClock.now()));
        assert!(begin.elapsed() < PATIENCE, "something waits: {:?}", host.server.report());
    }
    COUNTING.store(false, Ordering::Relaxed);
    let report = host.server.report().1;
    assert!(report.subscribers.is_balanced(), "{report:?}");
    assert!(report.subscribers.dropped.total() > 100 && report.copied_bytes > 0, "{report:?}");
    let sizes: Vec<usize> = FIRST_SIZES.iter().map(|size| size.load(Ordering::Relaxed)).collect();
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0, "the server asked for memory; sizes: {sizes:?}");
}
