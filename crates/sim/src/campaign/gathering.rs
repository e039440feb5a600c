//! Boards that send an event in several frames, lose some of them, pause and hang up within an event, and are not read for
//! longer than the time-out for the next frame.
//!
//! ```text
//!   Board --frames of an event--> ReadoutDrive --settled events--> Referee: which frames are in a fragment, and are missing
//!                                                                  ones flagged?
//! ```
//! The scenario alone determines the result: a fragment holds all frames of its event that arrived up to its end, or up to the
//! place where its board paused or hung up for longer than the time-out. If frames are known to be missing, it is flagged.

use super::content::mixed;
use super::draw::Draw;
use super::outcome::{Broken, Checker};
use super::stand::{self, Connection, Course, Machine, Overseer, Stand, held, is_accounted_for, source_of};
use ropewalk_engine::Drive;
use ropewalk_flow::messages::FragmentFlags;
use ropewalk_flow::readout::{Readout, ReadoutConfig, SourceConfig};
use ropewalk_terms::{EventKey, FragmentAccount, Instant};
use ropewalk_wire::description::Description;
use ropewalk_wire::foreign::{ForeignFormat, Header, alice, dune};
use ropewalk_wire::layout::{self, Counts, Layout, Length, Number, Plan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long the next frame of an event is waited for.
const GATHER_TIMEOUT: Duration = Duration::from_millis(50);
/// A pause in which every event is given up that can be.
const LONG: Duration = Duration::from_millis(150);

/// What frames say of their event beside its number.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Style {
    /// Their places, which one is the last, and numbers of their own: pages of an orbit.
    Marked,
    /// Their places alone: pieces of a trigger record.
    Placed,
    /// Numbers of their own alone: packets of a pulse.
    Numbered,
}

/// What a board does behind a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Break {
    /// It pauses for less than the next frame is waited for.
    Short,
    /// It pauses for longer.
    Long,
    /// It hangs up, and connects again.
    HangUp,
}

impl Break {
    /// How long nothing comes.
    const fn pause(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(10),
            Self::Long => LONG,
            Self::HangUp => Duration::ZERO,
        }
    }

    /// Whether an event may leave without what comes behind it.
    fn may_end(self) -> bool {
        self != Self::Short
    }
}

/// A board: how many frames each of its events has, and what goes wrong at which of all of its frames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoardSetting {
    /// By event.
    pub frames: Vec<u32>,
    /// Frames that are lost.
    pub lost: BTreeSet<usize>,
    /// What it does behind a frame.
    pub breaks: BTreeMap<usize, Break>,
}

/// A system and what goes wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The seed of all chances.
    pub seed: u64,
    /// What frames say.
    pub style: Style,
    /// The boards, whose events are the same.
    pub boards: Vec<BoardSetting>,
    /// How many events there are.
    pub events: usize,
    /// Event numbers that no source is read past the oldest incomplete one.
    pub window: u32,
    /// Times in which nothing is let go of, so that boards are not read in the end: since when, and for how long.
    pub stalls: Vec<(Duration, Duration)>,
}

impl Scenario {
    /// The scenario of a seed. In every fourth nothing goes wrong but that nothing is let go of at times.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 70);
        let is_quiet = seed.is_multiple_of(4);
        let events = draw.between(5, 120) as usize;
        let style = draw.of(&[Style::Marked, Style::Placed, Style::Numbered]);
        let boards = (0..draw.between(1, 3)).map(|_| Self::draw_board(&mut draw, events, is_quiet)).collect();
        let stall = |draw: &mut Draw| {
            let since = Duration::from_millis(draw.below(600));
            (since, draw.time(GATHER_TIMEOUT, 6 * GATHER_TIMEOUT))
        };
        let stalls = (0..draw.below(4)).map(|_| stall(&mut draw)).collect();
        Self { seed, style, boards, events, window: draw.of(&[2, 8, 64]), stalls }
    }

    fn draw_board(draw: &mut Draw, events: usize, is_quiet: bool) -> BoardSetting {
        let most = draw.of(&[1, 3, 6]);
        let frames: Vec<u32> = (0..events).map(|_| draw.between(1, most) as u32).collect();
        let all = frames.iter().map(|&count| u64::from(count)).sum();
        let (lost, wrong) = if is_quiet { (0, 0) } else { (draw.below(8), draw.below(8)) };
        let lost = (0..lost).map(|_| draw.below(all) as usize).collect();
        let a_break = |draw: &mut Draw| draw.of(&[Break::Short, Break::Long, Break::HangUp]);
        let breaks = (0..wrong).map(|_| (draw.below(all) as usize, a_break(draw))).collect();
        BoardSetting { frames, lost, breaks }
    }

    /// Whether nothing is let go of at this time of the run.
    fn is_stalled(&self, time: Duration) -> bool {
        self.stalls.iter().any(|&(since, how_long)| (since..since + how_long).contains(&time))
    }
}

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
            let frame = layout::Frame::Length(length);
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

