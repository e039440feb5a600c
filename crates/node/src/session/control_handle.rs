//! The handle through which clients send commands to the run controller and read its state.

use super::controls::{ControlsRequest, ControlsTold};
use super::journal::{Entry, EntryKind, Journal};
use super::masks::MaskRequest;
use super::parameters::ParameterRequest;
use super::restarts::{RestartReply, RestartTold};
use super::view::SessionView;
use crate::fields::Fields;
use crate::run::RunError;
use ropewalk_flow::control::operation::{Answer, Command, OperationState};
use ropewalk_terms::SourceId;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// The command.
    pub command: Command,
    /// How.
    pub answer: Answer,
    /// Where things are now.
    pub state: OperationState,
    /// What there is to say beside it: why not, and what would have been right.
    pub text: Option<String>,
}

/// Why nothing was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestRefusal {
    /// Another operator holds the controls.
    HeldByAnother(String),
    /// There is nothing of this name.
    Unknown(String),
    /// It cannot be had.
    Unfit(String),
    /// Run control has ended.
    Over,
}

/// Called with the answer, once, by the controller's thread.
pub(super) type Reply = Box<dyn FnOnce(Told) + Send>;

/// In whose name something is asked for.
pub(super) enum By {
    /// The program's own, or of whoever sits at its terminal: always heard.
    Program(String),
    /// An operator's: not heard while another one holds the controls.
    Operator(String),
}

/// A request to the run controller.
pub(super) enum Order {
    /// With what is said of the run that it starts.
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
    /// Why a run could not be set up, the last time that it was tried.
    error: Mutex<Option<RunError>>,
}

impl Shared {
    pub(super) fn new(view: SessionView) -> Self {
        Self { view: Mutex::new(Arc::new(view)), journal: Mutex::default(), error: Mutex::default() }
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

/// A place from which a sequence of runs is seen and commanded; copies are further ones.
#[derive(Clone, Debug)]
pub struct ControlHandle {
    pub(super) orders: Sender<Order>,
    pub(super) shared: Arc<Shared>,
}

impl ControlHandle {
    /// How things were a moment ago.
    pub fn view(&self) -> Arc<SessionView> {
        self.shared.view()
    }

    /// What happened after the entry with this number, the oldest first; the last thousand entries are kept.
    pub fn journal_after(&self, number: u64) -> Vec<Entry> {
        self.shared.journal(|journal| journal.after(number))
    }

    /// Says in the journal what somebody did that is no command of the runs.
    pub fn remark(&self, by: &str, text: String) {
        let view = self.view();
        self.shared.journal(|journal| journal.add(view.at, EntryKind::Command, view.run, Some(by), text));
    }

    /// Why a run could not be set up when that was tried last; asked once.
    pub fn take_error(&self) -> Option<RunError> {
        self.shared.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives a command of the program itself, or of whoever sits at its terminal, whoever holds the controls. `reply` is called once, from
    /// another thread, when it has ended, which may take as long as the run takes to drain; it must not block.
    pub fn command(&self, command: Command, by: &str, reply: impl FnOnce(Told) + Send + 'static) {
        let (fields, by) = (Fields::default(), By::Program(by.to_owned()));
        self.order(Order::Command { command, fields, by, reply: Box::new(reply) });
    }

    /// As [`ControlHandle::command`], of an operator: refused while another one holds the controls. A start also takes the fields of the run.
    pub fn operator_command(
        &self,
        command: Command,
        fields: Fields,
        by: &str,
        reply: impl FnOnce(Told) + Send + 'static,
    ) {
        self.order(Order::Command { command, fields, by: By::Operator(by.to_owned()), reply: Box::new(reply) });
    }

    /// Takes the controls, or gives them, in an operator's name. `reply` is called once, from another thread; it must not block.
    pub fn controls(&self, request: ControlsRequest, by: &str, reply: impl FnOnce(ControlsTold) + Send + 'static) {
        self.order(Order::Controls { request, by: by.to_owned(), reply: Box::new(reply) });
    }

    /// Takes sources out of runs, or in again, in an operator's name: the run that goes on, and those that follow. `reply` is called once,
    /// from another thread, when the run has been told; from which event on it holds is seen in its snapshot. It must not block.
    pub fn mask(
        &self,
        request: MaskRequest,
        by: &str,
        reply: impl FnOnce(Result<(), RequestRefusal>) + Send + 'static,
    ) {
        self.order(Order::Mask { request, by: by.to_owned(), reply: Box::new(reply) });
    }

    /// Takes sources out of the run that goes on, in an operator's name, and in again as soon as it is known from which event on they were
    /// out, or not known in time. `reply` is called once, from another thread, when they are in again; it must not block.
    pub fn restart(
        &self,
        sources: Vec<SourceId>,
        by: &str,
        reply: impl FnOnce(Result<RestartTold, RequestRefusal>) + Send + 'static,
    ) {
        self.order(Order::Restart { sources, by: by.to_owned(), reply: Box::new(reply) });
    }

    /// Changes parameters, in an operator's name: of the run that goes on, and of those that follow. `reply` is called once, from another
    /// thread, when the run has been told; it must not block.
    pub fn change(
        &self,
        request: ParameterRequest,
        by: &str,
        reply: impl FnOnce(Result<(), RequestRefusal>) + Send + 'static,
    ) {
        self.order(Order::Parameters { request, by: by.to_owned(), reply: Box::new(reply) });
    }

    fn order(&self, order: Order) {
        let Err(unsent) = self.orders.send(order) else { return };
        // The thread has ended: everything is over.
        match unsent.0 {
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

    /// As [`ControlHandle::command`], and waits for the answer.
    pub fn ask(&self, command: Command, by: &str) -> Told {
        let (sender, receiver) = channel();
        self.command(command, by, move |told| {
            // Whoever asked waits below.
            let _ = sender.send(told);
        });
        let over =
            Told { command, answer: Answer::NotNow(OperationState::Over), state: OperationState::Over, text: None };
        receiver.recv().unwrap_or(over)
    }
}
