//! A super-fragment as it lies in the table: what a builder unit gets of one event.

use super::source::Source;
use super::table::{Place, State, Table};
use super::timeline::Position;
use crate::messages::{Fragment, FragmentMeta};
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

    /// How many entries [`SuperFragment::append_to`] appends.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Appends the fragments and, without a payload and described by [`FragmentMeta::missing`], the required sources that
    /// have none, in the sources' order. The payloads stay where they lie: each costs a reference.
    pub fn append_to(&self, out: &mut Vec<Fragment>) {
        let Self { table, sources, position, key, count, .. } = *self;
        let empty = match table.slot(position).map(|slot| slot.state) {
            Some(State::Empty(cause)) => Some(cause),
            _ => None,
        };
        let missing = |id, cause| Fragment { key, meta: FragmentMeta::missing(id, cause), payload: Payload::default() };
        let end = out.len() + count;
        for (source, input) in sources.iter().enumerate() {
            // Sources behind the last that has something are not looked at.
            if out.len() == end {
                return;
            }
            match (empty, table.at(source, position)) {
                (Some(cause), _) => out.extend(input.missing_cause(position).map(|_| missing(input.id, cause))),
                // Right to where it belongs, not through an iterator: that is a move through the stack, which costs as
                // much as the reference.
                (None, Place::Held(held)) => out.push(Fragment { key, meta: held.meta, payload: held.payload.clone() }),
                (None, Place::Missing(cause)) => out.push(missing(input.id, *cause)),
                (None, Place::Vacant) => {}
            }
        }
    }
}
