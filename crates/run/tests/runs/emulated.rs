//! Sources that are replaced by an emulator, with any frames and any input.

use crate::support::{Run, TemporaryDirectory, wait_for};
use ropewalk_config::parse;
use ropewalk_flow::control::RunPhase;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{Counter, EventKey};
use ropewalk_tools::RunIndex;
use ropewalk_wire::foreign::ForeignFormat;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;

const EVENTS: u64 = 300;

/// A digitiser that connects or is connected to.
const DIGITISER: &str = "frame = { length = { at = 0, type = \"u32le\", mask = 0x0fffffff, unit = 4 }, max = \"1MiB\" }\n\
                         event = { at = 8, type = \"u32le\", mask = 0xffffff }\n\
                         time = { at = 12, type = \"u32le\", mask = 0x7fffffff, tick = \"8ns\" }\n";
/// One of several boards that send datagrams to one port.
const BOARD: &str = "frame = \"datagram\"\nmax_fragment = \"1KiB\"\nmatch = { at = 0, bytes = \"RB\" }\n\
                     event = { at = 2, type = \"u32be\", first = 7 }\nsequence = { at = 6, type = \"u16be\" }\n\
                     time = { at = 8, type = \"u64be\", tick = \"1ns\" }\n";
/// Frames of several datagrams.
const PIECES: &str = "event = { at = 12, type = \"u64be\", first = 0 }\nframe.pieces.header = 20\n\
                      frame.pieces.frame = { at = 12, type = \"u64be\" }\nframe.pieces.offset = { at = 4, type = \"u32be\" }\n\
                      frame.pieces.length = { at = 8, type = \"u32be\" }\n";

/// Launches a run of these sources; their ids begin with 1.
fn launched(output: &TemporaryDirectory, sources: &[String]) -> RunHandle {
    let mut text = format!(
        "version = 1\n[run]\noutput = {:?}\n[timeouts]\nreadout = \"2s\"\n[[readout]]\nname = \"ru0\"\n[[builder]]\n\
         name = \"bu0\"\n",
        output.path().display().to_string()
    );
    for (id, keys) in (1..).zip(sources) {
        text += &format!("[[source]]\nid = {id}\nname = \"board{id}\"\nreadout = \"ru0\"\n{keys}\n");
    }
    let configuration = parse("emulated", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    launch(&configuration, Some(EVENTS)).unwrap_or_else(|error| panic!("{error}"))
}

fn start(handle: &mut RunHandle) {
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, EVENTS)));
}

/// Returns the fragments of each event, in the order of ids.
fn written(summary: &RunSummary) -> Vec<Vec<Vec<u8>>> {
    let index = RunIndex::build(&[&summary.directory]).expect("the files are whole");
    let (mut reader, mut events) = (index.reader(), Vec::new());
    while let Some(event) = reader.next_event().expect("it can be read") {
        assert_eq!(event.event.head().key.number(), events.len() as u64 + 1, "every event, in order");
        events.push(event.event.fragments().map(|fragment| fragment.payload.to_vec()).collect());
    }
    events
}

/// None of the addresses, files and programs exists, and none is needed.
#[test]
fn a_whole_setup_runs_without_a_single_board() {
    let output = TemporaryDirectory::new("emulated");
    let ways = [
        format!("connect = \"tcp://192.0.2.1:5000\"\n{DIGITISER}"),
        format!("listen = \"udp://192.0.2.2:9000\"\ndemux = {{ at = \"ip.source\", is = \"192.0.2.8\" }}\n{BOARD}"),
        format!("listen = \"udp://192.0.2.2:9000\"\ndemux = {{ at = \"ip.source\", is = \"192.0.2.9\" }}\n{BOARD}"),
        "listen = \"ip://192.0.2.3/253\"\nframe = \"datagram\"\nevent = { at = 0, type = \"u32le\" }".to_owned(),
        "input = \"/nowhere/events.txt\"\nframe = { delimiter = \"\\r\\n\", max = \"1KiB\" }".to_owned(),
        format!("listen = \"udp://192.0.2.2:19522\"\n{PIECES}"),
        "program = [\"/nowhere/read-out\"]\nframe = { fixed = \"48B\" }\nsequence = { at = 0, type = \"u32le\" }"
            .to_owned(),
        "listen = \"tcp://192.0.2.4:5000\"\nformat = \"generic\"".to_owned(),
        "format = \"ferol\"\nfirst = 17".to_owned(),
        "format = \"artdaq\"".to_owned(),
    ];
    let emulate = [
        "true",
        "true",
        "{ fragment_size = \"64\" }",
        "true",
        "{ fragment_size = \"uniform(16,800)\" }",
        "{ fragment_size = \"uniform(64,128KiB)\" }",
        "true",
        "{ fragment_size = \"16\" }",
        "true",
        "true",
    ];
    let sources: Vec<String> =
        ways.iter().zip(emulate).map(|(way, emulate)| format!("emulate = {emulate}\n{way}")).collect();
    let mut handle = launched(&output, &sources);
    start(&mut handle);
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    assert_eq!((summary.events.written, summary.fragments.counts.get(Counter::CrcErrors)), (EVENTS, 0));
    let events = written(&summary);
    assert_eq!(events.len() as u64, EVENTS);
    for (event, number) in events.iter().zip(1_u32..) {
        assert_eq!(event.len(), 10);
        let word =
            |fragment: usize, at: usize| u32::from_le_bytes(event[fragment][at..at + 4].try_into().expect("four"));
        let big = |fragment: usize, at: usize| word(fragment, at).swap_bytes();
        assert_eq!((word(0, 0) & 0xfff_ffff, word(0, 8) & 0xff_ffff), (512, number), "2 KiB in words of 4 bytes");
        // A trigger's time is the same for all, each in its own ticks.
        let nanoseconds = 1000 * number;
        assert_eq!((word(0, 12) & 0x7fff_ffff, big(1, 12)), (nanoseconds / 8, nanoseconds));
        assert_eq!((&event[1][..2], big(1, 2), event[1].len()), (&b"RB"[..], number + 6, 1024));
        assert_eq!((big(2, 2), event[2].len()), (number + 6, 64));
        assert_eq!(word(3, 0), number);
        assert!(event[4].ends_with(b"\r\n") && event[4].len() >= 16, "{:?}", event[4]);
        assert_eq!(big(5, 16), number - 1);
        assert_eq!((word(6, 0), event[6].len()), (number, 48));
        assert_eq!(word(8, 4) & 0xff_ffff, number + 16);
    }
    let longest = events.iter().map(|event| event[5].len()).max();
    assert!(longest > Some(65_536), "longer than a datagram: {longest:?}");
}

