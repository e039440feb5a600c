//! The thread that configures, starts, stops and closes runs.

use super::control_handle::{
    By, ControlHandle, ControlsRequest, ControlsTold, EntryKind, Order, Reply, RequestRefusal, Rota, SessionView,
    Shared, Told, suffix,
};
use super::launch::{Launch, Rules, SessionConfig};
use super::limits::{RunWatch, SamplingInterval};
use super::masks::{MaskRequest, Masks};
use super::parameters::{ParameterRequest, Parameters, log_level, report_interval};
use super::restarts::{Recount, Recounts, RestartReply, Restarts};
use crate::{ACCOUNT, RunError, RunHandle, RunSummary, RunThreads};
use ropewalk_config::fields::Fields;
use ropewalk_config::{Differences, RestartChoice};
use ropewalk_flow::control::operation::{
    Answer, Command, CommandNumber, Operation, OperationState, Outcome, Task, TaskNumber,
};
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_monitor::Activity;
use ropewalk_terms::{EventKey, Instant, SourceId, Utc};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The first key of every run: the sources' first counter values are unwrapped to 1.
const FIRST: EventKey = EventKey::new(0, 1);
/// Time-out for nodes to leave after the end of a run, before their threads are ended.
const LEAVING: Duration = Duration::from_secs(5);
/// Interval at which a run is examined.
const LOOK: Duration = Duration::from_millis(10);
/// Interval at which the view is updated if nothing happens.
const PUBLISH: Duration = Duration::from_millis(100);
/// Maximum number of values that are listed individually after a configuration was read again.
const MOST_DIFFERENCES: usize = 20;

/// A sequence of runs. Dropping it drops the rest of a run, and waits for that.
#[derive(Debug)]
pub struct Session {
    control: ControlHandle,
    thread: Option<JoinHandle<()>>,
}

impl Session {
    /// Creates a session without a run.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn open(config: SessionConfig, launch: Arc<dyn Launch>) -> io::Result<Self> {
        let clock = MonotonicClock;
        let shared = Arc::new(Shared::new(SessionView::new(clock.utc())));
        let (orders, received) = channel();
        let controller = RunController::new(config, launch, received, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("run-controller".to_owned()).spawn(move || controller.run())?;
        Ok(Self { control: ControlHandle { orders, shared, user: None }, thread: Some(thread) })
    }

    /// Returns a handle for commands.
    pub fn control(&self) -> ControlHandle {
        self.control.clone()
    }

