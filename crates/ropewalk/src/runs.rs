//! Commands on the runs of an output directory: lists, accounts and notes.

use crate::exit::{self, Failure};
use crate::output::{print_json, write_results};
use crate::render::{columns, counted, faulty_lines, grouped, table_of_two_columns};
use clap::{Args, Subcommand};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use ropewalk_config::Differences;
use ropewalk_run::{
    FrontEndRecord, GapSummary, Logbook, MeasureSummary, MeasureUnit, Note, NoteKind, Registry, RunRecord,
};
use ropewalk_terms::{RunNumber, Utc};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ropewalk runs list
  ropewalk runs show 7 --output /data0
  ropewalk runs compare 7 8
  ropewalk runs note 7 'target moved by 2 mm' --by ada
  ropewalk runs export > runs.csv")]
pub(crate) struct RunsOptions {
    #[command(subcommand)]
    command: RunsCommand,
    /// Directory with the run directories: `output` of the configuration.
    #[arg(long, global = true, value_name = "DIR", default_value = ".")]
    output: PathBuf,
    /// Print the result as JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// List all runs, newest last.
    List,
    /// Show one run with its notes.
    Show {
        /// Run number.
        #[arg(value_parser = run_number)]
        run: u32,
    },
    /// Compare two runs and their configurations.
    Compare {
        /// Number of the first run.
        #[arg(value_parser = run_number)]
        one: u32,
        /// Number of the second run.
        #[arg(value_parser = run_number)]
        other: u32,
    },
    /// Add a note to the logbook of a run (logbook.jsonl).
    Note {
        /// Run number.
        #[arg(value_parser = run_number)]
        run: u32,
        /// Text of the note.
        text: String,
        /// Author [default: $USER].
        #[arg(long, value_name = "NAME")]
        by: Option<String>,
    },
    /// Print all runs as CSV with a header line.
    Export,
}

fn run_number(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "expected a run number, such as 7; `ropewalk runs list` shows them")
}

pub(crate) fn runs(options: &RunsOptions) -> Result<u8, Failure> {
    let output = Output::open(options)?;
    match &options.command {
        RunsCommand::List => output.list(),
        RunsCommand::Show { run } => output.show(*run),
        RunsCommand::Compare { one, other } => output.compare(*one, *other),
        RunsCommand::Note { run, text, by } => output.note(*run, text, by.as_deref()),
        RunsCommand::Export => output.export(),
    }
}

/// The value of a key in a configuration, if given.
type Said = Option<String>;

/// Rows that differ between any two runs, so that a comparison does not mark them.
const VARYING: [&str; 6] = ["began (UTC)", "duration", "clock", "build latency", "filter time", "disk write time"];

/// Keys of the configuration that a comparison shows.
const MOST_KEYS: usize = 30;

/// The output directory, looked at.
struct Output<'a> {
    path: &'a PathBuf,
    registry: Registry,
    logbook: Logbook,
    json: bool,
}

impl<'a> Output<'a> {
    fn open(options: &'a RunsOptions) -> Result<Self, Failure> {
        let path = &options.output;
        if !path.is_dir() {
            return Err(Failure::Usage(format!("--output {}: there is no such directory", path.display())));
        }
        let registry = Registry::open(path).map_err(|error| cannot(path, &error))?;
        Ok(Self { path, registry, logbook: Logbook::of(path), json: options.json })
    }

    /// All runs. A run whose account is damaged is reported, and is in the list without numbers.
    fn records(&self) -> Result<Vec<RunRecord>, Failure> {
        let directories = self.registry.runs().map_err(|error| cannot(self.path, &error))?;
        let record = |directory| {
            RunRecord::read(directory).unwrap_or_else(|error| {
                tell!("warning: {error}");
                RunRecord { run: directory.run.0, directory: directory.path.clone(), ..RunRecord::default() }
            })
        };
        Ok(directories.iter().map(record).collect())
    }

    fn record(&self, run: u32) -> Result<RunRecord, Failure> {
        let record = self.registry.record(run).map_err(|error| Failure::Environment(error.to_string()))?;
        record.ok_or_else(|| {
            let known = self.registry.runs().unwrap_or_default();
            let Some((first, last)) = known.first().zip(known.last()) else { return Failure::Usage(self.no_runs()) };
            let (first, last) = (first.run.0, last.run.0);
            Failure::Usage(format!("{}: there is no run {run}; there are {first} to {last}", self.path.display()))
        })
    }

