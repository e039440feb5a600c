//! What an alarm looks at, and when it is raised.

use crate::bottleneck::Limit;
use crate::history::{SERIES, Seen, Series};
use crate::{Rates, RunTrend, Sample};
use core::time::Duration;
use ropewalk_terms::Counter;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Severity of an alarm.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Information.
    Notice,
    /// It needs attention.
    #[default]
    Warning,
    /// Data are lost, or no data are taken.
    Critical,
}

/// A number of the run that an alarm looks at.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// A counter's sum over nodes and sources.
    Value(Counter),
    /// How much a total grows per second, over nodes and sources.
    Growth(Counter),
    /// Events built per second.
    EventRate,
    /// Bytes of fragments received per second.
    BytesIn,
    /// Bytes written per second.
    BytesToDisk,
    /// Part of the time in which no source was held back, 0 to 1.
    LiveShare,
    /// Configured nodes that are not connected.
    NodesMissing,
    /// How far a series of the history, by its place in `SERIES`, is from what it was in the reference run at the same age, in percent of that.
    FromReference(usize),
    /// 1 while this is what limits the run, else 0.
    LimitedBy(Limit),
    /// 1 while the run is in this phase, else 0.
    Phase(&'static str),
    /// 1 while the run should take data and builds nothing for another reason than that nobody sends, else 0.
    Dead,
}

/// What one look at the run gives to rules.
#[derive(Copy, Clone, Debug)]
pub struct Look<'a> {
    /// The sample before, of the same run; none at first.
    pub before: Option<&'a Sample>,
    /// The sample.
    pub now: &'a Sample,
    /// The rates between the two.
    pub rates: Option<&'a Rates>,
    /// What limits the run.
    pub limit: Option<Limit>,
    /// The run that this one is compared with, and how old this one is.
    pub reference: Option<(&'a RunTrend, Duration)>,
}

impl Look<'_> {
    /// The difference in percent. Where the reference run had nothing, anything is a hundred percent more.
    fn difference(self, series: &Series) -> Option<f64> {
        let (trend, age) = self.reference.filter(|_| self.now.phase == "running")?;
        let seen = Seen { before: self.before?, now: self.now, rates: self.rates? };
        let (now, then) = (f64::from(series.value(seen)?), trend.at(series.name, age)?);
        if then == 0.0 {
            return Some(if now == 0.0 { 0.0 } else { 100.0 });
        }
        Some(100.0 * (now - then) / then)
    }
}

impl Quantity {
    /// Its value; none where it cannot be told from this look.
    pub fn of(self, look: Look<'_>) -> Option<f64> {
        let truth = |is_true| if is_true { 1.0 } else { 0.0 };
        match self {
            Self::Value(counter) => Some(look.now.total(counter) as f64),
            Self::Growth(counter) => {
                let (before, seconds) = (look.before?.total(counter), look.rates?.seconds);
                Some(look.now.total(counter).saturating_sub(before) as f64 / seconds)
            }
            Self::EventRate => look.rates.map(|rates| rates.events_hz),
            Self::BytesIn => look.rates.map(|rates| rates.bytes_in_per_second),
            Self::BytesToDisk => look.rates.map(|rates| rates.bytes_to_disk_per_second),
            Self::LiveShare => look.rates.map(|rates| rates.live_share),
            Self::FromReference(place) => look.difference(SERIES.get(place)?),
            Self::NodesMissing => Some(look.now.nodes.iter().filter(|node| !node.is_connected).count() as f64),
            Self::LimitedBy(limit) => look.limit.map(|seen| truth(seen == limit)),
            Self::Phase(phase) => Some(truth(look.now.phase == phase)),
            Self::Dead => {
                let builds = look.rates?.events_hz > 0.0;
                let should = look.now.phase == "running" && look.limit? != Limit::NoData;
                Some(truth(should && !builds))
            }
        }
    }
}

/// When a quantity is not as it should be.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Condition {
    /// It is larger.
    Above(f64),
    /// It is smaller.
    Below(f64),
}

impl Condition {
    /// The value is not as it should be.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::Above(limit) => value > limit,
            Self::Below(limit) => value < limit,
        }
    }
}

/// When an alarm is raised.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// The alarm's name, once only.
    pub name: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it looks at.
    pub quantity: Quantity,
    /// When that is not as it should be.
    pub condition: Condition,
    /// How long it has to be so.
    pub hold: Duration,
    /// It stays after it is over, until somebody has acknowledged it.
    pub is_latched: bool,
}

/// The rules that every run has.
pub fn built_in() -> Vec<Rule> {
    let rule = |name: &str, severity, quantity, seconds, is_latched| Rule {
        name: name.to_owned(),
        severity,
        quantity,
        condition: Condition::Above(0.0),
        hold: Duration::from_secs(seconds),
        is_latched,
    };
    let limited_by = Quantity::LimitedBy;
    vec![
        rule("disk_failing", Severity::Critical, limited_by(Limit::DiskFailing), 0, true),
        rule("disk_full", Severity::Critical, limited_by(Limit::DiskFull), 0, false),
        rule("node_missing", Severity::Critical, Quantity::NodesMissing, 2, true),
        // Longer than it takes to build what was on its way when triggers begin.
        rule("data_acquisition_dead", Severity::Critical, Quantity::Dead, 10, true),
        rule("datagrams_lost", Severity::Critical, limited_by(Limit::DatagramsLost), 0, true),
        rule("source_silent", Severity::Warning, limited_by(Limit::SourceSilent), 0, false),
        rule("checksums_wrong", Severity::Warning, Quantity::Growth(Counter::CrcErrors), 0, true),
        rule("no_triggers", Severity::Notice, limited_by(Limit::NoData), 10, false),
    ]
}
