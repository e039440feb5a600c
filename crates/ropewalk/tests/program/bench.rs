//! The benches that start the program itself.

use crate::process::Program;
use crate::support::TemporaryDirectory;
use serde_json::Value;

#[test]
fn frames_that_a_process_divides_give_a_figure_beside_their_copy() {
    let directory = TemporaryDirectory::new("bench-splitting");
    let output = directory.path().display().to_string();
    let case = "by=process frame_bytes=600";
    let ended = Program::run(["bench", "splitting", "--quick", "--json", "--case", case, "--output", &output]);
    ended.expect_status(0);
    let rows: Vec<Value> = ended.out[1..].iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let [row] = &rows[..] else { panic!("{rows:#?}") };
    assert!(row["median"].as_f64() > Some(0.0) && row["limit"].as_f64() > Some(0.0), "{row:#}");
}

#[test]
fn a_readout_unit_with_processes_for_builder_units_gives_a_figure_beside_the_bare_chain() {
    let directory = TemporaryDirectory::new("bench");
    let output = directory.path().display().to_string();
    let case = "fragment_bytes=2048 nodes=processes streams=16";
    let ended = Program::run(["bench", "tcpla", "--quick", "--json", "--case", case, "--output", &output]);
    ended.expect_status(0);
    let rows: Vec<Value> = ended.out[1..].iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let [row] = &rows[..] else { panic!("{rows:#?}") };
    assert!(row["median"].as_f64() > Some(0.0) && row["limit"].as_f64() > Some(0.0), "{row:#}");
}
