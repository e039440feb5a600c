//! A process that writes run files is killed with -9 at random moments: what it had acknowledged as written is there, in each of
//! its streams, whichever way bytes go into the files.
//!
//! The process is this test's own program again, which runs [`writer`] alone and prints on its standard output what is
//! acknowledged. `ROPEWALK_KILLS` sets the number of moments that are tried; by default 20.

use ropewalk_engine::{EventSink, Filed, Progress, Recorded, Storage, StorageConfig, StreamStorage};
use ropewalk_flow::source::Random;
use ropewalk_io::clock::{Clock, MonotonicClock};
use ropewalk_io::disk::{RealDisk, RealDiskConfig, WriteMode};
use ropewalk_memory::{Pool, PoolConfig, Slice, Staging};
use ropewalk_terms::{
    AcknowledgementLevel, Attempt, EventKey, Incarnation, NodeId, RunNumber, SourceId, StreamIndex, StreamSet, Utc,
};
use ropewalk_tools::{RunIndex, recover, verify};
use ropewalk_wire::run_file::{
    Compression, EventFlags, EventHead, EventRecordEncoder, FragmentEntry, MissingSource, run_directory_name,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const RUN: RunNumber = RunNumber(1);
const STREAMS: u8 = 2;
/// The variable that makes [`writer`] write: directory and seed.
const ORDERS: &str = "ROPEWALK_KILLED_WRITER";
/// A process writes for this long at most before it is killed.
const LONGEST: Duration = Duration::from_millis(400);

/// How many moments are tried.
fn kills() -> u64 {
    std::env::var("ROPEWALK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

/// An event with one fragment whose bytes follow from its number.
struct TestEvent {
    number: u64,
    payload: Vec<u8>,
}

impl TestEvent {
    fn new(number: u64) -> Self {
        let length = Random::new(number, 1).below(40_000);
        Self { number, payload: (0..length).map(|place| (number + place / 7) as u8).collect() }
    }

    /// The streams that it goes to, at least one.
    fn streams(&self) -> StreamSet {
        let both = 1 + self.number % 3;
        (0..STREAMS).filter(|stream| both >> stream & 1 != 0).map(StreamIndex).collect()
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
        std::iter::once(FragmentEntry::bare(SourceId(1), self.number, self.payload.len() as u32))
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        encoder.payload(&self.payload);
        staging.write(&self.payload).map(|slice| pieces.push(slice)).is_some()
    }
}

/// Storage as the seed has it.
fn storage(directory: &Path, seed: u64) -> Storage<RealDisk> {
    let mut random = Random::new(seed, 2);
    let mut of = |choices: u64| random.below(choices) as usize;
    let mode = [WriteMode::Buffered, WriteMode::Direct, WriteMode::Auto][of(3)];
    let segment_bytes = [1 << 20, 16 << 20, 512 << 20][of(3)];
    let compressions = [Compression::None, Compression::Zstd(1), Compression::Lz4];
    let streams = ["physics", "calibration"].map(|name| {
        let name = name.parse().expect("a stream's name");
        StreamStorage { name, selected: true, compression: compressions[of(3)], ..StreamStorage::default() }
    });
    let config = StorageConfig {
        epoch: Utc(1),
        streams: streams.into(),
        segment_bytes,
        preallocate: of(2) == 0,
        ..StorageConfig::new(NodeId::builder(0), directory)
    };
    let disk = RealDiskConfig { mode, threads: config.disk_threads(), ..RealDiskConfig::default() };
    let disk = RealDisk::new(disk, || {}).expect("threads and descriptors");
    let pool = Pool::new(PoolConfig::heap("records", 64 << 10, 512)).expect("memory for a test");
    Storage::new(disk, config, Staging::new(pool))
}

/// With [`ORDERS`] it writes until it is killed; otherwise it has nothing to do.
#[test]
fn writer() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let (directory, seed) = orders.rsplit_once(' ').expect("directory and seed");
    let mut storage = storage(Path::new(directory), seed.parse().expect("a number"));
    let (clock, mut out) = (MonotonicClock, std::io::stdout().lock());
    storage.begin(clock.now(), RUN, Incarnation(1));
    let (mut number, mut progress) = (1, Vec::new());
    loop {
        for _ in 0..20 {
            let event = TestEvent::new(number);
            if storage.add(clock.now(), number as u32, &event, event.streams()) != Filed::Taken {
                break;
            }
            number += 1;
        }
        storage.flush(clock.now());
        storage.poll(clock.now(), &mut progress);
        let mut line = String::new();
        for (slot, progress) in progress.drain(..) {
            assert_eq!(progress, Progress::Reached(AcknowledgementLevel::Written));
            line += &format!("written {slot}\n");
        }
        out.write_all(line.as_bytes()).expect("the test reads");
        out.flush().expect("the test reads");
    }
}

/// Kills a process that writes at a moment that the seed chooses; returns the events that it had acknowledged.
fn kill_a_writer(directory: &Path, seed: u64) -> Vec<u64> {
    let moment = LONGEST.mul_f64(Random::new(seed, 3).unit());
    let mut child = Command::new(std::env::current_exe().expect("a test is a program"))
        .args(["--exact", "writer", "--nocapture"])
        .env(ORDERS, format!("{} {seed}", directory.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("this program starts");
    let out = child.stdout.take().expect("it was asked for");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        // The last line may be cut.
        BufReader::new(out).read_to_string(&mut text).map(|_| text).unwrap_or_default()
    });
    let begin = Instant::now();
    while begin.elapsed() < moment {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    let text = reader.join().expect("reading does not fail");
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .as_bytes()
        .lines()
        .map_while(Result::ok)
        .filter_map(|line| line.rsplit_once("written ")?.1.parse().ok())
        .collect()
}

/// What the files hold: by event, its streams.
fn found(directory: &Path) -> BTreeMap<u64, StreamSet> {
    let index = RunIndex::build(&[directory]).expect("there are segments");
    let mut found: BTreeMap<u64, StreamSet> = BTreeMap::new();
    for copy in index.copies() {
        let name = index.files()[copy.file as usize].name.expect("it is called a segment").stream;
        let stream = StreamIndex(u8::from(name.as_str() == "calibration"));
        let streams = found.entry(copy.entry.key.number()).or_default();
        *streams = streams.with(StreamSet::of(stream));
    }
    let mut reader = index.reader();
    while let Some(event) = reader.next_event().expect("what was recovered is readable") {
        let number = event.event.key().number();
        let payload: Vec<&[u8]> = event.event.fragments().map(|fragment| fragment.payload).collect();
        assert_eq!(payload, [&TestEvent::new(number).payload[..]], "event {number}");
    }
    found
}

#[test]
fn what_was_acknowledged_outlives_a_kill_at_any_moment() {
    let (mut acknowledged, mut at_all) = (0, 0);
    for seed in 0..kills() {
        let directory = Directory::new(seed);
        let written = kill_a_writer(&directory.0, seed);
        acknowledged += written.len();
        let run = directory.0.join(run_directory_name(RUN));
        if !run.is_dir() {
            assert!(written.is_empty());
            continue;
        }
        at_all += 1;
        recover(&run).expect("everything can be recovered");
        if std::fs::read_dir(&run).expect("it is there").next().is_none() {
            assert!(written.is_empty());
            continue;
        }
        let report = verify(&[&run]).expect("there are segments");
        assert!(report.is_intact() && report.duplicates == 0, "seed {seed}: {report:#?}");
        let found = found(&run);
        for number in written {
            let streams = TestEvent::new(number).streams();
            assert_eq!(found.get(&number), Some(&streams), "seed {seed}: event {number} was acknowledged");
        }
    }
    assert!(at_all > 0 && acknowledged > 0, "nothing was written before the kills");
    eprintln!("{acknowledged} events were acknowledged in {at_all} processes");
}

/// A directory that goes away with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(seed: u64) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("killed-{}-{seed}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for tests");
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
