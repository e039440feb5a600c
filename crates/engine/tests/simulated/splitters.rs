//! Splitters in processes: boards that pack several events into a frame, a real readout unit, and simulated processes
//! that crash, hang and answer wrongly, as the seed determines.
//!
//! ```text
//!   Board --frames of several events--> ReadoutDrive --settled events--> Overseer: starts, checks contents, releases
//!                                         |  ^
//!                                 frames  v  |  pieces, or its end
//!                                    SimulatedSplitter: the scenario says what happens at which frame
//! ```
//! The scenario alone determines the result: exactly the frames on which two processes ended are lost; and a source
//! that waits for a process is never reported as absent.

use super::mixed;
use super::stand::{self, Connection, Course, Machine, Overseer, Stand, held, source_of};
use super::{seeds, unless};
use ropewalk_engine::{Drive, ProcessSight, SplitterLink};
use ropewalk_flow::readout::{OnClose, Readout, ReadoutConfig, SourceConfig};
use ropewalk_flow::source::Random;
use ropewalk_flow::supervision::SupervisorConfig;
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, EventKey, Instant};
use ropewalk_wire::description::Description;
use ropewalk_wire::framing::{Piece, PieceKey};
use ropewalk_wire::layout::{Counts, Frame, Layout, Length, Number, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Maximum frames of a batch.
const MOST_FRAMES: usize = 8;

/// A fault of a splitter at a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Mishap {
    /// Its process crashes, the first n times.
    Crash(u8),
    /// Its process hangs, the first n times.
    Hang(u8),
    /// It gives an impossible answer, the first n times.
    Lie(u8),
    /// It reports that the frame cannot be divided, which is permitted.
    Malformed,
}

impl Mishap {
    /// How often it happens.
    const fn times(self) -> u8 {
        match self {
            Self::Crash(times) | Self::Hang(times) | Self::Lie(times) => times,
            Self::Malformed => u8::MAX,
        }
    }

    /// Whether the frame is lost: it is tried twice.
    const fn loses(self) -> bool {
        self.times() >= 2
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct BoardSetting {
    /// Events in a frame.
    packing: u64,
    frames: u64,
    /// The time of its splitter for a frame, and until it is ready.
    each: Duration,
    /// See [`BoardSetting::each`].
    start: Duration,
    /// How many processes are restarted within a minute.
    restarts: u32,
    /// Faults, by frame.
    mishaps: BTreeMap<u64, Mishap>,
    /// When its process dies, in any state.
    deaths: Vec<Duration>,
}

impl BoardSetting {
    /// The frames that are lost.
    fn lost(&self) -> impl Iterator<Item = (u64, Mishap)> {
        self.mishaps.iter().map(|(&frame, &mishap)| (frame, mishap)).filter(|(_, mishap)| mishap.loses())
    }

    /// Whether the mishaps alone determine what is lost: no process dies on a frame by chance, and none is missing.
    fn is_exact(&self) -> bool {
        self.deaths.is_empty() && self.restarts > 100 && !self.mishaps.keys().any(|&frame| self.is_veiled(frame))
    }

    /// Whether the splitter lies about a frame shortly before this one, so that both may be in a batch: then nothing
    /// that its process did since is believed, and its end on this frame is not held against the frame.
    fn is_veiled(&self, frame: u64) -> bool {
        let before = self.mishaps.range(frame.saturating_sub(MOST_FRAMES as u64)..frame);
        before.into_iter().any(|(_, mishap)| matches!(mishap, Mishap::Lie(_)))
    }

    /// Whether an event's frame is lost.
    fn loses(&self, event: u64) -> bool {
        self.lost().any(|(frame, _)| frame == (event - 1) / self.packing)
    }

    const fn events(&self) -> u64 {
        self.packing * self.frames
    }
}

/// A system and its faults.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Scenario {
    /// The seed of all random choices.
    seed: u64,
    /// The boards, which all have the same events.
    boards: Vec<BoardSetting>,
    /// Maximum distance in events by which a source is read past the oldest incomplete one.
    window: u32,
}

impl Scenario {
    /// The scenario of a seed. Every fourth has no faults.
    fn draw(seed: u64) -> Self {
        let mut draw = Random::new(seed, 50);
        let is_quiet = seed.is_multiple_of(4);
        let boards = (0..draw.between(1, 3)).map(|_| Self::draw_board(&mut draw, is_quiet)).collect();
        Self { seed, boards, window: draw.of(&[4, 16, 64]) }
    }

