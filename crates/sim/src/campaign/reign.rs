//! Event managers come and go: who speaks, who takes over, who is told to end the run, and who has its account.

use super::coordination::{Service, SharedService};
use super::machines::{ManagerMachine, manager, run_of};
use super::node::{Health, Member, Node};
use super::obedience::Obedience;
use super::place::Place;
use super::scenario::{End, Managers, Scenario};
use super::world::World;
use ropewalk_flow::control::RunCommand;
use ropewalk_flow::manager::ManagerState;
use ropewalk_node::drive::{CoordinatedRun, Drive};
use ropewalk_terms::{Epoch, Instant};
use std::collections::BTreeMap;
use std::time::Duration;

/// So long after the last fault and the last event somebody wonders why the run does not end.
const SURPRISE: Duration = Duration::from_secs(15);
/// Clocks may be so much too fast: who waits by them gives up earlier.
const FASTEST: f64 = 0.9;

/// One event manager in one epoch: its index, its life, the epoch.
type Term = (u16, u32, Epoch);

/// What is known of event managers.
#[derive(Debug)]
pub(super) struct Reign {
    /// Without a lease: who was started last, and in which epoch.
    present: u16,
    epoch: Epoch,
    pub(super) service: Option<SharedService>,
    pub(super) obedience: Obedience,
    /// Who was told to end the run.
    commanded: Option<Term>,
    /// Who ended it, and when.
    pub(super) ended: Option<(u16, Instant)>,
    /// How often events were assigned again in each epoch.
    reassigned: BTreeMap<Epoch, u64>,
    /// From when to when each led the run.
    led: BTreeMap<Term, (Instant, Instant)>,
    /// Those that took over.
    recoveries: BTreeMap<Epoch, Recovery>,
}

/// An event manager takes the run over.
#[derive(Copy, Clone, Debug)]
pub(super) struct Recovery {
    /// Since when it asked everybody.
    from: Instant,
    /// When it went on with what it had heard.
    pub(super) until: Option<Instant>,
}

impl Recovery {
    /// Whether it may have gone on without having heard everybody.
    pub(super) fn is_blind(&self, scenario: &Scenario) -> bool {
        let patience = scenario.time_outs.manager.mul_f64(FASTEST);
        self.until.is_none_or(|until| until.since(self.from) >= patience)
    }
}

impl Reign {
    /// Nobody has spoken yet.
    pub(super) fn new(scenario: &Scenario) -> Self {
        let service = match scenario.managers {
            Managers::Standby(lease) => Some(Service::new(scenario, lease.term)),
            Managers::Alone | Managers::Succession => None,
        };
        Self {
            present: 0,
            epoch: Epoch(1),
            service,
            obedience: Obedience::default(),
            commanded: None,
            ended: None,
            reassigned: BTreeMap::new(),
            led: BTreeMap::new(),
            recoveries: BTreeMap::new(),
        }
    }

    /// How often an event was assigned again in epochs up to this one.
    pub(super) fn reassigned_until(&self, epoch: Epoch) -> u64 {
        self.reassigned.range(..=epoch).map(|(_, &count)| count).sum()
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

    /// Nobody had the run: somebody begins it, where that is not a matter of leases.
    pub(super) fn command_the_start(&mut self) {
        let CoordinatedRun { run, first, last } = run_of(&self.scenario);
        if self.reign.service.is_none()
            && let Some(manager) = &mut self.managers[0].machine
        {
            manager.command(Instant::ZERO, RunCommand::Start { run, first, last });
        }
    }

    /// Somebody starts an event manager that takes the run over.
    pub(super) fn take_over(&mut self, index: u16) {
        (self.reign.present, self.reign.epoch) = (index, Epoch(self.reign.epoch.0 + 1));
        // One that was overtaken before and has ended still has the address.
        self.member(Place::Manager(index)).kill();
        self.start_manager(index);
        let CoordinatedRun { run, first, last } = run_of(&self.scenario);
        let node = &mut self.managers[usize::from(index)];
        let now = node.around.clock.now();
        if let Some(manager) = &mut node.machine {
            manager.command(now, RunCommand::TakeOver { run, first, last });
        }
    }

    /// The event manager that was started last, where none has a lease.
    pub(super) fn present_manager(&self) -> Place {
        Place::Manager(self.reign.present)
    }

    /// The place where a successor can be started: nobody lives there.
    pub(super) fn free_manager(&self) -> Option<u16> {
        let is_free = |node: &Node<ManagerMachine>| node.health == Health::Down || node.is_done();
        let other = 1 - self.reign.present;
        self.managers.get(usize::from(other)).is_some_and(is_free).then_some(other)
    }

    /// Who speaks for the run: whoever ended it, or else has the lease, or else was started last.
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

    /// The machine of whoever speaks for the run.
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

    /// What ends the run if it does not end by itself, and when: somebody stops a run whose last event got lost on its
    /// way from every source, since nobody else can know that it will not come.
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

    /// Tells whoever speaks to end the run when it is time; a successor may not know that its predecessor was told.
    pub(super) fn command_the_end(&mut self) {
        let (time, command) = self.end_command();
        if self.now() < Instant::ZERO.after(time) || self.reign.ended.is_some() {
            return;
        }
        let Some((index, term)) = self.speaker().and_then(|index| Some((index, self.term(index)?))) else { return };
        let node = &mut self.managers[usize::from(index)];
        let now = node.around.clock.now();
        let Some(manager) = &mut node.machine else { return };
        // Who has just come knows of nothing yet; to end that by force would be to leave everybody alone.
        let state = manager.drive().machine().state();
        let is_new = term.2 > Epoch(1) && matches!(state, ManagerState::Idle | ManagerState::Recovering);
        if self.reign.commanded == Some(term) || is_new && command == RunCommand::ForceStop {
            return;
        }
        self.reign.commanded = Some(term);
        manager.command(now, command);
        node.set_health(node.health);
    }

    /// Takes note of what event managers have done.
    pub(super) fn look_at_managers(&mut self) {
        let now = self.now();
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
