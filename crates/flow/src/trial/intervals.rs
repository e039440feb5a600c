//! How far apart frames are, as a histogram that needs no limits beforehand.

use ropewalk_wire::framing::Tick;
use std::collections::BTreeMap;

/// How often frames were so far apart.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    /// At least so many nanoseconds,
    pub from: u64,
    /// and less than so many.
    pub to: u64,
    /// How often.
    pub count: u64,
}

/// Differences of time between frames that follow each other, in steps of 1, 2, 5, 10.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intervals {
    last: Option<u64>,
    /// By the step's begin.
    counts: BTreeMap<u64, (u64, u64)>,
    /// How often the clock went backward.
    pub backward: u64,
}

impl Intervals {
    /// Takes the next time, of a clock of so many bits.
    pub(super) fn add(&mut self, ticks: u64, bits: u8, tick: Tick) {
        let mask = u64::MAX >> (64 - u32::from(bits.clamp(1, 64)));
        let Some(last) = self.last.replace(ticks) else { return };
        let ahead = ticks.wrapping_sub(last) & mask;
        if ahead > mask / 2 {
            self.backward += 1;
            return;
        }
        let nanoseconds = tick.nanoseconds_of(ahead);
        let (from, to) = step(nanoseconds);
        self.counts.entry(from).or_insert((to, 0)).1 += 1;
    }

    /// The steps in which there are any, in their order.
    pub fn counts(&self) -> impl Iterator<Item = Interval> {
        self.counts.iter().map(|(&from, &(to, count))| Interval { from, to, count })
    }
}

/// The step that a time is in.
fn step(nanoseconds: u64) -> (u64, u64) {
    if nanoseconds == 0 {
        return (0, 1);
    }
    let decade = 10_u64.pow(nanoseconds.ilog10());
    let ends = [1, 2, 5, 10].map(|factor| decade.saturating_mul(factor));
    let place = ends.iter().rposition(|end| *end <= nanoseconds).unwrap_or(0).min(2);
    (ends[place], ends[place + 1])
}
