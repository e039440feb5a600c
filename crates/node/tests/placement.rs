//! Threads run where the rules of the configuration want them.

mod support;

use ropewalk_node::run::{PlacementError, RunError, launch, placement};
use ropewalk_terms::EventKey;
use std::collections::BTreeMap;
use std::fs;
use support::{Run, Setup};

/// Each thread of this process with the CPUs that it may run on; names end after 15 letters.
fn threads() -> BTreeMap<String, String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it").map_while(Result::ok);
    // A thread may end between the list and the look.
    let look = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some((name.trim().to_owned(), cpus.trim().to_owned()))
    };
    tasks.filter_map(look).collect()
}

/// The CPUs that this process may run on, as text, and the last one of them.
fn allowed() -> (String, u32) {
    let machine = ropewalk_host::Machine::read("/".as_ref()).expect("this machine can be read");
    (machine.allowed.to_string(), machine.allowed.iter().last().expect("it runs on one"))
}

fn rule(pattern: &str, cpus: impl std::fmt::Display) -> String {
    format!("[[thread]]\nmatch = \"{pattern}\"\ncpus = \"{cpus}\"\n")
}

#[test]
fn threads_run_where_the_first_matching_rule_wants_them() {
    let (all, last) = allowed();
    let setup = Setup::new("placed", &[]).source("id = 841\nreadout = \"ru0\"\non_close = \"end\"\nemulate = {}");
    let rules = [rule("^bu0-disk$", last), rule("^(ru|sources)", last), rule("^bu", &all)];
    let setup = setup.and(&rules.concat());
    let mut handle = launch(&setup.configuration(), Some(100)).unwrap_or_else(|error| panic!("{error}"));
    // No waiting: a run that was launched has its threads where they belong.
    let threads = threads();
    let one = last.to_string();
    for (name, cpus) in [("ru0", &one), ("sources", &one), ("bu0-disk", &one), ("bu0", &all), ("manager", &all)] {
        assert_eq!(threads.get(name), Some(cpus), "{name} in {threads:?}");
    }
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 100)));
    assert_eq!(Run { handle }.end().events.written, 100);
}

#[test]
fn a_cpu_that_is_not_there_is_told_with_those_that_are() {
    let (all, _) = allowed();
    let setup = Setup::new("nowhere", &[841]).and(&rule("ru0", 8191));
    let error = launch(&setup.configuration(), None).expect_err("there is no such CPU");
    assert!(matches!(error, RunError::Placement(PlacementError::Rule(_))), "{error}");
    let wanted = format!("[[thread]]: placement rule 1: this process may not run on CPU 8191; it may run on {all}");
    assert_eq!(error.to_string(), wanted);
    assert!(!setup.output().exists(), "nothing is begun");
}

#[test]
fn a_rule_that_matches_no_thread_is_named() {
    let (all, _) = allowed();
    let setup = Setup::new("unused", &[841]).and(&[rule("^readout", &all), rule(".", &all)].concat());
    let plan = placement(&setup.configuration()).expect("the CPUs are there");
    assert_eq!(plan.unused_rules, [1]);
    let names: Vec<_> = plan.placements.iter().map(|placement| placement.name.as_str()).collect();
    assert_eq!(names, ["ru0", "manager", "bu0", "bu0-disk"]);
}