    fn no_runs(&self) -> String {
        let path = self.path.display();
        format!("{path}: no runs here; --output names the directory of the runs, `output` of their configuration")
    }

    fn list(&self) -> Result<u8, Failure> {
        let records = self.records()?;
        if self.json {
            print_json(&records)?;
            return Ok(exit::GOOD);
        }
        if records.is_empty() {
            tell!("{}", self.no_runs());
            return Ok(exit::GOOD);
        }
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED);
        table.set_header([
            "run",
            "began (UTC)",
            "duration",
            "end",
            "events",
            "bytes",
            "incomplete events",
            "missing fragments",
            "lost fragments",
        ]);
        for column in [2, 4, 5, 6, 7, 8] {
            table.column_mut(column).into_iter().for_each(|column| {
                column.set_cell_alignment(CellAlignment::Right);
            });
        }
        for record in &records {
            let sum = |counts: &BTreeMap<String, u64>| {
                if record.has_account { grouped(counts.values().sum()) } else { String::new() }
            };
            table.add_row([
                record.run.to_string(),
                began(record),
                took(record),
                ended(record),
                number(record.written),
                number(record.bytes_written),
                number(record.incomplete),
                sum(&record.missing),
                sum(&record.lost),
            ]);
        }
        say!("{table}");
        Ok(exit::GOOD)
    }

    fn show(&self, run: u32) -> Result<u8, Failure> {
        let record = self.record(run)?;
        let notes = self.logbook.notes_of(RunNumber(run)).map_err(|error| cannot(self.path, &error))?;
        if self.json {
            let mut shown = json!(record);
            shown["notes"] = json!(notes);
            print_json(&shown)?;
            return Ok(exit::GOOD);
        }
        let mut table = table_of_two_columns();
        table.set_header(["run", &format!("{:06}  {}", run, ended(&record))]);
        for (name, value) in rows(&record).into_iter().filter(|(_, value)| !value.is_empty()) {
            table.add_row([name, &value]);
        }
        say!("{table}");
        say!("files    {}", record.directory.display());
        notes.iter().for_each(tell);
        Ok(exit::GOOD)
    }

    fn compare(&self, one: u32, other: u32) -> Result<u8, Failure> {
        let (one, other) = (self.record(one)?, self.record(other)?);
        let differences = Self::differences(&one, &other)?;
        if self.json {
            let differing = |of: fn(&(Said, Said)) -> &Said| {
                let differences = differences.as_ref()?;
                Some(differences.iter().map(|(key, said)| (key.clone(), json!(of(said)))).collect::<Map<_, _>>())
            };
            let mut both = [json!(one), json!(other)];
            both[0]["differing_configuration"] = json!(differing(|(one, _)| one));
            both[1]["differing_configuration"] = json!(differing(|(_, other)| other));
            print_json(&both)?;
            return Ok(exit::GOOD);
        }
        let mut table = table_of_two_columns();
        table.set_header(["", &format!("run {:06}", one.run), &format!("run {:06}", other.run), ""]);
        let both = rows(&one).into_iter().zip(rows(&other));
        for ((name, left), (_, right)) in both.filter(|((_, left), (_, right))| !(left.is_empty() && right.is_empty()))
        {
            let mark = if left == right || VARYING.contains(&name) { "" } else { "differs" };
            table.add_row([name, &left, &right, mark]);
        }
        let said = |said: &Said| said.clone().unwrap_or_default();
        for (key, (left, right)) in differences.iter().flatten().take(MOST_KEYS) {
            table.add_row([key, &said(left), &said(right), "differs"]);
        }
        say!("{table}");
        let more = differences.as_ref().map_or(0, Differences::len).saturating_sub(MOST_KEYS);
        if more > 0 {
            say!("further differing keys of the configuration: {more} (--json lists them)");
        }
        if differences.is_none() {
            say!("the configurations are not compared: one of the runs has none");
        }
        Ok(exit::GOOD)
    }

    /// The differences between the configurations of two runs, by key; `None` if one of them was not kept.
    fn differences(one: &RunRecord, other: &RunRecord) -> Result<Option<Differences>, Failure> {
        let read = |record: &RunRecord| record.configuration().map_err(|error| Failure::Environment(error.to_string()));
        Ok(read(one)?.zip(read(other)?).map(|(one, other)| one.differences(&other)))
    }

    fn note(&self, run: u32, text: &str, by: Option<&str>) -> Result<u8, Failure> {
        self.record(run)?;
        let user = std::env::var("USER").ok();
        let by = by.or(user.as_deref()).unwrap_or("the command line");
        let note = self.logbook.add(now(), RunNumber(run), by, text).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Failure::Usage(error.to_string()),
            _ => cannot(self.path, &error),
        })?;
        if self.json {
            print_json(&note)?;
        } else {
            tell(&note);
        }
        Ok(exit::GOOD)
    }

    fn export(&self) -> Result<u8, Failure> {
        const COLUMNS: &str = "run,began,duration_s,state,sources,built,incomplete,written,bytes_received,bytes_written,balanced,lost,fields,notes,missing\n";
        let notes = self.logbook.notes().map_err(|error| cannot(self.path, &error))?;
        let mut text = COLUMNS.to_owned();
        for record in self.records()? {
            let said: Vec<_> = notes
                .iter()
                .filter(|note| note.run == Some(record.run) && note.kind == NoteKind::Note)
                .map(|note| &*note.text)
                .collect();
            text += &csv_line(&record, &said.join("; "));
        }
        write_results(text.as_bytes());
        Ok(exit::GOOD)
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Environment(format!("{}: {error}", path.display()))
}