/// A frame that it sends.
#[derive(Clone, Debug)]
struct Frame {
    event: u64,
    /// Which of its event's frames it is, from 0 on.
    place: u32,
    /// It is the last one of its event.
    is_last: bool,
    bytes: Vec<u8>,
    /// What the board does behind it.
    behind: Option<Break>,
}

/// A board.
struct Board {
    connection: Connection,
    /// All frames except the lost ones.
    frames: Vec<Frame>,
    next: usize,
    paused_until: Instant,
    /// It hangs up as soon as everything has left.
    is_leaving: bool,
}

impl Board {
    fn new(board: usize, scenario: &Scenario, connection: Connection) -> Self {
        let frames = frames(board, scenario);
        Self { connection, frames, next: 0, paused_until: Instant::ZERO, is_leaving: false }
    }

    /// It has sent everything and hung up.
    const fn has_left(&self) -> bool {
        self.next == self.frames.len() && !self.connection.is_up()
    }

    /// The frames that it sends of an event.
    fn of(&self, event: u64) -> &[Frame] {
        let start = self.frames.partition_point(|frame| frame.event < event);
        let end = self.frames.partition_point(|frame| frame.event <= event);
        &self.frames[start..end]
    }

    /// Sends what there is room for.
    fn turn(&mut self, now: Instant) {
        let wanted = self.next < self.frames.len() && !self.is_leaving;
        self.connection.turn(now, wanted);
        if self.is_leaving {
            self.is_leaving = !self.connection.hang_up();
            return;
        }
        while now >= self.paused_until && self.connection.is_up() && !self.is_leaving {
            let Some(frame) = self.frames.get(self.next) else {
                self.is_leaving = true;
                break;
            };
            if !self.connection.send(&frame.bytes) {
                break;
            }
            self.next += 1;
            self.is_leaving = frame.behind == Some(Break::HangUp);
            self.paused_until = frame.behind.map_or(now, |behind| now.after(behind.pause()));
        }
    }
}

fn frames(board: usize, scenario: &Scenario) -> Vec<Frame> {
    let (setting, mut frames, mut all) = (&scenario.boards[board], Vec::new(), 0);
    for (event, &count) in (1..).zip(&setting.frames) {
        for place in 0..count {
            let is_last = place + 1 == count;
            let bytes = encoded(board, scenario.style, event, place, is_last, all as u64);
            if !setting.lost.contains(&all) {
                frames.push(Frame { event, place, is_last, bytes, behind: setting.breaks.get(&all).copied() });
            }
            all += 1;
        }
    }
    frames
}

/// A frame as it travels; `number` is its own.
fn encoded(board: usize, style: Style, event: u64, place: u32, is_last: bool, number: u64) -> Vec<u8> {
    let (source, chance) = (u64::from(source_of(board).0), mixed(board as u64 + 1, event, place.into()));
    let payload: Vec<u8> = (0..chance % 150).map(|at| (chance >> (at % 57)) as u8).collect();
    let mut out = Vec::new();
    match style {
        Style::Marked => {
            let header =
                Header::new().with(alice::FEE, source).with(alice::ORBIT, event).with(alice::PAGE, place.into());
            let header = header.with(alice::PACKET_COUNTER, number & 0xff).with(alice::STOP, is_last.into());
            alice::encode(header, &payload, &mut out).expect("it is short");
        }
        Style::Placed => {
            let header = Header::new().with(dune::SOURCE, source).with(dune::TRIGGER_NUMBER, event);
            dune::encode(header.with(dune::SEQUENCE, place.into()), &payload, &mut out);
        }
        Style::Numbered => {
            out.extend_from_slice(&(payload.len() as u32 + 12).to_le_bytes());
            out.extend_from_slice(&(event as u32).to_le_bytes());
            out.extend_from_slice(&(number as u32).to_le_bytes());
            out.extend_from_slice(&payload);
        }
    }
    out
}

