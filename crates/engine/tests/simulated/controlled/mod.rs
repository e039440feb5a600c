//! Front ends under run control: programs that are slow, ignore a command, lose their connection, are killed and
//! restarted, over several runs, and the real drive that controls them.
//!
//! ```text
//!   Program (trigger, detectors) <--simulated network--> ControlledDrive --commands--> StandInNodes
//!        |      which commands, in which order                 |   which commands nodes get
//!        +--------------------> Referee <----------------------+
//! ```
//! The referee asks no machine. For a *reliable* program, without mishaps in a run, everything must be right: it is
//! never named, never left behind, and its first and last event are those of all others. While the nodes are paused, a
//! trigger source issues nothing; afterwards it continues.

mod program;

use super::mixed;
use super::stand::pool;
use super::{seeds, unless};
use program::Program;
use ropewalk_engine::{ControlledDrive, ControlledDriveConfig, Drive, FrontEndsAccount};
use ropewalk_flow::control::front_ends::{FrontEndConfig, FrontEndsConfig, Incident, IncidentKind, RunOrder};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_flow::source::Random;
use ropewalk_io::disk::SimulatedDisk;
use ropewalk_io::simulated::{Faults, Network, Simulated, SimulatedConfig};
use ropewalk_memory::{Pool, Staging};
use ropewalk_terms::{EventKey, Incarnation, Instant, RunNumber, SourceId};
use ropewalk_wire::front_end::{CONTROL_VERSION, Command, Kind, OLDEST_CONTROL_VERSION, Stage};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long run control waits for an answer.
const ANSWER: Duration = Duration::from_secs(1);
/// Maximum wait for data still being sent.
const DRAIN: Duration = Duration::from_secs(4);

/// A mishap of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Mishap {
    /// Its control connection breaks.
    Reset,
    /// Its control connection goes silent, without a close or an error.
    HalfOpen,
    /// It is killed, and restarted after this time.
    Kill(Duration),
}

/// A pause of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct PauseSetting {
    /// The run.
    run: usize,
    /// When it is paused, from its beginning.
    at: Duration,
    /// The length of the pause.
    length: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct ProgramSetting {
    /// Whether a start waits for it.
    is_required: bool,
    /// The delay before it obeys a command.
    delay: Duration,
    /// Steps to send the data of one event.
    steps_for_event: u64,
    /// It never answers this command.
    deaf_to: Option<Kind>,
    /// Its version of the protocol.
    version: u16,
}

/// A system and its faults.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Scenario {
    /// The seed of all random choices.
    seed: u64,
    /// Whether the first program is the trigger source.
    has_trigger: bool,
    programs: Vec<ProgramSetting>,
    /// How long each run lasts until it is stopped.
    runs: Vec<Duration>,
    /// Run, time from its beginning, program, mishap.
    mishaps: Vec<(usize, Duration, usize, Mishap)>,
    /// Pauses, some of which outlast their run.
    pauses: Vec<PauseSetting>,
    /// In this run the nodes drain by themselves after this time.
    nodes_drain: Option<(usize, Duration)>,
    /// This run is stopped by force.
    forced: Option<usize>,
}

impl Scenario {
    /// The scenario of a seed. Every fourth has no faults.
    fn draw(seed: u64) -> Self {
        let mut draw = Random::new(seed, 40);
        let is_quiet = seed.is_multiple_of(4);
        let count = draw.between(2, 5) as usize;
        let runs: Vec<Duration> =
            (0..draw.between(1, 3)).map(|_| Duration::from_millis(draw.between(50, 2500))).collect();
        let deaf = (!is_quiet && draw.one_in(3)).then(|| draw.below(count as u64) as usize);
        let kinds = [Kind::Configure, Kind::Start, Kind::Enable, Kind::Veto, Kind::Stop];
        let programs = (0..count).map(|place| ProgramSetting {
            is_required: place == 0 || !draw.one_in(3),
            delay: draw.time(Duration::from_millis(1), Duration::from_millis(300)),
            steps_for_event: if draw.one_in(4) { 2 } else { 1 },
            deaf_to: if deaf == Some(place) { Some(draw.of(&kinds)) } else { None },
            version: CONTROL_VERSION,
        });
        let mut programs: Vec<ProgramSetting> = programs.collect();
        let mishap = |draw: &mut Random| match draw.below(3) {
            0 => Mishap::Reset,
            1 => Mishap::HalfOpen,
            _ => Mishap::Kill(Duration::from_millis(draw.between(10, 1500))),
        };
        let mishaps = (0..if is_quiet { 0 } else { draw.below(5) }).map(|_| {
            let run = draw.below(runs.len() as u64) as usize;
            let at = Duration::from_millis(draw.below(runs[run].as_millis() as u64 + 1500));
            (run, at, draw.below(count as u64) as usize, mishap(&mut draw))
        });
        let mishaps: Vec<_> = mishaps.collect();
        let pauses = Self::draw_pauses(seed, &runs, &mut programs);
        let some_run = |draw: &mut Random| draw.below(runs.len() as u64) as usize;
        Self {
            seed,
            has_trigger: !draw.one_in(6),
            nodes_drain: draw.one_in(6).then(|| (some_run(&mut draw), Duration::from_millis(draw.between(100, 2000)))),
            forced: (!is_quiet && draw.one_in(8)).then(|| some_run(&mut draw)),
            programs,
            runs,
            mishaps,
            pauses,
        }
    }

