//! What every member of a simulated run has in common: its life, its turns, and its clocks, which are a monotonic one that may
//! drift, and a UTC clock that may be set. The disk of a builder unit goes by them, too.

use super::cluster::{LeastWait, Process};
use super::endpoints::Surroundings;
use super::fault::Place;
use super::recorder::Shared;
use super::runner::{Broken, ensure};
use super::scenario::Scenario;
use ropewalk_engine::Drive;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_terms::{Epoch, Incarnation, Instant, PoolAccount, Utc};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Methods without arguments that a field has: `forward!(inner: is_done -> bool)`; of `&mut self` with `mut` in front.
macro_rules! forward {
    (mut $field:ident: $($name:ident -> $type:ty),+) => {$(
        fn $name(&mut self) -> $type {
            self.$field.$name()
        }
    )+};
    ($field:ident: $($name:ident -> $type:ty),+) => {$(
        fn $name(&self) -> $type {
            self.$field.$name()
        }
    )+};
}
pub(super) use forward;

/// A machine as the simulator knows it: how it is turned ([`Drive`]) and what must hold of it at every step.
pub(super) trait Machine: Drive {
    /// The accounts of its pools.
    fn pools(&mut self) -> Vec<PoolAccount> {
        Vec::new()
    }

    /// The event manager whose order it carried out last: its epoch and its life.
    fn obeyed(&self) -> Option<(Epoch, Incarnation)> {
        None
    }

    /// What must hold after every turn.
    fn check(&self, _scenario: &Scenario) -> Result<(), Broken> {
        Ok(())
    }
}

/// How long a member waits at least for its next turn.
const LEAST_WAIT: LeastWait = LeastWait { to_come: Duration::from_micros(1), over: Duration::from_micros(1) };

/// A member of the run.
pub(super) struct Node<M> {
    pub(super) around: Surroundings,
    /// Its places on the network, in its present life.
    pub(super) hosts: Vec<u32>,
    /// Those of its former lives.
    former_hosts: Vec<u32>,
    process: Process<M>,
}

impl<M> Deref for Node<M> {
    type Target = Process<M>;

    fn deref(&self) -> &Process<M> {
        &self.process
    }
}

impl<M> DerefMut for Node<M> {
    fn deref_mut(&mut self) -> &mut Process<M> {
        &mut self.process
    }
}

impl<M: Machine> Node<M> {
    /// A member whose machine is still to be started.
    pub(super) fn new(place: Place, clock: NodeClock, recorder: &Shared) -> Self {
        let process = Process::new(clock.clone(), LEAST_WAIT);
        let around = Surroundings { place, clock, recorder: recorder.clone(), dry: Arc::default() };
        Self { around, hosts: Vec::new(), former_hosts: Vec::new(), process }
    }

    /// A life begins.
    pub(super) fn start(&mut self, (machine, hosts): (M, Vec<u32>)) {
        self.process.pauses = 0;
        self.process.start(machine);
        self.former_hosts.extend(std::mem::replace(&mut self.hosts, hosts));
    }

    /// The machine, which every member has while nothing kills its process.
    pub(super) fn machine(&self) -> Option<&M> {
        self.process.machine.as_ref()
    }
}

/// A member, whatever its machine.
pub(super) trait Member {
    /// Whose it is.
    fn around(&self) -> &Surroundings;

    /// Its places on the network; where `ever`, in all its lives.
    fn hosts(&self, ever: bool) -> Vec<u32>;

    /// Whether there is no process.
    fn is_down(&self) -> bool;

    /// One more fault keeps it from its turns; false if the process is dead.
    fn pause(&mut self) -> bool;

    /// One fault fewer does.
    fn resume(&mut self);

    /// Its process ends at once.
    fn kill(&mut self);

    /// It should have a turn now.
    fn is_due(&mut self) -> bool;

    /// It has a turn; says how much it did.
    ///
    /// # Errors
    /// What does not hold afterwards.
    fn turn(&mut self, scenario: &Scenario) -> Result<usize, Broken>;

    /// When it should have a turn, in the world's time, if nothing happens before.
    fn next_time(&self) -> Option<Instant>;

    /// It has ended in order.
    fn is_done(&self) -> bool;

    /// Which life of it this is, and the event manager whose order that life carried out last.
    fn obeyed(&self) -> Option<(u32, Epoch, Incarnation)>;

    /// The accounts of its pools.
    fn pools(&mut self) -> Vec<PoolAccount>;
}

impl<M: Machine> Member for Node<M> {
    fn around(&self) -> &Surroundings {
        &self.around
    }

    fn hosts(&self, ever: bool) -> Vec<u32> {
        let former = if ever { self.former_hosts.as_slice() } else { &[] };
        [former, &self.hosts].concat()
    }

    fn is_down(&self) -> bool {
        self.process.machine.is_none()
    }

    fn pause(&mut self) -> bool {
        if Member::is_down(self) {
            return false;
        }
        self.process.pause(1);
        true
    }

    fn resume(&mut self) {
        if self.process.pauses > 0 {
            self.process.pause(-1);
        }
    }

    fn kill(&mut self) {
        (self.process.machine, self.process.pauses) = (None, 0);
    }

    forward!(mut process: is_due -> bool);

