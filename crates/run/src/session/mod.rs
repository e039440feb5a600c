//! A sequence of runs of one configuration: an operator's commands in, views out.
//!
//! ```text
//!  ControlHandle --commands--> run controller's thread: flow's `Operation` --tasks--> RunHandle (launch, start, stop, finish)
//!    ^                                |
//!    +-----------view, answers--------+
//! ```
//! Blocking work, such as setting up memory, is done on separate threads, so that a command is accepted within
//! milliseconds. Any number of handles may send commands. While an operator has control, commands of other operators
//! are refused. The program itself and the user at its terminal may always send commands, so that a run can be stopped
//! there.

mod control_handle;
mod launch;
mod limits;
mod masks;
mod parameters;
mod restarts;
mod run_controller;
#[cfg(test)]
mod tests;

pub use control_handle::{
    ControlHandle, ControlsRequest, ControlsTold, Entry, EntryKind, Holder, RequestRefusal, SessionView, Told,
};
pub use launch::{GatewayProcess, Launch, Launcher, ManagerProcess, Patience, RunSettings, SessionConfig, System};
pub use limits::{RunLimits, SamplingInterval};
pub use masks::MaskRequest;
pub use parameters::{LiveParameter, ParameterRequest, Subject};
pub use restarts::{RestartOutcome, RestartTold, Restarted};
pub use run_controller::Session;

pub use ropewalk_flow::control::operation::{AfterRun, Answer, Command, Fault, OperationState, Task, TaskLimits};
