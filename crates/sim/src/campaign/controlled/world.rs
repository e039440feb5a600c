//! A scenario from its first run to its last.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::nodes::StandInNodes;
use super::program::Program;
use super::referee::Referee;
use super::scenario::{ANSWER, DRAIN, Mishap, Scenario};
use ropewalk_flow::control::front_ends::{FrontEndConfig, FrontEndsConfig, RunOrder};
use ropewalk_flow::control::{RunCommand, RunPhase};
use ropewalk_io::disk::SimulatedDisk;
use ropewalk_io::simulated::{Faults, Network, Simulated, SimulatedConfig};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_node::drive::{ControlledDrive, ControlledDriveConfig, Drive};
use ropewalk_terms::{EventKey, Incarnation, Instant, RunNumber, SourceId};
use std::time::Duration;

/// How much time passes from turn to turn.
const STEP: Duration = Duration::from_millis(5);
/// Where the drive listens.
const ADDRESS: &str = "run-control";

/// Programs, the drive, the network between them.
pub struct World {
    scenario: Scenario,
    now: Instant,
    network: Network,
    drive: ControlledDrive<Simulated, SimulatedDisk>,
    programs: Vec<Program>,
    digest: u64,
}

fn pool(name: &str) -> Pool {
    Pool::new_untouched(PoolConfig::heap(name, 64 << 10, 48)).expect("there is memory for a small pool")
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
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
        let peers = network.dispatcher(SimulatedConfig::default(), pool("run control"));
        let drive = ControlledDrive::new(config, peers, Staging::new(pool("staging")), None);
        let drive = drive.expect("the address is free");
        let address = drive.address();
        let programs = scenario.programs.iter().enumerate().map(|(place, setting)| {
            let network = network.dispatcher(SimulatedConfig::default(), pool("program"));
            Program::new(place as u32 + 1, setting.clone(), network, Staging::new(pool("words")), &address)
        });
        let programs = programs.collect();
        Self { now: Instant::ZERO, network, drive, programs, digest: scenario.seed, scenario }
    }

    /// Takes every run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        for run in 0..self.scenario.runs.len() {
            self.take(run)?;
        }
        for account in self.drive.pools() {
            // One is filled at each connection, and one with what is said; leftovers of cut connections are few.
            let (is_balanced, most) =
                (account.loans == account.returned + account.held, 2 * self.programs.len() as u64);
            Broken::unless(is_balanced && account.held <= 2 + most, Checker::Pools, || format!("{account:?}"))?;
        }
        Ok(())
    }

    /// Mixed from everything that happened: equal for equal histories.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    fn take(&mut self, run: usize) -> Result<(), Broken> {
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
            // An operator has a run paused that is under way.
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

    /// What goes wrong at this age of the run.
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

    fn turn(&mut self, referee: &mut Referee, nodes: &mut StandInNodes) -> Result<(), Broken> {
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
