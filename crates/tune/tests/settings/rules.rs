//! The table of rules as a whole; docs/tuning-GROUP.md, which have every rule in its own words; and the whole plan of each recorded
//! machine, as commands and as JSON, which is kept beside the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use ropewalk_tune::rules::{self, RULES, Rule};
use ropewalk_tune::{Found, Grade, Group, Place, Plan, Sureness, Transport, Wish};

use crate::machines::{Copy, check, fed, finds, readout, tree, worst};

/// Every machine with every kind of wish that tests know.
fn cases() -> Vec<(&'static str, Wish)> {
    let mut cases = Vec::new();
    for (tree, interface, output) in
        [("laptop", "eth0", "/runs"), ("server", "eth1", "/data/runs"), ("container", "eth0", "/runs/now")]
    {
        cases.push((tree, Wish::default()));
        cases.push((tree, readout(interface, output)));
        cases.push((tree, fed(interface, Transport::Datagrams, Some(64 << 20))));
        cases.push((tree, fed(interface, Transport::Rings, None)));
        cases.push((tree, fed("lo", Transport::Tcp, None)));
    }
    cases
}

#[test]
fn every_rule_fires_somewhere_and_is_silent_somewhere_else() {
    let mut fired: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    for (name, wish) in cases() {
        let findings = check(&tree(name), &wish);
        for rule in rules::rules() {
            let own: Vec<_> = findings.iter().filter(|finding| finding.rule == rule.name).cloned().collect();
            fired.entry(rule.name).or_default().insert(worst(&own) > Grade::Good);
        }
    }
    let on_trees = |rule: &str, answer: bool| fired[rule].contains(&answer);
    let never: Vec<&str> = rules::rules()
        .map(|rule| rule.name)
        .filter(|name| !on_trees(name, true) && !FIRES_ON_COPIES.contains(name))
        .collect();
    let always: Vec<&str> = rules::rules().map(|rule| rule.name).filter(|name| !on_trees(name, false)).collect();
    assert!(never.is_empty() && always.is_empty(), "never: {never:?}, always: {always:?}");
}

/// Rules that fire on changed copies of trees alone; their tests say where.
const FIRES_ON_COPIES: &[&str] = &[
    "tcp_memory",
    "path_mtu",
    "interrupt_spread",
    "interrupt_others",
    "tickless_cpus",
    "gigantic_pages",
    "numa_memory",
];

#[test]
fn names_are_given_once_and_groups_stand_together() {
    let names: Vec<&str> = rules::rules().map(|rule| rule.name).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    let groups: Vec<Group> = rules::rules().map(|rule| rule.group).collect();
    assert!(groups.is_sorted(), "{groups:?}");
    assert_eq!(RULES.iter().map(|rules| rules.len()).sum::<usize>(), names.len());
    for rule in rules::rules() {
        for text in [rule.what, rule.why, rule.source, rule.worth] {
            assert!(!text.is_empty() && !text.contains("  "), "{}: {text}", rule.name);
        }
    }
}

/// A command that shows it on this machine, or why no command does and where the number comes from.
#[test]
fn what_a_rule_is_worth_is_shown_by_a_command_or_says_where_it_comes_from() {
    const NONE: &str = "no bench of Ropewalk shows it: ";
    for rule in rules::rules() {
        let is_shown = ["`ropewalk bench ", "`ropewalk doctor`"].iter().any(|command| rule.worth.contains(command));
        let reason = rule.worth.split_once(NONE).map(|(_, reason)| reason);
        assert_ne!(is_shown, reason.is_some(), "{}: {}", rule.name, rule.worth);
        assert!(reason.is_none_or(|reason| reason.len() > 20), "{}: {}", rule.name, rule.worth);
    }
}

/// A change is from what was found to something else, and belongs to its rule; nothing good is changed.
#[test]
fn changes_are_of_their_rule_and_change_something() {
    for (name, wish) in cases() {
        for finding in check(&tree(name), &wish) {
            let context = format!("{name}: {}: {}", finding.rule, finding.subject);
            assert!(finding.grade > Grade::Told || finding.changes.is_empty(), "{context}");
            assert_eq!(finding.grade == Grade::Good, finding.advised.is_empty(), "{context}");
            for change in &finding.changes {
                assert_ne!(change.from, change.to, "{context}");
                assert_eq!((change.rule.as_str(), change.group), (finding.rule, finding.group), "{context}");
            }
        }
    }
}

/// What a rule says it found is what the machine has there: a plan that is applied finds the old values.
#[test]
fn changes_begin_at_what_the_machine_has() {
    use ropewalk_tune::Settings;
    for (name, wish) in cases() {
        let mut place = Place::recorded(&tree(name)).expect("a good record");
        for change in check(&tree(name), &wish).into_iter().flat_map(|finding| finding.changes) {
            let present = place.read(&change.setting).expect("it can be read");
            assert_eq!(present.as_deref(), Some(change.from.as_str()), "{name}: {}", change.setting);
        }
    }
}

