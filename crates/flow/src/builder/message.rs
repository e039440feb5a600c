//! Messages between the event manager and a builder unit: assignments, credit, acknowledgements, and what is not
//! released yet.

use super::Builder;
use super::machine::{Observer, Told};
use super::slots::Stage;
use crate::messages::{
    Acknowledge, AcknowledgeEntry, AssignEntry, BATCH, Batch, Credit, Lacking, LackingEntry, Message, Setting,
    Unreleased, UnreleasedEntry,
};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Attempt, Cause, Ending, EventAccount, EventKey, Instant, Outcome, Parameter};

impl Builder {
    /// A message of the event manager has come.
    pub fn message(&mut self, now: Instant, message: &Message) {
        match message {
            Message::Start(_) => self.start(),
            Message::Assign(assign) => {
                for entry in &assign.entries {
                    self.assigned(now, entry);
                }
            }
            Message::ReadoutState(state) => self.readout_state(now, state.readout, state.present),
            Message::Lumisection(begun) => self.lumisections.begin(*begun),
            Message::LumisectionEnd(end) if self.lumisections.end(end) => self.ended_lumisections.push_back(*end),
            Message::LumisectionEnd(_) => {}
            Message::Recover => {
                self.telling = Some(Told::default());
                (0..self.recent.len()).for_each(|place| self.tell_lacking(place));
                self.lumisections_due = self.lumisections.told().collect();
            }
            Message::Set(setting) => self.set(*setting),
            Message::Finish => self.finish(),
            _ => self.counts.refused_messages += 1,
        }
    }

    /// A parameter has another value from now on; those of other nodes change nothing here.
    const fn set(&mut self, setting: Setting) {
        match setting.parameter {
            Parameter::BuilderTimeout => self.config.event_timeout = setting.time(),
            Parameter::UnreachableTimeout => self.config.unreachable_timeout = setting.time(),
            _ => {}
        }
    }

    /// A connection to the event manager begins: credit is counted anew, without what is still in work.
    pub fn manager_connected(&mut self, _now: Instant) {
        let held = self.slots.iter().filter(|(_, slot)| slot.holds_payloads);
        let bytes = held.map(|(_, slot)| u64::from(slot.bytes)).sum();
        self.used_before = Credit { events: self.slots.in_work() as u64, bytes };
        self.freed_before = self.freed;
        self.credit_due = true;
    }

    /// Returns the next message for the event manager.
    pub(super) fn next_message(&mut self) -> Option<Message> {
        if let Some(message) = self.lumisections_due.pop_front() {
            return Some(message);
        }
        if !self.lacking.is_empty() {
            let count = self.lacking.len().min(BATCH);
            return Some(Message::Lacking(Lacking { entries: self.lacking.drain(..count).collect() }));
        }
        if let Some(told) = self.telling {
            return Some(Message::Unreleased(self.tell_unreleased(told)));
        }
        if !self.acknowledgements.is_empty() {
            let count = self.acknowledgements.len().min(BATCH);
            let entries: Batch<AcknowledgeEntry> = self.acknowledgements.drain(..count).collect();
            return Some(Message::Acknowledge(Acknowledge { level: self.config.level, entries }));
        }
        if let Some(change) = self.observer.as_mut().and_then(Observer::next_change) {
            return Some(Message::Synchrony(change));
        }
        if self.paused.is_some() || !core::mem::take(&mut self.credit_due) {
            return None;
        }
        Some(Message::Credit(self.credit()))
    }

    /// Returns the credit granted since the connection began: the credit that was free then, and the credit freed
    /// since.
    fn credit(&self) -> Credit {
        let grant = |freed: u64, before: u64, all: u64, used: u64| (freed - before + all).saturating_sub(used);
        Credit {
            events: grant(
                self.freed.events,
                self.freed_before.events,
                self.slots.len() as u64,
                self.used_before.events,
            ),
            bytes: grant(self.freed.bytes, self.freed_before.bytes, self.config.credit_bytes, self.used_before.bytes),
        }
    }

    /// Lists the events in work, then the recent acknowledgements, from where the last message ended.
    fn tell_unreleased(&mut self, mut told: Told) -> Unreleased {
        let mut entries: Batch<UnreleasedEntry> = Batch::new();
        let first = told.slots;
        for (number, slot) in self.slots.iter().filter(|&(number, _)| number >= first) {
            if entries.is_full() {
                break;
            }
            told.slots = number + 1;
            if !slot.acknowledged {
                entries.push(UnreleasedEntry { key: slot.key, attempt: slot.attempt, ending: None });
            }
        }
        let in_work = entries.len();
        entries.extend(self.recent.from(told.recent).take(BATCH - in_work));
        told.recent += entries.len() - in_work;
        let more = entries.is_full();
        self.telling = more.then_some(told);
        Unreleased { entries, more }
    }

