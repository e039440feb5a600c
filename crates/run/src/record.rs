//! A run of an output directory as described by its account, for lists and comparisons.

use super::registry::{ACCOUNT, CONFIGURATION, Registry, RunDirectory};
use super::source_summary::GapSummary;
use super::summary_sections::{ClockSummary, MeasureSummary};
use ropewalk_config::Written;
use ropewalk_config::fields::Fields;
use ropewalk_terms::Cause;
use ropewalk_tools::FaultyEvents;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// The schema that version 1 of accounts had for runs with gateways.
const GATEWAY_SCHEMA_1: &str = "ropewalk-push-run-1";

/// Maximum size of an account that is read. No run writes a longer one.
const ACCOUNT_BYTES: u64 = 64 << 20;

/// A front end under run control, according to the account.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FrontEndRecord {
    /// Its own name.
    pub name: String,
    /// The versions of its firmware and library.
    pub versions: String,
    /// The SHA-256 of the settings that it was ready with; `None` if it was not ready, or has none.
    pub settings_sha256: Option<String>,
}

/// The fields of an account that fit in one line. If there is no account because the run goes on or was killed, they
/// are null. In runs with gateways a packet counts as one fragment, all flows together.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct RunRecord {
    /// The run's number.
    pub run: u32,
    /// The run's directory.
    pub directory: PathBuf,
    /// Whether it has an account: it was closed.
    pub has_account: bool,
    /// Final state: `ended`, `forced`, or the phase in which it was left.
    pub state: Option<String>,
    /// Start time, in nanoseconds since 1970 UTC.
    pub started_ns: Option<i64>,
    /// The fields given at its start.
    pub fields: Fields,
    /// The SHA-256 of its configuration, in hexadecimal digits.
    pub configuration_sha256: Option<String>,
    /// Reliability of its times.
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
    /// Fragments that arrived and were lost, by cause; without those of masked sources.
    pub lost: BTreeMap<String, u64>,
    /// Fragments that never came, by cause; without those of masked sources.
    pub missing: BTreeMap<String, u64>,
    /// Fragments of masked sources that arrived.
    pub masked: Option<u64>,
    /// Sources with fragments of their own that were lost, late, missing, corrupt or of a wrong checksum.
    pub sources_in_trouble: Vec<u32>,
    /// The configured names of sources.
    pub names: BTreeMap<u32, String>,
    /// The first events with faults.
    pub faulty_events: FaultyEvents,
    /// Sentences of the account on single sources.
    pub remarks: Vec<String>,
    /// Ranges of events in which a source is missing, by source.
    pub gaps: BTreeMap<u32, Vec<GapSummary>>,
    /// The front ends under run control, by source.
    pub front_ends: BTreeMap<u32, FrontEndRecord>,
    /// Distributions of event sizes and durations, by the measure's name.
    pub measures: BTreeMap<String, MeasureSummary>,
    /// Why the run stopped, if the stop was not requested.
    pub stopped_by: Option<String>,
}

/// Counts by name.
type Counts = BTreeMap<String, u64>;

