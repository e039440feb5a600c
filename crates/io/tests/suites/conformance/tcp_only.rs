//! Rules for TCP only: time limits of the kernel's peers, foreign peers, addresses.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ropewalk_io::tcp::{Mechanism, Tcp, TcpConfig};
use ropewalk_io::{BrokenCause, Clock, ConnectCause, Dispatcher, EndpointError, Event, MonotonicClock};

use super::world::pool;

fn tcp(config: TcpConfig) -> Tcp {
    Tcp::new(config, pool("receive", 4096, 64)).expect("an epoll descriptor")
}

fn of(mechanism: Mechanism) -> TcpConfig {
    TcpConfig { mechanism, ..TcpConfig::default() }
}

/// Polls until `wanted` returns a value for an event.
fn until<T>(tcp: &mut Tcp, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
    let (mut events, limit) = (Vec::new(), MonotonicClock.now().after(Duration::from_secs(30)));
    loop {
        let now = MonotonicClock.now();
        assert!(now < limit, "nothing of what was waited for happened");
        if tcp.poll(now, &mut events) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        if let Some(found) = events.drain(..).find_map(&mut wanted) {
            return found;
        }
    }
}

fn connecting_to_one_that_never_answers_times_out(mechanism: Mechanism) {
    let listener = listener_without_room();
    let address = listener.local_addr().expect("a bound address").to_string();
    let mut tcp = tcp(TcpConfig { connect_timeout: Duration::from_millis(50), ..of(mechanism) });
    // The kernel accepts a few by itself; then it no longer answers.
    for _ in 0..8 {
        tcp.connect(&address).expect("an address");
    }
    let cause = until(&mut tcp, |event| match event {
        Event::ConnectFailed { cause, .. } => Some(cause),
        _ => None,
    });
    assert_eq!(cause, ConnectCause::TimedOut);
}

/// The kernel of the other side has no room at first; it answers once the earlier connections are accepted.
fn connecting_to_one_that_answers_late_succeeds(mechanism: Mechanism) {
    let listener = listener_without_room();
    let address = listener.local_addr().expect("a bound address").to_string();
    let mut tcp = tcp(of(mechanism));
    let endpoints: Vec<_> = (0..4).map(|_| tcp.connect(&address).expect("an address")).collect();
    let (mut established, mut listener, mut taker) = (0, Some(listener), None);
    until(&mut tcp, |event| {
        established += usize::from(matches!(event, Event::Established { .. }));
        if let Some(listener) = listener.take() {
            let take = move || (0..4).map(|_| listener.accept().expect("a connection").0).collect::<Vec<_>>();
            taker = Some(std::thread::spawn(take));
        }
        (established == endpoints.len()).then_some(())
    });
    // The other kernel may have missed an answer for lack of room: it learns from the end that the connection was
    // established.
    drop(tcp);
    let taken = taker.expect("started with the first event").join().expect("it takes all");
    assert_eq!(taken.len(), endpoints.len());
}

/// The other side of [`a_peer_that_is_killed_ends_its_connection_once`], in a separate process.
#[test]
fn peer_to_be_killed() {
    if let Ok(address) = std::env::var("ROPEWALK_CONFORMANCE_PEER") {
        let mut stream = TcpStream::connect(address).expect("the test listens");
        stream.write_all(&[7; 1000]).expect("room");
        std::thread::sleep(Duration::from_secs(60));
    }
}

fn a_peer_that_is_killed_ends_its_connection_once(mechanism: Mechanism) {
    let mut tcp = tcp(of(mechanism));
    let service_point = tcp.listen("127.0.0.1:0").expect("a free port");
    let address = tcp.address_of(service_point).expect("a bound address");
    let mut peer = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "conformance::tcp_only::peer_to_be_killed"])
        .env("ROPEWALK_CONFORMANCE_PEER", address)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("a process");
    let endpoint = until(&mut tcp, |event| match event {
        Event::ConnectionRequest { endpoint, .. } => Some(endpoint),
        _ => None,
    });
    tcp.accept(endpoint);
    let (mut received, mut pool) = (0, pool("answer", 4096, 1));
    until(&mut tcp, |event| match event {
        Event::Received { slice, .. } => {
            received += slice.len();
            (received == 1000).then_some(())
        }
        _ => None,
    });
    // Its unread bytes make the end a reset; without them, it would be an orderly end.
    let mut loan = pool.loan(ropewalk_memory::Owner::SHARED).expect("the only block");
    let answer = loan.append(&[8; 1000]).expect("room");
    tcp.send(endpoint, &mut vec![answer]).expect("room");
    until_sent(&mut tcp, endpoint);
    peer.kill().expect("it lives");
    peer.wait().expect("it is ours");
    let last = until(&mut tcp, |event| event.is_last().then_some(event));
    assert!(matches!(last, Event::Broken { cause: BrokenCause::Reset, .. }), "{last:?}");
    let mut events = Vec::new();
    for _ in 0..10 {
        tcp.poll(MonotonicClock.now(), &mut events);
    }
    assert!(events.is_empty(), "{events:?}");
}

