//! Adds up what filter units made of files, and closes lumisections.

use super::account::{Decided, LumisectionAccount};
use super::broker::FileId;
use ropewalk_terms::Imbalance;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::run_file::StreamName;
use std::collections::{BTreeMap, BTreeSet};

/// A lumisection of whose events it is known what became of all of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Which.
    pub lumisection: u32,
    /// What became of it.
    pub account: LumisectionAccount,
    /// How much was written in it.
    pub written: Written,
}

impl Closed {
    /// What does not hold, and of which stream: as many files and events came out of it as were written, and its streams add up.
    pub fn imbalances(&self) -> impl Iterator<Item = (Option<StreamName>, Imbalance)> {
        let Self { account, written, .. } = self;
        let events = account.decided.processed + account.set_aside;
        let whole = [
            Imbalance {
                equation: "files written = files decided or set aside",
                left: written.files,
                right: account.files,
            },
            Imbalance { equation: "events written = processed + set aside", left: written.events, right: events },
        ];
        let wrong = whole.into_iter().filter(|Imbalance { left, right, .. }| left != right);
        wrong.map(|imbalance| (None, imbalance)).chain(account.decided.imbalances())
    }
}

/// How much was written.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Files.
    pub files: u64,
    /// Events in them.
    pub events: u64,
}

#[derive(Debug, Default)]
struct Open {
    account: LumisectionAccount,
    /// Files that are in the account.
    files: BTreeSet<u32>,
    /// Once all its files are there.
    written: Option<Written>,
}

/// Adds up lumisections. It may be told things in any order, and twice.
#[derive(Debug, Default)]
pub struct Merger {
    open: BTreeMap<u32, Open>,
    closed: BTreeSet<u32>,
    total: LumisectionAccount,
}

impl Merger {
    /// All lumisections that are closed, together.
    pub const fn total(&self) -> &LumisectionAccount {
        &self.total
    }

    /// Lumisections of which something is still missing: which, how many files of it are decided or set aside, and how much was
    /// written, once all its files are there.
    pub fn open_lumisections(&self) -> impl Iterator<Item = (u32, u64, Option<Written>)> {
        self.open.iter().map(|(&lumisection, open)| (lumisection, open.files.len() as u64, open.written))
    }

    /// So much was written in a lumisection: no more of it comes.
    pub fn written(&mut self, lumisection: u32, written: Written) {
        if let Some(open) = self.open(lumisection) {
            open.written = Some(written);
        }
    }

    /// What came of a file.
    pub fn decided(&mut self, file: FileId, account: &Decided) {
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
        let Open { account, written, .. } = self.open.remove(&lumisection)?;
        self.closed.insert(lumisection);
        self.total.add(&account);
        Some(Closed { lumisection, account, written: written.unwrap_or_default() })
    }

    /// None where it is closed already.
    fn open(&mut self, lumisection: u32) -> Option<&mut Open> {
        (!self.closed.contains(&lumisection)).then(|| self.open.entry(lumisection).or_default())
    }
}
