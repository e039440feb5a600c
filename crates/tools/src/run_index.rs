//! The events of many segments: where every copy of every event is, one copy per key in the order of the keys
//! ([`OrderedReader`]), or all of them in the order of the files ([`RunReader`]).
//!
//! An event that went to several streams is in each of them: within one stream the same key is a repetition.

use super::segment::SegmentBytes;
use super::{FooterState, Found, OfflineError, SegmentFile, SegmentReader, SegmentScan, segment_files};
use ropewalk_terms::{Attempt, Fact, Facts, Incarnation, RunNumber};
use ropewalk_wire::run_file::{EventFlags, EventView, IndexEntry, Record, SourceEntry, StreamName};
use std::cmp::Reverse;
use std::iter::repeat_with;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{thread, vec};

/// Bytes that are read at once while events follow each other in a file.
const WINDOW_BYTES: usize = 1 << 20;
/// A record this many bytes after the previous one still counts as following it.
const NEAR_BYTES: u64 = 1 << 18;
/// Files that are held open at once: builder units that wrote at the same time.
const OPEN_FILES: usize = 32;

/// One copy of an event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EventCopy {
    /// Which of [`RunIndex::files`] holds it.
    pub file: u32,
    /// Its place in the file, and what is needed to choose among copies.
    pub entry: IndexEntry,
}

impl EventCopy {
    /// Among the copies of a key the one with the highest value is valid. A complete one comes first: a later attempt
    /// may lack a readout unit that was lost meanwhile.
    fn preference(&self) -> (bool, Attempt, Incarnation) {
        let IndexEntry { flags, attempt, incarnation, .. } = self.entry;
        (!EventFlags(flags.into()).contains(EventFlags::INCOMPLETE), attempt, incarnation)
    }
}

/// Everything that some run directories hold together.
#[derive(Debug)]
pub struct RunIndex {
    files: Vec<SegmentFile>,
    scans: Vec<SegmentScan>,
    copies: Vec<EventCopy>,
    streams: Vec<StreamContent>,
}

/// What a stream of the run holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StreamContent {
    /// Its name; empty if the run was not divided.
    pub name: StreamName,
    /// Events, each key once.
    pub events: u64,
    /// Further copies of their keys in the same stream.
    pub duplicates: u64,
    /// Not every event was meant to come here.
    pub selected: bool,
}

impl RunIndex {
    /// Reads every segment in these directories or files once, several at the same time.
    ///
    /// # Errors
    /// If there is no segment, a file cannot be read, or segments of several runs lie there.
    pub fn build<P: AsRef<Path>>(places: &[P]) -> Result<Self, OfflineError> {
        let files = segment_files(places)?;
        let mut scans = scan_all(&files)?;
        expect_one_run(&files, &scans)?;
        let mut copies = Vec::with_capacity(scans.iter().map(|scan| scan.events.len()).sum());
        for (file, scan) in scans.iter_mut().enumerate() {
            let entries = std::mem::take(&mut scan.events);
            copies.extend(entries.into_iter().map(|entry| EventCopy { file: file as u32, entry }));
        }
        // The sort is stable: of equal copies the first in the order of the files is kept.
        copies.sort_by_key(|copy| (copy.entry.key, Reverse(copy.preference())));
        let streams = streams(&files, &scans, &copies);
        Ok(Self { files, scans, copies, streams })
    }

    /// The segments, in the order of their names.
    pub fn files(&self) -> &[SegmentFile] {
        &self.files
    }

    /// What was found in each segment; the event records were moved to [`RunIndex::copies`].
    pub fn scans(&self) -> &[SegmentScan] {
        &self.scans
    }

    /// The run, if a segment's header is readable.
    pub fn run(&self) -> Option<RunNumber> {
        self.scans.iter().find_map(|scan| scan.header.as_ref()).map(|header| header.run)
    }

    /// What could not be read, or is not sure to be whole.
    pub(super) fn facts(&self) -> Facts {
        let of_files = self.files.iter().zip(&self.scans).flat_map(|(file, scan)| {
            let is_wrong = !file.open && scan.footer != FooterState::Right;
            [
                (Fact::CrcErrors, scan.crc_errors),
                (Fact::Malformed, scan.malformed),
                (Fact::DamagedBytes, scan.damaged_bytes),
                (Fact::WrongFooters, u64::from(is_wrong)),
                (Fact::UnfinishedSegments, u64::from(file.open)),
            ]
        });
        Facts::default().with(of_files)
    }

    /// The sources that any segment names, each once, in the order of the first segment that names it.
    pub fn sources(&self) -> Vec<SourceEntry> {
        let mut sources: Vec<SourceEntry> = Vec::new();
        for source in self.scans.iter().filter_map(|scan| scan.header.as_ref()).flat_map(|header| &header.sources) {
            if !sources.iter().any(|known| known.id == source.id) {
                sources.push(source.clone());
            }
        }
        sources
    }

