//! Boards whose event numbers grow, but not by one (the times of pulses). They begin anew, fall silent, hang up within a frame,
//! and send wrong frames. Each has a black box.
//!
//! ```text
//!   Board --frames with times--> ReadoutDrive --settled events--> Referee: one pulse each, none lost without an excuse
//!                                     |
//!                                     +--the last bytes, where something was wrong--> Keeper: are they what the board sent?
//! ```
//! The scenario, and what boards sent when, determine the result: equal numbers are of one event, which has each board that
//! counted right and spoke in time. A recording is a piece of what its board sent, from the start of a frame to what was wrong.

mod board;

use super::content::mixed;
use super::draw::Draw;
use super::outcome::{Broken, Checker};
use super::stand::{self, Machine, Overseer, STEP, Stand, held, is_accounted_for, source_of};
use board::{Board, Journal, MOST_FRAME, Sent, plan, pulse_and_board};
use ropewalk_engine::{BlackBox, BlackBoxConfig, Drive, Recording, RecordingLine};
use ropewalk_flow::readout::{Readout, ReadoutConfig, SourceConfig};
use ropewalk_terms::{Cause, EventKey, FragmentAccount, Instant};
use ropewalk_wire::message::FragmentFlags;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What a board does wrong, from some pulse on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// Its clock begins anew, and is set right so many pulses later.
    Restart {
        /// For so many pulses.
        pulses: u64,
        /// Over a new connection.
        reconnects: bool,
    },
    /// It sends nothing for so many pulses, which it does not see.
    Silent {
        /// For so many pulses.
        pulses: u64,
    },
    /// It hangs up in the middle of the pulse's frame, and comes back.
    CutOff,
    /// Bits of its frame are wrong.
    Damage,
    /// Its clock is far ahead, in this one frame.
    Jump,
    /// Bytes that are no frame come before its frame.
    Noise,
    /// So many frames with wrong times come before its frame, which are of no pulse.
    Outliers {
        /// So many.
        count: u64,
        /// Their times are far ahead, or far behind.
        is_ahead: bool,
    },
    /// So many frames behind this one come before it.
    Overtaken {
        /// So many.
        by: u64,
    },
}

/// A board.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoardSetting {
    /// Of eight pulses it sees so many.
    pub sees: u64,
    /// By pulse, what goes wrong.
    pub mishaps: BTreeMap<u64, Mishap>,
    /// How far back its black box reaches.
    pub last: Duration,
    /// How many bytes there is room for in it.
    pub max_bytes: usize,
    /// So many frames of an earlier run come before all others.
    pub left_overs: u64,
}

impl BoardSetting {
    /// Its clock begins anew with some pulse: which, and when it is right again.
    fn restarts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.mishaps.iter().filter_map(|(&pulse, mishap)| match *mishap {
            Mishap::Restart { pulses, .. } => Some((pulse, pulse + pulses)),
            _ => None,
        })
    }

    /// Since which pulse its clock has been wrong, at a pulse.
    fn astray_since(&self, pulse: u64) -> Option<u64> {
        self.restarts().filter(|&(from, to)| (from..to).contains(&pulse)).map(|(from, _)| from).last()
    }

    /// Whether it says nothing of a pulse.
    fn is_silent(&self, pulse: u64) -> bool {
        self.mishaps.iter().any(
            |(&from, mishap)| matches!(*mishap, Mishap::Silent { pulses } if (from..from + pulses).contains(&pulse)),
        )
    }

    /// Whether nothing goes wrong with it that others would notice: its clock is right, and it never falls silent.
    fn is_steady(&self) -> bool {
        let is_harmless = |mishap: &Mishap| matches!(mishap, Mishap::Damage | Mishap::Noise | Mishap::Outliers { .. });
        self.mishaps.values().all(is_harmless)
    }
}

/// How the run ends.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// When all boards have sent everything.
    Last,
    /// By a command, with this pulse; what is there is drained.
    Stop(u64),
    /// By a command, with this pulse; what is not done is dropped.
    Force(u64),
}

/// A system and what goes wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The seed of all chances.
    pub seed: u64,
    /// The boards.
    pub boards: Vec<BoardSetting>,
    /// How many pulses there are, and how much time lies between two.
    pub pulses: u64,
    /// See [`Scenario::pulses`].
    pub pace: Duration,
    /// How long a source that says nothing is waited for.
    pub timeout: Duration,
    /// With this pulse the clocks of all boards are set back.
    pub set_back: Option<u64>,
    /// How wide the field is that holds times; those of the pulses wrap in the middle of the run where it is not 64 bits.
    pub bits: u32,
    /// A frame may be overtaken by so many.
    pub reorder: u8,
    /// Event numbers that no source is read past the oldest incomplete one.
    pub window: u32,
    /// How the run ends.
    pub ending: Ending,
    /// How long the keeper of recordings keeps each of them.
    pub saving: Duration,
}

