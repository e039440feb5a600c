//! Blocks that are read: from a file, a FIFO or standard input, into a run or to subscribers.

use crate::process::{Ended, Program};
use crate::support::{TemporaryDirectory, wait_for};
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

/// The file of a run of one card of which this is said, whose first e-links are the sources from 100 on.
pub(crate) fn configuration(directory: &TemporaryDirectory, links: u64, card: &str) -> String {
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
    std::fs::copy(&file, &fifo).expect("somebody reads it");
    expect_everything(&running.end().expect_status(0).account());

    let input = Stdio::from(File::open(&file).expect("it is there"));
    let config = configuration(&directory, LINKS, "input = \"-\"");
    expect_everything(&Program::reading(input, run_arguments(&config, &directory)).end().expect_status(0).account());
}

#[test]
fn a_run_whose_fifo_says_nothing_ends_when_it_is_told() {
    let directory = TemporaryDirectory::new("felix-silent");
    let fifo = directory.path().join("blocks.fifo");
    let config = configuration(&directory, LINKS, &format!("input = \"fifo:{}\"", fifo.display()));
    let running = Program::start(run_arguments(&config, &directory));
    // Before it has begun there would be nothing to account for.
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
    let nobody = Program::run(["felix", "serve", &configuration(&directory, LINKS, "")]);
    assert!(nobody.expect_status(2).errors.contains("no blocks for flx0"), "{nobody:#?}");
}