    fn draw_board(draw: &mut Random, is_quiet: bool) -> BoardSetting {
        let packing = draw.of(&[1, 3, 7, 40]);
        let frames = draw.between(5, 120);
        let mishap = |draw: &mut Random| {
            let times = draw.between(1, 3) as u8;
            match draw.below(4) {
                0 => Mishap::Crash(times),
                1 => Mishap::Hang(times),
                2 => Mishap::Lie(times),
                _ => Mishap::Malformed,
            }
        };
        let wrong = if is_quiet { 0 } else { draw.below(6) };
        let mishaps = (0..wrong).map(|_| (draw.below(frames), mishap(draw))).collect();
        let deaths = if is_quiet || !draw.one_in(3) { 0 } else { draw.between(1, 3) };
        BoardSetting {
            packing,
            frames,
            each: draw.time(Duration::from_micros(20), Duration::from_millis(20)),
            start: draw.time(Duration::from_millis(1), Duration::from_millis(600)),
            restarts: if !is_quiet && draw.one_in(5) { draw.between(1, 4) as u32 } else { 1000 },
            mishaps,
            deaths: (0..deaths).map(|_| Duration::from_millis(draw.below(3000))).collect(),
        }
    }
}

/// Time-out of a silent source: shorter than the end and the start of a process.
const SOURCE_TIMEOUT: Duration = Duration::from_millis(200);
/// Time-out of a splitter for a frame: longer than events wait for a source.
const SPLITTER_TIMEOUT: Duration = Duration::from_millis(500);
const RESTART_DELAY: Duration = Duration::from_millis(50);
const MOST_FRAME: u32 = 16 << 10;

/// Boards, readout unit, overseer.
struct World {
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
    /// The world of a scenario, at its beginning.
    fn new(scenario: Scenario) -> Self {
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

    /// A digest of everything that happened to processes: equal for equal histories.
    fn digest(&self) -> u64 {
        let digest = |notes: &Arc<Mutex<Notes>>| notes.lock().unwrap_or_else(PoisonError::into_inner).digest;
        self.notes.iter().map(digest).fold(self.course.now.as_nanoseconds(), |all, one| mixed(all, one, 1))
    }

    /// Executes the run.
    fn run(&mut self) -> Result<(), String> {
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

    /// Checks the result of a board at the end.
    fn judge(&self, board: usize) -> Result<(), String> {
        let (setting, account) = (&self.scenario.boards[board], self.readout.machine().account(board));
        stand::is_accounted_for(board, &account)?;
        let timed_out = account.missing.get(Cause::TimedOut);
        unless(timed_out == 0, || format!("board {board} never paused, and is taken for absent {timed_out} times"))?;
        let notes = self.notes[board].lock().unwrap_or_else(PoisonError::into_inner);
        unless(notes.most_at_once <= 1, || {
            format!("board {board}: a process was started while there was another one")
        })?;
        let malformed = setting.lost().filter(|(_, mishap)| *mishap == Mishap::Malformed).count() as u64;
        let lost = setting.lost().count() as u64;
        let of = |cause| account.dropped.get(cause);
        let failed = of(Cause::SplitterFailed);
        if setting.is_exact() {
            let expected = setting.packing * (setting.frames - lost) + lost;
            let is_right = (account.received, failed, of(Cause::Malformed)) == (expected, lost - malformed, malformed);
            return unless(is_right, || format!("board {board}: {account:?}"));
        }
        // A lost frame is one entry, and the others are whole.
        let divided = account.received - failed - of(Cause::Malformed);
        let frames = divided / setting.packing + failed + of(Cause::Malformed);
        let is_whole = divided.is_multiple_of(setting.packing) && frames == setting.frames;
        unless(is_whole, || format!("board {board}: {account:?}"))
    }
}

/// Bytes before the events of a frame: its length, its number, and the number of events.
const HEADER: usize = 12;
/// Bytes before the data of an event: its number, and the number of data bytes.
const EVENT_HEADER: usize = 12;

/// The data of an event from a board.
fn data(board: usize, event: u64) -> Vec<u8> {
    let chance = mixed(board as u64 + 1, event, 7);
    (0..chance % 90).map(|place| (chance >> (place % 57)) as u8).collect()
}

/// A whole frame.
fn frame(board: usize, setting: &BoardSetting, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&(number as u32).to_le_bytes());
    bytes.extend_from_slice(&(setting.packing as u32).to_le_bytes());
    for event in 1 + number * setting.packing..=(number + 1) * setting.packing {
        let data = data(board, event);
        bytes.extend_from_slice(&event.to_le_bytes());
        bytes.extend_from_slice(&(data.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&data);
    }
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

struct Board {
    index: usize,
    setting: BoardSetting,
    connection: Connection,
    next: u64,
}

impl Board {
    const fn new(index: usize, setting: BoardSetting, connection: Connection) -> Self {
        Self { index, setting, connection, next: 0 }
    }

    /// Whether it has sent everything and closed its connection.
    const fn has_left(&self) -> bool {
        self.next == self.setting.frames && !self.connection.is_up()
    }

    /// Sends as much as there is room for; closes the connection after everything was sent.
    fn turn(&mut self, now: Instant) {
        self.connection.turn(now, self.next < self.setting.frames);
        while self.next < self.setting.frames && self.connection.send(&frame(self.index, &self.setting, self.next)) {
            self.next += 1;
        }
        if self.next == self.setting.frames {
            self.connection.hang_up();
        }
    }
}

/// The time from the kill of a process to its end.
const DYING: Duration = Duration::from_millis(3);

#[derive(Debug)]
struct Process {
    ready_at: Instant,
    is_ready: bool,
    /// Its remaining work, and when the first of it is done.
    asked: Range<usize>,
    due: Instant,
    hangs: bool,
    ends_at: Option<Instant>,
}

/// Everything that happened, for the digest and the referee.
#[derive(Debug, Default)]
struct Notes {
    digest: u64,
    started: u64,
    /// Maximum processes at the same time.
    most_at_once: u64,
}

/// The process of a splitter. As the scenario determines, it crashes, hangs, or answers wrongly.
#[derive(Debug)]
struct SimulatedSplitter {
    setting: BoardSetting,
    deaths: Vec<Instant>,
    now: Instant,
    frames: Vec<Vec<u8>>,
    answers: Vec<Option<Result<Vec<Piece>, Cause>>>,
    done: usize,
    process: Option<Process>,
    /// How often each frame went wrong.
    wrong: BTreeMap<u64, u8>,
    notes: Arc<Mutex<Notes>>,
}

impl SimulatedSplitter {
    fn new(setting: BoardSetting, notes: Arc<Mutex<Notes>>) -> Self {
        let deaths = setting.deaths.iter().map(|death| Instant::ZERO.after(*death)).collect();
        Self {
            setting,
            deaths,
            now: Instant::ZERO,
            frames: Vec::new(),
            answers: Vec::new(),
            done: 0,
            process: None,
            wrong: BTreeMap::new(),
            notes,
        }
    }

    fn note(&self, what: u64) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.digest = mixed(notes.digest, what, self.now.as_nanoseconds());
    }

    /// The mishap of a frame at this attempt.
    fn mishap(&mut self, index: usize) -> Option<Mishap> {
        let number = number(&self.frames[index], 4);
        let mishap = *self.setting.mishaps.get(&number)?;
        let before = self.wrong.entry(number).or_default();
        if *before >= mishap.times() {
            return None;
        }
        *before += 1;
        Some(mishap)
    }

    /// Works until `now`.
    fn work(&mut self, now: Instant) {
        while let Some(process) = &mut self.process {
            if process.ends_at.is_some() || process.hangs || process.asked.is_empty() || now < process.due {
                return;
            }
            let (index, due) = (process.asked.start, process.due);
            let mishap = self.mishap(index);
            let process = self.process.as_mut().expect("it was looked at above");
            match mishap {
                Some(Mishap::Crash(_)) => {
                    process.ends_at = Some(due);
                    return self.note(1);
                }
                Some(Mishap::Hang(_)) => {
                    process.hangs = true;
                    return self.note(2);
                }
                _ => {}
            }
            process.asked.start += 1;
            process.due = due.after(self.setting.each);
            self.done = index + 1;
            self.answers[index] = match mishap {
                Some(Mishap::Lie(_)) => None,
                Some(Mishap::Malformed) => Some(Err(Cause::Malformed)),
                _ => Some(Ok(pieces(&self.frames[index]))),
            };
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("frames are whole")).into()
}

fn pieces(frame: &[u8]) -> Vec<Piece> {
    let mut at = HEADER;
    let piece = |_| {
        let event = u64::from_le_bytes(*frame[at..].first_chunk().expect("frames are whole"));
        let (offset, length) = (at + EVENT_HEADER, number(frame, at + 8) as usize);
        at = offset + length;
        Piece { key: PieceKey::Event(event), offset, length }
    };
    (0..number(frame, 8)).map(piece).collect()
}

impl SplitterLink for SimulatedSplitter {
    fn most_frames(&self) -> usize {
        MOST_FRAMES
    }

    fn start(&mut self) {
        self.note(3);
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.started += 1;
        notes.most_at_once = notes.most_at_once.max(1 + u64::from(self.process.is_some()));
        let ready_at = self.now.after(self.setting.start);
        let (due, is_ready) = (Instant::ZERO, false);
        self.process = Some(Process { ready_at, is_ready, asked: 0..0, due, hangs: false, ends_at: None });
    }

    fn kill(&mut self) {
        self.note(4);
        let at = self.now.after(DYING);
        self.process.iter_mut().for_each(|process| process.ends_at = Some(at));
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.answers.clear();
        self.done = 0;
    }

    fn put(&mut self, frame: &Payload) {
        self.frames.push(frame.to_vec());
        self.answers.push(None);
    }

    fn ask(&mut self, first: usize, count: usize) {
        self.done = first;
        let due = self.now.after(self.setting.each);
        if let Some(process) = &mut self.process {
            (process.asked, process.due) = (first..first + count, due);
        }
    }

    fn look(&mut self, now: Instant) -> ProcessSight {
        self.now = now;
        self.work(now);
        if self.deaths.pop_if(|death| now >= *death).is_some() {
            self.process.iter_mut().for_each(|process| process.ends_at = Some(now));
        }
        let done = self.done;
        let Some(process) = &mut self.process else { return ProcessSight { done, ..ProcessSight::default() } };
        let has_ended = process.ends_at.is_some_and(|at| now >= at);
        let is_ready = !has_ended && !process.is_ready && now >= process.ready_at;
        process.is_ready |= is_ready;
        if has_ended {
            self.process = None;
        }
        ProcessSight { is_ready, done, has_ended }
    }

    fn answer(&mut self, index: usize, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        let answer = self.answers[index].as_ref()?;
        Some(answer.as_ref().map(|answer| pieces.extend_from_slice(answer)).map_err(|cause| *cause))
    }

    fn copied_bytes(&self) -> u64 {
        0
    }

    fn next_deadline(&self) -> Option<Instant> {
        let process = self.process.as_ref()?;
        let ready = Some(process.ready_at).filter(|_| !process.is_ready);
        let due = Some(process.due).filter(|_| !process.asked.is_empty() && !process.hangs);
        process.ends_at.or(ready).or(due)
    }

    fn descriptors<'a>(&'a self, _: &mut Vec<BorrowedFd<'a>>) {}
}

/// Whether a settled event is complete.
fn look(key: EventKey, scenario: &Scenario, readout: &Readout) -> Result<bool, String> {
    let (event, fragments) = (key.number(), held(key, readout)?);
    let mut is_complete = true;
    for (board, setting) in scenario.boards.iter().enumerate() {
        let mine = fragments.iter().find(|one| one.meta.source.0 == board as u32 + 1);
        let there = mine.filter(|one| one.meta.missing_cause().is_none());
        is_complete &= there.is_some();
        let was_sent = event <= setting.events();
        if let Some(fragment) = there {
            let expected = was_sent && fragment.payload.to_vec() == data(board, event);
            unless(expected, || format!("event {event}: not what board {board} sent"))?;
        }
        if !setting.is_exact() || !was_sent {
            continue;
        }
        unless(there.is_none() == setting.loses(event), || {
            format!("event {event}: board {board} is {:?}", mine.map(|one| one.meta.missing_cause()))
        })?;
    }
    Ok(is_complete)
}

#[test]
fn what_is_lost_follows_from_what_went_wrong_and_nobody_waits_for_ever() {
    for seed in 0..seeds(300) {
        let scenario = Scenario::draw(seed);
        assert_eq!(World::new(scenario.clone()).run(), Ok(()), "seed {seed}: {scenario:#?}");
    }
}

#[test]
fn a_seed_is_a_run_and_each_mishap_is_drawn() {
    let (mut digests, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..40 {
        let digest = || {
            let mut world = World::new(Scenario::draw(seed));
            world.run().map(|()| world.digest())
        };
        assert_eq!(digest(), digest(), "seed {seed}");
        digests.extend(digest());
        let mishaps = Scenario::draw(seed).boards.into_iter().flat_map(|board| board.mishaps.into_values());
        kinds.extend(mishaps.map(|mishap| match mishap {
            Mishap::Crash(_) => "crash",
            Mishap::Hang(_) => "hang",
            Mishap::Lie(_) => "lie",
            Mishap::Malformed => "malformed",
        }));
    }
    assert!(digests.len() > 35, "different seeds are different runs");
    assert_eq!(kinds.len(), 4);
}
