//! FED fragments in FEROL blocks.

use super::given_up;
use crate::messages::{FragmentFlags, FragmentMeta, Received};
use crate::moves::append;
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
    /// A whole one for which there was no place in the last batch.
    owed: Option<Received>,
}

impl FerolStream {
    /// The stream of the source that its first block names.
    pub(super) fn new(source: SourceId, max_fragment: u32) -> Self {
        Self { source, assembly: Assembly::new(max_fragment as usize), payload: Payload::default(), owed: None }
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
        if out.len() < end {
            out.extend(self.owed.take());
        }
        while out.len() < end {
            if self.assembly.is_between() {
                self.take_plain(queue, out, end, check_crc)?;
            }
            if out.len() == end || !self.take_block(queue, out, end, check_crc)? {
                break;
            }
        }
        Ok(())
    }

    /// Appends the fragments at the front that have one block each and lie in one slice, as nearly all do: straight
    /// through, and without a look at the queue for each.
    fn take_plain(
        &self,
        queue: &mut ByteQueue,
        out: &mut Vec<Received>,
        end: usize,
        check_crc: bool,
    ) -> Result<(), Cause> {
        let Some(mut front) = queue.front_slice() else { return Ok(()) };
        // As many as there may be: blocks have at least a word each.
        let most = front.bytes().len() / (HEADER_BYTES + WORD_BYTES);
        out.reserve(most.min(end - out.len()));
        while out.len() < end {
            let bytes = front.bytes();
            let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { break };
            let block = BlockHeader::parse(header).map_err(|error| error.cause())?;
            let fragment = bytes.get(HEADER_BYTES..block.block_bytes()).unwrap_or_default();
            let (Some(first), Some(last)) = (fragment.first_chunk(), fragment.last_chunk()) else { break };
            // What ends the slice, or lies in several, is the queue's to take.
            if !(block.first && block.last) || bytes.len() == block.block_bytes() {
                break;
            }
            let crc = |ends: Ends| if check_crc { Some(ends.check_crc([fragment])) } else { None };
            let meta = self.describe(&block, (*first, *last), fragment.len(), crc);
            let payload = front.take_behind(HEADER_BYTES, usize::from(block.payload_bytes));
            append(out, Received { meta, restarts: false, payload });
        }
        Ok(())
    }

    /// Takes the next block; false where it has not come whole.
    fn take_block(
        &mut self,
        queue: &mut ByteQueue,
        out: &mut Vec<Received>,
        end: usize,
        check_crc: bool,
    ) -> Result<bool, Cause> {
        let Some(bytes) = queue.peek_array::<HEADER_BYTES>(0) else { return Ok(false) };
        let block = BlockHeader::parse(&bytes).map_err(|error| error.cause())?;
        if queue.len() < block.block_bytes() {
            return Ok(false);
        }
        queue.skip(HEADER_BYTES);
        let accepted = self.assembly.accept(&block);
        if let Some(error) = accepted.gives_up {
            self.payload = Payload::default();
            out.push(given_up(self.source, error.cause()));
        }
        let bytes = usize::from(block.payload_bytes);
        if accepted.place == Place::Skipped {
            queue.skip(bytes);
            return Ok(true);
        }
        queue.take_into(bytes, &mut self.payload);
        if accepted.completes.is_some() {
            let payload = core::mem::take(&mut self.payload);
            let whole = self.whole(&block, payload, check_crc);
            // The one before it that was given up may have taken the last place.
            if out.len() < end { out.push(whole) } else { self.owed = Some(whole) }
        }
        Ok(true)
    }

    /// A whole fragment, wherever its pieces lie.
    fn whole(&self, block: &BlockHeader, payload: Payload, check_crc: bool) -> Received {
        let length = payload.len();
        let first = payload.read_array::<WORD_BYTES>(0).unwrap_or_default();
        let last = payload.read_array::<WORD_BYTES>(length.saturating_sub(WORD_BYTES)).unwrap_or_default();
        let crc = |ends: Ends| if check_crc { Some(ends.check_crc(payload.pieces())) } else { None };
        let meta = self.describe(block, (first, last), length, crc);
        Received { meta, restarts: false, payload }
    }

    /// Describes a fragment of `length` bytes by its first and last word; what is wrong with it is flagged. `crc` says
    /// whether its checksum is right, where that is wanted. Its identity is what its last block says, with which its own
    /// header must agree.
    #[inline]
    fn describe(
        &self,
        block: &BlockHeader,
        (first, last): ([u8; WORD_BYTES], [u8; WORD_BYTES]),
        length: usize,
        crc: impl FnOnce(Ends) -> Option<Result<(), FedError>>,
    ) -> FragmentMeta {
        let mut flags = match Ends::parse(first, last, length) {
            Err(error) => flag(error),
            Ok(ends) => match crc(ends) {
                None => FragmentFlags::default(),
                Some(Ok(())) => FragmentFlags::CRC_CHECKED,
                Some(Err(error)) => FragmentFlags::CRC_CHECKED.with(flag(error)),
            },
        };
        let (mut bunch_crossing, mut trigger_type) = (0, 0);
        if let Ok(header) = Header::parse(first) {
            flags = flags.with(FragmentFlags::HAS_BUNCH_CROSSING);
            (bunch_crossing, trigger_type) = (header.bunch_crossing(), header.event_type());
            if header.level1_id() != block.event_number {
                flags = flags.with(FragmentFlags::MALFORMED);
            }
            if header.source() != self.source || block.source != self.source {
                flags = flags.with(FragmentFlags::WRONG_SOURCE);
            }
        }
        FragmentMeta {
            source: self.source,
            length: length as u32,
            flags,
            bunch_crossing,
            trigger_type: u16::from(trigger_type),
            raw_id: u64::from(block.event_number),
            time: 0,
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
