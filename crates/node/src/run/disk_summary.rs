//! Disk errors, free space and deleted run files: `disk` and `deleted` of an account.

use super::forecast::DiskLeft;
use ropewalk_terms::{Cause, Counter};
use schemars::JsonSchema;
use serde::Serialize;

/// Write errors, all of which were tried again, and free space.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, JsonSchema)]
pub struct DiskSummary {
    /// Events that were written, in run files that were deleted: closed ones, and open ones that could not be written
    /// once more. They are lost.
    pub events_gone: u64,
    /// Builder units or gateways whose disk fails for another reason than lack of space.
    pub failing: Vec<FailingDisk>,
    /// Run files that were deleted or moved while they were written, and that were written once more.
    pub files_restored: u64,
    /// Free bytes above `least_free` on the disk of this process that is full first; null without a disk.
    pub free_bytes: Option<u64>,
    /// Failed operations, for lack of space or another reason.
    pub refusals: u64,
    /// Seconds until the disk is full at the rate of the last minute; null if it is not filling, or the run was short.
    pub seconds_left: Option<u64>,
}

/// A disk that fails.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct FailingDisk {
    /// The error message of the operating system.
    pub error: String,
    /// The builder unit or gateway.
    pub node: String,
}

/// Run files deleted to stay within `keep`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub struct DeletedSummary {
    /// Bytes in the run files.
    pub bytes: u64,
    /// Why they were deleted.
    #[schemars(extend("const" = Cause::KeptNewest.name()))]
    pub cause: &'static str,
    /// Events in them.
    pub events: u64,
    /// Run files.
    pub segments: u64,
}

/// The error message of a disk.
pub fn disk_error(number: i32) -> String {
    std::io::Error::from_raw_os_error(number).to_string()
}

impl DiskSummary {
    /// From the sums of counters, and the numbers of the errors of disks that fail, by the name of the node.
    pub(super) fn new(sum: impl Fn(Counter) -> u64, failing: impl Iterator<Item = (String, i32)>) -> Self {
        Self {
            events_gone: sum(Counter::EventsGone),
            failing: failing.map(|(node, error)| FailingDisk::new(node, error)).collect(),
            files_restored: sum(Counter::FilesRestored),
            free_bytes: None,
            refusals: sum(Counter::DiskRefusals),
            seconds_left: None,
        }
    }

    /// The same with the free space of the disks of this process.
    #[must_use]
    pub(super) fn with_left(self, left: Option<DiskLeft>) -> Self {
        let seconds_left = left.and_then(|left| left.time).map(|time| time.as_secs());
        Self { free_bytes: left.map(|left| left.free_bytes), seconds_left, ..self }
    }
}

impl FailingDisk {
    pub(super) fn new(node: String, error: i32) -> Self {
        Self { error: disk_error(error), node }
    }
}

impl DeletedSummary {
    /// From the sums of counters.
    pub(super) fn new(sum: impl Fn(Counter) -> u64) -> Self {
        Self {
            bytes: sum(Counter::BytesDeleted),
            cause: Cause::KeptNewest.name(),
            events: sum(Counter::EventsDeleted),
            segments: sum(Counter::SegmentsDeleted),
        }
    }
}
