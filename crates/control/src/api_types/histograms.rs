//! What is counted of every fragment of some sources.

use ropewalk_node::run::{HistogramCounts, SourceHistograms};
use ropewalk_node::session::SessionView;
use ropewalk_terms::SourceId;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A histogram of the configuration, with what was counted of each of its sources in the present run.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Histogram {
    name: String,
    /// What is counted: `size`, `interval` or `field`.
    of: &'static str,
    /// What `edges` are in: `bytes`, `nanoseconds`, or `count`, which is the plain number of a field.
    unit: &'static str,
    /// Where bins begin, each with its lower edge and not its upper one, and where the last one ends.
    edges: Vec<u64>,
    /// By id.
    sources: BTreeMap<u32, Filled>,
}

/// What was counted of one source.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Filled {
    /// By bin.
    counts: Vec<u64>,
    /// Values below the first bin.
    underflow: u64,
    /// Values at the end of the last bin or above.
    overflow: u64,
    /// Fragments that end before the field.
    short: u64,
}

impl From<SourceHistograms> for Histogram {
    fn from(told: SourceHistograms) -> Self {
        let filled = |counts: HistogramCounts| {
            let HistogramCounts { counts, underflow, overflow, short } = counts;
            Filled { counts, underflow, overflow, short }
        };
        let sources = told.sources.into_iter().map(|(id, counts)| (id, filled(counts))).collect();
        Self { name: told.name, of: told.of.name(), unit: told.unit.name(), edges: told.edges, sources }
    }
}

/// The histograms of this name or of all names, of one source or of all.
pub(crate) fn histograms(view: &SessionView, name: Option<&str>, source: Option<SourceId>) -> Vec<Histogram> {
    let wanted = view.histograms.iter().filter(|one| name.is_none_or(|name| name == one.name));
    let wanted = wanted.filter(|one| source.is_none_or(|source| one.sources.contains(&source)));
    wanted.map(|one| one.read(&view.sample, source).into()).collect()
}
