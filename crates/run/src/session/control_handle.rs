//! Commands to the run controller, the control of them by one operator at a time, and what it publishes: the view and
//! the journal.

use super::masks::MaskRequest;
use super::parameters::{LiveParameter, ParameterRequest};
use super::restarts::{RestartReply, RestartTold};
use crate::{DiskLeft, HistogramDefinition, RunError, RunSummary};
use ropewalk_config::LogLevel;
use ropewalk_config::fields::Fields;
use ropewalk_engine::tap::Tap;
use ropewalk_engine::{FrontEndsAccount, RunSnapshot};
use ropewalk_flow::control::operation::{
    Answer, Command, Controls, ControlsChange, ControlsRefusal, Fault, OperationState, Task,
};
use ropewalk_monitor::Sample;
use ropewalk_terms::{Instant, RunNumber, SourceId, Utc};
use ropewalk_wire::message::RefuseReason;
use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The result of a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// The command.
    pub command: Command,
    /// How it ended.
    pub answer: Answer,
    /// The state of the sequence of runs now.
    pub state: OperationState,
    /// An explanation: why the command was refused, and what would have been right.
    pub text: Option<String>,
}

/// The reason for the refusal of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestRefusal {
    /// Another operator has control.
    HeldByAnother(String),
    /// Unknown name.
    Unknown(String),
    /// The request is invalid in the present state or configuration.
    Unfit(String),
    /// Run control has ended.
    Over,
}

/// Called with the answer, once, by the controller's thread.
pub(super) type Reply = Box<dyn FnOnce(Told) + Send>;

/// The origin of a request.
pub(super) enum By {
    /// The program's own, or of the user at its terminal: always accepted.
    Program(String),
    /// An operator's: refused while another operator has control.
    Operator(String),
}

/// A request to the run controller.
pub(super) enum Order {
    /// A command, with the fields of the run that it starts.
    Command {
        command: Command,
        fields: Fields,
        by: By,
        reply: Reply,
    },
    Controls {
        request: ControlsRequest,
        by: String,
        reply: Box<dyn FnOnce(ControlsTold) + Send>,
    },
    Parameters {
        request: ParameterRequest,
        by: String,
        reply: Box<dyn FnOnce(Result<(), RequestRefusal>) + Send>,
    },
    Mask {
        request: MaskRequest,
        by: String,
        reply: Box<dyn FnOnce(Result<(), RequestRefusal>) + Send>,
    },
    Restart {
        sources: Vec<SourceId>,
        by: String,
        reply: RestartReply,
    },
}

/// The state that the controller's thread and its handles share.
#[derive(Debug)]
pub(super) struct Shared {
    view: Mutex<Arc<SessionView>>,
    journal: Mutex<Journal>,
    /// The error of the last attempt to set up a run.
    error: Mutex<Option<RunError>>,
    /// Names of alarms that an operator acknowledged or shelved.
    quiet_alarms: Mutex<BTreeSet<String>>,
}

impl Shared {
    pub(super) fn new(view: SessionView) -> Self {
        Self {
            view: Mutex::new(Arc::new(view)),
            journal: Mutex::default(),
            error: Mutex::default(),
            quiet_alarms: Mutex::default(),
        }
    }