fn now() -> Utc {
    Utc::from(SystemTime::now())
}

fn tell(note: &Note) {
    say!("{}  {:8}  {}: {}", civil(note.at_ns), kind(note.kind), plain(&note.by), plain(&note.text));
}

/// The text without control characters, which a terminal would obey: anyone may have written the logbook.
fn plain(text: &str) -> String {
    text.replace(|letter: char| letter.is_control() && !matches!(letter, '\n' | '\t'), "\u{fffd}")
}

/// What kind of entry it is, as the logbook has it.
const fn kind(kind: NoteKind) -> &'static str {
    match kind {
        NoteKind::Note => "note",
        NoteKind::State => "state",
        NoteKind::Command => "command",
        NoteKind::Fault => "fault",
        NoteKind::Incident => "incident",
    }
}

/// A count as text; empty if it is not known.
fn number(count: Option<u64>) -> String {
    count.map_or_else(String::new, grouped)
}

fn began(record: &RunRecord) -> String {
    record.started_ns.map_or_else(String::new, civil)
}

fn took(record: &RunRecord) -> String {
    record.duration_s.map_or_else(String::new, |seconds| format!("{seconds:.1} s"))
}

/// The accuracy of its times, as text.
fn clock(record: &RunRecord) -> String {
    match record.clock.worst() {
        None => String::new(),
        Some((true, microseconds)) => format!("synchronised, within {:.3} ms", microseconds as f64 / 1e3),
        Some((false, _)) => "not synchronised with UTC: times may be wrong".to_owned(),
    }
}

/// What a front end under run control reported, as text.
fn front_end((source, one): (&u32, &FrontEndRecord)) -> String {
    let settings = one.settings_sha256.as_deref().map(|settings| format!("settings {}", digest(settings)));
    let said = [one.name.clone(), one.versions.clone()].into_iter().filter(|said| !said.is_empty()).chain(settings);
    format!("{source}: {}", said.collect::<Vec<_>>().join(", "))
}

/// In which events a source is missing, as text: `adc (source 843): 20, 31-90 (12 events)`.
fn gaps(source: &str, gaps: &[GapSummary]) -> String {
    let gap = |gap: &GapSummary| match gap {
        GapSummary { first, last, .. } if first == last => first.clone(),
        GapSummary { first, last, missing } => format!("{first}-{last} ({missing} events)"),
    };
    format!("{source}: {}", gaps.iter().map(gap).collect::<Vec<_>>().join(", "))
}

/// The part of a digest that users compare.
fn digest(digest: &str) -> String {
    digest.chars().take(16).collect()
}

/// How it ended, as text.
fn ended(record: &RunRecord) -> String {
    let Some(state) = &record.state else { return without_account(&record.directory).to_owned() };
    let unbalanced = if record.is_balanced == Some(false) { ", unbalanced" } else { "" };
    let why = record.stopped_by.as_ref().map_or_else(String::new, |cause| format!(" by {cause}"));
    format!("{state}{why}{unbalanced}")
}

