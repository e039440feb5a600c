//! Chains of slices in recycled nodes: what a payload of several slices is made of.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use crossbeam::queue::ArrayQueue;

use crate::slice::Slice;

/// Slices in a node: a super-fragment of eight sources at twice one slice each fits.
const NODE_SLICES: usize = 16;

/// The most nodes that wait to be used again; further ones go back to the allocator.
const MOST_SPARE_NODES: usize = if cfg!(miri) { 64 } else { 1 << 16 };

static SPARE: OnceLock<ArrayQueue<Box<Node>>> = OnceLock::new();
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn spare() -> &'static ArrayQueue<Box<Node>> {
    SPARE.get_or_init(|| ArrayQueue::new(MOST_SPARE_NODES))
}

/// How many chain nodes the allocator had to give because none was prepared; stands still in a good run.
pub fn chain_allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// Makes sure that `nodes` chain nodes of 16 slices each are ready (at most 65,536), to be called before
/// the start of a run: a payload of more than one slice takes one node for each 16 slices.
pub fn prepare_chains(nodes: usize) {
    while spare().len() < nodes && spare().push(Node::new()).is_ok() {}
}

/// A piece of a chain: slices from `first` up to `end`.
struct Node {
    slices: [Option<Slice>; NODE_SLICES],
    first: u8,
    end: u8,
    next: Option<NonNull<Node>>,
}

// SAFETY: nodes wait in the list of spare ones without slices and without a next node.
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

    /// Gives a node away for reuse.
    ///
    /// # Safety
    /// The node must come from [`Node::get`], be empty, and not be used any more.
    unsafe fn put(node: NonNull<Self>) {
        // SAFETY: leaked by `get`.
        let mut node = unsafe { Box::from_raw(node.as_ptr()) };
        (node.first, node.end, node.next) = (0, 0, None);
        // When enough nodes are spare, this one goes back to the allocator.
        drop(spare().push(node));
    }
}

/// Two or more slices (fewer only on the way to being taken apart). Owns its nodes.
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

    /// Takes the bytes of a slice in, without its reference, if they follow the last ones in their block.
    pub(super) fn join(&mut self, slice: &Slice) -> bool {
        // SAFETY: the chain owns its nodes, and they are borrowed through `&mut self` alone.
        let tail = unsafe { self.tail.as_mut() };
        let last = tail.slices[..tail.end as usize].last_mut().and_then(Option::as_mut);
        let joined = last.is_some_and(|last| last.extend(slice));
        self.length += if joined { slice.len() } else { 0 };
        joined
    }

    /// Adds a slice at the end, behind those that are there.
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

    /// Drops the first `n` bytes of the first slice, which has more than that.
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

    /// How many slices there are.
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

/// Goes through the slices of a chain.
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
