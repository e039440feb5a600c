//! The files that are there, and what each waits for: found at once, however many there are.

use super::broker::{FileId, UnitId};
use ropewalk_terms::{Attempt, Instant};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
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
pub(super) struct Entry {
    /// Of the last time it was given; 0 before the first.
    pub(super) attempt: Attempt,
    /// How often it was given back. Those before this broker's time do not count: units end with a broker that dies.
    pub(super) failures: u16,
    pub(super) state: State,
}

/// Files by what they wait for. A unit has one file at most.
#[derive(Debug, Default)]
pub(super) struct Table {
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

    pub(super) fn get(&self, file: FileId) -> Option<Entry> {
        self.files.get(&file).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Files that are neither decided nor set aside.
    pub(super) fn undecided(&self) -> u64 {
        self.files.len() as u64 - self.leaving
    }

    /// A file comes, or has another entry from now on.
    pub(super) fn put(&mut self, file: FileId, entry: Entry) {
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

    /// The first file that nobody has.
    pub(super) fn first_ready(&self) -> Option<(FileId, Entry)> {
        let &file = self.ready.first()?;
        Some((file, self.get(file)?))
    }

    /// The file that a unit has.
    pub(super) fn of(&self, unit: UnitId) -> Option<FileId> {
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
    pub(super) fn to_repeat(&self) -> impl Iterator<Item = (FileId, Entry, Instant)> {
        self.committing.iter().filter_map(|&file| match self.get(file)? {
            entry @ Entry { state: State::Committing { retry }, .. } => Some((file, entry, retry?)),
            _ => None,
        })
    }
}
