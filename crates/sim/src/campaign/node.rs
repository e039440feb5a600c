//! What every member of a simulated run has in common: its life, its clock, its turns.

use super::broken::{Broken, Checker};
use super::clock::NodeClock;
use super::endpoints::Surroundings;
use super::place::Place;
use super::recorder::{Happening, Shared};
use super::scenario::Scenario;
use ropewalk_node::drive::Drive;
use ropewalk_terms::{Epoch, Incarnation, Instant, PoolAccount};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// A machine as the simulator knows it: how it is turned ([`Drive`]) and what must hold of it at every step.
pub(super) trait Machine: Drive {
    /// The accounts of its pools.
    fn pools(&mut self) -> Vec<PoolAccount>;

    /// The event manager whose order it carried out last: its epoch and its life.
    fn obeyed(&self) -> Option<(Epoch, Incarnation)> {
        None
    }

    /// What must hold after every turn.
    fn check(&self, scenario: &Scenario) -> Result<(), Broken>;
}

/// Whether a process is there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Health {
    /// It has its turns.
    Up,
    /// It has none, because of so many faults at once.
    Paused(u32),
    /// There is no process.
    Down,
}

/// A member of the run.
pub(super) struct Node<M> {
    pub(super) around: Surroundings,
    /// Its places on the network, in its present life.
    pub(super) hosts: Vec<u32>,
    /// Those of its former lives.
    former_hosts: Vec<u32>,
    pub(super) machine: Option<M>,
    pub(super) health: Health,
    /// Which life it is, from 1.
    pub(super) life: u32,
    /// It did something in its last turn, so that it has another one at once.
    busy: bool,
    /// When it had a turn without anything to do.
    idle_at: Option<Instant>,
}

impl<M: Machine> Node<M> {
    /// A member whose machine is still to be started.
    pub(super) fn new(place: Place, clock: NodeClock, recorder: &Shared) -> Self {
        let around = Surroundings { place, clock, recorder: Rc::clone(recorder), dry: Rc::new(Cell::new(false)) };
        Self {
            around,
            hosts: Vec::new(),
            former_hosts: Vec::new(),
            machine: None,
            health: Health::Down,
            life: 0,
            busy: false,
            idle_at: None,
        }
    }

    /// A life begins.
    pub(super) fn start(&mut self, (machine, hosts): (M, Vec<u32>)) {
        self.machine = Some(machine);
        self.former_hosts.extend(std::mem::replace(&mut self.hosts, hosts));
        self.health = Health::Up;
        self.life += 1;
        (self.busy, self.idle_at) = (true, None);
    }

    /// It has a turn now, even if it has just had one.
    pub(super) const fn wake(&mut self) {
        (self.busy, self.idle_at) = (true, None);
    }

    /// The machine, which every member has while nothing kills its process.
    pub(super) fn machine(&self) -> Option<&M> {
        self.machine.as_ref()
    }
}

/// A member, whatever its machine.
pub(super) trait Member {
    /// Whose it is.
    fn around(&self) -> &Surroundings;

    /// Its places on the network.
    fn hosts(&self) -> &[u32];

    /// Those that it had in former lives.
    fn former_hosts(&self) -> &[u32];

    /// Whether it is there.
    fn health(&self) -> Health;

    /// It stands still, or goes on.
    fn set_health(&mut self, health: Health);

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

    fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    fn former_hosts(&self) -> &[u32] {
        &self.former_hosts
    }

    fn health(&self) -> Health {
        self.health
    }

    fn set_health(&mut self, health: Health) {
        self.health = health;
        (self.busy, self.idle_at) = (true, None);
    }

    fn kill(&mut self) {
        self.machine = None;
        self.health = Health::Down;
    }

    fn is_due(&mut self) -> bool {
        let world = self.around.clock.world();
        let Some(machine) = self.machine.as_mut().filter(|machine| !machine.is_done()) else { return false };
        if self.health != Health::Up || self.idle_at == Some(world) {
            return false;
        }
        self.busy
            || !machine.prepare_wait()
            || machine.next_deadline().is_some_and(|deadline| deadline <= self.around.clock.now())
    }

    fn turn(&mut self, scenario: &Scenario) -> Result<usize, Broken> {
        let (world, now) = (self.around.clock.world(), self.around.clock.now());
        let Some(machine) = &mut self.machine else { return Ok(0) };
        let work = machine.turn(now);
        self.busy = work > 0;
        self.idle_at = (work == 0).then_some(world);
        let place = self.around.place;
        self.around.recorder.borrow_mut().note(world, Happening::Turn { place, work });
        let in_place = |broken: Broken| Broken { words: format!("{place}: {}", broken.words), ..broken };
        machine.check(scenario).map_err(in_place)?;
        for pool in machine.pools() {
            Broken::unless(pool.loans == pool.returned + pool.held, Checker::Pools, || format!("{place}: {pool:?}"))?;
        }
        Ok(work)
    }

    fn next_time(&self) -> Option<Instant> {
        let machine = self.machine.as_ref().filter(|machine| self.health == Health::Up && !machine.is_done())?;
        let clock = &self.around.clock;
        let deadline = clock.world_at(machine.next_deadline()?);
        // A deadline that is over means a turn at once; here that is a microsecond later.
        Some(deadline.max(clock.world().after(Duration::from_micros(1))))
    }

    fn is_done(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.is_done())
    }

    fn obeyed(&self) -> Option<(u32, Epoch, Incarnation)> {
        let (epoch, incarnation) = self.machine.as_ref()?.obeyed()?;
        Some((self.life, epoch, incarnation))
    }

    fn pools(&mut self) -> Vec<PoolAccount> {
        self.machine.as_mut().map(Machine::pools).unwrap_or_default()
    }
}
