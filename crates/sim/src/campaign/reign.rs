//! Event managers come and go: which one leads, which one takes over, which one ends the run and has its account.
//!
//! [`Obedience`] checks whom nodes obey: an epoch belongs to one event manager, and no node goes back to a lower one. The
//! coordination [`Service`] gives leases. It has a clock of its own, loses some requests and answers, is late, and can be cut
//! off.

use super::cluster::Seeded;
use super::fault::Place;
use super::machines::{ManagerMachine, manager, run_of};
use super::node::{Member, Node, NodeClock};
use super::runner::{Broken, ensure};
use super::scenario::{COORDINATION_STREAM, End, Managers, Scenario};
use super::world::World;
use ropewalk_engine::{CoordinatedRun, Coordination, Drive};
use ropewalk_flow::control::RunCommand;
use ropewalk_flow::manager::{LeaseAnswer, ManagerState};
use ropewalk_flow::source::Random;
use ropewalk_terms::{Epoch, Incarnation, Instant};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// So long after the last fault and the last event the operator wonders why the run does not end.
const SURPRISE: Duration = Duration::from_secs(15);
/// Clocks may be so much too fast: who waits by them gives up earlier.
const FASTEST: f64 = 0.9;

/// One event manager in one epoch: its index, its life, the epoch.
type Term = (u16, u32, Epoch);

/// What is known of event managers.
#[derive(Default)]
pub(super) struct Reign {
    /// Without a lease: the manager that was started last, and its epoch.
    pub(super) present: u16,
    epoch: Epoch,
    pub(super) service: Option<SharedService>,
    pub(super) obedience: Obedience,
    /// Who was told to end the run.
    commanded: Option<Term>,
    /// Who ended it, and when.
    pub(super) ended: Option<(u16, Instant)>,
    /// How often events were assigned again in each epoch.
    pub(super) reassigned: BTreeMap<Epoch, u64>,
    /// From when to when each led the run.
    led: BTreeMap<Term, (Instant, Instant)>,
    /// Those that took over.
    recoveries: BTreeMap<Epoch, Recovery>,
}

/// An event manager takes the run over.
#[derive(Copy, Clone, Debug)]
pub(super) struct Recovery {
    /// Since when it asked all units.
    from: Instant,
    /// When it went on with what it had heard.
    pub(super) until: Option<Instant>,
}

impl Recovery {
    /// Whether it may have gone on without having heard all units.
    pub(super) fn is_blind(&self, scenario: &Scenario) -> bool {
        let patience = scenario.time_outs.manager.mul_f64(FASTEST);
        self.until.is_none_or(|until| until.since(self.from) >= patience)
    }
}

impl Reign {
    /// No event manager has spoken yet.
    pub(super) fn new(scenario: &Scenario) -> Self {
        let service = match scenario.managers {
            Managers::Standby(lease) => Some(Service::new(scenario, lease.term)),
            Managers::Alone | Managers::Succession => None,
        };
        Self { epoch: Epoch(1), service, ..Self::default() }
    }

    /// Whether an event manager led the run at any moment between two times.
    pub(super) fn has_led(&self, manager: u16, from: Instant, until: Instant) -> bool {
        let mut own = self.led.iter().filter(|((index, ..), _)| *index == manager);
        own.any(|(_, &(begun, ended))| begun <= until && ended >= from)
    }

    /// How each event manager that took the run over did so.
    pub(super) fn recoveries(&self) -> impl Iterator<Item = &Recovery> {
        self.recoveries.values()
    }

    /// How the event manager of an epoch took the run over, where it did.
    pub(super) fn recovery_in(&self, epoch: Epoch) -> Option<&Recovery> {
        self.recoveries.get(&epoch)
    }
}

impl World {
    /// A life of an event manager begins. One without a lease speaks in the present epoch.
    pub(super) fn start_manager(&mut self, index: u16) {
        let (epoch, place) = (self.reign.epoch, usize::from(index));
        let begun = manager(&self.site(), &self.managers[place].around, index, epoch);
        self.managers[place].start(begun);
    }

