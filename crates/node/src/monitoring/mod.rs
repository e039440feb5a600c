//! What filters counted, beside the events: a document of each builder unit for each lumisection, and their sum over builder units.
//!
//! ```text
//!  RecordKeeper of a builder unit --> Archive, a thread --> run000001-bu0-ls000001.json
//!                                                           run000001-bu1-ls000001.json --merge--> Histograms, histograms.json
//! ```
//! A document is whole under its name. Where a builder unit was started again in the middle of a run there may be a second one of the
//! same lumisection, `run000001-bu0-ls000001-2.json`: each has events of its own, and both count.

mod archive;
mod counts;
mod merge;
#[cfg(test)]
mod tests;

pub(crate) use archive::Archive;
pub use counts::{Counts, HistogramCounts};
pub use merge::{HISTOGRAMS_SCHEMA, Histograms, LumisectionCounts, MERGED_FILE, MergeError, merge};
