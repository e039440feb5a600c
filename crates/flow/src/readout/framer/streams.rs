//! Frames in a stream of bytes: FED fragments in FEROL blocks, generic fragments, and frames of any description.

use super::described::{Describer, FrameCounts, Queued};
use super::gatherer::Gatherer;
use super::{FramerLimits, given_up};
use crate::messages::{FragmentFlags, FragmentMeta, Received, append};
use ropewalk_memory::{ByteQueue, FrontSlice, Payload};
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::description::Description;
use ropewalk_wire::fed::{self, Ends, FedError, WORD_BYTES};
use ropewalk_wire::ferol::{self, Assembly, BlockHeader, Place};
use ropewalk_wire::framing::{Framing, Front, Search};
use ropewalk_wire::generic::{self, Hello};

/// Number of places that are allocated at once if more fragments are found than there were places for.
const FEW: usize = 64;

/// A stream of described frames.
#[derive(Debug)]
pub(super) struct FramedStream {
    framing: Description,
    describer: Describer,
    search: Search,
    /// Whether bytes were skipped since the last frame. They count as one lost frame.
    is_skipping: bool,
    now: Instant,
    /// Whether the input has ended.
    is_over: bool,
}

impl FramedStream {
    pub(super) fn new(source: SourceId, framing: Description, first: u64) -> Self {
        let describer = Describer::new(source, &framing, first);
        Self { framing, describer, search: Search::default(), is_skipping: false, now: Instant::ZERO, is_over: false }
    }

    pub(super) const fn source(&self) -> SourceId {
        self.describer.source()
    }

    pub(super) const fn take_counts(&mut self) -> FrameCounts {
        core::mem::replace(&mut self.describer.counts, FrameCounts::NONE)
    }

    /// Ends the input.
    pub(super) const fn finish(&mut self) {
        self.is_over = true;
    }

    /// Sets the time of arrival of the bytes that follow.
    pub(super) const fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Appends whole frames until `out` has `end` entries, or the next frame is incomplete.
    pub(super) fn next_batch(
        &mut self,
        queue: &mut ByteQueue,
        gatherer: &mut Gatherer,
        out: &mut Vec<Received>,
        end: usize,
        limits: FramerLimits,
    ) -> Result<(), Cause> {
        while out.len() < end {
            if limits.gather.is_some() {
                gatherer.give_whole(out);
            } else if self.search == Search::default()
                && let Some(front) = queue.front_slice()
            {
                self.take_plain(front, out, end, limits);
            }
            if out.len() == end || !self.take_next(queue, gatherer, out, limits)? {
                break;
            }
        }
        Ok(())
    }

    /// Appends the frames in the front slice, as far as they plainly continue.
    fn take_plain(&mut self, front: FrontSlice<'_>, out: &mut Vec<Received>, end: usize, limits: FramerLimits) {
        let (describer, now, before) = (&mut self.describer, self.now, out.len());
        // The kind is matched once here instead of for each frame.
        match &self.framing {
            Description::Layout(plan) => plain_frames(&**plan, describer, now, front, out, end, limits),
            Description::Format(format) | Description::Board(format, _) => {
                plain_frames(format, describer, now, front, out, end, limits)
            }
        }
        self.is_skipping &= out.len() == before;
    }

    /// Whether the first `bytes` bytes are filler between frames of the format, as their first bytes show.
    fn is_filler(&self, queue: &ByteQueue, bytes: usize) -> bool {
        let mut first = [0; 8];
        let first = &mut first[..bytes.min(8)];
        queue.copy_to(0, first);
        self.framing.is_filler(first)
    }

    /// Takes the frame or filler at the front. Returns false if it is incomplete.
    fn take_next(
        &mut self,
        queue: &mut ByteQueue,
        gatherer: &mut Gatherer,
        out: &mut Vec<Received>,
        limits: FramerLimits,
    ) -> Result<bool, Cause> {
        let mut front = self.framing.front(&Queued(queue), &mut self.search);
        if self.is_over
            && matches!(front, Front::Needs { .. })
            && let Some(last) = self.framing.front_at_end(&Queued(queue), &mut self.search)
        {
            front = last;
        }
        match front {
            Front::Needs { .. } => return Ok(false),
            Front::Lost { cause } => return lose(cause, gatherer, out),
            Front::Frame { bytes } if bytes > limits.max_fragment as usize => {
                return lose(Cause::Oversize, gatherer, out);
            }
            Front::Frame { bytes } => {
                let payload = queue.take(bytes);
                self.describer.take(&self.framing, gatherer, payload, self.now, limits, out);
            }
            Front::Skip { bytes, .. } if self.is_filler(queue, bytes) => {
                queue.skip(bytes);
                self.describer.counts.filler_bytes += bytes as u64;
                return Ok(true);
            }
            Front::Skip { bytes, cause } => {
                queue.skip(bytes);
                self.describer.counts.skipped_bytes += bytes as u64;
                if !self.is_skipping {
                    gatherer.note_lost();
                    out.push(given_up(self.source(), cause));
                }
                self.is_skipping = true;
                return Ok(true);
            }
        }
        (self.search, self.is_skipping) = (Search::default(), false);
        Ok(true)
    }
}

