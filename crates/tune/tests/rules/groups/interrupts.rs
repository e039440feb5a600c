//! Interrupts, on recorded machines alone.

use ropewalk_tune::{Grade, Transport, Wish};

use crate::machines::{Copy, changes, fed, finds, readout, worst};

fn on_eth1() -> Wish {
    Wish { interfaces: vec!["eth1".to_owned()], ..Wish::default() }
}

/// A server whose four first queues (more are advised against) interrupt these CPUs.
fn interrupting(cpus: [&str; 4]) -> Copy {
    let numbers = 120..124;
    numbers.zip(cpus).fold(Copy::of("server"), |copy, (number, cpu)| {
        copy.with(&format!("proc/irq/{number}/smp_affinity_list"), &format!("{cpu}\n"))
    })
}

#[test]
fn queues_interrupt_the_node_of_their_card() {
    let found = finds("server", "interrupt_node", &on_eth1());
    assert_eq!(found[0].found, "CPU 0-3, not all on node 1");
    let expected = (0..4).map(|queue| format!("/proc/irq/{}/smp_affinity_list: {queue} -> {}", 120 + queue, 4 + queue));
    assert_eq!(changes(&found), expected.collect::<Vec<_>>());
    let right = interrupting(["4", "5", "6", "7"]);
    assert_eq!(worst(&right.finds("interrupt_node", &on_eth1())), Grade::Good);
    assert!(finds("laptop", "interrupt_node", &Wish::default()).is_empty(), "there is one node");
}

#[test]
fn queues_interrupt_cores_of_their_own() {
    let one = interrupting(["5", "5", "5", "13"]);
    let found = one.finds("interrupt_spread", &on_eth1());
    assert_eq!(found[0].found, "4 queues interrupt 1 cores (CPU 5,13)");
    assert_eq!(changes(&found)[0], "/proc/irq/120/smp_affinity_list: 5 -> 4");
    assert_eq!(worst(&finds("server", "interrupt_spread", &on_eth1())), Grade::Good);
}

/// Paper 3, Fig. 9: interrupts in the middle, readers on either side.
#[test]
fn readers_have_the_cores_on_either_side_of_the_interrupts() {
    let found = finds("server", "interrupt_layout", &readout("eth1", "/data"));
    let queues = [(120, 0, 5), (121, 1, 6), (122, 2, 5), (123, 3, 6)];
    let expected = queues.map(|(number, from, to)| format!("/proc/irq/{number}/smp_affinity_list: {from} -> {to}"));
    assert_eq!(changes(&found), expected);
    assert_eq!(found[0].advised, "CPU 5-6, threads that read beside them");
    let right = interrupting(["5", "6", "5", "6"]);
    for rule in ["interrupt_layout", "interrupt_spread", "interrupt_node"] {
        assert_eq!(worst(&right.finds(rule, &readout("eth1", "/data"))), Grade::Good, "{rule}");
    }
    assert!(finds("server", "interrupt_layout", &on_eth1()).is_empty(), "nothing feeds");
}

/// `placement = "auto"` puts readers on isolated cores first, so that those need no others.
#[test]
fn cores_that_are_set_apart_are_left_to_readers() {
    const ISOLATED: &str = "sys/devices/system/cpu/isolated";
    const TICKLESS: &str = "sys/devices/system/cpu/nohz_full";
    let advised = |file: &str, cpus: &str| {
        let copy = Copy::of("server").with(file, &format!("{cpus}\n"));
        copy.finds("interrupt_layout", &readout("eth1", "/data"))[0].advised.clone()
    };
    let beside = |cpus: &str| format!("CPU {cpus}, threads that read beside them");
    assert_eq!(advised(ISOLATED, "4-5,12-13"), beside("6-7"));
    assert_eq!(advised(TICKLESS, "4-5,12-13"), beside("6-7"));
    assert_eq!(advised(ISOLATED, "4"), beside("5-6"), "one reader of two has a core of his own");
    assert_eq!(advised(ISOLATED, "4-7,12-15"), beside("5-6"), "the node has no others");
    let others = Copy::of("server").with("proc/irq/61/smp_affinity_list", "6\n").with(ISOLATED, "3\n");
    let moved = changes(&others.finds("interrupt_others", &readout("eth1", "/data")));
    assert_eq!(moved, ["/proc/irq/61/smp_affinity_list: 6 -> 2"]);
}

