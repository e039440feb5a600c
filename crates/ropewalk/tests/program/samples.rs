//! Copies of events while they are built, shown by `ctl`.

use crate::control::Controlled;
use crate::process::Program;
use crate::support::{FrontEnd, Setup};
use serde_json::Value;

#[test]
fn samples_of_events_are_shown_as_many_as_were_asked_for() {
    let setup = Setup::new("ctl-samples", &[841]);
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    let mut one = FrontEnd::ferol(&controlled.address_of("ru0"), 841);
    controlled.good("start");
    let words =
        ["ctl", "samples", "--url", &controlled.url, "--rate", "20", "--count", "2", "--source", "841", "--json"];
    let (mut samples, mut next) = (Program::start(words), 1);
    while !samples.has_ended() {
        one.send(next..=next);
        next += 1;
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let samples = samples.end();
    samples.expect_status(0);
    let told: Vec<Value> = samples.out.iter().map(|line| serde_json::from_str(line).expect("a sample")).collect();
    assert_eq!(told.len(), 2);
    assert!(told.iter().all(|sample| sample["sources"][0]["id"] == 841 && sample["is_complete"] == true), "{told:?}");
    let refused = Program::run(["ctl", "samples", "--rate", "100", "--url", &controlled.url]);
    assert!(refused.expect_status(2).errors.contains("0.01 to 20 samples a second"), "{refused:#?}");
    controlled.good("shutdown");
    controlled.program.end().expect_status(0);
}
