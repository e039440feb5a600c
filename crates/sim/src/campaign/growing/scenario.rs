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
        let is_harmless = |mishap: &Mishap| matches!(mishap, Mishap::Damage | Mishap::Noise);
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
        let boards = (0..draw.between(1, 4)).map(|_| Self::draw_board(&mut draw, is_quiet, pulses)).collect();
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
        Self { seed, boards, pulses, pace, timeout, set_back, window, ending, saving }
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
        }
    }

    /// What a clock that is right shows at a pulse.
    pub(super) fn time_of(&self, pulse: u64) -> u64 {
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
