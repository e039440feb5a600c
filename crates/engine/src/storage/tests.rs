//! Streams on a simulated disk. The simulator's campaign `storing` tests rejections, deaths and power cuts.

use super::*;
use crate::record::{Filed, Recorded};
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_memory::{Pool, PoolConfig};
use ropewalk_terms::AcknowledgementLevel::{Synced, Written};
use ropewalk_terms::{AcknowledgementLevel, Attempt, EventKey, NodeId, SourceId};
use ropewalk_wire::run_file::{
    Compression, DELETED_EXTENSION, EventFlags, EventHead, EventRecordEncoder, EventView, FragmentEntry, Item, Items,
    MissingSource, RecordKind, SegmentName, StreamName,
};

const RUN: RunNumber = RunNumber(1);
const STREAMS: [&str; 3] = ["physics", "calibration", "error"];
const SOURCE: SourceId = SourceId(7);

/// An event whose payload is derived from its number.
struct TestEvent {
    number: u64,
    payload: Vec<u8>,
}

impl TestEvent {
    fn new(number: u64, length: usize) -> Self {
        Self { number, payload: (0..length).map(|place| (number as usize + place) as u8).collect() }
    }
}

impl Recorded for TestEvent {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        let (key, flags) = (EventKey::new(0, self.number), EventFlags::default());
        EventHead { key, incarnation, attempt: Attempt(1), trigger_type: 0, flags }
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        std::iter::empty()
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        std::iter::once(FragmentEntry::bare(SOURCE, self.number, self.payload.len() as u32))
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        encoder.payload(&self.payload);
        staging.write(&self.payload).map(|slice| pieces.push(slice)).is_some()
    }
}

fn stream_names() -> [StreamName; 3] {
    STREAMS.map(|name| name.parse().expect("a stream's name"))
}

pub(super) fn config(level: AcknowledgementLevel) -> StorageConfig {
    StorageConfig {
        epoch: Utc(1),
        streams: stream_names().map(|name| StreamStorage { name, selected: true, ..StreamStorage::default() }).into(),
        level,
        sync_batches: level == AcknowledgementLevel::Synced,
        segment_bytes: 8 << 10,
        segment_events: 40,
        ..StorageConfig::new(NodeId::builder(0), "/data")
    }
}

fn storage(medium: &SimulatedStorage, clock: &SimulatedClock) -> Storage<SimulatedDisk> {
    let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
    let pool = Pool::new(PoolConfig::heap("records", 4 << 10, 64)).expect("there is memory");
    let mut storage = Storage::new(disk, config(AcknowledgementLevel::Written), Staging::new(pool));
    storage.begin(clock.now(), RUN, Incarnation(1));
    storage
}

fn streams(indices: &[u8]) -> StreamSet {
    indices.iter().copied().map(StreamIndex).collect()
}

/// Returns the numbers of the events in each file, by stream.
fn found(medium: &SimulatedStorage) -> Vec<(String, Vec<u64>)> {
    let file = |path: PathBuf| {
        let name: SegmentName = path.file_name()?.to_str()?.parse().ok()?;
        let bytes = medium.read(&path).ok()?;
        let events = Items::new(&bytes).filter_map(|item| match item {
            Item::Record { record, .. } if record.kind() == RecordKind::EVENT => {
                EventView::parse(&record).ok().map(|event| event.key().number())
            }
            _ => None,
        });
        Some((name.stream.to_string(), events.collect()))
    };
    medium.paths().into_iter().filter_map(file).collect()
}

