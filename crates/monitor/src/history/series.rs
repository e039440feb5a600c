//! What is kept of a run's past.

use crate::{Rates, Sample};
use ropewalk_terms::Role;

/// How several values of one series become one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Together {
    /// Their mean.
    Mean,
    /// The greatest: what was nearly full or very late for a moment is to be seen in a plot of a week.
    Greatest,
}

/// A series of numbers.
#[derive(Copy, Clone, Debug)]
pub struct Series {
    /// The stable name, with its unit.
    pub name: &'static str,
    /// How several values become one.
    pub together: Together,
    of: fn(&Sample, &Rates) -> Option<f64>,
}

/// Every series. What is appended here is appended to each place of a ring.
pub const SERIES: &[Series; 6] = &[
    Series::new("events_per_second", Together::Mean, |_, rates| Some(rates.events_hz)),
    Series::new("bytes_in_per_second", Together::Mean, |_, rates| Some(rates.bytes_in_per_second)),
    Series::new("bytes_to_disk_per_second", Together::Mean, |_, rates| Some(rates.bytes_to_disk_per_second)),
    Series::new("live_share", Together::Mean, |_, rates| Some(rates.live_share)),
    Series::new("pool_share", Together::Greatest, |_, rates| fullest_pool(rates)),
    Series::new("events_in_flight", Together::Greatest, |_, rates| Some(rates.events_in_flight as f64)),
];

impl Series {
    const fn new(name: &'static str, together: Together, of: fn(&Sample, &Rates) -> Option<f64>) -> Self {
        Self { name, together, of }
    }

    /// Its value now; none where nobody told it. Single precision is more than a plot shows.
    pub(super) fn value(&self, sample: &Sample, rates: &Rates) -> Option<f32> {
        (self.of)(sample, rates).map(|value| value as f32)
    }

    /// What `known`, which is of `count` values, becomes with one more.
    pub(super) fn put_together(&self, known: f32, count: u16, value: f32) -> f32 {
        match self.together {
            Together::Mean => known + (value - known) / (f32::from(count) + 1.0),
            Together::Greatest => known.max(value),
        }
    }
}

/// The part of its pool that the readout unit with the fullest one holds.
fn fullest_pool(rates: &Rates) -> Option<f64> {
    let readouts = rates.nodes.iter().filter(|node| node.node.role == Role::Readout);
    readouts.filter_map(|node| node.pool_share).max_by(f64::total_cmp)
}
