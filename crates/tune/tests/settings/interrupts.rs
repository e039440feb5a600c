//! Interrupts, on recorded machines alone.

use ropewalk_tune::{Grade, Placed, Transport, Wish};

use crate::machines::{Copy, changes, fed, finds, on, placed, readout, worst};

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

/// Which CPUs interrupts come to is then a matter of what rules leave.
#[test]
fn cores_that_rules_give_to_readers_take_no_interrupts() {
    let advised = |rules: [&str; 2]| {
        let wish = placed(readout("eth1", "/data"), rules.map(on));
        finds("server", "interrupt_layout", &wish)[0].advised.clone()
    };
    let beside = |cpus: &str| format!("CPU {cpus}, threads that read beside them");
    assert_eq!(advised(["5", "6"]), beside("4,7"));
    assert_eq!(advised(["4-5", "4-5"]), beside("6-7"));
    assert_eq!(advised(["14", "15"]), beside("4-5"), "the second hardware threads of cores 6 and 7");
    assert_eq!(advised(["2", "5"]), beside("4,6-7"), "one of them reads elsewhere");
    assert_eq!(advised(["4-7", "4-7"]), beside("5-6"), "rules leave nothing");
    let half = placed(readout("eth1", "/data"), [on("5"), Placed::Automatic]);
    assert_eq!(finds("server", "interrupt_layout", &half)[0].advised, beside("4,6"), "the other one needs a core, too");
    let others = Copy::of("server").with("proc/irq/61/smp_affinity_list", "6\n");
    let moved = others.finds("interrupt_others", &placed(readout("eth1", "/data"), [on("3"), on("11")]));
    assert_eq!(changes(&moved), ["/proc/irq/61/smp_affinity_list: 6 -> 2"], "one reads on CPU 3");
}

/// Each has its stretch of the middle.
#[test]
fn cards_that_feed_from_one_node_share_its_cores() {
    let copy = Copy::of("server").with("sys/devices/pci0000:18/0000:18:00.0/numa_node", "1\n");
    let mut wish = readout("eth0", "/data");
    wish.feeding[1].interface = "eth1".to_owned();
    let advised: Vec<String> =
        copy.finds("interrupt_layout", &wish).into_iter().map(|finding| finding.advised).collect();
    assert_eq!(advised, ["CPU 5, threads that read beside them", "CPU 6, threads that read beside them"]);
    wish.feeding[1].placed = on("4");
    let advised: Vec<String> =
        copy.finds("interrupt_layout", &wish).into_iter().map(|finding| finding.advised).collect();
    assert_eq!(advised, ["CPU 5, threads that read beside them", "CPU 6, threads that read beside them"]);
}