    /// Returns whether the session has ended.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.control.command(Command::Shutdown, "the program", |_| ());
        self.control.command(Command::Reset, "the program", |_| ());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

/// The result of a thread that did blocking work.
enum Brought {
    Launched(TaskNumber, Result<Box<RunHandle>, RunError>, Differences),
    /// The first files of a run are written; otherwise, why it does not begin.
    Begins(TaskNumber, Box<RunHandle>, Result<Beginning, String>),
    /// `None` if another event manager writes the account. An error says what could not be written.
    Closed(TaskNumber, Option<Arc<RunSummary>>, Result<(), RunError>),
    Discarded(TaskNumber),
}

/// How a run begins.
enum Beginning {
    /// With its first event.
    Anew,
    /// With the state that was taken over from an event manager that has ended.
    TakenOver,
}

struct RunController {
    config: SessionConfig,
    rules: Rules,
    launch: Arc<dyn Launch>,
    operation: Operation,
    rota: Rota,
    masks: Masks,
    restarts: Restarts<RestartReply>,
    parameters: Parameters,
    /// Whether the configuration is read again before the next run is set up.
    reads_again: bool,
    clock: MonotonicClock,
    orders: Receiver<(Order, Option<String>)>,
    /// The system user of the present order.
    user: Option<String>,
    shared: Arc<Shared>,
    bring: Sender<Brought>,
    brought: Receiver<Brought>,
    replies: BTreeMap<CommandNumber, (Command, Reply)>,
    next_command: CommandNumber,
    handle: Option<Box<RunHandle>>,
    /// The threads of the run that is being closed, or was closed last.
    closing: Option<RunThreads>,
    watch: RunWatch,
    /// The task that the handle carries out.
    doing: Option<(TaskNumber, Task)>,
    /// The task that begins a run, while its handle is with the thread that does so.
    away_to_begin: Option<TaskNumber>,
    /// Number of reported incidents of front ends.
    incidents: usize,
    recounts: Recounts,
    /// Since when each source has been silent.
    activity: Activity,
    /// The fields given at the run's start. Runs that follow automatically have the same.
    fields: Fields,
    view: SessionView,
    publish_due: Instant,
    numbers: SamplingInterval,
    samples: SamplingInterval,
}

impl RunController {
    fn new(
        config: SessionConfig,
        launch: Arc<dyn Launch>,
        orders: Receiver<(Order, Option<String>)>,
        shared: Arc<Shared>,
    ) -> Self {
        let clock = MonotonicClock;
        let (bring, brought) = channel();
        let view = SessionView::new(clock.utc());
        let rules = Rules::of(launch.settings(), &config);
        shared.journal(|journal| journal.set_level(log_level(&rules.settings.parameters)));
        let view = SessionView {
            required_fields: rules.settings.required_fields.clone().into(),
            parameters: rules.settings.parameters.all().into(),
            configuration: rules.settings.written.text().into(),
            ..view
        };
        Self {
            launch,
            operation: Operation::new(rules.tasks),
            rota: Rota::new(rules.settings.timeouts.operator.0),
            masks: Masks::new(rules.settings.masks.clone()),
            restarts: Restarts::new(),
            parameters: rules.settings.parameters.clone(),
            config,
            rules,
            reads_again: false,
            clock,
            orders,
            user: None,
            shared,
            bring,
            brought,
            replies: BTreeMap::new(),
            next_command: CommandNumber(1),
            handle: None,
            closing: None,
            watch: RunWatch::default(),
            doing: None,
            away_to_begin: None,
            incidents: 0,
            recounts: Recounts::default(),
            activity: Activity::default(),
            fields: Fields::default(),
            view,
            publish_due: Instant::ZERO,
            numbers: SamplingInterval::new(SamplingInterval::NUMBERS),
            samples: SamplingInterval::new(SamplingInterval::SAMPLES),
        }
    }

