//! The event files of one builder unit, for filter units that work on files: events in, acknowledgement levels out.
//!
//! ```text
//! event -> header staged, fragments by reference -> file of its lumisection, gathered -> full, or old enough: closed
//!          closed: open/NAME.raw and open/NAME.jsn written -> NAME.jsn renamed -> NAME.raw renamed: its events count as written
//! lumisection: closed when no event of it comes and its files have their names -> EoLS;  the run: when all are closed -> EoR
//! ```
//! A file is written in one go, once the content of its header is known. If a builder unit dies, it leaves whole files
//! under their final names, and others in `open` that were not reported to the event manager. Their events are assigned
//! again, and the next incarnation empties `open`. Rejected writes are kept and retried; nothing is acknowledged
//! meanwhile.

mod event_file;
#[cfg(test)]
mod tests;

use super::RoomLimits;
use super::record::Filed;
use super::sink::{EventSink, LumisectionTotal, Progress, SinkEvent, StorageCounts};
use super::storage::Room;
use crate::documents::{EndOfLumisection, EndOfRun, Numbers, RawFile, parse_numbers, render_legend, render_numbers};
use event_file::{EventFile, WholeFile};
use ropewalk_io::disk::{Completion, Disk, DiskCause};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{AcknowledgementLevel, Cause, Incarnation, Instant, PoolAccount, RunNumber, StreamSet};
use ropewalk_wire::frd::{EventHeader, FileHeader, FileKind, FileName, Version, checksum_of};
use ropewalk_wire::run_file::run_directory_name;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

/// Configuration of a builder unit's event files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventFilesConfig {
    /// Name of the writer, for the documents: `BU-0` and so on, as in CMS's conventions for builder units.
    pub writer: String,
    /// Parent of the run's directory. It belongs to this builder unit alone.
    pub directory: PathBuf,
    /// The version of the events' headers.
    pub version: Version,
    /// Number of events after which a file is closed, 1 or more.
    pub file_events: u32,
    /// Size in bytes at which a file is closed.
    pub file_bytes: u64,
    /// Time after which a file is closed.
    pub file_time: Duration,
    /// Acknowledgement level of the events of a file that has its final name.
    pub level: AcknowledgementLevel,
    /// Limits on the use of the directory's file system; `None`: until it has no room left.
    pub room: Option<RoomLimits>,
    /// Time after which a disk that rejects everything is given up while the run drains.
    pub give_up_after: Duration,
}

/// Maximum number of lumisections whose events are gathered at once: the next one begins while the last events of an
/// earlier one are built.
const OPEN: usize = 4;
/// Maximum number of files that may be with the disk at once.
const CLOSING: usize = 8;
/// Directory of files that do not have their final names yet.
const OPEN_DIRECTORY: &str = "open";

/// The event files of one builder unit; see the picture above.
pub struct EventFiles<D: Disk> {
    disk: D,
    config: EventFilesConfig,
    staging: Staging,
    run: RunNumber,
    /// The directory of the run, and that of files without their final names.
    directory: PathBuf,
    open_directory: PathBuf,
    next_index: u32,
    /// Files that events are added to, each of another lumisection; the oldest first.
    open: Vec<EventFile>,
    closing: VecDeque<EventFile>,
    spare: Vec<EventFile>,
    /// Documents of lumisections and run, and legends.
    documents: VecDeque<WholeFile>,
    spare_documents: Vec<WholeFile>,
    lumisections: Lumisections,
    room: Room,
    counts: StorageCounts,
    completions: Vec<Completion>,
    /// Scratch memory for one event or one document.
    pieces: Vec<Slice>,
    header: Vec<u8>,
    text: String,
    /// Since when the run drains.
    draining: Option<Instant>,
    given_up: bool,
    /// Whether no further events will be added.
    finishing: bool,
    /// Whether the document of the run's end is written, or with the disk.
    is_ended: bool,
}

impl<D: Disk> EventFiles<D> {
    /// Creates files that are written through `disk`. Headers and documents are staged in `staging`.
    pub fn new(disk: D, config: EventFilesConfig, staging: Staging) -> Self {
        Self {
            disk,
            room: Room::new(config.room),
            config,
            staging,
            run: RunNumber(0),
            directory: PathBuf::new(),
            open_directory: PathBuf::new(),
            next_index: 0,
            open: Vec::with_capacity(OPEN),
            closing: VecDeque::with_capacity(CLOSING + OPEN),
            spare: vec![EventFile::new(), EventFile::new()],
            documents: VecDeque::with_capacity(2 * OPEN),
            spare_documents: (0..OPEN).map(|_| WholeFile::new(1)).collect(),
            lumisections: Lumisections::default(),
            counts: StorageCounts::default(),
            completions: Vec::with_capacity(16),
            pieces: Vec::with_capacity(4096),
            header: Vec::with_capacity(64),
            text: String::with_capacity(1024),
            draining: None,
            given_up: false,
            finishing: false,
            is_ended: false,
        }
    }

