//! A board whose frames a splitter in C divides, in a process of its own or not: the example, compiled and run.

use crate::process::{Ended, Program};
use crate::support::{TemporaryDirectory, free_address, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Command;

const TRIGGERS: u64 = 5000;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/splitter").join(name)
}

/// Builds a library of a file in C.
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

/// The example's configuration with another library, address and whatever else; and that address.
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

fn started(directory: &TemporaryDirectory, config: &str) -> Program {
    let output = directory.path().display().to_string();
    let events = TRIGGERS.to_string();
    let mut run = Program::start(["run", config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("run");
    run
}

/// Lets the example's board send all triggers, and waits for the run's end.
fn taken(run: Program, address: &str, meanwhile: impl FnOnce()) -> Ended {
    let count = TRIGGERS.to_string();
    let mut board = Command::new("python3");
    let mut board = board.arg(example("board.py")).args([address, &count, "2500"]).spawn().expect("python3 is there");
    meanwhile();
    assert!(board.wait().expect("it is ours").success());
    run.end()
}

/// Everything that the board sent is in events, one for each trigger.
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

#[test]
fn a_splitter_that_cannot_be_used_is_refused_before_the_run_with_its_reason() {
    let directory = TemporaryDirectory::new("splitter-refused");
    let bad = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin/tests/misbehaving.c");
    for keys in ["", "trusted = true"] {
        let library = compile(&directory, &bad, &["-DVERSION=2"]);
        let (config, _) = configuration(&directory, &library, keys);
        let output = directory.path().display().to_string();
        let ended = Program::run(["run", &config, "--json", "--output", &output]);
        ended.expect_status(2);
        assert!(ended.errors.contains("trigger-board: its splitter cannot be used"), "{ended:#?}");
        assert!(ended.errors.contains("was built for version 2"), "{ended:#?}");
    }
    let ended = Program::run(["splitter-process"]);
    assert!(ended.expect_status(2).errors.contains("splitter-process"), "{ended:#?}");
}
