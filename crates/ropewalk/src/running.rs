//! Taking a run: start, watch, stop, tell.

use crate::arguments::RunOptions;
use crate::exit::{self, Failure};
use crate::render::{Progress, checksum_lines, disk_lines, frame_lines, incident_lines, ledger_table, synchrony_lines};
use crate::signals::Interrupts;
use crate::topology;
use ropewalk_node::configuration::{self, Configuration};
use ropewalk_node::run::{RunSummary, advice, placement};
use ropewalk_node::session::{
    AfterRun, Answer, Command, Desk, EntryKind, Launch, OperationState, RunLimits, Session, SessionConfig, SessionView,
    Told, launcher,
};
use std::sync::mpsc::channel;
use std::time::Duration;

/// When a run ends, and how it is told.
pub(crate) struct Limits {
    /// When it ends by itself.
    pub(crate) run: RunLimits,
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
    let run = RunLimits {
        duration: limits.duration.or(configuration.run.duration).map(|time| time.0),
        events: limits.events.or(configuration.run.events),
        bytes: None,
        until_sources_end: configuration.run.until_sources_end,
    };
    take_run(&configuration, &Limits { run, json: limits.json })
}

/// Takes one run of all nodes in this process and tells its account; the exit status.
pub(crate) fn take_run(configuration: &Configuration, limits: &Limits) -> Result<u8, Failure> {
    let interrupts = Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))?;
    let launch = launcher(configuration.clone(), limits.run.events);
    let tell = |view: &SessionView| {
        warn(&view.warnings);
        for (name, address) in &view.addresses {
            eprintln!("{name} listens on {address}");
        }
    };
    conduct(configuration, launch, limits, &interrupts, tell)
}

/// Tells what the run goes without.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

/// How long nodes may take to leave when the run has ended, before their threads are ended.
pub(crate) const LEAVING: Duration = Duration::from_secs(5);
/// In whose name commands are given.
const BY: &str = "the command line";

/// Sets up, starts, watches and ends one run. `tell` is called when it is set up.
pub(crate) fn conduct(
    configuration: &Configuration,
    launch: Launch,
    limits: &Limits,
    interrupts: &Interrupts,
    tell: impl FnOnce(&SessionView),
) -> Result<u8, Failure> {
    let config = SessionConfig { limits: limits.run, after_run: AfterRun::Over, tasks: SessionConfig::PATIENT };
    let session = Session::open(config, launch).map_err(|error| Failure::Environment(format!("a thread: {error}")))?;
    let desk = session.desk();
    let configured = desk.ask(Command::Configure, BY);
    if !configured.answer.is_good() {
        return Err(failure(&desk, configured));
    }
    tell(&desk.view());
    let (sender, started) = channel();
    desk.command(Command::Start, BY, move |told| {
        // Nobody looks any more where the run is over.
        let _ = sender.send(told);
    });
    watch(&session, &desk, interrupts);
    if let Some(refused) = started.try_iter().find(|told| told.answer == Answer::Refused) {
        return Err(failure(&desk, refused));
    }
    let view = desk.view();
    let error = desk.take_error();
    if let Some(summary) = &view.last {
        warn(&summary.warnings[view.warnings.len().min(summary.warnings.len())..]);
        tell_summary(summary, limits.json)?;
    }
    match (error, &view.last) {
        (Some(error), _) => Err(error.into()),
        (None, None) => {
            Err(Failure::Environment(view.trouble.clone().unwrap_or_else(|| "there is no account".to_owned())))
        }
        (None, Some(summary)) => {
            advice(configuration, summary).iter().for_each(|line| eprintln!("advice: {line}"));
            Ok(exit::of_run(summary))
        }
    }
}

/// Why a command was not carried out.
fn failure(desk: &Desk, told: Told) -> Failure {
    let text = told.text.unwrap_or_else(|| told.answer.name().to_owned());
    desk.take_error().map_or(Failure::Environment(text), Into::into)
}

/// Shows how the run goes until nothing follows. The first interrupt stops it in order, the second one at once.
fn watch(session: &Session, desk: &Desk, interrupts: &Interrupts) {
    let mut progress = Progress::new();
    let (mut entry, mut heard) = (0, 0);
    while !session.is_over() {
        std::thread::sleep(Duration::from_millis(10));
        let view = desk.view();
        progress.show(&view.snapshot, view.disk_left);
        for news in desk.journal_after(entry) {
            entry = news.number;
            if news.kind == EntryKind::Incident {
                progress.tell(&news.text);
            }
        }
        if interrupts.count() > 0 && heard == 0 {
            heard = 1;
            progress.tell("stopping: what has come is still built; interrupt again to stop at once");
            desk.command(Command::Shutdown, BY, |_| ());
        }
        if interrupts.count() > 1 && heard == 1 {
            heard = 2;
            desk.command(Command::Reset, BY, |_| ());
        }
        // What could not be begun, or failed, waits for somebody to look at it; that is whoever reads what is printed now.
        if view.state == OperationState::Error && view.task.is_none() || is_given_up(&view) {
            break;
        }
    }
    progress.end();
}

/// A run that was set up and could not begin.
fn is_given_up(view: &SessionView) -> bool {
    view.state == OperationState::Configured && view.task.is_none() && view.trouble.is_some()
}

fn tell_summary(summary: &RunSummary, json: bool) -> Result<(), Failure> {
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
