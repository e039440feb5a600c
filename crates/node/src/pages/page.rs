//! A node's page, as its thread writes it.

use super::label::{Label, NUMBERS, STATE_CELLS, StateCell, column, number_of};
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::ReportEntry;
use ropewalk_memory::CounterPage;
use ropewalk_terms::{Instant, RunNumber};
use std::io;
use std::path::{Path, PathBuf};

/// The page of a node. Its thread writes it, by stores that wait for nobody; none of its functions allocates or asks the system.
#[derive(Debug)]
pub struct NodePage {
    page: CounterPage,
    /// Its file.
    path: PathBuf,
    /// The sources or streams whose rows follow the node's, ascending.
    ids: Vec<u32>,
    /// Where the last one was: what is told of one comes together.
    last: usize,
}

impl NodePage {
    /// Makes the file.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn create(path: &Path, mut label: Label) -> io::Result<Self> {
        label.rows[1..].sort_by_key(|row| row.id);
        let text = serde_json::to_string(&label)?;
        let page = CounterPage::create(path, &text, label.cells())?;
        let ids = label.rows[1..].iter().map(|row| row.id).collect();
        Ok(Self { page, path: path.to_owned(), ids, last: 0 })
    }

    fn state(&self, cell: StateCell, value: u64) {
        self.page.set(cell as usize, value);
    }

    /// A turn begins. Whoever finds it there long afterwards, and no end, knows that the thread hangs in it.
    pub fn turn_begins(&self, now: Instant) {
        self.state(StateCell::Turned, now.as_nanoseconds());
        self.page.add(StateCell::Begun as usize, 1);
    }

    /// It ends, and so much was done.
    pub fn turn_ends(&self, work: usize) {
        self.page.add(StateCell::Work as usize, work as u64);
        self.page.add(StateCell::Ended as usize, 1);
    }

    /// The run, and how far it is as the node has it.
    pub fn stands(&self, run: RunNumber, phase: RunPhase) {
        self.state(StateCell::Run, run.0.into());
        self.state(StateCell::Phase, number_of(phase.name()));
    }

    /// A number of the node, or of a source or stream that it has.
    pub fn count(&mut self, entry: &ReportEntry) {
        let (Some(row), Some(column)) = (self.row(entry), column(entry)) else { return };
        self.page.set(STATE_CELLS + row * NUMBERS + column, entry.value);
    }

    /// All numbers were told.
    pub fn told(&self, now: Instant) {
        self.state(StateCell::Told, now.as_nanoseconds());
    }

    fn row(&mut self, entry: &ReportEntry) -> Option<usize> {
        let Some(owner) = entry.source else { return Some(0) };
        if self.ids.get(self.last) != Some(&owner.0) {
            self.last = self.ids.binary_search(&owner.0).ok()?;
        }
        Some(self.last + 1)
    }
}

impl Drop for NodePage {
    /// What ended in order has an account. Only what did not leaves its page behind.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // It is of no more use, also where it cannot be removed.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
