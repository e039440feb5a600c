//! Those who ask for much and read nothing, and how much of it others notice.

use super::{Setup, wait};
use crate::accept_loop::AcceptLoop;
use axum::Router;
use axum::routing::get;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

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
fn whoever_takes_nothing_of_an_answer_is_sent_away_and_whoever_is_slow_is_not() {
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
fn answers_that_nobody_reads_are_bounded_and_commands_go_on() {
    let setup = Setup::new("unread");
    // What an account is nobody looks at on the way; this one takes no place on the disk.
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
fn whoever_asks_as_fast_as_it_can_is_told_to_ask_less_often_and_commands_of_others_go_on() {
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
