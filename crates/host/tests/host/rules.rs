//! Plans by rules.

use ropewalk_host::{CpuList, Decision, Item, Kind, Machine, Plan, PlanError, Policy, Rule, RuleName, Scheduling};

use crate::machines::machine;
use crate::made::{MadeMachine, list};

fn rule(pattern: &str, cpus: Option<&str>, node: Option<u32>) -> Rule {
    Rule { pattern: pattern.to_owned(), cpus: cpus.map(list), node, ..Rule::default() }
}

fn items(kind: Kind, names: &[&str]) -> Vec<Item> {
    names.iter().map(|name| Item { kind, name: (*name).to_owned(), feed: None }).collect()
}

/// The plan for threads of these names.
fn plan(machine: &Machine, rules: Vec<Rule>, names: &[&str]) -> Result<Plan, PlanError> {
    Policy::new(rules, Vec::new())?.plan(machine, &items(Kind::Thread, names))
}

/// The plan for pools of these names.
fn pools(machine: &Machine, rules: Vec<Rule>, names: &[&str]) -> Result<Plan, PlanError> {
    Policy::new(Vec::new(), rules)?.plan(machine, &items(Kind::Pool, names))
}

const fn thread_rule(number: usize) -> RuleName {
    RuleName { kind: Kind::Thread, number }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = vec![
        rule("^reader-1$", Some("1"), None),
        rule("^reader-", Some("0,3"), Some(1)),
        rule("disk$", None, Some(1)),
        rule("^absent", Some("0"), None),
    ];
    let names = ["reader-0", "reader-1", "bu0-disk", "manager"];
    let plan = plan(&machine("two-sockets"), rules, &names).unwrap();
    let text = "thread reader-0  CPU 0,3, node 1           thread rule 2\n\
                thread reader-1  CPU 1, node 0             thread rule 1\n\
                thread bu0-disk  CPU 2-3, node 1           thread rule 3\n\
                thread manager   CPU 0-5                   no rule\n\
                thread rule 4 matches nothing\n";
    assert_eq!(plan.to_string(), text);
    assert_eq!(plan.of(Kind::Thread, "reader-1").map(|one| &one.by), Some(&Decision::Rule(thread_rule(1))));
    assert_eq!((plan.of(Kind::Thread, "absent"), plan.of(Kind::Pool, "reader-1")), (None, None));
}

#[test]
fn rules_for_threads_place_no_pool_and_the_other_way_round() {
    let machine = machine("two-sockets");
    let policy = Policy::new(vec![rule("", Some("1"), None)], vec![rule("fragments$", None, Some(1))]).unwrap();
    let all = [items(Kind::Thread, &["ru0"]), items(Kind::Pool, &["ru0-fragments", "sources"])].concat();
    let text = "thread ru0            CPU 1, node 0             thread rule 1\n\
                pool   ru0-fragments  node 1                    pool rule 1\n\
                pool   sources        any node                  no rule\n";
    assert_eq!(policy.plan(&machine, &all).unwrap().to_string(), text);
}

#[test]
fn cpus_of_two_nodes_bind_no_memory() {
    let plan = plan(&machine("two-sockets"), vec![rule("a", Some("0,2"), None)], &["a"]).unwrap();
    assert_eq!(plan.placements[0].node, None);
}

#[test]
fn a_node_of_memory_alone_gives_memory() {
    let plan = plan(&machine("two-sockets"), vec![rule("a$", None, Some(2))], &["a"]).unwrap();
    assert_eq!((&plan.placements[0].cpus, plan.placements[0].node), (&list("0-5"), Some(2)));
    let plan = pools(&machine("two-sockets"), vec![rule("pool$", None, Some(2))], &["pool"]).unwrap();
    assert_eq!(plan.placements[0].node, Some(2));
}

/// A process may use the memory of a node on which it may not run.
#[test]
fn a_pool_needs_no_cpu_of_its_node() {
    let confined = Machine { allowed: list("0-1"), permitted: list("0-1"), ..machine("two-sockets") };
    let plan = pools(&confined, vec![rule("pool", None, Some(1))], &["pool"]).unwrap();
    assert_eq!(plan.placements[0].node, Some(1));
}

#[test]
fn names_take_cpus_in_turn() {
    let rules = vec![Rule { in_turn: true, ..rule("^builder-", Some("1,4"), None) }];
    let plan = plan(&machine("two-sockets"), rules, &["builder-0", "builder-1", "other", "builder-2"]).unwrap();
    let cpus: Vec<String> = plan.placements.iter().map(|placement| placement.cpus.to_string()).collect();
    assert_eq!(cpus, ["1", "4", "0-5", "1"]);
}

