//! Details of single sources: `gaps`, `numbering`, `masked` and `synchrony` of an account.

use crate::drive::{MaskRecord, MaskedInterval, RunSnapshot};
use ropewalk_flow::messages::{Gap, NumberingAnomaly, NumberingKind, SynchronyState};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Events, both ends included, in some of which a source is missing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GapSummary {
    /// The first event in which it is missing: `17`, or `2:17` after two resynchronisations.
    pub first: String,
    /// The last one.
    pub last: String,
    /// The number of these events in which it is missing.
    #[schemars(range(min = 1))]
    pub missing: u64,
}

/// An irregularity in the numbers of a source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NumberingSummary {
    /// The event that was expected next.
    pub event: String,
    /// The number before.
    pub from: u64,
    /// `begin`: counting began with this number, as the sources agreed. `left_over`: fragments of an earlier run.
    /// `wrong_number`: the following numbers disproved it. `gap`: numbers are missing. `restart`: numbering began
    /// again. `recovered`: after a restart the place in the run was found by bunch crossings or time stamps.
    /// `out_of_sync`: nothing tells it, and its fragments are in no event.
    #[schemars(extend("enum" = NumberingKind::ALL.map(NumberingKind::name)))]
    pub kind: &'static str,
    /// Events or fragments concerned.
    pub size: u64,
    /// The number received.
    pub to: u64,
}

/// Events in which a source took no part because it was masked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MaskedSummary {
    /// The first of them: `17`, or `2:17` after two resynchronisations.
    pub from: String,
    /// The first event in which it took part again; null if it did not.
    pub to: Option<String>,
}

/// Whether the numbers of a source fit those of the reference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct SynchronySummary {
    /// The source's id.
    pub source: u32,
    /// The verdict.
    pub verdict: SynchronyVerdict,
    /// Events by which it is displaced; positive: early.
    pub offset: i16,
    /// The first displaced event.
    pub since: String,
}

/// The verdict about one source.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SynchronyVerdict {
    /// It fits.
    InSync,
    /// It is displaced by a fixed number of events.
    Offset,
    /// There is no fixed relation to the reference.
    Lost,
    /// Too little is known.
    CannotTell,
}

impl GapSummary {
    /// Those of each source with gaps, by its id.
    pub(super) fn by_source(snapshot: &RunSnapshot) -> BTreeMap<String, Vec<Self>> {
        snapshot.gaps.iter().map(|(id, gaps)| (id.to_string(), gaps.iter().map(Self::from).collect())).collect()
    }
}

impl From<&Gap> for GapSummary {
    fn from(gap: &Gap) -> Self {
        Self { first: gap.first.to_string(), last: gap.last.to_string(), missing: gap.missing }
    }
}

impl NumberingSummary {
    /// Those of each source with irregular numbers, by its id.
    pub(super) fn by_source(snapshot: &RunSnapshot) -> BTreeMap<String, Vec<Self>> {
        snapshot.numbering.iter().map(|(id, all)| (id.to_string(), all.iter().map(Self::from).collect())).collect()
    }

    /// Whether it is of this kind.
    pub fn is(&self, kind: NumberingKind) -> bool {
        self.kind == kind.name()
    }
}

impl From<&NumberingAnomaly> for NumberingSummary {
    fn from(&NumberingAnomaly { kind, key, from, to, size }: &NumberingAnomaly) -> Self {
        Self { event: key.to_string(), from, kind: kind.name(), size, to }
    }
}

impl MaskedSummary {
    /// Those of each masked source, by its id.
    pub(super) fn by_source(snapshot: &RunSnapshot) -> BTreeMap<String, Vec<Self>> {
        let of = |record: &MaskRecord| record.intervals.iter().map(Self::from).collect();
        snapshot.masks.iter().map(|(id, record)| (id.to_string(), of(record))).collect()
    }
}

impl From<&MaskedInterval> for MaskedSummary {
    fn from(interval: &MaskedInterval) -> Self {
        Self { from: interval.from.to_string(), to: interval.to.map(|to| to.to_string()) }
    }
}

impl SynchronySummary {
    pub(super) fn new(state: &SynchronyState) -> Self {
        let verdict = match state.verdict {
            1 => SynchronyVerdict::InSync,
            2 => SynchronyVerdict::Offset,
            3 => SynchronyVerdict::Lost,
            _ => SynchronyVerdict::CannotTell,
        };
        Self { source: state.source.0, verdict, offset: state.offset, since: state.since.to_string() }
    }

    /// Whether it is displaced or lost.
    pub(super) const fn is_displaced(&self) -> bool {
        matches!(self.verdict, SynchronyVerdict::Offset | SynchronyVerdict::Lost)
    }
}
