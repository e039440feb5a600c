//! Clients that ask for much and read nothing, and how much of it others notice; requests that come slowly, not at all to their end, or
//! are too long.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::{get, post};
use tokio::sync::watch;

use super::{Setup, wait};
use crate::accept_loop::AcceptLoop;
use crate::request_limits::{BODY_BYTES, bounded};

/// More than the system keeps for a connection.
const LONG: usize = 32 << 20;

fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

/// The status of an answer of which nothing else is read.
fn status(stream: &mut TcpStream) -> String {
    let mut line = [0; 12];
    stream.read_exact(&mut line).expect("an answer");
    String::from_utf8_lossy(&line[9..]).into_owned()
}

#[test]
fn a_client_that_takes_nothing_of_an_answer_is_sent_away_and_a_slow_one_is_not() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().expect("a runtime");
    let patience = Duration::from_millis(400);
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let accept_loop = Arc::new(AcceptLoop::new(None, patience, 16));
        let app = Router::new().route("/", get(|| async { vec![7_u8; LONG] }));
        let (end, ending) = watch::channel(());
        let silent = ask(address, "/");
        let slow = std::thread::spawn(move || {
            let (mut stream, mut taken, begun) = (ask(address, "/"), 0, Instant::now());
            let mut bytes = vec![0; LONG / 16];
            loop {
                match stream.read(&mut bytes) {
                    Ok(0) => return (taken, begun.elapsed()),
                    Ok(count) => taken += count,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => panic!("after {taken} bytes: {error}"),
                }
                std::thread::sleep(Duration::from_millis(40));
            }
        });
        for _ in 0..2 {
            let (stream, _) = listener.accept().await.expect("they came");
            accept_loop.admit(stream, &app, &ending);
        }
        let begun = Instant::now();
        while accept_loop.connections().open > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "they are still there");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(accept_loop.connections().stalled, 1);
        let (taken, time) = slow.join().expect("no panic");
        assert!(taken > LONG && time > patience, "{taken} bytes in {time:?}");
        drop((silent, end));
    });
}

#[test]
fn streams_leave_places_for_commands() {
    let accept_loop = AcceptLoop::new(None, Duration::from_secs(10), 16);
    let streams: Vec<_> = std::iter::from_fn(|| accept_loop.place_of_stream()).collect();
    assert_eq!((streams.len(), accept_loop.connections().streams_crowded), (14, 1));
    drop(streams);
    assert!(accept_loop.place_of_stream().is_some());
}

#[test]
fn answers_that_are_not_read_are_bounded_and_commands_go_on() {
    let setup = Setup::new("unread");
    // The server does not parse accounts. This one is a sparse file.
    let directory = setup.output.join("run000007");
    std::fs::create_dir(&directory).expect("it can be made");
    let account = std::fs::File::create(directory.join("run.json")).expect("it can be made");
    account.set_len(60 << 20).expect("it can be long");
    let asked = || {
        let mut stream = ask(setup.address(), "/api/v1/runs/7");
        (status(&mut stream), stream)
    };
    let held = [(); 3].map(|()| asked());
    assert_eq!(held.each_ref().map(|(status, _)| status.as_str()), ["200", "200", "503"]);
    assert_eq!(setup.json("POST", "/api/v1/commands/configure").0, 200);
    drop(held);
    wait("there is room again", || (asked().0 == "200").then_some(()));
}