#[test]
fn a_rule_may_say_how_a_thread_is_scheduled_and_leave_open_where() {
    let rules = vec![Rule { scheduling: Some(Scheduling::Fifo(20)), ..rule("^ru", None, None) }];
    let plan = plan(&machine("two-sockets"), rules, &["ru0"]).unwrap();
    assert_eq!(plan.to_string(), "thread ru0  CPU 0-5, fifo 20          thread rule 1\n");
    let locked = vec![Rule { lock: true, ..rule("^ru", None, None) }];
    let plan = pools(&machine("two-sockets"), locked, &["ru0-fragments"]).unwrap();
    assert_eq!(plan.to_string(), "pool   ru0-fragments  any node, locked          pool rule 1\n");
}

#[test]
fn rules_for_another_machine_are_refused() {
    let machine = machine("two-sockets");
    let refused = |rule: Rule| plan(&machine, vec![rule], &["a"]).unwrap_err();
    let cpu = refused(rule("a", Some("4-6"), None));
    assert_eq!(cpu, PlanError::NoSuchCpu { rule: thread_rule(1), cpu: 6, permitted: list("0-5") });
    assert_eq!(cpu.to_string(), "thread rule 1: this process may not run on CPU 6; it may run on 0-5");
    assert_eq!(cpu.rule(), Some(thread_rule(1)));
    let node = refused(rule("a", None, Some(7)));
    assert_eq!(node, PlanError::NoSuchNode { rule: thread_rule(1), node: 7, nodes: list("0-2") });
    assert_eq!(node.to_string(), "thread rule 1: there is no NUMA node 7 for this process; there are 0-2");
    let confined = Machine { permitted: list("0-1"), ..machine.clone() };
    let away = plan(&confined, vec![rule("a", None, Some(1))], &["a"]);
    assert_eq!(away, Err(PlanError::NodeWithoutCpu { rule: thread_rule(1), node: 1 }));
    assert_eq!(refused(rule("a", None, None)), PlanError::Empty { rule: thread_rule(1) });
    assert_eq!(refused(rule("a", Some(""), None)), PlanError::Empty { rule: thread_rule(1) });
    assert!(
        matches!(refused(rule("(", Some("0"), None)), PlanError::BadPattern { rule, .. } if rule == thread_rule(1))
    );
    let empty = pools(&machine, vec![rule("a", None, Some(0)), rule("b", None, None)], &["a"]).unwrap_err();
    assert_eq!(empty.to_string(), "pool rule 2 says nothing: give it `node`, or `lock = true`");
}

#[test]
fn cpus_and_memory_that_a_container_took_away_are_refused() {
    let made = MadeMachine::new(2, 4, 1).isolated("2-5").confined("0-3", "0").offline("1");
    let machine = made.read_machine();
    for (cpus, is_good) in [("0", true), ("2-3", true), ("4", false), ("6", false), ("1", false)] {
        assert_eq!(plan(&machine, vec![rule("a", Some(cpus), None)], &["a"]).is_ok(), is_good, "CPU {cpus}");
    }
    let node = pools(&machine, vec![rule("a", None, Some(1))], &["a"]).unwrap_err();
    assert!(matches!(node, PlanError::NoSuchNode { node: 1, .. }), "{node}");
}

/// The kernel does not balance isolated CPUs: a thread that may use several of them uses one.
#[test]
fn what_will_not_come_about_is_remarked() {
    let machine = MadeMachine::new(2, 4, 1).isolated("2-5").without_rights("65536").read_machine();
    let rules = vec![
        rule("^bu", Some("4-5"), None),
        Rule { in_turn: true, ..rule("^ru", Some("2-3"), None) },
        Rule { scheduling: Some(Scheduling::RoundRobin(5)), ..rule("manager", None, None) },
    ];
    let plan = plan(&machine, rules, &["ru0", "bu0", "manager", "sources"]).unwrap();
    assert_eq!(plan.remarks.len(), 2, "{:?}", plan.remarks);
    assert!(plan.remarks[0].starts_with("thread bu0: CPU 4-5 are isolated"), "{:?}", plan.remarks);
    assert!(plan.remarks[1].contains("manager") && plan.remarks[1].contains("CAP_SYS_NICE"), "{:?}", plan.remarks);
    let locked = pools(&machine, vec![Rule { lock: true, ..rule("^ru", None, None) }], &["ru0-fragments", "sources"]);
    let remark = "pool ru0-fragments: this process lacks CAP_IPC_LOCK: it may lock 64 KiB in all, more will be refused";
    assert_eq!(locked.unwrap().remarks, [remark]);
}

#[test]
fn an_empty_policy_leaves_everything_to_the_kernel() {
    let all = [items(Kind::Thread, &["ru0"]), items(Kind::Pool, &["ru0-fragments"])].concat();
    let plan = Policy::default().plan(&machine("bare"), &all).unwrap();
    assert!(plan.placements.iter().all(|one| !one.is_placed()) && plan.remarks.is_empty());
    assert_eq!(plan.placements[0].cpus, CpuList::from_iter([0, 1]));
}
