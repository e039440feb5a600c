//! What came of a run's files, for people and programs.

use super::place::SELECTED;
use ropewalk_flow::files::{BrokerCounts, Closed, LumisectionAccount};
use ropewalk_terms::RunNumber;
use serde::Serialize;

/// The form's name and version: `docs/schema/files.json`.
pub const FILES_SCHEMA: &str = "ropewalk-files-1";

/// What came of the files of a run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FilesSummary {
    /// [`FILES_SCHEMA`].
    pub schema: &'static str,
    /// The run.
    pub run: u32,
    /// Files of events.
    pub files: u64,
    /// Those whose events are all decided.
    pub decided: u64,
    /// Those that filter units died over: they are in the directory `error`.
    pub set_aside: u64,
    /// How often a file went to another filter unit.
    pub given_back: u64,
    /// Filter units that ended before they should, and were started again.
    pub restarts: u64,
    /// Events that filter units looked at.
    pub processed: u64,
    /// Whether each lumisection adds up: what was written is what was looked at and set aside.
    pub balanced: bool,
    /// What was accepted, by stream.
    pub streams: Vec<StreamSummary>,
    /// Each lumisection that is closed.
    pub lumisections: Vec<LumisectionSummary>,
}

/// What went to a stream.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StreamSummary {
    /// The stream.
    pub stream: String,
    /// Events.
    pub events: u64,
    /// Bytes of their files.
    pub bytes: u64,
}

/// What became of a lumisection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LumisectionSummary {
    /// Which.
    pub lumisection: u32,
    /// Files of events.
    pub files: u64,
    /// Events that were looked at.
    pub processed: u64,
    /// Events in files that were set aside.
    pub set_aside: u64,
    /// Whether that is what was written.
    pub balanced: bool,
    /// What was accepted.
    pub streams: Vec<StreamSummary>,
}

impl LumisectionSummary {
    pub(super) fn of(closed: &Closed) -> Self {
        let Closed { lumisection, account, is_balanced } = closed;
        Self {
            lumisection: *lumisection,
            files: account.files,
            processed: account.processed,
            set_aside: account.set_aside,
            balanced: *is_balanced,
            streams: streams(account),
        }
    }
}

impl FilesSummary {
    pub(super) fn new(
        run: RunNumber,
        counts: BrokerCounts,
        restarts: u64,
        total: &LumisectionAccount,
        lumisections: Vec<LumisectionSummary>,
    ) -> Self {
        Self {
            schema: FILES_SCHEMA,
            run: run.0,
            files: counts.files,
            decided: counts.decided,
            set_aside: counts.set_aside,
            given_back: counts.given_back,
            restarts,
            processed: total.processed,
            balanced: lumisections.iter().all(|lumisection| lumisection.balanced),
            streams: streams(total),
            lumisections,
        }
    }
}

fn streams(account: &LumisectionAccount) -> Vec<StreamSummary> {
    let summary = |(name, counts): (&str, &ropewalk_flow::files::Counts)| StreamSummary {
        stream: name.to_owned(),
        events: counts.events,
        bytes: counts.bytes,
    };
    [SELECTED].into_iter().zip(&account.streams).map(summary).collect()
}
