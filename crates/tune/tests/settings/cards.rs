//! Network cards, sockets and protocols, on recorded machines alone.

use ropewalk_tune::{Grade, Transport, Wish};

use crate::machines::{Copy, changes, fed, finds, readout, worst};

fn on_eth1() -> Wish {
    Wish { interfaces: vec!["eth1".to_owned()], ..Wish::default() }
}

#[test]
fn rings_are_long_for_datagrams_and_long_enough_for_connections() {
    assert_eq!(changes(&finds("server", "receive_ring", &on_eth1())), ["receive ring of eth1: 512 -> 1024"]);
    for transport in [Transport::Datagrams, Transport::Rings] {
        let changed = changes(&finds("server", "receive_ring", &fed("eth1", transport, None)));
        assert_eq!(changed, ["receive ring of eth1: 512 -> 8192"]);
    }
    assert_eq!(worst(&finds("laptop", "receive_ring", &Wish::default())), Grade::Good);
}

#[test]
fn a_card_has_no_more_queues_than_its_node_has_cores() {
    assert_eq!(changes(&finds("server", "channels", &on_eth1())), ["combined channels of eth1: 8 -> 4"]);
    let one = Copy::of("server").recorded("\"8\"", "\"1\"");
    let changed = changes(&one.finds("channels", &readout("eth1", "/data")));
    assert_eq!(changed, ["combined channels of eth1: 1 -> 2"], "as many as threads that read");
    assert_eq!(changes(&one.finds("channels", &on_eth1())), ["combined channels of eth1: 1 -> 3"]);
    assert!(finds("laptop", "channels", &Wish::default()).is_empty(), "the driver does not tell");
}

#[test]
fn interrupts_wait_but_not_for_long() {
    let found = finds("server", "coalescing", &on_eth1());
    assert_eq!(found[0].found, "off, fixed at 0 us");
    assert_eq!(changes(&found), ["adaptive coalescing of eth1: off -> on"]);
    assert_eq!(worst(&finds("laptop", "coalescing", &Wish::default())), Grade::Good);
    let slow = Copy::of("laptop").recorded("\"3\"", "\"250\"");
    assert_eq!(changes(&slow.finds("coalescing", &Wish::default())), ["coalescing time of eth0: 250 -> 50"]);
    let never = Copy::of("laptop").recorded("\"3\"", "\"0\"");
    assert_eq!(changes(&never.finds("coalescing", &Wish::default())), ["coalescing time of eth0: 0 -> 20"]);
}

/// virtio_net reports values for every card, and takes others only where the host gave it the feature.
#[test]
fn a_virtual_card_is_asked_for_no_more_than_its_host_gave_it() {
    let given = |bits: [u8; 2]| {
        let features = format!("{}{}{}{}\n", "1".repeat(52), bits[0], bits[1], "0".repeat(10));
        let copy = Copy::of("server").with("sys/class/net/eth1/device/features", &features);
        let driver = copy.root().join("sys/class/net/eth1/device/driver");
        std::fs::remove_file(&driver).expect("a link can be removed");
        std::os::unix::fs::symlink("../../../bus/virtio/drivers/virtio_net", driver).expect("a link can be made");
        copy.finds("coalescing", &on_eth1())
    };
    assert_eq!(changes(&given([1, 1])), ["adaptive coalescing of eth1: off -> on"]);
    assert_eq!(changes(&given([0, 1])), ["coalescing time of eth1: 0 -> 20"]);
    let found = given([0, 0]);
    assert_eq!((worst(&found), changes(&found).len()), (Grade::Good, 0), "{found:#?}");
}

