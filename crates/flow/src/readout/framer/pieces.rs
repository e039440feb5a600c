//! Frames that come in the bodies of several datagrams are put together where they lie.

use core::time::Duration;
use ropewalk_memory::{Payload, Slice};
use ropewalk_terms::{Cause, Instant};
use ropewalk_wire::framing::PieceHead;

/// Frames that are put together at a time. When another one begins, the oldest is given up.
const MOST_FRAMES: usize = 16;
/// Frames that were done, or given up: what still comes of them is known.
const REMEMBERED: usize = 64;
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
    done: [Option<u64>; REMEMBERED],
    next_done: usize,
}

impl Assembly {
    /// Frames of at most `most` bytes, which are given up when they are not whole after `timeout`.
    pub(super) fn new(most: usize, timeout: Duration) -> Self {
        let pieces = (most / USUAL_BODY + 1).clamp(16, MOST_PIECES);
        let spare = (0..MOST_FRAMES).map(|_| Vec::with_capacity(pieces)).collect();
        let unfinished = Vec::with_capacity(MOST_FRAMES);
        Self { most, timeout, unfinished, spare, done: [None; REMEMBERED], next_done: 0 }
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
            Some(index) => index,
            None if self.done.contains(&Some(head.frame)) => return Placed::Repeated,
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
                self.end(index);
                Placed::Whole(payload)
            }
            Err(cause) => {
                self.end(index);
                Placed::GivenUp(cause)
            }
        }
    }

    fn begin(&mut self, now: Instant, head: &PieceHead, lost: &mut dyn FnMut(Cause)) -> usize {
        if self.unfinished.len() == MOST_FRAMES {
            let oldest = (0..MOST_FRAMES).min_by_key(|&index| self.unfinished[index].begun).unwrap_or(0);
            self.end(oldest);
            lost(Cause::PiecesMissing);
        }
        let pieces = self.spare.pop().unwrap_or_default();
        let unfinished =
            Unfinished { frame: head.frame, begun: now, bytes: 0, whole: None, pieces, header: head.header };
        self.unfinished.push(unfinished);
        self.unfinished.len() - 1
    }

    /// A frame is done, whole or not.
    fn end(&mut self, index: usize) {
        let mut unfinished = self.unfinished.swap_remove(index);
        self.done[self.next_done] = Some(unfinished.frame);
        self.next_done = (self.next_done + 1) % REMEMBERED;
        unfinished.pieces.clear();
        self.spare.push(unfinished.pieces);
    }

    /// Gives up the frames whose time is over; says how many those are.
    pub(super) fn expire(&mut self, now: Instant) -> usize {
        let before = self.unfinished.len();
        for index in (0..before).rev() {
            if now >= self.unfinished[index].begun.after(self.timeout) {
                self.end(index);
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