#[test]
fn each_stream_has_its_own_segments_with_its_own_events() {
    let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, DiskFaults::default()));
    let mut storage = storage(&medium, &clock);
    let (mut progress, mut reached) = (Vec::new(), Vec::new());
    for (number, set) in [(1, streams(&[0])), (2, streams(&[0, 1])), (3, streams(&[1])), (4, streams(&[0, 1]))] {
        assert_eq!(storage.add(clock.now(), number as u32, &TestEvent::new(number, 100), set), Filed::Taken);
    }
    while !storage.is_closed() {
        storage.finish(clock.now());
        clock.advance(Duration::from_millis(1));
        storage.poll(clock.now(), &mut progress);
        reached.append(&mut progress);
    }
    let named = |name: &str, events: &[u64]| (name.to_owned(), events.to_vec());
    // A stream without events leaves a file that says so.
    assert_eq!(found(&medium), [named("calibration", &[2, 3, 4]), named("error", &[]), named("physics", &[1, 2, 4])]);
    assert_eq!(storage.streams().map(|counts| counts.events).collect::<Vec<_>>(), [3, 3, 0]);
    assert_eq!((storage.counts().events, storage.counts().segments), (6, 3));
    reached.sort_unstable();
    let written = |slot| (slot, Progress::Reached(AcknowledgementLevel::Written));
    assert_eq!(reached, [1, 2, 3, 4].map(written), "each once");
}

#[test]
fn an_event_is_taken_for_all_of_its_streams_or_for_none() {
    let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, DiskFaults::default()));
    let mut storage = storage(&medium, &clock);
    // Nothing is handed to the disk meanwhile: stream 0 is full when its segments wait to be closed.
    let mut number = 0;
    let mut add = |storage: &mut Storage<_>, set| {
        number += 1;
        storage.add(clock.now(), number, &TestEvent::new(number.into(), 500), set) == Filed::Taken
    };
    while add(&mut storage, streams(&[0])) {}
    assert!(!add(&mut storage, streams(&[0, 1])), "the first of its streams has no room");
    assert_eq!(storage.series[1].pending_events(), 0, "the other one was not given it either");
    assert!(add(&mut storage, streams(&[1])));
}

#[test]
fn streams_that_are_packed_have_threads_of_their_own() {
    let packed = |name, compression| StreamStorage { name, selected: true, compression, ..StreamStorage::default() };
    let [physics, calibration, error] = stream_names();
    let streams = vec![
        packed(physics, Compression::Zstd(1)),
        packed(calibration, Compression::None),
        packed(error, Compression::Lz4),
    ];
    let config = StorageConfig { streams, ..config(AcknowledgementLevel::Written) };
    assert_eq!(config.disk_threads(), 3);
    let threads = [0, 1, 2].map(|stream| config.new_file(StreamIndex(stream)).thread);
    assert_eq!(threads, [1, 0, 2]);
}

#[test]
fn a_disk_that_is_nearly_full_takes_nothing_more_until_there_is_room() {
    let faults = |capacity| DiskFaults { capacity, ..DiskFaults::default() };
    let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, faults(100 << 10)));
    let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
    let pool = Pool::new(PoolConfig::heap("records", 4 << 10, 64)).expect("there is memory");
    let room = Some(RoomLimits { least: 50 << 10, resume: 80 << 10 });
    let config = StorageConfig { room, ..config(AcknowledgementLevel::Written) };
    let mut storage = Storage::new(disk, config, Staging::new(pool));
    storage.begin(clock.now(), RUN, Incarnation(1));
    let (mut progress, mut number) = (Vec::new(), 0);
    let mut add = |storage: &mut Storage<SimulatedDisk>| {
        clock.advance(Duration::from_secs(1));
        storage.poll(clock.now(), &mut progress);
        number += 1;
        storage.add(clock.now(), number, &TestEvent::new(number.into(), 2000), streams(&[0])) == Filed::Taken
    };
    while add(&mut storage) {}
    let free = |capacity: u64| capacity - found_bytes(&medium);
    assert!(free(100 << 10) < 50 << 10 && free(100 << 10) > 40 << 10, "{} B are free", free(100 << 10));
    assert_eq!(storage.counts().refused, Some(DiskCause::Full), "the report says why the run waits");
    medium.set_faults(faults(120 << 10));
    assert!(!add(&mut storage), "there is not room enough yet");
    medium.set_faults(faults(160 << 10));
    assert!(add(&mut storage) && storage.counts().refused.is_none());
    medium.set_faults(faults(90 << 10));
    assert!(!add(&mut storage));
    storage.drain(clock.now());
    assert!(add(&mut storage), "what is built when the run ends is written");
}

