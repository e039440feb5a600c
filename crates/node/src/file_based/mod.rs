//! File-based filtering (paper 3, II-B): events in files of a directory, best in memory, and processes that filter them.
//!
//! ```text
//!  run000001/   run000001_ls0001_index000007.raw    events (FRD), with a .jsn each; lumisections and run closed by EoLS, EoR
//!               broker.socket                       Broker <--lines of text--> filter units, each a process
//!               output/                             what is accepted, a document for each file, a sum for each lumisection
//!               error/                              files that units died over
//! ```
//! `broker` has the machines of `flow::files` and does what they say; `unit` is the other end, and `task` what it is to do: the same
//! triggers and streams as those of run files. Whoever is killed, and when, what
//! lies in the directory is enough to go on: `place` knows its names, `documents` what stands in the JSON files.

mod broker;
mod children;
pub mod documents;
mod error;
mod filter;
mod library;
mod line;
mod place;
mod summary;
mod task;
#[cfg(test)]
mod tests;
mod unit;

pub use broker::{BrokerOptions, serve_files};
pub use error::FilesError;
pub use filter::{EventFilter, FileEvent, Undecided};
pub use library::LibraryFilter;
pub use line::{FromUnit, NotALine, ToUnit};
pub use place::Place;
pub use summary::{FILES_SCHEMA, FilesSummary, LumisectionSummary, StreamSummary};
pub use task::{UnitFilter, UnitTask};
pub use unit::FilterUnit;
