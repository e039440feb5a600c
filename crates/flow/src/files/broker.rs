//! Which filter unit has which file, and when a file may be deleted.

use core::time::Duration;
use ropewalk_terms::{Attempt, Instant};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How patient a broker is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BrokerConfig {
    /// How long a filter unit may take over one file, and to ask for a file when one is ready.
    pub time_out: Duration,
    /// How often a file is tried before it is set aside, 1 or more.
    pub tries: u16,
    /// The pause before a document that could not get its name is tried again.
    pub retry: Duration,
}

impl Default for BrokerConfig {
    /// A minute for a file, three tries, a pause of half a second.
    fn default() -> Self {
        Self { time_out: Duration::from_secs(60), tries: 3, retry: Duration::from_millis(500) }
    }
}

/// A file of events.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// The lumisection of its events, counted from 1.
    pub lumisection: u32,
    /// Which of the run's files.
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
    /// Number of this try. It is part of the name of everything that the unit writes.
    pub attempt: Attempt,
}

/// What is to be done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BrokerAction {
    /// The unit is to filter this file.
    Give {
        /// Who.
        unit: UnitId,
        /// What.
        work: Work,
    },
    /// The unit takes too long with its file, or to ask for one: its connection is closed, and its process ended.
    Dismiss {
        /// Who.
        unit: UnitId,
    },
    /// Nothing comes any more: the unit may go.
    Finish {
        /// Who.
        unit: UnitId,
    },
    /// What was written for this try does not count and goes away.
    Discard {
        /// The try.
        work: Work,
    },
    /// What was written for this try counts: its document gets its name ([`Broker::committed`],
    /// [`Broker::not_committed`]).
    Commit {
        /// The try.
        work: Work,
    },
    /// Every event of the file is decided: it is deleted ([`Broker::gone`]).
    Delete {
        /// Which.
        file: FileId,
    },
    /// The file failed too often: move it aside for inspection ([`Broker::gone`]).
    SetAside {
        /// Which.
        file: FileId,
    },
}

/// What came of the files.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct BrokerCounts {
    /// Files that came.
    pub files: u64,
    /// Files whose events are all decided.
    pub decided: u64,
    /// Files that were tried too often.
    pub set_aside: u64,
    /// Files that were given back, by a unit that was lost, took too long or failed.
    pub given_back: u64,
    /// Reports of units on files that were not, or no longer, theirs.
    pub stale: u64,
}

/// Which unit has which file: see the module's picture.
#[derive(Debug)]
pub struct Broker {
    config: BrokerConfig,
    /// Files that still exist.
    files: Table,
    /// Units that want a file, the first one first.
    waiting: VecDeque<UnitId>,
    /// Units that are connected, and neither have a file nor want one; and since when.
    idle: BTreeMap<UnitId, Instant>,
    actions: VecDeque<BrokerAction>,
    is_last: bool,
    counts: BrokerCounts,
}

impl Broker {
    /// A broker of an empty directory.
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

    /// What came of the files so far.
    pub const fn counts(&self) -> BrokerCounts {
        self.counts
    }

    /// Files that are neither decided nor set aside.
    pub fn undecided(&self) -> u64 {
        self.files.undecided()
    }

    /// Whether no file comes any more, and none is left.
    pub fn is_done(&self) -> bool {
        self.is_last && self.files.is_empty()
    }

    /// A file is whole. `attempt` is the highest that something in the directory was written for, 0 where there is
    /// nothing: what there is does not count, and goes away.
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

    /// A file still exists although its document has its final name: the process that named it died before it deleted
    /// the file.
    pub fn add_decided(&mut self, file: FileId) {
        if self.files.contains(file) {
            return;
        }
        (self.counts.files, self.counts.decided) = (self.counts.files + 1, self.counts.decided + 1);
        self.files.put(file, Entry { attempt: Attempt(0), failures: 0, state: State::Leaving });
        self.actions.push_back(BrokerAction::Delete { file });
    }

    /// No file comes any more.
    pub const fn no_more_files(&mut self) {
        self.is_last = true;
    }

    /// A unit has connected.
    pub fn joined(&mut self, now: Instant, unit: UnitId) {
        self.idle.insert(unit, now);
    }

    /// A unit wants a file. It has none.
    pub fn request(&mut self, unit: UnitId) {
        self.idle.remove(&unit);
        if !self.waiting.contains(&unit) && self.files.of(unit).is_none() {
            self.waiting.push_back(unit);
        }
    }

