//! What was acknowledged lately, and where a key is: so that an event that is assigned again is not built again.

use crate::messages::UnreleasedEntry;
use ropewalk_terms::{Attempt, Ending, EventKey};

/// The last acknowledgements. A new event manager is told of them, for it cannot know what its predecessor released:
/// what was done since the readout units were told of it, and what was in work. Readout units are told of events in
/// the order of keys, so that behind one that has not ended a whole table may have, all of it here.
#[derive(Debug)]
pub(super) struct Recent {
    entries: Vec<UnreleasedEntry>,
    /// For each entry one bit for each readout unit: the event was built without it.
    lacking: Box<[u64]>,
    words: usize,
    capacity: usize,
    next: usize,
}

impl Recent {
    /// Keeps the last `capacity` acknowledgements of events from so many readout units.
    pub(super) fn new(capacity: usize, readouts: u16) -> Self {
        let words = usize::from(readouts).div_ceil(64);
        let lacking = vec![0; capacity * words].into_boxed_slice();
        Self { entries: Vec::with_capacity(capacity), lacking, words, capacity, next: 0 }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.next = 0;
    }

    /// Replaces the oldest acknowledgement by this one, and returns its place. `lacking` has one bit per readout unit, set if the
    /// event was built without it.
    pub(super) fn note(&mut self, key: EventKey, attempt: Attempt, ending: Ending, lacking: Option<&[u64]>) -> usize {
        let entry = UnreleasedEntry { key, attempt, ending: Some(ending) };
        let place = self.next;
        self.next = (self.next + 1) % self.capacity;
        match self.entries.get_mut(place) {
            Some(oldest) => *oldest = entry,
            None => self.entries.push(entry),
        }
        let words = &mut self.lacking[place * self.words..][..self.words];
        match lacking {
            Some(lacking) => words.copy_from_slice(lacking),
            None => words.fill(0),
        }
        place
    }

    /// The readout units that the event at a place was built without.
    pub(super) fn lacking(&self, place: usize) -> impl Iterator<Item = u16> {
        let words = self.lacking[place * self.words..][..self.words].iter().zip((0..).step_by(64));
        // Nearly always no bit is set, and this runs once for each event.
        let words = words.filter(|(word, _)| **word != 0);
        words.flat_map(|(word, first)| (0..64).filter(move |bit| word >> bit & 1 != 0).map(move |bit| first + bit))
    }

    /// The acknowledgement at a place.
    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut UnreleasedEntry> {
        self.entries.get_mut(place)
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// All, from a place on, oldest or newest first as they come.
    pub(super) fn from(&self, place: usize) -> impl Iterator<Item = UnreleasedEntry> {
        self.entries.iter().skip(place).copied()
    }
}

/// Where a key was seen last.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Whereabouts {
    /// In this slot.
    Slot(u32),
    /// At this place among the recent acknowledgements.
    Recent(usize),
}

/// Hints where a key is, by its lowest bits. A hint may be overwritten by another key's: whoever follows one
/// compares the key, and finding nothing costs no more than building an event twice.
#[derive(Debug)]
pub(super) struct Hints(Box<[Option<Whereabouts>]>);

impl Hints {
    /// Hints for events in `slots` slots and as many recent ones.
    pub(super) fn new(slots: usize) -> Self {
        Self(vec![None; (4 * slots).next_power_of_two()].into_boxed_slice())
    }

    /// Where the key may be.
    pub(super) fn get(&self, key: EventKey) -> Option<Whereabouts> {
        self.0[self.place(key)]
    }

    /// The key is here now.
    pub(super) fn set(&mut self, key: EventKey, whereabouts: Whereabouts) {
        let place = self.place(key);
        self.0[place] = Some(whereabouts);
    }

    fn place(&self, key: EventKey) -> usize {
        key.number() as usize & (self.0.len() - 1)
    }
}
