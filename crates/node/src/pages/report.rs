//! Pages as JSON: `docs/schema/counters.json` describes it.

use super::label::{OwnerKind, OwnerLabel, PHASES, PageRole};
use super::reading::{PageReading, PageState, Shown, UNKNOWN_PHASE};
use ropewalk_terms::Instant;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The form's name and version.
pub const PAGES_SCHEMA: &str = "ropewalk-counters-1";

/// Numbers by name; those that are 0 are left out.
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
    /// What was read, with rates since what was read earlier of the same pages.
    pub fn new(pages: &[PageReading], earlier: &[PageReading], now: Instant) -> Self {
        let before = |page: &PageReading| earlier.iter().find(|earlier| earlier.file() == page.file());
        let pages = pages.iter().map(|page| PageReport::new(page, before(page), now)).collect();
        Self { schema: PAGES_SCHEMA, pages }
    }
}

/// A page. Its numbers are told by their names in docs/metrics.md, in pieces, bytes or nanoseconds, and by cause what
/// was `dropped:`, `missing:` and `lost:`; those that are 0 are left out.
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

/// How far a run may be.
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
