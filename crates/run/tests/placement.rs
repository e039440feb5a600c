//! Placement of threads and pools by the rules of the configuration and by the network card.

mod support;

use ropewalk_config::{Configuration, parse};
use ropewalk_host::{Kind, RuleName};
use ropewalk_run::gateway::SystemPart;
use ropewalk_run::launch_part;
use ropewalk_run::{PlacementError, RunError, launch, placement, placement_of_node, placement_on};
use ropewalk_terms::{EventKey, Role};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};
use support::{Run, Setup, TemporaryDirectory};

/// Returns each thread of this process with the CPUs that it may run on; names are cut after 15 letters.
fn threads() -> BTreeMap<String, String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it").map_while(Result::ok);
    // A thread may end between the list and the query.
    let look = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some((name.trim().to_owned(), cpus.trim().to_owned()))
    };
    tasks.filter_map(look).collect()
}

/// Returns the threads as soon as all of `names` exist: a thread without a rule may take its name after the launch.
fn threads_with(names: &[&str]) -> BTreeMap<String, String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let threads = threads();
        if names.iter().all(|name| threads.contains_key(*name)) || Instant::now() > deadline {
            return threads;
        }
        std::thread::yield_now();
    }
}

/// Returns the CPUs that this process may run on, as text, and the last one of them.
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
    // Once a run is launched, its threads with a rule are placed.
    let at_once = threads();
    let one = last.to_string();
    for (name, cpus) in [("ru0", &one), ("sources", &one), ("bu0-disk", &one), ("bu0", &all)] {
        assert_eq!(at_once.get(name), Some(cpus), "{name} in {at_once:?}");
    }
    assert_eq!(threads_with(&["manager"]).get("manager"), Some(&all));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 100)));
    assert_eq!(Run { handle }.end().events.written, 100);
}