/// Compares what a settled event holds with the frames that boards sent of it; says whether it is complete.
fn look(key: EventKey, scenario: &Scenario, boards: &[Board], readout: &Readout) -> Result<bool, Broken> {
    let (event, fragments) = (key.number(), held(key, readout)?);
    let mut is_complete = true;
    for (index, board) in boards.iter().enumerate() {
        let mine = fragments.iter().find(|one| one.meta.source.0 == index as u32 + 1);
        let there = mine.filter(|one| one.meta.missing_cause().is_none());
        is_complete &= there.is_some();
        let sent = board.of(event);
        Broken::unless(there.is_none() == sent.is_empty(), Checker::Loss, || {
            format!("event {event}: board {index} sent {} frames, and is {mine:?}", sent.len())
        })?;
        let Some(fragment) = there else { continue };
        let bytes = fragment.payload.to_vec();
        let ends = (1..=sent.len()).filter(|&end| may_end(sent, end));
        let found = ends.map(|end| &sent[..end]).find(|frames| concat(frames) == bytes);
        let Some(frames) = found else {
            let words = format!("event {event}: board {index}: {} bytes that are none of its frames", bytes.len());
            return Err(Broken::new(Checker::Content, words));
        };
        let is_flagged = fragment.meta.flags.contains(FragmentFlags::FRAMES_MISSING);
        Broken::unless(is_flagged == is_known_to_miss(scenario.style, frames), Checker::Content, || {
            format!("event {event}: board {index}: {frames:?}, and that frames are missing is said: {is_flagged}")
        })?;
    }
    Ok(is_complete)
}

/// Whether a fragment may end behind so many of an event's frames: with the last of them, or where its board made others wait.
fn may_end(sent: &[Frame], end: usize) -> bool {
    end == sent.len() || sent[end - 1].behind.is_some_and(Break::may_end)
}

fn concat(frames: &[Frame]) -> Vec<u8> {
    frames.iter().flat_map(|frame| &frame.bytes).copied().collect()
}

/// Whether these frames alone show that there were others of their event.
fn is_known_to_miss(style: Style, frames: &[Frame]) -> bool {
    let has_holes = frames.windows(2).any(|pair| pair[1].place != pair[0].place + 1);
    let begins_late = frames.first().is_some_and(|first| first.place > 0);
    let ends_early = frames.last().is_some_and(|last| !last.is_last);
    match style {
        Style::Marked => has_holes || begins_late || ends_early,
        Style::Placed => has_holes || begins_late,
        Style::Numbered => has_holes,
    }
}

/// What must hold of a board's account in the end.
fn judge(index: usize, board: &Board, account: &FragmentAccount) -> Result<(), Broken> {
    is_accounted_for(index, account)?;
    // Behind a break a frame may come too late, or begin its event a second time; nothing else is no fragment of an event.
    let is_behind_break = |frames: &[Frame]| {
        let mut breaks = frames.iter().map(|frame| frame.behind.is_some_and(Break::may_end));
        breaks.position(|may_end| may_end).map_or(0, |first| frames.len() - 1 - first)
    };
    let events = board.frames.chunk_by(|one, other| one.event == other.event);
    let (events, most_late) =
        events.fold((0, 0), |(events, late), frames| (events + 1, late + is_behind_break(frames)));
    let built = account.in_complete_events + account.in_incomplete_events;
    let rest = account.received - built;
    let is_right = built == events && rest == account.late + account.duplicate && rest <= most_late as u64;
    Broken::unless(is_right, Checker::Loss, || {
        format!("board {index}: {events} events, {most_late} frames behind a break: {account:?}")
    })
}
