//! What filter and streams did in a run.

use crate::drive::RunSnapshot;
use ropewalk_terms::{Counter, StreamAccount, StreamIndex};
use ropewalk_wire::run_file::StreamName;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// What became of filter units and of the events that they had.
#[derive(Copy, Clone, Debug, Default, Serialize, JsonSchema)]
pub struct FilterSummary {
    /// Events of which no decision could be had.
    pub failures: u64,
    /// Events that a filter unit had when it ended, and that went to another one.
    pub returned: u64,
    /// Decisions on what a filter unit did not have: ignored.
    pub stale_decisions: u64,
    /// Filter units that were started in the place of another one.
    pub restarts: u64,
    /// Filter units that ended too often and are not restarted.
    pub given_up: u64,
    /// Events of ordered streams that came after later ones had been written: their builder unit had died.
    pub out_of_order: u64,
    /// Bytes of events that were copied for filters.
    pub copied_bytes: u64,
}

impl FilterSummary {
    pub(super) fn new(snapshot: &RunSnapshot) -> Self {
        let counter = |counter| snapshot.counter(counter);
        Self {
            failures: counter(Counter::FilterFailures),
            returned: counter(Counter::FilterReturned),
            stale_decisions: counter(Counter::FilterStaleDecisions),
            restarts: counter(Counter::FilterRestarts),
            given_up: counter(Counter::FilterUnitsGivenUp),
            out_of_order: counter(Counter::EventsOutOfOrder),
            copied_bytes: counter(Counter::FilterBytesCopied),
        }
    }
}

/// The account of a stream: selected = prescaled_away + written + failed + in_flight.
#[derive(Copy, Clone, Debug, Default, Serialize, JsonSchema)]
pub struct StreamSummary {
    /// Events that its triggers or trigger types select.
    pub selected: u64,
    /// Events that its prescale left out.
    pub prescaled_away: u64,
    /// Events in its files.
    pub written: u64,
    /// Events that could not be written.
    pub failed: u64,
    /// Events on their way to its files, counted from the table.
    pub in_flight: u64,
}

impl From<&StreamAccount> for StreamSummary {
    fn from(account: &StreamAccount) -> Self {
        let StreamAccount { selected, prescaled_away, written, failed, in_flight } = *account;
        Self { selected, prescaled_away, written, failed, in_flight }
    }
}

/// The accounts of streams that have names.
pub(super) fn streams(snapshot: &RunSnapshot, names: &[StreamName]) -> BTreeMap<String, StreamSummary> {
    let named = names.iter().zip((0..).map(StreamIndex)).filter(|(name, _)| !name.is_unnamed());
    named
        .map(|(name, index)| {
            (name.to_string(), snapshot.streams.get(&index).map(StreamSummary::from).unwrap_or_default())
        })
        .collect()
}
