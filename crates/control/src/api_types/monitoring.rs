//! Limits, alarms, incidents and history of a run; distributions and histograms of events, batches and fragments; event
//! samples; and the reference run.

use std::collections::BTreeMap;

use ropewalk_engine::tap::{EventSample, SampledFragment};
use ropewalk_monitor::alarms::{Alarms, built_in};
use ropewalk_monitor::bottleneck::Finding;
use ropewalk_monitor::history::{SERIES, Stretch};
use ropewalk_monitor::incidents::{Incident as Known, Incidents as AllKnown};
use ropewalk_monitor::{Distribution, RunTrend, Sample};
use ropewalk_run::session::SessionView;
use ropewalk_run::{HistogramCounts, SourceHistograms};
use ropewalk_terms::{MEASURES, Measure, SourceId, Unit, Utc};
use serde::Serialize;
use utoipa::ToSchema;

/// What limits the run.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Limited {
    /// The kind: `sources`, `pool_full`, `disk_full`, ...
    kind: String,
    /// The name of the node or source that limits; empty if nothing does.
    subject: String,
    /// An explanation in one sentence.
    sentence: String,
    /// The measured values behind the finding.
    evidence: BTreeMap<String, f64>,
}

impl Limited {
    pub(crate) fn of(finding: &Finding) -> Self {
        Self {
            kind: name_of(&finding.limit),
            subject: finding.subject.clone(),
            sentence: finding.sentence.clone(),
            evidence: finding.evidence.iter().map(|one| (one.what.clone(), one.value)).collect(),
        }
    }
}

/// The stable name of a variant, as serialised.
pub(crate) fn name_of(variant: &impl Serialize) -> String {
    let name = serde_json::to_value(variant).ok();
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// An alarm and its state.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Alarm {
    /// Its name.
    name: String,
    /// `notice`, `warning`, `critical`.
    severity: String,
    /// `normal`, `pending`, `active`, `acknowledged`, `latched`.
    state: String,
    /// The value at its last evaluation.
    value: Option<f64>,
    /// What is wrong, in one sentence; empty if only the value shows it.
    sentence: String,
    /// Whether it is a built-in alarm, which has a section in the manual.
    is_built_in: bool,
    /// The run in which it was raised last; null if it was not, or was raised between runs.
    run: Option<u32>,
    /// The operator who acknowledged it.
    known_by: Option<String>,
    /// Whether it is shelved: not shown for some time.
    is_shelved: bool,
    /// The operator who shelved it.
    shelved_by: Option<String>,
    /// Seconds until it is shown again.
    shelved_seconds: Option<u64>,
}

impl Alarm {
    /// One of these.
    pub(crate) fn of(alarm: &ropewalk_monitor::alarms::Alarm, alarms: &Alarms) -> Self {
        Self {
            name: alarm.rule.name.clone(),
            severity: name_of(&alarm.rule.severity),
            state: name_of(&alarm.state),
            value: alarm.value,
            sentence: alarm.sentence.clone(),
            is_built_in: built_in().iter().any(|rule| rule.name == alarm.rule.name),
            run: alarm.run.map(|run| run.0),
            known_by: alarm.known_by.clone(),
            is_shelved: alarm.shelved_until.is_some(),
            shelved_by: alarm.shelved_by.clone(),
            shelved_seconds: alarms.shelved_for(alarm).map(|time| time.as_secs()),
        }
    }
}

/// An incident: everything that went wrong with one cause and one subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Incident {
    /// The cause, a stable name.
    cause: String,
    /// The subject: `source 12`, `bu0`.
    subject: String,
    /// The latest message about it.
    text: String,
    /// Number of occurrences.
    count: u64,
    /// Time of the first occurrence, in nanoseconds since 1970 UTC.
    first_ns: i64,
    /// Time of the last occurrence, in nanoseconds since 1970 UTC.
    last_ns: i64,
    /// The first bytes of the data in question, in hexadecimal digits; empty without data.
    hex: String,
}

impl Incident {
    fn of(known: &Known) -> Self {
        Self {
            cause: known.cause.clone(),
            subject: known.subject.clone(),
            text: known.text.clone(),
            count: known.count,
            first_ns: known.first.0,
            last_ns: known.last.0,
            hex: known.hex.clone(),
        }
    }
}

/// Incidents, latest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Incidents {
    /// Number of incidents that match the search.
    found: usize,
    /// Number of incidents dropped to make room for others since the program started.
    forgotten: u64,
    /// The matching incidents up to the requested limit, latest first.
    incidents: Vec<Incident>,
}

impl Incidents {
    /// Returns the incidents that contain all words, at most `most` of them.
    pub(crate) fn found(known: &AllKnown, words: &str, most: usize) -> Self {
        let found = known.search(words);
        let incidents = found.iter().take(most).map(|incident| Incident::of(incident)).collect();
        Self { found: found.len(), forgotten: known.forgotten(), incidents }
    }
}

/// A part of the history: equidistant times, and a value or null of each series for each time.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct History {
    /// Seconds from one time to the next.
    step_seconds: u32,
    /// Start of each step, in seconds since 1970-01-01T00:00:00Z.
    times: Vec<i64>,
    /// Values by name of the series (`events_per_second`, ...); each as long as `times`.
    series: BTreeMap<&'static str, Vec<Option<f32>>>,
}

impl History {
    pub(crate) fn of(stretch: Stretch) -> Self {
        let series = SERIES.iter().map(|series| series.name).zip(stretch.series).collect();
        Self { step_seconds: stretch.step_seconds, times: stretch.times, series }
    }
}

