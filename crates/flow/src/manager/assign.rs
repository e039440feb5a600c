//! Assignment, acknowledgement and release of events.

use super::links::BuilderLink;
use super::table::{Place, Stage};
use super::{BuilderLoad, Manager, ManagerAction};
use crate::messages::{Acknowledge, Assign, AssignEntry, Batch, Lacking, LackingEntry, Message, Release, ReleaseEntry};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Attempt, Cause, Ending, EventKey, Instant, NodeId, Outcome};
use std::collections::BTreeSet;

impl Manager {
    /// Returns the next batch of events for one builder unit, if there are events and credit.
    pub(super) fn next_assignment(&mut self, now: Instant) -> Option<ManagerAction> {
        if !self.phase.assigns() {
            return None;
        }
        let first = self.next_assignable()?;
        // Without a readout unit no data can be sent: a builder unit could only drop what another one may have written.
        if self.readouts.iter().all(|link| !link.present) {
            return None;
        }
        // Builder units learn of a lumisection before they get events of it.
        if self.begins_lumisection(first) {
            self.begin_lumisection(now);
            return None;
        }
        let bytes = self.table.row(first).bytes;
        let candidates = (0..).zip(&self.builders).filter(|(_, link)| link.has_room(bytes));
        let loads = candidates.map(|(builder, link): (u16, &BuilderLink)| BuilderLoad {
            builder,
            in_work: link.in_work,
            free_bytes: link.free_bytes(),
        });
        let builder = self.config.policy.choose(self.last_builder, loads)?;
        self.last_builder = Some(builder);
        let mut entries = Batch::new();
        while entries.len() < self.config.batch {
            let Some(position) = self.next_assignable() else { break };
            let has_room = self.builders[usize::from(builder)].has_room(self.table.row(position).bytes);
            if !has_room || self.begins_lumisection(position) {
                break;
            }
            entries.push(self.assign(position, builder));
        }
        Some(ManagerAction::Send { to: NodeId::builder(builder), message: Message::Assign(Assign { entries }) })
    }

    /// Queues every event of `builder` to be assigned again, in key order and before new events.
    pub(super) fn assign_again(&mut self, builder: u16) {
        for position in self.table.tail()..self.table.head() {
            let row = self.table.row_mut(position);
            if row.stage == Stage::Assigned && row.builder == builder && !is_planted(Flaw::LostBuilderForgotten) {
                row.stage = Stage::Again;
                self.again.push(position);
            }
        }
        // The oldest is popped first.
        self.again.sort_unstable_by(|one, other| other.cmp(one));
    }

    /// The position of the next event to assign.
    fn next_assignable(&mut self) -> Option<u64> {
        while let Some(&position) = self.again.last() {
            // The event may have ended meanwhile, and its row may now belong to another key.
            if position >= self.table.tail() && self.table.row(position).stage == Stage::Again {
                return Some(position);
            }
            self.again.pop();
        }
        self.advance_cursor();
        if self.is_paused {
            return None;
        }
        let settled = self.table.position_before(self.floor.key);
        (self.floor.cursor < settled.min(self.table.head())).then_some(self.floor.cursor)
    }

    /// Whether the event at this position, the next to assign, is the first of another lumisection.
    fn begins_lumisection(&self, position: u64) -> bool {
        position == self.floor.cursor && self.lumisections.is_full(self.config.lumisection)
    }

    /// Moves the cursor to the next settled event that waits for a builder unit, or to the end of what is settled.
    /// Events that the trigger source did not open end here.
    fn advance_cursor(&mut self) {
        let end = self.table.position_before(self.floor.key).min(self.table.head());
        let needs_trigger = self.config.trigger_readout.is_some();
        while self.floor.cursor < end {
            let position = self.floor.cursor;
            if self.table.row(position).stage == Stage::Empty {
                self.adopt_unannounced(position);
            }
            let row = self.table.row(position);
            if row.stage == Stage::Open {
                if row.triggered || !needs_trigger {
                    break;
                }
                self.end(position, Outcome::Dropped(Cause::NoTrigger));
            }
            self.floor.cursor += 1;
        }
        self.advance_watch();
    }

    /// Moves the watch to the first open row at or behind the cursor.
    pub(super) fn advance_watch(&mut self) {
        let floor = &mut self.floor;
        floor.watch = floor.watch.max(floor.cursor);
        while floor.watch < self.table.head() && self.table.row(floor.watch).stage != Stage::Open {
            floor.watch += 1;
        }
    }

    fn assign(&mut self, position: u64, builder: u16) -> AssignEntry {
        let first_attempt = self.first_attempt();
        let row = self.table.row_mut(position);
        let again = row.stage == Stage::Again;
        if !(again && is_planted(Flaw::SameAttemptAgain)) {
            row.attempt = Attempt(row.attempt.0.saturating_add(1)).max(first_attempt);
        }
        row.is_repeated = again;
        row.stage = Stage::Assigned;
        row.builder = builder;
        let entry = AssignEntry { key: row.key, bytes: row.bytes, attempt: row.attempt };
        self.builders[usize::from(builder)].assign(entry.bytes);
        if again {
            self.counts.reassigned += 1;
            self.again.pop();
        } else {
            self.account.assigned += 1;
            self.lumisections.count(entry.key);
            self.advance_cursor();
            if is_planted(Flaw::ReleasedBeforeWritten) {
                self.releases.release_too_early(position);
            }
        }
        entry
    }
}

