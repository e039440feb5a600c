//! Taking a run: start, watch, stop, report.

use crate::arguments::{self, RunOptions, Then};
use crate::ctl::{DASHBOARD, URL_VARIABLE};
use crate::exit::{self, Failure};
use crate::interrupts::Interrupts;
use crate::output::print_json;
use crate::render::{
    Progress, begin_lines, checksum_lines, disk_lines, faulty_lines, flag_lines, frame_lines, incident_lines,
    ledger_table, partial_lines, warn,
};
use crate::{flow_account, topology};
use ropewalk_config::fields::Fields;
use ropewalk_config::{Configuration, alarm_rules};
use ropewalk_control::{ControlConfig, ControlError, Identity, Server, Token};
use ropewalk_monitor::alarms::{Rule, built_in};
use ropewalk_run::session::{
    AfterRun, Answer, Command, ControlHandle, Entry, EntryKind, Launch, Launcher, OperationState, Patience, Session,
    SessionConfig, SessionView, Told,
};
use ropewalk_run::{RunError, RunSummary, placement, user_command};
use ropewalk_tools::{Footer, segment_files};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// When a run ends, and how it is reported.
pub(crate) struct Limits {
    /// The description of each run.
    pub(crate) fields: Fields,
    /// The account as JSON.
    pub(crate) json: bool,
    /// What follows a run that ends by itself, if the configuration does not say.
    pub(crate) after_run: AfterRun,
    /// There is no other run than this one: a stop ends everything.
    pub(crate) is_single: bool,
    /// How long is too long.
    pub(crate) patience: Patience,
    /// Runs follow each other, as others say.
    pub(crate) control: Option<Controlled>,
}

/// How others see the run and give commands.
pub(crate) struct Controlled {
    /// What is served.
    pub(crate) config: ControlConfig,
    /// Whether a free port is used if the address is in use.
    pub(crate) takes_any_port: bool,
    /// Nothing starts without a command.
    pub(crate) is_idle: bool,
}

pub(crate) fn run(options: &RunOptions) -> Result<u8, Failure> {
    let mut configuration = ropewalk_config::read(&options.config)?;
    topology::foresee(&configuration, &options.config, placement(&configuration))?;
    overrule(&mut configuration, &options.limits);
    let limits = Limits::of(&options.limits, (&options.control, options.idle), &configuration)?;
    let reader = reader(options, &configuration);
    take_run(Arc::new(Launcher::reading(configuration, reader)), &limits)
}

impl Limits {
    /// What the options say of runs whose configuration says this.
    pub(crate) fn of(
        limits: &arguments::RunLimits,
        (control, is_idle): (&arguments::ControlOptions, bool),
        configuration: &Configuration,
    ) -> Result<Self, Failure> {
        let is_controlled = control.control.is_some();
        let fields = fields(&configuration.run.required_fields, limits, is_controlled)?;
        // A limit on the command line means a single run.
        let is_one = limits.duration.is_some() || limits.events.is_some() || limits.bytes.is_some();
        let after_run = if is_one || !is_controlled { AfterRun::Over } else { AfterRun::Wait };
        let control = controlled(configuration, control, is_idle)?;
        // Without run control the user at the terminal decides how long is too long.
        let patience = if control.is_some() { Patience::Configured } else { Patience::Unlimited };
        Ok(Self { fields, json: limits.json, after_run, is_single: false, patience, control })
    }
}

/// How clients see runs and give commands; `None` without a control server, which is an error if runs wait for a
/// command.
pub(crate) fn controlled(
    configuration: &Configuration,
    options: &arguments::ControlOptions,
    is_idle: bool,
) -> Result<Option<Controlled>, Failure> {
    let Some(listen) = options.control else {
        if configuration.run.then == Some(AfterRun::Wait) {
            return Err(Failure::Usage(format!(
                "then = \"wait\": the next run could not be started; serve run control with --control {DASHBOARD}"
            )));
        }
        return Ok(None);
    };
    let token = options
        .control_token
        .as_ref()
        .map(|path| Token::of_file(path).map_err(|error| Failure::Environment(format!("{}: {error}", path.display()))));
    let identity = Identity::configured(&configuration.control);
    let identity = identity.map_err(|error| Failure::Environment(format!("[control] {error}")))?;
    let config = ControlConfig {
        listen,
        token: token.transpose()?,
        identity,
        output: configuration.run.output.clone(),
        alarms: alarm_rules(&configuration.alarm),
        hearers: configuration.alarms.clone(),
        logbook: configuration.logbook.clone(),
        reference: configuration.monitor.reference,
    };
    Ok(Some(Controlled { config, takes_any_port: false, is_idle }))
}

