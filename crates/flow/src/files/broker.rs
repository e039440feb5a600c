//! Which filter unit has which file, and when a file may be deleted.

use core::time::Duration;
use ropewalk_terms::{Attempt, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The time-outs of a broker.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BrokerConfig {
    /// How long a filter unit may take for one file, and to request a file when one is ready.
    pub time_out: Duration,
    /// How often a file is tried before it is set aside, at least 1.
    pub tries: u16,
    /// The pause before the broker tries again to rename a document.
    pub retry: Duration,
}

impl Default for BrokerConfig {
    /// One minute for a file, three tries, a pause of half a second.
    fn default() -> Self {
        Self { time_out: Duration::from_secs(60), tries: 3, retry: Duration::from_millis(500) }
    }
}

/// A file of events.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// The lumisection of its events, counted from 1.
    pub lumisection: u32,
    /// The index of the file within the run.
    pub index: u32,
}

/// A filter unit, for as long as its connection lasts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UnitId(pub u32);

/// A file that is given to a filter unit, for the first time (attempt 1) or again.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Work {
    /// The file.
    pub file: FileId,
    /// The number of this try. It is part of the name of everything that the unit writes.
    pub attempt: Attempt,
}

/// An action for the caller.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BrokerAction {
    /// Give this file to the unit to filter.
    Give {
        /// The unit.
        unit: UnitId,
        /// The file and try.
        work: Work,
    },
    /// The unit takes too long for its file, or to request one: close its connection and end its process.
    Dismiss {
        /// The unit.
        unit: UnitId,
    },
    /// No more files come: the unit may exit.
    Finish {
        /// The unit.
        unit: UnitId,
    },
    /// Remove what was written for this try: it does not count.
    Discard {
        /// The try.
        work: Work,
    },
    /// Give the document of this try its final name: what was written for it counts ([`Broker::committed`],
    /// [`Broker::not_committed`]).
    Commit {
        /// The try.
        work: Work,
    },
    /// Delete the file: every event of it is decided ([`Broker::gone`]).
    Delete {
        /// The file.
        file: FileId,
    },
    /// Move the file aside for inspection: it failed too often ([`Broker::gone`]).
    SetAside {
        /// The file.
        file: FileId,
    },
}

/// Counts of files by outcome.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct BrokerCounts {
    /// Files that were added.
    pub files: u64,
    /// Files whose events are all decided.
    pub decided: u64,
    /// Files that failed too often.
    pub set_aside: u64,
    /// Files given back because a unit was lost, took too long or failed.
    pub given_back: u64,
    /// Reports of units on files that were not theirs, or no longer theirs.
    pub stale: u64,
}

/// Knows which unit has which file: see the module's diagram.
#[derive(Debug)]
pub struct Broker {
    config: BrokerConfig,
    /// Files that still exist.
    files: Table,
    /// Units that requested a file, the oldest request first.
    waiting: VecDeque<UnitId>,
    /// Connected units without a file or a request, and since when.
    idle: BTreeMap<UnitId, Instant>,
    actions: VecDeque<BrokerAction>,
    is_last: bool,
    counts: BrokerCounts,
}

impl Broker {
    /// Creates a broker of an empty directory.
    pub fn new(config: BrokerConfig) -> Self {
        Self {
            config,
            files: Table::default(),
            waiting: VecDeque::new(),
            idle: BTreeMap::new(),
            actions: VecDeque::new(),
            is_last: false,
            counts: BrokerCounts::default(),
        }
    }

    /// The counts so far.
    pub const fn counts(&self) -> BrokerCounts {
        self.counts
    }

    /// Files that are neither decided nor set aside.
    pub fn undecided(&self) -> u64 {
        self.files.undecided()
    }

    /// Whether no more files come and none is left.
    pub fn is_done(&self) -> bool {
        self.is_last && self.files.is_empty()
    }

    /// Adds a complete file. `attempt` is the highest attempt with output in the directory, 0 if there is none. Such
    /// output does not count and is removed.
    pub fn add(&mut self, file: FileId, attempt: Attempt) {
        if self.files.contains(file) {
            return;
        }
        self.counts.files += 1;
        self.files.put(file, Entry { attempt, failures: 0, state: State::Ready });
        (1..=attempt.0).map(Attempt).for_each(|attempt| {
            self.actions.push_back(BrokerAction::Discard { work: Work { file, attempt } });
        });
    }

    /// Adds a file whose document already has its final name: the process that renamed it died before it deleted the
    /// file.
    pub fn add_decided(&mut self, file: FileId) {
        if self.files.contains(file) {
            return;
        }
        (self.counts.files, self.counts.decided) = (self.counts.files + 1, self.counts.decided + 1);
        self.files.put(file, Entry { attempt: Attempt(0), failures: 0, state: State::Leaving });
        self.actions.push_back(BrokerAction::Delete { file });
    }