/// Events that ended and are not released yet, and the batch that is being sent to every readout unit.
#[derive(Debug, Default)]
pub(super) struct Releases {
    ended: Vec<u64>,
    batch: Release,
    /// The position of each entry's first event.
    positions: Batch<u64>,
    /// The next readout unit that gets `batch`; the number of readout units when all have got it.
    next_readout: usize,
}

impl Releases {
    /// Creates it with room for as many ended events as the table has rows.
    pub(super) fn new(capacity: usize) -> Self {
        Self { ended: Vec::with_capacity(capacity), ..Self::default() }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.ended.clear();
        self.batch.entries.clear();
    }

    /// A planted fault, [`Flaw::ReleasedBeforeWritten`]: releases an event that was only assigned.
    fn release_too_early(&mut self, position: u64) {
        self.ended.push(position);
    }

    /// Whether every readout unit has got every release.
    pub(super) fn is_idle(&self) -> bool {
        self.ended.is_empty() && self.batch.entries.is_empty()
    }
}

impl Manager {
    /// Handles a builder unit's report that events have reached the acknowledgement level.
    pub(super) fn acknowledged(&mut self, builder: u16, acknowledge: &Acknowledge) {
        let dropped = usize::from(is_planted(Flaw::AcknowledgementDropped) && acknowledge.entries.len() > 1);
        for entry in acknowledge.entries.iter().skip(dropped) {
            match self.held_by(builder, entry.key, entry.attempt) {
                Some(position) if self.phase.is_open() => self.end(position, entry.ending),
                _ if self.acknowledged_early(builder, entry) => {}
                _ => self.counts.stale_acknowledgements += 1,
            }
        }
    }

    /// The position of an event that this builder unit has in this attempt, or had if no other unit got it later.
    fn held_by(&self, builder: u16, key: EventKey, attempt: Attempt) -> Option<u64> {
        let Place::Inside(position) = self.table.find(key) else { return None };
        if position >= self.table.head() {
            return None;
        }
        let row = self.table.row(position);
        let unfinished = matches!(row.stage, Stage::Assigned | Stage::Again);
        (unfinished && row.builder == builder && row.attempt == attempt).then_some(position)
    }

    /// Ends an event: counts it and queues it for release.
    pub(super) fn end(&mut self, position: u64, ending: impl Into<Ending>) {
        let mut ending = ending.into();
        let row = self.table.row_mut(position);
        if row.stage == Stage::Assigned {
            self.builders[usize::from(row.builder)].in_work -= 1;
            row.stage = Stage::Again;
        }
        if row.is_repeated && ending.outcome.dropped().is_some() {
            // Each of several lost units may have had it, one after the other.
            let is_lost = self.builders.iter().any(|link| link.lost.is_some());
            match self.kept.remove(&position) {
                Some(kept) => (row.builder, row.attempt, ending) = kept,
                None if is_lost && self.phase.is_open() => {
                    (row.stage, row.ending) = (Stage::Undecided, ending);
                    return self.undecided.push(position);
                }
                None => {}
            }
        }
        let stage = core::mem::replace(&mut row.stage, Stage::Done);
        row.ending = ending;
        self.lacking.settle(position, row.builder, row.key, row.attempt);
        match stage {
            Stage::Assigned | Stage::Again | Stage::Undecided => self.account.end(ending),
            Stage::Empty | Stage::Open | Stage::Done | Stage::Released => {
                if let Outcome::Dropped(cause) = ending.outcome {
                    self.counts.unassigned.add(cause, 1);
                }
            }
        }
        self.releases.ended.push(position);
    }

    /// Returns the next release message. Each batch goes to every readout unit before the next one is made.
    pub(super) fn next_release(&mut self, now: Instant) -> Option<ManagerAction> {
        loop {
            if self.releases.batch.entries.is_empty() && !self.fill_release(now) {
                return None;
            }
            while let Some(link) = self.readouts.get(self.releases.next_readout) {
                let readout = self.releases.next_readout as u16;
                self.releases.next_readout += 1;
                let is_last = self.releases.next_readout == self.readouts.len();
                if link.present && !(is_last && is_planted(Flaw::ReleaseNotToAll)) {
                    let message = Message::Release(self.release_for(readout));
                    return Some(ManagerAction::Send { to: NodeId::readout(readout), message });
                }
            }
            self.releases.batch.entries.clear();
            self.tell_ended();
            if !self.outbox.is_empty() {
                return None;
            }
        }
    }

