//! Black boxes in whole runs: the data that a board sent before a fault is saved, and shows the same fault again.

use crate::support::{Run, TemporaryDirectory, wait_for};
use ropewalk_config::{Configuration, read};
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::readout::DatagramLimits;
use ropewalk_run::{RunHandle, RunSummary, launch};
use ropewalk_terms::{Counter, EventKey, SourceId};
use ropewalk_tools::foreign::{TrialOptions, TrialReport, try_layout};
use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};

/// Frames of a stream that can be found again, and datagrams, both with a checksum at their end.
const STREAM: &str = "listen = \"tcp://127.0.0.1:0\"\nframe.sync = [0xca, 0xfe]\n\
                      frame.length = { at = 2, type = \"u16be\" }\nevent = { at = 4, type = \"u32be\" }\n\
                      checksum = { kind = \"sum32be\", at = -4, type = \"u32be\" }";
const DATAGRAMS: &str = "listen = \"udp://127.0.0.1:0\"\nframe = \"datagram\"\nmatch = { at = 0, bytes = [0xca, 0xfe] }\n\
                         event = { at = 4, type = \"u32be\" }\nchecksum = { kind = \"sum32be\", at = -4, type = \"u32be\" }";
/// Without a sync word: a wrong length ends the connection.
const LENGTHS: &str = "listen = \"tcp://127.0.0.1:0\"\nframe.length = { at = 2, type = \"u16be\" }\n\
                       event = { at = 4, type = \"u32be\" }\nchecksum = { kind = \"sum32be\", at = -4, type = \"u32be\" }";

/// Frames have 100 bytes; of the last 4 KiB, 40 frames are kept whole.
const FRAME_BYTES: usize = 100;

fn frame(event: u32) -> Vec<u8> {
    let mut frame = [&[0xca, 0xfe, 0, FRAME_BYTES as u8][..], &event.to_be_bytes()].concat();
    frame.resize(FRAME_BYTES - 4, event as u8);
    let words = frame.chunks(4).map(|word| u32::from_be_bytes(word.try_into().expect("whole words")));
    let sum = words.fold(0_u32, u32::wrapping_add);
    [frame, sum.to_be_bytes().to_vec()].concat()
}

struct Scene {
    handle: RunHandle,
    configuration: Configuration,
    file: PathBuf,
    _directory: TemporaryDirectory,
}

impl Scene {
    fn new(name: &str, layout: &str) -> Self {
        let directory = TemporaryDirectory::new(name);
        let text = format!(
            "version = 1\n[run]\noutput = {:?}\n[timeouts]\nreadout = \"300ms\"\n[[readout]]\nname = \"ru0\"\n[[builder]]\n\
             name = \"bu0\"\n[[source]]\nid = 1\nname = \"board\"\nreadout = \"ru0\"\nmax_fragment = \"1KiB\"\n\
             black_box = {{ last = \"10s\", max = \"4KiB\" }}\n{layout}\n",
            directory.path().display().to_string()
        );
        let file = directory.path().join("board.toml");
        std::fs::write(&file, text).expect("the directory is ours");
        let configuration = read(&file).unwrap_or_else(|error| panic!("{error}"));
        let mut handle = launch(&configuration, None).unwrap_or_else(|error| panic!("{error}"));
        handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 200)));
        wait_for("the start", || (handle.snapshot().phase == RunPhase::Running).then_some(()));
        Self { handle, configuration, file, _directory: directory }
    }

    fn address(&self) -> &str {
        &self.handle.addresses().iter().find(|(name, _)| name == "board").expect("it listens").1
    }

    /// Sends these events as separate arrivals; `change` modifies the bytes of each.
    fn send(&self, events: std::ops::RangeInclusive<u32>, to: &mut impl FnMut(&[u8]), change: impl Fn(&mut Vec<u8>)) {
        for event in events {
            let mut bytes = frame(event);
            change(&mut bytes);
            to(&bytes);
            let has_come =
                || self.handle.snapshot().sources.get(&SourceId(1)).is_some_and(|it| it.received >= event.into());
            if event.is_multiple_of(20) {
                wait_for("what was sent", || has_come().then_some(()));
            }
        }
    }

    fn end(self) -> (RunSummary, Vec<PathBuf>, Configuration, PathBuf, TemporaryDirectory) {
        let summary = Run { handle: self.handle }.end();
        let saved = std::fs::read_dir(summary.directory.join("black-box"))
            .map_or_else(|_| Vec::new(), |files| files.map(|file| file.expect("it can be read").path()).collect());
        (summary, saved, self.configuration, self.file, self._directory)
    }
}

fn tried(configuration: &Configuration, config: &Path, input: &Path) -> TrialReport {
    let source = &configuration.source[0];
    let framing = source.framing().expect("it describes its frames");
    let wanted = source.wanted();
    try_layout(
        &TrialOptions {
            framing: &framing,
            gathers: false,
            grows: false,
            bits: 64,
            limits: DatagramLimits::USUAL,
            own: None,
            input,
            wanted: &wanted,
        },
        None,
        config,
        "source[0]",
    )
    .expect("it can be read")
}

fn name(file: &Path) -> String {
    file.file_name().expect("a file").to_string_lossy().into_owned()
}

