//! File-based filtering (paper 3, II-B): files of events in a directory, preferably in memory, and processes that
//! filter them.
//!
//! ```text
//!  run000001/   run000001_ls0001_index000007.raw    events (FRD), with a .jsn each; lumisections and run closed by EoLS, EoR
//!               broker.socket                       Broker <--lines of text--> filter units, each a process
//!               output/                             what is accepted, a document for each file, a sum for each lumisection
//!               error/                              files that units died over
//! ```
//! `broker` drives the state machines of `flow::files`; `children` starts filter units for it. `unit` is the other end,
//! and `filter` what it runs: the same triggers and streams as those of run files. Whichever process is killed, and
//! when, the directory suffices to continue: `place` defines its names, `documents` the content of the JSON files.

mod broker;
mod children;
pub mod documents;
mod filter;
mod place;
#[cfg(test)]
mod tests;
mod unit;

pub use broker::{BrokerOptions, FILES_SCHEMA, FilesSummary, LumisectionSummary, StreamSummary, serve_files};
pub use filter::{EventFilter, FileEvent, LibraryFilter, Undecided, UnitFilter, UnitTask};
pub use place::{FilesError, Place};
pub use unit::{FilterUnit, FromUnit, NotALine, ToUnit};
