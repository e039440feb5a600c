//! The reader's side of a page: its writer, the state of its writer, and its numbers.

use super::page::{
    Label, NumberLabel, OwnerKind, OwnerLabel, PHASES, PageRole, STATE_CELLS, StateCell, pages_in, usual_directories,
};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_memory::CounterPage;
use ropewalk_terms::{Instant, Utc};
use schemars::JsonSchema;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time after the last turn at which a thread counts as hanging or standing still. A thread without work turns twenty
/// times a second.
const STILL: Duration = Duration::from_secs(1);

/// Why a page cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A system error, or the file is not a page.
    #[error("{}: {error}", file.display())]
    System {
        /// The file or directory.
        file: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The label is not readable by this program.
    #[error("{}: this page of numbers cannot be read: {reason}", file.display())]
    Label {
        /// The file.
        file: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl PageError {
    /// Returns whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::System { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }
}

/// The name of a phase that the page does not contain.
const UNKNOWN_PHASE: &str = "unknown";

/// The state of a node's thread.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PageState {
    /// It takes its turns.
    Turns,
    /// It has not ended its last turn, which began this long ago.
    Hangs(Duration),
    /// It ended its last turn this long ago and has begun none since: it is not scheduled, or others on its thread
    /// hang.
    Stands(Duration),
    /// The node has ended its run in order.
    Ended,
    /// The process ended before the end of its run.
    Gone,
}

impl PageState {
    /// One of each kind.
    pub const ALL: [Self; 5] =
        [Self::Turns, Self::Hangs(Duration::ZERO), Self::Stands(Duration::ZERO), Self::Ended, Self::Gone];

    /// Returns the stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Hangs(_) => "hangs",
            Self::Stands(_) => "stands",
            Self::Ended => "ended",
            Self::Gone => "gone",
        }
    }
}

/// A number other than 0.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Shown<'a> {
    /// Its label.
    pub number: &'a NumberLabel,
    /// Its value.
    pub value: u64,
    /// Its rate per second since an earlier reading, if there is one and the number grows.
    pub rate: Option<f64>,
}

/// A page at one moment. Each number is consistent; different numbers may be of slightly different moments.
#[derive(Debug)]
pub struct PageReading {
    file: PathBuf,
    label: Label,
    cells: Vec<u64>,
    is_written: bool,
}

impl PageReading {
    /// Reads a page, without an effect on its writer.
    ///
    /// # Errors
    /// [`PageError`].
    pub fn read(file: &Path) -> Result<Self, PageError> {
        let system = |error| PageError::System { file: file.to_owned(), error };
        let page = CounterPage::open(file).map_err(system)?;
        let wrong = |reason| PageError::Label { file: file.to_owned(), reason };
        let label = Label::read(page.text(), page.cells()).map_err(wrong)?;
        // In this order: the numbers of an ended process are then its last.
        let is_written = page.is_written().map_err(system)?;
        let cells = page.snapshot().map_err(system)?;
        Ok(Self { file: file.to_owned(), label, cells, is_written })
    }

    /// Returns its file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Returns the label: the writer, and the meaning of the numbers.
    pub const fn label(&self) -> &Label {
        &self.label
    }

    /// Returns whether its writing process is alive.
    pub const fn is_written(&self) -> bool {
        self.is_written
    }

    fn cell(&self, cell: StateCell) -> u64 {
        self.cells[cell as usize]
    }

    /// Returns the run number; 0 before the first run.
    pub fn run(&self) -> u64 {
        self.cell(StateCell::Run)
    }

    /// Returns the phase of the run, as the node has it.
    pub fn phase(&self) -> &str {
        self.label.phases.get(self.cell(StateCell::Phase) as usize).map_or(UNKNOWN_PHASE, String::as_str)
    }

    /// Returns the number of turns that its thread began, and the amount of their work.
    pub fn turns(&self) -> (u64, u64) {
        (self.cell(StateCell::Begun), self.cell(StateCell::Work))
    }

    /// Returns when its last turn began, in civil time; `None` before the first.
    pub fn turned_utc(&self) -> Option<Utc> {
        self.utc(StateCell::Turned)
    }

    /// Returns when all numbers were last updated, in civil time; `None` before the first time.
    pub fn told_utc(&self) -> Option<Utc> {
        self.utc(StateCell::Told)
    }

    fn utc(&self, cell: StateCell) -> Option<Utc> {
        let time = self.cell(cell);
        (time > 0).then(|| Utc(self.label.utc_at_zero_ns.saturating_add_unsigned(time)))
    }

