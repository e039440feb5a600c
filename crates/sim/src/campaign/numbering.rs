//! Boards whose event numbers are wrong: flipped bits with and without a checksum that shows it, left-overs of another run,
//! counters that start again, wrap, skip, and frames that change places.
//!
//! ```text
//!   Board --frames with numbers--> ReadoutDrive --settled events--> Referee: which event is each frame truly of?
//! ```
//! Each frame carries the event it is truly of in bytes that no machine reads. What must hold: no frame is in another event than its
//! own, a board with k bad numbers loses k fragments at most, a board without any loses none, and the run ends in time.

use super::content::mixed;
use super::draw::Draw;
use super::outcome::{Broken, Checker};
use super::stand::{self, Connection, Course, Machine, Overseer, Stand, held, is_accounted_for};
use ropewalk_engine::Drive;
use ropewalk_flow::readout::{Readout, ReadoutConfig, SourceConfig};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{EventKey, FragmentAccount, Instant};
use ropewalk_wire::framing::Framing;
use ropewalk_wire::layout::{
    Checksum, ChecksumKind, Clock, Contents, Counts, Frame as FrameRule, Layout, Length, Number, Plan, Size,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What a source's silence may last.
const SOURCE_TIMEOUT: Duration = Duration::from_millis(300);
/// All is settled so long after the last frame was sent, at latest.
const AFTERWARDS: Duration = Duration::from_millis(1500);
const MOST_FRAME: u32 = 1 << 10;
/// Where the true event and the board stand in a frame, which no machine looks at.
const TRULY: Range<usize> = 24..28;
const BOARD: Range<usize> = 28..32;
/// Bytes before the data.
const HEADER: usize = 32;
/// The most events that a board leaves out at once: fewer than it has sent when its counter starts again, so that it does not happen
/// to be right afterwards.
const MOST_GAP: u64 = 8;
/// Fragments that may be lost until time stamps have shown where a counter that started again belongs: those that are held, and those
/// that come until enough are compared.
const UNTIL_RECOVERED: u64 = 24;

/// What is wrong with the frame of one event of a board.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mishap {
    /// These bits of its number are wrong; the checksum shows it, or was computed afterwards.
    Flip {
        /// The bits.
        mask: u64,
        /// Whether the checksum shows it.
        is_shown: bool,
    },
    /// Another byte is wrong, and the checksum shows it.
    Damage,
    /// This event and those behind it, so many in all, are left out.
    Gap(u64),
    /// It is sent twice.
    Twice,
    /// It is sent behind the next one.
    Swap,
    /// The counter starts again with it.
    Restart,
}

/// A board: what it sends before the run's first event, and what goes wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoardSetting {
    /// How far the numbers of a run before lie from the first one's, and how many there are.
    pub left_over: Option<(u64, u64)>,
    /// By event, from 1 on.
    pub mishaps: BTreeMap<u64, Mishap>,
}

/// A system and what goes wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The seed of all chances.
    pub seed: u64,
    /// The boards.
    pub boards: Vec<BoardSetting>,
    /// How many events there are.
    pub events: u64,
    /// Bytes of the number.
    pub width: u8,
    /// The number of the first event.
    pub first: u64,
    /// The configuration says so; otherwise the boards show it.
    pub is_first_given: bool,
    /// Frames say when they were taken, by a clock of the board's own.
    pub has_times: bool,
    /// Event numbers that no source is read past the oldest incomplete one.
    pub window: u32,
    /// Time between two events.
    pub pace: Duration,
}