#[test]
fn a_corrupt_frame_of_a_stream_is_saved_with_what_came_before_it() {
    let scene = Scene::new("black-box-stream", STREAM);
    let mut board = TcpStream::connect(scene.address()).expect("it listens");
    let mut to = |bytes: &[u8]| board.write_all(bytes).expect("it is read");
    scene.send(1..=130, &mut to, |_| {});
    scene.send(131..=131, &mut to, |bytes| bytes[50] ^= 4);
    scene.send(132..=200, &mut to, |_| {});
    let (summary, saved, configuration, file, _directory) = scene.end();
    assert_eq!((summary.events.written, summary.fragments.counts.get(Counter::CrcErrors)), (200, 1), "{summary:#?}");
    assert_eq!(saved.iter().map(|file| name(file)).collect::<Vec<_>>(), ["board-1-crc_error.raw"]);
    assert!(summary.warnings[0].contains("board: crc_error; what came in the "), "{:?}", summary.warnings);
    let report = tried(&configuration, &file, &saved[0]);
    let bad = report.first_bad.as_ref().expect("it is in there");
    assert_eq!((bad.key, report.bad_places, report.boards[0].checksums.wrong), ("checksum", 1, 1), "{report:#?}");
    // It begins with a frame, and contains as many whole arrivals as fit: if the socket was not read for a while, up to
    // 20 events came in one arrival.
    assert!(report.skipped_bytes == 0 && (21..=41).contains(&report.frames), "{report:#?}");
    let event = report.boards[0].event.expect("it has numbers");
    assert!(event.first < 131 && event.last >= 131 && event.missing == 0, "{event:?}");
}

#[test]
fn a_corrupt_datagram_is_saved_as_a_capture() {
    datagram_is_saved("127.0.0.1:0");
}

#[test]
fn a_corrupt_datagram_of_ipv6_is_saved_as_a_capture() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return ropewalk_tidy::skipped("black_box::a_corrupt_datagram_of_ipv6", "this machine has no IPv6");
    }
    datagram_is_saved("[::1]:0");
}

fn datagram_is_saved(here: &str) {
    let scene = Scene::new("black-box-datagram", &DATAGRAMS.replace("127.0.0.1:0", here));
    let (board, address) = (UdpSocket::bind(here).expect("a port"), scene.address().to_owned());
    let mut to = |bytes: &[u8]| {
        board.send_to(bytes, &address).expect("it is sent");
    };
    scene.send(1..=130, &mut to, |_| {});
    scene.send(131..=131, &mut to, |bytes| bytes[50] ^= 4);
    scene.send(132..=200, &mut to, |_| {});
    let (summary, saved, configuration, file, _directory) = scene.end();
    assert_eq!((summary.events.written, summary.fragments.counts.get(Counter::CrcErrors)), (200, 1), "{summary:#?}");
    assert_eq!(saved.iter().map(|file| name(file)).collect::<Vec<_>>(), ["board-1-crc_error.pcapng"]);
    let report = tried(&configuration, &file, &saved[0]);
    let bad = report.first_bad.as_ref().expect("it is in there");
    assert_eq!((bad.key, report.bad_places, report.boards.len()), ("checksum", 1, 1), "{report:#?}");
    assert!(report.aside.is_empty() && (30..=40).contains(&report.frames), "{report:#?}");
    let event = report.boards[0].event.expect("it has numbers");
    assert!(event.first < 131 && event.last >= 131 && event.missing == 0, "{event:?}");
    // The sender's address is in the report as well.
    let from = board.local_addr().expect("it is bound").ip().to_string();
    assert_eq!(report.boards[0].board, from);
}

#[test]
fn a_length_that_leads_nowhere_is_the_last_thing_that_is_saved() {
    let scene = Scene::new("black-box-length", LENGTHS);
    let mut board = TcpStream::connect(scene.address()).expect("it listens");
    let mut to = |bytes: &[u8]| board.write_all(bytes).expect("it is read");
    scene.send(1..=140, &mut to, |_| {});
    let mut lost = frame(141);
    lost[2..4].fill(0);
    to(&lost);
    let mut again = None;
    wait_for("the connection's end", || crate::support::is_closed(&board).then_some(()));
    let mut to = |bytes: &[u8]| {
        let board = again.get_or_insert_with(|| TcpStream::connect(scene.address()).expect("it listens"));
        board.write_all(bytes).expect("it is read");
    };
    for event in 142..=200 {
        to(&frame(event));
    }
    let (summary, saved, configuration, file, _directory) = scene.end();
    // The lost frame showed no event number.
    assert_eq!((summary.events.written, summary.events.incomplete_emitted), (199, 0), "{summary:#?}");
    assert_eq!(saved.len(), 1, "{saved:?}");
    let report = tried(&configuration, &file, &saved[0]);
    let bad = report.first_bad.as_ref().expect("it is in there");
    assert!(bad.key.starts_with("frame") && bad.offset.is_multiple_of(FRAME_BYTES as u64), "{report:#?}");
    let event = report.boards[0].event.expect("it has numbers");
    assert_eq!((event.last, event.missing), (140, 0), "{event:?}");
}

#[test]
fn a_good_board_leaves_nothing_behind() {
    let scene = Scene::new("black-box-good", STREAM);
    let mut board = TcpStream::connect(scene.address()).expect("it listens");
    scene.send(1..=200, &mut |bytes: &[u8]| board.write_all(bytes).expect("it is read"), |_| {});
    let (summary, saved, ..) = scene.end();
    assert!(summary.is_lossless() && saved.is_empty() && summary.warnings.is_empty(), "{summary:#?}");
}
