//! What limits a run, and what is wrong with it.

use ropewalk_monitor::alarms::Alarms;
use ropewalk_monitor::bottleneck::Finding;
use serde::Serialize;
use std::collections::BTreeMap;
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
