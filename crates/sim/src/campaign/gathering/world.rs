//! A scenario from its first frame to its last.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::super::stand::{Machine, Overseer, Stand, source_of};
use super::board::Board;
use super::referee::{judge, look};
use super::scenario::{GATHER_TIMEOUT, Scenario, Style};
use ropewalk_flow::readout::{Format, ReadoutConfig, SourceConfig};
use ropewalk_node::drive::Drive;
use ropewalk_terms::Instant;
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::ForeignFormat;
use ropewalk_wire::layout::{Counts, Frame, Layout, Length, Number, Plan};
use std::sync::Arc;
use std::time::Duration;

/// How much time passes from turn to turn.
const STEP: Duration = Duration::from_micros(500);
/// What a source's silence may last: longer than any board pauses, or is cut off.
const SOURCE_TIMEOUT: Duration = Duration::from_secs(1);
/// A run is over when all boards have left and nothing has happened for so long: longer than all that is waited for. What no
/// board shows in the end is not settled, since nobody here tells of it.
const QUIET: Duration = Duration::from_secs(4);
/// Every run is over by then, with a wide margin.
const LONGEST: Duration = Duration::from_secs(120);
const MOST_FRAGMENT: u32 = 16 << 10;

/// Boards, readout unit, overseer.
pub struct World {
    scenario: Scenario,
    now: Instant,
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
    let source = |board| SourceConfig {
        max_fragment: MOST_FRAGMENT,
        gather: Some(GATHER_TIMEOUT),
        ..SourceConfig::new(source_of(board), Format::Described)
    };
    ReadoutConfig {
        window: scenario.window,
        capacity: 2 * scenario.window,
        source_timeout: SOURCE_TIMEOUT,
        resync_timeout: 2 * SOURCE_TIMEOUT,
        ..ReadoutConfig::new(0, (0..scenario.boards.len()).map(source).collect())
    }
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let (description, last) = (description(scenario.style), scenario.events as u64);
        let stand = Stand::new(scenario.seed, readout_config(&scenario), &description, Some(last));
        let Stand { readout, overseer, connections } = stand;
        let board = |(board, connection)| Board::new(board, &scenario, connection);
        let boards = connections.into_iter().enumerate().map(board).collect();
        Self { now: Instant::ZERO, readout, boards, overseer, scenario }
    }

    /// Mixed from everything that came out: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let accounts = (0..self.boards.len()).map(|board| self.readout.machine().account(board));
        accounts.fold(mixed(self.now.as_nanoseconds(), self.overseer.settled, 1), |all, account| {
            mixed(all, account.received, account.in_complete_events << 32 | account.late)
        })
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        let (mut before, mut since) = ((0, 0), self.now);
        while self.now < since.after(QUIET) || !self.boards.iter().all(Board::has_left) {
            self.turn()?;
            let reached = (self.overseer.settled, self.readout.machine().total().received);
            if std::mem::replace(&mut before, reached) != reached {
                since = self.now;
            }
            self.now = self.now.after(STEP);
            let is_late = self.now > Instant::ZERO.after(LONGEST);
            Broken::unless(!is_late, Checker::Liveness, || format!("{before:?} are settled and received"))?;
        }
        let machine = self.readout.machine();
        self.boards.iter().enumerate().try_for_each(|(index, board)| judge(index, board, &machine.account(index)))
    }

    fn turn(&mut self) -> Result<(), Broken> {
        let Self { scenario, now, readout, boards, overseer } = self;
        boards.iter_mut().for_each(|board| board.turn(*now));
        readout.turn(*now);
        if !scenario.is_stalled(now.since(Instant::ZERO)) {
            overseer.turn(*now, readout.machine(), |key, readout| look(key, scenario, boards, readout))?;
        }
        let (machine, window) = (readout.machine(), u64::from(scenario.window));
        Broken::unless(machine.lead() <= window, Checker::Bounds, || {
            format!("a source was read {} events past the oldest one, {window} are allowed", machine.lead())
        })
    }
}
