//! What was written in each lumisection, and which ones may be closed.

use crate::file_based::documents::{EndOfLumisection, EndOfRun};
use ropewalk_terms::flaws::{Flaw, is_planted};
use std::collections::{BTreeMap, BTreeSet};

/// What all builder units made of a lumisection.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LumisectionTotal {
    /// Events that they wrote.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
}

/// One that is not closed yet.
#[derive(Debug, Default)]
struct Open {
    written: EndOfLumisection,
    /// Files that have no name yet.
    unnamed: u32,
    /// No event of it comes any more.
    total: Option<LumisectionTotal>,
}

/// The lumisections of a run.
#[derive(Debug, Default)]
pub(super) struct Lumisections {
    open: BTreeMap<u32, Open>,
    closed: BTreeSet<u32>,
    run: EndOfRun,
}

impl Lumisections {
    /// A file is begun.
    pub(super) fn begin_file(&mut self, lumisection: u32) {
        self.open.entry(lumisection).or_default().unnamed += 1;
    }

    /// A file has its name.
    pub(super) fn file_written(&mut self, lumisection: u32, events: u64, bytes: u64) {
        let open = self.open.entry(lumisection).or_default();
        open.unnamed = open.unnamed.saturating_sub(1);
        open.written.events += events;
        open.written.files += 1;
        open.written.bytes += bytes;
    }

    /// A life before closed it, and wrote so much in it.
    pub(super) fn closed_before(&mut self, lumisection: u32, written: &EndOfLumisection) {
        self.open.remove(&lumisection);
        self.add(lumisection, written);
    }

    /// No event of it comes any more. Told twice it is closed once.
    pub(super) fn close(&mut self, lumisection: u32, total: LumisectionTotal) {
        if !self.closed.contains(&lumisection) {
            self.open.entry(lumisection).or_default().total = Some(total);
        }
    }

    /// Whether no event of it comes any more.
    pub(super) fn is_over(&self, lumisection: u32) -> bool {
        self.open.get(&lumisection).is_none_or(|open| open.total.is_some())
    }

    /// No event of any comes any more. Of those that nobody has closed this builder unit knows its own events alone.
    pub(super) fn close_all(&mut self) {
        for open in self.open.values_mut() {
            let events = open.written.events;
            open.total.get_or_insert(LumisectionTotal { events, lost: 0 });
        }
    }

    /// The first one that no event comes for and whose files all have their names, with what was written in it.
    pub(super) fn next_to_close(&self) -> Option<(u32, EndOfLumisection)> {
        let is_ready = |open: &Open| open.unnamed == 0 || is_planted(Flaw::EndBeforeItsFiles);
        let (&lumisection, open) = self.open.iter().find(|(_, open)| open.total.is_some() && is_ready(open))?;
        let LumisectionTotal { events, lost } = open.total?;
        Some((lumisection, EndOfLumisection { total_events: events, lost_events: lost, ..open.written }))
    }

    /// Its document is being written.
    pub(super) fn closed(&mut self, lumisection: u32) {
        if let Some(open) = self.open.remove(&lumisection) {
            self.add(lumisection, &open.written);
        }
    }

    fn add(&mut self, lumisection: u32, written: &EndOfLumisection) {
        self.closed.insert(lumisection);
        self.run.events += written.events;
        self.run.files += written.files;
        self.run.lumisections += u64::from(written.files > 0);
        self.run.last_lumisection = self.run.last_lumisection.max(lumisection.into());
    }

    /// What was written in the run, once every lumisection is closed.
    pub(super) fn end_of_run(&self) -> Option<EndOfRun> {
        self.open.is_empty().then_some(self.run)
    }
}
