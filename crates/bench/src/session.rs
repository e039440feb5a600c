//! The output of figures: to the terminal as lines or a table, and to a report's directory as lines.

use crate::pairs::{Series, median};
use crate::{BenchError, Options, Scale};
use ropewalk_doctor::Diagnosis;
use ropewalk_doctor::run::{RunPlan, USUAL_POOL_MIB, scratch};
use ropewalk_limits::{Machine, SlinkConfig, WalkConfig, core_scaling, tcp_walk};
use ropewalk_memory::{Pool, PoolConfig};
use ropewalk_terms::Utc;
use ropewalk_tune::{Grade, Wish};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// One figure beside its limit: one object of `--json`, one line of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The bench.
    pub bench: String,
    /// What was measured, and in which variant.
    pub case: Map<String, Value>,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The median figure.
    pub median: f64,
    /// The smallest figure.
    pub min: f64,
    /// The largest figure.
    pub max: f64,
    /// The number of figures.
    pub repeats: usize,
    /// The median of the limit, in the same unit, measured in turns with ours; `None` without a limit.
    pub limit: Option<f64>,
    /// The median of the pairs' ratios, ours to the limit.
    pub ratio_to_limit: Option<f64>,
    /// The smallest and the largest ratio of a pair.
    pub ratio_spread: Option<[f64; 2]>,
    /// The cost, if measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_per_gigabyte: Option<Cpu>,
    /// The same of all threads of the process and of its children, including senders and emulators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_cpu_seconds_per_gigabyte: Option<ProcessCpu>,
    /// The limit, and the target.
    pub note: &'static str,
    /// A warning that a reader needs before drawing conclusions from this figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
    /// Whether 0 is a valid result, as for losses; otherwise a figure of 0.000 is an error of the bench.
    #[serde(skip)]
    pub may_be_zero: bool,
}

/// Medians of the processor seconds per 10^9 bytes, of the sending and of the receiving thread.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct Cpu {
    /// Sender and receiver of ours.
    pub ours: [f64; 2],
    /// Sender and receiver of the limit.
    pub limit: [f64; 2],
}

/// Medians of the processor seconds per 10^9 bytes, of all threads.
#[derive(Copy, Clone, PartialEq, Debug, Serialize)]
pub struct ProcessCpu {
    /// While ours was measured.
    pub ours: f64,
    /// While the limit was measured.
    pub limit: f64,
}

impl Row {
    /// A row of pairs.
    pub(crate) fn of(case: &Map<String, Value>, unit: &'static str, series: &Series, note: &'static str) -> Self {
        let limit = (!series.limit.is_empty()).then(|| median(series.limit.iter().copied()));
        Self {
            bench: String::new(),
            case: case.clone(),
            unit,
            median: median(series.ours.iter().copied()),
            min: series.ours.iter().copied().fold(f64::INFINITY, f64::min),
            max: series.ours.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            repeats: series.ours.len(),
            limit,
            ratio_to_limit: limit.map(|_| series.ratio()),
            ratio_spread: limit.map(|_| series.ratio_spread()),
            cpu_seconds_per_gigabyte: None,
            process_cpu_seconds_per_gigabyte: None,
            note,
            remark: None,
            may_be_zero: false,
        }
    }

    /// The same, with 0 as a valid result.
    pub(crate) fn or_nothing(self) -> Self {
        Self { may_be_zero: true, ..self }
    }

    /// Why this is not a figure: the table would show 0.000, or it is not a number.
    fn flaw(&self) -> Option<String> {
        let figures = [("", Some(self.median)), ("the limit is ", self.limit)];
        figures.into_iter().find_map(|(which, figure)| {
            let figure = figure?;
            let is_nothing = figure.abs() < 0.0005 && !self.may_be_zero;
            (is_nothing || !figure.is_finite())
                .then(|| format!("{which}{figure:.3} {}: nothing was measured", self.unit))
        })
    }