/// The kernel leaves them out of the mask, so that it would not be the one that was written.
#[test]
fn packets_are_not_handed_over_to_cores_that_are_set_apart() {
    for file in ["isolated", "nohz_full"] {
        let copy = Copy::of("laptop").with(&format!("sys/devices/system/cpu/{file}"), "0\n");
        let found = copy.finds("packet_steering", &fed("eth0", Transport::Tcp, None));
        assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Good, "no: there is no other core"), "{file}");
    }
}

#[test]
fn other_cards_interrupt_elsewhere() {
    let wish = readout("eth1", "/data");
    assert_eq!(worst(&finds("server", "interrupt_others", &wish)), Grade::Good);
    let near = Copy::of("server").with("proc/irq/61/smp_affinity_list", "6\n");
    assert_eq!(changes(&near.finds("interrupt_others", &wish)), ["/proc/irq/61/smp_affinity_list: 6 -> 3"]);
}

/// Two ports of one function, or a card and who stands for a virtual machine: where drivers do not name interrupts by
/// interface, all belong to both.
#[test]
fn interrupts_that_a_feeding_card_has_too_are_not_those_of_another() {
    let (wish, directory) = (readout("eth1", "/data"), "sys/devices/pci0000:81/0000:81:00.0/net/eth2");
    let copy = interrupting(["5", "6", "5", "6"]).with(&format!("{directory}/operstate"), "up\n");
    let copy = copy.linked(&format!("{directory}/device"), "../..");
    let copy = copy.linked("sys/class/net/eth2", "../../devices/pci0000:81/0000:81:00.0/net/eth2");
    assert!(copy.finds("interrupt_others", &wish).iter().all(|finding| !finding.subject.starts_with("eth2")));
    let named = Wish { interfaces: vec!["eth2".to_owned()], ..wish.clone() };
    for rule in ["interrupt_node", "interrupt_spread", "interrupt_layout"] {
        assert!(changes(&copy.finds(rule, &named)).is_empty(), "{rule}: who reads decides");
    }
    let near = copy.with("proc/irq/61/smp_affinity_list", "6\n");
    assert_eq!(changes(&near.finds("interrupt_others", &wish)), ["/proc/irq/61/smp_affinity_list: 6 -> 3"]);
}

#[test]
fn who_moves_interrupts_is_found_unless_cpus_are_banned() {
    let found = finds("server", "irqbalance", &Wish::default());
    assert_eq!(
        (worst(&found), found[0].found.as_str()),
        (Grade::CouldBeBetter, "runs as process 812, with no CPU banned")
    );
    assert_eq!(worst(&finds("laptop", "irqbalance", &Wish::default())), Grade::Good);
    let banned = Copy::of("server").with("etc/default/irqbalance", "IRQBALANCE_BANNED_CPULIST=\"4-7\"\n");
    assert_eq!(worst(&banned.finds("irqbalance", &Wish::default())), Grade::Good);
    let slow = Wish { interfaces: vec!["eth0".to_owned()], ..Wish::default() };
    assert_eq!(worst(&finds("server", "irqbalance", &slow)), Grade::Good);
}

#[test]
fn one_queue_is_shared_out_and_several_are_not() {
    let wish = fed("eth0", Transport::Tcp, None);
    let found = finds("laptop", "packet_steering", &wish);
    // CPU 1 takes the interrupt, so that core 0 is left.
    assert_eq!(changes(&found), ["/sys/class/net/eth0/queues/rx-0/rps_cpus: 0 -> 1"]);
    assert_eq!(worst(&finds("laptop", "packet_steering", &Wish::default())), Grade::Good);
    assert_eq!(worst(&finds("server", "packet_steering", &on_eth1())), Grade::Good);
    let twice = Copy::of("server").with("sys/class/net/eth1/queues/rx-2/rps_cpus", "0000,000000f0\n");
    assert_eq!(
        changes(&twice.finds("packet_steering", &on_eth1())),
        ["/sys/class/net/eth1/queues/rx-2/rps_cpus: f0 -> 0"]
    );
}

