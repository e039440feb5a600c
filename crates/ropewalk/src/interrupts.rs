//! Signals that ask the program to stop.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the interrupts of this process.
pub(crate) struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    /// Counts SIGINT and SIGTERM from now on. The loss of the terminal (SIGHUP) requests an orderly stop, and never
    /// more: the kernel and the shell both report it. A program that ignores SIGHUP, as after `nohup`, continues.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let count = Arc::new(AtomicUsize::new(0));
        let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up))?;
        let counted = Arc::clone(&count);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                if signal == SIGHUP {
                    counted.fetch_max(1, Ordering::Relaxed);
                } else {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        })?;
        Ok(Self(count))
    }

    /// How many came.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether this process was started with the signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
