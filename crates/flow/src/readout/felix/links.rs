//! What is open on each e-link: its pieces, and which e-link has been open for longest.

use super::Piece;
use ropewalk_wire::felix::{Assembly, ELINKS, ELink};

/// No node.
const NONE: u32 = u32::MAX;

/// One e-link, in a cache line of its own: each block goes to another one.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Link {
    pub(super) assembly: Assembly,
    /// The first piece of the open chunk: most have no second one before they end.
    first: Piece,
    /// Its pieces so far; nothing is open if there is none.
    pub(super) pieces: u32,
    /// The chain of the others; nothing but for more than one piece.
    head: u32,
    tail: u32,
}

#[derive(Copy, Clone, Debug, Default)]
struct Node {
    piece: Piece,
    next: u32,
}

/// All e-links of a card. What the pieces behind the first one need comes from one store.
#[derive(Clone, Debug)]
pub(super) struct Links {
    links: Box<[Link; ELINKS]>,
    nodes: Box<[Node]>,
    /// The chain of nodes that nobody uses.
    free: u32,
    order: Order,
}

impl Links {
    pub(super) fn new(most_bytes: u64, open_pieces: usize) -> Self {
        let assembly = Assembly::new(most_bytes);
        let link = Link { assembly, first: Piece::default(), pieces: 0, head: NONE, tail: NONE };
        let count = open_pieces.clamp(1, NONE as usize) as u32;
        let node =
            |index: u32| Node { piece: Piece::default(), next: if index + 1 < count { index + 1 } else { NONE } };
        Self {
            links: vec![link; ELINKS].try_into().expect("as many as were made"),
            nodes: (0..count).map(node).collect(),
            free: 0,
            order: Order::new(),
        }
    }

    #[inline]
    pub(super) fn link(&mut self, elink: ELink) -> &mut Link {
        // A remainder that changes nothing: there are as many places. So no place needs to be checked.
        &mut self.links[place(elink)]
    }

    /// The first piece of a chunk. Nothing may be open.
    #[inline]
    pub(super) fn open(&mut self, elink: ELink, piece: Piece) {
        let link = self.link(elink);
        debug_assert_eq!(link.pieces, 0);
        (link.first, link.pieces) = (piece, 1);
        self.order.enter(elink);
    }

    /// One more piece of the open chunk; false if there is no room for it.
    #[inline]
    pub(super) fn append(&mut self, elink: ELink, piece: Piece) -> bool {
        let taken = self.free;
        let Some(node) = self.nodes.get_mut(taken as usize) else { return false };
        self.free = node.next;
        *node = Node { piece, next: NONE };
        let link = &mut self.links[place(elink)];
        match self.nodes.get_mut(link.tail as usize).filter(|_| link.pieces > 1) {
            Some(last) => last.next = taken,
            None => link.head = taken,
        }
        link.tail = taken;
        link.pieces += 1;
        true
    }

    /// Takes the open chunk off, if there is one, and puts its pieces in order into `out`. Returns how many.
    ///
    /// # Panics
    /// If there is no room for them.
    #[inline]
    pub(super) fn close(&mut self, elink: ELink, out: &mut [Piece]) -> usize {
        let pieces = self.take(elink, out);
        if pieces > 0 {
            self.order.leave(elink);
        }
        pieces
    }

    /// Takes the open chunk off, which there is, as [`Self::close`] does, and begins another one with `piece`.
    #[inline]
    pub(super) fn close_and_open(&mut self, elink: ELink, piece: Piece, out: &mut [Piece]) -> usize {
        let link = &mut self.links[place(elink)];
        let pieces = if link.pieces == 1 {
            out[0] = link.first;
            1
        } else {
            self.take(elink, out)
        };
        let link = self.link(elink);
        (link.first, link.pieces) = (piece, 1);
        self.order.renew(elink);
        pieces
    }

    /// Gives up the open chunk, if there is one.
    pub(super) fn forget(&mut self, elink: ELink) {
        let link = &mut self.links[place(elink)];
        let pieces = core::mem::take(&mut link.pieces);
        if pieces > 1 {
            self.nodes[link.tail as usize].next = self.free;
            self.free = link.head;
        }
        if pieces > 0 {
            self.order.leave(elink);
        }
    }

    #[inline(never)]
    fn take(&mut self, elink: ELink, out: &mut [Piece]) -> usize {
        let link = &mut self.links[place(elink)];
        let pieces = core::mem::take(&mut link.pieces) as usize;
        if pieces > 0 {
            out[0] = link.first;
        }
        if pieces > 1 {
            let mut at = link.head;
            for piece in &mut out[1..pieces] {
                let node = &self.nodes[at as usize];
                *piece = node.piece;
                at = node.next;
            }
            self.nodes[link.tail as usize].next = self.free;
            self.free = link.head;
        }
        pieces
    }

    /// How many chunks are open.
    pub(super) fn open_chunks(&self) -> usize {
        self.links.iter().filter(|link| link.pieces > 0).count()
    }

    /// The e-link whose chunk has been open for longest, and where that begins.
    pub(super) fn oldest(&self) -> Option<(ELink, u64)> {
        let elink = self.order.first()?;
        Some((elink, self.links[place(elink)].first.position))
    }
}

/// Where an e-link stands in the table. The paths with the same number of all optical links are a multiple of 4 KiB apart
/// if e-links stand in order, and then no cache keeps more than a few of them. The same again leads back.
#[inline]
const fn place(elink: ELink) -> usize {
    (elink.index() ^ elink.index() >> 6) % ELINKS
}

/// Those e-links of which a chunk is open, in the order in which those began: a ring through [`NOBODY`].
#[derive(Clone, Debug)]
struct Order(Box<[Neighbours; 2 * ELINKS]>);

/// Who is before an e-link in the order, and who behind it.
#[derive(Copy, Clone, Debug)]
struct Neighbours {
    before: u16,
    behind: u16,
}

/// The place of no e-link, where the order begins and ends.
const NOBODY: u16 = ELINKS as u16;

impl Order {
    fn new() -> Self {
        Self(Box::new([Neighbours { before: NOBODY, behind: NOBODY }; 2 * ELINKS]))
    }

    #[inline]
    fn of(&mut self, place: u16) -> &mut Neighbours {
        // No place needs to be checked: there are as many, though those behind `NOBODY` are nobody's.
        &mut self.0[usize::from(place) % (2 * ELINKS)]
    }

    /// Behind all others.
    #[inline]
    fn enter(&mut self, elink: ELink) {
        let me = place(elink) as u16;
        let latest = core::mem::replace(&mut self.of(NOBODY).before, me);
        *self.of(me) = Neighbours { before: latest, behind: NOBODY };
        self.of(latest).behind = me;
    }

    /// From where it is to behind all others.
    #[inline]
    fn renew(&mut self, elink: ELink) {
        self.leave(elink);
        self.enter(elink);
    }

    #[inline]
    fn leave(&mut self, elink: ELink) {
        let Neighbours { before, behind } = *self.of(place(elink) as u16);
        self.of(before).behind = behind;
        self.of(behind).before = before;
    }

    fn first(&self) -> Option<ELink> {
        let first = self.0[usize::from(NOBODY)].behind;
        (first != NOBODY).then(|| ELink::new(place(ELink::new(first)) as u16))
    }
}
