//! What every simulated system has: processes that have their turns, faults that begin and end, and a clock that goes on to what
//! happens next.
//!
//! ```text
//!   Process: a machine, its clock, its turns      Schedule: future and present faults
//!                  \                                /
//!                   Cluster::step: faults and commands, turns until no process is due, the next moment
//! ```

use super::fault::{Fault, Scheduled};
use super::node::NodeClock;
use super::outcome::{Broken, Checker};
use super::runner::Coverage;
use ropewalk_engine::Drive;
use ropewalk_flow::source::Random;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_terms::Instant;
use std::collections::VecDeque;
use std::time::Duration;

/// A process: a machine that has its turns while nothing keeps it from them.
pub(super) struct Process<M> {
    pub(super) clock: NodeClock,
    /// `None` if the process is dead.
    pub(super) machine: Option<M>,
    /// So many faults at once keep it from its turns.
    pub(super) pauses: u32,
    /// Turns are at least so far apart, and the last one was then.
    pace: Duration,
    turned_at: Option<Instant>,
    least_wait: LeastWait,
    /// It did something in its last turn, so that it has another one at once.
    is_busy: bool,
    /// When it had a turn without anything to do.
    idle_at: Option<Instant>,
}

/// How long a process waits at least for a deadline that is still to come, and for one that is over: a receiver without memory is
/// asked again and again.
#[derive(Copy, Clone, Debug)]
pub(super) struct LeastWait {
    pub(super) to_come: Duration,
    pub(super) over: Duration,
}

impl<M: Drive> Process<M> {
    /// One whose machine is still to be started.
    pub(super) const fn new(clock: NodeClock, least_wait: LeastWait) -> Self {
        let (pace, turned_at) = (Duration::ZERO, None);
        Self { clock, machine: None, pauses: 0, pace, turned_at, least_wait, is_busy: false, idle_at: None }
    }

    /// A life begins.
    pub(super) fn start(&mut self, machine: M) {
        self.machine = Some(machine);
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
        self.machine.is_some() && self.pauses == 0
    }

    /// It has ended in order.
    pub(super) fn is_done(&self) -> bool {
        self.machine.as_ref().is_some_and(Drive::is_done)
    }

    /// Whether it should have a turn now.
    pub(super) fn is_due(&mut self) -> bool {
        let now = self.clock.world();
        let is_up = self.is_up() && self.idle_at != Some(now) && self.may_turn_at() <= now;
        let Some(machine) = self.machine.as_mut().filter(|machine| is_up && !machine.is_done()) else { return false };
        self.is_busy
            || !machine.prepare_wait()
            || machine.next_deadline().is_some_and(|deadline| deadline <= self.clock.now())
    }

    /// It has a turn, and says how much it did.
    pub(super) fn turn(&mut self) -> usize {
        let (world, now) = (self.clock.world(), self.clock.now());
        let work = self.machine.as_mut().map_or(0, |machine| machine.turn(now));
        (self.is_busy, self.turned_at) = (work > 0, Some(world));
        self.idle_at = (work == 0).then_some(world);
        work
    }

    /// When it should have a turn, in the world's time, if nothing happens before.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let machine = self.machine.as_ref().filter(|machine| self.pauses == 0 && !machine.is_done())?;
        let (now, may_turn_at) = (self.clock.world(), self.may_turn_at());
        if self.is_busy && may_turn_at > now {
            return Some(may_turn_at);
        }
        let deadline = self.clock.world_at(machine.next_deadline()?).max(may_turn_at);
        let LeastWait { to_come, over } = self.least_wait;
        Some(deadline.max(now.after(if deadline > now { to_come } else { over })))
    }
}

/// A fault that goes on, and what it struck.
#[derive(Clone, Debug)]
pub(super) struct Active<P, S> {
    pub(super) until: Instant,
    pub(super) scheduled: Scheduled<P>,
    pub(super) struck: S,
}

/// What is still to go wrong, and what goes wrong now.
#[derive(Debug)]
pub(super) struct Schedule<P, S = ()> {
    pending: VecDeque<Scheduled<P>>,
    active: Vec<Active<P, S>>,
}

impl<P: Clone, S> Schedule<P, S> {
    /// Everything is still to come.
    pub(super) fn new(faults: &[Scheduled<P>]) -> Self {
        Self { pending: faults.iter().cloned().collect(), active: Vec::new() }
    }

    /// When the next fault begins or ends.
    pub(super) fn next(&self) -> Option<Instant> {
        let begins = self.pending.iter().map(|scheduled| Instant::ZERO.after(scheduled.at));
        begins.chain(self.active.iter().map(|active| active.until)).min()
    }