/// Appends the frames in the front slice, except the last one if it ends with the slice, without accessing the queue
/// for each. A frame that does not belong to the source is left for the general path.
fn plain_frames(
    framing: &impl Framing,
    describer: &mut Describer,
    now: Instant,
    mut front: FrontSlice<'_>,
    out: &mut Vec<Received>,
    end: usize,
    limits: FramerLimits,
) {
    while out.len() < end {
        let bytes = front.bytes();
        let Some((length, fields)) = framing.plain(bytes) else { return };
        if length > limits.max_fragment as usize {
            return;
        }
        let (meta, restarts) = describer.describe(framing, fields, &bytes[..length], now, limits.check_crc);
        if out.len() == out.capacity() {
            out.reserve(FEW);
        }
        // Constructed in place.
        let payload = front.take_behind(0, length);
        append(out, Received { meta, restarts, payload });
    }
}

/// Handles an unknown beginning of the next frame: appends the event gathered before, which gets no more frames.
fn lose(cause: Cause, gatherer: &mut Gatherer, out: &mut Vec<Received>) -> Result<bool, Cause> {
    gatherer.note_lost();
    gatherer.give(out);
    Err(cause)
}

/// A stream of FEROL blocks.
#[derive(Debug)]
pub(super) struct FerolStream {
    source: SourceId,
    assembly: Assembly,
    /// The pieces of the fragment that has begun and not ended.
    payload: Payload,
    /// A whole fragment for which the last batch had no room.
    owed: Option<Received>,
}

impl FerolStream {
    /// Creates the stream of the source that its first block names.
    pub(super) fn new(source: SourceId, max_fragment: u32) -> Self {
        Self { source, assembly: Assembly::new(max_fragment as usize), payload: Payload::default(), owed: None }
    }

    pub(super) fn set_max_fragment(&mut self, max_fragment: u32) {
        self.assembly = Assembly::new(max_fragment as usize);
    }

    pub(super) const fn source(&self) -> SourceId {
        self.source
    }

    /// Returns the bytes of the fragment that has begun and not ended.
    pub(super) fn unfinished_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Appends whole fragments until `out` has `end` entries, or the next block is incomplete.
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

    /// Appends the fragments at the front that have one block each and lie in one slice, as nearly all do, without
    /// accessing the queue for each.
    fn take_plain(
        &self,
        queue: &mut ByteQueue,
        out: &mut Vec<Received>,
        end: usize,
        check_crc: bool,
    ) -> Result<(), Cause> {
        let Some(mut front) = queue.front_slice() else { return Ok(()) };
        // The most that there may be: a block has at least one word.
        let most = front.bytes().len() / (ferol::HEADER_BYTES + WORD_BYTES);
        out.reserve(most.min(end - out.len()));
        while out.len() < end {
            let bytes = front.bytes();
            let Some(header) = bytes.first_chunk::<{ ferol::HEADER_BYTES }>() else { break };
            let block = BlockHeader::parse(header).map_err(|error| error.cause())?;
            let fragment = bytes.get(ferol::HEADER_BYTES..block.block_bytes()).unwrap_or_default();
            let (Some(first), Some(last)) = (fragment.first_chunk(), fragment.last_chunk()) else { break };
            // A block that ends with the slice, or lies in several, is left to the queue.
            if !(block.first && block.last) || bytes.len() == block.block_bytes() {
                break;
            }
            let crc = |ends: Ends| if check_crc { Some(ends.check_crc([fragment])) } else { None };
            let meta = self.describe(&block, (*first, *last), fragment.len(), crc);
            let payload = front.take_behind(ferol::HEADER_BYTES, usize::from(block.payload_bytes));
            append(out, Received { meta, restarts: false, payload });
        }
        Ok(())
    }

