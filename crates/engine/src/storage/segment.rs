//! The segments of one stream, one after the other: while one is filled, others are being closed. They are distributed
//! over several disks in turn.
//!
//! A segment is one run file while it is written: its gathered data, the data that is with the disk, and its next
//! operation.

use super::{Acknowledgements, Progress, StorageConfig, StorageCounts, StreamStorage, Ticket, Tools};
use crate::record::stage;
use ropewalk_io::disk::{Disk, DiskCause, FileToken, NewFile};
use ropewalk_memory::Slice;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{AcknowledgementLevel, EventKey, Incarnation, Instant, NodeId, RunNumber, StreamIndex};
use ropewalk_wire::run_file::{
    BeginOfRun, EndOfRun, IndexEntry, MINOR_VERSION, OPEN_EXTENSION, SegmentHeader, SegmentIndex, SegmentName,
    StreamName, footer_bytes, run_directory_name,
};
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

/// Records that are written to the disk together.
#[derive(Debug)]
struct Batch {
    data: Vec<Slice>,
    tickets: Vec<Ticket>,
    bytes: u64,
}

impl Batch {
    fn new() -> Self {
        Self { data: Vec::with_capacity(16_384), tickets: Vec::with_capacity(4096), bytes: 0 }
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

/// Maximum number of events in a segment. The index has this capacity and never grows during data taking.
const INDEX_EVENTS: usize = 1 << 17;
/// Name before the first file.
const NO_NAME: SegmentName =
    SegmentName { run: RunNumber(0), writer: NodeId::builder(0), stream: StreamName::UNNAMED, segment: 0 };
/// Initial capacity of paths. Longer ones have to grow once.
pub(super) const PATH_BYTES: usize = 1024;

/// Sets a path to that of a file in a directory, reusing its memory.
pub(super) fn set_path(path: &mut PathBuf, directory: &Path, name: impl Display) {
    path.clear();
    path.push(directory);
    path.push("");
    // Writing into text cannot fail.
    let _ = write!(path.as_mut_os_string(), "{name}");
}

/// A run file while it is written. It is reused, with its buffers, for the next one.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    file: Option<FileToken>,
    /// Whether the file could not be created. That is retried before the next operation.
    uncreated: bool,
    name: SegmentName,
    path: PathBuf,
    /// Path while it is being written.
    open_path: PathBuf,
    how: NewFile,
    pub(super) index: SegmentIndex,
    length: u64,
    opened: Instant,
    gathered: Batch,
    /// Batches whose events are not acknowledged, the oldest first. The first `with_disk` of them are with the disk,
    /// and the disk has returned the first `refused_batches` of these. They complete in this order. During a sync the
    /// first one is in the file.
    under_way: VecDeque<Batch>,
    /// Maximum number of these batches.
    batches: usize,
    with_disk: usize,
    refused_batches: usize,
    spare: Vec<Batch>,
    work: Work,
    retry: Option<Instant>,
    /// Why the disk rejects this segment's operations, and since when; `None` once it works again.
    refused: Option<(DiskCause, Instant)>,
    /// Whether another program deleted the file, and it could not be rewritten yet.
    is_deleted: bool,
    closing: bool,
}

impl SegmentWriter {
    /// Upper limit of the end of a segment after its events: an end of run without text, and the footer of the longest
    /// segment.
    pub(super) const FOOTER_BYTES: usize = 4096 + footer_bytes(INDEX_EVENTS);

    /// Creates a writer of which this many batches may be with the disk at once.
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

    /// Closes the segment: when all is written, the file is renamed.
    pub(super) const fn close(&mut self) {
        self.closing = true;
    }

    /// Returns whether the segment should be closed before another event.
    pub(super) fn is_due(&self, now: Instant, config: &StorageConfig) -> bool {
        let old = config.segment_time.is_some_and(|time| now.since(self.opened) >= time);
        let events = self.index.entries().len() as u64;
        self.length >= config.segment_bytes
            || events >= config.segment_events
            || self.index.is_full()
            || (old && events > 0)
    }

    /// Returns the bytes that wait to be handed to the disk.
    pub(super) const fn gathered(&self) -> u64 {
        self.gathered.bytes
    }

    /// Returns the number of events in this segment that are not yet on disk.
    pub(super) fn pending_events(&self) -> u64 {
        let written = usize::from(self.work == Work::Sync);
        self.under_way.iter().skip(written).chain([&self.gathered]).map(|batch| batch.tickets.len() as u64).sum()
    }

