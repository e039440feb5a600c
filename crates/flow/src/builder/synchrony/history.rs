//! The last events, one row of observations each, found by event key.

use super::Observation;
use ropewalk_terms::EventKey;

/// A ring of rows. A row's place follows from its event number, so that gaps in the keys and events that come out of
/// order (builder units build what they are given) need no search.
#[derive(Debug)]
pub(super) struct History {
    /// `places` rows of `sources` observations.
    rows: Vec<Observation>,
    keys: Vec<EventKey>,
    sources: usize,
    newest: Option<EventKey>,
}

/// A row's place in the ring.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Place(usize);

/// No event carries this key: the place is free.
const FREE: EventKey = EventKey::MAX;

impl History {
    /// Room for at least `depth` events of `sources` sources.
    pub(super) fn new(sources: usize, depth: usize) -> Self {
        let places = depth.next_power_of_two();
        Self { rows: vec![Observation::MISSING; places * sources], keys: vec![FREE; places], sources, newest: None }
    }

    /// How many events fit.
    pub(super) const fn depth(&self) -> usize {
        self.keys.len()
    }

    /// The largest key seen lately.
    pub(super) const fn newest(&self) -> Option<EventKey> {
        self.newest
    }

    /// Takes the row of an event in; sources beyond the end of `observations` are missing. No place where the event
    /// is older than everything remembered.
    pub(super) fn insert(&mut self, key: EventKey, observations: &[Observation]) -> Option<Place> {
        let place = self.place(key);
        if self.keys[place] != FREE && self.is_shortly_before(key, self.keys[place]) {
            return None;
        }
        self.keys[place] = key;
        if !self.newest.is_some_and(|newest| self.is_shortly_before(key, newest)) {
            self.newest = Some(key);
        }
        let row = &mut self.rows[place * self.sources..][..self.sources];
        let given = observations.len().min(row.len());
        for (own, seen) in row.iter_mut().zip(observations) {
            *own = seen.without_note();
        }
        row[given..].fill(Observation::MISSING);
        Some(Place(place))
    }

    /// What `source` said about the event, if both are remembered.
    pub(super) fn get(&self, key: EventKey, source: usize) -> Option<&Observation> {
        let place = self.place(key);
        if self.keys[place] != key || key == FREE {
            return None;
        }
        self.rows.get(place * self.sources + source)
    }

    /// The row at a place, and another one to read beside it.
    pub(super) fn row_and(&mut self, place: Place, other: Option<Place>) -> (&mut [Observation], &[Observation]) {
        let (start, sources) = (place.0 * self.sources, self.sources);
        let Some(other) = other.filter(|&other| other != place).map(|other| other.0 * sources) else {
            return (&mut self.rows[start..][..sources], &[]);
        };
        if other < start {
            let (low, high) = self.rows.split_at_mut(start);
            (&mut high[..sources], &low[other..][..sources])
        } else {
            let (low, high) = self.rows.split_at_mut(other);
            (&mut low[start..][..sources], &high[..sources])
        }
    }

    /// Notes what a comparison made later said about an event of a source.
    pub(super) fn note(&mut self, key: EventKey, source: usize, agreed: bool) {
        let place = self.place(key);
        if self.keys[place] == key {
            self.rows[place * self.sources + source].note(agreed);
        }
    }

    /// Whether `key` came late. Further back it is no latecomer: then the larger key was a mistake.
    fn is_shortly_before(&self, key: EventKey, later: EventKey) -> bool {
        later.since(key).is_some_and(|events| events > 0 && events <= 2 * self.keys.len() as u64)
    }

    fn place(&self, key: EventKey) -> usize {
        key.to_bits() as usize & (self.keys.len() - 1)
    }
}

/// The key `events` later, or earlier where negative. Beyond the edges of a resync count it names an event that
/// nobody has, which is what the caller wants to find.
pub(super) const fn shifted(key: EventKey, events: i64) -> EventKey {
    EventKey::from_bits(key.to_bits().wrapping_add_signed(events))
}
