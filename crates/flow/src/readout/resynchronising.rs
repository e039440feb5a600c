//! Counters that start again: declared by the trigger source for all, or a source's own fault.
//!
//! ```text
//!   source 0   98  99 100 |  1   2   3      restarted: waits      declared: all go on as 1:1, 1:2, ...
//!   source 1   98  99                       still in the old count: it is waited for
//! ```
//! The new count begins here when every source that events wait for has started again. Who starts again without a
//! declaration, or does not after one, is out of sync after the time-out: what it sends is dropped until it takes
//! part in a later resynchronisation, or comes back over a new connection with an id that goes on. Back-pressure is not
//! absence: the time in which a source is not read does not count, nor that in which events are held that were there when
//! a source started again, since the trigger source's readout unit holds them too and may have no room to read it.

use super::machine::Readout;
use super::realign::Strayed;
use super::source::{Presence, Standing};
use super::timeline::{NEVER, Position};
use crate::messages::{NumberingKind, Received};
use core::time::Duration;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant};

/// How many declarations may wait for the sources to follow.
pub(super) const MOST_DECLARED: usize = 8;

impl Readout {
    /// The trigger source declared a new resync count, here or in another readout unit.
    pub(super) fn declare(&mut self, now: Instant, first: EventKey) {
        let newest = self.declared.back().map_or(self.timeline.resync(), |declared| declared.resync());
        if !self.started || first.resync() <= newest || self.declared.len() == MOST_DECLARED {
            return;
        }
        if self.declared.is_empty() {
            self.wait_for_followers(now);
        }
        self.declared.push_back(first);
        // It may be what a source in doubt had heard before.
        for source in 0..self.sources.len() {
            self.weigh(now, source, false);
            self.note_frontier(source);
        }
    }

    fn wait_for_followers(&mut self, now: Instant) {
        self.pending.begin(now);
        self.resync_deadline = now.after(self.resync_timeout);
    }

    /// A source began its numbering again with this fragment, which is given back if it must wait: the trigger
    /// source declares that for all, another one waits for the declaration, which may have come already.
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
        // The mark has served: when the new count has begun, the fragment simply is its first.
        fragment.restarts = false;
        Some(fragment)
    }

    /// Begins the new count that was declared, now that nobody is waited for in the old one. Says whether it did.
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

    /// A source takes part in the newest count, from its beginning on.
    pub(super) fn join(&mut self, source: usize) {
        let offset = self.timeline.key(self.timeline.start()).number().wrapping_sub(self.first_number);
        let input = &mut self.sources[source];
        input.sequence.restart(self.timeline.start() - 1, offset);
        input.resync = self.timeline.resync();
        input.standing = Standing::Following;
    }

    /// A fragment of a source whose numbering differs from the run's.
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

    /// A source that was out of sync has a new connection: it may go on where it was, or later.
    pub(super) fn compare_again(&mut self, now: Instant, source: usize) {
        let until = now.after(self.resync_timeout);
        let newest = self.timeline.resync();
        let input = &mut self.sources[source];
        if input.standing == Standing::OutOfSync {
            input.presence = Presence::GivenUp(Cause::OutOfSync);
            input.standing = if input.resync == newest { Standing::Following } else { Standing::Behind { until } };
        }
    }

    /// Sources that started again and waited too long for a declaration are out of sync. Where there is a
    /// declaration they wait for the others.
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

    /// Sources have the whole time-out again to follow a declaration, or to hear one.
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

    /// A source that went on with the run started its numbering again with this number, and nothing tells where it is.
    fn note_out_of_sync(&mut self, source: usize, raw: u64) {
        let key = self.timeline.key(self.sources[source].sequence.last() + 1);
        let input = &mut self.sources[source];
        if input.standing != Standing::OutOfSync {
            input.numbering.note(NumberingKind::OutOfSync, key, input.sequence.last_raw(), raw, 0);
        }
    }

    /// Events from `before` on were released: of sources that started again while the last of them was held
    /// the time counts from here on.
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

    /// Sources that are still awaited in the old count, long after the new one was declared, are out of sync.
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

    /// What waits from a source is worth nothing, for this cause.
    pub(super) fn drop_waiting(&mut self, source: usize, cause: Cause) {
        let input = &mut self.sources[source];
        input.strayed.skip(input.waiting.len() as u64);
        input.drop_waiting(cause);
        self.note_waiting(source);
    }
}