    /// Returns the length of the segment in bytes, including unwritten data.
    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    fn is_of(&self, file: FileToken) -> bool {
        self.file == Some(file)
    }

    /// Records that the file could not be created. All its other operations are then rejected too.
    pub(super) fn not_created(&mut self, now: Instant, cause: DiskCause) {
        self.uncreated = true;
        self.refused.get_or_insert((cause, now)).0 = cause;
    }

    /// Returns why the disk rejects this segment's operations, and since when.
    pub(super) const fn refusal(&self) -> Option<(DiskCause, Instant)> {
        self.refused
    }

    pub(super) const fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// Returns whether the disk has work to do for it.
    pub(super) fn is_writing(&self) -> bool {
        let is_alone_with_disk = matches!(self.work, Work::Sync | Work::Publish) && self.retry.is_none();
        self.with_disk > self.refused_batches || is_alone_with_disk
    }

    /// Gives the disk its next operations. Appends complete in order, so that they need no number. A sync or the
    /// publication is the only operation with the disk.
    pub(super) fn flush(&mut self, disk: &mut impl Disk, now: Instant, config: &StorageConfig) {
        // After a rejected batch the later ones are returned as well. All are retried together, in order.
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

    /// Hands batches over, or begins the publication of a finished segment.
    fn append(&mut self, file: FileToken, disk: &mut impl Disk, now: Instant, config: &StorageConfig) {
        let is_first = self.under_way.is_empty();
        // A sync confirms one batch. Gathered data waits for more while the disk has work to do.
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
                // The queue is full of other segments' operations. Retried at the next turn.
                self.retry = Some(now);
                return;
            }
            self.with_disk += 1;
        }
        if self.closing && self.under_way.is_empty() && self.gathered.bytes == 0 {
            self.work = Work::Publish;
            disk.publish(file, &self.path, 0);
        }
    }

    /// Handles the completion of the oldest operation.
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
                self.acknowledge(AcknowledgementLevel::Synced, acknowledgements);
            }
            Work::Publish => self.work = Work::Closed,
            Work::Closed => {}
        }
    }

    /// Handles the completed append of the oldest batch.
    fn appended(
        &mut self,
        config: &StorageConfig,
        counts: &mut StorageCounts,
        acknowledgements: &mut Acknowledgements<'_>,
    ) {
        let Some(batch) = self.under_way.front() else { return };
        self.with_disk -= 1;
        counts.bytes += batch.bytes;
        counts.events += batch.tickets.len() as u64;
        if config.sync_batches && !is_planted(Flaw::SyncedBeforeSync) {
            self.work = Work::Sync;
            self.retry = Some(Instant::ZERO);
        } else {
            let is_mistaken = config.sync_batches;
            let level = if is_mistaken { AcknowledgementLevel::Synced } else { AcknowledgementLevel::Written };
            self.acknowledge(level, acknowledgements);
        }
    }

    /// Acknowledges the events of the oldest batch at this level.
    fn acknowledge(&mut self, level: AcknowledgementLevel, acknowledgements: &mut Acknowledgements<'_>) {
        let Some(mut batch) = self.under_way.pop_front() else { return };
        batch.tickets.drain(..).for_each(|ticket| acknowledgements.tell(ticket, Progress::Reached(level)));
        batch.bytes = 0;
        self.spare.push(batch);
    }

    /// Handles the rejection of the oldest operation, whose data was returned. It is retried at `retry`.
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
        // All operations on a file that could not be created are rejected as not open. The cause of the failed creation
        // is more informative.
        if cause != DiskCause::NotOpen {
            known.0 = cause;
        }
        self.retry = Some(retry);
    }

    /// Gives up the data that is not on disk; its events have failed. Data that was written is lost with the deleted
    /// file. Returns false while the result of a disk operation is outstanding.
    pub(super) fn give_up(&mut self, counts: &mut StorageCounts, acknowledgements: &mut Acknowledgements<'_>) -> bool {
        if self.with_disk > 0 || self.is_writing() {
            return false;
        }
        let mut failed = 0;
        for batch in self.under_way.iter_mut().chain([&mut self.gathered]) {
            batch.data.clear();
            batch.bytes = 0;
            failed += batch.tickets.len();
            batch.tickets.drain(..).for_each(|ticket| acknowledgements.tell(ticket, Progress::Failed));
        }
        if self.is_deleted {
            counts.gone_events += (self.index.entries().len() - failed) as u64;
        }
        self.spare.extend(self.under_way.drain(..));
        (self.file, self.uncreated, self.work) = (None, false, Work::Closed);
        true
    }

    /// Returns the closed segment, once.
    pub(super) fn take_closed(&mut self) -> Option<Closed> {
        if !self.closing || self.work != Work::Closed {
            return None;
        }
        self.file = None;
        let events = self.index.entries().len() as u64;
        Some(Closed { name: self.name, bytes: self.length, events })
    }
}

