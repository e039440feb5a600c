//! Which events are settled: everything before `head`, the oldest event that some source may still contribute to.
//!
//! Each source has a frontier, before which it delivered or will not deliver; `head` is the smallest of those that
//! events wait for. Only when every source has left `head` behind is the smallest looked for again, so that this
//! costs a constant time per fragment on average.

use super::machine::Readout;
use super::timeline::{NEVER, Position};
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, Instant};

impl Readout {
    /// A source has come further, or events have begun or ceased to wait for it.
    pub(super) fn moved(&mut self, now: Instant, source: usize) {
        self.note_frontier(source);
        self.advance(now);
    }

    /// Takes note of a source's frontier and of whether the event at `head` waits for it.
    pub(super) fn note_frontier(&mut self, source: usize) {
        let input = &mut self.sources[source];
        let frontier = input.current_frontier();
        self.behind -= usize::from(input.frontier <= self.head);
        self.behind += usize::from(frontier <= self.head);
        input.frontier = frontier;
    }

    /// Settles whatever nobody waits for any more.
    pub(super) fn advance(&mut self, now: Instant) {
        let before = self.head;
        while self.started && self.behind == 0 {
            let frontier = self.sources.iter().map(|source| source.frontier).min().unwrap_or(NEVER);
            self.announcing.follows = frontier == NEVER;
            let settled = if frontier == NEVER { self.opened() } else { frontier };
            let settled = settled.saturating_add(Position::from(is_planted(Flaw::SettledTooFar)));
            self.settle(settled.min(self.stop_end()));
            if frontier != NEVER || !self.begin_declared_segment(now) {
                break;
            }
        }
        self.announcing.follows &= self.behind == 0;
        self.table.close_gap(self.head);
        let moved = self.head != before;
        if moved {
            self.requests.look_again();
        }
        self.watch(now, moved);
    }

    /// Everything before `end` is settled.
    fn settle(&mut self, end: Position) {
        if end <= self.head {
            return;
        }
        let (sources, timeline) = (&mut self.sources, &self.timeline);
        // Asked once of each event for each source that has no fragment in it.
        self.table.settle(self.head..end, |source, position| {
            let cause = sources[source].missing_cause(position);
            if let Some(cause) = cause.filter(|&cause| cause != Cause::Masked) {
                sources[source].account.missing.add(cause, 1);
                sources[source].gaps.note(position, timeline.key(position));
            }
            cause
        });
        self.set_head(end);
    }

    /// Moves `head` and counts anew who it waits for.
    pub(super) fn set_head(&mut self, head: Position) {
        self.head = head;
        self.behind = self.sources.iter().filter(|source| source.frontier <= head).count();
    }

    /// Events at `head` that were released before they were settled need not be waited for.
    pub(super) fn skip_released(&mut self, now: Instant) {
        let mut head = self.head;
        while self.table.is_released(head) {
            head += 1;
        }
        if head > self.head {
            self.set_head(head);
            self.requests.look_again();
            self.advance(now);
            self.watch(now, true);
        }
    }

    /// Whether nothing more can come: every source has ended, has nothing that waits, and is not waited for.
    pub(super) fn is_exhausted(&self) -> bool {
        let any_required = self.has_needed_source();
        self.sources.iter().all(|source| source.is_done(any_required)) && self.head >= self.opened()
    }

    /// Whether a required source takes part.
    pub(super) fn has_needed_source(&self) -> bool {
        self.sources.iter().any(super::source::Source::is_needed)
    }
}