/// The parts of an account that the list of runs shows. Accounts of earlier versions may lack some.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    schema: String,
    state: Option<String>,
    started_ns: Option<i64>,
    fields: Fields,
    configuration: ToldConfiguration,
    clock: ClockSummary,
    duration_s: Option<f64>,
    ledger: ToldLedger,
    sources: Option<u64>,
    events: ToldEvents,
    bytes: ToldBytes,
    fragments: ToldFragments,
    by_source: BTreeMap<u32, ToldFragments>,
    gaps: BTreeMap<u32, Vec<GapSummary>>,
    remarks: Vec<String>,
    names: BTreeMap<u32, String>,
    faulty_events: FaultyEvents,
    front_ends: Option<ToldFrontEnds>,
    measures: BTreeMap<String, MeasureSummary>,
    stopped_by: Option<String>,
    flows: BTreeMap<String, ToldFlow>,
    gateways: BTreeMap<String, ToldGateway>,
    written: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldConfiguration {
    sha256: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldLedger {
    balanced: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldEvents {
    built: Option<u64>,
    incomplete_emitted: Option<u64>,
    written: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldBytes {
    payload_received: Option<u64>,
    written: Option<u64>,
}

/// Fragments, or packets.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ToldFragments {
    bytes: u64,
    dropped: Counts,
    missing: Counts,
    duplicate: u64,
    late: u64,
    corrupt: u64,
    stale: u64,
    before_start: u64,
    frames_missing: u64,
    crc_errors: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldFrontEnds {
    by_source: BTreeMap<u32, FrontEndRecord>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldFlow {
    packets: ToldFragments,
    sets: ToldSets,
    sources: BTreeMap<u32, ToldSource>,
    events: ToldEvents,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldSets {
    missing_packets: Counts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldSource {
    missing: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldGateway {
    written: ToldWritten,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToldWritten {
    bytes: u64,
}

impl RunRecord {
    /// Reads the account in a run's directory.
    ///
    /// # Errors
    /// If the account cannot be read, or is not a valid one.
    pub fn read(directory: &RunDirectory) -> io::Result<Self> {
        let bare = Self { run: directory.run.0, directory: directory.path.clone(), ..Self::default() };
        match account::<Told>(directory) {
            Ok(told) if told.schema == GATEWAY_SCHEMA_1 => Ok(bare.with_gateways_1(told)),
            Ok(told) => Ok(bare.with(told)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(bare),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", directory.path.display()))),
        }
    }

    /// Returns the name of a source with its id: `adc (source 1)`; `source 1` if it has no configured name.
    pub fn name_of(&self, id: u32) -> String {
        self.names.get(&id).map_or_else(|| format!("source {id}"), |name| format!("{name} (source {id})"))
    }

    /// Returns the configuration that is stored beside its account; `None` without one.
    ///
    /// # Errors
    /// If there is one that cannot be read.
    pub fn configuration(&self) -> io::Result<Option<Written>> {
        let file = self.directory.join(CONFIGURATION);
        match Written::read(&file) {
            Ok(written) => Ok(Some(written)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", file.display()))),
        }
    }

    fn with_gateways_1(self, told: Told) -> Self {
        let flows = || told.flows.values();
        let sum = |count: fn(&ToldFlow) -> u64| Some(flows().map(count).sum());
        let add_up = |of: fn(&ToldFlow) -> Counts| {
            let mut sums = Counts::new();
            for (cause, count) in flows().flat_map(of) {
                *sums.entry(cause).or_default() += count;
            }
            sums
        };
        let sources = || flows().flat_map(|flow| &flow.sources);
        Self {
            sources: Some(sources().count() as u64),
            built: sum(|flow| flow.events.built.unwrap_or(0)),
            incomplete: sum(|flow| flow.events.incomplete_emitted.unwrap_or(0)),
            written: told.written,
            bytes_received: sum(|flow| flow.packets.bytes),
            bytes_written: Some(told.gateways.values().map(|gateway| gateway.written.bytes).sum()),
            lost: add_up(|flow| flow.packets.lost()),
            missing: add_up(|flow| flow.sets.missing_packets.clone()),
            masked: sum(|flow| flow.packets.masked()),
            sources_in_trouble: sources().filter(|(_, source)| source.missing > 0).map(|(id, _)| *id).collect(),
            ..self.with_times(&told)
        }
    }

    fn with(self, told: Told) -> Self {
        let bare = self.with_times(&told);
        Self {
            sources: told.sources,
            built: told.events.built,
            incomplete: told.events.incomplete_emitted,
            written: told.events.written,
            bytes_received: told.bytes.payload_received,
            bytes_written: told.bytes.written,
            lost: told.fragments.lost(),
            missing: told.fragments.never_came(),
            masked: Some(told.fragments.masked()),
            remarks: told.remarks,
            sources_in_trouble: told.by_source.iter().filter(|(_, one)| one.is_bad()).map(|(id, _)| *id).collect(),
            gaps: told.gaps,
            names: told.names,
            faulty_events: told.faulty_events,
            front_ends: told.front_ends.unwrap_or_default().by_source,
            measures: told.measures,
            stopped_by: told.stopped_by,
            ..bare
        }
    }

    /// Adds the fields that every account has.
    fn with_times(self, told: &Told) -> Self {
        Self {
            has_account: true,
            state: told.state.clone(),
            started_ns: told.started_ns,
            fields: told.fields.clone(),
            configuration_sha256: told.configuration.sha256.clone(),
            clock: told.clock,
            duration_s: told.duration_s,
            is_balanced: told.ledger.balanced,
            ..self
        }
    }
}

/// Returns the counts of causes other than `masked`.
fn but_masked(counts: &Counts) -> impl Iterator<Item = (&str, u64)> {
    counts.iter().map(|(cause, count)| (cause.as_str(), *count)).filter(|(cause, _)| *cause != Cause::Masked.name())
}

impl ToldFragments {
    /// Fragments that arrived and were lost, by cause.
    fn lost(&self) -> Counts {
        let counts = [
            ("duplicate", self.duplicate),
            ("late", self.late),
            ("corrupt", self.corrupt),
            ("stale", self.stale.saturating_sub(self.before_start)),
        ];
        let all = but_masked(&self.dropped).chain(counts).filter(|(_, count)| *count > 0);
        all.map(|(name, count)| (name.to_owned(), count)).collect()
    }

    /// Fragments that never came, by cause.
    fn never_came(&self) -> Counts {
        but_masked(&self.missing).map(|(cause, count)| (cause.to_owned(), count)).collect()
    }

    /// Fragments of masked sources.
    fn masked(&self) -> u64 {
        self.dropped.get(Cause::Masked.name()).copied().unwrap_or(0)
    }

    /// Returns whether the source has a problem. An incomplete event is the problem of the sources that are missing
    /// there, not of the present ones.
    fn is_bad(&self) -> bool {
        let is_whole = self.lost().is_empty() && self.never_came().is_empty();
        self.crc_errors > 0 || self.frames_missing > 0 || !is_whole
    }
}

/// Reads the account of a run.
pub(super) fn account<T: DeserializeOwned>(directory: &RunDirectory) -> io::Result<T> {
    let file = directory.path.join(ACCOUNT);
    if fs::metadata(&file)?.len() > ACCOUNT_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("{ACCOUNT} is longer than an account can be")));
    }
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

impl Registry {
    /// Returns the record of the run of this number; `None` without such a run.
    ///
    /// # Errors
    /// If the output directory or the account cannot be read.
    pub fn record(&self, run: u32) -> io::Result<Option<RunRecord>> {
        let directory = self.runs()?.into_iter().find(|directory| directory.run.0 == run);
        directory.map(|directory| RunRecord::read(&directory)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_terms::RunNumber;
    use serde_json::json;

    #[test]
    fn an_account_fits_in_a_line_with_what_was_lost_and_by_which_source() {
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
            "fragments": { "dropped": { "oversize": 2, "masked": 7 }, "missing": { "timed_out": 1, "masked": 9 }, "late": 3,
                           "stale": 4, "before_start": 4, "corrupt": 0, "in_incomplete_events": 1 },
            "remarks": ["source 12: missing in 1 event, 4: timed out"],
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
            "names": { "12": "adc" },
            "faulty_events": { "first": [{ "event": "4", "further_faults": 0, "faults": [
                { "source": 12, "name": "adc", "fault": "missing", "cause": "timed_out" }] }], "further": 2 },
        });
        fs::write(path.join(ACCOUNT), account.to_string()).expect("it can be written");
        let record = RunRecord::read(&directory).expect("it can be read");
        assert_eq!((record.name_of(12), record.name_of(3)), ("adc (source 12)".to_owned(), "source 3".to_owned()));
        assert_eq!(record.faulty_events.first[0].to_string(), "4: adc (source 12) missing: timed out");
        assert_eq!(record.faulty_events.further, Some(2));
        assert_eq!((record.state.as_deref(), record.started_ns, record.written), (Some("ended"), Some(5), Some(10)));
        assert_eq!(record.fields.to_string(), "beam=e+");
        assert_eq!(record.measures.get("event_size").map(|sizes| (sizes.count, sizes.max)), Some((10, 9.5)));
        let lost = [("late", 3), ("oversize", 2)];
        assert_eq!(record.lost, lost.map(|(cause, count)| (cause.to_owned(), count)).into());
        assert_eq!(record.missing, [("timed_out".to_owned(), 1)].into());
        assert_eq!((record.masked, record.remarks.len()), (Some(7), 1));
        let front_end = FrontEndRecord { name: "hv".to_owned(), versions: "2.1".to_owned(), settings_sha256: None };
        let gap = GapSummary { first: "4".to_owned(), last: "9".to_owned(), missing: 2 };
        assert_eq!(record.gaps, [(12, vec![gap])].into());
        assert_eq!(record.front_ends, [(3, front_end)].into());
        assert_eq!((record.sources_in_trouble, record.is_balanced), (vec![3, 12], Some(true)));
        fs::write(path.join(ACCOUNT), "{").expect("it can be written");
        let error = RunRecord::read(&directory).expect_err("the file is not an account").to_string();
        assert!(error.contains("ropewalk-record-"), "{error}");
        fs::remove_dir_all(path).expect("it can be removed");
    }

    /// Version 1 had a separate form for gateways.
    #[test]
    fn accounts_of_gateways_of_both_versions_say_the_same() {
        let path = std::env::temp_dir().join(format!("ropewalk-record-gateways-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        let directory = RunDirectory { run: RunNumber(4), path: path.clone() };
        let account = json!({
            "schema": GATEWAY_SCHEMA_1, "state": "ended", "duration_s": 2.0, "written": 7, "ledger": { "balanced": true },
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
        let lost = [("late", 1), ("unknown_source", 2)];
        assert_eq!(record.lost, lost.map(|(cause, count)| (cause.to_owned(), count)).into());
        assert_eq!(record.missing, [("timed_out".to_owned(), 4)].into());
        assert_eq!(record.sources_in_trouble, [10]);
        let account = json!({
            "schema": super::super::SUMMARY_SCHEMA, "state": "ended", "sources": 3, "ledger": { "balanced": true },
            "fragments": { "late": 1, "missing": { "timed_out": 4 } }, "by_source": { "10": { "missing": { "timed_out": 4 } }, "11": {} },
            "events": { "built": 95, "incomplete_emitted": 10, "written": 7 }, "bytes": { "payload_received": 55, "written": 78 },
            "flows": { "hlt": { "packets": { "bytes": 55 } } }, "gateways": { "gw0": {} }, "farm": null,
        });
        fs::write(path.join(ACCOUNT), account.to_string()).expect("it can be written");
        let record = RunRecord::read(&directory).expect("it can be read");
        assert_eq!((record.sources, record.built, record.written), (Some(3), Some(95), Some(7)));
        assert_eq!((record.bytes_received, record.bytes_written), (Some(55), Some(78)));
        assert_eq!(record.lost, [("late".to_owned(), 1)].into());
        assert_eq!(record.missing, [("timed_out".to_owned(), 4)].into());
        assert_eq!(record.sources_in_trouble, [10]);
        fs::remove_dir_all(path).expect("it can be removed");
    }
}