    /// Accounts for a file of an earlier incarnation.
    fn recall(&mut self, name: FileName, unnamed: &[String]) {
        let path = self.directory.join(name.to_string());
        match name.kind {
            FileKind::Raw { index } => self.next_index = self.next_index.max(index + 1),
            FileKind::Account { index } => {
                self.next_index = self.next_index.max(index + 1);
                let raw = FileName { kind: FileKind::Raw { index }, ..name }.to_string();
                if unnamed.contains(&raw) {
                    return self.disk.remove(&path, 0);
                }
                let written: Option<RawFile> = self.disk.read(&path).ok().and_then(|text| parse_numbers(&text));
                if let Some(RawFile { events, bytes }) = written {
                    self.lumisections.file_written(name.lumisection, events, bytes);
                }
            }
            FileKind::EndOfLumisection => {
                let written = self.disk.read(&path).ok().and_then(|text| parse_numbers(&text));
                self.lumisections.closed_before(name.lumisection, &written.unwrap_or_default());
            }
            FileKind::EndOfRun => self.is_ended = true,
        }
    }

    /// Adds an event of a lumisection: its number, and its fragments back to back.
    pub fn add(
        &mut self,
        now: Instant,
        slot: u32,
        lumisection: u32,
        number: u64,
        fragments: impl Iterator<Item = Slice>,
    ) -> Filed {
        // The remaining events of an ending run are written for as long as the disk takes them.
        if self.room.is_short() && self.draining.is_none() {
            return Filed::NoRoom;
        }
        let Some(place) = self.ready(now, lumisection) else { return Filed::NoRoom };
        self.pieces.clear();
        self.pieces.extend(fragments);
        let data_bytes: usize = self.pieces.iter().map(|piece| piece.len()).sum();
        let version = self.config.version;
        let header = EventHeader {
            version,
            flags: 0,
            run: self.run.0,
            lumisection,
            event: number,
            data_bytes: u32::try_from(data_bytes).unwrap_or(u32::MAX),
            padding_bytes: 0,
            checksum: checksum_of(version, self.pieces.iter().map(|piece| &piece[..])),
        };
        self.header.clear();
        let is_too_large = u32::try_from(data_bytes).is_err();
        if is_too_large || header.encode(&mut self.header).is_err() {
            self.pieces.clear();
            return Filed::Refused(if is_too_large { Cause::TooLarge } else { Cause::WriteFailed });
        }
        let Some(staged) = self.staging.write(&self.header) else {
            self.pieces.clear();
            return Filed::NoRoom;
        };
        self.open[place].add(slot, header.event_bytes(), staged, &mut self.pieces);
        Filed::Taken
    }

    /// Makes sure that there is a file with room for an event of the lumisection. Returns its place among the open
    /// ones.
    fn ready(&mut self, now: Instant, lumisection: u32) -> Option<usize> {
        let known = self.open.iter().position(|file| file.lumisection == lumisection);
        match known {
            Some(place) if !self.is_due(now, &self.open[place]) => return Some(place),
            Some(place) if !self.close_file(place) => return None,
            None if self.open.len() == OPEN && !self.close_file(0) => return None,
            _ => {}
        }
        if self.closing.len() >= CLOSING {
            return None;
        }
        let mut file = self.spare.pop().unwrap_or_else(EventFile::new);
        let index = self.next_index;
        self.next_index += 1;
        let name = |kind| FileName { run: self.run, lumisection, kind };
        file.raw.begin(&self.directory, &self.open_directory, name(FileKind::Raw { index }));
        file.account.begin(&self.directory, &self.open_directory, name(FileKind::Account { index }));
        file.begin(now, lumisection);
        self.lumisections.begin_file(lumisection);
        self.open.push(file);
        Some(self.open.len() - 1)
    }

    /// Returns whether a file should be closed before another event.
    fn is_due(&self, now: Instant, file: &EventFile) -> bool {
        let EventFilesConfig { file_events, file_bytes, file_time, .. } = self.config;
        file.events >= file_events.into() || file.bytes >= file_bytes || now.since(file.opened) >= file_time
    }

