//! The lumisections of a run in its account.

use ropewalk_flow::messages::LumisectionEnd;
use schemars::JsonSchema;
use serde::Serialize;

/// A lumisection that is over: its events, all of which have ended. assigned = built + incomplete_emitted +
/// incomplete_dropped; built + incomplete_emitted = accepted + rejected + quarantined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LumisectionSummary {
    /// Its number, from 1.
    #[schemars(range(min = 1))]
    pub number: u32,
    /// Its first event.
    pub first: String,
    /// Event keys given to builder units, each once however often it was assigned.
    pub assigned: u64,
    /// Events built with every required source.
    pub built: u64,
    /// Incomplete events that were kept.
    pub incomplete_emitted: u64,
    /// Events that were dropped.
    pub incomplete_dropped: u64,
    /// Events kept by the decision.
    pub accepted: u64,
    /// Accepted events that no stream took because of prescales.
    pub unselected: u64,
    /// Events thrown away by the decision.
    pub rejected: u64,
    /// Events set aside without a decision.
    pub quarantined: u64,
}

impl LumisectionSummary {
    /// The summary of one that is over.
    pub(super) fn new(end: &LumisectionEnd) -> Self {
        let account = end.account();
        Self {
            number: end.number,
            first: end.before.below.to_string(),
            assigned: account.assigned,
            built: account.built,
            incomplete_emitted: account.incomplete_emitted,
            incomplete_dropped: account.incomplete_dropped.total(),
            accepted: account.accepted,
            unselected: account.unselected,
            rejected: account.rejected,
            quarantined: account.quarantined,
        }
    }
}
