//! Runs users' functions in a separate process, which may crash, hang or lie. Restarts the process, and gives its work
//! to the next one or reports it as failed.
//!
//! ```text
//!  pieces of work --add--> Supervisor --Ask--> process, one piece after the other --progressed-->  answered
//!                             |  ^                |
//!                             |  +----- ended ----+ crashed, hung (Kill), or not to be believed (Kill)
//!                             +-- Start, after a pause, and not too often
//! ```
//! The piece of work that a process had when it ended is tried once more with the next process; if that ends over it as
//! well, it has failed. Answers from before count, and later pieces of work are not affected. If processes end too
//! often, no other is started, and all work fails at once, so that nothing waits for ever.

#[cfg(test)]
mod tests;

use core::time::Duration;
use ropewalk_terms::Instant;
use std::collections::VecDeque;

/// Time-outs and restarts of a supervised process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SupervisorConfig {
    /// Time-out for one piece of work.
    pub timeout: Duration,
    /// Time-out for the start.
    pub start_timeout: Duration,
    /// Delay before a restart.
    pub restart_delay: Duration,
    /// Maximum number of restarts in any [`SupervisorConfig::PERIOD`]; one more gives the process up.
    pub restarts: u32,
}

impl SupervisorConfig {
    /// The period in which restarts are counted.
    pub const PERIOD: Duration = Duration::from_secs(60);
    /// Number of attempts for a piece of work.
    pub const TRIES: u8 = 2;
}

impl Default for SupervisorConfig {
    /// 1 s for a piece of work, 10 s for a start, a delay of 100 ms, 10 restarts.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            start_timeout: Duration::from_secs(10),
            restart_delay: Duration::from_millis(100),
            restarts: 10,
        }
    }
}

/// An action on the process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Start a process; none runs.
    Start,
    /// Have it do these pieces of work, in order.
    Ask {
        /// Index of the first one in the batch.
        first: usize,
        /// Their number.
        count: usize,
    },
    /// Kill it, and report when it has certainly ended.
    Kill,
}

/// State of a piece of work.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Not done yet.
    Pending,
    /// Answered.
    Answered,
    /// Failed: there will be no answer.
    Failed,
}

/// Supervises a process: see the module documentation.
#[derive(Debug)]
pub struct Supervisor {
    process: Process,
    /// Since when it has worked on the first piece that is not done.
    busy: Option<Instant>,
    /// Whether it is being ended because of that piece.
    over_work: bool,
    /// For each piece of work of the batch: whether it has failed.
    failed: Vec<bool>,
    /// Number of done pieces, from the first one on.
    done: usize,
    /// The piece that a process ended over, and how many processes in a row did.
    tried: Option<(usize, u8)>,
    failures: u64,
}

impl Supervisor {
    /// Creates a supervisor whose process is started at once. A batch has at most `most` pieces of work.
    pub fn new(config: SupervisorConfig, most: usize) -> Self {
        Self {
            process: Process::new(config),
            busy: None,
            over_work: false,
            failed: Vec::with_capacity(most),
            done: 0,
            tried: None,
            failures: 0,
        }
    }

    /// Adds a piece of work to the batch, before the batch was [requested](Order::Ask).
    pub fn add(&mut self) {
        self.failed.push(false);
        self.settle();
    }

    /// Starts another batch.
    pub fn clear(&mut self) {
        self.failed.clear();
        (self.done, self.tried) = (0, None);
    }

    /// Returns the state of a piece of work.
    pub fn outcome(&self, index: usize) -> Outcome {
        match self.failed.get(index) {
            _ if index >= self.done => Outcome::Pending,
            Some(false) => Outcome::Answered,
            Some(true) | None => Outcome::Failed,
        }
    }

    /// Returns the number of restarts.
    pub const fn restarted(&self) -> u64 {
        self.process.restarted()
    }

    /// Returns the number of failed pieces of work.
    pub const fn failures(&self) -> u64 {
        self.failures
    }

    /// Whether no process is started any more.
    pub const fn is_given_up(&self) -> bool {
        self.process.is_given_up()
    }

    /// Records that the process is ready for work.
    pub fn ready(&mut self) {
        self.process.ready();
    }

    /// Records that the process has done the pieces of work before this one.
    pub fn progressed(&mut self, now: Instant, done: usize) {
        let Some(since) = self.busy.filter(|_| self.process.is_ready()) else { return };
        let done = done.min(self.failed.len());
        let since = if done > self.done { now } else { since };
        self.done = self.done.max(done);
        self.busy = Some(since).filter(|_| self.done < self.failed.len());
    }

    /// Records an impossible answer for a done piece of work: no answer from this one on counts. Earlier answers should
    /// have been taken.
    pub fn disbelieve(&mut self, index: usize) {
        if index >= self.done || self.failed[index] {
            return;
        }
        self.done = index;
        if self.process.is_ready() || self.process.is_ending() {
            self.process.condemn();
            self.over_work = true;
        } else if self.is_given_up() {
            self.settle();
        } else {
            // The process has ended in the meantime.
            self.try_in_vain();
        }
    }

    /// Records that the process has certainly ended, or could not be started.
    pub fn ended(&mut self, now: Instant) {
        if !self.process.ended(now) {
            return;
        }
        let was_busy = self.busy.take().is_some();
        if core::mem::take(&mut self.over_work) | was_busy {
            self.try_in_vain();
        }
        self.settle();
    }

