//! Frames of any description in datagrams: one frame or several per datagram, or one frame in several datagrams.

use super::described::{Describer, FrameCounts};
use super::gatherer::Gatherer;
use super::order::Reorder;
use super::{FramerLimits, given_up};
use crate::messages::Received;
use arrayvec::ArrayVec;
use core::hash::Hasher;
use core::ops::Deref;
use core::time::Duration;
use ropewalk_memory::{Payload, Slice};
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::foreign::Counting;
use ropewalk_wire::framing::{Framing, Front, PieceHead, Search};
use std::hash::DefaultHasher;

/// Finds the frames in the datagrams of one source.
///
/// The bytes do not reveal the format, and senders cannot be held back. A datagram that is not a frame is counted under
/// its cause, and the next one is parsed independently. `F` describes the frames: for a layout it is an
/// [`Arc`](std::sync::Arc) of its [`Plan`](ropewalk_wire::layout::Plan).
#[derive(Debug)]
pub struct DatagramFramer<F> {
    framing: F,
    describer: Describer,
    limits: FramerLimits,
    assembly: Option<Assembly<Slice>>,
    /// Present if the datagrams have consecutive numbers.
    reorder: Option<Reorder<Numbered>>,
    counting: Counting,
    /// Used for sources whose events come in several frames.
    gatherer: Gatherer,
}

/// Limits of waiting for datagrams.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DatagramLimits {
    /// How long to wait for the other datagrams of a frame that is sent in several.
    pub pieces_timeout: Duration,
    /// The most frames that are assembled at a time if each is sent in several datagrams. When a further one begins,
    /// the oldest is given up.
    pub open_frames: usize,
    /// The most datagrams that wait at a time for others that they overtook; 0 if none waits.
    pub reorder: usize,
    /// How long each of them waits.
    pub reorder_timeout: Duration,
    /// Which of their numbers determines their order.
    pub counting: Counting,
}

/// A waiting datagram, and the number of its last frame.
#[derive(Debug)]
struct Numbered {
    last: u64,
    datagram: Slice,
}

impl DatagramLimits {
    /// The default limits.
    pub const USUAL: Self = Self {
        pieces_timeout: Duration::from_millis(100),
        open_frames: 64,
        reorder: 8,
        reorder_timeout: Duration::from_millis(5),
        counting: Counting::Nothing,
    };
}

impl<F: Framing> DatagramFramer<F> {
    /// Creates a framer for the datagrams of this source.
    pub fn new(source: SourceId, framing: F, limits: FramerLimits, waits: DatagramLimits) -> Self {
        let most = framing.most().min(limits.max_fragment as usize);
        let is_in_pieces = framing.comes_in_pieces();
        let assembly = Assembly::new(most, waits.open_frames, waits.pieces_timeout);
        let assembly = is_in_pieces.then(|| assembly.preallocated());
        let bits = match waits.counting {
            Counting::Frames => framing.widths().sequence,
            Counting::Events | Counting::Places | Counting::Nothing => framing.widths().event,
        };
        let is_ordered =
            matches!(waits.counting, Counting::Events | Counting::Frames) && waits.reorder > 0 && !is_in_pieces;
        let reorder = is_ordered.then(|| Reorder::new(bits, waits.reorder, waits.reorder_timeout));
        let describer = Describer::new(source, &framing, 1);
        Self { describer, framing, limits, assembly, reorder, counting: waits.counting, gatherer: Gatherer::default() }
    }

    /// Counts frames without a number from `first` on instead of 1.
    #[must_use]
    pub fn counting_from(mut self, first: u64) -> Self {
        self.describer = Describer::new(self.describer.source(), &self.framing, first);
        self
    }

    /// Returns the source of the datagrams.
    pub const fn source(&self) -> SourceId {
        self.describer.source()
    }

    /// Returns the description of the frames.
    pub const fn framing(&self) -> &F {
        &self.framing
    }

    /// Returns the counts since the last call, besides those of frames.
    pub const fn take_counts(&mut self) -> FrameCounts {
        let mut counts = core::mem::replace(&mut self.describer.counts, FrameCounts::NONE);
        if let Some(reorder) = &mut self.reorder {
            counts.out_of_order += reorder.take_overtaken();
        }
        self.gatherer.add_counts(counts)
    }

