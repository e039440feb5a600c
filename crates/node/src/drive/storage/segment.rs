//! One run file while it is written: what is gathered, what is with the disk, what comes next.

use super::copies::Ticket;
use super::{Acknowledgements, Progress, StorageConfig, StorageCounts, Tools};
use ropewalk_io::disk::{Disk, DiskCause, FileToken, NewFile};
use ropewalk_memory::Slice;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{AcknowledgementLevel, Instant, NodeId, RunNumber};
use ropewalk_wire::run_file::{IndexEntry, OPEN_EXTENSION, SegmentIndex, SegmentName, StreamName, footer_bytes};
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
#[derive(Debug, Default)]
struct Batch {
    data: Vec<Slice>,
    tickets: Vec<Ticket>,
    bytes: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Work {
    /// The disk has nothing of this segment.
    Idle,
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
    on_disk: Batch,
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

    pub(super) fn new() -> Self {
        let batch = || Batch { data: Vec::with_capacity(16_384), tickets: Vec::with_capacity(4096), bytes: 0 };
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
            gathered: batch(),
            on_disk: batch(),
            work: Work::Closed,
            retry: None,
            refused: None,
            is_deleted: false,
            closing: false,
        }
    }

    pub(super) fn open<D: Disk>(&mut self, tools: &mut Tools<D>, now: Instant, name: SegmentName, how: NewFile) {
        self.name = name;
        set_path(&mut self.path, tools.places.closed(name.segment), name);
        let directory = tools.places.open(name.segment);
        set_path(&mut self.open_path, directory, format_args!("{name}{OPEN_EXTENSION}"));
        self.how = how;
        self.create(&mut tools.disk);
        self.index.clear();
        self.length = 0;
        self.opened = now;
        self.work = Work::Idle;
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
        (self.gathered.tickets.len() + self.on_disk.tickets.len()) as u64
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

    /// Gives the disk its next piece of work: one at a time, so that its end needs no number.
    pub(super) fn flush(&mut self, disk: &mut impl Disk, now: Instant) {
        match self.retry {
            Some(retry) if now < retry => return,
            Some(_) => {
                self.retry = None;
                if self.uncreated {
                    self.create(disk);
                }
            }
            None if self.work != Work::Idle => return,
            None if self.gathered.bytes > 0 => {
                std::mem::swap(&mut self.gathered, &mut self.on_disk);
                self.work = Work::Append;
            }
            None if self.closing => self.work = Work::Publish,
            None => return,
        }
        let Some(file) = self.file else { return };
        match self.work {
            Work::Append => {
                if disk.append(file, 0, &mut self.on_disk.data).is_err() {
                    // The queue is full of other segments' work: at the next turn.
                    self.retry = Some(now);
                }
            }
            Work::Sync => disk.sync(file, 0),
            Work::Publish => disk.publish(file, &self.path, 0),
            Work::Idle | Work::Closed => {}
        }
    }

    /// The disk has done its piece of work.
    pub(super) fn completed(
        &mut self,
        config: &StorageConfig,
        counts: &mut StorageCounts,
        acknowledgements: &mut Acknowledgements<'_>,
    ) {
        (self.refused, self.is_deleted) = (None, false);
        let mut reached = |tickets: &mut Vec<Ticket>, level| {
            tickets.drain(..).for_each(|ticket| acknowledgements.tell(ticket, Progress::Reached(level)));
        };
        match self.work {
            Work::Append => {
                counts.bytes += self.on_disk.bytes;
                counts.events += self.on_disk.tickets.len() as u64;
                self.on_disk.bytes = 0;
                if config.sync_batches && !is_planted(Flaw::SyncedBeforeSync) {
                    self.work = Work::Sync;
                    self.retry = Some(Instant::ZERO);
                } else {
                    self.work = Work::Idle;
                    let is_mistaken = config.sync_batches;
                    let level = if is_mistaken { AcknowledgementLevel::Synced } else { AcknowledgementLevel::Written };
                    reached(&mut self.on_disk.tickets, level);
                }
            }
            Work::Sync => {
                self.work = Work::Idle;
                reached(&mut self.on_disk.tickets, AcknowledgementLevel::Synced);
            }
            Work::Publish => self.work = Work::Closed,
            Work::Idle | Work::Closed => {}
        }
    }

    /// The disk refused its piece of work and gave the data back: it is offered again at `retry`.
    pub(super) fn refused(&mut self, now: Instant, retry: Instant, cause: DiskCause, mut data: Vec<Slice>) {
        if self.work == Work::Append {
            self.on_disk.data.clear();
            if !is_planted(Flaw::RefusedBatchForgotten) {
                self.on_disk.data.append(&mut data);
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
        if self.work != Work::Idle && self.retry.is_none() {
            return false;
        }
        if self.is_deleted {
            counts.gone_events += self.index.entries().len() as u64 - self.pending_events();
        }
        for batch in [&mut self.on_disk, &mut self.gathered] {
            batch.data.clear();
            batch.bytes = 0;
            batch.tickets.drain(..).for_each(|ticket| acknowledgements.tell(ticket, Progress::Failed));
        }
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
