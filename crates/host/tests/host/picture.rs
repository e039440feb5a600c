//! The picture of a machine and of what is placed on it, letter by letter.

use ropewalk_host::{Feed, Machine, Picture, Plan};

use crate::layout::{machine_of_the_paper, plan};
use crate::made::MadeMachine;

/// The picture stands in the page about placement; it is that of the paper's readout machine.
const PAGE: &str = include_str!("../../../../docs/placement.md");

#[test]
fn a_machine_of_the_paper_looks_like_figure_9() {
    let machine = machine_of_the_paper().read_machine();
    let eth2 = Feed::Card("eth2".to_owned());
    let plan = plan(&machine, &[eth2.clone(), eth2]);
    let shown = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(Some(Picture { machine: &machine, plan: &plan }.to_string().as_str()), shown);
}

#[test]
fn what_is_special_about_cpus_is_shown() {
    let made = MadeMachine::new(1, 6, 1).isolated("4").offline("5").confined("0-2,4", "0");
    let machine = made.read_machine();
    let text = Picture { machine: &machine, plan: &Plan::default() }.to_string();
    for line in [
        "switched off: CPU 5",
        "isolated: CPU 4",
        "this process may run on: CPU 0-2,4",
        "(not for this process)",
        "(isolated)",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
}

#[test]
fn the_machine_that_runs_this_test_has_a_picture() {
    let machine = Machine::read("/".as_ref()).unwrap();
    let text = Picture { machine: &machine, plan: &Plan::default() }.to_string();
    assert!(text.contains(&format!("Linux {}", machine.kernel)) && text.contains("core 0"), "{text}");
    println!("{text}");
}
