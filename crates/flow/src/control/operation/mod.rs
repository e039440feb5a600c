//! Run control as an operator sees it: runs, one after the other, of one configuration.
//!
//! ```text
//!            configure           start            pause
//!  initial ----------> configured -----> running -------> paused
//!     ^                  ^    |             | ^              | |
//!     |                  |    |             | +---resume-----+ |
//!     |               closed  |             | stop, or its end | stop
//!     |                  |    |             v                  |
//!     +---reset----------|----+         draining <-------------+
//!     ^                  +-----------------/
//!     +---reset--- error <---- anything that failed           shutdown: from anywhere to `over`, draining on the way
//! ```
//! The machine says what is to be done next, one task at a time, and is told how it ended; each task has a limit of time. Each command
//! gets one answer: what was asked for is there, was there already, cannot be had now (with what can), or went wrong. A stop always
//! finishes: what does not drain in time is dropped, what does not close in time is left behind. Whose commands are heard is
//! [`Controls`]' to say, before the machine gets them.

mod command;
mod controls;
mod machine;
#[cfg(test)]
mod tests;

pub use command::{Answer, Command, CommandNumber, OperationState};
pub use controls::{Controls, ControlsChange, ControlsRefusal};
pub use machine::{AfterRun, Fault, Operation, Outcome, Task, TaskLimits, TaskNumber};
