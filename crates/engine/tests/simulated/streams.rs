//! The run files of a builder unit whose events go to several streams, on a disk that refuses, is slow, and loses
//! power, while the process dies and restarts.
//!
//! ```text
//!   events with their streams --> Storage --> simulated disk: its files outlive the process
//!              \--> taken, acknowledged <--/            \--> Referee: what is in the files?
//! ```
//! An event that was acknowledged at the level is whole in a file of each of its streams. No stream has an event of
//! other streams only. Within a life nothing is written twice.

use super::mixed;
use super::stand::pool;
use super::{seeds, unless};
use ropewalk_engine::{EventSink, Filed, Progress, Recorded, Storage, StorageConfig, StreamStorage};
use ropewalk_flow::source::Random;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{
    AcknowledgementLevel, Attempt, EventKey, Incarnation, NodeId, RunNumber, SourceId, StreamIndex, StreamSet, Utc,
};
use ropewalk_tools::{recover, verify};
use ropewalk_wire::run_file::{
    EventFlags, EventHead, EventRecordEncoder, EventView, FooterView, FragmentEntry, IndexEntry, Item, Items,
    MissingSource, OPEN_EXTENSION, Record, RecordKind, SegmentName, StreamName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Accident {
    /// The process dies, and another one continues the run.
    Death,
    /// The power is cut, and the process dies. Only where an acknowledgement promises synced data.
    PowerCut,
}

/// The run files of one builder unit.
#[derive(Clone, PartialEq, Debug)]
struct Scenario {
    /// The seed of everything else.
    seed: u64,
    /// The number of streams; a single one has no name.
    streams: u8,
    /// The promise of an acknowledgement.
    level: AcknowledgementLevel,
    /// A segment is closed at this size in bytes.
    segment_bytes: u64,
    /// Bytes of a segment that are worth another disk operation.
    batch_bytes: u64,
    /// Or after this many events.
    segment_events: u64,
    /// Blocks for staged data.
    blocks: usize,
    /// The faults of the disk, until the end.
    faults: DiskFaults,
    /// The number of steps in which events are offered.
    steps: u64,
    /// Accidents, by the step that they follow.
    accidents: BTreeMap<u64, Accident>,
}

impl Scenario {
    /// The scenario of a seed.
    fn draw(seed: u64) -> Self {
        let mut draw = Random::new(seed, 0x570e);
        let level = draw.of(&[AcknowledgementLevel::Written, AcknowledgementLevel::Synced]);
        let kinds: &[Accident] = match level {
            AcknowledgementLevel::Synced => &[Accident::Death, Accident::PowerCut],
            _ => &[Accident::Death],
        };
        let steps = draw.between(20, 200);
        let accidents = (0..draw.below(4)).map(|_| (draw.below(steps), draw.of(kinds))).collect();
        let rate = |draw: &mut Random| if draw.one_in(2) { draw.below(30) as f64 / 100.0 } else { 0.0 };
        let least_latency = draw.time(Duration::from_micros(10), Duration::from_millis(5));
        let faults = DiskFaults {
            least_latency,
            most_latency: least_latency + draw.time(Duration::from_micros(10), Duration::from_millis(5)),
            bandwidth: draw.one_in(3).then_some(1 << 20),
            write_error: rate(&mut draw),
            sync_error: rate(&mut draw),
            name_error: rate(&mut draw),
            torn_append: rate(&mut draw) * 3.0,
            ..DiskFaults::default()
        };
        Self {
            seed,
            streams: draw.between(1, 4) as u8,
            level,
            segment_bytes: draw.of(&[4 << 10, 16 << 10, u64::MAX]),
            segment_events: draw.between(5, 60),
            blocks: draw.between(16, 64) as usize,
            faults,
            steps,
            accidents,
            // Drawn last, so that everything else of a seed is unchanged.
            batch_bytes: draw.of(&[1, 2 << 10, 1 << 20]),
        }
    }
}

/// Maximum time from the last event until all files are closed, with a working disk.
const LONGEST: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_micros(500);

/// The requests to storage, in all lives of the process.
#[derive(Debug, Default)]
struct Asked {
    /// By event: the streams that it was taken for.
    taken: BTreeMap<u64, StreamSet>,
    /// Events that were acknowledged at the level.
    acknowledged: BTreeSet<u64>,
}

/// A builder unit's storage, its disk, and the requests.
struct World {
    scenario: Scenario,
    draw: Random,
    clock: SimulatedClock,
    medium: SimulatedStorage,
    storage: Storage<SimulatedDisk>,
    incarnation: u64,
    offered: u64,
    asked: Asked,
    progress: Vec<(u32, Progress)>,
}

/// The name of a stream; a single stream needs none.
fn stream_name(scenario: &Scenario, stream: StreamIndex) -> StreamName {
    let name = || format!("stream_{}", stream.0).parse().expect("a good name");
    if scenario.streams > 1 { name() } else { StreamName::UNNAMED }
}

fn storage(scenario: &Scenario, medium: &SimulatedStorage, clock: &SimulatedClock) -> Storage<SimulatedDisk> {
    let stream = |stream| StreamStorage {
        name: stream_name(scenario, StreamIndex(stream)),
        selected: true,
        ..StreamStorage::default()
    };
    let config = StorageConfig {
        epoch: Utc(1),
        streams: (0..scenario.streams).map(stream).collect(),
        level: scenario.level,
        sync_batches: scenario.level == AcknowledgementLevel::Synced,
        segment_bytes: scenario.segment_bytes,
        batch_bytes: scenario.batch_bytes,
        segment_events: scenario.segment_events,
        give_up_after: LONGEST,
        ..StorageConfig::new(NodeId::builder(0), "/data")
    };
    let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
    Storage::new(disk, config, Staging::new(pool("records", 4 << 10, scenario.blocks)))
}

impl World {
    /// The world of a scenario, at its beginning.
    fn new(scenario: Scenario) -> Self {
        let clock = SimulatedClock::new(Utc(1));
        let medium = SimulatedStorage::new(scenario.seed, scenario.faults.clone());
        let storage = storage(&scenario, &medium, &clock);
        let draw = Random::new(scenario.seed, 0xe7e7);
        let (asked, progress) = (Asked::default(), Vec::new());
        let mut world = Self { scenario, draw, clock, medium, storage, incarnation: 0, offered: 0, asked, progress };
        world.begin();
        world
    }

    /// The written files.
    const fn medium(&self) -> &SimulatedStorage {
        &self.medium
    }

    /// A digest of all output: equal for equal histories.
    fn digest(&self) -> u64 {
        let counts = self.storage.counts();
        let all = mixed(self.clock.now().as_nanoseconds(), self.asked.taken.len() as u64, counts.refusals);
        mixed(all, counts.bytes, self.medium.paths().len() as u64)
    }

    /// Executes the run.
    fn run(&mut self) -> Result<(), String> {
        for step in 0..self.scenario.steps {
            self.offer();
            self.turn()?;
            if let Some(&accident) = self.scenario.accidents.get(&step) {
                self.suffer(accident);
                self.judge()?;
            }
        }
        self.medium.set_faults(DiskFaults::default());
        self.finish()?;
        let Asked { taken, acknowledged } = &self.asked;
        unless(self.incarnation > 1 || taken.len() == acknowledged.len(), || {
            format!("{} events were taken and {} acknowledged in the only life", taken.len(), acknowledged.len())
        })?;
        self.judge()
    }

    fn begin(&mut self) {
        self.incarnation += 1;
        self.storage.begin(self.clock.now(), RunNumber(1), Incarnation(self.incarnation));
    }

    fn suffer(&mut self, accident: Accident) {
        if accident == Accident::PowerCut {
            self.medium.cut_power();
        }
        self.storage = storage(&self.scenario, &self.medium, &self.clock);
        self.begin();
    }

    fn offer(&mut self) {
        for _ in 0..self.draw.below(5) {
            let streams = (0..self.scenario.streams).map(StreamIndex).filter(|_| self.draw.one_in(2));
            let streams: StreamSet = streams.collect();
            let number = self.offered + 1;
            let event = MadeEvent::new(self.scenario.seed, number);
            if !streams.is_empty() && self.storage.add(self.clock.now(), number as u32, &event, streams) == Filed::Taken
            {
                self.offered = number;
                self.asked.taken.insert(number, streams);
            }
        }
        self.storage.flush(self.clock.now());
    }

    /// Advances the time, and takes acknowledgements.
    fn turn(&mut self) -> Result<(), String> {
        self.clock.advance(STEP);
        self.storage.poll(self.clock.now(), &mut self.progress);
        for (slot, progress) in self.progress.drain(..) {
            if progress >= Progress::Reached(self.scenario.level) {
                let is_new = self.asked.acknowledged.insert(slot.into());
                unless(is_new, || format!("event {slot} was acknowledged twice"))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), String> {
        let end = self.clock.now().after(LONGEST);
        while !self.storage.is_closed() {
            let is_late = self.clock.now() > end;
            unless(!is_late, || "the files are not closed".to_owned())?;
            self.storage.finish(self.clock.now());
            self.turn()?;
        }
        let account = self.storage.pool();
        let held = account.held;
        unless(held <= 1, || format!("{held} blocks are out when all files are closed"))
    }

    fn judge(&self) -> Result<(), String> {
        judge(&self.scenario, &self.medium, &self.asked)
    }
}

/// The longest payload, in bytes.
const MOST_BYTES: u64 = 700;

/// An event with one fragment.
struct MadeEvent {
    number: u64,
    payload: Vec<u8>,
}

impl MadeEvent {
    fn new(seed: u64, number: u64) -> Self {
        Self { number, payload: payload(seed, number) }
    }
}

/// The fragment of an event.
fn payload(seed: u64, number: u64) -> Vec<u8> {
    let length = mixed(seed, number, 1) % MOST_BYTES;
    (0..length).map(|place| mixed(seed, number, 2 + place) as u8).collect()
}

impl Recorded for MadeEvent {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        let (key, flags) = (EventKey::new(0, self.number), EventFlags::default());
        EventHead { key, incarnation, attempt: Attempt(1), trigger_type: 0, flags }
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        std::iter::empty()
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        std::iter::once(FragmentEntry::bare(SourceId(1), self.number, self.payload.len() as u32))
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        encoder.payload(&self.payload);
        staging.write(&self.payload).map(|slice| pieces.push(slice)).is_some()
    }
}

#[derive(Default)]
struct Found {
    /// By event: the streams that contain it.
    streams: BTreeMap<u64, StreamSet>,
    /// The stream, event and life of every record.
    records: BTreeSet<(StreamIndex, u64, Incarnation)>,
}

/// Compares the files with the requests.
fn judge(scenario: &Scenario, medium: &SimulatedStorage, asked: &Asked) -> Result<(), String> {
    let mut found = Found::default();
    for path in medium.paths() {
        let bytes = medium.read(&path).map_err(|cause| cause.to_string())?;
        look(scenario, &path, &bytes, &mut found)?;
    }
    for number in &asked.acknowledged {
        let (there, wanted) = (found.streams.get(number), asked.taken.get(number));
        unless(there == wanted, || format!("event {number} was acknowledged for {wanted:?} and is in {there:?}"))?;
    }
    for (number, &streams) in &found.streams {
        let taken = asked.taken.get(number).copied().unwrap_or_default();
        let all = streams.iter().all(|stream| taken.contains(stream));
        unless(all, || format!("event {number} is in {streams:?}, and was taken for {taken:?}"))?;
    }
    Ok(())
}

/// Checks one file.
fn look(scenario: &Scenario, path: &Path, bytes: &[u8], found: &mut Found) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (text, is_open) = name.strip_suffix(OPEN_EXTENSION).map_or((&name[..], false), |closed| (closed, true));
    let stream = text.parse().ok().and_then(|name: SegmentName| {
        (0..scenario.streams).map(StreamIndex).find(|&stream| stream_name(scenario, stream) == name.stream)
    });
    let Some(stream) = stream else {
        return Err(format!("{name} is no segment of a stream"));
    };
    let (mut entries, mut has_footer) = (Vec::new(), false);
    for item in Items::new(bytes) {
        match item {
            Item::Damaged { offset, .. } => {
                unless(is_open, || format!("{name} was closed, and cannot be read at {offset}"))?
            }
            Item::Record { offset, record } if record.kind() == RecordKind::EVENT => {
                entries.push(take(scenario, stream, offset, &record, found)?);
            }
            Item::Record { record, .. } if record.kind() == RecordKind::FOOTER => {
                has_footer =
                    FooterView::parse(&record).is_ok_and(|footer| footer.entries().eq(entries.iter().copied()));
            }
            Item::Record { .. } => {}
        }
    }
    unless(is_open || has_footer, || format!("{name} was closed without its index"))
}

/// Records an event.
fn take(
    scenario: &Scenario,
    stream: StreamIndex,
    offset: u64,
    record: &Record<'_>,
    found: &mut Found,
) -> Result<IndexEntry, String> {
    let event = EventView::parse(record).map_err(|error| error.to_string())?;
    let number = event.key().number();
    let expected = payload(scenario.seed, number);
    let is_right = event.fragments().map(|fragment| fragment.payload).eq([&expected[..]]);
    unless(is_right, || format!("event {number} does not hold what it was made of"))?;
    let is_new = found.records.insert((stream, number, event.head().incarnation));
    unless(is_new, || format!("event {number} is twice in {stream:?} by the same life"))?;
    let streams = found.streams.entry(number).or_default();
    *streams = streams.with(StreamSet::of(stream));
    Ok(IndexEntry::of(&event, offset, record.length()))
}

#[test]
fn what_is_acknowledged_is_in_each_of_its_streams_whatever_happens() {
    for seed in 0..seeds(300) {
        let scenario = Scenario::draw(seed);
        assert_eq!(World::new(scenario.clone()).run(), Ok(()), "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_everything_is_drawn() {
    let (mut digests, mut streams, mut accidents, mut levels) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for seed in 0..40 {
        let digest = || {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(), digest(), "seed {seed}");
        digests.extend(digest());
        let scenario = Scenario::draw(seed);
        streams.insert(scenario.streams);
        accidents.extend(scenario.accidents.into_values());
        levels.insert(scenario.level);
    }
    assert!(digests.len() > 35, "different seeds are different runs");
    assert_eq!(streams, (1..=4).collect());
    assert_eq!(accidents, [Accident::Death, Accident::PowerCut].into());
    assert_eq!(levels, [AcknowledgementLevel::Written, AcknowledgementLevel::Synced].into());
}

/// Recovery makes the files of a dead process whole.
#[test]
fn files_of_dead_processes_are_recovered_whole() {
    for seed in 0..seeds(300) / 6 {
        let scenario = Scenario::draw(seed);
        let mut world = World::new(scenario);
        assert_eq!(world.run(), Ok(()), "seed {seed}");
        let directory = Directory::of(world.medium(), seed);
        recover(&directory.0).expect("everything can be recovered");
        let report = verify(&[&directory.0]).expect("there are segments");
        assert!(report.is_intact(), "seed {seed}: {report:#?}");
    }
}

/// Files of a simulated disk as real files, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn of(medium: &SimulatedStorage, seed: u64) -> Self {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = base.join(format!("ropewalk-storing-{}-{seed}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        for file in medium.paths() {
            let bytes = medium.read(&file).expect("the medium is readable");
            let name = file.file_name().expect("a file has a name");
            fs::write(path.join(name), bytes).expect("the temporary directory is writable");
        }
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
