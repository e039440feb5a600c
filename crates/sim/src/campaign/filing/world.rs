//! A scenario from its first file to its last document.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::super::draw::Draw;
use super::directory::Directory;
use super::scenario::Scenario;
use super::units::{Said, Unit};
use ropewalk_flow::files::{Broker, BrokerAction, Decided, FileId, LumisectionAccount, Merger, UnitId, Written};
use ropewalk_terms::{Attempt, Instant};
use std::collections::BTreeMap;
use std::time::Duration;

/// Steps after the last fault by which everything is decided.
const LONGEST: u64 = 20_000;
const STEP: Duration = Duration::from_micros(200);

/// A directory, and everybody who works in it.
pub struct World {
    scenario: Scenario,
    draw: Draw,
    now: Instant,
    step: u64,
    directory: Directory,
    /// Files that are still to be written, the first one last.
    unwritten: Vec<FileId>,
    broker: Broker,
    merger: Merger,
    closed: BTreeMap<u32, LumisectionAccount>,
    units: Vec<Unit>,
    /// Units that died, as long as the broker has not heard everything of them.
    ghosts: Vec<Unit>,
    /// Units of a broker that died.
    orphans: Vec<Unit>,
    next_unit: u32,
    deaths: u64,
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let unwritten: Vec<FileId> = scenario.files.keys().copied().rev().collect();
        let mut world = Self {
            draw: Draw::new(scenario.seed, 0xb20c),
            now: Instant::ZERO,
            step: 0,
            directory: Directory::default(),
            unwritten,
            broker: Broker::new(scenario.broker),
            merger: Merger::default(),
            closed: BTreeMap::new(),
            units: Vec::new(),
            ghosts: Vec::new(),
            orphans: Vec::new(),
            next_unit: 0,
            deaths: 0,
            scenario,
        };
        world.begin();
        world
    }

    /// Mixed from everything that came out: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let counts = self.broker.counts();
        mixed(self.step, self.deaths << 20 | counts.given_back, mixed(counts.decided, counts.stale, counts.set_aside))
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        while !self.is_over() {
            let is_late = self.step > self.scenario.steps + LONGEST;
            Broken::unless(!is_late, Checker::Liveness, || format!("{} files are left", self.broker.undecided()))?;
            self.turn()?;
        }
        self.directory.judge(&self.scenario)?;
        self.judge_sums()
    }

    fn is_over(&self) -> bool {
        self.unwritten.is_empty() && self.broker.is_done() && self.units.iter().all(Unit::is_finished)
    }

    /// A broker begins, the first or another one: what it knows is what lies in the directory.
    fn begin(&mut self) {
        (self.broker, self.merger) = (Broker::new(self.scenario.broker), Merger::default());
        self.closed.clear();
        let directory = &self.directory;
        for &file in directory.raw.keys() {
            let written = directory.outputs.keys().filter(|work| work.file == file).map(|work| work.attempt).max();
            match directory.documents.contains_key(&file) {
                true => self.broker.add_decided(file),
                false => self.broker.add(file, written.unwrap_or(Attempt(0))),
            }
        }
        let decided: Vec<FileId> = directory.documents.keys().copied().collect();
        decided.into_iter().for_each(|file| self.merge(file));
        self.merge_set_aside();
        self.merge_written();
        // Units of the broker before go on until they notice, and nobody hears them.
        self.orphans.append(&mut self.units);
        self.ghosts.clear();
        (0..self.scenario.units).for_each(|_| self.start_unit());
    }

    fn start_unit(&mut self) {
        self.next_unit += 1;
        self.units.push(Unit::new(self.next_unit));
        self.broker.joined(self.now, UnitId(self.next_unit));
    }

    fn turn(&mut self) -> Result<(), Broken> {
        (self.step, self.now) = (self.step + 1, self.now.after(STEP));
        if self.draw.one_in(4) {
            self.write();
        }
        for index in 0..self.units.len() {
            if self.draw.one_in(2) {
                self.units[index].step(self.scenario.seed, &mut self.directory);
            }
        }
        for orphan in &mut self.orphans {
            orphan.step(self.scenario.seed, &mut self.directory);
        }
        if self.draw.one_in(5) {
            self.orphans.pop();
        }
        self.hear();
        for _ in 0..self.draw.below(4) {
            if let Some(action) = self.broker.poll(self.now) {
                self.act(action)?;
            }
        }
        self.suffer();
        self.close()
    }

    /// The next file is closed.
    fn write(&mut self) {
        if let Some(file) = self.unwritten.pop() {
            let events = self.scenario.files.get(&file).cloned().unwrap_or_default();
            self.directory.raw.insert(file, events);
            self.broker.add(file, Attempt(0));
        }
        self.merge_written();
    }

    /// The broker hears something of some of the units.
    fn hear(&mut self) {
        let (broker, draw) = (&mut self.broker, &mut self.draw);
        for unit in self.units.iter_mut().chain(&mut self.ghosts) {
            if draw.one_in(self.scenario.delay) {
                match unit.said.pop_front() {
                    Some(Said::Request) => broker.request(unit.id),
                    Some(Said::Done(work)) => broker.done(self.now, unit.id, work),
                    Some(Said::Failed(work)) => broker.failed(self.now, unit.id, work),
                    Some(Said::Gone) => broker.lost(unit.id),
                    None => {}
                }
            }
        }
        self.ghosts.retain(|ghost| !ghost.said.is_empty());
    }

    fn act(&mut self, action: BrokerAction) -> Result<(), Broken> {
        match action {
            BrokerAction::Give { unit, work } => {
                *self.directory.begun.entry(work.file).or_default() += 1;
                self.with(unit, |unit| unit.given.push_back(work));
            }
            BrokerAction::Finish { unit } => self.with(unit, Unit::finish),
            BrokerAction::Dismiss { unit } => self.end(unit),
            BrokerAction::Discard { work } => self.directory.discard(work)?,
            BrokerAction::Commit { work } => {
                if self.is_struck(self.scenario.refusals) {
                    self.broker.not_committed(self.now, work.file);
                    return Ok(());
                }
                self.directory.commit(work)?;
                self.broker.committed(work.file);
                self.merge(work.file);
            }
            BrokerAction::Delete { file } => {
                self.directory.delete(file)?;
                self.broker.gone(file);
            }
            BrokerAction::SetAside { file } => {
                self.directory.set_aside(&self.scenario, file)?;
                self.broker.gone(file);
                self.merge_set_aside();
            }
        }
        Ok(())
    }

    fn with(&mut self, id: UnitId, then: impl FnOnce(&mut Unit)) {
        // Who died meanwhile hears nothing.
        if let Some(unit) = self.units.iter_mut().find(|unit| unit.id == id) {
            then(unit);
        }
    }

    /// A process ends; the broker hears of it later, behind what it said. Another one is started.
    fn end(&mut self, id: UnitId) {
        let Some(index) = self.units.iter().position(|unit| unit.id == id) else { return };
        let mut ghost = self.units.swap_remove(index);
        ghost.said.push_back(Said::Gone);
        self.ghosts.push(ghost);
        self.deaths += 1;
        self.start_unit();
    }

    /// Whether something that happens in one of so many cases happens now.
    fn is_struck(&mut self, rarity: u64) -> bool {
        rarity > 0 && self.step < self.scenario.steps && self.draw.one_in(rarity)
    }

    fn suffer(&mut self) {
        if self.is_struck(self.scenario.deaths) {
            let index = self.draw.below(self.units.len() as u64) as usize;
            self.end(self.units[index].id);
        }
        if self.is_struck(self.scenario.hangs) {
            let index = self.draw.below(self.units.len() as u64) as usize;
            let steps = self.draw.of(&[u64::MAX, 30, 100]);
            self.units[index].hang(steps);
        }
        if self.is_struck(self.scenario.broker_deaths) {
            self.deaths += 1;
            self.begin();
        }
        // The broker's process kills units that hang after everything is decided.
        if self.step > self.scenario.steps && self.broker.is_done() {
            let hung: Vec<UnitId> = self.units.iter().filter(|unit| unit.is_hung()).map(|unit| unit.id).collect();
            hung.into_iter().for_each(|unit| self.end(unit));
        }
        if self.unwritten.is_empty() {
            self.broker.no_more_files();
        }
    }

    /// The merger is told what came of a file; at times twice.
    fn merge(&mut self, file: FileId) {
        let times = 1 + u64::from(self.draw.one_in(4));
        for _ in 0..times {
            if let Some(account) = self.directory.account(file) {
                self.merger.decided(file, &account);
            }
        }
    }

    fn merge_set_aside(&mut self) {
        for (&file, events) in &self.directory.set_aside {
            self.merger.set_aside(file, events.len() as u64);
        }
    }

    /// The merger is told of lumisections of which no file is still to be written.
    fn merge_written(&mut self) {
        for lumisection in self.scenario.files.keys().map(|file| file.lumisection) {
            if self.unwritten.iter().all(|file| file.lumisection != lumisection) {
                self.merger.written(lumisection, self.written(lumisection));
            }
        }
    }

    fn written(&self, lumisection: u32) -> Written {
        let files = self.scenario.files.iter().filter(|(file, _)| file.lumisection == lumisection);
        files.fold(Written::default(), |sum, (_, more)| Written {
            files: sum.files + 1,
            events: sum.events + more.len() as u64,
        })
    }

    fn close(&mut self) -> Result<(), Broken> {
        while let Some(closed) = self.merger.poll() {
            let wrong = closed.imbalances().next();
            Broken::unless(wrong.is_none(), Checker::Ledger, || format!("{wrong:?} in {closed:?}"))?;
            let lumisection = closed.lumisection;
            let before = self.closed.insert(lumisection, closed.account);
            Broken::unless(before.is_none(), Checker::Keys, || format!("lumisection {lumisection} was closed twice"))?;
        }
        Ok(())
    }

    /// All lumisections are closed, and together they hold what the documents say.
    fn judge_sums(&mut self) -> Result<(), Broken> {
        self.merge_written();
        self.close()?;
        let open: Vec<u32> = self.merger.open_lumisections().map(|(lumisection, ..)| lumisection).collect();
        Broken::unless(open.is_empty(), Checker::Liveness, || format!("lumisections {open:?} are not closed"))?;
        let decided: Vec<Decided> =
            self.scenario.files.keys().filter_map(|&file| self.directory.account(file)).collect();
        let mut sum = LumisectionAccount::default();
        sum.files = (decided.len() + self.directory.set_aside.len()) as u64;
        sum.set_aside = self.directory.set_aside.values().map(|events| events.len() as u64).sum();
        sum.decided.processed = decided.iter().map(|one| one.processed).sum();
        sum.decided.accepted = decided.iter().map(|one| one.accepted).sum();
        // Not by the machine's own addition.
        for (&name, counts) in decided.iter().flat_map(|one| &one.streams) {
            sum.decided.streams.entry(name).or_default().add(counts);
        }
        let total = self.merger.total();
        Broken::unless(*total == sum, Checker::Ledger, || format!("{total:?} was added up, and {sum:?} is there"))
    }
}
