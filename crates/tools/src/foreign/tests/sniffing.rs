//! What unknown frames mean: out of captures, the real ones among them, and from a port; and drafts that are configurations.
//! Layouts and formats tried on captures and files.

use super::*;
use ropewalk_config::{Configuration, parse, read};
use ropewalk_flow::choosing::Wanted;
use ropewalk_flow::readout::DatagramLimits;
use ropewalk_flow::sniff::{Findings, Group, Meaning};
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

/// The only group of what was found.
fn only(findings: Findings) -> Group {
    assert_eq!(findings.groups.len(), 1, "{findings:#?}");
    findings.groups.into_iter().next().expect("there is one")
}

/// The counters of frames: their places and widths.
fn counters(group: &Group) -> Vec<(i32, u8, bool)> {
    let counters = group.guesses.iter().filter_map(|guess| match guess.meaning {
        Meaning::FrameCounter { number, .. } => Some((number.at, number.bytes, number.is_big_endian)),
        _ => None,
    });
    counters.collect()
}

/// Fails unless the draft, beside the other half of a configuration, is a good one.
fn expect_configuration(group: &Group) -> String {
    let draft =
        drafts(std::slice::from_ref(group), "board.raw", &Naming::default()).remove(0).expect("frames were found");
    let text = format!("version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n{draft}");
    let parsed = parse("draft.toml", &text, &|_| None);
    assert!(parsed.is_ok(), "{}\n{text}", parsed.expect_err("it was refused"));
    draft
}

/// A file of this test's own that is removed again.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("ropewalk-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).expect("a file can be written");
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What is not there any more need not be removed.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What a board at this address sends: its letters, a counter, a clock that goes on by 125,000, its number.
fn board(last: u8, number: u32) -> Vec<u8> {
    let mut payload = b"BOARD1".to_vec();
    payload.extend_from_slice(&number.to_le_bytes());
    payload.extend_from_slice(&(125_000 * number).to_be_bytes());
    payload.push(last);
    udp(host(last, 9000), 9001, &payload)
}

#[test]
fn drafts_of_the_real_captures_are_configurations() {
    let test = "foreign::tests::sniffing::drafts_of_the_real_captures_are_configurations";
    let Some(directory) = ropewalk_tidy::real_data(test, "vmm") else { return };
    let found = only(sniff_file(&directory.join("example_LET.pcapng")).expect("it can be read").findings);
    assert_eq!((found.peers.len(), counters(&found)), (2, vec![(26, 4, false)]));
    let draft = expect_configuration(&found);
    for line in [
        "listen = \"udp://0.0.0.0:9000\"",
        "match = { at = 2, bytes = \"ESS0\" }",
        "demux = { at = \"ip.source\", is = [\"192.168.10.2\", \"127.0.0.2\"] }",
        "event = { at = 26, type = \"u32le\" }",
        "seconds = { at = 10, type = \"u32le\" }",
    ] {
        assert!(draft.contains(line), "{line}: {draft}");
    }
    let found = only(sniff_file(&directory.join("example_xyu.pcapng")).expect("it can be read").findings);
    assert_eq!((found.peers.len(), counters(&found)), (2, vec![(0, 4, true)]));
    let draft = expect_configuration(&found);
    assert!(draft.contains("bytes = \"VM3\"") && draft.contains("at = 8, type = \"u32be\", tick = \"22."), "{draft}");
}

#[test]
fn a_draft_is_a_configuration_with_a_source_for_each_board() {
    let packets: Vec<_> = (0..50).flat_map(|number| [1, 2].map(|last| board(last, number))).collect();
    let file = Temporary::new("draft.pcapng", &capture(&packets));
    let found = only(sniff_file(&file.0).expect("it can be read").findings);
    let draft = expect_configuration(&found);
    assert_eq!(draft.matches("[[source]]").count(), 2, "{draft}");
    assert!(draft.contains("sequence = { at = 6, type = \"u32le\" }"), "{draft}");
}