    fn run(mut self) {
        while self.operation.state() != OperationState::Over {
            match self.orders.recv_timeout(LOOK) {
                Ok((order, user)) => {
                    self.user = user;
                    self.take(order);
                    self.user = None;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // All handles are gone, including the session's own.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.turn();
        }
        self.turn();
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Command { command, fields, by, reply } => self.take_command(command, fields, by, reply),
            Order::Controls { request, by, reply } => reply(self.take_controls(&request, &by)),
            Order::Parameters { request, by, reply } => reply(self.change(&request, &by)),
            Order::Mask { request, by, reply } => reply(self.mask(&request, &by)),
            Order::Restart { sources, by, reply } => self.restart(sources, by, reply),
        }
    }

    fn take_controls(&mut self, request: &ControlsRequest, by: &str) -> ControlsTold {
        let (told, entry) = self.rota.ask((self.clock.now(), self.clock.utc()), by, request);
        entry.into_iter().for_each(|text| self.tell_command(by, text));
        if let Some(why) = &told.refusal {
            let what = if matches!(request, ControlsRequest::Take { .. }) { "take" } else { "give" };
            self.tell_refused(what, by, why);
        }
        // The caller reads the view as soon as it has the answer.
        self.publish();
        told
    }

    fn tell_refused(&self, what: &str, by: &str, why: &str) {
        self.tell_command(by, format!("{what}, by {by}, is refused: {why}"));
    }

    fn tell_refusal(&self, what: &str, by: &str, refusal: &RequestRefusal) {
        use RequestRefusal::{HeldByAnother, Unfit, Unknown};
        if let HeldByAnother(why) | Unknown(why) | Unfit(why) = refusal {
            self.tell_refused(what, by, why);
        }
    }

    fn mask(&mut self, request: &MaskRequest, by: &str) -> Result<(), RequestRefusal> {
        let told = self.permit(by).and_then(|()| self.turn_masks(request, by));
        told.inspect_err(|why| self.tell_refusal(if request.is_masked { "mask" } else { "unmask" }, by, why))
    }

    fn permit(&mut self, by: &str) -> Result<(), RequestRefusal> {
        self.rota.refusal(self.clock.now(), by).map_or(Ok(()), |why| Err(RequestRefusal::HeldByAnother(why)))
    }

    fn turn_masks(&mut self, request: &MaskRequest, by: &str) -> Result<(), RequestRefusal> {
        let changed = self.masks.ask(request)?;
        let what = if request.is_masked { "is masked" } else { "is unmasked" };
        for &source in &changed {
            let name = self.view.sample.name_of(source);
            self.tell_command(by, format!("{name} {what}, by {by}"));
            if let Some(handle) = &self.handle {
                handle.mask(source, request.is_masked);
            }
        }
        self.view.masked = Arc::new(self.masks.masked().clone());
        // The caller reads the view as soon as it has the answer.
        self.shared.publish(self.view.clone());
        Ok(())
    }

    /// Returns whether sources of the current run can be masked.
    fn has_run(&self) -> bool {
        self.handle.is_some() && matches!(self.operation.state(), OperationState::Running | OperationState::Paused)
    }

    /// Masks sources. They are unmasked when their readout units have reported the first event without them.
    fn restart(&mut self, mut sources: Vec<SourceId>, by: String, reply: RestartReply) {
        sources.sort_unstable();
        sources.dedup();
        let request = MaskRequest { sources, is_masked: true };
        let may_begin = match self.permit(&by) {
            Err(refusal) => Err(refusal),
            Ok(()) if !self.has_run() => {
                Err(RequestRefusal::Unfit("no run goes on, in which a source could be begun anew".to_owned()))
            }
            Ok(()) => self.restarts.expect_room().and_then(|()| self.masks.expect_restart(&request.sources)),
        };
        match may_begin.and_then(|()| self.turn_masks(&request, &by)) {
            Ok(()) => {
                // A readout unit that has the request reports the event with its next report.
                let patience = self.rules.settings.timeouts.manager.0 + 2 * report_interval(&self.parameters);
                self.restarts.begin(request.sources, by, self.clock.now().after(patience), reply);
            }
            Err(refusal) => {
                self.tell_refusal("restart", &by, &refusal);
                reply(Err(refusal));
            }
        }
    }

    /// Unmasks the sources of restarts that have ended, and replies.
    fn end_restarts(&mut self) {
        let goes_on = self.has_run();
        for ended in self.restarts.take_ended(self.clock.now(), &self.view.snapshot.masks, goes_on) {
            let sources = ended.told.sources.iter().map(|one| one.source).collect();
            // The operator's right to mask and unmask was checked at the request, and enough mask changes are left.
            let taken_in = self.turn_masks(&MaskRequest { sources, is_masked: false }, &ended.by);
            (ended.reply)(taken_in.map(|()| ended.told));
        }
    }

    fn change(&mut self, request: &ParameterRequest, by: &str) -> Result<(), RequestRefusal> {
        let changes = self.permit(by).and_then(|()| self.parameters.ask(request));
        let changes = changes.inspect_err(|why| self.tell_refusal("set", by, why))?;
        self.show_parameters();
        for (setting, words) in changes {
            self.tell_command(by, format!("{words}, by {by}"));
            if let (Some(handle), Some(setting)) = (&self.handle, setting) {
                handle.set(setting);
            }
        }
        // The caller reads the view as soon as it has the answer.
        self.shared.publish(self.view.clone());
        Ok(())
    }

    fn show_parameters(&mut self) {
        self.view.parameters = self.parameters.all().into();
        let level = log_level(&self.parameters);
        self.shared.journal(|journal| journal.set_level(level));
    }

    fn take_command(&mut self, command: Command, fields: Fields, by: By, reply: Reply) {
        let by = match by {
            By::Program(by) => by,
            By::Operator(by) => {
                if let Some(why) = self.rota.refusal(self.clock.now(), &by) {
                    self.tell_refused(command.name(), &by, &why);
                    let state = self.operation.state();
                    return reply(Told { command, answer: Answer::HeldByAnother, state, text: Some(why) });
                }
                by
            }
        };
        let command = if self.config.is_single && command == Command::Stop { Command::Shutdown } else { command };
        let number = self.next_command;
        self.next_command = CommandNumber(number.0 + 1);
        if command == Command::Start
            && let Some(why) = self.unstored(&fields)
        {
            self.tell_refused("start", &by, &why);
            let state = self.operation.state();
            return reply(Told { command, answer: Answer::Refused, state, text: Some(why) });
        }
        let would_start = command == Command::Start && self.operation.state() == OperationState::Configured;
        if would_start {
            let fields = fields.or(&self.config.fields);
            let missing = fields.missing(&self.rules.settings.required_fields);
            if !missing.is_empty() {
                let (why, state) = (Fields::refusal(&missing), self.operation.state());
                self.trouble(format!("start, by {by}, is refused: {why}"));
                return reply(Told { command, answer: Answer::Refused, state, text: Some(why) });
            }
            self.fields = fields;
        }
        self.reads_again |= command == Command::Configure && self.operation.state() == OperationState::Initial;
        self.tell_command(&by, format!("{}, by {by}", command.name()));
        self.replies.insert(number, (command, reply));
        self.view.trouble = None;
        self.operation.command(self.clock.now(), number, command);
    }

    /// Returns why a start would not store these fields: the run has begun with others.
    fn unstored(&self, fields: &Fields) -> Option<String> {
        let has_begun =
            self.operation.state() == OperationState::Running || matches!(self.doing, Some((_, Task::Begin)));
        let is_new = |(name, value): &(&str, &str)| !self.fields.iter().any(|known| known == (*name, *value));
        let new: Vec<_> = fields.iter().filter(is_new).map(|(name, value)| format!("{name}={value}")).collect();
        (has_begun && !new.is_empty()).then(|| {
            format!("the run goes on already, and {} is not stored; `ropewalk ctl note` adds a note", new.join(", "))
        })
    }

    fn turn(&mut self) {
        while let Ok(brought) = self.brought.try_recv() {
            self.receive(brought);
        }
        self.look();
        self.end_restarts();
        if let Some(task) = self.operation.tick(self.clock.now()) {
            self.left_behind(task);
        }
        let lost = self.rota.tick(self.clock.now(), self.clock.utc());
        lost.into_iter().for_each(|text| self.tell(EntryKind::Command, text));
        while let Some((number, task)) = self.operation.poll() {
            self.carry_out(number, task);
        }
        self.publish();
        while let Some((number, answer)) = self.operation.poll_answer() {
            if let Some((command, reply)) = self.replies.remove(&number) {
                reply(self.told(command, answer));
            }
        }
    }

    /// Stops waiting for this task, and reports the threads that have not ended.
    fn left_behind(&mut self, task: Task) {
        let living = self.closing.as_ref().map(RunThreads::living).unwrap_or_default();
        let whose = match task {
            Task::Prepare => "what is being set up is given back when it is done".to_owned(),
            Task::Begin => "not every node was ready: the begun run is ended".to_owned(),
            Task::Pause | Task::Resume => "the event manager did not answer: the run goes on as it was".to_owned(),
            Task::Drain => "what is left of the run is dropped".to_owned(),
            Task::Force => "the event manager did not answer: the run is closed without it".to_owned(),
            Task::Close | Task::Discard if living.is_empty() => {
                "all its threads have ended, and a program that takes files or decides on them has not: it is left behind".to_owned()
            }
            Task::Close | Task::Discard => format!("{} did not end and is left behind", living.join(", ")),
        };
        let limit = self.rules.tasks.of(task).as_secs_f64();
        self.trouble(format!("{} took longer than {limit} s: {whose}", task.name()));
        match (task, &mut self.handle) {
            (Task::Close | Task::Discard, _) => self.forget_run(),
            // The last order is in effect, whenever it arrives.
            (Task::Pause, Some(handle)) => handle.resume(),
            (Task::Resume, Some(handle)) => handle.pause(),
            _ => {}
        }
    }

    fn told(&self, command: Command, answer: Answer) -> Told {
        let state = self.operation.state();
        let text = match answer {
            Answer::Done | Answer::AlreadySo => None,
            Answer::NotNow(state) => {
                let names: Vec<_> = state.allowed().iter().map(|command| command.name()).collect();
                let what = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
                Some(format!("{} is of no use in state {}; allowed are: {what}", command.name(), state.name()))
            }
            Answer::Overtaken => Some(format!("another command came after this one; the state is {}", state.name())),
            // A refused operator command does not get here.
            Answer::Refused | Answer::Failed(_) | Answer::HeldByAnother => self.view.trouble.clone(),
        };
        Told { command, answer, state, text }
    }

    /// Examines the run that is set up or in progress.
    fn look(&mut self) {
        let Some(handle) = &mut self.handle else { return };
        let now = self.clock.now();
        let (phase, is_paused) = handle.progress();
        let is_over = handle.is_ended();
        let is_news = (phase, is_paused) != (self.view.snapshot.phase, self.view.snapshot.is_paused);
        let front_ends = if is_news || is_over || self.numbers.is_due(now) {
            self.view.snapshot = handle.snapshot();
            self.numbers.was_read(now, self.clock.now());
            handle.front_ends()
        } else {
            self.view.front_ends.take()
        };
        let news = handle.take_news();
        let refusal = handle.refusal().cloned();
        let is_to_end = self.watch.is_over(&self.rules.settings.limits, handle, &self.view.snapshot);
        let done = match self.doing {
            Some((number, Task::Begin)) if phase.is_running() => Some(number),
            Some((number, Task::Pause)) if is_paused => Some(number),
            Some((number, Task::Resume)) if !is_paused => Some(number),
            _ => None,
        };
        let names = Arc::clone(&self.view.sample);
        let known = front_ends.as_ref().map_or(0, |account| account.incidents.len());
        let of_front_ends = front_ends.iter().flat_map(|account| account.incidents.iter().skip(self.incidents));
        let of_front_ends: Vec<_> =
            of_front_ends.map(|incident| format!("{}: {}", names.name_of(incident.source), incident.kind)).collect();
        self.incidents = known;
        self.view.front_ends = front_ends;
        of_front_ends.into_iter().chain(news).for_each(|text| self.tell(EntryKind::Incident, text));
        if let Some(number) = done {
            self.doing = None;
            self.operation.ended(now, number, Outcome::Done);
        }
        self.look_for_restarts(now);
        if let Some(refusal) = refusal {
            self.trouble(refusal.to_string());
            self.shared.set_error(Some(refusal.into()));
            self.operation.run_failed(now);
        }
        if is_over || is_to_end {
            self.operation.stop_by_itself(now, self.rules.after_run);
        }
        if is_over {
            self.operation.run_over(now);
        }
    }

    /// Handles sources that restarted their numbering and whose position is unknown.
    fn look_for_restarts(&mut self, now: Instant) {
        let restarts = self.recounts.news(&self.view.snapshot, &self.rules.settings.restarts);
        let is_lost = restarts.iter().any(|restart| restart.is_lost);
        let done = match self.rules.settings.restarts.choice {
            RestartChoice::Flag => "",
            RestartChoice::Pause => "; the run is paused, as `on_restart` says",
            RestartChoice::Stop => "; the run stops, as `on_restart` says",
        };
        for Recount { text, is_lost } in restarts {
            self.tell(EntryKind::Incident, if is_lost { text + done } else { text });
        }
        if !is_lost {
            return;
        }
        match self.rules.settings.restarts.choice {
            RestartChoice::Flag => {}
            RestartChoice::Pause => self.operation.pause_by_itself(now),
            RestartChoice::Stop => self.operation.stop_by_itself(now, self.rules.after_run),
        }
    }

    fn carry_out(&mut self, number: TaskNumber, task: Task) {
        self.doing = Some((number, task));
        match task {
            Task::Prepare => self.prepare(number),
            Task::Begin => self.begin(number),
            Task::Close | Task::Discard => self.end(number, task),
            Task::Pause | Task::Resume | Task::Drain | Task::Force => {
                let Some(handle) = &mut self.handle else {
                    // The run was to begin, and the worker that writes its first files still has it. When the worker
                    // returns it, it begins and ends, so that a run whose number is used has an account; after the time
                    // limit, it is discarded.
                    if task != Task::Drain || self.away_to_begin.is_none() {
                        self.operation.run_over(self.clock.now());
                    }
                    return;
                };
                match task {
                    Task::Pause => handle.pause(),
                    Task::Resume => handle.resume(),
                    Task::Drain => handle.stop(),
                    _ => handle.force_stop(),
                }
            }
        }
    }

    /// Sets up memory, threads and addresses on a separate thread, without a time limit.
    fn prepare(&mut self, number: TaskNumber) {
        let (launch, bring) = (Arc::clone(&self.launch), self.bring.clone());
        let is_read = std::mem::take(&mut self.reads_again);
        let work = move || {
            let read = if is_read { launch.read_again() } else { Ok(Differences::new()) };
            let (launched, differences) = match read {
                Ok(differences) => (launch.launch(), differences),
                Err(error) => (Err(error), Differences::new()),
            };
            // If the controller no longer waits for it, the result is dropped with the channel.
            let _ = bring.send(Brought::Launched(number, launched.map(Box::new), differences));
        };
        self.work(number, "launch", work);
    }

    /// Runs blocking work on a separate thread.
    fn work(&mut self, number: TaskNumber, name: &str, work: impl FnOnce() + Send + 'static) {
        if let Err(error) = std::thread::Builder::new().name(name.to_owned()).spawn(work) {
            self.trouble(format!("a thread could not be started: {error}"));
            self.operation.ended(self.clock.now(), number, Outcome::Failed);
        }
    }

    /// Returns the last event of the run that begins, if it is known.
    fn last(&self) -> Option<EventKey> {
        self.rules.settings.limits.events.map(|events| FIRST.plus(events.max(1) - 1))
    }

    /// Has the first files of the run written, on a disk that may be slow.
    fn begin(&mut self, number: TaskNumber) {
        let Some(mut handle) = self.handle.take() else { return };
        self.away_to_begin = Some(number);
        let (last, fields, bring) = (self.last(), self.fields.clone(), self.bring.clone());
        let work = move || {
            let beginning = if handle.go_on() {
                Ok(Beginning::TakenOver)
            } else {
                handle.expect_room().and_then(|()| {
                    handle.describe(fields);
                    let left = handle.leave_word(FIRST, last).map(|()| Beginning::Anew);
                    left.map_err(|error| format!("{}: cannot be written: {error}", handle.directory().display()))
                })
            };
            let _ = bring.send(Brought::Begins(number, handle, beginning));
        };
        self.work(number, "begin", work);
    }

    fn begins(&mut self, number: TaskNumber, mut handle: Box<RunHandle>, beginning: Result<Beginning, String>) {
        let is_latest = self.away_to_begin.take_if(|latest| *latest == number).is_some();
        let is_to_end = is_latest && matches!(self.doing, Some((_, Task::Drain)));
        let is_wanted = self.operation.is_under_way(number) || is_latest && beginning.is_ok();
        if !is_wanted {
            // It came too late, or there is nothing to end.
            if is_to_end {
                self.operation.run_over(self.clock.now());
            }
            return self.work(number, "discard", || discard(handle));
        }
        self.incidents = 0;
        self.recounts.clear();
        self.watch = RunWatch::default();
        match beginning {
            Ok(Beginning::TakenOver) => self.watch = RunWatch::of_age(handle.age()),
            Ok(Beginning::Anew) => {
                self.masks.begin().for_each(|(source, is_masked)| handle.mask(source, is_masked));
                self.parameters.changed().for_each(|setting| handle.set(setting));
                handle.start(FIRST, self.last());
            }
            Err(why) => {
                self.trouble(why);
                self.operation.ended(self.clock.now(), number, Outcome::Refused);
            }
        }
        if is_to_end {
            handle.stop();
        }
        self.handle = Some(handle);
    }

    /// Closes a run, or discards what was set up for one.
    fn end(&mut self, number: TaskNumber, task: Task) {
        let Some(mut handle) = self.handle.take() else {
            self.away_to_begin = None;
            self.forget_run();
            return self.operation.ended(self.clock.now(), number, Outcome::Done);
        };
        self.closing = Some(handle.threads());
        // The results of the threads that ended last are known only now, such as events that a disk did not take.
        self.view.sample = Arc::new(handle.sample());
        self.activity.observe(&self.view.sample);
        let before = |time: Duration| Utc(self.view.sample.utc.0.saturating_sub(time.as_nanos() as i64));
        let silent_since = self.activity.stopped().map(|(source, time)| (source, before(time))).collect();
        handle.note_activity(silent_since, self.activity.began_late().collect());
        let bring = self.bring.clone();
        let work = move || {
            let brought = if task == Task::Discard {
                discard(handle);
                Brought::Discarded(number)
            } else {
                // Records the time of the end, if it has ended.
                handle.is_ended();
                let is_ours = handle.refusal().is_none();
                let account = handle.finish(LEAVING);
                let kept = if is_ours { account.keep() } else { Ok(()) };
                let kept = kept.map_err(|error| {
                    let file = account.directory.join(ACCOUNT);
                    RunError::System(format!("{}: cannot be written: {error}", file.display()))
                });
                Brought::Closed(number, is_ours.then(|| Arc::new(account)), kept)
            };
            let _ = bring.send(brought);
        };
        self.work(number, "close", work);
    }

    fn receive(&mut self, brought: Brought) {
        let number = match brought {
            Brought::Launched(number, launched, differences) => {
                if !differences.is_empty() {
                    self.follow(&differences);
                }
                return self.launched(number, launched);
            }
            Brought::Begins(number, handle, beginning) => return self.begins(number, handle, beginning),
            Brought::Closed(number, account, kept) => {
                self.view.last = account;
                if let Err(error) = kept {
                    self.trouble(error.to_string());
                    self.shared.set_error(Some(error));
                }
                number
            }
            Brought::Discarded(number) => number,
        };
        // If a run was left behind, the next one may be set up already.
        if self.operation.is_under_way(number) {
            self.forget_run();
            self.operation.ended(self.clock.now(), number, Outcome::Done);
        }
    }

    /// Applies a configuration that has changed.
    fn follow(&mut self, differences: &Differences) {
        for (key, (before, now)) in differences.iter().take(MOST_DIFFERENCES) {
            let [before, now] = [before, now].map(|text| text.as_deref().unwrap_or("nothing"));
            self.tell(EntryKind::State, format!("the configuration was read again: {key} is {now}; it was {before}"));
        }
        if let Some(more) = differences.len().checked_sub(MOST_DIFFERENCES + 1) {
            self.tell(
                EntryKind::State,
                format!("the configuration was read again: {} more values have changed", more + 1),
            );
        }
        self.rules = Rules::of(self.launch.settings(), &self.config);
        self.operation.set_limits(self.rules.tasks);
        self.rota.set_silence(self.rules.settings.timeouts.operator.0);
        self.masks.follow(self.rules.settings.masks.clone());
        self.parameters.follow(&self.rules.settings.parameters);
        self.view.masked = Arc::new(self.masks.masked().clone());
        self.view.required_fields = self.rules.settings.required_fields.clone().into();
        self.show_parameters();
        self.view.configuration = self.rules.settings.written.text().into();
    }

    fn launched(&mut self, number: TaskNumber, launched: Result<Box<RunHandle>, RunError>) {
        match launched {
            Ok(handle) if self.operation.is_under_way(number) => {
                self.numbers.hurry();
                self.samples.hurry();
                self.view.run = Some(handle.run_number());
                self.view.directory = Some(handle.directory().to_owned());
                self.view.addresses = handle.addresses().to_vec();
                self.view.sources = handle.sources();
                self.view.tap = handle.tap().cloned();
                self.view.histograms = handle.histograms();
                self.view.warnings = handle.warnings().to_vec();
                self.handle = Some(handle);
                // An earlier error is resolved.
                self.shared.set_error(None);
                self.operation.ended(self.clock.now(), number, Outcome::Done);
            }
            // It came too late.
            Ok(handle) => self.work(number, "discard", || discard(handle)),
            Err(error) => {
                self.trouble(error.to_string());
                self.shared.set_error(Some(error));
                self.operation.ended(self.clock.now(), number, Outcome::Refused);
            }
        }
    }

    fn forget_run(&mut self) {
        self.masks.end();
        (self.view.run, self.view.directory, self.view.disk_left) = (None, None, None);
        self.view.tap = None;
        self.view.addresses.clear();
    }

    fn trouble(&mut self, text: String) {
        self.tell(EntryKind::Fault, text.clone());
        self.view.trouble = Some(text);
    }

    fn tell(&self, kind: EntryKind, text: String) {
        let (at, run) = (self.clock.utc(), self.view.run);
        self.shared.journal(|journal| journal.add(at, kind, run, None, text));
    }

    fn tell_command(&self, by: &str, text: String) {
        let (at, run, text) = (self.clock.utc(), self.view.run, text + &suffix(self.user.as_deref(), by));
        self.shared.journal(|journal| journal.add(at, EntryKind::Command, run, Some(by), text));
    }

    fn publish(&mut self) {
        let (now, utc) = (self.clock.now(), self.clock.utc());
        let (state, task) = (self.operation.state(), self.operation.task());
        let is_news =
            state != self.view.state || task != self.view.task || self.rota.holder() != self.view.operator.as_ref();
        if !is_news && now < self.publish_due {
            return;
        }
        self.publish_due = now.after(PUBLISH);
        if state != self.view.state {
            (self.view.state, self.view.since) = (state, utc);
            self.tell(EntryKind::State, state.name().to_owned());
        }
        (self.view.at, self.view.task, self.view.fault) = (utc, task, self.operation.fault());
        self.view.age = self.handle.as_ref().map_or(Duration::ZERO, |handle| handle.age());
        if let Some(handle) = self.handle.as_ref().filter(|_| self.samples.is_due(now)) {
            self.view.sample = Arc::new(handle.sample());
            self.activity.observe(&self.view.sample);
            self.samples.was_read(now, self.clock.now());
        }
        self.view.operator = self.rota.holder().cloned();
        self.view.fields = self.handle.as_ref().map(|handle| handle.fields().clone()).unwrap_or_default();
        self.view.disk_left = self.handle.as_ref().and_then(|handle| handle.disk_left());
        self.view.last_entry = self.shared.journal(|journal| journal.last());
        self.shared.publish(self.view.clone());
    }
}

/// Discards what was set up for a run that never began. Removes its directory if that is empty.
fn discard(mut handle: Box<RunHandle>) {
    handle.force_stop();
    let begun = std::time::Instant::now();
    while !handle.is_ended() && begun.elapsed() < LEAVING {
        std::thread::sleep(LOOK);
    }
    let directory = handle.directory().to_owned();
    drop(handle.finish(LEAVING));
    remove_where_empty(&directory);
}

fn remove_where_empty(directory: &Path) {
    // A directory with content is kept, and with it the run's number.
    let _ = std::fs::remove_dir(directory);
}
