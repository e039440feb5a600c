//! One run file while it is written: what is gathered, what is with the disk, what comes next.

use super::copies::Ticket;
use super::{Acknowledgements, Progress, StorageConfig, StorageCounts, Tools};
use ropewalk_io::disk::{Disk, DiskCause, FileToken, NewFile};
use ropewalk_memory::Slice;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{AcknowledgementLevel, Instant, NodeId, RunNumber, StreamIndex};
use ropewalk_wire::run_file::{IndexEntry, OPEN_EXTENSION, SegmentIndex, SegmentName, StreamName, footer_bytes};
use std::collections::VecDeque;
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};

/// A segment that was closed.
#[derive(Copy, Clone, Debug)]
pub(super) struct Closed {
    pub(super) name: SegmentName,
    pub(super) bytes: u64,
    pub(super) events: u64,
}

/// Records that go to the disk together.
#[derive(Debug)]
struct Batch {
    data: Vec<Slice>,
    tickets: Vec<Ticket>,
    bytes: u64,
    /// When the disk was given it.
    given: Instant,
}

impl Batch {
    fn new() -> Self {
        Self { data: Vec::with_capacity(16_384), tickets: Vec::with_capacity(4096), bytes: 0, given: Instant::ZERO }
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Work {
    Append,
    Sync,
    Publish,
    /// Renamed.
    Closed,
}

/// Events in a segment at most: the index has room for so many and is never grown while data flow.
const INDEX_EVENTS: usize = 1 << 17;
/// Before the first file.
const NO_NAME: SegmentName =
    SegmentName { run: RunNumber(0), writer: NodeId::builder(0), stream: StreamName::UNNAMED, segment: 0 };
/// Longer paths than this have to grow once.
pub(super) const PATH_BYTES: usize = 1024;

/// Sets a path to that of a file in a directory, in the memory that it has.
pub(super) fn set_path(path: &mut PathBuf, directory: &Path, name: impl Display) {
    path.clear();
    path.push(directory);
    path.push("");
    // Writing into text cannot fail.
    let _ = write!(path.as_mut_os_string(), "{name}");
}

/// A run file while it is written. Used again for the next one, with its buffers.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    file: Option<FileToken>,
    /// The file could not be created: that is tried again before the next piece of work.
    uncreated: bool,
    name: SegmentName,
    path: PathBuf,
    /// While it is being written.
    open_path: PathBuf,
    how: NewFile,
    pub(super) index: SegmentIndex,
    length: u64,
    opened: Instant,
    gathered: Batch,
    /// Batches that are not written, the oldest first: so many of them as `with_disk` says are with the disk, and of these it has
    /// given the first `refused_batches` back. They end in this order.
    under_way: VecDeque<Batch>,
    /// How many of them there may be.
    batches: usize,
    with_disk: usize,
    refused_batches: usize,
    /// Written, and not synced yet.
    unsynced: Vec<Ticket>,
    spare: Vec<Batch>,
    work: Work,
    retry: Option<Instant>,
    /// Why the disk refuses this segment's work, and since when; none once it has done something again.
    refused: Option<(DiskCause, Instant)>,
    /// Somebody deleted the file, and it could not be written once more yet.
    is_deleted: bool,
    closing: bool,
}

impl SegmentWriter {
    /// What stands behind the events of the longest segment takes less: an end of run without text, and the footer.
    pub(super) const FOOTER_BYTES: usize = 4096 + footer_bytes(INDEX_EVENTS);

    /// Of which so many batches are with the disk at once.
    pub(super) fn new(batches: usize) -> Self {
        Self {
            file: None,
            uncreated: false,
            name: NO_NAME,
            path: PathBuf::with_capacity(PATH_BYTES),
            open_path: PathBuf::with_capacity(PATH_BYTES),
            how: NewFile::default(),
            index: SegmentIndex::with_capacity(INDEX_EVENTS),
            length: 0,
            opened: Instant::ZERO,
            gathered: Batch::new(),
            under_way: VecDeque::with_capacity(batches),
            batches,
            with_disk: 0,
            refused_batches: 0,
            unsynced: Vec::with_capacity(4096),
            spare: (0..batches).map(|_| Batch::new()).collect(),
            work: Work::Closed,
            retry: None,
            refused: None,
            is_deleted: false,
            closing: false,
        }
    }

    pub(super) fn open<D: Disk>(
        &mut self,
        tools: &mut Tools<D>,
        now: Instant,
        name: SegmentName,
        (stream, how): (StreamIndex, NewFile),
    ) {
        let places = &tools.places[usize::from(stream.0)];
        self.name = name;
        set_path(&mut self.path, places.closed(name.segment), name);
        let directory = places.open(name.segment);
        set_path(&mut self.open_path, directory, format_args!("{name}{OPEN_EXTENSION}"));
        self.how = how;
        self.create(&mut tools.disk);
        self.index.clear();
        self.length = 0;
        self.opened = now;
        self.work = Work::Append;
        (self.retry, self.refused, self.is_deleted) = (None, None, false);
        self.closing = false;
    }

