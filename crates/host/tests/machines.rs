//! Made-up machines below `tests/trees`: what is read from them, and plans for them.

use std::path::{Path, PathBuf};

use ropewalk_host::{CpuList, HugePages, Machine, MachineError, Plan, PlanError, Policy, Rule, TransparentHugePages};

fn tree(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees").join(name)
}

fn machine(name: &str) -> Machine {
    Machine::read(&tree(name)).expect("the made-up machine is whole")
}

fn list(text: &str) -> CpuList {
    text.parse().expect("the test writes lists")
}

fn rule(pattern: &str, cpus: Option<&str>, node: Option<u32>) -> Rule {
    Rule { pattern: pattern.to_owned(), cpus: cpus.map(list), node, in_turn: false }
}

fn plan(machine: &Machine, rules: Vec<Rule>, names: &[&str]) -> Result<Plan, PlanError> {
    Policy::new(rules)?.plan(machine, names.iter().copied())
}

#[test]
fn two_sockets_with_hardware_threads_are_read() {
    let machine = machine("two-sockets");
    assert_eq!(machine.kernel, "6.1.0-18-amd64");
    assert_eq!(machine.cpu_model.as_deref(), Some("Example CPU 4 @ 2.40GHz"));
    assert_eq!(machine.online, list("0-6"));
    assert_eq!(machine.allowed, list("0-5"));
    assert_eq!(machine.cores, [list("0,4"), list("1,5"), list("2,6"), list("3")]);
    assert_eq!(machine.siblings(5), Some(&list("1,5")));
    assert_eq!((machine.siblings(7), machine.has_hardware_threads()), (None, true));
    assert_eq!((machine.node_of(4), machine.node_of(6), machine.node_of(7)), (Some(0), Some(1), None));
    assert_eq!(machine.node(2).map(|node| node.cpus.len()), Some(0));
    let small = HugePages { page_bytes: 2 << 20, total: 512, free: 100 };
    let large = HugePages { page_bytes: 1 << 30, total: 4, free: 4 };
    assert_eq!(machine.huge_pages, [small, large]);
    assert_eq!(machine.transparent_huge_pages, TransparentHugePages::Advised);
}

#[test]
fn what_a_small_machine_lacks_has_a_meaning() {
    let machine = machine("bare");
    assert_eq!((machine.cpu_model.as_deref(), machine.has_hardware_threads()), (None, false));
    assert_eq!(machine.allowed, list("0-1"));
    assert_eq!(machine.cores, [list("0"), list("1")]);
    assert_eq!(
        machine.nodes.iter().map(|node| (node.number, node.cpus.clone())).collect::<Vec<_>>(),
        [(0, list("0-1"))]
    );
    assert!(machine.huge_pages.is_empty());
    assert_eq!(machine.transparent_huge_pages, TransparentHugePages::Never);
}

#[test]
fn a_machine_without_its_lists_is_an_error_that_names_the_file() {
    let missing = Machine::read(&tree("nowhere")).unwrap_err();
    assert!(matches!(&missing, MachineError::Unreadable { path, .. } if path.ends_with("cpu/online")), "{missing}");
    let wrong = Machine::read(&tree("garbled")).unwrap_err();
    assert!(wrong.to_string().contains("cpu/online: `zero` is no list of CPUs"), "{wrong}");
}

#[test]
fn the_machine_that_runs_this_test_is_read() {
    let machine = Machine::read(Path::new("/")).unwrap();
    assert!(!machine.allowed.is_empty() && !machine.kernel.is_empty());
    assert_eq!(machine.cores.iter().map(CpuList::len).sum::<usize>(), machine.online.len());
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = vec![
        rule("^reader-1$", Some("1"), None),
        rule("^reader-", Some("0,3"), Some(1)),
        rule("pool$", None, Some(1)),
        rule("^nobody", Some("0"), None),
    ];
    let names = ["reader-0", "reader-1", "retention-pool", "manager"];
    let plan = plan(&machine("two-sockets"), rules, &names).unwrap();
    let text = "reader-0: CPU 0,3, node 1 (rule 2)\nreader-1: CPU 1, node 0 (rule 1)\n\
                retention-pool: CPU 2-3, node 1 (rule 3)\nmanager: CPU 0-5, node any (no rule)\nrule 4 matches nothing\n";
    assert_eq!(plan.to_string(), text);
    assert_eq!(plan.of("reader-1").and_then(|placement| placement.rule), Some(1));
    assert_eq!(plan.of("absent"), None);
}

#[test]
fn cpus_of_two_nodes_bind_no_memory() {
    let plan = plan(&machine("two-sockets"), vec![rule("a", Some("0,2"), None)], &["a"]).unwrap();
    assert_eq!(plan.placements[0].node, None);
}

#[test]
fn a_node_of_memory_alone_gives_memory() {
    let plan = plan(&machine("two-sockets"), vec![rule("pool$", None, Some(2))], &["pool"]).unwrap();
    assert_eq!(plan.to_string(), "pool: CPU 0-5, node 2 (rule 1)\n");
}

#[test]
fn names_take_cpus_in_turn() {
    let rules = vec![Rule { in_turn: true, ..rule("^builder-", Some("1,4"), None) }];
    let plan = plan(&machine("two-sockets"), rules, &["builder-0", "builder-1", "other", "builder-2"]).unwrap();
    let cpus: Vec<String> = plan.placements.iter().map(|placement| placement.cpus.to_string()).collect();
    assert_eq!(cpus, ["1", "4", "0-5", "1"]);
}

#[test]
fn rules_for_another_machine_are_refused() {
    let machine = machine("two-sockets");
    let refused = |rule: Rule| plan(&machine, vec![rule], &["a"]).unwrap_err();
    let cpu = refused(rule("a", Some("4-6"), None));
    assert_eq!(cpu, PlanError::NoSuchCpu { rule: 1, cpu: 6, allowed: list("0-5") });
    assert_eq!(refused(rule("a", None, Some(7))), PlanError::NoSuchNode { rule: 1, node: 7, nodes: vec![0, 1, 2] });
    let confined = Machine { allowed: list("0-1"), ..machine.clone() };
    let away = plan(&confined, vec![rule("a", None, Some(1))], &["a"]);
    assert_eq!(away, Err(PlanError::NodeWithoutCpu { rule: 1, node: 1 }));
    assert_eq!(refused(rule("a", None, None)), PlanError::Empty { rule: 1 });
    assert_eq!(refused(rule("a", Some(""), None)), PlanError::Empty { rule: 1 });
    assert!(matches!(refused(rule("(", Some("0"), None)), PlanError::BadPattern { rule: 1, .. }));
}
