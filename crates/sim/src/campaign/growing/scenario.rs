//! What a seed is: boards, the pulses that they see, and what goes wrong with them at which pulse.

use super::super::content::mixed;
use super::super::draw::Draw;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a board does wrong, from some pulse on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// Its clock begins anew, until so many pulses later somebody sets it right.
    Restart {
        /// For so many pulses.
        pulses: u64,
        /// Over a new connection.
        reconnects: bool,
    },
    /// It says nothing for so many pulses, which it does not see.
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
    pub(super) fn restarts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.mishaps.iter().filter_map(|(&pulse, mishap)| match *mishap {
            Mishap::Restart { pulses, .. } => Some((pulse, pulse + pulses)),
            _ => None,
        })
    }

    /// Since which pulse its clock has been wrong, at a pulse.
    pub(super) fn astray_since(&self, pulse: u64) -> Option<u64> {
        self.restarts().filter(|&(from, to)| (from..to).contains(&pulse)).map(|(from, _)| from).last()
    }

    /// Whether it says nothing of a pulse.
    pub(super) fn is_silent(&self, pulse: u64) -> bool {
        self.mishaps.iter().any(
            |(&from, mishap)| matches!(*mishap, Mishap::Silent { pulses } if (from..from + pulses).contains(&pulse)),
        )
    }

    /// Whether nothing goes wrong with it that others would notice: its clock is right, and it never falls silent.
    pub(super) fn is_steady(&self) -> bool {
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
    /// How long whoever saves recordings keeps each of them.
    pub saving: Duration,
}

/// What clocks show before the first pulse: more than any of them reaches after it began anew.
const BEGIN: u64 = 1 << 40;
/// How far ahead a clock is that has jumped.
const JUMP: u64 = 1 << 50;
/// How far away times are that are wrong, in a field that wraps, too.
const APART: u64 = 1 << 36;
/// Frames that are of no pulse are numbered from here on.
const STRAYS: u64 = 1 << 20;
/// A time-out is so many times as long as a pulse at least.
const PAUSE: u32 = 24;
/// How many pulses it may take until nobody counts wrong any more.
const AFTERWARDS: u64 = 12;
/// Between two pulses lie so many ticks at least, and twice as many at most.
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
    pub(super) fn time_of(&self, pulse: u64) -> u64 {
        if self.bits < u64::BITS {
            return (1 << self.bits) + self.ticks(pulse) - self.ticks(self.pulses / 2);
        }
        let since = self.set_back.filter(|&back| pulse >= back).map_or(0, |back| self.ticks(back - 1));
        let begin = if since > 0 { 0 } else { BEGIN };
        begin + self.ticks(pulse) - since
    }

    /// What a board's clock shows at a pulse, and whether that is right. Setting all clocks back sets those right that were not.
    pub(super) fn time_at(&self, board: usize, pulse: u64) -> (u64, bool) {
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
    pub(super) fn strays(&self, board: usize, pulse: u64, is_first: bool) -> Vec<(u64, u64)> {
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
    pub(super) fn jump_stays(&self) -> u64 {
        (4 * self.timeout).as_nanos().div_ceil(self.pace.as_nanos()) as u64
    }

    fn ticks(&self, pulse: u64) -> u64 {
        pulse * TICKS * 2 - mixed(self.seed, pulse, 3) % TICKS
    }

    /// Whether a board sends a frame of a pulse. All that are not silent see the last one, so that nobody waits for who has nothing.
    pub(super) fn sees(&self, board: usize, pulse: u64) -> bool {
        let setting = &self.boards[board];
        let is_seen = mixed(self.seed, pulse, 100 + board as u64) % 8 < setting.sees || pulse == self.pulses;
        is_seen && !setting.is_silent(pulse)
    }

    /// Whether the numbers of all may begin anew: they are set back, or some have begun anew, and of the others that are there none
    /// counts right or has for a moment. Behind the last pulse nobody is there.
    pub(super) fn may_begin_anew(&self) -> bool {
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
