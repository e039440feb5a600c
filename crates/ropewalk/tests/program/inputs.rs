//! Files in the place of sources, and of commands: what cannot be read, or only in part, is named and has a status.

use crate::process::{Ended, Program};
use crate::support::TemporaryDirectory;
use ropewalk_terms::Utc;
use ropewalk_wire::capture::{LinkType, encode_interface, encode_packet};
use ropewalk_wire::internet::{Ipv4Header, UDP_PROTOCOL, UdpHeader};
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const FRAMES: u32 = 400;

/// A frame: a word that all have, the event, and bytes that do not pack.
fn frame(event: u32) -> Vec<u8> {
    let noise = (0..500_u32).map(|index| (event.wrapping_mul(2_654_435_761).rotate_left(index) ^ index) as u8);
    [&b"RB"[..], &event.to_be_bytes()].concat().into_iter().chain(noise).collect()
}

/// Each frame as a datagram in a pcap file.
fn capture() -> Vec<u8> {
    let (from, to) =
        (SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 4000), SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 9000));
    let mut file = Vec::new();
    encode_interface(LinkType::RAW, &mut file);
    for event in 1..=FRAMES {
        let payload = frame(event);
        let mut datagram = vec![0; 8];
        UdpHeader { source: from, destination: to }.write([&payload[..]].into_iter(), &mut datagram).expect("it fits");
        datagram.extend_from_slice(&payload);
        let header = Ipv4Header::new(*from.ip(), *to.ip(), UDP_PROTOCOL);
        let mut packet = vec![0; header.byte_count()];
        header.write(datagram.len(), &mut packet).expect("it fits");
        packet.extend_from_slice(&datagram);
        encode_packet(Utc(i64::from(event) * 1_000_000), &packet, &mut file);
    }
    file
}

/// Packs as people do; none where the machine lacks the program.
fn packed_by(program: &str, options: &str, bytes: &[u8]) -> Option<Vec<u8>> {
    let child =
        Command::new(program).arg(options).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.ok()?;
    let (mut input, bytes) = (child.stdin.take().expect("it is piped"), bytes.to_vec());
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it only writes").expect("it is read");
    Some(output.stdout)
}

struct Case {
    directory: TemporaryDirectory,
}