    /// Handles a process that ended over the first piece of work that is not done.
    fn try_in_vain(&mut self) {
        let before = self.tried.filter(|(index, _)| *index == self.done).map_or(0, |(_, times)| times);
        self.tried = Some((self.done, before.saturating_add(1)));
        if before.saturating_add(1) >= SupervisorConfig::TRIES {
            self.fail_next();
        }
    }

    /// Fails the first piece of work that is not done.
    fn fail_next(&mut self) {
        if let Some(failed) = self.failed.get_mut(self.done) {
            *failed = true;
            self.done += 1;
            self.failures += 1;
        }
    }

    /// Fails all work if the process is given up.
    fn settle(&mut self) {
        while self.is_given_up() && self.done < self.failed.len() {
            self.fail_next();
        }
    }

    /// Returns the next action; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Order> {
        if self.process.is_ready() && self.busy.is_none() && self.done < self.failed.len() {
            self.busy = Some(now);
            return Some(Order::Ask { first: self.done, count: self.failed.len() - self.done });
        }
        match self.process.poll(now, self.busy)? {
            ProcessOrder::Start => Some(Order::Start),
            ProcessOrder::Dismiss => Some(Order::Kill),
            ProcessOrder::Kill => {
                self.over_work |= self.busy.take().is_some();
                Some(Order::Kill)
            }
        }
    }

    /// When [`Supervisor::poll`] must be called without further input.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.process.next_deadline(self.busy)
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// No process runs, and none is started before this time.
    Down { until: Instant },
    /// It was started, and is not ready.
    Starting { since: Instant },
    /// It works, or waits for work.
    Ready,
    /// It is being ended; `is_dismissed`: because it is no longer needed.
    Ending { is_ordered: bool, is_dismissed: bool },
    /// No other one is started.
    GivenUp,
}

/// An action on a process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProcessOrder {
    /// Start a process; none runs.
    Start,
    /// Kill it for a fault, and report when it has certainly ended.
    Kill,
    /// The same for a process without a fault, which is no longer needed.
    Dismiss,
}

/// A supervised process.
#[derive(Debug)]
pub(crate) struct Process {
    config: SupervisorConfig,
    state: State,
    /// Times of the restarts in the last [`SupervisorConfig::PERIOD`].
    restarts: VecDeque<Instant>,
    restarted: u64,
}

impl Process {
    /// Creates the state without a process; the first one is started at once.
    pub(crate) fn new(config: SupervisorConfig) -> Self {
        let restarts = VecDeque::with_capacity(config.restarts as usize + 1);
        Self { config, state: State::Down { until: Instant::ZERO }, restarts, restarted: 0 }
    }

    /// Returns the number of restarts.
    pub(crate) const fn restarted(&self) -> u64 {
        self.restarted
    }

    /// Whether it takes work.
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready)
    }

    /// Whether it is being ended.
    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending { .. })
    }

    /// Whether no process is started any more.
    pub(crate) const fn is_given_up(&self) -> bool {
        matches!(self.state, State::GivenUp)
    }

    /// Records that it is ready for work.
    pub(crate) fn ready(&mut self) {
        if let State::Starting { .. } = self.state {
            self.state = State::Ready;
        }
    }

    /// Marks it to be killed; its further messages are ignored.
    pub(crate) fn condemn(&mut self) {
        self.begin_to_end(false);
    }

    /// Marks it to be killed because it is no longer needed. Its end counts as no restart.
    pub(crate) fn dismiss(&mut self) {
        self.begin_to_end(true);
    }

    fn begin_to_end(&mut self, is_dismissed: bool) {
        if let State::Starting { .. } | State::Ready = self.state {
            self.state = State::Ending { is_ordered: false, is_dismissed };
        }
    }

    /// Records that it has certainly ended, or could not be started. Returns whether there was one.
    pub(crate) fn ended(&mut self, now: Instant) -> bool {
        if let State::Down { .. } | State::GivenUp = self.state {
            return false;
        }
        if let State::Ending { is_dismissed: true, .. } = self.state {
            self.state = State::Down { until: now.after(self.config.restart_delay) };
            return true;
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

    /// Returns the next action, if it has worked on one piece of work since `busy`.
    pub(crate) fn poll(&mut self, now: Instant, busy: Option<Instant>) -> Option<ProcessOrder> {
        match self.state {
            State::Down { until } if now >= until => {
                self.state = State::Starting { since: now };
                Some(ProcessOrder::Start)
            }
            State::Ready if busy.is_some_and(|since| now >= since.after(self.config.timeout)) => self.kill(),
            State::Starting { since } if now >= since.after(self.config.start_timeout) => self.kill(),
            State::Ending { is_ordered: false, is_dismissed: true } => {
                self.state = State::Ending { is_ordered: true, is_dismissed: true };
                Some(ProcessOrder::Dismiss)
            }
            State::Ending { is_ordered: false, is_dismissed: false } => self.kill(),
            _ => None,
        }
    }

    const fn kill(&mut self) -> Option<ProcessOrder> {
        self.state = State::Ending { is_ordered: true, is_dismissed: false };
        Some(ProcessOrder::Kill)
    }

    /// When [`Process::poll`] must be called without further input.
    pub(crate) fn next_deadline(&self, busy: Option<Instant>) -> Option<Instant> {
        match self.state {
            State::Down { until } => Some(until),
            State::Starting { since } => Some(since.after(self.config.start_timeout)),
            State::Ready => busy.map(|since| since.after(self.config.timeout)),
            State::Ending { .. } | State::GivenUp => None,
        }
    }
}