    /// Every copy of every event, in the order of the keys, the one that counts before the others.
    pub fn copies(&self) -> &[EventCopy] {
        &self.copies
    }

    /// What each stream holds, in the order of their names.
    pub fn streams(&self) -> &[StreamContent] {
        &self.streams
    }

    /// The copies that count: one per key over all streams; a complete one before incomplete ones, then the highest
    /// attempt, then the highest incarnation.
    pub fn events(&self) -> impl Iterator<Item = &EventCopy> {
        self.copies.chunk_by(|left, right| left.entry.key == right.entry.key).map(|copies| &copies[0])
    }

    /// Reads the copies that count in the order of their keys.
    pub fn reader(&self) -> OrderedReader<'_> {
        OrderedReader { index: self, next: 0, windows: Vec::new(), clock: 0 }
    }
}

/// Counts what each stream holds; `copies` are in the order of their keys.
fn streams(files: &[SegmentFile], scans: &[SegmentScan], copies: &[EventCopy]) -> Vec<StreamContent> {
    let names: Vec<StreamName> = files.iter().zip(scans).map(|(file, scan)| scan.stream(file)).collect();
    let mut streams: Vec<StreamContent> = Vec::new();
    for (&name, scan) in names.iter().zip(scans) {
        let selected = scan.header.as_ref().is_some_and(|header| header.selected);
        match streams.iter_mut().find(|stream| stream.name == name) {
            Some(stream) => stream.selected |= selected,
            None => streams.push(StreamContent { name, events: 0, duplicates: 0, selected }),
        }
    }
    streams.sort_unstable_by_key(|stream| stream.name);
    let place = |name| streams.binary_search_by_key(name, |stream| stream.name).unwrap_or_default();
    let places: Vec<usize> = names.iter().map(place).collect();
    // The last key that was counted in each stream.
    let mut last = vec![None; streams.len()];
    for copy in copies {
        let place = places[copy.file as usize];
        if last[place].replace(copy.entry.key) == Some(copy.entry.key) {
            streams[place].duplicates += 1;
        } else {
            streams[place].events += 1;
        }
    }
    streams
}

/// Scans the files, on all cores.
fn scan_all(files: &[SegmentFile]) -> Result<Vec<SegmentScan>, OfflineError> {
    let next = AtomicUsize::new(0);
    let take = || {
        let places = repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|&place| place < files.len());
        places.map(|place| (place, SegmentScan::of(&files[place].path))).collect::<Vec<_>>()
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(files.len());
    let mut scans: Vec<(usize, Result<SegmentScan, OfflineError>)> = thread::scope(|scope| {
        let handles: Vec<_> = (1..workers).map(|_| scope.spawn(take)).collect();
        let mut scans = take();
        for handle in handles {
            match handle.join() {
                Ok(done) => scans.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        scans
    });
    scans.sort_by_key(|(place, _)| *place);
    scans.into_iter().map(|(_, scan)| scan).collect()
}

fn expect_one_run(files: &[SegmentFile], scans: &[SegmentScan]) -> Result<(), OfflineError> {
    let mut expected = None;
    for (file, scan) in files.iter().zip(scans) {
        let found = scan.header.as_ref().map(|header| header.run).or(file.name.map(|name| name.run));
        match (expected, found) {
            (Some(expected), Some(found)) if found != expected => {
                return Err(OfflineError::SeveralRuns { path: file.path.clone(), found, expected });
            }
            (None, _) => expected = found,
            _ => {}
        }
    }
    Ok(())
}

/// Reads events in the order of their keys, with any order in the files.
#[derive(Debug)]
pub struct OrderedReader<'a> {
    index: &'a RunIndex,
    /// The index of the next key's first copy.
    next: usize,
    windows: Vec<Window>,
    clock: u64,
}

impl OrderedReader<'_> {
    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// If a file cannot be read or was changed since it was indexed.
    pub fn next_event(&mut self) -> Result<Option<RunEvent<'_>>, OfflineError> {
        let Some(&EventCopy { file, entry }) = self.index.copies.get(self.next) else { return Ok(None) };
        self.next += self.index.copies[self.next..].iter().take_while(|copy| copy.entry.key == entry.key).count();
        let path = &self.index.files[file as usize].path;
        self.clock += 1;
        let window = window_of(&mut self.windows, file, path, self.clock)?;
        let bytes = window.read(entry.offset, entry.length as usize).map_err(OfflineError::system("read", path))?;
        let changed = || OfflineError::Changed { path: path.clone() };
        let record = Record::parse_unchecked(bytes).map_err(|_| changed())?;
        let event = EventView::parse(&record).map_err(|_| changed())?;
        if event.key() != entry.key {
            return Err(changed());
        }
        let sources = self.index.scans[file as usize].header.as_ref().map_or(&[][..], |header| &header.sources);
        Ok(Some(RunEvent { event, path, offset: entry.offset, sources }))
    }
}

