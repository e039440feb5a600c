//! Limits of users and containers, memory, processors and disks, on recorded machines alone.

use ropewalk_tune::{Grade, Transport, Wish};

use crate::machines::{Copy, changes, fed, finds, readout, worst};

#[test]
fn limits_are_held_against_what_the_configuration_needs() {
    let wish = readout("eth0", "/runs");
    for rule in ["locked_memory", "realtime_limit"] {
        assert_eq!(worst(&finds("container", rule, &wish)), Grade::CouldBeBetter, "{rule}");
        assert_eq!(worst(&finds("laptop", rule, &wish)), Grade::Good, "{rule}");
        assert_eq!(worst(&finds("server", rule, &wish)), Grade::Good, "the administrator may: {rule}");
    }
    let found = finds("container", "open_files", &wish);
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Harmful, "1024 (at most 1024)"));
    assert!(found[0].advised.starts_with("2064: "));
    assert_eq!(worst(&finds("container", "open_files", &Wish::default())), Grade::Good);
}

#[test]
fn bounds_of_a_container_are_found() {
    let found = finds("container", "container_cpu", &Wish::default());
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Harmful, "1.5 CPUs; it stood still 411 times"));
    assert_eq!(worst(&finds("server", "container_cpu", &Wish::default())), Grade::Good);
    assert_eq!(worst(&finds("container", "container_memory", &Wish::default())), Grade::Good);
    let found = finds("container", "container_memory", &readout("eth0", "/runs"));
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Harmful, "2 GiB"));
    let above = Copy::of("server").with("sys/fs/cgroup/user.slice/memory.max", "1073741824\n");
    assert_eq!(worst(&above.finds("container_memory", &readout("eth1", "/data"))), Grade::Harmful, "of a group above");
}

/// The kernel's groups as they were before 2016, which many machines still have; names of a container are often the host's.
#[test]
fn bounds_of_the_first_version_of_groups_are_found() {
    let old = |quota: &str, memory: &str| {
        let groups = "4:memory:/docker/0af3\n2:cpu,cpuacct:/docker/0af3\n1:name=systemd:/\n0::/\n";
        let copy = Copy::of("server").with("proc/self/cgroup", groups);
        let copy = copy.with("sys/fs/cgroup/cpu/docker/0af3/cpu.cfs_quota_us", quota);
        let copy = copy.with("sys/fs/cgroup/cpu/docker/0af3/cpu.cfs_period_us", "100000\n");
        let copy = copy.with("sys/fs/cgroup/cpu/docker/0af3/cpu.stat", "nr_periods 9\nnr_throttled 7\n");
        copy.with("sys/fs/cgroup/memory/memory.limit_in_bytes", memory)
    };
    let bound = old("50000\n", "104857600\n");
    let found = bound.finds("container_cpu", &Wish::default());
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Harmful, "0.5 CPUs; it stood still 7 times"));
    let found = bound.finds("container_memory", &readout("eth1", "/data"));
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Harmful, "100 MiB"));
    let free = old("-1\n", "9223372036854771712\n");
    for rule in ["container_cpu", "container_memory"] {
        let found = free.finds(rule, &readout("eth1", "/data"));
        assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Good, "no bound"), "{rule}");
    }
}