/// A board that was cut off in the middle of a frame comes again, from another port and from the same; and one of another kind
/// sends to the same port.
#[test]
fn all_connections_of_a_capture_are_looked_at() {
    let frames = |first: u32, word: [u8; 4]| -> Vec<u8> {
        let frame = |number: u32| {
            let body = vec![number as u8 ^ 0x5a; 10 + (number * 7 % 31) as usize];
            [&word[..], &(12 + body.len() as u32).to_be_bytes(), &number.to_be_bytes(), &body].concat()
        };
        (first..first + 60).flat_map(frame).collect()
    };
    let sent = |from: SocketAddrV4, at: u32, bytes: &[u8]| -> Vec<Vec<u8>> {
        bytes.chunks(50).zip((at..).step_by(50)).map(|(part, at)| tcp(from, at, part)).collect()
    };
    let begins = |from: SocketAddrV4, at: u32| {
        let mut packet = tcp(from, at, &[]);
        packet[20 + 13] = 2;
        packet
    };
    let board = frames(1, [0xca, 0xfe, 0xf0, 0x0d]);
    let mut packets = sent(host(7, 99), 1, &board[..board.len() - 5]);
    packets.extend(sent(host(7, 100), 1, &board));
    packets.push(begins(host(7, 100), 77_777));
    packets.extend(sent(host(7, 100), 77_778, &frames(61, [0xca, 0xfe, 0xf0, 0x0d])));
    let text: Vec<u8> = (0..50).flat_map(|line| format!("channel {line} 17.25 V\r\n").into_bytes()).collect();
    packets.extend(sent(host(8, 99), 1, &text));
    let file = Temporary::new("connections.pcapng", &capture(&packets));
    let found = sniff_file(&file.0).expect("it can be read").findings.groups;
    let told: Vec<_> = found.iter().map(|group| (group.peers.len(), group.frames)).collect();
    assert_eq!(told, [(2, 59 + 60 + 60), (1, 50)], "{found:#?}");
    assert_eq!(counters(&found[0]), [(8, 4, true)], "{found:#?}");
    let draft = expect_configuration(&found[0]);
    assert!(draft.contains("frame = { length = { at = 4, type = \"u32be\" }"), "{draft}");
    assert!(expect_configuration(&found[1]).contains("delimiter"), "{found:#?}");
}

/// Records as a hydrophone's are stored: their length, a word, and a number of the part that begins anew with each interval.
#[test]
fn a_plain_file_is_cut_to_its_last_byte() {
    let error = sniff_file(Path::new("no-such-file")).expect_err("it is not there").to_string();
    assert!(error.contains("no-such-file"), "{error}");
    let record = |index: u32| {
        let samples = if index % 9 == 8 { 1664 } else { 2230 };
        let mut record =
            [b"TAES", &[0; 4][..], &(index % 9).to_be_bytes(), &(1_706_783_280 + index / 9).to_be_bytes()].concat();
        record.extend((0..samples).flat_map(|at: u32| (at.wrapping_mul(index + 7) % 977).to_be_bytes()));
        [&(record.len() as u32).to_le_bytes()[..], &record].concat()
    };
    let bytes: Vec<u8> = (0..129).flat_map(record).collect();
    for (file, frames, left) in
        [(bytes.clone(), 129, 0), (bytes[..bytes.len() - 1000].to_vec(), 128, record(128).len() - 1000)]
    {
        let file = Temporary::new("sniffing-plain", &file);
        let group = only(sniff_file(&file.0).expect("it can be read").findings);
        assert_eq!((group.frames, group.unframed_bytes), (frames, left as u64), "{:#?}", group.framing);
        let draft = expect_configuration(&group);
        assert!(draft.contains("length = { at = 0, type = \"u32le\", counts = \"after-field\" }"), "{draft}");
        assert!(draft.contains("bytes = \"TAES\"") && draft.contains("input = \"board.raw\""), "{draft}");
        assert!(!draft.contains("\nevent = ") || draft.contains("# Not certain"), "{draft}");
    }
}

