//! Active or standing by: which of several event managers may speak, by a lease from a coordination service.
//!
//! ```text
//!              Granted(epoch)                     the lease ends by this clock, Denied, superseded
//!  standing by ---------------> active in epoch ----------------------------------------------> standing by
//!       ^  |                        ^   |
//!       |  +-- Ask, again and again-+   +-- Ask for more, Granted(same epoch): it lasts longer
//! ```
//! The service grants the lease to one event manager at a time, with a higher epoch for each new holder, and to no
//! other for [`LeaseConfig::term`] after a grant. It may be late and lose answers. Clocks are not compared: a lease
//! counts from the moment at which it was *requested*, by the clock of the requester, and ends early by a margin and by
//! the possible drift of two clocks. An event manager that sleeps beyond the end finds the lease over when it wakes up;
//! nodes that obey a higher epoch refuse what it sent before it noticed.

use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Epoch, Instant};
use std::collections::VecDeque;

/// Settings of a lease, the same for all event managers of a run and the service.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LeaseConfig {
    /// Time after a grant for which the service grants the lease to no other event manager.
    pub term: Duration,
    /// Time before the end of the lease at which an active event manager stops sending.
    pub margin: Duration,
    /// Maximum drift of any clock that counts the lease, in millionths.
    pub drift_ppm: u32,
    /// Interval of lease requests.
    pub interval: Duration,
}

/// A lease that cannot be held.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeaseConfigError {
    /// The lease ends before an answer can arrive.
    #[error("a lease of {term:?} lasts only {lasts:?}; let it last longer than two intervals of asking, {interval:?}")]
    Short {
        /// The configured term.
        term: Duration,
        /// What remains of it after drift and margin.
        lasts: Duration,
        /// The configured interval.
        interval: Duration,
    },
}

impl LeaseConfig {
    /// Returns how long a lease is valid from its request. Both clocks may be wrong, in opposite directions.
    pub fn lasts(&self) -> Duration {
        let drift = self.term.as_nanos() * 2 * u128::from(self.drift_ppm) / 1_000_000;
        let drift = Duration::from_nanos(u64::try_from(drift).unwrap_or(u64::MAX));
        self.term.saturating_sub(drift).saturating_sub(self.margin)
    }

    /// Checks that the lease can be held.
    ///
    /// # Errors
    /// If it ends before it can be requested again.
    pub fn check(&self) -> Result<(), LeaseConfigError> {
        let (term, lasts, interval) = (self.term, self.lasts(), self.interval);
        if lasts > 2 * interval { Ok(()) } else { Err(LeaseConfigError::Short { term, lasts, interval }) }
    }
}

/// An answer of the service.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LeaseAnswer {
    /// The lease is granted in this epoch.
    Granted(Epoch),
    /// Another event manager has it.
    Denied,
}

/// An action of an event manager.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StandbyAction {
    /// Request the lease, or its extension. The answer contains the number of the request.
    Ask {
        /// Number of the request.
        question: u64,
        /// The epoch of the lease to extend; `None` if it has ended. Then the service begins a new epoch even for the
        /// present holder; otherwise it would renew a lease that is not used.
        renews: Option<Epoch>,
    },
    /// Become active in this epoch: take over the run, or start one.
    BecomeActive {
        /// The epoch.
        epoch: Epoch,
    },
    /// Stop sending, and forget the run.
    StepDown,
}

#[derive(Copy, Clone, Debug)]
struct Lease {
    epoch: Epoch,
    until: Instant,
}

/// Decides whether one of several event managers is active.
#[derive(Debug)]
pub struct Standby {
    config: LeaseConfig,
    lease: Option<Lease>,
    /// The pending request and its time.
    asked: Option<(u64, Instant)>,
    questions: u64,
    next_question: Instant,
    /// Leases in this epoch or a lower one are refused.
    over: Epoch,
    actions: VecDeque<StandbyAction>,
}

impl Standby {
    /// Creates a standby that requests the lease next.
    pub fn new(config: LeaseConfig) -> Self {
        Self {
            config,
            lease: None,
            asked: None,
            questions: 0,
            next_question: Instant::ZERO,
            over: Epoch(0),
            actions: VecDeque::with_capacity(4),
        }
    }

    /// Handles an answer of the service. An answer to an earlier request is ignored, because the time of that request
    /// is no longer known.
    pub fn answered(&mut self, now: Instant, question: u64, answer: LeaseAnswer) {
        let Some((_, asked)) = self.asked.take_if(|(number, _)| *number == question) else { return };
        self.look(now);
        match answer {
            LeaseAnswer::Denied => self.end(),
            LeaseAnswer::Granted(epoch) => self.granted(now, epoch, asked.after(self.config.lasts())),
        }
    }

    fn granted(&mut self, now: Instant, epoch: Epoch, until: Instant) {
        match &mut self.lease {
            Some(lease) if lease.epoch == epoch => lease.until = lease.until.max(until),
            // A run of another epoch may have continued elsewhere in the meantime.
            _ => {
                self.end();
                if epoch > self.over && until > now {
                    self.lease = Some(Lease { epoch, until });
                    self.actions.push_back(StandbyAction::BecomeActive { epoch });
                }
            }
        }
    }

    /// Records that a node obeys an event manager of this epoch.
    pub fn superseded(&mut self, epoch: Epoch) {
        if self.lease.is_some_and(|lease| lease.epoch < epoch) {
            self.end();
        }
        self.over = self.over.max(Epoch(epoch.0.saturating_sub(1)));
    }

    /// Returns the next action; `None` until the next input or [`Standby::next_deadline`].
    pub fn poll(&mut self, now: Instant) -> Option<StandbyAction> {
        self.look(now);
        if self.actions.is_empty() && now >= self.next_question {
            self.questions += 1;
            self.asked = Some((self.questions, now));
            self.next_question = now.after(self.config.interval);
            let renews = self.lease.map(|lease| lease.epoch);
            self.actions.push_back(StandbyAction::Ask { question: self.questions, renews });
        }
        self.actions.pop_front()
    }

    /// Returns the epoch in which this event manager may send now. Must be called directly before sending.
    pub fn epoch(&self, now: Instant) -> Option<Epoch> {
        self.lease.filter(|lease| now < lease.until).map(|lease| lease.epoch)
    }

    /// When [`Standby::poll`] must be called without further input.
    pub fn next_deadline(&self) -> Instant {
        self.lease.map_or(self.next_question, |lease| lease.until.min(self.next_question))
    }

    /// Ends the lease if it is over by this clock.
    fn look(&mut self, now: Instant) {
        if self.lease.is_some_and(|lease| now >= lease.until) && !is_planted(Flaw::LeaseOutlived) {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.over = self.over.max(lease.epoch);
            // An event manager that slept before it heard that it is active never was.
            let unheard = StandbyAction::BecomeActive { epoch: lease.epoch };
            if self.actions.back() == Some(&unheard) {
                self.actions.pop_back();
            } else {
                self.actions.push_back(StandbyAction::StepDown);
            }
        }
    }
}
