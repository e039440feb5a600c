//! A run of an output directory, as its account tells it to whoever looks for it later: what lists and comparisons show.

use super::claim::ACCOUNT;
use super::clock_summary::ClockSummary;
use super::configured::CONFIGURATION;
use super::measures::MeasureSummary;
use super::push::PUSH_SUMMARY_SCHEMA;
use super::registry::{Registry, RunDirectory};
use crate::configuration::Written;
use crate::fields::Fields;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Bytes of an account that is read; no run writes a longer one.
const ACCOUNT_BYTES: u64 = 64 << 20;

/// A front end under run control, as the account has it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FrontEndRecord {
    /// How it called itself.
    pub name: String,
    /// What it said of the versions of its firmware and library.
    pub versions: String,
    /// The SHA-256 of the settings that it was ready with; none where it was not, or has none.
    pub settings_sha256: Option<String>,
}

/// Events, both ends included, in which a source is missing, as the account has them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GapRecord {
    /// The first one.
    pub first: String,
    /// The last one.
    pub last: String,
    /// In how many of these it is missing.
    pub missing: u64,
}

/// What an account says in a line. Where there is no account, because the run goes on or was killed, fields are null. Of a push system
/// packets are counted in the place of fragments, all flows together.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RunRecord {
    /// The run's number.
    pub run: u32,
    /// Its directory.
    pub directory: PathBuf,
    /// Whether it has its account: it was closed.
    pub has_account: bool,
    /// How it ended: `ended`, `forced`, or the phase in which it was left.
    pub state: Option<String>,
    /// When it began, in nanoseconds since 1970 UTC.
    pub started_ns: Option<i64>,
    /// What was said of it when it was started.
    pub fields: Fields,
    /// The SHA-256 of its configuration, in hexadecimal digits.
    pub configuration_sha256: Option<String>,
    /// How far its times can be believed.
    pub clock: ClockSummary,
    /// Seconds from start to the end of draining.
    pub duration_s: Option<f64>,
    /// Configured sources.
    pub sources: Option<u64>,
    /// Complete events.
    pub built: Option<u64>,
    /// Events that were emitted without some of their fragments.
    pub incomplete: Option<u64>,
    /// Events written.
    pub written: Option<u64>,
    /// Bytes of fragments received.
    pub bytes_received: Option<u64>,
    /// Bytes written.
    pub bytes_written: Option<u64>,
    /// Whether every equation of the ledger holds.
    pub is_balanced: Option<bool>,
    /// Fragments that are in no complete event, and those that never came, by cause.
    pub lost: BTreeMap<String, u64>,
    /// Sources with fragments that were lost, late, corrupt or of a wrong checksum.
    pub sources_in_trouble: Vec<u32>,
    /// In which events a source is missing, by source.
    pub gaps: BTreeMap<u32, Vec<GapRecord>>,
    /// The front ends under run control, by source.
    pub front_ends: BTreeMap<u32, FrontEndRecord>,
    /// How sizes of events and the times that things took are distributed, by the measure's name.
    pub measures: BTreeMap<String, MeasureSummary>,
    /// Why the run stopped, where it was not asked to.
    pub stopped_by: Option<String>,
}

