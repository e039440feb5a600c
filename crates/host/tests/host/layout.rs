//! The paper's layout on machines of all kinds.

use crate::made::{MadeMachine, list};
use ropewalk_host::{Decision, Feed, Item, Kind, Machine, Picture, Plan, PlanError, Policy, Rule};

/// What a run consists of: readout units fed in this way, and the rest.
pub(crate) fn run_of(feeds: &[Feed]) -> Vec<Item> {
    let mut items = Vec::new();
    let mut add = |kind, name: String, feed| items.push(Item { kind, name, feed });
    for (index, feed) in feeds.iter().enumerate() {
        add(Kind::Thread, format!("ru{index}"), Some(feed.clone()));
        add(Kind::Pool, format!("ru{index}-fragments"), Some(feed.clone()));
    }
    for name in ["manager", "bu0", "bu0-disk"] {
        add(Kind::Thread, name.to_owned(), None);
    }
    add(Kind::Pool, "bu0-records".to_owned(), None);
    items
}

/// The automatic plan for readout units that are fed like this.
pub(crate) fn plan(machine: &Machine, feeds: &[Feed]) -> Plan {
    Policy::default().automatic().plan(machine, &run_of(feeds)).expect("the cards are there")
}

fn cpus(plan: &Plan, thread: &str) -> String {
    let placement = plan.of(Kind::Thread, thread).expect("it was planned");
    if placement.is_placed() { placement.cpus.to_string() } else { "anywhere".to_owned() }
}

fn node(plan: &Plan, pool: &str) -> Option<u32> {
    plan.of(Kind::Pool, pool).expect("it was planned").node
}

fn remarked(plan: &Plan, words: &str) -> bool {
    plan.remarks.iter().any(|remark| remark.contains(words))
}

fn eth2() -> Feed {
    Feed::Card("eth2".to_owned())
}

/// A readout machine of the paper: two sockets of 8 cores, the 40 Gb/s card on one of them with its interrupts on one
/// core, the InfiniBand card's interrupts on a core of the other.
pub(crate) fn machine_of_the_paper() -> MadeMachine {
    MadeMachine::new(2, 8, 2)
        .card("eth2", 1, &[(84, "mlx4-1@0000:81:00.0", "11")])
        .card("ib0", 0, &[(90, "mlx4-2@0000:42:00.0", "7")])
        .network("eth2", [10, 1, 2])
}

#[test]
fn a_machine_of_the_paper_is_laid_out_as_in_figure_9() {
    let plan = plan(&machine_of_the_paper().read_machine(), &[eth2(), eth2()]);
    assert_eq!((cpus(&plan, "ru0"), cpus(&plan, "ru1")), ("10".to_owned(), "12".to_owned()), "either side of CPU 11");
    assert_eq!((node(&plan, "ru0-fragments"), node(&plan, "ru1-fragments")), (Some(1), Some(1)));
    for other in ["manager", "bu0", "bu0-disk"] {
        assert_eq!(
            cpus(&plan, other),
            "0-6,16-22",
            "the other socket, but for the core of the other card's interrupts"
        );
    }
    assert_eq!(node(&plan, "bu0-records"), None);
    let reader = plan.of(Kind::Thread, "ru0").map(|one| one.by.clone());
    assert_eq!(reader, Some(Decision::Automatic("beside CPU 11, which takes the interrupts of eth2".to_owned())));
    assert_eq!(plan.remarks, ["auto: eth2 has one receive queue: one core takes all that comes"]);
}

#[test]
fn with_two_interrupts_the_readers_are_next_to_either() {
    let made = MadeMachine::new(2, 8, 2).card("eth2", 1, &[(84, "eth2-0", "9"), (85, "eth2-1", "13")]);
    let plan = plan(&made.read_machine(), &[eth2(), eth2(), eth2(), eth2(), eth2()]);
    let readers: Vec<String> = (0..5).map(|index| cpus(&plan, &format!("ru{index}"))).collect();
    assert_eq!(readers, ["8", "10", "12", "14", "11"]);
    assert!(plan.remarks.is_empty(), "{:?}", plan.remarks);
}

