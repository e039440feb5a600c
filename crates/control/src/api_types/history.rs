//! How it went.

use ropewalk_monitor::history::{SERIES, Stretch};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A part of the past: times with the same distance, and for each of them a value of each series, or null.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct History {
    /// Seconds from one time to the next.
    step_seconds: u32,
    /// Seconds since 1970-01-01T00:00:00Z in which each step begins.
    times: Vec<i64>,
    /// By name: `events_per_second`, ... ; each as long as `times`.
    series: BTreeMap<&'static str, Vec<Option<f32>>>,
}

impl History {
    pub(crate) fn of(stretch: Stretch) -> Self {
        let series = SERIES.iter().map(|series| series.name).zip(stretch.series).collect();
        Self { step_seconds: stretch.step_seconds, times: stretch.times, series }
    }
}
