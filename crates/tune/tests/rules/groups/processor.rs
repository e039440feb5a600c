//! Frequencies, sleep, scheduling, clocks.

use ropewalk_tune::{Grade, Wish};

use crate::machines::{Copy, changes, finds, readout, worst};

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
fn what_is_told_is_never_changed() {
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
