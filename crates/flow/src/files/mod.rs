//! Files of events between builder units and filter units: assignment of files to units, and accounts (paper 3, II-B).
//!
//! ```text
//!  files, as they are closed --> Broker <--request, done-- filter units, one file at a time each
//!                                 |  ^ lost: the file goes to another one, with the next attempt
//!                                 v  |
//!                Give, Commit, Discard, Delete, SetAside    (a directory)
//!  documents that have their name --> Merger <-- how much was written --> lumisections, each closed once
//! ```
//! The name of a filter unit's output file contains the attempt, and the file counts only once a document names it. The
//! document gets its final name by one rename, after the unit has reported all output: a unit that dies before it loses
//! nothing, and one that dies after it duplicates nothing. The directory holds the whole state: a new broker continues
//! from there.

mod broker;
mod merger;
#[cfg(test)]
mod tests;

pub use broker::{Broker, BrokerAction, BrokerConfig, BrokerCounts, FileId, UnitId, Work};
pub use merger::{Closed, Decided, LumisectionAccount, Merger, StreamCounts, Written};