/// Returns the total size of all files.
fn found_bytes(medium: &SimulatedStorage) -> u64 {
    medium.paths().iter().filter_map(|path| medium.read(path).ok()).map(|bytes| bytes.len() as u64).sum()
}

/// An event of more bytes than a record can have. The bytes need not exist to be refused.
struct HugeEvent(TestEvent);

impl Recorded for HugeEvent {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        self.0.head(incarnation)
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        self.0.missing()
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        (0..4).map(|source| FragmentEntry::bare(SourceId(source), self.0.number, 260 << 20))
    }

    fn payloads(&self, _: &mut EventRecordEncoder, _: &mut Staging, _: &mut Vec<Slice>) -> bool {
        panic!("the bytes of a refused event are not read");
    }
}

/// Earlier, such an event was offered for ever, and nothing after it was written.
#[test]
fn an_event_that_no_record_can_hold_is_refused_and_the_next_one_is_taken() {
    let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, DiskFaults::default()));
    let mut storage = storage(&medium, &clock);
    let huge = HugeEvent(TestEvent::new(1, 0));
    assert_eq!(storage.add(clock.now(), 1, &huge, streams(&[0, 1])), Filed::Refused(Cause::TooLarge));
    assert_eq!(storage.add(clock.now(), 2, &TestEvent::new(2, 100), streams(&[0, 1])), Filed::Taken);
    let mut progress = Vec::new();
    while !storage.is_closed() {
        storage.finish(clock.now());
        clock.advance(Duration::from_millis(1));
        storage.poll(clock.now(), &mut progress);
    }
    assert_eq!(progress, [(2, Progress::Reached(AcknowledgementLevel::Written))]);
    assert_eq!(found(&medium)[2], ("physics".to_owned(), vec![2]));
}

/// The heads of records of very many sources are longer than a block.
#[test]
fn an_event_of_more_sources_than_a_staging_block_has_room_for_is_written() {
    struct Wide(TestEvent);
    impl Recorded for Wide {
        fn head(&self, incarnation: Incarnation) -> EventHead {
            self.0.head(incarnation)
        }
        fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
            (0..1000).map(|source| MissingSource::new(SourceId(source), Cause::TimedOut))
        }
        fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
            self.0.entries()
        }
        fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
            self.0.payloads(encoder, staging, pieces)
        }
    }
    let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, DiskFaults::default()));
    let mut storage = storage(&medium, &clock);
    assert_eq!(storage.add(clock.now(), 1, &Wide(TestEvent::new(1, 10)), streams(&[0])), Filed::Taken);
}

#[test]
fn closed_segments_are_handed_over_from_each_disk() {
    let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, DiskFaults::default()));
    let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
    let pool = Pool::new(PoolConfig::heap("records", 4 << 10, 64)).expect("there is memory");
    let config = StorageConfig {
        streams: vec![StreamStorage::default()],
        more_outputs: vec!["/second".into()],
        hand_over: Some("done".into()),
        segment_events: 1,
        checksums: true,
        ..config(AcknowledgementLevel::Written)
    };
    let mut storage = Storage::new(disk, config.clone(), Staging::new(pool));
    let mut progress = Vec::new();
    storage.begin(clock.now(), RUN, Incarnation(1));
    for number in 1..=3 {
        while storage.add(clock.now(), number, &TestEvent::new(number.into(), 10), streams(&[0])) != Filed::Taken {
            clock.advance(Duration::from_millis(1));
            storage.poll(clock.now(), &mut progress);
        }
    }
    while !storage.is_closed() {
        storage.finish(clock.now());
        clock.advance(Duration::from_millis(1));
        storage.poll(clock.now(), &mut progress);
    }
    let segments = ["/data/done/run000001-bu0-000001", "/data/done/run000001-bu0-000003"].into_iter();
    let segments = segments.chain(["/second/done/run000001-bu0-000002"]);
    let expected: Vec<PathBuf> =
        segments.flat_map(|name| [".rwk", ".rwk.crc32c"].map(|end| PathBuf::from(format!("{name}{end}")))).collect();
    assert_eq!(medium.paths(), expected, "each with its checksum");
}

