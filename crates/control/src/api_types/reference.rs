//! The run that the present one is compared with.

use ropewalk_monitor::RunTrend;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The run that the present one is compared with; its numbers by its age.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Reference {
    /// Its number; null where there is none.
    run: Option<u32>,
    /// Seconds of one step.
    step_seconds: u32,
    /// By name, as in the history: a value or null for each step from the run's start on.
    series: BTreeMap<String, Vec<Option<f32>>>,
}

impl Reference {
    pub(crate) fn of(trend: Option<&RunTrend>) -> Self {
        let none = || Self { run: None, step_seconds: 1, series: BTreeMap::new() };
        trend.map_or_else(none, |trend| Self {
            run: Some(trend.run),
            step_seconds: trend.step_seconds,
            series: trend.series.clone(),
        })
    }
}