    /// Closes an open file. Returns false if there is no room for its header now.
    fn close_file(&mut self, place: usize) -> bool {
        let EventFile { events, bytes, .. } = self.open[place];
        self.text.clear();
        render_numbers(&RawFile { events, bytes }, &self.config.writer, &mut self.text);
        let header = FileHeader { events: events as u32, file_bytes: bytes }.to_bytes();
        let Some(header) = self.staging.write(&header) else { return false };
        let Some(account) = self.staging.write(self.text.as_bytes()) else { return false };
        let mut file = self.open.remove(place);
        file.close(header, account);
        self.closing.push_back(file);
        true
    }

    fn take(&mut self, now: Instant, completion: &mut Completion) {
        let is_refused = match completion {
            Completion::Created { result, .. } | Completion::Published { result, .. } => result.is_err(),
            Completion::AppendFailed { .. } => true,
            Completion::Appended { .. }
            | Completion::Synced { .. }
            | Completion::Removed { .. }
            | Completion::LookedFor { .. } => false,
        };
        self.counts.refusals += u64::from(is_refused);
        let Self { closing, documents, .. } = self;
        let _ = closing.iter_mut().any(|file| file.take(now, completion))
            || documents.iter_mut().any(|document| document.take(now, completion));
    }

    /// Collects files that have their final names.
    fn collect(&mut self, progress: &mut Vec<(u32, Progress)>) {
        for _ in 0..self.documents.len() {
            let Some(document) = self.documents.pop_front() else { return };
            if document.is_done() {
                self.spare_documents.push(document);
            } else {
                self.documents.push_back(document);
            }
        }
        for _ in 0..self.closing.len() {
            let Some(mut file) = self.closing.pop_front() else { return };
            if file.has_reached() {
                let level = self.config.level;
                progress.extend(file.slots.drain(..).map(|slot| (slot, Progress::Reached(level))));
            }
            if !file.is_done() {
                self.closing.push_back(file);
                continue;
            }
            self.lumisections.file_written(file.lumisection, file.events, file.bytes);
            self.counts.events += file.events;
            self.counts.segments += 1;
            self.counts.bytes += file.bytes;
            self.spare.push(file);
        }
    }

    /// Closes old files, the files of finished lumisections, and these lumisections.
    fn close_what_is_due(&mut self, now: Instant) {
        for place in (0..self.open.len()).rev() {
            let file = &self.open[place];
            if self.finishing || self.is_due(now, file) || self.lumisections.is_over(file.lumisection) {
                self.close_file(place);
            }
        }
        if self.finishing && self.open.is_empty() && self.closing.is_empty() {
            self.lumisections.close_all();
        }
        while let Some((lumisection, written)) = self.lumisections.next_to_close() {
            let name = FileName { run: self.run, lumisection, kind: FileKind::EndOfLumisection };
            self.text.clear();
            render_numbers(&written, &self.config.writer, &mut self.text);
            if !self.document(name) {
                return;
            }
            self.lumisections.closed(lumisection);
        }
    }

    /// Begins a document with this name and the prepared text. Returns false if there is no room for it now.
    fn document(&mut self, name: impl Display) -> bool {
        let Some(text) = self.staging.write(self.text.as_bytes()) else { return false };
        let mut document = self.spare_documents.pop().unwrap_or_else(|| WholeFile::new(1));
        document.begin(&self.directory, &self.open_directory, name);
        document.data.push(text);
        document.close();
        self.documents.push_back(document);
        true
    }

    fn legend<N: Numbers>(&mut self) {
        self.text = render_legend::<N>();
        // Before anything is gathered there is room.
        self.document(N::LEGEND);
    }

    /// Drops everything that the disk has not taken; its events have failed. Operations already with the disk run to
    /// their end.
    fn give_up(&mut self, progress: &mut Vec<(u32, Progress)>) {
        self.closing.extend(self.open.drain(..));
        for _ in 0..self.closing.len() {
            let Some(mut file) = self.closing.pop_front() else { return };
            if file.is_with_disk() {
                self.closing.push_back(file);
                continue;
            }
            file.give_up();
            progress.extend(file.slots.drain(..).map(|slot| (slot, Progress::Failed)));
            self.spare.push(file);
        }
    }

    /// Returns the oldest current refusal of the disk and its time, or that the disk is full if no operation is
    /// pending.
    fn refusal(&self) -> Option<(DiskCause, Instant)> {
        let files = self.closing.iter().filter_map(EventFile::refusal);
        files.chain(self.documents.iter().filter_map(WholeFile::refusal)).min_by_key(|&(_, since)| since)
    }

