//! `[[histogram]]`: histograms of every fragment of some sources during a run.

use super::error::{Fault, Faults};
use super::felix::Endian;
use crate::quantity::{Bytes, LONG_NAME, Time};
use ropewalk_flow::histogram::{FieldOrder, HistogramConfig, Histogrammed, IntegerField};
use ropewalk_flow::messages::ReportEntry;
use ropewalk_terms::{Binning, SourceId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Cells of all histograms of all sources together: readout units report them all once a second, 15 bytes for each in
/// which there is something.
const MOST_CELLS: usize = 1 << 17;

/// A histogram for each of some sources.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HistogramSection {
    /// Name: 1 to 64 letters, digits, `-` and `_`.
    #[schemars(regex(pattern = LONG_NAME))]
    pub name: String,
    /// Sources that have such a histogram each: `"all"`, or a list of ids and of ranges such as `"100-199"`.
    #[serde(default)]
    pub sources: SourcesChoice,
    /// Quantity that is counted: `"size"`, `"interval"`, or a number in the payload. `"size"` is the length of the
    /// payload in bytes. `"interval"` is the time since the previous fragment of the source.
    pub of: HistogramOf,
    /// Number of bins, 1 to 256.
    #[serde(default = "bins")]
    pub bins: usize,
    /// Lower edge of the first bin. A number; for sizes also a text such as `"64KiB"`; for intervals a time such as
    /// `"20us"`.
    pub from: BoundChoice,
    /// Upper edge of the last bin; this value itself is too large.
    pub to: BoundChoice,
    /// Width of the bins.
    #[serde(default)]
    pub scale: ScaleChoice,
}

const fn bins() -> usize {
    100
}

/// Sources: all, or some by their ids.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SourcesChoice {
    /// `"all"`.
    Word(String),
    /// Ids, and ranges of them that have both their ends.
    These(Vec<SourceOrRange>),
}

impl Default for SourcesChoice {
    fn default() -> Self {
        Self::Word("all".to_owned())
    }
}

/// A source, or several whose ids follow each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SourceOrRange {
    /// An id.
    Id(u32),
    /// `"100-199"`.
    Range(String),
}

impl SourceOrRange {
    /// The first and the last id.
    fn ends(&self) -> Option<(u32, u32)> {
        let (first, last) = match self {
            Self::Id(id) => (*id, *id),
            Self::Range(text) => {
                let (first, last) = text.split_once('-')?;
                (first.trim().parse().ok()?, last.trim().parse().ok()?)
            }
        };
        (first <= last).then_some((first, last))
    }
}

/// What is counted.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HistogramOf {
    /// `"size"` of the payload in bytes, or `"interval"`, the time since the source's fragment before.
    Word(String),
    /// An integer in the fragment.
    Field(FieldTable),
}

/// An unsigned integer in a fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldTable {
    /// Bytes of the payload before it.
    pub offset: u32,
    /// Width of the number, 1 to 8 bytes.
    pub bytes: u8,
    /// Byte order.
    #[serde(default)]
    pub order: Endian,
    /// Lowest and highest bit that count; 0 is the least significant. Without it: all bits.
    pub bits: Option<[u8; 2]>,
}

impl FieldTable {
    fn field(&self) -> Option<IntegerField> {
        if !(1..=8).contains(&self.bytes) {
            return None;
        }
        let [lowest, highest] = self.bits.unwrap_or([0, 8 * self.bytes - 1]);
        let order = match self.order {
            Endian::Little => FieldOrder::Little,
            Endian::Big => FieldOrder::Big,
        };
        (lowest <= highest && highest < 8 * self.bytes).then(|| IntegerField {
            offset: self.offset,
            bytes: self.bytes,
            order,
            lowest_bit: lowest,
            bits: highest - lowest + 1,
        })
    }
}

/// An end of the bins.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BoundChoice {
    /// A number of bytes, or the value of a field.
    Number(u64),
    /// `"64KiB"` of a size, `"20us"` of an interval.
    Text(String),
}

/// Width of the bins.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScaleChoice {
    /// All bins have the same width.
    #[default]
    Linear,
    /// Each bin is wider than the one before by the same factor.
    Logarithmic,
}

impl HistogramSection {
    /// What is counted of each fragment.
    fn of(&self) -> Result<Histogrammed, Fault> {
        match &self.of {
            HistogramOf::Word(word) if word == "size" => Ok(Histogrammed::Size),
            HistogramOf::Word(word) if word == "interval" => Ok(Histogrammed::Interval),
            HistogramOf::Word(word) => {
                let message =
                    format!("`{word}` is neither \"size\" nor \"interval\" nor a table of `offset` and `bytes`");
                Err(Fault::new("of", message))
            }
            HistogramOf::Field(table) => table.field().map(Histogrammed::Field).ok_or_else(|| {
                Fault::new(
                    "of",
                    "an integer has 1 to 8 `bytes`, and `bits` are the lowest and the highest one of it that count",
                )
            }),
        }
    }