/// Options take the place of what the configuration says, also in what is kept of it.
pub(crate) fn overrule(configuration: &mut Configuration, limits: &arguments::RunLimits) {
    let Configuration { run, written, .. } = configuration;
    if let Some(output) = &limits.output {
        run.output.clone_from(output);
        written.set("run", "output", output.display().to_string());
    }
    if let Some(keep) = limits.keep {
        run.keep = Some(keep);
        written.set("run", "keep", keep.0.to_string());
    }
    if let Some(duration) = limits.duration {
        run.duration = Some(duration);
        written.set("run", "duration", format!("{}s", duration.0.as_secs_f64()));
    }
    if let Some(bytes) = limits.bytes {
        run.bytes = Some(bytes);
        written.set("run", "bytes", bytes.0.to_string());
    }
    if let Some(then) = limits.then {
        let (choice, name) = match then {
            Then::Next => (AfterRun::Next, "next"),
            Then::Wait => (AfterRun::Wait, "wait"),
            Then::Over => (AfterRun::Over, "over"),
        };
        run.then = Some(choice);
        written.set("run", "then", name);
    }
    if let Some(events) = limits.events {
        run.events = Some(events);
        written.set("run", "events", i64::try_from(events).unwrap_or(i64::MAX));
    }
}

/// The description of the run; if nothing can be added later, all required fields must be given.
pub(crate) fn fields(required: &[String], limits: &arguments::RunLimits, waits: bool) -> Result<Fields, Failure> {
    let fields = Fields::new(limits.fields.iter().cloned()).map_err(|error| Failure::Usage(error.to_string()))?;
    let missing = fields.missing(required);
    if waits || missing.is_empty() { Ok(fields) } else { Err(Failure::Usage(Fields::refusal(&missing))) }
}

/// Reads the configuration again like at the start of the program: options still replace its values.
fn reader(options: &RunOptions, first: &Configuration) -> impl Fn() -> Result<Configuration, RunError> + use<> {
    let (file, limits) = (options.config.clone(), options.limits.clone());
    let last = Mutex::new(first.written.clone());
    move || {
        let unfit = |failure: Failure| RunError::Unfit(failure.to_string());
        let mut configuration = ropewalk_config::read(&file).map_err(|error| unfit(error.into()))?;
        overrule(&mut configuration, &limits);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last != configuration.written {
            last.clone_from(&configuration.written);
            topology::foresee(&configuration, &file, placement(&configuration)).map_err(unfit)?;
        }
        Ok(configuration)
    }
}

/// Takes one run of all nodes in this process, or several, and prints each account; returns the exit status.
pub(crate) fn take_run(launch: Arc<dyn Launch>, limits: &Limits) -> Result<u8, Failure> {
    let interrupts = Interrupts::listen().map_err(|error| Failure::Environment(format!("signals: {error}")))?;
    let tell = |view: &SessionView| {
        warn(&view.warnings);
        for (name, address) in &view.addresses {
            tell!("{name} listens on {address}");
        }
    };
    conduct(launch, limits, &interrupts, tell)
}

/// How long nodes may take to leave when the run has ended, before their threads are ended.
pub(crate) const LEAVING: Duration = Duration::from_secs(5);
/// In whose name commands are given.
const BY: &str = "the command line";

