//! Files of events as a builder unit writes them for filter units: its process dies at any step, and the disk fails.
//!
//! ```text
//!   events, lumisections --> EventFiles --> SimulatedDisk: torn, refused, slow      Referee: checks every new name
//!   (replaces builder and event manager) <---------written--+                   (replaces broker and filter units)
//! ```
//! Events not acknowledged when the process dies go to its next life again, as the event manager would do.

use super::mixed;
use super::stand::pool;
use super::{seeds, unless};
use ropewalk_engine::documents::{EndOfLumisection, EndOfRun, Numbers, RawFile, parse_numbers};
use ropewalk_engine::{EventFiles, EventFilesConfig, EventSink, Filed, LumisectionTotal, Progress};
use ropewalk_flow::source::Random;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_memory::Staging;
use ropewalk_terms::{AcknowledgementLevel, Incarnation, RunNumber, Utc};
use ropewalk_wire::frd::{Event, FILE_HEADER_BYTES, FileHeader, FileKind, FileName, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, PartialEq, Debug)]
struct Scenario {
    /// The seed of everything else.
    seed: u64,
    /// Whether events are acknowledged when they are handed over: from then on they may be lost with the process.
    is_handed: bool,
    /// A file is closed after this many events.
    file_events: u32,
    /// Or at this size in bytes.
    file_bytes: u64,
    /// Or after this time.
    file_time: Duration,
    /// Events per lumisection.
    lumisection_events: u64,
    /// Blocks for staged data.
    blocks: usize,
    /// The faults of the disk, until the end.
    faults: DiskFaults,
    /// The number of steps in which events are offered.
    steps: u64,
    /// The process dies after these steps, even when no more events are offered.
    deaths: BTreeSet<u64>,
}

impl Scenario {
    /// The scenario of a seed.
    fn draw(seed: u64) -> Self {
        let mut draw = Random::new(seed, 0xf17e);
        let steps = draw.between(20, 150);
        let deaths = (0..draw.below(5)).map(|_| draw.below(steps + 40)).collect();
        let rate = |draw: &mut Random| if draw.one_in(2) { draw.below(30) as f64 / 100.0 } else { 0.0 };
        let least_latency = draw.time(Duration::from_micros(10), Duration::from_millis(2));
        let faults = DiskFaults {
            least_latency,
            most_latency: least_latency + draw.time(Duration::from_micros(10), Duration::from_millis(2)),
            bandwidth: draw.one_in(3).then_some(1 << 20),
            write_error: rate(&mut draw),
            name_error: rate(&mut draw),
            torn_append: rate(&mut draw) * 3.0,
            ..DiskFaults::default()
        };
        Self {
            seed,
            is_handed: draw.one_in(3),
            file_events: draw.between(1, 12) as u32,
            file_bytes: draw.of(&[200, 1000, 1 << 20]),
            file_time: draw.time(Duration::from_millis(1), Duration::from_millis(50)),
            lumisection_events: draw.between(1, 60),
            blocks: draw.between(8, 32) as usize,
            faults,
            steps,
            deaths,
        }
    }
}

/// Maximum steps from the last event until the run is closed.
const LONGEST: u64 = 20_000;
const STEP: Duration = Duration::from_micros(500);

/// A builder unit's files, its disk, and the knowledge of the event manager.
struct World {
    scenario: Scenario,
    draw: Random,
    clock: SimulatedClock,
    medium: SimulatedStorage,
    event_files: EventFiles<SimulatedDisk>,
    /// Fragments, as in a pool.
    payloads: Staging,
    referee: Referee,
    /// The number of the last event.
    events: u64,
    /// Events that this life has not accepted yet.
    waiting: VecDeque<u64>,
    /// Events without an acknowledgement.
    unacknowledged: BTreeSet<u64>,
    /// Those of them that were given to another life.
    given_again: BTreeSet<u64>,
    /// Events that were acknowledged and lost with a life, as their acknowledgement level permits.
    lost: BTreeSet<u64>,
    /// The number of lumisections that are over.
    over: u32,
    progress: Vec<(u32, Progress)>,
    step: u64,
}