    /// Pauses, and programs that do not support or do not answer them, from a separate random stream: all else stays as
    /// it was.
    fn draw_pauses(seed: u64, runs: &[Duration], programs: &mut [ProgramSetting]) -> Vec<PauseSetting> {
        let mut draw = Random::new(seed, 41);
        let count = if draw.one_in(3) { 0 } else { draw.between(1, 4) };
        let pauses = (0..count).map(|_| {
            let run = draw.below(runs.len() as u64) as usize;
            let at = Duration::from_millis(draw.below(runs[run].as_millis() as u64 + 1000));
            PauseSetting { run, at, length: draw.time(Duration::from_millis(5), Duration::from_millis(2500)) }
        });
        let pauses = pauses.collect();
        for (place, program) in programs.iter_mut().enumerate() {
            if draw.one_in(6) {
                program.version = OLDEST_CONTROL_VERSION;
            }
            if place == 0 && program.deaf_to.is_none() && !seed.is_multiple_of(4) && draw.one_in(8) {
                program.deaf_to = Some(draw.of(&[Kind::Hold, Kind::Release]));
            }
        }
        pauses
    }

    /// Whether a program has no mishap in a run, and answers everything.
    fn is_reliable(&self, run: usize, place: usize) -> bool {
        // Mishaps of an earlier run may still have effects.
        let strikes = |struck: usize| struck <= run;
        self.programs[place].deaf_to.is_none()
            && !self.mishaps.iter().any(|&(struck, _, whom, _)| whom == place && strikes(struck))
    }
}

/// Time between turns.
const STEP: Duration = Duration::from_millis(5);
/// The address of the drive.
const ADDRESS: &str = "run-control";

/// Programs, the drive, and the network between them.
struct World {
    scenario: Scenario,
    now: Instant,
    network: Network,
    drive: ControlledDrive<Simulated, SimulatedDisk>,
    programs: Vec<Program>,
    /// A digest of everything that happened: equal for equal histories.
    digest: u64,
}

fn memory(name: &str) -> Pool {
    pool(name, 64 << 10, 48)
}

impl World {
    /// The world of a scenario, at its beginning.
    fn new(scenario: Scenario) -> Self {
        let network = Network::new(scenario.seed, Faults { give_up: Duration::from_secs(2), ..Faults::bumpy() });
        let front_ends = scenario.programs.iter().enumerate().map(|(place, program)| FrontEndConfig {
            source: SourceId(place as u32 + 1),
            is_trigger: place == 0 && scenario.has_trigger,
            is_required: program.is_required,
            settings: format!("place = {place}"),
        });
        let config = ControlledDriveConfig {
            front_ends: FrontEndsConfig { front_ends: front_ends.collect(), answer: ANSWER, drain: DRAIN },
            listen: ADDRESS.to_owned(),
            incarnation: Incarnation(1),
        };
        let peers = network.dispatcher(SimulatedConfig::default(), memory("run control"));
        let drive = ControlledDrive::new(config, peers, Staging::new(memory("staging")), None);
        let drive = drive.expect("the address is free");
        let address = drive.address();
        let programs = scenario.programs.iter().enumerate().map(|(place, setting)| {
            let network = network.dispatcher(SimulatedConfig::default(), memory("program"));
            Program::new(place as u32 + 1, setting.clone(), network, Staging::new(memory("words")), &address)
        });
        let programs = programs.collect();
        Self { now: Instant::ZERO, network, drive, programs, digest: scenario.seed, scenario }
    }

