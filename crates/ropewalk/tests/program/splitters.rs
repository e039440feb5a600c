//! A board whose frames a splitter in C divides, in a separate process or not: the example, compiled and run.

use crate::process::{Ended, Program};
use crate::support::{FrontEnd, TemporaryDirectory, free_address, wait_for};
use ropewalk_tools::RunIndex;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const TRIGGERS: u64 = 5000;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/splitter").join(name)
}

/// A splitter that misbehaves as the frames request.
fn misbehaving() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin/tests/misbehaving.c")
}

/// Builds a library of a C file.
fn compile(directory: &TemporaryDirectory, source: &Path, macros: &[&str]) -> PathBuf {
    let library = directory.path().join("splitter.so");
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/c");
    let built = Command::new("cc")
        .args(["-std=gnu99", "-O2", "-shared", "-fPIC", "-I"])
        .arg(bindings)
        .args(macros)
        .arg("-o")
        .args([&library, source])
        .status();
    assert!(built.expect("cc is there").success(), "{}", source.display());
    library
}

/// The example's configuration with another library, another address and more keys; and that address.
fn configuration(directory: &TemporaryDirectory, library: &Path, keys: &str) -> (String, String) {
    let address = free_address();
    let text = std::fs::read_to_string(example("run.toml")).expect("the example is there");
    let (before, after) = ("./trigger_board.so", library.display().to_string());
    assert!(text.contains(before) && text.contains("127.0.0.1:9300"));
    let text = text.replace(before, &after).replace("127.0.0.1:9300", &address);
    let file = directory.path().join("run.toml");
    std::fs::write(&file, format!("{text}\n{keys}\n")).expect("it is ours");
    (file.display().to_string(), address)
}

/// A configuration for the frames of `misbehaving`, which are datagrams; and its address.
fn board_of_two_bytes(directory: &TemporaryDirectory, library: &Path, keys: &str) -> (String, String) {
    let address = free_address();
    let text = format!(
        "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nname = \"board\"\n\
         readout = \"ru0\"\nlisten = \"udp://{address}\"\nframe = \"datagram\"\n[source.splitter]\nlibrary = {:?}\n{keys}\n",
        library.display().to_string()
    );
    let file = directory.path().join("run.toml");
    std::fs::write(&file, text).expect("it is ours");
    (file.display().to_string(), address)
}

