//! What the builder unit knows about one readout unit.

use ropewalk_terms::{Instant, SourceId};
use std::collections::VecDeque;

/// One readout unit.
#[derive(Debug, Default)]
pub(super) struct ReadoutPeer {
    /// The event manager says that it takes part.
    pub(super) present: bool,
    /// Its data connection is open.
    pub(super) connected: bool,
    /// Slots to be requested from it, in order.
    pub(super) to_request: VecDeque<u32>,
    /// Slots that wait for it.
    pub(super) awaited: u32,
    /// When to look whether it has been silent for too long, while something is awaited.
    pub(super) deadline: Option<Instant>,
    /// When it answered last.
    pub(super) last_answer: Instant,
    /// The latest assignment that it answered: it answers in order, so what was assigned long before was skipped.
    pub(super) answered_since: Instant,
    /// The places of its sources that are not masked, in the configured order, with their ids.
    places: Vec<(SourceId, u32)>,
    /// The same, by id.
    by_id: Vec<(SourceId, u32)>,
}

impl ReadoutPeer {
    /// A readout unit whose sources have these places; `slots` may wait for it at once.
    pub(super) fn new(places: Vec<(SourceId, u32)>, slots: usize) -> Self {
        let mut by_id = places.clone();
        by_id.sort_unstable();
        Self { present: true, to_request: VecDeque::with_capacity(slots), places, by_id, ..Self::default() }
    }

    /// Its places, in the configured order.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|&(_, place)| place as usize)
    }

    /// How many of its sources take part.
    pub(super) const fn sources(&self) -> usize {
        self.places.len()
    }

    /// The place of a source of its. `hint` is where the last one was found: answers come in order.
    pub(super) fn place_of(&self, source: SourceId, hint: &mut usize) -> Option<usize> {
        if let Some(&(expected, place)) = self.places.get(*hint)
            && expected == source
        {
            *hint += 1;
            return Some(place as usize);
        }
        let found = self.by_id.binary_search_by_key(&source, |&(id, _)| id).ok()?;
        Some(self.by_id[found].1 as usize)
    }

    /// Something more is awaited from it.
    pub(super) const fn awaits(&mut self, deadline: Instant) {
        if self.awaited == 0 {
            self.deadline = Some(deadline);
        }
        self.awaited += 1;
    }

    /// Something less is awaited from it.
    pub(super) const fn awaits_no_more(&mut self) {
        self.awaited -= 1;
        if self.awaited == 0 {
            self.deadline = None;
        }
    }
}
