//! The run files of one builder unit: events in, acknowledgement levels out.
//!
//! ```text
//! event -> record: head staged, payloads by reference, tail staged -> batch -> disk (one batch at a time)
//! segment: header, begin of run, events, [end of run], footer -> renamed; the oldest go when `keep` is reached
//! ```
//! One batch of a segment is with the disk while the next is gathered. What the disk refuses, because it is full or
//! fails, is kept and offered again; nothing is acknowledged meanwhile, so that back-pressure reaches the sources.
//! Only while the run drains is a disk given up that does nothing but refuse: its events then fail, each by name.

mod recorded;
mod segment;

use recorded::Counted;
pub use recorded::Recorded;
use ropewalk_io::disk::{Completion, Disk, DiskCause, FileToken};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{AcknowledgementLevel, EventKey, Incarnation, Instant, NodeId, PoolAccount, RunNumber, Utc};
use ropewalk_wire::run_file::{
    BeginOfRun, EndOfRun, EventRecordEncoder, SegmentHeader, SegmentName, SourceEntry, run_directory_name,
};
use segment::{Closed, SegmentWriter};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
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
    /// The run's sources, for the segment header.
    pub sources: Vec<SourceEntry>,
    /// What an acknowledgement promises, for the segment header.
    pub level: AcknowledgementLevel,
    /// Every batch is synced.
    pub sync_batches: bool,
    /// A segment is closed at this size in bytes.
    pub segment_bytes: u64,
    /// Or after this many events.
    pub segment_events: u64,
    /// Or after this time.
    pub segment_time: Option<Duration>,
    /// Closed segments are kept up to this many bytes; the oldest go first.
    pub keep: Option<u64>,
    /// A disk that has done nothing but refuse for so long while the run drains is given up.
    pub give_up_after: Duration,
}

/// What became of an event that was added.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// It has come so far.
    Reached(AcknowledgementLevel),
    /// The disk was given up: it is not written.
    Failed,
}

/// What was written and deleted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct StorageCounts {
    /// Event records that the disk has taken.
    pub events: u64,
    /// Bytes that the disk has taken.
    pub bytes: u64,
    /// Segments closed and renamed.
    pub segments: u64,
    /// Segments deleted to stay within `keep`.
    pub deleted_segments: u64,
    /// Events in them.
    pub deleted_events: u64,
    /// Bytes in them.
    pub deleted_bytes: u64,
    /// Pieces of work that the disk refused; each is offered again.
    pub refusals: u64,
    /// Why the disk refuses what is offered now; none where it does its work.
    pub refused: Option<DiskCause>,
}

/// The run files of one builder unit: see the module's picture.
pub struct Storage<D: Disk> {
    disk: D,
    config: StorageConfig,
    /// That of the newest segment.
    header: SegmentHeader,
    staging: Staging,
    run: RunNumber,
    started: Utc,
    directory: PathBuf,
    current: Option<SegmentWriter>,
    closing: VecDeque<SegmentWriter>,
    spare: Vec<SegmentWriter>,
    next_segment: u32,
    kept: VecDeque<Closed>,
    kept_bytes: u64,
    /// The path of the segment that was deleted last.
    oldest: PathBuf,
    completions: Vec<Completion>,
    scratch: Vec<u8>,
    /// What stands before the events of a segment and behind them.
    frame: Vec<u8>,
    pieces: Vec<Slice>,
    last: Option<EventKey>,
    finishing: bool,
    ended: bool,
    /// Since when the run drains.
    draining: Option<Instant>,
    given_up: bool,
    counts: StorageCounts,
}

/// A batch is handed to the disk when it has this many bytes, or when the disk has nothing else to do.
const BATCH_BYTES: u64 = 8 << 20;
/// Closed segments that can be remembered before their list has to grow.
const KEPT: usize = 1024;
/// Pause before a refused batch is offered again.
const RETRY: Duration = Duration::from_millis(500);

