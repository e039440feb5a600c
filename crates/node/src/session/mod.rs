//! Runs of one configuration, one after the other: an operator's commands in, views out.
//!
//! ```text
//!  Desk --commands--> Director's thread: flow's `Operation` --tasks--> RunHandle (launch, start, stop, finish)
//!    ^                        |
//!    +-------view, answers----+
//! ```
//! What blocks, setting up memory and threads or waiting for them to end, is done by threads of their own, so that a command is taken
//! within milliseconds whatever is going on. Commands come from as many desks as there are; where an operator holds the controls, of operators
//! theirs alone are heard. The program itself, which is also whoever sits at its terminal, is always heard, so that a run can be stopped there.

mod controls;
mod desk;
mod director;
mod journal;
mod limits;
mod masks;
mod parameters;
#[cfg(test)]
mod tests;
mod view;

pub use controls::{ControlsRequest, ControlsTold, Holder};
pub use desk::{Desk, RequestRefusal, Told};
pub use director::{Launch, Session, SessionConfig};
pub use journal::{Entry, EntryKind};
pub use limits::{RunLimits, task_limits};
pub use masks::{MaskRequest, MaskRules};
pub(crate) use parameters::REPORT_INTERVAL;
pub use parameters::{LiveParameter, ParameterRequest, Parameters};
pub use view::SessionView;

pub use ropewalk_flow::control::operation::{AfterRun, Answer, Command, Fault, OperationState, Task, TaskLimits};

use crate::configuration::Configuration;
use crate::run::{FrontEndService, RunHandle, launch_with};
use std::sync::{Arc, Mutex, PoisonError};

/// Sets up runs of all nodes in this process. Front ends under run control stay connected from run to run.
pub fn launcher(configuration: Configuration, events: Option<u64>) -> Launch {
    let service: Mutex<Option<Option<FrontEndService>>> = Mutex::new(None);
    Arc::new(move || {
        let mut service = service.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match service.take() {
            Some(opened) => opened,
            None => FrontEndService::open(&configuration)?,
        };
        launch_with(&configuration, events, service.insert(opened).as_ref())
    })
}

/// Hands over a run that is set up already; there is no other one.
pub fn only(handle: RunHandle) -> Launch {
    let handle = Mutex::new(Some(handle));
    let none = || crate::run::RunError::Unfit("this process takes one run".to_owned());
    Arc::new(move || handle.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(none))
}
