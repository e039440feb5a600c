//! Sources whose event numbers grow, but not by one, are placed behind a [`Collator`], which numbers their events
//! together.

use super::ReadoutConfig;
use super::collator::Collator;
use super::lane::LaneConfig;
use super::machine::Readout;
use super::sequence::Step;
use crate::messages::Received;
use core::time::Duration;
use ropewalk_terms::{Instant, Requirement};

/// The most fragments of one source that wait for those of the others.
const MOST_WAITING: usize = 1024;

/// The sources whose events are numbered here.
#[derive(Debug)]
pub(super) struct Collating {
    collator: Collator,
    /// Indices of these sources among all sources.
    sources: Vec<usize>,
    /// For each source: whether its connection has ended while its earlier fragments are still here.
    leaving: Vec<bool>,
    /// Fragments on their way into the tables; empty in between.
    numbered: Vec<Received>,
}

impl Collating {
    /// Returns `None` if all sources number their events one by one.
    pub(super) fn new(config: &ReadoutConfig) -> Option<Self> {
        let grows = |&index: &usize| config.sources[index].numbers_grow;
        let sources: Vec<usize> = (0..config.sources.len()).filter(grows).collect();
        if sources.is_empty() {
            return None;
        }
        let lanes = sources.iter().map(|&source| {
            let one = &config.sources[source];
            LaneConfig { bits: one.counter_bits, reorder: one.reorder, reorder_timeout: one.reorder_timeout }
        });
        let mut collator = Collator::new(lanes, MOST_WAITING, config.source_timeout);
        for (lane, &source) in sources.iter().enumerate() {
            if config.sources[source].requirement == Requirement::Masked {
                collator.leave(Instant::ZERO, lane);
            }
        }
        let leaving = vec![false; sources.len()];
        Some(Self { collator, sources, leaving, numbered: Vec::with_capacity(1) })
    }

    /// Sets how long a source may show nothing before it is no longer waited for.
    pub(super) const fn set_timeout(&mut self, timeout: Duration) {
        self.collator.set_timeout(timeout);
    }

    /// Restarts all time-outs.
    pub(super) fn restart_clocks(&mut self, now: Instant) {
        self.collator.restart_clocks(now);
    }

    fn lane_of(&self, source: usize) -> Option<usize> {
        self.sources.iter().position(|&other| other == source)
    }

    /// Returns the number of a source's fragments held here.
    pub(super) fn held_of(&self, source: usize) -> u64 {
        self.lane_of(source).map_or(0, |lane| self.collator.held_of(lane) as u64)
    }

    /// Returns how many more fragments of a source are accepted; `None` if its events are not numbered here.
    pub(super) fn room(&self, source: usize) -> Option<usize> {
        self.lane_of(source).map(|lane| self.collator.room(lane))
    }

    /// Returns when there is something to do even without input.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.collator.next_deadline()
    }
}

impl Readout {
    /// Takes fragments of a source if its events are numbered here. Returns whether they are.
    pub(super) fn collate(&mut self, now: Instant, source: usize, fragments: &mut Vec<Received>) -> bool {
        if self.collating.is_some() {
            self.restart_clocks_if_stopped(now);
        }
        let Some(collating) = &mut self.collating else { return false };
        let Some(lane) = collating.lane_of(source) else { return false };
        collating.collator.push(now, lane, fragments);
        self.go_on_collating(now);
        true
    }

    /// Passes on fragments that have a number by now, as far as there is room.
    pub(super) fn go_on_collating(&mut self, now: Instant) {
        let Some(mut collating) = self.collating.take() else { return };
        // Anomalies that were just found are noted with the next event.
        self.note_times(&mut collating);
        loop {
            let Collating { collator, sources, leaving, numbered } = &mut collating;
            while let Some((lane, fragment)) = collator.next(now, |lane| self.room_for_numbered(sources[lane]) > 0) {
                numbered.push(fragment);
                self.receive_numbered(now, sources[lane], numbered);
                if collator.held_of(lane) == 0 && core::mem::take(&mut leaving[lane]) {
                    self.disconnect(now, sources[lane]);
                }
            }
            self.note_times(&mut collating);
            // The source whose turn it is may have no room until it is known which sources have nothing of the oldest
            // events.
            if !self.pass_by(now, &mut collating) {
                break;
            }
        }
        self.collating = Some(collating);
    }

    /// Notes the anomalies of times.
    fn note_times(&mut self, collating: &mut Collating) {
        for (lane, &source) in collating.sources.iter().enumerate() {
            let input = &mut self.sources[source];
            let key = self.timeline.key(input.sequence.last() + 1);
            let numbering = &mut input.numbering;
            let disordered =
                collating.collator.take_notes(lane, |kind, from, to| numbering.note(kind, key, from, to, 1));
            input.statistics.times_out_of_order = disordered;
        }
    }

    /// Passes the events of which a source has no more fragments because it has shown a later one, even if the later
    /// one does not fit into the tables yet. Returns whether that settles any event.
    fn pass_by(&mut self, now: Instant, collating: &mut Collating) -> bool {
        let before = self.head;
        for (lane, &source) in collating.sources.iter().enumerate() {
            let Some(passed) = collating.collator.passed_by(now, lane) else { continue };
            let input = &mut self.sources[source];
            if input.is_going_on()
                && let Step::Forward(position) = input.sequence.step(passed, false, self.head)
            {
                input.sequence.advance(position, passed);
                self.moved(now, source);
            }
        }
        self.head > before
    }

    /// Notes the end of a source's connection while its data still waits here. Returns false if none waits.
    pub(super) fn leaves_later(&mut self, now: Instant, source: usize) -> bool {
        let Some(collating) = &mut self.collating else { return false };
        let Some(lane) = collating.lane_of(source) else { return false };
        if self.sources[source].ends_on_close() {
            collating.collator.leave(now, lane);
        }
        let stays = collating.collator.held_of(lane) > 0;
        collating.leaving[lane] = stays;
        self.go_on_collating(now);
        stays
    }

    /// Ends a source's previous connection when it reconnects. Its earlier data may continue to wait.
    pub(super) fn leaves_now(&mut self, now: Instant, source: usize) {
        let leaving = |collating: &mut Collating| {
            collating.lane_of(source).is_some_and(|lane| core::mem::take(&mut collating.leaving[lane]))
        };
        if self.collating.as_mut().is_some_and(leaving) {
            self.disconnect(now, source);
        }
    }

    /// Stops waiting for a masked source until it sends something, which then takes its turn.
    pub(super) fn stop_collating(&mut self, now: Instant, source: usize) {
        let Some(collating) = &mut self.collating else { return };
        let Some(lane) = collating.lane_of(source) else { return };
        collating.collator.leave(now, lane);
        self.go_on_collating(now);
    }

    /// Drops all fragments without a number at the end of the run: they are in no event.
    pub(super) fn end_collating(&mut self) {
        let Some(collating) = &mut self.collating else { return };
        for (lane, &source) in collating.sources.iter().enumerate() {
            let held = collating.collator.clear(lane) as u64;
            self.sources[source].account.after_stop += held;
        }
    }
}
