//! Acknowledgements in, releases out: the manager alone tells readout units to forget.

use super::table::{Place, Stage};
use super::{Manager, ManagerAction};
use crate::messages::{Acknowledge, Batch, Message, Release, ReleaseEntry};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Attempt, Ending, EventKey, Instant, NodeId, Outcome};

/// Events that ended and are not released yet, and the batch that is on its way to every readout unit.
#[derive(Debug, Default)]
pub(super) struct Releases {
    ended: Vec<u64>,
    batch: Release,
    /// The position of each entry's first event.
    positions: Batch<u64>,
    /// The next readout unit that gets `batch`; as many as there are when everybody has it.
    next_readout: usize,
}

impl Releases {
    /// Room for as many ended events as the table has rows.
    pub(super) fn new(capacity: usize) -> Self {
        Self { ended: Vec::with_capacity(capacity), ..Self::default() }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.ended.clear();
        self.batch.entries.clear();
    }

    /// A planted mistake, [`Flaw::ReleasedBeforeWritten`]: an event that was only just assigned is released.
    pub(super) fn release_too_early(&mut self, position: u64) {
        self.ended.push(position);
    }

    /// Whether everybody knows of everything that ended.
    pub(super) fn is_idle(&self) -> bool {
        self.ended.is_empty() && self.batch.entries.is_empty()
    }
}

impl Manager {
    /// A builder unit says that events have reached the acknowledgement level.
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

    /// The position of an event that this builder unit has in this attempt, or had and nobody else got since.
    pub(super) fn held_by(&self, builder: u16, key: EventKey, attempt: Attempt) -> Option<u64> {
        let Place::Inside(position) = self.table.find(key) else { return None };
        if position >= self.table.head() {
            return None;
        }
        let row = self.table.row(position);
        let unfinished = matches!(row.stage, Stage::Assigned | Stage::Again);
        (unfinished && row.builder == builder && row.attempt == attempt).then_some(position)
    }

    /// An event ends: into the account, and to be released.
    pub(super) fn end(&mut self, position: u64, ending: impl Into<Ending>) {
        let mut ending = ending.into();
        let row = self.table.row_mut(position);
        if row.stage == Stage::Assigned {
            self.builders[usize::from(row.builder)].in_work -= 1;
            row.stage = Stage::Again;
        }
        if row.is_repeated && ending.outcome.dropped().is_some() {
            // Each of several may have had it, one after the other.
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

    /// The next message of releases: each batch goes to every readout unit before the next is made.
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

    /// The batch as it concerns a readout unit.
    fn release_for(&self, readout: u16) -> Release {
        let Releases { batch, positions, .. } = &self.releases;
        let mut release = batch.clone();
        for (entry, &position) in release.entries.iter_mut().zip(positions) {
            entry.outcome = self.lacking.outcome_for(readout, position, entry.outcome);
        }
        release
    }

    /// Makes a batch of what has ended: ranges of consecutive keys that ended the same way for all, and single ones that
    /// some readout unit is lacking in. False if nothing has.
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

    /// Lets the window pass what is released, and whoever waits for that.
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
