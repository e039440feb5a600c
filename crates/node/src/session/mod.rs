//! Runs of one configuration, one after the other: an operator's commands in, views out.
//!
//! ```text
//!  Desk --commands--> Director's thread: flow's `Operation` --tasks--> ConductedRun (launch, start, stop, finish)
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
mod launch;
mod limits;
mod manager_process;
mod masks;
mod pace;
mod parameters;
mod recounts;
mod restarts;
#[cfg(test)]
mod tests;
mod view;

pub use controls::{ControlsRequest, ControlsTold, Holder};
pub use desk::{Desk, RequestRefusal, Told};
pub use director::Session;
pub use journal::{Entry, EntryKind};
pub use launch::{Launch, Launcher, Patience, PushSystem, RunSettings, SessionConfig, System};
pub use limits::RunLimits;
pub use manager_process::ManagerProcess;
pub use masks::MaskRequest;
pub use pace::Pace;
pub(crate) use parameters::REPORT_INTERVAL;
pub use parameters::{LiveParameter, ParameterRequest, Subject};
pub use restarts::{RestartOutcome, RestartTold, Restarted};
pub use view::SessionView;

pub use ropewalk_flow::control::operation::{AfterRun, Answer, Command, Fault, OperationState, Task, TaskLimits};