/// What clocks show before the first pulse: more than any of them reaches after a restart.
const BEGIN: u64 = 1 << 40;
/// How far ahead a clock jumps.
const JUMP: u64 = 1 << 50;
/// How far off wrong times are, in a field that wraps, too.
const APART: u64 = 1 << 36;
/// Frames that belong to no pulse are numbered from here on.
const STRAYS: u64 = 1 << 20;
/// A time-out lasts at least so many pulses.
const PAUSE: u32 = 24;
/// The most pulses that it may take until every board counts right again.
const AFTERWARDS: u64 = 12;
/// Ticks between two pulses: at least so many, at most twice as many.
const TICKS: u64 = 1000;

impl Scenario {
    /// The scenario of a seed. In every fourth nothing goes wrong.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 60);
        let is_quiet = seed.is_multiple_of(4);
        let pulses = draw.between(20, 250);
        let pace = draw.time(Duration::from_micros(500), Duration::from_millis(120));
        let mut boards: Vec<_> =
            (0..draw.between(1, 4)).map(|_| Self::draw_board(&mut draw, is_quiet, pulses)).collect();
        let set_back = (!is_quiet && draw.one_in(3)).then(|| draw.between(5, pulses - 5));
        let ending = match draw.below(6) {
            0 => Ending::Stop(draw.between(1, pulses)),
            1 => Ending::Force(draw.between(1, pulses)),
            _ => Ending::Last,
        };
        // No board that sees half of the pulses is silent for so long by chance.
        let timeout = Duration::from_millis(200).max(PAUSE * pace);
        let window = draw.of(&[4, 16, 64]);
        let saving =
            if draw.one_in(3) { draw.time(Duration::from_millis(1), Duration::from_secs(20)) } else { Duration::ZERO };
        let bits = draw.of(&[64, 64, 40, 43]);
        let reorder = draw.of(&[0, 4, 8]);
        let set_back = set_back.filter(|_| bits == u64::BITS);
        Self::draw_wrong_times(&mut draw, is_quiet, pulses, bits, &mut boards);
        Self { seed, boards, pulses, pace, timeout, set_back, bits, reorder, window, ending, saving }
    }

    fn draw_board(draw: &mut Draw, is_quiet: bool, pulses: u64) -> BoardSetting {
        let lasting = |draw: &mut Draw| if draw.one_in(4) { pulses } else { draw.between(1, 30) };
        let mishap = |draw: &mut Draw| match draw.below(7) {
            0 | 1 => Mishap::Restart { pulses: lasting(draw), reconnects: draw.one_in(2) },
            2 => Mishap::Silent { pulses: lasting(draw) },
            3 => Mishap::CutOff,
            4 => Mishap::Damage,
            5 => Mishap::Jump,
            _ => Mishap::Noise,
        };
        let wrong = if is_quiet { 0 } else { draw.below(4) };
        BoardSetting {
            sees: draw.of(&[8, 8, 7, 4]),
            mishaps: (0..wrong).map(|_| (draw.between(3, pulses), mishap(draw))).collect(),
            last: draw.time(Duration::from_millis(50), Duration::from_secs(20)),
            max_bytes: draw.of(&[9 << 10, 64 << 10]),
            left_overs: 0,
        }
    }

    /// Times that are wrong without anything else being so, and frames that come out of order. Where times wrap, no clock does anything
    /// else that is strange.
    fn draw_wrong_times(draw: &mut Draw, is_quiet: bool, pulses: u64, bits: u32, boards: &mut [BoardSetting]) {
        for board in boards {
            if bits < u64::BITS {
                board.mishaps.retain(|_, mishap| !matches!(mishap, Mishap::Restart { .. } | Mishap::Jump));
            }
            if is_quiet || draw.one_in(2) {
                continue;
            }
            board.left_overs = if draw.one_in(3) { draw.of(&[1, 2, 3, 10]) } else { 0 };
            for _ in 0..draw.below(3) {
                let mishap = match draw.below(3) {
                    0 => Mishap::Overtaken { by: draw.between(1, 3) },
                    _ => Mishap::Outliers { count: draw.of(&[1, 1, 2, 10]), is_ahead: draw.one_in(2) },
                };
                board.mishaps.entry(draw.between(1, pulses)).or_insert(mishap);
            }
        }
    }

    /// What a clock that is right shows at a pulse.
    fn time_of(&self, pulse: u64) -> u64 {
        if self.bits < u64::BITS {
            return (1 << self.bits) + self.ticks(pulse) - self.ticks(self.pulses / 2);
        }
        let since = self.set_back.filter(|&back| pulse >= back).map_or(0, |back| self.ticks(back - 1));
        let begin = if since > 0 { 0 } else { BEGIN };
        begin + self.ticks(pulse) - since
    }

    /// What a board's clock shows at a pulse, and whether that is right. Setting all clocks back sets those right that were not.
    fn time_at(&self, board: usize, pulse: u64) -> (u64, bool) {
        if self.boards[board].mishaps.get(&pulse) == Some(&Mishap::Jump) {
            return (self.time_of(pulse) + JUMP, false);
        }
        let since = self.boards[board].astray_since(pulse);
        let since = since.filter(|&since| self.set_back.is_none_or(|back| since > back || pulse < back));
        match since {
            Some(since) => (self.ticks(pulse) - self.ticks(since - 1), false),
            None => (self.time_of(pulse), true),
        }
    }

    /// Frames of no pulse that a board sends before that of a pulse, with their times: the ones with which it begins, too.
    fn strays(&self, board: usize, pulse: u64, is_first: bool) -> Vec<(u64, u64)> {
        let setting = &self.boards[board];
        // No two boards have the same.
        let own = 100 * TICKS * (1 + board as u64);
        let left = (1..=setting.left_overs)
            .map(|one| (STRAYS + one, self.time_of(self.pulses) + 2 * APART + own + TICKS * one));
        let mut all: Vec<_> = left.filter(|_| is_first).collect();
        if let Some(&Mishap::Outliers { count, is_ahead }) = setting.mishaps.get(&pulse) {
            let time = self.time_of(pulse);
            let first = if is_ahead || time < 2 * APART { time + APART } else { time - APART };
            all.extend((0..count).map(|one| (STRAYS * (1 + pulse) + one, first + own + 2 * TICKS * one)));
        }
        all
    }

    /// For how many pulses a clock that has jumped may be believed: three time-outs, and one to look.
    fn jump_stays(&self) -> u64 {
        (4 * self.timeout).as_nanos().div_ceil(self.pace.as_nanos()) as u64
    }

    fn ticks(&self, pulse: u64) -> u64 {
        pulse * TICKS * 2 - mixed(self.seed, pulse, 3) % TICKS
    }

    /// Whether a board sends a frame of a pulse. All boards that are not silent see the last pulse, so that the readout
    /// unit does not wait for one that has nothing to send.
    fn sees(&self, board: usize, pulse: u64) -> bool {
        let setting = &self.boards[board];
        let is_seen = mixed(self.seed, pulse, 100 + board as u64) % 8 < setting.sees || pulse == self.pulses;
        is_seen && !setting.is_silent(pulse)
    }

    /// Whether event numbers may begin anew: they are set back, or some board's clock is wrong while each of the others
    /// is wrong or absent, for a moment at least. Behind the last pulse every board is absent.
    fn may_begin_anew(&self) -> bool {
        let is_wrong = |board: &BoardSetting, at: u64| {
            let mut before = at.saturating_sub(self.jump_stays())..=at;
            board.astray_since(at).is_some() || before.any(|at| board.mishaps.get(&at) == Some(&Mishap::Jump))
        };
        let is_away = |board: &BoardSetting, at| is_wrong(board, at) || board.is_silent(at) || at > self.pulses;
        let about = |pulse: u64| pulse.saturating_sub(AFTERWARDS)..=pulse;
        let begins = |pulse| {
            self.boards.iter().any(|board| about(pulse).any(|at| is_wrong(board, at)))
                && self.boards.iter().all(|board| about(pulse).any(|at| is_away(board, at)))
        };
        self.set_back.is_some() || (1..=self.pulses + AFTERWARDS).any(begins)
    }
}

