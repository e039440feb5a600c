//! A scenario from its first frame to its last.

use super::super::broken::{Broken, Checker};
use super::super::content::mixed;
use super::board::Board;
use super::overseer::Overseer;
use super::scenario::{BoardSetting, Scenario};
use super::splitter::{Notes, SimulatedSplitter};
use ropewalk_flow::readout::{Format, OnClose, ReadoutConfig, SourceConfig};
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_io::simulated::{Faults, Network, Simulated, SimulatedConfig};
use ropewalk_memory::{Pool, PoolConfig, Staging};
use ropewalk_node::drive::{Drive, Entrance, Identity, Outbox, ReadoutDrive, ReadoutDriveConfig};
use ropewalk_terms::{Cause, Epoch, Incarnation, Instant, NodeId, RunNumber, SourceId};
use ropewalk_wire::description::Description;
use ropewalk_wire::layout::{Counts, Frame, Layout, Length, Number, Plan};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How much time passes from turn to turn.
const STEP: Duration = Duration::from_micros(500);
/// What a source's silence may last: shorter than the end and the start of a process.
const SOURCE_TIMEOUT: Duration = Duration::from_millis(200);
/// How long a splitter may take over a frame: longer than events wait for a source.
const SPLITTER_TIMEOUT: Duration = Duration::from_millis(500);
const RESTART_DELAY: Duration = Duration::from_millis(50);
/// A run is over when all boards have left and nothing has happened for so long: longer than all that is waited for. What no
/// board shows in the end is not settled, since nobody here tells of it.
const QUIET: Duration = Duration::from_secs(4);
/// Every run is over by then, with a wide margin.
const LONGEST: Duration = Duration::from_secs(120);
const MOST_FRAME: u32 = 16 << 10;

type Machine = ReadoutDrive<Simulated, Simulated>;

/// Boards, readout unit, overseer.
pub struct World {
    scenario: Scenario,
    now: Instant,
    readout: Machine,
    boards: Vec<Board>,
    overseer: Overseer,
    notes: Vec<Arc<Mutex<Notes>>>,
}

fn pool(name: &str, block: usize, blocks: usize) -> Pool {
    Pool::new_untouched(PoolConfig::heap(name, block, blocks)).expect("there is memory for a small pool")
}

fn identity(node: NodeId) -> Identity {
    Identity { node, incarnation: Incarnation(1), run: RunNumber(1), epoch: Epoch(1) }
}

fn source_of(board: usize) -> SourceId {
    SourceId(board as u32 + 1)
}

/// Frames that begin with their length.
fn description() -> Description {
    let length = Length { number: Number::little_endian(0, 4), unit: 1, counts: Counts::Frame, add: 0 };
    let layout = Layout::new(Frame::Length(length), MOST_FRAME);
    Arc::new(Plan::compile(&layout).expect("a good layout")).into()
}

fn readout_config(scenario: &Scenario) -> ReadoutDriveConfig {
    let source = |board| SourceConfig {
        on_close: OnClose::End,
        max_fragment: MOST_FRAME,
        ..SourceConfig::new(source_of(board), Format::Described)
    };
    let boards = 0..scenario.boards.len();
    ReadoutDriveConfig {
        readout: ReadoutConfig {
            window: scenario.window,
            capacity: 2 * scenario.window,
            source_timeout: SOURCE_TIMEOUT,
            resync_timeout: 2 * SOURCE_TIMEOUT,
            ..ReadoutConfig::new(0, boards.clone().map(source).collect())
        },
        identity: identity(NodeId::readout(0)),
        name: "ru0".to_owned(),
        fingerprint: 7,
        descriptions: boards.map(|board| (source_of(board), description())).collect(),
        listen: "front ends".to_owned(),
        address: "ru0".to_owned(),
        managers: vec!["manager".to_owned()],
        builders: 1,
        report_interval: Duration::from_millis(50),
    }
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
        let network = Network::new(scenario.seed, Faults::bumpy());
        let dispatcher = |name: &str, block, blocks| {
            let config = SimulatedConfig { send_queue_bytes: 64 << 10, ..SimulatedConfig::default() };
            network.dispatcher(config, pool(name, block, blocks))
        };
        let last = scenario.boards.iter().map(BoardSetting::events).max().unwrap_or(0);
        let outbox = Outbox::new(identity(NodeId::MANAGER), Staging::new(pool("words", 64 << 10, 16)));
        let overseer = Overseer::new(dispatcher("overseer", 64 << 10, 64), outbox, "manager", last);
        let count = scenario.boards.len();
        let (own, peers) = (dispatcher("boards", 4 << 10, 24 * count), dispatcher("peers", 64 << 10, 16));
        let [staging, evacuation] = ["staging", "evacuation"].map(|name| Staging::new(pool(name, 64 << 10, 16)));
        let readout = ReadoutDrive::new(readout_config(&scenario), own, peers, staging, evacuation);
        let mut readout = readout.expect("the addresses are free");
        let mut world_notes = Vec::new();
        let mut boards = Vec::new();
        for (board, setting) in scenario.boards.iter().enumerate() {
            let address = format!("board {board}");
            let opened = readout.add_entrance(source_of(board), Entrance::Listen(address.clone()));
            opened.expect("the address is free");
            let notes = Arc::new(Mutex::new(Notes::default()));
            let splitter = SimulatedSplitter::new(setting.clone(), Arc::clone(&notes));
            readout.add_splitter_process(source_of(board), Box::new(splitter), patience(setting));
            world_notes.push(notes);
            let staging = Staging::new(pool("frames", 16 << 10, 32));
            boards.push(Board::new(board, setting.clone(), dispatcher("board", 256, 2), staging, address));
        }
        Self { now: Instant::ZERO, readout, boards, overseer, notes: world_notes, scenario }
    }

    /// Mixed from everything that happened to processes: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let digest = |notes: &Arc<Mutex<Notes>>| notes.lock().unwrap_or_else(PoisonError::into_inner).digest;
        self.notes.iter().map(digest).fold(self.now.as_nanoseconds(), |all, one| mixed(all, one, 1))
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        let (mut before, mut since) = ((0, 0), self.now);
        while self.now < since.after(QUIET) || !self.boards.iter().all(Board::has_left) {
            self.boards.iter_mut().for_each(|board| board.turn(self.now));
            self.readout.turn(self.now);
            self.overseer.turn(self.now, &self.scenario, self.readout.machine())?;
            let (machine, window) = (self.readout.machine(), u64::from(self.scenario.window));
            Broken::unless(machine.lead() <= window, Checker::Bounds, || {
                format!("a source was read {} events past the oldest one, {window} are allowed", machine.lead())
            })?;
            let reached = (self.overseer.settled, machine.total().received);
            if std::mem::replace(&mut before, reached) != reached {
                since = self.now;
            }
            self.now = self.now.after(STEP);
            let is_late = self.now > Instant::ZERO.after(LONGEST);
            Broken::unless(!is_late, Checker::Liveness, || format!("{before:?} are settled and received"))?;
        }
        (0..self.scenario.boards.len()).try_for_each(|board| self.judge(board))
    }

    /// What must hold of a board in the end.
    fn judge(&self, board: usize) -> Result<(), Broken> {
        let (setting, account) = (&self.scenario.boards[board], self.readout.machine().account(board));
        let is_settled = account.received == account.accounted() && account.in_flight == 0;
        Broken::unless(is_settled, Checker::Ledger, || {
            format!("board {board}: fragments received are not accounted for: {account:?}")
        })?;
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