    /// Starts a run: no event of the last run is in work any more. Events that are still being written keep their
    /// slots.
    fn start(&mut self) {
        self.abandon();
        for number in 0..self.slots.len() as u32 {
            let slot = self.slots.at_mut(number);
            if slot.stage == Stage::Emitted {
                (slot.stage, slot.acknowledged) = (Stage::Leftover, true);
            }
        }
        self.recent.clear();
        self.lumisections.clear();
        self.lumisections_due.clear();
        self.ended_lumisections.clear();
        self.acknowledgements.clear();
        self.lacking.clear();
        self.ledger = EventAccount::default();
        self.counts = super::BuilderCounts::default();
        self.mismatches.fill(0);
        self.displaced.fill(0);
        for peer in &mut self.peers {
            peer.present = true;
        }
        (self.stop_run, self.stop_said, self.telling) = (None, false, None);
        if let Some(observer) = &mut self.observer {
            observer.restart();
        }
        self.resume();
    }

    /// Ends the run. After an orderly end nothing is left; emitted events may still be written.
    fn finish(&mut self) {
        self.abandon();
        if let Some(observer) = &mut self.observer {
            observer.conclude();
        }
    }

    /// Drops events that are being collected or ready.
    fn abandon(&mut self) {
        self.ready.clear();
        for number in 0..self.slots.len() as u32 {
            let slot = *self.slots.at(number);
            if !matches!(slot.stage, Stage::Collecting | Stage::Ready) {
                continue;
            }
            if !slot.acknowledged {
                self.ledger.incomplete_dropped.add(Cause::ForcedStop, 1);
            }
            self.slots.await_none(number);
            if slot.holds_payloads {
                self.drop_payloads(&[number]);
            }
            self.give_back(number);
        }
        for peer in &mut self.peers {
            peer.to_request.clear();
            (peer.awaited, peer.deadline) = (0, None);
        }
    }

    /// Handles the assignment of an event that is in work or done, after its manager had lost this builder. The event
    /// is not built again, and the credit that the manager considers used is granted again. Returns whether it is such
    /// an event.
    pub(super) fn assigned_again(&mut self, entry: &AssignEntry) -> bool {
        match self.hints.get(entry.key) {
            Some(Whereabouts::Slot(number)) => {
                let slot = self.slots.at_mut(number);
                if slot.key != entry.key || matches!(slot.stage, Stage::Free | Stage::Leftover) {
                    return false;
                }
                if entry.attempt > slot.attempt {
                    slot.attempt = entry.attempt;
                    self.grant_again(entry);
                }
            }
            Some(Whereabouts::Recent(place)) => {
                let Some(recent) = self.recent.get_mut(place).filter(|recent| recent.key == entry.key) else {
                    return false;
                };
                if entry.attempt > recent.attempt
                    && let Some(ending) = recent.ending
                {
                    recent.attempt = entry.attempt;
                    let AssignEntry { key, attempt, .. } = *entry;
                    self.tell_lacking(place);
                    self.acknowledgements.push_back(AcknowledgeEntry { key, attempt, ending });
                    self.grant_again(entry);
                }
            }
            None => return false,
        }
        self.counts.repeated_assignments += 1;
        true
    }

    fn grant_again(&mut self, entry: &AssignEntry) {
        self.freed.events += 1;
        self.freed.bytes += u64::from(entry.bytes);
        self.credit_due = true;
    }

    /// Ends the event in a slot: counts it, acknowledges it, and remembers it.
    pub(super) fn acknowledge(&mut self, number: u32) {
        let slot = self.slots.at_mut(number);
        slot.acknowledged = true;
        let (key, attempt, ending) = (slot.key, slot.attempt, Ending { outcome: slot.outcome, verdict: slot.verdict });
        self.ledger.end(ending);
        self.acknowledgements.push_back(AcknowledgeEntry { key, attempt, ending });
        let lacking = self.slots.lacking(number);
        let is_lacking = lacking.is_some();
        let place = self.recent.note(key, attempt, ending, lacking);
        self.hints.set(key, Whereabouts::Recent(place));
        if is_lacking {
            self.tell_lacking(place);
        }
    }