/// Returns a push system whose threads have rules.
fn push_system(output: &TemporaryDirectory, rules: &str) -> Configuration {
    let text = format!(
        "version = 1\n[run]\noutput = {:?}\n[[flow]]\nname = \"flow\"\npacking = 5\nemulate = {{ rate = \"1kHz\" }}\n\
         sources = {{ count = 2, address = \"127.0.0.1:24000\" }}\n[farm]\nemulate = {{}}\n[[gateway]]\nname = \"gate\"\n\
         listen = {{ flow = \"127.0.0.1:0\" }}\nqueues = 2\narchitecture = \"threads\"\n{rules}",
        output.path().display().to_string()
    );
    parse("push", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn threads_of_a_push_system_run_where_rules_want_them() {
    let (all, last) = allowed();
    let output = TemporaryDirectory::new("push-placed");
    let rules = [rule("-receive$", last), rule("^gate-1-send$", last), rule("^(gate-0-disk|farm)$", last)].concat();
    // Without an end, so that no thread ends before it is examined.
    let mut handle =
        launch_part(&push_system(&output, &rules), &SystemPart::Whole, None).unwrap_or_else(|error| panic!("{error}"));
    let at_once = threads();
    let one = last.to_string();
    for name in ["gate-0-receive", "gate-1-receive", "gate-1-send", "gate-0-disk", "farm"] {
        assert_eq!(at_once.get(name), Some(&one), "{name} in {at_once:?}");
    }
    let without_rule = ["gate-0-send", "gate-1-disk", "sources-flow"];
    let later = threads_with(&without_rule);
    for name in without_rule {
        assert_eq!(later.get(name), Some(&all), "{name} in {later:?}");
    }
    assert_eq!(handle.warnings(), [""; 0]);
    handle.stop();
    while !handle.is_ended() {
        std::thread::yield_now();
    }
    let summary = handle.finish(Duration::ZERO);
    // The run may end before its sources send.
    let is_lossless = summary.status.reasons.keys().all(|reason| *reason == "nothing");
    assert!(summary.is_balanced() && is_lossless, "{:?}", summary.flows);
    let nowhere = push_system(&output, &rule("farm", 8191));
    let error = launch_part(&nowhere, &SystemPart::Whole, None).expect_err("there is no such CPU").to_string();
    assert!(error.starts_with("thread rule 1: this process may not run on CPU 8191"), "{error}");
}

#[test]
fn a_missing_cpu_is_named_with_the_existing_ones() {
    let (all, _) = allowed();
    let setup = Setup::new("nowhere", &[841]).and(&rule("ru0", 8191));
    let error = launch(&setup.configuration(), None).expect_err("there is no such CPU");
    assert!(matches!(error, RunError::Placement(PlacementError::Unfit(_))), "{error}");
    let wanted = format!("thread rule 1: this process may not run on CPU 8191; it may run on {all}");
    assert_eq!(error.to_string(), wanted);
    assert!(!setup.output().exists(), "nothing is begun");
}

#[test]
fn a_rule_that_matches_no_thread_is_named() {
    let (all, _) = allowed();
    let setup = Setup::new("unused", &[841]).and(&[rule("^readout", &all), rule(".", &all)].concat());
    let plan = placement(&setup.configuration()).expect("the CPUs are there");
    assert_eq!(plan.unused_rules, [RuleName { kind: Kind::Thread, number: 1 }]);
    let named = |kind| plan.placements.iter().filter(move |one| one.kind == kind).map(|one| one.name.as_str());
    assert_eq!(named(Kind::Thread).collect::<Vec<_>>(), ["ru0", "manager", "bu0", "bu0-disk"]);
    let pools = ["ru0-fragments", "ru0-evacuation", "ru0-staging", "manager-staging", "bu0-records", "bu0-staging"];
    assert_eq!(named(Kind::Pool).collect::<Vec<_>>(), pools);
}

/// One configuration serves a run in one process and one whose nodes are separate processes.
#[test]
fn a_rule_for_pools_between_nodes_is_used_by_nodes_and_no_slip_elsewhere() {
    let rules = "[[pool]]\nmatch = \"-(received|control)$\"\nnode = 0\n";
    let configuration = Setup::new("between", &[841]).and(rules).configuration();
    let whole = placement(&configuration).expect("node 0 is there");
    assert!(whole.unused_rules.is_empty() && whole.of(Kind::Pool, "bu0-received").is_none(), "{whole}");
    let node = placement_of_node(&configuration, Role::Builder, 0).expect("node 0 is there");
    let placed = |pool| node.of(Kind::Pool, pool).and_then(|one| one.node);
    assert_eq!(["bu0-received", "ru0-control", "manager-control"].map(placed), [Some(0); 3]);
    assert_eq!(placed("ru0-fragments"), None);
}

/// Returns the policies of the memory areas of this process, as in /proc/self/numa_maps: `bind:0` and so on.
fn policies() -> String {
    fs::read_to_string("/proc/self/numa_maps").expect("Linux with NUMA has it")
}

/// Every machine has node 0. The test checks that the kernel applied the policy.
#[test]
fn pools_lie_on_the_node_that_the_rules_want_and_stay_in_memory() {
    let rules = "[[pool]]\nmatch = \"^ru0-\"\nnode = 0\n[[pool]]\nmatch = \"-records$\"\nlock = true\n";
    let setup = Setup::new("pools", &[]).source("id = 841\nreadout = \"ru0\"\non_close = \"end\"\nemulate = {}");
    let setup = setup.and(rules);
    let mut handle = launch(&setup.configuration(), Some(50)).unwrap_or_else(|error| panic!("{error}"));
    assert!(policies().contains("bind:0"), "{}", policies());
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("Linux tells it").trim() != "0 kB";
    // Without the right to lock, the run continues and a warning names the missing right.
    let refused =
        handle.warnings().iter().any(|warning| warning.contains("bu0-records") && warning.contains("CAP_IPC_LOCK"));
    assert!(locked != refused, "locked {locked}, {:?}", handle.warnings());
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 50)));
    let summary = Run { handle }.end();
    assert_eq!((summary.events.written, summary.warnings.len()), (50, usize::from(refused)));
}

#[test]
fn a_node_that_is_not_there_ends_the_launch() {
    let setup = Setup::new("node", &[841]).and("[[pool]]\nmatch = \"fragments$\"\nnode = 999\n");
    let error = launch(&setup.configuration(), None).expect_err("there is no such node");
    let RunError::Placement(PlacementError::Unfit(fault)) = &error else { panic!("{error}") };
    assert_eq!(fault.key, "pool[0].node");
    assert!(error.to_string().starts_with("pool rule 1: there is no NUMA node 999 for this process"), "{error}");
}

/// Returns the scheduling class of a thread of this process (field 41 of proc_pid_stat(5)).
fn scheduling_class(name: &str) -> u32 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has it").map_while(Result::ok);
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let of_name = |stat: String| {
        let (before, behind) = stat.rsplit_once(')')?;
        before.ends_with(&format!("({name}")).then(|| behind.split_ascii_whitespace().nth(38)?.parse().ok())?
    };
    stats.filter_map(of_name).next().expect("the thread is there")
}

