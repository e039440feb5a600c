//! Runs of one configuration, one after the other: an operator's commands in, views out.
//!
//! ```text
//!  ControlHandle --commands--> run controller's thread: flow's `Operation` --tasks--> RunHandle (launch, start, stop, finish)
//!    ^                                |
//!    +-----------view, answers--------+
//! ```
//! Threads of their own do what blocks, such as setting up memory, so that a command is accepted within milliseconds. Any number of
//! handles may send commands. While an operator holds the controls, commands of other operators are refused. The program itself and
//! the user at its terminal may always send commands, so that a run can be stopped there.

mod control_handle;
mod controls;
mod journal;
mod launch;
mod limits;
mod manager_process;
mod masks;
mod parameters;
mod recounts;
mod restarts;
mod run_controller;
mod sampling_interval;
#[cfg(test)]
mod tests;
mod view;

pub use control_handle::{ControlHandle, RequestRefusal, Told};
pub use controls::{ControlsRequest, ControlsTold, Holder};
pub use journal::{Entry, EntryKind};
pub use launch::{GatewayProcess, Launch, Launcher, Patience, RunSettings, SessionConfig, System};
pub use limits::RunLimits;
pub use manager_process::ManagerProcess;
pub use masks::MaskRequest;
pub(crate) use parameters::REPORT_INTERVAL;
pub use parameters::{LiveParameter, ParameterRequest, Subject};
pub use restarts::{RestartOutcome, RestartTold, Restarted};
pub use run_controller::Session;
pub use sampling_interval::SamplingInterval;
pub use view::SessionView;

pub use ropewalk_flow::control::operation::{AfterRun, Answer, Command, Fault, OperationState, Task, TaskLimits};
