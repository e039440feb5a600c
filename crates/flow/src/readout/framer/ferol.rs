//! FED fragments in FEROL blocks.

use super::given_up;
use crate::messages::{FragmentFlags, FragmentMeta, Received};
use ropewalk_memory::{ByteQueue, Payload};
use ropewalk_terms::{Cause, SourceId};
use ropewalk_wire::fed::{Ends, FedError, Header, WORD_BYTES};
use ropewalk_wire::ferol::{Assembly, BlockHeader, HEADER_BYTES, Place};

/// A stream of FEROL blocks.
#[derive(Debug)]
pub(super) struct FerolStream {
    source: SourceId,
    assembly: Assembly,
    /// The pieces of the fragment that has begun and not ended.
    payload: Payload,
}

impl FerolStream {
    /// The stream of the source that its first block names.
    pub(super) fn new(source: SourceId, max_fragment: u32) -> Self {
        Self { source, assembly: Assembly::new(max_fragment as usize), payload: Payload::default() }
    }

    pub(super) fn set_max_fragment(&mut self, max_fragment: u32) {
        self.assembly = Assembly::new(max_fragment as usize);
    }

    pub(super) const fn source(&self) -> SourceId {
        self.source
    }

    /// Bytes of the fragment that has begun and not ended.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Appends whole fragments until `out` has `end`, or the next block has not come whole.
    pub(super) fn next_batch(
        &mut self,
        queue: &mut ByteQueue,
        out: &mut Vec<Received>,
        end: usize,
        check_crc: bool,
    ) -> Result<(), Cause> {
        while out.len() < end {
            let Some(bytes) = queue.peek_array::<HEADER_BYTES>(0) else { break };
            let block = BlockHeader::parse(&bytes).map_err(|error| error.cause())?;
            if queue.len() < block.block_bytes() {
                break;
            }
            queue.skip(HEADER_BYTES);
            let accepted = self.assembly.accept(&block);
            if let Some(error) = accepted.gives_up {
                self.payload = Payload::default();
                out.push(given_up(self.source, error.cause()));
            }
            let bytes = usize::from(block.payload_bytes);
            match (accepted.place, accepted.completes) {
                (Place::Skipped, _) => queue.skip(bytes),
                // The usual fragment has one block, and goes straight through.
                (Place::Begins, Some(_)) => out.push(self.whole(&block, queue.take(bytes), check_crc)),
                (Place::Begins | Place::Continues, None) => queue.take_into(bytes, &mut self.payload),
                (Place::Continues, Some(_)) => {
                    let mut payload = core::mem::take(&mut self.payload);
                    queue.take_into(bytes, &mut payload);
                    out.push(self.whole(&block, payload, check_crc));
                }
            }
        }
        Ok(())
    }

    /// A whole fragment, described by its first and last word; what is wrong with it is flagged.
    #[inline]
    fn whole(&self, block: &BlockHeader, payload: Payload, check_crc: bool) -> Received {
        let length = payload.len();
        let first = payload.read_array::<WORD_BYTES>(0).unwrap_or_default();
        let last = payload.read_array::<WORD_BYTES>(length.saturating_sub(WORD_BYTES)).unwrap_or_default();
        let mut flags = FragmentFlags::default();
        match Ends::parse(first, last, length) {
            Err(error) => flags = flags.with(flag(error)),
            Ok(ends) if check_crc => {
                flags = flags.with(FragmentFlags::CRC_CHECKED);
                if let Err(error) = ends.check_crc(payload.pieces()) {
                    flags = flags.with(flag(error));
                }
            }
            Ok(_) => {}
        }
        let mut meta = FragmentMeta {
            source: self.source,
            length: length as u32,
            flags,
            bunch_crossing: 0,
            trigger_type: 0,
            raw_id: u64::from(block.event_number),
            time: 0,
        };
        if let Ok(header) = Header::parse(first) {
            self.describe(&mut meta, header, block);
        }
        Received { meta, restarts: false, payload }
    }

    /// What the fragment's own header says. Its identity is what the blocks say, which must agree.
    #[inline]
    fn describe(&self, meta: &mut FragmentMeta, header: Header, block: &BlockHeader) {
        meta.flags = meta.flags.with(FragmentFlags::HAS_BUNCH_CROSSING);
        meta.bunch_crossing = header.bunch_crossing();
        meta.trigger_type = u16::from(header.event_type());
        if header.level1_id() != block.event_number {
            meta.flags = meta.flags.with(FragmentFlags::MALFORMED);
        }
        if header.source() != self.source || block.source != self.source {
            meta.flags = meta.flags.with(FragmentFlags::WRONG_SOURCE);
        }
    }
}

/// How an error of the contents is flagged.
const fn flag(error: FedError) -> FragmentFlags {
    match error {
        FedError::Size | FedError::Header | FedError::Trailer => FragmentFlags::MALFORMED,
        FedError::Length => FragmentFlags::LENGTH_MISMATCH,
        FedError::Source => FragmentFlags::WRONG_SOURCE,
        FedError::Crc => FragmentFlags::CRC_ERROR,
    }
}
