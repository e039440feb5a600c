//! What machine this is: its names, the pages it gives, and the price of small things.

use std::hint::black_box;
use std::time::Instant;

/// The machine as far as figures depend on it.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// The processor's name as the kernel tells it.
    pub cpu: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Whether transparent huge pages are `always`, `madvise` or `never` given.
    pub transparent_huge_pages: String,
    /// 2 MiB pages that are set aside, and those of them that are free.
    pub huge_pages: (u64, u64),
    /// The congestion control that TCP uses if it is not told otherwise.
    pub congestion_control: String,
    /// Nanoseconds for which an idle virtual processor polls before it halts; 0 if there is no such setting.
    pub guest_halt_poll_ns: u64,
}

impl Machine {
    /// Looks at the machine.
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

/// A small file of the kernel's, or nothing.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Nanoseconds that one reading of the monotonic clock costs.
pub fn clock_nanoseconds() -> f64 {
    each_takes(100_000, || {
        black_box(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic));
    })
}

/// Nanoseconds that the cheapest system call costs.
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
