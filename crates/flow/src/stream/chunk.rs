//! A chunk on its way, and as its subscriber sees it in the queue.

use super::pages::Pages;
use crate::readout::felix::Piece;
use ropewalk_memory::{Payload, Slice};
use ropewalk_wire::stream::ChunkHead;
use std::collections::vec_deque;

/// A chunk with bytes of its own: it keeps them wherever it goes.
#[derive(Clone, Debug)]
pub struct StreamChunk {
    /// What stands before it.
    pub head: ChunkHead,
    /// The event that it is of, for groups that share by event; 0 where nobody asked for it.
    pub event: u64,
    /// Its bytes, where the card left them.
    pub payload: Payload,
    /// They lie elsewhere now: the card's memory is not held by them.
    pub is_copy: bool,
}

/// A chunk that waits. To look at its head touches none of its bytes.
#[derive(Clone, Debug)]
pub struct QueuedChunk<'a>(pub(super) Kind<'a>);

#[derive(Clone, Debug)]
pub(super) enum Kind<'a> {
    /// One piece in the ring.
    Short { head: ChunkHead, piece: Piece, pages: &'a Pages },
    /// Several.
    Scattered { head: ChunkHead, pieces: vec_deque::Iter<'a, Piece>, pages: &'a Pages },
    /// It has bytes of its own.
    Apart(&'a StreamChunk),
}

impl QueuedChunk<'_> {
    /// What stands before it.
    #[inline]
    pub const fn head(&self) -> ChunkHead {
        match &self.0 {
            Kind::Short { head, .. } | Kind::Scattered { head, .. } => *head,
            Kind::Apart(chunk) => chunk.head,
        }
    }

    /// Whether it holds none of the card's memory.
    #[inline]
    pub const fn is_copy(&self) -> bool {
        matches!(&self.0, Kind::Apart(chunk) if chunk.is_copy)
    }

    /// Its bytes in order, piece by piece, where they lie.
    pub fn for_each_piece(&self, mut tell: impl FnMut(&[u8])) {
        match &self.0 {
            Kind::Short { piece, pages, .. } => tell(pages.bytes(piece.position, piece.length)),
            Kind::Scattered { pieces, pages, .. } => {
                pieces.clone().for_each(|piece| tell(pages.bytes(piece.position, piece.length)));
            }
            Kind::Apart(chunk) => chunk.payload.pieces().for_each(tell),
        }
    }

    /// Appends its bytes by reference; they stay where they are as long as any of the slices.
    pub fn append_slices(&self, into: &mut Vec<Slice>) {
        self.slices(|slice| into.push(slice));
    }

    /// The chunk with references of its own.
    pub fn to_stream_chunk(&self) -> StreamChunk {
        if let Kind::Apart(chunk) = self.0 {
            return chunk.clone();
        }
        let mut payload = Payload::default();
        self.slices(|slice| payload.push(slice));
        StreamChunk { head: self.head(), event: 0, payload, is_copy: false }
    }

    fn slices(&self, mut tell: impl FnMut(Slice)) {
        let mut piece_of = |pages: &Pages, piece: &Piece| {
            if piece.length > 0 {
                tell(pages.slice(piece.position, piece.length));
            }
        };
        match &self.0 {
            Kind::Short { piece, pages, .. } => piece_of(pages, piece),
            Kind::Scattered { pieces, pages, .. } => pieces.clone().for_each(|piece| piece_of(pages, piece)),
            Kind::Apart(chunk) => chunk.payload.clone().into_slices().for_each(tell),
        }
    }
}
