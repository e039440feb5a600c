//! The two forms of a payload with several pieces: chains of slices in recycled nodes, and stripes in one block.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use crossbeam::queue::ArrayQueue;

use crate::registry;
use crate::slice::Slice;

/// Number of slices in a node: a super-fragment of eight sources with two slices each fits.
const NODE_SLICES: usize = 16;

/// Maximum number of spare nodes; further ones are returned to the allocator.
const MOST_SPARE_NODES: usize = if cfg!(miri) { 64 } else { 1 << 16 };

static SPARE: OnceLock<ArrayQueue<Box<Node>>> = OnceLock::new();
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn spare() -> &'static ArrayQueue<Box<Node>> {
    SPARE.get_or_init(|| ArrayQueue::new(MOST_SPARE_NODES))
}

/// Number of chain nodes that were allocated because none was prepared; constant in a good run.
pub fn chain_allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Prepares `nodes` chain nodes of 16 slices each (at most 65,536). Call it before the start of a run: a payload of
/// more than one slice takes one node for each 16 slices.
pub fn prepare_chains(nodes: usize) {
    while spare().len() < nodes && spare().push(Node::new()).is_ok() {}
}

/// A part of a chain: slices from `first` up to `end`.
struct Node {
    slices: [Option<Slice>; NODE_SLICES],
    first: u8,
    end: u8,
    next: Option<NonNull<Node>>,
}

// SAFETY: nodes in the list of spare ones have neither slices nor a next node.
unsafe impl Send for Node {}

impl Node {
    fn new() -> Box<Self> {
        Box::new(Self { slices: [const { None }; NODE_SLICES], first: 0, end: 0, next: None })
    }

    /// An empty node, recycled if there is one.
    fn get() -> NonNull<Self> {
        let node = spare().pop().unwrap_or_else(|| {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            Self::new()
        });
        NonNull::from(Box::leak(node))
    }

    /// Returns a node for reuse.
    ///
    /// # Safety
    /// The node must come from [`Node::get`], be empty, and not be used any more.
    unsafe fn put(node: NonNull<Self>) {
        // SAFETY: leaked by `get`.
        let mut node = unsafe { Box::from_raw(node.as_ptr()) };
        (node.first, node.end, node.next) = (0, 0, None);
        // If there are enough spare nodes, this one is returned to the allocator.
        drop(spare().push(node));
    }
}

/// Two or more slices (fewer only while it is taken apart). Owns its nodes.
pub(super) struct Chain {
    head: NonNull<Node>,
    tail: NonNull<Node>,
    length: usize,
}

// SAFETY: a chain is the only owner of its nodes, and slices may move to other threads.
unsafe impl Send for Chain {}
// SAFETY: shared references only read, and slices may be read from several threads.
unsafe impl Sync for Chain {}

impl Chain {
    /// An empty chain, to be filled at once.
    pub(super) fn new() -> Self {
        let node = Node::get();
        Self { head: node, tail: node, length: 0 }
    }

    /// Bytes of all slices.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Takes in the bytes of a slice, without its reference, if they follow the last ones in their block.
    pub(super) fn join(&mut self, slice: &Slice) -> bool {
        // SAFETY: the chain owns its nodes, and they are borrowed through `&mut self` alone.
        let tail = unsafe { self.tail.as_mut() };
        let last = tail.slices[..tail.end as usize].last_mut().and_then(Option::as_mut);
        let joined = last.is_some_and(|last| last.extend(slice));
        self.length += if joined { slice.len() } else { 0 };
        joined
    }

    /// Adds a slice at the end.
    pub(super) fn push(&mut self, slice: Slice) {
        self.length += slice.len();
        // SAFETY: as in `join`.
        let mut tail = unsafe { self.tail.as_mut() };
        if tail.end as usize == NODE_SLICES {
            let node = Node::get();
            tail.next = Some(node);
            self.tail = node;
            // SAFETY: as above.
            tail = unsafe { self.tail.as_mut() };
        }
        tail.slices[tail.end as usize] = Some(slice);
        tail.end += 1;
    }

    /// Takes the first slice out.
    pub(super) fn pop(&mut self) -> Option<Slice> {
        // SAFETY: as in `join`.
        let head = unsafe { self.head.as_mut() };
        let slice = head.slices.get_mut(head.first as usize)?.take()?;
        self.length -= slice.len();
        head.first += 1;
        if head.first == head.end {
            (head.first, head.end) = (0, 0);
            if let Some(next) = head.next {
                // SAFETY: the head is empty and left behind.
                unsafe { Node::put(self.head) };
                self.head = next;
            }
        }
        Some(slice)
    }

