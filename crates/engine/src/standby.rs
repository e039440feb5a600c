//! One of several event managers: it is active while it holds the lease, and refuses all callers while it stands by.

use super::manager::ManagerDrive;
use super::{Drive, Refusal};
use ropewalk_flow::control::RunCommand;
use ropewalk_flow::manager::{LeaseAnswer, LeaseConfig, Standby, StandbyAction};
use ropewalk_io::Dispatcher;
use ropewalk_terms::{Epoch, EventKey, Instant, RunNumber};
use std::os::fd::BorrowedFd;

/// Access to a coordination service. The service may be late, and may never answer.
pub trait Coordination {
    /// Requests the lease, or an extension of the one in the epoch `renews`.
    fn ask(&mut self, now: Instant, question: u64, renews: Option<Epoch>);

    /// Returns the next answer with the number of its question.
    fn answer(&mut self, now: Instant) -> Option<(u64, LeaseAnswer)>;

    /// Returns when the next answer comes, if that is known.
    fn next_deadline(&self) -> Option<Instant>;
}

/// The run of event managers with a lease.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CoordinatedRun {
    /// Run number.
    pub run: RunNumber,
    /// Key of the first event.
    pub first: EventKey,
    /// Key of the last event, if it is known from the start.
    pub last: Option<EventKey>,
}

/// An event manager that shares its role with others; see the module documentation.
pub struct StandbyDrive<P: Dispatcher, C: Coordination> {
    drive: ManagerDrive<P>,
    standby: Standby,
    coordination: C,
    run: CoordinatedRun,
}

impl<P: Dispatcher, C: Coordination> StandbyDrive<P, C> {
    /// Creates a manager that stands by until it is granted the lease. The service's first epoch begins the run, later
    /// ones take it over.
    pub fn new(mut drive: ManagerDrive<P>, lease: LeaseConfig, coordination: C, run: CoordinatedRun) -> Self {
        drive.stand_by();
        Self { drive, standby: Standby::new(lease), coordination, run }
    }

    /// Returns the epoch in which it is active now.
    pub fn epoch(&self, now: Instant) -> Option<Epoch> {
        self.standby.epoch(now)
    }

    /// Returns the epoch in which it led the run in its last turn, for checkers. `None` once the run has ended.
    pub fn leads(&self) -> Option<Epoch> {
        self.drive.speaks().filter(|_| !self.drive.phase().is_final())
    }

    /// Returns its access to the service, for checkers.
    pub const fn coordination(&self) -> &C {
        &self.coordination
    }

    /// Returns the manager's drive, for tests and checkers.
    pub const fn manager(&self) -> &ManagerDrive<P> {
        &self.drive
    }

    /// Returns the manager's drive, mutably, for commands.
    pub const fn manager_mut(&mut self) -> &mut ManagerDrive<P> {
        &mut self.drive
    }

    fn coordinate(&mut self, now: Instant) {
        while let Some((question, answer)) = self.coordination.answer(now) {
            self.standby.answered(now, question, answer);
        }
        if let Some(epoch) = self.drive.superseded_by() {
            self.standby.superseded(epoch);
        }
        while let Some(action) = self.standby.poll(now) {
            match action {
                StandbyAction::Ask { question, renews } => self.coordination.ask(now, question, renews),
                // Its account is complete. Another event manager would find no node that could report it again.
                StandbyAction::StepDown | StandbyAction::BecomeActive { .. } if self.drive.phase().is_final() => {}
                StandbyAction::StepDown => self.drive.stand_by(),
                StandbyAction::BecomeActive { epoch } => {
                    let CoordinatedRun { run, first, last } = self.run;
                    self.drive.become_active(epoch);
                    let is_first = epoch == Epoch(1);
                    let begin = RunCommand::Start { run, first, last };
                    let go_on = RunCommand::TakeOver { run, first, last };
                    self.drive.command(now, if is_first { begin } else { go_on });
                }
            }
        }
    }
}

impl<P: Dispatcher, C: Coordination> Drive for StandbyDrive<P, C> {
    fn turn(&mut self, now: Instant) -> usize {
        // After a suspension it must learn of a lost lease before it sends anything.
        self.coordinate(now);
        self.drive.turn(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let own = [Some(self.standby.next_deadline()), self.coordination.next_deadline(), self.drive.next_deadline()];
        own.into_iter().flatten().min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.drive.prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.drive.wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        // A superseded one stands by for the next time.
        self.drive.refusal().is_none() && self.drive.is_done()
    }

    fn refusal(&self) -> Option<&Refusal> {
        None
    }
}