    /// Adds the cost of the sending and the receiving thread, in processor seconds per 10^9 bytes.
    pub(crate) fn with_cpu(mut self, sender: &Series, receiver: &Series) -> Self {
        let medians = |side: fn(&Series) -> &Vec<f64>| [sender, receiver].map(|series| median(side(series).clone()));
        let (ours, limit) = (medians(|series| &series.ours), medians(|series| &series.limit));
        self.cpu_seconds_per_gigabyte = Some(Cpu { ours, limit });
        // As busy as the busier one of sender and receiver.
        let busy = |rate: f64, [sender, receiver]: [f64; 2]| rate * sender.max(receiver);
        let limit = self.limit.map(|rate| busy(rate, limit));
        let ours = busy(self.median, ours);
        self.marked(Some(ours), limit)
    }

    /// Adds the cost of all threads, in processor seconds per 10^9 bytes.
    pub(crate) fn with_process_cpu(mut self, all: &Series) -> Self {
        let [ours, limit] = [&all.ours, &all.limit].map(|side| median(side.iter().copied()));
        self.process_cpu_seconds_per_gigabyte = Some(ProcessCpu { ours, limit });
        self
    }

    /// Adds a remark, if there is one.
    pub(crate) fn with_remark(mut self, remark: Option<String>) -> Self {
        self.remark = match (self.remark, remark) {
            (Some(one), Some(other)) => Some(format!("{one}; {other}")),
            (one, other) => one.or(other),
        };
        self
    }

    /// Adds a mark if the processor, judged by its rate per busy second, was idle at times and not the limit.
    pub(crate) fn by_processor(self, per_processor_second: &Series) -> Self {
        let busy = |rate: f64, side: &[f64]| rate / median(side.iter().copied());
        let limit = self.limit.map(|rate| busy(rate, &per_processor_second.limit));
        let ours = busy(self.median, &per_processor_second.ours);
        self.marked(Some(ours), limit)
    }

    /// Marks a rate whose processor was busy for less than `SATURATED` of the time.
    fn marked(self, ours: Option<f64>, limit: Option<f64>) -> Self {
        let waited = |busy: Option<f64>| busy.filter(|busy| *busy > 0.0 && *busy < SATURATED);
        let remark = match (waited(ours), waited(limit)) {
            (None, None) => None,
            (Some(ours), None) => Some(format!("ours worked {ours:.2} of the time")),
            (None, Some(limit)) => Some(format!("the limit worked {limit:.2} of the time, and can do more")),
            (Some(ours), Some(limit)) => Some(format!("ours worked {ours:.2} of the time, the limit {limit:.2}")),
        };
        self.with_remark(remark.map(|what| format!("NOT SATURATED: {what}")))
    }
}

/// A case as an object, sorted by key so that lines can be compared.
pub(crate) fn case<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A case as filters and the table show it: `crc=true sources=16`.
pub fn text_of(case: &Map<String, Value>) -> String {
    let pairs = case.iter().map(|(key, value)| match value {
        Value::String(text) => format!("{key}={text}"),
        other => format!("{key}={other}"),
    });
    pairs.collect::<Vec<_>>().join(" ")
}

/// A bench that is running.
pub struct Session<'a> {
    /// The options.
    pub options: Options,
    name: String,
    out: &'a mut dyn Write,
    report: Option<Report>,
    /// Chosen cases: measured, failed, or skipped because they cannot be measured here.
    chosen: usize,
    /// Of these, the failed ones.
    failed: usize,
    /// The note of the last row of the table: it is not repeated in the next row.
    told: &'static str,
}

/// A rate per second of processor that was not measured.
pub(crate) const UNKNOWN: f64 = f64::INFINITY;

/// A processor that was busy for less than this share of the time was not the limit.
const SATURATED: f64 = 0.9;

/// Separates the doctor's pages of two runs.
const SEPARATOR: &str = "\n----\n\n";

/// The files of a report.
struct Report {
    lines: File,
    /// The doctor's page, as the machine was when each of the runs began.
    doctor: PathBuf,
}

impl<'a> Session<'a> {
    /// Examines the machine and prints a line about it.
    pub(crate) fn open(name: &str, options: Options, out: &'a mut dyn Write) -> Result<Self, BenchError> {
        let report = match &options.report {
            Some(directory) => {
                Some(open_report(directory, name).map_err(BenchError::system("the report's directory"))?)
            }
            None => None,
        };
        let looked = Diagnosis::look(&Wish::default())?;
        if let Some(report) = &report {
            attach(&report.doctor, &looked, &options)?;
        }
        let machine = machine(name, &options, &looked)?;
        let mut session = Self { options, name: name.to_owned(), out, report, chosen: 0, failed: 0, told: "" };
        session.tell(&machine, || table_head(&machine))?;
        Ok(session)
    }

