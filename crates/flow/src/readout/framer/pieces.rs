//! Frames that come in the bodies of several datagrams are put together where they lie.
//!
//! What comes again of a frame that was done shortly before is a repetition. What comes after longer than frames are waited for, or
//! with other bytes than before, is of another frame with the same number: the sender was started again.

use core::time::Duration;
use ropewalk_memory::{Payload, Slice};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::framing::PieceHead;

/// Bodies are believed to have so many bytes on the average: places for them are laid out before.
const USUAL_BODY: usize = 512;
const MOST_PIECES: usize = 8192;

/// A frame of which something came.
#[derive(Debug)]
struct Unfinished {
    frame: u64,
    begun: Instant,
    /// Bytes of the bodies.
    bytes: usize,
    whole: Option<u64>,
    /// The datagrams with their places, in the order of these.
    pieces: Vec<(u64, Slice)>,
    header: usize,
}

/// What came of a piece.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Placed {
    /// Its frame is whole.
    Whole(Payload),
    /// Others are needed.
    Waits,
    /// It was there already, or its frame was done.
    Repeated,
    /// Its frame is given up, for this cause.
    GivenUp(Cause),
}

/// Frames on their way: at most so many, of at most so many bytes and pieces each.
#[derive(Debug)]
pub(super) struct Assembly {
    most: usize,
    timeout: Duration,
    unfinished: Vec<Unfinished>,
    /// Places for the pieces of further frames.
    spare: Vec<Vec<(u64, Slice)>>,
    /// Frames that were done or given up, twice as many as can be open, each with when that was.
    done: Vec<(u64, Instant)>,
    next_done: usize,
}

impl Assembly {
    /// Frames of at most `most` bytes, `open` of them at a time, which are given up when they are not whole after `timeout`.
    pub(super) fn new(most: usize, open: usize, timeout: Duration) -> Self {
        let (pieces, open) = ((most / USUAL_BODY + 1).clamp(16, MOST_PIECES), open.max(1));
        let spare = (0..open).map(|_| Vec::with_capacity(pieces)).collect();
        let (unfinished, done) = (Vec::with_capacity(open), Vec::with_capacity(2 * open));
        Self { most, timeout, unfinished, spare, done, next_done: 0 }
    }

    /// Takes a datagram with its header. Where it begins another frame than there are places for, the oldest one's loss is
    /// told to `lost`.
    pub(super) fn place(
        &mut self,
        now: Instant,
        head: &PieceHead,
        datagram: Slice,
        lost: &mut dyn FnMut(Cause),
    ) -> Placed {
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
            None if self.was_done(now, head.frame) => return Placed::Repeated,
            None => self.begin(now, head, lost),
        };
        let unfinished = &mut self.unfinished[index];
        match unfinished
            .put(head, body, datagram, self.most)
            .and_then(|put| unfinished.is_whole(head).map(|whole| (put, whole)))
        {
            Ok((Put::Twice, _)) => Placed::Repeated,
            Ok((Put::Once, false)) => Placed::Waits,
            Ok((Put::Once, true)) => {
                let payload = unfinished.payload();
                self.end(now, index);
                Placed::Whole(payload)
            }
            Err(cause) => {
                self.end(now, index);
                Placed::GivenUp(cause)
            }
        }
    }

    fn begin(&mut self, now: Instant, head: &PieceHead, lost: &mut dyn FnMut(Cause)) -> usize {
        if self.unfinished.len() == self.unfinished.capacity() {
            let oldest = (0..self.unfinished.len()).min_by_key(|&index| self.unfinished[index].begun).unwrap_or(0);
            self.end(now, oldest);
            lost(Cause::PiecesMissing);
        }
        let pieces = self.spare.pop().unwrap_or_default();
        let unfinished =
            Unfinished { frame: head.frame, begun: now, bytes: 0, whole: None, pieces, header: head.header };
        self.unfinished.push(unfinished);
        self.unfinished.len() - 1
    }

    /// Whether a frame with this number was done no longer ago than frames are waited for.
    fn was_done(&self, now: Instant, frame: u64) -> bool {
        self.done.iter().any(|&(done, at)| done == frame && now <= at.after(self.timeout))
    }

    /// A frame is done, whole or not.
    fn end(&mut self, now: Instant, index: usize) {
        let unfinished = self.unfinished.swap_remove(index);
        let done = (unfinished.frame, now);
        if self.done.len() < self.done.capacity() {
            self.done.push(done);
        } else {
            self.done[self.next_done] = done;
            self.next_done = (self.next_done + 1) % self.done.len();
        }
        unfinished.release(&mut self.spare);
    }

    /// Nothing more comes: gives up all frames that are not whole, and says how many those are.
    pub(super) fn give_up_all(&mut self) -> usize {
        let count = self.unfinished.len();
        self.unfinished.drain(..).for_each(|unfinished| unfinished.release(&mut self.spare));
        count
    }

    /// Gives up the frames whose time is over; says how many those are.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        let before = self.unfinished.len();
        for index in (0..before).rev() {
            if now >= self.unfinished[index].begun.after(self.timeout) {
                self.end(now, index);
            }
        }
        before - self.unfinished.len()
    }

    /// When the next frame's time is over.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.unfinished.iter().map(|unfinished| unfinished.begun.after(self.timeout)).min()
    }

    /// Frames of which something is there.
    pub(super) const fn unfinished(&self) -> usize {
        self.unfinished.len()
    }
}

enum Put {
    Once,
    Twice,
}

impl Unfinished {
    /// Whether a piece stands in the place of another one that has other bytes.
    fn contradicts(&self, head: &PieceHead, datagram: &Slice) -> bool {
        let at = self.pieces.partition_point(|(place, _)| *place < head.place);
        self.pieces.get(at).is_some_and(|(place, there)| *place == head.place && **there != **datagram)
    }

    /// Lets go of its pieces, and gives the room for them back.
    fn release(mut self, spare: &mut Vec<Vec<(u64, Slice)>>) {
        self.pieces.clear();
        spare.push(self.pieces);
    }

    /// Puts a piece to its place.
    fn put(&mut self, head: &PieceHead, body: usize, datagram: Slice, most: usize) -> Result<Put, Cause> {
        let at = self.pieces.partition_point(|(place, _)| *place < head.place);
        if self.pieces.get(at).is_some_and(|(place, _)| *place == head.place) {
            return Ok(Put::Twice);
        }
        if matches!((self.whole, head.whole), (Some(one), Some(other)) if one != other) {
            return Err(Cause::PiecesMissing);
        }
        let longest = (most - self.header.min(most)) as u64;
        let is_long = self.bytes + body > longest as usize || head.is_in_bytes && head.whole > Some(longest);
        if is_long || self.pieces.len() == self.pieces.capacity() {
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
    fn payload(&mut self) -> Payload {
        let header = self.header;
        let mut payload = Payload::default();
        for (index, (_, mut datagram)) in self.pieces.drain(..).enumerate() {
            if index > 0 {
                datagram.skip(header);
            }
            payload.push(datagram);
        }
        payload
    }
}