    /// Tells the event manager which readout units an event lacks, before its outcome.
    fn tell_lacking(&mut self, place: usize) {
        let Self { recent, lacking, .. } = self;
        let Some(&mut UnreleasedEntry { key, attempt, ending: Some(ending) }) = recent.get_mut(place) else { return };
        if !matches!(ending.outcome, Outcome::Dropped(_)) {
            lacking.extend(recent.lacking(place).map(|readout| LackingEntry { key, attempt, readout }));
        }
    }

    /// Drops the payloads of these slots, each of which holds some.
    pub(super) fn drop_payloads(&mut self, numbers: &[u32]) {
        self.freed.bytes += numbers.iter().map(|&number| u64::from(self.slots.at(number).bytes)).sum::<u64>();
        self.slots.drop_payloads(numbers);
        self.credit_due |= !numbers.is_empty();
    }

    pub(super) fn give_back(&mut self, number: u32) {
        self.freed.events += u64::from(!is_planted(Flaw::CreditForgotten));
        self.freed.events += u64::from(is_planted(Flaw::CreditDoubled));
        self.slots.give_back(number);
        self.credit_due = true;
    }
}

/// The last acknowledgements. A new event manager gets them, because it cannot know what its predecessor released:
/// events that ended since its last release messages to the readout units, and events in work. Releases are in the
/// order of keys, so a whole table of events may have ended behind one unfinished event; all of them fit here.
#[derive(Debug)]
pub(super) struct Recent {
    entries: Vec<UnreleasedEntry>,
    /// For each entry one bit per readout unit: set if the event was built without it.
    lacking: Box<[u64]>,
    words: usize,
    capacity: usize,
    next: usize,
}

impl Recent {
    /// Keeps the last `capacity` acknowledgements of events from this many readout units.
    pub(super) fn new(capacity: usize, readouts: u16) -> Self {
        let words = usize::from(readouts).div_ceil(64);
        let lacking = vec![0; capacity * words].into_boxed_slice();
        Self { entries: Vec::with_capacity(capacity), lacking, words, capacity, next: 0 }
    }

    /// Clears all entries.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.next = 0;
    }

    /// Replaces the oldest acknowledgement, and returns its place. `lacking` has one bit per readout unit, set if the
    /// event was built without it.
    pub(super) fn note(&mut self, key: EventKey, attempt: Attempt, ending: Ending, lacking: Option<&[u64]>) -> usize {
        let entry = UnreleasedEntry { key, attempt, ending: Some(ending) };
        let place = self.next;
        self.next = (self.next + 1) % self.capacity;
        match self.entries.get_mut(place) {
            Some(oldest) => *oldest = entry,
            None => self.entries.push(entry),
        }
        let words = &mut self.lacking[place * self.words..][..self.words];
        match lacking {
            Some(lacking) => words.copy_from_slice(lacking),
            None => words.fill(0),
        }
        place
    }

    /// Returns the readout units that the event at a place was built without.
    pub(super) fn lacking(&self, place: usize) -> impl Iterator<Item = u16> {
        let words = self.lacking[place * self.words..][..self.words].iter().zip((0..).step_by(64));
        // In the common case no bit is set, and this runs once per event.
        let words = words.filter(|(word, _)| **word != 0);
        words.flat_map(|(word, first)| (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| first + bit))
    }

    /// Returns the acknowledgement at a place.
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut UnreleasedEntry> {
        self.entries.get_mut(place)
    }

    /// Returns the number of entries.
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns all entries, starting at a place, in ring order.
    pub(super) fn from(&self, place: usize) -> impl Iterator<Item = UnreleasedEntry> {
        self.entries.iter().skip(place).copied()
    }
}

/// Last known location of a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Whereabouts {
    /// In this slot.
    Slot(u32),
    /// At this place among the recent acknowledgements.
    Recent(usize),
}

/// Hints for the location of keys, by their lowest bits. Another key may overwrite a hint: the reader compares the key,
/// and a lost hint costs no more than building an event twice.
#[derive(Debug)]
pub(super) struct Hints(Box<[Option<Whereabouts>]>);

impl Hints {
    /// Creates hints for events in `slots` slots and as many recent ones.
    pub(super) fn new(slots: usize) -> Self {
        Self(vec![None; (4 * slots).next_power_of_two()].into_boxed_slice())
    }

    /// Returns the possible location of the key.
    pub(super) fn get(&self, key: EventKey) -> Option<Whereabouts> {
        self.0[self.place(key)]
    }

    /// Sets the location of the key.
    pub(super) fn set(&mut self, key: EventKey, whereabouts: Whereabouts) {
        let place = self.place(key);
        self.0[place] = Some(whereabouts);
    }

    fn place(&self, key: EventKey) -> usize {
        key.number() as usize & (self.0.len() - 1)
    }
}
