//! The writer's side of a page: the label at its head, which names the writer and the meaning of each cell; the numbers
//! after it; and the directory of pages.

use super::reading::PageReading;
use ropewalk_flow::control::RunPhase;
use ropewalk_flow::messages::ReportEntry;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_memory::CounterPage;
use ropewalk_terms::{
    CAUSES, COUNTERS, Cause, Counter, CounterKind, Incarnation, Instant, RunNumber, SourceId, StreamIndex, Unit, Utc,
};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Version of the label's format and of the first cells. The label itself lists the numbers.
const FORM: &str = "ropewalk-counters-1";

/// Number of state cells before the first row: two cache lines, which the numbers do not share.
pub(super) const STATE_CELLS: usize = 16;

/// Meaning of a state cell.
#[derive(Copy, Clone, Debug)]
pub(super) enum StateCell {
    /// When the last turn began, in nanoseconds of the machine's monotonic clock; 0 before the first.
    Turned,
    /// Number of turns that began.
    Begun,
    /// Number of turns that ended.
    Ended,
    /// Amount of work of all turns.
    Work,
    /// When all numbers were last published, by the same clock.
    Told,
    /// The run number.
    Run,
    /// The phase of the run: the index of a name in the label.
    Phase,
}

/// The owner of a row's numbers.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerKind {
    /// The node itself.
    Node,
    /// A source of the node.
    Source,
    /// A stream, as the node has it.
    Stream,
}

/// A row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnerLabel {
    /// Whose it is.
    pub of: OwnerKind,
    /// The source's id, or the stream's index.
    pub id: u32,
    /// Its name, where it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

impl OwnerLabel {
    /// Returns the row of a source.
    pub const fn source(id: SourceId) -> Self {
        Self { of: OwnerKind::Source, id: id.0, name: String::new() }
    }

    /// Returns the row of a stream.
    pub fn stream(index: StreamIndex, name: &str) -> Self {
        Self { of: OwnerKind::Stream, id: u32::from(index.0), name: name.to_owned() }
    }
}

/// A number that every row has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NumberLabel {
    /// Its stable name. A number by cause has the prefix `dropped:`, `missing:` or `lost:` before the cause.
    pub name: String,
    /// Its unit: `count`, `bytes`, `nanoseconds`.
    pub unit: String,
    /// Whether it is a current level, which may fall.
    pub level: bool,
    /// Whether the sum over several rows is meaningful.
    pub adds_up: bool,
}

/// The role of a node with a page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PageRole {
    /// A readout unit.
    Readout,
    /// A builder unit.
    Builder,
    /// An event manager.
    Manager,
    /// A gateway, or a thread of one.
    Gateway,
}

impl PageRole {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Readout, Self::Builder, Self::Manager, Self::Gateway];

    /// Returns the stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Readout => "readout",
            Self::Builder => "builder",
            Self::Manager => "manager",
            Self::Gateway => "gateway",
        }
    }
}

/// The head of a page, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Label {
    /// The format version.
    pub form: String,
    /// The version of the program that writes it.
    pub program: String,
    /// The node's name; if two threads share its work, with that of the thread.
    pub node: String,
    /// The name of its [`PageRole`].
    pub role: String,
    /// The parent of its run directories.
    pub output: String,
    /// The process id.
    pub pid: u32,
    /// The incarnation of the node.
    pub incarnation: u64,
    /// Civil time when the monotonic clock stood at zero, in nanoseconds since 1970.
    pub utc_at_zero_ns: i64,
    /// The names of phases, by their number.
    pub phases: Vec<String>,
    /// The rows; the first one is the node's own.
    pub rows: Vec<OwnerLabel>,
    /// The numbers of each row.
    pub numbers: Vec<NumberLabel>,
}

/// Phases, in the order of their numbers.
pub(super) const PHASES: [&str; 5] = ["initial", "configured", "running", "draining", "ended"];

/// Returns the number of a phase on a page.
pub(super) fn number_of(phase: &str) -> u64 {
    PHASES.iter().position(|name| *name == phase).unwrap_or_default() as u64
}

/// Count of the numbers of every row: each counter, and the dropped, missing and lost fragments for each cause.
pub(super) const NUMBERS: usize = Counter::COUNT + 3 * Cause::COUNT;