    /// The part of the batch that one readout unit gets.
    fn release_for(&self, readout: u16) -> Release {
        let Releases { batch, positions, .. } = &self.releases;
        let mut release = batch.clone();
        for (entry, &position) in release.entries.iter_mut().zip(positions) {
            entry.outcome = self.lacking.outcome_for(readout, position, entry.outcome);
        }
        release
    }

    /// Makes a batch of ended events: ranges of consecutive keys with the same outcome for all readout units, and
    /// single keys where a readout unit's data is missing. Returns false if no event has ended.
    fn fill_release(&mut self, now: Instant) -> bool {
        if self.releases.ended.is_empty() {
            return false;
        }
        let Self { releases, table, lacking, .. } = self;
        releases.ended.sort_unstable();
        releases.next_readout = 0;
        releases.positions.clear();
        let entries = &mut releases.batch.entries;
        let (mut taken, mut is_apart) = (0, false);
        for &position in &releases.ended {
            let row = table.row_mut(position);
            let was_apart = core::mem::replace(&mut is_apart, lacking.is_any_lacking(position));
            let continues = entries.last_mut().filter(|last| {
                let is_next = last.first.plus(u64::from(last.count)) == row.key;
                is_next && last.outcome == row.ending.outcome && !was_apart && !is_apart
            });
            if let Some(last) = continues {
                last.count += 1;
            } else if entries.try_push(ReleaseEntry { first: row.key, count: 1, outcome: row.ending.outcome }).is_err()
            {
                break;
            } else {
                releases.positions.push(position);
            }
            row.stage = Stage::Released;
            taken += 1;
        }
        releases.ended.drain(..taken);
        self.move_tail(now);
        true
    }

    /// Moves the window past released events and updates what depends on it: lumisections, quiet readout units, the
    /// floor.
    pub(super) fn move_tail(&mut self, now: Instant) {
        let before = self.table.tail();
        let Self { table, ended, floor, lumisections, .. } = self;
        table.advance_tail(floor.cursor, |row| {
            lumisections.pass(row.key, ended.all());
            ended.pass(row);
        });
        if self.table.tail() == before {
            return;
        }
        let oldest = self.table.key_at(self.table.tail());
        let remembered = self.table.head().saturating_sub(self.table.capacity() as u64);
        self.lacking.forget(oldest, remembered);
        self.kept = self.kept.split_off(&self.table.tail());
        for link in &mut self.readouts {
            link.note_quiet(now, oldest);
        }
        self.raise_floor(now);
    }
}

/// The most entries that are kept; a working builder unit never reports so many.
const MOST_LACKING: usize = 1 << 20;

/// The readout units whose fragments are missing in the records of events. Builder units report them before they
/// acknowledge the events. A readout unit that holds such a fragment learns from it that no record contains the
/// fragment. Empty as long as every readout unit answers.
#[derive(Debug, Default)]
pub(super) struct LackingLog {
    /// Entries of events without an outcome, each with the builder unit that reported it.
    told: BTreeSet<(u16, LackingEntry)>,
    /// Entries of events that have ended: position and readout unit.
    known: BTreeSet<(u64, u16)>,
}

impl LackingLog {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.told.clear();
        self.known.clear();
    }

    /// Adds a builder unit's report.
    pub(super) fn tell(&mut self, builder: u16, lacking: &Lacking) {
        let room = MOST_LACKING.saturating_sub(self.told.len());
        self.told.extend(lacking.entries.iter().take(room).map(|&entry| (builder, entry)));
    }

    /// Confirms the reports on the event at a position: this builder unit finished it in this attempt.
    pub(super) fn settle(&mut self, position: u64, builder: u16, key: EventKey, attempt: Attempt) {
        if self.told.is_empty() {
            return;
        }
        let of = |readout| (builder, LackingEntry { key, attempt, readout });
        while let Some(&entry) = self.told.range(of(0)..=of(u16::MAX)).next() {
            self.told.remove(&entry);
            self.known.insert((position, entry.1.readout));
        }
    }

    /// Whether data of any readout unit is missing in the event at a position.
    fn is_any_lacking(&self, position: u64) -> bool {
        !self.known.is_empty() && self.known.range((position, 0)..=(position, u16::MAX)).next().is_some()
    }

    /// The outcome of the event at a position for what this readout unit holds of it.
    pub(super) fn outcome_for(&self, readout: u16, position: u64, outcome: Outcome) -> Outcome {
        let is_lacking = || self.known.contains(&(position, readout));
        if !matches!(outcome, Outcome::Dropped(_)) && is_lacking() {
            Outcome::Dropped(Cause::BuiltWithout)
        } else {
            outcome
        }
    }

    /// Removes the entries of earlier events.
    fn forget(&mut self, key: EventKey, position: u64) {
        if !self.told.is_empty() {
            self.told.retain(|(_, entry)| entry.key >= key);
        }
        while self.known.first().is_some_and(|&(first, _)| first < position) {
            self.known.pop_first();
        }
    }
}