    /// The operator begins the run, unless that is a matter of leases.
    pub(super) fn command_the_start(&mut self) {
        let CoordinatedRun { run, first, last } = run_of(&self.scenario);
        if self.reign.service.is_none()
            && let Some(manager) = &mut self.managers[0].machine
        {
            manager.drive_mut().command(Instant::ZERO, RunCommand::Start { run, first, last });
        }
    }

    /// The operator starts an event manager that takes the run over.
    pub(super) fn take_over(&mut self, index: u16) {
        (self.reign.present, self.reign.epoch) = (index, Epoch(self.reign.epoch.0 + 1));
        // One that was overtaken before and has ended still has the address.
        self.member(Place::Manager(index)).kill();
        self.start_manager(index);
        let CoordinatedRun { run, first, last } = run_of(&self.scenario);
        let node = &mut self.managers[usize::from(index)];
        let now = node.around.clock.now();
        if let Some(manager) = &mut node.machine {
            manager.drive_mut().command(now, RunCommand::TakeOver { run, first, last });
        }
    }

    /// The place where a successor can be started, if no event manager lives there.
    pub(super) fn free_manager(&self) -> Option<u16> {
        let is_free = |node: &Node<ManagerMachine>| node.machine.is_none() || node.is_done();
        let other = 1 - self.reign.present;
        self.managers.get(usize::from(other)).is_some_and(is_free).then_some(other)
    }

    /// The event manager that speaks for the run: it has ended it, or else has the lease, or else was started last.
    pub(super) fn speaker(&self) -> Option<u16> {
        let in_charge = || {
            let speaks =
                |index: &u16| self.managers[usize::from(*index)].machine().is_some_and(ManagerMachine::is_in_charge);
            match self.scenario.managers {
                Managers::Standby(_) => (0..self.managers.len() as u16).find(speaks),
                Managers::Alone | Managers::Succession => Some(self.reign.present).filter(speaks),
            }
        };
        self.reign.ended.map(|(index, _)| index).or_else(in_charge)
    }

    /// The machine of the event manager that speaks for the run.
    pub(super) fn spoken_for(&self) -> Option<&ManagerMachine> {
        self.managers[usize::from(self.speaker()?)].machine()
    }

    /// Whether an event manager has ended the run and waits for those who still have to take their leave. It dies no
    /// more: the others were dismissed already, and the account would be gone with it.
    pub(super) fn has_ended_the_run(&self, place: Place) -> bool {
        let Place::Manager(index) = place else { return false };
        self.managers[usize::from(index)].machine().is_some_and(|manager| manager.drive().phase().is_final())
    }

    fn term(&self, index: u16) -> Option<Term> {
        let node = &self.managers[usize::from(index)];
        Some((index, node.life, node.machine()?.speaks()?))
    }

    /// What ends the run if it does not end by itself, and when: the operator stops a run whose last event got lost on
    /// its way from every source, since no member can know that it will not come.
    pub(super) fn end_command(&self) -> (Duration, RunCommand) {
        let stop = RunCommand::Stop { last: None };
        match self.scenario.end {
            End::Stop(time) => (time, stop),
            End::Force(time) => (time, RunCommand::ForceStop),
            End::Last => {
                (self.scenario.faults_end().max(self.scenario.pace * self.scenario.events as u32) + SURPRISE, stop)
            }
        }
    }

    /// Commands the event manager that speaks to end the run when it is time. A successor may not know of the command
    /// to its predecessor.
    pub(super) fn command_the_end(&mut self) {
        let (time, command) = self.end_command();
        if self.core.now() < Instant::ZERO.after(time) || self.reign.ended.is_some() {
            return;
        }
        let Some((index, term)) = self.speaker().and_then(|index| Some((index, self.term(index)?))) else { return };
        let node = &mut self.managers[usize::from(index)];
        let now = node.around.clock.now();
        let Some(manager) = &mut node.machine else { return };
        // A new event manager knows of nothing yet; to end the run by force then would leave all units alone.
        let state = manager.drive().machine().state();
        let is_new = term.2 > Epoch(1) && matches!(state, ManagerState::Idle | ManagerState::Recovering);
        if self.reign.commanded == Some(term) || is_new && command == RunCommand::ForceStop {
            return;
        }
        self.reign.commanded = Some(term);
        manager.drive_mut().command(now, command);
        node.wake();
    }