/// Returns the column of an entry in a row; `None` if pages do not have it.
pub(super) fn column(entry: &ReportEntry) -> Option<usize> {
    let by_cause = |part: usize, cause: Cause| Counter::COUNT + part * Cause::COUNT + cause as usize;
    entry
        .as_counter()
        .map(|counter| counter as usize)
        .or_else(|| entry.as_cause().map(|cause| by_cause(0, cause)))
        .or_else(|| entry.as_missing().map(|cause| by_cause(1, cause)))
        .or_else(|| entry.as_lost().map(|cause| by_cause(2, cause)))
}

/// Returns the numbers of every row, in order.
fn numbers() -> Vec<NumberLabel> {
    let counters = COUNTERS.iter().map(|counter| NumberLabel {
        name: counter.name().to_owned(),
        unit: counter.unit().name().to_owned(),
        level: counter.kind() != CounterKind::Total,
        adds_up: counter.kind() != CounterKind::State,
    });
    let unit = Unit::Count.name();
    let by_cause =
        ["dropped", "missing", "lost"].into_iter().flat_map(|what| CAUSES.iter().map(move |cause| (what, cause)));
    let by_cause = by_cause.map(|(what, cause)| NumberLabel {
        name: format!("{what}:{}", cause.name()),
        unit: unit.to_owned(),
        level: false,
        adds_up: true,
    });
    counters.chain(by_cause).collect()
}

/// The node of a label.
#[derive(Copy, Clone, Debug)]
pub(super) struct Who<'a> {
    pub(super) node: &'a str,
    pub(super) role: PageRole,
    pub(super) output: &'a str,
    pub(super) incarnation: Incarnation,
    pub(super) utc_at_zero_ns: i64,
}

impl Label {
    /// Creates the label of a page of this program, with rows for the node and these owners.
    pub(super) fn new(who: Who<'_>, rows: impl IntoIterator<Item = OwnerLabel>) -> Self {
        let own = OwnerLabel { of: OwnerKind::Node, id: 0, name: String::new() };
        Self {
            form: FORM.to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            node: who.node.to_owned(),
            role: who.role.name().to_owned(),
            output: who.output.to_owned(),
            pid: std::process::id(),
            incarnation: who.incarnation.0,
            utc_at_zero_ns: who.utc_at_zero_ns,
            phases: PHASES.map(str::to_owned).to_vec(),
            rows: std::iter::once(own).chain(rows).collect(),
            numbers: numbers(),
        }
    }

    /// Returns the number of cells of its page.
    pub(super) const fn cells(&self) -> usize {
        STATE_CELLS + self.rows.len() * self.numbers.len()
    }

    /// Reads a label, and checks it against the number of cells of the page.
    ///
    /// # Errors
    /// A description of the problem.
    pub(super) fn read(text: &str, cells: usize) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            form: String,
        }
        let damaged = |error: serde_json::Error| format!("its label is damaged ({error})");
        let Form { form } = serde_json::from_str(text).map_err(damaged)?;
        if form != FORM {
            return Err(format!(
                "it has the form `{form}`, and this program reads `{FORM}`: read it with the program that wrote it"
            ));
        }
        let label: Self = serde_json::from_str(text).map_err(damaged)?;
        if label.rows.first().is_none_or(|row| row.of != OwnerKind::Node) || label.cells() != cells {
            return Err(format!("it is damaged: {cells} cells are not those of its label"));
        }
        Ok(label)
    }
}

/// The page of a node. Its thread writes it by stores that never wait. No function allocates or makes a system call.
#[derive(Debug)]
pub struct NodePage {
    page: CounterPage,
    /// Its file.
    path: PathBuf,
    /// The sources or streams whose rows follow the node's, ascending.
    ids: Vec<u32>,
    /// The index of the last owner: entries of one owner follow each other.
    last: usize,
}

impl NodePage {
    /// Creates the file.
    ///
    /// # Errors
    /// The error of the system.
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

    /// Begins a turn. A page with a beginning long ago and no end shows that the thread hangs in the turn.
    pub fn turn_begins(&self, now: Instant) {
        self.state(StateCell::Turned, now.as_nanoseconds());
        self.page.add(StateCell::Begun as usize, 1);
    }

