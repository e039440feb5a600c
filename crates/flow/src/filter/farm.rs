//! The farm of a builder unit: gives events to filter units, and decides what becomes of the events of one that ended.

use super::FarmConfig;
use crate::supervision::{Process, ProcessOrder, SupervisorConfig};
use ropewalk_terms::{Attempt, EventKey, Instant};
use std::collections::VecDeque;

/// What the farm wants done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FarmAction {
    /// Start a process for this filter unit, which has none.
    Start {
        /// Which one.
        unit: u16,
    },
    /// End its process for what it did wrong, and tell when it is certain that it has [ended](FilterFarm::ended).
    Kill {
        /// Which one.
        unit: u16,
    },
    /// The same, of a process that did nothing wrong: the run ends.
    Dismiss {
        /// Which one.
        unit: u16,
    },
    /// Give the event in a slot to a filter unit, or say that it was [not taken](FilterFarm::not_taken) or is
    /// [too large](FilterFarm::too_large).
    Offer {
        /// Which filter unit.
        unit: u16,
        /// The event.
        slot: u32,
    },
}

/// What happened beside the decisions.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct FarmCounts {
    /// Decisions that count.
    pub decided: u64,
    /// Decisions of events that the filter unit did not have, or of an older attempt: ignored.
    pub stale: u64,
    /// Events that a filter unit had when it ended, and that went to another one.
    pub returned: u64,
    /// Events of which no decision could be had.
    pub failed: u64,
}

/// An event in the farm.
#[derive(Copy, Clone, Debug)]
struct Work {
    key: EventKey,
    attempt: Attempt,
    /// How many filter units ended over it.
    tries: u8,
    /// The last one of these.
    avoided: Option<u16>,
}

/// Gives events to filter units: see the module's picture.
#[derive(Debug)]
pub struct FilterFarm {
    units: Vec<Unit>,
    /// By slot.
    work: Box<[Option<Work>]>,
    /// To be given out, in this order.
    waiting: VecDeque<u32>,
    /// Before them: what filter units had that ended.
    again: VecDeque<u32>,
    /// No decision can be had of these.
    failed: VecDeque<u32>,
    /// The unit that is looked at first, so that equals take turns.
    next: usize,
    /// No decision is waited for any more.
    is_closed: bool,
    counts: FarmCounts,
    had: Vec<u32>,
}

impl FilterFarm {
    /// A farm whose processes are started at once.
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

    /// How many filter units there are.
    pub const fn units(&self) -> usize {
        self.units.len()
    }

    /// An event is to be decided.
    ///
    /// # Panics
    /// Where there is no such slot.
    pub fn add(&mut self, slot: u32, key: EventKey, attempt: Attempt) {
        self.work[slot as usize] = Some(Work { key, attempt, tries: 0, avoided: None });
        self.waiting.push_back(slot);
        self.settle();
    }

    /// A filter unit's process is ready.
    pub fn ready(&mut self, unit: u16) {
        self.units[usize::from(unit)].ready();
    }

    /// A filter unit takes so many events in all, counted from the begin of this life of it.
    pub fn granted(&mut self, unit: u16, events: u64) {
        self.units[usize::from(unit)].grant(events);
    }

    /// Reports the number of decisions that a filter unit has made since its process started. A unit that makes
    /// decisions does not hang, even if they have not been fetched yet.
    pub fn progressed(&mut self, now: Instant, unit: u16, decisions: u64) {
        self.units[usize::from(unit)].progressed(now, decisions);
    }

    /// A filter unit had no room for the event that it was offered last.
    pub fn not_taken(&mut self, unit: u16) {
        let unit = &mut self.units[usize::from(unit)];
        if let Some(slot) = unit.take_back() {
            unit.is_full();
            self.again.push_front(slot);
        }
    }

    /// A filter unit will never have room for the event that it was offered last, and no other one either.
    pub fn too_large(&mut self, unit: u16) {
        if let Some(slot) = self.units[usize::from(unit)].take_back() {
            self.fail(slot);
        }
    }

    /// The attempt in which the event in a slot came here; `None` for an empty slot.
    pub fn attempt_of(&self, slot: u32) -> Option<Attempt> {
        self.work.get(slot as usize).copied().flatten().map(|work| work.attempt)
    }

    /// A filter unit has decided on the event in a slot; false where that is stale, and to be ignored.
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

    /// What a filter unit says of the event that it has first cannot be true.
    pub fn disbelieve(&mut self, unit: u16) {
        self.units[usize::from(unit)].disbelieve();
    }

    /// It is certain that a filter unit's process has ended, or that it could not be started. The decisions that it made before were
    /// taken.
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

