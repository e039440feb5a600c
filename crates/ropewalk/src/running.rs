//! Taking a run: start, watch, stop, tell.

use crate::arguments::RunOptions;
use crate::exit::{self, Failure};
use crate::render::{Progress, checksum_lines, disk_lines, frame_lines, incident_lines, ledger_table, synchrony_lines};
use crate::signals::Interrupts;
use crate::topology;
use ropewalk_node::configuration::{self, Configuration};
use ropewalk_node::drive::RunSnapshot;
use ropewalk_node::run::{Claim, RunError, RunHandle, advice, launch, placement};
use ropewalk_terms::{Counter, EventKey};
use std::time::{Duration, Instant};

/// When a run ends, and how it is told.
pub(crate) struct Limits {
    /// After this time.
    pub(crate) duration: Option<Duration>,
    /// After exactly this many triggers.
    pub(crate) events: Option<u64>,
    /// When every source has connected and all connections have ended.
    pub(crate) until_sources_end: bool,
    /// The account as JSON.
    pub(crate) json: bool,
}

pub(crate) fn run(options: &RunOptions) -> Result<u8, Failure> {
    let mut configuration = configuration::read(&options.config)?;
    topology::foresee(&configuration, &options.config, placement(&configuration))?;
    let limits = &options.limits;
    if let Some(output) = &limits.output {
        configuration.run.output.clone_from(output);
    }
    configuration.run.keep = limits.keep.or(configuration.run.keep);
    let limits = Limits {
        duration: limits.duration.or(configuration.run.duration).map(|time| time.0),
        events: limits.events.or(configuration.run.events),
        until_sources_end: configuration.run.until_sources_end,
        json: limits.json,
    };
    take_run(&configuration, &limits)
}

/// Takes one run of all nodes in this process and tells its account; the exit status.
pub(crate) fn take_run(configuration: &Configuration, limits: &Limits) -> Result<u8, Failure> {
    let interrupts = Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))?;
    let handle = launch(configuration, limits.events)?;
    warn(handle.warnings());
    for (name, address) in handle.addresses() {
        eprintln!("{name} listens on {address}");
    }
    conduct(configuration, handle, limits, &interrupts)
}

/// Tells what the run goes without.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

/// The first key of every run: what the sources' counters begin with is unwrapped to 1.
const FIRST: EventKey = EventKey::new(0, 1);
/// How long nodes may take to leave when the run has ended, before their threads are ended.
pub(crate) const LEAVING: Duration = Duration::from_secs(5);

/// Starts, watches and ends a run that was launched.
pub(crate) fn conduct(
    configuration: &Configuration,
    mut handle: RunHandle,
    limits: &Limits,
    interrupts: &Interrupts,
) -> Result<u8, Failure> {
    let last = limits.events.map(|events| FIRST.plus(events.max(1) - 1));
    let mut before = Duration::ZERO;
    if handle.go_on() {
        before = handle.age();
    } else {
        handle.leave_word(FIRST, last).map_err(|error| {
            Failure::Environment(format!("{}: cannot be written: {error}", handle.directory().display()))
        })?;
        handle.start(FIRST, last);
    }
    let mut progress = Progress::new();
    let mut began = None;
    let (mut told, mut forced, mut incidents) = (false, false, 0);
    while !handle.is_ended() {
        std::thread::sleep(Duration::from_millis(10));
        let snapshot = handle.snapshot();
        if snapshot.phase.is_running() {
            began.get_or_insert_with(Instant::now);
        }
        progress.show(&snapshot, handle.disk_left());
        if let Some(front_ends) = handle.front_ends() {
            for incident in front_ends.incidents.iter().skip(incidents) {
                progress.tell(&format!("source {}: {}", incident.source, incident.kind));
            }
            incidents = front_ends.incidents.len();
        }
        handle.take_news().iter().for_each(|line| progress.tell(line));
        let over = began.zip(limits.duration).is_some_and(|(began, duration)| before + began.elapsed() >= duration);
        let exhausted = (limits.until_sources_end && have_come_and_gone(&snapshot, handle.sources()))
            || (limits.until_sources_end || limits.events.is_none()) && handle.sources_ended()
            || handle.is_fed() && have_come_and_gone(&snapshot, handle.sources());
        if interrupts.count() > 0 && !told {
            told = true;
            progress.tell("stopping: what has come is still built; interrupt again to stop at once");
        }
        if interrupts.count() > 0 || over || exhausted {
            handle.stop();
        }
        if interrupts.count() > 1 && !forced {
            forced = true;
            handle.force_stop();
        }
    }
    progress.end();
    if let Some(refusal) = handle.refusal() {
        // The account is another event manager's.
        return Err(RunError::from(refusal.clone()).into());
    }
    let known = handle.warnings().len();
    let summary = handle.finish(LEAVING);
    warn(&summary.warnings[known..]);
    handle_summary(&summary, limits.json)?;
    advice(configuration, &summary).iter().for_each(|line| eprintln!("advice: {line}"));
    Ok(exit::of_run(&summary))
}

/// As many connections as there are sources were opened, and all have ended.
fn have_come_and_gone(snapshot: &RunSnapshot, sources: usize) -> bool {
    let opened = snapshot.counter(Counter::SourceConnections);
    opened >= sources as u64 && opened == snapshot.counter(Counter::SourceDisconnections)
}

/// Tells the account and keeps it in the run's directory; where that cannot be, it is told all the same.
fn handle_summary(summary: &ropewalk_node::run::RunSummary, json: bool) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(summary).map_err(|error| Failure::Environment(error.to_string()))?;
    let record = summary.directory.join("run.json");
    let kept = std::fs::write(&record, text + "\n").and_then(|()| Claim::forget(&summary.directory));
    tell_summary(summary, json)?;
    kept.map_err(|error| Failure::Environment(format!("{}: cannot be written: {error}", record.display())))
}

fn tell_summary(summary: &ropewalk_node::run::RunSummary, json: bool) -> Result<(), Failure> {
    if json {
        let line = serde_json::to_string(summary).map_err(|error| Failure::Environment(error.to_string()))?;
        say!("{line}");
        return Ok(());
    }
    say!("{}", ledger_table(summary));
    let lines = [synchrony_lines, checksum_lines, frame_lines, disk_lines, incident_lines];
    for line in lines.into_iter().flat_map(|lines| lines(summary)) {
        say!("{line}");
    }
    let directory = summary.directory.display();
    say!("files    {directory}");
    if summary.file_based.is_some() {
        return Ok(());
    }
    // As it was called, so that the line can be copied.
    let program = std::env::args().next().unwrap_or_else(|| "ropewalk".to_owned());
    say!("try      {program} verify {directory}");
    say!("         {program} inspect {directory} --event 1");
    Ok(())
}
