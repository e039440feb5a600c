//! What a drive knows of each connection, by endpoint.

use ropewalk_io::Endpoint;

/// A table by the endpoint's index, which refuses those of an earlier generation.
#[derive(Debug)]
pub(super) struct EndpointTable<T> {
    places: Vec<Option<(Endpoint, T)>>,
}

impl<T> Default for EndpointTable<T> {
    fn default() -> Self {
        Self { places: Vec::new() }
    }
}

impl<T> EndpointTable<T> {
    /// Enters what is known of `endpoint`.
    pub(super) fn insert(&mut self, endpoint: Endpoint, entry: T) {
        if self.places.len() <= endpoint.index() {
            self.places.resize_with(endpoint.index() + 1, || None);
        }
        self.places[endpoint.index()] = Some((endpoint, entry));
    }

    /// What is known of `endpoint`.
    pub(super) fn get_mut(&mut self, endpoint: Endpoint) -> Option<&mut T> {
        let (found, entry) = self.places.get_mut(endpoint.index())?.as_mut()?;
        (*found == endpoint).then_some(entry)
    }

    /// Takes out what is known of `endpoint`.
    pub(super) fn remove(&mut self, endpoint: Endpoint) -> Option<T> {
        let place = self.places.get_mut(endpoint.index())?;
        place.take_if(|(found, _)| *found == endpoint).map(|(_, entry)| entry)
    }

    /// How many places there are, taken or not; each may be looked at by [`EndpointTable::at`].
    pub(super) const fn places(&self) -> usize {
        self.places.len()
    }

    /// The entry at a place.
    pub(super) fn at(&mut self, index: usize) -> Option<(Endpoint, &mut T)> {
        self.places.get_mut(index)?.as_mut().map(|(endpoint, entry)| (*endpoint, entry))
    }
}
