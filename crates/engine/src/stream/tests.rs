//! Subscribers over the simulated network and real sockets: delivery, waiting, leaving and reconnecting.

use super::*;
use crate::Drive;
use ropewalk_flow::readout::felix::{ChunkConfig, EventRule};
use ropewalk_flow::source::SizeDistribution;
use ropewalk_flow::source::felix::{ChunkOrigin, EmulatedCard, EmulatedCardConfig};
use ropewalk_flow::stream::{InputConfig, RouterConfig, StreamInput};
use ropewalk_io::Dispatcher;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_memory::ring::{RingWriter, ring};
use ropewalk_memory::{Payload, Pool, PoolConfig, Staging};
use ropewalk_terms::Cause;
use ropewalk_wire::felix::{BlockFormat, ELink};
use ropewalk_wire::stream::{
    Balance, ChunkHead, Down, DownRefusal, DownRefused, Hello, Message, Policy, Range, RefuseReason, Share, Subscribe,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::{Duration, Instant as SystemInstant};

/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

const FORMAT: BlockFormat = BlockFormat::NARROW;

fn pool(blocks: usize) -> Pool {
    Pool::new(PoolConfig::heap("test", 256 << 10, blocks)).expect("memory")
}

fn tcp() -> Tcp {
    let config = TcpConfig {
        mechanism: Mechanism::Epoll,
        send_queue_bytes: 128 << 10,
        // Small, so that a subscriber that does not read soon has an effect.
        socket_send_buffer: 16 << 10,
        socket_receive_buffer: 16 << 10,
        ..TcpConfig::default()
    };
    Tcp::new(config, pool(8)).expect("sockets")
}

fn wants(first: u16, last: u16) -> Subscribe {
    let range = Range { first: ELink::new(first), last: ELink::new(last) };
    Subscribe { ranges: vec![range], policy: Policy::BackPressure, share: Share::Alone, one_in: 1 }
}

/// A card with e-links 1, 2 and 3, and a server of its chunks.
struct Host {
    server: CardServer<Tcp>,
    address: String,
    writer: RingWriter,
    card: EmulatedCard,
    blocks: Vec<u8>,
    turns: u64,
}

fn server_config() -> ServerConfig {
    let router = RouterConfig { subscribers: 3, queue_bytes: 64 << 10, ..RouterConfig::default() };
    ServerConfig { router, wait_for: 0, loop_back: true, transport_bytes: 128 << 10 }
}

impl Host {
    fn new(turns: u64, wait_for: u32) -> Self {
        Self::at("127.0.0.1:0", turns, wait_for)
    }

    fn at(address: &str, turns: u64, wait_for: u32) -> Self {
        Self::with(address, turns, ServerConfig { wait_for, ..server_config() })
    }

    fn with(address: &str, turns: u64, config: ServerConfig) -> Self {
        let (writer, reader) = ring(PoolConfig::heap("card", 16 << 10, 16)).expect("memory");
        let size = SizeDistribution::Uniform { least: 10, most: 1500 };
        let card = EmulatedCard::new(EmulatedCardConfig::new(FORMAT, [1, 2, 3].map(ELink::new), size, 1));
        let input =
            StreamInput::new(InputConfig { chunks: ChunkConfig::new(FORMAT), rules: EventRule::USUAL.into() }, reader);
        let mut endpoints = tcp();
        let point = endpoints.listen(address).expect("a free port");
        let address = endpoints.address_of(point).expect("it listens");
        let server = CardServer::new(config, input, endpoints, Staging::new(pool(8)));
        Self { server, address, writer, card, blocks: Vec::new(), turns }
    }

    /// Turns the host: the card writes as much as there is room for, then the server has its turn.
    fn turn(&mut self) {
        loop {
            if self.blocks.is_empty() && self.card.turns() < self.turns {
                self.card.turn(&mut self.blocks);
                if self.card.turns() == self.turns {
                    self.card.finish(&mut self.blocks);
                }
                continue;
            }
            let space = self.writer.space();
            let bytes = space.len().min(self.blocks.len()) / 1024 * 1024;
            if bytes == 0 {
                break;
            }
            space[..bytes].copy_from_slice(&self.blocks[..bytes]);
            let _ = self.writer.commit(bytes);
            self.blocks.drain(..bytes);
        }
        if self.blocks.is_empty() && self.card.turns() == self.turns {
            let _ = self.writer.close();
        }
        self.server.turn(MonotonicClock.now());
    }

    /// Turns the host and others until `others` returns true.
    fn until(&mut self, what: &str, mut others: impl FnMut() -> bool) {
        let begin = SystemInstant::now();
        while !others() {
            self.turn();
            assert!(begin.elapsed() < PATIENCE, "{what} does not come: {:?}", self.server.report());
        }
    }
}

/// The numbers of the received chunks, by e-link.
type Came = Rc<RefCell<BTreeMap<u16, Vec<u64>>>>;

/// Notes a chunk, and checks that its bytes are the ones that the card sent.
fn note(came: &Came) -> impl FnMut(ChunkHead, Payload) + use<> {
    let came = Rc::clone(came);
    move |head, payload| {
        let bytes = payload.to_vec();
        let origin = ChunkOrigin::of(&bytes).expect("every byte is as the card sent it");
        assert_eq!((origin.source.0, head.length as usize), (head.elink.number().into(), bytes.len()), "{head:?}");
        came.borrow_mut().entry(head.elink.number()).or_default().push(origin.number.into());
    }
}

fn config(host: &Host, wanted: Subscribe) -> ClientConfig {
    ClientConfig {
        address: host.address.clone(),
        name: "test".to_owned(),
        wanted,
        down: Vec::new(),
        reconnect: None,
        chunks: None,
        most_chunk_bytes: 1 << 20,
    }
}

fn client<F: FnMut(ChunkHead, Payload)>(config: ClientConfig, take: F) -> StreamClient<Tcp, F> {
    StreamClient::new(config, tcp(), Staging::new(pool(2)), take)
}

fn all(turns: u64) -> Vec<u64> {
    (1..=turns).collect()
}

#[test]
fn every_subscriber_gets_each_chunk_of_its_e_links_once_and_in_order() {
    let mut host = Host::new(400, 2);
    let (came, other_came) = (Came::default(), Came::default());
    let mut one = client(config(&host, wants(1, 2)), note(&came));
    let mut other = client(config(&host, wants(2, 9)), note(&other_came));
    host.until("the end", || {
        one.turn(MonotonicClock.now());
        other.turn(MonotonicClock.now());
        one.is_done() && other.is_done()
    });
    assert_eq!(*came.borrow(), BTreeMap::from([(1, all(400)), (2, all(400))]));
    assert_eq!(*other_came.borrow(), BTreeMap::from([(2, all(400)), (3, all(400))]));
    let end = one.report().end.expect("the end was announced");
    assert_eq!((end.offered, end.sent, end.dropped, one.state()), (800, 800, 0, &ClientState::Done));
    let report = host.server.report().1;
    assert!(report.subscribers.is_balanced() && report.received == 1200 && report.unwanted == 0, "{report:?}");
    host.until("no subscriber is left", || true);
}

#[test]
fn a_subscriber_that_is_killed_in_mid_stream_costs_the_others_nothing() {
    let mut host = Host::new(2000, 2);
    let (came, killed_came) = (Came::default(), Came::default());
    let mut one = client(config(&host, wants(1, 3)), note(&came));
    let mut killed = Some(client(config(&host, wants(1, 3)), note(&killed_came)));
    host.until("the end", || {
        one.turn(MonotonicClock.now());
        if let Some(client) = &mut killed {
            client.turn(MonotonicClock.now());
        }
        if killed_came.borrow().values().flatten().count() > 100 {
            killed = None;
        }
        one.is_done()
    });
    assert_eq!(*came.borrow(), BTreeMap::from([(1, all(2000)), (2, all(2000)), (3, all(2000))]));
    assert!(killed.is_none());
    let total = host.server.report().1.subscribers;
    assert!(total.is_balanced() && total.dropped.get(Cause::QueueFull) == 0, "{total:?}");
}

#[test]
fn a_slow_monitor_loses_chunks_of_its_own_and_learns_how_many() {
    let mut host = Host::new(3000, 2);
    let (came, slow_came) = (Came::default(), Came::default());
    let mut one = client(config(&host, wants(1, 3)), note(&came));
    let mut slow = client(config(&host, Subscribe { policy: Policy::Drop, ..wants(1, 3) }), note(&slow_came));
    // The monitor subscribes, then sleeps until the other one has received everything.
    host.until("the end of the fast one", || {
        one.turn(MonotonicClock.now());
        if *slow.state() != ClientState::Subscribed {
            slow.turn(MonotonicClock.now());
        }
        came.borrow().values().flatten().count() == 9000
    });
    host.until("the end of the slow one", || {
        one.turn(MonotonicClock.now());
        slow.turn(MonotonicClock.now());
        slow.is_done()
    });
    let (report, end) = (slow.report().clone(), slow.report().end.expect("the end was announced"));
    assert!(end.dropped > 1000 && report.lost.chunks == end.dropped, "{report:?}");
    assert_eq!((end.offered, report.chunks), (9000, end.sent));
    let total = host.server.report().1.subscribers;
    assert_eq!((total.dropped.get(Cause::QueueFull), total.is_balanced()), (end.dropped, true));
}

#[test]
fn a_slow_subscriber_with_back_pressure_holds_the_card_up_and_loses_nothing() {
    let mut host = Host::new(3000, 1);
    let came = Came::default();
    let mut slow = client(config(&host, wants(1, 3)), note(&came));
    host.until("the subscription", || {
        slow.turn(MonotonicClock.now());
        *slow.state() == ClientState::Subscribed
    });
    // It sleeps; the server continues until it makes no more progress.
    let mut still = 0;
    while still < 1000 {
        let before = host.server.report().1.received;
        host.turn();
        still = if host.server.report().1.received == before { still + 1 } else { 0 };
    }
    let (input, report) = host.server.report();
    assert!(report.received < 9000 && input.waits > 0, "{report:?} {input:?}");
    host.until("the end", || {
        slow.turn(MonotonicClock.now());
        slow.is_done()
    });
    assert_eq!(*came.borrow(), BTreeMap::from([(1, all(3000)), (2, all(3000)), (3, all(3000))]));
}

#[test]
fn a_member_of_a_group_that_is_killed_is_followed_by_the_others() {
    let mut host = Host::new(3000, 2);
    let in_group = |balance| Subscribe { share: Share::Group(1, balance), ..wants(1, 3) };
    let (came, killed_came) = (Came::default(), Came::default());
    let mut one = client(config(&host, in_group(Balance::ByEvent)), note(&came));
    let mut killed = Some(client(config(&host, in_group(Balance::ByEvent)), note(&killed_came)));
    host.until("the end", || {
        one.turn(MonotonicClock.now());
        killed.as_mut().map(|client| client.turn(MonotonicClock.now()));
        if killed_came.borrow().values().flatten().count() > 500 {
            killed = None;
        }
        one.is_done()
    });
    let (came, killed_came) = (came.borrow(), killed_came.borrow());
    let total = host.server.report().1.subscribers;
    assert!(total.is_balanced() && total.dropped.total() == 0, "{total:?}");
    // Each event's three chunks went to the same subscriber, as far as all its e-links had arrived when it was killed.
    let last = (1..=3).filter_map(|elink| killed_came[&elink].last()).min().expect("500 chunks came");
    for number in killed_came[&3].iter().filter(|number| *number <= last) {
        assert!((1..=2).all(|elink| killed_came[&elink].contains(number)), "{number}");
    }
    // Chunks in neither list were in the transport of the killed subscriber.
    let got = came.values().chain(killed_came.values()).flatten().count() as u64;
    assert!(got <= 9000 && total.sent == 9000 && came.values().all(|numbers| numbers.contains(&3000)), "{got}");
}

#[test]
fn a_client_that_is_cut_off_comes_back_and_goes_on() {
    let mut host = Host::new(u64::MAX, 0);
    let came = Came::default();
    let mut config = config(&host, Subscribe { policy: Policy::Drop, ..wants(1, 1) });
    config.reconnect = Some(Duration::from_millis(1));
    let mut one = client(config, note(&came));
    let count = || came.borrow().values().flatten().count();
    host.until("some chunks", || {
        one.turn(MonotonicClock.now());
        count() > 100
    });
    // The server is gone, and another one starts at the same address.
    let address = host.address.clone();
    drop(host);
    let mut next = Host::at(&address, u64::MAX, 0);
    let before = count();
    next.until("more chunks", || {
        one.turn(MonotonicClock.now());
        count() > before + 100
    });
    assert_eq!(one.report().connections, 2);
}

#[test]
fn bytes_for_an_e_link_come_back_from_the_emulated_card() {
    let mut host = Host::new(u64::MAX, 9);
    let came = Rc::new(RefCell::new(Vec::new()));
    let mut config = config(&host, wants(100, 100));
    config.down = vec![Down { elink: ELink::new(100), bytes: b"reset".to_vec() }];
    config.chunks = Some(1);
    let noted = Rc::clone(&came);
    let mut one = client(config, move |head, payload: Payload| noted.borrow_mut().push((head.elink, payload.to_vec())));
    host.until("the answer", || {
        one.turn(MonotonicClock.now());
        one.is_done()
    });
    assert_eq!(*came.borrow(), [(ELink::new(100), b"reset".to_vec())]);
    assert_eq!(host.server.report().1.down, (1, 0));
}

#[test]
fn bytes_for_an_e_link_are_refused_where_no_card_takes_them_and_chunks_go_on() {
    let mut host = Host::with("127.0.0.1:0", u64::MAX, ServerConfig { loop_back: false, ..server_config() });
    let mut config = config(&host, wants(1, 3));
    config.down = [100, 101].map(|elink| Down { elink: ELink::new(elink), bytes: b"reset".to_vec() }).to_vec();
    config.chunks = Some(100);
    let mut one = client(config, |_, _| {});
    host.until("chunks", || {
        one.turn(MonotonicClock.now());
        one.is_done()
    });
    let first = DownRefused { elink: ELink::new(100), why: DownRefusal::NoDownLink };
    assert_eq!((one.report().down_refused, one.report().first_down_refused), (2, Some(first)));
    assert_eq!((one.report().chunks, host.server.report().1.down), (100, (0, 2)));
}

#[test]
fn another_version_too_many_and_two_ways_to_share_are_refused_with_the_reason() {
    let mut host = Host::new(u64::MAX, 9);
    let mut hello = Vec::new();
    Message::Hello(Hello { version: 7, ..Hello::new("old") }).encode(&mut hello);
    let mut stream = TcpStream::connect(&host.address).expect("it listens");
    stream.write_all(&hello).expect("the kernel takes it");
    stream.set_nonblocking(true).expect("a socket");
    let mut answer = Vec::new();
    host.until("the refusal", || {
        let _ = stream.read_to_end(&mut answer);
        !answer.is_empty()
    });
    let mut expected = Vec::new();
    Message::Refuse(RefuseReason::Version(1)).encode(&mut expected);
    assert_eq!(answer, expected);

    let take = |_: ChunkHead, _: Payload| {};
    let group = |balance| Subscribe { share: Share::Group(1, balance), ..wants(1, 1) };
    let mut clients: Vec<_> =
        [group(Balance::ByEvent), group(Balance::RoundRobin), wants(1, 1), wants(1, 1), wants(1, 1)]
            .map(|wanted| client(config(&host, wanted), take))
            .into();
    for client in &mut clients {
        host.until("an answer", || {
            client.turn(MonotonicClock.now());
            !matches!(client.state(), ClientState::Away(_) | ClientState::Asking)
        });
    }
    let states: Vec<_> = clients.iter().map(StreamClient::state).collect();
    let (refused, there) = (ClientState::Refused, ClientState::Subscribed);
    assert_eq!(states, [&there, &refused(RefuseReason::Share), &there, &there, &refused(RefuseReason::Full)]);
}

#[test]
fn a_client_that_makes_no_sense_is_cut_off_and_no_other_is() {
    let mut host = Host::new(500, 1);
    let mut messages = Vec::new();
    Message::Hello(Hello::new("mad")).encode(&mut messages);
    Message::Welcome.encode(&mut messages);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &messages] {
        let mut stream = TcpStream::connect(&host.address).expect("it listens");
        stream.write_all(bytes).expect("the kernel takes it");
        stream.set_nonblocking(true).expect("a socket");
        let refused = host.server.report().1.refused;
        host.until("the end of the connection", || {
            let end = stream.read(&mut [0; 100]);
            matches!(end, Ok(0)) || end.is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock)
        });
        assert_eq!(host.server.report().1.refused, refused + 1);
    }
    let came = Came::default();
    let mut one = client(config(&host, wants(1, 1)), note(&came));
    host.until("the end", || {
        one.turn(MonotonicClock.now());
        one.is_done()
    });
    assert_eq!(came.borrow()[&1], all(500));
}

