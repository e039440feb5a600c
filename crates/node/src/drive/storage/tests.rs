//! Storage on a simulated disk, with chances from a seed: streams, refusals, deaths, power cuts.

use super::*;
use crate::offline::{RunIndex, recover, verify};
use ropewalk_flow::source::Random;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_memory::{Pool, PoolConfig};
use ropewalk_terms::{Attempt, EventKey, NodeId, SourceId};
use ropewalk_wire::run_file::{
    ClockDomain, EventFlags, EventHead, FragmentEntry, FragmentFlags, MissingSource, StreamName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const RUN: RunNumber = RunNumber(1);
const STREAMS: [&str; 3] = ["physics", "calibration", "error"];
const SOURCE: SourceId = SourceId(7);

/// An event whose payload follows from its number.
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
        std::iter::once(FragmentEntry {
            source: SOURCE,
            flags: FragmentFlags::default(),
            raw_id: self.number,
            raw_time: 0,
            time: 0,
            clock: ClockDomain::NONE,
            bunch_crossing: 0,
            trigger_type: 0,
            length: self.payload.len() as u32,
        })
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        encoder.payload(&self.payload);
        staging.write(&self.payload).map(|slice| pieces.push(slice)).is_some()
    }
}

fn stream_names() -> [StreamName; 3] {
    STREAMS.map(|name| name.parse().expect("a stream's name"))
}

fn config(level: AcknowledgementLevel) -> StorageConfig {
    StorageConfig {
        writer: NodeId::builder(0),
        epoch: Utc(1),
        output: "/data".into(),
        sources: Vec::new(),
        streams: stream_names().map(|name| StreamStorage { name, selected: true }).into(),
        level,
        sync_batches: level == AcknowledgementLevel::Synced,
        segment_bytes: 8 << 10,
        segment_events: 40,
        segment_time: None,
        keep: None,
        give_up_after: Duration::from_secs(5),
    }
}

/// A builder unit's storage and what was asked of it.
struct Trial {
    random: Random,
    clock: SimulatedClock,
    medium: SimulatedStorage,
    level: AcknowledgementLevel,
    storage: Storage<SimulatedDisk>,
    incarnation: u64,
    next: u64,
    /// By the event's number: its streams. Everything that was taken.
    taken: BTreeMap<u64, StreamSet>,
    /// What was acknowledged at the level.
    acknowledged: BTreeSet<u64>,
    progress: Vec<(u32, Progress)>,
}

impl Trial {
    fn new(seed: u64, level: AcknowledgementLevel, faults: DiskFaults) -> Self {
        let clock = SimulatedClock::new(Utc(1));
        let medium = SimulatedStorage::new(seed, faults);
        let storage = storage(&medium, &clock, level);
        let random = Random::new(seed, 8);
        let (taken, acknowledged, progress) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        let (incarnation, next) = (0, 1);
        let mut trial =
            Self { random, clock, medium, level, storage, incarnation, next, taken, acknowledged, progress };
        trial.begin();
        trial
    }

    fn begin(&mut self) {
        self.incarnation += 1;
        self.storage.begin(self.clock.now(), RUN, Incarnation(self.incarnation));
    }

    /// Offers a few events, lets a little time pass, takes what is acknowledged.
    fn step(&mut self) {
        for _ in 0..self.random.below(4) {
            let streams: StreamSet =
                (0..STREAMS.len() as u8).map(StreamIndex).filter(|_| self.random.below(2) == 0).collect();
            let length = self.random.below(600) as usize;
            if streams.is_empty() {
                continue;
            }
            let event = TestEvent::new(self.next, length);
            if self.storage.add(self.clock.now(), self.next as u32, &event, streams) {
                self.taken.insert(self.next, streams);
                self.next += 1;
            }
        }
        self.clock.advance(Duration::from_micros(self.random.below(400)));
        self.poll();
    }

    fn poll(&mut self) {
        self.storage.poll(self.clock.now(), &mut self.progress);
        for (slot, progress) in self.progress.drain(..) {
            if progress >= Progress::Reached(self.level) {
                assert!(self.acknowledged.insert(u64::from(slot)), "event {slot} is acknowledged twice");
            }
        }
    }

    fn finish(&mut self) {
        for _ in 0..100_000 {
            if self.storage.is_closed() {
                return;
            }
            self.storage.finish(self.clock.now());
            self.clock.advance(Duration::from_millis(1));
            self.poll();
        }
        panic!("the files are not closed: {:?}", self.storage.counts());
    }

    /// The process dies; another one goes on with the run.
    fn die(&mut self) {
        self.storage = storage(&self.medium, &self.clock, self.level);
        self.begin();
    }

    /// Recovers what is on the medium, as files of this machine; none where nothing is left.
    fn recovered(&self) -> Option<RunIndex> {
        let directory = Directory::new();
        for path in self.medium.paths() {
            let name = path.file_name().expect("a file has a name");
            fs::write(directory.0.join(name), self.medium.read(&path).expect("the medium is readable"))
                .expect("the temporary directory is writable");
        }
        recover(&directory.0).expect("everything can be recovered");
        let _ = directory.0.read_dir().expect("the directory is there").next()?;
        let report = verify(&[&directory.0]).expect("there are segments");
        assert!(report.is_intact(), "{report:#?}");
        Some(RunIndex::build(&[&directory.0]).expect("there are segments"))
    }

