//! Faults of any kind, with their time.

use std::fmt;
use std::time::Duration;

/// A fault and its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduled<F> {
    /// When it begins, since the run's begin.
    pub at: Duration,
    /// How long it lasts; nothing for what happens at once.
    pub lasts: Duration,
    /// What happens.
    pub fault: F,
}

impl<F> Scheduled<F> {
    /// When it is over.
    pub fn end(&self) -> Duration {
        self.at + self.lasts
    }
}

impl<F: fmt::Display> fmt::Display for Scheduled<F> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at {:?}: {}", self.at, self.fault)?;
        if self.lasts.is_zero() { Ok(()) } else { write!(out, ", for {:?}", self.lasts) }
    }
}
