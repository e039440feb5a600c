//! What a drive knows of each connection, by endpoint.

use ropewalk_io::Endpoint;

/// A table by the endpoint's index, which refuses those of an earlier generation.
///
/// A connection may end before everything that came over it is worked off, and its index belongs to the next one at
/// once. What is known of the earlier one then goes on living beside the table, until it is taken out.
#[derive(Debug)]
pub(super) struct EndpointTable<T> {
    places: Vec<Option<(Endpoint, T)>>,
    outlived: Vec<(Endpoint, T)>,
}

/// Connections for which there is room from the start.
const ROOM: usize = 256;

impl<T> Default for EndpointTable<T> {
    fn default() -> Self {
        // A connection that comes back while data flow allocates nothing.
        Self { places: Vec::with_capacity(ROOM), outlived: Vec::with_capacity(ROOM) }
    }
}

impl<T> EndpointTable<T> {
    /// Enters what is known of `endpoint`.
    pub(super) fn insert(&mut self, endpoint: Endpoint, entry: T) {
        if self.places.len() <= endpoint.index() {
            self.places.resize_with(endpoint.index() + 1, || None);
        }
        let before = self.places[endpoint.index()].replace((endpoint, entry));
        self.outlived.extend(before.filter(|(found, _)| *found != endpoint));
    }

    /// What is known of `endpoint`.
    pub(super) fn get(&self, endpoint: Endpoint) -> Option<&T> {
        let place = self.places.get(endpoint.index())?.as_ref();
        let mut all = place.into_iter().chain(&self.outlived);
        all.find(|(found, _)| *found == endpoint).map(|(_, entry)| entry)
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, endpoint: Endpoint) -> Option<&mut T> {
        let place = self.places.get_mut(endpoint.index())?.as_mut();
        let mut all = place.into_iter().chain(&mut self.outlived);
        all.find(|(found, _)| *found == endpoint).map(|(_, entry)| entry)
    }

    /// Takes out what is known of `endpoint`.
    pub(super) fn remove(&mut self, endpoint: Endpoint) -> Option<T> {
        let place = self.places.get_mut(endpoint.index())?;
        if let Some((_, entry)) = place.take_if(|(found, _)| *found == endpoint) {
            return Some(entry);
        }
        let outlived = self.outlived.iter().position(|(found, _)| *found == endpoint)?;
        Some(self.outlived.remove(outlived).1)
    }

    /// How many places there are, taken or not; each may be looked at by [`EndpointTable::at`].
    pub(super) const fn places(&self) -> usize {
        self.places.len() + self.outlived.len()
    }

    /// Each with what is known of it.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Endpoint, &T)> {
        self.places.iter().flatten().chain(&self.outlived).map(|(endpoint, entry)| (*endpoint, entry))
    }

    /// What is known of each.
    pub(super) fn entries(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten().chain(&self.outlived).map(|(_, entry)| entry)
    }

    /// The entry at a place.
    pub(super) fn at(&mut self, index: usize) -> Option<(Endpoint, &mut T)> {
        let entry = match index.checked_sub(self.places.len()) {
            None => self.places[index].as_mut(),
            Some(outlived) => self.outlived.get_mut(outlived),
        };
        entry.map(|(endpoint, entry)| (*endpoint, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that sent everything before the run began has closed its connection, and another one connects.
    #[test]
    fn a_connection_that_ended_is_remembered_although_its_index_is_used_again() {
        let (one, other) = (Endpoint::new(0, 0), Endpoint::new(0, 1));
        let mut table = EndpointTable::default();
        table.insert(one, "one");
        table.insert(other, "other");
        assert_eq!((table.get_mut(one).copied(), table.get_mut(other).copied()), (Some("one"), Some("other")));
        let mut seen = Vec::new();
        for index in 0..table.places() {
            seen.extend(table.at(index).map(|(_, entry)| *entry));
        }
        assert_eq!(seen, ["other", "one"]);
        assert_eq!((table.remove(one), table.remove(one), table.remove(other)), (Some("one"), None, Some("other")));
        assert_eq!(table.get_mut(other), None);
        assert_eq!(table.places(), 1);
        assert!(table.at(0).is_none() && table.at(1).is_none());
    }
}