    fn bound(of: Histogrammed, key: &str, bound: &BoundChoice) -> Result<u64, Fault> {
        let said = |error: &dyn std::fmt::Display| Fault::new(key, error.to_string());
        match (of, bound) {
            (Histogrammed::Interval, BoundChoice::Number(0)) => Ok(0),
            (Histogrammed::Interval, BoundChoice::Number(_)) => {
                Err(Fault::new(key, "a time, such as \"20us\" or \"5s\""))
            }
            (Histogrammed::Interval, BoundChoice::Text(text)) => {
                let time: Time = text.parse().map_err(|error| said(&error))?;
                Ok(u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX))
            }
            (_, BoundChoice::Number(number)) => Ok(*number),
            (Histogrammed::Size, BoundChoice::Text(text)) => {
                text.parse().map(|Bytes(bytes)| bytes).map_err(|error| said(&error))
            }
            (Histogrammed::Field(_), BoundChoice::Text(_)) => Err(Fault::new(key, "a number, as fields hold them")),
        }
    }

    fn binning(&self, of: Histogrammed, faults: &mut Faults) -> Option<Binning> {
        let [from, to] =
            [("from", &self.from), ("to", &self.to)].map(|(key, bound)| faults.keep(Self::bound(of, key, bound)));
        if !(1..=Binning::MOST_BINS).contains(&self.bins) {
            faults.add("bins", format!("between 1 and {} bins", Binning::MOST_BINS));
            return None;
        }
        let (from, to) = (from?, to?);
        if to <= from {
            faults.add("to", "the last bin ends above where the first one begins");
            return None;
        }
        faults.keep(match self.scale {
            ScaleChoice::Linear => Binning::linear(from, to, self.bins)
                .ok_or_else(|| Fault::new("bins", "no more bins than there are numbers between `from` and `to`")),
            ScaleChoice::Logarithmic if from == 0 => Err(Fault::new("from", "logarithmic bins begin above 0")),
            ScaleChoice::Logarithmic => Binning::logarithmic(from, to, self.bins)
                .ok_or_else(|| Fault::new("bins", "fewer: each logarithmic bin has a whole number in it")),
        })
    }

    /// Of which of these sources there is one.
    fn sources(&self, all: &[SourceId]) -> Result<Vec<SourceId>, Fault> {
        let ranges = match &self.sources {
            SourcesChoice::Word(word) if word == "all" => return Ok(all.to_vec()),
            SourcesChoice::Word(_) => Vec::new(),
            SourcesChoice::These(these) => these.iter().filter_map(SourceOrRange::ends).collect(),
        };
        let are_all = matches!(&self.sources, SourcesChoice::These(these) if these.len() == ranges.len());
        if !are_all || ranges.is_empty() {
            return Err(Fault::new("sources", "\"all\", or a list of ids and ranges, such as [3, 7, \"100-199\"]"));
        }
        let is_meant = |id: u32| ranges.iter().any(|&(first, last)| (first..=last).contains(&id));
        if let Some((first, last)) =
            ranges.iter().find(|(first, last)| !all.iter().any(|id| (*first..=*last).contains(&id.0)))
        {
            return Err(Fault::new("sources", format!("no source has an id from {first} to {last}")));
        }
        Ok(all.iter().copied().filter(|id| is_meant(id.0)).collect())
    }

    fn config(&self, index: u8, all: &[SourceId], faults: &mut Faults) -> Option<HistogramConfig> {
        let (sources, of) = (faults.keep(self.sources(all)), faults.keep(self.of())?);
        let binning = self.binning(of, faults);
        Some(HistogramConfig { index, sources: sources?, of, binning: binning? })
    }
}

/// Histograms of these sources, as the engine's configuration. An impossible one is left out; the check has refused it.
pub(super) fn configs(sections: &[HistogramSection], all: &[SourceId]) -> Vec<HistogramConfig> {
    (0..).zip(sections).filter_map(|(index, section)| section.config(index, all, &mut Faults::default())).collect()
}

/// What is wrong with histograms of these sources.
pub(super) fn check(sections: &[HistogramSection], all: &[SourceId], faults: &mut Faults) {
    let mut names = BTreeSet::new();
    let mut cells = 0;
    if sections.len() > ReportEntry::MOST_HISTOGRAMS {
        faults.add("histogram", format!("at most {} histograms", ReportEntry::MOST_HISTOGRAMS));
    }
    for (index, section) in sections.iter().enumerate() {
        let key = |field: &str| format!("histogram[{index}].{field}");
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        if section.name.is_empty() || section.name.len() > 64 || !section.name.chars().all(is_letter) {
            faults.add(key("name"), "1 to 64 letters, digits, - and _: it is part of addresses");
        }
        if !names.insert(&section.name) {
            faults.add(key("name"), format!("two histograms are named `{}`", section.name));
        }
        let mut own = Faults::default();
        let config = section.config(0, all, &mut own);
        faults.take(own, key);
        cells += config.map_or(0, |config| config.sources.len() * config.binning.cells());
    }
    if cells > MOST_CELLS {
        let message =
            format!("{cells} bins of all sources together; at most {MOST_CELLS}, as all are reported every second");
        faults.add("histogram", message);
    }
}
