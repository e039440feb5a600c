//! Layouts and formats tried on captures and files.

use super::*;
use crate::configuration::{Configuration, read};
use ropewalk_flow::readout::DatagramLimits;
use std::path::PathBuf;

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
                limits: DatagramLimits::USUAL,
                own: None,
                input,
                wanted: &wanted,
            },
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
