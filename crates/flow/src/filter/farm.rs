//! The farm of a builder unit: gives events to filter units, and handles the events of a unit that ended.

use super::FarmConfig;
use crate::supervision::{Process, ProcessOrder, SupervisorConfig};
use ropewalk_terms::{Attempt, EventKey, Instant};
use std::collections::VecDeque;

/// An action of the farm.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FarmAction {
    /// Start a process for this filter unit, which has none.
    Start {
        /// The filter unit.
        unit: u16,
    },
    /// Kill its process for a fault, and report when it has certainly [ended](FilterFarm::ended).
    Kill {
        /// The filter unit.
        unit: u16,
    },
    /// The same for a process without a fault, at the end of the run.
    Dismiss {
        /// The filter unit.
        unit: u16,
    },
    /// Offer the event in a slot to a filter unit; report it as [not taken](FilterFarm::not_taken) or
    /// [too large](FilterFarm::too_large) if so.
    Offer {
        /// The filter unit.
        unit: u16,
        /// The event.
        slot: u32,
    },
}

/// Counters besides the decisions.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FarmCounts {
    /// Valid decisions.
    pub decided: u64,
    /// Decisions on events that the filter unit did not have, or of an older attempt: ignored.
    pub stale: u64,
    /// Events of a filter unit that ended, given to another unit.
    pub returned: u64,
    /// Events without a decision.
    pub failed: u64,
}

/// An event in the farm.
#[derive(Copy, Clone, Debug)]
struct Work {
    key: EventKey,
    attempt: Attempt,
    /// Number of filter units that ended over it.
    tries: u8,
    /// The last one of them.
    avoided: Option<u16>,
}

/// Gives events to filter units: see the diagram of the module.
#[derive(Debug)]
pub struct FilterFarm {
    units: Vec<Unit>,
    /// Events by slot.
    work: Box<[Option<Work>]>,
    /// Slots to be given out, in order.
    waiting: VecDeque<u32>,
    /// Slots with precedence: events of filter units that ended.
    again: VecDeque<u32>,
    /// Slots of events without a decision.
    failed: VecDeque<u32>,
    /// The unit that is considered first, so that equally loaded units take turns.
    next: usize,
    /// Whether decisions are no longer awaited.
    is_closed: bool,
    counts: FarmCounts,
    had: Vec<u32>,
}

impl FilterFarm {
    /// Creates a farm whose processes are started at once.
    pub fn new(config: FarmConfig) -> Self {
        let room = config.slots as usize;
        let unit = |_| Unit::new(config.supervision, config.slots);
        Self {
            units: (0..config.units.max(1)).map(unit).collect(),
            work: vec![None; room].into_boxed_slice(),
            waiting: VecDeque::with_capacity(room),
            again: VecDeque::with_capacity(room),
            failed: VecDeque::with_capacity(room),
            next: 0,
            is_closed: false,
            counts: FarmCounts::default(),
            had: Vec::with_capacity(room),
        }
    }

    /// Returns the number of filter units.
    pub const fn units(&self) -> usize {
        self.units.len()
    }