    /// Parses a datagram; `is_cut` says that it was longer than its buffer. Appends its frames to `out`, and for each
    /// lost one an entry with the cause, as [`Framer::next_batch`](super::Framer::next_batch) does.
    pub fn push(&mut self, now: Instant, datagram: Slice, is_cut: bool, out: &mut Vec<Received>) {
        if self.assembly.is_some() {
            self.push_piece(now, datagram, is_cut, out);
        } else if let Some((first, last)) = self.numbers_of(&datagram, is_cut) {
            self.push_in_order(now, first, Numbered { last, datagram }, out);
        } else {
            self.push_frames(now, datagram, is_cut, out);
        }
        self.gatherer.give_whole(out);
    }

    /// Handles an empty datagram.
    pub fn push_empty(&mut self, out: &mut Vec<Received>) {
        self.give_up(Cause::ShortPacket, out);
        self.gatherer.give_whole(out);
    }

    /// Returns the numbers of a datagram's first and last frame; `None` if their order does not matter, or they cannot
    /// be read.
    fn numbers_of(&self, datagram: &[u8], is_cut: bool) -> Option<(u64, u64)> {
        self.reorder.as_ref().filter(|_| !is_cut)?;
        let (mut rest, mut numbers) = (datagram, None);
        while !rest.is_empty() {
            let Front::Frame { bytes } = self.framing.front(rest, &mut Search::default()) else { break };
            let (frame, behind) = rest.split_at_checked(bytes)?;
            let fields = self.framing.is_matched(frame).then(|| self.framing.fields(frame))?;
            let number = if self.counting == Counting::Frames { fields.sequence } else { fields.event }?;
            numbers = Some((numbers.map_or(number, |(first, _)| first), number));
            rest = behind;
        }
        numbers
    }

    /// Parses a datagram in its turn, and the datagrams that waited for it.
    fn push_in_order(&mut self, now: Instant, first: u64, one: Numbered, out: &mut Vec<Received>) {
        let Some(reorder) = &mut self.reorder else { return };
        if reorder.is_next(first) {
            reorder.pass(one.last);
            return self.push_frames(now, one.datagram, false, out);
        }
        if let Some(behind) = reorder.put(now, first, one) {
            self.push_frames(now, behind.datagram, false, out);
        }
        // The datagrams that it overtook may have arrived too, and still be in the socket until this process runs.
        self.push_waiting(now, false, out);
    }

    /// Parses the datagrams that no longer need to wait. `is_all` says that all datagrams that arrived until now were
    /// pushed.
    fn push_waiting(&mut self, now: Instant, is_all: bool, out: &mut Vec<Received>) {
        while let Some(reorder) = &mut self.reorder
            && let Some((number, Numbered { last, datagram })) = reorder.pop(is_all.then_some(now))
        {
            if number != last {
                reorder.pass(last);
            }
            self.push_frames(now, datagram, false, out);
        }
    }

