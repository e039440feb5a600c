//! File-based filtering (paper 3, II-B): events in files of a directory, best in memory, and processes that filter them.
//!
//! ```text
//!  run000001/   run000001_ls0001_index000007.raw    events (FRD), with a .jsn each; lumisections and run closed by EoLS, EoR
//!               broker.socket                       Broker <--lines of text--> filter units, each a process
//!               output/                             what is accepted, a document for each file, a sum for each lumisection
//!               error/                              files that units died over
//! ```
//! `broker` has the machines of `flow::files` and does what they say; `children` starts filter units for it. `unit` is the
//! other end, and `filter` what it runs: the same triggers and streams as those of run files. Whichever process is killed, and
//! when, the directory is enough to go on: `place` knows its names, `documents` the content of the JSON files.

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