impl Scenario {
    /// The scenario of a seed. In every eighth nothing is wrong.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 90);
        let events = draw.between(30, 200);
        let width = draw.of(&[1, 2, 4, 8]);
        let end = u64::MAX >> (64 - 8 * u32::from(width));
        let first = match draw.below(4) {
            0 => 0,
            1 => end - draw.below(100.min(end)),
            2 => draw.below(end),
            _ => 1,
        };
        let is_quiet = seed.is_multiple_of(8);
        let count = draw.between(1, 4);
        let mut boards: Vec<BoardSetting> =
            (0..count).map(|_| Self::draw_board(&mut draw, is_quiet, events, width)).collect();
        let is_first_given = draw.one_in(2);
        // Otherwise most boards must show where the run begins.
        let most = if is_first_given { 4 } else { (boards.len() - 1) / 2 };
        boards.iter_mut().skip(most).for_each(|board| board.left_over = None);
        let pace = draw.time(Duration::from_micros(100), Duration::from_millis(8));
        Self {
            seed,
            boards,
            events,
            width,
            first,
            is_first_given,
            has_times: draw.one_in(2),
            window: draw.of(&[8, 32, 256]),
            pace,
        }
    }

    fn draw_board(draw: &mut Draw, is_quiet: bool, events: u64, width: u8) -> BoardSetting {
        let bits = 8 * u64::from(width);
        let flip = |draw: &mut Draw| 1 << draw.below(bits) | if draw.one_in(4) { 1 << draw.below(bits) } else { 0 };
        let mishap = |draw: &mut Draw| match draw.below(9) {
            0..3 => Mishap::Flip { mask: flip(draw), is_shown: draw.one_in(2) },
            3 => Mishap::Damage,
            4 => Mishap::Gap(draw.between(1, MOST_GAP)),
            5 => Mishap::Twice,
            6 => Mishap::Swap,
            // Of a narrow counter it looks as if it had skipped events.
            7 if width > 1 => Mishap::Restart,
            _ => Mishap::Flip { mask: flip(draw), is_shown: false },
        };
        let wrong = if is_quiet { 0 } else { draw.below(6) };
        // An event without any frame cannot be known.
        let mut mishaps: BTreeMap<u64, Mishap> =
            (0..wrong).map(|_| (draw.between(1, events - 8), mishap(draw))).collect();
        // A counter that restarts after a few events looks like a repetition.
        mishaps.retain(|&event, mishap| *mishap != Mishap::Restart || event > MOST_GAP + 2);
        // A wrong number behind a gap may be exactly the expected one: then nothing shows it.
        let gaps: Vec<(u64, u64)> = mishaps
            .iter()
            .filter_map(|(&event, mishap)| if let Mishap::Gap(count) = *mishap { Some((event, count)) } else { None })
            .collect();
        let is_behind_gap = |event: u64| gaps.iter().any(|&(gap, count)| (gap..=gap + count + 1).contains(&event));
        mishaps.retain(|&event, mishap| !matches!(mishap, Mishap::Flip { .. } | Mishap::Swap) || !is_behind_gap(event));
        // Three numbers behind a gap prove each other, and a counter that restarts before leaves them unproved.
        let ends: Vec<u64> = mishaps
            .iter()
            .map(|(&event, mishap)| match mishap {
                Mishap::Gap(count) => event + count,
                Mishap::Swap => event + 2,
                _ => event + 1,
            })
            .collect();
        let is_proved = |event: u64| ends.iter().all(|&end| end > event || end + 3 <= event);
        mishaps.retain(|&event, mishap| *mishap != Mishap::Restart || is_proved(event));
        let left_over =
            (!is_quiet && width > 1 && draw.one_in(4)).then(|| (draw.between(300, 1000), draw.between(1, 12)));
        BoardSetting { left_over, mishaps }
    }

    fn plan(&self) -> Plan {
        let length = Length { number: Number::little_endian(4, 4), unit: 1, counts: Counts::Frame, add: 0 };
        let frame = FrameRule::Sync { word: b"\xfe\xed\xbe\xef".to_vec(), size: Size::Length(length) };
        let clock = Clock { ticks: vec![Number::little_endian(16, 8)], tick_attoseconds: 1_000_000_000, seconds: None };
        let layout = Layout {
            event: vec![Number::little_endian(8, self.width)],
            time: self.has_times.then_some(clock),
            checksum: Some(Checksum {
                kind: ChecksumKind::Crc32,
                number: Number::little_endian(-4, 4),
                from: 0,
                to: -4,
            }),
            ..Layout::new(frame, MOST_FRAME)
        };
        Plan::compile(&layout).expect("a good layout")
    }

    fn number_of(&self, event: u64) -> u64 {
        self.first.wrapping_add(event - 1) & u64::MAX >> (64 - 8 * u32::from(self.width))
    }
}

