//! The run files of one builder unit: events in, acknowledgement levels out.
//!
//! ```text
//! event -> record: head staged, payloads by reference, tail staged -+-> batch of stream 0 -+-> disk
//!                                                                   +-> batch of stream 1 -+
//! segment: header, begin of run, events, [end of run], footer -> renamed; the oldest go when `keep` is reached
//! ```
//! Each stream has its own series of segments. A record is staged once, and its bytes are shared by its streams. The
//! progress of its event is that of its slowest copy. A few batches of a segment are with the disk and complete in
//! order, while the next is gathered. Batches that the disk rejects, because it is full or fails, are kept and retried.
//! Nothing is acknowledged meanwhile, so that back-pressure reaches the sources. Only while the run drains is a disk
//! that rejects everything given up: its events then fail, each by name.

mod config;
mod segment;
#[cfg(test)]
mod tests;

use super::record::{Filed, Recorded, Sealing, encode_record, stage};
use super::sink::{EventSink, Progress, SinkEvent, StorageCounts};
pub(super) use config::Room;
pub use config::{OutputRoom, RoomLimits, StorageConfig, StreamStorage};
use config::{Removals, Watch, segment_cookie};
use ropewalk_io::disk::{Completion, Disk, DiskCause};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{
    Cause, Incarnation, Instant, Measure, PoolAccount, Recorder, RunNumber, StreamIndex, StreamSet, Utc,
};
use ropewalk_wire::run_file::CHECKSUM_EXTENSION;
use segment::{Closed, Places, SegmentWriter, Series};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

/// The run files of one builder unit; see the picture above.
pub struct Storage<D: Disk> {
    tools: Tools<D>,
    incarnation: Incarnation,
    /// By the index of the stream.
    series: Vec<Series>,
    copies: Copies,
    /// Closed segments of all streams, the oldest first. Not kept if segments are removed on purpose by others.
    kept: VecDeque<(StreamIndex, Closed)>,
    /// Bytes of these segments and of segments being deleted.
    kept_bytes: u64,
    removals: Removals,
    watch: Watch,
    /// Path of the segment that was last deleted or checked.
    path: PathBuf,
    completions: Vec<Completion>,
    scratch: Vec<u8>,
    /// Further references to a record's bytes.
    shared: Vec<Slice>,
    room: Room,
    /// Times that batches took to be written.
    times: Recorder,
    /// Since when the run drains.
    draining: Option<Instant>,
    given_up: bool,
}

/// Resources shared by all series.
struct Tools<D> {
    disk: D,
    config: StorageConfig,
    staging: Staging,
    run: RunNumber,
    started: Utc,
    /// By the index of the stream.
    places: Vec<Places>,
    /// Scratch memory for the bytes before and after the events of a segment.
    frame: Vec<u8>,
    /// Scratch list of a record's slices.
    pieces: Vec<Slice>,
}

/// Collects the progress of events.
struct Acknowledgements<'a> {
    copies: &'a mut Copies,
    progress: &'a mut Vec<(u32, Progress)>,
}

/// Capacity, in closed segments. With `keep` there may be more, and the list grows.
const KEPT: usize = 4096;
/// Pause before a rejected batch is retried.
const RETRY: Duration = Duration::from_millis(500);

impl<D: Disk> Storage<D> {
    /// Creates storage that writes through `disk`. Heads and tails of records are staged in `staging`.
    pub fn new(disk: D, config: StorageConfig, staging: Staging) -> Self {
        let kept = VecDeque::with_capacity(KEPT + 1);
        let series: Vec<_> =
            (0..config.streams.len() as u8).map(|stream| Series::new(&config, StreamIndex(stream))).collect();
        let (copies, room) = (Copies::new(series.len()), Room::new(config.room));
        let removals = Removals::new(series.len());
        let tools = Tools {
            disk,
            config,
            staging,
            run: RunNumber(0),
            started: Utc(0),
            places: Vec::new(),
            frame: Vec::with_capacity(SegmentWriter::FOOTER_BYTES),
            pieces: Vec::with_capacity(4096),
        };
        Self {
            tools,
            incarnation: Incarnation(0),
            series,
            copies,
            kept,
            kept_bytes: 0,
            removals,
            watch: Watch::default(),
            path: PathBuf::with_capacity(segment::PATH_BYTES),
            completions: Vec::with_capacity(16),
            scratch: vec![0; 64 << 10],
            shared: Vec::with_capacity(4096),
            room,
            times: Recorder::new(Measure::DiskWriteTime),
            draining: None,
            given_up: false,
        }
    }

