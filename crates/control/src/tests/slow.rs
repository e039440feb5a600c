//! Requests that come slowly, not at all to their end, or are too long.

use super::Setup;
use crate::accept_loop::AcceptLoop;
use crate::bodies::{BODY_BYTES, bounded};
use axum::Router;
use axum::routing::post;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time limit of connections in these tests.
const PATIENCE: Duration = Duration::from_secs(1);

/// Sends the parts of a request, one after each pause, as long as somebody takes them; how long all of it took, and what was answered
/// until the connection was closed.
fn ask(address: SocketAddr, pause: Duration, parts: Vec<String>) -> (Duration, String) {
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
    // It ends with an error where something of the request was on its way.
    let _ = stream.read_to_end(&mut answer);
    let took = begun.elapsed();
    // Nobody reads any more what it still has to send.
    drop(stream);
    sender.join().expect("no panic");
    (took, String::from_utf8_lossy(&answer).into_owned())
}

/// A server whose handler says how long the body was, while somebody asks it.
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
        ask(address, PATIENCE / 20, one_by_one(&endless).collect())
    });
    // At its end it would have taken fifty times as long.
    assert!(took >= PATIENCE && took < 20 * PATIENCE, "{took:?}");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_body_that_comes_bit_by_bit_or_not_at_all_is_ended_in_time() {
    let head = |length: usize| format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    let bits = [head(1000)].into_iter().chain(one_by_one(&"x".repeat(1000))).collect();
    for parts in [bits, vec![head(10)], vec![head(10), "half".to_owned()]] {
        let (took, answer) = while_it_serves(move |address| ask(address, PATIENCE / 20, parts));
        assert!(took >= PATIENCE && took < 20 * PATIENCE, "{took:?}");
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("did not come within 1s"), "{answer}");
    }
}

#[test]
fn whoever_is_slow_and_comes_to_an_end_is_answered() {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 10\r\n\r\n";
    let parts = [&head[..20], &head[20..], "0123", "456789"].map(str::to_owned).to_vec();
    let (_, answer) = while_it_serves(|address| ask(address, PATIENCE / 20, parts));
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
        // Whoever has not sent everything may not hear why.
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