    /// Ends a turn with this amount of work.
    pub fn turn_ends(&self, work: usize) {
        self.page.add(StateCell::Work as usize, work as u64);
        self.page.add(StateCell::Ended as usize, 1);
    }

    /// Sets the run and its phase as the node has it.
    pub fn stands(&self, run: RunNumber, phase: RunPhase) {
        self.state(StateCell::Run, run.0.into());
        self.state(StateCell::Phase, number_of(phase.name()));
    }

    /// Sets a number of the node, or of one of its sources or streams.
    pub fn count(&mut self, entry: &ReportEntry) {
        let (Some(row), Some(column)) = (self.row(entry), column(entry)) else { return };
        self.page.set(STATE_CELLS + row * NUMBERS + column, entry.value);
    }

    /// Records that all numbers are up to date.
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
    /// A node that ended in order has an account. Only one that did not leaves its page.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // It is useless, even if it cannot be removed.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Directory in memory that every Linux has, and that is empty after a restart of the machine.
const SHARED_MEMORY: &str = "/dev/shm";
/// Prefix of the directories in it, before the user's number.
const BEGIN: &str = "ropewalk-";
/// Extension of page names.
const END: &str = "page";
/// Time for which the page of an ended process is kept, unless its node starts again.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Returns the default directory of pages of this user's nodes.
fn usual_directory() -> PathBuf {
    Path::new(SHARED_MEMORY).join(format!("{BEGIN}{}", rustix::process::geteuid().as_raw()))
}

/// Returns the default directories of pages of all users' nodes on this machine.
pub fn usual_directories() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(BEGIN)) && path.is_dir()
    };
    let mut found: Vec<_> = entries.map(|entry| entry.path()).filter(is_one).collect();
    found.sort();
    found
}

/// The directory in which nodes of this process create their pages. A failure is reported once, and the nodes run
/// without pages.
#[derive(Debug)]
pub struct PageDirectory {
    /// `None` if no pages are wanted, or if they cannot be made.
    path: RefCell<Option<PathBuf>>,
    /// The pages that existed when it was opened.
    before: Vec<PathBuf>,
    /// The output directory of the runs.
    output: String,
    incarnation: Incarnation,
    trouble: RefCell<Option<String>>,
}

/// Where nodes have their pages of numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PagesChoice {
    /// In the machine's shared memory, if it has any.
    #[default]
    Usual,
    /// Nowhere.
    Nowhere,
    /// In this directory.
    In(PathBuf),
}

impl PageDirectory {
    /// Makes the directory if it is missing, and removes pages that were left behind more than a day ago.
    pub fn open(choice: &PagesChoice, output: &Path, incarnation: Incarnation) -> Self {
        let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned()).display().to_string();
        let mut opened =
            Self { path: RefCell::new(None), before: Vec::new(), output, incarnation, trouble: RefCell::new(None) };
        let path = match choice {
            PagesChoice::Nowhere => return opened,
            // Pages are a default, not a request: without shared memory there are none.
            PagesChoice::Usual if !Path::new(SHARED_MEMORY).is_dir() => return opened,
            PagesChoice::Usual => usual_directory(),
            PagesChoice::In(path) => path.clone(),
        };
        let made = DirBuilder::new().mode(0o755).recursive(true).create(&path);
        match made {
            Ok(()) => {
                opened.before = without_old(&path, MonotonicClock.utc());
                opened.path = RefCell::new(Some(path));
            }
            Err(error) => opened.fail(&path, &error),
        }
        opened
    }

    /// Creates the page of a node, with rows for the node and these owners; `None` if that fails. The page replaces
    /// those of earlier incarnations of the node.
    pub fn page(&self, node: &str, role: PageRole, rows: impl IntoIterator<Item = OwnerLabel>) -> Option<NodePage> {
        let directory = self.path.borrow().clone()?;
        let names = self.names_begin(node);
        // There may be hundreds of left-over pages. Read only pages that can be this node's.
        let has_such_a_name =
            |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&names));
        for path in self.before.iter().filter(has_such_a_name) {
            let page = PageReading::read(path).ok();
            let is_former = |page: &PageReading| page.label().node == node && page.label().output == self.output;
            // If it cannot be removed there are two pages, and each names its owner.
            page.filter(is_former).into_iter().for_each(|page| drop(page.remove_if_left()));
        }
        let (now, utc) = (MonotonicClock.now(), MonotonicClock.utc());
        let utc_at_zero_ns = utc.0 - now.as_nanoseconds() as i64;
        let who = Who { node, role, output: &self.output, incarnation: self.incarnation, utc_at_zero_ns };
        // No other process of the machine and no other incarnation has this name.
        let path = directory.join(format!("{names}{}-{:x}.{END}", std::process::id(), self.incarnation.0));
        NodePage::create(&path, Label::new(who, rows)).inspect_err(|error| self.fail(&path, error)).ok()
    }

    /// Returns the common prefix of the names of a node's pages in all its incarnations: the node, and a checksum of
    /// the output directory.
    fn names_begin(&self, node: &str) -> String {
        format!("{node}-{:08x}-", ropewalk_kernels::crc32c(0, self.output.as_bytes()))
    }

    /// Returns why pages cannot be written, if so. The caller reports it once, and nodes run without pages.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    fn fail(&self, path: &Path, error: &io::Error) {
        let text = format!(
            "{}: {error}. Nodes have no page of numbers (`ropewalk counters`), and the run goes on without; [monitor] pages \
             names another directory, or \"none\"",
            path.display()
        );
        self.trouble.borrow_mut().get_or_insert(text);
        *self.path.borrow_mut() = None;
    }
}

