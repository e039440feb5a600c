//! Taking a run: start, watch, stop, tell.

use crate::arguments::RunOptions;
use crate::exit::{self, Failure};
use crate::render::{Progress, ledger_table, synchrony_lines};
use crate::signals::Interrupts;
use ropewalk_node::configuration::{self, Configuration};
use ropewalk_node::run::{RunHandle, launch};
use ropewalk_terms::EventKey;
use std::time::{Duration, Instant};

/// When a run ends, and how it is told.
pub(crate) struct Limits {
    /// After this time.
    pub(crate) duration: Option<Duration>,
    /// After exactly this many triggers.
    pub(crate) events: Option<u64>,
    /// When every source has closed its connection.
    pub(crate) until_sources_end: bool,
    /// The account as JSON.
    pub(crate) json: bool,
}

pub(crate) fn run(options: &RunOptions) -> Result<u8, Failure> {
    let mut configuration = configuration::read(&options.config)?;
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
    for (name, address) in handle.addresses() {
        eprintln!("{name} listens on {address}");
    }
    conduct(handle, limits, &interrupts, first_key(configuration))
}

/// The first key of a run: what the sources' counters begin with is unwrapped to 1.
pub(crate) fn first_key(_configuration: &Configuration) -> EventKey {
    EventKey::new(0, 1)
}

/// Starts, watches and ends a run that was launched.
pub(crate) fn conduct(
    mut handle: RunHandle,
    limits: &Limits,
    interrupts: &Interrupts,
    first: EventKey,
) -> Result<u8, Failure> {
    let last = limits.events.map(|events| first.plus(events.max(1) - 1));
    handle.start(first, last);
    let mut progress = Progress::new();
    let mut began = None;
    let mut forced = false;
    while !handle.is_ended() {
        std::thread::sleep(Duration::from_millis(10));
        let snapshot = handle.snapshot();
        if snapshot.phase.is_running() {
            began.get_or_insert_with(Instant::now);
        }
        progress.show(&snapshot);
        let over = began.zip(limits.duration).is_some_and(|(began, duration)| began.elapsed() >= duration);
        let exhausted = (limits.until_sources_end || limits.events.is_none()) && handle.sources_ended();
        if interrupts.count() > 0 || over || exhausted {
            handle.stop();
        }
        if interrupts.count() > 1 && !forced {
            forced = true;
            handle.force_stop();
        }
    }
    progress.end();
    let summary = handle.finish(Duration::from_secs(5));
    handle_summary(&summary, limits.json)?;
    Ok(exit::of_run(&summary))
}

fn handle_summary(summary: &ropewalk_node::run::RunSummary, json: bool) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(summary).map_err(|error| Failure::Environment(error.to_string()))?;
    let record = summary.directory.join("run.json");
    std::fs::write(&record, text + "\n")
        .map_err(|error| Failure::Environment(format!("{}: cannot be written: {error}", record.display())))?;
    if json {
        let line = serde_json::to_string(summary).map_err(|error| Failure::Environment(error.to_string()))?;
        println!("{line}");
        return Ok(());
    }
    println!("{}", ledger_table(summary));
    for line in synchrony_lines(summary) {
        println!("{line}");
    }
    let directory = summary.directory.display();
    println!("files    {directory}");
    println!("try      ropewalk verify {directory}");
    println!("         ropewalk inspect {directory} --event 1");
    Ok(())
}