/// Boards of two ports: together their drafts are one configuration.
#[test]
fn drafts_of_two_groups_have_different_names() {
    let to = |port: u16, number: u32| udp(host(1, 8000), port, &[&b"BOARD"[..], &number.to_be_bytes()].concat());
    let packets: Vec<_> = (0..50).flat_map(|number| [to(9001, number), to(9002, number)]).collect();
    let file = Temporary::new("sniffing-names.pcapng", &capture(&packets));
    let groups = sniff_file(&file.0).expect("it can be read").findings.groups;
    let drafts: String = drafts(&groups, "boards.pcapng", &Naming::default())
        .into_iter()
        .map(|draft| draft.expect("frames were found"))
        .collect();
    assert!(drafts.contains("name = \"board-1\"\nid = 1") && drafts.contains("name = \"board-2\"\nid = 2"), "{drafts}");
    let text = format!("version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n{drafts}");
    let parsed = parse("draft.toml", &text, &|_| None);
    assert!(parsed.is_ok(), "{}\n{text}", parsed.expect_err("it was refused"));
}

#[test]
fn what_comes_to_a_port_is_looked_at_and_saved() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let target = socket.local_addr().expect("it is bound");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    // Datagrams sent before the first read wait in the socket's queue.
    for number in 0..50_u32 {
        sender.send_to(&[&b"BOARD1"[..], &number.to_be_bytes(), b"\xFF"].concat(), target).expect("it is sent");
    }
    let save = Temporary::new("sniffing.pcapng", b"");
    let found = only(sniff_datagrams(&socket, Duration::from_millis(300), Some(&save.0)).expect("it can be received"));
    assert_eq!((found.peers[0].peer.port, found.peers[0].packets), (target.port(), 50));
    assert_eq!(counters(&found), [(6, 4, true)]);
    let saved = only(sniff_file(&save.0).expect("it was saved").findings);
    assert_eq!((saved.peers[0].packets, counters(&saved)), (50, counters(&found)));
}

#[test]
fn frames_are_found_in_what_a_connection_sends_and_its_bytes_are_saved() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut sender = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
    let frames: Vec<u8> = (0..100_u32)
        .flat_map(|number| {
            let body = vec![number as u8 ^ 0x5a; 10 + (number * 7 % 31) as usize];
            let length = 12 + body.len() as u32;
            [[0xca, 0xfe, 0xf0, 0x0d], length.to_be_bytes(), number.to_be_bytes()].concat().into_iter().chain(body)
        })
        .collect();
    sender.write_all(&frames).expect("the socket has room");
    let save = Temporary::new("sniffing.bin", b"");
    let found =
        only(sniff_connections(&listener, Duration::from_millis(300), Some(&save.0)).expect("it can be received"));
    assert_eq!((found.frames, counters(&found)), (100, vec![(8, 4, true)]), "{found:#?}");
    let draft = expect_configuration(&found);
    assert!(draft.contains("frame = { length = { at = 4, type = \"u32be\" }"), "{draft}");
    assert_eq!(std::fs::read(&save.0).expect("it was saved"), frames);
}

/// A configuration with one source of these keys, in a directory of its own.
struct Tried {
    directory: PathBuf,
    configuration: Configuration,
}

impl Tried {
    fn new(name: &str, keys: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("ropewalk-trying-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        let file = directory.join("board.toml");
        let text = format!(
            "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nreadout = \"ru0\"\n{keys}"
        );
        std::fs::write(&file, text).expect("a file can be written");
        let configuration = read(&file).unwrap_or_else(|error| panic!("{error}"));
        Self { directory, configuration }
    }

    fn config(&self) -> PathBuf {
        self.directory.join("board.toml")
    }

    fn on(&self, input: &Path) -> Result<TrialReport, OfflineError> {
        self.on_port(9000, input)
    }

    fn on_port(&self, port: u16, input: &Path) -> Result<TrialReport, OfflineError> {
        let framing = self.configuration.source[0].framing().expect("it describes its frames");
        let wanted = Wanted::port(Some(port));
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
            &self.config(),
            "source[0]",
        )
    }

