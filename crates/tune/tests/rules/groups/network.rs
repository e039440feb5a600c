//! Sockets and protocols.

use ropewalk_tune::{Grade, Transport, Wish};

use crate::machines::{Copy, changes, fed, finds, readout, worst};

#[test]
fn buffers_are_as_large_as_somebody_asks_or_the_link_wants() {
    let any = Wish::default();
    // 5 ms of 100 Gb/s are 62.5 MB.
    assert_eq!(changes(&finds("server", "receive_buffer", &any)), ["net.core.rmem_max: 212992 -> 67108864"]);
    assert_eq!(changes(&finds("server", "send_buffer", &any)), ["net.core.wmem_max: 212992 -> 67108864"]);
    assert_eq!(worst(&finds("laptop", "receive_buffer", &any)), Grade::Good);
    let wish = fed("eth1", Transport::Datagrams, Some(32 << 20));
    let findings = finds("server", "receive_buffer", &wish);
    assert_eq!(changes(&findings), ["net.core.rmem_max: 212992 -> 33554432"]);
    assert_eq!(worst(&findings), Grade::CouldBeBetter, "the administrator gets it all the same");
    let anybody = Copy::of("server").with("proc/self/status", "CapEff:\t0000000000000000\n");
    assert_eq!(worst(&anybody.finds("receive_buffer", &wish)), Grade::Harmful);
    let wish = fed("eth1", Transport::Tcp, Some(32 << 20));
    assert_eq!(worst(&finds("server", "receive_buffer", &wish)), Grade::CouldBeBetter);
}

#[test]
fn windows_follow_the_link_and_not_the_paper() {
    // Twice 1 ms of 100 Gb/s, as a power of two.
    let changed = changes(&finds("server", "tcp_receive_window", &Wish::default()));
    assert_eq!(changed, ["net.ipv4.tcp_rmem: 4096 131072 6291456 -> 4096 131072 33554432"]);
    // At 1 Gb/s the paper's 100 MB are told, and left.
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
fn who_keeps_the_times_of_packets_is_named() {
    let found = finds("server", "packet_timestamps", &Wish::default());
    assert_eq!(found[0].found, "process 1490 (chronyd) asks for them with SO_TIMESTAMPING");
    assert_eq!(worst(&finds("laptop", "packet_timestamps", &Wish::default())), Grade::Good);
    // Nobody says "none" of what he could not look at.
    let partly = Copy::of("laptop").recorded("\"probed\": {", "\"probed\": { \"unseen_processes\": 12,");
    let found = partly.finds("packet_timestamps", &Wish::default());
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Told, "12 processes could not be looked at"));
    assert!(found[0].advised.contains("CAP_SYS_PTRACE"), "{found:#?}");
}