#[test]
fn a_queue_that_is_to_have_company_hands_nothing_over() {
    let file = |queue: u32, name: &str| format!("sys/class/net/eth1/queues/rx-{queue}/{name}");
    let one = (1..8).fold(Copy::of("server").recorded("\"8\"", "\"1\""), |copy, queue| {
        copy.without(&file(queue, "rps_cpus")).without(&file(queue, "rps_flow_cnt"))
    });
    let wish = readout("eth1", "/data");
    assert_eq!(changes(&one.finds("channels", &wish)), ["combined channels of eth1: 1 -> 2"]);
    assert_eq!(worst(&one.finds("packet_steering", &wish)), Grade::Good);
    let handing = one.with(&file(0, "rps_cpus"), "0000,000000f0\n");
    let changed = changes(&handing.finds("packet_steering", &wish));
    assert_eq!(changed, ["/sys/class/net/eth1/queues/rx-0/rps_cpus: f0 -> 0"]);
}

#[test]
fn transmit_queues_have_cpus_of_their_own() {
    let found = finds("server", "transmit_steering", &Wish::default());
    let expected =
        ["/sys/class/net/eth0/queues/tx-0/xps_cpus: 0 -> 5555", "/sys/class/net/eth0/queues/tx-1/xps_cpus: 0 -> aaaa"];
    assert_eq!(changes(&found), expected);
    assert_eq!(worst(&finds("server", "transmit_steering", &on_eth1())), Grade::Good);
}

#[test]
fn isolated_cpus_are_told_and_have_no_tick() {
    assert_eq!(worst(&finds("server", "isolated_cpus", &readout("eth1", "/data"))), Grade::Told);
    assert_eq!(worst(&finds("server", "isolated_cpus", &on_eth1())), Grade::Good);
    assert_eq!(worst(&finds("server", "tickless_cpus", &on_eth1())), Grade::Good);
    let isolated = Copy::of("server").with("sys/devices/system/cpu/isolated", "4,7\n");
    assert_eq!(worst(&isolated.finds("isolated_cpus", &readout("eth1", "/data"))), Grade::Good);
    let found = isolated.finds("tickless_cpus", &on_eth1());
    assert_eq!(found[0].advised, "`nohz_full=4,7` on the kernel's command line");
    let tickless = isolated.with("sys/devices/system/cpu/nohz_full", "4-7\n");
    assert_eq!(worst(&tickless.finds("tickless_cpus", &on_eth1())), Grade::Good);
}

/// When queues and interrupts are as advised, `placement = "auto"` puts the readers where this layout has left room.
#[test]
fn placement_and_interrupts_make_the_same_layout() {
    use ropewalk_host::{Feed, Item, Kind, Machine, Policy};
    let copy = interrupting(["5", "6", "5", "6"]);
    let lines = std::fs::read_to_string(copy.root().join("proc/interrupts")).expect("it is there");
    let of_queues_that_go = ["comp4", "comp5", "comp6", "comp7"];
    let kept = lines.lines().filter(|line| of_queues_that_go.iter().all(|queue| !line.contains(queue)));
    let copy = copy.with("proc/interrupts", &kept.collect::<Vec<_>>().join("\n"));
    let machine = Machine::read(copy.root()).expect("a whole machine");
    let reader =
        |name: &str| Item { kind: Kind::Thread, name: name.to_owned(), feed: Some(Feed::Card("eth1".to_owned())) };
    let plan =
        Policy::default().automatic().plan(&machine, &[reader("ru0"), reader("ru1")]).expect("the card is there");
    let mut cpus: Vec<String> = plan.placements.iter().map(|placement| placement.cpus.to_string()).collect();
    cpus.sort();
    assert_eq!(cpus, ["4", "7"]);
    assert_eq!(worst(&copy.finds("interrupt_layout", &readout("eth1", "/data"))), Grade::Good);
}
