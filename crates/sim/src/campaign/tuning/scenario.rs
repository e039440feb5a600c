//! What a seed is: a host, and what is done to its settings by whom.

use super::super::draw::Draw;
use super::host::{Habit, Host};

/// Settings of the host. The first ones may move one another; a plan has all of these or none.
const SETTINGS: usize = 7;
/// See [`SETTINGS`].
const LINKED: usize = 4;
/// Plans and the host begin with values below this; what somebody else puts there is not below it.
const MOST: u64 = 6;

/// Somebody is killed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Kill {
    /// After so many actions.
    pub after: u64,
    /// Of the next one, where it is the journal's, so many lines are there.
    pub lines: u64,
}

/// A setting refuses to be written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Busy {
    /// Which.
    pub setting: usize,
    /// After it was written so often in this act.
    pub after: u64,
}

/// Something that is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Settings are changed.
    Apply {
        /// Which, in order, and to what.
        plan: Vec<(usize, u8)>,
        /// Whether it is killed.
        kill: Option<Kill>,
        /// What refuses.
        busy: Option<Busy>,
    },
    /// What was changed is taken back.
    Undo {
        /// Whether it is killed.
        kill: Option<Kill>,
        /// What refuses.
        busy: Option<Busy>,
    },
    /// Somebody else changes a setting.
    Foreign(usize, u8),
    /// The host is started again: everything is as it was without us, but for a setting that somebody has changed for good.
    Restart(Option<(usize, u8)>),
}

/// A host, and what is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scenario {
    /// Everything else follows from it.
    pub seed: u64,
    /// The host.
    pub host: Host,
    /// What is done, in order. In the end all is taken back.
    pub acts: Vec<Act>,
}

impl Scenario {
    /// The scenario of a seed. In every fourth nobody is killed and nothing refuses.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw::new(seed, 0x70e0);
        let is_quiet = seed.is_multiple_of(4);
        let (mut habits, mut values) = (Vec::new(), Vec::new());
        for index in 0..SETTINGS {
            let (habit, value) = draw_setting(&mut draw, index);
            habits.push(habit);
            values.push(value);
        }
        let acts = (0..draw.between(1, 9)).map(|_| draw_act(&mut draw, is_quiet)).collect();
        Self { seed, host: Host::new(habits, &values), acts }
    }
}

/// A setting, and a value that it takes.
fn draw_setting(draw: &mut Draw, index: usize) -> (Habit, u8) {
    let value = |draw: &mut Draw| draw.below(MOST) as u8;
    let first = value(draw);
    let refuses = draw.one_in(6).then(|| value(draw)).filter(|&refused| refused != first);
    let rounds = draw.one_in(6).then(|| (value(draw), value(draw))).filter(|(from, to)| *from != first && from != to);
    let other = |draw: &mut Draw| {
        let is_linked = index + 1 < LINKED && draw.one_in(3);
        is_linked.then(|| draw.between(index as u64 + 1, LINKED as u64 - 1) as usize)
    };
    (Habit { refuses, rounds, moves: other(draw), limits: other(draw) }, first)
}

fn draw_act(draw: &mut Draw, is_quiet: bool) -> Act {
    let kill = |draw: &mut Draw, most: u64| {
        let is_killed = !is_quiet && draw.one_in(2);
        is_killed.then(|| Kill { after: draw.below(most), lines: draw.below(9) })
    };
    let busy = |draw: &mut Draw| {
        let is_busy = !is_quiet && draw.one_in(4);
        is_busy.then(|| Busy { setting: draw.below(SETTINGS as u64) as usize, after: draw.below(3) })
    };
    // Values of somebody else, of a setting that no other one moves.
    let foreign = |draw: &mut Draw| {
        let index = draw.between(LINKED as u64, SETTINGS as u64 - 1);
        (index as usize, draw.between(MOST, 2 * MOST) as u8)
    };
    match draw.below(8) {
        0..=3 => Act::Apply { plan: draw_plan(draw), kill: kill(draw, 70), busy: busy(draw) },
        4 | 5 => Act::Undo { kill: kill(draw, 40), busy: busy(draw) },
        6 => {
            let (index, value) = foreign(draw);
            Act::Foreign(index, value)
        }
        _ => Act::Restart(draw.one_in(2).then(|| foreign(draw))),
    }
}

fn draw_plan(draw: &mut Draw) -> Vec<(usize, u8)> {
    let first = if draw.one_in(3) { LINKED } else { 0 };
    let mut rest: Vec<usize> = (first..SETTINGS).filter(|&index| index < LINKED || !draw.one_in(3)).collect();
    let mut plan = Vec::new();
    while !rest.is_empty() {
        let index = rest.swap_remove(draw.below(rest.len() as u64) as usize);
        plan.push((index, draw.below(MOST) as u8));
    }
    plan
}