/// Lists the pages in a directory. Pages whose writer has been gone for too long are removed.
fn without_old(directory: &Path, now: Utc) -> Vec<PathBuf> {
    let mut pages = pages_in(directory).unwrap_or_default();
    // A page of another user cannot be removed, which is harmless.
    pages.retain(|path| !is_old(path, now) || std::fs::remove_file(path).is_err());
    pages
}

/// Returns whether the writing process is gone and its thread had its last turn too long ago. A recently modified page
/// is not even read.
fn is_old(path: &Path, now: Utc) -> bool {
    let written = path.metadata().and_then(|known| known.modified()).ok();
    if written.and_then(|written| written.elapsed().ok()).is_none_or(|age| age < KEPT) {
        return false;
    }
    let Ok(page) = PageReading::read(path) else { return false };
    // A page without a turn was created when its incarnation began.
    let last = page.turned_utc().unwrap_or(Utc(page.label().incarnation as i64));
    let age = Duration::from_nanos(now.0.saturating_sub(last.0).max(0) as u64);
    !page.is_written() && age >= KEPT
}

/// Returns the files in a directory that have names of pages, in order.
pub(super) fn pages_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    let mut pages: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|end| end == END));
    pages.sort();
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_flow::control::RunPhase;

    #[test]
    fn every_phase_has_its_number() {
        use RunPhase::{Configured, Draining, Ended, Initial, Running};
        let names = [Initial, Configured, Running, Draining, Ended].map(RunPhase::name);
        assert_eq!((names, names.map(number_of)), (PHASES, [0, 1, 2, 3, 4]));
    }

    #[test]
    fn every_number_has_a_place_of_its_own_under_its_own_name() {
        let numbers = numbers();
        let entry = |what| ReportEntry { source: None, what, value: 0 };
        let of_causes = CAUSES.iter().flat_map(|&cause| {
            let places = [ReportEntry::cause(cause), ReportEntry::missing(cause), ReportEntry::lost(cause)];
            places.into_iter().zip(["dropped", "missing", "lost"].map(|what| format!("{what}:{}", cause.name())))
        });
        let all = COUNTERS.iter().map(|counter| (*counter as u16, counter.name().to_owned())).chain(of_causes);
        let mut places: Vec<usize> = all
            .map(|(what, name)| {
                let place = column(&entry(what)).expect("it has a place");
                assert_eq!(numbers[place].name, name);
                place
            })
            .collect();
        places.sort_unstable();
        assert_eq!((places, numbers.len()), ((0..NUMBERS).collect(), NUMBERS));
        assert_eq!(
            column(&ReportEntry::histogram(SourceId(1), 0, 0, 0)),
            None,
            "cells of histograms are no numbers of a page"
        );
    }
}