impl<D: Disk> Storage<D> {
    /// Storage that writes through `disk`; heads and tails of records are staged in `staging`.
    pub fn new(disk: D, config: StorageConfig, staging: Staging) -> Self {
        let kept = VecDeque::with_capacity(if config.keep.is_some() { KEPT } else { 0 });
        let header = SegmentHeader {
            run: RunNumber(0),
            segment: 0,
            writer: config.writer,
            incarnation: Incarnation(0),
            start: config.epoch,
            acknowledgement: config.level,
            minor: ropewalk_wire::run_file::MINOR_VERSION,
            sources: config.sources.clone(),
        };
        Self {
            disk,
            config,
            header,
            staging,
            run: RunNumber(0),
            started: Utc(0),
            directory: PathBuf::new(),
            current: None,
            closing: VecDeque::with_capacity(2),
            spare: vec![SegmentWriter::new(), SegmentWriter::new()],
            next_segment: 1,
            kept,
            kept_bytes: 0,
            oldest: PathBuf::with_capacity(segment::PATH_BYTES),
            completions: Vec::with_capacity(16),
            scratch: vec![0; 64 << 10],
            frame: Vec::with_capacity(SegmentWriter::FOOTER_BYTES),
            pieces: Vec::with_capacity(4096),
            last: None,
            finishing: false,
            ended: false,
            draining: None,
            given_up: false,
            counts: StorageCounts::default(),
        }
    }

    /// The run begins for this life of the node: its directory is entered, and segments are numbered behind those of an
    /// earlier life.
    pub fn begin(&mut self, now: Instant, run: RunNumber, incarnation: Incarnation) {
        (self.run, self.header.incarnation) = (run, incarnation);
        self.started = self.utc(now);
        self.directory = self.config.output.join(run_directory_name(run));
        let names = self.disk.enter_directory(&self.directory);
        let highest = (names.iter())
            .filter_map(|name| {
                name.strip_suffix(ropewalk_wire::run_file::OPEN_EXTENSION).unwrap_or(name).parse::<SegmentName>().ok()
            })
            .filter(|name| name.writer == self.config.writer)
            .map(|name| name.segment)
            .max();
        self.next_segment = highest.unwrap_or(0) + 1;
        self.kept.clear();
        self.kept_bytes = 0;
        (self.finishing, self.ended) = (false, false);
        (self.draining, self.given_up) = (None, false);
    }

    /// Takes an event; false where there is no room for it now.
    pub fn add(&mut self, now: Instant, slot: u32, event: &impl Recorded) -> bool {
        if !self.ready(now) {
            return false;
        }
        let head = event.head(self.header.incarnation);
        let (missing, entries) = (Counted::new(event.missing()), Counted::new(event.entries()));
        let needed = EventRecordEncoder::head_bytes(missing.len(), entries.len());
        if self.scratch.len() < needed {
            self.scratch.resize(needed, 0);
        }
        // A record that cannot be encoded is longer than a record may be; its payloads were refused long before.
        let Ok(mut encoder) = EventRecordEncoder::begin(&mut self.scratch, &head, missing, entries) else {
            return false;
        };
        let Some(first) = self.staging.write(&self.scratch[..encoder.head_length()]) else { return false };
        self.pieces.clear();
        self.pieces.push(first);
        if !event.payloads(&mut encoder, &mut self.staging, &mut self.pieces) {
            self.pieces.clear();
            return false;
        }
        let (length, index) = (encoder.record_length() as u64, encoder.index_entry(0));
        let tail = encoder.finish().ok().and_then(|tail| self.staging.write(tail.as_bytes()));
        let (Some(tail), Some(segment)) = (tail, self.current.as_mut()) else {
            self.pieces.clear();
            return false;
        };
        self.pieces.push(tail);
        segment.add(slot, index, length, &mut self.pieces);
        // Another event manager goes on with a run that had ended: it ends once more, behind this event.
        (self.finishing, self.ended) = (false, false);
        self.last = self.last.max(Some(head.key));
        true
    }

    /// Takes a record that is no event, as it stands in a file; false where there is no room for it now.
    pub fn add_record(&mut self, now: Instant, record: &[u8]) -> bool {
        if !self.ready(now) {
            return false;
        }
        if !stage(&mut self.staging, record, &mut self.pieces) {
            self.pieces.clear();
            return false;
        }
        let Some(segment) = self.current.as_mut() else { return false };
        segment.add_bytes(record.len() as u64, &mut self.pieces);
        true
    }

    /// Makes sure of a segment with room.
    fn ready(&mut self, now: Instant) -> bool {
        if let Some(segment) = &self.current {
            if !segment.is_due(now, &self.config) {
                return segment.gathered() < BATCH_BYTES;
            }
            if !self.close_current(now) {
                return false;
            }
        }
        self.open(now)
    }

