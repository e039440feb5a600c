//! What this process is allowed: limits of users, of containers, and of system calls.

use ropewalk_host::Capability;

use super::{Rule, Seen, bytes};
use crate::found::{Found, Permission, Unread};
use crate::{Group, Sureness, Transport, Wish};

/// Rules on limits.
pub(super) const LIMITS: &[Rule] = &[
    Rule {
        name: "locked_memory",
        group: Group::Limits,
        what: "How much memory a process may keep from being swapped (`ulimit -l`). As much as the pools of the \
               configuration, or 64 MiB.",
        why: "Pools that are to be locked cannot be, and kernels before 5.11 count the rings of AF_XDP against it.",
        source: "setrlimit(2), RLIMIT_MEMLOCK; limits.conf(5); systemd.exec(5), LimitMEMLOCK",
        worth: "no event waits for a page from the disk; no bench of Ropewalk shows it: the limit refuses \
               (setrlimit(2))",
        sureness: Sureness::Documented,
        look: locked_memory,
    },
    Rule {
        name: "open_files",
        group: Group::Limits,
        what: "How many files and connections a process may have at once (`ulimit -n`). As many as the configuration has, \
               and some more.",
        why: "The connection that is one too many is refused, in the middle of a run if it is a file's.",
        source: "setrlimit(2), RLIMIT_NOFILE; limits.conf(5); systemd.exec(5), LimitNOFILE",
        worth: "whether it works at all; no bench of Ropewalk shows it: the limit refuses (setrlimit(2))",
        sureness: Sureness::Documented,
        look: open_files,
    },
    Rule {
        name: "realtime_limit",
        group: Group::Limits,
        what: "The highest priority of real-time scheduling that a process may ask for (`ulimit -r`). What the \
               configuration's rules ask for.",
        why: "Paper 1 used strict priorities so that no daemon comes before the event builder; without the right the \
              threads run as all others.",
        source: "paper 1, IV-C; sched(7); limits.conf(5), rtprio; systemd.exec(5), LimitRTPRIO",
        worth: "rarely speed, but the same speed every day; `ropewalk bench gateway --case effect=priority` has both, \
               beside a thread that computes",
        sureness: Sureness::Documented,
        look: realtime_limit,
    },
    Rule {
        name: "container_cpu",
        group: Group::Limits,
        what: "The share of CPU time that the control group of this process may use (`cpu.max`; of version 1 \
               `cpu.cfs_quota_us`). No bound.",
        why: "A process that has used up its share is stopped until the next period (100 ms), while all connections \
              and rings fill up. CPUs of one's own (`cpuset`) bound a container without that.",
        source: "the kernel's admin-guide/cgroup-v2.rst, CPU; scheduler/sched-bwc.rst",
        worth: "pauses of up to 100 ms; no bench of Ropewalk shows it: `cpu.stat` counts them",
        sureness: Sureness::Documented,
        look: container_cpu,
    },
    Rule {
        name: "container_memory",
        group: Group::Limits,
        what: "The memory that the control group of this process may use (`memory.max`; of version 1 \
               `memory.limit_in_bytes`). More than the pools of the configuration, and half a GiB for all else.",
        why: "The kernel ends a process that needs more, and buffers of sockets and files count too.",
        source: "the kernel's admin-guide/cgroup-v2.rst, Memory; cgroup-v1/memory.rst",
        worth: "whether it works at all; no bench of Ropewalk shows it: the kernel ends who needs more \
               (admin-guide/cgroup-v2.rst)",
        sureness: Sureness::Documented,
        look: container_memory,
    },
    Rule {
        name: "io_uring",
        group: Group::Limits,
        what: "Whether io_uring may be used (`kernel.io_uring_disabled`, and filters of system calls as containers have \
               them). Allowed.",
        why: "With it connections take fewer system calls to send, and receive as fast. Without it epoll is used.",
        source: "the kernel's admin-guide/sysctl/kernel.rst; io_uring_setup(2)",
        worth: "`ropewalk bench tcpla` shows both",
        sureness: Sureness::Measured,
        look: io_uring,
    },
    Rule {
        name: "af_xdp",
        group: Group::Limits,
        what: "Whether sockets of AF_XDP may be opened, for configurations with packet rings. Allowed: CAP_NET_RAW, with \
               CAP_NET_ADMIN and CAP_BPF for the program in the card.",
        why: "It is the way by which the card writes into the reader's memory.",
        source: "the kernel's networking/af_xdp.rst; capabilities(7)",
        worth: "`ropewalk bench packet` shows it beside the others",
        sureness: Sureness::Documented,
        look: af_xdp,
    },
];

/// What the table calls the limits of this process.
fn limit_of<'a>(found: &'a Found, name: &str) -> Result<(Option<u64>, &'a str), Unread> {
    let unread = || Unread(format!("/proc/self/limits: {name}"));
    let line = found.must("proc/self/limits")?.lines().find_map(|line| line.strip_prefix(name)).ok_or_else(unread)?;
    let mut words = line.split_ascii_whitespace();
    let (soft, hard) = words.next().zip(words.next()).ok_or_else(unread)?;
    match soft {
        "unlimited" => Ok((None, hard)),
        number => Ok((Some(number.parse().map_err(|_| unread())?), hard)),
    }
}

fn locked_memory(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "locked memory";
    let (most, _) = limit_of(found, "Max locked memory")?;
    let wanted = wish.memory_bytes.max(64 << 20);
    let text = most.map_or("no limit".to_owned(), bytes);
    Ok(vec![if found.machine.rights.forbids_locking(wanted) {
        let advised = format!("{}: `memlock` in /etc/security/limits.d, LimitMEMLOCK= of a service", bytes(wanted));
        Seen::better(SUBJECT, text, advised)
    } else {
        Seen::good(SUBJECT, text)
    }])
}