#[test]
fn a_client_that_asks_too_often_is_refused_and_commands_of_others_go_on() {
    const ASKED: usize = 6000;
    let setup = Setup::new("too-often");
    let mut stream = TcpStream::connect(setup.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let request = format!("GET /api/v1/operator HTTP/1.1\r\nHost: {}\r\n\r\n", setup.address());
    let mut asking = stream.try_clone().expect("a descriptor");
    let last = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    let asker = std::thread::spawn(move || {
        (0..ASKED).try_for_each(|_| asking.write_all(request.as_bytes()))?;
        asking.write_all(last.as_bytes())
    });
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers all");
    asker.join().expect("no panic").expect("it reads");
    let refused = text.matches("HTTP/1.1 429 ").count();
    assert!(text.contains("retry-after: 1\r\n") && text.contains("500 requests a second from one address"));
    let counted = setup.json("GET", "/api/v1/connections").1["requests_too_many"].as_u64().expect("a number");
    assert!(refused > 0 && counted >= refused as u64, "{refused} of {counted}");
    assert_eq!(setup.json("POST", "/api/v1/commands/configure").0, 200);
}

/// The time limit of connections in these tests.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends the parts of a request, with a pause after each, until the server closes the connection. Returns the time that
/// took and the response.
fn ask_slowly(address: SocketAddr, pause: Duration, parts: Vec<String>) -> (Duration, String) {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let mut sending = stream.try_clone().expect("a descriptor");
    let sender = std::thread::spawn(move || {
        for part in parts {
            // The server may have closed it.
            if sending.write_all(part.as_bytes()).is_err() {
                return;
            }
            std::thread::sleep(pause);
        }
    });
    let mut answer = Vec::new();
    // The read fails if a part of the request was in flight when the server closed the connection.
    let _ = stream.read_to_end(&mut answer);
    let took = begun.elapsed();
    // Close the socket, so that the sender thread stops.
    drop(stream);
    sender.join().expect("no panic");
    (took, String::from_utf8_lossy(&answer).into_owned())
}

/// Runs `work` with a server whose handler returns the length of the body.
fn while_it_serves<T: Send + 'static>(work: impl FnOnce(SocketAddr) -> T + Send + 'static) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has one");
        let accept_loop = Arc::new(AcceptLoop::new(None, PATIENCE, 16));
        let app =
            bounded(Router::new().route("/", post(|body: String| async move { body.len().to_string() })), PATIENCE);
        let (_end, ending) = watch::channel(());
        let mut working = tokio::task::spawn_blocking(move || work(address));
        loop {
            tokio::select! {
                accepted = listener.accept() => accept_loop.admit(accepted.expect("a connection").0, &app, &ending),
                done = &mut working => return done.expect("no panic"),
            }
        }
    })
}

fn one_by_one(text: &str) -> impl Iterator<Item = String> {
    text.chars().map(String::from)
}

#[test]
fn a_head_that_comes_bit_by_bit_is_ended_in_time() {
    let (took, answer) = while_it_serves(|address| {
        let endless = format!("POST / HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(1000));
        ask_slowly(address, PATIENCE / 20, one_by_one(&endless).collect())
    });
    // Sending everything would have taken fifty times as long.
    assert!(took >= PATIENCE && took < 20 * PATIENCE, "{took:?}");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_body_that_comes_bit_by_bit_or_not_at_all_is_ended_in_time() {
    let head = |length: usize| format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    let bits = [head(1000)].into_iter().chain(one_by_one(&"x".repeat(1000))).collect();
    for parts in [bits, vec![head(10)], vec![head(10), "half".to_owned()]] {
        let (took, answer) = while_it_serves(move |address| ask_slowly(address, PATIENCE / 20, parts));
        assert!(took >= PATIENCE && took < 20 * PATIENCE, "{took:?}");
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("did not come within 1s"), "{answer}");
    }
}

#[test]
fn a_slow_client_that_comes_to_an_end_is_answered() {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 10\r\n\r\n";
    let parts = [&head[..20], &head[20..], "0123", "456789"].map(str::to_owned).to_vec();
    let (_, answer) = while_it_serves(|address| ask_slowly(address, PATIENCE / 20, parts));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n10"), "{answer}");
}

#[test]
fn a_body_that_is_too_long_is_refused_and_the_server_goes_on() {
    let setup = Setup::new("long-bodies");
    let asked = |path: &str, length: usize| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
            setup.address()
        );
        setup.say(&[head.as_bytes(), &vec![b' '; length]].concat())
    };
    for path in ["/api/v1/masks", "/api/v1/runs/1/notes", "/api/v1/commands/configure", "/nothing"] {
        let (status, answer) = asked(path, BODY_BYTES + 1);
        assert!(status == 413 && answer.contains("65536 bytes at most"), "{path}: {status} {answer}");
        assert_ne!(asked(path, BODY_BYTES).0, 413, "{path}");
        // A client that has not sent everything may not get the response.
        let status = asked(path, 10 << 20).0;
        assert!([413, 0].contains(&status), "{path}: {status}");
    }
    let chunk = format!("8000\r\n{}\r\n", " ".repeat(0x8000));
    let head = format!(
        "POST /api/v1/masks HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        setup.address()
    );
    let status = setup.say(&[head, chunk.repeat(300)].concat().into_bytes()).0;
    assert!([413, 0].contains(&status), "{status}");
    assert_eq!(setup.json("GET", "/api/v1/state").0, 200);
}
