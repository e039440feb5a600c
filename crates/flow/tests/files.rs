//! Files of events between a writer and filter units, with a broker and a merger. Each of them may die at any step.
//!
//! ```text
//!   writer --> directory: files, what units wrote for them, documents <--> drive <--> Broker, Merger
//!                                   ^                                       |
//!                                   +---- units: they die, hang, restart ---+  messages take their time
//! ```
//! Each event's fate is in one document, or its file was set aside after the permitted number of attempts. Nothing is
//! deleted before that, and each lumisection adds up.

use ropewalk_flow::files::{
    Broker, BrokerAction, BrokerConfig, Decided, FileId, LumisectionAccount, Merger, StreamCounts, UnitId, Work,
    Written,
};
use ropewalk_flow::filter::{StreamConfig, Streams};
use ropewalk_flow::source::Random;
use ropewalk_terms::{Attempt, Instant, TriggerBits};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The files of a run, and the units that filter them.
#[derive(Clone, PartialEq, Debug)]
struct Scenario {
    /// The seed of everything else.
    seed: u64,
    /// The events of each file, in the order in which files are written.
    files: BTreeMap<FileId, Vec<u64>>,
    /// The number of filter units.
    units: u32,
    /// The time-outs of the broker.
    broker: BrokerConfig,
    /// A unit dies in one of this many steps; 0: never.
    deaths: u64,
    /// A unit hangs in one of this many steps, for a while or forever; 0: never.
    hangs: u64,
    /// The broker gets a unit's message in one of `delay` steps.
    delay: u64,
    /// The broker dies in one of `broker_deaths` steps; 0: never.
    broker_deaths: u64,
    /// A document cannot get its name in one of this many cases; 0: never.
    refusals: u64,
    /// The number of steps with faults; none happen afterwards.
    steps: u64,
}

impl Scenario {
    /// The scenario of a seed.
    fn draw(seed: u64) -> Self {
        let mut draw = Random::new(seed, 0xf11e);
        let (mut files, mut number) = (BTreeMap::new(), 0);
        for lumisection in 1..=draw.between(1, 4) as u32 {
            for _ in 0..draw.below(6) {
                let events = draw.below(6);
                let file = FileId { lumisection, index: files.len() as u32 };
                files.insert(file, (number..number + events).collect());
                number += events;
            }
        }
        let rarely = |draw: &mut Random, least| if draw.one_in(3) { 0 } else { draw.between(least, 20 * least) };
        let broker = BrokerConfig {
            time_out: draw.time(Duration::from_millis(3), Duration::from_millis(100)),
            tries: draw.between(1, 4) as u16,
            retry: draw.time(Duration::from_micros(100), Duration::from_millis(5)),
        };
        Self {
            seed,
            files,
            units: draw.between(1, 4) as u32,
            broker,
            deaths: rarely(&mut draw, 10),
            hangs: rarely(&mut draw, 20),
            delay: draw.between(2, 8),
            broker_deaths: rarely(&mut draw, 30),
            refusals: if draw.one_in(2) { 0 } else { draw.between(2, 6) },
            steps: draw.between(50, 500),
        }
    }
}

/// Maximum steps from the last fault until everything is decided.
const LONGEST: u64 = 20_000;
const STEP: Duration = Duration::from_micros(200);

/// A directory, and the broker, the merger and the units that work in it.
struct World {
    scenario: Scenario,
    draw: Random,
    now: Instant,
    step: u64,
    directory: Directory,
    /// Files yet to be written, the first one last.
    unwritten: Vec<FileId>,
    broker: Broker,
    merger: Merger,
    closed: BTreeMap<u32, LumisectionAccount>,
    units: Vec<Unit>,
    /// Dead units, until the broker has received all of their messages.
    ghosts: Vec<Unit>,
    /// Units of a broker that died.
    orphans: Vec<Unit>,
    next_unit: u32,
    deaths: u64,
}

