//! Event files on a simulated disk. `tests/simulated/event_files.rs` tests deaths at any step.

use super::*;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_memory::{Pool, PoolConfig};
use ropewalk_terms::{AcknowledgementLevel, Utc};
use ropewalk_wire::frd::{Event, FILE_HEADER_BYTES, Version};
use std::path::Path;
use std::time::Duration;

const RUN: RunNumber = RunNumber(7);
const WRITTEN: Progress = Progress::Reached(AcknowledgementLevel::Written);

/// A builder unit's files and their directory.
struct Bench {
    clock: SimulatedClock,
    medium: SimulatedStorage,
    event_files: EventFiles<SimulatedDisk>,
    payloads: Staging,
    reached: Vec<(u32, Progress)>,
}

fn config() -> EventFilesConfig {
    EventFilesConfig {
        writer: "BU-0".to_owned(),
        directory: "/ram".into(),
        version: Version::V5,
        file_events: 2,
        file_bytes: 1 << 20,
        file_time: Duration::from_secs(1),
        level: AcknowledgementLevel::Written,
        room: None,
        give_up_after: Duration::from_secs(5),
    }
}

fn staging(name: &str) -> Staging {
    Staging::new(Pool::new(PoolConfig::heap(name, 4 << 10, 64)).expect("there is memory"))
}

impl Bench {
    fn new(config: EventFilesConfig) -> Self {
        let (clock, medium) = (SimulatedClock::new(Utc(1)), SimulatedStorage::new(1, DiskFaults::default()));
        let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
        let mut event_files = EventFiles::new(disk, config, staging("headers"));
        event_files.begin(clock.now(), RUN, Incarnation(1));
        Self { clock, medium, event_files, payloads: staging("payloads"), reached: Vec::new() }
    }

    /// Starts another incarnation of the builder unit. Data that the previous one had not synchronised to the medium is
    /// lost.
    fn die(&mut self) {
        let disk = self.medium.disk(SimulatedDiskConfig::default(), self.clock.clone());
        self.event_files = EventFiles::new(disk, config(), staging("headers"));
        self.reached.clear();
        self.event_files.begin(self.clock.now(), RUN, Incarnation(1));
    }

    fn add(&mut self, lumisection: u32, number: u64) -> Filed {
        let payload = [number as u8; 16].map(|byte| byte);
        let pieces = [&payload[..8], &payload[8..]].map(|piece| self.payloads.write(piece).expect("there is room"));
        self.event_files.add(self.clock.now(), number as u32, lumisection, number, pieces.into_iter())
    }

    fn turn(&mut self) {
        self.clock.advance(Duration::from_millis(1));
        self.event_files.flush(self.clock.now());
        self.event_files.poll(self.clock.now(), &mut self.reached);
    }

    /// Turns until the disk has no work left.
    fn settle(&mut self) {
        (0..20).for_each(|_| self.turn());
    }

    fn finish(&mut self) {
        for _ in 0..50 {
            self.event_files.finish(self.clock.now());
            self.turn();
        }
        assert!(self.event_files.is_closed());
    }

    fn names(&self) -> Vec<String> {
        let name = |path: PathBuf| path.strip_prefix("/ram/run000007").ok().map(|name| name.display().to_string());
        self.medium.paths().into_iter().filter_map(name).filter(|name| !name.ends_with(".jsd")).collect()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        self.medium.read(&Path::new("/ram/run000007").join(name)).expect("it is there")
    }

    fn numbers<N: Numbers>(&self, name: &str) -> N {
        parse_numbers(&self.read(name)).expect("a document of these numbers")
    }

    /// Checks a file and returns the numbers of its events.
    fn events(&self, name: &str) -> Vec<u64> {
        let bytes = self.read(name);
        let header = FileHeader::parse(bytes.first_chunk().expect("a header")).expect("of version 1");
        let (mut at, mut numbers) = (FILE_HEADER_BYTES, Vec::new());
        while at < bytes.len() {
            let event = Event::parse(&bytes[at..]).expect("an event");
            let number = event.header().event;
            assert!(event.is_right() && event.header().run == RUN.0);
            assert_eq!(event.data(), [number as u8; 16]);
            (at, numbers) = (at + event.bytes().len(), [numbers, vec![number]].concat());
        }
        assert_eq!((header.events as usize, header.file_bytes), (numbers.len(), bytes.len() as u64));
        numbers
    }
}

#[test]
fn a_file_holds_events_of_one_lumisection_and_counts_with_its_name() {
    let mut bench = Bench::new(config());
    for (lumisection, number) in [(1, 1), (2, 2), (1, 3), (1, 4)] {
        assert_eq!(bench.add(lumisection, number), Filed::Taken);
    }
    assert!(bench.reached.is_empty(), "nothing is with the disk yet");
    bench.settle();
    assert_eq!(bench.events("run000007_ls0001_index000000.raw"), [1, 3]);
    assert_eq!(bench.numbers::<RawFile>("run000007_ls0001_index000000.jsn").events, 2);
    let document = String::from_utf8(bench.read("run000007_ls0001_index000000.jsn")).expect("text");
    assert!(document.ends_with("\"definition\":\"rawData.jsd\",\"source\":\"BU-0\"}\n"), "{document}");
    assert_eq!(bench.reached, [1, 3].map(|slot| (slot, WRITTEN)), "the others wait for more");
    bench.clock.advance(Duration::from_secs(1));
    bench.settle();
    assert_eq!(bench.events("run000007_ls0002_index000001.raw"), [2]);
    assert_eq!(bench.events("run000007_ls0001_index000002.raw"), [4], "it was open for a second");
    bench.reached.sort_unstable();
    assert_eq!(bench.reached, [1, 2, 3, 4].map(|slot| (slot, WRITTEN)), "each once");
    assert_eq!(bench.event_files.counts().segments, 3);
}