#[test]
fn pauses_are_for_datagrams_alone() {
    let found = finds("server", "pause_frames", &on_eth1());
    assert_eq!((worst(&found), changes(&found).len()), (Grade::Told, 0));
    let found = finds("laptop", "pause_frames", &fed("eth0", Transport::Datagrams, None));
    let expected = ["heeded pause frames of eth0: off -> on", "sent pause frames of eth0: off -> on"];
    assert_eq!(changes(&found), expected);
    assert_eq!(worst(&finds("laptop", "pause_frames", &Wish::default())), Grade::Good);
    // Some drivers then report what was agreed on, so that `on` is read again as `off`.
    let negotiated = "[ [ { \"of\": \"negotiated_pause\" }, \"on\" ],";
    let copy = Copy::of("laptop").recorded("\"properties\": [", &format!("\"properties\": {negotiated}"));
    let found = copy.finds("pause_frames", &fed("eth0", Transport::Datagrams, None));
    assert_eq!((worst(&found), changes(&found).len()), (Grade::CouldBeBetter, 0));
    assert!(found[0].advised.contains("`ethtool -A eth0 autoneg off rx on tx on`"), "{}", found[0].advised);
}

#[test]
fn offloads_are_on_but_for_the_old_one() {
    assert_eq!(changes(&finds("server", "receive_offload", &on_eth1())), ["rx-lro of eth1: on -> off"]);
    let found = finds("laptop", "receive_offload", &Wish::default());
    assert_eq!((worst(&found), changes(&found)), (Grade::Harmful, vec!["rx-gro of eth0: off -> on".to_owned()]));
    assert_eq!(changes(&finds("server", "send_offload", &on_eth1())), ["tx-tcp-segmentation of eth1: off -> on"]);
    assert_eq!(changes(&finds("laptop", "checksum_offload", &Wish::default())), ["rx-checksum of eth0: off -> on"]);
    assert_eq!(worst(&finds("server", "checksum_offload", &on_eth1())), Grade::Good);
}

#[test]
fn idle_queues_are_found() {
    let found = finds("server", "flow_spread", &on_eth1());
    // As many as it is to have: the others go.
    assert_eq!(found[0].found, "2 of 4 queues get something");
    assert_eq!(found[0].advised, "all alike: `ethtool -X eth1 equal 4`");
    let four = Copy::of("server").recorded("0,\n        1,\n        0,\n", "0,\n        1,\n        2,\n");
    let found = four.recorded("2,\n        1", "2,\n        3").finds("flow_spread", &on_eth1());
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Good, "4 queues alike"));
    let eth0 = Wish { interfaces: vec!["eth0".to_owned()], ..Wish::default() };
    assert_eq!(worst(&finds("server", "flow_spread", &eth0)), Grade::Good);
}

#[test]
fn flows_are_steered_to_several_readers() {
    let changed = changes(&finds("server", "flow_steering", &readout("eth1", "/data")));
    assert_eq!(changed[..2], ["rx-ntuple-filter of eth1: off -> on", "net.core.rps_sock_flow_entries: 0 -> 32768"]);
    assert_eq!(changed[2], "/sys/class/net/eth1/queues/rx-0/rps_flow_cnt: 0 -> 8192");
    assert_eq!(changed.len(), 2 + 4, "the queues beyond are advised against");
    assert_eq!(worst(&finds("server", "flow_steering", &on_eth1())), Grade::Good);
}

/// By their numbers: `rx-10` is the eleventh queue, and goes when four are left.
#[test]
fn queues_that_go_are_left_alone_where_there_are_more_than_ten() {
    let copy = (8..12).fold(Copy::of("server").recorded("\"8\"", "\"12\""), |copy, queue| {
        let directory = format!("sys/class/net/eth1/queues/rx-{queue}");
        copy.with(&format!("{directory}/rps_flow_cnt"), "0\n").with(&format!("{directory}/rps_cpus"), "0000,000000f0\n")
    });
    let path = |queue: u32, name: &str| format!("/sys/class/net/eth1/queues/rx-{queue}/{name}: ");
    let flows = changes(&copy.finds("flow_steering", &readout("eth1", "/data")));
    let expected: Vec<_> = (0..4).map(|queue| path(queue, "rps_flow_cnt") + "0 -> 8192").collect();
    assert_eq!(flows[2..], expected);
    let second = copy.with("sys/class/net/eth1/queues/rx-2/rps_cpus", "0000,000000f0\n");
    let handed = changes(&second.finds("packet_steering", &readout("eth1", "/data")));
    assert_eq!(handed, [path(2, "rps_cpus") + "f0 -> 0"]);
}

