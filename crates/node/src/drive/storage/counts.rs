//! What storage tells of its work.

use ropewalk_io::disk::DiskCause;
use std::ops::AddAssign;

/// What was written and deleted: of one stream, or of all together.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StorageCounts {
    /// Event records that the disk has taken. An event has one in each of its streams.
    pub events: u64,
    /// Bytes that the disk has taken, counted before they are packed.
    pub bytes: u64,
    /// Segments closed and renamed.
    pub segments: u64,
    /// Segments deleted to stay within `keep`.
    pub deleted_segments: u64,
    /// Event records in them.
    pub deleted_events: u64,
    /// Bytes in them.
    pub deleted_bytes: u64,
    /// Event records that the disk had taken, in files that were deleted and that could not be written once more.
    pub gone_events: u64,
    /// Files that were deleted or moved while they were written, and that were written once more.
    pub restored_files: u64,
    /// Pieces of work that the disk refused; each is offered again.
    pub refusals: u64,
    /// Why the disk refuses what is offered now, or that it is fuller than it should be; none where it does its work.
    pub refused: Option<DiskCause>,
}

impl AddAssign for StorageCounts {
    fn add_assign(&mut self, other: Self) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.segments += other.segments;
        self.deleted_segments += other.deleted_segments;
        self.deleted_events += other.deleted_events;
        self.deleted_bytes += other.deleted_bytes;
        self.gone_events += other.gone_events;
        self.restored_files += other.restored_files;
        self.refusals += other.refusals;
        self.refused = self.refused.or(other.refused);
    }
}