/// Returns a storage that keeps about three segments of one event each and has written this number of events.
fn kept(medium: &SimulatedStorage, clock: &SimulatedClock, events: u32) -> Storage<SimulatedDisk> {
    let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
    let pool = Pool::new(PoolConfig::heap("records", 4 << 10, 64)).expect("there is memory");
    let streams_of_it = vec![StreamStorage::default()];
    let config = config(AcknowledgementLevel::Written);
    let config = StorageConfig { streams: streams_of_it, keep: Some(2_000), segment_events: 1, ..config };
    let mut storage = Storage::new(disk, config, Staging::new(pool));
    storage.begin(clock.now(), RUN, Incarnation(1));
    for number in 1..=events {
        let event = TestEvent::new(number.into(), 100);
        while storage.add(clock.now(), number, &event, streams(&[0])) != Filed::Taken {
            clock.advance(Duration::from_micros(10));
            storage.poll(clock.now(), &mut Vec::new());
        }
    }
    storage
}

#[test]
fn segments_that_are_deleted_count_as_kept_until_they_are_gone() {
    let slow = DiskFaults { most_latency: Duration::from_millis(1), ..DiskFaults::default() };
    let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, slow));
    let mut storage = kept(&medium, &clock, 12);
    let mut most_hidden = 0;
    while !storage.is_closed() {
        storage.finish(clock.now());
        clock.advance(Duration::from_micros(10));
        storage.poll(clock.now(), &mut Vec::new());
        let hidden = medium.paths().iter().filter(|path| path.to_string_lossy().ends_with(DELETED_EXTENSION)).count();
        let seen = found(&medium).len();
        most_hidden = most_hidden.max(hidden);
        let counted = storage.counts().segments - storage.counts().deleted_segments;
        assert!(counted >= seen as u64, "{counted} are counted, and {seen} are there");
    }
    let counts = storage.counts();
    assert!(most_hidden > 0 && counts.deleted_segments > 5, "{counts:?}");
    assert_eq!(counts.deleted_events, counts.deleted_segments);
    let files = medium.paths();
    assert_eq!(files.len() as u64, counts.segments - counts.deleted_segments, "{files:?}");
    let bytes: u64 = files.iter().map(|path| medium.read(path).expect("it is there").len() as u64).sum();
    assert_eq!((bytes, storage.kept_bytes), (counts.bytes - counts.deleted_bytes, bytes));
    assert!(bytes <= 2_000);
}

#[test]
fn writing_waits_where_files_come_faster_than_they_are_deleted() {
    let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, DiskFaults::default()));
    let mut storage = kept(&medium, &clock, 5);
    // From here on removals take a second each, and all other operations the usual time.
    let mut number = 5;
    let begin = clock.now();
    storage.removals.begun(StreamIndex(0), never_gone(1));
    storage.removals.begun(StreamIndex(0), never_gone(2));
    storage.removals.begun(StreamIndex(0), never_gone(3));
    while clock.now().since(begin) < Duration::from_millis(10) {
        number += u32::from(storage.add(clock.now(), number, &TestEvent::new(9, 100), streams(&[0])) == Filed::Taken);
        clock.advance(Duration::from_micros(10));
        storage.poll(clock.now(), &mut Vec::new());
    }
    assert_eq!(number, 5, "nothing more is taken");
    storage.drain(clock.now());
    assert_eq!(storage.add(clock.now(), number, &TestEvent::new(9, 100), streams(&[0])), Filed::Taken);
}