    fn turn(&mut self, scenario: &Scenario) -> Result<usize, Broken> {
        let work = self.process.turn();
        let Some(machine) = &mut self.process.machine else { return Ok(0) };
        let place = self.around.place;
        let now = self.around.clock.world();
        self.around.recorder.borrow_mut().note(now, (1, work as u64), || format!("{place} does {work}"));
        let in_place = |broken: Broken| Broken { words: format!("{place}: {}", broken.words), ..broken };
        machine.check(scenario).map_err(in_place)?;
        for pool in machine.pools() {
            ensure!(Pools, pool.loans == pool.returned + pool.held; "{place}: {pool:?}")?;
        }
        Ok(work)
    }

    forward!(process: next_time -> Option<Instant>, is_done -> bool);

    fn obeyed(&self) -> Option<(u32, Epoch, Incarnation)> {
        let (epoch, incarnation) = self.process.machine.as_ref()?.obeyed()?;
        Some((self.process.life, epoch, incarnation))
    }

    fn pools(&mut self) -> Vec<PoolAccount> {
        self.process.machine.as_mut().map(Machine::pools).unwrap_or_default()
    }
}

/// One millionth of this is one ppm.
const MILLION: u128 = 1_000_000;

/// The clocks of one node. Clones are the same clocks.
#[derive(Clone, Debug)]
pub struct NodeClock {
    world: SimulatedClock,
    course: Arc<Mutex<Course>>,
}

/// How a node's clocks go since they were last changed.
#[derive(Copy, Clone, Debug)]
struct Course {
    world: Instant,
    local: Instant,
    ppm: i32,
    utc_offset: i64,
}

impl Course {
    /// The rate against the world's, in millionths.
    fn rate(self) -> u128 {
        (MILLION as i128 + i128::from(self.ppm)).max(1) as u128
    }
}

impl NodeClock {
    /// Clocks that agree with the world's but for a drift of `ppm` millionths.
    pub fn new(world: SimulatedClock, ppm: i32) -> Self {
        let now = world.now();
        Self { world, course: Arc::new(Mutex::new(Course { world: now, local: now, ppm, utc_offset: 0 })) }
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The world's time.
    pub fn world(&self) -> Instant {
        self.world.now()
    }

    /// What the node's monotonic clock shows.
    pub fn now(&self) -> Instant {
        self.local(self.world.now())
    }

    /// What the node's monotonic clock shows at this time of the world.
    fn local(&self, world: Instant) -> Instant {
        let course = *self.course();
        let passed = world.since(course.world).as_nanos() * course.rate() / MILLION;
        Instant::from_nanoseconds(course.local.as_nanoseconds().saturating_add(passed as u64))
    }

    /// The first time of the world at which the node's clock shows at least `local`, if it goes on like this.
    pub fn world_at(&self, local: Instant) -> Instant {
        if local == Instant::FAR_FUTURE {
            return local;
        }
        let course = *self.course();
        let needed = (local.since(course.local).as_nanos() * MILLION).div_ceil(course.rate());
        Instant::from_nanoseconds(course.world.as_nanoseconds().saturating_add(needed as u64))
    }

    /// What the node's monotonic clock shows at the first moment at which the world's shows `world` or more.
    pub fn local_from(&self, world: Instant) -> Instant {
        let local = self.local(world);
        if self.world_at(local) >= world { local } else { local.after(Duration::from_nanos(1)) }
    }

    /// From now on the monotonic clock is wrong by `ppm` millionths.
    pub fn set_drift(&self, ppm: i32) {
        let (world, local) = (self.world.now(), self.now());
        let mut course = self.course();
        *course = Course { world, local, ppm, ..*course };
    }

    /// Sets the UTC clock by so many nanoseconds.
    pub fn step_utc(&self, nanoseconds: i64) {
        self.course().utc_offset += nanoseconds;
    }

    /// What the node's UTC clock shows.
    pub fn utc(&self) -> Utc {
        Utc(self.world.utc().0 + self.course().utc_offset)
    }
}

/// The disk that a node writes `storage` to. It uses the world's time, not the node's clock.
pub(super) fn disk_of(storage: &SimulatedStorage, clock: &NodeClock) -> SimulatedDisk {
    let own = clock.clone();
    let disk = storage.disk(SimulatedDiskConfig::default(), clock.world.clone());
    disk.with_local_time(move |world| own.local_from(world))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_drifts_reaches_its_deadlines_and_not_before() {
        for ppm in [-50_000, -1, 0, 7, 50_000] {
            let world = SimulatedClock::new(Utc(0));
            let clock = NodeClock::new(world.clone(), ppm);
            world.advance(Duration::from_millis(1234));
            clock.set_drift(-ppm);
            let deadline = clock.now().after(Duration::from_nanos(123_456_789));
            let when = clock.world_at(deadline);
            assert!(clock.local(when) >= deadline, "{ppm}");
            assert!(clock.local(Instant::from_nanoseconds(when.as_nanoseconds() - 2)) < deadline, "{ppm}");
        }
    }

    #[test]
    fn a_late_clock_shows_less_and_goes_on_from_there() {
        let world = SimulatedClock::new(Utc(1_000));
        let clock = NodeClock::new(world.clone(), -500_000);
        world.advance(Duration::from_nanos(1000));
        assert_eq!(clock.now(), Instant::from_nanoseconds(500));
        clock.set_drift(0);
        world.advance(Duration::from_nanos(10));
        clock.step_utc(-7);
        assert_eq!((clock.now(), clock.utc()), (Instant::from_nanoseconds(510), Utc(2_003)));
    }
}
