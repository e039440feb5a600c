//! A scenario from its first event to its last file.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::super::draw::Draw;
use super::super::stand::pool;
use super::event::MadeEvent;
use super::referee::judge;
use super::scenario::{Accident, Scenario};
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_memory::Staging;
use ropewalk_node::drive::{EventSink, Filed, Progress, Storage, StorageConfig, StreamStorage};
use ropewalk_terms::{AcknowledgementLevel, Incarnation, NodeId, RunNumber, StreamIndex, StreamSet, Utc};
use ropewalk_wire::run_file::StreamName;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// All files are closed by so long after the last event, once the disk does its work.
const LONGEST: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_micros(500);

/// What was asked of storage, in all lives of the process.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// By event: the streams that it was taken for.
    pub(super) taken: BTreeMap<u64, StreamSet>,
    /// Events that were acknowledged at the level.
    pub(super) acknowledged: BTreeSet<u64>,
}

/// A builder unit's storage, its disk, and what was asked of it.
pub struct World {
    scenario: Scenario,
    draw: Draw,
    clock: SimulatedClock,
    medium: SimulatedStorage,
    storage: Storage<SimulatedDisk>,
    incarnation: u64,
    offered: u64,
    asked: Asked,
    progress: Vec<(u32, Progress)>,
}

/// The name of a stream; one alone needs none.
pub(super) fn stream_name(scenario: &Scenario, stream: StreamIndex) -> StreamName {
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
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let clock = SimulatedClock::new(Utc(1));
        let medium = SimulatedStorage::new(scenario.seed, scenario.faults.clone());
        let storage = storage(&scenario, &medium, &clock);
        let draw = Draw::new(scenario.seed, 0xe7e7);
        let (asked, progress) = (Asked::default(), Vec::new());
        let mut world = Self { scenario, draw, clock, medium, storage, incarnation: 0, offered: 0, asked, progress };
        world.begin();
        world
    }

    /// The files that it wrote.
    pub const fn medium(&self) -> &SimulatedStorage {
        &self.medium
    }

    /// Mixed from everything that came out: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let counts = self.storage.counts();
        let all = mixed(self.clock.now().as_nanoseconds(), self.asked.taken.len() as u64, counts.refusals);
        mixed(all, counts.bytes, self.medium.paths().len() as u64)
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
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
        Broken::unless(self.incarnation > 1 || taken.len() == acknowledged.len(), Checker::Liveness, || {
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

    /// Lets time pass, and takes what is acknowledged.
    fn turn(&mut self) -> Result<(), Broken> {
        self.clock.advance(STEP);
        self.storage.poll(self.clock.now(), &mut self.progress);
        for (slot, progress) in self.progress.drain(..) {
            if progress >= Progress::Reached(self.scenario.level) {
                let is_new = self.asked.acknowledged.insert(slot.into());
                Broken::unless(is_new, Checker::Keys, || format!("event {slot} was acknowledged twice"))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Broken> {
        let end = self.clock.now().after(LONGEST);
        while !self.storage.is_closed() {
            let is_late = self.clock.now() > end;
            Broken::unless(!is_late, Checker::Liveness, || "the files are not closed".to_owned())?;
            self.storage.finish(self.clock.now());
            self.turn()?;
        }
        let account = self.storage.pool();
        let held = account.held;
        Broken::unless(held <= 1, Checker::Pools, || format!("{held} blocks are out when all files are closed"))
    }

    fn judge(&self) -> Result<(), Broken> {
        judge(&self.scenario, &self.medium, &self.asked)
    }
}
