//! What went wrong.

use ropewalk_monitor::incidents::{Incident as Known, Incidents as AllKnown};
use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong, of one cause and one subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Incident {
    /// Why, by a stable name.
    cause: String,
    /// Of what: `source 12`, `bu0`.
    subject: String,
    /// What was said of it last.
    text: String,
    /// How often.
    count: u64,
    /// When first, in nanoseconds since 1970 UTC.
    first_ns: i64,
    /// When last.
    last_ns: i64,
    /// The first bytes that showed it, in hexadecimal digits; empty where there are none.
    hex: String,
}

impl Incident {
    fn of(known: &Known) -> Self {
        Self {
            cause: known.cause.clone(),
            subject: known.subject.clone(),
            text: known.text.clone(),
            count: known.count,
            first_ns: known.first.0,
            last_ns: known.last.0,
            hex: known.hex.clone(),
        }
    }
}

/// What went wrong, the latest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Incidents {
    /// How many there are that were looked for.
    found: usize,
    /// How many were forgotten for others since the program began.
    forgotten: u64,
    /// As many as were wanted, the latest first.
    incidents: Vec<Incident>,
}

impl Incidents {
    /// Those in which all words stand, at most so many.
    pub(crate) fn found(known: &AllKnown, words: &str, most: usize) -> Self {
        let found = known.search(words);
        let incidents = found.iter().take(most).map(|incident| Incident::of(incident)).collect();
        Self { found: found.len(), forgotten: known.forgotten(), incidents }
    }
}
