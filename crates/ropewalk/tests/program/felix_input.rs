//! Blocks from a file, a FIFO or standard input, into a run or to subscribers.

use crate::process::{Ended, Program};
use crate::support::{TemporaryDirectory, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;

const LINKS: u64 = 4;
const CHUNKS: u64 = 3000;

/// Blocks of all e-links, in a file.
fn generated(file: &Path, kind: &str) {
    let (file, links, chunks) = (file.display().to_string(), format!("0-{}", LINKS - 1), CHUNKS.to_string());
    let options = ["--kind", kind, "--elinks", &links, "--chunks", &chunks, "--chunk-size", "uniform(16,3000)"];
    Program::run([&["felix", "generate", &file][..], &options].concat()).expect_status(0);
}

/// The configuration file of a run of one card with these keys, whose first e-links are the sources from 100 on.
fn configuration(directory: &TemporaryDirectory, links: u64, card: &str) -> String {
    let mut text = "version = 1\n[timeouts]\nreadout = \"300ms\"\n[[readout]]\nname = \"ru0\"\npool = \"16MiB\"\n\
                    [[builder]]\nname = \"bu0\"\n[[felix]]\nname = \"flx0\"\nmemory = \"4MiB\"\n"
        .to_owned();
    text += card;
    for link in 0..links {
        let _ = write!(
            text,
            "\n[[source]]\nid = {}\nreadout = \"ru0\"\nmax_fragment = \"64KiB\"\nfelix = {{ card = \"flx0\", elink = {link} }}\n",
            100 + link
        );
    }
    let file = directory.path().join("run.toml");
    std::fs::write(&file, text).expect("a file can be written");
    file.display().to_string()
}

fn run_arguments(config: &str, directory: &TemporaryDirectory) -> Vec<String> {
    let output = directory.path().display().to_string();
    ["run", config, "--json", "--output", &output].map(str::to_owned).to_vec()
}

fn run(directory: &TemporaryDirectory, card: &str) -> Ended {
    Program::run(run_arguments(&configuration(directory, LINKS, card), directory))
}

fn expect_everything(account: &Value) {
    assert_eq!((&account["ledger"]["balanced"], &account["events"]["written"]), (&true.into(), &CHUNKS.into()));
    assert_eq!(account["fragments"]["in_complete_events"], CHUNKS * LINKS, "{account:#}");
}

#[test]
fn a_file_of_blocks_is_built_to_its_end_as_fast_as_is_wanted() {
    let directory = TemporaryDirectory::new("felix-file");
    let file = directory.path().join("blocks.dat");
    for (kind, blocks) in [("narrow", "0xABCD"), ("3KiB", "3KiB")] {
        generated(&file, kind);
        let card = format!("blocks = \"{blocks}\"\ninput = {file:?}");
        expect_everything(&run(&directory, &card).expect_status(0).account());
    }
    let bytes = std::fs::metadata(&file).expect("it is there").len();
    let card = format!("blocks = \"3KiB\"\ninput = {file:?}\ninput_speed = \"{}MB/s\"", bytes / 500_000);
    let account = run(&directory, &card).expect_status(0).account();
    expect_everything(&account);
    assert!(account["duration_s"].as_f64() > Some(0.4), "{account:#}");
}

#[test]
fn a_file_that_ends_within_a_block_is_built_up_to_there_and_the_rest_is_named() {
    let directory = TemporaryDirectory::new("felix-cut");
    let file = directory.path().join("blocks.dat");
    generated(&file, "narrow");
    let bytes = std::fs::metadata(&file).expect("it is there").len();
    File::options().write(true).open(&file).and_then(|file| file.set_len(bytes - 1000)).expect("it can be cut");
    let ended = run(&directory, &format!("blocks = \"0xABCD\"\ninput = {file:?}"));
    let account = ended.expect_status(3).account();
    assert_eq!((&account["ledger"]["balanced"], &account["cards"]["left_over_bytes"]), (&true.into(), &24.into()));
    let words = "blocks.dat: the last 24 bytes are no whole block";
    assert!(ended.errors.contains(words) && account["warnings"].to_string().contains(words), "{ended:#?}");
}

#[test]
fn bytes_between_blocks_are_passed_over_and_named() {
    let directory = TemporaryDirectory::new("felix-between");
    let file = directory.path().join("blocks.dat");
    generated(&file, "narrow");
    let mut bytes = std::fs::read(&file).expect("it is there");
    bytes.splice(20 << 10..20 << 10, [0; 100]);
    std::fs::write(&file, bytes).expect("it can be written");
    let ended = run(&directory, &format!("blocks = \"0xABCD\"\ninput = {file:?}"));
    expect_everything(&ended.account());
    assert!(ended.errors.contains("100 bytes between blocks"), "{ended:#?}");
}

#[test]
fn blocks_come_through_a_fifo_and_through_standard_input() {
    let directory = TemporaryDirectory::new("felix-fifo");
    let [file, fifo] = ["blocks.dat", "blocks.fifo"].map(|name| directory.path().join(name));
    generated(&file, "4KiB");
    let card = format!("input = \"fifo:{}\"", fifo.display());
    let running = Program::start(run_arguments(&configuration(&directory, LINKS, &card), &directory));
    wait_for("the FIFO", || fifo.exists().then_some(()));
    std::fs::copy(&file, &fifo).expect("the run reads it");
    expect_everything(&running.end().expect_status(0).account());

    let input = Stdio::from(File::open(&file).expect("it is there"));
    let config = configuration(&directory, LINKS, "input = \"-\"");
    expect_everything(&Program::reading(input, run_arguments(&config, &directory)).end().expect_status(0).account());
}

#[test]
fn a_run_whose_fifo_says_nothing_ends_at_a_signal() {
    let directory = TemporaryDirectory::new("felix-silent");
    let fifo = directory.path().join("blocks.fifo");
    let config = configuration(&directory, LINKS, &format!("input = \"fifo:{}\"", fifo.display()));
    let running = Program::start(run_arguments(&config, &directory));
    // Before the begin of the run there would be no account.
    wait_for("the run's begin", || directory.path().join("last-run").exists().then_some(()));
    assert!(fifo.exists(), "it was made");
    running.interrupt();
    let account = running.end().expect_status(0).account();
    assert_eq!(account["cards"]["blocks"], 0, "{account:#}");
}

#[test]
fn a_file_that_is_not_there_or_has_other_blocks_is_status_2_and_says_what_would_be_right() {
    let directory = TemporaryDirectory::new("felix-other");
    let file = directory.path().join("blocks.dat");
    generated(&file, "narrow");
    for (card, hint) in [
        (format!("input = {file:?}"), "blocks = \"0xABCD\""),
        ("input = \"no-such-file\"".to_owned(), "no-such-file"),
        (format!("input = \"fifo:{}\"", file.display()), "no FIFO"),
    ] {
        let ended = run(&directory, &card);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}

#[test]
fn the_cards_of_a_configuration_are_served_without_a_builder() {
    let directory = TemporaryDirectory::new("felix-serve-config");
    let file = directory.path().join("blocks.dat");
    generated(&file, "narrow");
    let of_file = format!("blocks = \"0xABCD\"\ninput = {file:?}\nserve = {{ wait = 1 }}");
    let emulated = "serve = { wait = 1 }\n[felix.emulate]\nrate = \"20kHz\"".to_owned();
    for (card, chunks) in [(of_file, None), (emulated, Some("5000"))] {
        let config = configuration(&directory, LINKS, &card);
        let mut server = Program::start(["felix", "serve", &config, "--json"]);
        let address = server.expect_line("ready flx0 ");
        let options: &[&str] = chunks.map_or(&[], |_| &["--chunks", "5000"]);
        let came = Program::run([&["felix", "subscribe", &address, "--json"], options].concat());
        let came = came.expect_status(0).account();
        assert_eq!((&came["chunks"], &came["dropped"]), (&chunks.map_or(CHUNKS * LINKS, |_| 5000).into(), &0.into()));
        if chunks.is_some() {
            server.interrupt();
        }
        let ended = server.end();
        let account = ended.account();
        assert!(matches!(ended.status, Some(0 | 3)) && account["ledger"]["balanced"] == true, "{ended:#?}");
        assert_eq!((&account["cards"], &account["subscribers"]), (&1.into(), &1.into()), "{account:#}");
    }
    let config = configuration(&directory, LINKS, "[felix.emulate]");
    let refused = Program::run(["felix", "serve", &config, "--loop"]);
    assert!(refused.expect_status(2).errors.contains("flx0 is emulated"), "{refused:#?}");
    let refused = Program::run(["felix", "serve", &configuration(&directory, LINKS, "")]);
    assert!(refused.expect_status(2).errors.contains("no blocks for flx0"), "{refused:#?}");
}

// ---- a card whose blocks another process writes, which may be killed

/// E-links of a card that another process writes.
const WRITER_LINKS: u64 = 6;

fn started(directory: &TemporaryDirectory, card: &str, options: &[&str]) -> Program {
    let config = configuration(directory, WRITER_LINKS, &format!("writer = \"process\"\n{card}"));
    let output = directory.path().display().to_string();
    Program::start([&["run", &config, "--json", "--output", &output], options].concat())
}

/// The account, which must balance.
fn balanced(ended: &Ended) -> Value {
    let account = ended.account();
    assert_eq!((&account["ledger"]["balanced"], &account["cards"]["left_over_bytes"]), (&true.into(), &0.into()));
    account
}

/// Checks that every chunk handed over is accounted for.
fn expect_nothing_lost(account: &Value) {
    let number = |group: &str, name: &str| account[group][name].as_u64().expect("a number");
    let came = number("cards", "chunks") + number("cards", "given_up");
    assert_eq!(number("fragments", "received"), came, "{account:#}");
}

#[test]
fn a_card_in_another_process_is_built_to_the_last_event_whether_it_is_woken_or_polled() {
    for (name, wake) in [("felix-process-wake", "interrupt"), ("felix-process-poll", "poll")] {
        let directory = TemporaryDirectory::new(name);
        let card = format!("wake = \"{wake}\"\n[felix.emulate]\nchunk_size = \"uniform(16,3000)\"\nrate = \"20kHz\"");
        let account = balanced(started(&directory, &card, &["--events", "4000"]).end().expect_status(0));
        expect_nothing_lost(&account);
        assert_eq!(account["events"]["written"], 4000, "{account:#}");
        assert_eq!(account["warnings"], serde_json::json!([]), "{account:#}");
    }
}

#[test]
fn a_run_that_is_stopped_stops_the_process_that_writes_its_card() {
    let directory = TemporaryDirectory::new("felix-process-stop");
    let mut run = started(&directory, "[felix.emulate]\nrate = \"10kHz\"", &["--duration", "500ms"]);
    let process: i32 = run.expect_error_line("flx0 is written by process ").parse().expect("a number");
    let account = balanced(run.end().expect_status(0));
    assert!(account["events"]["written"].as_u64() > Some(1000), "{account:#}");
    let process = Pid::from_raw(process).expect("a process");
    assert!(kill_process(process, Signal::CONT).is_err(), "nothing is left of it");
}

#[test]
fn a_writer_that_is_killed_is_named_and_costs_only_what_it_had_not_handed_over() {
    let directory = TemporaryDirectory::new("felix-process-killed");
    let mut run = started(&directory, "[felix.emulate]\nrate = \"20kHz\"\nchunk_size = \"2000\"", &[]);
    let process: i32 = run.expect_error_line("flx0 is written by process ").parse().expect("a number");
    let segments = || std::fs::read_dir(directory.path().join("run000001")).into_iter().flatten().flatten();
    let bytes = || segments().filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum::<u64>();
    crate::support::wait_for("some events in the files", || (bytes() > 20 << 20).then_some(()));
    kill_process(Pid::from_raw(process).expect("a process"), Signal::KILL).expect("it is alive");
    let ended = run.end();
    // The last events lack the chunks of partly filled blocks, unless all links were equally far.
    assert!(matches!(ended.status, Some(0 | 3)), "{ended:#?}");
    let words = format!("flx0: its writer, process {process}, was ended by signal 9");
    assert!(ended.errors.contains(&words), "{ended:#?}");
    let account = balanced(&ended);
    assert!(account["warnings"].to_string().contains(&words), "{account:#}");
    expect_nothing_lost(&account);
    let (built, incomplete) = (&account["events"]["built"], &account["events"]["incomplete_emitted"]);
    // A card writes a chunk of each link in turn: no link is ahead by more than its open block.
    assert!(built.as_u64() > Some(1500) && incomplete.as_u64() <= Some(8), "{account:#}");
}

#[test]
fn the_command_of_a_card_writer_is_refused_outside_of_a_run() {
    let directory = TemporaryDirectory::new("felix-process-alone");
    let config = directory.path().join("run.toml").display().to_string();
    started(&directory, "[felix.emulate]", &["--events", "10"]).end().expect_status(0);
    for (name, hint) in [("flx0", "writer = \"process\""), ("flx1", "there are: flx0")] {
        let ended = Program::run(["felix", "card", &config, name]);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}