/// A frame on its way, and the event that it is truly of; 0 of those of a run before.
#[derive(Clone, Debug)]
struct Sent {
    event: u64,
    bytes: Vec<u8>,
}

struct Board {
    connection: Connection,
    frames: Vec<Sent>,
    /// Events whose number is bad, or whose frame is.
    bad: BTreeSet<u64>,
    /// Events of which it sends nothing.
    left_out: BTreeSet<u64>,
    /// From this event on its counter is not the run's.
    restarts: Option<u64>,
    next: usize,
    is_leaving: bool,
}

impl Board {
    fn new(board: usize, scenario: &Scenario, plan: &Plan, connection: Connection) -> Self {
        let (bad, left_out) = (BTreeSet::new(), BTreeSet::new());
        let mut new =
            Self { connection, frames: Vec::new(), bad, left_out, restarts: None, next: 0, is_leaving: false };
        new.make_frames(board, scenario, plan);
        new
    }

    fn make_frames(&mut self, board: usize, scenario: &Scenario, plan: &Plan) {
        let setting = &scenario.boards[board];
        if let Some((away, count)) = setting.left_over {
            for place in 0..count {
                let number = scenario.number_of(1 + away + place);
                self.frames.push(Sent { event: 0, bytes: frame(board, scenario, plan, 0, number) });
            }
        }
        let (mut event, mut swapped) = (1, None);
        while event <= scenario.events {
            let mishap = setting.mishaps.get(&event).copied();
            if let Some(Mishap::Gap(count)) = mishap {
                let end = (event + count).min(scenario.events + 1);
                self.left_out.extend(event..end);
                event = end;
                continue;
            }
            if mishap == Some(Mishap::Restart) && self.restarts.is_none() {
                self.restarts = Some(event);
            }
            let number = scenario.number_of(self.restarts.map_or(event, |since| event + 1 - since));
            let bytes = match mishap {
                Some(Mishap::Flip { mask, is_shown: false }) => frame(board, scenario, plan, event, number ^ mask),
                _ => frame(board, scenario, plan, event, number),
            };
            let mut sent = Sent { event, bytes };
            match mishap {
                Some(Mishap::Flip { mask, is_shown: true }) => {
                    let wrong = (number ^ mask).to_le_bytes();
                    sent.bytes[8..8 + usize::from(scenario.width)].copy_from_slice(&wrong[..scenario.width.into()]);
                }
                Some(Mishap::Damage) => sent.bytes[HEADER] ^= 0x20,
                _ => {}
            }
            if matches!(mishap, Some(Mishap::Flip { .. } | Mishap::Damage | Mishap::Swap)) {
                self.bad.insert(event);
            }
            self.frames.extend((mishap == Some(Mishap::Twice)).then(|| sent.clone()));
            match mishap {
                Some(Mishap::Swap) if swapped.is_none() => swapped = Some(sent),
                _ => {
                    self.frames.push(sent);
                    self.frames.extend(swapped.take());
                }
            }
            event += 1;
        }
        self.frames.extend(swapped);
    }

    const fn has_left(&self) -> bool {
        self.next == self.frames.len() && !self.connection.is_up()
    }

    /// Sends what is due, as far as there is room; hangs up when all has left.
    fn turn(&mut self, now: Instant, pace: Duration) {
        self.connection.turn(now, self.next < self.frames.len());
        if self.is_leaving {
            self.connection.hang_up();
            return;
        }
        while let Some(frame) = self.frames.get(self.next) {
            let is_due = now >= Instant::ZERO.after(pace * frame.event as u32);
            if !is_due || !self.connection.is_up() || !self.connection.send(&frame.bytes) {
                return;
            }
            self.next += 1;
        }
        self.is_leaving = true;
    }
}

