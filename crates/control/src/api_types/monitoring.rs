//! What limits a run, what is wrong with it and how it went; what is measured of events, batches and fragments; a single event; and the
//! run that the present one is compared with.

use std::collections::BTreeMap;

use ropewalk_monitor::alarms::Alarms;
use ropewalk_monitor::bottleneck::Finding;
use ropewalk_monitor::history::{SERIES, Stretch};
use ropewalk_monitor::incidents::{Incident as Known, Incidents as AllKnown};
use ropewalk_monitor::{Distribution, RunTrend, Sample};
use ropewalk_node::run::{HistogramCounts, SourceHistograms};
use ropewalk_node::session::SessionView;
use ropewalk_node::tap::{EventSample, SampledFragment};
use ropewalk_terms::{MEASURES, Measure, SourceId, Unit, Utc};
use serde::Serialize;
use utoipa::ToSchema;

/// What limits the run.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Limited {
    /// The kind: `sources`, `pool_full`, `disk_full`, ...
    kind: String,
    /// Which node or source it is; empty where it is none.
    subject: String,
    /// For people.
    sentence: String,
    /// The numbers that say so.
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

/// The stable name of a variant, as it is written.
pub(crate) fn name_of(variant: &impl Serialize) -> String {
    let name = serde_json::to_value(variant).ok();
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// An alarm as it is.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Alarm {
    /// Its name.
    name: String,
    /// `notice`, `warning`, `critical`.
    severity: String,
    /// `normal`, `pending`, `active`, `acknowledged`, `latched`.
    state: String,
    /// The value that it looked at last.
    value: Option<f64>,
    /// Who knows of it, where it is acknowledged.
    known_by: Option<String>,
    /// Whether it is shelved: not shown for a while.
    is_shelved: bool,
    /// Who shelved it.
    shelved_by: Option<String>,
    /// For how many seconds still.
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
            known_by: alarm.known_by.clone(),
            is_shelved: alarm.shelved_until.is_some(),
            shelved_by: alarm.shelved_by.clone(),
            shelved_seconds: alarms.shelved_for(alarm).map(|time| time.as_secs()),
        }
    }
}

/// What went wrong, of one cause and one subject.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Incident {
    /// Why, by a stable name.
    cause: String,
    /// Of what: `source 12`, `bu0`.
    subject: String,
    /// What was said of it last.
    text: String,
    /// How often.
    count: u64,
    /// When first, in nanoseconds since 1970 UTC.
    first_ns: i64,
    /// When last.
    last_ns: i64,
    /// The first bytes that showed it, in hexadecimal digits; empty where there are none.
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

/// What went wrong, the latest first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Incidents {
    /// How many there are that were looked for.
    found: usize,
    /// How many were forgotten for others since the program began.
    forgotten: u64,
    /// As many as were wanted, the latest first.
    incidents: Vec<Incident>,
}

impl Incidents {
    /// Those in which all words stand, at most so many.
    pub(crate) fn found(known: &AllKnown, words: &str, most: usize) -> Self {
        let found = known.search(words);
        let incidents = found.iter().take(most).map(|incident| Incident::of(incident)).collect();
        Self { found: found.len(), forgotten: known.forgotten(), incidents }
    }
}

/// A part of the past: times with the same distance, and for each of them a value of each series, or null.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct History {
    /// Seconds from one time to the next.
    step_seconds: u32,
    /// Seconds since 1970-01-01T00:00:00Z in which each step begins.
    times: Vec<i64>,
    /// By name: `events_per_second`, ... ; each as long as `times`.
    series: BTreeMap<&'static str, Vec<Option<f32>>>,
}

impl History {
    pub(crate) fn of(stretch: Stretch) -> Self {
        let series = SERIES.iter().map(|series| series.name).zip(stretch.series).collect();
        Self { step_seconds: stretch.step_seconds, times: stretch.times, series }
    }
}

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
struct Filled {
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

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A copy of an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct SampledEvent {
    /// When it was copied, in nanoseconds since 1970 UTC.
    pub(crate) taken_ns: i64,
    /// `17`, or `2:17` after two resynchronisations.
    pub(crate) key: String,
    /// The lumisection, from 1; 0 where a gateway built it, which knows of none.
    pub(crate) lumisection: u32,
    /// The how manieth attempt to build it; 0 where a gateway has not given it to a node yet.
    pub(crate) attempt: u16,
    /// Who built it: `bu0` is builder unit 0.
    pub(crate) builder: String,
    /// 0 where no fragment has one, and of a gateway's events, which are copied before they are decided.
    pub(crate) trigger_type: u16,
    /// No required source is missing.
    pub(crate) is_complete: bool,
    /// Bytes of all payloads.
    pub(crate) bytes: u64,
    /// A source each: fragments first, then what is missing.
    pub(crate) sources: Vec<SampledSource>,
}

/// What a source has in an event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct SampledSource {
    /// Its number.
    pub(crate) id: u32,
    /// Bytes of its payload.
    pub(crate) bytes: u32,
    /// It should have a fragment, and has none.
    pub(crate) missing: bool,
    /// Something is wrong with its content, or with the front end.
    pub(crate) doubtful: bool,
    /// Why it is missing, or what is said of its content: empty where there is nothing to say.
    pub(crate) remarks: Vec<String>,
    /// What its header says.
    pub(crate) fields: Vec<Field>,
    /// The first bytes, two digits each.
    pub(crate) hex: String,
}

/// A field of a header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct Field {
    /// What it is.
    pub(crate) name: &'static str,
    /// A number, as text: it may have 64 bits.
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

/// The run that the present one is compared with; its numbers by its age.
#[derive(Clone, PartialEq, Debug, Serialize, ToSchema)]
pub(crate) struct Reference {
    /// Its number; null where there is none.
    run: Option<u32>,
    /// Seconds of one step.
    step_seconds: u32,
    /// By name, as in the history: a value or null for each step from the run's start on.
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