    /// A filter unit ended over an event: another one tries, once.
    fn try_in_vain(&mut self, unit: u16, slot: u32) {
        let Some(work) = &mut self.work[slot as usize] else { return };
        work.tries += 1;
        work.avoided = Some(unit);
        if work.tries >= SupervisorConfig::TRIES {
            self.fail(slot);
        } else {
            self.counts.returned += 1;
            // Behind what others only waited with it for.
            self.again.push_back(slot);
        }
    }

    fn fail(&mut self, slot: u32) {
        self.failed.push_back(slot);
        self.counts.failed += 1;
    }

    /// The run must end: filter units are ended, and of what has no decision none is waited for any more. What a process has
    /// stays where it is until it has ended for certain.
    pub fn close(&mut self) {
        if core::mem::replace(&mut self.is_closed, true) {
            return;
        }
        self.units.iter_mut().for_each(Unit::close);
        self.settle();
    }

    /// Another run begins: processes are started again.
    pub fn open(&mut self) {
        self.is_closed = false;
        self.units.iter_mut().for_each(Unit::open);
    }

    /// Where every filter unit is given up, or none is to be asked, nothing waits for one.
    fn settle(&mut self) {
        if self.is_closed || self.units.iter().all(Unit::is_given_up) {
            while let Some(slot) = self.again.pop_front().or_else(|| self.waiting.pop_front()) {
                self.fail(slot);
            }
        }
    }

    /// The next event of which no decision can be had. It leaves the farm.
    pub fn next_failed(&mut self) -> Option<u32> {
        let slot = self.failed.pop_front()?;
        self.work[slot as usize] = None;
        Some(slot)
    }

    /// What is to be done now; to be asked until there is nothing.
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

    /// The unit with credit that has the fewest events; the avoided one only where there is no other.
    fn least_loaded(&self, avoided: Option<u16>) -> Option<usize> {
        let count = self.units.len();
        let with_credit =
            (0..count).map(|step| (self.next + step) % count).filter(|&unit| self.units[unit].has_credit());
        with_credit.min_by_key(|&unit| (avoided == Some(unit as u16), self.units[unit].load()))
    }

    /// Whether no decision is waited for any more.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// When it is to be polled even if nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.units.iter().filter_map(Unit::next_deadline).min()
    }

    /// Events in it, counted from the table.
    pub fn in_work(&self) -> usize {
        self.work.iter().flatten().count()
    }

    /// The lowest key of an event in it.
    pub fn oldest(&self) -> Option<EventKey> {
        self.work.iter().flatten().map(|work| work.key).min()
    }

    /// What happened beside the decisions.
    pub const fn counts(&self) -> &FarmCounts {
        &self.counts
    }

    /// Processes that were started in the place of another one.
    pub fn restarted(&self) -> u64 {
        self.units.iter().map(Unit::restarted).sum()
    }

    /// Filter units that are ready.
    pub fn living(&self) -> usize {
        self.units.iter().filter(|unit| unit.is_ready()).count()
    }

    /// Whether a filter unit has events to decide on.
    pub fn is_busy(&self, unit: u16) -> bool {
        self.units[usize::from(unit)].load() > 0
    }

    /// Filter units that are given up.
    pub fn given_up(&self) -> usize {
        self.units.iter().filter(|unit| unit.is_given_up()).count()
    }
}

/// A filter unit.
#[derive(Debug)]
struct Unit {
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
    /// When it is being ended: how many of its decisions count, namely the earlier ones.
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

    /// How many events it has.
    fn load(&self) -> usize {
        self.has.len()
    }

    pub(super) fn ready(&mut self) {
        self.process.ready();
    }

    /// It takes so many events in all, in this life of it. Never fewer than it said before.
    fn grant(&mut self, events: u64) {
        self.granted = self.granted.max(events);
    }

    /// Takes the number of decisions since the process started, fetched or not.
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
    fn take_back(&mut self) -> Option<u32> {
        let slot = self.has.pop_back()?;
        self.given -= 1;
        self.busy = self.busy.filter(|_| self.decided < self.given);
        Some(slot)
    }

    /// It has no room: no more is offered until it says that it takes more.
    const fn is_full(&mut self) {
        self.granted = self.given;
    }

    /// How many of its decisions were taken.
    fn taken(&self) -> u64 {
        self.given - self.has.len() as u64
    }

    /// A decision of its is taken; false where it does not have that event, or is not listened to any more.
    pub(super) fn decided(&mut self, slot: u32) -> bool {
        let is_believed = self.process.is_ready() || self.taken() < self.believed;
        if !is_believed {
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
        self.process.dismiss();
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
