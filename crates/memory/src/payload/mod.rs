//! Payloads: bytes that lie in one slice or in several.
//!
//! Most fragments lie in one slice, or in pieces of one block with headers of equal size between them (`stripe`);
//! both are held in place. What crosses a block's end, or is larger than a block, becomes a chain of recycled nodes
//! (`chain`).

mod chain;
mod stripe;
#[cfg(test)]
mod tests;

pub use self::chain::{chain_allocations, prepare_chains};

use self::chain::{Chain, ChainIter};
use self::stripe::{Stripe, StripePieces};
use crate::pool::Pool;
use crate::queue::copy_chain;
use crate::slice::Slice;
use crate::staging::Staging;
use ropewalk_terms::flaws::{Flaw, is_planted};

/// Bytes in order, in one slice or several. Empty by default.
///
/// A clone costs one reference, where the bytes cross the end of a block one for each slice, and copies no bytes.
#[derive(Default)]
pub struct Payload(Repr);

/// Never holds an empty slice; a stripe never fewer than two pieces, and a chain never none.
#[derive(Default)]
enum Repr {
    #[default]
    Empty,
    One(Slice),
    Stripe(Stripe),
    Chain(Chain),
}

impl From<Stripe> for Repr {
    fn from(stripe: Stripe) -> Self {
        stripe.into_one().map_or_else(Self::Stripe, Self::One)
    }
}

impl Payload {
    /// A payload of one slice, which must not be empty.
    #[inline(always)]
    pub(crate) fn one(slice: Slice) -> Self {
        Self(Repr::One(slice))
    }

    /// Appends a slice; one that follows the last one in its block is joined to it.
    #[inline]
    pub fn push(&mut self, slice: Slice) {
        if !slice.is_empty() && !self.join(&slice) {
            self.push_apart(slice);
        }
    }

    /// Takes the bytes of a slice in, without its reference, for what is here has one of the same block; false, and
    /// nothing changes, if they cannot be described together.
    #[inline]
    pub(crate) fn join(&mut self, slice: &Slice) -> bool {
        match &mut self.0 {
            Repr::Empty => false,
            Repr::One(one) => one.extend(slice) || self.join_as_stripe(slice),
            Repr::Stripe(stripe) => stripe.join(slice),
            Repr::Chain(chain) => chain.join(slice),
        }
    }

    fn join_as_stripe(&mut self, slice: &Slice) -> bool {
        let Repr::One(one) = core::mem::take(&mut self.0) else { return false };
        let stripe = Stripe::new(one, slice);
        let joined = stripe.is_ok();
        self.0 = stripe.map_or_else(Repr::One, Repr::Stripe);
        joined
    }

    /// Appends a slice that is not empty and was not joined.
    #[inline]
    pub(crate) fn push_apart(&mut self, slice: Slice) {
        match &mut self.0 {
            Repr::Empty => self.0 = Repr::One(slice),
            Repr::Chain(chain) => chain.push(slice),
            Repr::One(_) | Repr::Stripe(_) => self.begin_chain(slice),
        }
    }

    #[cold]
    fn begin_chain(&mut self, slice: Slice) {
        let mut chain = Chain::new();
        core::mem::take(self).into_slices().for_each(|slice| chain.push(slice));
        chain.push(slice);
        self.0 = Repr::Chain(chain);
    }