    /// Executes all runs.
    fn run(&mut self) -> Result<(), String> {
        for run in 0..self.scenario.runs.len() {
            self.take(run)?;
        }
        for account in self.drive.pools() {
            // Each connection fills one block, and so does each outgoing message; few remain from broken connections.
            let (is_balanced, most) =
                (account.loans == account.returned + account.held, 2 * self.programs.len() as u64);
            unless(is_balanced && account.held <= 2 + most, || format!("{account:?}"))?;
        }
        Ok(())
    }

    fn take(&mut self, run: usize) -> Result<(), String> {
        let begun = self.now;
        let length = self.scenario.runs[run];
        let mut referee = Referee::new(&self.scenario, run);
        let mut nodes = StandInNodes::default();
        let addresses = vec!["ru0".to_owned(); self.programs.len()];
        let order = RunOrder { run: RunNumber(run as u32 + 1), first: EventKey::new(0, 1), last: None, addresses };
        self.drive.start(self.now, order, false);
        let mut is_paused = false;
        let (mut is_told, is_forced) = (false, self.scenario.forced == Some(run));
        while !(is_told && self.drive.is_at_rest() && nodes.phase == RunPhase::Ended) {
            let age = self.now.since(begun);
            if age >= length && !std::mem::replace(&mut is_told, true) {
                referee.stop(self.now);
                if is_forced { self.drive.force_stop(self.now) } else { self.drive.stop(self.now, None) }
            }
            if self.scenario.nodes_drain.is_some_and(|(of, at)| of == run && age >= at && age < at + STEP) {
                nodes.drain(self.now);
            }
            self.strike(run, age);
            // An operator pauses a run that is running.
            let is_wanted = nodes.phase == RunPhase::Running && self.is_to_be_paused(run, age);
            if std::mem::replace(&mut is_paused, is_wanted) != is_wanted {
                referee.pause(self.now, is_wanted);
                self.drive.pause(self.now, is_wanted);
            }
            self.turn(&mut referee, &mut nodes)?;
            referee.is_overdue(self.now)?;
            referee.expect_pauses(self.now, &self.programs[0])?;
            self.now = self.now.after(STEP);
        }
        let account = self.drive.account();
        self.digest = mixed(self.digest, account.last.unwrap_or(0), account.incidents.len() as u64);
        referee.judge(&self.programs, &account)
    }

    fn is_to_be_paused(&self, run: usize, age: Duration) -> bool {
        self.scenario.pauses.iter().any(|pause| pause.run == run && (pause.at..pause.at + pause.length).contains(&age))
    }

    /// Causes the mishaps that are due at this age of the run.
    fn strike(&mut self, run: usize, age: Duration) {
        for (of, at, place, mishap) in &self.scenario.mishaps {
            if *of != run || age < *at || age >= *at + STEP {
                continue;
            }
            let program = &mut self.programs[*place];
            match (mishap, program.connection()) {
                (Mishap::Kill(pause), _) => program.kill(self.now.after(*pause)),
                (Mishap::Reset, Some(endpoint)) => self.network.reset(program.network.host(), endpoint),
                (Mishap::HalfOpen, Some(endpoint)) => self.network.half_open(program.network.host(), endpoint),
                (Mishap::Reset | Mishap::HalfOpen, None) => {}
            }
        }
    }

