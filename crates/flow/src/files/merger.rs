//! Accounts of the events in files.

use super::broker::FileId;
use ropewalk_terms::Imbalance;
use ropewalk_wire::run_file::StreamName;
use std::collections::{BTreeMap, BTreeSet};

/// Account of a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts {
    /// Accepted events that it selected, by their triggers or trigger type.
    pub selected: u64,
    /// Events that its prescale left out.
    pub prescaled_away: u64,
    /// Events in its files.
    pub written: u64,
    /// Size of these files in bytes.
    pub bytes: u64,
}

impl StreamCounts {
    /// Adds another account.
    pub const fn add(&mut self, other: &Self) {
        self.selected += other.selected;
        self.prescaled_away += other.prescaled_away;
        self.written += other.written;
        self.bytes += other.bytes;
    }
}

/// The decisions of filter units on the events of one file or of several.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decided {
    /// Events that they processed: all events in the files.
    pub processed: u64,
    /// Events that they accepted.
    pub accepted: u64,
    /// The account of each stream. An accepted event may go to several streams, or to none.
    pub streams: BTreeMap<StreamName, StreamCounts>,
}

impl Decided {
    /// Adds the account of other files.
    pub fn add(&mut self, other: &Self) {
        self.processed += other.processed;
        self.accepted += other.accepted;
        for (&name, counts) in &other.streams {
            self.streams.entry(name).or_default().add(counts);
        }
    }

    /// Returns violated equations, with their stream: each selected event was left out by the prescale or is written,
    /// and only accepted events were selected.
    pub fn imbalances(&self) -> impl Iterator<Item = (Option<StreamName>, Imbalance)> {
        let (processed, accepted) = (self.processed, self.accepted);
        let whole = Imbalance { equation: "accepted <= processed", left: accepted, right: processed };
        let streams =
            self.streams.iter().flat_map(move |(&name, &StreamCounts { selected, prescaled_away, written, .. })| {
                let right = prescaled_away + written;
                let sum = Imbalance { equation: "selected = prescaled away + written", left: selected, right };
                let most = Imbalance { equation: "selected <= accepted", left: selected, right: accepted };
                let wrong = [(selected != right).then_some(sum), (selected > accepted).then_some(most)];
                wrong.into_iter().flatten().map(move |imbalance| (Some(name), imbalance))
            });
        (accepted > processed).then_some((None, whole)).into_iter().chain(streams)
    }
}

/// The account of a lumisection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LumisectionAccount {
    /// Files of events.
    pub files: u64,
    /// Events in files that were set aside.
    pub set_aside: u64,
    /// Decisions on the events in the other files.
    pub decided: Decided,
}

impl LumisectionAccount {
    /// Adds the account of a file.
    pub fn add_file(&mut self, file: &Decided) {
        self.files += 1;
        self.decided.add(file);
    }

    /// Adds the account of another lumisection.
    pub fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.set_aside += other.set_aside;
        self.decided.add(&other.decided);
    }
}

/// A lumisection whose events are all accounted for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Its number.
    pub lumisection: u32,
    /// Its account.
    pub account: LumisectionAccount,
    /// What was written for it.
    pub written: Written,
}

impl Closed {
    /// Returns violated equations, with their stream: as many files and events are accounted for as were written, and
    /// the streams add up.
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

/// Numbers of written files and events.
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
    /// What was written, once all its files exist.
    written: Option<Written>,
}

/// Adds up lumisections. Reports may come in any order, and twice.
#[derive(Debug, Default)]
pub struct Merger {
    open: BTreeMap<u32, Open>,
    closed: BTreeSet<u32>,
    total: LumisectionAccount,
}

impl Merger {
    /// Returns the sum of all closed lumisections.
    pub const fn total(&self) -> &LumisectionAccount {
        &self.total
    }

    /// Returns the incomplete lumisections: the number, the files that are decided or set aside, and what was written,
    /// once all files exist.
    pub fn open_lumisections(&self) -> impl Iterator<Item = (u32, u64, Option<Written>)> {
        self.open.iter().map(|(&lumisection, open)| (lumisection, open.files.len() as u64, open.written))
    }

    /// Records what was written in a lumisection: nothing more of it comes.
    pub fn written(&mut self, lumisection: u32, written: Written) {
        if let Some(open) = self.open(lumisection) {
            open.written = Some(written);
        }
    }

    /// Records the account of a file.
    pub fn decided(&mut self, file: FileId, account: &Decided) {
        if let Some(open) = self.open(file.lumisection)
            && open.files.insert(file.index)
        {
            open.account.add_file(account);
        }
    }

    /// Records that a file with this many events was set aside.
    pub fn set_aside(&mut self, file: FileId, events: u64) {
        if let Some(open) = self.open(file.lumisection)
            && open.files.insert(file.index)
        {
            open.account.files += 1;
            open.account.set_aside += events;
        }
    }

    /// Returns the first lumisection that can be closed, each once.
    pub fn poll(&mut self) -> Option<Closed> {
        let is_whole = |open: &Open| open.written.is_some_and(|written| open.files.len() as u64 >= written.files);
        let (&lumisection, _) = self.open.iter().find(|(_, open)| is_whole(open))?;
        let Open { account, written, .. } = self.open.remove(&lumisection)?;
        self.closed.insert(lumisection);
        self.total.add(&account);
        Some(Closed { lumisection, account, written: written.unwrap_or_default() })
    }

    /// Returns an open lumisection; `None` if it is closed already.
    fn open(&mut self, lumisection: u32) -> Option<&mut Open> {
        (!self.closed.contains(&lumisection)).then(|| self.open.entry(lumisection).or_default())
    }
}