    /// Appends all slices of another payload.
    pub fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
        } else {
            other.into_slices().for_each(|slice| self.push(slice));
        }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Empty => 0,
            Repr::One(one) => one.len(),
            Repr::Stripe(stripe) => stripe.len(),
            Repr::Chain(chain) => chain.len(),
        }
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Repr::Empty)
    }

    /// The bytes in order, piece by piece, none of them empty.
    #[inline]
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        match &self.0 {
            Repr::Empty => Pieces::One(None),
            Repr::One(one) => Pieces::One(Some(one)),
            Repr::Stripe(stripe) => Pieces::Stripe(stripe.pieces()),
            Repr::Chain(chain) => Pieces::Chain(chain.iter()),
        }
    }

    /// How many pieces there are, and slices in [`Payload::into_slices`].
    pub fn piece_count(&self) -> usize {
        match &self.0 {
            Repr::Empty => 0,
            Repr::One(_) => 1,
            Repr::Stripe(stripe) => stripe.count(),
            Repr::Chain(chain) => chain.count(),
        }
    }

    /// The bytes, if they lie in one piece.
    #[inline]
    pub fn contiguous(&self) -> Option<&[u8]> {
        // By far the most payloads are one slice: no jump that depends on what they are.
        if let Repr::One(one) = &self.0 { Some(one) } else { self.contiguous_of_several() }
    }

    fn contiguous_of_several(&self) -> Option<&[u8]> {
        match &self.0 {
            Repr::Empty => Some(&[]),
            Repr::One(one) => Some(one),
            Repr::Stripe(_) => None,
            Repr::Chain(chain) => {
                let first = chain.iter().next()?;
                (first.len() == chain.len()).then_some(&**first)
            }
        }
    }

    /// Copies the bytes from `offset` on to `out`; false, and nothing is copied, if there are not enough.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> bool {
        let enough = offset.checked_add(out.len()).is_some_and(|end| end <= self.len());
        if enough {
            copy_chain(self.pieces(), offset, out);
        }
        enough
    }

    /// The `N` bytes from `offset` on, wherever they lie; `None` if there are not enough.
    #[inline]
    pub fn read_array<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if let Repr::One(one) = &self.0 {
            return one.get(offset..offset.checked_add(N)?)?.try_into().ok();
        }
        self.read_array_of_several(offset)
    }

    fn read_array_of_several<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        if let Repr::Stripe(stripe) = &self.0
            && let Some(bytes) = stripe.get(offset, N)
        {
            return bytes.try_into().ok();
        }
        let mut out = [0; N];
        self.copy_to(offset, &mut out).then_some(out)
    }

    /// Drops the first `n` bytes, or all if there are fewer.
    pub fn skip(&mut self, n: usize) {
        if n >= self.len() {
            self.0 = Repr::Empty;
            return;
        }
        match &mut self.0 {
            Repr::Empty => {}
            Repr::One(one) => one.skip(n),
            Repr::Stripe(_) => self.skip_in_stripe(n),
            Repr::Chain(chain) => {
                let mut left = n;
                while let Some(first) = chain.iter().next().map(|slice| slice.len()).filter(|&first| first <= left) {
                    left -= first;
                    chain.pop();
                }
                chain.skip_in_first(left);
            }
        }
    }

    fn skip_in_stripe(&mut self, n: usize) {
        if let Repr::Stripe(mut stripe) = core::mem::take(&mut self.0) {
            stripe.skip(n);
            self.0 = stripe.into();
        }
    }

    /// Keeps the first `n` bytes; no effect on a shorter payload.
    pub fn truncate(&mut self, n: usize) {
        if n >= self.len() {
            return;
        }
        if let Repr::One(one) = &mut self.0
            && n > 0
        {
            return one.truncate(n);
        }
        let mut left = n;
        for mut slice in core::mem::take(self).into_slices() {
            slice.truncate(left);
            left -= slice.len();
            self.push(slice);
        }
    }

    /// Takes the first slice out.
    pub fn pop_slice(&mut self) -> Option<Slice> {
        match core::mem::take(&mut self.0) {
            Repr::Empty => None,
            Repr::One(one) => Some(one),
            Repr::Stripe(mut stripe) => {
                let slice = stripe.pop();
                self.0 = stripe.into();
                Some(slice)
            }
            Repr::Chain(mut chain) => {
                let slice = chain.pop();
                if chain.len() > 0 {
                    self.0 = Repr::Chain(chain);
                }
                slice
            }
        }
    }

    /// The slice, where the payload is one.
    #[inline]
    pub(crate) fn one_slice(&self) -> Option<&Slice> {
        if let Repr::One(one) = &self.0 { Some(one) } else { None }
    }

    /// Takes the slice out, where the payload is one.
    #[inline]
    pub(crate) fn take_one(&mut self) -> Option<Slice> {
        match core::mem::take(&mut self.0) {
            Repr::One(one) => Some(one),
            other => {
                self.0 = other;
                None
            }
        }
    }

    /// A clone, where the payload is one slice as most are: so short that it is worth having in place.
    #[inline]
    pub fn clone_one(&self) -> Option<Self> {
        self.one_slice().map(|one| Self::one(one.clone()))
    }

    /// Drops all bytes.
    #[inline]
    pub fn clear(&mut self) {
        match core::mem::take(&mut self.0) {
            Repr::Empty => {}
            Repr::One(one) => drop(one),
            several => drop_several(several),
        }
    }

    /// The same, where the payload is not one slice.
    #[inline(never)]
    pub(crate) fn clear_several(&mut self) {
        self.clear();
    }

    /// The slices themselves, in order.
    pub fn into_slices(mut self) -> impl Iterator<Item = Slice> {
        core::iter::from_fn(move || self.pop_slice())
    }

    /// A copy of the bytes, for tests and tools.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        self.pieces().for_each(|piece| out.extend_from_slice(piece));
        out
    }

    /// Whether all of its bytes lie in blocks of this pool.
    pub fn lies_in(&self, pool: &Pool) -> bool {
        let begin = pool.address().as_ptr().addr();
        let blocks = begin..begin + pool.blocks() * pool.block_size();
        self.pieces().all(|piece| blocks.contains(&piece.as_ptr().addr()))
    }

    /// A copy of this payload in blocks of `into`, so that the blocks it lies in can come home. `None`, and
    /// nothing changes, when the staging pool is dry. The bytes count as copied there.
    pub fn evacuate(&self, into: &mut Staging) -> Option<Self> {
        let mut copy = Self::default();
        for piece in self.pieces() {
            let mut left = piece;
            while !left.is_empty() {
                let (now, later) = left.split_at(left.len().min(into.room(1)?));
                let lost = is_planted(Flaw::EvacuatedTooEarly).then(|| vec![0; now.len()]);
                copy.push(into.write(lost.as_deref().unwrap_or(now))?);
                left = later;
            }
        }
        Some(copy)
    }
}

