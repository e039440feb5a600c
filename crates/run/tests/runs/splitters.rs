//! Sources whose frames hold several events each, in whole runs.

use crate::support::{Run, TemporaryDirectory};
use ropewalk_config::parse;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{Cause, Counter, EventKey};
use ropewalk_tools::RunIndex;
use ropewalk_wire::mep::encode_mep;
use std::io::Write;
use std::net::{TcpStream, UdpSocket};

/// Events in a packet: of the first source, and of the second one.
const PACKING: [u32; 2] = [32, 10];

fn payload(source: u32, event: u32) -> Vec<u8> {
    let length = 4 * (1 + (event * 7 + source) % 25) as usize;
    (0..length).map(|place| (place as u32 * event + source) as u8).collect()
}

/// Returns the packet of a source that begins with this event.
fn packet(source: u32, first: u32) -> Vec<u8> {
    let payloads: Vec<_> = (first..first + PACKING[source as usize - 1]).map(|event| payload(source, event)).collect();
    let mut bytes = Vec::new();
    encode_mep(first, 9, payloads.iter().map(Vec::as_slice), &mut bytes).expect("a short packet");
    bytes
}

/// Returns the packets of a source for the events from 1 on, at least up to this one.
fn packets(source: u32, last: u32) -> Vec<Vec<u8>> {
    (1..=last).step_by(PACKING[source as usize - 1] as usize).map(|first| packet(source, first)).collect()
}

/// Launches a run of this many events with the two sources at these listening addresses. The window is smaller than a
/// packet.
fn launched(output: &TemporaryDirectory, places: [&str; 2], events: u32) -> RunHandle {
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\nwindow = 24\n[[builder]]\nname = \"bu0\"\n",
        output.path().display().to_string()
    );
    for (id, place) in (1..).zip(places) {
        text += &format!(
            "[[source]]\nid = {id}\nname = \"board{id}\"\nreadout = \"ru0\"\nformat = \"lhcb-mep\"\nlisten = \"{place}\"\n"
        );
    }
    let configuration = parse("splitter", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, events.into())));
    handle
}

fn address_of(handle: &RunHandle, name: &str) -> String {
    let named = handle.addresses().iter().find(|(known, _)| known == name);
    named.unwrap_or_else(|| panic!("{name} is not one of {:?}", handle.addresses())).1.clone()
}

/// An event: its number, and the source and payload of each fragment.
type Written = (u64, Vec<(u32, Vec<u8>)>);

/// Returns the events in the files.
fn written(summary: &RunSummary) -> Vec<Written> {
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let (mut reader, mut events) = (index.reader(), Vec::new());
    while let Some(event) = reader.next_event().expect("it can be read") {
        let fragments = event.event.fragments().map(|one| (one.entry.source.0, one.payload.to_vec()));
        events.push((event.event.head().key.number(), fragments.collect()));
    }
    events
}

/// Checks that these are the events from 1 on, with the data of both sources after the headers of their fragments.
fn expect_events(summary: &RunSummary, events: u32) {
    let written = written(summary);
    assert_eq!(written.len(), events as usize);
    for (number, fragments) in written {
        let bodies: Vec<_> = fragments.iter().map(|(source, bytes)| (*source, bytes[4..].to_vec())).collect();
        let event = number as u32;
        assert_eq!(bodies, [1, 2].map(|source| (source, payload(source, event))), "event {event}");
    }
}

#[test]
fn packets_of_several_events_that_come_as_a_stream_are_an_event_each() {
    const EVENTS: u32 = 1000;
    let output = TemporaryDirectory::new("splitter-stream");
    let handle = launched(&output, ["tcp://127.0.0.1:0"; 2], EVENTS);
    let boards = ["board1", "board2"].map(|name| address_of(&handle, name));
    std::thread::scope(|scope| {
        for (source, address) in (1..).zip(boards) {
            scope.spawn(move || {
                let bytes = packets(source, EVENTS).concat();
                TcpStream::connect(address).expect("it listens").write_all(&bytes)
            });
        }
    });
    let run = Run { handle };
    let summary = run.end();
    assert!(summary.is_lossless() && summary.is_balanced(), "{summary:#?}");
    // The last packet of the first source extends beyond the last event.
    assert_eq!(summary.fragments.after_stop, 1024 - 1000, "{summary:#?}");
    assert_eq!(summary.fragments.received, 1024 + 1000);
    expect_events(&summary, EVENTS);
}

