//! Files of other formats on the command line.

use crate::forms::{expect_form, schema};
use crate::process::Program;
use crate::support::TemporaryDirectory;
use ropewalk_terms::Utc;
use ropewalk_wire::capture::{LinkType, encode_interface, encode_packet};
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::internet::{IpNumber, PacketBuilder};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};

/// A file of frames of this format, from sources 1 and 2.
fn file(directory: &TemporaryDirectory, name: &str, format: ForeignFormat, events: std::ops::Range<u32>) -> String {
    let frames = events.flat_map(|event| [1, 2].map(|source| format.emulate(source, event, &[7; 40])));
    let bytes: Vec<Vec<u8>> = frames.flat_map(|frames| frames.expect("it is short")).collect();
    written(directory, name, &bytes.concat())
}

fn written(directory: &TemporaryDirectory, name: &str, bytes: &[u8]) -> String {
    let file = directory.path().join(name);
    std::fs::write(&file, bytes).expect("a file can be written");
    file.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn files_become_a_run_directory() {
    let directory = TemporaryDirectory::new("convert");
    let files = [1, 2].map(|source| {
        let file = directory.path().join(format!("{source}.raw"));
        let fed = |event| ForeignFormat::Fed.emulate(source, event, &[7; 40]).expect("it is short").concat();
        std::fs::write(&file, (1..=50).flat_map(fed).collect::<Vec<u8>>()).expect("it is ours");
        file.display().to_string()
    });
    let to = directory.path().display().to_string();
    let converted = Program::run(["convert", &files[0], &files[1], "--from", "fed", "--output", &to]);
    assert!(converted.expect_status(0).out.contains(&"events     50".to_owned()), "{converted:#?}");
    let run = directory.path().join("run000001").display().to_string();
    let account = Program::run(["verify", &run, "--json"]).expect_status(0).account();
    assert_eq!(
        (&account["events"], &account["fragments"], &account["crc_errors"]),
        (&50.into(), &100.into(), &0.into())
    );
    let half = Program::run(["convert", &files[0], "--from", "midas", "--output", &to]);
    assert!(half.expect_status(3).out.contains(&"events     0".to_owned()), "{half:#?}");
    Program::run(["convert", "/nowhere", "--output", &to]).expect_status(2);
}

#[test]
fn a_run_becomes_files_of_other_formats_and_a_run_again() {
    let directory = TemporaryDirectory::new("convert-to");
    let events = |source| (1..=50).flat_map(move |event| fed(source, event)).collect::<Vec<u8>>();
    let to = directory.path().display().to_string();
    let files = [841, 843].map(|source| written(&directory, &format!("{source}.raw"), &events(source)));
    Program::run(["convert", &files[0], &files[1], "--output", &to]).expect_status(0);
    let path = |name: &str| directory.path().join(name).display().to_string();
    let made = Program::run(["convert", &path("run000001"), "--to", "frd", "--output", &to]);
    assert!(made.expect_status(0).out.contains(&"events     50".to_owned()), "{made:#?}");
    let raw = path("run000001_ls0001_index000000.raw");
    let account = Program::run(["verify", &raw, "--json"]).expect_status(0).account();
    assert_eq!((&account["format"], &account["checksums"]["right"]), (&"frd".into(), &50.into()), "{account:#}");
    let shown = Program::run(["inspect", &raw, "--record", "1"]);
    assert!(shown.expect_status(0).out.iter().any(|line| line.contains("lumisection = 1")), "{shown:#?}");
    Program::run(["convert", &raw, "--from", "frd", "--output", &to]).expect_status(0);
    let wrapped = Program::run(["convert", &path("run000002"), "--to", "mdf", "--output", &path("banks")]);
    let missing = wrapped.expect_status(0).out.iter().any(|line| line == "not carried: event numbers, of 50 events");
    assert!(missing, "{wrapped:#?}");
    Program::run(["convert", &path("run000002"), "--to", "raw", "--output", &path("bytes")]).expect_status(0);
    let bytes = std::fs::read(directory.path().join("bytes/run000002.raw")).expect("it was written");
    assert_eq!(bytes, (1..=50).flat_map(|event| [fed(841, event), fed(843, event)].concat()).collect::<Vec<u8>>());
    for (arguments, hint) in [
        (&["convert", &path("run000001"), "--output", &to][..], "--to frd, mdf or raw"),
        (&["convert", &raw, "--to", "mdf", "--output", &to], "make a run of these first"),
        (&["convert", &path("run000001"), "--to", "frd", "--output", &to], "exists"),
        (&["convert", &path("run000001"), "--to", "frd", "--frd-version", "2"], "version 3, 4 or 5"),
        (&["convert", &path("run000001"), "--to", &path("elsewhere")], "possible values"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.status != Some(0) && ended.errors.contains(hint), "{hint}: {ended:#?}");
    }
}

fn fed(source: u32, event: u32) -> Vec<u8> {
    ForeignFormat::Fed.emulate(source, event, &[7; 40]).expect("it is short").concat()
}

/// Piped input is a source like a file, and ends with the pipe.
#[test]
fn a_run_reads_standard_input() {
    let directory = TemporaryDirectory::new("piped");
    let fed = |event| ForeignFormat::Fed.emulate(1, event, &[7; 40]).expect("it is short").concat();
    let bytes: Vec<u8> = (1..=50).flat_map(fed).collect();
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\nuntil_sources_end = true\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n\
         [[source]]\nid = 1\nreadout = \"ru0\"\nformat = \"fed\"\ninput = \"-\"\n",
        directory.path().display().to_string()
    );
    let config = written(&directory, "piped.toml", text.as_bytes());
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let program = Program::reading(reader.into(), ["run", &config, "--json"]);
    // In two parts, so that it must wait for the second one.
    let (first, second) = bytes.split_at(bytes.len() / 2 + 3);
    writer.write_all(first).expect("it is read");
    std::thread::sleep(std::time::Duration::from_millis(100));
    writer.write_all(second).expect("it is read");
    drop(writer);
    let account = program.end().expect_status(0).account();
    assert_eq!(
        (&account["events"]["written"], &account["fragments"]["crc_errors"]),
        (&50.into(), &0.into()),
        "{account:#}"
    );
}

