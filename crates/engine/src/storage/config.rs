//! Configuration of storage before a run, and the checks of the disk while it runs.
//!
//! Above the high water mark no events are accepted, until there is room down to the low one. The existence of closed
//! segments is checked periodically, and of all of them at the end: events of deleted ones do not count as written.

use super::segment::{Closed, Places, set_path};
use ropewalk_io::disk::{Disk, DiskCause, NewFile};
use ropewalk_terms::{AcknowledgementLevel, Instant, NodeId, StreamIndex, Utc};
use ropewalk_wire::run_file::{Compression, SourceEntry, StreamName};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Configuration of a builder unit's storage.
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// The node that writes.
    pub writer: NodeId,
    /// Time of day at zero of the monotonic clock.
    pub epoch: Utc,
    /// Parent of the run directory.
    pub output: PathBuf,
    /// Directories on further disks, each with a run directory of the same name. Segments are distributed to all of
    /// them in turn.
    pub more_outputs: Vec<PathBuf>,
    /// Whether a segment's checksum is written beside it when it is closed.
    pub checksums: bool,
    /// Directory to which closed segments are moved, in the same file system. A relative path is relative to each
    /// output.
    pub hand_over: Option<PathBuf>,
    /// Whether closed segments are removed on purpose by others, so that a missing one is no loss.
    pub taken_away: bool,
    /// Limits on the use of a disk; `None`: until it has no room left.
    pub room: Option<RoomLimits>,
    /// The run's sources, for the segment header.
    pub sources: Vec<SourceEntry>,
    /// The streams by their index, each in segments of its own: at least one, at most
    /// [`StreamIndex::MOST`](ropewalk_terms::StreamIndex::MOST).
    pub streams: Vec<StreamStorage>,
    /// The guarantee of an acknowledgement, for the segment header.
    pub level: AcknowledgementLevel,
    /// Whether every batch is synced.
    pub sync_batches: bool,
    /// Size in bytes at which a segment is closed.
    pub segment_bytes: u64,
    /// Number of compression threads for each compressed stream, at least one, in addition to
    /// [`StorageConfig::disk_threads`].
    pub packing_threads: u8,
    /// Number of bytes of a segment that are gathered for its next write while the disk is busy:
    /// [`StorageConfig::BATCH_BYTES`], or less.
    pub batch_bytes: u64,
    /// Whether space for `segment_bytes` is reserved when a segment is opened.
    pub preallocate: bool,
    /// Number of events after which a segment is closed.
    pub segment_events: u64,
    /// Time after which a segment is closed.
    pub segment_time: Option<Duration>,
    /// Total bytes of closed segments of all streams that are kept. The oldest are deleted first.
    pub keep: Option<u64>,
    /// Time after which a disk that rejects everything is given up while the run drains.
    pub give_up_after: Duration,
}

/// Configuration of a stream's files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamStorage {
    /// Its name in the names of its segments; [`StreamName::UNNAMED`] if it is the only one.
    pub name: StreamName,
    /// Whether only selected events go to this stream: keys that are missing in it are no loss.
    pub selected: bool,
    /// Compression of its segments.
    pub compression: Compression,
    /// Parents of its run directories. Segments are distributed to them in turn; if empty, to those of all streams.
    pub outputs: Vec<PathBuf>,
    /// Directory to which its closed segments are moved; `None`: that of all streams.
    pub hand_over: Option<PathBuf>,
}

impl StorageConfig {
    /// Creates a configuration with one stream without a name, in files of [`SEGMENT_BYTES`](Self::SEGMENT_BYTES) under
    /// `output`.
    pub fn new(writer: NodeId, output: impl Into<PathBuf>) -> Self {
        Self {
            writer,
            epoch: Utc(0),
            output: output.into(),
            more_outputs: Vec::new(),
            checksums: false,
            hand_over: None,
            taken_away: false,
            room: None,
            sources: Vec::new(),
            streams: vec![StreamStorage::default()],
            level: AcknowledgementLevel::Written,
            sync_batches: false,
            segment_bytes: Self::SEGMENT_BYTES,
            packing_threads: 1,
            batch_bytes: Self::BATCH_BYTES,
            preallocate: false,
            segment_events: u64::MAX,
            segment_time: None,
            keep: None,
            give_up_after: Duration::from_secs(5),
        }
    }

    /// The default size in bytes at which a segment is closed.
    pub const SEGMENT_BYTES: u64 = 512 << 20;

