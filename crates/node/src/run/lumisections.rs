//! The lumisections of a run in its account.

use ropewalk_flow::messages::LumisectionEnd;
use serde::Serialize;

/// A lumisection that is over: its events, all of which have ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[expect(missing_docs, reason = "the other fields are those of terms::EventAccount and documented there")]
pub struct LumisectionSummary {
    /// Its number, from 1.
    pub number: u32,
    /// Its first key. It reaches up to the first key of the next one.
    pub first: String,
    pub assigned: u64,
    pub built: u64,
    pub incomplete_emitted: u64,
    pub incomplete_dropped: u64,
    pub accepted: u64,
    pub unselected: u64,
    pub rejected: u64,
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
