//! A node of the run.
//!
//! ```text
//! configuration  what the run is            quantity   sizes, times and rates as people write them
//! drive          machines <-> endpoints     run        threads, wiring, run directories, the handle
//! offline        verify, inspect, recover        file_based  files of events and the processes that filter them
//! schemas        of the JSON output
//! session        runs one after the other, as an operator has them
//! monitoring     what filters counted, in documents beside the events
//! pages          what nodes count, in memory that others read without asking them
//! status         the exit status of commands, and why
//! tap            copies of single events, for those who watch
//! user_command   commands of the user's, which are ended when they take too long
//! whole_file     files that are whole, or as they were before
//! ```
//! `drive` is generic over io's twins and has no threads, so that a simulator can run it as it is.

pub mod configuration;
pub mod drive;
pub mod fields;
pub mod file_based;
mod library_process;
pub mod monitoring;
pub mod offline;
pub mod pages;
pub mod quantity;
pub mod run;
pub mod schemas;
pub mod session;
pub mod status;
pub mod tap;
pub mod user_command;
pub mod whole_file;