    /// Drops the first `n` bytes of the first slice, which must be longer.
    pub(super) fn skip_in_first(&mut self, n: usize) {
        // SAFETY: as in `join`.
        let head = unsafe { self.head.as_mut() };
        if let Some(Some(first)) = head.slices.get_mut(head.first as usize) {
            first.skip(n);
            self.length -= n;
        }
    }

    /// The slices in order.
    pub(super) fn iter(&self) -> ChainIter<'_> {
        // SAFETY: as long as the chain is borrowed, its nodes are.
        let node = unsafe { self.head.as_ref() };
        ChainIter { node: Some(node), index: node.first as usize }
    }

    /// Number of slices.
    pub(super) fn count(&self) -> usize {
        let mut count = 0;
        let mut node = Some(self.head);
        while let Some(this) = node {
            // SAFETY: the chain owns its nodes.
            let this = unsafe { this.as_ref() };
            count += (this.end - this.first) as usize;
            node = this.next;
        }
        count
    }
}

impl Clone for Chain {
    fn clone(&self) -> Self {
        let mut clone = Self::new();
        self.iter().for_each(|slice| clone.push(slice.clone()));
        clone
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let mut rest = Some(self.head);
        while let Some(mut node) = rest {
            // SAFETY: the chain owns its nodes.
            let this = unsafe { node.as_mut() };
            rest = this.next;
            this.slices[this.first as usize..this.end as usize].fill_with(|| None);
            // SAFETY: empty now, and not used any more.
            unsafe { Node::put(node) };
        }
    }
}

/// Iterator over the slices of a chain.
pub(super) struct ChainIter<'a> {
    node: Option<&'a Node>,
    index: usize,
}

impl<'a> Iterator for ChainIter<'a> {
    type Item = &'a Slice;

    #[inline]
    fn next(&mut self) -> Option<&'a Slice> {
        let mut node = self.node?;
        if self.index == node.end as usize {
            // SAFETY: the chain is borrowed for 'a and owns the node.
            node = unsafe { node.next?.as_ref() };
            self.node = Some(node);
            self.index = node.first as usize;
        }
        let slice = node.slices.get(self.index)?.as_ref();
        self.index += 1;
        slice
    }
}

// Stripes: pieces at equal distances in one block, for one reference and without a node of a chain.
//
// ```text
//   in the block   header | first piece | header | piece | header | piece | header | rest | header | ...
//   the stripe              ^start        <-gap->  <-piece->                  the last may be shorter
// ```
// A fragment that a FEROL sent in several blocks lies in memory like this.

/// Two or more pieces of one block (fewer only while it is taken apart), and one reference of it.
///
/// Not larger than a slice, so that it costs nothing for payloads of one slice.
pub(super) struct Stripe {
    start: NonNull<u8>,
    /// Bytes of all pieces.
    length: u32,
    block: u32,
    pool: u16,
    /// Bytes of the first piece, which may have been shortened.
    first: u16,
    /// Bytes of each other piece; the last may have fewer.
    piece: u16,
    /// Bytes between two pieces, at least one.
    gap: u16,
}

// SAFETY: as for slices: the bytes are not written while the block has references, whose count is atomic.
unsafe impl Send for Stripe {}
// SAFETY: as above.
unsafe impl Sync for Stripe {}

impl Stripe {
    /// Makes a stripe of a slice, which gives its reference, and of the one behind it.
    ///
    /// # Errors
    /// Gives the slice back if the other one does not lie a little further in the same block.
    pub(super) fn new(slice: Slice, next: &Slice) -> Result<Self, Slice> {
        let gap = next.start().addr().get().checked_sub(slice.start().addr().get() + slice.len());
        let sizes = (u16::try_from(slice.len()), u16::try_from(next.len()), gap.map(u16::try_from));
        let (Ok(first), Ok(piece), Some(Ok(gap @ 1..))) = sizes else { return Err(slice) };
        if (slice.pool(), slice.block()) != (next.pool(), next.block()) {
            return Err(slice);
        }
        let slice = ManuallyDrop::new(slice);
        let length = u32::from(first) + u32::from(piece);
        let (start, block, pool) = (slice.start(), slice.block(), slice.pool().0);
        Ok(Self { start, length, block, pool, first, piece, gap })
    }

    /// Takes in the bytes of a slice, without its reference. Returns false and changes nothing if they do not continue
    /// the stripe.
    pub(super) fn join(&mut self, next: &Slice) -> bool {
        let (last, end) = self.last();
        let follows = next.start().as_ptr() == end;
        // With two pieces the second one sets the length of all pieces, so it may grow.
        let piece = if follows && self.count() == 2 { last + next.len() } else { usize::from(self.piece) };
        let fits = if follows {
            last + next.len() <= piece
        } else {
            let goes_on = next.start().as_ptr() == end.wrapping_add(self.gap.into());
            goes_on && last == piece && next.len() <= piece
        };
        let Ok(piece) = u16::try_from(piece) else { return false };
        let joined = fits && (self.pool, self.block) == (next.pool().0, next.block());
        if joined {
            self.piece = piece;
            self.length += next.len() as u32;
        }
        joined
    }

