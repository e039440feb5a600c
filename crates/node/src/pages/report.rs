//! Pages as JSON: `docs/schema/counters.json` describes it.

use super::label::{OwnerKind, OwnerLabel};
use super::reading::{PageReading, PageState, Shown};
use ropewalk_terms::Instant;
use serde::Serialize;
use std::collections::BTreeMap;

/// Numbers by name; those that are 0 are left out.
type ByName = BTreeMap<String, u64>;

/// The pages of a machine at one moment.
#[derive(Debug, Serialize)]
pub struct PagesReport {
    /// The form's name and version.
    pub schema: &'static str,
    /// The pages.
    pub pages: Vec<PageReport>,
}

impl PagesReport {
    /// What was read, with rates since what was read earlier of the same pages.
    pub fn new(pages: &[PageReading], earlier: &[PageReading], now: Instant) -> Self {
        let before = |page: &PageReading| earlier.iter().find(|earlier| earlier.file() == page.file());
        let pages = pages.iter().map(|page| PageReport::new(page, before(page), now)).collect();
        Self { schema: "ropewalk-counters-1", pages }
    }
}

/// A page.
#[derive(Debug, Serialize)]
pub struct PageReport {
    /// The node.
    pub node: String,
    /// What it is.
    pub role: String,
    /// What its thread does: `turns`, `hangs`, `stands`, `ended`, `gone`.
    pub state: &'static str,
    /// The run.
    pub run: u64,
    /// How far it is.
    pub phase: String,
    /// The process.
    pub pid: u32,
    /// Which life of the node.
    pub incarnation: u64,
    /// The version of the program.
    pub program: String,
    /// Where it makes its run directories.
    pub output: String,
    /// The page's file.
    pub file: String,
    /// When its last turn began, in nanoseconds since 1970; null before the first.
    pub turned_ns: Option<i64>,
    /// How long ago that was, where it hangs or stands still.
    pub still_s: Option<f64>,
    /// When all numbers were told last.
    pub told_ns: Option<i64>,
    /// Turns.
    pub turns: u64,
    /// What was done in them.
    pub work: u64,
    /// The node as a whole.
    pub numbers: ByName,
    /// How fast these grow.
    pub rates_per_s: BTreeMap<String, f64>,
    /// Each source.
    pub sources: BTreeMap<u32, ByName>,
    /// Each stream, by its index.
    pub streams: BTreeMap<u32, ByName>,
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