    /// Returns a stream's run directories, disk by disk, and the directory to which its closed segments are moved.
    pub fn places_of<'a>(&'a self, stream: &'a StreamStorage) -> (Vec<&'a PathBuf>, Option<&'a PathBuf>) {
        let own: Vec<_> = stream.outputs.iter().collect();
        let outputs =
            if own.is_empty() { std::iter::once(&self.output).chain(&self.more_outputs).collect() } else { own };
        (outputs, stream.hand_over.as_ref().or(self.hand_over.as_ref()))
    }

    /// Size of a write operation that is worthwhile. Staging has room for several of them.
    pub const BATCH_BYTES: u64 = 4 << 20;

    /// Batches of a stream's segment in use by the disk: one being written, the next one and one behind it, so that the
    /// disk need not wait for the gathering thread. With compression: two per compressing thread, and two being
    /// written.
    pub(super) fn batches(&self, stream: StreamIndex) -> usize {
        match self.streams[usize::from(stream.0)].compression {
            Compression::None => 3,
            _ => 2 + 2 * usize::from(self.packing_threads),
        }
    }

    /// Returns the bytes of all batches that may be with the disk at once.
    pub fn batched_bytes(&self) -> u64 {
        let streams = (0..self.streams.len() as u8).map(StreamIndex);
        streams.map(|stream| self.batches(stream) as u64 * self.batch_bytes).sum()
    }

    /// Returns the number of threads that the disk should have: one for uncompressed data, and one for each compressed
    /// stream.
    pub fn disk_threads(&self) -> u8 {
        1 + self.streams.iter().filter(|stream| stream.compression != Compression::None).count() as u8
    }

    /// Returns how a segment of a stream is opened, and which of these threads writes it.
    pub(super) fn new_file(&self, stream: StreamIndex) -> NewFile {
        let packed = |stream: &StreamStorage| stream.compression != Compression::None;
        let stream = usize::from(stream.0);
        let compression = self.streams[stream].compression;
        let before = self.streams[..stream].iter().filter(|stream| packed(stream)).count() as u8;
        let preallocate = if self.preallocate { self.segment_bytes } else { 0 };
        NewFile {
            preallocate,
            checksum: self.checksums,
            seals: true,
            compression,
            thread: if compression == Compression::None { 0 } else { 1 + before },
        }
    }
}

/// Interval of the queries of the disk.
const INTERVAL: Duration = Duration::from_secs(1);

/// Space that is to stay free on each disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RoomLimits {
    /// Free bytes below which no events are accepted.
    pub least: u64,
    /// Free bytes at which events are accepted again.
    pub resume: u64,
}

/// The free space where a builder unit writes, for its reports. It is set by the disk thread, which may wait for the
/// disk's answer.
#[derive(Clone, Debug)]
pub struct OutputRoom(Arc<AtomicU64>);

/// The free space is not known.
const UNKNOWN: u64 = u64::MAX;

impl Default for OutputRoom {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(UNKNOWN)))
    }
}

impl OutputRoom {
    /// Sets the free bytes; `None` if they are not known.
    pub fn tell(&self, free: Option<u64>) {
        self.0.store(free.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Returns the free bytes that were set last; `None` if they are not known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&bytes| bytes != UNKNOWN)
    }
}

/// Whether the disk has enough space.
#[derive(Debug, Default)]
pub(crate) struct Room {
    limits: Option<RoomLimits>,
    asked: Option<Instant>,
    is_short: bool,
}

impl Room {
    pub(crate) fn new(limits: Option<RoomLimits>) -> Self {
        Self { limits, asked: None, is_short: false }
    }

    /// Returns whether no events should be accepted now.
    pub(crate) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Queries the disk, if it is time to. A failed query does not count as a shortage: writing will report the
    /// problem.
    pub(crate) fn look<'a>(&mut self, now: Instant, disk: &mut impl Disk, directories: impl Iterator<Item = &'a Path>) {
        let Some(RoomLimits { least, resume }) = self.limits else { return };
        if self.asked.is_some_and(|asked| now < asked.after(INTERVAL)) {
            return;
        }
        self.asked = Some(now);
        let wanted = if self.is_short { resume.max(least) } else { least };
        let mut free = directories.filter_map(|directory| disk.free_bytes(directory).ok());
        self.is_short = free.any(|free| free < wanted);
    }

    /// Returns when to query the disk again, while writing waits for space.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.asked.filter(|_| self.is_short).map(|asked| asked.after(INTERVAL))
    }
}

/// Interval between two checks of the same file, if there are few.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of checks within that interval.
const MOST: usize = 20;