/// Why a run has no account: its files tell whether they are still open.
fn without_account(directory: &Path) -> &'static str {
    let is_open = |file: &ropewalk_tools::SegmentFile| file.open;
    match ropewalk_tools::segment_files(&[directory]) {
        Ok(files) if !files.iter().any(is_open) => {
            "no account here: recovered, or written by an event manager elsewhere"
        }
        _ => "no account: not begun, still running, or killed",
    }
}

/// The description of a run, line by line; the same lines for each run.
fn rows(record: &RunRecord) -> Vec<(&'static str, String)> {
    let causes = |counts: &BTreeMap<String, u64>| {
        let all: u64 = counts.values().sum();
        let named: Vec<_> = counts.iter().map(|(cause, count)| format!("{cause} {}", grouped(*count))).collect();
        if all == 0 { String::new() } else { format!("{}: {}", grouped(all), named.join(", ")) }
    };
    let masked = record.masked.filter(|masked| *masked > 0);
    let trouble: Vec<_> = record.sources_in_trouble.iter().map(|&id| record.name_of(id)).collect();
    let gaps: Vec<_> = record.gaps.iter().map(|(&id, all)| gaps(&record.name_of(id), all)).collect();
    // The first line is a heading.
    let faulty: Vec<_> = faulty_lines(&record.faulty_events.first, record.faulty_events.further)
        .iter()
        .skip(1)
        .map(|line| line.trim().to_owned())
        .collect();
    let front_ends: Vec<_> = record.front_ends.iter().map(front_end).collect();
    vec![
        ("began (UTC)", began(record)),
        ("duration", took(record)),
        ("end", ended(record)),
        ("clock", clock(record)),
        ("fields", record.fields.to_string()),
        ("configuration", record.configuration_sha256.as_deref().map_or_else(String::new, digest)),
        ("sources", number(record.sources)),
        ("events complete", number(record.built)),
        ("events incomplete", number(record.incomplete)),
        ("events written", number(record.written)),
        ("bytes received", number(record.bytes_received)),
        ("bytes written", number(record.bytes_written)),
        ("event size", measure(record, "event_size")),
        ("build latency", measure(record, "build_latency")),
        ("filter time", measure(record, "filter")),
        ("disk write time", measure(record, "disk_write")),
        ("fragments lost", causes(&record.lost)),
        ("fragments missing", causes(&record.missing)),
        ("fragments masked", number(masked)),
        ("sources with losses or errors", trouble.join(", ")),
        ("missing in events", gaps.join("\n")),
        ("events with faults", faulty.join("\n")),
        ("remarks", record.remarks.join("\n")),
        ("front ends", front_ends.join("\n")),
    ]
}

/// How a measure is distributed; nothing if there were no values.
fn measure(record: &RunRecord, name: &str) -> String {
    let Some(MeasureSummary { unit, count, p50, p90, p99, p99_9, max }) = record.measures.get(name) else {
        return String::new();
    };
    let shown = |value: &f64| match unit {
        MeasureUnit::Bytes => grouped(*value as u64),
        MeasureUnit::Seconds => format!("{:.3}", value * 1e3),
    };
    let (unit, count) = (if *unit == MeasureUnit::Bytes { "bytes" } else { "ms" }, grouped(*count));
    let [p50, p90, p99, p99_9, max] = [p50, p90, p99, p99_9, max].map(shown);
    let shares = format!("90 % up to {p90}, 99 % up to {p99}, 99.9 % up to {p99_9}");
    format!("median {p50} {unit}, {shares}, maximum {max}; {count} values")
}

fn csv_line(record: &RunRecord, notes: &str) -> String {
    let count = |count: Option<u64>| count.map_or_else(String::new, |count| count.to_string());
    let causes = |counts: &BTreeMap<String, u64>| {
        counts.iter().map(|(cause, count)| format!("{cause}={count}")).collect::<Vec<_>>().join(" ")
    };
    let fields = [
        record.run.to_string(),
        began(record),
        record.duration_s.map_or_else(String::new, |seconds| seconds.to_string()),
        record.state.clone().unwrap_or_default(),
        count(record.sources),
        count(record.built),
        count(record.incomplete),
        count(record.written),
        count(record.bytes_received),
        count(record.bytes_written),
        record.is_balanced.map_or_else(String::new, |is_balanced| is_balanced.to_string()),
        causes(&record.lost),
        record.fields.to_string(),
        notes.to_owned(),
        causes(&record.missing),
    ];
    fields.map(|field| csv_field(&field)).join(",") + "\n"
}

