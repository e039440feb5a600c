//! What came of a run's files, for people and programs.

use ropewalk_flow::files::{BrokerCounts, Closed, Decided, Merger, StreamCounts, Written};
use ropewalk_terms::{Imbalance, RunNumber};
use ropewalk_wire::run_file::StreamName;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// The form's name and version: `docs/schema/files.json`.
pub const FILES_SCHEMA: &str = "ropewalk-files-1";

/// What came of the files of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(title = "What came of the files of a run: the output of `ropewalk filter-files RUNDIR --json`")]
pub struct FilesSummary {
    /// The form's name and version.
    #[schemars(extend("const" = FILES_SCHEMA))]
    pub schema: &'static str,
    /// The run's number.
    pub run: u32,
    /// Files of events.
    pub files: u64,
    /// Those whose events are all decided.
    pub decided: u64,
    /// Files on which filter units crashed; they are in the directory `error`.
    pub set_aside: u64,
    /// How often a file went to another filter unit.
    pub given_back: u64,
    /// Why units said that they cannot filter a file: the first ten.
    pub failures: Vec<String>,
    /// Filter units that ended before they should, and were started again.
    pub restarts: u64,
    /// Events that filter units looked at.
    pub processed: u64,
    /// Events that they accepted.
    pub accepted: u64,
    /// Whether each lumisection is closed and adds up: what was written is what was looked at and set aside, and in each stream
    /// selected = prescaled_away + written.
    pub balanced: bool,
    /// What does not hold, in words; empty where all does.
    pub unbalanced: Vec<String>,
    /// Files of events of other runs that lie in the directory: nobody filters them.
    pub of_other_runs: BTreeSet<String>,
    /// What streams took.
    pub streams: Vec<StreamSummary>,
    /// Each lumisection that is closed.
    pub lumisections: Vec<LumisectionSummary>,
}

/// What went to a stream: selected = prescaled_away + written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct StreamSummary {
    /// The stream's name.
    pub stream: String,
    /// Accepted events that it was to have, by their triggers or trigger type.
    pub selected: u64,
    /// Those that its prescale left out.
    pub prescaled_away: u64,
    /// Those in its files.
    pub written: u64,
    /// Bytes of these files.
    pub bytes: u64,
}

/// What became of a lumisection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct LumisectionSummary {
    /// Its number.
    pub lumisection: u32,
    /// Files of events.
    pub files: u64,
    /// Events that were looked at.
    pub processed: u64,
    /// Events that were accepted.
    pub accepted: u64,
    /// Events in files that were set aside.
    pub set_aside: u64,
    /// Whether that is what was written, and each stream adds up.
    pub balanced: bool,
    /// What streams took.
    pub streams: Vec<StreamSummary>,
}

impl LumisectionSummary {
    pub(super) fn of(closed: &Closed) -> Self {
        let Closed { lumisection, account, .. } = closed;
        Self {
            lumisection: *lumisection,
            files: account.files,
            processed: account.decided.processed,
            accepted: account.decided.accepted,
            set_aside: account.set_aside,
            balanced: closed.imbalances().next().is_none(),
            streams: streams(&account.decided),
        }
    }
}

impl FilesSummary {
    /// What came of a run's files: its merger's sums, and what of them does not hold.
    pub(super) fn new(run: RunNumber, counts: BrokerCounts, restarts: u64, merger: &Merger, closed: &[Closed]) -> Self {
        let unbalanced: Vec<String> =
            closed.iter().flat_map(unbalanced).chain(merger.open_lumisections().map(open)).collect();
        let total = &merger.total().decided;
        Self {
            schema: FILES_SCHEMA,
            run: run.0,
            files: counts.files,
            decided: counts.decided,
            set_aside: counts.set_aside,
            given_back: counts.given_back,
            restarts,
            processed: total.processed,
            accepted: total.accepted,
            balanced: unbalanced.is_empty(),
            unbalanced,
            of_other_runs: BTreeSet::new(),
            failures: Vec::new(),
            streams: streams(total),
            lumisections: closed.iter().map(LumisectionSummary::of).collect(),
        }
    }
}

/// What does not hold of a lumisection.
fn unbalanced(closed: &Closed) -> impl Iterator<Item = String> {
    closed.imbalances().map(|(stream, Imbalance { equation, left, right })| {
        let stream = stream.map_or_else(String::new, |stream| format!(", stream {stream}"));
        format!("lumisection {}{stream}: {equation}: {left} and {right}", closed.lumisection)
    })
}

/// Why a lumisection is not closed.
fn open((lumisection, files, written): (u32, u64, Option<Written>)) -> String {
    match written {
        None => format!("lumisection {lumisection}: {files} files came of it, and nobody wrote its EoLS.jsn"),
        Some(Written { files: all, .. }) => {
            format!(
                "lumisection {lumisection}: {all} files were written as its EoLS.jsn says, and {files} of them were decided"
            )
        }
    }
}

fn streams(decided: &Decided) -> Vec<StreamSummary> {
    let summary = |(name, counts): (&StreamName, &StreamCounts)| StreamSummary {
        stream: name.to_string(),
        selected: counts.selected,
        prescaled_away: counts.prescaled_away,
        written: counts.written,
        bytes: counts.bytes,
    };
    decided.streams.iter().map(summary).collect()
}
