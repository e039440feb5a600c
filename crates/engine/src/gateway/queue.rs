//! One input queue of a gateway, run to completion: both halves take turns on one thread.

use super::GatewayDriveConfig;
use super::link::Link;
use super::receiving::{Receiving, ReceivingParts};
use super::report::{GatewayReport, Notice, Telling};
use super::sending::{Sending, SendingParts};
use crate::Drive;
use crate::pages::NodePage;
use ropewalk_flow::gateway as machine;
use ropewalk_flow::gateway::{Gateway, GatewayConfigError};
use ropewalk_io::packet::{MemoryInUse, Receiver, Sender};
use ropewalk_terms::Instant;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Phase of its end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Running,
    /// Every flow has ended. Until this time, packets may be in flight.
    Draining(Instant),
    /// No packets are accepted. Queued data is sent if its receiver takes it until this time.
    Closing(Instant),
    Over,
}

impl Phase {
    /// Returns whether packets are accepted.
    pub(super) const fn receives(self) -> bool {
        matches!(self, Self::Running | Self::Draining(_))
    }
}

/// A gateway's input queue; see the picture of the parent module.
pub struct GatewayDrive<R: Receiver, L: Link, S: Sender> {
    receiving: Receiving<R, S>,
    sending: Sending<L, S>,
    drain: Duration,
    phase: Phase,
    notice: Notice<GatewayReport>,
    telling: Telling,
    renew_at: Instant,
}

impl<R: Receiver, L: Link, S: Sender> GatewayDrive<R, L, S> {
    /// Creates a gateway from the parts for receiving and the parts for communication with nodes.
    ///
    /// # Errors
    /// If the configuration of the state machine is invalid.
    pub fn new(
        config: GatewayDriveConfig,
        receiving: ReceivingParts<R, S>,
        sending: SendingParts<L, S>,
    ) -> Result<Self, GatewayConfigError> {
        let (receiver, sender) = Gateway::new(&config.machine)?.split();
        let (drain, notice, telling) = (config.drain, Notice::of_gateway(&config), Telling::new(&config));
        let config = Arc::new(config);
        let receiving = Receiving::new(Arc::clone(&config), receiver, receiving);
        let sending = Sending::new(config, sender, sending);
        Ok(Self { receiving, sending, drain, phase: Phase::Running, notice, telling, renew_at: Instant::ZERO })
    }

    /// Returns its report.
    pub fn notice(&self) -> Notice<GatewayReport> {
        self.notice.clone()
    }

    /// Returns the state machine's halves, for observers.
    pub const fn machines(&self) -> (&machine::Receiver, &machine::Sender) {
        (self.receiving.machine(), self.sending.machine())
    }

    /// Returns the use of each input's memory, for observers.
    pub fn memory_in_use(&mut self) -> impl Iterator<Item = MemoryInUse> {
        self.receiving.memory_in_use()
    }

    /// Begins the run: enters its directory.
    pub fn begin(&mut self, now: Instant) {
        self.sending.begin(now);
    }

    /// Passes finished sets to the sending half, and empty ones back.
    fn hand_over(&mut self, now: Instant) {
        let Self { receiving, sending, .. } = self;
        // Empty ones first: a set that is closed now may need one.
        core::iter::from_fn(|| sending.take_empty()).for_each(|set| receiving.give_back(set));
        receiving.on_time(sending.has_nodes(), now);
        while let Some(set) = receiving.take_set() {
            sending.on_set(set, now);
        }
        core::iter::from_fn(|| sending.take_empty()).for_each(|set| receiving.give_back(set));
    }

    /// Advances the end of the run: flows stop, open sets drain, files close.
    fn end(&mut self, now: Instant) {
        match self.phase {
            Phase::Running => {
                if self.receiving.have_stopped(now) {
                    self.sending.drain(now);
                    self.phase = Phase::Draining(now.after(self.drain));
                }
            }
            Phase::Draining(until) => {
                if now >= until || (self.receiving.is_empty() && self.receiving.is_quiet(now)) {
                    self.receiving.close(now);
                    self.phase = Phase::Closing(now.after(self.drain));
                }
            }
            Phase::Closing(until) => {
                let is_told = self.receiving.has_told() || now >= until;
                if self.receiving.is_empty() && self.sending.finish(until, now) && is_told {
                    self.phase = Phase::Over;
                    self.renew(now);
                }
            }
            Phase::Over => {}
        }
    }

    fn renew(&mut self, now: Instant) {
        self.renew_at = self.receiving.renews(now);
        let Self { receiving, sending, notice, phase, .. } = self;
        let is_over = *phase == Phase::Over;
        notice.renew(|report| {
            receiving.report(report, is_over, now);
            sending.report(report);
            (report.is_over, report.at) = (is_over, Some(now));
        });
    }
}

impl<R: Receiver, L: Link, S: Sender> Drive for GatewayDrive<R, L, S> {
    fn turn(&mut self, now: Instant) -> usize {
        let mut work = if self.phase.receives() { self.receiving.receive(now) } else { 0 };
        work += self.sending.hear(now);
        self.sending.on_time(now);
        self.hand_over(now);
        work += self.sending.push(now) + self.receiving.tell(now) + self.sending.tell(now) + self.sending.store(now);
        work += self.sending.flush(now) + self.receiving.flush(now);
        self.end(now);
        if now >= self.renew_at {
            self.renew(now);
        }
        work
    }

    fn next_deadline(&self) -> Option<Instant> {
        Some(self.receiving.next_deadline().min(self.sending.next_deadline()).min(self.renew_at))
    }

    fn prepare_wait(&mut self) -> bool {
        // Both are called in any case: each arms its own wake-up.
        let (receiving, sending) = (self.receiving.prepare_wait(), self.sending.prepare_wait());
        receiving && sending
    }

    fn wait_descriptors<'a>(&'a self, into: &mut Vec<BorrowedFd<'a>>) {
        self.receiving.wait_descriptors(into);
        self.sending.wait_descriptors(into);
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Over
    }

    fn tell(&self, _now: Instant, page: &mut NodePage) {
        self.telling.stands(self.phase, page);
        self.notice.look(|report| self.telling.tell(report, page));
    }
}