fn frame(board: usize, scenario: &Scenario, plan: &Plan, event: u64, number: u64) -> Vec<u8> {
    let chance = mixed(scenario.seed, event, 300 + board as u64);
    let mut payload: Vec<u8> = (0..HEADER as u64 + 8 + chance % 120).map(|at| (chance >> (at % 57)) as u8).collect();
    payload[TRULY].copy_from_slice(&(event as u32).to_le_bytes());
    payload[BOARD].copy_from_slice(&(board as u32).to_le_bytes());
    // Clocks have units of their own, and begin anywhere; intervals are those of the events.
    let ticks: u64 = (1..=event).map(|event| 1000 + mixed(scenario.seed, event, 7) % 1000).sum();
    let time = (board as u64 + 1) * ticks + mixed(scenario.seed, board as u64, 8) % 1_000_000;
    let mut frame = Vec::new();
    plan.compose(&Contents { event: number, time, ..Contents::default() }, &payload, &mut frame);
    frame
}

/// What came out of a run.
#[derive(Default)]
struct Referee {
    /// Board and event of each frame that is in a settled event.
    taken: BTreeSet<(usize, u64)>,
    /// How many of the first events no board has shown, so that the run began behind them.
    not_shown: Option<i64>,
}

impl Referee {
    fn look(
        &mut self,
        key: EventKey,
        scenario: &Scenario,
        boards: &[Board],
        readout: &Readout,
    ) -> Result<bool, Broken> {
        let fragments = held(key, readout)?;
        let mut is_complete = true;
        for fragment in &fragments {
            if fragment.meta.missing_cause().is_some() {
                is_complete = false;
                continue;
            }
            let bytes = fragment.payload.to_vec();
            let number = |range: Range<usize>| u32::from_le_bytes(bytes[range].try_into().expect("four bytes"));
            let (event, board) = (u64::from(number(TRULY)), number(BOARD) as usize);
            let before = event as i64 - key.number() as i64;
            let not_shown = *self.not_shown.get_or_insert(if scenario.is_first_given { 0 } else { before });
            let of = key.number() as i64 + not_shown;
            // Two wrong numbers may look as if two events had changed places.
            let are_both_bad = [event as i64, of].iter().all(|&one| boards[board].bad.contains(&(one as u64)));
            Broken::unless(event as i64 == of && event > 0 || are_both_bad, Checker::Content, || {
                let begun = format!("the run began {not_shown} events late");
                format!("event {}: board {board} has its frame of event {event} in it, and {begun}", key.number())
            })?;
            self.taken.insert((board, event));
        }
        Ok(is_complete)
    }

    /// What must hold of a board in the end.
    fn judge(&self, index: usize, board: &Board, scenario: &Scenario, account: &FragmentAccount) -> Result<(), Broken> {
        is_accounted_for(index, account)?;
        let not_shown = self.not_shown.unwrap_or(0).max(0) as u64;
        let is_lost = |event: &u64| !self.taken.contains(&(index, *event)) && !board.left_out.contains(event);
        let end = board.restarts.unwrap_or(u64::MAX);
        let (before, behind): (Vec<u64>, Vec<u64>) =
            (1..=scenario.events).filter(is_lost).partition(|&event| event < end);
        let bad = board.bad.len() as u64;
        Broken::unless(before.len() as u64 <= bad.max(not_shown), Checker::Loss, || {
            format!("board {index} has {bad} bad numbers and lost events {before:?}: {}", words_of(account))
        })?;
        let is_recovered = scenario.has_times && scenario.boards.len() > 1;
        let most = if is_recovered { UNTIL_RECOVERED + bad } else { u64::MAX };
        let is_alone = scenario.boards.iter().enumerate().all(|(other, one)| other == index || one.mishaps.is_empty());
        Broken::unless(!is_alone || behind.len() as u64 <= most, Checker::Loss, || {
            format!("board {index} restarted with event {end}, and lost {behind:?}: {}", words_of(account))
        })
    }
}

