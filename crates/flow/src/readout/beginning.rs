//! Finds the number at which a source begins. Left-overs of an earlier run may precede it, and the first events may be
//! lost.
//!
//! ```text
//!   source 0  |                1 2 3 4      two sources begin with 1: the run does
//!   source 1  |  901 902 903   1 2 3 4      left-overs, which nothing else has come to
//!   source 2  |                  2 3 4      one fragment was lost
//! ```
//! If the first number is not known, the majority of the sources decides. A source joins near the first event, or where
//! the other sources are when its fragments arrive. The numbers that follow its first ones distinguish left-overs from
//! lost events. A recording waits for the others, and may begin later. Counters of different widths are compared in the
//! bits that both have.

use super::doubt::{NEAR, is_unreliable};
use super::machine::Readout;
use super::reading::Strayed;
use super::source::{Presence, Source, Standing};
use super::table::{NEVER, ORIGIN, Position};
use crate::messages::{NumberingKind, Received};
use core::cmp::Reverse;
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant};

/// Number of members that prove where a numbering begins.
const ENOUGH: u32 = 3;

/// Number of fragments behind the held ones that are searched for the run's first numbers.
pub(super) const LOOKED_AHEAD: usize = 64;

/// Where a source begins, as far as its fragments show.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Beginning {
    /// More fragments must be read, up to [`LOOKED_AHEAD`].
    Open,
    /// The first this many held fragments are left-overs: the run's first numbers follow them.
    LeftOvers(usize),
    /// Near the run's first events, if the held numbers show that.
    Near,
    /// Anywhere: the source has joined the run, or is a recording that begins after the run's first events.
    Anywhere,
}

/// The beginning of the run's numbers that the sources agree on.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Begin {
    /// At this number, for each source.
    At(u64),
    /// At this offset behind each source's usual first number.
    Off(u64),
}

impl Begin {
    /// Returns the first number of a source that usually begins with `usual`.
    const fn number(self, usual: u64) -> u64 {
        match self {
            Self::At(number) => number,
            Self::Off(distance) => usual.wrapping_add(distance),
        }
    }
}

impl Readout {
    /// Whether a source that has not joined the run may begin with this event. Numbers far behind a given first number
    /// are left-overs of an earlier run.
    pub(super) fn may_be_first(&self, source: usize, position: Position) -> bool {
        let input = &self.sources[source];
        let is_anywhere = input.begins_anywhere && self.opened() == ORIGIN;
        !input.has_joined && (is_anywhere || position < ORIGIN + NEAR)
    }

