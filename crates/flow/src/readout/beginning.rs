//! With which number a source begins: left-overs of an earlier run may be in front of it, and the first events may be lost.
//!
//! ```text
//!   source 0  |                1 2 3 4      two sources begin with 1: the run does
//!   source 1  |  901 902 903   1 2 3 4      left-overs, which nothing else has come to
//!   source 2  |                  2 3 4      one fragment was lost
//! ```
//! Where the first number is not known, most sources decide. A source joins near the first event, or where the others are when its
//! fragments come. What follows its first numbers tells left-overs from lost events. A recording waits for the others, and may begin later.

use super::doubt::{NEAR, is_unreliable};
use super::machine::Readout;
use super::source::Source;
use super::timeline::{ORIGIN, Position};
use crate::messages::{NumberingKind, Received};
use core::cmp::Reverse;
use ropewalk_terms::Instant;

/// Members that show where a numbering begins.
const ENOUGH: u32 = 3;

/// How many fragments behind the held ones are searched for the run's first numbers.
pub(super) const LOOKED_AHEAD: usize = 64;

/// What a source's fragments show of where it begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    /// More fragments must be read, up to [`LOOKED_AHEAD`].
    Open,
    /// So many of the held ones, the first, are left-overs: the run's first numbers follow.
    LeftOvers(usize),
    /// At the run's first events, if the held numbers show that.
    Near,
    /// The source has a place, or is a recording that begins behind the run's first events.
    Anywhere,
}

/// Where the sources agree that the run's numbers begin.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Begin {
    /// Each at this number.
    At(u64),
    /// Each so far behind its usual first number.
    Off(u64),
}

impl Begin {
    /// The first number of a source that usually begins with `usual`.
    const fn number(self, usual: u64) -> u64 {
        match self {
            Self::At(number) => number,
            Self::Off(distance) => usual.wrapping_add(distance),
        }
    }
}

impl Readout {
    /// Whether a source that has no place in the run yet may begin with this event: far behind a number that was given for the first
    /// event are left-overs of an earlier run.
    pub(super) fn may_be_first(&self, source: usize, position: Position) -> bool {
        let input = &self.sources[source];
        let is_anywhere = input.begins_anywhere && self.opened() == ORIGIN;
        !input.has_joined && (is_anywhere || position < ORIGIN + NEAR)
    }

    /// Where a source begins. Left-overs are followed by the run's first number, or by numbers close to
    /// it. A source that lost its first events, or a recording that begins late, has none of them.
    pub(super) fn beginning(&self, source: usize, is_last_word: bool) -> Beginning {
        let input = &self.sources[source];
        if input.has_place() {
            return Beginning::Anywhere;
        }
        // Left-overs of a lone source are paired with nothing.
        if self.is_lone(source) {
            return Beginning::Near;
        }
        let (held, waiting) = (input.doubt.len(), input.waiting.len());
        let is_over = is_last_word || waiting >= LOOKED_AHEAD;
        let position = |one: &Received| {
            let position = input.sequence.position_ahead(one.meta.raw_id, self.head);
            position.filter(|_| !is_unreliable(one))
        };
        let is_near = |at: &Position| *at < ORIGIN + NEAR;
        let all = || input.doubt.held().chain(&input.waiting).map(position);
        if let Some(first) = all().position(|at| at == Some(ORIGIN)) {
            let ahead = || all().take(first).flatten().filter(is_near);
            let behind = || all().skip(first + 1).flatten();
            // A number that comes once more behind the first one belongs there. One that does not was overtaken.
            let comes_again = !input.may_repeat && ahead().any(|one| behind().any(|other| other == one));
            let is_passed = ahead().max() < behind().max();
            return match ahead().next() {
                None if first >= held => Beginning::LeftOvers(held),
                Some(_) if comes_again => Beginning::LeftOvers(first.min(held)),
                Some(_) if !is_passed && !is_over => Beginning::Open,
                _ => Beginning::Near,
            };
        }
        if !(input.doubt.is_full() || is_last_word) {
            return Beginning::Near;
        }
        let begins_near = all().take(held).flatten().any(|at| is_near(&at));
        if !begins_near && (!input.is_recorded || all().flatten().any(|at| self.may_be_first(source, at))) {
            return Beginning::Near;
        }
        match is_over {
            false => Beginning::Open,
            true if begins_near => Beginning::Near,
            true => Beginning::Anywhere,
        }
    }

    /// Gives up left-overs that are held in front of the run's first numbers.
    pub(super) fn drop_left_overs(&mut self, source: usize, is_last_word: bool) {
        while let Beginning::LeftOvers(count) = self.beginning(source, is_last_word) {
            for _ in 0..count {
                let left = self.sources[source].doubt.take_oldest();
                self.give_up(source, left);
            }
            if count == 0 {
                break;
            }
        }
    }

