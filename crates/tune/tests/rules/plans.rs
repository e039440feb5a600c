//! The whole plan of each recorded machine, as commands and as JSON, is kept beside the tests.

use std::path::Path;

use ropewalk_tune::{Plan, Wish};

use crate::machines::{check, readout, tree};

/// What is planned for a recorded machine, and whether it is what was kept.
fn expect_kept(name: &str, tree_name: &str, wish: &Wish) {
    let plan = Plan::of(&check(&tree(tree_name), wish));
    let commands = plan.commands().iter().map(|command| format!("{command}\n")).collect::<String>();
    let json = format!("{}\n", serde_json::to_string_pretty(&plan).expect("it is plain"));
    for (ending, text) in [("sh", commands), ("json", json)] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/plans/{name}.{ending}"));
        if std::env::var_os("ROPEWALK_BLESS").is_some() {
            std::fs::write(&file, &text).expect("the file can be written");
        }
        let kept = std::fs::read_to_string(&file).expect("it is kept");
        assert!(kept == text, "{}: ROPEWALK_BLESS=1 writes it anew:\n{text}", file.display());
    }
}

#[test]
fn the_plan_of_a_laptop_is_as_kept() {
    expect_kept("laptop", "laptop", &Wish::default());
}

#[test]
fn the_plan_of_a_server_without_a_configuration_is_as_kept() {
    expect_kept("server", "server", &Wish::default());
}

#[test]
fn the_plan_of_a_readout_machine_is_as_kept() {
    expect_kept("server-readout", "server", &readout("eth1", "/data/runs"));
}

#[test]
fn the_plan_of_a_container_is_as_kept() {
    expect_kept("container", "container", &readout("eth0", "/runs/now"));
}
