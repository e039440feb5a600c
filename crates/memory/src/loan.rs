//! Loans: blocks that are being filled. The head is read while the tail is still being written.
#![allow(unsafe_code)]

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::registry::{self, PoolId};
use crate::slice::Slice;

/// The references with which a block is lent. The loan hands them to its slices without touching the shared
/// counter and gives back the rest at its end. More than slices can ever be split from one block.
pub(crate) const LOAN_REFERENCES: u64 = 1 << 48;

/// A borrowed block: a writable tail ([`Loan::spare`]), behind what was already written and left it as slices.
///
/// ```text
///  base            split          filled                  size
///   │ slices, read   │ committed     │ spare, written       │
/// ```
///
/// No reference ever covers the whole block: the two sides are made from a raw pointer and never overlap.
pub struct Loan {
    base: NonNull<u8>,
    size: u32,
    /// Bytes written and committed, from the base.
    filled: u32,
    /// Bytes that left as slices, from the base.
    split: u32,
    block: u32,
    pool: PoolId,
    /// References handed to slices.
    handed: u64,
}

// SAFETY: the loan is the only one who touches the bytes behind `split`; it may do so on any thread.
unsafe impl Send for Loan {}
// SAFETY: shared references only tell lengths.
unsafe impl Sync for Loan {}

impl Loan {
    /// A loan of a block whose [`LOAN_REFERENCES`] references it now owns.
    ///
    /// # Safety
    /// `base` must point to `size` initialised bytes that nobody else refers to, and that stay as long as
    /// references of `block` in `pool` are held.
    pub(crate) unsafe fn new(base: NonNull<u8>, size: u32, block: u32, pool: PoolId) -> Self {
        Self { base, size, filled: 0, split: 0, block, pool, handed: 0 }
    }

    /// The writable tail. Its bytes are initialised but old.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        // SAFETY: from `filled` to `size` the bytes are in the block, initialised, and in no slice.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr().add(self.filled as usize), self.spare_len()) }
    }

    /// Bytes that can still be written.
    #[inline]
    pub fn spare_len(&self) -> usize {
        (self.size - self.filled) as usize
    }

    /// Bytes committed but not split off yet.
    pub fn committed_len(&self) -> usize {
        (self.filled - self.split) as usize
    }

    /// Says that the first `n` bytes of the spare tail were written.
    ///
    /// # Panics
    /// If the tail is shorter than that.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        assert!(n <= self.spare_len(), "more bytes committed than the block has");
        self.filled += n as u32;
    }

    /// What was committed since the last time; `None` if nothing was.
    #[inline]
    pub fn split_committed(&mut self) -> Option<Slice> {
        if self.filled == self.split { None } else { Some(self.split()) }
    }

    /// Copies `bytes` to the tail and splits off what was committed and not yet split, which ends with them.
    /// `None`, and nothing changes, if they do not fit.
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) -> Option<Slice> {
        self.spare().get_mut(..bytes.len())?.copy_from_slice(bytes);
        self.filled += bytes.len() as u32;
        Some(self.split())
    }

    /// The block of the pool.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// Hands the spare tail to the kernel (a ring's receive buffer, a fill ring): from now on nobody here has
    /// access to it. Slices that were split off before stay as they are.
    pub fn post(self) -> Posted {
        Posted(ManuallyDrop::new(self))
    }

    /// Splits off what was committed, be it nothing.
    fn split(&mut self) -> Slice {
        debug_assert!(self.handed < LOAN_REFERENCES - 1, "a loan does not run out of references");
        // SAFETY: within the block, since `split <= filled <= size`.
        let start = unsafe { self.base.add(self.split as usize) };
        let length = self.filled - self.split;
        self.split = self.filled;
        self.handed += 1;
        // SAFETY: these bytes are written no more, for the tail begins behind them; the slice gets one of
        // the references that the loan owns.
        unsafe { Slice::new(start, length, self.block, self.pool.0) }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the loan owns what it did not hand to slices.
        unsafe { registry::give_back(self.pool.0, self.block, LOAN_REFERENCES - self.handed) }
    }
}

impl core::fmt::Debug for Loan {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Loan")
            .field("pool", &self.pool)
            .field("block", &self.block)
            .field("size", &self.size)
            .field("filled", &self.filled)
            .field("split", &self.split)
            .finish()
    }
}

/// A block whose tail the kernel holds: neither written nor read here until it is taken back.
///
/// Only `io` makes use of these. Dropping one does **not** return its block, for the kernel may still write
/// to it: the block then stays out for ever, and the pool's account shows it. Closing an endpoint therefore
/// cancels, drains the completions, and reclaims.
#[must_use = "a posted block that is not reclaimed is lost to its pool"]
#[derive(Debug)]
pub struct Posted(ManuallyDrop<Loan>);

impl Posted {
    /// Where the kernel may write.
    pub fn address(&self) -> NonNull<u8> {
        // SAFETY: within the block or at its end.
        unsafe { self.0.base.add(self.0.filled as usize) }
    }

    /// How many bytes it may write there.
    pub fn capacity(&self) -> usize {
        self.0.spare_len()
    }

    /// The first `filled` bytes as a slice, while the kernel keeps the rest (incremental buffers of
    /// io_uring); the address moves behind them. `None` if `filled` is 0.
    ///
    /// # Safety
    /// The kernel must have written these bytes and must never write them again.
    ///
    /// # Panics
    /// If the capacity is smaller than that.
    pub unsafe fn split_filled(&mut self, filled: usize) -> Option<Slice> {
        self.0.commit(filled);
        self.0.split_committed()
    }

    /// The loan again, with `filled` more bytes committed, after the kernel has given the block back.
    ///
    /// # Safety
    /// The kernel must have written these bytes and must not have the block any more.
    ///
    /// # Panics
    /// If the capacity is smaller than that.
    pub unsafe fn reclaim(self, filled: usize) -> Loan {
        let mut loan = ManuallyDrop::into_inner(self.0);
        loan.commit(filled);
        loan
    }
}
