//! The machine: one process at a time, and a batch of work.

use super::config::SupervisorConfig;
use super::process::{Process, ProcessOrder};
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};

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

    /// Whether nobody is started any more.
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
        if is_planted(Flaw::LieIsFinal) {
            self.failed[index] = true;
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
        if self.process.is_ready() && self.busy.is_none() && self.done < self.failed.len() {
            self.busy = Some(now);
            return Some(Order::Ask { first: self.done, count: self.failed.len() - self.done });
        }
        match self.process.poll(now, self.busy)? {
            ProcessOrder::Start => Some(Order::Start),
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