    /// Every acknowledged event is in each of its streams, by `verify`'s rule once, and nothing else is there that was not
    /// taken for that stream. Gives what was found, where anything is left.
    fn expect_acknowledged(&self) -> Option<RunIndex> {
        let Some(index) = self.recovered() else {
            assert!(self.acknowledged.is_empty(), "all files are gone");
            return None;
        };
        let mut found: BTreeMap<u64, StreamSet> = BTreeMap::new();
        for copy in index.copies() {
            let file = copy.file as usize;
            let name = index.scans()[file].stream(&index.files()[file]);
            let stream = stream_names().iter().position(|known| *known == name).expect("a known stream");
            let set = found.entry(copy.entry.key.number()).or_default();
            *set = set.with(StreamSet::of(StreamIndex(stream as u8)));
        }
        for number in &self.acknowledged {
            assert_eq!(found.get(number), self.taken.get(number), "event {number} is acknowledged");
        }
        for (number, streams) in &found {
            let taken = self.taken.get(number).copied().unwrap_or_default();
            assert!(streams.iter().all(|stream| taken.contains(stream)), "event {number} is in a wrong stream");
        }
        Some(index)
    }
}

fn storage(medium: &SimulatedStorage, clock: &SimulatedClock, level: AcknowledgementLevel) -> Storage<SimulatedDisk> {
    let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
    let pool = Pool::new(PoolConfig::heap("records", 4 << 10, 64)).expect("there is memory");
    Storage::new(disk, config(level), Staging::new(pool))
}

/// A directory in memory, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("ropewalk-storage-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn each_stream_has_its_own_segments_with_its_own_events() {
    for seed in 0..8 {
        let mut trial = Trial::new(seed, AcknowledgementLevel::Written, DiskFaults::default());
        for _ in 0..200 {
            trial.step();
        }
        trial.finish();
        assert_eq!(trial.acknowledged.len(), trial.taken.len(), "everything that was taken is acknowledged");
        let index = trial.expect_acknowledged().expect("there are files");
        for (stream, content) in (0..).map(StreamIndex).zip(trial.storage.streams()) {
            let name = stream_names()[usize::from(stream.0)];
            let events = trial.taken.values().filter(|streams| streams.contains(stream)).count() as u64;
            let found = index.streams().iter().find(|content| content.name == name).expect("it has a file");
            assert_eq!((content.events, found.events, found.duplicates), (events, events, 0));
        }
        assert_eq!(trial.storage.counts().events, trial.storage.streams().map(|counts| counts.events).sum::<u64>());
    }
}

#[test]
fn an_event_is_taken_for_all_of_its_streams_or_for_none() {
    let slow = DiskFaults { bandwidth: Some(1 << 20), ..DiskFaults::default() };
    let mut trial = Trial::new(1, AcknowledgementLevel::Written, slow);
    let (one, both) = (StreamSet::of(StreamIndex(0)), [StreamIndex(0), StreamIndex(1)].into_iter().collect());
    let (now, mut number) = (trial.clock.now(), 0);
    let mut add = |trial: &mut Trial, streams| {
        number += 1;
        trial.storage.add(now, number, &TestEvent::new(number.into(), 500), streams)
    };
    // Nothing is handed to the disk meanwhile: stream 0 is full when its segments wait to be closed.
    while add(&mut trial, one) {}
    assert!(!add(&mut trial, both), "the first of its streams has no room");
    let pending: Vec<u64> = trial.storage.series.iter().map(|series| series.pending_events()).collect();
    assert_eq!(pending[1], 0, "the other one was not given it either");
}

#[test]
fn refusals_lose_nothing_and_repeat_nothing() {
    for seed in 0..12 {
        let faults = DiskFaults { write_error: 0.2, sync_error: 0.2, name_error: 0.2, ..DiskFaults::default() };
        let level = if seed % 2 == 0 { AcknowledgementLevel::Synced } else { AcknowledgementLevel::Written };
        let mut trial = Trial::new(seed, level, faults);
        for _ in 0..300 {
            trial.step();
            trial.clock.advance(Duration::from_millis(seed * 10));
        }
        trial.medium.set_faults(DiskFaults::default());
        trial.finish();
        assert_eq!(trial.acknowledged.len(), trial.taken.len());
        let index = trial.expect_acknowledged().expect("there are files");
        assert!(index.streams().iter().all(|stream| stream.duplicates == 0));
    }
}

#[test]
fn what_is_acknowledged_outlives_the_process_at_any_step() {
    for seed in 0..60 {
        let mut trial = Trial::new(seed, AcknowledgementLevel::Written, DiskFaults::default());
        for _ in 0..3 {
            for _ in 0..trial.random.below(60) {
                trial.step();
            }
            trial.die();
        }
        let _ = trial.expect_acknowledged();
    }
}

#[test]
fn what_is_synced_outlives_a_power_cut_at_any_step() {
    for seed in 0..60 {
        let mut trial = Trial::new(seed, AcknowledgementLevel::Synced, DiskFaults::default());
        for _ in 0..trial.random.below(120) {
            trial.step();
        }
        trial.medium.cut_power();
        let _ = trial.expect_acknowledged();
    }
}
