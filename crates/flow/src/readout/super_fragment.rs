//! A super-fragment as it lies in the table: what a builder unit gets of one event.

use super::source::Source;
use super::table::{Place, State, Table};
use super::timeline::Position;
use crate::messages::{Fragment, FragmentMeta};
use crate::moves::append;
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, EventKey, Requirement};

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

    /// That of an event of which nothing is known but that it is over, where a source was masked in it.
    pub(super) fn of_nothing(
        table: &'a Table,
        sources: &'a [Source],
        key: EventKey,
        position: Position,
    ) -> Option<Self> {
        let is_known = table.slot(position).is_some();
        let is_masked = sources.iter().any(|source| source.masking.has_covered(key));
        let count = Self::count_required(sources);
        (!is_known && is_masked).then_some(Self { table, sources, position, key, count, bytes: 0 })
    }

    /// How many sources have an entry in an event that has no fragment.
    pub(super) fn count_required(sources: &[Source]) -> usize {
        sources.iter().filter(|source| source.requirement == Requirement::Required).count()
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
        let missing = |id, cause| Fragment { meta: FragmentMeta::missing(id, cause), payload: Payload::default() };
        let empty = match table.slot(position).map(|slot| slot.state) {
            Some(State::Empty(cause)) => Some(cause),
            None => Some(Cause::NotHeld),
            Some(_) => None,
        };
        if let Some(cause) = empty {
            let required = sources.iter().filter(|source| source.requirement == Requirement::Required);
            let cause_of = |source: &Source| if source.masking.has_covered(key) { Cause::Masked } else { cause };
            return out.extend(required.map(|source| missing(source.id, cause_of(source))));
        }
        let end = out.len() + count;
        out.reserve(count);
        for (source, place) in sources.iter().zip(table.row(position)) {
            // Sources behind the last that has something are not looked at.
            if out.len() == end {
                return;
            }
            match place {
                Place::Held(Fragment { meta, payload }) => match payload.clone_one() {
                    Some(payload) => append(out, Fragment { meta: *meta, payload }),
                    None => append(out, Fragment { meta: *meta, payload: payload.clone() }),
                },
                Place::Missing(cause) => out.push(missing(source.id, *cause)),
                Place::Vacant => {}
            }
        }
    }
}
