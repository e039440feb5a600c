//! Ctrl-C: the first one stops in order, the second one at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the interrupts of this process.
pub(crate) struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    /// Begins to count SIGINT and SIGTERM.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let count = Arc::new(AtomicUsize::new(0));
        let mut signals =
            signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])?;
        let counted = Arc::clone(&count);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for _ in signals.forever() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        Ok(Self(count))
    }

    /// How many came.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
