//! Sources whose event numbers grow, but not by one, stand behind a [`Collator`], which numbers their events together.

use super::ReadoutConfig;
use super::collator::Collator;
use super::lane::LaneConfig;
use super::machine::Readout;
use super::sequence::Step;
use crate::messages::Received;
use core::time::Duration;
use ropewalk_terms::{Instant, Requirement};

/// Fragments of one source that wait for those of the others.
const MOST_WAITING: usize = 1024;

/// The sources whose events are numbered here.
#[derive(Debug)]
pub(super) struct Collating {
    collator: Collator,
    /// Their indices among all sources.
    sources: Vec<usize>,
    /// By source: its connection has ended, and what it said before is still here.
    leaving: Vec<bool>,
    /// What goes on into the tables; empty in between.
    numbered: Vec<Received>,
}

impl Collating {
    /// `None` if all sources number their events one by one.
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

    /// How long a source may have nothing before it is no longer waited for.
    pub(super) const fn set_timeout(&mut self, timeout: Duration) {
        self.collator.set_timeout(timeout);
    }

    /// All time-outs start again.
    pub(super) fn restart_clocks(&mut self, now: Instant) {
        self.collator.restart_clocks(now);
    }

    fn lane_of(&self, source: usize) -> Option<usize> {
        self.sources.iter().position(|&other| other == source)
    }

    /// Fragments of a source that are here.
    pub(super) fn held_of(&self, source: usize) -> u64 {
        self.lane_of(source).map_or(0, |lane| self.collator.held_of(lane) as u64)
    }

    /// How many more fragments of a source are taken; `None` if it is not numbered here.
    pub(super) fn room(&self, source: usize) -> Option<usize> {
        self.lane_of(source).map(|lane| self.collator.room(lane))
    }

    /// When there is something to do even if nothing comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.collator.next_deadline()
    }
}

impl Readout {
    /// Takes fragments of a source whose events are numbered here; false where they are not.
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

    /// Hands on what has a number by now, as far as there is room.
    pub(super) fn go_on_collating(&mut self, now: Instant) {
        let Some(mut collating) = self.collating.take() else { return };
        // What has just come is noted with the event that comes next.
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

    /// Takes note of what times did that they should not.
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

    /// A source that has shown a later event has no more fragments of earlier ones, even if the later one does not fit
    /// into the tables yet. Returns whether that settles any.
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

    /// The connection of a source has ended while its data still waits here; false if none waits.
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

    /// A source connects anew: what it said over the connection before may wait on, but that one is over.
    pub(super) fn leaves_now(&mut self, now: Instant, source: usize) {
        let leaving = |collating: &mut Collating| {
            collating.lane_of(source).is_some_and(|lane| core::mem::take(&mut collating.leaving[lane]))
        };
        if self.collating.as_mut().is_some_and(leaving) {
            self.disconnect(now, source);
        }
    }

    /// A masked source is no longer waited for, until it sends something, which then takes its turn.
    pub(super) fn stop_collating(&mut self, now: Instant, source: usize) {
        let Some(collating) = &mut self.collating else { return };
        let Some(lane) = collating.lane_of(source) else { return };
        collating.collator.leave(now, lane);
        self.go_on_collating(now);
    }

    /// The run is over: what has no number yet is in no event.
    pub(super) fn end_collating(&mut self) {
        let Some(collating) = &mut self.collating else { return };
        for (lane, &source) in collating.sources.iter().enumerate() {
            let held = collating.collator.clear(lane) as u64;
            self.sources[source].account.after_stop += held;
        }
    }
}
