//! Which file is with whom, and when it may be deleted.

use super::config::BrokerConfig;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Attempt, Instant};
use std::collections::{BTreeMap, VecDeque};

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
    /// The how manieth try it is. It stands in the name of everything that the unit writes.
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
    /// The unit takes too long: its connection is closed, and its process ended.
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
    /// What was written for this try counts: its document gets its name ([`Broker::committed`], [`Broker::not_committed`]).
    Commit {
        /// The try.
        work: Work,
    },
    /// Every event of the file is decided: it is deleted ([`Broker::gone`]).
    Delete {
        /// Which.
        file: FileId,
    },
    /// The file was tried too often: it is moved to where somebody can look at it ([`Broker::gone`]).
    SetAside {
        /// Which.
        file: FileId,
    },
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    /// Nobody has it.
    Ready,
    /// A unit has it.
    Given { unit: UnitId, since: Instant },
    /// Its document is to get its name; where that failed, again at `retry`.
    Committing { retry: Option<Instant> },
    /// It is decided, or set aside, and still there.
    Leaving,
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    /// Of the last time it was given; 0 before the first.
    attempt: Attempt,
    /// How often it was given back. Those before this broker's time do not count: units end with a broker that dies.
    failures: u16,
    state: State,
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
    /// What units told of a file that was not, or no longer, theirs.
    pub stale: u64,
}

/// Who has which file: see the module's picture.
#[derive(Debug)]
pub struct Broker {
    config: BrokerConfig,
    /// Those that are still there.
    files: BTreeMap<FileId, Entry>,
    /// Units that want a file, the first one first.
    waiting: VecDeque<UnitId>,
    actions: VecDeque<BrokerAction>,
    is_last: bool,
    counts: BrokerCounts,
}

