//! Filter units that stand still in the middle of an event, and those that go on meanwhile.

use crate::filters::{EVENTS, children, compile, configuration, expect_each_filled_once, expect_each_once, stream};
use crate::process::Program;
use crate::support::{TemporaryDirectory, wait_for};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Nanoseconds of the clock that the filter reads as well.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Stops a filter unit's process wherever it is, when there are two that have been there for a while: one that begins may take longer.
fn stop_one(run: &Program, which: usize) -> Pid {
    std::thread::sleep(Duration::from_millis(400));
    let there = wait_for("two filter units", || Some(children(run.id())).filter(|there| there.len() == 2));
    let process = Pid::from_raw(there[which % 2]).expect("a process");
    kill_process(process, Signal::STOP).expect("it is there");
    process
}

fn count(account: &Value, place: &str) -> u64 {
    account.pointer(place).and_then(Value::as_u64).unwrap_or_else(|| panic!("{place}: {account:#}"))
}

/// Whoever is woken when it was too late finds that it has ended: nothing of what it might have said comes after that.
#[test]
fn a_filter_unit_that_stands_still_is_ended_and_what_it_had_is_decided_elsewhere_once() {
    let directory = TemporaryDirectory::new("filter-stopped");
    let config = configuration(&directory, "units = 2\nevents = 64\ntimeout = \"300ms\"");
    compile(directory.path(), &["-DENDS_OVER=20000"]);
    let (output, events) = (directory.path().display().to_string(), EVENTS.to_string());
    let mut run = Program::start(["run", &config, "--json", "--output", &output, "--events", &events]);
    run.expect_error_line_with("listens");
    for which in 0..4 {
        let stopped = stop_one(&run, which);
        wait_for("its end", || (!children(run.id()).contains(&stopped.as_raw_nonzero().get())).then_some(()));
        assert_eq!(kill_process(stopped, Signal::CONT), Err(Errno::SRCH), "nobody is there to be woken");
    }
    let account = run.end().expect_status(0).account();
    let of = PathBuf::from(account["directory"].as_str().expect("a path"));
    let [odd, even, error] = ["odd", "even", "error"].map(|name| stream(&of, name));
    expect_each_once([&odd, &even, &error], EVENTS, 0);
    expect_each_filled_once(&account, &error);
    let decided = count(&account, "/events/accepted") + count(&account, "/events/rejected");
    assert_eq!(decided + error.len() as u64, EVENTS);
    assert_eq!(count(&account, "/filter/stale_decisions"), 0, "what has ended says nothing");
    let warnings = account["warnings"].to_string();
    assert!(warnings.contains("it took longer than `timeout`"), "{warnings}");
}

/// The other one decides as before, measured by the times at which the filter itself says that it decided.
#[test]
fn while_one_filter_unit_hangs_the_other_one_decides_as_fast_as_before() {
    let directory = TemporaryDirectory::new("filter-hangs");
    let config = configuration(&directory, "units = 2\nevents = 64\ntimeout = \"4s\"");
    // An ordered stream would have to wait for what the one that hangs has.
    let text = std::fs::read_to_string(&config).expect("it is ours").replace("\"even\"", "\"twentieth\"");
    let text = text.replace("ordered = true\n", "");
    std::fs::write(&config, text).expect("it is ours");
    compile(directory.path(), &["-DENDS_OVER=1000000", "-DTIMED"]);
    let output = directory.path().display().to_string();
    let mut run = Program::start(["run", &config, "--json", "--output", &output, "--events", "40000"]);
    run.expect_error_line_with("listens");
    std::thread::sleep(Duration::from_millis(1500));
    let begin = now();
    stop_one(&run, 0);
    let account = run.end().expect_status(0).account();
    assert_eq!(count(&account, "/events/accepted"), 4000, "{account:#}");
    assert!(count(&account, "/filter/returned") > 0, "it had events when it was stopped");
    let of = PathBuf::from(account["directory"].as_str().expect("a path"));
    let accepted = ["odd", "twentieth"].map(|name| stream(&of, name)).into_iter().flatten();
    let times: Vec<u64> = accepted
        .map(|(_, (_, own))| u64::from_le_bytes(own[8..].try_into().expect("the number and the time")))
        .collect();
    let between = |from: f64, to: f64| {
        let [from, to] = [from, to].map(|seconds| (begin as f64 + seconds * 1e9) as u64);
        times.iter().filter(|time| (from..to).contains(time)).count()
    };
    let before = between(-1.0, 0.0);
    assert!(before > 0, "it was running when one was stopped");
    // Each second for itself: whoever waits does so all the time.
    for second in [0.2, 1.2, 2.2] {
        let during = between(second, second + 1.0);
        assert!(
            2 * during >= before,
            "{during} a second instead of {before}, {second} s after the other one was stopped"
        );
    }
}