/// The segments of one stream.
#[derive(Debug)]
pub(super) struct Series {
    /// Header of the newest segment.
    header: SegmentHeader,
    /// Index of the stream.
    index: StreamIndex,
    /// How a segment's file is opened.
    how: NewFile,
    current: Option<SegmentWriter>,
    closing: VecDeque<SegmentWriter>,
    spare: Vec<SegmentWriter>,
    last: Option<EventKey>,
    finishing: bool,
    ended: bool,
    pub(super) counts: StorageCounts,
}

impl Series {
    pub(super) fn new(config: &StorageConfig, index: StreamIndex) -> Self {
        let stream = &config.streams[usize::from(index.0)];
        let header = SegmentHeader {
            run: ropewalk_terms::RunNumber(0),
            segment: 0,
            writer: config.writer,
            incarnation: Incarnation(0),
            start: config.epoch,
            acknowledgement: config.level,
            minor: MINOR_VERSION,
            stream: stream.name,
            selected: stream.selected,
            sources: config.sources.clone(),
        };
        Self {
            header,
            index,
            how: config.new_file(index),
            current: None,
            closing: VecDeque::with_capacity(2),
            spare: (0..2).map(|_| SegmentWriter::new(config.batches(index))).collect(),
            last: None,
            finishing: false,
            ended: false,
            counts: StorageCounts::default(),
        }
    }

    /// Begins the run in this incarnation of the node. Segments are numbered after those in `names`, which an earlier
    /// incarnation wrote.
    pub(super) fn begin<D: Disk>(&mut self, tools: &Tools<D>, incarnation: Incarnation, names: &[String]) {
        let header = &mut self.header;
        (header.run, header.incarnation) = (tools.run, incarnation);
        let highest = (names.iter())
            .filter_map(|name| name.strip_suffix(OPEN_EXTENSION).unwrap_or(name).parse::<SegmentName>().ok())
            .filter(|name| (name.writer, name.stream) == (header.writer, header.stream))
            .map(|name| name.segment)
            .max();
        header.segment = highest.unwrap_or(0);
        (self.finishing, self.ended) = (false, false);
    }