impl Case {
    fn new(name: &str) -> Self {
        Self { directory: TemporaryDirectory::new(name) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        fs::write(self.path(name), bytes).expect("the directory is ours");
        self.path(name)
    }

    /// A configuration with one source of datagrams that is read from this file.
    fn configuration(&self, input: &Path) -> String {
        let output = self.path("runs");
        let text = format!(
            "version = 1\n[run]\noutput = {output:?}\nuntil_sources_end = true\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n\
             [[source]]\nid = 1\nname = \"board\"\nreadout = \"ru0\"\ninput = {input:?}\npackets = {{ port = 9000 }}\nframe = \"datagram\"\n\
             match = {{ at = 0, bytes = \"RB\" }}\nevent = {{ at = 2, type = \"u32be\", first = 1 }}\n"
        );
        self.write("c.toml", text.as_bytes()).display().to_string()
    }

    fn run(&self, input: &Path) -> Ended {
        Program::run(["run", &self.configuration(input), "--json"])
    }
}

#[test]
fn what_programs_packed_is_read_and_what_they_packed_and_somebody_cut_off_is_named() {
    let case = Case::new("inputs-packed");
    let capture = capture();
    // Blocks that are not much larger than the capture: so that one of them is whole.
    for (program, options) in [("gzip", "-c"), ("bzip2", "-1c"), ("xz", "-c"), ("zstd", "-c"), ("lz4", "-B4c")] {
        let Some(packed) = packed_by(program, options, &capture) else {
            ropewalk_tidy::skipped("inputs::what_programs_packed", &format!("there is no {program}"));
            continue;
        };
        let account = case.run(&case.write("whole", &packed)).expect_status(0).account();
        assert_eq!(account["events"]["written"], FRAMES, "{program}");
        let input = &account["inputs"][0];
        assert_eq!((&input["state"], &input["packing"]), (&"read".into(), &program.into()), "{program}: {input}");
        assert_eq!((&input["bytes"], &input["packets"]), (&capture.len().into(), &FRAMES.into()), "{program}: {input}");

        let ended = case.run(&case.write("cut", &packed[..packed.len() - 20]));
        let account = ended.expect_status(3).account();
        let input = &account["inputs"][0];
        assert_eq!(input["state"], "cut_off", "{program}: {input}");
        assert!(ended.errors.contains("it breaks off") && ended.errors.contains(program), "{ended:#?}");
        assert_eq!(account["status"]["reasons"]["inputs_cut_off"], 1, "{program}: {account}");
    }
}

#[test]
fn a_capture_that_ends_within_a_packet_is_status_3_for_every_command() {
    let case = Case::new("inputs-cut");
    let whole = capture();
    let file = case.write("cut.pcap", &whole[..whole.len() - 100]);
    let name = file.to_str().expect("a path in UTF-8");
    let account = case.run(&file).expect_status(3).account();
    assert_eq!(
        (&account["events"]["written"], &account["inputs"][0]["state"]),
        (&(FRAMES - 1).into(), &"cut_off".into())
    );
    let configuration = case.configuration(&file);
    let converted = case.path("converted");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let target = format!("udp://{}", socket.local_addr().expect("it is bound"));
    for arguments in [
        &["sniff", name][..],
        &["source", "test", &configuration, "--source", "board", "--input", name],
        &["convert", name, "--by", &configuration, "--output", converted.to_str().expect("a path in UTF-8")],
        &["replay", name, "--to", &target, "--speed", "max"],
    ] {
        let ended = Program::run(arguments);
        ended.expect_status(3);
        let said = ended.out.join("\n") + &ended.errors;
        assert!(said.contains("the capture ends within a packet"), "{arguments:?}: {said}");
    }
}

#[test]
fn what_is_not_there_or_is_no_file_is_status_2_and_is_named() {
    let case = Case::new("inputs-none");
    let plain = case.write("plain.raw", &frame(1));
    for (input, hint) in [
        (case.path("nosuch.raw"), "No such file"),
        (case.directory.path().to_owned(), "directory"),
        (plain, "capture them (pcap, pcapng)"),
    ] {
        let ended = case.run(&input);
        ended.expect_status(2);
        let is_named = ended.errors.contains("source board") && ended.errors.contains(&input.display().to_string());
        assert!(is_named && ended.errors.contains(hint) && ended.out.is_empty(), "{ended:#?}");
        assert!(!case.path("runs").join("run000001").exists(), "a run that cannot begin leaves nothing behind");
    }
    let (nosuch, converted) = (case.path("nosuch.raw"), case.path("converted"));
    let (nosuch, converted) = (nosuch.to_str().expect("UTF-8"), converted.to_str().expect("UTF-8"));
    let configuration = case.configuration(Path::new(nosuch));
    for arguments in [
        &["verify", nosuch][..],
        &["inspect", nosuch],
        &["convert", nosuch, "--output", converted],
        &["convert", nosuch, "--by", &configuration, "--output", converted],
        &["source", "test", &configuration, "--source", "board", "--input", nosuch],
        &["replay", nosuch, "--to", "udp://127.0.0.1:9"],
        &["sniff", nosuch],
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains("nosuch.raw"), "{arguments:?}: {ended:#?}");
    }
}

#[test]
fn what_cannot_be_unpacked_at_all_is_status_2_and_is_named() {
    let case = Case::new("inputs-broken");
    let file = case.write("broken.gz", b"\x1f\x8b\x08 is no more than a begin");
    let ended = case.run(&file);
    assert!(ended.expect_status(2).errors.contains("broken.gz: gzip data cannot be unpacked"), "{ended:#?}");
    let (name, to) = (file.to_str().expect("UTF-8"), case.path("converted").display().to_string());
    for arguments in [&["verify", name][..], &["inspect", name], &["convert", name, "--output", &to]] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains("broken.gz"), "{arguments:?}: {ended:#?}");
    }
}

#[test]
fn an_optional_source_that_cannot_be_read_is_named_and_the_others_are_taken() {
    let case = Case::new("inputs-optional");
    let good = case.write("good.pcapng", &capture());
    let file = case.configuration(&good);
    let more = "[[source]]\nid = 2\nname = \"extra\"\nreadout = \"ru0\"\nrequirement = \"optional\"\ninput = \"/nosuch/file.raw\"\n\
                frame = { sync = \"RB\", fixed = \"506B\" }\nevent = { at = 2, type = \"u32be\" }\n";
    let text = fs::read_to_string(&file).expect("it was just written") + more;
    fs::write(&file, text).expect("the directory is ours");
    let account = Program::run(["run", &file, "--json"]).expect_status(3).account();
    let unreadable = account["inputs"].as_array().expect("a list").iter().find(|input| input["source"] == "extra");
    assert_eq!(unreadable.expect("it is listed")["state"], "unreadable", "{account}");
    assert_eq!(
        (&account["events"]["written"], &account["status"]["reasons"]["inputs_unread"]),
        (&FRAMES.into(), &1.into())
    );
}
