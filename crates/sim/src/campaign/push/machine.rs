//! A gateway as the simulator turns it: one drive, or the halves of one that sleep and are woken by each other.

use super::lines::Lines;
use super::wires::{Inlet, Outlet};
use ropewalk_flow::gateway::{Receiver, Sender};
use ropewalk_io::packet::MemoryInUse;
use ropewalk_node::drive::Drive;
use ropewalk_node::drive::gateway::{
    Connections, DecisionReaders, GatewayDrive, GatewayReport, Link, Notice, ReceivingDrive, SendingDrive,
};
use ropewalk_terms::Instant;
use std::os::fd::BorrowedFd;

/// What gateways and nodes reach each other by: datagrams or connections.
pub(super) type FarmLink = Box<dyn Link>;
/// Both halves in one.
pub(super) type WholeDrive = GatewayDrive<Inlet, FarmLink, Outlet>;
/// The half that sends.
pub(super) type SendingMachine = Half<SendingDrive<FarmLink, Outlet>>;
/// Who reads a flow's decisions.
pub(super) type Readers = Option<Box<dyn DecisionReaders + Send>>;

/// Readers behind connections.
pub(super) fn readers(connections: Connections<Lines>) -> Readers {
    Some(Box::new(connections))
}

/// A half that says whether something has woken it.
pub(super) trait Woken: Drive {
    /// Whether something would have ended its thread's sleep.
    fn is_woken(&mut self) -> bool;
}

impl Woken for ReceivingDrive<Inlet, Outlet> {
    fn is_woken(&mut self) -> bool {
        Self::is_woken(self)
    }
}

impl Woken for SendingDrive<FarmLink, Outlet> {
    fn is_woken(&mut self) -> bool {
        Self::is_woken(self)
    }
}

/// A half of a gateway: once it sleeps only what wakes its thread gives it a turn.
pub(super) struct Half<D> {
    pub(super) drive: D,
    is_asleep: bool,
}

impl<D: Woken> Half<D> {
    pub(super) const fn new(drive: D) -> Self {
        Self { drive, is_asleep: false }
    }

    /// Its thread would sleep.
    fn is_asleep(&mut self) -> bool {
        self.is_asleep && !self.drive.is_woken()
    }

    /// Asleep, though there is something for it to do.
    pub(super) fn sleeps_over_work(&mut self) -> bool {
        self.is_asleep && !self.drive.is_done() && !self.drive.is_woken() && !self.drive.prepare_wait()
    }
}

impl<D: Woken> Drive for Half<D> {
    fn turn(&mut self, now: Instant) -> usize {
        self.is_asleep = false;
        self.drive.turn(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.drive.next_deadline()
    }

    fn prepare_wait(&mut self) -> bool {
        if self.is_asleep {
            return !self.drive.is_woken();
        }
        self.is_asleep = self.drive.prepare_wait();
        self.is_asleep
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.drive.wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.drive.is_done()
    }
}

/// What takes packets and speaks for the gateway.
pub(super) enum GatewayMachine {
    /// All of it.
    Whole(Box<WholeDrive>),
    /// The half that receives; the other one has its own turns.
    Receiving(Box<Half<ReceivingDrive<Inlet, Outlet>>>),
}

impl GatewayMachine {
    /// The machine's half that receives.
    pub(super) fn receiver(&self) -> &Receiver {
        match self {
            Self::Whole(drive) => drive.machines().0,
            Self::Receiving(half) => half.drive.machine(),
        }
    }

    /// The machine's half that sends, if it is here.
    pub(super) fn sender(&self) -> Option<&Sender> {
        match self {
            Self::Whole(drive) => Some(drive.machines().1),
            Self::Receiving(_) => None,
        }
    }

    /// What the gateway tells of itself.
    pub(super) fn notice(&self) -> Notice<GatewayReport> {
        match self {
            Self::Whole(drive) => drive.notice(),
            Self::Receiving(half) => half.drive.notice(),
        }
    }

    /// How much of each input's memory is held.
    pub(super) fn memory_in_use(&mut self) -> Vec<MemoryInUse> {
        match self {
            Self::Whole(drive) => drive.memory_in_use().collect(),
            Self::Receiving(half) => half.drive.memory_in_use().collect(),
        }
    }

    /// Asleep, though there is something for it to do.
    pub(super) fn sleeps_over_work(&mut self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Receiving(half) => half.sleeps_over_work(),
        }
    }

    /// Its thread would sleep.
    pub(super) fn is_asleep(&mut self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Receiving(half) => half.is_asleep(),
        }
    }

    fn drive(&self) -> &dyn Drive {
        match self {
            Self::Whole(drive) => &**drive,
            Self::Receiving(half) => &**half,
        }
    }

    fn drive_mut(&mut self) -> &mut dyn Drive {
        match self {
            Self::Whole(drive) => &mut **drive,
            Self::Receiving(half) => &mut **half,
        }
    }
}

impl Drive for GatewayMachine {
    fn turn(&mut self, now: Instant) -> usize {
        self.drive_mut().turn(now)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.drive().next_deadline()
    }

    fn prepare_wait(&mut self) -> bool {
        self.drive_mut().prepare_wait()
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.drive().wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.drive().is_done()
    }
}