/// Checks the existence of closed segments, one after the other.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Place of the file to check next.
    next: usize,
    is_asked: bool,
    /// When the next one is checked, while the run continues.
    due: Instant,
    /// Whether all segments are closed and are being checked a last time from the first on.
    is_last_round: bool,
    is_done: bool,
}

impl Watch {
    /// Returns whether all segments were checked after all of them were closed.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Starts the check of the next segment. `is_over` means that no further segment will be closed.
    pub(super) fn look(
        &mut self,
        now: Instant,
        disk: &mut impl Disk,
        closed: &VecDeque<(StreamIndex, Closed)>,
        (places, path): (&[Places], &mut PathBuf),
        is_over: bool,
    ) {
        if is_over != self.is_last_round {
            // A check in progress counts as the first of the new round.
            *self = Self { next: 0, is_asked: self.is_asked, is_last_round: is_over, ..Self::default() };
        }
        if self.is_asked || self.is_done || !is_over && now < self.due {
            return;
        }
        if self.next >= closed.len() {
            (self.next, self.is_done) = (0, is_over);
        }
        let Some((stream, segment)) = closed.get(self.next).filter(|_| !self.is_done) else { return };
        set_path(path, places[usize::from(stream.0)].closed(segment.name.segment), segment.name);
        disk.look_for(path, segment_cookie(*stream, segment));
        self.is_asked = true;
        self.due = now.after(LOOK_INTERVAL / closed.len().clamp(1, MOST) as u32);
    }

    /// Handles the result of a check. Takes out a missing segment.
    pub(super) fn looked(
        &mut self,
        cookie: u64,
        result: Result<(), DiskCause>,
        closed: &mut VecDeque<(StreamIndex, Closed)>,
    ) -> Option<(StreamIndex, Closed)> {
        self.is_asked = false;
        // The oldest segments may have been deleted meanwhile to stay within `keep`.
        let place = closed.iter().position(|(stream, segment)| segment_cookie(*stream, segment) == cookie)?;
        self.next = place + 1;
        if result != Err(DiskCause::NotFound) {
            return None;
        }
        self.next = place;
        closed.remove(place)
    }
}

/// Segments of each stream that may be in deletion before writing waits.
const MOST_REMOVALS: usize = 2;

/// Segments that are being deleted, the oldest first.
#[derive(Debug)]
pub(super) struct Removals {
    under_way: VecDeque<(StreamIndex, Closed)>,
    bytes: u64,
    /// Whether the disk rejected a deletion. It is retried when the next segment is closed.
    is_refused: bool,
}

impl Removals {
    /// Creates an empty list with the usual maximum capacity.
    pub(super) fn new(streams: usize) -> Self {
        Self { under_way: VecDeque::with_capacity(2 * MOST_REMOVALS * streams), bytes: 0, is_refused: false }
    }

    /// Clears the list for a new run.
    pub(super) fn clear(&mut self) {
        self.under_way.clear();
        (self.bytes, self.is_refused) = (0, false);
    }

    /// Returns the total size of the segments.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether another deletion may begin now.
    pub(super) const fn may_begin(&self) -> bool {
        !self.is_refused
    }

    /// Returns whether files are written faster than deleted, so that the disk would hold much more than allowed.
    pub(super) fn are_behind(&self, streams: usize) -> bool {
        self.under_way.len() > MOST_REMOVALS * streams
    }

    /// Returns whether no deletion is in progress.
    pub(super) fn are_done(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Records that the disk was asked to delete a segment.
    pub(super) fn begun(&mut self, stream: StreamIndex, segment: Closed) {
        self.bytes += segment.bytes;
        self.under_way.push_back((stream, segment));
    }

    /// Handles the end of the deletion with this number, successful or not. `None` if the number is of another
    /// operation.
    pub(super) fn ended(&mut self, cookie: u64) -> Option<(StreamIndex, Closed)> {
        let mut segments = self.under_way.iter();
        let place = segments.position(|(stream, segment)| segment_cookie(*stream, segment) == cookie)?;
        let (stream, segment) = self.under_way.remove(place)?;
        self.bytes -= segment.bytes;
        Some((stream, segment))
    }

    /// Records that the disk rejected a deletion.
    pub(super) const fn refused(&mut self) {
        self.is_refused = true;
    }

    /// Allows a retry after another segment was closed.
    pub(super) const fn try_again(&mut self) {
        self.is_refused = false;
    }
}

/// Returns a number that identifies a segment among those of its writer.
pub(super) fn segment_cookie(stream: StreamIndex, segment: &Closed) -> u64 {
    u64::from(segment.name.run.0) << 40 | u64::from(stream.0) << 32 | u64::from(segment.name.segment)
}
