//! A board that restarts during a run, and counts from its beginning again: over TCP, where it reconnects, and in
//! datagrams, where only its numbers show it; with a wide counter and a narrow one, and with increasing numbers.

use crate::support::{Run, TemporaryDirectory, wait_for};
use ropewalk_config::parse;
use ropewalk_flow::control::RunPhase;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{Cause, EventKey};
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const EVENTS: u64 = 100;
/// The last event before the board restarts, and the last one before its numbers are correct again.
const BEFORE: u64 = 60;
const ASTRAY: u64 = 80;
/// Time-out of the run for a silent source.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Properties of the two boards of a run.
#[derive(Copy, Clone, Debug)]
struct Boards {
    /// Whether they connect. Otherwise they send datagrams.
    connect: bool,
    /// The type of their counter.
    counter: &'static str,
    /// Whether their numbers are times, of which no two are consecutive.
    grow: bool,
}

impl Boards {
    /// Returns the correct number of an event.
    const fn number(self, event: u64) -> u64 {
        if self.grow { 1_000_000 + 10 * event } else { event }
    }

    fn keys(self) -> String {
        let (listen, frame) = if self.connect {
            ("tcp", "{ fixed = \"16B\" }")
        } else {
            ("udp", "\"datagram\"\nmax_fragment = \"1KiB\"")
        };
        let numbers = if self.grow { ", numbers = \"growing\"" } else { "" };
        format!(
            "listen = \"{listen}://127.0.0.1:0\"\nframe = {frame}\nevent = {{ at = 0, type = {:?}{numbers} }}",
            self.counter
        )
    }

    fn launch(self, output: &TemporaryDirectory) -> RunHandle {
        let mut text = format!(
            "version = 1\n[run]\noutput = {:?}\n[timeouts]\nreadout = \"20s\"\nbuilder = \"25s\"\nmanager = \"30s\"\n\
             drain = \"40s\"\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n",
            output.path().display().to_string()
        );
        for id in [1, 2] {
            text += &format!("[[source]]\nid = {id}\nname = \"board{id}\"\nreadout = \"ru0\"\n{}\n", self.keys());
        }
        let configuration = parse("restarts", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
        let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
        handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS)));
        wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
        handle
    }
}

/// Transport of a board to its readout unit.
enum Line {
    Connection(TcpStream),
    Socket(UdpSocket),
}

impl Line {
    fn open(boards: Boards, handle: &RunHandle, name: &str) -> Self {
        let known = handle.addresses().iter().find(|(known, _)| known == name);
        let address = &known.unwrap_or_else(|| panic!("{name} is not one of {:?}", handle.addresses())).1;
        if boards.connect {
            return Self::Connection(TcpStream::connect(address).expect("it listens"));
        }
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.connect(address).expect("it is bound");
        Self::Socket(socket)
    }

    /// Restarts the board: over TCP it reconnects; a restart of a datagram sender is invisible.
    fn restart(&mut self, boards: Boards, handle: &RunHandle, name: &str) {
        if let Self::Connection(_) = self {
            *self = Self::open(boards, handle, name);
        }
    }

    fn send(&mut self, number: u64) {
        let frame = [number.to_le_bytes(), [7; 8]].concat();
        match self {
            Self::Connection(stream) => stream.write_all(&frame).expect("it is read"),
            Self::Socket(socket) => _ = socket.send(&frame).expect("it is sent"),
        }
    }
}

/// Returns the number of fragments dropped for a cause; late ones are counted separately.
fn dropped(handle: &RunHandle, cause: Cause) -> u64 {
    let fragments = handle.snapshot().ledger.fragments;
    if cause == Cause::Late { fragments.late } else { fragments.dropped.get(cause) }
}

