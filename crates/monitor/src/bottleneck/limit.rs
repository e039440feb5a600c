//! Kinds of limits.

use serde::{Deserialize, Serialize};

/// What kind of thing limits the run.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The run is not active: it has no limit.
    NotRunning,
    /// A disk refuses what is written.
    DiskFailing,
    /// A disk is full.
    DiskFull,
    /// A node is not connected.
    NodeMissing,
    /// A node is connected and does not report: it hangs, or was stopped.
    NodeSilent,
    /// Datagrams are lost before they are taken.
    DatagramsLost,
    /// The first number of a source does not fit the run, and its fragments are in no event.
    WrongFirstNumber,
    /// Every source restarted counting, and no event can be built.
    SourcesRestarted,
    /// Fragments fail their checks as if two sources were exchanged, and no event is built.
    SourcesExchanged,
    /// A source has stopped while others send or wait.
    SourceSilent,
    /// No source has sent anything in this run.
    NoSources,
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
    /// The filter units of a builder unit are busy, and nothing is decided.
    FilterStuck,
    /// Nothing limits the rate, but events are incomplete, or no filter decides on them.
    Incomplete,
    /// Nothing limits the rate, but fragments are in no event.
    FragmentsLost,
    /// Sources send, no event is built, and no other rule says why.
    NothingBuilt,
    /// Nothing: all that sources send is taken.
    Sources,
}

impl Limit {
    /// Data are lost or nothing moves: it is shown at once.
    pub(super) const fn is_urgent(self) -> bool {
        matches!(
            self,
            Self::NotRunning
                | Self::DiskFailing
                | Self::DiskFull
                | Self::NodeMissing
                | Self::NodeSilent
                | Self::DatagramsLost
                | Self::WrongFirstNumber
                | Self::SourcesRestarted
                | Self::SourcesExchanged
                | Self::SourceSilent
        )
    }

    /// Whether it holds until a repair, and is then replaced at once. Others fluctuate from sample to sample.
    pub(super) const fn is_condition(self) -> bool {
        use Limit::{
            DiskFailing, DiskFull, NoData, NoSources, NodeMissing, NodeSilent, NotRunning, NothingBuilt, SourceSilent,
        };
        matches!(
            self,
            NotRunning
                | DiskFailing
                | DiskFull
                | NodeMissing
                | NodeSilent
                | SourceSilent
                | NoSources
                | NoData
                | NothingBuilt
        )
    }

    /// It says why a run builds nothing.
    pub(crate) const fn is_cause(self) -> bool {
        !matches!(
            self,
            Self::Sources
                | Self::NothingBuilt
                | Self::NotRunning
                | Self::NoData
                | Self::Incomplete
                | Self::FragmentsLost
        )
    }
}