    fn open(&mut self, now: Instant) -> bool {
        let Some(mut segment) = self.spare.pop() else { return false };
        let name = SegmentName { run: self.run, writer: self.config.writer, segment: self.next_segment };
        (self.header.run, self.header.segment, self.header.start) = (name.run, name.segment, self.utc(now));
        let begin = BeginOfRun { run: self.run, start: self.started, text: String::new() };
        self.frame.clear();
        let encoded = self.header.encode(&mut self.frame).and_then(|()| begin.encode(&mut self.frame));
        if encoded.is_err() || !stage(&mut self.staging, &self.frame, &mut self.pieces) {
            self.pieces.clear();
            self.spare.push(segment);
            return false;
        }
        segment.open(&mut self.disk, now, &self.directory, name);
        segment.add_bytes(self.frame.len() as u64, &mut self.pieces);
        self.next_segment += 1;
        self.current = Some(segment);
        true
    }

    /// Puts end-of-run (at the end) and footer behind the last record; false where there is no room for them yet.
    fn close_current(&mut self, now: Instant) -> bool {
        let utc = self.utc(now);
        let Some(segment) = &mut self.current else { return true };
        self.frame.clear();
        let mut encoded = Ok(());
        if self.finishing {
            let events = self.counts.events + segment.pending_events();
            let end = EndOfRun { run: self.run, end: utc, last: self.last, events, text: String::new() };
            encoded = end.encode(&mut self.frame);
        }
        let offset = segment.length() + self.frame.len() as u64;
        encoded = encoded.and_then(|()| segment.index.encode(&mut self.frame, offset, utc, false));
        if encoded.is_err() || !stage(&mut self.staging, &self.frame, &mut self.pieces) {
            self.pieces.clear();
            return false;
        }
        segment.add_bytes(self.frame.len() as u64, &mut self.pieces);
        segment.close();
        self.closing.extend(self.current.take());
        true
    }

    /// Hands gathered batches to the disk where it has nothing of the segment in work.
    pub fn flush(&mut self, now: Instant) {
        if self.given_up {
            return;
        }
        for segment in self.closing.iter_mut().chain(&mut self.current) {
            segment.flush(&mut self.disk, now);
        }
    }

    /// Takes what the disk has done; appends how far events have come. Returns how much happened.
    pub fn poll(&mut self, now: Instant, progress: &mut Vec<(u32, Progress)>) -> usize {
        let mut completions = std::mem::take(&mut self.completions);
        let work = self.disk.poll(&mut completions);
        for completion in completions.drain(..) {
            self.take(now, completion, progress);
        }
        self.completions = completions;
        while let Some(closed) = self.closing.front_mut().and_then(SegmentWriter::take_closed) {
            self.counts.segments += 1;
            self.spare.extend(self.closing.pop_front());
            if let Some(keep) = self.config.keep {
                self.kept_bytes += closed.bytes;
                self.kept.push_back(closed);
                self.delete_oldest(keep);
            }
        }
        if self.give_up_at().is_some_and(|deadline| now >= deadline) {
            self.given_up = true;
        }
        if self.given_up {
            self.give_up(progress);
        } else {
            self.flush(now);
            self.counts.refused = self.refusal().map(|(cause, _)| cause);
        }
        work
    }

    fn take(&mut self, now: Instant, completion: Completion, progress: &mut Vec<(u32, Progress)>) {
        let (file, refused) = match completion {
            Completion::Removed { .. } | Completion::Created { result: Ok(()), .. } => return,
            Completion::Created { file, result: Err(cause) } => {
                self.counts.refusals += 1;
                if let Some(segment) = self.segment_of(file) {
                    segment.not_created(now, cause);
                }
                return;
            }
            Completion::Appended { file, .. } => (file, None),
            Completion::AppendFailed { file, cause, data, .. } => (file, Some((cause, data))),
            Completion::Synced { file, result, .. } | Completion::Published { file, result, .. } => {
                (file, result.err().map(|cause| (cause, Vec::new())))
            }
        };
        self.counts.refusals += u64::from(refused.is_some());
        let Self { closing, current, config, counts, .. } = self;
        let Some(segment) = closing.iter_mut().chain(current).find(|segment| segment.is_of(file)) else { return };
        match refused {
            None => segment.completed(config, counts, progress),
            Some((cause, data)) => segment.refused(now, now.after(RETRY), cause, data),
        }
    }

