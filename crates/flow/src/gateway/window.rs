//! Which sets are known: the newest ones, each in a place of its own, so that none is searched for.

use ropewalk_terms::Cause;

/// The number of a set: events before its first one since the run's first, divided by the packing factor.
pub(super) type SetNumber = u64;

/// What is known of a set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Known {
    /// Nothing: it would be new.
    New,
    /// It is in assembly, in this slot.
    Open(u16),
    /// It was complete.
    Complete,
    /// It was finished without everything.
    Incomplete,
    /// There was no room for it.
    Refused(Cause),
    /// It lies before everything that is remembered.
    Past,
}

const NOBODY: SetNumber = SetNumber::MAX;

/// A ring of places over the numbers of sets.
#[derive(Debug)]
pub(super) struct Window {
    places: Box<[(SetNumber, Known)]>,
    /// For each place which sources had come when the set was finished incomplete.
    came: Box<[u64]>,
    words: usize,
    /// One past the newest set.
    end: SetNumber,
}

impl Window {
    pub(super) fn new(sets: u32, sources: usize) -> Self {
        let (places, words) = ((sets as usize).next_power_of_two(), sources.div_ceil(64));
        Self {
            places: vec![(NOBODY, Known::New); places].into_boxed_slice(),
            came: vec![0; places * words].into_boxed_slice(),
            words,
            end: 0,
        }
    }

    /// One past the newest set.
    pub(super) const fn end(&self) -> SetNumber {
        self.end
    }

    /// How many sets are told apart.
    pub(super) const fn places(&self) -> SetNumber {
        self.places.len() as SetNumber
    }

    const fn index(&self, set: SetNumber) -> usize {
        set as usize & (self.places.len() - 1)
    }

    /// What is known of a set.
    #[inline]
    pub(super) fn get(&self, set: SetNumber) -> Known {
        let (number, known) = self.places[self.index(set)];
        if number == set {
            known
        } else if set + (self.places.len() as SetNumber) < self.end {
            Known::Past
        } else {
            Known::New
        }
    }

    /// The slot of an open set that would have to go for this new one, because it lies too far back.
    pub(super) fn open_before(&self, set: SetNumber) -> Option<u16> {
        match self.places[self.index(set)] {
            (number, Known::Open(slot)) if number != set => Some(slot),
            _ => None,
        }
    }

    /// Notes what is known of a set that is not past.
    pub(super) fn set(&mut self, set: SetNumber, known: Known) {
        let index = self.index(set);
        self.places[index] = (set, known);
        self.end = self.end.max(set + 1);
    }

    /// A set was finished without everything; which sources had come?
    pub(super) fn set_incomplete(&mut self, set: SetNumber, came: impl Iterator<Item = bool>) {
        self.set(set, Known::Incomplete);
        let start = self.index(set) * self.words;
        let words = &mut self.came[start..][..self.words];
        words.fill(0);
        for (source, _) in came.enumerate().filter(|(_, came)| *came) {
            words[source / 64] |= 1 << (source % 64);
        }
    }

    /// Whether a source had come when a set was finished incomplete.
    pub(super) fn had_come(&self, set: SetNumber, source: u16) -> bool {
        let word = self.index(set) * self.words + usize::from(source) / 64;
        self.came[word] >> (source % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_sets_are_known_and_what_lies_before_them_is_past() {
        let mut window = Window::new(3, 70);
        assert_eq!((window.get(0), window.end()), (Known::New, 0));
        window.set(0, Known::Open(7));
        window.set_incomplete(2, (0..70).map(|source| source % 3 == 0));
        assert_eq!((window.get(0), window.get(1), window.get(2)), (Known::Open(7), Known::New, Known::Incomplete));
        assert!((0..70).all(|source| window.had_come(2, source) == (source % 3 == 0)));
        assert_eq!((window.open_before(4), window.open_before(0), window.open_before(5)), (Some(7), None, None));
        window.set(5, Known::Complete);
        assert_eq!(
            (window.get(0), window.get(1), window.get(2), window.get(4)),
            (Known::Open(7), Known::Past, Known::Incomplete, Known::New)
        );
        window.set(4, Known::Complete);
        assert_eq!((window.get(0), window.end()), (Known::Past, 6));
    }
}
