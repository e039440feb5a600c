//! Loans: blocks that are being filled. The head is read while the tail is still being written.
#![allow(unsafe_code)]

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