    fn segment_of(&mut self, file: FileToken) -> Option<&mut SegmentWriter> {
        self.closing.iter_mut().chain(&mut self.current).find(|segment| segment.is_of(file))
    }

    /// Why the disk refuses the oldest work that it refuses, and since when.
    fn refusal(&self) -> Option<(DiskCause, Instant)> {
        self.closing.iter().chain(&self.current).find_map(SegmentWriter::refusal)
    }

    /// The run drains: from here on a disk that refuses everything is not waited for without an end.
    pub fn drain(&mut self, now: Instant) {
        self.draining.get_or_insert(now);
    }

    /// The disk was given up: whatever it has not taken will not be written, and what comes now will not either.
    pub const fn has_given_up(&self) -> bool {
        self.given_up
    }

    /// When the disk is given up if it goes on refusing.
    fn give_up_at(&self) -> Option<Instant> {
        let (draining, (_, since)) = (self.draining?, self.refusal()?);
        (!self.given_up).then(|| since.max(draining).after(self.config.give_up_after))
    }

    /// Lets go of what the disk has not taken. What is with the disk this very moment ends as it ends. The files stay
    /// as they are: whole up to the last record that the disk took.
    fn give_up(&mut self, progress: &mut Vec<(u32, Progress)>) {
        for _ in 0..self.closing.len() {
            let Some(mut segment) = self.closing.pop_front() else { return };
            if segment.give_up(progress) {
                self.spare.push(segment);
            } else {
                self.closing.push_back(segment);
            }
        }
        if let Some(mut segment) = self.current.take() {
            if segment.give_up(progress) {
                self.spare.push(segment);
            } else {
                self.current = Some(segment);
            }
        }
    }

    /// The time of day, for records.
    const fn utc(&self, now: Instant) -> Utc {
        Utc(self.config.epoch.0.saturating_add_unsigned(now.as_nanoseconds()))
    }

    fn delete_oldest(&mut self, keep: u64) {
        while self.kept_bytes > keep && self.kept.len() > 1 {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.kept_bytes -= oldest.bytes;
            self.counts.deleted_segments += 1;
            self.counts.deleted_events += oldest.events;
            self.counts.deleted_bytes += oldest.bytes;
            segment::set_path(&mut self.oldest, &self.directory, oldest.name);
            self.disk.remove(&self.oldest, u64::MAX);
        }
    }

    /// No event comes any more: the last segment gets its end-of-run record and is closed. To be called until
    /// [`Storage::is_closed`].
    pub fn finish(&mut self, now: Instant) {
        self.finishing = true;
        self.drain(now);
        if self.ended || self.run == RunNumber(0) {
            return;
        }
        if self.given_up {
            self.ended = true;
            return;
        }
        // Also a builder unit that wrote no event leaves a file that says so.
        if self.current.is_none() && !self.open(now) {
            return;
        }
        self.ended = self.close_current(now);
        self.flush(now);
    }

    /// All segments are closed and renamed.
    pub fn is_closed(&self) -> bool {
        self.run == RunNumber(0) || (self.ended && self.current.is_none() && self.closing.is_empty())
    }

    /// What was written and deleted.
    pub const fn counts(&self) -> StorageCounts {
        self.counts
    }

    /// The account of the blocks that heads and tails of records are staged in, those included that came home by now.
    pub fn pool(&mut self) -> PoolAccount {
        self.staging.pool_mut().collect();
        self.staging.pool().account()
    }

    /// When refused work is to be offered again, or the disk is given up.
    pub fn next_deadline(&self) -> Option<Instant> {
        let retries = self.closing.iter().chain(&self.current).filter_map(SegmentWriter::retry);
        retries.chain(self.disk.next_deadline()).chain(self.give_up_at()).min()
    }

    /// Before the thread sleeps: false if there is something to do now.
    pub fn prepare_wait(&mut self) -> bool {
        self.disk.prepare_wait()
    }

    /// Becomes readable when the disk has done something.
    pub fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.disk.wait_descriptor()
    }
}

/// Stages bytes of any length in pieces; false (and nothing to be used) where the staging pool is dry.
fn stage(staging: &mut Staging, bytes: &[u8], pieces: &mut Vec<Slice>) -> bool {
    pieces.clear();
    bytes.chunks(staging.largest()).all(|chunk| staging.write(chunk).map(|slice| pieces.push(slice)).is_some())
}
