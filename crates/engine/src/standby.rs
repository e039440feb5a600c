//! One of several event managers: it is active while it has the lease, and refuses all callers while it stands by.

use super::manager::ManagerDrive;
use super::{Drive, Refusal};
use ropewalk_flow::control::RunCommand;
use ropewalk_flow::manager::{LeaseAnswer, LeaseConfig, Standby, StandbyAction};
use ropewalk_io::Dispatcher;
use ropewalk_terms::{Epoch, EventKey, Instant, RunNumber};
use std::os::fd::BorrowedFd;

/// How a coordination service is reached. It may be late, and it may never answer.
pub trait Coordination {
    /// Asks for the lease, or for more of the one in the epoch `renews`.
    fn ask(&mut self, now: Instant, question: u64, renews: Option<Epoch>);

    /// The next answer that has come: to which question, and what.
    fn answer(&mut self, now: Instant) -> Option<(u64, LeaseAnswer)>;

    /// When the next answer comes, where that is known.
    fn next_deadline(&self) -> Option<Instant>;
}

/// The run that event managers with a lease look after.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CoordinatedRun {
    /// Its number.
    pub run: RunNumber,
    /// Its first key.
    pub first: EventKey,
    /// Its last key, where it is known from the start.
    pub last: Option<EventKey>,
}

/// An event manager with others beside it: see the module's text.
pub struct StandbyDrive<P: Dispatcher, C: Coordination> {
    drive: ManagerDrive<P>,
    standby: Standby,
    coordination: C,
    run: CoordinatedRun,
}

impl<P: Dispatcher, C: Coordination> StandbyDrive<P, C> {
    /// Stands by until it is granted the lease. The service's first epoch begins the run, later ones take it over.
    pub fn new(mut drive: ManagerDrive<P>, lease: LeaseConfig, coordination: C, run: CoordinatedRun) -> Self {
        drive.stand_by();
        Self { drive, standby: Standby::new(lease), coordination, run }
    }

    /// The epoch in which it speaks now.
    pub fn epoch(&self, now: Instant) -> Option<Epoch> {
        self.standby.epoch(now)
    }

    /// The epoch in which it led the run in its last turn, for checkers. One that has ended it only takes its leave.
    pub fn leads(&self) -> Option<Epoch> {
        self.drive.speaks().filter(|_| !self.drive.phase().is_final())
    }

    /// Its way to the service, for checkers.
    pub const fn coordination(&self) -> &C {
        &self.coordination
    }

    /// What it drives, for tests and checkers.
    pub const fn manager(&self) -> &ManagerDrive<P> {
        &self.drive
    }

    /// The same, to give it commands.
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
                // Its account is complete. Another event manager would find no node that could repeat it.
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
        // After a sleep it must learn of a lost lease before it sends anything.
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
        // One that was replaced stands by for the next time.
        self.drive.refusal().is_none() && self.drive.is_done()
    }

    fn refusal(&self) -> Option<&Refusal> {
        None
    }
}
