//! What a seed is: boards, the frames that they lose, where they pause or hang up, and when nothing is let go of.

use super::super::draw::Draw;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long the next frame of an event is waited for.
pub(super) const GATHER_TIMEOUT: Duration = Duration::from_millis(50);
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
    pub(super) const fn pause(self) -> Duration {
        match self {
            Self::Short => Duration::from_millis(10),
            Self::Long => LONG,
            Self::HangUp => Duration::ZERO,
        }
    }

    /// Whether an event may leave without what comes behind it.
    pub(super) fn may_end(self) -> bool {
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
    pub(super) fn is_stalled(&self, time: Duration) -> bool {
        self.stalls.iter().any(|&(since, how_long)| (since..since + how_long).contains(&time))
    }
}