    /// Returns when the disk is given up if it continues to refuse.
    fn give_up_at(&self) -> Option<Instant> {
        let (draining, (_, since)) = (self.draining?, self.refusal()?);
        (!self.given_up).then(|| since.max(draining).after(self.config.give_up_after))
    }
}

impl<D: Disk> EventSink for EventFiles<D> {
    fn add_event(&mut self, now: Instant, slot: u32, event: &SinkEvent<'_>, _: StreamSet) -> Filed {
        // Event files are only written without a farm.
        let SinkEvent::Built(decided) = event else { return Filed::Refused(Cause::WriteFailed) };
        if self.given_up {
            return Filed::Refused(Cause::WriteFailed);
        }
        let event = decided.event();
        let fragments = event.fragments().flat_map(|fragment| fragment.payload.clone().into_slices());
        self.add(now, slot, event.lumisection, event.key.number(), fragments)
    }

    fn end_lumisection(&mut self, lumisection: u32, total: LumisectionTotal) {
        self.lumisections.close(lumisection, total);
    }

    fn begin(&mut self, _: Instant, run: RunNumber, _: Incarnation) {
        self.run = run;
        self.directory = self.config.directory.join(run_directory_name(run));
        self.open_directory = self.directory.join(OPEN_DIRECTORY);
        (self.lumisections, self.counts) = (Lumisections::default(), StorageCounts::default());
        (self.draining, self.given_up, self.next_index) = (None, false, 0);
        (self.finishing, self.is_ended) = (false, false);
        let unnamed = self.disk.enter_directory(&self.open_directory);
        let names = self.disk.enter_directory(&self.directory);
        let known = |name: &String| name.parse::<FileName>().ok().filter(|name| name.run == run);
        let mut files: Vec<FileName> = names.iter().filter_map(known).collect();
        // The end document of a lumisection sorts behind its files.
        files.sort_unstable();
        for name in files {
            self.recall(name, &unnamed);
        }
        // Removed after their documents: an incarnation that dies in between must not leave a document that seems to
        // belong to a file.
        for name in &unnamed {
            self.disk.remove(&self.open_directory.join(name), 0);
        }
        if !names.iter().any(|name| name == EndOfRun::LEGEND) {
            self.legend::<RawFile>();
            self.legend::<EndOfLumisection>();
            self.legend::<EndOfRun>();
        }
    }

    fn flush(&mut self, now: Instant) {
        if self.given_up {
            return;
        }
        let Self { closing, documents, disk, .. } = self;
        closing.iter_mut().for_each(|file| file.flush(now, disk));
        documents.iter_mut().for_each(|document| document.flush(now, disk, true));
    }

    fn poll(&mut self, now: Instant, progress: &mut Vec<(u32, Progress)>) -> usize {
        let mut completions = std::mem::take(&mut self.completions);
        let work = self.disk.poll(&mut completions);
        for mut completion in completions.drain(..) {
            self.take(now, &mut completion);
        }
        self.completions = completions;
        self.collect(progress);
        if self.give_up_at().is_some_and(|deadline| now >= deadline) {
            self.given_up = true;
        }
        if self.given_up {
            self.give_up(progress);
        } else if self.run != RunNumber(0) {
            self.close_what_is_due(now);
            self.flush(now);
            self.room.look(now, &mut self.disk, std::iter::once(self.directory.as_path()));
        }
        self.counts.refused = self.refusal().map(|(cause, _)| cause);
        work
    }

    fn drain(&mut self, now: Instant) {
        self.draining.get_or_insert(now);
    }

    fn finish(&mut self, now: Instant) {
        self.drain(now);
        self.finishing = true;
        if self.given_up || self.run == RunNumber(0) {
            return;
        }
        self.close_what_is_due(now);
        // The run is closed after everything else.
        let is_alone = self.open.is_empty() && self.closing.is_empty() && self.documents.is_empty();
        if is_alone
            && !self.is_ended
            && let Some(end) = self.lumisections.end_of_run()
        {
            let name = FileName { run: self.run, lumisection: 0, kind: FileKind::EndOfRun };
            self.text.clear();
            render_numbers(&end, &self.config.writer, &mut self.text);
            self.is_ended = self.document(name);
        }
        self.flush(now);
    }

    fn is_closed(&self) -> bool {
        let is_whole = self.is_ended && self.documents.is_empty() && self.closing.is_empty();
        self.run == RunNumber(0) || is_whole || self.given_up && self.closing.is_empty()
    }