    /// Records that no more files come.
    pub const fn no_more_files(&mut self) {
        self.is_last = true;
    }

    /// Records that a unit has connected.
    pub fn joined(&mut self, now: Instant, unit: UnitId) {
        self.idle.insert(unit, now);
    }

    /// Handles a unit's request for a file. The unit has none.
    pub fn request(&mut self, unit: UnitId) {
        self.idle.remove(&unit);
        if !self.waiting.contains(&unit) && self.files.of(unit).is_none() {
            self.waiting.push_back(unit);
        }
    }

    /// Records that a unit has written everything for its file.
    pub fn done(&mut self, now: Instant, unit: UnitId, work: Work) {
        match self.files.get(work.file) {
            Some(entry @ Entry { attempt, state: State::Given { unit: one, .. }, .. })
                if (attempt, one) == (work.attempt, unit) =>
            {
                self.idle.insert(unit, now);
                self.files.put(work.file, Entry { state: State::Committing { retry: None }, ..entry });
                self.actions.push_back(BrokerAction::Commit { work });
            }
            _ => self.counts.stale += 1,
        }
    }

    /// Records that a unit cannot filter its file and continues.
    pub fn failed(&mut self, now: Instant, unit: UnitId, work: Work) {
        match self.files.get(work.file) {
            Some(Entry { attempt, state: State::Given { unit: one, .. }, .. })
                if (one, attempt) == (unit, work.attempt) =>
            {
                self.idle.insert(unit, now);
                self.give_back(work.file);
            }
            _ => self.counts.stale += 1,
        }
    }

    /// Records the loss of a unit: another one gets its file.
    pub fn lost(&mut self, unit: UnitId) {
        self.waiting.retain(|waiting| *waiting != unit);
        self.idle.remove(&unit);
        if let Some(file) = self.files.of(unit) {
            self.give_back(file);
        }
    }

    /// Records that a document has its final name.
    pub fn committed(&mut self, file: FileId) {
        let entry = self.files.get(file).filter(|entry| matches!(entry.state, State::Committing { .. }));
        let Some(entry) = entry else { return };
        self.files.put(file, Entry { state: State::Leaving, ..entry });
        self.counts.decided += 1;
        self.actions.push_back(BrokerAction::Delete { file });
    }

    /// Records that a document could not be renamed; the broker tries again.
    pub fn not_committed(&mut self, now: Instant, file: FileId) {
        if let Some(entry @ Entry { state: State::Committing { .. }, .. }) = self.files.get(file) {
            let retry = Some(now.after(self.config.retry));
            self.files.put(file, Entry { state: State::Committing { retry }, ..entry });
        }
    }

    /// Records that a file that was to be deleted or set aside no longer exists.
    pub fn gone(&mut self, file: FileId) {
        if self.files.get(file).is_some_and(|entry| entry.state == State::Leaving) {
            self.files.remove(file);
        }
    }

    /// Returns the next action.
    pub fn poll(&mut self, now: Instant) -> Option<BrokerAction> {
        self.actions.pop_front().or_else(|| self.time_out(now)).or_else(|| self.repeat(now)).or_else(|| self.give(now))
    }

    /// When [`Broker::poll`] must be called without further input.
    pub fn next_deadline(&self) -> Option<Instant> {
        let late = self.files.given().chain(self.wanting()).map(|(_, since)| since.after(self.config.time_out)).min();
        late.into_iter().chain(self.files.to_repeat().map(|(_, _, retry)| retry)).min()
    }

    /// Units that should request a file, because one is ready and no other unit requests it, and since when they are
    /// idle.
    fn wanting(&self) -> impl Iterator<Item = (UnitId, Instant)> {
        let is_wanted = self.waiting.is_empty() && self.files.first_ready().is_some();
        self.idle.iter().filter(move |_| is_wanted).map(|(&unit, &since)| (unit, since))
    }

    /// Dismisses a unit that has had its file for too long, or does not request one that is ready.
    fn time_out(&mut self, now: Instant) -> Option<BrokerAction> {
        let is_late = |since: Instant| now >= since.after(self.config.time_out);
        let (unit, _) = self.files.given().chain(self.wanting()).find(|(_, since)| is_late(*since))?;
        self.lost(unit);
        Some(BrokerAction::Dismiss { unit })
    }