fn event_files(scenario: &Scenario, medium: &SimulatedStorage, clock: &SimulatedClock) -> EventFiles<SimulatedDisk> {
    let config = EventFilesConfig {
        writer: "BU-0".to_owned(),
        directory: "/ram".into(),
        version: Version::V5,
        file_events: scenario.file_events,
        file_bytes: scenario.file_bytes,
        file_time: scenario.file_time,
        level: AcknowledgementLevel::Written,
        room: None,
        give_up_after: Duration::from_secs(3600),
    };
    let disk = medium.disk(SimulatedDiskConfig::default(), clock.clone());
    let mut event_files = EventFiles::new(disk, config, Staging::new(pool("headers", 4 << 10, scenario.blocks)));
    event_files.begin(clock.now(), RunNumber(1), Incarnation(1));
    event_files
}

impl World {
    /// The world of a scenario, at its beginning.
    fn new(scenario: Scenario) -> Self {
        let clock = SimulatedClock::new(Utc(1));
        let medium = SimulatedStorage::new(scenario.seed, scenario.faults.clone());
        Self {
            draw: Random::new(scenario.seed, 0xbeef),
            event_files: event_files(&scenario, &medium, &clock),
            payloads: Staging::new(pool("payloads", 4 << 10, 64)),
            referee: Referee::new(scenario.seed),
            events: 0,
            waiting: VecDeque::new(),
            unacknowledged: BTreeSet::new(),
            given_again: BTreeSet::new(),
            lost: BTreeSet::new(),
            over: 0,
            progress: Vec::new(),
            step: 0,
            scenario,
            clock,
            medium,
        }
    }

    /// A digest of all output: equal for equal histories.
    fn digest(&self) -> u64 {
        let counts = self.event_files.counts();
        mixed(self.step, mixed(self.events, counts.segments, counts.refusals), self.given_again.len() as u64)
    }

    /// Executes the run.
    fn run(&mut self) -> Result<(), String> {
        while !self.event_files.is_closed() || self.is_going_on() {
            let is_late = self.step > self.scenario.steps + LONGEST;
            unless(!is_late, || format!("{:?} are not written", self.unacknowledged))?;
            self.turn()?;
            if self.scenario.deaths.contains(&self.step) {
                self.die();
            }
            self.step += 1;
        }
        unless(self.referee.is_over(), || "the run has no end".to_owned())?;
        let held = self.event_files.pool().held;
        unless(held <= 1, || format!("{held} blocks are out when all files are closed"))?;
        let expected = (1..=self.events).filter(|number| !self.lost.contains(number));
        self.referee.judge(&self.medium, expected, &self.given_again)
    }

    /// Whether events are still offered or awaited.
    fn is_going_on(&self) -> bool {
        self.step < self.scenario.steps || !self.unacknowledged.is_empty()
    }

    fn turn(&mut self) -> Result<(), String> {
        if self.step == self.scenario.steps {
            self.medium.set_faults(DiskFaults::default());
        }
        self.offer();
        self.clock.advance(STEP);
        self.event_files.flush(self.clock.now());
        if self.event_files.poll(self.clock.now(), &mut self.progress) > 0 {
            self.referee.look(&self.medium)?;
        }
        self.acknowledge()?;
        self.end_lumisections();
        if !self.is_going_on() {
            self.event_files.finish(self.clock.now());
        }
        Ok(())
    }

    /// Delivers events, first those of an earlier life of the writer.
    fn offer(&mut self) {
        if self.step < self.scenario.steps {
            for _ in 0..self.draw.below(5) {
                self.events += 1;
                self.waiting.push_back(self.events);
                self.unacknowledged.insert(self.events);
            }
        }
        while let Some(&number) = self.waiting.front() {
            let data = data_of(self.scenario.seed, number);
            let (first, second) = data.split_at(data.len() / 2);
            let pieces = [first, second].map(|piece| self.payloads.write(piece));
            let [Some(first), Some(second)] = pieces else { return };
            let lumisection = self.lumisection_of(number);
            let filed =
                self.event_files.add(self.clock.now(), number as u32, lumisection, number, [first, second].into_iter());
            if filed != Filed::Taken {
                return;
            }
            self.waiting.pop_front();
            if self.scenario.is_handed {
                self.unacknowledged.remove(&number);
            }
        }
    }

    const fn lumisection_of(&self, number: u64) -> u32 {
        ((number - 1) / self.scenario.lumisection_events) as u32 + 1
    }

    fn acknowledge(&mut self) -> Result<(), String> {
        for (slot, progress) in self.progress.drain(..) {
            let number = slot.into();
            let is_written = progress == Progress::Reached(AcknowledgementLevel::Written);
            unless(is_written && self.referee.has(number), || {
                format!("event {number} is {progress:?}, and in no file that has its name")
            })?;
            let is_new = self.unacknowledged.remove(&number) || self.scenario.is_handed;
            unless(is_new, || format!("event {number} was acknowledged twice"))?;
        }
        Ok(())
    }