/// The core nearest to the interrupts of one card takes those of the other one.
#[test]
fn readers_of_one_card_leave_the_interrupts_of_the_other_alone() {
    let made =
        MadeMachine::new(2, 4, 1).card("eth2", 1, &[(84, "eth2-0", "5")]).card("eth3", 1, &[(85, "eth3-0", "6")]);
    let eth3 = || Feed::Card("eth3".to_owned());
    let machine = made.read_machine();
    let two = plan(&machine, &[eth2(), eth3()]);
    assert_eq!((cpus(&two, "ru0"), cpus(&two, "ru1")), ("4".to_owned(), "7".to_owned()));
    let three = plan(&machine, &[eth2(), eth3(), eth3()]);
    assert_eq!(cpus(&three, "ru2"), "7", "there are no others, and the threads that read the same card share them");
}

/// An interrupt on the second hardware thread of a core keeps the whole core busy.
#[test]
fn the_core_that_takes_interrupts_is_left_to_them_whole() {
    let made = MadeMachine::new(2, 4, 2).card("eth2", 1, &[(84, "eth2-0", "12")]);
    let plan = plan(&made.read_machine(), &[eth2()]);
    assert_eq!(cpus(&plan, "ru0"), "5", "CPU 4 is the core of CPU 12");
}

#[test]
fn on_four_sockets_the_other_threads_have_three_of_them() {
    let made = MadeMachine::new(4, 4, 2).card("eth2", 1, &[(84, "eth2-0", "5"), (85, "eth2-1", "6")]);
    let plan = plan(&made.read_machine(), &[eth2(), eth2()]);
    assert_eq!((cpus(&plan, "ru0"), cpus(&plan, "ru1")), ("4".to_owned(), "7".to_owned()));
    assert_eq!((cpus(&plan, "bu0"), node(&plan, "ru0-fragments")), ("0-3,8-19,24-31".to_owned(), Some(1)));
}

#[test]
fn the_card_is_found_by_the_address_that_a_unit_listens_on() {
    let made =
        MadeMachine::new(2, 4, 1).card("eth2", 1, &[(84, "eth2-0", "5")]).card("eth3", 0, &[(85, "eth3-0", "1")]);
    let machine = made.network("eth2", [10, 1, 2]).network("eth3", [10, 1, 3]).bond("bond0", &["eth3"]);
    let plan = plan(
        &machine.network("bond0", [10, 1, 4]).read_machine(),
        &[
            Feed::Address("10.1.2.1".parse().unwrap()),
            Feed::Address("10.1.3.1".parse().unwrap()),
            Feed::Address("10.1.4.1".parse().unwrap()),
            Feed::Address("10.1.9.1".parse().unwrap()),
        ],
    );
    let readers: Vec<String> = (0..4).map(|index| cpus(&plan, &format!("ru{index}"))).collect();
    assert_eq!(readers, ["4", "0", "2", "3,6-7"], "with cards on both nodes the others share what is left");
    assert_eq!((node(&plan, "ru0-fragments"), node(&plan, "ru2-fragments")), (Some(1), Some(0)));
    assert!(remarked(&plan, "ru3: no network card reaches 10.1.9.1"), "{:?}", plan.remarks);
}

#[test]
fn an_item_that_listens_on_every_card_is_placed_by_the_fastest_with_a_remark() {
    let made =
        MadeMachine::new(2, 4, 1).card("eth0", 0, &[(83, "eth0-0", "0")]).card("eth2", 1, &[(84, "eth2-0", "5")]);
    made.write("sys/class/net/eth0/speed", "1000");
    let plan = plan(&made.read_machine(), &[Feed::Any]);
    assert_eq!(cpus(&plan, "ru0"), "4");
    assert!(remarked(&plan, "ru0: listens on every card; eth2 is taken"), "{:?}", plan.remarks);
}

