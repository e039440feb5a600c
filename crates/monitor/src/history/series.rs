//! What is kept of a run's past.

use crate::{NodeRates, Rates, Sample};
use ropewalk_terms::{Measure, Role};

/// How several values of one series become one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Together {
    /// Their mean.
    Mean,
    /// The greatest: what was nearly full or very late for a moment is to be seen in a plot of a week.
    Greatest,
}

/// Two looks at a run, and what came between them.
#[derive(Copy, Clone)]
pub(crate) struct Seen<'a> {
    pub(crate) before: &'a Sample,
    pub(crate) now: &'a Sample,
    pub(crate) rates: &'a Rates,
}

impl Seen<'_> {
    /// The mean size of the events that were built in between; none where none were.
    fn event_size(self) -> Option<f64> {
        self.now.distribution(Measure::EventSize).since(&self.before.distribution(Measure::EventSize)).mean()
    }

    /// The time that this part of all that was measured in between did not exceed, in seconds; none where nothing was measured.
    fn quantile(self, measure: Measure, part: f64) -> Option<f64> {
        let between = self.now.distribution(measure).since(&self.before.distribution(measure));
        between.quantile(part).map(|nanoseconds| nanoseconds as f64 / 1e9)
    }
}

/// A series of numbers.
#[derive(Copy, Clone, Debug)]
pub struct Series {
    /// The stable name, with its unit.
    pub name: &'static str,
    /// How several values become one.
    pub together: Together,
    of: fn(Seen<'_>) -> Option<f64>,
}

/// Every series. What is appended here is appended to each place of a ring.
pub const SERIES: &[Series; 10] = &[
    Series::new("events_per_second", Together::Mean, |seen| Some(seen.rates.events_hz)),
    Series::new("bytes_in_per_second", Together::Mean, |seen| Some(seen.rates.bytes_in_per_second)),
    Series::new("bytes_to_disk_per_second", Together::Mean, |seen| Some(seen.rates.bytes_to_disk_per_second)),
    Series::new("event_size_bytes", Together::Mean, |seen| seen.event_size()),
    Series::new("live_share", Together::Mean, |seen| Some(seen.rates.live_share)),
    Series::new("pool_share", Together::Greatest, |seen| fullest_pool(seen.rates)),
    Series::new("events_in_flight", Together::Greatest, |seen| Some(seen.rates.events_in_flight as f64)),
    Series::new("build_latency_p50_seconds", Together::Greatest, |seen| seen.quantile(Measure::BuildLatency, 0.5)),
    Series::new("build_latency_p99_seconds", Together::Greatest, |seen| seen.quantile(Measure::BuildLatency, 0.99)),
    Series::new("disk_write_p99_seconds", Together::Greatest, |seen| seen.quantile(Measure::DiskWriteTime, 0.99)),
];

impl Series {
    const fn new(name: &'static str, together: Together, of: fn(Seen<'_>) -> Option<f64>) -> Self {
        Self { name, together, of }
    }

    /// Its value now; none where nobody told it. Single precision is more than a plot shows.
    pub(crate) fn value(&self, seen: Seen<'_>) -> Option<f32> {
        (self.of)(seen).map(|value| value as f32)
    }

    /// What `known`, which is of `count` values, becomes with one more.
    pub(crate) fn put_together(&self, known: f32, count: u16, value: f32) -> f32 {
        match self.together {
            Together::Mean => known + (value - known) / (f32::from(count) + 1.0),
            Together::Greatest => known.max(value),
        }
    }
}

/// The part of its pool that the readout unit with the fullest one holds; where there are none, of its sets that a gateway does.
fn fullest_pool(rates: &Rates) -> Option<f64> {
    let is_readout = |node: &&NodeRates| node.node.role == Role::Readout;
    let has_readouts = rates.nodes.iter().any(|node| is_readout(&node));
    let nodes = rates.nodes.iter().filter(|node| !has_readouts || is_readout(node));
    nodes.filter_map(|node| node.pool_share).max_by(f64::total_cmp)
}