    /// A lumisection is over when all of its events are acknowledged and no more come.
    fn end_lumisections(&mut self) {
        let next = self.over + 1;
        let is_past = self.events > 0 && (self.lumisection_of(self.events) > next || self.step >= self.scenario.steps);
        let is_known = self.events > 0 && self.lumisection_of(self.events) >= next;
        let oldest = self.unacknowledged.first().map_or(u32::MAX, |&number| self.lumisection_of(number));
        if is_past && is_known && oldest > next {
            self.over = next;
            self.event_files.end_lumisection(next, LumisectionTotal::default());
        }
    }

    /// The process dies. Its next life hears again which lumisections are over, and gets the unacknowledged events
    /// again.
    fn die(&mut self) {
        let acknowledged = (1..=self.events).filter(|number| !self.unacknowledged.contains(number));
        self.lost.extend(acknowledged.filter(|&number| !self.referee.has(number)));
        self.event_files = event_files(&self.scenario, &self.medium, &self.clock);
        self.progress.clear();
        (1..=self.over).for_each(|one| self.event_files.end_lumisection(one, LumisectionTotal::default()));
        self.waiting = self.unacknowledged.iter().copied().collect();
        self.given_again.extend(&self.waiting);
    }
}

/// The directory of the run.
const DIRECTORY: &str = "/ram/run000001";

/// The data of an event, of 8 to 71 bytes.
fn data_of(seed: u64, number: u64) -> Vec<u8> {
    let length = 8 + mixed(seed, number, 1) % 64;
    (0..length).map(|place| mixed(seed, number, 2 + place) as u8).collect()
}

/// Sees what filter units would see.
#[derive(Debug, Default)]
struct Referee {
    seed: u64,
    seen: Vec<PathBuf>,
    /// The files that contain an event, by its number.
    files: BTreeMap<u64, Vec<FileName>>,
    /// What was written in each lumisection.
    written: BTreeMap<u32, EndOfLumisection>,
    closed: BTreeSet<u32>,
    is_over: bool,
}

impl Referee {
    fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Whether a file with a final name contains the event.
    fn has(&self, number: u64) -> bool {
        self.files.contains_key(&number)
    }

    const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Reads the files whose names are new.
    fn look(&mut self, medium: &SimulatedStorage) -> Result<(), String> {
        let mut paths = medium.paths();
        paths.retain(|path| path.parent() == Some(Path::new(DIRECTORY)));
        if paths == self.seen {
            return Ok(());
        }
        let new: Vec<FileName> =
            paths.iter().filter(|path| !self.seen.contains(path)).filter_map(|path| name_of(path)).collect();
        // Events first: an end that appears together with a file is after it.
        let (raw, others): (Vec<FileName>, Vec<_>) =
            new.into_iter().partition(|name| matches!(name.kind, FileKind::Raw { .. }));
        raw.into_iter().try_for_each(|name| self.file(medium, name))?;
        for name in others {
            match name.kind {
                FileKind::EndOfLumisection => self.end_of_lumisection(medium, name)?,
                FileKind::EndOfRun => self.end_of_run(medium, name)?,
                FileKind::Account { .. } | FileKind::Raw { .. } => {}
            }
        }
        self.seen = paths;
        Ok(())
    }

    /// Checks a file of events: whole, of one lumisection, and with its document.
    fn file(&mut self, medium: &SimulatedStorage, name: FileName) -> Result<(), String> {
        let lumisection = name.lumisection;
        let FileKind::Raw { index } = name.kind else { return Ok(()) };
        let document = FileName { kind: FileKind::Account { index }, ..name };
        let account: RawFile = numbers(medium, document)?;
        unless(!self.closed.contains(&lumisection), || format!("{name} came behind the end of its lumisection"))?;
        let bytes = read(medium, name)?;
        let header = bytes.first_chunk().and_then(|first| FileHeader::parse(first).ok());
        let (mut at, mut events) = (FILE_HEADER_BYTES, 0);
        while at < bytes.len() {
            let event = Event::parse(&bytes[at..]);
            let event = event.map_err(|error| format!("{name} at {at}: {error}"))?;
            let (said, number) = (event.header(), event.header().event);
            let is_right = event.is_right() && event.data() == data_of(self.seed, number);
            unless(is_right && said.lumisection == lumisection, || {
                format!("{name} at {at}: event {number} of lumisection {} is not as it was", said.lumisection)
            })?;
            self.files.entry(number).or_default().push(name);
            (at, events) = (at + event.bytes().len(), events + 1);
        }
        let says = header.map(|header| (u64::from(header.events), header.file_bytes));
        let holds = (events, bytes.len() as u64);
        unless(says == Some(holds) && holds == (account.events, account.bytes), || {
            format!("{name} holds {holds:?}, its header says {says:?} and its document {account:?}")
        })?;
        let sum = self.written.entry(lumisection).or_default();
        (sum.events, sum.files, sum.bytes) = (sum.events + events, sum.files + 1, sum.bytes + bytes.len() as u64);
        Ok(())
    }