#[test]
fn a_missing_card_is_reported_with_the_present_ones() {
    let machine = MadeMachine::new(1, 4, 1).card("eth2", 0, &[(84, "eth2-0", "1")]).read_machine();
    let items = run_of(&[Feed::Card("eth7".to_owned())]);
    let error = Policy::default().automatic().plan(&machine, &items).unwrap_err();
    assert!(matches!(error, PlanError::NoSuchCard { .. }));
    assert_eq!(error.to_string(), "ru0: there is no network card `eth7`; there are: eth2, lo");
}

#[test]
fn a_card_without_a_node_is_where_its_interrupts_are() {
    let made = MadeMachine::new(2, 4, 1).card("eth2", -1, &[(84, "eth2-0", "6")]);
    let one = plan(&made.read_machine(), &[eth2()]);
    assert_eq!(
        (cpus(&one, "ru0"), node(&one, "ru0-fragments"), cpus(&one, "bu0")),
        ("5".to_owned(), Some(1), "0-3".to_owned())
    );
    assert!(remarked(&one, "does not tell the node of eth2: its interrupts come to node 1"), "{:?}", one.remarks);
    let made = MadeMachine::new(2, 4, 1).card("eth2", -1, &[(84, "eth2-0", "3"), (85, "eth2-1", "4")]);
    let two = plan(&made.read_machine(), &[eth2()]);
    assert_eq!(
        (cpus(&two, "ru0"), node(&two, "ru0-fragments"), cpus(&two, "bu0")),
        ("2".to_owned(), None, "0-1,5-7".to_owned())
    );
    assert!(remarked(&two, "its memory may be anywhere"), "{:?}", two.remarks);
}

#[test]
fn interrupts_that_come_to_the_wrong_node_are_reported() {
    let made = MadeMachine::new(2, 4, 1).card("eth2", 1, &[(84, "eth2-0", "0")]);
    let plan = plan(&made.read_machine(), &[eth2()]);
    assert_eq!((cpus(&plan, "ru0"), cpus(&plan, "bu0")), ("4".to_owned(), "1-3".to_owned()));
    assert!(remarked(&plan, "come to CPU 0, away from its node 1"), "{:?}", plan.remarks);
}

#[test]
fn a_card_that_interrupts_every_core_is_read_all_the_same() {
    let interrupts = [(84, "eth2-0", "4"), (85, "eth2-1", "5"), (86, "eth2-2", "6"), (87, "eth2-3", "7")];
    let plan = plan(&MadeMachine::new(2, 4, 1).card("eth2", 1, &interrupts).read_machine(), &[eth2()]);
    assert_eq!((cpus(&plan, "ru0"), cpus(&plan, "bu0")), ("4".to_owned(), "0-3".to_owned()));
    assert!(remarked(&plan, "every core near eth2 takes its interrupts (4 queues)"), "{:?}", plan.remarks);
}

#[test]
fn one_node_is_shared_by_all() {
    let made = MadeMachine::new(1, 8, 1).card("eth2", 0, &[(84, "eth2-0", "3")]);
    let plan = plan(&made.read_machine(), &[eth2(), eth2()]);
    assert_eq!(
        (cpus(&plan, "ru0"), cpus(&plan, "ru1"), cpus(&plan, "bu0")),
        ("2".to_owned(), "4".to_owned(), "0-1,5-7".to_owned())
    );
    assert_eq!(node(&plan, "ru0-fragments"), None, "there is nothing to choose");
    assert!(remarked(&plan, "one NUMA node"), "{:?}", plan.remarks);
}

#[test]
fn two_cores_are_too_few_to_set_any_apart() {
    let made = MadeMachine::new(1, 2, 1).card("eth0", 0, &[(38, "virtio2-input.0", "1")]);
    let plan = plan(&made.read_machine(), &[Feed::Any]);
    assert!(plan.placements.iter().all(|one| !one.is_placed()), "{plan}");
    assert!(remarked(&plan, "2 cores are too few"), "{:?}", plan.remarks);
}

