//! What is open on each e-link: its pieces, and which e-link has been open for longest.

use super::Piece;
use ropewalk_wire::felix::{Assembly, ELINKS, ELink};

/// No piece, no e-link.
const NONE: u32 = u32::MAX;

/// One e-link.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) assembly: Assembly,
    /// The chain of the open chunk's pieces; nothing else of these holds if there is none.
    first: u32,
    last: u32,
    pub(super) pieces: u32,
    pub(super) bytes: u64,
    /// The e-links that were opened before and after.
    older: u32,
    newer: u32,
}

#[derive(Copy, Clone, Debug, Default)]
struct Node {
    piece: Piece,
    next: u32,
}

/// All e-links of a card. Their pieces come from one store, and those with an open chunk stand in a chain, the oldest
/// first, so that nobody ever looks through all of them.
#[derive(Clone, Debug)]
pub(super) struct Links {
    links: Box<[Link]>,
    nodes: Box<[Node]>,
    /// The chain of nodes that nobody uses.
    free: u32,
    oldest: u32,
    newest: u32,
}

impl Links {
    pub(super) fn new(most_bytes: u64, open_pieces: usize) -> Self {
        let assembly = Assembly::new(most_bytes);
        let link = Link { assembly, first: NONE, last: NONE, pieces: 0, bytes: 0, older: NONE, newer: NONE };
        let count = open_pieces.clamp(1, NONE as usize) as u32;
        let node =
            |index: u32| Node { piece: Piece::default(), next: if index + 1 < count { index + 1 } else { NONE } };
        Self {
            links: vec![link; ELINKS].into(),
            nodes: (0..count).map(node).collect(),
            free: 0,
            oldest: NONE,
            newest: NONE,
        }
    }

    #[inline]
    pub(super) fn link(&mut self, elink: ELink) -> &mut Link {
        &mut self.links[elink.index()]
    }

    /// The first piece of a chunk; false if there is no room for it. Nothing may be open.
    #[inline]
    pub(super) fn open(&mut self, elink: ELink, piece: Piece) -> bool {
        let number = u32::from(elink.number());
        let Some(node) = self.take(piece) else { return false };
        let (older, link) = (self.newest, &mut self.links[elink.index()]);
        debug_assert_eq!(link.pieces, 0);
        (link.first, link.last, link.pieces, link.bytes) = (node, node, 1, u64::from(piece.length));
        (link.older, link.newer) = (older, NONE);
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
        true
    }

    /// One more piece of the open chunk; false if there is no room for it.
    #[inline]
    pub(super) fn append(&mut self, elink: ELink, piece: Piece) -> bool {
        let Some(node) = self.take(piece) else { return false };
        let link = &mut self.links[elink.index()];
        self.nodes[link.last as usize].next = node;
        link.last = node;
        link.pieces += 1;
        link.bytes += u64::from(piece.length);
        true
    }

    /// Takes the open chunk off, if there is one, and tells its pieces in order.
    #[inline]
    pub(super) fn close(&mut self, elink: ELink, mut tell: impl FnMut(Piece)) {
        let link = &mut self.links[elink.index()];
        let (first, last, pieces) = (link.first, link.last, link.pieces);
        if pieces == 0 {
            return;
        }
        (link.pieces, link.bytes) = (0, 0);
        let (older, newer) = (link.older, link.newer);
        match self.links.get_mut(older as usize) {
            Some(link) => link.newer = newer,
            None => self.oldest = newer,
        }
        match self.links.get_mut(newer as usize) {
            Some(link) => link.older = older,
            None => self.newest = older,
        }
        let mut at = first;
        for _ in 0..pieces {
            let node = &self.nodes[at as usize];
            tell(node.piece);
            at = node.next;
        }
        self.nodes[last as usize].next = self.free;
        self.free = first;
    }

    /// The e-link whose chunk has been open for longest, and where that begins.
    pub(super) fn oldest(&self) -> Option<(ELink, u64)> {
        let link = self.links.get(self.oldest as usize)?;
        Some((ELink::new(self.oldest as u16), self.nodes[link.first as usize].piece.position))
    }

    #[inline]
    fn take(&mut self, piece: Piece) -> Option<u32> {
        let taken = self.free;
        let node = self.nodes.get_mut(taken as usize)?;
        self.free = node.next;
        *node = Node { piece, next: NONE };
        Some(taken)
    }
}