    /// Returns where a source begins. Left-overs are followed by the run's first number, or by numbers close to it. A
    /// source that lost its first events, or a recording that begins late, has no such numbers.
    pub(super) fn beginning(&self, source: usize, is_last_word: bool) -> Beginning {
        let input = &self.sources[source];
        if input.has_place() {
            return Beginning::Anywhere;
        }
        // Left-overs of a lone source cannot be combined with fragments of other sources.
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
            // A number that is repeated behind the first one belongs there. A number that is not repeated was
            // overtaken.
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

    /// Gives up held left-overs in front of the run's first numbers.
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

    /// Whether the run's first number may still follow this number, which is close to it.
    pub(super) fn may_be_left_over(&self, source: usize, position: Option<Position>) -> bool {
        let input = &self.sources[source];
        let is_open = !input.has_place() && !self.is_lone(source);
        is_open && !input.doubt.is_full() && position.is_some_and(|at| at < ORIGIN + NEAR)
    }

    /// Whether a source that has not joined the run may join at this event: one of the first events, one that another
    /// source also shows, or one near the position of the others when the source's fragments arrived. An event that the
    /// run reaches only later may be a left-over of an earlier run.
    pub(super) fn may_join_at(&self, source: usize, position: Position) -> bool {
        let input = &self.sources[source];
        let is_now = || position < self.opened().min(input.opened_then.saturating_add(NEAR));
        self.may_be_first(source, position) || !input.is_recorded && is_now() || self.agrees(source, position)
    }

    /// Whether a source that has not joined the run shows an event that the run will reach soon.
    pub(super) fn may_join_soon(&self, source: usize) -> bool {
        let input = &self.sources[source];
        let position = |one: &Received| input.sequence.position_ahead(one.meta.raw_id, self.head);
        let is_soon = |one: &Received| !is_unreliable(one) && position(one).is_some_and(|one| one < ORIGIN + NEAR);
        input.doubt.held().any(is_soon)
    }

    /// Whether the run's first number is still unknown and this source helps to find it.
    pub(super) fn may_begin_anywhere(&self, source: usize) -> bool {
        let input = &self.sources[source];
        self.first_is_open && !input.trusts_numbers && !input.runs_free
    }

    /// Starts a free-running counter at the first number that the following ones confirm. Returns whether it has
    /// started.
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

    /// Agrees on the first number of a run in which counting may begin anywhere: the trigger source's first number, or
    /// the one that most sources show. Sources agree if they show the same number, or are equally far from their usual
    /// first numbers. Waits until all awaited sources have shown a number, unless `is_last_word`.
    pub(super) fn agree_on_first(&mut self, now: Instant, is_last_word: bool) {
        let votes = || self.sources.iter().filter(|input| !input.runs_free);
        let is_short = |input: &Source| !input.doubt.is_full() && input.doubt.len() < ENOUGH as usize;
        if !is_last_word && votes().any(|input| !input.masking.is_open() && is_short(input)) {
            return;
        }
        // Each source is evaluated once: there may be hundreds.
        let begun: Vec<_> = votes().map(|input| (input, input.doubt.beginning(&input.sequence))).collect();
        // Fragments in front of the first right number may belong to earlier events.
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
                // On a tie the usual number wins, then the lowest one.
                let bits = input.sequence.bits();
                let vote = (input.triggers, agree, begin == Begin::Off(0), Reverse(raw), begin, bits);
                best = best.max(Some(vote));
            }
        }
        let Some((.., begin, bits)) = best else { return };
        self.begin_at(now, begin, bits);
    }

    /// Sets the number of the run's first event at all sources, as shown by a counter of `bits` bits.
    fn begin_at(&mut self, now: Instant, begin: Begin, bits: u32) {
        self.first_is_open = false;
        let key = self.timeline.key(ORIGIN);
        for input in self.sources.iter_mut().filter(|input| !input.trusts_numbers && !input.runs_free) {
            let usual = input.sequence.first();
            let first = begin.number(usual);
            input.sequence.begin_at(first);
            input.begins_anywhere = false;
            input.first_bits = (first != usual && bits < input.sequence.bits()).then_some(bits);
            let shows = |one: &Received| one.meta.raw_id == first && !is_unreliable(one);
            if first != usual && input.doubt.held().any(shows) {
                input.numbering.note(NumberingKind::Begin, key, usual, first, 0);
            }
        }
        // Places sources that lost their first fragments by the numbers of the others.
        for source in (0..self.sources.len()).chain(0..self.sources.len()) {
            self.weigh(now, source, false);
            self.admit_believed(now, source);
        }
    }
}

/// A wide counter whose lower bits differ by more than this from the run's counts other triggers.
const NEAR_BY_LOWER_BITS: u64 = 256;

impl Readout {
    /// Completes the first number of a wider counter when a narrower one gave the run's first number: 5072 becomes 70608,
    /// with the same lower bits. The upper bits follow from the number that the wider counter shows, if that is near the
    /// run's position.
    pub(super) fn complete_first(&mut self, source: usize, is_last_word: bool) {
        let come = self.opened().saturating_sub(ORIGIN);
        let input = &mut self.sources[source];
        let Some(bits) = input.first_bits.filter(|_| !input.has_joined) else { return };
        let begun = input.doubt.beginning(&input.sequence);
        let is_shown = |length| length >= ENOUGH || is_last_word || input.doubt.is_full();
        let Some((raw, ..)) = begun.filter(|&(_, length, _)| is_shown(length)) else { return };
        let (turn, first) = (1 << bits, input.sequence.first());
        let now = first.saturating_add(come);
        let turns = raw.saturating_sub(now).saturating_add(turn / 2) / turn;
        let is_near = now.saturating_add(turns * turn).abs_diff(raw) <= NEAR_BY_LOWER_BITS.min(turn / 16);
        if turns > 0 && is_near {
            input.sequence.begin_at(first.wrapping_add(turns * turn));
            input.first_bits = None;
        }
    }
}

/// Most declarations that may wait for the sources to follow.
pub(super) const MOST_DECLARED: usize = 8;

/// Counters that restart: declared by the trigger source for all sources, or by a source's own fault.
///
/// ```text
///   source 0   98  99 100 |  1   2   3      restarted: waits      declared: all continue as 1:1, 1:2, ...
///   source 1   98  99                       still in the old count: it is awaited
/// ```
/// The new count begins here when every source that events wait for has restarted. A source that restarts without a
/// declaration, or does not restart after one, is out of sync after the time-out. Its data is dropped until it takes
/// part in a later resynchronisation, or reconnects with an id that continues the run. Back-pressure is not absence:
/// the time in which a source is not read does not count. Nor does the time in which events are held that were present
/// when a source restarted, since the trigger source's readout unit holds them too and may have no room to read the
/// declaration.
impl Readout {
    /// Handles the trigger source's declaration of a new resync count, made here or in another readout unit.
    pub(super) fn declare(&mut self, now: Instant, first: EventKey) {
        let newest = self.declared.back().map_or(self.timeline.resync(), |declared| declared.resync());
        if !self.started || first.resync() <= newest || self.declared.len() == MOST_DECLARED {
            return;
        }
        if self.declared.is_empty() {
            self.wait_for_followers(now);
        }
        self.declared.push_back(first);
        // A source in doubt may have followed this declaration already.
        for source in 0..self.sources.len() {
            self.weigh(now, source, false);
            self.note_frontier(source);
        }
    }