fn until_sent(tcp: &mut Tcp, endpoint: ropewalk_io::Endpoint) {
    let mut events = Vec::new();
    while tcp.queued(endpoint) > 0 {
        tcp.poll(MonotonicClock.now(), &mut events);
    }
    assert!(events.is_empty(), "{events:?}");
}

/// On one machine a connection is established at the first poll, before its time limit has even begun.
fn a_connection_that_was_there_at_once_outlives_the_time_for_connecting(mechanism: Mechanism) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let config = of(mechanism);
    let (limit, mut tcp) = (config.connect_timeout, tcp(config));
    let endpoint = tcp.connect(&listener.local_addr().expect("a bound address").to_string()).expect("an address");
    let _peer = listener.accept().expect("a connection");
    let (mut events, now) = (Vec::new(), MonotonicClock.now());
    tcp.poll(now, &mut events);
    assert!(matches!(events[..], [Event::Established { endpoint: which }] if which == endpoint), "{events:?}");
    events.clear();
    for seconds in [1, 2, 3] {
        tcp.poll(now.after(limit).after(Duration::from_secs(seconds)), &mut events);
    }
    assert!(events.is_empty(), "it is open, and stays so: {events:?}");
}

/// A listener whose queue has minimum length and is never emptied.
fn listener_without_room() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    rustix::net::listen(&listener, 0).expect("listening again with another backlog");
    listener
}

fn closing_against_one_that_never_closes_breaks_after_the_time(mechanism: Mechanism) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address").to_string();
    let mut tcp = tcp(TcpConfig { close_timeout: Duration::from_millis(50), ..of(mechanism) });
    tcp.connect(&address).expect("an address");
    let (mut peer, _) = listener.accept().expect("a connection");
    let endpoint = until(&mut tcp, |event| matches!(event, Event::Established { .. }).then(|| event.endpoint()));
    tcp.close(endpoint);
    let cause = until(&mut tcp, |event| match event {
        Event::Broken { cause, .. } => Some(cause),
        _ => None,
    });
    assert_eq!(cause, BrokenCause::TimedOut);
    assert_eq!(peer.read(&mut [0; 8]).ok(), Some(0), "the own direction was ended in order at once");
}

fn a_foreign_client_may_end_its_direction_first_and_is_heard_to_the_end(mechanism: Mechanism) {
    let mut tcp = tcp(of(mechanism));
    let service_point = tcp.listen("localhost:0").expect("a free port");
    let address = tcp.address_of(service_point).expect("a bound address");
    let mut client = TcpStream::connect(&address).expect("a listener");
    client.write_all(&[7; 10_000]).expect("room");
    client.shutdown(std::net::Shutdown::Write).expect("an open connection");
    let endpoint = until(&mut tcp, |event| match event {
        Event::ConnectionRequest { endpoint, peer, .. } => {
            assert!(peer.to_string().contains(':'), "{peer}");
            Some(endpoint)
        }
        _ => None,
    });
    tcp.accept(endpoint);
    let mut received = 0;
    until(&mut tcp, |event| match event {
        Event::Received { slice, .. } => {
            received += slice.len();
            None
        }
        Event::Disconnected { .. } => Some(()),
        _ => None,
    });
    assert_eq!(received, 10_000);
    assert_eq!(client.read(&mut [0; 8]).ok(), Some(0), "our side is closed too");
}

