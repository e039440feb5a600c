//! What is measured of every event or batch.

use ropewalk_monitor::{Distribution, Sample};
use ropewalk_terms::{MEASURES, Measure, Unit};
use serde::Serialize;
use utoipa::ToSchema;

/// How what was measured in the present run is distributed. Percentiles are known to an eighth.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Measured {
    /// What: `event_size`, `build_latency`, `filter`, `disk_write`.
    measure: &'static str,
    /// `bytes` or `seconds`.
    unit: &'static str,
    /// Of which node; null for all of them together.
    node: Option<String>,
    /// How many values there are.
    count: u64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Measured {
    fn of(measure: Measure, node: Option<String>, distribution: &Distribution) -> Option<Self> {
        let (unit, scale) = if measure.unit() == Unit::Bytes { ("bytes", 1.0) } else { ("seconds", 1e9) };
        let quantile = |part| distribution.quantile(part).map(|value| value as f64 / scale);
        Some(Self {
            measure: measure.name(),
            unit,
            node,
            count: distribution.count(),
            mean: distribution.mean()? / scale,
            p50: quantile(0.5)?,
            p90: quantile(0.9)?,
            p99: quantile(0.99)?,
            max: quantile(1.0)?,
        })
    }
}

/// Every measure of which there is something: of all nodes, then of each.
pub(crate) fn measures(sample: &Sample) -> Vec<Measured> {
    let of_all = |&measure: &Measure| Measured::of(measure, None, &sample.distribution(measure));
    let of_nodes = sample.nodes.iter().flat_map(|node| {
        let of = |(&measure, distribution)| Measured::of(measure, Some(node.node.to_string()), distribution);
        node.distributions.iter().filter_map(of)
    });
    MEASURES.iter().filter_map(of_all).chain(of_nodes).collect()
}