    fn create(&mut self, disk: &mut impl Disk) {
        self.file = Some(disk.create(&self.open_path, self.how));
        self.uncreated = false;
    }

    /// Adds an event's record.
    pub(super) fn add(&mut self, ticket: Ticket, index: IndexEntry, length: u64, pieces: &mut Vec<Slice>) {
        let beside = 8 * u64::from(is_planted(Flaw::FooterOffsetsWrong));
        self.index.push(IndexEntry { offset: self.length + beside, ..index });
        self.gathered.tickets.push(ticket);
        self.add_bytes(length, pieces);
    }

    /// Adds other records.
    pub(super) fn add_bytes(&mut self, length: u64, pieces: &mut Vec<Slice>) {
        self.gathered.data.append(pieces);
        self.gathered.bytes += length;
        self.length += length;
    }

    /// Nothing more is added: when all is written, the file is renamed.
    pub(super) const fn close(&mut self) {
        self.closing = true;
    }

    /// The segment should be closed before another event.
    pub(super) fn is_due(&self, now: Instant, config: &StorageConfig) -> bool {
        let old = config.segment_time.is_some_and(|time| now.since(self.opened) >= time);
        let events = self.index.entries().len() as u64;
        self.length >= config.segment_bytes
            || events >= config.segment_events
            || self.index.is_full()
            || (old && events > 0)
    }

    /// Bytes that wait to be handed to the disk.
    pub(super) const fn gathered(&self) -> u64 {
        self.gathered.bytes
    }

    /// Events in this segment that the disk has not taken yet.
    pub(super) fn pending_events(&self) -> u64 {
        self.under_way.iter().chain([&self.gathered]).map(|batch| batch.tickets.len() as u64).sum()
    }

    /// Bytes of the segment, written or not.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn is_of(&self, file: FileToken) -> bool {
        self.file == Some(file)
    }

    /// The file could not be created, so that everything else with it is refused too.
    pub(super) fn not_created(&mut self, now: Instant, cause: DiskCause) {
        self.uncreated = true;
        self.refused.get_or_insert((cause, now)).0 = cause;
    }

    /// Why the disk refuses this segment's work, and since when.
    pub(super) const fn refusal(&self) -> Option<(DiskCause, Instant)> {
        self.refused
    }

    pub(super) const fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// Whether the disk has something of it to do.
    pub(super) fn is_writing(&self) -> bool {
        let is_alone_with_disk = matches!(self.work, Work::Sync | Work::Publish) && self.retry.is_none();
        self.with_disk > self.refused_batches || is_alone_with_disk
    }

    /// Gives the disk what it may have now. Appends end in their order, so that their ends need no number; a sync or the publication
    /// is alone with the disk.
    pub(super) fn flush(&mut self, disk: &mut impl Disk, now: Instant, config: &StorageConfig) {
        // Behind a refused batch the later ones come back as well; they are offered again together, in their order.
        if self.refused_batches > 0 || self.retry.is_some_and(|retry| now < retry) {
            return;
        }
        let is_retry = self.retry.take().is_some();
        if is_retry && self.uncreated {
            self.create(disk);
        }
        let Some(file) = self.file else { return };
        match self.work {
            Work::Append => self.append(file, disk, now, config),
            Work::Sync if is_retry => disk.sync(file, 0),
            Work::Publish if is_retry => disk.publish(file, &self.path, 0),
            Work::Sync | Work::Publish | Work::Closed => {}
        }
    }

    /// Hands batches over, or begins to publish what has ended.
    fn append(&mut self, file: FileToken, disk: &mut impl Disk, now: Instant, config: &StorageConfig) {
        let is_first = self.under_way.is_empty();
        // A sync says of one batch that it is safe. What is only gathered waits for more while the disk has something to do.
        let has_room = is_first || (!config.sync_batches && self.under_way.len() < self.batches);
        let is_worth_it = is_first || self.closing || self.gathered.bytes >= config.batch_bytes;
        if has_room
            && is_worth_it
            && self.gathered.bytes > 0
            && let Some(empty) = self.spare.pop()
        {
            self.under_way.push_back(std::mem::replace(&mut self.gathered, empty));
        }
        while let Some(batch) = self.under_way.get_mut(self.with_disk) {
            if disk.append(file, 0, &mut batch.data).is_err() {
                // The queue is full of other segments' work: at the next turn.
                self.retry = Some(now);
                return;
            }
            batch.given = now;
            self.with_disk += 1;
        }
        if self.closing && self.under_way.is_empty() && self.gathered.bytes == 0 {
            self.work = Work::Publish;
            disk.publish(file, &self.path, 0);
        }
    }

