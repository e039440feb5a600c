//! Small files of the kernel, read once: what rules say afterwards is a matter of what was read alone.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What no file of the kernel that is read here is longer than, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// The files that rules look at, below the root; a star stands for any part of one name.
const PATTERNS: &[&str] = &[
    "etc/default/irqbalance",
    "etc/sysconfig/irqbalance",
    "proc/*/comm",
    "proc/cpuinfo",
    "proc/irq/*/smp_affinity_list",
    "proc/meminfo",
    "proc/net/softnet_stat",
    "proc/self/cgroup",
    "proc/self/limits",
    "proc/self/mountinfo",
    "proc/swaps",
    "proc/sys/kernel/io_uring_disabled",
    "proc/sys/kernel/numa_balancing",
    "proc/sys/kernel/sched_rt_period_us",
    "proc/sys/kernel/sched_rt_runtime_us",
    "proc/sys/net/core/busy_poll",
    "proc/sys/net/core/busy_read",
    "proc/sys/net/core/netdev_budget",
    "proc/sys/net/core/netdev_budget_usecs",
    "proc/sys/net/core/netdev_max_backlog",
    "proc/sys/net/core/rmem_max",
    "proc/sys/net/core/rps_sock_flow_entries",
    "proc/sys/net/core/wmem_max",
    "proc/sys/net/ipv4/tcp_*",
    "proc/sys/net/ipv4/udp_mem",
    "proc/sys/vm/swappiness",
    "proc/sys/vm/zone_reclaim_mode",
    "sys/block/*/*/dev",
    "sys/block/*/dev",
    "sys/block/*/queue/rotational",
    "sys/block/*/queue/scheduler",
    "sys/block/*/slaves/*/dev",
    "sys/class/net/*/carrier",
    "sys/class/net/*/device/current_link_speed",
    "sys/class/net/*/device/current_link_width",
    "sys/class/net/*/device/features",
    "sys/class/net/*/device/max_link_speed",
    "sys/class/net/*/device/max_link_width",
    "sys/class/net/*/duplex",
    "sys/class/net/*/queues/*/rps_cpus",
    "sys/class/net/*/queues/*/rps_flow_cnt",
    "sys/class/net/*/queues/*/xps_cpus",
    "sys/class/net/*/statistics/*",
    "sys/devices/system/clocksource/clocksource0/*_clocksource",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/latency",
    "sys/devices/system/cpu/cpu*/cpuidle/state*/name",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_available_governors",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "sys/devices/system/cpu/cpuidle/current_driver",
    "sys/devices/system/cpu/nohz_full",
    "sys/devices/system/cpu/vulnerabilities/*",
    "sys/devices/system/node/node*/hugepages/*/nr_hugepages",
    "sys/devices/system/node/node*/meminfo",
    "sys/kernel/mm/transparent_hugepage/defrag",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/module/haltpoll/parameters/guest_halt_poll_ns",
];

/// The files of a control group that rules look at, by its controller: those of version 2, then those of version 1.
const GROUP_FILES: [(&str, &[&str]); 2] = [
    ("cpu", &["cpu.max", "cpu.stat", "cpu.cfs_quota_us", "cpu.cfs_period_us"]),
    ("memory", &["memory.max", "memory.limit_in_bytes"]),
];

/// The text of each file by its path without the leading slash; none where it was there and could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Files(BTreeMap<String, Option<String>>);

impl Files {
    /// Reads all that rules look at below `root`.
    pub(crate) fn read(root: &Path) -> Self {
        let mut files = Self::default();
        for pattern in PATTERNS {
            files.collect(root, String::new(), pattern);
        }
        for (controller, names) in GROUP_FILES {
            for directory in files.control_groups(controller) {
                names.iter().for_each(|name| files.add(root, format!("{directory}/{name}")));
            }
        }
        files
    }

    /// The text of a file without the space around it, where it could be read.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path)?.as_deref().map(str::trim)
    }

    /// The paths that begin with `first` and end with `last`, ascending, with their texts.
    pub(crate) fn each<'a, 'b>(&'a self, first: &'b str, last: &'b str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let behind = self.0.range(first.to_owned()..).take_while(move |(path, _)| path.starts_with(first));
        behind
            .filter(move |(path, _)| path.len() >= first.len() + last.len() && path.ends_with(last))
            .filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?.trim())))
    }

    /// The directories of the control groups that this process is in for a controller, from its own outwards. Groups of
    /// version 2 have one tree for all controllers, those of version 1 have one for each; a machine may have both.
    pub(crate) fn control_groups(&self, controller: &str) -> Vec<String> {
        let mut directories = Vec::new();
        for line in self.text("proc/self/cgroup").unwrap_or_default().lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(own)) = (parts.next(), parts.next()) else { continue };
            let mut names = vec!["sys/fs/cgroup"];
            match controllers {
                "" => {}
                _ if controllers.split(',').any(|name| name == controller) => names.push(controller),
                _ => continue,
            }
            let top = names.len();
            names.extend(own.split('/').filter(|name| !name.is_empty() && *name != ".."));
            directories.extend((top..=names.len()).rev().map(|length| names[..length].join("/")));
        }
        directories
    }

    /// Follows the rest of a pattern from a directory on.
    fn collect(&mut self, root: &Path, directory: String, pattern: &str) {
        let (part, rest) = pattern.split_once('/').map_or((pattern, None), |(part, rest)| (part, Some(rest)));
        let join = |name: &str| if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
        let found = match part.split_once('*') {
            None => vec![join(part)],
            Some((first, last)) => {
                let fits = |name: &String| {
                    name.len() >= first.len() + last.len() && name.starts_with(first) && name.ends_with(last)
                };
                let entries = std::fs::read_dir(root.join(&directory)).into_iter().flatten().flatten();
                let names = entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(fits);
                names.map(|name| join(&name)).collect()
            }
        };
        for path in found {
            match rest {
                Some(rest) => self.collect(root, path, rest),
                None => self.add(root, path),
            }
        }
    }

    fn add(&mut self, root: &Path, path: String) {
        let full = root.join(&path);
        if !std::fs::metadata(&full).is_ok_and(|about| about.is_file()) {
            return;
        }
        let mut bytes = Vec::new();
        let read = File::open(&full).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
        self.0.insert(path, read.ok().map(|_| String::from_utf8_lossy(&bytes).into_owned()));
    }
}
