//! What is read from machines: those below `tests/trees`, made-up ones, and the one that runs the tests.

use std::path::{Path, PathBuf};

use ropewalk_host::{
    Capability, CardKind, CpuList, HugePages, InterruptTask, Machine, MachineError, TransparentHugePages,
};

use crate::made::{MadeMachine, list};

fn tree(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees").join(name)
}

pub(crate) fn machine(name: &str) -> Machine {
    Machine::read(&tree(name)).expect("the made-up machine is whole")
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
fn a_card_is_read_with_its_node_its_queues_and_who_takes_its_interrupts() {
    let interrupts = [(84, "eth2-0", "9"), (85, "eth2-1", "10,26"), (86, "mlx4-async@pci:0000:81:00.0", "0-31")];
    let made = MadeMachine::new(2, 8, 2).card("eth2", 1, &interrupts).network("eth2", [10, 1, 2]);
    // The kernel's own choice counts where it tells.
    made.write("proc/irq/85/effective_affinity_list", "26");
    made.write("proc/net/fib_trie", "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.2.3\n        /32 host LOCAL\n");
    let machine = made.read_machine();
    let card = machine.card("eth2").expect("it is there");
    assert_eq!((card.kind, card.driver.as_deref(), card.is_up), (CardKind::Physical, Some("mlx4_core"), true));
    assert_eq!((card.node, card.megabits_per_second, card.mtu), (Some(1), Some(40_000), Some(9000)));
    assert_eq!((card.receive_queues, card.transmit_queues), (2, 2));
    assert_eq!(card.receive_cpus(), list("9,26"));
    let tasks: Vec<_> = card.interrupts.iter().map(|interrupt| (interrupt.number, interrupt.task)).collect();
    assert_eq!(tasks, [(84, InterruptTask::Receive), (85, InterruptTask::Receive), (86, InterruptTask::Other)]);
    let own: Vec<_> = card.networks.iter().map(|network| (network.address.to_string(), network.prefix)).collect();
    assert_eq!(own, [("10.1.2.3".to_owned(), 24)]);
    let at = |address: &str| machine.card_at(address.parse().unwrap()).map(|card| card.name.as_str());
    assert_eq!(
        (at("10.1.2.77"), at("127.0.0.2"), at("10.1.3.1"), at("::1")),
        (Some("eth2"), Some("lo"), None, Some("lo"))
    );
}

#[test]
fn of_two_interfaces_of_one_function_each_has_its_own_interrupts() {
    let made = MadeMachine::new(1, 4, 1).card(
        "eth2",
        0,
        &[(84, "eth2-TxRx-0", "1"), (85, "eth3-TxRx-0", "2"), (86, "eth2", "3")],
    );
    let machine = made.read_machine();
    let card = machine.card("eth2").expect("it is there");
    assert_eq!(card.receive_cpus(), list("1"), "{:?}", card.interrupts);
}

#[test]
fn the_hardware_of_a_virtual_machine_lies_below_the_function() {
    let made =
        MadeMachine::new(1, 2, 1).card("eth0", -1, &[(38, "virtio2-input.0", "1"), (39, "virtio2-output.0", "0")]);
    // As virtio has it: the interface's device is a child of the PCI function.
    let function = made.root().join("sys/devices/pci0000:80/eth0-function");
    std::fs::create_dir_all(function.join("virtio2/net")).unwrap();
    std::fs::rename(function.join("net/eth0"), function.join("virtio2/net/eth0")).unwrap();
    std::fs::remove_file(made.root().join("sys/class/net/eth0")).unwrap();
    std::os::unix::fs::symlink(
        "../../devices/pci0000:80/eth0-function/virtio2/net/eth0",
        made.root().join("sys/class/net/eth0"),
    )
    .unwrap();
    let card = made.read_machine().card("eth0").cloned().expect("it is there");
    assert_eq!((card.receive_cpus(), card.node, card.interrupts.len()), (list("1"), None, 2));
}

#[test]
fn a_bond_is_made_of_its_cards() {
    let made = MadeMachine::new(2, 4, 1)
        .card("eth2", 1, &[(84, "eth2-0", "5")])
        .bond("bond0", &["eth2"])
        .bond("bond0.7", &["bond0"]);
    let machine = made.read_machine();
    let vlan = machine.card("bond0.7").expect("it is there");
    assert_eq!(vlan.kind, CardKind::Virtual);
    let hardware: Vec<_> = machine.hardware_of(vlan).into_iter().map(|card| card.name.as_str()).collect();
    assert_eq!(hardware, ["eth2"]);
    // A loop, which the kernel does not allow, is no reason to loop.
    let made = made.bond("a", &["b"]).bond("b", &["a"]);
    let machine = made.read_machine();
    assert!(machine.hardware_of(machine.card("a").unwrap()).is_empty());
}

#[test]
fn sockets_caches_and_memory_are_read() {
    let made = MadeMachine::new(4, 2, 2).offline("3,15");
    let machine = made.read_machine();
    assert_eq!((machine.sockets.len(), &machine.sockets[1].cpus), (4, &list("2,10-11")));
    assert_eq!((&machine.offline, machine.cores.len()), (&list("3,15"), 8));
    assert_eq!(machine.cores.last(), Some(&list("11")), "what is left of the core of CPU 3");
    let outermost: Vec<_> = machine.caches.iter().filter(|cache| cache.level == 3).map(|cache| cache.bytes).collect();
    assert_eq!(outermost, [20 << 20; 4]);
    assert_eq!(machine.nodes[0].memory_bytes, Some(16 << 30));
    assert_eq!(machine.common_node(&list("2,10")), Some(1));
    assert_eq!((machine.common_node(&list("2,4")), machine.common_node(&list("3"))), (None, None));
    assert_eq!(machine.whole_cores(&list("10")), list("2,10"));
}

/// Isolated CPUs are not among the ones that the kernel lists as allowed, although a process may be pinned to them.
#[test]
fn isolated_cpus_are_permitted_as_far_as_the_container_has_them() {
    let free = MadeMachine::new(2, 4, 1).isolated("2-5").read_machine();
    assert_eq!((free.allowed, free.permitted, free.isolated), (list("0-1,6-7"), list("0-7"), list("2-5")));
    let confined = MadeMachine::new(2, 4, 1).isolated("2-5").confined("0-3", "0").read_machine();
    assert_eq!((confined.allowed, confined.permitted), (list("0-1"), list("0-3")));
    assert_eq!(confined.nodes.iter().map(|node| node.is_allowed).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn rights_are_read_with_their_limits() {
    let rights = MadeMachine::new(1, 2, 1).without_rights("8388608").read_machine().rights;
    assert!(rights.lacks(Capability::SysNice) && rights.forbids_realtime(1));
    assert!(rights.forbids_locking((8 << 20) + 1) && !rights.forbids_locking(8 << 20));
    let unlimited = MadeMachine::new(1, 2, 1).without_rights("unlimited").read_machine().rights;
    assert!(!unlimited.forbids_locking(u64::MAX));
    let unknown = MadeMachine::new(1, 2, 1).read_machine().rights;
    assert!(!unknown.lacks(Capability::IpcLock) && !unknown.forbids_realtime(99));
}

#[test]
fn a_malformed_list_of_a_card_names_its_file() {
    let made = MadeMachine::new(1, 2, 1).card("eth0", 0, &[(38, "eth0-0", "one")]);
    let error = Machine::read(made.root()).unwrap_err().to_string();
    assert!(error.contains("proc/irq/38/smp_affinity_list: `one` is no list of CPUs"), "{error}");
}