impl World {
    /// The world of a scenario, at its beginning.
    fn new(scenario: Scenario) -> Self {
        let unwritten: Vec<FileId> = scenario.files.keys().copied().rev().collect();
        let mut world = Self {
            draw: Random::new(scenario.seed, 0xb20c),
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

    /// A digest of all output: equal for equal histories.
    fn digest(&self) -> u64 {
        let counts = self.broker.counts();
        mixed(self.step, self.deaths << 20 | counts.given_back, mixed(counts.decided, counts.stale, counts.set_aside))
    }

    /// Executes the run.
    fn run(&mut self) -> Result<(), String> {
        while !self.is_over() {
            let is_late = self.step > self.scenario.steps + LONGEST;
            unless(!is_late, || format!("{} files are left", self.broker.undecided()))?;
            self.turn()?;
        }
        self.directory.judge(&self.scenario)?;
        self.judge_sums()
    }

    fn is_over(&self) -> bool {
        self.unwritten.is_empty() && self.broker.is_done() && self.units.iter().all(Unit::is_finished)
    }

    /// Starts a broker, the first or another one: it knows only the directory.
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
        // Units of the previous broker continue until they notice; the new broker does not hear them.
        self.orphans.append(&mut self.units);
        self.ghosts.clear();
        (0..self.scenario.units).for_each(|_| self.start_unit());
    }

    fn start_unit(&mut self) {
        self.next_unit += 1;
        self.units.push(Unit::new(self.next_unit));
        self.broker.joined(self.now, UnitId(self.next_unit));
    }

    fn turn(&mut self) -> Result<(), String> {
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

    /// Closes the next file.
    fn write(&mut self) {
        if let Some(file) = self.unwritten.pop() {
            let events = self.scenario.files.get(&file).cloned().unwrap_or_default();
            self.directory.raw.insert(file, events);
            self.broker.add(file, Attempt(0));
        }
        self.merge_written();
    }

    /// The broker receives messages of some of the units.
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

    fn act(&mut self, action: BrokerAction) -> Result<(), String> {
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
        // A unit that died meanwhile receives nothing.
        if let Some(unit) = self.units.iter_mut().find(|unit| unit.id == id) {
            then(unit);
        }
    }

    /// A process ends; the broker notices later, after its last message. Another one is started.
    fn end(&mut self, id: UnitId) {
        let Some(index) = self.units.iter().position(|unit| unit.id == id) else { return };
        let mut ghost = self.units.swap_remove(index);
        ghost.said.push_back(Said::Gone);
        self.ghosts.push(ghost);
        self.deaths += 1;
        self.start_unit();
    }

    /// Whether a fault with this rarity happens now.
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

    /// Reports the outcome of a file to the merger, sometimes twice.
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

    /// Reports the lumisections whose files are all written to the merger.
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

    fn close(&mut self) -> Result<(), String> {
        while let Some(closed) = self.merger.poll() {
            let wrong = closed.imbalances().next();
            unless(wrong.is_none(), || format!("{wrong:?} in {closed:?}"))?;
            let lumisection = closed.lumisection;
            let before = self.closed.insert(lumisection, closed.account);
            unless(before.is_none(), || format!("lumisection {lumisection} was closed twice"))?;
        }
        Ok(())
    }

    /// All lumisections are closed, and their sums equal the documents.
    fn judge_sums(&mut self) -> Result<(), String> {
        self.merge_written();
        self.close()?;
        let open: Vec<u32> = self.merger.open_lumisections().map(|(lumisection, ..)| lumisection).collect();
        unless(open.is_empty(), || format!("lumisections {open:?} are not closed"))?;
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
        unless(*total == sum, || format!("{total:?} was added up, and {sum:?} is there"))
    }
}

/// A message of a unit to the broker.
#[derive(Copy, Clone, Debug)]
enum Said {
    /// It wants a file.
    Request,
    /// It has written everything.
    Done(Work),
    /// It could not filter the file.
    Failed(Work),
    /// Its connection has ended: no message follows.
    Gone,
}

#[derive(Copy, Clone, Debug)]
enum State {
    /// It has asked for a file, or will.
    Idle { has_asked: bool },
    /// It has read this many events of the file.
    Working { work: Work, looked_at: usize },
    /// The broker has reported that no more files come.
    Finished,
}

/// A process that filters.
#[derive(Debug)]
struct Unit {
    id: UnitId,
    state: State,
    /// Remaining steps in which it does nothing.
    pause: u64,
    /// Its messages that the broker has not received yet, in order.
    said: VecDeque<Said>,
    /// The work that it was given and has not read yet.
    given: VecDeque<Work>,
}

impl Unit {
    const fn new(id: u32) -> Self {
        let state = State::Idle { has_asked: false };
        Self { id: UnitId(id), state, pause: 0, said: VecDeque::new(), given: VecDeque::new() }
    }

    /// It does nothing for this many steps.
    const fn hang(&mut self, steps: u64) {
        self.pause = steps;
    }

    const fn is_hung(&self) -> bool {
        self.pause > 0
    }

    const fn finish(&mut self) {
        self.state = State::Finished;
    }

    const fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// Does one thing: requests a file, begins one, reads one event of it, or closes its output.
    fn step(&mut self, seed: u64, directory: &mut Directory) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        match self.state {
            State::Idle { has_asked: false } => {
                self.said.push_back(Said::Request);
                self.state = State::Idle { has_asked: true };
            }
            State::Idle { has_asked: true } => {
                if let Some(work) = self.given.pop_front() {
                    self.begin(work, directory);
                }
            }
            State::Working { work, looked_at } => self.look(seed, work, looked_at, directory),
            State::Finished => {}
        }
    }

    /// Overwrites nothing: an output that exists already belongs to a unit whose broker died.
    fn begin(&mut self, work: Work, directory: &mut Directory) {
        if directory.outputs.contains_key(&work) {
            self.said.push_back(Said::Failed(work));
            self.state = State::Idle { has_asked: false };
            return;
        }
        directory.outputs.insert(work, Output::default());
        self.state = State::Working { work, looked_at: 0 };
    }

    fn look(&mut self, seed: u64, work: Work, looked_at: usize, directory: &mut Directory) {
        let event = directory.raw.get(&work.file).map(|events| events.get(looked_at).copied());
        // The output of an abandoned attempt may be deleted meanwhile, and so may its file.
        let (Some(event), Some(output)) = (event, directory.outputs.get_mut(&work)) else {
            self.state = State::Idle { has_asked: false };
            return;
        };
        match event {
            Some(event) => {
                output.decided.push((event, is_accepted(seed, event)));
                self.state = State::Working { work, looked_at: looked_at + 1 };
            }
            None => {
                output.is_whole = true;
                self.said.push_back(Said::Done(work));
                self.state = State::Idle { has_asked: false };
            }
        }
    }
}

/// The output of a unit for a file.
#[derive(Clone, Debug, Default)]
struct Output {
    /// The events that it has read so far, and whether each is accepted.
    decided: Vec<(u64, bool)>,
    /// Whether the document marks the output as complete.
    is_whole: bool,
}

/// The files, which outlive every process.
#[derive(Debug, Default)]
struct Directory {
    raw: BTreeMap<FileId, Vec<u64>>,
    outputs: BTreeMap<Work, Output>,
    /// Documents with their final names.
    documents: BTreeMap<FileId, Work>,
    set_aside: BTreeMap<FileId, Vec<u64>>,
    /// How often a unit began each file.
    begun: BTreeMap<FileId, u16>,
}

/// Whether a filter accepts an event.
fn is_accepted(seed: u64, event: u64) -> bool {
    mixed(seed, event, 3).is_multiple_of(3)
}

/// The triggers that an event passes: every second event passes the second one.
const fn trigger(event: u64) -> TriggerBits {
    TriggerBits::of(event as u32 % 2)
}

/// The streams of every run: one has all accepted events, the other one of three that pass the second trigger.
fn streams() -> Streams {
    let named = |name: &str| StreamConfig { name: name.parse().expect("a name"), ..StreamConfig::everything() };
    let part = StreamConfig { triggers: TriggerBits::of(1), prescale: 3, ..named("monitoring") };
    Streams::new(vec![named("physics"), part], false).expect("they make sense")
}

impl Directory {
    /// A document gets its name.
    fn commit(&mut self, work: Work) -> Result<(), String> {
        let is_whole = self.outputs.get(&work).is_some_and(|output| output.is_whole);
        unless(is_whole, || format!("{work:?} counts, and is not all written"))?;
        let before = self.documents.insert(work.file, work);
        unless(before.is_none_or(|before| before == work), || format!("{work:?} counts beside {before:?}"))
    }

