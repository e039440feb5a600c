//! Frames that hold several events fall apart: a fragment for each, where it lies.

use super::described::Held;
use super::given_up;
use crate::messages::{FragmentFlags, Received};
use ropewalk_memory::Payload;
use ropewalk_terms::Cause;
use ropewalk_wire::framing::{MOST_PIECES, Piece, PieceKey, Splitter};

/// Stands behind a framer: takes one frame at a time, and gives its pieces in batches.
#[derive(Debug)]
pub struct Divider<S> {
    splitter: S,
    frame: Option<Received>,
    pieces: Vec<Piece>,
    /// The next piece of the frame.
    next: usize,
}

impl<S: Splitter> Divider<S> {
    /// Frames fall apart as `splitter` says.
    pub fn new(splitter: S) -> Self {
        Self { splitter, frame: None, pieces: Vec::with_capacity(MOST_PIECES), next: 0 }
    }

    /// Whether another frame may come.
    pub const fn is_empty(&self) -> bool {
        self.frame.is_none()
    }

    /// A frame, or the entry of one that was lost. What is left of the last one is dropped, so it should be
    /// [empty](Divider::is_empty).
    pub fn put(&mut self, frame: Received) {
        self.pieces.clear();
        self.next = 0;
        self.frame = None;
        if frame.meta.missing_cause().is_some() {
            self.frame = Some(frame);
            return;
        }
        self.frame = match self.splitter.split(&Held(&frame.payload), &mut self.pieces) {
            // One without pieces holds no event, and leaves nothing.
            Ok(()) if self.pieces.is_empty() => None,
            Ok(()) => Some(frame),
            Err(cause) => {
                self.pieces.clear();
                Some(given_up(frame.meta.source, cause))
            }
        };
    }

    /// Appends the next fragments, at most so many. A frame that could not be divided, and a piece that does not lie in its
    /// frame, are an entry with the cause, as in [`Framer::next_batch`](super::Framer::next_batch).
    pub fn next_batch(&mut self, out: &mut Vec<Received>, at_most: usize) {
        let Some(frame) = &self.frame else { return };
        if self.pieces.is_empty() {
            if at_most > 0 {
                out.extend(self.frame.take());
            }
            return;
        }
        let end = self.pieces.len().min(self.next.saturating_add(at_most));
        out.extend(self.pieces[self.next..end].iter().map(|piece| cut(frame, piece)));
        self.next = end;
        if end == self.pieces.len() {
            self.frame = None;
        }
    }
}

/// The part of a frame that belongs to one event.
fn cut(frame: &Received, piece: &Piece) -> Received {
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
        PieceKey::Time(ticks) => {
            (meta.raw_id, meta.time) = (ticks, ticks);
            meta.flags = meta.flags.with(FragmentFlags::HAS_TIME);
        }
    }
    Received { meta, restarts: frame.restarts, payload }
}
