//! Readers of a run's numbers.
//!
//! ```text
//!  node ── Sample ──┬── prometheus: text for other monitoring systems
//!                   └── a later Sample ──┬── Rates
//!                                      ├── bottleneck: what limits the run, in a sentence
//!                                      ├── alarms: what operators have to know of, until they do
//!                                      ├── presence: nodes that hang, and nodes that are to join
//!                                      ├── history: how it went, for an hour and for a week
//!                                      ├── incidents: what went wrong, once for each cause and subject
//!                                      └── quality: complete, incomplete and doubtful events, and why
//!                                            ├── numbering: first numbers and restarts of sources, in sentences
//!                                            └── synchrony: sources that are out of step, in sentences
//! ```
//!
//! Nothing here reads a clock, a file or a socket: time comes with the samples, and readers work on threads that carry no
//! data. A reader keeps no more than a few samples, whose size is that of the configuration.
#![forbid(unsafe_code)]

mod activity;
pub mod alarms;
pub mod bottleneck;
pub mod history;
pub mod incidents;
#[cfg(test)]
mod made_up;
pub mod numbering;
pub mod presence;
pub mod prometheus;
pub mod quality;
mod rates;
mod sample;
pub mod synchrony;

pub use self::activity::{Activity, Beginning};
pub use self::history::RunTrend;
pub use self::rates::{NodeRates, NodeShares, Rates, SourceRates};
pub use self::sample::{
    DiskLoad, DiskSample, Distribution, NodeSample, Numbers, PAUSED, PHASES, Sample, SourceSample, StreamSample,
};