    /// Adds an event to be decided.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn add(&mut self, slot: u32, key: EventKey, attempt: Attempt) {
        self.work[slot as usize] = Some(Work { key, attempt, tries: 0, avoided: None });
        self.waiting.push_back(slot);
        self.settle();
    }

    /// Records that a filter unit's process is ready.
    pub fn ready(&mut self, unit: u16) {
        self.units[usize::from(unit)].ready();
    }

    /// Sets the total number of events that a filter unit takes, counted from the start of its process.
    pub fn granted(&mut self, unit: u16, events: u64) {
        self.units[usize::from(unit)].grant(events);
    }

    /// Sets the number of decisions that a filter unit has made since its process started. A unit that makes decisions
    /// does not hang, even if they have not been fetched yet.
    pub fn progressed(&mut self, now: Instant, unit: u16, decisions: u64) {
        self.units[usize::from(unit)].progressed(now, decisions);
    }

    /// Records that a filter unit had no room for the last offered event.
    pub fn not_taken(&mut self, unit: u16) {
        let unit = &mut self.units[usize::from(unit)];
        if let Some(slot) = unit.take_back() {
            unit.is_full();
            self.again.push_front(slot);
        }
    }

    /// Records that the last offered event is too large for every filter unit.
    pub fn too_large(&mut self, unit: u16) {
        if let Some(slot) = self.units[usize::from(unit)].take_back() {
            self.fail(slot);
        }
    }

    /// Returns the attempt of the event in a slot; `None` for an empty slot.
    pub fn attempt_of(&self, slot: u32) -> Option<Attempt> {
        self.work.get(slot as usize).copied().flatten().map(|work| work.attempt)
    }

    /// Records a filter unit's decision on the event in a slot; false if it is stale and must be ignored.
    pub fn decided(&mut self, unit: u16, slot: u32, attempt: Attempt) -> bool {
        let place = slot as usize;
        let is_meant = self.work.get(place).copied().flatten().is_some_and(|work| work.attempt == attempt);
        let counts = is_meant && self.units[usize::from(unit)].decided(slot);
        if counts {
            self.work[place] = None;
            self.counts.decided += 1;
        } else {
            self.counts.stale += 1;
        }
        counts
    }

    /// Records an impossible answer of a filter unit for its first event.
    pub fn disbelieve(&mut self, unit: u16) {
        self.units[usize::from(unit)].disbelieve();
    }

    /// Records that a filter unit's process has certainly ended, or could not be started. Its earlier decisions must
    /// have been taken.
    pub fn ended(&mut self, now: Instant, unit: u16) {
        let mut had = core::mem::take(&mut self.had);
        had.clear();
        let over_first = self.units[usize::from(unit)].ended(now, &mut had);
        let (over, waited) = had.split_at(usize::from(over_first && !had.is_empty()));
        self.counts.returned += waited.len() as u64;
        waited.iter().rev().for_each(|&slot| self.again.push_front(slot));
        over.iter().for_each(|&slot| self.try_in_vain(unit, slot));
        self.had = had;
        self.settle();
    }

    /// Handles an event over which a filter unit ended: another unit tries it once.
    fn try_in_vain(&mut self, unit: u16, slot: u32) {
        let Some(work) = &mut self.work[slot as usize] else { return };
        work.tries += 1;
        work.avoided = Some(unit);
        if work.tries >= SupervisorConfig::TRIES {
            self.fail(slot);
        } else {
            self.counts.returned += 1;
            // Behind the events that only waited in the same unit.
            self.again.push_back(slot);
        }
    }

    fn fail(&mut self, slot: u32) {
        self.failed.push_back(slot);
        self.counts.failed += 1;
    }

    /// Closes the farm at the end of the run: ends the filter units, and no longer awaits decisions. Events of a
    /// process stay in place until it has certainly ended.
    pub fn close(&mut self) {
        if core::mem::replace(&mut self.is_closed, true) {
            return;
        }
        self.units.iter_mut().for_each(Unit::close);
        self.settle();
    }

    /// Opens the farm for another run: processes are started again.
    pub fn open(&mut self) {
        self.is_closed = false;
        self.units.iter_mut().for_each(Unit::open);
    }

    /// Fails waiting events if all filter units are given up or the farm is closed.
    fn settle(&mut self) {
        if self.is_closed || self.units.iter().all(Unit::is_given_up) {
            while let Some(slot) = self.again.pop_front().or_else(|| self.waiting.pop_front()) {
                self.fail(slot);
            }
        }
    }

    /// Returns the next event without a decision. It leaves the farm.
    pub fn next_failed(&mut self) -> Option<u32> {
        let slot = self.failed.pop_front()?;
        self.work[slot as usize] = None;
        Some(slot)
    }

    /// Returns the next action; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<FarmAction> {
        for index in 0..self.units.len() as u16 {
            match self.units[usize::from(index)].poll(now) {
                Some(ProcessOrder::Start) => return Some(FarmAction::Start { unit: index }),
                Some(ProcessOrder::Kill) => return Some(FarmAction::Kill { unit: index }),
                Some(ProcessOrder::Dismiss) => return Some(FarmAction::Dismiss { unit: index }),
                None => {}
            }
        }
        let slot = *self.again.front().or_else(|| self.waiting.front())?;
        let avoided = self.work[slot as usize].and_then(|work| work.avoided);
        let unit = self.least_loaded(avoided)?;
        if self.again.pop_front().is_none() {
            self.waiting.pop_front();
        }
        self.units[unit].give(now, slot);
        self.next = (unit + 1) % self.units.len();
        Some(FarmAction::Offer { unit: unit as u16, slot })
    }

    /// Returns the unit with credit that has the fewest events; the avoided one only if there is no other.
    fn least_loaded(&self, avoided: Option<u16>) -> Option<usize> {
        let count = self.units.len();
        let with_credit =
            (0..count).map(|step| (self.next + step) % count).filter(|&unit| self.units[unit].has_credit());
        with_credit.min_by_key(|&unit| (avoided == Some(unit as u16), self.units[unit].load()))
    }

    /// Whether decisions are no longer awaited.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// When [`FilterFarm::poll`] must be called without further input.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.units.iter().filter_map(Unit::next_deadline).min()
    }

    /// Returns the number of events in the farm, counted from the table.
    pub fn in_work(&self) -> usize {
        self.work.iter().flatten().count()
    }

    /// Returns the lowest key of the events in the farm.
    pub fn oldest(&self) -> Option<EventKey> {
        self.work.iter().flatten().map(|work| work.key).min()
    }

    /// Returns the counters besides the decisions.
    pub const fn counts(&self) -> &FarmCounts {
        &self.counts
    }

    /// Returns the number of restarted processes.
    pub fn restarted(&self) -> u64 {
        self.units.iter().map(Unit::restarted).sum()
    }

    /// Returns the number of ready filter units.
    pub fn living(&self) -> usize {
        self.units.iter().filter(|unit| unit.is_ready()).count()
    }

    /// Whether a filter unit has events to decide.
    pub fn is_busy(&self, unit: u16) -> bool {
        self.units[usize::from(unit)].load() > 0
    }

    /// Returns the number of filter units that are given up.
    pub fn given_up(&self) -> usize {
        self.units.iter().filter(|unit| unit.is_given_up()).count()
    }
}

