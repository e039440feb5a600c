//! A table of endpoints: dense indices, each with a generation so that old names do not reach new users.

use crate::endpoint::Endpoint;

/// A generation that no endpoint ever has.
pub(crate) const NO_GENERATION: u32 = u32::MAX;

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by [`Endpoint`]. Freed indices are used again, last freed first, with the next generation.
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// A table that does not grow before it has this many values.
    pub(crate) fn with_capacity(values: usize) -> Self {
        Self { slots: Vec::with_capacity(values), free: Vec::with_capacity(values) }
    }

    pub(crate) fn insert(&mut self, value: T) -> Endpoint {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Endpoint::new(index, slot.generation);
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, value: Some(value) });
        // Room for every index now, so that removing never allocates.
        self.free.reserve(self.slots.len());
        Endpoint::new(index, 0)
    }

    pub(crate) fn get(&self, endpoint: Endpoint) -> Option<&T> {
        let slot = self.slots.get(endpoint.index())?;
        if slot.generation == endpoint.generation() { slot.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, endpoint: Endpoint) -> Option<&mut T> {
        let slot = self.slots.get_mut(endpoint.index())?;
        if slot.generation == endpoint.generation() { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, endpoint: Endpoint) -> Option<T> {
        let slot = self.slots.get_mut(endpoint.index())?;
        if slot.generation != endpoint.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) % NO_GENERATION;
        self.free.push(endpoint.0);
        Some(value)
    }

    /// The endpoint that uses this index now.
    pub(crate) fn at(&self, index: usize) -> Option<Endpoint> {
        let slot = self.slots.get(index)?;
        slot.value.as_ref().map(|_| Endpoint::new(index as u32, slot.generation))
    }

    /// One more than the largest index that was ever used.
    pub(crate) fn bound(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Endpoint, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            slot.value.as_ref().map(|value| (Endpoint::new(index as u32, slot.generation), value))
        })
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_endpoint_never_reaches_its_successor() {
        let mut slots = Slots::new();
        let first = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b');
        assert_eq!(second.index(), first.index());
        assert_ne!(second, first);
        assert_eq!((slots.get(first), slots.get(second)), (None, Some(&'b')));
        assert_eq!((slots.remove(first), slots.at(0)), (None, Some(second)));
        assert_eq!((slots.bound(), slots.values().count()), (1, 1));
    }
}