fn started(directory: &TemporaryDirectory, config: &str) -> Program {
    let output = directory.path().display().to_string();
    let events = TRIGGERS.to_string();
    let mut run = Program::start(["run", config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("run");
    run
}

/// Runs the example's board until it has sent all triggers, and waits for the run's end.
fn taken(run: Program, address: &str, meanwhile: impl FnOnce()) -> Ended {
    let count = TRIGGERS.to_string();
    let mut board = Command::new("python3");
    let mut board = board.arg(example("board.py")).args([address, &count, "2500"]).spawn().expect("python3 is there");
    meanwhile();
    assert!(board.wait().expect("it is ours").success());
    run.end()
}

/// Checks that everything that the board sent is in events, one per trigger.
fn expect_all(ended: &Ended) {
    let account = ended.expect_status(0).account();
    assert_eq!((&account["ledger"]["balanced"], &account["events"]["written"]), (&true.into(), &TRIGGERS.into()));
    assert_eq!(account["fragments"]["in_complete_events"], TRIGGERS, "{account:#}");
}

#[test]
fn each_trigger_of_the_example_s_board_becomes_an_event() {
    for (name, keys) in [("splitter-process", ""), ("splitter-trusted", "trusted = true")] {
        let directory = TemporaryDirectory::new(name);
        let library = compile(&directory, &example("trigger_board.c"), &["-Wall", "-Wextra", "-Werror", "-pedantic"]);
        let (config, address) = configuration(&directory, &library, keys);
        expect_all(&taken(started(&directory, &config), &address, || {}));
    }
}

/// The children of a process.
fn children(process: u32) -> Vec<i32> {
    let path = format!("/proc/{process}/task");
    let tasks = std::fs::read_dir(path).into_iter().flatten().flatten();
    let listed = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    listed.flat_map(|line| line.split_whitespace().filter_map(|one| one.parse().ok()).collect::<Vec<_>>()).collect()
}

#[test]
fn a_splitter_whose_process_is_killed_again_and_again_loses_nothing() {
    let directory = TemporaryDirectory::new("splitter-killed");
    let library = compile(&directory, &example("trigger_board.c"), &[]);
    let (config, address) = configuration(&directory, &library, "restart_delay = \"10ms\"");
    let run = started(&directory, &config);
    let program = run.id();
    let ended = taken(run, &address, || {
        let mut before = Vec::new();
        for _ in 0..3 {
            let there = wait_for("another process", || {
                let now: Vec<_> = children(program).into_iter().filter(|child| !before.contains(child)).collect();
                (!now.is_empty()).then_some(now)
            });
            for child in &there {
                let _ = kill_process(Pid::from_raw(*child).expect("a process"), Signal::KILL);
            }
            before.extend(there);
        }
    });
    expect_all(&ended);
    assert_eq!(children(program), [0_i32; 0]);
    let of_source = &ended.account()["by_source"]["1"];
    assert!(of_source["splitter_restarts"].as_u64() >= Some(2), "{of_source:#}");
    assert!(of_source["frames_divided"].as_u64() > Some(0), "{of_source:#}");
}

/// The frame of these hits: their times in ticks, from shortly before the board's clock of 32 bits wraps.
fn frame_of_hits(board: u32, hits: std::ops::Range<u32>) -> Vec<u8> {
    let time = |hit: u32| (u32::MAX - 100).wrapping_add(3 * hit).to_le_bytes();
    let mut bytes = [&b"HT"[..], &(hits.len() as u16).to_le_bytes(), &time(hits.start), &[0; 4]].concat();
    for hit in hits {
        let data = data_of_hit(board, hit);
        bytes.extend([&time(hit)[..], &(data.len() as u16).to_le_bytes(), &data].concat());
    }
    let length = bytes.len() as u32;
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn data_of_hit(board: u32, hit: u32) -> Vec<u8> {
    vec![(board * 100 + hit) as u8; (hit % 40) as usize]
}

/// Boards without triggers: hits of the same time are one event, for any division into frames, and when clocks wrap.
#[test]
fn hits_of_the_same_time_are_an_event() {
    const HITS: u32 = 200;
    let directory = TemporaryDirectory::new("splitter-times");
    let library = compile(&directory, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/hits.c"), &["-Wall"]);
    let addresses = [free_address(), free_address()];
    let mut text = "version = 1\n[run]\nuntil_sources_end = true\n[[readout]]\nname = \"ru0\"\nwindow = 64\n\
                    [[builder]]\nname = \"bu0\"\n"
        .to_owned();
    for (id, address) in (1..).zip(&addresses) {
        text += &format!(
            "[[source]]\nid = {id}\nreadout = \"ru0\"\nlisten = \"tcp://{address}\"\n\
             frame = {{ length = {{ at = 8, type = \"u32le\" }}, max = \"64KiB\" }}\n\
             time = {{ at = 4, type = \"u32le\", tick = \"25ns\" }}\n\
             [source.splitter]\nlibrary = {:?}\nkeys = \"times\"\n",
            library.display().to_string()
        );
    }
    let config = directory.path().join("run.toml");
    std::fs::write(&config, text).expect("it is ours");
    let (config, output) = (config.display().to_string(), directory.path().display().to_string());
    let mut run = Program::start(["run", &config, "--json", "--output", &output]);
    run.expect_error_line_with("run");
    for (board, (address, packing)) in (1..).zip(std::iter::zip(&addresses, [7, 3])) {
        let frames = (0..HITS).step_by(packing).map(|first| {
            let last = HITS.min(first + packing as u32);
            frame_of_hits(board, first..last)
        });
        let bytes = frames.collect::<Vec<_>>().concat();
        std::net::TcpStream::connect(address).expect("it listens").write_all(&bytes).expect("it is read");
    }
    let ended = run.end();
    let account = ended.expect_status(0).account();
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    assert_eq!(account["fragments"]["in_complete_events"], 2 * HITS, "{account:#}");
    assert_eq!(account["fragments"]["frames_divided"], HITS.div_ceil(7) + HITS.div_ceil(3), "{account:#}");
    let index = RunIndex::build(&[account["directory"].as_str().expect("a path")]).expect("the files are whole");
    let (mut reader, mut next) = (index.reader(), 0);
    while let Some(event) = reader.next_event().expect("it can be read") {
        let held: Vec<_> = event.event.fragments().map(|one| (one.entry.source.0, one.payload.to_vec())).collect();
        assert_eq!(held, [1, 2].map(|board| (board, data_of_hit(board, next))));
        next += 1;
        assert_eq!(event.event.head().key.number(), u64::from(next), "events are numbered in the order of their times");
    }
    assert_eq!(next, HITS);
}

/// A forced stop names the data in the hands of a splitter, and does not wait for it.
#[test]
fn a_second_interrupt_names_the_frames_that_wait_for_a_splitter() {
    let directory = TemporaryDirectory::new("splitter-forced");
    let library = compile(&directory, &misbehaving(), &[]);
    let other = "[[source]]\nid = 841\nreadout = \"ru0\"\n\
                 [timeouts]\nreadout = \"20s\"\nbuilder = \"21s\"\nmanager = \"22s\"\ndrain = \"60s\"";
    let (config, address) = board_of_two_bytes(&directory, &library, &format!("timeout = \"1h\"\n{other}"));
    let output = directory.path().display().to_string();
    let mut run = Program::start(["run", &config, "--json", "--output", &output, "--control", "127.0.0.1:0"]);
    let control = run.expect_error_line("run control and dashboard: ");
    let front_ends = run.expect_error_line("ru0 listens on ");
    // It shows all events: the run must have them before it ends.
    let mut other = FrontEnd::ferol(&front_ends, 841);
    other.send(1..=20);
    let fragments = || Program::run(["ctl", "ledger", "--json", "--url", &control]).account()["fragments"].clone();
    // Unlike connections, datagrams do not wait for a run to begin.
    wait_for("the run to take something", || (fragments()["received"] == 20).then_some(()));
    let board = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    for number in 1..=20 {
        let what = if number == 2 { b'h' } else { b'.' };
        board.send_to(&[what, number], &address).expect("it is heard");
    }
    // The other source's data has arrived, and the first frame is divided. The run takes some of the rest, and then
    // holds the board back.
    wait_for("the first event", || {
        let fragments = fragments();
        (fragments["received"] == 21 && fragments["in_complete_events"] == 2).then_some(())
    });
    run.interrupt();
    run.expect_error_line("stopping: ");
    assert!(!run.has_ended(), "it waits for the splitter");
    let (program, interrupted) = (run.id(), std::time::Instant::now());
    run.interrupt();
    let ended = run.end();
    assert!(interrupted.elapsed() < std::time::Duration::from_secs(20));
    let account = ended.expect_status(130).account();
    assert_eq!((&account["state"], &account["ledger"]["balanced"]), (&"forced".into(), &true.into()), "{account:#}");
    let fragments = &account["fragments"];
    let counted = |key: &str| fragments[key].as_u64().expect("a number");
    let dropped = fragments["dropped"]["forced_stop"].as_u64().unwrap_or(0);
    assert_eq!(counted("received"), counted("in_complete_events") + dropped, "{account:#}");
    let of_board = &account["by_source"]["1"];
    let of_board_dropped = of_board["dropped"]["forced_stop"].as_u64().expect("the one over which it hangs, at least");
    assert_eq!(of_board["received"], of_board_dropped + 1, "all but the first wait: {account:#}");
    assert!(of_board_dropped <= 19 && dropped == of_board_dropped + 19, "{account:#}");
    assert_eq!(of_board["frames_divided"], 1, "{account:#}");
    assert_eq!(children(program), [0_i32; 0]);
}

/// A fault of a splitter in its process costs the frame at which it happens; the account has the reason.
#[test]
fn a_splitter_that_does_what_it_may_not_loses_those_frames_alone_and_its_reasons_are_reported() {
    let directory = TemporaryDirectory::new("splitter-forbidden");
    let library = compile(&directory, &misbehaving(), &[]);
    let keys = "restarts = 100\nrestart_delay = \"5ms\"\nmemory = \"16MiB\"";
    let (config, address) = board_of_two_bytes(&directory, &library, keys);
    let output = directory.path().display().to_string();
    let mut run = Program::start(["run", &config, "--json", "--output", &output, "--events", "8"]);
    run.expect_error_line_with("run");
    let board = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let frames = [b".\x01", b"r\x02", b"s\x03", b"f\x04", b"v\x05", b"w\x06", b"g\x07", b".\x08"];
    for frame in frames {
        board.send_to(frame, &address).expect("it is heard");
    }
    let ended = run.end();
    let account = ended.account();
    assert_eq!(account["ledger"]["balanced"], true, "{account:#}");
    assert_eq!(account["fragments"]["received"], 8, "{account:#}");
    assert_eq!(account["fragments"]["in_complete_events"], 2, "{account:#}");
    assert_eq!(account["fragments"]["dropped"], serde_json::json!({ "splitter_failed": 6 }), "{account:#}");
    for reason in [
        "it called `openat`, which is forbidden in its process (2 times)",
        "it called `socket`",
        "it called `clone`",
        "it called `execve`",
        "it wrote to what it may only read",
        "when its `memory` had run out",
    ] {
        let warnings = account["warnings"].as_array().expect("a list");
        let is_told = |warning: &serde_json::Value| warning.as_str().is_some_and(|text| text.contains(reason));
        assert!(warnings.iter().any(is_told) && warnings.len() == 6, "{reason}: {warnings:#?}");
        assert!(ended.errors.contains(reason.trim_end_matches(" (2 times)")), "{}", ended.errors);
    }
}

#[test]
fn a_splitter_that_cannot_be_used_is_refused_before_the_run_with_its_reason() {
    let directory = TemporaryDirectory::new("splitter-refused");
    for keys in ["", "trusted = true"] {
        let library = compile(&directory, &misbehaving(), &["-DVERSION=2"]);
        let (config, _) = configuration(&directory, &library, keys);
        let output = directory.path().display().to_string();
        let ended = Program::run(["run", &config, "--json", "--output", &output]);
        ended.expect_status(2);
        assert!(ended.errors.contains("trigger-board: its splitter cannot be used"), "{ended:#?}");
        assert!(ended.errors.contains("was built for version 2"), "{ended:#?}");
    }
    for command in ["splitter-process", "filter-process"] {
        let ended = Program::run([command]);
        let told = format!("{command}: a run starts this by itself");
        assert!(ended.expect_status(2).errors.contains(&told), "{ended:#?}");
    }
}

/// `source test` divides recorded frames, here of two triggers each, and checks the numbers of their events.
#[test]
fn a_splitter_is_tested_on_recorded_frames() {
    let directory = TemporaryDirectory::new("splitter-tested");
    let library = compile(&directory, &example("trigger_board.c"), &[]);
    let frame = |first: u32| {
        let trigger = |number: u32| [&number.to_le_bytes()[..], &4_u16.to_le_bytes(), &[7; 4]].concat();
        [b"TB\x02\x00".to_vec(), trigger(first), trigger(first + 1)].concat()
    };
    let frames: Vec<Vec<u8>> = (0..100).map(|index| frame(2 * index)).collect();
    let (input, file) = (directory.path().join("board.raw"), directory.path().join("tested.toml"));
    let text = format!(
        "version = 1\n[[readout]]\nname = \"ru0\"\n[[builder]]\nname = \"bu0\"\n[[source]]\nid = 1\nname = \"board\"\n\
         readout = \"ru0\"\ninput = {input:?}\nframe = {{ fixed = \"24B\" }}\nmatch = {{ at = 0, bytes = \"TB\" }}\n\
         counter_bits = 32\n[source.splitter]\nlibrary = {:?}\n",
        library.display().to_string()
    );
    std::fs::write(&file, &text).expect("it is ours");
    let (input, file) = (input.display().to_string(), file.display().to_string());
    let tried = |bytes: Vec<u8>, status: i32| {
        std::fs::write(&input, bytes).expect("it is ours");
        let ended = Program::run(["source", "test", &file, "--source", "board", "--input", &input]);
        ended.expect_status(status).out.join("\n")
    };
    let good = tried(frames.concat(), 0);
    for text in ["the splitter divided them into 200 events", "event: 0 to 199"] {
        assert!(good.contains(text), "{text}: {good}");
    }
    let mut lost = frames.clone();
    lost.remove(50);
    let missing = tried(lost.concat(), 3);
    assert!(missing.contains("gaps 1, missing 2") && missing.contains("102 comes after 99"), "{missing}");
    let mut malformed = frames.clone();
    malformed[3][8] = 200;
    let refused = tried(malformed.concat(), 1);
    assert!(refused.contains("source[0].splitter: the splitter cannot divide this frame"), "{refused}");
    // The number of the first trigger counts neither the events in a frame nor the frames.
    let with = |key: &str| {
        let field = format!("{key} = {{ at = 4, type = \"u32le\" }}\n[source.splitter]");
        std::fs::write(&file, text.replace("[source.splitter]", &field)).expect("it is ours");
        Program::run(["config", "check", &file])
    };
    assert!(with("event").expect_status(2).errors.contains("leave `event` out"));
    assert!(with("sequence").expect_status(0).errors.contains("warning: board: `sequence` beside a splitter"));
}