/// With an interface to look at besides the feeding ones.
fn naming(wish: Wish, interface: &str) -> Wish {
    Wish { interfaces: vec![interface.to_owned()], ..wish }
}

/// A switch with a smaller MTU drops large packets silently, and cannot be asked.
#[test]
fn large_packets_are_planned_where_the_feeding_interface_is_named() {
    let found = finds("server", "mtu", &readout("eth1", "/data"));
    assert_eq!((worst(&found), changes(&found).len()), (Grade::CouldBeBetter, 0));
    assert_eq!(found[0].advised, "9000, where all of this network has it: planned with `--interface eth1`");
    let found = finds("server", "mtu", &naming(readout("eth1", "/data"), "eth1"));
    assert_eq!(changes(&found), ["MTU of eth1: 1500 -> 9000"]);
}

/// The kernel makes a VLAN's packets smaller with those below it, and never larger.
#[test]
fn what_lies_on_a_card_has_large_packets_too() {
    let file = |name: &str| format!("sys/class/net/eth1.7/{name}");
    let copy = Copy::of("server").with(&file("operstate"), "up\n").with(&file("type"), "1\n");
    let copy = copy.with(&file("lower_eth1"), "").with(&file("mtu"), "1500\n");
    for named in ["eth1", "eth1.7"] {
        let found = copy.finds("mtu", &naming(readout("eth1.7", "/data"), named));
        assert_eq!(changes(&found), ["MTU of eth1: 1500 -> 9000", "MTU of eth1.7: 1500 -> 9000"]);
    }
    let small = copy.with("sys/class/net/eth1/mtu", "9000\n");
    let found = small.finds("mtu", &readout("eth1.7", "/data"));
    assert_eq!((found[0].grade, found[1].grade), (Grade::Good, Grade::CouldBeBetter));
}

#[test]
fn packets_are_as_large_as_the_card_can_have_them() {
    let wish = naming(readout("eth1", "/data"), "eth1");
    let most = |bytes: u32| Copy::of("server").recorded("\"eth1\": {", &format!("\"eth1\": {{ \"most_mtu\": {bytes},"));
    assert_eq!(changes(&most(4082).finds("mtu", &wish)), ["MTU of eth1: 1500 -> 4082"]);
    assert_eq!(worst(&most(1500).finds("mtu", &wish)), Grade::Good);
}

#[test]
fn large_packets_are_for_interfaces_that_feed() {
    assert_eq!(
        (worst(&finds("server", "mtu", &on_eth1())), 0),
        (Grade::Told, finds("server", "mtu", &on_eth1())[0].changes.len())
    );
    let large = Copy::of("server").with("sys/class/net/eth1/mtu", "9000\n");
    assert_eq!(worst(&large.finds("mtu", &on_eth1())), Grade::Good);
    let found = large.finds("path_mtu", &on_eth1());
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Harmful, "1500 bytes at most, of 9000"));
    assert_eq!(worst(&finds("server", "path_mtu", &on_eth1())), Grade::Good);
}

#[test]
fn links_that_are_slow_down_or_damaged_are_found() {
    assert_eq!(worst(&finds("server", "link", &on_eth1())), Grade::Good);
    assert_eq!(worst(&finds("laptop", "link", &Wish::default())), Grade::CouldBeBetter);
    let down = Copy::of("server").with("sys/class/net/eth1/operstate", "down\n");
    assert_eq!(worst(&down.finds("link", &on_eth1())), Grade::Harmful);
    let half = Copy::of("server").with("sys/class/net/eth1/duplex", "half\n");
    assert_eq!(worst(&half.finds("link", &on_eth1())), Grade::Harmful);
    assert_eq!(worst(&finds("server", "link_errors", &on_eth1())), Grade::CouldBeBetter, "7 of 900 million");
    let bad = Copy::of("server").with("sys/class/net/eth1/statistics/rx_crc_errors", "70000\n");
    assert_eq!(worst(&bad.finds("link_errors", &on_eth1())), Grade::Harmful);
    assert_eq!(worst(&finds("laptop", "link_errors", &Wish::default())), Grade::Good);
    assert_eq!(finds("server", "drops", &on_eth1())[0].found, "rx_missed_errors 120551 of 921455310");
    assert_eq!(worst(&finds("laptop", "drops", &Wish::default())), Grade::Good);
}

