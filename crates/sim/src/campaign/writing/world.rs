//! A scenario from its first event to the end of its run.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::super::draw::Draw;
use super::super::stand::pool;
use super::referee::{Referee, data_of};
use super::scenario::Scenario;
use ropewalk_io::clock::{Clock, SimulatedClock};
use ropewalk_io::disk::{DiskFaults, SimulatedDisk, SimulatedDiskConfig, SimulatedStorage};
use ropewalk_memory::Staging;
use ropewalk_node::drive::{EventSink, Filed, Filing, FilingConfig, LumisectionTotal, Progress};
use ropewalk_terms::{AcknowledgementLevel, Incarnation, RunNumber, Utc};
use ropewalk_wire::frd::Version;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// The run is closed by so many steps after the last event.
const LONGEST: u64 = 20_000;
const STEP: Duration = Duration::from_micros(500);

/// A builder unit's files, its disk, and what the event manager knows.
pub struct World {
    scenario: Scenario,
    draw: Draw,
    clock: SimulatedClock,
    medium: SimulatedStorage,
    filing: Filing<SimulatedDisk>,
    /// Fragments, as they lie in a pool.
    payloads: Staging,
    referee: Referee,
    /// The number of the last event.
    events: u64,
    /// Events that this life has not taken yet.
    waiting: VecDeque<u64>,
    /// Events that nobody has acknowledged.
    unacknowledged: BTreeSet<u64>,
    /// Those of them that were given to another life.
    given_again: BTreeSet<u64>,
    /// Events that were acknowledged, and lost with a life: by what that acknowledgement promises.
    lost: BTreeSet<u64>,
    /// Lumisections that are over.
    over: u32,
    progress: Vec<(u32, Progress)>,
    step: u64,
}

fn filing(scenario: &Scenario, medium: &SimulatedStorage, clock: &SimulatedClock) -> Filing<SimulatedDisk> {
    let config = FilingConfig {
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
    let mut filing = Filing::new(disk, config, Staging::new(pool("headers", 4 << 10, scenario.blocks)));
    filing.begin(clock.now(), RunNumber(1), Incarnation(1));
    filing
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let clock = SimulatedClock::new(Utc(1));
        let medium = SimulatedStorage::new(scenario.seed, scenario.faults.clone());
        Self {
            draw: Draw::new(scenario.seed, 0xbeef),
            filing: filing(&scenario, &medium, &clock),
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

    /// Mixed from everything that came out: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let counts = self.filing.counts();
        mixed(self.step, mixed(self.events, counts.segments, counts.refusals), self.given_again.len() as u64)
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        while !self.filing.is_closed() || self.is_going_on() {
            let is_late = self.step > self.scenario.steps + LONGEST;
            Broken::unless(!is_late, Checker::Liveness, || format!("{:?} are not written", self.unacknowledged))?;
            self.turn()?;
            if self.scenario.deaths.contains(&self.step) {
                self.die();
            }
            self.step += 1;
        }
        Broken::unless(self.referee.is_over(), Checker::Liveness, || "the run has no end".to_owned())?;
        let held = self.filing.pool().held;
        Broken::unless(held <= 1, Checker::Pools, || format!("{held} blocks are out when all files are closed"))?;
        let expected = (1..=self.events).filter(|number| !self.lost.contains(number));
        self.referee.judge(&self.medium, expected, &self.given_again)
    }

    /// Whether events are still offered, or awaited.
    fn is_going_on(&self) -> bool {
        self.step < self.scenario.steps || !self.unacknowledged.is_empty()
    }

    fn turn(&mut self) -> Result<(), Broken> {
        if self.step == self.scenario.steps {
            self.medium.set_faults(DiskFaults::default());
        }
        self.offer();
        self.clock.advance(STEP);
        self.filing.flush(self.clock.now());
        if self.filing.poll(self.clock.now(), &mut self.progress) > 0 {
            self.referee.look(&self.medium)?;
        }
        self.acknowledge()?;
        self.end_lumisections();
        if !self.is_going_on() {
            self.filing.finish(self.clock.now());
        }
        Ok(())
    }

    /// Events come, those that were given to a life before first.
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
                self.filing.add(self.clock.now(), number as u32, lumisection, number, [first, second].into_iter());
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

    fn acknowledge(&mut self) -> Result<(), Broken> {
        for (slot, progress) in self.progress.drain(..) {
            let number = slot.into();
            let is_written = progress == Progress::Reached(AcknowledgementLevel::Written);
            Broken::unless(is_written && self.referee.has(number), Checker::Loss, || {
                format!("event {number} is {progress:?}, and in no file that has its name")
            })?;
            let is_new = self.unacknowledged.remove(&number) || self.scenario.is_handed;
            Broken::unless(is_new, Checker::Keys, || format!("event {number} was acknowledged twice"))?;
        }
        Ok(())
    }

    /// Lumisections of which every event is acknowledged, and no more come, are over.
    fn end_lumisections(&mut self) {
        let next = self.over + 1;
        let is_past = self.events > 0 && (self.lumisection_of(self.events) > next || self.step >= self.scenario.steps);
        let is_known = self.events > 0 && self.lumisection_of(self.events) >= next;
        let oldest = self.unacknowledged.first().map_or(u32::MAX, |&number| self.lumisection_of(number));
        if is_past && is_known && oldest > next {
            self.over = next;
            self.filing.end_lumisection(next, LumisectionTotal::default());
        }
    }

    /// The process dies. Its next life is told again what is over, and given what was not acknowledged.
    fn die(&mut self) {
        let acknowledged = (1..=self.events).filter(|number| !self.unacknowledged.contains(number));
        self.lost.extend(acknowledged.filter(|&number| !self.referee.has(number)));
        self.filing = filing(&self.scenario, &self.medium, &self.clock);
        self.progress.clear();
        (1..=self.over).for_each(|one| self.filing.end_lumisection(one, LumisectionTotal::default()));
        self.waiting = self.unacknowledged.iter().copied().collect();
        self.given_again.extend(&self.waiting);
    }
}