/// A filter unit.
#[derive(Debug)]
struct Unit {
    process: Process,
    /// Slots of its events, in the order of the offers; it works on the first one.
    has: VecDeque<u32>,
    /// Since when it has worked on its first undecided event.
    busy: Option<Instant>,
    /// Whether it is being ended because of that event.
    over_event: bool,
    /// Whether no other process is started.
    is_closed: bool,
    /// Total number of events that its process takes, and that it was given.
    granted: u64,
    given: u64,
    /// Number of decisions that it has made, taken or not.
    decided: u64,
    /// While it is being ended: the number of its decisions that count, which are the earlier ones.
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
    const fn has_credit(&self) -> bool {
        self.process.is_ready() && self.given < self.granted
    }

    const fn is_ready(&self) -> bool {
        self.process.is_ready()
    }

    const fn is_given_up(&self) -> bool {
        self.process.is_given_up()
    }

    pub(super) const fn restarted(&self) -> u64 {
        self.process.restarted()
    }

    /// Returns the number of its events.
    fn load(&self) -> usize {
        self.has.len()
    }

    pub(super) fn ready(&mut self) {
        self.process.ready();
    }

    /// Sets the total number of events that its process takes. The number never decreases.
    fn grant(&mut self, events: u64) {
        self.granted = self.granted.max(events);
    }

    /// Sets the number of decisions since the process started, fetched or not.
    pub(super) fn progressed(&mut self, now: Instant, decisions: u64) {
        let decisions = decisions.min(self.given);
        if self.process.is_ready() && decisions > self.decided {
            self.decided = decisions;
            self.busy = Some(now).filter(|_| decisions < self.given);
        }
    }

    /// Gives it an event.
    pub(super) fn give(&mut self, now: Instant, slot: u32) {
        self.has.push_back(slot);
        self.given += 1;
        self.busy.get_or_insert(now);
    }

    /// Takes back the last given event, which it did not take.
    fn take_back(&mut self) -> Option<u32> {
        let slot = self.has.pop_back()?;
        self.given -= 1;
        self.busy = self.busy.filter(|_| self.decided < self.given);
        Some(slot)
    }

    /// Records that it is full: nothing is offered until it grants more.
    const fn is_full(&mut self) {
        self.granted = self.given;
    }

    /// Returns the number of its taken decisions.
    fn taken(&self) -> u64 {
        self.given - self.has.len() as u64
    }

    /// Takes one of its decisions; false if it does not have that event, or its decisions no longer count.
    pub(super) fn decided(&mut self, slot: u32) -> bool {
        let is_believed = self.process.is_ready() || self.taken() < self.believed;
        if !is_believed {
            return false;
        }
        // A filter node may decide in any order; a process decides its first event.
        let Some(place) = self.has.iter().position(|&has| has == slot) else { return false };
        let _ = self.has.remove(place);
        self.decided = self.decided.max(self.taken());
        self.busy = self.busy.filter(|_| self.decided < self.given);
        true
    }

    /// Records an impossible answer.
    pub(super) fn disbelieve(&mut self) {
        if self.process.is_ready() {
            self.process.condemn();
            (self.busy, self.over_event) = (None, true);
            self.believed = self.taken();
        }
    }

    /// Allows process starts again.
    pub(super) const fn open(&mut self) {
        self.is_closed = false;
    }

    /// Closes the unit; its earlier decisions count.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        if self.process.is_ready() {
            (self.busy, self.believed) = (None, self.decided);
        }
        self.process.dismiss();
    }

    /// Records that its process has certainly ended. Appends its events; returns whether it ended over the first of
    /// them.
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
