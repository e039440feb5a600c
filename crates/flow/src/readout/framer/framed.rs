//! Frames of any description in a stream of bytes.

use super::described::{Describer, FrameCounts, Queued};
use super::gatherer::Gatherer;
use super::{FramerLimits, given_up};
use crate::messages::Received;
use crate::moves::append;
use ropewalk_memory::{ByteQueue, FrontSlice};
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::description::Description;
use ropewalk_wire::framing::{Framing, Front, Search};

/// Places that are made at once where more fragments are found than there were places for.
const FEW: usize = 64;

/// A stream of frames that are described.
#[derive(Debug)]
pub(super) struct FramedStream {
    framing: Description,
    describer: Describer,
    search: Search,
    /// Since the last frame bytes were passed over: they count as one lost frame.
    is_skipping: bool,
    now: Instant,
    /// Nothing more comes.
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

    /// Nothing more comes.
    pub(super) const fn finish(&mut self) {
        self.is_over = true;
    }

    /// What comes from now on came at this time.
    pub(super) const fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Appends whole frames until `out` has `end`, or the next one has not come whole.
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

    /// Appends the frames that lie in the front slice, as far as they plainly go on.
    fn take_plain(&mut self, front: FrontSlice<'_>, out: &mut Vec<Received>, end: usize, limits: FramerLimits) {
        let (describer, now, before) = (&mut self.describer, self.now, out.len());
        // Asked here which it is, and not again for each frame.
        match &self.framing {
            Description::Layout(plan) => plain_frames(&**plan, describer, now, front, out, end, limits),
            Description::Format(format) | Description::Board(format, _) => {
                plain_frames(format, describer, now, front, out, end, limits)
            }
        }
        self.is_skipping &= out.len() == before;
    }

    /// Whether the first `bytes` are something that the format puts between frames: which their first ones show.
    fn is_filler(&self, queue: &ByteQueue, bytes: usize) -> bool {
        let mut first = [0; 8];
        let first = &mut first[..bytes.min(8)];
        queue.copy_to(0, first);
        self.framing.is_filler(first)
    }

    /// Takes what stands at the front; false where too little has come.
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

/// Appends the frames that lie in the front slice, but the last one if it ends there: straight through, and without a look at
/// the queue for each. One that is not the source's is left to be looked at again.
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
        // Made right where it belongs.
        let payload = front.take_behind(0, length);
        append(out, Received { meta, restarts, payload });
    }
}

/// Nobody knows where the next frame begins: what was gathered before that is all that comes of its event.
fn lose(cause: Cause, gatherer: &mut Gatherer, out: &mut Vec<Received>) -> Result<bool, Cause> {
    gatherer.note_lost();
    gatherer.give(out);
    Err(cause)
}
