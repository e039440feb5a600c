//! Limits of users and containers.

use ropewalk_tune::{Grade, Transport, Wish};

use crate::machines::{Copy, fed, finds, readout, worst};

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