/// Returns a segment that the disk was never asked to delete.
fn never_gone(segment: u32) -> Closed {
    let name = SegmentName { run: RunNumber(9), writer: NodeId::builder(0), stream: StreamName::UNNAMED, segment };
    Closed { name, bytes: 0, events: 0 }
}

/// The disk has three batches, rejects one, and returns the ones after it as well. They are written in order.
#[test]
fn several_batches_are_with_the_disk_and_end_in_their_order() {
    let one_byte_short = DiskFaults { capacity: 0, ..DiskFaults::default() };
    for refuses in [false, true] {
        let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, DiskFaults::default()));
        let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
        let pool = Pool::new(PoolConfig::heap("records", 4 << 10, 64)).expect("there is memory");
        let streams_of_it = vec![StreamStorage::default()];
        let config = StorageConfig { streams: streams_of_it, batch_bytes: 1, ..config(AcknowledgementLevel::Written) };
        let mut storage = Storage::new(disk, config, Staging::new(pool));
        storage.begin(clock.now(), RUN, Incarnation(1));
        let (mut progress, mut number) = (Vec::new(), 0);
        while number < 4
            && storage.add(clock.now(), number + 1, &TestEvent::new(u64::from(number + 1), 100), streams(&[0]))
                == Filed::Taken
        {
            number += 1;
            let before = storage.tools.disk.queued_bytes();
            storage.flush(clock.now());
            assert_eq!(storage.tools.disk.queued_bytes() > before, number <= 3, "three batches are with the disk");
        }
        assert_eq!(number, 4, "the next one is gathered meanwhile");
        if refuses {
            // The file is made, and the first batch written.
            clock.advance(Duration::from_micros(110));
            storage.poll(clock.now(), &mut progress);
            assert_eq!(progress.len(), 1);
            medium.set_faults(one_byte_short.clone());
            clock.advance(Duration::from_millis(1));
            storage.poll(clock.now(), &mut progress);
            let refused = storage.counts().refusals;
            assert_eq!((progress.len(), refused, storage.tools.disk.queued_bytes()), (1, 3, 0), "all that it had");
            medium.set_faults(DiskFaults::default());
        }
        while !storage.is_closed() {
            storage.finish(clock.now());
            clock.advance(Duration::from_millis(1));
            storage.poll(clock.now(), &mut progress);
        }
        assert_eq!(progress.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(found(&medium), [("".to_owned(), vec![1, 2, 3, 4])]);
    }
}

#[test]
fn the_progress_of_an_event_is_reported_once_with_the_least_of_its_copies() {
    let (mut copies, mut progress) = (Copies::new(3), Vec::new());
    let ticket = copies.enter(7, 3).expect("there is room");
    for reached in [Progress::Reached(Synced), Progress::Reached(Written)] {
        copies.tell(ticket, reached, &mut progress);
        assert!(progress.is_empty(), "a copy is missing");
    }
    copies.tell(ticket, Progress::Reached(Synced), &mut progress);
    assert_eq!(progress, [(7, Progress::Reached(Written))]);
}

#[test]
fn an_event_with_a_failed_copy_has_failed() {
    let (mut copies, mut progress) = (Copies::new(2), Vec::new());
    let ticket = copies.enter(1, 2).expect("there is room");
    copies.tell(ticket, Progress::Failed, &mut progress);
    copies.tell(ticket, Progress::Reached(Written), &mut progress);
    assert_eq!(progress, [(1, Progress::Failed)]);
}

#[test]
fn room_is_bounded_and_comes_back() {
    let (mut copies, mut progress) = (Copies::new(2), Vec::new());
    let tickets: Vec<_> = std::iter::from_fn(|| copies.enter(0, 2)).collect();
    assert_eq!(tickets.len(), EVENTS as usize);
    assert!(copies.enter(0, 1).is_some(), "an event with one copy needs no room");
    for _ in 0..2 {
        copies.tell(tickets[0], Progress::Reached(Written), &mut progress);
    }
    assert_eq!(copies.enter(0, 2), Some(tickets[0]));
}
