//! Sources whose event numbers grow, but not by one, stand behind a [`Collator`], which numbers their events together.

use super::collator::Collator;
use super::config::{ReadoutConfig, Requirement};
use super::machine::Readout;
use crate::messages::Received;
use ropewalk_terms::Instant;

/// Fragments of one source that wait for those of the others.
const MOST_WAITING: usize = 1024;

/// The sources whose events are numbered here.
#[derive(Debug)]
pub(super) struct Collating {
    collator: Collator,
    /// Their indices among all sources.
    sources: Vec<usize>,
    /// By source: its connection has ended, in the middle of a fragment or not, and what it said before is still here.
    leaving: Vec<Option<bool>>,
    /// What goes on into the tables; empty in between.
    numbered: Vec<Received>,
}

impl Collating {
    /// None where all sources number their events one by one.
    pub(super) fn new(config: &ReadoutConfig) -> Option<Self> {
        let grows = |&index: &usize| config.sources[index].numbers_grow;
        let sources: Vec<usize> = (0..config.sources.len()).filter(grows).collect();
        if sources.is_empty() {
            return None;
        }
        let mut collator = Collator::new(sources.len(), MOST_WAITING, config.source_timeout);
        for (lane, &source) in sources.iter().enumerate() {
            if config.sources[source].requirement == Requirement::Masked {
                collator.leave(lane);
            }
        }
        let leaving = vec![None; sources.len()];
        Some(Self { collator, sources, leaving, numbered: Vec::with_capacity(1) })
    }

    fn lane_of(&self, source: usize) -> Option<usize> {
        self.sources.iter().position(|&other| other == source)
    }

    /// Fragments of a source that are here.
    pub(super) fn held_of(&self, source: usize) -> u64 {
        self.lane_of(source).map_or(0, |lane| self.collator.held_of(lane) as u64)
    }

    /// How many more of a source are taken; none where it is not numbered here.
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
        let Some(collating) = &mut self.collating else { return false };
        let Some(lane) = collating.lane_of(source) else { return false };
        collating.collator.push(lane, fragments);
        self.go_on_collating(now);
        true
    }

    /// Hands on what has a number by now, as far as there is room.
    pub(super) fn go_on_collating(&mut self, now: Instant) {
        let Some(mut collating) = self.collating.take() else { return };
        let Collating { collator, sources, leaving, numbered } = &mut collating;
        while let Some((lane, fragment)) = collator.next(now, |lane| self.room_for_numbered(sources[lane]) > 0) {
            numbered.push(fragment);
            self.receive_numbered(now, sources[lane], numbered);
            if collator.held_of(lane) == 0
                && let Some(mid_fragment) = leaving[lane].take()
            {
                self.disconnect(now, sources[lane], mid_fragment);
            }
        }
        self.collating = Some(collating);
    }

    /// The connection of a source has ended whose words are still waiting here; false where there are none.
    pub(super) fn leaves_later(&mut self, now: Instant, source: usize, mid_fragment: bool) -> bool {
        let Some(collating) = &mut self.collating else { return false };
        let Some(lane) = collating.lane_of(source) else { return false };
        if self.sources[source].ends_on_close() {
            collating.collator.leave(lane);
        }
        let stays = collating.collator.held_of(lane) > 0;
        if stays {
            collating.leaving[lane] = Some(mid_fragment);
        }
        self.go_on_collating(now);
        stays
    }

    /// The run is over: what has no number yet is in no event.
    pub(super) fn end_collating(&mut self) {
        let Some(collating) = &mut self.collating else { return };
        for (lane, &source) in collating.sources.iter().enumerate() {
            self.sources[source].account.after_stop += collating.collator.clear(lane) as u64;
        }
    }
}
