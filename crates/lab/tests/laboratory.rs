//! The program `ropewalk-lab`: benches that start the product, campaigns, sizings and bare probes.

#[path = "../../ropewalk/tests/program/forms.rs"]
mod forms;

use forms::{expect_form, schema};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    out: Vec<String>,
    errors: String,
}

impl Ended {
    /// Checks the exit status, and that nothing panicked.
    fn expect_status(&self, status: i32) -> &Self {
        assert!(!self.errors.contains("panicked"), "{self:#?}");
        assert_eq!(self.status, Some(status), "{self:#?}");
        self
    }

    /// The last line of standard output.
    fn account(&self) -> Value {
        let line = self.out.last().unwrap_or_else(|| panic!("no account: {self:#?}"));
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// Runs the laboratory to its end.
fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_ropewalk-lab")).args(arguments).output().expect("it was built");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ended {
        status: output.status.code(),
        out: text(output.stdout).lines().map(str::to_owned).collect(),
        errors: text(output.stderr),
    }
}

/// A directory of one test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ropewalk-lab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

// ---- benches that start the product

/// Builds the product beside the laboratory if it is missing: a test of the whole workspace has built it, a test of
/// this package alone has not.
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

/// Checks that a bench prints exactly one figure for this case.
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

/// Without the product beside the laboratory.
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

// ---- `bench compare`

/// A directory with a build that prints these lines, and records that it ran.
fn build(directory: &Directory, name: &str, lines: &[Value]) -> PathBuf {
    let place = directory.path().join(name);
    std::fs::create_dir_all(&place).expect("a directory can be made");
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(place.join("lines"), lines).expect("a file can be written");
    let script = format!(
        "#!/bin/sh\necho {name} \"$@\" >> {0}/../ran\ncat {0}/lines\nif grep -q failed {0}/lines; then exit 1; fi\n",
        place.display()
    );
    let program = place.join("ropewalk-lab");
    std::fs::write(&program, script).expect("a file can be written");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("own file");
    place
}

fn figure(case: &str, unit: &str, median: f64) -> Value {
    serde_json::json!({ "bench": "any", "case": { "case": case }, "unit": unit, "median": median })
}

#[test]
fn two_builds_run_in_turns_and_a_case_that_got_worse_gives_status_1() {
    let directory = Directory::new("compare");
    let before = build(&directory, "before", &[figure("rate", "GB/s", 2.0), figure("time", "us", 2.0)]);
    let after = build(&directory, "after", &[figure("rate", "GB/s", 1.0), figure("time", "us", 1.0)]);
    let arguments = |before: &Path, after: &Path, more: &[&str]| {
        let paths = [before, after].map(|path| path.display().to_string());
        let all = ["bench", "compare"].map(str::to_owned).into_iter().chain(paths);
        all.chain(more.iter().map(|one| (*one).to_owned())).collect::<Vec<_>>()
    };
    let ended = run(arguments(&before, &after, &["any", "--pairs", "3", "--quick", "--json", "--case", "x"]));
    ended.expect_status(1);
    let rows: Vec<Value> = ended.out.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(
        rows.iter().map(|row| row["verdict"].as_str()).collect::<Vec<_>>(),
        [None, Some("worse"), Some("better")]
    );
    assert_eq!((&rows[1]["ratio"], &rows[1]["pairs"]), (&0.5.into(), &3.into()), "{ended:#?}");
    let ran = std::fs::read_to_string(directory.path().join("ran")).expect("they ran");
    let order: Vec<_> = ran.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(order, ["before", "after", "after", "before", "before", "after"]);
    assert!(ran.lines().all(|line| line.ends_with("bench any --json --output . --quick --case x")), "{ran}");

    // Programs instead of directories; a build is no worse than itself.
    let same = after.join("ropewalk-lab");
    let text = run(arguments(&same, &same, &["any", "--pairs", "1"]));
    text.expect_status(0);
    assert!(text.out.iter().filter(|line| line.ends_with("no difference")).count() == 2, "{text:#?}");
    let missing = run(arguments(&directory.path().join("nowhere"), &same, &["any"]));
    assert!(missing.expect_status(2).errors.contains("give a ropewalk-lab"), "{missing:#?}");
}