    /// Deletes the output of an attempt.
    fn discard(&mut self, work: Work) -> Result<(), String> {
        self.outputs.remove(&work);
        let counts = self.documents.get(&work.file) == Some(&work);
        unless(!counts, || format!("{work:?} counted, and was thrown away"))
    }

    /// Deletes a decided file.
    fn delete(&mut self, file: FileId) -> Result<(), String> {
        self.raw.remove(&file);
        let is_decided = self.documents.contains_key(&file);
        unless(is_decided, || format!("{file:?} was deleted before it was decided"))
    }

    /// A file is set aside for an operator to look at.
    fn set_aside(&mut self, scenario: &Scenario, file: FileId) -> Result<(), String> {
        let begun = self.begun.get(&file).copied().unwrap_or_default();
        unless(begun >= scenario.broker.tries, || format!("{file:?} was given up after {begun} tries"))?;
        let events = self.raw.remove(&file);
        let events = events.ok_or_else(|| format!("{file:?} was set aside twice"))?;
        self.set_aside.insert(file, events);
        Ok(())
    }

    /// The contents of a document.
    fn account(&self, file: FileId) -> Option<Decided> {
        let output = self.outputs.get(self.documents.get(&file)?)?;
        let accepted: Vec<u64> =
            output.decided.iter().filter(|(_, is_accepted)| *is_accepted).map(|&(event, _)| event).collect();
        let mut streams = streams();
        streams.begin_part(file.index);
        for &event in &accepted {
            let to = streams.select(trigger(event), 0);
            streams.written(to);
        }
        let counts = streams.accounts().map(|(_, account)| StreamCounts {
            selected: account.selected,
            prescaled_away: account.prescaled_away,
            written: account.written,
            bytes: 10 * account.written,
        });
        let (processed, accepted) = (output.decided.len() as u64, accepted.len() as u64);
        Some(Decided { processed, accepted, streams: streams.names().zip(counts).collect() })
    }