    fn turn(&mut self, referee: &mut Referee, nodes: &mut StandInNodes) -> Result<(), String> {
        for place in 0..self.programs.len() {
            for command in self.programs[place].turn(self.now) {
                self.digest = mixed(self.digest, place as u64, command.kind() as u64);
                referee.obeyed(place, &command, &self.programs)?;
            }
        }
        let event = if self.scenario.has_trigger { self.programs[0].trigger() } else { None };
        event.map_or(Ok(()), |event| referee.triggered(event))?;
        for program in self.programs.iter_mut().skip(1) {
            event.into_iter().for_each(|event| program.sees(event));
        }
        self.drive.turn(self.now);
        while let Some(command) = self.drive.next_for_nodes() {
            referee.nodes_told(self.now, &command, &self.programs)?;
            nodes.command(self.now, &command);
            if matches!(command, RunCommand::Pause | RunCommand::Resume) {
                self.digest = mixed(self.digest, u64::from(command == RunCommand::Pause), self.now.as_nanoseconds());
            }
            if matches!(command, RunCommand::Stop { .. }) {
                self.digest = mixed(self.digest, referee.last.unwrap_or(0), self.now.as_nanoseconds());
            }
        }
        if let Some(phase) = nodes.turn(self.now) {
            if phase > RunPhase::Running {
                referee.stop(self.now);
            }
            self.drive.nodes_are(self.now, phase);
        }
        Ok(())
    }
}

/// The time of a stand-in node for each phase.
const PHASE: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct StandInNodes {
    phase: RunPhase,
    is_paused: bool,
    next: Option<(Instant, RunPhase)>,
}

impl StandInNodes {
    fn command(&mut self, now: Instant, command: &RunCommand) {
        let is_running = self.phase == RunPhase::Running;
        match command {
            RunCommand::Pause => self.is_paused = is_running,
            RunCommand::Resume => self.is_paused = false,
            _ => {}
        }
        let next = match (command, self.phase) {
            (RunCommand::Start { .. }, RunPhase::Initial) => RunPhase::Running,
            (RunCommand::Stop { .. }, RunPhase::Running) => RunPhase::Draining,
            (RunCommand::Stop { .. } | RunCommand::ForceStop, RunPhase::Initial) => RunPhase::Ended,
            (RunCommand::ForceStop, RunPhase::Running) => RunPhase::Draining,
            _ => return,
        };
        self.next = Some((now.after(PHASE), next));
    }

    /// Lets the nodes drain by themselves.
    fn drain(&mut self, now: Instant) {
        if self.phase == RunPhase::Running {
            self.next = Some((now, RunPhase::Draining));
        }
    }

    /// Returns the new phase, if it has changed.
    fn turn(&mut self, now: Instant) -> Option<RunPhase> {
        let (_, phase) = self.next.take_if(|(due, _)| now >= *due)?;
        self.phase = phase;
        if phase == RunPhase::Draining {
            self.next = Some((now.after(PHASE), RunPhase::Ended));
        }
        Some(phase)
    }
}

/// The time-outs of all awaited steps, and a margin for the network.
const LONGEST_END: Duration = Duration::from_millis(500 + (2 * ANSWER.as_millis() + DRAIN.as_millis()) as u64);

/// Maximum time until the nodes are paused.
const LONGEST_PAUSE: Duration = Duration::from_millis(100 + ANSWER.as_millis() as u64);
/// Maximum time until an answering trigger source is released, beyond its own delay.
const LONGEST_RELEASE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Referee {
    run: usize,
    /// By place: whether the program has no mishap in this run.
    reliable: Vec<bool>,
    has_trigger: bool,
    is_forced: bool,
    /// Whether the trigger source's protocol has the hold command.
    may_hold: bool,
    /// Since when the run is to pause, or to resume.
    pausing: Option<Instant>,
    resuming: Option<Instant>,
    are_nodes_paused: bool,
    /// Whether the nodes were paused while a trigger source issued triggers that cannot be held.
    was_beyond_hold: bool,
    nodes_started: Option<Instant>,
    stopped: Option<Instant>,
    triggered: bool,
    vetoed: bool,
    last: Option<u64>,
}

impl Referee {
    fn new(scenario: &Scenario, run: usize) -> Self {
        Self {
            run,
            reliable: (0..scenario.programs.len()).map(|place| scenario.is_reliable(run, place)).collect(),
            has_trigger: scenario.has_trigger,
            is_forced: scenario.forced == Some(run),
            may_hold: scenario.programs[0].version > OLDEST_CONTROL_VERSION,
            pausing: None,
            resuming: None,
            are_nodes_paused: false,
            was_beyond_hold: false,
            nodes_started: None,
            stopped: None,
            triggered: false,
            vetoed: false,
            last: None,
        }
    }

    const fn number(&self) -> RunNumber {
        RunNumber(self.run as u32 + 1)
    }

    /// Whether a program has reached this stage in this run.
    fn is_in(&self, program: &Program, stage: Stage) -> bool {
        program.run == self.number() && program.stage >= stage
    }

