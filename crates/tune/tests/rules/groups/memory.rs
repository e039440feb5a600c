//! Huge pages, nodes, swapping.

use ropewalk_tune::{Grade, Wish};

use crate::machines::{Copy, changes, finds, readout, worst};

#[test]
fn huge_pages_are_reserved_where_the_card_is() {
    let wish = readout("eth1", "/data");
    let path = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages";
    assert_eq!(changes(&finds("server", "huge_pages", &wish)), [format!("{path}: 64 -> 2048")]);
    let large = Wish { memory_bytes: 40 << 30, ..wish.clone() };
    let found = finds("server", "huge_pages", &large);
    assert_eq!((worst(&found), changes(&found).len()), (Grade::CouldBeBetter, 0), "there is no memory for them");
    let small = Wish { memory_bytes: 100 << 20, ..wish };
    assert_eq!(worst(&finds("server", "huge_pages", &small)), Grade::Good);
    assert_eq!(worst(&finds("laptop", "huge_pages", &Wish::default())), Grade::Told);
    let gigantic = Copy::of("server").with("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "16\n");
    assert_eq!(worst(&gigantic.finds("gigantic_pages", &Wish::default())), Grade::Told);
    assert_eq!(worst(&finds("server", "gigantic_pages", &Wish::default())), Grade::Good);
}

/// Each node has what is put there; what may be anywhere is with the node that feeds.
#[test]
fn pages_and_memory_are_wanted_where_pools_are_put() {
    let wish = Wish { memory_by_node: [(0, 1 << 30), (1, 2 << 30)].into(), ..readout("eth1", "/data") };
    let path = |node: u32| format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages");
    let found = finds("server", "huge_pages", &wish);
    let present = |node: usize| found[node].found.clone();
    let expected =
        [(0, 512), (1, 1536)].map(|(node, pages)| format!("{}: {} -> {pages}", path(node), present(node as usize)));
    assert_eq!(changes(&found), expected, "1 GiB, and 2 GiB with the 1 GiB that is left");
    let full = Copy::of("server").with(
        "sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal:       33554432 kB\nNode 0 MemFree:        524288 kB\n",
    );
    let told: Vec<_> = full.finds("numa_memory", &wish).into_iter().map(|one| (one.subject, one.grade)).collect();
    let expected = [("memory of node 0", Grade::Harmful), ("memory of node 1", Grade::Good)];
    assert_eq!(told, expected.map(|(subject, grade)| (subject.to_owned(), grade)));
    let without = finds("server", "huge_pages", &Wish::default());
    assert!(without[0].found.ends_with(&format!(": {} on node 0, 64 on node 1", present(0))), "{without:?}");
}

#[test]
fn transparent_huge_pages_are_there_for_who_asks() {
    let found = changes(&finds("server", "transparent_huge_pages", &Wish::default()));
    assert_eq!(found, ["/sys/kernel/mm/transparent_hugepage/enabled: never -> madvise"]);
    let found = changes(&finds("laptop", "transparent_huge_pages", &Wish::default()));
    assert_eq!(found, ["/sys/kernel/mm/transparent_hugepage/defrag: always -> madvise"]);
    assert_eq!(worst(&finds("container", "transparent_huge_pages", &Wish::default())), Grade::Good);
}

#[test]
fn pools_fit_into_the_node_that_feeds() {
    let wish = readout("eth1", "/data");
    assert_eq!(worst(&finds("server", "numa_memory", &wish)), Grade::Good);
    let full = Copy::of("server").with(
        "sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:       33554432 kB\nNode 1 MemFree:        1048576 kB\nNode 1 FilePages:      1048576 kB\n",
    );
    let found = full.finds("numa_memory", &wish);
    // 2 GiB, and 64 huge pages.
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Harmful, "2.1 GiB free or cached"));
}

#[test]
fn memory_is_neither_reclaimed_too_early_nor_swapped() {
    assert_eq!(changes(&finds("server", "zone_reclaim", &Wish::default())), ["vm.zone_reclaim_mode: 1 -> 0"]);
    assert_eq!(worst(&finds("laptop", "zone_reclaim", &Wish::default())), Grade::Good);
    assert_eq!(changes(&finds("laptop", "swappiness", &Wish::default())), ["vm.swappiness: 60 -> 10"]);
    assert_eq!(worst(&finds("container", "swappiness", &Wish::default())), Grade::Good, "there is no swap");
}
