//! The two parts of a block: slices, which are counted and only read, and the loan, whose tail is still written.
#![allow(unsafe_code)]

use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use crate::registry::{self, PoolId};

/// Bytes in a block of a pool, with one reference of that block. Dereferences to the bytes.
///
/// 24 bytes; can move freely between threads. A clone costs one atomic addition, a drop one subtraction.
pub struct Slice {
    start: NonNull<u8>,
    length: u32,
    block: u32,
    pool: u16,
}

// SAFETY: the bytes are not written while slices of them exist; the count is atomic.
unsafe impl Send for Slice {}
// SAFETY: as above.
unsafe impl Sync for Slice {}

impl Slice {
    /// A slice that owns one reference of the block.
    ///
    /// # Safety
    /// The `length` bytes from `start` must lie in this block and not be written while it has references; the caller
    /// hands over one of them.
    #[inline]
    pub(crate) unsafe fn new(start: NonNull<u8>, length: u32, block: u32, pool: u16) -> Self {
        Self { start, length, block, pool }
    }

    /// Splits off the first `n` bytes with a separate reference.
    ///
    /// # Panics
    /// If the slice is shorter than that.
    pub fn split_to(&mut self, n: usize) -> Self {
        assert!(n <= self.length as usize, "split beyond the end of a slice");
        // SAFETY: this slice owns a reference, and the new one belongs to the front.
        unsafe {
            registry::charge(self.pool, self.block, 1);
            self.cut(n)
        }
    }

    /// Splits off the first `n` bytes with a reference that was charged before.
    ///
    /// # Safety
    /// `n` must not exceed the length; the caller hands over one reference of the block.
    #[inline]
    unsafe fn cut(&mut self, n: usize) -> Self {
        let front = Self { start: self.start, length: n as u32, block: self.block, pool: self.pool };
        // SAFETY: within the slice, by the caller's promise.
        self.start = unsafe { self.start.add(n) };
        self.length -= n as u32;
        front
    }

    /// Drops the first `n` bytes from view. The block stays as long as the slice.
    ///
    /// # Panics
    /// If the slice is shorter than that.
    #[inline]
    pub fn skip(&mut self, n: usize) {
        assert!(n <= self.length as usize, "skip beyond the end of a slice");
        // SAFETY: within the slice.
        self.start = unsafe { self.start.add(n) };
        self.length -= n as u32;
    }

    /// Keeps the first `n` bytes in view; no effect on a shorter slice.
    pub fn truncate(&mut self, n: usize) {
        self.length = self.length.min(u32::try_from(n).unwrap_or(u32::MAX));
    }

    /// Whether `next` begins where this slice ends, in the same block.
    #[inline]
    pub fn is_followed_by(&self, next: &Self) -> bool {
        let end = self.start.as_ptr().wrapping_add(self.length as usize);
        self.pool == next.pool && self.block == next.block && end == next.start.as_ptr()
    }

    /// Joins the following piece to this slice again.
    ///
    /// # Errors
    /// Gives `next` back if it does not follow this slice.
    pub fn join(&mut self, next: Self) -> Result<(), Self> {
        if self.extend(&next) { Ok(()) } else { Err(next) }
    }

    /// Takes in the bytes of another slice, without its reference. Returns false and changes nothing if they do not
    /// follow.
    #[inline]
    pub(crate) fn extend(&mut self, next: &Self) -> bool {
        // This slice's own reference keeps the whole block.
        let follows = self.is_followed_by(next);
        self.length += if follows { next.length } else { 0 };
        follows
    }

    /// Number of bytes between this slice and another one behind it in the same block; `None` if it does not lie behind
    /// it.
    #[inline]
    pub(crate) fn gap_to(&self, next: &Self) -> Option<usize> {
        let end = self.start.addr().get() + self.length as usize;
        let gap = next.start.addr().get().checked_sub(end)?;
        (self.pool == next.pool && self.block == next.block).then_some(gap)
    }

    /// Takes in the bytes up to another slice behind this one, and the bytes of that slice, without its reference.
    ///
    /// # Panics
    /// If the other slice does not lie behind this one in the same block.
    #[inline]
    pub(crate) fn reach_over(&mut self, next: &Self) {
        // A block is written from its front to its end, and nothing in front of a slice is written while the block has
        // references: the bytes between two slices can be read like the slices.
        let gap = self.gap_to(next).expect("the other slice lies behind this one");
        self.length += gap as u32 + next.length;
    }

