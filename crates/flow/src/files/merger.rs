//! What came of the events in files.

use super::broker::FileId;
use ropewalk_terms::Imbalance;
use ropewalk_wire::run_file::StreamName;
use std::collections::{BTreeMap, BTreeSet};

/// What went to a stream, and how long its files are.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts {
    /// Accepted events that it was to have, by their triggers or trigger type.
    pub selected: u64,
    /// Events that its prescale left out.
    pub prescaled_away: u64,
    /// Events in its files.
    pub written: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

impl StreamCounts {
    /// Adds others.
    pub const fn add(&mut self, other: &Self) {
        self.selected += other.selected;
        self.prescaled_away += other.prescaled_away;
        self.written += other.written;
        self.bytes += other.bytes;
    }
}

/// What filter units made of events: of one file, or of several.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decided {
    /// Events that they looked at: all that are in the files.
    pub processed: u64,
    /// Events that they accepted.
    pub accepted: u64,
    /// What went to each stream. An accepted event may go to several, and to none.
    pub streams: BTreeMap<StreamName, StreamCounts>,
}

impl Decided {
    /// Adds what came of other files.
    pub fn add(&mut self, other: &Self) {
        self.processed += other.processed;
        self.accepted += other.accepted;
        for (&name, counts) in &other.streams {
            self.streams.entry(name).or_default().add(counts);
        }
    }

    /// What does not hold, and of which stream: each selected event was left out by the prescale or is written, and nothing was
    /// selected that was not accepted.
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

/// What became of a lumisection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LumisectionAccount {
    /// Files of events.
    pub files: u64,
    /// Events in files that were set aside.
    pub set_aside: u64,
    /// What was made of the events in the others.
    pub decided: Decided,
}

impl LumisectionAccount {
    /// Adds what came of a file.
    pub fn add_file(&mut self, file: &Decided) {
        self.files += 1;
        self.decided.add(file);
    }

    /// Adds another lumisection's.
    pub fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.set_aside += other.set_aside;
        self.decided.add(&other.decided);
    }
}

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

/// Adds up lumisections. Reports may come in any order, and twice.
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
            && open.files.insert(file.index)
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

    /// `None` if it is closed already.
    fn open(&mut self, lumisection: u32) -> Option<&mut Open> {
        (!self.closed.contains(&lumisection)).then(|| self.open.entry(lumisection).or_default())
    }
}
