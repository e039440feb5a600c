//! Accepted events go to a FIFO or a Unix socket: to a reader, to a late one, and to one that disconnects.

use crate::support::{FrontEnd, Held, Setup, expect_everything, lost};
use ropewalk_terms::{Cause, Counter};
use std::fs::{self, File};
use std::io::{Read, copy};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const SOURCE: u32 = 841;
const EVENTS: u64 = 2000;

/// Returns a run that writes to this pipe, and a directory for the data of readers.
fn setup(name: &str) -> (Setup, PathBuf, PathBuf) {
    let setup = Setup::new(name, &[SOURCE]);
    let (pipe, received) = (setup.directory().join("events"), setup.directory().join("received"));
    fs::create_dir_all(&received).expect("a directory can be made");
    let output = setup.output();
    let text = format!("[run]\noutput = {output:?}\n[storage]\npipe = {pipe:?}\n");
    (setup.and(&text), pipe, received)
}

fn connect(pipe: &Path) -> UnixStream {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match UnixStream::connect(pipe) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Writes the received bytes to the `number`th run file of the builder unit.
fn keep(mut from: impl Read + Send + 'static, received: &Path, number: u32) -> JoinHandle<u64> {
    let mut file = File::create(received.join(format!("run000001-bu0-{number:06}.rwk"))).expect("a file can be made");
    thread::spawn(move || copy(&mut from, &mut file).expect("the stream is read to its end"))
}

/// Reads this many bytes and disconnects.
fn take(mut from: impl Read, bytes: usize) -> Vec<u8> {
    let mut taken = vec![0; bytes];
    from.read_exact(&mut taken).expect("so much comes");
    taken
}

#[test]
fn a_reader_of_a_socket_receives_every_event() {
    let (setup, pipe, received) = setup("socket");
    let run = setup.start(Some(EVENTS));
    let reader = keep(connect(&pipe), &received, 1);
    let mut front_end = FrontEnd::ferol(&run.address(), SOURCE);
    front_end.send(1..=EVENTS);
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!(summary.events.written, EVENTS);
    assert!(reader.join().expect("the reader ends") > summary.bytes.written, "records, and what frames them");
    expect_everything(&[&front_end], &Held::in_directories(&[received]), EVENTS);
    assert!(!pipe.exists(), "the socket is removed at the end of the run");
}

#[test]
fn a_fifo_without_a_reader_holds_up_the_run_and_loses_nothing() {
    let (setup, pipe, received) = setup("fifo");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
    assert!(made.success());
    let mut run = setup.start(Some(EVENTS));
    let mut front_end = FrontEnd::ferol(&run.address(), SOURCE);
    front_end.send(1..=EVENTS);
    run.wait_until("the missing reader is reported", |snapshot| !snapshot.failing_disks.is_empty());
    assert_eq!(run.counter(Counter::EventsWritten), 0);
    let reader = keep(File::open(&pipe).expect("it opens when the run writes"), &received, 1);
    let summary = run.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    reader.join().expect("the reader ends");
    expect_everything(&[&front_end], &Held::in_directories(&[received]), EVENTS);
}

#[test]
fn what_a_reader_that_went_away_may_not_have_read_is_counted() {
    let (setup, pipe, received) = setup("leaves");
    let run = setup.start(Some(EVENTS));
    let first = connect(&pipe);
    let mut front_end = FrontEnd::ferol(&run.address(), SOURCE);
    front_end.send(1..=EVENTS);
    let taken = take(first, 100_000);
    fs::write(received.join("run000001-bu0-000001.rwk"), taken).expect("a file can be made");
    let reader = keep(connect(&pipe), &received, 2);
    let summary = run.end();
    reader.join().expect("the reader ends");
    let held = Held::in_directories(&[received]);
    let lost = lost(&[&front_end], &held).len() as u64;
    assert!(lost <= summary.disk.events_gone, "{lost} events are lost, {:?}", summary.disk);
    assert!(summary.disk.events_gone > 0 && !summary.is_lossless(), "{:?}", summary.disk);
    assert_eq!(summary.events.written, EVENTS);
}

#[test]
fn a_reader_that_never_comes_is_given_up_when_the_run_drains() {
    let (setup, _, _) = setup("no-reader");
    let setup = setup.timeouts(["1s", "1500ms", "2s", "3s"]);
    let mut run = setup.start(Some(EVENTS));
    let mut front_end = FrontEnd::ferol(&run.address(), SOURCE);
    front_end.send(1..=50);
    run.wait_for_fragments(SOURCE, 50);
    run.stop();
    let summary = run.end();
    assert_eq!((summary.events.written, summary.events.incomplete_dropped_by_cause.get(Cause::WriteFailed)), (0, 50));
    assert!(!summary.is_lossless() && summary.ledger.balanced, "{summary:#?}");
}