impl RunRecord {
    /// What the account in a run's directory says.
    ///
    /// # Errors
    /// Where there is an account that cannot be read, or is none.
    pub fn read(directory: &RunDirectory) -> io::Result<Self> {
        let bare = Self { run: directory.run.0, directory: directory.path.clone(), ..Self::default() };
        match account(directory) {
            Ok(account) if account["schema"] == PUSH_SUMMARY_SCHEMA => Ok(bare.with_push(&account)),
            Ok(account) => Ok(bare.with(&account)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(bare),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", directory.path.display()))),
        }
    }

    /// The configuration that is kept beside its account; none where there is none.
    ///
    /// # Errors
    /// Where there is one that cannot be read.
    pub fn configuration(&self) -> io::Result<Option<Written>> {
        let file = self.directory.join(CONFIGURATION);
        match Written::read(&file) {
            Ok(written) => Ok(Some(written)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", file.display()))),
        }
    }

    /// What every account says.
    fn with_times(self, account: &Value) -> Self {
        Self {
            has_account: true,
            state: account["state"].as_str().map(str::to_owned),
            started_ns: account["started_ns"].as_i64(),
            fields: serde_json::from_value(account["fields"].clone()).unwrap_or_default(),
            configuration_sha256: account.pointer("/configuration/sha256").and_then(Value::as_str).map(str::to_owned),
            clock: serde_json::from_value(account["clock"].clone()).unwrap_or_default(),
            duration_s: account["duration_s"].as_f64(),
            is_balanced: account.pointer("/ledger/balanced").and_then(Value::as_bool),
            ..self
        }
    }

    fn with_push(self, account: &Value) -> Self {
        let flows = || account["flows"].as_object().into_iter().flatten().map(|(_, flow)| flow);
        let sum = |place: &str| flows().filter_map(|flow| flow.pointer(place)?.as_u64()).sum::<u64>();
        let of_gateways = account["gateways"].as_object().into_iter().flatten();
        let bytes_written = of_gateways.filter_map(|(_, gateway)| gateway.pointer("/written/bytes")?.as_u64()).sum();
        let mut losses = BTreeMap::new();
        for flow in flows() {
            let missing = &flow["sets"]["missing_packets"];
            let packets = json!({
                "dropped": flow["packets"]["dropped"], "missing": missing, "late": flow["packets"]["late"],
                "corrupt": flow["packets"]["corrupt"], "in_incomplete_events": flow["packets"]["in_incomplete_events"],
            });
            lost(&packets).into_iter().for_each(|(cause, count)| *losses.entry(cause).or_default() += count);
        }
        let sources = || flows().filter_map(|flow| flow["sources"].as_object()).flatten();
        let in_trouble = sources().filter(|(_, source)| source["missing"].as_u64() > Some(0));
        Self {
            sources: Some(sources().count() as u64),
            built: Some(sum("/events/built")),
            incomplete: Some(sum("/events/incomplete_emitted")),
            written: account["written"].as_u64(),
            bytes_received: Some(sum("/packets/bytes")),
            bytes_written: Some(bytes_written),
            lost: losses,
            sources_in_trouble: in_trouble.filter_map(|(id, _)| id.parse().ok()).collect(),
            ..self.with_times(account)
        }
    }

    fn with(self, account: &Value) -> Self {
        let count = |place: &str| account.pointer(place).and_then(Value::as_u64);
        let text = |name: &str| account[name].as_str().map(str::to_owned);
        Self {
            sources: count("/sources"),
            built: count("/events/built"),
            incomplete: count("/events/incomplete_emitted"),
            written: count("/events/written"),
            bytes_received: count("/bytes/payload_received"),
            bytes_written: count("/bytes/written"),
            lost: lost(&account["fragments"]),
            sources_in_trouble: in_trouble(&account["by_source"]),
            gaps: by_source(&account["gaps"]),
            front_ends: by_source(&account["front_ends"]["by_source"]),
            measures: serde_json::from_value(account["measures"].clone()).unwrap_or_default(),
            stopped_by: text("stopped_by"),
            ..self.with_times(account)
        }
    }
}

/// The whole account of a run.
pub(super) fn account(directory: &RunDirectory) -> io::Result<Value> {
    let file = directory.path.join(ACCOUNT);
    if fs::metadata(&file)?.len() > ACCOUNT_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("{ACCOUNT} is longer than an account can be")));
    }
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

/// What of these fragments is in no complete event, by cause.
fn lost(fragments: &Value) -> BTreeMap<String, u64> {
    const COUNTS: [&str; 4] = ["in_incomplete_events", "late", "corrupt", "frames_missing"];
    let mut lost = BTreeMap::new();
    let by_cause = ["dropped", "missing"].into_iter().filter_map(|group| fragments[group].as_object()).flatten();
    let counts = COUNTS.into_iter().map(|name| (name, &fragments[name]));
    for (name, count) in by_cause.map(|(cause, count)| (cause.as_str(), count)).chain(counts) {
        if let Some(count) = count.as_u64().filter(|&count| count > 0) {
            *lost.entry(name.to_owned()).or_default() += count;
        }
    }
    lost
}

fn in_trouble(by_source: &Value) -> Vec<u32> {
    // An incomplete event is the trouble of the sources that are missing there, not of those that came.
    let is_bad = |account: &Value| {
        account["crc_errors"].as_u64() > Some(0) || lost(account).keys().any(|cause| cause != "in_incomplete_events")
    };
    let bad = by_source.as_object().into_iter().flatten().filter(|(_, account)| is_bad(account));
    let mut sources: Vec<u32> = bad.filter_map(|(id, _)| id.parse().ok()).collect();
    sources.sort_unstable();
    sources
}

/// What is told of each source; nothing of one of which something else is told than is known here.
fn by_source<T: DeserializeOwned>(told: &Value) -> BTreeMap<u32, T> {
    let one = |(id, one): (&String, &Value)| Some((id.parse().ok()?, serde_json::from_value(one.clone()).ok()?));
    told.as_object().into_iter().flatten().filter_map(one).collect()
}

