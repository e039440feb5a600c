//! What is decided before a run, and the looks at the disk while it runs.
//!
//! Above the high water mark nothing more is taken, until there is room down to the low one. Closed segments are looked for
//! now and then, and all of them at the end: events of deleted ones do not count as written.

use super::segment::{Closed, Places, set_path};
use ropewalk_io::disk::{Disk, DiskCause, NewFile};
use ropewalk_terms::{AcknowledgementLevel, Instant, NodeId, StreamIndex, Utc};
use ropewalk_wire::run_file::{Compression, SourceEntry, StreamName};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How a builder unit writes.
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// Who writes.
    pub writer: NodeId,
    /// The time of day when the monotonic clock stood at zero.
    pub epoch: Utc,
    /// Where the run directory is.
    pub output: PathBuf,
    /// Directories on further disks, each with a run directory of the same name: segments go to all of them in turn.
    pub more_outputs: Vec<PathBuf>,
    /// A segment's checksum is written beside it when it is closed.
    pub checksums: bool,
    /// Closed segments are moved here, in the same file system: from each output, where this is no absolute path.
    pub hand_over: Option<PathBuf>,
    /// Closed segments are taken away on purpose, so that a missing one is no loss.
    pub taken_away: bool,
    /// How full a disk may become; `None`: until it has no room left.
    pub room: Option<RoomLimits>,
    /// The run's sources, for the segment header.
    pub sources: Vec<SourceEntry>,
    /// The streams, each in segments of its own, by their index: one at least, at most
    /// [`StreamIndex::MOST`](ropewalk_terms::StreamIndex::MOST).
    pub streams: Vec<StreamStorage>,
    /// What an acknowledgement promises, for the segment header.
    pub level: AcknowledgementLevel,
    /// Every batch is synced.
    pub sync_batches: bool,
    /// A segment is closed at this size in bytes.
    pub segment_bytes: u64,
    /// How many threads pack for each stream that is packed, at least one; [`StorageConfig::disk_threads`] are others.
    pub packing_threads: u8,
    /// While the disk is at work, this many bytes of a segment are gathered for its next piece:
    /// [`StorageConfig::BATCH_BYTES`], or less.
    pub batch_bytes: u64,
    /// Room for this many bytes is set aside when a segment is opened.
    pub preallocate: bool,
    /// Or after this many events.
    pub segment_events: u64,
    /// Or after this time.
    pub segment_time: Option<Duration>,
    /// Closed segments of all streams are kept up to this many bytes; the oldest go first.
    pub keep: Option<u64>,
    /// A disk that has done nothing but refuse for this long while the run drains is given up.
    pub give_up_after: Duration,
}

/// How a stream is written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StreamStorage {
    /// In the names of its segments; [`StreamName::UNNAMED`] where it is the only one.
    pub name: StreamName,
    /// Not every event is meant to come here: keys that are missing in it are no loss.
    pub selected: bool,
    /// How its segments are packed.
    pub compression: Compression,
    /// Where its run directories are: segments go to them in turn; to those of all streams if there are none.
    pub outputs: Vec<PathBuf>,
    /// Where its closed segments are moved to; `None`: where those of all streams are.
    pub hand_over: Option<PathBuf>,
}

impl StorageConfig {
    /// One stream without a name, in files of [`SEGMENT_BYTES`](Self::SEGMENT_BYTES) under `output`.
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

    /// Where a stream's run directories are, disk by disk, and where its closed segments are moved to.
    pub fn places_of<'a>(&'a self, stream: &'a StreamStorage) -> (Vec<&'a PathBuf>, Option<&'a PathBuf>) {
        let own: Vec<_> = stream.outputs.iter().collect();
        let outputs =
            if own.is_empty() { std::iter::once(&self.output).chain(&self.more_outputs).collect() } else { own };
        (outputs, stream.hand_over.as_ref().or(self.hand_over.as_ref()))
    }

    /// So much is worth one piece of work; staging has room for several of them.
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

    /// Bytes of all batches that may be on their way to the disk at once.
    pub fn batched_bytes(&self) -> u64 {
        let streams = (0..self.streams.len() as u8).map(StreamIndex);
        streams.map(|stream| self.batches(stream) as u64 * self.batch_bytes).sum()
    }

    /// Threads that the disk should have: one for what is written as it is, and one for each stream that is packed.
    pub fn disk_threads(&self) -> u8 {
        1 + self.streams.iter().filter(|stream| stream.compression != Compression::None).count() as u8
    }

    /// How a segment of a stream is begun, and which of these threads writes it.
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