fn open_files(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "open files";
    /// Libraries, logs, the terminal, files that are being moved.
    const BESIDE: u64 = 64;
    let (most, hard) = limit_of(found, "Max open files")?;
    let wanted = wish.files.saturating_add(BESIDE);
    let Some(most) = most else { return Ok(vec![Seen::good(SUBJECT, "no limit")]) };
    Ok(vec![if most >= wanted {
        Seen::good(SUBJECT, most.to_string())
    } else {
        let advised =
            format!("{wanted}: `ulimit -n {wanted}`, `nofile` in /etc/security/limits.d, LimitNOFILE= of a service");
        Seen::harmful(SUBJECT, format!("{most} (at most {hard})"), advised)
    }])
}

fn realtime_limit(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "real-time priority";
    let (most, _) = limit_of(found, "Max realtime priority")?;
    let text = most.map_or("no limit".to_owned(), |most| most.to_string());
    Ok(vec![match wish.realtime_priority {
        Some(wanted) if found.machine.rights.forbids_realtime(wanted) => {
            let advised =
                format!("{wanted}: `rtprio` in /etc/security/limits.d, LimitRTPRIO= of a service, CAP_SYS_NICE");
            Seen::better(SUBJECT, text, advised)
        }
        _ => Seen::good(SUBJECT, text),
    }])
}

fn container_cpu(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "CPU time of the container";
    let mut seen = Vec::new();
    for group in found.control_groups("cpu") {
        let Some(cpus) = cpu_bound(found, &group) else { continue };
        let stat = found.text(&format!("{group}/cpu.stat")).unwrap_or_default();
        let throttled = stat.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap_or("0");
        let told = format!("{cpus:.1} CPUs; it stood still {throttled} times");
        seen.push(Seen::harmful(SUBJECT, told, "no bound; `cpuset` (`--cpuset-cpus`) in its place"));
    }
    Ok(if seen.is_empty() { vec![Seen::good(SUBJECT, "no bound")] } else { seen })
}

/// The number of CPUs that a control group may use at once; `None` without a limit.
fn cpu_bound(found: &Found, group: &str) -> Option<f64> {
    let number = |text: &str| text.parse::<f64>().ok();
    let (share, period) = match found.text(&format!("{group}/cpu.max")) {
        // `max` in the first field means no bound.
        Some(text) => text.split_once(' ').and_then(|(share, period)| Some((number(share)?, number(period)?)))?,
        // Nor is -1 in version 1.
        None => {
            let of = |name: &str| found.text(&format!("{group}/{name}")).and_then(number);
            (of("cpu.cfs_quota_us")?, of("cpu.cfs_period_us")?)
        }
    };
    (share > 0.0 && period > 0.0).then_some(share / period)
}

fn container_memory(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "memory of the container";
    const BESIDE: u64 = 512 << 20;
    /// Version 1 writes the largest number of whole pages for "no bound".
    const NO_BOUND: u64 = 1 << 62;
    let bound = |group: &String, name: &str| found.number(&format!("{group}/{name}")).filter(|&most| most < NO_BOUND);
    let groups = found.control_groups("memory").into_iter();
    let bounds = groups.filter_map(|group| bound(&group, "memory.max").or(bound(&group, "memory.limit_in_bytes")));
    let wanted = wish.memory_bytes.saturating_add(BESIDE);
    Ok(vec![match bounds.min() {
        None => Seen::good(SUBJECT, "no bound"),
        Some(bound) if bound >= wanted => Seen::good(SUBJECT, bytes(bound)),
        Some(bound) => Seen::harmful(SUBJECT, bytes(bound), format!("{} or no bound", bytes(wanted))),
    }])
}

fn io_uring(found: &Found, _: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "io_uring";
    const SWITCH: &str = "proc/sys/kernel/io_uring_disabled";
    let switch = found.number(SWITCH);
    Ok(vec![match found.probed.io_uring {
        Permission::Allowed => Seen::good(SUBJECT, "allowed"),
        Permission::Absent => {
            Seen::told(SUBJECT, "this kernel does not have it, or not all that is used of it", "Linux 6.12 or later")
        }
        Permission::Unknown => Seen::told(SUBJECT, "could not be tried", "try `ropewalk bench tcpla`"),
        Permission::Refused => match switch {
            Some(value @ 1..) => {
                let found = format!("refused: kernel.io_uring_disabled is {value}");
                Seen::better(SUBJECT, found, "0, if the administrators agree")
            }
            _ => Seen::better(
                SUBJECT,
                "refused by a filter of system calls",
                "a profile of the container that allows it",
            ),
        },
    }])
}

fn af_xdp(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    const SUBJECT: &str = "AF_XDP";
    let wants = wish.has(Transport::Rings);
    Ok(vec![match found.probed.af_xdp {
        Permission::Allowed => Seen::good(SUBJECT, "allowed"),
        Permission::Unknown => Seen::told(SUBJECT, "could not be tried", "try `ropewalk bench packet`"),
        Permission::Absent if wants => {
            Seen::harmful(SUBJECT, "this kernel does not have it", "a kernel with CONFIG_XDP_SOCKETS")
        }
        Permission::Refused if wants => {
            let missing: Vec<_> = found.machine.rights.missing_for_xdp().into_iter().map(Capability::name).collect();
            let lacks = if missing.is_empty() { String::new() } else { format!(": it lacks {}", missing.join(", ")) };
            Seen::harmful(SUBJECT, format!("refused{lacks}"), "CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF")
        }
        Permission::Absent => Seen::good(SUBJECT, "this kernel does not have it, and nothing asks for it"),
        Permission::Refused => Seen::good(SUBJECT, "refused, and nothing asks for it"),
    }])
}
