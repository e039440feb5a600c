//! A scenario from its first frame to its last.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::super::stand::{self, Course, Machine, Overseer, Stand, source_of};
use super::board::Board;
use super::contents::look;
use super::scenario::{BoardSetting, Scenario};
use super::splitter::{Notes, SimulatedSplitter};
use ropewalk_flow::readout::{OnClose, ReadoutConfig, SourceConfig};
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_node::drive::Drive;
use ropewalk_terms::Cause;
use ropewalk_wire::description::Description;
use ropewalk_wire::layout::{Counts, Frame, Layout, Length, Number, Plan};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a source's silence may last: shorter than the end and the start of a process.
const SOURCE_TIMEOUT: Duration = Duration::from_millis(200);
/// How long a splitter may take over a frame: longer than events wait for a source.
const SPLITTER_TIMEOUT: Duration = Duration::from_millis(500);
const RESTART_DELAY: Duration = Duration::from_millis(50);
const MOST_FRAME: u32 = 16 << 10;

/// Boards, readout unit, overseer.
pub struct World {
    scenario: Scenario,
    course: Course,
    readout: Machine,
    boards: Vec<Board>,
    overseer: Overseer,
    notes: Vec<Arc<Mutex<Notes>>>,
}

/// Frames that begin with their length.
fn description() -> Description {
    let length = Length { number: Number::little_endian(0, 4), unit: 1, counts: Counts::Frame, add: 0 };
    let layout = Layout::new(Frame::Length(length), MOST_FRAME);
    Arc::new(Plan::compile(&layout).expect("a good layout")).into()
}

fn readout_config(scenario: &Scenario) -> ReadoutConfig {
    let source = |usual| SourceConfig { on_close: OnClose::End, max_fragment: MOST_FRAME, ..usual };
    stand::readout_config(scenario.boards.len(), scenario.window, SOURCE_TIMEOUT, source)
}

fn patience(setting: &BoardSetting) -> SupervisorConfig {
    SupervisorConfig {
        timeout: SPLITTER_TIMEOUT,
        start_timeout: Duration::from_secs(2),
        restart_delay: RESTART_DELAY,
        restarts: setting.restarts,
    }
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let last = scenario.boards.iter().map(BoardSetting::events).max().unwrap_or(0);
        let stand = Stand::new(scenario.seed, readout_config(&scenario), &description(), Some(last));
        let Stand { mut readout, overseer, connections } = stand;
        let mut world_notes = Vec::new();
        let mut boards = Vec::new();
        for ((board, setting), connection) in scenario.boards.iter().enumerate().zip(connections) {
            let notes = Arc::new(Mutex::new(Notes::default()));
            let splitter = SimulatedSplitter::new(setting.clone(), Arc::clone(&notes));
            readout.add_splitter_process(source_of(board), Box::new(splitter), patience(setting));
            world_notes.push(notes);
            boards.push(Board::new(board, setting.clone(), connection));
        }
        Self { course: Course::default(), readout, boards, overseer, notes: world_notes, scenario }
    }

    /// Mixed from everything that happened to processes: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let digest = |notes: &Arc<Mutex<Notes>>| notes.lock().unwrap_or_else(PoisonError::into_inner).digest;
        self.notes.iter().map(digest).fold(self.course.now.as_nanoseconds(), |all, one| mixed(all, one, 1))
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        while !self.course.is_over(self.boards.iter().all(Board::has_left)) {
            let Self { scenario, course, readout, boards, overseer, .. } = self;
            boards.iter_mut().for_each(|board| board.turn(course.now));
            readout.turn(course.now);
            overseer.turn(course.now, readout.machine(), |key, readout| look(key, scenario, readout))?;
            stand::reads_within(scenario.window, readout.machine())?;
            course.go_on(overseer, readout)?;
        }
        (0..self.scenario.boards.len()).try_for_each(|board| self.judge(board))
    }

    /// What must hold of a board in the end.
    fn judge(&self, board: usize) -> Result<(), Broken> {
        let (setting, account) = (&self.scenario.boards[board], self.readout.machine().account(board));
        stand::is_accounted_for(board, &account)?;
        let timed_out = account.missing.get(Cause::TimedOut);
        Broken::unless(timed_out == 0, Checker::TimeOut, || {
            format!("board {board} never paused, and is taken for absent {timed_out} times")
        })?;
        let notes = self.notes[board].lock().unwrap_or_else(PoisonError::into_inner);
        Broken::unless(notes.most_at_once <= 1, Checker::Bounds, || {
            format!("board {board}: a process was started while there was another one")
        })?;
        let malformed = setting.lost().filter(|(_, mishap)| *mishap == super::Mishap::Malformed).count() as u64;
        let lost = setting.lost().count() as u64;
        let of = |cause| account.dropped.get(cause);
        let failed = of(Cause::SplitterFailed);
        if setting.is_exact() {
            let expected = setting.packing * (setting.frames - lost) + lost;
            let is_right = (account.received, failed, of(Cause::Malformed)) == (expected, lost - malformed, malformed);
            return Broken::unless(is_right, Checker::Loss, || format!("board {board}: {account:?}"));
        }
        // A frame that is lost is one entry, and the others are whole.
        let divided = account.received - failed - of(Cause::Malformed);
        let frames = divided / setting.packing + failed + of(Cause::Malformed);
        let is_whole = divided.is_multiple_of(setting.packing) && frames == setting.frames;
        Broken::unless(is_whole, Checker::Loss, || format!("board {board}: {account:?}"))
    }
}