// ---- `simulate --campaign`

#[test]
fn a_campaign_ends_with_its_summary_and_a_seed_can_be_traced() {
    let campaign = run(["simulate", "--campaign", "8", "--seed", "100", "--json"]);
    let summary = campaign.expect_status(0).account();
    expect_form(&summary, &schema("simulate.json"));
    assert_eq!((&summary["first_seed"], &summary["seeds"]), (&100.into(), &8.into()), "{summary:#}");
    let again = run(["simulate", "--campaign", "8", "--seed", "100", "--json"]);
    assert_eq!(again.expect_status(0).account(), summary, "the same seeds are the same runs");

    let directory = Directory::new("simulate");
    let file = directory.path().join("seed.txt");
    let traced = run(["simulate".as_ref(), "--seed=3".as_ref(), "--trace".as_ref(), file.as_os_str()]);
    traced.expect_status(0);
    let text = std::fs::read_to_string(&file).expect("the trace was written");
    let (pull, push) = text.split_once("\n\n").expect("two systems");
    assert!(pull.lines().count() > 100 && push.lines().count() > 40, "{text}");
}

// ---- bare probes

#[test]
fn each_probe_gives_a_figure_or_says_why_it_cannot() {
    let ended = run(["limits", "--quick", "--json"]);
    let rows = ended.expect_status(0).out.iter();
    let rows: Vec<Value> = rows.map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert!(rows.len() >= 11, "{rows:#?}");
    assert!(rows.iter().all(|row| row["figure"].as_f64() > Some(0.0) || row["skipped"].is_string()), "{rows:#?}");
}

// ---- `simulate FILE`

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sizing").join(name).display().to_string()
}

#[test]
fn a_sweep_gives_a_run_for_each_value() {
    let file = example("cms-run2-test-bed.toml");
    let sizes = "front_end.fragment_size=512,2KiB";
    let arguments = ["simulate", &file, "--duration", "3ms", "--set", "builders=2", "--sweep", sizes, "--json"];
    let ended = run(arguments);
    ended.expect_status(0);
    let outcome = ended.account();
    assert_eq!(outcome["schema"], "ropewalk-sizing-1");
    let values: Vec<&Value> = outcome["runs"].as_array().expect("runs").iter().map(|run| &run["value"]).collect();
    assert_eq!(values, ["512", "2KiB"]);
    for run in outcome["runs"].as_array().expect("runs") {
        assert!(run["events"]["balanced"] == true && run["events"]["built"].as_u64() > Some(0), "{run}");
        assert!(run["resources"].as_array().expect("resources").iter().all(|one| one["count"] != 8), "{run}");
    }
}

#[test]
fn equal_seeds_give_equal_outcomes_and_a_table_says_what_limits() {
    let file = example("test-beam.toml");
    let outcome_of = |seed: &str| {
        let ended = run(["simulate", &file, "--duration", "10ms", "--seed", seed, "--json"]);
        assert!(ended.expect_status(0).out.iter().any(|line| line.contains("limited by")), "{ended:#?}");
        let mut outcome = ended.account();
        let run = outcome["runs"][0].as_object_mut().expect("a run");
        // The elapsed time is not part of the outcome.
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
    let outcome = ended.expect_status(0).account();
    for run in outcome["runs"].as_array().expect("runs") {
        let flows = run["flows"].as_array().expect("flows");
        assert!(flows.len() == 2 && flows[0]["name"] == "L1" && run["events"]["balanced"] == true, "{run}");
    }
    let ended = run(["simulate", &file, "--duration", "3ms"]);
    assert!(ended.expect_status(0).out.iter().any(|line| line.contains("HLT")), "{ended:#?}");
}

#[test]
fn a_wrong_value_is_refused_with_what_would_be_right() {
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