    pub(super) fn publish(&self, view: SessionView) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
    }

    pub(super) fn view(&self) -> Arc<SessionView> {
        Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn journal<T>(&self, with: impl FnOnce(&mut Journal) -> T) -> T {
        with(&mut self.journal.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_error(&self, error: Option<RunError>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

/// A handle to watch and command a sequence of runs. Clones refer to the same sequence.
#[derive(Clone, Debug)]
pub struct ControlHandle {
    pub(super) orders: Sender<(Order, Option<String>)>,
    pub(super) shared: Arc<Shared>,
    /// The system user who uses it, for the journal.
    pub(super) user: Option<String>,
}

impl ControlHandle {
    /// Returns a handle for this system user, whom the journal records.
    #[must_use]
    pub fn for_user(&self, user: Option<String>) -> Self {
        Self { user, ..self.clone() }
    }

    /// Returns the latest view.
    pub fn view(&self) -> Arc<SessionView> {
        self.shared.view()
    }

    /// Returns the entries after the one with this number, the oldest first. The last thousand entries are kept.
    pub fn journal_after(&self, number: u64) -> Vec<Entry> {
        self.shared.journal(|journal| journal.after(number))
    }

    /// Adds an entry to the journal about an operator's action other than a command of the runs.
    pub fn remark(&self, by: &str, text: String) {
        let (view, text) = (self.view(), text + &suffix(self.user.as_deref(), by));
        self.shared.journal(|journal| journal.add(view.at, EntryKind::Command, view.run, Some(by), text));
    }

    /// Adds an operator's note on a run to the journal.
    pub fn note(&self, run: u32, by: &str, text: &str) {
        let (at, text) = (self.view().at, format!("note by {by}{}: {text}", suffix(self.user.as_deref(), by)));
        self.shared.journal(|journal| journal.add(at, EntryKind::Note, Some(RunNumber(run)), Some(by), text));
    }

    /// Adds an entry to the journal about a problem that is not part of the run.
    pub fn incident(&self, text: String) {
        let view = self.view();
        self.shared.journal(|journal| journal.add(view.at, EntryKind::Incident, view.run, None, text));
    }

    /// Sets the names of the alarms that an operator acknowledged or shelved: the terminal does not show them.
    pub fn set_quiet_alarms(&self, names: BTreeSet<String>) {
        *self.shared.quiet_alarms.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Returns the names of the alarms that an operator acknowledged or shelved.
    pub fn quiet_alarms(&self) -> BTreeSet<String> {
        self.shared.quiet_alarms.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the run failed because its nodes obey a newer event manager. This one is then superseded.
    pub fn is_superseded(&self) -> bool {
        let error = self.shared.error.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(&*error, Some(RunError::Refused(refusal)) if refusal.reason == RefuseReason::OldEpoch)
    }

    /// Takes the reason why the last attempt to set up a run failed.
    pub fn take_error(&self) -> Option<RunError> {
        self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives a command of the program itself, or of the user at its terminal. It is accepted no matter which operator
    /// has control. `reply` is called once, from another thread, when the command has ended, which may take as
    /// long as the run takes to drain; it must not block.
    pub fn command(&self, command: Command, by: &str, reply: impl FnOnce(Told) + Send + 'static) {
        let (fields, by) = (Fields::default(), By::Program(by.to_owned()));
        self.order(Order::Command { command, fields, by, reply: Box::new(reply) });
    }

    /// Like [`ControlHandle::command`], for an operator: refused while another operator has control. A start
    /// also takes the fields of the run.
    pub fn operator_command(
        &self,
        command: Command,
        fields: Fields,
        by: &str,
        reply: impl FnOnce(Told) + Send + 'static,
    ) {
        self.order(Order::Command { command, fields, by: By::Operator(by.to_owned()), reply: Box::new(reply) });
    }

    /// Takes or gives control in an operator's name. `reply` is called once, from another thread; it must not block.
    pub fn controls(&self, request: ControlsRequest, by: &str, reply: impl FnOnce(ControlsTold) + Send + 'static) {
        self.order(Order::Controls { request, by: by.to_owned(), reply: Box::new(reply) });
    }

    /// Masks or unmasks sources in an operator's name, in the current run and in the following ones. `reply` is called
    /// once, from another thread, when the run has the request; the run's snapshot has the event from which on it
    /// holds. It must not block.
    pub fn mask(
        &self,
        request: MaskRequest,
        by: &str,
        reply: impl FnOnce(Result<(), RequestRefusal>) + Send + 'static,
    ) {
        self.order(Order::Mask { request, by: by.to_owned(), reply: Box::new(reply) });
    }

    /// Masks sources of the current run in an operator's name, and unmasks them as soon as the event from which on they
    /// were out is known, or the time for that is over. `reply` is called once, from another thread, when they are
    /// unmasked; it must not block.
    pub fn restart(
        &self,
        sources: Vec<SourceId>,
        by: &str,
        reply: impl FnOnce(Result<RestartTold, RequestRefusal>) + Send + 'static,
    ) {
        self.order(Order::Restart { sources, by: by.to_owned(), reply: Box::new(reply) });
    }

    /// Changes parameters in an operator's name, in the current run and in the following ones. `reply` is called once,
    /// from another thread, when the run has the request; it must not block.
    pub fn change(
        &self,
        request: ParameterRequest,
        by: &str,
        reply: impl FnOnce(Result<(), RequestRefusal>) + Send + 'static,
    ) {
        self.order(Order::Parameters { request, by: by.to_owned(), reply: Box::new(reply) });
    }

    fn order(&self, order: Order) {
        let Err(unsent) = self.orders.send((order, self.user.clone())) else { return };
        // The thread has ended, and run control with it.
        match unsent.0.0 {
            Order::Command { command, reply, .. } => {
                let state = OperationState::Over;
                let answer = if command == Command::Shutdown { Answer::AlreadySo } else { Answer::NotNow(state) };
                reply(Told { command, answer, state, text: None });
            }
            Order::Controls { reply, .. } => {
                reply(ControlsTold { holder: None, refusal: Some("run control has ended".to_owned()) });
            }
            Order::Mask { reply, .. } | Order::Parameters { reply, .. } => reply(Err(RequestRefusal::Over)),
            Order::Restart { reply, .. } => reply(Err(RequestRefusal::Over)),
        }
    }

    /// Like [`ControlHandle::command`], and waits for the result.
    pub fn ask(&self, command: Command, by: &str) -> Told {
        let (sender, receiver) = channel();
        self.command(command, by, move |told| {
            // The caller waits below.
            let _ = sender.send(told);
        });
        let over =
            Told { command, answer: Answer::NotNow(OperationState::Over), state: OperationState::Over, text: None };
        receiver.recv().unwrap_or(over)
    }
}

/// The state of a sequence of runs at one moment.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Time of the view.
    pub at: Utc,
    /// The state.
    pub state: OperationState,
    /// Start of the state.
    pub since: Utc,
    /// The task under way.
    pub task: Option<Task>,
    /// Why the sequence is in [`OperationState::Error`].
    pub fault: Option<Fault>,
    /// The last problem, as text. A fault or a refusal stays until the next command is carried out.
    pub trouble: Option<String>,
    /// The run that is set up or under way.
    pub run: Option<RunNumber>,
    /// Its directory.
    pub directory: Option<PathBuf>,
    /// Its age.
    pub age: Duration,
    /// Its snapshot.
    pub snapshot: RunSnapshot,
    /// Its numbers by node and source, for monitoring; updated twice a second, or once with many sources
    /// ([`super::SamplingInterval`]).
    pub sample: Arc<Sample>,
    /// The space left on the disks.
    pub disk_left: Option<DiskLeft>,
    /// Front ends under run control.
    pub front_ends: Option<FrontEndsAccount>,
    /// Names and addresses that the nodes listen on.
    pub addresses: Vec<(String, String)>,
    /// Where copies of the run's events can be requested; `None` if no builder unit of the run is in this process.
    pub tap: Option<Tap>,
    /// The histograms of sources in the run that was set up last. The sample has the numbers.
    pub histograms: Arc<[HistogramDefinition]>,
    /// The number of sources.
    pub sources: usize,
    /// Requests to the system that were refused, and that the run does without.
    pub warnings: Vec<String>,
    /// The account of the last run that was closed.
    pub last: Option<Arc<RunSummary>>,
    /// The operator who has control.
    pub operator: Option<Holder>,
    /// Fields that a run must be given at its start.
    pub required_fields: Arc<[String]>,
    /// The fields of the current run.
    pub fields: Fields,
    /// Masked sources.
    pub masked: Arc<BTreeSet<SourceId>>,
    /// Parameters that can be changed during a run.
    pub parameters: Arc<[LiveParameter]>,
    /// The configuration of the current or next run: TOML, as stored with each run.
    pub configuration: Arc<str>,
    /// The number of the last entry in the journal.
    pub last_entry: u64,
}

impl SessionView {
    pub(super) fn new(at: Utc) -> Self {
        Self {
            at,
            state: OperationState::Initial,
            since: at,
            task: None,
            fault: None,
            trouble: None,
            run: None,
            directory: None,
            age: Duration::ZERO,
            snapshot: RunSnapshot::default(),
            sample: Arc::default(),
            disk_left: None,
            front_ends: None,
            addresses: Vec::new(),
            tap: None,
            histograms: Arc::default(),
            sources: 0,
            warnings: Vec::new(),
            last: None,
            operator: None,
            required_fields: Arc::default(),
            fields: Fields::default(),
            masked: Arc::default(),
            parameters: Arc::default(),
            configuration: Arc::from(""),
            last_entry: 0,
        }
    }

    /// Returns the commands that are possible now.
    pub const fn allowed(&self) -> &'static [Command] {
        self.state.allowed()
    }
}

/// The operator who has control: commands of other operators are refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The operator's name, as given by the operator.
    pub name: String,
    /// Since when the operator has had control.
    pub since: Utc,
}

/// An operator's request for control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ControlsRequest {
    /// Takes control, or keeps it: a sign of life.
    Take {
        /// Whether to take it even if another operator has it.
        is_forced: bool,
    },
    /// Releases control, or hands it over.
    Give {
        /// The operator who gets it; `None`: control is free.
        to: Option<String>,
    },
}

/// The answer to a [`ControlsRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControlsTold {
    /// The operator who has control now.
    pub holder: Option<Holder>,
    /// Why the request was refused; `None` if it was granted.
    pub refusal: Option<String>,
}

/// The control of a sequence of runs, and since when its holder has had it.
pub(super) struct Rota {
    controls: Controls,
    silence: Duration,
    holder: Option<Holder>,
}

impl Rota {
    /// Creates a free control. A holder who is silent for `silence` will lose it.
    pub(super) const fn new(silence: Duration) -> Self {
        Self { controls: Controls::new(silence), silence, holder: None }
    }

    /// Sets the maximum silence of a holder of control from now on.
    pub(super) const fn set_silence(&mut self, silence: Duration) {
        self.silence = silence;
        self.controls.set_silence(silence);
    }

    pub(super) const fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Returns why this operator's command is refused; `None` if it is accepted.
    pub(super) fn refusal(&mut self, now: Instant, by: &str) -> Option<String> {
        self.controls.permit(now, by).err().map(|refusal| self.why(&refusal))
    }

    /// Carries out an operator's request. Also returns an entry for the journal if it changes something.
    pub(super) fn ask(
        &mut self,
        (now, utc): (Instant, Utc),
        by: &str,
        request: &ControlsRequest,
    ) -> (ControlsTold, Option<String>) {
        let done = match request {
            ControlsRequest::Take { is_forced } => self.controls.take(now, by, *is_forced),
            ControlsRequest::Give { to } => self.controls.give(now, by, to.as_deref()),
        };
        let (refusal, entry) = match done {
            Ok(change) => (None, change.map(|change| self.note(utc, &change))),
            Err(refusal) => (Some(self.why(&refusal)), None),
        };
        (ControlsTold { holder: self.holder.clone(), refusal }, entry)
    }

    /// Takes control from a holder who was silent for too long. Returns the journal's entry on it.
    pub(super) fn tick(&mut self, now: Instant, utc: Utc) -> Option<String> {
        self.controls.tick(now).map(|change| self.note(utc, &change))
    }

    fn note(&mut self, utc: Utc, change: &ControlsChange) -> String {
        self.holder = self.controls.holder().map(|name| Holder { name: name.to_owned(), since: utc });
        match change {
            ControlsChange::Taken { by, from: None } => format!("{by} takes control"),
            ControlsChange::Taken { by, from: Some(from) } => format!("{by} takes control from {from} by force"),
            ControlsChange::Given { by, to } => format!("{by} gives control to {to}"),
            ControlsChange::Released { by } => format!("{by} releases control"),
            ControlsChange::Lost { by } => {
                let silence = self.silence.as_secs();
                format!("{by} gave no command for {silence} s and loses control")
            }
        }
    }

    fn why(&self, refusal: &ControlsRefusal) -> String {
        match refusal {
            ControlsRefusal::HeldBy(name) => {
                let since = self.holder.as_ref().map_or_else(String::new, |holder| holder.since.time_of_day());
                format!("{name} has had control since {since} UTC: ask for it, or take it by force")
            }
            ControlsRefusal::Free => "control is free, so there is nothing to give: take control first".to_owned(),
        }
    }
}

/// Returns the system user, as the end of a journal line; nothing if the operator `by` has that name.
pub(super) fn suffix(user: Option<&str>, by: &str) -> String {
    user.filter(|user| *user != by).map_or_else(String::new, |user| format!(" (system user {user})"))
}

/// The kind of an entry.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// An operator's note on a run.
    Note,
    /// The state changed.
    State,
    /// An operator gave a command, or control changed hands.
    Command,
    /// A command failed, or the run came to a standstill.
    Fault,
    /// An unexpected event that did not stop the run.
    Incident,
}

impl EntryKind {
    /// Returns the stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::State => "state",
            Self::Command => "command",
            Self::Fault => "fault",
            Self::Incident => "incident",
        }
    }

    /// Returns the lowest log level at which it is printed.
    const fn level(self) -> LogLevel {
        match self {
            Self::Fault => LogLevel::Error,
            Self::Incident => LogLevel::Warning,
            Self::Note | Self::State | Self::Command => LogLevel::Info,
        }
    }
}