/// Turns between two looks at what waits.
const LOOK: u64 = 200;
/// Longer than anything is under way.
const UNDER_WAY: Duration = Duration::from_millis(200);
/// How long everything may take that is waited for behind the last pulse.
const DRAIN: Duration = Duration::from_secs(30);

/// Boards, readout unit, overseer, and the keepers of recordings.
pub struct World {
    scenario: Scenario,
    now: Instant,
    readout: Machine,
    boards: Vec<Board>,
    overseer: Overseer,
    keepers: Vec<Keeper>,
    referee: Referee,
    /// When the run was ordered to stop.
    stopped: Option<Instant>,
    /// When it was ordered to finish and drop unfinished events.
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
        let longest = Instant::ZERO.after(self.scenario.pace * self.scenario.pulses as u32).after(DRAIN);
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

    /// Whether the last messages have had time to arrive.
    fn is_over(&self) -> bool {
        self.finished.is_some_and(|at| self.now >= at.after(Duration::from_millis(100)))
    }
}

/// A board whose clock begins anew after no more pulses than these has shown what may be of an earlier run, if no other
/// board can tell.
const BEGINNING: u64 = 40;

/// Which pulses must be in which events, and which may be missing.
#[derive(Default)]
struct Referee {
    /// Board and pulse of each frame that is in a settled event.
    taken: BTreeSet<(usize, u64)>,
    /// The number that boards gave to the last event.
    last: u64,
}