    /// Address of the bytes; the pointer may be used to reach the whole block.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Whether no other slice or loan has a reference of the block. While the caller holds the slice by value, no new
    /// reference can then be made.
    pub fn is_alone(&self) -> bool {
        // SAFETY: the slice owns a reference.
        unsafe { registry::is_alone(self.pool, self.block) }
    }

    /// The pool that the bytes lie in.
    pub fn pool(&self) -> PoolId {
        PoolId(self.pool)
    }

    /// The block of the pool.
    pub fn block(&self) -> u32 {
        self.block
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: by construction; the slice's reference keeps the bytes.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.length as usize) }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for Slice {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: this slice owns a reference; the new one belongs to the clone.
        unsafe { registry::charge(self.pool, self.block, 1) };
        Self { start: self.start, length: self.length, block: self.block, pool: self.pool }
    }
}

impl Drop for Slice {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the slice owns one reference.
        unsafe { registry::give_back(self.pool, self.block, 1) }
    }
}

impl PartialEq for Slice {
    /// Slices are equal if their bytes are equal, regardless of the block.
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl core::fmt::Debug for Slice {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Slice({} bytes, pool {}, block {})", self.length, self.pool, self.block)
    }
}

/// Number of references charged at once to cut a slice into pieces. There cannot be more pieces, because each has at
/// least a byte. A slice thus costs one addition and one subtraction, however many fragments are cut from it.
const CUT_REFERENCES: u64 = 1 << 32;

/// A slice that is cut from its front without an atomic operation for each piece.
#[derive(Debug)]
pub(crate) struct CutSlice {
    slice: Slice,
    /// References besides the slice's own.
    surplus: u64,
}

impl CutSlice {
    #[inline]
    pub(crate) fn new(slice: Slice) -> Self {
        Self { slice, surplus: 0 }
    }

    /// The remaining bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.slice
    }

    /// Cuts off the first `n` bytes, at least one and fewer than there are.
    #[inline]
    pub(crate) fn cut(&mut self, n: usize) -> Slice {
        assert!(n < self.slice.len(), "the last piece is taken by `finish`");
        // SAFETY: the slice owns a reference; those charged belong to this value and are handed out one by one.
        unsafe {
            if self.surplus == 0 {
                registry::charge(self.slice.pool, self.slice.block, CUT_REFERENCES);
                self.surplus = CUT_REFERENCES;
            }
            self.surplus -= 1;
            self.slice.cut(n)
        }
    }

    /// Drops the first `skip` bytes and cuts off the `n` bytes behind them. There must be more bytes than that.
    #[inline]
    pub(crate) fn cut_behind(&mut self, skip: usize, n: usize) -> Slice {
        assert!(skip < self.slice.len(), "there is something behind what is skipped");
        // SAFETY: within the slice.
        self.slice.start = unsafe { self.slice.start.add(skip) };
        self.slice.length -= skip as u32;
        self.cut(n)
    }

    /// Cuts off the first `n` bytes, at least one and fewer than there are. `None` if `join` takes them in without
    /// their reference.
    #[inline]
    pub(crate) fn cut_unless(&mut self, n: usize, join: impl FnOnce(&Slice) -> bool) -> Option<Slice> {
        let piece = self.cut(n);
        if !join(&piece) {
            return Some(piece);
        }
        // Its reference is used for a later cut.
        core::mem::forget(piece);
        self.surplus += 1;
        None
    }

    /// Drops the first `n` bytes, fewer than there are.
    #[inline]
    pub(crate) fn skip(&mut self, n: usize) {
        self.slice.skip(n);
    }

    /// Whether `next` can be appended.
    #[inline]
    pub(crate) fn is_followed_by(&self, next: &Slice) -> bool {
        self.slice.is_followed_by(next)
    }

    /// Appends a piece that must follow; its reference is used for a later cut.
    #[inline]
    pub(crate) fn absorb(&mut self, next: Slice) {
        assert!(self.slice.is_followed_by(&next), "only neighbours are joined");
        self.slice.length += next.length;
        self.surplus += 1;
        core::mem::forget(next);
    }

    /// Returns the rest with the slice's own reference, and gives back the surplus.
    #[inline]
    pub(crate) fn finish(self) -> Slice {
        let this = ManuallyDrop::new(self);
        if this.surplus > 0 {
            // SAFETY: the surplus is owned, and so is the slice's own reference, which stays.
            unsafe { registry::refund(this.slice.pool, this.slice.block, this.surplus) };
        }
        // SAFETY: moved out once, since `this` is not dropped.
        unsafe { core::ptr::read(&this.slice) }
    }
}