    /// Takes the next block. Returns false if it is incomplete.
    fn take_block(
        &mut self,
        queue: &mut ByteQueue,
        out: &mut Vec<Received>,
        end: usize,
        check_crc: bool,
    ) -> Result<bool, Cause> {
        let Some(bytes) = queue.peek_array::<{ ferol::HEADER_BYTES }>(0) else { return Ok(false) };
        let block = BlockHeader::parse(&bytes).map_err(|error| error.cause())?;
        if queue.len() < block.block_bytes() {
            return Ok(false);
        }
        queue.skip(ferol::HEADER_BYTES);
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
            // The previous fragment, which was given up, may have taken the last place.
            if out.len() < end { out.push(whole) } else { self.owed = Some(whole) }
        }
        Ok(true)
    }

    /// Returns a whole fragment, wherever its pieces lie.
    fn whole(&self, block: &BlockHeader, payload: Payload, check_crc: bool) -> Received {
        let length = payload.len();
        let first = payload.read_array::<WORD_BYTES>(0).unwrap_or_default();
        let last = payload.read_array::<WORD_BYTES>(length.saturating_sub(WORD_BYTES)).unwrap_or_default();
        let crc = |ends: Ends| if check_crc { Some(ends.check_crc(payload.pieces())) } else { None };
        let meta = self.describe(block, (first, last), length, crc);
        Received { meta, restarts: false, payload }
    }

    /// Describes a fragment of `length` bytes by its first and last word, and flags its errors. `crc` says whether its
    /// checksum is right, if that is checked. The identity is that of its last block, and its own header must agree
    /// with it.
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
        if let Ok(header) = fed::Header::parse(first) {
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

/// Returns the flag for an error of the contents.
const fn flag(error: FedError) -> FragmentFlags {
    match error {
        FedError::Size | FedError::Header | FedError::Trailer => FragmentFlags::MALFORMED,
        FedError::Length => FragmentFlags::LENGTH_MISMATCH,
        FedError::Source => FragmentFlags::WRONG_SOURCE,
        FedError::Crc => FragmentFlags::CRC_ERROR,
    }
}

/// A stream of generic fragments, behind its hello.
#[derive(Debug)]
pub(super) struct GenericStream {
    hello: Hello,
}

impl GenericStream {
    /// Creates the stream of the source that its hello names.
    pub(super) const fn new(hello: Hello) -> Self {
        Self { hello }
    }

    pub(super) const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Appends whole fragments until `out` has `end` entries, or the next fragment is incomplete.
    pub(super) fn next_batch(
        &mut self,
        queue: &mut ByteQueue,
        out: &mut Vec<Received>,
        end: usize,
        max_fragment: u32,
    ) -> Result<(), Cause> {
        while out.len() < end {
            if let Some(front) = queue.front_slice() {
                self.take_plain(front, out, end, max_fragment);
            }
            if out.len() == end {
                break;
            }
            let Some(bytes) = queue.peek_array::<{ generic::HEADER_BYTES }>(0) else { break };
            let header = generic::Header::parse(&bytes).map_err(|error| error.cause())?;
            let checked = header.check(self.hello.source, max_fragment);
            if let Err(error) = checked
                && error.loses_framing()
            {
                return Err(error.cause());
            }
            if queue.len() < header.fragment_bytes() {
                break;
            }
            queue.skip(generic::HEADER_BYTES);
            let payload = queue.take(header.payload_bytes as usize);
            let mut meta = self.describe(&header);
            if checked.is_err() {
                meta.flags = meta.flags.with(FragmentFlags::WRONG_SOURCE);
            }
            out.push(Received { meta, restarts: header.flags.has_resync(), payload });
        }
        Ok(())
    }

    /// Appends the fragments that lie in the front slice and do not end it. Stops before an empty fragment and before one
    /// with a wrong header.
    fn take_plain(&self, mut front: FrontSlice<'_>, out: &mut Vec<Received>, end: usize, max_fragment: u32) {
        while out.len() < end {
            let bytes = front.bytes();
            let Some(Ok(header)) = bytes.first_chunk().map(generic::Header::parse) else { return };
            let is_right = header.check(self.hello.source, max_fragment).is_ok();
            if !is_right || header.payload_bytes == 0 || bytes.len() <= header.fragment_bytes() {
                return;
            }
            if out.len() == out.capacity() {
                out.reserve(FEW);
            }
            let meta = self.describe(&header);
            let payload = front.take_behind(generic::HEADER_BYTES, header.payload_bytes as usize);
            append(out, Received { meta, restarts: header.flags.has_resync(), payload });
        }
    }

    #[inline]
    fn describe(&self, header: &generic::Header) -> FragmentMeta {
        FragmentMeta {
            source: self.hello.source,
            length: header.payload_bytes,
            flags: if header.timestamp == 0 { FragmentFlags::default() } else { FragmentFlags::HAS_TIME },
            bunch_crossing: 0,
            trigger_type: 0,
            raw_id: header.event_number,
            time: header.timestamp,
        }
    }
}