#[test]
fn readers_left_to_the_kernel_are_found() {
    let found = |placing: [Placed; 2]| finds("server", "reader_cores", &placed(readout("eth1", "/data"), placing));
    let loose = found([Placed::Nobody, on("5")]);
    assert_eq!((worst(&loose), loose[0].found.as_str()), (Grade::CouldBeBetter, "wherever the kernel puts them: ru0"));
    assert_eq!(worst(&found([Placed::Automatic, on("5")])), Grade::Good);
    let away = found([Placed::Automatic, on("3-4")]);
    assert_eq!((worst(&away), away[0].found.as_str()), (Grade::CouldBeBetter, "not all on node 1: ru1"));
    assert_eq!(worst(&finds("laptop", "reader_cores", &readout("eth0", "/runs"))), Grade::Good, "there are two cores");
    assert!(finds("server", "reader_cores", &on_eth1()).is_empty(), "nothing feeds");
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

/// Two ports of one function, or a card and the representor of a virtual machine: if drivers do not name interrupts by
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
fn the_program_that_moves_interrupts_is_found() {
    let found = finds("server", "irqbalance", &Wish::default());
    assert_eq!(
        (worst(&found), found[0].found.as_str()),
        (Grade::CouldBeBetter, "runs as process 812, with no CPU banned")
    );
    assert_eq!(worst(&finds("laptop", "irqbalance", &Wish::default())), Grade::Good);
    let slow = Wish { interfaces: vec!["eth0".to_owned()], ..Wish::default() };
    assert_eq!(worst(&finds("server", "irqbalance", &slow)), Grade::Good);
}

/// From CPUs that are banned it takes interrupts away, so that those of the card have to be banned themselves.
#[test]
fn interrupts_stay_where_irqbalance_may_not_move_them() {
    let (wish, file) = (placed(readout("eth1", "/data"), [on("5"), Placed::Automatic]), "etc/default/irqbalance");
    let found = |text: &str| {
        let found = Copy::of("server").with(file, text).finds("irqbalance", &wish).remove(0);
        (found.grade, found.found, found.advised)
    };
    let (grade, told, advised) = found("IRQBALANCE_BANNED_CPULIST=\"0,5\"\n");
    assert_eq!((grade, told.as_str()), (Grade::CouldBeBetter, "runs as process 812, with CPU 0,5 banned"));
    assert!(advised.ends_with("`--banirq` for 120-123 and `IRQBALANCE_BANNED_CPULIST` with CPU 13"), "{advised}");
    let arguments = "IRQBALANCE_ARGS=\"--banirq=120 --banirq 121 -i 122 -i123\"\n";
    let (grade, told, advised) = found(&format!("# IRQBALANCE_BANNED_CPULIST=5,13\n{arguments}"));
    assert_eq!((grade, told.as_str()), (Grade::CouldBeBetter, "runs as process 812, with interrupts 120-123 banned"));
    assert!(advised.ends_with("ban from it: `IRQBALANCE_BANNED_CPULIST` with CPU 5,13"), "{advised}");
    for banned in ["CPULIST=5,13", "CPUS=00002020", "CPUS=\"2020\"", "CPULIST=4-7,12-15"] {
        let (grade, told, _) = found(&format!("{arguments}IRQBALANCE_BANNED_{banned}\n"));
        assert_eq!(grade, Grade::Good, "{banned}: {told}");
    }
}

#[test]
fn one_queue_is_shared_out_and_several_are_not() {
    let wish = fed("eth0", Transport::Tcp, None);
    let found = finds("laptop", "packet_steering", &wish);
    // The interrupt is to be moved from CPU 1 to CPU 0, so that core 1 is left.
    assert_eq!(changes(&finds("laptop", "interrupt_layout", &wish)), ["/proc/irq/130/smp_affinity_list: 1 -> 0"]);
    assert_eq!(changes(&found), ["/sys/class/net/eth0/queues/rx-0/rps_cpus: 0 -> 2"]);
    assert_eq!(worst(&finds("laptop", "packet_steering", &Wish::default())), Grade::Good);
    assert_eq!(worst(&finds("server", "packet_steering", &on_eth1())), Grade::Good);
    let twice = Copy::of("server").with("sys/class/net/eth1/queues/rx-2/rps_cpus", "0000,000000f0\n");
    assert_eq!(
        changes(&twice.finds("packet_steering", &on_eth1())),
        ["/sys/class/net/eth1/queues/rx-2/rps_cpus: f0 -> 0"]
    );
}

/// A server whose fast card has one queue.
fn with_one_queue() -> Copy {
    let file = |queue: u32, name: &str| format!("sys/class/net/eth1/queues/rx-{queue}/{name}");
    (1..8).fold(Copy::of("server").recorded("\"8\"", "\"1\""), |copy, queue| {
        copy.without(&file(queue, "rps_cpus")).without(&file(queue, "rps_flow_cnt"))
    })
}

/// Its interrupt comes to CPU 0, on the other node, and is to be moved.
#[test]
fn packets_are_handed_over_beside_interrupts_and_readers() {
    let one = with_one_queue().recorded("\"most_combined_channels\": 16", "\"most_combined_channels\": 1");
    let handed = |placing: [Placed; 2]| {
        let wish = placed(readout("eth1", "/data"), placing);
        let moved = changes(&one.finds("interrupt_layout", &wish)).remove(0);
        let handed = one.finds("packet_steering", &wish).remove(0);
        (moved.rsplit_once(' ').expect("a change").1.to_owned(), handed.advised)
    };
    let expected = |interrupt: &str, packets: &str| (interrupt.to_owned(), packets.to_owned());
    assert_eq!(handed([Placed::Nobody, Placed::Nobody]), expected("5", "to CPU 4,6-7"));
    assert_eq!(handed([Placed::Automatic, Placed::Automatic]), expected("5", "to CPU 7"), "they read on 4 and 6");
    assert_eq!(handed([on("5"), on("6")]), expected("4", "to CPU 7"));
    assert_eq!(handed([on("12"), Placed::Automatic]), expected("6", "to CPU 7"), "they read on 4 and 5");
    assert_eq!(handed([on("4-5"), on("6")]), expected("7", ""), "there is no other core");
}

#[test]
fn a_queue_that_is_to_have_company_hands_nothing_over() {
    let one = with_one_queue();
    let wish = readout("eth1", "/data");
    assert_eq!(changes(&one.finds("channels", &wish)), ["combined channels of eth1: 1 -> 2"]);
    assert_eq!(worst(&one.finds("packet_steering", &wish)), Grade::Good);
    let handing = one.with("sys/class/net/eth1/queues/rx-0/rps_cpus", "0000,000000f0\n");
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
fn isolated_cpus_are_reported_and_have_no_tick() {
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

/// Where a thread of the server's run may run, when another file says so.
fn running(thread: &str, cpus: &str) -> (String, String) {
    let number =
        4711 + ["", "", "ru0", "ru1", "manager", "bu0"].iter().position(|name| *name == thread).expect("it runs");
    let text = format!("Name:\t{thread}\nCpus_allowed_list:\t{cpus}\n");
    (format!("proc/4711/task/{number}/status"), text)
}

/// The server with its run's threads on these CPUs.
fn with_threads(cpus: [(&str, &str); 4]) -> Copy {
    let files = cpus.map(|(thread, cpus)| running(thread, cpus));
    files.iter().fold(Copy::of("server"), |copy, (path, text)| copy.with(path, text))
}

/// Interrupts are to come to CPU 5 and 6, so that 4 and 7 are left of the card's node.
#[test]
fn threads_of_a_run_that_goes_on_are_put_where_a_new_one_would_have_them() {
    let found = finds("server", "running_threads", &readout("eth1", "/data"));
    let thread = |number: u32, name: &str, change: &str| {
        format!("CPUs of thread {number} ({name}) of process 4711: 0-15 -> {change}")
    };
    let expected = [thread(4713, "ru0", "4"), thread(4714, "ru1", "7"), thread(4716, "bu0", "0-1,8-9")];
    assert_eq!(changes(&found), expected);
    assert_eq!((found[0].subject.as_str(), found[0].found.as_str()), ("ropewalk 4711: ru0", "may run on CPU 0-15"));
    assert!(found[0].advised.starts_with("CPU 4, beside CPU 5-6, which takes the interrupts of eth1"), "{found:#?}");
    assert!(found[2].advised.starts_with("CPU 0-1,8-9, away from the card and what reads it"), "{found:#?}");
    assert!(finds("server", "running_threads", &on_eth1()).is_empty(), "the wish names no threads");
    assert!(finds("laptop", "running_threads", &readout("eth0", "/runs")).is_empty(), "nothing runs there");
}

#[test]
fn threads_that_are_as_good_where_they_are_stay_there() {
    let judged = |cpus: [(&str, &str); 4], wish: &Wish| {
        let found = with_threads(cpus).finds("running_threads", wish);
        (worst(&found), changes(&found).len(), found[0].found.clone())
    };
    let wish = readout("eth1", "/data");
    let good = (Grade::Good, 0, "as placed: ru0, ru1, bu0, manager".to_owned());
    assert_eq!(judged([("ru0", "4"), ("ru1", "7"), ("bu0", "0-3"), ("manager", "0-3")], &wish), good);
    assert_eq!(
        judged([("ru0", "15"), ("ru1", "4,12"), ("bu0", "2"), ("manager", "0-3,8-11")], &wish),
        good,
        "the other way"
    );
    let (_, both, _) = judged([("ru0", "4"), ("ru1", "12"), ("bu0", "0"), ("manager", "0")], &wish);
    assert_eq!(both, 1, "one core for both");
    let (_, interrupted, _) = judged([("ru0", "4"), ("ru1", "5"), ("bu0", "0"), ("manager", "0")], &wish);
    assert_eq!(interrupted, 1, "interrupts are to come there");
    let (_, beside, _) = judged([("ru0", "4"), ("ru1", "7"), ("bu0", "12"), ("manager", "6")], &wish);
    assert_eq!(beside, 2, "neither the core of a reader nor that of the interrupts is for others");
}

#[test]
fn rules_say_where_running_threads_belong() {
    let wish = placed(readout("eth1", "/data"), [on("5"), Placed::Automatic]);
    let found = finds("server", "running_threads", &wish);
    assert_eq!(
        (found[0].subject.as_str(), found[0].advised.as_str()),
        ("ropewalk 4711: ru0", "CPU 5, as its rule has it")
    );
    assert!(changes(&found)[1].ends_with("(ru1) of process 4711: 0-15 -> 7"), "{:?}", changes(&found));
    let wide = with_threads([("ru0", "4-5"), ("ru1", "15"), ("bu0", "0-3"), ("manager", "0-3")]);
    let wish = placed(readout("eth1", "/data"), [on("4-5"), Placed::Automatic]);
    assert_eq!(worst(&wide.finds("running_threads", &wish)), Grade::Good, "one has two cores, and the other is beside");
    let mut wish = placed(readout("eth1", "/data"), [on("4"), on("7")]);
    wish.threads.insert("manager".to_owned(), on("1"));
    let copy = with_threads([("ru0", "4"), ("ru1", "7"), ("bu0", "0-3"), ("manager", "0-3")]);
    assert_eq!(
        changes(&copy.finds("running_threads", &wish)),
        ["CPUs of thread 4715 (manager) of process 4711: 0-3 -> 1"]
    );
}

/// Names alone say which thread of the configuration it is.
#[test]
fn threads_that_cannot_be_told_apart_are_left_alone() {
    let wish = readout("eth1", "/data");
    let twice = Copy::of("server").with("proc/4900/comm", "ropewalk\n").finds("running_threads", &wish);
    let told = ("thread ru0", "in ropewalk 4711, 4900", Grade::Told);
    assert_eq!((twice[0].subject.as_str(), twice[0].found.as_str(), twice[0].grade), told);
    assert!(changes(&twice).iter().all(|change| !change.contains("(ru0)")), "{:?}", changes(&twice));
    let mut shared = wish.clone();
    shared.threads = [("units".to_owned(), Placed::Nobody), ("bu0".to_owned(), Placed::Nobody)].into();
    assert!(finds("server", "running_threads", &shared).is_empty(), "who reads is one thread with all others");
    let mut long = wish;
    for name in ["builder-of-the-hall-1", "builder-of-the-hall-2"] {
        long.threads.insert(name.to_owned(), Placed::Nobody);
    }
    let (path, text) =
        ("proc/4711/task/4716/stat", "4716 (builder-of-the-) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 9 20");
    let named = Copy::of("server").with(path, text);
    assert_eq!(changes(&named.finds("running_threads", &long)).len(), 2, "ru0 and ru1");
    long.threads.remove("builder-of-the-hall-2");
    assert_eq!(changes(&named.finds("running_threads", &long)).len(), 3, "it is the only one with these letters");
}

#[test]
fn a_container_bounds_where_running_threads_may_go() {
    let group = |cpus: &str| {
        let copy = Copy::of("server").with("proc/4711/cgroup", "0::/run.slice\n");
        copy.with("sys/fs/cgroup/run.slice/cpuset.cpus.effective", cpus)
    };
    let wish = readout("eth1", "/data");
    let bounded = group("0-7").finds("running_threads", &wish);
    assert!(changes(&bounded)[2].ends_with("(bu0) of process 4711: 0-15 -> 0-1"), "{:?}", changes(&bounded));
    let away = group("8-11").finds("running_threads", &wish);
    assert_eq!((away[0].grade, away[0].changes.len()), (Grade::Told, 0));
    assert!(away[0].advised.ends_with("its container has none of them"), "{away:#?}");
}
