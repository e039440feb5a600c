//! Frames that come in the bodies of several datagrams are put together where they lie.
//!
//! What comes again of a frame that was done shortly before is a repetition. What comes after longer than frames are waited for, or
//! with other bytes than before, is of another frame with the same number: the sender was started again.

use arrayvec::ArrayVec;
use core::hash::Hasher;
use core::ops::Deref;
use core::time::Duration;
use ropewalk_memory::{Payload, Slice};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::framing::PieceHead;
use std::hash::DefaultHasher;

/// A frame may have one piece for so many bytes of the longest frame, and at least [`LEAST_PIECES`].
const BYTES_PER_PIECE: usize = 512;
const LEAST_PIECES: usize = 1024;
const MOST_PIECES: usize = 8192;

/// So many pieces of a frame that was done are known again.
const KNOWN_PIECES: usize = 8;

/// So many bytes at the begin, in the middle and at the end of a body tell it from another one.
const SAMPLE: usize = 16;

/// The bytes of a datagram.
pub(crate) trait Piece: Deref<Target = [u8]> {
    /// What a frame is put together to.
    type Whole: Default;

    /// Appends the bytes behind the first `skipped` ones.
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

/// A frame of which something came.
#[derive(Debug)]
struct Unfinished<P> {
    frame: u64,
    begun: Instant,
    /// Bytes of the bodies.
    bytes: usize,
    whole: Option<u64>,
    /// The datagrams with their places, in the order of these.
    pieces: Vec<(u64, P)>,
    header: usize,
}

/// A frame that was whole or given up.
#[derive(Debug)]
struct Done {
    frame: u64,
    at: Instant,
    /// Its first pieces, where it was whole: their places, and digests of their bytes.
    pieces: ArrayVec<(u64, u64), KNOWN_PIECES>,
}

impl Done {
    /// Whether a piece has other bytes than the one of this frame.
    fn contradicts(&self, head: &PieceHead, datagram: &[u8]) -> bool {
        let known = self.pieces.iter().find(|(place, _)| *place == head.place);
        known.is_some_and(|&(_, known)| known != digest(datagram, head.header))
    }
}

/// What tells a body from another one, most probably.
fn digest(datagram: &[u8], header: usize) -> u64 {
    let body = datagram.get(header..).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    hasher.write_usize(body.len());
    for from in [0, (body.len() / 2).saturating_sub(SAMPLE / 2), body.len().saturating_sub(SAMPLE)] {
        hasher.write(&body[from..body.len().min(from + SAMPLE)]);
    }
    hasher.finish()
}

/// What came of a piece.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Placed<W> {
    /// Its frame is whole.
    Whole(W),
    /// Others are needed.
    Waits,
    /// It was there already, or its frame was done.
    Repeated,
    /// Its frame is given up, for this cause.
    GivenUp(Cause),
}

/// Frames on their way: at most so many, of at most so many bytes and pieces each.
#[derive(Debug)]
pub(crate) struct Assembly<P> {
    most: usize,
    most_pieces: usize,
    timeout: Duration,
    unfinished: Vec<Unfinished<P>>,
    /// Places for the pieces of further frames.
    spare: Vec<Vec<(u64, P)>>,
    /// Frames that were done, twice as many as can be open.
    done: Vec<Done>,
    next_done: usize,
}

impl<P: Piece> Assembly<P> {
    /// Frames of at most `most` bytes, `open` of them at a time, which are given up when they are not whole after `timeout`.
    pub(crate) fn new(most: usize, open: usize, timeout: Duration) -> Self {
        let open = open.max(1);
        let most_pieces = (most / BYTES_PER_PIECE + 1).clamp(LEAST_PIECES, MOST_PIECES);
        let (unfinished, done) = (Vec::with_capacity(open), Vec::with_capacity(2 * open));
        Self { most, most_pieces, timeout, unfinished, spare: Vec::new(), done, next_done: 0 }
    }

    /// Allocates places for all pieces at once.
    pub(super) fn preallocated(mut self) -> Self {
        self.spare.resize_with(self.unfinished.capacity(), || Vec::with_capacity(self.most_pieces));
        self
    }

    /// Takes a datagram with its header. Where it begins another frame than there are places for, the oldest one's loss is
    /// told to `lost`.
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
                // Another frame with the same number.
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

    /// Whether this piece is of a frame that was done no longer ago than frames are waited for.
    fn was_done(&self, now: Instant, head: &PieceHead, datagram: &[u8]) -> bool {
        let is_it = |done: &Done| done.frame == head.frame && now <= done.at.after(self.timeout);
        self.done.iter().any(|done| is_it(done) && !done.contradicts(head, datagram))
    }

    /// A frame is done; where it is whole, with digests of its pieces.
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

    /// Nothing more comes: gives up all frames that are not whole, and says how many those are.
    pub(crate) fn give_up_all(&mut self) -> usize {
        let count = self.unfinished.len();
        self.unfinished.drain(..).for_each(|unfinished| unfinished.release(&mut self.spare));
        count
    }

    /// Gives up the frames whose time is over; says how many those are.
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

    /// When the next frame's time is over.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.unfinished.iter().map(|unfinished| unfinished.begun.after(self.timeout)).min()
    }

    /// Frames of which something is there.
    pub(crate) const fn unfinished(&self) -> usize {
        self.unfinished.len()
    }
}

enum Put {
    Once,
    Twice,
}

impl<P: Piece> Unfinished<P> {
    /// Whether a piece stands in the place of another one that has other bytes.
    fn contradicts(&self, head: &PieceHead, datagram: &P) -> bool {
        let at = self.pieces.partition_point(|(place, _)| *place < head.place);
        self.pieces.get(at).is_some_and(|(place, there)| *place == head.place && **there != **datagram)
    }

    /// The places of its first pieces, and digests of their bytes.
    fn digests(&self) -> ArrayVec<(u64, u64), KNOWN_PIECES> {
        let first = self.pieces.iter().take(KNOWN_PIECES);
        first.map(|(place, datagram)| (*place, digest(datagram, self.header))).collect()
    }

    /// Lets go of its pieces, and gives the room for them back.
    fn release(mut self, spare: &mut Vec<Vec<(u64, P)>>) {
        self.pieces.clear();
        spare.push(self.pieces);
    }

    /// Puts a piece to its place.
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

    /// Whether all of it is there.
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

    /// Whether each body begins where the one before it ends.
    fn is_gapless(&self) -> bool {
        let mut next = 0;
        self.pieces.iter().all(|(place, datagram)| {
            let begins = *place == next;
            next += (datagram.len() - self.header) as u64;
            begins
        })
    }

    /// The first datagram, and the bodies of the others.
    fn join(&mut self) -> P::Whole {
        let (header, mut whole) = (self.header, P::Whole::default());
        for (index, (_, datagram)) in self.pieces.drain(..).enumerate() {
            datagram.append_to(&mut whole, if index > 0 { header } else { 0 });
        }
        whole
    }
}