    /// Takes an event for these streams, at least one and each of them configured: for all or for none.
    pub fn add(&mut self, now: Instant, slot: u32, event: &impl Recorded, streams: StreamSet) -> Filed {
        debug_assert!(!streams.is_empty(), "an event that goes nowhere is not to be written");
        if self.given_up {
            return Filed::Refused(Cause::WriteFailed);
        }
        let Self { tools, series, .. } = self;
        // The remaining events of an ending run are written for as long as the disk takes them.
        if (self.room.is_short() || self.removals.are_behind(series.len())) && self.draining.is_none() {
            return Filed::NoRoom;
        }
        if !streams.iter().all(|stream| series[usize::from(stream.0)].ready(now, tools)) {
            return Filed::NoRoom;
        }
        let Tools { staging, pieces, .. } = tools;
        let scratch = &mut self.scratch;
        let (length, index) = match encode_record(event, self.incarnation, Sealing::ByDisk, scratch, staging, pieces) {
            Ok(encoded) => encoded,
            Err(filed) => return filed,
        };
        let Some(ticket) = self.copies.enter(slot, streams.len() as u8) else {
            tools.pieces.clear();
            return Filed::NoRoom;
        };
        let mut left = streams.len();
        for stream in streams.iter() {
            left -= 1;
            let pieces = if left > 0 {
                self.shared.extend_from_slice(&tools.pieces);
                &mut self.shared
            } else {
                &mut tools.pieces
            };
            series[usize::from(stream.0)].add(ticket, index.key, index, length, pieces);
        }
        Filed::Taken
    }

    /// Adds a record that is not an event, in its file format, to the first stream. Returns false if there is no room
    /// for it now.
    pub fn add_record(&mut self, now: Instant, record: &[u8]) -> bool {
        let Self { tools, series, .. } = self;
        let Some(series) = series.first_mut() else { return false };
        if !series.ready(now, tools) {
            return false;
        }
        if !stage(&mut tools.staging, record, &mut tools.pieces) {
            tools.pieces.clear();
            return false;
        }
        series.add_bytes(record.len() as u64, &mut tools.pieces);
        true
    }

    fn take(&mut self, now: Instant, completion: Completion, progress: &mut Vec<(u32, Progress)>) {
        let (file, refused) = match completion {
            Completion::LookedFor { cookie, result } => return self.looked_for(cookie, result),
            Completion::Removed { cookie, result } => return self.removed(cookie, result),
            Completion::Created { result: Ok(()), .. } => return,
            Completion::Created { file, result: Err(cause) } => {
                if let Some((segment, counts)) = self.series.iter_mut().find_map(|series| series.segment_of(file)) {
                    counts.refusals += 1;
                    segment.not_created(now, cause);
                }
                return;
            }
            Completion::Appended { file, took, .. } => {
                self.times.record(took.as_nanos() as u64);
                (file, None)
            }
            Completion::AppendFailed { file, cause, data, .. } => (file, Some((cause, data))),
            Completion::Synced { file, result, .. } | Completion::Published { file, result, .. } => {
                (file, result.err().map(|cause| (cause, Vec::new())))
            }
        };
        let Self { series, tools, copies, .. } = self;
        match refused {
            None => {
                let mut acknowledgements = Acknowledgements { copies, progress };
                let _ = series.iter_mut().any(|series| series.completed(file, &tools.config, &mut acknowledgements));
            }
            Some((cause, data)) => {
                let Some((segment, counts)) = series.iter_mut().find_map(|series| series.segment_of(file)) else {
                    return;
                };
                counts.refusals += 1;
                segment.refused(now, now.after(RETRY), cause, data);
            }
        }
    }

    /// Collects closed segments, and deletes the oldest if there are too many.
    fn collect_closed(&mut self) {
        for (stream, series) in (0..).map(StreamIndex).zip(&mut self.series) {
            let is_taken_away = self.tools.config.taken_away
                || self.tools.places.get(usize::from(stream.0)).is_some_and(Places::hands_over);
            while let Some(closed) = series.take_closed() {
                if !is_taken_away {
                    self.kept_bytes += closed.bytes;
                    self.kept.push_back((stream, closed));
                    self.removals.try_again();
                }
            }
        }
        match self.tools.config.keep {
            Some(keep) => self.delete_oldest(keep),
            None if self.kept.len() > KEPT => drop(self.kept.pop_front()),
            None => {}
        }
    }

    /// Checks for closed segments that have been deleted.
    fn look_for_closed(&mut self, now: Instant) {
        let is_over = self.tools.run != RunNumber(0) && self.series.iter().all(Series::is_closed);
        let Self { watch, tools, kept, path, .. } = self;
        watch.look(now, &mut tools.disk, kept, (&tools.places, path), is_over);
    }

