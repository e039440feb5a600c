//! The blocks of one endpoint that the kernel fills, one after the other, and hands on bit by bit.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use ropewalk_memory::{Loan, Posted, Slice};

/// Blocks that the kernel can have of one endpoint; a power of two.
pub(super) const MOST_POSTED: usize = 32;

/// The list of buffers that the kernel reads, in a page of its own.
pub(super) struct BufferRing {
    entries: NonNull<BufRingEntry>,
    layout: Layout,
    /// Where the next entry goes; the kernel reads everything before it.
    tail: u16,
}

// SAFETY: the page has one owner here; the kernel looks at it only while the polling thread is in a system call.
unsafe impl Send for BufferRing {}

impl BufferRing {
    pub(super) fn new() -> io::Result<Self> {
        let page = rustix::param::page_size();
        let layout = Layout::from_size_align(page, page).map_err(io::Error::other)?;
        // SAFETY: the size is that of a page, which is not 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let entries = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { entries, layout, tail: 0 })
    }

    /// Address and number of entries, for the kernel.
    pub(super) fn memory(&self) -> (u64, u16) {
        (self.entries.as_ptr() as u64, MOST_POSTED as u16)
    }

    /// Writes the next entry; the kernel sees it with the next [`BufferRing::publish`].
    fn put(&mut self, block: &Posted) {
        let place = self.tail as usize % MOST_POSTED;
        // SAFETY: within the page, which has room for all entries. The kernel reads and writes entries only during the
        // polling thread's system calls, so nobody else refers to this one.
        let entry = unsafe { self.entries.add(place).as_mut() };
        entry.set_addr(block.address().as_ptr() as u64);
        entry.set_len(block.capacity() as u32);
        entry.set_bid(place as u16);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Takes back the last entries that were put.
    fn retract(&mut self, entries: usize) {
        self.tail = self.tail.wrapping_sub(entries as u16);
    }

    /// Shows the kernel which entries there are.
    fn publish(&mut self) {
        // SAFETY: the first entry was zeroed; its last two bytes are the ring's tail, aligned as such, and are
        // accessed here alone.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; whoever drops it has made sure that the kernel is done with it.
        unsafe { dealloc(self.entries.as_ptr().cast(), self.layout) };
    }
}

/// The blocks of one endpoint: what the kernel fills, and what it has filled and nobody has taken yet.
///
/// ```text
///  full: slices ─► posted: the first one partly filled, some of it not yet split off ─► others, empty
/// ```
pub(super) struct Buffers {
    ring: BufferRing,
    /// In the order in which the kernel fills them.
    posted: VecDeque<Posted>,
    /// Bytes that were received into the first one and not taken.
    fresh: usize,
    /// Received and not taken, before what is fresh.
    full: VecDeque<Slice>,
    /// Blocks filled since the last [`Buffers::take_turnover`].
    turnover: usize,
}

impl Buffers {
    pub(super) fn new() -> io::Result<Self> {
        let (posted, full) = (VecDeque::with_capacity(MOST_POSTED), VecDeque::with_capacity(2 * MOST_POSTED));
        Ok(Self { ring: BufferRing::new()?, posted, fresh: 0, full, turnover: 0 })
    }

    pub(super) const fn ring(&self) -> &BufferRing {
        &self.ring
    }

    /// Bytes that the kernel has room for.
    pub(super) fn room(&self) -> usize {
        self.posted.iter().map(Posted::capacity).sum::<usize>() - self.fresh
    }

    /// Blocks that the kernel has.
    pub(super) fn posted(&self) -> usize {
        self.posted.len()
    }

    /// Gives the kernel a block.
    pub(super) fn post(&mut self, loan: Loan) {
        let block = loan.post();
        self.ring.put(&block);
        self.ring.publish();
        self.posted.push_back(block);
    }

    /// Counts bytes that the kernel has received; false if it cannot have.
    pub(super) fn received(&mut self, bytes: usize) -> bool {
        let Some(first) = self.posted.front_mut() else { return false };
        let filled = self.fresh + bytes;
        if filled > first.capacity() {
            return false;
        }
        self.fresh = filled;
        if filled == first.capacity() {
            self.turnover += 1;
            self.split(filled);
            self.reclaim_first();
        }
        true
    }

    /// Moves fresh bytes to those that are full.
    fn split(&mut self, bytes: usize) {
        let Some(first) = self.posted.front_mut() else { return };
        // SAFETY: the kernel said that it has received so many bytes, and only ever goes on behind them.
        self.full.extend(unsafe { first.split_filled(bytes) });
        self.fresh -= bytes;
    }

    /// Gives back the first block, which the kernel does not fill any further; false if there is none.
    fn reclaim_first(&mut self) -> bool {
        // SAFETY: either it is full, so that the kernel is behind it, or it was retracted: the kernel looks for the
        // next buffer anew in every system call, and this thread is in none.
        self.posted.pop_front().map(|block| drop(unsafe { block.reclaim(0) })).is_some()
    }

    /// Whether something was received that was not taken.
    pub(super) fn has_some(&self) -> bool {
        self.fresh > 0 || !self.full.is_empty()
    }

    /// The next bytes that were received, at most so many.
    pub(super) fn take(&mut self, most: usize) -> Option<Slice> {
        if self.full.is_empty() && self.fresh > 0 {
            self.split(self.fresh.min(most));
        }
        match self.full.front_mut() {
            Some(first) if first.len() > most => Some(first.split_to(most)),
            _ => self.full.pop_front(),
        }
    }

    /// How many blocks were filled since the last time.
    pub(super) fn take_turnover(&mut self) -> usize {
        core::mem::take(&mut self.turnover)
    }

    /// Gives back to the pool every block into which nothing was received yet but the first one; returns how many.
    pub(super) fn give_back_surplus(&mut self) -> usize {
        let surplus = self.posted.len().saturating_sub(1);
        self.ring.retract(surplus);
        self.ring.publish();
        for _ in 0..surplus {
            // SAFETY: retracted, as in `reclaim_first`.
            drop(self.posted.pop_back().map(|block| unsafe { block.reclaim(0) }));
        }
        surplus
    }

    /// The end. If the kernel may still use the blocks, they and the list of them stay for ever.
    pub(super) fn end(mut self, idle: bool) {
        if idle {
            self.give_back();
        } else {
            core::mem::forget(self);
        }
    }

    /// Takes every block from the kernel and gives it back to its pool; what was received stays to be taken. Must not be
    /// called while there are completions that were not counted.
    pub(super) fn release(&mut self) {
        self.ring.retract(self.posted.len());
        self.ring.publish();
        self.split(self.fresh);
        while self.reclaim_first() {}
        self.turnover = 0;
    }

    /// Gives every block back to its pool, and drops what was received and not taken.
    pub(super) fn give_back(&mut self) {
        self.release();
        self.full.clear();
    }
}