    fn push_frames(&mut self, now: Instant, datagram: Slice, is_cut: bool, out: &mut Vec<Received>) {
        let (mut rest, mut search, mut is_skipping) = (datagram, Search::default(), false);
        loop {
            match self.framing.front(&rest[..], &mut search) {
                // A cut datagram lost the end of its last frame, or ends just behind it; these cases cannot be
                // distinguished.
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
                Front::Needs { .. } | Front::Lost { .. } if is_skipping => {
                    self.describer.counts.skipped_bytes += rest.len() as u64;
                    return;
                }
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
        if datagram.iter().all(|&byte| byte == 0) {
            self.describer.counts.skipped_bytes += datagram.len() as u64;
            return self.give_up(Cause::Malformed, out);
        }
        if is_cut {
            // The frame is given up after its time-out: other pieces of it are on their way.
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

    /// Releases datagrams that have waited long enough for others that they overtook. All datagrams that arrived until
    /// now must have been pushed.
    pub fn end_waits(&mut self, now: Instant, out: &mut Vec<Received>) {
        self.push_waiting(now, true, out);
    }

    /// Applies the time-outs. All datagrams that arrived until now must have been pushed. Frames whose other datagrams
    /// did not arrive are given up, and an event whose other frames did not arrive is complete.
    pub fn advance(&mut self, now: Instant, out: &mut Vec<Received>) {
        self.end_waits(now, out);
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

    /// Returns when [`DatagramFramer::advance`] is due even without input.
    pub fn next_deadline(&self) -> Option<Instant> {
        let pieces = self.assembly.as_ref().and_then(Assembly::next_deadline);
        let frames = self.limits.gather.and_then(|timeout| self.gatherer.next_deadline(timeout));
        let overtaking = self.reorder.as_ref().and_then(Reorder::next_deadline);
        pieces.into_iter().chain(frames).chain(overtaking).min()
    }

    /// Returns the number of frames of which some datagrams have arrived and others have not.
    pub fn unfinished(&self) -> usize {
        self.assembly.as_ref().map_or(0, Assembly::unfinished)
    }

    /// Ends the input: waiting datagrams are parsed, incomplete frames are given up, and the event whose frames were
    /// gathered is appended, if there is one.
    pub fn end(&mut self, now: Instant, out: &mut Vec<Received>) {
        self.reorder.iter_mut().for_each(Reorder::flush);
        self.push_waiting(now, true, out);
        let unfinished = self.assembly.as_mut().map_or(0, Assembly::give_up_all);
        for _ in 0..unfinished {
            self.give_up(Cause::PiecesMissing, out);
        }
        self.gatherer.give(out);
    }

    /// Drops waiting datagrams, incomplete frames and gathered frames. Returns how many fragments they were.
    pub fn abandon(&mut self) -> u64 {
        let unfinished = self.assembly.as_mut().map_or(0, Assembly::give_up_all);
        let waiting = self.reorder.as_mut().map_or(0, Reorder::clear);
        self.gatherer.abandon() + (unfinished + waiting) as u64
    }

    fn take(&mut self, now: Instant, payload: Payload, out: &mut Vec<Received>) {
        self.describer.take(&self.framing, &mut self.gatherer, payload, now, self.limits, out);
    }

    fn give_up(&mut self, cause: Cause, out: &mut Vec<Received>) {
        self.gatherer.note_lost();
        out.push(given_up(self.source(), cause));
    }
}

/// Bytes of the longest frame per piece that a frame may have; at least [`LEAST_PIECES`] are allowed.
const BYTES_PER_PIECE: usize = 512;
const LEAST_PIECES: usize = 1024;
const MOST_PIECES: usize = 8192;

/// Number of pieces of a completed frame that are recognised when they are repeated.
const KNOWN_PIECES: usize = 8;

/// Number of bytes at the beginning, in the middle and at the end of a body that distinguish it from another one.
const SAMPLE: usize = 16;

/// The bytes of a datagram.
pub(crate) trait Piece: Deref<Target = [u8]> {
    /// The result of assembling a frame.
    type Whole: Default;

    /// Appends the bytes after the first `skipped` ones.
    fn append_to(self, whole: &mut Self::Whole, skipped: usize);
}

impl Piece for Slice {
    type Whole = Payload;

    fn append_to(mut self, whole: &mut Payload, skipped: usize) {
        if skipped > 0 {
            self.skip(skipped);
        }
        whole.push(self);
    }
}

impl Piece for Vec<u8> {
    type Whole = Self;

    fn append_to(self, whole: &mut Self, skipped: usize) {
        whole.extend_from_slice(&self[skipped..]);
    }
}

/// A frame of which some pieces have arrived.
#[derive(Debug)]
struct Unfinished<P> {
    frame: u64,
    begun: Instant,
    /// Bytes of the bodies.
    bytes: usize,
    whole: Option<u64>,
    /// The datagrams with their places, in the order of the places.
    pieces: Vec<(u64, P)>,
    header: usize,
}

/// A frame that was completed or given up.
#[derive(Debug)]
struct Done {
    frame: u64,
    at: Instant,
    /// The places and digests of its first pieces, if it was completed.
    pieces: ArrayVec<(u64, u64), KNOWN_PIECES>,
}

impl Done {
    /// Whether a piece has other bytes than the known one of this frame.
    fn contradicts(&self, head: &PieceHead, datagram: &[u8]) -> bool {
        let known = self.pieces.iter().find(|(place, _)| *place == head.place);
        known.is_some_and(|&(_, known)| known != digest(datagram, head.header))
    }
}

/// Returns a digest that most probably distinguishes a body from another one.
fn digest(datagram: &[u8], header: usize) -> u64 {
    let body = datagram.get(header..).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    hasher.write_usize(body.len());
    for from in [0, (body.len() / 2).saturating_sub(SAMPLE / 2), body.len().saturating_sub(SAMPLE)] {
        hasher.write(&body[from..body.len().min(from + SAMPLE)]);
    }
    hasher.finish()
}

/// The result of placing a piece.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Placed<W> {
    /// Its frame is complete.
    Whole(W),
    /// Other pieces are missing.
    Waits,
    /// The piece was already present, or its frame was completed or given up.
    Repeated,
    /// Its frame is given up, for this cause.
    GivenUp(Cause),
}

/// Assembles frames that come in the bodies of several datagrams, without a copy. The number of open frames is limited,
/// and so are the bytes and pieces of each.
///
/// A piece of a frame that was completed shortly before is a repetition. A piece that comes after the time-out of its
/// frame, or with other bytes than before, belongs to another frame with the same number: the sender was restarted.
#[derive(Debug)]
pub(crate) struct Assembly<P> {
    most: usize,
    most_pieces: usize,
    timeout: Duration,
    unfinished: Vec<Unfinished<P>>,
    /// Unused arrays for the pieces of further frames.
    spare: Vec<Vec<(u64, P)>>,
    /// Frames that were completed or given up, twice as many as can be open.
    done: Vec<Done>,
    next_done: usize,
}

impl<P: Piece> Assembly<P> {
    /// Creates an assembly of up to `open` frames at a time, of at most `most` bytes each. Frames that are incomplete
    /// after `timeout` are given up.
    pub(crate) fn new(most: usize, open: usize, timeout: Duration) -> Self {
        let open = open.max(1);
        let most_pieces = (most / BYTES_PER_PIECE + 1).clamp(LEAST_PIECES, MOST_PIECES);
        let (unfinished, done) = (Vec::with_capacity(open), Vec::with_capacity(2 * open));
        Self { most, most_pieces, timeout, unfinished, spare: Vec::new(), done, next_done: 0 }
    }

    /// Allocates the arrays for all pieces at once.
    fn preallocated(mut self) -> Self {
        self.spare.resize_with(self.unfinished.capacity(), || Vec::with_capacity(self.most_pieces));
        self
    }

    /// Places a datagram with its header. If it begins a frame for which there is no room, the loss of the oldest frame
    /// is reported to `lost`.
    pub(crate) fn place(
        &mut self,
        now: Instant,
        head: &PieceHead,
        datagram: P,
        lost: &mut dyn FnMut(Cause),
    ) -> Placed<P::Whole> {
        let Some(body) = datagram.len().checked_sub(head.header) else { return Placed::GivenUp(Cause::ShortPacket) };
        let known = self.unfinished.iter().position(|unfinished| unfinished.frame == head.frame);
        let index = match known {
            Some(index) if self.unfinished[index].contradicts(head, &datagram) => {
                // The piece belongs to another frame with the same number.
                self.unfinished.swap_remove(index).release(&mut self.spare);
                lost(Cause::PiecesMissing);
                self.begin(now, head, lost)
            }
            Some(index) => index,
            None if self.was_done(now, head, &datagram) => return Placed::Repeated,
            None => self.begin(now, head, lost),
        };
        let unfinished = &mut self.unfinished[index];
        match unfinished
            .put(head, body, datagram, self.most, self.most_pieces)
            .and_then(|put| unfinished.is_whole(head).map(|whole| (put, whole)))
        {
            Ok((Put::Twice, _)) => Placed::Repeated,
            Ok((Put::Once, false)) => Placed::Waits,
            Ok((Put::Once, true)) => {
                let pieces = unfinished.digests();
                let whole = unfinished.join();
                self.end(now, index, pieces);
                Placed::Whole(whole)
            }
            Err(cause) => {
                self.end(now, index, ArrayVec::new());
                Placed::GivenUp(cause)
            }
        }
    }

    fn begin(&mut self, now: Instant, head: &PieceHead, lost: &mut dyn FnMut(Cause)) -> usize {
        if self.unfinished.len() == self.unfinished.capacity() {
            let oldest = (0..self.unfinished.len()).min_by_key(|&index| self.unfinished[index].begun).unwrap_or(0);
            self.end(now, oldest, ArrayVec::new());
            lost(Cause::PiecesMissing);
        }
        let pieces = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(self.most_pieces));
        let unfinished =
            Unfinished { frame: head.frame, begun: now, bytes: 0, whole: None, pieces, header: head.header };
        self.unfinished.push(unfinished);
        self.unfinished.len() - 1
    }

    /// Whether this piece belongs to a frame that was completed or given up within the last time-out.
    fn was_done(&self, now: Instant, head: &PieceHead, datagram: &[u8]) -> bool {
        let is_it = |done: &Done| done.frame == head.frame && now <= done.at.after(self.timeout);
        self.done.iter().any(|done| is_it(done) && !done.contradicts(head, datagram))
    }

    /// Ends a frame; if it is complete, with digests of its pieces.
    fn end(&mut self, now: Instant, index: usize, pieces: ArrayVec<(u64, u64), KNOWN_PIECES>) {
        let unfinished = self.unfinished.swap_remove(index);
        let done = Done { frame: unfinished.frame, at: now, pieces };
        if self.done.len() < self.done.capacity() {
            self.done.push(done);
        } else {
            self.done[self.next_done] = done;
            self.next_done = (self.next_done + 1) % self.done.len();
        }
        unfinished.release(&mut self.spare);
    }

    /// Gives up all incomplete frames at the end of the input. Returns how many there were.
    pub(crate) fn give_up_all(&mut self) -> usize {
        let count = self.unfinished.len();
        self.unfinished.drain(..).for_each(|unfinished| unfinished.release(&mut self.spare));
        count
    }

    /// Gives up the frames whose time-out has passed. Returns how many there were.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        let before = self.unfinished.len();
        for index in (0..before).rev() {
            let over = self.unfinished[index].begun.after(self.timeout);
            if now >= over {
                self.end(over, index, ArrayVec::new());
            }
        }
        before - self.unfinished.len()
    }

    /// Returns when the next frame times out.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.unfinished.iter().map(|unfinished| unfinished.begun.after(self.timeout)).min()
    }

    /// Returns the number of open frames.
    pub(crate) const fn unfinished(&self) -> usize {
        self.unfinished.len()
    }
}

enum Put {
    Once,
    Twice,
}

impl<P: Piece> Unfinished<P> {
    /// Whether a piece with the same place and other bytes is already present.
    fn contradicts(&self, head: &PieceHead, datagram: &P) -> bool {
        let at = self.pieces.partition_point(|(place, _)| *place < head.place);
        self.pieces.get(at).is_some_and(|(place, there)| *place == head.place && **there != **datagram)
    }