    /// The stop was ordered, or the nodes drained by themselves.
    fn stop(&mut self, now: Instant) {
        self.stopped.get_or_insert(now);
    }

    /// The run must pause, or resume.
    fn pause(&mut self, now: Instant, is_paused: bool) {
        let now = Some(now).filter(|_| self.stopped.is_none());
        (self.pausing, self.resuming) = if is_paused { (now, None) } else { (None, now) };
    }

    /// The trigger source let a trigger through.
    fn triggered(&self, event: u64) -> Result<(), String> {
        let is_held = self.are_nodes_paused && self.reliable[0] && self.may_hold;
        unless(!is_held, || format!("run {}: the trigger makes event {event} while the run is paused", self.run))
    }

    /// Checks that a pause begins and ends in time.
    fn expect_pauses(&self, now: Instant, trigger: &Program) -> Result<(), String> {
        let is_late = |since: Option<Instant>, longest: Duration| {
            self.stopped.is_none() && since.is_some_and(|since| now.since(since) > longest)
        };
        let longest_release = trigger.setting.delay + LONGEST_RELEASE;
        unless(self.are_nodes_paused || !is_late(self.pausing, LONGEST_PAUSE), || {
            format!("run {}: it is not paused", self.run)
        })?;
        let is_held = self.has_trigger && self.reliable[0] && trigger.is_held;
        unless(!(is_held && is_late(self.resuming, longest_release)), || {
            format!("run {}: it goes on, and the trigger is held", self.run)
        })
    }

    fn expect_hold(&self, place: usize, command: &Command, programs: &[Program]) -> Result<(), String> {
        let is_meant = place == 0 && self.has_trigger && programs[0].setting.version > OLDEST_CONTROL_VERSION;
        let is_late = self.vetoed && self.reliable[0];
        unless(is_meant && !is_late, || {
            format!("run {}: program {place} gets the command {:?}", self.run, command.kind())
        })
    }

    /// A program obeyed a command. `programs` is the state after it.
    fn obeyed(&mut self, place: usize, command: &Command, programs: &[Program]) -> Result<(), String> {
        match command {
            Command::Enable(run) if *run == self.number() => {
                self.triggered |= place == 0;
                let late = (0..programs.len())
                    .find(|&place| self.reliable[place] && !self.is_in(&programs[place], Stage::Started));
                unless(late.is_none(), || {
                    format!("run {}: the trigger is enabled before program {late:?} has started", self.run)
                })
            }
            Command::Veto(run) if *run == self.number() => {
                self.vetoed |= place == 0;
                Ok(())
            }
            Command::Hold(run) | Command::Release(run) if *run == self.number() => {
                self.expect_hold(place, command, programs)
            }
            Command::Stop(stop)
                if stop.run == self.number() && self.has_trigger && self.reliable[0] && !self.is_forced =>
            {
                let is_early = self.triggered && !self.vetoed;
                unless(!is_early, || format!("run {}: program {place} is stopped while triggers come", self.run))
            }
            _ => Ok(()),
        }
    }

    /// The nodes get a command.
    fn nodes_told(&mut self, now: Instant, command: &RunCommand, programs: &[Program]) -> Result<(), String> {
        match command {
            RunCommand::Start { .. } => {
                self.nodes_started = Some(now);
                let unready = (0..programs.len()).find(|&place| {
                    let program = &programs[place];
                    self.reliable[place] && program.setting.is_required && !self.is_in(program, Stage::Ready)
                });
                unless(unready.is_none(), || {
                    format!("run {}: the nodes are started before program {unready:?} is ready", self.run)
                })
            }
            RunCommand::Pause => {
                self.are_nodes_paused = true;
                let trigger = &programs[0];
                let is_triggering = self.is_in(trigger, Stage::Started) && trigger.stage < Stage::Vetoed;
                self.was_beyond_hold |= self.triggered && !self.may_hold;
                let must_be_held = self.has_trigger && self.reliable[0] && self.may_hold && is_triggering;
                unless(!must_be_held || trigger.is_held, || {
                    format!("run {}: the nodes are paused before the trigger is held", self.run)
                })
            }
            RunCommand::Resume => {
                self.are_nodes_paused = false;
                let is_released = self.has_trigger && self.reliable[0] && self.may_hold && !programs[0].is_held;
                let is_early = is_released && self.is_in(&programs[0], Stage::Started) && self.stopped.is_none();
                unless(!is_early, || format!("run {}: the trigger is released before the nodes go on", self.run))
            }
            RunCommand::Stop { last } => {
                self.last = last.map(EventKey::number);
                let is_open = |program: &Program| self.is_in(program, Stage::Started) && program.stage < Stage::Stopped;
                let early = (0..programs.len()).find(|&place| self.reliable[place] && is_open(&programs[place]));
                unless(early.is_none() || self.is_forced, || {
                    format!("run {}: the nodes are stopped while data of program {early:?} still leave", self.run)
                })
            }
            _ => Ok(()),
        }
    }