/// An entry of the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number, counted from 1.
    pub number: u64,
    /// Time, in nanoseconds since 1970 UTC.
    pub at_ns: i64,
    /// Its kind.
    pub kind: EntryKind,
    /// The run; null outside of runs.
    pub run: Option<u32>,
    /// The operator who gave the command, by the given name; `None` for the program itself.
    pub by: Option<String>,
    /// Its text.
    pub text: String,
    /// Whether it is within the log level at its time.
    pub is_told: bool,
}

/// Maximum number of entries. The oldest are dropped.
const MOST: usize = 1000;

/// The last entries.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<Entry>,
    last: u64,
    level: LogLevel,
}

impl Journal {
    /// Sets which of the entries added from now on are printed.
    pub(super) const fn set_level(&mut self, level: LogLevel) {
        self.level = level;
    }

    pub(super) fn add(&mut self, at: Utc, kind: EntryKind, run: Option<RunNumber>, by: Option<&str>, text: String) {
        self.last += 1;
        let (run, by) = (run.map(|run| run.0), by.filter(|by| !by.is_empty()).map(str::to_owned));
        let is_told = kind.level() <= self.level;
        self.entries.push_back(Entry { number: self.last, at_ns: at.0, kind, run, by, text, is_told });
        if self.entries.len() > MOST {
            self.entries.pop_front();
        }
    }

    /// Returns the number of the last entry.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Returns the entries after the one with this number, the oldest first.
    pub(super) fn after(&self, number: u64) -> Vec<Entry> {
        let known = self.entries.iter().rev().take_while(|entry| entry.number > number).count();
        self.entries.iter().skip(self.entries.len() - known).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_are_forgotten_and_numbers_go_on() {
        let mut journal = Journal::default();
        for number in 1..=MOST as i64 + 5 {
            journal.add(Utc(number), EntryKind::State, None, None, number.to_string());
        }
        let all = journal.after(0);
        assert_eq!((all.len(), all[0].number, journal.last()), (MOST, 6, MOST as u64 + 5));
        let last: Vec<_> = journal.after(MOST as u64 + 3).into_iter().map(|entry| entry.text).collect();
        assert_eq!(last, ["1004", "1005"]);
        assert_eq!(journal.after(u64::MAX), []);
    }
}
