//! How much of the machine's processors was used, by whomever: the kernel's work for packets is nobody's own.

use std::time::Instant;

/// A look at how long the processors had nothing to do so far.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    at: Instant,
    /// Of each processor.
    idle_seconds: Vec<f64>,
}

/// Parts of a second in which `/proc/stat` counts (`USER_HZ`).
const TICKS: f64 = 100.0;

impl Usage {
    /// Now. Where the kernel says nothing, there are no processors.
    pub(crate) fn look() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        Self { at: Instant::now(), idle_seconds: idle_seconds(&text) }
    }

    /// Seconds of processor that were used since an earlier look, by all processors together.
    pub(crate) fn used_since(&self, earlier: &Self) -> f64 {
        (0..self.idle_seconds.len()).map(|cpu| self.used_by(cpu, earlier)).sum()
    }

    /// The same by one of them; 0 where there is no such processor.
    pub(crate) fn used_by(&self, cpu: usize, earlier: &Self) -> f64 {
        let (Some(now), Some(before)) = (self.idle_seconds.get(cpu), earlier.idle_seconds.get(cpu)) else { return 0.0 };
        ((self.at - earlier.at).as_secs_f64() - (now - before)).max(0.0)
    }
}

/// A line for each processor behind one for all: user, nice, system, idle, iowait, and so on; idle and waiting for a disk are both
/// nothing done.
fn idle_seconds(text: &str) -> Vec<f64> {
    let processors = text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    let idle = |line: &str| {
        let numbers = line.split_ascii_whitespace().skip(4).take(2);
        numbers.filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() / TICKS
    };
    processors.map(idle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_not_idle_is_used() {
        let idle = |text| idle_seconds(text);
        let before = Usage {
            at: Instant::now(),
            idle_seconds: idle("cpu 1 0 1 300 20 0\ncpu0 1 0 1 100 20 0\ncpu1 0 0 0 200 0 0\nintr 1 2 3"),
        };
        let at = before.at + Duration::from_secs(2);
        let now = Usage { at, idle_seconds: idle("cpu 1 0 1 500 20 0\ncpu0 1 0 1 150 70 0\ncpu1 0 0 0 200 0 0") };
        let near = |is: f64, expected: f64| assert!((is - expected).abs() < 1e-9, "{is}, not {expected}");
        near(now.used_by(0, &before), 1.0);
        near(now.used_by(1, &before), 2.0);
        near(now.used_by(2, &before), 0.0);
        near(now.used_since(&before), 3.0);
    }
}
