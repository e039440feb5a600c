//! The benches that start the program itself.

use crate::process::Program;
use crate::support::TemporaryDirectory;
use serde_json::Value;

/// The one figure of a bench in this case.
fn check(bench: &str, case: &str) {
    let directory = TemporaryDirectory::new(&format!("bench-{bench}"));
    let output = directory.path().display().to_string();
    let ended = Program::run(["bench", bench, "--quick", "--json", "--case", case, "--output", &output]);
    ended.expect_status(0);
    let rows: Vec<Value> = ended.out[1..].iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let [row] = &rows[..] else { panic!("{rows:#?}") };
    assert!(row["median"].as_f64() > Some(0.0) && row["limit"].as_f64() > Some(0.0), "{row:#}");
}

#[test]
fn frames_that_a_process_divides_give_a_figure_beside_their_copy() {
    check("splitting", "by=process frame_bytes=600");
}

#[test]
fn events_that_a_process_decides_on_give_a_figure_beside_a_bare_ring() {
    check("filtering", "by=process event_bytes=2048 fragments=16");
}

#[test]
fn a_readout_unit_with_processes_for_builder_units_gives_a_figure_beside_the_bare_chain() {
    check("tcpla", "fragment_bytes=2048 nodes=processes streams=16");
}