    fn has_given_up(&self) -> bool {
        self.given_up
    }

    fn counts(&self) -> StorageCounts {
        let full = self.room.is_short().then_some(DiskCause::Full);
        StorageCounts {
            refused: self.counts.refused.or(full),
            restored_files: self.disk.restored_files(),
            ..self.counts
        }
    }

    fn copied_bytes(&self) -> u64 {
        self.disk.copied_bytes()
    }

    fn is_writing(&self) -> bool {
        self.disk.queued_bytes() > 0
    }

    fn pool(&mut self) -> PoolAccount {
        self.staging.pool_mut().collect();
        self.staging.pool().account()
    }

    fn next_deadline(&self) -> Option<Instant> {
        let old = self.open.iter().map(|file| file.opened.after(self.config.file_time));
        let retries = self.closing.iter().filter_map(EventFile::retry);
        let documents = self.documents.iter().filter_map(WholeFile::retry);
        let others = self.disk.next_deadline().into_iter().chain(self.give_up_at()).chain(self.room.next_deadline());
        old.chain(retries).chain(documents).chain(others).min()
    }

    fn prepare_wait(&mut self) -> bool {
        self.disk.prepare_wait()
    }

    fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.disk.wait_descriptor()
    }
}

/// A lumisection that is not closed yet.
#[derive(Debug, Default)]
struct Open {
    written: EndOfLumisection,
    /// Number of files without their final names.
    unnamed: u32,
    /// Its totals, once no further events of it will come.
    total: Option<LumisectionTotal>,
}

/// The lumisections of a run.
#[derive(Debug, Default)]
struct Lumisections {
    open: BTreeMap<u32, Open>,
    closed: BTreeSet<u32>,
    run: EndOfRun,
}

impl Lumisections {
    /// Records that a file is begun.
    fn begin_file(&mut self, lumisection: u32) {
        self.open.entry(lumisection).or_default().unnamed += 1;
    }

    /// Records that a file has its final name.
    fn file_written(&mut self, lumisection: u32, events: u64, bytes: u64) {
        let open = self.open.entry(lumisection).or_default();
        open.unnamed = open.unnamed.saturating_sub(1);
        open.written.events += events;
        open.written.files += 1;
        open.written.bytes += bytes;
    }

    /// Records that an earlier incarnation closed it, with these totals.
    fn closed_before(&mut self, lumisection: u32, written: &EndOfLumisection) {
        self.open.remove(&lumisection);
        self.add(lumisection, written);
    }

    /// Ends a lumisection. A second call has no effect.
    fn close(&mut self, lumisection: u32, total: LumisectionTotal) {
        if !self.closed.contains(&lumisection) {
            self.open.entry(lumisection).or_default().total = Some(total);
        }
    }

    /// Returns whether the lumisection gets no further events.
    fn is_over(&self, lumisection: u32) -> bool {
        self.open.get(&lumisection).is_none_or(|open| open.total.is_some())
    }

    /// Marks every lumisection as over. For one that was not closed, only this builder unit's own events are known.
    fn close_all(&mut self) {
        for open in self.open.values_mut() {
            let events = open.written.events;
            open.total.get_or_insert(LumisectionTotal { events, lost: 0 });
        }
    }

    /// Returns the first lumisection that is over and whose files all have their final names, with its totals.
    fn next_to_close(&self) -> Option<(u32, EndOfLumisection)> {
        let is_ready = |open: &Open| open.unnamed == 0;
        let (&lumisection, open) = self.open.iter().find(|(_, open)| open.total.is_some() && is_ready(open))?;
        let LumisectionTotal { events, lost } = open.total?;
        Some((lumisection, EndOfLumisection { total_events: events, lost_events: lost, ..open.written }))
    }

    /// Records that its document is being written.
    fn closed(&mut self, lumisection: u32) {
        if let Some(open) = self.open.remove(&lumisection) {
            self.add(lumisection, &open.written);
        }
    }

    fn add(&mut self, lumisection: u32, written: &EndOfLumisection) {
        self.closed.insert(lumisection);
        self.run.events += written.events;
        self.run.files += written.files;
        self.run.lumisections += u64::from(written.files > 0);
        self.run.last_lumisection = self.run.last_lumisection.max(lumisection.into());
    }

    /// Returns the totals of the run, once every lumisection is closed.
    fn end_of_run(&self) -> Option<EndOfRun> {
        self.open.is_empty().then_some(self.run)
    }
}
