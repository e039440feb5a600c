//! Files in place of sources and commands: what cannot be read, or only in part, is named and has a status.

use crate::process::{Ended, Program};
use crate::support::{FrontEnd, Setup, TemporaryDirectory};
use ropewalk_terms::Utc;
use ropewalk_wire::capture::{LinkType, encode_interface, encode_packet};
use ropewalk_wire::internet::PacketBuilder;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

const FRAMES: u32 = 400;

/// A frame: a constant word, the event, and incompressible bytes.
fn frame(event: u32) -> Vec<u8> {
    let noise = (0..500_u32).map(|index| (event.wrapping_mul(2_654_435_761).rotate_left(index) ^ index) as u8);
    [&b"RB"[..], &event.to_be_bytes()].concat().into_iter().chain(noise).collect()
}

/// A pcap file with each frame as a datagram.
fn capture() -> Vec<u8> {
    let mut file = Vec::new();
    encode_interface(LinkType::RAW, &mut file);
    for event in 1..=FRAMES {
        let mut packet = Vec::new();
        let addresses = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        addresses.udp(4000, 9000).write(&mut packet, &frame(event)).expect("it is short");
        encode_packet(Utc(i64::from(event) * 1_000_000), &packet, &mut file);
    }
    file
}

/// Compresses with a usual program; `None` if the machine lacks it.
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
fn what_programs_packed_is_read_and_a_packed_file_that_is_cut_off_is_named() {
    let case = Case::new("inputs-packed");
    let capture = capture();
    // Blocks not much larger than the capture, so that one of them is whole.
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

fn verified(directory: &Path) -> Value {
    Program::run(["verify".as_ref(), directory.as_os_str(), "--json".as_ref()]).expect_status(0).account()
}

/// Starts a run of this many events and returns it with the address for front ends.
fn started(setup: &Setup, events: u64) -> (Program, String) {
    let file = setup.file().display().to_string();
    let mut run = Program::start(["run", &file, "--events", &events.to_string(), "--json"]);
    let address = run.expect_error_line("ru0 listens on ");
    (run, address)
}

fn directory(account: &Value) -> &Path {
    Path::new(account["directory"].as_str().expect("a directory"))
}

fn replay(directory: &Path, address: &str, more: &[&str]) -> Program {
    let directory = directory.to_str().expect("a path in UTF-8");
    Program::start([&["replay", directory, "--to", address][..], more].concat())
}

#[test]
fn a_demo_that_is_played_again_is_the_same_data() {
    let sources: Vec<u32> = (0..4).collect();
    let setup = Setup::new("replay-demo", &sources);
    let output = setup.output().display().to_string();
    let demo = ["demo", "--events", "500", "--sources", "4", "--fragment-size", "uniform(64,9000)", "--json"];
    let recorded = Program::run([&demo[..], &["--output", &output]].concat());
    let recorded = verified(directory(&recorded.expect_status(0).account()));
    assert_eq!(recorded["events"], 500);

    let (run, address) = started(&setup, 500);
    let played = replay(&setup.output().join("run000001"), &address, &[]).end();
    assert!(played.expect_status(0).out[0].starts_with("sent 500 events, 2,000 fragments, "), "{played:#?}");
    let account = run.end().expect_status(0).account();
    let again = verified(directory(&account));
    assert_eq!(again["payload_sha256"], recorded["payload_sha256"]);
    assert_eq!(again["events"], recorded["events"]);
}

/// Generic fragments, some sources alone, and repeatedly with continued numbers.
#[test]
fn both_formats_are_played_and_numbers_go_on_counting() {
    let generic = "id = 77\nreadout = \"ru0\"\nformat = \"generic\"";
    let setup = Setup::new("replay-both", &[841]).source(generic);
    let (run, address) = started(&setup, 60);
    let (mut one, mut other) = (FrontEnd::ferol(&address, 841), FrontEnd::generic(&address, 77));
    one.send(1..=60);
    other.send(1..=60);
    let first = run.end().expect_status(0).account();

    let (run, address) = started(&setup, 150);
    let mut looped = [["--sources", "841", "--loop"], ["--sources", "77", "--loop"]]
        .map(|more| replay(directory(&first), &address, &more));
    let account = run.end().expect_status(0).account();
    looped.iter_mut().for_each(Program::kill);
    assert_eq!((&account["events"]["built"], &account["fragments"]["crc_errors"]), (&150.into(), &0.into()));
    let verified = verified(directory(&account));
    assert_eq!((&verified["events"], &verified["gaps"], &verified["crc_errors"]), (&150.into(), &0.into(), &0.into()));
}

#[test]
fn what_cannot_be_played_is_named() {
    let setup = Setup::new("replay-wrong", &[841]);
    let (run, address) = started(&setup, 5);
    FrontEnd::ferol(&address, 841).send(1..=5);
    let account = run.end().expect_status(0).account();
    for (more, status, hint) in [
        (&["--sources", "842"][..], 2, "there are 841"),
        (&["--speed", "1x"], 4, ""),
        (&["--speed", "2x"], 2, "1x"),
        (&[], 4, "source 841"),
    ] {
        // The run has ended, so nothing listens at its address.
        let ended = replay(directory(&account), &address, more).end();
        assert!(ended.expect_status(status).errors.contains(hint), "{ended:#?}");
    }
    assert!(Program::run(["replay", "no-such-run", "--to", &address]).expect_status(2).errors.contains("no-such-run"));
}

#[test]
fn what_init_writes_is_checked_and_runs_at_once() {
    for kind in ["testbeam", "pull", "gateway", "felix"] {
        let directory = TemporaryDirectory::new("init");
        let path = directory.path().join("new");
        let (place, file) = (path.display().to_string(), path.join(format!("{kind}.toml")));
        let written = Program::run(["init", kind, &place]);
        assert!(written.expect_status(0).out.iter().any(|line| line.contains("--duration 10s")), "{written:#?}");
        // A separate port, because other tests run at the same time.
        let text = std::fs::read_to_string(&file).expect("it was written");
        let schema =
            text.lines().next().and_then(|line| line.strip_prefix("#:schema ")).expect("the schema for editors");
        let schema = std::fs::read_to_string(path.join(schema)).expect("it is beside the file");
        assert!(schema.contains("\"$defs\"") && schema.contains("\"pattern\""), "{kind}");
        std::fs::write(&file, text.replace("127.0.0.1:9570", "127.0.0.1:0")).expect("it is ours");
        let name = file.display().to_string();
        Program::run(["config", "check", &name]).expect_status(0);
        let ran = Program::run(["run", &name, "--duration", "1s", "--output", &place, "--json"]);
        let account = ran.expect_status(0).account();
        assert_eq!(account["ledger"]["balanced"], true, "{kind}: {account}");
        let events = account["events"]["written"].as_u64();
        assert!(events > Some(20), "{kind}: {account}");
        let verified = Program::run(["verify", &path.join("run000001").display().to_string(), "--json"]);
        assert_eq!(verified.expect_status(0).account()["events"].as_u64(), events, "{kind}");
    }
}

#[test]
fn init_writes_over_nothing() {
    let directory = TemporaryDirectory::new("init-twice");
    let place = directory.path().display().to_string();
    Program::run(["init", "pull", &place]).expect_status(0);
    let file = directory.path().join("pull.toml");
    std::fs::write(&file, "mine").expect("it is ours");
    let again = Program::run(["init", "pull", &place]);
    assert!(again.expect_status(2).errors.contains("is there already"), "{again:#?}");
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "mine");
    Program::run(["init", "pull", "/proc/nowhere"]).expect_status(4);
    let unknown = Program::run(["init", "beam", &place]);
    assert!(unknown.expect_status(2).errors.contains("testbeam"), "{unknown:#?}");
}