impl Drop for CutSlice {
    fn drop(&mut self) {
        if self.surplus > 0 {
            // SAFETY: as in `finish`; the slice drops its own reference next.
            unsafe { registry::refund(self.slice.pool, self.slice.block, self.surplus) };
        }
    }
}

/// Number of references with which a block is lent. The loan hands them to its slices without touching the shared
/// counter and gives back the rest at its end. More than the number of slices that can ever be split from one block.
pub(crate) const LOAN_REFERENCES: u64 = 1 << 48;

/// A borrowed block: a writable tail ([`Loan::spare`]) behind the bytes that were written and split off as slices.
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

// SAFETY: only the loan touches the bytes behind `split`; it may do so on any thread.
unsafe impl Send for Loan {}
// SAFETY: shared references only give access to lengths.
unsafe impl Sync for Loan {}

impl Loan {
    /// Makes a loan of a block, whose [`LOAN_REFERENCES`] references it then owns.
    ///
    /// # Safety
    /// `base` must point to `size` initialised bytes without any other reference, which stay as long as
    /// references of `block` in `pool` are held.
    pub(crate) unsafe fn new(base: NonNull<u8>, size: u32, block: u32, pool: PoolId) -> Self {
        Self { base, size, filled: 0, split: 0, block, pool, handed: 0 }
    }

    /// The writable tail. Its bytes are initialised but have old values.
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

    /// Marks the first `n` bytes of the spare tail as written.
    ///
    /// # Panics
    /// If the tail is shorter than that.
    #[inline]
    pub fn commit(&mut self, n: usize) {
        assert!(n <= self.spare_len(), "more bytes committed than the block has");
        self.filled += n as u32;
    }

    /// Splits off the bytes committed since the last call; `None` if there are none.
    #[inline]
    pub fn split_committed(&mut self) -> Option<Slice> {
        if self.filled == self.split { None } else { Some(self.split()) }
    }

    /// Copies `bytes` to the tail and splits off all committed bytes, which end with them. `None`, with no change, if
    /// they do not fit.
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

    /// Hands the spare tail to the kernel (a ring's receive buffer, a fill ring). This process does not access it any
    /// more. Slices that were split off before are not affected.
    pub fn post(self) -> Posted {
        Posted(ManuallyDrop::new(self))
    }

    /// Splits off the committed bytes, even if there are none.
    fn split(&mut self) -> Slice {
        debug_assert!(self.handed < LOAN_REFERENCES - 1, "a loan does not run out of references");
        // SAFETY: within the block, since `split <= filled <= size`.
        let start = unsafe { self.base.add(self.split as usize) };
        let length = self.filled - self.split;
        self.split = self.filled;
        self.handed += 1;
        // SAFETY: these bytes are not written any more, since the tail begins behind them; the slice gets one of the
        // references that the loan owns.
        unsafe { Slice::new(start, length, self.block, self.pool.0) }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        // SAFETY: the loan owns the references that it did not hand to slices.
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
/// Only `io` uses these. Dropping one does **not** return its block, because the kernel may still write to it: the
/// block then stays lent for ever, and the pool's account shows it. Closing an endpoint therefore cancels, drains the
/// completions, and reclaims.
#[must_use = "a posted block that is not reclaimed is lost to its pool"]
#[derive(Debug)]
pub struct Posted(ManuallyDrop<Loan>);

impl Posted {
    /// Address where the kernel may write.
    pub fn address(&self) -> NonNull<u8> {
        // SAFETY: within the block or at its end.
        unsafe { self.0.base.add(self.0.filled as usize) }
    }

    /// Number of bytes that the kernel may write there.
    pub fn capacity(&self) -> usize {
        self.0.spare_len()
    }

    /// Returns the first `filled` bytes as a slice, while the kernel keeps the rest (incremental buffers of io_uring).
    /// The address moves behind them. `None` if `filled` is 0.
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

    /// Returns the loan with `filled` more bytes committed, after the kernel has given the block back.
    ///
    /// # Safety
    /// The kernel must have written these bytes and must not have the block any more.
    ///
    /// # Panics
    /// If the capacity is smaller than `filled`.
    pub unsafe fn reclaim(self, filled: usize) -> Loan {
        let mut loan = ManuallyDrop::into_inner(self.0);
        loan.commit(filled);
        loan
    }
}