/// What was changed as advised is not found again.
#[test]
fn nothing_is_left_to_change_after_all_was_changed() {
    use ropewalk_tune::{Plan, Settings};
    for (name, wish) in cases() {
        let copy = Copy::of(name);
        let plan = Plan::of(&copy.check(&wish));
        let mut place = Place::recorded(copy.root()).expect("a good record");
        for change in &plan.changes {
            place.write(&change.setting, &change.to).expect("it can be written");
        }
        let left = Plan::of(&copy.check(&wish));
        assert!(left.changes.is_empty(), "{name} with {wish:?}: {:#?}", left.commands());
    }
}

/// No rule panics, with any text in any file. An unusable file is an error of its reader.
#[test]
fn no_file_of_a_machine_makes_a_rule_panic() {
    let (copy, wish) = (Copy::of("server"), readout("eth1", "/data"));
    let mut texts =
        ["", "garbled", "-1", "99999999999999999999999999", "1 2 3", "(null)", "[", "0-,"].into_iter().cycle();
    for path in copy.files() {
        let good = std::fs::read(&path).expect("a file can be read");
        std::fs::write(&path, texts.next().expect("it has no end")).expect("a file can be written");
        if let Ok(mut place) = Place::recorded(copy.root()) {
            let _ = Found::read(&mut place, &wish).map(|found| rules::check(&found, &wish));
        }
        std::fs::write(&path, good).expect("a file can be written");
    }
}

/// What a rule cannot read it says.
#[test]
fn damaged_files_are_reported() {
    let copy = Copy::of("server").with("proc/sys/net/ipv4/tcp_sack", "many").without("proc/sys/net/core/rmem_max");
    for (rule, subject) in [("tcp_sack", "net.ipv4.tcp_sack"), ("receive_buffer", "net.core.rmem_max")] {
        let findings = copy.finds(rule, &Wish::default());
        assert_eq!((findings[0].subject.as_str(), findings[0].grade), (subject, Grade::Told));
        assert_eq!(findings[0].found, "could not be read");
    }
    assert_eq!(finds("container", "tcp_metrics", &Wish::default())[0].found, "could not be read");
}

#[test]
fn an_unknown_interface_is_refused_with_the_known_ones() {
    let wish = Wish { interfaces: vec!["eth7".to_owned()], ..Wish::default() };
    let error =
        Found::read(&mut Place::recorded(&tree("server")).expect("a good record"), &wish).expect_err("not there");
    assert_eq!(error.to_string(), "there is no network interface `eth7`; there are eth0, eth1, lo");
}

#[test]
fn a_directory_without_a_machine_is_refused() {
    let error = Found::read(&mut Place::recorded(&tree("nowhere")).expect("no record"), &Wish::default());
    let error = error.expect_err("nothing is there").to_string();
    assert!(error.contains("cpu/online") && error.contains("are /proc and /sys mounted?"), "{error}");
    let copy = Copy::of("laptop").recorded("\"probed\": {", "\"probed\": { \"io_uring\": 7, \"more\": {");
    let copy = copy.recorded("\"af_xdp\": \"refused\"\n  }", "\"af_xdp\": \"refused\"\n  } }");
    let error = Found::read(&mut Place::recorded(copy.root()).expect("it is JSON"), &Wish::default());
    assert!(error.expect_err("a number").to_string().contains("this is no record of a machine: probed"));
}

fn heading(group: Group) -> &'static str {
    match group {
        Group::Network => "Sockets and protocols (`network`)",
        Group::Card => "Network cards (`card`)",
        Group::Interrupts => "Interrupts (`interrupts`)",
        Group::Processor => "Processors (`processor`)",
        Group::Memory => "Memory (`memory`)",
        Group::Storage => "Disks (`storage`)",
        Group::Limits => "Limits (`limits`)",
    }
}

fn how_sure(sureness: Sureness) -> &'static str {
    match sureness {
        Sureness::Guess => "a rule of thumb: measure before and after",
        Sureness::Documented => "published measurements or the kernel's documentation say so",
        Sureness::Measured => "measured with Ropewalk's benches",
    }
}

/// The page of a group: each of its rules.
fn page(group: Group) -> String {
    let mut page = format!("# {}\n", heading(group));
    for Rule { name, what, why, source, worth, sureness, .. } in rules::rules().filter(|rule| rule.group == group) {
        let sure = how_sure(*sureness);
        write!(
            page,
            "\n## `{name}`\n\n{what}\n\n- Why: {why}\n- Source: {source}.\n- Worth: {worth}.\n- How sure: {sure}.\n"
        )
        .expect("text can be written");
    }
    page
}

#[test]
fn the_pages_have_every_rule_with_its_reason_and_source() {
    for group in Group::ALL {
        let path = format!("docs/tuning-{group}.md");
        assert!(ropewalk_tidy::is_current(&path, &page(group)), "{path}: ROPEWALK_BLESS=1 writes it");
    }
}

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
