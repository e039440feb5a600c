//! Boards with configured layouts that send invalid data: the others' events are built, the lost data has a name, and
//! the next good frame is found.

use crate::support::{Run, TemporaryDirectory, is_closed, wait_for};
use ropewalk_config::parse;
use ropewalk_flow::control::RunPhase;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{Cause, Counter, EventKey, SourceId};
use std::io::Write;
use std::net::{TcpStream, UdpSocket};

const EVENTS: u32 = 60;
/// The event of the bad frame.
const BAD: u32 = 30;

/// Frames with a length field, once without a sync word, and once with one.
const BARE: &str =
    "frame = { length = { at = 0, type = \"u32le\" }, max = \"1KiB\" }\nevent = { at = 4, type = \"u32le\" }";
const WITH_WORD: &str = "frame = { sync = [0xca, 0xfe, 0xba, 0xbe], length = { at = 4, type = \"u32le\" }, max = \"1KiB\" }\n\
                         event = { at = 8, type = \"u32le\" }";
const DATAGRAMS: &str = "listen = \"udp://127.0.0.1:0\"\nmax_fragment = \"1KiB\"\nframe = \"datagram\"\nmatch = { at = 0, bytes = \"RB\" }\n\
                         event = { at = 2, type = \"u32le\" }";

/// Launches a run of a good board, and of one with these keys.
fn launched(output: &TemporaryDirectory, keys: &str) -> (RunHandle, TcpStream) {
    let mut handle = prepared(output, keys);
    let good = started(&mut handle);
    (handle, good)
}

/// Prepares the same run without starting it.
fn prepared(output: &TemporaryDirectory, keys: &str) -> RunHandle {
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[timeouts]\nreadout = \"300ms\"\n[[readout]]\nname = \"ru0\"\n[[builder]]\n\
         name = \"bu0\"\n[[source]]\nid = 1\nname = \"good\"\nreadout = \"ru0\"\nlisten = \"tcp://127.0.0.1:0\"\n{BARE}\n\
         [[source]]\nid = 2\nname = \"bad\"\nreadout = \"ru0\"\n{keys}\n",
        output.path().display().to_string()
    );
    let configuration = parse("bad_input", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"))
}

/// Starts the run; its good board sends all its data.
fn started(handle: &mut RunHandle) -> TcpStream {
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS.into())));
    wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
    let mut good = TcpStream::connect(address_of(handle, "good")).expect("it listens");
    (1..=EVENTS).for_each(|event| good.write_all(&bare(event, 16)).expect("it is read"));
    good
}

fn address_of(handle: &RunHandle, name: &str) -> String {
    let named = handle.addresses().iter().find(|(known, _)| known == name);
    named.unwrap_or_else(|| panic!("{name} is not one of {:?}", handle.addresses())).1.clone()
}

/// Returns a frame of 16 bytes that claims this length.
fn bare(event: u32, length: u32) -> Vec<u8> {
    [length, event, 7, 7].map(u32::to_le_bytes).concat()
}

fn with_word(event: u32, length: u32) -> Vec<u8> {
    [[0xca, 0xfe, 0xba, 0xbe], length.to_le_bytes(), event.to_le_bytes(), [7; 4]].concat()
}

fn datagram(event: u32, bytes: usize) -> Vec<u8> {
    let mut datagram = [&b"RB"[..], &event.to_le_bytes()].concat();
    datagram.resize(bytes, 7);
    datagram
}

fn ended(handle: RunHandle) -> RunSummary {
    let summary = Run { handle }.end();
    assert!(summary.is_balanced(), "{summary:#?}");
    assert_eq!(summary.events.written, u64::from(EVENTS), "{summary:#?}");
    summary
}

fn count_of(summary: &RunSummary, cause: Cause) -> u64 {
    summary.fragments.dropped.get(cause)
}

/// The next frame cannot be found: the connection is closed, and the board continues over another one.
#[test]
fn a_length_that_cannot_be_closes_the_connection_where_frames_have_no_mark() {
    for (length, name) in [(0, "zero"), (7, "short"), (1025, "long")] {
        let output = TemporaryDirectory::new(&format!("bad-length-{name}"));
        let (handle, _good) = launched(&output, &format!("listen = \"tcp://127.0.0.1:0\"\n{BARE}"));
        let address = address_of(&handle, "bad");
        let mut bad = TcpStream::connect(&address).expect("it listens");
        (1..BAD).for_each(|event| bad.write_all(&bare(event, 16)).expect("it is read"));
        bad.write_all(&bare(BAD, length)).expect("it is read");
        assert!(is_closed(&bad), "a length of {length}");
        let mut bad = TcpStream::connect(&address).expect("it listens again");
        (BAD + 1..=EVENTS).for_each(|event| bad.write_all(&bare(event, 16)).expect("it is read"));
        let summary = ended(handle);
        assert_eq!(summary.events.incomplete_emitted, 1, "{name}: {summary:#?}");
    }
}

#[test]
fn a_length_that_cannot_be_costs_one_frame_where_frames_have_a_sync_word() {
    for (length, cause) in [(0, Cause::SyncLost), (11, Cause::SyncLost), (1025, Cause::Oversize)] {
        let output = TemporaryDirectory::new(&format!("bad-word-{length}"));
        let (handle, _good) = launched(&output, &format!("listen = \"tcp://127.0.0.1:0\"\n{WITH_WORD}"));
        let mut bad = TcpStream::connect(address_of(&handle, "bad")).expect("it listens");
        for event in 1..=EVENTS {
            bad.write_all(&with_word(event, if event == BAD { length } else { 16 })).expect("it is read");
        }
        let summary = ended(handle);
        let named = (summary.events.incomplete_emitted, count_of(&summary, cause));
        assert_eq!(named, (1, 1), "a length of {length}: {summary:#?}");
    }
}

