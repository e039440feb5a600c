//! Frames of any description in datagrams: one in each, several in each, or one in several.

use super::described::{Describer, FrameCounts};
use super::gatherer::Gatherer;
use super::pieces::{Assembly, Placed};
use super::{FramerLimits, given_up};
use crate::messages::Received;
use core::time::Duration;
use ropewalk_memory::{Payload, Slice};
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::framing::{Framing, Front, Search};

/// Finds the frames in the datagrams of one source.
///
/// Nothing is recognised from the bytes, and nobody can be held back: a datagram that is no frame is counted under its
/// cause, and the next one is looked at afresh. `F` is what describes the frames: for a layout an
/// [`Arc`](std::sync::Arc) of its [`Plan`](ropewalk_wire::layout::Plan).
#[derive(Debug)]
pub struct DatagramFramer<F> {
    framing: F,
    describer: Describer,
    limits: FramerLimits,
    assembly: Option<Assembly>,
    /// Of sources whose events come in several frames.
    gatherer: Gatherer,
}

/// How long the datagrams of a frame are waited for, where nothing else is said.
pub const PIECES_TIMEOUT: Duration = Duration::from_millis(100);

impl<F: Framing> DatagramFramer<F> {
    /// A framer for the datagrams of this source. `timeout`: how long the others of a frame are waited for where it is sent in
    /// several.
    pub fn new(source: SourceId, framing: F, limits: FramerLimits, timeout: Duration) -> Self {
        let most = framing.most().min(limits.max_fragment as usize);
        let assembly = framing.comes_in_pieces().then(|| Assembly::new(most, timeout));
        let describer = Describer::new(source, &framing);
        Self { describer, framing, limits, assembly, gatherer: Gatherer::default() }
    }

    /// Whose datagrams they are.
    pub const fn source(&self) -> SourceId {
        self.describer.source()
    }

    /// What describes them.
    pub const fn framing(&self) -> &F {
        &self.framing
    }

    /// What was seen beside the frames since it was asked last.
    pub const fn take_counts(&mut self) -> FrameCounts {
        let counts = core::mem::replace(&mut self.describer.counts, FrameCounts::NONE);
        self.gatherer.add_counts(counts)
    }

    /// A datagram came; `is_cut` where it was longer than the room that was given to it. Its frames are appended to `out`,
    /// and in the place of each that is lost an entry with the cause, as in [`Framer::next_batch`](super::Framer::next_batch).
    pub fn push(&mut self, now: Instant, datagram: Slice, is_cut: bool, out: &mut Vec<Received>) {
        if self.assembly.is_some() {
            self.push_piece(now, datagram, is_cut, out);
        } else {
            self.push_frames(now, datagram, is_cut, out);
        }
        self.gatherer.give_whole(out);
    }

    fn push_frames(&mut self, now: Instant, datagram: Slice, is_cut: bool, out: &mut Vec<Received>) {
        let (mut rest, mut search, mut is_skipping) = (datagram, Search::default(), false);
        loop {
            match self.framing.front(&rest[..], &mut search) {
                // Whoever cut it cut its last frame, and nobody knows whether that was the end.
                Front::Frame { bytes } if is_cut && bytes == rest.len() => return self.give_up(Cause::Truncated, out),
                Front::Frame { bytes } if bytes > self.limits.max_fragment as usize => {
                    return self.give_up(Cause::Oversize, out);
                }
                Front::Frame { bytes } if bytes == rest.len() => return self.take(now, rest.into(), out),
                Front::Frame { bytes } => {
                    self.take(now, rest.split_to(bytes).into(), out);
                    (search, is_skipping) = (Search::default(), false);
                }
                Front::Skip { bytes, cause } => {
                    rest.skip(bytes);
                    self.describer.counts.skipped_bytes += bytes as u64;
                    if !is_skipping {
                        self.give_up(cause, out);
                    }
                    is_skipping = true;
                    if rest.is_empty() {
                        return;
                    }
                }
                Front::Needs { .. } | Front::Lost { .. } if is_skipping => return,
                Front::Needs { .. } => {
                    return self.give_up(if is_cut { Cause::Truncated } else { Cause::ShortPacket }, out);
                }
                Front::Lost { cause } => return self.give_up(cause, out),
            }
        }
    }

    fn push_piece(&mut self, now: Instant, datagram: Slice, is_cut: bool, out: &mut Vec<Received>) {
        let head = self.framing.piece(&datagram[..]);
        let (Some(assembly), Some(head)) = (&mut self.assembly, head) else {
            return self.give_up(if is_cut { Cause::Truncated } else { Cause::ShortPacket }, out);
        };
        if is_cut {
            // The frame is given up when its time is over: other pieces of it are on their way.
            self.describer.counts.skipped_bytes += datagram.len() as u64;
            return;
        }
        let source = self.describer.source();
        let placed = assembly.place(now, &head, datagram, &mut |cause| out.push(given_up(source, cause)));
        match placed {
            Placed::Waits => {}
            Placed::Repeated => self.describer.counts.repeated += 1,
            Placed::GivenUp(cause) => self.give_up(cause, out),
            Placed::Whole(payload) => self.take(now, payload, out),
        }
    }

    /// Time passes, and everything that came until now was pushed: frames whose other datagrams did not come are given up, and
    /// an event whose other frames did not come is whole.
    pub fn advance(&mut self, now: Instant, out: &mut Vec<Received>) {
        let expired = self.assembly.as_mut().map_or(0, |assembly| assembly.expire(now));
        for _ in 0..expired {
            self.give_up(Cause::PiecesMissing, out);
        }
        if let Some(timeout) = self.limits.gather
            && self.gatherer.settle(now, true, timeout)
        {
            self.gatherer.give(out);
        }
    }

    /// When [`DatagramFramer::advance`] is due even if nothing comes.
    pub fn next_deadline(&self) -> Option<Instant> {
        let pieces = self.assembly.as_ref().and_then(Assembly::next_deadline);
        let frames = self.limits.gather.and_then(|timeout| self.gatherer.next_deadline(timeout));
        pieces.into_iter().chain(frames).min()
    }

    /// Frames of which some datagrams came and others did not yet.
    pub fn unfinished(&self) -> usize {
        self.assembly.as_ref().map_or(0, Assembly::unfinished)
    }

    /// Nothing more comes: appends the event whose frames were gathered, if there is one.
    pub fn end(&mut self, out: &mut Vec<Received>) {
        self.gatherer.give(out);
    }

    /// Drops what was gathered, and says how many fragments that were.
    pub fn abandon(&mut self) -> u64 {
        self.gatherer.abandon()
    }

    fn take(&mut self, now: Instant, payload: Payload, out: &mut Vec<Received>) {
        self.describer.take(&self.framing, &mut self.gatherer, payload, now, self.limits, out);
    }

    fn give_up(&mut self, cause: Cause, out: &mut Vec<Received>) {
        self.gatherer.note_lost();
        out.push(given_up(self.source(), cause));
    }
}
