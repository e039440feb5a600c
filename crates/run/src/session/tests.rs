//! Sequences of runs with threads and sockets: with data, without, with late sources, and in quick succession.

mod push;

use super::limits::task_limits;
use super::*;
use crate::{RunError, RunHandle, RunSummary, launch};
use ropewalk_config::fields::Fields;
use ropewalk_config::quantity::Time;
use ropewalk_config::{Configuration, parse};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
const BY: &str = "a test";

/// A directory of one test, removed at its end.
struct Output(PathBuf);

impl Output {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ropewalk-session-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Self(path)
    }

    /// Returns the names of its files besides the number of the last run.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        let names = entries.map(|entry| entry.expect("it can be read").file_name().into_string().expect("text"));
        let mut names: Vec<_> = names.filter(|name| name != "last-run").collect();
        names.sort();
        names
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a configuration with one source, which is emulated or never connects; `run` is added to the section `run`.
fn configuration(output: &Path, is_emulated: bool, run: &str) -> Configuration {
    let source = if is_emulated { "emulate = { rate = \"20kHz\", fragment_size = \"128B\" }" } else { "" };
    let text = format!(
        "version = 1\n[timeouts]\noperator = \"1h\"\n[run]\noutput = {:?}\n{run}\n[[readout]]\nname = \"ru0\"\npool = \"8MiB\"\n\
         [[builder]]\nname = \"bu0\"\nbytes = \"8MiB\"\n[[source]]\nid = 1\nreadout = \"ru0\"\nmax_fragment = \"4KiB\"\n\
         on_close = \"end\"\n{source}\n",
        output.display().to_string()
    );
    parse("session", &text, &|_| None).unwrap_or_else(|error| panic!("{error}"))
}

fn session(output: &Output, is_emulated: bool, run: &str) -> Session {
    session_of(Launcher::new(configuration(&output.0, is_emulated, run)), Fields::default())
}

fn session_of(launch: impl Launch + 'static, fields: Fields) -> Session {
    let config = SessionConfig { after_run: AfterRun::Wait, is_single: false, patience: Patience::Configured, fields };
    Session::open(config, Arc::new(launch)).expect("a thread")
}

fn ask(control: &ControlHandle, command: Command) -> SessionView {
    let told = control.ask(command, BY);
    assert_eq!(told.answer, Answer::Done, "{told:?} {:?}", control.journal_after(0));
    view(control)
}

fn view(control: &ControlHandle) -> SessionView {
    (*control.view()).clone()
}

