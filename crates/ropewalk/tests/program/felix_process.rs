//! A card whose blocks another process writes, which may be killed.

use crate::felix_input::configuration;
use crate::process::{Ended, Program};
use crate::support::TemporaryDirectory;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LINKS: u64 = 6;

fn started(directory: &TemporaryDirectory, card: &str, options: &[&str]) -> Program {
    let config = configuration(directory, LINKS, &format!("writer = \"process\"\n{card}"));
    let output = directory.path().display().to_string();
    Program::start([&["run", &config, "--json", "--output", &output], options].concat())
}

/// The account, which balances.
fn balanced(ended: &Ended) -> Value {
    let account = ended.account();
    assert_eq!((&account["ledger"]["balanced"], &account["cards"]["left_over_bytes"]), (&true.into(), &0.into()));
    account
}

/// Of every chunk that was handed over something became.
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
    // The last events lack the chunks whose blocks were not full, unless all links were equally far.
    assert!(matches!(ended.status, Some(0 | 3)), "{ended:#?}");
    let words = format!("flx0: its writer, process {process}, was ended by signal 9");
    assert!(ended.errors.contains(&words), "{ended:#?}");
    let account = balanced(&ended);
    assert!(account["warnings"].to_string().contains(&words), "{account:#}");
    expect_nothing_lost(&account);
    let (built, incomplete) = (&account["events"]["built"], &account["events"]["incomplete_emitted"]);
    // A card says a chunk of each link in turn: no link is further ahead than its open block.
    assert!(built.as_u64() > Some(1500) && incomplete.as_u64() <= Some(8), "{account:#}");
}

#[test]
fn the_command_that_a_run_starts_says_so_to_whoever_starts_it_otherwise() {
    let directory = TemporaryDirectory::new("felix-process-alone");
    let config = directory.path().join("run.toml").display().to_string();
    started(&directory, "[felix.emulate]", &["--events", "10"]).end().expect_status(0);
    for (name, hint) in [("flx0", "writer = \"process\""), ("flx1", "there are: flx0")] {
        let ended = Program::run(["felix", "card", &config, name]);
        assert!(ended.expect_status(2).errors.contains(hint), "{hint}: {ended:#?}");
    }
}
