//! Run control, in its smallest form: when a run starts, drains and has ended.
//!
//! ```text
//! initial --all nodes connected--> configured --Start--> running --Stop, last event--> draining --> ended
//!    |                                 |             ^                    ForceStop: everything left is dropped
//!    +--Stop-----------------------> ended           |
//!    +--TakeOver-------------------------------------+
//! ```
//! Commands may come at any time and any number of times: a start waits for the nodes, a second stop changes
//! nothing. A run that was started is running when every readout unit that is there has heard of it, and sources may begin.
//! The event manager does the work; this machine only says when. Where front ends are under run control, too,
//! [`front_ends`] stands before it. [`operation`] is what an operator has: runs, one after the other.

pub mod front_ends;
mod machine;
pub mod operation;
#[cfg(test)]
mod tests;

pub use machine::{ControlAction, RunCommand, RunControl, RunPhase};