    /// Makes sure that there is a segment with room.
    pub(super) fn ready<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) -> bool {
        if let Some(segment) = &self.current {
            if !segment.is_due(now, &tools.config) {
                return segment.gathered() < tools.config.batch_bytes;
            }
            if !self.close_current(now, tools) {
                return false;
            }
        }
        self.open(now, tools)
    }

    /// Adds an event's record to the segment that [`Series::ready`] provided.
    pub(super) fn add(
        &mut self,
        ticket: Ticket,
        key: EventKey,
        index: IndexEntry,
        length: u64,
        pieces: &mut Vec<Slice>,
    ) {
        let Some(segment) = &mut self.current else { return pieces.clear() };
        segment.add(ticket, index, length, pieces);
        // Another event manager continues a run that had ended. It ends once more, after this event.
        (self.finishing, self.ended) = (false, false);
        self.last = self.last.max(Some(key));
    }

    /// Adds a record other than an event.
    pub(super) fn add_bytes(&mut self, length: u64, pieces: &mut Vec<Slice>) {
        match &mut self.current {
            Some(segment) => segment.add_bytes(length, pieces),
            None => pieces.clear(),
        }
    }

    fn open<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) -> bool {
        let Some(mut segment) = self.spare.pop() else { return false };
        let SegmentHeader { run, writer, stream, segment: before, .. } = self.header;
        let name = SegmentName { run, writer, stream, segment: before + 1 };
        (self.header.segment, self.header.start) = (name.segment, tools.utc(now));
        let begin = BeginOfRun { run, start: tools.started, text: String::new() };
        tools.frame.clear();
        let encoded = self.header.encode(&mut tools.frame).and_then(|()| begin.encode(&mut tools.frame));
        if encoded.is_err() || !stage(&mut tools.staging, &tools.frame, &mut tools.pieces) {
            tools.pieces.clear();
            self.header.segment = before;
            self.spare.push(segment);
            return false;
        }
        segment.open(tools, now, name, (self.index, self.how));
        segment.add_bytes(tools.frame.len() as u64, &mut tools.pieces);
        self.current = Some(segment);
        true
    }

    /// Appends end-of-run (at the end) and footer to the last record. Returns false if there is no room for them yet.
    fn close_current<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) -> bool {
        let utc = tools.utc(now);
        let Some(segment) = &mut self.current else { return true };
        tools.frame.clear();
        let mut encoded = Ok(());
        if self.finishing {
            let events = self.counts.events + segment.pending_events();
            let end = EndOfRun { run: tools.run, end: utc, last: self.last, events, text: String::new() };
            encoded = end.encode(&mut tools.frame);
        }
        let offset = segment.length() + tools.frame.len() as u64;
        encoded = encoded.and_then(|()| segment.index.encode(&mut tools.frame, offset, utc, false));
        if encoded.is_err() || !stage(&mut tools.staging, &tools.frame, &mut tools.pieces) {
            tools.pieces.clear();
            return false;
        }
        segment.add_bytes(tools.frame.len() as u64, &mut tools.pieces);
        segment.close();
        self.closing.extend(self.current.take());
        true
    }

    /// Hands gathered batches to the disk, up to its limit.
    pub(super) fn flush<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) {
        for segment in self.segments_mut() {
            segment.flush(&mut tools.disk, now, &tools.config);
        }
    }

    /// Ends the events: the last segment gets its end-of-run record and is closed.
    pub(super) fn finish<D: Disk>(&mut self, now: Instant, tools: &mut Tools<D>) {
        self.finishing = true;
        if self.ended {
            return;
        }
        // A stream without events also leaves a file, which says so.
        if self.current.is_none() && !self.open(now, tools) {
            return;
        }
        self.ended = self.close_current(now, tools);
        self.flush(now, tools);
    }

    /// Returns whether all its segments are closed and renamed.
    pub(super) fn is_closed(&self) -> bool {
        self.ended && self.current.is_none() && self.closing.is_empty()
    }

    /// Returns the oldest closed segment, once.
    pub(super) fn take_closed(&mut self) -> Option<Closed> {
        let closed = self.closing.front_mut()?.take_closed()?;
        self.counts.segments += 1;
        self.spare.extend(self.closing.pop_front());
        Some(closed)
    }

    /// Handles the completion of the file's operation. Returns false if the file is not of this stream.
    pub(super) fn completed(
        &mut self,
        file: FileToken,
        config: &StorageConfig,
        acknowledgements: &mut Acknowledgements<'_>,
    ) -> bool {
        let Self { closing, current, counts, .. } = self;
        let Some(segment) = closing.iter_mut().chain(current).find(|segment| segment.is_of(file)) else { return false };
        segment.completed(config, counts, acknowledgements);
        true
    }

    /// Returns the segment of this file, and the counts of the stream.
    pub(super) fn segment_of(&mut self, file: FileToken) -> Option<(&mut SegmentWriter, &mut StorageCounts)> {
        let Self { closing, current, counts, .. } = self;
        let segment = closing.iter_mut().chain(current).find(|segment| segment.is_of(file))?;
        Some((segment, counts))
    }

    /// Returns the oldest current rejection of the disk, and its time.
    pub(super) fn refusal(&self) -> Option<(DiskCause, Instant)> {
        self.segments().find_map(SegmentWriter::refusal)
    }

    /// Returns whether the disk has work to do for it.
    pub(super) fn is_writing(&self) -> bool {
        self.segments().any(SegmentWriter::is_writing)
    }

    /// Returns the time to retry a rejected operation.
    pub(super) fn retry(&self) -> Option<Instant> {
        self.segments().filter_map(SegmentWriter::retry).min()
    }

    /// Drops everything that is not on disk. Operations already with the disk run to their end.
    pub(super) fn give_up(&mut self, acknowledgements: &mut Acknowledgements<'_>) {
        for _ in 0..self.closing.len() {
            let Some(mut segment) = self.closing.pop_front() else { return };
            if segment.give_up(&mut self.counts, acknowledgements) {
                self.spare.push(segment);
            } else {
                self.closing.push_back(segment);
            }
        }
        if let Some(mut segment) = self.current.take() {
            if segment.give_up(&mut self.counts, acknowledgements) {
                self.spare.push(segment);
            } else {
                self.current = Some(segment);
            }
        }
    }

    /// Stops writing: segments that are not closed stay open.
    pub(super) const fn end_as_it_is(&mut self) {
        self.ended = true;
    }

    /// Returns the number of events that are not yet on disk.
    #[cfg(test)]
    pub(super) fn pending_events(&self) -> u64 {
        self.segments().map(SegmentWriter::pending_events).sum()
    }

    fn segments(&self) -> impl Iterator<Item = &SegmentWriter> {
        self.closing.iter().chain(&self.current)
    }

    fn segments_mut(&mut self) -> impl Iterator<Item = &mut SegmentWriter> {
        self.closing.iter_mut().chain(&mut self.current)
    }
}