    /// Returns the state of its thread at `now`, by the machine's monotonic clock.
    pub fn state(&self, now: Instant) -> PageState {
        let turned = self.cell(StateCell::Turned);
        let still = now.since(Instant::from_nanoseconds(turned));
        match (self.phase(), self.is_written) {
            ("ended", _) => PageState::Ended,
            (_, false) => PageState::Gone,
            _ if still < STILL || turned == 0 => PageState::Turns,
            _ if self.cell(StateCell::Begun) != self.cell(StateCell::Ended) => PageState::Hangs(still),
            _ => PageState::Stands(still),
        }
    }

    /// Removes the page if its writer has gone. Returns whether it did.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove_if_left(&self) -> Result<bool, PageError> {
        if self.is_written {
            return Ok(false);
        }
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(PageError::System { file: self.file.clone(), error })
            }
            _ => Ok(true),
        }
    }

    fn value(&self, row: usize, number: usize) -> u64 {
        self.cells[STATE_CELLS + row * self.label.numbers.len() + number]
    }

    /// Returns a number of the node as a whole: its own, or the sum over its sources and streams if that is meaningful.
    fn total(&self, number: usize) -> u64 {
        let rows = if self.label.numbers[number].adds_up { self.label.rows.len() } else { 1 };
        (0..rows).fold(0, |sum: u64, row| sum.saturating_add(self.value(row, number)))
    }

    /// Returns the seconds between the last updates in an earlier reading of the same incarnation and in this one.
    fn seconds_since(&self, earlier: &Self) -> Option<f64> {
        let is_same = self.label == earlier.label && self.file == earlier.file;
        let passed = self.cell(StateCell::Told).checked_sub(earlier.cell(StateCell::Told)).filter(|&passed| passed > 0);
        passed.filter(|_| is_same).map(|passed| passed as f64 / 1e9)
    }

    fn shown<'a>(&'a self, earlier: Option<&Self>, of: impl Fn(&Self, usize) -> u64) -> Vec<Shown<'a>> {
        let seconds = earlier.and_then(|earlier| Some((earlier, self.seconds_since(earlier)?)));
        let shown = self.label.numbers.iter().enumerate().map(|(index, number)| {
            let value = of(self, index);
            let rate = seconds
                .filter(|_| !number.level)
                .map(|(earlier, seconds)| value.saturating_sub(of(earlier, index)) as f64 / seconds);
            Shown { number, value, rate }
        });
        shown.filter(|shown| shown.value > 0).collect()
    }

    /// Returns the non-zero numbers of the node as a whole, with rates since an earlier reading of its page if there is
    /// one.
    pub fn numbers(&self, earlier: Option<&Self>) -> Vec<Shown<'_>> {
        self.shown(earlier, Self::total)
    }

    /// Returns the non-zero numbers of each source or stream.
    pub fn rows(&self, of: OwnerKind, earlier: Option<&Self>) -> impl Iterator<Item = (&OwnerLabel, Vec<Shown<'_>>)> {
        let rows = self.label.rows.iter().enumerate().filter(move |(_, row)| row.of == of);
        rows.map(move |(index, row)| (row, self.shown(earlier, |page, number| page.value(index, number))))
    }
}

/// The pages found, and the errors.
#[derive(Debug)]
pub struct Findings {
    /// Time of the search, by the machine's monotonic clock.
    pub at: Instant,
    /// The pages, in the order of places and names.
    pub pages: Vec<PageReading>,
    /// Files that exist and cannot be read.
    pub errors: Vec<PageError>,
}

impl Findings {
    fn take(&mut self, read: Result<PageReading, PageError>, is_named: bool) {
        match read {
            Ok(page) => self.pages.push(page),
            // A node that ended in the meantime has removed its page.
            Err(error) if error.is_not_found() && !is_named => {}
            Err(error) => self.errors.push(error),
        }
    }
}

/// Reads the pages at these places, files or directories; by default those of all nodes on this machine with pages in
/// the default place.
pub fn find(places: &[PathBuf]) -> Findings {
    let mut found = Findings { at: Instant::ZERO, pages: Vec::new(), errors: Vec::new() };
    let usual = if places.is_empty() { usual_directories() } else { Vec::new() };
    for place in places.iter().chain(&usual) {
        if !place.is_dir() {
            found.take(PageReading::read(place), true);
            continue;
        }
        match pages_in(place) {
            Ok(files) => files.iter().for_each(|file| found.take(PageReading::read(file), false)),
            Err(error) => found.errors.push(PageError::System { file: place.clone(), error }),
        }
    }
    // Living nodes first, then the ones that ended last.
    found.pages.sort_by_key(|page| (!page.is_written).then(|| Reverse(page.turned_utc())));
    // Taken after all readings, so that it is not before any turn that was read.
    found.at = MonotonicClock.now();
    found
}

/// The form's name and version.
pub const PAGES_SCHEMA: &str = "ropewalk-counters-1";