impl Registry {
    /// What the run of this number says of itself; none where there is none.
    ///
    /// # Errors
    /// Where the output directory or the account cannot be read.
    pub fn record(&self, run: u32) -> io::Result<Option<RunRecord>> {
        let directory = self.runs()?.into_iter().find(|directory| directory.run.0 == run);
        directory.map(|directory| RunRecord::read(&directory)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::RunNumber;

    #[test]
    fn an_account_is_told_in_a_line_with_what_was_lost_and_by_whom() {
        let path = std::env::temp_dir().join(format!("ropewalk-record-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory can be made");
        let directory = RunDirectory { run: RunNumber(7), path: path.clone() };
        let bare = RunRecord::read(&directory).expect("it can be read");
        assert_eq!((bare.run, bare.has_account, bare.state), (7, false, None));
        let account = json!({
            "state": "ended", "started_ns": 5, "fields": { "beam": "e+" }, "duration_s": 1.5, "sources": 2,
            "events": { "built": 9, "incomplete_emitted": 1, "written": 10 },
            "bytes": { "payload_received": 100, "written": 120 },
            "ledger": { "balanced": true },
            "fragments": { "dropped": { "kept_newest": 2 }, "missing": { "timed_out": 1 }, "late": 3, "corrupt": 0,
                           "in_incomplete_events": 1 },
            "by_source": {
                "12": { "missing": { "timed_out": 1 }, "dropped": {} }, "3": { "crc_errors": 1 },
                "4": { "in_incomplete_events": 1, "crc_errors": 0 },
            },
            "front_ends": { "by_source": { "3": { "name": "hv", "versions": "2.1", "settings_sha256": null, "sent": 1 } } },
            "gaps": { "12": [{ "first": "4", "last": "9", "missing": 2 }] },
            "measures": {
                "event_size": { "unit": "bytes", "count": 10, "p50": 8, "p90": 9, "p99": 9, "p99_9": 9, "max": 9.5 },
            },
            "stopped_by": null,
        });
        fs::write(path.join(ACCOUNT), account.to_string()).expect("it can be written");
        let record = RunRecord::read(&directory).expect("it can be read");
        assert_eq!((record.state.as_deref(), record.started_ns, record.written), (Some("ended"), Some(5), Some(10)));
        assert_eq!(record.fields.to_string(), "beam=e+");
        assert_eq!(record.measures.get("event_size").map(|sizes| (sizes.count, sizes.max)), Some((10, 9.5)));
        let lost = [("in_incomplete_events", 1), ("kept_newest", 2), ("late", 3), ("timed_out", 1)];
        assert_eq!(record.lost, lost.map(|(cause, count)| (cause.to_owned(), count)).into());
        let front_end = FrontEndRecord { name: "hv".to_owned(), versions: "2.1".to_owned(), settings_sha256: None };
        let gap = GapRecord { first: "4".to_owned(), last: "9".to_owned(), missing: 2 };
        assert_eq!(record.gaps, [(12, vec![gap])].into());
        assert_eq!(record.front_ends, [(3, front_end)].into());
        assert_eq!((record.sources_in_trouble, record.is_balanced), (vec![3, 12], Some(true)));
        let account = json!({
            "schema": PUSH_SUMMARY_SCHEMA, "state": "ended", "duration_s": 2.0, "written": 7, "ledger": { "balanced": true },
            "flows": {
                "hlt": {
                    "packets": { "bytes": 50, "late": 1, "dropped": { "unknown_source": 2 }, "in_incomplete_events": 3 },
                    "sets": { "missing_packets": { "timed_out": 4 } }, "sources": { "10": { "missing": 4 }, "11": { "missing": 0 } },
                    "events": { "built": 90, "incomplete_emitted": 10 },
                },
                "l1": { "packets": { "bytes": 5 }, "sources": { "1": { "missing": 0 } }, "events": { "built": 5 } },
            },
            "gateways": { "gw0": { "written": { "bytes": 70 } }, "gw1": { "written": { "bytes": 8 } } },
        });
        fs::write(path.join(ACCOUNT), account.to_string()).expect("it can be written");
        let record = RunRecord::read(&directory).expect("it can be read");
        assert_eq!(
            (record.sources, record.built, record.incomplete, record.written),
            (Some(3), Some(95), Some(10), Some(7))
        );
        assert_eq!((record.bytes_received, record.bytes_written, record.is_balanced), (Some(55), Some(78), Some(true)));
        let lost = [("in_incomplete_events", 3), ("late", 1), ("timed_out", 4), ("unknown_source", 2)];
        assert_eq!(record.lost, lost.map(|(cause, count)| (cause.to_owned(), count)).into());
        assert_eq!(record.sources_in_trouble, [10]);
        fs::write(path.join(ACCOUNT), "{").expect("it can be written");
        let error = RunRecord::read(&directory).expect_err("it is no account").to_string();
        assert!(error.contains("ropewalk-record-"), "{error}");
        fs::remove_dir_all(path).expect("it can be removed");
    }
}