/// A bad cable or module makes a card agree on less.
#[test]
fn links_are_compared_with_what_the_card_can_do() {
    let slow = |offered: &str| {
        let copy = Copy::of("server").with("sys/class/net/eth1/speed", "25000\n");
        copy.recorded("\"offered_megabits\": 100000", offered).finds("link", &on_eth1()).remove(0)
    };
    let found = slow("\"offered_megabits\": 100000");
    assert_eq!((found.grade, found.found.as_str()), (Grade::CouldBeBetter, "25 Gb/s"));
    assert_eq!(found.advised, "100 Gb/s, which the card can do: see to cable, module and port of the switch");
    let bound = slow("\"offered_megabits\": 40000").advised;
    assert_eq!(bound, "100 Gb/s, which the card can do: it offers no more than 40 Gb/s, see `ethtool eth1`");
    let silent =
        Copy::of("server").with("sys/class/net/eth1/speed", "25000\n").recorded("\"most_megabits\"", "\"none\"");
    assert_eq!(worst(&silent.finds("link", &on_eth1())), Grade::Good, "its driver does not tell");
}

#[test]
fn links_are_compared_with_what_the_configuration_has_come_through_them() {
    let wish = |gigabytes: [u64; 2]| {
        let mut wish = readout("eth1", "/data");
        for (feeding, gigabytes) in wish.feeding.iter_mut().zip(gigabytes) {
            feeding.bytes_per_second = Some(gigabytes * 1_000_000_000);
        }
        wish
    };
    assert_eq!(worst(&finds("server", "link", &wish([6, 6]))), Grade::Good);
    let found = finds("server", "link", &wish([7, 6]));
    let told = "100 Gb/s, of 104 Gb/s that the configuration has come through it";
    assert_eq!((found[0].grade, found[0].found.as_str()), (Grade::Harmful, told));
    assert_eq!(found[0].advised, "a faster card, or less through it");
    let slow = Copy::of("server").with("sys/class/net/eth1/speed", "25000\n");
    let advised = slow.finds("link", &wish([3, 1])).remove(0).advised;
    assert!(advised.starts_with("100 Gb/s, which the card can do"), "{advised}");
}

#[test]
fn packet_rings_want_a_driver_with_xdp() {
    assert_eq!(worst(&finds("server", "xdp", &fed("eth1", Transport::Rings, None))), Grade::Good);
    assert_eq!(worst(&finds("laptop", "xdp", &fed("eth0", Transport::Rings, None))), Grade::Harmful);
    assert_eq!(worst(&finds("laptop", "xdp", &Wish::default())), Grade::Good);
    let copying = Copy::of("server").recorded("xsk-zerocopy", "other");
    assert_eq!(worst(&copying.finds("xdp", &fed("eth1", Transport::Rings, None))), Grade::CouldBeBetter);
}

#[test]
fn a_slot_carries_what_the_link_brings() {
    let found = finds("server", "pcie", &on_eth1());
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Harmful, "8.0 GT/s PCIe, 8 lanes: 55 Gb/s"));
    let wide = Copy::of("server").with("sys/class/net/eth1/device/current_link_width", "16\n");
    assert_eq!(worst(&wide.finds("pcie", &on_eth1())), Grade::CouldBeBetter, "half of what the card can do");
    let eth0 = Wish { interfaces: vec!["eth0".to_owned()], ..Wish::default() };
    assert_eq!(worst(&finds("server", "pcie", &eth0)), Grade::Good);
}