    fn looked_for(&mut self, cookie: u64, result: Result<(), DiskCause>) {
        if let Some((stream, closed)) = self.watch.looked(cookie, result, &mut self.kept) {
            self.kept_bytes -= closed.bytes;
            self.series[usize::from(stream.0)].counts.gone_events += closed.events;
        }
    }

    /// Handles the result of a deletion. That of a checksum file needs no action.
    fn removed(&mut self, cookie: u64, result: Result<(), DiskCause>) {
        let Some((stream, closed)) = self.removals.ended(cookie) else { return };
        let counts = &mut self.series[usize::from(stream.0)].counts;
        if matches!(result, Ok(()) | Err(DiskCause::NotFound)) {
            self.kept_bytes -= closed.bytes;
            counts.deleted_segments += 1;
            counts.deleted_events += closed.events;
            counts.deleted_bytes += closed.bytes;
        } else {
            counts.refusals += 1;
            self.kept.push_front((stream, closed));
            self.removals.refused();
        }
    }

    fn delete_oldest(&mut self, keep: u64) {
        while self.removals.may_begin() && self.kept_bytes - self.removals.bytes() > keep && self.kept.len() > 1 {
            let Some((stream, oldest)) = self.kept.pop_front() else { return };
            let directory = self.tools.places[usize::from(stream.0)].closed(oldest.name.segment);
            segment::set_path(&mut self.path, directory, oldest.name);
            self.tools.disk.remove(&self.path, segment_cookie(stream, &oldest));
            self.removals.begun(stream, oldest);
            if self.tools.config.checksums {
                segment::set_path(&mut self.path, directory, format_args!("{}{CHECKSUM_EXTENSION}", oldest.name));
                self.tools.disk.remove(&self.path, u64::MAX);
            }
        }
    }

    /// Returns the oldest current rejection of the disk, and its time.
    fn refusal(&self) -> Option<(DiskCause, Instant)> {
        self.series.iter().filter_map(Series::refusal).min_by_key(|&(_, since)| since)
    }

    /// Returns when the disk is given up if it continues to reject everything.
    fn give_up_at(&self) -> Option<Instant> {
        let (draining, (_, since)) = (self.draining?, self.refusal()?);
        (!self.given_up).then(|| since.max(draining).after(self.tools.config.give_up_after))
    }

    /// Returns the counts of written and deleted data of each stream, by index.
    pub fn streams(&self) -> impl Iterator<Item = StorageCounts> {
        self.series.iter().map(|series| series.counts)
    }
}

impl<D: Disk> EventSink for Storage<D> {
    fn add_event(&mut self, now: Instant, slot: u32, event: &SinkEvent<'_>, streams: StreamSet) -> Filed {
        match event {
            SinkEvent::Built(event) => self.add(now, slot, event, streams),
            SinkEvent::Gathered(event) => self.add(now, slot, event, streams),
        }
    }

    fn begin(&mut self, now: Instant, run: RunNumber, incarnation: Incarnation) {
        let Self { tools, series, .. } = self;
        (tools.run, self.incarnation) = (run, incarnation);
        tools.started = tools.utc(now);
        let config = &tools.config;
        tools.places = config.streams.iter().map(|stream| Places::of(config, stream, run)).collect();
        let names: Vec<_> = tools.places.iter().flat_map(|places| places.enter(&mut tools.disk)).collect();
        series.iter_mut().for_each(|series| series.begin(tools, incarnation, &names));
        self.kept.clear();
        self.removals.clear();
        (self.kept_bytes, self.watch) = (0, Watch::default());
        (self.draining, self.given_up) = (None, false);
    }

    fn flush(&mut self, now: Instant) {
        if !self.given_up {
            self.series.iter_mut().for_each(|series| series.flush(now, &mut self.tools));
        }
    }

    fn poll(&mut self, now: Instant, progress: &mut Vec<(u32, Progress)>) -> usize {
        let mut completions = std::mem::take(&mut self.completions);
        let work = self.tools.disk.poll(&mut completions);
        for completion in completions.drain(..) {
            self.take(now, completion, progress);
        }
        self.completions = completions;
        self.collect_closed();
        self.look_for_closed(now);
        if self.give_up_at().is_some_and(|deadline| now >= deadline) {
            self.given_up = true;
        }
        if self.given_up {
            let Self { series, copies, .. } = self;
            let mut acknowledgements = Acknowledgements { copies, progress };
            series.iter_mut().for_each(|series| series.give_up(&mut acknowledgements));
        } else {
            self.flush(now);
            if self.tools.run != RunNumber(0) {
                self.room.look(now, &mut self.tools.disk, self.tools.places.iter().flat_map(Places::all));
            }
            for series in &mut self.series {
                series.counts.refused = series.refusal().map(|(cause, _)| cause);
            }
        }
        work
    }

