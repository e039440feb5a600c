//! Everything at once, for whoever looks all the time.

use super::{Alarm, Balance, Incidents, Limited, Node, Source, State, nodes, sources};
use crate::health_monitor::HealthMonitor;
use ropewalk_monitor::Rates;
use ropewalk_node::session::SessionView;
use ropewalk_terms::Counter;
use serde::Serialize;
use utoipa::ToSchema;

/// Incidents that everybody sees; there may be more.
const LATEST: usize = 10;

/// What happens several times a second.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Live {
    #[serde(flatten)]
    pub(crate) state: State,
    pub(crate) ledger: Balance,
    pub(crate) sources: Vec<Source>,
    pub(crate) nodes: Vec<Node>,
    /// How fast everything is, as it was during the last second; null before a run was looked at twice.
    #[schema(value_type = Option<Object>)]
    rates: Option<Rates>,
    /// What limits the run; null where that is not known yet.
    limit: Option<Limited>,
    /// Alarms that somebody should see.
    alarms: Vec<Alarm>,
    /// What went wrong lately.
    incidents: Incidents,
    /// Bytes of fragments that came.
    bytes_received: u64,
    /// Bytes that were written.
    bytes_written: u64,
    /// Free bytes on the disks; null where nothing is known.
    disk_free_bytes: Option<u64>,
    /// How long they last at the present rate, in seconds; null where that is not known.
    disk_left_s: Option<u64>,
}

impl Live {
    pub(crate) fn of(view: &SessionView, health: &HealthMonitor) -> Self {
        Self {
            state: State::of(view),
            ledger: Balance::of(view),
            sources: sources(view),
            nodes: nodes(view),
            rates: health.rates(),
            limit: health.limit(),
            alarms: health.shown(),
            incidents: health.incidents("", LATEST),
            bytes_received: view.snapshot.counter(Counter::PayloadBytesReceived),
            bytes_written: view.snapshot.counter(Counter::BytesWritten),
            disk_free_bytes: view.disk_left.map(|left| left.free_bytes),
            disk_left_s: view.disk_left.and_then(|left| left.time).map(|time| time.as_secs()),
        }
    }
}
