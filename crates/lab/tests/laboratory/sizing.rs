//! `simulate FILE`: what is printed is what was promised.

use crate::{Directory, run};
use serde_json::Value;
use std::path::Path;

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sizing").join(name).display().to_string()
}

/// The last line of stdout.
fn outcome(lines: &[String]) -> Value {
    serde_json::from_str(lines.last().expect("a line")).expect("JSON")
}

#[test]
fn a_sweep_gives_a_run_for_each_value_and_plots() {
    let plots = Directory::new("sizing");
    let file = example("cms-run2-test-bed.toml");
    let directory = plots.path().to_str().expect("a path in UTF-8");
    let sizes = "front_end.fragment_size=512,2KiB";
    let arguments = ["simulate", &file, "--duration", "3ms", "--set", "builders=2", "--sweep", sizes, "--json"];
    let ended = run([&arguments[..], &["--svg", directory]].concat());
    ended.expect_status(0);
    let outcome = outcome(&ended.out);
    assert_eq!(outcome["schema"], "ropewalk-sizing-1");
    let values: Vec<&Value> = outcome["runs"].as_array().expect("runs").iter().map(|run| &run["value"]).collect();
    assert_eq!(values, ["512", "2KiB"]);
    for run in outcome["runs"].as_array().expect("runs") {
        assert!(run["events"]["balanced"] == true && run["events"]["built"].as_u64() > Some(0), "{run}");
        assert!(run["resources"].as_array().expect("resources").iter().all(|one| one["count"] != 8), "{run}");
    }
    for plot in ["latency.svg", "rate.svg", "bandwidth.svg"] {
        let svg = std::fs::read_to_string(plots.path().join(plot)).expect("a plot");
        assert!(svg.contains("CMS run 2 test bed") && svg.contains("<polyline"), "{svg}");
    }
}

#[test]
fn equal_seeds_give_equal_outcomes_and_a_table_says_what_limits() {
    let file = example("test-beam.toml");
    let outcome_of = |seed: &str| {
        let ended = run(["simulate", &file, "--duration", "10ms", "--seed", seed, "--json"]);
        assert!(ended.expect_status(0).out.iter().any(|line| line.contains("limited by")), "{ended:#?}");
        let mut outcome = outcome(&ended.out);
        let run = outcome["runs"][0].as_object_mut().expect("a run");
        // How long it took is no outcome.
        assert!(run.remove("wall_s").is_some() && run.remove("steps_per_s").is_some());
        outcome
    };
    assert_eq!(outcome_of("5"), outcome_of("5"));
    assert_ne!(outcome_of("5"), outcome_of("6"));
}

#[test]
fn a_system_in_which_sources_push_has_its_flows_and_its_keys() {
    let file = example("lhcb-2005.toml");
    let shorter = ["--duration", "6ms", "--set", "flow[0].packing=25", "--sweep", "gateways=26,30"];
    let ended = run([&["simulate", &file][..], &shorter, &["--json"]].concat());
    let outcome = outcome(&ended.expect_status(0).out);
    for run in outcome["runs"].as_array().expect("runs") {
        let flows = run["flows"].as_array().expect("flows");
        assert!(flows.len() == 2 && flows[0]["name"] == "L1" && run["events"]["balanced"] == true, "{run}");
    }
    let ended = run(["simulate", &file, "--duration", "3ms"]);
    assert!(ended.expect_status(0).out.iter().any(|line| line.contains("HLT")), "{ended:#?}");
}

#[test]
fn a_wrong_value_is_told_with_what_would_be_right() {
    let file = example("test-beam.toml");
    for (option, value, hint) in [
        ("--set", "builder.events=0", "between 1 and 1048576"),
        ("--set", "builder.events=many", "invalid type"),
        ("--set", "builder", "KEY=VALUE"),
        ("--sweep", "disk.speed=1GB/s,fast", "such as 10Gb/s"),
        ("--sweep", "nothing=1", "no key is named"),
    ] {
        let ended = run(["simulate", &file, option, value]);
        assert!(ended.expect_status(2).errors.contains(hint), "{value}: {ended:#?}");
    }
    let ended = run(["simulate", "--duration", "1s"]);
    assert!(ended.expect_status(2).errors.contains("SYSTEM"), "{ended:#?}");
}
