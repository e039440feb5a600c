//! The run's edges: its first event, its last one, and the end by force.

use super::machine::Readout;
use super::report::ReportCursor;
use super::timeline::{NEVER, ORIGIN, Position, Timeline};
use crate::messages::{BATCH, Batch, Finished, Message, Report, ReportEntry, Start};
use ropewalk_terms::{Cause, EventKey, Instant};

/// The run's end, as the event manager set it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Stop {
    /// The run's last event.
    pub(super) last: EventKey,
    /// One past its position; [`NEVER`] while its resync count has not begun here.
    pub(super) end: Position,
    /// Some source had shown it, or a later one, when the end was set.
    pub(super) is_shown: bool,
    /// That everything up to `last` is settled was announced.
    pub(super) announced: bool,
}

impl Readout {
    /// The run begins. A second start is the same one, sent again.
    pub(super) fn start(&mut self, now: Instant, start: &Start) {
        if self.started {
            return;
        }
        let Start { first, origin } = *start;
        self.started = true;
        self.timeline = Timeline::new(first);
        self.first_number = origin.number();
        // Who begins again in mid-run finds counters that say nothing of where they began.
        self.first_is_open &= first == origin;
        self.begin_masked(origin);
        for source in 0..self.sources.len() {
            // Who starts again in mid-run finds the counters where they are by now.
            let input = &mut self.sources[source];
            input.sequence.restart(ORIGIN - 1, first.number().wrapping_sub(origin.number()));
            input.resync = first.resync();
            input.resumes = first != origin;
            self.note_frontier(source);
            if !self.sources[source].connected {
                self.run_clock(now, source, false);
            }
        }
        self.advance(now);
    }

    /// The run ends with this event: what lies behind it is not wanted, and what is missing up to it is waited for, with
    /// the usual time-out as soon as a source has shown it. What none shows is the event manager's matter, who hears of
    /// it from the others. A run that is stopped before its known end ends earlier; nothing makes it end later.
    pub(super) fn stop_at(&mut self, now: Instant, last: EventKey) {
        if !self.started {
            return;
        }
        if let Some(stop) = self.stop.as_mut().filter(|stop| stop.last <= last) {
            stop.announced = false;
            return;
        }
        let end = self.timeline.end_of(last).unwrap_or(NEVER);
        let is_shown = self.highest() >= last;
        self.stop = Some(Stop { last, end, is_shown, announced: false });
        for source in 0..self.sources.len() {
            self.sources[source].account.after_stop += self.table.withdraw(source, end..NEVER);
            if self.sources[source].is_restarted() && self.is_stopping_in_this_count() {
                self.drop_waiting(source, Cause::AfterStop);
            }
        }
        self.admit_waiting(now);
        self.advance(now);
    }

    /// Whether the run's end was announced and everything up to it is released.
    pub fn is_drained(&self) -> bool {
        let Some(stop) = &self.stop else { return false };
        stop.announced && self.table.base() >= stop.end
    }

    /// No event is needed any more: whatever is still held is dropped, and the farewell begins.
    pub(super) fn finish(&mut self) {
        self.end_collating();
        let mut in_flight = 0;
        for source in 0..self.sources.len() {
            // A builder unit may have written what it was sent: the release was lost with the event manager.
            let sent = self.table.answered_of(source);
            let withdrawn = self.table.withdraw(source, 0..NEVER);
            let input = &self.sources[source];
            in_flight += withdrawn + (input.waiting.len() + input.doubt.len()) as u64;
            self.drop_waiting(source, Cause::ForcedStop);
            let dropped = &mut self.sources[source].account.dropped;
            dropped.add(Cause::OutcomeUnknown, sent);
            dropped.add(Cause::ForcedStop, withdrawn - sent);
        }
        self.finished = true;
        self.farewell = Some(ReportCursor { sent: 0, in_flight });
    }

    /// What is said after the end: the last report, then how much was still held.
    pub(super) fn next_farewell(&mut self, now: Instant) -> Option<Message> {
        let cursor = self.farewell?;
        let mut left = self.report(now).chain(self.histograms()).skip(cursor.sent);
        let entries: Batch<ReportEntry> = left.by_ref().take(BATCH).collect();
        let last = left.next().is_none();
        drop(left);
        if entries.is_empty() {
            self.farewell = None;
            return Some(Message::Finished(Finished { in_flight: cursor.in_flight }));
        }
        self.farewell = Some(ReportCursor { sent: cursor.sent + entries.len(), ..cursor });
        Some(Message::Report(Report { entries, last }))
    }
}
