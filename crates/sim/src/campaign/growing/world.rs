//! A scenario from its first frame to its last.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::super::stand::{self, Machine, Overseer, STEP, Stand, source_of};
use super::board::{Board, MOST_FRAME, plan};
use super::keeper::Keeper;
use super::referee::Referee;
use super::scenario::{Ending, Scenario};
use ropewalk_flow::readout::{ReadoutConfig, SourceConfig};
use ropewalk_node::drive::{BlackBox, BlackBoxConfig, Drive};
use ropewalk_terms::Instant;
use std::sync::Arc;
use std::time::Duration;

/// Turns between two looks at what waits.
const LOOK: u64 = 200;
/// Longer than anything is under way.
const UNDER_WAY: Duration = Duration::from_millis(200);
/// How long everything may take that is waited for behind the last pulse.
const AFTERWARDS: Duration = Duration::from_secs(30);

/// Boards, readout unit, overseer, and who keeps recordings.
pub struct World {
    scenario: Scenario,
    now: Instant,
    readout: Machine,
    boards: Vec<Board>,
    overseer: Overseer,
    keepers: Vec<Keeper>,
    referee: Referee,
    /// When the run was told to end, and to drop what is not done.
    stopped: Option<Instant>,
    finished: Option<Instant>,
    /// Since when all boards have left, and nothing is in work.
    quiet: Option<Instant>,
}

fn readout_config(scenario: &Scenario) -> ReadoutConfig {
    let source = |usual| SourceConfig {
        max_fragment: MOST_FRAME,
        numbers_grow: true,
        counter_bits: scenario.bits as u8,
        reorder: scenario.reorder,
        reorder_timeout: scenario.timeout / 2,
        ..usual
    };
    stand::readout_config(scenario.boards.len(), scenario.window, scenario.timeout, source)
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let description = Arc::new(plan(scenario.bits)).into();
        let Stand { mut readout, overseer, connections } =
            Stand::new(scenario.seed, readout_config(&scenario), &description, None);
        let mut keepers = Vec::new();
        for (board, setting) in scenario.boards.iter().enumerate() {
            let config = BlackBoxConfig { last: setting.last, max_bytes: setting.max_bytes };
            let (black_box, line) = BlackBox::new(source_of(board), config);
            readout.add_black_box(source_of(board), black_box);
            keepers.push(Keeper::new(board, line, scenario.saving));
        }
        let boards =
            connections.into_iter().enumerate().map(|(board, connection)| Board::new(board, scenario.bits, connection));
        let (now, referee, boards) = (Instant::ZERO, Referee::default(), boards.collect());
        Self { scenario, now, readout, boards, overseer, keepers, referee, stopped: None, finished: None, quiet: None }
    }

    /// Mixed from everything that came out: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let accounts = (0..self.boards.len()).map(|board| self.readout.machine().account(board));
        accounts.fold(mixed(self.now.as_nanoseconds(), self.overseer.settled, 1), |all, account| {
            mixed(all, account.received, account.in_complete_events << 32 | account.dropped.total())
        })
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        let longest = Instant::ZERO.after(self.scenario.pace * self.scenario.pulses as u32).after(AFTERWARDS);
        let mut turns = 0;
        while !self.is_over() {
            self.turn()?;
            turns += 1;
            if turns % LOOK == 0 && self.stopped.is_none() {
                self.referee.judge_pace(self.now, &self.scenario, &self.boards)?;
            }
            self.now = self.now.after(STEP);
            let machine = self.readout.machine();
            Broken::unless(self.now <= longest, Checker::Liveness, || {
                format!("{} events are settled, of {:?}", self.overseer.settled, machine.total())
            })?;
        }
        for (board, one) in self.boards.iter().enumerate() {
            self.referee.judge(&self.scenario, board, one, &self.readout.machine().account(board))?;
            if self.scenario.ending == Ending::Last {
                self.keepers[board].judge(&one.journal)?;
            }
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Broken> {
        let Self { scenario, now, readout, boards, overseer, keepers, referee, .. } = self;
        let now = *now;
        boards.iter_mut().for_each(|board| board.turn(now, scenario));
        readout.turn(now);
        overseer.turn(now, readout.machine(), |key, readout| referee.look(key, scenario, boards, readout))?;
        for (board, keeper) in keepers.iter_mut().enumerate() {
            keeper.turn(now, &scenario.boards[board], &boards[board].journal)?;
        }
        stand::reads_within(scenario.window, readout.machine())?;
        self.end();
        Ok(())
    }

    /// Tells the run to end when it is time.
    fn end(&mut self) {
        let have_left = self.boards.iter().all(|board| board.has_left(&self.scenario));
        let is_due = |pulse: u64| {
            self.overseer.has_begun() && self.now >= Instant::ZERO.after(self.scenario.pace * pulse as u32)
        };
        let total = self.readout.machine().total();
        let is_quiet = total.received == total.accounted() && total.in_flight == 0;
        self.quiet = if have_left && is_quiet { self.quiet.or(Some(self.now)) } else { None };
        match self.scenario.ending {
            Ending::Force(pulse) if self.finished.is_none() && is_due(pulse) => {
                self.overseer.finish();
                (self.stopped, self.finished) = (Some(self.now), Some(self.now));
            }
            Ending::Stop(pulse) if self.stopped.is_none() && is_due(pulse) => {
                self.overseer.stop();
                self.stopped = Some(self.now);
            }
            Ending::Last
                if self.stopped.is_none() && self.quiet.is_some_and(|since| self.now >= since.after(UNDER_WAY)) =>
            {
                self.overseer.stop();
                self.stopped = Some(self.now);
            }
            _ => {}
        }
        if self.finished.is_none() && self.readout.machine().is_drained() {
            self.overseer.finish();
            self.finished = Some(self.now);
        }
    }

    /// What was told at the end has come.
    fn is_over(&self) -> bool {
        self.finished.is_some_and(|at| self.now >= at.after(Duration::from_millis(100)))
    }
}
