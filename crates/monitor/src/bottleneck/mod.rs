//! What limits the run, in a sentence.
//!
//! ```text
//!  Sample, Sample ── rules, in order ── the first finding ── Finder (holds it) ── what people read
//! ```
//!
//! A finding says what the numbers say and no more: where every source is held back and nobody behind the readout units tells what
//! its time went into, that is all that is said.

mod behind;
mod finder;
mod rules;
#[cfg(test)]
mod tests;

pub use finder::Finder;
pub use rules::find;

use serde::{Deserialize, Serialize};

/// What kind of thing limits the run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The run does not go on now: nothing is to be limited.
    NotRunning,
    /// A disk refuses what is written.
    DiskFailing,
    /// A disk is full.
    DiskFull,
    /// A node is not connected.
    NodeMissing,
    /// Datagrams are lost before they are taken.
    DatagramsLost,
    /// A source has stopped while others go on or wait.
    SourceSilent,
    /// No source sends anything, and none is held back.
    NoData,
    /// A builder unit's disk writes all the time.
    Disk,
    /// The filter units of a builder unit decide all the time.
    Filter,
    /// A connection from a readout unit to a builder unit takes no more.
    Link,
    /// A builder unit's thread has work all the time.
    Builder,
    /// A builder unit has too few places for events, or too little memory for them.
    BuilderSmall,
    /// A readout unit's thread has work all the time.
    Readout,
    /// A gateway stops the trigger.
    Throttle,
    /// A readout unit's pool is full.
    PoolFull,
    /// Every source is held back.
    BehindReadout,
    /// Some sources are held back, and wait for others.
    SourceSlow,
    /// Nothing: all that sources send is taken.
    Sources,
}

impl Limit {
    /// Data are lost or nothing moves: it is shown at once.
    pub(crate) const fn is_urgent(self) -> bool {
        matches!(
            self,
            Self::NotRunning
                | Self::DiskFailing
                | Self::DiskFull
                | Self::NodeMissing
                | Self::DatagramsLost
                | Self::SourceSilent
        )
    }
}

/// A number that says so.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Evidence {
    /// What it is: a counter's or a rate's name, and whose.
    pub what: String,
    /// Its value.
    pub value: f64,
}

/// What limits the run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// The kind.
    pub limit: Limit,
    /// Which node or source it is; empty where it is none.
    pub subject: String,
    /// What people read.
    pub sentence: String,
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
}