#[test]
fn what_is_refused_says_by_whom() {
    let found = finds("container", "io_uring", &Wish::default());
    assert_eq!(found[0].found, "refused: kernel.io_uring_disabled is 2");
    let filtered = Copy::of("container").with("proc/sys/kernel/io_uring_disabled", "0\n");
    assert_eq!(filtered.finds("io_uring", &Wish::default())[0].found, "refused by a filter of system calls");
    assert_eq!(worst(&finds("server", "io_uring", &Wish::default())), Grade::Good);
    let found = finds("container", "af_xdp", &fed("eth0", Transport::Rings, None));
    let expected = "refused: it lacks CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF";
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::Harmful, expected));
    assert_eq!(worst(&finds("container", "af_xdp", &Wish::default())), Grade::Good);
}

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
fn transparent_huge_pages_are_there_for_programs_that_ask() {
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

#[test]
fn frequencies_stay_high() {
    let found = finds("laptop", "frequency_governor", &Wish::default());
    assert_eq!(found[0].found, "powersave for 4 of 4 CPUs or groups of them");
    let first = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor: powersave -> performance";
    assert_eq!((changes(&found)[0].as_str(), changes(&found).len()), (first, 4));
    assert_eq!(worst(&finds("container", "frequency_governor", &Wish::default())), Grade::Good);
}

#[test]
fn cpus_near_the_card_sleep_lightly() {
    let found = finds("server", "idle_states", &readout("eth1", "/data"));
    assert_eq!(found[0].found, "C6: waking takes 170 us");
    let changed = changes(&found);
    assert_eq!(changed.len(), 8, "node 1 alone: {changed:?}");
    assert!(changed.contains(&"/sys/devices/system/cpu/cpu12/cpuidle/state2/disable: 0 -> 1".to_owned()));
    assert_eq!(worst(&finds("server", "idle_states", &Wish::default())), Grade::Told);
    assert_eq!(worst(&finds("server", "idle_states", &readout("eth0", "/data"))), Grade::Good);
    assert_eq!(worst(&finds("container", "idle_states", &Wish::default())), Grade::Good);
}

#[test]
fn virtual_machines_look_for_work_before_they_halt() {
    let found = finds("container", "guest_halt_poll", &Wish::default());
    assert_eq!(changes(&found), ["/sys/module/haltpoll/parameters/guest_halt_poll_ns: 0 -> 200000"]);
    assert_eq!(worst(&finds("server", "guest_halt_poll", &Wish::default())), Grade::Good);
    let driver = "sys/devices/system/cpu/cpuidle/current_driver";
    let without = |driver_name: &str, flags: &str| {
        let copy = Copy::of("container").with(driver, driver_name).with("proc/cpuinfo", flags);
        copy.finds("guest_halt_poll", &Wish::default())
    };
    let found = without("none\n", "processor : 0\nflags\t\t: fpu tsc hypervisor lahf_lm\n");
    assert_eq!((worst(&found), changes(&found).len()), (Grade::Told, 0));
    assert!(found[0].advised.contains("modprobe cpuidle_haltpoll"), "{found:#?}");
    assert_eq!(worst(&without("none\n", "processor : 0\nflags\t\t: fpu tsc lahf_lm\n")), Grade::Good);
    assert_eq!(worst(&without("intel_idle\n", "flags\t\t: fpu hypervisor\n")), Grade::Good);
}

#[test]
fn memory_is_not_moved_on_machines_with_nodes() {
    assert_eq!(changes(&finds("server", "numa_balancing", &Wish::default())), ["kernel.numa_balancing: 1 -> 0"]);
    assert_eq!(worst(&finds("laptop", "numa_balancing", &Wish::default())), Grade::Good);
}

#[test]
fn slow_clocks_are_found_and_left() {
    let found = finds("laptop", "clock_source", &Wish::default());
    assert_eq!((worst(&found), found[0].changes.len()), (Grade::Harmful, 0));
    for good in ["server", "container"] {
        assert_eq!(worst(&finds(good, "clock_source", &Wish::default())), Grade::Good);
    }
    let left = Copy::of("server").with("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
    let found = left.finds("clock_source", &Wish::default());
    assert_eq!(found[0].advised, "tsc, if `dmesg` does not say why the kernel left it");
}

#[test]
fn what_is_only_reported_is_never_changed() {
    let found = finds("container", "mitigations", &Wish::default());
    assert_eq!(found.iter().map(|one| one.subject.as_str()).collect::<Vec<_>>(), ["mds", "spectre_v2"]);
    assert_eq!((worst(&found), changes(&found).len()), (Grade::Told, 0));
    assert_eq!(worst(&finds("laptop", "mitigations", &Wish::default())), Grade::Good);
    assert_eq!(worst(&finds("server", "hardware_threads", &Wish::default())), Grade::Told);
    assert_eq!(worst(&finds("container", "hardware_threads", &Wish::default())), Grade::Good);
    let found = finds("container", "realtime_throttling", &readout("eth0", "/runs"));
    assert_eq!(found[0].found, "-1: such threads are never stopped");
    assert_eq!(worst(&finds("container", "realtime_throttling", &Wish::default())), Grade::Good);
    let each = |runtime: &str, period: &str| {
        let copy = Copy::of("server").with("proc/sys/kernel/sched_rt_runtime_us", runtime);
        let copy = copy.with("proc/sys/kernel/sched_rt_period_us", period);
        copy.finds("realtime_throttling", &readout("eth1", "/data"))[0].found.clone()
    };
    assert_eq!(each("475000", "500000"), "475000 of each 500000 us");
    assert_eq!(each("500000", "500000"), "500000: such threads are never stopped");
}

#[test]
fn file_systems_that_are_far_layered_or_copy_are_found() {
    for (tree, output, found, grade) in [
        ("server", "/data/runs", "ext4 at /data", Grade::Good),
        ("container", "/runs/now", "nfs4 at /runs", Grade::CouldBeBetter),
        ("container", "/elsewhere", "overlay at /", Grade::CouldBeBetter),
        ("laptop", "/runs", "btrfs at /", Grade::CouldBeBetter),
        ("server", "/run/events", "tmpfs at /run", Grade::Harmful),
        ("server", "/running", "ext4 at /", Grade::Good),
    ] {
        let told = finds(tree, "file_system", &readout("eth0", output));
        assert_eq!((told[0].found.as_str(), told[0].grade), (found, grade), "{tree} {output}");
    }
    assert!(finds("server", "file_system", &Wish::default()).is_empty(), "nothing is written");
    let on = |kind: &str| {
        let line = format!("41 22 0:41 / /data rw shared:5 - {kind} 10.0.0.1@o2ib:/scratch rw\n");
        let copy = Copy::of("server").with("proc/self/mountinfo", &line);
        copy.finds("file_system", &readout("eth1", "/data"))[0].grade
    };
    for kind in ["lustre", "gpfs", "beegfs", "fuse.sshfs"] {
        assert_eq!(on(kind), Grade::CouldBeBetter, "{kind}: over the network");
    }
    assert_eq!((on("xfs"), on("newfs")), (Grade::Good, Grade::Told));
}

#[test]
fn mounts_that_wait_for_the_disk_are_found() {
    let found = finds("server", "mount_options", &readout("eth1", "/data"));
    assert_eq!((worst(&found), found[0].found.as_str()), (Grade::CouldBeBetter, "sync,discard"));
    assert_eq!(worst(&finds("laptop", "mount_options", &readout("eth0", "/media/disk"))), Grade::Good);
    let line = "22 1 259:2 / / ro,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n";
    let read_only = Copy::of("server").with("proc/self/mountinfo", line);
    assert_eq!(worst(&read_only.finds("mount_options", &readout("eth1", "/data"))), Grade::Harmful);
}

/// One that lies in no mount that is known does not keep the others from being looked at.
#[test]
fn each_directory_is_looked_at_by_itself() {
    let wish = Wish { outputs: vec!["somewhere".into(), "/data/runs".into()], ..Wish::default() };
    for (rule, grade) in
        [("file_system", Grade::Good), ("mount_options", Grade::CouldBeBetter), ("free_space", Grade::Harmful)]
    {
        let found = finds("server", rule, &wish);
        let told: Vec<_> = found.iter().map(|finding| (finding.grade, finding.subject.as_str())).collect();
        let what = rule.replace('_', " ");
        let expected = [(Grade::Told, format!("somewhere: {what}")), (grade, format!("/data/runs: {what}"))];
        assert_eq!(told, expected.each_ref().map(|(grade, subject)| (*grade, subject.as_str())));
        assert_eq!(found[0].found, "could not be read");
    }
    assert_eq!(changes(&finds("server", "disk_scheduler", &wish)).len(), 1);
}

#[test]
fn disks_have_the_scheduler_of_their_kind() {
    let found = finds("server", "disk_scheduler", &readout("eth1", "/data"));
    assert_eq!(changes(&found), ["/sys/block/nvme1n1/queue/scheduler: mq-deadline -> none"]);
    assert_eq!(worst(&finds("laptop", "disk_scheduler", &readout("eth0", "/media/disk"))), Grade::Good);
    let own = finds("laptop", "disk_scheduler", &readout("eth0", "/runs"));
    assert_eq!((own[0].subject.as_str(), worst(&own)), ("nvme0n1: scheduler", Grade::Good), "by its partition's name");
    let turning = Copy::of("server").with("sys/block/nvme1n1/queue/rotational", "1\n");
    assert_eq!(worst(&turning.finds("disk_scheduler", &readout("eth1", "/data"))), Grade::Good);
}

/// A volume hands requests on to the disks that it is made of; here one of encryption on one of LVM, on a partition and a
/// disk.
#[test]
fn disks_are_looked_at_behind_the_volumes_that_they_are_made_into() {
    let device = |copy: Copy, disk: &str, number: &str| {
        let copy = copy.with(&format!("sys/block/{disk}/dev"), &format!("{number}\n"));
        let copy = copy.with(&format!("sys/block/{disk}/queue/rotational"), "0\n");
        copy.with(&format!("sys/block/{disk}/queue/scheduler"), "none\n")
    };
    let line = "41 22 253:1 / /data rw,relatime shared:5 - ext4 /dev/mapper/data rw\n";
    let copy = device(device(Copy::of("server"), "dm-0", "253:0"), "dm-1", "253:1").with("proc/self/mountinfo", line);
    let found = copy.finds("disk_scheduler", &readout("eth1", "/data"));
    let told = |found: &[ropewalk_tune::Finding]| -> Vec<_> {
        found.iter().map(|finding| (finding.subject.clone(), finding.grade)).collect()
    };
    assert_eq!(told(&found), [("dm-1: scheduler".to_owned(), Grade::Good)], "what it is made of is not known");
    let copy = copy.with("sys/block/dm-1/slaves/dm-0/dev", "253:0\n");
    let copy = copy.with("sys/block/dm-0/slaves/nvme0n1p2/dev", "259:2\n");
    let copy = copy.with("sys/block/dm-0/slaves/nvme1n1/dev", "259:4\n");
    let found = copy.finds("disk_scheduler", &readout("eth1", "/data"));
    let expected = ["nvme0n1", "nvme1n1"].map(|disk| format!("/sys/block/{disk}/queue/scheduler: mq-deadline -> none"));
    assert_eq!(changes(&found), expected);
    let itself = copy.with("sys/block/dm-1/queue/scheduler", "none [mq-deadline]\n");
    let found = itself.finds("disk_scheduler", &readout("eth1", "/data"));
    assert_eq!(changes(&found), ["/sys/block/dm-1/queue/scheduler: mq-deadline -> none"], "it orders them itself");
}

#[test]
fn full_disks_are_found() {
    assert_eq!(worst(&finds("server", "free_space", &readout("eth1", "/data/runs"))), Grade::Harmful);
    assert_eq!(worst(&finds("laptop", "free_space", &readout("eth0", "/runs"))), Grade::Good);
    let fuller = Copy::of("laptop").recorded("410000000000", "41000000000");
    assert_eq!(worst(&fuller.finds("free_space", &readout("eth0", "/runs"))), Grade::CouldBeBetter);
    let told = finds("laptop", "free_space", &readout("eth0", "/media/disk"));
    assert_eq!((told[0].grade, told[0].found.as_str()), (Grade::Told, "could not be read"));
}
