//! Slots in the order of their age: whatever was begun first times out first.

const NONE: u16 = u16::MAX;

/// A list of slots, oldest first, any of which may be taken out; made for a number of slots, and never larger.
#[derive(Debug)]
pub(super) struct Ages {
    /// For each slot the older and the younger one.
    links: Box<[(u16, u16)]>,
    oldest: u16,
    youngest: u16,
}

impl Ages {
    /// For so many slots: fewer than 65,535.
    pub(super) fn new(slots: usize) -> Self {
        Self { links: vec![(NONE, NONE); slots].into_boxed_slice(), oldest: NONE, youngest: NONE }
    }

    /// The oldest slot.
    pub(super) fn oldest(&self) -> Option<u16> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// All slots, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        core::iter::successors(self.oldest(), |&slot| {
            Some(self.links[usize::from(slot)].1).filter(|&next| next != NONE)
        })
    }

    /// Puts a slot at the end that is not in the list.
    pub(super) fn push(&mut self, slot: u16) {
        self.links[usize::from(slot)] = (self.youngest, NONE);
        match self.youngest {
            NONE => self.oldest = slot,
            before => self.links[usize::from(before)].1 = slot,
        }
        self.youngest = slot;
    }

    /// Takes a slot out that is in the list.
    pub(super) fn remove(&mut self, slot: u16) {
        let (before, behind) = self.links[usize::from(slot)];
        match before {
            NONE => self.oldest = behind,
            before => self.links[usize::from(before)].1 = behind,
        }
        match behind {
            NONE => self.youngest = before,
            behind => self.links[usize::from(behind)].0 = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_list(choices in prop::collection::vec(0_u16..8, 0..60)) {
            let (mut ages, mut twin) = (Ages::new(8), Vec::new());
            for slot in choices {
                match twin.iter().position(|&other| other == slot) {
                    Some(place) => {
                        ages.remove(slot);
                        twin.remove(place);
                    }
                    None => {
                        ages.push(slot);
                        twin.push(slot);
                    }
                }
                prop_assert_eq!(ages.iter().collect::<Vec<_>>(), twin.clone());
                prop_assert_eq!(ages.oldest(), twin.first().copied());
            }
        }
    }
}
