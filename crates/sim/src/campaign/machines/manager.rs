//! The event manager, alone or one of two: how it is wired, and what must hold of it.

use super::super::broken::{Broken, Checker};
use super::super::coordination::Line;
use super::super::endpoints::{Endpoints, Surroundings};
use super::super::node::Machine;
use super::super::place::Place;
use super::super::scenario::{End, Managers, Scenario};
use super::{FINGERPRINT, Site, identity};
use ropewalk_flow::manager::{ManagerConfig, ManagerState};
use ropewalk_flow::messages::LumisectionEnd;
use ropewalk_node::drive::{
    CoordinatedRun, Drive, Identity, ManagerDrive, ManagerDriveConfig, Refusal, StandbyDrive, Standing,
};
use ropewalk_terms::{Epoch, EventKey, Incarnation, Instant, NodeId, PoolAccount, RunNumber};
use std::os::fd::BorrowedFd;

/// The drive on simulated endpoints.
pub(in super::super) enum ManagerMachine {
    /// Nobody asks whether it may speak.
    Free(Box<ManagerDrive<Endpoints>>),
    /// It speaks while it has the lease.
    Contender(Box<StandbyDrive<Endpoints, Line>>),
}

/// A life of the event manager with this index; one without a lease speaks in `epoch`.
pub(in super::super) fn manager(
    site: &Site<'_>,
    around: &Surroundings,
    index: u16,
    epoch: Epoch,
) -> (ManagerMachine, Vec<u32>) {
    let scenario = site.scenario;
    let Scenario { readouts, builders, assign, batch, time_outs, rooms, .. } = *scenario;
    let peers = site.endpoints("manager receives", 4 << 10, rooms.peer_blocks, around);
    let hosts = vec![peers.host()];
    let own = identity(NodeId::MANAGER, around);
    let config = ManagerDriveConfig {
        manager: ManagerConfig {
            capacity: rooms.table,
            policy: assign,
            batch,
            event_timeout: time_outs.manager,
            drain_timeout: time_outs.drain,
            trigger_readout: scenario.trigger.map(|source| scenario.readout_of(source.into())),
            lumisection: scenario.lumisection,
            epoch,
            ..ManagerConfig::new(readouts, builders)
        },
        // Two that are started at one moment are two all the same.
        identity: Identity { epoch, incarnation: Incarnation(own.incarnation.0 + u64::from(index)), ..own },
        fingerprint: FINGERPRINT,
        address: Place::Manager(index).to_string(),
        level: scenario.level,
    };
    let drive = ManagerDrive::new(config, peers, site.staging("manager")).expect("the address is free");
    let machine = match (scenario.managers, site.coordination) {
        (Managers::Standby(lease), Some(service)) => {
            let line = Line::new(service, index, &around.clock);
            ManagerMachine::Contender(Box::new(StandbyDrive::new(drive, lease, line, run_of(scenario))))
        }
        _ => ManagerMachine::Free(Box::new(drive)),
    };
    (machine, hosts)
}

/// The run of a scenario.
pub(in super::super) fn run_of(scenario: &Scenario) -> CoordinatedRun {
    let last = (scenario.end == End::Last).then_some(scenario.key_of(scenario.events));
    CoordinatedRun { run: RunNumber(1), first: EventKey::new(0, 1), last }
}

impl ManagerMachine {
    /// The drive itself.
    pub(in super::super) const fn drive(&self) -> &ManagerDrive<Endpoints> {
        match self {
            Self::Free(drive) => drive,
            Self::Contender(drive) => drive.manager(),
        }
    }

    fn drive_mut(&mut self) -> &mut ManagerDrive<Endpoints> {
        match self {
            Self::Free(drive) => drive,
            Self::Contender(drive) => drive.manager_mut(),
        }
    }

    /// Somebody gives it a command.
    pub(in super::super) fn command(&mut self, now: Instant, command: ropewalk_flow::control::RunCommand) {
        self.drive_mut().command(now, command);
    }

    /// The run as it knows it.
    pub(in super::super) fn standing(&mut self) -> &Standing {
        self.drive_mut().standing()
    }

    /// The lumisections that it closed, in order, each told once.
    pub(in super::super) fn ended_lumisections(&mut self) -> Vec<LumisectionEnd> {
        std::iter::from_fn(|| self.drive_mut().next_ended_lumisection()).collect()
    }

    /// The epoch in which it spoke in its last turn.
    pub(in super::super) fn speaks(&self) -> Option<Epoch> {
        self.drive().speaks()
    }

    /// Whether it is the one that speaks now; one that has slept may think so in vain.
    pub(in super::super) fn is_in_charge(&self) -> bool {
        match self {
            Self::Free(drive) => drive.speaks().is_some(),
            Self::Contender(drive) => drive.leads().is_some() && drive.coordination().held() == drive.leads(),
        }
    }

    fn turned(&self) -> &dyn Drive {
        match self {
            Self::Free(drive) => drive.as_ref(),
            Self::Contender(drive) => drive.as_ref(),
        }
    }

    fn turned_mut(&mut self) -> &mut dyn Drive {
        match self {
            Self::Free(drive) => drive.as_mut(),
            Self::Contender(drive) => drive.as_mut(),
        }
    }
}

impl Drive for ManagerMachine {
    fn turn(&mut self, now: Instant) -> usize {
        self.turned_mut().turn(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.turned().next_deadline()
    }

    fn prepare_wait(&mut self) -> bool {
        self.turned_mut().prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.turned().wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.turned().is_done()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.turned().refusal()
    }
}

impl Machine for ManagerMachine {
    fn pools(&mut self) -> Vec<PoolAccount> {
        self.drive_mut().pools()
    }

    fn check(&self, scenario: &Scenario) -> Result<(), Broken> {
        if let Self::Contender(drive) = self
            && let Some(epoch) = drive.leads()
        {
            let held = drive.coordination().held();
            Broken::unless(held == Some(epoch), Checker::Epochs, || {
                format!("it speaks in epoch {epoch}, and the lease that it has is {held:?}")
            })?;
        }
        let machine = self.drive().machine();
        let account = machine.account();
        Broken::unless(account.assigned == account.accounted(), Checker::Ledger, || {
            format!("events assigned are not those ended and in flight: {account:?}")
        })?;
        let is_open =
            matches!(machine.state(), ManagerState::Running | ManagerState::Stopping | ManagerState::Draining);
        let (oldest, closed_below) = machine.oldest();
        Broken::unless(!is_open || closed_below <= oldest, Checker::Keys, || {
            format!("a lumisection is over up to {closed_below}, and {oldest} is not released")
        })?;
        for builder in 0..scenario.builders {
            let (events, _) = machine.free_credit(builder);
            Broken::unless(events <= u64::from(scenario.rooms.slots), Checker::Credits, || {
                format!("bu{builder} can be given {events} events and has {} slots", scenario.rooms.slots)
            })?;
        }
        Broken::unless(account.in_flight <= u64::from(scenario.rooms.table), Checker::Bounds, || {
            format!("{} events are in flight", account.in_flight)
        })
    }
}