    /// Takes note of what event managers have done.
    pub(super) fn look_at_managers(&mut self) {
        let now = self.core.now();
        for index in 0..self.managers.len() as u16 {
            let (Some(term), Some(machine)) = (self.term(index), self.managers[usize::from(index)].machine()) else {
                continue;
            };
            let is_over = machine.is_done() && machine.refusal().is_none();
            let (state, reassigned) =
                (machine.drive().machine().state(), machine.drive().machine().counts().reassigned);
            let reign = &mut self.reign;
            let (_, _, epoch) = term;
            reign.led.entry(term).or_insert((now, now)).1 = now;
            reign.reassigned.insert(epoch, reassigned);
            if state == ManagerState::Recovering {
                reign.recoveries.entry(epoch).or_insert(Recovery { from: now, until: None });
            } else if let Some(recovery) = reign.recoveries.get_mut(&epoch) {
                recovery.until.get_or_insert(now);
            }
            if is_over && reign.ended.is_none() {
                reign.ended = Some((index, now));
                reign.service.iter().for_each(|service| service.borrow_mut().close());
            }
        }
    }
}

/// What was seen of it, from the orders that nodes carried out.
#[derive(Clone, Debug, Default)]
pub(super) struct Obedience {
    /// Whose each epoch is.
    owners: BTreeMap<Epoch, Incarnation>,
    /// The highest epoch that each node obeyed, and in which life. A new life knows of none.
    highest: BTreeMap<Place, (u32, Epoch)>,
}

impl Obedience {
    /// Whether no node has obeyed an event manager yet.
    pub(super) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// Checks a member that has had a turn.
    ///
    /// # Errors
    /// If it obeyed an event manager that it should not.
    pub(super) fn look(&mut self, member: &dyn Member) -> Result<(), Broken> {
        let Some((life, epoch, incarnation)) = member.obeyed() else { return Ok(()) };
        let place = member.around().place;
        let owner = *self.owners.entry(epoch).or_insert(incarnation);
        ensure!(Epochs, owner == incarnation; "{place} obeys {incarnation} in epoch {epoch}, which is {owner}'s")?;
        let (known, highest) = self.highest.entry(place).or_insert((life, epoch));
        if *known != life {
            (*known, *highest) = (life, epoch);
        }
        ensure!(Epochs, epoch >= *highest; "{place} obeys epoch {epoch} after epoch {highest}")?;
        *highest = epoch;
        Ok(())
    }
}

/// One in so many answers is lost.
const LOST: u64 = 20;
/// One in so many is late by up to [`LATE`]; others by up to [`USUAL`].
const RARE: u64 = 12;
const LATE: Duration = Duration::from_secs(1);
const USUAL: Duration = Duration::from_millis(5);

/// The event manager that has the lease.
#[derive(Copy, Clone, Debug)]
struct Holder {
    manager: u16,
    until: Instant,
}

/// An answer on its way.
#[derive(Copy, Clone, Debug)]
struct Answer {
    line: u64,
    arrives: Instant,
    question: u64,
    answer: LeaseAnswer,
}

/// How an event manager reaches the service.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Reach {
    /// So many faults cut it off.
    pub(super) cuts: u32,
    /// Answers take so much longer.
    pub(super) late: Duration,
}

/// The service: grants the lease to one at a time, each new grant in a new epoch.
pub(super) struct Service {
    draw: Random,
    term: Duration,
    holder: Option<Holder>,
    epoch: u32,
    pub(super) reach: [Reach; 2],
    answers: Vec<Answer>,
    lines: u64,
    is_over: bool,
}