/// What became of a board's fragments, without what is 0.
fn words_of(account: &FragmentAccount) -> String {
    let dropped = account.dropped.iter().filter(|&(_, count)| count > 0);
    let dropped: Vec<String> = dropped.map(|(cause, count)| format!("{count} {}", cause.name())).collect();
    let FragmentAccount { received, duplicate, late, corrupt, stale, after_stop, .. } = account;
    format!(
        "of {received}: {duplicate} duplicate, {late} late, {corrupt} corrupt, {stale} stale, {after_stop} after stop, {}",
        dropped.join(", ")
    )
}

/// Boards, readout unit, overseer.
pub struct World {
    scenario: Scenario,
    course: Course,
    readout: Machine,
    boards: Vec<Board>,
    overseer: Overseer,
    referee: Referee,
    /// When the last frame was sent, and when the last event was settled.
    sent: Instant,
    settled: (u64, Instant),
}

fn readout_config(scenario: &Scenario, plan: &Plan) -> ReadoutConfig {
    let counter_bits = plan.widths().event;
    let source = |usual: SourceConfig| SourceConfig {
        max_fragment: MOST_FRAME,
        counter_bits,
        first: if scenario.is_first_given { scenario.first } else { 1 },
        begins_anywhere: !scenario.is_first_given,
        trusts_numbers: is_planted(Flaw::NumbersTrusted),
        ..usual
    };
    let usual = stand::readout_config(scenario.boards.len(), scenario.window, SOURCE_TIMEOUT, source);
    let most = 1 << (u32::from(counter_bits) - 2);
    ReadoutConfig { first_is_open: !scenario.is_first_given, plausibility: usual.plausibility.min(most), ..usual }
}

impl World {
    /// The world of a scenario, before anything has happened.
    pub fn new(scenario: Scenario) -> Self {
        let plan = scenario.plan();
        let config = readout_config(&scenario, &plan);
        let stand = Stand::new(scenario.seed, config, &Arc::new(scenario.plan()).into(), Some(scenario.events));
        let Stand { readout, overseer, connections } = stand;
        let board = |(board, connection)| Board::new(board, &scenario, &plan, connection);
        let boards = connections.into_iter().enumerate().map(board).collect();
        let (course, referee, settled) = (Course::default(), Referee::default(), (0, Instant::ZERO));
        Self { course, readout, boards, overseer, referee, scenario, sent: Instant::ZERO, settled }
    }

    /// Mixed from everything that came out: equal for equal histories.
    pub fn digest(&self) -> u64 {
        let accounts = (0..self.boards.len()).map(|board| self.readout.machine().account(board));
        accounts.fold(mixed(self.course.now.as_nanoseconds(), self.overseer.settled, 1), |all, account| {
            mixed(all, account.received, account.in_complete_events << 32 | account.corrupt)
        })
    }

    /// Takes the run.
    ///
    /// # Errors
    /// What does not hold.
    pub fn run(&mut self) -> Result<(), Broken> {
        while !self.course.is_over(self.boards.iter().all(Board::has_left)) {
            let Self { scenario, course, readout, boards, overseer, referee, .. } = self;
            boards.iter_mut().for_each(|board| board.turn(course.now, scenario.pace));
            if boards.iter().any(|board| board.next < board.frames.len()) {
                self.sent = course.now;
            }
            readout.turn(course.now);
            overseer
                .turn(course.now, readout.machine(), |key, readout| referee.look(key, scenario, boards, readout))?;
            if overseer.settled != self.settled.0 {
                self.settled = (overseer.settled, course.now);
            }
            stand::reads_within(scenario.window, readout.machine())?;
            course.go_on(overseer, readout)?;
        }
        let last = self.settled.1;
        Broken::unless(last <= self.sent.after(AFTERWARDS), Checker::Liveness, || {
            format!("event {} is settled at {last:?}, and all was sent at {:?}", self.settled.0, self.sent)
        })?;
        let machine = self.readout.machine();
        let judge = |(index, board)| self.referee.judge(index, board, &self.scenario, &machine.account(index));
        self.boards.iter().enumerate().try_for_each(judge)
    }
}