#[test]
fn buffers_are_as_large_as_asked_or_as_the_link_wants() {
    let any = Wish::default();
    // 5 ms of 100 Gb/s are 62.5 MB.
    assert_eq!(changes(&finds("server", "receive_buffer", &any)), ["net.core.rmem_max: 212992 -> 67108864"]);
    assert_eq!(changes(&finds("server", "send_buffer", &any)), ["net.core.wmem_max: 212992 -> 67108864"]);
    assert_eq!(worst(&finds("laptop", "receive_buffer", &any)), Grade::Good);
    let wish = fed("eth1", Transport::Datagrams, Some(32 << 20));
    let findings = finds("server", "receive_buffer", &wish);
    assert_eq!(changes(&findings), ["net.core.rmem_max: 212992 -> 33554432"]);
    assert_eq!(worst(&findings), Grade::CouldBeBetter, "the administrator gets it all the same");
    let unprivileged = Copy::of("server").with("proc/self/status", "CapEff:\t0000000000000000\n");
    assert_eq!(worst(&unprivileged.finds("receive_buffer", &wish)), Grade::Harmful);
    let wish = fed("eth1", Transport::Tcp, Some(32 << 20));
    assert_eq!(worst(&finds("server", "receive_buffer", &wish)), Grade::CouldBeBetter);
}

#[test]
fn windows_follow_the_link_and_not_the_paper() {
    // Twice 1 ms of 100 Gb/s, as a power of two.
    let changed = changes(&finds("server", "tcp_receive_window", &Wish::default()));
    assert_eq!(changed, ["net.ipv4.tcp_rmem: 4096 131072 6291456 -> 4096 131072 33554432"]);
    // At 1 Gb/s the paper's 100 MB are reported, and left.
    let large = finds("laptop", "tcp_receive_window", &Wish::default());
    assert_eq!((large[0].grade, large[0].changes.len()), (Grade::Told, 0));
    assert_eq!(large[0].advised, "no more than each connection needs: 244.1 KiB at this link's speed");
    let wish = fed("eth0", Transport::Tcp, Some(200 << 20));
    let changed = changes(&finds("laptop", "tcp_receive_window", &wish));
    assert_eq!(changed, ["net.ipv4.tcp_rmem: 4096 131072 104857600 -> 4096 131072 268435456"]);
}

#[test]
fn memory_of_all_sockets_holds_the_streams_of_the_configuration() {
    let mut wish = readout("eth1", "/data");
    assert_eq!(worst(&finds("server", "tcp_memory", &wish)), Grade::Good);
    wish.feeding[0].streams = 400;
    // 408 windows of 25 MB are 2,490,235 pages.
    let changed = changes(&finds("server", "tcp_memory", &wish));
    assert_eq!(changed, ["net.ipv4.tcp_mem: 770676 1027568 1541352 -> 1867674 2490235 3735352"]);
    wish.feeding[0].streams = 1_000_000;
    let changed = changes(&finds("server", "tcp_memory", &wish));
    assert!(changed[0].contains(" 4194304 "), "a quarter of 64 GiB: {changed:?}");
    let wish = fed("eth0", Transport::Datagrams, Some(64 << 20));
    assert_eq!(worst(&finds("laptop", "udp_memory", &wish)), Grade::Harmful);
    assert_eq!(worst(&finds("laptop", "udp_memory", &Wish::default())), Grade::Good);
}

#[test]
fn memory_for_datagrams_is_a_quarter_of_all_at_most() {
    let mut wish = fed("eth0", Transport::Datagrams, Some(4 << 20));
    wish.feeding[0].streams = 692;
    // 700 buffers that count twice would be 5.9 GB of 16.4.
    let changed = changes(&finds("laptop", "udp_memory", &wish));
    assert_eq!(changed, ["net.ipv4.udp_mem: 3072 4096 6144 -> 750000 1000000 1500000"]);
}

#[test]
fn memory_of_all_sockets_is_counted_in_pages_of_the_machine() {
    let large = || Copy::of("laptop").recorded("\"probed\": {", "\"probed\": { \"page_bytes\": 65536,");
    // 16 buffers of 64 MiB that count twice.
    let wish = fed("eth0", Transport::Datagrams, Some(64 << 20));
    assert_eq!(changes(&large().finds("udp_memory", &wish)), ["net.ipv4.udp_mem: 3072 4096 6144 -> 24576 32768 49152"]);
    let copy = large().with("proc/sys/net/ipv4/tcp_mem", "96 128 192\n");
    let changed = changes(&copy.finds("tcp_memory", &fed("eth0", Transport::Tcp, Some(1 << 20))));
    assert_eq!(changed, ["net.ipv4.tcp_mem: 96 128 192 -> 192 256 384"]);
}

