//! Front ends under run control: their connections, what is said over them, and what they report.
//!
//! ```text
//!  front end <--commands, words--> Link <--> flow::control::front_ends --commands--> the run's nodes
//!                    slow readings -> rate -> run_file::SlowReading -> Storage, a segment of its own
//! ```
//! One connection of a front end lives over several runs; so does this drive. Its data go elsewhere: to a readout unit, whose
//! address it is told.

mod account;
mod link;
mod machine;

pub use account::{FrontEndState, FrontEndsAccount};
pub use machine::{ControlledDrive, ControlledDriveConfig};