#[test]
fn a_silent_client_is_cut_off_after_some_time() {
    let mut host = Host::new(u64::MAX, 9);
    let mut stream = TcpStream::connect(&host.address).expect("it listens");
    stream.set_nonblocking(true).expect("a socket");
    let mut is_cut_off =
        || stream.read(&mut [0; 100]).map_or_else(|error| error.kind() != std::io::ErrorKind::WouldBlock, |_| true);
    host.until("the connection", || true);
    let begin = SystemInstant::now();
    while host.server.next_deadline().is_none() {
        host.turn();
        assert!(begin.elapsed() < PATIENCE, "it is not accepted");
    }
    assert!(!is_cut_off());
    let later = host.server.next_deadline().expect("it was just there");
    host.server.turn(later);
    host.until("the end of the connection", is_cut_off);
    assert_eq!(host.server.report().1.refused, 1);
}

#[test]
fn silent_clients_make_room_for_speaking_ones() {
    let mut host = Host::new(400, 1);
    let strangers: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(&host.address).expect("it listens")).collect();
    let came = Came::default();
    let mut one = client(config(&host, wants(2, 2)), note(&came));
    host.until("the end", || {
        one.turn(MonotonicClock.now());
        one.is_done()
    });
    assert_eq!(*came.borrow(), BTreeMap::from([(2, all(400))]));
    drop(strangers);
}