    fn on_bytes(&self, bytes: &[u8]) -> Result<TrialReport, OfflineError> {
        let file = self.directory.join("input");
        std::fs::write(&file, bytes).expect("a file can be written");
        self.on(&file)
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        // What is not there any more need not be removed.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

const READOUT: &str = "listen = \"udp://0.0.0.0:9000\"\nframe = \"datagram\"\nmatch = { at = 2, bytes = \"ESS\" }\n\
                       demux = { at = \"ip.source\" }\nsequence = { at = 26, type = \"u32le\" }\n\
                       time = { at = 14, type = \"u32le\", tick = \"88.0525MHz\", seconds = { at = 10, type = \"u32le\" } }\n";

#[test]
fn the_layout_of_the_real_readout_fits_its_capture() {
    let test = "foreign::tests::trying::the_layout_of_the_real_readout_fits_its_capture";
    let Some(directory) = ropewalk_tidy::real_data(test, "vmm") else { return };
    let report = Tried::new("readout", READOUT).on(&directory.join("example_LET.pcapng")).expect("it can be read");
    assert!(report.is_intact() && report.is_complete() && report.first_bad.is_none(), "{report:#?}");
    assert_eq!((report.frames, report.boards.len()), (200, 2));
    for board in &report.boards {
        let sequence = board.sequence.expect("it has numbers");
        assert_eq!((sequence.first, sequence.last, board.frames), (943_997, 944_096, 100), "{board:?}");
        // 14 Hz: all of them 71.4 ms apart.
        let steps: Vec<_> = board.intervals.iter().map(|step| (step.from_ns, step.count)).collect();
        assert_eq!(steps, [(50_000_000, 99)], "{board:?}");
    }
}

#[test]
fn a_rule_that_fails_is_named_with_its_line() {
    let tried = Tried::new("rule", READOUT);
    let payload = |sequence: u32, magic: &[u8]| {
        let mut bytes = vec![0; 40];
        bytes[2..5].copy_from_slice(magic);
        bytes[26..30].copy_from_slice(&sequence.to_le_bytes());
        bytes
    };
    let packets: Vec<_> = [(5, b"ESS"), (6, b"ESS"), (9, b"ESS"), (10, b"OSS")]
        .map(|(sequence, magic)| udp(host(1, 8999), 9000, &payload(sequence, magic)))
        .into_iter()
        .chain([udp(host(1, 8999), 1234, b"of another port")])
        .collect();
    let report = tried.on_bytes(&capture(&packets)).expect("it can be read");
    assert_eq!((report.frames, report.bad_places, report.aside.get("other_port")), (3, 2, Some(&1)), "{report:#?}");
    assert_eq!(report.faults.get("not_matched"), Some(&1), "{report:#?}");
    let bad = report.first_bad.expect("two are missing");
    assert_eq!((bad.key, bad.offset, bad.line), ("sequence", 2, 13), "{bad:?}");
    let rule = rule_of(&tried.config(), "source[0]", &bad.place).to_string();
    assert!(rule.contains("9 comes after 6: 2 missing") && rule.contains("\n 13 | sequence = "), "{rule}");
}

#[test]
fn a_stream_is_tried_and_a_layout_of_datagrams_needs_a_capture() {
    let keys = "connect = \"tcp://board:5000\"\nframe = { length = { at = 0, type = \"u16be\" }, max = \"1KiB\" }\nevent = { at = 2, type = \"u16be\" }\n";
    let tried = Tried::new("stream", keys);
    let frames: Vec<u8> = (65_530..65_630_u32)
        .flat_map(|number| [&[0, 8][..], &(number as u16).to_be_bytes(), &[1; 4]].concat())
        .collect();
    let report = tried.on_bytes(&frames).expect("it can be read");
    let event = report.boards[0].event.expect("it has numbers");
    assert_eq!((report.frames, event.wraps, event.missing), (100, 1, 0), "{report:#?}");
    let report = tried.on_bytes(&frames[..797]).expect("it can be read");
    assert_eq!((report.frames, report.left_over_bytes, report.is_intact()), (99, 5, false), "{report:#?}");
    let error = Tried::new("datagrams", READOUT).on_bytes(b"no capture").expect_err("a plain file").to_string();
    assert!(error.contains("capture"), "{error}");
}

#[test]
fn formats_with_a_name_are_tried_as_layouts_are() {
    let fed = |source, event| ForeignFormat::Fed.emulate(source, event, &[7; 40]).expect("it is short").concat();
    let tried = Tried::new("fed", "format = \"fed\"\ninput = \"slink.raw\"\n");
    let mut file: Vec<u8> = (1..=20).flat_map(|event| fed(1, event)).collect();
    let report = tried.on_bytes(&file).expect("it can be read");
    assert!(report.is_intact() && report.is_complete() && report.checksums() == (20, 0), "{report:#?}");
    file[fed(1, 1).len() + 12] ^= 1;
    let report = tried.on_bytes(&file).expect("it can be read");
    assert_eq!(report.checksums(), (19, 1), "{report:#?}");
    let bad = report.first_bad.expect("one is wrong");
    assert_eq!((bad.key, bad.offset, bad.line), ("format", fed(1, 1).len() as u64, 9), "{bad:?}");
    // Nothing else in a file of FEROL blocks says that it is one: it is what a source is that says nothing.
    let blocks =
        (1..=20).flat_map(|event| ForeignFormat::Ferol.emulate(1, event, &[7; 40]).expect("it is short").concat());
    let report = Tried::new("ferol", "").on_bytes(&blocks.collect::<Vec<u8>>()).expect("it can be read");
    assert!(report.is_intact() && report.is_complete() && report.frames == 20, "{report:#?}");
    let error = Tried::new("srs", "format = \"srs\"\nlisten = \"udp://0.0.0.0:9000\"\n").on_bytes(&file);
    assert!(error.expect_err("a plain file").to_string().contains("srs"));
}

impl TrialReport {
    fn checksums(&self) -> (u64, u64) {
        let sum = |of: fn(&ChecksumsReport) -> u64| self.boards.iter().map(|board| of(&board.checksums)).sum();
        (sum(|it| it.right), sum(|it| it.wrong))
    }
}

#[test]
fn formats_come_in_datagrams_or_in_connections_whichever_the_capture_has() {
    let mep = |event| ForeignFormat::LhcbMep.emulate(7, event, &[1; 40]).expect("it is short").concat();
    let packets: Vec<_> = (1..=10).map(|event| udp(host(1, 8999), 9000, &mep(event))).collect();
    let tried = Tried::new("mep", "format = \"lhcb-mep\"\nlisten = \"udp://0.0.0.0:9000\"\n");
    let report = tried.on_bytes(&capture(&packets)).expect("it can be read");
    assert!(report.is_intact() && report.is_complete() && report.datagrams == 10, "{report:#?}");
    let bytes: Vec<u8> = (1..=10).flat_map(mep).collect();
    let parts = bytes.chunks(31).zip((1..).step_by(31));
    let connection: Vec<_> = parts.map(|(part, at)| tcp(host(1, 8999), at, part)).collect();
    let file = tried.directory.join("connection");
    std::fs::write(&file, capture(&connection)).expect("a file can be written");
    let report = tried.on_port(5000, &file).expect("it can be read");
    assert!(report.is_intact() && report.is_complete() && (report.datagrams, report.frames) == (0, 10), "{report:#?}");
}
