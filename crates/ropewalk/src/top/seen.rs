//! What a server says at `/api/v1/live` and `/api/v1/journal`, as far as it is shown. What it does not say is empty.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Everything at once.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Live {
    /// Nanoseconds since 1970 UTC.
    pub(crate) at_ns: i64,
    pub(crate) state: String,
    pub(crate) task: Option<String>,
    pub(crate) trouble: Option<String>,
    pub(crate) run: Option<u32>,
    pub(crate) age_s: f64,
    pub(crate) last_entry: u64,
    pub(crate) ledger: Ledger,
    pub(crate) sources: Vec<Source>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) rates: Option<Rates>,
    pub(crate) limit: Option<Limited>,
    pub(crate) alarms: Vec<Alarm>,
    pub(crate) disk_free_bytes: Option<u64>,
    pub(crate) disk_left_s: Option<u64>,
}

/// The balance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ledger {
    pub(crate) fragments: BTreeMap<String, Value>,
    pub(crate) events: BTreeMap<String, Value>,
    pub(crate) pools: BTreeMap<String, Value>,
    pub(crate) unbalanced: Vec<Unbalanced>,
}

/// An equation that does not hold now.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
pub(crate) struct Unbalanced {
    pub(crate) equation: String,
}

/// A front end.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Source {
    pub(crate) id: u32,
    pub(crate) readout: Option<String>,
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) corrupt: u64,
    pub(crate) crc_errors: u64,
    pub(crate) frames_missing: u64,
    pub(crate) missing: BTreeMap<String, u64>,
    pub(crate) last_event: Option<u64>,
    /// Seconds since something came of it.
    pub(crate) silent_s: Option<f64>,
    pub(crate) has_ended: bool,
    /// Whatever else is said of it.
    #[serde(flatten)]
    pub(crate) rest: Map<String, Value>,
}

impl Source {
    /// Fragments that came wrong or not at all on their way here.
    pub(crate) const fn errors(&self) -> u64 {
        self.crc_errors + self.frames_missing + self.corrupt
    }

    /// Fragments that never came.
    pub(crate) fn missing(&self) -> u64 {
        self.missing.values().sum()
    }
}

/// A readout or builder unit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) connected: bool,
}

/// How fast everything was during the last second.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Rates {
    pub(crate) events_hz: f64,
    pub(crate) bytes_in_per_second: f64,
    pub(crate) bytes_to_disk_per_second: f64,
    pub(crate) live_share: f64,
    pub(crate) sources: Vec<SourceRates>,
    pub(crate) nodes: Vec<NodeRates>,
}

/// How fast a source is.
#[derive(Copy, Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SourceRates {
    pub(crate) source: u32,
    pub(crate) fragments_hz: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) back_pressure_share: f64,
}

/// How fast, full and busy a node is; shares are parts of the time or of its room, 0 to 1.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeRates {
    pub(crate) node: String,
    pub(crate) rate_hz: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) pool_share: Option<f64>,
    pub(crate) busy_share: Option<f64>,
    pub(crate) filter_busy_share: Option<f64>,
    pub(crate) disk_busy_share: Option<f64>,
}

/// What limits the run.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Limited {
    pub(crate) sentence: String,
}

/// An alarm that somebody should see.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Alarm {
    pub(crate) name: String,
    pub(crate) severity: String,
    pub(crate) state: String,
    pub(crate) known_by: Option<String>,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) at_ns: i64,
    pub(crate) kind: String,
    pub(crate) run: Option<u32>,
    pub(crate) text: String,
}

/// What went wrong, of one cause and one subject.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Incident {
    pub(crate) cause: String,
    pub(crate) subject: String,
    pub(crate) text: String,
    pub(crate) count: u64,
    /// Nanoseconds since 1970 UTC.
    pub(crate) last_ns: i64,
}

/// What went wrong, the latest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Incidents {
    pub(crate) incidents: Vec<Incident>,
}
