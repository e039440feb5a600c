//! What is open on each e-link: its pieces, and which e-link has been open for longest.

use super::Piece;
use ropewalk_wire::felix::{Assembly, ELINKS, ELink};
use std::collections::VecDeque;

/// No node.
const NONE: u32 = u32::MAX;

/// One e-link.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) assembly: Assembly,
    /// The first piece of the open chunk: most have no second one before they end.
    first: Piece,
    /// Its pieces so far; nothing is open if there is none.
    pub(super) pieces: u32,
    /// The chain of the others; nothing but for more than one piece.
    head: u32,
    tail: u32,
    pub(super) bytes: u64,
}

impl Link {
    /// Takes the first piece of a chunk; nothing may be open.
    #[inline]
    fn begin(&mut self, piece: Piece) {
        (self.first, self.pieces, self.bytes) = (piece, 1, u64::from(piece.length));
    }
}

#[derive(Copy, Clone, Debug, Default)]
struct Node {
    piece: Piece,
    next: u32,
}

/// All e-links of a card. What the pieces behind the first one need comes from one store.
#[derive(Clone, Debug)]
pub(super) struct Links {
    links: Box<[Link]>,
    nodes: Box<[Node]>,
    /// The chain of nodes that nobody uses.
    free: u32,
    /// Every chunk that was opened, in that order: e-link and where it begins. Of those that are not open any more two
    /// leave the front for each that comes, and all when there is no room.
    opened: VecDeque<(ELink, u64)>,
}

/// Twice as many as can be open: so half of them go whenever there is no room.
const MOST_OPENED: usize = 2 * ELINKS;

impl Links {
    pub(super) fn new(most_bytes: u64, open_pieces: usize) -> Self {
        let assembly = Assembly::new(most_bytes);
        let link = Link { assembly, first: Piece::default(), pieces: 0, head: NONE, tail: NONE, bytes: 0 };
        let count = open_pieces.clamp(1, NONE as usize) as u32;
        let node =
            |index: u32| Node { piece: Piece::default(), next: if index + 1 < count { index + 1 } else { NONE } };
        Self {
            links: vec![link; ELINKS].into(),
            nodes: (0..count).map(node).collect(),
            free: 0,
            opened: VecDeque::with_capacity(MOST_OPENED),
        }
    }

    #[inline]
    pub(super) fn link(&mut self, elink: ELink) -> &mut Link {
        &mut self.links[elink.index()]
    }

    /// The first piece of a chunk. Nothing may be open.
    #[inline]
    pub(super) fn open(&mut self, elink: ELink, piece: Piece) {
        debug_assert_eq!(self.links[elink.index()].pieces, 0);
        self.links[elink.index()].begin(piece);
        for _ in 0..2 {
            match self.opened.front() {
                Some(&(elink, position)) if !is_open(&self.links, elink, position) => _ = self.opened.pop_front(),
                _ => break,
            }
        }
        if self.opened.len() == MOST_OPENED {
            self.forget_closed();
        }
        self.opened.push_back((elink, piece.position));
    }

    #[cold]
    fn forget_closed(&mut self) {
        let links = &self.links;
        self.opened.retain(|&(elink, position)| is_open(links, elink, position));
    }

    /// One more piece of the open chunk; false if there is no room for it.
    #[inline]
    pub(super) fn append(&mut self, elink: ELink, piece: Piece) -> bool {
        let taken = self.free;
        let Some(node) = self.nodes.get_mut(taken as usize) else { return false };
        self.free = node.next;
        *node = Node { piece, next: NONE };
        let link = &mut self.links[elink.index()];
        match self.nodes.get_mut(link.tail as usize).filter(|_| link.pieces > 1) {
            Some(last) => last.next = taken,
            None => link.head = taken,
        }
        link.tail = taken;
        link.pieces += 1;
        link.bytes += u64::from(piece.length);
        true
    }

    /// Takes the open chunk off, if there is one, and tells its pieces in order.
    #[inline]
    pub(super) fn close(&mut self, elink: ELink, mut tell: impl FnMut(Piece)) {
        let link = &mut self.links[elink.index()];
        let pieces = core::mem::take(&mut link.pieces);
        if pieces == 0 {
            return;
        }
        tell(link.first);
        if pieces == 1 {
            return;
        }
        let mut at = link.head;
        for _ in 1..pieces {
            let node = &self.nodes[at as usize];
            tell(node.piece);
            at = node.next;
        }
        self.nodes[link.tail as usize].next = self.free;
        self.free = link.head;
    }

    /// The e-link whose chunk has been open for longest, and where that begins.
    pub(super) fn oldest(&self) -> Option<(ELink, u64)> {
        self.opened.iter().copied().find(|&(elink, position)| is_open(&self.links, elink, position))
    }

    /// How many chunks are remembered as opened, and for how many there is room.
    #[cfg(test)]
    pub(super) fn opened(&self) -> (usize, usize) {
        (self.opened.len(), self.opened.capacity())
    }
}

/// Whether the chunk that began there has not ended.
fn is_open(links: &[Link], elink: ELink, position: u64) -> bool {
    let link = &links[elink.index()];
    link.pieces > 0 && link.first.position == position
}