#[test]
fn threads_are_scheduled_as_the_rules_want() {
    let rules = "[[thread]]\nmatch = \"^batch-ru$\"\nscheduling = \"batch\"\n\
                 [[thread]]\nmatch = \"^batch-bu-disk$\"\nscheduling = \"idle\"\n\
                 [[thread]]\nmatch = \"^manager$\"\nscheduling = \"fifo\"\npriority = 2\n";
    let setup = Setup::new("scheduling", &[]).source("id = 841\nreadout = \"ru0\"\non_close = \"end\"\nemulate = {}");
    let text = setup.and(rules).text().replace("\"ru0\"", "\"batch-ru\"").replace("\"bu0\"", "\"batch-bu\"");
    let configuration = parse("test.toml", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let mut handle = launch(&configuration, Some(50)).unwrap_or_else(|error| panic!("{error}"));
    let (batch, idle) = (3, 5);
    assert_eq!((scheduling_class("batch-ru"), scheduling_class("batch-bu-disk")), (batch, idle));
    match handle.warnings() {
        [] => {}
        [one] => assert!(one.contains("thread manager: scheduling `fifo 2`") && one.contains("CAP_SYS_NICE"), "{one}"),
        more => panic!("{more:?}"),
    }
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 50)));
    assert_eq!(Run { handle }.end().events.written, 50);
}

#[test]
fn a_run_with_automatic_placement_builds_its_events_on_any_machine() {
    let source = "id = 841\nreadout = \"ru0\"\non_close = \"end\"\nemulate = {}";
    let setup = Setup::new("automatic", &[]).source(source);
    let text = setup.text().replace("[run]", "[run]\nplacement = \"auto\"");
    let configuration = parse("test.toml", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let plan = placement(&configuration).expect("any machine will do");
    assert!(plan.remarks.iter().any(|remark| remark.contains("from this machine itself")), "{:?}", plan.remarks);
    let mut handle = launch(&configuration, Some(50)).unwrap_or_else(|error| panic!("{error}"));
    handle.start(EventKey::new(0, 1), Some(EventKey::new(0, 50)));
    assert_eq!(Run { handle }.end().events.written, 50);
}

/// Returns a machine read from files as in /proc and /sys: two nodes with two CPUs each, a card on node 1, its
/// interrupt on CPU 3.
fn two_nodes(root: &std::path::Path) -> ropewalk_host::Machine {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("it is in a directory")).expect("a directory can be made");
        fs::write(path, text).expect("a file can be written");
    };
    write("proc/sys/kernel/osrelease", "6.12.0\n");
    write("proc/interrupts", "           CPU0\n 84:   7   PCI-MSI 1-edge   eth2-TxRx-0\n");
    write("proc/irq/84/smp_affinity_list", "5\n");
    write("sys/devices/system/cpu/online", "0-7\n");
    write("sys/devices/system/node/online", "0-1\n");
    write("sys/devices/system/node/node0/cpulist", "0-3\n");
    write("sys/devices/system/node/node1/cpulist", "4-7\n");
    for (file, text) in [("operstate", "up"), ("type", "1"), ("device/numa_node", "1"), ("device/irq", "84")] {
        write(&format!("sys/class/net/eth2/{file}"), text);
    }
    ropewalk_host::Machine::read(root).expect("it is whole")
}

#[test]
fn readout_units_and_their_memory_go_to_their_card() {
    let setup = Setup::new("card", &[841]).another_readout().source("id = 843\nreadout = \"ru1\"");
    let machine = two_nodes(&setup.directory().join("machine"));
    let text = setup.text().replace("[run]", "[run]\nplacement = \"auto\"");
    let text = text.replace("name = \"ru0\"", "name = \"ru0\"\nlisten = \"0.0.0.0:0\"");
    let text = text.replace("name = \"ru1\"", "name = \"ru1\"\ncard = \"eth2\"");
    let configuration = |text: &str| parse("test.toml", text, &|_| None).unwrap_or_else(|error| panic!("{error}"));
    let plan = placement_on(&configuration(&text), &machine).expect("the card is there");
    let cpus = |name| plan.of(Kind::Thread, name).map(|one| one.cpus.to_string());
    assert_eq!((cpus("ru0").as_deref(), cpus("ru1").as_deref()), (Some("4"), Some("6")));
    assert_eq!((cpus("bu0").as_deref(), cpus("bu0-disk").as_deref()), (Some("0-3"), Some("0-3")));
    for pool in ["ru0-fragments", "ru1-fragments", "ru1-evacuation", "ru0-staging"] {
        assert_eq!(plan.of(Kind::Pool, pool).and_then(|one| one.node), Some(1), "{pool}");
    }
    let error =
        placement_on(&configuration(&text.replace("\"eth2\"", "\"eth7\"")), &machine).expect_err("no such card");
    let PlacementError::Unfit(fault) = &error else { panic!("{error}") };
    assert_eq!(
        (fault.key.as_str(), error.to_string().as_str()),
        ("readout[1].card", "ru1: there is no network card `eth7`; there are: eth2")
    );
}
