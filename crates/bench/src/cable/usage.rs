//! How much of the machine's processors was used, by whomever: the kernel's work for packets is nobody's own.

use std::time::Instant;

/// A look at how long the processors had nothing to do so far.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Usage {
    at: Instant,
    idle_seconds: f64,
    cpus: f64,
}

/// Parts of a second in which `/proc/stat` counts (`USER_HZ`).
const TICKS: f64 = 100.0;

impl Usage {
    /// Now. Where the kernel says nothing, no processor was ever idle.
    pub(crate) fn look() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let cpus = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count() as f64;
        let numbers = text.lines().next().unwrap_or_default().split_ascii_whitespace();
        // user, nice, system, idle, iowait, ...: idle and waiting for a disk are both nothing done.
        let idle: f64 = numbers.skip(4).take(2).filter_map(|word| word.parse::<f64>().ok()).sum();
        Self { at: Instant::now(), idle_seconds: idle / TICKS, cpus }
    }

    /// Seconds of processor that were used since an earlier look, by all processors together.
    pub(crate) fn used_since(&self, earlier: &Self) -> f64 {
        let passed = (self.at - earlier.at).as_secs_f64();
        (passed * self.cpus - (self.idle_seconds - earlier.idle_seconds)).max(0.0)
    }
}
