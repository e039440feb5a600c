//! An event of a gateway, with the numbers of its sources: as a record of a run file, and as a sample for those who watch.

use crate::drive::Recorded;
use crate::tap::Sampled;
use ropewalk_flow::gateway::GatheredEvent;
use ropewalk_memory::{Slice, Staging};
use ropewalk_terms::{Incarnation, SourceId};
use ropewalk_wire::gateway::EventFlags as PushFlags;
use ropewalk_wire::run_file::{EventFlags, EventHead, EventRecordEncoder, FragmentEntry, MissingSource};

/// An event of a set. Where it is written its fragments are copied behind one another: each is so small that its place in a list of
/// pieces would cost more, and the packets that they lie in are free at once.
#[derive(Copy, Clone)]
pub struct GatewayEvent<'a> {
    event: GatheredEvent<'a>,
    /// The ids of its flow's sources.
    sources: &'a [SourceId],
}

impl<'a> GatewayEvent<'a> {
    pub(super) fn new(event: GatheredEvent<'a>, sources: &'a [Vec<SourceId>]) -> Self {
        let flow = usize::from(event.head().flow);
        Self { event, sources: sources.get(flow).map(Vec::as_slice).unwrap_or_default() }
    }

    fn id(&self, source: u16) -> SourceId {
        self.sources.get(usize::from(source)).copied().unwrap_or(SourceId(u32::from(source)))
    }
}

impl Recorded for GatewayEvent<'_> {
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

impl Sampled for GatewayEvent<'_> {
    /// Gateways know of no lumisections.
    fn lumisection(&self) -> u32 {
        0
    }

    fn pieces_of_each(&self) -> impl Iterator<Item = impl Iterator<Item = &[u8]>> {
        self.event.pieces_of_each()
    }
}
