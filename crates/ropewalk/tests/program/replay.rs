//! A recorded run is played into a second one, which then holds the same.

use crate::process::Program;
use crate::support::{FrontEnd, Setup};
use serde_json::Value;
use std::path::Path;

fn verified(directory: &Path) -> Value {
    Program::run(["verify".as_ref(), directory.as_os_str(), "--json".as_ref()]).expect_status(0).account()
}

/// Starts a run of so many events and returns it with the address for front ends.
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

/// Generic fragments, some sources alone, and more than once with numbers that go on counting.
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
        // Nobody listens there any more.
        let ended = replay(directory(&account), &address, more).end();
        assert!(ended.expect_status(status).errors.contains(hint), "{ended:#?}");
    }
    assert!(Program::run(["replay", "no-such-run", "--to", &address]).expect_status(2).errors.contains("no-such-run"));
}
