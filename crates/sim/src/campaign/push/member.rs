//! A member of a push system: its drive, its clock, its turns.

use crate::campaign::node::NodeClock;
use ropewalk_node::drive::Drive;
use ropewalk_terms::Instant;
use std::fmt;
use std::time::Duration;

/// How soon somebody has a turn again who found nothing to do.
const MOMENT: Duration = Duration::from_micros(50);

/// Who takes part.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A gateway, or the half of it that receives.
    Gateway(u16),
    /// The half of a gateway that sends, where it has a thread of its own.
    Sending(u16),
    /// A node of the farm.
    Node(u16),
    /// The trigger of a flow and all of its sources.
    Trigger(u8),
    /// A reader of decisions.
    Reader(u16),
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway(index) => write!(out, "gw{index}"),
            Self::Sending(index) => write!(out, "gw{index}-send"),
            Self::Node(index) => write!(out, "node{index}"),
            Self::Trigger(flow) => write!(out, "trigger{flow}"),
            Self::Reader(index) => write!(out, "reader{index}"),
        }
    }
}

/// A member: a process that may stand still, or be gone.
pub(super) struct Member<D> {
    pub(super) clock: NodeClock,
    pub(super) drive: Option<D>,
    /// So many faults at once keep it from its turns.
    pub(super) pauses: u32,
    /// Turns are at least so far apart, and the last one was then.
    pace: Duration,
    turned_at: Option<Instant>,
    /// It did something in its last turn, so that it has another one at once.
    is_busy: bool,
    /// When it had a turn without anything to do.
    idle_at: Option<Instant>,
}

impl<D: Drive> Member<D> {
    /// A member that is not there yet.
    pub(super) const fn new(clock: NodeClock) -> Self {
        let (pace, turned_at) = (Duration::ZERO, None);
        Self { clock, drive: None, pauses: 0, pace, turned_at, is_busy: false, idle_at: None }
    }

    /// A life begins.
    pub(super) fn start(&mut self, drive: D) {
        self.drive = Some(drive);
        self.wake();
    }

    /// It has a turn now, even if it has just had one.
    pub(super) const fn wake(&mut self) {
        (self.is_busy, self.idle_at) = (true, None);
    }

    /// From now on its turns are so far apart at least.
    pub(super) fn set_pace(&mut self, pace: Duration) {
        if pace != self.pace {
            self.pace = pace;
            self.wake();
        }
    }

    /// The first time at which it may have another turn, in the world's time.
    fn may_turn_at(&self) -> Instant {
        self.turned_at.map_or(Instant::ZERO, |at| at.after(self.pace))
    }

    /// Whether it has its turns.
    pub(super) const fn is_up(&self) -> bool {
        self.drive.is_some() && self.pauses == 0
    }

    /// Whether it should have a turn now.
    pub(super) fn is_due(&mut self) -> bool {
        let now = self.clock.world();
        let is_up = self.is_up() && self.idle_at != Some(now) && self.may_turn_at() <= now;
        let Some(drive) = self.drive.as_mut().filter(|drive| is_up && !drive.is_done()) else { return false };
        self.is_busy
            || !drive.prepare_wait()
            || drive.next_deadline().is_some_and(|deadline| deadline <= self.clock.now())
    }

    /// It has a turn, and says how much it did.
    pub(super) fn turn(&mut self) -> usize {
        let now = self.clock.now();
        let work = self.drive.as_mut().map_or(0, |drive| drive.turn(now));
        self.is_busy = work > 0;
        self.turned_at = Some(self.clock.world());
        self.idle_at = (work == 0).then_some(self.clock.world());
        work
    }

    /// When it should have a turn, in the world's time, if nothing happens before.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let drive = self.drive.as_ref().filter(|drive| self.pauses == 0 && !drive.is_done())?;
        let may_turn_at = self.may_turn_at();
        let now = self.clock.world();
        if self.is_busy && may_turn_at > now {
            return Some(may_turn_at);
        }
        let deadline = self.clock.world_at(drive.next_deadline()?).max(may_turn_at);
        // A deadline that is over means a turn at once; here that is a moment later. A receiver without memory is asked again
        // and again.
        Some(if deadline > now { deadline } else { now.after(MOMENT) })
    }
}
