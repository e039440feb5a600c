//! What a seed is: boards, how slow their splitters are, and at which frames these go wrong.

use super::super::draw::Draw;
use std::collections::BTreeMap;
use std::time::Duration;

/// Frames that a batch has at most.
pub(super) const MOST_FRAMES: usize = 8;

/// What a splitter does wrong at a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// Its process crashes, the first so many times.
    Crash(u8),
    /// Its process hangs, the first so many times.
    Hang(u8),
    /// It says what cannot be true, the first so many times.
    Lie(u8),
    /// It says that the frame cannot be divided, as it may.
    Malformed,
}

impl Mishap {
    /// How often it happens.
    pub(super) const fn times(self) -> u8 {
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

/// A board and its splitter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoardSetting {
    /// Events in a frame.
    pub packing: u64,
    /// Frames that it sends.
    pub frames: u64,
    /// How long its splitter takes over a frame, and until it is ready.
    pub each: Duration,
    /// See [`BoardSetting::each`].
    pub start: Duration,
    /// How many processes are started again within a minute.
    pub restarts: u32,
    /// By frame, what goes wrong.
    pub mishaps: BTreeMap<u64, Mishap>,
    /// Its process dies at these times, whatever it does.
    pub deaths: Vec<Duration>,
}

impl BoardSetting {
    /// The frames that are lost.
    pub(super) fn lost(&self) -> impl Iterator<Item = (u64, Mishap)> {
        self.mishaps.iter().map(|(&frame, &mishap)| (frame, mishap)).filter(|(_, mishap)| mishap.loses())
    }

    /// Whether what is lost follows from the mishaps alone: no process dies over a frame by chance, and none is missing.
    pub(super) fn is_exact(&self) -> bool {
        self.deaths.is_empty() && self.restarts > 100 && !self.mishaps.keys().any(|&frame| self.is_veiled(frame))
    }

    /// Whether the splitter lies about a frame so shortly before this one that both may be in a batch: nothing of what its
    /// process did since is believed then, and its end over this frame is not held against the frame.
    fn is_veiled(&self, frame: u64) -> bool {
        let before = self.mishaps.range(frame.saturating_sub(MOST_FRAMES as u64)..frame);
        before.into_iter().any(|(_, mishap)| matches!(mishap, Mishap::Lie(_)))
    }

    /// Whether an event's frame is lost.
    pub(super) fn loses(&self, event: u64) -> bool {
        self.lost().any(|(frame, _)| frame == (event - 1) / self.packing)
    }

    /// Events that it sends.
    pub(super) const fn events(&self) -> u64 {
        self.packing * self.frames
    }
}

/// A system and what goes wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// The seed of all chances.
    pub seed: u64,
    /// The boards, whose events are the same.
    pub boards: Vec<BoardSetting>,
    /// Event numbers that no source is read past the oldest incomplete one.
    pub window: u32,
}

impl Scenario {
    /// The scenario of a seed. In every fourth nothing goes wrong.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 50);
        let is_quiet = seed.is_multiple_of(4);
        let boards = (0..draw.between(1, 3)).map(|_| Self::draw_board(&mut draw, is_quiet)).collect();
        Self { seed, boards, window: draw.of(&[4, 16, 64]) }
    }

    fn draw_board(draw: &mut Draw, is_quiet: bool) -> BoardSetting {
        let packing = draw.of(&[1, 3, 7, 40]);
        let frames = draw.between(5, 120);
        let mishap = |draw: &mut Draw| {
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
