//! Tests of the offline tools, and the little runs that they work on.

mod cms;
mod inspecting;
mod packed;
mod reading;
mod recovering;
mod verifying;

use ropewalk_terms::{AcknowledgementLevel, Attempt, EventKey, Incarnation, NodeId, RunNumber, SourceId, Utc};
use ropewalk_wire::fed;
use ropewalk_wire::run_file::{
    BeginOfRun, CHECKSUM_EXTENSION, Checksum, ClockDomain, EndOfRun, EventFlags, EventHead, FragmentEntry,
    FragmentFlags, MINOR_VERSION, MissingSource, SegmentHeader, SegmentIndex, SegmentName, SourceEntry, SourceFormat,
    StreamName, encode_event,
};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Two FED sources and one of generic fragments.
const FED: SourceId = SourceId(841);
const OTHER_FED: SourceId = SourceId(843);
const GENERIC: SourceId = SourceId(7);

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // In memory where that exists: recovery syncs, and the tests do it a thousand times.
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("ropewalk-offline-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("the temporary directory is writable");
        path
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}; there are {:?}", self.names()))
    }

    /// Every file but checksums, which have a test of their own.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the directory is there");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.ends_with(CHECKSUM_EXTENSION));
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An event as a test describes it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Event {
    key: EventKey,
    attempt: u16,
    incarnation: u64,
    missing: Vec<u32>,
    fragments: Vec<(SourceId, Vec<u8>)>,
}

/// An event with one generic fragment of these bytes.
fn event(number: u64, attempt: u16, payload: &[u8]) -> Event {
    event_of(number, attempt, vec![(GENERIC, payload.to_vec())])
}

fn event_of(number: u64, attempt: u16, fragments: Vec<(SourceId, Vec<u8>)>) -> Event {
    Event { key: EventKey::new(0, number), attempt, incarnation: 1, missing: Vec::new(), fragments }
}

fn fed_fragment(number: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    fed::encode(fed::Header::new(FED, number, 100), payload, fed::Trailer::new(), &mut bytes).expect("whole words");
    bytes
}

/// A segment in memory, and where each of its events lies.
struct Segment {
    bytes: Vec<u8>,
    events: Vec<Range<usize>>,
    index: SegmentIndex,
}

impl Segment {
    fn new(run: u32, segment: u32, events: &[Event]) -> Self {
        Self::of_stream(StreamName::UNNAMED, run, segment, events)
    }

    /// A segment of a stream, which takes a selection of the events where it has a name.
    fn of_stream(stream: StreamName, run: u32, segment: u32, events: &[Event]) -> Self {
        let mut bytes = Vec::new();
        let header = SegmentHeader {
            run: RunNumber(run),
            segment,
            writer: NodeId::builder(0),
            incarnation: Incarnation(1),
            start: Utc(0),
            acknowledgement: AcknowledgementLevel::Written,
            minor: MINOR_VERSION,
            stream,
            selected: !stream.is_unnamed(),
            sources: vec![
                SourceEntry { id: FED, format: SourceFormat::FED, name: "chambers".to_owned() },
                SourceEntry { id: OTHER_FED, format: SourceFormat::FED, name: "more chambers".to_owned() },
                SourceEntry { id: GENERIC, format: SourceFormat::GENERIC, name: "counter".to_owned() },
            ],
        };
        header.encode(&mut bytes).expect("the header is short");
        let begin = BeginOfRun { run: RunNumber(run), start: Utc(0), text: "version = 1".to_owned() };
        begin.encode(&mut bytes).expect("the record is short");
        let mut built = Self { bytes, events: Vec::new(), index: SegmentIndex::with_capacity(events.len()) };
        for event in events {
            built.add(event);
        }
        built
    }

    fn add(&mut self, event: &Event) {
        let flags = if event.missing.is_empty() { EventFlags::default() } else { EventFlags::INCOMPLETE };
        let head = EventHead {
            key: event.key,
            incarnation: Incarnation(event.incarnation),
            attempt: Attempt(event.attempt),
            trigger_type: 0,
            flags,
        };
        let missing: Vec<MissingSource> =
            event.missing.iter().map(|&source| MissingSource { source: SourceId(source), cause: 14 }).collect();
        let fragments: Vec<(FragmentEntry, &[u8])> =
            event.fragments.iter().map(|(source, payload)| (fragment(*source, event), &payload[..])).collect();
        let offset = self.bytes.len();
        let entry = encode_event(&mut self.bytes, offset as u64, &head, &missing, &fragments).expect("it is short");
        self.index.push(entry);
        self.events.push(offset..self.bytes.len());
    }

    /// The segment without a footer, as a writer leaves it that is killed between two records.
    fn open(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    /// The segment with the end of the run and a footer.
    fn closed(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let last = self.index.entries().iter().map(|entry| entry.key).max();
        let end =
            EndOfRun { run: RunNumber(1), end: Utc(5), last, events: self.events.len() as u64, text: String::new() };
        end.encode(&mut bytes).expect("the record is short");
        let offset = bytes.len() as u64;
        self.index.encode(&mut bytes, offset, Utc(5), false).expect("the footer is short");
        bytes
    }
}

fn fragment(source: SourceId, event: &Event) -> FragmentEntry {
    FragmentEntry {
        source,
        flags: FragmentFlags::default(),
        raw_id: event.key.number(),
        raw_time: 0,
        time: 0,
        clock: ClockDomain::NONE,
        bunch_crossing: 0,
        trigger_type: 0,
        length: 0,
    }
}

fn name(writer: u16, segment: u32) -> String {
    stream_name(StreamName::UNNAMED, writer, segment)
}

fn stream_name(stream: StreamName, writer: u16, segment: u32) -> String {
    SegmentName { run: RunNumber(1), writer: NodeId::builder(writer), stream, segment }.to_string()
}

fn open_name(writer: u16, segment: u32) -> String {
    name(writer, segment) + ".open"
}
