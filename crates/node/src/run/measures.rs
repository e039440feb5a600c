//! How what was measured of a whole run is distributed: sizes of events, and how long things took.

use ropewalk_monitor::{Distribution, Sample};
use ropewalk_terms::{MEASURES, Measure, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How a measure's values are distributed, over all nodes. Percentiles are known to an eighth of themselves, and rounded up.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MeasureSummary {
    /// The unit of the values.
    pub unit: MeasureUnit,
    /// How many values there are.
    pub count: u64,
    /// The median.
    #[schemars(range(min = 0))]
    pub p50: f64,
    /// The 90th percentile.
    #[schemars(range(min = 0))]
    pub p90: f64,
    /// The 99th percentile.
    #[schemars(range(min = 0))]
    pub p99: f64,
    /// The 99.9th percentile.
    #[schemars(range(min = 0))]
    pub p99_9: f64,
    /// The largest value.
    #[schemars(range(min = 0))]
    pub max: f64,
}

/// The unit of a measure.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeasureUnit {
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
}

impl MeasureSummary {
    /// Every measure of which there is a value, by its stable name: `event_size`, `build_latency`, `filter`, `disk_write`.
    pub(super) fn all(sample: &Sample) -> BTreeMap<String, Self> {
        let summary = |&measure: &Measure| {
            let summary = Self::new(measure.unit(), &sample.distribution(measure))?;
            Some((measure.name().to_owned(), summary))
        };
        MEASURES.iter().filter_map(summary).collect()
    }

    fn new(unit: Unit, distribution: &Distribution) -> Option<Self> {
        let (unit, scale) = if unit == Unit::Bytes { (MeasureUnit::Bytes, 1.0) } else { (MeasureUnit::Seconds, 1e9) };
        let quantile = |part| distribution.quantile(part).map(|value| value as f64 / scale);
        Some(Self {
            unit,
            count: distribution.count(),
            p50: quantile(0.5)?,
            p90: quantile(0.9)?,
            p99: quantile(0.99)?,
            p99_9: quantile(0.999)?,
            max: quantile(1.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_values_and_in_the_units_that_people_read() {
        let values: Distribution = (1..=1_000_000).collect();
        let sizes = MeasureSummary::new(Unit::Bytes, &values).expect("there are values");
        assert_eq!((sizes.unit, sizes.count), (MeasureUnit::Bytes, 1_000_000));
        for (told, exact) in
            [(sizes.p50, 5e5), (sizes.p90, 9e5), (sizes.p99, 9.9e5), (sizes.p99_9, 9.99e5), (sizes.max, 1e6)]
        {
            assert!((exact..=exact * 1.125).contains(&told), "{told} for {exact}");
        }
        let times = MeasureSummary::new(Unit::Nanoseconds, &values).expect("there are values");
        assert_eq!((times.unit, times.max), (MeasureUnit::Seconds, sizes.max / 1e9));
        assert_eq!(MeasureSummary::new(Unit::Bytes, &Distribution::default()), None);
    }
}
