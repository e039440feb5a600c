//! One filter unit as its builder unit sees it: the process, and the events that it has.

use crate::supervision::{Process, ProcessOrder, SupervisorConfig};
use ropewalk_terms::Instant;
use ropewalk_terms::flaws::{Flaw, is_planted};
use std::collections::VecDeque;

/// A filter unit.
#[derive(Debug)]
pub(super) struct Unit {
    process: Process,
    /// The slots of the events that it has, in the order in which it got them: it works on the first one.
    has: VecDeque<u32>,
    /// Since when it works on the first one that it has not decided.
    busy: Option<Instant>,
    /// It is to end because of that.
    over_event: bool,
    /// No other process is started.
    is_closed: bool,
    /// Events that this life of it takes in all, and was given.
    granted: u64,
    given: u64,
    /// Decisions that it has made, taken or not.
    decided: u64,
    /// Where it is to end: so many of these count, those that it made before.
    believed: u64,
}

impl Unit {
    pub(super) fn new(config: SupervisorConfig, slots: u32) -> Self {
        Self {
            process: Process::new(config),
            has: VecDeque::with_capacity(slots as usize),
            busy: None,
            over_event: false,
            is_closed: false,
            granted: 0,
            given: 0,
            decided: 0,
            believed: 0,
        }
    }

    /// Whether it takes another event.
    pub(super) const fn has_credit(&self) -> bool {
        self.process.is_ready() && self.given < self.granted
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.process.is_ready()
    }

    pub(super) const fn is_given_up(&self) -> bool {
        self.process.is_given_up()
    }

    pub(super) const fn restarted(&self) -> u64 {
        self.process.restarted()
    }

    /// How many events it has.
    pub(super) fn load(&self) -> usize {
        self.has.len()
    }

    pub(super) fn ready(&mut self) {
        self.process.ready();
    }

    /// It takes so many events in all, in this life of it. Never fewer than it said before.
    pub(super) fn grant(&mut self, events: u64) {
        self.granted = self.granted.max(events);
    }

    /// It has made so many decisions in all, in this life of it, whether or not anybody has taken them.
    pub(super) fn progressed(&mut self, now: Instant, decisions: u64) {
        let decisions = decisions.min(self.given);
        if self.process.is_ready() && decisions > self.decided {
            self.decided = decisions;
            self.busy = Some(now).filter(|_| decisions < self.given);
        }
    }

    /// It gets an event.
    pub(super) fn give(&mut self, now: Instant, slot: u32) {
        self.has.push_back(slot);
        self.given += 1;
        self.busy.get_or_insert(now);
    }

    /// It did not take the event that it was given last.
    pub(super) fn take_back(&mut self) -> Option<u32> {
        let slot = self.has.pop_back()?;
        self.given -= 1;
        self.busy = self.busy.filter(|_| self.decided < self.given);
        Some(slot)
    }

    /// It has no room: no more is offered until it says that it takes more.
    pub(super) const fn is_full(&mut self) {
        self.granted = self.given;
    }

    /// How many of its decisions were taken.
    fn taken(&self) -> u64 {
        self.given - self.has.len() as u64
    }

    /// A decision of its is taken; false where it does not have that event, or is not listened to any more.
    pub(super) fn decided(&mut self, slot: u32) -> bool {
        let is_believed = self.process.is_ready() || self.taken() < self.believed;
        if !is_believed && !is_planted(Flaw::FilterCondemnedBelieved) {
            return false;
        }
        // A node may decide in any order; a process has the first one.
        let Some(place) = self.has.iter().position(|&has| has == slot) else { return false };
        let _ = self.has.remove(place);
        self.decided = self.decided.max(self.taken());
        self.busy = self.busy.filter(|_| self.decided < self.given);
        true
    }

    /// What it says cannot be true.
    pub(super) fn disbelieve(&mut self) {
        if self.process.is_ready() {
            self.process.condemn();
            (self.busy, self.over_event) = (None, true);
            self.believed = self.taken();
        }
    }

    /// Processes are started again.
    pub(super) const fn open(&mut self) {
        self.is_closed = false;
    }

    /// It is not needed any more; what it has decided counts.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        if self.process.is_ready() {
            (self.busy, self.believed) = (None, self.decided);
        }
        self.process.condemn();
    }

    /// It is certain that it has ended. Appends the events that it had, and says whether the first of them is what it ended over.
    pub(super) fn ended(&mut self, now: Instant, had: &mut Vec<u32>) -> bool {
        if !self.process.ended(now) {
            return false;
        }
        had.extend(self.has.drain(..));
        (self.granted, self.given, self.decided, self.believed) = (0, 0, 0, 0);
        let was_busy = self.busy.take().is_some();
        core::mem::take(&mut self.over_event) | was_busy
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<ProcessOrder> {
        if self.is_closed && !self.process.is_ending() {
            return None;
        }
        let order = self.process.poll(now, self.busy);
        if order == Some(ProcessOrder::Kill) && self.busy.take().is_some() {
            self.over_event = true;
            self.believed = self.decided;
        }
        order
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.is_closed { None } else { self.process.next_deadline(self.busy) }
    }
}