impl Referee {
    /// Looks at a settled event; says whether it is complete.
    fn look(
        &mut self,
        key: EventKey,
        scenario: &Scenario,
        boards: &[Board],
        readout: &Readout,
    ) -> Result<bool, Broken> {
        let (event, mut fragments) = (key.number(), held(key, readout)?);
        fragments.retain(|one| one.meta.missing_cause().is_none());
        let (mut time, mut is_right) = (None, true);
        for fragment in &fragments {
            let frame = fragment.payload.to_vec();
            let sent = pulse_and_board(&frame)
                .filter(|&(_, board)| fragment.meta.source.0 == board as u32 + 1)
                .and_then(|(pulse, board)| Some((pulse, board, boards.get(board)?.journal.sent.get(&pulse)?)))
                .filter(|(_, _, sent)| sent.frame == frame);
            let Some((pulse, board, sent)) = sent else {
                let words = format!("event {event}: no board sent the content of {:?}", fragment.meta.source);
                return Err(Broken::new(Checker::Content, words));
            };
            let is_damaged = scenario.boards[board].mishaps.get(&pulse) == Some(&Mishap::Damage);
            let is_flagged = fragment.meta.flags.contains(FragmentFlags::CRC_ERROR);
            Broken::unless(is_damaged == is_flagged, Checker::Content, || {
                format!("event {event}: the frame of board {board} and pulse {pulse} is damaged: {is_damaged}")
            })?;
            is_right &= sent.is_right;
            let time = *time.get_or_insert(sent.time);
            Broken::unless(time == sent.time, Checker::Content, || {
                format!("event {event} is of the times {time} and {} (board {board}, pulse {pulse})", sent.time)
            })?;
            Broken::unless(self.taken.insert((board, pulse)), Checker::Keys, || {
                format!("event {event}: the frame of board {board} and pulse {pulse} is in another one, too")
            })?;
        }
        // A frame of no pulse may be believed for a moment; it is in an event of its own.
        if let Some(time) = time.filter(|_| is_right) {
            Broken::unless(time > self.last || scenario.may_begin_anew(), Checker::Order, || {
                format!("event {event} is of the time {time}, and the one before of {}", self.last)
            })?;
            self.last = time;
        }
        Ok(fragments.len() == boards.len())
    }

    /// Checks that nothing holds up the frames of steady boards.
    fn judge_pace(&self, now: Instant, scenario: &Scenario, boards: &[Board]) -> Result<(), Broken> {
        let longest = scenario.timeout * (2 + 2 * boards.len() as u32) + 20 * scenario.pace;
        let steady = boards.iter().enumerate().filter(|(board, _)| scenario.boards[*board].is_steady());
        for (board, one) in steady {
            let waits = |(pulse, sent): &(&u64, &Sent)| {
                now > sent.at.after(longest)
                    && !self.taken.contains(&(board, **pulse))
                    && !scenario.excuses(board, **pulse, sent)
            };
            if let Some((pulse, sent)) = one.journal.sent.iter().find(waits) {
                let words = format!(
                    "the frame of board {board} and pulse {pulse} has waited since {:?}, and it is {now:?}",
                    sent.at
                );
                return Err(Broken::new(Checker::Liveness, words));
            }
        }
        Ok(())
    }