/// How often the disk is asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// Room that is to stay free on each disk.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RoomLimits {
    /// With less free bytes than this nothing more is taken.
    pub least: u64,
    /// With so many free bytes it goes on.
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

    /// The free bytes that were set last; `None` if they are not known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&bytes| bytes != UNKNOWN)
    }
}

/// Whether there is room.
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

    /// Nothing more should be taken now.
    pub(crate) const fn is_short(&self) -> bool {
        self.is_short
    }

    /// Asks the disk, if it is time to. What cannot be asked is not short: writing will say what is wrong with it.
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

    /// When to ask the disk again, while writing waits for space.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.asked.filter(|_| self.is_short).map(|asked| asked.after(INTERVAL))
    }
}

/// Each is looked for so often, as long as there are few.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// And no more than this many in that time.
const MOST: usize = 20;

/// Looks for closed segments, one after the other.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The place of the file to look for next.
    next: usize,
    is_asked: bool,
    /// The next one is looked for then, while the run goes on.
    due: Instant,
    /// Every segment is closed, and from the first on they are looked for once more.
    is_last_round: bool,
    is_done: bool,
}

impl Watch {
    /// Whether every segment was looked for when all of them were closed.
    pub(super) const fn is_done(&self) -> bool {
        self.is_done
    }

    /// Asks for the next segment. `is_over` where no further one will be closed.
    pub(super) fn look(
        &mut self,
        now: Instant,
        disk: &mut impl Disk,
        closed: &VecDeque<(StreamIndex, Closed)>,
        (places, path): (&[Places], &mut PathBuf),
        is_over: bool,
    ) {
        if is_over != self.is_last_round {
            // One that is asked for is taken as the first of the new round.
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

    /// The disk has looked. Takes out what is not there.
    pub(super) fn looked(
        &mut self,
        cookie: u64,
        result: Result<(), DiskCause>,
        closed: &mut VecDeque<(StreamIndex, Closed)>,
    ) -> Option<(StreamIndex, Closed)> {
        self.is_asked = false;
        // The oldest ones may have been deleted meanwhile to stay within `keep`.
        let place = closed.iter().position(|(stream, segment)| segment_cookie(*stream, segment) == cookie)?;
        self.next = place + 1;
        if result != Err(DiskCause::NotFound) {
            return None;
        }
        self.next = place;
        closed.remove(place)
    }
}

/// Segments of each stream that may be deleted at once before writing waits for that.
const MOST_REMOVALS: usize = 2;

/// Segments that are being deleted, the oldest first.
#[derive(Debug)]
pub(super) struct Removals {
    under_way: VecDeque<(StreamIndex, Closed)>,
    bytes: u64,
    /// The disk refused to delete one: the next closed segment is the occasion to try again.
    is_refused: bool,
}

impl Removals {
    /// None; room for as many as there usually are at most.
    pub(super) fn new(streams: usize) -> Self {
        Self { under_way: VecDeque::with_capacity(2 * MOST_REMOVALS * streams), bytes: 0, is_refused: false }
    }

    /// Forgets those of the run before.
    pub(super) fn clear(&mut self) {
        self.under_way.clear();
        (self.bytes, self.is_refused) = (0, false);
    }

    /// Bytes of the segments.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether another segment may be deleted now.
    pub(super) const fn may_begin(&self) -> bool {
        !self.is_refused
    }

    /// Whether files come faster than they go, so that the disk would hold much more than it should.
    pub(super) fn are_behind(&self, streams: usize) -> bool {
        self.under_way.len() > MOST_REMOVALS * streams
    }

    /// Whether none is under way.
    pub(super) fn are_done(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The disk was asked to delete a segment.
    pub(super) fn begun(&mut self, stream: StreamIndex, segment: Closed) {
        self.bytes += segment.bytes;
        self.under_way.push_back((stream, segment));
    }

    /// The disk has deleted the segment with this number, or failed to; `None` for another answer.
    pub(super) fn ended(&mut self, cookie: u64) -> Option<(StreamIndex, Closed)> {
        let mut segments = self.under_way.iter();
        let place = segments.position(|(stream, segment)| segment_cookie(*stream, segment) == cookie)?;
        let (stream, segment) = self.under_way.remove(place)?;
        self.bytes -= segment.bytes;
        Some((stream, segment))
    }

    /// The disk refused to delete one.
    pub(super) const fn refused(&mut self) {
        self.is_refused = true;
    }

    /// Another segment was closed.
    pub(super) const fn try_again(&mut self) {
        self.is_refused = false;
    }
}

/// A number for a segment, among those of its writer.
pub(super) fn segment_cookie(stream: StreamIndex, segment: &Closed) -> u64 {
    u64::from(segment.name.run.0) << 40 | u64::from(stream.0) << 32 | u64::from(segment.name.segment)
}