    fn wait_for_followers(&mut self, now: Instant) {
        self.pending.begin(now);
        self.resync_deadline = now.after(self.resync_timeout);
    }

    /// Handles a source that restarted its numbering with this fragment. Returns the fragment if it must wait. The
    /// trigger source's restart is a declaration for all sources. Any other source waits for the declaration, which may
    /// have come already.
    pub(super) fn restarted(&mut self, now: Instant, source: usize, mut fragment: Received) -> Option<Received> {
        self.sources[source].strayed = Strayed::default();
        if !self.resync_declared {
            self.note_out_of_sync(source, fragment.meta.raw_id);
            let input = &mut self.sources[source];
            input.strayed.note(&fragment.meta);
            input.standing = Standing::OutOfSync;
            input.account.dropped.add(Cause::OutOfSync, 1);
            return None;
        }
        self.sources[source].standing = Standing::Restarted { since: now, held: self.table.end() };
        if self.is_stopping_in_this_count() {
            self.sources[source].account.after_stop += 1;
            return None;
        }
        if self.sources[source].triggers && self.declared.is_empty() {
            let number = self.first_number.wrapping_add(self.sources[source].sequence.offset(fragment.meta.raw_id));
            self.declare(now, EventKey::new(self.timeline.resync().wrapping_add(1), number));
        }
        if self.declared.is_empty() {
            self.restart_check = self.restart_check.min(now.after(self.resync_timeout));
        }
        // The mark is no longer needed: once the new count has begun, the fragment is simply its first.
        fragment.restarts = false;
        Some(fragment)
    }

    /// Begins the declared count once no source is awaited in the old one. Returns whether it began.
    pub(super) fn begin_declared_segment(&mut self, now: Instant) -> bool {
        if self.declared.is_empty() || !self.timeline.has_room(self.table.base()) {
            return false;
        }
        let Some(first) = self.declared.pop_front() else { return false };
        let start = self.head.max(self.table.end()).max(self.opened());
        self.timeline.begin_segment(start, first);
        self.place_shown_elsewhere();
        if self.declared.is_empty() {
            self.resync_deadline = Instant::FAR_FUTURE;
        } else {
            self.wait_for_followers(now);
        }
        if let Some(stop) = &mut self.stop {
            stop.end = self.timeline.end_of(stop.last).unwrap_or(NEVER);
        }
        let until = now.after(self.resync_timeout);
        for source in 0..self.sources.len() {
            match self.sources[source].standing {
                Standing::Restarted { .. } if is_planted(Flaw::FollowerForgotten) => {}
                Standing::Restarted { .. } => self.join(source),
                Standing::Following => self.sources[source].standing = Standing::Behind { until },
                Standing::Behind { .. } | Standing::OutOfSync => {}
            }
            let input = &mut self.sources[source];
            input.frontier = input.current_frontier();
        }
        self.set_head(start);
        true
    }

    /// Lets a source take part in the newest count from its beginning.
    pub(super) fn join(&mut self, source: usize) {
        let offset = self.timeline.key(self.timeline.start()).number().wrapping_sub(self.first_number);
        let input = &mut self.sources[source];
        input.sequence.restart(self.timeline.start() - 1, offset);
        input.resync = self.timeline.resync();
        input.standing = Standing::Following;
    }

    /// Handles a fragment of a source whose numbering differs from the run's.
    pub(super) fn judge_strayed(&mut self, now: Instant, source: usize, mut fragment: Received) -> Option<Received> {
        let raw = fragment.meta.raw_id;
        let stops = self.is_stopping_in_this_count();
        let input = &mut self.sources[source];
        let is_first = input.sequence.is_first(raw, fragment.restarts);
        match input.standing {
            Standing::Restarted { .. } if stops => input.account.after_stop += 1,
            Standing::Restarted { .. } => return Some(fragment),
            Standing::Behind { .. } if is_first || input.fresh && input.sequence.is_behind(raw) => {
                fragment.restarts = false;
                self.join(source);
                return self.judge(now, source, fragment);
            }
            Standing::Behind { until } if now < until => input.account.late += 1,
            _ if is_first => return self.restarted(now, source, fragment),
            _ => {
                input.standing = Standing::OutOfSync;
                if self.finds_back(source, &fragment.meta) {
                    return self.judge(now, source, fragment);
                }
                self.sources[source].account.dropped.add(Cause::OutOfSync, 1);
            }
        }
        None
    }