/// Sets up, starts, watches and ends a run, or several. `tell` is called when the first one is set up.
pub(crate) fn conduct(
    launch: Arc<dyn Launch>,
    limits: &Limits,
    interrupts: &Interrupts,
    tell: impl FnOnce(&SessionView),
) -> Result<u8, Failure> {
    let config = SessionConfig {
        after_run: limits.after_run,
        is_single: limits.is_single,
        patience: limits.patience,
        fields: limits.fields.clone(),
    };
    let session = Session::open(config, Arc::clone(&launch));
    let session = session.map_err(|error| Failure::Environment(format!("a thread: {error}")))?;
    let handle = session.control().for_user(Some(user_command::system_user()));
    // Dropped before the session, so that late clients are not kept waiting.
    let _server = limits.control.as_ref().map(|control| serve(control, &handle)).transpose()?;
    let configured = handle.ask(Command::Configure, BY);
    if !configured.answer.is_good() {
        return Err(failure(&handle, configured));
    }
    tell(&handle.view());
    let (sender, started) = channel();
    if !limits.control.as_ref().is_some_and(|control| control.is_idle) {
        handle.command(Command::Start, BY, move |told| {
            // When the run is over the receiver has gone.
            let _ = sender.send(told);
        });
    }
    // Of several runs each account is printed when it is there.
    let are_several = limits.control.is_some() || launch.settings().then == Some(AfterRun::Next);
    let mut told = Tellings { json: limits.json, launch, last: None };
    let alarms = limits.control.as_ref().map_or_else(built_in, |control| control.config.alarms.clone());
    watch(&session, &handle, interrupts, (are_several, &alarms), &mut told)?;
    if let Some(refused) = started.try_iter().find(|told| told.answer == Answer::Refused) {
        return Err(failure(&handle, refused));
    }
    let view = handle.view();
    let advised = told.tell(&view)?;
    match (handle.take_error(), &view.last) {
        (Some(error), _) => Err(error.into()),
        (None, None) if limits.control.is_some() => Ok(exit::GOOD),
        (None, None) => {
            Err(Failure::Environment(view.trouble.clone().unwrap_or_else(|| "there is no account".to_owned())))
        }
        (None, Some(account)) => {
            advised.iter().for_each(|line| tell!("advice: {line}"));
            Ok(exit::with_remarks(&account.status, &account.remarks))
        }
    }
}

/// Serves run control, and says where.
fn serve(control: &Controlled, handle: &ControlHandle) -> Result<Server, Failure> {
    let mut server = Server::start(control.config.clone(), handle.clone());
    let mut taken = String::new();
    if control.takes_any_port && matches!(server, Err(ControlError::Listen { .. })) {
        let mut config = control.config.clone();
        taken = format!("another program listens on {}; ", config.listen);
        config.listen.set_port(0);
        server = Server::start(config, handle.clone());
    }
    let server = server.map_err(|error| match error {
        ControlError::Open(_) => Failure::Usage(format!("--control {error}")),
        ControlError::Command { .. } => Failure::Usage(error.to_string()),
        ControlError::Listen { address, ref source } if source.kind() == ErrorKind::AddrInUse => {
            Failure::Environment(format!(
                "--control {address}: another program uses this port; choose another one, or 0 for any free one; `ropewalk \
                 ctl` and `ropewalk top` need its URL as --url or in {URL_VARIABLE}"
            ))
        }
        _ => Failure::Environment(format!("--control {error}")),
    })?;
    let address = server.address();
    let Some(identity) = &control.config.identity else {
        tell!("run control and dashboard: http://{address}/");
        if address.port() != DASHBOARD.port() {
            tell!("{taken}for `ropewalk ctl` and `ropewalk top`: export {URL_VARIABLE}=http://{address}");
        }
        return Ok(server);
    };
    // A client asks under a name that is in the certificate.
    let (host, port) = (identity.host(address.ip()), address.port());
    let host = host.unwrap_or_else(|| address.ip().to_string());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    tell!("run control and dashboard: https://{host}:{port}/");
    let file = identity.certificate().display();
    tell!(
        "{taken}for `ropewalk ctl` and `ropewalk top`: export {URL_VARIABLE}=https://{host}:{port}, and `--ca {file}` unless \
         the system trusts its authority"
    );
    Ok(server)
}

/// Tells the account of each run that was closed, once.
struct Tellings {
    json: bool,
    launch: Arc<dyn Launch>,
    last: Option<u32>,
}

impl Tellings {
    fn is_news(&self, view: &SessionView) -> bool {
        view.last.as_ref().is_some_and(|account| self.last != Some(account.run))
    }

    /// The advice, if there is an account.
    fn tell(&mut self, view: &SessionView) -> Result<Vec<String>, Failure> {
        let Some(account) = view.last.as_ref().filter(|account| self.last != Some(account.run)) else {
            return Ok(Vec::new());
        };
        self.last = Some(account.run);
        let warnings = &account.warnings;
        warn(&warnings[view.warnings.len().min(warnings.len())..]);
        tell_summary(account, self.json)?;
        Ok(self.launch.advice(account))
    }
}