fn runs(output: &Path, arguments: &[&str]) -> Ended {
    let output = output.to_str().expect("it is text");
    Program::run([&["runs"], arguments, &["--output", output]].concat())
}

fn seconds_since_1970() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later").as_secs() as i64
}

#[test]
fn runs_are_listed_shown_compared_noted_and_exported() {
    let temporary = TemporaryDirectory::new("runs");
    let output = temporary.path();
    let directory = output.to_str().expect("it is text");
    let before = seconds_since_1970();
    for events in ["300", "500"] {
        let demo = ["demo", "--events", events, "--sources", "4", "--json", "--output", directory];
        Program::run(demo).expect_status(0);
    }
    std::fs::create_dir(output.join("run000007")).expect("it can be made");

    let list = runs(output, &["list", "--json"]).expect_status(0).account();
    let told =
        |name: &str| list.as_array().expect("a list").iter().map(|run| run[name].clone()).collect::<Vec<Value>>();
    assert_eq!(told("run"), [1, 2, 7]);
    assert_eq!(told("has_account"), [true, true, false]);
    assert_eq!(told("written"), [300.into(), 500.into(), Value::Null]);
    assert_eq!(told("is_balanced"), [true.into(), true.into(), Value::Null]);
    let began = told("started_ns")[0].as_i64().expect("a time") / 1_000_000_000;
    assert!((before..=seconds_since_1970()).contains(&began), "{began}");
    let table = runs(output, &["list"]).expect_status(0).out.join("\n");
    assert!(table.contains("no account: not begun, still running, or killed"), "{table}");

    runs(output, &["note", "2", "target, moved", "--by", "ada"]).expect_status(0);
    let shown = runs(output, &["show", "2", "--json"]).expect_status(0).account();
    // The program itself has recorded the result of the run.
    let note = shown["notes"].as_array().expect("a list").last().expect("a note");
    assert_eq!((&note["kind"], &note["by"], &note["text"]), (&"note".into(), &"ada".into(), &"target, moved".into()));
    let lines = runs(output, &["show", "2"]).expect_status(0).out.clone();
    assert!(lines.last().expect("a line").ends_with("  note      ada: target, moved"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("  command   ") && line.contains(": start, by ")), "{lines:#?}");

    let compared = runs(output, &["compare", "1", "2"]).expect_status(0).out.clone();
    let line = |name: &str| compared.iter().find(|line| line.contains(name)).expect("it is there");
    assert!(line("events complete").contains("differs") && !line("sources").contains("differs"), "{compared:#?}");

    assert!(line("configuration").contains("differs") && line("run.events").contains("300"), "{compared:#?}");
    let both = runs(output, &["compare", "1", "2", "--json"]).expect_status(0).account();
    let differing = |run: usize| both[run]["differing_configuration"]["run.events"].clone();
    assert_eq!((differing(0), differing(1)), ("300".into(), "500".into()));
    let kept = std::fs::read_to_string(output.join("run000002/configuration.toml")).expect("it is kept");
    assert!(kept.contains("events = 500"), "{kept}");
    let digest = shown["configuration_sha256"].as_str().expect("a digest");
    assert_eq!(digest.len(), 64);
    let account = std::fs::read_to_string(output.join("run000002/run.json")).expect("it is kept");
    assert!(account.contains(digest) && line("configuration").contains(&digest[..16]), "{account}");
    let bare = runs(output, &["compare", "1", "7"]).expect_status(0).out.clone();
    assert!(bare.last().expect("a line").contains("one of the runs has none"), "{bare:#?}");

    // Whether the clock is synchronised depends on the machine; that it was checked does not.
    let clock = &shown["clock"];
    assert!(["at_start", "at_end"].iter().all(|end| clock[end]["synchronised"].is_boolean()), "{clock}");
    assert!(line("clock").contains("synchronised"), "{compared:#?}");

    let csv = runs(output, &["export"]).expect_status(0).out.clone();
    assert_eq!(csv.len(), 4, "{csv:#?}");
    assert!(csv[0].starts_with("run,began,") && csv[2].ends_with(",true,,,\"target, moved\","), "{csv:#?}");
}