/// The window on a file; opens it in place of the least recently used one.
fn window_of<'a>(
    windows: &'a mut Vec<Window>,
    file: u32,
    path: &Path,
    clock: u64,
) -> Result<&'a mut Window, OfflineError> {
    let place = match windows.iter().position(|window| window.file == file) {
        Some(place) => place,
        None => {
            if windows.len() == OPEN_FILES {
                let oldest = (0..OPEN_FILES).min_by_key(|&place| windows[place].used).unwrap_or(0);
                windows.swap_remove(oldest);
            }
            windows.push(Window::open(file, path)?);
            windows.len() - 1
        }
    };
    windows[place].used = clock;
    Ok(&mut windows[place])
}

/// A stretch of a file in memory, moved forward while events follow each other.
#[derive(Debug)]
struct Window {
    file: u32,
    handle: SegmentBytes,
    /// The bytes, and their offset in the file.
    bytes: Vec<u8>,
    start: u64,
    /// A single record from elsewhere: reading around it would be wasted.
    single: Vec<u8>,
    /// The end of what was asked for last; `None` before the first.
    last_end: Option<u64>,
    used: u64,
}

impl Window {
    fn open(file: u32, path: &Path) -> Result<Self, OfflineError> {
        let handle = SegmentBytes::open(path).map_err(OfflineError::system("open", path))?;
        Ok(Self { file, handle, bytes: Vec::new(), start: 0, single: Vec::new(), last_end: None, used: 0 })
    }

    /// `length` bytes from `offset`; fewer at the end of the file.
    fn read(&mut self, offset: u64, length: usize) -> std::io::Result<&[u8]> {
        let last_end = self.last_end.unwrap_or(offset);
        self.last_end = Some(offset + length as u64);
        let held = self.start..self.start + self.bytes.len() as u64;
        if !(held.contains(&offset) && offset + length as u64 <= held.end) {
            if offset < last_end || offset - last_end > NEAR_BYTES {
                read_at(&mut self.handle, offset, length, &mut self.single)?;
                return Ok(&self.single);
            }
            read_at(&mut self.handle, offset, length.max(WINDOW_BYTES), &mut self.bytes)?;
            self.start = offset;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.bytes[from..self.bytes.len().min(from + length)])
    }
}

/// Fills `bytes` with up to `length` bytes from `offset` on.
fn read_at(file: &mut SegmentBytes, offset: u64, length: usize, bytes: &mut Vec<u8>) -> std::io::Result<()> {
    bytes.resize(length, 0);
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(())
}

/// An event, in the window.
#[derive(Debug)]
pub struct RunEvent<'a> {
    /// The event.
    pub event: EventView<'a>,
    /// The file.
    pub path: &'a Path,
    /// The offset of its record in the file, in bytes.
    pub offset: u64,
    /// The run's sources, if the segment's header is readable.
    pub sources: &'a [SourceEntry],
}

/// Reads every event record of some run directories or files.
///
/// The order is that of the files, and a key may come twice: [`RunIndex`](super::RunIndex) gives one copy per key in
/// the order of the keys. Damaged bytes are stepped over and counted.
#[derive(Debug)]
pub struct RunReader {
    files: vec::IntoIter<SegmentFile>,
    segment: Option<SegmentReader>,
    damaged_bytes: u64,
}

impl RunReader {
    /// A reader of everything in these directories or files.
    ///
    /// # Errors
    /// If there is no segment.
    pub fn open<P: AsRef<Path>>(places: &[P]) -> Result<Self, OfflineError> {
        Ok(Self { files: segment_files(places)?.into_iter(), segment: None, damaged_bytes: 0 })
    }

    /// Bytes that were stepped over because no record could be read there.
    pub const fn damaged_bytes(&self) -> u64 {
        self.damaged_bytes
    }

    /// The next event; `None` after the last.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn next_event(&mut self) -> Result<Option<RunEvent<'_>>, OfflineError> {
        let offset = loop {
            let Some(segment) = &mut self.segment else {
                let Some(file) = self.files.next() else { return Ok(None) };
                self.segment = Some(SegmentReader::open(&file.path)?);
                continue;
            };
            match segment.advance()? {
                None => self.segment = None,
                Some(Found::Damaged { bytes, .. }) => self.damaged_bytes += bytes,
                Some(Found::Record { offset }) => {
                    if segment.record().is_some_and(|record| EventView::parse(&record).is_ok()) {
                        break offset;
                    }
                }
            }
        };
        Ok(self.segment.as_ref().and_then(|segment| {
            let event = EventView::parse(&segment.record()?).ok()?;
            let sources = segment.header().map_or(&[][..], |header| &header.sources);
            Some(RunEvent { event, path: segment.path(), offset, sources })
        }))
    }
}