    /// Checks what must hold of a board's frames in the end.
    fn judge(&self, scenario: &Scenario, board: usize, sent: &Board, account: &FragmentAccount) -> Result<(), Broken> {
        is_accounted_for(board, account)?;
        let taken = self.taken.iter().filter(|(whose, _)| *whose == board).count() as u64;
        let of = |cause| account.dropped.get(cause);
        let named = of(Cause::OutOfSync) + of(Cause::Late) + of(Cause::ForcedStop) + of(Cause::ImplausibleJump);
        let named = named + account.late + account.after_stop + account.corrupt;
        let (whole, halves) = (sent.journal.sent.len() as u64, sent.journal.halves);
        // After the end of the run nothing reads what is sent, and noise counts as a frame that waits.
        let noises = sent.journal.wrong.iter().filter(|wrong| wrong.mishap == Mishap::Noise).count() as u64;
        let is_all = |found: u64, sent: u64| found == sent || found <= sent + noises && scenario.ending != Ending::Last;
        Broken::unless(is_all(taken + named, whole), Checker::Ledger, || {
            format!("board {board}: of {whole} frames {taken} are in events, and {named} have a name: {account:?}")
        })?;
        Broken::unless(is_all(of(Cause::CutShort), halves), Checker::Ledger, || {
            format!("board {board}: {halves} frames were cut: {account:?}")
        })?;
        let in_events = account.in_complete_events + account.in_incomplete_events;
        Broken::unless(taken == in_events, Checker::Ledger, || {
            format!("board {board}: {taken} frames are in events that were settled: {account:?}")
        })?;
        let is_lost = |(pulse, one): &(&u64, &Sent)| {
            !self.taken.contains(&(board, **pulse))
                && !scenario.excuses(board, **pulse, one)
                && scenario.is_in_time(one.at)
        };
        if let Some((pulse, one)) = sent.journal.sent.iter().find(is_lost) {
            let words = format!(
                "the frame of board {board} and pulse {pulse}, sent at {:?}, is in no event: {account:?}",
                one.at
            );
            return Err(Broken::new(Checker::Loss, words));
        }
        let timed_out = account.missing.get(Cause::TimedOut);
        let is_heard = timed_out == 0 || !scenario.boards[board].is_steady() || scenario.set_back.is_some();
        Broken::unless(is_heard, Checker::TimeOut, || {
            format!("board {board} never paused, and is taken for absent {timed_out} times")
        })
    }
}

impl Scenario {
    /// How long it may take until a board is where the others are, after something that went wrong.
    fn rejoining(&self) -> Duration {
        self.timeout + 20 * self.pace
    }

    /// Whether a frame may be in no event, because its board was somewhere else or had just come back.
    fn excuses(&self, board: usize, pulse: u64, sent: &Sent) -> bool {
        let is_within = |from: u64, to: u64| {
            let begins = Instant::ZERO.after(self.pace * from as u32);
            pulse >= from
                && sent.at >= begins
                && sent.at <= Instant::ZERO.after(self.pace * to as u32).after(self.rejoining())
        };
        let is_mishap = |(&from, mishap): (&u64, &Mishap)| match *mishap {
            Mishap::Restart { pulses, .. } | Mishap::Silent { pulses } => is_within(from, from + pulses),
            Mishap::CutOff => is_within(from, from),
            Mishap::Jump | Mishap::Outliers { .. } | Mishap::Overtaken { .. } | Mishap::Damage | Mishap::Noise => false,
        };
        // A damaged frame says no time: where no other board shows its pulse it has no place.
        let is_damaged = self.boards[board].mishaps.get(&pulse) == Some(&Mishap::Damage);
        !sent.is_right
            || is_damaged
            || self.boards[board].mishaps.iter().any(is_mishap)
            || self.set_back.is_some_and(|back| is_within(back, back))
            || self.begins_twice(pulse)
    }

    /// Whether a pulse is one of a few before the clock of the only board began anew.
    fn begins_twice(&self, pulse: u64) -> bool {
        let [board] = &self.boards[..] else { return false };
        let mut anew = board.restarts().map(|(from, _)| from).chain(self.set_back);
        anew.any(|from| pulse < from && from <= BEGINNING)
    }

    /// Whether what was sent then is done with when the run ends.
    fn is_in_time(&self, at: Instant) -> bool {
        match self.ending {
            Ending::Last => true,
            Ending::Stop(pulse) | Ending::Force(pulse) => {
                let boards = self.boards.len() as u32;
                let slack = self.timeout * (2 + 2 * boards) + 20 * self.pace;
                at.after(slack) < Instant::ZERO.after(self.pace * pulse as u32)
            }
        }
    }
}