/// Numbers by name; zeros are left out.
type ByName = BTreeMap<String, u64>;

/// The pages of a machine at one moment.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "What the nodes of a machine write into their pages: a line of `ropewalk counters --json`")]
pub struct PagesReport {
    /// The form's name and version.
    #[schemars(extend("const" = PAGES_SCHEMA))]
    pub schema: &'static str,
    /// The pages found, by file name.
    pub pages: Vec<PageReport>,
}

impl PagesReport {
    /// Creates the report of these readings, with rates since earlier readings of the same pages.
    pub fn new(pages: &[PageReading], earlier: &[PageReading], now: Instant) -> Self {
        let before = |page: &PageReading| earlier.iter().find(|earlier| earlier.file() == page.file());
        let pages = pages.iter().map(|page| PageReport::new(page, before(page), now)).collect();
        Self { schema: PAGES_SCHEMA, pages }
    }
}

/// A page. Its numbers have the names in docs/metrics.md, and are in pieces, bytes or nanoseconds. Those by cause have
/// the prefixes `dropped:`, `missing:` and `lost:`. Zeros are left out.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PageReport {
    /// The node's name; for a gateway with two threads, the name of the thread.
    pub node: String,
    /// What it is.
    #[schemars(extend("enum" = PageRole::ALL.map(PageRole::name)))]
    pub role: String,
    /// The state of its thread. `turns`: running. `hangs`: in one turn for more than 1 s. `stands`: no turn begun for
    /// more than 1 s. `ended`: its run has ended. `gone`: its process ended before its run.
    #[schemars(extend("enum" = PageState::ALL.map(PageState::name)))]
    pub state: &'static str,
    /// The run number; 0 before the first run.
    pub run: u64,
    /// The phase of the run that the node knows.
    #[schemars(extend("enum" = phases()))]
    pub phase: String,
    /// The number of the process.
    pub pid: u32,
    /// Start time of the node, in nanoseconds since 1970; it identifies a life of the node.
    pub incarnation: u64,
    /// The version of the program.
    pub program: String,
    /// Where it makes its run directories.
    pub output: String,
    /// The page's file.
    pub file: String,
    /// When its last turn began, in nanoseconds since 1970; null before the first.
    pub turned_ns: Option<i64>,
    /// Seconds since it hangs or stands; null otherwise.
    #[schemars(range(min = 0))]
    pub still_s: Option<f64>,
    /// Time of the last update, in nanoseconds since 1970; null before the first one.
    pub told_ns: Option<i64>,
    /// Turns of its thread that began.
    pub turns: u64,
    /// Messages, fragments and events processed in these turns.
    pub work: u64,
    /// The node as a whole, sums over its sources and streams included.
    pub numbers: ByName,
    /// Growth per second of each counter since the previous sample; empty without `--watch`.
    pub rates_per_s: BTreeMap<String, f64>,
    /// Each source, by its id.
    pub sources: BTreeMap<u32, ByName>,
    /// Each stream, by its index.
    pub streams: BTreeMap<u32, ByName>,
}

/// Returns the names of all phases of a run.
fn phases() -> Vec<&'static str> {
    PHASES.into_iter().chain([UNKNOWN_PHASE]).collect()
}

impl PageReport {
    fn new(page: &PageReading, earlier: Option<&PageReading>, now: Instant) -> Self {
        let label = page.label();
        let by_name = |shown: Vec<Shown<'_>>| shown.iter().map(|one| (one.number.name.clone(), one.value)).collect();
        let rows = |of| page.rows(of, None).map(|(row, shown): (&OwnerLabel, _)| (row.id, by_name(shown))).collect();
        let (numbers, (turns, work), state) = (page.numbers(earlier), page.turns(), page.state(now));
        let rates = numbers.iter().filter_map(|one| Some((one.number.name.clone(), one.rate?)));
        Self {
            node: label.node.clone(),
            role: label.role.clone(),
            state: state.name(),
            run: page.run(),
            phase: page.phase().to_owned(),
            pid: label.pid,
            incarnation: label.incarnation,
            program: label.program.clone(),
            output: label.output.clone(),
            file: page.file().display().to_string(),
            turned_ns: page.turned_utc().map(|time| time.0),
            still_s: match state {
                PageState::Hangs(still) | PageState::Stands(still) => Some(still.as_secs_f64()),
                PageState::Turns | PageState::Ended | PageState::Gone => None,
            },
            told_ns: page.told_utc().map(|time| time.0),
            turns,
            work,
            rates_per_s: rates.collect(),
            numbers: by_name(numbers),
            sources: rows(OwnerKind::Source),
            streams: rows(OwnerKind::Stream),
        }
    }
}