/// A file of FED fragments, by a configuration with a source of them, and one without a recording.
#[test]
fn a_recording_becomes_a_run_directory_by_a_configuration() {
    let directory = TemporaryDirectory::new("convert-by");
    let fed = |event| ForeignFormat::Fed.emulate(1, event, &[7; 40]).expect("it is short").concat();
    let raw = written(&directory, "slink.raw", &(40..90).flat_map(fed).collect::<Vec<u8>>());
    let to = directory.path().display().to_string();
    let text = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n\
                [[source]]\nid = 1\nname = \"csc\"\nreadout = \"ru0\"\nformat = \"fed\"\nlisten = \"tcp://0.0.0.0:5000\"\n\
                [[source]]\nid = 2\nname = \"trigger\"\nreadout = \"ru0\"\nformat = \"generic\"\n";
    let config = written(&directory, "setup.toml", text.as_bytes());
    let converted = Program::run(["convert", &raw, "--by", &config, "--output", &to]);
    assert!(converted.expect_status(0).errors.contains("trigger is left out"), "{converted:#?}");
    let run = directory.path().join("run000001").display().to_string();
    let account = Program::run(["verify", &run, "--json"]).expect_status(0).account();
    assert_eq!((&account["events"], &account["crc_errors"]), (&50.into(), &0.into()), "{account:#}");
    let tried = Program::run(["source", "test", &config, "--source", "csc", "--input", &raw]);
    assert!(tried.expect_status(0).out.contains(&"frames     50".to_owned()), "{tried:#?}");
    for (arguments, hint) in [
        (&["convert", &raw, &raw, "--by", &config][..], "mergecap"),
        (&["convert", &raw, "--by", &config, "--source", "caen"], "there are csc, trigger"),
        (&["convert", &raw, "--source", "csc"], "--by"),
        (&["convert", "/nowhere", "--by", &config], "/nowhere"),
        (&["source", "test", &config, "--source", "trigger", "--input", &raw], "generic fragments"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
    let empty = written(&directory, "empty.raw", b"");
    let nothing = Program::run(["convert", &empty, "--by", &config, "--output", &to]);
    assert!(nothing.expect_status(2).errors.contains("no frame of csc is in it"), "{nothing:#?}");
}

#[test]
fn a_file_is_recognised_counted_and_shown() {
    let directory = TemporaryDirectory::new("foreign");
    let file = file(&directory, "dune.dat", ForeignFormat::Dune, 1..101);
    let report = Program::run(["verify", &file, "--json"]).expect_status(0).account();
    expect_form(&report, &schema("foreign.json"));
    assert_eq!((&report["format"], &report["frames"]), (&"dune".into(), &200.into()), "{report:#}");
    assert_eq!((&report["same_events"], &report["sources"][1]["events"]), (&true.into(), &100.into()));
    let inspected = Program::run(["inspect", &file, "--json", "--records", "3"]).expect_status(0).account();
    expect_form(&inspected, &schema("foreign.json"));
    assert_eq!(inspected["records"].as_array().map(Vec::len), Some(3), "{inspected:#}");
    let text = Program::run(["inspect", &file, "--record", "5"]);
    let lines = &text.expect_status(0).out;
    assert!(lines[0].starts_with("frame 5 at 560: readout, 112 B"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with("trigger number = 3")), "{lines:#?}");
    let text = Program::run(["inspect", &file]);
    let lines = &text.expect_status(0).out;
    assert!(lines.iter().any(|line| line == "format          dune"), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "events          the same in all sources"), "{lines:#?}");
}

#[test]
fn missing_frames_are_status_3_and_damage_is_status_1() {
    let directory = TemporaryDirectory::new("foreign-damage");
    let one = ForeignFormat::Fed.emulate(1, 1, &[0; 16]).expect("it is short").concat();
    let three = ForeignFormat::Fed.emulate(1, 3, &[0; 16]).expect("it is short").concat();
    let gap = written(&directory, "gap.raw", &[&one[..], &three].concat());
    let report = Program::run(["verify", &gap, "--format", "fed", "--json"]).expect_status(3).account();
    assert_eq!(report["sources"][0]["missing"], 1, "{report:#}");
    let mut damaged = one.clone();
    damaged[9] ^= 1;
    let damaged = written(&directory, "damaged.raw", &[&damaged[..], &one].concat());
    let report = Program::run(["verify", &damaged, "--json"]).expect_status(1).account();
    assert_eq!((&report["checksums"]["wrong"], &report["faults"]["crc_error"]), (&1.into(), &1.into()), "{report:#}");
    let text = Program::run(["verify", &damaged]);
    assert!(text.expect_status(1).out.iter().any(|line| line.starts_with("WRONG           crc_error: 1")), "{text:#?}");
}

#[test]
fn a_capture_says_what_else_was_in_it() {
    let directory = TemporaryDirectory::new("foreign-capture");
    let mut bytes = Vec::new();
    encode_interface(LinkType::RAW, &mut bytes);
    // An IPv4 packet of the experimental protocol, with a multi-event packet in it; and a complaint.
    let mep = ForeignFormat::LhcbMep.emulate(7, 1, &[1; 40]).expect("it is short").concat();
    for (protocol, payload) in [(253, &mep[..]), (1, &[0; 8])] {
        let address = Ipv4Addr::LOCALHOST;
        let addresses = PacketBuilder::ipv4(address.octets(), address.octets(), 64);
        let mut packet = Vec::new();
        addresses.write(&mut packet, IpNumber(protocol), payload).expect("it is short");
        encode_packet(Utc(5_000_000_000), &packet, &mut bytes);
    }
    let file = written(&directory, "capture.pcapng", &bytes);
    let report = Program::run(["inspect", &file, "--json"]).expect_status(0).account();
    expect_form(&report, &schema("foreign.json"));
    assert_eq!((&report["format"], &report["frames"]), (&"lhcb-mep".into(), &1.into()), "{report:#}");
    let capture = &report["files"][0]["capture"];
    assert_eq!((&capture["packets"], &capture["aside"]["icmp"]), (&2.into(), &1.into()), "{report:#}");
    assert_eq!(report["sources"][0]["peer"], "127.0.0.1", "{report:#}");
    let text = Program::run(["inspect", &file]);
    assert!(text.expect_status(0).out.iter().any(|line| line == "  aside         icmp 1"), "{text:#?}");
}

#[test]
fn a_file_goes_out_again_as_datagrams() {
    let directory = TemporaryDirectory::new("foreign-replay");
    let file = file(&directory, "good.dat", ForeignFormat::Dune, 1..4);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let target = format!("udp://{}", socket.local_addr().expect("it is bound"));
    let played = Program::run(["replay", &file, "--to", &target, "--speed", "10kHz"]);
    assert_eq!(played.expect_status(0).out[0], "sent 6 messages, 672 bytes");
    socket.set_nonblocking(true).expect("it is a socket");
    let mut room = [0; 200];
    let received = (0..6).filter(|_| socket.recv(&mut room).is_ok_and(|bytes| bytes == 112)).count();
    assert_eq!(received, 6, "a datagram for each frame");
    for (arguments, hint) in [
        (&["replay", &file, "--to", "ftp://127.0.0.1:1"][..], "udp://HOST:PORT"),
        (&["replay", &file, "--to", &target, "--speed", "1x"], "--speed max"),
        (&["replay", &file, "--to", "127.0.0.1:1", "--speed", "1kHz"], "--to udp://"),
        (&["replay", &file, "--to", &target, "--speed", "fast"], "100kHz"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

/// Bytes of a stream do not show their format: the configuration does.
#[test]
fn a_raw_recording_goes_out_again_by_the_layout_of_its_source() {
    let directory = TemporaryDirectory::new("foreign-replay-by");
    let frame = |number: u8| [0xa5, 0xc3, number, 0, 9, 9, 9, 9];
    let file = written(&directory, "adc.raw", &(1..=20).flat_map(frame).collect::<Vec<_>>());
    let source = |name: &str, id: u32| {
        format!(
            "[[source]]\nid = {id}\nname = {name:?}\nreadout = \"ru0\"\nlisten = \"tcp://127.0.0.1:{}\"\nframe = {{ fixed = \"8B\" }}\n\
             match = {{ at = 0, bytes = [0xa5, 0xc3] }}\nevent = {{ at = 2, type = \"u16le\" }}\n",
            41_000 + id
        )
    };
    let text = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n".to_owned() + &source("adc", 1);
    let (one, two) = (written(&directory, "one.toml", text.as_bytes()), text + &source("tdc", 2));
    let two = written(&directory, "two.toml", two.as_bytes());
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let target = format!("udp://{}", socket.local_addr().expect("it is bound"));
    let replay = ["replay", &file, "--to", &target];
    for by in [&["--by", &one][..], &["--by", &two, "--source", "adc"]] {
        let played = Program::run([&replay[..], by].concat());
        assert_eq!(played.expect_status(0).out[0], "sent 20 messages, 160 bytes");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let connection = format!("tcp://{}", listener.local_addr().expect("it is bound"));
    let played = Program::run(["replay", &file, "--to", &connection, "--by", &one]);
    assert_eq!(played.expect_status(0).out[0], "sent 20 messages, 160 bytes");
    for (by, hint) in [
        (&[][..], "--by CONFIG --source NAME"),
        (&["--by", &two], "--source adc or tdc"),
        (&["--by", &two, "--source", "hits"], "named `hits`; there are adc, tdc"),
    ] {
        let ended = Program::run([&replay[..], by].concat());
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

/// A capture of one datagram per item, from a host to port 7007: five letters and a number.
fn captured(datagrams: impl Iterator<Item = (u8, u32)>) -> Vec<u8> {
    captured_of(datagrams.map(|(host, number)| (host, number, [&b"BOARD"[..], &number.to_be_bytes()].concat())))
}

/// The same with the time and bytes of each datagram.
fn captured_of(datagrams: impl Iterator<Item = (u8, u32, Vec<u8>)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_interface(LinkType::RAW, &mut bytes);
    for (host, number, payload) in datagrams {
        let mut packet = Vec::new();
        let addresses = PacketBuilder::ipv4([127, 0, 0, host], [127, 0, 0, 1], 64);
        addresses.udp(7007, 7007).write(&mut packet, &payload).expect("it is short");
        encode_packet(Utc(i64::from(number)), &packet, &mut bytes);
    }
    bytes
}

/// A gap in the board's own numbers, a duplicate datagram, and an unknown board.
#[test]
fn a_run_says_at_its_end_what_is_amiss_with_frames() {
    let directory = TemporaryDirectory::new("foreign-amiss");
    let numbers = (1..=40).filter(|number| !(11..=13).contains(number)).chain([40]);
    let bytes = captured(numbers.flat_map(|number| [(2, number), (3, number)]));
    let file = written(&directory, "board.pcapng", &bytes);
    let place = directory.path().display().to_string();
    let text = format!(
        "version = 1\n[run]\noutput = {place:?}\nuntil_sources_end = true\n[[readout]]\nname = \"ru0\"\n[[builder]]\n\
         name = \"bu0\"\n[[source]]\nid = 5\nreadout = \"ru0\"\ninput = {file:?}\nframe = \"datagram\"\n\
         event = {{ at = 5, type = \"u32be\" }}\nsequence = {{ at = 5, type = \"u32be\" }}\n\
         demux = {{ at = \"ip.source\", is = \"127.0.0.2\" }}\n"
    );
    let config = written(&directory, "board.toml", text.as_bytes());
    let told = Program::run(["run", &config]);
    for line in ["source 5: frames missing: 3, frames out of order: 1", "datagrams of boards that are no source"] {
        assert!(told.out.iter().any(|found| found.starts_with(line)), "{line}: {told:#?}");
    }
    let row = |line: &&String| line.contains("frames missing by number") && line.contains(" 3 ");
    assert!(told.expect_status(3).out.iter().any(|line| row(&line)), "{told:#?}");
    let account = Program::run(["run", &config, "--json"]).expect_status(3).account();
    expect_form(&account, &schema("run.json"));
    assert_eq!(account["by_source"]["5"]["frames_missing"], 3, "{account:#}");
    let datagrams = serde_json::json!({ "lost": 0, "lost_by_cause": {}, "lost_by_source": {}, "nobodys": 38 });
    assert_eq!(account["datagrams"], datagrams);
}

/// A run of the described `sources`, each with its id, until they end.
fn run_of(directory: &TemporaryDirectory, sources: &[String], status: i32) -> (Vec<String>, serde_json::Value) {
    let place = directory.path().display().to_string();
    let head = format!("version = 1\n[run]\noutput = {place:?}\nuntil_sources_end = true\n");
    let text = head + "[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n" + &sources.concat();
    let config = written(directory, "run.toml", text.as_bytes());
    let checked = Program::run(["config", "check", &config]);
    let lines =
        checked.expect_status(0).out.iter().filter(|line| line.starts_with("first event number")).cloned().collect();
    (lines, Program::run(["run", &config, "--json"]).expect_status(status).account())
}

#[test]
fn eudaq_counts_from_0() {
    let directory = TemporaryDirectory::new("foreign-eudaq");
    let events =
        (0..20).flat_map(|event| ForeignFormat::Eudaq.emulate(5, event, &[7; 40]).expect("it is short").concat());
    let file = written(&directory, "eudaq.raw", &events.collect::<Vec<u8>>());
    let source = format!("[[source]]\nid = 5\nreadout = \"ru0\"\nformat = \"eudaq\"\ninput = {file:?}\n");
    let (lines, account) = run_of(&directory, &[source], 0);
    assert_eq!(lines, ["first event number 0, as eudaq counts; `first` changes it: source-5"]);
    assert_eq!(account["events"]["written"], 20, "{account:#}");
}

/// Two FECs with arbitrary first counts, one of which wraps; each loses one frame.
fn free_running(directory: &TemporaryDirectory) -> String {
    let frame = |host: u8, index: u32| {
        let first: u32 = if host == 2 { 88_123 } else { u32::MAX - 20 };
        let mut bytes = ForeignFormat::Srs.emulate(host.into(), first.wrapping_add(index), &[7; 24])?.concat();
        bytes[8..12].copy_from_slice(&(1000 + 100 * index).to_be_bytes());
        Some((host, index, bytes)).filter(|_| index != if host == 2 { 20 } else { 33 })
    };
    let frames = (0..51).flat_map(|index| [2, 3].map(|host| frame(host, index)));
    written(directory, "srs.pcapng", &captured_of(frames.flatten()))
}

#[test]
fn frame_counters_that_run_free_begin_anywhere() {
    let directory = TemporaryDirectory::new("foreign-srs");
    let file = free_running(&directory);
    let by_frame = "format = \"srs\"";
    let by_time = "frame = \"datagram\"\nmatch = { at = 4, bytes = \"VM3\" }\n\
                   event = { at = 8, type = \"u32be\", numbers = \"growing\" }\nsequence = { at = 0, type = \"u32be\" }";
    for (keys, first) in
        [(by_frame, "that of the first frame: its counter runs free"), (by_time, "any: its numbers grow")]
    {
        let source = |id: u8| {
            let demux = format!("demux = {{ at = \"ip.source\", is = \"127.0.0.{id}\" }}");
            format!("[[source]]\nid = {id}\nreadout = \"ru0\"\ninput = {file:?}\n{keys}\n{demux}\n")
        };
        let (lines, account) = run_of(&directory, &[source(2), source(3)], 3);
        assert!(lines.len() == 1 && lines[0].contains(first), "{lines:?}");
        for id in ["2", "3"] {
            assert_eq!(account["by_source"][id]["frames_missing"], 1, "{keys}: {account:#}");
        }
        let count = |place: &str| account.pointer(place).and_then(serde_json::Value::as_u64).expect("a number");
        let fragments = count("/fragments/in_complete_events") + count("/fragments/in_incomplete_events");
        assert_eq!((count("/events/written"), fragments), (51, 100), "{keys}: {account:#}");
        assert_eq!(count("/events/incomplete_emitted"), 2, "{keys}: {account:#}");
    }
}

/// A capture of 40 datagrams, repeated until the run has 100 events; the player does not stop by itself.
#[test]
fn a_capture_is_played_into_a_run_without_an_end() {
    let directory = TemporaryDirectory::new("foreign-loop");
    let file = written(&directory, "board.pcapng", &captured((1..=40).map(|number| (2, number))));
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 5\n\
         name = \"board\"\nreadout = \"ru0\"\nlisten = \"udp://127.0.0.1:0\"\nframe = \"datagram\"\n",
        directory.path().display().to_string()
    );
    let config = written(&directory, "board.toml", text.as_bytes());
    let mut run = Program::start(["run", &config, "--events", "100", "--json"]);
    let target = format!("udp://{}", run.expect_error_line("board listens on "));
    let mut player = Program::start(["replay", &file, "--to", &target, "--speed", "2kHz", "--loop"]);
    let ended = run.end();
    let account = ended.account();
    player.kill();
    // Datagrams before the begin of the run are stale; the run begins with the first number after it.
    let count = |place: &str| account.pointer(place).and_then(serde_json::Value::as_u64).expect("a number");
    ended.expect_status(0);
    let events = 100;
    assert_eq!((count("/events/written"), count("/fragments/in_complete_events")), (events, events), "{account:#}");
    let run = directory.path().join("run000001").display().to_string();
    let verified = Program::run(["verify", &run, "--json"]).expect_status(0).account();
    assert_eq!(
        (&verified["events"], &verified["payload_bytes"]),
        (&serde_json::json!(events), &serde_json::json!(9 * events)),
        "{verified:#}"
    );
}

/// The advice about a board whose frames have these numbers and byte order, beside one that counts from 1 to `events`.
fn advice_about(name: &str, numbers: &[u32], events: u32) -> String {
    let directory = TemporaryDirectory::new(&format!("advice-{name}"));
    let frames = |numbers: &mut dyn Iterator<Item = u32>| {
        numbers.flat_map(|number| [&number.to_le_bytes()[..], &[7; 12]].concat()).collect::<Vec<_>>()
    };
    let board = written(&directory, "board", &frames(&mut numbers.iter().copied()));
    let other = written(&directory, "other", &frames(&mut (1..=events)));
    let place = directory.path().display().to_string();
    let source = |id: u32, name: &str, file: &str| {
        format!(
            "[[source]]\nid = {id}\nname = \"{name}\"\nreadout = \"ru0\"\ninput = {file:?}\nframe = {{ fixed = \"16\" }}\n\
             event = {{ at = 0, type = \"u32le\" }}\n"
        )
    };
    let text = format!(
        "version = 1\n[run]\noutput = {place:?}\nuntil_sources_end = true\n[[readout]]\nname = \"ru0\"\n[[builder]]\n\
         name = \"bu0\"\n{}{}",
        source(5, "board", &board),
        source(6, "other", &other)
    );
    let told = Program::run(["run", &written(&directory, "advice.toml", text.as_bytes())]);
    let lines = told.expect_status(3).errors.lines().filter_map(|line| line.strip_prefix("advice: "));
    lines.collect::<Vec<_>>().join("\n")
}

/// A key is advised only if the numbers show that it can help.
#[test]
fn advice_follows_from_how_the_numbers_of_a_board_run() {
    let frames = 400;
    let of = |number: &dyn Fn(u32) -> u32| (0..frames).map(number).collect::<Vec<_>>();
    let growing = "`numbers = \"growing\"`";
    let gather = "`gather = true`";
    let cases: [(&str, Vec<u32>, &str, &[&str]); 7] = [
        ("times", of(&|n| 1_000_000 + 1000 * n + n * n), growing, &[gather, "byte order"]),
        ("order", of(&|n| (n + 1).swap_bytes()), "`type = \"u32be\"` in `event`", &[growing, gather]),
        ("noise", of(&|n| (n + 1).wrapping_mul(2_654_435_761)), "its numbers go up and down", &[growing, gather]),
        ("parts", of(&|n| 1 + n / 4), "about 4 frames in a row have one event number", &[growing]),
        ("slow", of(&|n| 1 + n / 4), "its numbers change once in 4 frames", &[growing, gather]),
        ("twice", of(&|n| 1 + n % 200), "restarted counting at event 201: number 1 followed 200", &[growing, gather]),
        (
            "reset",
            of(&|n| if n < 150 { n + 1 } else { n - 149 }),
            "restarted counting at event 151",
            &[growing, gather],
        ),
    ];
    for (name, numbers, wanted, unwanted) in cases {
        let events = if name == "parts" { frames / 4 } else { frames };
        let advice = advice_about(name, &numbers, events);
        assert!(advice.starts_with("board (source 5): ") && advice.contains(wanted), "{name}: {advice}");
        assert!(unwanted.iter().all(|other| !advice.contains(other)), "{name}: {advice}");
        assert_eq!(advice.lines().count(), 1, "{name}: {advice}");
    }
}

/// Numbers that jump like times, beside a board that sends nothing; and a capture of another port.
#[test]
fn a_run_without_frames_of_a_board_names_the_key_to_look_at() {
    let directory = TemporaryDirectory::new("foreign-advice");
    let file = written(&directory, "board.pcapng", &captured((1..=40).map(|number| (2, 1_000_000 * number))));
    let place = directory.path().display().to_string();
    let text = format!(
        "version = 1\n[run]\noutput = {place:?}\nuntil_sources_end = true\n[[readout]]\nname = \"ru0\"\n[[builder]]\n\
         name = \"bu0\"\n[[source]]\nid = 5\nname = \"tdc\"\nreadout = \"ru0\"\ninput = {file:?}\nframe = \"datagram\"\n\
         event = {{ at = 5, type = \"u32be\" }}\n[[source]]\nid = 6\nname = \"adc\"\nreadout = \"ru0\"\ninput = {file:?}\n\
         packets = {{ port = 7008 }}\nframe = \"datagram\"\n"
    );
    let config = written(&directory, "board.toml", text.as_bytes());
    let told = Program::run(["run", &config]);
    let errors = &told.expect_status(3).errors;
    for advice in [
        "advice: tdc (source 5): 39 of 40 fragments are `implausible_jump` since event ",
        ": its numbers only grow, but not one by one. If they are times: `numbers = \"growing\"` in `event`",
        "advice: adc (source 6): no data in the whole run: compare `input`, and `packets` or `demux`, with",
    ] {
        assert!(errors.contains(advice), "{advice}: {errors}");
    }
    let helped = text.replace("type = \"u32be\"", "type = \"u32be\", numbers = \"growing\"");
    let helped = helped.split("[[source]]\nid = 6").next().expect("the text before it");
    let config = written(&directory, "helped.toml", helped.as_bytes());
    let told = Program::run(["run", &config]);
    assert!(!told.expect_status(0).errors.contains("advice"), "{told:#?}");
    let arguments = ["source", "test", &config, "--source", "tdc", "--input", &file, "--port", "7008"];
    let tried = Program::run(arguments);
    let advice = "packets of this capture went to port 7007 (40): `--port 7007` tries those";
    assert!(tried.expect_status(1).out.iter().any(|line| line == advice), "{tried:#?}");
    let report = Program::run([&arguments[..], &["--json"]].concat()).expect_status(1).account();
    expect_form(&report, &schema("source-test.json"));
    assert_eq!(report["other_ports"], serde_json::json!({ "7007": 40 }));
}

#[test]
fn unknown_datagrams_are_looked_at() {
    let directory = TemporaryDirectory::new("foreign-sniff");
    let bytes = captured((0..50).map(|number| (1, number)));
    let file = written(&directory, "board.pcapng", &bytes);
    let found = Program::run(["sniff", &file]);
    let lines = &found.expect_status(0).out;
    assert_eq!(lines[0], "udp port 7007");
    for line in ["u32be at 5 counts up by one per frame: 49 of 49 times", "sequence = { at = 5, type = \"u32be\" }"] {
        assert!(lines.iter().any(|found| found.trim_start() == line.trim_start()), "{line}: {lines:#?}");
    }
    let report = Program::run(["sniff", &file, "--json"]).expect_status(0).account();
    expect_form(&report, &schema("sniff.json"));
    let guesses = report["groups"][0]["guesses"].as_array().expect("a list");
    assert!(guesses.iter().any(|guess| guess["meaning"] == "frame_counter"), "{report:#}");
    let nothing = Program::run(["sniff", "udp:0", "--seconds", "0"]);
    assert!(nothing.expect_status(3).errors.contains("no data arrived: does the board send"));
    assert!(Program::run(["sniff", "tcp:9102"]).expect_status(2).errors.contains("tcp-listen:PORT"));
    assert!(Program::run(["sniff", "udp:many"]).expect_status(2).errors.contains("udp:6006"));
    assert!(Program::run(["sniff", "no-such-file"]).expect_status(2).errors.contains("no-such-file"));
}

/// A layout whose number repeats, is slow, constant or doubled causes a warning and an exit status.
#[test]
fn numbers_of_something_else_are_warned_about() {
    let directory = TemporaryDirectory::new("foreign-doubts");
    let frames = (0..200_u32).flat_map(|number| [number, number / 2, number / 40, 7, 2 * number].map(u32::to_le_bytes));
    let input = written(&directory, "board.bin", &frames.flatten().collect::<Vec<u8>>());
    let rest = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nname = \"board\"\n\
                id = 1\nreadout = \"ru0\"\ninput = \"FILE\"\nframe = { fixed = \"20B\" }\n";
    let cases = [
        (0, 0, ""),
        (4, 3, "WARNING: event: 100 of 200 frames repeat the number before"),
        (8, 3, "WARNING: event: 195 of 200 frames repeat the number before"),
        (12, 3, "WARNING: event: it is 7 in all frames"),
        (16, 3, "WARNING: event: the number goes up by 2 per frame: perhaps 2 events in each frame"),
    ];
    for (at, status, warning) in cases {
        let text = format!("{rest}event = {{ at = {at}, type = \"u32le\" }}\n");
        let config = written(&directory, "board.toml", text.as_bytes());
        let tried = Program::run(["source", "test", &config, "--source", "board", "--input", &input]);
        let lines: Vec<&String> =
            tried.expect_status(status).out.iter().filter(|line| line.contains("WARNING")).collect();
        assert_eq!(lines.len(), usize::from(status > 0), "{at}: {lines:?}");
        assert!(lines.iter().all(|line| line.contains(warning)), "{at}: {lines:?}");
    }
}

/// A clock in the wrong byte order goes backward half of the time.
#[test]
fn a_clock_in_the_wrong_byte_order_is_warned_about() {
    let directory = TemporaryDirectory::new("foreign-clock");
    let (mut noise, mut time) = (1_u64, 0_u64);
    let frames = (0..400_u64).flat_map(|number| {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        time += (noise >> 44) % 80_000;
        [&(number as u32).to_le_bytes()[..], &time.to_le_bytes()[..6], &[0; 6]].concat()
    });
    let input = written(&directory, "board.bin", &frames.collect::<Vec<u8>>());
    let rest = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nname = \"board\"\n\
                id = 1\nreadout = \"ru0\"\ninput = \"FILE\"\nframe = { fixed = \"16B\" }\nevent = { at = 0, type = \"u32le\" }\n";
    for (kind, status) in [("u48le", 0), ("u48be", 3)] {
        let text = format!("{rest}time = {{ at = 4, type = \"{kind}\", tick = \"25ns\" }}\n");
        let config = written(&directory, "board.toml", text.as_bytes());
        let tried = Program::run(["source", "test", &config, "--source", "board", "--input", &input]);
        let out = tried.expect_status(status).out.join("\n");
        let warning = out.contains("WARNING: time goes backward in") && out.contains("the other byte order fits");
        assert_eq!(warning, status > 0, "{out}");
        assert_eq!(out.contains("source[0].time: time goes backward"), status > 0, "{out}");
        assert_eq!(tried.errors.contains("clock_backward"), status > 0, "{}", tried.errors);
    }
}

/// From a connection's bytes to a draft, and from the draft to a successful test of it.
#[test]
fn a_draft_of_a_stream_fits_what_it_was_made_from() {
    let directory = TemporaryDirectory::new("foreign-trial");
    let mut sniffing =
        Program::start(["sniff", "tcp-listen:127.0.0.1:0", "--seconds", "2", "--json", "--name", "adc", "--id", "7"]);
    let address = sniffing.expect_line("ready tcp ");
    let frames: Vec<u8> = (0..200_u32)
        .flat_map(|number| {
            let length = 12 + number % 5 * 4;
            let body = vec![number as u8; length as usize - 12];
            [&[0xca, 0xfe, 0xf0, 0x0d][..], &length.to_be_bytes(), &number.to_be_bytes(), &body].concat()
        })
        .collect();
    let mut sender = std::net::TcpStream::connect(&address).expect("it listens");
    sender.write_all(&frames).expect("it is read");
    let report = sniffing.end().expect_status(0).account();
    expect_form(&report, &schema("sniff.json"));
    let draft = report["groups"][0]["draft"].as_str().expect("frames were found").to_owned();
    assert!(draft.contains("name = \"adc\"\nid = 7\n"), "{draft}");
    let rest = "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n";
    let config = written(&directory, "board.toml", format!("{rest}{draft}").as_bytes());
    Program::run(["config", "check", &config]).expect_status(0);
    let input = written(&directory, "board.bin", &frames);
    let arguments = ["source", "test", &config, "--source", "adc", "--input", &input];
    let report = Program::run([&arguments[..], &["--json"]].concat()).expect_status(0).account();
    expect_form(&report, &schema("source-test.json"));
    assert_eq!((&report["frames"], &report["left_over_bytes"]), (&200.into(), &0.into()), "{report:#}");

    // Without one frame a number is missing; with a wrong byte the first bad position is shown, and the rule.
    let mut damaged = frames.clone();
    damaged.drain(12..28);
    written(&directory, "board.bin", &damaged);
    assert!(Program::run(arguments).expect_status(3).out.iter().any(|line| line.contains("gaps 1")));
    damaged[12] = 0;
    written(&directory, "board.bin", &damaged);
    let shown = Program::run(arguments);
    let lines = &shown.expect_status(1).out;
    for text in ["bad places is at 12:", "^^ ^^ ^^ ^^", "board.toml:", "source[0].match: no frame begins here"] {
        assert!(lines.iter().any(|line| line.contains(text)), "{text}: {lines:#?}");
    }
    for (source, input, hint) in [("board-9", input.as_str(), "there are adc"), ("adc", "no-such-file", "no-such-file")]
    {
        let ended = Program::run(["source", "test", &config, "--source", source, "--input", input]);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

#[test]
fn what_is_unknown_or_not_there_is_status_2_and_says_what_would_be_right() {
    let directory = TemporaryDirectory::new("foreign-wrong");
    let text = written(&directory, "text", b"just a text of no format");
    let good = file(&directory, "good.dat", ForeignFormat::Dune, 1..3);
    let empty = written(&directory, "empty", b"");
    let converted = directory.path().display().to_string();
    Program::run(["convert", &good, "--output", &converted]).expect_status(0);
    let good_run = directory.path().join("run000001").display().to_string();
    for (arguments, hint) in [
        (&["inspect", &text, "--format", "dunes"][..], "midas"),
        (&["inspect", &text, "--format", "srs"], "capture"),
        (&["inspect", "no-such-file", "--format", "fed"], "no-such-file"),
        (&["inspect", &good, "--record", "999"], "there are 4"),
        (&["inspect", &good_run, "--json"], "a run file has"),
        (&["inspect", &text], "no run file"),
        (&["inspect", &good, "--event", "1"], "--record N"),
        (&["inspect", &text, "--json"], "6a 75 73 74 20 61 20 74` (\"just a t\")"),
        (&["verify", &text], "name it with --format"),
        (&["inspect", &empty], "begins with nothing"),
    ] {
        let ended = Program::run(arguments);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

#[test]
fn zeros_in_a_file_are_counted_and_become_no_events() {
    let directory = TemporaryDirectory::new("zeros");
    let bytes = |events: std::ops::Range<u32>| -> Vec<u8> {
        events
            .flat_map(|event| ForeignFormat::Midas.emulate(1, event, &[7; 40]).expect("it is short").concat())
            .collect()
    };
    let middle = [bytes(1..11), vec![0; 4096], bytes(11..21)].concat();
    let tail = [bytes(1..21), vec![0; 65_536]].concat();
    for (name, bytes, skipped) in [("tail", tail, 65_536), ("middle", middle, 4096)] {
        let file = written(&directory, name, &bytes);
        let account = Program::run(["verify", &file, "--format", "midas", "--json"]).expect_status(1).account();
        let expected = (&20.into(), &skipped.into(), &0.into());
        assert_eq!((&account["frames"], &account["skipped_bytes"], &account["left_over_bytes"]), expected, "{name}");
        let to = directory.path().display().to_string();
        let converted = Program::run(["convert", &file, "--from", "midas", "--output", &to]);
        converted.expect_status(3);
        assert!(converted.out.contains(&"events     20".to_owned()), "{name}: {converted:#?}");
    }
}

/// Pages 0, 2 and 3 of the first heartbeat frame, and the second one without its last page.
#[test]
fn missing_pages_are_flagged_by_verify_and_convert() {
    let directory = TemporaryDirectory::new("pages");
    let page = |orbit: u32, place: u16, is_last: bool| {
        let mut page = vec![0; 80];
        (page[0], page[1], page[8], page[10], page[38]) = (7, 64, 80, 80, u8::from(is_last));
        page[13] = (17 * orbit as u8).wrapping_add(5 * place as u8);
        page[20..24].copy_from_slice(&orbit.to_le_bytes());
        page[36..38].copy_from_slice(&place.to_le_bytes());
        page
    };
    let whole = |orbit| (0..3).flat_map(move |place| page(orbit, place, place == 2)).collect::<Vec<u8>>();
    let to = directory.path().display().to_string();
    let good = written(&directory, "good.raw", &[whole(1), whole(2)].concat());
    Program::run(["verify", &good, "--format", "alice"]).expect_status(0);
    Program::run(["convert", &good, "--from", "alice", "--output", &to]).expect_status(0);
    let gap = [page(1, 0, false), page(1, 2, true), whole(2)].concat();
    let no_stop = [page(1, 0, false), page(1, 1, false), whole(2)].concat();
    let no_begin = [whole(1), page(2, 1, false), page(2, 2, true)].concat();
    for (name, bytes) in [("gap", gap), ("no_stop", no_stop), ("no_begin", no_begin)] {
        let file = written(&directory, name, &bytes);
        let account = Program::run(["verify", &file, "--format", "alice", "--json"]).expect_status(3).account();
        assert_eq!(account["sources"][0]["missing"], 1, "{name}");
        let converted = Program::run(["convert", &file, "--from", "alice", "--output", &to]);
        converted.expect_status(3);
        let said = |line: &str| converted.out.contains(&line.to_owned());
        assert!(said("events     2") && said("fragment_incomplete 1"), "{name}: {converted:#?}");
    }
}

#[test]
fn events_that_should_be_divided_and_are_not_are_counted() {
    let directory = TemporaryDirectory::new("undivided");
    let mut bytes = ForeignFormat::Frd.emulate(1, 1, &[7; 40]).expect("it is short").concat();
    // The last word of its last fragment is no longer a trailer.
    let last = bytes.len() - 1;
    bytes[last] ^= 0xF0;
    let file = written(&directory, "one.raw", &bytes);
    let to = directory.path().display().to_string();
    let converted = Program::run(["convert", &file, "--from", "frd", "--output", &to]);
    converted.expect_status(3);
    assert!(converted.out.contains(&"undivided  1".to_owned()), "{converted:#?}");
    assert!(converted.errors.contains("undivided"), "{converted:#?}");
}