    /// Checks the result at the end: each event has one fate.
    fn judge(&self, scenario: &Scenario) -> Result<(), String> {
        unless(self.raw.is_empty(), || format!("{:?} are left", self.raw.keys()))?;
        for (file, events) in &scenario.files {
            let expected: Vec<_> = events.iter().map(|&event| (event, is_accepted(scenario.seed, event))).collect();
            let document = self.documents.get(file).and_then(|work| self.outputs.get(work));
            let right = match (document, self.set_aside.get(file)) {
                (Some(output), None) => output.decided == expected,
                (None, Some(kept)) => kept == events,
                _ => false,
            };
            unless(right, || format!("{file:?}: {document:?} of {expected:?}"))?;
        }
        Ok(())
    }
}

/// An error with this text unless `holds`.
fn unless(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}

/// A hash of three numbers.
const fn mixed(seed: u64, one: u64, other: u64) -> u64 {
    let stream = one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other.rotate_left(32);
    Random::new(seed, stream).below(u64::MAX)
}

#[test]
fn every_event_of_every_file_has_one_fate_with_any_deaths() {
    for seed in 0..1000 {
        let scenario = Scenario::draw(seed);
        assert_eq!(World::new(scenario.clone()).run(), Ok(()), "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_everything_is_drawn() {
    let (mut digests, mut units) = (BTreeSet::new(), BTreeSet::new());
    let (mut deaths, mut hangs, mut broker_deaths, mut refusals) = (0, 0, 0, 0);
    for seed in 0..60 {
        let digest = || {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(), digest(), "seed {seed}");
        digests.extend(digest());
        let scenario = Scenario::draw(seed);
        units.insert(scenario.units);
        deaths += u32::from(scenario.deaths > 0);
        hangs += u32::from(scenario.hangs > 0);
        broker_deaths += u32::from(scenario.broker_deaths > 0);
        refusals += u32::from(scenario.refusals > 0);
    }
    assert!(digests.len() > 50, "different seeds are different runs");
    assert_eq!(units, (1..=4).collect());
    assert!([deaths, hangs, broker_deaths, refusals].iter().all(|&count| (10..60).contains(&count)));
}