/// Executes a run in which board 2 restarts with `numbers`, and then counts correctly again.
fn taken(boards: Boards, astray: impl Fn(u64) -> u64) -> RunSummary {
    let output = TemporaryDirectory::new(&format!("restarts-{}-{}-{}", boards.connect, boards.counter, boards.grow));
    let handle = boards.launch(&output);
    let mut good = Line::open(boards, &handle, "board1");
    let mut bad = Line::open(boards, &handle, "board2");
    for event in 1..=BEFORE {
        good.send(boards.number(event));
        bad.send(boards.number(event));
    }
    wait_for("what came before", || (handle.snapshot().ledger.fragments.received == 2 * BEFORE).then_some(()));
    bad.restart(boards, &handle, "board2");
    for event in BEFORE + 1..=ASTRAY {
        good.send(boards.number(event));
        bad.send(astray(event - BEFORE));
    }
    let lost = || dropped(&handle, Cause::OutOfSync) + dropped(&handle, Cause::Late);
    wait_for("what is out of sync", || (lost() == ASTRAY - BEFORE).then_some(()));
    bad.restart(boards, &handle, "board2");
    // It is not awaited: it is in step only if it is not later than the others.
    (ASTRAY + 1..=EVENTS).for_each(|event| bad.send(boards.number(event)));
    let all = ASTRAY + EVENTS;
    wait_for("what it sends again", || (handle.snapshot().ledger.fragments.received == all).then_some(()));
    (ASTRAY + 1..=EVENTS).for_each(|event| good.send(boards.number(event)));
    let summary = Run { handle }.end();
    assert!(summary.is_balanced(), "{boards:?}: {summary:#?}");
    assert_eq!(summary.events.written, EVENTS, "{boards:?}: {summary:#?}");
    summary
}

fn count_of(summary: &RunSummary, cause: Cause) -> u64 {
    summary.fragments.dropped.get(cause)
}

/// Its fragments are in no event, by name, and the others' events are built without it. Over a new connection with
/// correct numbers it takes part again; datagrams do not show a restart.
#[test]
fn a_counter_that_begins_anew_shifts_no_event_and_is_named() {
    for connect in [true, false] {
        for counter in ["u8", "u16le", "u64le"] {
            let boards = Boards { connect, counter, grow: false };
            let summary = taken(boards, |event| event);
            // Over the same connection three consecutive numbers show that a board counts correctly again.
            let lost = ASTRAY - BEFORE + if connect { 0 } else { 2 };
            assert_eq!(summary.events.incomplete_emitted, lost, "{boards:?}: {summary:#?}");
            assert_eq!(count_of(&summary, Cause::OutOfSync), lost, "{boards:?}: {summary:#?}");
        }
    }
}

/// Increasing numbers give more information: a source that is back in step takes part again. A source that restarted is
/// not awaited, once the following data has shown the restart.
#[test]
fn growing_numbers_that_begin_anew_are_named_and_hold_up_no_source() {
    for connect in [true, false] {
        for counter in ["u32le", "u64le"] {
            let boards = Boards { connect, counter, grow: true };
            let began = Instant::now();
            let summary = taken(boards, |event| 10 * event);
            assert!(began.elapsed() < TIMEOUT, "{boards:?}: it waited");
            assert_eq!(summary.events.incomplete_emitted, ASTRAY - BEFORE, "{boards:?}: {summary:#?}");
            let named = (summary.fragments.late, count_of(&summary, Cause::OutOfSync));
            assert_eq!(named, (0, ASTRAY - BEFORE), "{boards:?}: {summary:#?}");
        }
    }
}

/// The clock of the pulses was set back for all: none of their events is lost.
#[test]
fn boards_that_begin_anew_together_are_built_together() {
    let boards = Boards { connect: false, counter: "u64le", grow: true };
    let output = TemporaryDirectory::new("restarts-together");
    let handle = boards.launch(&output);
    let mut lines = ["board1", "board2"].map(|name| Line::open(boards, &handle, name));
    let mut send = |pulse: u64| lines.iter_mut().for_each(|line| line.send(pulse));
    (1..=BEFORE).for_each(|event| send(boards.number(event)));
    wait_for("what came before", || (handle.snapshot().ledger.fragments.received == 2 * BEFORE).then_some(()));
    (1..=EVENTS - BEFORE).for_each(|event| send(10 * event));
    let summary = Run { handle }.end();
    assert!(summary.is_balanced(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.events.incomplete_emitted), (EVENTS, 0), "{summary:#?}");
    assert_eq!((summary.fragments.late, count_of(&summary, Cause::OutOfSync)), (0, 0), "{summary:#?}");
}
