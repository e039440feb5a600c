//! Files of events between builder units and filter units: which unit has which, and what came of them (paper 3, II-B).
//!
//! ```text
//!  files, as they are closed --> Broker <--request, done-- filter units, one file at a time each
//!                                 |  ^ lost: the file goes to another one, with the next attempt
//!                                 v  |
//!                Give, Commit, Discard, Delete, SetAside    (a directory)
//!  documents that have their name --> Merger <-- how much was written --> lumisections, each closed once
//! ```
//! What a filter unit writes for a file has the attempt in its name, and counts only once a document names it. That
//! document gets its name by one rename, after the unit has reported that everything is there: a unit that dies before
//! loses nothing, and one that dies after it doubles nothing. The directory holds the whole state: a broker that dies
//! is replaced by one that looks there.

mod broker;
mod merger;
#[cfg(test)]
mod tests;

pub use broker::{Broker, BrokerAction, BrokerConfig, BrokerCounts, FileId, UnitId, Work};
pub use merger::{Closed, Decided, LumisectionAccount, Merger, StreamCounts, Written};