#[test]
fn a_lumisection_is_closed_behind_its_files_and_the_run_behind_its_lumisections() {
    let mut bench = Bench::new(config());
    bench.add(1, 1);
    bench.event_files.end_lumisection(1, LumisectionTotal { events: 9, lost: 2 });
    bench.event_files.end_lumisection(2, LumisectionTotal::default());
    let (end, file) = ("run000007_ls0001_EoLS.jsn", "run000007_ls0001_index000000.raw");
    while !bench.names().iter().any(|name| name == end) {
        bench.turn();
    }
    assert_eq!(bench.events(file), [1], "the file is there before the lumisection's end");
    let bytes = bench.read(file).len() as u64;
    let expected = EndOfLumisection { events: 1, files: 1, total_events: 9, lost_events: 2, bytes };
    assert_eq!(bench.numbers::<EndOfLumisection>(end), expected);
    bench.settle();
    assert_eq!(bench.numbers::<EndOfLumisection>("run000007_ls0002_EoLS.jsn"), EndOfLumisection::default());
    bench.add(3, 2);
    bench.finish();
    // The third one was not closed: only this builder unit's own events are known.
    assert_eq!(bench.numbers::<EndOfLumisection>("run000007_ls0003_EoLS.jsn").total_events, 1);
    let expected = EndOfRun { events: 2, files: 2, lumisections: 2, last_lumisection: 3 };
    assert_eq!(bench.numbers::<EndOfRun>("run000007_ls0000_EoR.jsn"), expected);
    let legends = ["rawData.jsd", "EoLS.jsd", "EoR.jsd"].map(|name| bench.read(name));
    assert!(legends.iter().all(|text| serde_json::from_slice::<serde_json::Value>(text).is_ok()));
}

#[test]
fn the_next_life_removes_what_has_no_name_and_counts_on() {
    let mut bench = Bench::new(config());
    bench.add(1, 1);
    bench.add(1, 2);
    bench.settle();
    bench.add(1, 3);
    bench.add(1, 4);
    bench.add(1, 5);
    // The document has its name, the file has not.
    while !bench.names().iter().any(|name| name == "run000007_ls0001_index000001.jsn") {
        bench.turn();
    }
    assert!(bench.names().iter().any(|name| name == "open/run000007_ls0001_index000001.raw"));
    bench.die();
    bench.settle();
    let left = ["run000007_ls0001_index000000.jsn", "run000007_ls0001_index000000.raw"];
    assert_eq!(bench.names(), left, "and nothing else");
    bench.add(1, 6);
    bench.finish();
    assert_eq!(bench.events("run000007_ls0001_index000002.raw"), [6]);
    assert_eq!(bench.numbers::<EndOfLumisection>("run000007_ls0001_EoLS.jsn").events, 3, "those of both lives");
    assert_eq!(bench.numbers::<EndOfRun>("run000007_ls0000_EoR.jsn").files, 2);
    let before = bench.names();
    bench.die();
    bench.finish();
    assert_eq!(bench.names(), before, "the run is closed");
}

#[test]
fn what_the_disk_refuses_is_offered_again_and_given_up_only_while_the_run_drains() {
    let mut bench = Bench::new(config());
    bench.medium.set_faults(DiskFaults { write_error: 1.0, ..DiskFaults::default() });
    bench.add(1, 1);
    bench.add(1, 2);
    bench.add(1, 3);
    bench.clock.advance(Duration::from_secs(60));
    bench.settle();
    assert!(bench.reached.is_empty() && bench.event_files.counts().refused.is_some());
    bench.medium.set_faults(DiskFaults::default());
    bench.clock.advance(Duration::from_secs(1));
    bench.settle();
    bench.clock.advance(Duration::from_secs(1));
    bench.settle();
    assert_eq!(bench.reached.len(), 3);
    assert_eq!(bench.events("run000007_ls0001_index000000.raw"), [1, 2]);
    bench.reached.clear();
    bench.medium.set_faults(DiskFaults { name_error: 1.0, ..DiskFaults::default() });
    bench.add(1, 4);
    bench.event_files.drain(bench.clock.now());
    bench.clock.advance(Duration::from_secs(2));
    bench.settle();
    bench.clock.advance(Duration::from_secs(6));
    bench.settle();
    assert_eq!(bench.reached, [(4, Progress::Failed)]);
    bench.event_files.finish(bench.clock.now());
    assert!(bench.event_files.is_closed() && bench.event_files.has_given_up());
    assert!(!bench.names().iter().any(|name| name.contains("EoR")), "a run that was given up is not closed");
}

#[test]
fn what_is_on_its_way_is_bounded_and_what_does_not_fit_is_refused() {
    let mut bench = Bench::new(config());
    assert_eq!(bench.add(1, 1 << 32), Filed::Refused(Cause::WriteFailed));
    let taken = (1..).take_while(|&number| bench.add(1, number) == Filed::Taken).count();
    assert_eq!(taken, 2 * CLOSING, "the disk has done nothing meanwhile");
    bench.settle();
    assert_eq!(bench.add(1, 100), Filed::Taken);
    let mut bench = Bench::new(EventFilesConfig { version: Version::V4, ..config() });
    assert_eq!(bench.add(1, 1 << 32), Filed::Taken);
}
