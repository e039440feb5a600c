//! The command line for users: help, completions, man pages, and answers of run control as text.

use crate::control::Controlled;
use crate::process::Program;
use crate::support::{FrontEnd, Setup, TemporaryDirectory};
use serde_json::Value;

/// Lines of the help that list a command, under any heading.
fn listed(out: &[String]) -> Vec<&str> {
    let commands = out.iter().take_while(|line| !line.starts_with("Options"));
    commands.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect()
}

#[test]
fn the_help_lists_at_most_20_commands_in_groups_and_commands_lists_all() {
    let help = Program::run(["--help"]);
    let common = listed(&help.expect_status(0).out);
    assert!(
        common.len() <= 20 && ["demo", "run", "ctl", "verify"].iter().all(|name| common.contains(name)),
        "{help:#?}"
    );
    for heading in ["Take data:", "Control a run:", "Look:", "Files:", "Set up:"] {
        assert!(help.out.iter().any(|line| line == heading), "{heading} {help:#?}");
    }
    assert!(help.out.iter().all(|line| line.chars().count() <= 80 && !line.contains('\u{1b}')), "{help:#?}");
    assert!(help.out.iter().any(|line| line.contains("`ropewalk commands`")), "{help:#?}");
    let all = Program::run(["commands"]);
    let all = listed(&all.expect_status(0).out);
    for rare in ["filter-unit", "filter-node", "farm-node", "decisions", "histograms", "felix", "topology", "man"] {
        assert!(!common.contains(&rare) && all.contains(&rare), "{rare}: {all:?}");
    }
    for name in all {
        let described = Program::run([name, "--help"]);
        // The help of the laboratory's commands comes from the laboratory's program.
        let usages = ["ropewalk", "ropewalk-lab"].map(|program| format!("Usage: {program} {name}"));
        let is_usage = |line: &String| usages.iter().any(|usage| line.starts_with(usage));
        assert!(described.expect_status(0).out.iter().any(is_usage), "{described:#?}");
    }
}

#[test]
fn each_command_of_run_control_has_its_own_options() {
    let mask = Program::run(["ctl", "mask", "--help"]);
    let text = mask.expect_status(0).out.join("\n");
    assert!(text.contains("3,20-39") && text.contains("--url <URL>") && !text.contains("--incomplete"), "{text}");
    let ctl = Program::run(["ctl", "--help"]);
    let commands = listed(&ctl.expect_status(0).out);
    assert!(["start", "mask", "limit", "samples"].iter().all(|name| commands.contains(name)), "{ctl:#?}");
    assert!(!commands.contains(&"conf") && !commands.contains(&"enable"), "{ctl:#?}");
    for wrong in [&["mask"][..], &["mask", "5-4"], &["set", "timeouts.readout"], &["explode"], &["stop", "--force"]] {
        Program::run(["ctl"].iter().chain(wrong)).expect_status(2);
    }
}

#[test]
fn answers_of_run_control_are_text_and_with_json_they_are_json() {
    let setup = Setup::new("ctl-text", &[841, 843])
        .and("[[histogram]]\nname = \"sizes\"\nof = \"size\"\nfrom = 0\nto = \"4KiB\"\nbins = 4\n");
    let controlled = Controlled::start(&setup, &["--idle"]);
    controlled.wait("the run to be set up", |state| state["run"] == 1 && state["task"].is_null());
    // Options may precede the command.
    let shown = |words: &[&str]| {
        let ended = Program::run(["ctl", "--url", &controlled.url, "--by", "ada"].iter().chain(words));
        ended.expect_status(0).out.join("\n")
    };
    shown(&["halt"]);
    shown(&["conf"]);
    shown(&["enable", "--field", "beam=120GeV"]);
    let address = controlled.good("addresses")[0]["address"].as_str().expect("text").to_owned();
    let mut front_ends = [841, 843].map(|id| FrontEnd::ferol(&address, id));
    front_ends.iter_mut().for_each(|front_end| front_end.send(1..=100));
    controlled.wait("the run", |state| state["state"] == "running");
    crate::support::wait_for("all events", || (controlled.good("ledger")["events"]["written"] == 100).then_some(()));
    crate::support::wait_for("the histogram", || {
        controlled.good("histograms")[0]["sources"]["841"].is_object().then_some(())
    });
    shown(&["mask", "843"]);
    shown(&["note", "beam back"]);
    for (look, words) in [
        ("state", "running since "),
        ("state", "beam=120GeV"),
        ("state", "control is free"),
        ("limit", ""),
        ("alarms", ""),
        ("sources", "843"),
        ("sources", "masked"),
        ("ledger", "in complete events"),
        ("journal", "start, by ada"),
        ("operator", "control is free"),
        ("masks", "source 843 takes no part"),
        ("parameters", "timeouts.readout"),
        ("addresses", &address),
        ("histograms", "0 to 4,096 bytes"),
        ("runs", "beam back"),
        ("files", "run000001-bu0-000001.rwk"),
        ("reference", "no reference run"),
    ] {
        let text = shown(&[look]);
        assert!(text.contains(words) && !text.starts_with(['{', '[']) && !text.contains('\u{1b}'), "{look}: {text}");
        let json = shown(&[look, "--json"]);
        serde_json::from_str::<Value>(&json).unwrap_or_else(|error| panic!("{look}: {error}: {json}"));
    }
    controlled.good("shutdown");
    controlled.program.end();
}

#[test]
fn completions_and_man_pages_are_made_for_all_commands() {
    for (shell, words) in [("bash", "complete -F"), ("zsh", "#compdef ropewalk"), ("fish", "complete -c ropewalk")] {
        let script = Program::run(["completions", shell]);
        let script = script.expect_status(0).out.join("\n");
        assert!(
            script.contains(words) && script.contains("filter-files") && script.contains("fragment-size"),
            "{script}"
        );
    }
    let directory = TemporaryDirectory::new("man-pages");
    let pages = directory.path().join("man1");
    Program::run(["man".as_ref(), pages.as_os_str()]).expect_status(0);
    for name in ["ropewalk.1", "ropewalk-run.1", "ropewalk-ctl-mask.1", "ropewalk-filter-unit.1"] {
        let page = std::fs::read_to_string(pages.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{page}");
    }
    Program::run(["completions", "tcsh"]).expect_status(2);
}
