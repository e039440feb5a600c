//! A scenario from its first frame to its last.

use super::super::broken::Broken;
use super::super::content::mixed;
use super::super::stand::{self, Course, Machine, Overseer, Stand};
use super::board::Board;
use super::referee::{judge, look};
use super::scenario::{GATHER_TIMEOUT, Scenario, Style};
use ropewalk_flow::readout::{ReadoutConfig, SourceConfig};
use ropewalk_node::drive::Drive;
use ropewalk_terms::Instant;
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::layout::{Counts, Frame, Layout, Length, Number, Plan};
use std::sync::Arc;
use std::time::Duration;

/// What a source's silence may last: longer than any board pauses, or is cut off.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(1);
const MOST_FRAGMENT: u32 = 16 << 10;

/// Boards, readout unit, overseer.
pub struct World {
    scenario: Scenario,
    course: Course,
    readout: Machine,
    boards: Vec<Board>,
    overseer: Overseer,
}

fn description(style: Style) -> Description {
    match style {
        Style::Marked => ForeignFormat::Alice.into(),
        Style::Placed => ForeignFormat::Dune.into(),
        Style::Numbered => {
            let number = |at| Number::little_endian(at, 4);
            let length = Length { number: number(0), unit: 1, counts: Counts::Frame, add: 0 };
            let frame = Frame::Length(length);
            let layout =
                Layout { event: vec![number(4)], sequence: Some(number(8)), ..Layout::new(frame, MOST_FRAGMENT) };
            Arc::new(Plan::compile(&layout).expect("a good layout")).into()
        }
    }
}

fn readout_config(scenario: &Scenario) -> ReadoutConfig {
    let source = |usual| SourceConfig { max_fragment: MOST_FRAGMENT, gather: Some(GATHER_TIMEOUT), ..usual };
    stand::readout_config(scenario.boards.len(), scenario.window, SOURCE_TIMEOUT, source)
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let (description, last) = (description(scenario.style), scenario.events as u64);
        let stand = Stand::new(scenario.seed, readout_config(&scenario), &description, Some(last));
        let Stand { readout, overseer, connections } = stand;
        let board = |(board, connection)| Board::new(board, &scenario, connection);
        let boards = connections.into_iter().enumerate().map(board).collect();
        Self { course: Course::default(), readout, boards, overseer, scenario }
    }

    /// Mixed from everything that came out: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let accounts = (0..self.boards.len()).map(|board| self.readout.machine().account(board));
        accounts.fold(mixed(self.course.now.as_nanoseconds(), self.overseer.settled, 1), |all, account| {
            mixed(all, account.received, account.in_complete_events << 32 | account.late)
        })
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        while !self.course.is_over(self.boards.iter().all(Board::has_left)) {
            let Self { scenario, course, readout, boards, overseer } = self;
            boards.iter_mut().for_each(|board| board.turn(course.now));
            readout.turn(course.now);
            if !scenario.is_stalled(course.now.since(Instant::ZERO)) {
                overseer.turn(course.now, readout.machine(), |key, readout| look(key, scenario, boards, readout))?;
            }
            stand::reads_within(scenario.window, readout.machine())?;
            course.go_on(overseer, readout)?;
        }
        let machine = self.readout.machine();
        self.boards.iter().enumerate().try_for_each(|(index, board)| judge(index, board, &machine.account(index)))
    }
}