#[test]
fn without_a_card_everything_goes_where_the_kernel_puts_it() {
    let made = MadeMachine::new(2, 4, 1).bond("veth0", &[]).network("veth0", [10, 9, 9]);
    let feeds = [Feed::Address("127.0.0.1".parse().unwrap()), Feed::Address("10.9.9.1".parse().unwrap()), Feed::Any];
    let plan = plan(&made.read_machine(), &feeds);
    assert!(plan.placements.iter().all(|one| !one.is_placed()), "{plan}");
    for words in [
        "ru0: its data come through lo",
        "ru1: veth0 is no hardware",
        "ru2: no network card is up",
        "no network card feeds",
    ] {
        assert!(remarked(&plan, words), "{words}: {:?}", plan.remarks);
    }
}

#[test]
fn more_readers_than_cores_share_them() {
    let made = MadeMachine::new(2, 3, 1).card("eth2", 1, &[(84, "eth2-0", "4")]);
    let plan = plan(&made.read_machine(), &[eth2(), eth2(), eth2()]);
    let readers: Vec<String> = (0..3).map(|index| cpus(&plan, &format!("ru{index}"))).collect();
    assert_eq!(readers, ["3", "5", "3"]);
    assert!(remarked(&plan, "3 threads that read eth2 share 2 cores"), "{:?}", plan.remarks);
}

/// Isolated CPUs are set apart for readers. Threads that share CPUs are not moved between them.
#[test]
fn isolated_cpus_are_for_readers_and_never_for_threads_that_share() {
    let made = MadeMachine::new(2, 4, 1).card("eth2", 1, &[(84, "eth2-0", "4")]).isolated("2-3,7");
    let plan = plan(&made.read_machine(), &[eth2(), eth2()]);
    assert_eq!(
        (cpus(&plan, "ru0"), cpus(&plan, "ru1"), cpus(&plan, "bu0")),
        ("7".to_owned(), "5".to_owned(), "0-1".to_owned())
    );
}

#[test]
fn what_is_off_or_was_taken_away_is_not_used() {
    let card = |made: MadeMachine| made.card("eth2", 1, &[(84, "eth2-0", "5")]);
    let off = plan(&card(MadeMachine::new(2, 4, 1).offline("0,4")).read_machine(), &[eth2()]);
    assert_eq!((cpus(&off, "ru0"), cpus(&off, "bu0")), ("6".to_owned(), "1-3".to_owned()));
    let confined = plan(&card(MadeMachine::new(2, 4, 1).confined("1-2,6-7", "0-1")).read_machine(), &[eth2()]);
    assert_eq!((cpus(&confined, "ru0"), cpus(&confined, "bu0")), ("6".to_owned(), "1-2".to_owned()));
    let away = plan(&card(MadeMachine::new(2, 4, 1).confined("0-3", "0")).read_machine(), &[eth2()]);
    assert!(remarked(&away, "no CPU of node 1, where eth2 is, is free"), "{:?}", away.remarks);
    assert!(remarked(&away, "may take no memory from node 1"), "{:?}", away.remarks);
    assert_eq!(node(&away, "ru0-fragments"), None);
}

#[test]
fn rules_come_before_the_layout_and_what_they_pin_is_left_alone() {
    let machine = machine_of_the_paper().read_machine();
    let pinned = Rule { pattern: "^ru0$".to_owned(), cpus: Some(list("12")), ..Rule::default() };
    let records = Rule { pattern: "records$".to_owned(), node: Some(0), ..Rule::default() };
    let policy = Policy::new(vec![pinned], vec![records]).unwrap().automatic();
    let plan = policy.plan(&machine, &run_of(&[eth2(), eth2(), eth2()])).unwrap();
    let readers: Vec<String> = (0..3).map(|index| cpus(&plan, &format!("ru{index}"))).collect();
    assert_eq!(readers, ["12", "10", "9"], "CPU 12 is taken");
    assert_eq!((node(&plan, "bu0-records"), node(&plan, "ru0-fragments")), (Some(0), Some(1)));
    assert!(plan.unused_rules.is_empty());
}

// ---- pictures of machines and placements

/// The page about placement shows this picture, of the paper's readout machine.
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