/// The first real board beside two that do not exist yet.
#[test]
fn real_boards_come_in_one_by_one() {
    let output = TemporaryDirectory::new("emulated-one-real");
    let emulated = "emulate = { rate = \"2kHz\" }\nlisten = \"udp://192.0.2.2:9000\"\ndemux = { at = \"ip.source\" }\n";
    let sources = [
        format!("listen = \"tcp://127.0.0.1:0\"\n{DIGITISER}"),
        format!("{emulated}{BOARD}"),
        format!("{emulated}{BOARD}"),
    ];
    let mut handle = launched(&output, &sources);
    let address = handle.addresses().iter().find(|(name, _)| name == "board1").expect("it listens").1.clone();
    let mut digitiser = TcpStream::connect(address).expect("it listens");
    start(&mut handle);
    wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
    for event in 1..=EVENTS as u32 {
        let frame = [0xa000_0005_u32, 0, event, 125 * event, 9].map(u32::to_le_bytes).concat();
        digitiser.write_all(&frame).expect("it is read");
    }
    let summary = Run { handle }.end();
    assert!(summary.is_lossless(), "{summary:#?}");
    let events = written(&summary);
    assert_eq!(events.len() as u64, EVENTS);
    for (event, number) in events.iter().zip(1_u32..) {
        let lengths: Vec<usize> = event.iter().map(Vec::len).collect();
        assert_eq!((lengths, &event[0][8..12]), (vec![20, 1024, 1024], &number.to_le_bytes()[..]));
    }
}

/// Every named format, as in files or connections, or as datagrams if it has no other transport.
#[test]
fn every_named_format_is_emulated() {
    // FEROL blocks are what `format = "ferol"` emulates anyway; multi-event packets belong to push systems.
    let elsewhere = [ForeignFormat::Ferol, ForeignFormat::LhcbMep];
    for format in ForeignFormat::ALL.iter().filter(|format| !elsewhere.contains(format)) {
        let name = format.name();
        let output = TemporaryDirectory::new(&format!("emulated-{name}"));
        let keys = format!("emulate = {{ fragment_size = \"uniform(160,4000)\" }}\nformat = {name:?}");
        let mut handle = launched(&output, &[keys.clone(), keys]);
        handle.start(EventKey::new(0, 1), None);
        // On a busy machine all fragments are in sockets before the nodes have begun. A stop would then end a run
        // without events.
        wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
        wait_for("the last trigger", || handle.sources_ended().then_some(()));
        handle.stop();
        let summary = Run { handle }.end();
        assert!(summary.is_balanced(), "{name}: {summary:#?}");
        let counts = (summary.events.built, summary.events.incomplete_emitted);
        assert_eq!(counts, (EVENTS, 0), "{name}: {summary:#?}");
        assert_eq!(summary.fragments.counts.get(Counter::CrcErrors), 0, "{name}");
        let mean = summary.bytes.payload_received / 2 / EVENTS;
        assert!((1500..2300).contains(&mean), "{name}: {mean} bytes on average");
    }
}

// ---- the first example of docs/configuration.md

#[test]
fn the_first_block_of_the_page_runs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let (_, rest) = page.split_once("```toml\n").expect("there is a block");
    let (block, _) = rest.split_once("```").expect("a block has an end");
    let directory = TemporaryDirectory::new("documentation");
    let mut configuration =
        parse("docs/configuration.md", block, &|_| None).unwrap_or_else(|error| panic!("{error}\n{block}"));
    configuration.run.output = directory.path().to_owned();
    let events = configuration.run.events.expect("it ends by itself");
    let mut handle = launch(&configuration, Some(events)).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, events)));
    assert_eq!(Run { handle }.end().events.written, events);
}