    /// Returns the places and digests of its first pieces.
    fn digests(&self) -> ArrayVec<(u64, u64), KNOWN_PIECES> {
        let first = self.pieces.iter().take(KNOWN_PIECES);
        first.map(|(place, datagram)| (*place, digest(datagram, self.header))).collect()
    }

    /// Drops its pieces, and returns the memory to `spare`.
    fn release(mut self, spare: &mut Vec<Vec<(u64, P)>>) {
        self.pieces.clear();
        spare.push(self.pieces);
    }

    /// Puts a piece in its place.
    fn put(
        &mut self,
        head: &PieceHead,
        body: usize,
        datagram: P,
        most: usize,
        most_pieces: usize,
    ) -> Result<Put, Cause> {
        let at = self.pieces.partition_point(|(place, _)| *place < head.place);
        if self.pieces.get(at).is_some_and(|(place, _)| *place == head.place) {
            return Ok(Put::Twice);
        }
        if matches!((self.whole, head.whole), (Some(one), Some(other)) if one != other) {
            return Err(Cause::PiecesMissing);
        }
        let longest = (most - self.header.min(most)) as u64;
        let is_long = self.bytes + body > longest as usize || head.is_in_bytes && head.whole > Some(longest);
        if is_long || self.pieces.len() == most_pieces {
            return Err(Cause::Oversize);
        }
        self.whole = self.whole.or(head.whole);
        self.bytes += body;
        self.pieces.insert(at, (head.place, datagram));
        Ok(Put::Once)
    }

