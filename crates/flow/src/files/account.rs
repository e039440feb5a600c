//! What came of the events in files.

use ropewalk_terms::Imbalance;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_wire::run_file::StreamName;
use std::collections::BTreeMap;

/// What went to a stream, and how long its files are.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamCounts {
    /// Accepted events that it was to have, by their triggers or trigger type.
    pub selected: u64,
    /// Those that its prescale left out.
    pub prescaled_away: u64,
    /// Those in its files.
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
    /// Those that they accepted.
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
            let is_first = !self.streams.contains_key(&name);
            let sum = self.streams.entry(name).or_default();
            if is_first || !is_planted(Flaw::StreamOfFirstFileAlone) {
                sum.add(counts);
            }
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
