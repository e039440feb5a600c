//! An earlier run that the current one is compared with.

use crate::process::Program;
use crate::support::{Setup, wait_for};
use serde_json::{Value, json};

/// A source of this many fragments a second, and an alarm if the rate is less than half of the reference.
fn setup() -> Setup {
    Setup::new("reference", &[])
        .source("id = 1\nreadout = \"ru0\"\nemulate = { rate = \"10kHz\", fragment_size = \"1KiB\" }")
        .and("[[alarm]]\nname = \"slower\"\nquantity = \"reference:bytes_in_per_second\"\nbelow = -50\n")
}

#[test]
fn a_run_that_is_slower_than_its_reference_raises_the_alarm_that_looks_at_it() {
    let setup = setup();
    let file = setup.file();
    let mut program = Program::start(["run", &file.display().to_string(), "--control", "127.0.0.1:0"]);
    let url = program.expect_error_line("run control and dashboard: ");
    let ctl = |words: &[&str], status: i32| {
        let words = ["ctl"].iter().chain(words).copied().chain(["--url", &url, "--json"]);
        Program::run(words).expect_status(status).account()
    };
    let refused = ctl(&["reference", "1"], 2);
    assert!(refused["error"].as_str().is_some_and(|text| text.ends_with("no run has one yet")), "{refused:#}");
    assert_eq!(ctl(&["reference"], 0)["run"], Value::Null);
    wait_for("five seconds of the run", || (ctl(&["state"], 0)["age_s"].as_f64() > Some(5.0)).then_some(()));
    ctl(&["stop"], 0);
    wait_for("its course", || setup.output().join("run000001/course.json").exists().then_some(()));
    let told = ctl(&["reference", "1"], 0);
    assert_eq!((&told["run"], &told["step_seconds"]), (&json!(1), &json!(1)), "{told:#}");
    let rates = told["series"]["bytes_in_per_second"].as_array().expect("a series");
    assert!(rates.iter().any(|rate| rate.as_f64() > Some(5e6)), "{rates:?}");
    let sizes = told["series"]["event_size_bytes"].as_array().expect("a series");
    assert!(sizes.iter().any(|size| *size == json!(1024.0)), "{sizes:?}");
    ctl(&["reset"], 0);
    let text = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, text.replace("10kHz", "1kHz")).expect("it can be written");
    ctl(&["configure"], 0);
    ctl(&["start"], 0);
    let is_raised = || {
        let alarms = ctl(&["alarms"], 0);
        let slower = alarms.as_array().into_iter().flatten().find(|alarm| alarm["name"] == "slower").cloned()?;
        (slower["state"] == "active").then_some(slower)
    };
    let value = wait_for("the alarm", is_raised)["value"].as_f64().expect("it has a value");
    assert!((-100.0..-50.0).contains(&value), "{value}");
    assert_eq!(ctl(&["reference", "off"], 0)["run"], Value::Null);
    ctl(&["shutdown"], 0);
    program.end().expect_status(0);
}

#[test]
fn a_reference_that_there_is_not_is_said_before_a_run_begins() {
    let setup = setup().and("[monitor]\nreference = 7\n");
    let ended = Program::run(["run", &setup.file().display().to_string(), "--control", "127.0.0.1:0"]);
    ended.expect_status(4);
    assert!(ended.errors.contains("[monitor] reference: run 7 has no course.json"), "{}", ended.errors);
}