/// The distribution of a measure in the current run. Percentiles are accurate to one eighth.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Measured {
    /// The measure: `event_size`, `build_latency`, `filter`, `disk_write`.
    measure: &'static str,
    /// `bytes` or `seconds`.
    unit: &'static str,
    /// The node; null for all nodes together.
    node: Option<String>,
    /// Number of values.
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

/// Returns every measure that has values: of all nodes together, then of each node.
pub(crate) fn measures(sample: &Sample) -> Vec<Measured> {
    let of_all = |&measure: &Measure| Measured::of(measure, None, &sample.distribution(measure));
    let of_nodes = sample.nodes.iter().flat_map(|node| {
        let of = |(&measure, distribution)| Measured::of(measure, Some(node.node.to_string()), distribution);
        node.distributions.iter().filter_map(of)
    });
    MEASURES.iter().filter_map(of_all).chain(of_nodes).collect()
}

/// A configured histogram, with the counts of each of its sources in the current run.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Histogram {
    name: String,
    /// What is counted: `size`, `interval` or `field`.
    of: &'static str,
    /// The unit of `edges`: `bytes`, `nanoseconds`, or `count`, the plain number of a field.
    unit: &'static str,
    /// The lower edge of each bin, then the upper edge of the last one. A bin includes its lower edge, not its upper
    /// one.
    edges: Vec<u64>,
    /// Counts by source id.
    sources: BTreeMap<u32, Filled>,
}

/// The counts of one source.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
struct Filled {
    /// Counts by bin.
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

/// Returns the histograms of this name or of all names, for one source or for all.
pub(crate) fn histograms(view: &SessionView, name: Option<&str>, source: Option<SourceId>) -> Vec<Histogram> {
    let wanted = view.histograms.iter().filter(|one| name.is_none_or(|name| name == one.name));
    let wanted = wanted.filter(|one| source.is_none_or(|source| one.sources.contains(&source)));
    wanted.map(|one| one.read(&view.sample, source).into()).collect()
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A copy of an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct SampledEvent {
    /// Time of the copy, in nanoseconds since 1970 UTC.
    pub(crate) taken_ns: i64,
    /// `17`, or `2:17` after two resynchronisations.
    pub(crate) key: String,
    /// The lumisection, from 1; 0 if a gateway built the event, since gateways have no lumisections.
    pub(crate) lumisection: u32,
    /// Number of the attempt to build it; 0 if a gateway has not assigned it to a node yet.
    pub(crate) attempt: u16,
    /// The node that built it: `bu0` is builder unit 0.
    pub(crate) builder: String,
    /// The trigger type; 0 if no fragment has one, and for events of a gateway, which are copied before their decision.
    pub(crate) trigger_type: u16,
    /// Whether all required sources are present.
    pub(crate) is_complete: bool,
    /// Bytes of all payloads.
    pub(crate) bytes: u64,
    /// One entry for each source: fragments first, then missing sources.
    pub(crate) sources: Vec<SampledSource>,
}

/// The part of one source in an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct SampledSource {
    /// Its number.
    pub(crate) id: u32,
    /// Bytes of its payload.
    pub(crate) bytes: u32,
    /// Whether the source should have a fragment and has none.
    pub(crate) missing: bool,
    /// Whether the fragment is flagged because of its content or its front end.
    pub(crate) doubtful: bool,
    /// The reason why it is missing, or remarks about its content.
    pub(crate) remarks: Vec<String>,
    /// The fields of its header.
    pub(crate) fields: Vec<Field>,
    /// The first bytes of the payload, two hexadecimal digits each.
    pub(crate) hex: String,
}

/// A field of a header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Field {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its number as text, since it may have 64 bits.
    pub(crate) value: String,
}

impl SampledEvent {
    pub(crate) fn of(event: &EventSample, taken: Utc) -> Self {
        let there = event.fragments.iter().map(|fragment| SampledSource::of(event, fragment));
        let missing = event.missing.iter().map(|missing| {
            let why =
                missing.cause().map_or_else(|| format!("cause {}", missing.cause), |cause| cause.name().to_owned());
            let (id, remarks) = (missing.source.0, vec![why]);
            SampledSource {
                id,
                bytes: 0,
                missing: true,
                doubtful: false,
                remarks,
                fields: Vec::new(),
                hex: String::new(),
            }
        });
        Self {
            taken_ns: taken.0,
            key: event.key.to_string(),
            lumisection: event.lumisection,
            attempt: event.attempt.0,
            builder: event.builder.to_string(),
            trigger_type: event.trigger_type,
            is_complete: event.is_complete(),
            bytes: event.fragments.iter().map(|fragment| u64::from(fragment.entry.length)).sum(),
            sources: there.chain(missing).collect(),
        }
    }
}

impl SampledSource {
    fn of(event: &EventSample, fragment: &SampledFragment) -> Self {
        let entry = &fragment.entry;
        let front = event.front_of(fragment);
        let fields =
            event.fields_of(fragment).into_iter().map(|(name, value)| Field { name, value: value.to_string() });
        let hex =
            front.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)]));
        let remarks = fragment.remarks().map(str::to_owned).collect();
        let doubtful = entry.flags.has_error();
        Self {
            id: entry.source.0,
            bytes: entry.length,
            missing: false,
            doubtful,
            remarks,
            fields: fields.collect(),
            hex: hex.collect(),
        }
    }
}

/// The reference run, with which the current run is compared; values by the age of the run.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Reference {
    /// Its number; null without a reference run.
    run: Option<u32>,
    /// Seconds of one step.
    step_seconds: u32,
    /// Values by name, as in the history: one, or null, for each step since the start of the run.
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