    /// A unit has written everything for its file.
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

    /// A unit cannot filter its file, and goes on.
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

    /// A unit is gone: what it had goes to another one.
    pub fn lost(&mut self, unit: UnitId) {
        self.waiting.retain(|waiting| *waiting != unit);
        self.idle.remove(&unit);
        if let Some(file) = self.files.of(unit) {
            self.give_back(file);
        }
    }

    /// A document has its name.
    pub fn committed(&mut self, file: FileId) {
        let entry = self.files.get(file).filter(|entry| matches!(entry.state, State::Committing { .. }));
        let Some(entry) = entry else { return };
        self.files.put(file, Entry { state: State::Leaving, ..entry });
        self.counts.decided += 1;
        self.actions.push_back(BrokerAction::Delete { file });
    }

    /// A document could not get its name; that is tried again.
    pub fn not_committed(&mut self, now: Instant, file: FileId) {
        if let Some(entry @ Entry { state: State::Committing { .. }, .. }) = self.files.get(file) {
            let retry = Some(now.after(self.config.retry));
            self.files.put(file, Entry { state: State::Committing { retry }, ..entry });
        }
    }

    /// A file that was to be deleted or set aside is not there any more.
    pub fn gone(&mut self, file: FileId) {
        if self.files.get(file).is_some_and(|entry| entry.state == State::Leaving) {
            self.files.remove(file);
        }
    }

    /// What is to be done next.
    pub fn poll(&mut self, now: Instant) -> Option<BrokerAction> {
        self.actions.pop_front().or_else(|| self.time_out(now)).or_else(|| self.repeat(now)).or_else(|| self.give(now))
    }

    /// When something is to be done although nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        let late = self.files.given().chain(self.wanting()).map(|(_, since)| since.after(self.config.time_out)).min();
        late.into_iter().chain(self.files.to_repeat().map(|(_, _, retry)| retry)).min()
    }

    /// Units that should ask for a file, because one is ready and no other unit asks for it; and since when they are
    /// idle.
    fn wanting(&self) -> impl Iterator<Item = (UnitId, Instant)> {
        let is_wanted = self.waiting.is_empty() && self.files.first_ready().is_some();
        self.idle.iter().filter(move |_| is_wanted).map(|(&unit, &since)| (unit, since))
    }

    /// Dismisses a unit that has had its file for too long, or does not ask for one that is ready.
    fn time_out(&mut self, now: Instant) -> Option<BrokerAction> {
        let is_late = |since: Instant| now >= since.after(self.config.time_out);
        let (unit, _) = self.files.given().chain(self.wanting()).find(|(_, since)| is_late(*since))?;
        self.lost(unit);
        Some(BrokerAction::Dismiss { unit })
    }

    /// Tries again to give a document its name.
    fn repeat(&mut self, now: Instant) -> Option<BrokerAction> {
        let (file, entry, _) = self.files.to_repeat().find(|(_, _, retry)| now >= *retry)?;
        self.files.put(file, Entry { state: State::Committing { retry: None }, ..entry });
        Some(BrokerAction::Commit { work: Work { file, attempt: entry.attempt } })
    }

    /// Gives the first free file to the unit that has waited longest; lets units go if no more files will come.
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

    /// A file that a unit had is tried again, or set aside.
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
    /// Its document is to get its name; where that failed, again at `retry`.
    Committing { retry: Option<Instant> },
    /// It is decided, or set aside, and still there.
    Leaving,
}

#[derive(Copy, Clone, Debug)]
pub(super) struct Entry {
    /// Of the last time it was given; 0 before the first.
    pub(super) attempt: Attempt,
    /// How often it was given back. Those before this broker's time do not count: units end with a broker that dies.
    failures: u16,
    state: State,
}

/// Files by what they wait for. A unit has one file at most.
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

    /// A file comes, or has another entry from now on.
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

    /// A file is not there any more.
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

    /// Files whose documents could not get their names, and when that is tried again.
    fn to_repeat(&self) -> impl Iterator<Item = (FileId, Entry, Instant)> {
        self.committing.iter().filter_map(|&file| match self.get(file)? {
            entry @ Entry { state: State::Committing { retry }, .. } => Some((file, entry, retry?)),
            _ => None,
        })
    }
}
