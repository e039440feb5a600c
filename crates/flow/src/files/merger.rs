//! Adds up what filter units made of files, and closes lumisections.

use super::account::{FileAccount, LumisectionAccount};
use super::broker::FileId;
use ropewalk_terms::flaws::{Flaw, is_planted};
use std::collections::{BTreeMap, BTreeSet};

/// A lumisection of whose events it is known what became of all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Which.
    pub lumisection: u32,
    /// What became of it.
    pub account: LumisectionAccount,
    /// Whether as many events came out of its files as were written into them.
    pub is_balanced: bool,
}

/// How much was written.
#[derive(Copy, Clone, Debug)]
struct Written {
    files: u64,
    events: u64,
}

#[derive(Debug)]
struct Open {
    account: LumisectionAccount,
    /// Files that are in the account.
    files: BTreeSet<u32>,
    /// Once all its files are there.
    written: Option<Written>,
}

/// Adds up lumisections. It may be told things in any order, and twice.
#[derive(Debug)]
pub struct Merger {
    streams: usize,
    open: BTreeMap<u32, Open>,
    closed: BTreeSet<u32>,
    total: LumisectionAccount,
}

impl Merger {
    /// Of a run with so many streams.
    pub fn new(streams: usize) -> Self {
        Self { streams, open: BTreeMap::new(), closed: BTreeSet::new(), total: LumisectionAccount::new(streams) }
    }

    /// All lumisections that are closed, together.
    pub const fn total(&self) -> &LumisectionAccount {
        &self.total
    }

    /// Lumisections of which something is still missing.
    pub fn open_lumisections(&self) -> impl Iterator<Item = u32> {
        self.open.keys().copied()
    }

    /// A lumisection has so many files with so many events: no more of them come.
    pub fn written(&mut self, lumisection: u32, files: u64, events: u64) {
        if let Some(open) = self.open(lumisection) {
            open.written = Some(Written { files, events });
        }
    }

    /// What came of a file.
    pub fn decided(&mut self, file: FileId, account: &FileAccount) {
        if let Some(open) = self.open(file.lumisection)
            && (open.files.insert(file.index) || is_planted(Flaw::FileAddedTwice))
        {
            open.account.add_file(account);
        }
    }

    /// A file with so many events was set aside.
    pub fn set_aside(&mut self, file: FileId, events: u64) {
        if let Some(open) = self.open(file.lumisection)
            && open.files.insert(file.index)
        {
            open.account.files += 1;
            open.account.set_aside += events;
        }
    }

    /// The first lumisection that can be closed; each once.
    pub fn poll(&mut self) -> Option<Closed> {
        let is_whole = |open: &Open| open.written.is_some_and(|written| open.files.len() as u64 >= written.files);
        let (&lumisection, _) = self.open.iter().find(|(_, open)| is_whole(open))?;
        let Open { account, files, written } = self.open.remove(&lumisection)?;
        self.closed.insert(lumisection);
        self.total.add(&account);
        let came_out = Some((files.len() as u64, account.processed + account.set_aside));
        let is_balanced = came_out == written.map(|written| (written.files, written.events));
        Some(Closed { lumisection, account, is_balanced })
    }

    /// None where it is closed already.
    fn open(&mut self, lumisection: u32) -> Option<&mut Open> {
        if self.closed.contains(&lumisection) {
            return None;
        }
        let streams = self.streams;
        let empty = || Open { account: LumisectionAccount::new(streams), files: BTreeSet::new(), written: None };
        Some(self.open.entry(lumisection).or_insert_with(empty))
    }
}
