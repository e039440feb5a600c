//! How the time of a run passes whose end nobody tells.

use super::super::broken::{Broken, Checker};
use super::{Machine, Overseer};
use ropewalk_terms::Instant;
use std::time::Duration;

/// How much time passes from turn to turn.
pub(in super::super) const STEP: Duration = Duration::from_micros(500);
/// A run is over when all boards have left and nothing has happened for so long: longer than all that is waited for. What no
/// board shows in the end is not settled, since nobody here tells of it.
const QUIET: Duration = Duration::from_secs(4);
/// Every run is over by then, with a wide margin.
const LONGEST: Duration = Duration::from_secs(120);

/// The time of a run, and since when nothing has happened.
#[derive(Debug, Default)]
pub(in super::super) struct Course {
    pub(in super::super) now: Instant,
    since: Instant,
    /// Events that were settled, and fragments that were received.
    reached: (u64, u64),
}

impl Course {
    /// Whether the run is over, where all boards have left or not.
    pub(in super::super) fn is_over(&self, have_left: bool) -> bool {
        have_left && self.now >= self.since.after(QUIET)
    }

    /// A turn is over.
    pub(in super::super) fn go_on(&mut self, overseer: &Overseer, readout: &Machine) -> Result<(), Broken> {
        let reached = (overseer.settled, readout.machine().total().received);
        if std::mem::replace(&mut self.reached, reached) != reached {
            self.since = self.now;
        }
        self.now = self.now.after(STEP);
        let is_late = self.now > Instant::ZERO.after(LONGEST);
        Broken::unless(!is_late, Checker::Liveness, || format!("{reached:?} are settled and received"))
    }
}