/// More than the pair holds at once, so that the writer waits for the reader.
fn one_end_of_a_local_pair_is_an_endpoint_like_any_other(mechanism: Mechanism) {
    const BYTES: usize = 1 << 20;
    let mut tcp = tcp(of(mechanism));
    let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
    let endpoint = tcp.adopt(ours.into()).expect("it is a socket");
    let writer = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..BYTES).map(|place| (place % 251) as u8).collect();
        theirs.write_all(&bytes).expect("a reader");
        theirs.shutdown(std::net::Shutdown::Write).expect("it is open");
        let mut answer = [0; 4];
        theirs.read_exact(&mut answer).expect("an answer comes");
        answer
    });
    tcp.set_half_close(endpoint, true);
    let (mut place, mut is_established) = (0, false);
    until(&mut tcp, |event| match event {
        Event::Established { endpoint: told } => {
            assert_eq!(told, endpoint);
            is_established = true;
            None
        }
        Event::Received { slice, .. } => {
            assert!(slice.iter().all(|&byte| (byte == (place % 251) as u8, place += 1).0));
            None
        }
        Event::Finished { .. } => Some(()),
        other => panic!("{other:?}"),
    });
    assert_eq!((is_established, place), (true, BYTES));
    let mut pool = pool("answer", 4096, 1);
    let answer = pool.loan(ropewalk_memory::Owner::SHARED).expect("the only block").append(b"done").expect("room");
    tcp.send(endpoint, &mut vec![answer]).expect("room");
    tcp.finish(endpoint);
    let last = until(&mut tcp, |event| event.is_last().then_some(event));
    assert!(matches!(last, Event::Disconnected { .. }), "{last:?}");
    assert_eq!(&writer.join().expect("it ends"), b"done");
}

fn an_adopted_socket_that_is_given_up_ends_for_the_other_end(mechanism: Mechanism) {
    let mut tcp = tcp(of(mechanism));
    let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
    let endpoint = tcp.adopt(ours.into()).expect("it is a socket");
    theirs.write_all(&[1; 100]).expect("room");
    until(&mut tcp, |event| matches!(event, Event::Received { .. }).then_some(()));
    tcp.abort(endpoint);
    tcp.poll(MonotonicClock.now(), &mut Vec::new());
    theirs.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    let ended = theirs.read(&mut [0; 8]);
    assert!(matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
}

fn what_is_no_address_is_said_to_be_none(mechanism: Mechanism) {
    let mut tcp = tcp(of(mechanism));
    for address in ["", "127.0.0.1", "127.0.0.1:99999", ":"] {
        let error = tcp.connect(address).expect_err("no address");
        assert!(matches!(error, EndpointError::BadAddress { .. }), "{address}: {error}");
    }
    let error = tcp.connect("no such host:1").expect_err("no host");
    assert!(matches!(error, EndpointError::NoSuchName { .. }), "{error}");
    assert!(tcp.listen("[::1]:0").is_ok() || !std::path::Path::new("/proc/net/if_inet6").exists());
}

fn a_congestion_control_that_the_kernel_lacks_is_left_out(mechanism: Mechanism) {
    let config = TcpConfig { congestion_control: Some("no-such-thing".to_owned()), ..of(mechanism) };
    assert_eq!(tcp(config).congestion_control(), None);
    let config = TcpConfig { congestion_control: Some("reno".to_owned()), ..of(mechanism) };
    assert_eq!(tcp(config).congestion_control(), Some("reno"), "every kernel has it");
}

/// Like the port of a killed process, whose io_uring the kernel closes a moment later.
#[test]
fn a_port_that_becomes_free_is_waited_for() {
    let before = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = before.local_addr().expect("a bound address").to_string();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(before);
    });
    let mut tcp = tcp(TcpConfig::default());
    assert!(tcp.listen(&address).is_ok(), "it was free after a tenth of a second");
    holder.join().expect("it ends");
}

macro_rules! rules {
    ($mechanism:ident, $module:ident: $($rule:ident),* $(,)?) => {
        mod $module {
            $(
                #[test]
                fn $rule() {
                    super::$rule(ropewalk_io::tcp::Mechanism::$mechanism);
                }
            )*
        }
    };
}

macro_rules! every_rule_for {
    ($($module:ident = $mechanism:ident),*) => {$(
        rules!($mechanism, $module:
            connecting_to_one_that_never_answers_times_out,
            connecting_to_one_that_answers_late_succeeds,
            a_peer_that_is_killed_ends_its_connection_once,
            a_connection_that_was_there_at_once_outlives_the_time_for_connecting,
            closing_against_one_that_never_closes_breaks_after_the_time,
            a_foreign_client_may_end_its_direction_first_and_is_heard_to_the_end,
            one_end_of_a_local_pair_is_an_endpoint_like_any_other,
            an_adopted_socket_that_is_given_up_ends_for_the_other_end,
            what_is_no_address_is_said_to_be_none,
            a_congestion_control_that_the_kernel_lacks_is_left_out,
        );
    )*};
}

every_rule_for!(epoll = Epoll, poll = Poll, select = Select, io_uring = IoUring);