/// The service, shared by its clients.
pub(super) type SharedService = Rc<RefCell<Service>>;

impl Service {
    /// A service whose lease is free.
    pub(super) fn new(scenario: &Scenario, term: Duration) -> SharedService {
        let draw = Random::new(scenario.seed, COORDINATION_STREAM);
        let (answers, reach) = (Vec::new(), [Reach::default(); 2]);
        let service = Self { draw, term, holder: None, epoch: 0, reach, answers, lines: 0, is_over: false };
        Rc::new(RefCell::new(service))
    }

    /// The run has ended: no lease is given any more.
    pub(super) const fn close(&mut self) {
        self.is_over = true;
    }

    /// The holder of the lease by the service's own clock, and its epoch.
    fn held(&self, now: Instant) -> Option<(u16, Epoch)> {
        self.holder.filter(|holder| now < holder.until).map(|holder| (holder.manager, Epoch(self.epoch)))
    }

    fn ask(&mut self, now: Instant, line: &Line, question: u64, renews: Option<Epoch>) {
        let reach = self.reach[usize::from(line.manager)];
        let is_lost = self.draw.one_in(LOST);
        let most = if self.draw.one_in(RARE) { LATE } else { USUAL };
        let late = self.draw.time(Duration::from_micros(50), most) + reach.late;
        if reach.cuts > 0 || is_lost {
            return;
        }
        let held = self.held(now).map(|(holder, _)| holder);
        let answer = if self.is_over || held.is_some_and(|holder| holder != line.manager) {
            LeaseAnswer::Denied
        } else {
            self.epoch += u32::from(held.is_none() || renews != Some(Epoch(self.epoch)));
            self.holder = Some(Holder { manager: line.manager, until: now.after(self.term) });
            LeaseAnswer::Granted(Epoch(self.epoch))
        };
        self.answers.push(Answer { line: line.line, arrives: now.after(late), question, answer });
    }

    fn answer(&mut self, now: Instant, line: &Line) -> Option<(u64, LeaseAnswer)> {
        let is_due = |one: &Answer| one.line == line.line && now >= one.arrives;
        // What comes while it is cut off is lost.
        if self.reach[usize::from(line.manager)].cuts > 0 {
            self.answers.retain(|one| !is_due(one));
        }
        let next = self.answers.iter().position(is_due)?;
        let Answer { question, answer, .. } = self.answers.remove(next);
        Some((question, answer))
    }
}

/// The connection of one life of an event manager to the service.
pub(super) struct Line {
    service: SharedService,
    manager: u16,
    /// The number of this connection: an answer to an earlier life's is never read.
    line: u64,
    clock: NodeClock,
}

impl Line {
    /// A way for a new life.
    pub(super) fn new(service: &SharedService, manager: u16, clock: &NodeClock) -> Self {
        let line = {
            let mut service = service.borrow_mut();
            service.lines += 1;
            service.lines
        };
        Self { service: Rc::clone(service), manager, line, clock: clock.clone() }
    }

    /// The epoch of the lease that this event manager has now by the service's clock.
    pub(super) fn held(&self) -> Option<Epoch> {
        let held = self.service.borrow().held(self.clock.world());
        held.filter(|&(holder, _)| holder == self.manager).map(|(_, epoch)| epoch)
    }
}

impl Coordination for Line {
    fn ask(&mut self, _now: Instant, question: u64, renews: Option<Epoch>) {
        let now = self.clock.world();
        self.service.borrow_mut().ask(now, self, question, renews);
    }

    fn answer(&mut self, _now: Instant) -> Option<(u64, LeaseAnswer)> {
        let now = self.clock.world();
        self.service.borrow_mut().answer(now, self)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let service = self.service.borrow();
        let own = service.answers.iter().filter(|one| one.line == self.line);
        own.map(|one| self.clock.local_from(one.arrives)).min()
    }
}
