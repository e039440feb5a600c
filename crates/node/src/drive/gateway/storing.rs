//! An accepted event of a gateway as a record of a run file.

use crate::drive::Recorded;
use ropewalk_flow::gateway::StoredView;
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{Incarnation, SourceId};
use ropewalk_wire::gateway::EventFlags as PushFlags;
use ropewalk_wire::run_file::{EventFlags, EventHead, EventRecordEncoder, FragmentEntry, MissingSource};

/// An accepted event. Its fragments are copied behind one another: each is so small that its place in a list of pieces
/// would cost more, and the packets that they lie in are free at once.
#[derive(Copy, Clone)]
pub(super) struct StoredEvent<'a> {
    event: StoredView<'a>,
    /// The ids of its flow's sources.
    sources: &'a [SourceId],
}

impl<'a> StoredEvent<'a> {
    pub(super) fn new(event: StoredView<'a>, sources: &'a [Vec<SourceId>]) -> Self {
        let flow = usize::from(event.head().flow);
        Self { event, sources: sources.get(flow).map(Vec::as_slice).unwrap_or_default() }
    }

    fn id(&self, source: u16) -> SourceId {
        self.sources.get(usize::from(source)).copied().unwrap_or(SourceId(u32::from(source)))
    }
}

impl Recorded for StoredEvent<'_> {
    fn head(&self, incarnation: Incarnation) -> EventHead {
        let head = self.event.head();
        let is_incomplete = head.flags.has(PushFlags::INCOMPLETE);
        let flags = if is_incomplete { EventFlags::INCOMPLETE } else { EventFlags::default() };
        // The lower half of the word is all that a run file has room for.
        EventHead { key: head.key, incarnation, attempt: head.attempt, trigger_type: self.event.word() as u16, flags }
    }

    fn missing(&self) -> impl Iterator<Item = MissingSource> + Clone {
        self.event.missing().map(|(source, cause)| MissingSource::new(self.id(source), cause))
    }

    fn entries(&self) -> impl Iterator<Item = FragmentEntry> + Clone {
        let raw_id = self.event.head().key.number();
        self.event
            .fragments()
            .map(move |(source, length)| FragmentEntry::bare(self.id(source), raw_id & 0xFFFF_FFFF, u32::from(length)))
    }

    fn payloads(&self, encoder: &mut EventRecordEncoder, staging: &mut Staging, pieces: &mut Vec<Slice>) -> bool {
        for piece in self.event.pieces() {
            encoder.payload(piece);
            let Some(copy) = staging.write(piece) else { return false };
            let apart = match pieces.last_mut() {
                Some(last) => last.join(copy).err(),
                None => Some(copy),
            };
            pieces.extend(apart);
        }
        true
    }
}