    /// A run of one builder unit that checks and writes nothing, with one processor for the nodes and one for the front
    /// ends. The measured times are in milliseconds.
    pub(crate) fn plan(&self, sender: SlinkConfig, [tiny, quick, full]: [u64; 3], name: &str) -> RunPlan {
        let scale = self.options.scale;
        RunPlan {
            sender,
            builders: 1,
            check_crc: false,
            write: false,
            filter: "",
            warm_up: Duration::from_millis(scale.choose(20, 300, 500)),
            interval: Duration::from_millis(scale.choose(tiny, quick, full)),
            cpus: (scale != Scale::Tiny).then_some([0, 1]),
            pool_mib: USUAL_POOL_MIB,
            output: scratch(&self.options.output, name),
        }
    }

    /// Whether a case was requested.
    pub(crate) fn wants(&self, case: &Map<String, Value>) -> bool {
        self.options.case.as_ref().is_none_or(|filter| text_of(case).contains(filter.as_str()))
    }

    /// Measures a case if it was requested. If that fails, the session reports why, and the bench continues.
    pub(crate) fn measure(
        &mut self,
        case: &Map<String, Value>,
        measuring: impl FnOnce(&mut Self) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        if self.wants(case) { self.attempt(case, measuring) } else { Ok(()) }
    }

    /// The same for several cases that are measured at once, at least one of which was requested.
    pub(crate) fn attempt(
        &mut self,
        case: &Map<String, Value>,
        measuring: impl FnOnce(&mut Self) -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        match measuring(self) {
            // The program is missing for all other cases too.
            Err(error @ BenchError::NoProgram { .. }) => Err(error),
            // If the error is that printing fails, this fails as well.
            Err(error) => self.fail(case, &error.to_string()),
            Ok(()) => Ok(()),
        }
    }

    /// Reports why a case has no figure.
    pub(crate) fn fail(&mut self, case: &Map<String, Value>, why: &str) -> Result<(), BenchError> {
        self.chosen += 1;
        self.failed += 1;
        let line = json!({ "bench": self.name, "case": case, "failed": why });
        self.tell(&line, || format!("{:<44} FAILED: {why}", text_of(case)))
    }

    /// Prints a row and writes it to the report.
    pub(crate) fn row(&mut self, mut row: Row) -> Result<(), BenchError> {
        // A tiny run may be over before anything has arrived.
        row.may_be_zero |= self.options.scale == Scale::Tiny;
        if let Some(flaw) = row.flaw() {
            return self.fail(&row.case, &flaw);
        }
        row.bench.clone_from(&self.name);
        let note = if row.note == self.told { "" } else { row.note };
        self.told = row.note;
        self.chosen += 1;
        self.tell(&json!(row), || table_line(&row, note))
    }

    /// Reports why a case is not measured here.
    pub(crate) fn skip(&mut self, case: &Map<String, Value>, why: &str) -> Result<(), BenchError> {
        self.chosen += 1;
        let line = json!({ "bench": self.name, "case": case, "skipped": why });
        self.tell(&line, || format!("{:<44} skipped: {why}", text_of(case)))
    }

    /// Ends, and returns the number of failed cases; an error if no case was chosen.
    pub(crate) fn close(self, name: &str) -> Result<usize, BenchError> {
        match self.options.case {
            Some(filter) if self.chosen == 0 => Err(BenchError::NoCase { name: name.to_owned(), filter }),
            _ => Ok(self.failed),
        }
    }

    fn tell(&mut self, line: &Value, text: impl FnOnce() -> String) -> Result<(), BenchError> {
        let printed = if self.options.json { writeln!(self.out, "{line}") } else { writeln!(self.out, "{}", text()) };
        printed.and_then(|()| self.out.flush()).map_err(BenchError::system("output"))?;
        let Some(report) = &mut self.report else { return Ok(()) };
        writeln!(report.lines, "{line}").map_err(BenchError::system("the report"))
    }
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Session").field("name", &self.name).field("chosen", &self.chosen).finish_non_exhaustive()
    }
}

