//! Stripes: pieces at equal distances in one block, for one reference and without a node of a chain.
//!
//! ```text
//!   in the block   header | first piece | header | piece | header | piece | header | rest | header | ...
//!   the stripe              ^start        <-gap->  <-piece->                  the last may be shorter
//! ```
//! That is how a fragment lies in memory that a FEROL sent in several blocks.
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::registry;
use crate::slice::Slice;

/// Two or more pieces of one block (fewer only on the way to being taken apart), and one reference of it.
///
/// Not larger than a slice, so that payloads of one slice cost nothing for it.
pub(super) struct Stripe {
    start: NonNull<u8>,
    /// Bytes of all pieces.
    length: u32,
    block: u32,
    pool: u16,
    /// Bytes of the first piece, which may have lost some.
    first: u16,
    /// Bytes of each of the others; the last may have fewer.
    piece: u16,
    /// Bytes between two pieces, at least one.
    gap: u16,
}

// SAFETY: as for slices: the bytes are not written while the block has references, whose count is atomic.
unsafe impl Send for Stripe {}
// SAFETY: as above.
unsafe impl Sync for Stripe {}

impl Stripe {
    /// A stripe of a slice, which gives its reference, and of the one behind it.
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

    /// Takes the bytes of a slice in, without its reference; false, and nothing changes, if they do not lie where the
    /// stripe goes on.
    pub(super) fn join(&mut self, next: &Slice) -> bool {
        let (last, end) = self.last();
        let follows = next.start().as_ptr() == end;
        // Of two pieces the second says how long all are, hence may grow.
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

    /// How long the last piece is, and where it ends.
    fn last(&self) -> (usize, *mut u8) {
        let (first, piece, gap) = (usize::from(self.first), usize::from(self.piece), usize::from(self.gap));
        let behind = self.len() - first;
        let whole = behind.saturating_sub(1) / piece;
        let last = behind - whole * piece;
        (last, self.start.as_ptr().wrapping_add(first + whole * (gap + piece) + gap + last))
    }

    /// Bytes of all pieces.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.length as usize
    }

    /// How many pieces there are.
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

    /// Goes on to the second piece, if there is one.
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

    /// Takes the first piece out, which gets a reference of its own. There must be another one.
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

    /// The only piece, with the stripe's reference; the stripe itself if there are several.
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

/// Goes through the pieces of a stripe.
pub(super) struct StripePieces<'a> {
    /// What is left of it, without a reference.
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
