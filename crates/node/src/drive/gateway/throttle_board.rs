//! Where a gateway's thread shows the throttle's state, and another thread reads it to tell hardware.

use ropewalk_wire::gateway::ThrottleState;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is on the board.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// The state. Before anything was shown, and behind the gateway's end: error.
    pub state: ThrottleState,
    /// How often it changed.
    pub changes: u64,
    /// The gateway has ended: nothing follows.
    pub is_over: bool,
    /// How often hardware was told.
    pub told: u64,
    /// How often that failed.
    pub failed: u64,
    /// Why it failed last.
    pub failure: Option<String>,
}

/// A board with one state. Its lock is taken by the gateway's thread only when the state changes.
#[derive(Debug)]
pub struct ThrottleBoard {
    shown: Mutex<Shown>,
    changed: Condvar,
}

impl Default for ThrottleBoard {
    fn default() -> Self {
        let state = ThrottleState::Error;
        let shown = Shown { state, changes: 0, is_over: false, told: 0, failed: 0, failure: None };
        Self { shown: Mutex::new(shown), changed: Condvar::new() }
    }
}

impl ThrottleBoard {
    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another state.
    pub fn show(&self, state: ThrottleState) {
        let mut shown = self.lock();
        shown.state = state;
        shown.changes += 1;
        self.changed.notify_all();
    }

    /// The gateway ends: whoever does not hear that must take it for an error, and so must who does.
    pub fn close(&self) {
        let mut shown = self.lock();
        (shown.state, shown.is_over) = (ThrottleState::Error, true);
        shown.changes += 1;
        self.changed.notify_all();
    }

    /// What is shown.
    pub fn read(&self) -> Shown {
        self.lock().clone()
    }

    /// What is shown as soon as it has changed since so many changes, or after so long.
    pub fn wait(&self, changes: u64, most: Duration) -> Shown {
        let is_same = |shown: &mut Shown| shown.changes == changes;
        let waited = self.changed.wait_timeout_while(self.lock(), most, is_same);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Hardware was told, or could not be.
    pub fn note(&self, outcome: Result<(), String>) {
        let mut shown = self.lock();
        match outcome {
            Ok(()) => shown.told += 1,
            Err(failure) => {
                shown.failed += 1;
                shown.failure = Some(failure);
            }
        }
    }
}