/// Goes through the pieces of a payload.
enum Pieces<'a> {
    One(Option<&'a [u8]>),
    Stripe(StripePieces<'a>),
    Chain(ChainIter<'a>),
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::One(one) => one.take(),
            Self::Stripe(stripe) => stripe.next(),
            Self::Chain(chain) => chain.next().map(|slice| &**slice),
        }
    }
}

impl From<Slice> for Payload {
    #[inline]
    fn from(slice: Slice) -> Self {
        if slice.is_empty() { Self::default() } else { Self::one(slice) }
    }
}

impl FromIterator<Slice> for Payload {
    fn from_iter<I: IntoIterator<Item = Slice>>(slices: I) -> Self {
        let mut payload = Self::default();
        slices.into_iter().for_each(|slice| payload.push(slice));
        payload
    }
}

impl Clone for Payload {
    fn clone(&self) -> Self {
        match &self.0 {
            Repr::Empty => Self::default(),
            Repr::One(one) => Self(Repr::One(one.clone())),
            Repr::Stripe(stripe) => Self(Repr::Stripe(stripe.clone())),
            Repr::Chain(chain) => Self(Repr::Chain(chain.clone())),
        }
    }
}

#[inline(never)]
fn drop_several(several: Repr) {
    drop(several);
}

impl PartialEq for Payload {
    /// Payloads are equal when their bytes are, wherever and in however many slices they lie.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.pieces().flatten().eq(other.pieces().flatten())
    }
}

impl Eq for Payload {}

impl core::fmt::Debug for Payload {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "Payload({} bytes in {} pieces)", self.len(), self.piece_count())
    }
}