    /// Nothing goes wrong any more.
    pub(super) fn is_over(&self) -> bool {
        self.pending.is_empty() && self.active.is_empty()
    }

    /// Nothing more begins.
    pub(super) fn stop(&mut self) {
        self.pending.clear();
    }

    /// The next fault whose end has come.
    pub(super) fn take_ended(&mut self, now: Instant) -> Option<Active<P, S>> {
        let index = self.active.iter().position(|active| active.until <= now)?;
        Some(self.active.remove(index))
    }

    /// The next fault whose time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Scheduled<P>> {
        self.pending.pop_front_if(|next| Instant::ZERO.after(next.at) <= now)
    }

    /// A fault has begun, and goes on where it lasts.
    pub(super) fn keep(&mut self, now: Instant, active: Active<P, S>) {
        if active.until > now {
            self.active.push(active);
        }
    }

    /// The faults that go on.
    pub(super) fn active(&self) -> impl Iterator<Item = &Fault<P>> {
        self.active.iter().map(|active| &active.scheduled.fault)
    }
}

/// A system in virtual time.
pub(super) trait Cluster {
    /// Rounds of turns without time going on; more means that processes keep each other busy for nothing.
    const MOST_ROUNDS: u32;
    /// Most consecutive steps without work; more means that a deadline is never met.
    const MOST_IDLE: u32;

    /// The clock of the world.
    fn clock(&self) -> &SimulatedClock;

    /// Begins and ends faults, and gives commands, whose time has come.
    fn strike(&mut self);

    /// Turns all processes that are due, starting with another one each time. Returns whether any was due, and how much it did.
    ///
    /// # Errors
    /// What a checker found.
    fn round(&mut self) -> Result<(bool, usize), Broken>;

    /// Checks what must hold when no process is due.
    ///
    /// # Errors
    /// What does not.
    fn rest(&mut self) -> Result<(), Broken>;

    /// Consecutive steps without work.
    fn idle_steps(&mut self) -> &mut u32;

    /// The next moment at which a process is due, a fault begins or ends, or a command is given.
    fn next_moment(&mut self) -> Option<Instant>;

    /// When everything should be over.
    fn limit(&self) -> Instant;

    /// The run is over.
    fn has_ended(&self) -> bool;

    /// What must hold of a run that is over.
    ///
    /// # Errors
    /// What does not.
    fn judge(&mut self) -> Result<(), Broken>;

    /// Which faults struck when.
    fn coverage(&self) -> &Coverage;

    /// Mixed from everything that happened: equal for equal histories.
    fn digest(&self) -> u64;

    /// The state of all processes, for error messages.
    fn described(&mut self) -> String;

    /// Turns all processes until none is due, then moves the clock to the next moment.
    ///
    /// # Errors
    /// What a checker found.
    fn step(&mut self) -> Result<(), Broken> {
        self.strike();
        let (mut rounds, mut done) = (0, 0);
        loop {
            let (any, work) = self.round()?;
            if !any {
                break;
            }
            (rounds, done) = (rounds + 1, done + work);
            Broken::unless(rounds < Self::MOST_ROUNDS, Checker::Liveness, || "nodes do not come to rest".to_owned())?;
        }
        self.rest()?;
        let idle = if done > 0 { 0 } else { *self.idle_steps() + 1 };
        *self.idle_steps() = idle;
        Broken::unless(idle < Self::MOST_IDLE, Checker::Liveness, || {
            format!("somebody has turns again and again and does nothing: {}", self.described())
        })?;
        let (now, next, limit) = (self.clock().now(), self.next_moment(), self.limit());
        Broken::unless(next.is_some() || self.has_ended(), Checker::Liveness, || {
            format!("nobody waits for anything: {}", self.described())
        })?;
        self.clock().set(next.unwrap_or(now).max(now.after(Duration::from_nanos(1))).min(limit));
        Ok(())
    }

    /// Goes on until the run is over.
    ///
    /// # Errors
    /// What a checker found, or that the run does not end.
    fn go_on(&mut self) -> Result<(), Broken> {
        while !self.has_ended() {
            Broken::unless(self.clock().now() < self.limit(), Checker::Liveness, || {
                format!("the run does not end: {}", self.described())
            })?;
            self.step()?;
        }
        Ok(())
    }
}

/// All numbers below `count` in a row that begins anywhere.
pub(super) fn in_turns(order: &mut Random, count: usize) -> impl Iterator<Item = usize> + use<> {
    let first = order.below(count as u64) as usize;
    (first..first + count).map(move |index| index % count)
}
