//! The example senders in C and in Python: they send the same bytes, in the documented format.

use ropewalk_terms::SourceId;
use ropewalk_wire::generic::{Flags, Header, Hello, HelloFlags, encode};
use std::{
    io::Read,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread::sleep,
    time::{Duration, SystemTime},
};

fn senders() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/senders")
}

/// Whether this program can be run; otherwise that part of `test` is skipped.
fn is_there(program: &str, test: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        ropewalk_tidy::skipped(test, &format!("{program} is not installed"));
    }
    found.is_ok()
}

/// The C sender, compiled once.
fn c_sender() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    Command::new(PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("example_sender");
        let flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-o"];
        let source = senders().join("example_sender.c");
        let status = Command::new("cc").args(flags).arg(&program).arg(source).status().expect("cc is there");
        assert!(status.success(), "the C sender does not compile");
        program
    }))
}

fn python_sender() -> Command {
    let mut command = Command::new("python3");
    command.arg(senders().join("ropewalk_sender.py"));
    command
}

type Sender = fn() -> Command;

/// The senders that can run here; the others' part of `test` is skipped.
fn senders_here(test: &str) -> Vec<Sender> {
    let all: [(&str, Sender); 2] = [("cc", c_sender), ("python3", python_sender)];
    all.into_iter().filter(|(program, _)| is_there(program, test)).map(|(_, sender)| sender).collect()
}

/// The output of a sender with these arguments.
fn sent_by(mut sender: Command, arguments: &[&str]) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    listener.set_nonblocking(true).expect("a plain socket");
    let mut child = sender.args(["--to", &address]).args(arguments).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut connection = loop {
        match listener.accept() {
            Ok((connection, _)) => break connection,
            Err(_) if child.try_wait().expect("it is ours").is_none() => sleep(Duration::from_millis(1)),
            Err(error) => panic!("the sender ended without connecting: {error}"),
        }
    };
    connection.set_nonblocking(false).expect("a plain socket");
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).expect("the sender closes its connection in order");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    bytes
}

struct Case {
    arguments: &'static [&'static str],
    source: u32,
    name: &'static str,
    /// Event numbers in order, and the index of the one with the resync flag.
    numbers: &'static [u64],
    resync: Option<usize>,
    size: usize,
    clock_step: u64,
}

const CASES: [Case; 3] = [
    Case {
        arguments: &["--source", "1", "--events", "5", "--rate", "1000", "--clock-step", "10"],
        source: 1,
        name: "example",
        numbers: &[1, 2, 3, 4, 5],
        resync: None,
        size: 1024,
        clock_step: 10,
    },
    Case {
        arguments: &[
            "--source",
            "4294967295",
            "--name",
            "caf\u{e9}",
            "--events",
            "5",
            "--rate",
            "0",
            "--size",
            "100000",
            "--first",
            "254",
            "--resync-after",
            "3",
            "--clock-step",
            "1000000000",
        ],
        source: u32::MAX,
        name: "caf\u{e9}",
        numbers: &[254, 255, 256, 254, 255],
        resync: Some(3),
        size: 100_000,
        clock_step: 1_000_000_000,
    },
    Case {
        arguments: &["--events", "2", "--rate", "0", "--size", "0", "--clock-step", "1", "--first", "0"],
        source: 1,
        name: "example",
        numbers: &[0, 1],
        resync: None,
        size: 0,
        clock_step: 1,
    },
];

impl Case {
    fn expected(&self) -> Vec<u8> {
        let source = SourceId(self.source);
        let hello = Hello::new(source, HelloFlags::default(), self.name).expect("a short name");
        let mut bytes = hello.to_bytes().to_vec();
        for (index, &event_number) in self.numbers.iter().enumerate() {
            let flags = if self.resync == Some(index) { Flags::RESYNC } else { Flags::default() };
            let timestamp = index as u64 * self.clock_step;
            let header = Header { source, flags, event_number, timestamp, payload_bytes: 0 };
            let payload: Vec<u8> = (0..self.size as u64).map(|byte| (event_number + byte) as u8).collect();
            encode(&header, &payload, &mut bytes).expect("a short payload");
        }
        bytes
    }
}

#[test]
fn senders_send_what_the_format_says() {
    for sender in senders_here("senders_send_what_the_format_says") {
        for case in CASES {
            assert!(sent_by(sender(), case.arguments) == case.expected(), "{:?} {:?}", sender(), case.arguments);
        }
    }
}

#[test]
fn timestamps_tell_the_time_by_default() {
    for sender in senders_here("timestamps_tell_the_time_by_default") {
        let bytes = sent_by(sender(), &["--events", "1"]);
        let (hello, rest) = bytes.split_first_chunk().expect("a hello");
        assert!(Hello::parse(hello).expect("a hello").flags.has_utc());
        let header = Header::parse(rest.first_chunk().expect("a header")).expect("a header");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        assert!(now.as_nanos().abs_diff(u128::from(header.timestamp)) < 3_600_000_000_000);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    for sender in senders_here("wrong_arguments_are_refused") {
        for arguments in [["--source", "-1"], ["--rate", "fast"], ["--colour", "red"], ["--to", "nowhere"]] {
            let output = sender().args(arguments).output().expect("it runs");
            assert_eq!(output.status.code(), Some(2), "{:?} {arguments:?}", sender());
            assert!(String::from_utf8_lossy(&output.stderr).contains("usage"));
        }
    }
}