/// The directories of one stream of a run.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Directories in which segments are written: one on each disk.
    open: Vec<PathBuf>,
    /// Directories to which closed ones are moved, disk by disk; empty if they stay.
    handed_over: Vec<PathBuf>,
}

impl Places {
    pub(super) fn of(config: &StorageConfig, stream: &StreamStorage, run: RunNumber) -> Self {
        let name = run_directory_name(run);
        let (disks, hand_over) = config.places_of(stream);
        let open = disks.iter().map(|disk| disk.join(&name)).collect();
        // An absolute path is used unchanged.
        let handed_over = hand_over.iter().flat_map(|place| disks.iter().map(move |disk| disk.join(place))).collect();
        Self { open, handed_over }
    }

    /// Creates missing directories. Returns the names of the files in all of them.
    pub(super) fn enter(&self, disk: &mut impl Disk) -> Vec<String> {
        self.open.iter().chain(&self.handed_over).flat_map(|directory| disk.enter_directory(directory)).collect()
    }

    /// Returns one directory on each disk.
    pub(super) fn all(&self) -> impl Iterator<Item = &Path> {
        self.open.iter().map(PathBuf::as_path)
    }

    /// Returns whether closed segments are handed over.
    pub(super) const fn hands_over(&self) -> bool {
        !self.handed_over.is_empty()
    }

    /// Returns the directory in which this segment is written.
    pub(super) fn open(&self, segment: u32) -> &Path {
        self.turn(&self.open, segment)
    }

    /// Returns the directory of this segment once it is closed.
    pub(super) fn closed(&self, segment: u32) -> &Path {
        self.turn(if self.handed_over.is_empty() { &self.open } else { &self.handed_over }, segment)
    }

    /// Selects the directory of a segment: segments are distributed to the disks in turn, counted from 1.
    fn turn<'a>(&self, directories: &'a [PathBuf], segment: u32) -> &'a Path {
        let disks = self.open.len().max(1);
        directories.get((segment.max(1) as usize - 1) % disks).map_or(Path::new(""), PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::tests::config;
    use ropewalk_terms::AcknowledgementLevel;

    #[test]
    fn segments_go_to_the_disks_in_turn() {
        let more_outputs = vec!["/second".into()];
        let config = StorageConfig { more_outputs, ..config(AcknowledgementLevel::Written) };
        let places = Places::of(&config, &StreamStorage::default(), RunNumber(7));
        let [first, second] = ["/data/run000007", "/second/run000007"].map(Path::new);
        assert_eq!([1, 2, 3].map(|segment| places.open(segment)), [first, second, first]);
        assert_eq!(places.closed(2), second, "they stay where they are");

        let config = StorageConfig { hand_over: Some("done".into()), ..config };
        let places = Places::of(&config, &StreamStorage::default(), RunNumber(7));
        assert_eq!(places.open(2), second);
        assert_eq!([1, 2].map(|segment| places.closed(segment)), ["/data/done", "/second/done"].map(Path::new));
    }
    #[test]
    fn a_stream_may_have_disks_of_its_own() {
        let config = StorageConfig { hand_over: Some("done".into()), ..config(AcknowledgementLevel::Written) };
        let outputs = ["/fast", "/faster"].map(PathBuf::from).to_vec();
        let places = Places::of(&config, &StreamStorage { outputs, ..StreamStorage::default() }, RunNumber(7));
        let [fast, faster] = ["/fast/run000007", "/faster/run000007"].map(Path::new);
        assert_eq!([1, 2, 3].map(|segment| places.open(segment)), [fast, faster, fast]);
        assert_eq!(places.closed(2), Path::new("/faster/done"), "as of all streams");
        let stream = StreamStorage { hand_over: Some("/away".into()), ..StreamStorage::default() };
        let places = Places::of(&config, &stream, RunNumber(7));
        assert_eq!((places.open(1), places.closed(1)), (Path::new("/data/run000007"), Path::new("/away")));
    }
}
