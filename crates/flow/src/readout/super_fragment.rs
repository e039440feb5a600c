//! A super-fragment as it lies in the table: what a builder unit gets of one event.

use super::source::Source;
use super::table::{Place, State, Table};
use super::timeline::Position;
use crate::messages::FragmentMeta;
use ropewalk_memory::Payload;
use ropewalk_terms::EventKey;

/// The fragments of one settled event that a readout unit holds, and the places of those that will not come.
#[derive(Copy, Clone, Debug)]
pub struct SuperFragment<'a> {
    table: &'a Table,
    sources: &'a [Source],
    position: Position,
    key: EventKey,
    /// Entries: fragments and missing ones.
    count: usize,
    bytes: u32,
}

impl<'a> SuperFragment<'a> {
    pub(super) fn new(table: &'a Table, sources: &'a [Source], key: EventKey, position: Position) -> Option<Self> {
        let slot = table.slot(position)?;
        let is_settled = matches!(slot.state, State::Settled | State::Empty(_));
        let count = usize::from(slot.fragments) + usize::from(slot.missing);
        is_settled.then_some(Self { table, sources, position, key, count, bytes: slot.bytes })
    }

    /// The event.
    pub const fn key(&self) -> EventKey {
        self.key
    }

    /// Bytes of all payloads.
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The fragments and, as [`FragmentMeta::missing`], the required sources that have none, in the sources' order.
    pub fn metas(&self) -> Metas<'a> {
        Metas { super_fragment: *self, source: 0, left: self.count }
    }

    /// The payloads of those fragments that are there, in the order of [`SuperFragment::metas`].
    pub fn payloads(&self) -> impl Iterator<Item = &'a Payload> + use<'a> {
        let (table, position) = (self.table, self.position);
        let held = !matches!(table.slot(position).map(|slot| slot.state), Some(State::Empty(_)));
        (0..self.sources.len()).filter(move |_| held).filter_map(move |source| match table.at(source, position) {
            Place::Held(fragment) => Some(&fragment.payload),
            Place::Vacant | Place::Missing(_) => None,
        })
    }

    /// What a source has in this event: a fragment, an entry for its absence, or nothing.
    fn meta(&self, source: usize) -> Option<FragmentMeta> {
        let input = &self.sources[source];
        if let Some(State::Empty(cause)) = self.table.slot(self.position).map(|slot| slot.state) {
            return input.missing_cause(self.position).map(|_| FragmentMeta::missing(input.id, cause));
        }
        match self.table.at(source, self.position) {
            Place::Held(fragment) => Some(fragment.meta),
            Place::Missing(cause) => Some(FragmentMeta::missing(input.id, *cause)),
            Place::Vacant => None,
        }
    }
}

/// Goes through the entries of a super-fragment.
#[derive(Clone, Debug)]
pub struct Metas<'a> {
    super_fragment: SuperFragment<'a>,
    source: usize,
    left: usize,
}

impl Iterator for Metas<'_> {
    type Item = FragmentMeta;

    fn next(&mut self) -> Option<FragmentMeta> {
        while self.left > 0 && self.source < self.super_fragment.sources.len() {
            let meta = self.super_fragment.meta(self.source);
            self.source += 1;
            if meta.is_some() {
                self.left -= 1;
                return meta;
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Metas<'_> {}