    /// Returns the length of the last piece, and its end.
    fn last(&self) -> (usize, *mut u8) {
        let (first, piece, gap) = (usize::from(self.first), usize::from(self.piece), usize::from(self.gap));
        let behind = self.len() - first;
        let whole = behind.saturating_sub(1) / piece;
        let last = behind - whole * piece;
        (last, self.start.as_ptr().wrapping_add(first + whole * (gap + piece) + gap + last))
    }

    /// Total number of bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.length as usize
    }

    /// Number of pieces.
    #[inline]
    pub(super) fn count(&self) -> usize {
        1 + (self.length - u32::from(self.first)).div_ceil(self.piece.into()) as usize
    }

    /// The pieces in order.
    #[inline]
    pub(super) fn pieces(&self) -> StripePieces<'_> {
        // SAFETY: the copy gives no reference back, and the stripe's own keeps the bytes while it is borrowed.
        StripePieces { rest: ManuallyDrop::new(unsafe { core::ptr::read(self) }), of: PhantomData }
    }

    /// The `count` bytes from `offset` on, if they lie in one piece.
    #[inline]
    pub(super) fn get(&self, offset: usize, count: usize) -> Option<&[u8]> {
        let (first, piece, gap) = (usize::from(self.first), usize::from(self.piece), usize::from(self.gap));
        let (at, left) = match offset.checked_sub(first) {
            None => (offset, first - offset),
            Some(behind) => (offset + (behind / piece + 1) * gap, piece - behind % piece),
        };
        let fits = count <= left && offset.checked_add(count)? <= self.len();
        // SAFETY: within one piece, as was just checked; the stripe's reference keeps the bytes.
        fits.then(|| unsafe { core::slice::from_raw_parts(self.start.as_ptr().add(at), count) })
    }

    /// Drops the first `n` bytes, which must be fewer than there are.
    pub(super) fn skip(&mut self, n: usize) {
        assert!(n < self.len(), "skip beyond the end of a stripe");
        let mut left = n;
        while left >= usize::from(self.first) {
            left -= usize::from(self.first);
            self.leave_first();
        }
        // SAFETY: within the piece.
        self.start = unsafe { self.start.add(left) };
        self.first -= left as u16;
        self.length -= left as u32;
    }

    /// Advances to the second piece, if there is one.
    #[inline]
    fn leave_first(&mut self) {
        let (first, rest) = (self.first, self.length - u32::from(self.first));
        if rest > 0 {
            // SAFETY: there is another piece behind the gap, in the same block.
            self.start = unsafe { self.start.add(usize::from(first) + usize::from(self.gap)) };
        }
        self.length = rest;
        self.first = rest.min(self.piece.into()) as u16;
    }

    /// Takes out the first piece with a separate reference. There must be another piece.
    pub(super) fn pop(&mut self) -> Slice {
        assert!(self.length > u32::from(self.first), "the last piece is what the stripe becomes");
        // SAFETY: the stripe owns a reference; the new one belongs to the piece, which lies in the block.
        let slice = unsafe {
            registry::charge(self.pool, self.block, 1);
            Slice::new(self.start, self.first.into(), self.block, self.pool)
        };
        self.leave_first();
        slice
    }

    /// Returns the only piece with the stripe's reference, or the stripe itself if there are several.
    pub(super) fn into_one(self) -> Result<Slice, Self> {
        if self.length > u32::from(self.first) {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: the piece lies in the block, and the stripe's reference is handed over.
        Ok(unsafe { Slice::new(this.start, this.length, this.block, this.pool) })
    }
}

impl Clone for Stripe {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: the stripe owns a reference; the new one belongs to the copy.
        unsafe {
            registry::charge(self.pool, self.block, 1);
            core::ptr::read(self)
        }
    }
}

impl Drop for Stripe {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the stripe owns one reference.
        unsafe { registry::give_back(self.pool, self.block, 1) }
    }
}

/// Iterator over the pieces of a stripe.
pub(super) struct StripePieces<'a> {
    /// The rest of the stripe, without a reference.
    rest: ManuallyDrop<Stripe>,
    of: PhantomData<&'a Stripe>,
}

impl<'a> Iterator for StripePieces<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let Stripe { start, first, .. } = *self.rest;
        self.rest.leave_first();
        // SAFETY: a piece of the stripe, whose reference keeps the bytes for 'a.
        (first > 0).then(|| unsafe { core::slice::from_raw_parts(start.as_ptr(), first.into()) })
    }
}
