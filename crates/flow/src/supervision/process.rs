//! One process: started, ended, started again after a pause, and not too often.

use super::config::SupervisorConfig;
use ropewalk_terms::Instant;
use std::collections::VecDeque;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// There is none, and until then none is started.
    Down { until: Instant },
    /// It was started, and is not ready.
    Starting { since: Instant },
    /// It works, or waits for work.
    Ready,
    /// It is to end.
    Ending { is_ordered: bool },
    /// No other one is started.
    GivenUp,
}

/// What is to be done with the process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProcessOrder {
    /// Start one; there is none.
    Start,
    /// End it, and tell when it is certain that it has ended.
    Kill,
}

/// A process that is watched over.
#[derive(Debug)]
pub(crate) struct Process {
    config: SupervisorConfig,
    state: State,
    /// When processes were started again, of the last [`SupervisorConfig::PERIOD`].
    restarts: VecDeque<Instant>,
    restarted: u64,
}

impl Process {
    /// There is none yet, and the first one is started at once.
    pub(crate) fn new(config: SupervisorConfig) -> Self {
        let restarts = VecDeque::with_capacity(config.restarts as usize + 1);
        Self { config, state: State::Down { until: Instant::ZERO }, restarts, restarted: 0 }
    }

    /// How many were started in the place of another one.
    pub(crate) const fn restarted(&self) -> u64 {
        self.restarted
    }

    /// Whether it takes work.
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Whether it is to end, and has not.
    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending { .. })
    }

    /// Whether nobody is started any more.
    pub(crate) const fn is_given_up(&self) -> bool {
        matches!(self.state, State::GivenUp)
    }

    /// It is ready for work.
    pub(crate) fn ready(&mut self) {
        if let State::Starting { .. } = self.state {
            self.state = State::Ready;
        }
    }

    /// It is to end: whoever is to end is not listened to.
    pub(crate) fn condemn(&mut self) {
        if let State::Starting { .. } | State::Ready = self.state {
            self.state = State::Ending { is_ordered: false };
        }
    }

    /// It is certain that it has ended, or that it could not be started. Whether there was one.
    pub(crate) fn ended(&mut self, now: Instant) -> bool {
        if let State::Down { .. } | State::GivenUp = self.state {
            return false;
        }
        while self.restarts.front().is_some_and(|&before| now >= before.after(SupervisorConfig::PERIOD)) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.config.restarts as usize {
            self.state = State::GivenUp;
            return true;
        }
        self.restarts.push_back(now);
        self.restarted += 1;
        self.state = State::Down { until: now.after(self.config.restart_delay) };
        true
    }

    /// What is to be done now, where it has worked on one piece of work since `busy`.
    pub(crate) fn poll(&mut self, now: Instant, busy: Option<Instant>) -> Option<ProcessOrder> {
        match self.state {
            State::Down { until } if now >= until => {
                self.state = State::Starting { since: now };
                Some(ProcessOrder::Start)
            }
            State::Ready if busy.is_some_and(|since| now >= since.after(self.config.timeout)) => self.kill(),
            State::Starting { since } if now >= since.after(self.config.start_timeout) => self.kill(),
            State::Ending { is_ordered: false } => self.kill(),
            _ => None,
        }
    }

    const fn kill(&mut self) -> Option<ProcessOrder> {
        self.state = State::Ending { is_ordered: true };
        Some(ProcessOrder::Kill)
    }

    /// When it is to be polled even if nothing happens.
    pub(crate) fn next_deadline(&self, busy: Option<Instant>) -> Option<Instant> {
        match self.state {
            State::Down { until } => Some(until),
            State::Starting { since } => Some(since.after(self.config.start_timeout)),
            State::Ready => busy.map(|since| since.after(self.config.timeout)),
            State::Ending { .. } | State::GivenUp => None,
        }
    }
}