fn wait_for(control: &ControlHandle, what: &str, is_so: impl Fn(&SessionView) -> bool) -> SessionView {
    let begun = Instant::now();
    loop {
        let view = view(control);
        if is_so(&view) {
            return view;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {view:#?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn account(view: &SessionView) -> RunSummary {
    view.last.as_deref().cloned().expect("an account")
}

const fn built(view: &SessionView) -> u64 {
    view.snapshot.ledger.events.built
}

#[test]
fn runs_follow_each_other_and_each_balances() {
    let output = Output::new("follow");
    let session = session(&output, true, "");
    let control = session.control();
    assert_eq!(ask(&control, Command::Configure).state, OperationState::Configured);
    for run in 1..=3 {
        assert_eq!(ask(&control, Command::Start).state, OperationState::Running);
        wait_for(&control, "events", |view| built(view) > 0 && view.run.is_some_and(|number| number.0 == run));
        let view = ask(&control, Command::Stop);
        let summary = account(&view);
        assert_eq!((summary.run, summary.state), (run, "ended"));
        assert!(summary.is_balanced() && summary.is_lossless(), "{summary:#?}");
        assert!(summary.directory.join("run.json").is_file());
    }
    ask(&control, Command::Shutdown);
    assert_eq!(output.names(), ["run000001", "run000002", "run000003"], "what was set up for a fourth is gone");
}

#[test]
fn a_paused_run_builds_nothing_and_loses_nothing() {
    let output = Output::new("pause");
    let session = session(&output, true, "");
    let control = session.control();
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    wait_for(&control, "events", |view| built(view) > 0);
    assert_eq!(ask(&control, Command::Pause).state, OperationState::Paused);
    // Assigned events are finished; then no more are built.
    let mut before = built(&view(&control));
    wait_for(&control, "rest", |view| view.snapshot.ledger.events.in_flight == 0);
    std::thread::sleep(Duration::from_millis(200));
    before = before.max(built(&view(&control)));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(built(&view(&control)), before);
    ask(&control, Command::Resume);
    wait_for(&control, "more events", |view| built(view) > before);
    ask(&control, Command::Pause);
    let summary = account(&ask(&control, Command::Stop));
    assert!(summary.is_balanced() && summary.is_lossless(), "{summary:#?}");
}

/// As if the user interrupted the program while a run begins: its first files are being written then.
#[test]
fn a_run_whose_number_is_used_has_an_account_however_early_it_is_stopped() {
    for _ in 0..10 {
        let output = Output::new("early-stop");
        let session = session(&output, false, "");
        let control = session.control();
        ask(&control, Command::Configure);
        let (sender, receiver) = std::sync::mpsc::channel();
        control.command(Command::Start, BY, |_| ());
        let begun = Instant::now();
        while !output.0.join("last-run").exists() {
            assert!(begun.elapsed() < PATIENCE, "it does not begin");
        }
        control.command(Command::Shutdown, BY, move |told| sender.send(told).expect("the test waits"));
        assert_eq!(receiver.recv_timeout(PATIENCE).expect("an answer").answer, Answer::Done);
        let summary = account(&view(&control));
        assert_eq!((summary.run, summary.state), (1, "ended"), "{summary:#?}");
        assert!(summary.is_balanced() && summary.directory.join("run.json").is_file(), "{summary:#?}");
    }
}

#[test]
fn a_pause_that_took_too_long_is_taken_back() {
    let output = Output::new("late-pause");
    let mut configuration = configuration(&output.0, true, "");
    // Shorter than the interval at which nodes are examined.
    (configuration.timeouts.manager, configuration.timeouts.front_end) =
        (Time(Duration::from_millis(3)), Time(Duration::from_millis(1)));
    let session = session_of(Launcher::new(configuration), Fields::default());
    let control = session.control();
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    let begun = Instant::now();
    while control.ask(Command::Pause, BY).answer != Answer::Failed(Fault::TimedOut(Task::Pause)) {
        assert!(begun.elapsed() < PATIENCE, "it is never late");
        while control.ask(Command::Resume, BY).answer != Answer::Done {}
    }
    let before = built(&view(&control));
    assert_eq!(view(&control).state, OperationState::Running);
    // Events in progress may still be finished, so that a few more would prove nothing.
    wait_for(&control, "the run, which goes on", |view| built(view) > before + 20_000);
    control.ask(Command::Reset, BY);
}

#[test]
fn a_run_ends_with_its_limit_and_the_next_one_begins() {
    let output = Output::new("limit");
    let session = session(&output, true, "events = 500\nthen = \"next\"");
    let control = session.control();
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    let view = wait_for(&control, "three runs", |view| view.last.as_ref().is_some_and(|last| last.run >= 3));
    let last = account(&view);
    assert_eq!(last.events.built, 500);
    assert!(last.is_balanced() && last.is_lossless());
    let told = control.ask(Command::Stop, BY);
    assert!(told.answer.is_good(), "{told:?}");
    wait_for(&control, "rest", |view| view.state == OperationState::Configured && view.task.is_none());
}

#[test]
fn a_run_without_sources_starts_and_stops() {
    let output = Output::new("empty");
    let session = session(&output, false, "");
    let control = session.control();
    ask(&control, Command::Configure);
    for _ in 0..3 {
        ask(&control, Command::Start);
        let summary = account(&ask(&control, Command::Stop));
        assert_eq!((summary.events.built, summary.is_balanced()), (0, true));
    }
}

#[test]
fn what_is_set_up_and_given_back_leaves_nothing() {
    let output = Output::new("nothing");
    let session = session(&output, true, "");
    let control = session.control();
    for _ in 0..2 {
        ask(&control, Command::Configure);
        assert_eq!(output.names(), ["run000001"]);
        assert_eq!(ask(&control, Command::Reset).state, OperationState::Initial);
        assert_eq!(output.names(), [""; 0]);
    }
    let told = control.ask(Command::Start, BY);
    assert_eq!(told.answer, Answer::NotNow(OperationState::Initial));
    assert!(told.text.is_some_and(|text| text.contains("allowed are: configure, shutdown")));
}

#[test]
fn what_cannot_be_set_up_is_refused_with_its_reason() {
    let output = Output::new("refused");
    std::fs::remove_dir_all(&output.0).expect("it is there");
    std::fs::write(&output.0, "in the way").expect("it can be written");
    let session = session(&output, true, "");
    let control = session.control();
    let told = control.ask(Command::Configure, BY);
    assert_eq!((told.answer, told.state), (Answer::Refused, OperationState::Initial));
    assert!(told.text.is_some_and(|text| text.contains("ropewalk-session-refused")));
    assert!(control.take_error().is_some());
    std::fs::remove_file(&output.0).expect("it is there");
    assert_eq!(control.ask(Command::Configure, BY).answer, Answer::Done);
}

#[test]
fn a_reset_drops_what_is_left_and_the_account_says_so() {
    let output = Output::new("hurry");
    let session = session(&output, true, "");
    let control = session.control();
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    wait_for(&control, "events", |view| built(view) > 0);
    let summary = account(&ask(&control, Command::Reset));
    assert_eq!((summary.state, summary.is_balanced()), ("forced", true));
}

fn operator(control: &ControlHandle, by: &str, request: ControlsRequest) -> ControlsTold {
    let (sender, receiver) = std::sync::mpsc::channel();
    control.controls(request, by, move |told| sender.send(told).expect("a receiver"));
    receiver.recv_timeout(PATIENCE).expect("an answer")
}

fn command_of(control: &ControlHandle, by: &str, command: Command) -> Told {
    let (sender, receiver) = std::sync::mpsc::channel();
    control.operator_command(command, Fields::default(), by, move |told| sender.send(told).expect("a receiver"));
    receiver.recv_timeout(PATIENCE).expect("an answer")
}

#[test]
fn only_the_operator_with_control_and_the_program_may_give_commands() {
    let output = Output::new("operators");
    let session = session(&output, false, "");
    let control = session.control();
    assert_eq!(command_of(&control, "bob", Command::Configure).answer, Answer::Done);
    let told = operator(&control, "ada", ControlsRequest::Take { is_forced: false });
    assert_eq!((told.refusal, told.holder.map(|holder| holder.name)), (None, Some("ada".to_owned())));
    assert_eq!(view(&control).operator.expect("it is seen at once").name, "ada");
    let told = command_of(&control, "bob", Command::Start);
    assert_eq!((told.answer, told.state), (Answer::HeldByAnother, OperationState::Configured));
    assert!(told.text.is_some_and(|text| text.starts_with("ada has had control since ")));
    assert!(operator(&control, "bob", ControlsRequest::Give { to: None }).refusal.is_some());
    let (sender, receiver) = std::sync::mpsc::channel();
    let request = MaskRequest { sources: vec![ropewalk_terms::SourceId(1)], is_masked: true };
    control.mask(request, "bob", move |told| sender.send(told).expect("a receiver"));
    assert!(receiver.recv_timeout(PATIENCE).expect("an answer").is_err());
    assert_eq!(command_of(&control, "ada", Command::Start).answer, Answer::Done);
    assert_eq!(operator(&control, "bob", ControlsRequest::Take { is_forced: true }).refusal, None);
    assert_eq!(command_of(&control, "ada", Command::Stop).answer, Answer::HeldByAnother);
    // As the user at the terminal.
    ask(&control, Command::Stop);
    let said: Vec<_> = control.journal_after(0).into_iter().map(|entry| entry.text).collect();
    for text in ["ada takes control", "bob takes control from ada by force"] {
        assert!(said.iter().any(|entry| entry == text), "{text}: {said:?}");
    }
    for refused in ["start, by bob", "give, by bob", "mask, by bob", "stop, by ada"] {
        let begin = format!("{refused}, is refused: ");
        assert!(said.iter().any(|entry| entry.starts_with(&begin)), "{begin}{said:?}");
    }
}

#[test]
fn a_run_whose_required_fields_are_not_said_does_not_start() {
    let output = Output::new("fields");
    let said = |text: &str| Fields::new(text.split(';').map(|field| field.parse().expect("a field"))).expect("few");
    let launch =
        Launcher::new(configuration(&output.0, true, "events = 100\nrequired_fields = [\"beam\", \"target\"]"));
    let session = session_of(launch, said("shifter=ada;beam=120 GeV"));
    let control = session.control();
    assert_eq!(control.ask(Command::Configure, "ada").answer, Answer::Done);
    assert_eq!(*control.view().required_fields, ["beam", "target"]);
    let refused = control.ask(Command::Start, "ada");
    assert_eq!((refused.answer, refused.state), (Answer::Refused, OperationState::Configured));
    assert!(refused.text.is_some_and(|text| text.contains("needs target:")));
    let (sender, told) = std::sync::mpsc::channel();
    control.operator_command(Command::Start, said("target=Pb;beam=60 GeV"), "ada", move |told| {
        sender.send(told).expect("a receiver");
    });
    assert_eq!(told.recv().expect("an answer").answer, Answer::Done);
    wait_for(&control, "the account of the run", |view| view.last.is_some());
    let account = account(&control.view());
    assert_eq!(account.fields.to_string(), "beam=60 GeV, shifter=ada, target=Pb");
}

#[test]
fn an_operator_who_gives_no_command_loses_control() {
    let output = Output::new("silent");
    let mut configuration = configuration(&output.0, false, "");
    configuration.timeouts.operator = Time(Duration::from_millis(50));
    let session = session_of(Launcher::new(configuration), Fields::default());
    let control = session.control();
    operator(&control, "ada", ControlsRequest::Take { is_forced: false });
    wait_for(&control, "her to lose control", |view| view.operator.is_none());
    assert!(control.journal_after(0).iter().any(|entry| entry.text.starts_with("ada gave no command for ")));
    assert_eq!(command_of(&control, "bob", Command::Configure).answer, Answer::Done);
}

/// Creates runs with a thread that does not end before it may.
struct Hanging {
    configuration: Configuration,
    may_end: Arc<AtomicBool>,
}

impl Launch for Hanging {
    fn launch(&self) -> Result<RunHandle, RunError> {
        let mut handle = launch(&self.configuration, None)?;
        handle.add_hanging_thread("bu7", Arc::clone(&self.may_end));
        Ok(handle)
    }

    fn settings(&self) -> RunSettings {
        RunSettings::of(&self.configuration)
    }
}

#[test]
fn a_builder_unit_that_never_ends_is_named_and_left_behind() {
    let output = Output::new("hangs");
    let may_end = Arc::new(AtomicBool::new(false));
    let mut configuration = configuration(&output.0, true, "");
    configuration.timeouts.close = Time(Duration::from_secs(1));
    let launch = Hanging { configuration, may_end: Arc::clone(&may_end) };
    let session = session_of(launch, Fields::default());
    let control = session.control();
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    wait_for(&control, "events", |view| built(view) > 0);
    let told = control.ask(Command::Stop, BY);
    assert_eq!((told.answer, told.state), (Answer::Failed(Fault::TimedOut(Task::Close)), OperationState::Error));
    assert_eq!(told.text.as_deref(), Some("close took longer than 1 s: bu7 did not end and is left behind"));
    assert!(control.journal_after(0).iter().any(|entry| Some(&entry.text) == told.text.as_ref()));
    assert_eq!(ask(&control, Command::Reset).state, OperationState::Initial);
    may_end.store(true, Ordering::Relaxed);
}

#[test]
fn a_run_without_room_on_the_disk_does_not_start_and_says_what_to_do() {
    let output = Output::new("no-room");
    let with = |room: &str| {
        configuration(&output.0, true, &format!("[storage]\nstart_free = \"{room}\"\nleast_free = \"1KiB\""))
    };
    let file = Arc::new(Mutex::new(with("1000000GiB")));
    let (first, read) = (file.lock().expect("no thread panicked").clone(), Arc::clone(&file));
    let launch = Launcher::reading(first, move || Ok(read.lock().expect("no thread panicked").clone()));
    let session = session_of(launch, Fields::default());
    let control = session.control();
    ask(&control, Command::Configure);
    let told = control.ask(Command::Start, BY);
    assert_eq!((told.answer, told.state), (Answer::Refused, OperationState::Configured));
    let why = told.text.expect("why");
    let place = output.0.display().to_string();
    assert!(
        why.starts_with(&place) && why.contains("with less than 1000000.00 GiB no run starts (start_free"),
        "{why}"
    );
    assert_eq!(std::fs::read_dir(output.0.join("run000001")).expect("it is set up").count(), 0, "nothing has begun");
    *file.lock().expect("no thread panicked") = with("0");
    ask(&control, Command::Reset);
    ask(&control, Command::Configure);
    ask(&control, Command::Start);
    wait_for(&control, "events", |view| built(view) > 0);
    assert!(account(&ask(&control, Command::Stop)).is_balanced());
}

#[test]
fn a_run_whose_directory_cannot_be_written_does_not_start_and_the_next_one_does() {
    let output = Output::new("gone");
    let session = session(&output, true, "");
    let control = session.control();
    let directory = ask(&control, Command::Configure).directory.expect("it is set up");
    let away = output.0.join("away");
    std::fs::rename(&directory, &away).expect("it is there");
    let told = control.ask(Command::Start, BY);
    assert_eq!((told.answer, told.state), (Answer::Refused, OperationState::Configured));
    let text = told.text.expect("why");
    assert!(text.contains("run000001: cannot be written: No such file"), "{text}");
    std::fs::rename(away, directory).expect("it is there");
    ask(&control, Command::Start);
    wait_for(&control, "events", |view| built(view) > 0);
    assert!(account(&ask(&control, Command::Stop)).is_balanced());
}

/// Creates a file that blocks like a stalled disk: opening it waits until a writer opens it.
fn stand_still(file: &Path) {
    let made = std::process::Command::new("mkfifo").arg(file).status().expect("every system has it");
    assert!(made.success(), "{}", file.display());
}

#[test]
fn a_disk_that_stands_still_at_the_start_holds_up_that_run_alone() {
    let output = Output::new("still");
    let mut configuration = configuration(&output.0, true, "");
    configuration.timeouts.begin = Time(Duration::from_secs(1));
    let session = session_of(Launcher::new(configuration), Fields::default());
    let control = session.control();
    let file = ask(&control, Command::Configure).directory.expect("it is set up").join(crate::CONFIGURATION);
    stand_still(&file);
    let told = control.ask(Command::Start, BY);
    assert_eq!((told.answer, told.state), (Answer::Failed(Fault::TimedOut(Task::Begin)), OperationState::Error));
    let view = ask(&control, Command::Reset);
    assert_eq!((view.state, view.run, view.directory), (OperationState::Initial, None, None));
    ask(&control, Command::Configure);
    let view = ask(&control, Command::Start);
    wait_for(&control, "events", |view| built(view) > 0);
    // It continues at last, and its run is discarded.
    drop(std::fs::File::create(&file).expect("the run reads it"));
    ask(&control, Command::Stop);
    assert_eq!(account(&self::view(&control)).run, view.run.expect("it goes on").0);
}

#[test]
fn what_is_changed_in_the_configuration_holds_when_it_is_configured_again() {
    let output = Output::new("again");
    let file = Arc::new(Mutex::new(configuration(&output.0, true, "events = 100")));
    let first = file.lock().expect("no thread panicked").clone();
    let read = Arc::clone(&file);
    let launch = Launcher::reading(first, move || Ok(read.lock().expect("no thread panicked").clone()));
    let session = session_of(launch, Fields::default());
    let control = session.control();
    let write = |run: &str| *file.lock().expect("no thread panicked") = configuration(&output.0, true, run);
    let account = |events: u64| {
        let before = control.view().last.as_ref().map(|account| account.run);
        ask(&control, Command::Configure);
        assert_eq!(control.ask(Command::Start, BY).answer, Answer::Done);
        let view = wait_for(&control, "the account", |view| view.last.as_ref().map(|account| account.run) != before);
        assert!(view.configuration.contains(&format!("events = {events}\n")), "{}", view.configuration);
        let summary = account(&view);
        assert_eq!(summary.events.built, events);
    };
    account(100);
    write("events = 250");
    ask(&control, Command::Reset);
    account(250);
    let said: Vec<_> = control.journal_after(0).into_iter().map(|entry| entry.text).collect();
    let told = "the configuration was read again: run.events is 250; it was 100";
    assert!(said.iter().any(|text| text == told), "{said:?}");
    // Settings that outlive runs are treated differently.
    let elsewhere = output.0.join("elsewhere");
    *file.lock().expect("no thread panicked") = configuration(&elsewhere, true, "events = 250");
    ask(&control, Command::Reset);
    let refused = control.ask(Command::Configure, BY);
    assert_eq!((refused.answer, refused.state), (Answer::Refused, OperationState::Initial));
    let text = refused.text.expect("why");
    assert!(text.contains("run.output now, which outlives runs"), "{text}");
    write("events = 250");
    account(250);
}

#[test]
fn a_configuration_that_cannot_be_read_any_more_changes_nothing() {
    let output = Output::new("unreadable");
    let broken = || Err(RunError::Unfit("line 3: there is no key `evenst`".to_owned()));
    let launch = Launcher::reading(configuration(&output.0, true, "events = 100"), broken);
    let control = session_of(launch, Fields::default());
    let told = control.control().ask(Command::Configure, BY);
    assert_eq!((told.answer, told.state), (Answer::Refused, OperationState::Initial));
    assert_eq!(told.text.as_deref(), Some("line 3: there is no key `evenst`"));
}

#[test]
fn limits_of_steps_are_longer_than_those_of_the_nodes() {
    let times = ropewalk_config::TimeoutSection::default();
    let limits = task_limits(&times);
    assert_eq!((limits.drain, limits.force), (Duration::from_secs(80), Duration::from_secs(50)));
    assert_eq!(limits.pause, Duration::from_secs(20), "of these a trigger source may take ten");
    assert_eq!((limits.prepare, limits.begin, limits.close), (times.prepare.0, times.begin.0, times.close.0));
}