    /// Handles the new connection of a source that was out of sync: it may continue where it was, or later.
    pub(super) fn compare_again(&mut self, now: Instant, source: usize) {
        let until = now.after(self.resync_timeout);
        let newest = self.timeline.resync();
        let input = &mut self.sources[source];
        if input.standing == Standing::OutOfSync {
            input.presence = Presence::GivenUp(Cause::OutOfSync);
            input.standing = if input.resync == newest { Standing::Following } else { Standing::Behind { until } };
        }
    }

    /// Sets sources out of sync that restarted and waited too long for a declaration. After a declaration they wait for
    /// the other sources.
    pub(super) fn give_up_restarted_sources(&mut self, now: Instant) {
        self.restart_check = Instant::FAR_FUTURE;
        if !self.declared.is_empty() {
            return;
        }
        for source in 0..self.sources.len() {
            let Standing::Restarted { since, held } = self.sources[source].standing else { continue };
            let is_held_up = self.table.base() < held;
            if is_held_up {
                self.sources[source].standing = Standing::Restarted { since: now, held };
            }
            let deadline = if is_held_up { now } else { since }.after(self.resync_timeout);
            if now < deadline {
                self.restart_check = self.restart_check.min(deadline);
            } else {
                let input = &self.sources[source];
                let first = input.waiting.front().map_or(input.sequence.first(), |one| one.meta.raw_id);
                self.note_out_of_sync(source, first);
                self.sources[source].standing = Standing::OutOfSync;
                self.drop_waiting(source, Cause::OutOfSync);
            }
        }
    }

    /// Restarts the time-outs for sources to follow a declaration or to receive one.
    pub(super) fn restart_resync_clocks(&mut self, now: Instant) {
        let end = now.after(self.resync_timeout);
        for input in &mut self.sources {
            match &mut input.standing {
                Standing::Restarted { since, .. } => *since = now,
                Standing::Behind { until } => *until = end,
                Standing::Following | Standing::OutOfSync => {}
            }
        }
        if !self.declared.is_empty() {
            self.wait_for_followers(now);
        }
        if self.restart_check < Instant::FAR_FUTURE {
            self.restart_check = end;
        }
    }

    /// Notes that a following source restarted its numbering at `raw`, and nothing shows its position.
    fn note_out_of_sync(&mut self, source: usize, raw: u64) {
        let key = self.timeline.key(self.sources[source].sequence.last() + 1);
        let input = &mut self.sources[source];
        if input.standing != Standing::OutOfSync {
            input.numbering.note(NumberingKind::OutOfSync, key, input.sequence.last_raw(), raw, 0);
        }
    }

    /// Restarts the clocks of sources whose last event that was held when they restarted is among those released since
    /// `before`.
    pub(super) fn count_restarts_from_here(&mut self, now: Instant, before: Position) {
        if self.restart_check == Instant::FAR_FUTURE {
            return;
        }
        let base = self.table.base();
        for input in &mut self.sources {
            if let Standing::Restarted { since, held } = &mut input.standing
                && *held > before
                && *held <= base
            {
                *since = now;
            }
        }
    }

    /// Sets sources out of sync that are still awaited in the old count long after the declaration of the new one.
    pub(super) fn leave_behind(&mut self, now: Instant) {
        self.resync_deadline = Instant::FAR_FUTURE;
        for source in 0..self.sources.len() {
            if self.sources[source].frontier == NEVER {
                continue;
            }
            let waited = self.sources[source].resync_clock.shows(now, &self.pending);
            let left = self.resync_timeout.saturating_sub(waited);
            if left > Duration::ZERO {
                self.resync_deadline = self.resync_deadline.min(now.after(left));
            } else {
                self.sources[source].standing = Standing::OutOfSync;
                self.drop_waiting(source, Cause::OutOfSync);
                self.note_frontier(source);
            }
        }
        self.advance(now);
    }

    /// Whether the run ends before the next resync count.
    pub(super) fn is_stopping_in_this_count(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.last.resync() <= self.timeline.resync())
    }

    /// Drops the waiting fragments of a source, counted under `cause`.
    pub(super) fn drop_waiting(&mut self, source: usize, cause: Cause) {
        let input = &mut self.sources[source];
        input.strayed.skip(input.waiting.len() as u64);
        input.drop_waiting(cause);
        self.note_waiting(source);
    }
}