    /// Whether the frame is complete.
    fn is_whole(&self, head: &PieceHead) -> Result<bool, Cause> {
        let Some(whole) = self.whole else { return Ok(false) };
        let last = self.pieces.last().map_or(0, |(place, _)| *place);
        let (have, fits) = if head.is_in_bytes {
            (self.bytes as u64, last <= whole)
        } else {
            (self.pieces.len() as u64, last < whole)
        };
        if have < whole && fits {
            return Ok(false);
        }
        let is_right = have == whole && fits && (!head.is_in_bytes || self.is_gapless());
        if is_right { Ok(true) } else { Err(Cause::PiecesMissing) }
    }

    /// Whether each body begins where the previous one ends.
    fn is_gapless(&self) -> bool {
        let mut next = 0;
        self.pieces.iter().all(|(place, datagram)| {
            let begins = *place == next;
            next += (datagram.len() - self.header) as u64;
            begins
        })
    }

    /// Joins the first datagram and the bodies of the others.
    fn join(&mut self) -> P::Whole {
        let (header, mut whole) = (self.header, P::Whole::default());
        for (index, (_, datagram)) in self.pieces.drain(..).enumerate() {
            datagram.append_to(&mut whole, if index > 0 { header } else { 0 });
        }
        whole
    }
}
