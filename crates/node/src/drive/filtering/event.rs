//! A decided event as a record: what the filter said of it is one more fragment.

use super::super::Recorded;
use ropewalk_flow::builder::EventView;
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{Incarnation, SourceId};
use ropewalk_wire::run_file::{EventFlags, EventHead, EventRecordEncoder, FragmentEntry, MissingSource};

/// An event and what was decided of it.
#[derive(Copy, Clone)]
pub struct DecidedEvent<'a> {
    pub(super) event: EventView<'a>,
    /// What the filter said, as it is stored (`wire::filter_result`); none without a filter.
    pub(super) result: Option<&'a Slice>,
    /// No decision could be had.
    pub(super) is_set_aside: bool,
}

impl<'a> DecidedEvent<'a> {
    /// The event as it was built.
    pub const fn event(&self) -> &EventView<'a> {
        &self.event
    }
}

impl Recorded for DecidedEvent<'_> {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        let head = self.event.head(incarnation);
        let more = if self.is_set_aside { EventFlags::QUARANTINED } else { EventFlags::default() };
        EventHead { flags: head.flags.with(more), ..head }
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        Recorded::missing(&self.event)
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        let raw_id = self.event.key.number();
        let result = self.result.map(|result| FragmentEntry::bare(SourceId::FILTER, raw_id, result.len() as u32));
        self.event.entries().chain(result)
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        let whole = self.event.payloads(encoder, staging, pieces);
        if let Some(result) = self.result {
            encoder.payload(result);
            pieces.push(result.clone());
        }
        whole
    }
}