#[test]
fn packets_of_several_events_that_come_as_datagrams_are_an_event_each() {
    const EVENTS: u32 = 320;
    let output = TemporaryDirectory::new("splitter-datagrams");
    let mut run = Run { handle: launched(&output, ["udp://127.0.0.1:0"; 2], EVENTS) };
    let boards = ["board1", "board2"].map(|name| address_of(&run.handle, name));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    run.wait_until("start", |snapshot| snapshot.phase == ropewalk_flow::control::RunPhase::Running);
    for (source, address) in (1..).zip(&boards) {
        for packet in packets(source, EVENTS) {
            socket.send_to(&packet, address).expect("it is heard");
        }
    }
    run.wait_for_count(Counter::FramesDivided, 10 + 32);
    let summary = run.end();
    assert!(summary.is_lossless() && summary.is_balanced(), "{summary:#?}");
    assert_eq!(summary.fragments.received, 2 * u64::from(EVENTS));
    expect_events(&summary, EVENTS);
}

/// The emulator of a source whose format packs several events sends such packets, over either input. The last one has
/// only the remaining events.
#[test]
fn emulated_packets_of_several_events_are_an_event_each() {
    const EVENTS: u64 = 1000;
    let output = TemporaryDirectory::new("splitter-emulated");
    let source = |id: u32, emulate: &str, listen: &str| {
        format!(
            "[[source]]\nid = {id}\nname = \"board{id}\"\nreadout = \"ru0\"\nformat = \"lhcb-mep\"\n\
             emulate = {{ fragment_size = \"uniform(16,200)\", packing = {emulate} }}\n{listen}\n"
        )
    };
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n{}{}",
        output.path().display().to_string(),
        source(1, "7", ""),
        source(2, "64", "listen = \"udp://192.0.2.1:9000\""),
    );
    let configuration = parse("splitter", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, Some(EVENTS)).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS)));
    let mut run = Run { handle };
    run.wait_until("all", |snapshot| snapshot.phase == ropewalk_flow::control::RunPhase::Ended);
    let sent: Vec<_> = run.handle.sent().iter().map(|(id, fragments, _)| (id.0, *fragments)).collect();
    assert_eq!(sent, [(1, EVENTS), (2, EVENTS)]);
    let summary = run.end();
    assert!(summary.is_lossless() && summary.is_balanced(), "{summary:#?}");
    assert_eq!((summary.events.built, summary.fragments.in_complete_events), (EVENTS, 2 * EVENTS), "{summary:#?}");
    assert_eq!(
        summary.fragments.counts.get(Counter::FramesDivided),
        EVENTS.div_ceil(7) + EVENTS.div_ceil(64),
        "{summary:#?}"
    );
    let numbers: Vec<_> = written(&summary).iter().map(|(number, fragments)| (*number, fragments.len())).collect();
    assert_eq!(numbers, (1..=EVENTS).map(|number| (number, 2)).collect::<Vec<_>>());
}

#[test]
fn a_packet_that_cannot_be_divided_is_one_lost_fragment_with_its_cause() {
    const EVENTS: u32 = 96;
    let output = TemporaryDirectory::new("splitter-damage");
    let mut run = Run { handle: launched(&output, ["tcp://127.0.0.1:0"; 2], EVENTS) };
    let boards = ["board1", "board2"].map(|name| address_of(&run.handle, name));
    let mut damaged = packets(1, EVENTS);
    // The first fragment of the second packet claims a length beyond the packet's end.
    damaged[1][14..16].copy_from_slice(&60_000_u16.to_le_bytes());
    let streams = [damaged.concat(), packets(2, EVENTS).concat()];
    let _boards: Vec<_> = std::iter::zip(&boards, streams)
        .map(|(address, bytes)| {
            let mut board = TcpStream::connect(address).expect("it listens");
            board.write_all(&bytes).expect("it is read");
            board
        })
        .collect();
    run.wait_until("all", |snapshot| snapshot.phase == ropewalk_flow::control::RunPhase::Ended);
    let summary = run.end();
    assert!(summary.is_balanced(), "{summary:#?}");
    assert_eq!((summary.events.built, summary.events.incomplete_emitted), (64, 32), "{summary:#?}");
    assert_eq!(summary.fragments.dropped.names(), [(Cause::Malformed.name(), 1)].into(), "{summary:#?}");
}