    /// Whether the run's first number may still follow this one, which is close to it.
    pub(super) fn may_be_left_over(&self, source: usize, position: Option<Position>) -> bool {
        let input = &self.sources[source];
        let is_open = !input.has_place() && !self.is_lone(source);
        is_open && !input.doubt.is_full() && position.is_some_and(|at| at < ORIGIN + NEAR)
    }

    /// Whether a source that has no place in the run yet may join it at this event: one of the first, one that another source shows as
    /// well, or one where others were about when its fragments came. What the run reaches later on may be a left-over of an earlier run.
    pub(super) fn may_join_at(&self, source: usize, position: Position) -> bool {
        let input = &self.sources[source];
        let is_now = || position < self.opened().min(input.opened_then.saturating_add(NEAR));
        self.may_be_first(source, position) || !input.is_recorded && is_now() || self.agrees(source, position)
    }

    /// Whether a source that has no place in the run yet shows one that the run comes to soon.
    pub(super) fn may_join_soon(&self, source: usize) -> bool {
        let input = &self.sources[source];
        let position = |one: &Received| input.sequence.position_ahead(one.meta.raw_id, self.head);
        let is_soon = |one: &Received| !is_unreliable(one) && position(one).is_some_and(|one| one < ORIGIN + NEAR);
        input.doubt.held().any(is_soon)
    }

    /// Whether the run's first number is not known yet, and this source helps to find it.
    pub(super) fn may_begin_anywhere(&self, source: usize) -> bool {
        let input = &self.sources[source];
        self.first_is_open && !input.trusts_numbers && !input.runs_free
    }

    /// Starts a free-running counter at the first number that the following ones confirm. Returns whether it has started.
    pub(super) fn begin_free(&mut self, source: usize, is_last_word: bool) -> bool {
        let key = self.timeline.key(ORIGIN);
        let input = &mut self.sources[source];
        let begun = input.doubt.beginning(&input.sequence);
        let is_shown = |length| length >= ENOUGH || is_last_word || input.doubt.is_full();
        let Some((raw, ..)) = begun.filter(|&(_, length, _)| is_shown(length)) else { return false };
        input.numbering.note(NumberingKind::Begin, key, input.sequence.first(), raw, 0);
        input.sequence.begin_at(raw);
        input.has_begun = true;
        true
    }

    /// At the start of a run counting may begin anywhere, where the sources agree: at the trigger source's first number, or
    /// the one that most sources show. They agree if they show the same number, or are as far from where each usually begins.
    /// Waits until all that are awaited have shown theirs, unless `is_last_word`.
    pub(super) fn agree_on_first(&mut self, now: Instant, is_last_word: bool) {
        let votes = || self.sources.iter().filter(|input| !input.runs_free);
        let is_short = |input: &Source| !input.doubt.is_full() && input.doubt.len() < ENOUGH as usize;
        if !is_last_word && votes().any(|input| !input.masking.is_open() && is_short(input)) {
            return;
        }
        // Each is read once: there may be hundreds.
        let begun: Vec<_> = votes().map(|input| (input, input.doubt.beginning(&input.sequence))).collect();
        // Those in front of its first right number may be of the events before.
        let is_begun = |input: &Source, begun: Option<(u64, u32, u64)>, begin: Begin| {
            let first = begin.number(input.sequence.first());
            begun.is_some_and(|(raw, _, before)| input.sequence.between(first, raw) <= before)
        };
        let mut best = None;
        for &(input, own) in &begun {
            let is_shown = own.is_some_and(|(_, length, _)| length >= ENOUGH) || input.doubt.is_full();
            if !is_last_word && !input.masking.is_open() && !is_shown {
                return;
            }
            let Some((raw, ..)) = own else { continue };
            for begin in [Begin::At(raw), Begin::Off(raw.wrapping_sub(input.sequence.first()))] {
                let agree = begun.iter().filter(|&&(other, begun)| is_begun(other, begun, begin)).count();
                // Of numbers that as many show the usual one is taken, then the lowest one.
                let vote = (input.triggers, agree, begin == Begin::Off(0), Reverse(raw), begin);
                best = best.max(Some(vote));
            }
        }
        let Some((.., begin)) = best else { return };
        self.begin_at(now, begin);
    }

    /// The run's first event has this number at all sources.
    fn begin_at(&mut self, now: Instant, begin: Begin) {
        self.first_is_open = false;
        let key = self.timeline.key(ORIGIN);
        for input in self.sources.iter_mut().filter(|input| !input.trusts_numbers && !input.runs_free) {
            let usual = input.sequence.first();
            let first = begin.number(usual);
            input.sequence.begin_at(first);
            input.begins_anywhere = false;
            let shows = |one: &Received| one.meta.raw_id == first && !is_unreliable(one);
            if first != usual && input.doubt.held().any(shows) {
                input.numbering.note(NumberingKind::Begin, key, usual, first, 0);
            }
        }
        // Sources that lost their first fragments are placed by what the others show.
        for source in (0..self.sources.len()).chain(0..self.sources.len()) {
            self.weigh(now, source, false);
            self.admit_believed(now, source);
        }
    }
}
