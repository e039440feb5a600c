//! Front ends under run control: programs that are slow, deaf to a command, cut off, killed and started anew, over several
//! runs, and the real drive that conducts them.
//!
//! ```text
//!   Program (trigger, detectors) <--simulated network--> ControlledDrive --commands--> StandInNodes
//!        |      what it is told, in which order                |   what the nodes are told
//!        +--------------------> Referee <----------------------+
//! ```
//! The referee asks no machine. Of a *reliable* program, which nothing happened to in a run, everything must be right: it is
//! never named, never left behind, and its first and last event are those of all others. While the nodes are paused it issues
//! nothing, if it is the trigger source, and afterwards it goes on.

mod nodes;
mod program;
mod referee;
mod scenario;
mod world;

pub use scenario::{Mishap, PauseSetting, ProgramSetting, Scenario};
pub use world::World;