    /// Checks the end of a lumisection against the files.
    fn end_of_lumisection(&mut self, medium: &SimulatedStorage, name: FileName) -> Result<(), String> {
        let told: EndOfLumisection = numbers(medium, name)?;
        let sum = self.written.get(&name.lumisection).copied().unwrap_or_default();
        let holds = (sum.events, sum.files, sum.bytes);
        unless((told.events, told.files, told.bytes) == holds, || {
            format!("{name} says {told:?}, and there is {holds:?}")
        })?;
        self.closed.insert(name.lumisection);
        Ok(())
    }

    /// Checks that the end of the run matches the files, and follows all others.
    fn end_of_run(&mut self, medium: &SimulatedStorage, name: FileName) -> Result<(), String> {
        let told: EndOfRun = numbers(medium, name)?;
        let open: Vec<_> = self.written.keys().filter(|lumisection| !self.closed.contains(lumisection)).collect();
        unless(open.is_empty(), || format!("{name} is there, and {open:?} are not closed"))?;
        let events = self.written.values().map(|sum| sum.events).sum();
        let files = self.written.values().map(|sum| sum.files).sum();
        let last_lumisection = self.closed.last().copied().unwrap_or_default().into();
        let expected = EndOfRun { events, files, lumisections: self.written.len() as u64, last_lumisection };
        unless(told == expected, || format!("{name} says {told:?}, and there is {expected:?}"))?;
        self.is_over = true;
        Ok(())
    }

    /// Checks a closed run: each event exists, and twice only if it was given twice.
    fn judge(
        &self,
        medium: &SimulatedStorage,
        expected: impl Iterator<Item = u64>,
        twice: &BTreeSet<u64>,
    ) -> Result<(), String> {
        for number in expected {
            let files = self.files.get(&number).map_or(&[][..], Vec::as_slice);
            unless(!files.is_empty(), || format!("event {number} is in no file"))?;
            unless(files.len() == 1 || twice.contains(&number), || format!("event {number} is in {files:?}"))?;
        }
        let left: Vec<PathBuf> =
            medium.paths().into_iter().filter(|path| path.parent() != Some(Path::new(DIRECTORY))).collect();
        unless(left.is_empty(), || format!("{left:?} are left"))
    }
}

fn name_of(path: &Path) -> Option<FileName> {
    path.file_name()?.to_str()?.parse().ok()
}

fn read(medium: &SimulatedStorage, name: FileName) -> Result<Vec<u8>, String> {
    let bytes = medium.read(&Path::new(DIRECTORY).join(name.to_string()));
    bytes.map_err(|_| format!("{name} is not there"))
}

fn numbers<N: Numbers>(medium: &SimulatedStorage, name: FileName) -> Result<N, String> {
    parse_numbers(&read(medium, name)?).ok_or_else(|| format!("{name} is torn"))
}

#[test]
fn every_event_is_in_a_file_that_is_whole_whenever_the_process_dies() {
    for seed in 0..seeds(300) {
        let scenario = Scenario::draw(seed);
        assert_eq!(World::new(scenario.clone()).run(), Ok(()), "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_everything_is_drawn() {
    let mut digests = BTreeSet::new();
    let (mut deaths, mut torn, mut refused) = (0, 0, 0);
    for seed in 0..60 {
        let digest = || {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(), digest(), "seed {seed}");
        digests.extend(digest());
        let Scenario { deaths: died, faults, .. } = Scenario::draw(seed);
        deaths += u32::from(!died.is_empty());
        torn += u32::from(faults.torn_append > 0.0);
        refused += u32::from(faults.write_error + faults.name_error > 0.0);
    }
    assert!(digests.len() > 50, "different seeds are different runs");
    assert!([deaths, torn, refused].iter().all(|&count| (10..60).contains(&count)), "{deaths} {torn} {refused}");
}
