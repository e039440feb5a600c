//! Builder units ask for super-fragments: each gets what is held, or the cause why not.

use super::machine::{Readout, ReadoutAction};
use super::requests::Ready;
use super::super_fragment::SuperFragment;
use super::table::State;
use super::timeline::{ORIGIN, Position};
use crate::messages::{Release, RequestEntry, SuperFragmentEntry};
use core::ops::Range;
use ropewalk_terms::flaws::{Flaw, is_planted};
use ropewalk_terms::{Cause, EventKey, Instant, Outcome, Requirement};

impl Readout {
    /// The next request that can be answered, the builder units taking turns.
    pub(super) fn next_answer(&mut self) -> Option<ReadoutAction> {
        let Self { requests, table, timeline, sources, .. } = self;
        let (head, stop_end) = (self.head, self.stop.as_ref().map_or(Position::MAX, |stop| stop.end));
        let judge = |entry: &RequestEntry| {
            // Who was masked is known also of events of which nothing else is.
            let of_nothing = || {
                let is_masked = sources.iter().any(|source| source.masking.has_covered(entry.key));
                Ready::Now(if is_masked {
                    Ok((SuperFragment::count_required(sources) as u16, 0))
                } else {
                    Err(Cause::NotHeld)
                })
            };
            let Some(position) = timeline.position(entry.key) else {
                let is_ahead = entry.key.resync() > timeline.resync();
                return if is_ahead { Ready::Later } else { of_nothing() };
            };
            match table.slot(position) {
                Some(slot) => match slot.state {
                    State::Settled | State::Empty(_) => Ready::Now(Ok((slot.fragments + slot.missing, slot.bytes))),
                    State::Released => Ready::Now(Err(Cause::Late)),
                    State::Open => Ready::Later,
                },
                // Everybody skipped so much at once that there was no room to note it.
                None if position < head => of_nothing(),
                None if position >= stop_end => Ready::Now(Err(Cause::NotHeld)),
                None => Ready::Later,
            }
        };
        let (builder, RequestEntry { key, slot, attempt }, answer) = requests.next(judge)?;
        let (fragments, bytes) = answer.unwrap_or_default();
        if let Some(position) = timeline.position(key) {
            table.note_answered(position);
        }
        let entry = SuperFragmentEntry { key, slot, attempt, fragments, bytes, not_held: answer.err() };
        Some(ReadoutAction::Answer { builder, entry })
    }

    /// What is held of a settled event; none where it is not settled, not held or released.
    pub fn super_fragment(&self, key: EventKey) -> Option<SuperFragment<'_>> {
        // A count may have ended here before others showed all of its events: these have no position.
        let is_over = key.resync() < self.timeline.resync();
        let position = self.timeline.position(key).or(is_over.then_some(ORIGIN - 1))?;
        let of_nothing = || SuperFragment::of_nothing(&self.table, &self.sources, key, position);
        SuperFragment::new(&self.table, &self.sources, key, position)
            .or_else(|| (position < self.head).then(of_nothing).flatten())
    }

    /// The event manager lets go of events; their fragments are counted by how the events ended.
    pub(super) fn release(&mut self, now: Instant, release: &Release) {
        let before = self.table.base();
        for entry in &release.entries {
            let positions = self.timeline.range(entry.first, entry.count);
            // Fragments that were sent to no builder unit are in no record.
            let is_answered = |position| self.table.slot(position).is_some_and(|slot| slot.answered);
            let outcome = match entry.outcome {
                Outcome::Dropped(Cause::OutcomeUnknown) if !positions.clone().any(is_answered) => {
                    Outcome::Dropped(Cause::Late)
                }
                outcome => outcome,
            };
            if let Outcome::Dropped(Cause::TooLarge | Cause::BuiltWithout | Cause::Late) = outcome {
                self.note_unrecorded(positions.clone());
            }
            let sources = &mut self.sources;
            self.table.release(positions, |source, count| {
                let account = &mut sources[source].account;
                match outcome {
                    Outcome::Complete => account.in_complete_events += count,
                    Outcome::IncompleteEmitted if is_planted(Flaw::ReleaseUncounted) => {}
                    Outcome::IncompleteEmitted => account.in_incomplete_events += count,
                    Outcome::Dropped(cause) => {
                        account.dropped.add(cause, count);
                        account.in_dropped_events += count;
                    }
                }
            });
        }
        let was_full = self.head >= self.table.limit();
        self.skip_released(now);
        self.table.close_gap(self.head);
        self.count_restarts_from_here(now, before);
        if was_full || !self.declared.is_empty() {
            self.advance(now);
        }
    }

    /// Notes gaps for fragments of these events that no record has: fragments that are held, and fragments still to come of events
    /// that were not settled.
    fn note_unrecorded(&mut self, positions: Range<Position>) {
        let Self { sources, table, timeline, head, .. } = self;
        for position in positions.start.max(table.base())..positions.end.min(table.limit()) {
            let is_settled = position < *head || table.is_released(position);
            for (index, source) in sources.iter_mut().enumerate() {
                let is_awaited = !is_settled && source.requirement == Requirement::Required;
                if is_awaited || table.has_fragment(index, position) {
                    source.gaps.note(position, timeline.key(position));
                }
            }
        }
    }
}