#[test]
fn what_is_said_at_a_runs_start_is_kept_and_what_has_to_be_said_is_asked_for() {
    let temporary = TemporaryDirectory::new("runs-fields");
    let output = temporary.path();
    let file = output.join("fields.toml");
    let text = format!(
        "version = 1\n[run]\noutput = {output:?}\nevents = 100\nrequired_fields = [\"beam\", \"shifter\"]\n[[readout]]\n\
         name = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nreadout = \"ru0\"\n\
         emulate = {{ rate = \"100Hz\", fragment_size = \"64B\" }}\n"
    );
    std::fs::write(&file, text).expect("it can be written");
    let run = |more: &[&str]| {
        let arguments = ["run", file.to_str().expect("it is text"), "--json"];
        Program::run([&arguments, more].concat())
    };
    let refused = run(&["--field", "beam=120 GeV"]);
    assert!(refused.expect_status(2).errors.contains("a run's start needs shifter"), "{refused:#?}");
    assert!(!output.join("run000001").exists());
    assert!(run(&["--field", "Beam"]).expect_status(2).errors.contains("`Beam` is not NAME=VALUE"));
    let account = run(&["--field", "beam=120 GeV", "--field", "shifter=ada"]).expect_status(0).account();
    assert_eq!(account["fields"], serde_json::json!({ "beam": "120 GeV", "shifter": "ada" }));

    let file = file.to_str().expect("it is text");
    let served = ["run", file, "--control", "127.0.0.1:0", "--idle", "--json", "--field", "shifter=bob"];
    let mut program = Program::start(served);
    let url = program.expect_error_line("run control and dashboard: ");
    let ctl = |more: &[&str]| Program::run([&["ctl"], more, &["--url", &url, "--json"]].concat());
    crate::support::wait_for("a run that is set up", || {
        let state = ctl(&["state"]).expect_status(0).account();
        (state["state"] == "configured").then_some(())
    });
    assert_eq!(ctl(&["state"]).account()["required_fields"], serde_json::json!(["beam", "shifter"]));
    let refused = ctl(&["start"]);
    assert_eq!(refused.expect_status(3).account()["answer"], "refused");
    assert!(refused.account()["text"].as_str().expect("why").contains("needs beam"), "{refused:#?}");
    let wrong = ctl(&["start", "--field", "beam"]).expect_status(3).account();
    assert!(wrong["error"].as_str().expect("why").contains("`beam` is not NAME=VALUE"), "{wrong}");
    ctl(&["start", "--field", "beam=60 GeV"]).expect_status(0);
    crate::support::wait_for("its account", || output.join("run000002/run.json").exists().then_some(()));
    ctl(&["note", "beam back", "--run", "2", "--by", "bob"]).expect_status(0);
    ctl(&["note", "beam back", "--run", "9"]).expect_status(2);
    assert!(ctl(&["note"]).expect_status(2).errors.contains("<TEXT>"));
    ctl(&["shutdown"]).expect_status(0);
    program.end().expect_status(0);
    assert!(
        runs(output, &["show", "2"]).expect_status(0).out.iter().any(|line| line.contains("beam=60 GeV, shifter=bob"))
    );
    let shown = runs(output, &["show", "2"]).out.clone();
    assert!(shown.iter().any(|line| line.ends_with("bob: beam back")), "{shown:#?}");
    assert!(shown.iter().any(|line| line.contains("ropewalk: ") && line.ends_with("running")), "{shown:#?}");
    let csv = runs(output, &["export"]).expect_status(0).out.clone();
    assert!(csv[1].contains(",\"beam=120 GeV, shifter=ada\",") && csv[2].ends_with(",beam back,"), "{csv:#?}");
}

#[test]
fn a_missing_run_is_named_with_the_existing_ones() {
    let temporary = TemporaryDirectory::new("runs-none");
    let output = temporary.path();
    std::fs::create_dir(output.join("run000003")).expect("it can be made");
    for arguments in [&["show", "4"][..], &["compare", "3", "4"], &["note", "4", "what"]] {
        let ended = runs(output, arguments);
        assert!(ended.expect_status(2).errors.contains("there is no run 4; there are 3 to 3"), "{ended:#?}");
    }
    assert!(!output.join("logbook.jsonl").exists());
    let ended = runs(output, &["note", "3", " "]);
    assert!(ended.expect_status(2).errors.contains("a note has 1 to 16384 bytes"), "{ended:#?}");
    let ended = runs(&output.join("nowhere"), &["list"]);
    assert!(ended.expect_status(2).errors.contains("there is no such directory"), "{ended:#?}");
    std::fs::write(output.join("run000003/run.json"), "{").expect("it can be written");
    assert!(runs(output, &["list"]).expect_status(0).errors.contains("warning: "));
    assert!(runs(output, &["show", "3"]).expect_status(4).errors.contains("run000003"));
}
