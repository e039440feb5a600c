//! The filter: what becomes of built events. Each goes to a filter unit, a decision comes back, and streams take what is
//! accepted.
//!
//! ```text
//!  builder --add--> FilterFarm --Offer--> filter units (FU): processes, nodes --decided--> Streams --> storage
//!                      |   ^                  |                                     |
//!                      |   +---- ended -------+ crashed, hung, or not to be         +-> Ordering: as the keys are,
//!                      |                        believed: tried once more               where a stream wants that
//!                      +-- next_failed: no decision can be had --> the error stream
//! ```
//! Events go out by absolute credit: a filter unit says how many it takes in this life of it. What it had when it ended goes to
//! others; the one that it was working on is tried once more, and if that ends a filter unit as well it is set aside, whole.
//! Nothing else waits for it. What filters fill into histograms comes with their decisions, and [`Monitoring`] adds up that of those
//! that count. Filters that are functions of this process ([`Builtin`]) answer at once and need no farm.

mod builtin;
mod config;
mod farm;
mod histogram;
mod monitoring;
mod ordering;
mod streams;
#[cfg(test)]
mod tests;
mod unit;

pub use builtin::{Builtin, BuiltinFilter, Comparison, TriggerView};
pub use config::{FarmConfig, FilterConfigError, StreamConfig};
pub use farm::{FarmAction, FarmCounts, FilterFarm};
pub use histogram::{
    Fill, Fills, Histogram, HistogramError, HistogramShape, MOST_BINS, MOST_FILLS, MOST_HISTOGRAMS, MOST_NAME_BYTES,
};
pub use monitoring::{Counted, LumisectionRecord, Monitoring};
pub use ordering::Ordering;
pub use streams::{ERROR_STREAM, Streams};

use ropewalk_terms::TriggerBits;

/// What a filter says of an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// It is kept.
    pub accept: bool,
    /// The triggers that it passed.
    pub triggers: TriggerBits,
}
