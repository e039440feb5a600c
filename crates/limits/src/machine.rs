//! The machine: its names, its pages, and the cost of small operations.

use std::hint::black_box;
use std::time::Instant;

/// The properties of the machine that figures depend on.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// The kernel release.
    pub kernel: String,
    /// The processor's name as the kernel reports it.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// The mode of transparent huge pages: `always`, `madvise` or `never`.
    pub transparent_huge_pages: String,
    /// Reserved 2 MiB pages, and those of them that are free.
    pub huge_pages: (u64, u64),
    /// The default congestion control of TCP.
    pub congestion_control: String,
    /// Nanoseconds for which an idle virtual processor polls before it halts; 0 if there is no such setting.
    pub guest_halt_poll_ns: u64,
}

impl Machine {
    /// Examines the machine.
    pub fn look() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let meminfo = read("/proc/meminfo");
        let pages = |key: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|value| value.trim_start_matches(':').trim().parse().ok()).unwrap_or(0)
        };
        let choices = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let chosen = choices.split(['[', ']']).nth(1).unwrap_or("never");
        let halt_poll = read("/sys/module/haltpoll/parameters/guest_halt_poll_ns");
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: name.map_or("unknown", |(_, name)| name).to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            transparent_huge_pages: chosen.to_owned(),
            huge_pages: (pages("HugePages_Total"), pages("HugePages_Free")),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned(),
            guest_halt_poll_ns: halt_poll.trim().parse().unwrap_or(0),
        }
    }
}

/// The contents of a small kernel file, or an empty string.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Nanoseconds per read of the monotonic clock.
pub fn clock_nanoseconds() -> f64 {
    each_takes(100_000, || {
        black_box(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic));
    })
}

/// Nanoseconds of the cheapest system call.
pub fn system_call_nanoseconds() -> f64 {
    each_takes(100_000, || {
        black_box(rustix::process::getppid());
    })
}

fn each_takes(count: u32, mut action: impl FnMut()) -> f64 {
    let begin = Instant::now();
    (0..count).for_each(|_| action());
    begin.elapsed().as_nanos() as f64 / f64::from(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_names() {
        let machine = Machine::look();
        assert!(!machine.kernel.is_empty() && machine.cpus > 0);
        assert!(!machine.congestion_control.is_empty());
    }

    #[test]
    fn small_things_have_a_price() {
        assert!(clock_nanoseconds() > 1.0);
        assert!(system_call_nanoseconds() > 1.0);
    }
}
