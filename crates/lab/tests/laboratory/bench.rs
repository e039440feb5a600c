//! The benches that start the product.

use crate::{Directory, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Once;

/// Builds the product beside the laboratory if it is missing: a test of the whole workspace has built it, one of this
/// package alone has not.
fn have_product() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let laboratory = Path::new(env!("CARGO_BIN_EXE_ropewalk-lab"));
        if laboratory.with_file_name("ropewalk").is_file() {
            return;
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--quiet", "-p", "ropewalk", "--target-dir"]);
        let target = laboratory.ancestors().nth(2).expect("TARGET/debug/ropewalk-lab");
        if laboratory.parent().is_some_and(|profile| profile.ends_with("release")) {
            cargo.arg(target).arg("--release");
        } else {
            cargo.arg(target);
        }
        assert!(cargo.status().expect("cargo runs this test").success(), "the product does not build");
    });
}

/// The one figure of a bench in this case.
fn check(bench: &str, case: &str) {
    let directory = Directory::new(&format!("bench-{bench}"));
    let output = directory.path().display().to_string();
    have_product();
    let ended = run(["bench", bench, "--quick", "--json", "--case", case, "--output", &output]);
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

/// Where there is no product beside the laboratory.
#[test]
fn a_missing_product_is_named_with_the_command_that_builds_it() {
    let directory = Directory::new("no-product");
    let alone = directory.path().join("ropewalk-lab");
    std::fs::copy(env!("CARGO_BIN_EXE_ropewalk-lab"), &alone).expect("a file can be copied");
    let output = Command::new(alone).args(["bench", "start", "--quick"]).output().expect("it is a program");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(4), "{errors}");
    assert!(errors.contains("build it, `cargo build --release`"), "{errors}");
}

#[test]
fn every_bench_that_a_rule_names_is_one() {
    let mut count = 0;
    for rule in ropewalk_tune::rules::rules() {
        for command in rule.worth.split('`').filter(|words| words.starts_with("ropewalk bench ")) {
            let name = command.split(' ').nth(2).unwrap_or_default();
            let known = run(["bench", name, "--case", "no case has this"]);
            assert!(known.errors.contains("no case of"), "{}: {command}: {known:#?}", rule.name);
            count += 1;
        }
    }
    assert!(count > 10, "{count}");
}
