//! Active or standing by: which of several event managers may speak, by a lease from a coordination service.
//!
//! ```text
//!              Granted(epoch)                     the lease ends by this clock, Denied, superseded
//!  standing by ---------------> active in epoch ----------------------------------------------> standing by
//!       ^  |                        ^   |
//!       |  +-- Ask, again and again-+   +-- Ask for more, Granted(same epoch): it lasts longer
//! ```
//! The service grants the lease to one at a time, with a higher epoch for each new holder, and to no other for
//! [`LeaseConfig::term`] after it granted. It may be late and lose answers. Clocks are not compared: a lease is counted
//! from the moment at which it was *asked* for, by the asker's own clock, and ends early by what two clocks may drift
//! apart meanwhile and by a margin. An event manager that sleeps through the end finds the lease over when it wakes up;
//! what it said before it noticed is refused by nodes that obey a higher epoch.

use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Epoch, Instant};
use std::collections::VecDeque;

/// How a lease is counted. All event managers of a run and the service have the same.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LeaseConfig {
    /// How long after a grant the service grants the lease to no other event manager.
    pub term: Duration,
    /// How long before its end an active event manager stops to speak.
    pub margin: Duration,
    /// How far a clock may be wrong, in millionths, of all that count the lease.
    pub drift_ppm: u32,
    /// How often the lease is asked for.
    pub interval: Duration,
}

/// A lease that could not be held.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeaseConfigError {
    /// An answer must have the time to come before the lease is over.
    #[error("a lease of {term:?} lasts only {lasts:?}; let it last longer than two intervals of asking, {interval:?}")]
    Short {
        /// The configured term.
        term: Duration,
        /// What is left of it without drift and margin.
        lasts: Duration,
        /// The configured interval.
        interval: Duration,
    },
}

impl LeaseConfig {
    /// How long a lease is used from the moment it was asked for. Both clocks may be wrong, in opposite directions.
    pub fn lasts(&self) -> Duration {
        let drift = self.term.as_nanos() * 2 * u128::from(self.drift_ppm) / 1_000_000;
        let drift = Duration::from_nanos(u64::try_from(drift).unwrap_or(u64::MAX));
        self.term.saturating_sub(drift).saturating_sub(self.margin)
    }

    /// Checks that the lease can be held.
    ///
    /// # Errors
    /// Where it is over before it can be asked for again.
    pub fn check(&self) -> Result<(), LeaseConfigError> {
        let (term, lasts, interval) = (self.term, self.lasts(), self.interval);
        if lasts > 2 * interval { Ok(()) } else { Err(LeaseConfigError::Short { term, lasts, interval }) }
    }
}

/// What the service answers to a question.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LeaseAnswer {
    /// The lease is this one's, in this epoch.
    Granted(Epoch),
    /// Another one has it.
    Denied,
}

/// What an event manager is to do.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StandbyAction {
    /// Ask the service for the lease, or for more of it. The answer names the question.
    Ask {
        /// The number of the question.
        question: u64,
        /// The epoch of the lease to extend; `None` if it has ended. Then the service begins a new epoch even for the
        /// present holder: otherwise it would go on renewing a lease that is not used.
        renews: Option<Epoch>,
    },
    /// Speak, in this epoch: take the run over, or start one.
    BecomeActive {
        /// The epoch.
        epoch: Epoch,
    },
    /// Say nothing more, and forget the run.
    StepDown,
}

#[derive(Copy, Clone, Debug)]
struct Lease {
    epoch: Epoch,
    until: Instant,
}

/// Whether one of several event managers is the active one.
#[derive(Debug)]
pub struct Standby {
    config: LeaseConfig,
    lease: Option<Lease>,
    /// The question that is not answered yet, and when it was asked.
    asked: Option<(u64, Instant)>,
    questions: u64,
    next_question: Instant,
    /// No lease in this epoch or a lower one is taken any more.
    over: Epoch,
    actions: VecDeque<StandbyAction>,
}

impl Standby {
    /// Standing by, and about to ask.
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

    /// The service has answered. An answer to any but the last question is ignored: the moment from which it counts is
    /// no longer known.
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
            // What began in another epoch may have gone on elsewhere meanwhile.
            _ => {
                self.end();
                if epoch > self.over && until > now {
                    self.lease = Some(Lease { epoch, until });
                    self.actions.push_back(StandbyAction::BecomeActive { epoch });
                }
            }
        }
    }

    /// A node obeys an event manager of this epoch.
    pub fn superseded(&mut self, epoch: Epoch) {
        if self.lease.is_some_and(|lease| lease.epoch < epoch) {
            self.end();
        }
        self.over = self.over.max(Epoch(epoch.0.saturating_sub(1)));
    }

    /// The next thing to do; `None` until the next input or [`Standby::next_deadline`].
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

    /// The epoch in which this event manager may speak now. To be asked right before it does.
    pub fn epoch(&self, now: Instant) -> Option<Epoch> {
        self.lease.filter(|lease| now < lease.until).map(|lease| lease.epoch)
    }

    /// When [`Standby::poll`] must be called even if nothing comes in.
    pub fn next_deadline(&self) -> Instant {
        self.lease.map_or(self.next_question, |lease| lease.until.min(self.next_question))
    }

    /// Whether the lease is over by this clock.
    fn look(&mut self, now: Instant) {
        if self.lease.is_some_and(|lease| now >= lease.until) && !is_planted(Flaw::LeaseOutlived) {
            self.end();
        }
    }

    fn end(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.over = self.over.max(lease.epoch);
            // One that fell asleep before it heard that it is active never was.
            let unheard = StandbyAction::BecomeActive { epoch: lease.epoch };
            if self.actions.back() == Some(&unheard) {
                self.actions.pop_back();
            } else {
                self.actions.push_back(StandbyAction::StepDown);
            }
        }
    }
}
