//! Histograms of every fragment of some sources (`[[histogram]]`), with their names and edges.

use ropewalk_config::HistogramSection;
use ropewalk_flow::histogram::{HistogramConfig, Histogrammed};
use ropewalk_monitor::Sample;
use ropewalk_terms::{Binning, SourceId};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Definition of a configured histogram, for its readers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistogramDefinition {
    /// Its place in the configuration.
    index: u8,
    /// Its name.
    pub name: String,
    /// The sources that have it.
    pub sources: Vec<SourceId>,
    of: HistogramKind,
    unit: HistogramUnit,
    binning: Binning,
}

/// What a histogram counts of each fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistogramKind {
    /// Its length.
    Size,
    /// The time since the previous one.
    Interval,
    /// A number in its payload.
    Field,
}

/// The unit of the edges.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HistogramUnit {
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// The plain number of a field.
    Count,
}

impl HistogramKind {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Interval => "interval",
            Self::Field => "field",
        }
    }
}

impl HistogramUnit {
    /// The stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Nanoseconds => "nanoseconds",
            Self::Count => "count",
        }
    }
}

/// A histogram of some sources, as the account and the API have it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct SourceHistograms {
    /// Its name.
    pub name: String,
    /// The quantity.
    pub of: HistogramKind,
    /// The unit of the edges.
    pub unit: HistogramUnit,
    /// Where bins begin, each with its lower edge and not its upper one, and where the last one ends.
    pub edges: Vec<u64>,
    /// What was counted of each source, by its id.
    pub sources: BTreeMap<u32, HistogramCounts>,
}

/// What was counted of one source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct HistogramCounts {
    /// By bin.
    pub counts: Vec<u64>,
    /// Values below the first bin.
    pub underflow: u64,
    /// Values at the end of the last bin or above.
    pub overflow: u64,
    /// Fragments that end before the field.
    pub short: u64,
}

impl HistogramDefinition {
    /// Creates the definitions of a configuration from its sections and the configurations of the threads that fill
    /// them.
    pub(super) fn all(sections: &[HistogramSection], configs: Vec<HistogramConfig>) -> Vec<Self> {
        let define = |config: HistogramConfig| {
            let (of, unit) = match config.of {
                Histogrammed::Size => (HistogramKind::Size, HistogramUnit::Bytes),
                Histogrammed::Interval => (HistogramKind::Interval, HistogramUnit::Nanoseconds),
                Histogrammed::Field(_) => (HistogramKind::Field, HistogramUnit::Count),
            };
            let name = sections[usize::from(config.index)].name.clone();
            Self { index: config.index, name, sources: config.sources, of, unit, binning: config.binning }
        };
        configs.into_iter().map(define).collect()
    }

    /// Returns its content in `sample`: of all its sources, or of one.
    pub fn read(&self, sample: &Sample, only: Option<SourceId>) -> SourceHistograms {
        let wanted = self.sources.iter().filter(|&&id| only.is_none_or(|only| only == id));
        SourceHistograms {
            name: self.name.clone(),
            of: self.of,
            unit: self.unit,
            edges: self.binning.edges().to_vec(),
            sources: wanted.map(|&id| (id.0, self.counts(sample, id))).collect(),
        }
    }

    fn counts(&self, sample: &Sample, source: SourceId) -> HistogramCounts {
        let cells = sample.source(source).and_then(|known| known.histograms.get(&self.index));
        let count = |cell: u16| cells.and_then(|cells| cells.get(&cell)).copied().unwrap_or(0);
        HistogramCounts {
            counts: (1..=self.binning.bins() as u16).map(count).collect(),
            underflow: count(Binning::UNDERFLOW),
            overflow: count(self.binning.overflow()),
            short: count(self.binning.short()),
        }
    }
}
