//! Frames that hold several events fall apart: a fragment for each, where it lies.
//!
//! ```text
//!  put(frame) --> waits for its turn --> Divides: its pieces, at once or when they are known --> fragments, in batches
//! ```
//! Frames leave in the order in which they came, and while some wait no others should come: so whoever reads the source
//! is held back by it ([`Divider::is_empty`]).

use super::described::{Held, WideClock};
use super::given_up;
use crate::messages::{FragmentFlags, Received};
use ropewalk_memory::Payload;
use ropewalk_terms::{Cause, Instant, SourceId};
use ropewalk_wire::framing::{Framing, MOST_PIECES, Piece, PieceKey, Splitter};
use std::collections::VecDeque;

/// What says into which pieces frames fall apart.
pub trait Divides {
    /// Appends the pieces of the frame whose turn it is, or says what is wrong with it; none where that is not known yet:
    /// then it is asked again about the same frame.
    fn divide(&mut self, frame: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>>;

    /// Bytes of frames that were copied for it.
    fn copied_bytes(&self) -> u64 {
        0
    }
}

impl<S: Splitter> Divides for S {
    fn divide(&mut self, frame: &Payload, pieces: &mut Vec<Piece>) -> Option<Result<(), Cause>> {
        Some(self.split(&Held(frame), pieces))
    }
}

/// Stands behind the framer of a source: takes frames, and gives their pieces in batches.
#[derive(Debug)]
pub struct Divider {
    source: SourceId,
    /// Of pieces that are kept apart by time.
    clock: WideClock,
    /// Frames, and the entries of those that were lost, each with when it came.
    waiting: VecDeque<(Instant, Received)>,
    /// The frame that falls apart.
    current: Option<Received>,
    pieces: Vec<Piece>,
    /// The next piece of it.
    next: usize,
    divided: u64,
}

/// Frames that wait at most: more should not be put.
pub const MOST_FRAMES: usize = 64;

impl Divider {
    /// For the frames of this source, which are described so: times of pieces are in the ticks of its clock.
    pub fn new(source: SourceId, framing: &impl Framing) -> Self {
        Self {
            source,
            clock: WideClock::new(framing.widths(), framing.tick()),
            waiting: VecDeque::with_capacity(MOST_FRAMES),
            current: None,
            pieces: Vec::with_capacity(MOST_PIECES),
            next: 0,
            divided: 0,
        }
    }

    /// Whether nothing is left of what was put.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// How many fragments wait, as far as they are known: a frame that was not divided yet counts as one.
    pub fn fragments(&self) -> u64 {
        let of_current = if self.current.is_some() { self.pieces.len() - self.next } else { 0 };
        (of_current + self.waiting.len()) as u64
    }

    /// Frames that wait to be divided, in the order in which they will be.
    pub fn frames(&self) -> impl Iterator<Item = &Payload> {
        let waiting = self.waiting.iter().map(|(_, frame)| frame);
        waiting.filter(|frame| frame.meta.missing_cause().is_none()).map(|frame| &frame.payload)
    }

    /// Whether the next fragment is known: that of a frame which falls apart, or the entry of one that was lost.
    pub fn is_known(&self) -> bool {
        let lost = self.waiting.front().is_some_and(|(_, frame)| frame.meta.missing_cause().is_some());
        self.current.is_some() || lost
    }

    /// A frame that came at `now`, or the entry of one that was lost.
    pub fn put(&mut self, now: Instant, frame: Received) {
        self.waiting.push_back((now, frame));
    }

    /// Drops what was put and not taken.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.current = None;
    }

    /// How many frames fell apart since it was asked last.
    pub const fn take_divided(&mut self) -> u64 {
        core::mem::replace(&mut self.divided, 0)
    }

    /// Appends the next fragments, at most so many; fewer where no more frames were put, or where it is not known yet into
    /// what the next one falls apart. A frame that could not be divided, and a piece that does not lie in its frame, are an
    /// entry with the cause, as in [`Framer::next_batch`](super::Framer::next_batch).
    pub fn next_batch(&mut self, by: &mut (impl Divides + ?Sized), out: &mut Vec<Received>, at_most: usize) {
        let end = out.len().saturating_add(at_most);
        while out.len() < end {
            let Some(frame) = &self.current else {
                if !self.begin_next(by, out) {
                    return;
                }
                continue;
            };
            let last = self.pieces.len().min(self.next + (end - out.len()));
            let is_first = |place| self.next == 0 && place == 0;
            let cut = |(place, piece)| cut(frame, piece, is_first(place));
            out.extend(self.pieces[self.next..last].iter().enumerate().map(cut));
            self.next = last;
            if last == self.pieces.len() {
                self.current = None;
            }
        }
    }

    /// Goes on to the next frame, and appends it where it is the entry of a lost one; false where there is none, or its
    /// pieces are not known yet.
    fn begin_next(&mut self, by: &mut (impl Divides + ?Sized), out: &mut Vec<Received>) -> bool {
        let Some((came, frame)) = self.waiting.front() else { return false };
        let came = *came;
        let is_lost = frame.meta.missing_cause().is_some();
        if !is_lost {
            self.pieces.clear();
            self.next = 0;
            match by.divide(&frame.payload, &mut self.pieces) {
                None => return false,
                Some(Ok(())) => {
                    self.divided += 1;
                    self.widen_times(came);
                    let (_, frame) = self.waiting.pop_front().expect("it was looked at above");
                    // One without pieces holds no event, and leaves nothing.
                    self.current = Some(frame).filter(|_| !self.pieces.is_empty());
                    return true;
                }
                Some(Err(cause)) => out.push(given_up(self.source, cause)),
            }
        }
        let taken = self.waiting.pop_front();
        out.extend(taken.map(|(_, frame)| frame).filter(|_| is_lost));
        true
    }

    /// Times become nanoseconds, and wide, as those of whole frames are.
    fn widen_times(&mut self, came: Instant) {
        for piece in &mut self.pieces {
            if let PieceKey::Time(ticks) = &mut piece.key {
                *ticks = self.clock.nanoseconds(*ticks, came);
            }
        }
    }
}

/// The part of a frame that belongs to one event.
fn cut(frame: &Received, piece: &Piece, is_first: bool) -> Received {
    let end = piece.offset.checked_add(piece.length);
    if end.is_none_or(|end| end > frame.payload.len()) {
        return given_up(frame.meta.source, Cause::Malformed);
    }
    let mut payload = frame.payload.clone();
    payload.skip(piece.offset);
    payload.truncate(piece.length);
    if piece.length == 0 {
        payload = Payload::default();
    }
    let mut meta = frame.meta;
    meta.length = piece.length as u32;
    match piece.key {
        PieceKey::Event(number) => meta.raw_id = number,
        PieceKey::Time(nanoseconds) => {
            (meta.raw_id, meta.time) = (nanoseconds, nanoseconds);
            meta.flags = meta.flags.with(FragmentFlags::HAS_TIME);
        }
    }
    // Where the numbering starts again with the frame, it does so with its first event alone.
    Received { meta, restarts: frame.restarts && is_first, payload }
}