impl Broker {
    /// A broker of an empty directory.
    pub fn new(config: BrokerConfig) -> Self {
        Self {
            config,
            files: BTreeMap::new(),
            waiting: VecDeque::new(),
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
        self.files.values().filter(|entry| entry.state != State::Leaving).count() as u64
    }

    /// Whether no file comes any more, and none is left.
    pub fn is_done(&self) -> bool {
        self.is_last && self.files.is_empty()
    }

    /// A file is whole. `attempt` is the highest that something in the directory was written for, 0 where there is nothing:
    /// what there is does not count, and goes away.
    pub fn add(&mut self, file: FileId, attempt: Attempt) {
        if self.files.contains_key(&file) {
            return;
        }
        self.counts.files += 1;
        self.files.insert(file, Entry { attempt, failures: 0, state: State::Ready });
        (1..=attempt.0).map(Attempt).for_each(|attempt| {
            self.actions.push_back(BrokerAction::Discard { work: Work { file, attempt } });
        });
    }

    /// A file is still there although its document has its name: whoever gave it that did not live to delete the file.
    pub fn add_decided(&mut self, file: FileId) {
        if self.files.contains_key(&file) {
            return;
        }
        (self.counts.files, self.counts.decided) = (self.counts.files + 1, self.counts.decided + 1);
        self.files.insert(file, Entry { attempt: Attempt(0), failures: 0, state: State::Leaving });
        self.actions.push_back(BrokerAction::Delete { file });
    }

    /// No file comes any more.
    pub const fn no_more_files(&mut self) {
        self.is_last = true;
    }

    /// A unit wants a file. It has none.
    pub fn request(&mut self, unit: UnitId) {
        if !self.waiting.contains(&unit) && self.file_of(unit).is_none() {
            self.waiting.push_back(unit);
        }
    }

    /// A unit has written everything for its file.
    pub fn done(&mut self, unit: UnitId, work: Work) {
        let is_any = is_planted(Flaw::StaleResultCommitted);
        match self.files.get_mut(&work.file) {
            Some(Entry { attempt, state: state @ State::Given { .. }, .. })
                if is_any
                    || (*attempt == work.attempt
                        && matches!(*state, State::Given { unit: one, .. } if one == unit)) =>
            {
                *state = State::Committing { retry: None };
                if is_planted(Flaw::DeletedBeforeCommitted) {
                    self.actions.push_back(BrokerAction::Delete { file: work.file });
                }
                self.actions.push_back(BrokerAction::Commit { work });
            }
            _ => self.counts.stale += 1,
        }
    }

    /// A unit cannot filter its file, and lives on.
    pub fn failed(&mut self, unit: UnitId, work: Work) {
        match self.files.get(&work.file) {
            Some(&Entry { attempt, state: State::Given { unit: one, .. }, .. })
                if (one, attempt) == (unit, work.attempt) =>
            {
                self.give_back(work.file);
            }
            _ => self.counts.stale += 1,
        }
    }

    /// A unit is gone: what it had goes to another one.
    pub fn lost(&mut self, unit: UnitId) {
        self.waiting.retain(|waiting| *waiting != unit);
        if let Some(file) = self.file_of(unit).filter(|_| !is_planted(Flaw::LostFileForgotten)) {
            self.give_back(file);
        }
    }

    /// A document has its name.
    pub fn committed(&mut self, file: FileId) {
        let Some(entry) = self.files.get_mut(&file).filter(|entry| matches!(entry.state, State::Committing { .. }))
        else {
            return;
        };
        entry.state = State::Leaving;
        self.counts.decided += 1;
        self.actions.push_back(BrokerAction::Delete { file });
    }

    /// A document could not get its name; that is tried again.
    pub fn not_committed(&mut self, now: Instant, file: FileId) {
        if let Some(Entry { state: State::Committing { retry }, .. }) = self.files.get_mut(&file) {
            *retry = Some(now.after(self.config.retry));
        }
    }

    /// A file that was to be deleted or set aside is not there any more.
    pub fn gone(&mut self, file: FileId) {
        if self.files.get(&file).is_some_and(|entry| entry.state == State::Leaving) {
            self.files.remove(&file);
        }
    }

    /// What is to be done next.
    pub fn poll(&mut self, now: Instant) -> Option<BrokerAction> {
        self.actions.pop_front().or_else(|| self.time_out(now)).or_else(|| self.repeat(now)).or_else(|| self.give(now))
    }

    /// When something is to be done although nothing happens.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadline = |entry: &Entry| match entry.state {
            State::Given { since, .. } => Some(since.after(self.config.time_out)),
            State::Committing { retry } => retry,
            State::Ready | State::Leaving => None,
        };
        self.files.values().filter_map(deadline).min()
    }

    /// Ends the patience with a unit that has had its file for too long.
    fn time_out(&mut self, now: Instant) -> Option<BrokerAction> {
        let late = self.files.values().find_map(|entry| match entry.state {
            State::Given { unit, since } if now >= since.after(self.config.time_out) => Some(unit),
            _ => None,
        })?;
        self.lost(late);
        Some(BrokerAction::Dismiss { unit: late })
    }

    /// Tries again to give a document its name.
    fn repeat(&mut self, now: Instant) -> Option<BrokerAction> {
        self.files.iter_mut().find_map(|(&file, entry)| match &mut entry.state {
            State::Committing { retry } if retry.is_some_and(|retry| now >= retry) => {
                *retry = None;
                Some(BrokerAction::Commit { work: Work { file, attempt: entry.attempt } })
            }
            _ => None,
        })
    }

    /// Gives the first file that nobody has to the unit that has waited longest; lets units go when there will be none.
    fn give(&mut self, now: Instant) -> Option<BrokerAction> {
        let &unit = self.waiting.front()?;
        let ready = self.files.iter_mut().find(|(_, entry)| entry.state == State::Ready);
        if let Some((&file, entry)) = ready {
            self.waiting.pop_front();
            entry.attempt = Attempt(entry.attempt.0 + 1);
            entry.state = State::Given { unit, since: now };
            return Some(BrokerAction::Give { unit, work: Work { file, attempt: entry.attempt } });
        }
        if !self.is_last || self.undecided() > 0 {
            return None;
        }
        self.waiting.pop_front();
        Some(BrokerAction::Finish { unit })
    }

    fn file_of(&self, unit: UnitId) -> Option<FileId> {
        let is_its = |entry: &Entry| matches!(entry.state, State::Given { unit: one, .. } if one == unit);
        self.files.iter().find(|(_, entry)| is_its(entry)).map(|(&file, _)| file)
    }

    /// A file that a unit had is tried again, or set aside.
    fn give_back(&mut self, file: FileId) {
        let Some(entry) = self.files.get_mut(&file) else { return };
        self.counts.given_back += 1;
        entry.failures += 1;
        self.actions.push_back(BrokerAction::Discard { work: Work { file, attempt: entry.attempt } });
        if entry.failures < self.config.tries {
            entry.state = State::Ready;
            return;
        }
        entry.state = State::Leaving;
        self.counts.set_aside += 1;
        self.actions.push_back(BrokerAction::SetAside { file });
    }
}