/// The least time between two saved recordings, as promised to users; [`MOST`] is their number.
const SPACING: Duration = Duration::from_secs(10);
const MOST: usize = 16;
/// Bytes of an arrival for which there is room, on average.
const USUAL_BYTES: usize = 256;

/// The keeper of one board's recordings.
struct Keeper {
    board: usize,
    line: RecordingLine,
    /// One that is being written, and until when.
    writing: Option<(Box<Recording>, Instant)>,
    /// How long that takes.
    saving: Duration,
    /// When something was wrong that was saved.
    saved: Vec<Instant>,
}

impl Keeper {
    const fn new(board: usize, line: RecordingLine, saving: Duration) -> Self {
        Self { board, line, writing: None, saving, saved: Vec::new() }
    }

    /// Takes what there is to be taken.
    fn turn(&mut self, now: Instant, setting: &BoardSetting, journal: &Journal) -> Result<(), Broken> {
        if let Some((recording, _)) = self.writing.take_if(|(_, until)| now >= *until) {
            self.line.give_back(recording);
        }
        if self.writing.is_none()
            && let Some(recording) = self.line.take_next()
        {
            self.look(&recording, setting, journal)?;
            self.writing = Some((recording, now.after(self.saving)));
        }
        Ok(())
    }

    /// A recording is a piece of what the board sent, from the begin of a frame on, and has what was wrong.
    fn look(&mut self, recording: &Recording, setting: &BoardSetting, journal: &Journal) -> Result<(), Broken> {
        let board = self.board;
        let Some((what, at)) = recording.incident() else {
            return Err(Broken::new(Checker::Content, format!("board {board}: nothing was wrong with what was saved")));
        };
        let since = self.saved.last().map(|&last| at.since(last));
        Broken::unless(since.is_none_or(|since| since >= SPACING) && self.saved.len() < MOST, Checker::Bounds, || {
            format!("board {board}: {what} is saved {since:?} after the one before, of {}", self.saved.len())
        })?;
        let is_first = self.saved.is_empty();
        self.saved.push(at);
        let bytes = recording.stream().concat();
        let oldest = recording.since().map(|since| at.since(since));
        let is_within = bytes.len() <= setting.max_bytes && oldest.is_none_or(|oldest| oldest <= setting.last);
        Broken::unless(is_within, Checker::Bounds, || {
            format!("board {board}: {} bytes, the first of them {oldest:?} old: {setting:?}", bytes.len())
        })?;
        let place =
            (!bytes.is_empty()).then(|| journal.bytes.windows(bytes.len()).position(|part| part == bytes)).flatten();
        let Some(begin) = place else {
            let words =
                format!("board {board}: {} bytes that were saved for {what} are none that it sent so", bytes.len());
            return Err(Broken::new(Checker::Content, words));
        };
        Broken::unless(journal.begins.contains(&begin), Checker::Content, || {
            format!("board {board}: what was saved for {what} begins with byte {begin}, in the midst of a frame")
        })?;
        // While other recordings are written, the wrong bytes may be gone before they can be handed over. This never
        // happens to the first recording.
        let end = begin + bytes.len();
        let is_there = journal.wrong.iter().any(|wrong| {
            let is_it = match wrong.mishap {
                Mishap::Damage => what == "crc_error",
                _ => what == "skipped_bytes" || what == "sync_lost",
            };
            // Noise is reported at its first bytes.
            is_it && begin <= wrong.begin && wrong.begin < end
        });
        Broken::unless(is_there || !is_first, Checker::Content, || {
            format!("board {board}: {what} is not among the bytes from {begin} to {end}, {:?}", journal.wrong)
        })?;
        // There is room for so many arrivals, of which a frame may be several.
        let is_little = journal.begins.len() < setting.max_bytes / (4 * USUAL_BYTES);
        let is_all_young = is_little && at.since(Instant::ZERO) < setting.last && end < setting.max_bytes;
        Broken::unless(begin == 0 || !is_first || !is_all_young, Checker::Loss, || {
            format!("board {board}: what was saved for {what} begins with byte {begin}, and there was room for all")
        })
    }

    /// In the end: something was wrong and was taken, and it was saved; or there was nothing.
    fn judge(&self, journal: &Journal) -> Result<(), Broken> {
        Broken::unless(self.saved.is_empty() == journal.wrong.is_empty(), Checker::Loss, || {
            format!("board {}: {} of {:?} are saved", self.board, self.saved.len(), journal.wrong)
        })
    }
}