    /// Tries again to rename a document.
    fn repeat(&mut self, now: Instant) -> Option<BrokerAction> {
        let (file, entry, _) = self.files.to_repeat().find(|(_, _, retry)| now >= *retry)?;
        self.files.put(file, Entry { state: State::Committing { retry: None }, ..entry });
        Some(BrokerAction::Commit { work: Work { file, attempt: entry.attempt } })
    }

    /// Gives the first free file to the oldest request; dismisses units if no more files will come.
    fn give(&mut self, now: Instant) -> Option<BrokerAction> {
        let &unit = self.waiting.front()?;
        if let Some((file, entry)) = self.files.first_ready() {
            self.waiting.pop_front();
            let attempt = Attempt(entry.attempt.0 + 1);
            self.files.put(file, Entry { attempt, state: State::Given { unit, since: now }, ..entry });
            return Some(BrokerAction::Give { unit, work: Work { file, attempt } });
        }
        if !self.is_last || self.undecided() > 0 {
            return None;
        }
        self.waiting.pop_front();
        Some(BrokerAction::Finish { unit })
    }

    /// Makes a unit's file available again, or sets it aside.
    fn give_back(&mut self, file: FileId) {
        let Some(mut entry) = self.files.get(file) else { return };
        self.counts.given_back += 1;
        entry.failures += 1;
        self.actions.push_back(BrokerAction::Discard { work: Work { file, attempt: entry.attempt } });
        if entry.failures < self.config.tries {
            entry.state = State::Ready;
        } else {
            entry.state = State::Leaving;
            self.counts.set_aside += 1;
            self.actions.push_back(BrokerAction::SetAside { file });
        }
        self.files.put(file, entry);
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// No unit has it.
    Ready,
    /// A unit has it.
    Given { unit: UnitId, since: Instant },
    /// Its document is being renamed; after a failure, again at `retry`.
    Committing { retry: Option<Instant> },
    /// It is decided or set aside, and still exists.
    Leaving,
}

#[derive(Copy, Clone, Debug)]
pub(super) struct Entry {
    /// The attempt of the last time it was given; 0 before the first.
    pub(super) attempt: Attempt,
    /// How often it was given back. Earlier brokers do not count: units end with their broker.
    failures: u16,
    state: State,
}

/// Files by state. A unit has at most one file.
#[derive(Debug, Default)]
struct Table {
    files: BTreeMap<FileId, Entry>,
    ready: BTreeSet<FileId>,
    given: BTreeMap<UnitId, FileId>,
    committing: BTreeSet<FileId>,
    leaving: u64,
}

impl Table {
    pub(super) fn contains(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    fn get(&self, file: FileId) -> Option<Entry> {
        self.files.get(&file).copied()
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Files that are neither decided nor set aside.
    pub(super) fn undecided(&self) -> u64 {
        self.files.len() as u64 - self.leaving
    }

    /// Adds a file, or replaces its entry.
    fn put(&mut self, file: FileId, entry: Entry) {
        self.remove(file);
        self.files.insert(file, entry);
        match entry.state {
            State::Ready => drop(self.ready.insert(file)),
            State::Given { unit, .. } => drop(self.given.insert(unit, file)),
            State::Committing { .. } => drop(self.committing.insert(file)),
            State::Leaving => self.leaving += 1,
        }
    }

    /// Removes a file.
    pub(super) fn remove(&mut self, file: FileId) {
        let Some(entry) = self.files.remove(&file) else { return };
        match entry.state {
            State::Ready => drop(self.ready.remove(&file)),
            State::Given { unit, .. } => drop(self.given.remove(&unit)),
            State::Committing { .. } => drop(self.committing.remove(&file)),
            State::Leaving => self.leaving -= 1,
        }
    }

    /// The first file that no unit has.
    fn first_ready(&self) -> Option<(FileId, Entry)> {
        let &file = self.ready.first()?;
        Some((file, self.get(file)?))
    }

    /// The file that a unit has.
    fn of(&self, unit: UnitId) -> Option<FileId> {
        self.given.get(&unit).copied()
    }

    /// Files that units have, and since when.
    pub(super) fn given(&self) -> impl Iterator<Item = (UnitId, Instant)> {
        self.given.iter().filter_map(|(&unit, &file)| match self.get(file)?.state {
            State::Given { since, .. } => Some((unit, since)),
            _ => None,
        })
    }

    /// Files whose documents could not be renamed, and when to try again.
    fn to_repeat(&self) -> impl Iterator<Item = (FileId, Entry, Instant)> {
        self.committing.iter().filter_map(|&file| match self.get(file)? {
            entry @ Entry { state: State::Committing { retry }, .. } => Some((file, entry, retry?)),
            _ => None,
        })
    }
}