    fn drain(&mut self, now: Instant) {
        self.draining.get_or_insert(now);
    }

    fn finish(&mut self, now: Instant) {
        self.drain(now);
        for series in &mut self.series {
            if self.given_up {
                series.end_as_it_is();
            } else if self.tools.run != RunNumber(0) {
                series.finish(now, &mut self.tools);
            }
        }
    }

    fn is_closed(&self) -> bool {
        let is_closed = self.series.iter().all(Series::is_closed) && self.watch.is_done() && self.removals.are_done();
        self.tools.run == RunNumber(0) || is_closed
    }

    fn has_given_up(&self) -> bool {
        self.given_up
    }

    fn counts(&self) -> StorageCounts {
        let restored_files = self.tools.disk.restored_files();
        let mut sum = StorageCounts { restored_files, ..StorageCounts::default() };
        self.series.iter().for_each(|series| sum += series.counts);
        if self.room.is_short() {
            sum.refused = sum.refused.or(Some(DiskCause::Full));
        }
        sum
    }

    fn copied_bytes(&self) -> u64 {
        self.tools.disk.copied_bytes()
    }

    fn is_writing(&self) -> bool {
        self.series.iter().any(Series::is_writing)
    }

    fn times(&self) -> Option<&Recorder> {
        Some(&self.times)
    }

    fn pool(&mut self) -> PoolAccount {
        let staging = &mut self.tools.staging;
        staging.pool_mut().collect();
        staging.pool().account()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retries = self.series.iter().filter_map(Series::retry);
        retries.chain(self.tools.disk.next_deadline()).chain(self.give_up_at()).chain(self.room.next_deadline()).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.tools.disk.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.tools.disk.wait_descriptor()
    }
}

impl<D> Tools<D> {
    /// Returns the time of day, for records.
    const fn utc(&self, now: Instant) -> Utc {
        Utc(self.config.epoch.0.saturating_add_unsigned(now.as_nanoseconds()))
    }
}

impl Acknowledgements<'_> {
    /// Records the progress of a record.
    fn tell(&mut self, ticket: Ticket, reached: Progress) {
        self.copies.tell(ticket, reached, self.progress);
    }
}

/// Identifies the event whose progress depends on a record.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Ticket {
    /// The slot of the event, of which this is the only copy.
    Only(u32),
    /// The place of the event in the table of events with several copies.
    Shared(u32),
}

#[derive(Copy, Clone, Debug)]
struct Shared {
    slot: u32,
    /// Number of copies without a result yet.
    left: u8,
    /// The lowest progress of the other copies.
    least: Option<Progress>,
}

/// The events with several copies in progress.
#[derive(Debug)]
struct Copies {
    shared: Vec<Shared>,
    free: Vec<u32>,
}

/// Maximum number of events with several copies in progress: more than fit into the batches of two segments.
const EVENTS: u32 = 1 << 14;

impl Copies {
    fn new(streams: usize) -> Self {
        let events = if streams > 1 { EVENTS } else { 0 };
        let nothing = Shared { slot: 0, left: 0, least: None };
        Self { shared: vec![nothing; events as usize], free: (0..events).rev().collect() }
    }

    /// Returns a ticket for the `copies` copies of an event, at least one; `None` if too many are in progress.
    fn enter(&mut self, slot: u32, copies: u8) -> Option<Ticket> {
        if copies <= 1 {
            return Some(Ticket::Only(slot));
        }
        let place = self.free.pop()?;
        self.shared[place as usize] = Shared { slot, left: copies, least: None };
        Some(Ticket::Shared(place))
    }

    /// Records the progress of a copy. Appends the resulting progress of its event, if it is final.
    fn tell(&mut self, ticket: Ticket, reached: Progress, progress: &mut Vec<(u32, Progress)>) {
        let place = match ticket {
            Ticket::Only(slot) => return progress.push((slot, reached)),
            Ticket::Shared(place) => place,
        };
        let event = &mut self.shared[place as usize];
        let least = event.least.map_or(reached, |least| least.min(reached));
        (event.least, event.left) = (Some(least), event.left - 1);
        if event.left == 0 {
            progress.push((event.slot, least));
            self.free.push(place);
        }
    }
}