    /// The disk has done its oldest piece of work.
    pub(super) fn completed(
        &mut self,
        config: &StorageConfig,
        counts: &mut StorageCounts,
        acknowledgements: &mut Acknowledgements<'_>,
    ) {
        (self.refused, self.is_deleted) = (None, false);
        match self.work {
            Work::Append => self.appended(config, counts, acknowledgements),
            Work::Sync => {
                self.work = Work::Append;
                reached(&mut self.unsynced, AcknowledgementLevel::Synced, acknowledgements);
            }
            Work::Publish => self.work = Work::Closed,
            Work::Closed => {}
        }
    }

    /// The oldest batch is in the file.
    fn appended(
        &mut self,
        config: &StorageConfig,
        counts: &mut StorageCounts,
        acknowledgements: &mut Acknowledgements<'_>,
    ) {
        let Some(mut batch) = self.under_way.pop_front() else { return };
        self.with_disk -= 1;
        acknowledgements.wrote(batch.given);
        counts.bytes += batch.bytes;
        counts.events += batch.tickets.len() as u64;
        if is_planted(Flaw::LaterBatchAcknowledged)
            && let Some(later) = self.under_way.back_mut()
        {
            std::mem::swap(&mut later.tickets, &mut batch.tickets);
        }
        if config.sync_batches && !is_planted(Flaw::SyncedBeforeSync) {
            self.unsynced.append(&mut batch.tickets);
            self.work = Work::Sync;
            self.retry = Some(Instant::ZERO);
        } else {
            let is_mistaken = config.sync_batches;
            let level = if is_mistaken { AcknowledgementLevel::Synced } else { AcknowledgementLevel::Written };
            reached(&mut batch.tickets, level, acknowledgements);
        }
        batch.bytes = 0;
        self.spare.push(batch);
    }

    /// The disk refused its oldest piece of work and gave the data back: it is offered again at `retry`.
    pub(super) fn refused(&mut self, now: Instant, retry: Instant, cause: DiskCause, mut data: Vec<Slice>) {
        if self.work == Work::Append
            && let Some(batch) = self.under_way.get_mut(self.refused_batches)
        {
            batch.data.clear();
            if !is_planted(Flaw::RefusedBatchForgotten) {
                batch.data.append(&mut data);
            }
            self.refused_batches += 1;
            if self.refused_batches == self.with_disk {
                (self.refused_batches, self.with_disk) = (0, 0);
            }
        }
        self.is_deleted |= cause == DiskCause::Deleted;
        let known = self.refused.get_or_insert((cause, now));
        // Of a file that could not be created everything is refused as not open: why it could not be says more.
        if cause != DiskCause::NotOpen {
            known.0 = cause;
        }
        self.retry = Some(retry);
    }

    /// Gives up what the disk has not taken; its events have failed. Those that it had taken are gone with a file that somebody
    /// deleted. False while a piece of work is with the disk, of which it is not known yet how it ends.
    pub(super) fn give_up(&mut self, counts: &mut StorageCounts, acknowledgements: &mut Acknowledgements<'_>) -> bool {
        if self.with_disk > 0 || self.is_writing() {
            return false;
        }
        if self.is_deleted {
            let kept = self.pending_events() + self.unsynced.len() as u64;
            counts.gone_events += self.index.entries().len() as u64 - kept;
        }
        let mut failed = |tickets: &mut Vec<Ticket>| {
            tickets.drain(..).for_each(|ticket| acknowledgements.tell(ticket, Progress::Failed));
        };
        failed(&mut self.unsynced);
        for batch in self.under_way.iter_mut().chain([&mut self.gathered]) {
            batch.data.clear();
            batch.bytes = 0;
            failed(&mut batch.tickets);
        }
        self.spare.extend(self.under_way.drain(..));
        (self.file, self.uncreated, self.work) = (None, false, Work::Closed);
        true
    }

    /// What was closed, once.
    pub(super) fn take_closed(&mut self) -> Option<Closed> {
        if !self.closing || self.work != Work::Closed {
            return None;
        }
        self.file = None;
        let events = self.index.entries().len() as u64;
        Some(Closed { name: self.name, bytes: self.length, events })
    }
}

/// Events have come so far.
fn reached(tickets: &mut Vec<Ticket>, level: AcknowledgementLevel, acknowledgements: &mut Acknowledgements<'_>) {
    tickets.drain(..).for_each(|ticket| acknowledgements.tell(ticket, Progress::Reached(level)));
}