/// Why a command was not carried out.
fn failure(handle: &ControlHandle, told: Told) -> Failure {
    let text = told.text.unwrap_or_else(|| told.answer.name().to_owned());
    handle.take_error().map_or(Failure::Environment(text), Into::into)
}

/// Shows how the run goes until nothing follows. The first interrupt stops it in order, the second one at once.
fn watch(
    session: &Session,
    handle: &ControlHandle,
    interrupts: &Interrupts,
    (is_controlled, alarms): (bool, &[Rule]),
    told: &mut Tellings,
) -> Result<(), Failure> {
    let mut progress = Progress::new(alarms);
    let (mut last_told, mut heard) = (0, 0);
    while !session.is_over() {
        std::thread::sleep(Duration::from_millis(10));
        let view = handle.view();
        progress.show(&view, handle.quiet_alarms());
        last_told = tell_journal(handle, last_told, is_controlled);
        if interrupts.count() > 0 && heard == 0 {
            heard = 1;
            tell!("stopping: events of received data are still built; interrupt again to stop at once");
            handle.command(Command::Shutdown, BY, |_| ());
        }
        if interrupts.count() > 1 && heard == 1 {
            heard = 2;
            handle.command(Command::Reset, BY, |_| ());
        }
        if is_controlled && told.is_news(&view) {
            progress.end();
            told.tell(&view)?.iter().for_each(|line| tell!("advice: {line}"));
            progress = Progress::new(alarms);
        }
        // A run that failed, or could not begin, waits for an operator: without run control that is the reader of this
        // output, so the program ends.
        let waits = view.state == OperationState::Error && view.task.is_none() || is_given_up(&view);
        // The younger event manager has the run, its operators and its alarms.
        if waits && (!is_controlled || handle.is_superseded()) {
            break;
        }
    }
    tell_journal(handle, last_told, is_controlled);
    progress.end();
    Ok(())
}

/// Tells what the log level has of what happened after the entry with this number; the number of the last one.
fn tell_journal(handle: &ControlHandle, after: u64, is_controlled: bool) -> u64 {
    let news = handle.journal_after(after);
    // The failure of a run without run control is printed when the program ends.
    let is_said_later = |entry: &Entry| entry.kind == EntryKind::Fault && !is_controlled;
    news.iter().filter(|entry| entry.is_told && !is_said_later(entry)).for_each(|entry| tell!("{}", entry.text));
    news.last().map_or(after, |entry| entry.number)
}

/// A run that was set up and could not begin.
fn is_given_up(view: &SessionView) -> bool {
    view.state == OperationState::Configured && view.task.is_none() && view.trouble.is_some()
}

/// Prints the account of a run.
pub(crate) fn tell_summary(summary: &RunSummary, json: bool) -> Result<(), Failure> {
    if json {
        return print_json(summary);
    }
    let faulty = faulty_lines(&summary.faulty_events.first, summary.faulty_events.further);
    if !summary.flows.is_empty() {
        flow_account::lines(summary).iter().chain(&faulty).for_each(|line| say!("{line}"));
        return Ok(());
    }
    say!("{}", ledger_table(summary));
    let lines = [
        partial_lines,
        RunSummary::out_of_step,
        RunSummary::healed,
        checksum_lines,
        begin_lines,
        |summary: &RunSummary| summary.remarks.clone(),
        flag_lines,
        frame_lines,
        |summary: &RunSummary| disk_lines(&summary.disk),
        incident_lines,
    ];
    for line in lines.into_iter().flat_map(|lines| lines(summary)).chain(faulty) {
        say!("{line}");
    }
    let directory = summary.directory.display();
    say!("files    {directory}");
    if summary.file_based.is_some() {
        return Ok(());
    }
    let faulty = summary.faulty_events.first.first().map(|event| event.event.clone());
    if let Some(event) = faulty.or_else(|| first_event_in(&summary.directory)) {
        // As it was called, so that the line can be copied.
        let program = std::env::args().next().unwrap_or_else(|| "ropewalk".to_owned());
        say!("try      {program} verify {directory}");
        say!("         {program} inspect {directory} --event {event}");
    }
    Ok(())
}

/// The first event in the run files of a directory. Builder units may write elsewhere, and old files may be deleted.
fn first_event_in(directory: &Path) -> Option<String> {
    let files = segment_files(&[directory]).ok()?;
    files.iter().find_map(|file| Some(Footer::read(&file.path).ok()??.events.first()?.key.to_string()))
}
