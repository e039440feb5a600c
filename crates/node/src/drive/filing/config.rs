//! What is decided before a run.

use crate::drive::RoomLimits;
use ropewalk_terms::AcknowledgementLevel;
use ropewalk_wire::frd::Version;
use std::path::PathBuf;
use std::time::Duration;

/// How a builder unit writes files of events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilingConfig {
    /// Who writes, for the documents: `BU-0` and so on, as CMS's conventions name builder units.
    pub writer: String,
    /// Where the directory of the run is made: this builder unit's alone.
    pub directory: PathBuf,
    /// The version of the events' headers.
    pub version: Version,
    /// A file is closed after so many events, 1 or more.
    pub file_events: u32,
    /// Or at this size in bytes.
    pub file_bytes: u64,
    /// Or after this time.
    pub file_time: Duration,
    /// How far the events of a file have come that has its name.
    pub level: AcknowledgementLevel,
    /// How full the directory's file system may become; until it has no room left where this is none.
    pub room: Option<RoomLimits>,
    /// A disk that has done nothing but refuse for so long while the run drains is given up.
    pub give_up_after: Duration,
}
