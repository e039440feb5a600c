//! The machine: one process at a time, and a batch of work.

use super::config::SupervisorConfig;
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use std::collections::VecDeque;

/// What is to be done with the process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Start one; there is none.
    Start,
    /// Let it do these pieces of work, in their order.
    Ask {
        /// The first one's index in the batch.
        first: usize,
        /// How many.
        count: usize,
    },
    /// End it, and tell when it is certain that it has ended.
    Kill,
}

/// What became of a piece of work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing yet.
    Pending,
    /// There is an answer.
    Answered,
    /// There will be none.
    Failed,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// There is no process, and until then none is started.
    Down { until: Instant },
    /// One was started, and is not ready.
    Starting { since: Instant },
    /// It waits for work.
    Ready,
    /// It does the first piece that is not done, since then.
    Busy { since: Instant },
    /// It is to end; `over_work`: because of the piece that it does.
    Ending { over_work: bool, is_ordered: bool },
    /// No other one is started.
    GivenUp,
}

/// Watches over a process: see the module's text.
#[derive(Debug)]
pub struct Supervisor {
    config: SupervisorConfig,
    state: State,
    /// Pieces of work of the batch: which of them have failed.
    failed: Vec<bool>,
    /// How many of them are done, from the first one on.
    done: usize,
    /// The piece that a process ended over, and how many in a row did.
    tried: Option<(usize, u8)>,
    /// When processes were started again, of the last [`SupervisorConfig::PERIOD`].
    restarts: VecDeque<Instant>,
    restarted: u64,
    failures: u64,
}

impl Supervisor {
    /// There is no process yet, and the first one is started at once. A batch has at most `most` pieces of work.
    pub fn new(config: SupervisorConfig, most: usize) -> Self {
        Self {
            config,
            state: State::Down { until: Instant::ZERO },
            failed: Vec::with_capacity(most),
            done: 0,
            tried: None,
            restarts: VecDeque::with_capacity(config.restarts as usize + 1),
            restarted: 0,
            failures: 0,
        }
    }

    /// Another piece of work of the batch. It is for a batch that was not [asked](Order::Ask) for yet.
    pub fn add(&mut self) {
        self.failed.push(false);
        self.settle();
    }

    /// Another batch begins.
    pub fn clear(&mut self) {
        self.failed.clear();
        (self.done, self.tried) = (0, None);
    }

    /// What became of a piece of work of the batch.
    pub fn outcome(&self, index: usize) -> Outcome {
        match self.failed.get(index) {
            _ if index >= self.done => Outcome::Pending,
            Some(false) => Outcome::Answered,
            Some(true) | None => Outcome::Failed,
        }
    }

    /// How many processes were started in the place of another one.
    pub const fn restarted(&self) -> u64 {
        self.restarted
    }

    /// How many pieces of work have failed.
    pub const fn failures(&self) -> u64 {
        self.failures
    }

    /// Whether nobody is started any more.
    pub const fn is_given_up(&self) -> bool {
        matches!(self.state, State::GivenUp)
    }

    /// The process is ready for work.
    pub fn ready(&mut self) {
        if let State::Starting { .. } = self.state {
            self.state = State::Ready;
        }
    }

    /// The process has done the pieces of work before this one.
    pub fn progressed(&mut self, now: Instant, done: usize) {
        let State::Busy { since } = self.state else { return };
        let done = done.min(self.failed.len());
        let since = if done > self.done { now } else { since };
        self.done = self.done.max(done);
        self.state = if self.done == self.failed.len() { State::Ready } else { State::Busy { since } };
    }

    /// What the process says of a piece of work that it has done cannot be true: it is not believed in anything that
    /// it said since. Those before it should have been looked at.
    pub fn disbelieve(&mut self, index: usize) {
        if index >= self.done || self.failed[index] {
            return;
        }
        if is_planted(Flaw::LieIsFinal) {
            self.failed[index] = true;
            return;
        }
        self.done = index;
        match &mut self.state {
            State::Ready | State::Busy { .. } => self.state = State::Ending { over_work: true, is_ordered: false },
            State::Ending { over_work, .. } => *over_work = true,
            // It has gone since.
            State::Down { .. } | State::Starting { .. } => self.try_in_vain(),
            State::GivenUp => self.settle(),
        }
    }

    /// It is certain that the process has ended, or that it could not be started.
    pub fn ended(&mut self, now: Instant) {
        let over_work = match self.state {
            State::Busy { .. } => true,
            State::Ending { over_work, .. } => over_work,
            State::Starting { .. } | State::Ready => false,
            State::Down { .. } | State::GivenUp => return,
        };
        if over_work {
            self.try_in_vain();
        }
        while self.restarts.front().is_some_and(|&before| now >= before.after(SupervisorConfig::PERIOD)) {
            self.restarts.pop_front();
        }
        if self.restarts.len() >= self.config.restarts as usize {
            self.state = State::GivenUp;
            self.settle();
            return;
        }
        self.restarts.push_back(now);
        self.restarted += 1;
        self.state = State::Down { until: now.after(self.config.restart_delay) };
    }

    /// A process ended over the first piece of work that is not done.
    fn try_in_vain(&mut self) {
        let before = self.tried.filter(|(index, _)| *index == self.done).map_or(0, |(_, times)| times);
        self.tried = Some((self.done, before.saturating_add(1)));
        if before.saturating_add(1) >= SupervisorConfig::TRIES && !is_planted(Flaw::PoisonTriedForEver) {
            self.fail_next();
        }
    }

    /// The first piece of work that is not done has failed.
    fn fail_next(&mut self) {
        if let Some(failed) = self.failed.get_mut(self.done) {
            *failed = true;
            self.done += 1;
            self.failures += 1;
        }
    }

    /// Where it is given up, nothing waits.
    fn settle(&mut self) {
        while self.is_given_up() && self.done < self.failed.len() {
            self.fail_next();
        }
    }

    /// What is to be done now; to be asked until there is nothing.
    pub fn poll(&mut self, now: Instant) -> Option<Order> {
        match self.state {
            State::Down { until } if now >= until => {
                self.state = State::Starting { since: now };
                Some(Order::Start)
            }
            State::Ready if self.done < self.failed.len() => {
                self.state = State::Busy { since: now };
                Some(Order::Ask { first: self.done, count: self.failed.len() - self.done })
            }
            State::Busy { since } if now >= since.after(self.config.timeout) => self.kill(true),
            State::Starting { since } if now >= since.after(self.config.start_timeout) => self.kill(false),
            State::Ending { over_work, is_ordered: false } => self.kill(over_work),
            _ => None,
        }
    }

    const fn kill(&mut self, over_work: bool) -> Option<Order> {
        self.state = State::Ending { over_work, is_ordered: true };
        Some(Order::Kill)
    }

    /// When it is to be polled even if nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        match self.state {
            State::Down { until } => Some(until),
            State::Starting { since } => Some(since.after(self.config.start_timeout)),
            State::Busy { since } => Some(since.after(self.config.timeout)),
            State::Ready | State::Ending { .. } | State::GivenUp => None,
        }
    }
}