/// A field as RFC 4180 wants it.
fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// `2026-11-23 06:55:15` of a time in nanoseconds since 1970 UTC.
pub(crate) fn civil(nanoseconds: i64) -> String {
    let utc = Utc(nanoseconds);
    format!("{} {}", utc.date(), utc.time_of_day())
}

/// A table of files, and their totals.
pub(crate) fn lines(answer: &Value) -> Vec<String> {
    let Some(run) = answer["run"].as_u64() else { return vec!["no run has left any files yet".to_owned()] };
    let files = answer["files"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |value: &Value| match value {
        Value::Number(number) => number.as_u64().map_or_else(String::new, grouped),
        value => value.as_str().unwrap_or_default().replace('_', " "),
    };
    let mut table = columns(&["file", "state", "bytes", "events", "writer", "stream", "lumisection"], &[2, 3, 6]);
    for file in files {
        let path = file["path"].as_str().unwrap_or_default().to_owned();
        let rest = ["state", "bytes", "events", "writer", "lumisection"].map(|name| text(&file[name]));
        let [state, bytes, events, writer, lumisection] = rest;
        let stream = file["stream"].as_str().unwrap_or_default().to_owned();
        table.add_row([path, state, bytes, events, writer, stream, lumisection]);
    }
    let sum = |name: &str| files.iter().filter_map(|file| file[name].as_u64()).sum();
    let mut lines = vec![format!(
        "run {run}: {}, {} bytes, {} events in closed files",
        counted(files.len(), "file"),
        grouped(sum("bytes")),
        grouped(sum("events"))
    )];
    for (name, count, words) in [
        ("deleted", "segments", "files were deleted to stay within `keep`"),
        ("transfer", "deleted", "files were deleted when they were safe elsewhere"),
    ] {
        if let Some(count) = answer[name][count].as_u64().filter(|&count| count > 0) {
            lines.push(format!("{} {words}", grouped(count)));
        }
    }
    if !files.is_empty() {
        lines.push(table.trim_fmt());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_events_that_lack_a_source_are_printed_in_a_line() {
        let gap = |first: &str, last: &str, missing| GapSummary { first: first.into(), last: last.into(), missing };
        let all = [gap("20", "20", 1), gap("31", "90", 12)];
        assert_eq!(gaps("adc (source 843)", &all), "adc (source 843): 20, 31-90 (12 events)");
    }

    #[test]
    fn a_note_tells_a_terminal_nothing_to_do() {
        assert_eq!(plain("\u{1b}[2J2\tmm\n\u{9b}2J"), "\u{fffd}[2J2\tmm\n\u{fffd}2J");
    }

    #[test]
    fn a_note_with_commas_and_quotes_is_one_field() {
        let line = csv_line(&RunRecord { run: 7, ..RunRecord::default() }, "\"on\", since 3");
        assert_eq!(line, "7,,,,,,,,,,,,,\"\"\"on\"\", since 3\",\n");
    }

    #[test]
    fn files_are_printed_in_a_table_with_their_sums() {
        let answer = json!({ "run": 7, "found": 2, "deleted": { "segments": 3 }, "transfer": null, "files": [
            { "path": "run000007/run000007-bu1-a_b-000002.rwk.open", "writer": "bu1", "stream": "a_b", "lumisection": null,
              "bytes": 1000, "events": null, "state": "open" },
            { "path": "run000007/run000007-bu0-a_b-000001.rwk", "writer": "bu0", "stream": "a_b", "lumisection": 4,
              "bytes": 12345, "events": 17, "state": "closed" },
        ] });
        let told = lines(&answer);
        assert_eq!(told[0], "run 7: 2 files, 13,345 bytes, 17 events in closed files");
        assert_eq!(told[1], "3 files were deleted to stay within `keep`");
        let rows: Vec<_> = told[2].lines().collect();
        assert!(
            rows.iter().any(|row| row.contains("run000007-bu0-a_b-000001.rwk") && row.contains("12,345")),
            "{told:?}"
        );
        assert_eq!(lines(&json!({ "run": null, "files": [] })), ["no run has left any files yet"]);
    }
}
