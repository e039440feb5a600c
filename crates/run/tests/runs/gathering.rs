//! Events of several frames, in whole runs: pages of an orbit from a file, pieces of a trigger record over TCP, packets
//! of a layout over UDP.

use crate::support::{Run, TemporaryDirectory, wait_for};
use ropewalk_config::parse;
use ropewalk_flow::control::RunPhase;
use ropewalk_run::{RunHandle, launch};
use ropewalk_terms::{Counter, EventKey};
use ropewalk_tools::RunIndex;
use ropewalk_wire::foreign::{Header, alice, dune};
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

const EVENTS: u64 = 200;

/// Returns the number of frames of a source's part of an event.
const fn frames_of(source: u64, event: u64) -> u64 {
    1 + (event + source) % 4
}

fn payload(source: u64, event: u64, place: u64) -> Vec<u8> {
    vec![(source + event + place) as u8; 1 + (event * 31 + place * 7) as usize % 700]
}

/// Returns the pages of an orbit; the last one is marked.
fn pages(orbit: u64, counter: &mut u64) -> Vec<Vec<u8>> {
    let count = frames_of(1, orbit);
    let page = |place| {
        let header = Header::new().with(alice::FEE, 1).with(alice::ORBIT, orbit).with(alice::PAGE, place);
        let header =
            header.with(alice::PACKET_COUNTER, *counter & 0xff).with(alice::STOP, u64::from(place + 1 == count));
        *counter += 1;
        let mut page = Vec::new();
        alice::encode(header, &payload(1, orbit, place), &mut page).expect("it is short");
        page
    };
    (0..count).map(page).collect()
}

/// Returns the pieces of a trigger record; the last one is not marked.
fn records(trigger: u64) -> Vec<Vec<u8>> {
    let record = |place| {
        let header = Header::new().with(dune::SOURCE, 2).with(dune::TRIGGER_NUMBER, trigger);
        let mut record = Vec::new();
        dune::encode(header.with(dune::SEQUENCE, place), &payload(2, trigger, place), &mut record);
        record
    };
    (0..frames_of(2, trigger)).map(record).collect()
}

/// Returns the packets of a board that numbers events and packets.
fn packets(event: u64, number: &mut u32) -> Vec<Vec<u8>> {
    let packet = |place| {
        *number += 1;
        [&(event as u32).to_le_bytes()[..], &number.to_le_bytes(), &payload(3, event, place)].concat()
    };
    (0..frames_of(3, event)).map(packet).collect()
}

/// Launches a run of three boards; the first one's frames are in a file.
fn launched(output: &TemporaryDirectory, pages: &[u8]) -> RunHandle {
    let file = output.path().join("pages.raw");
    std::fs::write(&file, pages).expect("the directory is ours");
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\npool = \"64MiB\"\nblock = \"64KiB\"\n\
         [[builder]]\nname = \"bu0\"\n\
         [[source]]\nid = 1\nname = \"cru\"\nreadout = \"ru0\"\nformat = \"alice\"\ninput = {:?}\n\
         [[source]]\nid = 2\nname = \"apa\"\nreadout = \"ru0\"\nformat = \"dune\"\nlisten = \"tcp://127.0.0.1:0\"\n\
         gather_timeout = \"50ms\"\n\
         [[source]]\nid = 3\nname = \"board\"\nreadout = \"ru0\"\nlisten = \"udp://127.0.0.1:0\"\nframe = \"datagram\"\n\
         event = {{ at = 0, type = \"u32le\" }}\nsequence = {{ at = 4, type = \"u32le\" }}\ngather = true\n",
        output.path().display().to_string(),
        file.display().to_string(),
    );
    let configuration = parse("gathering", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"))
}

fn address_of(handle: &RunHandle, name: &str) -> String {
    let named = handle.addresses().iter().find(|(known, _)| known == name);
    named.unwrap_or_else(|| panic!("{name} is not one of {:?}", handle.addresses())).1.clone()
}

#[test]
fn an_event_that_comes_in_several_frames_is_one_fragment_and_not_a_byte_is_lost() {
    let output = TemporaryDirectory::new("gathering");
    let (mut counter, mut number) = (0, 0);
    let of_file: Vec<_> = (1..=EVENTS).map(|orbit| pages(orbit, &mut counter)).collect();
    let of_board: Vec<_> = (1..=EVENTS).map(|event| packets(event, &mut number)).collect();
    let mut handle = launched(&output, &of_file.concat().concat());
    let mut apa = TcpStream::connect(address_of(&handle, "apa")).expect("it listens");
    let (socket, board) = (UdpSocket::bind("127.0.0.1:0").expect("a free port"), address_of(&handle, "board"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS)));
    wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
    for (event, packets) in (1..=EVENTS).zip(&of_board) {
        // A pause longer than the wait for the next frame, in the middle of a frame.
        let (first, rest) = (&records(event)[0], records(event)[1..].concat());
        apa.write_all(&first[..40]).expect("it is read");
        if event == 100 {
            std::thread::sleep(Duration::from_millis(200));
        }
        apa.write_all(&first[40..]).expect("it is read");
        apa.write_all(&rest).expect("it is read");
        for packet in packets {
            socket.send_to(packet, &board).expect("it is sent");
        }
    }
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.events.built, summary.events.incomplete_emitted), (EVENTS, 0), "{summary:#?}");
    let frames = |source| (1..=EVENTS).map(|event| frames_of(source, event)).sum::<u64>();
    assert_eq!(summary.fragments.counts.get(Counter::FramesGathered), frames(1) + frames(2) + frames(3) - 3 * EVENTS);

    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let mut reader = index.reader();
    for event in 1..=EVENTS {
        let found = reader.next_event().expect("it can be read").expect("an event");
        let found: Vec<_> = found.event.fragments().map(|fragment| fragment.payload.to_vec()).collect();
        let place = event as usize - 1;
        let wanted = [of_file[place].concat(), records(event).concat(), of_board[place].concat()];
        assert!(found == wanted, "event {event}");
    }
}
