//! What every simulated system has: processes that have their turns, faults that begin and end, a record, and a clock that goes on
//! to what happens next.
//!
//! ```text
//!   Seeded: a system as a seed decides it     Process: a machine, its clock, its turns     Core: clock, faults, record
//!                  \                                        |                                /
//!                   Cluster::step: faults and commands, turns until no process is due, the next moment
//! ```

use super::fault::{Fault, Place, Scheduled};
use super::node::NodeClock;
use super::recorder::{Recorder, Shared};
use super::runner::{Broken, Coverage, Situation, SystemKind, ensure};
use ropewalk_engine::Drive;
use ropewalk_flow::source::Random;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_terms::{Instant, Utc};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// A process: a machine that has its turns while nothing keeps it from them.
pub(super) struct Process<M> {
    pub(super) clock: NodeClock,
    /// `None` if the process is dead.
    pub(super) machine: Option<M>,
    /// Which life it is, from 1.
    pub(super) life: u32,
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
        Self { clock, machine: None, life: 0, pauses: 0, pace, turned_at, least_wait, is_busy: false, idle_at: None }
    }

    /// A life begins.
    pub(super) fn start(&mut self, machine: M) {
        self.machine = Some(machine);
        self.life += 1;
        self.wake();
    }

    /// It has a turn now, even if it has just had one.
    pub(super) const fn wake(&mut self) {
        (self.is_busy, self.idle_at) = (true, None);
    }

    /// Changes the number of faults that keep it from its turns.
    pub(super) const fn pause(&mut self, more: i32) {
        self.pauses = self.pauses.saturating_add_signed(more);
        self.wake();
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

/// When the first run of every simulation begins, in UTC: some day in 2023.
const BEGIN: Utc = Utc(1_700_000_000_000_000_000);

/// A fault that goes on, and the member that it struck if that was chosen when it began.
#[derive(Clone, Debug)]
pub struct Active {
    pub(super) until: Instant,
    pub(super) scheduled: Scheduled,
    pub(super) struck: Option<Place>,
}

/// What is still to go wrong, and what goes wrong now.
#[derive(Debug)]
pub(super) struct Schedule {
    pending: VecDeque<Scheduled>,
    active: Vec<Active>,
}

impl Schedule {
    /// When the next fault begins or ends.
    fn next(&self) -> Option<Instant> {
        let begins = self.pending.iter().map(|scheduled| Instant::ZERO.after(scheduled.at));
        begins.chain(self.active.iter().map(|active| active.until)).min()
    }

    /// Nothing goes wrong any more.
    pub(super) fn is_over(&self) -> bool {
        self.pending.is_empty() && self.active.is_empty()
    }

    /// The next fault whose end has come.
    fn take_ended(&mut self, now: Instant) -> Option<Active> {
        let index = self.active.iter().position(|active| active.until <= now)?;
        Some(self.active.remove(index))
    }

    /// The faults that go on.
    pub(super) fn active(&self) -> impl Iterator<Item = &Fault> {
        self.active.iter().map(|active| &active.scheduled.fault)
    }
}

/// A system as a seed decides it: everything in its run follows from this.
pub trait Seeded: Clone + fmt::Display {
    /// The system in virtual time.
    type World: Cluster;

    /// Which kind of systems it is of.
    const KIND: SystemKind;

    /// The system with a record of its run; no member has had a turn yet.
    fn world(self, recorder: Recorder) -> Self::World;

    /// What goes wrong, in the order of time.
    fn faults(&self) -> &[Scheduled];

    /// The same, to be changed.
    fn faults_mut(&mut self) -> &mut Vec<Scheduled>;

    /// When the last fault is over.
    fn faults_end(&self) -> Duration {
        self.faults().iter().map(Scheduled::end).max().unwrap_or_default()
    }
}

/// `Scenario` is a system of this kind, and `World` runs it.
macro_rules! seeded {
    ($kind:ident) => {
        impl $crate::campaign::cluster::Seeded for Scenario {
            type World = World;

            const KIND: SystemKind = SystemKind::$kind;

            fn world(self, recorder: Recorder) -> World {
                World::new(self, recorder)
            }

            fn faults(&self) -> &[Scheduled] {
                &self.faults
            }

            fn faults_mut(&mut self) -> &mut Vec<Scheduled> {
                &mut self.faults
            }
        }
    };
}
pub(super) use seeded;

/// What all systems in virtual time have.
#[derive(Debug)]
pub struct Core {
    pub(super) clock: SimulatedClock,
    pub(super) recorder: Shared,
    pub(super) schedule: Schedule,
    /// Which faults struck when.
    pub(super) coverage: Coverage,
    order: Random,
    /// Consecutive steps without work.
    idle_steps: u32,
}

impl Core {
    /// At the begin of a run of this seed, with all faults to come.
    pub(super) fn new(seed: u64, faults: &[Scheduled], recorder: Recorder) -> Self {
        Self {
            clock: SimulatedClock::new(BEGIN),
            recorder: recorder.shared(),
            schedule: Schedule { pending: faults.iter().cloned().collect(), active: Vec::new() },
            coverage: Coverage::default(),
            order: Random::new(seed, 3),
            idle_steps: 0,
        }
    }

    /// The present time.
    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// All numbers below `count` in a row that begins anywhere.
    pub(super) fn in_turns(&mut self, count: usize) -> impl Iterator<Item = usize> + use<> {
        let first = self.order.below(count as u64) as usize;
        (first..first + count).map(move |index| index % count)
    }
}

/// A system in virtual time.
pub trait Cluster {
    /// Rounds of turns without time going on; more means that processes keep each other busy for nothing.
    const MOST_ROUNDS: u32;
    /// Most consecutive steps without work; more means that a deadline is never met.
    const MOST_IDLE: u32;

    /// What it has as all systems.
    fn core(&mut self) -> &mut Core;

    /// How far the run is; none once it is over.
    fn situation(&self) -> Option<Situation>;

    /// Carries out a fault; false if nothing can go wrong.
    fn begin(&mut self, now: Instant, active: &mut Active) -> bool;

    /// A fault is over.
    fn end(&mut self, active: &Active);

    /// Some faults began or ended.
    fn after_faults(&mut self) {}

    /// Gives commands whose time has come.
    fn command(&mut self);

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

    /// The next moment at which a process is due or a command is given.
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

    /// The state of all processes, for error messages.
    fn described(&mut self) -> String;

    /// Lets faults begin and end whose time has come.
    fn inject(&mut self) {
        let (now, mut any) = (self.core().now(), false);
        if self.situation().is_none() {
            self.core().schedule.pending.clear();
        }
        while let Some(active) = self.core().schedule.take_ended(now) {
            self.core().recorder.borrow_mut().note(now, (7, 0), || format!("ends: {}", active.scheduled));
            self.end(&active);
            any = true;
        }
        while let Some(scheduled) =
            self.core().schedule.pending.pop_front_if(|next| Instant::ZERO.after(next.at) <= now)
        {
            let situation = self.situation();
            let until = Instant::ZERO.after(scheduled.end());
            let mut active = Active { until, scheduled, struck: None };
            if !self.begin(now, &mut active) {
                continue;
            }
            let core = self.core();
            situation.into_iter().for_each(|situation| core.coverage.hit(active.scheduled.fault.kind, situation));
            core.recorder.borrow_mut().note(now, (6, 0), || format!("begins: {}", active.scheduled));
            core.schedule.active.extend((until > now).then_some(active));
            any = true;
        }
        if any {
            self.after_faults();
        }
    }

    /// Turns all processes until none is due, then moves the clock to the next moment.
    ///
    /// # Errors
    /// What a checker found.
    fn step(&mut self) -> Result<(), Broken> {
        self.inject();
        self.command();
        let (mut rounds, mut done) = (0, 0);
        loop {
            let (any, work) = self.round()?;
            if !any {
                break;
            }
            (rounds, done) = (rounds + 1, done + work);
            ensure!(Liveness, rounds < Self::MOST_ROUNDS; "nodes do not come to rest")?;
        }
        self.rest()?;
        let idle = if done > 0 { 0 } else { self.core().idle_steps + 1 };
        self.core().idle_steps = idle;
        ensure!(Liveness, idle < Self::MOST_IDLE;
            "a process has turns again and again and does nothing: {}", self.described())?;
        let next = self.next_moment().into_iter().chain(self.core().schedule.next()).min();
        let (now, limit) = (self.core().now(), self.limit());
        ensure!(Liveness, next.is_some() || self.has_ended(); "no process waits for anything: {}", self.described())?;
        let next = next.unwrap_or(now).max(now.after(Duration::from_nanos(1)));
        self.core().clock.set(next.min(limit));
        Ok(())
    }

    /// Goes on until the run is over.
    ///
    /// # Errors
    /// What a checker found, or that the run does not end.
    fn go_on(&mut self) -> Result<(), Broken> {
        while !self.has_ended() {
            ensure!(Liveness, self.core().now() < self.limit(); "the run does not end: {}", self.described())?;
            self.step()?;
        }
        Ok(())
    }
}