    /// Checks that the run ends in time, even if programs do not answer.
    fn is_overdue(&self, now: Instant) -> Result<(), String> {
        let is_late = self.stopped.is_some_and(|stopped| now.since(stopped) > LONGEST_END);
        unless(!is_late, || format!("run {}: its stop does not finish", self.run))
    }

    /// The run has ended.
    fn judge(&self, programs: &[Program], account: &FrontEndsAccount) -> Result<(), String> {
        if self.is_forced {
            return Ok(());
        }
        let is_known = |one: &&Incident| one.source.0 == 1 && one.kind == IncidentKind::CannotBeHeld && !self.may_hold;
        let told = account.incidents.iter().filter(is_known).count();
        let is_told_once = told < 2 && (told == 1 || !self.was_beyond_hold || !self.reliable[0]);
        unless(is_told_once || !self.has_trigger, || {
            format!("run {}: it is said {told} times that the trigger cannot be held", self.run)
        })?;
        for incident in account.incidents.iter().filter(|one| !is_known(one)) {
            let place = incident.source.0 as usize - 1;
            unless(!self.reliable[place], || {
                format!("run {}: nothing happened to program {place}, but {}", self.run, incident.kind)
            })?;
        }
        if !self.triggered || !self.reliable[0] || self.nodes_started.is_none() {
            return Ok(());
        }
        let issued = programs[0].seen;
        if let Some(vetoed) = &account.front_ends[0].vetoed {
            let kept_back: u64 = vetoed.vetoed.iter().map(|cause| cause.count).sum();
            unless(vetoed.issued == issued + kept_back, || {
                format!("run {}: of {issued} accepted triggers the source says {vetoed:?}", self.run)
            })?;
        }
        unless(self.last.unwrap_or(0) == issued, || {
            format!("run {}: the nodes end with {:?}, the trigger with {issued}", self.run, self.last)
        })?;
        for (place, program) in programs.iter().enumerate().filter(|&(place, _)| self.reliable[place]) {
            unless(program.sent == issued, || {
                format!("run {}: program {place} sent {} of {issued} events", self.run, program.sent)
            })?;
        }
        Ok(())
    }
}

#[test]
fn every_run_begins_and_ends_in_order_while_programs_die() {
    for seed in 0..seeds(500) {
        let scenario = Scenario::draw(seed);
        assert_eq!(World::new(scenario.clone()).run(), Ok(()), "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_each_mishap_is_drawn() {
    let (mut digests, mut kinds, mut deaf) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut paused, mut old) = (0, 0);
    for seed in 0..60 {
        let digest = || {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest)
        };
        assert_eq!(digest(), digest(), "seed {seed}");
        digests.extend(digest());
        let scenario = Scenario::draw(seed);
        paused += usize::from(!scenario.pauses.is_empty());
        old += usize::from(scenario.programs[0].version < CONTROL_VERSION);
        deaf.extend(scenario.programs.iter().filter_map(|program| program.deaf_to).map(|kind| kind as u8));
        kinds.extend(scenario.mishaps.into_iter().map(|(_, _, _, mishap)| match mishap {
            Mishap::Reset => "reset",
            Mishap::HalfOpen => "half open",
            Mishap::Kill(_) => "kill",
        }));
    }
    assert!(digests.len() > 55, "different seeds are different runs");
    assert_eq!(kinds.len(), 3);
    assert!(paused > 30 && (1..20).contains(&old), "{paused} with pauses, {old} with a trigger source that knows none");
    assert!([Kind::Hold, Kind::Release].iter().any(|&kind| deaf.contains(&(kind as u8))), "{deaf:?}");
}