#[test]
fn bbr_gives_way_to_cubic_where_the_kernel_has_it() {
    let found = finds("laptop", "congestion_control", &Wish::default());
    assert_eq!(changes(&found), ["net.ipv4.tcp_congestion_control: bbr -> cubic"]);
    assert_eq!(worst(&found), Grade::Harmful);
    let found = finds("container", "congestion_control", &Wish::default());
    assert_eq!((worst(&found), found[0].changes.len()), (Grade::CouldBeBetter, 0));
    assert_eq!(worst(&finds("server", "congestion_control", &Wish::default())), Grade::Good);
}

/// The list of paper 3, Fig. 8, as the server has it.
#[test]
fn what_no_longer_holds_of_the_paper_is_found() {
    let any = Wish::default();
    assert_eq!(changes(&finds("server", "tcp_timestamps", &any)), ["net.ipv4.tcp_timestamps: 0 -> 1"]);
    assert_eq!(worst(&finds("server", "tcp_timestamps", &any)), Grade::Harmful);
    let slow = Wish { interfaces: vec!["eth0".to_owned()], ..Wish::default() };
    assert_eq!(worst(&finds("server", "tcp_timestamps", &slow)), Grade::CouldBeBetter);
    assert_eq!(changes(&finds("server", "tcp_metrics", &any)), ["net.ipv4.tcp_no_metrics_save: 0 -> 1"]);
    assert_eq!(changes(&finds("laptop", "tcp_sack", &any)), ["net.ipv4.tcp_sack: 0 -> 1"]);
    assert_eq!(changes(&finds("laptop", "window_scaling", &any)), ["net.ipv4.tcp_window_scaling: 0 -> 1"]);
}

#[test]
fn smaller_packets_are_tried_where_large_ones_may_vanish() {
    assert_eq!(worst(&finds("server", "mtu_probing", &readout("eth1", "/data"))), Grade::CouldBeBetter);
    assert_eq!(worst(&finds("server", "mtu_probing", &Wish::default())), Grade::Good);
    let copy = Copy::of("server").with("sys/class/net/eth1/mtu", "9000\n");
    assert_eq!(changes(&copy.finds("mtu_probing", &Wish::default())), ["net.ipv4.tcp_mtu_probing: 0 -> 1"]);
}

#[test]
fn packets_that_the_kernel_dropped_ask_for_a_longer_queue() {
    let found = finds("server", "backlog", &Wish::default());
    assert_eq!(found[0].found, "1000; 785 packets were dropped for want of room");
    assert_eq!(changes(&found), ["net.core.netdev_max_backlog: 1000 -> 16384"]);
    assert_eq!(worst(&finds("laptop", "backlog", &Wish::default())), Grade::Good);
    assert_eq!(worst(&finds("laptop", "backlog", &fed("lo", Transport::Tcp, None))), Grade::CouldBeBetter);
    let budget = changes(&finds("server", "receive_budget", &Wish::default()));
    assert_eq!(budget, ["net.core.netdev_budget: 300 -> 600", "net.core.netdev_budget_usecs: 2000 -> 4000"]);
}

#[test]
fn the_process_that_asks_for_packet_times_is_named() {
    let found = finds("server", "packet_timestamps", &Wish::default());
    assert_eq!(found[0].found, "process 1490 (chronyd) asks for them with SO_TIMESTAMPING");
    assert_eq!(worst(&finds("laptop", "packet_timestamps", &Wish::default())), Grade::Good);
    // The rule does not say "none" while it could not look at some processes.
    let partly = Copy::of("laptop").recorded("\"probed\": {", "\"probed\": { \"unseen_processes\": 12,");
    let found = partly.finds("packet_timestamps", &Wish::default());
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Told, "12 processes could not be looked at"));
    assert!(found[0].advised.contains("CAP_SYS_PTRACE"), "{found:#?}");
}