/// Runs a bare receiver on the streams of a run, for the same time and on the same processors. Returns 10^9 bytes per
/// elapsed second and per second of its processor, and the processor seconds per 10^9 bytes of all threads.
pub(crate) fn bare_receiver(plan: &RunPlan) -> Result<[f64; 3], BenchError> {
    let config = WalkConfig { sender: plan.sender, duration: plan.interval, cpus: plan.cpus, ..WalkConfig::default() };
    let walked = tcp_walk(config).map_err(BenchError::system("bare receiver"))?;
    let per_processor_second = walked.fragment_bytes as f64 / walked.cpu_seconds.max(1e-9) / 1e9;
    Ok([walked.gigabytes_per_second(), per_processor_second, walked.cpu_seconds_per_gigabyte()])
}

/// What the figures depend on: the first line.
fn machine(name: &str, options: &Options, looked: &Diagnosis) -> Result<Value, BenchError> {
    let machine = Machine::look();
    let blocks = options.scale.choose(1, 8, 8);
    let pool = Pool::new(PoolConfig::anonymous("bench page kind", 2 << 20, blocks)).map_err(BenchError::wrong)?;
    let scaling = if machine.cpus > 1 {
        let a_moment = Duration::from_millis(options.scale.choose(2, 100, 300));
        core_scaling([0, 1], a_moment)
    } else {
        1.0
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    Ok(json!({
        "bench": "machine",
        "command": command(name, options),
        "date": Utc::from(SystemTime::now()).date(),
        "host": host(),
        "kernel": machine.kernel,
        "cpu": machine.cpu,
        "cpus": machine.cpus,
        "two_cpus_do": scaling,
        "cores": if scaling > 1.5 { "real" } else { "siblings, or shared with others" },
        "load": load,
        "pages": pool.report().pages.name(),
        "transparent_huge_pages": machine.transparent_huge_pages,
        "huge_pages": { "total": machine.huge_pages.0, "free": machine.huge_pages.1 },
        "congestion_control": machine.congestion_control,
        "guest_halt_poll_ns": machine.guest_halt_poll_ns,
        "settings": { "harmful": subjects(looked, Grade::Harmful), "could_be_better": subjects(looked, Grade::CouldBeBetter) },
        "versions": { "ropewalk": env!("CARGO_PKG_VERSION"), "build": if cfg!(debug_assertions) { "debug" } else { "release" } },
        "scale": format!("{:?}", options.scale).to_lowercase(),
    }))
}

/// The command that repeats the measurement. The output directory is included only if it was chosen.
fn command(name: &str, options: &Options) -> String {
    let mut command = format!("ropewalk bench {name}");
    command.push_str(options.scale.choose(" --tiny", " --quick", ""));
    if let Some(case) = &options.case {
        let _ = write!(command, " --case '{case}'");
    }
    if options.peers {
        command.push_str(" --peers");
    }
    if options.output != Path::new(".") {
        let _ = write!(command, " --output {}", options.output.display());
    }
    command
}

/// The subjects of the findings of this grade.
fn subjects(looked: &Diagnosis, grade: Grade) -> Vec<&str> {
    let of_grade = looked.findings.iter().filter(|finding| finding.grade == grade);
    of_grade.map(|finding| finding.subject.as_str()).collect()
}

/// Appends what the machine could do when the run began: settings and the load by others change. A later run of the
/// same day appends to the same file, as with the lines.
fn attach(file: &Path, looked: &Diagnosis, options: &Options) -> Result<(), BenchError> {
    let examined = match options.scale {
        Scale::Tiny => looked.clone(),
        scale => Diagnosis::examine(&Wish::default(), &options.output, scale)?,
    };
    let opened = OpenOptions::new().create(true).append(true).open(file);
    let written = opened.and_then(|mut file| {
        let is_first = file.metadata()?.len() == 0;
        write!(file, "{}{examined}", if is_first { "" } else { SEPARATOR })
    });
    written.map_err(BenchError::system("the report's page of the machine"))
}

fn table_head(machine: &Value) -> String {
    let text = |key: &str| machine[key].as_str().unwrap_or_default().to_owned();
    format!(
        "{} on {}: {}, {} CPUs ({}, two do {:.2} times one), Linux {}, {} pages, load {}, {} build{}\n\n\
         {:<44} {:>9} {:>9} {:>9} {:>3} {:>9} {:>6}  unit",
        text("date"),
        text("host"),
        text("cpu"),
        machine["cpus"],
        text("cores"),
        machine["two_cpus_do"].as_f64().unwrap_or_default(),
        text("kernel"),
        text("pages"),
        machine["load"],
        machine["versions"]["build"].as_str().unwrap_or_default(),
        harm(machine),
        "case",
        "median",
        "min",
        "max",
        "n",
        "limit",
        "ratio",
    )
}

/// The harmful settings, if there are any.
fn harm(machine: &Value) -> String {
    let harmful: Vec<_> =
        machine["settings"]["harmful"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if harmful.is_empty() {
        String::new()
    } else {
        format!("\nharmful settings (ropewalk doctor): {}", harmful.join(", "))
    }
}

fn table_line(row: &Row, note: &str) -> String {
    let number = |value: f64| match value.abs() {
        size if size >= 1e6 => format!("{:.2}e6", value / 1e6),
        size if size >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    };
    let or_dash = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let mut line = format!(
        "{:<44} {:>9} {:>9} {:>9} {:>3} {:>9} {:>6}  {}",
        text_of(&row.case),
        number(row.median),
        number(row.min),
        number(row.max),
        row.repeats,
        or_dash(row.limit),
        row.ratio_to_limit.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
        row.unit,
    );
    if let Some(Cpu { ours: [sender, receiver], limit: [bare_sender, bare_receiver] }) = row.cpu_seconds_per_gigabyte {
        let _ = write!(
            line,
            "; CPU-s/GB: sender {sender:.2} ({bare_sender:.2}), receiver {receiver:.2} ({bare_receiver:.2})"
        );
    }
    if let Some(ProcessCpu { ours, limit }) = row.process_cpu_seconds_per_gigabyte {
        let _ = write!(line, "; CPU-s/GB of all threads: {ours:.2} ({limit:.2})");
    }
    for said in [row.remark.as_deref().unwrap_or_default(), note].into_iter().filter(|text| !text.is_empty()) {
        let _ = write!(line, "\n    {said}");
    }
    line
}

/// `DIR/<date>-<host>/<bench>.jsonl`, and `<bench>.doctor.txt`; a second run of the same day appends to the same files.
fn open_report(directory: &Path, name: &str) -> std::io::Result<Report> {
    let directory = directory.join(format!("{}-{}", Utc::from(SystemTime::now()).date(), host()));
    std::fs::create_dir_all(&directory)?;
    let lines = OpenOptions::new().create(true).append(true).open(directory.join(format!("{name}.jsonl")))?;
    Ok(Report { lines, doctor: directory.join(format!("{name}.doctor.txt")) })
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_one_line_of_text() {
        let case = case([("crc", json!(true)), ("bytes", json!(2048)), ("data", json!("hot"))]);
        assert_eq!(text_of(&case), "bytes=2048 crc=true data=hot");
    }

    #[test]
    fn the_line_of_the_machine_has_the_command() {
        let options = |scale, case: Option<&str>, output: &str| Options {
            scale,
            json: true,
            case: case.map(str::to_owned),
            report: None,
            peers: false,
            output: PathBuf::from(output),
            program: PathBuf::from("/nowhere/ropewalk"),
        };
        assert_eq!(command("felix", &options(Scale::Full, None, ".")), "ropewalk bench felix");
        let chosen = options(Scale::Quick, Some("figure=6 limit=every line"), "/disk");
        let expected = "ropewalk bench write --quick --case 'figure=6 limit=every line' --output /disk";
        assert_eq!(command("write", &chosen), expected);
        let (text, _) = session(true, |_| ());
        assert!(text.contains("\"command\":\"ropewalk bench any --quick"), "{text}");
    }

    /// Returns what a session prints, and the number of failed cases.
    fn session(json: bool, measuring: impl FnOnce(&mut Session<'_>)) -> (String, usize) {
        let options = Options {
            scale: Scale::Quick,
            json,
            case: None,
            report: None,
            peers: false,
            output: std::env::temp_dir(),
            program: PathBuf::from("/nowhere/ropewalk"),
        };
        let mut out = Vec::new();
        let mut session = Session::open("any", options, &mut out).expect("a machine");
        measuring(&mut session);
        let failed = session.close("any").expect("cases");
        (String::from_utf8(out).expect("text"), failed)
    }

    fn row(case: &Map<String, Value>, ours: f64, limit: f64) -> Row {
        Row::of(case, "GB/s", &Series { ours: vec![ours], limit: vec![limit] }, "")
    }

    #[test]
    fn a_case_that_fails_is_reported_and_the_others_go_on() {
        let measuring = |session: &mut Session<'_>| {
            let [first, second] = ["first", "second"].map(|name| case([("name", json!(name))]));
            session.measure(&first, |_| Err(BenchError::wrong("no disk"))).expect("it goes on");
            session.measure(&second, |session| session.row(row(&second, 1.0, 1.0))).expect("it goes on");
        };
        let (text, failed) = session(true, measuring);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert_eq!((failed, lines.len()), (1, 3));
        assert_eq!(
            (&lines[1]["failed"], &lines[1]["case"]["name"]),
            (&json!("no disk: no figure, because the result is wrong"), &json!("first"))
        );
        assert_eq!(lines[2]["median"], 1.0);
        let (text, _) = session(false, measuring);
        assert!(text.contains("FAILED: no disk") && text.contains("name=second"), "{text}");
    }

    #[test]
    fn a_bench_that_finds_no_program_ends() {
        let (_, failed) = session(true, |session| {
            let (case, program) = (case([("name", json!("first"))]), session.options.program.clone());
            let measured = session.measure(&case, |_| Err(BenchError::NoProgram { program }));
            assert!(matches!(measured, Err(BenchError::NoProgram { .. })), "{measured:?}");
        });
        assert_eq!(failed, 0);
    }

    #[test]
    fn a_rate_is_marked_if_its_processor_waited() {
        let case = case([("name", json!("first"))]);
        let per_processor = |ours, limit| Series { ours: vec![ours], limit: vec![limit] };
        let remark = |ours, limit| row(&case, 1.0, 2.0).by_processor(&per_processor(ours, limit)).remark;
        assert_eq!(remark(1.05, 2.1), None);
        let text = remark(1.05, 4.0).expect("the limit waited half of the time");
        assert!(text.starts_with("NOT SATURATED: the limit worked 0.50"), "{text}");
        let text = remark(2.0, 4.0).expect("both waited");
        assert!(text.contains("ours worked 0.50 of the time, the limit 0.50"), "{text}");
        // A pair is as busy as its busier side.
        let seconds = |ours: f64, limit: f64| Series { ours: vec![ours], limit: vec![limit] };
        assert_eq!(row(&case, 1.0, 2.0).with_cpu(&seconds(0.2, 0.1), &seconds(1.0, 0.49)).remark, None);
        let remark = row(&case, 1.0, 2.0).with_cpu(&seconds(0.2, 0.1), &seconds(0.8, 0.49)).remark;
        assert!(remark.is_some_and(|text| text.contains("ours worked 0.80")), "the sides slept");
    }

    #[test]
    fn nothing_is_no_figure_unless_it_is_what_was_hoped_for() {
        let case = case([("name", json!("first"))]);
        for (ours, limit) in [(0.0, 1.0), (0.0004, 1.0), (f64::NAN, 1.0), (f64::INFINITY, 1.0), (1.0, 0.0)] {
            let (text, failed) = session(true, |session| session.row(row(&case, ours, limit)).expect("it goes on"));
            assert!(failed == 1 && text.contains("nothing was measured"), "{ours} {limit}: {text}");
        }
        let (text, failed) =
            session(true, |session| session.row(row(&case, 0.0, 0.0).or_nothing()).expect("it goes on"));
        assert!(failed == 0 && text.contains("\"median\":0.0"), "{text}");
    }
}
