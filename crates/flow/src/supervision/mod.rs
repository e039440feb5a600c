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
//! well, it has failed. Pieces that were answered before stay answered, and those behind it are not harmed. When
//! processes end too often no other one is started, and all work fails at once, so that nothing waits for ever.

#[cfg(test)]
mod tests;

use core::time::Duration;
use ropewalk_terms::Instant;
use std::collections::VecDeque;

/// How patient a supervisor is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SupervisorConfig {
    /// How long a process may take over one piece of work.
    pub timeout: Duration,
    /// How long it may take until it is ready for the first one.
    pub start_timeout: Duration,
    /// The pause before another process is started.
    pub restart_delay: Duration,
    /// How many processes are started again in any [`SupervisorConfig::PERIOD`]; with one more it is given up.
    pub restarts: u32,
}

impl SupervisorConfig {
    /// The time in which restarts are counted.
    pub const PERIOD: Duration = Duration::from_secs(60);
    /// How often a piece of work is tried.
    pub const TRIES: u8 = 2;
}

impl Default for SupervisorConfig {
    /// 1 s for a piece of work, 10 s for a start, a pause of 100 ms, 10 restarts.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            start_timeout: Duration::from_secs(10),
            restart_delay: Duration::from_millis(100),
            restarts: 10,
        }
    }
}

/// What is to be done with the process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Start a process; none runs.
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

/// Watches over a process: see the module's text.
#[derive(Debug)]
pub struct Supervisor {
    process: Process,
    /// It does the first piece that is not done, since then.
    busy: Option<Instant>,
    /// It is to end because of that piece.
    over_work: bool,
    /// Pieces of work of the batch: which of them have failed.
    failed: Vec<bool>,
    /// How many of them are done, from the first one on.
    done: usize,
    /// The piece that a process ended over, and how many in a row did.
    tried: Option<(usize, u8)>,
    failures: u64,
}

impl Supervisor {
    /// There is no process yet, and the first one is started at once. A batch has at most `most` pieces of work.
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
        self.process.restarted()
    }

    /// How many pieces of work have failed.
    pub const fn failures(&self) -> u64 {
        self.failures
    }

    /// Whether no process is started any more.
    pub const fn is_given_up(&self) -> bool {
        self.process.is_given_up()
    }

    /// The process is ready for work.
    pub fn ready(&mut self) {
        self.process.ready();
    }

    /// The process has done the pieces of work before this one.
    pub fn progressed(&mut self, now: Instant, done: usize) {
        let Some(since) = self.busy.filter(|_| self.process.is_ready()) else { return };
        let done = done.min(self.failed.len());
        let since = if done > self.done { now } else { since };
        self.done = self.done.max(done);
        self.busy = Some(since).filter(|_| self.done < self.failed.len());
    }

    /// What the process says of a piece of work that it has done cannot be true: it is not believed in anything that
    /// it said since. Those before it should have been looked at.
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
            // It has gone since.
            self.try_in_vain();
        }
    }

    /// It is certain that the process has ended, or that it could not be started.
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

    /// A process ended over the first piece of work that is not done.
    fn try_in_vain(&mut self) {
        let before = self.tried.filter(|(index, _)| *index == self.done).map_or(0, |(_, times)| times);
        self.tried = Some((self.done, before.saturating_add(1)));
        if before.saturating_add(1) >= SupervisorConfig::TRIES {
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

    /// When it is to be polled even if nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.process.next_deadline(self.busy)
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// No process runs, and until then none is started.
    Down { until: Instant },
    /// It was started, and is not ready.
    Starting { since: Instant },
    /// It works, or waits for work.
    Ready,
    /// It is to end; `is_dismissed`: because it is not needed any more.
    Ending { is_ordered: bool, is_dismissed: bool },
    /// No other one is started.
    GivenUp,
}

/// What is to be done with the process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ProcessOrder {
    /// Start a process; none runs.
    Start,
    /// End it for what it did wrong, and tell when it is certain that it has ended.
    Kill,
    /// The same, of one that did nothing wrong: it is not needed any more.
    Dismiss,
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
    /// No process runs yet, and the first one is started at once.
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

    /// Whether no process is started any more.
    pub(crate) const fn is_given_up(&self) -> bool {
        matches!(self.state, State::GivenUp)
    }

    /// It is ready for work.
    pub(crate) fn ready(&mut self) {
        if let State::Starting { .. } = self.state {
            self.state = State::Ready;
        }
    }

    /// It is to be killed; it is not listened to any more.
    pub(crate) fn condemn(&mut self) {
        self.begin_to_end(false);
    }

    /// It is not needed any more, and is to be killed. That it ends counts as no restart.
    pub(crate) fn dismiss(&mut self) {
        self.begin_to_end(true);
    }

    fn begin_to_end(&mut self, is_dismissed: bool) {
        if let State::Starting { .. } | State::Ready = self.state {
            self.state = State::Ending { is_ordered: false, is_dismissed };
        }
    }

    /// It is certain that it has ended, or that it could not be started. Whether there was one.
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

    /// What is to be done now, where it has worked on one piece of work since `busy`.
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
