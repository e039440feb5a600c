//! Parameters are changed while a run goes on, by `ctl`.

use crate::control::Controlled;
use crate::process::{Ended, Program};
use crate::support::{FrontEnd, Held, Setup};
use ropewalk_terms::Cause;
use serde_json::Value;

impl Controlled {
    fn set(&self, change: &str) -> Ended {
        Program::run(["ctl", "set", change, "--url", &self.url, "--by", "ada"])
    }
}

/// What people did is told where that is asked for, from then on.
#[test]
fn what_is_told_follows_the_log_level() {
    let setup = Setup::new("log-level", &[1]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    let run_and_set = |text: &str| {
        controlled.wait("a run to be set up", |state| state["state"] == "configured" && state["task"].is_null());
        controlled.good("start");
        controlled.good("stop");
        let told = controlled.set(&format!("monitor.log_level={text}"));
        told.expect_status(0);
    };
    run_and_set("info");
    run_and_set("error");
    run_and_set("error");
    controlled.good("shutdown");
    let ended = controlled.program.end();
    let count = |words: &str| ended.errors.lines().filter(|line| line.contains(words)).count();
    assert_eq!(count("monitor.log_level is info now, in the place of warning, by ada"), 1, "{}", ended.errors);
    // The first run was over by then, the third one began behind it.
    assert_eq!(count("start, by "), 1, "{}", ended.errors);
    assert_eq!(count("monitor.log_level is error now"), 0, "{}", ended.errors);
}

/// Where a source says nothing events wait for it as long as is right now, and not as long as was right when the run began.
#[test]
fn a_time_out_that_is_changed_holds_at_once_and_in_the_next_run() {
    let setup = Setup::new("parameters", &[841, 843]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    for run in 1..=2 {
        controlled.wait("the run to be set up", |state| state["run"] == run && state["task"].is_null());
        let address = controlled.address_of("ru0");
        assert_eq!(controlled.good("start")["state"], "running");
        let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
        front_ends.iter_mut().for_each(|front_end| front_end.send(1..=20));
        front_ends[0].send(21..=30);
        controlled.wait_for_written(if run == 1 { 20 } else { 30 });
        if run == 1 {
            // It is 100 s, and the test has failed by then.
            std::thread::sleep(std::time::Duration::from_millis(300));
            assert_eq!(controlled.good("ledger")["events"]["written"], 20);
            let told = controlled.set("timeouts.readout=200ms");
            told.expect_status(0);
            let line = told.out.iter().find(|line| line.starts_with("timeouts.readout = ")).expect("it is listed");
            assert!(line.starts_with("timeouts.readout = 200ms (configured: 100s)"), "{line}");
            controlled.wait_for_written(30);
        }
        controlled.good("stop");
        let held = Held::in_directories(&[setup.output().join(format!("run{run:06}"))]);
        held.expect_keys_up_to(30);
        held.expect_missing(843, 21..=30, Cause::TimedOut);
    }
    let journal = controlled.good("journal");
    let words = "timeouts.readout is 200ms now, in the place of 100s, by ada";
    assert!(journal.as_array().expect("a list").iter().any(|entry| entry["text"] == words), "{journal:#}");
    for (wrong, status, why) in [
        ("timeouts.builder=100ms", 3, "timeouts.builder (100ms) has to be longer than timeouts.readout (200ms)"),
        ("run.output=/", 2, "no parameter `run.output` can be changed now"),
        ("timeouts.readout", 2, "timeouts.readout=2s"),
    ] {
        let refused = controlled.set(wrong);
        let said = refused.expect_status(status).out.concat() + &refused.errors;
        assert!(said.contains(why), "{said}");
    }
    controlled.good("shutdown");
    let told: Vec<Value> =
        controlled.program.end().out.iter().map(|line| serde_json::from_str(line).expect("an account")).collect();
    assert!(told.iter().all(|account| account["ledger"]["balanced"] == true), "{told:#?}");
}