/// The socket has no room for the whole datagram: its rest is dropped, and it is counted with the socket's losses.
#[test]
fn a_datagram_that_the_socket_cut_is_no_fragment() {
    let output = TemporaryDirectory::new("bad-jumbo");
    let (handle, _good) = launched(&output, DATAGRAMS);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let send = |event: u32| {
        let bytes = if event == BAD { 9000 } else { 500 };
        socket.send_to(&datagram(event, bytes), address_of(&handle, "bad")).expect("it is sent");
    };
    (1..EVENTS).for_each(send);
    wait_for("the cut one", || (handle.snapshot().counter(Counter::DatagramsLost) == 1).then_some(()));
    send(EVENTS);
    let summary = ended(handle);
    assert_eq!(summary.events.incomplete_emitted, 1, "{summary:#?}");
    assert_eq!(summary.fragments.received, u64::from(2 * EVENTS - 1), "{summary:#?}");
    let lost = summary.datagrams.lost_by_cause;
    assert_eq!(lost.names(), [("truncated", 1)].into(), "{summary:#?}");
    assert_eq!(summary.datagrams.lost_by_source, [("2".to_owned(), lost)].into(), "{summary:#?}");
}

/// A board sends independently of runs: losses before a run are no losses of the run.
#[test]
fn what_was_lost_before_the_run_is_no_loss_of_it() {
    let output = TemporaryDirectory::new("bad-early");
    let mut handle = prepared(&output, &format!("{DATAGRAMS}\nsequence = {{ at = 6, type = \"u8\" }}"));
    let (socket, address) = (UdpSocket::bind("127.0.0.1:0").expect("a free port"), address_of(&handle, "bad"));
    let send = |event: u32, number: u8, bytes: usize| {
        let mut frame = datagram(event, bytes);
        frame[6] = number;
        socket.send_to(&frame, &address).expect("it is sent");
    };
    send(EVENTS, 1, 9000);
    send(EVENTS, 2, 500);
    send(EVENTS, 100, 500);
    wait_for("both of before", || (handle.snapshot().sources.get(&SourceId(2))?.received == 2).then_some(()));
    let _good = started(&mut handle);
    (1..=EVENTS).for_each(|event| send(event, 100 + event as u8, 500));
    let summary = ended(handle);
    assert!(summary.is_lossless() && summary.fragments.stale == 2, "{summary:#?}");
}

/// Datagrams do not identify the sending board: each event arrives twice, and is taken once.
#[test]
fn two_boards_that_send_datagrams_as_one_give_no_event_twice() {
    let output = TemporaryDirectory::new("bad-twins");
    let (handle, _good) = launched(&output, DATAGRAMS);
    let boards = ["127.0.0.2:0", "127.0.0.3:0"].map(|place| UdpSocket::bind(place).expect("all of 127/8 is ours"));
    let address = address_of(&handle, "bad");
    for event in 1..EVENTS {
        for board in &boards {
            board.send_to(&datagram(event, 500), &address).expect("it is sent");
        }
        let seen = u64::from(EVENTS + 2 * event);
        wait_for("both", || (handle.snapshot().ledger.fragments.received >= seen).then_some(()));
    }
    // The first datagram of the last event ends the run, and the socket may be closed before a second one.
    boards[0].send_to(&datagram(EVENTS, 500), &address).expect("it is sent");
    let summary = ended(handle);
    let again = summary.fragments.duplicate + summary.fragments.late + summary.fragments.after_stop;
    assert_eq!((summary.events.incomplete_emitted, again), (0, u64::from(EVENTS - 1)), "{summary:#?}");
}

#[test]
fn a_second_board_that_comes_by_the_entrance_of_one_that_goes_on_is_turned_away() {
    let output = TemporaryDirectory::new("bad-second");
    let (handle, _good) = launched(&output, &format!("listen = \"tcp://127.0.0.1:0\"\n{BARE}"));
    let address = address_of(&handle, "bad");
    let mut first = TcpStream::connect(&address).expect("it listens");
    first.write_all(&bare(1, 16)).expect("it is read");
    let seen = |count: u32| handle.snapshot().ledger.fragments.received >= u64::from(EVENTS + count);
    wait_for("the first board", || seen(1).then_some(()));
    let mut second = TcpStream::connect(&address).expect("it listens");
    let _ = second.write_all(&bare(1, 16));
    // The first one continues while the second one is inspected.
    let mut event = 1;
    let is_turned_away = |second: &TcpStream| {
        second.set_nonblocking(true).expect("a plain socket");
        !matches!(second.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    wait_for("the second board's end", || {
        if event < EVENTS - 1 {
            event += 1;
            first.write_all(&bare(event, 16)).expect("it is read");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        is_turned_away(&second).then_some(())
    });
    (event + 1..=EVENTS).for_each(|event| first.write_all(&bare(event, 16)).expect("it is read"));
    let summary = ended(handle);
    assert_eq!((summary.events.incomplete_emitted, summary.fragments.duplicate), (0, 0), "{summary:#?}");
}
